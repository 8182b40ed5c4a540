//! The functions that the page calls.

use js_sys::{Function, Promise};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

/// A panic is an error of the page, with its message.
#[wasm_bindgen(start)]
fn start() {
    std::panic::set_hook(Box::new(|panic| wasm_bindgen::throw_str(&panic.to_string())));
}

/// Opens a device by its name, `wgpu` or `cpu`, and trains. `tell` is called with each epoch's number, loss
/// and accuracy; it returns a promise that is awaited before the next epoch. Returns the device's
/// description.
#[wasm_bindgen]
#[allow(unreachable_pub)] // the page reaches it
pub async fn learn(device: String, epochs: usize, tell: Function) -> Result<String, JsError> {
    let device = taper::device_async(&device).await?;
    let tell = async |epoch: crate::Epoch| {
        let numbers = [epoch.number as f64, epoch.loss, epoch.accuracy].map(JsValue::from);
        let told = tell.call3(&JsValue::NULL, &numbers[0], &numbers[1], &numbers[2]);
        // The browser draws while this waits. A page that fails to draw has said so in its console.
        if let Ok(promise) = told {
            let _ = JsFuture::from(Promise::resolve(&promise)).await;
        }
    };
    crate::learn(&device, epochs, tell).await?;
    let info = device.info();
    Ok(format!("{} ({}, {})", info.name, info.description, info.driver))
}

/// A [`crate::Listener`] for the page.
#[wasm_bindgen]
#[allow(unreachable_pub)] // the page reaches it
pub struct Listener {
    listener: crate::Listener,
    description: String,
}

#[wasm_bindgen]
impl Listener {
    /// Opens a device by its name, `wgpu` or `cpu`, and loads the network in the bytes of a file.
    pub async fn open(device: String, model: Vec<u8>) -> Result<Listener, JsError> {
        let device = taper::device_async(&device).await?;
        let info = device.info();
        let description = format!("{} ({}, {})", info.name, info.description, info.driver);
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

/// Computes the rows of the table of operations whose labels begin with `prefix` on a device. `tell` is
/// called with each row's label before it runs, and again with an error message if it fails; it returns a
/// promise. Returns the number of rows that have kernels there.
#[cfg(feature = "operations")]
#[wasm_bindgen]
#[allow(unreachable_pub)] // the page reaches it
pub async fn operations(device: String, prefix: String, tell: Function) -> Result<usize, JsError> {
    let tell = async |label: &str, wrong: JsValue| {
        if let Ok(promise) = tell.call2(&JsValue::NULL, &label.into(), &wrong) {
            let _ = JsFuture::from(Promise::resolve(&promise)).await;
        }
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
