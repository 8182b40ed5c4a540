//! The functions that the page calls.
#![allow(unreachable_pub)] // the page reaches them

#[cfg(any(feature = "language", feature = "operations"))]
use js_sys::{Function, Promise};
use taper::Device;
use wasm_bindgen::prelude::*;
#[cfg(any(feature = "language", feature = "operations"))]
use wasm_bindgen_futures::JsFuture;

/// A panic is an error of the page, with its message.
#[wasm_bindgen(start)]
fn start() {
    std::panic::set_hook(Box::new(|panic| wasm_bindgen::throw_str(&panic.to_string())));
}

/// A device with a description of it. A browser does not tell WebGPU's names to programs, so the page asks
/// for the adapter's name itself.
async fn open(device: &str) -> Result<(Device, String), JsError> {
    let device = taper::device_async(device).await?;
    let info = device.info();
    let description = match device.name() {
        "cpu" => "CPU (wasm)".to_string(),
        name => format!("{name} ({}, {})", info.description, info.driver),
    };
    Ok((device, description))
}

/// Waits for a promise that a function of the page has returned. The browser draws meanwhile. A page that
/// fails to draw has said so in its console.
#[cfg(any(feature = "language", feature = "operations"))]
async fn awaited(told: Result<JsValue, JsValue>) {
    if let Ok(promise) = told {
        let _ = JsFuture::from(Promise::resolve(&promise)).await;
    }
}

/// The results of an epoch.
#[cfg(feature = "digits")]
#[wasm_bindgen]
pub struct Epoch {
    /// Its number, from 1 on.
    pub number: usize,
    /// The mean loss of its steps.
    pub loss: f64,
    /// The share of the images held out that are recognised.
    pub accuracy: f64,
}

/// A [`crate::Learner`] for the page.
#[cfg(feature = "digits")]
#[wasm_bindgen]
pub struct Learner {
    learner: crate::Learner,
    description: String,
}

#[cfg(feature = "digits")]
#[wasm_bindgen]
impl Learner {
    /// Opens a device by its name, `wgpu` or `cpu`, and makes a network: `mlp`, `cnn` or `transformer`.
    pub async fn open(device: String, network: String) -> Result<Learner, JsError> {
        let network = network.parse()?;
        taper::studio::record();
        taper::record_memory(true);
        let (device, description) = open(&device).await?;
        Ok(Learner { learner: crate::Learner::new(network, &device)?, description })
    }

    /// The device's description.
    #[wasm_bindgen(getter)]
    pub fn description(&self) -> String {
        self.description.clone()
    }

    /// The number of trained numbers.
    #[wasm_bindgen(getter)]
    pub fn parameters(&self) -> usize {
        self.learner.parameters()
    }

    /// Makes up to `steps` steps; returns the results of the epoch if it has ended.
    pub async fn advance(&mut self, steps: usize) -> Result<Option<Epoch>, JsError> {
        let ended = self.learner.advance(steps).await?;
        Ok(ended.map(|crate::Epoch { number, loss, accuracy }| Epoch { number, loss, accuracy }))
    }

    /// The probabilities of the digits 0 to 9 for an image of 64 pixels.
    pub async fn read(&self, image: Vec<f32>) -> Result<Vec<f32>, JsError> {
        Ok(self.learner.read(&image).await?)
    }
}

/// The studio's events with a number above `after`, as [`taper::studio::events_after`].
#[cfg(feature = "digits")]
#[wasm_bindgen]
pub fn studio_events(after: f64) -> String {
    taper::studio::events_after(after as u64)
}

/// Asks the studio for something, as [`taper::studio::ask`].
#[cfg(feature = "digits")]
#[wasm_bindgen]
pub fn studio_ask(what: &str) -> bool {
    taper::studio::ask(what)
}

/// The image of drawn strokes, as [`crate::drawn_image`].
#[cfg(feature = "digits")]
#[wasm_bindgen]
pub fn drawn_image(points: &[f32]) -> Option<Vec<f32>> {
    crate::drawn_image(points)
}

/// A [`crate::FineTuning`] for the page.
#[cfg(feature = "language")]
#[wasm_bindgen]
pub struct FineTuning {
    tuning: crate::FineTuning,
    description: String,
}

#[cfg(feature = "language")]
#[wasm_bindgen]
impl FineTuning {
    /// Opens a device by its name, and loads the model in the bytes of a GGUF file and conversations.
    pub async fn open(
        device: String,
        gguf: Vec<u8>,
        conversations: String,
        lr: f64,
    ) -> Result<FineTuning, JsError> {
        let (device, description) = open(&device).await?;
        Ok(FineTuning { tuning: crate::FineTuning::new(gguf, &conversations, lr, &device)?, description })
    }

    /// The device's description.
    #[wasm_bindgen(getter)]
    pub fn description(&self) -> String {
        self.description.clone()
    }

    /// The number of the model's parameters, those of the adapter included.
    #[wasm_bindgen(getter)]
    pub fn parameters(&self) -> usize {
        self.tuning.parameters()
    }

