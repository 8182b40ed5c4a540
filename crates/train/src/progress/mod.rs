//! [`Progress`]: how far a training is, on a terminal and in a log.

mod bar;

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use tensor_core::{Device, backend::readable_bytes};
use web_time::Instant;

use self::bar::Bar;

/// Between two lines where there is no terminal.
const LINES_APART: Duration = Duration::from_secs(10);

/// A bar with the loss, steps a second, the time left and a device's memory, on standard error. Where that is
/// no terminal, as in a cluster's log, a plain line every ten seconds, and one at the end of what took
/// longer. tqdm's bars.
///
/// ```
/// use train::Progress;
/// let mut progress = Progress::new("epoch 1/10", 100);
/// for step in 0..100 {
///     if step % 10 == 0 {
///         progress.loss(0.5); // reading a loss waits for the device: not at every step
///     }
///     progress.step();
/// }
/// progress.finish();
/// ```
#[derive(Debug)]
pub struct Progress {
    title: String,
    total: u64,
    /// Where this run began: not at 0 where an epoch is gone on with.
    first: u64,
    done: u64,
    loss: Option<f64>,
    device: Option<Device>,
    start: Instant,
    latest_line: Instant,
    /// On a terminal.
    bar: Option<Bar>,
    /// Whether there was a line before the last.
    told: bool,
    finished: bool,
}

impl Progress {
    /// Of `total` steps.
    pub fn new(title: impl Into<String>, total: u64) -> Progress {
        let now = Instant::now();
        let bar = io::stderr().is_terminal().then(Bar::default);
        Progress {
            title: title.into(),
            total,
            first: 0,
            done: 0,
            loss: None,
            device: None,
            start: now,
            latest_line: now,
            bar,
            told: false,
            finished: false,
        }
    }

    /// Begins after `done` steps, where an epoch is gone on with. They do not count for the speed.
    #[must_use]
    pub fn after(mut self, done: u64) -> Progress {
        (self.first, self.done) = (done, done);
        self
    }

    /// Also tells the memory that a device's tensors hold.
    #[must_use]
    pub fn device(mut self, device: &Device) -> Progress {
        self.device = Some(device.clone());
        self
    }

    /// The latest loss.
    pub fn loss(&mut self, loss: f64) {
        self.loss = Some(loss);
    }

    /// One step more.
    pub fn step(&mut self) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            if bar.is_due() {
                bar.draw(&self.title, self.done, self.total, &self.tail());
            }
        } else if self.latest_line.elapsed() >= LINES_APART {
            (self.latest_line, self.told) = (Instant::now(), true);
            self.write_line();
        }
    }

    /// Prints something above the bar.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => {
                bar.clear();
                let printed = print();
                bar.draw(&self.title, self.done, self.total, &self.tail());
                printed
            }
            None => print(),
        }
    }

    /// The end: the bar goes, and a log that has lines of this has its last. Dropping the value is the same.
    pub fn finish(&mut self) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        match &self.bar {
            Some(bar) => bar.clear(),
            None if self.told => self.write_line(),
            None => {}
        }
    }

    /// `epoch 1/10: 30/100 steps, loss 0.5000, 12.0 steps/s, 6 s left, 1.20 MiB`.
    pub fn line(&self) -> String {
        format!("{}: {}/{} steps{}", self.title, self.done, self.total, self.tail())
    }

    fn write_line(&self) {
        // Whoever closed standard error does not want it.
        let _ = writeln!(io::stderr(), "{}", self.line());
    }

    fn tail(&self) -> String {
        let memory = self.device.as_ref().map(|device| device.memory().allocated);
        tail(
            self.loss,
            self.done - self.first,
            self.total.saturating_sub(self.done),
            self.start.elapsed(),
            memory,
        )
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

/// What follows the count of steps, of which `steps` took `elapsed`.
fn tail(loss: Option<f64>, steps: u64, left: u64, elapsed: Duration, memory: Option<u64>) -> String {
    let mut text = loss.map_or(String::new(), |loss| format!(", loss {loss:.4}"));
    let seconds = elapsed.as_secs_f64();
    if steps > 0 && seconds > 0.0 {
        let rate = steps as f64 / seconds;
        text +=
            &if rate < 1.0 { format!(", {:.1} s/step", 1.0 / rate) } else { format!(", {rate:.1} steps/s") };
        if left > 0 {
            text += &format!(", {} left", readable_time(left as f64 / rate));
        }
    }
    if let Some(bytes) = memory {
        text += &format!(", {}", readable_bytes(bytes));
    }
    text
}

/// `45 s`, `12:05`, `3:04:05`.
fn readable_time(seconds: f64) -> String {
    // Saturates at the greatest.
    let seconds = seconds.round() as u64;
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest} s"),
        (0, _) => format!("{minutes}:{rest:02}"),
        _ => format!("{hours}:{minutes:02}:{rest:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_is_known() {
        let tail = |loss, steps, left, seconds, memory| {
            tail(loss, steps, left, Duration::from_secs(seconds), memory)
        };
        assert_eq!(tail(None, 0, 100, 0, None), "");
        assert_eq!(tail(Some(0.5), 30, 70, 10, None), ", loss 0.5000, 3.0 steps/s, 23 s left");
        assert_eq!(tail(None, 2, 300, 10, Some(1 << 20)), ", 5.0 s/step, 25:00 left, 1.00 MiB");
        assert_eq!(tail(Some(f64::NAN), 10, 0, 10, None), ", loss NaN, 1.0 steps/s");
        assert_eq!(readable_time(3600.0 * 30.0 + 65.4), "30:01:05");
        assert!(!readable_time(f64::INFINITY).is_empty());
    }

    #[test]
    fn steps_before_do_not_count_for_the_speed() {
        let mut progress = Progress::new("epoch 2/3", 10).after(4);
        (0..2).for_each(|_| progress.step());
        assert!(progress.line().starts_with("epoch 2/3: 6/10 steps, "), "{}", progress.line());
        progress.finish();
    }
}
