//! Sorting along an axis. Elements become keys, unsigned integers in the elements' order (`order.wgsl`). Three
//! forms sort them: merges of sorted blocks (`merge_sort.rs`), passes over the digits of keys
//! (`radix_sort.rs`), and the selection of the first few (`select.rs`). The one with the least work by count
//! is taken. All are stable and exact, so every device gives the same result.

use tensor_core::{
    DType, Result,
    kernel::{Kernel, Operand},
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Resource},
        dtypes::{stored, storage_size},
        index::Lines,
        storage::Elements,
        wgsl::Code,
    },
    kernels::{
        merge_sort,
        radix_sort::{self, RadixSort},
        select::Select,
    },
};

/// The elements that a workgroup sorts in its memory.
pub(crate) const BLOCK: usize = 1024;
/// The most temporaries of a sort by keys of one word.
pub(crate) const TEMPORARIES: usize = radix_sort::TEMPORARIES;
/// The bytes that memory moves in the time of a short dispatch and the barrier before it, 2 to 4 µs:
/// `crates/bench/src/count/gpus.rs` has both for five GPUs, from 0.4 MiB (Iris Xe) to 12 MiB (H100).
const DISPATCH_BYTES: usize = 1 << 20;
/// The bytes that memory moves for one element of a line whose elements are not neighbours.
const SECTOR_BYTES: usize = 32;

/// The dispatches of a sort.
pub(crate) fn dispatches(
    kernel: &Kernel,
    axis: usize,
    descending: bool,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let bits = key_bits(kernel.operands[0].dtype);
    Ok(by_key_bits(kernel, axis, descending, bits, capabilities))
}

/// The dispatches of a sort by keys, the order of whose lowest `bits` bits is wanted. Higher bits may be
/// ignored or not.
pub(crate) fn by_key_bits(
    kernel: &Kernel,
    axis: usize,
    descending: bool,
    bits: usize,
    capabilities: &Capabilities,
) -> Dispatches {
    let (operand, shape) = (&kernel.operands[0], &kernel.outputs[0].shape);
    if shape.numel() == 0 {
        return Dispatches::default();
    }
    let lines = Lines { input: &operand.layout, output: shape, axis };
    let sort = Sort { operand, descending, lines: &lines };
    let merges = merge_sort::dispatches(&sort, capabilities);
    if capabilities.direct || lines.length() <= BLOCK {
        return merges;
    }
    let selected = Select { sort: &sort, bits }.dispatches();
    let by_digits = RadixSort { sort: &sort, bits }.dispatches();
    let others = [Some(by_digits), Some(merges)].into_iter().flatten();
    let all = selected.into_iter().chain(others);
    all.min_by_key(|made| sort.work(made)).unwrap_or_default()
}

/// The bits in which keys of a dtype may differ.
fn key_bits(dtype: DType) -> usize {
    if dtype == DType::Bool { 1 } else { stored(dtype).bits }
}

/// The key of an element, in WGSL, from its bits.
fn key(dtype: DType, bits: &str) -> String {
    match dtype {
        DType::Bool | DType::U8 | DType::U16 | DType::U32 => bits.into(),
        DType::I8 => format!("{bits} ^ 0x80u"),
        DType::I16 => format!("{bits} ^ 0x8000u"),
        DType::F16 => format!("order_narrow({bits}, 0x8000u, 0x7c00u)"),
        DType::BF16 => format!("order_narrow({bits}, 0x8000u, 0x7f80u)"),
        DType::F8E4M3FN => format!("order_narrow({bits}, 0x80u, 0x7eu)"),
        DType::F8E5M2 => format!("order_narrow({bits}, 0x80u, 0x7cu)"),
        DType::F8E4M3FNUZ | DType::F8E5M2FNUZ => format!("order_unsigned_zero({bits})"),
        DType::I32 | DType::F32 | DType::U64 | DType::I64 | DType::F64 => {
            format!("order_{}({bits})", stored(dtype).loaded)
        }
    }
}

/// A sort of lines; an output that is shorter than the input gets the first elements.
pub(crate) struct Sort<'a> {
    pub(crate) operand: &'a Operand,
    pub(crate) descending: bool,
    pub(crate) lines: &'a Lines<'a>,
}

