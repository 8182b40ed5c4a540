//! Embedding tables.

use std::fmt;

use tensor_core::{DType, Error, Generator, Result, Tensor, caller_line, default_dtype};

use super::{layer, linear::parameter, record};
use crate::{
    Module, Visitor, VisitorMut,
    functions::{self, BagMode, BagOptions, renormalize},
    lora::{Adapters, LayerKind},
};

/// Options of an [`Embedding`], with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbeddingConfig {
    /// The padding row: it is initialized with zeros and gets no gradient. None by default.
    pub padding_idx: Option<usize>,
    /// The maximum norm of a row. `forward` scales down the rows that it looks up, in the table itself,
    /// without recording it. None by default.
    pub max_norm: Option<f64>,
    /// The power of that norm, 2 by default.
    pub norm_type: f64,
}

impl Default for EmbeddingConfig {
    fn default() -> EmbeddingConfig {
        EmbeddingConfig { padding_idx: None, max_norm: None, norm_type: 2.0 }
    }
}

impl EmbeddingConfig {
    #[track_caller]
    fn check(&self, op: &'static str, rows: usize) -> Result<()> {
        let _line = caller_line();
        if let Some(row) = self.padding_idx.filter(|&row| row >= rows) {
            return Err(Error::invalid(op, format!("padding_idx {row} is no row of {rows}")));
        }
        if self.max_norm.is_some_and(|norm| norm.is_nan() || norm < 0.0)
            || self.norm_type.is_nan()
            || self.norm_type <= 0.0
        {
            let message = format!(
                "rows of a norm of power {} up to {:?}: give a power above 0 and a norm of 0 or more",
                self.norm_type, self.max_norm
            );
            return Err(Error::invalid(op, message));
        }
        Ok(())
    }

    /// The initial table `[rows, features]`, standard normal.
    #[track_caller]
    fn table(&self, op: &'static str, rows: usize, features: usize, rng: &Generator) -> Result<Tensor> {
        let _line = caller_line();
        if rows == 0 || features == 0 {
            let message = format!("{rows} rows of {features} features: give at least one of each");
            return Err(Error::invalid(op, message));
        }
        self.check(op, rows)?;
        let mut weight = Tensor::randn([rows, features], rng)?;
        if let Some(padding) = self.padding_idx {
            let row = Tensor::arange(0, rows, 1, (DType::I32, rng.device()))?.eq_scalar(padding as i64);
            weight = weight.masked_fill(&row.unsqueeze(1)?, 0.0)?;
        }
        parameter(weight, default_dtype())
    }

    /// Scales down the rows that are looked up, if there is a maximum norm.
    #[track_caller]
    fn shorten(&self, indices: &Tensor, weight: &Tensor) -> Result<()> {
        match self.max_norm {
            Some(max_norm) => renormalize(indices, weight, max_norm, self.norm_type),
            None => Ok(()),
        }
    }
}

/// Looks up a row of a table for each index: `[…]` of an integer dtype to `[…, features]`.
/// `torch.nn.Embedding`.
///
/// `weight` has the shape `[rows, features]` and is initialized as standard normal, PyTorch's default. A
/// clone shares it.
#[derive(Clone)]
pub struct Embedding {
    /// The table `[rows, features]`.
    pub weight: Tensor,
    /// The adapters beside the table: none at first. See [`crate::lora`].
    pub adapters: Adapters,
    config: EmbeddingConfig,
}

impl Embedding {
    /// A table of `rows` vectors with `features` elements of the default dtype (f32), on the generator's
    /// device.
    ///
    /// # Errors
    /// No rows, no features, a default dtype that the device lacks, or too little memory.
    #[track_caller]
    pub fn new(rows: usize, features: usize, rng: &Generator) -> Result<Embedding> {
        Embedding::with_config(rows, features, EmbeddingConfig::default(), rng)
    }

    /// A table with a padding row or a maximum norm.
    ///
    /// # Errors
    /// As [`Embedding::new`]; a `padding_idx` that is no row, a negative norm, a power that is not above 0.
    #[track_caller]
    pub fn with_config(
        rows: usize,
        features: usize,
        config: EmbeddingConfig,
        rng: &Generator,
    ) -> Result<Embedding> {
        let weight = config.table("Embedding", rows, features, rng)?;
        Ok(Embedding { weight, adapters: Adapters::default(), config })
    }

