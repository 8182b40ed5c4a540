//! Work that is an expression of its inputs, written in Rust and in PyTorch's Python. Both sides get the same
//! inputs, by way of files, and a clock for each; their results are compared once. Without PyTorch, Taper's
//! results are compared with the same expression in f64 on the CPU, or by what defines them.

use std::{fs, path::Path, rc::Rc, time::Duration};

use serde_json::{Value, json};
use taper::{DType, Device, Generator, Tensor, eval_all, prelude::TensorGrad};
use taper_operations::row::Given;
use taper_testing::tolerance;

use crate::{
    Result, SETTLE,
    case::{Bench, Call, Case, Compared, time},
    line::Line,
    peer::Peer,
};

/// Prefix of the names of rows of the table of operations; only a filter that begins with `ops` selects them.
pub(crate) const PREFIX: &str = "ops_";
/// Where a line has PyTorch's expression, and the shapes of its inputs.
pub(crate) const TORCH: &str = "torch";
pub(crate) const SHAPES: &str = "shapes";
/// Seconds for each side of a row of the table of operations at most: there are hundreds of them.
const BUDGET: f64 = 0.3;
/// One element in this many may differ from PyTorch's: a jump between two numbers, or the order of two equal
/// elements, depends on the last bit.
const ONE_IN: usize = 20_000;
/// How many times farther from the results in f64 a GPU's may be: its functions are less exact.
const GPU_TOLERANCE: f64 = 100.0;

/// An input at full size.
pub(crate) struct Large {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Fill,
}

/// The values of an input.
#[derive(Clone)]
pub(crate) enum Fill {
    /// Uniform numbers between two bounds.
    Between(f64, f64),
    /// Whole numbers below a bound.
    Whole(usize),
    /// Indices below a bound.
    Index(usize),
    /// Indices below a bound, none of them twice.
    Distinct(usize),
    /// Rows of uniform numbers on [0, 1) that ascend.
    Sorted,
    /// True and false.
    Mask,
    /// These numbers, over and over.
    Cycle(Vec<f64>),
    /// A symmetric positive definite matrix `A·Aᵀ + n`.
    Definite,
}

/// How results are checked.
pub(crate) enum Check {
    /// The first of these many are compared with PyTorch's, where PyTorch runs.
    Peer(usize),
    /// As [`Check::Peer`], and with those of the same expression in f64 on the CPU.
    Twin,
    /// By what defines them, since they are not the only right ones.
    Law(Law),
    /// They are random.
    Nothing,
}

/// The equations of inputs and results, both in f64 on the CPU.
pub(crate) type Law = fn(&[Tensor], &[Tensor]) -> taper::Result<Vec<Equation>>;

/// Two tensors whose elements are equal up to `allowed`.
pub(crate) struct Equation {
    pub(crate) what: &'static str,
    pub(crate) got: Tensor,
    pub(crate) want: Tensor,
    pub(crate) allowed: f64,
}

/// How near results must be to the expected ones.
#[derive(Clone, Copy)]
struct Within {
    /// The first of these many results are compared.
    compared: usize,
    /// How many times the tolerance of the expression they may be off.
    factor: f64,
    /// One element in this many may be anything.
    one_in: usize,
}

type Run = Rc<dyn Fn(&Given) -> taper::Result<Vec<Tensor>>>;

/// An expression at full size.
pub(crate) struct Expression {
    pub(crate) run: Run,
    /// The same in Python, of `x`, `y`, `z` and `w`.
    pub(crate) torch: String,
    pub(crate) inputs: Vec<Large>,
    /// The dtype of inputs that are no indices and no masks.
    pub(crate) dtype: DType,
    /// Whether the last input is a weight for each element of the result, and the results are the gradients
    /// of the weighted sum with respect to all other inputs of floats.
    pub(crate) gradients: bool,
    /// Whether PyTorch compiles it.
    pub(crate) compiled: bool,
    pub(crate) check: Check,
    /// How many times the tolerance of the dtype the results may be off.
    pub(crate) loose: f64,
    /// Whether it works element by element, so that the error of an element is compared with that element.
    pub(crate) pointwise: bool,
}

