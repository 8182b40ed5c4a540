//! [`Graph`]: a graph of the file with its names resolved to slots, its steps in topological order, and for
//! each step the slots that no later step reads.

use std::{
    any::Any,
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, OnceLock},
};

use tensor_core::Device;

use crate::{
    context::{HostFn, Operator},
    proto::TypeProto,
    value::{HostTensor, Value},
};

/// Operators with random results.
const RANDOM: &[&str] = &[
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
];

/// Operators that repeat elements.
const REPEATING: &[&str] = &["ConstantOfShape", "Expand"];

/// The attribute of a `Gradient` node with the graph that it differentiates.
pub(crate) const DIFFERENTIATED: &str = "(differentiated)";

/// The values in the file, each with its slot.
pub(crate) type Constants = Vec<(usize, Constant)>;

/// A compiled graph.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<Output>,
    /// Steps that read weights and constants alone; they come before all others.
    pub(crate) prepared: Prepared,
    pub(crate) steps: Vec<Node>,
    pub(crate) slots: usize,
    pub(crate) constants: Constants,
    /// Values captured from the surrounding graph: their slots there and here.
    pub(crate) captures: Vec<(usize, usize)>,
}

/// An input of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) slot: usize,
    pub(crate) r#type: Option<TypeProto>,
    /// Whether the graph has a default value for it.
    pub(crate) has_default: bool,
}

/// An output of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) slot: usize,
    /// The declared type, if there is one.
    pub(crate) r#type: Option<TypeProto>,
}

/// A value in the file.
#[derive(Clone, Debug)]
pub(crate) enum Constant {
    /// The weight with this index.
    Weight(usize),
    /// A value that is known on the host.
    Host(Arc<HostTensor>),
}

/// One step: an operator with its slots and attributes.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) op_type: String,
    pub(crate) domain: String,
    /// The version of the domain's operators that the graph imports.
    pub(crate) version: i64,
    pub(crate) inputs: Vec<Option<usize>>,
    pub(crate) input_names: Vec<String>,
    pub(crate) outputs: Vec<Option<usize>>,
    pub(crate) output_names: Vec<String>,
    pub(crate) attributes: HashMap<String, Attribute>,
    pub(crate) action: Action,
    /// The data that the operator has read from large attributes in its first run.
    pub(crate) parsed: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// Slots that no later step reads.
    pub(crate) frees: Vec<usize>,
}

impl Node {
    /// The node in a message: its name, operator and first output.
    pub(crate) fn title(&self) -> String {
        let operator = match self.domain.as_str() {
            "" => self.op_type.clone(),
            domain => format!("{domain}::{}", self.op_type),
        };
        match (self.name.as_str(), self.output_names.first()) {
            ("", Some(output)) => format!("node {operator} that makes \"{output}\""),
            ("", None) => format!("node {operator}"),
            (name, _) => format!("node \"{name}\" ({operator})"),
        }
    }

    /// An integer attribute, or its default; `None` if it has another type.
    pub(crate) fn int(&self, name: &str, default: i64) -> Option<i64> {
        match self.attributes.get(name) {
            Some(Attribute::Int(number)) => Some(*number),
            Some(_) => None,
            None => Some(default),
        }
    }

    /// Whether its operator is one of this crate.
    pub(crate) fn is_builtin(&self) -> bool {
        matches!(&self.action, Action::Operator(operator, _) if operator.is_builtin())
    }

    /// Whether equal inputs always give equal results.
    pub(crate) fn is_pure(&self) -> bool {
        let holds_graphs = self.attributes.values().any(|attribute| !attribute.graphs().is_empty());
        self.is_builtin() && !holds_graphs && !RANDOM.contains(&self.op_type.as_str())
    }

    /// All slots of this graph that the step reads, including those that its subgraphs read.
    pub(crate) fn reads(&self) -> impl Iterator<Item = usize> {
        let within = self.attributes.values().flat_map(Attribute::graphs);
        let captured = within.flat_map(|graph| graph.captures.iter().map(|(outer, _)| *outer));
        self.inputs.iter().flatten().copied().chain(captured)
    }
}

