//! A table of vectors.

use tensor_core::{DType, Error, Generator, Result, Tensor};

use super::{layer, linear::parameter};
use crate::{Module, Visitor, VisitorMut};

/// The row of a table for each index: `[…]` of an integer dtype to `[…, features]`. `torch.nn.Embedding`.
///
/// `weight` has the shape `[rows, features]` and begins standard normal, PyTorch's default.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// `[rows, features]`.
    pub weight: Tensor,
}

impl Embedding {
    /// A table of `rows` vectors of `features` numbers, f32, on the generator's device.
    ///
    /// # Errors
    /// No rows, no features, or no memory.
    #[track_caller]
    pub fn new(rows: usize, features: usize, rng: &Generator) -> Result<Embedding> {
        if rows == 0 || features == 0 {
            return Err(Error::invalid(
                "Embedding",
                format!("{rows} rows of {features} features: give at least one of each"),
            ));
        }
        Ok(Embedding { weight: parameter(Tensor::randn([rows, features], rng)?, DType::F32)? })
    }
}

impl Embedding {
    /// The rows for these indices.
    ///
    /// # Errors
    /// Indices that are not integers. An index outside the table shows when the result is computed.
    #[track_caller]
    pub fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        let features = self.weight.dim(1)?;
        let shape: Vec<usize> = indices.dims().iter().copied().chain([features]).collect();
        self.weight.index_select(0, &indices.flatten_all())?.reshape(shape)
    }
}

layer!(Embedding);

impl Module for Embedding {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        visitor.parameter("weight", &self.weight);
    }
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        visitor.parameter("weight", &mut self.weight);
    }
}
