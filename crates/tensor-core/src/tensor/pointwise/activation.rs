//! Activation functions: compositions of elementwise operations, written such that a branch that is not
//! selected never overflows, because its gradient would then be NaN. Integers and bools are first cast
//! to the default dtype, unless a function says otherwise; half types are computed in f32 and rounded
//! once.

use crate::tensor::Tensor;
use crate::{
    base::{
        axes::Axis,
        error::{Error, Result},
        origin::{here, with_location},
    },
    graph::{
        op::Op,
        trace::{Argument, traced},
    },
    kernels::{
        formula::Formula,
        operators::{BinaryOp, UnaryOp},
    },
    tensor::autocast,
};

impl Tensor {
    /// A binary operation with a tensor of the same shape and dtype.
    #[track_caller]
    pub(in crate::tensor) fn with_same(&self, op: BinaryOp, rhs: &Tensor) -> Tensor {
        debug_assert_eq!(self.dtype(), rhs.dtype(), "{op:?}");
        Tensor::build(Op::Binary(op), self.shape().clone(), self.dtype(), &[self, rhs])
    }

    /// `a` where this condition holds and `b` elsewhere, in `a`'s dtype; either may be 0-d.
    #[track_caller]
    pub(in crate::tensor) fn choose(&self, a: &Tensor, b: &Tensor) -> Tensor {
        debug_assert_eq!(a.dtype(), b.dtype());
        Tensor::build(Op::Where, self.shape().clone(), a.dtype(), &[self, a, b])
    }

    /// The result of `f`, which composes several operations: integers and bools are cast to the default
    /// dtype, half types are computed in f32 and rounded once. Autocast is off inside `f`.
    #[track_caller]
    pub(in crate::tensor) fn composed(&self, f: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        let (user, x) = (here(), self.floating());
        let dtype = x.dtype();
        let _one = autocast::as_one();
        with_location(user, || f(&x.cast_unchecked(dtype.compute())).cast_unchecked(dtype))
    }

    /// x · sigmoid(x), also called swish. `torch.nn.functional.silu`.
    #[track_caller]
    #[doc(alias = "swish")]
    pub fn silu(&self) -> Tensor {
        let out = self.composed(|x| x.with_same(BinaryOp::Mul, &x.sigmoid()));
        traced("silu", [Some(self)], out, Vec::new)
    }

    /// x · Φ(x), where Φ is the standard normal distribution function (PyTorch's default form). It and
    /// its first two derivatives are within 4 units in the last place, also where Φ is small; if terms
    /// of a derivative cancel, the units are those of the largest term. `torch.nn.functional.gelu`.
    #[track_caller]
    pub fn gelu(&self) -> Tensor {
        let out = self.composed(|x| x.with_same(BinaryOp::Mul, &x.unary(UnaryOp::Ndtr)));
        traced("gelu", [Some(self)], out, Vec::new)
    }

    /// x/2 · (1 + tanh u) = x · sigmoid(2u) for u = √(2/π) · (x + 0.044715·x³), which approximates
    /// [`Tensor::gelu`]. For negative x its relative error grows with |u|, by up to 4 units in the last
    /// place per unit of |u|. `gelu(approximate="tanh")` of PyTorch.
    #[track_caller]
    pub fn gelu_tanh(&self) -> Tensor {
        let out = self.composed(|x| {
            let cubic = x.powi(2).mul_scalar(0.044715).add_scalar(1.0).with_same(BinaryOp::Mul, x);
            let twice_root = (8.0 / std::f64::consts::PI).sqrt();
            x.with_same(BinaryOp::Mul, &cubic.mul_scalar(twice_root).sigmoid())
        });
        traced("gelu_tanh", [Some(self)], out, Vec::new)
    }

