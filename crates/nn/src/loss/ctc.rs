//! Connectionist temporal classification: the likelihood of a labelling, summed over all alignments with an
//! input.

use tensor_core::{DType, Error, Result, Tensor, autocast, caller_line};

use super::{Reduction, nll::check_scores};

/// −ln p(labels | input), where p sums over all paths of classes and blanks that become the labels when
/// repeated classes are merged and blanks left out. `torch.nn.CTCLoss`.
///
/// With the labels l separated by blanks, αₜ(s) = (αₜ₋₁(s) + αₜ₋₁(s − 1) + αₜ₋₁(s − 2) if l(s) is no blank
/// and not l(s − 2))·pₜ(l(s)), in logarithms. The gradient is the derivative: the negative of the
/// probability that paths are at each class. (PyTorch adds the probability itself, which the gradient of
/// log-softmax subtracts again, so that gradients with respect to logits agree.)
///
/// Graves et al.: Connectionist temporal classification (2006).
///
/// ```
/// use nn::CtcLoss;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// // Two steps, one sequence, a blank and one class, equally likely: three paths, "1 1", "1 _" and "_ 1".
/// let log_probabilities = Tensor::zeros([2, 1, 2], &device)?.log_softmax(2)?;
/// let loss = CtcLoss::default().forward(&log_probabilities, &Tensor::new([[1i32]], &device)?, &[2], &[1])?;
/// assert!((loss.item::<f32>()? + 0.75f32.ln()).abs() < 1e-6);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[doc(alias = "CTCLoss")]
pub struct CtcLoss {
    /// The class of the blank, 0 by default.
    pub blank: usize,
    /// The reduction of the losses. The mean, the default, divides each loss by the number of its labels
    /// first.
    pub reduction: Reduction,
    /// Whether an infinite loss, of an input too short for its labels, counts as 0. Off by default; the
    /// gradient is 0 either way.
    pub zero_infinity: bool,
}

impl CtcLoss {
    /// The loss of log-probabilities `[T, N, C]` and labels `[N, S]`, or the concatenated labels of all
    /// sequences. For sequence n the first `input_lengths[n]` steps and `target_lengths[n]` labels are used.
    /// A single sequence is `[T, C]`, with labels `[S]`.
    ///
    /// # Errors
    /// Other shapes; a blank that is no class; another number of lengths than sequences; an input length of
    /// 0 or above T; a target length above S, or target lengths that do not sum to the number of labels;
    /// labels of no integer dtype, log-probabilities that are not floating-point; two devices. A label that
    /// is no class is an `IndexOutOfRange` when the loss is computed.
    #[track_caller]
    pub fn forward(
        &self,
        log_probabilities: &Tensor,
        targets: &Tensor,
        input_lengths: &[usize],
        target_lengths: &[usize],
    ) -> Result<Tensor> {
        let _line = caller_line();
        const OP: &str = "ctc_loss";
        let wrong = |message: String| Err(Error::invalid(OP, message).here());
        let cast = autocast::cast(OP, [log_probabilities], [])?;
        let ([log_probabilities], []) = cast.tensors();
        check_scores(OP, log_probabilities)?;
        let alone = log_probabilities.rank() == 2;
        let x = if alone { log_probabilities.unsqueeze(1)? } else { log_probabilities.clone() };
        let &[steps, batch, classes] = x.dims() else {
            return wrong(format!(
                "log-probabilities are [T, N, C] or [T, C], not {}",
                log_probabilities.shape()
            ));
        };
        if self.blank >= classes {
            return wrong(format!("blank {} is not one of the {classes} classes", self.blank));
        }
        if input_lengths.len() != batch || target_lengths.len() != batch {
            return wrong(format!(
                "{} input lengths and {} target lengths for {batch} sequences",
                input_lengths.len(),
                target_lengths.len()
            ));
        }
        if let Some(length) = input_lengths.iter().find(|&&length| length == 0 || length > steps) {
            return wrong(format!("an input length of {length}, of {steps} steps: give 1 to {steps}"));
        }
        if !targets.dtype().is_int() {
            return wrong(format!("labels of {}: give integers", targets.dtype()));
        }
        let device = x.device();
        let longest = target_lengths.iter().copied().max().unwrap_or(0);
        // Each sequence's labels, padded with arbitrary values.
        let room = match *targets.dims() {
            [count] if target_lengths.iter().sum::<usize>() == count => count,
            [rows, columns] if rows == batch && longest <= columns => columns,
            _ => {
                return wrong(format!(
                    "labels of shape {} and target lengths up to {longest} for {batch} sequences: give [N, S] with S of at least \
                     {longest}, or all labels in a row",
                    targets.shape()
                ));
            }
        };
        if batch == 0 {
            return Ok(self.reduction.apply(&Tensor::zeros([0], (x.dtype(), &device))?));
        }
        let mut starts = Vec::with_capacity(batch);
        let mut start = 0;
        for (row, &length) in target_lengths.iter().enumerate() {
            starts.push(if targets.rank() == 2 { row * room } else { start });
            start += length;
        }
        let places = starts.iter().zip(target_lengths).flat_map(|(&start, &length)| {
            (0..longest).map(move |k| if k < length { (start + k) as i32 } else { -1 })
        });
        let places: Vec<i32> = places.collect();
        let wide = x.to_dtype(x.dtype().compute())?;
        let losses = self.losses(&wide, &targets.flatten_all(), places, input_lengths, target_lengths)?;
        let losses = losses.to_dtype(x.dtype())?;
        let losses = match self.reduction {
            Reduction::Mean => {
                let counts: Vec<f64> = target_lengths.iter().map(|&length| length.max(1) as f64).collect();
                losses.div(&Tensor::new(counts, (losses.dtype(), &device))?)?
            }
            Reduction::Sum | Reduction::None => losses,
        };
        if alone && self.reduction == Reduction::None {
            losses.squeeze(0)
        } else {
            Ok(self.reduction.apply(&losses))
        }
    }