    /// As [`Embedding::new`], with a padding row, which is initialized with zeros and gets no gradient.
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
        let config = EmbeddingConfig { padding_idx: Some(padding_idx), ..Default::default() };
        Embedding::with_config(rows, features, config, rng)
    }

    /// The table, which the model also uses elsewhere, for instance as the weight of its output layer: `what`
    /// names that use. An adapter is not merged into such a table unnoticed; see
    /// [`Lora::merge`](crate::lora::Lora::merge).
    #[must_use]
    pub fn shared_with(self, what: &str) -> Embedding {
        self.adapters.set_shared(what);
        self
    }

    /// A table with the given values, such as pretrained vectors. If a cell is given, it is shared, not
    /// copied. `torch.nn.Embedding.from_pretrained`, except that the table is trainable: freeze it with
    /// [`Module::set_requires_grad`].
    ///
    /// ```
    /// use nn::Embedding;
    /// use tensor_core::Tensor;
    /// # fn main() -> tensor_core::Result<()> {
    /// let device = backend_cpu::cpu();
    /// let table = Embedding::from_weight(Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device)?)?;
    /// let rows = table.forward(&Tensor::new([1i32, 0, 1], &device)?)?;
    /// assert_eq!(rows.to_vec::<f32>()?, [3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A weight that is not of the shape `[rows, features]` with at least one of each, or not floating-point;
    /// a value that cannot be computed.
    #[track_caller]
    pub fn from_weight(weight: Tensor) -> Result<Embedding> {
        let _line = caller_line();
        if weight.rank() != 2 || weight.numel() == 0 {
            return Err(Error::invalid(
                "Embedding",
                format!("a weight of shape {}: give one of shape [rows, features]", weight.shape()),
            ));
        }
        let dtype = weight.dtype();
        let (adapters, config) = (Adapters::default(), EmbeddingConfig::default());
        Ok(Embedding { weight: parameter(weight, dtype)?, adapters, config })
    }
}

impl Embedding {
    /// The rows for these indices.
    ///
    /// # Errors
    /// Indices that are not integers. An index out of range is an error when the result is computed.
    #[track_caller]
    pub fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        self.config.shorten(indices, &self.weight)?;
        record!(self, self.adapters.embedding(indices, &self.weight, self.config.padding_idx))
    }
}

impl fmt::Debug for Embedding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |axis: usize| self.weight.dims().get(axis).copied().unwrap_or(0);
        write!(f, "Embedding({}, {}", size(0), size(1))?;
        match self.config.padding_idx {
            Some(row) => write!(f, ", padding_idx={row})"),
            None => f.write_str(")"),
        }
    }
}

layer!(Embedding);

impl Module for Embedding {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.parameter("weight", &self.weight);
        self.adapters.visit(&self.weight, LayerKind::Embedding, visitor);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.parameter("weight", &mut self.weight);
        self.adapters.visit_mut(visitor);
    }
}

/// Options of an [`EmbeddingBag`], with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmbeddingBagConfig {
    /// The reduction over a bag: the mean by default.
    pub mode: BagMode,
    /// Whether offsets end with the number of indices. Off by default.
    pub include_last_offset: bool,
    /// A padding row and a maximum norm, as in an [`Embedding`]. Neither by default.
    pub rows: EmbeddingConfig,
}

/// The sum, mean or maximum of a table's rows in each bag of indices: see
/// [`functional::embedding_bag`](crate::functional::embedding_bag).
/// `torch.nn.EmbeddingBag`.
///
/// `weight` has the shape `[rows, features]` and is initialized as standard normal, PyTorch's default. A
/// clone shares it.
#[derive(Clone)]
pub struct EmbeddingBag {
    /// The table `[rows, features]`.
    pub weight: Tensor,
    config: EmbeddingBagConfig,
}

impl EmbeddingBag {
    /// A table of `rows` vectors with `features` elements of the default dtype (f32), on the generator's
    /// device.
    ///
    /// # Errors
    /// As [`Embedding::with_config`].
    #[track_caller]
    pub fn new(
        rows: usize,
        features: usize,
        config: EmbeddingBagConfig,
        rng: &Generator,
    ) -> Result<EmbeddingBag> {
        Ok(EmbeddingBag { weight: config.rows.table("EmbeddingBag", rows, features, rng)?, config })
    }

    /// `[B, features]` for bags of indices `[B, N]`, or `[N]` with `offsets` `[B]`; sums may have a weight
    /// for each index.
    ///
    /// # Errors
    /// As [`functional::embedding_bag`](crate::functional::embedding_bag).
    #[track_caller]
    pub fn forward(
        &self,
        indices: &Tensor,
        offsets: Option<&Tensor>,
        per_sample_weights: Option<&Tensor>,
    ) -> Result<Tensor> {
        let EmbeddingBagConfig { mode, include_last_offset, rows } = self.config;
        let options = BagOptions {
            mode,
            offsets,
            include_last_offset,
            per_sample_weights,
            padding_idx: rows.padding_idx,
        };
        if rows.max_norm.is_some() {
            // Invalid arguments are refused before the table changes.
            let _ = functions::embedding_bag(indices, &self.weight.detach(), options)?;
            rows.shorten(indices, &self.weight)?;
        }
        record!(self, functions::embedding_bag(indices, &self.weight, options))
    }
}

impl fmt::Debug for EmbeddingBag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |axis: usize| self.weight.dims().get(axis).copied().unwrap_or(0);
        write!(f, "EmbeddingBag({}, {}, mode={:?})", size(0), size(1), self.config.mode.name())
    }
}

impl Module for EmbeddingBag {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.parameter("weight", &self.weight);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.parameter("weight", &mut self.weight);
    }
}
