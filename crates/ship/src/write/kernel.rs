//! A kernel as a function: loops over its space, with the program of each position inside.

use std::{collections::BTreeSet, fmt::Write};

use tensor_core::{
    ArgReduceOp, Arithmetic, BinaryOp, CumulativeOp, DType, Layout, ReduceOp, Scalar, collapse,
    kernel::{Body, Instr, Program},
    rows::RowProgram,
};

use super::language::Language;
use crate::{
    description::Step,
    interpret::{beginning, combination},
    operations::{self, Text},
    relayout::{tile_axis, tile_size},
};

/// The writer of one kernel.
pub(crate) struct KernelWriter<'a> {
    language: Language,
    step: &'a Step,
    text: String,
    depth: usize,
    /// The number of loops and temporaries so far, for their names.
    names: usize,
    /// The functions that the kernel calls.
    pub(crate) calls: BTreeSet<&'static str>,
    /// Whether an index may be out of range.
    pub(crate) may_fail: bool,
}

/// Loops over axes: for each, its variable and its size.
type Loops = Vec<(String, usize)>;

/// Axes of the space as loops, with the strides of several layouts along them.
struct Nest {
    sizes: Vec<usize>,
    strides: Vec<Vec<isize>>,
}

/// The place of an element in its array: an offset, and terms of variables and strides.
#[derive(Clone, Default)]
struct Place {
    offset: usize,
    terms: Vec<(String, isize)>,
}

impl Place {
    fn new(offset: usize) -> Place {
        Place { offset, terms: Vec::new() }
    }

    fn with(mut self, variable: &str, stride: isize) -> Place {
        if stride != 0 {
            self.terms.push((variable.into(), stride));
        }
        self
    }

    fn over(self, loops: &[(String, usize)], strides: &[isize]) -> Place {
        loops.iter().zip(strides).fold(self, |place, ((variable, _), &stride)| place.with(variable, stride))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        if self.offset > 0 || self.terms.iter().all(|(_, stride)| *stride < 0) {
            parts.push(self.offset.to_string());
        }
        for (variable, stride) in self.terms.iter().filter(|(_, stride)| *stride > 0) {
            parts.push(if *stride == 1 { variable.clone() } else { format!("{variable} * {stride}") });
        }
        f.write_str(&parts.join(" + "))?;
        for (variable, stride) in self.terms.iter().filter(|(_, stride)| *stride < 0) {
            write!(f, " - {variable} * {}", stride.unsigned_abs())?;
        }
        Ok(())
    }
}

