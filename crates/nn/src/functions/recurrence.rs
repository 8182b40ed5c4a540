//! Recurrent layers over a whole sequence: a step composed of other operations, and all steps in one kernel
//! if the device has one for [`Recurrence`].

use std::sync::Arc;

use autograd::{Function, apply, grad, is_grad_enabled};
use tensor_core::{Error, Recurrence, RecurrencePass, RecurrentCell, Result, Tensor, is_tracing};

/// The number of sequences below which packing the weight, as kernels do, does not pay.
const FEW_PRODUCTS: usize = 16;

/// The next states h and c from the input part of the gates, `[N, G·H]`, and the previous states, `[N, H]`.
/// The weight is transposed, `[H, G·H]`: one tensor for all steps, so that its gradient is one product.
/// `bias` `[G·H]` is added to the state part, for a GRU.
#[track_caller]
pub(crate) fn recurrent_step(
    kind: RecurrentCell,
    of_input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    hidden: &Tensor,
    cell: Option<&Tensor>,
) -> Result<(Tensor, Option<Tensor>)> {
    let mut of_state = hidden.matmul(weight)?;
    if let Some(bias) = bias {
        of_state = of_state.add(bias)?;
    }
    let size = of_input.dims()[1] / kind.gates();
    Ok(match kind {
        RecurrentCell::Tanh => (of_input.add(&of_state)?.tanh(), None),
        RecurrentCell::Relu => (of_input.add(&of_state)?.relu(), None),
        RecurrentCell::Lstm => {
            let gates = of_input.add(&of_state)?;
            let gate = |k: usize| gates.narrow(1, k * size, size);
            let (enter, keep) = (gate(0)?.sigmoid(), gate(1)?.sigmoid());
            let (fresh, show) = (gate(2)?.tanh(), gate(3)?.sigmoid());
            let kept = match cell {
                Some(cell) => keep.mul(cell)?,
                None => keep.mul_scalar(0.0),
            };
            let cell = kept.add(&enter.mul(&fresh)?)?;
            (show.mul(&cell.tanh())?, Some(cell))
        }
        RecurrentCell::Gru => {
            let gate = |of: &Tensor, k: usize| of.narrow(1, k * size, size);
            let reset = gate(of_input, 0)?.add(&gate(&of_state, 0)?)?.sigmoid();
            let update = gate(of_input, 1)?.add(&gate(&of_state, 1)?)?.sigmoid();
            let fresh = gate(of_input, 2)?.add(&reset.mul(&gate(&of_state, 2)?)?)?.tanh();
            // (1 − update)·fresh + update·hidden.
            (fresh.add(&update.mul(&hidden.sub(&fresh)?)?)?, None)
        }
    })
}

/// One layer in one direction, over all steps.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    /// The cell's formula.
    pub cell: RecurrentCell,
    /// Whether the last step is the first to be computed.
    pub reverse: bool,
}

/// The results of a [`Sequence`].
#[derive(Debug)]
pub struct States {
    /// h after each step, `[T, N, H]`.
    pub all: Tensor,
    /// The last h, `[N, H]`.
    pub hidden: Tensor,
    /// The last c, `[N, H]`, of an LSTM.
    pub cell: Option<Tensor>,
}

impl Sequence {
    /// All steps at once, if the device has a kernel that pays; `inputs` are those of
    /// [`RecurrencePass::Forward`].
    #[track_caller]
    pub fn by_kernel(self, inputs: &[&Tensor]) -> Result<Option<States>> {
        let [gates, ..] = inputs else { return Ok(None) };
        let products = gates.dims()[0] * gates.dims()[1];
        let kernel = self.kernel(RecurrencePass::Forward);
        // In a trace the steps are one operation, whose number does not depend on the sequence.
        let is_one =
            is_tracing() || products >= FEW_PRODUCTS && Tensor::has_custom_kernel(kernel.clone(), inputs)?;
        if !is_one {
            return Ok(None);
        }
        let is_lstm = self.cell == RecurrentCell::Lstm;
        let mut results = if is_grad_enabled() && inputs.iter().any(|input| input.is_tracked()) {
            apply(self, inputs)?.into_iter()
        } else {
            let mut results = Tensor::custom_kernel(kernel, inputs)?;
            let last = self.last(&results[0])?;
            results.insert(1, last);
            results.into_iter()
        };
        let mut next = || results.next().ok_or_else(|| self.miscounted());
        let (all, hidden) = (next()?, next()?);
        let cell = if is_lstm { Some(next()?) } else { None };
        Ok(Some(States { all, hidden, cell }))
    }

    fn kernel(self, pass: RecurrencePass) -> Arc<Recurrence> {
        Arc::new(Recurrence { pass, cell: self.cell, reverse: self.reverse })
    }

    fn miscounted(self) -> Error {
        Error::invalid(self.name(), "its inputs and results differ in number from those of its cell")
    }

    /// The value after the last step, from the values after each step.
    #[track_caller]
    fn last(self, all: &Tensor) -> Result<Tensor> {
        all.select(0, if self.reverse { 0 } else { all.dims()[0] - 1 })
    }

