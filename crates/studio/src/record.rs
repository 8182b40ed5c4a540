//! The recorded events: JSON objects in the order in which they came, which the page reads from a number on.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use inspect::record_layer_calls;
use serde_json::{Value, json};
use tensor_core::{Device, Tensor};
use web_time::Instant;

/// The greatest number of events, and of bytes of their texts. Beyond them every second curve point of the
/// older half is dropped, then the oldest events of all kinds except the names of runs.
const MAX_EVENTS: usize = 200_000;
const MAX_BYTES: usize = 128 << 20;
/// The greatest number of bytes of an event; a larger one is replaced by a note about it.
const MAX_EVENT_BYTES: usize = MAX_BYTES / 8;
/// The greatest numbers of runs and of other names that are kept: more runs are one run, and more names are
/// not kept.
const MAX_RUNS: usize = 1000;
pub(crate) const MAX_NAMES: usize = 100_000;
/// The greatest number of troubles that are reported.
pub(crate) const MAX_TROUBLES: usize = 1000;
/// The name of the run of all that come after the greatest number of runs.
const MORE_RUNS: &str = "more runs";

static RECORDING: AtomicBool = AtomicBool::new(false);
static RECORD: Mutex<Option<Record>> = Mutex::new(None);

pub(crate) struct Record {
    begin: Instant,
    events: Vec<Event>,
    /// The bytes of the events' texts.
    bytes: usize,
    /// The number of the next event; they begin at 1.
    next: u64,
    runs: Vec<String>,
    /// The devices of the shown model, whose memory becomes a curve.
    pub(crate) devices: Vec<Device>,
    /// The names of the shown models' tensors, by id.
    pub(crate) names: HashMap<u64, String>,
    /// The norms of gradients so far, by run and name.
    pub(crate) norms: HashMap<(usize, String), Norms>,
    /// Troubles that were reported, so that each is reported once.
    pub(crate) reported: Vec<String>,
    /// The parameters of the shown models that have had no gradient so far.
    pub(crate) watched: Watched,
}

/// Parameters that require gradients and have had none in any step so far.
#[derive(Default)]
pub(crate) struct Watched {
    /// The name of the model, the path, and the parameter.
    pub(crate) parameters: Vec<(String, String, Tensor)>,
    /// The steps since the first one after which a parameter had a gradient, itself included.
    pub(crate) steps: u32,
}

/// The running mean of the norms of one gradient.
#[derive(Default)]
pub(crate) struct Norms {
    pub(crate) mean: f64,
    pub(crate) count: u32,
}

struct Event {
    number: u64,
    kind: Kind,
    json: String,
}

/// The treatment of an event when there are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A point of a curve, one of many: the first to be dropped.
    Point,
    /// A report or a note: dropped when points do not suffice.
    Report,
    /// The name of a run, which other events refer to: never dropped.
    Run,
}

impl Record {
    pub(crate) fn push(&mut self, kind: Kind, event: &Value) {
        let mut json = event.to_string();
        if json.len() > MAX_EVENT_BYTES {
            let text =
                format!("A report of {} bytes ({}) is too large to be kept.", json.len(), event["kind"]);
            let run = self.run(&self.current_run());
            json = json!({"kind": "text", "run": run, "tag": "studio", "step": 0, "text": text}).to_string();
        }
        self.bytes += json.len();
        self.events.push(Event { number: self.next, kind, json });
        self.next += 1;
        if self.is_full() {
            self.drop_some();
        }
    }

    /// Whether the events take more than they may.
    fn is_full(&self) -> bool {
        self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES
    }

    /// Drops events until the rest takes at most 7/8 of what it may, so that this is seldom.
    fn drop_some(&mut self) {
        let (half, mut position, mut keep) = (self.events.len() / 2, 0, false);
        self.events.retain(|event| {
            position += 1;
            if event.kind == Kind::Point {
                keep = !keep;
            }
            position > half || event.kind != Kind::Point || keep
        });
        self.bytes = self.events.iter().map(|event| event.json.len()).sum();
        let mut first = 0;
        let (mut count, mut bytes) = (self.events.len(), self.bytes);
        while first < self.events.len() && (8 * count > 7 * MAX_EVENTS || bytes > MAX_BYTES / 8 * 7) {
            if self.events[first].kind != Kind::Run {
                count -= 1;
                bytes -= self.events[first].json.len();
            }
            first += 1;
        }
        let mut position = 0;
        self.events.retain(|event| {
            position += 1;
            position > first || event.kind == Kind::Run
        });
        self.bytes = bytes;
    }

