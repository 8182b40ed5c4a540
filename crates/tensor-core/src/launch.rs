//! The contract of a launch, checked: what every backend may count on before it touches memory. Kernels run unchecked loops over
//! raw addresses, so a scheduler that broke the contract would read and write beside its buffers.
//!
//! The executor checks every launch of a build with debug assertions, whatever the backend. See `kernel.rs` for the contract itself.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    DType, Error, Launch, Layout, Result, Shape, Storage, UnaryOp,
    kernel::{
        ArgReduceKernel, ArgSortKernel, CopyKernel, CumulativeKernel, GatherKernel, Instr, Kernel, MapKernel,
        MatMulKernel, Program, ReduceKernel, Reg, RowKernel, ScatterAddKernel,
    },
};

/// Elements of a copy's output up to which its regions are checked position by position.
const POSITIONS: usize = 1 << 16;

impl Launch<'_> {
    /// Checks that the launch keeps the contract of its kernel: programs well-formed, as many buffers and scalars as the kernel has,
    /// of its dtypes; every layout of the index space's shape and within its buffer; outputs large enough, and no buffer shared
    /// but as [`MapKernel`] allows it.
    ///
    /// Whether an index's values lie within their axis is not checked: only the device knows them.
    ///
    /// # Errors
    /// `Invalid`, with the kernel's name and what does not hold.
    pub fn check(&self) -> Result<()> {
        let check = Check { name: self.kernel.name(), launch: self };
        match self.kernel {
            Kernel::Map(kernel) => check.map(kernel),
            Kernel::Reduce(kernel) => check.reduce(kernel),
            Kernel::Rows(kernel) => check.rows(kernel),
            Kernel::ArgReduce(kernel) => check.arg_reduce(kernel),
            Kernel::Cumulative(kernel) => check.cumulative(kernel),
            Kernel::ArgSort(kernel) => check.arg_sort(kernel),
            Kernel::MatMul(kernel) => check.matmul(kernel),
            Kernel::Gather(kernel) => check.gather(kernel),
            Kernel::ScatterAdd(kernel) => check.scatter_add(kernel),
            Kernel::Copy(kernel) => check.copy(kernel),
        }
    }
}

struct Check<'a> {
    name: &'static str,
    launch: &'a Launch<'a>,
}

/// What a program may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// One value a position, and nothing over rows.
    Map,
    /// As a map, in any order of positions.
    Reduction,
    /// Reductions over rows too.
    Rows,
}

