//! AWQ: inputs that matter are scaled up in the weight before it is rounded, and down again before the layer
//! (Lin et al.: AWQ, activation-aware weight quantization for LLM compression and acceleration, 2023).

use std::collections::{BTreeMap, HashMap, HashSet};

use tensor_core::{DType, Error, Result, Tensor, WeightFormat};

use super::OP;
use crate::{
    Module,
    adapt::{config::is_named, statistics::InputStatistics, weighted_host::Host},
};

/// The least scale before the division by √(max · min).
const LEAST_SCALE: f64 = 1e-4;

/// Options of AWQ.
#[derive(Clone, Debug, PartialEq)]
pub struct AwqOptions {
    /// The layers whose division is folded into the layer before them. A layer in none of them keeps a
    /// division of its input, in the buffer `input_scale`. None by default.
    pub folds: Vec<AwqFold>,
    /// The scales are sᵢ = mᵃᵢ for the mean magnitudes m of the inputs, divided by √(max s · min s), with a =
    /// 0, 1/steps, 2/steps … below 1; 20 steps by default.
    pub steps: usize,
}

impl Default for AwqOptions {
    fn default() -> AwqOptions {
        AwqOptions { folds: Vec::new(), steps: 20 }
    }
}

/// Layers with one common input, and the layer whose output that is. All names are ends of paths below one
/// parent: `input_layernorm` and `self_attn.q_proj` match `model.layers.0.input_layernorm` and
/// `model.layers.0.self_attn.q_proj`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwqFold {
    /// The layer before, whose `weight`, along its first axis, and `bias` are divided by the scales: a
    /// normalization with a weight, or a linear layer whose outputs reach the inputs one by one, unchanged or
    /// through products and sums that a factor commutes with.
    pub previous: String,
    /// The layers, which have one common scale. They must be all that read this output.
    pub layers: Vec<String>,
}

impl AwqFold {
    /// Layers after another one.
    #[must_use]
    pub fn new<const N: usize>(previous: &str, layers: [&str; N]) -> AwqFold {
        AwqFold { previous: previous.into(), layers: layers.map(String::from).into() }
    }

    /// The folds of Llama's blocks and others with the same layers: the two normalizations, and `up_proj`
    /// before `down_proj`. Not for normalizations that multiply by 1 + weight, as Gemma's do.
    #[must_use]
    pub fn llama() -> Vec<AwqFold> {
        vec![
            AwqFold::new("input_layernorm", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
            AwqFold::new("post_attention_layernorm", ["mlp.gate_proj", "mlp.up_proj"]),
            AwqFold::new("mlp.up_proj", ["mlp.down_proj"]),
        ]
    }
}

/// Layers that get one scale, and the path of the layer that it is folded into.
struct Group<'a> {
    previous: Option<String>,
    layers: Vec<&'a Host>,
}

/// The changes of a model by AWQ. Nothing of the model is changed before they are applied.
#[derive(Default)]
pub(super) struct Scaled {
    /// The new values of weights and biases, by the ids of their cells.
    pub(super) values: HashMap<u64, Tensor>,
    /// The cells that have these values.
    pub(super) cells: Vec<Tensor>,
    /// The layers that keep a division of their input.
    pub(super) divided: Vec<(Host, Tensor)>,
    /// The scales of inputs, by the layers' paths.
    scales: HashMap<String, Tensor>,
}

impl Scaled {
    /// The scale of the inputs of the layer at a path.
    pub(super) fn scale_of(&self, path: &str) -> Option<&Tensor> {
        self.scales.get(path)
    }

    /// The value of a cell so far, without blocks, in f32.
    fn value(&self, cell: &Tensor) -> Result<Tensor> {
        match self.values.get(&cell.id()) {
            Some(value) => Ok(value.clone()),
            None => cell.detach().dequantize().to_dtype(DType::F32),
        }
    }

    fn set(&mut self, cell: &Tensor, value: Tensor) -> Result<()> {
        value.eval()?;
        if self.values.insert(cell.id(), value).is_none() {
            self.cells.push(cell.clone());
        }
        Ok(())
    }
}

/// Searches the scales of the layers that are rounded to these formats.
pub(super) fn awq<M: Module + ?Sized>(
    model: &M,
    layers: &[(&Host, WeightFormat)],
    inputs: &BTreeMap<String, InputStatistics>,
    options: &AwqOptions,
) -> Result<Scaled> {
    if options.steps == 0 {
        return Err(Error::invalid(OP, "AWQ with 0 steps: give 1 or more"));
    }
    let formats: HashMap<&str, WeightFormat> =
        layers.iter().map(|(host, format)| (host.path.as_str(), *format)).collect();
    let named: HashMap<String, Tensor> =
        model.named_parameters().into_iter().chain(model.named_buffers()).collect();
    let mut scaled = Scaled::default();
    for group in groups(layers, &options.folds)? {
        let scale = search(&group, &formats, inputs, options.steps)?;
        for host in &group.layers {
            let value = scaled.value(&host.weight)?.mul(&scale)?;
            scaled.set(&host.weight, value)?;
            scaled.scales.insert(host.path.clone(), scale.clone());
        }
        match &group.previous {
            Some(path) => fold(&mut scaled, &formats, &named, path, &group, &scale)?,
            None => {
                for &host in &group.layers {
                    let all = match host.adapters.input_scale() {
                        Some(before) => before.mul(&scale)?,
                        None => scale.clone(),
                    };
                    scaled.divided.push((host.clone(), all));
                }
            }
        }
    }
    Ok(scaled)
}

