//! [`RowAdapters`]: adapters of one model at the same time, of which each row of a batch has its own.
//!
//! The matrices of all adapters of a layer stand in one tensor, and a step gathers those of its rows. Sheng et
//! al.: S-LoRA, serving thousands of concurrent LoRA adapters (2023).

use std::cell::RefCell;

use tensor_core::{Error, OnDrop, Result, Tensor, caller_line, eval_all, set_grad_enabled};

use super::{
    OP,
    adapter::Adapter,
    handle::{Lora, hosts},
    kind::LayerKind,
    weighted_host::Host,
};
use crate::Module;

thread_local! {
    /// The numbers of the adapters of rows, while [`with_rows`] runs.
    static ROWS: RefCell<Option<Tensor>> = const { RefCell::new(None) };
}

/// Calls `f`, in which the first axis of the input of each layer has rows with the adapters `rows`: integers
/// `[N]` on the model's device, 0 for none and k + 1 for adapter k of the model's [`RowAdapters`]. With `None`
/// all rows are the model's own.
pub fn with_rows<R>(rows: Option<&Tensor>, f: impl FnOnce() -> R) -> R {
    let before = ROWS.replace(rows.cloned());
    // Also after a panic.
    let _restored = OnDrop::new(move || ROWS.set(before));
    f()
}

/// The numbers of the rows' adapters that [`with_rows`] has set: a network that changes the rows between its
/// layers passes those of the new rows.
pub fn rows() -> Option<Tensor> {
    ROWS.with_borrow(Clone::clone)
}

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
/// The adapters are those of linear layers, for inference: their parameters are copied, and have no gradients.
/// A row has the same bits beside any others, and whatever the number of its tokens, as far as the layer's
/// product has.
#[derive(Debug)]
pub struct RowAdapters {
    layers: Vec<Host>,
    count: usize,
}

/// The matrices of all adapters of a layer. Number 0 is zeros, for rows without an adapter.
#[derive(Clone, Debug)]
pub(super) struct Stacked {
    /// A of each, `[adapters + 1, r, in]`, with rows of zeros up to the greatest rank.
    down: Tensor,
    /// The transposes of s · B, `[adapters + 1, r, out]`.
    up: Tensor,
    /// The rank of each adapter; 0 if it has no part in the layer.
    ranks: Vec<usize>,
}

/// A and the transpose of s · B of an adapter, if it has a part in a layer.
type Matrices = Option<(Tensor, Tensor)>;

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
    /// An adapter of another model; one of embeddings or convolutions, with DoRA, with biases, or with modules
    /// of the model that are trained with it; too little memory. The adapter is no longer in the model then,
    /// and those of rows are as before.
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
        let is_here =
            |host: &Host| self.layers.iter().any(|own| own.adapters.address() == host.adapters.address());
        for (host, part) in adapter.parts() {
            if !is_here(host) {
                return Err(Error::invalid(OP, format!("{}: the layer is one of another model", host.path)));
            }
            part.require_plain(&host.path)?;
        }
        let with = |host: &Host| {
            let mut all = matrices(host, self.count)?;
            let own = adapter.parts().find(|(other, _)| other.adapters.address() == host.adapters.address());
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
    let weighted = host.adapters.read();
    let Some(Stacked { down, up, ranks }) = &weighted.rows else { return Ok(vec![None; count]) };
    let part = |(at, &rank): (usize, &usize)| -> Result<Matrices> {
        let of = |all: &Tensor| all.select(0, at + 1)?.narrow(0, 0, rank);
        Ok(if rank == 0 { None } else { Some((of(down)?, of(up)?)) })
    };
    ranks.iter().enumerate().map(part).collect()
}

impl Stacked {
    /// The matrices of these adapters as one; none if no adapter has a part in the layer.
    #[track_caller]
    fn new(all: &[Matrices]) -> Result<Option<Stacked>> {
        let ranks: Vec<usize> =
            all.iter().map(|part| part.as_ref().map_or(0, |(down, _)| down.dims()[0])).collect();
        let rank = ranks.iter().copied().max().unwrap_or(0);
        let Some((down, up)) = all.iter().flatten().next() else { return Ok(None) };
        let stacked = |like: &Tensor, of: fn(&(Tensor, Tensor)) -> &Tensor| {
            let zeros = Tensor::zeros([rank, like.dims()[1]], (like.dtype(), &like.device()))?;
            let parts = all.iter().map(|part| match part.as_ref().map(of) {
                Some(part) => part.pad(&[(0, rank - part.dims()[0]), (0, 0)], 0.0),
                None => Ok(zeros.clone()),
            });
            Tensor::stack(&[Ok(zeros.clone())].into_iter().chain(parts).collect::<Result<Vec<_>>>()?, 0)
        };
        set_grad_enabled(false, || {
            let (down, up) = (stacked(down, |part| &part.0)?, stacked(up, |part| &part.1)?);
            Ok(Some(Stacked { down, up, ranks }))
        })
    }

    /// The layer's output `plain` for an input, with the adapters of the rows. Sums along the axes of one row
    /// have an order that does not depend on the others, which products do not promise.
    #[track_caller]
    pub(super) fn add(&self, rows: &Tensor, input: &Tensor, plain: &Tensor) -> Result<Tensor> {
        let (count, dims) = (rows.numel(), input.dims());
        if dims.len() < 2 || dims[0] != count {
            let message = format!("{count} rows have adapters, and a layer's input is {}", input.shape());
            return Err(Error::invalid(OP, message));
        }
        let inputs = self.down.dims()[2];
        let input = input.to_dtype(self.down.dtype())?.reshape(&[count as isize, -1, 1, inputs as isize])?;
        let down = self.down.index_select(0, rows)?.unsqueeze(1)?;
        let up = self.up.index_select(0, rows)?.unsqueeze(1)?;
        let inner = input.mul(&down)?.sum_axis(-1, true)?;
        let product = inner.mul(&up)?.sum_axis(-2, false)?;
        plain.add(&product.reshape(plain.dims())?.to_dtype(plain.dtype())?)
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
