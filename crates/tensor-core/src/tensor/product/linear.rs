//! Matrix products.

use smallvec::SmallVec;

use crate::tensor::Tensor;
use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        shape::Shape,
    },
    devices::defaults::default_dtype,
    elements::dtype::DType,
    graph::op::{Op, Subscripts},
    tensor::autocast,
};

impl Tensor {
    /// The matrix product of `[…, m, k]` and `[…, k, n]`, leading axes broadcast: `[…, m, n]`.
    ///
    /// A vector on the left is a row, on the right a column; its axis is removed from the result, as in
    /// PyTorch.
    ///
    /// # Errors
    /// Inner sizes that differ, leading axes that do not broadcast, a 0-d operand, two dtypes, or two
    /// devices.
    #[track_caller]
    #[doc(alias("mm", "bmm", "mv", "dot", "@"))]
    pub fn matmul(&self, rhs: &Tensor) -> Result<Tensor> {
        self.product(rhs, false)
    }

    /// [`Tensor::matmul`] with a result in the accumulator's dtype, [`DType::register`], instead of
    /// being rounded or wrapped to the operands': the sums of f16, bf16 and 8-bit floats are f32, and
    /// those of 8-bit and 16-bit integers are i32, which wrap there. Later steps, such as a scale and a
    /// zero point, then use the exact sums. The result is f32 also for f16 or bf16 operands that
    /// autocast made. ONNX's `MatMulInteger`, `torch._int_mm`.
    ///
    /// # Errors
    /// As [`Tensor::matmul`].
    #[track_caller]
    pub fn matmul_wide(&self, rhs: &Tensor) -> Result<Tensor> {
        self.product(rhs, true)
    }

    #[track_caller]
    fn product(&self, rhs: &Tensor, wide: bool) -> Result<Tensor> {
        const OP: &str = "matmul";
        Tensor::same_device(OP, &[self, rhs])?;
        let cast = autocast::cast(OP, [self, rhs], [])?;
        let ([this, rhs], []) = cast.tensors();
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
        check_factors(OP, this, rhs)?;
        let row = self.rank() == 1;
        let column = rhs.rank() == 1;
        let lhs = if row { this.unsqueeze(0)? } else { this.clone() };
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
        // The operands broadcast to the whole batch, as the contraction reads them.
        let whole =
            |rows: usize, columns: usize| batch.iter().copied().chain([rows, columns]).collect::<Shape>();
        whole(m, k).checked(OP)?;
        whole(k, n).checked(OP)?;
        let shape = whole(m, n).checked(OP)?;
        let out = contract(&lhs, &rhs_matrix, &shape, wide);
        let mut dropped: SmallVec<[usize; 5]> = SmallVec::new();
        if row {
            dropped.push(shape.rank() - 2);
        }
        if column {
            dropped.push(shape.rank() - 1);
        }
        Ok(if dropped.is_empty() { out } else { out.reshape_unchecked(shape.reduced(&dropped, false)) })
    }
}

/// The advice which of two factors of different dtypes to cast: the non-parameter; if neither is a
/// parameter, the one whose dtype is not the default.
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

/// Whether this is a leaf that requires gradients, or a view of one.
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

impl Tensor {
    /// The sum of the products of two tensors over the axes that the result lacks. [`Tensor::einsum`] is
    /// composed of these; [`Tensor::matmul`] is the case of `[…, m, k]` and `[…, k, n]`.
    ///
    /// # Errors
    /// Labels that [`Subscripts`] does not allow or that have two sizes, bool tensors, two dtypes, or two
    /// devices.
    #[track_caller]
    pub fn contract(&self, rhs: &Tensor, subscripts: Subscripts) -> Result<Tensor> {
        self.contract_by(rhs, subscripts, false)
    }

    /// [`Tensor::contract`] with a result in the accumulator's dtype, as in [`Tensor::matmul_wide`].
    ///
    /// # Errors
    /// As [`Tensor::contract`].
    #[doc(hidden)]
    #[track_caller]
    pub fn contract_wide(&self, rhs: &Tensor, subscripts: Subscripts) -> Result<Tensor> {
        self.contract_by(rhs, subscripts, true)
    }

