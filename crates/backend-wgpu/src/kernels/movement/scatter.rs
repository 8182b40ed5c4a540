//! Scatters: adding by index along an axis, or keeping the greatest or least. There are three forms: one
//! invocation for each line along the axis, one for each element of the output, or sorted segments (see
//! `scatter_segments.rs`). The first two process repeated indices in the order of their positions. Replacing
//! has a form of its own, whose work is proportional to the source: integer atomics find the last position
//! for each output element.

use smallvec::SmallVec;
use tensor_core::{
    DType, Layout, Result, ScatterOp, Shape, Strides, collapse,
    kernel::{Instr, Kernel, Operand, Program},
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Resource},
        dtypes::{is_packed, loaded},
        formulas, index,
        storage::Elements,
    },
    kernels::{
        by_index::{Along, fours, index_functions, off_axis},
        cut::{Aliases, Cut, Inner, Place, Temporary},
        map::elementwise,
        movement::scatter_segments,
        window::Windows,
    },
};

/// Invocations of a workgroup if each has a line: few, because each has much work, and small workgroups
/// keep every core busy.
const LINES_PER_WORKGROUP: usize = 32;
/// The work of an addition in memory that waits for the one before it, in additions that do not wait: bounds
/// the time of a dispatch.
const WAITING_WORK: usize = 64;
/// The least positions along the axis for which sorting them pays.
const MIN_SEGMENTS_LENGTH: usize = 64;

/// The body of a scatter.
#[derive(Clone, Copy)]
pub(crate) struct Scatter {
    pub(crate) op: ScatterOp,
    pub(crate) axis: usize,
}

impl Cut for Scatter {
    fn piece(&self, kernel: &Kernel, place: Place<'_>) -> Result<Dispatches> {
        let Scatter { op, axis } = *self;
        let along = Along { axis, start: place.origin[axis], size: place.whole.space[axis] };
        dispatches(kernel, op, along, place.capabilities)
    }

    fn changes_output(&self) -> bool {
        true
    }

    /// The turns of a scatter that replaces.
    fn temporary(&self, kernel: &Kernel) -> Option<Temporary> {
        let (elements, axis) = (turns(kernel, self.axis).numel(), Some(self.axis));
        (self.op == ScatterOp::Replace).then_some(Temporary { dtype: DType::U32, elements, axis })
    }

    fn inner(&self, kernel: &Kernel) -> Inner {
        // Replacing needs no loop.
        let rounds = self.op.binary().map_or(0, |_| kernel.operands[2].layout.shape()[self.axis]);
        Inner { rounds, ..Inner::of_operands(self.axis, 1..3) }
    }
}

/// The dispatches of a scatter of any size.
pub(crate) fn in_windows(
    kernel: &Kernel,
    scatter: Scatter,
    aliases: &Aliases,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let windows = Windows { kernel, cut: &scatter, aliases, capabilities };
    let source = &kernel.operands[2].layout;
    if scatter.op == ScatterOp::Add
        && kernel.outputs[0].dtype.is_reduced_float()
        && kernel.space.numel() > 0
        && source.numel() > 0
        && (!windows.is_one_piece()? || form(kernel, scatter.axis, capabilities) == Form::Lines)
    {
        return rounded_last(windows);
    }
    // The base is copied to the output, and the source is added there.
    let goal = Layout::contiguous(kernel.space.clone());
    let mut out = windows.copied(0, &kernel.operands[0].layout, &goal)?;
    out.append(windows.dispatches()?);
    Ok(out)
}

/// A scatter-add to elements of a half type that may store sums several times: they are stored in f32, and
/// rounded at the end.
fn rounded_last(windows: Windows<'_>) -> Result<Dispatches> {
    const SUMS: Resource = Resource::Temporary(0);
    let Windows { kernel, capabilities, .. } = windows;
    let dtype = kernel.outputs[0].dtype;
    let cast = |layout: &Layout, from: DType, to: DType| {
        let program = Program {
            instrs: vec![Instr::Load(0), Instr::Cast(0)],
            dtypes: vec![from, to],
            inputs: vec![from],
            scalars: Vec::new(),
            outputs: vec![1],
        };
        let map = Kernel::map(kernel.space.clone(), [layout.clone()], program.clone());
        elementwise::in_windows(&map, &program, &Aliases::from_elem(None, 1), capabilities)
    };
    let mut sums = kernel.clone();
    sums.operands[0] = Operand::new(dtype.register(), Layout::contiguous(kernel.space.clone()));
    sums.outputs[0].dtype = dtype.register();
    let unrounded = cast(&kernel.operands[0].layout, dtype, dtype.register())?;
    let added = Windows { kernel: &sums, ..windows }.dispatches()?;
    let rounded = cast(&sums.operands[0].layout, dtype.register(), dtype)?;
    let temporaries = vec![(dtype.register(), kernel.space.numel())];
    let mut out = Dispatches { list: Vec::new(), temporaries };
    for (mut made, own) in
        [(unrounded, Resource::Output(0)), (added, Resource::Output(0)), (rounded, Resource::Input(0))]
    {
        made.shift_temporaries();
        made.redirect(own, SUMS);
        out.append(made);
    }
    Ok(out)
}

