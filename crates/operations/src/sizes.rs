//! Pointwise rows at sizes past every block and register of a kernel, with each input a column, a row, a cell,
//! a constant or a number beside matrices and columns, alone and before a sum along each axis.

use taper::{DType, Device, Result, Tensor, tensor_core::DeviceKind};
use taper_testing::{difference, of};

use crate::{
    check::{Bench, Verdict, in_words, numbers, within},
    draw::{Check, fnv},
    row::{Given, Row},
};

/// The innermost sizes, of which each case takes one.
const SIZES: [usize; 6] = [127, 128, 129, 513, 1025, 2000];
/// The rows of a matrix.
const ROWS: usize = 2;
/// The multiple of a row's tolerance: there are hundreds of times as many inputs as in its other checks, and some
/// are near zeros and poles of its function. An element of another place is further off.
const LOOSE: f64 = 8.0;
/// The part of the cases that a GPU takes, where each compiles a kernel.
const GPU_PART: u64 = 16;

/// The form of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Matrix,
    Column,
    Row,
    Cell,
    /// The same number everywhere, without memory.
    Constant,
    /// A 0-d constant.
    Number,
}

/// The forms of one input, beside the others in the second form.
const PAIRS: [(Form, Form); 9] = [
    (Form::Column, Form::Matrix),
    (Form::Row, Form::Matrix),
    (Form::Cell, Form::Matrix),
    (Form::Constant, Form::Matrix),
    (Form::Number, Form::Matrix),
    (Form::Row, Form::Column),
    (Form::Constant, Form::Column),
    (Form::Number, Form::Constant),
    (Form::Matrix, Form::Column),
];

/// The cases of a row: the input with the first form, and the forms.
fn cases(row: &Row) -> impl Iterator<Item = (usize, (Form, Form))> {
    let inputs = if row.pointwise { row.inputs.len() } else { 0 };
    (0..inputs).flat_map(|k| PAIRS.map(|pair| (k, pair)))
}

fn name((k, (form, others)): (usize, (Form, Form))) -> String {
    format!("input {k} a {form:?}, others {others:?}")
}

/// The names of the cases of a row.
pub(crate) fn ways(row: &Row) -> Vec<String> {
    cases(row).map(name).collect()
}

impl Form {
    fn shape(self, width: usize) -> Vec<usize> {
        match self {
            Form::Matrix | Form::Constant => vec![ROWS, width],
            Form::Column => vec![ROWS, 1],
            Form::Row => vec![width],
            Form::Cell => vec![1, 1],
            Form::Number => Vec::new(),
        }
    }
}

impl Bench {
    /// At sizes past every block and register, as maps and before sums.
    ///
    /// # Errors
    /// The row fails this check: the message says where.
    pub fn sizes(&self, row: &Row) -> Verdict {
        let Some(dtype) = row.dtypes_on(&self.device).into_iter().next() else {
            return Ok(());
        };
        let is_gpu = self.device.info().kind != DeviceKind::Cpu;
        for case in cases(row) {
            let way = name(case);
            let hash = fnv(&format!("{} {way}", row.label()));
            if !self.draw.takes(row, Check::Sizes, &way) || is_gpu && !hash.is_multiple_of(GPU_PART) {
                continue;
            }
            let width = SIZES[(hash >> 8) as usize % SIZES.len()];
            let what = format!("{dtype}, {way}, rows of {width}");
            let run = |device: &Device, held: DType| {
                let results = row.run(&row.given_forms(device, (dtype, held), case, width)?)?;
                let sums = results.iter().filter(|t| t.dtype().is_float() && t.rank() == 2);
                let sums = sums.flat_map(|t| [t.sum_axis(0, false), t.sum_axis(1, false)]);
                let sums = sums.collect::<Result<Vec<Tensor>>>()?;
                Ok::<_, taper::Error>((numbers(&sums)?, results))
            };
            // Sums are read first, so that the results are computed within them.
            let (found_sums, found) = run(&self.device, dtype).map_err(in_words(&what))?;
            let held = if dtype.is_float() { DType::F64 } else { dtype };
            let (sums, expected) = run(self.oracle(row), held).map_err(in_words(&what))?;
            let found_values = numbers(&found).map_err(in_words(&what))?;
            let expected = numbers(&expected).map_err(in_words(&what))?;
            for (k, (values, expected)) in found_values.iter().zip(&expected).enumerate() {
                let (rtol, atol) = within(row, dtype, found[k].dtype());
                if let Some(difference) = difference(values, expected, (LOOSE * rtol, LOOSE * atol)) {
                    return Err(format!("{what}, result {k}: {difference}"));
                }
            }
            let largest =
                expected.iter().flatten().filter(|v| v.is_finite()).fold(1.0f64, |m, v| m.max(v.abs()));
            let (rtol, atol) = within(row, dtype, dtype);
            let within = (LOOSE * rtol, (rtol + atol) * largest * width as f64 / 4.0);
            for (k, (found, expected)) in found_sums.iter().zip(&sums).enumerate() {
                if let Some(difference) = difference(found, expected, within) {
                    return Err(format!("{what}, sum {k}: {difference}"));
                }
            }
        }
        Ok(())
    }
}

impl Row {
    /// The inputs of a case.
    fn given_forms(
        &self,
        device: &Device,
        (rounded, held): (DType, DType),
        (first, (form, others)): (usize, (Form, Form)),
        width: usize,
    ) -> Result<Given> {
        let tensors = self.inputs.iter().enumerate().map(|(k, input)| {
            let form = if k == first { form } else { others };
            let (shape, dtype) = (form.shape(width), input.dtype(held));
            let elements = input.elements(&shape, k, rounded);
            match (form, elements.first()) {
                (Form::Constant | Form::Number, Some(&number)) if input.is_number() => {
                    Tensor::full(shape, number, (dtype, device))
                }
                _ => of(&elements, &shape, dtype, device),
            }
        });
        Ok(Given { tensors: tensors.collect::<Result<_>>()?, dtype: held, device: device.clone() })
    }
}
