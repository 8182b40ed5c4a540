//! Data for Taper: datasets, loaders, and file formats.
//!
//! | items | purpose |
//! |---|---|
//! | [`Dataset`], [`TensorDataset`], [`ItemDataset`], [`Subset`], [`random_split`] | items by index |
//! | [`Dataset::map`], [`Dataset::map_random`], [`ConcatDataset`] | datasets made from others |
//! | [`DataLoader`], [`Collate`] | batches of items, shuffled, prefetched by threads |
//! | [`Sampler`] and its kinds | the items of an epoch and their order; the share of one process of several |
//! | [`IterableDataset`], [`StreamLoader`] | streams of items, shuffled in a buffer |
//! | [`FileDataset`] | arrays in files, larger than memory |
//! | `ImageFolder`, `Image` | a folder of pictures for each class, and transforms (feature `images`) |
//! | [`make_grid`], `save_image` | a batch of pictures in one, and as a file (feature `images`) |
//! | [`MixUp`], [`CutMix`] | batches whose items are mixed with each other |
//! | `audio` | WAV files, resampling, mel spectrograms (feature `audio`) |
//! | [`ToDevice`] | moving batches to a device |
//! | [`Digits`], [`Mnist`] | labeled images |
//! | `read_csv` | numbers and labels from CSV files (feature `csv`) |
//! | [`read_idx`] | arrays from IDX files, the format of MNIST (gzipped files: feature `gzip`) |

#![deny(clippy::wildcard_enum_match_arm)] // a new variant must be handled everywhere

/// The names that the derive macro's code uses.
#[doc(hidden)]
pub mod __private {
    pub use tensor_core::{Device, Result};
}

#[cfg(feature = "audio")]
pub mod audio;
mod collate;
mod concat_dataset;
#[cfg(feature = "csv")]
mod csv_table;
mod dataset;
mod digits;
mod epoch;
mod file_dataset;
mod gzip;
mod idx;
#[cfg(feature = "images")]
mod image_color;
#[cfg(feature = "images")]
mod image_folder;
#[cfg(feature = "images")]
mod image_warp;
mod images;
mod loader;
mod mixing;
mod move_to;
mod picture_grid;
mod progress;
mod sampler;
mod shuffle;
mod stream;
mod tensor_dataset;
mod workers;

pub use collate::Collate;
pub use concat_dataset::ConcatDataset;
#[cfg(feature = "csv")]
pub use csv_table::{CsvNumber, CsvOptions, CsvTable, LabelColumn, parse_csv, read_csv};
pub use dataset::{Dataset, ItemDataset, Map, MapRandom, Subset, random_split, random_split_fractions};
pub use digits::{DIGITS_COUNT, DIGITS_MAX_PIXEL, DIGITS_SIZE, digits_bytes};
pub use file_dataset::{FileDataset, RowFile};
pub use idx::{Idx, MnistFiles, find_mnist, read_idx, read_idx_within};
#[cfg(feature = "images")]
pub use image_color::ColorJitter;
#[cfg(feature = "images")]
pub use image_folder::{Image, ImageFolder};
#[cfg(feature = "images")]
pub use image_warp::{Affine, Augmentation, Interpolation, RandAugment, Rotation};
pub use images::{Digits, Mnist};
pub use loader::{Batches, DataLoader};
pub use mixing::{CutMix, MixUp, cutmix, mixup};
pub use move_to::ToDevice;
/// `#[derive(ToDevice)]`: moves a struct or enum of tensors as a whole.
pub use nn_derive::ToDevice;
#[cfg(feature = "images")]
pub use picture_grid::save_image;
pub use picture_grid::{GridOptions, make_grid};
pub use sampler::{
    BucketSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler,
    WeightedRandomSampler,
};
pub use shuffle::Draws;
pub use stream::{IterableDataset, StreamBatches, StreamLoader};
pub use tensor_core::file::ReadBudget;
pub use tensor_dataset::{Columns, TensorDataset};

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();
