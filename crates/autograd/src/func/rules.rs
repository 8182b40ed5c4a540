//! The batching rule of each operation, for operands with an additional first axis of slices.

use std::sync::Arc;

use smallvec::SmallVec;
use tensor_core::{
    CustomKernel, Error, Expression, Op, OpClass, OtherOp, Padding, Result, Shape, Subscripts, Tensor, ViewOp,
};

/// The name in error messages.
pub(super) const OP: &str = "vmap";

/// An input of an operation: if it is mapped, its slices are along the first axis; if not, it is the same
/// for all slices.
pub(super) struct Operand {
    pub(super) tensor: Tensor,
    pub(super) mapped: bool,
}

/// A shape with a leading axis of `n` slices.
fn with_slices(n: usize, shape: &[usize]) -> Shape {
    std::iter::once(n).chain(shape.iter().copied()).collect()
}

/// The tensor repeated for `n` slices.
pub(super) fn expanded(x: &Tensor, n: usize) -> Result<Tensor> {
    x.expand(with_slices(n, x.dims()))
}

impl Operand {
    /// The operand for an operation that broadcasts slices of `rank` axes.
    fn broadcast(&self, rank: usize) -> Result<Tensor> {
        let dims = self.tensor.dims();
        if !self.mapped || dims.len() > rank {
            return Ok(self.tensor.clone());
        }
        let ones = std::iter::repeat_n(1, rank + 1 - dims.len());
        self.tensor.reshape(
            dims[..1].iter().copied().chain(ones).chain(dims[1..].iter().copied()).collect::<Shape>(),
        )
    }

    /// The operand for an operation that does not broadcast: with all `n` slices.
    pub(super) fn whole(&self, n: usize) -> Result<Tensor> {
        if self.mapped { Ok(self.tensor.clone()) } else { expanded(&self.tensor, n) }
    }
}

/// The result of an operation with a single result, for operands of which at least one is mapped.
pub(super) fn one(node: &Tensor, operands: &[Operand], n: usize) -> Result<Tensor> {
    let shape = node.dims();
    let rank = shape.len();
    use OpClass as Class;
    let result = match (node.op().class(), operands) {
        (Class::Expression(Expression::Unary(op)), [x]) => x.tensor.unary(op),
        (Class::Expression(Expression::Powi(power)), [x]) => x.tensor.powi(power),
        (Class::Expression(Expression::Formula(formula)), [x]) => x.tensor.formula(formula),
        (Class::Expression(Expression::Binary(op)), [a, b]) => {
            a.broadcast(rank)?.binary(op, &b.broadcast(rank)?)?
        }
        (Class::Expression(Expression::Compare(op)), [a, b]) => {
            a.broadcast(rank)?.compare(op, &b.broadcast(rank)?)?
        }
        (Class::Expression(Expression::Where), [condition, a, b]) => {
            condition.broadcast(rank)?.where_cond(&a.broadcast(rank)?, &b.broadcast(rank)?)?
        }
        (Class::Expression(Expression::Cast), [x]) => x.tensor.to_dtype(node.dtype())?,
        (Class::View(ViewOp::Reshape), [x]) => x.tensor.reshape(with_slices(n, shape))?,
        (Class::View(ViewOp::Permute(axes)), [x]) => {
            let axes = std::iter::once(0).chain(axes.iter().map(|axis| axis + 1));
            x.tensor.permute(axes.collect::<Vec<usize>>())?
        }
        (Class::View(ViewOp::Expand), [x]) => x.broadcast(rank)?.expand(with_slices(n, shape))?,
        (Class::View(ViewOp::Slice { axis, start, step }), [x]) => {
            slice(&x.tensor, axis + 1, start, step, shape[axis])?
        }
        (Class::View(ViewOp::Unfold { axis, step, dilation }), [x]) => {
            x.tensor.windows(axis as isize + 1, shape[rank - 1], step, dilation)?
        }
        (Class::Other(OtherOp::Concat { axis }), parts) => {
            let parts = parts.iter().map(|part| part.whole(n)).collect::<Result<Vec<_>>>()?;
            Tensor::concat(&parts, axis as isize + 1)?
        }
        (Class::Other(OtherOp::Pad(padding)), [x]) => {
            let Padding { before, interior, value } = padding;
            let behind = |sizes: &[usize]| std::iter::once(0).chain(sizes.iter().copied()).collect();
            x.tensor.pad_between(behind(before), behind(interior), with_slices(n, shape), *value)?
        }
        (Class::Other(OtherOp::Reduce { op, axes, keepdim }), [x]) => {
            let axes: Vec<usize> = axes.iter().map(|axis| axis + 1).collect();
            x.tensor.reduce(op, axes, keepdim)?
        }
        (Class::Other(OtherOp::ArgReduce { op, axis, keepdim }), [x]) => {
            x.tensor.arg_reduce(op, axis as isize + 1, keepdim)?
        }
        (Class::Other(OtherOp::Cumulative { op, axis, reverse }), [x]) => {
            x.tensor.cumulative(op, axis as isize + 1, reverse)?
        }
        (Class::Other(OtherOp::Contract(subscripts)), [a, b]) => contract(subscripts, a, b)?,
        (Class::Other(OtherOp::Gather { axis }), [x, index]) => {
            x.whole(n)?.gather(axis as isize + 1, &index.whole(n)?)?
        }
        (Class::Other(OtherOp::Scatter { op, axis }), [base, index, src]) => {
            base.whole(n)?.scatter_with(op, axis as isize + 1, &index.whole(n)?, &src.whole(n)?)?
        }
        (Class::View(ViewOp::Contiguous), [x]) => x.tensor.contiguous_copy(),
        (Class::Other(OtherOp::ToDevice), [x]) => x.tensor.to(&node.device())?,
        // Operations without inputs, with several results, or with an unexpected number of inputs.
        (
            Class::Leaf | Class::Expression(_) | Class::View(_) | Class::Tuple(_) | Class::Other(_),
            operands,
        ) => return Err(no_rule(node.op(), operands.len())),
    };
    // Methods return indices and flags in the dtype for users; the graph has them in the kernels' dtype.
    if result.dtype() == node.dtype() { Ok(result) } else { result.to_dtype(node.dtype()) }
}

