//! Reductions with their prologue inlined. Two forms: a thread for each result (or part of one), and a workgroup with
//! a tree in shared memory. When results are few and long, parts go to a temporary that a second step reduces.
//! The order of additions depends on shapes alone, so results repeat bit by bit.

use std::fmt::Write;

use smallvec::SmallVec;
use tensor_core::{
    DType, Error, Layout, ReduceOp, Result, collapse,
    kernel::{Instr, Program, ReduceKernel},
};

use crate::{
    draft::{Draft, Drafts, Facts, Params, Slot},
    dtypes::{lane, lane_size, value},
    formulas,
    index::Space,
};

/// Sizes of merged axes.
type Sizes = SmallVec<[usize; 8]>;
/// Strides of an input over them.
type Steps = SmallVec<[isize; 8]>;

/// One pass: the merged axes that stay and those that go, over all inputs.
struct Pass<'a> {
    op: ReduceOp,
    program: &'a Program,
    offsets: SmallVec<[usize; 8]>,
    kept: (Sizes, Vec<Steps>),
    gone: (Sizes, Vec<Steps>),
    /// Parts that each result is split into.
    splits: usize,
    /// The dtype stored: the result's, or the temporary's.
    stored: DType,
    /// Divide by this number (for a mean, in the last pass).
    divide: Option<usize>,
    tree: bool,
    output: Slot,
}

/// What a thread reads four of at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wide {
    /// Nothing: one element at a time.
    No,
    /// Neighbouring results, all of which it makes.
    Kept,
    /// Neighbouring elements of one result.
    Gone,
}

/// The draft of a reduction.
pub(crate) fn draft(kernel: &ReduceKernel, facts: &Facts<'_>) -> Result<Drafts> {
    steps(kernel, kernel.program.output_dtype(0), mean_over(kernel), Slot::Output(0), facts)
}

/// The draft of a part of a reduction, not rounded and not divided, into `output`; [`join`] brings the parts together.
pub(crate) fn part(kernel: &ReduceKernel, output: Slot, facts: &Facts<'_>) -> Result<Drafts> {
    steps(kernel, kernel.program.output_dtype(0).compute(), None, output, facts)
}

/// The draft of the step that makes the result of the whole `kernel` from `parts`, which lie in `from`, `pitch` elements
/// from one to the next.
pub(crate) fn join(
    kernel: &ReduceKernel,
    parts: usize,
    pitch: usize,
    from: Slot,
    facts: &Facts<'_>,
) -> Result<Draft> {
    let dtype = kernel.program.output_dtype(0);
    let results = kernel.shape.reduced(&kernel.axes, false).numel();
    let identity = load(dtype.compute());
    let pass = Pass {
        op: kernel.op,
        program: &identity,
        offsets: SmallVec::from_slice(&[0]),
        kept: (SmallVec::from_slice(&[results]), vec![SmallVec::from_slice(&[1])]),
        gone: (SmallVec::from_slice(&[parts]), vec![SmallVec::from_slice(&[pitch as isize])]),
        splits: 1,
        stored: dtype,
        divide: mean_over(kernel),
        tree: false,
        output: Slot::Output(0),
    };
    let mut draft = pass.draft(facts)?;
    draft.bindings[0].slot = from;
    Ok(draft)
}

/// By how many the sum is divided, for a mean.
fn mean_over(kernel: &ReduceKernel) -> Option<usize> {
    (kernel.op == ReduceOp::Mean).then(|| kernel.axes.iter().map(|&a| kernel.shape[a]).product())
}

/// The program that is its one input.
pub(crate) fn load(dtype: DType) -> Program {
    Program {
        instrs: vec![Instr::Load(0)],
        dtypes: vec![dtype],
        inputs: vec![dtype],
        scalars: vec![],
        outputs: vec![0],
    }
}

