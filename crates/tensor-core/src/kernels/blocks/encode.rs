//! Encoding numbers in the block formats of GGUF files, by rounding to the nearest.
//!
//! The formats of 32 elements round as gguf's Python package does, to the bit. With an importance of each
//! number, and in the formats of 256 elements, scales are searched for the least weighted squared error.

use half::f16;

use super::{
    BlockFormat,
    ggml::{GgmlType, IQ4_NUMBERS, MXFP4_NUMBERS, SIMPLE, SUPER, mxfp4_scale},
    weight_format::check_importance,
};
use crate::base::error::{Error, Result};

/// The greatest magnitude that is encoded: offsets are f16.
const MAX_ENCODED: f32 = 65504.0;

/// Candidates for a scale on either side of the one that covers all numbers.
const CANDIDATES: i32 = 10;
/// Candidates are this part of a level apart.
const CANDIDATE_STEP: f32 = 0.1;

impl GgmlType {
    /// The bytes that encode `numbers`, whose rows have `columns` elements, each rounded to the nearest that
    /// the format has. Formats of 32 elements round to the bit as gguf's Python package does.
    ///
    /// With an `importance` of each column, scales have the least error that is weighted by it, as they have
    /// in the formats of 256 elements without one too. llama.cpp calls it an importance matrix: the mean
    /// square of each input of a layer.
    ///
    /// # Errors
    /// A number that is not finite or whose scale is beyond f16's range, rows that are not whole blocks, or
    /// another number of importances than columns, or negative ones.
    pub fn encode(self, numbers: &[f32], columns: usize, importance: Option<&[f32]>) -> Result<Vec<u8>> {
        const OP: &str = "quantize";
        let (name, elements) = (self.name(), self.block_elements());
        if columns == 0 || !columns.is_multiple_of(elements) || !numbers.len().is_multiple_of(columns) {
            let message = format!(
                "{} numbers in rows of {columns} are no whole blocks of {elements}, as {name} has",
                numbers.len()
            );
            return Err(Error::invalid(OP, message));
        }
        check_importance(columns, importance)?;
        let mut out = Vec::with_capacity(numbers.len() / elements * self.block_bytes());
        for (i, block) in numbers.chunks_exact(elements).enumerate() {
            let first = i * elements;
            if let Some(at) = block.iter().position(|x| !x.is_finite() || x.abs() > MAX_ENCODED) {
                let message = format!(
                    "element {} is {}: {name} holds finite numbers up to {MAX_ENCODED}",
                    first + at,
                    block[at]
                );
                return Err(Error::invalid(OP, message));
            }
            let importance = importance.map(|all| &all[first % columns..][..elements]);
            encode_block(self, block, importance, &mut out);
        }
        Ok(out)
    }
}

/// Appends the block of some numbers, as many as the format has in one, with the importance of each.
fn encode_block(format: GgmlType, x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    match format {
        GgmlType::Q4_0 => simple_symmetric(x, importance, 8, out),
        GgmlType::Q5_0 => simple_symmetric(x, importance, 16, out),
        GgmlType::Q4_1 => simple_affine(x, importance, 15, out),
        GgmlType::Q5_1 => simple_affine(x, importance, 31, out),
        GgmlType::Q8_0 => q8_0(x, out),
        GgmlType::Q2_K => q2_k(x, importance, out),
        GgmlType::Q3_K => q3_k(x, importance, out),
        GgmlType::Q4_K | GgmlType::Q5_K => q4_k(x, importance, format == GgmlType::Q5_K, out),
        GgmlType::Q6_K => q6_k(x, importance, out),
        GgmlType::IQ4_NL => iq4_nl(x, importance, out),
        GgmlType::IQ4_XS => iq4_xs(x, importance, out),
        GgmlType::TQ2_0 => tq2_0(x, out),
        GgmlType::MXFP4 => mxfp4(x, out),
    }
}

