//! Sorting along an axis. Elements become keys (`sort_keys.rs`), and one of three forms sorts them: merges of
//! sorted blocks (`merge_sort.rs`), passes over the digits of keys (`radix_sort.rs`), or the selection of the
//! first few (`select.rs`). The one with the least work by count is taken. All are stable and exact, so every
//! device gives the same result.

use tensor_core::{DType, Kernel, Result};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatches, Resource},
        dtypes::{storage_size, unpacked},
        index::Lines,
    },
    kernels::{
        cut::{Cut, Place, Temporary},
        sort::{
            merge_sort,
            radix_sort::{self, RadixSort},
            select::Select,
            sort_keys::{BLOCK, Sort, key_bits},
        },
    },
};

/// The most temporaries of a sort by keys of one word.
pub(crate) const TEMPORARIES: usize = radix_sort::TEMPORARIES;
/// The bytes that memory moves in the time of a short dispatch and the barrier before it, 2 to 4 µs:
/// `tools/bench/src/count/gpus.rs` has both for five GPUs, from 0.4 MiB (Iris Xe) to 12 MiB (H100).
const DISPATCH_BYTES: usize = 1 << 20;
/// The bytes that memory moves for one element of a line whose elements are not neighbours.
const SECTOR_BYTES: usize = 32;

/// The body of a sort.
pub(crate) struct ArgSort {
    pub(crate) axis: usize,
    pub(crate) descending: bool,
}

impl Cut for ArgSort {
    fn piece(&self, kernel: &Kernel, place: Place<'_>) -> Result<Dispatches> {
        let bits = key_bits(kernel.operands[0].dtype);
        Ok(by_key_bits(kernel, self.axis, self.descending, bits, place.capabilities))
    }

    /// The keys: even if the input is a single repeated element, or the output has only a few.
    fn temporary(&self, kernel: &Kernel) -> Option<Temporary> {
        let dtype = unpacked(kernel.operands[0].dtype);
        Some(Temporary { dtype, elements: kernel.space.numel(), axis: None })
    }
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
    let all = [selected, Some(by_digits), Some(merges)].into_iter().flatten();
    all.min_by_key(|made| work(&sort, made)).unwrap_or_default()
}

/// The work of a form in bytes: those of the buffers that its dispatches bind, and as many for each
/// dispatch as memory moves in its time.
fn work(sort: &Sort<'_>, made: &Dispatches) -> usize {
    let apart = sort.lines.length() > 1 && sort.lines.stride().unsigned_abs() > 1;
    let size = storage_size(sort.operand.dtype);
    let input = sort.operand.layout.numel() * if apart { SECTOR_BYTES } else { size };
    let output = sort.lines.count() * sort.kept() * storage_size(DType::I32);
    let bytes = |resource| match resource {
        Resource::Input(_) => input,
        Resource::Output(_) => output,
        Resource::Temporary(t) => made.temporaries.get(t).map_or(0, |&(dtype, n)| storage_size(dtype) * n),
        Resource::Faults => 0,
    };
    let moved: usize = made.list.iter().flat_map(|d| &d.bindings).map(|b| bytes(b.resource)).sum();
    moved + made.list.len() * DISPATCH_BYTES
}

#[cfg(test)]
mod tests {
    use tensor_core::{Layout, kernel::Operand};

    use super::*;
    use crate::validate::capabilities;

    /// The labels of the dispatches for the first `k` elements of lines, and their work in MiB.
    fn made(dtype: DType, [lines, length, k]: [usize; 3]) -> (Vec<&'static str>, usize) {
        let operand = Operand::new(dtype, Layout::contiguous([lines, length]));
        let kernel = Kernel::arg_sort(1, false, k, operand);
        let made = by_key_bits(&kernel, 1, false, key_bits(dtype), &capabilities(false));
        let lines = Lines { input: &kernel.operands[0].layout, output: &kernel.outputs[0].shape, axis: 1 };
        let sort = Sort { operand: &kernel.operands[0], descending: false, lines: &lines };
        (made.list.iter().map(|d| d.label).collect(), work(&sort, &made) >> 20)
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
        let lines = Lines { input: &kernel.operands[0].layout, output: &kernel.outputs[0].shape, axis: 0 };
        let sort = Sort { operand: &kernel.operands[0], descending: false, lines: &lines };
        let bytes = |made: &Dispatches| work(&sort, made) - made.list.len() * DISPATCH_BYTES;
        let merges = merge_sort::dispatches(&sort, &capabilities(false));
        assert_eq!((merges.list.len(), bytes(&merges)), (11, n * (12 + 9 * 16 + 12)));
        let digits = RadixSort { sort: &sort, bits: 32 }.dispatches();
        let counts = 256 * (n.div_ceil(3072) + 1) * 4;
        assert_eq!((digits.list.len(), bytes(&digits)), (12, n * (16 + 20 + 20 + 16) + 12 * counts));
        assert!(2 * bytes(&digits) < bytes(&merges));
    }
}
