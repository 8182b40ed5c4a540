//! Knowledge distillation: a student learns a teacher's probabilities.

use tensor_core::{Error, Result, Tensor};

use super::{Reduction, check_pair};

/// The divergence that a [`DistillationLoss`] minimizes, with p the teacher's probabilities and q the
/// student's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Divergence {
    /// KL(p ‖ q) = Σ p · ln(p / q): the student covers all that the teacher does.
    #[default]
    Forward,
    /// KL(q ‖ p) = Σ q · ln(q / p): the student keeps to what the teacher finds likely. Gu et al.: MiniLLM,
    /// knowledge distillation of large language models (2023).
    Reverse,
}

/// The Kullback-Leibler divergence of a student's and a teacher's distributions, softmax(x / T), times T²,
/// so that gradients have the same size for every temperature T.
///
/// Hinton, Vinyals, Dean: Distilling the knowledge in a neural network (2015).
///
/// ```
/// use nn::DistillationLoss;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let student = Tensor::new([[0.0f32, 0.0]], &device)?;
/// let teacher = Tensor::new([[3f32.ln(), 0.0]], &device)?;
/// let loss = DistillationLoss::default().forward(&student, &teacher)?;
/// assert!((loss.item::<f32>()? - (0.75 * 1.5f32.ln() + 0.25 * 0.5f32.ln())).abs() < 1e-6);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DistillationLoss {
    /// T: how much probabilities are evened out. 1 by default.
    pub temperature: f64,
    /// The divergence: forward by default.
    pub divergence: Divergence,
    /// The reduction of the divergences of rows: the mean by default.
    pub reduction: Reduction,
}

impl Default for DistillationLoss {
    fn default() -> DistillationLoss {
        DistillationLoss { temperature: 1.0, divergence: Divergence::Forward, reduction: Reduction::Mean }
    }
}

impl DistillationLoss {
    /// The loss of a student's logits `[…, C]` against a teacher's, which get no gradient. The result
    /// without a reduction has a number for each row, `[…]`.
    ///
    /// # Errors
    /// A temperature that is not above 0, no axis, two shapes, dtypes that are not floating-point, or two
    /// devices.
    #[track_caller]
    pub fn forward(&self, student: &Tensor, teacher: &Tensor) -> Result<Tensor> {
        const OP: &str = "DistillationLoss";
        let t = self.temperature;
        if !(t.is_finite() && t > 0.0) {
            return Err(Error::invalid(OP, format!("temperature {t}: give a number above 0")));
        }
        check_pair(OP, student, teacher)?;
        let q = student.div_scalar(t).log_softmax(-1)?;
        let p = teacher.detach().div_scalar(t).log_softmax(-1)?;
        let rows = match self.divergence {
            Divergence::Forward => p.exp().mul(&p.sub(&q)?)?,
            Divergence::Reverse => q.exp().mul(&q.sub(&p)?)?,
        };
        Ok(self.reduction.apply(&rows.sum_axis(-1, false)?.mul_scalar(t * t)))
    }
}
