//! Arithmetic in fused kernels. Compilers of shaders are free to simplify x - x, (x + y) - x or x / x as if
//! there were no NaN, no infinity and no rounding: some hundred small expressions over special values against
//! plain arithmetic of f32, bit by bit. They fold comparisons and divisions of converted integers, not always
//! rightly: as many expressions of integers and conversions against the plain reference, evaluated step by
//! step.
#![allow(clippy::unwrap_used, clippy::panic, clippy::type_complexity)]

use crate::common::{device, drawn, every_case, has};
use taper::prelude::*;
use taper::tensor_core::{BinaryOp, CompareOp, Scalar, UnaryOp, eval_pending};

const SPECIAL: [f32; 19] = [
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.5,
    -0.3,
    3e38,
    -3e38,
    1e8,
    -1e8,
    1e30,
    3e-30,
    -3e-30,
    1e-20,
    7e-39,
    -1e-45,
];

/// The one constant in expressions: so large that a small number added to it and taken off again is lost.
const LARGE: f32 = 1e8;

/// An expression of x and y.
#[derive(Clone, Debug)]
enum Expr {
    X,
    Y,
    Large,
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// 1 or 0.
    Compare(CompareOp, Box<Expr>, Box<Expr>),
}

use Expr::{Large, X, Y};

fn unary(op: UnaryOp, a: &Expr) -> Expr {
    Expr::Unary(op, Box::new(a.clone()))
}

fn binary(op: BinaryOp, a: &Expr, b: &Expr) -> Expr {
    Expr::Binary(op, Box::new(a.clone()), Box::new(b.clone()))
}

/// A result with how large the numbers on the way to it were, and whether a quotient or a root was among
/// them: GPUs may be some units in the last place off with those.
#[derive(Clone, Copy, Debug)]
struct Value {
    bits: f32,
    scale: f32,
    rounded: bool,
}

impl Expr {
    fn tensor(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        match self {
            X => Ok(x.clone()),
            Y => Ok(y.clone()),
            Large => Tensor::full([], LARGE, &x.device()),
            Expr::Unary(op, a) => Ok(a.tensor(x, y)?.unary(*op)),
            Expr::Binary(op, a, b) => a.tensor(x, y)?.binary(*op, &b.tensor(x, y)?),
            Expr::Compare(op, a, b) => a.tensor(x, y)?.compare(*op, &b.tensor(x, y)?)?.to_dtype(DType::F32),
        }
    }

    /// The value in plain f32; with `flush`, of a device that has no denormal numbers.
    fn plain(&self, x: f32, y: f32, flush: bool) -> Value {
        let leaf = |v: f32| Value { bits: flushed(v, flush), scale: flushed(v, flush).abs(), rounded: false };
        let (bits, parts, rounds) = match self {
            X => return leaf(x),
            Y => return leaf(y),
            Large => return leaf(LARGE),
            Expr::Unary(op, a) => {
                let a = a.plain(x, y, flush);
                let v = a.bits;
                let bits = match op {
                    UnaryOp::Neg => -v,
                    UnaryOp::Abs => v.abs(),
                    UnaryOp::Reciprocal => 1.0 / v,
                    UnaryOp::Sqrt => v.sqrt(),
                    UnaryOp::Floor => v.floor(),
                    other => panic!("{other:?} is in no expression here"),
                };
                (bits, [a, a], matches!(op, UnaryOp::Reciprocal | UnaryOp::Sqrt))
            }
            Expr::Binary(op, a, b) => {
                let (a, b) = (a.plain(x, y, flush), b.plain(x, y, flush));
                let nan = a.bits.is_nan() || b.bits.is_nan();
                let bits = match op {
                    BinaryOp::Add => a.bits + b.bits,
                    BinaryOp::Sub => a.bits - b.bits,
                    BinaryOp::Mul => a.bits * b.bits,
                    BinaryOp::Div => a.bits / b.bits,
                    BinaryOp::Maximum | BinaryOp::Minimum if nan => f32::NAN,
                    BinaryOp::Maximum if a.bits > b.bits => a.bits,
                    BinaryOp::Minimum if a.bits < b.bits => a.bits,
                    BinaryOp::Maximum | BinaryOp::Minimum => b.bits,
                    other => panic!("{other:?} is in no expression here"),
                };
                (bits, [a, b], *op == BinaryOp::Div)
            }
            Expr::Compare(op, a, b) => {
                let (a, b) = (a.plain(x, y, flush), b.plain(x, y, flush));
                let holds = match op {
                    CompareOp::Eq => a.bits == b.bits,
                    CompareOp::Ne => a.bits != b.bits,
                    CompareOp::Lt => a.bits < b.bits,
                    CompareOp::Le => a.bits <= b.bits,
                    CompareOp::Gt => a.bits > b.bits,
                    CompareOp::Ge => a.bits >= b.bits,
                };
                (f32::from(holds), [a, b], false)
            }
        };
        let bits = flushed(bits, flush);
        let scale = [bits, parts[0].scale, parts[1].scale].into_iter().filter(|v| v.is_finite());
        let scale = scale.fold(0.0, |most: f32, v| most.max(v.abs()));
        Value { bits, scale, rounded: rounds || parts.iter().any(|p| p.rounded) }
    }
}

