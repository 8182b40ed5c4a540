//! Numbers that PyTorch produced (`scripts/torch_fixtures.py` writes them): operations and their gradients,
//! cross-entropy, SGD, and how tensors print.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;

use crate::common::{assert_close, device, has, of};
use serde::Deserialize;
use serde_json::Value;
use taper::nn::{CrossEntropyLoss, Reduction};
use taper::prelude::*;
use taper::{Scalar, grad};

#[derive(Deserialize)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    data: Vec<Value>,
}

/// JSON has no NaN or infinity: they are words there.
fn number(value: &Value) -> f64 {
    match value {
        Value::String(word) => word.parse().unwrap(),
        Value::Bool(b) => f64::from(u8::from(*b)),
        other => other.as_f64().unwrap(),
    }
}

fn numbers(values: &[Value]) -> Vec<f64> {
    values.iter().map(number).collect()
}

impl Array {
    pub(crate) fn values(&self) -> Vec<f64> {
        numbers(&self.data)
    }

    pub(crate) fn tensor(&self, dtype: DType) -> Result<Tensor> {
        of(&numbers(&self.data), &self.shape, dtype, &device())
    }
}

pub(crate) fn fixture<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    // The variable is set by cargo for a test; a program that runs on another machine has its own fixtures.
    let home = std::env::var("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    let path = format!("{home}/tests/fixtures/{name}.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[derive(Deserialize)]
struct Ops {
    cases: Vec<OpCase>,
}

#[derive(Deserialize)]
struct OpCase {
    op: String,
    args: HashMap<String, Value>,
    inputs: Vec<Array>,
    cotangent: Array,
    f32: Expected,
    f64: Expected,
}

#[derive(Deserialize)]
struct Expected {
    output: Vec<Value>,
    /// `null` where PyTorch has no gradient.
    grads: Vec<Option<Vec<Value>>>,
}

impl OpCase {
    fn axes(&self) -> taper::tensor_core::Axes {
        match self.args.get("axes").or(self.args.get("axis")) {
            Some(Value::Array(axes)) => axes.iter().map(|a| a.as_i64().unwrap()).collect::<Vec<_>>().into(),
            Some(Value::Number(axis)) => axis.as_i64().unwrap().into(),
            _ => (..).into(),
        }
    }

    fn run(&self, x: &[Tensor]) -> Result<Tensor> {
        let float = |name: &str| number(&self.args[name]);
        let keep = self.args.get("keepdim").and_then(Value::as_bool).unwrap_or(false);
        let axis = || self.args["axis"].as_i64().unwrap() as isize;
        let a = &x[0];
        Ok(match self.op.as_str() {
            "neg" => a.neg(),
            "abs" => a.abs(),
            "sign" => a.sign(),
            "exp" => a.exp(),
            "expm1" => a.expm1(),
            "sin" => a.sin(),
            "cos" => a.cos(),
            "tan" => a.tan(),
            "tanh" => a.tanh(),
            "sigmoid" => a.sigmoid(),
            "relu" => a.relu(),
            "erf" => a.erf(),
            "square" => a.powi(2),
            "log" => a.log(),
            "log1p" => a.log1p(),
            "sqrt" => a.sqrt(),
            "rsqrt" => a.rsqrt(),
            "reciprocal" => a.reciprocal(),
            "floor" => a.floor(),
            "ceil" => a.ceil(),
            "round" => a.round(),
            "trunc" => a.trunc(),
            "silu" => a.silu(),
            "gelu" if self.args.is_empty() => a.gelu(),
            "gelu" => a.gelu_tanh(),
            "softplus" => a.softplus(),
            "leaky_relu" => a.leaky_relu(float("negative_slope")),
            "elu" => a.elu(float("alpha")),
            "clamp" => a.clamp(float("min"), float("max")),
            "pow_scalar" => a.powf(float("exponent")),
            "add" => a.add(&x[1])?,
            "sub" => a.sub(&x[1])?,
            "mul" => a.mul(&x[1])?,
            "div" => a.div(&x[1])?,
            "maximum" => a.maximum(&x[1])?,
            "minimum" => a.minimum(&x[1])?,
            "pow" => a.pow(&x[1])?,
            "remainder" => a.remainder(&x[1])?,
            "floor_divide" => a.floor_divide(&x[1])?,
            "atan2" => a.atan2(&x[1])?,
            "where" => {
                let chosen: Vec<bool> =
                    self.args["condition"].as_array().unwrap().iter().map(|v| v.as_bool().unwrap()).collect();
                Tensor::from_vec(chosen.clone(), [chosen.len()], &device())?.where_cond(a, &x[1])?
            }
            "sum" => a.sum_axis(self.axes(), keep)?,
            "mean" => a.mean_axis(self.axes(), keep)?,
            "amax" | "max" => a.amax(self.axes(), keep)?,
            "amin" | "min" => a.amin(self.axes(), keep)?,
            "prod" => a.prod_axis(self.axes(), keep)?,
            "var" => a.var_axis(self.axes(), float("correction"), keep)?,
            "std" => a.std_axis(self.axes(), float("correction"), keep)?,
            "softmax" => a.softmax(axis())?,
            "log_softmax" => a.log_softmax(axis())?,
            "logsumexp" => a.logsumexp(axis(), keep)?,
            "cumsum" => a.cumsum(axis())?,
            "cumprod" => a.cumprod(axis())?,
            "logcumsumexp" => a.logcumsumexp(axis())?,
            "cummax" => a.cummax(axis())?.0,
            "cummin" => a.cummin(axis())?.0,
            "sort" => a.sort(axis(), self.args["descending"].as_bool().unwrap())?.0,
            "topk" => {
                let k = self.args["k"].as_u64().unwrap() as usize;
                a.topk(k, axis(), self.args["largest"].as_bool().unwrap())?.0
            }
            "matmul" => a.matmul(&x[1])?,
            "linear" => a.matmul(&x[1].t()?)?.add(&x[2])?,
            "layer_norm" => {
                let features = a.dims()[a.rank() - 1];
                taper::nn::functional::layer_norm(a, [features], Some(&x[1]), Some(&x[2]), float("eps"))?
            }
            other => panic!("the fixture has an operation this test does not know: {other}"),
        })
    }
}

#[test]
fn operations_and_their_gradients() -> Result<()> {
    let ops: Ops = fixture("ops");
    let mut checked = 0;
    for case in &ops.cases {
        // Where several are greatest, torch.max gives all of the gradient to one; ours is torch.amax.
        let ties = matches!(case.op.as_str(), "max" | "min");
        for (dtype, expected, within) in
            [(DType::F32, &case.f32, (6e-5, 6e-6)), (DType::F64, &case.f64, (1e-9, 1e-10))]
        {
            if !has(&device(), dtype) {
                continue;
            }
            let what = format!("{} {:?} in {dtype}", case.op, case.args);
            let x: Vec<Tensor> =
                case.inputs.iter().map(|i| Ok(i.tensor(dtype)?.requires_grad())).collect::<Result<_>>()?;
            let y = case.run(&x)?;
            assert_close(&y.to_f64_vec()?, &numbers(&expected.output), within, &what);
            y.mul(&case.cotangent.tensor(dtype)?)?.sum().backward()?;
            for (x, gradient) in x.iter().zip(&expected.grads) {
                let found = x.grad().unwrap_or_else(|| panic!("{what}: no gradient")).to_f64_vec()?;
                // Without a gradient in PyTorch, it is zero everywhere here.
                let zeros = vec![Value::from(0.0); found.len()];
                let gradient = gradient.as_ref().unwrap_or(&zeros);
                if !ties {
                    assert_close(&found, &numbers(gradient), within, &format!("gradient of {what}"));
                }
            }
            checked += 1;
        }
    }
    assert!(checked >= 100, "{checked}");
    Ok(())
}

#[derive(Deserialize)]
struct Orders {
    cases: Vec<OrderCase>,
}

#[derive(Deserialize)]
struct OrderCase {
    dtype: String,
    input: Array,
    axis: isize,
    ascending: Vec<i32>,
    descending: Vec<i32>,
    cummax: Vec<i32>,
    cummin: Vec<i32>,
}

fn dtype_of(name: &str) -> (DType, &'static str) {
    match name {
        "float32" => (DType::F32, "f32"),
        "float64" => (DType::F64, "f64"),
        "float16" => (DType::F16, "f16"),
        "bfloat16" => (DType::BF16, "bf16"),
        "int64" => (DType::I64, "i64"),
        "int32" => (DType::I32, "i32"),
        "uint8" => (DType::U8, "u8"),
        _ => (DType::Bool, "bool"),
    }
}

#[test]
fn indices_among_equals_and_nan() -> Result<()> {
    let orders: Orders = fixture("order");
    assert!(orders.cases.len() >= 20);
    for case in &orders.cases {
        let (dtype, name) = dtype_of(&case.dtype);
        if !has(&device(), dtype) {
            continue;
        }
        let x = case.input.tensor(dtype)?;
        let what = format!("{name} along {}", case.axis);
        assert_eq!(x.argsort(case.axis, false)?.to_vec::<i32>()?, case.ascending, "argsort, {what}");
        assert_eq!(x.argsort(case.axis, true)?.to_vec::<i32>()?, case.descending, "descending, {what}");
        assert_eq!(x.cummax(case.axis)?.1.to_vec::<i32>()?, case.cummax, "cummax, {what}");
        assert_eq!(x.cummin(case.axis)?.1.to_vec::<i32>()?, case.cummin, "cummin, {what}");
        let order = Tensor::from_slice(&case.descending, case.input.shape.as_slice(), &device())?;
        let first = order.narrow(case.axis, 0, 2)?.to_vec::<i32>()?;
        assert_eq!(x.topk(2, case.axis, true)?.1.to_vec::<i32>()?, first, "topk, {what}");
    }
    Ok(())
}

#[derive(Deserialize)]
struct Edges {
    cases: Vec<EdgeCase>,
}

#[derive(Deserialize)]
struct EdgeCase {
    op: String,
    args: HashMap<String, Value>,
    dtype: String,
    input: Array,
    output_dtype: String,
    output: Array,
    grad: Option<Vec<Value>>,
}

impl EdgeCase {
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        let scalar = |name: &str| match &self.args[name] {
            Value::Bool(b) => Scalar::Bool(*b),
            whole if whole.is_i64() => Scalar::Int(whole.as_i64().unwrap()),
            other => Scalar::Float(number(other)),
        };
        let axis = || self.args["axis"].as_i64().unwrap() as isize;
        let twice = |f: &dyn Fn(&Tensor) -> Result<Tensor>| -> Result<Tensor> {
            let x = x.detach().requires_grad();
            let weights = numbers(self.args["weights"].as_array().unwrap());
            let weights = of(&weights, &[weights.len()], x.dtype(), &device())?;
            let first = grad(&[&f(&x)?.sum()], &[&x], true)?.remove(0).unwrap();
            let second = grad(&[&first.mul(&weights)?.sum()], &[&x], false)?.remove(0);
            Ok(second.unwrap_or_else(|| x.zeros_like()))
        };
        Ok(match self.op.as_str() {
            "sign" => x.sign(),
            "abs" => x.abs(),
            "relu" => x.relu(),
            "logical_not" => x.logical_not(),
            "bitwise_not" => x.bitwise_not()?,
            "clamp" => x.clamp(scalar("min"), scalar("max")),
            "pow_scalar" => x.pow_scalar(scalar("exponent")),
            "logsumexp" => x.logsumexp(axis(), false)?,
            "prod" => twice(&|x| x.prod_axis(axis(), false))?,
            "cumprod" => twice(&|x| x.cumprod(axis()))?,
            other => panic!("{other} is not known here"),
        })
    }
}

