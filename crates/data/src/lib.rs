//! Data for Taper: what reads files into numbers.

mod csv_table;
mod digits;
mod gzip;
mod idx;

pub use csv_table::{CsvNumber, CsvOptions, CsvTable, LabelColumn, parse_csv, read_csv};
pub use digits::{DIGITS_COUNT, DIGITS_MAX_PIXEL, DIGITS_SIZE, digits_bytes};
pub use idx::{Idx, MnistFiles, find_mnist, read_idx};
