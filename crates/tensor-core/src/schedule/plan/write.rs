//! The seventh pass: from groups of nodes to typed kernels.
//!
//! Reads the groups, the epilogues and the analysis, and changes none of them. Leaves the kernels in order,
//! without those that nothing needs; their inputs and outputs are still identified by items. `program` writes
//! the programs of fused kernels.

use smallvec::SmallVec;

use super::{
    analysis::Analysis,
    epilogue::{Epilogues, stored_order},
    group::Group,
    program::{Builder, Fused},
    step::{Part, ScalarRef},
};
use crate::{
    base::{
        error::{Error, Result},
        shape::Shape,
    },
    elements::dtype::DType,
    graph::op::{Op, OpClass, OtherOp, Subscripts, TupleOp, ViewOp},
    kernels::{
        kernel::{Instr, Kernel, Operand, Program},
        layout::{Layout, Strides},
    },
};

/// A kernel whose inputs and outputs are identified by items.
pub(super) struct Draft {
    /// Boxed, because it is large and is moved several times before it is in its plan.
    pub(super) kernel: Box<Kernel>,
    pub(super) sources: SmallVec<[u32; 4]>,
    pub(super) scalars: SmallVec<[ScalarRef; 4]>,
    /// For each source that is read at computed indices, the gather that it implements.
    pub(super) gathers: SmallVec<[(u16, u32); 1]>,
    /// The items whose values are the outputs.
    pub(super) results: SmallVec<[u32; 2]>,
    pub(super) origin: u32,
}

pub(super) fn write_kernels(
    analysis: &Analysis<'_>,
    groups: &[Group],
    epilogues: &Epilogues,
) -> Result<Vec<Draft>> {
    // A value that another kernel reads, or that a node keeps, must be written to memory.
    let mut needed = vec![false; analysis.items.len()];
    for (i, item) in analysis.items.iter().enumerate() {
        if item.store
            && let Some((source, _)) = &analysis.places[i]
        {
            needed[*source as usize] = true;
        }
    }
    let mut drafts: Vec<Draft> = Vec::with_capacity(groups.len());
    let mut builders = Vec::with_capacity(groups.len());
    for (g, group) in groups.iter().enumerate() {
        // A single reduction is faster as a dedicated reduction kernel.
        let alone = group.roots.len() == 1 && analysis.is_reduction(group.roots[0]);
        let builder = group.parts.as_ref().filter(|_| !alone).map(|parts| {
            let row_axes = group.row_axes.unwrap_or(0);
            let size = parts.size(analysis);
            let mut builder = Box::new(Builder::new(analysis, g as u32, group.shape.clone(), row_axes, size));
            // An epilogue reads its contraction's sums from a register.
            let product = epilogues.product(g).map(|p| groups[p].roots[0]);
            builder.sums = product;
            let regs: Vec<_> = group.roots.iter().map(|&i| builder.value(i, analysis.shape(i))).collect();
            for &source in builder.sources.iter().filter(|&&source| Some(source) != product) {
                needed[source as usize] = true;
            }
            (builder, regs)
        });
        let own = match builder {
            Some(_) => SmallVec::new(),
            None => opaque(analysis, g as u32, group.roots[0])?,
        };
        // The kernels of a tuple read each other's results only if they run.
        for &source in own.iter().flat_map(|draft| &draft.sources) {
            needed[source as usize] |= analysis.kernel_of(source) != Some(g as u32);
        }
        builders.push((builder, own));
    }
    // Contractions that are computed in the kernels of their epilogues.
    let mut waiting: Vec<Option<Draft>> = Vec::new();
    waiting.resize_with(if epilogues.is_empty() { 0 } else { groups.len() }, || None);
    for (g, (group, (builder, mut own))) in groups.iter().zip(builders).enumerate() {
        if own.len() > 1 {
            keep_needed(&mut own, &mut needed);
        }
        if epilogues.has_map(g) {
            waiting[g] = own.pop();
        }
        drafts.extend(own);
        if let Some((builder, regs)) = builder {
            let kept = || group.roots.iter().zip(&regs).filter(|(i, _)| needed[**i as usize]);
            let results: SmallVec<[u32; 2]> = kept().map(|(&i, _)| i).collect();
            let outputs = kept().map(|(_, &reg)| reg).collect();
            if let Some(product) = epilogues.product(g).and_then(|p| waiting[p].take()) {
                let keeps = needed[product.origin as usize];
                drafts.push(with_epilogue(product, builder.finish(outputs), results, keeps));
                continue;
            }
            let Fused { program, sources, layouts: inputs, indexed, scalars, gathers } =
                builder.finish(outputs);
            let shape = group.shape.clone();
            let per_row = |&i: &u32| analysis.is_per_row_in(i, &shape);
            let kernel = match group.row_axes {
                Some(row_axes) => {
                    let per_row: SmallVec<[bool; 4]> = results.iter().map(per_row).collect();
                    Kernel::rows(shape, row_axes, inputs, program, &per_row)
                }
                None => Kernel::map(shape, inputs, program),
            };
            let frames = results.iter().map(|&i| analysis.frames[i as usize]);
            drafts.push(Draft {
                kernel: Box::new(kernel.with_indexed(indexed).with_frames(frames)),
                sources,
                scalars,
                gathers,
                origin: results.first().copied().unwrap_or(group.roots[0]),
                results,
            });
        }
    }
    Ok(drafts)
}

