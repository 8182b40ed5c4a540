//! Random orders, the same on every machine: one for each seed and epoch.

use tensor_core::philox;

/// The numbers 0..n in the order of this seed and epoch (Fisher and Yates).
pub(crate) fn permutation(n: usize, seed: u64, epoch: u64) -> Vec<usize> {
    // Epochs are streams of their own: their keys are blocks of the seed's stream.
    let [a, b, ..] = philox(seed, epoch);
    let key = u64::from(a) << 32 | u64::from(b);
    let mut order: Vec<usize> = (0..n).collect();
    for (counter, i) in (1..n).rev().enumerate() {
        let [high, low, ..] = philox(key, counter as u64);
        let word = u64::from(high) << 32 | u64::from(low);
        // The upper half of a product: within 2⁻⁶⁴ · n of even.
        let j = (u128::from(word) * (i as u128 + 1)) >> 64;
        order.swap(i, j as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_has_its_own_whole_order() {
        let orders: Vec<_> = [(1, 0), (1, 1), (2, 0)].map(|(s, e)| permutation(100, s, e)).into();
        assert!(orders[0] != orders[1] && orders[0] != orders[2] && orders[1] != orders[2]);
        assert_eq!(orders[0], permutation(100, 1, 0));
        for mut order in orders {
            order.sort_unstable();
            assert_eq!(order, (0..100).collect::<Vec<_>>());
        }
        assert!(permutation(0, 1, 0).is_empty());
    }
}
