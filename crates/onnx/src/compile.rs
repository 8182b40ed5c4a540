//! Compiles graphs of a file: names become slots, nodes become steps in order, and constants become weights
//! or values on the host.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, OnceLock},
};

use prost::Message;
use tensor_core::{DType, Error, Result};

use crate::{
    context::Operator,
    data::{External, Stored, dense, name_of},
    fold,
    graph::{
        Action, Attribute, Constant, Constants, DIFFERENTIATED, Graph, Input, Node, Output, Prepared,
        domain_of, static_slots,
    },
    proto::{AttributeProto, FunctionProto, GraphProto, NodeProto},
    registry::Registry,
    value::DataType,
    weights::{WeightRole, Weights},
};

/// The greatest nesting depth of graphs and functions.
const MAX_DEPTH: usize = 48;
/// The memory of a compiled node beside its names, in bytes, while its graph is rewritten: its lists of
/// slots, the table of its attributes, and its places in the tables of the graph.
const NODE_BYTES: usize = 768;
/// The number of elements up to which integers and booleans are stored on the host as well.
pub(crate) const HOST_ELEMENTS: usize = 1024;

/// Inputs whose values an operator reads on the host: a float there is a setting, not a weight.
const SETTINGS: &[(&str, &[usize])] = &[
    ("Resize", &[1, 2, 3]),
    ("Upsample", &[1]),
    ("Range", &[0, 1, 2]),
    ("Pad", &[2]),
    ("Dropout", &[1, 2]),
    ("NonMaxSuppression", &[2, 3, 4]),
    ("OneHot", &[1]),
];

/// The domain of training operators.
const TRAINING: &str = "ai.onnx.preview.training";
/// An operator that a file needs and the registry lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Missing {
    domain: String,
    op_type: String,
    version: i64,
}

/// The names of one graph during compilation.
#[derive(Default)]
struct Scope {
    names: HashMap<String, usize>,
    slots: usize,
    captures: Vec<(usize, usize)>,
}

impl Scope {
    fn slot(&mut self) -> usize {
        self.slots += 1;
        self.slots - 1
    }

    fn define(&mut self, name: &str, what: &str) -> Result<usize> {
        let slot = self.slot();
        if self.names.insert(name.to_string(), slot).is_some() {
            return Err(invalid(format!(
                "the name \"{name}\" is used twice: {what} has the name of another value"
            )));
        }
        Ok(slot)
    }
}

fn invalid(message: String) -> Error {
    Error::invalid("onnx", message)
}

/// A graph whose names are resolved and whose steps are in order.
pub(crate) struct Draft<'g> {
    pub(crate) inputs: &'g [Input],
    pub(crate) outputs: &'g [Output],
    pub(crate) steps: Vec<Node>,
    pub(crate) constants: Constants,
    pub(crate) slots: usize,
}

/// Changes graphs before they are finished.
pub(crate) trait Rewriter {
    /// The new steps, in any order, the constants, and the number of slots.
    fn rewrite(&mut self, draft: Draft<'_>, weights: &mut Weights<'_>) -> (Vec<Node>, Constants, usize);

    /// Whether results of weights and constants alone are kept from run to run.
    fn keeps_static_values(&self) -> bool;
}

/// Compiles the graphs of one file.
pub(crate) struct Compiler<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) functions: HashMap<(String, String, String), &'a FunctionProto>,
    pub(crate) external: &'a External,
    pub(crate) weights: Weights<'a>,
    rewriter: &'a mut dyn Rewriter,
    scopes: Vec<Scope>,
    /// The nodes of the graphs under compilation, the innermost last.
    open: Vec<&'a [NodeProto]>,
    depth: usize,
    steps: usize,
    /// Functions that are compiled, with their numbers of nodes, those of functions within them counted at
    /// every call.
    bodies: HashMap<Body, (Arc<Graph>, usize)>,
    /// By the address of a function's message: the attributes that its nodes refer to.
    read_attributes: HashMap<usize, BTreeSet<&'a str>>,
    missing: BTreeMap<Missing, (usize, String)>,
}

