//! The table on the device in which kernels record a bad index. A launch with unchecked indices has a slot
//! there until the table is read. The table is copied behind the fence of a read-back, and the copy decides
//! the launch's ticket.

use std::{ops::Range, sync::Arc};

use smallvec::SmallVec;
use tensor_core::Ticket;

use crate::device::pool::Numbered;

/// Words of a slot: whether an index was bad, and the first bad index in two words. The last word is not
/// used.
const WORDS: u32 = 4;
/// Bytes of a slot.
const SLOT_BYTES: u64 = WORDS as u64 * 4;
/// The most slots. If all are taken by live tickets, the next launch waits for the device.
const SLOTS: u64 = 1024;
/// The slot of launches with checked indices; it is never read.
const UNREAD: u32 = 0;

/// The slots of one device.
pub(crate) struct FaultTable {
    pub(crate) made: Arc<Numbered>,
    /// Undecided tickets, in launch order.
    open: Vec<Open>,
    /// Slots that hold zeros and that no running kernel writes to.
    free: Vec<u32>,
    /// Slots that must be cleared before they are used again.
    stale: Vec<u32>,
    /// The number of the next launch.
    next: u64,
}

struct Open {
    launch: u64,
    slot: u32,
    ticket: Arc<Ticket>,
}

/// The contents of a copy of the table: launches before `next`, in the first `bytes` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    next: u64,
    pub(crate) bytes: u64,
}

impl FaultTable {
    /// A table that fits one binding.
    pub(crate) fn new(device: &wgpu::Device, binding_bytes: u64) -> FaultTable {
        let slots = SLOTS.min(binding_bytes / SLOT_BYTES);
        let raw = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("faults"),
            size: slots * SLOT_BYTES,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        // The lowest slot is used first, which keeps the read-back short.
        let free = (UNREAD + 1..slots as u32).rev().collect();
        FaultTable { made: Numbered::new(raw), open: Vec::new(), free, stale: Vec::new(), next: 0 }
    }

    /// Defers the tickets of a launch, all or none; returns their slots if enough are free.
    pub(crate) fn defer(&mut self, tickets: &[(usize, Arc<Ticket>)]) -> Option<Slots> {
        let first = self.free.len().checked_sub(tickets.len())?;
        let slots = tickets.iter().zip(self.free.drain(first..).rev()).map(|((operand, ticket), slot)| {
            ticket.defer();
            self.open.push(Open { launch: self.next, slot, ticket: Arc::clone(ticket) });
            (*operand, slot)
        });
        let slots = Slots(slots.collect());
        self.next += 1;
        Some(slots)
    }

    /// Frees the slots of dropped tickets and the stale slots; returns the byte ranges that must be cleared
    /// first.
    pub(crate) fn sweep(&mut self) -> Vec<Range<u64>> {
        let stale = &mut self.stale;
        self.open.retain(|open| {
            let held = Arc::strong_count(&open.ticket) > 1;
            if !held {
                stale.push(open.slot);
            }
            held
        });
        stale.sort_unstable_by(|a, b| b.cmp(a));
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &slot in stale.iter() {
            let start = u64::from(slot) * SLOT_BYTES;
            match runs.last_mut() {
                Some(run) if run.start == start + SLOT_BYTES => run.start = start,
                _ => runs.push(start..start + SLOT_BYTES),
            }
        }
        self.free.append(stale);
        runs
    }

    /// A description of a copy made now; None if no ticket is open.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let last = self.open.iter().map(|open| open.slot).max()?;
        Some(Snapshot { next: self.next, bytes: u64::from(last + 1) * SLOT_BYTES })
    }

    /// Decides the tickets covered by a copy. Several copies of one launch agree.
    pub(crate) fn decide(&mut self, snapshot: Snapshot, words: &[u32]) {
        let (free, stale) = (&mut self.free, &mut self.stale);
        self.open.retain(|open| {
            let at = (open.slot * WORDS) as usize;
            let Some(&[bad, low, high]) = words.get(at..at + 3).filter(|_| open.launch < snapshot.next)
            else {
                return true;
            };
            if bad == 0 {
                open.ticket.pass();
                free.push(open.slot);
            } else {
                open.ticket.fail((u64::from(low) | u64::from(high) << 32) as i64);
                stale.push(open.slot);
            }
            false
        });
    }
}

/// The slots of a launch: for each operand whose indices have a ticket, its slot.
pub(crate) struct Slots(SmallVec<[(usize, u32); 1]>);

impl Slots {
    /// The first word of the slot in which a kernel records a bad index into an operand.
    pub(crate) fn of(&self, operand: usize) -> u32 {
        self.0.iter().find(|(of, _)| *of == operand).map_or(UNREAD, |&(_, slot)| slot) * WORDS
    }
}