impl Compared for Expression {
    fn run(&self, bench: &Bench, case: &Case, peer: Option<&mut Peer>) -> (Line, Option<Line>) {
        let mut lines = self.try_run(bench, case, peer).unwrap_or_else(|error| {
            let wrong = Some(error.to_string());
            (Line { peer: "taper".into(), case: case.name.clone(), wrong, ..Line::default() }, None)
        });
        if case.name.starts_with(PREFIX) {
            let shapes: Vec<String> = self.inputs.iter().map(|input| shape(&input.shape)).collect();
            lines.0.extra.insert(TORCH.into(), self.torch.clone().into());
            lines.0.extra.insert(SHAPES.into(), shapes.join(", ").into());
        }
        lines.0.device = Some(bench.device.name().into());
        lines.0.threads = Some(bench.threads);
        bench.device.empty_cache();
        lines
    }

    fn call(&self, _models: Option<&Path>, device: &Device) -> Result<Call> {
        Ok(self.call_of(self.tensors(device)?, self.dtype, device))
    }
}

impl Expression {
    fn try_run(&self, bench: &Bench, case: &Case, peer: Option<&mut Peer>) -> Result<(Line, Option<Line>)> {
        let most = if case.name.starts_with(PREFIX) { BUDGET } else { f64::INFINITY };
        let budget = Duration::from_secs_f64(bench.budget.as_secs_f64().min(most));
        let inputs = self.tensors(&bench.device)?;
        let folder = tempfile::tempdir()?;
        let mut question = json!({
            "case": case.name, "torch": self.torch, "gradients": self.gradients, "compiled": self.compiled,
            "flop": case.cost.flop, "ops": case.cost.ops,
            "reps": [case.cost.reps.start(), case.cost.reps.end()], "budget": budget.as_secs_f64(),
            "folder": folder.path().to_string_lossy(), "inputs": [],
        });
        if peer.is_some() {
            let files = inputs.iter().enumerate().map(|(k, input)| write(folder.path(), k, input));
            question["inputs"] = files.collect::<Result<Vec<Value>>>()?.into();
            std::thread::sleep(SETTLE);
        }
        let mut call = self.call_of(inputs.clone(), self.dtype, &bench.device);
        let (times, results) = time(&bench.device, &mut call, case.cost.reps.clone(), budget)?;
        drop(call);
        let mut ours = bench.line(case, &times);
        ours.wrong = self.fault(&inputs, &results)?;
        let Some(peer) = peer else { return Ok((ours, None)) };
        std::thread::sleep(SETTLE);
        let mut theirs = peer.ask_question(&case.name, &question.to_string())?;
        let compared = match self.check {
            Check::Peer(first) => first,
            Check::Twin => usize::MAX,
            Check::Law(_) | Check::Nothing => 0,
        };
        let within = Within { compared, factor: 1.0, one_in: ONE_IN };
        let fault = |answer: Option<Value>| -> Result<Option<String>> {
            match answer {
                Some(Value::Array(files)) if compared > 0 => {
                    let read = |(k, file)| read(folder.path(), k, file);
                    let expected = files.iter().enumerate().map(read).collect::<Result<Vec<_>>>()?;
                    self.difference(&results, &expected, within)
                }
                _ => Ok(None),
            }
        };
        if let Some(what) = fault(theirs.extra.remove("results"))? {
            // A long sum of f32 may be PyTorch's to lose digits in: its answer in f64 decides.
            question["wide"] = true.into();
            let wide = peer.ask_question(&case.name, &question.to_string())?.extra.remove("results");
            if wide.is_none() || fault(wide)?.is_some() {
                ours.wrong.get_or_insert(format!("unlike PyTorch's: {what}"));
            }
        }
        Ok((ours, Some(theirs)))
    }

