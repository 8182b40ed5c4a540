//! Kernels cut along an axis that their result does not have, or has from an index: reductions and matrix products along what
//! they sum over, and arg-reductions, in parts into a temporary and the result from those; gathers and scatter-adds along what
//! is indexed, in parts that each add to the result what it finds there.

use smallvec::SmallVec;
use tensor_core::{
    DType, Kernel, Layout, ReduceOp, Result, Shape,
    kernel::{ArgReduceKernel, GatherKernel, MatMulKernel, ReduceKernel, ScatterAddKernel},
};

use super::{
    ALIGN, MAX_PIECES, Piece, fits, is_within, land, place, refused, rounds, shift, too_wide, widest, window,
};
use crate::{
    arg_reduce,
    by_index::{self, Along},
    capabilities::Capabilities,
    dispatch::{Dispatches, Resource},
    dtypes::storage_size,
    map::Aliases,
    matmul, reduce,
};

/// The reduced axis whose halving makes an operand that is too wide narrower; none if no operand is.
fn reduced_axis(kernel: &ReduceKernel, capabilities: &Capabilities) -> Option<usize> {
    let inputs = kernel.inputs.iter().zip(&kernel.program.inputs);
    let (layout, _) =
        inputs.into_iter().find(|(layout, dtype)| window(layout, **dtype, capabilities).is_none())?;
    widest(layout, |axis| kernel.axes.contains(&axis) && layout.strides()[axis] != 0)
}

/// Whether a kernel that has parts is better off with them than cut along its result: because an operand is too wide along what
/// the parts divide more than along an axis that is kept.
pub(super) fn parts_first(kernel: &Kernel, capabilities: &Capabilities) -> bool {
    match kernel {
        Kernel::Reduce(k) => too_wide(kernel, capabilities)
            .and_then(|(layout, _)| widest(&layout, |_| true))
            .is_some_and(|axis| k.axes.contains(&axis)),
        // Fewer batches and a smaller result are always within reach, and cost nothing.
        Kernel::MatMul(k) => {
            k.batch.numel() == 1 && (k.m * k.n * storage_size(k.dtype)) as u64 <= capabilities.binding_bytes
        }
        // These have parts along no other axis.
        Kernel::ArgReduce(_) | Kernel::Gather(_) | Kernel::ScatterAdd(_) => true,
        _ => false,
    }
}

/// The two halves of a kernel along what its parts divide, where that makes an operand that is too wide narrower.
fn halves(kernel: &Kernel, capabilities: &Capabilities) -> Option<[Kernel; 2]> {
    match kernel {
        Kernel::Reduce(k) => {
            let axis = reduced_axis(k, capabilities)?;
            let n = k.shape[axis];
            let part = |start: usize, len: usize| {
                let shape = k.shape.iter().enumerate().map(|(a, &n)| if a == axis { len } else { n });
                let inputs = k.inputs.iter().map(|l| l.slice(axis, start, len, 1)).collect();
                Kernel::Reduce(ReduceKernel { shape: shape.collect(), inputs, ..k.clone() })
            };
            Some([part(0, n / 2), part(n / 2, n - n / 2)])
        }
        Kernel::MatMul(k) if k.k > 1 => {
            let (lhs, rhs) = (k.batch.rank() + 1, k.batch.rank());
            // A row of the left operand is one run of k; all of its rows are as wide for half of them.
            let narrower = |layout: &Layout, axis: usize| {
                window(layout, k.dtype, capabilities).is_some() || widest(layout, |_| true) == Some(axis)
            };
            if !narrower(&k.lhs, lhs) || !narrower(&k.rhs, rhs) {
                return None;
            }
            let part = |start: usize, len: usize| {
                Kernel::MatMul(MatMulKernel {
                    k: len,
                    lhs: k.lhs.slice(lhs, start, len, 1),
                    rhs: k.rhs.slice(rhs, start, len, 1),
                    ..k.clone()
                })
            };
            // Whole vectors of four, where there are enough.
            let half = if k.k >= 8 { (k.k / 2).next_multiple_of(4) } else { k.k / 2 };
            Some([part(0, half), part(half, k.k - half)])
        }
        Kernel::ArgReduce(k) => {
            let [one, two] = in_half(&[(&k.input, k.dtype)], k.axis, capabilities)?;
            Some(
                [one, two]
                    .map(|mut l| Kernel::ArgReduce(ArgReduceKernel { input: l.remove(0), ..k.clone() })),
            )
        }
        Kernel::Gather(k) => {
            let [one, two] = in_half(&[(&k.input, k.dtype)], k.axis, capabilities)?;
            Some([one, two].map(|mut l| Kernel::Gather(GatherKernel { input: l.remove(0), ..k.clone() })))
        }
        Kernel::ScatterAdd(k) => {
            let operands = [(&k.index, k.index_dtype), (&k.src, k.dtype)];
            let [one, two] = match rounds(kernel) > capabilities.rounds {
                true => halved(&operands, k.axis),
                false => in_half(&operands, k.axis, capabilities)?,
            };
            Some([one, two].map(|mut l| {
                let (index, src) = (l.remove(0), l.remove(0));
                Kernel::ScatterAdd(ScatterAddKernel { index, src, ..k.clone() })
            }))
        }
        _ => None,
    }
}