/// 1 / d, and 0 for 0.
fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

fn half(x: f32) -> [u8; 2] {
    f16::from_f32(x).to_le_bytes()
}

/// The number that the f16 of a scale is.
fn rounded(x: f32) -> f32 {
    f16::from_f32(x).to_f32()
}

/// The number with the greatest magnitude, the first of several.
fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(x[0], |most, &x| if x.abs() > most.abs() { x } else { most })
}

fn least_and_greatest(x: &[f32]) -> (f32, f32) {
    x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)))
}

/// Appends integers of four bits, the first half of them in the low bits, and before them the fifth bits if
/// there are any.
fn nibbles(q: &[u8], has_fifth: bool, out: &mut Vec<u8>) {
    if has_fifth {
        let bits = q.iter().enumerate().fold(0u32, |bits, (i, q)| bits | u32::from(q >> 4 & 1) << i);
        out.extend(bits.to_le_bytes());
    }
    let (first, second) = q.split_at(SIMPLE / 2);
    out.extend(first.iter().zip(second).map(|(a, b)| a & 15 | (b & 15) << 4));
}

/// `d (q − low)` with q below 2 `low`.
fn simple_symmetric(x: &[f32], importance: Option<&[f32]>, low: i32, out: &mut Vec<u8>) {
    let d = match importance {
        Some(_) => symmetric_scale(x, &weights(x, importance), low),
        None => extreme(x) / -(low as f32),
    };
    let by = inverse(d);
    let q: Vec<u8> =
        x.iter().map(|x| ((x * by + (low as f32 + 0.5)) as i32).clamp(0, 2 * low - 1) as u8).collect();
    out.extend(half(d));
    nibbles(&q, low == 16, out);
}

/// `d q + m` with q from 0 to `most`.
fn simple_affine(x: &[f32], importance: Option<&[f32]>, most: i32, out: &mut Vec<u8>) {
    let (least, greatest) = least_and_greatest(x);
    let (d, m) = match importance {
        Some(_) => affine_scale(x, &weights(x, importance), most, false),
        None => ((greatest - least) / most as f32, least),
    };
    let by = inverse(d);
    let q: Vec<u8> = x.iter().map(|x| (((x - m) * by + 0.5) as i32).clamp(0, most) as u8).collect();
    out.extend(half(d));
    out.extend(half(m));
    nibbles(&q, most == 31, out);
}

/// `d q`; halves are rounded away from 0.
fn q8_0(x: &[f32], out: &mut Vec<u8>) {
    let d = extreme(x).abs() / 127.0;
    let by = inverse(d);
    out.extend(half(d));
    out.extend(x.iter().map(|x| (x * by).round() as i8 as u8));
}

/// The weight of each number in the error: larger ones count more, as an error in them changes sums by more
/// than others; and by their importance, if it is given.
fn weights(x: &[f32], importance: Option<&[f32]>) -> Vec<f32> {
    let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    match importance {
        Some(importance) => importance.iter().zip(x).map(|(w, x)| w * (mean + x * x).sqrt()).collect(),
        None => x.iter().map(|x| mean.sqrt() + x.abs()).collect(),
    }
}

/// The scale d for which `d q`, q from −`low` to `low` − 1, is nearest to the numbers.
fn symmetric_scale(x: &[f32], weights: &[f32], low: i32) -> f32 {
    scale_to(x, weights, low, CANDIDATE_STEP, |x| x.round().clamp(-low as f32, low as f32 - 1.0))
}

