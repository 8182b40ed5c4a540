//! The block formats of GGUF files, decoded in registers: the same numbers to the bit as
//! [`BlockFormat::decode`](tensor_core::BlockFormat::decode) gives. Every one of them is `s q + o` with a
//! small integer q, and a scale s and an offset o for sixteen neighbours; the product and the sum are
//! rounded.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use tensor_core::{BlockFormat, GgmlType, IQ4_NUMBERS, MXFP4_NUMBERS, mxfp4_scale};

pub(crate) use super::bytes::{GROUP, HALF};
use super::{
    bytes::{Bytes, HalfPair},
    integers::Integers,
    isa::{Isa, Job},
    vector::Vector,
};

/// Elements of a block of the formats that end in `_K`.
const SUPER: usize = 256;

/// A format. Its functions take the address of a block, the number of a group in it, and the position in
/// the group of the first of a register's elements, a multiple of the register's width, of at most
/// [`HALF`].
pub(crate) trait Format {
    /// The numbers of a block that scales and offsets are made from.
    type Head: Copy;
    /// Elements and bytes of a block.
    const ELEMENTS: usize;
    const BYTES: usize;
    /// Whether offsets are not 0.
    const HAS_OFFSET: bool;
    /// Whether the halves of a group have scales and offsets of their own.
    const BY_HALVES: bool;
    /// The integers plus this number are unsigned and below 64; none if they are signed bytes.
    const ZERO: Option<u8>;

    /// # Safety
    /// `block` is valid for reads of [`Format::BYTES`] bytes, and the processor has the instruction set of
    /// `V`.
    unsafe fn head<V: HalfPair>(block: *const u8) -> Self::Head;

    /// The integers of some neighbours.
    ///
    /// # Safety
    /// `block` is valid for reads of [`Format::BYTES`] bytes. It has the group and the elements: `group` is
    /// below [`Format::ELEMENTS`] / [`GROUP`], and `at` is below [`GROUP`] and a multiple of the width.
    unsafe fn integers<V: Integers>(block: *const u8, group: usize, at: usize) -> V::Ints;

    /// The integers of a group, plus [`Format::ZERO`] if there is one.
    ///
    /// # Safety
    /// `block` is valid for reads of [`Format::BYTES`] bytes, and `group` is below [`Format::ELEMENTS`] /
    /// [`GROUP`].
    unsafe fn bytes<B: Bytes>(block: *const u8, group: usize) -> B::Register;

    /// The scale and the offset of one half of a group.
    ///
    /// # Safety
    /// As [`Format::bytes`], and `half` is 0 or 1.
    unsafe fn scale(block: *const u8, head: Self::Head, group: usize, half: usize) -> (f32, f32);
}

/// Integers of four bits: the first half of a group is in the low bits of sixteen bytes, the other in the
/// high bits.
///
/// # Safety
/// `bytes` is valid for reads of sixteen bytes; `at` is below [`GROUP`] and a multiple of the width.
#[inline(always)]
unsafe fn nibbles<V: Integers>(bytes: *const u8, at: usize) -> V::Ints {
    // SAFETY: `at % HALF` plus the width, which divides `HALF`, is at most 16, the bytes that `# Safety`
    // makes readable.
    let bytes = unsafe { V::unsigned(bytes.add(at % HALF)) };
    if at < HALF { V::and(bytes, 15) } else { V::right(bytes, 4) }
}

/// The 32 bits of four bytes.
///
/// # Safety
/// `bytes` is valid for reads of four bytes.
#[inline(always)]
unsafe fn bits(bytes: *const u8) -> u32 {
    // SAFETY: `bytes` is readable for four bytes, by `# Safety`; bytes need no alignment.
    u32::from_le_bytes(unsafe { bytes.cast::<[u8; 4]>().read() })
}

/// The fifth bits of the neighbours from `at` on, of the 32 in four bytes.
///
/// # Safety
/// `bytes` is valid for reads of four bytes.
#[inline(always)]
unsafe fn fifth<V: Integers>(bytes: *const u8, at: usize) -> V::Ints {
    // SAFETY: `bytes` is readable for four bytes, by `# Safety`, as `bits` asks.
    V::where_set(unsafe { bits(bytes) } >> at, 16)
}

