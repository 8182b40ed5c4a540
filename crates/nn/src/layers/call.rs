//! Attributes layer calls to the caller's line and records outputs for `summary`.
//!
//! A call through `dyn Layer` loses the caller's line: `Location::caller` returns the line of this crate
//! where the layer is implemented. So code that forwards a call to a `dyn Layer` stores the line here, and a
//! built-in layer that is called from this folder reads it.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
};

use tensor_core::{Location, OnDrop, Result, Shape, Tensor, end_layer_call, with_own_lines};

use crate::{Layer, visitor::place};

thread_local! {
    /// The line of the call that is being forwarded.
    static PASSED_ON: Cell<Option<Location>> = const { Cell::new(None) };
    /// The calls so far, while they are recorded.
    static CALLS: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
    /// The hook that gets the outputs of layers.
    static HOOK: RefCell<Option<Rc<OutputHook>>> = const { RefCell::new(None) };
    /// The number of outputs that hooks have got.
    static HOOKED: Cell<usize> = const { Cell::new(0) };
}

/// A hook that gets a layer's address and size, and its output, and may return another output.
pub(crate) type OutputHook = dyn Fn((usize, usize), &Tensor) -> Result<Option<Tensor>>;

/// The user's line: the caller's, or the one stored by code that forwards the call.
#[track_caller]
pub(super) fn caller() -> Location {
    let caller = Location::caller();
    match PASSED_ON.get() {
        Some(passed_on) if is_here(caller) => passed_on,
        _ => caller,
    }
}

/// Whether a line is in this folder.
fn is_here(location: Location) -> bool {
    let folder = file!().strip_suffix("call.rs").unwrap_or(file!());
    location.file().starts_with(folder)
}

/// Calls a layer whose type may be known only at run time, on behalf of the line `caller`.
pub(super) fn dispatch<L: Layer + ?Sized>(layer: &L, input: &Tensor, caller: Location) -> Result<Tensor> {
    let before = PASSED_ON.replace(Some(caller));
    let _restore = OnDrop::new(|| PASSED_ON.set(before));
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

/// Records the output of a layer, if calls are recorded. `begun` is the beginning of the call.
pub(crate) fn record<L: fmt::Debug + ?Sized>(
    layer: &L,
    begun: Option<u64>,
    output: Result<Tensor>,
) -> Result<Tensor> {
    end_layer_call(begun, || kind(std::any::type_name::<L>(), layer));
    let output = hooked(layer, output);
    CALLS.with_borrow_mut(|calls| {
        if let (Some(calls), Ok(output)) = (calls, &output) {
            let layer_text = format!("{layer:?}");
            let (output, id) = (output.shape().clone(), output.id());
            calls.push(Call { place: place(layer), layer: layer_text, output, id });
        }
    });
    output
}

/// The output of a layer, or what the hook returns in its place. The hook's own calls of layers are not
/// hooked.
fn hooked<L: ?Sized>(layer: &L, output: Result<Tensor>) -> Result<Tensor> {
    let Some(hook) = HOOK.with_borrow(Clone::clone) else { return output };
    let output = output?;
    HOOKED.set(HOOKED.get() + 1);
    let other = with_hook(None, || hook(place(layer), &output))?;
    Ok(other.unwrap_or(output))
}

/// Runs `f` while the outputs of layers on this thread are passed to a hook.
pub(crate) fn with_hook<R>(hook: Option<Rc<OutputHook>>, f: impl FnOnce() -> R) -> R {
    let before = HOOK.replace(hook);
    let _restore = OnDrop::new(|| HOOK.set(before));
    f()
}

/// The name of a layer's type without its path: `Conv2d` for a convolution over two axes. The type of a
/// trait object is the beginning of its debug output.
fn kind<L: fmt::Debug + ?Sized>(name: &'static str, layer: &L) -> Cow<'static, str> {
    if name.starts_with("dyn ") {
        return type_name(layer).into();
    }
    let (path, generics) = name.split_at(name.find('<').unwrap_or(name.len()));
    let short = path.rsplit("::").next().unwrap_or(path);
    match generics.trim_matches(['<', '>']).parse::<u8>() {
        Ok(axes) => format!("{short}{axes}d").into(),
        Err(_) => short.into(),
    }
}

/// The name of a layer's type: the beginning of its debug output. The rest of it, which may be a whole
/// model, is not written.
pub(super) fn type_name<L: fmt::Debug + ?Sized>(layer: &L) -> String {
    struct Name(String);
    impl fmt::Write for Name {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
            self.0.push_str(&text[..end.unwrap_or(text.len())]);
            if end.is_none() { Ok(()) } else { Err(fmt::Error) }
        }
    }
    let mut name = Name(String::new());
    // The error only ends the writing.
    let _ = fmt::write(&mut name, format_args!("{layer:?}"));
    name.0
}

/// The number of calls so far that were recorded or hooked.
pub(super) fn count() -> usize {
    CALLS.with_borrow(|calls| calls.as_ref().map_or(0, Vec::len)) + HOOKED.get()
}

/// Runs `f`, and returns the layer calls in it, in order.
pub(crate) fn recorded<R>(f: impl FnOnce() -> R) -> (R, Vec<Call>) {
    let before = CALLS.replace(Some(Vec::new()));
    let restore = OnDrop::new(|| CALLS.set(before));
    let result = f();
    let calls = CALLS.take().unwrap_or_default();
    drop(restore);
    (result, calls)
}
