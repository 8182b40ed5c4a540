//! Every operation of the graph, of which all others consist, in the types that it has: exported, read
//! again and compared. Those that ONNX cannot express are in `operations_without_form.tsv` with the reason;
//! an operation that could be exported must not be in the list.

use std::collections::BTreeMap;

use tensor_core::{
    ArgReduceOp, BinaryOp, CompareOp, CumulativeOp, DType, Device, Formula, ReduceOp, Result, ScatterOp,
    Tensor, UnaryOp,
};

use crate::{devices, export::Nothing, round_trip::RoundTrip};

type Run = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// A function of tensors with its inputs.
struct Case {
    name: String,
    inputs: Vec<Tensor>,
    run: Box<Run>,
}

fn case(name: String, inputs: Vec<Tensor>, run: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + 'static) -> Case {
    Case { name, inputs, run: Box::new(run) }
}

/// Numbers of a type: quarters between −2 and 2, or small integers.
fn numbers(shape: &[usize], dtype: DType, seed: usize, device: &Device) -> Tensor {
    let count = shape.iter().product();
    let at = |k: usize| ((k * 7 + seed * 5) % 17) as f64;
    let value = |k: usize| match dtype {
        DType::Bool => f64::from(u8::from((k + seed).is_multiple_of(3))),
        dtype if dtype.is_float() => at(k) / 4.0 - 1.875,
        DType::I32 | DType::I64 => at(k) - 8.0,
        _ => at(k),
    };
    let values: Vec<f64> = (0..count).map(value).collect();
    Tensor::new(values, (DType::F32, device))
        .unwrap()
        .to_dtype(dtype)
        .unwrap()
        .reshape(shape)
        .unwrap()
        .detach()
}

const FLOATS: [DType; 2] = [DType::F32, DType::F16];
const INTS: [DType; 3] = [DType::I32, DType::U8, DType::I64];

fn unary_types(op: UnaryOp) -> Vec<DType> {
    match op {
        UnaryOp::Not => vec![DType::Bool, DType::I32, DType::U8],
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign => [&FLOATS[..], &INTS].concat(),
        _ => FLOATS.to_vec(),
    }
}

fn binary_types(op: BinaryOp) -> Vec<DType> {
    match op {
        BinaryOp::Div | BinaryOp::Atan2 => FLOATS.to_vec(),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => [&INTS[..], &[DType::Bool]].concat(),
        BinaryOp::LeftShift | BinaryOp::RightShift | BinaryOp::Gcd => INTS.to_vec(),
        BinaryOp::Add | BinaryOp::Mul | BinaryOp::Maximum | BinaryOp::Minimum => {
            [&FLOATS[..], &INTS, &[DType::Bool]].concat()
        }
        BinaryOp::Sub | BinaryOp::FloorDiv | BinaryOp::Remainder | BinaryOp::Pow => {
            [&FLOATS[..], &INTS].concat()
        }
    }
}

fn elementwise(device: &Device) -> Vec<Case> {
    let mut cases = Vec::new();
    for &op in UnaryOp::ALL {
        for dtype in unary_types(op) {
            let x = numbers(&[3, 4], dtype, 1, device);
            cases.push(case(format!("{} of {dtype}", op.name()), vec![x], move |x| Ok(vec![x[0].unary(op)])));
        }
    }
    for &formula in Formula::ALL {
        for dtype in FLOATS {
            let x = numbers(&[3, 4], dtype, 1, device);
            let name = format!("{formula:?} of {dtype}");
            cases.push(case(name, vec![x], move |x| Ok(vec![x[0].formula(formula)])));
        }
    }
    for &op in BinaryOp::ALL {
        for dtype in binary_types(op) {
            let inputs = vec![numbers(&[3, 4], dtype, 1, device), numbers(&[4], dtype, 2, device)];
            let name = format!("{} of {dtype}", op.name());
            cases.push(case(name, inputs, move |x| Ok(vec![x[0].binary(op, &x[1])?])));
        }
    }
    for &op in CompareOp::ALL {
        for dtype in [DType::F32, DType::I32, DType::U8, DType::Bool] {
            let inputs = vec![numbers(&[3, 4], dtype, 1, device), numbers(&[4], dtype, 2, device)];
            let name = format!("{} of {dtype}", op.name());
            cases.push(case(name, inputs, move |x| Ok(vec![x[0].compare(op, &x[1])?])));
        }
    }
    for power in [-3, -1, 0, 2, 3] {
        let x = numbers(&[3, 4], DType::F32, 1, device);
        cases.push(case(format!("powi {power}"), vec![x], move |x| Ok(vec![x[0].powi(power)])));
    }
    cases
}