    /// ln(1 + eˣ), and x itself where it is above 20, as PyTorch's defaults have it.
    /// `torch.nn.functional.softplus`. [`Tensor::softplus_with`] has the settings.
    ///
    /// ```
    /// # use tensor_core::{Device, Tensor, Result};
    /// # fn f(device: &Device) -> Result<()> {
    /// let y = Tensor::new([0.0, 30.0], device)?.softplus();
    /// assert_eq!(y.to_vec::<f32>()?, [2f32.ln(), 30.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn softplus(&self) -> Tensor {
        self.softplus_with(1.0, 20.0)
    }

    /// ln(1 + e^(β·x)) / β; x itself where β·x is above `threshold`. PyTorch's defaults are 1 and 20, as in
    /// [`Tensor::softplus`]. With an infinite threshold it is exact everywhere and does not overflow.
    /// `torch.nn.functional.softplus`.
    #[track_caller]
    #[doc(alias = "softplus")]
    pub fn softplus_with(&self, beta: f64, threshold: f64) -> Tensor {
        if let Some(wide) = autocast::widened("softplus", self) {
            return wide.softplus_with(beta, threshold);
        }
        let out = self.composed(|x| {
            let z = if beta == 1.0 { x.clone() } else { x.mul_scalar(beta) };
            // max(z, 0) + ln(1 + e^−|z|), written such that its derivative is sigmoid(z) also at 0.
            let positive = z.gt_scalar(0.0);
            let folded = positive.choose(&z.neg(), &z);
            let rising = positive.choose(&z, &z.constant(0.0.into()));
            let mut out = rising.with_same(BinaryOp::Add, &folded.exp().log1p());
            if beta != 1.0 {
                out = out.div_scalar(beta);
            }
            if threshold == f64::INFINITY { out } else { z.gt_scalar(threshold).choose(x, &out) }
        });
        traced("softplus", [Some(self)], out, || {
            vec![("beta", Argument::Float(beta)), ("threshold", Argument::Float(threshold))]
        })
    }

    /// ln sigmoid(x) = −ln(1 + e⁻ˣ). `torch.nn.functional.logsigmoid`.
    #[track_caller]
    #[doc(alias = "log_sigmoid")]
    pub fn logsigmoid(&self) -> Tensor {
        self.composed(|x| x.neg().softplus_with(1.0, f64::INFINITY).neg())
    }

    /// x for x > 0 and α·(eˣ − 1) elsewhere; PyTorch's default α is 1. `torch.nn.functional.elu`.
    #[track_caller]
    pub fn elu(&self, alpha: f64) -> Tensor {
        let out = self.exponential_below(alpha, 1.0);
        traced("elu", [Some(self)], out, || vec![("alpha", Argument::Float(alpha))])
    }

    /// x for x > 0 and α·(e^(x/α) − 1) elsewhere; PyTorch's default α is 1. `torch.nn.functional.celu`.
    #[track_caller]
    pub fn celu(&self, alpha: f64) -> Tensor {
        let out = self.exponential_below(alpha, 1.0 / alpha);
        traced("celu", [Some(self)], out, || vec![("alpha", Argument::Float(alpha))])
    }

    /// λ·elu(x, α) with the constants of self-normalizing networks (Klambauer et al., 2017): λ ≈ 1.0507, α ≈
    /// 1.6733. `torch.nn.functional.selu`.
    #[track_caller]
    pub fn selu(&self) -> Tensor {
        const ALPHA: f64 = 1.673_263_242_354_377_2;
        const SCALE: f64 = 1.050_700_987_355_480_5;
        let out = self.composed(|x| x.elu(ALPHA).mul_scalar(SCALE));
        traced("selu", [Some(self)], out, Vec::new)
    }

    /// x for x > 0 and factor·(e^(rate·x) − 1) elsewhere.
    #[track_caller]
    fn exponential_below(&self, factor: f64, rate: f64) -> Tensor {
        self.composed(|x| {
            let positive = x.gt_scalar(0.0);
            let below = positive.choose(&x.constant(0.0.into()), x);
            let below = if rate == 1.0 { below } else { below.mul_scalar(rate) };
            positive.choose(x, &below.expm1().mul_scalar(factor))
        })
    }

    /// x for x > 0 and slope·x elsewhere; PyTorch's default slope is 0.01.
    /// `torch.nn.functional.leaky_relu`.
    #[track_caller]
    pub fn leaky_relu(&self, negative_slope: f64) -> Tensor {
        let x = self.floating();
        let out = x.gt_scalar(0.0).choose(&x, &x.mul_scalar(negative_slope));
        traced("leaky_relu", [Some(self)], out, || vec![("alpha", Argument::Float(negative_slope))])
    }

    /// x clamped to [low, high]; PyTorch's default bounds are −1 and 1. The gradient at a bound is 0.
    /// Integers stay integers, with truncated bounds. `torch.nn.functional.hardtanh`.
    #[track_caller]
    pub fn hardtanh(&self, low: f64, high: f64) -> Tensor {
        if self.dtype().is_int() {
            return self.clamp(low as i64, high as i64);
        }
        self.floating().clamp(low, high)
    }

    /// x clamped to [0, 6]; integers stay integers. `torch.nn.functional.relu6`.
    #[track_caller]
    pub fn relu6(&self) -> Tensor {
        self.hardtanh(0.0, 6.0)
    }

    /// (x + 3) / 6 clamped to [0, 1]. `torch.nn.functional.hardsigmoid`.
    #[track_caller]
    pub fn hardsigmoid(&self) -> Tensor {
        let out = self.composed(|x| x.add_scalar(3.0).relu6().mul_scalar(1.0 / 6.0));
        traced("hardsigmoid", [Some(self)], out, Vec::new)
    }

    /// x · hardsigmoid(x). `torch.nn.functional.hardswish`.
    #[track_caller]
    pub fn hardswish(&self) -> Tensor {
        let out = self.composed(|x| x.with_same(BinaryOp::Mul, &x.hardsigmoid()));
        traced("hardswish", [Some(self)], out, Vec::new)
    }

    /// x · tanh(ln(1 + eˣ)). `torch.nn.functional.mish`.
    #[track_caller]
    pub fn mish(&self) -> Tensor {
        let out = self.composed(|x| x.with_same(BinaryOp::Mul, &x.softplus_with(1.0, f64::INFINITY).tanh()));
        traced("mish", [Some(self)], out, Vec::new)
    }

    /// x / (1 + |x|). `torch.nn.functional.softsign`.
    #[track_caller]
    pub fn softsign(&self) -> Tensor {
        let out = self.formula(Formula::Softsign);
        traced("softsign", [Some(self)], out, Vec::new)
    }

    /// x − tanh x, accurate near 0. `torch.nn.functional.tanhshrink`.
    #[track_caller]
    pub fn tanhshrink(&self) -> Tensor {
        self.formula(Formula::Tanhshrink)
    }

    /// 0 within [−λ, λ] and x elsewhere; PyTorch's default λ is ½. `torch.nn.functional.hardshrink`.
    #[track_caller]
    pub fn hardshrink(&self, lambda: f64) -> Tensor {
        let x = self.floating();
        let out = x.within(lambda).choose(&x.constant(0.0.into()), &x);
        traced("hardshrink", [Some(self)], out, || vec![("lambd", Argument::Float(lambda))])
    }

    /// x − λ above λ, x + λ below −λ and 0 between; PyTorch's default λ is ½. A negative λ counts as 0.
    /// `torch.nn.functional.softshrink`.
    #[track_caller]
    pub fn softshrink(&self, lambda: f64) -> Tensor {
        let lambda = lambda.max(0.0);
        let out = self.composed(|x| {
            // The sign of 0 is 0, but 0 is within [−λ, λ] anyway.
            let shrunk = x.with_same(BinaryOp::Sub, &x.sign().mul_scalar(lambda));
            x.within(lambda).choose(&x.constant(0.0.into()), &shrunk)
        });
        traced("softshrink", [Some(self)], out, || vec![("lambd", Argument::Float(lambda))])
    }

    /// Whether x is within [−λ, λ]; NaN is not.
    #[track_caller]
    fn within(&self, lambda: f64) -> Tensor {
        let (above, below) = (self.ge_scalar(-lambda), self.le_scalar(lambda));
        Tensor::build(
            Op::Binary(BinaryOp::And),
            self.shape().clone(),
            crate::elements::dtype::DType::Bool,
            &[&above, &below],
        )
    }

    /// x for x > `threshold` and `value` elsewhere. Integers stay integers, with a truncated threshold
    /// and value. `torch.nn.functional.threshold`.
    #[track_caller]
    pub fn threshold(&self, threshold: f64, value: f64) -> Tensor {
        if self.dtype().is_int() {
            return self.le_scalar(threshold as i64).choose(&self.constant((value as i64).into()), self);
        }
        let x = self.floating();
        x.le_scalar(threshold).choose(&x.constant(value.into()), &x)
    }

    /// e⁻ˣ / Σe⁻ˣ along an axis: [`Tensor::softmax`] of −x. `torch.nn.functional.softmin`.
    ///
    /// # Errors
    /// No such axis, or a dtype that is not floating-point.
    #[track_caller]
    pub fn softmin(&self, axis: impl Into<Axis>) -> Result<Tensor> {
        self.neg().softmax(axis)
    }

    /// a · sigmoid(b), where a and b are the halves of an axis (PyTorch's default: the last).
    /// `torch.nn.functional.glu`.
    ///
    /// # Errors
    /// No such axis, one of odd size, or a dtype that is not floating-point.
    #[track_caller]
    pub fn glu(&self, axis: impl Into<Axis>) -> Result<Tensor> {
        self.glu_by(axis.into())
    }

    #[track_caller]
    fn glu_by(&self, axis: Axis) -> Result<Tensor> {
        const OP: &str = "glu";
        let axis = self.shape().axis(axis, OP)?;
        self.require_float(OP)?;
        let size = self.dims()[axis];
        if !size.is_multiple_of(2) {
            let message = format!("axis {axis} of {} has the odd size {size} and no halves", self.shape());
            return Err(Error::invalid(OP, message));
        }
        let wide = self.cast_unchecked(self.dtype().compute());
        let (value, gate) = (wide.narrow(axis, 0, size / 2)?, wide.narrow(axis, size / 2, size / 2)?);
        Ok(value.with_same(BinaryOp::Mul, &gate.sigmoid()).cast_unchecked(self.dtype()))
    }

    /// x for x > 0 and weight·x elsewhere. `weight` has one number, or one for each channel (axis 1).
    /// `torch.nn.functional.prelu`.
    ///
    /// # Errors
    /// A weight of another shape, another dtype or another device.
    #[track_caller]
    pub fn prelu(&self, weight: &Tensor) -> Result<Tensor> {
        const OP: &str = "prelu";
        self.require_float(OP)?;
        let cast = autocast::cast(OP, [self, weight], [])?;
        let ([this, weight], []) = cast.tensors();
        let channels = self.dims().get(1).copied().unwrap_or(1);
        if weight.rank() > 1 || (weight.numel() != 1 && weight.numel() != channels) {
            return Err(Error::invalid(
                OP,
                format!(
                    "a weight of shape {} for an input of shape {}: give one number, [1], or one for each channel, [{channels}]",
                    weight.shape(),
                    self.shape()
                ),
            ));
        }
        if weight.dtype() != this.dtype() {
            return Err(Error::invalid(
                OP,
                format!(
                    "an input of {} and a weight of {}: cast one of them with .to_dtype",
                    this.dtype(),
                    weight.dtype()
                ),
            ));
        }
        let weight = match weight.numel() {
            1 => weight.reshape(vec![1; self.rank()])?,
            _ => {
                let mut shape = vec![1; self.rank()];
                shape[1] = channels;
                weight.reshape(shape)?
            }
        };
        let out = this.gt_scalar(0.0).where_cond(this, &this.mul(&weight)?)?;
        Ok(traced("prelu", [Some(this), Some(&weight)], out, Vec::new))
    }
}