/// The scale d for which d times a level is nearest to the numbers: `nearest` gives the level that is nearest
/// to a number, and the lowest level is −`low`. Candidates are `apart` from each other in levels.
fn scale_to(x: &[f32], weights: &[f32], low: i32, apart: f32, nearest: impl Fn(f32) -> f32) -> f32 {
    let most = extreme(x);
    if most == 0.0 {
        return 0.0;
    }
    let mut best = (0.0, most / -(low as f32));
    for step in -CANDIDATES..=CANDIDATES {
        let by = -(low as f32 + step as f32 * apart) / most;
        // The best scale of these levels is Σ w q x / Σ w q², and lowers the error by (Σ w q x)² / Σ w q².
        let (mut products, mut squares) = (0.0f32, 0.0f32);
        for (&x, &w) in x.iter().zip(weights) {
            let q = nearest(x * by);
            products += w * q * x;
            squares += w * q * q;
        }
        if squares > 0.0 && products * products / squares > best.0 {
            best = (products * products / squares, products / squares);
        }
    }
    best.1
}

/// The scale d and the offset m for which `d q + m`, q from 0 to `most`, is nearest to the numbers. With
/// `below_zero`, m is not above 0.
fn affine_scale(x: &[f32], weights: &[f32], most: i32, below_zero: bool) -> (f32, f32) {
    let (mut least, greatest) = least_and_greatest(x);
    if below_zero {
        least = least.min(0.0);
    }
    if greatest <= least {
        return (0.0, least);
    }
    let error = |d: f32, m: f32| -> f32 {
        let by = inverse(d);
        let one = |(&x, &w): (&f32, &f32)| {
            let q = ((x - m) * by).round().clamp(0.0, most as f32);
            w * (d * q + m - x) * (d * q + m - x)
        };
        x.iter().zip(weights).map(one).sum()
    };
    let first = ((greatest - least) / most as f32, least);
    let mut best = (error(first.0, first.1), first);
    for step in -CANDIDATES..=CANDIDATES {
        let by = (most as f32 + step as f32 * CANDIDATE_STEP) / (greatest - least);
        // The line through the integers' points with the least weighted squares.
        let (mut w1, mut wq, mut wqq, mut wx, mut wqx) = (0.0f32, 0.0f32, 0.0f32, 0.0f32, 0.0f32);
        for (&x, &w) in x.iter().zip(weights) {
            let q = ((x - least) * by).round().clamp(0.0, most as f32);
            (w1, wq, wqq, wx, wqx) = (w1 + w, wq + w * q, wqq + w * q * q, wx + w * x, wqx + w * q * x);
        }
        let determinant = w1 * wqq - wq * wq;
        if determinant <= 0.0 {
            continue;
        }
        let (mut d, mut m) = ((w1 * wqx - wq * wx) / determinant, (wqq * wx - wq * wqx) / determinant);
        if below_zero && m > 0.0 {
            (d, m) = (wqx / wqq, 0.0);
        }
        let found = error(d, m);
        if d > 0.0 && found < best.0 {
            best = (found, (d, m));
        }
    }
    best.1
}

/// The scale and the offset of each group of a super-block, as integers up to `most`, with the units that
/// they are in: numbers are `d s q − m t`.
struct Affine {
    d: f32,
    m: f32,
    s: Vec<u8>,
    t: Vec<u8>,
    q: Vec<u8>,
}

fn affine(x: &[f32], importance: Option<&[f32]>, group: usize, levels: i32, most: u8) -> Affine {
    let all = weights(x, importance);
    let fits: Vec<(f32, f32)> = x
        .chunks(group)
        .zip(all.chunks(group))
        .map(|(x, weights)| affine_scale(x, weights, levels, true))
        .collect();
    let unit = |greatest: f32| rounded(greatest / f32::from(most));
    let d = unit(fits.iter().fold(0.0, |most, fit| fit.0.max(most)));
    let m = unit(fits.iter().fold(0.0, |most, fit| (-fit.1).max(most)));
    let whole = |x: f32, unit: f32| (x * inverse(unit)).round().clamp(0.0, f32::from(most)) as u8;
    let s: Vec<u8> = fits.iter().map(|fit| whole(fit.0, d)).collect();
    let t: Vec<u8> = fits.iter().map(|fit| whole(-fit.1, m)).collect();
    let one = |(i, &x): (usize, &f32)| {
        let (scale, offset) = (d * f32::from(s[i / group]), m * f32::from(t[i / group]));
        ((x + offset) * inverse(scale)).round().clamp(0.0, levels as f32) as u8
    };
    let q = x.iter().enumerate().map(one).collect();
    Affine { d, m, s, t, q }
}

