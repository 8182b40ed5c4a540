//! [`Recurrence`]: a recurrent layer over a whole sequence, as a native kernel that a backend may
//! implement. It can keep the weights in fast memory between steps.

use std::fmt;

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// One pass over all steps of a recurrent layer, as a [`CustomKernel`] whose implementation is this
/// value itself: a backend that asks a [`Request`] for a `Recurrence` computes it from these fields.
/// [`RecurrencePass`] lists the inputs and results of each pass, for T steps of N sequences with states
/// of size H; G is [`RecurrentCell::gates`] and K is [`RecurrentCell::kept`]. Inputs are row-major. On a
/// device without this kernel ([`crate::Tensor::has_custom_kernel`]), the caller composes the steps from
/// other operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrence {
    /// The pass to compute.
    pub pass: RecurrencePass,
    /// The function of a step.
    pub cell: RecurrentCell,
    /// Whether the sequence is processed from its end; "previous" and "last" below are in that order.
    pub reverse: bool,
}

/// The function of a step, in terms of a = gates + weight · h, where gates is the input's contribution
/// and h is the previous state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrentCell {
    /// h' = tanh(a).
    Tanh,
    /// h' = max(0, a).
    Relu,
    /// a consists of the parts i, f, g, o; c' = σ(f)·c + σ(i)·tanh(g) and h' = σ(o)·tanh(c').
    Lstm,
    /// a consists of the parts r, z, n, where the state contributes weight · h + bias; r = σ(a) and z =
    /// σ(a), but n = tanh(gates + r·(weight·h + bias)), and h' = (1 − z)·n + z·h.
    Gru,
}

impl RecurrentCell {
    /// The size of the gates as a multiple of the state's.
    pub const fn gates(self) -> usize {
        match self {
            RecurrentCell::Tanh | RecurrentCell::Relu => 1,
            RecurrentCell::Lstm => 4,
            RecurrentCell::Gru => 3,
        }
    }

    /// How many numbers per element of a step's state the backward pass reads in addition to the states:
    /// σ(i), σ(f), tanh(g) and σ(o) of an LSTM; r, z, n and weight·h + bias of the last part of a GRU.
    pub const fn kept(self) -> usize {
        match self {
            RecurrentCell::Tanh | RecurrentCell::Relu => 0,
            RecurrentCell::Lstm | RecurrentCell::Gru => 4,
        }
    }
}

/// The passes of [`Recurrence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrencePass {
    /// gates `[T, N, G·H]`, weight `[G·H, H]`, the initial state h `[N, H]`, and then for an LSTM the
    /// initial state c `[N, H]`, or for a GRU the bias `[G·H]` that is added to weight · h → h after
    /// each step, `[T, N, H]`, and for an LSTM c after the last step, `[N, H]`.
    Forward,
    /// `Forward` in preparation for a backward pass: an LSTM gives c after each step, `[T, N, H]`, and
    /// the kept numbers come last, `[T, N, K·H]`, if K > 0.
    Kept,
    /// weight, initial h, h after each step, the kept numbers (if K > 0), initial c and c after each
    /// step (LSTM), and the gradients of h after each step, of h after the last step, and of c after the
    /// last step (LSTM) → the gradients of gates, of the initial h, and of the initial c (LSTM) or of
    /// weight · h + bias, `[T, N, G·H]` (GRU).
    Backward,
}