    #[track_caller]
    fn contract_by(&self, rhs: &Tensor, subscripts: Subscripts, wide: bool) -> Result<Tensor> {
        const OP: &str = "einsum";
        Tensor::same_device(OP, &[self, rhs])?;
        let cast = autocast::cast(OP, [self, rhs], [])?;
        let ([this, rhs], []) = cast.tensors();
        check_factors(OP, this, rhs)?;
        let Subscripts { lhs: left, rhs: right, out } = &subscripts;
        let bad = |message: String| Error::invalid(OP, message).here();
        for (labels, what, rank) in
            [(left, "left", self.rank()), (right, "right", rhs.rank()), (out, "result's", out.len())]
        {
            let repeated = (1..labels.len()).any(|i| labels[..i].contains(&labels[i]));
            if repeated || labels.len() != rank {
                return Err(bad(format!("the {what} labels {labels:?} do not name {rank} axes, each once")));
            }
        }
        let known = |label: &u8| {
            let of =
                |labels: &[u8], t: &Tensor| labels.iter().position(|l| l == label).map(|at| t.dims()[at]);
            (of(left, self), of(right, rhs))
        };
        for label in out.iter().chain(left).chain(right) {
            match known(label) {
                (Some(l), Some(r)) if l != r => {
                    return Err(bad(format!(
                        "the axis labelled {label} has size {l} in one operand, {r} in the other"
                    )));
                }
                (None, None) => return Err(bad(format!("the result's label {label} is no operand's"))),
                (None, Some(_)) | (Some(_), None) if !out.contains(label) => {
                    return Err(bad(format!(
                        "label {label} is one operand's alone; sum over its axis first"
                    )));
                }
                _ => {}
            }
        }
        let sizes = out.iter().map(|label| {
            let (l, r) = known(label);
            l.or(r).unwrap_or(1)
        });
        let shape = sizes.collect::<Shape>().checked(OP)?;
        Ok(contraction(this, rhs, subscripts, shape, wide))
    }
}

/// The node of a contraction. With `wide`, half types keep their f32 sums: a kernel's epilogue passes
/// them on unrounded. On a device without epilogues, the factors are cast to f32.
#[track_caller]
fn contraction(lhs: &Tensor, rhs: &Tensor, subscripts: Subscripts, shape: Shape, wide: bool) -> Tensor {
    let dtype = lhs.dtype();
    let result = if wide { dtype.register() } else { dtype };
    let op = Op::Contract(Box::new(subscripts));
    if result != dtype && lhs.device().info().limits.max_epilogue == 0 {
        return Tensor::build(op, shape, result, &[&lhs.cast_unchecked(result), &rhs.cast_unchecked(result)]);
    }
    Tensor::build(op, shape, result, &[lhs, rhs])
}

/// Checks that factors have one dtype, which is not bool.
#[track_caller]
pub(in crate::tensor) fn check_factors(op: &'static str, lhs: &Tensor, rhs: &Tensor) -> Result<()> {
    if lhs.dtype() != rhs.dtype() {
        return Err(Error::new(ErrorKind::DTypeMismatch {
            op,
            lhs: lhs.dtype(),
            rhs: rhs.dtype(),
            hint: cast_hint(lhs, rhs),
        }));
    }
    if lhs.dtype() == DType::Bool {
        return Err(Error::invalid(op, "bool matrices have no product; cast with .to_dtype(DType::F32)"));
    }
    Ok(())
}

/// The contraction of `[lead…, m, k]` and `[lead…, k, n]`, whose leading axes broadcast to those of
/// `shape`.
#[track_caller]
fn contract(lhs: &Tensor, rhs: &Tensor, shape: &Shape, wide: bool) -> Tensor {
    let batch = &shape[..shape.rank() - 2];
    let spread = |t: &Tensor| {
        let (lead, matrix) = split(t);
        let whole = &batch[batch.len() - lead.len()..];
        if lead == whole {
            return t.clone();
        }
        t.expand_unchecked(whole.iter().chain(matrix).copied().collect())
    };
    let (lhs, rhs) = (spread(lhs), spread(rhs));
    let subscripts = Subscripts::matmul(lhs.rank() - 2, rhs.rank() - 2);
    contraction(&lhs, &rhs, subscripts, shape.clone(), wide)
}

fn split(t: &Tensor) -> (&[usize], &[usize]) {
    t.dims().split_at(t.rank() - 2)
}
