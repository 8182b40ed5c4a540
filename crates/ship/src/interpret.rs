//! The plain interpreter of a description: one number at a time, sums in row-major order of their terms. It
//! defines the bits of every program that is written, and computes what depends on constants alone.

use tensor_core::{
    ArgReduceOp, BinaryOp, CompareOp, CumulativeOp, DType, Error, Layout, Result, Scalar,
    kernel::{Body, Instr, Program},
};

use crate::{
    description::{Description, Role, Step},
    number::{Number, Number as N, binary, cast, compare, held, index_of, number, powi, reduce, unary},
};

/// The bytes of all buffers.
pub(crate) struct Memory(Vec<Vec<u8>>);

impl Memory {
    /// The memory before the first step: constants have their contents, and all else is zero.
    pub(crate) fn of(plan: &Description) -> Memory {
        let bytes = |buffer: &crate::description::Buffer| match &buffer.role {
            Role::Constant(bytes) => match &buffer.blocks {
                Some(blocks) => to_bytes(buffer.dtype, &blocks.numbers(bytes)),
                None => bytes.clone(),
            },
            Role::Argument(_) | Role::Result(_) | Role::Arena => vec![0; buffer.bytes()],
        };
        Memory(plan.buffers.iter().map(bytes).collect())
    }

    pub(crate) fn set(&mut self, buffer: usize, bytes: &[u8]) {
        self.0[buffer] = bytes.to_vec();
    }

    pub(crate) fn take(&mut self, buffer: usize) -> Vec<u8> {
        std::mem::take(&mut self.0[buffer])
    }

    fn read(&self, buffer: usize, dtype: DType, at: usize) -> Number {
        let size = dtype.size();
        let bytes = &self.0[buffer][at * size..(at + 1) * size];
        if let ([b], DType::Bool) = (bytes, dtype) {
            return N::Bool(*b != 0);
        }
        match (bytes, dtype) {
            (&[a], DType::I8) => N::I32(i32::from(a as i8)),
            (&[a], _) => N::I32(i32::from(a)),
            (&[a, b], DType::I16) => N::I32(i32::from(i16::from_ne_bytes([a, b]))),
            (&[a, b], _) => N::I32(i32::from(u16::from_ne_bytes([a, b]))),
            (&[a, b, c, d], DType::F32) => N::F32(f32::from_ne_bytes([a, b, c, d])),
            (&[a, b, c, d], DType::U32) => N::U32(u32::from_ne_bytes([a, b, c, d])),
            (&[a, b, c, d], _) => N::I32(i32::from_ne_bytes([a, b, c, d])),
            (bytes, dtype) => {
                let mut eight = [0; 8];
                eight.copy_from_slice(bytes);
                match dtype {
                    DType::F64 => N::F64(f64::from_ne_bytes(eight)),
                    DType::U64 => N::U64(u64::from_ne_bytes(eight)),
                    _ => N::I64(i64::from_ne_bytes(eight)),
                }
            }
        }
    }

    fn write(&mut self, buffer: usize, dtype: DType, at: usize, number: Number) {
        let to = &mut self.0[buffer][at * dtype.size()..(at + 1) * dtype.size()];
        let size = to.len();
        match number {
            N::F32(x) => to.copy_from_slice(&x.to_ne_bytes()),
            N::F64(x) => to.copy_from_slice(&x.to_ne_bytes()),
            N::U32(x) => to.copy_from_slice(&x.to_ne_bytes()),
            N::I64(x) => to.copy_from_slice(&x.to_ne_bytes()),
            N::U64(x) => to.copy_from_slice(&x.to_ne_bytes()),
            N::Bool(x) => to[0] = u8::from(x),
            N::I32(x) if size == 1 => to[0] = x as u8,
            N::I32(x) if size == 2 => to.copy_from_slice(&(x as u16).to_ne_bytes()),
            N::I32(x) => to.copy_from_slice(&x.to_ne_bytes()),
        }
    }
}

/// The bytes of decoded numbers as elements of a floating-point dtype.
pub(crate) fn to_bytes(dtype: DType, numbers: &[f32]) -> Vec<u8> {
    let scalars: Vec<Scalar> = numbers.iter().map(|&x| Scalar::Float(f64::from(x)).cast(dtype)).collect();
    Scalar::to_bytes(dtype, &scalars)
}

