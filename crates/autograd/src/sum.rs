//! The gradient of one tensor from all that read it. Slices and contractions of it are kept until all readers are done, as together
//! they often take one pass over memory where each for itself would take one: the parts of a split go side by side, and a weight that
//! is used at every step of a sequence gets its gradient from one product over all steps.

use smallvec::SmallVec;
use tensor_core::{Op, Result, Subscripts, Tensor, with_location};

use crate::rules;

/// What a node has got so far.
#[derive(Default)]
pub(crate) struct Sum {
    whole: Option<Tensor>,
    later: Vec<Later>,
}

/// A reader whose share is computed at the end.
struct Later {
    /// The reader.
    node: Tensor,
    inputs: SmallVec<[Tensor; 2]>,
    /// Which of its inputs it is about.
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

    /// Takes note of a slice or a contraction that has this node as input number `input`, and of its gradient.
    pub(crate) fn expect(
        &mut self,
        node: &Tensor,
        inputs: &SmallVec<[Tensor; 2]>,
        input: usize,
        gradient: Tensor,
    ) {
        self.later.push(Later { node: node.clone(), inputs: inputs.clone(), input, gradient });
    }

    /// All of it, for `node`; none if nothing came.
    pub(crate) fn finish(mut self, node: &Tensor) -> Result<Option<Tensor>> {
        let mut later = std::mem::take(&mut self.later).into_iter().peekable();
        // Runs of readers that can be taken together, in the order in which they came.
        while let Some(first) = later.next() {
            let mut run = vec![first];
            while let Some(next) = later.next_if(|next| run[0].goes_with(next, node)) {
                run.push(next);
            }
            self.add(with_location(run[0].node.location(), || together(&mut run, node))?)?;
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
    /// The axis, start and end of a slice that leaves out nothing between its ends.
    fn range(&self) -> Option<(usize, usize, usize)> {
        let Op::Slice { axis, start, step: 1 } = *self.node.op() else { return None };
        Some((axis, start, start + self.gradient.dims()[axis]))
    }

    fn product(&self) -> Option<Product> {
        let Op::Contract(subscripts) = self.node.op() else { return None };
        Some(rules::factors(subscripts, &self.inputs, self.input, &self.gradient))
            .map(|(left, right, subscripts)| Product { left, right, subscripts })
    }

    /// Whether both are slices along one axis, or contractions of one form that are cheaper as one.
    fn goes_with(&self, other: &Later, node: &Tensor) -> bool {
        match (self.range(), other.range(), self.product(), other.product()) {
            (Some(mine), Some(theirs), ..) => mine.0 == theirs.0,
            (_, _, Some(mine), Some(theirs)) => mine.joins(&theirs, node.numel()),
            _ => false,
        }
    }
}

impl Product {
    /// Whether the sum of this product and another one of `numel` elements is better computed as one product of joined operands: these
    /// are to be smaller than the results that need not be stored.
    fn joins(&self, other: &Product, numel: usize) -> bool {
        self.subscripts == other.subscripts
            && self.left.shape() == other.left.shape()
            && self.right.shape() == other.right.shape()
            && self.left.numel() + self.right.numel() <= numel
            && self.summed().is_some()
    }

    /// The places in both operands of the first axis that is summed over.
    fn summed(&self) -> Option<(usize, usize)> {
        let Subscripts { lhs, rhs, out } = &self.subscripts;
        let left = lhs.iter().position(|label| !out.contains(label))?;
        Some((left, rhs.iter().position(|label| *label == lhs[left])?))
    }
}

/// The share of readers that go with each other.
fn together(run: &mut [Later], node: &Tensor) -> Result<Tensor> {
    run.sort_by_key(|later| later.range().map(|range| range.1));
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

/// The sum of the shares of all.
fn each(run: &[Later], node: &Tensor) -> Result<Tensor> {
    let mut sum = None;
    for Later { node: reader, inputs, input, gradient } in run {
        let mut needs: SmallVec<[bool; 2]> = SmallVec::from_elem(false, inputs.len());
        needs[*input] = true;
        let step = rules::Step { node: reader, inputs, gradient, needs: &needs };
        let found = with_location(reader.location(), || rules::gradients(&step))?;
        for share in found.into_iter().flatten() {
            add(&mut sum, share)?;
        }
    }
    Ok(sum.unwrap_or_else(|| node.zeros_like()))
}

/// The gradients of slices in order along an axis, with zeros between them.
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
