//! [`Launch`], and [`Launch::check`]: the contract of a launch, which every backend relies on when it
//! accesses memory. Kernels run unchecked loops over raw addresses, so a scheduler that broke the
//! contract would read and write outside its buffers.
//!
//! With debug assertions, the executor checks every launch, on every backend. `kernel.rs` defines the
//! contract itself.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        shape::Shape,
    },
    elements::{dtype::DType, scalar::Scalar},
    kernels::{
        custom::{self, CustomKernel},
        kernel::{Body, BodyClass, Compiled, IndexedOperand, Instr, Kernel, Operand, Output, Program, Reg},
        layout::Layout,
        operators::UnaryOp,
        storage::Storage,
        ticket::Ticket,
    },
};

/// The number of output elements up to which a copy's regions are checked position by position.
const POSITIONS: usize = 1 << 16;

/// A kernel with the buffers and scalars of one run. [`Launch::check`] checks the kernel's contract.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The slot for the backend's compiled form of the kernel.
    pub compiled: &'a Compiled,
    /// The scalars, each already cast to the dtype of its slot in the program.
    pub scalars: &'a [Scalar],
    /// The input buffers, in the kernel's order. A buffer may occur twice.
    pub inputs: &'a [Storage],
    /// The output buffers, in the kernel's order, each at least as large as the output.
    pub outputs: &'a [Storage],
    /// The tickets by which a backend defers the check that all indices are in range, or that a custom
    /// kernel that may fail has not: the operand's number and its ticket for each of
    /// [`Kernel::indexed_operands`] whose indices are not known to be in range, and operand 0's for a
    /// custom kernel. Where there is no ticket, memory accesses must still be safe.
    pub tickets: &'a [(usize, Arc<Ticket>)],
}

impl Launch<'_> {
    /// The ticket of an operand that is read at indices.
    pub fn ticket(&self, operand: usize) -> Option<&Arc<Ticket>> {
        self.tickets.iter().find(|(of, _)| *of == operand).map(|(_, ticket)| ticket)
    }

    /// The error of an out-of-range index into an operand, for a backend whose [`crate::Backend::run`]
    /// fails at once; the ticket's error, if there is a ticket.
    pub fn index_error(&self, operand: usize, index: i64) -> Error {
        let op = self.kernel.name();
        match (self.ticket(operand), self.kernel.indexed_operands().iter().find(|of| of.operand == operand)) {
            (Some(ticket), _) => ticket.error(index),
            (None, Some(&IndexedOperand { axis, size, .. })) => {
                Error::new(ErrorKind::IndexOutOfRange { op, index, axis, size })
            }
            (None, None) => {
                Error::invalid(op, format!("index {index} into operand {operand}, which has none"))
            }
        }
    }
}

impl Launch<'_> {
    /// Checks that the launch keeps the contract of its kernel: programs are well-formed; there are as
    /// many buffers and scalars as the kernel has, of its dtypes; every layout has the index space's
    /// shape and is within its buffer; outputs are large enough; and no buffer is shared except as
    /// [`Kernel`] allows it.
    ///
    /// The range of index values is not checked: only the device knows them.
    ///
    /// # Errors
    /// `Invalid`, with the kernel's name and the violated condition.
    pub fn check(&self) -> Result<()> {
        let check = self.checked();
        check.header()?;
        match &self.kernel.body {
            Body::Map(program) => {
                check.program(program, Scope::Map)?;
                check.scalars(&program.scalars)?;
                check.in_place()
            }
            Body::Reduce { op: _, program } => check.reduce(program),
            Body::Rows { row_axes, program } => check.rows(*row_axes, program),
            Body::ArgReduce { op: _, axis } => check.arg_reduce(*axis),
            Body::Cumulative { op: _, axis, reverse: _ } => {
                check.one_line(*axis)?;
                check.plain()
            }
            Body::ArgSort { axis, descending: _ } => check.arg_sort(*axis),
            Body::Contract(epilogue) => check.contract(epilogue.as_ref()),
            Body::Gather { axis } => check.gather(*axis),
            Body::Scatter { axis, .. } => check.scatter(*axis),
            Body::Copy { fill, regions } => check.copy(*fill, regions),
            Body::Custom(custom) => check.custom(custom.as_ref()),
        }
    }

    /// Checks that the kernel is one of `custom`: outputs have the shapes and dtypes that it gives for
    /// the operands, which are row-major unless it takes strides. A backend's native kernel for the
    /// operation may rely on this.
    ///
    /// # Errors
    /// `Invalid`, with the kernel's name and the violated condition.
    pub fn check_custom(&self, custom: &dyn CustomKernel) -> Result<()> {
        self.checked().custom(custom)
    }

    fn checked(&self) -> Check<'_> {
        Check { name: self.kernel.name(), launch: self }
    }
}

