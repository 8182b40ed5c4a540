//! Functions where their values are small compared with their terms: tails, saturated sides and points next
//! to a zero. Values and two derivatives must agree with mpmath's up to some units in the last place
//! (`scripts/tails.py` writes them).
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use crate::{
    common::{device, has, of},
    pytorch::fixture,
};
use taper::{DType, Device, Tensor, autograd::grad_of, prelude::*, tensor_core::UnaryOp};

/// x, the value, and each derivative with its greatest term.
type Row = [String; 6];

fn apply(name: &str, x: &Tensor) -> Tensor {
    match name {
        "gelu" => x.gelu(),
        "gelu_tanh" => x.gelu_tanh(),
        "tanhshrink" => x.tanhshrink(),
        "softsign" => x.softsign(),
        "softplus" => x.softplus_with(1.0, f64::INFINITY),
        "logsigmoid" => x.logsigmoid(),
        "silu" => x.silu(),
        "mish" => x.mish(),
        "elu" => x.elu(1.0),
        "celu" => x.celu(0.5),
        "selu" => x.selu(),
        "sigmoid" => x.sigmoid(),
        "tanh" => x.tanh(),
        "expm1" => x.expm1(),
        "erf" => x.erf(),
        "erfc" => x.erfc(),
        "ndtr" => x.unary(UnaryOp::Ndtr),
        "gaussian" => x.unary(UnaryOp::Gaussian),
        "logit" => x.logit(None),
        other => panic!("no function is named {other}"),
    }
}

/// Units in the last place that a value, a first and a second derivative may be off at x, on the CPU.
fn allowed(name: &str, x: f64, dtype: DType) -> [f64; 3] {
    match name {
        // Its exponent is a rounded cubic.
        "gelu_tanh" => {
            let exponent = (1.6 * (x + 0.0447 * x.powi(3))).abs();
            [4.0 + 2.0 * exponent.min(745.0), 6.0 + 2.0 * exponent, 8.0 + 2.0 * exponent]
        }
        // Its rational function is near to 3·10⁻¹⁴.
        "erfc" if dtype == DType::F64 => [300.0, 4.0, 4.0],
        "erfc" => [16.0, 4.0, 4.0],
        // The derivative of tanh has the rounding of softplus for an exponent.
        "mish" => [4.0, 4.0, 4.0 + 2.0 * x.abs()],
        _ => [4.0; 3],
    }
}

/// Units beyond those that a device of WGSL may be off, whose quotients are up to 2½ off where a processor's
/// are ½.
fn allowed_beyond(name: &str, d: &Device) -> [f64; 3] {
    match name {
        // A quotient, the square of one, and the cube.
        "softsign" if d.name().starts_with("wgpu") => [2.0, 4.0, 6.0],
        _ => [0.0; 3],
    }
}

/// The bits of a fraction, the least exponent of normal numbers, and the greatest number.
fn format(dtype: DType) -> (i32, i32, f64) {
    match dtype {
        DType::F64 => (52, -1022, f64::MAX),
        DType::F32 => (23, -126, f64::from(f32::MAX)),
        DType::F16 => (10, -14, 65504.0),
        other => panic!("{other} is not tested"),
    }
}

/// Results, and gradients of the first and second order.
fn computed(name: &str, x: &[f64], dtype: DType, d: &Device) -> [Vec<f64>; 3] {
    let x = of(x, &[x.len()], dtype, d).unwrap().requires_grad();
    let y = apply(name, &x);
    let first = grad_of(&y.sum(), &x, true).unwrap();
    let second = grad_of(&first.sum(), &x, false).unwrap();
    [y, first, second].map(|t| t.to_f64_vec().unwrap())
}

fn check(dtype: DType, slack: f64) {
    let d = device();
    if !has(&d, dtype) {
        return;
    }
    let table: BTreeMap<String, Vec<Row>> = fixture("tails");
    let (bits, least, greatest) = format(dtype);
    // Halves are computed in f32, where their least numbers are far from an end.
    let near_least = if dtype == DType::F16 { 0.0 } else { 2f64.powi(least + 4) };
    let mut wrong = Vec::new();
    for (name, rows) in &table {
        let rows: Vec<[f64; 6]> =
            rows.iter().map(|row| row.clone().map(|number| number.parse().unwrap())).collect();
        // The points that the dtype has.
        let given: Vec<f64> = rows.iter().map(|row| row[0]).collect();
        let rounded = of(&given, &[given.len()], dtype, &d).unwrap().to_f64_vec().unwrap();
        let rows: Vec<&[f64; 6]> =
            rows.iter().zip(&rounded).filter(|(row, x)| row[0] == **x).map(|(row, _)| row).collect();
        assert!(rows.len() > 8, "{name}: too few points of {dtype}");
        let x: Vec<f64> = rows.iter().map(|row| row[0]).collect();
        let found = computed(name, &x, dtype, &d);
        for (order, found) in found.iter().enumerate() {
            let mut worst = (0.0, String::new());
            for (row, &found) in rows.iter().zip(found) {
                let (exact, term) = ([row[1], row[2], row[4]][order], [row[1], row[3], row[5]][order].abs());
                if term >= greatest {
                    continue;
                }
                let ulp = (term.max(exact.abs()).log2().floor() as i32).max(least) - bits;
                let off = (found - exact).abs() / f64::from(ulp).exp2();
                let beyond = allowed_beyond(name, &d)[order];
                let most = match dtype {
                    DType::F16 => 0.51,
                    _ => allowed(name, row[0], dtype)[order] * slack + beyond,
                };
                let off = if off.is_nan() { f64::INFINITY } else { off };
                // Factors of results next to the least normal number have fewer digits, or are flushed to 0.
                let off = if term < near_least && found.abs() < 2.0 * near_least { 0.0 } else { off };
                if off / most > worst.0 {
                    worst = (
                        off / most,
                        format!("at {:e}: {found:e}, not {exact:e}, {off:.2} units off", row[0]),
                    );
                }
            }
            if worst.0 > 1.0 {
                wrong.push(format!("{name} of {dtype}, derivative {order}: {}", worst.1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tails_in_f32() {
    check(DType::F32, 1.0);
}

#[test]
fn tails_in_f64() {
    check(DType::F64, 1.0);
}

#[test]
fn halves_are_rounded_once() {
    check(DType::F16, 1.0);
}
