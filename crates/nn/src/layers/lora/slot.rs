//! [`Adapters`]: the place in a layer that holds its adapters, and through which its forward pass runs.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tensor_core::{DType, Error, Result, Tensor};

use super::{
    OP,
    adapter::{Adapter, rows},
    kind::LayerKind,
};
use crate::{
    Visitor, VisitorMut,
    functional::{self, ConvOptions, convolution},
};

/// The adapters of one layer: none at first. A layer that can have adapters has this in a field, computes its
/// output through it, and passes it to the visitor in [`Module::visit`](crate::Module::visit) and
/// `visit_mut`:
///
/// ```
/// use nn::{Module, Parameter, Visitor, VisitorMut, lora::{Adapters, LayerKind}};
/// use tensor_core::{Result, Tensor};
///
/// struct Scaled { weight: Parameter, adapters: Adapters }
///
/// impl Scaled {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         self.adapters.linear(x, &self.weight, None)
///     }
/// }
///
/// impl Module for Scaled {
///     fn visit(&self, visitor: &mut Visitor) {
///         visitor.parameter("weight", &self.weight);
///         self.adapters.visit(&self.weight, LayerKind::Linear { transposed: false }, visitor);
///     }
///     fn visit_mut(&mut self, visitor: &mut VisitorMut) {
///         visitor.field("weight", &mut self.weight);
///         self.adapters.visit_mut(visitor);
///     }
/// }
/// ```
///
/// A clone shares the adapters, as a clone of a layer shares its parameters.
#[derive(Clone, Default)]
pub struct Adapters(Arc<RwLock<Slot>>);

/// The adapters, the active one, and the weight's value before that one was merged.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) adapters: Vec<Arc<Adapter>>,
    pub(super) active: Option<usize>,
    pub(super) unmerged: Option<Tensor>,
    /// The squares of the layer's inputs, while they are measured.
    squares: Option<Squares>,
}

/// The sums of the squares of inputs, and of how many rows.
#[derive(Default)]
struct Squares {
    sums: Option<Tensor>,
    rows: usize,
}

impl Slot {
    /// The place of the adapter with a name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.adapters.iter().position(|adapter| adapter.config.name == name)
    }
}

impl Adapters {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Slot> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Slot> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address that clones share.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// The adapter that takes part in the forward pass.
    fn active(&self) -> Option<Arc<Adapter>> {
        let slot = self.read();
        if slot.unmerged.is_some() {
            return None;
        }
        slot.active.and_then(|active| slot.adapters.get(active).cloned())
    }

    /// Begins to measure inputs, from nothing, or ends it.
    pub(crate) fn observe(&self, on: bool) {
        self.write().squares = on.then(Squares::default);
    }

    /// The mean of the square of each input, if any were measured.
    pub(crate) fn mean_square(&self) -> Result<Option<Tensor>> {
        match &self.read().squares {
            Some(Squares { sums: Some(sums), rows }) => Ok(Some(sums.mul_scalar(1.0 / *rows as f64))),
            _ => Ok(None),
        }
    }

    /// Adds the squares of inputs, if they are measured.
    #[track_caller]
    fn measure(&self, input: &Tensor) -> Result<()> {
        if self.read().squares.is_none() || input.numel() == 0 {
            return Ok(());
        }
        let features = input.dims().last().copied().unwrap_or(1);
        let rows = input.numel() / features;
        let squares =
            input.detach().to_dtype(DType::F32)?.reshape([rows, features])?.square().sum_axis(0, false)?;
        if let Some(all) = &mut self.write().squares {
            let sums = match &all.sums {
                Some(sums) => sums.add(&squares)?,
                None => squares,
            };
            sums.eval()?;
            *all = Squares { sums: Some(sums), rows: all.rows + rows };
        }
        Ok(())
    }

    /// The number of adapters.
    pub fn len(&self) -> usize {
        self.read().adapters.len()
    }

    /// Whether there is no adapter.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// [`functional::linear`] with the active adapter. A layer with a weight `[in, out]` gives its transpose.
    ///
    /// # Errors
    /// As [`functional::linear`].
    #[track_caller]
    pub fn linear(&self, input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        self.measure(input)?;
        match self.active() {
            None => functional::linear(input, weight, bias),
            Some(adapter) => adapter.linear(input, weight, bias),
        }
    }

    /// [`functional::embedding`] with the active adapter; the row `padding` gets no gradient.
    ///
    /// # Errors
    /// As [`functional::embedding_with_padding`].
    #[track_caller]
    pub fn embedding(&self, indices: &Tensor, weight: &Tensor, padding: Option<usize>) -> Result<Tensor> {
        match self.active() {
            Some(adapter) => adapter.embedding(indices, weight, padding),
            None => rows(indices, weight, padding),
        }
    }

    #[track_caller]
    pub(crate) fn conv<const D: usize>(
        &self,
        op: &'static str,
        input: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvOptions<D>,
    ) -> Result<Tensor> {
        match self.active() {
            None => convolution(op, input, weight, bias, options),
            Some(adapter) => adapter.conv(op, input, weight, bias, options),
        }
    }

    /// Records the layer at the visitor's path, whose weight the adapters change, and visits their tensors.
    pub fn visit(&self, weight: &Tensor, kind: LayerKind, visitor: &mut Visitor) {
        visitor.host(|path| Box::new(Host::new(path, self, weight, kind)));
        self.visit_tensors(visitor);
    }

    /// Visits the adapters' tensors, which a copy of the layer replaces.
    pub fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        if !visitor.copies() {
            return; // all tensors are cells
        }
        let address = self.address();
        let copy = visitor.copy_of(address).unwrap_or_else(|| self.copied(visitor));
        visitor.keep_copy(address, copy.clone());
        *self = copy;
    }

    /// Visits the adapters' tensors, with their names.
    pub(super) fn visit_tensors(&self, visitor: &mut Visitor) {
        let slot = self.read();
        slot.adapters.iter().for_each(|adapter| adapter.visit(visitor, Some(&adapter.config.name)));
    }

    /// An independent copy, with the tensors that the visitor replaces.
    fn copied(&self, visitor: &mut VisitorMut) -> Adapters {
        let slot = self.read();
        let adapters = slot.adapters.iter().map(|adapter| Arc::new(adapter.replaced(visitor))).collect();
        let copy = Slot { adapters, active: slot.active, unmerged: slot.unmerged.clone(), squares: None };
        Adapters(Arc::new(RwLock::new(copy)))
    }
}

impl fmt::Debug for Adapters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.read().adapters.iter().map(|adapter| &adapter.config.name)).finish()
    }
}

/// A layer with a place for adapters, found in a model.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) path: String,
    pub(crate) slot: Adapters,
    pub(crate) weight: Tensor,
    pub(crate) kind: LayerKind,
}

impl Host {
    fn new(path: &str, slot: &Adapters, weight: &Tensor, kind: LayerKind) -> Host {
        Host { path: path.to_string(), slot: slot.clone(), weight: weight.clone(), kind }
    }

    /// An error unless no adapter is merged into the weight.
    #[track_caller]
    pub(crate) fn require_unmerged(&self) -> Result<()> {
        match self.slot.read().unmerged {
            None => Ok(()),
            Some(_) => {
                let message =
                    format!("{}: an adapter is merged into the weight; unmerge it first", self.path);
                Err(Error::invalid(OP, message))
            }
        }
    }
}
