//! The checks of a row. Each check returns a message if the row fails.

use std::{cell::OnceCell, collections::HashMap};

use taper::{
    DType, Device, Error, ErrorKind, Result, Tensor,
    autograd::{
        TensorGrad,
        func::{jacobian, vjp, vmap},
        gradcheck, gradgradcheck,
    },
    enable_grad, grad,
};
use taper_testing::{LAYOUTS, difference, reference_with, tolerance};

use crate::{
    different::differs,
    draw::{Check, Draw},
    fixtures::{Answer, Array, INTEGERS, integer_key},
    row::{ANY_SHAPES, Given, Input, Placement, Row, Values},
};

/// Nothing, or a message about the failure of a row.
pub type Verdict = std::result::Result<(), String>;

/// A device under test, and the references to compare it with.
#[derive(Debug)]
pub struct Bench {
    /// The device under test.
    pub device: Device,
    /// The plain reference with the dtypes of the device.
    reference: Device,
    /// The plain reference with every dtype.
    exact: Device,
    cpu: OnceCell<Device>,
    /// The cells of the table that are tried.
    pub(crate) draw: Draw,
}

pub(crate) fn in_words(what: &str) -> impl Fn(Error) -> String {
    move |e| format!("{what}: {e}")
}

pub(crate) fn numbers(tensors: &[Tensor]) -> Result<Vec<Vec<f64>>> {
    tensors.iter().map(Tensor::to_f64_vec).collect()
}

impl Bench {
    /// For a device, and the whole table.
    pub fn new(device: Device) -> Bench {
        Bench::drawn(device, Draw::ALL)
    }

    /// For a device, and a part of the table: a check passes over the cells that are not in it.
    pub fn drawn(device: Device, draw: Draw) -> Bench {
        let (reference, _) = reference_with(&device.info().dtypes);
        let (exact, _) = reference_with(&DType::ALL);
        Bench { device, reference, exact, cpu: OnceCell::new(), draw }
    }

    /// Where the right answer comes from, in f64: the plain reference, or the CPU for what that lacks.
    pub(crate) fn oracle(&self, row: &Row) -> &Device {
        if row.by_cpu { self.cpu() } else { &self.exact }
    }

    fn cpu(&self) -> &Device {
        self.cpu.get_or_init(taper::cpu)
    }

    /// The dtype that the device has in place of another one's: devices without 64-bit types use the 32-bit
    /// dtype.
    fn dtype_here(&self, dtype: DType) -> DType {
        match dtype {
            DType::I64 if !self.device.supports(DType::I64) => DType::I32,
            DType::F64 if !self.device.supports(DType::F64) => DType::F32,
            other => other,
        }
    }

    /// Another device's results in the dtypes of this one.
    fn as_here(&self, results: Vec<Tensor>) -> Result<Vec<Tensor>> {
        results.into_iter().map(|t| t.to_dtype(self.dtype_here(t.dtype()))).collect()
    }