impl Sort<'_> {
    /// Whether a key has two words.
    pub(crate) fn wide(&self) -> bool {
        storage_size(self.operand.dtype) == 8
    }

    /// The WGSL type of a key.
    pub(crate) fn key(&self) -> &'static str {
        if self.wide() { "vec2<u32>" } else { "u32" }
    }

    /// A dtype of temporaries that hold keys.
    pub(crate) fn key_dtype(&self) -> DType {
        if self.wide() { self.operand.dtype } else { DType::U32 }
    }

    /// The number of elements of each line that are wanted.
    pub(crate) fn kept(&self) -> usize {
        self.lines.output[self.lines.axis]
    }

    /// Adds the type of keys, and the function that tells which of two comes first.
    pub(crate) fn keys(&self, c: &mut Code) {
        let less = if self.wide() { "a.x < b.x || (a.x == b.x && a.y < b.y)" } else { "a < b" };
        c.line(format_args!("alias Key = {};", self.key()));
        c.expression("less", &[("a", "Key"), ("b", "Key")], "bool", less);
        c.expression("last_key", &[], "Key", "~Key()");
    }

    /// Adds the keys of the input's elements, inverted for a descending order: the functions input_at(line)
    /// and element(base, r).
    pub(crate) fn elements(&self, d: &mut Dispatch) {
        let dtype = self.operand.dtype;
        let all = u32::MAX >> (32 - key_bits(dtype).min(32));
        d.params.stride("stride", self.lines.stride());
        d.params.word("flip", if self.descending { all } else { 0 });
        d.bind("input", Elements::bits(dtype), false, Resource::Input(0));
        self.keys(&mut d.code);
        d.code.append(&self.lines.input_at(0, &mut d.params));
        let element = key(dtype, "load_input(base + r * params.stride)");
        let flipped = format!("({element}) ^ Key(params.flip)");
        d.code.expression("element", &[("base", "u32"), ("r", "u32")], "Key", flipped);
    }

    /// Adds the output of indices: element `place` of a line is `output[output_at(line) + place *
    /// params.output_stride]`.
    pub(crate) fn output(&self, d: &mut Dispatch) {
        d.params.stride("output_stride", self.lines.output_stride());
        d.bind("output", "i32", true, Resource::Output(0));
        d.code.append(&self.lines.output_at(0, &mut d.params));
    }

    /// The work of a form in bytes: those of the buffers that its dispatches bind, and as many for each
    /// dispatch as memory moves in its time.
    fn work(&self, made: &Dispatches) -> usize {
        let apart = self.lines.length() > 1 && self.lines.stride().unsigned_abs() > 1;
        let size = storage_size(self.operand.dtype);
        let input = self.operand.layout.numel() * if apart { SECTOR_BYTES } else { size };
        let output = self.lines.count() * self.kept() * storage_size(DType::I32);
        let bytes = |resource| match resource {
            Resource::Input(_) => input,
            Resource::Output(_) => output,
            Resource::Temporary(t) => {
                made.temporaries.get(t).map_or(0, |&(dtype, n)| storage_size(dtype) * n)
            }
            Resource::Faults => 0,
        };
        let moved: usize = made.list.iter().flat_map(|d| &d.bindings).map(|b| bytes(b.resource)).sum();
        moved + made.list.len() * DISPATCH_BYTES
    }
}

#[cfg(test)]
mod tests {
    use tensor_core::Layout;

    use super::*;
    use crate::validate::capabilities;

    /// The labels of the dispatches for the first `k` elements of lines, and their work in MiB.
    fn made(dtype: DType, [lines, length, k]: [usize; 3]) -> (Vec<&'static str>, usize) {
        let operand = Operand::new(dtype, Layout::contiguous([lines, length]));
        let kernel = Kernel::arg_sort(1, false, k, operand);
        let made = by_key_bits(&kernel, 1, false, key_bits(dtype), &capabilities(false));
        let lines =
            Lines { input: &kernel.operands[0].layout, output: &kernel.outputs[0].shape, axis: 1 };
        let sort = Sort { operand: &kernel.operands[0], descending: false, lines: &lines };
        (made.list.iter().map(|d| d.label).collect(), sort.work(&made) >> 20)
    }

    #[test]
    fn the_form_with_the_least_work_is_taken() {
        let labels = |dtype, sizes| made(dtype, sizes).0;
        // Short lines are merged; digits pay off earlier for keys of few bits.
        assert_eq!(labels(DType::F32, [1, 1000, 1000]), ["sort"]);
        assert_eq!(labels(DType::F32, [64, 4096, 4096]), ["sort", "sort_merge", "sort_merge"]);
        assert_eq!(labels(DType::U8, [64, 4096, 4096]), ["radix_count", "radix_move"]);
        assert_eq!(labels(DType::BF16, [64, 20_000, 20_000]), ["radix_count", "radix_move"].repeat(2));
        // Four passes, and one more dispatch in each if there are many tiles.
        assert_eq!(labels(DType::F32, [1, 90_000, 90_000]), ["radix_count", "radix_move"].repeat(4));
        let pass = ["radix_count", "radix_offsets", "radix_move"];
        assert_eq!(labels(DType::F32, [1, 1 << 20, 1 << 20]), pass.repeat(4));
        assert_eq!(labels(DType::I64, [1, 1 << 20, 1 << 20]), pass.repeat(8));
        // A selection reads the line once.
        assert_eq!(made(DType::F32, [1, 1 << 20, 50]), (vec!["select", "select", "sort"], 4 + 3));
        assert_eq!(labels(DType::F32, [64, 50_000, 10]), ["select", "sort"]);
        assert_eq!(labels(DType::F32, [1, 1 << 20, 5000]).len(), 12);
    }

    /// A merge moves 16 bytes of each element, a pass 20: the first reads no index, and the last stores no
    /// key.
    #[test]
    fn a_million_elements_move_less_often_by_digits() {
        let n: usize = 1 << 20;
        let operand = Operand::new(DType::F32, Layout::contiguous([n]));
        let kernel = Kernel::arg_sort(0, false, n, operand);
        let lines =
            Lines { input: &kernel.operands[0].layout, output: &kernel.outputs[0].shape, axis: 0 };
        let sort = Sort { operand: &kernel.operands[0], descending: false, lines: &lines };
        let bytes = |made: &Dispatches| sort.work(made) - made.list.len() * DISPATCH_BYTES;
        let merges = merge_sort::dispatches(&sort, &capabilities(false));
        assert_eq!((merges.list.len(), bytes(&merges)), (11, n * (12 + 9 * 16 + 12)));
        let digits = RadixSort { sort: &sort, bits: 32 }.dispatches();
        let counts = 256 * (n.div_ceil(3072) + 1) * 4;
        assert_eq!((digits.list.len(), bytes(&digits)), (12, n * (16 + 20 + 20 + 16) + 12 * counts));
        assert!(2 * bytes(&digits) < bytes(&merges));
    }
}