/// A byte of a block.
///
/// # Safety
/// Byte `at` of `block` is valid for reads.
#[inline(always)]
unsafe fn byte(block: *const u8, at: usize) -> u8 {
    // SAFETY: byte `at` of `block` is readable, by `# Safety`.
    unsafe { block.add(at).read() }
}

macro_rules! block_format {
    (
        $name:ident, $elements:expr, $bytes:literal, $head:ty, $has_offset:literal, $by_halves:literal;
        |$v:ident, $block:ident| $read:expr;
        |$group:ident, $at:ident| $integers:expr;
        $zero:expr, |$b:ident| $bytes_of:expr;
        |$d:ident, $half:ident| $scale:expr
    ) => {
        #[allow(non_camel_case_types)] // ggml's names
        pub(crate) struct $name;

        // The expressions of a format read only bytes below `BYTES`, for each group and position that
        // [`Format`] allows.
        impl Format for $name {
            type Head = $head;
            const ELEMENTS: usize = $elements;
            const BYTES: usize = $bytes;
            const HAS_OFFSET: bool = $has_offset;
            const BY_HALVES: bool = $by_halves;
            const ZERO: Option<u8> = $zero;

            #[inline(always)]
            unsafe fn head<$v: HalfPair>($block: *const u8) -> $head {
                // SAFETY: `$read` reads four bytes of the block, which is readable for `BYTES`, with
                // instructions that the processor has: both by `# Safety`.
                unsafe { $read }
            }

            #[inline(always)]
            unsafe fn integers<$v: Integers>($block: *const u8, $group: usize, $at: usize) -> $v::Ints {
                // SAFETY: `$integers` reads only bytes below `BYTES`, which `# Safety` makes readable.
                unsafe { $integers }
            }

            #[inline(always)]
            unsafe fn bytes<$b: Bytes>($block: *const u8, $group: usize) -> $b::Register {
                // SAFETY: `$bytes_of` reads only bytes below `BYTES`, which `# Safety` makes readable.
                unsafe { $bytes_of }
            }

            #[inline(always)]
            #[allow(unused_variables, unused_unsafe)] // scales of the formats of 32 elements are in the head
            unsafe fn scale($block: *const u8, $d: $head, $group: usize, $half: usize) -> (f32, f32) {
                // SAFETY: `$scale` reads only bytes below `BYTES`, which `# Safety` makes readable.
                unsafe { $scale }
            }
        }
    };
}
block_format! {
    Q4_0, GROUP, 18, f32, false, false;
    |V, block| V::halves(block)[0];
    |_group, at| V::plus(nibbles::<V>(block.add(2), at), -8);
    Some(8), |B| B::nibbles(block.add(2));
    |d, _half| (d, 0.0)
}
block_format! {
    Q4_1, GROUP, 20, [f32; 2], true, false;
    |V, block| V::halves(block);
    |_group, at| nibbles::<V>(block.add(4), at);
    Some(0), |B| B::nibbles(block.add(4));
    |d, _half| (d[0], d[1])
}
block_format! {
    Q5_0, GROUP, 22, f32, false, false;
    |V, block| V::halves(block)[0];
    |_group, at| V::plus(V::or(nibbles::<V>(block.add(6), at), fifth::<V>(block.add(2), at)), -16);
    Some(16), |B| B::or(B::nibbles(block.add(6)), B::where_set(bits(block.add(2)), 16));
    |d, _half| (d, 0.0)
}
block_format! {
    Q5_1, GROUP, 24, [f32; 2], true, false;
    |V, block| V::halves(block);
    |_group, at| V::or(nibbles::<V>(block.add(8), at), fifth::<V>(block.add(4), at));
    Some(0), |B| B::or(B::nibbles(block.add(8)), B::where_set(bits(block.add(4)), 16));
    |d, _half| (d[0], d[1])
}
block_format! {
    Q8_0, GROUP, 34, f32, false, false;
    |V, block| V::halves(block)[0];
    |_group, at| V::signed(block.add(2 + at));
    None, |B| B::load(block.add(2));
    |d, _half| (d, 0.0)
}

