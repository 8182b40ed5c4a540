//! Tables of numbers from CSV files: all columns are features, except for the column of labels, if one is
//! named.

use std::{
    any::type_name,
    fmt::{Debug, Display},
    io::Read,
    ops::RangeInclusive,
    path::Path,
    str::FromStr,
};

use csv::{ErrorKind, Position, StringRecord};
use tensor_core::{Result, caller_line, file::ReadBudget};

use crate::files::gzip::{Bounded, file_error, open};

/// The column of the labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelColumn {
    /// No labels: every column is a feature.
    #[default]
    None,
    /// The first column.
    First,
    /// The last column.
    Last,
    /// The column at this index, from 0.
    At(usize),
}

/// The layout of a CSV file, and the ranges of its numbers.
#[derive(Clone, Debug)]
pub struct CsvOptions<T> {
    /// The column of the labels. None by default.
    pub label: LabelColumn,
    /// Whether the first row has the names of the columns. True by default.
    pub has_headers: bool,
    /// The separator between two fields. A comma by default.
    pub delimiter: u8,
    /// The range of features; a number outside it is an error. None by default, which accepts any number.
    pub features_in: Option<RangeInclusive<T>>,
    /// The range of labels; a label outside it is an error. None by default.
    pub labels_in: Option<RangeInclusive<i64>>,
    /// The greatest decompressed size of a gzipped file, in bytes; more is an error. 1 GiB by default. A
    /// gzipped file of a few kilobytes may decompress to a thousand times its size, and does not tell its
    /// size in advance. Plain files are not limited.
    pub max_decompressed: u64,
}

impl<T> Default for CsvOptions<T> {
    fn default() -> Self {
        Self {
            label: LabelColumn::None,
            has_headers: true,
            delimiter: b',',
            features_in: None,
            labels_in: None,
            max_decompressed: 1 << 30,
        }
    }
}

/// The type of a table's numbers: `u8`, `i64`, `f32` or `f64`.
pub trait CsvNumber: FromStr + PartialOrd + Copy + Debug + Display + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! csv_numbers {
    ($($number:ty)*) => { $(impl sealed::Sealed for $number {} impl CsvNumber for $number {})* };
}
csv_numbers!(u8 i64 f32 f64);

/// A table of numbers in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvTable<T> {
    /// The names of the feature columns, if the file has a row of headers.
    pub names: Option<Vec<String>>,
    /// The number of rows, without the headers.
    pub rows: usize,
    /// The number of features in a row.
    pub columns: usize,
    /// The features `[rows, columns]` in row-major order.
    pub features: Vec<T>,
    /// The labels `[rows]`; empty if no column was named.
    pub labels: Vec<i64>,
}

/// Reads a table of numbers from a CSV file, plain or gzipped.
///
/// ```no_run
/// use data::{CsvOptions, LabelColumn, read_csv};
///
/// let options = CsvOptions { label: LabelColumn::Last, labels_in: Some(0..=2), ..Default::default() };
/// let iris = read_csv::<f32>("iris.csv", &options)?;
/// println!("{} flowers, {:?}", iris.rows, iris.names);
/// # Ok::<(), tensor_core::Error>(())
/// ```
///
/// # Errors
///
/// `ErrorKind::File` if the file cannot be read, a row has another number of fields than the first, or a
/// field is not a number in its range. The message names the line and the column, both counted from 1.
#[track_caller]
pub fn read_csv<T: CsvNumber>(path: impl AsRef<Path>, options: &CsvOptions<T>) -> Result<CsvTable<T>> {
    let path = path.as_ref();
    // `max_decompressed` bounds what a gzipped file may hold.
    let content = open(path, ReadBudget::UNLIMITED)?;
    if content.gzipped {
        return parse_csv(Bounded::new(content.reader, options.max_decompressed), path, options);
    }
    parse_csv(content.reader, path, options)
}

