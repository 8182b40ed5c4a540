//! The table for people, a row as soon as its case has run.

use std::fmt::Write;

use crate::{case::BUSY_SUFFIX, line::Line};

/// The columns of the table.
pub(crate) struct Table {
    /// The name of the library to compare with.
    pub(crate) peer: Option<String>,
}

/// A row's cells, already words. An absent case has its reason in place of the times.
pub(crate) struct Cells {
    pub(crate) median: String,
    pub(crate) min: String,
    pub(crate) rate: String,
    pub(crate) share: String,
    pub(crate) theirs: String,
    pub(crate) ratio: String,
    pub(crate) note: String,
}

impl Cells {
    pub(crate) fn of(ours: &Line, theirs: Option<&Line>) -> Cells {
        let rate = if let Some(gflops) = ours.gflops {
            format!("{gflops:.1} GFLOP/s")
        } else if let Some(gb_per_s) = ours.gb_per_s {
            format!("{gb_per_s:.1} GB/s")
        } else {
            ours.ns_per_op.map(|ns| format!("{ns:.1} ns each")).unwrap_or_default()
        };
        let mut notes: Vec<String> = Vec::new();
        if let Some(wrong) = &ours.wrong {
            notes.push(format!("WRONG: {wrong}"));
        }
        if let Some(why) = &ours.absent {
            notes.push(format!("absent: {why}"));
        }
        if let (Some(ratio), Some(bytes)) =
            (ours.extra.get("backward_after_over_before"), ours.extra.get("memory_grown_bytes"))
        {
            notes.push(format!("a backward takes {ratio} of before, memory grew by {bytes} bytes"));
        }
        if let Some(peak) = ours.extra.get("peak_mb") {
            let theirs = theirs.and_then(|line| line.extra.get("peak_mb"));
            let theirs = theirs.map_or(String::new(), |peak| format!(", beside {peak} MB"));
            notes.push(format!("at most {peak} MB{theirs}"));
        }
        if let Some(load) = ours.extra.get("load_ms") {
            notes.push(format!("loading alone {load} ms"));
        }
        // Beside a busy process calls are fast or slow, and the median may be either.
        if let Some(mean) = ours.mean_ms.filter(|_| ours.case.ends_with(BUSY_SUFFIX)) {
            let theirs = theirs.and_then(|t| Some(format!(", {}'s {}", t.peer, milliseconds(t.mean_ms?))));
            notes.push(format!("mean {}{} ms", milliseconds(mean), theirs.unwrap_or_default()));
        }
        if let Some(theirs) = theirs.filter(|_| ours.absent.is_none())
            && let Some(why) = &theirs.absent
        {
            notes.push(format!("{}: {why}", theirs.peer));
        }
        Cells {
            median: ours.median_ms.map(milliseconds).unwrap_or_default(),
            min: ours.min_ms.map(milliseconds).unwrap_or_default(),
            rate,
            share: ours.limit_share.map(|share| format!("{:.0} %", share * 100.0)).unwrap_or_default(),
            theirs: theirs.and_then(|line| line.median_ms).map(milliseconds).unwrap_or_default(),
            ratio: theirs.and_then(|t| ours.ratio(t)).map(ratio).unwrap_or_default(),
            note: notes.join("; "),
        }
    }
}

impl Table {
    pub(crate) fn head(&self) -> String {
        let mut head =
            format!("{:38}{:>11}{:>11}{:>17}{:>9}", "case", "median ms", "least ms", "rate", "limit");
        if let Some(peer) = &self.peer {
            let _ = write!(head, "{:>11}{:>9}", format!("{peer} ms"), "ratio");
        }
        head + "\n"
    }

    pub(crate) fn row(&self, ours: &Line, theirs: Option<&Line>) -> String {
        let cells = Cells::of(ours, theirs);
        let mut row = format!(
            "{:38}{:>11}{:>11}{:>17}{:>9}",
            ours.case, cells.median, cells.min, cells.rate, cells.share
        );
        if self.peer.is_some() {
            let _ = write!(row, "{:>11}{:>9}", cells.theirs, cells.ratio);
        }
        let row = if cells.note.is_empty() { row } else { format!("{row}  {}", cells.note) };
        row.trim_end().to_string() + "\n"
    }

    /// In how many cases who is ahead.
    pub(crate) fn summary(&self, rows: &[(Line, Option<Line>)]) -> String {
        let ratios = ratios(rows);
        let Some(peer) = self.peer.as_ref().filter(|_| !ratios.is_empty()) else { return String::new() };
        let ahead = ratios.iter().filter(|(_, ratio)| *ratio > 1.0).count();
        format!("ratio: {peer}'s time over ours. Taper is faster in {ahead} of {} cases\n", ratios.len())
    }
}

/// The cases that both have, and how many times faster Taper is.
pub(crate) fn ratios(rows: &[(Line, Option<Line>)]) -> Vec<(&str, f64)> {
    rows.iter()
        .filter_map(|(ours, theirs)| Some((ours.case.as_str(), ours.ratio(theirs.as_ref()?)?)))
        .collect()
}

/// Three to four digits that mean something.
fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{ms:.4}"),
        ms if ms < 100.0 => format!("{ms:.3}"),
        ms => format!("{ms:.1}"),
    }
}

/// A ratio as in the chart: `0.87x`, `12x`.
pub(crate) fn ratio(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 0.1 => format!("{ratio:.3}x"),
        ratio if ratio < 10.0 => format!("{ratio:.2}x"),
        ratio => format!("{ratio:.1}x"),
    }
}
