//! Averages of parameters over the steps of training: exponential (EMA) and equal (SWA).

use autograd::no_grad;
use tensor_core::{Error, ErrorKind, OnDrop, Result, State, Stateful, Tensor, caller_line};

use crate::{
    groups::{check_parameters, compute},
    rules::lerp,
    saved::{count, required, settled},
};

/// Averages of a model's parameters; a model with averaged parameters often generalizes better than the last
/// step's. `torch.optim.swa_utils.AveragedModel`.
///
/// The first [`AveragedParameters::update`] copies the values. The n-th update after it changes each average
/// a, with the parameter's value θ:
///
/// ```text
/// a ← d·a + (1 − d)·θ       ema, with the decay d
/// a ← a + (θ − a) / (n + 1)  swa
/// ```
///
/// Izmailov and others: Averaging weights leads to wider optima and better generalization (2018).
///
/// ```
/// use autograd::TensorGrad;
/// use optim::AveragedParameters;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let w = Tensor::new([0.0f32], &backend_cpu::cpu())?.requires_grad();
/// let mut average = AveragedParameters::ema([w.clone()], 0.9)?;
/// average.update()?;
/// w.assign(&w.detach().full_like(1.0))?; // a step
/// average.update()?;
/// // Evaluate with the averages as parameters:
/// let inside = average.with(|| w.item::<f32>())?;
/// assert!((inside - 0.1).abs() < 1e-6);
/// assert_eq!(w.item::<f32>()?, 1.0);
/// # Ok(()) }
/// ```
#[doc(alias("AveragedModel", "EMA", "SWA"))]
#[derive(Debug)]
pub struct AveragedParameters {
    parameters: Vec<Tensor>,
    averages: Vec<Tensor>,
    /// The decay of an exponential average; none for an equal average.
    decay: Option<f64>,
    updates: u64,
}

const OP: &str = "AveragedParameters";

impl AveragedParameters {
    /// An exponential moving average: a ← decay·a + (1 − decay)·θ. PyTorch's `get_ema_multi_avg_fn`.
    ///
    /// # Errors
    /// A decay outside [0, 1], no parameters, a tensor that is no parameter, or one that is given twice.
    #[track_caller]
    pub fn ema(parameters: impl IntoIterator<Item = Tensor>, decay: f64) -> Result<AveragedParameters> {
        if !(0.0..=1.0).contains(&decay) {
            return Err(Error::invalid(OP, format!("decay {decay}: give a number from 0 to 1")));
        }
        match AveragedParameters::new(parameters.into_iter().collect(), Some(decay)) {
            Ok(averaged) => Ok(averaged),
            Err(error) => Err(error.here()),
        }
    }

    /// The equal average of the values at all updates. PyTorch's `get_swa_multi_avg_fn`.
    ///
    /// # Errors
    /// No parameters, a tensor that is no parameter, or one that is given twice.
    #[track_caller]
    pub fn swa(parameters: impl IntoIterator<Item = Tensor>) -> Result<AveragedParameters> {
        match AveragedParameters::new(parameters.into_iter().collect(), None) {
            Ok(averaged) => Ok(averaged),
            Err(error) => Err(error.here()),
        }
    }

    fn new(parameters: Vec<Tensor>, decay: Option<f64>) -> Result<AveragedParameters> {
        check_parameters(OP, std::iter::once(parameters.as_slice()))?;
        let averages = parameters.iter().map(Tensor::detach).collect();
        Ok(AveragedParameters { parameters, averages, decay, updates: 0 })
    }

