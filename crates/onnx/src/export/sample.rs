//! Samples: the traces of a model at several sizes of its dynamic axes. A [`Twin`] is one value in all of
//! them; a [`Size`] is the size of an axis in all of them. An operation is found with its inputs in every
//! trace, so that everything that depends on a dynamic axis shows by its difference.

use std::{collections::HashMap, rc::Rc};

use tensor_core::{Argument, DType, Op, Tensor, Trace};

/// A size in each sample.
pub(super) type Size = Vec<usize>;

/// The only size, if all samples agree.
pub(super) fn fixed(size: &[usize]) -> Option<usize> {
    let (&first, rest) = size.split_first()?;
    rest.iter().all(|&other| other == first).then_some(first)
}

/// One value in each sample.
#[derive(Clone, Debug)]
pub(super) struct Twin(Rc<[Tensor]>);

impl Twin {
    pub(super) fn new(tensors: Vec<Tensor>) -> Twin {
        Twin(tensors.into())
    }

    /// The value in the first sample.
    pub(super) fn first(&self) -> &Tensor {
        &self.0[0]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Tensor> {
        self.0.iter()
    }

    /// The id in the first sample, which identifies the value.
    pub(super) fn id(&self) -> u64 {
        key(self.first())
    }

    pub(super) fn dtype(&self) -> DType {
        self.first().dtype()
    }

    pub(super) fn rank(&self) -> usize {
        self.first().rank()
    }

    /// The size of an axis in each sample.
    pub(super) fn size(&self, axis: usize) -> Size {
        self.0.iter().map(|tensor| tensor.dims().get(axis).copied().unwrap_or(1)).collect()
    }

    /// The sizes of all axes.
    pub(super) fn shape(&self) -> Vec<Size> {
        (0..self.rank()).map(|axis| self.size(axis)).collect()
    }
}

/// The id of a tensor; for a value of a cell, the cell's.
pub(super) fn key(tensor: &Tensor) -> u64 {
    tensor.leaf().map_or(tensor.id(), |leaf| leaf.id())
}

/// A trace with its operations by the ids of their results.
pub(super) struct Sample {
    trace: Trace,
    nodes: HashMap<u64, usize>,
    /// The calls that have a result with this id, an inner call first, with the number of the result.
    calls: HashMap<u64, Vec<(usize, usize)>>,
}

impl Sample {
    pub(super) fn new(trace: Trace) -> Sample {
        let nodes = trace.nodes.iter().enumerate().map(|(at, node)| (node.tensor.id(), at)).collect();
        let mut calls: HashMap<u64, Vec<(usize, usize)>> = HashMap::new();
        for (at, call) in trace.calls.iter().enumerate() {
            let given = |id: u64| call.inputs.iter().flatten().any(|input| key(input) == id);
            for (k, output) in call.outputs.iter().enumerate().filter(|(_, output)| !given(key(output))) {
                calls.entry(output.id()).or_default().push((at, k));
            }
        }
        Sample { trace, nodes, calls }
    }
}

/// A call of a high-level function.
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) inputs: Vec<Option<Twin>>,
    pub(super) outputs: Vec<Twin>,
    /// The arguments in each sample.
    arguments: Vec<Vec<(&'static str, Argument)>>,
}

impl Call {
    /// An argument in each sample.
    pub(super) fn samples(&self, name: &str) -> Vec<&Argument> {
        let of = |list: &'_ Vec<(&'static str, Argument)>| list.iter().position(|(own, _)| *own == name);
        self.arguments.iter().filter_map(|list| of(list).map(|at| &list[at].1)).collect()
    }

    /// Whether all samples have the same arguments, except those with these names.
    pub(super) fn is_fixed_but(&self, names: &[&str]) -> bool {
        let kept = |list: &Vec<(&'static str, Argument)>| -> Vec<(&'static str, Argument)> {
            list.iter().filter(|(name, _)| !names.contains(name)).cloned().collect()
        };
        self.arguments.iter().all(|list| kept(list) == kept(&self.arguments[0]))
    }

    pub(super) fn ints(&self, name: &str) -> Vec<i64> {
        match self.samples(name).first() {
            Some(Argument::Ints(list)) => list.clone(),
            _ => Vec::new(),
        }
    }

    pub(super) fn int(&self, name: &str) -> i64 {
        match self.samples(name).first() {
            Some(Argument::Int(value)) => *value,
            _ => 0,
        }
    }

    pub(super) fn float(&self, name: &str) -> f64 {
        match self.samples(name).first() {
            Some(Argument::Float(value)) => *value,
            _ => 0.0,
        }
    }

    pub(super) fn floats(&self, name: &str) -> Option<Vec<f64>> {
        match self.samples(name).first() {
            Some(Argument::Floats(list)) => Some(list.clone()),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> &'static str {
        match self.samples(name).first() {
            Some(Argument::Text(text)) => text,
            _ => "",
        }
    }
}

