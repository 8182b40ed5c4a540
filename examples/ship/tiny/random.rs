//! Random numbers for rows that are made on the host.

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to below 1.
    pub(crate) fn uniform(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u32 << 24) as f32
    }

    pub(crate) fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.uniform()
    }

    /// About normal, with mean 0 and standard deviation 1: the sum of four uniform numbers of 16 bits.
    pub(crate) fn normal(&mut self) -> f32 {
        let bits = self.bits();
        let sum: u64 = (0..4).map(|k| bits >> (16 * k) & 0xffff).sum();
        (sum as f32 / 65_536.0 - 2.0) * 3f32.sqrt()
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for k in (1..items.len()).rev() {
            let other = (self.bits() % (k as u64 + 1)) as usize;
            items.swap(k, other);
        }
    }
}