fn reductions(device: &Device) -> Vec<Case> {
    let mut cases = Vec::new();
    for &op in ReduceOp::ALL {
        let types = match op {
            ReduceOp::Any | ReduceOp::All => vec![DType::Bool],
            _ => vec![DType::F32, DType::F16, DType::I32, DType::U8],
        };
        for dtype in types {
            let x = numbers(&[2, 3, 4], dtype, 1, device);
            let run = move |x: &[Tensor]| {
                let (all, one) = (x[0].reduce(op, [0usize, 2].as_slice(), true)?, x[0].reduce(op, 1, false)?);
                Ok(vec![all, one])
            };
            cases.push(case(format!("{} of {dtype}", op.name()), vec![x], run));
        }
    }
    for &op in ArgReduceOp::ALL {
        for dtype in [DType::F32, DType::I32, DType::U8] {
            let x = numbers(&[2, 3, 4], dtype, 1, device);
            let run =
                move |x: &[Tensor]| Ok(vec![x[0].arg_reduce(op, 1, true)?, x[0].arg_reduce(op, 2, false)?]);
            cases.push(case(format!("{} of {dtype}", op.name()), vec![x], run));
        }
    }
    for &op in CumulativeOp::ALL {
        for reverse in [false, true] {
            let x = numbers(&[2, 3, 4], DType::F32, 1, device);
            let run = move |x: &[Tensor]| {
                Ok(vec![x[0].cumulative(op, 1, reverse)?, x[0].cumulative(op, 2, reverse)?])
            };
            cases.push(case(format!("{}, reverse {reverse}", op.name()), vec![x], run));
        }
    }
    for descending in [false, true] {
        for dtype in [DType::F32, DType::I32, DType::U8] {
            let x = numbers(&[2, 3, 4], dtype, 1, device);
            let run =
                move |x: &[Tensor]| x[0].sort(1, descending).map(|(values, places)| vec![values, places]);
            cases.push(case(format!("sort of {dtype}, descending {descending}"), vec![x], run));
        }
    }
    cases
}

fn movement(device: &Device) -> Vec<Case> {
    let x = || vec![numbers(&[2, 3, 4], DType::F32, 1, device)];
    let of = |name: &str, run: fn(&Tensor) -> Result<Tensor>| {
        case(name.into(), x(), move |x| Ok(vec![run(&x[0])?]))
    };
    vec![
        of("reshape", |x| x.reshape([6, 4])),
        of("permute", |x| x.permute([2, 0, 1])),
        of("expand", |x| x.unsqueeze(1)?.expand([2, 5, 3, 4])),
        of("narrow", |x| x.narrow(2, 1, 2)),
        of("flip", |x| x.flip(1)),
        of("step", |x| x.slice_step(2, .., 2)),
        of("windows", |x| x.windows(1, 2, 1, 1)),
        of("windows of a step", |x| x.windows(2, 2, 2, 1)),
        of("concat", |x| Tensor::concat(&[x, &x.neg()], 1)),
        of("stack", |x| Tensor::stack(&[x, x], 0)),
        of("pad", |x| x.pad(&[(0, 1), (2, 0), (1, 1)], 7.0)),
        of("pad of bools", |x| x.gt_scalar(0.0).pad(&[(0, 1), (2, 0), (1, 1)], true)),
        of("roll", |x| x.roll(1, 1)),
        of("triu", |x| x.triu(1)),
        of("repeat", |x| x.repeat([1, 2, 1])),
        of("cast", |x| x.to_dtype(DType::I32)),
        of("to bool", |x| x.to_dtype(DType::Bool)),
        of("matmul", |x| x.matmul(&x.transpose(1, 2)?)),
        of("einsum", |x| Tensor::einsum("nij,nkj->ikn", &[x, x])),
        of("var", |x| x.var_axis(1, 1.0, false)),
        of("logsumexp", |x| x.logsumexp(2, true)),
        of("softmax", |x| x.softmax(1)),
        of("where", |x| x.gt_scalar(0.0).where_cond(x, &x.exp())),
        of("clamp", |x| Ok(x.clamp(-0.5, 1.0))),
        of("arange", |x| x.add(&Tensor::arange(0.5, 2.5, 0.5, &x.device())?)),
        of("linear", |x| nn::functional::linear(x, &x.select(0, 0)?, None)),
    ]
}

