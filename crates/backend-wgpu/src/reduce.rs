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
    dtypes::{FIELDS, lane, lane_size, of_pairs, value},
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

/// What a thread takes several of at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wide {
    /// Nothing: one element at a time.
    No,
    /// Neighbouring results, all of which it makes.
    Kept(Vectors),
    /// Neighbouring elements of one result.
    Gone(Vectors),
}

/// So many neighbouring elements, and how memory is read for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Vectors {
    elements: usize,
    /// Elements of one read: four, or four pairs, as 64-bit words.
    read: usize,
}

/// A program of so many instructions is light beside its reads; one of at most `SHORT` is written out eight times.
const LIGHT: usize = 4;
const SHORT: usize = 32;

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
    let rounds = facts.rounds / (1 + formulas::rounds(&kernel.program));
    let splits = splits.max(length.div_ceil(rounds.max(1)));

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
    /// Vectors, where all operands have them along the same axis: a processor reads memory lane by lane, and four elements
    /// of a lane cost it little more than one.
    fn wide(&self, facts: &Facts<'_>) -> Wide {
        let narrow = |dtype: &DType| lane_size(*dtype) == 4;
        if self.tree || !self.program.inputs.iter().chain([&self.stored]).all(narrow) {
            return Wide::No;
        }
        let aligned = |(shape, along): &(Sizes, Vec<Steps>), others: &[Steps], by: Vectors| {
            let dense = |k: usize| {
                let (own, other) = (&along[k], &others[k]);
                let Some((&last, rest)) = own.split_last() else { return false };
                let fits = self.offsets[k].is_multiple_of(by.read)
                    && rest.iter().chain(other).all(|s| s.unsigned_abs().is_multiple_of(by.read));
                last == 0 || (last == 1 && fits)
            };
            shape.last().is_some_and(|n| *n >= by.elements && n.is_multiple_of(by.elements))
                && (0..self.offsets.len()).all(dense)
                && along.iter().any(|s| s.last() == Some(&1))
        };
        let instrs = self.program.instrs.len();
        let pairs = facts.direct && instrs <= LIGHT && facts.info.dtypes.contains(&DType::I64);
        let twice = facts.direct && instrs <= SHORT;
        let choose = |pairs: Option<usize>, twice: Option<usize>, fits: &dyn Fn(Vectors) -> bool| {
            let pairs = pairs.map(|elements| Vectors { elements, read: 8 });
            let twice = twice.map(|elements| Vectors { elements, read: 4 });
            [pairs, twice, Some(Vectors { elements: 4, read: 4 })].into_iter().flatten().find(|&by| fits(by))
        };
        let gone = |by| aligned(&self.gone, &self.kept.1, by);
        if let Some(by) = choose(pairs.then_some(16), twice.then_some(8), &gone) {
            return Wide::Gone(by);
        }
        // Fewer threads must still be enough.
        let many = self.kept.0.iter().product::<usize>() / 8 >= facts.threads / 2;
        let kept = |by| self.splits == 1 && aligned(&self.kept, &self.gone.1, by);
        match choose((pairs && many).then_some(8), (twice && many).then_some(8), &kept) {
            Some(by) => Wide::Kept(by),
            None => Wide::No,
        }
    }

    fn draft(&self, facts: &Facts<'_>) -> Result<Draft> {
        let program = self.program;
        let dtype = program.output_dtype(0);
        let wide = self.wide(facts);
        let results: usize = self.kept.0.iter().product();
        let length: usize = self.gone.0.iter().product();
        // What a thread makes and reads at once.
        let (made, read) = match wide {
            Wide::No => (1, 1),
            Wide::Kept(by) => (by.elements, 1),
            Wide::Gone(by) => (1, by.elements),
        };
        let names: SmallVec<[String; 8]> =
            (0..made).map(|m| if made == 1 { String::new() } else { format!("_{m}") }).collect();
        let folds: SmallVec<[Fold; 8]> =
            names.iter().map(|n| Fold::new(self.op, dtype, n.as_str(), facts)).collect::<Result<_>>()?;
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
        let mut elements = vec![String::new(); made.max(read)];
        for (k, &offset) in self.offsets.iter().enumerate() {
            d.params.size(format!("o{k}"), offset);
            let base = kept.offset(&format!("t{k}"), &self.kept.1[k], &mut d.params);
            let _ = writeln!(bases, "    let base{k} = params.o{k}{base};");
            let sum = gone.offset(&format!("t{k}"), &self.gone.1[k], &mut d.params);
            let along = match wide {
                Wide::No => None,
                Wide::Kept(by) => self.kept.1[k].last().map(|&s| (s, by)),
                Wide::Gone(by) => self.gone.1[k].last().map(|&s| (s, by)),
            };
            let element = lane(program.inputs[k]);
            let Some((_, by)) = along.filter(|&(s, _)| s != 0) else {
                d.bind(format!("in{k}"), element, false, Slot::Input(k));
                let _ = writeln!(loads, "    let x{k} = in{k}[base{k}{sum}];");
                elements.iter_mut().for_each(|list| list.push_str(&format!(", x{k}")));
                continue;
            };
            let pairs = by.read == 8;
            let vector = if pairs { "vec4<u64>".to_string() } else { format!("vec4<{element}>") };
            d.bind(format!("in{k}"), vector, false, Slot::Input(k));
            let _ = writeln!(loads, "    let at{k} = (base{k}{sum}) / {}u;", by.read);
            for piece in 0..by.elements / by.read {
                let _ = writeln!(loads, "    let x{k}_{piece} = in{k}[at{k} + {piece}u];");
            }
            for (e, list) in elements.iter_mut().enumerate() {
                let (piece, e) = (e / by.read, e % by.read);
                let _ = if pairs {
                    write!(list, ", {}", of_pairs(&format!("x{k}_{piece}"), e, element))
                } else {
                    write!(list, ", x{k}_{piece}.{}", FIELDS[e])
                };
            }
        }
        let element = lane(self.stored);
        let out = if made > 1 { format!("vec4<{element}>") } else { element.into() };
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
        body.push_str(&kept.unravel(&if made > 1 { format!("(result * {made}u)") } else { "result".into() }));
        body.push_str(&bases);
        folds.iter().for_each(|fold| body.push_str(&fold.start()));
        if self.tree {
            let _ = write!(
                body,
                "    for (var r = begin + lane; r < end; r += 256u) {{\n{}{loads}",
                gone.unravel("r")
            );
            body.push_str(&folds[0].add(&format!("program(0u{})", elements[0])));
            body.push_str("    }\n");
        } else {
            let mut adds = gone.unravel("r") + &loads;
            if read > 1 {
                let all: Vec<String> = elements.iter().map(|list| format!("program(0u{list})")).collect();
                let _ = writeln!(adds, "    let some = {};", folds[0].all(&all));
                adds.push_str(&folds[0].gather("some"));
            } else {
                for (fold, list) in folds.iter().zip(&elements) {
                    adds.push_str(&fold.gather(&format!("program(0u{list})")));
                }
            }
            body.push_str(&blocks(&folds, read, &adds));
        }
        folds.iter().for_each(|fold| body.push_str(&fold.end()));
        if self.tree {
            body.push_str(
                "    shared_parts[lane] = total;\n    workgroupBarrier();\n    for (var half = 128u; half > 0u; half >>= 1u) {\n        if (lane < half) {\n            shared_parts[lane] = combine(shared_parts[lane], shared_parts[lane + half]);\n        }\n        workgroupBarrier();\n    }\n    total = shared_parts[0];\n    if (lane != 0u || group >= params.total) {\n        return;\n    }\n",
            );
        }
        if made > 1 {
            for (piece, four) in finish.chunks(4).enumerate() {
                let at = if made == 4 { "g".into() } else { format!("g * {}u + {piece}u", made / 4) };
                let _ = writeln!(body, "    output[{at}] = vec4<{element}>({});", four.join(", "));
            }
        } else {
            let _ = writeln!(body, "    output[g] = {};", finish[0]);
        }
        body.push_str("}\n");
        d.body = body;
        d.work = chunk.max(1) * program.instrs.len() * made * if self.tree { 1 } else { 64 };
        d.groups = if self.tree { threads } else { threads.div_ceil(64) };
        Ok(d)
    }

    /// The expressions of what is stored, from `total` with each of these names after it.
    fn finish(&self, dtype: DType, names: &[String], d: &mut Draft) -> Vec<String> {
        let stored = |name: &String| {
            let mut total = format!("total{name}");
            if let Some(n) = self.divide {
                total = mean(&total, n, dtype, &format!("count{name}"), &mut d.params);
            }
            formulas::store(self.stored, &total)
        };
        names.iter().map(stored).collect()
    }
}