/// The operation of a step.
#[derive(Clone)]
pub(crate) enum Action {
    /// An operator, and its host version for inputs that are all known on the host.
    Operator(Operator, Option<HostFn>),
    /// A function defined in the model.
    Call(Arc<Graph>),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Operator(..) => f.write_str("Operator"),
            Action::Call(graph) => f.debug_tuple("Call").field(graph).finish(),
        }
    }
}

/// The value of a node's attribute.
#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Float(f32),
    Int(i64),
    Text(String),
    Tensor(Arc<HostTensor>),
    Graph(Arc<Graph>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Texts(Vec<String>),
    /// Sparse tensors and types, which no operator here uses.
    Other,
    Graphs(Vec<Arc<Graph>>),
}

impl Attribute {
    /// The graphs in the attribute.
    pub(crate) fn graphs(&self) -> &[Arc<Graph>] {
        match self {
            Attribute::Graph(graph) => std::slice::from_ref(graph),
            Attribute::Graphs(graphs) => graphs,
            Attribute::Float(_)
            | Attribute::Int(_)
            | Attribute::Text(_)
            | Attribute::Tensor(_)
            | Attribute::Floats(_)
            | Attribute::Ints(_)
            | Attribute::Texts(_)
            | Attribute::Other => &[],
        }
    }
}

/// Steps that read weights and constants alone. Unless gradients are recorded, their results are kept for the
/// weights that they were computed from.
pub(crate) struct Prepared {
    pub(crate) steps: Vec<Node>,
    /// The slots that other steps read, and whether the result has few different elements: products read it
    /// faster as a buffer of its own.
    pub(crate) results: Vec<(usize, bool)>,
    /// The weights that the steps read.
    pub(crate) weights: Vec<usize>,
    pub(crate) kept: Mutex<Option<Arc<Kept>>>,
}

/// Results for the present values of the weights.
pub(crate) struct Kept {
    pub(crate) device: Device,
    /// The numbers of the weights' values.
    pub(crate) ids: Vec<u64>,
    pub(crate) values: Vec<(usize, Value)>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl Prepared {
    /// `rest` are the steps that come after these.
    pub(crate) fn new(
        steps: Vec<Node>,
        rest: &[Node],
        outputs: &[Output],
        constants: &[(usize, Constant)],
    ) -> Prepared {
        let mut read: HashSet<usize> = rest.iter().flat_map(Node::reads).collect();
        read.extend(outputs.iter().map(|output| output.slot));
        let made = steps.iter().flat_map(|step| {
            let repeats = REPEATING.contains(&step.op_type.as_str());
            step.outputs.iter().flatten().map(move |&slot| (slot, repeats))
        });
        let results = made.filter(|(slot, _)| read.contains(slot)).collect();
        let inputs: HashSet<usize> = steps.iter().flat_map(Node::reads).collect();
        let weight = |(slot, constant): &(usize, Constant)| match constant {
            Constant::Weight(index) if inputs.contains(slot) => Some(*index),
            Constant::Weight(_) | Constant::Host(_) => None,
        };
        let weights = constants.iter().filter_map(weight).collect();
        Prepared { steps, results, weights, kept: Mutex::new(None) }
    }
}

/// ONNX's own domain under a single name.
pub(crate) fn domain_of(name: Option<&str>) -> &str {
    match name.unwrap_or("") {
        "ai.onnx" => "",
        other => other,
    }
}

/// By slot: whether the value depends on the file alone. The steps are in order.
pub(crate) fn static_slots(
    inputs: &[Input],
    steps: &[Node],
    constants: &[(usize, Constant)],
    slots: usize,
) -> Vec<bool> {
    let mut statics = vec![false; slots];
    constants.iter().for_each(|(slot, _)| statics[*slot] = true);
    // A run may replace the value of an input that has a default.
    inputs.iter().for_each(|input| statics[input.slot] = false);
    for step in steps {
        let is_static = step.is_pure() && step.inputs.iter().flatten().all(|&slot| statics[slot]);
        step.outputs.iter().flatten().for_each(|&slot| statics[slot] = is_static);
    }
    statics
}
