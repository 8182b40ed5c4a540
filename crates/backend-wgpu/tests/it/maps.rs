//! Fused maps: every function in every dtype, every kind of layout, several outputs, outputs over inputs.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{agree, device, devices, numbers, read, run, to_bytes, tolerance};
use tensor_core::{
    BinaryOp, CompareOp, DType, Kernel, Launch, Layout, Result, Scalar, Shape, Tensor, UnaryOp, eval_all,
    kernel::{Compiled, Instr, Program},
};

fn map(shape: &[usize], inputs: Vec<Layout>, program: Program) -> Kernel {
    Kernel::map(shape.into(), inputs, program)
}

/// A program that loads all inputs and then runs `rest`; the last instruction is the output.
fn program(inputs: &[DType], rest: &[(Instr, DType)], scalars: &[DType]) -> Program {
    let mut p = Program { inputs: inputs.to_vec(), scalars: scalars.to_vec(), ..Program::default() };
    for (k, &d) in inputs.iter().enumerate() {
        p.instrs.push(Instr::Load(k as u16));
        p.dtypes.push(d);
    }
    for &(instr, dtype) in rest {
        p.instrs.push(instr);
        p.dtypes.push(dtype);
    }
    p.outputs = vec![p.instrs.len() as u16 - 1];
    p
}

/// One function of one or two contiguous inputs.
fn pointwise(inputs: &[DType], instr: Instr, out: DType, n: usize) -> Kernel {
    map(&[n], vec![Layout::contiguous([n]); inputs.len()], program(inputs, &[(instr, out)], &[]))
}

/// Values that exercise every special case of a float function.
fn corners() -> Vec<f64> {
    let mut v = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        1e-30,
        -1e-30,
        88.0,
        -88.0,
        90.0,
        -90.0,
        1e5,
        -1e5,
        3e38,
        -3e38,
        16777216.0,
        1e-8,
        -1e-8,
        0.999,
        -0.999,
        std::f64::consts::PI,
        1e10,
    ];
    v.extend(numbers(483, 5).iter().map(|x| x * 5.0));
    v
}

#[test]
fn unary_functions_of_floats() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for &op in UnaryOp::ALL.iter().filter(|o| **o != UnaryOp::Not) {
            let values: Vec<f64> = corners()
                .into_iter()
                // f64 reduces angles with three parts of π/2, which is accurate up to about a million.
                .map(|v| if dtype == DType::F64 && v.is_finite() { v.clamp(-1e5, 1e5) } else { v })
                .collect();
            let out = if matches!(op, UnaryOp::IsNan | UnaryOp::IsInf) { DType::Bool } else { dtype };
            let n = values.len();
            agree(
                &format!("{op:?} of {dtype}"),
                &pointwise(&[dtype], Instr::Unary(op, 0), out, n),
                &[],
                &[(dtype, values)],
                tolerance(dtype) * 2.0,
            );
        }
    }
}

/// A function, its reference, the ends of the domain, and the allowed error.
type Sweep = (UnaryOp, fn(f64) -> f64, f64, f64, f64);

