//! [`make_grid`]: a batch of pictures side by side in one; [`save_image`]: pictures as a PNG or JPEG file.

#[cfg(feature = "images")]
use std::{
    io::{BufWriter, Write},
    path::Path,
};

#[cfg(feature = "images")]
use tensor_core::file::{file_error, write_whole};
use tensor_core::{Error, Result, Tensor};

/// The settings of [`make_grid`] and `save_image`, with torchvision's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GridOptions {
    /// The number of pictures in a row. 8 by default.
    pub nrow: usize,
    /// The pixels between pictures, and around them. 2 by default.
    pub padding: usize,
    /// Whether values are mapped from `value_range` to 0 to 1. Off by default.
    pub normalize: bool,
    /// The least and the greatest value; by default those of the pictures.
    pub value_range: Option<(f64, f64)>,
    /// Whether each picture has its own range. Off by default.
    pub scale_each: bool,
    /// The value between pictures. 0 by default.
    pub pad_value: f64,
}

impl Default for GridOptions {
    fn default() -> GridOptions {
        GridOptions {
            nrow: 8,
            padding: 2,
            normalize: false,
            value_range: None,
            scale_each: false,
            pad_value: 0.0,
        }
    }
}

/// Pictures `[N, C, H, W]`, `[C, H, W]` or `[H, W]` in one picture `[C, H′, W′]`: rows of `nrow`, with
/// `padding` between them and around. One channel becomes three. A single picture gets no border.
/// `torchvision.utils.make_grid`.
///
/// With `normalize`, a value x becomes (min(max(x, low), high) − low) / max(high − low, 10⁻⁵).
///
/// ```
/// use data::{GridOptions, make_grid};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let digits = Tensor::zeros([10, 1, 28, 28], &backend_cpu::cpu())?;
/// let grid = make_grid(&digits, &GridOptions { nrow: 5, ..Default::default() })?;
/// assert_eq!(grid.dims(), [3, 2 * 30 + 2, 5 * 30 + 2]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// Another rank, no pictures or pixels, an `nrow` of 0, a range that is out of order or not finite, or
/// normalization of integers.
#[track_caller]
pub fn make_grid(pictures: &Tensor, options: &GridOptions) -> Result<Tensor> {
    const OP: &str = "make_grid";
    let &GridOptions { nrow, padding, normalize, value_range, scale_each, pad_value } = options;
    let mut x = pictures.detach();
    while (2..4).contains(&x.rank()) {
        x = x.unsqueeze(0)?;
    }
    let &[count, channels, height, width] = x.dims() else {
        let message = format!("pictures {}: give [N, C, H, W], [C, H, W] or [H, W]", pictures.shape());
        return Err(Error::invalid(OP, message));
    };
    if [count, channels, height, width, nrow].contains(&0) {
        let message = format!("{nrow} in a row of pictures {}: give sizes above 0", pictures.shape());
        return Err(Error::invalid(OP, message));
    }
    let channels = if channels == 1 { 3 } else { channels };
    x = x.expand([count, channels, height, width])?;
    if normalize {
        let floats = x.dtype().is_float();
        if value_range.is_some_and(|(low, high)| !(low <= high && high.is_finite() && low.is_finite()))
            || !floats
        {
            let message = format!(
                "normalize {} with the range {value_range:?}: give floats, and finite bounds in order",
                x.dtype()
            );
            return Err(Error::invalid(OP, message));
        }
        x = match value_range {
            Some((low, high)) => x.clamp(low, high).sub_scalar(low).mul_scalar(1.0 / (high - low).max(1e-5)),
            None => {
                let axes: &[isize] = if scale_each { &[1, 2, 3] } else { &[0, 1, 2, 3] };
                let (low, high) = x.aminmax(axes, true)?;
                x.sub(&low)?.div(&high.sub(&low)?.maximum_scalar(1e-5))?
            }
        };
    }
    if count == 1 {
        return x.squeeze(0);
    }
    let columns = nrow.min(count);
    let rows = count.div_ceil(columns);
    // A cell is a picture with its padding above and left; cells without a picture are all padding.
    let empty = rows * columns - count;
    let cells = x.pad(&[(0, empty), (0, 0), (padding, 0), (padding, 0)], pad_value)?;
    let (high, wide) = (height + padding, width + padding);
    let grid = cells.reshape([rows, columns, channels, high, wide])?.permute([2, 0, 3, 1, 4])?;
    grid.reshape([channels, rows * high, columns * wide])?
        .pad(&[(0, 0), (0, padding), (0, padding)], pad_value)
}

/// Writes pictures, values from 0 to 1, as a file in the format of its ending, `.png` or `.jpg`, completely
/// or not at all; a batch is a grid of [`make_grid`]. `torchvision.utils.save_image`.
///
/// ```
/// use data::{GridOptions, Image, save_image};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("samples.png");
/// let samples = Tensor::randn([16, 3, 8, 8], &Generator::seed(0, &backend_cpu::cpu()))?;
/// save_image(&samples, &path, &GridOptions { nrow: 4, normalize: true, ..Default::default() })?;
/// assert_eq!(Image::open(&path)?.height(), 4 * 10 + 2);
/// # Ok(()) }
/// ```
///
/// # Errors
/// The errors of [`make_grid`]; a number of channels other than 1, 3 and 4 (4 only as PNG); another ending; a
/// value that cannot be computed; a `File` error of the file system.
#[cfg(feature = "images")]
#[track_caller]
pub fn save_image(pictures: &Tensor, path: impl AsRef<Path>, options: &GridOptions) -> Result<()> {
    use image::{ExtendedColorType, ImageFormat};

    let path = path.as_ref();
    let grid = make_grid(pictures, options)?;
    let (colour, [channels, height, width]) = match *grid.dims() {
        [3, height, width] => (ExtendedColorType::Rgb8, [3, height, width]),
        [4, height, width] => (ExtendedColorType::Rgba8, [4, height, width]),
        _ => {
            let message = format!("pictures {}: give 1, 3 or 4 channels", pictures.shape());
            return Err(Error::invalid("save_image", message));
        }
    };
    let format = match ImageFormat::from_path(path) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Jpeg)) => format,
        Ok(_) | Err(_) => {
            return Err(crate::files::gzip::file_error(path, "does not end in .png, .jpg or .jpeg"));
        }
    };
    let size = |side: usize| {
        u32::try_from(side).map_err(|_| Error::invalid("save_image", format!("a side of {side} pixels")))
    };
    let bytes = rounded_bytes(&grid.permute([1, 2, 0])?.to_f64_vec()?, 255.0);
    debug_assert_eq!(bytes.len(), channels * height * width);
    let (width, height) = (size(width)?, size(height)?);
    let failed = |error: &dyn std::fmt::Display| file_error(path, format!("cannot be written: {error}"));
    let written = write_whole(
        path,
        |error| failed(&error),
        |file| {
            let mut file = BufWriter::new(file);
            image::write_buffer_with_format(&mut file, &bytes, width, height, colour, format)
                .map_err(|error| failed(&error))?;
            file.flush().map_err(|error| failed(&error))
        },
    );
    Error::here_in(written)
}

/// The bytes of values, each multiplied by `scale`, rounded and cut off outside. Half is added before the cut
/// to whole numbers, as in torchvision's `save_image`.
#[cfg(feature = "images")]
pub(crate) fn rounded_bytes(values: &[f64], scale: f64) -> Vec<u8> {
    values.iter().map(|value| (value * scale + 0.5) as u8).collect()
}
