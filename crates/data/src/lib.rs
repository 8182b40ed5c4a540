//! Data for Taper: datasets, loaders, and the files they come from.
//!
//! | look for | in |
//! |---|---|
//! | [`Dataset`], [`TensorDataset`], [`ItemDataset`], [`Subset`], [`random_split`] | what items there are |
//! | [`Dataset::map`], [`Dataset::map_random`], [`ConcatDataset`] | what is made of them |
//! | [`DataLoader`], [`Collate`] | items in batches, shuffled, prefetched by threads |
//! | [`Sampler`] and its kinds | which items, in which order; the part of one process of several |
//! | [`IterableDataset`], [`StreamLoader`] | items that come one after the other, from a buffer that shuffles |
//! | [`FileDataset`] | arrays in files, larger than memory |
//! | `ImageFolder`, `Image` | a folder of pictures for each class, and what is done with them (feature `images`) |
//! | [`ToDevice`] | moving batches |
//! | [`Digits`], [`Mnist`] | images with labels |
//! | [`read_csv`], [`read_idx`] | what reads files into numbers |

#![deny(clippy::wildcard_enum_match_arm)] // a new variant is to be met everywhere

/// What the derive macro writes names.
#[doc(hidden)]
pub mod __private {
    pub use tensor_core::{Device, Result};
}

mod collate;
mod compose;
mod csv_table;
mod dataset;
mod digits;
mod epoch;
mod file_dataset;
mod gzip;
mod idx;
#[cfg(feature = "images")]
mod image_folder;
mod images;
mod loader;
mod move_to;
mod progress;
mod sampler;
mod shuffle;
mod stream;
mod tensor_dataset;
mod workers;

pub use collate::Collate;
pub use compose::{ConcatDataset, Map, MapRandom};
pub use csv_table::{CsvNumber, CsvOptions, CsvTable, LabelColumn, parse_csv, read_csv};
pub use dataset::{Dataset, ItemDataset, Subset, random_split, random_split_fractions};
pub use digits::{DIGITS_COUNT, DIGITS_MAX_PIXEL, DIGITS_SIZE, digits_bytes};
pub use file_dataset::{FileDataset, RowFile};
pub use idx::{Idx, MnistFiles, find_mnist, read_idx};
#[cfg(feature = "images")]
pub use image_folder::{Image, ImageFolder};
pub use images::{Digits, Mnist};
pub use loader::{Batches, DataLoader};
pub use move_to::ToDevice;
/// `#[derive(ToDevice)]`: a struct or enum of tensors moves as one.
pub use nn_derive::ToDevice;
pub use sampler::{
    BucketSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler,
    WeightedRandomSampler,
};
pub use shuffle::Draws;
pub use stream::{IterableDataset, StreamBatches, StreamLoader};
pub use tensor_dataset::{Columns, TensorDataset};

/// The root of these sources, for `taper`: errors name no line in them.
#[doc(hidden)]
pub const ROOT: &str = file!();