    /// The number of trained parameters.
    #[wasm_bindgen(getter)]
    pub fn trained(&self) -> usize {
        self.tuning.trained_parameters()
    }

    /// The steps of an epoch.
    #[wasm_bindgen(getter)]
    pub fn steps_per_epoch(&self) -> usize {
        self.tuning.steps_per_epoch()
    }

    /// The greatest number of bytes that tensors have taken on the device.
    #[wasm_bindgen(getter)]
    pub fn peak_bytes(&self) -> f64 {
        self.tuning.peak_bytes() as f64
    }

    /// Makes a step; returns the loss.
    pub async fn step(&mut self) -> Result<f64, JsError> {
        Ok(self.tuning.step().await?.loss)
    }

    /// The answer to a question, with or without the adapter. `tell` is called with each piece of the text,
    /// and returns a promise.
    pub async fn answer(&self, question: String, adapted: bool, tell: Function) -> Result<String, JsError> {
        let tell = async |piece: &str| awaited(tell.call1(&JsValue::NULL, &piece.into())).await;
        Ok(self.tuning.answer(&question, adapted, tell).await?)
    }

    /// The loss of the model without the adapter, which stays the same.
    pub async fn base_loss(&self) -> Result<f64, JsError> {
        Ok(self.tuning.base_loss().await?)
    }
}

/// A [`crate::Listener`] for the page.
#[cfg(feature = "voice")]
#[wasm_bindgen]
pub struct Listener {
    listener: crate::Listener,
    description: String,
}

#[cfg(feature = "voice")]
#[wasm_bindgen]
impl Listener {
    /// Opens a device by its name, `wgpu` or `cpu`, and loads the network in the bytes of a file.
    pub async fn open(device: String, model: Vec<u8>) -> Result<Listener, JsError> {
        let (device, description) = open(&device).await?;
        Ok(Listener { listener: crate::Listener::new(model, &device)?, description })
    }

    /// The device's description.
    #[wasm_bindgen(getter)]
    pub fn description(&self) -> String {
        self.description.clone()
    }

    /// The probability that there is speech in the next 512 samples, at 16 kHz.
    pub async fn listen(&mut self, chunk: Vec<f32>) -> Result<f32, JsError> {
        Ok(self.listener.listen(&chunk).await?)
    }
}

/// A network from an ONNX file on the processor, for the page's benchmark.
#[cfg(feature = "bench")]
#[wasm_bindgen]
pub struct Network {
    model: taper::onnx::Model,
    device: Device,
    inputs: Vec<(String, taper::onnx::Value)>,
}

#[cfg(feature = "bench")]
#[wasm_bindgen]
impl Network {
    /// Loads the network in the bytes of a file.
    pub fn open(model: Vec<u8>) -> Result<Network, JsError> {
        let device = taper::cpu();
        Ok(Network { model: taper::onnx::Model::from_bytes(model, &device)?, device, inputs: Vec::new() })
    }

    /// Sets an input of the next run.
    pub fn set(&mut self, name: String, shape: Vec<usize>, numbers: Vec<f32>) -> Result<(), JsError> {
        let tensor = taper::Tensor::from_vec(numbers, shape, &self.device)?;
        self.inputs.push((name, tensor.into()));
        Ok(())
    }

    /// Sets an input of the next run that is one integer.
    pub fn set_integer(&mut self, name: String, number: i64) {
        self.inputs.push((name, taper::onnx::HostTensor::integer(number).into()));
    }

    /// Runs the network, and returns its outputs one after another.
    pub async fn run(&mut self) -> Result<Vec<f32>, JsError> {
        let outputs = taper::no_grad(|| self.model.run(self.inputs.drain(..)))?.tensors()?;
        taper::eval_pending()?;
        let mut numbers = Vec::new();
        for output in outputs {
            numbers.extend(output.to_vec_async::<f32>().await?);
        }
        Ok(numbers)
    }
}

/// Computes the rows of the table of operations whose labels begin with `prefix` on a device. `tell` is
/// called with each row's label before it runs, and again with an error message if it fails; it returns a
/// promise. Returns the number of rows that have kernels there.
#[cfg(feature = "operations")]
#[wasm_bindgen]
pub async fn operations(device: String, prefix: String, tell: Function) -> Result<usize, JsError> {
    let tell = async |label: &str, wrong: JsValue| {
        awaited(tell.call2(&JsValue::NULL, &label.into(), &wrong)).await;
    };
    let bench = taper_operations::Bench::new(taper::device_async(&device).await?);
    let mut count = 0;
    for row in taper_operations::rows() {
        let label = row.label().to_string();
        if !label.starts_with(&prefix) {
            continue;
        }
        tell(&label, JsValue::UNDEFINED).await;
        let verdict = bench.awaited(&row).await;
        count += usize::from(verdict != Ok(false));
        if let Err(wrong) = verdict {
            tell(&label, wrong.into()).await;
        }
    }
    Ok(count)
}
