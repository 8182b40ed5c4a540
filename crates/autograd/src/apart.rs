//! A function's inputs as tensors of their own, for the derivative in each of them by itself.

use tensor_core::{Result, Tensor};

use crate::function::{Function, apply};

/// The same numbers as a tensor to differentiate in, whatever it was made of. What is done with it is
/// recorded back to `x` where `recorded` says so.
#[track_caller]
pub(crate) fn apart(x: &Tensor, recorded: bool) -> Result<Tensor> {
    if recorded && x.is_tracked() { apply(Same, &[x]) } else { x.detach().into_cell(true) }
}

/// The identity.
#[derive(Debug)]
struct Same;

impl Function for Same {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "Same"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(inputs[0].detach())
    }

    #[track_caller]
    fn backward(&self, _: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradient.clone())])
    }
}