    /// The states before each step.
    #[track_caller]
    fn before(self, first: &Tensor, all: &Tensor) -> Result<Tensor> {
        let (first, steps) = (first.unsqueeze(0)?, all.dims()[0]);
        match (steps, self.reverse) {
            (1, _) => Ok(first),
            (_, false) => Tensor::concat(&[first, all.narrow(0, 0, steps - 1)?], 0),
            (_, true) => Tensor::concat(&[all.narrow(0, 1, steps - 1)?, first], 0),
        }
    }

    /// Step by step, with operations that have gradients: all h, the last h, and the last c of an LSTM.
    #[track_caller]
    fn composed(self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let [gates, weight, hidden, rest @ ..] = inputs else { return Err(self.miscounted()) };
        let (mut hidden, mut cell, mut bias) = (hidden.clone(), None, None);
        match self.cell {
            RecurrentCell::Tanh | RecurrentCell::Relu => {}
            RecurrentCell::Lstm => cell = rest.first().cloned(),
            RecurrentCell::Gru => bias = rest.first(),
        }
        let weight = weight.t()?;
        let steps = gates.dims()[0];
        let mut all = Vec::with_capacity(steps);
        for step in 0..steps {
            let step = if self.reverse { steps - 1 - step } else { step };
            let of_input = gates.select(0, step)?;
            (hidden, cell) = recurrent_step(self.cell, &of_input, &weight, bias, &hidden, cell.as_ref())?;
            all.push(hidden.clone());
        }
        if self.reverse {
            all.reverse();
        }
        Ok([Tensor::stack(&all, 0)?, hidden].into_iter().chain(cell).collect())
    }

    /// The gradients as a graph that can be differentiated again.
    #[track_caller]
    fn recorded(self, inputs: &[Tensor], gradients: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        // Separate nodes, so that an input that was made from another one counts as independent.
        let own = |input: &Tensor| input.unsqueeze(0)?.squeeze(0);
        let own = inputs.iter().map(own).collect::<Result<Vec<Tensor>>>()?;
        let mut sum: Option<Tensor> = None;
        for (result, gradient) in self.composed(&own)?.iter().zip(gradients) {
            let Some(gradient) = gradient else { continue };
            let share = result.mul(gradient)?.sum();
            sum = Some(match sum {
                Some(sum) => sum.add(&share)?,
                None => share,
            });
        }
        let tracked: Vec<&Tensor> = own.iter().filter(|input| input.is_tracked()).collect();
        let mut found = match sum {
            Some(sum) => grad(&[&sum], &tracked, true)?,
            None => vec![None; tracked.len()],
        }
        .into_iter();
        Ok(own.iter().map(|input| if input.is_tracked() { found.next().flatten() } else { None }).collect())
    }
}

impl Function for Sequence {
    /// All h, the last h, the last c of an LSTM; and then tensors for the gradient: all c of an LSTM, and
    /// the tensors that the kernel saves.
    type Output = Vec<Tensor>;

    fn name(&self) -> &'static str {
        match self.cell {
            RecurrentCell::Tanh | RecurrentCell::Relu => "RNN",
            RecurrentCell::Lstm => "LSTM",
            RecurrentCell::Gru => "GRU",
        }
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let results = Tensor::custom_kernel(self.kernel(RecurrencePass::Kept), inputs)?;
        let mut outputs = vec![results[0].clone(), self.last(&results[0])?];
        if self.cell == RecurrentCell::Lstm {
            outputs.push(self.last(&results[1])?);
        }
        outputs.extend_from_slice(&results[1..]);
        Ok(outputs)
    }

    #[track_caller]
    fn backward(
        &self,
        inputs: &[Tensor],
        outputs: &Vec<Tensor>,
        gradients: &Vec<Option<Tensor>>,
    ) -> Result<Vec<Option<Tensor>>> {
        if is_grad_enabled() {
            return self.recorded(inputs, gradients);
        }
        let is_lstm = self.cell == RecurrentCell::Lstm;
        let (weight, first, all) = (&inputs[1], &inputs[2], &outputs[0]);
        let given = |k: usize| gradients[k].clone().unwrap_or_else(|| outputs[k].zeros_like());
        let of_results: Vec<Tensor> = (0..2 + usize::from(is_lstm)).map(given).collect();
        let mut given = vec![weight, first, all];
        if self.cell.kept() > 0 {
            given.extend(outputs.last());
        }
        if is_lstm {
            given.extend([&inputs[3], &outputs[3]]);
        }
        given.extend(&of_results);
        let results = Tensor::custom_kernel(self.kernel(RecurrencePass::Backward), &given)?;
        let of_gates = results[0].clone();
        let of_state = if self.cell == RecurrentCell::Gru { &results[2] } else { &of_gates };
        let lines = |t: &Tensor| t.reshape([t.dims()[0] * t.dims()[1], t.dims()[2]]);
        let of_weight = lines(of_state)?.t()?.matmul(&lines(&self.before(first, all)?)?)?;
        let last = match self.cell {
            RecurrentCell::Tanh | RecurrentCell::Relu => None,
            RecurrentCell::Lstm => Some(results[2].clone()),
            RecurrentCell::Gru => Some(of_state.sum_axis([0, 1].as_slice(), false)?),
        };
        let gradients = [of_gates.clone(), of_weight, results[1].clone()];
        Ok(gradients.into_iter().chain(last).map(Some).collect())
    }
}