/// Scales as integers from −`most` to `most` − 1, and the unit that they are in.
fn in_units(scales: &[f32], most: i32) -> (f32, Vec<i32>) {
    let d = rounded(extreme(scales) / -(most as f32));
    let whole = |scale: &f32| ((scale * inverse(d)).round() as i32).clamp(-most, most - 1);
    (d, scales.iter().map(whole).collect())
}

/// The signed scales of groups of sixteen of a super-block, in units of d, and integers from −`low` on, to
/// which `low` is added.
fn symmetric(x: &[f32], importance: Option<&[f32]>, low: i32, most: i32) -> (f32, Vec<i32>, Vec<u8>) {
    let all = weights(x, importance);
    let fits: Vec<f32> =
        x.chunks(16).zip(all.chunks(16)).map(|(x, weights)| symmetric_scale(x, weights, low)).collect();
    let (d, s) = in_units(&fits, most);
    let one = |(i, &x): (usize, &f32)| {
        let scale = d * s[i / 16] as f32;
        (((x * inverse(scale)).round() as i32).clamp(-low, low - 1) + low) as u8
    };
    let q = x.iter().enumerate().map(one).collect();
    (d, s, q)
}

/// Integers of two bits: of each 128, byte l has those at l, l + 32, l + 64 and l + 96.
fn pairs(q: &[u8], out: &mut Vec<u8>) {
    for q in q.chunks(SUPER / 2) {
        out.extend((0..32).map(|l| (0..4).fold(0, |byte, k| byte | (q[32 * k + l] & 3) << (2 * k))));
    }
}

fn q2_k(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    let Affine { d, m, s, t, q } = affine(x, importance, 16, 3, 15);
    out.extend(s.iter().zip(&t).map(|(s, t)| s | t << 4));
    pairs(&q, out);
    out.extend(half(d));
    out.extend(half(m));
}

fn q3_k(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    let (d, s, q) = symmetric(x, importance, 4, 32);
    out.extend((0..32).map(|l| (0..8).fold(0, |byte, g| byte | (q[32 * g + l] >> 2) << g)));
    pairs(&q, out);
    let s: Vec<u8> = s.iter().map(|s| (s + 32) as u8).collect();
    out.extend((0..8).map(|k| s[k] & 15 | (s[k + 8] & 15) << 4));
    out.extend((0..4).map(|k| (0..4).fold(0, |byte, r| byte | (s[k + 4 * r] >> 4) << (2 * r))));
    out.extend(half(d));
}

fn q4_k(x: &[f32], importance: Option<&[f32]>, has_fifth: bool, out: &mut Vec<u8>) {
    let Affine { d, m, s, t, q } = affine(x, importance, 32, if has_fifth { 31 } else { 15 }, 63);
    out.extend(half(d));
    out.extend(half(m));
    out.extend((0..4).map(|g| s[g] | (s[g + 4] >> 4) << 6));
    out.extend((0..4).map(|g| t[g] | (t[g + 4] >> 4) << 6));
    out.extend((0..4).map(|g| s[g + 4] & 15 | (t[g + 4] & 15) << 4));
    if has_fifth {
        out.extend((0..32).map(|l| (0..8).fold(0, |byte, g| byte | (q[32 * g + l] >> 4) << g)));
    }
    for q in q.chunks(64) {
        out.extend((0..32).map(|l| q[l] & 15 | (q[32 + l] & 15) << 4));
    }
}

