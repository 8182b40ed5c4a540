//! [`Context`]: what the function of an operator sees of its node: inputs, settings, and the graphs within
//! it.

use std::sync::Arc;

use tensor_core::{DType, Device, Error, Result, Tensor};

use crate::{
    attribute::Attribute,
    execute::{Run, run_graph},
    graph::{Graph, Node},
    value::{HostTensor, Value},
};

/// One node while it runs.
pub struct Context<'a> {
    pub(crate) node: &'a Node,
    pub(crate) run: &'a Run<'a>,
    /// The values of the graph around the node.
    pub(crate) values: &'a [Option<Value>],
    pub(crate) inputs: Vec<Option<Value>>,
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

    /// An error of this node; its name is put before the message.
    pub fn error(&self, message: impl Into<String>) -> Error {
        Error::invalid("onnx", message)
    }

    /// How many inputs the node has, those left out in between among them.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// How many outputs the node has, those left out in between among them.
    pub fn output_count(&self) -> usize {
        self.node.outputs.len()
    }

    /// Whether this output may be read.
    pub fn wants(&self, output: usize) -> bool {
        self.node.outputs.get(output).is_some_and(Option::is_some)
    }

    /// An input, if it is there.
    pub fn input(&self, index: usize) -> Option<&Value> {
        self.inputs.get(index).and_then(Option::as_ref)
    }

    /// An input that must be there.
    ///
    /// # Errors
    /// It is not.
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

    /// An input as a tensor on the device, if it is there.
    ///
    /// # Errors
    /// It is no tensor.
    pub fn optional_tensor(&self, index: usize) -> Result<Option<Tensor>> {
        self.input(index).map(|_| self.tensor(index)).transpose()
    }

    /// All inputs that are there, as tensors.
    ///
    /// # Errors
    /// One is no tensor.
    pub fn tensors(&self) -> Result<Vec<Tensor>> {
        (0..self.inputs.len()).filter_map(|index| self.optional_tensor(index).transpose()).collect()
    }

    /// An input on the host, read from its device where it is there.
    ///
    /// # Errors
    /// It is missing or no tensor, and what reading reports.
    pub fn host(&self, index: usize) -> Result<Arc<HostTensor>> {
        self.value(index)?.to_host().map_err(|error| self.of_input(index, &error))
    }

    /// The integers of an input, if it is there.
    ///
    /// # Errors
    /// It is no tensor of numbers, and what reading reports.
    pub fn integers(&self, index: usize) -> Result<Option<Vec<i64>>> {
        self.input(index).map(|_| self.host(index)?.to_i64s()).transpose()
    }

    /// The first integer of an input, if it is there.
    ///
    /// # Errors
    /// It has none, and as of [`Context::integers`].
    pub fn integer(&self, index: usize) -> Result<Option<i64>> {
        let Some(list) = self.integers(index)? else { return Ok(None) };
        list.first().copied().map(Some).ok_or_else(|| self.error(format!("input {index} has no elements")))
    }

    /// The floats of an input, if it is there.
    ///
    /// # Errors
    /// It is no tensor of numbers, and what reading reports.
    pub fn floats(&self, index: usize) -> Result<Option<Vec<f64>>> {
        self.input(index).map(|_| self.host(index)?.to_f64s()).transpose()
    }

    /// The first float of an input, if it is there.
    ///
    /// # Errors
    /// It has none, and as of [`Context::floats`].
    pub fn float(&self, index: usize) -> Result<Option<f64>> {
        let Some(list) = self.floats(index)? else { return Ok(None) };
        list.first().copied().map(Some).ok_or_else(|| self.error(format!("input {index} has no elements")))
    }

    /// The list in an input.
    ///
    /// # Errors
    /// It is missing, or no sequence.
    pub fn sequence(&self, index: usize) -> Result<&Arc<Vec<Value>>> {
        match self.value(index)? {
            Value::Sequence(list) => Ok(list),
            other => Err(self.error(format!("input {index} is {}, no sequence", other.summary()))),
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

    /// An attribute that is an integer.
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

    /// An attribute that is an integer, or what it is by default.
    ///
    /// # Errors
    /// It is of another type.
    pub fn int_or(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// An attribute that is 0 or 1, or what it is by default.
    ///
    /// # Errors
    /// It is of another type.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.int(name)?.map_or(default, |number| number != 0))
    }

    /// An attribute that is a float.
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

    /// An attribute that is a float, or what it is by default.
    ///
    /// # Errors
    /// It is of another type.
    pub fn number_or(&self, name: &str, default: f64) -> Result<f64> {
        Ok(self.number(name)?.unwrap_or(default))
    }

    /// An attribute that is a text, or what it is by default.
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

    /// An attribute that is a list of integers.
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

    /// An attribute that is a list of floats.
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

    /// An attribute that is a list of texts.
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

    /// An attribute that is a tensor.
    ///
    /// # Errors
    /// It is of another type.
    pub fn tensor_attribute(&self, name: &str) -> Result<Option<Arc<HostTensor>>> {
        self.attribute(name, "tensor", |attribute| match attribute {
            Attribute::Tensor(tensor) => Some(tensor.clone()),
            _ => None,
        })
    }

    /// An attribute that is an axis, counted from the end where it is negative, of a tensor of `rank` axes.
    ///
    /// # Errors
    /// It is of another type, or no such axis.
    pub fn axis_or(&self, name: &str, default: i64, rank: usize) -> Result<usize> {
        self.axis(self.int_or(name, default)?, rank)
    }

    /// An axis, counted from the end where it is negative, of a tensor of `rank` axes.
    ///
    /// # Errors
    /// No such axis.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let from_start = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        let found = from_start.and_then(|axis| usize::try_from(axis).ok()).filter(|&axis| axis < rank);
        found.ok_or_else(|| self.error(format!("axis {axis} of a tensor of {rank} axes")))
    }

    pub(crate) fn graph(&self, name: &str) -> Result<Arc<Graph>> {
        let found = self.attribute(name, "graph", |attribute| match attribute {
            Attribute::Graph(graph) => Some(graph.clone()),
            _ => None,
        })?;
        found.ok_or_else(|| self.error(format!("the graph \"{name}\" is missing")))
    }

    /// Runs a graph that an attribute holds.
    pub(crate) fn run_graph(&self, graph: &Graph, inputs: Vec<Option<Value>>) -> Result<Vec<Value>> {
        run_graph(self.run, graph, inputs, self.values)
    }

    /// The dtype in which the device holds integers of i64.
    pub fn index_dtype(&self) -> DType {
        self.device().int_dtype()
    }
}
