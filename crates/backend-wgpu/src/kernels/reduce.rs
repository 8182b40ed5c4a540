//! Reductions with an inlined prologue. There are two forms: one invocation for each result (or part of a
//! result), and one workgroup with a tree in workgroup memory. For few long results, parts go to a
//! temporary that a second dispatch reduces. The order of additions depends only on shapes, so results are
//! reproducible bit by bit.

use smallvec::SmallVec;
use tensor_core::{
    DType, Error, ReduceOp, Result, collapse,
    kernel::{Instr, Kernel, Operand, Program},
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Params, Resource},
        dtypes::{FIELDS, loaded, storage_size, value},
        formulas,
        index::Space,
        storage::Elements,
        wgsl::Code,
    },
    kernels::by_index,
};

/// Merged axes, and the strides of each input over them.
#[derive(Clone)]
struct Axes {
    sizes: SmallVec<[usize; 8]>,
    strides: Vec<SmallVec<[isize; 8]>>,
}

impl Axes {
    /// One axis of one input.
    fn one(size: usize, stride: usize) -> Axes {
        let strides = vec![SmallVec::from_slice(&[stride as isize])];
        Axes { sizes: SmallVec::from_slice(&[size]), strides }
    }

    /// Some axes of the kernel's index space, merged.
    fn of(kernel: &Kernel, axes: &[usize]) -> Axes {
        let sizes: SmallVec<[usize; 8]> = axes.iter().map(|&a| kernel.space[a]).collect();
        let layouts = kernel.layouts();
        let strides: Vec<SmallVec<[isize; 8]>> =
            layouts.iter().map(|l| axes.iter().map(|&a| l.strides()[a]).collect()).collect();
        let borrowed: Vec<&[isize]> = strides.iter().map(|s| &s[..]).collect();
        let merged = collapse(&sizes, &borrowed);
        Axes {
            sizes: merged.shape.iter().copied().collect(),
            strides: merged.strides.iter().map(|s| s.iter().copied().collect()).collect(),
        }
    }

    fn numel(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The stride of input `k` along the last axis.
    fn last(&self, k: usize) -> isize {
        self.strides[k].last().copied().unwrap_or(0)
    }
}

/// One dispatch: the merged kept axes and the merged reduced axes, over all inputs.
struct Reduction<'a> {
    op: ReduceOp,
    program: &'a Program,
    operands: &'a [Operand],
    offsets: SmallVec<[usize; 8]>,
    kept: Axes,
    reduced: Axes,
    /// The number of parts that each result is split into.
    splits: usize,
    /// The dtype that is stored: the result's, or the temporary's.
    stored: DType,
    /// The divisor, for a mean, in the last dispatch.
    divide: Option<usize>,
    tree: bool,
    output: Resource,
}

/// The elements that an invocation processes four at a time, in vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Vectors {
    /// None: one element at a time.
    None,
    /// Neighbouring results, all computed by one invocation.
    Kept,
    /// Neighbouring elements of one result.
    Reduced,
}

/// A kernel's reduction, and its settings.
#[derive(Clone, Copy)]
pub(crate) struct Reduce<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) op: ReduceOp,
    pub(crate) program: &'a Program,
}

/// The dispatches of a reduction.
pub(crate) fn dispatches(reduce: Reduce<'_>, capabilities: &Capabilities) -> Result<Dispatches> {
    in_dispatches(reduce, reduce.kernel.outputs[0].dtype, reduce.mean_over(), capabilities)
}

/// A part of a reduction, neither rounded nor divided; [`join`] combines the parts.
pub(crate) fn part(reduce: Reduce<'_>, capabilities: &Capabilities) -> Result<Dispatches> {
    in_dispatches(reduce, reduce.program.output_dtype(0).register(), None, capabilities)
}

/// The dispatches that compute `results` results of the dtype from `parts` parts of each, which are stored
/// in `from`, `pitch` elements apart; divided by `divide`, for a mean.
pub(crate) fn join(
    op: ReduceOp,
    dtype: DType,
    [results, parts, pitch]: [usize; 3],
    divide: Option<usize>,
    from: Resource,
    capabilities: &Capabilities,
) -> Result<Dispatch> {
    let identity = load(dtype.register());
    let reduction = Reduction {
        op,
        program: &identity,
        operands: &[],
        offsets: SmallVec::from_slice(&[0]),
        kept: Axes::one(results, 1),
        reduced: Axes::one(parts, pitch),
        splits: 1,
        stored: dtype,
        divide,
        tree: false,
        output: Resource::Output(0),
    };
    let mut made = reduction.dispatch(capabilities)?;
    made.bindings[0].resource = from;
    Ok(made)
}

