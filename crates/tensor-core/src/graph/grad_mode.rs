//! Whether operations on this thread are recorded for gradients.

use std::cell::Cell;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// Whether operations on this thread record a graph for gradients.
pub fn is_grad_enabled() -> bool {
    ENABLED.get()
}

/// Runs `f` with recording on or off on this thread, then restores the former state, also if `f` panics.
pub fn set_grad_enabled<R>(enabled: bool, f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            ENABLED.set(self.0);
        }
    }
    let _restore = Restore(ENABLED.replace(enabled));
    f()
}