/// The context of the nodes of a graph or function: versions of operators, and the attributes of the
/// function's call.
struct Surroundings<'a> {
    opsets: HashMap<String, i64>,
    bound: Option<HashMap<&'a str, &'a AttributeProto>>,
}

impl<'a> Compiler<'a> {
    pub(crate) fn new(
        registry: &'a Registry,
        rewriter: &'a mut dyn Rewriter,
        functions: &'a [FunctionProto],
        external: &'a External,
    ) -> Result<Compiler<'a>> {
        let mut by_name = HashMap::new();
        for function in functions {
            let key = (
                domain_of(function.domain.as_deref()).to_string(),
                function.name.clone().unwrap_or_default(),
                function.overload.clone().unwrap_or_default(),
            );
            if let Some(previous) = by_name.insert(key, function) {
                let name = previous.name.as_deref().unwrap_or("");
                return Err(invalid(format!("the function \"{name}\" is defined twice")));
            }
        }
        Ok(Compiler {
            registry,
            functions: by_name,
            external,
            weights: Weights::default(),
            rewriter,
            scopes: Vec::new(),
            open: Vec::new(),
            depth: 0,
            steps: 0,
            bodies: HashMap::new(),
            read_attributes: HashMap::new(),
            missing: BTreeMap::new(),
        })
    }

    /// The main graph; all missing operators are reported together.
    pub(crate) fn model(&mut self, graph: &'a GraphProto, opsets: HashMap<String, i64>) -> Result<Graph> {
        let compiled = self.graph(graph, &Surroundings { opsets, bound: None })?;
        if self.missing.is_empty() {
            return Ok(compiled);
        }
        let list = self.missing.iter().map(|(Missing { domain, op_type, version }, (count, first))| {
            let domain = if domain.is_empty() { "ai.onnx" } else { domain };
            format!("\n  {domain}::{op_type} of version {version}, {count} times, first in {first}")
        });
        Err(invalid(format!(
            "operators that are not supported (onnx::Registry takes functions for them):{}",
            list.collect::<String>()
        )))
    }

    /// Counts nodes of the model, with those of functions at every call.
    fn count_steps(&mut self, count: usize) -> Result<()> {
        self.steps = self.steps.saturating_add(count);
        let most = self.external.meter.budget.nodes;
        if self.steps <= most {
            return Ok(());
        }
        Err(invalid(format!(
            "the model has more than {most} nodes with its functions written out, the most that its \
             onnx::Budget allows"
        )))
    }

    fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return Err(invalid(format!(
                "graphs and functions are nested more than {MAX_DEPTH} deep, or a function calls itself"
            )));
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    fn graph(&mut self, graph: &'a GraphProto, around: &Surroundings<'a>) -> Result<Graph> {
        self.deeper(|compiler| {
            compiler.scopes.push(Scope::default());
            let result = compiler.graph_in_scope(graph, around);
            compiler.scopes.pop();
            result
        })
    }

    fn top(&mut self) -> Result<&mut Scope> {
        self.scopes.last_mut().ok_or_else(|| invalid("no graph is open".into()))
    }

    fn graph_in_scope(&mut self, graph: &'a GraphProto, around: &Surroundings<'a>) -> Result<Graph> {
        let mut inputs = Vec::with_capacity(graph.input.len());
        for input in &graph.input {
            let name = input.name.as_deref().unwrap_or("");
            let slot = self.top()?.define(name, "an input")?;
            inputs.push(Input { name: name.into(), slot, r#type: input.r#type.clone(), has_default: false });
        }
        // The use of initializers determines whether they are weights.
        let nodes: Vec<&NodeProto> = graph.node.iter().collect();
        let uses = uses(&nodes);
        let mut constants = Vec::new();
        for tensor in &graph.initializer {
            let name = tensor.name.as_deref().unwrap_or("");
            let given = inputs.iter_mut().find(|input| input.name == name);
            let slot = match given {
                Some(input) if !input.has_default => {
                    input.has_default = true;
                    input.slot
                }
                _ => self.top()?.define(name, "an initializer")?,
            };
            let stored = Stored::new(tensor, self.external)?;
            constants.push((slot, self.constant(name, stored, uses.get(name), false)?));
        }
        for tensor in &graph.sparse_initializer {
            let name = tensor.values.as_ref().map_or("", name_of);
            let slot = self.top()?.define(name, "an initializer")?;
            let host = dense(tensor, self.external)?;
            constants.push((slot, Constant::Host(Arc::new(host))));
        }
        self.open.push(&graph.node);
        let made = self.nodes(&nodes, around, &uses);
        self.open.pop();
        let (steps, more) = made?;
        constants.extend(more);
        let mut outputs = Vec::with_capacity(graph.output.len());
        for output in &graph.output {
            let name = output.name.as_deref().unwrap_or("");
            let Some(slot) = self.resolve(name) else {
                return Err(invalid(format!("the output \"{name}\" is made by no node")));
            };
            outputs.push(Output { name: name.into(), slot, r#type: output.r#type.clone() });
        }
        self.finish(inputs, outputs, steps, constants)
    }

    /// Compiles the innermost scope to a graph.
    fn finish(
        &mut self,
        inputs: Vec<Input>,
        outputs: Vec<Output>,
        mut steps: Vec<Node>,
        constants: Constants,
    ) -> Result<Graph> {
        let scope = std::mem::take(self.top()?);
        in_order(&mut steps, scope.slots)?;
        let draft = Draft { inputs: &inputs, outputs: &outputs, steps, constants, slots: scope.slots };
        let (mut steps, constants, slots) = self.rewriter.rewrite(draft, &mut self.weights);
        in_order(&mut steps, slots)?;
        let statics = match self.rewriter.keeps_static_values() {
            true => static_slots(&inputs, &steps, &constants, slots),
            false => vec![false; slots],
        };
        let is_static =
            |step: &Node| step.is_pure() && step.outputs.iter().flatten().all(|&slot| statics[slot]);
        let (mut all, rest): (Vec<Node>, Vec<Node>) = steps.into_iter().partition(is_static);
        let count = all.len();
        all.extend(rest);
        note_last_uses(&mut all, &outputs, slots);
        let steps = all.split_off(count);
        let prepared = Prepared::new(all, &steps, &outputs, &constants);
        Ok(Graph { inputs, outputs, prepared, steps, slots, constants, captures: scope.captures })
    }

    /// A value in the file: a weight, or a value that stays on the host.
    fn constant(
        &mut self,
        name: &str,
        stored: Stored<'a>,
        used: Option<&Uses>,
        inline: bool,
    ) -> Result<Constant> {
        let count = stored.count();
        let float =
            matches!(stored.data_type, DataType::Tensor(dtype) if dtype.is_float() && dtype.size() > 1);
        let setting = used.is_some_and(|uses| uses.all_settings);
        let host = match stored.data_type {
            DataType::Tensor(_) if float => count == 0 || setting || (inline && count == 1),
            DataType::Tensor(_) => count <= HOST_ELEMENTS,
            DataType::Text | DataType::Int2 | DataType::Uint2 | DataType::Int4 | DataType::Uint4 => true,
            DataType::Float4E2M1 | DataType::Float8E8M0 => true,
        };
        if host {
            return Ok(Constant::Host(Arc::new(stored.to_host_within(&self.external.meter)?)));
        }
        // A function has a copy of its constants for each set of attributes.
        let size = stored.data_type.dtype().map_or(1, DType::size);
        self.external.meter.charge_list(count, size, &format!("the tensor \"{name}\""))?;
        let buffer = !float || used.is_some_and(|uses| uses.all_statistics);
        let role = if buffer { WeightRole::Buffer } else { WeightRole::Parameter };
        Ok(Constant::Weight(self.weights.add(name, stored, role)))
    }

    /// The nodes of the innermost scope, without `Constant`s.
    fn nodes(
        &mut self,
        nodes: &[&'a NodeProto],
        around: &Surroundings<'a>,
        uses: &HashMap<&str, Uses>,
    ) -> Result<(Vec<Node>, Constants)> {
        self.count_steps(nodes.len())?;
        for node in nodes {
            let texts: usize =
                node.input.iter().chain(&node.output).map(|name| size_of::<String>() + name.len()).sum();
            let lists: usize = node
                .attribute
                .iter()
                .map(|a| size_of::<Attribute>() + 4 * a.floats.len() + 8 * a.ints.len())
                .sum();
            let bytes = NODE_BYTES + 3 * texts + 2 * lists;
            self.external.meter.charge(bytes as u64, "it").map_err(|error| {
                invalid(format!("node {}: {error}", node.op_type.as_deref().unwrap_or("")))
            })?;
        }
        let mut slots = Vec::with_capacity(nodes.len());
        for node in nodes {
            let what = || format!("an output of a node {}", node.op_type.as_deref().unwrap_or(""));
            let mut own = Vec::with_capacity(node.output.len());
            for output in &node.output {
                own.push(match output.as_str() {
                    "" => None,
                    name => Some(self.top()?.define(name, &what())?),
                });
            }
            slots.push(own);
        }
        let (mut steps, mut constants) = (Vec::with_capacity(nodes.len()), Vec::new());
        for (&node, outputs) in nodes.iter().zip(slots) {
            if let Some(constant) = self.constant_node(node, around, uses)? {
                if let Some(&Some(slot)) = outputs.first() {
                    constants.push((slot, constant));
                }
                continue;
            }
            steps.push(self.node(node, outputs, around)?);
        }
        Ok((steps, constants))
    }

    /// The value of a `Constant` node with a tensor.
    fn constant_node(
        &mut self,
        node: &'a NodeProto,
        around: &Surroundings<'a>,
        uses: &HashMap<&str, Uses>,
    ) -> Result<Option<Constant>> {
        if node.op_type.as_deref() != Some("Constant") || !domain_of(node.domain.as_deref()).is_empty() {
            return Ok(None);
        }
        let [attribute] = node.attribute.as_slice() else { return Ok(None) };
        let attribute = match (&attribute.ref_attr_name, &around.bound) {
            (Some(name), Some(bound)) if !name.is_empty() => match bound.get(name.as_str()) {
                Some(found) => found,
                None => return Ok(None),
            },
            _ => attribute,
        };
        let Some(tensor) = attribute.t.as_ref() else { return Ok(None) };
        let name = node.output.first().map_or("", String::as_str);
        let stored = Stored::new(tensor, self.external)?;
        self.constant(name, stored, uses.get(name), true).map(Some)
    }

    fn node(
        &mut self,
        node: &'a NodeProto,
        outputs: Vec<Option<usize>>,
        around: &Surroundings<'a>,
    ) -> Result<Node> {
        let op_type = node.op_type.clone().unwrap_or_default();
        let domain = domain_of(node.domain.as_deref()).to_string();
        let name = node.name.clone().unwrap_or_default();
        let mut step = Node {
            name,
            op_type,
            domain,
            version: 0,
            inputs: Vec::with_capacity(node.input.len()),
            input_names: node.input.clone(),
            outputs,
            output_names: node.output.clone(),
            attributes: HashMap::with_capacity(node.attribute.len()),
            action: Action::Operator(Operator::missing(), None),
            parsed: OnceLock::new(),
            frees: Vec::new(),
        };
        for input in &node.input {
            step.inputs.push(match input.as_str() {
                "" => None,
                name => match self.resolve(name) {
                    Some(slot) => Some(slot),
                    None => {
                        let message = format!("{}: its input \"{name}\" is made by no node", step.title());
                        return Err(invalid(message));
                    }
                },
            });
        }
        for attribute in &node.attribute {
            let name = attribute.name.clone().unwrap_or_default();
            let value = match (&attribute.ref_attr_name, &around.bound) {
                (Some(from), Some(bound)) if !from.is_empty() => match bound.get(from.as_str()) {
                    Some(found) => *found,
                    // An attribute that the call omits.
                    None => continue,
                },
                _ => attribute,
            };
            let title = step.title();
            let value = self
                .attribute(value, around)
                .map_err(|error| invalid(format!("{title}: attribute \"{name}\": {error}")))?;
            if step.attributes.insert(name.clone(), value).is_some() {
                return Err(invalid(format!("{title}: the attribute \"{name}\" is given twice")));
            }
        }
        let overload = node.overload.clone().unwrap_or_default();
        let key = (step.domain.clone(), step.op_type.clone(), overload);
        if let Some(function) = self.functions.get(&key).copied() {
            let graph = self.function(function, node, around).map_err(|error| {
                invalid(format!("{}: in the function \"{}\": {error}", step.title(), step.op_type))
            })?;
            step.action = Action::Call(graph);
            return Ok(step);
        }
        let Some(&version) = around.opsets.get(&step.domain) else {
            let domain = if step.domain.is_empty() { "ai.onnx" } else { &step.domain };
            return Err(invalid(format!(
                "{}: the model imports no version of the domain \"{domain}\"",
                step.title()
            )));
        };
        step.version = version;
        if (step.domain.as_str(), step.op_type.as_str()) == (TRAINING, "Gradient") {
            let graph =
                self.gradient(node, around).map_err(|error| invalid(format!("{}: {error}", step.title())))?;
            step.attributes.insert(DIFFERENTIATED.into(), Attribute::Graph(Arc::new(graph)));
        }
        match self.registry.find(&step.domain, &step.op_type, version) {
            Some(operator) => {
                let on_host = if step.domain.is_empty() { fold::find(&step.op_type) } else { None };
                step.action = Action::Operator(operator, on_host);
            }
            None => {
                let missing = Missing { domain: step.domain.clone(), op_type: step.op_type.clone(), version };
                let title = step.title();
                self.missing.entry(missing).or_insert((0, title)).0 += 1;
            }
        }
        Ok(step)
    }

    fn attribute(&mut self, proto: &'a AttributeProto, around: &Surroundings<'a>) -> Result<Attribute> {
        if let Some(graph) = &proto.g {
            return Ok(Attribute::Graph(Arc::new(self.graph(graph, around)?)));
        }
        if !proto.graphs.is_empty() {
            let graphs = proto.graphs.iter().map(|graph| self.graph(graph, around).map(Arc::new));
            return Ok(Attribute::Graphs(graphs.collect::<Result<_>>()?));
        }
        attribute(proto, self.external)
    }

    /// The body of a function, with the attributes of one call. Calls with equal attributes share it, and its
    /// constants with it.
    fn function(
        &mut self,
        function: &'a FunctionProto,
        call: &'a NodeProto,
        around: &Surroundings<'a>,
    ) -> Result<Arc<Graph>> {
        let mut bound: HashMap<&'a str, &'a AttributeProto> = HashMap::new();
        for attribute in &function.attribute_proto {
            bound.insert(attribute.name.as_deref().unwrap_or(""), attribute);
        }
        for attribute in &call.attribute {
            let value = match (&attribute.ref_attr_name, &around.bound) {
                (Some(from), Some(outer)) if !from.is_empty() => match outer.get(from.as_str()) {
                    Some(found) => *found,
                    None => continue,
                },
                _ => attribute,
            };
            bound.insert(attribute.name.as_deref().unwrap_or(""), value);
        }
        let opsets = opsets(&function.opset_import);
        let opsets = if opsets.is_empty() { around.opsets.clone() } else { opsets };
        let key = self.body(function, &opsets, &bound);
        if let Some((graph, steps)) = self.bodies.get(&key) {
            let (graph, steps) = (graph.clone(), *steps);
            self.count_steps(steps)?;
            return Ok(graph);
        }
        let before = self.steps;
        let around = Surroundings { opsets, bound: Some(bound) };
        // A function cannot see names of the surrounding graph.
        let outer = std::mem::take(&mut self.scopes);
        let result = self.deeper(|compiler| {
            compiler.scopes.push(Scope::default());
            let mut inputs = Vec::with_capacity(function.input.len());
            for name in &function.input {
                let slot = compiler.top()?.define(name, "an input")?;
                inputs.push(Input { name: name.clone(), slot, r#type: None, has_default: true });
            }
            let nodes: Vec<&NodeProto> = function.node.iter().collect();
            compiler.open.push(&function.node);
            let made = compiler.nodes(&nodes, &around, &uses(&nodes));
            compiler.open.pop();
            let (steps, constants) = made?;
            let mut outputs = Vec::with_capacity(function.output.len());
            for name in &function.output {
                let slot = compiler
                    .resolve(name)
                    .ok_or_else(|| invalid(format!("its output \"{name}\" is made by no node")))?;
                outputs.push(Output { name: name.clone(), slot, r#type: None });
            }
            compiler.finish(inputs, outputs, steps, constants)
        });
        self.scopes = outer;
        let graph = Arc::new(result?);
        self.bodies.insert(key, (graph.clone(), self.steps - before));
        Ok(graph)
    }

    /// The function with everything that its compiled body depends on.
    fn body(
        &mut self,
        function: &'a FunctionProto,
        opsets: &HashMap<String, i64>,
        bound: &HashMap<&str, &'a AttributeProto>,
    ) -> Body {
        let address = std::ptr::from_ref(function) as usize;
        let read = self.read_attributes.entry(address).or_insert_with(|| {
            let mut names = BTreeSet::new();
            names_read(&function.node, &mut names);
            names
        });
        let value = |name: &&'a str| {
            let attribute = bound.get(name)?;
            let is_large =
                attribute.t.is_some() || attribute.g.is_some() || attribute.sparse_tensor.is_some();
            let is_large = is_large || !attribute.graphs.is_empty() || !attribute.tensors.is_empty();
            Some(if is_large {
                Argument::Address(std::ptr::from_ref(*attribute) as usize)
            } else {
                // Its name may differ where it is handed on, and is not read.
                let value = AttributeProto { name: None, doc_string: None, ..(*attribute).clone() };
                Argument::Value(value.encode_to_vec())
            })
        };
        let arguments = read.iter().map(value).collect();
        let mut versions: Vec<(String, i64)> =
            opsets.iter().map(|(name, &version)| (name.clone(), version)).collect();
        versions.sort_unstable();
        Body { function: address, versions, arguments }
    }

    /// The part of the graph around a `Gradient` node that computes its `y` from its `xs` and `zs`, as a
    /// separate graph.
    fn gradient(&mut self, node: &'a NodeProto, around: &Surroundings<'a>) -> Result<Graph> {
        let attribute =
            |name: &str| node.attribute.iter().find(|attribute| attribute.name.as_deref() == Some(name));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let list = |name: &str| -> Vec<String> {
            attribute(name)
                .map_or(Vec::new(), |attribute| attribute.strings.iter().map(|b| text(b)).collect())
        };
        let y = attribute("y").and_then(|attribute| attribute.s.as_deref()).map(text).unwrap_or_default();
        let given: Vec<String> = list("xs").into_iter().chain(list("zs")).collect();
        let nodes = self.open.last().copied().unwrap_or(&[]);
        let made = nodes.iter().enumerate();
        let maker: HashMap<&str, usize> =
            made.flat_map(|(at, node)| node.output.iter().map(move |name| (name.as_str(), at))).collect();
        let (mut wanted, mut chosen) = (vec![y.as_str()], HashSet::new());
        while let Some(name) = wanted.pop() {
            if given.iter().any(|given| given == name) {
                continue;
            }
            if let Some(&at) = maker.get(name)
                && chosen.insert(at)
            {
                wanted.extend(nodes[at].input.iter().map(String::as_str));
            }
        }
        let chosen: Vec<&'a NodeProto> =
            nodes.iter().enumerate().filter(|(at, _)| chosen.contains(at)).map(|(_, node)| node).collect();
        self.deeper(|compiler| {
            compiler.scopes.push(Scope::default());
            let compile = |compiler: &mut Self| {
                let mut inputs = Vec::with_capacity(given.len());
                for name in &given {
                    let slot = compiler.top()?.define(name, "an input")?;
                    inputs.push(Input { name: name.clone(), slot, r#type: None, has_default: false });
                }
                let (steps, constants) = compiler.nodes(&chosen, around, &uses(&chosen))?;
                let slot =
                    compiler.resolve(&y).ok_or_else(|| invalid(format!("\"{y}\" is made by no node")))?;
                let output = Output { name: y.clone(), slot, r#type: None };
                compiler.finish(inputs, vec![output], steps, constants)
            };
            let result = compile(compiler);
            compiler.scopes.pop();
            result
        })
    }

    /// The slot of a name in the innermost scope: its own, or one captured from a surrounding graph.
    fn resolve(&mut self, name: &str) -> Option<usize> {
        let found = self.scopes.iter().rposition(|scope| scope.names.contains_key(name))?;
        let mut slot = self.scopes[found].names[name];
        for scope in &mut self.scopes[found + 1..] {
            let inner = scope.slot();
            scope.captures.push((slot, inner));
            scope.names.insert(name.to_string(), inner);
            slot = inner;
        }
        Some(slot)
    }
}

/// A function's body for the values of the attributes that it reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Body {
    /// The address of the function's message.
    function: usize,
    versions: Vec<(String, i64)>,
    /// In the order of their names; `None` for one that the call omits.
    arguments: Vec<Option<Argument>>,
}

/// The value of an attribute of a call: encoded, or the address of a message with tensors or graphs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Argument {
    Value(Vec<u8>),
    Address(usize),
}

/// The names of the call's attributes that nodes refer to, in graphs within them as well.
fn names_read<'n>(nodes: &'n [NodeProto], names: &mut BTreeSet<&'n str>) {
    for attribute in nodes.iter().flat_map(|node| &node.attribute) {
        names.extend(attribute.ref_attr_name.as_deref().filter(|name| !name.is_empty()));
        for graph in attribute.all_graphs() {
            names_read(&graph.node, names);
        }
    }
}

/// The attribute of a message without graphs.
fn attribute(proto: &AttributeProto, external: &External) -> Result<Attribute> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let tensor = |proto| Stored::new(proto, external)?.to_host_within(&external.meter).map(Arc::new);
    // Files of IR version 1 declare no type: the field that is set determines it.
    let r#type = proto.r#type.unwrap_or(0);
    Ok(match r#type {
        1 => Attribute::Float(proto.f.unwrap_or(0.0)),
        2 => Attribute::Int(proto.i.unwrap_or(0)),
        3 => Attribute::Text(text(proto.s.as_deref().unwrap_or(&[]))),
        6 => Attribute::Floats(proto.floats.clone()),
        7 => Attribute::Ints(proto.ints.clone()),
        8 => Attribute::Texts(proto.strings.iter().map(|bytes| text(bytes)).collect()),
        9 | 12 | 14 => Attribute::Other,
        10 => Attribute::Graphs(Vec::new()),
        0 | 4 | 11 | 13 => match proto {
            AttributeProto { t: Some(proto), .. } => Attribute::Tensor(tensor(proto)?),
            AttributeProto { sparse_tensor: Some(proto), .. } => {
                Attribute::Tensor(Arc::new(dense(proto, external)?))
            }
            AttributeProto { tp: Some(_), .. } => Attribute::Other,
            AttributeProto { f: Some(number), .. } => Attribute::Float(*number),
            AttributeProto { i: Some(number), .. } => Attribute::Int(*number),
            AttributeProto { s: Some(bytes), .. } => Attribute::Text(text(bytes)),
            _ if !proto.floats.is_empty() => Attribute::Floats(proto.floats.clone()),
            _ if !proto.strings.is_empty() => {
                Attribute::Texts(proto.strings.iter().map(|bytes| text(bytes)).collect())
            }
            _ => Attribute::Ints(proto.ints.clone()),
        },
        _ => {
            let message = format!("its type has the number {type}, which is not known here", r#type = r#type);
            return Err(Error::invalid("onnx", message));
        }
    })
}

/// The versions by domain.
pub(crate) fn opsets(imports: &[crate::proto::OperatorSetIdProto]) -> HashMap<String, i64> {
    let entry = |import: &crate::proto::OperatorSetIdProto| {
        (domain_of(import.domain.as_deref()).to_string(), import.version.unwrap_or(1))
    };
    imports.iter().map(entry).collect()
}

/// The use of a value.
struct Uses {
    /// Read only by operators on the host.
    all_settings: bool,
    /// Used only as a running mean or variance.
    all_statistics: bool,
}

fn uses<'n>(nodes: &[&'n NodeProto]) -> HashMap<&'n str, Uses> {
    let mut all: HashMap<&str, Uses> = HashMap::new();
    for node in nodes {
        let op_type = node.op_type.as_deref().unwrap_or("");
        let settings = SETTINGS.iter().find(|(name, _)| *name == op_type).map_or(&[][..], |(_, list)| list);
        for (index, input) in node.input.iter().enumerate() {
            let uses = all.entry(input).or_insert(Uses { all_settings: true, all_statistics: true });
            uses.all_settings &= settings.contains(&index);
            uses.all_statistics &= op_type == "BatchNormalization" && index >= 3;
        }
    }
    // A subgraph may read any name; it is not searched for roles.
    let mut within: HashSet<&str> = HashSet::new();
    for node in nodes {
        for graph in node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()) {
            let reads = graph.node.iter().flat_map(|node| node.input.iter());
            within.extend(reads.map(String::as_str));
        }
    }
    for name in within {
        if let Some(uses) = all.get_mut(name) {
            (uses.all_settings, uses.all_statistics) = (false, false);
        }
    }
    all
}

/// Sorts the steps topologically; the file's order is kept if it is valid.
fn in_order(steps: &mut Vec<Node>, slots: usize) -> Result<()> {
    let mut maker = vec![usize::MAX; slots];
    for (index, step) in steps.iter().enumerate() {
        step.outputs.iter().flatten().for_each(|&slot| maker[slot] = index);
    }
    let made_by = |step: &Node| -> Vec<usize> {
        step.reads().map(|slot| maker[slot]).filter(|&index| index != usize::MAX).collect()
    };
    let sources: Vec<Vec<usize>> = steps.iter().map(made_by).collect();
    if sources.iter().enumerate().all(|(index, sources)| sources.iter().all(|&source| source < index)) {
        return Ok(());
    }
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    let mut waiting: Vec<usize> = sources.iter().map(Vec::len).collect();
    for (index, sources) in sources.iter().enumerate() {
        sources.iter().for_each(|&source| readers[source].push(index));
    }
    let ready = waiting.iter().enumerate().filter(|(_, count)| **count == 0);
    let mut ready: std::collections::BTreeSet<usize> = ready.map(|(index, _)| index).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some(index) = ready.pop_first() {
        order.push(index);
        for &reader in &readers[index] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.insert(reader);
            }
        }
    }
    if order.len() < steps.len() {
        let names: Vec<String> =
            (0..steps.len()).filter(|&index| waiting[index] > 0).take(4).map(|i| steps[i].title()).collect();
        return Err(invalid(format!("nodes need each other's outputs in a cycle: {}", names.join(", "))));
    }
    let mut all: Vec<Option<Node>> = steps.drain(..).map(Some).collect();
    steps.extend(order.into_iter().filter_map(|index| all[index].take()));
    Ok(())
}

/// Records for each step the values that it is the last to read.
fn note_last_uses(steps: &mut [Node], outputs: &[Output], slots: usize) {
    let mut last = vec![usize::MAX; slots];
    for (index, step) in steps.iter().enumerate() {
        step.outputs.iter().flatten().for_each(|&slot| last[slot] = index);
    }
    for (index, step) in steps.iter().enumerate() {
        step.reads().for_each(|slot| last[slot] = index);
    }
    outputs.iter().for_each(|output| last[output.slot] = usize::MAX);
    for (slot, index) in last.into_iter().enumerate() {
        if let Some(step) = steps.get_mut(index) {
            step.frees.push(slot);
        }
    }
}
