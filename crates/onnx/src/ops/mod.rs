//! The operators, a file for each family. Each file has a table of domain, name, first version, and the
//! function, which calls tensor operations and layers.

mod control;
pub(crate) mod elementwise;
mod image;
mod index;
pub(crate) mod layers;
mod microsoft;
mod ml;
pub(crate) mod quantized;
mod random;
mod recurrent;
pub(crate) mod reduce;
mod resize;
mod sequence;
pub(crate) mod shape;
mod signal;
mod text;
mod training;
mod tree;

use tensor_core::{DType, Result, Tensor};

use crate::{context::Context, value::Value};

/// A row of a table: domain, name, first version, function.
pub(crate) type Row = (&'static str, &'static str, i64, fn(&Context<'_>) -> Result<Vec<Value>>);

/// The tables of all families.
pub(crate) fn tables() -> &'static [&'static [Row]] {
    &[
        layers::activation::TABLE,
        layers::attention::TABLE,
        control::TABLE,
        layers::conv::TABLE,
        elementwise::TABLE,
        image::TABLE,
        index::TABLE,
        layers::linear_attention::TABLE,
        layers::loss::TABLE,
        microsoft::fused::TABLE,
        microsoft::attention::TABLE,
        microsoft::blocks::TABLE,
        microsoft::quantized::TABLE,
        ml::TABLE,
        layers::norm::TABLE,
        layers::pool::TABLE,
        quantized::TABLE,
        random::TABLE,
        recurrent::TABLE,
        reduce::TABLE,
        resize::TABLE,
        sequence::TABLE,
        shape::TABLE,
        signal::TABLE,
        text::TABLE,
        training::TABLE,
        tree::TABLE,
    ]
}

/// A single output.
pub(crate) fn one(tensor: Tensor) -> Result<Vec<Value>> {
    Ok(vec![tensor.into()])
}

/// Several outputs.
pub(crate) fn all(tensors: impl IntoIterator<Item = Tensor>) -> Result<Vec<Value>> {
    Ok(tensors.into_iter().map(Value::from).collect())
}

/// Sizes as they are given to shapes and windows.
pub(crate) fn sizes(context: &Context<'_>, list: &[i64]) -> Result<Vec<usize>> {
    let size = |&size: &i64| {
        usize::try_from(size).map_err(|_| context.error(format!("{list:?} are sizes, and {size} is none")))
    };
    list.iter().map(size).collect()
}

/// Sizes of windows, steps and paddings: small enough that sums and products of them are numbers.
pub(crate) fn window_sizes(context: &Context<'_>, list: &[i64]) -> Result<Vec<usize>> {
    let list = sizes(context, list)?;
    if list.iter().all(|&size| size <= i32::MAX as usize) {
        return Ok(list);
    }
    Err(context.error(format!("{list:?} are too large for windows")))
}

/// Indices with those counted from the end of an axis of `size` counted from its start, as the device's
/// index dtype.
pub(crate) fn from_start(context: &Context<'_>, index: &Tensor, size: usize) -> Result<Tensor> {
    let index = index.to_dtype(context.index_dtype())?;
    index.lt_scalar(0).where_cond(&index.add_scalar(size as i64), &index)
}

/// f64 where the device has it, else f32: for sums of integers that must be exact.
pub(crate) fn wide_float(context: &Context<'_>) -> DType {
    if context.device().supports(DType::F64) { DType::F64 } else { DType::F32 }
}
