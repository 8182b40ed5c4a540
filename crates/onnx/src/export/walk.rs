//! Walks from the outputs to the inputs, and adds the nodes of each operation after those of its inputs. The
//! files beside this one have the operations by family.

use tensor_core::{DType, Op, Result, Tensor};

use super::{
    elementwise,
    exporter::{Emitted, Exporter, Failure, Step},
    index,
    layers::{self, Form},
    movement, quantized, reduce,
    sample::{Call, Origin, Twin},
};

/// A value that is to be in the graph, and its origin once that is known.
enum Task {
    Visit(Twin),
    Operation(Twin, Vec<Twin>),
    Call(Call, &'static Form),
    Alias(Twin, Twin),
}

impl Exporter {
    /// Adds everything that leads to a value, and returns its name.
    pub(super) fn add(&mut self, output: &Twin) -> Result<String> {
        // In a loop, because chains may be long.
        let mut tasks = vec![Task::Visit(output.clone())];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Visit(value) if self.names.contains_key(&value.id()) => {}
                Task::Visit(value) => self.visit(value, &mut tasks)?,
                Task::Alias(value, source) => {
                    let name = self.name(&source);
                    self.put(&value, name);
                }
                Task::Operation(value, inputs) => {
                    if !self.names.contains_key(&value.id()) {
                        self.operation(value, inputs)?;
                    }
                }
                Task::Call(call, form) => {
                    if !self.names.contains_key(&call.outputs[0].id()) {
                        self.call(&call, form)?;
                    }
                }
            }
        }
        Ok(self.name(output))
    }

    /// Finds the origin of a value, and plans its inputs before it.
    fn visit(&mut self, value: Twin, tasks: &mut Vec<Task>) -> Result<()> {
        for call in self.samples.calls(&value) {
            if let Some(form) = layers::form_of(&call, self.builder.opset) {
                let inputs: Vec<Task> = call.inputs.iter().flatten().cloned().map(Task::Visit).collect();
                tasks.push(Task::Call(call, form));
                tasks.extend(inputs.into_iter().rev());
                return Ok(());
            }
        }
        match self.samples.origin(&value) {
            Origin::Constant => self.constant(&value)?,
            Origin::Differs => {
                let what = "the operations differ for different sizes".to_string();
                self.fail(&value, Failure::NotDynamic(what))?;
            }
            Origin::Alias(source) => {
                tasks.push(Task::Alias(value, source.clone()));
                tasks.push(Task::Visit(source));
            }
            Origin::Operation(inputs) => {
                // The inputs of one of several results are those of the operation.
                let inputs = match value.first().op() {
                    Op::TupleElement { .. } => match self.samples.origin(&inputs[0]) {
                        Origin::Operation(inputs) => inputs,
                        Origin::Constant | Origin::Alias(_) | Origin::Differs => Vec::new(),
                    },
                    _ => inputs,
                };
                let visits: Vec<Task> = inputs.iter().rev().cloned().map(Task::Visit).collect();
                tasks.push(Task::Operation(value, inputs));
                tasks.extend(visits);
            }
        }
        Ok(())
    }

    /// The path of the module that an operation belongs to: of the layer whose result it is, or of its
    /// weights.
    fn path(&self, out: &Twin, inputs: &[&Twin]) -> String {
        if let Some(path) = self.paths.get(&out.first().id()) {
            return path.clone();
        }
        let of_weight = |input: &&Twin| {
            let name = self.weights.get(&input.id())?;
            Some(name.rsplit_once('.').map_or("", |(path, _)| path).to_string())
        };
        inputs.iter().find_map(of_weight).unwrap_or_default()
    }

    fn operation(&mut self, out: Twin, inputs: Vec<Twin>) -> Result<()> {
        self.builder.scope = self.path(&out, &inputs.iter().collect::<Vec<_>>());
        let names = inputs.iter().map(|input| self.name(input)).collect();
        let step = Step { out, inputs, names };
        match emit(self, &step) {
            Ok(name) => self.put(&step.out, name),
            Err(failure) => self.fail(&step.out, failure)?,
        }
        Ok(())
    }

    fn call(&mut self, call: &Call, form: &Form) -> Result<()> {
        let inputs: Vec<&Twin> = call.inputs.iter().flatten().collect();
        self.builder.scope = self.path(&call.outputs[0], &inputs);
        match layers::emit(self, call, form) {
            Ok(names) => {
                for (output, name) in call.outputs.iter().zip(names) {
                    self.put(output, name);
                }
            }
            Err(Failure::Error(error)) => return Err(error),
            Err(Failure::NoForm(reason) | Failure::NotDynamic(reason)) => {
                for output in &call.outputs {
                    self.fail(output, Failure::NotDynamic(format!("{}: {reason}", call.name)))?;
                }
            }
        }
        Ok(())
    }

    /// Adds a weight or another value that the traces did not compute.
    fn constant(&mut self, value: &Twin) -> Result<()> {
        let first = value.first();
        if let Some(name) = self.weights.get(&value.id()).cloned() {
            if let Some(result) = quantized::weight(&mut self.builder, first, &name)? {
                self.put(value, result);
                return Ok(());
            }
            self.builder.initializer(&name, first.dtype(), first.dims(), first.read_bytes()?);
            self.put(value, name);
            return Ok(());
        }
        let bytes = first.read_bytes()?;
        let mut differs = false;
        for other in value.all().skip(1).filter(|other| other.id() != first.id()) {
            differs |= other.dims() != first.dims() || other.read_bytes()? != bytes;
        }
        if !differs {
            let name = self.builder.constant(first.dtype(), first.dims(), bytes);
            self.put(value, name);
            return Ok(());
        }
        match self.numbers_of_sizes(value)? {
            Some(name) => self.put(value, name),
            None => {
                let what =
                    format!("a tensor {} from the host has other elements for other sizes", first.shape());
                self.fail(value, Failure::NotDynamic(what))?;
            }
        }
        Ok(())
    }

    /// A small constant whose elements are sizes.
    fn numbers_of_sizes(&mut self, value: &Twin) -> Result<Option<String>> {
        let first = value.first();
        if value.all().any(|other| other.dims() != first.dims())
            || first.numel() > 16
            || first.dtype() == DType::Bool
        {
            return Ok(None);
        }
        let lists = value.all().map(Tensor::to_f64_vec).collect::<Result<Vec<_>>>()?;
        let mut parts = Vec::new();
        for k in 0..first.numel() {
            let numbers: Vec<f64> = lists.iter().map(|list| list[k]).collect();
            match self.number(&numbers, first.dtype()) {
                Ok(name) => parts.push(name),
                Err(_) => return Ok(None),
            }
        }
        let lines: Vec<String> = parts.iter().map(|part| self.as_shape(part, &[1])).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let all = self.builder.node("Concat", &lines, [super::builder::int("axis", 0)]);
        let dims: Vec<i64> = first.dims().iter().map(|&size| size as i64).collect();
        Ok(Some(self.as_shape(&all, &dims)))
    }
}