block_format! {
    Q2_K, SUPER, 84, [f32; 2], true, true;
    |V, block| V::halves(block.add(80));
    |group, at| V::and(V::right(V::unsigned(block.add(16 + group / 4 * 32 + at)), 2 * (group % 4)), 3);
    Some(0), |B| B::right(B::load(block.add(16 + group / 4 * 32)), 2 * (group % 4), 3);
    |d, half| {
        let scale = byte(block, 2 * group + half);
        (d[0] * f32::from(scale & 15), -(d[1] * f32::from(scale >> 4)))
    }
}
block_format! {
    Q3_K, SUPER, 110, f32, false, true;
    |V, block| V::halves(block.add(106))[1];
    |group, at| {
        let two = V::and(V::right(V::unsigned(block.add(32 + group / 4 * 32 + at)), 2 * (group % 4)), 3);
        let third = V::and(V::right(V::unsigned(block.add(at)), group), 1);
        V::plus(V::or(two, V::left(third, 2)), -4)
    };
    Some(4), |B| {
        let two = B::right(B::load(block.add(32 + group / 4 * 32)), 2 * (group % 4), 3);
        B::or(two, B::left(B::right(B::load(block), group, 1), 2))
    };
    |d, half| {
        let k = 2 * group + half;
        let four = if k < 8 { byte(block, 96 + k) & 15 } else { byte(block, 88 + k) >> 4 };
        let two = byte(block, 104 + k % 4) >> (2 * (k / 4)) & 3;
        (d * (f32::from(four | two << 4) - 32.0), 0.0)
    }
}

/// The 6-bit scale and minimum of a group, from the 12 bytes that hold eight of each.
///
/// # Safety
/// `at` is valid for reads of twelve bytes, and `group` is below 8.
#[inline(always)]
unsafe fn six_bits(at: *const u8, group: usize) -> (f32, f32) {
    // SAFETY: i is at most `group` + 4 ≤ 11, and `at` is readable for twelve bytes, by `# Safety`.
    let of = |i: usize| unsafe { byte(at, i) };
    let (scale, minimum) = if group < 4 {
        (of(group) & 63, of(group + 4) & 63)
    } else {
        let both = of(group + 4);
        (both & 15 | of(group - 4) >> 6 << 4, both >> 4 | of(group) >> 6 << 4)
    };
    (scale.into(), minimum.into())
}

block_format! {
    Q4_K, SUPER, 144, [f32; 2], true, false;
    |V, block| V::halves(block);
    |group, at| V::and(V::right(V::unsigned(block.add(16 + group / 2 * 32 + at)), 4 * (group % 2)), 15);
    Some(0), |B| B::right(B::load(block.add(16 + group / 2 * 32)), 4 * (group % 2), 15);
    |d, _half| {
        let (scale, minimum) = six_bits(block.add(4), group);
        (d[0] * scale, -(d[1] * minimum))
    }
}
block_format! {
    Q5_K, SUPER, 176, [f32; 2], true, false;
    |V, block| V::halves(block);
    |group, at| {
        let four = V::and(V::right(V::unsigned(block.add(48 + group / 2 * 32 + at)), 4 * (group % 2)), 15);
        let fifth = V::and(V::right(V::unsigned(block.add(16 + at)), group), 1);
        V::or(four, V::left(fifth, 4))
    };
    Some(0), |B| {
        let four = B::right(B::load(block.add(48 + group / 2 * 32)), 4 * (group % 2), 15);
        B::or(four, B::left(B::right(B::load(block.add(16)), group, 1), 4))
    };
    |d, _half| {
        let (scale, minimum) = six_bits(block.add(4), group);
        (d[0] * scale, -(d[1] * minimum))
    }
}
block_format! {
    Q6_K, SUPER, 210, f32, false, true;
    |V, block| V::halves(block.add(206))[1];
    |group, at| {
        let (part, r) = (group / 4, group % 4);
        let four = V::unsigned(block.add(64 * part + 32 * (r % 2) + at));
        let two = V::right(V::unsigned(block.add(128 + 32 * part + at)), 2 * r);
        let four = V::and(V::right(four, 4 * (r / 2)), 15);
        V::plus(V::or(four, V::left(V::and(two, 3), 4)), -32)
    };
    Some(32), |B| {
        let (part, r) = (group / 4, group % 4);
        let four = B::right(B::load(block.add(64 * part + 32 * (r % 2))), 4 * (r / 2), 15);
        let two = B::right(B::load(block.add(128 + 32 * part)), 2 * r, 3);
        B::or(four, B::left(two, 4))
    };
    |d, half| (d * f32::from(byte(block, 192 + 2 * group + half) as i8), 0.0)
}