/// A contraction with a map as its epilogue; `keeps` says whether the sums are stored as well.
fn with_epilogue(product: Draft, map: Fused, mut results: SmallVec<[u32; 2]>, keeps: bool) -> Draft {
    let Draft { kernel, mut sources, mut scalars, origin, .. } = product;
    let Fused { mut program, sources: read, layouts, scalars: more, .. } = map;
    // The sums are input 0 of the program. All instructions that read them use the same layout.
    let own = read.iter().position(|&source| source == origin).unwrap_or(0);
    let place = |k: usize| if k == own { 0 } else { k + usize::from(k < own) };
    for instr in &mut program.instrs {
        if let Instr::Load(k) | Instr::LoadAt { input: k, .. } = instr {
            *k = place(*k as usize) as u16;
        }
    }
    program.inputs[..=own].rotate_right(1);
    if keeps && let Some(at) = program.instrs.iter().position(|instr| *instr == Instr::Load(0)) {
        // Sums of a narrow type are cast to the wider type after the load, and cast back after that
        // unless they are wanted in the wider type.
        let is_narrow = program.dtypes[at].is_narrow();
        let casts = if !is_narrow {
            0
        } else if kernel.body.program().is_some() {
            1
        } else {
            2
        };
        program.outputs.push((at + casts) as u16);
        results.push(origin);
    }
    let sums = kernel.outputs[0].shape.clone();
    let others = read.iter().zip(&layouts).enumerate().filter(|&(k, _)| k != own);
    // Always possible: `epilogue` has checked that these layouts can be reshaped.
    let over = others.filter_map(|(_, (&source, layout))| Some((source, layout.reshape(&sums)?)));
    let (others, layouts): (SmallVec<[u32; 4]>, SmallVec<[Layout; 4]>) = over.unzip();
    sources.extend(others);
    scalars.extend(more);
    let kernel = Box::new(kernel.without_epilogue().with_epilogue(program, layouts));
    Draft { kernel, sources, scalars, gathers: SmallVec::new(), results, origin }
}

/// Drops those kernels of a tuple whose results are not needed.
fn keep_needed(drafts: &mut SmallVec<[Draft; 1]>, needed: &mut [bool]) {
    for at in (0..drafts.len()).rev() {
        if drafts[at].results.iter().any(|&result| needed[result as usize]) {
            drafts[at].sources.iter().for_each(|&source| needed[source as usize] = true);
        } else {
            drafts.remove(at);
        }
    }
}

/// The kernel of a contraction: over the result's axes in the memory order of `stored`, followed by the
/// summed axes.
fn contraction(subscripts: &Subscripts, stored: &Layout, dtype: DType, lhs: &Layout, rhs: &Layout) -> Kernel {
    let order = stored_order(stored);
    let kept = order.iter().map(|&axis| subscripts.out[axis]);
    let summed = subscripts.lhs.iter().copied().filter(|label| !subscripts.out.contains(label));
    let labels: SmallVec<[u8; 8]> = kept.chain(summed).collect();
    let over = |own: &[u8], layout: &Layout| {
        let places = labels.iter().map(|label| own.iter().position(|l| l == label));
        places
            .map(|at| at.map_or((None, 0), |at| (Some(layout.shape()[at]), layout.strides()[at])))
            .unzip::<_, _, SmallVec<[Option<usize>; 8]>, Strides>()
    };
    let (left, right) = (over(&subscripts.lhs, lhs), over(&subscripts.rhs, rhs));
    let space: Shape = left.0.iter().zip(&right.0).map(|(l, r)| l.or(*r).unwrap_or(1)).collect();
    let wide = |strides: &Strides, layout: &Layout| Layout::new(space.clone(), strides, layout.offset());
    let reduced: SmallVec<[usize; 5]> = (order.len()..labels.len()).collect();
    Kernel::contract(dtype, wide(&left.1, lhs), wide(&right.1, rhs), &reduced)
}