/// The error in units in the last place of f32, over a sweep of each function's domain.
#[test]
fn accuracy_in_units_of_the_last_place() {
    use UnaryOp as U;
    let Some(device) = device() else { return };
    let cases: &[Sweep] = &[
        (U::Exp, f64::exp, -87.0, 88.7, 3.0),
        (U::Expm1, f64::exp_m1, -20.0, 88.0, 4.0),
        (U::Expm1, f64::exp_m1, -1.0, 1.0, 4.0),
        (U::Log, f64::ln, 1e-30, 10.0, 3.0),
        (U::Log, f64::ln, 0.9, 1.1, 3.0),
        (U::Log1p, f64::ln_1p, -0.9, 10.0, 4.0),
        (U::Log1p, f64::ln_1p, -1e-3, 1e-3, 3.0),
        (U::Sin, f64::sin, -100.0, 100.0, 4.0),
        (U::Cos, f64::cos, -1e4, 1e4, 4.0),
        (U::Sin, f64::sin, -1e30, 1e30, 4.0),
        (U::Tan, f64::tan, -10.0, 10.0, 6.0),
        (U::Tanh, f64::tanh, -9.0, 9.0, 4.0),
        (U::Tanh, f64::tanh, -1e-2, 1e-2, 3.0),
        (U::Sigmoid, |x| 1.0 / (1.0 + (-x).exp()), -80.0, 20.0, 5.0),
        (U::Sqrt, f64::sqrt, 0.0, 1e6, 2.0),
        (U::Rsqrt, |x| 1.0 / x.sqrt(), 1e-6, 1e6, 3.0),
    ];
    let n = 40_000;
    for &(op, oracle, low, high, most) in cases {
        let values: Vec<f64> =
            (0..n).map(|i| f64::from((low + (high - low) * i as f64 / n as f64) as f32)).collect();
        let kernel = pointwise(&[DType::F32], Instr::Unary(op, 0), DType::F32, n);
        let found = run(device, &kernel, &[], &[(DType::F32, values.clone())]).unwrap();
        let mut worst = (0.0, 0.0);
        for (&x, &f) in values.iter().zip(&found[0]) {
            let e = oracle(x);
            // Denormal results may be flushed.
            if e.abs() < 1.2e-38 {
                continue;
            }
            let ulp = 2f64.powi(e.abs().log2().floor() as i32 - 23);
            let error = (f - e).abs() / ulp;
            if error > worst.0 || error.is_nan() {
                worst = (error, x);
            }
        }
        println!("{op:?} on {low}..{high}: {:.2} ulp at {}", worst.0, worst.1);
        assert!(worst.0 <= most, "{op:?}: {} ulp at {}", worst.0, worst.1);
    }
}

/// GPUs multiply by a reciprocal, which is denormal for divisors of 2^126 or more.
#[test]
fn quotients_from_one_end_of_the_range_to_the_other() {
    let ends = |least: i32, greatest: i32, bits: i32| -> Vec<f64> {
        let powers = (least..=greatest).step_by(7).chain(greatest - 3..=greatest);
        let sizes = powers
            .flat_map(|k| [1.0, 1.1, 2.0 - f64::exp2(f64::from(-bits))].map(|m| m * f64::from(k).exp2()));
        let special = [0.0, f64::INFINITY, f64::NAN];
        sizes.chain(special).flat_map(|x| [x, -x]).collect()
    };
    for (dtype, values, bits) in
        [(DType::F32, ends(-126, 127, 23), 23), (DType::F64, ends(-1022, 1023, 52), 52)]
    {
        let values: Vec<f64> =
            values.iter().map(|&v| if dtype == DType::F32 { f64::from(v as f32) } else { v }).collect();
        let pairs: Vec<(f64, f64)> =
            values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b))).collect();
        let (a, b) = (pairs.iter().map(|p| p.0).collect(), pairs.iter().map(|p| p.1).collect());
        let kernel = pointwise(&[dtype; 2], Instr::Binary(BinaryOp::Div, 0, 1), dtype, pairs.len());
        let inputs = [(dtype, a), (dtype, b)];
        for (name, device) in devices().iter().filter(|(_, device)| device.supports(dtype)) {
            let found = run(device, &kernel, &[], &inputs).unwrap();
            for (&(a, b), &found) in pairs.iter().zip(&found[0]) {
                let e = if dtype == DType::F32 { f64::from(a as f32 / b as f32) } else { a / b };
                let least = f64::exp2(if dtype == DType::F32 { -126.0 } else { -1022.0 });
                // Denormal results may be flushed, and rounding can lead to the least normal number.
                let near = if e.abs() <= least {
                    found.abs() <= least
                } else {
                    (found - e).abs() <= 3.0 * f64::from(1 - bits).exp2() * e.abs()
                };
                let same = found == e || found.is_nan() && e.is_nan() || near;
                assert!(same, "{dtype} on {name}: {a:e} / {b:e} is {found:e}, expected {e:e}");
            }
        }
    }
}

