//! Properties of a value beside its elements: the range of its integers, and the launches with unchecked
//! indices that it depends on. Views share this information with their base; an output that is
//! overwritten in place gets its own.

use std::sync::Arc;

use crate::{
    base::error::{Error, ErrorKind, Result},
    devices::backend::Backend,
    elements::{dtype::DType, element::Element, scalar::Scalar},
    kernels::ticket::Ticket,
    with_element,
};

/// An interval that contains all integers of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) low: i64,
    pub(crate) high: i64,
    /// Whether both `low` and `high` occur in the buffer.
    pub(crate) attained: bool,
    /// The least element above a negative `low`, if known: ignored labels are often the only negative
    /// ones.
    pub(crate) above: Option<i64>,
}

impl Bounds {
    /// The full range of bool, and of the integer dtypes that fit in `i64`; otherwise `None`.
    pub(crate) fn of(dtype: DType) -> Option<Bounds> {
        let (Scalar::Int(low), Scalar::Int(high)) = (dtype.least(), dtype.greatest()) else {
            return dtype.is_bool().then_some(Bounds { low: 0, high: 1, attained: false, above: None });
        };
        Some(Bounds { low, high, attained: false, above: None })
    }

    /// The least and greatest of the elements in `bytes`, of an integer dtype.
    pub(crate) fn of_bytes(dtype: DType, bytes: &[u8]) -> Option<Bounds> {
        fn range<T: Element>(bytes: &[u8]) -> Option<Bounds> {
            let elements = T::from_bytes(bytes);
            let values = || elements.iter().map(|element| element.to_scalar().as_i64());
            let first = values().next()?;
            let (low, high) =
                values().fold((first, first), |(low, high), value| (low.min(value), high.max(value)));
            let above = if low < 0 { values().filter(|&value| value > low).min() } else { None };
            Some(Bounds { low, high, attained: true, above })
        }
        // u64 does not fit the i64 bounds.
        let has_bounds = dtype.is_int() && Bounds::of(dtype).is_some();
        if has_bounds { with_element!(dtype, T => range::<T>(bytes)) } else { None }
    }

    /// Whether both ends are within 0..`size`.
    pub(crate) fn are_within(&self, size: usize) -> bool {
        self.low >= 0 && u64::try_from(self.high).is_ok_and(|high| high < size as u64)
    }
}

/// The known properties of a value: bounds and tickets. Empty for most values; it is then one word and
/// free to copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueInfo(Option<Arc<Known>>);

#[derive(Debug)]
struct Known {
    bounds: Option<Bounds>,
    tickets: Tickets,
}

/// The tickets that a value depends on, in order of their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tickets(Option<Arc<[Arc<Ticket>]>>);

impl ValueInfo {
    pub(crate) fn new(bounds: Option<Bounds>, tickets: Tickets) -> ValueInfo {
        let nothing = bounds.is_none() && tickets.is_empty();
        ValueInfo((!nothing).then(|| Arc::new(Known { bounds, tickets })))
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.0.is_none()
    }

    fn tickets(&self) -> Option<&Tickets> {
        self.0.as_deref().map(|known| &known.tickets)
    }

    fn ticket_list(&self) -> &[Arc<Ticket>] {
        self.tickets().map_or(&[], Tickets::list)
    }

    /// The information for elements uploaded from the host.
    pub(crate) fn of_bytes(dtype: DType, bytes: &[u8]) -> ValueInfo {
        ValueInfo::new(Bounds::of_bytes(dtype, bytes), Tickets::default())
    }

    pub(crate) fn bounds(&self) -> Option<Bounds> {
        self.0.as_deref().and_then(|known| known.bounds)
    }

    /// Whether the check of an index that the value depends on is not decided yet.
    pub(crate) fn is_open(&self) -> bool {
        self.ticket_list().iter().any(|ticket| ticket.is_open())
    }

    /// The error of a ticket that has already failed, if one has.
    pub(crate) fn check(&self) -> Result<()> {
        let failed = self.ticket_list().iter().find(|ticket| ticket.is_failed());
        failed.map_or(Ok(()), |ticket| ticket.result())
    }

    /// Waits for the pending checks of all indices that the value depends on.
    ///
    /// # Errors
    /// The error of the first bad index, or of the device.
    pub(crate) fn settle(&self, backend: &dyn Backend) -> Result<()> {
        self.check()?;
        if self.is_open() {
            backend.settle()?;
        }
        if self.is_open() {
            let message =
                "the backend deferred the check of a launch's indices, and did not settle it".into();
            return Err(Error::new(ErrorKind::Backend { device: backend.info().name.clone(), message }));
        }
        self.check()
    }
}

impl Tickets {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn list(&self) -> &[Arc<Ticket>] {
        self.0.as_deref().unwrap_or_default()
    }

