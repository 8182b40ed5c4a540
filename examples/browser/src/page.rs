//! What the page calls.

use js_sys::{Function, Promise};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

/// Opens a device by its name, `wgpu` or `cpu`, and learns; `tell` is called with each epoch's number, loss and accuracy, and gives a
/// promise that is awaited before the next. Gives the device's description.
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

/// Computes every row of the table of operations on a device; `tell` is called with each one's label and what is wrong, nothing if that is
/// nothing, and gives a promise. Gives how many have kernels there.
#[cfg(feature = "operations")]
#[wasm_bindgen]
#[allow(unreachable_pub)] // the page reaches it
pub async fn operations(device: String, tell: Function) -> Result<usize, JsError> {
    let bench = taper_operations::Bench::new(taper::device_async(&device).await?);
    let mut count = 0;
    for row in taper_operations::rows() {
        let verdict = bench.awaited(&row).await;
        count += usize::from(verdict != Ok(false));
        let wrong = verdict.err().map_or(JsValue::UNDEFINED, JsValue::from);
        if let Ok(promise) = tell.call2(&JsValue::NULL, &row.label().to_string().into(), &wrong) {
            let _ = JsFuture::from(Promise::resolve(&promise)).await;
        }
    }
    Ok(count)
}
