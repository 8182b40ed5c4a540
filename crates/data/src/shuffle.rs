//! Random orders and draws, the same on every machine: from a seed, an epoch, and a place in it.

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

/// Random numbers on the host, such as for what an augmentation does with an item. Another stream for each
/// seed, epoch and item, so that they depend neither on the order of items nor on the thread.
///
/// ```
/// use data::Draws;
/// let mut draws = Draws::of(42, 0, 7); // of item 7 in epoch 0
/// assert!(draws.below(10) < 10 && (0.0..1.0).contains(&draws.uniform()));
/// assert_eq!(Draws::of(42, 0, 7).next_u64(), Draws::of(42, 0, 7).next_u64());
/// ```
#[derive(Clone, Debug)]
pub struct Draws {
    key: u64,
    next: u64,
}

impl Draws {
    /// The stream of a seed, an epoch and an item.
    pub fn of(seed: u64, epoch: u64, item: u64) -> Draws {
        let word = |[a, b, ..]: [u32; 4]| u64::from(a) << 32 | u64::from(b);
        // The last two words: the first two of `philox(seed, epoch)` are the key of an order.
        let [_, _, c, d] = philox(seed, epoch);
        Draws { key: word(philox(u64::from(c) << 32 | u64::from(d), item)), next: 0 }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [high, low, ..] = philox(self.key, self.next);
        self.next = self.next.wrapping_add(1);
        u64::from(high) << 32 | u64::from(low)
    }

    /// A number below `bound`, each within 2⁻⁶⁴ · `bound` of equally likely; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 on and below 1.
    pub fn uniform(&mut self) -> f64 {
        // As many bits as an f64 has.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Whether something happens that has this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }
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
