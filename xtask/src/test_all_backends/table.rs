//! The one table at the end: backend by crate, passed, failed, skipped and why.

use std::fmt::{self, Display, Write as _};

use super::libtest::Tally;

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The device the tests ran on, or `-` if they need none.
    pub(crate) backend: String,
    /// The crate, or what else was tested.
    pub(crate) name: String,
    pub(crate) tally: Tally,
}

/// Every row, in the order of their runs.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
}

impl Table {
    /// Adds to the row of this backend and crate, which is made if there is none.
    pub(crate) fn add(&mut self, backend: &str, name: &str, tally: Tally) {
        match self.rows.iter_mut().find(|row| row.backend == backend && row.name == name) {
            Some(row) => row.tally.add(tally),
            None => self.rows.push(Row { backend: backend.to_string(), name: name.to_string(), tally }),
        }
    }

    /// All rows as one.
    pub(crate) fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.rows.iter().for_each(|row| total.add(row.tally.clone()));
        total
    }

    /// Every failure with where it happened.
    pub(crate) fn failures(&self) -> impl Iterator<Item = String> {
        self.rows.iter().flat_map(|row| {
            let place = if row.backend == "-" {
                row.name.clone()
            } else {
                format!("{} on {}", row.name, row.backend)
            };
            row.tally.failures.iter().map(move |failure| format!("{place}: {failure}"))
        })
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["backend", "crate", "passed", "failed", "skipped", "seconds", "kernels", "why"]
            .map(str::to_string);
        let rows: Vec<[String; 8]> = std::iter::once(header).chain(self.rows.iter().map(cells)).collect();
        let width =
            |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let widths: [usize; 7] = std::array::from_fn(width);
        for (index, row) in rows.iter().enumerate() {
            let [backend, name, passed, failed, skipped, seconds, kernels, why] = row;
            let [b, n, p, x, s, t, k] = widths;
            let line = format!(
                "{backend:b$}  {name:n$}  {passed:>p$}  {failed:>x$}  {skipped:>s$}  {seconds:>t$}  {kernels:>k$}  {why}"
            );
            writeln!(f, "{}", line.trim_end())?;
            if index == 0 {
                writeln!(f, "{}", "-".repeat(widths.iter().sum::<usize>() + 2 * 7 + 3))?;
            }
        }
        Ok(())
    }
}

fn cells(Row { backend, name, tally }: &Row) -> [String; 8] {
    let number = |n: usize| n.to_string();
    [
        backend.clone(),
        name.clone(),
        number(tally.passed),
        number(tally.failed),
        number(tally.skipped),
        format!("{:.0}", tally.seconds),
        if tally.kernels == 0 { String::new() } else { number(tally.kernels) },
        why(tally),
    ]
}

/// `failed: ops::exp; skipped: needs f64 (12)`.
fn why(tally: &Tally) -> String {
    const NAMED: usize = 2;
    let mut why = String::new();
    if !tally.failures.is_empty() {
        let named = tally.failures.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let _ = write!(why, "failed: {named}");
        if tally.failures.len() > NAMED {
            let _ = write!(why, " and {} more", tally.failures.len() - NAMED);
        }
    }
    if !tally.reasons.is_empty() {
        let only = tally.reasons.len() == 1;
        let reasons: Vec<String> = tally
            .reasons
            .iter()
            .map(|(reason, count)| {
                let reason = if reason.is_empty() { "no reason given" } else { reason };
                if only { reason.to_string() } else { format!("{reason} ({count})") }
            })
            .collect();
        let gap = if why.is_empty() { "" } else { "; " };
        let _ = write!(why, "{gap}skipped: {}", reasons.join(", "));
    }
    why
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn tally(passed: usize, failures: &[&str], reasons: &[(&str, usize)]) -> Tally {
        Tally {
            passed,
            failed: failures.len(),
            skipped: reasons.iter().map(|(_, count)| count).sum(),
            reasons: BTreeMap::from_iter(reasons.iter().map(|(reason, count)| (reason.to_string(), *count))),
            failures: failures.iter().map(|name| name.to_string()).collect(),
            results: 1,
            seconds: 12.6,
            kernels: 0,
            times: Vec::new(),
        }
    }

    fn sample() -> Table {
        let mut table = Table::default();
        table.add("-", "tensor-core", tally(100, &[], &[]));
        table.add("-", "tensor-core", tally(20, &[], &[]));
        table.add("cpu", "taper", tally(1200, &["a", "b", "c"], &[("", 1)]));
        let on_gpu = Tally { kernels: 250, ..tally(1100, &[], &[("no f64", 100), ("no i64", 4)]) };
        table.add("wgpu:0", "taper", on_gpu);
        table.add("wgpu", "taper", tally(0, &[], &[("no adapter: install one", 1204)]));
        table
    }

    #[test]
    fn the_table_lines_up() {
        let expected = "\
backend  crate        passed  failed  skipped  seconds  kernels  why
--------------------------------------------------------------------
-        tensor-core     120       0        0       25
cpu      taper          1200       3        1       13           failed: a, b and 1 more; skipped: no reason given
wgpu:0   taper          1100       0      104       13      250  skipped: no f64 (100), no i64 (4)
wgpu     taper             0       0     1204       13           skipped: no adapter: install one
";
        assert_eq!(sample().to_string(), expected);
    }

    #[test]
    fn totals_and_failures_are_gathered() {
        let total = sample().total();
        assert_eq!((total.passed, total.failed, total.skipped), (2420, 3, 1309));
        assert_eq!(
            sample().failures().collect::<Vec<_>>(),
            ["taper on cpu: a", "taper on cpu: b", "taper on cpu: c"]
        );
    }

    #[test]
    fn an_empty_table_is_its_header() {
        assert_eq!(Table::default().to_string().lines().count(), 2);
    }
}
