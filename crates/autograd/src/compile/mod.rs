//! [`compile()`]: a function whose operations are planned once, and repeated without a graph.

mod backward;

use std::{
    fmt,
    io::{self, Write},
    marker::PhantomData,
    sync::{Arc, Mutex},
};

use tensor_core::{
    Call, CallMode, Error, ErrorKind, PlanListing, Recorder, Replay, ReplayCounts, Result, Tensor,
    TensorTree, autocast::autocast_dtype, caller_line, is_capturing, is_grad_enabled, lock, with_own_lines,
};

use self::backward::{Backward, linked};

/// A function that [`compile()`] made.
///
/// A call gives what a call of the function itself would give. The first call for arguments of one form
/// (shapes, dtypes, layouts, devices) runs the function and plans its operations; later ones set the
/// arguments and run the plan. Calls from several threads wait for each other.
pub struct Compiled<I, O, F> {
    inner: Mutex<Inner<I, O, F>>,
    is_strict: bool,
}

struct Inner<I, O, F> {
    function: F,
    replay: Replay<Arc<Kept<O>>>,
    has_said_why: bool,
    arguments: PhantomData<fn(I)>,
}

/// Is kept with each program.
struct Kept<O> {
    /// The form of the results: a value with tensors of no size.
    form: O,
    /// The backward pass, if results are recorded for gradients.
    backward: Option<Arc<Backward>>,
}

impl<O: TensorTree> Kept<O> {
    /// The results of a call, which are recorded if there is a backward pass, from all tensors that the
    /// program has returned.
    fn results(&self, arguments: &[Tensor], tensors: Vec<Tensor>) -> Result<O> {
        let tensors = match &self.backward {
            Some(backward) => backward.record(arguments, tensors),
            None => tensors,
        };
        rebuilt(&self.form, &tensors)
    }
}

/// A function that runs without planning from its second call on.
///
/// `f` takes and returns a tensor, a tuple, a `Vec` or any other [`TensorTree`]. Everything else that it
/// reads and changes is found while it runs for the first time: parameters and other cells, their gradients,
/// running means, the counts, settings and moments of an optimizer, the position of a generator. Each call
/// sees their present values and assigns the new ones, so that a whole training step compiles:
///
/// ```
/// use std::cell::RefCell;
///
/// use autograd::{TensorGrad, compile};
/// use tensor_core::{Result, Tensor};
/// # fn main() -> Result<()> {
/// let cpu = backend_cpu::cpu();
/// let w = Tensor::zeros([2], &cpu)?.requires_grad();
/// let step = compile(|(x, y): (Tensor, Tensor)| {
///     w.zero_grad();
///     let loss = x.mul(&w)?.sub(&y)?.powi(2).mean();
///     loss.backward()?;
///     w.assign(&w.detach().sub(&w.grad().unwrap().mul_scalar(0.3))?)?;
///     Ok(loss.detach())
/// });
/// let (x, y) = (Tensor::new([1.0f32, 2.0], &cpu)?, Tensor::new([3.0f32, 4.0], &cpu)?);
/// for _ in 0..40 {
///     step.call((x.clone(), y.clone()))?;
/// }
/// assert!(step.call((x, y))?.item::<f32>()? < 1e-6);
/// assert_eq!((step.counts().captured, step.counts().replayed), (1, 40));
/// # Ok(()) }
/// ```
///
/// Other code of the function runs only while it is captured: it prints once, and numbers and tensors of the
/// host that it makes are constants of the compiled function. A learning rate that a schedule changes
/// between calls is seen, and so is the mode of a layer; a number that the function captures is not. Tensors
/// that the function makes must leave it as its results, in cells, or as gradients.
///
/// Gradients flow through a compiled function: if arguments or parameters require them, its results are
/// recorded as those of one operation, whose backward pass is compiled too. Only second derivatives do not.
///
/// ```
/// use autograd::{TensorGrad, compile};
/// use tensor_core::Tensor;
///
/// let w = Tensor::new([2.0f32, 3.0], &backend_cpu::cpu())?.requires_grad();
/// let f = compile(|x: Tensor| Ok(x.mul(&w)?.powi(2)));
/// f.call(w.detach())?.sum().backward()?; // of (x w)²
/// assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [16.0, 54.0]); // 2 x² w
/// # Ok::<(), tensor_core::Error>(())
/// ```
///
/// A call for other shapes, dtypes or layouts captures the function again, and so does one after a change of
/// what the operations depend on (a layer's mode, a parameter that is frozen, an optimizer's first state); at
/// most 64 forms are kept. Under [`detect_anomaly`](https://docs.rs/taper) and within another compiled
/// function, the function itself runs.
///
/// Errors of a call name the lines that built the operations. A call that fails leaves cells, gradients and
/// states as they were, except that a device that fails while old values are overwritten may leave a cell
/// with its new value.
///
/// `torch.compile`, `mx.compile`.
pub fn compile<I: TensorTree, O: TensorTree, F: FnMut(I) -> Result<O>>(f: F) -> Compiled<I, O, F> {
    Compiled::new(f, true)
}

