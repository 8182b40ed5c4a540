//! [`RunLog`]: numbers by step in a text file, for a spreadsheet, pandas, or a plot.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};
use tensor_core::{
    Error, ErrorKind, Result,
    file::{read_regular_text, write_whole},
};

const OP: &str = "RunLog";

/// A text file of numbers by step: CSV with a column for each name, or one JSON object per line.
///
/// Each row is passed to the system at once. A training that resumes after step n keeps the rows up to n and
/// writes the later ones again, so that the file of a run that was killed equals that of one that was not.
///
/// ```
/// use train::RunLog;
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("run.csv");
/// let mut log = RunLog::csv(&path, &["loss", "accuracy"])?;
/// log.write(10, &[("loss", 0.5), ("accuracy", 0.8)])?;
/// log.write(20, &[("loss", 0.25)])?;
/// # drop(log);
/// assert_eq!(std::fs::read_to_string(&path).unwrap(), "step,loss,accuracy\n10,0.5,0.8\n20,0.25,\n");
///
/// // Later, from the checkpoint of step 10 on:
/// let mut log = RunLog::resume_csv(&path, &["loss", "accuracy"], 10)?;
/// log.write(20, &[("loss", 0.125), ("accuracy", 0.9)])?;
/// assert_eq!(std::fs::read_to_string(&path).unwrap(), "step,loss,accuracy\n10,0.5,0.8\n20,0.125,0.9\n");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct RunLog {
    path: PathBuf,
    file: File,
    /// The columns of a CSV file; none for JSON lines.
    columns: Option<Vec<String>>,
}

impl RunLog {
    /// A new CSV file with a column `step` and one for each name.
    ///
    /// # Errors
    /// Duplicate column names, or names with a comma, quote or line break; `File` for a file that exists
    /// already, or cannot be written.
    #[track_caller]
    pub fn csv(path: impl AsRef<Path>, columns: &[&str]) -> Result<RunLog> {
        let header = header(columns)?;
        RunLog::create(path.as_ref(), Some(columns), &format!("{header}\n"))
    }

    /// A new file of JSON objects, one per line: `{"loss":0.5,"step":10}`. NaN and infinity are written as
    /// null.
    ///
    /// # Errors
    /// `File` for a file that exists already, or cannot be written.
    #[track_caller]
    pub fn json_lines(path: impl AsRef<Path>) -> Result<RunLog> {
        RunLog::create(path.as_ref(), None, "")
    }

    /// The CSV file of a training that resumes after `step` steps: later rows are removed. The file is
    /// created if it does not exist.
    ///
    /// # Errors
    /// As for [`RunLog::csv`]; `File` for a file with other columns, or with a malformed row.
    #[track_caller]
    pub fn resume_csv(path: impl AsRef<Path>, columns: &[&str], step: u64) -> Result<RunLog> {
        let path = path.as_ref();
        let header = header(columns)?;
        let Some(text) = read(path)? else { return RunLog::csv(path, columns) };
        let mut lines = whole_lines(&text);
        match lines.next() {
            Some(first) if first == header => {}
            first => {
                let message = format!("has columns {:?}, expected {header:?}", first.unwrap_or_default());
                return Err(Error::new(ErrorKind::File { path: path.into(), message }));
            }
        }
        let step_of = |line: &str| line.split(',').next().and_then(|step| step.parse().ok());
        let kept = keep(path, lines, step, step_of)?;
        RunLog::replace(path, Some(columns), &format!("{header}\n{kept}"))
    }

    /// The JSON lines of a training that resumes after `step` steps: later lines are removed. The file is
    /// created if it does not exist.
    ///
    /// # Errors
    /// `File` for a file that cannot be written, or has a malformed line.
    #[track_caller]
    pub fn resume_json_lines(path: impl AsRef<Path>, step: u64) -> Result<RunLog> {
        let path = path.as_ref();
        let Some(text) = read(path)? else { return RunLog::json_lines(path) };
        let step_of = |line: &str| serde_json::from_str::<Value>(line).ok()?.get("step")?.as_u64();
        let kept = keep(path, whole_lines(&text), step, step_of)?;
        RunLog::replace(path, None, &kept)
    }

