//! Files of items: CSV, NumPy, IDX, and those compressed by gzip.

#[cfg(feature = "csv")]
pub(crate) mod csv_table;
pub(crate) mod file_dataset;
pub(crate) mod gzip;
pub(crate) mod idx;
