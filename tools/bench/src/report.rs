//! The report in Markdown: the measurements, the hardware and the command. It does not contain the user or
//! the folders of the machine.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::{
    Result,
    args::cores,
    case::Bench,
    chart,
    expression::{PREFIX, SHAPES, TORCH},
    line::Line,
    operations::left_out,
    peer::Peer,
    table::{Cells, ratios},
};

const BEGIN: &str = "<!-- bench:begin -->";
const END: &str = "<!-- bench:end -->";

/// The text before and after two marks.
pub(crate) fn around<'a>(text: &'a str, begin: &str, end: &str) -> Option<(&'a str, &'a str)> {
    let (before, rest) = text.split_once(begin)?;
    Some((before, rest.split_once(end)?.1))
}

/// A file to write into, found good before anything is measured.
#[derive(Debug)]
pub(crate) struct Report {
    path: PathBuf,
    before: String,
    after: String,
}

impl Report {
    /// Reads the file, which must have both marks if it is there.
    pub(crate) fn open(path: &Path) -> Result<Report> {
        let shown = path.display();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(format!("--report {shown}: there is no folder {}", folder.display()).into());
        }
        if !path.exists() {
            return Ok(Report { path: path.into(), before: "# Measurements\n\n".into(), after: "\n".into() });
        }
        let text = fs::read_to_string(path).map_err(|error| format!("--report {shown}: {error}"))?;
        let Some((before, after)) = around(&text, BEGIN, END) else {
            return Err(
                format!("--report {shown}: it has no lines {BEGIN} and {END} to write between").into()
            );
        };
        Ok(Report { path: path.into(), before: before.into(), after: after.into() })
    }

    /// Updates the file, and the chart next to it.
    pub(crate) fn write(
        &self,
        bench: &Bench,
        peer: Option<&Peer>,
        rows: &[(Line, Option<Line>)],
        took: Duration,
    ) -> Result<()> {
        let mut text = head(bench, peer, took)?;
        let is_operation = |(ours, _): &&(Line, Option<Line>)| ours.extra.contains_key(TORCH);
        let (operations, rows): (Vec<_>, Vec<_>) = rows.iter().partition(is_operation);
        let rows: Vec<(Line, Option<Line>)> = rows.into_iter().cloned().collect();
        let ratios = ratios(&rows);
        if let Some(Peer { name, version, .. }) = peer.filter(|_| !ratios.is_empty()) {
            let picture = self.path.with_extension("svg");
            let title = format!("Taper's speed over that of {name} {version}, {} threads", bench.threads);
            chart::draw(&picture, &title, &ratios)?;
            let file = picture.file_name().unwrap_or_default().to_string_lossy();
            let _ = writeln!(text, "![How many times faster than {name} each case is]({file})\n");
        }
        if !rows.is_empty() {
            text += &table(&rows, peer.map(|peer| peer.name.as_str()));
        }
        if !operations.is_empty() {
            text += &table_of_operations(&operations, peer.map(|peer| peer.name.as_str()));
        }
        fs::write(&self.path, format!("{}{BEGIN}\n{text}{END}{}", self.before, self.after))?;
        Ok(())
    }
}

