//! [`RowFile`]: an array in a file, row by row; [`FileDataset`]: a dataset of such files.
//!
//! Rows are read from the file on demand ([`OpenFile`]). The operating system caches rows that are read
//! often.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::Path,
};

use tensor_core::{
    DType, Device, Error, Result, Shape, Tensor, caller_line,
    file::{OpenFile, file_error, open_regular},
    npy,
};

use crate::{
    Columns, Dataset,
    tensor_dataset::{Rows, build, check_indices},
};

/// An array in a file, whose rows are read one by one: `.npy`, as `numpy.save` writes it, or IDX. It may be
/// larger than memory.
///
/// The file must not change while it is open: a change is an error of the next read.
#[derive(Debug)]
pub struct RowFile {
    file: OpenFile,
    dtype: DType,
    rows: usize,
    row_shape: Shape,
    /// The offset of the first row, in bytes.
    start: u64,
    /// The size of a row in the file, in bytes.
    row_bytes: usize,
}

impl RowFile {
    /// Opens an array, and checks its header against the file's size. The first bytes determine the format.
    ///
    /// Formats: `.npy` of versions 1 to 3, little-endian, in C order, of bool, u8, u32, i32, i64, f16, f32
    /// or f64; IDX of bytes, not gzipped.
    ///
    /// # Errors
    /// `File` for a file that cannot be read, has another format, is truncated or has bytes left over, has
    /// an unsupported dtype or order, or is a single number, which has no rows.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<RowFile> {
        let _line = caller_line();
        let path = path.as_ref();
        let failed = |error: io::Error| file_error(path, format!("cannot be read: {error}"));
        let mut file = open_regular(path)?;
        let mut magic = [0; 4];
        file.read_exact(&mut magic).map_err(failed)?;
        let header = match magic {
            [0x93, b'N', b'U', b'M'] => npy_header(&mut file),
            [0, 0, kind, rank] => idx_header(&mut file, kind, rank),
            [0x1f, 0x8b, ..] => Err("is gzipped: its rows cannot be located; unpack it first".into()),
            _ => Err("is neither .npy nor IDX, by its first bytes".into()),
        };
        let Header { dtype, shape, start } = header.map_err(|message| file_error(path, message))?;
        let Some((&rows, row)) = shape.split_first() else {
            return Err(file_error(path, "holds a single number; expected an array with rows"));
        };
        let size = |factors: &[usize]| {
            // A zero makes the product zero, even if the other factors overflow.
            if factors.contains(&0) {
                Some(0)
            } else {
                factors.iter().try_fold(1usize, |a, &b| a.checked_mul(b))
            }
        };
        let promised =
            size(&[&shape[..], &[dtype.size()]].concat()).and_then(|bytes| (bytes as u64).checked_add(start));
        let file = OpenFile::new(path, file)?;
        if promised != Some(file.length()) {
            let promised = promised.map_or("more than can be counted".into(), |bytes| bytes.to_string());
            let message = format!(
                "is cut off or damaged: {shape:?} of {dtype} is {promised} bytes with its header, and it has {}",
                file.length()
            );
            return Err(file_error(path, message));
        }
        let row_bytes = size(&[row, &[dtype.size()]].concat()).unwrap_or(0);
        let row_shape = row.iter().copied().collect();
        Ok(RowFile { file, dtype, rows, row_shape, start, row_bytes })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The shape of a row.
    pub fn row_shape(&self) -> &Shape {
        &self.row_shape
    }

    /// The dtype of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes of the rows at `indices`, one after the other.
    #[track_caller]
    fn read(&self, indices: &[usize]) -> Result<Vec<u8>> {
        let mut bytes = vec![0; indices.len() * self.row_bytes];
        if self.row_bytes > 0 {
            for (row, &index) in bytes.chunks_exact_mut(self.row_bytes).zip(indices) {
                self.file.read_at(row, self.start + index as u64 * self.row_bytes as u64)?;
            }
        }
        self.file.check_unchanged()?;
        Ok(bytes)
    }

    #[track_caller]
    fn tensor(&self, indices: &[usize], shape: &Shape, device: &Device) -> Result<Tensor> {
        let _line = caller_line();
        let bytes = self.read(indices)?;
        if self.dtype == DType::Bool
            && let Some(byte) = bytes.iter().find(|byte| **byte > 1)
        {
            return Err(file_error(self.file.path(), format!("has a bool of {byte}, expected 0 or 1")));
        }
        Tensor::from_bytes_of(self.dtype, &bytes, shape.clone(), device)
    }
}

impl Rows for RowFile {
    #[track_caller]
    fn gather(&self, indices: &[usize], device: &Device) -> Result<Tensor> {
        let shape: Shape = [indices.len()].iter().chain(self.row_shape.iter()).copied().collect();
        self.tensor(indices, &shape, device)
    }