/// The loop of a thread from `begin` to `end` in which `adds` gathers `read` values at `r` into the `block` of each fold: to
/// sums of 16, those to sums of 256, and those to a total, so that the error grows with the number of blocks, not of elements.
/// Loops in loops: a processor computes both sides of a branch.
fn blocks(folds: &[Fold], read: usize, adds: &str) -> String {
    if !folds.iter().any(|fold| fold.rounds) {
        return format!("    for (var r = begin; r < end; r += {read}u) {{\n{adds}    }}\n");
    }
    let close = |finer: &str, coarser: &str| -> String {
        let line = |fold: &Fold| {
            let Fold { name: n, identity, .. } = fold;
            format!(
                "    {coarser}{n} = combine{n}({coarser}{n}, {finer}{n});\n    {finer}{n} = {identity};\n"
            )
        };
        folds.iter().map(line).collect()
    };
    let (to_middle, to_total) = (close("block", "middle"), close("middle", "total"));
    let inner = if read >= 16 {
        format!("    {{\n{adds}    }}\n    r += {read}u;\n")
    } else {
        format!("    let stop = min(r + 16u, end);\n    for (; r < stop; r += {read}u) {{\n{adds}    }}\n")
    };
    format!(
        "    var blocks = 0u;\n    for (var r = begin; r < end;) {{\n{inner}{to_middle}    blocks += 1u;\n    if ((blocks & 15u) == 0u) {{\n{to_total}    }}\n    }}\n"
    )
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

    /// What adds the values of a loop that takes so many at a time, four or eight, from a multiple of as many on.
    pub(crate) fn add_all(&self, values: &[String]) -> String {
        self.add_some(&self.all(values), values.len())
    }

    /// What adds `x` to the block, or to the total where the order does not matter.
    fn gather(&self, x: &str) -> String {
        let sum = if self.rounds { "block" } else { "total" };
        let n = &self.name;
        format!("    {sum}{n} = combine{n}({sum}{n}, {x});\n")
    }

    /// The expression that brings several values together, two by two.
    fn all(&self, values: &[String]) -> String {
        match values {
            [x] => x.clone(),
            _ => {
                let (left, right) = values.split_at(values.len() / 2);
                format!("combine{}({}, {})", self.name, self.all(left), self.all(right))
            }
        }
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