    fn call_of(&self, tensors: Vec<Tensor>, dtype: DType, device: &Device) -> Call {
        let run = Rc::clone(&self.run);
        let mut given = Given { tensors, dtype, device: device.clone() };
        let mut leaves = Vec::new();
        let factors = given.tensors.pop_if(|_| self.gradients);
        for tensor in given.tensors.iter_mut().filter(|tensor| self.gradients && tensor.dtype().is_float()) {
            *tensor = tensor.detach().requires_grad();
            leaves.push(tensor.clone());
        }
        Box::new(move || {
            let mut results = run(&given)?;
            match (&factors, results.pop()) {
                (Some(factors), Some(result)) => return with_gradients(result, factors, &leaves),
                (_, last) => results.extend(last),
            }
            eval_all(&results.iter().collect::<Vec<_>>())?;
            Ok(results)
        })
    }

    fn tensors(&self, device: &Device) -> Result<Vec<Tensor>> {
        let rng = Generator::seed(0, device);
        self.inputs.iter().map(|input| self.tensor(input, &rng)).collect()
    }

    /// An input in the device's memory.
    fn tensor(&self, input: &Large, rng: &Generator) -> Result<Tensor> {
        let (shape, device) = (input.shape.clone(), rng.device());
        let last = input.shape.last().copied().unwrap_or(1);
        let below = |bound: usize| -> Result<Tensor> {
            Ok(Tensor::randint(0, i32::try_from(bound)?, input.shape.clone(), rng)?)
        };
        let tensor = match &input.values {
            Fill::Between(low, high) if self.dtype.is_float() => {
                Tensor::uniform(shape, *low, *high, rng)?.to_dtype(self.dtype)?
            }
            // As rows have it, integers are between four times the bounds.
            Fill::Between(low, high) => {
                Tensor::uniform(shape, low * 4.0, high * 4.0, rng)?.to_dtype(self.dtype)?
            }
            Fill::Mask => Tensor::rand(shape, rng)?.lt_scalar(0.5),
            Fill::Whole(bound) => below(*bound)?.to_dtype(self.dtype)?,
            Fill::Index(bound) => below(*bound)?,
            Fill::Definite => {
                let a = Tensor::uniform(shape, -0.5, 0.5, rng)?;
                a.matmul(&a.t()?)?.add(&Tensor::eye(last, device)?.mul_scalar(last as f64))?
            }
            Fill::Distinct(bound) => Tensor::randperm(*bound, rng)?.narrow(0, 0, last)?,
            Fill::Sorted => Tensor::rand(shape, rng)?.sort(-1, false)?.0,
            Fill::Cycle(values) => {
                let n = input.shape.iter().product();
                let values = values.iter().map(|&v| v as f32).cycle().take(n).collect();
                Tensor::from_vec(values, shape, device)?.to_dtype(self.dtype)?
            }
        };
        tensor.eval()?;
        Ok(tensor)
    }

    /// The fault of the results, in words, as far as it is seen without PyTorch.
    fn fault(&self, inputs: &[Tensor], results: &[Tensor]) -> Result<Option<String>> {
        let cpu = taper::cpu();
        let wide = |tensors: &[Tensor]| -> Result<Vec<Tensor>> {
            let widened = tensors.iter().map(|tensor| {
                let here = tensor.detach().to(&cpu)?;
                if here.dtype().is_float() { here.to_dtype(DType::F64) } else { Ok(here) }
            });
            Ok(widened.collect::<taper::Result<_>>()?)
        };
        match self.check {
            Check::Peer(_) | Check::Nothing => Ok(None),
            Check::Twin => {
                let twin = self.call_of(wide(inputs)?, DType::F64, &cpu)()?;
                let expected = twin.iter().map(|tensor| Ok((tensor.dims().to_vec(), tensor.to_f64_vec()?)));
                let factor = if results.iter().all(|r| r.device() == cpu) { 1.0 } else { GPU_TOLERANCE };
                let within = Within { compared: usize::MAX, factor, one_in: usize::MAX };
                self.difference(results, &expected.collect::<Result<Vec<_>>>()?, within)
            }
            Check::Law(law) => {
                for Equation { what, got, want, allowed } in law(&wide(inputs)?, &wide(results)?)? {
                    let off = got.sub(&want)?.abs().max()?.item_f64()?;
                    if off.is_nan() || off > allowed {
                        return Ok(Some(format!("{what} is off by {off}, where {allowed} is allowed")));
                    }
                }
                Ok(None)
            }
        }
    }