fn steps(
    kernel: &ReduceKernel,
    stored: DType,
    divide: Option<usize>,
    output: Slot,
    facts: &Facts<'_>,
) -> Result<Drafts> {
    let pick = |keep: bool| {
        let axes: SmallVec<[usize; 8]> =
            (0..kernel.shape.rank()).filter(|a| kernel.axes.contains(a) != keep).collect();
        let shape: SmallVec<[usize; 8]> = axes.iter().map(|&a| kernel.shape[a]).collect();
        let strides: Vec<SmallVec<[isize; 8]>> =
            kernel.inputs.iter().map(|l| axes.iter().map(|&a| l.strides()[a]).collect()).collect();
        let borrowed: Vec<&[isize]> = strides.iter().map(|s| &s[..]).collect();
        let merged = collapse(&shape, &borrowed);
        let strides: Vec<SmallVec<[isize; 8]>> =
            merged.strides.iter().map(|s| s.iter().copied().collect()).collect();
        (merged.shape.iter().copied().collect::<SmallVec<[usize; 8]>>(), strides)
    };
    let (kept, gone) = (pick(true), pick(false));
    let results: usize = kept.0.iter().product();
    let length: usize = gone.0.iter().product();
    let dtype = kernel.program.output_dtype(0);
    if length >= u32::MAX as usize / 2 {
        return Err(Error::invalid(
            kernel.op.name(),
            format!(
                "a reduction over {length} elements is more than a wgpu device counts; reduce one axis at a time"
            ),
        ));
    }

    // A tree pays where neighbours in memory are reduced together and there is enough to share.
    let dense = gone.1.iter().zip(&kept.1).all(|(gone, kept)| {
        gone.last().is_none_or(|s| s.unsigned_abs() <= 1) || kept.last().is_some_and(|&s| s == 0)
    });
    let tree = !facts.direct && length >= 128 && (dense || results < facts.threads / 4);
    let units = if tree { facts.threads / 256 } else { facts.threads };
    let least = if tree { 4096 } else { 512 };
    let splits = if results >= units { 1 } else { (length / least).clamp(1, units.div_ceil(results.max(1))) };

    let offsets = kernel.inputs.iter().map(Layout::offset).collect();
    let mut pass = Pass {
        op: kernel.op,
        program: &kernel.program,
        offsets,
        kept,
        gone,
        splits,
        stored,
        divide,
        tree,
        output,
    };
    if splits == 1 {
        return Ok(pass.draft(facts)?.into());
    }
    pass.stored = dtype.compute();
    pass.divide = None;
    pass.output = Slot::Temp(0);
    let first = pass.draft(facts)?;
    let identity = load(pass.stored);
    let second = Pass {
        op: kernel.op,
        program: &identity,
        offsets: SmallVec::from_slice(&[0]),
        kept: (SmallVec::from_slice(&[results]), vec![SmallVec::from_slice(&[splits as isize])]),
        gone: (SmallVec::from_slice(&[splits]), vec![SmallVec::from_slice(&[1])]),
        splits: 1,
        stored,
        divide,
        tree: tree && splits >= 64,
        output,
    };
    let mut second = second.draft(facts)?;
    second.bindings[0].slot = Slot::Temp(0);
    Ok(Drafts { steps: vec![first, second], temps: vec![(pass.stored, results * splits)] })
}

