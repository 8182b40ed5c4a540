//! Conversions between `ndarray` arrays and tensors, with the feature `ndarray`.

use ndarray::{ArrayD, ArrayRef, Dimension, IxDyn};

use crate::tensor::Tensor;
use crate::{
    base::{
        error::{Error, Result},
        shape::Shape,
    },
    devices::device::Device,
    elements::element::Element,
};

impl Tensor {
    /// A tensor with an array's elements, shape and element type. The array may be a view of any layout;
    /// elements are copied in its logical order. `torch.from_numpy`. With the feature `ndarray`.
    ///
    /// # Errors
    /// A dtype that the device lacks, or out of memory.
    ///
    /// ```
    /// use ndarray::array;
    /// use tensor_core::{Device, Result, Tensor};
    ///
    /// # fn f(device: &Device) -> Result<()> {
    /// let a = array![[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    /// let x = Tensor::from_ndarray(&a.t(), device)?; // [3, 2]
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    /// assert_eq!(x.to_ndarray::<f32>()?, a.t().into_dyn());
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "from_numpy")]
    pub fn from_ndarray<T: Element, D: Dimension>(array: &ArrayRef<T, D>, device: &Device) -> Result<Tensor> {
        let shape = Shape::from(array.shape());
        match array.as_slice() {
            Some(elements) => Tensor::from_slice(elements, shape, device),
            None => Tensor::from_vec(array.iter().copied().collect(), shape, device),
        }
    }

    /// The elements as an array of this tensor's shape, row-major; `T` as for [`Tensor::to_vec`].
    /// `tensor.numpy()`. With the feature `ndarray`.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    #[track_caller]
    #[doc(alias = "numpy")]
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        let elements = T::from_bytes(&self.read_as("to_ndarray", T::DTYPE)?);
        match ArrayD::from_shape_vec(IxDyn(self.dims()), elements) {
            Ok(array) => Ok(array),
            Err(misfit) => Err(Error::invalid("to_ndarray", format!("shape {}: {misfit}", self.shape()))),
        }
    }
}