/// The dispatches of a scatter to the slice of the result that the kernel has; the output already holds the
/// base. Sums of half types are rounded once, so [`Form::Lines`] needs an output of f32.
fn dispatches(
    kernel: &Kernel,
    op: ScatterOp,
    along: Along,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let dtype = kernel.outputs[0].dtype;
    let Some(binary) = op.binary() else { return Ok(replace(kernel, along)) };
    let Some(one) = formulas::binary(binary, dtype, "a", "b").filter(|_| dtype != DType::Bool) else {
        return Err(capabilities.unsupported(op.name(), dtype, "cast first with .to_dtype(DType::F32)"));
    };
    if kernel.operands[2].layout.numel() == 0 {
        return Ok(Dispatches::default());
    }
    match form(kernel, along.axis, capabilities) {
        Form::Lines => Ok(by_line(kernel, op, along, &one).into()),
        Form::Elements => Ok(by_element(kernel, op, along, &one).into()),
        Form::Segments => scatter_segments::dispatches(kernel, op, along, &one, capabilities),
    }
}

/// The form of a scatter that combines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// One invocation for each line along the axis, with each addition in memory.
    Lines,
    /// One invocation for each element of the output.
    Elements,
    /// One invocation for each chunk of the sorted positions.
    Segments,
}

/// The form of a scatter that combines.
fn form(kernel: &Kernel, axis: usize, capabilities: &Capabilities) -> Form {
    let length = kernel.operands[2].layout.shape()[axis];
    // The other forms walk the whole axis in each invocation, which is slow unless they are many.
    if !capabilities.direct
        && length >= MIN_SEGMENTS_LENGTH
        && lines(kernel, axis) < capabilities.invocations
        && kernel.space.numel() > 0
        && scatter_segments::fits(kernel, axis, capabilities)
    {
        return Form::Segments;
    }
    // The work of the slowest invocation in each form. A software adapter runs only a few of its
    // invocations at a time.
    let busy = if capabilities.direct { capabilities.invocations / 16 } else { capabilities.invocations };
    let each_element = kernel.space.numel().div_ceil(busy) * length;
    let each_line = lines(kernel, axis).div_ceil(busy) * length;
    // If the output is empty, use the per-line form: it still validates every index.
    let lines = kernel.space.numel() == 0 || each_line.saturating_mul(2) < each_element;
    if lines { Form::Lines } else { Form::Elements }
}

/// The number of lines along the axis in the source.
fn lines(kernel: &Kernel, axis: usize) -> usize {
    let shape = kernel.operands[2].layout.shape();
    shape.iter().enumerate().filter(|&(a, _)| a != axis).map(|(_, &n)| n).product()
}

/// The common start of both forms of a scatter: the dispatch, with the functions that read an index and
/// combine two elements.
fn parts(
    kernel: &Kernel,
    op: ScatterOp,
    along: Along,
    [src_elements, output_elements]: [Elements; 2],
    [element, one]: [&str; 2],
) -> Dispatch {
    let (axis, index_dtype) = (along.axis, kernel.operands[1].dtype);
    let (index, src) = (&kernel.operands[1].layout, &kernel.operands[2].layout);
    let mut d = Dispatch::new(op.name());
    d.params.size("start", along.start);
    d.params.size("size", along.size);
    d.params.size("length", src.shape()[axis]);
    d.params.stride("index_stride", index.strides()[axis]);
    d.bind("index", Elements::of(index_dtype), false, Resource::Input(1));
    d.bind("src", src_elements, false, Resource::Input(2));
    d.bind("output", output_elements, true, Resource::Output(0));
    d.code.line(format_args!("alias T = {element};"));
    d.code.expression("one_of", &[("a", "T"), ("b", "T")], "T", one);
    index_functions(index_dtype, &mut d);
    d
}

/// A shape with size 1 along the axes on which the index does not vary, except the indexed axis.
fn narrow(kernel: &Kernel, axis: usize, shape: &[usize]) -> Shape {
    let strides = kernel.operands[1].layout.strides();
    let varies = |a: usize| a == axis || strides[a] != 0;
    shape.iter().enumerate().map(|(a, &n)| if varies(a) { n } else { 1 }).collect()
}

