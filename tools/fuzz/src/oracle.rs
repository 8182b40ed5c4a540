//! The expected results of a program: the plain reference evaluates every step separately, from fresh copies
//! of its inputs; each result has a tolerance for the device.
//!
//! A step is *exact* if any correct device gives the same bits: moves, comparisons, integers, sums and
//! products on a grid (see `grid.rs`). Others round. How much that matters later is measured: each such step
//! is evaluated several times more, with its operands and its result moved by a few units in the last place,
//! and what follows from the moved results. A program in which that changes an integer, a bool, a NaN or an
//! infinity says nothing about a device, and is [`Unfit`].

use taper::{
    DType, Device, Generator, Scalar, Tensor,
    tensor_core::{BinaryOp, CumulativeOp, ReduceOp, UnaryOp},
};
use taper_testing::{of_scalars, reference_with, to_scalars};

use crate::{
    grid::Grid,
    program::{Action, Composite, DRAWS, Draw, Program, Step},
    rng::Rng,
    table,
};

/// Evaluations with moved numbers.
const SAMPLES: usize = 7;

/// Why nothing can be expected of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Unfit {
    /// A step that is refused.
    Refused(String),
    /// The result depends on rounding.
    Unstable(&'static str),
}

/// The expected result of one step.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its dtype.
    pub dtype: DType,
    /// Its elements.
    pub values: Vec<Scalar>,
    /// How far each element may be off; empty for nothing at all.
    pub within: Vec<f64>,
    /// The sign of a zero is certain.
    signed: bool,
    copy: Tensor,
    samples: Vec<Tensor>,
}

impl Known {
    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.values.len()
    }

    /// Whether any correct device gives the same bits.
    pub fn is_exact(&self) -> bool {
        self.within.is_empty()
    }
}

/// The expected results of a program so far.
pub struct Oracle {
    device: Device,
    rng: Generator,
    /// Whether the device under test keeps numbers below the normal ones.
    subnormals: bool,
    /// The expected result of each step.
    pub known: Vec<Known>,
}

/// How a step rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rounds {
    /// Not at all, or as every device does: a step whose numbers f32 holds exactly is rounded to its half
    /// type once.
    Never,
    /// Relative to the result.
    Relative,
    /// Relative to the greatest number in it.
    ToGreatest,
}

impl Oracle {
    /// An oracle for programs on a device with these dtypes.
    pub fn new(dtypes: &[DType], subnormals: bool) -> Oracle {
        let (device, _) = reference_with(dtypes);
        Oracle { rng: Generator::seed(DRAWS, &device), device, subnormals, known: Vec::new() }
    }

    /// Everything that is to be known of a program.
    ///
    /// # Errors
    /// The oracle of a whole program, or the reason why no result can be expected.
    pub fn of(program: &Program, dtypes: &[DType], subnormals: bool) -> Result<Oracle, Unfit> {
        let mut oracle = Oracle::new(dtypes, subnormals);
        for step in &program.steps {
            oracle.push(step)?;
        }
        Ok(oracle)
    }

    /// One more step. Nothing changes if it is unfit.
    ///
    /// # Errors
    /// A step that is refused, or whose result cannot be predicted.
    pub fn push(&mut self, step: &Step) -> Result<(), Unfit> {
        let drawn = self.rng.offset();
        let known = self.evaluate(step);
        match known {
            Ok(known) => {
                self.known.push(known);
                Ok(())
            }
            Err(why) => {
                self.rng.set_offset(drawn);
                Err(why)
            }
        }
    }

