//! Variances, standard deviations and covariances.

use crate::base::{
    axes::Axes,
    error::{Error, Result},
};
use crate::tensor::Tensor;

impl Tensor {
    /// The variance along `axes` (`..` for all): Σ(x − mean)² / (n − correction). `correction` 1 is
    /// unbiased, PyTorch's default. The axes are kept with size 1 if `keepdim`.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    #[doc(alias = "var")]
    pub fn var_axis(&self, axes: impl Into<Axes>, correction: f64, keepdim: bool) -> Result<Tensor> {
        Ok(self.moments("var", axes.into(), correction, keepdim)?.0)
    }

    /// The standard deviation along `axes` (`..` for all): the square root of [`Tensor::var_axis`], also
    /// if the variance is beyond the range of the dtype. Its gradient is 0 if all elements are equal.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    #[doc(alias = "std")]
    pub fn std_axis(&self, axes: impl Into<Axes>, correction: f64, keepdim: bool) -> Result<Tensor> {
        Ok(self.deviation("std", axes.into(), correction, keepdim)?.0)
    }

    /// The variance and the mean along `axes` (`..` for all): [`Tensor::var_axis`] and [`Tensor::mean_axis`].
    /// `torch.var_mean`.
    ///
    /// # Errors
    /// No such axis.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let (variance, mean) = x.var_mean(.., 1.0, false)?; // [1, 3] gives 2 and 2
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn var_mean(
        &self,
        axes: impl Into<Axes>,
        correction: f64,
        keepdim: bool,
    ) -> Result<(Tensor, Tensor)> {
        self.moments("var_mean", axes.into(), correction, keepdim)
    }

