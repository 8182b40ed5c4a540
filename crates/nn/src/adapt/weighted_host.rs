//! [`Adapters`]: the place in a layer that holds its adapters, and through which its forward pass runs.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tensor_core::{Error, Result, Tensor, caller_line};

use super::{
    OP,
    adapter::{Adapter, rows},
    kind::LayerKind,
    simulated::Simulated,
    stacked::{self, Stacked},
    statistics::{InputStatistics, Measured},
};
use crate::{
    Entry, Visitor, VisitorMut,
    functions::{self, ConvOptions, convolution},
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
pub struct Adapters(Arc<RwLock<WeightedHost>>);

/// The adapters, the active one, and the weight's value before that one was merged.
#[derive(Default)]
pub(super) struct WeightedHost {
    pub(super) adapters: Vec<Arc<Adapter>>,
    pub(super) active: Option<usize>,
    pub(super) unmerged: Option<Unmerged>,
    /// The adapters that rows of a batch may have.
    pub(super) rows: Option<Stacked>,
    /// The use of the weight outside of the layer, if there is one.
    shared: Option<String>,
    /// The scale that inputs are divided by before the weight: AWQ's, `[in]`.
    input_scale: Option<Tensor>,
    /// The simulated rounding of the input and the weight.
    simulated: Option<Arc<Simulated>>,
    /// The statistics of the layer's inputs, while they are measured.
    measured: Option<Measured>,
}

/// The values of a layer before an adapter was merged.
#[derive(Clone)]
pub(super) struct Unmerged {
    pub(super) weight: Tensor,
    pub(super) bias: Option<Tensor>,
}

impl WeightedHost {
    /// The place of the adapter with a name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.adapters.iter().position(|adapter| adapter.config.name == name)
    }
}

impl Adapters {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, WeightedHost> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, WeightedHost> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address that clones share.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// The adapter that takes part in the forward pass.
    fn active(&self) -> Option<Arc<Adapter>> {
        let weighted = self.read();
        if weighted.unmerged.is_some() {
            return None;
        }
        weighted.active.and_then(|active| weighted.adapters.get(active).cloned())
    }

    /// The scale `[in]` that a linear layer divides its input by before the product with its weight, if it
    /// has one: [`quantize`](crate::quantize) with AWQ gives it one. It is the buffer `input_scale`.
    pub fn input_scale(&self) -> Option<Tensor> {
        self.read().input_scale.clone()
    }

    /// Gives a linear layer a scale `[in]` that its input is divided by, or takes it away. A file of a model
    /// with such scales loads into a model that has them, of any value.
    ///
    /// # Errors
    /// Too little memory.
    #[track_caller]
    pub fn set_input_scale(&self, scale: Option<&Tensor>) -> Result<()> {
        let _line = caller_line();
        let scale = scale.map(|scale| scale.detach().into_cell(false)).transpose()?;
        self.write().input_scale = scale;
        Ok(())
    }

    /// Notes that the model uses the layer's weight elsewhere too, in a way that is no layer of its own:
    /// `what` names it. [`Lora::merge`](crate::lora::Lora::merge) refuses to change such a weight.
    pub fn set_shared(&self, what: &str) {
        self.write().shared = Some(what.to_string());
    }

    /// The simulated rounding of the layer.
    pub(crate) fn simulated(&self) -> Option<Arc<Simulated>> {
        self.read().simulated.clone()
    }

    pub(crate) fn set_simulated(&self, simulated: Option<Arc<Simulated>>) {
        self.write().simulated = simulated;
    }

    /// Begins to measure inputs, from nothing, with products or without them, or ends it.
    pub(crate) fn observe(&self, products: Option<bool>) {
        self.write().measured = products.map(Measured::new);
    }

    /// The statistics of the inputs, if any were measured.
    pub(crate) fn statistics(&self) -> Option<InputStatistics> {
        self.read().measured.as_ref()?.means()
    }

    /// Adds to the statistics of inputs, if they are measured.
    #[track_caller]
    fn measure(&self, input: &Tensor) -> Result<()> {
        if self.read().measured.is_none() {
            return Ok(());
        }
        match &mut self.write().measured {
            Some(measured) => measured.add(input),
            None => Ok(()),
        }
    }

    /// The number of adapters.
    pub fn len(&self) -> usize {
        self.read().adapters.len()
    }

    /// Whether there is no adapter.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// [`functional::linear`](crate::functional::linear) with the active adapter, and with those of the rows
    /// ([`with_rows`](crate::lora::with_rows)). A layer with a weight `[in, out]` gives its transpose.
    ///
    /// # Errors
    /// As [`functional::linear`](crate::functional::linear).
    #[track_caller]
    pub fn linear(&self, input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let _line = caller_line();
        let scaled = match self.input_scale() {
            Some(scale) => &input.div(&scale.to_dtype(input.dtype())?)?,
            None => input,
        };
        self.measure(scaled)?;
        let Some(simulated) = self.simulated() else {
            return self.plain_linear(input, scaled, weight, bias);
        };
        let (scaled, weight) = simulated.apply(scaled, weight)?;
        self.plain_linear(input, &scaled, &weight, bias)
    }

    /// The layer for an input, and the input as the weight takes it.
    #[track_caller]
    fn plain_linear(
        &self,
        input: &Tensor,
        scaled: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
    ) -> Result<Tensor> {
        let plain = match self.active() {
            None => functions::linear(scaled, weight, bias),
            Some(adapter) => adapter.linear(input, scaled, weight, bias),
        }?;
        match stacked::rows() {
            None => Ok(plain),
            Some(rows) => match &self.read().rows {
                None => Ok(plain),
                Some(stacked) => stacked.add(&rows, input, &plain),
            },
        }
    }