    /// The loss of each sequence. `places` has the positions of its labels in `targets`, and −1 after the
    /// last.
    #[track_caller]
    fn losses(
        &self,
        x: &Tensor,
        targets: &Tensor,
        places: Vec<i32>,
        input_lengths: &[usize],
        target_lengths: &[usize],
    ) -> Result<Tensor> {
        let (steps, batch) = (x.dims()[0], x.dims()[1]);
        let device = x.device();
        let longest = places.len() / batch;
        let states = 2 * longest + 1;
        // The class of each state, and whether a path may skip the blank before it.
        let (classes, skips) = match longest {
            0 => (Tensor::full([batch, 1], self.blank as i64, (DType::I32, &device))?, None),
            _ => {
                let places = Tensor::new(places, (DType::I32, &device))?;
                let labels = targets.index_select(0, &places.maximum_scalar(0))?.to_dtype(DType::I32)?;
                let blanks = labels.full_like(self.blank as i64);
                let labels = places.ge_scalar(0).where_cond(&labels, &blanks)?.reshape([batch, longest])?;
                let pairs = Tensor::stack(&[&blanks.reshape([batch, longest])?, &labels], 2)?;
                let classes =
                    pairs.reshape([batch, 2 * longest])?.pad(&[(0, 0), (0, 1)], self.blank as i64)?;
                let before = classes.pad(&[(0, 0), (2, 0)], self.blank as i64)?.narrow(1, 0, states)?;
                let skips = classes.ne(&before)?.bitwise_and(&classes.ne_scalar(self.blank as i64))?;
                (classes, Some(skips))
            }
        };
        let index = classes.unsqueeze(0)?.expand([steps, batch, states])?;
        // Clamped to a finite number, so that no difference of infinities occurs; sums with −10³⁰ stay near
        // it.
        let of_states = x.gather(2, &index)?.maximum_scalar(NEVER);
        let never = Tensor::full([batch, states], NEVER, (x.dtype(), &device))?;
        let first = Tensor::arange(0, states, 1, (DType::I32, &device))?.lt_scalar(2);
        let mut alpha = first.expand([batch, states])?.where_cond(&of_states.select(0, 0)?, &never)?;
        let lengths: Vec<i32> = input_lengths.iter().map(|&length| length as i32).collect();
        let lengths = Tensor::new(lengths, (DType::I32, &device))?.unsqueeze(1)?;
        let shortest = input_lengths.iter().copied().min().unwrap_or(steps);
        let moved = |alpha: &Tensor, by: usize| -> Result<Tensor> {
            alpha.pad(&[(0, 0), (by, 0)], NEVER)?.narrow(1, 0, states)
        };
        for step in 1..input_lengths.iter().copied().max().unwrap_or(1) {
            let mut sum = alpha.clone();
            if let Some(skips) = &skips {
                let one = moved(&alpha, 1)?;
                let two = skips.where_cond(&moved(&alpha, 2)?, &never)?;
                let greatest = alpha.detach().maximum(&one.detach())?.maximum(&two.detach())?;
                let share = |t: &Tensor| Ok(t.sub(&greatest)?.exp());
                sum = share(&alpha)?.add(&share(&one)?)?.add(&share(&two)?)?.log().add(&greatest)?;
            }
            let next = sum.add(&of_states.select(0, step)?)?;
            // A sequence that has ended keeps its values.
            alpha = match step < shortest {
                true => next,
                false => lengths.gt_scalar(step as i64).where_cond(&next, &alpha)?,
            };
        }
        // The last label or the blank after it.
        let ends: Vec<i32> = target_lengths.iter().map(|&length| 2 * length as i32).collect();
        let ends = Tensor::new(ends, (DType::I32, &device))?.unsqueeze(1)?;
        let blank = alpha.gather(1, &ends)?.squeeze(1)?;
        let label = alpha.gather(1, &ends.sub_scalar(1).maximum_scalar(0))?.squeeze(1)?;
        let label = ends.squeeze(1)?.gt_scalar(0).where_cond(&label, &label.full_like(NEVER))?;
        let greatest = blank.detach().maximum(&label.detach())?;
        let sum = blank.sub(&greatest)?.exp().add(&label.sub(&greatest)?.exp())?.log().add(&greatest)?;
        let losses = sum.neg();
        let impossible = losses.ge_scalar(-NEVER / 10.0);
        let instead = if self.zero_infinity { 0.0 } else { f64::INFINITY };
        losses.masked_fill(&impossible, instead)
    }
}

/// The logarithm of a probability of 0.
const NEVER: f64 = -1e30;
