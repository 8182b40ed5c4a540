//! [`PlanListing`]: the plan of a compiled function as data, for readers that write it down in another form.
//! `execute` is the other reader of the same plan.

use super::program::{Made, Program, Source};
use crate::{
    base::{
        error::{Error, Result},
        location::Location,
        shape::Shape,
    },
    elements::{dtype::DType, scalar::Scalar},
    graph::node::{Node, Value, View},
    kernels::{kernel::Kernel, layout::Layout},
    schedule::{
        execute::scalar,
        plan::{Output, Plan, Step, Store, Target},
    },
};

/// The plan of a compiled function: buffers, and the kernels that read and write them in order.
#[derive(Clone, Debug, Default)]
pub struct PlanListing {
    /// The buffers; everything else names them by their positions.
    pub buffers: Vec<ListedBuffer>,
    /// The kernels, in the order in which they run.
    pub steps: Vec<ListedStep>,
    /// The shape and the dtype of each argument, and its buffer unless nothing reads it.
    pub arguments: Vec<(Shape, DType, Option<usize>)>,
    /// The results of the function.
    pub results: Vec<ListedValue>,
}

/// A buffer of a [`PlanListing`].
#[derive(Clone, Debug)]
pub struct ListedBuffer {
    /// The dtype of its elements.
    pub dtype: DType,
    /// The number of its elements.
    pub numel: usize,
    /// The source of its contents.
    pub source: BufferSource,
}

/// The source of a buffer's contents.
#[derive(Clone, Debug)]
pub enum BufferSource {
    /// The argument with this number, in row-major order.
    Argument(usize),
    /// These bytes, in the host's byte order: a parameter or another constant.
    Constant(Vec<u8>),
    /// The kernels of the plan.
    Made,
}

/// A tensor in a buffer of a [`PlanListing`].
#[derive(Clone, Debug)]
pub struct ListedValue {
    /// The buffer.
    pub buffer: usize,
    /// The dtype.
    pub dtype: DType,
    /// The layout of the elements in the buffer.
    pub layout: Layout,
}

/// A kernel of a [`PlanListing`].
#[derive(Clone, Debug)]
pub struct ListedStep {
    /// The kernel.
    pub kernel: Kernel,
    /// The buffers of its operands.
    pub inputs: Vec<usize>,
    /// The buffers of its outputs. A map may have the buffer of an operand as its output.
    pub outputs: Vec<usize>,
    /// The numbers of its program.
    pub scalars: Vec<Scalar>,
    /// The user's operation.
    pub op: &'static str,
    /// The line of the operation.
    pub location: Location,
}

impl ListedStep {
    /// An error about the operation, with its line.
    #[must_use]
    pub fn refuse(&self, message: impl Into<String>) -> Error {
        Error::invalid("ship", message).computing(self.op, self.location)
    }
}

/// The error of something that a listing cannot express.
fn refusal(node: &Node, message: &str) -> Error {
    Error::invalid("ship", message).computing(node.op.name(), node.location)
}

/// The values of items so far, and the buffers of the plan's slots.
struct Reader<'a> {
    program: &'a Program,
    listing: PlanListing,
    slots: Vec<Option<usize>>,
    values: Vec<Option<(usize, View)>>,
}

impl Program {
    /// The function as a listing.
    ///
    /// # Errors
    /// Effects beside the results, numbers that differ from call to call, and arguments that are views.
    pub(super) fn listing(&self) -> Result<PlanListing> {
        if let Some(assigned) = self.assigned.first() {
            return Err(refusal(
                &assigned.made.node,
                "the function assigns a cell, such as a parameter or a running mean; a program has no state: \
                 call .eval() on the model first, and pass a state as an argument and a result",
            ));
        }
        if let Some((cell, _)) = self.gradients.first() {
            return Err(refusal(cell, "the function computes gradients, and a program does not train"));
        }
        let mut reader = Reader {
            program: self,
            listing: PlanListing::default(),
            slots: Vec::new(),
            values: vec![None; self.nodes.len()],
        };
        reader.listing.arguments =
            self.arguments.shapes().map(|(shape, dtype)| (shape.clone(), dtype, None)).collect();
        if let Some((plan, _)) = &self.plan {
            reader.plan(plan)?;
        }
        for made in &self.outputs {
            let value = reader.result(made)?;
            reader.listing.results.push(value);
        }
        Ok(reader.listing)
    }

    /// The bytes of a value's whole buffer.
    fn bytes(&self, value: &Value, node: &Node) -> Result<Vec<u8>> {
        let mut bytes = vec![0; value.storage.numel() * value.storage.dtype().size()];
        node.device.backend().download(&value.storage, 0, &mut bytes)?;
        Ok(bytes)
    }
}

