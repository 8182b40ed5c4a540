//! Data for Taper: datasets, loaders, and the files they come from.
//!
//! | look for | in |
//! |---|---|
//! | [`Dataset`], [`TensorDataset`], [`ItemDataset`], [`Subset`], [`random_split`] | what items there are |
//! | [`DataLoader`], [`Collate`] | items in batches, shuffled, prefetched by threads |
//! | [`ToDevice`] | moving batches |
//! | [`Digits`], [`Mnist`] | images with labels |
//! | [`read_csv`], [`read_idx`] | what reads files into numbers |

/// What the derive macro writes names.
#[doc(hidden)]
pub mod __private {
    pub use tensor_core::{Device, Result};
}

mod collate;
mod csv_table;
mod dataset;
mod digits;
mod gzip;
mod idx;
mod images;
mod loader;
mod move_to;
mod shuffle;
mod tensor_dataset;
mod workers;

pub use collate::Collate;
pub use csv_table::{CsvNumber, CsvOptions, CsvTable, LabelColumn, parse_csv, read_csv};
pub use dataset::{Dataset, ItemDataset, Subset, random_split, random_split_fractions};
pub use digits::{DIGITS_COUNT, DIGITS_MAX_PIXEL, DIGITS_SIZE, digits_bytes};
pub use idx::{Idx, MnistFiles, find_mnist, read_idx};
pub use images::{Digits, Mnist};
pub use loader::{Batches, DataLoader};
pub use move_to::ToDevice;
/// `#[derive(ToDevice)]`: a struct or enum of tensors moves as one.
pub use nn_derive::ToDevice;
pub use tensor_dataset::{Columns, TensorDataset};
