//! [`Training`]: the training-mode flag of a layer.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a layer is in training mode, as it is at first. `model.train()` and `model.eval()` set it, also
/// behind an `Arc`.
///
/// ```
/// use nn::{Module, Training};
///
/// #[derive(Module)]
/// struct Noise { strength: f64, training: Training }
///
/// let noise = Noise { strength: 0.1, training: Training::default() };
/// noise.eval();
/// assert!(!noise.training.get());
/// ```
#[derive(Debug)]
pub struct Training(AtomicBool);

impl Training {
    /// Whether the layer is in training mode.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the mode.
    pub fn set(&self, training: bool) {
        self.0.store(training, Ordering::Relaxed);
    }
}

impl Default for Training {
    fn default() -> Training {
        Training(AtomicBool::new(true))
    }
}

/// A clone is an independent flag with the same value.
impl Clone for Training {
    fn clone(&self) -> Training {
        Training(AtomicBool::new(self.get()))
    }
}
