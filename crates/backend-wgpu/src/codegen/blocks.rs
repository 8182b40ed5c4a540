//! Decoding of operands in block formats: WGSL for each format, over a buffer of words.

use std::any::Any;

use taper_shaders::blocks;
use tensor_core::{Affine, AffineBits, BlockFormat, Codebook4, GgmlType};

/// The functions that decode elements of a format, for a buffer `x`; None for a format without WGSL.
pub(crate) fn text(format: &dyn BlockFormat) -> Option<String> {
    let any: &dyn Any = format;
    if let Some(format) = any.downcast_ref::<GgmlType>() {
        return Some(format!("{}\n{}", ggml(*format), blocks::ELEMENT));
    }
    if let Some(format) = any.downcast_ref::<Affine>() {
        let integer = match format.bits() {
            AffineBits::I8 => blocks::AFFINE_I8,
            AffineBits::U8 => blocks::AFFINE_U8,
            AffineBits::I4 => blocks::AFFINE_I4,
            AffineBits::U4 => blocks::AFFINE_U4,
        };
        return Some(format!("{integer}\n{}", blocks::AFFINE));
    }
    if any.is::<Codebook4>() {
        return Some(blocks::CODEBOOK4.into());
    }
    format.wgsl().map(Into::into)
}

/// The slices of a format: the parts of a block that one invocation decodes with `slice_x`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slices {
    /// Elements of a block.
    pub(crate) block: usize,
    /// Slices of a block; slice s begins at element 4 s.
    pub(crate) per_block: usize,
    /// Vectors of four elements in a slice.
    pub(crate) fours: usize,
    /// Elements from the beginning of one vector to that of the next.
    pub(crate) apart: usize,
}

impl Slices {
    /// The slices of a format; None if it has no `slice_x`.
    pub(crate) fn of(format: &dyn BlockFormat) -> Option<Slices> {
        let any: &dyn Any = format;
        if any.is::<Affine>() || any.is::<Codebook4>() {
            return Some(Slices { block: 8, per_block: 1, fours: 2, apart: 4 });
        }
        let block = any.downcast_ref::<GgmlType>()?.block_elements();
        Some(match block {
            256 => Slices { block, per_block: 8, fours: 8, apart: 32 },
            _ => Slices { block, per_block: 4, fours: 2, apart: 16 },
        })
    }
}

fn ggml(format: GgmlType) -> &'static str {
    match format {
        GgmlType::Q4_0 => blocks::Q4_0,
        GgmlType::Q4_1 => blocks::Q4_1,
        GgmlType::Q5_0 => blocks::Q5_0,
        GgmlType::Q5_1 => blocks::Q5_1,
        GgmlType::Q8_0 => blocks::Q8_0,
        GgmlType::Q2_K => blocks::Q2_K,
        GgmlType::Q3_K => blocks::Q3_K,
        GgmlType::Q4_K => blocks::Q4_K,
        GgmlType::Q5_K => blocks::Q5_K,
        GgmlType::Q6_K => blocks::Q6_K,
        GgmlType::IQ4_NL => blocks::IQ4_NL,
        GgmlType::IQ4_XS => blocks::IQ4_XS,
        GgmlType::TQ2_0 => blocks::TQ2_0,
        GgmlType::MXFP4 => blocks::MXFP4,
    }
}

/// The same functions for a buffer of another name, with the functions that read its bytes.
pub(crate) fn named(text: &str, name: &str) -> String {
    let suffix = format!("_{name}(");
    let bytes = blocks::BYTES.replace("x[", &format!("{name}["));
    format!("{bytes}\n{text}\n").replace("_x(", &suffix)
}
