//! [`Lora`]: one adapter of a model, over all its layers; attaching, switching, merging.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use tensor_core::{Error, Generator, Result, Tensor, caller_line, eval_all, set_grad_enabled};

use super::{
    OP,
    adapter::Adapter,
    config::{LoraBias, LoraConfig, is_named},
    kind::LayerKind,
    saved::Saved,
    weighted_host::{Adapters, Host, Tensors, Unmerged, WeightedHost},
};
use crate::{Entry, Module, Role, Visitor, VisitorMut};

/// One adapter of a model: its matrices in each layer. It is the module of the adapter's parameters, so that
/// an optimizer, a [`Checkpoint`](crate::Checkpoint) or a file of weights gets these alone:
/// `adapted.parameters()`, `adapted.state_dict()`. Names are those of PEFT's files without their prefix,
/// `model.layers.0.self_attn.q_proj.lora_A.weight`.
///
/// It shares the adapter with the model's layers, and does not borrow the model.
#[derive(Debug)]
pub struct Lora {
    config: Arc<LoraConfig>,
    /// The layers with this adapter.
    layers: Vec<(Host, Arc<Adapter>)>,
    /// The layers that can have adapters: all of the model.
    all: Vec<Host>,
}

/// Adds an adapter to the layers that `config` selects, freezes the model's own parameters, and makes the
/// adapter the active one. Layers of every model with [`Linear`](crate::Linear),
/// [`Embedding`](crate::Embedding) or [`Conv`](crate::Conv) layers can be selected, with dense weights or
/// with weights in blocks. Parameters of adapters that the model had before stay as they are.
///
/// # Errors
/// A configuration with a rank of 0, numbers that are not finite, a probability outside [0, 1] or no targets;
/// targets that select no layer; an adapter of this name; an adapter that is merged; groups of a convolution
/// that do not divide the rank, or DoRA with groups; too little memory. The model is unchanged then.
#[track_caller]
pub fn attach<M: Module + ?Sized>(model: &M, config: &LoraConfig, rng: &Generator) -> Result<Lora> {
    let _line = caller_line();
    attach_where(model, config, rng, |host| config.selects(&host.path, host.kind))
}

/// [`attach`] to the layers with exactly these paths, whatever the configuration's targets are.
///
/// # Errors
/// As [`attach`], and a path that is no layer which can have adapters.
#[track_caller]
pub fn attach_to<M: Module + ?Sized>(
    model: &M,
    config: &LoraConfig,
    paths: &BTreeSet<String>,
    rng: &Generator,
) -> Result<Lora> {
    let _line = caller_line();
    let known: BTreeSet<String> = hosts(model).into_iter().map(|host| host.path).collect();
    if let Some(path) = paths.difference(&known).next() {
        return Err(Error::invalid(OP, format!("the model has no layer {path:?} that can have adapters")));
    }
    attach_where(model, config, rng, |host| paths.contains(&host.path))
}

#[track_caller]
fn attach_where<M: Module + ?Sized>(
    model: &M,
    config: &LoraConfig,
    rng: &Generator,
    selects: impl Fn(&Host) -> bool,
) -> Result<Lora> {
    config.check()?;
    let all = hosts(model);
    all.iter().try_for_each(Host::require_unmerged)?;
    if all.iter().any(|host| host.adapters.read().find(&config.name).is_some()) {
        let message = format!("the model has an adapter {:?}: give another name, or detach it", config.name);
        return Err(Error::invalid(OP, message));
    }
    let config = Arc::new(config.clone());
    let mut layers = Vec::new();
    for host in all.iter().filter(|host| selects(host)) {
        if config.use_dora {
            host.require_unscaled("DoRA")?;
        }
        let adapter = Adapter::new(&config, &host.path, host.kind, &host.weight, rng)?;
        layers.push((host.clone(), adapter));
    }
    let of_adapters: HashSet<u64> = all.iter().flat_map(|host| tensors(&host.adapters)).collect();
    let mut entries = entries_of(model);
    entries.retain(|entry| !of_adapters.contains(&entry.tensor.id()));
    let trained = trained_with(&config, &layers, &entries)?;
    let Some((_, first)) = layers.first_mut() else {
        return Err(nothing_selected(&config, &all));
    };
    // So that the model's tensors have their own values, and no adapter's.
    let others = Others::deactivate(&all)?;
    let saved = trained.into_iter().map(|entry| Saved::new(&entry.name, &entry.tensor, entry.role));
    first.saved = Arc::new(saved.collect::<Result<_>>()?);
    others.forget();
    let layers: Vec<_> = layers.into_iter().map(|(host, adapter)| (host, Arc::new(adapter))).collect();
    for parameter in model.parameters().iter().filter(|parameter| !of_adapters.contains(&parameter.id())) {
        parameter.set_requires_grad(false)?;
        parameter.set_grad(None);
    }
    for (host, adapter) in &layers {
        host.adapters.write().adapters.push(adapter.clone());
    }
    let lora = Lora { config, layers, all };
    lora.activate()?;
    Ok(lora)
}

