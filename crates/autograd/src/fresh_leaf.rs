//! Copies of a function's inputs as independent variables, for the derivative in each of them.

use tensor_core::{Result, Tensor};

use crate::function::{Function, apply};

/// A copy of `x` as an independent variable. If `recorded` is set and `x` is tracked, operations on the copy
/// are recorded back to `x`.
#[track_caller]
pub(crate) fn fresh_leaf(x: &Tensor, recorded: bool) -> Result<Tensor> {
    if recorded && x.is_tracked() { apply(Same, &[x]) } else { x.detach().into_cell(true) }
}

/// The identity function.
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