pub(super) fn no_rule(op: &Op, inputs: usize) -> Error {
    Error::invalid(OP, format!("{} with {inputs} inputs has no batching rule", op.name()))
}

/// `len` elements of an axis from `start` on, every `step`-th.
fn slice(x: &Tensor, axis: usize, start: usize, step: isize, len: usize) -> Result<Tensor> {
    let along = axis as isize;
    if len == 0 {
        return x.narrow(along, 0, 0);
    }
    let reach = (len - 1) * step.unsigned_abs();
    let first = if step < 0 { start - reach } else { start };
    let taken = x.slice_step(along, first..first + reach + 1, step.unsigned_abs())?;
    if step < 0 { taken.flip(along) } else { Ok(taken) }
}

/// A contraction with an axis of slices, which is a batch axis if both operands have it.
fn contract(subscripts: &Subscripts, a: &Operand, b: &Operand) -> Result<Tensor> {
    let Subscripts { lhs, rhs, out } = subscripts;
    let label = lhs.iter().chain(rhs).chain(out).max().map_or(0, |label| label + 1);
    let behind = |labels: &[u8], mapped: bool| -> SmallVec<[u8; 8]> {
        mapped.then_some(label).into_iter().chain(labels.iter().copied()).collect()
    };
    let subscripts =
        Subscripts { lhs: behind(lhs, a.mapped), rhs: behind(rhs, b.mapped), out: behind(out, true) };
    a.tensor.contract(&b.tensor, subscripts)
}

/// The results of an operation with several results, for operands of which at least one is mapped.
pub(super) fn several(node: &Tensor, operands: &[Operand], n: usize) -> Result<Vec<Tensor>> {
    match (node.op(), operands) {
        (Op::Sort { axis, descending }, [x]) => {
            let elements = node.elements();
            let Some(first) = elements.first() else { return Ok(Vec::new()) };
            let (values, indices) = match first.dims()[*axis] {
                k if k == x.tensor.dims()[axis + 1] => x.tensor.sort(*axis as isize + 1, *descending)?,
                k => x.tensor.topk(k, *axis as isize + 1, *descending)?,
            };
            let results = [values, indices].into_iter().zip(&elements);
            results.map(|(result, element)| result.to_dtype(element.dtype())).collect()
        }
        (Op::CustomKernel(kernel), operands) if kernel.is_batched() => {
            let operands = operands.iter().map(|operand| operand.whole(n)).collect::<Result<Vec<_>>>()?;
            Tensor::custom_kernel(Arc::clone(kernel), &operands.iter().collect::<Vec<_>>())
        }
        (Op::CustomKernel(kernel), operands) => slice_by_slice(kernel, &node.elements(), operands, n),
        (op, operands) => Err(no_rule(op, operands.len())),
    }
}

/// Runs a kernel that does not support slices once for each slice.
fn slice_by_slice(
    kernel: &Arc<dyn CustomKernel>,
    elements: &[Tensor],
    operands: &[Operand],
    n: usize,
) -> Result<Vec<Tensor>> {
    let mut results: Vec<Vec<Tensor>> = vec![Vec::with_capacity(n); elements.len()];
    for k in 0..n {
        let given = operands.iter().map(|operand| match operand.mapped {
            true => operand.tensor.select(0, k as isize),
            false => Ok(operand.tensor.clone()),
        });
        let given = given.collect::<Result<Vec<_>>>()?;
        let found = Tensor::custom_kernel(Arc::clone(kernel), &given.iter().collect::<Vec<_>>())?;
        results.iter_mut().zip(found).for_each(|(all, found)| all.push(found));
    }
    let stacked = |(all, element): (Vec<Tensor>, &Tensor)| match n {
        0 => Tensor::zeros(with_slices(0, element.dims()), (element.dtype(), &element.device())),
        _ => Tensor::stack(&all, 0),
    };
    results.into_iter().zip(elements).map(stacked).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tensor_core::{Fourier, FourierKind, Tensor, plan_of};

    use crate::func::vmap;

    #[test]
    fn a_kernel_that_takes_several_slices_is_called_once() {
        let x = Tensor::arange(0.0, 24.0, 1.0, &backend_cpu::cpu()).unwrap().reshape([8, 3]).unwrap();
        x.eval().unwrap();
        let of = Fourier::new(FourierKind::RealToHalf, 8, 1.0);
        let y = vmap(|x| of.apply(&x[0]), &[x], &[Some(1)]).unwrap();
        assert_eq!(y.dims(), [3, 5, 2]);
        let plan = plan_of(&y).unwrap();
        let named = |name| plan.kernels.iter().filter(|planned| planned.kernel.name() == name).count();
        assert_eq!((named("rfft"), plan.kernels.len()), (1, 1), "the slices are read where they lie");
        let first = y.select(0, 0).unwrap().to_vec::<f32>().unwrap();
        // Slice 0 has 0, 3, …, 21; its first element is their sum.
        assert_eq!(first[0], 84.0);
        assert!((first[2] + 12.0).abs() < 1e-4 && (first[3] - 28.970_563).abs() < 1e-4, "{first:?}");
    }
}
