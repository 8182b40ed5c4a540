//! Sums the gradients that a tensor receives from its readers. The shares of slices and contractions are
//! deferred until all readers are known, because together they often take one pass over memory instead of
//! one each: the gradients of the parts of a split are concatenated, and a weight that is used at every step
//! of a sequence gets its gradient from one product over all steps.

use smallvec::SmallVec;
use tensor_core::{Op, Result, Subscripts, Tensor};

use crate::rules;

/// The gradient of a node so far.
#[derive(Default)]
pub(crate) struct Sum {
    whole: Option<Tensor>,
    later: Vec<Later>,
}

/// A reader whose share is computed at the end.
struct Later {
    /// The reader's node.
    node: Tensor,
    inputs: SmallVec<[Tensor; 2]>,
    /// The number of the reader's input that is this node.
    input: usize,
    /// The gradient of the reader.
    gradient: Tensor,
}

/// A share that is a contraction of two tensors.
struct Product {
    left: Tensor,
    right: Tensor,
    subscripts: Subscripts,
}

impl Sum {
    pub(crate) fn add(&mut self, gradient: Tensor) -> Result<()> {
        add(&mut self.whole, gradient)
    }

    /// Defers the share of a slice or a contraction whose input number `input` is this node; `gradient` is
    /// the reader's own.
    pub(crate) fn expect(
        &mut self,
        node: &Tensor,
        inputs: &SmallVec<[Tensor; 2]>,
        input: usize,
        gradient: Tensor,
    ) {
        self.later.push(Later { node: node.clone(), inputs: inputs.clone(), input, gradient });
    }

    /// The whole gradient of `node`; none if nothing was added.
    pub(crate) fn finish(mut self, node: &Tensor) -> Result<Option<Tensor>> {
        let mut later = std::mem::take(&mut self.later).into_iter().peekable();
        // Runs of readers that can be combined, in the order in which they were added.
        while let Some(first) = later.next() {
            let mut run = vec![first];
            while let Some(next) = later.next_if(|next| run[0].goes_with(next, node)) {
                run.push(next);
            }
            let first = run[0].node.clone();
            first.in_gradient_rule(|| self.add(together(&mut run, node)?))?;
        }
        Ok(self.whole)
    }
}

pub(crate) fn add(slot: &mut Option<Tensor>, gradient: Tensor) -> Result<()> {
    *slot = Some(match slot.take() {
        Some(sum) => sum.add(&gradient)?,
        None => gradient,
    });
    Ok(())
}

impl Later {
    /// The axis, start and end of a slice with step 1.
    fn range(&self) -> Option<(usize, usize, usize)> {
        let Op::Slice { axis, start, step: 1 } = *self.node.op() else { return None };
        Some((axis, start, start + self.gradient.dims()[axis]))
    }

    fn product(&self) -> Option<Product> {
        let Op::Contract(subscripts) = self.node.op() else { return None };
        Some(rules::factors(subscripts, &self.inputs, self.input, &self.gradient))
            .map(|(left, right, subscripts)| Product { left, right, subscripts })
    }

    /// Whether both readers are slices along one axis, or contractions of one form that are cheaper
    /// combined.
    fn goes_with(&self, other: &Later, node: &Tensor) -> bool {
        match (self.range(), other.range(), self.product(), other.product()) {
            (Some(mine), Some(theirs), ..) => mine.0 == theirs.0,
            (_, _, Some(mine), Some(theirs)) => mine.joins(&theirs, node.numel()),
            _ => false,
        }
    }
}

impl Product {
    /// Whether the sum of this product and another one, of `numel` elements each, is better computed as one
    /// product of concatenated operands: the operands must be smaller than the results that are not stored
    /// then.
    fn joins(&self, other: &Product, numel: usize) -> bool {
        self.subscripts == other.subscripts
            && self.left.shape() == other.left.shape()
            && self.right.shape() == other.right.shape()
            && self.left.numel() + self.right.numel() <= numel
            && self.summed().is_some()
    }

    /// The positions, in both operands, of the first axis that is summed over.
    fn summed(&self) -> Option<(usize, usize)> {
        let Subscripts { lhs, rhs, out } = &self.subscripts;
        let left = lhs.iter().position(|label| !out.contains(label))?;
        Some((left, rhs.iter().position(|label| *label == lhs[left])?))
    }
}

/// The combined share of readers of one run.
fn together(run: &mut [Later], node: &Tensor) -> Result<Tensor> {
    run.sort_by_key(|later| later.range().map(|(_, start, end)| (start, end)));
    let ranges: Option<Vec<_>> = run.iter().map(Later::range).collect();
    if let Some(ranges) = ranges.filter(|ranges| ranges.len() > 1) {
        if ranges.windows(2).all(|two| two[0].2 <= two[1].1) {
            return side_by_side(run, &ranges, node);
        }
        return each(run, node);
    }
    let products: Option<Vec<Product>> = run.iter().map(Later::product).collect();
    if let Some(products) = products.filter(|products| products.len() > 1)
        && let Some((left, right)) = products[0].summed()
    {
        let lefts: Vec<&Tensor> = products.iter().map(|product| &product.left).collect();
        let rights: Vec<&Tensor> = products.iter().map(|product| &product.right).collect();
        let (lefts, rights) = (Tensor::concat(&lefts, left)?, Tensor::concat(&rights, right)?);
        return lefts.contract(&rights, products[0].subscripts.clone());
    }
    each(run, node)
}

