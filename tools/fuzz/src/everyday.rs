//! Programs as users write them: one to three operations on matrices, columns, rows, cells, constants,
//! numbers and views, at sizes past every block and register, alone and before a reduction, with their
//! gradients. The expected numbers are those of the plain reference, one operation at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};

use taper::{Device, Result, Tensor, grad, inspect::without_fusion, prelude::TensorGrad};
use taper_testing::reference;

use crate::{Report, modes, rng::Rng};

/// Sizes around the powers of two that bound registers, runs and blocks, and small ones.
const SIZES: [usize; 18] = [1, 2, 3, 4, 7, 16, 31, 64, 127, 128, 129, 200, 257, 513, 1000, 1025, 2000, 2049];
/// The largest number of elements of a program's shape.
const MAX_ELEMENTS: usize = 12_000;

/// The form of an operand that broadcasts to the program's shape.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Matrix,
    /// A matrix stored by columns.
    Transposed,
    /// Every second column of a wider matrix.
    Strided,
    /// The rows in reverse order.
    Flipped,
    Column,
    /// A column of a wider matrix.
    ColumnView,
    /// A column expanded to the whole shape.
    Expanded,
    Row,
    Cell,
    /// A 0-d tensor.
    Scalar,
    /// The same number everywhere, which takes no memory.
    Constant,
    ConstantColumn,
    /// A number in the program's text.
    Number,
}

const FORMS: [Form; 13] = [
    Form::Matrix,
    Form::Transposed,
    Form::Strided,
    Form::Flipped,
    Form::Column,
    Form::ColumnView,
    Form::Expanded,
    Form::Row,
    Form::Cell,
    Form::Scalar,
    Form::Constant,
    Form::ConstantColumn,
    Form::Number,
];

#[derive(Clone, Debug)]
struct Operand {
    form: Form,
    seed: u64,
}

/// The numbers that an operation gives.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// The exactly rounded result, without kinks.
    Exact,
    /// A result that is right to some units in the last place.
    Rounded,
    /// A choice between operands, whose gradient jumps where they are equal.
    Choice,
}

