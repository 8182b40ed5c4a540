//! [`lock`]: a mutex whose earlier holder may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever became of an earlier holder: every critical section leaves its data whole.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
