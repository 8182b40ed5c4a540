//! The communication thread: it owns the transport and performs calls one after the other, in their order,
//! while the calling threads compute. All collectives are implemented here, as messages between pairs of
//! ranks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use tensor_core::{Error, ErrorKind, Location, Result, note_call};

use crate::{
    numbers,
    transport::{Channel, Transport, Words},
    wire::{Call, HEADER, Kind, ReduceOp},
};

/// The size of an `all_reduce`, in bytes, up to which every rank sends all data to every other one, which
/// takes one exchange instead of two.
pub(crate) const DIRECT_MAX_BYTES: usize = 8 << 10;

/// A call to perform, and the channel for its result.
pub(crate) struct Job {
    pub(crate) task: Task,
    pub(crate) data: Words,
    pub(crate) reply: Sender<Result<Answer>>,
    /// The line of the caller.
    pub(crate) location: Location,
}

pub(crate) enum Task {
    Collective(Call),
    SendTo(usize, Call),
    ReceiveFrom(usize),
}

/// Elements, with their dtype and shape.
pub(crate) struct Answer {
    pub(crate) call: Call,
    pub(crate) data: Words,
}

/// The amount of data sent so far.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) collectives: AtomicU64,
}

pub(crate) struct Engine {
    transport: Box<dyn Transport>,
    /// The time that a call waits for the other ranks, in milliseconds.
    timeout: Arc<AtomicU64>,
    counters: Arc<Counters>,
    /// The number of collectives called so far.
    number: u64,
    /// The failure after which nothing is sent: ranks that hang or have ended do not return.
    failure: Option<Error>,
}

/// A failure of a call, and whether the ranks can continue with others.
struct Failed {
    error: Error,
    ends_all: bool,
}

impl Failed {
    fn last(error: Error) -> Failed {
        Failed { error, ends_all: true }
    }
}

type Done<T> = std::result::Result<T, Failed>;

fn fault(call: &Call, ranks: Vec<usize>, message: String) -> Error {
    Error::new(ErrorKind::Distributed { op: call.kind.name(), ranks, message })
}

/// Formats ranks: `rank 3`, `ranks 0 and 2`, `ranks 0, 1 and 2`.
pub(crate) fn listed(ranks: &[usize]) -> String {
    let names: Vec<String> = ranks.iter().map(usize::to_string).collect();
    match names.split_last() {
        None => "no rank".into(),
        Some((last, [])) => format!("rank {last}"),
        Some((last, rest)) => format!("ranks {} and {last}", rest.join(", ")),
    }
}

/// The elements, among `count`, that belong to `rank`.
pub(crate) fn piece(count: usize, rank: usize, size: usize) -> std::ops::Range<usize> {
    // The product cannot overflow: `count` elements are in memory, and there are few ranks.
    count * rank / size..count * (rank + 1) / size
}

pub(crate) fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

fn bytes(words: &[u64]) -> &[u8] {
    bytemuck::cast_slice(words)
}

fn bytes_mut(words: &mut [u64]) -> &mut [u8] {
    bytemuck::cast_slice_mut(words)
}

/// The pause between two polls, longer the more time has passed. A long message advances piece by piece, and
/// only when a rank polls, so the thread does not sleep while a message may be under way; it yields the
/// processor to other threads instead.
struct Pause(Instant);

impl Pause {
    fn new() -> Pause {
        Pause(Instant::now())
    }

    fn rest(&self) {
        match self.0.elapsed().as_micros() {
            0..20 => std::hint::spin_loop(),
            20..20_000 => thread::yield_now(),
            20_000..1_000_000 => thread::sleep(Duration::from_micros(20)),
            _ => thread::sleep(Duration::from_micros(500)),
        }
    }
}

impl Engine {
    pub(crate) fn new(
        transport: Box<dyn Transport>,
        timeout: Arc<AtomicU64>,
        counters: Arc<Counters>,
    ) -> Engine {
        Engine { transport, timeout, counters, number: 0, failure: None }
    }