/// The elements that a program reads: the expression of each operand at the present position.
type Operands<'a> = &'a dyn Fn(&KernelWriter<'_>, usize) -> Place;

impl<'a> KernelWriter<'a> {
    /// The body of the kernel's function.
    pub(crate) fn write(language: Language, step: &'a Step) -> (String, KernelWriter<'a>) {
        let mut writer = KernelWriter {
            language,
            step,
            text: String::new(),
            depth: 1,
            names: 0,
            calls: BTreeSet::new(),
            may_fail: false,
        };
        writer.body();
        let text = std::mem::take(&mut writer.text);
        (text, writer)
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{:width$}{text}", "", width = 4 * self.depth);
    }

    fn open(&mut self, text: &str) {
        self.line(&format!("{text} {{"));
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// Opens a loop from 0 to `size`; gives its variable.
    fn open_loop(&mut self, size: usize) -> String {
        let i = self.name("i");
        let text = match self.language {
            Language::C => format!("for (size_t {i} = 0; {i} < {size}; {i}++)"),
            Language::Rust => format!("for {i} in 0..{size}"),
        };
        self.open(&text);
        i
    }

    /// Opens the loops of a nest.
    fn open_all(&mut self, sizes: &[usize]) -> Loops {
        sizes.iter().map(|&size| (self.open_loop(size), size)).collect()
    }

    fn close_all(&mut self, loops: &Loops) {
        loops.iter().for_each(|_| self.close());
    }

    /// Defines a variable.
    fn define(&mut self, name: &str, of: Arithmetic, value: &str) {
        let ty = self.language.register(of);
        let text = match self.language {
            Language::C => format!("const {ty} {name} = {value};"),
            Language::Rust => format!("let {name}: {ty} = {value};"),
        };
        self.line(&text);
    }

    /// Defines a variable that changes.
    fn define_mutable(&mut self, name: &str, ty: &str, value: &str) {
        let text = match self.language {
            Language::C => format!("{ty} {name} = {value};"),
            Language::Rust => format!("let mut {name}: {ty} = {value};"),
        };
        self.line(&text);
    }

    /// The name of the array of an operand: that of the output that overwrites it, if one does.
    fn operand(&self, k: usize) -> String {
        match (0..self.step.outputs.len()).find(|&o| self.step.overwritten(o) == Some(k)) {
            Some(o) => format!("y{o}"),
            None => format!("x{k}"),
        }
    }

    /// An element of an operand in its register.
    fn load(&self, k: usize, place: &Place) -> String {
        let dtype = self.step.kernel.operands[k].dtype;
        self.language.load(dtype, &format!("{}[{place}]", self.operand(k)))
    }

    fn store(&mut self, o: usize, place: &Place, value: &str) {
        let value = self.language.store(self.step.kernel.outputs[o].dtype, value);
        self.line(&format!("y{o}[{place}] = {value};"));
    }

    /// The text of an operation; its functions are noted.
    fn text(&mut self, text: Option<Text>, of: Arithmetic, a: &str, b: &str) -> String {
        // `operations::check` refuses what has no text.
        let Some(text) = text else { return String::new() };
        self.calls.extend(text.calls);
        self.language.text(text, of, a, b)
    }

    fn literal(&mut self, scalar: Scalar, dtype: DType) -> String {
        self.language.literal(scalar, dtype, &mut self.calls)
    }

    /// Checks an index; gives the variable of the position.
    fn index(&mut self, value: &str, size: usize) -> String {
        self.may_fail = true;
        let j = self.name("j");
        match self.language {
            Language::C => {
                self.line(&format!("if ((uint64_t){value} >= {size}) return 1;"));
                self.line(&format!("const size_t {j} = (size_t){value};"));
            }
            Language::Rust => {
                self.open(&format!("let {j} = match usize::try_from({value})"));
                self.line(&format!("Ok({j}) if {j} < {size} => {j},"));
                self.line("_ => return Err(BadIndex),");
                self.depth -= 1;
                self.line("};");
            }
        }
        j
    }

    /// The value of an instruction, defined as a variable; gives its name. A number is its literal.
    fn instr(
        &mut self,
        program: &Program,
        r: usize,
        regs: &[String],
        flat: &Place,
        operands: Operands<'_>,
    ) -> String {
        let dtype = program.dtypes[r];
        let own = dtype.arithmetic();
        let reg = |r: u16| regs[usize::from(r)].clone();
        let of = |r: u16| program.dtypes[usize::from(r)].arithmetic();
        let scalar = |k: u16| (self.step.scalars[usize::from(k)], program.scalars[usize::from(k)]);
        let name = format!("r{r}");
        let mut saturates = false;
        let value = match program.instrs[r] {
            Instr::Load(k) => {
                let place = operands(self, usize::from(k));
                self.element(program, usize::from(k), &place)
            }
            Instr::LoadAt { input, index } => {
                let k = usize::from(input);
                let Some(axis) = self.step.kernel.operands[k].indexed else { return String::new() };
                let j = self.index(&reg(index), axis.size);
                let place = operands(self, k).with(&j, axis.stride);
                self.load(k, &place)
            }
            Instr::Scalar(k) => {
                let (scalar, dtype) = scalar(k);
                return self.literal(scalar, dtype);
            }
            Instr::Arange { start, step } => {
                let [(start, _), (step, _)] = [start, step].map(scalar);
                let (start, step) = (self.literal(start, dtype), self.literal(step, dtype));
                let ty = self.language.register(own);
                let position = self.language.of(format!("({ty})({flat})"), format!("(({flat}) as {ty})"));
                let way = self.text(operations::binary(BinaryOp::Mul, own), own, &step, &position);
                let way = format!("({way})");
                self.text(operations::binary(BinaryOp::Add, own), own, &start, &way)
            }
            Instr::Random { .. } | Instr::Fold(..) => return String::new(),
            Instr::Unary(op, a) => self.text(operations::unary(op, of(a)), of(a), &reg(a), ""),
            Instr::Powi(n, a) => self.powi(n, own, &reg(a), &name),
            Instr::Binary(op, a, b) => self.text(operations::binary(op, of(a)), of(a), &reg(a), &reg(b)),
            Instr::Compare(op, a, b) => format!("{} {} {}", reg(a), operations::compare(op), reg(b)),
            Instr::Select(c, a, b) => match self.language {
                Language::C => format!("{} ? {} : {}", reg(c), reg(a), reg(b)),
                Language::Rust => format!("if {} {{ {} }} else {{ {} }}", reg(c), reg(a), reg(b)),
            },
            Instr::Cast(a) => {
                saturates = program.dtypes[usize::from(a)].is_float();
                self.language.cast(of(a), own, &reg(a), &mut self.calls)
            }
        };
        let computes = !matches!(
            program.instrs[r],
            Instr::Load(_) | Instr::LoadAt { .. } | Instr::Select(..) | Instr::Compare(..)
        );
        match self.language.narrowed(dtype, saturates, "wide").filter(|_| computes) {
            Some(_) => {
                let wide = self.name("w");
                self.define(&wide, own, &value);
                let held = self.language.narrowed(dtype, saturates, &wide).unwrap_or_default();
                self.define(&name, own, &held);
            }
            None => self.define(&name, own, &value),
        }
        name
    }

    /// An operand of the program; operand 0 of an epilogue is the sum, which `operands` names.
    fn element(&self, program: &Program, k: usize, place: &Place) -> String {
        match self.step.kernel.body {
            Body::Contract(_) if k == 0 => place.to_string(),
            Body::Contract(_) => {
                debug_assert_eq!(program.inputs[k], self.step.kernel.operands[k + 1].dtype);
                self.load(k + 1, place)
            }
            _ => self.load(k, place),
        }
    }

    /// A constant power by products.
    fn powi(&mut self, n: i32, of: Arithmetic, x: &str, name: &str) -> String {
        let times = operations::binary(BinaryOp::Mul, of);
        match n {
            1 => return x.into(),
            2 => return self.text(times, of, x, x),
            _ => {}
        }
        let mut count = 0;
        let mut product = |writer: &mut Self, a: &str, b: &str| {
            let value = writer.text(times, of, a, b);
            count += 1;
            let part = format!("{name}_{count}");
            writer.define(&part, of, &value);
            part
        };
        if n == 3 {
            let square = product(self, x, x);
            return self.text(times, of, &square, x);
        }
        let (mut base, mut power, mut left) = (x.to_string(), None::<String>, n.unsigned_abs());
        while left > 0 {
            if left & 1 == 1 {
                power = Some(match power {
                    Some(power) => product(self, &power, &base),
                    None => base.clone(),
                });
            }
            left >>= 1;
            if left > 0 {
                base = product(self, &base, &base);
            }
        }
        let one = if matches!(of, Arithmetic::F32 | Arithmetic::F64) { "1.0" } else { "1" };
        let power = power.unwrap_or_else(|| match (self.language, of) {
            (Language::C, Arithmetic::F32) => "1.0f".into(),
            _ => one.into(),
        });
        let inverse = operations::unary(tensor_core::UnaryOp::Reciprocal, of).filter(|_| n < 0);
        match inverse {
            Some(_) => self.text(inverse, of, &power, ""),
            None => power,
        }
    }

    /// The registers that lead to these.
    fn needed(program: &Program, wanted: &[u16]) -> Vec<bool> {
        let mut needed = vec![false; program.instrs.len()];
        wanted.iter().for_each(|&r| needed[usize::from(r)] = true);
        for r in (0..needed.len()).rev() {
            if needed[r] {
                program.instrs[r].operands().iter().for_each(|&a| needed[usize::from(a)] = true);
            }
        }
        needed
    }

    /// The results of a program without folds.
    fn program(&mut self, program: &Program, flat: &Place, operands: Operands<'_>) -> Vec<String> {
        let needed = KernelWriter::needed(program, &program.outputs);
        let mut regs = vec![String::new(); program.instrs.len()];
        for r in (0..regs.len()).filter(|&r| needed[r]) {
            regs[r] = self.instr(program, r, &regs, flat, operands);
        }
        program.outputs.iter().map(|&r| regs[usize::from(r)].clone()).collect()
    }

    /// Some axes of the space as loops, with the strides of all operands, all outputs and the flat position.
    fn nest(&self, axes: &[usize]) -> Nest {
        let kernel = &self.step.kernel;
        let rank = kernel.space.rank();
        let mut all: Vec<Vec<isize>> =
            kernel.operands.iter().map(|operand| operand.layout.strides().to_vec()).collect();
        for output in &kernel.outputs {
            all.push(match output.frame {
                Some(frame) => frame.layout(&output.shape).strides().to_vec(),
                None => output.strides_over(rank).to_vec(),
            });
        }
        all.push(kernel.space.contiguous_strides().to_vec());
        let sizes: Vec<usize> = axes.iter().map(|&axis| kernel.space[axis]).collect();
        let chosen: Vec<Vec<isize>> =
            all.iter().map(|strides| axes.iter().map(|&axis| strides[axis]).collect()).collect();
        let collapsed = collapse(&sizes, &chosen.iter().map(Vec::as_slice).collect::<Vec<_>>());
        Nest {
            sizes: collapsed.shape.to_vec(),
            strides: collapsed.strides.iter().map(|strides| strides.to_vec()).collect(),
        }
    }

    /// The place of operand `k` for the variables of some nests.
    fn operand_place(&self, k: usize, nests: &[(&Loops, &Nest)]) -> Place {
        let start = Place::new(self.step.kernel.operands[k].layout.offset());
        nests.iter().fold(start, |place, (loops, nest)| place.over(loops, &nest.strides[k]))
    }

    /// The same for output `o`.
    fn output_place(&self, o: usize, nests: &[(&Loops, &Nest)]) -> Place {
        let kernel = &self.step.kernel;
        let output = &kernel.outputs[o];
        let offset = output.frame.map_or(0, |frame| frame.layout(&output.shape).offset());
        let at = kernel.operands.len() + o;
        nests.iter().fold(Place::new(offset), |place, (loops, nest)| place.over(loops, &nest.strides[at]))
    }

    /// The flat position.
    fn flat(&self, nests: &[(&Loops, &Nest)]) -> Place {
        let at = self.step.kernel.operands.len() + self.step.kernel.outputs.len();
        nests.iter().fold(Place::new(0), |place, (loops, nest)| place.over(loops, &nest.strides[at]))
    }

    fn body(&mut self) {
        let kernel = &self.step.kernel;
        for (o, output) in kernel.outputs.iter().enumerate().filter(|(_, output)| output.frame.is_some()) {
            self.fill(o, output.stored(), Scalar::Int(0));
        }
        match &kernel.body {
            Body::Map(program) => {
                let nest = self.nest(&(0..kernel.space.rank()).collect::<Vec<_>>());
                let loops = self.open_all(&nest.sizes);
                let nests = [(&loops, &nest)];
                let flat = self.flat(&nests);
                let values = self.program(program, &flat, &|writer, k| writer.operand_place(k, &nests));
                for (o, value) in values.iter().enumerate() {
                    let place = self.output_place(o, &nests);
                    self.store(o, &place, value);
                }
                self.close_all(&loops);
            }
            Body::Reduce { op, program } => self.reduce(*op, program),
            Body::Rows { row_axes, .. } => self.rows(*row_axes),
            Body::ArgReduce { op, axis } => self.arg_reduce(*op, *axis),
            Body::Cumulative { op, axis, reverse } => self.cumulative(*op, *axis, *reverse),
            Body::Contract(epilogue) => self.contract(epilogue.as_ref()),
            Body::Gather { axis } => self.gather(*axis),
            Body::Scatter { op, axis } => self.scatter(op.binary(), *axis),
            Body::Copy { fill, regions } => {
                if *fill {
                    self.fill(0, kernel.outputs[0].shape.numel(), self.step.scalars[0]);
                }
                for (k, region) in regions.iter().enumerate() {
                    self.copy(k, region);
                }
            }
            // `operations::check` and `lower` refuse them.
            Body::ArgSort { .. } | Body::Custom(_) => {}
        }
    }

    fn fill(&mut self, o: usize, numel: usize, scalar: Scalar) {
        let dtype = self.step.kernel.outputs[o].dtype;
        let value = self.literal(scalar, dtype);
        let i = self.open_loop(numel);
        self.store(o, &Place::new(0).with(&i, 1), &value);
        self.close();
    }

    /// Copies operand `k` to a region of output 0.
    fn copy(&mut self, k: usize, region: &Layout) {
        let layout = &self.step.kernel.operands[k].layout;
        if region.shape().contains(&0) {
            return;
        }
        let both = collapse(region.shape(), &[layout.strides(), region.strides()]);
        let loops = self.open_all(&both.shape);
        let from = Place::new(layout.offset()).over(&loops, &both.strides[0]);
        let to = Place::new(region.offset()).over(&loops, &both.strides[1]);
        let value = self.load(k, &from);
        self.store(0, &to, &value);
        self.close_all(&loops);
    }

    /// Continues a reduction in a variable.
    fn accumulate(&mut self, op: ReduceOp, dtype: DType, total: &str, value: &str) {
        let of = dtype.arithmetic();
        let next = self.text(operations::binary(combination(op), of), of, total, value);
        match self.language.narrowed(dtype, false, total) {
            Some(held) => {
                self.line(&format!("{total} = {next};"));
                self.line(&format!("{total} = {held};"));
            }
            None => self.line(&format!("{total} = {next};")),
        }
    }

    /// The value of a finished reduction.
    fn finished(&mut self, op: ReduceOp, dtype: DType, total: &str, count: usize) -> String {
        if op != ReduceOp::Mean {
            return total.into();
        }
        let count = self.literal(Scalar::Float(count as f64), dtype);
        let of = dtype.arithmetic();
        self.text(operations::binary(BinaryOp::Div, of), of, total, &count)
    }

    /// Declares the variable of a reduction.
    fn begin(&mut self, op: ReduceOp, dtype: DType) -> String {
        let total = self.name("t");
        let value = self.literal(beginning(op, dtype), dtype);
        let ty = self.language.register(dtype.arithmetic());
        self.define_mutable(&total, ty, &value);
        total
    }

    fn reduce(&mut self, op: ReduceOp, program: &Program) {
        let kernel = &self.step.kernel;
        let dtype = program.output_dtype(0);
        let (kept, terms) = (self.nest(&kernel.outputs[0].axes), self.nest(&kernel.reduced_axes()));
        let outer = self.open_all(&kept.sizes);
        let total = self.begin(op, dtype);
        let count: usize = kernel.reduced_axes().iter().map(|&axis| kernel.space[axis]).product();
        if count > 0 {
            let inner = self.open_all(&terms.sizes);
            let nests = [(&outer, &kept), (&inner, &terms)];
            let values = self.program(program, &Place::new(0), &|writer, k| writer.operand_place(k, &nests));
            self.accumulate(op, dtype, &total, &values[0]);
            self.close_all(&inner);
        }
        let value = self.finished(op, dtype, &total, count);
        let place = self.output_place(0, &[(&outer, &kept)]);
        self.store(0, &place, &value);
        self.close_all(&outer);
    }

    fn rows(&mut self, row_axes: usize) {
        let kernel = &self.step.kernel;
        let Some(of_rows) = RowProgram::of(kernel) else { return };
        let program = of_rows.program;
        let lead = kernel.space.rank() - row_axes;
        let outer_axes: Vec<usize> = (0..lead).collect();
        let row: Vec<usize> = (lead..kernel.space.rank()).collect();
        let count: usize = row.iter().map(|&axis| kernel.space[axis]).product();
        let (rows, along) = (self.nest(&outer_axes), self.nest(&row));
        let needed = KernelWriter::needed(program, &program.outputs);
        let mut regs = vec![String::new(); program.instrs.len()];
        let outer = self.open_all(&rows.sizes);
        for phase in 0..=of_rows.last {
            // The same along the row.
            for r in 0..regs.len() {
                let is_fold = matches!(program.instrs[r], Instr::Fold(..));
                if needed[r] && of_rows.uniform[r] && of_rows.phase[r] == phase && !is_fold {
                    let nests = [(&outer, &rows)];
                    let place = |writer: &KernelWriter<'_>, k: usize| writer.operand_place(k, &nests);
                    regs[r] = self.instr(program, r, &regs, &Place::new(0), &place);
                }
            }
            for (o, r) in of_rows.due(phase, true) {
                let place = self.output_place(o, &[(&outer, &rows)]);
                self.store(o, &place, &regs[usize::from(r)]);
            }
            let folds: Vec<_> = of_rows.folds(phase + 1).filter(|(r, ..)| needed[usize::from(*r)]).collect();
            let due: Vec<_> = of_rows.due(phase, false).collect();
            if folds.is_empty() && due.is_empty() {
                continue;
            }
            let totals: Vec<String> =
                folds.iter().map(|&(r, op, _)| self.begin(op, program.dtypes[usize::from(r)])).collect();
            let inner = self.open_all(&along.sizes);
            let nests = [(&outer, &rows), (&inner, &along)];
            let flat = self.flat(&nests);
            let wanted: Vec<u16> =
                due.iter().map(|(_, r)| *r).chain(folds.iter().map(|(.., a)| *a)).collect();
            let mut here = regs.clone();
            // Uniform registers and folds are there already.
            let mut varying = vec![false; regs.len()];
            wanted.iter().for_each(|&r| varying[usize::from(r)] = !of_rows.uniform[usize::from(r)]);
            for r in (0..regs.len()).rev().filter(|&r| !of_rows.uniform[r]) {
                if varying[r] {
                    let operands = program.instrs[r].operands();
                    operands.iter().for_each(|&a| varying[usize::from(a)] = !of_rows.uniform[usize::from(a)]);
                }
            }
            for r in (0..regs.len()).filter(|&r| varying[r]) {
                let place = |writer: &KernelWriter<'_>, k: usize| writer.operand_place(k, &nests);
                here[r] = self.instr(program, r, &here, &flat, &place);
            }
            for &(o, r) in &due {
                let place = self.output_place(o, &nests);
                self.store(o, &place, &here[usize::from(r)]);
            }
            for (&(r, op, a), total) in folds.iter().zip(&totals) {
                self.accumulate(op, program.dtypes[usize::from(r)], total, &here[usize::from(a)]);
            }
            self.close_all(&inner);
            for (&(r, op, _), total) in folds.iter().zip(&totals) {
                let dtype = program.dtypes[usize::from(r)];
                let value = self.finished(op, dtype, total, count);
                let name = format!("r{r}");
                self.define(&name, dtype.arithmetic(), &value);
                regs[usize::from(r)] = name;
            }
        }
        self.close_all(&outer);
    }

    /// The condition under which an element takes the place of the best one.
    fn better(&self, dtype: DType, sign: &str, next: &str, best: &str) -> String {
        if dtype.is_float() {
            format!("{best} == {best} && ({next} != {next} || {next} {sign} {best})")
        } else {
            format!("{next} {sign} {best}")
        }
    }

    fn arg_reduce(&mut self, op: ArgReduceOp, axis: usize) {
        let kernel = &self.step.kernel;
        let dtype = kernel.operands[0].dtype;
        let of = dtype.arithmetic();
        let kept = self.nest(&kernel.outputs[0].axes);
        let outer = self.open_all(&kept.sizes);
        let (best, at, next) = (self.name("best"), self.name("at"), self.name("next"));
        let start = self.operand_place(0, &[(&outer, &kept)]);
        let first = self.load(0, &start);
        self.define_mutable(&best, self.language.register(of), &first);
        self.define_mutable(&at, self.language.of("size_t", "usize"), "0");
        let i = self.open_loop(kernel.space[axis]);
        let value = self.load(0, &start.with(&i, kernel.operands[0].layout.strides()[axis]));
        self.define(&next, of, &value);
        let sign = if op == ArgReduceOp::ArgMax { ">" } else { "<" };
        let better = self.better(dtype, sign, &next, &best);
        self.open(&self.language.of(format!("if ({better})"), format!("if {better}")));
        self.line(&format!("{best} = {next};"));
        self.line(&format!("{at} = {i};"));
        self.close();
        self.close();
        let place = self.output_place(0, &[(&outer, &kept)]);
        let value = self.language.of(format!("(int32_t){at}"), format!("{at} as i32"));
        self.store(0, &place, &value);
        self.close_all(&outer);
    }

    fn cumulative(&mut self, op: CumulativeOp, axis: usize, reverse: bool) {
        let kernel = &self.step.kernel;
        let dtype = kernel.operands[0].dtype;
        let of = dtype.arithmetic();
        let others: Vec<usize> = (0..kernel.space.rank()).filter(|&a| a != axis).collect();
        let lines = self.nest(&others);
        let outer = self.open_all(&lines.sizes);
        let nests = [(&outer, &lines)];
        let size = kernel.space[axis];
        let (mut from, mut to) = (self.operand_place(0, &nests), self.output_place(0, &nests));
        let (mut step, mut out) = (
            kernel.operands[0].layout.strides()[axis],
            kernel.outputs[0].strides_over(kernel.space.rank())[axis],
        );
        if reverse {
            from.offset = from.offset.wrapping_add_signed((size as isize - 1) * step);
            to.offset = to.offset.wrapping_add_signed((size as isize - 1) * out);
            (step, out) = (-step, -out);
        }
        let (state, next) = (self.name("state"), self.name("next"));
        let first = self.load(0, &from);
        self.define_mutable(&state, self.language.register(of), &first);
        let at = self.name("at");
        if op.is_arg() {
            self.define_mutable(&at, self.language.of("size_t", "usize"), "0");
        }
        let i = self.open_loop(size);
        let value = self.load(0, &from.with(&i, step));
        self.define(&next, of, &value);
        let to = to.with(&i, out);
        let sign = match op {
            CumulativeOp::ArgMax => ">=",
            CumulativeOp::ArgMin => "<=",
            CumulativeOp::Sum | CumulativeOp::Prod | CumulativeOp::LogSumExp => {
                let reduction = if op == CumulativeOp::Prod { ReduceOp::Prod } else { ReduceOp::Sum };
                self.open(&self.language.of(format!("if ({i} > 0)"), format!("if {i} > 0")));
                self.accumulate(reduction, dtype, &state, &next);
                self.close();
                self.store(0, &to, &state);
                self.close();
                self.close_all(&outer);
                return;
            }
        };
        let continues = if dtype.is_float() {
            format!("{next} != {next} || ({state} == {state} && {next} {sign} {state})")
        } else {
            format!("{next} {sign} {state}")
        };
        self.open(&self.language.of(format!("if ({continues})"), format!("if {continues}")));
        self.line(&format!("{state} = {next};"));
        let position = if reverse { format!("{} - {i}", size - 1) } else { i.clone() };
        self.line(&format!("{at} = {position};"));
        self.close();
        let value = self.language.of(format!("(int32_t){at}"), format!("{at} as i32"));
        self.store(0, &to, &value);
        self.close();
        self.close_all(&outer);
    }

    fn gather(&mut self, axis: usize) {
        let kernel = &self.step.kernel;
        let [table, index] = [0, 1].map(|k| &kernel.operands[k].layout);
        let own = kernel.space.contiguous_strides();
        let mut from: Vec<isize> = table.strides().to_vec();
        let along = std::mem::replace(&mut from[axis], 0);
        let all = collapse(&kernel.space, &[&from, index.strides(), &own]);
        let loops = self.open_all(&all.shape);
        let value = self.load(1, &Place::new(index.offset()).over(&loops, &all.strides[1]));
        let (wanted, of) = (self.name("k"), kernel.operands[1].dtype.arithmetic());
        self.define(&wanted, of, &value);
        let j = self.index(&wanted, table.shape()[axis]);
        let place = Place::new(table.offset()).over(&loops, &all.strides[0]).with(&j, along);
        let value = self.load(0, &place);
        self.store(0, &Place::new(0).over(&loops, &all.strides[2]), &value);
        self.close_all(&loops);
    }

    fn scatter(&mut self, op: Option<BinaryOp>, axis: usize) {
        let kernel = &self.step.kernel;
        let dtype = kernel.outputs[0].dtype;
        let own = Layout::contiguous(kernel.space.clone());
        self.copy(0, &own);
        let [index, source] = [1, 2].map(|k| &kernel.operands[k].layout);
        if index.shape().contains(&0) {
            return;
        }
        let mut to: Vec<isize> = own.strides().to_vec();
        let along = std::mem::replace(&mut to[axis], 0);
        let all = collapse(index.shape(), &[&to, index.strides(), source.strides()]);
        let loops = self.open_all(&all.shape);
        let value = self.load(1, &Place::new(index.offset()).over(&loops, &all.strides[1]));
        let (wanted, next) = (self.name("k"), self.name("next"));
        self.define(&wanted, kernel.operands[1].dtype.arithmetic(), &value);
        let j = self.index(&wanted, kernel.space[axis]);
        let value = self.load(2, &Place::new(source.offset()).over(&loops, &all.strides[2]));
        self.define(&next, dtype.arithmetic(), &value);
        let place = Place::new(0).over(&loops, &all.strides[0]).with(&j, along);
        let value = match op {
            Some(op) => {
                let before = self.name("before");
                let old = self.language.load(dtype, &format!("y0[{place}]"));
                self.define(&before, dtype.arithmetic(), &old);
                let of = dtype.arithmetic();
                let value = self.text(operations::binary(op, of), of, &before, &next);
                let sum = self.name("s");
                self.define(&sum, of, &value);
                sum
            }
            None => next,
        };
        self.store(0, &place, &value);
        self.close_all(&loops);
    }

    fn contract(&mut self, epilogue: Option<&Program>) {
        let kernel = &self.step.kernel;
        let tile = tile_axis(self.step);
        let kept: Vec<usize> = kernel.outputs[0].axes.iter().copied().filter(|&a| Some(a) != tile).collect();
        let (rows, terms) = (self.nest(&kept), self.nest(&kernel.reduced_axes()));
        let outer = self.open_all(&rows.sizes);
        match tile {
            None => self.one_sum(epilogue, &outer, &rows, &terms),
            Some(axis) => {
                let size = kernel.space[axis];
                let width = tile_size(size);
                let (blocks, rest) = (size / width, size % width);
                if blocks == 1 {
                    self.tile(epilogue, (&outer, &rows), &terms, (axis, width, Place::new(0)));
                } else {
                    let block = self.open_loop(blocks);
                    let start = Place::new(0).with(&block, width as isize);
                    self.tile(epilogue, (&outer, &rows), &terms, (axis, width, start));
                    self.close();
                }
                if rest > 0 {
                    let start = Place::new(blocks * width);
                    self.tile(epilogue, (&outer, &rows), &terms, (axis, rest, start));
                }
            }
        }
        self.close_all(&outer);
    }

    /// One result of a contraction.
    fn one_sum(&mut self, epilogue: Option<&Program>, outer: &Loops, rows: &Nest, terms: &Nest) {
        let dtype = self.step.kernel.operands[0].dtype;
        let of = dtype.arithmetic();
        let sum = self.begin(ReduceOp::Sum, dtype);
        let inner = self.open_all(&terms.sizes);
        let nests = [(outer, rows), (&inner, terms)];
        let [a, b] = [0, 1].map(|k| self.load(k, &self.operand_place(k, &nests)));
        self.add_product(dtype, of, &sum, &a, &b);
        self.close_all(&inner);
        let sum = match self.language.narrowed(dtype, false, &sum) {
            Some(held) => {
                let name = self.name("s");
                self.define(&name, of, &held);
                name
            }
            None => sum,
        };
        let operands = |writer: &KernelWriter<'_>, k: usize| match k {
            0 => Place::new(0).with(&sum, 1),
            k => writer.operand_place(k + 1, &[(outer, rows)]),
        };
        let values = match epilogue {
            Some(program) => self.program(program, &Place::new(0), &operands),
            None => vec![sum.clone()],
        };
        for (o, value) in values.iter().enumerate() {
            let place = self.output_place(o, &[(outer, rows)]);
            self.store(o, &place, value);
        }
    }

    /// `sum += a · b`.
    fn add_product(&mut self, dtype: DType, of: Arithmetic, sum: &str, a: &str, b: &str) {
        let [a, b] =
            [a, b].map(|x| if x.contains(' ') || x.starts_with('(') { format!("({x})") } else { x.into() });
        let term = self.text(operations::binary(BinaryOp::Mul, of), of, &a, &b);
        let term = if dtype.is_float() { term } else { format!("({term})") };
        let next = self.text(operations::binary(BinaryOp::Add, of), of, sum, &term);
        self.line(&format!("{sum} = {next};"));
    }

    /// Neighbouring results of a contraction: `width` of them from `start` on along an axis.
    fn tile(
        &mut self,
        epilogue: Option<&Program>,
        (outer, rows): (&Loops, &Nest),
        terms: &Nest,
        (axis, width, start): (usize, usize, Place),
    ) {
        let kernel = &self.step.kernel;
        let dtype = kernel.operands[0].dtype;
        let of = dtype.arithmetic();
        let (sums, ty) = (self.name("t"), self.language.register(of));
        let zero = self.literal(Scalar::Int(0), dtype);
        let declaration = match self.language {
            Language::C => format!("{ty} {sums}[{width}] = {{{zero}}};"),
            Language::Rust => format!("let mut {sums}: [{ty}; {width}] = [{zero}; {width}];"),
        };
        self.line(&declaration);
        // A place moved by the start of the tile along the axis.
        let moved = |place: Place, stride: isize| {
            let mut place = place;
            place.offset = place.offset.wrapping_add_signed(start.offset as isize * stride);
            start.terms.iter().fold(place, |place, (variable, by)| place.with(variable, by * stride))
        };
        let inner = self.open_all(&terms.sizes);
        let nests = [(outer, rows), (&inner, terms)];
        let mut factors = Vec::with_capacity(2);
        for k in 0..2 {
            let stride = kernel.operands[k].layout.strides()[axis];
            let place = moved(self.operand_place(k, &nests), stride);
            let name = self.name("f");
            if stride == 0 {
                let value = self.load(k, &place);
                self.define(&name, of, &value);
                factors.push(name);
            } else {
                // One check of bounds for the tile.
                let (array, stored) = (self.operand(k), self.language.stored(kernel.operands[k].dtype));
                let text = match self.language {
                    Language::C => format!("const {stored} *{name} = {array} + ({place});"),
                    Language::Rust => format!("let {name} = &{array}[{place}..][..{width}];"),
                };
                self.line(&text);
                factors.push(name);
            }
        }
        let lane = self.open_loop(width);
        let [a, b] = [0, 1].map(|k| match kernel.operands[k].layout.strides()[axis] {
            0 => factors[k].clone(),
            _ => self.language.load(kernel.operands[k].dtype, &format!("{}[{lane}]", factors[k])),
        });
        self.add_product(dtype, of, &format!("{sums}[{lane}]"), &a, &b);
        self.close();
        self.close_all(&inner);
        // The epilogue and the stores.
        let lane = self.open_loop(width);
        let sum = self.name("s");
        let value = format!("{sums}[{lane}]");
        let held = self.language.narrowed(dtype, false, &value).unwrap_or(value);
        self.define(&sum, of, &held);
        let along = |writer: &KernelWriter<'_>, k: usize| {
            let stride = writer.step.kernel.operands[k].layout.strides()[axis];
            moved(writer.operand_place(k, &[(outer, rows)]), stride).with(&lane, stride)
        };
        let operands = |writer: &KernelWriter<'_>, k: usize| match k {
            0 => Place::new(0).with(&sum, 1),
            k => along(writer, k + 1),
        };
        let values = match epilogue {
            Some(program) => self.program(program, &Place::new(0), &operands),
            None => vec![sum.clone()],
        };
        for (o, value) in values.iter().enumerate() {
            let stride = kernel.outputs[o].strides_over(kernel.space.rank())[axis];
            let place = moved(self.output_place(o, &[(outer, rows)]), stride).with(&lane, stride);
            self.store(o, &place, value);
        }
        self.close();
    }
}