    /// The undecided or failed tickets of a launch's inputs and of the launch itself; only one, once one
    /// has failed.
    pub(crate) fn of_launch<'a>(
        inputs: impl IntoIterator<Item = &'a ValueInfo>,
        own: impl IntoIterator<Item = Arc<Ticket>>,
    ) -> Tickets {
        // Both lists are in order of creation.
        let own: Vec<Arc<Ticket>> =
            own.into_iter().filter(|ticket| ticket.is_open() || ticket.is_failed()).collect();
        let mut all = Tickets((!own.is_empty()).then(|| Arc::from(own)));
        for tickets in inputs.into_iter().filter_map(ValueInfo::tickets).filter(|tickets| !tickets.is_empty())
        {
            if let Some(failed) = tickets.list().iter().find(|ticket| ticket.is_failed()) {
                return Tickets(Some(Arc::from([Arc::clone(failed)])));
            }
            if tickets.list().iter().any(|ticket| ticket.is_open()) {
                all = all.merged(tickets);
            }
        }
        all
    }

    /// The undecided or failed tickets of both lists.
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Location;
    use crate::kernels::{
        kernel::{Kernel, Operand},
        layout::Layout,
    };

    fn ticket() -> Arc<Ticket> {
        let operand = |dtype, numel: usize| Operand::new(dtype, Layout::contiguous([numel]));
        let kernel = Kernel::gather(0, operand(DType::F32, 4), operand(DType::I32, 2));
        let indexed = kernel.indexed_operands()[0];
        let ticket = Arc::new(Ticket::of_indices(&kernel, indexed, "gather", Location::caller()));
        ticket.defer();
        ticket
    }

    fn facts(tickets: &[&Arc<Ticket>]) -> ValueInfo {
        let lists = tickets.iter().map(|&t| ValueInfo::new(None, Tickets(Some(Arc::from([t.clone()])))));
        ValueInfo::new(None, Tickets::of_launch(&lists.collect::<Vec<_>>(), None))
    }

    #[test]
    fn a_launch_carries_each_open_ticket_once_and_a_failed_one_alone() {
        let (a, b, c) = (ticket(), ticket(), ticket());
        let (x, y) = (facts(&[&c, &a]), facts(&[&b, &c]));
        let list = |tickets: &Tickets| tickets.list().iter().map(|t| t.number()).collect::<Vec<_>>();
        let own = ticket();
        let all = Tickets::of_launch([&x, &ValueInfo::default(), &y], Some(own.clone()));
        assert_eq!(list(&all), [&a, &b, &c, &own].map(|t| t.number()));
        a.pass();
        assert_eq!(list(&Tickets::of_launch([&x, &y], None)), [&b, &c].map(|t| t.number()));
        // A single list is shared, not copied.
        let alone = Tickets::of_launch([&y], None);
        assert!(Arc::ptr_eq(alone.0.as_ref().unwrap(), y.tickets().unwrap().0.as_ref().unwrap()));
        b.fail(7);
        b.pass();
        b.fail(8);
        assert_eq!(list(&Tickets::of_launch([&x, &y], Some(own))), [b.number()]);
        assert!(y.check().unwrap_err().to_string().contains("index 7"));
        assert!(x.check().is_ok());
        c.pass();
        assert!(Tickets::of_launch([&x], None).0.is_none());
        // A ticket that was not deferred was checked at once.
        let done = ticket();
        done.pass();
        assert!(Tickets::of_launch([], Some(done)).0.is_none());
    }

    #[test]
    fn bounds_are_those_of_the_bytes() {
        let bytes = |values: &[i64]| values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<u8>>();
        let found = Bounds::of_bytes(DType::I64, &bytes(&[3, -100, i64::MAX, 2, -100])).unwrap();
        let expected = Bounds { low: -100, high: i64::MAX, attained: true, above: Some(2) };
        assert_eq!(found, expected);
        assert_eq!(Bounds::of_bytes(DType::I64, &bytes(&[-1, -1])).unwrap().above, None);
        assert_eq!(Bounds::of_bytes(DType::I64, &[]), None);
        assert_eq!(Bounds::of_bytes(DType::F32, &[0; 4]), None);
        let found = Bounds::of_bytes(DType::U8, &[200, 9]).unwrap();
        assert_eq!((found.low, found.high), (9, 200));
        let found = Bounds::of_bytes(DType::U32, &u32::MAX.to_ne_bytes()).unwrap();
        assert!(!found.are_within(usize::try_from(u32::MAX).unwrap()));
        assert!(found.are_within(usize::try_from(u32::MAX).unwrap() + 1));
        assert!(!Bounds::of(DType::I32).unwrap().are_within(usize::MAX));
        assert!(
            Bounds::of(DType::U8).unwrap().are_within(256) && !Bounds::of(DType::U8).unwrap().are_within(255)
        );
    }
}