fn indexing(device: &Device) -> Vec<Case> {
    let x = || numbers(&[3, 4], DType::F32, 1, device);
    let index = || Tensor::new([[0i32, 2, 1, 2], [1, 1, 0, 0]], device).unwrap();
    let line = || Tensor::new([2i32, 0, 0], device).unwrap();
    let mut cases = vec![
        case("gather".into(), vec![x(), index()], |x| Ok(vec![x[0].gather(0, &x[1])?])),
        case("index_select".into(), vec![x(), line()], |x| Ok(vec![x[0].index_select(1, &x[1])?])),
        case("one_hot".into(), vec![line()], |x| Ok(vec![x[0].one_hot(4)?])),
    ];
    for &op in ScatterOp::ALL {
        let inputs = vec![
            x(),
            Tensor::new([[0i32, 2, 1, 2]], device).unwrap(),
            numbers(&[1, 4], DType::F32, 3, device),
        ];
        let run = move |x: &[Tensor]| Ok(vec![x[0].scatter_with(op, 0, &x[1], &x[2])?]);
        cases.push(case(op.name().into(), inputs, run));
    }
    cases
}

#[test]
fn every_operation_is_exported_or_listed_with_a_reason() {
    let list = include_str!("operations_without_form.tsv");
    let listed: BTreeMap<&str, &str> = list.lines().filter_map(|line| line.split_once('\t')).collect();
    for device in devices() {
        let groups = [elementwise(&device), reductions(&device), movement(&device), indexing(&device)];
        let (mut wrong, mut exported) = (Vec::new(), 0);
        for (number, case) in groups.into_iter().flatten().enumerate() {
            // A GPU compiles kernels for each case, so it takes one type of each kind.
            let is_tried = |input: &Tensor| match input.dtype() {
                DType::F32 | DType::I32 | DType::Bool => true,
                dtype => device.name() == "cpu" && device.supports(dtype),
            };
            if !case.inputs.iter().all(is_tried) {
                continue;
            }
            let half = case.inputs.iter().any(|input| input.dtype() == DType::F16);
            let name = format!("operation{number}");
            let trip = RoundTrip {
                name: &name,
                inputs: case.inputs,
                tolerance: if half { 1e-2 } else { 2e-4 },
                ..Default::default()
            };
            match (trip.run(&Nothing, |_, x| (case.run)(x)), listed.contains_key(case.name.as_str())) {
                (Ok(_), false) => exported += 1,
                (Err(_), true) => {}
                (Ok(_), true) => wrong.push(format!("{}\tis exported: take it out of the list", case.name)),
                (Err(why), false) => wrong.push(format!("{}\t{why}", case.name)),
            }
        }
        eprintln!("{}: {exported} operations exported, {} listed", device.name(), listed.len());
        assert!(wrong.is_empty(), "{}: {} operations:\n{}", device.name(), wrong.len(), wrong.join("\n"));
    }
}
