//! [`Progress`]: the progress of a training, on a terminal and in a log.

#[cfg(feature = "progress")]
use std::io::IsTerminal;
use std::{
    io::{self, Write},
    time::Duration,
};

#[cfg(feature = "progress")]
use indicatif::{ProgressBar, ProgressStyle};
use tensor_core::{Device, backend::readable_bytes};
use web_time::Instant;

/// The time between two lines if there is no terminal.
const LINES_APART: Duration = Duration::from_secs(10);

/// The progress of a training with the loss, steps per second, the remaining time and a device's memory, on
/// standard error. With the feature `progress` it is a bar on a terminal, similar to tqdm. Without the
/// feature, or if standard error is no terminal, as in a cluster's log, it prints a plain line every ten
/// seconds, and a last one for trainings that took longer than that.
///
/// ```
/// use train::Progress;
/// let mut progress = Progress::new("epoch 1/10", 100);
/// for step in 0..100 {
///     if step % 10 == 0 {
///         progress.loss(0.5); // reading a loss waits for the device: do it rarely
///     }
///     progress.step();
/// }
/// progress.finish();
/// ```
#[derive(Debug)]
pub struct Progress {
    title: String,
    total: u64,
    /// The step at which this run began: not 0 if an epoch is resumed.
    first: u64,
    done: u64,
    loss: Option<f64>,
    device: Option<Device>,
    start: Instant,
    latest_line: Instant,
    /// The bar on a terminal.
    #[cfg(feature = "progress")]
    bar: Option<ProgressBar>,
    /// Whether a line was printed before the last.
    told: bool,
    finished: bool,
}

impl Progress {
    /// The progress of `total` steps.
    pub fn new(title: impl Into<String>, total: u64) -> Progress {
        let now = Instant::now();
        let title = title.into();
        Progress {
            #[cfg(feature = "progress")]
            bar: io::stderr().is_terminal().then(|| terminal_bar(&title, total)),
            title,
            total,
            first: 0,
            done: 0,
            loss: None,
            device: None,
            start: now,
            latest_line: now,
            told: false,
            finished: false,
        }
    }

    /// Begins after `done` steps, if an epoch is resumed. They do not count for the speed.
    #[must_use]
    pub fn after(mut self, done: u64) -> Progress {
        (self.first, self.done) = (done, done);
        self
    }

    /// Also shows the memory that the device's tensors occupy.
    #[must_use]
    pub fn device(mut self, device: &Device) -> Progress {
        self.device = Some(device.clone());
        self
    }

    /// Sets the latest loss.
    pub fn loss(&mut self, loss: f64) {
        self.loss = Some(loss);
    }

    /// Counts a step.
    pub fn step(&mut self) {
        self.done += 1;
        #[cfg(feature = "progress")]
        if let Some(bar) = &self.bar {
            bar.set_prefix(self.tail());
            bar.set_position(self.done);
            return;
        }
        if self.latest_line.elapsed() >= LINES_APART {
            (self.latest_line, self.told) = (Instant::now(), true);
            self.write_line();
        }
    }

    /// Calls `print`, whose output goes above the bar.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        #[cfg(feature = "progress")]
        if let Some(bar) = &self.bar {
            return bar.suspend(print);
        }
        print()
    }

    /// Ends the display: the bar disappears, and a log that has lines gets its last one. Dropping the value
    /// does the same.
    pub fn finish(&mut self) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        #[cfg(feature = "progress")]
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            return;
        }
        if self.told {
            self.write_line();
        }
    }

    /// The text of a log line: `epoch 1/10: 30/100 steps, loss 0.5000, 12.0 steps/s, 6 s left, 1.20 MiB`.
    pub fn line(&self) -> String {
        format!("{}: {}/{} steps{}", self.title, self.done, self.total, self.tail())
    }

    fn write_line(&self) {
        // Errors are ignored: standard error may be closed.
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

/// A bar of `total` steps with the title before it. The prefix of the bar is the text after the count.
#[cfg(feature = "progress")]
fn terminal_bar(title: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(title.to_string());
    match ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len}{prefix}") {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

/// The text after the count of steps; `steps` of them took `elapsed`.
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

/// A duration as `45 s`, `12:05`, `3:04:05`.
fn readable_time(seconds: f64) -> String {
    // The conversion saturates.
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