    fn evaluate(&self, step: &Step) -> Result<Known, Unfit> {
        let action = &step.action;
        let inputs: Vec<&Known> = step.inputs.iter().map(|&i| &self.known[i]).collect();
        let drawn = self.rng.offset();
        let run = |x: &[&Tensor]| -> Result<Tensor, Unfit> {
            self.rng.set_offset(drawn);
            let result = action.apply(x, &self.rng).and_then(|t| t.eval().map(|()| t));
            result.map_err(|e| Unfit::Refused(e.to_string()))
        };
        let copies: Vec<&Tensor> = inputs.iter().map(|k| &k.copy).collect();
        let result = run(&copies)?;
        let values = to_scalars(&result).map_err(|e| Unfit::Refused(e.to_string()))?;
        let (shape, dtype) = (result.dims().to_vec(), result.dtype());
        let copy = self.leaf(&values, &shape, dtype)?;
        let rounds = rounding(action, &inputs, dtype, &values);
        let floats = || values.iter().map(|v| v.as_f64());
        // A sum whose terms cancel may be 0 on a device, which changes a bool or an integer.
        let vanishes =
            |k: &&Known| k.values.iter().zip(&k.within).any(|(v, within)| v.as_f64().abs() <= *within);
        if (singular_at_zero(action) || !dtype.is_float()) && inputs.iter().any(vanishes) {
            return Err(Unfit::Unstable("a number that may be 0"));
        }
        if dtype.is_float() {
            let tiny = dtype.smallest_normal();
            let below = floats().any(|v| v != 0.0 && v.abs() < tiny);
            if below && (!self.subnormals || rounds != Rounds::Never) {
                return Err(Unfit::Unstable("a number below the normal ones"));
            }
            if signed_zero_shows(action) && floats().any(|v| !v.is_finite()) {
                let zero = |k: &&Known| !k.signed && k.values.iter().any(|v| v.as_f64() == 0.0);
                if inputs.iter().any(zero) {
                    return Err(Unfit::Unstable("the sign of a zero"));
                }
            }
            let negative = |k: &Known| k.values.iter().any(|v| v.as_f64() < 0.0);
            if is_power(action) && inputs.len() > 1 && negative(inputs[0]) && !inputs[1].is_exact() {
                return Err(Unfit::Unstable("a number below 0 to a power that may be integral"));
            }
            let large = |k: &&Known| !k.dtype.is_float() && k.values.iter().any(|v| v.as_f64().abs() > 1e6);
            if rounds != Rounds::Never && inputs.iter().any(large) {
                return Err(Unfit::Unstable("integers beyond what a float holds"));
            }
            let finite = |k: &Known| k.values.iter().all(|v| v.as_f64().is_finite());
            // Products with the sine of 0, which a transform of powers of two leaves out, and a sum over all
            // does not.
            if is_transform(action) && !inputs.iter().all(|k| finite(k)) {
                return Err(Unfit::Unstable("a transform of what is not finite"));
            }
            // Results may round to the greatest number or to infinity.
            let overflows = || floats().any(|v| !v.is_finite()) && inputs.iter().all(|k| finite(k));
            if dtype.is_reduced_float() && rounds != Rounds::Never && overflows() {
                return Err(Unfit::Unstable("a number beyond a half type"));
            }
            if intermediates_overflow(action, &inputs) {
                return Err(Unfit::Unstable("a sum of extremes"));
            }
        }
        let signed = action.is_source() || action.moves() && inputs[0].signed;
        let inherits = inputs.iter().all(|k| k.is_exact());
        let mut known = Known { shape, dtype, within: Vec::new(), signed, samples: Vec::new(), copy, values };
        if inherits && rounds == Rounds::Never {
            return Ok(known);
        }
        // A normal number is a cosine times a root, and right to a share of 1, not of itself.
        let drawn = if matches!(action, Action::Draw { kind: Draw::Normal, .. }) { 1.0 } else { 0.0 };
        let mut off = vec![0f64; known.values.len()];
        for sample in 0..SAMPLES {
            let mut rng = Rng::new(sample as u64, self.known.len() as u64);
            let moved: Vec<Tensor> = inputs
                .iter()
                .enumerate()
                .map(|(i, k)| {
                    let t = k.samples.get(sample).unwrap_or(&k.copy);
                    // An exponent that is exact stays: a base below 0 has no power that is not integral.
                    let held = matches!(action, Action::Binary(BinaryOp::Pow)) && i == 1;
                    if matches!(rounds, Rounds::Relative | Rounds::ToGreatest) && !held {
                        self.moved(t, 0.0, None, sample, &mut rng)
                    } else {
                        Ok(t.clone())
                    }
                })
                .collect::<Result<_, _>>()?;
            let mut result = run(&moved.iter().collect::<Vec<_>>())?;
            if rounds != Rounds::Never {
                let greatest = if rounds == Rounds::ToGreatest {
                    let all = known.values.iter().chain(inputs.iter().flat_map(|k| &k.values));
                    all.map(|v| v.as_f64().abs()).filter(|v| v.is_finite()).fold(drawn, f64::max)
                } else {
                    0.0
                };
                result = self.moved(&result, greatest, Some(&known.values), sample, &mut rng)?;
            }
            let found = to_scalars(&result).map_err(|e| Unfit::Refused(e.to_string()))?;
            for ((found, expected), off) in found.iter().zip(&known.values).zip(&mut off) {
                let (Scalar::Float(f), Scalar::Float(e)) = (*found, *expected) else {
                    if found != expected {
                        return Err(Unfit::Unstable("rounding changes a choice"));
                    }
                    continue;
                };
                if f.is_nan() != e.is_nan() || (f.is_infinite() || e.is_infinite()) && f != e {
                    return Err(Unfit::Unstable("rounding changes a NaN or an infinity"));
                }
                if f.is_finite() {
                    *off = off.max((f - e).abs());
                }
            }
            known.samples.push(self.leaf(&found, &known.shape, known.dtype)?);
        }
        if known.dtype.is_float() {
            let (unit, tiny) = (unit(known.dtype), known.dtype.smallest_normal());
            let slack = off.iter().zip(&known.values);
            known.within = slack
                .map(|(off, v)| {
                    let v = if v.as_f64().is_finite() { v.as_f64().abs() } else { 0.0 };
                    4.0 * off + 4.0 * unit * (v + drawn) + tiny
                })
                .collect();
        } else {
            // No sample changed it.
            known.samples.clear();
        }
        Ok(known)
    }

