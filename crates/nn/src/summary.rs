//! A table of a model's layers, with their output shapes and numbers of parameters, as `torchinfo` prints.

use std::{collections::HashSet, fmt};

use tensor_core::{DType, Error, Result, Shape, Tensor, set_grad_enabled};

use crate::{
    Layer, Module, Role,
    layers::{Call, recorded},
    visitor::{Site, Visitor},
};

/// One call of a layer in a [`Summary`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SummaryRow {
    /// The path of the layer in the model: `body.0`. Empty for the model itself and for a layer that is not
    /// part of it.
    pub name: String,
    /// The layer's debug output.
    pub layer: String,
    /// The shape of its output.
    pub output: Shape,
    /// The number of elements of its parameters.
    pub parameters: usize,
}

/// The layers of a model in the order of their calls. It prints as a table. See [`summary`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// The layers.
    pub rows: Vec<SummaryRow>,
    /// The number of elements of parameters outside of the called layers, such as a struct's own.
    pub elsewhere: usize,
    /// The number of elements of all parameters; tied ones count once.
    pub parameters: usize,
    /// The number of elements that require gradients.
    pub trainable: usize,
}

/// Calls a layer with zeros of a shape, and lists its layers with their output shapes. Nothing is computed:
/// shapes are known without evaluation.
///
/// ```
/// use nn::{Linear, Relu, Sequential, summary};
/// use tensor_core::Generator;
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let (first, last) = (Linear::new(784, 128, &rng)?, Linear::new(128, 10, &rng)?);
/// let model = Sequential::new().add(first).add(Relu).add(last);
/// let table = summary(&model, [64, 784])?;
/// println!("{table}");
/// assert_eq!((table.rows[0].output.dims(), table.rows[0].parameters), (&[64, 128][..], 100_480));
/// assert_eq!(table.parameters, 101_770);
/// # Ok(()) }
/// ```
///
/// The zeros have the device and dtype of the model's first parameter. For a model whose `forward` has
/// another signature, or that takes indices, see [`summarize`].
///
/// The list has the layers of this crate, wherever they are called, and your own where a
/// [`crate::Sequential`] calls them.
///
/// # Errors
/// A model without parameters, whose device is unknown, or an input that does not fit.
#[track_caller]
pub fn summary(model: &impl Layer, input_shape: impl Into<Shape>) -> Result<Summary> {
    let parameters = model.parameters();
    let Some(first) = parameters.first() else {
        return Err(Error::invalid(
            "summary",
            "the model has no parameters that would tell the device of its input; use summarize(&model, |model| \
             model.forward(&input))",
        ));
    };
    let dtype = if first.dtype().is_float() { first.dtype() } else { DType::F32 };
    let input = Tensor::zeros(input_shape, (dtype, &first.device()))?;
    summarize(model, |model| model.forward(&input))
}

/// As [`summary`], for a model that is called by a closure.
///
/// ```
/// use nn::{Embedding, Linear, Module, summarize};
/// use tensor_core::{Generator, Result, Tensor};
///
/// #[derive(Module)]
/// struct Net { words: Embedding, head: Linear }
///
/// impl Net {
///     fn forward(&self, words: &Tensor) -> Result<Tensor> {
///         self.head.forward(&self.words.forward(words)?.mean_axis(1, false)?)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let device = backend_cpu::cpu();
/// let rng = Generator::seed(0, &device);
/// let net = Net { words: Embedding::new(100, 16, &rng)?, head: Linear::new(16, 2, &rng)? };
/// let words = Tensor::new([[1i32, 2, 3]], &device)?;
/// let table = summarize(&net, |net| net.forward(&words))?;
/// assert_eq!(table.rows[1].name, "head");
/// assert_eq!(table.rows[1].output.dims(), [1, 2]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// The errors of `call`.
#[track_caller]
pub fn summarize<M: Module + ?Sized, R>(model: &M, call: impl FnOnce(&M) -> Result<R>) -> Result<Summary> {
    // The call moves dropout's streams and running statistics: streams and buffers are restored.
    let streams = model.rng_state();
    let buffers: Vec<(Tensor, Tensor)> =
        model.buffers().into_iter().map(|b| (b.clone(), b.detach())).collect();
    let (result, calls) = recorded(|| set_grad_enabled(false, || call(model)));
    model.load_rng_state(&streams)?;
    buffers.iter().try_for_each(|(buffer, before)| buffer.assign(before))?;
    result?;

    let mut visitor = Visitor::new();
    visitor.inner(model);
    let sites = visitor.sites();
    let entries = model.entries_of(Role::Parameter);
    let mut counted = HashSet::new();
    let mut used = HashSet::new();
    let rows = calls
        .into_iter()
        .map(|Call { place, layer, output, .. }| {
            let found = path(&sites, place, &mut used);
            let mut parameters = 0;
            let mut own = HashSet::new();
            let name = found.clone().unwrap_or_default();
            for entry in entries.iter().filter(|entry| found.is_some() && lies_in(&entry.name, &name)) {
                counted.insert(entry.tensor.id());
                if own.insert(entry.tensor.id()) {
                    parameters += entry.tensor.numel();
                }
            }
            SummaryRow { name, layer, output, parameters }
        })
        .collect();

    let (mut elsewhere, mut parameters, mut trainable) = (0, 0, 0);
    let mut seen = HashSet::new();
    for tensor in entries.iter().map(|entry| &entry.tensor).filter(|tensor| seen.insert(tensor.id())) {
        parameters += tensor.numel();
        trainable += if tensor.is_tracked() { tensor.numel() } else { 0 };
        elsewhere += if counted.contains(&tensor.id()) { 0 } else { tensor.numel() };
    }
    Ok(Summary { rows, elsewhere, parameters, trainable })
}

