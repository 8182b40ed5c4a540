//! [`WeightFormat`]: the formats that numbers are rounded to.

use std::{fmt, sync::Arc};

use super::{
    BlockFormat, affine::AffineBits, codebook::Codebook4, ggml::GgmlType, integer_groups::IntegerGroups,
};
use crate::base::{
    error::{Error, Result},
    shape::Shape,
};

/// A format that [`Tensor::quantize`](crate::Tensor::quantize) rounds numbers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// Blocks of GGUF files.
    Ggml(GgmlType),
    /// Groups of integers of 4 or 8 bits.
    Integers(IntegerGroups),
    /// NF4, the codes of QLoRA: four bits, and a scale for 64 neighbours.
    Nf4 {
        /// Whether the scales take 8 bits, so that an element takes 4.13 bits in place of 4.5.
        double_quantized: bool,
    },
}

impl From<GgmlType> for WeightFormat {
    fn from(format: GgmlType) -> WeightFormat {
        WeightFormat::Ggml(format)
    }
}

impl From<IntegerGroups> for WeightFormat {
    fn from(groups: IntegerGroups) -> WeightFormat {
        WeightFormat::Integers(groups)
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightFormat::Ggml(format) => f.write_str(format.name()),
            WeightFormat::Integers(IntegerGroups { bits, group_size }) => {
                f.write_str(match bits {
                    AffineBits::I8 => "int8",
                    AffineBits::U8 => "uint8",
                    AffineBits::I4 => "int4",
                    AffineBits::U4 => "uint4",
                })?;
                match group_size {
                    Some(size) => write!(f, " by {size}"),
                    None => f.write_str(" by row"),
                }
            }
            WeightFormat::Nf4 { double_quantized: false } => f.write_str("nf4"),
            WeightFormat::Nf4 { double_quantized: true } => f.write_str("nf4, double quantized"),
        }
    }
}

impl WeightFormat {
    /// Whether the format holds rows of `columns` elements.
    #[must_use]
    pub fn fits(&self, columns: usize) -> bool {
        match self {
            WeightFormat::Ggml(format) => columns > 0 && columns.is_multiple_of(format.block_elements()),
            WeightFormat::Integers(groups) => groups.group_of(columns).is_some(),
            WeightFormat::Nf4 { .. } => columns > 0,
        }
    }

    /// The format and the bytes of numbers of this shape, each rounded to the nearest, with an importance of
    /// each column or without one.
    pub(crate) fn encode(
        &self,
        numbers: &[f32],
        shape: &Shape,
        importance: Option<&[f32]>,
    ) -> Result<(Arc<dyn BlockFormat>, Vec<u8>)> {
        let columns = shape.last().copied().unwrap_or(1);
        check_importance(columns, importance)?;
        Ok(match self {
            WeightFormat::Ggml(format) => {
                format.bytes(shape)?;
                let bytes = match numbers.is_empty() {
                    true => Vec::new(),
                    false => format.encode(numbers, columns, importance)?,
                };
                (Arc::new(*format), bytes)
            }
            WeightFormat::Integers(groups) => {
                let (format, bytes) = groups.encode(numbers, shape, importance)?;
                (Arc::new(format), bytes)
            }
            WeightFormat::Nf4 { double_quantized } => {
                let (format, bytes) = Codebook4::encode(numbers, shape, *double_quantized)?;
                (Arc::new(format), bytes)
            }
        })
    }
}

/// Fails unless importances are one number for each column, none of them negative.
pub(super) fn check_importance(columns: usize, importance: Option<&[f32]>) -> Result<()> {
    let Some(importance) = importance else { return Ok(()) };
    let faulty = importance.iter().position(|w| !w.is_finite() || *w < 0.0);
    if importance.len() == columns && faulty.is_none() {
        return Ok(());
    }
    let message = format!(
        "importances are {columns} finite numbers that are not negative, one for each column; here are {}{}",
        importance.len(),
        faulty.map_or(String::new(), |at| format!(", number {at} is {}", importance[at])),
    );
    Err(Error::invalid("quantize", message))
}