    /// The row's results on the device in `dtype` against the reference in f64: shapes, dtypes, numbers.
    fn agree(
        &self,
        row: &Row,
        dtype: DType,
        what: &str,
        given: impl Fn(&Device, DType, DType) -> Result<Given>,
    ) -> Verdict {
        let what = format!("{dtype}, {what}");
        let found = given(&self.device, dtype, dtype).and_then(|given| row.run(&given));
        let found = found.map_err(in_words(&what))?;
        let same = given(&self.reference, dtype, dtype).and_then(|given| row.run(&given));
        let same = same.map_err(in_words(&format!("{what}, on the reference")))?;
        let half = dtype.is_reduced_float();
        let expected = match dtype.is_float() && !(half && row.stepwise) {
            true => given(self.oracle(row), dtype, DType::F64).and_then(|given| numbers(&row.run(&given)?)),
            false => numbers(&same),
        };
        let expected = expected.map_err(in_words(&format!("{what}, on the reference")))?;
        alike(&what, &found, &same)?;
        if same.len() != expected.len() {
            return Err(format!("{what}: {} results, expected {}", same.len(), expected.len()));
        }
        for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let what = format!("{what}, result {k}");
            let within = within(row, dtype, found.dtype());
            let found = found.to_f64_vec().map_err(in_words(&what))?;
            if let Some(difference) = difference(&found, expected, within) {
                return Err(format!("{what}: {difference}"));
            }
        }
        Ok(())
    }

    /// In every dtype that the row claims and the device has.
    ///
    /// # Errors
    /// The row fails this check: the message says where.
    pub fn forward(&self, row: &Row) -> Verdict {
        let drawn = |dtype: &DType| self.draw.takes(row, Check::Forward, dtype);
        for dtype in row.dtypes_on(&self.device).into_iter().filter(drawn) {
            self.agree(row, dtype, "contiguous", |d, rounded, held| {
                row.given(d, rounded, held, Placement::Contiguous)
            })?;
        }
        Ok(())
    }

    /// Checks one dtype with async reads only, for a browser. Returns whether the row has kernels there.
    ///
    /// # Errors
    /// The row fails this check: the message says where.
    pub async fn awaited(&self, row: &Row) -> std::result::Result<bool, String> {
        let Some(dtype) = row.dtypes_on(&self.device).into_iter().next() else {
            return Ok(false);
        };
        let run = |device: &Device| row.run(&row.given(device, dtype, dtype, Placement::Contiguous)?);
        let found = match run(&self.device) {
            // Where no thread can block, an operation that reads values returns an error that names the
            // async form.
            Err(error) if row.by_value && error.to_string().contains("await") => return Ok(false),
            found => found.map_err(in_words("outputs"))?,
        };
        let reference = if row.by_cpu { self.oracle(row) } else { &self.reference };
        let expected = run(reference).and_then(|expected| self.as_here(expected));
        let expected = expected.map_err(in_words("outputs of the reference"))?;
        alike("awaited", &found, &expected)?;
        for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let within = within(row, dtype, found.dtype());
            // Whole numbers of the table are small.
            let found = found.to_dtype(DType::F32).map_err(in_words("outputs"))?.to_vec_async::<f32>().await;
            let found: Vec<f64> = found.map_err(in_words("outputs"))?.into_iter().map(f64::from).collect();
            let expected = expected.to_f64_vec().map_err(in_words("outputs of the reference"))?;
            if let Some(difference) = difference(&found, &expected, within) {
                return Err(format!("result {k}: {difference}"));
            }
        }
        Ok(true)
    }

    /// With inputs in every memory layout, and of every kind of shape if the row takes any shape.
    ///
    /// # Errors
    /// The row fails this check: the message says where.
    pub fn layouts(&self, row: &Row) -> Verdict {
        let Some(dtype) = row.dtypes_on(&self.device).into_iter().next() else {
            return Ok(());
        };
        for (n, layout) in LAYOUTS.iter().enumerate() {
            let way = format!("{layout:?}");
            if !row.has_layout(*layout) || !self.draw.takes(row, Check::Layouts, &way) {
                continue;
            }
            self.agree(row, dtype, &way, |d, rounded, held| {
                row.given(d, rounded, held, Placement::Layout(n))
            })?;
        }
        if row.pointwise {
            for shapes in ANY_SHAPES {
                if !self.draw.takes(row, Check::Layouts, format!("{shapes:?}")) {
                    continue;
                }
                self.agree(row, dtype, &format!("shapes {shapes:?}"), |d, rounded, held| {
                    row.given_shapes(d, rounded, held, shapes)
                })?;
            }
        }
        Ok(())
    }

    /// Whatever the row says must be refused.
    ///
    /// # Errors
    /// The row fails this check: the message says where.
    pub fn bad_input(&self, row: &Row) -> Verdict {
        let (Some(bad), true) = (&row.bad, self.draw.takes(row, Check::BadInput, "")) else {
            return Ok(());
        };
        let given = row
            .given(&self.device, DType::F32, DType::F32, Placement::Contiguous)
            .map_err(in_words("inputs"))?;
        match bad(&given).and_then(|results| numbers(&results)) {
            Ok(results) => Err(format!("bad input gave {results:?}")),
            Err(e) if e.to_string().len() < 10 => Err(format!("the error says little: {e}")),
            Err(_) => Ok(()),
        }
    }

    /// Gradients of the device in f32 and half types against those of the reference in f64.
    ///
    /// # Errors
    /// The row fails this check: the message says where.
    pub fn gradients(&self, row: &Row) -> Verdict {
        for dtype in row.gradient_dtypes() {
            if !self.device.supports(dtype) || !self.draw.takes(row, Check::Gradients, dtype) {
                continue;
            }
            let gradients = |device: &Device, held| {
                gradients(row, row.given(device, dtype, held, Placement::Contiguous)?)
            };
            let what = |of: &str| format!("gradients{of} in {dtype}");
            let found = gradients(&self.device, dtype).map_err(in_words(&what("")))?;
            let expected = gradients(self.oracle(row), DType::F64);
            let expected = expected.map_err(in_words(&what(" of the reference")))?;
            let (rtol, atol) = if dtype.is_reduced_float() { tolerance(dtype) } else { (1e-4, 1e-5) };
            let within = (rtol * row.loose, atol * row.loose);
            for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
                if let Some(difference) = difference(found, expected, within) {
                    return Err(format!("{dtype} gradient in input {k}: {difference}"));
                }
            }
        }
        Ok(())
    }

    /// First and second derivatives against differences, in f64, as often as the row can be differentiated.
    /// The device needs f64.
    ///
    /// # Errors
    /// The row fails this check: the message says where.
    pub fn derivatives(&self, row: &Row) -> Verdict {
        if row.order == 0 || !row.smooth || !self.draw.takes(row, Check::Derivatives, "") {
            return Ok(());
        }
        let given = row
            .given(&self.device, DType::F64, DType::F64, Placement::Contiguous)
            .map_err(in_words("inputs"))?;
        let (f, inputs) = numbers_of(row, given);
        gradcheck(&f, &inputs).map_err(in_words("derivative"))?;
        if row.order > 1 {
            gradgradcheck(&f, &inputs).map_err(in_words("second derivative"))?;
        }
        Ok(())
    }

    /// Compares `vmap` over two slices of every input with each slice separately on the CPU: results, and
    /// gradients through both. An operation that reads values must return an error that says so.
    ///
    /// # Errors
    /// The row fails this check: the message says where.
    pub fn mapped(&self, row: &Row) -> Verdict {
        let tried = !row.inputs.is_empty() && self.draw.takes(row, Check::Mapped, "");
        let (true, Some(dtype)) = (tried, row.dtypes_on(&self.device).into_iter().next()) else {
            return Ok(());
        };
        let run = |device: &Device, tensors: &[Tensor]| {
            row.run(&Given { tensors: tensors.to_vec(), dtype, device: device.clone() })
        };
        let axes = vec![Some(0); row.inputs.len()];
        let at_once = |x: &[Tensor]| vmap(|x: &[Tensor]| run(&self.device, x), x, &axes);
        let alone = |x: &[Tensor]| -> Result<Vec<Tensor>> {
            let slice = |k: isize| x.iter().map(|t| t.select(0, k)).collect::<Result<Vec<_>>>();
            let (first, second) = (run(self.cpu(), &slice(0)?)?, run(self.cpu(), &slice(1)?)?);
            first.iter().zip(&second).map(|(a, b)| Tensor::stack(&[a, b], 0)).collect()
        };
        let words = in_words("vmap");
        let slices = |device: &Device| slices(row, dtype, device).map_err(&words);
        let (inputs, inputs_of_cpu) = (slices(&self.device)?, slices(self.cpu())?);
        let found = at_once(&inputs).and_then(|found| Ok((numbers(&found)?, found)));
        let (found, tensors) = match found {
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported { op: "vmap", .. }) => {
                return if row.by_value { Ok(()) } else { Err(format!("{error}")) };
            }
            Ok(_) if row.by_value => return Err("vmap: said to look at values, and does not".into()),
            found => found.map_err(&words)?,
        };
        let expected = alone(&inputs_of_cpu).and_then(|expected| self.as_here(expected)).map_err(&words)?;
        alike("vmap", &tensors, &expected)?;
        for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let numbers = expected.to_f64_vec().map_err(&words)?;
            if let Some(difference) = difference(found, &numbers, within(row, dtype, expected.dtype())) {
                return Err(format!("vmap, result {k}: {difference}"));
            }
        }
        if row.order == 0 || !dtype.is_float() {
            return Ok(());
        }
        let found = slopes(row, inputs, at_once).map_err(&words)?;
        let expected = slopes(row, inputs_of_cpu, alone).map_err(&words)?;
        close(row, "vmap, gradient", &found, &expected)
    }

    /// The Jacobian, which is one batched backward pass in f32, against a backward pass for each element of
    /// the results, on the CPU in f64.
    ///
    /// # Errors
    /// The row fails this check: the message says where.
    pub fn jacobians(&self, row: &Row) -> Verdict {
        if row.order == 0 || !self.draw.takes(row, Check::Jacobians, "") {
            return Ok(());
        }
        let words = in_words("jacobian");
        let given = |device: &Device, dtype| {
            row.given(device, DType::F32, dtype, Placement::Contiguous).map(|given| numbers_of(row, given))
        };
        let at_once = || -> Result<Vec<Vec<f64>>> {
            let (f, inputs) = given(&self.device, DType::F32)?;
            numbers(&jacobian(&f, &inputs)?)
        };
        let by_row = || -> Result<Vec<Vec<f64>>> {
            let (f, inputs) = given(self.cpu(), DType::F64)?;
            let y = f(&inputs)?;
            let n = y.numel();
            let basis = Tensor::eye(n, (y.dtype(), self.cpu()))?;
            let mut rows: Vec<Vec<f64>> = vec![Vec::new(); inputs.len()];
            for k in 0..n as isize {
                let (_, found) = vjp(&f, &inputs, &basis.select(0, k)?)?;
                rows.iter_mut().zip(numbers(&found)?).for_each(|(rows, found)| rows.extend(found));
            }
            Ok(rows)
        };
        close(row, "jacobian", &at_once().map_err(&words)?, &by_row().map_err(&words)?)
    }

    /// Compares results and gradients with those that PyTorch computed from the same inputs.
    ///
    /// # Errors
    /// The row fails this check: the message says where.
    pub fn torch(&self, row: &Row, answer: Option<&Answer>) -> Verdict {
        const AGAIN: &str = "write the answers with scripts/torch_fixtures.py operations";
        if row.torch.is_empty() || !self.draw.takes(row, Check::Torch, "") {
            return Ok(());
        }
        let Some(answer) = answer else {
            return Err(format!("no answer of PyTorch to this expression of these inputs: {AGAIN}"));
        };
        // In f64 on the CPU. A GPU has the kernels in f32 from the other checks, and its f64 is compared with
        // the reference.
        let floats =
            if self.device.name() == "cpu" { [DType::F64, DType::F32] } else { [DType::F32, DType::F64] };
        let integers = DType::ALL.into_iter().rev();
        let claimed = row.dtypes_on(&self.device);
        let Some(dtype) = floats.into_iter().chain(integers).find(|dtype| claimed.contains(dtype)) else {
            return Ok(());
        };
        let given = || row.given(&self.device, dtype, dtype, Placement::Contiguous);
        let outputs = given().and_then(|given| row.run(&given)).map_err(in_words("outputs"))?;
        if outputs.len() != answer.outputs.len() {
            return Err(format!("{} results, PyTorch's has {}", outputs.len(), answer.outputs.len()));
        }
        for (k, (output, expected)) in outputs.iter().zip(&answer.outputs).enumerate() {
            if output.dims() != expected.shape {
                return Err(format!("result {k} is {}, PyTorch's is {:?}", output.shape(), expected.shape));
            }
            let (rtol, atol) = within(row, dtype, output.dtype());
            // Answers are written with twelve digits.
            let within = if output.dtype().is_float() { (rtol + 1e-11, atol + 1e-11) } else { (0.0, 0.0) };
            let found = output.to_f64_vec().map_err(in_words("outputs"))?;
            if let Some(difference) = difference(&found, &expected.numbers(), within) {
                return Err(format!("PyTorch's result {k}, in {dtype}: {difference}"));
            }
        }
        if row.order == 0 || !dtype.is_float() {
            return Ok(());
        }
        let found = given().and_then(|given| gradients(row, given)).map_err(in_words("gradients"))?;
        for (k, (found, expected)) in found.iter().zip(&answer.grads).enumerate() {
            let Some(expected) = expected else { continue };
            // PyTorch keeps some constants in f32, a sixth among them.
            let scale = row.loose * if dtype == DType::F64 { 1e-7 } else { 1e-4 };
            if let Some(difference) = difference(found, &expected.numbers(), (scale, scale / 10.0)) {
                return Err(format!("PyTorch's gradient in input {k}, in {dtype}: {difference}"));
            }
        }
        Ok(())
    }
}

