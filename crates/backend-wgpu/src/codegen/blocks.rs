//! Decoding of operands in block formats: WGSL for each format, over a buffer of words.

use std::any::Any;

use taper_shaders::blocks;
use tensor_core::{Affine, AffineBits, BlockFormat, Codebook4, GgmlType};

/// The functions that decode elements of a format, for a buffer `x`; None for a format without WGSL.
pub(crate) fn text(format: &dyn BlockFormat) -> Option<String> {
    let any: &dyn Any = format;
    if let Some(format) = any.downcast_ref::<GgmlType>() {
        return Some(ggml(*format).into());
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
    }
}

/// The same functions for a buffer of another name, with the functions that read its bytes.
pub(crate) fn named(text: &str, name: &str) -> String {
    let suffix = format!("_{name}(");
    let bytes = blocks::BYTES.replace("x[", &format!("{name}["));
    format!("{bytes}\n{text}\n").replace("_x(", &suffix)
}