impl Pass<'_> {
    /// Vectors of four, where all operands have them along the same axis: a processor reads memory lane by lane, and four
    /// elements of a lane cost it little more than one.
    fn wide(&self) -> Wide {
        let narrow = |dtype: &DType| lane_size(*dtype) == 4;
        if self.tree || !self.program.inputs.iter().chain([&self.stored]).all(narrow) {
            return Wide::No;
        }
        let aligned = |(shape, along): &(Sizes, Vec<Steps>), others: &[Steps]| {
            let dense = |k: usize| {
                let (own, other) = (&along[k], &others[k]);
                let Some((&last, rest)) = own.split_last() else { return false };
                let fits = self.offsets[k].is_multiple_of(4) && rest.iter().chain(other).all(|s| s % 4 == 0);
                last == 0 || (last == 1 && fits)
            };
            shape.last().is_some_and(|n| *n >= 4 && n.is_multiple_of(4))
                && (0..self.offsets.len()).all(dense)
                && along.iter().any(|s| s.last() == Some(&1))
        };
        if aligned(&self.gone, &self.kept.1) {
            Wide::Gone
        } else if aligned(&self.kept, &self.gone.1) && self.splits == 1 {
            Wide::Kept
        } else {
            Wide::No
        }
    }

    fn draft(&self, facts: &Facts<'_>) -> Result<Draft> {
        let program = self.program;
        let dtype = program.output_dtype(0);
        let wide = self.wide();
        let results: usize = self.kept.0.iter().product();
        let length: usize = self.gone.0.iter().product();
        // What a thread makes and reads at once.
        let (made, read) = match wide {
            Wide::No => (1, 1),
            Wide::Kept => (4, 1),
            Wide::Gone => (1, 4),
        };
        let names: SmallVec<[&str; 4]> = ["", "_y", "_z", "_w"].into_iter().take(made).collect();
        let folds: SmallVec<[Fold; 4]> =
            names.iter().map(|&n| Fold::new(self.op, dtype, n, facts)).collect::<Result<_>>()?;
        let chunk = length.div_ceil(self.splits).next_multiple_of(read);
        let threads = results / made * self.splits;

        let mut d = Draft::new("reduce");
        d.params.size("total", threads);
        d.params.size("length", length);
        d.params.size("splits", self.splits);
        d.params.size("chunk", chunk);
        let function = formulas::function(program, true, &mut d.params, facts)?;
        let kept = Space::new("d", &self.kept.0, &mut d.params);
        let gone = Space::new("e", &self.gone.0, &mut d.params);
        let (mut bases, mut loads) = (String::new(), String::new());
        let mut elements: [String; 4] = Default::default();
        for (k, &offset) in self.offsets.iter().enumerate() {
            d.params.size(format!("o{k}"), offset);
            let base = kept.offset(&format!("t{k}"), &self.kept.1[k], &mut d.params);
            let _ = writeln!(bases, "    let base{k} = params.o{k}{base};");
            let sum = gone.offset(&format!("t{k}"), &self.gone.1[k], &mut d.params);
            let along = match wide {
                Wide::No => None,
                Wide::Kept => self.kept.1[k].last(),
                Wide::Gone => self.gone.1[k].last(),
            };
            let vector = along.is_some_and(|&s| s != 0);
            let element = lane(program.inputs[k]);
            let element = if vector { format!("vec4<{element}>") } else { element.into() };
            d.bind(format!("in{k}"), element, false, Slot::Input(k));
            let at = if vector { format!("(base{k}{sum}) >> 2u") } else { format!("base{k}{sum}") };
            let _ = writeln!(loads, "    let x{k} = in{k}[{at}];");
            for (list, field) in elements.iter_mut().zip(["x", "y", "z", "w"]) {
                let _ = if vector { write!(list, ", x{k}.{field}") } else { write!(list, ", x{k}") };
            }
        }
        let out = if wide == Wide::Kept {
            format!("vec4<{}>", lane(self.stored))
        } else {
            lane(self.stored).into()
        };
        d.bind("output", out, true, self.output);
        let finish = self.finish(dtype, &names, &mut d);

        let t = value(dtype);
        let mut body = function;
        folds.iter().for_each(|fold| body.push_str(&fold.function()));
        if self.tree {
            let _ = writeln!(body, "var<workgroup> shared_parts: array<{t}, 256>;");
        }
        let width = if self.tree { 256 } else { 64 };
        let _ = write!(body, "\n@compute @workgroup_size({width})\n{}", taper_shaders::ENTRY);
        if self.tree {
            // Every thread stays to the end, for the barriers; surplus groups repeat the last.
            body.push_str("    let g = min(group, params.total - 1u);\n");
        } else {
            body.push_str(
                "    let g = group * 64u + lane;\n    if (g >= params.total) {\n        return;\n    }\n",
            );
        }
        body.push_str("    let result = g / params.splits;\n");
        body.push_str("    let begin = (g - result * params.splits) * params.chunk;\n");
        body.push_str("    let end = min(begin + params.chunk, params.length);\n");
        body.push_str(&kept.unravel(if made == 4 { "(result * 4u)" } else { "result" }));
        body.push_str(&bases);
        folds.iter().for_each(|fold| body.push_str(&fold.start()));
        let (first, step) =
            if self.tree { ("begin + lane", "256u") } else { ("begin", ["1u", "4u"][read / 4]) };
        let _ =
            write!(body, "    for (var r = {first}; r < end; r += {step}) {{\n{}{loads}", gone.unravel("r"));
        if wide == Wide::Gone {
            let four = elements.each_ref().map(|list| format!("program(0u{list})"));
            body.push_str(&folds[0].add_four(&four));
        } else {
            for (fold, list) in folds.iter().zip(&elements) {
                body.push_str(&fold.add(&format!("program(0u{list})")));
            }
        }
        body.push_str("    }\n");
        folds.iter().for_each(|fold| body.push_str(&fold.end()));
        if self.tree {
            body.push_str(
                "    shared_parts[lane] = total;\n    workgroupBarrier();\n    for (var half = 128u; half > 0u; half >>= 1u) {\n        if (lane < half) {\n            shared_parts[lane] = combine(shared_parts[lane], shared_parts[lane + half]);\n        }\n        workgroupBarrier();\n    }\n    total = shared_parts[0];\n    if (lane != 0u || group >= params.total) {\n        return;\n    }\n",
            );
        }
        let _ = writeln!(body, "    output[g] = {finish};\n}}");
        d.body = body;
        d.work = chunk.max(1) * program.instrs.len() * made * if self.tree { 1 } else { 64 };
        d.groups = if self.tree { threads } else { threads.div_ceil(64) };
        Ok(d)
    }

    /// The expression of what is stored, from `total` with each of these names after it.
    fn finish(&self, dtype: DType, names: &[&str], d: &mut Draft) -> String {
        let mut stored: Vec<String> = Vec::new();
        for name in names {
            let mut total = format!("total{name}");
            if let Some(n) = self.divide {
                total = mean(&total, n, dtype, &format!("count{name}"), &mut d.params);
            }
            stored.push(formulas::store(self.stored, &total));
        }
        if stored.len() == 1 {
            return stored.remove(0);
        }
        format!("vec4<{}>({})", lane(self.stored), stored.join(", "))
    }
}