/// π/2 is subtracted in parts, which a compiler must not combine.
#[test]
fn angles_of_f64_in_units_of_the_last_place() {
    let Some(device) = device().filter(|device| device.supports(DType::F64)) else { return };
    let n = 20_000;
    let values: Vec<f64> = (0..n).map(|i| 1e5 * (i as f64 / (n - 1) as f64 * 2.0 - 1.0)).collect();
    for (op, oracle) in
        [(UnaryOp::Sin, f64::sin as fn(f64) -> f64), (UnaryOp::Cos, f64::cos), (UnaryOp::Tan, f64::tan)]
    {
        let kernel = pointwise(&[DType::F64], Instr::Unary(op, 0), DType::F64, n);
        let found = run(device, &kernel, &[], &[(DType::F64, values.clone())]).unwrap();
        for (&x, &found) in values.iter().zip(&found[0]) {
            let e = oracle(x);
            assert!(
                (found - e).abs() <= 2e-15 * e.abs().max(1e-4),
                "{op:?} of {x} is {found:e}, expected {e:e}"
            );
        }
    }
}

#[test]
fn pow_in_units_of_the_last_place() {
    let Some(device) = device() else { return };
    let n = 30_000;
    let a: Vec<f64> =
        (0..n).map(|i| f64::from((10f64.powf(-6.0 + 12.0 * i as f64 / n as f64)) as f32)).collect();
    let b: Vec<f64> = numbers(n, 3).iter().map(|x| f64::from((x * 3.0) as f32)).collect();
    let kernel = pointwise(&[DType::F32; 2], Instr::Binary(BinaryOp::Pow, 0, 1), DType::F32, n);
    let found = run(device, &kernel, &[], &[(DType::F32, a.clone()), (DType::F32, b.clone())]).unwrap();
    let mut worst = 0f64;
    for i in 0..n {
        let e = a[i].powf(b[i]);
        worst = worst.max((found[0][i] - e).abs() / 2f64.powi(e.log2().floor() as i32 - 23));
    }
    println!("pow: {worst:.2} ulp");
    assert!(worst <= 3.0, "{worst}");
}

#[test]
fn binary_functions_of_floats() {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        0.5,
        3.0,
        7.25,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        1e-3,
        -100.0,
    ];
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for x in special {
        for y in special {
            a.push(x);
            b.push(y);
        }
    }
    a.extend(numbers(300, 1));
    b.extend(numbers(300, 2));
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for &op in BinaryOp::ALL {
            if op.is_integral() {
                continue;
            }
            let kernel = pointwise(&[dtype; 2], Instr::Binary(op, 0, 1), dtype, a.len());
            agree(
                &format!("{op:?} of {dtype}"),
                &kernel,
                &[],
                &[(dtype, a.clone()), (dtype, b.clone())],
                tolerance(dtype) * 2.0,
            );
        }
        for &op in CompareOp::ALL {
            let kernel = pointwise(&[dtype; 2], Instr::Compare(op, 0, 1), DType::Bool, a.len());
            agree(
                &format!("{op:?} of {dtype}"),
                &kernel,
                &[],
                &[(dtype, a.clone()), (dtype, b.clone())],
                0.0,
            );
        }
    }
}