    fn leaf(&self, values: &[Scalar], shape: &[usize], dtype: DType) -> Result<Tensor, Unfit> {
        of_scalars(values, shape, dtype, &self.device).map_err(|e| Unfit::Refused(e.to_string()))
    }

    /// A copy with every float moved by some units in its last place, or in that of `greatest`: further
    /// `away` from these where it is not one of them, or what moved the operands might cancel it.
    fn moved(
        &self,
        t: &Tensor,
        greatest: f64,
        away: Option<&[Scalar]>,
        sample: usize,
        rng: &mut Rng,
    ) -> Result<Tensor, Unfit> {
        let dtype = t.dtype();
        if !dtype.is_float() {
            return Ok(t.clone());
        }
        let units = if dtype.is_reduced_float() { 2.0 } else { 16.0 } * unit(dtype);
        let values = to_scalars(t).map_err(|e| Unfit::Refused(e.to_string()))?;
        let values: Vec<Scalar> = values
            .iter()
            .enumerate()
            .map(|(i, v)| {
                let v = v.as_f64();
                let from = away.map_or(v, |a| a[i].as_f64());
                let size = 0.25 + 0.75 * rng.unit();
                let by = match sample {
                    0 => 1.0,
                    1 => -1.0,
                    _ if rng.one_in(2) => size,
                    _ => -size,
                };
                let by = by * units * (v.abs() + greatest);
                let by = if v == from { by } else { by.abs() * (v - from).signum() };
                Scalar::Float(if v.is_finite() { v + by } else { v })
            })
            .collect();
        self.leaf(&values, t.dims(), dtype)
    }
}

/// Half the distance of 1 to its neighbour.
pub(crate) fn unit(dtype: DType) -> f64 {
    if dtype.is_float() { 0.5 * dtype.epsilon() } else { 0.0 }
}

/// Whether a zero's sign can be read off the result.
fn signed_zero_shows(action: &Action) -> bool {
    use UnaryOp as U;
    match action {
        Action::Unary(op) => matches!(op, U::Reciprocal | U::Rsqrt),
        Action::Binary(op) | Action::BinaryScalar(op, _) | Action::ScalarBinary(op, _) => {
            matches!(op, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Remainder | BinaryOp::Pow)
        }
        Action::Powi(n) => *n < 0,
        Action::Powf(p) => *p < 0.0,
        Action::Row { .. } => true,
        _ => false,
    }
}

/// Whether the second operand is an exponent.
fn is_power(action: &Action) -> bool {
    match action {
        Action::Binary(op) => *op == BinaryOp::Pow,
        Action::Row { row, .. } => table::row(*row).is_some_and(|row| row.name.contains("pow")),
        _ => false,
    }
}

/// Whether it is a Fourier transform.
fn is_transform(action: &Action) -> bool {
    match action {
        Action::Row { row, .. } => table::row(*row).is_some_and(|row| row.name.starts_with("fft::")),
        _ => false,
    }
}

/// Whether the operation has a jump or a pole at 0.
fn singular_at_zero(action: &Action) -> bool {
    use UnaryOp as U;
    match action {
        Action::Unary(op) => matches!(op, U::Log | U::Sqrt | U::Reciprocal | U::Rsqrt),
        Action::Composite(f) => matches!(f, Composite::Log2 | Composite::Log10),
        Action::Binary(BinaryOp::Atan2) | Action::BinaryScalar(BinaryOp::Atan2, _) | Action::Powf(_) => true,
        other => signed_zero_shows(other),
    }
}

