//! Gradients of reductions: the share of each element in the gradient of its group.

use tensor_core::{CumulativeOp, Error, ErrorKind, ReduceOp, Result, Tensor, is_grad_enabled};

use super::{Gradients, Step};

pub(super) fn reduce(op: ReduceOp, axes: &[usize], step: &Step<'_>) -> Gradients {
    let (x, y) = (&step.inputs[0], step.node);
    // The output and its gradient with the reduced axes kept, to broadcast against the input.
    let kept = x.shape().reduced(axes, true);
    let wide = |t: &Tensor| t.reshape(&kept);
    let spread = |t: Tensor| t.expand(x.shape());
    let g = wide(step.gradient)?;
    let dx = match op {
        ReduceOp::Sum => spread(g)?,
        ReduceOp::Mean => {
            let n: usize = axes.iter().map(|&a| x.dims()[a]).product();
            spread(g.div_scalar(n as f64))?
        }
        ReduceOp::Max | ReduceOp::Min => {
            // Equal elements share the gradient, as in torch.amax.
            let chosen = x.eq(&wide(y)?)?.to_dtype(x.dtype())?;
            chosen.mul(&g.div(&chosen.sum_axis(axes, true)?)?)?
        }
        ReduceOp::Prod => g.mul(&product_of_others(x, &wide(y)?, axes)?)?,
        ReduceOp::Any | ReduceOp::All => {
            return Err(Error::new(ErrorKind::Autograd {
                op: "backward",
                message: format!("{} gives no floating-point values, so it has no gradient", op.name()),
            }));
        }
    };
    Ok(vec![Some(dx)])
}

/// For each element the product of all others in its group: y / x, with exceptions for zeros.
fn product_of_others(x: &Tensor, y: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let zero = x.eq_scalar(0.0);
    // The masks below are constants, which would give wrong second derivatives.
    if is_grad_enabled() && zero.any().item::<bool>()? {
        return products_from_both_sides(x, axes);
    }
    let zeros = zero.to_dtype(x.dtype())?.sum_axis(axes, true)?;
    // At a single zero the product of the others remains; beside a zero every product is 0.
    let others = x.masked_fill(&zero, 1.0)?.prod_axis(axes, true)?.masked_fill(&zeros.ne_scalar(1.0), 0.0)?;
    let quotient = y.div(&x.masked_fill(&zero, 1.0)?)?.masked_fill(&zeros.gt_scalar(0.0), 0.0)?;
    zero.where_cond(&others, &quotient)
}

/// The same by multiplication alone, which is differentiable at zeros too: for each element the product of
/// those before it in its group, times that of those after it.
fn products_from_both_sides(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    // The reduced axes are moved last and merged.
    let kept = (0..x.rank()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &axis)| inverse[axis] = i);
    let moved = x.permute(order)?;
    let lines = moved.flatten(-(axes.len() as isize), -1)?;
    let n = lines.dim(-1)?;
    let one = lines.narrow(-1, 0, 1)?.ones_like();
    let before = Tensor::concat(&[&one, &lines.narrow(-1, 0, n - 1)?], -1)?;
    let after = Tensor::concat(&[&lines.narrow(-1, 1, n - 1)?, &one], -1)?;
    let before = before.cumulative(CumulativeOp::Prod, -1, false)?;
    let after = after.cumulative(CumulativeOp::Prod, -1, true)?;
    before.mul(&after)?.reshape(moved.shape())?.permute(inverse)
}