/// The epilogue that casts the sums to another dtype.
fn cast_of_sums(sums: DType, dtype: DType) -> Program {
    Program {
        instrs: vec![Instr::Load(0), Instr::Cast(0)],
        dtypes: vec![sums, dtype],
        inputs: vec![sums],
        scalars: Vec::new(),
        outputs: vec![1],
    }
}

/// The kernel of an item that is not a map; for a tuple, its kernels in order.
fn opaque(analysis: &Analysis<'_>, g: u32, i: u32) -> Result<SmallVec<[Draft; 1]>> {
    let item = &analysis.items[i as usize];
    let dtype = item.node.dtype;
    let mut sources: SmallVec<[u32; 4]> = SmallVec::new();
    let mut scalars: SmallVec<[ScalarRef; 4]> = SmallVec::new();
    let mut gathers: SmallVec<[(u16, u32); 1]> = SmallVec::new();
    let mut read = |k: usize| {
        let (source, layout) = analysis.place(item.inputs[k]);
        sources.push(source);
        let dtype = analysis.items[item.inputs[k] as usize].node.dtype;
        Operand::new(dtype, layout).in_blocks(analysis.format(source).cloned())
    };
    let kernel = match item.node.op.class() {
        OpClass::Other(OtherOp::Reduce { op, axes, .. }) => {
            let shape = analysis.shape(item.inputs[0]).clone();
            let mut builder = Builder::new(analysis, g, shape.clone(), 0, 1);
            let reg = builder.value(item.inputs[0], &shape);
            let fused = builder.finish(vec![reg]);
            sources = fused.sources;
            scalars = fused.scalars;
            gathers = fused.gathers;
            Kernel::reduce(op, shape, axes, fused.layouts, fused.program).with_indexed(fused.indexed)
        }
        OpClass::Other(OtherOp::ArgReduce { op, axis, .. }) => Kernel::arg_reduce(op, axis, read(0)),
        OpClass::Other(OtherOp::Cumulative { op, axis, reverse }) => {
            Kernel::cumulative(op, axis, reverse, read(0))
        }
        OpClass::Tuple(TupleOp::Sort { axis, descending }) => return Ok(sort(analysis, i, axis, descending)),
        OpClass::Other(OtherOp::Contract(subscripts)) => {
            let (lhs, rhs) = (read(0), read(1));
            let stored = analysis.place(i).1;
            let mut kernel = contraction(subscripts, &stored, lhs.dtype, &lhs.layout, &rhs.layout);
            for (operand, read) in kernel.operands.iter_mut().zip([&lhs, &rhs]) {
                operand.format.clone_from(&read.format);
            }
            // Sums of half types that are wanted in f32: an epilogue casts them before they are rounded.
            if dtype == lhs.dtype { kernel } else { kernel.with_epilogue(cast_of_sums(lhs.dtype, dtype), []) }
        }
        OpClass::Tuple(TupleOp::CustomKernel(custom)) => {
            let operands: SmallVec<[Operand; 4]> = (0..item.inputs.len()).map(&mut read).collect();
            let results: SmallVec<[u32; 2]> = (i + 1..).take(item.node.results()).collect();
            let specs: Vec<(Shape, DType)> = results
                .iter()
                .map(|&r| (analysis.shape(r).clone(), analysis.items[r as usize].node.dtype))
                .collect();
            let kernel = Box::new(Kernel::custom(custom.clone(), operands, &specs));
            return Ok(SmallVec::from_iter([Draft {
                kernel,
                sources,
                scalars,
                gathers,
                results,
                origin: i,
            }]));
        }
        OpClass::Other(OtherOp::Gather { axis }) => Kernel::gather(axis, read(0), read(1)),
        OpClass::Other(OtherOp::Scatter { op, axis }) => Kernel::scatter(op, axis, read(0), read(1), read(2)),
        OpClass::Other(OtherOp::Pad(padding)) => {
            scalars.push(ScalarRef { item: i, part: Part::Value, dtype });
            let src = read(0).layout;
            let mut dst = Layout::contiguous(item.node.shape.clone());
            for (axis, &size) in src.shape().iter().enumerate() {
                dst = dst.slice(axis, padding.before[axis], size, padding.interior[axis] as isize + 1);
            }
            let fill = item.node.shape.numel() != src.numel();
            Kernel::copy(dtype, item.node.shape.clone(), fill, [(dst, src)])
        }
        OpClass::Other(OtherOp::Concat { .. }) => {
            let mut regions: SmallVec<[(Layout, Layout); 4]> = SmallVec::new();
            let whole = Layout::contiguous(item.node.shape.clone());
            concatenated(analysis, i, &whole, &mut sources, &mut regions);
            let shape = divided(&item.node.shape, &mut regions).unwrap_or_else(|| item.node.shape.clone());
            Kernel::copy(dtype, shape, false, regions)
        }
        // A decoding copy of an operand in blocks, over the shape that it reads.
        OpClass::View(ViewOp::Reshape | ViewOp::Contiguous) => {
            let operand = read(0);
            let program = Program {
                instrs: vec![Instr::Load(0)],
                dtypes: vec![dtype],
                inputs: vec![dtype],
                outputs: vec![0],
                ..Program::default()
            };
            let mut kernel = Kernel::map(operand.layout.shape().clone(), [operand.layout.clone()], program);
            kernel.operands = SmallVec::from_iter([operand]);
            kernel
        }
        // These are parts of maps or views, or a leaf, which has its value.
        OpClass::Leaf
        | OpClass::Expression(_)
        | OpClass::View(_)
        | OpClass::Tuple(TupleOp::Custom(_))
        | OpClass::Other(OtherOp::ToDevice) => {
            return Err(Error::invalid(item.node.op.name(), "it has no kernel of its own"));
        }
    };
    let draft = Draft {
        kernel: Box::new(kernel),
        sources,
        scalars,
        gathers,
        results: SmallVec::from_elem(i, 1),
        origin: i,
    };
    Ok(SmallVec::from_iter([draft]))
}