impl Reader<'_> {
    fn buffer(&mut self, dtype: DType, numel: usize, source: BufferSource) -> usize {
        self.listing.buffers.push(ListedBuffer { dtype, numel, source });
        self.listing.buffers.len() - 1
    }

    fn constant(&mut self, value: &Value, node: &Node) -> Result<usize> {
        let bytes = self.program.bytes(value, node)?;
        Ok(self.buffer(value.storage.dtype(), value.storage.numel(), BufferSource::Constant(bytes)))
    }

    /// The buffer of something from before the call.
    fn source(&mut self, source: &Source, node: &Node) -> Result<usize> {
        match source {
            Source::Input(k) => {
                let k = *k as usize;
                let (shape, dtype, known) = self.listing.arguments[k].clone();
                if let Some(buffer) = known {
                    return Ok(buffer);
                }
                if self.program.arguments.is_view(k) {
                    let message =
                        format!("argument {k} is a view of a larger tensor: call .contiguous() on it");
                    return Err(refusal(node, &message));
                }
                let buffer = self.buffer(dtype, shape.numel(), BufferSource::Argument(k));
                self.listing.arguments[k].2 = Some(buffer);
                Ok(buffer)
            }
            Source::Cell(_) | Source::Gradient(_) | Source::Fixed(_) => {
                let held = super::program::hold(source, &[], &[])?;
                match held {
                    Some(held) => self.constant(&held.value, node),
                    None => Err(refusal(node, "a tensor that the function reads is gone: call it once more")),
                }
            }
            Source::State(..) => Err(refusal(
                node,
                "the function reads a state of the host, such as an optimizer's or a cache's",
            )),
            Source::Made(_) => Err(refusal(node, "a result of the function is read before it is made")),
        }
    }

    fn plan(&mut self, plan: &Plan) -> Result<()> {
        self.slots = vec![None; plan.slots];
        let program = self.program;
        for (leaf, &(item, slot)) in program.leaves.iter().zip(&plan.leaves) {
            self.slots[slot as usize] = Some(self.source(&leaf.source, &program.nodes[item as usize])?);
        }
        plan.views.iter().for_each(|store| self.store(store));
        for step in &plan.steps {
            self.step(step)?;
        }
        Ok(())
    }

    fn store(&mut self, store: &Store) {
        if let Some(buffer) = self.slots[store.slot as usize] {
            self.values[store.item as usize] = Some((buffer, store.view.clone()));
        }
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        let node = &self.program.nodes[step.origin as usize];
        let kernel = &step.shared.kernel;
        let inputs: Vec<usize> = step.inputs.iter().filter_map(|&slot| self.slots[slot as usize]).collect();
        if inputs.len() != step.inputs.len() {
            return Err(refusal(node, "an operand has no buffer"));
        }
        let mut scalars = Vec::with_capacity(step.scalars.len());
        for wanted in &step.scalars {
            let of = &self.program.nodes[wanted.item as usize];
            if self.program.varying[wanted.item as usize].is_some() {
                let message = "the function draws random numbers or reads a number of the host, which differ from call \
                     to call: call .eval() on the model, or pass them as an argument";
                return Err(refusal(of, message));
            }
            scalars.push(scalar(wanted, &of.op));
        }
        let mut outputs = Vec::with_capacity(step.outputs.len());
        for (output, made) in step.outputs.iter().zip(&kernel.outputs) {
            let reused = match *output {
                Output::Fresh { .. } => None,
                Output::Reused { input } => Some(inputs[input as usize]),
            };
            // A constant or an argument keeps its contents.
            let is_made = |&b: &usize| matches!(self.listing.buffers[b].source, BufferSource::Made);
            let buffer = match reused.filter(is_made) {
                Some(buffer) => buffer,
                None => self.buffer(made.dtype, made.stored(), BufferSource::Made),
            };
            outputs.push(buffer);
        }
        for (target, &buffer) in step.targets.iter().zip(&outputs) {
            match target {
                Target::Slot(slot) => self.slots[*slot as usize] = Some(buffer),
                Target::Node { item, view } => {
                    self.values[*item as usize] = Some((buffer, view.clone()));
                }
            }
        }
        step.stores.iter().for_each(|store| self.store(store));
        if !step.empty {
            let (op, location) = (node.op.name(), node.location);
            let kernel = kernel.clone();
            self.listing.steps.push(ListedStep { kernel, inputs, outputs, scalars, op, location });
        }
        Ok(())
    }

    fn result(&mut self, Made { source, node }: &Made) -> Result<ListedValue> {
        let (buffer, view) = match source {
            Source::Made(item) => {
                let found = self.values.get(*item as usize).cloned().flatten();
                found.ok_or_else(|| refusal(node, "a result has no elements"))?
            }
            Source::Input(_) | Source::Cell(_) | Source::Gradient(_) | Source::State(..) => {
                (self.source(source, node)?, None)
            }
            Source::Fixed(value) => (self.constant(value, node)?, value.view.clone()),
        };
        let layout = view.map_or_else(|| Layout::contiguous(node.shape.clone()), |view| (*view).clone());
        Ok(ListedValue { buffer, dtype: node.dtype, layout })
    }
}
