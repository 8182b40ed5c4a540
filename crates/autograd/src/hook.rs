//! Gradient hooks.

use std::{fmt, sync::Arc};

use tensor_core::{Error, ErrorKind, Result, Tensor};

use crate::{Function, apply};

type Hook = Arc<dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync>;

/// The identity function, whose backward pass calls the hook.
struct Hooked(Hook);

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl Function for Hooked {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "Hook"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(inputs[0].detach())
    }

    #[track_caller]
    fn backward(&self, _: &[Tensor], output: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let Some(other) = (self.0)(gradient)? else { return Ok(vec![Some(gradient.clone())]) };
        if other.shape() != output.shape()
            || other.dtype() != output.dtype()
            || other.device() != output.device()
        {
            return Err(Error::new(ErrorKind::Autograd {
                op: "register_hook",
                message: format!(
                    "a hook returned a gradient {} {} on {} for a tensor {} {} on {}: shape, dtype and device must be those of the tensor",
                    other.dtype(),
                    other.shape(),
                    other.device(),
                    output.dtype(),
                    output.shape(),
                    output.device()
                ),
            }));
        }
        Ok(vec![Some(other)])
    }
}

/// See [`crate::TensorGrad::register_hook`].
#[track_caller]
pub(crate) fn hooked(tensor: &Tensor, hook: Hook) -> Result<Tensor> {
    apply(Hooked(hook), &[tensor])
}