impl Reduce<'_> {
    /// The divisor of the sum, for a mean.
    pub(crate) fn mean_over(&self) -> Option<usize> {
        let reduced = self.kernel.reduced_axes();
        (self.op == ReduceOp::Mean).then(|| reduced.iter().map(|&a| self.kernel.space[a]).product())
    }
}

/// The program that returns its only input.
fn load(dtype: DType) -> Program {
    Program {
        instrs: vec![Instr::Load(0)],
        dtypes: vec![dtype],
        inputs: vec![dtype],
        scalars: vec![],
        outputs: vec![0],
    }
}

fn in_dispatches(
    Reduce { kernel, op, program }: Reduce<'_>,
    stored: DType,
    divide: Option<usize>,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let output = Resource::Output(0);
    let (kept, reduced) = (&kernel.outputs[0].axes, kernel.reduced_axes());
    let (kept, reduced) = (Axes::of(kernel, kept), Axes::of(kernel, &reduced));
    let (results, length) = (kept.numel(), reduced.numel());
    let dtype = program.output_dtype(0);
    if length >= u32::MAX as usize / 2 {
        return Err(Error::invalid(
            op.name(),
            format!(
                "a reduction over {length} elements exceeds the index range of wgpu devices; reduce one axis at a time"
            ),
        ));
    }

    // A tree pays if neighbours in memory are reduced together and there are enough of them.
    let dense = (0..kernel.operands.len()).all(|k| {
        reduced.strides[k].last().is_none_or(|s| s.unsigned_abs() <= 1)
            || kept.strides[k].last().is_some_and(|&s| s == 0)
    });
    let busy = capabilities.invocations;
    let tree = !capabilities.direct && length >= 128 && (dense || results < busy / 4);
    let (units, least) = if tree { (busy / 256, 4096) } else { (busy, 512) };
    let splits = if results >= units { 1 } else { (length / least).clamp(1, units.div_ceil(results.max(1))) };
    let rounds = loop_steps(capabilities.rounds) / (1 + formulas::rounds(program));
    let splits = splits.max(length.div_ceil(rounds.max(1)));

    let operands = &kernel.operands[..];
    let offsets = operands.iter().map(|o| o.layout.offset()).collect();
    let mut reduction =
        Reduction { op, program, operands, offsets, kept, reduced, splits, stored, divide, tree, output };
    if splits == 1 {
        return Ok(reduction.dispatch(capabilities)?.into());
    }
    reduction.stored = dtype.register();
    reduction.divide = None;
    reduction.output = Resource::Temporary(0);
    let first = reduction.dispatch(capabilities)?;
    let identity = load(reduction.stored);
    let second = Reduction {
        op,
        program: &identity,
        operands: &[],
        offsets: SmallVec::from_slice(&[0]),
        kept: Axes::one(results, splits),
        reduced: Axes::one(splits, 1),
        splits: 1,
        stored,
        divide,
        tree: tree && splits >= 64,
        output,
    };
    let mut second = second.dispatch(capabilities)?;
    second.bindings[0].resource = Resource::Temporary(0);
    Ok(Dispatches { list: vec![first, second], temporaries: vec![(reduction.stored, results * splits)] })
}

/// The most steps of a fold if an invocation may run `rounds` iterations: the outer loops of
/// [`Fold::accumulate`] need the rest.
pub(crate) fn loop_steps(rounds: usize) -> usize {
    rounds / 8 * 7
}

