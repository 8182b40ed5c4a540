//! Matrix products.

use smallvec::SmallVec;

use super::Tensor;
use crate::{DType, Error, ErrorKind, Op, Result, Shape, default_dtype};

impl Tensor {
    /// The matrix product of `[…, m, k]` and `[…, k, n]`, leading axes broadcast: `[…, m, n]`.
    ///
    /// A vector on the left is a row, on the right a column; its axis goes again, as in PyTorch.
    ///
    /// # Errors
    /// Inner sizes that differ, leading axes that do not broadcast, a 0-d operand, two dtypes, or two devices.
    #[track_caller]
    #[doc(alias("mm", "bmm", "mv", "dot", "@"))]
    pub fn matmul(&self, rhs: &Tensor) -> Result<Tensor> {
        const OP: &str = "matmul";
        Tensor::same_device(OP, &[self, rhs])?;
        let misfit = |hint: String| {
            Error::new(ErrorKind::ShapeMismatch {
                op: OP,
                lhs: self.shape().clone(),
                rhs: rhs.shape().clone(),
                hint,
            })
        };
        if self.rank() == 0 || rhs.rank() == 0 {
            return Err(misfit("a scalar is no matrix; multiply with * instead".into()).here());
        }
        if self.dtype() != rhs.dtype() {
            return Err(Error::new(ErrorKind::DTypeMismatch {
                op: OP,
                lhs: self.dtype(),
                rhs: rhs.dtype(),
                hint: cast_hint(self, rhs),
            }));
        }
        if self.dtype() == DType::Bool {
            return Err(Error::invalid(OP, "bool matrices have no product; cast with .to_dtype(DType::F32)"));
        }
        let row = self.rank() == 1;
        let column = rhs.rank() == 1;
        let lhs = if row { self.unsqueeze(0)? } else { self.clone() };
        let rhs_matrix = if column { rhs.unsqueeze(1)? } else { rhs.clone() };
        let (lead_l, &[m, k]) = split(&lhs) else { return Err(misfit("two axes are needed".into()).here()) };
        let (lead_r, &[k2, n]) = split(&rhs_matrix) else {
            return Err(misfit("two axes are needed".into()).here());
        };
        if k != k2 {
            let hint = if !column && rhs.dims()[rhs.rank() - 1] == k {
                "; did you mean rhs.t()?"
            } else if !row && self.dims()[self.rank() - 2] == k2 {
                "; did you mean lhs.t()?"
            } else {
                ""
            };
            return Err(misfit(format!("inner sizes {k} and {k2} differ{hint}")).here());
        }
        let Ok(batch) = Shape::from(lead_l).broadcast(&Shape::from(lead_r), OP) else {
            return Err(misfit(format!("leading axes {lead_l:?} and {lead_r:?} do not broadcast")).here());
        };
        // The operands as the product reads them: all of the batch, whatever they were broadcast from.
        let wide =
            |rows: usize, columns: usize| batch.iter().copied().chain([rows, columns]).collect::<Shape>();
        wide(m, k).checked(OP)?;
        wide(k, n).checked(OP)?;
        let shape = wide(m, n).checked(OP)?;
        let out = Tensor::build(Op::MatMul, shape.clone(), self.dtype(), &[&lhs, &rhs_matrix]);
        let mut gone: SmallVec<[usize; 5]> = SmallVec::new();
        if row {
            gone.push(shape.rank() - 2);
        }
        if column {
            gone.push(shape.rank() - 1);
        }
        Ok(if gone.is_empty() { out } else { out.reshape_unchecked(shape.reduced(&gone, false)) })
    }
}

/// Which of two factors of different dtypes to cast: the one that is no parameter; of two others, the one that has not the default
/// dtype, which data seldom leaves on purpose.
fn cast_hint(lhs: &Tensor, rhs: &Tensor) -> String {
    let (l, r) = (lhs.dtype(), rhs.dtype());
    let (kept, why) = match (is_parameter(lhs), is_parameter(rhs)) {
        (false, true) => (r, ", that of the parameter"),
        (true, false) => (l, ", that of the parameter"),
        _ if [l, r].contains(&default_dtype()) => (default_dtype(), ""),
        _ => (l.promote(r), ""),
    };
    let which = match (l == kept, r == kept) {
        (true, _) => "the right one",
        (_, true) => "the left one",
        _ => "both",
    };
    format!("cast {which} with .to_dtype(DType::{kept:?})?{why}")
}

/// Whether this is a leaf that wants gradients, or a view of one.
fn is_parameter(tensor: &Tensor) -> bool {
    let mut seen = tensor.resolve();
    while !seen.is_leaf_value() {
        match seen.recorded_inputs().pop() {
            Some(input) if seen.op().is_view() || matches!(seen.op(), Op::ToDevice) => seen = input,
            _ => return false,
        }
    }
    true
}

fn split(t: &Tensor) -> (&[usize], &[usize]) {
    t.dims().split_at(t.rank() - 2)
}