/// As [`read_csv`], from any reader; `name` stands for the file in errors.
///
/// # Errors
///
/// As [`read_csv`].
#[track_caller]
pub fn parse_csv<T: CsvNumber>(
    reader: impl Read,
    name: impl AsRef<Path>,
    options: &CsvOptions<T>,
) -> Result<CsvTable<T>> {
    let _line = caller_line();
    parse(reader, options).map_err(|message| file_error(name.as_ref(), message))
}

#[track_caller]
fn parse<T: CsvNumber>(reader: impl Read, options: &CsvOptions<T>) -> Result<CsvTable<T>, String> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(options.has_headers)
        .delimiter(options.delimiter)
        .trim(csv::Trim::All)
        .from_reader(reader);
    let mut names = None;
    let mut layout = None;
    if options.has_headers {
        let headers = reader.headers().map_err(explain)?;
        if headers.is_empty() {
            return Err("is empty; expected a row of headers".to_string());
        }
        let found = Columns::of(headers.len(), options.label)?;
        names = Some(
            headers
                .iter()
                .enumerate()
                .filter(|(c, _)| Some(*c) != found.label)
                .map(|(_, n)| n.into())
                .collect(),
        );
        layout = Some(found);
    }

    let mut table = CsvTable { names, rows: 0, columns: 0, features: Vec::new(), labels: Vec::new() };
    let mut record = StringRecord::new();
    while reader.read_record(&mut record).map_err(explain)? {
        let columns = match layout {
            Some(columns) => columns,
            None => *layout.insert(Columns::of(record.len(), options.label)?),
        };
        let line = record.position().map_or(0, Position::line);
        for (column, field) in record.iter().enumerate() {
            let at = |message| format!("line {line}, column {}: {message}", column + 1);
            if Some(column) == columns.label {
                table.labels.push(number(field, "label", options.labels_in.as_ref()).map_err(at)?);
            } else {
                table.features.push(number(field, "number", options.features_in.as_ref()).map_err(at)?);
            }
        }
        table.rows += 1;
    }
    table.columns = layout.map_or(0, |columns| columns.features());
    Ok(table)
}

/// The columns of a table, found from its first row.
#[derive(Clone, Copy)]
struct Columns {
    count: usize,
    label: Option<usize>,
}

impl Columns {
    #[track_caller]
    fn of(count: usize, label: LabelColumn) -> Result<Self, String> {
        let label = match label {
            LabelColumn::None => None,
            LabelColumn::First => Some(0),
            LabelColumn::Last => Some(count.saturating_sub(1)),
            LabelColumn::At(column) if column < count => Some(column),
            LabelColumn::At(column) => {
                return Err(format!("has {count} columns; the labels are expected in column {}", column + 1));
            }
        };
        Ok(Self { count, label })
    }

    fn features(self) -> usize {
        self.count - usize::from(self.label.is_some())
    }
}

#[track_caller]
fn number<T: CsvNumber>(field: &str, what: &str, range: Option<&RangeInclusive<T>>) -> Result<T, String> {
    let value: T = field.parse().map_err(|_| {
        format!(
            "\"{}\" is not a {what} of type {}",
            field.chars().take(40).collect::<String>(),
            type_name::<T>()
        )
    })?;
    match range {
        Some(range) if !range.contains(&value) => {
            Err(format!("{what} {value} is outside {} to {}", range.start(), range.end()))
        }
        _ => Ok(value),
    }
}

/// The parser's error, reworded if our message can say more.
#[expect(clippy::wildcard_enum_match_arm, reason = "the parser's enum may grow; other kinds keep its words")]
fn explain(error: csv::Error) -> String {
    match error.kind() {
        ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let line = pos.as_ref().map_or(0, Position::line);
            format!(
                "line {line}: {len} fields, expected {expected_len} as in the first row; is the file cut off?"
            )
        }
        ErrorKind::Utf8 { pos, err } => {
            let line = pos.as_ref().map_or(0, Position::line);
            format!("line {line}, column {}: not UTF-8; is this a text file?", err.field() + 1)
        }
        ErrorKind::Io(error) => format!("cannot be read to its end: {error}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
#[path = "csv_table_tests.rs"]
mod tests;
