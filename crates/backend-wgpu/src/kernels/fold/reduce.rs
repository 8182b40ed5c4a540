//! Reductions with an inlined prologue. There are two forms: one invocation for each result (or part of a
//! result), and workgroups that divide their invocations between results (see `group.rs`) and combine them
//! with a tree in workgroup memory. For few long results, parts go to a temporary that a second dispatch
//! reduces. The order of additions depends only on shapes, so results are reproducible bit by bit.

use smallvec::SmallVec;
use tensor_core::{
    DType, Error, ReduceOp, Result, collapse,
    kernel::{Instr, Kernel, Operand, Program},
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Params, Resource},
        dtypes::{FIELDS, loaded, storage_size},
        formulas,
        index::Space,
        storage::Elements,
        wgsl::Code,
    },
    kernels::{
        by_index,
        cut::{Cut, Inner, Parts, Place},
        fold::{
            accumulate::{Fold, combined, loop_steps, mean},
            group::{Division, GROUP_INVOCATIONS, Group},
        },
    },
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
    vectors: Vectors,
    /// The division of a workgroup, or None if each result (or part of it) has one invocation.
    group: Option<Group>,
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

impl Vectors {
    /// The results that an invocation computes, and the elements of one result that it reads at once.
    fn made_and_read(self) -> [usize; 2] {
        match self {
            Vectors::None => [1, 1],
            Vectors::Kept => [4, 1],
            Vectors::Reduced => [1, 4],
        }
    }
}

/// The most instructions of a step, over its elements, for four steps a round.
const MAX_UNROLLED: usize = 64;

/// The body of a reduction.
#[derive(Clone, Copy)]
pub(crate) struct Reduce<'a> {
    pub(crate) op: ReduceOp,
    pub(crate) program: &'a Program,
}

impl Cut for Reduce<'_> {
    fn piece(&self, kernel: &Kernel, place: Place<'_>) -> Result<Dispatches> {
        dispatches(kernel, *self, place.capabilities)
    }

    fn inner(&self, kernel: &Kernel) -> Inner {
        Inner::reduced(kernel)
    }

    /// The results of a part are neither rounded nor divided.
    fn part(&self, part: &Kernel, parts: &mut Parts<'_>) -> Result<Dispatches> {
        let stored = self.program.output_dtype(0).register();
        let made = in_dispatches(part, *self, stored, None, parts.place.capabilities)?;
        Ok(parts.stored(made, stored))
    }

    fn join(&self, kernel: &Kernel, parts: &Parts<'_>) -> Result<Dispatches> {
        let output = &kernel.outputs[0];
        let dtypes = [output.dtype.register(), output.dtype];
        join_parts(self.op, dtypes, output.shape.numel(), parts, self.mean_over(kernel))
    }
}

/// The dispatches of a reduction.
pub(crate) fn dispatches(
    kernel: &Kernel,
    reduce: Reduce<'_>,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    in_dispatches(kernel, reduce, kernel.outputs[0].dtype, reduce.mean_over(kernel), capabilities)
}

/// The dispatches that compute `results` results from those of all parts, which have the dtype `stored`;
/// divided by `divide`, for a mean.
pub(crate) fn join_parts(
    op: ReduceOp,
    [stored, dtype]: [DType; 2],
    results: usize,
    parts: &Parts<'_>,
    divide: Option<usize>,
) -> Result<Dispatches> {
    let &Parts { results: count, pitch, place, .. } = parts;
    let join = join(op, dtype, [results, count, pitch], divide, Parts::RESULTS, place.capabilities)?;
    Ok(Dispatches { list: vec![join], temporaries: vec![(stored, count * pitch)] })
}

/// The dispatch that computes `results` results of the dtype from `parts` parts of each, which are stored
/// in `from`, `pitch` elements apart; divided by `divide`, for a mean.
fn join(
    op: ReduceOp,
    dtype: DType,
    [results, parts, pitch]: [usize; 3],
    divide: Option<usize>,
    from: Resource,
    capabilities: &Capabilities,
) -> Result<Dispatch> {
    let identity = load(dtype.register());
    let axes = [Axes::one(results, 1), Axes::one(parts, pitch)];
    // The parts are not operands of the kernel.
    let offsets = SmallVec::from_slice(&[0]);
    let reduction = Reduction { offsets, divide, ..Reduction::new(op, &identity, &[], axes, dtype) };
    let mut made = Reduction { splits: 1, ..reduction.planned(capabilities) }.dispatch(capabilities)?;
    made.bindings[0].resource = from;
    Ok(made)
}