/// Signs of zeros, NaN, bounds beyond the dtype, products with zeros differentiated twice.
#[test]
fn numbers_at_the_edges() -> Result<()> {
    let edges: Edges = fixture("edges");
    assert!(edges.cases.len() > 40);
    for case in &edges.cases {
        let ((dtype, name), (output_dtype, _)) = (dtype_of(&case.dtype), dtype_of(&case.output_dtype));
        if !has(&device(), dtype) || !has(&device(), output_dtype) {
            continue;
        }
        let what = format!("{} of {name} {:?} {:?}", case.op, case.input.data, case.args);
        let x = case.input.tensor(dtype)?;
        let x = if case.grad.is_some() { x.requires_grad() } else { x };
        let y = case.run(&x)?;
        assert_eq!((y.dtype(), y.dims()), (output_dtype, case.output.shape.as_slice()), "{what}");
        let (found, expected) = (y.to_f64_vec()?, numbers(&case.output.data));
        assert_close(&found, &expected, (1e-6, 0.0), &what);
        for (f, e) in found.iter().zip(&expected) {
            assert!(*e != 0.0 || f.is_sign_negative() == e.is_sign_negative(), "{what}: {f}, expected {e}");
        }
        if let Some(expected) = &case.grad {
            y.sum().backward()?;
            let gradient = x.grad().unwrap().to_f64_vec()?;
            assert_close(&gradient, &numbers(expected), (1e-6, 0.0), &format!("gradient of {what}"));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct CrossEntropies {
    inputs: Vec<EntropyInput>,
    cases: Vec<EntropyCase>,
}

#[derive(Deserialize)]
struct EntropyInput {
    logits: Array,
    targets: Array,
    weight: Vec<Value>,
    cotangent: Array,
}

#[derive(Deserialize)]
struct EntropyCase {
    input: usize,
    reduction: String,
    label_smoothing: f64,
    ignore_index: i64,
    weighted: bool,
    loss: Array,
    grad: Vec<Value>,
    /// In place of the input's.
    targets: Option<Vec<i32>>,
}

#[test]
fn cross_entropy_with_every_option() -> Result<()> {
    let all: CrossEntropies = fixture("cross_entropy");
    assert!(all.cases.len() > 40);
    for case in &all.cases {
        let input = &all.inputs[case.input];
        let what = format!(
            "{} of input {} smoothing {} ignoring {} weighted {}",
            case.reduction, case.input, case.label_smoothing, case.ignore_index, case.weighted
        );
        let logits = input.logits.tensor(DType::F32)?.requires_grad();
        let weight = of(&numbers(&input.weight), &[input.weight.len()], DType::F32, &device())?;
        let targets = match &case.targets {
            Some(given) => Tensor::from_slice(given, input.targets.shape.as_slice(), &device())?,
            None => input.targets.tensor(DType::I32)?,
        };
        let loss = CrossEntropyLoss {
            reduction: match case.reduction.as_str() {
                "mean" => Reduction::Mean,
                "sum" => Reduction::Sum,
                _ => Reduction::None,
            },
            label_smoothing: case.label_smoothing,
            ignore_index: Some(case.ignore_index),
            weight: case.weighted.then_some(weight),
        }
        .forward(&logits, &targets)?;
        assert_close(&loss.to_f64_vec()?, &numbers(&case.loss.data), (3e-5, 3e-5), &what);
        match loss.rank() {
            0 => loss.backward()?,
            _ => loss.backward_with(&input.cotangent.tensor(DType::F32)?)?,
        }
        let gradient = logits.grad().unwrap().to_f64_vec()?;
        assert_close(&gradient, &numbers(&case.grad), (3e-5, 3e-6), &format!("gradient of {what}"));
    }
    Ok(())
}

#[derive(Deserialize)]
struct SgdRuns {
    steps: usize,
    initial: HashMap<String, Array>,
    inputs: Array,
    targets: Vec<i32>,
    cases: Vec<SgdCase>,
}

#[derive(Deserialize)]
struct SgdCase {
    name: String,
    dtype: String,
    options: SgdOptions,
    losses: Vec<f64>,
    #[serde(rename = "final")]
    last: HashMap<String, Array>,
}

#[derive(Deserialize)]
struct SgdOptions {
    lr: f64,
    momentum: f64,
    dampening: f64,
    weight_decay: f64,
    nesterov: bool,
    maximize: bool,
}

#[derive(Module)]
struct SimpleNet {
    fc1: Linear,
    fc2: Linear,
}

#[test]
fn twenty_steps_of_sgd_give_pytorchs_weights() -> Result<()> {
    let runs: SgdRuns = fixture("sgd");
    let d = device();
    assert!(runs.cases.len() >= 10);
    for case in &runs.cases {
        let (dtype, within) = match case.dtype.as_str() {
            "float32" => (DType::F32, (0.0, 1e-5)),
            _ => (DType::F64, (0.0, 1e-10)),
        };
        // Linear layers are made in f32; the double runs are checked in f32 as well, to its precision.
        let within = if dtype == DType::F64 { (0.0, 1e-5) } else { within };
        let rng = Generator::seed(0, &d);
        let net = SimpleNet { fc1: Linear::new(8, 6, &rng)?, fc2: Linear::new(6, 4, &rng)? };
        let state = runs
            .initial
            .iter()
            .map(|(name, a)| Ok((name.clone(), a.tensor(DType::F32)?)))
            .collect::<Result<taper::nn::StateDict>>()?;
        net.load_state_dict(&state)?;
        let o = &case.options;
        let mut sgd = Sgd::new(
            net.parameters(),
            SgdConfig {
                lr: o.lr,
                momentum: o.momentum,
                dampening: o.dampening,
                weight_decay: o.weight_decay,
                nesterov: o.nesterov,
                maximize: o.maximize,
            },
        );
        let x = runs.inputs.tensor(DType::F32)?;
        let targets = Tensor::from_slice(&runs.targets, [runs.targets.len()], &d)?;
        let mut losses = Vec::new();
        for _ in 0..runs.steps {
            sgd.zero_grad();
            let loss = cross_entropy(&net.fc2.forward(&net.fc1.forward(&x)?.relu())?, &targets)?;
            loss.backward()?;
            sgd.step()?;
            losses.push(f64::from(loss.item::<f32>()?));
        }
        assert_close(&losses, &case.losses, (2e-5, 1e-5), &format!("losses of {}", case.name));
        for (name, parameter) in net.named_parameters() {
            let expected = numbers(&case.last[&name].data);
            assert_close(&parameter.to_f64_vec()?, &expected, within, &format!("{name} of {}", case.name));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Prints {
    cases: Vec<PrintCase>,
}

#[derive(Deserialize)]
struct PrintCase {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    data: Vec<Value>,
    text: String,
}

#[test]
fn tensors_print_as_pytorchs_do() -> Result<()> {
    let prints: Prints = fixture("print");
    // Elsewhere the device is printed too, which may break lines at other places.
    let d = taper::cpu();
    for case in &prints.cases {
        let (dtype, name) = dtype_of(&case.dtype);
        let expected = case.text.replace(&format!("torch.{}", case.dtype), name);
        let found = of(&numbers(&case.data), &case.shape, dtype, &d)?.to_string();
        assert_eq!(found, expected, "{}", case.name);
    }
    Ok(())
}

#[test]
fn printing_says_device_and_history() -> Result<()> {
    let d = device();
    let x = Tensor::arange(1.0, 4.0, 1.0, &d)?.requires_grad();
    let on = if d.name() == "cpu" { String::new() } else { format!(", device={d}") };
    assert_eq!(x.to_string(), format!("tensor([1., 2., 3.]{on}, requires_grad=True)"));
    let y = ((&x + 2.0).powi(2) + 3.0).mean();
    assert_eq!(format!("{y:?}"), format!("tensor(19.6667{on}, grad_fn=Mean)"));
    assert_eq!(y.detach().to_string(), format!("tensor(19.6667{on})"));
    Ok(())
}