/// The tensors of the model that are trained with an adapter.
#[track_caller]
fn trained_with<'a>(
    config: &LoraConfig,
    layers: &[(Host, Adapter)],
    entries: &'a [Entry],
) -> Result<Vec<&'a Entry>> {
    let is_in =
        |name: &str, module: &str| name.match_indices('.').any(|(end, _)| is_named(&name[..end], module));
    let of_layer = |entry: &Entry| {
        let id = entry.tensor.id();
        layers.iter().any(|(host, _)| host.bias.as_ref().is_some_and(|bias| bias.id() == id))
    };
    let is_bias = |entry: &Entry| match config.bias {
        LoraBias::None => false,
        LoraBias::All => entry.role == Role::Parameter && entry.name.contains("bias"),
        LoraBias::LoraOnly => of_layer(entry),
    };
    if let Some(module) =
        config.modules_to_save.iter().find(|module| !entries.iter().any(|entry| is_in(&entry.name, module)))
    {
        let message = format!("modules_to_save: the model has no module {module:?} with parameters");
        return Err(Error::invalid(OP, message));
    }
    let mut seen = HashSet::new();
    let is_trained = |entry: &Entry| {
        is_bias(entry) || config.modules_to_save.iter().any(|module| is_in(&entry.name, module))
    };
    let trained: Vec<&Entry> = entries
        .iter()
        .filter(|entry| entry.role != Role::Constant && is_trained(entry) && seen.insert(entry.tensor.id()))
        .collect();
    if let Some(entry) = trained.iter().find(|entry| entry.tensor.block_format().is_some()) {
        let message = format!("modules_to_save: {} is in blocks, which cannot be trained", entry.name);
        return Err(Error::invalid(OP, message));
    }
    Ok(trained)
}

#[track_caller]
fn nothing_selected(config: &LoraConfig, all: &[Host]) -> Error {
    let mut ends: Vec<&str> = all.iter().filter_map(|host| host.path.rsplit('.').next()).collect();
    ends.sort_unstable();
    ends.dedup();
    let message = format!(
        "{:?} selects no layer; the names of layers that can have adapters end with: {}",
        config.target_modules,
        ends.join(", ")
    );
    Error::invalid(OP, message)
}

/// The names of a model's adapters.
pub fn names<M: Module + ?Sized>(model: &M) -> Vec<String> {
    let mut names = Vec::new();
    for host in hosts(model) {
        for adapter in &host.adapters.read().adapters {
            if !names.contains(&adapter.config.name) {
                names.push(adapter.config.name.clone());
            }
        }
    }
    names
}

/// The adapter of a model with a name.
pub fn find<M: Module + ?Sized>(model: &M, name: &str) -> Option<Lora> {
    let all = hosts(model);
    let of_host = |host: &Host| {
        let weighted = host.adapters.read();
        weighted.find(name).map(|at| (host.clone(), weighted.adapters[at].clone()))
    };
    let layers: Vec<(Host, Arc<Adapter>)> = all.iter().filter_map(of_host).collect();
    let config = layers.first()?.1.config.clone();
    Some(Lora { config, layers, all })
}

