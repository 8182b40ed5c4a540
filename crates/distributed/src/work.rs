//! [`Work`]: a pending call, and the conversion of elements to tensors.

use std::{
    fmt,
    sync::{Arc, mpsc::Receiver},
};

use autograd::no_grad;
use tensor_core::{DType, Device, Error, Result, Shape, Tensor};

use crate::{engine::Answer, inner::Inner};

/// The communication thread ends only if no handle remains, or if it panics.
#[track_caller]
pub(crate) fn ended() -> Error {
    Error::invalid("distributed", "the thread that communicates has ended")
}

#[track_caller]
pub(crate) fn answered(answer: &Receiver<Result<Answer>>) -> Result<Answer> {
    match answer.recv() {
        Ok(answer) => Error::here_in(answer),
        Err(_) => Err(ended()),
    }
}

/// A pending call. All ranks start the same calls in the same order, and may wait for them in any order.
#[must_use = "the result of a call is in it: .wait()?"]
pub struct Work {
    pub(crate) inner: Arc<Inner>,
    pub(crate) state: State,
}

pub(crate) enum State {
    Done(Tensor),
    Waiting { answer: Receiver<Result<Answer>>, shape: Shape, dtype: DType, device: Device },
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::Done(tensor) => write!(f, "Work({} {}, done)", tensor.dtype(), tensor.shape()),
            State::Waiting { shape, dtype, .. } => write!(f, "Work({dtype} {shape})"),
        }
    }
}

impl Work {
    /// The result, on the device of the tensor that was passed.
    ///
    /// # Errors
    /// Ranks that call something else, are missing or have ended; too little memory.
    #[track_caller]
    pub fn wait(self) -> Result<Tensor> {
        match self.state {
            State::Done(tensor) => Ok(tensor),
            State::Waiting { answer, shape, dtype, device } => {
                let Answer { data, .. } = answered(&answer)?;
                let tensor = tensor_of(bytemuck::cast_slice(&data), dtype, &shape, &device);
                self.inner.keep(data);
                tensor
            }
        }
    }
}

impl Work {
    /// The result, split into tensors like `like`, which are concatenated in it. Each has a separate buffer,
    /// which an optimizer can reuse.
    #[track_caller]
    pub(crate) fn wait_for_parts(self, like: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut start = 0;
        match self.state {
            State::Done(row) => {
                let parts = like.iter().map(|like| {
                    let part = row.narrow(0, start, like.numel())?.reshape(like.shape().dims())?;
                    start += like.numel();
                    part.to(&like.device())
                });
                parts.collect()
            }
            State::Waiting { answer, dtype, .. } => {
                let Answer { data, .. } = answered(&answer)?;
                let bytes = bytemuck::cast_slice::<u64, u8>(&data);
                let parts = like.iter().map(|like| {
                    let end = start + like.numel() * dtype.size();
                    let part = tensor_of(&bytes[start..end], dtype, like.shape(), &like.device());
                    start = end;
                    part
                });
                let parts = parts.collect();
                self.inner.keep(data);
                parts
            }
        }
    }
}

/// A tensor of the elements that begin at byte offset `bytes`.
#[track_caller]
pub(crate) fn tensor_of(bytes: &[u8], dtype: DType, shape: &Shape, device: &Device) -> Result<Tensor> {
    let bytes = &bytes[..shape.numel() * dtype.size()];
    no_grad(|| Tensor::from_bytes_of(dtype, bytes, shape.clone(), device))
}
