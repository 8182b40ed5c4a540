//! [`what_if`]: the user's step in other ways, measured when the page asks.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use autograd::TensorGrad;
use inspect::without_fusion;
use nn::Module;
use serde_json::json;
use tensor_core::{DType, Device, Result, Tensor, autocast, caller_line, fork_rng};
use web_time::Instant;

use crate::{
    aside::Aside,
    record::{Kind, is_recording, with},
};

/// The steps of a measurement before the measured ones: they compile kernels and fill caches.
const WARMUP_STEPS: usize = 2;
/// The measured steps, of which the median counts.
const MEASURED_STEPS: usize = 5;

/// The setting that the page asks for, by its number from 1 on; 0 for none.
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// The number of settings that the page offers.
static OFFERED: AtomicUsize = AtomicUsize::new(0);

/// A way to run a step: see [`what_if`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setting {
    /// The device of the model's parameters and buffers. Batches must be moved there.
    pub device: Device,
    /// The number of items of a batch.
    pub batch: usize,
    /// The dtype of [`autocast`](fn@autocast), which is on around the function.
    pub autocast: Option<DType>,
    /// Whether operations are fused.
    pub fuses: bool,
}

impl Setting {
    /// The setting's batch, made of these items: the first ones, again from the beginning if there are too
    /// few, on the setting's device.
    ///
    /// # Errors
    /// No axis or no items; a copy to a device that fails.
    #[track_caller]
    pub fn batch_of(&self, items: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        let count = items.dim(0)?;
        if count == self.batch {
            return items.to(&self.device);
        }
        let rows: Vec<i32> = (0..self.batch).map(|k| (k % count.max(1)) as i32).collect();
        items.index_select(0, &Tensor::from_vec(rows, self.batch, &items.device())?)?.to(&self.device)
    }

    /// The differences from the usual setting, in words.
    fn name(&self, usual: &Setting) -> String {
        let mut parts = Vec::new();
        if let Some(dtype) = self.autocast {
            parts.push(format!("in {dtype} (autocast)"));
        }
        if self.batch != usual.batch {
            parts.push(format!("with a batch of {}", self.batch));
        }
        if !self.fuses {
            parts.push("without fusion".into());
        }
        if self.device != usual.device {
            parts.push(format!("on {}", self.device.name()));
        }
        if parts.is_empty() { "as it is".into() } else { parts.join(", ") }
    }
}

/// The setting of the training, and the others that the page offers.
fn settings(device: &Device, batch: usize, others: &[Device]) -> Vec<Setting> {
    let usual = Setting { device: device.clone(), batch, autocast: None, fuses: true };
    let mut all = vec![usual.clone(), Setting { autocast: Some(DType::BF16), ..usual.clone() }];
    if batch > 1 {
        all.push(Setting { batch: batch / 2, ..usual.clone() });
    }
    all.push(Setting { batch: 2 * batch, ..usual.clone() });
    all.push(Setting { fuses: false, ..usual.clone() });
    let others = others.iter().filter(|other| *other != device);
    all.extend(others.map(|other| Setting { device: other.clone(), ..usual.clone() }));
    all
}

/// Asks for setting number `name` of the page; false if it does not exist.
pub(crate) fn ask(name: &str) -> bool {
    match name.parse::<usize>() {
        Ok(number) if number < OFFERED.load(Ordering::Relaxed) => {
            ASKED.store(number + 1, Ordering::Relaxed);
            true
        }
        _ => false,
    }
}

