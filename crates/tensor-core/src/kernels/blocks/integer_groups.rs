//! [`IntegerGroups`]: rounding rows of numbers to small integers, with a scale for each group of neighbours.

use super::affine::{Affine, AffineBits};
use crate::base::{
    error::{Error, Result},
    shape::Shape,
};

const OP: &str = "quantize";

/// Parts of the range of a group that are tried with an importance: 1, 0.975, … 0.5.
const CANDIDATES: i32 = 20;
const CANDIDATE_STEP: f32 = 0.025;

/// Small integers with a scale for each group of neighbours of a row, which [`Affine`] stores. The scale
/// covers the group's numbers: for signed integers of b bits it is max |x| / (2ᵇ − 1) · 2, and for unsigned
/// ones (max x − min x) / (2ᵇ − 1) with an integer zero point, where 0 counts as one of the numbers.
///
/// ```
/// use tensor_core::{AffineBits, IntegerGroups};
/// let groups = IntegerGroups::new(AffineBits::U4, 128); // 4 bits, a scale and a zero point for 128 numbers
/// assert_eq!(groups.fit(&[-1.0, 0.5, 2.0]), (0.2, 5.0));
/// assert_eq!(groups.round(0.5, (0.2, 5.0)), 7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntegerGroups {
    /// The integers: signed ones have scales alone, unsigned ones zero points too.
    pub bits: AffineBits,
    /// The neighbours with one scale, which divide a row; a whole row for None.
    pub group_size: Option<usize>,
}

impl IntegerGroups {
    /// Groups of `group_size` neighbours.
    #[must_use]
    pub fn new(bits: AffineBits, group_size: usize) -> IntegerGroups {
        IntegerGroups { bits, group_size: Some(group_size) }
    }

    /// One group for each row.
    #[must_use]
    pub fn by_row(bits: AffineBits) -> IntegerGroups {
        IntegerGroups { bits, group_size: None }
    }

    /// The elements of a group of a row with `columns` elements, if groups divide it.
    #[must_use]
    pub fn group_of(&self, columns: usize) -> Option<usize> {
        let group = self.group_size.unwrap_or(columns);
        (group > 0 && columns.is_multiple_of(group)).then_some(group)
    }

    /// Whether there are zero points.
    #[must_use]
    pub fn has_zero(&self) -> bool {
        self.bits.range().0 == 0
    }

    /// The scale and the zero point that cover some numbers; the zero point of signed integers is 0.
    #[must_use]
    pub fn fit(&self, numbers: &[f32]) -> (f32, f32) {
        self.fit_part(numbers, 1.0)
    }

    /// [`IntegerGroups::fit`] to a part of the numbers' range.
    fn fit_part(&self, numbers: &[f32], part: f32) -> (f32, f32) {
        let (least, greatest) = self.bits.range();
        let levels = (greatest - least) as f32;
        let (low, high) = numbers.iter().fold((0.0f32, 0.0f32), |(low, high), &x| (low.min(x), high.max(x)));
        let (low, high) = (low * part, high * part);
        let usable = |scale: f32| if scale >= f32::MIN_POSITIVE { scale } else { 1.0 };
        if self.has_zero() {
            let scale = usable((high - low) / levels);
            return (scale, (-low / scale).round_ties_even().clamp(0.0, levels));
        }
        (usable(2.0 * high.max(-low) / levels), 0.0)
    }

    /// The integer that is nearest to a number, halves to even, for a scale and a zero point.
    #[must_use]
    pub fn round(&self, x: f32, (scale, zero): (f32, f32)) -> i32 {
        let (least, greatest) = self.bits.range();
        ((x / scale).round_ties_even() + zero).clamp(least as f32, greatest as f32) as i32
    }

    /// The best part of the range for numbers with an importance each.
    fn fit_weighted(&self, numbers: &[f32], importance: &[f32]) -> (f32, f32) {
        let error = |fit: (f32, f32)| -> f32 {
            let one = |(&x, &w): (&f32, &f32)| {
                let rounded = (self.round(x, fit) as f32 - fit.1) * fit.0;
                w * (x - rounded) * (x - rounded)
            };
            numbers.iter().zip(importance).map(one).sum()
        };
        let mut best = (f32::INFINITY, self.fit(numbers));
        for step in 0..=CANDIDATES {
            let fit = self.fit_part(numbers, 1.0 - step as f32 * CANDIDATE_STEP);
            let found = error(fit);
            if found < best.0 {
                best = (found, fit);
            }
        }
        best.1
    }

    /// The format and the bytes of integers with the scale and the zero point of each group, in row-major
    /// order.
    ///
    /// # Errors
    /// A shape whose rows the groups do not divide, or other numbers of integers or groups.
    pub fn pack(&self, shape: &Shape, integers: &[i32], scales: &[(f32, f32)]) -> Result<(Affine, Vec<u8>)> {
        let columns = shape.last().copied().unwrap_or(0);
        let group = self.group_of(columns).ok_or_else(|| self.misfit(columns))?;
        let packed: Vec<u8> = match self.bits.per_byte() {
            1 => integers.iter().map(|&q| q as u8).collect(),
            each => {
                let byte = |of: &[i32]| of.iter().rev().fold(0, |byte, &q| byte << 4 | (q & 15) as u8);
                integers.chunks(each).map(byte).collect()
            }
        };
        let mut of_scale: Vec<usize> = shape.to_vec();
        if let Some(last) = of_scale.last_mut() {
            *last = columns / group;
        }
        let of_scale = Shape::from(of_scale.as_slice());
        let zeros: Option<Vec<f32>> = self.has_zero().then(|| scales.iter().map(|fit| fit.1).collect());
        let scales: Vec<f32> = scales.iter().map(|fit| fit.0).collect();
        Affine::encode(self.bits, shape, &packed, (&of_scale, &scales), zeros.as_deref(), -1)
    }

    /// The error of a row that groups do not divide.
    fn misfit(&self, columns: usize) -> Error {
        let group = self.group_size.unwrap_or(0);
        let message = format!(
            "groups of {group} do not divide a row of {columns} elements; take a divisor of {columns}, or one \
             group for each row"
        );
        Error::invalid(OP, message)
    }

    /// The format and the bytes of numbers, each rounded to the nearest. With an importance of each column,
    /// groups take the part of their range, down to half of it, with the least squared error by that
    /// weight.
    pub(crate) fn encode(
        &self,
        numbers: &[f32],
        shape: &Shape,
        importance: Option<&[f32]>,
    ) -> Result<(Affine, Vec<u8>)> {
        let columns = shape.last().copied().unwrap_or(0);
        let group = self.group_of(columns).ok_or_else(|| self.misfit(columns))?;
        let mut integers = Vec::with_capacity(numbers.len());
        let mut scales = Vec::with_capacity(numbers.len() / group);
        for (i, x) in numbers.chunks_exact(group).enumerate() {
            let fit = match importance {
                Some(all) => self.fit_weighted(x, &all[i * group % columns..][..group]),
                None => self.fit(x),
            };
            let faulty = x.iter().position(|x| !x.is_finite());
            if let Some(at) = faulty.or((!fit.0.is_finite()).then_some(0)) {
                let message = format!(
                    "element {} is {}: integers with scales hold finite numbers",
                    i * group + at,
                    x[at]
                );
                return Err(Error::invalid(OP, message));
            }
            integers.extend(x.iter().map(|&x| self.round(x, fit)));
            scales.push(fit);
        }
        self.pack(shape, &integers, &scales)
    }
}