/// Two halves of operands along an axis, if one of them is too wide and each that is reaches furthest along that axis.
fn in_half(
    operands: &[(&Layout, DType)],
    axis: usize,
    capabilities: &Capabilities,
) -> Option<[SmallVec<[Layout; 2]>; 2]> {
    let mut wide =
        operands.iter().filter(|(layout, dtype)| window(layout, *dtype, capabilities).is_none()).peekable();
    wide.peek()?;
    if wide.any(|(layout, _)| widest(layout, |_| true) != Some(axis)) {
        return None;
    }
    Some(halved(operands, axis))
}

/// Two halves of operands along an axis.
fn halved(operands: &[(&Layout, DType)], axis: usize) -> [SmallVec<[Layout; 2]>; 2] {
    let n = operands[0].0.shape()[axis];
    let half = n / 2;
    let of = |start: usize, len: usize| operands.iter().map(|(l, _)| l.slice(axis, start, len, 1)).collect();
    [of(0, half), of(half, n - half)]
}

/// Elements from the results of one part to those of the next.
fn pitch(kernel: &Kernel) -> usize {
    kernel.outputs()[0].0.numel().next_multiple_of(ALIGN)
}

/// How many parts of a kernel there may be; none if it has none.
fn most(kernel: &Kernel, capabilities: &Capabilities) -> Option<usize> {
    let (shape, dtype) = kernel.outputs()[0].clone();
    let room = |dtype: DType| capabilities.binding_bytes as usize / storage_size(dtype);
    Some(match kernel {
        // The results of all parts go into one temporary.
        _ if joined(kernel) => room(dtype.compute()) / pitch(kernel).max(1),
        // The same, and their values.
        Kernel::ArgReduce(k) => room(k.dtype).min(room(dtype)) / shape.numel().max(1),
        // Each part writes to the result itself.
        Kernel::Gather(_) | Kernel::ScatterAdd(_) if shape.numel() <= room(dtype) => MAX_PIECES,
        _ => return None,
    })
}

/// A kernel cut into parts that fit and whose results fit too; none if that cannot be, or for a kernel that has no parts.
pub(super) fn parts(kernel: &Kernel, capabilities: &Capabilities) -> Option<Vec<Kernel>> {
    let most = most(kernel, capabilities)?;
    let mut parts = Vec::new();
    let mut open = vec![kernel.clone()];
    while let Some(part) = open.pop() {
        if is_within(&part, capabilities) {
            parts.push(part);
            continue;
        }
        let [one, two] = halves(&part, capabilities)?;
        if parts.len() + open.len() >= most.min(MAX_PIECES) {
            return None;
        }
        // The earlier half comes off the stack first.
        open.extend([two, one]);
    }
    (parts.len() <= most).then_some(parts)
}

