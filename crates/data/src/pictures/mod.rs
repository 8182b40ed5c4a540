//! Pictures: datasets of them, their changes, and grids of them.

pub(crate) mod digits;
#[cfg(feature = "images")]
pub(crate) mod image_color;
#[cfg(feature = "images")]
pub(crate) mod image_folder;
#[cfg(feature = "images")]
pub(crate) mod image_warp;
pub(crate) mod images;
pub(crate) mod mixing;
pub(crate) mod picture_grid;