    /// The standard deviation and the mean along `axes` (`..` for all): as [`Tensor::var_mean`].
    /// `torch.std_mean`.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    pub fn std_mean(
        &self,
        axes: impl Into<Axes>,
        correction: f64,
        keepdim: bool,
    ) -> Result<(Tensor, Tensor)> {
        self.deviation("std_mean", axes.into(), correction, keepdim)
    }

    #[track_caller]
    fn deviation(
        &self,
        op: &'static str,
        axes: Axes,
        correction: f64,
        keepdim: bool,
    ) -> Result<(Tensor, Tensor)> {
        let resolved = self.shape().axes(&axes, op)?;
        let n: usize = resolved.iter().map(|&a| self.dims()[a]).product();
        let floating = self.floating_dtype();
        let wide = self.cast_unchecked(floating.compute());
        let mean = wide.mean_axis(axes.clone(), true)?;
        let divisor = (n as f64 - correction).max(0.0);
        let std = wide.sub(&mean)?.root_of_squares(axes, keepdim, divisor)?.cast_unchecked(floating);
        let mean = mean.reshape_unchecked(std.shape().clone()).cast_unchecked(floating);
        Ok((std, mean))
    }

    #[track_caller]
    fn moments(
        &self,
        op: &'static str,
        axes: Axes,
        correction: f64,
        keepdim: bool,
    ) -> Result<(Tensor, Tensor)> {
        let resolved = self.shape().axes(&axes, op)?;
        let n: usize = resolved.iter().map(|&a| self.dims()[a]).product();
        if let Some(wide) = self.half_as_f32() {
            let (variance, mean) = wide.moments(op, axes, correction, keepdim)?;
            return Ok((variance.cast_unchecked(self.dtype()), mean.cast_unchecked(self.dtype())));
        }
        let mean = self.mean_axis(axes.clone(), true)?;
        let squares = self.sub(&mean)?.powi(2).sum_axis(axes, keepdim)?;
        let variance = squares.div_scalar((n as f64 - correction).max(0.0));
        let mean = mean.reshape_unchecked(variance.shape().clone());
        Ok((variance, mean))
    }

    /// The covariances `[n, n]` of n variables, each a row of `[n, m]` observations: Σ(x − mean x)(y −
    /// mean y) / (m − correction). For one row, `[m]` or `[1, m]`, its variance, 0-d. `correction` 1 is
    /// unbiased, PyTorch's default. Integers and bools give the default dtype. `torch.cov`.
    ///
    /// # Errors
    /// More than two axes.
    #[track_caller]
    pub fn cov(&self, correction: f64) -> Result<Tensor> {
        Ok(self.covariances("cov", correction)?.of_one_row().cast_unchecked(self.floating_dtype()))
    }

    /// [`Tensor::cov`] for weighted observations `[m]`: integer `frequencies` count repetitions, and
    /// `weights` are arbitrary. With w their product, the result is Σ w·(x − mean x)(y − mean y) divided
    /// by Σ w − correction or, with weights, by Σ w − correction · Σ w·weights / Σ w, at least 0.
    /// `torch.cov(fweights=…, aweights=…)`.
    ///
    /// # Errors
    /// More than two axes; frequencies or weights that are not `[m]`, frequencies that are not integers,
    /// two devices. Negative numbers are not detected.
    #[track_caller]
    #[doc(alias = "cov")]
    pub fn cov_weighted(
        &self,
        correction: f64,
        frequencies: Option<&Tensor>,
        weights: Option<&Tensor>,
    ) -> Result<Tensor> {
        const OP: &str = "cov_weighted";
        let rows = self.observations(OP)?;
        let m = rows.dims()[1];
        for given in [frequencies, weights].into_iter().flatten() {
            Tensor::same_device(OP, &[self, given])?;
            if given.dims() != [m] {
                let message = format!("weights of shape {} for {m} observations: give [{m}]", given.shape());
                return Err(Error::invalid(OP, message));
            }
        }
        if let Some(given) = frequencies.filter(|given| !given.dtype().is_int()) {
            let message = format!("frequencies of {}: give integers, or weights", given.dtype());
            return Err(Error::invalid(OP, message));
        }
        let counts = frequencies.map(|given| given.cast_unchecked(rows.dtype()));
        let weights = weights.map(|given| given.cast_unchecked(rows.dtype()));
        let both = match (&counts, &weights) {
            (None, None) => return self.cov(correction),
            (Some(counts), None) => counts.clone(),
            (None, Some(weights)) => weights.clone(),
            (Some(counts), Some(weights)) => counts.mul(weights)?,
        };
        let total = both.sum();
        let centred = rows.sub(&rows.mul(&both)?.sum_axis(1, true)?.div(&total)?)?;
        let lost = match &weights {
            Some(weights) if correction != 0.0 => {
                both.mul(weights)?.sum().div(&total)?.mul_scalar(correction)
            }
            _ => total.full_like(correction),
        };
        let divisor = total.sub(&lost)?.maximum_scalar(0.0);
        Ok(centred
            .matmul(&centred.mul(&both)?.t()?)?
            .div(&divisor)?
            .of_one_row()
            .cast_unchecked(self.floating_dtype()))
    }

    /// Observations as rows `[n, m]` of a floating-point dtype, half types in f32.
    #[track_caller]
    fn observations(&self, op: &'static str) -> Result<Tensor> {
        if self.rank() > 2 {
            let message = format!("rows of observations [n, m] are needed, not shape {}", self.shape());
            return Err(Error::invalid(op, message));
        }
        let x = self.cast_unchecked(self.floating_dtype().compute());
        if x.rank() == 2 { Ok(x) } else { x.reshape([1, -1]) }
    }

    /// The covariances; for half types in f32.
    #[track_caller]
    fn covariances(&self, op: &'static str, correction: f64) -> Result<Tensor> {
        let rows = self.observations(op)?;
        let centred = rows.sub(&rows.mean_axis(1, true)?)?;
        let m = rows.dims()[1] as f64;
        Ok(centred.matmul(&centred.t()?)?.div_scalar((m - correction).max(0.0)))
    }

    /// Pearson's correlations `[n, n]` of n variables, each a row of `[n, m]` observations: their
    /// covariances divided by both standard deviations, clamped to [−1, 1]. For one row the result is
    /// 0-d. A constant row gives NaN. `torch.corrcoef`.
    ///
    /// # Errors
    /// More than two axes.
    #[track_caller]
    pub fn corrcoef(&self) -> Result<Tensor> {
        let rows = self.observations("corrcoef")?;
        let centred = rows.sub(&rows.mean_axis(1, true)?)?;
        // The result does not depend on a row's scale, which is chosen to keep its squares in range.
        let scaled = match centred.numel() {
            0 => centred,
            _ => centred.mul(&centred.detach().abs().amax(1, true)?.scale_of_squares())?,
        };
        let products = scaled.matmul(&scaled.t()?)?;
        let lengths = products.diagonal(0, 0, 1)?.sqrt();
        let correlations = products.div(&lengths.unsqueeze(1)?)?.div(&lengths)?.clamp(-1.0, 1.0);
        Ok(correlations.of_one_row().cast_unchecked(self.floating_dtype()))
    }

    /// A matrix of one element as a 0-d tensor; others as they are.
    #[track_caller]
    fn of_one_row(&self) -> Tensor {
        if self.numel() == 1 { self.as_scalar() } else { self.clone() }
    }
}
