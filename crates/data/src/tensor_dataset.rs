//! Tensors as a dataset: item i is row i of each. Rows are kept on the host, so that a batch is one copy and
//! one upload.

use std::{fmt, sync::Arc};

use tensor_core::{Device, Element, Error, ErrorKind, Result, Shape, Tensor, caller_line, with_element};

use crate::{Collate, Dataset, dataset::out_of_range};

/// The rows of a tensor on the host or in a file, of any dtype.
pub(crate) trait Rows: Send + Sync {
    /// The rows at `indices`, which are in range, as `[n, …]`.
    #[track_caller]
    fn gather(&self, indices: &[usize], device: &Device) -> Result<Tensor>;

    /// One row, as `[…]`.
    #[track_caller]
    fn row(&self, index: usize, device: &Device) -> Result<Tensor>;
}

struct HostRows<T> {
    data: Vec<T>,
    row_shape: Shape,
}

impl<T: Element> Rows for HostRows<T> {
    #[track_caller]
    fn gather(&self, indices: &[usize], device: &Device) -> Result<Tensor> {
        let width = self.row_shape.numel();
        let mut picked = Vec::with_capacity(indices.len() * width);
        for &index in indices {
            picked.extend_from_slice(&self.data[index * width..(index + 1) * width]);
        }
        let shape: Shape = [indices.len()].iter().chain(self.row_shape.iter()).copied().collect();
        Tensor::from_vec(picked, shape, device)
    }

    #[track_caller]
    fn row(&self, index: usize, device: &Device) -> Result<Tensor> {
        let width = self.row_shape.numel();
        Tensor::from_slice(&self.data[index * width..(index + 1) * width], &self.row_shape, device)
    }
}

/// The rows of a tensor with at least one axis.
#[track_caller]
fn host_rows(tensor: &Tensor) -> Result<Arc<dyn Rows>> {
    #[track_caller]
    fn read<T: Element>(tensor: &Tensor) -> Result<Arc<dyn Rows>> {
        let row_shape = tensor.dims().iter().skip(1).copied().collect();
        Ok(Arc::new(HostRows { data: tensor.detach().to_vec::<T>()?, row_shape }))
    }
    with_element!(tensor.dtype(), T => read::<T>(tensor))
}

/// A tensor, or a tuple of up to six, with corresponding rows.
pub trait Columns: Collate<Batch = Self> + Clone + Sync {
    /// The tensors.
    fn tensors(&self) -> Vec<&Tensor>;

    /// Builds a value from as many tensors as [`Columns::tensors`] returns, which `next` makes in that
    /// order.
    ///
    /// # Errors
    /// The first error of `next`.
    #[track_caller]
    fn try_build(next: &mut dyn FnMut() -> Result<Tensor>) -> Result<Self>;
}

impl Columns for Tensor {
    fn tensors(&self) -> Vec<&Tensor> {
        vec![self]
    }
    #[track_caller]
    fn try_build(next: &mut dyn FnMut() -> Result<Tensor>) -> Result<Tensor> {
        next()
    }
}

macro_rules! tuple {
    ($($T:ident $i:tt),*) => {
        impl Columns for ($($T,)*) {
            fn tensors(&self) -> Vec<&Tensor> { vec![$(&self.$i),*] }
            #[track_caller]
            fn try_build(next: &mut dyn FnMut() -> Result<Tensor>) -> Result<Self> {
                Ok(($(<$T as Columns>::try_build(next)?,)*))
            }
        }
    };
}
tuple!(Tensor 0);
tuple!(Tensor 0, Tensor 1);
tuple!(Tensor 0, Tensor 1, Tensor 2);
tuple!(Tensor 0, Tensor 1, Tensor 2, Tensor 3);
tuple!(Tensor 0, Tensor 1, Tensor 2, Tensor 3, Tensor 4);
tuple!(Tensor 0, Tensor 1, Tensor 2, Tensor 3, Tensor 4, Tensor 5);