impl Reduction<'_> {
    /// The elements of input `k`.
    fn elements(&self, k: usize) -> Elements {
        // Partial sums are not operands of the kernel.
        let of = || Elements::of(self.program.inputs[k]);
        self.operands.get(k).map_or_else(of, Elements::of_operand)
    }

    /// The vectors that all operands allow along the same axis.
    fn vectors(&self) -> Vectors {
        if !self.program.inputs.iter().chain([&self.stored]).all(|&d| storage_size(d) <= 4) {
            return Vectors::None;
        }
        let fours = |s: &[isize]| s.iter().all(|s| s.unsigned_abs().is_multiple_of(4));
        let as_it_lies = |k: &usize| !self.program.is_indexed(*k as u16);
        let dense = |axes: &Axes, others: &Axes| {
            let fits = |k: usize| match axes.strides[k].split_last() {
                Some((0, _)) => true,
                Some((1, rest)) => {
                    self.offsets[k].is_multiple_of(4) && fours(rest) && fours(&others.strides[k])
                }
                _ => false,
            };
            axes.sizes.last().is_some_and(|&n| n >= 4 && n % 4 == 0)
                && (0..self.offsets.len()).filter(as_it_lies).all(fits)
                && (0..self.offsets.len()).filter(as_it_lies).any(|k| axes.last(k) == 1)
        };
        if dense(&self.reduced, &self.kept) {
            Vectors::Reduced
        } else if !self.tree && self.splits == 1 && dense(&self.kept, &self.reduced) {
            Vectors::Kept
        } else {
            Vectors::None
        }
    }

    fn dispatch(&self, capabilities: &Capabilities) -> Result<Dispatch> {
        let program = self.program;
        let dtype = program.output_dtype(0);
        let vectors = self.vectors();
        let (results, length) = (self.kept.numel(), self.reduced.numel());
        // The results that an invocation computes, and the elements of one result that it reads at once.
        let (made, read) = match vectors {
            Vectors::None => (1, 1),
            Vectors::Kept => (4, 1),
            Vectors::Reduced => (1, 4),
        };
        let names: SmallVec<[String; 4]> =
            (0..made).map(|m| if made == 1 { String::new() } else { format!("_{m}") }).collect();
        let folds: SmallVec<[Fold; 4]> = names
            .iter()
            .map(|n| Fold::new(self.op, dtype, n.as_str(), capabilities))
            .collect::<Result<_>>()?;
        let chunk = length.div_ceil(self.splits).next_multiple_of(read);
        let total = results / made * self.splits;

        let mut d = Dispatch::new("reduce");
        let sizes = [("total", total), ("length", length), ("splits", self.splits), ("chunk", chunk)];
        sizes.into_iter().for_each(|(name, size)| d.params.size(name, size));
        by_index::load_functions(self.operands, program, &mut d);
        d.code.append(&formulas::function(program, true, &mut d.params, capabilities)?);
        let kept = Space::new("d", &self.kept.sizes, &mut d.params);
        let reduced = Space::new("e", &self.reduced.sizes, &mut d.params);
        let (mut bases, mut loads) = (Code::default(), Code::default());
        loads.append(&reduced.unravel("r"));
        // The arguments of the program, for each of up to four elements.
        let mut elements = vec![String::new(); made.max(read)];
        for (k, &offset) in self.offsets.iter().enumerate() {
            d.params.size(format!("o{k}"), offset);
            let base = kept.offset(&format!("t{k}"), &self.kept.strides[k], &mut d.params);
            bases.bind(format_args!("base{k}"), format_args!("params.o{k}{base}"));
            let sum = reduced.offset(&format!("t{k}"), &self.reduced.strides[k], &mut d.params);
            let apart = match vectors {
                Vectors::None => 0,
                Vectors::Kept => self.kept.last(k),
                Vectors::Reduced => self.reduced.last(k),
            };
            if program.is_indexed(k as u16) {
                d.bind(format!("in{k}"), self.elements(k), false, Resource::Input(k));
                d.params.stride(format!("apart{k}"), apart);
                loads.bind(format_args!("b{k}"), format_args!("base{k}{sum}"));
                for (e, list) in elements.iter_mut().enumerate() {
                    list.push_str(&match e {
                        0 => format!(", b{k}"),
                        _ => format!(", b{k} + {e}u * params.apart{k}"),
                    });
                }
                continue;
            }
            let vector = apart != 0;
            let load = if vector { "load4" } else { "load" };
            let input = self.elements(k).in_fours(vector);
            d.bind(format!("in{k}"), input, false, Resource::Input(k));
            loads.bind(format_args!("x{k}"), format_args!("{load}_in{k}(base{k}{sum})"));
            for (list, field) in elements.iter_mut().zip(FIELDS) {
                list.push_str(&if vector { format!(", x{k}.{field}") } else { format!(", x{k}") });
            }
        }
        d.bind("output", Elements::of(self.stored).in_fours(made > 1), true, self.output);
        let finished: Vec<String> =
            names.iter().map(|name| self.finished(name, dtype, &mut d.params)).collect();

        folds.iter().for_each(|fold| fold.function(&mut d.code));
        if self.tree {
            d.code.line(format_args!("var<workgroup> shared_parts: array<{}, 256>;", loaded(dtype)));
        }
        d.code.entry(if self.tree { 256 } else { 64 }, |c| {
            if self.tree {
                // Every invocation stays to the end because of the barriers; surplus workgroups repeat the
                // last one.
                c.bind("g", "min(workgroup_index, params.total - 1u)");
            } else {
                c.bind("g", "workgroup_index * 64u + local_index");
                c.return_if("g >= params.total");
            }
            c.bind("result", "g / params.splits");
            c.bind("begin", "(g - result * params.splits) * params.chunk");
            c.bind("end", "min(begin + params.chunk, params.length)");
            c.append(&kept.unravel(if made > 1 { "(result * 4u)" } else { "result" }));
            c.append(bases.text());
            let start = if self.tree { format!("begin + local_index * {read}u") } else { "begin".into() };
            let step = format!("{}u", if self.tree { 256 * read } else { read });
            let all: SmallVec<[&Fold; 4]> = folds.iter().collect();
            Fold::accumulate(&all, "r", [&start, "end", &step], c, |c| {
                c.append(loads.text());
                let values: Vec<String> = elements.iter().map(|list| format!("program(0u{list})")).collect();
                match vectors {
                    Vectors::Reduced => folds[0].add(&folds[0].all(&values), c),
                    Vectors::None | Vectors::Kept => {
                        folds.iter().zip(&values).for_each(|(fold, value)| fold.add(value, c))
                    }
                }
            });
            if self.tree {
                tree(dtype, c);
            }
            c.line(match made {
                1 => format!("store_output(g, {});", finished[0]),
                _ => {
                    let four = format!("vec4<{}>({})", loaded(self.stored), finished.join(", "));
                    format!("store4_output(g * 4u, {four});")
                }
            });
        });
        d.work = chunk.max(1) * program.instrs.len() * made * if self.tree { 1 } else { 64 };
        d.workgroups = if self.tree { total } else { total.div_ceil(64) };
        Ok(d)
    }

    /// The expression that is stored for `total<name>`.
    fn finished(&self, name: &str, dtype: DType, params: &mut Params) -> String {
        let mut total = format!("total{name}");
        if let Some(n) = self.divide {
            total = mean(&total, n, dtype, &format!("count{name}"), params);
        }
        formulas::store(self.stored, &total)
    }
}

