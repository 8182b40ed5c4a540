//! A kernel as a function: loops over its space, with the program of each position inside.

use std::{collections::BTreeSet, fmt::Write};

use tensor_core::{
    Arithmetic, BinaryOp, DType, Layout, Scalar, collapse,
    kernel::{Body, Instr, Program},
};

use super::language::Language;
use crate::{
    blocks::RUN,
    description::{Description, Role, Step, Window},
    operations::{self, Text},
};

/// The writer of one kernel.
pub(crate) struct KernelWriter<'a> {
    pub(super) language: Language,
    pub(super) step: &'a Step,
    /// For each operand, where its elements are.
    sources: Vec<Source>,
    text: String,
    /// The parts of a kernel in WGSL: the number of invocations, and the text of one.
    pub(crate) stages: Vec<(usize, String)>,
    invocations: usize,
    depth: usize,
    /// The number of loops and temporaries so far, for their names.
    names: usize,
    /// The functions that the kernel calls.
    pub(crate) calls: BTreeSet<&'static str>,
    /// Whether an index may be out of range.
    pub(crate) may_fail: bool,
}

/// The place of an operand's elements.
enum Source {
    /// The arena, an argument or a result.
    Arena,
    /// Static data.
    Constant,
    /// Static data in blocks: the function that decodes an element, the one for a run of them, and the first
    /// element of the window.
    Blocks { decode: String, run: Option<String>, first: usize },
}

/// Loops over axes: for each, its variable and its size.
pub(super) type Loops = Vec<(String, usize)>;

/// Axes of the space as loops, with the strides of several layouts along them.
pub(super) struct Nest {
    pub(super) sizes: Vec<usize>,
    pub(super) strides: Vec<Vec<isize>>,
}

/// The place of an element in its array: an offset, and terms of variables and strides.
#[derive(Clone, Default)]
pub(super) struct Place {
    pub(super) offset: usize,
    pub(super) terms: Vec<(String, isize)>,
}

impl Place {
    pub(super) fn new(offset: usize) -> Place {
        Place { offset, terms: Vec::new() }
    }

    pub(super) fn with(mut self, variable: &str, stride: isize) -> Place {
        if stride != 0 {
            self.terms.push((variable.into(), stride));
        }
        self
    }

