//! IDX, the file format of MNIST and similar datasets (Fashion-MNIST, EMNIST, KMNIST …): a header of
//! big-endian sizes, then the bytes. The sizes in a header are checked against the file's own size first.

use std::{
    fmt::Write as _,
    io::Read,
    path::{Path, PathBuf},
};

use tensor_core::{Result, caller_line, file::ReadBudget};

use crate::files::gzip::{Content, file_error, open};

/// An array of bytes from an IDX file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// The sizes, outermost first: `[N, 28, 28]` for MNIST's images, `[N]` for its labels.
    pub shape: Vec<usize>,
    /// The elements in row-major order.
    pub data: Vec<u8>,
}

/// Reads an IDX file of unsigned bytes, of any rank, plain or gzipped. A gzipped file may decompress to what
/// [`ReadBudget::default`] allows; [`read_idx_within`] takes another bound.
///
/// # Errors
///
/// `ErrorKind::File` if the file cannot be read or does not match its header. The message names the byte,
/// what was found there, and what was expected; for a gzipped file, bytes count in the decompressed content.
#[track_caller]
pub fn read_idx(path: impl AsRef<Path>) -> Result<Idx> {
    read_idx_within(path, ReadBudget::default())
}

/// [`read_idx`] with another bound of what a gzipped file may decompress to.
///
/// # Errors
///
/// As [`read_idx`].
#[track_caller]
pub fn read_idx_within(path: impl AsRef<Path>, budget: ReadBudget) -> Result<Idx> {
    let _line = caller_line();
    let path = path.as_ref();
    read(open(path, budget)?).map_err(|message| file_error(path, message))
}

fn read(Content { mut reader, at_most, gzipped }: Content) -> Result<Idx, String> {
    let unit = if gzipped { " of the decompressed content" } else { "" };
    let mut magic = [0; 4];
    fill(&mut reader, &mut magic, 0, "a magic number of 4 bytes")?;
    let [zero, zero_too, element, rank] = magic;
    if (zero, zero_too) != (0, 0) {
        return Err(format!(
            "not an IDX file: bytes 0 and 1{unit} are 0x{zero:02x} 0x{zero_too:02x}, expected 0x00 0x00"
        ));
    }
    if element != 0x08 {
        let kind = match element {
            0x09 => "i8",
            0x0b => "i16",
            0x0c => "i32",
            0x0d => "f32",
            0x0e => "f64",
            _ => "no type that IDX knows",
        };
        return Err(format!(
            "byte 2{unit} gives the element type 0x{element:02x} ({kind}), expected 0x08 (u8), the only one that is supported"
        ));
    }
    if rank == 0 {
        return Err(format!("byte 3{unit} gives rank 0, expected 1 to 255 sizes"));
    }

    let mut shape = Vec::with_capacity(usize::from(rank));
    for axis in 0..rank {
        let mut size = [0; 4];
        let at = 4 + 4 * u64::from(axis);
        fill(&mut reader, &mut size, at, &format!("the size of axis {axis} of {rank}, 4 bytes"))?;
        shape.push(u32::from_be_bytes(size));
    }
    let header = 4 + 4 * u64::from(rank);
    let promised = elements(&shape)
        .and_then(|n| n.checked_add(header))
        .filter(|end| usize::try_from(*end).is_ok())
        .ok_or_else(|| {
            format!("the sizes {shape:?} in bytes 4 to {} multiply to more than memory can hold", header - 1)
        })?;
    if promised > at_most {
        let (limit, more) = match gzipped {
            true => ("may decompress to at most", "; read_idx_within takes another bound"),
            false => ("has", ""),
        };
        return Err(format!(
            "truncated or corrupt: the sizes {shape:?} in bytes 4 to {} promise {promised} bytes in all, and the file \
             {limit} {at_most}{more}",
            header - 1
        ));
    }

    let length = promised - header;
    // The whole size is reserved only if the file is known to hold it.
    let reserved = if promised == at_most { length } else { length.min(1 << 20) };
    let mut data = Vec::with_capacity(reserved as usize);
    let read = reader.by_ref().take(length).read_to_end(&mut data);
    let found = header + data.len() as u64;
    read.map_err(|error| format!("broken off at byte {found}{unit} of {promised}: {error}"))?;
    if found < promised {
        return Err(format!(
            "truncated: the sizes {shape:?} promise {promised} bytes in all, and the content ends at byte {found}{unit}"
        ));
    }
    let mut more = [0];
    // Reading past the end also verifies the gzip checksum.
    match reader.read(&mut more) {
        Ok(0) => {}
        Ok(_) => {
            return Err(format!(
                "bytes left over: the sizes {shape:?} promise {promised} bytes in all, and byte {promised}{unit} is \
                 0x{:02x}, expected the end",
                more[0]
            ));
        }
        Err(error) => return Err(format!("corrupt at its end, byte {promised}{unit}: {error}")),
    }
    Ok(Idx { shape: shape.into_iter().map(|size| size as usize).collect(), data })
}

