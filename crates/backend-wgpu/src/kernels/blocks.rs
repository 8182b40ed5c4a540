//! The part of a buffer that one binding covers (a window): where it starts, the bindings of operands there,
//! and copies between buffers that are larger.

use smallvec::SmallVec;
use tensor_core::{
    DType, Error, Kernel, Layout, collapse,
    kernel::{Operand, Output},
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatches, Resource},
        dtypes::storage_size,
    },
    kernels::copy,
};

/// Windows over elements of a dtype start at multiples of this number of elements: at multiples of 256
/// bytes or more, which every adapter accepts.
pub(crate) fn align(dtype: DType) -> usize {
    256 / storage_size(dtype).min(4)
}

/// A kernel that needs more pieces than this is refused.
pub(crate) const MAX_PIECES: usize = 4096;

/// The elements of a dtype that fit one binding.
pub(crate) fn room(dtype: DType, capabilities: &Capabilities) -> usize {
    capabilities.binding_bytes as usize / storage_size(dtype)
}

/// The start of the window over a layout, in elements; None if the layout does not fit one window.
pub(crate) fn window(layout: &Layout, dtype: DType, capabilities: &Capabilities) -> Option<usize> {
    let (low, high) = layout.span();
    [0, low / align(dtype) * align(dtype)]
        .into_iter()
        .find(|&start| high - start <= room(dtype, capabilities))
}

/// The start of the window over an operand, in elements; None if the operand does not fit one window.
pub(crate) fn operand_window(operand: &Operand, capabilities: &Capabilities) -> Option<usize> {
    if let Some(format) = &operand.format {
        let bytes = operand.reach().span().1 as f64 * format.bits_per_element() / 8.0;
        return (bytes <= capabilities.binding_bytes as f64).then_some(0);
    }
    window(&operand.reach(), operand.dtype, capabilities)
}

/// The same elements in a buffer that starts `start` elements later.
pub(crate) fn shifted(layout: &Layout, start: usize) -> Layout {
    Layout::new(layout.shape().clone(), layout.strides(), layout.offset().saturating_sub(start))
}

/// The error for a kernel that would need too many windows over `elements` of a dtype, or cannot be cut.
pub(crate) fn refused(kernel: &Kernel, dtype: DType, elements: usize, capabilities: &Capabilities) -> Error {
    let hint = format!(
        "one operand lies over {} bytes, one binding of this adapter shows {} (max_storage_buffer_binding_size), and \
         this kernel cannot be worked through in windows; split the tensor, or compute it on the cpu",
        elements * storage_size(dtype),
        capabilities.binding_bytes
    );
    capabilities.unsupported(kernel.name(), dtype, &hint)
}

/// The axis with more than one position over which a layout spans the most memory.
pub(crate) fn widest(layout: &Layout, among: impl Fn(usize) -> bool) -> Option<usize> {
    let sizes = layout.shape().iter().zip(layout.strides()).enumerate();
    sizes
        .filter(|&(axis, (&n, &stride))| n > 1 && stride != 0 && among(axis))
        .max_by_key(|&(_, (&n, &stride))| (n - 1) * stride.unsigned_abs())
        .map(|(axis, _)| axis)
}

/// Copies of input `k` through `from` to the output through `to`, cut along any axes until both sides fit a
/// window; None if that needs too many copies.
pub(crate) fn copies(
    k: usize,
    dtype: DType,
    from: &Layout,
    to: &Layout,
    capabilities: &Capabilities,
) -> Option<Dispatches> {
    let mut out = Dispatches::default();
    let mut open = vec![(from.clone(), to.clone())];
    while let Some((from, to)) = open.pop() {
        let wide = match [&from, &to].map(|layout| window(layout, dtype, capabilities)) {
            [Some(source), Some(target)] => {
                let (from, to) = (shifted(&from, source), shifted(&to, target));
                if let Some(mut one) = copy::copy("copy", &from, &to, dtype, k, capabilities) {
                    for binding in &mut one.bindings {
                        let start = if binding.resource == Resource::Output(0) { target } else { source };
                        binding.start = (start * storage_size(dtype)) as u64;
                    }
                    out.list.push(one);
                }
                continue;
            }
            [None, _] => &from,
            [_, None] => &to,
        };
        let axis = widest(wide, |_| true).filter(|_| out.list.len() + open.len() < MAX_PIECES)?;
        let n = from.shape()[axis];
        // Halves of whole vectors, if there are enough elements.
        let align = align(dtype);
        let half = if n >= 2 * align { n.div_ceil(2).next_multiple_of(align) } else { n.div_ceil(2) };
        for (start, len) in [(half, n - half), (0, half)] {
            open.push((from.slice(axis, start, len, 1), to.slice(axis, start, len, 1)));
        }
    }
    Some(out)
}

/// The bindings of a kernel's operands: the resource, and the byte offset at which the binding starts.
pub(crate) type Bound = SmallVec<[(Resource, u64); 4]>;

/// Whether a layout is contiguous.
fn is_run(layout: &Layout) -> bool {
    let merged = collapse(layout.shape(), &[layout.strides()]);
    merged.shape.is_empty() || merged.strides[0][..] == [1]
}

/// Whether bindings of a kernel's outputs can start at all of these places.
pub(crate) fn starts(kernel: &Kernel, goals: &[Layout]) -> bool {
    let fits = |(goal, output): (&Layout, &Output)| {
        is_run(goal) && goal.offset().is_multiple_of(align(output.dtype))
    };
    goals.iter().zip(&kernel.outputs).all(fits)
}

/// Makes the layout of operand `k` relative to element `start`, at which its binding starts.
pub(crate) fn bind_at(k: usize, operand: &mut Operand, start: usize) -> (Resource, u64) {
    operand.layout = shifted(&operand.layout, start);
    (Resource::Input(k), (start * storage_size(operand.dtype)) as u64)
}

/// Moves the operands of dispatches to the places at which they are bound.
pub(crate) fn rebind(made: &mut Dispatches, bound: &Bound) {
    for binding in made.bindings() {
        if let Resource::Input(k) = binding.resource
            && let Some(&(resource, start)) = bound.get(k)
        {
            (binding.resource, binding.start) = (resource, start);
        }
    }
}