    pub(super) fn over(self, loops: &[(String, usize)], strides: &[isize]) -> Place {
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
    pub(crate) fn write(
        language: Language,
        step: &'a Step,
        plan: &Description,
    ) -> (String, KernelWriter<'a>) {
        let source = |window: &Window| {
            let buffer = &plan.buffers[window.buffer];
            match (&buffer.role, &buffer.blocks) {
                (_, Some(blocks)) => Source::Blocks {
                    decode: blocks.decoder.name.clone(),
                    run: blocks.decoder.run_name(),
                    first: window.start,
                },
                (Role::Constant(_), None) => Source::Constant,
                (Role::Argument(_) | Role::Result(_) | Role::Arena, None) => Source::Arena,
            }
        };
        let mut writer = KernelWriter {
            language,
            step,
            sources: step.inputs.iter().map(source).collect(),
            stages: Vec::new(),
            invocations: 0,
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

    pub(super) fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{:width$}{text}", "", width = 4 * self.depth);
    }

    pub(super) fn open(&mut self, text: &str) {
        self.line(&format!("{text} {{"));
        self.depth += 1;
    }

    pub(super) fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    pub(super) fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    pub(super) fn open_if(&mut self, condition: &str) {
        let plain = format!("if {condition}");
        self.open(&self.language.of(format!("if ({condition})"), plain, format!("if ({condition})")));
    }

    /// Opens a loop from 0 to `size`; gives its variable.
    pub(super) fn open_loop(&mut self, size: usize) -> String {
        let i = self.name("i");
        let text = match self.language {
            Language::C => format!("for (size_t {i} = 0; {i} < {size}; {i}++)"),
            Language::Rust => format!("for {i} in 0..{size}"),
            Language::Wgsl => format!("for (var {i} = 0u; {i} < {size}u; {i}++)"),
        };
        self.open(&text);
        i
    }

    /// Opens the loops of a nest.
    pub(super) fn open_all(&mut self, sizes: &[usize]) -> Loops {
        sizes.iter().map(|&size| (self.open_loop(size), size)).collect()
    }

    pub(super) fn close_all(&mut self, loops: &Loops) {
        loops.iter().for_each(|_| self.close());
    }

    /// Opens the outermost loops. In WGSL each of their positions is an invocation `g`.
    pub(super) fn open_grid(&mut self, sizes: &[usize]) -> Loops {
        if self.language != Language::Wgsl {
            return self.open_all(sizes);
        }
        self.invocations = sizes.iter().product();
        let mut below = self.invocations;
        let mut loops = Loops::new();
        for &size in sizes {
            below /= size.max(1);
            let i = self.name("i");
            let quotient = if below > 1 { format!("g / {below}u") } else { "g".into() };
            let modulo = if loops.is_empty() { String::new() } else { format!(" % {size}u") };
            self.line(&format!("let {i} = {quotient}{modulo};"));
            loops.push((i, size));
        }
        loops
    }

    pub(super) fn close_grid(&mut self, loops: &Loops) {
        if self.language != Language::Wgsl {
            return self.close_all(loops);
        }
        let text = std::mem::take(&mut self.text);
        if self.invocations > 0 {
            self.stages.push((self.invocations, text));
        }
    }

    /// Defines a variable.
    pub(super) fn define(&mut self, name: &str, of: Arithmetic, value: &str) {
        let ty = self.language.register(of);
        let text = match self.language {
            Language::C => format!("const {ty} {name} = {value};"),
            Language::Rust | Language::Wgsl => format!("let {name}: {ty} = {value};"),
        };
        self.line(&text);
    }

    /// Defines a variable that changes.
    pub(super) fn define_mutable(&mut self, name: &str, ty: &str, value: &str) {
        let text = match self.language {
            Language::C => format!("{ty} {name} = {value};"),
            Language::Rust => format!("let mut {name}: {ty} = {value};"),
            Language::Wgsl => format!("var {name}: {ty} = {value};"),
        };
        self.line(&text);
    }

    /// The name of the array of an operand: that of the output that overwrites it, if one does.
    pub(super) fn operand(&self, k: usize) -> String {
        match self.step.overwriting(k) {
            Some(o) => format!("y{o}"),
            None => format!("x{k}"),
        }
    }

    /// An element of an operand in its register.
    pub(super) fn load(&self, k: usize, place: &Place) -> String {
        let dtype = self.step.kernel.operands[k].dtype;
        let memory = match &self.sources[k] {
            Source::Arena => "arena",
            Source::Constant => "weights",
            Source::Blocks { decode, first, .. } => {
                let place = Place { offset: place.offset + first, terms: place.terms.clone() };
                return self.language.decoded(decode, &self.operand(k), &place.to_string(), dtype);
            }
        };
        self.language.load(dtype, &self.element(&self.operand(k), memory, place))
    }

    /// The statement that decodes the run of elements of an operand of f32 from a place on into a lane of an
    /// array, if the format has runs and one begins there for every value of the variables.
    pub(super) fn decoded_run(
        &self,
        k: usize,
        place: &Place,
        to: &str,
        lane: &str,
        width: usize,
    ) -> Option<String> {
        let Source::Blocks { run: Some(run), first, .. } = &self.sources[k] else { return None };
        let place = Place { offset: place.offset + first, terms: place.terms.clone() };
        let is_aligned = place.offset.is_multiple_of(RUN)
            && place.terms.iter().all(|(_, stride)| stride.unsigned_abs().is_multiple_of(RUN));
        if !is_aligned || self.step.kernel.operands[k].dtype != DType::F32 {
            return None;
        }
        let array = self.operand(k);
        Some(self.language.native(
            format!("{run}({array}, {place}, &{to}[0][{lane}], {width});"),
            format!("{run}({array}, ({place}) as u32, &mut {to}, {lane});"),
        ))
    }

    /// Whether an operand is in blocks.
    pub(super) fn is_in_blocks(&self, k: usize) -> bool {
        matches!(self.sources[k], Source::Blocks { .. })
    }

    /// An element of an output in its register.
    pub(super) fn load_output(&self, o: usize, dtype: DType, place: &Place) -> String {
        self.language.load(dtype, &self.element(&format!("y{o}"), "arena", place))
    }

    /// An element of an array: in WGSL that is a part of the memory.
    fn element(&self, array: &str, memory: &str, place: &Place) -> String {
        let whole = format!("{array}[{place}]");
        self.language.of(whole.clone(), whole, format!("{memory}[{array} + {place}]"))
    }

    pub(super) fn store(&mut self, o: usize, place: &Place, value: &str) {
        let value = self.language.store(self.step.kernel.outputs[o].dtype, value);
        let element = self.element(&format!("y{o}"), "arena", place);
        self.line(&format!("{element} = {value};"));
    }

    /// The text of an operation; its functions are noted.
    pub(super) fn text(&mut self, text: Option<Text>, of: Arithmetic, a: &str, b: &str) -> String {
        // `operations::check` refuses what has no text.
        let Some(text) = text else { return String::new() };
        self.calls.extend(text.calls);
        self.language.text(text, of, a, b)
    }

    pub(super) fn literal(&mut self, scalar: Scalar, dtype: DType) -> String {
        self.language.literal(scalar, dtype, &mut self.calls)
    }

    /// Checks an index; gives the variable of the position.
    pub(super) fn index(&mut self, value: &str, size: usize) -> String {
        self.may_fail = true;
        let j = self.name("j");
        match self.language {
            Language::C => {
                self.line(&format!("if ((uint64_t){value} >= {size}) return 1;"));
                self.line(&format!("const size_t {j} = (size_t){value};"));
            }
            Language::Wgsl => {
                self.open(&format!("if (u32({value}) >= {size}u)"));
                self.line("atomicStore(&failed, 1u);");
                self.line("return;");
                self.close();
                self.line(&format!("let {j} = u32({value});"));
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
    pub(super) fn instr(
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
                self.program_input(program, usize::from(k), &place)
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
                let position = self.language.of(
                    format!("({ty})({flat})"),
                    format!("(({flat}) as {ty})"),
                    format!("{ty}({flat})"),
                );
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
                Language::Wgsl => format!("select({}, {}, {})", reg(b), reg(a), reg(c)),
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
    fn program_input(&self, program: &Program, k: usize, place: &Place) -> String {
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
    pub(super) fn needed(program: &Program, wanted: &[u16]) -> Vec<bool> {
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
    pub(super) fn program(&mut self, program: &Program, flat: &Place, operands: Operands<'_>) -> Vec<String> {
        let needed = KernelWriter::needed(program, &program.outputs);
        let mut regs = vec![String::new(); program.instrs.len()];
        for r in (0..regs.len()).filter(|&r| needed[r]) {
            regs[r] = self.instr(program, r, &regs, flat, operands);
        }
        program.outputs.iter().map(|&r| regs[usize::from(r)].clone()).collect()
    }

    /// Some axes of the space as loops, with the strides of all operands, all outputs and the flat position.
    pub(super) fn nest(&self, axes: &[usize]) -> Nest {
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
    pub(super) fn operand_place(&self, k: usize, nests: &[(&Loops, &Nest)]) -> Place {
        let start = Place::new(self.step.kernel.operands[k].layout.offset());
        nests.iter().fold(start, |place, (loops, nest)| place.over(loops, &nest.strides[k]))
    }

    /// The same for output `o`.
    pub(super) fn output_place(&self, o: usize, nests: &[(&Loops, &Nest)]) -> Place {
        let kernel = &self.step.kernel;
        let output = &kernel.outputs[o];
        let offset = output.frame.map_or(0, |frame| frame.layout(&output.shape).offset());
        let at = kernel.operands.len() + o;
        nests.iter().fold(Place::new(offset), |place, (loops, nest)| place.over(loops, &nest.strides[at]))
    }

    /// The flat position.
    pub(super) fn flat(&self, nests: &[(&Loops, &Nest)]) -> Place {
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
                let loops = self.open_grid(&nest.sizes);
                let nests = [(&loops, &nest)];
                let flat = self.flat(&nests);
                let values = self.program(program, &flat, &|writer, k| writer.operand_place(k, &nests));
                for (o, value) in values.iter().enumerate() {
                    let place = self.output_place(o, &nests);
                    self.store(o, &place, value);
                }
                self.close_grid(&loops);
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

    pub(super) fn fill(&mut self, o: usize, numel: usize, scalar: Scalar) {
        let dtype = self.step.kernel.outputs[o].dtype;
        let value = self.literal(scalar, dtype);
        let loops = self.open_grid(&[numel]);
        self.store(o, &Place::new(0).over(&loops, &[1]), &value);
        self.close_grid(&loops);
    }

    /// Copies operand `k` to a region of output 0.
    pub(super) fn copy(&mut self, k: usize, region: &Layout) {
        let layout = &self.step.kernel.operands[k].layout;
        if region.shape().contains(&0) {
            return;
        }
        let both = collapse(region.shape(), &[layout.strides(), region.strides()]);
        let loops = self.open_grid(&both.shape);
        let from = Place::new(layout.offset()).over(&loops, &both.strides[0]);
        let to = Place::new(region.offset()).over(&loops, &both.strides[1]);
        let value = self.load(k, &from);
        self.store(0, &to, &value);
        self.close_grid(&loops);
    }
}
