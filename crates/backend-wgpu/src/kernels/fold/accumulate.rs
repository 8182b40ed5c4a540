//! Folds in WGSL: the loop in which an invocation combines many values, and the formulas around it.

use smallvec::SmallVec;
use tensor_core::{DType, ReduceOp, Result};

use crate::codegen::{capabilities::Capabilities, dispatch::Params, dtypes::value, formulas, wgsl::Code};

/// The most steps of a fold if an invocation may run `rounds` iterations: the outer loops of
/// [`Fold::accumulate`] need the rest.
pub(crate) fn loop_steps(rounds: usize) -> usize {
    rounds / 8 * 7
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
    pub(crate) name: String,
    pub(crate) dtype: DType,
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

    /// Declares `total<name>`, for values that are combined outside of a loop.
    pub(crate) fn open(&self, c: &mut Code) {
        c.var(format_args!("total{}", self.name), &self.identity);
    }

    /// Combines `x` into `total<name>` if a condition holds.
    pub(crate) fn add_if(&self, condition: &str, x: &str, c: &mut Code) {
        let n = &self.name;
        let sum = format!("combine{n}(total{n}, {x})");
        c.set(format_args!("total{n}"), format_args!("select(total{n}, {sum}, {condition})"));
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
        for fold in folds {
            fold.open(c);
        }
        Fold::in_blocks(folds, name, [start, end, step], c, |[from, to], c| {
            c.count(name, [from, to, step], body)
        });
    }

    /// [`Fold::accumulate`] with four steps a round, whose loads do not wait for each other. `body` writes
    /// a step and returns the values for the folds.
    pub(crate) fn accumulate_in_fours(
        folds: &[&Fold],
        name: &str,
        [start, end, step]: [&str; 3],
        c: &mut Code,
        body: impl Fn(&mut Code) -> SmallVec<[String; 4]>,
    ) {
        for fold in folds {
            fold.open(c);
        }
        let round = format!("{name}_round");
        let fours = format!("{step} * 4u");
        Fold::in_blocks(folds, name, [start, end, step], c, |[from, to], c| {
            c.count(&round, [from, to, &fours], |c| {
                for e in 0..4 {
                    for fold in folds {
                        c.var(format_args!("step{e}{}", fold.name), &fold.identity);
                    }
                    c.block("", |c| {
                        c.bind("own", format_args!("{round} + {e}u * {step}"));
                        // Steps after the end repeat the first of the round, and their values are not used.
                        c.bind("inside", format_args!("own < {to}"));
                        c.bind(name, format_args!("select({round}, own, inside)"));
                        for (fold, value) in folds.iter().zip(body(c)) {
                            let n = &fold.name;
                            c.set(
                                format_args!("step{e}{n}"),
                                format_args!("select(step{e}{n}, {value}, inside)"),
                            );
                        }
                    });
                }
                for fold in folds {
                    let steps = [0, 1, 2, 3].map(|e| format!("step{e}{}", fold.name));
                    fold.add(&fold.all(&steps), c);
                }
            });
        });
    }

    /// The loops around the innermost of [`Fold::accumulate`], which `inner` writes from and to positions.
    fn in_blocks(
        folds: &[&Fold],
        name: &str,
        [start, end, step]: [&str; 3],
        c: &mut Code,
        inner: impl FnOnce([&str; 2], &mut Code),
    ) {
        let rounding = || folds.iter().filter(|fold| fold.rounds);
        if rounding().next().is_none() {
            return inner([start, end], c);
        }
        let open = |what: &str, c: &mut Code| {
            rounding().for_each(|fold| c.var(format_args!("{what}{}", fold.name), &fold.identity));
        };
        let hand_on = |finer: &str, coarser: &str, c: &mut Code| {
            rounding().for_each(|fold| fold.combine(coarser, &format!("{finer}{}", fold.name), c));
        };
        let [outer, block] = [16 * 16, 16].map(|n| format!("{step} * {n}u"));
        let [large, small] = ["large", "small"].map(|what| format!("{name}_{what}"));
        c.count(&large, [start, end, &outer], |c| {
            open("middle", c);
            c.bind(format_args!("{large}_end"), format_args!("min({end}, {large} + {outer})"));
            c.count(&small, [&large, &format!("{large}_end"), &block], |c| {
                open("block", c);
                c.bind(format_args!("{small}_end"), format_args!("min({large}_end, {small} + {block})"));
                inner([&small, &format!("{small}_end")], c);
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
    pub(crate) fn all(&self, values: &[String]) -> String {
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