/// [`compile()`], for a function that perhaps cannot be compiled, for example because it reads a value and
/// chooses what to do next: it then runs as usual at each call, and the reason is printed on standard error
/// once.
pub fn compile_or_run<I: TensorTree, O: TensorTree, F: FnMut(I) -> Result<O>>(f: F) -> Compiled<I, O, F> {
    Compiled::new(f, false)
}

impl<I: TensorTree, O: TensorTree, F: FnMut(I) -> Result<O>> Compiled<I, O, F> {
    fn new(function: F, is_strict: bool) -> Compiled<I, O, F> {
        let (replay, has_said_why, arguments) = (Replay::default(), false, PhantomData);
        let inner = Inner { function, replay, has_said_why, arguments };
        Compiled { inner: Mutex::new(inner), is_strict }
    }

    /// Calls the function.
    ///
    /// # Errors
    /// The errors of the function and of the device. [`ErrorKind::Capture`] for what cannot be compiled: a
    /// read of a value, random numbers that are drawn on the host, a tensor that is held after the call but
    /// is no result, a tensor from outside that is recorded for gradients but is no argument, work on two
    /// devices. The function's effects are then undone.
    #[track_caller]
    pub fn call(&self, arguments: I) -> Result<O> {
        let _line = caller_line();
        let mut inner = lock(&self.inner);
        let Inner { function, replay, has_said_why, .. } = &mut *inner;
        let originals = arguments.tensors()?;
        let was_capturing = is_capturing();
        let mut returned = None;
        let mut run = |given: &[Tensor]| {
            let records = is_capturing() && !was_capturing && is_grad_enabled();
            let mut given = given.to_vec();
            for (given, original) in given.iter_mut().zip(&originals).filter(|_| records) {
                if original.is_tracked() && !original.is_cell() {
                    *given = linked(given, original);
                }
            }
            let arguments = rebuilt(&arguments, &given)?;
            let call = || with_own_lines(|| function(arguments));
            let (results, recorder) = match records {
                true => {
                    let (results, recorder) = Recorder::run(call);
                    (results, Some(recorder))
                }
                false => (call(), None),
            };
            let results = results?;
            let mut tensors = results.tensors()?;
            // A function that has read a value is not captured any more, and its results stay as they are.
            let backward = match recorder.filter(|_| is_capturing()) {
                Some(recorder) => Backward::of(recorder, &tensors, &given)?,
                None => None,
            };
            let backward = backward.map(|(backward, saved)| {
                backward.detach(&mut tensors);
                tensors.extend(saved);
                Arc::new(backward)
            });
            // The form is kept without the values.
            let form = results.map_tensors(&mut |tensor| Tensor::zeros([0], &tensor.device()))?;
            let kept = Arc::new(Kept { form, backward });
            returned = Some(kept.clone());
            Ok((tensors, kept))
        };
        let mode = CallMode { strict: self.is_strict, autocast: autocast_dtype(), records: true };
        let (tensors, call) = replay.call(&originals, mode, &mut run)?;
        match call {
            Call::Replayed(kept) => return kept.results(&originals, tensors),
            Call::Ran(Some(reason)) if !std::mem::replace(has_said_why, true) => {
                // A closed stderr is not an error.
                let _ =
                    writeln!(io::stderr(), "taper: a function is not compiled and runs as usual: {reason}");
            }
            Call::Captured | Call::Ran(_) => {}
        }
        returned.ok_or_else(no_form)?.results(&originals, tensors)
    }

    /// The plan of the last call as data: its kernels, buffers and shapes.
    ///
    /// # Errors
    /// No call so far was compiled; effects beside the results, results that are recorded for gradients, and
    /// numbers that differ from call to call.
    #[doc(hidden)] // for `ship`
    pub fn listing(&self) -> Result<PlanListing> {
        let inner = lock(&self.inner);
        let (listing, kept) = inner.replay.listing()?;
        if kept.backward.is_some() {
            return Err(Error::invalid(
                "ship",
                "the results are recorded for gradients, and a program does not train: call the function once within \
                 no_grad",
            ));
        }
        Ok(listing)
    }

    /// The number of calls that captured the function, that repeated its operations, and that ran it.
    #[must_use]
    pub fn counts(&self) -> ReplayCounts {
        lock(&self.inner).replay.counts()
    }
}

impl<I, O, F> fmt::Debug for Compiled<I, O, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = lock(&self.inner);
        write!(f, "Compiled({:?})", inner.replay)
    }
}

fn no_form() -> Error {
    let message = "the form of the results is not known".into();
    Error::new(ErrorKind::Capture { op: "compile", message })
}

/// A value of this form with other tensors.
fn rebuilt<T: TensorTree>(form: &T, tensors: &[Tensor]) -> Result<T> {
    let mut tensors = tensors.iter().cloned();
    form.map_tensors(&mut |_| tensors.next().ok_or_else(no_form))
}
