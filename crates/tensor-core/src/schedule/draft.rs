//! From groups of nodes to typed kernels, whose inputs and outputs are still named by nodes.

use smallvec::SmallVec;

use super::{
    plan::{Facts, Group, last_two_swapped},
    program::{Builder, Fused, Part, ScalarRef},
};
use crate::{
    Error, Layout, Op, Result, Shape,
    kernel::{
        ArgReduceKernel, ArgSortKernel, CopyKernel, CumulativeKernel, GatherKernel, Kernel, MapKernel,
        MatMulKernel, ReduceKernel, Region, RowKernel, ScatterAddKernel,
    },
};

/// A kernel with its inputs and outputs named by items.
pub(super) struct Draft {
    pub(super) kernel: Kernel,
    pub(super) sources: SmallVec<[u32; 4]>,
    pub(super) scalars: SmallVec<[ScalarRef; 4]>,
    /// The items whose values the outputs are.
    pub(super) results: SmallVec<[u32; 2]>,
    pub(super) origin: u32,
}

pub(super) fn write_kernels(facts: &Facts<'_>, groups: &[Group]) -> Result<Vec<Draft>> {
    // What some kernel other than its own reads, or a node keeps, must be written to memory.
    let mut needed = vec![false; facts.items.len()];
    for (i, item) in facts.items.iter().enumerate() {
        if item.store
            && let Some((source, _)) = &facts.places[i]
        {
            needed[*source as usize] = true;
        }
    }
    let mut drafts: Vec<Draft> = Vec::with_capacity(groups.len());
    let mut builders = Vec::new();
    for (g, group) in groups.iter().enumerate() {
        // A reduction by itself is better served by the kernel that is made for it.
        let alone = group.roots.len() == 1 && facts.is_reduction(group.roots[0]);
        let builder = group.parts.as_ref().filter(|_| !alone).map(|_| {
            let row_axes = group.row_axes.unwrap_or(0);
            let mut builder = Builder::new(facts, g as u32, group.shape.clone(), row_axes);
            let regs: Vec<_> = group.roots.iter().map(|&i| builder.value(i, facts.shape(i))).collect();
            for &source in &builder.sources {
                needed[source as usize] = true;
            }
            (builder, regs)
        });
        let draft = if builder.is_none() { Some(opaque(facts, g as u32, group.roots[0])?) } else { None };
        if let Some(draft) = &draft {
            for &source in &draft.sources {
                needed[source as usize] = true;
            }
        }
        builders.push((builder, draft));
    }
    for (group, (builder, draft)) in groups.iter().zip(builders) {
        if let Some(draft) = draft {
            drafts.push(draft);
        } else if let Some((builder, regs)) = builder {
            let kept = || group.roots.iter().zip(&regs).filter(|(i, _)| needed[**i as usize]);
            let results: SmallVec<[u32; 2]> = kept().map(|(&i, _)| i).collect();
            let outputs = kept().map(|(_, &reg)| reg).collect();
            let Fused { program, sources, layouts: inputs, scalars } = builder.finish(outputs);
            let shape = group.shape.clone();
            let per_row = |&i: &u32| facts.is_per_row_in(i, &shape);
            let kernel = match group.row_axes {
                Some(row_axes) => {
                    let per_row = results.iter().map(per_row).collect();
                    let rows = RowKernel { per_row, shape, row_axes, inputs, program };
                    debug_assert!(has_one_value_a_row(&rows), "{rows:?}");
                    Kernel::Rows(rows)
                }
                None => Kernel::Map(MapKernel { shape, inputs, program }),
            };
            drafts.push(Draft {
                kernel,
                sources,
                scalars,
                origin: results.first().copied().unwrap_or(group.roots[0]),
                results,
            });
        }
    }
    Ok(drafts)
}

/// Whether what is stored once a row is the same all along it.
fn has_one_value_a_row(rows: &RowKernel) -> bool {
    let uniform = rows.uniform();
    rows.program.outputs.iter().zip(&rows.per_row).all(|(&reg, &per_row)| !per_row || uniform[reg as usize])
}

fn swapped(layout: &Layout) -> Layout {
    layout.permute(&last_two_swapped(layout.shape().rank()))
}