/// Whether a sum may pass an end of the range on its way, which an oracle that adds in f64 does not see.
fn intermediates_overflow(action: &Action, inputs: &[&Known]) -> bool {
    use Action as A;
    let adds = matches!(
        action,
        A::Reduce { op: ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Prod, .. }
            | A::Cumulative { op: CumulativeOp::Sum | CumulativeOp::Prod | CumulativeOp::LogSumExp, .. }
            | A::MatMul
            | A::ScatterAdd(_)
            | A::IndexAdd(_)
            | A::LayerNorm
            | A::Var { .. }
            | A::Std { .. }
            | A::Softmax(_)
            | A::LogSoftmax(_)
            | A::LogSumExp { .. }
            | A::CrossEntropy
            | A::Powi(_)
            | A::Powf(_)
            | A::Row { .. }
    );
    // Squares, and sums of a few of them, are in range.
    let limit = match inputs.first().map(|k| k.dtype) {
        Some(DType::F64) => 1e30,
        Some(dtype) if dtype.is_float() => (0.8 * dtype.greatest().as_f64().sqrt()).min(1e9),
        _ => 1e9,
    };
    let product = matches!(action, A::Reduce { op: ReduceOp::Prod, .. })
        || matches!(action, A::Cumulative { op: CumulativeOp::Prod, .. });
    if product {
        let floats = inputs.iter().filter(|k| k.dtype.is_float()).flat_map(|k| &k.values);
        let sizes = floats.map(|v| v.as_f64().abs()).filter(|v| v.is_finite() && *v > 0.0);
        return sizes.map(|v| v.log2().abs()).sum::<f64>() > 60.0;
    }
    let beyond = |v: f64| v.is_finite() && v.abs() > limit;
    adds && inputs.iter().any(|k| k.dtype.is_float() && k.values.iter().any(|v| beyond(v.as_f64())))
}

