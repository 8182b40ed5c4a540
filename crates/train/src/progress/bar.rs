//! [`Bar`]: one line of a terminal that is written over again and again.

use std::{
    cell::Cell,
    io::{self, Write},
    time::Duration,
};

use web_time::Instant;

/// The least time between two drawings.
const DRAW_INTERVAL: Duration = Duration::from_millis(50);
/// Characters of a line at most: a longer one would wrap on a narrow terminal, and could not be written over.
const LINE_WIDTH: usize = 79;
/// Characters between the brackets.
const BAR_WIDTH: usize = 30;

/// A bar on standard error.
#[derive(Debug, Default)]
pub(super) struct Bar {
    drawn_at: Cell<Option<Instant>>,
    /// Characters of the line that stands there.
    drawn_width: Cell<usize>,
}

impl Bar {
    /// Whether the last drawing is old enough for another.
    pub(super) fn is_due(&self) -> bool {
        self.drawn_at.get().is_none_or(|at| at.elapsed() >= DRAW_INTERVAL)
    }

    /// Draws `title [====>    ] done/total` and the tail.
    pub(super) fn draw(&self, title: &str, done: u64, total: u64, tail: &str) {
        self.drawn_at.set(Some(Instant::now()));
        self.write(&line(title, done, total, tail));
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        if self.drawn_width.get() > 0 {
            self.write("");
        }
    }

    fn write(&self, line: &str) {
        let covered = self.drawn_width.replace(line.chars().count());
        let mut terminal = io::stderr();
        // A closed standard error shows nothing, and that is no reason to stop a training.
        let _ = write!(terminal, "\r{line:covered$}");
        if line.is_empty() {
            let _ = write!(terminal, "\r");
        }
        let _ = terminal.flush();
    }
}

fn line(title: &str, done: u64, total: u64, tail: &str) -> String {
    let share = if total == 0 { 1.0 } else { (done as f64 / total as f64).min(1.0) };
    let filled = (share * BAR_WIDTH as f64) as usize;
    let head = if filled < BAR_WIDTH { ">" } else { "" };
    let bar = format!("{}{head}", "=".repeat(filled));
    let line = format!("{title} [{bar:BAR_WIDTH$}] {done}/{total}{tail}");
    line.chars().take(LINE_WIDTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_a_narrow_terminal() {
        let empty = format!("epoch 1 [>{}] 0/40", " ".repeat(29));
        assert_eq!(line("epoch 1", 0, 40, ""), empty);
        let half = format!("epoch 1 [{}>{}] 20/40, loss 0.5", "=".repeat(15), " ".repeat(14));
        assert_eq!(line("epoch 1", 20, 40, ", loss 0.5"), half);
        for (done, total) in [(40, 40), (50, 40), (0, 0)] {
            assert_eq!(line("é", done, total, ""), format!("é [{}] {done}/{total}", "=".repeat(30)));
        }
        assert_eq!(line(&"é".repeat(200), 1, 2, "").chars().count(), LINE_WIDTH);
    }
}