    #[track_caller]
    fn row(&self, index: usize, device: &Device) -> Result<Tensor> {
        self.tensor(&[index], &self.row_shape, device)
    }
}

struct Header {
    dtype: DType,
    shape: Vec<usize>,
    start: u64,
}

/// Parses the header of a `.npy` array in C order, after its four magic bytes.
fn npy_header(file: &mut File) -> Result<Header, String> {
    let found = npy::read_header(&mut npy::MAGIC[..4].chain(file))?;
    if found.big_endian {
        return Err(npy::unknown(&found.descr));
    }
    if found.fortran_order {
        return Err(
            "is in Fortran order, in which rows are not contiguous; save numpy.ascontiguousarray(it)".into(),
        );
    }
    Ok(Header { dtype: found.dtype, shape: found.shape, start: found.start })
}

/// Parses the header of an IDX array, after its four magic bytes.
fn idx_header(file: &mut File, kind: u8, rank: u8) -> Result<Header, String> {
    if kind != 0x08 {
        return Err(format!("is IDX of element type 0x{kind:02x}, expected 0x08, bytes"));
    }
    let mut shape = Vec::new();
    for _ in 0..rank {
        let mut size = [0; 4];
        file.read_exact(&mut size).map_err(|_| "is cut off in its header")?;
        shape.push(u32::from_be_bytes(size) as usize);
    }
    Ok(Header { dtype: DType::U8, shape, start: 4 + 4 * u64::from(rank) })
}

/// Arrays in files as a dataset: item i is row i of each, as in a [`TensorDataset`](crate::TensorDataset);
/// the files may be larger than memory.
///
/// ```
/// use data::{DataLoader, Dataset, FileDataset};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("labels.npy");
/// # let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }";
/// # let mut file = format!("\u{0}NUMPY\x01\x00\x36\x00{header}").into_bytes();
/// # file[0] = 0x93;
/// # let header = file.len(); file[8] = (header - 10) as u8;
/// # file.extend([7, 8, 9]);
/// # std::fs::write(&path, file).unwrap();
/// let device = backend_cpu::cpu();
/// let labels: FileDataset<Tensor> = FileDataset::open([&path], &device)?; // numpy.save("labels.npy", …)
/// assert_eq!((labels.len(), labels.get(2)?.item::<u8>()?), (3, 9));
/// let loader = DataLoader::new(labels, 2)?.shuffle(1).workers(2);
/// # assert_eq!(loader.iter().count(), 2);
/// # Ok(()) }
/// ```
pub struct FileDataset<T = (Tensor, Tensor)> {
    files: Vec<RowFile>,
    len: usize,
    device: Device,
    /// Items are created on demand, not stored.
    items: std::marker::PhantomData<fn() -> T>,
}

impl<T: Columns> FileDataset<T> {
    /// A dataset of the rows of these files, one file for each tensor of an item. Tensors go to `device`,
    /// unless the loader names another.
    ///
    /// # Errors
    /// As for [`RowFile::open`]; files with different numbers of rows, another number of files than an item
    /// has tensors; a dtype that the device lacks.
    #[track_caller]
    pub fn open(
        paths: impl IntoIterator<Item = impl AsRef<Path>>,
        device: &Device,
    ) -> Result<FileDataset<T>> {
        let _line = caller_line();
        let files: Result<Vec<_>> = paths.into_iter().map(|path| RowFile::open(path)).collect();
        let files = Error::here_in(files)?;
        let len = files.first().map_or(0, RowFile::rows);
        if let Some(other) = files.iter().find(|file| file.rows != len) {
            let message =
                format!("has {} rows, and {} has {len}", other.rows, files[0].file.path().display());
            return Err(file_error(other.file.path(), message));
        }
        let dataset = FileDataset { files, len, device: device.clone(), items: std::marker::PhantomData };
        // A first batch checks that there is a file for each tensor of an item.
        drop(dataset.batch(if len > 0 { &[0] } else { &[] }, None)?);
        Ok(dataset)
    }

    /// The files.
    pub fn files(&self) -> &[RowFile] {
        &self.files
    }
}

impl<T: Columns> Dataset for FileDataset<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.len
    }

    #[track_caller]
    fn get(&self, index: usize) -> Result<T> {
        check_indices(&[index], self.len)?;
        build(&self.files, |file| file.row(index, &self.device))
    }

    #[track_caller]
    fn batch(&self, indices: &[usize], device: Option<&Device>) -> Result<T> {
        check_indices(indices, self.len)?;
        build(&self.files, |file| file.gather(indices, device.unwrap_or(&self.device)))
    }
}

impl<T> fmt::Debug for FileDataset<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDataset").field("len", &self.len).field("files", &self.files).finish()
    }
}

#[cfg(test)]
#[path = "file_dataset_tests.rs"]
mod tests;
