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
use tensor_core::Device;
use web_time::Instant;

/// The greatest number of events. Beyond it, every second curve point of the older half is dropped.
const MAX_EVENTS: usize = 200_000;

static RECORDING: AtomicBool = AtomicBool::new(false);
static RECORD: Mutex<Option<Record>> = Mutex::new(None);

pub(crate) struct Record {
    begin: Instant,
    events: Vec<Event>,
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
}

/// The running mean of the norms of one gradient.
#[derive(Default)]
pub(crate) struct Norms {
    pub(crate) mean: f64,
    pub(crate) count: u32,
}

struct Event {
    number: u64,
    /// Whether it may be dropped when there are too many.
    is_point: bool,
    json: String,
}

impl Record {
    pub(crate) fn push(&mut self, is_point: bool, event: &Value) {
        if self.events.len() >= MAX_EVENTS {
            let (half, mut keep) = (self.events.len() / 2, false);
            let mut position = 0;
            self.events.retain(|event| {
                position += 1;
                keep = !keep;
                position > half || !event.is_point || keep
            });
        }
        self.events.push(Event { number: self.next, is_point, json: event.to_string() });
        self.next += 1;
    }

    /// The seconds since recording began.
    pub(crate) fn time(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// The index of a run; an event introduces a new one.
    pub(crate) fn run(&mut self, name: &str) -> usize {
        if let Some(run) = self.runs.iter().position(|run| run == name) {
            return run;
        }
        self.runs.push(name.into());
        let run = self.runs.len() - 1;
        self.push(false, &json!({"kind": "run", "run": run, "name": name}));
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
        self.push(true, &event);
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
        next: 1,
        runs: Vec::new(),
        devices: Vec::new(),
        names: HashMap::new(),
        norms: HashMap::new(),
        reported: Vec::new(),
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
            true,
            &json!({"kind": "histogram", "run": run, "tag": tag, "step": step, "limits": limits, "counts": counts}),
        );
    });
}

/// A note of a run.
pub fn text(run: &str, tag: &str, text: &str, step: u64) {
    with(|record| {
        let run = record.run(run);
        record.push(false, &json!({"kind": "text", "run": run, "tag": tag, "step": step, "text": text}));
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
    let record = lock();
    let (events, next) = record.as_ref().map_or((&[][..], 1), |record| (&record.events[..], record.next));
    let start = events.partition_point(|event| event.number <= after);
    let texts: Vec<&str> = events[start..].iter().map(|event| event.json.as_str()).collect();
    format!("{{\"next\":{},\"events\":[{}]}}", next - 1, texts.join(","))
}