    /// The seconds since recording began.
    pub(crate) fn time(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// The index of a run; an event introduces a new one.
    pub(crate) fn run(&mut self, name: &str) -> usize {
        let name = match self.runs.len() < MAX_RUNS || self.runs.iter().any(|run| run == name) {
            true => name,
            false => MORE_RUNS,
        };
        if let Some(run) = self.runs.iter().position(|run| run == name) {
            return run;
        }
        self.runs.push(name.into());
        let run = self.runs.len() - 1;
        self.push(Kind::Run, &json!({"kind": "run", "run": run, "name": name}));
        run
    }

    /// The name of the run that began last, for events that name none.
    pub(crate) fn current_run(&self) -> String {
        self.runs.last().cloned().unwrap_or_else(|| "run".into())
    }

    pub(crate) fn scalar(&mut self, run: &str, tag: &str, value: f64, step: u64) {
        let (run, time) = (self.run(run), self.time());
        // JSON has neither NaN nor infinities: they become null, and a trouble says which it was.
        let event =
            json!({"kind": "scalar", "run": run, "tag": tag, "step": step, "time": time, "value": value});
        self.push(Kind::Point, &event);
        self.look_at_scalar(run, tag, value, step);
    }
}

fn lock() -> MutexGuard<'static, Option<Record>> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `f` with the record, if there is one.
pub(crate) fn with<T>(f: impl FnOnce(&mut Record) -> T) -> Option<T> {
    if !is_recording() {
        return None;
    }
    lock().as_mut().map(f)
}

/// Whether [`serve`](crate::serve) or [`record`] was called.
#[must_use]
pub fn is_recording() -> bool {
    RECORDING.load(Ordering::Relaxed)
}

/// Begins to keep data in memory for [`save`](crate::save), without a server. A second call changes nothing.
pub fn record() {
    lock().get_or_insert_with(|| Record {
        begin: Instant::now(),
        events: Vec::new(),
        bytes: 0,
        next: 1,
        runs: Vec::new(),
        devices: Vec::new(),
        names: HashMap::new(),
        norms: HashMap::new(),
        reported: Vec::new(),
        watched: Watched::default(),
    });
    // Graphs and profiles are shown by layer.
    record_layer_calls(true);
    RECORDING.store(true, Ordering::Relaxed);
}

/// A point of a curve: `/` in tags makes groups. NaN and infinities are shown as troubles.
pub fn scalar(run: &str, tag: &str, value: f64, step: u64) {
    with(|record| record.scalar(run, tag, value, step));
}

/// A histogram: `counts[k]` is the number of values from `limits[k - 1]` to `limits[k]`. The first count
/// has no lower limit.
pub fn histogram(run: &str, tag: &str, limits: &[f64], counts: &[f64], step: u64) {
    with(|record| {
        let run = record.run(run);
        record.push(
            Kind::Point,
            &json!({"kind": "histogram", "run": run, "tag": tag, "step": step, "limits": limits, "counts": counts}),
        );
    });
}

/// A note of a run.
pub fn text(run: &str, tag: &str, text: &str, step: u64) {
    with(|record| {
        let run = record.run(run);
        record
            .push(Kind::Report, &json!({"kind": "text", "run": run, "tag": tag, "step": step, "text": text}));
    });
}

/// The recorded events with a number above `after`, as JSON: `{"next": 7, "events": […]}`, where `next` is
/// the last number. It feeds a page of one's own that shows the studio's sections (the folder `page` of this
/// crate, from `component.js` on).
///
/// ```
/// studio::record();
/// studio::scalar("first", "loss", 0.5, 0);
/// assert!(studio::events_after(0).contains(r#""tag":"loss""#));
/// ```
#[must_use]
pub fn events_after(after: u64) -> String {
    part_after(after, usize::MAX)
}

/// [`events_after`], with the first events until they have `most` bytes: `next` is the number of the
/// last of them.
pub(crate) fn part_after(after: u64, most: usize) -> String {
    let record = lock();
    let (events, next) = record.as_ref().map_or((&[][..], 1), |record| (&record.events[..], record.next));
    let events = &events[events.partition_point(|event| event.number <= after)..];
    let (mut bytes, mut count) = (0usize, 0);
    while count < events.len() && (count == 0 || bytes <= most) {
        bytes += events[count].json.len();
        count += 1;
    }
    let part = &events[..count];
    let last = match part.last() {
        Some(last) if count < events.len() => last.number,
        _ => next - 1,
    };
    let texts: Vec<&str> = part.iter().map(|event| event.json.as_str()).collect();
    format!("{{\"next\":{last},\"events\":[{}]}}", texts.join(","))
}