fn flushed(v: f32, flush: bool) -> f32 {
    if flush && v.is_subnormal() { 0.0_f32.copysign(v) } else { v }
}

/// Two operations deep, over x, y and a constant: what holds an operation and its inverse, an operand twice,
/// a common factor.
fn expressions() -> Vec<Expr> {
    use BinaryOp as B;
    use UnaryOp as U;
    let arithmetic = [B::Add, B::Sub, B::Mul, B::Div];
    let mut inner: Vec<Expr> = [U::Neg, U::Abs, U::Reciprocal, U::Sqrt].map(|op| unary(op, &X)).into();
    for op in arithmetic {
        inner.extend([&X, &Y, &Large].map(|b| binary(op, &X, b)));
    }
    let mut all = inner.clone();
    for a in &inner {
        all.extend([U::Neg, U::Reciprocal, U::Sqrt, U::Floor].map(|op| unary(op, a)));
        for op in [B::Add, B::Sub, B::Mul, B::Div, B::Maximum, B::Minimum] {
            all.push(binary(op, a, &X));
            all.push(binary(op, &X, a));
            all.push(binary(op, a, &Y));
            all.push(binary(op, a, &Large));
        }
        all.push(binary(B::Sub, a, a));
        all.push(binary(B::Div, a, a));
        for op in [CompareOp::Eq, CompareOp::Lt, CompareOp::Ge] {
            all.push(Expr::Compare(op, Box::new(a.clone()), Box::new(X)));
        }
        // Three deep: there and back again.
        for op in arithmetic {
            all.push(binary(op, &binary(B::Sub, a, &Y), &X));
        }
    }
    for outer in [B::Add, B::Sub] {
        for op in [B::Mul, B::Div, B::Add] {
            all.push(binary(outer, &binary(op, &X, &Y), &binary(op, &X, &Large)));
            all.push(binary(outer, &binary(op, &X, &Y), &binary(op, &Y, &X)));
        }
    }
    // Products whose sign is changed before they are added.
    for op in [U::Neg, U::Abs] {
        let product = |b: &Expr| unary(op, &binary(B::Mul, &X, b));
        all.extend([binary(B::Sub, &product(&Y), &product(&Large)), binary(B::Sub, &product(&Y), &Y)]);
    }
    all.extend(
        [CompareOp::Eq, CompareOp::Ne, CompareOp::Le].map(|op| Expr::Compare(op, Box::new(X), Box::new(X))),
    );
    all
}

/// Whether a device may give `found` for `expected`.
fn same(found: f32, expected: Value) -> bool {
    let Value { bits: e, scale, rounded } = expected;
    let exact = found.to_bits() == e.to_bits() || (found.is_nan() && e.is_nan());
    exact || (rounded && found.is_finite() && e.is_finite() && (found - e).abs() <= 1e-6 * scale)
}