/// Layers by their folds, then the others one by one.
fn groups<'a>(layers: &[(&'a Host, WeightFormat)], folds: &[AwqFold]) -> Result<Vec<Group<'a>>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut taken = HashSet::new();
    for fold in folds {
        let mut by_parent: BTreeMap<&str, Vec<&Host>> = BTreeMap::new();
        for (host, _) in layers {
            let Some(name) = fold.layers.iter().find(|name| is_named(&host.path, name)) else { continue };
            by_parent.entry(&host.path[..host.path.len() - name.len()]).or_default().push(host);
        }
        for (parent, layers) in by_parent {
            if let Some(host) = layers.iter().find(|host| !taken.insert(host.path.as_str())) {
                let message = format!("{}: two of AWQ's folds name this layer", host.path);
                return Err(Error::invalid(OP, message));
            }
            groups.push(Group { previous: Some(format!("{parent}{}", fold.previous)), layers });
        }
    }
    let others = layers.iter().filter(|(host, _)| !taken.contains(host.path.as_str()));
    groups.extend(others.map(|(host, _)| Group { previous: None, layers: vec![*host] }));
    Ok(groups)
}

/// The scale of the inputs with the least mean squared change of the outputs.
fn search(
    group: &Group<'_>,
    formats: &HashMap<&str, WeightFormat>,
    inputs: &BTreeMap<String, InputStatistics>,
    steps: usize,
) -> Result<Tensor> {
    let first = group.layers[0];
    let magnitudes = super::named(first, super::inputs_of(first, inputs))?.mean_magnitude.to_f64_vec()?;
    let device = first.weight.device();
    let mut best = (f64::INFINITY, Tensor::ones([magnitudes.len()], &device)?);
    for step in 0..steps {
        let power = step as f64 / steps as f64;
        let mut scale: Vec<f64> = magnitudes.iter().map(|m| m.powf(power).max(LEAST_SCALE)).collect();
        let [least, greatest] = [f64::min, f64::max].map(|f| scale.iter().copied().reduce(f).unwrap_or(1.0));
        scale.iter_mut().for_each(|s| *s /= (least * greatest).sqrt());
        let scale: Vec<f32> = scale.into_iter().map(|s| s as f32).collect();
        let scale = Tensor::from_vec(scale, [magnitudes.len()], &device)?;
        let mut loss = 0.0;
        for host in &group.layers {
            loss += super::named(host, loss_of(host, formats[host.path.as_str()], inputs, &scale))?;
        }
        if loss < best.0 {
            best = (loss, scale);
        }
    }
    Ok(best.1)
}

/// The mean square of the change of a layer's outputs if its weight is scaled and rounded.
fn loss_of(
    host: &Host,
    format: WeightFormat,
    inputs: &BTreeMap<String, InputStatistics>,
    scale: &Tensor,
) -> Result<f64> {
    let products = super::products(host, super::inputs_of(host, inputs)?)?;
    let weight = host.weight.detach().dequantize().to_dtype(DType::F32)?;
    let rounded = weight.mul(scale)?.quantize(format, None)?;
    super::output_square(&rounded.dequantize().div(scale)?.sub(&weight)?, &products)
}

/// Divides the outputs of the layer at a path by the scale. Its weight may be in blocks only if it is rounded
/// again.
fn fold(
    scaled: &mut Scaled,
    formats: &HashMap<&str, WeightFormat>,
    named: &HashMap<String, Tensor>,
    path: &str,
    group: &Group<'_>,
    scale: &Tensor,
) -> Result<()> {
    let (layer, outputs) = (&group.layers[0].path, scale.numel());
    let wrong = |message: String| {
        Error::invalid(OP, format!("{layer}: AWQ's scale is folded into {path}, {message}"))
    };
    let Some(weight) = named.get(&format!("{path}.weight")) else {
        return Err(wrong("and the model has no weight of that name".into()));
    };
    if weight.block_format().is_some() && !formats.contains_key(path) {
        return Err(wrong("whose weight is in blocks: requantize it, or leave the fold out".into()));
    }
    if weight.dims().first() != Some(&outputs) || weight.rank() > 2 {
        let message = format!("whose weight has the shape {} and not {outputs} outputs", weight.shape());
        return Err(wrong(message));
    }
    let along = if weight.rank() == 2 { scale.unsqueeze(1)? } else { scale.clone() };
    let value = scaled.value(weight)?.div(&along)?;
    scaled.set(weight, value)?;
    if let Some(bias) = named.get(&format!("{path}.bias")) {
        let value = scaled.value(bias)?.div(scale)?;
        scaled.set(bias, value)?;
    }
    Ok(())
}
