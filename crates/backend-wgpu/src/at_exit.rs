//! The end of a process whose software GPU still computes. Mesa's and SwiftShader's adapters compile kernels
//! in threads of their own, by a compiler whose objects are destroyed when the process exits: a thread that
//! is still at work then ends the process by a segmentation fault, after the program has done all it wanted.
//! So the exit waits until the adapters are idle.
#![allow(unsafe_code)]

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tensor_core::OnDrop;

/// The longest wait: a kernel that never ends does not keep its process.
const WAIT_LIMIT: Duration = Duration::from_secs(10);
/// The time between two looks.
const PAUSE: Duration = Duration::from_micros(200);

/// Waits until the devices are idle.
static WORK: OnceLock<fn()> = OnceLock::new();

/// Makes the exit of this process call `until_idle`, which waits for its devices, once. Call it after the
/// driver has been loaded, because functions for the exit run in reverse order, and those of the driver's
/// compiler must come later.
pub(crate) fn wait_at_exit(until_idle: fn()) {
    WORK.get_or_init(|| {
        // SAFETY: `wait` has C's calling convention, takes nothing, and does not unwind: the thread that it
        // starts may panic, and its own lines do not.
        unsafe { libc::atexit(wait) };
        until_idle
    });
}

/// Waits in a new thread, because the thread that exits has lost its thread-local values.
extern "C" fn wait() {
    static IDLE: AtomicBool = AtomicBool::new(false);
    let work = || {
        let _idle = OnDrop::new(|| IDLE.store(true, Ordering::Release));
        if let Some(until_idle) = WORK.get() {
            until_idle();
        }
    };
    if thread::Builder::new().spawn(work).is_err() {
        return;
    }
    let begin = Instant::now();
    while !IDLE.load(Ordering::Acquire) && begin.elapsed() < WAIT_LIMIT {
        thread::sleep(PAUSE);
    }
}
