//! Labeled images of digits (and of clothes), as datasets ready for training.

use std::path::Path;

use tensor_core::{Device, Error, ErrorKind, Result, Tensor, caller_line};

use crate::{DIGITS_COUNT, DIGITS_MAX_PIXEL, DIGITS_SIZE, TensorDataset, digits_bytes, find_mnist};

/// The 1,797 handwritten digits that are included in the crate, 8x8 pixels each.
///
/// ```
/// use data::{DataLoader, Digits};
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let digits = Digits::load(&device)?;
/// assert_eq!(digits.len(), 1797);
/// let (images, labels) = digits.tensors();
/// assert_eq!((images.dims(), labels.dims()), (&[1797, 64][..], &[1797][..]));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Digits;

impl Digits {
    /// Images `[1797, 64]`, f32 from 0 to 1, and labels `[1797]`, i32 from 0 to 9, on `device`.
    ///
    /// # Errors
    /// Too little memory on the device.
    #[track_caller]
    pub fn load(device: &Device) -> Result<TensorDataset> {
        let _line = caller_line();
        let (pixels, labels) = digits_bytes()?;
        let shape = [DIGITS_COUNT, DIGITS_SIZE * DIGITS_SIZE];
        dataset(&pixels, shape, DIGITS_MAX_PIXEL, &labels, device)
    }
}

/// MNIST, or a dataset in its format such as Fashion-MNIST, from the four IDX files of a folder.
#[derive(Clone, Copy, Debug)]
pub struct Mnist;

impl Mnist {
    /// Images `[N, 784]`, f32 from 0 to 1, and labels `[N]`, i32 from 0 to 9, on `device`: the 60,000 for
    /// training, or the 10,000 for testing.
    ///
    /// # Errors
    /// [`ErrorKind::File`] for a file that is missing or corrupt, different numbers of images and labels, or
    /// a label above 9; too little memory on the device.
    #[track_caller]
    pub fn load(folder: impl AsRef<Path>, train: bool, device: &Device) -> Result<TensorDataset> {
        let _line = caller_line();
        let files = find_mnist(folder)?;
        let ((images, labels), labels_path) = match train {
            true => (files.read_train()?, &files.train_labels),
            false => (files.read_test()?, &files.test_labels),
        };
        if let Some(at) = labels.data.iter().position(|&label| label > 9) {
            let message = format!("label {at} is {}, expected 0 to 9", labels.data[at]);
            return Err(Error::new(ErrorKind::File { path: labels_path.clone(), message }));
        }
        let count = labels.data.len();
        let pixels = images.shape.iter().skip(1).product();
        dataset(&images.data, [count, pixels], u8::MAX, &labels.data, device)
    }
}

fn dataset(
    pixels: &[u8],
    shape: [usize; 2],
    brightest: u8,
    labels: &[u8],
    device: &Device,
) -> Result<TensorDataset> {
    let scaled: Vec<f32> = pixels.iter().map(|&p| f32::from(p) / f32::from(brightest)).collect();
    let labels: Vec<i32> = labels.iter().map(|&label| i32::from(label)).collect();
    let images = Tensor::from_vec(scaled, shape, device)?;
    let labels = Tensor::from_vec(labels, [shape[0]], device)?;
    TensorDataset::new((images, labels))
}
