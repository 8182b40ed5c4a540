//! A row of the table: an operation as data. How to write one: [`crate::table`].

use taper::{DType, Device, Kind, Result, Scalar, Tensor};
use taper_testing::{LAYOUTS, Layout, laid_out, numbers, of};

/// The dtypes that an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DTypes {
    /// f32, f64, f16, bf16.
    Floats,
    /// f32 and f64.
    F32F64,
    /// Floats and integers.
    Numbers,
    /// Floats, integers and bool.
    All,
    /// Integers of 8 to 64 bits, signed and unsigned.
    Ints,
    /// Integers and bool.
    IntsBool,
    /// bool alone.
    Bool,
}

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];
const INTS: [DType; 8] =
    [DType::I64, DType::I32, DType::U32, DType::U8, DType::I8, DType::I16, DType::U16, DType::U64];

impl DTypes {
    /// Each of them, the one that PyTorch is asked about first.
    pub fn list(self) -> Vec<DType> {
        let bool = [DType::Bool];
        match self {
            DTypes::Floats => FLOATS.to_vec(),
            DTypes::F32F64 => FLOATS[..2].to_vec(),
            DTypes::Numbers => [&FLOATS[..], &INTS].concat(),
            DTypes::All => [&FLOATS[..], &INTS, &bool].concat(),
            DTypes::Ints => INTS.to_vec(),
            DTypes::IntsBool => [&INTS[..], &bool].concat(),
            DTypes::Bool => bool.to_vec(),
        }
    }

    /// In words, for the page of operations.
    pub fn words(self) -> &'static str {
        match self {
            DTypes::Floats => "floats",
            DTypes::F32F64 => "f32, f64",
            DTypes::Numbers => "floats, integers",
            DTypes::All => "all",
            DTypes::Ints => "integers",
            DTypes::IntsBool => "integers, bool",
            DTypes::Bool => "bool",
        }
    }

    fn has_floats(self) -> bool {
        matches!(self, DTypes::Floats | DTypes::F32F64 | DTypes::Numbers | DTypes::All)
    }
}

/// The values of an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers without a pattern between two bounds. Integers are between four times these.
    Between(f64, f64),
    /// These numbers.
    Exactly(Vec<f64>),
    /// These indices, i32 for every dtype of the row.
    Index(Vec<f64>),
    /// Bools without a pattern, for every dtype of the row.
    Mask,
}

/// An input of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its elements.
    pub values: Values,
}

impl Input {
    /// Whether its elements are numbers of the row's dtype: neither indices nor a mask.
    pub fn is_number(&self) -> bool {
        match self.values {
            Values::Between(..) | Values::Exactly(_) => true,
            Values::Index(_) | Values::Mask => false,
        }
    }

    /// The dtype where the row is tried in `dtype`.
    pub fn dtype(&self, dtype: DType) -> DType {
        match self.values {
            Values::Between(..) | Values::Exactly(_) => dtype,
            Values::Index(_) => DType::I32,
            Values::Mask => DType::Bool,
        }
    }

    /// The elements for `shape`, as the `k`-th input of a row in `dtype`, rounded to it.
    pub fn elements(&self, shape: &[usize], k: usize, dtype: DType) -> Vec<f64> {
        let n = shape.iter().product();
        let values = match &self.values {
            Values::Exactly(values) | Values::Index(values) => {
                values.iter().copied().cycle().take(n).collect()
            }
            Values::Mask => numbers(n, 11 + k as u64),
            Values::Between(low, high) => {
                let (low, high) = if dtype.is_float() { (*low, *high) } else { (low * 4.0, high * 4.0) };
                let within = |v: f64| (v + 2.0) / 4.0 * (high - low) + low;
                numbers(n, 1 + k as u64).into_iter().map(within).collect::<Vec<f64>>()
            }
        };
        values.into_iter().map(|v| rounded(v, self.dtype(dtype))).collect()
    }
}

/// The nearest number of a dtype. For f64 it is rounded to f32, so that both dtypes have the same inputs.
fn rounded(v: f64, dtype: DType) -> f64 {
    match dtype.info().kind {
        Kind::Float => {
            let held = if dtype == DType::F64 { DType::F32 } else { dtype };
            Scalar::Float(v).cast(held).as_f64()
        }
        Kind::Signed => v.trunc(),
        Kind::Unsigned => v.abs().trunc(),
        Kind::Bool => f64::from(u8::from(v > 0.0)),
    }
}

