//! Differences between systems. In a browser page no thread can wait: the device answers only after the
//! page's code has yielded. So every function that waits has an async form, and wgpu may report an error of
//! a call after the call has returned.

use std::future::Future;

/// The clock of every system; std's where that exists.
pub(crate) use web_time::Instant;

/// Whether a thread can wait for a device.
pub(crate) const CAN_WAIT: bool = cfg!(not(target_arch = "wasm32"));

/// Waits for a future; None if threads cannot wait.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn wait<F: Future>(future: F) -> Option<F::Output> {
    Some(pollster::block_on(future))
}

/// Waits for a future; None if threads cannot wait.
#[cfg(target_arch = "wasm32")]
pub(crate) fn wait<F: Future>(_future: F) -> Option<F::Output> {
    None
}

/// The result of a future, if it is ready when polled once, as with all native APIs of wgpu. Otherwise
/// `late` gets the result later.
pub(crate) fn now_or_later<F: Future + 'static>(
    future: F,
    late: impl FnOnce(F::Output) + 'static,
) -> Option<F::Output> {
    use std::task::{Context, Poll, Waker};

    let mut future = Box::pin(future);
    if let Poll::Ready(now) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return Some(now);
    }
    #[cfg(target_arch = "wasm32")]
    wasm_bindgen_futures::spawn_local(async move { late(future.await) });
    #[cfg(not(target_arch = "wasm32"))]
    late(pollster::block_on(future));
    None
}
