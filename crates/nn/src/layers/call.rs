//! The calls of layers: whose line they belong to, and, while [`recorded`] runs, what came of each.
//!
//! A call through `dyn Layer` loses the caller's line: what `Location::caller` gives there is the line of
//! this crate where the layer is implemented. So whoever passes a call on to a `dyn Layer` leaves the line
//! here, and a built-in layer that is called from within this folder takes it.

use std::{
    cell::{Cell, RefCell},
    fmt,
    panic::Location,
};

use tensor_core::{Result, Shape, Tensor};

use crate::{Layer, visitor::place};

thread_local! {
    /// The line that called what is being passed on.
    static PASSED_ON: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
    /// The calls so far, while they are recorded.
    static CALLS: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

/// The user's line: the caller's, or the one left by whoever passed the call on.
#[track_caller]
pub(super) fn caller() -> &'static Location<'static> {
    let caller = Location::caller();
    match PASSED_ON.get() {
        Some(passed_on) if is_here(caller) => passed_on,
        _ => caller,
    }
}

/// Whether a line is in this folder.
fn is_here(location: &Location<'_>) -> bool {
    let folder = file!().strip_suffix("call.rs").unwrap_or(file!());
    location.file().starts_with(folder)
}

/// Calls a layer that may be known only at run time, for the line `caller`.
pub(super) fn dispatch<L: Layer + ?Sized>(
    layer: &L,
    input: &Tensor,
    caller: &'static Location<'static>,
) -> Result<Tensor> {
    struct Restore(Option<&'static Location<'static>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            PASSED_ON.set(self.0);
        }
    }
    let _restore = Restore(PASSED_ON.replace(Some(caller)));
    layer.forward(input)
}

/// One call of a layer.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Where the layer is in memory, and its size.
    pub(crate) place: (usize, usize),
    /// The layer as it prints.
    pub(crate) layer: String,
    /// The shape of its output.
    pub(crate) output: Shape,
}

/// Notes the output of a layer, where calls are recorded.
pub(crate) fn record<L: fmt::Debug + ?Sized>(layer: &L, output: Result<Tensor>) -> Result<Tensor> {
    CALLS.with_borrow_mut(|calls| {
        if let (Some(calls), Ok(output)) = (calls, &output) {
            let layer_text = format!("{layer:?}");
            calls.push(Call { place: place(layer), layer: layer_text, output: output.shape().clone() });
        }
    });
    output
}

/// How many calls were recorded so far.
pub(super) fn count() -> usize {
    CALLS.with_borrow(|calls| calls.as_ref().map_or(0, Vec::len))
}

/// Runs `f`, and gives the calls of layers in it, in order.
pub(crate) fn recorded<R>(f: impl FnOnce() -> R) -> (R, Vec<Call>) {
    struct Restore(Option<Vec<Call>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CALLS.set(self.0.take());
        }
    }
    let restore = Restore(CALLS.replace(Some(Vec::new())));
    let result = f();
    let calls = CALLS.take().unwrap_or_default();
    drop(restore);
    (result, calls)
}