block_format! {
    IQ4_NL, GROUP, 18, f32, false, false;
    |V, block| V::halves(block)[0];
    |_group, at| V::entries(&IQ4_NUMBERS, nibbles::<V>(block.add(2), at));
    None, |B| B::entries(&IQ4_NUMBERS, B::nibbles(block.add(2)));
    |d, _half| (d, 0.0)
}
block_format! {
    IQ4_XS, SUPER, 136, f32, false, false;
    |V, block| V::halves(block)[0];
    |group, at| V::entries(&IQ4_NUMBERS, nibbles::<V>(block.add(8 + 16 * group), at));
    None, |B| B::entries(&IQ4_NUMBERS, B::nibbles(block.add(8 + 16 * group)));
    |d, _half| {
        let four = byte(block, 4 + group / 2) >> (4 * (group % 2)) & 15;
        let two = byte(block, 2 + group / 4) >> (2 * (group % 4)) & 3;
        (d * (f32::from(four | two << 4) - 32.0), 0.0)
    }
}
block_format! {
    TQ2_0, SUPER, 66, f32, false, false;
    |V, block| V::halves(block.add(62))[1];
    |group, at| {
        let two = V::right(V::unsigned(block.add(group / 4 * 32 + at)), 2 * (group % 4));
        V::plus(V::and(two, 3), -1)
    };
    Some(1), |B| B::right(B::load(block.add(group / 4 * 32)), 2 * (group % 4), 3);
    |d, _half| (d, 0.0)
}
block_format! {
    MXFP4, GROUP, 17, f32, false, false;
    |V, block| mxfp4_scale(byte(block, 0));
    |_group, at| V::entries(&MXFP4_NUMBERS, nibbles::<V>(block.add(1), at));
    None, |B| B::entries(&MXFP4_NUMBERS, B::nibbles(block.add(1)));
    |d, _half| (d, 0.0)
}

/// Expands to a match over formats, each arm `$go!` of the format's type.
macro_rules! by_format {
    ($format:expr, $go:ident) => {{
        use $crate::simd::block_formats::{
            IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0, TQ2_0,
        };
        match $format {
            tensor_core::GgmlType::Q4_0 => $go!(Q4_0),
            tensor_core::GgmlType::Q4_1 => $go!(Q4_1),
            tensor_core::GgmlType::Q5_0 => $go!(Q5_0),
            tensor_core::GgmlType::Q5_1 => $go!(Q5_1),
            tensor_core::GgmlType::Q8_0 => $go!(Q8_0),
            tensor_core::GgmlType::Q2_K => $go!(Q2_K),
            tensor_core::GgmlType::Q3_K => $go!(Q3_K),
            tensor_core::GgmlType::Q4_K => $go!(Q4_K),
            tensor_core::GgmlType::Q5_K => $go!(Q5_K),
            tensor_core::GgmlType::Q6_K => $go!(Q6_K),
            tensor_core::GgmlType::IQ4_NL => $go!(IQ4_NL),
            tensor_core::GgmlType::IQ4_XS => $go!(IQ4_XS),
            tensor_core::GgmlType::TQ2_0 => $go!(TQ2_0),
            tensor_core::GgmlType::MXFP4 => $go!(MXFP4),
        }
    }};
}
pub(crate) use by_format;

/// Expands to `$go` with `$v` as the widest register of f32 of an instruction set.
macro_rules! by_register {
    ($isa:expr, $v:ident => $go:expr) => {{
        let isa: $crate::simd::isa::Isa = $isa;
        match () {
            // SAFETY: `is_avx512` proves that the processor has the registers of `$v`; `$go` states the rest.
            #[cfg(target_arch = "x86_64")]
            () if isa.is_avx512() => {
                type $v = $crate::simd::vector::F32x16;
                $go
            }
            // SAFETY: `is_avx2` proves that the processor has the registers of `$v`; `$go` states the rest.
            #[cfg(target_arch = "x86_64")]
            () if isa.is_avx2() => {
                type $v = $crate::simd::vector::F32x8;
                $go
            }
            // SAFETY: `$v` is of the baseline, which every processor has; `$go` states the rest.
            () => {
                let _ = isa;
                type $v = $crate::simd::F32x4;
                $go
            }
        }
    }};
}
pub(crate) use by_register;

