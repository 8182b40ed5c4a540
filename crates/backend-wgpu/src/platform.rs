//! What differs between systems. In a page of a browser no thread can wait: a device answers after the page's
//! code has given way, so whatever waits has a form that is awaited, and what wgpu reports of a call may come
//! after it.

use std::future::Future;

/// The clock of every system; the one of std where there is one.
pub(crate) use web_time::Instant;

/// Whether a thread can wait for a device.
pub(crate) const CAN_WAIT: bool = cfg!(not(target_arch = "wasm32"));

/// Waits for a future; none where no thread can.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn wait<F: Future>(future: F) -> Option<F::Output> {
    Some(pollster::block_on(future))
}

/// Waits for a future; none where no thread can.
#[cfg(target_arch = "wasm32")]
pub(crate) fn wait<F: Future>(_future: F) -> Option<F::Output> {
    None
}

/// What a future gives: at once where wgpu knows it when it is asked, as all its native APIs do. Otherwise
/// `late` has it later.
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
