//! Layers that change nothing but the shape, or nothing at all.

use std::fmt;

use tensor_core::{Result, Tensor};

use super::{layer, record, stateless};

/// Several axes made one: by default all but the first, `[N, …]` to `[N, features]`. `torch.nn.Flatten`.
#[derive(Clone, Copy)]
pub struct Flatten {
    /// The first axis to merge.
    pub start: isize,
    /// The last axis to merge.
    pub end: isize,
}

impl Default for Flatten {
    fn default() -> Flatten {
        Flatten { start: 1, end: -1 }
    }
}

impl Flatten {
    /// The input with those axes merged.
    ///
    /// # Errors
    /// No such axes.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record(self, input.flatten(self.start, self.end))
    }
}

/// The input itself. `torch.nn.Identity`.
#[derive(Clone, Copy, Default)]
pub struct Identity;

impl Identity {
    /// The input.
    ///
    /// # Errors
    /// None.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record(self, Ok(input.clone()))
    }
}

impl fmt::Debug for Flatten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flatten(start={}, end={})", self.start, self.end)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity()")
    }
}

layer!(Flatten, Identity);
stateless!(Flatten, Identity);