/// The shape of the turns that a replacing scatter stores.
fn turns(kernel: &Kernel, axis: usize) -> Shape {
    let mut places = kernel.operands[2].layout.shape().dims().to_vec();
    places[axis] = kernel.space[axis];
    narrow(kernel, axis, &places)
}

/// The three passes of a replacing scatter. The last turn of each output element is stored only over the
/// indexed axis and the axes along which the index varies.
fn replace(kernel: &Kernel, along: Along) -> Dispatches {
    let axis = along.axis;
    let (index, src) = (&kernel.operands[1].layout, &kernel.operands[2].layout);
    if src.numel() == 0 {
        return Dispatches::default();
    }
    // If the output is empty, every index is out of range, and the first pass reports it.
    let nowhere = kernel.space.numel() == 0;
    let varies = |a: usize| a == axis || index.strides()[a] != 0;
    let places = turns(kernel, axis);
    let steps = places.contiguous_strides();
    let turns: Strides =
        (0..places.rank()).map(|a| if varies(a) && a != axis { steps[a] } else { 0 }).collect();
    let narrow = narrow(kernel, axis, src.shape());
    let pass = |label: &'static str, shape: &Shape| {
        let mut d = Dispatch::new(label);
        d.params.size("total", shape.numel());
        d.params.size("start", along.start);
        d.params.size("count", kernel.space[axis]);
        d.params.size("size", along.size);
        d.params.size("length", shape[axis]);
        d.params.stride("axis_step", shape.contiguous_strides()[axis]);
        d.params.stride("turn_stride", steps[axis]);
        d.bind("index", Elements::of(kernel.operands[1].dtype), false, Resource::Input(1));
        index_functions(kernel.operands[1].dtype, &mut d);
        let operands = [(index.strides(), index.offset()), (&turns[..], 0)];
        d.code.append(&index::places(shape, &operands, &mut d.params));
        d.workgroups = shape.numel().div_ceil(256);
        d.work = 256 * 4;
        d
    };
    let turn = |label: &'static str, what: &str| {
        let mut d = pass(label, &narrow);
        d.bind("turns", "atomic<u32>", true, Resource::Temporary(0));
        visit(&mut d, what);
        d
    };
    let clear = turn("scatter_clear", "atomicStore(&turns[place], 0u);");
    if nowhere {
        return Dispatches { list: vec![clear], temporaries: vec![(DType::U32, 1)] };
    }
    let last = turn("scatter_last", "atomicMax(&turns[place], turn);");
    let mut d = pass("scatter", src.shape());
    d.bind("turns", "u32", false, Resource::Temporary(0));
    let elements = || Elements::bits(kernel.outputs[0].dtype);
    d.bind("src", elements(), false, Resource::Input(2));
    d.bind("output", elements(), true, Resource::Output(0));
    let output = kernel.space.contiguous_strides();
    d.params.stride("output_stride", output[axis]);
    let (off, source) = (off_axis(&output, axis), src.strides());
    d.code.append(&index::function("source", src.shape(), source, src.offset(), &mut d.params));
    d.code.append(&index::function("goal", src.shape(), &off, 0, &mut d.params));
    visit(
        &mut d,
        "if (turns[place] == turn) { store_output(goal(i) + along * params.output_stride, load_src(source(i))); }",
    );
    Dispatches { list: vec![clear, last, d], temporaries: vec![(DType::U32, places.numel())] }
}

/// The end of a pass of [`replace`]: the statement for each element.
fn visit(d: &mut Dispatch, what: &str) {
    let arguments = [("i", "u32"), ("along", "u32"), ("place", "u32"), ("turn", "u32")];
    d.code.function("visit", &arguments, "", |c| c.line(what));
    d.code.kernel(256, taper_shaders::SCATTER_REPLACE);
}