/// Every position of a shape in row-major order.
fn positions(shape: &[usize], mut visit: impl FnMut(&[usize]) -> Result<()>) -> Result<()> {
    if shape.contains(&0) {
        return Ok(());
    }
    let mut index = vec![0; shape.len()];
    loop {
        visit(&index)?;
        let Some(axis) = (0..shape.len()).rev().find(|&axis| index[axis] + 1 < shape[axis]) else {
            return Ok(());
        };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}

/// The buffer's element at a position.
fn place(offset: usize, strides: &[isize], index: &[usize]) -> usize {
    let reach: isize = strides.iter().zip(index).map(|(&stride, &i)| stride * i as isize).sum();
    offset.wrapping_add_signed(reach)
}

fn at(layout: &Layout, index: &[usize]) -> usize {
    place(layout.offset(), layout.strides(), index)
}

/// The distances of the positions along some axes from the first one, in row-major order.
pub(crate) fn distances(layout: &Layout, axes: &[usize]) -> Vec<isize> {
    axes.iter().fold(vec![0], |starts, &axis| {
        let (size, stride) = (layout.shape()[axis], layout.strides()[axis]);
        starts.into_iter().flat_map(|start| (0..size).map(move |i| start + i as isize * stride)).collect()
    })
}

/// The evaluation of a step.
struct Run<'a> {
    step: &'a Step,
    memory: &'a mut Memory,
}

/// Runs a step.
///
/// # Errors
/// An index out of range, with the line of its operation.
pub(crate) fn run(step: &Step, memory: &mut Memory) -> Result<()> {
    Run { step, memory }.run()
}

