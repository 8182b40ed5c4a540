//! [`OnDrop`]: puts back what was changed for a while.

/// Calls a function when it is dropped, also by a panic.
#[derive(Debug)]
pub struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    /// A guard that calls `f`.
    pub fn new(f: F) -> OnDrop<F> {
        OnDrop(Some(f))
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}