#[test]
fn functions_of_integers() {
    for (dtype, values) in [
        (DType::I32, vec![0.0, 1.0, -1.0, 2.0, -2.0, 7.0, -7.0, 2147483647.0, -2147483648.0, 3.0, 31.0]),
        (DType::I64, vec![0.0, 1.0, -1.0, 2.0, -2.0, 7.0, -7.0, 4294967296.0, -4294967297.0, 3.0, 40.0]),
        (DType::U32, vec![0.0, 1.0, 2.0, 7.0, 255.0, 4294967295.0, 3.0]),
        (DType::U8, vec![0.0, 1.0, 2.0, 7.0, 200.0, 255.0, 3.0]),
        (DType::Bool, vec![0.0, 1.0, 1.0, 0.0]),
    ] {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for &x in &values {
            for &y in &values {
                a.push(x);
                b.push(y);
            }
        }
        let n = a.len();
        for &op in BinaryOp::ALL {
            let lacking = match op {
                BinaryOp::Div | BinaryOp::Atan2 => true,
                BinaryOp::Sub
                | BinaryOp::FloorDiv
                | BinaryOp::Remainder
                | BinaryOp::Pow
                | BinaryOp::LeftShift
                | BinaryOp::RightShift
                | BinaryOp::Gcd => dtype == DType::Bool,
                _ => false,
            };
            if !lacking {
                let kernel = pointwise(&[dtype; 2], Instr::Binary(op, 0, 1), dtype, n);
                // The reference stores a power's exponent in 32 bits.
                let b = if op == BinaryOp::Pow {
                    b.iter().map(|v: &f64| v.clamp(-9.0, 31.0)).collect()
                } else {
                    b.clone()
                };
                agree(&format!("{op:?} of {dtype}"), &kernel, &[], &[(dtype, a.clone()), (dtype, b)], 0.0);
            }
        }
        for &op in CompareOp::ALL {
            let kernel = pointwise(&[dtype; 2], Instr::Compare(op, 0, 1), DType::Bool, n);
            agree(
                &format!("{op:?} of {dtype}"),
                &kernel,
                &[],
                &[(dtype, a.clone()), (dtype, b.clone())],
                0.0,
            );
        }
        use UnaryOp as U;
        for op in [U::Neg, U::Abs, U::Sign, U::Relu, U::Not] {
            if dtype == DType::Bool && op != U::Not {
                continue;
            }
            let kernel = pointwise(&[dtype], Instr::Unary(op, 0), dtype, n);
            agree(&format!("{op:?} of {dtype}"), &kernel, &[], &[(dtype, a.clone())], 0.0);
        }
        if dtype != DType::Bool {
            for p in [0, 1, 2, 3, 5] {
                let kernel = pointwise(&[dtype], Instr::Powi(p, 0), dtype, n);
                agree(&format!("powi {p} of {dtype}"), &kernel, &[], &[(dtype, a.clone())], 0.0);
            }
        }
    }
    for p in [-3, -1, 0, 1, 2, 7] {
        let kernel = pointwise(&[DType::F32], Instr::Powi(p, 0), DType::F32, 100);
        agree(&format!("powi {p}"), &kernel, &[], &[(DType::F32, numbers(100, 1))], 4e-6);
    }
}

#[test]
fn casts_between_all_dtypes() {
    let values = [
        0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        100.0,
        200.0,
        255.0,
        256.0,
        300.0,
        -300.0,
        65504.0,
        65520.0,
        70000.0,
        1e-7,
        6e-8,
        3e-8,
        1e9,
        3e9,
        -3e9,
        5e9,
        1e19,
        -1e19,
        1e38,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.333333,
        1.0009765625,
        1.00048828125,
        1.00146484375,
    ];
    for from in DType::ALL {
        for to in DType::ALL {
            let values: Vec<f64> = match from {
                DType::Bool => vec![0.0, 1.0],
                DType::U8 => vec![0.0, 1.0, 255.0],
                DType::U32 => vec![0.0, 1.0, 300.0, 4294967295.0],
                DType::I32 => vec![0.0, 1.0, -1.0, 300.0, -300.0, 2147483647.0, -2147483648.0],
                DType::I64 => vec![0.0, -1.0, 300.0, 5e9, -5e9, 1e15],
                _ => values.to_vec(),
            };
            let kernel = pointwise(&[from], Instr::Cast(0), to, values.len());
            agree(&format!("{from} to {to}"), &kernel, &[], &[(from, values)], 0.0);
        }
    }
}

