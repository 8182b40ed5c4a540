//! [`TensorSource`]: tensors by name that a module is loaded from, in memory or in a file.

use tensor_core::{DType, Device, Error, ErrorKind, Result, Shape, Tensor};

use crate::StateDict;

/// Tensors by name that [`Module::load_state_dict`](crate::Module::load_state_dict) and its relatives load: a
/// [`StateDict`], a [`SafetensorsFile`](crate::SafetensorsFile), a `weights::WeightFile`, or your own.
pub trait TensorSource {
    /// The names of all tensors, in the order in which they are read fastest.
    fn names(&self) -> Vec<&str>;

    /// The shape and dtype of the tensor with a name; `None` if only [`TensorSource::read`] tells.
    fn described(&self, name: &str) -> Option<(Shape, DType)>;

    /// The tensor with a name, for a parameter of this dtype on this device. It may have another dtype or be
    /// on another device: the caller casts and moves it.
    ///
    /// # Errors
    /// No such tensor, or one that cannot be read.
    fn read(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor>;

    /// Whether the tensors are in memory already. Then all are computed before the first is assigned;
    /// otherwise each is assigned once it is read.
    fn is_in_memory(&self) -> bool {
        false
    }
}

impl TensorSource for StateDict {
    fn names(&self) -> Vec<&str> {
        self.keys().map(String::as_str).collect()
    }

    fn described(&self, name: &str) -> Option<(Shape, DType)> {
        self.get(name).map(|tensor| (tensor.shape().clone(), tensor.dtype()))
    }

    #[track_caller]
    fn read(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        self.get(name).cloned().ok_or_else(|| {
            Error::new(ErrorKind::StateDict {
                missing: vec![name.to_string()],
                unexpected: Vec::new(),
                mismatched: Vec::new(),
            })
        })
    }

    fn is_in_memory(&self) -> bool {
        true
    }
}