/// Adds the nodes of a recorded operation.
fn emit(exporter: &mut Exporter, step: &Step) -> Emitted {
    match step.op() {
        Op::Unary(op) => elementwise::unary(exporter, *op, step.name(0), step.inputs[0].dtype()),
        Op::Powi(power) => {
            step.check_fixed()?;
            elementwise::powi(exporter, step.name(0), *power, step.out.dtype())
        }
        Op::Formula(formula) => elementwise::formula(exporter, *formula, step.name(0), step.out.dtype()),
        Op::Binary(op) => {
            elementwise::binary(exporter, *op, [step.name(0), step.name(1)], step.inputs[0].dtype())
        }
        Op::Compare(op) => {
            elementwise::compare(exporter, *op, [step.name(0), step.name(1)], step.inputs[0].dtype())
        }
        Op::Where => Ok(exporter.builder.node("Where", &[step.name(0), step.name(1), step.name(2)], [])),
        Op::Cast => Ok(exporter.builder.cast(step.name(0), step.inputs[0].dtype(), step.out.dtype())),
        Op::Full(_) | Op::Arange(_) | Op::Random { .. } => index::source(exporter, step),
        Op::Reshape => movement::reshape(exporter, step),
        Op::Permute(axes) => Ok(movement::permute(exporter, step, axes)),
        Op::Expand => movement::expand(exporter, step),
        Op::Slice { axis, .. } => movement::slice(exporter, step, *axis),
        Op::Unfold { axis, step: stride, dilation } => {
            step.check_fixed()?;
            movement::unfold(exporter, step, *axis, *stride, *dilation)
        }
        Op::Concat { axis } => Ok(movement::concat(exporter, step, *axis)),
        Op::Pad(_) => movement::pad(exporter, step),
        Op::Reduce { op, axes, keepdim } => Ok(reduce::reduce(exporter, step, *op, axes, *keepdim)),
        Op::ArgReduce { op, axis, keepdim } => Ok(reduce::arg_reduce(exporter, step, *op, *axis, *keepdim)),
        Op::Cumulative { op, axis, reverse } => reduce::cumulative(exporter, step, *op, *axis, *reverse),
        Op::Contract(subscripts) => reduce::contract(exporter, step, subscripts),
        Op::Gather { axis, .. } => Ok(index::gather(exporter, step, *axis)),
        Op::Scatter { op, axis } => index::scatter(exporter, step, *op, *axis),
        Op::TupleElement { of, index } => index::element(exporter, step, of, *index),
        // These are aliases or parts of others, which `visit` has followed.
        Op::Leaf | Op::Contiguous | Op::ToDevice | Op::Sort { .. } | Op::Custom(_) | Op::CustomKernel(_) => {
            Err(Failure::NoForm(String::new()))
        }
    }
}