struct Check<'a> {
    name: &'static str,
    launch: &'a Launch<'a>,
}

/// The instructions that a program may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// One value per position, without folds over rows.
    Map,
    /// As in a map, but independent of the order of positions.
    Reduction,
    /// As in a map, and folds over rows.
    Rows,
}

impl Check<'_> {
    /// Fails with `message` unless `holds`.
    fn that(&self, holds: bool, message: impl FnOnce() -> String) -> Result<()> {
        if holds { Ok(()) } else { Err(Error::invalid(self.name, message())) }
    }

    /// The conditions of every kernel: a buffer for each operand and output, of its dtype and large
    /// enough; operands over the space.
    fn header(&self) -> Result<()> {
        let (kernel, launch) = (self.launch.kernel, self.launch);
        let (given, wanted) = (launch.inputs.len(), kernel.operands.len());
        self.that(given == wanted, || format!("{given} input buffers were given for {wanted}"))?;
        for (k, (storage, operand)) in launch.inputs.iter().zip(&kernel.operands).enumerate() {
            let (found, dtype) = (storage.dtype(), operand.stored());
            self.that(found == dtype, || format!("input {k} is read as {dtype} and holds {found}"))?;
            let elements = operand.format.as_ref().map(|format| format.elements(storage.numel()));
            self.within(&operand.reach(), elements.unwrap_or(storage.numel()), || format!("input {k}"))?;
            let decodes = match kernel.body.class() {
                BodyClass::Contract(_) => k < 2,
                BodyClass::Gather(_) => k == 0,
                BodyClass::Program(_) => kernel.is_copy(),
                BodyClass::Along(_) | BodyClass::Scatter(_) | BodyClass::Copy | BodyClass::Custom => false,
            };
            self.that(operand.format.is_none() || operand.dtype.is_float() && decodes, || {
                format!("input {k} is in blocks, which this kernel does not read")
            })?;
            self.over_space(k, &operand.layout)?;
            let takes = matches!(kernel.body.class(), BodyClass::Program(_));
            self.that(takes || operand.indexed.is_none(), || {
                format!("input {k} has an axis of its own, and the kernel no program that reads along it")
            })?;
        }
        let (given, wanted) = (launch.outputs.len(), kernel.outputs.len());
        self.that(given == wanted, || format!("{given} output buffers were given for {wanted}"))?;
        for (o, (storage, output)) in launch.outputs.iter().zip(&kernel.outputs).enumerate() {
            let (found, room, dtype) = (storage.dtype(), storage.numel(), output.dtype);
            self.that(found == dtype, || format!("output {o} is written as {dtype} and holds {found}"))?;
            let numel = output.shape.checked_numel().map(|_| output.stored());
            self.that(numel.is_some_and(|numel| numel <= room), || {
                format!("output {o} is of shape {}, and its buffer has {room} elements", output.shape)
            })?;
            let may_be_framed =
                matches!(kernel.body, Body::Map(_) | Body::Rows { .. }) && output.shape == kernel.space;
            self.that(output.frame.is_none() || may_be_framed && output.shape.rank() >= 2, || {
                format!(
                    "output {o} of shape {} has a frame, which needs a whole space of two axes",
                    output.shape
                )
            })?;
            self.follows_space(o, output)?;
        }
        let twice = |o: usize| launch.outputs[..o].iter().any(|other| same(other, &launch.outputs[o]));
        self.that(!(1..launch.outputs.len()).any(twice), || "one buffer was given for two outputs".into())
    }

    /// Checks that operand `k` has the sizes of the space, except where its body gives it its own.
    fn over_space(&self, k: usize, layout: &Layout) -> Result<()> {
        let (space, shape) = (&self.launch.kernel.space, layout.shape());
        let fits = |fit: &dyn Fn(usize) -> bool| {
            shape.rank() == space.rank()
                && (0..shape.rank()).all(|axis| shape[axis] == space[axis] || fit(axis))
        };
        let holds = match self.launch.kernel.body.class() {
            BodyClass::Program(_) | BodyClass::Along(_) | BodyClass::Contract(_) => fits(&|_| false),
            BodyClass::Gather(axis) => fits(&|a| k == 0 && (a == axis || space.contains(&0))),
            BodyClass::Scatter(axis) => {
                fits(&|a| k > 0 && (a == axis || shape[a] <= space[a] || shape.contains(&0)))
            }
            // The region has the operand's shape; see `copy`.
            BodyClass::Copy | BodyClass::Custom => true,
        };
        self.that(holds, || format!("input {k} is of shape {shape}, and the kernel of {space}"))
    }

    /// Checks that the axes of output `o` are ascending axes of the space and of its sizes, except that
    /// a sort may stop early.
    fn follows_space(&self, o: usize, output: &Output) -> Result<()> {
        let Kernel { space, body, .. } = self.launch.kernel;
        if let Body::Custom(_) = body {
            return Ok(());
        }
        let ascending = output.axes.is_sorted_by(|a, b| a < b)
            && output.axes.iter().all(|&axis| axis < space.rank())
            && output.axes.len() == output.shape.rank();
        self.that(ascending, || {
            format!(
                "the axes {:?} of output {o} are not ascending ones of a space of {}",
                output.axes,
                space.rank()
            )
        })?;
        for (&size, &axis) in output.shape.iter().zip(&output.axes) {
            let fits = size == space[axis]
                || matches!(body, Body::ArgSort { axis: along, .. } if *along == axis && size <= space[axis]);
            self.that(fits, || format!("{size} elements are wanted of an axis of {}", space[axis]))?;
        }
        Ok(())
    }

    /// Checks that an output that is an input's own buffer replaces each element as it is read.
    fn in_place(&self) -> Result<()> {
        let kernel = self.launch.kernel;
        for (o, output) in self.launch.outputs.iter().enumerate() {
            let shared =
                self.launch.inputs.iter().zip(&kernel.operands).filter(|(input, _)| same(input, output));
            for (_, Operand { layout, indexed, .. }) in shared {
                let plain = layout.is_contiguous() && layout.offset() == 0 && indexed.is_none();
                self.that(plain || kernel.space.contains(&0), || {
                    format!(
                        "output {o} overwrites an input that is read by {layout:?}, not in row-major order"
                    )
                })?;
            }
        }
        Ok(())
    }

    fn reduce(&self, program: &Program) -> Result<()> {
        self.program(program, Scope::Reduction)?;
        let outputs = program.outputs.len();
        self.that(outputs == 1, || format!("a reduction has one result, its program {outputs}"))?;
        self.scalars(&program.scalars)?;
        self.outputs_are_apart()
    }

    fn rows(&self, row_axes: usize, program: &Program) -> Result<()> {
        let kernel = self.launch.kernel;
        let rank = kernel.space.rank();
        self.that(row_axes <= rank, || format!("{row_axes} axes of {rank} make a row"))?;
        self.program(program, Scope::Rows)?;
        let (specs, outputs) = (kernel.outputs.len(), program.outputs.len());
        self.that(specs == outputs, || format!("the program has {outputs} results, the kernel {specs}"))?;
        let uniform = kernel.uniform();
        for (o, (&reg, output)) in program.outputs.iter().zip(&kernel.outputs).enumerate() {
            let of_rows =
                output.axes.len() + row_axes == rank && output.axes.iter().all(|&a| a + row_axes < rank);
            self.that(of_rows || output.axes.len() == rank, || {
                format!("output {o} is neither one value a row nor one a position")
            })?;
            self.that(output.axes.len() == rank || uniform[reg as usize], || {
                format!("output {o} holds one value a row, and its register differs along the row")
            })?;
        }
        self.scalars(&program.scalars)?;
        self.outputs_are_apart()
    }

    /// Checks that there is one operand with this axis; gives the axis's size.
    fn one_line(&self, axis: usize) -> Result<usize> {
        let Kernel { space, operands, .. } = self.launch.kernel;
        self.that(operands.len() == 1, || format!("{} operands for one", operands.len()))?;
        let size = space.get(axis).copied();
        size.ok_or_else(|| Error::invalid(self.name, format!("axis {axis} of shape {space}")))
    }

    fn arg_reduce(&self, axis: usize) -> Result<()> {
        let size = self.one_line(axis)?;
        let kernel = self.launch.kernel;
        self.that(size > 0 || kernel.space.numel() == 0, || "an axis of no elements has no extreme".into())?;
        self.that(kernel.reduced_axes()[..] == [axis], || format!("the output has axis {axis}"))?;
        self.plain()
    }

    fn arg_sort(&self, axis: usize) -> Result<()> {
        self.one_line(axis)?;
        self.plain()
    }

    fn contract(&self, epilogue: Option<&Program>) -> Result<()> {
        let Kernel { operands, outputs, .. } = self.launch.kernel;
        let Some(program) = epilogue else {
            self.that(operands.len() == 2, || format!("{} operands for two", operands.len()))?;
            return self.plain();
        };
        self.that(operands.len() >= 2 && operands[0].dtype == operands[1].dtype, || {
            format!("its first operands are {operands:?}, not two of one dtype")
        })?;
        let read = operands.iter().skip(1).map(|operand| operand.dtype);
        self.instructions(program, read, Scope::Reduction)?;
        // Operands of the epilogue are read once for each sum, also if it has no terms.
        let over_sums = self.launch.kernel.epilogue_map().map(|map| map.layouts()).unwrap_or_default();
        for (k, layout) in over_sums.iter().enumerate().skip(1) {
            let read = k + 1;
            self.within(layout, self.launch.inputs[read].numel(), || format!("input {read}"))?;
        }
        let reduced = self.launch.kernel.reduced_axes();
        for (k, Operand { layout, .. }) in operands.iter().enumerate().skip(2) {
            let moves = |&axis: &usize| layout.strides()[axis] != 0 && layout.shape()[axis] > 1;
            self.that(!reduced.iter().any(moves), || {
                format!("input {k} moves along an axis that is summed")
            })?;
        }
        self.that(
            !outputs.is_empty() && outputs.iter().all(|output| output.axes == outputs[0].axes),
            || "the outputs do not all follow the same axes".into(),
        )?;
        self.scalars(&program.scalars)?;
        self.outputs_are_apart()
    }

    fn gather(&self, axis: usize) -> Result<()> {
        self.indexed(axis, 2)?;
        self.plain()
    }

    fn scatter(&self, axis: usize) -> Result<()> {
        self.indexed(axis, 3)?;
        let [_, index, src] = &self.launch.kernel.operands[..] else { return Ok(()) };
        let (index, src) = (index.layout.shape(), src.layout.shape());
        self.that(index == src, || format!("the source is of shape {src}, and the index of {index}"))?;
        self.plain()
    }

    /// Checks for `wanted` operands, the second of which is an index along an axis.
    fn indexed(&self, axis: usize, wanted: usize) -> Result<()> {
        let Kernel { space, operands, .. } = self.launch.kernel;
        self.that(operands.len() == wanted, || format!("{} operands for {wanted}", operands.len()))?;
        self.that(axis < space.rank(), || format!("axis {axis} of shape {space}"))?;
        let dtype = operands[1].dtype;
        self.that(dtype.is_int(), || format!("an index of {dtype}"))
    }

    fn copy(&self, fill: bool, regions: &[Layout]) -> Result<()> {
        let kernel = self.launch.kernel;
        let whole = kernel.space.numel();
        let (sources, places) = (kernel.operands.len(), regions.len());
        self.that(sources == places, || format!("{sources} sources for {places} regions"))?;
        let mut covered = 0;
        for (r, (region, Operand { layout, .. })) in regions.iter().zip(&kernel.operands).enumerate() {
            let (found, wanted) = (layout.shape(), region.shape());
            self.that(found == wanted, || {
                format!("a region's source is of shape {found}, and the region of {wanted}")
            })?;
            self.within(region, whole, || format!("region {r} of the output"))?;
            covered += region.numel();
        }
        let covers = if fill { covered <= whole } else { covered == whole };
        self.that(covers, || format!("the regions have {covered} elements, the output {whole}"))?;
        if whole <= POSITIONS {
            let mut written = vec![false; whole];
            for region in regions {
                let twice = positions(region).any(|at| std::mem::replace(&mut written[at], true));
                self.that(!twice, || "a position of the output is written twice".into())?;
            }
        }
        let scalars = self.launch.scalars;
        let enough = scalars.len() == 1 || (scalars.is_empty() && !fill);
        self.that(enough, || format!("{} scalars for one to fill with", scalars.len()))?;
        let dtypes: SmallVec<[DType; 1]> = scalars.iter().map(|_| kernel.outputs[0].dtype).collect();
        self.scalars(&dtypes)?;
        self.outputs_are_apart()
    }

    fn custom(&self, custom: &dyn CustomKernel) -> Result<()> {
        let Kernel { operands, outputs, .. } = self.launch.kernel;
        let results = custom.results(&custom::specs(operands))?;
        let same = |(output, (shape, dtype)): (&Output, &(Shape, DType))| {
            output.shape == *shape && output.dtype == *dtype
        };
        self.that(results.len() == outputs.len() && outputs.iter().zip(&results).all(same), || {
            format!("its results {results:?} are not the kernel's outputs {outputs:?}")
        })?;
        for (k, Operand { layout, .. }) in operands.iter().enumerate() {
            self.that(custom.takes_strides() || custom::is_plain(layout), || {
                format!("input {k} is read by {layout:?}, not in row-major order")
            })?;
        }
        self.scalars(&[])?;
        self.outputs_are_apart_but(|o| custom.replaces(o))
    }

    /// Checks a program against its operands: everything that an instruction names exists and has the
    /// right dtype.
    fn program(&self, program: &Program, scope: Scope) -> Result<()> {
        self.instructions(program, self.launch.kernel.operands.iter().map(|operand| operand.dtype), scope)
    }

    /// Checks a program whose inputs are of these dtypes.
    fn instructions(&self, program: &Program, read: impl Iterator<Item = DType>, scope: Scope) -> Result<()> {
        let kernel = self.launch.kernel;
        let (instrs, dtypes) = (program.instrs.len(), program.dtypes.len());
        self.that(instrs == dtypes, || format!("{instrs} instructions have {dtypes} dtypes"))?;
        self.that(read.eq(program.inputs.iter().copied()), || {
            format!("the program reads {:?}, and the kernel {:?}", program.inputs, kernel.operands)
        })?;
        for i in 0..instrs {
            self.instr(program, i, scope)?;
        }
        for &reg in &program.outputs {
            self.that((reg as usize) < instrs, || {
                format!("register {reg} is a result, of {instrs} there are")
            })?;
        }
        let made = kernel.outputs.iter().map(|output| output.dtype);
        self.that(made.eq((0..program.outputs.len()).map(|o| program.output_dtype(o))), || {
            format!("the program's results {:?} are not the kernel's {:?}", program.outputs, kernel.outputs)
        })
    }

    fn instr(&self, program: &Program, i: usize, scope: Scope) -> Result<()> {
        let (instr, to) = (&program.instrs[i], program.dtypes[i]);
        for r in instr.operands() {
            self.that((r as usize) < i, || format!("instruction {i} reads register {r}, which comes later"))?;
        }
        let of = |r: Reg| program.dtypes[r as usize];
        let slot = |n: u16| program.scalars.get(n as usize).copied();
        // The programs of contractions number their inputs differently, and have no indexed input.
        let operands = &self.launch.kernel.operands;
        let is_indexed = |k: u16| operands.get(k as usize).is_some_and(|operand| operand.indexed.is_some());
        let fits = match *instr {
            Instr::Load(k) => program.inputs.get(k as usize) == Some(&to) && !is_indexed(k),
            Instr::LoadAt { input, index } => {
                program.inputs.get(input as usize) == Some(&to) && is_indexed(input) && of(index).is_int()
            }
            Instr::Scalar(n) => slot(n) == Some(to),
            Instr::Arange { start, step } => {
                scope != Scope::Reduction && slot(start) == Some(to) && slot(step) == Some(to)
            }
            Instr::Random { kind: _, seed, offset } => {
                scope != Scope::Reduction
                    && slot(seed) == Some(DType::I64)
                    && slot(offset) == Some(DType::I64)
            }
            Instr::Unary(UnaryOp::IsNan | UnaryOp::IsInf, _) => to == DType::Bool,
            Instr::Unary(_, a) | Instr::Powi(_, a) => to == of(a),
            Instr::Binary(_, a, b) => to == of(a) && to == of(b),
            Instr::Compare(_, a, b) => to == DType::Bool && of(a) == of(b),
            Instr::Select(c, a, b) => of(c) == DType::Bool && to == of(a) && to == of(b),
            Instr::Cast(_) => true,
            Instr::Fold(_, a) => scope == Scope::Rows && to == of(a),
        };
        self.that(fits, || {
            format!("instruction {i}, {instr:?} of {to}, does not fit its operands or its kernel")
        })
    }

    fn scalars(&self, dtypes: &[DType]) -> Result<()> {
        let (given, wanted) = (self.launch.scalars.len(), dtypes.len());
        self.that(given == wanted, || format!("{given} scalars were given for {wanted}"))?;
        for (n, (&scalar, &dtype)) in self.launch.scalars.iter().zip(dtypes).enumerate() {
            self.that(scalar.cast(dtype).same_bits(scalar), || {
                format!("scalar {n}, {scalar}, is not of {dtype}")
            })?;
        }
        Ok(())
    }

    /// Checks that no output is an input's buffer.
    fn outputs_are_apart(&self) -> Result<()> {
        self.outputs_are_apart_but(|_| None)
    }

    /// The same, but for the input that each output may replace.
    fn outputs_are_apart_but(&self, replaces: impl Fn(usize) -> Option<usize>) -> Result<()> {
        let is_input = |(o, output): (usize, &Storage)| {
            let mut inputs = self.launch.inputs.iter().enumerate();
            inputs.any(|(k, input)| same(input, output) && replaces(o) != Some(k))
        };
        self.that(!self.launch.outputs.iter().enumerate().any(is_input), || {
            "an output is an input's own buffer; only a map works in place".into()
        })
    }

    /// Checks that the kernel has one output, takes no scalars and does not work in place.
    fn plain(&self) -> Result<()> {
        let outputs = self.launch.kernel.outputs.len();
        self.that(outputs == 1, || format!("{outputs} outputs for one"))?;
        self.scalars(&[])?;
        self.outputs_are_apart()
    }

    /// Checks that every element of a layout is inside a buffer of `numel` elements.
    fn within(&self, layout: &Layout, numel: usize, what: impl Fn() -> String) -> Result<()> {
        let (shape, strides) = (layout.shape(), layout.strides());
        let (rank, given) = (shape.rank(), strides.len());
        self.that(rank == given, || format!("{} has {rank} axes and {given} strides", what()))?;
        if shape.contains(&0) {
            return Ok(());
        }
        // i128 cannot overflow: an axis reaches less than 2^127, and anything beyond 2^64 is beyond any
        // buffer.
        let (mut low, mut high) = (layout.offset() as i128, layout.offset() as i128);
        for (&size, &stride) in shape.iter().zip(strides) {
            let reach = (size as i128 - 1) * stride as i128;
            if reach < 0 {
                low = low.saturating_add(reach);
            } else {
                high = high.saturating_add(reach);
            }
        }
        self.that(low >= 0 && high < numel as i128, || {
            format!("{} reaches from element {low} to {high} of a buffer of {numel}", what())
        })
    }
}

/// Whether two handles are of one buffer.
fn same(a: &Storage, b: &Storage) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

/// The buffer positions of a layout's elements, in row-major order.
fn positions(layout: &Layout) -> impl Iterator<Item = usize> {
    (0..layout.numel()).map(|mut flat| {
        let mut at = layout.offset() as isize;
        for (&size, &stride) in layout.shape().iter().zip(layout.strides()).rev() {
            at += (flat % size) as isize * stride;
            flat /= size;
        }
        at as usize
    })
}
