//! [`PackedRows`]: rows of numbers in integers of 8 or 4 bits, as the tables of a cache are kept on request.

use crate::{
    base::error::{Error, Result},
    elements::dtype::DType,
};

pub(crate) const OP: &str = "PackedRows";

/// Rows of numbers along the last axis as integers. In eight bits, 32 neighbours share a scale, or 16 where
/// the axis is no multiple of 32; in four bits, 16 share a scale and a minimum. A number is its integer times
/// its scale, plus the minimum.
///
/// A tensor `[…, E]` with groups of g neighbours is kept in two or three ordinary tensors, whose rows are
/// concatenated and cut as those of any tensor; zeros stand for zeros.
///
/// | bits | integers | scales, and minima | bytes of a number |
/// |---|---|---|---|
/// | 8 | i8 of −127 to 127, `[…, E]` | bf16, `[…, E / g]` | 1.06 |
/// | 4 | u8 of two halves, `[…, E / 2]` | bf16, twice `[…, E / g]` | 0.75 |
///
/// The low halves of a group's bytes are its first g / 2 numbers, the high ones the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackedRows {
    /// Integers of 8 bits.
    Eight,
    /// Integers of 4 bits.
    Four,
}

impl PackedRows {
    /// The form with integers of this number of bits.
    ///
    /// # Errors
    /// A number that is neither 8 nor 4.
    #[track_caller]
    pub fn of_bits(bits: usize) -> Result<PackedRows> {
        match bits {
            8 => Ok(PackedRows::Eight),
            4 => Ok(PackedRows::Four),
            _ => Err(Error::invalid(OP, format!("rows are packed in 8 or 4 bits, not in {bits}"))),
        }
    }

    /// The number of tensors that hold rows.
    pub fn tensors(self) -> usize {
        match self {
            PackedRows::Eight => 2,
            PackedRows::Four => 3,
        }
    }

    /// The width of rows whose integers take this many places of the last axis.
    pub fn width(self, places: usize) -> usize {
        match self {
            PackedRows::Eight => places,
            PackedRows::Four => 2 * places,
        }
    }

    /// The number of neighbours that share a scale in rows of this width.
    ///
    /// # Errors
    /// A width that is no multiple of 16.
    #[track_caller]
    pub fn group(self, width: usize) -> Result<usize> {
        let groups: &[usize] = match self {
            PackedRows::Eight => &[32, 16],
            PackedRows::Four => &[16],
        };
        let group = groups.iter().copied().find(|&group| width > 0 && width.is_multiple_of(group));
        group.ok_or_else(|| {
            Error::invalid(
                OP,
                format!("packed rows have multiples of 16 numbers, not {width}: keep them unpacked"),
            )
        })
    }

    /// The dtypes of the tensors that hold rows of this width, with the last axis of each.
    ///
    /// # Errors
    /// As [`PackedRows::group`].
    #[track_caller]
    pub fn parts(self, width: usize) -> Result<Vec<(DType, usize)>> {
        let scales = (DType::BF16, width / self.group(width)?);
        Ok(match self {
            PackedRows::Eight => vec![(DType::I8, width), scales],
            PackedRows::Four => vec![(DType::U8, width / 2), scales, scales],
        })
    }
}
