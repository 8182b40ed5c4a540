//! The table of counts: `counts.tsv` in this crate, which is checked in, and the page that shows it.

use std::{collections::BTreeMap, fmt::Write, fs, path::PathBuf};

use backend_wgpu::Counts;

use super::gpus::GPUS;
use crate::{Result, report::around};

const PAGE: &str = "docs/benchmarks/counts.md";
const BEGIN: &str = "<!-- counts:begin -->";
const END: &str = "<!-- counts:end -->";

/// The counts of a case.
pub(super) struct Row {
    pub(super) case: String,
    pub(super) counts: Counts,
    /// The bytes that the task has to read and write at least, where that is known.
    pub(super) least_bytes: Option<u64>,
}

/// A column: its name, and its value in a row.
type Column = (&'static str, fn(&Row) -> u64);

const COLUMNS: &[Column] = &[
    ("kernels", |row| row.counts.kernels.len() as u64),
    ("dispatches", |row| row.counts.dispatches),
    ("hazards", |row| row.counts.hazards),
    ("submissions", |row| row.counts.submissions),
    ("before_first", |row| row.counts.before_first),
    ("bind_groups", |row| row.counts.bind_groups),
    ("buffers", |row| row.counts.buffers),
    ("read_backs", |row| row.counts.read_backs),
    ("pipelines", |row| row.counts.pipelines),
    ("kib", |row| row.bytes().div_ceil(1024)),
    ("least_kib", |row| row.least_bytes.unwrap_or(0).div_ceil(1024)),
    ("kflop", |row| row.flops().div_ceil(1000)),
    ("peak_kib", |row| row.counts.peak_bytes.div_ceil(1024)),
    ("reserved_kib", |row| row.counts.reserved_bytes.div_ceil(1024)),
];

impl Row {
    fn bytes(&self) -> u64 {
        self.counts.kernels.iter().map(|kernel| kernel.bytes).sum()
    }

    fn flops(&self) -> u64 {
        self.counts.kernels.iter().map(|kernel| kernel.flops).sum()
    }

    fn values(&self) -> Vec<u64> {
        COLUMNS.iter().map(|(_, value)| value(self)).collect()
    }

    /// The launches, their dispatches and bytes by kernel, those with the most dispatches first.
    pub(super) fn by_kernel(&self) -> String {
        let mut kinds: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
        for kernel in &self.counts.kernels {
            let (launches, dispatches, bytes) = kinds.entry(kernel.name).or_default();
            *launches += 1;
            *dispatches += kernel.dispatches;
            *bytes += kernel.bytes;
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, (_, dispatches, _))| std::cmp::Reverse(*dispatches));
        let mut text = format!("{}\n", self.case);
        for (name, (launches, dispatches, bytes)) in kinds {
            let _ = writeln!(text, "  {name:<16} {launches:>6} {dispatches:>6} {:>10} KiB", bytes / 1024);
        }
        text
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The rows with tabs between the columns, as in `counts.tsv`.
pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::from("case");
    COLUMNS.iter().for_each(|(name, _)| text.extend(["\t", name]));
    text.push('\n');
    for row in rows {
        text += &row.case;
        row.values().iter().for_each(|value| {
            let _ = write!(text, "\t{value}");
        });
        text.push('\n');
    }
    text
}

/// Replaces `counts.tsv` and the table of the page.
pub(super) fn write(rows: &[Row]) -> Result<()> {
    fs::write(path("counts.tsv"), text(rows))?;
    let page = path("../..").join(PAGE);
    let old = fs::read_to_string(&page)?;
    let (before, after) =
        around(&old, BEGIN, END).ok_or_else(|| format!("{PAGE} lacks the lines {BEGIN} and {END}"))?;
    fs::write(page, format!("{before}{BEGIN}\n{}{END}{after}", markdown(rows)))?;
    println!("{PAGE} and tools/bench/counts.tsv are written");
    Ok(())
}

/// Fails with every difference between these rows and `counts.tsv`.
pub(super) fn check(rows: &[Row]) -> Result<()> {
    let kept = fs::read_to_string(path("counts.tsv")).map_err(|error| {
        format!("tools/bench/counts.tsv: {error}; `cargo xtask bench --count --write` writes it")
    })?;
    let differences = differences(&kept, rows)?;
    if differences.is_empty() {
        println!("{} cases have the counts of tools/bench/counts.tsv", rows.len());
        return Ok(());
    }
    Err(format!(
        "counts differ from tools/bench/counts.tsv; if that is meant, run `cargo xtask bench --count --write`\n  {}",
        differences.join("\n  ")
    )
    .into())
}

fn differences(kept: &str, rows: &[Row]) -> Result<Vec<String>> {
    let mut lines = kept.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split('\t').skip(1).collect();
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    if head != names {
        return Err(
            "tools/bench/counts.tsv has other columns: run `cargo xtask bench --count --write`".into()
        );
    }
    let kept: BTreeMap<&str, Vec<&str>> = lines
        .filter_map(|line| {
            let mut cells = line.split('\t');
            Some((cells.next()?, cells.collect()))
        })
        .collect();
    let mut found = Vec::new();
    for row in rows {
        let Some(cells) = kept.get(row.case.as_str()) else {
            found.push(format!("{}: not in the table", row.case));
            continue;
        };
        for (k, value) in row.values().iter().enumerate() {
            let old = cells.get(k).copied().unwrap_or("nothing");
            if old != value.to_string() {
                found.push(format!("{}: {} {old} -> {value}", row.case, names[k]));
            }
        }
    }
    Ok(found)
}

/// Two tables: the counts, and the predictions.
fn markdown(rows: &[Row]) -> String {
    let mib = |bytes: u64| format!("{:.2}", bytes as f64 / f64::from(1 << 20));
    let mut text = String::from(
        "\n| case | dispatches | hazards | submissions | bind groups | buffers | read-backs | MiB moved | least \
         | Mflop | peak MiB |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in rows {
        let counts = &row.counts;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.2} | {} |",
            row.case,
            counts.dispatches,
            counts.hazards,
            counts.submissions,
            counts.bind_groups,
            counts.buffers,
            counts.read_backs,
            mib(row.bytes()),
            row.least_bytes.map(mib).unwrap_or_default(),
            row.flops() as f64 / 1e6,
            mib(counts.peak_bytes),
        );
    }
    text += "\nPredicted, not measured, milliseconds:\n\n| case |";
    GPUS.iter().for_each(|gpu| text.extend([" ", gpu.name, " |"]));
    text += "\n|---|";
    GPUS.iter().for_each(|_| text += "--:|");
    text.push('\n');
    for row in rows {
        let _ = write!(text, "| {} |", row.case);
        for gpu in GPUS {
            let _ = write!(text, " {:.3} |", gpu.microseconds(&row.counts) / 1e3);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(least_bytes: u64) -> Row {
        Row { case: "one".into(), counts: Counts::default(), least_bytes: Some(least_bytes) }
    }

    #[test]
    fn differences_name_the_case_the_column_and_both_numbers() -> Result<()> {
        let kept = text(&[row(2048)]);
        assert_eq!(differences(&kept, &[row(2048)])?, Vec::<String>::new());
        assert_eq!(differences(&kept, &[row(4096)])?, ["one: least_kib 2 -> 4"]);
        let other = Row { case: "two".into(), ..row(0) };
        assert_eq!(differences(&kept, &[other])?, ["two: not in the table"]);
        assert!(differences("case\tdispatches\n", &[row(0)]).is_err());
        Ok(())
    }
}