/// Runs `call` and returns the paths of the layers that it calls, by the ids of their outputs.
#[doc(hidden)] // for `onnx`
pub fn layer_paths<M: Module + ?Sized, R>(model: &M, call: impl FnOnce() -> R) -> (R, Vec<(u64, String)>) {
    let (result, calls) = recorded(call);
    let mut visitor = Visitor::new();
    visitor.inner(model);
    let sites = visitor.sites();
    let mut used = HashSet::new();
    let paths = calls.into_iter().filter_map(|call| Some((call.id, path(&sites, call.place, &mut used)?)));
    (result, paths.collect())
}

/// The path of the layer at an address. A struct and its only field share an address: the field is returned.
/// Layers of size 0 can share one too: they are taken in their order.
pub(crate) fn path(sites: &[Site], place: (usize, usize), used: &mut HashSet<String>) -> Option<String> {
    let here = || sites.iter().filter(|site| (site.address, site.size) == place).map(|site| &site.path);
    let found = match place.1 {
        0 => here().find(|path| !used.contains(*path)).or_else(|| here().next()),
        _ => here().max_by_key(|path| path.len()),
    };
    let path = found?.clone();
    used.insert(path.clone());
    Some(path)
}

/// Whether a parameter belongs to the layer at a path.
fn lies_in(parameter: &str, layer: &str) -> bool {
    match parameter.strip_prefix(layer) {
        Some(rest) => layer.is_empty() || rest.is_empty() || rest.starts_with('.'),
        None => false,
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["name", "layer", "output shape", "parameters"].map(String::from);
        let rows = self.rows.iter().map(|row| {
            // A layer of several lines is shown by its first line.
            let layer = row.layer.lines().next().unwrap_or_default().to_string();
            [row.name.clone(), layer, row.output.to_string(), thousands(row.parameters)]
        });
        let rest = (self.elsewhere > 0)
            .then(|| [String::new(), "in no layer above".into(), String::new(), thousands(self.elsewhere)]);
        let table: Vec<[String; 4]> = [head].into_iter().chain(rows).chain(rest).collect();
        let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let [name, layer, output, parameters] = [0, 1, 2, 3].map(width);
        for (i, row) in table.iter().enumerate() {
            writeln!(f, "{:name$}  {:layer$}  {:output$}  {:>parameters$}", row[0], row[1], row[2], row[3])?;
            if i == 0 {
                writeln!(f, "{}", "-".repeat(name + layer + output + parameters + 6))?;
            }
        }
        let (all, trainable) = (thousands(self.parameters), thousands(self.trainable));
        write!(f, "{all} parameters, {trainable} of them trained")
    }
}

/// Formats 101770 as `101,770`.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1000, 101_770].map(thousands), ["0", "999", "1,000", "101,770"]);
    }

    #[test]
    fn a_parameter_lies_in_its_own_layer_alone() {
        assert!(lies_in("fc1.weight", "fc1") && lies_in("weight", "") && lies_in("scale", "scale"));
        assert!(!lies_in("fc10.weight", "fc1"));
    }
}