    /// Takes the current values of the parameters into the averages. Half precision is averaged in f32 and
    /// rounded.
    ///
    /// # Errors
    /// A failure to compute; no average has changed then.
    #[track_caller]
    pub fn update(&mut self) -> Result<()> {
        let _line = caller_line();
        let (weight, first) = match self.decay {
            Some(decay) => (1.0 - decay, self.updates == 0),
            None => (1.0 / (self.updates as f64 + 1.0), self.updates == 0),
        };
        let made = no_grad(|| {
            let pairs = self.averages.iter().zip(&self.parameters);
            let next = pairs.map(|(average, parameter)| {
                let (dtype, wide) = (parameter.dtype(), parameter.dtype().compute());
                if first {
                    return Ok(parameter.detach());
                }
                let average = average.to(&parameter.device())?.to_dtype(wide)?;
                lerp(&average, &parameter.to_dtype(wide)?, weight)?.to_dtype(dtype)
            });
            next.collect::<Result<Vec<Tensor>>>()
        });
        let next = match made {
            Ok(next) => next,
            Err(error) => return Err(error.here()),
        };
        compute(&next)?;
        self.averages = next;
        self.updates = self.updates.saturating_add(1);
        Ok(())
    }

    /// The averages, in the order of the parameters.
    pub fn averages(&self) -> &[Tensor] {
        &self.averages
    }

    /// The number of updates. PyTorch's `n_averaged`.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Runs `f` with the averages as values of the parameters, and restores the parameters' own values, also
    /// when `f` panics.
    ///
    /// # Errors
    /// The errors that `f` returns.
    #[track_caller]
    pub fn with<R>(&self, f: impl FnOnce() -> Result<R>) -> Result<R> {
        let before: Vec<Tensor> = self.parameters.iter().map(Tensor::detach).collect();
        let _restore = OnDrop::new(|| {
            for (parameter, value) in self.parameters.iter().zip(&before) {
                // Cannot fail: the parameter had this value before.
                let _ = parameter.assign(value);
            }
        });
        self.assign_to(&self.parameters)?;
        f()
    }

    /// Assigns the averages to these parameters, such as those of a copy of the model.
    ///
    /// # Errors
    /// Another number of parameters, other shapes or dtypes. Nothing has changed then.
    #[track_caller]
    pub fn assign_to<T: AsRef<Tensor>>(&self, parameters: &[T]) -> Result<()> {
        let _line = caller_line();
        if parameters.len() != self.averages.len() {
            let message = format!("{} parameters for {} averages", parameters.len(), self.averages.len());
            return Err(Error::invalid(OP, message));
        }
        let mut values = Vec::with_capacity(parameters.len());
        for (parameter, average) in parameters.iter().map(AsRef::as_ref).zip(&self.averages) {
            if !parameter.is_cell() {
                return Err(Error::invalid(OP, format!("a tensor {} is no parameter", parameter.shape())));
            }
            if parameter.shape() != average.shape() {
                return Err(Error::new(ErrorKind::ShapeMismatch {
                    op: OP,
                    lhs: parameter.shape().clone(),
                    rhs: average.shape().clone(),
                    hint: "give the parameters of a model of the same form".into(),
                }));
            }
            let moved = no_grad(|| average.to(&parameter.device())?.to_dtype(parameter.dtype()));
            match moved {
                Ok(value) => values.push((parameter, value)),
                Err(error) => return Err(error.here()),
            }
        }
        values.iter().try_for_each(|(parameter, value)| parameter.assign(value))
    }
}

/// PyTorch's name `n_averaged` for the number of updates, `averages.3` for the average of parameter 3. The
/// decay is not saved: the program sets it.
impl Stateful for AveragedParameters {
    fn state_dict(&self) -> State {
        let mut state = State::new();
        state.insert("n_averaged", self.updates);
        for (i, average) in self.averages.iter().enumerate() {
            state.insert(format!("averages.{i}"), average.clone());
        }
        state
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let mut reader = state.reader();
        let updates = count(&mut reader, "n_averaged");
        let loaded: Vec<Option<Tensor>> = (self.parameters.iter().enumerate())
            .map(|(i, parameter)| required(&mut reader, &format!("averages.{i}"), parameter))
            .collect();
        reader.finish()?;
        let pairs = loaded.iter().flatten().zip(&self.parameters);
        self.averages =
            pairs.map(|(average, p)| settled(average, &p.device())).collect::<Result<Vec<Tensor>>>()?;
        self.updates = updates;
        Ok(())
    }
}