impl Reduce<'_> {
    /// The divisor of the sum, for a mean.
    fn mean_over(&self, kernel: &Kernel) -> Option<usize> {
        let reduced = kernel.reduced_axes();
        (self.op == ReduceOp::Mean).then(|| reduced.iter().map(|&a| kernel.space[a]).product())
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
    kernel: &Kernel,
    Reduce { op, program }: Reduce<'_>,
    stored: DType,
    divide: Option<usize>,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let (kept, reduced) = (&kernel.outputs[0].axes, kernel.reduced_axes());
    let axes = [Axes::of(kernel, kept), Axes::of(kernel, &reduced)];
    let (results, length) = (axes[0].numel(), axes[1].numel());
    let dtype = program.output_dtype(0);
    if length >= u32::MAX as usize / 2 {
        return Err(Error::invalid(
            op.name(),
            format!(
                "a reduction over {length} elements exceeds the index range of wgpu devices; reduce one axis at a time"
            ),
        ));
    }
    let reduction = Reduction::new(op, program, &kernel.operands, axes, stored).planned(capabilities);
    let splits = reduction.splits;
    if splits == 1 {
        return Ok(Reduction { divide, ..reduction }.dispatch(capabilities)?.into());
    }
    let part = dtype.register();
    let first =
        Reduction { stored: part, output: Resource::Temporary(0), ..reduction }.dispatch(capabilities)?;
    let second = join(op, stored, [results, splits, results], divide, Resource::Temporary(0), capabilities)?;
    Ok(Dispatches { list: vec![first, second], temporaries: vec![(part, results * splits)] })
}

impl<'a> Reduction<'a> {
    /// A reduction of the kept and the reduced axes, before [`Reduction::planned`].
    fn new(
        op: ReduceOp,
        program: &'a Program,
        operands: &'a [Operand],
        [kept, reduced]: [Axes; 2],
        stored: DType,
    ) -> Reduction<'a> {
        let offsets = operands.iter().map(|o| o.layout.offset()).collect();
        let (splits, divide, vectors, group) = (1, None, Vectors::None, None);
        let output = Resource::Output(0);
        Reduction {
            op,
            program,
            operands,
            offsets,
            kept,
            reduced,
            splits,
            stored,
            divide,
            vectors,
            group,
            output,
        }
    }

    /// Chooses the vectors, the division of a workgroup, and the parts of each result.
    fn planned(mut self, capabilities: &Capabilities) -> Reduction<'a> {
        let busy = capabilities.invocations;
        let (results, length) = (self.kept.numel(), self.reduced.numel());
        let alone = if results >= busy { 1 } else { (length / 512).clamp(1, busy.div_ceil(results.max(1))) };
        // On a software adapter, a part that makes four results would leave cores without work.
        self.vectors = self.vectors(!capabilities.direct || alone == 1);
        let [made, read] = self.vectors.made_and_read();
        let (units, steps) = (results / made, length / read);
        // Whether neighbours in memory are reduced together.
        let along = (0..self.offsets.len()).all(|k| {
            self.reduced.strides[k].last().is_none_or(|s| s.unsigned_abs() <= 1)
                || self.kept.strides[k].last().is_some_and(|&s| s == 0)
        });
        let row = self.kept.sizes.last().map_or(1, |n| n / made);
        self.group = match along {
            _ if capabilities.direct || results == 0 => None,
            true => Group::along(units, steps, read, busy),
            false => Group::across(units, row, steps, made, busy),
        };
        let splits = self.group.map_or(alone, |group| group.splits(units, steps, busy));
        let rounds = loop_steps(capabilities.rounds) / (1 + formulas::rounds(self.program));
        self.splits = splits.max(length.div_ceil(rounds.max(1)));
        self
    }
}

