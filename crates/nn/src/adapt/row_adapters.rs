//! [`RowAdapters`]: adapters of one model at the same time, of which each row of a batch has its own.

use tensor_core::{Error, Result, Tensor, caller_line, eval_all};

use super::{
    OP,
    adapter::Adapter,
    handle::{Lora, hosts},
    kind::LayerKind,
    stacked::{Matrices, Stacked},
    weighted_host::Host,
};
use crate::Module;

/// Adapters of one model at the same time, of which each row of a batch has its own, or none.
///
/// ```
/// use nn::{Linear, Module, lora::{self, LoraConfig, RowAdapters}};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let layer = Linear::new(8, 4, &rng)?;
/// let mut adapters = RowAdapters::new(&layer);
/// for _ in 0..2 {
///     adapters.add(lora::attach(&layer, &LoraConfig::new(2).targets([""]), &rng)?)?;
/// }
/// let x = Tensor::ones([3, 8], rng.device())?;
/// // The model's own row, and one of each adapter.
/// let rows = Tensor::from_vec(vec![0i32, 1, 2], [3], rng.device())?;
/// let y = lora::with_rows(Some(&rows), || layer.forward(&x))?;
/// assert_eq!(y.dims(), [3, 4]);
/// # Ok(()) }
/// ```
///
/// The adapters are those of linear layers, for inference: their parameters are copied, and have no
/// gradients. A row has the same bits beside any others, and whatever the number of its tokens, as far as
/// the layer's product has.
#[derive(Debug)]
pub struct RowAdapters {
    layers: Vec<Host>,
    count: usize,
}

impl RowAdapters {
    /// No adapters yet, for the layers of a model.
    pub fn new<M: Module + ?Sized>(model: &M) -> RowAdapters {
        RowAdapters { layers: hosts(model), count: 0 }
    }

    /// The number of adapters.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no adapter.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes an adapter out of the model, and makes it the last one of rows.
    ///
    /// # Errors
    /// An adapter of another model; one of embeddings or convolutions, with DoRA, with biases, or with
    /// modules of the model that are trained with it; too little memory. The adapter is no longer in the
    /// model then, and the adapters of rows are as before.
    #[track_caller]
    pub fn add(&mut self, adapter: Lora) -> Result<()> {
        let _line = caller_line();
        let added = self.added(&adapter);
        adapter.detach();
        self.replace(added?, self.count + 1)
    }

    /// Removes adapter `at`, by its place from 0. Those after it move down by one.
    ///
    /// # Errors
    /// A place without an adapter, or too little memory. Nothing has changed then.
    #[track_caller]
    pub fn remove(&mut self, at: usize) -> Result<()> {
        let _line = caller_line();
        if at >= self.count {
            return Err(Error::invalid(OP, format!("remove: adapter {at} of {}", self.count)));
        }
        let without = |host: &Host| {
            let mut all = matrices(host, self.count)?;
            all.remove(at);
            Stacked::new(&all)
        };
        let rest = self.layers.iter().map(without).collect::<Result<_>>()?;
        self.replace(rest, self.count - 1)
    }

    /// The matrices of each layer with those of one more adapter.
    #[track_caller]
    fn added(&self, adapter: &Lora) -> Result<Vec<Option<Stacked>>> {
        let is_same = |a: &Host, b: &Host| a.adapters.address() == b.adapters.address();
        for (host, part) in adapter.parts() {
            if !self.layers.iter().any(|own| is_same(own, host)) {
                return Err(Error::invalid(OP, format!("{}: the layer is one of another model", host.path)));
            }
            part.require_plain(&host.path)?;
        }
        let with = |host: &Host| {
            let mut all = matrices(host, self.count)?;
            let own = adapter.parts().find(|(other, _)| is_same(other, host));
            all.push(own.map(|(_, part)| part.matrices()).transpose()?);
            Stacked::new(&all)
        };
        self.layers.iter().map(with).collect()
    }

    /// Computes the matrices of all layers, and then takes them.
    #[track_caller]
    fn replace(&mut self, stacks: Vec<Option<Stacked>>, count: usize) -> Result<()> {
        let tensors = stacks.iter().flatten().flat_map(|stacked| [&stacked.down, &stacked.up]);
        eval_all(&tensors.collect::<Vec<_>>())?;
        for (host, stacked) in self.layers.iter().zip(stacks) {
            host.adapters.write().rows = stacked;
        }
        self.count = count;
        Ok(())
    }
}

impl Drop for RowAdapters {
    /// The model is without adapters of rows again.
    fn drop(&mut self) {
        for host in &self.layers {
            host.adapters.write().rows = None;
        }
    }
}

/// The matrices of the adapters of a layer.
#[track_caller]
fn matrices(host: &Host, count: usize) -> Result<Vec<Matrices>> {
    match &host.adapters.read().rows {
        None => Ok(vec![None; count]),
        Some(stacked) => stacked.parts(),
    }
}

impl Adapter {
    /// An error unless the adapter is s · B·A of a linear layer, and nothing else.
    #[track_caller]
    fn require_plain(&self, path: &str) -> Result<()> {
        let more = match self.kind {
            LayerKind::Embedding => Some("is an embedding"),
            LayerKind::Conv { .. } => Some("is a convolution"),
            LayerKind::Linear { .. } if self.magnitude.is_some() => Some("has DoRA"),
            LayerKind::Linear { .. } if self.bias.is_some() => Some("has a lora_bias"),
            LayerKind::Linear { .. } if !self.saved.is_empty() => {
                Some("has modules trained with the adapter")
            }
            LayerKind::Linear { .. } => None,
        };
        match more {
            None => Ok(()),
            Some(more) => {
                let message =
                    format!("{path} {more}: adapters of rows are those of linear layers, by B·A alone");
                Err(Error::invalid(OP, message))
            }
        }
    }

    /// A and the transpose of s · B.
    #[track_caller]
    fn matrices(&self) -> Result<(Tensor, Tensor)> {
        Ok((self.a.detach(), self.b.detach().t()?.mul_scalar(self.scaling)))
    }
}
