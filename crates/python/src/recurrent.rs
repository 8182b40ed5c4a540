//! Recurrent layers of Taper. A class of Python has the parameters, and gives them with each call, since a
//! program may move, cast and replace them.

use pyo3::prelude::*;
use taper::{
    Tensor,
    nn::{Gru, Lstm, Module, Rnn, RnnConfig, VisitorMut},
};

use crate::{
    args::Value,
    errors::{raise, wrong_value},
    ops::PyGenerator,
    tensor::{PyTensor, run},
};

/// A layer of one of the three kinds.
#[derive(Clone)]
enum Layer {
    Rnn(Rnn),
    Gru(Gru),
    Lstm(Lstm),
}

impl Layer {
    fn module(&self) -> &dyn Module {
        match self {
            Layer::Rnn(layer) => layer,
            Layer::Gru(layer) => layer,
            Layer::Lstm(layer) => layer,
        }
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        match self {
            Layer::Rnn(layer) => layer.visit_mut(visitor),
            Layer::Gru(layer) => layer.visit_mut(visitor),
            Layer::Lstm(layer) => layer.visit_mut(visitor),
        }
    }
}

/// A recurrent layer of Taper, for a class of Python: a pattern, of which each call makes a layer with the
/// parameters of that call.
#[pyclass(frozen)]
struct NativeRecurrent {
    pattern: Layer,
    /// The pattern's own parameters by their names.
    parameters: Vec<(String, Tensor)>,
}

#[pymethods]
impl NativeRecurrent {
    #[new]
    #[allow(clippy::too_many_arguments)] // those of PyTorch
    fn new(
        kind: &str,
        input_size: usize,
        hidden_size: usize,
        num_layers: usize,
        bias: bool,
        batch_first: bool,
        dropout: f64,
        bidirectional: bool,
        proj_size: usize,
    ) -> PyResult<NativeRecurrent> {
        let config = RnnConfig {
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            ..Default::default()
        };
        let rng = PyGenerator::of(None, &taper::cpu());
        let (input, hidden) = (input_size, hidden_size);
        let layer = match kind {
            "RNN_TANH" => Rnn::with_config(input, hidden, config, &rng).map(Layer::Rnn),
            "RNN_RELU" => Rnn::with_relu(input, hidden, config, &rng).map(Layer::Rnn),
            "GRU" => Gru::with_config(input, hidden, config, &rng).map(Layer::Gru),
            "LSTM" => Lstm::with_config(input, hidden, config, &rng).map(Layer::Lstm),
            _ => return Err(wrong_value(format!("Unrecognized RNN mode: {kind}"))),
        };
        let pattern = layer.map_err(raise)?;
        let parameters = pattern.module().named_parameters();
        Ok(NativeRecurrent { pattern, parameters })
    }

    /// The parameters of a new layer by their names.
    fn parameters(&self) -> Vec<(String, PyTensor)> {
        self.parameters.iter().map(|(name, own)| (name.clone(), PyTensor::plain(own.clone()))).collect()
    }

    /// The outputs and the states after the last step, with parameters in the order of [`Self::parameters`];
    /// an LSTM has two states.
    fn forward(
        &self,
        py: Python<'_>,
        input: Value,
        states: Vec<Value>,
        parameters: Vec<Value>,
        training: bool,
    ) -> PyResult<Vec<PyTensor>> {
        let states: Vec<Tensor> = states.into_iter().map(|state| state.0).collect();
        let out = run(py, || {
            let given = self.parameters.iter().zip(parameters);
            let given = given.map(|((_, own), Value(given))| (own.id(), given)).collect();
            let mut layer = self.pattern.clone();
            layer.visit_mut(&mut VisitorMut::new(given));
            if training {
                layer.module().train()
            } else {
                layer.module().eval()
            }
            Ok(match &layer {
                Layer::Rnn(layer) => {
                    let (out, state) = layer.forward(&input.0, states.first())?;
                    vec![out, state]
                }
                Layer::Gru(layer) => {
                    let (out, state) = layer.forward(&input.0, states.first())?;
                    vec![out, state]
                }
                Layer::Lstm(layer) => {
                    let given = match &states[..] {
                        [hidden, cell] => Some((hidden, cell)),
                        _ => None,
                    };
                    let (out, (hidden, cell)) = layer.forward(&input.0, given)?;
                    vec![out, hidden, cell]
                }
            })
        })?;
        Ok(out.into_iter().map(|tensor| PyTensor::new(tensor, "TransposeBackward0")).collect())
    }
}

/// Adds the class of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeRecurrent>()
}
