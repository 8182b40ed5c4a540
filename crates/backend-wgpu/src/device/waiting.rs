//! Reads in progress, and the readers that wait for them.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tensor_core::lock;

/// Whether a buffer is mapped: reported once by wgpu, and waited for or awaited by one reader.
#[derive(Clone, Default)]
pub(crate) struct Mapping(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    reported: Option<bool>,
    waker: Option<Waker>,
}

impl Mapping {
    /// Only the first report counts.
    pub(super) fn report(&self, mapped: bool) {
        let (state, changed) = &*self.0;
        let waker = {
            let mut state = lock(state);
            state.reported.get_or_insert(mapped);
            state.waker.take()
        };
        changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for wgpu's report; a report that is missing one minute after the device finished is a failure.
    pub(super) fn wait(&self) {
        const REPORT_TIMEOUT: Duration = Duration::from_secs(60);
        let (state, changed) = &*self.0;
        let waited =
            changed.wait_timeout_while(lock(state), REPORT_TIMEOUT, |state| state.reported.is_none());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.report(false);
    }

    pub(super) fn is_reported(&self) -> bool {
        lock(&self.0.0).reported.is_some()
    }

    pub(super) fn is_mapped(&self) -> bool {
        lock(&self.0.0).reported == Some(true)
    }
}

impl Future for Mapping {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0.0);
        if state.reported.is_some() {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// A wait of the device's thread on behalf of one reader: for a submission and its mapping.
pub(super) struct Job {
    pub(super) index: wgpu::SubmissionIndex,
    pub(super) mapping: Mapping,
}

/// Asynchronous reads. While there are any, one thread polls the device on behalf of all, because wgpu runs
/// callbacks only when it is polled. In a browser, callbacks run without polling.
#[derive(Default)]
pub(crate) struct Waiting(pub(super) Mutex<Jobs>);

#[derive(Default)]
pub(super) struct Jobs {
    pub(super) queue: VecDeque<Job>,
    pub(super) running: bool,
}