    /// Performs jobs until all senders are dropped.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        // Whether the transport has completed all sends; if not, it must be polled while there is no job.
        let mut idle = true;
        loop {
            let next = match idle {
                true => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => jobs.recv_timeout(Duration::from_micros(200)),
            };
            match next {
                Ok(Job { task, data, reply, location }) => {
                    let result = self.perform(task, data, location);
                    // The receiver may have been dropped.
                    let _ = reply.send(result);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            idle = match self.transport.progress() {
                Ok(idle) => idle || self.failure.is_some(),
                Err(error) => {
                    self.failure.get_or_insert(error);
                    true
                }
            };
        }
        self.finish();
    }

    fn finish(mut self) {
        if self.failure.is_none() && self.transport.ends_together() {
            // Each rank learns that the others end as well; otherwise they would learn that this one has
            // ended.
            let left = self.agree(&Call { number: self.number, ..Call::bare(Kind::Leave) });
            self.failure = left.err().map(|failed| failed.error);
        }
        let pause = Pause::new();
        while self.failure.is_none() {
            match self.transport.progress() {
                Ok(true) => break,
                Ok(false) if pause.0.elapsed() < self.patience() => pause.rest(),
                Ok(false) => {
                    let message = "messages that this rank sent were not received by the end".to_string();
                    self.failure = Some(fault(&Call::bare(Kind::Leave), Vec::new(), message));
                }
                Err(error) => self.failure = Some(error),
            }
        }
        let failure = self.failure.map(|error| error.to_string());
        self.transport.close(failure.as_deref());
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.timeout.load(Ordering::Relaxed))
    }