/// The memory layout of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Row by row.
    Contiguous,
    /// As `LAYOUTS` of taper-testing has it, by number.
    Layout(usize),
}

/// The arguments of an operation.
#[derive(Clone, Debug)]
pub struct Given {
    /// Tensors, in the order of the row's inputs.
    pub tensors: Vec<Tensor>,
    /// The dtype of the check, for rows that create tensors.
    pub dtype: DType,
    /// Where.
    pub device: Device,
}

/// The result of an operation: one or several tensors, or an error.
pub trait Outputs {
    /// All of them in order.
    ///
    /// # Errors
    /// The operation's.
    fn list(self) -> Result<Vec<Tensor>>;
}

impl Outputs for Tensor {
    fn list(self) -> Result<Vec<Tensor>> {
        Ok(vec![self])
    }
}
impl Outputs for (Tensor, Tensor) {
    fn list(self) -> Result<Vec<Tensor>> {
        Ok(vec![self.0, self.1])
    }
}
impl Outputs for (Tensor, Tensor, Tensor) {
    fn list(self) -> Result<Vec<Tensor>> {
        Ok(vec![self.0, self.1, self.2])
    }
}
impl Outputs for Vec<Tensor> {
    fn list(self) -> Result<Vec<Tensor>> {
        Ok(self)
    }
}
impl<T: Outputs> Outputs for Result<T> {
    fn list(self) -> Result<Vec<Tensor>> {
        self?.list()
    }
}

/// The function that computes a row.
pub type Run = Box<dyn Fn(&Given) -> Result<Vec<Tensor>> + Send + Sync>;

/// An operation with its test inputs and the expected properties.
pub struct Row {
    /// The function: of `Tensor` by its name alone, others with their module.
    pub name: &'static str,
    /// A Python expression that computes the same of `x`, `y`, `z`, `w`; empty where PyTorch has no such
    /// operation.
    pub torch: &'static str,
    /// The inputs of the tests.
    pub inputs: Vec<Input>,
    /// The dtypes it is for.
    pub dtypes: DTypes,
    /// How often it can be differentiated: 0, 1 or 2, where 2 is as often as one likes.
    pub order: u8,
    /// Whether it is smooth at its inputs; if not, gradients are compared with PyTorch's only, not with
    /// finite differences.
    pub smooth: bool,
    /// How many times the tolerance of the dtype its results may be off.
    pub loose: f64,
    /// Whether it works element by element, so that its inputs may have any shape, and share it.
    pub pointwise: bool,
    /// Whether the plain reference lacks it, so that the right answer is the CPU's.
    pub by_cpu: bool,
    /// Whether f16 and bf16 are compared with the reference in these dtypes: a step hangs on how they are
    /// rounded.
    pub stepwise: bool,
    /// Whether its results are defined where rows of an input are equal.
    pub ties: bool,
    /// Whether it looks at values, which `vmap` does not let it.
    pub by_value: bool,
    /// Inputs that it must refuse.
    pub bad: Option<Run>,
    /// A note for readers of the page.
    pub note: &'static str,
    run: Run,
}

/// Shapes for the tests of a pointwise row, in addition to its own shapes: the inputs take these in turn.
pub(crate) const ANY_SHAPES: [&[&[usize]]; 5] =
    [&[&[]], &[&[3, 0, 5]], &[&[1, 1]], &[&[7, 13]], &[&[2, 1, 3], &[5, 1], &[3]]];

/// The default shape of each input.
const SHAPES: [&[usize]; 4] = [&[3, 4], &[4], &[3, 1], &[3, 4]];

fn row(name: &'static str, torch: &'static str, inputs: usize, run: Run) -> Row {
    let input = |shape: &[usize]| Input { shape: shape.to_vec(), values: Values::Between(-2.0, 2.0) };
    Row {
        name,
        torch,
        inputs: SHAPES[..inputs].iter().map(|shape| input(shape)).collect(),
        dtypes: DTypes::Floats,
        order: if inputs == 0 { 0 } else { 2 },
        smooth: true,
        loose: 1.0,
        pointwise: false,
        by_cpu: false,
        stepwise: false,
        ties: true,
        by_value: false,
        bad: None,
        note: "",
        run,
    }
}

/// An operation that makes a tensor of nothing, of a dtype and on a device.
pub fn make<T: Outputs + 'static>(
    name: &'static str,
    torch: &'static str,
    f: fn((DType, &Device)) -> T,
) -> Row {
    row(name, torch, 0, Box::new(move |given| f((given.dtype, &given.device)).list())).of(DTypes::All)
}

