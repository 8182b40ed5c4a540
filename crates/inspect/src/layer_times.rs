//! [`Profile::layers`]: the time of each layer of a model.

use std::{collections::HashMap, time::Duration};

use tensor_core::{BuiltOperation, KernelRun, Tensor, layer_calls};

use crate::{
    Profile,
    by_layer::{Assigned, Link, assign, named_id},
};

/// The kernels of a layer in one part of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerCost {
    /// The number of kernel runs.
    pub runs: u64,
    /// Their total time.
    pub time: Duration,
    /// The bytes that they write: the memory of their results.
    pub bytes_written: u64,
    /// Their arithmetic, in additions, where it is known.
    pub flops: u64,
}

/// The kernels of one layer. See [`Profile::layers`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerTimes {
    /// The path of the layer, such as `blocks.0.conv1`; empty for the model itself and for what is outside
    /// of it.
    pub layer: String,
    /// The forward pass.
    pub forward: LayerCost,
    /// The gradients of its operations.
    pub backward: LayerCost,
    /// Operations built after the last gradient: the optimizer's.
    pub update: LayerCost,
}

/// The part of a step to which an operation belongs.
#[derive(Clone, Copy)]
enum Pass {
    Forward,
    Backward,
    Update,
}

impl<T> Profile<T> {
    /// The time of each layer, in the order of the first kernel of each. `names` are the names of a model's
    /// tensors, such as `&model.named_parameters()`. A fused kernel counts for the operation that it ran
    /// for, and a layer's row does not contain those of the layers inside it.
    ///
    /// Operations get layers as in [`Graph::of`](crate::Graph::of), so call
    /// [`record_layer_calls`](tensor_core::record_layer_calls) before the profile.
    ///
    /// ```
    /// use autograd::TensorGrad;
    /// use inspect::profile;
    /// use tensor_core::Tensor;
    /// # fn main() -> tensor_core::Result<()> {
    /// let device = backend_cpu::cpu();
    /// let weight = Tensor::ones([8, 4], &device)?.requires_grad();
    /// let x = Tensor::ones([2, 8], &device)?;
    /// let profiled = profile(|| x.matmul(&weight)?.exp().sum().backward())?;
    /// let layers = profiled.layers(&[("fc.weight", weight)]);
    /// let fc = layers.iter().find(|layer| layer.layer == "fc").expect("the product reads its weight");
    /// assert!(fc.forward.runs >= 1 && fc.backward.runs >= 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn layers<N: AsRef<str>>(&self, names: &[(N, Tensor)]) -> Vec<LayerTimes> {
        self.layers_by_id(
            &names.iter().map(|(name, tensor)| (named_id(tensor), name.as_ref().to_string())).collect(),
        )
    }

    /// [`Profile::layers`] with the ids of named tensors, for programs that do not hold the tensors.
    #[must_use]
    pub fn layers_by_id(&self, names: &HashMap<u64, String>) -> Vec<LayerTimes> {
        let operations = Operations::of(&self.built, names);
        let mut rows: Vec<LayerTimes> = Vec::new();
        for run in &self.runs {
            let (layer, pass) = operations.place(run);
            let at = rows.iter().position(|row| row.layer == layer).unwrap_or(rows.len());
            if at == rows.len() {
                rows.push(LayerTimes { layer: layer.into(), ..LayerTimes::default() });
            }
            let cost = match pass {
                Pass::Forward => &mut rows[at].forward,
                Pass::Backward => &mut rows[at].backward,
                Pass::Update => &mut rows[at].update,
            };
            cost.runs += 1;
            cost.time += run.time;
            cost.bytes_written += run.bytes_written;
            cost.flops += run.flops.unwrap_or(0);
        }
        rows
    }
}

/// The operations of a profile with their layers.
struct Operations<'a> {
    built: &'a [BuiltOperation],
    places: HashMap<u64, usize>,
    assigned: Vec<Assigned>,
    last_gradient: Option<usize>,
}

impl<'a> Operations<'a> {
    fn of(built: &'a [BuiltOperation], names: &HashMap<u64, String>) -> Operations<'a> {
        let places: HashMap<u64, usize> = built.iter().enumerate().map(|(k, node)| (node.id, k)).collect();
        let links: Vec<Link<'_>> = built
            .iter()
            .enumerate()
            .map(|(k, node)| Link {
                id: node.id,
                // Gradients take the layers of their forward operations, so they are no neighbours here.
                inputs: match node.gradient_of {
                    Some(_) => Vec::new(),
                    None => node
                        .inputs
                        .iter()
                        .filter_map(|id| places.get(id).copied())
                        .filter(|&j| j < k)
                        .collect(),
                },
                reads: node.inputs.iter().filter_map(|id| names.get(id).map(String::as_str)).collect(),
                is_source: node.inputs.is_empty(),
                is_parameter: false,
            })
            .collect();
        let (assigned, _) = assign(&links, &layer_calls());
        let last_gradient = built.iter().rposition(|node| node.gradient_of.is_some());
        Operations { built, places, assigned, last_gradient }
    }

    /// The layer of a kernel run, and the part of the step.
    fn place(&self, run: &KernelRun) -> (&str, Pass) {
        let Some(&first) = self.places.get(&run.tensor) else { return ("", Pass::Forward) };
        let (mut at, mut is_gradient) = (first, false);
        // A gradient belongs to its forward operation, and a result of several to the operation. Both were
        // built earlier, so that the walk ends.
        loop {
            let node = &self.built[at];
            let source = match (node.gradient_of, node.is_element) {
                (Some(forward), _) => Some(forward),
                (None, true) => node.inputs.first().copied(),
                (None, false) => None,
            };
            is_gradient |= node.gradient_of.is_some();
            match source {
                None => break,
                Some(id) => match self.places.get(&id).filter(|&&earlier| earlier < at) {
                    Some(&earlier) => at = earlier,
                    // It was built before the profile.
                    None => return ("", if is_gradient { Pass::Backward } else { Pass::Forward }),
                },
            }
        }
        let pass = match is_gradient {
            true => Pass::Backward,
            false if self.last_gradient.is_some_and(|last| at > last) => Pass::Update,
            false => Pass::Forward,
        };
        (&self.assigned[at].layer, pass)
    }
}