/// The draft of one part, not rounded and not divided, into `output`.
fn part(kernel: &Kernel, output: Resource, capabilities: &Capabilities) -> Result<Dispatches> {
    match kernel {
        Kernel::Reduce(k) => reduce::part(k, output, capabilities),
        Kernel::MatMul(k) => {
            // Lanes of half types are those of f32: only the rounding at the end is left out.
            let mut made =
                matmul::dispatches(&MatMulKernel { dtype: k.dtype.compute(), ..k.clone() }, capabilities)?;
            for binding in made.list.iter_mut().flat_map(|d| &mut d.bindings) {
                if let Resource::Output(_) = binding.resource {
                    binding.resource = output;
                }
            }
            Ok(made)
        }
        other => Err(refused(other, capabilities)),
    }
}

/// The reduction whose last step brings the parts of a kernel together.
fn whole(kernel: &Kernel) -> ReduceKernel {
    if let Kernel::Reduce(k) = kernel {
        return k.clone();
    }
    let (shape, dtype) = kernel.outputs()[0].clone();
    let shape = Shape::from([shape.numel()]);
    ReduceKernel {
        op: ReduceOp::Sum,
        inputs: SmallVec::from_elem(Layout::contiguous(shape.clone()), 1),
        shape,
        axes: SmallVec::new(),
        program: reduce::load(dtype),
    }
}

/// The drafts of a piece in parts.
pub(super) fn in_parts(piece: &Piece, capabilities: &Capabilities) -> Result<Dispatches> {
    // Temporary 0 is for what a part needs itself.
    const PARTS: Resource = Resource::Temporary(1);
    let kernel = &piece.kernel;
    let parts = parts(kernel, capabilities).ok_or_else(|| refused(kernel, capabilities))?;
    let (count, pitch) = (parts.len(), pitch(kernel));
    let stored = kernel.outputs()[0].1.compute();
    // Positions of the divided axis, and winners, of the parts so far.
    let (mut first, mut winners) = (0, 0);
    let mut out = Dispatches::default();
    for (p, mut one) in parts.into_iter().enumerate() {
        debug_assert!(fits(&one, capabilities), "parts have narrow operands and a whole kernel's result");
        let starts = shift(&mut one, 0, &Aliases::new(), capabilities);
        let mut made = match &one {
            Kernel::Gather(k) => {
                let along = Along { start: first, ..piece.along };
                first += k.input.shape()[k.axis];
                by_index::gather(k, along, capabilities).into()
            }
            Kernel::ScatterAdd(k) => {
                let more = by_index::scatter_more(k, piece.along, capabilities)?;
                let round = if p + 1 == count { by_index::scatter_round(k) } else { None };
                Dispatches { list: more.into_iter().chain(round).collect(), temporaries: Vec::new() }
            }
            Kernel::ArgReduce(k) => {
                let splits =
                    arg_reduce::splits(k, capabilities).min(most(kernel, capabilities).unwrap_or(0) / count);
                let made = arg_reduce::search(k, first, splits.max(1), Some(winners));
                first += k.input.shape()[k.axis];
                winners += splits.max(1);
                made.into()
            }
            _ => part(&one, PARTS, capabilities)?,
        };
        for draft in &mut made.list {
            place(draft, &starts, &[]);
            for binding in draft.bindings.iter_mut().filter(|b| joined(kernel) && b.resource == PARTS) {
                binding.start = (p * pitch * storage_size(stored)) as u64;
            }
        }
        out.append(made);
    }
    match kernel {
        Kernel::ArgReduce(k) => out.append(arg_reduce::compare(k, winners)),
        _ if joined(kernel) => {
            let all = count * pitch;
            let steps = vec![reduce::join(&whole(kernel), count, pitch, PARTS, capabilities)?];
            out.append(Dispatches { list: steps, temporaries: vec![(stored, 1), (stored, all)] });
        }
        _ => {}
    }
    land(&mut out, kernel, piece.first, capabilities);
    Ok(out)
}

/// Whether the results of parts are of the kernel's own kind, and a reduction of them is its result.
fn joined(kernel: &Kernel) -> bool {
    matches!(kernel, Kernel::Reduce(_) | Kernel::MatMul(_))
}