    /// The first result that is not the expected one, in words.
    fn difference(
        &self,
        ours: &[Tensor],
        expected: &[(Vec<usize>, Vec<f64>)],
        Within { compared, factor, one_in }: Within,
    ) -> Result<Option<String>> {
        if ours.len() != expected.len() {
            return Ok(Some(format!("{} results, {} are expected", ours.len(), expected.len())));
        }
        for (k, (ours, (shape, expected))) in ours.iter().zip(expected).enumerate().take(compared) {
            if ours.dims() != shape {
                return Ok(Some(format!("result {k} is {}, expected {shape:?}", ours.shape())));
            }
            let found = ours.to_f64_vec()?;
            let (rtol, atol) = if ours.dtype().is_float() { tolerance(ours.dtype()) } else { (0.0, 0.0) };
            // The terms of sums may cancel, so the error is compared with the size of the whole result.
            let largest =
                expected.iter().filter(|v| v.is_finite()).fold(0.0, |most: f64, v| most.max(v.abs()));
            let atol = if self.pointwise { atol } else { atol.max(rtol * largest) };
            let close = |f: f64, e: f64| {
                f == e
                    || (f.is_nan() && e.is_nan())
                    || (f - e).abs() <= factor * self.loose * (rtol * e.abs() + atol)
            };
            let mut others = found.iter().zip(expected).enumerate().filter(|(_, (f, e))| !close(**f, **e));
            if let Some((i, (f, e))) = others.next() {
                let count = 1 + others.count();
                if count > expected.len() / one_in {
                    let of = expected.len();
                    return Ok(Some(format!(
                        "result {k}: {count} of {of} elements differ: element {i} is {f}, expected {e}"
                    )));
                }
            }
        }
        Ok(None)
    }
}

/// The gradients of the sum of `result` weighted by `factors` with respect to `leaves`; the sum is computed
/// too. The graph is not kept for a second pass, as with PyTorch's `grad`.
fn with_gradients(result: Tensor, factors: &Tensor, leaves: &[Tensor]) -> taper::Result<Vec<Tensor>> {
    let missing = || taper::Error::invalid("bench", "an input without a gradient");
    let sum = result.mul(factors)?.sum();
    let gradients: Option<Vec<Tensor>> = taper::grad(&[&sum], leaves, false)?.into_iter().collect();
    let mut all = gradients.ok_or_else(missing)?;
    all.push(sum.detach());
    drop((sum, result));
    eval_all(&all.iter().collect::<Vec<_>>())?;
    all.pop();
    Ok(all)
}

/// Writes an input for PyTorch and returns its description.
fn write(folder: &Path, k: usize, input: &Tensor) -> Result<Value> {
    let path = folder.join(format!("input{k}"));
    fn bytes<T: Copy, const N: usize>(values: Vec<T>, of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(values.len() * N);
        values.into_iter().for_each(|value| bytes.extend_from_slice(&of(value)));
        bytes
    }
    // PyTorch is given halves as floats, which it rounds to the dtype.
    let as_dtype = match input.dtype() {
        DType::BF16 => "bfloat16",
        DType::F16 => "float16",
        _ => "",
    };
    let input = if as_dtype.is_empty() { input.clone() } else { input.to_dtype(DType::F32)? };
    let (bytes, dtype) = match input.dtype() {
        DType::I64 => (bytes(input.to_vec()?, i64::to_ne_bytes), "int64"),
        DType::I32 => (bytes(input.to_vec()?, i32::to_ne_bytes), "int32"),
        DType::F32 => (bytes(input.to_vec()?, f32::to_ne_bytes), "float32"),
        DType::Bool => (bytes(input.to_vec::<bool>()?, |value| [u8::from(value)]), "bool"),
        other => {
            return Err(format!("no input is of {other}").into());
        }
    };
    fs::write(&path, bytes)?;
    Ok(json!({ "path": path.to_string_lossy(), "shape": input.dims(), "dtype": dtype, "as": as_dtype }))
}