/// The sum of the readers' shares.
fn each(run: &[Later], node: &Tensor) -> Result<Tensor> {
    let mut sum = None;
    for Later { node: reader, inputs, input, gradient } in run {
        let mut needs: SmallVec<[bool; 2]> = SmallVec::from_elem(false, inputs.len());
        needs[*input] = true;
        let step = rules::Step { node: reader, inputs, gradient, needs: &needs };
        let found = reader.in_gradient_rule(|| rules::gradients(&step))?;
        for share in found.into_iter().flatten() {
            add(&mut sum, share)?;
        }
    }
    Ok(sum.unwrap_or_else(|| node.zeros_like()))
}

/// Concatenates the gradients of slices in order along an axis, with zeros between them.
fn side_by_side(run: &[Later], ranges: &[(usize, usize, usize)], node: &Tensor) -> Result<Tensor> {
    let axis = ranges[0].0;
    let zeros = |from: usize, to: usize| -> Result<Tensor> {
        let mut shape = node.dims().to_vec();
        shape[axis] = to - from;
        Tensor::zeros(shape, (node.dtype(), &node.device()))
    };
    let mut pieces = Vec::with_capacity(2 * run.len() + 1);
    let mut at = 0;
    for (later, &(_, start, end)) in run.iter().zip(ranges) {
        if start > at {
            pieces.push(zeros(at, start)?);
        }
        pieces.push(later.gradient.clone());
        at = end;
    }
    if at < node.dims()[axis] {
        pieces.push(zeros(at, node.dims()[axis])?);
    }
    Tensor::concat(&pieces, axis)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tensor_core::{DType, Generator};

    use super::*;
    use crate::{TensorGrad, grad, gradcheck, gradgradcheck};

    fn random(shape: &[usize]) -> Tensor {
        let rng = Generator::seed(shape.len() as u64, &backend_cpu::cpu());
        Tensor::randn_dtype(shape, DType::F64, &rng).unwrap().mul_scalar(0.5)
    }

    /// The gradient of the sum of `f` at each input, as an unevaluated node.
    fn gradients(f: impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor]) -> Vec<Tensor> {
        let inputs: Vec<Tensor> = inputs.iter().map(|x| x.clone().requires_grad()).collect();
        let y = f(&inputs).unwrap().sum();
        grad(&[&y], &inputs, false).unwrap().into_iter().map(Option::unwrap).collect()
    }

    #[test]
    fn slices_go_side_by_side_where_they_lie_apart() {
        // The axis, start and length of each slice, whether the whole tensor is read as well, and whether
        // one pass computes the gradient.
        type Slices = (&'static [(isize, usize, usize)], bool, bool);
        let cases: [Slices; 8] = [
            (&[(1, 5, 2), (1, 0, 2), (1, 2, 3)], false, true),
            (&[(1, 5, 2), (1, 0, 2), (1, 2, 3)], true, false),
            (&[(1, 1, 2), (1, 4, 1)], false, true),
            (&[(1, 0, 3), (1, 2, 4)], false, false),
            (&[(1, 3, 2), (1, 3, 2)], false, false),
            (&[(0, 0, 1), (1, 2, 3), (0, 2, 2)], true, false),
            (&[(0, 1, 0), (0, 1, 1), (0, 3, 1)], false, true),
            (&[(1, 1, 6), (1, 0, 1)], false, true),
        ];
        for (slices, whole, one_pass) in cases {
            let f = |x: &[Tensor]| -> Result<Tensor> {
                let mut sum = if whole { Some(x[0].powi(2).sum()) } else { None };
                for (k, &(axis, start, len)) in slices.iter().enumerate() {
                    add(&mut sum, x[0].narrow(axis, start, len)?.powi(k as i32 + 2).sum())?;
                }
                Ok(sum.unwrap())
            };
            let x = [random(&[4, 7])];
            assert_eq!(
                matches!(gradients(f, &x)[0].op(), Op::Concat { .. }),
                one_pass,
                "{slices:?}, {whole}"
            );
            gradcheck(f, &x).unwrap();
            gradgradcheck(f, &x).unwrap();
        }
    }

    #[test]
    fn a_weight_of_many_small_products_gets_one() {
        let x = [random(&[2, 6]), random(&[6, 6])];
        let right = |x: &[Tensor]| (0..4).try_fold(x[0].clone(), |h, _| Ok(h.matmul(&x[1])?.tanh()));
        let left = |x: &[Tensor]| (0..4).try_fold(x[0].t()?, |h, _| Ok(x[1].matmul(&h)?.tanh()));
        for gradient in [&gradients(right, &x)[1], &gradients(left, &x)[1]] {
            assert!(matches!(gradient.op(), Op::Contract(_)), "{:?}", gradient.op());
        }
        // The product of a tensor with itself, operands of another size, and another reader between.
        let mixed = |x: &[Tensor]| {
            let first = x[0].matmul(&x[1])?.add(&x[0].tanh().matmul(&x[1])?)?;
            let second = first.matmul(&x[1])?.add(&x[0].narrow(0, 0, 1)?.matmul(&x[1])?)?;
            second.mul(&x[1].matmul(&x[1])?.sum())?.add(&x[1].exp().sum())
        };
        // A weight with an axis for a batch of products.
        let batched = |x: &[Tensor]| {
            let weight = Tensor::stack(&[&x[1], &x[1].tanh()], 0)?;
            let first = x[0].reshape([1, 2, 6])?.expand([2, 2, 6])?;
            (0..3).try_fold(first, |h, _| Ok(h.matmul(&weight)?.tanh()))
        };
        type Of<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor>;
        for f in [&right as Of<'_>, &left, &mixed, &batched] {
            gradcheck(f, &x).unwrap();
            gradgradcheck(f, &x).unwrap();
        }
    }
}
