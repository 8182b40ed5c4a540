//! [`Operator`] and [`Context`]: a node's function, and its interface to the node: inputs, attributes, and
//! subgraphs.

use std::{cell::RefCell, fmt, sync::Arc};

use tensor_core::{DType, Device, Error, Result, Tensor, is_tracing};

use crate::{
    budget::Meter,
    graph::{Attribute, Graph, Node},
    value::{HostTensor, Value},
};

/// The greatest number of elements of a table that an operator computes on the host: of a window, of places
/// to gather, of weights along an axis.
const TABLE_LIMIT: usize = 1 << 24;

/// A function that computes an operator: it gets its inputs from the context, and returns its outputs in
/// order.
type Function = dyn Fn(&Context<'_>) -> Result<Vec<Value>> + Send + Sync;

/// A resolved operator.
#[derive(Clone)]
pub(crate) struct Operator {
    function: Arc<Function>,
    /// Whether it is this crate's own: rewrites replace no others.
    builtin: bool,
}

impl Operator {
    /// Stands for a missing operator, in a graph that never runs.
    pub(crate) fn missing() -> Operator {
        Operator::registered(|_| Err(Error::invalid("onnx", "this operator is not supported")))
    }

    /// An operator that a user registers.
    pub(crate) fn registered(
        function: impl Fn(&Context<'_>) -> Result<Vec<Value>> + Send + Sync + 'static,
    ) -> Operator {
        Operator { function: Arc::new(function), builtin: false }
    }

    /// An operator of this crate.
    pub(crate) fn new(function: fn(&Context<'_>) -> Result<Vec<Value>>) -> Operator {
        Operator { function: Arc::new(function), builtin: true }
    }

    pub(crate) fn is_builtin(&self) -> bool {
        self.builtin
    }

    pub(crate) fn run(&self, context: &Context<'_>) -> Result<Vec<Value>> {
        (self.function)(context)
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Operator")
    }
}

/// Computes an operator on the host.
pub(crate) type HostFn = fn(&Context<'_>) -> Result<Option<Vec<Value>>>;

/// Gives the outputs of a graph for inputs in order; the last argument has the values of the surrounding
/// graph.
pub(crate) type RunGraph = fn(&Run<'_>, &Graph, Vec<Option<Value>>, &[Option<Value>]) -> Result<Vec<Value>>;

/// The device and the weights, which all graphs of one run share.
pub(crate) struct Run<'a> {
    pub(crate) device: &'a Device,
    pub(crate) weights: &'a [Tensor],
    /// The memory that texts and tables on the host may still take.
    pub(crate) meter: &'a Meter,
    /// Runs the graphs of nodes.
    pub(crate) run_graph: RunGraph,
}

/// One node during execution.
pub struct Context<'a> {
    pub(crate) node: &'a Node,
    pub(crate) run: &'a Run<'a>,
    /// The values of the surrounding graph.
    pub(crate) values: &'a [Option<Value>],
    pub(crate) inputs: Vec<Option<Value>>,
    /// The first input in place of `inputs`, if it is a sequence that the operator may change.
    pub(crate) owned: RefCell<Option<Value>>,
}

impl<'a> Context<'a> {
    /// The device that the model runs on.
    pub fn device(&self) -> &Device {
        self.run.device
    }

    /// The version of the operator's domain that the model imports.
    pub fn version(&self) -> i64 {
        self.node.version
    }

    /// The operator.
    pub fn op_type(&self) -> &str {
        &self.node.op_type
    }

    /// An error of this node; its name is added before the message.
    pub fn error(&self, message: impl Into<String>) -> Error {
        Error::invalid("onnx", message)
    }

    /// The number of inputs, including omitted ones in between.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs, including omitted ones in between.
    pub fn output_count(&self) -> usize {
        self.node.outputs.len()
    }

    /// Whether this output may be read.
    pub fn wants(&self, output: usize) -> bool {
        self.node.outputs.get(output).is_some_and(Option::is_some)
    }

    /// An input, if it is given.
    pub fn input(&self, index: usize) -> Option<&Value> {
        self.inputs.get(index).and_then(Option::as_ref)
    }

    /// A required input.
    ///
    /// # Errors
    /// The input is missing.
    pub fn value(&self, index: usize) -> Result<&Value> {
        self.input(index).ok_or_else(|| self.error(format!("input {index} is missing")))
    }

    /// An input as a tensor on the device.
    ///
    /// # Errors
    /// It is missing, or no tensor.
    pub fn tensor(&self, index: usize) -> Result<Tensor> {
        self.value(index)?.to_tensor(self.device()).map_err(|error| self.of_input(index, &error))
    }

    /// An input as a tensor on the device, if it is given.
    ///
    /// # Errors
    /// It is no tensor.
    pub fn optional_tensor(&self, index: usize) -> Result<Option<Tensor>> {
        self.input(index).map(|_| self.tensor(index)).transpose()
    }

    /// All given inputs, as tensors.
    ///
    /// # Errors
    /// One is no tensor.
    pub fn tensors(&self) -> Result<Vec<Tensor>> {
        (0..self.inputs.len()).filter_map(|index| self.optional_tensor(index).transpose()).collect()
    }

    /// An input on the host; it is read from its device if necessary.
    ///
    /// # Errors
    /// It is missing or no tensor, or reading fails.
    pub fn host(&self, index: usize) -> Result<Arc<HostTensor>> {
        self.value(index)?.to_host().map_err(|error| self.of_input(index, &error))
    }

    /// The integers of an input, if it is given.
    ///
    /// # Errors
    /// It is no numeric tensor, or reading fails.
    pub fn integers(&self, index: usize) -> Result<Option<Vec<i64>>> {
        self.input(index).map(|_| self.host(index)?.to_i64s()).transpose()
    }

    /// The first integer of an input, if it is given.
    ///
    /// # Errors
    /// It is empty, and the errors of [`Context::integers`].
    pub fn integer(&self, index: usize) -> Result<Option<i64>> {
        let Some(list) = self.integers(index)? else { return Ok(None) };
        list.first().copied().map(Some).ok_or_else(|| self.error(format!("input {index} has no elements")))
    }

    /// The floats of an input, if it is given.
    ///
    /// # Errors
    /// It is no numeric tensor, or reading fails.
    pub fn floats(&self, index: usize) -> Result<Option<Vec<f64>>> {
        self.input(index).map(|_| self.host(index)?.to_f64s()).transpose()
    }

    /// The first float of an input, if it is given.
    ///
    /// # Errors
    /// It is empty, and the errors of [`Context::floats`].
    pub fn float(&self, index: usize) -> Result<Option<f64>> {
        let Some(list) = self.floats(index)? else { return Ok(None) };
        list.first().copied().map(Some).ok_or_else(|| self.error(format!("input {index} has no elements")))
    }

    /// The values of a sequence input.
    ///
    /// # Errors
    /// It is missing, or no sequence.
    pub fn sequence(&self, index: usize) -> Result<&Arc<Vec<Value>>> {
        match self.value(index)? {
            Value::Sequence(list) => Ok(list),
            other => Err(self.error(format!("input {index} is {}, no sequence", other.summary()))),
        }
    }

    /// The values of the first input, a sequence, to change; they are copied only if others read them as
    /// well.
    pub(crate) fn changeable_sequence(&self) -> Result<Vec<Value>> {
        match self.owned.take() {
            Some(Value::Sequence(list)) => Ok(Arc::unwrap_or_clone(list)),
            Some(Value::Tensor(_) | Value::Host(_) | Value::Nothing) | None => {
                Ok((**self.sequence(0)?).clone())
            }
        }
    }

    fn of_input(&self, index: usize, error: &Error) -> Error {
        let name = self.node.input_names.get(index).map_or("", String::as_str);
        self.error(format!("input {index} (\"{name}\"): {error}"))
    }

    /// Whether the node has this attribute.
    pub fn has(&self, name: &str) -> bool {
        self.node.attributes.contains_key(name)
    }

    fn other(&self, name: &str, wanted: &str) -> Error {
        self.error(format!("attribute \"{name}\" is no {wanted}"))
    }

    fn attribute<T>(
        &self,
        name: &str,
        wanted: &str,
        take: impl FnOnce(&Attribute) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(attribute) = self.node.attributes.get(name) else { return Ok(None) };
        take(attribute).map(Some).ok_or_else(|| self.other(name, wanted))
    }

    /// An integer attribute.
    ///
    /// # Errors
    /// It is of another type.
    pub fn int(&self, name: &str) -> Result<Option<i64>> {
        self.attribute(name, "integer", |attribute| match attribute {
            Attribute::Int(number) => Some(*number),
            Attribute::Ints(list) if list.len() == 1 => list.first().copied(),
            _ => None,
        })
    }

    /// An integer attribute, or its default.
    ///
    /// # Errors
    /// It is of another type.
    pub fn int_or(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// A boolean attribute (0 or 1), or its default.
    ///
    /// # Errors
    /// It is of another type.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.int(name)?.map_or(default, |number| number != 0))
    }

    /// A float attribute.
    ///
    /// # Errors
    /// It is of another type.
    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        self.attribute(name, "float", |attribute| match attribute {
            Attribute::Float(number) => Some(f64::from(*number)),
            Attribute::Int(number) => Some(*number as f64),
            _ => None,
        })
    }

    /// A float attribute, or its default.
    ///
    /// # Errors
    /// It is of another type.
    pub fn number_or(&self, name: &str, default: f64) -> Result<f64> {
        Ok(self.number(name)?.unwrap_or(default))
    }

    /// A text attribute, or its default.
    ///
    /// # Errors
    /// It is of another type.
    pub fn text_or(&self, name: &str, default: &'a str) -> Result<&'a str> {
        match self.node.attributes.get(name) {
            None => Ok(default),
            Some(Attribute::Text(text)) => Ok(text),
            Some(_) => Err(self.other(name, "text")),
        }
    }

    /// A list of integers as attribute.
    ///
    /// # Errors
    /// It is of another type.
    pub fn ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        self.attribute(name, "list of integers", |attribute| match attribute {
            Attribute::Ints(list) => Some(list.clone()),
            Attribute::Int(number) => Some(vec![*number]),
            Attribute::Floats(list) if list.is_empty() => Some(Vec::new()),
            _ => None,
        })
    }

    /// A list of floats as attribute.
    ///
    /// # Errors
    /// It is of another type.
    pub fn numbers(&self, name: &str) -> Result<Option<Vec<f64>>> {
        self.attribute(name, "list of floats", |attribute| match attribute {
            Attribute::Floats(list) => Some(list.iter().map(|&x| f64::from(x)).collect()),
            Attribute::Ints(list) if list.is_empty() => Some(Vec::new()),
            _ => None,
        })
    }

    /// A list of texts as attribute.
    ///
    /// # Errors
    /// It is of another type.
    pub fn texts(&self, name: &str) -> Result<Option<Vec<String>>> {
        self.attribute(name, "list of texts", |attribute| match attribute {
            Attribute::Texts(list) => Some(list.clone()),
            Attribute::Ints(list) if list.is_empty() => Some(Vec::new()),
            _ => None,
        })
    }

    /// A tensor attribute.
    ///
    /// # Errors
    /// It is of another type.
    pub fn tensor_attribute(&self, name: &str) -> Result<Option<Arc<HostTensor>>> {
        self.attribute(name, "tensor", |attribute| match attribute {
            Attribute::Tensor(tensor) => Some(tensor.clone()),
            _ => None,
        })
    }

    /// An attribute that is an axis of a tensor with `rank` axes; negative ones count from the end.
    ///
    /// # Errors
    /// It has another type, or there is no such axis.
    pub fn axis_or(&self, name: &str, default: i64, rank: usize) -> Result<usize> {
        self.axis(self.int_or(name, default)?, rank)
    }

    /// An axis of a tensor with `rank` axes; negative ones count from the end.
    ///
    /// # Errors
    /// No such axis.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let from_start = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        let found = from_start.and_then(|axis| usize::try_from(axis).ok()).filter(|&axis| axis < rank);
        found.ok_or_else(|| self.error(format!("axis {axis} of a tensor of {rank} axes")))
    }

    /// The memory that texts and other values on the host may still take in this run.
    pub(crate) fn meter(&self) -> &Meter {
        self.run.meter
    }

    /// The length of a table that an operator computes on the host, the product of `sizes`. A zero among
    /// the sizes of a tensor bounds none of the others, so none of them can be trusted alone.
    pub(crate) fn table_len(&self, sizes: &[usize]) -> Result<usize> {
        let least = sizes.iter().try_fold(1usize, |n, &size| n.checked_mul(size.max(1)));
        match least {
            Some(n) if n <= TABLE_LIMIT => Ok(sizes.iter().product()),
            _ => Err(self.error(format!("a table of {sizes:?} elements; {TABLE_LIMIT} are allowed"))),
        }
    }

    /// An input on the host whose elements determine those of the result, or how many there are.
    ///
    /// # Errors
    /// The errors of [`Context::host`] and of [`Context::refuse_trace`].
    pub(crate) fn host_data(&self, index: usize) -> Result<Arc<HostTensor>> {
        self.refuse_trace(self.value(index)?)?;
        self.host(index)
    }

    /// Refuses a value that is read on the host in a trace for an export: the file would have the results of
    /// this call as constants.
    ///
    /// # Errors
    /// A trace, unless the value is a weight or known on the host.
    pub(crate) fn refuse_trace(&self, value: &Value) -> Result<()> {
        match value {
            Value::Tensor(tensor) if is_tracing() && !tensor.is_cell() => Err(self.error(
                "it reads its input on the host, so an exported file would have the results of this call as \
                 constants; export the parts of the model before and after it",
            )),
            Value::Tensor(_) | Value::Host(_) | Value::Sequence(_) | Value::Nothing => Ok(()),
        }
    }

    /// The value that `read` makes of the node's attributes; it is kept for later runs.
    pub(crate) fn parsed<T: Send + Sync + 'static>(
        &self,
        read: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        if let Some(kept) = self.node.parsed.get()
            && let Ok(kept) = kept.clone().downcast::<T>()
        {
            return Ok(kept);
        }
        let made = Arc::new(read()?);
        // Another thread may have been faster; both results are equal.
        let _ = self.node.parsed.set(made.clone());
        Ok(made)
    }

    pub(crate) fn graph(&self, name: &str) -> Result<Arc<Graph>> {
        let found = self.attribute(name, "graph", |attribute| match attribute {
            Attribute::Graph(graph) => Some(graph.clone()),
            _ => None,
        })?;
        found.ok_or_else(|| self.error(format!("the graph \"{name}\" is missing")))
    }

    /// Runs a subgraph from an attribute.
    pub(crate) fn run_graph(&self, graph: &Graph, inputs: Vec<Option<Value>>) -> Result<Vec<Value>> {
        (self.run.run_graph)(self.run, graph, inputs, self.values)
    }

    /// The dtype in which the device stores i64 integers.
    pub fn index_dtype(&self) -> DType {
        self.device().int_dtype()
    }
}
