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
    pub use tensor_core::{Result, Tensor};
}

#[cfg(feature = "audio")]
pub mod audio;
mod collate;
mod concat_dataset;
mod dataset;
mod epoch;
mod files;
mod loader;
mod move_to;
mod pictures;
mod progress;
mod sampler;
mod shuffle;
mod stream;
mod tensor_dataset;
mod workers;

pub use collate::Collate;
pub use concat_dataset::ConcatDataset;
pub use dataset::{Dataset, ItemDataset, Map, MapRandom, Subset, random_split, random_split_fractions};
#[cfg(feature = "csv")]
pub use files::csv_table::{CsvNumber, CsvOptions, CsvTable, LabelColumn, parse_csv, read_csv};
pub use files::file_dataset::{FileDataset, RowFile};
pub use files::idx::{Idx, MnistFiles, find_mnist, read_idx, read_idx_within};
pub use loader::{Batches, DataLoader};
pub use move_to::ToDevice;
/// `#[derive(ToDevice)]`: moves a struct or enum of tensors as a whole.
pub use nn_derive::ToDevice;
pub use pictures::digits::{DIGITS_COUNT, DIGITS_MAX_PIXEL, DIGITS_SIZE, digits_bytes};
#[cfg(feature = "images")]
pub use pictures::image_color::ColorJitter;
#[cfg(feature = "images")]
pub use pictures::image_folder::{Image, ImageFolder};
#[cfg(feature = "images")]
pub use pictures::image_warp::{Affine, Augmentation, Interpolation, RandAugment, Rotation};
pub use pictures::images::{Digits, Mnist};
pub use pictures::mixing::{CutMix, MixUp, cutmix, mixup};
#[cfg(feature = "images")]
pub use pictures::picture_grid::save_image;
pub use pictures::picture_grid::{GridOptions, make_grid};
pub use sampler::{
    BucketSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler,
    WeightedRandomSampler,
};
pub use shuffle::Draws;
pub use stream::{IterableDataset, StreamBatches, StreamLoader};
pub use tensor_core::TensorTree;
pub use tensor_core::file::ReadBudget;
pub use tensor_dataset::{Columns, TensorDataset};

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();