fn q6_k(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    let (d, s, q) = symmetric(x, importance, 32, 128);
    for q in q.chunks(SUPER / 2) {
        out.extend((0..64).map(|l| q[l] & 15 | (q[64 + l] & 15) << 4));
    }
    for q in q.chunks(SUPER / 2) {
        out.extend((0..32).map(|l| (0..4).fold(0, |byte, r| byte | (q[32 * r + l] >> 4) << (2 * r))));
    }
    out.extend(s.iter().map(|&s| s as i8 as u8));
    out.extend(half(d));
}

/// The position of the number of a table that is nearest to x, the first of several.
fn nearest_entry(table: &[i8; 16], x: f32) -> u8 {
    let distance = |q: &u8| (f32::from(table[usize::from(*q)]) - x).abs();
    (0..16).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
}

/// The lowest number of the table of IQ4_NL, without its sign, and a step between candidates for its scale.
const IQ4_LOWEST: i32 = 127;
const IQ4_CANDIDATE_STEP: f32 = 1.0;

/// The scale for which the numbers of IQ4_NL's table are nearest to x.
fn iq4_scale(x: &[f32], weights: &[f32]) -> f32 {
    let nearest = |x: f32| f32::from(IQ4_NUMBERS[usize::from(nearest_entry(&IQ4_NUMBERS, x))]);
    scale_to(x, weights, IQ4_LOWEST, IQ4_CANDIDATE_STEP, nearest)
}

/// Appends the positions in IQ4_NL's table of numbers with this scale.
fn iq4_codes(x: &[f32], scale: f32, out: &mut Vec<u8>) {
    let by = inverse(scale);
    let q: Vec<u8> = x.iter().map(|x| nearest_entry(&IQ4_NUMBERS, x * by)).collect();
    nibbles(&q, false, out);
}

fn iq4_nl(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    let d = iq4_scale(x, &weights(x, importance));
    out.extend(half(d));
    iq4_codes(x, rounded(d), out);
}

fn iq4_xs(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    /// A scale of six bits has this added.
    const STORED_ZERO: i32 = 32;
    let all = weights(x, importance);
    let groups = || x.chunks(SIMPLE);
    let fits: Vec<f32> = groups().zip(all.chunks(SIMPLE)).map(|(x, weights)| iq4_scale(x, weights)).collect();
    let (d, s) = in_units(&fits, STORED_ZERO);
    let stored: Vec<u8> = s.iter().map(|s| (s + STORED_ZERO) as u8).collect();
    out.extend(half(d));
    let high = stored.iter().enumerate().fold(0u16, |bits, (g, s)| bits | u16::from(s >> 4) << (2 * g));
    out.extend(high.to_le_bytes());
    out.extend(stored.chunks(2).map(|pair| pair[0] & 15 | (pair[1] & 15) << 4));
    groups().zip(s).for_each(|(x, s)| iq4_codes(x, d * s as f32, out));
}

/// `d (q − 1)` with q from 0 to 2; halves are rounded away from 0.
fn tq2_0(x: &[f32], out: &mut Vec<u8>) {
    let d = extreme(x).abs();
    let by = inverse(d);
    let q: Vec<u8> = x.iter().map(|x| ((x * by).round() + 1.0) as u8).collect();
    pairs(&q, out);
    out.extend(half(d));
}

/// The greatest number is between 4 and 8 units, of which 6 is the greatest that is stored.
fn mxfp4(x: &[f32], out: &mut Vec<u8>) {
    let most = extreme(x).abs();
    let e = if most > 0.0 { (most.log2().floor() + 125.0).clamp(0.0, 254.0) as u8 } else { 0 };
    let d = mxfp4_scale(e);
    // The quotient is exact, since d is a power of two.
    let q: Vec<u8> = x.iter().map(|x| nearest_entry(&MXFP4_NUMBERS, x / d)).collect();
    out.push(e);
    nibbles(&q, false, out);
}
