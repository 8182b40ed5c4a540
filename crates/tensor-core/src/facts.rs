//! What is known of a value beside its elements: the range of its integers, and the launches whose indices it depends on that are
//! not known to be good. Views of a value share its facts; an output overwritten in place gets facts of its own.

use std::sync::Arc;

use crate::{Backend, DType, Error, ErrorKind, Result, Ticket};

/// The range in which all integers of a buffer lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) low: i64,
    pub(crate) high: i64,
    /// Whether some element of the buffer is `low` and some is `high`.
    pub(crate) attained: bool,
}

impl Bounds {
    /// All that a dtype can hold, of integers and bool.
    pub(crate) fn of(dtype: DType) -> Option<Bounds> {
        let (low, high) = match dtype {
            DType::Bool => (0, 1),
            DType::U8 => (0, i64::from(u8::MAX)),
            DType::U32 => (0, i64::from(u32::MAX)),
            DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            DType::I64 => (i64::MIN, i64::MAX),
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => return None,
        };
        Some(Bounds { low, high, attained: false })
    }

    /// The least and greatest of the elements in `bytes`, of an integer dtype.
    pub(crate) fn of_bytes(dtype: DType, bytes: &[u8]) -> Option<Bounds> {
        fn range<const N: usize, T: Copy + Ord + Into<i64>>(
            bytes: &[u8],
            read: impl Fn([u8; N]) -> T,
        ) -> Option<Bounds> {
            let (words, _) = bytes.as_chunks::<N>();
            let first = read(*words.first()?);
            let (low, high) = words.iter().fold((first, first), |(low, high), &word| {
                let value = read(word);
                (low.min(value), high.max(value))
            });
            Some(Bounds { low: low.into(), high: high.into(), attained: true })
        }
        match dtype {
            DType::U8 => range(bytes, |[byte]: [u8; 1]| byte),
            DType::U32 => range(bytes, u32::from_ne_bytes),
            DType::I32 => range(bytes, i32::from_ne_bytes),
            DType::I64 => range(bytes, i64::from_ne_bytes),
            DType::Bool | DType::F16 | DType::BF16 | DType::F32 | DType::F64 => None,
        }
    }

    /// Whether both ends are within 0..`size`.
    pub(crate) fn are_within(&self, size: usize) -> bool {
        self.low >= 0 && u64::try_from(self.high).is_ok_and(|high| high < size as u64)
    }
}

/// What is known of a value. Nothing, of most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    bounds: Option<Arc<Bounds>>,
    tickets: Tickets,
}

/// The tickets that a value depends on, in order of their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tickets(Option<Arc<[Arc<Ticket>]>>);

impl Facts {
    pub(crate) fn new(bounds: Option<Bounds>, tickets: Tickets) -> Facts {
        Facts { bounds: bounds.map(Arc::new), tickets }
    }

    /// Of elements that came from the host.
    pub(crate) fn of_bytes(dtype: DType, bytes: &[u8]) -> Facts {
        Facts::new(Bounds::of_bytes(dtype, bytes), Tickets::default())
    }

    pub(crate) fn bounds(&self) -> Option<Bounds> {
        self.bounds.as_deref().copied()
    }

    /// The error of a ticket that failed already, if one did.
    pub(crate) fn check(&self) -> Result<()> {
        let failed = self.tickets.list().iter().find(|ticket| ticket.is_failed());
        failed.map_or(Ok(()), |ticket| ticket.result())
    }

    /// Waits for the check of every index that the value depends on, if one is still to come.
    ///
    /// # Errors
    /// The failure of the first that was bad, or of the device.
    pub(crate) fn settle(&self, backend: &dyn Backend) -> Result<()> {
        self.check()?;
        if self.tickets.list().iter().any(|ticket| ticket.is_open()) {
            backend.settle()?;
        }
        if self.tickets.list().iter().any(|ticket| ticket.is_open()) {
            let message =
                "the backend deferred the check of a launch's indices, and did not settle it".into();
            return Err(Error::new(ErrorKind::Backend { device: backend.info().name.clone(), message }));
        }
        self.check()
    }
}

impl Tickets {
    fn list(&self) -> &[Arc<Ticket>] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Those of the inputs of a launch and its own that are not known to be good; only one, once one has failed.
    pub(crate) fn of_launch<'a>(
        inputs: impl IntoIterator<Item = &'a Facts>,
        own: Option<Arc<Ticket>>,
    ) -> Tickets {
        let own = own.filter(|ticket| ticket.is_open() || ticket.is_failed());
        let mut all = Tickets(own.map(|ticket| Arc::from([ticket])));
        for Facts { tickets, .. } in inputs {
            if tickets.0.is_none() {
                continue;
            }
            if let Some(failed) = tickets.list().iter().find(|ticket| ticket.is_failed()) {
                return Tickets(Some(Arc::from([Arc::clone(failed)])));
            }
            if tickets.list().iter().any(|ticket| ticket.is_open()) {
                all = all.merged(tickets);
            }
        }
        all
    }

    /// Those of both lists that are not known to be good.
    fn merged(self, other: &Tickets) -> Tickets {
        let (Some(a), Some(b)) = (&self.0, &other.0) else {
            return if self.0.is_some() { self } else { other.clone() };
        };
        if Arc::ptr_eq(a, b) {
            return self;
        }
        let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
        let mut merged: Vec<Arc<Ticket>> = Vec::with_capacity(a.len() + b.len());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if x.number() == y.number() => {
                    a.next();
                    b.next()
                }
                (Some(x), Some(y)) if x.number() < y.number() => a.next(),
                (Some(_), None) => a.next(),
                (_, Some(_)) => b.next(),
                (None, None) => break,
            };
            merged.extend(next.filter(|ticket| ticket.is_open() || ticket.is_failed()).cloned());
        }
        Tickets(Some(merged.into()))
    }
}