/// Makes the adapter with a name the active one, or none. `set_adapter` in PEFT.
///
/// # Errors
/// No adapter with this name, or an adapter that is merged.
#[track_caller]
pub fn activate<M: Module + ?Sized>(model: &M, name: Option<&str>) -> Result<()> {
    let Some(name) = name else {
        return switch(&hosts(model), None);
    };
    match find(model, name) {
        Some(lora) => lora.activate(),
        None => {
            let known = names(model).join(", ");
            Err(Error::invalid(OP, format!("the model has no adapter {name:?}; it has: {known}")))
        }
    }
}

/// The layers of a model that can have adapters; one that is used in several places under its first path.
pub(crate) fn hosts<M: Module + ?Sized>(model: &M) -> Vec<Host> {
    let mut visitor = Visitor::new();
    model.visit(&mut visitor);
    let hosts = visitor.hosts().filter_map(|host| host.downcast::<Host>().ok());
    let mut hosts: Vec<Host> = hosts.map(|host| *host).collect();
    let mut paths: HashMap<usize, Vec<String>> = HashMap::new();
    for host in &hosts {
        paths.entry(host.adapters.address()).or_default().push(host.path.clone());
    }
    let tensors = Tensors::new(entries_of(model));
    hosts.retain_mut(|host| {
        let Some(paths) = paths.remove(&host.adapters.address()) else { return false };
        host.look_around(&tensors, &paths);
        true
    });
    hosts
}

/// The tensors of a model.
fn entries_of<M: Module + ?Sized>(model: &M) -> Vec<Entry> {
    let mut visitor = Visitor::new();
    model.visit(&mut visitor);
    visitor.entries()
}

/// The ids of the tensors of a layer's adapters.
fn tensors(adapters: &Adapters) -> Vec<u64> {
    let mut visitor = Visitor::new();
    adapters.visit_tensors(&mut visitor);
    visitor.entries().into_iter().map(|entry| entry.tensor.id()).collect()
}

#[track_caller]
fn switch(all: &[Host], name: Option<&str>) -> Result<()> {
    let _line = caller_line();
    all.iter().try_for_each(Host::require_unmerged)?;
    make_active(all, |_, weighted| name.and_then(|name| weighted.find(name)))
}

/// Makes an adapter of each layer the active one, or none, by the number of the layer.
#[track_caller]
fn make_active(all: &[Host], choose: impl Fn(usize, &WeightedHost) -> Option<usize>) -> Result<()> {
    let mut chosen = Vec::with_capacity(all.len());
    for (number, host) in all.iter().enumerate() {
        let mut weighted = host.adapters.write();
        weighted.active = choose(number, &weighted);
        let adapters = weighted.adapters.iter().enumerate();
        chosen.extend(adapters.map(|(k, adapter)| (adapter.clone(), weighted.active == Some(k))));
    }
    // Two adapters may have values for one tensor: the model's own comes between them.
    for active in [false, true] {
        for (adapter, _) in chosen.iter().filter(|(_, is_chosen)| *is_chosen == active) {
            adapter.saved.iter().try_for_each(|saved| saved.set_active(active))?;
        }
    }
    Ok(())
}

/// The adapters that were active, and are again when this is dropped, also after a panic.
struct Others<'a>(&'a [Host], Vec<Option<usize>>);

impl<'a> Others<'a> {
    /// Makes no adapter active.
    #[track_caller]
    fn deactivate(all: &'a [Host]) -> Result<Others<'a>> {
        let before = all.iter().map(|host| host.adapters.read().active).collect();
        switch(all, None)?;
        Ok(Others(all, before))
    }

    /// Leaves no adapter active.
    fn forget(mut self) {
        self.0 = &[];
    }
}

impl Drop for Others<'_> {
    fn drop(&mut self) {
        // The values are there: nothing is computed.
        let _ = make_active(self.0, |number, _| self.1[number]);
    }
}

