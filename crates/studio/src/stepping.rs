//! [`step`]: a training step under the studio's eyes.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use inspect::{find_anomaly, memory_snapshot, profile};
use tensor_core::Result;
use web_time::Instant;

use crate::{
    aside,
    record::{is_recording, with},
    reports::{show_limits, show_memory, show_profile},
};

/// The time between two points of the curves of pace and memory.
const POINT_INTERVAL: Duration = Duration::from_millis(100);
/// The share of the time outside of steps from which on the loader is reported.
const MAX_SHARE_OUTSIDE: f64 = 0.4;
/// The number of steps over which that share is taken.
const SHARE_STEPS: u32 = 50;
/// The step that is profiled without being asked: the ones before it compile kernels and fill caches.
const PROFILED_STEP: u32 = 3;

/// The request of the page for the next step.
static ASKED: AtomicU8 = AtomicU8::new(NO_REQUEST);
const NO_REQUEST: u8 = 0;
const PROFILE: u8 = 1;
const ANOMALY: u8 = 2;
const MEMORY: u8 = 3;
const LIMITS: u8 = 4;

/// Asks for a profile, a search for the first NaN, or a list of memory in the next step, or for the limits of
/// devices before it; false for any other name.
pub(crate) fn ask(name: &str) -> bool {
    let asked = match name {
        "profile" => PROFILE,
        "anomaly" => ANOMALY,
        "memory" => MEMORY,
        "limits" => LIMITS,
        _ => return false,
    };
    ASKED.store(asked, Ordering::Relaxed);
    true
}

static PACE: Mutex<Option<Pace>> = Mutex::new(None);

/// Sums since the last point of the curves, and since the last judgement of the loader.
struct Pace {
    calls: u32,
    ended: Instant,
    point: Instant,
    steps_since_point: u32,
    steps: u32,
    inside: Duration,
    outside: Duration,
}

/// Runs a step of a training and returns its result. While the studio records, it adds the curves
/// `pace/steps per second` and `memory/…`, reports an error of the step, and says when most of the time
/// passes between steps. The third step, and each step for which the page asks, runs under
/// [`inspect::profile`] and is shown with its numbers; or under [`inspect::find_anomaly`].
///
/// Time between steps counts as loading, except for that in functions of this crate and in
/// [`Aside`](crate::Aside).
///
/// # Errors
/// The errors of `f`; `Invalid` if the page asked for a profile during another one.
#[track_caller]
pub fn step<T>(number: u64, f: impl FnOnce() -> Result<T>) -> Result<T> {
    if !is_recording() {
        return f();
    }
    if ASKED.compare_exchange(LIMITS, NO_REQUEST, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        list_limits(number);
    }
    let begun = Instant::now();
    let calls = PACE.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, |pace| pace.calls) + 1;
    let asked = match ASKED.swap(NO_REQUEST, Ordering::Relaxed) {
        NO_REQUEST if calls == PROFILED_STEP => PROFILE,
        asked => asked,
    };
    let done = match asked {
        PROFILE => profile(f).map(|profiled| {
            show_profile(&profiled, number);
            list_memory(number);
            profiled.value
        }),
        ANOMALY => find(number, f),
        MEMORY => f().inspect(|_| list_memory(number)),
        _ => f(),
    };
    if let Err(error) = &done {
        let hint = "The text names the operation and the line where they are known.";
        with(|record| {
            record.trouble(format!("error {error}"), number, "A step failed", &error.to_string(), hint)
        });
    }
    if done.is_ok() {
        with(|record| record.look_at_gradients(number));
    }
    note_pace(number, calls, begun, asked == NO_REQUEST);
    done
}

fn list_limits(number: u64) {
    for device in with(|record| record.devices.clone()).unwrap_or_default() {
        if let Err(error) = show_limits(&device) {
            let title = format!("The limits of {device} cannot be measured");
            let hint = "Profiles show its kernels without them.";
            with(|record| {
                record.trouble(format!("limits {device}"), number, &title, &error.to_string(), hint)
            });
        }
    }
}

fn list_memory(number: u64) {
    if let Ok(snapshot) = memory_snapshot() {
        show_memory(&snapshot, number);
    }
}

/// Runs a step and reports the first operation in it that made a NaN or an infinity.
fn find<T>(number: u64, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let (done, anomaly) = find_anomaly(f)?;
    with(|record| match &anomaly {
        Some(anomaly) => record.anomaly(anomaly, number),
        None => record.note_search(number),
    });
    done
}

/// Adds a step to the sums, and passes them on when they are due. A step that was profiled is left out.
fn note_pace(number: u64, calls: u32, begun: Instant, counts: bool) {
    let now = Instant::now();
    let mut pace = PACE.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = Pace {
        calls,
        ended: now,
        point: now,
        steps_since_point: 0,
        steps: 0,
        inside: Duration::ZERO,
        outside: Duration::ZERO,
    };
    let Some(sums) = pace.as_mut().filter(|_| counts) else {
        aside::take();
        *pace = Some(fresh);
        return;
    };
    sums.calls = calls;
    sums.steps += 1;
    sums.steps_since_point += 1;
    sums.inside += now - begun;
    let aside = aside::take();
    sums.outside += begun.saturating_duration_since(sums.ended).saturating_sub(aside);
    sums.ended = now;
    if now - sums.point >= POINT_INTERVAL {
        let rate = f64::from(sums.steps_since_point) / (now - sums.point).as_secs_f64();
        (sums.point, sums.steps_since_point) = (now, 0);
        with(|record| {
            let run = record.current_run();
            record.scalar(&run, "pace/steps per second", rate, number);
            for device in record.devices.clone() {
                let (memory, name) = (device.memory(), device.name());
                record.scalar(&run, &format!("memory/allocated on {name}"), memory.allocated as f64, number);
                record.scalar(&run, &format!("memory/peak on {name}"), memory.peak as f64, number);
            }
        });
    }
    if sums.steps >= SHARE_STEPS {
        let share = sums.outside.as_secs_f64() / (sums.inside + sums.outside).as_secs_f64().max(1e-9);
        (sums.steps, sums.inside, sums.outside) = (0, Duration::ZERO, Duration::ZERO);
        if share > MAX_SHARE_OUTSIDE {
            with(|record| {
                record.trouble(
                    "loader".into(),
                    number,
                    "The loader may starve the device",
                    &format!("{:.0} % of the time of {SHARE_STEPS} steps passed between them.", share * 100.0),
                    "Give the DataLoader workers, prepare data once in advance, or read values such as the loss \
                     less often: reading waits for the device.",
                );
            });
        }
    }
}
