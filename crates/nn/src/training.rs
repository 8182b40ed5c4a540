//! [`Training`]: the training-mode flag of a layer.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tensor_core::note_guard;

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
pub struct Training(Arc<AtomicBool>);

impl Training {
    /// Whether the layer is in training mode.
    pub fn get(&self) -> bool {
        let training = self.0.load(Ordering::Relaxed);
        // A compiled function that was captured in one mode is captured again in the other.
        note_guard(|| {
            let flag = self.0.clone();
            Box::new(move || flag.load(Ordering::Relaxed) == training)
        });
        training
    }

    /// Sets the mode.
    pub fn set(&self, training: bool) {
        self.0.store(training, Ordering::Relaxed);
    }
}

impl Default for Training {
    fn default() -> Training {
        Training(Arc::new(AtomicBool::new(true)))
    }
}

/// A clone is an independent flag with the same value.
impl Clone for Training {
    fn clone(&self) -> Training {
        Training(Arc::new(AtomicBool::new(self.get())))
    }
}
