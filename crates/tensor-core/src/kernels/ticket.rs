//! [`Ticket`]: how a launch whose inputs are only checked on the device tells of bad ones.

use std::{
    panic::Location,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering},
    },
};

use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        shape::Shape,
    },
    elements::dtype::DType,
    kernels::{
        custom::{CustomKernel, specs},
        kernel::{Body, IndexedOperand, Kernel},
        operators::Refusal,
    },
};

/// The check of one launch's inputs, where it was not certain beforehand that they are good: indices in
/// range, or what a [`CustomKernel`] asks of them.
///
/// A backend whose [`crate::Backend::run`] fails at once need not look at it: a ticket counts as passed until
/// somebody defers it. A backend that only learns of a bad index later calls [`Ticket::defer`] within `run`,
/// and [`Ticket::pass`] or [`Ticket::fail`] once it knows: by the end of [`crate::Backend::settle`], or of a
/// download of anything that the launch made. The values that depend on the launch carry the ticket, and
/// whoever asks for one of them gets the error.
#[derive(Debug)]
pub struct Ticket {
    /// In order of making, so that lists of tickets can be merged.
    number: u64,
    /// The operation that a user wrote, and where.
    op: &'static str,
    location: &'static Location<'static>,
    check: Check,
    state: AtomicU8,
    /// The index that was bad, or the code of what a kernel of its own found.
    found: AtomicI64,
}

/// What is checked.
#[derive(Debug)]
enum Check {
    /// The kernel's indices run over an axis of this size.
    Indices { kernel: &'static str, axis: usize, size: usize },
    /// An index is out of range where values are bad for an operation.
    Values(Refusal),
    /// The kernel knows what its codes mean, of inputs of these shapes and dtypes.
    Custom(Arc<dyn CustomKernel>, Vec<(Shape, DType)>),
}

const PASSED: u8 = 0;
const OPEN: u8 = 1;
const FAILED: u8 = 2;

impl Ticket {
    /// A ticket for the indices into one of the operands of a launch of `kernel`, which `op` at `location`
    /// asked for.
    pub fn of_indices(
        kernel: &Kernel,
        IndexedOperand { axis, size, .. }: IndexedOperand,
        op: &'static str,
        location: &'static Location<'static>,
    ) -> Ticket {
        // A program reads at indices in place of a gather.
        let kernel = if kernel.body.program().is_some() { "gather" } else { kernel.name() };
        Ticket::new(Check::Indices { kernel, axis, size }, op, location)
    }

    /// A ticket for a launch of a kernel that may find that its inputs have no answer; none for any other.
    pub fn of_custom(
        kernel: &Kernel,
        op: &'static str,
        location: &'static Location<'static>,
    ) -> Option<Ticket> {
        let Body::Custom(custom) = &kernel.body else { return None };
        custom.may_fail().then(|| {
            let check = Check::Custom(Arc::clone(custom), specs(&kernel.operands));
            Ticket::new(check, op, location)
        })
    }

    /// All tickets of a launch of `kernel` of whose indices nothing is known, as [`crate::Launch::tickets`]
    /// takes them.
    pub fn all(
        kernel: &Kernel,
        op: &'static str,
        location: &'static Location<'static>,
    ) -> Vec<(usize, Arc<Ticket>)> {
        let indexed = kernel
            .indexed_operands()
            .into_iter()
            .map(|indexed| (indexed.operand, Arc::new(Ticket::of_indices(kernel, indexed, op, location))));
        let custom = Ticket::of_custom(kernel, op, location).map(|ticket| (0, Arc::new(ticket)));
        indexed.chain(custom).collect()
    }

    fn new(check: Check, op: &'static str, location: &'static Location<'static>) -> Ticket {
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

    /// With this for an error in place of one about an index.
    pub(crate) fn refusing(mut self, refusal: Option<Refusal>) -> Ticket {
        if let Some(refusal) = refusal {
            self.check = Check::Values(refusal);
        }
        self
    }

    /// Says that the check is still to come.
    pub fn defer(&self) {
        let _ = self.state.compare_exchange(PASSED, OPEN, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Says that nothing is wrong.
    pub fn pass(&self) {
        let _ = self.state.compare_exchange(OPEN, PASSED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Says what is wrong: the index that is out of range, or a code for [`CustomKernel::failure`]. The first
    /// one said stays.
    pub fn fail(&self, found: i64) {
        if self.state.load(Ordering::Acquire) != FAILED {
            self.found.store(found, Ordering::Relaxed);
            self.state.store(FAILED, Ordering::Release);
        }
    }

    /// Whether the check is still to come.
    pub fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// Whether something is wrong.
    pub fn is_failed(&self) -> bool {
        self.state.load(Ordering::Acquire) == FAILED
    }

    /// What is known of the launch's inputs.
    ///
    /// # Errors
    /// [`ErrorKind::IndexOutOfRange`], or a [`CustomKernel::failure`], with the operation and the source
    /// line, each time this is asked. [`ErrorKind::Invalid`] while the check is still to come.
    pub fn result(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            PASSED => Ok(()),
            FAILED => Err(self.error(self.found.load(Ordering::Relaxed))),
            _ => Err(Error::invalid(self.op, "the device has not checked the inputs yet: settle it first")),
        }
    }

    /// The error of an index, or of a code.
    pub(crate) fn error(&self, found: i64) -> Error {
        let error = match &self.check {
            &Check::Indices { kernel: op, axis, size } => {
                Error::new(ErrorKind::IndexOutOfRange { op, index: found, axis, size })
            }
            Check::Values(refusal) => {
                return Error::invalid(refusal.op, refusal.message).computing(refusal.op, self.location);
            }
            Check::Custom(custom, inputs) => custom.failure(inputs, found as u32, (found >> 32) as u32),
        };
        error.computing(self.op, self.location)
    }

    /// Later tickets have greater numbers.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}