/// Combines the totals of a workgroup, of this dtype; only its first invocation continues.
fn tree(dtype: DType, c: &mut Code) {
    c.set("shared_parts[local_index]", formulas::store(dtype, "total"));
    c.line("workgroupBarrier();");
    c.block("for (var half = 128u; half > 0u; half >>= 1u)", |c| {
        c.when("local_index < half", |c| {
            c.set("shared_parts[local_index]", combined(dtype, "combine", "shared_parts", "half"));
        });
        c.line("workgroupBarrier();");
    });
    c.set("total", formulas::load(dtype, "shared_parts[0]"));
    c.return_if("local_index != 0u || workgroup_index >= params.total");
}

/// The stored result of `combine` for an invocation's own element of an array in workgroup memory and the
/// one `apart` further on.
pub(crate) fn combined(dtype: DType, combine: &str, array: &str, apart: &str) -> String {
    let [own, other] = [array.to_string() + "[local_index]", format!("{array}[local_index + {apart}]")]
        .map(|element| formulas::load(dtype, &element));
    formulas::store(dtype, &format!("{combine}({own}, {other})"))
}

/// The loop of a reduction in WGSL, in which one invocation combines many values into `total<name>`. Sums
/// are added in blocks of 16 steps, those in blocks of 256, and those to a total, so that the error grows
/// with the number of blocks, not with that of elements.
pub(crate) struct Fold {
    name: String,
    dtype: DType,
    identity: String,
    combined: String,
    /// Whether additions round, so that their order matters.
    rounds: bool,
}

