//! Taper's optimizers behind one class: the settings of a group come by their names before each step.

use std::{collections::HashMap, sync::Arc, sync::Mutex};

use pyo3::prelude::*;
use taper::tensor_core::lock;
use taper::{
    Result, State, StateValue, Stateful, Tensor,
    optim::{
        AdadeltaConfig, AdagradConfig, AdamConfig, AdamWConfig, AdamaxConfig, AsgdConfig, Lbfgs, LbfgsConfig,
        LineSearch, LionConfig, NAdamConfig, Optimizer, ParamGroups, RAdamConfig, RmsPropConfig, RpropConfig,
        Setting, SgdConfig, UpdateRule,
    },
};

use crate::{
    args::{Plain, Value},
    cell::Base,
    dtype::Number,
    errors::{keep, raise, wrong_value},
    tensor::{PyTensor, run},
};

/// An optimizer of some rule.
trait Steps: Send {
    fn add(&mut self, parameters: Vec<Tensor>);
    fn set(&mut self, group: usize, settings: &HashMap<String, Plain>) -> Result<()>;
    fn step(&mut self) -> Result<()>;
    fn state(&self) -> State;
    fn load(&mut self, state: &State) -> Result<()>;
}

impl<C: UpdateRule + Default + Send> Steps for ParamGroups<C>
where
    C::State: Send,
{
    fn add(&mut self, parameters: Vec<Tensor>) {
        self.add_group(parameters, C::default());
    }

    fn set(&mut self, group: usize, settings: &HashMap<String, Plain>) -> Result<()> {
        let mut groups = self.groups_mut();
        let Some(group) = groups.get_mut(group) else { return Ok(()) };
        for (name, setting) in group.config.settings() {
            let Some(&Plain(number)) = settings.get(name) else { continue };
            match setting {
                Setting::Float(value) => *value = number.as_f64(),
                Setting::Bool(value) => *value = number.as_bool(),
                Setting::Count(value) => *value = number.as_i64().unsigned_abs(),
                Setting::OptionalCount(value) => *value = Some(number.as_i64().unsigned_abs()),
                Setting::Choice(choice) => {
                    if !choice.choose(number.as_i64().unsigned_abs()) {
                        return Err(taper::Error::invalid("optim", format!("{name}: no choice {number}")));
                    }
                }
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        if self.parameters().iter().all(|parameter| parameter.grad().is_none()) {
            return Ok(());
        }
        Optimizer::step(self)
    }

    fn state(&self) -> State {
        self.state_dict()
    }

    fn load(&mut self, state: &State) -> Result<()> {
        self.load_state_dict(state)
    }
}

/// The groups of a rule, the first of which has these parameters.
fn groups<C>(parameters: Vec<Tensor>) -> Box<dyn Steps>
where
    C: UpdateRule + Default + Send + 'static,
    C::State: Send,
{
    Box::new(ParamGroups::<C>::new(parameters, C::default()))
}

/// A function that makes an optimizer of parameters.
type Maker = fn(Vec<Tensor>) -> Box<dyn Steps>;

/// The rules by their names in PyTorch.
const RULES: &[(&str, Maker)] = &[
    ("SGD", groups::<SgdConfig>),
    ("Adam", groups::<AdamConfig>),
    ("AdamW", groups::<AdamWConfig>),
    ("RMSprop", groups::<RmsPropConfig>),
    ("Adagrad", groups::<AdagradConfig>),
    ("Adadelta", groups::<AdadeltaConfig>),
    ("Adamax", groups::<AdamaxConfig>),
    ("NAdam", groups::<NAdamConfig>),
    ("RAdam", groups::<RAdamConfig>),
    ("ASGD", groups::<AsgdConfig>),
    ("Rprop", groups::<RpropConfig>),
    ("Lion", groups::<LionConfig>),
];

/// An optimizer of Taper, for a class of Python.
#[pyclass(frozen)]
pub(crate) struct NativeOptimizer {
    steps: Mutex<Box<dyn Steps>>,
    parameters: Mutex<Vec<Arc<Base>>>,
}

fn cells(parameters: &[PyRef<'_, PyTensor>]) -> PyResult<Vec<Tensor>> {
    parameters.iter().map(|parameter| parameter.base().as_cell().map_err(raise)).collect()
}

#[pymethods]
impl NativeOptimizer {
    #[new]
    fn new(rule: &str, parameters: Vec<PyRef<'_, PyTensor>>) -> PyResult<NativeOptimizer> {
        let Some((_, make)) = RULES.iter().find(|(name, _)| *name == rule) else {
            return Err(wrong_value(format!("no optimizer {rule}")));
        };
        let steps = Mutex::new(make(cells(&parameters)?));
        let parameters = parameters.iter().map(|parameter| parameter.base()).collect();
        Ok(NativeOptimizer { steps, parameters: Mutex::new(parameters) })
    }

    fn add_group(&self, parameters: Vec<PyRef<'_, PyTensor>>) -> PyResult<()> {
        lock(&self.steps).add(cells(&parameters)?);
        lock(&self.parameters).extend(parameters.iter().map(|parameter| parameter.base()));
        Ok(())
    }

    /// One step with these settings of each group.
    fn step(&self, py: Python<'_>, settings: Vec<HashMap<String, Plain>>) -> PyResult<()> {
        run(py, || {
            let mut steps = lock(&self.steps);
            for (group, settings) in settings.iter().enumerate() {
                steps.set(group, settings)?;
            }
            steps.step()
        })?;
        lock(&self.parameters).iter().for_each(|parameter| parameter.touch());
        Ok(())
    }

    /// Sets the settings of each group.
    fn step_settings(&self, settings: Vec<HashMap<String, Plain>>) -> PyResult<()> {
        let mut steps = lock(&self.steps);
        let mut all = settings.iter().enumerate();
        all.try_for_each(|(group, settings)| steps.set(group, settings)).map_err(raise)
    }

    /// The state by Taper's names: tensors and numbers.
    fn state(&self, py: Python<'_>) -> PyResult<Vec<(String, Py<PyAny>)>> {
        let state = lock(&self.steps).state();
        state
            .into_iter()
            .map(|(name, value)| {
                let value = match value {
                    StateValue::Tensor(tensor) => Py::new(py, PyTensor::plain(tensor))?.into_any(),
                    StateValue::Number(number) => Number(number).into_pyobject(py)?.unbind(),
                };
                Ok((name, value))
            })
            .collect()
    }

    fn load(&self, state: HashMap<String, Bound<'_, PyAny>>) -> PyResult<()> {
        let mut all = State::new();
        for (name, value) in state {
            match value.cast::<PyTensor>() {
                Ok(tensor) => all.insert(name, StateValue::Tensor(tensor.get().read()?.detach())),
                Err(_) => all.insert(name, StateValue::Number(value.extract::<Plain>()?.0)),
            }
        }
        lock(&self.steps).load(&all).map_err(raise)
    }
}

/// L-BFGS, which calls the program for the loss.
#[pyclass(frozen)]
struct NativeLbfgs {
    steps: Mutex<Lbfgs>,
    parameters: Vec<Arc<Base>>,
}

#[pymethods]
impl NativeLbfgs {
    #[new]
    #[allow(clippy::too_many_arguments)] // those of PyTorch
    fn new(
        parameters: Vec<PyRef<'_, PyTensor>>,
        lr: f64,
        max_iter: u64,
        max_eval: Option<u64>,
        tolerance_grad: f64,
        tolerance_change: f64,
        history_size: u64,
        strong_wolfe: bool,
    ) -> PyResult<NativeLbfgs> {
        let config = LbfgsConfig {
            lr,
            max_iter,
            max_eval,
            tolerance_grad,
            tolerance_change,
            history_size,
            line_search_fn: strong_wolfe.then_some(LineSearch::StrongWolfe),
            ..Default::default()
        };
        let steps = Mutex::new(Lbfgs::new(cells(&parameters)?, config));
        Ok(NativeLbfgs { steps, parameters: parameters.iter().map(|parameter| parameter.base()).collect() })
    }

    /// One step; `closure` computes the loss and its gradients. Gives the loss before the step.
    fn step(&self, py: Python<'_>, closure: Py<PyAny>) -> PyResult<f64> {
        let before = run(py, || {
            lock(&self.steps).step(|| {
                self.parameters.iter().for_each(|parameter| parameter.touch());
                Python::attach(|py| closure.call0(py)?.extract::<Value>(py))
                    .map(|Value(loss)| loss)
                    .map_err(|error| keep("LBFGS", error))
            })
        })?;
        self.parameters.iter().for_each(|parameter| parameter.touch());
        Ok(before)
    }
}

/// Scales gradients so that their norm is at most a number, and gives the norm before.
#[pyfunction]
fn _clip_grad_norm(
    py: Python<'_>,
    parameters: Vec<PyRef<'_, PyTensor>>,
    max_norm: f64,
) -> PyResult<PyTensor> {
    let cells = cells(&parameters)?;
    crate::tensor::made(py, "", move || Ok((*taper::optim::clip_grad_norm(&cells, max_norm)?).clone()))
}

/// Holds each number of the gradients within a limit.
#[pyfunction]
fn _clip_grad_value(py: Python<'_>, parameters: Vec<PyRef<'_, PyTensor>>, limit: f64) -> PyResult<()> {
    let cells = cells(&parameters)?;
    run(py, move || taper::optim::clip_grad_value(&cells, limit))
}

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeOptimizer>()?;
    module.add_class::<NativeLbfgs>()?;
    module.add_function(wrap_pyfunction!(_clip_grad_norm, module)?)?;
    module.add_function(wrap_pyfunction!(_clip_grad_value, module)?)
}
