//! [`Ticket`]: a deferred index check whose result arrives with the data.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering},
};

use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        location::Location,
        shape::Shape,
    },
    elements::dtype::DType,
    kernels::{
        custom::{CustomKernel, specs},
        kernel::{Body, IndexedOperand, Kernel},
        operators::Refusal,
    },
};

/// The check of one launch's inputs if they were not known to be good beforehand: indices in range, or
/// the requirements of a [`CustomKernel`].
///
/// A backend whose [`crate::Backend::run`] reports bad indices at once can ignore it: a ticket counts as
/// passed until it is deferred. A backend that only learns of a bad index later calls [`Ticket::defer`]
/// within `run`, and [`Ticket::pass`] or [`Ticket::fail`] once it knows: at the latest when
/// [`crate::Backend::settle`], or a download of anything that the launch wrote, returns. The values that
/// depend on the launch carry the ticket, and a reader of one of them gets the error.
#[derive(Debug)]
pub struct Ticket {
    /// The ticket's number, in order of creation, so that lists of tickets can be merged.
    number: u64,
    /// The user's operation; its source line is next.
    op: &'static str,
    location: Location,
    check: Check,
    state: AtomicU8,
    /// The bad index, or the failure code of a custom kernel.
    found: AtomicI64,
}

/// The condition that is checked.
#[derive(Debug)]
enum Check {
    /// The kernel's indices must be within an axis of this size.
    Indices { kernel: &'static str, axis: usize, size: usize },
    /// An index out of range means that values are not valid for this operation, for this reason.
    Values(&'static str, &'static str),
    /// A custom kernel interprets its own failure codes, for inputs of these shapes and dtypes.
    Custom(Arc<dyn CustomKernel>, Vec<(Shape, DType)>),
}

const PASSED: u8 = 0;
const OPEN: u8 = 1;
const FAILED: u8 = 2;

impl Ticket {
    /// A ticket for the indices into one of the operands of a launch of `kernel`, on behalf of `op` at
    /// `location`.
    pub fn of_indices(
        kernel: &Kernel,
        IndexedOperand { axis, size, .. }: IndexedOperand,
        op: &'static str,
        location: Location,
    ) -> Ticket {
        // A program that reads at indices implements a gather.
        let kernel = if kernel.body.program().is_some() { "gather" } else { kernel.name() };
        Ticket::new(Check::Indices { kernel, axis, size }, op, location)
    }

    /// A ticket for a launch of a custom kernel that may find that its inputs have no result; `None` for
    /// any other.
    pub fn of_custom(kernel: &Kernel, op: &'static str, location: Location) -> Option<Ticket> {
        let Body::Custom(custom) = &kernel.body else { return None };
        custom.may_fail().then(|| {
            let check = Check::Custom(Arc::clone(custom), specs(&kernel.operands));
            Ticket::new(check, op, location)
        })
    }

    /// All tickets for a launch of `kernel` if nothing is known about its indices, in the form of
    /// [`crate::Launch::tickets`].
    pub fn all(kernel: &Kernel, op: &'static str, location: Location) -> Vec<(usize, Arc<Ticket>)> {
        let indexed = kernel
            .indexed_operands()
            .into_iter()
            .map(|indexed| (indexed.operand, Arc::new(Ticket::of_indices(kernel, indexed, op, location))));
        let custom = Ticket::of_custom(kernel, op, location).map(|ticket| (0, Arc::new(ticket)));
        indexed.chain(custom).collect()
    }

    fn new(check: Check, op: &'static str, location: Location) -> Ticket {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ticket {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            op,
            location,
            check,
            state: AtomicU8::new(PASSED),
            found: AtomicI64::new(0),
        }
    }

    /// The ticket with this error in place of the one about an index.
    pub(crate) fn refusing(mut self, refusal: Option<Refusal>) -> Ticket {
        match (refusal, &mut self.check) {
            (Some(Refusal { op, message: None }), Check::Indices { kernel, .. }) => {
                (self.op, *kernel) = (op, op)
            }
            (Some(Refusal { op, message: Some(message) }), _) => self.check = Check::Values(op, message),
            _ => {}
        }
        self
    }

    /// Marks the check as pending.
    pub fn defer(&self) {
        let _ = self.state.compare_exchange(PASSED, OPEN, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Marks the check as passed.
    pub fn pass(&self) {
        let _ = self.state.compare_exchange(OPEN, PASSED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Marks the check as failed, with the index that is out of range, or a code for
    /// [`CustomKernel::failure`]. The first failure is kept.
    pub fn fail(&self, found: i64) {
        if self.state.load(Ordering::Acquire) != FAILED {
            self.found.store(found, Ordering::Relaxed);
            self.state.store(FAILED, Ordering::Release);
        }
    }

    /// Whether the check is pending.
    pub fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// Whether the check has failed.
    pub fn is_failed(&self) -> bool {
        self.state.load(Ordering::Acquire) == FAILED
    }

    /// The result of the check.
    ///
    /// # Errors
    /// [`ErrorKind::IndexOutOfRange`], or a [`CustomKernel::failure`], with the operation and the source
    /// line, at each call. [`ErrorKind::Invalid`] while the check is pending.
    pub fn result(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            PASSED => Ok(()),
            FAILED => Err(self.error(self.found.load(Ordering::Relaxed))),
            _ => Err(Error::invalid(self.op, "the device has not checked the inputs yet: settle it first")),
        }
    }

    /// The error for a bad index or a failure code.
    pub(crate) fn error(&self, found: i64) -> Error {
        let error = match &self.check {
            &Check::Indices { kernel: op, axis, size } => {
                Error::new(ErrorKind::IndexOutOfRange { op, index: found, axis, size })
            }
            &Check::Values(op, message) => {
                return Error::invalid(op, message).computing(op, self.location);
            }
            Check::Custom(custom, inputs) => custom.failure(inputs, found as u32, (found >> 32) as u32),
        };
        error.computing(self.op, self.location)
    }

    /// The ticket's number, which increases with creation.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}
