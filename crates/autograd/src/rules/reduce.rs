//! Gradients of reductions: each element's share of what its group got.

use tensor_core::{Error, ErrorKind, ReduceOp, Result, Tensor};

use super::{Gradients, Step};

pub(super) fn reduce(op: ReduceOp, axes: &[usize], step: &Step<'_>) -> Gradients {
    let (x, y) = (&step.inputs[0], step.node);
    // The output and its gradient with the reduced axes back, to broadcast against the input.
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
            // Equals share, as in torch.amax.
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

/// For each element the product of all others in its group: y / x, except where a zero stands.
fn product_of_others(x: &Tensor, y: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let zero = x.eq_scalar(0.0);
    let zeros = zero.to_dtype(x.dtype())?.sum_axis(axes, true)?;
    // A lone zero leaves its others' product to itself; beside a zero every product is 0.
    let others = x.masked_fill(&zero, 1.0)?.prod_axis(axes, true)?.masked_fill(&zeros.ne_scalar(1.0), 0.0)?;
    let quotient = y.div(&x.masked_fill(&zero, 1.0)?)?.masked_fill(&zeros.gt_scalar(0.0), 0.0)?;
    zero.where_cond(&others, &quotient)
}