    /// [`functional::embedding`](crate::functional::embedding) with the active adapter; the row `padding`
    /// gets no gradient.
    ///
    /// # Errors
    /// As [`functional::embedding_with_padding`](crate::functional::embedding_with_padding).
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
        let Some(simulated) = self.simulated() else {
            return match self.active() {
                None => convolution(op, input, weight, bias, options),
                Some(adapter) => adapter.conv(op, input, input, weight, bias, options),
            };
        };
        let (rounded, weight) = simulated.apply(input, weight)?;
        match self.active() {
            None => convolution(op, &rounded, &weight, bias, options),
            Some(adapter) => adapter.conv(op, input, &rounded, &weight, bias, options),
        }
    }

    /// Records the layer at the visitor's path, whose weight the adapters change, and visits their tensors.
    pub fn visit(&self, weight: &Tensor, kind: LayerKind, visitor: &mut Visitor) {
        visitor.host(|path| Box::new(Host::new(path, self, weight, kind)));
        if let Some(scale) = self.input_scale() {
            visitor.buffer("input_scale", &scale);
        }
        if let Some(simulated) = self.simulated() {
            simulated.visit(visitor);
        }
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
        let weighted = self.read();
        weighted.adapters.iter().for_each(|adapter| adapter.visit(visitor, Some(&adapter.config.name)));
    }

    /// An independent copy, with the tensors that the visitor replaces.
    fn copied(&self, visitor: &mut VisitorMut) -> Adapters {
        let weighted = self.read();
        let adapters = weighted.adapters.iter().map(|adapter| Arc::new(adapter.replaced(visitor))).collect();
        let mut input_scale = weighted.input_scale.clone();
        if let Some(scale) = &mut input_scale {
            visitor.buffer("", scale);
        }
        let simulated = weighted.simulated.as_ref().map(|simulated| Arc::new(simulated.replaced(visitor)));
        let copy = WeightedHost {
            adapters,
            active: weighted.active,
            unmerged: weighted.unmerged.clone(),
            // They belong to the handle of this model.
            rows: None,
            shared: weighted.shared.clone(),
            input_scale,
            simulated,
            measured: None,
        };
        Adapters(Arc::new(RwLock::new(copy)))
    }
}

impl fmt::Debug for Adapters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.read().adapters.iter().map(|adapter| &adapter.config.name)).finish()
    }
}

/// The name of a tensor in the module at a path.
fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}

/// The tensors of a model, by name and by id.
#[derive(Default)]
pub(super) struct Tensors {
    by_name: HashMap<String, Tensor>,
    by_id: HashMap<u64, Vec<String>>,
}

impl Tensors {
    pub(super) fn new(entries: Vec<Entry>) -> Tensors {
        let mut tensors = Tensors::default();
        for Entry { name, tensor, .. } in entries {
            tensors.by_id.entry(tensor.id()).or_default().push(name.clone());
            tensors.by_name.insert(name, tensor);
        }
        tensors
    }
}

/// A layer with a place for adapters, found in a model.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) path: String,
    pub(crate) adapters: Adapters,
    pub(crate) weight: Tensor,
    pub(crate) kind: LayerKind,
    /// The layer's bias, as far as it has that name.
    pub(super) bias: Option<Tensor>,
    /// The other uses of the weight.
    pub(super) uses: Vec<String>,
}

impl Host {
    fn new(path: &str, adapters: &Adapters, weight: &Tensor, kind: LayerKind) -> Host {
        let uses = adapters.read().shared.iter().cloned().collect();
        Host {
            path: path.to_string(),
            adapters: adapters.clone(),
            weight: weight.clone(),
            kind,
            bias: None,
            uses,
        }
    }

    /// Finds the layer's bias and the other uses of its weight among the tensors of the model. `paths` are
    /// all paths of the layer.
    pub(super) fn look_around(&mut self, model: &Tensors, paths: &[String]) {
        let weights: Vec<String> = paths.iter().map(|path| joined(path, "weight")).collect();
        self.bias = paths.iter().find_map(|path| model.by_name.get(&joined(path, "bias")).cloned());
        let same = model.by_id.get(&self.weight.id()).into_iter().flatten();
        self.uses.extend(same.filter(|name| !weights.contains(name)).cloned());
    }

    /// An error if the model uses the weight elsewhere, where the adapter has no part.
    #[track_caller]
    pub(super) fn require_unshared(&self) -> Result<()> {
        let Some(first) = self.uses.first() else { return Ok(()) };
        let message = format!(
            "merge: the weight of {} is also that of {first}, where the adapter has no part: the model would answer in another way than with the \
             adapter. Leave it unmerged, or change both by merge_with and MergeOptions::shared",
            self.path
        );
        Err(Error::invalid(OP, message))
    }

    /// An error unless no adapter is merged into the weight.
    #[track_caller]
    pub(crate) fn require_unmerged(&self) -> Result<()> {
        match self.adapters.read().unmerged {
            None => Ok(()),
            Some(_) => {
                let message =
                    format!("{}: an adapter is merged into the weight; unmerge it first", self.path);
                Err(Error::invalid(OP, message))
            }
        }
    }

    /// An error if the layer divides its input, so that its weight alone is not what it computes.
    #[track_caller]
    pub(super) fn require_unscaled(&self, what: &str) -> Result<()> {
        if self.adapters.input_scale().is_none() {
            return Ok(());
        }
        let message =
            format!("{what}: {} divides its input by a scale, which the weight does not have", self.path);
        Err(Error::invalid(OP, message))
    }
}