/// An operation of one tensor, `[3, 4]` of numbers between −2 and 2.
pub fn one<T: Outputs + 'static>(name: &'static str, torch: &'static str, f: fn(&Tensor) -> T) -> Row {
    row(name, torch, 1, Box::new(move |given| f(&given.tensors[0]).list()))
}

/// An operation of two tensors, `[3, 4]` and `[4]`.
pub fn two<T: Outputs + 'static>(
    name: &'static str,
    torch: &'static str,
    f: fn(&Tensor, &Tensor) -> T,
) -> Row {
    row(name, torch, 2, Box::new(move |given| f(&given.tensors[0], &given.tensors[1]).list()))
}

/// An operation of three tensors, `[3, 4]`, `[4]` and `[3, 1]`.
pub fn three<T: Outputs + 'static>(
    name: &'static str,
    torch: &'static str,
    f: fn(&Tensor, &Tensor, &Tensor) -> T,
) -> Row {
    let run = move |given: &Given| f(&given.tensors[0], &given.tensors[1], &given.tensors[2]).list();
    row(name, torch, 3, Box::new(run))
}

/// An operation of four tensors, `[3, 4]`, `[4]`, `[3, 1]` and `[3, 4]`.
pub fn four<T: Outputs + 'static>(name: &'static str, torch: &'static str, f: fn(&[Tensor; 4]) -> T) -> Row {
    row(
        name,
        torch,
        4,
        Box::new(move |given| {
            let [a, b, c, d] = &given.tensors[..] else {
                return Err(taper::Error::invalid("operation", "a row of four tensors"));
            };
            f(&[a.clone(), b.clone(), c.clone(), d.clone()]).list()
        }),
    )
}

impl Row {
    /// With other dtypes than floats. Without floats it has no derivative.
    pub fn of(mut self, dtypes: DTypes) -> Row {
        self.dtypes = dtypes;
        if !dtypes.has_floats() {
            self.order = 0;
        }
        self
    }

    /// With inputs of these shapes.
    pub fn shapes<const N: usize>(mut self, shapes: [&[usize]; N]) -> Row {
        assert_eq!(self.inputs.len(), N, "{}: a shape for each input", self.name);
        for (input, shape) in self.inputs.iter_mut().zip(shapes) {
            input.shape = shape.to_vec();
        }
        self
    }

    /// With numbers between other bounds in every input, away from where it is not smooth.
    pub fn over(mut self, low: f64, high: f64) -> Row {
        for input in &mut self.inputs {
            if matches!(input.values, Values::Between(..)) {
                input.values = Values::Between(low, high);
            }
        }
        self
    }

    /// With other elements in input `k`.
    pub fn input(mut self, k: usize, values: Values) -> Row {
        self.inputs[k].values = values;
        self
    }

    /// With these numbers in input `k`.
    pub fn exactly(self, k: usize, values: &[f64]) -> Row {
        self.input(k, Values::Exactly(values.to_vec()))
    }

    /// With these indices in input `k`.
    pub fn index(self, k: usize, indices: &[i32]) -> Row {
        self.input(k, Values::Index(indices.iter().map(|&i| f64::from(i)).collect()))
    }

    /// With a mask for input `k`.
    pub fn mask(self, k: usize) -> Row {
        self.input(k, Values::Mask)
    }

    /// With a derivative that has none (1), or without one (0).
    pub fn order(mut self, order: u8) -> Row {
        self.order = order;
        self
    }

    /// At inputs where it is not smooth; there its gradients are compared with PyTorch's.
    pub fn kinks(mut self) -> Row {
        self.smooth = false;
        self
    }

    /// With results that may differ by `times` times the dtype's tolerance.
    pub fn loose(mut self, times: f64) -> Row {
        self.loose = times;
        self
    }

    /// Tried with any shape: 0-d, empty, size 1, odd, and broadcast.
    pub fn pointwise(mut self) -> Row {
        self.pointwise = true;
        self
    }

    /// Without kernels of the plain reference: in f32 and f64, compared with the CPU.
    pub fn by_cpu(mut self) -> Row {
        self.by_cpu = true;
        self.of(DTypes::F32F64)
    }

    /// With f16 and bf16 rounded in each step, as the reference in these dtypes does: a result hangs on such
    /// a rounding.
    pub fn stepwise(mut self) -> Row {
        self.stepwise = true;
        self
    }

