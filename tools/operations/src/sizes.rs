//! Pointwise rows at sizes past every block and register of a kernel, with each input a column, a row, a
//! cell, a constant or a number beside matrices and columns, alone and before a sum along each axis.

use taper::{DType, Device, Result, Tensor, tensor_core::DeviceKind};
use taper_testing::{deal::hash, difference, of};

use crate::{
    check::{Bench, Verdict, in_words, numbers, within},
    draw::Check,
    forms::{Case, Form, cases, name},
    row::{Given, Row},
};

/// The innermost sizes, of which each case takes one.
const SIZES: [usize; 6] = [127, 128, 129, 513, 1025, 2000];
/// The multiple of a row's tolerance: there are hundreds of times as many inputs as in its other checks, and
/// some are near zeros and poles of its function. An element of another place is further off.
const LOOSE: f64 = 8.0;
/// The part of the cases that a GPU takes, where each compiles a kernel.
const GPU_PART: u64 = 16;

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
            let hash = hash(&format!("{} {way}", row.label()));
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
        (first, (form, others)): Case,
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
