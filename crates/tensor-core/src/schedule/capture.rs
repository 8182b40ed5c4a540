//! [`Capture`]: the effects of a function while it runs to be compiled, beside its operations. Cells that it
//! assigns, gradients that it reads or replaces, random numbers that it reserves, and states of the host
//! that it changes are noted here, so that a program can do the same at each later call.

use std::{
    cell::{Cell, RefCell},
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        on_drop::OnDrop,
    },
    elements::scalar::Scalar,
    graph::{handle::Tensor, node::Node},
};

/// A stream of random numbers that a captured function draws from.
pub trait RandomStream: Send + Sync {
    /// Reserves the next `count` blocks; returns the seed and the first of them.
    fn take(&self, count: u64) -> (u64, u64);
    /// Sets the number of the next block.
    fn rewind(&self, next: u64);
}

/// Numbers and tensors of the host that a compiled function reads and changes at each call, such as the step
/// counts, the settings and the moments of an optimizer.
pub trait HostState: Send {
    /// The tensors and numbers that the next call reads, in the order in which they were noted. `step` is
    /// that of the [`NotedState`].
    ///
    /// # Errors
    /// Settings that are invalid. The call then changes nothing.
    fn present(&mut self, step: usize) -> Result<HostValues>;

    /// Takes over the results of a call: the new tensors, in the order in which they were noted.
    fn advance(&mut self, tensors: Vec<Tensor>);

    /// Whether the device must have checked all indices before the results are taken over. A state that can
    /// take a step back need not wait: the error is that of the tensor that is read next.
    fn waits_for_checks(&self) -> bool {
        true
    }
}

/// The values of a [`HostState`].
#[derive(Debug, Default)]
pub struct HostValues {
    /// A number of the form of the operations that read them: if it differs from that of the captured call,
    /// the function is captured again.
    pub form: u64,
    /// The tensors that are read.
    pub tensors: Vec<Tensor>,
    /// The numbers that are read.
    pub numbers: Vec<Scalar>,
}

/// A [`HostState`] of a captured call.
pub struct NotedState {
    /// The state.
    pub state: Arc<Mutex<dyn HostState>>,
    /// A number of the state's own, for what the captured call did with it.
    pub step: usize,
    /// The form of the captured operations.
    pub form: u64,
    /// The tensors that they read.
    pub read: Vec<Tensor>,
    /// The ids of the operations that hold the numbers: `Op::Full`.
    pub numbers: Vec<u64>,
    /// The tensors that replace those that were read.
    pub made: Vec<Tensor>,
    /// Gives the state back what it had before the captured call, with the tensors that were read, as far as
    /// they still exist; also for parameters that have their new values, if the flag is set.
    pub undo: UndoState,
}

/// See [`NotedState::undo`].
pub(crate) type UndoState = Box<dyn FnOnce(Vec<Option<Tensor>>, bool)>;

impl fmt::Debug for NotedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a state of {} tensors and {} numbers", self.read.len(), self.numbers.len())
    }
}

/// A draw of random numbers.
pub(super) struct Draw {
    pub(super) stream: Arc<dyn RandomStream>,
    pub(super) seed: u64,
    pub(super) first: u64,
    pub(super) count: u64,
}

/// A cell that the function assigned, with the value that it had before.
pub(super) struct Assigned {
    pub(super) cell: Arc<Node>,
    pub(super) before: Tensor,
}

/// A cell whose gradient the function read or replaced, with the gradient that it had before.
pub(super) struct Gradient {
    pub(super) cell: Arc<Node>,
    pub(super) before: Option<Tensor>,
    /// Whether it was read before it was replaced.
    pub(super) read: bool,
    pub(super) replaced: bool,
}

/// A condition of the host that the captured operations depend on.
pub(super) type Guard = Box<dyn Fn() -> bool + Send>;

/// The effects of a function that was captured.
#[derive(Default)]
pub(super) struct Capture {
    /// Whether a read is an error; otherwise it ends the capture, and the function goes on as usual.
    strict: bool,
    /// The reason for which the function cannot be compiled.
    pub(super) refused: Option<Error>,
    pub(super) assigned: Vec<Assigned>,
    pub(super) gradients: Vec<Gradient>,
    pub(super) draws: Vec<Draw>,
    pub(super) states: Vec<NotedState>,
    pub(super) guards: Vec<Guard>,
}

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static CAPTURE: RefCell<Option<Capture>> = const { RefCell::new(None) };
}

/// Whether this thread captures a function.
#[must_use]
pub fn is_capturing() -> bool {
    IS_ON.get()
}

/// The number of this thread's capture; 0 outside of one. A generator that a function makes starts anew at
/// each call, and so do the constants of its draws.
pub(crate) fn capture_number() -> u64 {
    if IS_ON.get() { NUMBER.get() } else { 0 }
}

