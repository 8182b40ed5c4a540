//! Reductions and matrix products cut along what they sum over: parts into a temporary, and the result from those.

use smallvec::SmallVec;
use tensor_core::{
    Kernel, Layout, ReduceOp, Result, Shape,
    kernel::{MatMulKernel, ReduceKernel},
};

use super::{ALIGN, MAX_PIECES, fits, land, place, refused, shift, too_wide, widest, window};
use crate::{
    draft::{Drafts, Facts, Slot},
    dtypes::lane_size,
    map::Aliases,
    matmul, reduce,
};

/// The reduced axis whose halving makes an operand that is too wide narrower; none if no operand is.
fn reduced_axis(kernel: &ReduceKernel, facts: &Facts<'_>) -> Option<usize> {
    let inputs = kernel.inputs.iter().zip(&kernel.program.inputs);
    let (layout, _) = inputs.into_iter().find(|(layout, dtype)| window(layout, **dtype, facts).is_none())?;
    widest(layout, |axis| kernel.axes.contains(&axis) && layout.strides()[axis] != 0)
}

/// Whether an operand is too wide along what is summed over more than along an axis that is kept.
pub(super) fn sums_most(kernel: &Kernel, facts: &Facts<'_>) -> bool {
    match kernel {
        Kernel::Reduce(k) => too_wide(kernel, facts)
            .and_then(|(layout, _)| widest(&layout, |_| true))
            .is_some_and(|axis| k.axes.contains(&axis)),
        // Fewer batches and a smaller result are always within reach, and cost nothing.
        Kernel::MatMul(k) => {
            k.batch.numel() == 1 && (k.m * k.n * lane_size(k.dtype)) as u64 <= facts.binding_bytes
        }
        _ => false,
    }
}

/// The two halves of a kernel along what it sums over, where that makes an operand that is too wide narrower.
fn halves(kernel: &Kernel, facts: &Facts<'_>) -> Option<[Kernel; 2]> {
    match kernel {
        Kernel::Reduce(k) => {
            let axis = reduced_axis(k, facts)?;
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
                window(layout, k.dtype, facts).is_some() || widest(layout, |_| true) == Some(axis)
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
        _ => None,
    }
}

/// Elements from the results of one part to those of the next.
fn pitch(kernel: &Kernel) -> usize {
    kernel.outputs()[0].0.numel().next_multiple_of(ALIGN)
}

/// A reduction or product cut along what it sums over, into parts that fit and whose results fit too; none if that
/// cannot be, or for another kernel.
pub(super) fn parts(kernel: &Kernel, facts: &Facts<'_>) -> Option<Vec<Kernel>> {
    if !matches!(kernel, Kernel::Reduce(_) | Kernel::MatMul(_)) {
        return None;
    }
    let stored = lane_size(kernel.outputs()[0].1.compute());
    let most = facts.binding_bytes as usize / stored / pitch(kernel).max(1);
    let mut parts = Vec::new();
    let mut open = vec![kernel.clone()];
    while let Some(part) = open.pop() {
        if too_wide(&part, facts).is_none() {
            parts.push(part);
            continue;
        }
        let [one, two] = halves(&part, facts)?;
        if parts.len() + open.len() >= most.min(MAX_PIECES) {
            return None;
        }
        // The earlier half comes off the stack first.
        open.extend([two, one]);
    }
    (parts.len() <= most).then_some(parts)
}

/// The draft of one part, not rounded and not divided, into `output`.
fn part(kernel: &Kernel, output: Slot, facts: &Facts<'_>) -> Result<Drafts> {
    match kernel {
        Kernel::Reduce(k) => reduce::part(k, output, facts),
        Kernel::MatMul(k) => {
            // Lanes of half types are those of f32: only the rounding at the end is left out.
            let mut made = matmul::draft(&MatMulKernel { dtype: k.dtype.compute(), ..k.clone() }, facts)?;
            for binding in made.steps.iter_mut().flat_map(|d| &mut d.bindings) {
                if let Slot::Output(_) = binding.slot {
                    binding.slot = output;
                }
            }
            Ok(made)
        }
        other => Err(refused(other, facts)),
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

/// The drafts of a kernel cut along what it sums over.
pub(super) fn in_parts(kernel: &Kernel, first: usize, facts: &Facts<'_>) -> Result<Drafts> {
    // Temporary 0 is for what a part needs itself.
    const PARTS: Slot = Slot::Temp(1);
    let parts = parts(kernel, facts).ok_or_else(|| refused(kernel, facts))?;
    let (stored, pitch) = (kernel.outputs()[0].1.compute(), pitch(kernel));
    let all = parts.len() * pitch;
    let mut out = Drafts { steps: Vec::new(), temps: vec![(stored, 1), (stored, all)] };
    for (p, mut one) in parts.into_iter().enumerate() {
        debug_assert!(fits(&one, facts), "parts have narrow operands and a whole kernel's result");
        let starts = shift(&mut one, 0, &Aliases::new(), facts);
        let mut made = part(&one, PARTS, facts)?;
        for draft in &mut made.steps {
            place(draft, &starts, &[]);
            for binding in draft.bindings.iter_mut().filter(|b| b.slot == PARTS) {
                binding.start = (p * pitch * lane_size(stored)) as u64;
            }
        }
        out.append(made);
    }
    out.steps.push(reduce::join(&whole(kernel), all / pitch, pitch, PARTS, facts)?);
    land(&mut out, kernel, first, facts);
    Ok(out)
}