#[test]
fn every_kind_of_layout() {
    let whole = Layout::contiguous([6, 8, 12]);
    let n = 6 * 8 * 12;
    let add = |dtype| program(&[dtype; 2], &[(Instr::Binary(BinaryOp::Add, 0, 1), dtype)], &[]);
    let views: Vec<(&str, Layout)> = vec![
        ("contiguous", whole.clone()),
        ("transposed", whole.permute(&[2, 0, 1])),
        ("sliced", whole.slice(2, 1, 4, 2)),
        ("sliced in vectors", whole.slice(2, 4, 8, 1)),
        ("outer slice", whole.slice(0, 2, 3, 1)),
        ("flipped", whole.flip(0).flip(2)),
        ("expanded inside", whole.slice(2, 3, 1, 1).expand(&Shape::from([6, 8, 12]))),
        ("expanded outside", whole.slice(0, 0, 1, 1).expand(&Shape::from([6, 8, 12]))),
        (
            "one value",
            whole.slice(0, 1, 1, 1).slice(1, 1, 1, 1).slice(2, 1, 1, 1).expand(&Shape::from([6, 8, 12])),
        ),
        ("empty", whole.slice(1, 0, 0, 1)),
        ("scalar", Layout::new(Shape::scalar(), &[], 5)),
    ];
    for dtype in [DType::F32, DType::F16, DType::I32, DType::U8, DType::Bool, DType::I64, DType::F64] {
        for (name, view) in &views {
            let shape = view.shape().clone();
            let plain = Layout::contiguous(shape.clone());
            let inputs = [(dtype, numbers(n, 1)), (dtype, numbers(n, 2))];
            for layouts in
                [vec![view.clone(), plain.clone()], vec![plain, view.clone()], vec![view.clone(); 2]]
            {
                agree(
                    &format!("{name} of {dtype}"),
                    &map(&shape, layouts, add(dtype)),
                    &[],
                    &inputs,
                    tolerance(dtype),
                );
            }
        }
    }
}

/// Whole vectors and a rest, with inputs of other layouts.
#[test]
fn many_elements() {
    let add = |dtype| program(&[dtype; 2], &[(Instr::Binary(BinaryOp::Add, 0, 1), dtype)], &[]);
    for n in 16_384..16_384 + 9 {
        for dtype in [DType::F32, DType::F16, DType::I32, DType::U8, DType::Bool] {
            let layouts = vec![Layout::contiguous([n]), Layout::new([n], &[0], 3)];
            let inputs = [(dtype, numbers(n, 1)), (dtype, numbers(5, 2))];
            agree(
                &format!("{n} of {dtype}"),
                &map(&[n], layouts, add(dtype)),
                &[],
                &inputs,
                tolerance(dtype),
            );
        }
    }
    for width in [120, 124, 125] {
        let shape = Shape::from([150, width]);
        let wider = Layout::contiguous([150, 200]);
        let plain = Layout::contiguous(shape.clone());
        for (name, other) in [
            ("contiguous", plain.clone()),
            ("sliced", wider.slice(1, 8, width, 1)),
            ("sliced at half", wider.slice(1, 4, width, 1)),
            ("sliced askew", wider.slice(1, 3, width, 1)),
            ("one row", Layout::new(shape.clone(), &[0, 1], 4)),
            ("one column", Layout::new(shape.clone(), &[1, 0], 3)),
            ("transposed", Layout::contiguous([width, 150]).permute(&[1, 0])),
        ] {
            for layouts in [vec![plain.clone(), other.clone()], vec![other.clone(), plain.clone()]] {
                let inputs = [(DType::F32, numbers(150 * 200, 1)), (DType::F32, numbers(150 * 200, 2))];
                agree(
                    &format!("{name} of {width}"),
                    &map(&shape, layouts, add(DType::F32)),
                    &[],
                    &inputs,
                    1e-6,
                );
            }
        }
    }
}

