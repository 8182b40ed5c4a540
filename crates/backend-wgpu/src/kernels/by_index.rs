//! What goes by indices: how a kernel reads an index, and writes down a bad one in the launch's slot of the device's fault table. A bad
//! index reads as 0, or is not added.

use tensor_core::{DType, Strides};

use crate::codegen::{
    dispatch::{Dispatch, Resource},
    dtypes::loaded,
};

/// Adds functions to read an index: its value with a mark when it does not fit a word, and the report of a bad one.
pub(crate) fn index_functions(dtype: DType, d: &mut Dispatch) {
    d.params.fault();
    d.bind("faults", "atomic<u32>", true, Resource::Faults);
    let t = loaded(dtype);
    let (low, high) = match t {
        "u32" => ("word", "0u"),
        "i32" => ("bitcast<u32>(word)", "select(0u, 0xffffffffu, word < 0)"),
        "u64" => ("u32_from_u64(word)", "u32_from_u64(word >> 32u)"),
        _ => ("u32_from_i64(word)", "u32_from_i64(word >> 32u)"),
    };
    d.code.expression("index_value", &[("word", t)], "vec2<u32>", format_args!("vec2<u32>({low}, {high})"));
    d.code.function("report", &[("word", t)], "", |c| {
        c.when("atomicExchange(&faults[params.fault], 1u) == 0u", |c| {
            c.line(format_args!("atomicStore(&faults[params.fault + 1u], {low});"));
            c.line(format_args!("atomicStore(&faults[params.fault + 2u], {high});"));
        });
    });
}

/// Which part of the axis that is indexed a kernel's table or result has: a kernel over more of it than one binding shows is
/// several, each over a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Along {
    pub(crate) axis: usize,
    /// Where the part starts.
    pub(crate) start: usize,
    /// The size of the whole axis: of all that an index may name.
    pub(crate) size: usize,
}

/// The strides of a layout with the one along `axis` set to 0, so that walking it stays at the axis's start.
pub(crate) fn off_axis(strides: &[isize], axis: usize) -> Strides {
    strides.iter().enumerate().map(|(a, &s)| if a == axis { 0 } else { s }).collect()
}

/// Whether all are multiples of a number.
pub(crate) fn multiples(of: usize, numbers: &[isize]) -> bool {
    numbers.iter().all(|n| n % of as isize == 0)
}

/// Whether all are multiples of four.
pub(crate) fn fours(numbers: &[isize]) -> bool {
    multiples(4, numbers)
}