/// How a step rounds, if its inputs are exact.
fn rounding(action: &Action, inputs: &[&Known], dtype: DType, values: &[Scalar]) -> Rounds {
    use Action as A;
    use Rounds::{Never, Relative, ToGreatest};
    let grid = |i: usize| Grid::of(&inputs[i].values);
    // Arithmetic on grids: exact where it fits the dtype, or where that is a half type f32, and rounded once.
    let on = |grid: Grid| if grid.fits(dtype.compute()) { Never } else { Relative };
    // Inputs cast to the result's dtype lose nothing.
    let promotes = |which: &[usize]| {
        which.iter().all(|&i| {
            inputs[i].dtype == dtype || !dtype.is_float() || Grid::of(&inputs[i].values).fits(dtype)
        })
    };
    let common = |a: DType, b: DType| a.promote(b);
    let scalar = |s: &Scalar| Grid::of(&[s.cast(dtype.compute())]);
    let integral = !dtype.is_float();
    let arithmetic = |op: BinaryOp, a: Grid, b: Grid| match op {
        BinaryOp::Add | BinaryOp::Sub => on(a.plus(b)),
        BinaryOp::Mul => on(a.times(b)),
        BinaryOp::Maximum | BinaryOp::Minimum => on(a).max_of(on(b)),
        BinaryOp::FloorDiv | BinaryOp::Remainder => {
            let small = values.iter().all(|v| !v.as_f64().is_finite() || v.as_f64().abs() < 1e5);
            if small && a.plus(b).fits(dtype) { Never } else { Relative }
        }
        BinaryOp::Div | BinaryOp::Pow | BinaryOp::Atan2 => Relative,
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::LeftShift => Never,
        BinaryOp::RightShift | BinaryOp::Gcd => Never,
    };
    match action {
        A::Leaf { .. } | A::Full { .. } | A::Eye { .. } => Never,
        A::Arange { start, step, n, .. } => {
            let (start, step) = (Scalar::Int(*start), Scalar::Int(*step));
            on(Grid::of(&[start]).plus(Grid::of(&[step]).sum(*n)))
        }
        A::Draw { kind: Draw::Normal, .. } => ToGreatest,
        A::Draw { kind: Draw::Uniform, .. } => Never,
        A::Draw { kind: Draw::Integers(..), .. } => on(Grid::of(values)),
        A::Dropout => on(grid(0).sum(2)),
        A::Unary(op) => match op {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Relu if inputs[0].dtype != DType::Bool => {
                Never
            }
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc | UnaryOp::Not => Never,
            UnaryOp::IsNan | UnaryOp::IsInf => Never,
            _ => Relative,
        },
        A::Composite(_) => ToGreatest,
        A::Powi(n) if *n >= 0 => on(grid(0).product(*n as usize)),
        A::Powi(_) | A::Powf(_) => Relative,
        A::Clamp(low, high) => {
            let bounds = Grid::of(&[low.cast(dtype), high.cast(dtype)]);
            if integral || inputs[0].dtype == dtype { Never } else { on(grid(0).plus(bounds)) }
        }
        _ if integral && matches!(action, A::Binary(_) | A::BinaryScalar(..) | A::ScalarBinary(..)) => Never,
        A::Binary(op) => {
            if promotes(&[0, 1]) {
                arithmetic(*op, grid(0), grid(1))
            } else {
                Relative
            }
        }
        A::BinaryScalar(op, s) => arithmetic(*op, grid(0), scalar(s)),
        A::ScalarBinary(op, s) => arithmetic(*op, grid(0), scalar(&Scalar::Float(*s))),
        A::Compare(_) => {
            let to = common(inputs[0].dtype, inputs[1].dtype);
            let kept = |k: &Known| k.dtype == to || !to.is_float() || Grid::of(&k.values).fits(to);
            if kept(inputs[0]) && kept(inputs[1]) { Never } else { Relative }
        }
        A::CompareScalar(_, s) => {
            let to = s.promote_with(inputs[0].dtype, &inputs[0].copy.device());
            if inputs[0].dtype == to || grid(0).fits(to) { Never } else { Relative }
        }
        A::Where | A::MaskedFill(_) | A::Concat(_) => Never,
        A::Cast(to) => {
            let same = || {
                inputs[0]
                    .values
                    .iter()
                    .zip(values)
                    .all(|(a, b)| a.as_f64() == b.as_f64() || a.as_f64().is_nan())
            };
            match (inputs[0].dtype, *to) {
                (_, to) if !to.is_float() => Never,
                _ if same() => Never,
                (DType::F64, to) if to.is_reduced_float() => Relative,
                (DType::F64, DType::F32) => Never,
                (from, _) if from.compute() == DType::F32 => Never,
                _ => Relative,
            }
        }
        A::Reshape(_) | A::Flatten | A::Permute(_) | A::Expand(_) | A::Slice { .. } => Never,
        A::Narrow { .. } | A::Select { .. } | A::Flip(_) | A::Squeeze | A::Unsqueeze(_) => Never,
        A::Contiguous | A::Detach | A::Stack(_) | A::Split { .. } | A::Pad { .. } | A::Tril(_) => Never,
        A::Triu(_) | A::ArgReduce { .. } | A::CumExtreme { .. } | A::Sort { .. } => Never,
        A::ArgSort { .. } | A::TopK { .. } | A::Gather(_) | A::IndexSelect(_) => Never,
        A::Reduce { op, .. } => {
            let n = inputs[0].numel() / values.len().max(1);
            match op {
                ReduceOp::Max | ReduceOp::Min | ReduceOp::Any | ReduceOp::All => Never,
                ReduceOp::Sum => on(grid(0).sum(n)),
                ReduceOp::Prod => on(grid(0).product(n)),
                ReduceOp::Mean => Relative,
            }
        }
        A::Cumulative { op, axis, .. } => {
            let n = inputs[0].shape.get(*axis).copied().unwrap_or(1);
            match op {
                CumulativeOp::Sum => on(grid(0).sum(n)),
                CumulativeOp::Prod => on(grid(0).product(n)),
                CumulativeOp::LogSumExp => ToGreatest,
                CumulativeOp::ArgMax | CumulativeOp::ArgMin => Never,
            }
        }
        A::MatMul => {
            let k = inputs[0].shape.last().copied().unwrap_or(1);
            on(grid(0).times(grid(1)).sum(k))
        }
        A::ScatterAdd(_) | A::IndexAdd(_) => on(grid(0).plus(grid(2).sum(inputs[2].numel()))),
        A::Var { .. } | A::Std { .. } | A::Softmax(_) | A::LogSoftmax(_) => ToGreatest,
        A::LogSumExp { .. } | A::LayerNorm | A::CrossEntropy | A::Row { .. } => ToGreatest,
    }
}

impl Rounds {
    /// The one of the two that rounds more.
    fn max_of(self, other: Rounds) -> Rounds {
        let rank = |r: Rounds| match r {
            Rounds::Never => 0,
            Rounds::Relative => 1,
            Rounds::ToGreatest => 2,
        };
        if rank(self) >= rank(other) { self } else { other }
    }
}