/// The origin of a value.
pub(super) enum Origin {
    /// Made outside of the traces, or a leaf: its elements are constants.
    Constant,
    /// Another name of a value.
    Alias(Twin),
    /// An operation on these inputs.
    Operation(Vec<Twin>),
    /// The samples differ in their operations.
    Differs,
}

/// All samples.
pub(super) struct Samples(pub(super) Vec<Sample>);

impl Samples {
    /// The calls that made the value, the outermost first.
    pub(super) fn calls(&self, value: &Twin) -> Vec<Call> {
        let found = |sample: &Sample, tensor: &Tensor| -> Vec<(usize, usize)> {
            sample.calls.get(&tensor.id()).cloned().unwrap_or_default()
        };
        let each: Vec<Vec<(usize, usize)>> =
            self.0.iter().zip(value.all()).map(|(sample, tensor)| found(sample, tensor)).collect();
        let count = each.iter().map(Vec::len).min().unwrap_or(0);
        (0..count)
            .filter_map(|k| {
                self.call(&each.iter().map(|list| list[list.len() - 1 - k].0).collect::<Vec<_>>())
            })
            .collect()
    }

    /// The call with these numbers in the samples, if it is one function with inputs of one kind.
    fn call(&self, at: &[usize]) -> Option<Call> {
        let calls: Vec<_> = self.0.iter().zip(at).map(|(sample, &at)| &sample.trace.calls[at]).collect();
        let first = calls[0];
        let alike = calls.iter().all(|call| {
            call.name == first.name
                && call.outputs.len() == first.outputs.len()
                && call.inputs.len() == first.inputs.len()
                && call.inputs.iter().zip(&first.inputs).all(|(a, b)| a.is_some() == b.is_some())
        });
        if !alike {
            return None;
        }
        let input = |k: usize| -> Option<Twin> {
            calls.iter().map(|call| call.inputs[k].clone()).collect::<Option<Vec<Tensor>>>().map(Twin::new)
        };
        let output = |k: usize| Twin::new(calls.iter().map(|call| call.outputs[k].clone()).collect());
        Some(Call {
            name: first.name,
            inputs: (0..first.inputs.len()).map(input).collect(),
            outputs: (0..first.outputs.len()).map(output).collect(),
            arguments: calls.iter().map(|call| call.arguments.clone()).collect(),
        })
    }

    /// The operation that made the value.
    pub(super) fn origin(&self, value: &Twin) -> Origin {
        let mut nodes = Vec::with_capacity(self.0.len());
        for (sample, tensor) in self.0.iter().zip(value.all()) {
            let node = sample.nodes.get(&tensor.id()).map(|&at| &sample.trace.nodes[at]);
            nodes.push(node.filter(|_| !tensor.is_cell()));
        }
        let traced: Vec<_> = nodes.iter().flatten().collect();
        // A constant of one number may be shared with operations before the trace.
        if value.all().all(|tensor| matches!(tensor.op(), Op::Full(_)) && !tensor.is_cell()) {
            return Origin::Operation(Vec::new());
        }
        if traced.is_empty() {
            return Origin::Constant;
        }
        if traced.len() < nodes.len() {
            return Origin::Differs;
        }
        let first = traced[0];
        let alike = traced.iter().all(|node| {
            std::mem::discriminant(node.tensor.op()) == std::mem::discriminant(first.tensor.op())
                && node.inputs.len() == first.inputs.len()
                && node.tensor.rank() == first.tensor.rank()
                && node.tensor.dtype() == first.tensor.dtype()
        });
        if !alike {
            return Origin::Differs;
        }
        let input = |k: usize| Twin::new(traced.iter().map(|node| node.inputs[k].clone()).collect());
        let mut inputs: Vec<Twin> = (0..first.inputs.len()).map(input).collect();
        match first.tensor.op() {
            Op::Leaf if inputs.is_empty() => Origin::Constant,
            Op::Leaf | Op::Contiguous | Op::ToDevice => Origin::Alias(inputs.swap_remove(0)),
            // The second input is the result of a user's function.
            Op::TupleElement { .. } if inputs.len() == 2 => Origin::Alias(inputs.swap_remove(1)),
            _ => Origin::Operation(inputs),
        }
    }
}
