//! Attributes layer calls to the caller's line and records outputs for `summary`.
//!
//! A call through `dyn Layer` loses the caller's line: `Location::caller` returns the line of this crate
//! where the layer is implemented. So code that forwards a call to a `dyn Layer` stores the line here, and a
//! built-in layer that is called from this folder reads it.

use std::{
    cell::{Cell, RefCell},
    fmt,
    panic::Location,
};

use tensor_core::{Result, Shape, Tensor, with_own_lines};

use crate::{Layer, visitor::place};

thread_local! {
    /// The line of the call that is being forwarded.
    static PASSED_ON: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
    /// The calls so far, while they are recorded.
    static CALLS: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

/// The user's line: the caller's, or the one stored by code that forwards the call.
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

/// Calls a layer whose type may be known only at run time, on behalf of the line `caller`.
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
    with_own_lines(|| layer.forward(input))
}

/// One call of a layer.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The address of the layer, and its size.
    pub(crate) place: (usize, usize),
    /// The layer's debug output.
    pub(crate) layer: String,
    /// The shape of its output.
    pub(crate) output: Shape,
    /// The id of its output.
    pub(crate) id: u64,
}

/// Records the output of a layer, if calls are recorded.
pub(crate) fn record<L: fmt::Debug + ?Sized>(layer: &L, output: Result<Tensor>) -> Result<Tensor> {
    CALLS.with_borrow_mut(|calls| {
        if let (Some(calls), Ok(output)) = (calls, &output) {
            let layer_text = format!("{layer:?}");
            let (output, id) = (output.shape().clone(), output.id());
            calls.push(Call { place: place(layer), layer: layer_text, output, id });
        }
    });
    output
}

/// The number of calls recorded so far.
pub(super) fn count() -> usize {
    CALLS.with_borrow(|calls| calls.as_ref().map_or(0, Vec::len))
}

/// Runs `f`, and returns the layer calls in it, in order.
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