/// One invocation for each line along the axis, or for four neighbouring lines.
fn by_line(kernel: &Kernel, op: ScatterOp, along: Along, one: &str) -> Dispatch {
    let lines = lines(kernel, along.axis);
    let (axis, dtype) = (along.axis, kernel.outputs[0].dtype);
    let (index, src) = (&kernel.operands[1].layout, &kernel.operands[2].layout);
    let mut shape: SmallVec<[usize; 8]> = src.shape().iter().copied().collect();
    shape[axis] = 1;
    let output = kernel.space.contiguous_strides();
    let merged = collapse(&shape, &[index.strides(), src.strides(), &output]);
    let (mut shape, mut strides) = (merged.shape, merged.strides);
    let mut steps = [src.strides()[axis], output[axis]];
    let mut offset = src.offset();
    let side_by_side = |strides: &[Strides]| {
        strides.iter().map(|s| s.last().copied()).eq([Some(0), Some(1), Some(1)])
            && strides[1..].iter().all(|s| fours(&s[..s.len() - 1]))
    };
    // The maximum and minimum of floats are functions of single numbers.
    let vectors = matches!((dtype, op), (DType::F32, ScatterOp::Add) | (DType::I32 | DType::U32, _))
        && kernel.operands[2].dtype == dtype
        && shape.last().is_some_and(|n| n % 4 == 0)
        && fours(&[steps[0], steps[1], offset as isize])
        && side_by_side(&strides);
    let unit = if vectors { 4 } else { 1 };
    if vectors {
        shape.iter_mut().rev().take(1).for_each(|n| *n /= 4);
        for strides in &mut strides[1..] {
            let last = strides.len() - 1;
            strides[..last].iter_mut().for_each(|s| *s /= 4);
        }
        steps.iter_mut().for_each(|s| *s /= 4);
        offset /= 4;
    }
    let t = loaded(dtype);
    let element = if vectors { format!("vec4<{t}>") } else { t.into() };
    let elements = |dtype| if vectors { Elements::from(element.as_str()) } else { Elements::of(dtype) };
    let both = [elements(kernel.operands[2].dtype), elements(dtype)];
    let mut d = parts(kernel, op, along, both, [&element, one]);
    d.params.size("total", lines / unit);
    d.params.size("count", kernel.space[axis]);
    d.params.stride("src_stride", steps[0]);
    d.params.stride("output_stride", steps[1]);
    let offsets = [index.offset(), offset, 0];
    let operands: SmallVec<[(&[isize], usize); 3]> =
        strides.iter().zip(offsets).map(|(s, offset)| (&s[..], offset)).collect();
    d.code.append(&index::places(&shape, &operands, &mut d.params));
    d.code.kernel(LINES_PER_WORKGROUP, taper_shaders::SCATTER_LINE);
    d.workgroups = (lines / unit).div_ceil(LINES_PER_WORKGROUP);
    d.work = LINES_PER_WORKGROUP * src.shape()[axis] * WAITING_WORK;
    d
}

/// One invocation for each element of the output, or for four that share words.
fn by_element(kernel: &Kernel, op: ScatterOp, along: Along, one: &str) -> Dispatch {
    let (axis, dtype) = (along.axis, kernel.outputs[0].dtype);
    let (index, src) = (&kernel.operands[1].layout, &kernel.operands[2].layout);
    let (shape, src_shape) = (&kernel.space, src.shape());
    let t = loaded(dtype);
    let each = if is_packed(dtype) { 4 } else { 1 };
    let both = [Elements::of(kernel.operands[2].dtype), Elements::of(dtype).in_fours(each == 4)];
    let mut d = parts(kernel, op, along, both, [t, one]);
    d.params.size("total", shape.numel());
    d.code.line(format_args!("const EACH = {each}u;"));
    d.code.function("put", &[("first", "u32")], "", |c| {
        if each == 1 {
            return c.line("store_output(first, element(first));");
        }
        c.bind("last", "params.total - 1u");
        let all = [0, 1, 2, 3].map(|e| format!("element(min(first + {e}u, last))")).join(", ");
        c.line(format_args!("store_first_output(first, vec4<T>({all}), params.total - first);"));
    });
    d.params.stride("src_stride", src.strides()[axis]);
    let operands = [
        (&off_axis(index.strides(), axis)[..], index.offset()),
        (&off_axis(src.strides(), axis)[..], src.offset()),
    ];
    d.code.append(&index::places(shape, &operands, &mut d.params));
    // The coordinate of an output element along the axis, and whether the source covers it along the other
    // axes.
    let strides = shape.contiguous_strides();
    d.params.size("axis_step", strides[axis].unsigned_abs());
    d.params.size("count", shape[axis]);
    d.code.expression("along", &[("i", "u32")], "u32", "(i / params.axis_step) % params.count");
    let mut inside = String::from("true");
    for a in (0..shape.rank()).filter(|&a| a != axis && src_shape[a] < shape[a]) {
        d.params.size(format!("step{a}"), strides[a].unsigned_abs());
        d.params.size(format!("size{a}"), shape[a]);
        d.params.size(format!("reach{a}"), src_shape[a]);
        inside += &format!(" && (i / params.step{a}) % params.size{a} < params.reach{a}");
    }
    d.code.expression("inside", &[("i", "u32")], "bool", inside);
    d.code.kernel(256, taper_shaders::SCATTER_ELEMENT);
    d.workgroups = shape.numel().div_ceil(256 * each);
    d.work = 256 * each * src_shape[axis];
    d
}
