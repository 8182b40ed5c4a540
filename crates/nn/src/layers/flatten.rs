//! Layers that only change the shape, or nothing at all.

use std::fmt;

use tensor_core::{Error, Result, Tensor, caller_line};

use super::{layer, record, stateless};

/// Merges several axes: by default all but the first, `[N, …]` to `[N, features]`. `torch.nn.Flatten`.
#[derive(Clone, Copy)]
pub struct Flatten {
    /// The first axis to merge.
    pub start: isize,
    /// The last axis to merge.
    pub end: isize,
}

impl Default for Flatten {
    fn default() -> Flatten {
        Flatten { start: 1, end: -1 }
    }
}

impl Flatten {
    /// All axes but the first. For others, give them as fields: `Flatten { start: 0, end: -1 }`.
    ///
    /// ```
    /// use nn::Flatten;
    /// use tensor_core::Tensor;
    /// # fn main() -> tensor_core::Result<()> {
    /// let images = Tensor::ones([8, 3, 4, 4], &backend_cpu::cpu())?;
    /// assert_eq!(Flatten::new().forward(&images)?.dims(), [8, 48]);
    /// # Ok(()) }
    /// ```
    pub fn new() -> Flatten {
        Flatten::default()
    }

    /// The input with those axes merged.
    ///
    /// # Errors
    /// No such axes.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record!(self, input.flatten(self.start, self.end))
    }
}

/// The input itself. `torch.nn.Identity`.
#[derive(Clone, Copy, Default)]
pub struct Identity;

impl Identity {
    /// The input.
    ///
    /// # Errors
    /// None.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record!(self, Ok(input.clone()))
    }
}

impl fmt::Debug for Flatten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flatten(start={}, end={})", self.start, self.end)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity()")
    }
}

/// Splits one axis into several of these sizes: the inverse of [`Flatten`]. `torch.nn.Unflatten`.
///
/// ```
/// use nn::Unflatten;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let x = Tensor::zeros([5, 12], &backend_cpu::cpu())?;
/// assert_eq!(Unflatten::new(1, [3, 4]).forward(&x)?.dims(), [5, 3, 4]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Unflatten {
    axis: isize,
    sizes: Vec<usize>,
}

impl Unflatten {
    /// A layer for an axis, which may count from the end, and the sizes whose product is its size.
    pub fn new(axis: isize, sizes: impl Into<Vec<usize>>) -> Unflatten {
        Unflatten { axis, sizes: sizes.into() }
    }

    /// The input with that axis split.
    ///
    /// # Errors
    /// No such axis, or sizes whose product is not the axis's.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        let axis = input.shape().axis(self.axis, "unflatten")?;
        let size = input.dims()[axis];
        if self.sizes.is_empty() || self.sizes.iter().product::<usize>() != size {
            let message =
                format!("sizes {:?} for axis {axis} of {}, which has {size}", self.sizes, input.shape());
            return Err(Error::invalid("unflatten", message));
        }
        let mut shape = input.dims().to_vec();
        shape.splice(axis..=axis, self.sizes.iter().copied());
        record!(self, input.reshape(shape.as_slice()))
    }
}

impl fmt::Debug for Unflatten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unflatten(axis={}, sizes={:?})", self.axis, self.sizes)
    }
}

layer!(Flatten, Identity, Unflatten);
stateless!(Flatten, Identity, Unflatten);