    /// Writes one row.
    ///
    /// # Errors
    /// A name that is given twice, is "step", or is no column of a CSV file; `File` for a file that cannot
    /// be written.
    #[track_caller]
    pub fn write(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()> {
        let by_name: BTreeMap<&str, f64> = values.iter().copied().collect();
        if by_name.len() < values.len() || by_name.contains_key("step") {
            let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
            return Err(Error::invalid(
                OP,
                format!("values {names:?}: give each name once, and \"step\" apart"),
            ));
        }
        let line = match &self.columns {
            Some(columns) => {
                if let Some(name) = by_name.keys().find(|name| !columns.iter().any(|column| column == *name))
                {
                    let message = format!("\"{name}\" is none of the columns {columns:?}");
                    return Err(Error::invalid(OP, message));
                }
                let cell =
                    |column: &String| by_name.get(column.as_str()).map_or(String::new(), f64::to_string);
                let cells = columns.iter().map(cell);
                std::iter::once(step.to_string()).chain(cells).collect::<Vec<_>>().join(",")
            }
            None => {
                let mut object: Map<String, Value> =
                    by_name.iter().map(|(name, value)| ((*name).to_string(), Value::from(*value))).collect();
                object.insert("step".into(), step.into());
                Value::Object(object).to_string()
            }
        };
        // In a single write, so that a row is complete or truncated at the end of the file.
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(|error| failed(&self.path, error))
    }

    #[track_caller]
    fn create(path: &Path, columns: Option<&[&str]>, text: &str) -> Result<RunLog> {
        let file = File::create_new(path).map_err(|error| failed(path, error))?;
        let mut log = RunLog { path: path.to_path_buf(), file, columns: owned(columns) };
        log.file.write_all(text.as_bytes()).map_err(|error| failed(path, error))?;
        Ok(log)
    }

    /// Writes another file and renames it, so that a failure leaves the file as it was.
    #[track_caller]
    fn replace(path: &Path, columns: Option<&[&str]>, text: &str) -> Result<RunLog> {
        let failed = |error: io::Error| failed(path, error);
        Error::here_in(write_whole(path, failed, |file| file.write_all(text.as_bytes()).map_err(failed)))?;
        let file = OpenOptions::new().append(true).open(path).map_err(failed)?;
        Ok(RunLog { path: path.to_path_buf(), file, columns: owned(columns) })
    }
}

fn owned(columns: Option<&[&str]>) -> Option<Vec<String>> {
    columns.map(|names| names.iter().map(|name| (*name).to_string()).collect())
}

#[track_caller]
fn header(columns: &[&str]) -> Result<String> {
    let mut sorted = [columns, &["step"]].concat();
    sorted.sort_unstable();
    let twice = sorted.windows(2).any(|pair| pair[0] == pair[1]);
    if twice || columns.iter().any(|name| name.is_empty() || name.contains([',', '"', '\n', '\r'])) {
        let message = format!(
            "columns {columns:?}: give each name once, \"step\" apart, without commas, quotes and line breaks"
        );
        return Err(Error::invalid(OP, message));
    }
    Ok([&["step"], columns].concat().join(","))
}

/// The text of a file; `None` if it does not exist.
#[track_caller]
fn read(path: &Path) -> Result<Option<String>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        _ => read_regular_text(path).map(Some),
    }
}

/// All lines except a last one that is truncated.
fn whole_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'))
}

/// The lines of steps up to `step`.
#[track_caller]
fn keep<'a>(
    path: &Path,
    lines: impl Iterator<Item = &'a str>,
    step: u64,
    step_of: impl Fn(&str) -> Option<u64>,
) -> Result<String> {
    let mut kept = String::new();
    for line in lines {
        let Some(at) = step_of(line) else {
            let message = format!("has a line that is not a log entry: {line:?}");
            return Err(Error::new(ErrorKind::File { path: path.into(), message }));
        };
        if at <= step {
            kept += line;
            kept.push('\n');
        }
    }
    Ok(kept)
}

#[track_caller]
fn failed(path: &Path, error: io::Error) -> Error {
    let message = if error.kind() == io::ErrorKind::AlreadyExists {
        "exists already; resume it, or give another name".into()
    } else {
        format!("cannot be written: {error}")
    };
    Error::new(ErrorKind::File { path: path.to_path_buf(), message })
}