    fn perform(&mut self, task: Task, data: Words, location: Location) -> Result<Answer> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let done = match task {
            Task::Collective(mut call) => {
                call.number = self.number;
                self.number += 1;
                self.counters.collectives.fetch_add(1, Ordering::Relaxed);
                let (start, name, size) = (Instant::now(), call.kind.name(), call.bytes() as u64);
                let done = self.collective(call, data);
                note_call(|| format!("rank {}", self.transport.rank()), name, location, start, size);
                done
            }
            Task::SendTo(to, call) => {
                self.send_pair(to, &call, data).map(|()| Answer { call, data: Words::new() })
            }
            Task::ReceiveFrom(from) => self.receive_pair(from),
        };
        done.map_err(|Failed { error, ends_all }| {
            if ends_all {
                self.failure = Some(error.clone());
            }
            error
        })
    }

    fn collective(&mut self, call: Call, mut data: Words) -> Done<Answer> {
        self.agree(&call)?;
        let data = match call.kind {
            Kind::AllReduce(op) if call.bytes() <= DIRECT_MAX_BYTES => {
                self.all_reduce_small(&call, op, data)?
            }
            Kind::AllReduce(op) => {
                let own = self.reduce_pieces(&call, op, &data)?;
                self.gather_pieces(&call, own, &mut data)?;
                data
            }
            Kind::ReduceScatter(op) => {
                let own = self.reduce_pieces(&call, op, &data)?;
                self.transport.recycle(data);
                own
            }
            Kind::AllGather => self.all_gather(&call, data)?,
            Kind::Broadcast { root } => self.broadcast(&call, root, data)?,
            Kind::Barrier | Kind::Send | Kind::Receive | Kind::Abandon | Kind::Leave => data,
        };
        Ok(Answer { call, data })
    }

    /// Every rank tells every other one which call it makes: data is sent only if all calls agree. Missing
    /// ranks are found here.
    fn agree(&mut self, call: &Call) -> Done<()> {
        let own = self.transport.rank();
        for to in self.others() {
            let mut header = self.transport.buffer(HEADER);
            call.write(&mut header);
            self.send(to, Channel::Collective, header)?;
        }
        let wanted: Vec<(usize, usize)> = self.others().map(|from| (from, HEADER)).collect();
        let headers = self.receive(call, Channel::Collective, &wanted, "has not come to this call")?;
        let mut calls = Vec::with_capacity(headers.len() + 1);
        for (header, (from, _)) in headers.into_iter().zip(&wanted) {
            let Some(other) = Call::read(&header) else {
                let message = format!("rank {from} runs another version of this program");
                return Err(Failed::last(fault(call, vec![*from], message)));
            };
            calls.push((*from, other));
            self.transport.recycle(header);
        }
        let of = |kind: Kind| -> Vec<usize> {
            calls.iter().filter(|(_, other)| other.kind == kind).map(|(from, _)| *from).collect()
        };
        let left = if call.kind == Kind::Leave { Vec::new() } else { of(Kind::Leave) };
        if !left.is_empty() {
            let message = format!("{} ended before this call", listed(&left));
            return Err(Failed::last(fault(call, left, message)));
        }
        if call.kind == Kind::Abandon {
            return Ok(());
        }
        let failed = of(Kind::Abandon);
        if !failed.is_empty() {
            let message = format!("{} failed before this call: the error there tells why", listed(&failed));
            return Err(Failed { error: fault(call, failed, message), ends_all: false });
        }
        calls.push((own, call.clone()));
        calls.sort_by_key(|(rank, _)| *rank);
        let first = calls[0].1.clone();
        let differ: Vec<usize> =
            calls.iter().filter(|(_, other)| *other != first).map(|(rank, _)| *rank).collect();
        if differ.is_empty() {
            return Ok(());
        }
        // Ranks that make the same call are listed together.
        let mut told: Vec<(Call, Vec<usize>)> = Vec::new();
        for (rank, other) in calls {
            match told.iter_mut().find(|(known, _)| *known == other) {
                Some((_, ranks)) => ranks.push(rank),
                None => told.push((other, vec![rank])),
            }
        }
        let told: Vec<String> =
            told.iter().map(|(other, ranks)| format!("{}: {other}", listed(ranks))).collect();
        let told = told.join("; ");
        let message = match call.kind {
            Kind::Leave => format!("rank {own} has ended, and other ranks have not: {told}"),
            _ => format!(
                "the ranks call different things, and nothing was sent: {told}; all make the same calls in the same order"
            ),
        };
        Err(Failed { error: fault(call, differ, message), ends_all: call.kind == Kind::Leave })
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.transport.rank();
        (0..self.transport.size()).filter(move |&rank| rank != own)
    }

    fn send(&mut self, to: usize, channel: Channel, message: Words) -> Done<()> {
        self.counters.bytes.fetch_add(message.len() as u64 * 8, Ordering::Relaxed);
        self.counters.messages.fetch_add(1, Ordering::Relaxed);
        self.transport.send(to, channel, message).map_err(Failed::last)
    }

    /// Receives a message of a given number of words from each of some ranks, in their order. Ranks that
    /// have sent none in time are named, and `missing` describes them.
    fn receive(
        &mut self,
        call: &Call,
        channel: Channel,
        wanted: &[(usize, usize)],
        missing: &str,
    ) -> Done<Vec<Words>> {
        let mut found: Vec<Option<Words>> = wanted.iter().map(|_| None).collect();
        let pause = Pause::new();
        loop {
            let mut gone = Vec::new();
            for (slot, &(from, words)) in found.iter_mut().zip(wanted).filter(|(slot, _)| slot.is_none()) {
                match self.transport.try_receive(from, channel, words) {
                    Ok(message) => *slot = message,
                    Err(error) => gone.push((from, error)),
                }
            }
            if !gone.is_empty() {
                let ranks: Vec<usize> = gone.iter().map(|(rank, _)| *rank).collect();
                let told: Vec<String> = gone
                    .into_iter()
                    .map(|(_, error)| match error.kind() {
                        ErrorKind::Distributed { message, .. } => message.clone(),
                        _ => error.to_string(),
                    })
                    .collect();
                return Err(Failed::last(fault(call, ranks, told.join("; "))));
            }
            if found.iter().all(Option::is_some) {
                return Ok(found.into_iter().flatten().collect());
            }
            self.transport.progress().map_err(Failed::last)?;
            let patience = self.patience();
            if pause.0.elapsed() >= patience {
                let late: Vec<usize> =
                    found.iter().zip(wanted).filter(|(slot, _)| slot.is_none()).map(|(_, w)| w.0).collect();
                let message = format!(
                    "{} {missing} within {:.1} s: a rank hangs, was ended, is slower than that, or calls something else",
                    listed(&late),
                    patience.as_secs_f64()
                );
                return Err(Failed::last(fault(call, late, message)));
            }
            pause.rest();
        }
    }

    /// A message with these bytes.
    fn packed(&mut self, data: &[u8]) -> Words {
        let mut message = self.transport.buffer(words_of(data.len()));
        if let Some(last) = message.last_mut() {
            *last = 0;
        }
        bytes_mut(&mut message)[..data.len()].copy_from_slice(data);
        message
    }

    /// The bytes of a rank's piece.
    fn piece_of(&self, call: &Call, rank: usize) -> std::ops::Range<usize> {
        let piece = piece(call.numel(), rank, self.transport.size());
        piece.start * call.dtype.size()..piece.end * call.dtype.size()
    }

    /// This rank's piece, reduced over all ranks. Each rank sends to every other one that rank's piece.
    fn reduce_pieces(&mut self, call: &Call, op: ReduceOp, data: &[u64]) -> Done<Words> {
        for to in self.others() {
            let range = self.piece_of(call, to);
            let message = self.packed(&bytes(data)[range]);
            self.send(to, Channel::Collective, message)?;
        }
        let range = self.piece_of(call, self.transport.rank());
        let parts = self.receive_from_others(call, words_of(range.len()))?;
        Ok(self.reduced(call, op, &bytes(data)[range], parts))
    }

    /// A message of `words` words from every other rank.
    fn receive_from_others(&mut self, call: &Call, words: usize) -> Done<Vec<Words>> {
        let wanted: Vec<(usize, usize)> = self.others().map(|from| (from, words)).collect();
        self.receive(call, Channel::Collective, &wanted, "came to this call and then sent nothing")
    }

    /// Combines this rank's elements and those of the others in the order of the ranks.
    fn reduced(&mut self, call: &Call, op: ReduceOp, own: &[u8], others: Vec<Words>) -> Words {
        let mut out = self.transport.buffer(words_of(own.len()));
        {
            let mut parts: Vec<&[u8]> = others.iter().map(|part| &bytes(part)[..own.len()]).collect();
            parts.insert(self.transport.rank(), own);
            numbers::reduce(op, call.dtype, &parts, &mut bytes_mut(&mut out)[..own.len()]);
        }
        others.into_iter().for_each(|part| self.transport.recycle(part));
        out
    }

    fn all_reduce_small(&mut self, call: &Call, op: ReduceOp, data: Words) -> Done<Words> {
        for to in self.others() {
            let message = self.packed(bytes(&data));
            self.send(to, Channel::Collective, message)?;
        }
        let parts = self.receive_from_others(call, data.len())?;
        let out = self.reduced(call, op, &bytes(&data)[..call.bytes()], parts);
        self.transport.recycle(data);
        Ok(out)
    }

    /// Collects the pieces of all ranks; `own` is the piece of this rank.
    fn gather_pieces(&mut self, call: &Call, own: Words, data: &mut [u64]) -> Done<()> {
        let range = self.piece_of(call, self.transport.rank());
        for to in self.others() {
            let message = self.packed(&bytes(&own)[..range.len()]);
            self.send(to, Channel::Collective, message)?;
        }
        bytes_mut(data)[range.clone()].copy_from_slice(&bytes(&own)[..range.len()]);
        self.transport.recycle(own);
        let wanted: Vec<(usize, usize)> =
            self.others().map(|from| (from, words_of(self.piece_of(call, from).len()))).collect();
        let parts =
            self.receive(call, Channel::Collective, &wanted, "came to this call and then sent no result")?;
        for (part, (from, _)) in parts.into_iter().zip(wanted) {
            let range = self.piece_of(call, from);
            bytes_mut(data)[range.clone()].copy_from_slice(&bytes(&part)[..range.len()]);
            self.transport.recycle(part);
        }
        Ok(())
    }

    /// The elements of all ranks, one after the other.
    fn all_gather(&mut self, call: &Call, data: Words) -> Done<Words> {
        for to in self.others() {
            let message = self.packed(bytes(&data));
            self.send(to, Channel::Collective, message)?;
        }
        let mut parts = self.receive_from_others(call, data.len())?;
        parts.insert(self.transport.rank(), data);
        let each = call.bytes();
        let mut out = self.transport.buffer(words_of(each * parts.len()));
        for (k, part) in parts.into_iter().enumerate() {
            bytes_mut(&mut out)[k * each..(k + 1) * each].copy_from_slice(&bytes(&part)[..each]);
            self.transport.recycle(part);
        }
        Ok(out)
    }

    /// Broadcasts along a binomial tree: in each round, ranks that have the elements send them to ranks that
    /// lack them.
    fn broadcast(&mut self, call: &Call, root: usize, mut data: Words) -> Done<Words> {
        let (size, own) = (self.transport.size(), self.transport.rank());
        let place = (own + size - root) % size;
        let mut step = 1;
        while step < size && place & step == 0 {
            step <<= 1;
        }
        if place != 0 {
            let from = (place - step + root) % size;
            let missing = "came to this call and then sent nothing";
            let found = self.receive(call, Channel::Collective, &[(from, data.len())], missing)?;
            if let Some(message) = found.into_iter().next() {
                self.transport.recycle(std::mem::replace(&mut data, message));
            }
        }
        step >>= 1;
        while step > 0 {
            if place + step < size {
                let message = self.packed(bytes(&data));
                self.send((place + step + root) % size, Channel::Collective, message)?;
            }
            step >>= 1;
        }
        Ok(data)
    }

    fn send_pair(&mut self, to: usize, call: &Call, data: Words) -> Done<()> {
        let mut header = self.transport.buffer(HEADER);
        call.write(&mut header);
        self.send(to, Channel::Pair, header)?;
        self.send(to, Channel::Pair, data)
    }

    fn receive_pair(&mut self, from: usize) -> Done<Answer> {
        let waiting = Call::bare(Kind::Receive);
        let mut next = |words: usize| -> Done<Words> {
            let found =
                self.receive(&waiting, Channel::Pair, &[(from, words)], "has sent this rank nothing")?;
            Ok(found.into_iter().next().unwrap_or_default())
        };
        let header = next(HEADER)?;
        let Some(call) = Call::read(&header).filter(|call| call.kind == Kind::Send) else {
            let message = format!("rank {from} runs another version of this program");
            return Err(Failed::last(fault(&waiting, vec![from], message)));
        };
        let data = next(words_of(call.bytes()))?;
        self.transport.recycle(header);
        Ok(Answer { call, data })
    }
}