impl Reduction<'_> {
    /// The elements of input `k`.
    fn elements(&self, k: usize) -> Elements {
        // Partial sums are not operands of the kernel.
        let of = || Elements::of(self.program.inputs[k]);
        self.operands.get(k).map_or_else(of, Elements::of_operand)
    }

    /// The vectors that all operands allow along the same axis; those of results only if `kept`.
    fn vectors(&self, kept: bool) -> Vectors {
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
        } else if kept && dense(&self.kept, &self.reduced) {
            Vectors::Kept
        } else {
            Vectors::None
        }
    }

    fn dispatch(&self, capabilities: &Capabilities) -> Result<Dispatch> {
        let program = self.program;
        let dtype = program.output_dtype(0);
        let vectors = self.vectors;
        let (results, length) = (self.kept.numel(), self.reduced.numel());
        let [made, read] = vectors.made_and_read();
        let units = results / made;
        let names: SmallVec<[String; 4]> =
            (0..made).map(|m| if made == 1 { String::new() } else { format!("_{m}") }).collect();
        let folds: SmallVec<[Fold; 4]> = names
            .iter()
            .map(|n| Fold::new(self.op, dtype, n.as_str(), capabilities))
            .collect::<Result<_>>()?;
        let chunk = length.div_ceil(self.splits).next_multiple_of(read);

        let mut d = Dispatch::new("reduce");
        let division = Division(self.group);
        division.params(units, self.splits, &mut d.params);
        d.params.size("length", length);
        d.params.size("chunk", chunk);
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
        let slots: SmallVec<[(String, &Fold); 4]> =
            names.iter().map(|name| format!("shared_parts{name}")).zip(&folds).collect();
        if self.group.is_some() {
            for (array, _) in &slots {
                let element = loaded(dtype);
                d.code.line(format_args!("var<workgroup> {array}: array<{element}, {GROUP_INVOCATIONS}>;"));
            }
        }
        d.code.entry(division.invocations(), |c| {
            division.begin(c);
            c.bind("begin", "part * params.chunk");
            c.bind("end", "min(begin + params.chunk, params.length)");
            c.append(&kept.unravel(if made > 1 { "(result * 4u)" } else { "result" }));
            c.append(bases.text());
            let [start, step] = match self.group {
                Some(_) => [format!("begin + lane * {read}u"), format!("params.lanes * {read}u")],
                None => ["begin".into(), format!("{read}u")],
            };
            let all: SmallVec<[&Fold; 4]> = folds.iter().collect();
            let values = |c: &mut Code| {
                c.append(loads.text());
                let values = elements.iter().map(|list| format!("program(0u{list})"));
                match vectors {
                    Vectors::Reduced => {
                        SmallVec::from_iter([folds[0].all(&values.collect::<SmallVec<[String; 4]>>())])
                    }
                    Vectors::None | Vectors::Kept => values.collect::<SmallVec<[String; 4]>>(),
                }
            };
            let bounds = [&start[..], "end", &step];
            let calls = program.instrs.len() * made.max(read);
            if self.group.is_some() && calls <= MAX_UNROLLED {
                Fold::accumulate_in_fours(&all, "r", bounds, c, values);
            } else {
                Fold::accumulate(&all, "r", bounds, c, |c| {
                    let values = values(c);
                    folds.iter().zip(&values).for_each(|(fold, value)| fold.add(value, c));
                });
            }
            let mut at = "g";
            if self.group.is_some() {
                for (array, Fold { name, .. }) in &slots {
                    c.set(format_args!("{array}[slot]"), formulas::store(dtype, &format!("total{name}")));
                }
                let combine = |c: &mut Code| {
                    for (array, Fold { name, .. }) in &slots {
                        let both = combined(dtype, &format!("combine{name}"), array, "half");
                        c.set(format_args!("{array}[local_index]"), both);
                    }
                };
                Group::tree(combine, c);
                for (array, Fold { name, .. }) in &slots {
                    let total = formulas::load(dtype, &format!("{array}[local_index]"));
                    c.set(format_args!("total{name}"), total);
                }
                c.bind("at", "part * params.results + made");
                at = "at";
            }
            c.line(match made {
                1 => format!("store_output({at}, {});", finished[0]),
                _ => {
                    let four = format!("vec4<{}>({})", loaded(self.stored), finished.join(", "));
                    format!("store4_output({at} * 4u, {four});")
                }
            });
        });
        d.work = chunk.max(1) * program.instrs.len() * made * division.columns();
        d.workgroups = division.workgroups(units, self.splits);
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