/// The format of GGUF files that a tensor's format is, if it is one.
pub(crate) fn ggml(format: &dyn tensor_core::BlockFormat) -> Option<GgmlType> {
    (format as &dyn std::any::Any).downcast_ref::<GgmlType>().copied()
}

/// A register of decoded numbers of a group, from position `at` on.
///
/// # Safety
/// As [`Format::integers`].
#[inline(always)]
unsafe fn decoded<F: Format, V: Integers>(block: *const u8, head: F::Head, group: usize, at: usize) -> V {
    // SAFETY: `# Safety` is that of `integers`; `at` < `GROUP`, so `at / HALF` is 0 or 1, as `scale` asks.
    let (ints, (scale, offset)) =
        unsafe { (F::integers::<V>(block, group, at), F::scale(block, head, group, at / HALF)) };
    let product = V::splat(scale) * V::to_f32(ints);
    if F::HAS_OFFSET { product + V::splat(offset) } else { product }
}

/// Decodes whole blocks.
struct Decode<'a, F, V> {
    bytes: &'a [u8],
    out: &'a mut [f32],
    of: PhantomData<(F, V)>,
}

impl<F: Format, V: Integers> Job for Decode<'_, F, V> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let count = (self.bytes.len() / F::BYTES).min(self.out.len() / F::ELEMENTS);
        for i in 0..count {
            // SAFETY: block i < `count` is within `bytes` and `out`, and group and r give positions in it;
            // the job only runs inside `V::run`.
            unsafe {
                let block = self.bytes.as_ptr().add(i * F::BYTES);
                let head = F::head::<V>(block);
                for group in 0..F::ELEMENTS / GROUP {
                    for r in 0..GROUP / V::WIDTH {
                        let numbers = decoded::<F, V>(block, head, group, r * V::WIDTH);
                        let to = i * F::ELEMENTS + group * GROUP + r * V::WIDTH;
                        numbers.store_first(self.out.as_mut_ptr().add(to), V::WIDTH);
                    }
                }
            }
        }
    }
}

/// Decodes elements `start..start + out.len()`: whole blocks in registers, parts of blocks one by one.
pub(crate) fn decode(isa: Isa, format: GgmlType, bytes: &[u8], start: usize, out: &mut [f32]) {
    let block = format.block_elements();
    let ahead = (start.next_multiple_of(block) - start).min(out.len());
    let whole = (out.len() - ahead) / block * block;
    let (first, rest) = out.split_at_mut(ahead);
    let (middle, last) = rest.split_at_mut(whole);
    format.decode(bytes, start, first);
    format.decode(bytes, start + ahead + whole, last);
    if middle.is_empty() {
        return;
    }
    let bytes = &bytes[(start + ahead) / block * format.block_bytes()..];
    macro_rules! go {
        ($format:ident) => {
            by_register!(isa, V => {
                let job = Decode::<$format, V> { bytes, out: middle, of: PhantomData };
                // SAFETY: `by_register!` selects a `V` that `isa` proves the processor to have.
                unsafe { V::run(job) }
            })
        };
    }
    by_format!(format, go);
}

#[cfg(test)]
mod tests {
    use taper_testing::rng::Rng;

    use super::*;

    #[test]
    fn registers_decode_to_the_same_bits() {
        let mut rng = Rng::new(1, 0);
        for format in GgmlType::ALL {
            let block = format.block_elements();
            // Any bytes: scales that are subnormal, infinite or NaN are among them.
            let bytes: Vec<u8> = (0..300 * format.block_bytes()).map(|_| rng.bits() as u8).collect();
            for isa in Isa::available() {
                for (start, count) in
                    [(0, 300 * block), (block, 2 * block), (5, 3 * block), (block - 1, 2), (7, 9)]
                {
                    let (mut expected, mut found) = (vec![0f32; count], vec![1f32; count]);
                    format.decode(&bytes, start, &mut expected);
                    decode(isa, format, &bytes, start, &mut found);
                    for (i, (a, b)) in expected.iter().zip(&found).enumerate() {
                        // Two NaNs may differ in their bits.
                        let same = a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                        assert!(same, "{format:?} {isa:?} {start}+{i}: {a} and {b}");
                    }
                }
            }
        }
    }
}
