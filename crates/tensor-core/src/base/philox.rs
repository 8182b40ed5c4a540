//! Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1,
//! 2, 3" (SC 2011). The reference for every backend; [`crate::RandomKind`] defines how its words become
//! numbers.

const M0: u32 = 0xD251_1F53;
const M1: u32 = 0xCD9E_8D57;
const W0: u32 = 0x9E37_79B9;
const W1: u32 = 0xBB67_AE85;

/// The four words of the block `counter` of the stream `seed`.
// Always inlined: backends compile it for wider registers inside their loops.
#[inline(always)]
pub fn philox(seed: u64, counter: u64) -> [u32; 4] {
    rounds([counter as u32, (counter >> 32) as u32, 0, 0], [seed as u32, (seed >> 32) as u32])
}

/// The first two words of each of `N` consecutive blocks from `first` on: [`philox`] in a form that
/// vectorises. Words are in u64, for which one instruction gives the full product, and the rounds are
/// unrolled because an inner loop would prevent vectorisation.
#[inline(always)]
pub fn philox_words<const N: usize>(seed: u64, first: u64) -> [[u32; N]; 2] {
    const LOW: u64 = 0xffff_ffff;
    let [mut w0, mut w1] = [[0u32; N]; 2];
    for (i, (w0, w1)) in w0.iter_mut().zip(&mut w1).enumerate() {
        let counter = first.wrapping_add(i as u64);
        let mut c = [counter & LOW, counter >> 32, 0, 0];
        macro_rules! rounds {
            ($($round:literal)*) => {$(
                let (p0, p1) = (u64::from(M0) * c[0], u64::from(M1) * c[2]);
                let k0 = (seed & LOW) + $round * u64::from(W0) & LOW;
                let k1 = (seed >> 32) + $round * u64::from(W1) & LOW;
                c = [(p1 >> 32) ^ c[1] ^ k0, p1 & LOW, (p0 >> 32) ^ c[3] ^ k1, p0 & LOW];
            )*};
        }
        rounds!(0 1 2 3 4 5 6 7 8 9);
        (*w0, *w1) = (c[0] as u32, c[1] as u32);
    }
    [w0, w1]
}

#[inline(always)]
fn rounds(mut c: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let p0 = u64::from(M0) * u64::from(c[0]);
        let p1 = u64::from(M1) * u64::from(c[2]);
        c = [(p1 >> 32) as u32 ^ c[1] ^ key[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ key[1], p0 as u32];
        key = [key[0].wrapping_add(W0), key[1].wrapping_add(W1)];
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_blocks_are_those_one_by_one() {
        for (seed, first) in [(0, 0), (0x0123_4567_89ab_cdef, u64::from(u32::MAX) - 3), (7, u64::MAX - 5)] {
            let [w0, w1] = philox_words::<16>(seed, first);
            for i in 0..16 {
                let block = philox(seed, first.wrapping_add(i as u64));
                assert_eq!([w0[i], w1[i]], block[..2]);
            }
        }
    }

    /// The known-answer tests of the Random123 distribution.
    #[test]
    fn known_answers() {
        assert_eq!(rounds([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(rounds([u32::MAX; 4], [u32::MAX; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(
            rounds([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }
}