/// A few angles are so large that they need the slow reduction, in the same program as the others.
#[test]
fn large_angles_among_small() {
    for (n, dtype) in [(500, DType::F32), (20_003, DType::F32), (20_000, DType::F16)] {
        let mut angles = numbers(n, 7);
        for (i, angle) in angles.iter_mut().enumerate() {
            let large = [3e4, -5e4, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1999.9, 2000.0];
            *angle = if i % 37 == 5 { large[i / 37 % large.len()] } else { *angle * 40.0 };
        }
        let rest = [
            (Instr::Unary(UnaryOp::Sin, 0), dtype),
            (Instr::Unary(UnaryOp::Cos, 1), dtype),
            (Instr::Binary(BinaryOp::Mul, 2, 3), dtype),
            (Instr::Unary(UnaryOp::Tan, 1), dtype),
        ];
        let mut p = program(&[dtype; 2], &rest, &[]);
        p.outputs = vec![4, 2, 5];
        let kernel = map(&[n], vec![Layout::contiguous([n]), Layout::new([n], &[0], 0)], p);
        for other in [0.5, 7e4] {
            let inputs = [(dtype, angles.clone()), (dtype, vec![other])];
            agree(&format!("{n} angles of {dtype}"), &kernel, &[], &inputs, tolerance(dtype) * 4.0);
        }
    }
}

/// Squares of positions, complete and cut off at the edges, with axes before and between.
#[test]
fn inputs_that_lie_crosswise() {
    for (shape, order) in [
        (vec![33, 50], [1, 0].as_slice()),
        (vec![16, 16], &[1, 0]),
        (vec![64, 36], &[1, 0]),
        (vec![3, 20, 40], &[0, 2, 1]),
        (vec![17, 3, 20], &[2, 1, 0]),
        (vec![2, 24, 3, 32], &[0, 3, 2, 1]),
        (vec![40, 5, 4, 4], &[2, 3, 1, 0]),
    ] {
        let whole: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
        let n: usize = shape.iter().product();
        let back: Vec<usize> =
            (0..order.len()).map(|a| order.iter().position(|&o| o == a).unwrap()).collect();
        let (plain, turned) =
            (Layout::contiguous(shape.as_slice()), Layout::contiguous(whole.as_slice()).permute(&back));
        for dtype in [DType::F32, DType::F64] {
            let inputs = [(dtype, numbers(n, 1)), (dtype, numbers(n, 2))];
            let alone = map(&shape, vec![turned.clone()], program(&[dtype], &[], &[]));
            agree(&format!("{shape:?} alone"), &alone, &[], &inputs[..1], 0.0);
            let sum = program(&[dtype; 2], &[(Instr::Binary(BinaryOp::Add, 0, 1), dtype)], &[]);
            let sum = map(&shape, vec![plain.clone(), turned.clone()], sum);
            agree(&format!("{shape:?} added"), &sum, &[], &inputs, 1e-6);
        }
    }
}

#[test]
fn bias_rows_and_columns() {
    let shape = Shape::from([33, 40]);
    for (row, column) in [(true, false), (false, true), (true, true)] {
        let mut layouts = vec![Layout::contiguous(shape.clone())];
        layouts.push(if row { Layout::new([33, 40], &[0, 1], 4) } else { Layout::new([33, 40], &[1, 0], 3) });
        if row && column {
            layouts.push(Layout::new([33, 40], &[1, 0], 2));
        }
        let mut rest = vec![(Instr::Binary(BinaryOp::Mul, 0, 1), DType::F32)];
        if layouts.len() == 3 {
            rest.push((Instr::Binary(BinaryOp::Add, 3, 2), DType::F32));
        }
        let inputs: Vec<_> = (0..layouts.len()).map(|k| (DType::F32, numbers(33 * 40, k as u64))).collect();
        let p = program(&vec![DType::F32; layouts.len()], &rest, &[]);
        agree("bias", &map(&shape, layouts, p), &[], &inputs, 1e-6);
    }
}

