//! [`Inner`]: the state of a communicator.

use std::{
    sync::{Arc, Mutex, atomic::AtomicU64, mpsc::Sender},
    thread::JoinHandle,
};

use tensor_core::lock;

use crate::{
    engine::{Counters, Job},
    transport::{Pool, Words},
};

/// The state of a communicator, which its handles and pending calls share.
pub(crate) struct Inner {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// The queue of the communication thread; none in a world of one.
    pub(crate) jobs: Mutex<Option<Sender<Job>>>,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
    pub(crate) timeout: Arc<AtomicU64>,
    pub(crate) counters: Arc<Counters>,
    /// Buffers between tensors and messages.
    pub(crate) staging: Mutex<Pool>,
}

impl Drop for Inner {
    /// Waits until everything is sent, and under MPI until the other ranks end as well.
    fn drop(&mut self) {
        drop(lock(&self.jobs).take());
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Inner {
    /// Keeps a buffer for the next message.
    pub(crate) fn keep(&self, buffer: Words) {
        lock(&self.staging).give(buffer);
    }
}