impl Run<'_> {
    fn failure(&self, what: &str) -> Error {
        Error::invalid(self.step.op, format!("{what} at {}", self.step.location))
    }

    fn input(&self, k: usize, at: usize) -> Number {
        let window = &self.step.inputs[k];
        self.memory.read(window.buffer, self.step.kernel.operands[k].dtype, window.start + at)
    }

    fn store(&mut self, o: usize, at: usize, number: Number) {
        let window = &self.step.outputs[o];
        self.memory.write(window.buffer, self.step.kernel.outputs[o].dtype, window.start + at, number);
    }

    /// An index within an axis.
    fn index(&self, number: Number, size: usize) -> Result<usize> {
        let index = index_of(number);
        match usize::try_from(index) {
            Ok(within) if within < size => Ok(within),
            _ => Err(self.failure(&format!("the index {index} is outside of an axis of {size}"))),
        }
    }

    /// The value of an instruction at a position. `regs` gives earlier values; a fold has its own already.
    fn instr(
        &self,
        program: &Program,
        r: usize,
        index: &[usize],
        flat: usize,
        regs: &dyn Fn(u16) -> Number,
        operand: &dyn Fn(&Self, u16) -> Number,
    ) -> Result<Number> {
        let dtype = program.dtypes[r];
        let scalar = |k: u16| number(self.step.scalars[usize::from(k)], program.scalars[usize::from(k)]);
        let value = match program.instrs[r] {
            Instr::Load(k) => Some(operand(self, k)),
            Instr::LoadAt { input, index: along } => {
                let of = &self.step.kernel.operands[usize::from(input)];
                let Some(axis) = of.indexed else { return Err(self.failure("an operand has no axis")) };
                let step = self.index(regs(along), axis.size)? as isize * axis.stride;
                Some(self.input(usize::from(input), at(&of.layout, index).wrapping_add_signed(step)))
            }
            Instr::Scalar(k) => Some(scalar(k)),
            Instr::Arange { start, step } => {
                let i = number(Scalar::Int(flat as i64), dtype);
                let way = binary(BinaryOp::Mul, scalar(step), i);
                way.and_then(|way| binary(BinaryOp::Add, scalar(start), way))
            }
            Instr::Random { .. } | Instr::Fold(..) => None,
            Instr::Unary(op, a) => unary(op, regs(a)),
            Instr::Powi(n, a) => powi(n, regs(a)),
            Instr::Binary(op, a, b) => binary(op, regs(a), regs(b)),
            Instr::Compare(op, a, b) => Some(N::Bool(compare(op, regs(a), regs(b)))),
            Instr::Select(c, a, b) => Some(if regs(c) == N::Bool(true) { regs(a) } else { regs(b) }),
            Instr::Cast(a) => Some(cast(regs(a), dtype)),
        };
        value.map(|value| held(value, dtype)).ok_or_else(|| self.failure("an instruction has no value"))
    }

    /// The results of a program without folds at a position.
    fn program(
        &self,
        program: &Program,
        index: &[usize],
        flat: usize,
        operand: &dyn Fn(&Self, u16) -> Number,
    ) -> Result<Vec<Number>> {
        let mut regs: Vec<Number> = Vec::with_capacity(program.instrs.len());
        for r in 0..program.instrs.len() {
            let value = self.instr(program, r, index, flat, &|reg| regs[usize::from(reg)], operand)?;
            regs.push(value);
        }
        Ok(program.outputs.iter().map(|&reg| regs[usize::from(reg)]).collect())
    }

    /// The layout of an output over the space.
    fn destination(&self, o: usize) -> Layout {
        let kernel = &self.step.kernel;
        let output = &kernel.outputs[o];
        match output.frame {
            Some(frame) => frame.layout(&output.shape),
            None => Layout::new(kernel.space.clone(), &output.strides_over(kernel.space.rank()), 0),
        }
    }

    fn run(&mut self) -> Result<()> {
        let kernel = &self.step.kernel;
        let space = &kernel.space[..];
        let layout = |k: usize| &kernel.operands[k].layout;
        for (o, output) in kernel.outputs.iter().enumerate().filter(|(_, output)| output.frame.is_some()) {
            let zero = number(Scalar::Int(0), output.dtype);
            (0..output.stored()).for_each(|at| self.store(o, at, zero));
        }
        let to: Vec<Layout> = match kernel.body {
            Body::Copy { .. } | Body::Custom(_) => Vec::new(),
            _ => (0..kernel.outputs.len()).map(|o| self.destination(o)).collect(),
        };
        match &kernel.body {
            Body::Map(program) => {
                let mut flat = 0;
                positions(space, |index| {
                    let load =
                        |run: &Self, k: u16| run.input(usize::from(k), at(layout(usize::from(k)), index));
                    let values = self.program(program, index, flat, &load)?;
                    flat += 1;
                    values
                        .into_iter()
                        .enumerate()
                        .for_each(|(o, value)| self.store(o, at(&to[o], index), value));
                    Ok(())
                })
            }
            Body::Reduce { op, program } => {
                let dtype = program.output_dtype(0);
                self.over_reduced(|run, kept, reduced| {
                    let mut values = Vec::new();
                    positions(&reduced.iter().map(|&a| space[a]).collect::<Vec<_>>(), |terms| {
                        let index = full(space.len(), kept, reduced, terms);
                        let load = |run: &Self, k: u16| {
                            run.input(usize::from(k), at(layout(usize::from(k)), &index))
                        };
                        values.push(run.program(program, &index, 0, &load)?[0]);
                        Ok(())
                    })?;
                    let total = reduce(*op, dtype, &values);
                    let total = total.ok_or_else(|| run.failure("a reduction has no value"))?;
                    let index = full(space.len(), kept, reduced, &vec![0; reduced.len()]);
                    run.store(0, at(&to[0], &index), total);
                    Ok(())
                })
            }
            Body::Rows { row_axes, program } => self.rows(*row_axes, program, &to),
            Body::ArgReduce { op, axis } => {
                let size = space[*axis];
                self.over_reduced(|run, kept, reduced| {
                    let value =
                        |i: usize| run.input(0, at(layout(0), &full(space.len(), kept, reduced, &[i])));
                    let mut best = 0;
                    for i in 1..size {
                        if is_better(*op == ArgReduceOp::ArgMax, value(i), value(best)) {
                            best = i;
                        }
                    }
                    let index = full(space.len(), kept, reduced, &[0]);
                    run.store(0, at(&to[0], &index), N::I32(best as i32));
                    Ok(())
                })
            }
            Body::Cumulative { op, axis, reverse } => self.cumulative(*op, *axis, *reverse),
            Body::Contract(epilogue) => self.contract(epilogue.as_ref(), &to),
            Body::Gather { axis } => {
                let size = layout(0).shape()[*axis];
                positions(space, |index| {
                    let mut from = index.to_vec();
                    from[*axis] = self.index(self.input(1, at(layout(1), index)), size)?;
                    let value = self.input(0, at(layout(0), &from));
                    self.store(0, at(&to[0], index), value);
                    Ok(())
                })
            }
            Body::Scatter { op, axis } => {
                let dtype = kernel.outputs[0].dtype;
                positions(space, |index| {
                    let value = self.input(0, at(layout(0), index));
                    self.store(0, at(&to[0], index), value);
                    Ok(())
                })?;
                positions(layout(1).shape(), |index| {
                    let mut target = index.to_vec();
                    target[*axis] = self.index(self.input(1, at(layout(1), index)), space[*axis])?;
                    let target = at(&to[0], &target);
                    let next = self.input(2, at(layout(2), index));
                    let window = self.step.outputs[0];
                    let before = self.memory.read(window.buffer, dtype, window.start + target);
                    let value = op.binary().map_or(Some(next), |op| binary(op, before, next));
                    let value = value.ok_or_else(|| self.failure("a scatter has no value"))?;
                    self.store(0, target, held(value, dtype));
                    Ok(())
                })
            }
            Body::Copy { fill, regions } => {
                let output = &kernel.outputs[0];
                if *fill {
                    let value = number(self.step.scalars[0], output.dtype);
                    (0..output.shape.numel()).for_each(|at| self.store(0, at, value));
                }
                for (k, region) in regions.iter().enumerate() {
                    positions(region.shape(), |index| {
                        let value = self.input(k, at(layout(k), index));
                        self.store(0, at(region, index), value);
                        Ok(())
                    })?;
                }
                Ok(())
            }
            Body::ArgSort { .. } | Body::Custom(_) => Err(self.failure("the kernel cannot be interpreted")),
        }
    }

    /// Calls `f` with each position of the axes that output 0 keeps, and with the reduced axes.
    fn over_reduced(&mut self, mut f: impl FnMut(&mut Self, &[usize], &[usize]) -> Result<()>) -> Result<()> {
        let kernel = &self.step.kernel;
        let reduced = kernel.reduced_axes();
        let kept: Vec<usize> = kernel.outputs[0].axes.iter().map(|&axis| kernel.space[axis]).collect();
        positions(&kept, |index| f(self, index, &reduced))
    }

    fn rows(&mut self, row_axes: usize, program: &Program, to: &[Layout]) -> Result<()> {
        let kernel = &self.step.kernel;
        let lead = kernel.space.rank() - row_axes;
        let (rows, row) = (kernel.space[..lead].to_vec(), kernel.space[lead..].to_vec());
        let length: usize = row.iter().product();
        let mut first = 0;
        positions(&rows, |outer| {
            // The values of each instruction over the row.
            let mut regs: Vec<Vec<Number>> = Vec::new();
            for (r, instr) in program.instrs.iter().enumerate() {
                let mut values = Vec::with_capacity(length);
                if let Instr::Fold(op, a) = *instr {
                    let total = reduce(op, program.dtypes[r], &regs[usize::from(a)]);
                    let total = total.ok_or_else(|| self.failure("a reduction has no value"))?;
                    values = vec![total; length];
                } else {
                    positions(&row, |inner| {
                        let index = [outer, inner].concat();
                        let load = |run: &Self, k: u16| {
                            let layout = &kernel.operands[usize::from(k)].layout;
                            run.input(usize::from(k), at(layout, &index))
                        };
                        let here = values.len();
                        let earlier = |reg: u16| regs[usize::from(reg)][here];
                        values.push(self.instr(program, r, &index, first + here, &earlier, &load)?);
                        Ok(())
                    })?;
                }
                regs.push(values);
            }
            for (o, &reg) in program.outputs.iter().enumerate() {
                let mut here = 0;
                positions(&row, |inner| {
                    self.store(o, at(&to[o], &[outer, inner].concat()), regs[usize::from(reg)][here]);
                    here += 1;
                    Ok(())
                })?;
            }
            first += length;
            Ok(())
        })
    }

    fn cumulative(&mut self, op: CumulativeOp, axis: usize, reverse: bool) -> Result<()> {
        let kernel = &self.step.kernel;
        let (layout, dtype) = (&kernel.operands[0].layout, kernel.operands[0].dtype);
        let to = self.destination(0);
        let mut lines = kernel.space.to_vec();
        let size = std::mem::replace(&mut lines[axis], 1);
        positions(&lines, |line| {
            let mut index = line.to_vec();
            let (mut state, mut best) = (None::<Number>, 0);
            for k in 0..size {
                index[axis] = if reverse { size - 1 - k } else { k };
                let next = self.input(0, at(layout, &index));
                let value = match (op, state) {
                    (CumulativeOp::Sum, Some(so_far)) => binary(BinaryOp::Add, so_far, next),
                    (CumulativeOp::Prod, Some(so_far)) => binary(BinaryOp::Mul, so_far, next),
                    (CumulativeOp::ArgMax | CumulativeOp::ArgMin, Some(so_far))
                        if !continues(op == CumulativeOp::ArgMax, next, so_far) =>
                    {
                        Some(so_far)
                    }
                    (CumulativeOp::LogSumExp, _) => None,
                    (CumulativeOp::Sum | CumulativeOp::Prod, None)
                    | (CumulativeOp::ArgMax | CumulativeOp::ArgMin, _) => {
                        best = index[axis];
                        Some(next)
                    }
                };
                let value = value.ok_or_else(|| self.failure("a running value has no formula"))?;
                let value = held(value, dtype);
                state = Some(value);
                let stored = if op.is_arg() { N::I32(best as i32) } else { value };
                self.store(0, at(&to, &index), stored);
            }
            Ok(())
        })
    }

    fn contract(&mut self, epilogue: Option<&Program>, to: &[Layout]) -> Result<()> {
        let kernel = &self.step.kernel;
        let space = &kernel.space[..];
        let dtype = self.step.sum_dtype();
        let [lhs, rhs] = [0, 1].map(|k| &kernel.operands[k].layout);
        let [of_lhs, of_rhs] = [lhs, rhs].map(|layout| distances(layout, &kernel.reduced_axes()));
        self.over_reduced(|run, kept, reduced| {
            let mut sum = number(Scalar::Int(0), dtype);
            let index = full(space.len(), kept, reduced, &vec![0; reduced.len()]);
            let [a, b] = [lhs, rhs].map(|layout| at(layout, &index));
            for (&to_a, &to_b) in of_lhs.iter().zip(&of_rhs) {
                let (a, b) =
                    (run.input(0, a.wrapping_add_signed(to_a)), run.input(1, b.wrapping_add_signed(to_b)));
                let next = binary(BinaryOp::Mul, a, b).and_then(|term| binary(BinaryOp::Add, sum, term));
                sum = next.ok_or_else(|| run.failure("a product has no value"))?;
            }
            let sum = held(sum, dtype);
            let values = match epilogue {
                None => vec![sum],
                Some(program) => {
                    let load = |run: &Self, k: u16| match usize::from(k) {
                        0 => sum,
                        k => run.input(k + 1, at(&run.step.kernel.operands[k + 1].layout, &index)),
                    };
                    run.program(program, &index, 0, &load)?
                }
            };
            values.into_iter().enumerate().for_each(|(o, value)| run.store(o, at(&to[o], &index), value));
            Ok(())
        })
    }
}

/// The position with these parts along the kept and the reduced axes.
fn full(rank: usize, kept: &[usize], reduced: &[usize], terms: &[usize]) -> Vec<usize> {
    let (mut kept, mut terms) = (kept.iter(), terms.iter());
    (0..rank)
        .map(|axis| if reduced.contains(&axis) { terms.next() } else { kept.next() }.copied().unwrap_or(0))
        .collect()
}

fn is_nan(x: Number) -> bool {
    compare(CompareOp::Ne, x, x)
}

/// Whether a later element takes the place of the extreme so far.
fn is_better(greatest: bool, next: Number, best: Number) -> bool {
    let op = if greatest { CompareOp::Gt } else { CompareOp::Lt };
    !is_nan(best) && (is_nan(next) || compare(op, next, best))
}

/// The same for running extremes, of which the last of equal ones wins.
fn continues(greatest: bool, next: Number, best: Number) -> bool {
    let op = if greatest { CompareOp::Ge } else { CompareOp::Le };
    is_nan(next) || !is_nan(best) && compare(op, next, best)
}
