//! Speech found by a network from an ONNX file, 32 ms of sound at a time.

#[allow(dead_code)] // the page finds no segments
#[path = "../../onnx/silero.rs"]
mod silero;

use silero::Detector;
use taper::{onnx::Model, prelude::*};

/// The sampling rate, in Hz.
pub const RATE: u32 = silero::RATE;
/// The samples of a chunk.
pub const CHUNK: usize = silero::CHUNK;

/// A listener that remembers what it has heard.
pub struct Listener(Detector);

impl Listener {
    /// Loads the network in the bytes of `silero_vad.onnx`.
    ///
    /// # Errors
    /// Bytes that are no such network; the errors of the device.
    pub fn new(model: Vec<u8>, device: &Device) -> Result<Listener> {
        Ok(Listener(Detector::new(Model::from_bytes(model, device)?, device)?))
    }

    /// The probability that there is speech in the next [`CHUNK`] samples.
    ///
    /// # Errors
    /// Another number of samples; the errors of the device.
    pub async fn listen(&mut self, chunk: &[f32]) -> Result<f32> {
        if chunk.len() != CHUNK {
            return Err(Error::invalid("listen", format!("{} samples: give {CHUNK}", chunk.len())));
        }
        self.0.listen(chunk)?.item_async().await
    }
}
