//! The bodies of kernels that add: reductions, rows and contractions.

use tensor_core::{
    Arithmetic, BinaryOp, DType, ReduceOp, Scalar,
    kernel::{Instr, Program},
    rows::RowProgram,
};

use super::{
    kernel::{KernelWriter, Loops, Nest, Place},
    language::Language,
};
use crate::{
    blocks::RUN,
    number::{beginning, combination},
    operations,
    relayout::{run_size, tile_axis, tile_size},
};

impl KernelWriter<'_> {
    /// Continues a reduction in a variable.
    pub(super) fn accumulate(&mut self, op: ReduceOp, dtype: DType, total: &str, value: &str) {
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
    pub(super) fn begin(&mut self, op: ReduceOp, dtype: DType) -> String {
        let total = self.name("t");
        let value = self.literal(beginning(op, dtype), dtype);
        let ty = self.language.register(dtype.arithmetic());
        self.define_mutable(&total, ty, &value);
        total
    }

    pub(super) fn reduce(&mut self, op: ReduceOp, program: &Program) {
        let kernel = &self.step.kernel;
        let dtype = program.output_dtype(0);
        let (kept, terms) = (self.nest(&kernel.outputs[0].axes), self.nest(&kernel.reduced_axes()));
        let outer = self.open_grid(&kept.sizes);
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
        self.close_grid(&outer);
    }

    pub(super) fn rows(&mut self, row_axes: usize) {
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
        let outer = self.open_grid(&rows.sizes);
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
        self.close_grid(&outer);
    }

    pub(super) fn contract(&mut self, epilogue: Option<&Program>) {
        let kernel = &self.step.kernel;
        // An invocation of WGSL has one result; its neighbours read neighbouring elements.
        let tile = tile_axis(self.step, |k| self.is_in_blocks(k));
        let tile = tile.filter(|_| self.language != Language::Wgsl);
        let kept: Vec<usize> = kernel.outputs[0].axes.iter().copied().filter(|&a| Some(a) != tile).collect();
        let (rows, terms) = (self.nest(&kept), self.nest(&kernel.reduced_axes()));
        let outer = self.open_grid(&rows.sizes);
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
        self.close_grid(&outer);
    }

    /// One result of a contraction.
    fn one_sum(&mut self, epilogue: Option<&Program>, outer: &Loops, rows: &Nest, terms: &Nest) {
        let dtype = self.step.sum_dtype();
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

    /// Declares an array of these sizes. `begin` is its initializer in C; in Rust it is zeros in any case.
    fn array(&mut self, name: &str, of: Arithmetic, sizes: &[usize], begin: &str) {
        let ty = self.language.register(of);
        let zero = if matches!(of, Arithmetic::F32 | Arithmetic::F64) { "0.0" } else { "0" };
        let (kind, zeros) =
            sizes.iter().rev().fold((ty.to_string(), zero.to_string()), |(kind, zeros), size| {
                (format!("[{kind}; {size}]"), format!("[{zeros}; {size}]"))
            });
        let sizes: String = sizes.iter().map(|size| format!("[{size}]")).collect();
        let text = self
            .language
            .native(format!("{ty} {name}{sizes}{begin};"), format!("let mut {name}: {kind} = {zeros};"));
        self.line(&text);
    }

    /// Defines the position of an element in a part of `count` elements.
    fn position(&mut self, part: &str, count: usize, at: &str) -> String {
        let name = self.name("i");
        let text = self.language.native(
            format!("const size_t {name} = {part} * {count} + {at};"),
            format!("let {name} = {part} * {count} + {at};"),
        );
        self.line(&text);
        name
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
        let dtype = self.step.sum_dtype();
        let of = dtype.arithmetic();
        let sums = self.name("t");
        self.array(&sums, of, &[width], " = {0}");
        // A place moved by the start of the tile along the axis.
        let moved = |place: Place, stride: isize| {
            let mut place = place;
            place.offset = place.offset.wrapping_add_signed(start.offset as isize * stride);
            start.terms.iter().fold(place, |place, (variable, by)| place.with(variable, by * stride))
        };
        // Rows in blocks are decoded some terms at a time.
        let strides = [0, 1].map(|k| kernel.operands[k].layout.strides()[axis]);
        let in_rows = [0, 1].map(|k| self.is_in_blocks(k) && !matches!(strides[k], 0 | 1));
        let (&size, lead) = terms.sizes.split_last().unwrap_or((&1, &[]));
        let mut inner = self.open_all(if in_rows == [false; 2] { &terms.sizes } else { lead });
        let mut factors = [0, 1].map(|_| String::new());
        let mut run = None;
        if in_rows != [false; 2] {
            let count = run_size(size);
            let part = self.open_loop(size / count);
            inner.push((String::new(), size));
            for k in (0..2).filter(|&k| in_rows[k]) {
                factors[k] = self.name("f");
                self.array(&factors[k], of, &[count, width], "");
                let lane = self.open_loop(width);
                if let Some(last) = inner.last_mut() {
                    last.0.clone_from(&part);
                }
                // The part takes `count` steps along the row, whose stride is 1.
                let mut place = moved(self.operand_place(k, &[(outer, rows), (&inner, terms)]), strides[k]);
                place
                    .terms
                    .iter_mut()
                    .filter(|term| term.0 == part)
                    .for_each(|term| term.1 *= count as isize);
                let place = place.with(&lane, strides[k]);
                let run = self.decoded_run(k, &place, &factors[k], &lane, width).filter(|_| count == RUN);
                if let Some(text) = run {
                    self.line(&text);
                } else {
                    let at = self.open_loop(count);
                    let value = self.load(k, &place.with(&at, 1));
                    self.line(&format!("{}[{at}][{lane}] = {value};", factors[k]));
                    self.close();
                }
                self.close();
            }
            let at = self.open_loop(count);
            if let Some(last) = inner.last_mut() {
                last.0 = self.position(&part, count, &at);
            }
            run = Some(at);
        }
        let nests = [(outer, rows), (&inner, terms)];
        for k in (0..2).filter(|&k| !in_rows[k]) {
            let place = moved(self.operand_place(k, &nests), strides[k]);
            let name = self.name("f");
            if strides[k] == 0 {
                let value = self.load(k, &place);
                self.define(&name, of, &value);
            } else if self.is_in_blocks(k) {
                self.array(&name, of, &[width], "");
                let lane = self.open_loop(width);
                let value = self.load(k, &place.with(&lane, 1));
                self.line(&format!("{name}[{lane}] = {value};"));
                self.close();
            } else {
                // One check of bounds for the tile.
                let (array, stored) = (self.operand(k), self.language.stored(kernel.operands[k].dtype));
                let text = self.language.native(
                    format!("const {stored} *{name} = {array} + ({place});"),
                    format!("let {name} = &{array}[{place}..][..{width}];"),
                );
                self.line(&text);
            }
            factors[k] = name;
        }
        let lane = self.open_loop(width);
        let [a, b] = [0, 1].map(|k| match (strides[k], &run) {
            (0, _) => factors[k].clone(),
            (_, Some(at)) if in_rows[k] => format!("{}[{at}][{lane}]", factors[k]),
            _ if self.is_in_blocks(k) => format!("{}[{lane}]", factors[k]),
            _ => self.language.load(kernel.operands[k].dtype, &format!("{}[{lane}]", factors[k])),
        });
        self.add_product(dtype, of, &format!("{sums}[{lane}]"), &a, &b);
        self.close();
        self.close_all(&inner);
        if run.is_some() {
            self.close();
        }
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