/// The shape and the elements of a result of PyTorch's, from its description.
fn read(folder: &Path, k: usize, file: &Value) -> Result<(Vec<usize>, Vec<f64>)> {
    fn numbers<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|&bytes| number(bytes)).collect()
    }
    let bytes = fs::read(folder.join(format!("result{k}")))?;
    let elements = match file["dtype"].as_str().unwrap_or_default() {
        "float32" => numbers(&bytes, |b| f64::from(f32::from_ne_bytes(b))),
        "float64" => numbers(&bytes, f64::from_ne_bytes),
        "int64" => numbers(&bytes, |b| i64::from_ne_bytes(b) as f64),
        "int32" => numbers(&bytes, |b| f64::from(i32::from_ne_bytes(b))),
        "bool" | "uint8" => bytes.into_iter().map(f64::from).collect(),
        other => return Err(format!("PyTorch's result is of {other}").into()),
    };
    Ok((serde_json::from_value(file["shape"].clone())?, elements))
}

fn shape(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    if sizes.is_empty() { "1 number".into() } else { sizes.join(" x ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An expression of one input, which a function of the present dtype computes.
    fn expression(check: Check, run: fn(&Tensor, DType) -> Tensor) -> Expression {
        Expression {
            run: Rc::new(move |given| Ok(vec![run(&given.tensors[0], given.dtype)])),
            torch: String::new(),
            inputs: vec![Large { shape: vec![3], values: Fill::Cycle(vec![1.0, 2.0, 3.0]) }],
            dtype: DType::F32,
            gradients: false,
            compiled: false,
            check,
            loose: 1.0,
            pointwise: false,
        }
    }

    fn fault(expression: &Expression) -> Option<String> {
        let inputs = expression.tensors(&taper::cpu()).unwrap();
        let results = expression.call_of(inputs.clone(), expression.dtype, &taper::cpu())().unwrap();
        expression.fault(&inputs, &results).unwrap()
    }

    #[test]
    fn a_result_unlike_that_in_f64_is_wrong() {
        assert_eq!(fault(&expression(Check::Twin, |x, _| x.mul_scalar(2.0))), None);
        let wrong =
            expression(Check::Twin, |x, dtype| x.mul_scalar(if dtype == DType::F64 { 2.0 } else { 2.1 }));
        let said = "result 0: 3 of 3 elements differ: element 0 is 2.0999999046325684, expected 2";
        assert_eq!(fault(&wrong).as_deref(), Some(said));
    }

    #[test]
    fn a_result_that_breaks_its_law_is_wrong() {
        let law: Law = |x, r| {
            let (got, want) = (r[0].clone(), x[0].mul_scalar(2.0));
            Ok(vec![Equation { what: "the double", got, want, allowed: 1e-6 }])
        };
        assert_eq!(fault(&expression(Check::Law(law), |x, _| x.mul_scalar(2.0))), None);
        let said = "the double is off by 3, where 0.000001 is allowed";
        assert_eq!(fault(&expression(Check::Law(law), |x, _| x.clone())).as_deref(), Some(said));
    }

    #[test]
    fn gradients_are_those_of_the_weighted_sum() {
        let mut squares = expression(Check::Twin, |x, _| x.square());
        squares.inputs.push(Large { shape: vec![3], values: Fill::Cycle(vec![10.0]) });
        squares.gradients = true;
        let inputs = squares.tensors(&taper::cpu()).unwrap();
        let gradients = squares.call_of(inputs, DType::F32, &taper::cpu())().unwrap();
        assert_eq!(gradients[0].to_f64_vec().unwrap(), [20.0, 40.0, 60.0]);
        assert_eq!(fault(&squares), None);
    }
}