#[test]
fn scalars_of_every_kind_and_several_outputs() {
    for value in [0.0, 1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-40] {
        let mut p = program(
            &[DType::F32],
            &[
                (Instr::Scalar(0), DType::F32),
                (Instr::Binary(BinaryOp::Mul, 0, 1), DType::F32),
                (Instr::Compare(CompareOp::Lt, 0, 1), DType::Bool),
                (Instr::Select(3, 0, 1), DType::F32),
                (Instr::Cast(0), DType::I32),
            ],
            &[DType::F32],
        );
        p.outputs = vec![2, 3, 4, 5];
        for n in [1, 7, 256, 1001] {
            agree(
                "scalars",
                &map(&[n], vec![Layout::contiguous([n])], p.clone()),
                &[Scalar::Float(value).cast(DType::F32)],
                &[(DType::F32, numbers(n, 4))],
                if value == 1e-40 { 1e-37 } else { 1e-6 },
            );
        }
    }
    let p = program(
        &[DType::I64],
        &[(Instr::Scalar(0), DType::I64), (Instr::Binary(BinaryOp::Add, 0, 1), DType::I64)],
        &[DType::I64],
    );
    agree(
        "i64",
        &map(&[9], vec![Layout::contiguous([9])], p),
        &[Scalar::Int(-5_000_000_000)],
        &[(DType::I64, numbers(9, 1))],
        0.0,
    );
    let p = program(
        &[DType::F64],
        &[(Instr::Scalar(0), DType::F64), (Instr::Binary(BinaryOp::Mul, 0, 1), DType::F64)],
        &[DType::F64],
    );
    agree(
        "f64",
        &map(&[9], vec![Layout::contiguous([9])], p),
        &[Scalar::Float(1.0 / 3.0)],
        &[(DType::F64, numbers(9, 1))],
        1e-15,
    );
}

#[test]
fn aranges_count_the_whole_index_space() {
    for dtype in [DType::F32, DType::I32, DType::U32, DType::U8, DType::I64, DType::F64, DType::F16] {
        let p = program(&[], &[(Instr::Arange { start: 0, step: 1 }, dtype)], &[dtype, dtype]);
        let scalars = [Scalar::Int(3).cast(dtype), Scalar::Int(2).cast(dtype)];
        agree("arange", &map(&[5, 51], vec![], p), &scalars, &[], tolerance(dtype));
    }
}

#[test]
fn an_output_may_be_an_inputs_own_buffer() {
    for (name, device) in devices() {
        for n in [3usize, 1000, 4096] {
            let backend = device.backend();
            let values = [numbers(n, 1), numbers(n, 2)];
            let upload = |v: &[f64]| backend.upload(DType::F32, &to_bytes(DType::F32, v)).unwrap();
            let (r, b) = (upload(&values[0]), upload(&values[1]));
            let mut p = program(
                &[DType::F32; 3],
                &[
                    (Instr::Binary(BinaryOp::Mul, 0, 1), DType::F32),
                    (Instr::Binary(BinaryOp::Add, 3, 2), DType::F32),
                ],
                &[],
            );
            p.outputs = vec![4, 3];
            let kernel = map(&[n], vec![Layout::contiguous([n]); 3], p);
            let other = backend.allocate(DType::F32, n).unwrap();
            // r is bound twice and overwritten; the same kernel then runs without the overlap.
            let compiled = Compiled::default();
            for outputs in
                [[r.clone(), other.clone()], [backend.allocate(DType::F32, n).unwrap(), other.clone()]]
            {
                let before = read(device, &r).unwrap();
                backend
                    .run(&Launch {
                        kernel: &kernel,
                        compiled: &compiled,
                        scalars: &[],
                        inputs: &[r.clone(), b.clone(), r.clone()],
                        outputs: &outputs,
                        tickets: &[],
                    })
                    .unwrap();
                for (i, found) in read(device, &outputs[0]).unwrap().into_iter().enumerate() {
                    let b = f64::from(values[1][i] as f32);
                    assert!((found - (before[i] * b + before[i])).abs() < 2e-6, "{name}: {i}");
                }
            }
        }
    }
}

