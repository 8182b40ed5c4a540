//! Moves values that contain tensors to a device: `let (images, labels) = batch?.to(&device)?`.

use tensor_core::{Device, Result, TensorTree, caller_line};

/// Values made of tensors that can move to a device: tuples, arrays, `Vec`, `Option` and maps of them, and
/// your own types by `#[derive(ToDevice)]`. Numbers and strings among them are copied.
///
/// The result is a copy, and the original stays on its device, whatever fails. (A model moves in place, by
/// `nn::Module::to`.)
///
/// ```
/// use data::ToDevice;
/// use tensor_core::Tensor;
///
/// #[derive(ToDevice)]
/// struct Batch {
///     images: Tensor,
///     boxes: Vec<(Tensor, f64)>,
///     #[to_device(skip)]
///     origin: std::path::PathBuf,
/// }
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let images = Tensor::ones([2, 3], &device)?;
/// let batch = Batch { boxes: vec![(images.clone(), 0.5)], images, origin: "a/b".into() };
/// let moved = batch.to(&device)?;
/// assert_eq!((moved.boxes[0].1, moved.origin), (0.5, batch.origin));
/// # Ok(()) }
/// ```
pub trait ToDevice: TensorTree {
    /// A copy on `device`. A tensor that is there already is not copied.
    ///
    /// # Errors
    /// The first failure to compute, copy or allocate a tensor.
    #[track_caller]
    fn to(&self, device: &Device) -> Result<Self> {
        let _line = caller_line();
        self.map_tensors(&mut |tensor| tensor.to(device))
    }
}

impl<T: TensorTree> ToDevice for T {}