impl Check<'_> {
    /// Fails with `message` unless `holds`.
    fn that(&self, holds: bool, message: impl FnOnce() -> String) -> Result<()> {
        if holds { Ok(()) } else { Err(Error::invalid(self.name, message())) }
    }

    fn map(&self, kernel: &MapKernel) -> Result<()> {
        self.program(&kernel.program, &kernel.inputs, &kernel.shape, Scope::Map)?;
        self.outputs()?;
        self.outputs_differ()?;
        for (o, output) in self.launch.outputs.iter().enumerate() {
            let shared = || self.launch.inputs.iter().zip(&kernel.inputs).filter(|(i, _)| same(i, output));
            for (_, layout) in shared() {
                let plain = layout.is_contiguous() && layout.offset() == 0;
                self.that(plain || kernel.shape.contains(&0), || {
                    format!(
                        "output {o} overwrites an input that is read by {layout:?}, not in row-major order"
                    )
                })?;
            }
        }
        Ok(())
    }

    fn reduce(&self, kernel: &ReduceKernel) -> Result<()> {
        self.program(&kernel.program, &kernel.inputs, &kernel.shape, Scope::Reduction)?;
        self.axes(&kernel.axes, kernel.shape.rank())?;
        let outputs = kernel.program.outputs.len();
        self.that(outputs == 1, || format!("a reduction has one result, its program {outputs}"))?;
        self.outputs()?;
        self.outputs_are_apart()
    }

    fn rows(&self, kernel: &RowKernel) -> Result<()> {
        let (rank, row_axes) = (kernel.shape.rank(), kernel.row_axes);
        self.that(row_axes <= rank, || format!("{row_axes} axes of {rank} make a row"))?;
        self.program(&kernel.program, &kernel.inputs, &kernel.shape, Scope::Rows)?;
        let (marks, outputs) = (kernel.per_row.len(), kernel.program.outputs.len());
        self.that(marks == outputs, || format!("{outputs} outputs, and {marks} marks of one value a row"))?;
        let uniform = kernel.uniform();
        for (o, (&reg, &per_row)) in kernel.program.outputs.iter().zip(&kernel.per_row).enumerate() {
            self.that(!per_row || uniform[reg as usize], || {
                format!("output {o} holds one value a row, and its register differs along the row")
            })?;
        }
        self.outputs()?;
        self.outputs_are_apart()
    }

    fn arg_reduce(&self, kernel: &ArgReduceKernel) -> Result<()> {
        let size = self.axis(&kernel.input, kernel.axis)?;
        self.that(size > 0 || kernel.input.numel() == 0, || "an axis of no elements has no extreme".into())?;
        self.inputs(&[(kernel.dtype, &kernel.input)])?;
        self.plain_outputs()
    }

    fn cumulative(&self, kernel: &CumulativeKernel) -> Result<()> {
        self.axis(&kernel.input, kernel.axis)?;
        self.inputs(&[(kernel.dtype, &kernel.input)])?;
        self.plain_outputs()
    }

    fn arg_sort(&self, kernel: &ArgSortKernel) -> Result<()> {
        let (size, k) = (self.axis(&kernel.input, kernel.axis)?, kernel.k);
        self.that(k <= size, || format!("{k} elements are wanted of an axis of {size}"))?;
        self.inputs(&[(kernel.dtype, &kernel.input)])?;
        self.plain_outputs()
    }

    fn matmul(&self, kernel: &MatMulKernel) -> Result<()> {
        let operand = |rows: usize, columns: usize| -> Shape {
            kernel.batch.iter().copied().chain([rows, columns]).collect()
        };
        self.shape("lhs", &kernel.lhs, &operand(kernel.m, kernel.k))?;
        self.shape("rhs", &kernel.rhs, &operand(kernel.k, kernel.n))?;
        self.inputs(&[(kernel.dtype, &kernel.lhs), (kernel.dtype, &kernel.rhs)])?;
        self.plain_outputs()
    }

    fn gather(&self, kernel: &GatherKernel) -> Result<()> {
        self.indexed(kernel.axis, kernel.index_dtype, &kernel.input, &kernel.index)?;
        self.inputs(&[(kernel.dtype, &kernel.input), (kernel.index_dtype, &kernel.index)])?;
        self.plain_outputs()
    }

    fn scatter_add(&self, kernel: &ScatterAddKernel) -> Result<()> {
        self.indexed(kernel.axis, kernel.index_dtype, &kernel.base, &kernel.index)?;
        self.shape("the source", &kernel.src, kernel.index.shape())?;
        self.inputs(&[
            (kernel.dtype, &kernel.base),
            (kernel.index_dtype, &kernel.index),
            (kernel.dtype, &kernel.src),
        ])?;
        self.plain_outputs()
    }

    fn copy(&self, kernel: &CopyKernel) -> Result<()> {
        let sources: SmallVec<[(DType, &Layout); 4]> =
            kernel.regions.iter().map(|region| (kernel.dtype, &region.src)).collect();
        self.inputs(&sources)?;
        let whole = kernel.shape.numel();
        let mut covered = 0;
        for (r, region) in kernel.regions.iter().enumerate() {
            self.shape("a region's source", &region.src, region.dst.shape())?;
            self.within(&region.dst, whole, || format!("region {r} of the output"))?;
            covered += region.dst.numel();
        }
        let covers = if kernel.fill { covered <= whole } else { covered == whole };
        self.that(covers, || format!("the regions have {covered} elements, the output {whole}"))?;
        if whole <= POSITIONS {
            let mut written = vec![false; whole];
            for region in &kernel.regions {
                let twice = positions(&region.dst).any(|at| std::mem::replace(&mut written[at], true));
                self.that(!twice, || "a position of the output is written twice".into())?;
            }
        }
        let scalars = self.launch.scalars;
        let enough = scalars.len() == 1 || (scalars.is_empty() && !kernel.fill);
        self.that(enough, || format!("{} scalars for one to fill with", scalars.len()))?;
        self.scalars(&[kernel.dtype][..scalars.len()])?;
        self.outputs()?;
        self.outputs_are_apart()
    }

    /// A program over `shape` with its inputs and scalars: whatever an instruction names is there, and of the right dtype.
    fn program(&self, program: &Program, layouts: &[Layout], shape: &Shape, scope: Scope) -> Result<()> {
        let (instrs, dtypes) = (program.instrs.len(), program.dtypes.len());
        self.that(instrs == dtypes, || format!("{instrs} instructions have {dtypes} dtypes"))?;
        let (inputs, read) = (program.inputs.len(), layouts.len());
        self.that(inputs == read, || format!("the program has {inputs} inputs and {read} layouts"))?;
        for (k, layout) in layouts.iter().enumerate() {
            self.shape(&format!("input {k}"), layout, shape)?;
        }
        for i in 0..instrs {
            self.instr(program, i, scope)?;
        }
        for &reg in &program.outputs {
            self.that((reg as usize) < instrs, || {
                format!("register {reg} is a result, of {instrs} there are")
            })?;
        }
        let reads: SmallVec<[(DType, &Layout); 4]> = program.inputs.iter().copied().zip(layouts).collect();
        self.inputs(&reads)?;
        self.scalars(&program.scalars)
    }

    fn instr(&self, program: &Program, i: usize, scope: Scope) -> Result<()> {
        let (instr, to) = (&program.instrs[i], program.dtypes[i]);
        for r in instr.operands() {
            self.that((r as usize) < i, || format!("instruction {i} reads register {r}, which comes later"))?;
        }
        let of = |r: Reg| program.dtypes[r as usize];
        let slot = |n: u16| program.scalars.get(n as usize).copied();
        let fits = match *instr {
            Instr::Load(k) => program.inputs.get(k as usize) == Some(&to),
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

    /// As many inputs as these, each of its dtype and large enough for its layout.
    fn inputs(&self, reads: &[(DType, &Layout)]) -> Result<()> {
        let (given, wanted) = (self.launch.inputs.len(), reads.len());
        self.that(given == wanted, || format!("{given} input buffers were given for {wanted}"))?;
        for (k, (storage, &(dtype, layout))) in self.launch.inputs.iter().zip(reads).enumerate() {
            let found = storage.dtype();
            self.that(found == dtype, || format!("input {k} is read as {dtype} and holds {found}"))?;
            self.within(layout, storage.numel(), || format!("input {k}"))?;
        }
        Ok(())
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

    /// As many outputs as the kernel has, of its dtypes and at least its sizes.
    fn outputs(&self) -> Result<()> {
        let specs = self.launch.kernel.outputs();
        let (given, wanted) = (self.launch.outputs.len(), specs.len());
        self.that(given == wanted, || format!("{given} output buffers were given for {wanted}"))?;
        for (o, (storage, (shape, dtype))) in self.launch.outputs.iter().zip(&specs).enumerate() {
            let (found, room) = (storage.dtype(), storage.numel());
            self.that(found == *dtype, || format!("output {o} is written as {dtype} and holds {found}"))?;
            let numel = shape.checked_numel();
            self.that(numel.is_some_and(|numel| numel <= room), || {
                format!("output {o} is of shape {shape}, and its buffer has {room} elements")
            })?;
        }
        Ok(())
    }

    fn outputs_differ(&self) -> Result<()> {
        let outputs = self.launch.outputs;
        let twice = (1..outputs.len()).any(|o| outputs[..o].iter().any(|other| same(other, &outputs[o])));
        self.that(!twice, || "one buffer was given for two outputs".into())
    }

    /// No output is an input's buffer, or given twice.
    fn outputs_are_apart(&self) -> Result<()> {
        let is_input = |output: &Storage| self.launch.inputs.iter().any(|input| same(input, output));
        self.that(!self.launch.outputs.iter().any(is_input), || {
            "an output is an input's own buffer; only a map works in place".into()
        })?;
        self.outputs_differ()
    }

    /// The outputs of a kernel that works on no scalars and never in place.
    fn plain_outputs(&self) -> Result<()> {
        self.scalars(&[])?;
        self.outputs()?;
        self.outputs_are_apart()
    }

    /// The size of an axis, which is there.
    fn axis(&self, layout: &Layout, axis: usize) -> Result<usize> {
        let size = layout.shape().get(axis).copied();
        size.ok_or_else(|| Error::invalid(self.name, format!("axis {axis} of shape {}", layout.shape())))
    }

    fn axes(&self, axes: &[usize], rank: usize) -> Result<()> {
        let ascending = axes.is_sorted_by(|a, b| a < b) && axes.iter().all(|&axis| axis < rank);
        self.that(ascending, || format!("axes {axes:?} of {rank} are not ascending"))
    }

    /// A tensor or base and what indexes it along an axis: no larger elsewhere.
    fn indexed(&self, axis: usize, dtype: DType, from: &Layout, index: &Layout) -> Result<()> {
        self.axis(from, axis)?;
        let is_index = matches!(dtype, DType::I32 | DType::I64 | DType::U32 | DType::U8);
        self.that(is_index, || format!("an index of {dtype}"))?;
        let (sizes, indices) = (from.shape(), index.shape());
        let smaller = sizes.rank() == indices.rank()
            && (0..sizes.rank()).all(|a| a == axis || indices[a] <= sizes[a] || indices.contains(&0));
        self.that(smaller, || format!("an index of shape {indices} along axis {axis} of shape {sizes}"))
    }

    fn shape(&self, what: &str, layout: &Layout, shape: &Shape) -> Result<()> {
        let found = layout.shape();
        self.that(found == shape, || format!("{what} is of shape {found}, and the kernel of {shape}"))
    }

    /// Every element of a layout lies in a buffer of `numel` elements.
    fn within(&self, layout: &Layout, numel: usize, what: impl Fn() -> String) -> Result<()> {
        let (shape, strides) = (layout.shape(), layout.strides());
        let (rank, given) = (shape.rank(), strides.len());
        self.that(rank == given, || format!("{} has {rank} axes and {given} strides", what()))?;
        if shape.contains(&0) {
            return Ok(());
        }
        // Wide enough that nothing overflows: an axis reaches less than 2^127, and what is beyond 2^64 is beyond any buffer.
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

/// The places of a layout's elements, in row-major order.
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