#[test]
fn more_workgroups_than_one_axis_takes() {
    let Some(device) = device() else { return };
    // More than 65,536 workgroups of 256 invocations, one element each.
    let n = 65_536 * 256 + 77;
    let rest = [(Instr::Arange { start: 0, step: 1 }, DType::U32)];
    let kernel = map(&[n], vec![Layout::new([n], &[0], 0)], program(&[DType::F64], &rest, &[DType::U32; 2]));
    let kernel = if device.supports(DType::F64) {
        kernel
    } else {
        map(&[n], vec![], program(&[], &rest, &[DType::U32; 2]))
    };
    let inputs = if device.supports(DType::F64) { vec![(DType::F64, vec![0.0])] } else { vec![] };
    let found = run(device, &kernel, &[Scalar::Int(0), Scalar::Int(1)], &inputs).unwrap();
    for (i, &f) in found[0].iter().enumerate() {
        assert!(f == i as f64, "{i}: {f}");
    }
}

#[test]
fn a_new_shape_or_scalar_compiles_nothing() {
    let Ok(device) = backend_wgpu::open(0, &backend_wgpu::Options::default()) else { return };
    let count = || {
        let text = format!("{:?}", device.backend());
        let at = text.find("Pipelines(").unwrap() + 10;
        text[at..].split(')').next().unwrap().parse::<usize>().unwrap()
    };
    let p = program(
        &[DType::F32],
        &[(Instr::Scalar(0), DType::F32), (Instr::Binary(BinaryOp::Mul, 0, 1), DType::F32)],
        &[DType::F32],
    );
    for n in [16usize, 64, 4096, 20] {
        for scalar in [1.0, 2.0] {
            let kernel = map(&[n], vec![Layout::contiguous([n])], p.clone());
            run(&device, &kernel, &[Scalar::Float(scalar)], &[(DType::F32, numbers(n, 1))]).unwrap();
        }
    }
    assert_eq!(count(), 1);
}

/// As many results as the device allows, and one more: of values without inputs, of sums, of updates in
/// place, and as the epilogue of a product.
#[test]
fn as_many_results_as_a_kernel_may_have() -> Result<()> {
    for (name, device) in devices() {
        let most = device.info().limits.max_outputs;
        for n in [1, 2, 3, most - 1, most, most + 1] {
            let value = |i: usize| (i + 1) as f64 / 4.0;
            let all = |tensors: &[Tensor]| eval_all(&tensors.iter().collect::<Vec<_>>());
            let full: Vec<Tensor> =
                (0..n).map(|i| Tensor::full([5, 7], value(i), device)).collect::<Result<_>>()?;
            all(&full)?;
            let mut held: Vec<Tensor> = full.iter().map(|x| x + 1.0).collect();
            all(&held)?;
            held = held.into_iter().zip(&full).map(|(held, x)| held.add(x)).collect::<Result<_>>()?;
            all(&held)?;
            let product = Tensor::ones([5, 3], device)?.matmul(&Tensor::ones([3, 7], device)?)?;
            let scaled: Vec<Tensor> = (0..n).map(|i| &product * value(i)).collect();
            drop(product);
            all(&scaled)?;
            for i in 0..n {
                let value = value(i) as f32;
                assert_eq!(full[i].to_vec::<f32>()?, [value; 35], "{name}: {i} of {n} values");
                assert_eq!(held[i].to_vec::<f32>()?, [2.0 * value + 1.0; 35], "{name}: {i} of {n} sums");
                assert_eq!(scaled[i].to_vec::<f32>()?, [3.0 * value; 35], "{name}: {i} of {n} products");
            }
        }
    }
    Ok(())
}
