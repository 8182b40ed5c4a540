//! Kernels that read indices: the functions that read an index and report a bad one in the launch's slot of
//! the device's fault table. A bad index reads as 0, or is not added.

use smallvec::SmallVec;
use tensor_core::{
    DType, Strides,
    kernel::{IndexedAxis, Instr, Operand, Program},
};

use crate::codegen::{
    dispatch::{Dispatch, Report, Resource},
    dtypes::loaded,
};

/// Adds the functions that read an index (its value, with a flag if it does not fit a word) and that report
/// a bad one.
pub(crate) fn index_functions(dtype: DType, d: &mut Dispatch) {
    d.params.fault("fault", 0);
    d.bind("faults", "atomic<u32>", true, Resource::Faults);
    read_and_report(dtype, "", d);
}

/// The functions `index_value<name>` and `report<name>` for indices of a dtype; the slot is
/// `params.fault<name>`.
fn read_and_report(dtype: DType, name: &str, d: &mut Dispatch) {
    let t = loaded(dtype);
    let (low, high) = match t {
        "u32" => ("word", "0u"),
        "i32" => ("bitcast<u32>(word)", "select(0u, 0xffffffffu, word < 0)"),
        "u64" => ("u32_from_u64(word)", "u32_from_u64(word >> 32u)"),
        _ => ("u32_from_i64(word)", "u32_from_i64(word >> 32u)"),
    };
    let value = format!("index_value{name}");
    d.code.expression(&value, &[("word", t)], "vec2<u32>", format_args!("vec2<u32>({low}, {high})"));
    d.reports.push(Report { name: name.into(), index: t, words: [low, high] });
}

/// Adds the functions `load_at<k>(base, word)` for each input `in<k>` that a program reads at indices. They
/// return the stored element at index `word` along the operand's indexed axis, relative to element `base`.
pub(crate) fn load_functions(operands: &[Operand], program: &Program, d: &mut Dispatch) {
    let mut bound = false;
    for (k, operand) in operands.iter().enumerate() {
        let index = |instr: &Instr| {
            let Instr::LoadAt { input, index } = *instr else { return None };
            (usize::from(input) == k).then(|| program.dtypes[usize::from(index)])
        };
        let mut dtypes: SmallVec<[DType; 1]> = program.instrs.iter().filter_map(index).collect();
        dtypes.sort_unstable_by_key(|&dtype| loaded(dtype));
        dtypes.dedup_by_key(|dtype| loaded(*dtype));
        let (Some(IndexedAxis { size, stride, .. }), false) = (operand.indexed, dtypes.is_empty()) else {
            continue;
        };
        if !std::mem::replace(&mut bound, true) {
            d.bind("faults", "atomic<u32>", true, Resource::Faults);
        }
        d.params.size(format!("size{k}"), size);
        d.params.stride(format!("along{k}"), stride);
        for dtype in dtypes {
            let (t, element) = (loaded(dtype), loaded(operand.dtype));
            let name = load_at_name(k as u16, dtype);
            let own = name.trim_start_matches("load_at");
            d.params.fault(format!("fault{own}"), k);
            read_and_report(dtype, own, d);
            d.code.function(&name, &[("base", "u32"), ("word", t)], element, |c| {
                c.bind("at", format_args!("index_value{own}(word)"));
                c.when(format_args!("at.y != 0u || at.x >= params.size{k}"), |c| {
                    c.line(format_args!("report{own}(word);"));
                    c.line(format_args!("return {element}();"));
                });
                c.line(format_args!("return load_in{k}(base + at.x * params.along{k});"));
            });
        }
    }
}

/// The name of the function that reads input `k` at indices of a dtype.
pub(crate) fn load_at_name(k: u16, index: DType) -> String {
    format!("load_at{k}_{}", loaded(index))
}

/// The slice of the indexed axis that a kernel's table or result covers. A kernel over more of the axis
/// than one binding holds is split into several, each over one slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Along {
    pub(crate) axis: usize,
    /// The start of the slice.
    pub(crate) start: usize,
    /// The size of the whole axis, which bounds the indices.
    pub(crate) size: usize,
}

/// The strides of a layout with 0 for `axis`, so that offsets stay at the start of that axis.
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
