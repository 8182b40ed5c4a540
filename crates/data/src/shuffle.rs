//! Random orders and draws, the same on every machine: they depend on a seed, an epoch, and a position in
//! it.

use tensor_core::philox;

/// The numbers 0 to n − 1 in the random order of this seed and epoch (Fisher and Yates).
pub(crate) fn permutation(n: usize, seed: u64, epoch: u64) -> Vec<usize> {
    // Each epoch has its own stream: its key is a block of the seed's stream.
    let [a, b, ..] = philox(seed, epoch);
    let key = u64::from(a) << 32 | u64::from(b);
    let mut order: Vec<usize> = (0..n).collect();
    for (counter, i) in (1..n).rev().enumerate() {
        let [high, low, ..] = philox(key, counter as u64);
        let word = u64::from(high) << 32 | u64::from(low);
        // The upper half of a product: the bias is at most 2⁻⁶⁴ · n.
        let j = (u128::from(word) * (i as u128 + 1)) >> 64;
        order.swap(i, j as usize);
    }
    order
}

/// Random numbers on the host, such as for augmentation. Each seed, epoch and item has its own stream, so
/// that numbers depend neither on the order of items nor on the thread.
///
/// ```
/// use data::Draws;
/// let mut draws = Draws::of(42, 0, 7); // for item 7 in epoch 0
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
        // The last two words: the first two of `philox(seed, epoch)` are the key of a permutation.
        let [_, _, c, d] = philox(seed, epoch);
        Draws { key: word(philox(u64::from(c) << 32 | u64::from(d), item)), next: 0 }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [high, low, ..] = philox(self.key, self.next);
        self.next = self.next.wrapping_add(1);
        u64::from(high) << 32 | u64::from(low)
    }

    /// A number below `bound`, nearly uniform: the bias is at most 2⁻⁶⁴ · `bound`. 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        // An f64 has 53 bits.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
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