#[test]
fn fused_expressions_compute_what_is_written() -> Result<()> {
    let d = device();
    let pairs: Vec<(f32, f32)> = SPECIAL.iter().flat_map(|&x| SPECIAL.map(|y| (x, y))).collect();
    let side = |f: fn(&(f32, f32)) -> f32| -> Result<Tensor> {
        Tensor::from_vec(pairs.iter().map(f).collect::<Vec<f32>>(), [pairs.len()], &d)
    };
    let (x, y) = (side(|p| p.0)?, side(|p| p.1)?);
    let all = expressions();
    assert!(all.len() > 500, "{}", all.len());
    let mut wrong = Vec::new();
    // Some at a time become kernels of several outputs.
    for some in all.chunks(4).filter(|some| drawn(format!("{:?}", some[0]))) {
        let tensors: Vec<Tensor> = some.iter().map(|e| e.tensor(&x, &y)).collect::<Result<_>>()?;
        eval_pending()?;
        for (expr, tensor) in some.iter().zip(tensors) {
            let found = tensor.to_vec::<f32>()?;
            // A device without denormal numbers treats them as zeros, but may copy them unchanged.
            let differs = pairs.iter().zip(&found).find(|&(&(x, y), &found)| {
                !same(found, expr.plain(x, y, false)) && !same(flushed(found, true), expr.plain(x, y, true))
            });
            if let Some(((x, y), found)) = differs {
                let expected = expr.plain(*x, *y, false).bits;
                wrong.push(format!("{expr:?} at x = {x:e}, y = {y:e} is {found:e}, expected {expected:e}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ on {d}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    Ok(())
}

/// Numbers with which f64 gives other results than f32.
#[test]
fn double_precision_computes_what_is_written() -> Result<()> {
    let d = device();
    if !has(&d, DType::F64) {
        return Ok(());
    }
    let values = [f64::NAN, f64::INFINITY, 1.5e308, 3.0, 0.0];
    let x = Tensor::from_slice(&values, [values.len()], &d)?;
    let large = Tensor::full([], 1e17, (DType::F64, &d))?;
    let cases: [(&str, Tensor, fn(f64) -> f64); 4] = [
        ("x - x", x.sub(&x)?, |x| x - x),
        ("x / x", x.div(&x)?, |x| x / x),
        ("(x + 1e17) - 1e17", x.add(&large)?.sub(&large)?, |x| (x + 1e17) - 1e17),
        ("(x * 3) - x", x.mul_scalar(3.0).sub(&x)?, |x| (x * 3.0) - x),
    ];
    for (what, found, expected) in cases {
        for (&x, found) in values.iter().zip(found.to_vec::<f64>()?) {
            let expected = expected(x);
            let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            assert!(same, "{what} of {x} is {found}, expected {expected}");
        }
    }
    Ok(())
}

/// A row's fold beside its elements: a row of one is its own sum, mean and maximum.
#[test]
fn rows_compute_what_is_written() -> Result<()> {
    let d = device();
    for length in [1, 2, 8, 300] {
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let x = Tensor::full([3, length], special, &d)?.to_vec::<f32>()?;
            let x = Tensor::from_vec(x, [3, length], &d)?;
            for (what, fold) in
                [("sum", x.sum_axis(1, true)?), ("mean", x.mean_axis(1, true)?), ("max", x.amax(1, true)?)]
            {
                let rest = x.sub(&fold)?.to_vec::<f32>()?;
                assert!(rest.iter().all(|v| v.is_nan()), "x - {what} of {length} times {special}: {rest:?}");
                let ratio = x.div(&fold)?.to_vec::<f32>()?;
                assert!(
                    ratio.iter().all(|v| v.is_nan()),
                    "x / {what} of {length} times {special}: {ratio:?}"
                );
            }
        }
        let x = Tensor::from_vec(vec![3e38_f32; length], [1, length], &d)?;
        // 3e38 + 3 - 3e38 is 0, whatever operations are in between.
        let y = x.amax(1, true)?.add(&x.mul_scalar(0.0))?.add_scalar(3.0).sub(&x)?;
        assert_eq!(y.to_vec::<f32>()?, vec![0.0; length]);
    }
    Ok(())
}

/// A step of an expression of integers.
#[derive(Clone, Copy, Debug)]
enum Step {
    Cast(DType),
    Unary(UnaryOp),
    /// With a number, which is a parameter of the kernel.
    Number(BinaryOp, i64),
    /// With the second operand, which is cast to the same dtype.
    Second(BinaryOp),
    Compare(CompareOp, i64),
    CompareSecond(CompareOp),
}

impl Step {
    /// This step of `x`, or none if the dtype has no such operation.
    fn apply(self, x: &Tensor, second: &Tensor) -> Option<Tensor> {
        let is_bool = x.dtype() == DType::Bool;
        match self {
            Step::Cast(dtype) => x.to_dtype(dtype).ok(),
            Step::Unary(_) | Step::Number(..) if is_bool => None,
            Step::Unary(op) => Some(x.unary(op)),
            Step::Number(op, n) => x.binary(op, &x.full_like(n)).ok(),
            Step::Second(op) => x.binary(op, &second.to_dtype(x.dtype()).ok()?).ok(),
            Step::Compare(op, n) => Some(x.compare_scalar(op, n)),
            Step::CompareSecond(op) => x.compare(op, &second.to_dtype(x.dtype()).ok()?).ok(),
        }
    }
}

/// Values of a dtype at which conversions and divisions differ.
fn whole_numbers(dtype: DType) -> Vec<f64> {
    let all = [
        -9223372036854775808.0,
        -4294967297.0,
        -2147483648.0,
        -65536.0,
        -255.0,
        -5.0,
        -3.0,
        -1.0,
        0.0,
        1.0,
        2.0,
        7.0,
        31.0,
        127.0,
        128.0,
        255.0,
        256.0,
        65535.0,
        2147483520.0,
        2147483648.0,
        4294966784.0,
        1099511627776.0,
        4611686018427387904.0,
    ];
    let (low, high) = match dtype {
        _ if dtype.is_reduced_float() => (-256.0, 256.0),
        DType::U64 => (0.0, f64::MAX),
        DType::I64 | DType::F32 | DType::F64 => (f64::MIN, f64::MAX),
        _ => (dtype.least().as_f64(), dtype.greatest().as_f64()),
    };
    all.into_iter().filter(|v| (low..=high).contains(v)).collect()
}

/// Whether two scalars are equal, or floats a unit in the last place of f32 apart.
fn near(found: Scalar, expected: Scalar) -> bool {
    match (found, expected) {
        (Scalar::Float(f), Scalar::Float(e)) => {
            f == e || (f - e).abs() <= f64::from(f32::EPSILON) * e.abs() || f.is_nan() && e.is_nan()
        }
        _ => found == expected,
    }
}

#[test]
fn integers_and_conversions_compute_what_is_written() -> Result<()> {
    use BinaryOp as B;
    use CompareOp as C;
    use UnaryOp as U;
    let (d, reference) = (device(), crate::common::reference_device());
    let all =
        [DType::Bool, DType::U8, DType::U32, DType::I32, DType::I64, DType::F16, DType::F32, DType::F64];
    let dtypes: Vec<DType> = all.into_iter().filter(|&dtype| has(&d, dtype)).collect();
    let mut steps: Vec<Step> = [U::Neg, U::Abs, U::Sign, U::Relu, U::Not].map(Step::Unary).into();
    let mut binary = vec![B::Add, B::Sub, B::Mul, B::FloorDiv, B::Remainder, B::Pow, B::Maximum, B::Minimum];
    binary.extend([B::And, B::Or, B::Xor, B::LeftShift, B::RightShift, B::Gcd]);
    for &op in &binary {
        steps.extend([Step::Number(op, 3), Step::Second(op)]);
    }
    for op in [C::Eq, C::Lt, C::Ge] {
        steps.extend([Step::Compare(op, 0), Step::Compare(op, 2), Step::CompareSecond(op)]);
    }
    let is_float = |dtype: DType| dtype.is_float();
    let (mut count, mut wrong) = (0, Vec::new());
    for &from in &dtypes {
        let values = whole_numbers(from);
        let pairs: Vec<(f64, f64)> =
            values.iter().flat_map(|&x| values.iter().map(move |&y| (x, y))).collect();
        let side = |f: fn(&(f64, f64)) -> f64, device: &taper::Device| {
            let values: Vec<f64> = pairs.iter().map(f).collect();
            taper_testing::of(&values, &[pairs.len()], from, device)
        };
        let operands = (side(|p| p.0, &d)?, side(|p| p.1, &d)?);
        let plain = (side(|p| p.0, &reference)?, side(|p| p.1, &reference)?);
        let mut expressions: Vec<Vec<Step>> = Vec::new();
        for &to in &dtypes {
            // Floats are the other test's; here they are converted.
            if is_float(to) {
                continue;
            }
            let begin = if from == to { vec![] } else { vec![Step::Cast(to)] };
            for &step in &steps {
                expressions.push(begin.iter().copied().chain([step]).collect());
            }
            // A step between two conversions, and a comparison of its result.
            for &between in &dtypes {
                for last in [Step::Unary(U::Abs), Step::Unary(U::Sign), Step::Compare(C::Lt, 0)] {
                    expressions.push(vec![Step::Cast(to), Step::Second(B::Sub), Step::Cast(between), last]);
                }
                if !is_float(between) {
                    expressions.push(vec![Step::Cast(to), Step::Cast(between), Step::Second(B::FloorDiv)]);
                }
                expressions.push(vec![Step::Cast(to), Step::Compare(C::Lt, 0), Step::Cast(between)]);
            }
        }
        if !is_float(from) {
            for &op in &binary {
                for &outer in &binary {
                    expressions.push(vec![Step::Second(op), Step::Second(outer)]);
                }
                expressions.push(vec![Step::Second(op), Step::Compare(C::Lt, 0)]);
                expressions.push(vec![Step::Second(op), Step::Unary(U::Sign), Step::Second(B::Mul)]);
            }
        }
        for some in expressions.chunks(8).filter(|some| drawn(format!("{from} {:?}", some[0]))) {
            let mut tensors = Vec::new();
            for steps in some {
                let fused = steps.iter().try_fold(operands.0.clone(), |x, step| step.apply(&x, &operands.1));
                tensors.push(fused);
            }
            eval_pending()?;
            for (steps, tensor) in some.iter().zip(tensors) {
                let Some(tensor) = tensor else { continue };
                let mut expected = plain.0.clone();
                for step in steps {
                    let Some(next) = step.apply(&expected, &plain.1) else {
                        panic!("{steps:?} of {from} is refused by the reference alone");
                    };
                    next.eval()?;
                    expected = next;
                }
                count += 1;
                assert_eq!(tensor.dtype(), expected.dtype(), "{steps:?} of {from}");
                let (found, expected) =
                    (taper_testing::to_scalars(&tensor)?, taper_testing::to_scalars(&expected)?);
                // SwiftShader is a unit off where a large u32 becomes an f32.
                let differs =
                    pairs.iter().zip(found.iter().zip(&expected)).find(|(_, (f, e))| !near(**f, **e));
                if let Some((pair, (found, expected))) = differs {
                    wrong.push(format!("{steps:?} of {from} {pair:?} is {found:?}, expected {expected:?}"));
                }
            }
        }
    }
    assert!(count > 600 || !every_case(), "{count}");
    assert!(wrong.is_empty(), "{} of {count} differ on {d}:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}