    /// Not tried with equal rows (an expanded input), which leave its results open.
    pub fn no_ties(mut self) -> Row {
        self.ties = false;
        self
    }

    /// Looking at the values of its inputs, as for a shape that follows from them.
    pub fn by_value(mut self) -> Row {
        self.by_value = true;
        self
    }

    /// With something that must be an error, of the row's inputs in f32.
    pub fn bad<T: Outputs + 'static>(mut self, f: fn(&[Tensor]) -> T) -> Row {
        self.bad = Some(Box::new(move |given| f(&given.tensors).list()));
        self
    }

    /// With a remark for the page.
    pub fn note(mut self, note: &'static str) -> Row {
        self.note = note;
        self
    }

    /// The row's name in messages: its name, and the expression that distinguishes it from other rows with
    /// the same name.
    pub fn label(&self) -> String {
        format!("{} ({})", self.name, self.torch)
    }

    /// The dtypes that it is tried in on a device.
    pub fn dtypes_on(&self, device: &Device) -> Vec<DType> {
        self.dtypes.list().into_iter().filter(|&dtype| device.supports(dtype)).collect()
    }

    /// The dtypes that its gradients are tried in, where it has them: f32, and half types unless a step hangs
    /// on how they are rounded.
    pub fn gradient_dtypes(&self) -> Vec<DType> {
        let halves =
            self.dtypes.list().into_iter().filter(|dtype| dtype.is_reduced_float() && !self.stepwise);
        match self.order {
            0 => Vec::new(),
            _ => [DType::F32].into_iter().chain(halves).collect(),
        }
    }

    /// Whether its inputs may have this memory layout.
    pub fn has_layout(&self, layout: Layout) -> bool {
        self.ties || layout != Layout::Expanded
    }

    /// The elements of each input in `dtype`, as they are laid out.
    pub fn elements(&self, dtype: DType) -> Vec<Vec<f64>> {
        let elements = |(k, input): (usize, &Input)| input.elements(&input.shape, k, dtype);
        self.inputs.iter().enumerate().map(elements).collect()
    }

    /// The inputs on a device: the numbers as `elements` rounds them, held in `held` (f64 for a reference).
    ///
    /// # Errors
    /// Whatever the device reports.
    pub fn given(&self, device: &Device, rounded: DType, held: DType, placement: Placement) -> Result<Given> {
        let tensors = self.inputs.iter().enumerate().map(|(k, input)| {
            let (values, held) = (input.elements(&input.shape, k, rounded), input.dtype(held));
            match placement {
                Placement::Contiguous => of(&values, &input.shape, held, device),
                Placement::Layout(n) => laid_out(&values, &input.shape, LAYOUTS[n], held, device),
            }
        });
        Ok(Given { tensors: tensors.collect::<Result<_>>()?, dtype: held, device: device.clone() })
    }

    /// The inputs with other shapes, for a row that takes any shape.
    ///
    /// # Errors
    /// Whatever the device reports.
    pub fn given_shapes(
        &self,
        device: &Device,
        rounded: DType,
        held: DType,
        shapes: &[&[usize]],
    ) -> Result<Given> {
        let tensors = self.inputs.iter().enumerate().map(|(k, input)| {
            let shape = shapes[k % shapes.len()];
            of(&input.elements(shape, k, rounded), shape, input.dtype(held), device)
        });
        Ok(Given { tensors: tensors.collect::<Result<_>>()?, dtype: held, device: device.clone() })
    }

    /// Does it to these tensors, in the dtype of the first that is no index and no mask.
    ///
    /// # Errors
    /// Not as many tensors as inputs; the operation's.
    pub fn of_tensors(&self, x: &[&Tensor]) -> Result<Vec<Tensor>> {
        let first = self
            .inputs
            .iter()
            .zip(x)
            .find(|(input, _)| input.is_number())
            .map(|(_, t)| *t)
            .or(x.first().copied());
        let (Some(first), true) = (first, x.len() == self.inputs.len()) else {
            let message = format!("takes {} tensors, got {}", self.inputs.len(), x.len());
            return Err(taper::Error::invalid(self.name, message));
        };
        let tensors = x.iter().map(|&t| t.clone()).collect();
        self.run(&Given { tensors, dtype: first.dtype(), device: first.device() })
    }

    /// Does it.
    ///
    /// # Errors
    /// The operation's.
    pub fn run(&self, given: &Given) -> Result<Vec<Tensor>> {
        (self.run)(given)
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.label())
    }
}