impl Bench {
    /// For integers and bools, the values and dtypes equal PyTorch's if PyTorch supports them; otherwise any
    /// result is accepted.
    ///
    /// # Errors
    /// The row fails this check: the message says where.
    pub fn integers(&self, row: &Row, answers: &HashMap<String, Vec<Array>>) -> Verdict {
        let mut wrong = Vec::new();
        for dtype in INTEGERS.into_iter().filter(|&dtype| self.device.supports(dtype)) {
            if differs(row.name, dtype) || !self.draw.takes(row, Check::Integers, dtype) {
                continue;
            }
            if let Err(message) = self.integers_of(row, dtype, answers) {
                wrong.push(format!("{dtype}: {message}"));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    /// [`Bench::integers`] in one dtype, also where a difference is [listed](crate::different).
    ///
    /// # Errors
    /// The row fails this check: the message says where.
    pub fn integers_of(&self, row: &Row, dtype: DType, answers: &HashMap<String, Vec<Array>>) -> Verdict {
        match integer_key(row, dtype).and_then(|key| answers.get(&key)) {
            Some(answer) => self.integers_in(row, dtype, answer),
            None => Ok(()),
        }
    }

    fn integers_in(&self, row: &Row, dtype: DType, answer: &[Array]) -> Verdict {
        let given = row.given(&self.device, dtype, dtype, Placement::Contiguous);
        let outputs = given.and_then(|given| row.run(&given)).map_err(in_words("PyTorch takes it"))?;
        if outputs.len() != answer.len() {
            return Err(format!("{} results, PyTorch's has {}", outputs.len(), answer.len()));
        }
        for (k, (output, expected)) in outputs.iter().zip(answer).enumerate() {
            let named = DType::ALL.into_iter().find(|&dtype| dtype.info().torch == expected.dtype);
            let here = named.map(|dtype| self.dtype_here(dtype));
            if (Some(output.dtype()), output.dims()) != (here, &expected.shape[..]) {
                let (shape, dtype) = (output.shape(), output.dtype());
                let (other, sizes) = (&expected.dtype, &expected.shape);
                return Err(format!("result {k} is {shape} of {dtype}, PyTorch's is {sizes:?} of {other}"));
            }
            let found = output.to_f64_vec().map_err(in_words("outputs"))?;
            let within = within(row, DType::F32, output.dtype());
            if let Some(difference) = difference(&found, &expected.numbers(), within) {
                return Err(format!("PyTorch's result {k}: {difference}"));
            }
        }
        Ok(())
    }
}

/// Two slices of each input: the second with its elements in the opposite order, where any would do.
fn slices(row: &Row, dtype: DType, device: &Device) -> Result<Vec<Tensor>> {
    let given = row.given(device, dtype, dtype, Placement::Contiguous)?;
    let slices = |(input, t): (&Input, &Tensor)| match input.values {
        Values::Between(..) => Tensor::stack(&[t.clone(), t.flip((0..t.rank()).collect::<Vec<_>>())?], 0),
        Values::Exactly(_) | Values::Index(_) | Values::Mask => Tensor::stack(&[t, t], 0),
    };
    row.inputs.iter().zip(&given.tensors).map(slices).collect()
}

/// The closeness of results in `result` of inputs in `dtype`.
pub(crate) fn within(row: &Row, dtype: DType, result: DType) -> (f64, f64) {
    if !result.is_float() {
        return (0.0, 0.0);
    }
    let (a, b) = (tolerance(dtype), tolerance(result));
    (a.0.max(b.0) * row.loose, a.1.max(b.1) * row.loose)
}

/// As many results as expected, of the same shapes and dtypes.
fn alike(what: &str, found: &[Tensor], expected: &[Tensor]) -> Verdict {
    if found.len() != expected.len() {
        return Err(format!("{what}: {} results, expected {}", found.len(), expected.len()));
    }
    for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
        if (found.shape(), found.dtype()) != (expected.shape(), expected.dtype()) {
            return Err(format!(
                "{what}, result {k}: {} of {}, expected {} of {}",
                found.shape(),
                found.dtype(),
                expected.shape(),
                expected.dtype()
            ));
        }
    }
    Ok(())
}

/// First derivatives in f32 against those expected, input by input.
fn close(row: &Row, what: &str, found: &[Vec<f64>], expected: &[Vec<f64>]) -> Verdict {
    let within = (1e-4 * row.loose, 1e-5 * row.loose);
    for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
        if let Some(difference) = difference(found, expected, within) {
            return Err(format!("{what} in input {k}: {difference}"));
        }
    }
    Ok(())
}

/// A row as a function of the inputs that gradients are taken in, which gives all its numbers in one tensor;
/// and those inputs.
fn numbers_of(row: &Row, given: Given) -> (impl Fn(&[Tensor]) -> Result<Tensor>, Vec<Tensor>) {
    let leaves = leaves(row);
    let inputs = leaves.iter().map(|&k| given.tensors[k].clone()).collect();
    let f = move |moved: &[Tensor]| -> Result<Tensor> {
        let mut given = given.clone();
        for (&k, leaf) in leaves.iter().zip(moved) {
            given.tensors[k] = leaf.clone();
        }
        let outputs = row.run(&given)?.into_iter().filter(|t| t.dtype().is_float());
        Tensor::concat(&outputs.map(|t| t.flatten_all()).collect::<Vec<_>>(), 0)
    };
    (f, inputs)
}

/// The inputs that gradients are taken in.
fn leaves(row: &Row) -> Vec<usize> {
    (0..row.inputs.len()).filter(|&k| row.inputs[k].is_number()).collect()
}

/// The gradients of what a row gives.
fn gradients(row: &Row, given: Given) -> Result<Vec<Vec<f64>>> {
    let Given { tensors, dtype, device } = given;
    slopes(row, tensors, |x| row.run(&Given { tensors: x.to_vec(), dtype, device: device.clone() }))
}

/// The gradients of Σ cᵢ·outputᵢ in every input that has one, for the weights that the script of fixtures has
/// too.
fn slopes(
    row: &Row,
    mut tensors: Vec<Tensor>,
    run: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Vec<Vec<f64>>> {
    let leaves = leaves(row);
    for &k in &leaves {
        tensors[k] = tensors[k].clone().requires_grad();
    }
    let outputs = enable_grad(|| run(&tensors))?;
    let mut sums = Vec::new();
    for output in outputs.iter().filter(|t| t.is_tracked()) {
        let weights: Vec<f64> = (0..output.numel()).map(|i| ((i * 37 % 64) as f64 - 31.5) / 32.0).collect();
        let weights = taper_testing::of(&weights, output.dims(), output.dtype(), &output.device())?;
        sums.push(enable_grad(|| output.mul(&weights).map(|t| t.sum()))?);
    }
    let inputs: Vec<&Tensor> = leaves.iter().map(|&k| &tensors[k]).collect();
    let found = match sums.is_empty() {
        true => vec![None; inputs.len()],
        false => grad(&sums, &inputs, false)?,
    };
    let zero = |x: &Tensor| vec![0.0; x.numel()];
    found
        .iter()
        .zip(&inputs)
        .map(|(gradient, x)| gradient.as_ref().map_or_else(|| Ok(zero(x)), Tensor::to_f64_vec))
        .collect()
}