impl CustomKernel for Recurrence {
    fn name(&self) -> &'static str {
        match self.pass {
            RecurrencePass::Forward | RecurrencePass::Kept => "recurrence",
            RecurrencePass::Backward => "recurrence_backward",
        }
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        let wrong = |what: &dyn fmt::Display| Err(misfit(self, inputs, what));
        let (gates, kept) = (self.cell.gates(), self.cell.kept());
        let is_lstm = self.cell == RecurrentCell::Lstm;
        let is_gru = self.cell == RecurrentCell::Gru;
        // Both kinds of pass have the weight, with the state's size, and a sequence among their first
        // three inputs.
        let (weight, sequence) = match self.pass {
            RecurrencePass::Forward | RecurrencePass::Kept => (1, 0),
            RecurrencePass::Backward => (0, 2),
        };
        let (Some((weight, dtype)), Some((sequence, _))) = (inputs.get(weight), inputs.get(sequence)) else {
            return wrong(&"there are too few");
        };
        let (&[_, size], &[steps, batch, _]) = (weight.dims(), sequence.dims()) else {
            return wrong(&"a weight is [gates, state], and a sequence is [steps, batch, features]");
        };
        if !dtype.is_float() || steps == 0 || size == 0 {
            return wrong(&"a sequence has steps, and a state has elements, of a floating-point dtype");
        }
        let (all, state) = (Shape::from([steps, batch, size]), Shape::from([batch, size]));
        let of_gates = Shape::from([steps, batch, gates * size]);
        let of_kept = Shape::from([steps, batch, kept * size]);
        let weight = Shape::from([gates * size, size]);
        let mut wanted: Vec<Shape>;
        let mut found: Vec<Shape>;
        match self.pass {
            RecurrencePass::Forward | RecurrencePass::Kept => {
                let keeps = self.pass == RecurrencePass::Kept;
                wanted = vec![of_gates, weight, state.clone()];
                found = vec![all.clone()];
                if is_lstm {
                    wanted.push(state.clone());
                    found.push(if keeps { all } else { state });
                } else if is_gru {
                    wanted.push(Shape::from([gates * size]));
                }
                if keeps && kept > 0 {
                    found.push(of_kept);
                }
            }
            RecurrencePass::Backward => {
                wanted = vec![weight, state.clone(), all.clone()];
                found = vec![of_gates.clone(), state.clone()];
                if kept > 0 {
                    wanted.push(of_kept);
                }
                if is_lstm {
                    wanted.extend([state.clone(), all.clone()]);
                }
                wanted.extend([all, state.clone()]);
                if is_lstm {
                    wanted.push(state.clone());
                    found.push(state);
                } else if is_gru {
                    found.push(of_gates);
                }
            }
        }
        let fits = |(wanted, (shape, own)): (&Shape, &(Shape, DType))| wanted == shape && own == dtype;
        if wanted.len() != inputs.len() || !wanted.iter().zip(inputs).all(fits) {
            let wanted: Vec<String> = wanted.iter().map(Shape::to_string).collect();
            return wrong(&format_args!("{:?} takes {} of one dtype", self.cell, wanted.join(", ")));
        }
        Ok(found.into_iter().map(|shape| (shape, *dtype)).collect())
    }

    fn key(&self) -> Vec<u64> {
        let pass = match self.pass {
            RecurrencePass::Forward => 0,
            RecurrencePass::Kept => 1,
            RecurrencePass::Backward => 2,
        };
        let cell = match self.cell {
            RecurrentCell::Tanh => 0,
            RecurrentCell::Relu => 1,
            RecurrentCell::Lstm => 2,
            RecurrentCell::Gru => 3,
        };
        vec![pass, cell, u64::from(self.reverse)]
    }

    fn implement(&self, request: &mut Request<'_>) {
        request.provide(|_| *self);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_pass_takes_what_the_others_give() {
        let f32s = |shapes: &[&[usize]]| -> Vec<(Shape, DType)> {
            shapes.iter().map(|shape| (Shape::from(*shape), DType::F32)).collect()
        };
        for cell in [RecurrentCell::Tanh, RecurrentCell::Relu, RecurrentCell::Lstm, RecurrentCell::Gru] {
            let of = |pass| Recurrence { pass, cell, reverse: false };
            let gates = cell.gates() * 3;
            let mut inputs = f32s(&[&[5, 2, gates], &[gates, 3], &[2, 3]]);
            match cell {
                RecurrentCell::Tanh | RecurrentCell::Relu => {}
                RecurrentCell::Lstm => inputs.extend(f32s(&[&[2, 3]])),
                RecurrentCell::Gru => inputs.extend(f32s(&[&[gates]])),
            }
            let results = of(RecurrencePass::Kept).results(&inputs).unwrap();
            assert_eq!(results[0].0, Shape::from([5, 2, 3]));
            assert_eq!(of(RecurrencePass::Forward).results(&inputs).unwrap()[0], results[0]);
            let is_lstm = cell == RecurrentCell::Lstm;
            let mut given = vec![inputs[1].clone(), inputs[2].clone(), results[0].clone()];
            if cell.kept() > 0 {
                given.push(results[results.len() - 1].clone());
            }
            if is_lstm {
                given.extend([inputs[3].clone(), results[1].clone()]);
            }
            given.extend([results[0].clone(), inputs[2].clone()]);
            if is_lstm {
                given.push(inputs[3].clone());
            }
            let gradients = of(RecurrencePass::Backward).results(&given).unwrap();
            assert_eq!(gradients[..2], [inputs[0].clone(), inputs[2].clone()]);
            // One input too few, one of another shape, one of another dtype.
            given.pop();
            for pass in [RecurrencePass::Forward, RecurrencePass::Kept] {
                assert!(of(pass).results(&inputs[..2]).is_err());
                for wrong in [(Shape::from([4, 3]), DType::F32), (inputs[2].0.clone(), DType::F64)] {
                    let mut inputs = inputs.clone();
                    inputs[2] = wrong;
                    let error = of(pass).results(&inputs).unwrap_err().to_string();
                    assert!(error.contains("recurrence") && error.contains("[2, 3]"), "{error}");
                }
            }
            assert!(of(RecurrencePass::Backward).results(&given).is_err());
        }
    }
}