impl Fold {
    pub(crate) fn new(
        op: ReduceOp,
        dtype: DType,
        name: impl Into<String>,
        capabilities: &Capabilities,
    ) -> Result<Fold> {
        let lacking = || capabilities.unsupported(op.name(), dtype, "cast first with .to_dtype(DType::F32)");
        let (identity, combine) = formulas::reduction(op, dtype).ok_or_else(lacking)?;
        let combined = formulas::binary(combine, dtype, "a", "b").ok_or_else(lacking)?;
        let rounds = dtype.is_float() && !matches!(op, ReduceOp::Max | ReduceOp::Min);
        Ok(Fold { name: name.into(), dtype, identity, combined, rounds })
    }

    /// The function `combine<name>` of two values.
    pub(crate) fn function(&self, c: &mut Code) {
        let t = value(self.dtype);
        c.expression(&format!("combine{}", self.name), &[("a", t), ("b", t)], t, &self.combined);
    }

    /// The loop of some folds: for every `name` from start to end by step, `body` passes each fold a value
    /// with [`Fold::add`]. Folds that round use nested loops: over a block, over the blocks of a larger
    /// block, and over those.
    pub(crate) fn accumulate(
        folds: &[&Fold],
        name: &str,
        [start, end, step]: [&str; 3],
        c: &mut Code,
        body: impl FnOnce(&mut Code),
    ) {
        for Fold { name: n, identity, .. } in folds {
            c.var(format_args!("total{n}"), identity);
        }
        let rounding = || folds.iter().filter(|fold| fold.rounds);
        if rounding().next().is_none() {
            return c.count(name, [start, end, step], body);
        }
        let open = |what: &str, c: &mut Code| {
            rounding().for_each(|fold| c.var(format_args!("{what}{}", fold.name), &fold.identity));
        };
        let hand_on = |finer: &str, coarser: &str, c: &mut Code| {
            rounding().for_each(|fold| fold.combine(coarser, &format!("{finer}{}", fold.name), c));
        };
        let [outer, inner] = [16 * 16, 16].map(|n| format!("{step} * {n}u"));
        let [large, small] = ["large", "small"].map(|what| format!("{name}_{what}"));
        c.count(&large, [start, end, &outer], |c| {
            open("middle", c);
            c.bind(format_args!("{large}_end"), format_args!("min({end}, {large} + {outer})"));
            c.count(&small, [&large, &format!("{large}_end"), &inner], |c| {
                open("block", c);
                c.bind(format_args!("{small}_end"), format_args!("min({large}_end, {small} + {inner})"));
                c.count(name, [&small, &format!("{small}_end"), step], body);
                hand_on("block", "middle", c);
            });
            hand_on("middle", "total", c);
        });
    }

    /// `into = combine(into, x)`.
    fn combine(&self, into: &str, x: &str, c: &mut Code) {
        let n = &self.name;
        c.set(format_args!("{into}{n}"), format_args!("combine{n}({into}{n}, {x})"));
    }

    /// Adds `x` inside the loop.
    pub(crate) fn add(&self, x: &str, c: &mut Code) {
        self.combine(if self.rounds { "block" } else { "total" }, x, c);
    }

    /// The expression that combines several values pairwise.
    fn all(&self, values: &[String]) -> String {
        match values {
            [x] => x.clone(),
            _ => {
                let (left, right) = values.split_at(values.len() / 2);
                format!("combine{}({}, {})", self.name, self.all(left), self.all(right))
            }
        }
    }
}

/// The sum `total` of `n` values divided by `n`, which becomes the parameter `name`.
pub(crate) fn mean(total: &str, n: usize, dtype: DType, name: &str, params: &mut Params) -> String {
    if n == 0 {
        return format!("nan_{}()", value(dtype));
    }
    if value(dtype) == "f64" {
        let bits = (n as f64).to_bits();
        params.word(name, bits as u32);
        params.word(format!("{name}_h"), (bits >> 32) as u32);
        format!("({total} / f64_from_words(params.{name}, params.{name}_h))")
    } else {
        params.word(name, (n as f32).to_bits());
        format!("({total} / bitcast<f32>(params.{name}))")
    }
}
