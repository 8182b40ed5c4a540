//! One operation: the same inputs for both sides, by way of files; a clock for each; and their results
//! compared once.

use std::{fs, path::Path, rc::Rc, time::Duration};

use serde_json::{Value, json};
use taper::{DType, Device, Generator, Tensor, eval_all};
use taper_operations::{Row, row::Given};
use taper_testing::tolerance;

use super::{Fill, Large, sizes};
use crate::{
    Result, SETTLE,
    case::{Bench, Call, Compared, time},
    line::Line,
    peer::Peer,
};

/// Where a line has PyTorch's expression, and the shapes of its inputs.
pub(crate) const TORCH: &str = "torch";
pub(crate) const SHAPES: &str = "shapes";
/// Seconds for each side of a case at most: there are hundreds of them.
const BUDGET: f64 = 0.3;
/// One element in this many may differ: a jump between two numbers, or the order of two equal elements,
/// depends on the last bit.
const ONE_IN: usize = 20_000;

/// A row at full size.
pub(crate) struct Operation {
    pub(super) row: Rc<Row>,
    pub(super) inputs: Vec<Large>,
    pub(super) dtype: DType,
    /// Whether its results are random, and nothing to compare.
    pub(super) random: bool,
}

impl Compared for Operation {
    fn run(&self, bench: &Bench, name: &str, peer: Option<&mut Peer>) -> (Line, Option<Line>) {
        let mut lines = self.try_run(bench, name, peer).unwrap_or_else(|error| {
            let wrong = Some(error.to_string());
            (Line { peer: "taper".into(), case: name.into(), wrong, ..Line::default() }, None)
        });
        let shapes: Vec<String> = self.inputs.iter().map(|input| shape(&input.shape)).collect();
        lines.0.extra.insert(TORCH.into(), self.row.torch.into());
        lines.0.extra.insert(SHAPES.into(), shapes.join(", ").into());
        lines.0.device = Some(bench.device.name().into());
        lines.0.threads = Some(bench.threads);
        bench.device.empty_cache();
        lines
    }

    fn call(&self, _models: Option<&Path>, device: &Device) -> Result<Call> {
        Ok(self.call_of(self.tensors(device)?, device))
    }
}

impl Operation {
    fn try_run(&self, bench: &Bench, name: &str, peer: Option<&mut Peer>) -> Result<(Line, Option<Line>)> {
        let budget = bench.budget.min(Duration::from_secs_f64(BUDGET));
        let inputs = self.tensors(&bench.device)?;
        let folder = tempfile::tempdir()?;
        let mut question = json!({
            "case": name, "torch": self.row.torch, "budget": budget.as_secs_f64(), "folder": folder.path().to_string_lossy(), "inputs": [],
        });
        if peer.is_some() {
            let told = inputs.iter().enumerate().map(|(k, input)| write(folder.path(), k, input));
            question["inputs"] = told.collect::<Result<Vec<Value>>>()?.into();
            std::thread::sleep(SETTLE);
        }
        let mut call = self.call_of(inputs, &bench.device);
        let (times, results) = time(&bench.device, &mut call, 3..=2000, budget)?;
        let mut ours = Line::timed("taper", name, &times);
        let Some(peer) = peer else { return Ok((ours, None)) };
        std::thread::sleep(SETTLE);
        let mut theirs = peer.ask_question(name, &question.to_string())?;
        let told = theirs.extra.remove("results");
        if let (Some(Value::Array(told)), false) = (told, self.random) {
            ours.wrong = self.difference(&results, &told, folder.path())?;
        }
        if ours.wrong.is_some() {
            // A long sum of f32 may be PyTorch's to lose digits in: its answer in f64 decides.
            question["wide"] = true.into();
            let told = peer.ask_question(name, &question.to_string())?.extra.remove("results");
            if let Some(Value::Array(told)) = told
                && self.difference(&results, &told, folder.path())?.is_none()
            {
                ours.wrong = None;
            }
        }
        Ok((ours, Some(theirs)))
    }

    fn call_of(&self, tensors: Vec<Tensor>, device: &Device) -> Call {
        let given = Given { tensors, dtype: self.dtype, device: device.clone() };
        let row = Rc::clone(&self.row);
        Box::new(move || {
            let results = row.run(&given)?;
            eval_all(&results.iter().collect::<Vec<_>>())?;
            Ok(results)
        })
    }

    fn tensors(&self, device: &Device) -> Result<Vec<Tensor>> {
        let rng = Generator::seed(0, device);
        self.inputs.iter().map(|input| self.tensor(input, &rng)).collect()
    }

