//! Whose source line an operation is built for: the caller's, unless someone (a gradient rule) builds it for another.

use std::{cell::Cell, panic::Location};

thread_local! {
    static ORIGIN: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// Runs `f` with every tensor built in it ascribed to `location`: a gradient blames the line of the operation it is of.
pub fn with_location<R>(location: &'static Location<'static>, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<&'static Location<'static>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ORIGIN.set(self.0);
        }
    }
    let _restore = Restore(ORIGIN.replace(Some(location)));
    f()
}

/// The line that what is built now belongs to.
#[track_caller]
pub(crate) fn here() -> &'static Location<'static> {
    // Not `unwrap_or_else(Location::caller)`: called by the standard library, it would name a line there.
    match ORIGIN.get() {
        Some(location) => location,
        None => Location::caller(),
    }
}
