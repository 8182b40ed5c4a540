//! Random choices of the fuzzers: Philox, so that a seed gives the same cases everywhere.

use tensor_core::philox;

/// A stream of choices.
#[derive(Clone, Debug)]
pub struct Rng {
    seed: u64,
    next: u64,
}

impl Rng {
    /// The stream of a case: `seed` is the run's, `stream` the number of the case.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let words = philox(seed, stream ^ 0x5eed_0000_0000_0000);
        Rng { seed: u64::from(words[0]) << 32 | u64::from(words[1]), next: 0 }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let words = philox(self.seed, self.next);
        self.next += 1;
        u64::from(words[0]) << 32 | u64::from(words[1])
    }

    /// A number below `n`; 0 for `n` = 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n.max(1) as u64) as usize
    }

    /// A number of `low..=high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + (self.bits() % (high - low + 1) as u64) as i64
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A number of [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * 2f64.powi(-53)
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// These in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