/// The kernel of an item that is no map.
fn opaque(facts: &Facts<'_>, g: u32, i: u32) -> Result<Draft> {
    let item = &facts.items[i as usize];
    let dtype = item.node.dtype;
    let input = |k: usize| facts.place(item.inputs[k]);
    let input_dtype = |k: usize| facts.items[item.inputs[k] as usize].node.dtype;
    let mut sources: SmallVec<[u32; 4]> = SmallVec::new();
    let mut scalars: SmallVec<[ScalarRef; 4]> = SmallVec::new();
    let mut read = |k: usize| {
        let (source, layout) = input(k);
        sources.push(source);
        layout
    };
    let kernel = match &item.node.op {
        Op::Reduce { op, axes, .. } => {
            let shape = facts.shape(item.inputs[0]).clone();
            let mut builder = Builder::new(facts, g, shape.clone(), 0);
            let reg = builder.value(item.inputs[0], &shape);
            let fused = builder.finish(vec![reg]);
            sources = fused.sources;
            scalars = fused.scalars;
            let (inputs, program) = (fused.layouts, fused.program);
            Kernel::Reduce(ReduceKernel { op: *op, shape, axes: axes.as_slice().into(), inputs, program })
        }
        Op::ArgReduce { op, axis, .. } => {
            Kernel::ArgReduce(ArgReduceKernel { op: *op, axis: *axis, dtype: input_dtype(0), input: read(0) })
        }
        Op::Cumulative { op, axis, reverse } => Kernel::Cumulative(CumulativeKernel {
            op: *op,
            axis: *axis,
            reverse: *reverse,
            dtype: input_dtype(0),
            input: read(0),
        }),
        Op::ArgSort { axis, descending } => Kernel::ArgSort(ArgSortKernel {
            axis: *axis,
            descending: *descending,
            k: item.node.shape[*axis],
            dtype: input_dtype(0),
            input: read(0),
        }),
        Op::MatMul => {
            let rank = item.node.shape.rank();
            let batch: Shape = item.node.shape[..rank - 2].iter().copied().collect();
            let (m, n) = (item.node.shape[rank - 2], item.node.shape[rank - 1]);
            let (lhs, rhs) = (read(0), read(1));
            let k = lhs.shape()[lhs.shape().rank() - 1];
            let wide = |layout: Layout, rows: usize, columns: usize| {
                layout.expand(&batch.iter().copied().chain([rows, columns]).collect())
            };
            let (lhs, rhs) = (wide(lhs, m, k), wide(rhs, k, n));
            if facts.place(i).1.is_contiguous() {
                Kernel::MatMul(MatMulKernel { lhs, rhs, batch, m, n, k, dtype })
            } else {
                // Stored with its last axes swapped: (A·B)ᵀ = Bᵀ·Aᵀ.
                sources.swap(0, 1);
                let (lhs, rhs) = (swapped(&rhs), swapped(&lhs));
                Kernel::MatMul(MatMulKernel { lhs, rhs, batch, m: n, n: m, k, dtype })
            }
        }
        Op::Gather { axis } => Kernel::Gather(GatherKernel {
            axis: *axis,
            dtype,
            index_dtype: input_dtype(1),
            input: read(0),
            index: read(1),
        }),
        Op::ScatterAdd { axis } => Kernel::ScatterAdd(ScatterAddKernel {
            axis: *axis,
            dtype,
            index_dtype: input_dtype(1),
            base: read(0),
            index: read(1),
            src: read(2),
        }),
        Op::Pad(padding) => {
            scalars.push(ScalarRef { item: i, part: Part::Value, dtype });
            let src = read(0);
            let mut dst = Layout::contiguous(item.node.shape.clone());
            for (axis, &size) in src.shape().iter().enumerate() {
                dst = dst.slice(axis, padding.before[axis], size, padding.interior[axis] as isize + 1);
            }
            let fill = item.node.shape.numel() != src.numel();
            Kernel::Copy(CopyKernel {
                shape: item.node.shape.clone(),
                dtype,
                fill,
                regions: SmallVec::from_iter([Region { dst, src }]),
            })
        }
        Op::Concat { axis } => {
            let whole = Layout::contiguous(item.node.shape.clone());
            let mut start = 0;
            let mut regions = SmallVec::new();
            for k in 0..item.inputs.len() {
                let shape = facts.shape(item.inputs[k]);
                if shape.numel() > 0 {
                    regions.push(Region { dst: whole.slice(*axis, start, shape[*axis], 1), src: read(k) });
                }
                start += shape[*axis];
            }
            Kernel::Copy(CopyKernel { shape: item.node.shape.clone(), dtype, fill: false, regions })
        }
        // Parts of maps and views; and a leaf, which has its value.
        Op::Leaf
        | Op::Full(_)
        | Op::Arange(_)
        | Op::Random { .. }
        | Op::Unary(_)
        | Op::Powi(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Where
        | Op::Cast
        | Op::Reshape
        | Op::Permute(_)
        | Op::Expand
        | Op::Slice { .. }
        | Op::ToDevice
        | Op::Custom(_) => {
            return Err(Error::invalid(item.node.op.name(), "it has no kernel of its own"));
        }
    };
    Ok(Draft { kernel, sources, scalars, results: SmallVec::from_elem(i, 1), origin: i })
}