/// Offers the same step in other ways on the page: in bf16, with half and with twice the batch, without
/// fusion, and on `others`. When one is chosen, the next call of this function measures it: the median time
/// of five steps, each `f`, which returns the loss of a batch, and its backward pass. The usual setting is
/// measured beside it. Call it between steps; unless the page asks, it returns at once.
///
/// Each measured step draws the same random numbers. Afterwards parameters, buffers, gradients and the
/// generators that `f` drew from are as before, so that the training goes on as if nothing had been tried.
///
/// ```
/// use nn::{Linear, Module};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// # let device = backend_cpu::cpu();
/// let rng = Generator::seed(0, &device);
/// let model = Linear::new(4, 1, &rng)?;
/// let x = Tensor::randn([32, 4], &rng)?;
/// studio::what_if(&model, 32, &[], |setting| Ok(model.forward(&setting.batch_of(&x)?)?.powi(2).mean()))?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// A parameter that cannot be given back its value. An error of a measured step is shown on the page
/// instead, because it says that the setting does not work here.
#[track_caller]
pub fn what_if<M: Module>(
    model: &M,
    batch: usize,
    others: &[Device],
    mut f: impl FnMut(&Setting) -> Result<Tensor>,
) -> Result<()> {
    if !is_recording() {
        return Ok(());
    }
    let asked = ASKED.swap(0, Ordering::Relaxed);
    if asked == 0 && OFFERED.load(Ordering::Relaxed) != 0 {
        return Ok(());
    }
    let _aside = Aside::begin();
    let Some(device) = model.parameters().first().map(Tensor::device) else { return Ok(()) };
    let settings = settings(&device, batch, others);
    if OFFERED.swap(settings.len(), Ordering::Relaxed) != settings.len() {
        let names: Vec<String> = settings.iter().map(|setting| setting.name(&settings[0])).collect();
        with(|record| record.push(Kind::Report, &json!({"kind": "what_if", "settings": names})));
    }
    let Some(number) = asked.checked_sub(1).filter(|&number| number < settings.len()) else { return Ok(()) };
    let chosen: &[usize] = if number == 0 { &[0] } else { &[0, number] };
    for &number in chosen {
        let setting = &settings[number];
        let state = ModelState::of(model);
        let measured = state.move_to(&setting.device).and_then(|()| measure(model, setting, &mut f));
        state.restore()?;
        let name = setting.name(&settings[0]);
        let event = match measured {
            Ok((time, loss)) => {
                json!({"kind": "measured", "setting": name, "batch": setting.batch, "time": time.as_nanos() as u64,
                       "loss": loss, "steps": MEASURED_STEPS})
            }
            Err(error) => json!({"kind": "measured", "setting": name, "error": error.to_string()}),
        };
        with(|record| record.push(Kind::Report, &event));
    }
    Ok(())
}

/// The median time of a step, and its loss.
fn measure<M: Module>(
    model: &M,
    setting: &Setting,
    f: &mut impl FnMut(&Setting) -> Result<Tensor>,
) -> Result<(Duration, f64)> {
    let mut step = || -> Result<f64> {
        model.parameters().iter().for_each(TensorGrad::zero_grad);
        let loss = match setting.autocast {
            Some(dtype) => autocast(dtype, || f(setting))?,
            None => f(setting)?,
        };
        loss.backward()?;
        let value = loss.to_f64_vec()?.iter().sum();
        setting.device.synchronize()?;
        Ok(value)
    };
    let mut timed = || -> Result<(Duration, f64)> {
        let begin = Instant::now();
        let loss = fork_rng(|| if setting.fuses { step() } else { without_fusion(&mut step) })?;
        Ok((begin.elapsed(), loss))
    };
    for _ in 0..WARMUP_STEPS {
        timed()?;
    }
    let steps: Result<Vec<_>> = (0..MEASURED_STEPS).map(|_| timed()).collect();
    let mut steps = steps?;
    steps.sort_by_key(|step| step.0);
    Ok(steps[MEASURED_STEPS / 2])
}

/// The values of a model's parameters and buffers, and the gradients.
struct ModelState(Vec<(Tensor, Tensor, Option<Tensor>)>);

impl ModelState {
    fn of<M: Module>(model: &M) -> ModelState {
        let entries = model.named_parameters().into_iter().chain(model.named_buffers());
        let entry = |(_, cell): (String, Tensor)| {
            let (value, gradient) = (cell.detach(), cell.grad());
            (cell, value, gradient)
        };
        ModelState(entries.map(entry).collect())
    }

    fn move_to(&self, device: &Device) -> Result<()> {
        self.0.iter().try_for_each(|(cell, value, _)| match value.device() == *device {
            true => Ok(()),
            false => cell.assign(&value.to(device)?),
        })
    }

    fn restore(self) -> Result<()> {
        for (cell, value, gradient) in self.0 {
            cell.assign(&value)?;
            cell.set_grad(gradient);
        }
        Ok(())
    }
}
