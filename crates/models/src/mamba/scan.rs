//! The selective scan of Mamba as one function with a gradient of its own.
//!
//! The states of all steps would be the largest tensors of the model by far. They are computed for some steps
//! at a time, so that memory does not grow with the length, and the gradient computes them again from the
//! states between parts, as the reference's kernels do on GPUs.

use autograd::{Function, apply};
use nn::functional::linear_scan;
use tensor_core::{Error, Result, Tensor, eval_all, is_grad_enabled, is_tracing};

/// Elements of the states that are computed at a time: 32 MB of f32. Parts of 1 MB, which would stay in a
/// processor's caches, took twice the time for 512 steps of four layers with 256 features, because of their
/// number.
const PART_ELEMENTS: usize = 1 << 23;

/// The least number of steps that are computed at a time.
const PART_STEPS: usize = 16;

/// h[t] = exp(A · Δ[t]) · h[t − 1] + Δ[t] · x[t] · B[t] and y[t] = C[t] · h[t]: y `[N, L, D]` and the last
/// state, for Δ and x `[N, L, D]`, B and C `[N, L, S]`, A `[D, S]` and a first state `[N, D, S]`.
#[track_caller]
pub(super) fn selective_scan(inputs: [&Tensor; 6]) -> Result<(Tensor, Tensor)> {
    let mut results = match is_grad_enabled() && inputs.iter().any(|input| input.is_tracked()) {
        true => apply(SelectiveScan, &inputs)?,
        false => SelectiveScan.forward(&inputs)?,
    }
    .into_iter();
    match (results.next(), results.next()) {
        (Some(y), Some(last)) => Ok((y, last)),
        _ => Err(Error::invalid(super::OP, "a scan gives outputs and a state")),
    }
}

#[derive(Clone, Copy, Debug)]
struct SelectiveScan;

/// Some steps of the inputs.
struct Part {
    step: Tensor,
    x: Tensor,
    c: Tensor,
    b: Tensor,
    /// Δ · x `[N, Q, D, 1]`.
    scaled: Tensor,
    /// exp(A · Δ) `[N, Q, D, S]`.
    decay: Tensor,
}

impl Part {
    #[track_caller]
    fn new(inputs: &[&Tensor], first: usize, count: usize) -> Result<Part> {
        let [step, x, b, c, a, ..] = inputs else { return Err(Error::invalid(super::OP, "six inputs")) };
        let steps = |x: &Tensor| x.narrow(1, first, count);
        let (step, x) = (steps(step)?, steps(x)?);
        let scaled = step.mul(&x)?.unsqueeze(3)?;
        let decay = step.unsqueeze(3)?.mul(a)?.exp();
        Ok(Part { step, x, b: steps(b)?.unsqueeze(2)?, c: steps(c)?.unsqueeze(2)?, scaled, decay })
    }

    /// The states `[N, Q, D, S]` of the steps, from `[N, 1, D, S]` before them.
    #[track_caller]
    fn states(&self, before: &Tensor) -> Result<Tensor> {
        linear_scan(&self.decay, &self.scaled.mul(&self.b)?, Some(before), 1)
    }
}

/// The first step of each part, and the steps of all parts but the last.
fn parts(inputs: &[&Tensor]) -> (Vec<usize>, usize) {
    let (length, states) = (inputs[1].dims()[1], inputs[5].numel());
    let size = (PART_ELEMENTS / states.max(1)).max(PART_STEPS).next_power_of_two();
    ((0..length).step_by(size).collect(), size)
}

impl Function for SelectiveScan {
    /// y, the last state, and the states before each part `[parts, N, D, S]` for the gradient.
    type Output = Vec<Tensor>;