    /// An input of the row, in the device's memory.
    fn tensor(&self, input: &Large, rng: &Generator) -> Result<Tensor> {
        let (shape, device) = (input.shape.clone(), rng.device());
        let last = input.shape.last().copied().unwrap_or(1);
        let below = |bound: usize| -> Result<Tensor> {
            Ok(Tensor::randint(0, i32::try_from(bound)?, input.shape.clone(), rng)?)
        };
        let tensor = match &input.values {
            Fill::Between(low, high) if self.dtype.is_float() => Tensor::uniform(shape, *low, *high, rng)?,
            // As rows have it, integers are between four times the bounds.
            Fill::Between(low, high) => {
                Tensor::uniform(shape, low * 4.0, high * 4.0, rng)?.to_dtype(self.dtype)?
            }
            Fill::Mask => Tensor::rand(shape, rng)?.lt_scalar(0.5),
            Fill::Whole(bound) => below(*bound)?.to_dtype(self.dtype)?,
            Fill::Index(bound) => below(*bound)?,
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

    /// The first result that is not PyTorch's, in words.
    fn difference(&self, ours: &[Tensor], theirs: &[Value], folder: &Path) -> Result<Option<String>> {
        if ours.len() != theirs.len() {
            return Ok(Some(format!("{} results, PyTorch has {}", ours.len(), theirs.len())));
        }
        let compared = if sizes::FIRST_ALONE.contains(&self.row.name) { 1 } else { ours.len() };
        for (k, (ours, theirs)) in ours.iter().zip(theirs).take(compared).enumerate() {
            let dims: Vec<u64> = ours.dims().iter().map(|&n| n as u64).collect();
            if theirs["shape"] != json!(dims) {
                return Ok(Some(format!("result {k} is {}, PyTorch's {}", ours.shape(), theirs["shape"])));
            }
            let expected =
                read(&folder.join(format!("result{k}")), theirs["dtype"].as_str().unwrap_or_default())?;
            let found = ours.to_f64_vec()?;
            let (rtol, atol) = if ours.dtype().is_float() { tolerance(DType::F32) } else { (0.0, 0.0) };
            // The terms of sums may cancel, so the error is compared with the size of the whole result.
            let largest =
                expected.iter().filter(|v| v.is_finite()).fold(0.0, |most: f64, v| most.max(v.abs()));
            let atol = if self.row.pointwise { atol } else { atol.max(rtol * largest) };
            let close = |f: f64, e: f64| {
                f == e
                    || (f.is_nan() && e.is_nan())
                    || (f - e).abs() <= self.row.loose * (rtol * e.abs() + atol)
            };
            let mut others = found.iter().zip(&expected).enumerate().filter(|(_, (f, e))| !close(**f, **e));
            if let Some((i, (f, e))) = others.next() {
                let count = 1 + others.count();
                if count > expected.len() / ONE_IN {
                    let of = expected.len();
                    return Ok(Some(format!(
                        "result {k}: {count} of {of} elements differ: element {i} is {f}, PyTorch's {e}"
                    )));
                }
            }
        }
        Ok(None)
    }
}

/// Writes an input for PyTorch and returns its description.
fn write(folder: &Path, k: usize, input: &Tensor) -> Result<Value> {
    let path = folder.join(format!("input{k}"));
    fn bytes<T: Copy, const N: usize>(values: Vec<T>, of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(values.len() * N);
        values.into_iter().for_each(|value| bytes.extend_from_slice(&of(value)));
        bytes
    }
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
    Ok(json!({ "path": path.to_string_lossy(), "shape": input.dims(), "dtype": dtype }))
}

/// Reads a result of PyTorch's.
fn read(path: &Path, dtype: &str) -> Result<Vec<f64>> {
    fn numbers<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|&bytes| number(bytes)).collect()
    }
    let bytes = fs::read(path)?;
    Ok(match dtype {
        "float32" => numbers(&bytes, |b| f64::from(f32::from_ne_bytes(b))),
        "float64" => numbers(&bytes, f64::from_ne_bytes),
        "int64" => numbers(&bytes, |b| i64::from_ne_bytes(b) as f64),
        "int32" => numbers(&bytes, |b| f64::from(i32::from_ne_bytes(b))),
        "bool" | "uint8" => bytes.into_iter().map(f64::from).collect(),
        other => return Err(format!("PyTorch's result is of {other}").into()),
    })
}

fn shape(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    if sizes.is_empty() { "1 number".into() } else { sizes.join(" x ") }
}
