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
        ReduceOp::Prod => g.mul(&product_of_others(x, axes)?)?,
        ReduceOp::Any | ReduceOp::All => {
            return Err(Error::new(ErrorKind::Autograd {
                op: "backward",
                message: format!("{} gives no floating-point values, so it has no gradient", op.name()),
            }));
        }
    };
    Ok(vec![Some(dx)])
}

/// For each element the product of all others in its group: of those before it, times those after it. The
/// quotient of the whole product and the element would be wrong for zeros, and where the product leaves the
/// range of numbers but those of the others do not.
fn product_of_others(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    if x.numel() == 0 || axes.is_empty() {
        return Ok(x.ones_like());
    }
    let others = products_from_both_sides(x, axes)?;
    // This mask is a constant, which would give wrong second derivatives.
    if is_grad_enabled() {
        return Ok(others);
    }
    // Beside a zero every product is 0, even if those of the numbers on its other side overflow.
    let zero = x.eq_scalar(0.0).to_dtype(x.dtype())?;
    let beside = zero.sum_axis(axes, true)?.sub(&zero)?.gt_scalar(0.0);
    others.masked_fill(&beside, 0.0)
}

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