/// When, on what, with what.
fn head(bench: &Bench, peer: Option<&Peer>, took: Duration) -> Result<String> {
    let days = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 86_400;
    let commit = said("git", &["rev-parse", "--short", "HEAD"]).map(|c| format!(", commit {c}"));
    let mut facts = vec![
        ("date", date(days)),
        ("device", format!("{} ({})", bench.device, bench.device.info().description)),
        ("processor", taper::cpu().info().description.clone()),
        ("cores, threads used", format!("{}, {}", cores(), bench.threads)),
        ("system", format!("{} on {}", system(), std::env::consts::ARCH)),
        ("Rust", said("rustc", &["--version"]).unwrap_or_else(|| "unknown".into())),
        ("Taper", format!("{}{}", env!("CARGO_PKG_VERSION"), commit.unwrap_or_default())),
    ];
    if let Some(peer) = peer {
        facts.push((&peer.name, format!("{} on {}", peer.version, peer.device)));
    }
    facts.push(("command", format!("`{}`", command(std::env::args().skip(1)))));
    facts.push(("took", format!("{:.0} s", took.as_secs_f64())));
    let mut text = String::from("\n| | |\n|---|---|\n");
    for (name, value) in facts {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    Ok(text + "\n")
}

fn table(rows: &[(Line, Option<Line>)], peer: Option<&str>) -> String {
    let mut text = String::from("| case | median ms | least ms | rate | of the limit |");
    if let Some(peer) = peer {
        let _ = write!(text, " {peer} ms | ratio |");
    }
    text += " note |\n|---|---:|---:|---:|---:|";
    text += if peer.is_some() { "---:|---:|" } else { "" };
    text += "---|\n";
    for (ours, theirs) in rows {
        let cells = Cells::of(ours, theirs.as_ref());
        let _ = write!(
            text,
            "| {} | {} | {} | {} | {} |",
            ours.case, cells.median, cells.min, cells.rate, cells.share
        );
        if peer.is_some() {
            let _ = write!(text, " {} | {} |", cells.theirs, cells.ratio);
        }
        let _ = writeln!(text, " {} |", cells.note.replace('|', "/").replace('\n', " "));
    }
    text + "\n"
}

/// Operations by their ratio, the slowest first; those without one last; and the operations that are not
/// measured.
fn table_of_operations(rows: &[&(Line, Option<Line>)], peer: Option<&str>) -> String {
    let ratio = |(ours, theirs): &(Line, Option<Line>)| ours.ratio(theirs.as_ref()?);
    let mut rows: Vec<&(Line, Option<Line>)> = rows.to_vec();
    rows.sort_by(|a, b| ratio(a).unwrap_or(f64::INFINITY).total_cmp(&ratio(b).unwrap_or(f64::INFINITY)));
    let ratios: Vec<f64> = rows.iter().filter_map(|row| ratio(row)).collect();
    let mut text = String::new();
    let peer_name = peer.unwrap_or("peer");
    if !ratios.is_empty() {
        let least = |least: f64| ratios.iter().filter(|&&ratio| ratio >= least).count();
        let _ = writeln!(
            text,
            "{} operations: {} at least as fast as {peer_name}, {} within 10 % of it or faster.\n",
            ratios.len(),
            least(1.0),
            least(0.9)
        );
    }
    let _ = writeln!(
        text,
        "| operation | {peer_name}'s expression | inputs | ms | {peer_name} ms | ratio | note |"
    );
    text += "|---|---|---|---:|---:|---:|---|\n";
    for (ours, theirs) in rows {
        let cells = Cells::of(ours, theirs.as_ref());
        let extra = |key| ours.extra.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
        let _ = writeln!(
            text,
            "| `{}` | `{}` | {} | {} | {} | {} | {} |",
            ours.case.trim_start_matches(PREFIX),
            extra(TORCH),
            extra(SHAPES),
            cells.median,
            cells.theirs,
            cells.ratio,
            cells.note.replace('|', "/").replace('\n', " ")
        );
    }
    text += "\nNot measured:\n\n";
    for (reason, names) in left_out() {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "- {reason}: {}", names.join(", "));
    }
    text + "\n"
}

/// The command as a user would type it. It shows only the last part of an absolute path, to hide the folders
/// of this machine.
fn command(args: impl Iterator<Item = String>) -> String {
    let mut words = String::from("cargo xtask bench");
    for arg in args {
        let (flag, value) = match arg.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (format!("{flag}="), value.to_string()),
            _ => (String::new(), arg),
        };
        let path = Path::new(&value);
        let name = path.file_name().filter(|_| path.is_absolute());
        let value = name.map_or(value.clone(), |name| name.to_string_lossy().into_owned());
        let _ = write!(words, " {flag}{value}");
    }
    words
}

/// The first line that a program prints, if it can be run.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(|line| line.trim().to_string()).filter(|line| !line.is_empty())
}

/// The system's own name, if it has one.
fn system() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or(std::env::consts::OS.into(), |name| name.trim_matches('"').to_string())
}

/// The date `days` days after 1970-01-01, as year-month-day. After Howard Hinnant's `civil_from_days`.
fn date(days: u64) -> String {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    // Months count from March.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let civil = if month < 10 { month + 3 } else { month - 9 };
    format!("{}-{civil:02}-{day:02}", year + era * 400 + u64::from(civil <= 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        for (days, day) in
            [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_088, "2024-12-31")]
        {
            assert_eq!(date(days), day);
        }
    }

    #[test]
    fn commands_tell_no_places() {
        let args =
            ["--vs-torch", "--python", "/somewhere/bin/python", "--report=/tmp/cpu.md", "--budget", "1"];
        assert_eq!(
            command(args.into_iter().map(String::from)),
            "cargo xtask bench --vs-torch --python python --report=cpu.md --budget 1"
        );
    }

    #[test]
    fn a_report_is_written_between_its_marks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.md");
        fs::write(&path, format!("head\n{BEGIN}\nold\n{END}\nfoot\n")).unwrap();
        let report = Report::open(&path).unwrap();
        assert_eq!((report.before.as_str(), report.after.as_str()), ("head\n", "\nfoot\n"));
        fs::write(&path, "no marks").unwrap();
        assert!(
            Report::open(&path).unwrap_err().to_string().contains("it has no lines <!-- bench:begin -->")
        );
        let nowhere = dir.path().join("nowhere/report.md");
        assert!(Report::open(&nowhere).unwrap_err().to_string().contains("there is no folder"));
    }
}