    fn name(&self) -> &'static str {
        "SelectiveScan"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let length = inputs[1].dims()[1];
        if length == 0 {
            return Err(Error::invalid(super::OP, "no tokens"));
        }
        let (firsts, size) = parts(inputs);
        let mut state = inputs[5].unsqueeze(1)?;
        let (mut outputs, mut starts) = (Vec::with_capacity(firsts.len()), Vec::with_capacity(firsts.len()));
        for first in firsts {
            let count = size.min(length - first);
            let part = Part::new(inputs, first, count)?;
            let states = part.states(&state)?;
            let output = states.mul(&part.c)?.sum_axis(-1, false)?;
            starts.push(std::mem::replace(&mut state, states.narrow(1, count - 1, 1)?).squeeze(1)?);
            if count < length && !is_tracing() {
                state = state.contiguous()?;
                eval_all(&[&output, &state])?;
            }
            outputs.push(output);
        }
        Ok(vec![Tensor::concat(&outputs, 1)?, state.squeeze(1)?, Tensor::stack(&starts, 0)?])
    }

    /// From the end: g[t] = C[t] · gradient of y[t] + decay[t + 1] · g[t + 1] is the gradient of the state
    /// h[t], from which those of all inputs follow.
    #[track_caller]
    fn backward(
        &self,
        inputs: &[Tensor],
        outputs: &Vec<Tensor>,
        gradients: &Vec<Option<Tensor>>,
    ) -> Result<Vec<Option<Tensor>>> {
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let (a, starts) = (inputs[4], &outputs[2]);
        let given = |k: usize| gradients[k].clone().unwrap_or_else(|| outputs[k].zeros_like());
        let (of_y, mut carried, of_starts) = (given(0), given(1), gradients[2].as_ref());
        let length = of_y.dims()[1];
        let (firsts, size) = parts(&inputs);
        let mut found: [Vec<Tensor>; 4] = Default::default();
        let mut of_a = a.zeros_like();
        for (k, &first) in firsts.iter().enumerate().rev() {
            let count = size.min(length - first);
            let part = Part::new(&inputs, first, count)?;
            let before = starts.select(0, k)?.unsqueeze(1)?;
            let states = part.states(&before)?;
            let of_y = of_y.narrow(1, first, count)?.unsqueeze(3)?;
            let first_decay = part.decay.narrow(1, 0, 1)?;
            let (earlier, later) = match count {
                1 => (before, first_decay.ones_like()),
                _ => (
                    Tensor::concat(&[&before, &states.narrow(1, 0, count - 1)?], 1)?,
                    Tensor::concat(&[&part.decay.narrow(1, 1, count - 1)?, &first_decay.ones_like()], 1)?,
                ),
            };
            let of_states = of_y.mul(&part.c)?.flip(1)?;
            let of_states =
                linear_scan(&later.flip(1)?, &of_states, Some(&carried.unsqueeze(1)?), 1)?.flip(1)?;
            carried = first_decay.mul(&of_states.narrow(1, 0, 1)?)?.squeeze(1)?;
            if let Some(of_starts) = of_starts {
                carried = carried.add(&of_starts.select(0, k)?)?;
            }
            let of_exponent = of_states.mul(&earlier)?.mul(&part.decay)?;
            let of_scaled = of_states.mul(&part.b)?.sum_axis(-1, false)?;
            let of_step = of_scaled.mul(&part.x)?.add(&of_exponent.mul(a)?.sum_axis(-1, false)?)?;
            let of_x = of_scaled.mul(&part.step)?;
            let of_b = of_states.mul(&part.scaled)?.sum_axis(2, false)?;
            let of_c = states.mul(&of_y)?.sum_axis(2, false)?;
            of_a =
                of_a.add(&of_exponent.mul(&part.step.unsqueeze(3)?)?.sum_axis([0, 1].as_slice(), false)?)?;
            if !is_grad_enabled() && !is_tracing() {
                eval_all(&[&carried, &of_a, &of_step, &of_x, &of_b, &of_c])?;
            }
            for (list, gradient) in found.iter_mut().zip([of_step, of_x, of_b, of_c]) {
                list.push(gradient);
            }
        }
        let mut gradients = Vec::with_capacity(6);
        for mut list in found {
            list.reverse();
            gradients.push(Some(Tensor::concat(&list, 1)?));
        }
        gradients.extend([Some(of_a), Some(carried)]);
        Ok(gradients)
    }
}
