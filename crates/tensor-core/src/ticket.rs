//! [`Ticket`]: how a launch whose indices are only checked on the device tells of a bad one.

use std::{
    panic::Location,
    sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering},
};

use crate::{Error, ErrorKind, Kernel, Result, kernel::IndexOperand};

/// The check of one launch's indices, where it was not certain beforehand that all are in range.
///
/// A backend whose [`crate::Backend::run`] fails at once on a bad index need not look at it: a ticket counts as passed until
/// somebody defers it. A backend that only learns of a bad index later calls [`Ticket::defer`] within `run`, and
/// [`Ticket::pass`] or [`Ticket::fail`] once it knows: by the end of [`crate::Backend::settle`], or of a download of anything
/// that the launch made. The values that depend on the launch carry the ticket, and whoever asks for one of them gets the error.
#[derive(Debug)]
pub struct Ticket {
    /// In order of making, so that lists of tickets can be merged.
    number: u64,
    /// The operation that a user wrote, and where.
    op: &'static str,
    location: &'static Location<'static>,
    /// The kernel, and what its indices run over.
    kernel: &'static str,
    axis: usize,
    size: usize,
    state: AtomicU8,
    index: AtomicI64,
}

const PASSED: u8 = 0;
const OPEN: u8 = 1;
const FAILED: u8 = 2;

impl Ticket {
    /// A ticket for a launch of `kernel` that `op` at `location` asked for; none for a kernel that goes by no indices.
    pub fn new(kernel: &Kernel, op: &'static str, location: &'static Location<'static>) -> Option<Ticket> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let IndexOperand { axis, size, .. } = kernel.index_operand()?;
        Some(Ticket {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            op,
            location,
            kernel: kernel.name(),
            axis,
            size,
            state: AtomicU8::new(PASSED),
            index: AtomicI64::new(0),
        })
    }

    /// Says that the check is still to come.
    pub fn defer(&self) {
        let _ = self.state.compare_exchange(PASSED, OPEN, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Says that every index was in range.
    pub fn pass(&self) {
        let _ = self.state.compare_exchange(OPEN, PASSED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Says that `index` was out of range. The first one said stays.
    pub fn fail(&self, index: i64) {
        if self.state.load(Ordering::Acquire) != FAILED {
            self.index.store(index, Ordering::Relaxed);
            self.state.store(FAILED, Ordering::Release);
        }
    }

    /// Whether the check is still to come.
    pub fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// Whether an index was out of range.
    pub fn is_failed(&self) -> bool {
        self.state.load(Ordering::Acquire) == FAILED
    }

    /// What is known of the launch's indices.
    ///
    /// # Errors
    /// [`ErrorKind::IndexOutOfRange`] with the operation and the source line, each time this is asked. [`ErrorKind::Invalid`] while the
    /// check is still to come.
    pub fn result(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            PASSED => Ok(()),
            FAILED => Err(self.out_of_range(self.index.load(Ordering::Relaxed))),
            _ => Err(Error::invalid(self.op, "the device has not checked the indices yet: settle it first")),
        }
    }

    /// The error of an index.
    pub(crate) fn out_of_range(&self, index: i64) -> Error {
        let (op, axis, size) = (self.kernel, self.axis, self.size);
        Error::new(ErrorKind::IndexOutOfRange { op, index, axis, size }).computing(self.op, self.location)
    }

    /// Later tickets have greater numbers.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}
