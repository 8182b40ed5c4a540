//! Elementary functions: the CPU's formulas without fused multiply-add, bit for bit.

use taper_testing::test_process;
use tensor_core::{DType, Result, Tensor};

use crate::{
    bodies::floats,
    programs::{case, check, native_case},
};

/// Floats over the whole range and with both signs.
fn sweep() -> Tensor {
    let special = [0.0, -0.0, 1.0, -1.0, 0.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45, f32::MAX];
    let spread = (0..u32::MAX / 300_007).map(|i| f32::from_bits(i * 300_007));
    let near = (-2000..2000).map(|i| i as f32 * 0.0103);
    let numbers: Vec<f32> = spread.chain(near).chain(special).collect();
    let n = numbers.len();
    Tensor::from_vec(numbers, [n], &backend_cpu::cpu()).unwrap()
}

/// Angles for which the short reduction holds.
fn angles() -> Tensor {
    let x = sweep();
    let limit = x.full_like(99_000.0);
    x.abs().lt(&limit).unwrap().where_cond(&x, &limit).unwrap().contiguous().unwrap()
}

type Function = fn(&Tensor) -> Result<Tensor>;
type OfTwo = fn(&Tensor, &Tensor) -> Result<Tensor>;

const OF_ALL: [(&str, Function); 19] = [
    ("exp", |x| Ok(x.exp())),
    ("expm1", |x| Ok(x.expm1())),
    ("log", |x| Ok(x.log())),
    ("log1p", |x| Ok(x.log1p())),
    ("tanh", |x| Ok(x.tanh())),
    ("sigmoid", |x| Ok(x.sigmoid())),
    ("erf", |x| Ok(x.erf())),
    ("gelu", |x| Ok(x.gelu())),
    ("silu", |x| Ok(x.silu())),
    ("sqrt", |x| Ok(x.sqrt())),
    ("rsqrt", |x| Ok(x.rsqrt())),
    ("reciprocal", |x| Ok(x.reciprocal())),
    ("floor", |x| Ok(x.floor())),
    ("ceil", |x| Ok(x.ceil())),
    ("round", |x| Ok(x.round())),
    ("trunc", |x| Ok(x.trunc())),
    ("sign", |x| Ok(x.sign())),
    ("relu", |x| Ok(x.relu())),
    ("infinite", |x| x.isinf().logical_or(x.isnan())),
];

const OF_ANGLES: [(&str, Function); 3] =
    [("sin", |x| Ok(x.sin())), ("cos", |x| Ok(x.cos())), ("tan", |x| Ok(x.tan()))];

const OF_PAIRS: [(&str, OfTwo); 7] = [
    ("atan2", |x, y| x.atan2(y)),
    ("pow", |x, y| x.abs().pow(&y.sigmoid())),
    ("floor_divide", |x, y| x.floor_divide(y)),
    ("remainder", |x, y| x.remainder(y)),
    ("maximum", |x, y| x.maximum(y)),
    ("less", |x, y| x.lt(y)?.to_dtype(DType::F32)),
    ("to_integers", |x, _| x.to_dtype(DType::I64)?.add(&x.to_dtype(DType::I32)?.to_dtype(DType::I64)?)),
];

/// The CPU computes with fused multiply-add unless its baseline is asked for; then the bits are the same.
#[test]
fn functions_have_the_bits_of_the_baseline() {
    if std::env::var("TAPER_CPU_ISA").is_err() {
        let mut child = test_process(functions_have_the_bits_of_the_baseline);
        let output = child.env("TAPER_CPU_ISA", "baseline").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let mut cases: Vec<_> = OF_ALL
        .into_iter()
        .map(|(name, f)| native_case(name, 0.0, vec![sweep()], move |x| Ok(vec![f(&x[0])?]), ""))
        .collect();
    cases.extend(
        OF_ANGLES.map(|(name, f)| native_case(name, 0.0, vec![angles()], move |x| Ok(vec![f(&x[0])?]), "")),
    );
    let pairs = || {
        let x = sweep();
        let y = x.flip(0).unwrap().contiguous().unwrap();
        vec![x, y]
    };
    cases.extend(
        OF_PAIRS.map(|(name, f)| native_case(name, 0.0, pairs(), move |x| Ok(vec![f(&x[0], &x[1])?]), "")),
    );
    check(&cases);
}

/// Pages have the functions of the backend for GPUs; numbers from −2 to 2 here, and 0.
#[test]
fn functions_of_pages() {
    let x = || {
        let x = floats(&[200], 1);
        Tensor::concat(&[&x, &x.narrow(0, 0, 1).unwrap().mul_scalar(0.0)], 0).unwrap().contiguous().unwrap()
    };
    let mut cases: Vec<_> = OF_ALL
        .into_iter()
        .chain(OF_ANGLES)
        .map(|(name, f)| case(name, 1e-5, vec![x()], move |x| Ok(vec![f(&x[0].abs())?, f(&x[0])?])))
        .collect();
    let of_pairs = OF_PAIRS.into_iter().filter(|(name, _)| *name != "to_integers");
    let pair = || vec![x(), floats(&[201], 2)];
    cases.extend(of_pairs.map(|(name, f)| case(name, 1e-5, pair(), move |x| Ok(vec![f(&x[0], &x[1])?]))));
    check(&cases);
}
