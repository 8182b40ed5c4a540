//! Gradients of cumulative operations. An element receives the gradients of all later results, so each rule
//! is a cumulative operation in the other direction.

use tensor_core::{CumulativeOp, DType, Error, ErrorKind, Result, Tensor, is_grad_enabled};

use super::{Gradients, Step};

pub(super) fn cumulative(op: CumulativeOp, axis: usize, reverse: bool, step: &Step<'_>) -> Gradients {
    let along = Along { axis: axis as isize, reverse };
    let (x, y, g) = (&step.inputs[0], step.node, step.gradient);
    let dx = match op {
        CumulativeOp::Sum => along.back(CumulativeOp::Sum, g)?,
        CumulativeOp::Prod => along.product(x, y, g)?,
        CumulativeOp::LogSumExp => along.log_sum_exp(x, y, g)?,
        CumulativeOp::ArgMax | CumulativeOp::ArgMin => {
            return Err(Error::new(ErrorKind::Autograd {
                op: "backward",
                message: format!("the indices of {} have no gradient", op.name()),
            }));
        }
    };
    Ok(vec![Some(dx)])
}

#[derive(Clone, Copy)]
struct Along {
    axis: isize,
    reverse: bool,
}

impl Along {
    fn back(self, op: CumulativeOp, t: &Tensor) -> Result<Tensor> {
        t.cumulative(op, self.axis, !self.reverse)
    }

    /// Σᵢ gᵢ·yᵢ / x over all i from an element on. The formula fails at zeros, which are treated as in
    /// PyTorch: before the first zero it holds, at the first zero x is left out of the products, and after
    /// it every product is 0.
    fn product(self, x: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
        if x.numel() == 0 {
            return Ok(g.clone());
        }
        let zero = x.eq_scalar(0.0);
        // The masks below are constants, which would give wrong second derivatives.
        if is_grad_enabled() && zero.any().item::<bool>()? {
            return self.product_of_others(x, g);
        }
        let zeros = zero.cumulative(CumulativeOp::Sum, self.axis, self.reverse)?;
        let one = x.masked_fill(&zero, 1.0)?;
        let before = self.back(CumulativeOp::Sum, &g.mul(y)?)?.div(&one)?;
        let first = zero.bitwise_and(&zeros.eq_scalar(1))?;
        // The products without the first zero, from that zero to the second.
        let without = x
            .masked_fill(&first, 1.0)?
            .cumulative(CumulativeOp::Prod, self.axis, self.reverse)?
            .masked_fill(&zeros.eq_scalar(0), 0.0)?;
        let at_zero = self.back(CumulativeOp::Sum, &g.mul(&without)?)?;
        first.where_cond(&at_zero, &before.masked_fill(&zeros.gt_scalar(0), 0.0)?)
    }

    /// Σₖ gₖ·∏ᵢ xᵢ over k from an element on and all i up to k except that element. It takes quadratic time
    /// in the axis's length; it is right for every x, and differentiable.
    fn product_of_others(self, x: &Tensor, g: &Tensor) -> Result<Tensor> {
        let axis = self.axis;
        let own = self.square(x, |element, i| element.eq(i))?;
        let others = own.where_cond(&x.ones_like().unsqueeze(axis)?, &x.unsqueeze(axis)?)?;
        let products = others.cumulative(CumulativeOp::Prod, axis + 1, self.reverse)?;
        let shares = products.mul(&g.unsqueeze(axis)?)?.masked_fill(&self.before(x)?, 0.0)?;
        shares.sum_axis(axis + 1, false)
    }

    /// A mask over pairs of positions on the axis of `x`: the first of each pair is along an additional axis
    /// in front of it.
    fn square(self, x: &Tensor, keep: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let axis = self.axis as usize;
        let numbers = Tensor::arange(0, x.dims()[axis] as i64, 1, (DType::I32, &x.device()))?;
        let mut shape = vec![1; x.rank() + 1];
        shape[axis] = numbers.numel();
        let first = numbers.reshape(shape.as_slice())?;
        shape.swap(axis, axis + 1);
        keep(&first, &numbers.reshape(shape.as_slice())?)
    }

    /// Whether the second position of a pair comes before the first, so that its result does not depend on
    /// the first.
    fn before(self, x: &Tensor) -> Result<Tensor> {
        self.square(x, |first, second| if self.reverse { second.gt(first) } else { second.lt(first) })
    }

    /// Σᵢ gᵢ·e^(x − yᵢ) over all i from an element on, in logarithms, separately for positive and negative
    /// g.
    fn log_sum_exp(self, x: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
        // A g of 0 has no logarithm, and so no gradient: if the gradient is recorded, the sum is computed
        // directly.
        if is_grad_enabled() && g.numel() > 0 && g.eq_scalar(0.0).any().item::<bool>()? {
            return self.log_sum_exp_of_pairs(x, y, g);
        }
        let share = |g: &Tensor| -> Result<Tensor> {
            // −∞ where g has the other sign or is 0, and where y is −∞, because x is −∞ there too.
            let none = g.le_scalar(0.0).bitwise_or(&y.eq_scalar(f64::NEG_INFINITY))?;
            let log = g.masked_fill(&none, 1.0)?.log().sub(y)?.masked_fill(&none, f64::NEG_INFINITY)?;
            Ok(self.back(CumulativeOp::LogSumExp, &log)?.add(x)?.exp())
        };
        share(g)?.sub(&share(&g.neg())?)
    }

    /// The same sum in quadratic time in the axis's length, differentiable also where g is 0.
    fn log_sum_exp_of_pairs(self, x: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
        let axis = self.axis;
        let (y, g) = (y.unsqueeze(axis)?, g.unsqueeze(axis)?);
        // From an element on, x ≤ y: the exponents that remain are at most 0.
        let none = self.before(x)?.bitwise_or(&y.eq_scalar(f64::NEG_INFINITY))?;
        let exponents = x.unsqueeze(axis + 1)?.sub(&y)?.masked_fill(&none, f64::NEG_INFINITY)?;
        exponents.exp().mul(&g)?.sum_axis(axis + 1, false)
    }
}