/// An operation's name in Rust, its kind and its function.
type Binary = (&'static str, Kind, fn(&Tensor, &Tensor) -> Result<Tensor>);
type Unary = (&'static str, Kind, fn(&Tensor) -> Result<Tensor>);

/// The four operations of arithmetic come twice, as they are the most frequent in programs.
const BINARY: [Binary; 12] = [
    ("add", Kind::Exact, |a, b| a.add(b)),
    ("sub", Kind::Exact, |a, b| a.sub(b)),
    ("mul", Kind::Exact, |a, b| a.mul(b)),
    ("div", Kind::Exact, |a, b| a.div(b)),
    ("add", Kind::Exact, |a, b| a.add(b)),
    ("sub", Kind::Exact, |a, b| a.sub(b)),
    ("mul", Kind::Exact, |a, b| a.mul(b)),
    ("div", Kind::Exact, |a, b| a.div(b)),
    ("maximum", Kind::Choice, |a, b| a.maximum(b)),
    ("hypot", Kind::Rounded, |a, b| a.hypot(b)),
    ("atan2", Kind::Rounded, |a, b| a.atan2(b)),
    ("greater", Kind::Choice, |a, b| a.gt(b)?.where_cond(a, b)),
];

const UNARY: [Unary; 5] = [
    ("relu", Kind::Choice, |a| Ok(a.relu())),
    ("neg", Kind::Exact, |a| Ok(a.neg())),
    ("square", Kind::Exact, |a| Ok(a.powi(2))),
    ("tanh", Kind::Rounded, |a| Ok(a.tanh())),
    ("softmax(-1)", Kind::Rounded, |a| a.softmax(-1)),
];

#[derive(Clone, Debug)]
enum Step {
    /// With the next operand on the right (`false`) or on the left of the value so far.
    Binary(usize, Operand, bool),
    Unary(usize),
}

impl Step {
    /// The operand beside the value so far.
    fn operand(&self) -> Option<&Operand> {
        match self {
            Step::Binary(_, operand, _) => Some(operand),
            Step::Unary(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Value,
    Sum,
    /// The sum or the maximum along an axis.
    SumAxis(usize),
    MaxAxis(usize),
}

#[derive(Clone, Debug)]
struct Program {
    shape: Vec<usize>,
    first: Operand,
    steps: Vec<Step>,
    end: End,
    gradients: bool,
}

/// One random program.
///
/// # Errors
/// Runs one case; an error reports the smallest program found.
pub fn everyday_case(seed: u64, case: u64, device: &Device) -> Result<(), Report> {
    let mut rng = Rng::new(seed ^ 0xe7, case);
    let program = random(&mut rng);
    let Err(mut what) = program.check(device) else { return Ok(()) };
    let mut best = program;
    loop {
        let smaller = best.smaller().into_iter().find_map(|p| p.check(device).err().map(|what| (p, what)));
        let Some((program, found)) = smaller else { break };
        (best, what) = (program, found);
    }
    Err(Report { what, code: best.text() })
}

fn random(rng: &mut Rng) -> Program {
    let rank = *rng.pick(&[1, 2, 2, 2, 2, 3]);
    let mut shape: Vec<usize> = (0..rank).map(|_| *rng.pick(&SIZES)).collect();
    // The innermost axis keeps its size; the others give way.
    for axis in 0..rank - 1 {
        let rest: usize = shape.iter().skip(axis + 1).product();
        shape[axis] = shape[axis].min((MAX_ELEMENTS / rest.max(1)).max(1));
    }
    let operand = |rng: &mut Rng| Operand { form: *rng.pick(&FORMS), seed: rng.bits() % 1000 };
    let first = loop {
        let first = operand(rng);
        if first.form != Form::Number {
            break first;
        }
    };
    let steps = (0..1 + rng.below(3))
        .map(|_| match rng.one_in(4) {
            true => Step::Unary(rng.below(UNARY.len())),
            false => Step::Binary(rng.below(BINARY.len()), operand(rng), rng.one_in(2)),
        })
        .collect();
    let end = match rng.below(5) {
        0 => End::Value,
        1 => End::Sum,
        2 | 3 => End::SumAxis(rng.below(rank)),
        _ => End::MaxAxis(rng.below(rank)),
    };
    Program { shape, first, steps, end, gradients: rng.one_in(2) }
}

/// The numbers of an operand: small multiples of 1/8, none of them 0.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut rng = Rng::new(seed, 1);
    (0..n)
        .map(|_| {
            let number = rng.between(1, 16) as f32 / 8.0;
            if rng.one_in(3) { -number } else { number }
        })
        .collect()
}

impl Operand {
    /// The sizes of its leaf in a program of this shape.
    fn base(&self, shape: &[usize]) -> Vec<usize> {
        let (mut base, last) = (shape.to_vec(), shape.len() - 1);
        match self.form {
            Form::Matrix | Form::Flipped | Form::Constant => {}
            Form::Transposed => base.reverse(),
            Form::Strided => base[last] = 2 * shape[last],
            Form::Column | Form::Expanded | Form::ConstantColumn => base[last] = 1,
            Form::ColumnView => base[last] = 3,
            Form::Row => base[..last].fill(1),
            Form::Cell => base.fill(1),
            Form::Scalar | Form::Number => base.clear(),
        }
        base
    }

    /// The number of a constant.
    fn number(&self) -> f64 {
        f64::from(numbers(self.seed, 1)[0])
    }

    fn is_constant(&self) -> bool {
        matches!(self.form, Form::Constant | Form::ConstantColumn | Form::Number)
    }

    /// The tensor in memory, each number moved by some units in its last place, or the constant.
    fn leaf(&self, shape: &[usize], moves: &mut Moves, device: &Device) -> Result<Tensor> {
        let base = self.base(shape);
        if self.is_constant() {
            return Tensor::full(base, self.number(), device);
        }
        let mut values = numbers(self.seed, base.iter().product());
        moves.apply(&mut values);
        Tensor::from_vec(values, base, device)
    }

    /// The view of the leaf that the program reads.
    fn view(&self, leaf: &Tensor, shape: &[usize]) -> Result<Tensor> {
        let last = shape.len() - 1;
        let reversed: Vec<usize> = (0..shape.len()).rev().collect();
        match self.form {
            Form::Transposed => leaf.permute(reversed.as_slice()),
            Form::Strided => leaf.slice_step(last, .., 2),
            Form::Flipped => leaf.flip(0),
            Form::ColumnView => leaf.narrow(last, 1, 1),
            Form::Expanded => leaf.expand(shape),
            Form::Matrix | Form::Column | Form::Row | Form::Cell | Form::Scalar => Ok(leaf.clone()),
            Form::Constant | Form::ConstantColumn | Form::Number => Ok(leaf.clone()),
        }
    }
}

/// Moves each number of the leaves by up to four units in the last place, if there is a generator.
struct Moves(Option<Rng>);

impl Moves {
    fn apply(&mut self, values: &mut [f32]) {
        let Some(rng) = &mut self.0 else { return };
        for value in values {
            *value *= 1.0 + 4.0 * f32::EPSILON * (2.0 * rng.unit() - 1.0) as f32;
        }
    }
}

/// The values of a program: its result, the largest number before the reduction, and the gradients of its
/// leaves.
struct Values {
    result: Vec<f64>,
    largest: f64,
    gradients: Vec<Vec<f64>>,
}

impl Program {
    /// The operands, in the order of the steps.
    fn operands(&self) -> Vec<&Operand> {
        let of_steps = self.steps.iter().filter_map(Step::operand);
        std::iter::once(&self.first).chain(of_steps).collect()
    }

    /// Whether a step has this kind.
    fn has(&self, kind: Kind) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Binary(k, ..) => BINARY[*k].1 == kind,
            Step::Unary(k) => UNARY[*k].1 == kind,
        })
    }

    /// Whether the program takes one of several elements, so that its gradients jump.
    fn chooses(&self) -> bool {
        self.has(Kind::Choice) || matches!(self.end, End::MaxAxis(_))
    }

    /// Whether the gradients are those of the reference: not if a choice may depend on the last place.
    fn has_gradients(&self) -> bool {
        self.gradients && !(self.chooses() && (self.has(Kind::Rounded) || self.steps.len() > 1))
    }

    /// The value before the end.
    fn value(&self, read: &[Tensor]) -> Result<Tensor> {
        let mut value = read[0].clone();
        let mut others = read.iter().skip(1);
        for step in &self.steps {
            value = match step {
                Step::Unary(k) => UNARY[*k].2(&value)?,
                Step::Binary(k, operand, left) => {
                    let Some(other) = others.next() else { continue };
                    let number = operand.number();
                    // Numbers are written beside the operators, as users do.
                    let name = if operand.form == Form::Number { BINARY[*k].0 } else { "" };
                    match (name, left) {
                        ("add", false) => &value + number,
                        ("add", true) => number + &value,
                        ("sub", false) => &value - number,
                        ("sub", true) => number - &value,
                        ("mul", false) => &value * number,
                        ("mul", true) => number * &value,
                        ("div", false) => &value / number,
                        ("div", true) => number / &value,
                        (_, false) => BINARY[*k].2(&value, other)?,
                        (_, true) => BINARY[*k].2(other, &value)?,
                    }
                }
            };
        }
        Ok(value)
    }

    fn values(&self, mut moves: Moves, device: &Device) -> Result<Values> {
        let mut leaves = Vec::new();
        let mut read = Vec::new();
        for operand in self.operands() {
            let mut leaf = operand.leaf(&self.shape, &mut moves, device)?;
            if self.has_gradients() && !operand.is_constant() {
                leaf = leaf.requires_grad();
            }
            read.push(operand.view(&leaf, &self.shape)?);
            leaves.push(leaf);
        }
        let value = self.value(&read)?;
        let axis = |axis: usize| axis.min(value.rank().saturating_sub(1));
        let result = match self.end {
            End::SumAxis(a) if value.rank() > 0 => value.sum_axis(axis(a), false)?,
            End::MaxAxis(a) if value.rank() > 0 => value.amax(axis(a), false)?,
            End::Value => value.clone(),
            End::Sum | End::SumAxis(_) | End::MaxAxis(_) => value.sum(),
        };
        let tracked: Vec<&Tensor> = leaves.iter().filter(|leaf| leaf.is_tracked()).collect();
        let gradients = match tracked.is_empty() {
            true => Vec::new(),
            false => grad(&[result.sum()], &tracked, false)?,
        };
        let gradients = gradients.into_iter().flatten().map(|gradient| gradient.to_f64_vec());
        Ok(Values {
            gradients: gradients.collect::<Result<_>>()?,
            result: result.to_f64_vec()?,
            largest: greatest(value.to_f64_vec()?),
        })
    }

    /// Compares the values of the device with those of the reference, which computes each operation by
    /// itself.
    fn check(&self, device: &Device) -> Result<(), String> {
        let both = || {
            let found = self.values(Moves(None), device)?;
            let expected = self.expected(Moves(None))?;
            Ok::<_, taper::Error>((found, expected))
        };
        let (found, expected) = match catch_unwind(AssertUnwindSafe(both)) {
            Ok(both) => both.map_err(|error| error.to_string())?,
            Err(panic) => return Err(format!("panicked: {}", modes::message(panic.as_ref()))),
        };
        // Sums of numbers of both signs are as close as their terms.
        let terms = (self.shape.iter().product::<usize>() as f64).sqrt();
        agree("the result", &found.result, &expected.result, expected.largest * terms)?;
        for (k, (found, expected)) in found.gradients.iter().zip(&expected.gradients).enumerate() {
            let scale = greatest(expected.iter().copied()).max(1.0) * terms;
            agree(&format!("gradient {k}"), found, expected, scale)
                .or_else(|what| if self.is_rounding(k, found, expected) { Ok(()) } else { Err(what) })?;
        }
        Ok(())
    }

    /// The values of the reference, which computes each operation by itself.
    fn expected(&self, moves: Moves) -> Result<Values> {
        without_fusion(|| self.values(moves, &reference()))
    }

    /// Whether rounding explains each element of a gradient that differs from the reference's: the
    /// reference's own gradient changes as much if the leaves move by units in the last place. The gradient
    /// of a softmax that ends in a sum is all rounding, which a division by a small number makes large.
    fn is_rounding(&self, gradient: usize, found: &[f64], expected: &[f64]) -> bool {
        // At a choice between equal elements each move is a jump.
        if self.chooses() {
            return false;
        }
        let mut largest = 0.0f64;
        for sample in 0..4 {
            let Ok(moved) = self.expected(Moves(Some(Rng::new(sample, 1)))) else { return false };
            let changes = moved.gradients[gradient].iter().zip(expected).map(|(moved, e)| moved - e);
            largest = largest.max(greatest(changes));
        }
        let within = 4e-5 * greatest(expected.iter().copied()).max(1.0);
        largest <= within && found.iter().zip(expected).all(|(f, e)| (f - e).abs() <= 2.0 * largest)
    }

    /// Programs with a step, a gradient or elements less.
    fn smaller(&self) -> Vec<Program> {
        let mut all = Vec::new();
        for k in 0..self.steps.len() {
            let mut program = self.clone();
            program.steps.remove(k);
            all.push(program);
        }
        if self.gradients {
            all.push(Program { gradients: false, ..self.clone() });
        }
        if self.end != End::Value {
            all.push(Program { end: End::Value, ..self.clone() });
        }
        for axis in 0..self.shape.len() {
            for size in SIZES.into_iter().filter(|&size| size < self.shape[axis]).take(12) {
                let mut program = self.clone();
                program.shape[axis] = size;
                all.push(program);
            }
        }
        all
    }

    fn text(&self) -> String {
        let operand = |o: &Operand| match o.is_constant() {
            true => format!("{:?}({})", o.form, o.number()),
            false => format!("{:?}", o.form),
        };
        let mut value = operand(&self.first);
        for step in &self.steps {
            value = match step {
                Step::Unary(k) => format!("{}({value})", UNARY[*k].0),
                Step::Binary(k, o, false) => format!("{}({value}, {})", BINARY[*k].0, operand(o)),
                Step::Binary(k, o, true) => format!("{}({}, {value})", BINARY[*k].0, operand(o)),
            };
        }
        let of = if self.has_gradients() { ", with its gradients" } else { "" };
        format!("// shape {:?}: {value}, then {:?}{of}\n", self.shape, self.end)
    }
}

/// The greatest magnitude, 0 for no numbers.
fn greatest(numbers: impl IntoIterator<Item = f64>) -> f64 {
    numbers.into_iter().fold(0.0, |most, v| most.max(v.abs()))
}

/// The first number that differs by more than rounding; `scale` is the size of the terms of a sum.
fn agree(what: &str, found: &[f64], expected: &[f64], scale: f64) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{what} has {} elements, expected {}", found.len(), expected.len()));
    }
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let same = f == e || f.is_nan() && e.is_nan() || (f - e).abs() <= 2e-5 * e.abs() + 4e-7 * scale;
        if !same {
            return Err(format!("element {i} of {what} is {f}, expected {e}"));
        }
    }
    Ok(())
}