/// The loop of a reduction in WGSL: how one thread brings many values together as `total<name>`.
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
        facts: &Facts<'_>,
    ) -> Result<Fold> {
        let lacking = || facts.unsupported(op.name(), dtype, "cast first with .to_dtype(DType::F32)");
        let (identity, combine) = formulas::reduction(op, dtype).ok_or_else(lacking)?;
        let combined = formulas::binary(combine, dtype, "a", "b").ok_or_else(lacking)?;
        let rounds = dtype.is_float() && !matches!(op, ReduceOp::Max | ReduceOp::Min);
        Ok(Fold { name: name.into(), dtype, identity, combined, rounds })
    }

    /// The function `combine<name>` of two values.
    pub(crate) fn function(&self) -> String {
        let (t, n, combined) = (value(self.dtype), &self.name, &self.combined);
        format!("fn combine{n}(a: {t}, b: {t}) -> {t} {{\n    return {combined};\n}}\n")
    }

    /// What goes before the loop.
    pub(crate) fn start(&self) -> String {
        let Fold { name: n, identity, .. } = self;
        let sums: &[&str] = if self.rounds { &["total", "middle", "block"] } else { &["total"] };
        let mut out: String = sums.iter().map(|sum| format!("    var {sum}{n} = {identity};\n")).collect();
        if self.rounds {
            let _ = writeln!(out, "    var count{n} = 0u;");
        }
        out
    }

    /// What adds `x` in the loop: to sums of 16, those to sums of 16, and those to a total, so that the error grows with
    /// the number of blocks, not of elements.
    pub(crate) fn add(&self, x: &str) -> String {
        self.add_some(x, 1)
    }

    fn add_some(&self, x: &str, count: usize) -> String {
        let Fold { name: n, identity, .. } = self;
        if !self.rounds {
            return format!("    total{n} = combine{n}(total{n}, {x});\n");
        }
        format!(
            "    block{n} = combine{n}(block{n}, {x});\n    count{n} += {count}u;\n    if ((count{n} & 15u) == 0u) {{\n        middle{n} = combine{n}(middle{n}, block{n});\n        block{n} = {identity};\n        if ((count{n} & 255u) == 0u) {{\n            total{n} = combine{n}(total{n}, middle{n});\n            middle{n} = {identity};\n        }}\n    }}\n"
        )
    }

    /// What adds four values of a loop that takes four at a time, from a multiple of four on.
    pub(crate) fn add_four(&self, [a, b, c, d]: &[String; 4]) -> String {
        let n = &self.name;
        let x = format!("combine{n}(combine{n}({a}, {b}), combine{n}({c}, {d}))");
        self.add_some(&x, 4)
    }

    /// What goes after the loop.
    pub(crate) fn end(&self) -> String {
        let n = &self.name;
        if self.rounds {
            format!("    total{n} = combine{n}(total{n}, combine{n}(middle{n}, block{n}));\n")
        } else {
            String::new()
        }
    }
}

/// The sum `total` of `n` values divided by their number, which becomes the parameter `name`.
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