/// Options of [`Lora::merge_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeOptions {
    /// Whether weights in blocks become dense: they take the memory of their dtype. Otherwise they are an
    /// error.
    pub dequantize: bool,
    /// Whether weights are changed that the model also uses elsewhere, such as a table of embeddings that is
    /// also the output layer's weight. That use changes too, so that the merged model does not answer as the
    /// model with its adapter. Otherwise they are an error.
    pub shared: bool,
}

impl Lora {
    /// The adapter's settings.
    pub fn config(&self) -> &LoraConfig {
        &self.config
    }

    /// The model's own tensors that are trained with the adapter.
    fn saved(&self) -> impl Iterator<Item = &Saved> {
        self.layers.iter().flat_map(|(_, adapter)| adapter.saved.iter())
    }

    /// The layers with this adapter, and its part in each.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&Host, &Adapter)> {
        self.layers.iter().map(|(host, adapter)| (host, &**adapter))
    }

    /// The paths of the layers with this adapter.
    pub fn layers(&self) -> Vec<&str> {
        self.layers.iter().map(|(host, _)| host.path.as_str()).collect()
    }

    /// Makes this adapter the active one of the model.
    ///
    /// # Errors
    /// An adapter that is merged.
    #[track_caller]
    pub fn activate(&self) -> Result<()> {
        switch(&self.all, Some(&self.config.name))
    }

    /// Calls `f` while no adapter of the model is active, for the answers of the model itself. PEFT's
    /// `disable_adapter`. It returns what `f` returns.
    ///
    /// # Errors
    /// An adapter that is merged.
    #[track_caller]
    pub fn disabled<R>(&self, f: impl FnOnce() -> R) -> Result<R> {
        let _others = Others::deactivate(&self.all)?;
        Ok(f())
    }

    /// Merges the adapter into the weights, so that the model costs what it cost without it: W + s·B·A or,
    /// for DoRA, m / ‖W + s·B·A‖ · (W + s·B·A). The old weights are kept for [`Lora::unmerge`], which
    /// restores them to the bit; [`Lora::detach`] after `merge` drops them.
    ///
    /// # Errors
    /// A weight in blocks, which cannot hold the sum (see [`Lora::merge_dequantized`]); a weight that the
    /// model also uses elsewhere, such as tied embeddings (see [`MergeOptions::shared`]); a convolution with
    /// groups; `lora_bias` in a layer without a bias; an adapter that is merged already; too little memory.
    /// Nothing has changed then.
    #[track_caller]
    pub fn merge(&self) -> Result<()> {
        self.merge_with(MergeOptions::default())
    }

    /// [`Lora::merge`], in which weights in blocks become dense: they take the memory of their dtype.
    ///
    /// # Errors
    /// As [`Lora::merge`], except for weights in blocks.
    #[track_caller]
    pub fn merge_dequantized(&self) -> Result<()> {
        self.merge_with(MergeOptions { dequantize: true, ..MergeOptions::default() })
    }

    /// [`Lora::merge`] with options.
    ///
    /// # Errors
    /// As [`Lora::merge`], except for what the options allow.
    #[track_caller]
    pub fn merge_with(&self, options: MergeOptions) -> Result<()> {
        let _line = caller_line();
        let mut merged = Vec::with_capacity(self.layers.len());
        for (host, adapter) in &self.layers {
            host.require_unmerged()?;
            host.require_unscaled("merge")?;
            if !options.shared {
                host.require_unshared()?;
            }
            if let Some(format) = host.weight.block_format().filter(|_| !options.dequantize) {
                let message = format!(
                    "merge: the weight of {} is in blocks ({}), which cannot hold the sum; merge_dequantized makes it dense",
                    host.path,
                    format.name()
                );
                return Err(Error::invalid(OP, message));
            }
            if matches!(host.kind, LayerKind::Conv { groups } if groups > 1) {
                let message = format!("merge: {} has groups, and the sum would have none", host.path);
                return Err(Error::invalid(OP, message));
            }
            let sums = set_grad_enabled(false, || {
                let bias = adapter.merged_bias(&host.path, host.bias.as_ref())?;
                Ok((adapter.merged(&host.weight)?, bias))
            });
            merged.push(sums?);
        }
        eval_all(
            &merged.iter().flat_map(|(weight, bias)| [weight].into_iter().chain(bias)).collect::<Vec<_>>(),
        )?;
        for ((host, _), (weight, bias)) in self.layers.iter().zip(merged) {
            let held = bias.as_ref().and(host.bias.as_ref());
            let before = Unmerged { weight: host.weight.detach(), bias: held.map(Tensor::detach) };
            host.weight.assign(&weight)?;
            if let Some((held, bias)) = held.zip(bias) {
                held.assign(&bias)?;
            }
            host.adapters.write().unmerged = Some(before);
        }
        Ok(())
    }

    /// Undoes [`Lora::merge`]: the weights have their old values again, to the bit.
    ///
    /// # Errors
    /// An adapter that is not merged.
    #[track_caller]
    pub fn unmerge(&self) -> Result<()> {
        let _line = caller_line();
        if let Some((host, _)) = self.layers.iter().find(|(host, _)| host.adapters.read().unmerged.is_none())
        {
            return Err(Error::invalid(OP, format!("unmerge: nothing is merged into {}", host.path)));
        }
        for (host, _) in &self.layers {
            let before = host.adapters.write().unmerged.take();
            let Some(before) = before else { continue };
            host.weight.assign(&before.weight.to(&host.weight.device())?)?;
            if let Some((bias, before)) = host.bias.as_ref().zip(before.bias) {
                bias.assign(&before.to(&bias.device())?)?;
            }
        }
        Ok(())
    }

    /// Removes the adapter from the model. After [`Lora::merge`] the weights keep the sum, and the biases and
    /// modules that were trained with the adapter their values: PEFT's `merge_and_unload`. The model's own
    /// parameters stay frozen; see [`Module::unfreeze`].
    pub fn detach(self) {
        let is_merged = self.layers.iter().any(|(host, _)| host.adapters.read().unmerged.is_some());
        for saved in self.saved() {
            // The values are there: nothing is computed.
            let _ = if is_merged { saved.train(false) } else { saved.set_active(false) };
        }
        for (host, _) in &self.layers {
            let mut weighted = host.adapters.write();
            let active =
                weighted.active.and_then(|at| weighted.adapters.get(at)).map(|a| a.config.name.clone());
            weighted.adapters.retain(|adapter| adapter.config.name != self.config.name);
            weighted.active = active.and_then(|name| weighted.find(&name));
            weighted.unmerged = None;
        }
    }

    /// The factor s of the layer at a path, if it has this adapter.
    pub fn scaling(&self, path: &str) -> Option<f64> {
        self.layers.iter().find(|(host, _)| host.path == path).map(|(_, adapter)| adapter.scaling)
    }

    /// The change of the weight of the layer at a path, s·B·A in the weight's shape (without DoRA's
    /// magnitude), if it has this adapter.
    ///
    /// # Errors
    /// A convolution with groups.
    #[track_caller]
    pub fn delta(&self, path: &str) -> Result<Option<Tensor>> {
        let _line = caller_line();
        let layer = self.layers.iter().find(|(host, _)| host.path == path);
        layer.map(|(host, adapter)| adapter.delta(&host.weight)).transpose()
    }
}

/// The adapter's parameters alone, with the biases and modules that are trained with it, and the random
/// streams of its dropout.
impl Module for Lora {
    fn visit(&self, visitor: &mut Visitor) {
        for (host, adapter) in &self.layers {
            visitor.child(&host.path, |visitor| adapter.visit(visitor, None));
        }
        self.saved().for_each(|saved| saved.visit(visitor));
    }
    /// All tensors are cells, which layers and this handle share: there is nothing to replace.
    fn visit_mut(&mut self, _: &mut VisitorMut) {}
}
