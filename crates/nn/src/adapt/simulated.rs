//! [`Simulated`]: the quantization of one layer's input and weight, which is observed and simulated in
//! floats.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tensor_core::{Error, Result, Tensor, caller_line};

use super::observer::{IntegerRange, Observer};
use crate::{
    Visitor, VisitorMut,
    functions::{fake_quantize_per_channel_affine, fake_quantize_per_tensor_affine},
};

/// The quantization of a layer's input, with one scale, and of its weight, with a scale for each output.
#[derive(Debug)]
pub(crate) struct Simulated {
    /// The layer's path in the model, for messages.
    path: String,
    input: IntegerRange,
    /// The integers of the weight; None once the weight is in blocks.
    weight: Option<IntegerRange>,
    scale: Tensor,
    zero: Tensor,
    state: Mutex<State>,
}

#[derive(Clone, Debug)]
struct State {
    observer: Observer,
    observes: bool,
    simulates: bool,
}

impl Simulated {
    pub(crate) fn new(
        path: &str,
        input: IntegerRange,
        weight: Option<IntegerRange>,
        observer: Observer,
        like: &Tensor,
    ) -> Result<Simulated> {
        let options = (like.dtype().compute(), &like.device());
        let cell = |x: f64| Tensor::full((), x, options)?.into_cell(false);
        let state = State { observer, observes: true, simulates: true };
        let (scale, zero) = (cell(1.0)?, cell(0.0)?);
        Ok(Simulated { path: path.into(), input, weight, scale, zero, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_observes(&self, on: bool) {
        self.state().observes = on;
    }

    pub(crate) fn set_simulates(&self, on: bool) {
        self.state().simulates = on;
    }

    /// The scale and the zero point of the input, if any input was observed.
    pub(crate) fn parameters(&self) -> Option<(f64, f64)> {
        self.state().observer.parameters(self.input)
    }

    /// The integers of the weight.
    pub(crate) fn weight_range(&self) -> Option<IntegerRange> {
        self.weight
    }

    /// The same quantization of the input without one of the weight, for good: nothing is observed any more.
    pub(crate) fn fixed(&self) -> Simulated {
        let state = State { observes: false, simulates: true, ..self.state().clone() };
        Simulated {
            path: self.path.clone(),
            input: self.input,
            weight: None,
            scale: self.scale.clone(),
            zero: self.zero.clone(),
            state: Mutex::new(state),
        }
    }

    /// The input and the weight as the layer takes them.
    #[track_caller]
    pub(super) fn apply(&self, input: &Tensor, weight: &Tensor) -> Result<(Tensor, Tensor)> {
        let _line = caller_line();
        let mut state = self.state();
        if state.observes {
            let observed = state.observer.observe(input);
            observed.map_err(|e| Error::invalid("qat", format!("{}: {e}", self.path)))?;
            if let Some((scale, zero)) = state.observer.parameters(self.input) {
                self.scale.assign(&Tensor::full((), scale, (self.scale.dtype(), &self.scale.device()))?)?;
                self.zero.assign(&Tensor::full((), zero, (self.zero.dtype(), &self.zero.device()))?)?;
            }
        }
        if !state.simulates {
            return Ok((input.clone(), weight.clone()));
        }
        drop(state);
        let IntegerRange { quant_min, quant_max, .. } = self.input;
        let x = fake_quantize_per_tensor_affine(input, &self.scale, &self.zero, quant_min, quant_max)?;
        let Some(integers) = self.weight else { return Ok((x, weight.clone())) };
        let scale = channel_scales(weight, integers)?;
        let IntegerRange { quant_min, quant_max, .. } = integers;
        let zero = scale.zeros_like();
        Ok((x, fake_quantize_per_channel_affine(weight, &scale, &zero, 0, quant_min, quant_max)?))
    }

    /// Visits the scale and the zero point of the input.
    pub(super) fn visit(&self, visitor: &mut Visitor) {
        visitor.buffer("input_quantizer.scale", &self.scale);
        visitor.buffer("input_quantizer.zero_point", &self.zero);
    }

    /// A copy with other tensors in place of its own.
    pub(super) fn replaced(&self, visitor: &mut VisitorMut) -> Simulated {
        // `fixed` takes the lock too.
        let state = Mutex::new(self.state().clone());
        let mut copy = Simulated { weight: self.weight, state, ..self.fixed() };
        visitor.buffer("", &mut copy.scale);
        visitor.buffer("", &mut copy.zero);
        copy
    }
}

/// The scale of each position of a weight's first axis, for integers that are symmetric about 0.
#[track_caller]
pub(crate) fn channel_scales(weight: &Tensor, integers: IntegerRange) -> Result<Tensor> {
    let steps = (integers.quant_max - integers.quant_min) as f64 / 2.0;
    let magnitudes = weight.detach().dequantize().abs().flatten(1, -1)?.amax(1, false)?;
    Ok(magnitudes.div_scalar(steps).maximum_scalar(f64::from(f32::EPSILON)))
}
