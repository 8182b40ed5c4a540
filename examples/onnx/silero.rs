//! Silero's detector of speech as a stream: chunks of 32 ms go in, a probability for each comes out. The
//! page in examples/browser has it too.

use taper::{
    onnx::{DataType, HostData, HostTensor, Model, Value},
    prelude::*,
};

/// The sampling rate, in Hz.
pub(crate) const RATE: u32 = 16_000;
/// The samples of a chunk.
pub(crate) const CHUNK: usize = 512;
/// The samples at the end of a chunk that the network sees again before the next one.
const CONTEXT: usize = 64;

/// The detector with its state: what it has heard so far.
pub(crate) struct Detector {
    net: Model,
    device: Device,
    /// The state of the LSTM, `[2, 1, 128]`. It stays on the device.
    state: Tensor,
    context: Vec<f32>,
    /// The sampling rate, on the host: the network chooses its branch by it, so that no run has to read a
    /// value from the device.
    rate: Value,
}

impl Detector {
    pub(crate) fn new(net: Model, device: &Device) -> Result<Detector> {
        let rate = HostData::Int(vec![i64::from(RATE)]);
        Ok(Detector {
            net,
            device: device.clone(),
            state: Tensor::zeros((2, 1, 128), device)?,
            context: vec![0.0; CONTEXT],
            rate: HostTensor::new(DataType::Tensor(DType::I64), [0usize; 0], rate)?.into(),
        })
    }

    /// The probability that there is speech in the next [`CHUNK`] samples, `[1, 1]`.
    pub(crate) fn listen(&mut self, chunk: &[f32]) -> Result<Tensor> {
        let samples = [self.context.as_slice(), chunk].concat();
        self.context = samples[samples.len() - CONTEXT..].to_vec();
        let samples = Tensor::from_vec(samples, (1, CONTEXT + CHUNK), &self.device)?;
        let inputs = [("input", samples.into()), ("state", (&self.state).into()), ("sr", self.rate.clone())];
        let out = no_grad(|| self.net.run(inputs))?;
        self.state = out.tensor("stateN")?;
        let probability = out.tensor("output")?;
        // Computes both together. Otherwise reading the probability would leave the state uncomputed, and
        // most of this chunk's work would be done again for the next one.
        taper::eval_pending()?;
        Ok(probability)
    }
}

/// A stretch of speech, in chunks: from the first to one past the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The probability from which on speech begins.
pub(crate) const THRESHOLD: f32 = 0.5;
/// The probability below which speech ends: the difference prevents flicker.
const END_THRESHOLD: f32 = 0.35;
/// A pause of fewer chunks does not end speech (100 ms).
const PAUSE_MIN_CHUNKS: usize = 4;
/// Fewer chunks are no speech (250 ms).
const SPEECH_MIN_CHUNKS: usize = 8;

/// The stretches of speech: they begin at [`THRESHOLD`], end with a pause, and last at least 250 ms. The
/// rules and numbers are those of silero's own package.
pub(crate) fn segments(probabilities: &[f32]) -> Vec<Segment> {
    let mut found = Vec::new();
    let mut start = None;
    let mut quiet = 0;
    for (at, &p) in probabilities.iter().chain(&[0.0; PAUSE_MIN_CHUNKS]).enumerate() {
        let Some(began) = start else {
            if p >= THRESHOLD {
                (start, quiet) = (Some(at), 0);
            }
            continue;
        };
        quiet = if p < END_THRESHOLD { quiet + 1 } else { 0 };
        if quiet == PAUSE_MIN_CHUNKS {
            let end = at + 1 - quiet;
            if end - began >= SPEECH_MIN_CHUNKS {
                found.push(Segment { start: began, end });
            }
            start = None;
        }
    }
    found
}