/// The product of the sizes. A zero makes it zero, even if the other factors overflow.
fn elements(shape: &[u32]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1u64, |product, size| product.checked_mul(u64::from(*size)))
}

/// Fills `buffer` from byte `at` on; the error names the byte at which the content ends.
#[track_caller]
fn fill(reader: &mut impl Read, buffer: &mut [u8], at: u64, expected: &str) -> Result<(), String> {
    let mut found = 0;
    while found < buffer.len() {
        match reader.read(&mut buffer[found..]) {
            Ok(0) => {
                let end = at + found as u64;
                return Err(format!("truncated: ends at byte {end}, expected {expected}, from byte {at} on"));
            }
            Ok(count) => found += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot be read at byte {}: {error}", at + found as u64)),
        }
    }
    Ok(())
}

/// The paths of the four files of MNIST, or of a dataset in its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MnistFiles {
    /// 60,000 training images of 28 x 28 pixels.
    pub train_images: PathBuf,
    /// The labels of the training images.
    pub train_labels: PathBuf,
    /// 10,000 test images.
    pub test_images: PathBuf,
    /// The labels of the test images.
    pub test_labels: PathBuf,
}

impl MnistFiles {
    /// The training images `[N, H, W]` and labels `[N]`.
    ///
    /// # Errors
    ///
    /// `ErrorKind::File` if either file is corrupt, or if their lengths differ.
    #[track_caller]
    pub fn read_train(&self) -> Result<(Idx, Idx)> {
        read_pair(&self.train_images, &self.train_labels)
    }

    /// The test images `[N, H, W]` and labels `[N]`.
    ///
    /// # Errors
    ///
    /// `ErrorKind::File` if either file is corrupt, or if their lengths differ.
    #[track_caller]
    pub fn read_test(&self) -> Result<(Idx, Idx)> {
        read_pair(&self.test_images, &self.test_labels)
    }
}

#[track_caller]
fn read_pair(images_path: &Path, labels_path: &Path) -> Result<(Idx, Idx)> {
    let images = read_idx(images_path)?;
    if images.shape.len() != 3 {
        let message = format!("holds sizes {:?}, expected images: [count, height, width]", images.shape);
        return Err(file_error(images_path, message));
    }
    let labels = read_idx(labels_path)?;
    if labels.shape.len() != 1 {
        return Err(file_error(
            labels_path,
            format!("holds sizes {:?}, expected labels: [count]", labels.shape),
        ));
    }
    if images.shape[0] != labels.shape[0] {
        let message = format!(
            "holds {} labels, and {} holds {} images; expected a label for each",
            labels.shape[0],
            images_path.display(),
            images.shape[0]
        );
        return Err(file_error(labels_path, message));
    }
    Ok((images, labels))
}

/// Finds the four files of MNIST in a directory: `train-images-idx3-ubyte` and the like, with `-idx` or
/// `.idx`, gzipped (`.gz`) or not. If a file is there both plain and gzipped, the plain one is used.
///
/// # Errors
///
/// `ErrorKind::File` with the names of the missing files, and where to get them.
#[track_caller]
pub fn find_mnist(dir: impl AsRef<Path>) -> Result<MnistFiles> {
    let _line = caller_line();
    let dir = dir.as_ref();
    let mut missing = Vec::new();
    let mut find = |part: &str, kind: &str| {
        let names = ["-", "."].map(|mark| format!("{part}{mark}{kind}-ubyte"));
        let found = ["", ".gz"]
            .iter()
            .flat_map(|end| names.iter().map(move |name| dir.join(format!("{name}{end}"))))
            .find(|path| path.is_file());
        if found.is_none() {
            missing.push(names[0].clone());
        }
        found.unwrap_or_default()
    };
    let files = MnistFiles {
        train_images: find("train-images", "idx3"),
        train_labels: find("train-labels", "idx1"),
        test_images: find("t10k-images", "idx3"),
        test_labels: find("t10k-labels", "idx1"),
    };
    if missing.is_empty() {
        return Ok(files);
    }
    let mut message = String::new();
    if !dir.is_dir() {
        message.push_str("is not a directory; expected one that holds ");
    } else if missing.len() < 4 {
        message.push_str("holds some of MNIST's four files, and lacks ");
    } else {
        message.push_str("holds none of MNIST's four files: ");
    }
    let _ = write!(
        message,
        "{} (each with or without .gz). Get MNIST from https://ossci-datasets.s3.amazonaws.com/mnist/ or \
         Fashion-MNIST from https://github.com/zalandoresearch/fashion-mnist",
        missing.join(", ")
    );
    Err(file_error(dir, message))
}

#[cfg(test)]
#[path = "idx_tests.rs"]
mod tests;
