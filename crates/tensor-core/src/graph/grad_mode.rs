//! Whether operations on this thread are recorded for gradients.

use std::cell::Cell;

use crate::base::on_drop::OnDrop;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// Whether operations on this thread record a graph for gradients.
pub fn is_grad_enabled() -> bool {
    ENABLED.get()
}

/// Runs `f` with recording on or off on this thread, then restores the former state, also if `f` panics.
pub fn set_grad_enabled<R>(enabled: bool, f: impl FnOnce() -> R) -> R {
    let before = ENABLED.replace(enabled);
    let _restore = OnDrop::new(|| ENABLED.set(before));
    f()
}