/// The destinations and the layouts of the parts of a concatenation, or of a reshape, that is stored at
/// `whole`.
fn concatenated(
    analysis: &Analysis<'_>,
    i: u32,
    whole: &Layout,
    sources: &mut SmallVec<[u32; 4]>,
    regions: &mut SmallVec<[(Layout, Layout); 4]>,
) {
    let item = &analysis.items[i as usize];
    let mut copy = |input: u32, to: Layout| {
        if analysis.is_part(input) {
            concatenated(analysis, input, &to, sources, regions);
        } else if analysis.shape(input).numel() > 0 {
            let (source, from) = analysis.place(input);
            sources.push(source);
            regions.push((to, from));
        }
    };
    let Op::Concat { axis } = item.node.op else {
        // Always possible: `materialise` has checked that it can be reshaped.
        let input = item.inputs[0];
        return whole.reshape(analysis.shape(input)).into_iter().for_each(|to| copy(input, to));
    };
    let mut start = 0;
    for &input in &item.inputs {
        let shape = analysis.shape(input);
        copy(input, whole.slice(axis, start, shape[axis], 1));
        start += shape[axis];
    }
}

/// The shape of a concatenation over which its regions are boxes, if parts divide the last axis into pieces
/// of one length: the shape with that axis divided, as those of the other parts then are. None if there is
/// no such part, or another one cannot be divided.
fn divided(shape: &Shape, regions: &mut [(Layout, Layout)]) -> Option<Shape> {
    let lead = shape.rank().checked_sub(1)?;
    let of_more_axes = regions.iter().map(|(to, _)| to.shape()).find(|to| to.rank() == shape.rank() + 1);
    let piece = of_more_axes.map(|to| to[lead + 1]).filter(|&piece| piece > 0)?;
    let divide = |shape: &Shape| -> Option<Shape> {
        let pieces = (shape[lead].is_multiple_of(piece)).then_some(shape[lead] / piece)?;
        Some(shape[..lead].iter().copied().chain([pieces, piece]).collect())
    };
    let whole = divide(shape)?;
    let all: Vec<(Layout, Layout)> = regions
        .iter()
        .map(|(to, from)| match to.shape().rank() == shape.rank() {
            true => divide(to.shape()).and_then(|over| Some((to.reshape(&over)?, from.reshape(&over)?))),
            false => (to.shape()[lead + 1] == piece).then(|| (to.clone(), from.clone())),
        })
        .collect::<Option<_>>()?;
    regions.clone_from_slice(&all);
    Some(whole)
}

/// The kernels of a sort: the indices in order, and the values gathered by them.
fn sort(analysis: &Analysis<'_>, i: u32, axis: usize, descending: bool) -> SmallVec<[Draft; 1]> {
    let (values, indices) = (i + 1, i + 2);
    let read = analysis.items[i as usize].inputs[0];
    let (source, layout) = analysis.place(read);
    let input = Operand::new(analysis.items[read as usize].node.dtype, layout);
    let index = Operand::new(DType::I32, Layout::contiguous(analysis.shape(indices).clone()));
    let order = Kernel::arg_sort(axis, descending, index.layout.shape()[axis], input.clone());
    let draft = |kernel, sources: &[u32], result| Draft {
        kernel: Box::new(kernel),
        sources: SmallVec::from_slice(sources),
        scalars: SmallVec::new(),
        gathers: SmallVec::new(),
        results: SmallVec::from_elem(result, 1),
        origin: i,
    };
    let take = Kernel::gather(axis, input, index);
    SmallVec::from_vec(vec![draft(order, &[source], indices), draft(take, &[source, indices], values)])
}