/// Tensors with equal first axes as a dataset: item i is row i of each. `torch.utils.data.TensorDataset`.
///
/// The rows are copied to the host once, and a clone shares them. Items and batches go to the device of the
/// first tensor, unless the loader names another.
///
/// ```
/// use data::{Dataset, TensorDataset};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let images = Tensor::ones([5, 28, 28], &device)?;
/// let labels = Tensor::new([3i32, 1, 4, 1, 5], &device)?;
/// let dataset = TensorDataset::new((images, labels))?;
/// let (image, label) = dataset.get(2)?;
/// assert_eq!((image.dims(), label.item::<i32>()?), (&[28, 28][..], 4));
/// assert_eq!(dataset.clone().len(), 5);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct TensorDataset<T = (Tensor, Tensor)> {
    columns: T,
    rows: Vec<Arc<dyn Rows>>,
    len: usize,
    device: Device,
}

impl<T: Columns> TensorDataset<T> {
    /// A dataset of a tensor or a tuple of tensors.
    ///
    /// # Errors
    /// Tensors without axes or with different first axes, or a value that cannot be computed.
    #[track_caller]
    pub fn new(columns: T) -> Result<TensorDataset<T>> {
        let _line = caller_line();
        const OP: &str = "TensorDataset";
        let tensors = columns.tensors();
        let Some(first) = tensors.first() else {
            return Err(Error::invalid(OP, "there are no tensors; give at least one"));
        };
        let device = first.device();
        let len = *first
            .dims()
            .first()
            .ok_or_else(|| Error::invalid(OP, "a 0-d tensor has no rows; give one of shape [N, …]"))?;
        if let Some(other) = tensors.iter().find(|t| t.dims().first() != Some(&len)) {
            return Err(Error::new(ErrorKind::ShapeMismatch {
                op: OP,
                lhs: first.shape().clone(),
                rhs: other.shape().clone(),
                hint: "the first axes must have one size, that of the dataset".into(),
            }));
        }
        let rows = tensors.iter().map(|tensor| host_rows(tensor)).collect::<Result<_>>()?;
        Ok(TensorDataset { columns, rows, len, device })
    }

    /// The whole tensors.
    pub fn tensors(&self) -> &T {
        &self.columns
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A dataset of the rows at `indices`, in that order.
    ///
    /// # Errors
    /// An index past the end, or too little memory.
    #[track_caller]
    pub fn select(&self, indices: &[usize]) -> Result<TensorDataset<T>> {
        TensorDataset::new(self.batch(indices, None)?)
    }
}

/// Builds a value with a tensor from each column.
#[track_caller]
pub(crate) fn build<T: Columns, R>(rows: &[R], make: impl Fn(&R) -> Result<Tensor>) -> Result<T> {
    let mut left = rows.iter();
    let built = T::try_build(&mut || match left.next() {
        Some(rows) => make(rows),
        None => {
            Err(Error::invalid("Dataset", format!("items have more tensors than the {} given", rows.len())))
        }
    })?;
    match left.len() {
        0 => Ok(built),
        more => Err(Error::invalid(
            "Dataset",
            format!("items have {} tensors, and {} are given", rows.len() - more, rows.len()),
        )),
    }
}

/// Checks indices before anything is read.
#[track_caller]
pub(crate) fn check_indices(indices: &[usize], len: usize) -> Result<()> {
    let _line = caller_line();
    match indices.iter().find(|&&index| index >= len) {
        Some(&index) => Err(out_of_range(index, len)),
        None => Ok(()),
    }
}

impl<T: Columns> Dataset for TensorDataset<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.len
    }

    #[track_caller]
    fn get(&self, index: usize) -> Result<T> {
        check_indices(&[index], self.len)?;
        build(&self.rows, |rows| rows.row(index, &self.device))
    }

    #[track_caller]
    fn batch(&self, indices: &[usize], device: Option<&Device>) -> Result<T> {
        check_indices(indices, self.len)?;
        let device = device.unwrap_or(&self.device);
        build(&self.rows, |rows| rows.gather(indices, device))
    }
}

impl<T: Columns> fmt::Debug for TensorDataset<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shapes: Vec<&Shape> = self.columns.tensors().into_iter().map(Tensor::shape).collect();
        f.debug_struct("TensorDataset").field("len", &self.len).field("shapes", &shapes).finish()
    }
}
