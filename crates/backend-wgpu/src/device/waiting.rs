//! Reads that are under way, and the readers that wait for them.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::device::faults::lock;

/// Whether a buffer is mapped: told once by wgpu, and waited for or awaited by one reader.
#[derive(Clone, Default)]
pub(crate) struct Mapping(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    told: Option<bool>,
    waker: Option<Waker>,
}

impl Mapping {
    /// Sets the outcome, unless it is set already.
    pub(super) fn tell(&self, mapped: bool) {
        let (state, changed) = &*self.0;
        let waker = {
            let mut state = lock(state);
            state.told.get_or_insert(mapped);
            state.waker.take()
        };
        changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for the word of wgpu; none within a minute after the device was done is a failure.
    pub(super) fn wait(&self) {
        const LONG: Duration = Duration::from_secs(60);
        let (state, changed) = &*self.0;
        let waited = changed.wait_timeout_while(lock(state), LONG, |state| state.told.is_none());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.tell(false);
    }

    pub(super) fn is_mapped(&self) -> bool {
        lock(&self.0.0).told == Some(true)
    }
}

impl Future for Mapping {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0.0);
        if state.told.is_some() {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// A submission and a mapping, for which the thread of a device waits on behalf of one reader.
pub(super) struct Job {
    pub(super) index: wgpu::SubmissionIndex,
    pub(super) mapping: Mapping,
}

/// The reads that callers await. While there are any, one thread waits for the device on behalf of all, since
/// wgpu calls back only while it is polled. In a browser it calls back by itself.
#[derive(Default)]
pub(crate) struct Waiting(pub(super) Mutex<Jobs>);

#[derive(Default)]
pub(super) struct Jobs {
    pub(super) queue: VecDeque<Job>,
    pub(super) running: bool,
}
