//! Random draws with probabilities given by a tensor.

use crate::tensor::{Generator, Tensor};
use crate::{
    base::{
        error::{Error, Result},
        shape::Shape,
    },
    elements::dtype::DType,
    graph::op::Op,
    kernels::operators::Refusal,
};

impl Tensor {
    /// 1 with the probability that the element holds, else 0, in this tensor's dtype. `torch.bernoulli`.
    /// Gradients do not flow back.
    ///
    /// A probability of 0 never gives 1, and one of 1 always does. The draws depend only on `rng`, not
    /// on the device.
    ///
    /// # Errors
    /// A dtype that is not floating-point, or a device that cannot draw that many numbers. When the
    /// result is computed, and on a GPU when a dependent value is read: a probability that is outside
    /// [0, 1] or NaN.
    #[track_caller]
    #[doc(alias = "bernoulli_")]
    pub fn bernoulli(&self, rng: &Generator) -> Result<Tensor> {
        const OP: &str = "bernoulli";
        const REFUSAL: &Refusal =
            &Refusal { op: OP, message: Some("a probability is outside [0, 1] or NaN") };
        self.require_float(OP)?;
        let dtype = self.dtype().compute();
        let probs = self.detach().to_dtype(dtype)?;
        let fair = probs.ge_scalar(0.0).bitwise_and(&probs.le_scalar(1.0))?;
        let zero = fair.zero_if_all(self.dtype(), REFUSAL)?;
        let draws = Tensor::rand_dtype(self.shape().clone(), dtype, &rng.on(&self.device()))?;
        draws.lt(&probs)?.to_dtype(self.dtype())?.add(&zero)
    }

    /// A 0-d zero of a dtype if all elements of a bool tensor are true; else an error on evaluation,
    /// which on a GPU is reported when a dependent value is read.
    #[track_caller]
    fn zero_if_all(&self, dtype: DType, refusal: &'static Refusal) -> Result<Tensor> {
        let is_bad = self.all().logical_not().to_dtype(DType::I32)?.reshape([1])?;
        let zero = Tensor::zeros([1], (dtype, &self.device()))?;
        let op = Op::Gather { axis: 0, refusal: Some(refusal) };
        Tensor::build(op, is_bad.shape().clone(), dtype, &[&zero, &is_bad]).reshape(Shape::scalar())
    }

    /// `num_samples` indices along the last axis, each drawn with a probability proportional to its
    /// weight in the row: weights `[C]` or `[N, C]` give indices `[num_samples]` or `[N, num_samples]`,
    /// i64 (i32 on a device without i64). `torch.multinomial`.
    ///
    /// With `replacement` the draws are independent: each searches the cumulative weights for a uniform
    /// number. Without, no index occurs twice: the indices are those of the least Exp(1)/weight
    /// (Efraimidis and Spirakis, 2006), in that order.
    ///
    /// The weights are read on the host and checked.
    ///
    /// # Errors
    /// A tensor that has neither one nor two axes, no samples, a dtype that is not floating-point, a
    /// weight that is negative or not finite, a row whose weights are all 0, or without replacement a
    /// row with fewer than `num_samples` positive weights. Nothing is drawn then.
    ///
    /// ```
    /// # fn f(weights: &tensor_core::Tensor, rng: &tensor_core::Generator) -> tensor_core::Result<()> {
    /// // [0, 3, 1] gives 1 and 2, in either order.
    /// let indices = weights.multinomial(2, false, rng)?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn multinomial(&self, num_samples: usize, replacement: bool, rng: &Generator) -> Result<Tensor> {
        const OP: &str = "multinomial";
        self.require_float(OP)?;
        let (rows, alone) = match self.rank() {
            1 => (self.unsqueeze(0)?, true),
            2 => (self.clone(), false),
            _ => {
                let message = format!("weights are [C] or [N, C], not {}", self.shape());
                return Err(Error::invalid(OP, message));
            }
        };
        let (count, classes) = (rows.dims()[0], rows.dims()[1]);
        if num_samples == 0 || classes == 0 {
            let message = format!("{num_samples} samples of {classes} weights: give at least one of each");
            return Err(Error::invalid(OP, message));
        }
        let weights = rows.detach().to_dtype(self.dtype().compute())?;
        self.check_indices(OP, self.rank() - 1)?;
        if count > 0 {
            // The number of positive weights in each row; −1 for a row with an invalid weight.
            let fair = weights
                .ge_scalar(0.0)
                .bitwise_and(&weights.lt_scalar(f64::INFINITY))?
                .to_dtype(DType::I32)?;
            let above = weights.gt_scalar(0.0).to_dtype(DType::I32)?.sum_axis(1, false)?;
            let least =
                fair.amin(1, false)?.eq_scalar(0).where_cond(&above.full_like(-1), &above)?.amin(0, false)?;
            let least = least.item_f64()?;
            if least < 0.0 {
                return Err(Error::invalid(
                    OP,
                    "a weight is negative, infinite or NaN: give finite ones of at least 0",
                ));
            }
            if least == 0.0 {
                return Err(Error::invalid(OP, "the weights of a row are all 0: there is nothing to draw"));
            }
            if !replacement && (least as usize) < num_samples {
                let message = format!(
                    "{num_samples} samples without replacement of a row with {least} weights above 0: draw fewer, or with replacement"
                );
                return Err(Error::invalid(OP, message));
            }
        }
        let rng = rng.on(&self.device());
        let draw = |columns: usize| Tensor::rand_dtype(Shape::from([count, columns]), weights.dtype(), &rng);
        let places = match replacement {
            true => {
                // Below the sum in spite of rounding, so that the index found has a positive weight.
                let sums = weights.cumsum(1)?;
                let total = sums.narrow(1, classes - 1, 1)?;
                let mark =
                    draw(num_samples)?.mul(&total)?.minimum(&total.mul_scalar(1.0 - 2f64.powi(-22)))?;
                let passed = sums.unsqueeze(1)?.le(&mark.unsqueeze(2)?)?;
                passed.to_dtype(DType::I32)?.sum_axis(2, false)?.to_dtype(DType::I32)?.as_index()
            }
            false => {
                let waits = draw(classes)?.neg().log1p().neg().maximum_scalar(1e-30);
                let keys = weights.log().sub(&waits.log())?;
                let keys = weights.gt_scalar(0.0).where_cond(&keys, &keys.full_like(f64::NEG_INFINITY))?;
                keys.topk(num_samples, 1, true)?.1
            }
        };
        if alone { places.squeeze(0) } else { Ok(places) }
    }
}