/// Runs `f` and returns what it did. A capture within a capture is a part of the outer one.
pub(super) fn capture<R>(strict: bool, f: impl FnOnce() -> R) -> (R, Capture) {
    static CAPTURES: AtomicU64 = AtomicU64::new(1);
    NUMBER.set(CAPTURES.fetch_add(1, Ordering::Relaxed));
    CAPTURE.set(Some(Capture { strict, ..Capture::default() }));
    IS_ON.set(true);
    let ended = OnDrop::new(|| {
        IS_ON.set(false);
        drop(CAPTURE.take());
    });
    let result = f();
    IS_ON.set(false);
    let capture = CAPTURE.take().unwrap_or_default();
    drop(ended);
    (result, capture)
}

/// Runs `f` with the capture of this thread, if there is one.
fn note(f: impl FnOnce(&mut Capture)) {
    if IS_ON.get() {
        CAPTURE.with_borrow_mut(|capture| capture.as_mut().map(f));
    }
}

/// Refuses something that a compiled function cannot do, such as a read of a value: an error, or the end of
/// the capture. `doing` completes "a compiled function cannot".
///
/// # Errors
/// An [`ErrorKind::Capture`], where only what can be compiled may run.
#[track_caller]
pub fn refuse_in_capture(op: &'static str, doing: &str) -> Result<()> {
    if !IS_ON.get() {
        return Ok(());
    }
    let error = cannot(op, doing);
    if is_strict() {
        return Err(error);
    }
    end_capture(error);
    Ok(())
}

/// Whether only what can be compiled may run.
fn is_strict() -> bool {
    CAPTURE.with_borrow(|capture| capture.as_ref().is_some_and(|capture| capture.strict))
}

/// [`refuse_in_capture`] where the caller cannot fail: the error is that of the whole function.
#[track_caller]
pub fn refuse_later(op: &'static str, doing: &str) {
    if !IS_ON.get() {
        return;
    }
    let error = cannot(op, doing);
    match is_strict() {
        // Its effects are noted until its end, to be undone.
        true => note(|capture| {
            capture.refused.get_or_insert(error);
        }),
        false => end_capture(error),
    }
}

#[track_caller]
fn cannot(op: &'static str, doing: &str) -> Error {
    let message = format!(
        "a compiled function cannot {doing}: it runs once, and later calls repeat its operations. Do this outside \
         of it, return the tensor, or use compile_or_run"
    );
    Error::new(ErrorKind::Capture { op, message })
}

/// Ends the capture of a function that goes on as usual.
fn end_capture(reason: Error) {
    note(|capture| {
        capture.refused.get_or_insert(reason);
    });
    IS_ON.set(false);
}

/// Notes that a cell, whose value is `before`, is assigned.
pub(crate) fn note_assigned(cell: &Arc<Node>, before: impl FnOnce() -> Tensor) {
    note(|capture| {
        if !capture.assigned.iter().any(|known| Arc::ptr_eq(&known.cell, cell)) {
            capture.assigned.push(Assigned { cell: cell.clone(), before: before() });
        }
    });
}

/// The use that is made of the gradient of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GradientUse {
    /// It is read.
    Read,
    /// It is replaced, whatever it was.
    Replaced,
    /// It is replaced by what depends on it.
    Changed,
}

/// Notes that the gradient of a cell is read or replaced.
pub(crate) fn note_gradient(cell: &Arc<Node>, before: impl FnOnce() -> Option<Tensor>, used: GradientUse) {
    let (read, replaced) = (used != GradientUse::Replaced, used != GradientUse::Read);
    note(|capture| match capture.gradients.iter_mut().find(|known| Arc::ptr_eq(&known.cell, cell)) {
        Some(known) => known.replaced |= replaced,
        None => {
            let cell = cell.clone();
            capture.gradients.push(Gradient { cell, before: before(), read, replaced });
        }
    });
}

/// Notes that a tensor draws the blocks `first..first + count` of a stream.
pub(crate) fn note_draw(stream: impl FnOnce() -> Arc<dyn RandomStream>, seed: u64, first: u64, count: u64) {
    note(|capture| capture.draws.push(Draw { stream: stream(), seed, first, count }));
}

/// Notes a state of the host that the captured function reads and changes.
pub fn note_host_state(state: NotedState) {
    note(|capture| capture.states.push(state));
}

/// Whether an operation of this id holds a number of a state of the host.
pub(crate) fn is_noted_number(id: u64) -> bool {
    let noted = |capture: &Capture| capture.states.iter().any(|state| state.numbers.contains(&id));
    CAPTURE.with_borrow(|capture| capture.as_ref().is_some_and(noted))
}

/// Notes a condition that the captured operations depend on, such as the mode of a layer. Where it does not
/// hold at a later call, the function is captured again.
pub fn note_guard(holds: impl FnOnce() -> Box<dyn Fn() -> bool + Send>) {
    note(|capture| capture.guards.push(holds()));
}
