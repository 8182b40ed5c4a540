//! A table of vectors.

use std::fmt;

use tensor_core::{DType, Error, Generator, Result, Tensor, default_dtype};

use super::{layer, linear::parameter, record};
use crate::{Module, Visitor, VisitorMut, functional};

/// The row of a table for each index: `[…]` of an integer dtype to `[…, features]`. `torch.nn.Embedding`.
///
/// `weight` has the shape `[rows, features]` and begins standard normal, PyTorch's default. A clone shares it.
#[derive(Clone)]
pub struct Embedding {
    /// `[rows, features]`.
    pub weight: Tensor,
    padding_idx: Option<usize>,
}

impl Embedding {
    /// A table of `rows` vectors of `features` numbers of the default dtype (f32), on the generator's device.
    ///
    /// # Errors
    /// No rows, no features, a default dtype that the device lacks, or no memory.
    #[track_caller]
    pub fn new(rows: usize, features: usize, rng: &Generator) -> Result<Embedding> {
        if rows == 0 || features == 0 {
            return Err(Error::invalid(
                "Embedding",
                format!("{rows} rows of {features} features: give at least one of each"),
            ));
        }
        let weight = parameter(Tensor::randn([rows, features], rng)?, default_dtype())?;
        Ok(Embedding { weight, padding_idx: None })
    }

    /// As [`Embedding::new`], with a row that stands for padding: it begins as zeros and takes no part in gradients.
    /// `torch.nn.Embedding(padding_idx=…)`.
    ///
    /// # Errors
    /// As [`Embedding::new`], and a `padding_idx` that is no row.
    #[track_caller]
    pub fn with_padding(
        rows: usize,
        features: usize,
        padding_idx: usize,
        rng: &Generator,
    ) -> Result<Embedding> {
        if padding_idx >= rows {
            let message = format!("padding_idx {padding_idx} is no row of {rows}");
            return Err(Error::invalid("Embedding", message));
        }
        let table = Embedding::new(rows, features, rng)?;
        let row = Tensor::arange(0, rows, 1, (DType::I32, rng.device()))?.eq_scalar(padding_idx as i64);
        let value = table.weight.detach().masked_fill(&row.unsqueeze(1)?, 0.0)?;
        value.eval()?;
        table.weight.assign(&value)?;
        Ok(Embedding { padding_idx: Some(padding_idx), ..table })
    }

    /// A table with this content, such as vectors trained elsewhere. A cell given is shared, not copied.
    /// `torch.nn.Embedding.from_pretrained`, except that the table is trained: freeze it with
    /// [`Module::set_requires_grad`].
    ///
    /// ```
    /// use nn::Embedding;
    /// use tensor_core::Tensor;
    /// # fn main() -> tensor_core::Result<()> {
    /// let device = backend_cpu::cpu();
    /// let table = Embedding::from_weight(Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device)?)?;
    /// assert_eq!(table.forward(&Tensor::new([1i32, 0, 1], &device)?)?.to_vec::<f32>()?, [3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A weight that is not of the shape `[rows, features]` with at least one of each, or not floating-point; a value that
    /// cannot be computed.
    #[track_caller]
    pub fn from_weight(weight: Tensor) -> Result<Embedding> {
        if weight.rank() != 2 || weight.numel() == 0 {
            return Err(Error::invalid(
                "Embedding",
                format!("a weight of shape {}: give one of shape [rows, features]", weight.shape()),
            ));
        }
        let dtype = weight.dtype();
        Ok(Embedding { weight: parameter(weight, dtype)?, padding_idx: None })
    }
}

impl Embedding {
    /// The rows for these indices.
    ///
    /// # Errors
    /// Indices that are not integers. An index outside the table shows when the result is computed.
    #[track_caller]
    pub fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        record(
            self,
            match self.padding_idx {
                None => functional::embedding(indices, &self.weight),
                Some(row) => functional::embedding_with_padding(indices, &self.weight, row),
            },
        )
    }
}

impl fmt::Debug for Embedding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |axis: usize| self.weight.dims().get(axis).copied().unwrap_or(0);
        write!(f, "Embedding({}, {}", size(0), size(1))?;
        match self.padding_idx {
            Some(row) => write!(f, ", padding_idx={row})"),
            None => f.write_str(")"),
        }
    }
}

layer!(Embedding);

impl Module for Embedding {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.parameter("weight", &self.weight);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.parameter("weight", &mut self.weight);
    }
}
