//! Evaluation across devices: the inputs from another device are computed there and copied before an
//! evaluation begins. No device is locked while elements are copied, so that threads on other devices
//! can proceed.

use std::sync::Arc;

use super::{Progress, failure::blame, run};
use crate::{
    base::{
        error::{Error, Result},
        sync::lock,
    },
    devices::device::Device,
    graph::{
        handle::Tensor,
        node::{Node, Value},
        op::Op,
    },
};

/// The remaining work, last item first: a stack instead of recursion, since a graph may cross devices
/// any number of times.
pub(super) struct Evaluation {
    work: Vec<Work>,
}

enum Work {
    /// Computes nodes of one device.
    Compute(Vec<Arc<Node>>),
    /// Makes the copy of an [`Op::ToDevice`] node from its source, or from a row-major copy of that.
    Copy { node: Arc<Node>, source: Arc<Node> },
}

/// A copy to another device whose source is computed.
pub(super) struct Transfer {
    node: Arc<Node>,
    from: Device,
    value: Value,
}

impl Evaluation {
    /// The evaluation of nodes on one device, given the copies from other devices that they wait for.
    pub(super) fn new(targets: Vec<Arc<Node>>, copies: Vec<Arc<Node>>) -> Evaluation {
        let mut evaluation = Evaluation { work: Vec::new() };
        evaluation.push(targets, copies);
        evaluation
    }

    /// Pushes work such that the sources come first, then the copies, then their readers.
    fn push(&mut self, targets: Vec<Arc<Node>>, copies: Vec<Arc<Node>>) {
        self.work.push(Work::Compute(targets));
        let mut sources: Vec<Arc<Node>> = Vec::with_capacity(copies.len());
        for node in copies {
            let source = lock(&node.state).inputs.first().cloned();
            // The source is gone if another thread has made the copy meanwhile.
            let Some(source) = source else { continue };
            sources.push(source.clone());
            self.work.push(Work::Copy { node, source });
        }
        while let Some(device) = sources.first().map(|source| source.device.clone()) {
            let (here, elsewhere) = sources.into_iter().partition(|source| source.device == device);
            self.work.push(Work::Compute(here));
            sources = elsewhere;
        }
    }

    /// Proceeds until elements must be copied from another device; `None` once all is computed.
    pub(super) fn advance(&mut self, progress: Progress<'_>) -> Result<Option<Transfer>> {
        while let Some(work) = self.work.pop() {
            match work {
                Work::Compute(targets) => {
                    let copies = match targets.first() {
                        Some(first) => {
                            run(lock(super::plans(&first.device)), &first.device, &targets, false, progress)?
                        }
                        None => continue,
                    };
                    if !copies.is_empty() {
                        self.push(targets, copies);
                    }
                }
                Work::Copy { node, .. } if node.has_value() => {}
                Work::Copy { node, source } => {
                    let Some(value) = lock(&source.state).value.clone() else {
                        let message = "what is copied to another device was not computed";
                        return Err(blame(&node, Error::invalid(node.op.name(), message)));
                    };
                    if value.is_contiguous() {
                        return Ok(Some(Transfer { node, from: source.device.clone(), value }));
                    }
                    let copy = Tensor::from_node(source).detach().contiguous_copy().node();
                    self.work.push(Work::Copy { node, source: copy.clone() });
                    self.work.push(Work::Compute(vec![copy]));
                }
            }
        }
        Ok(None)
    }
}

impl Transfer {
    /// Copies the elements; waits for the source device.
    pub(super) fn run(self) -> Result<()> {
        let read = || {
            let mut bytes = vec![0; self.bytes()];
            self.value.facts.check()?;
            if !bytes.is_empty() {
                self.from.backend().download(&self.value.storage, self.value.offset(), &mut bytes)?;
            }
            Ok(bytes)
        };
        self.finish(read())
    }

    /// As [`Transfer::run`], without blocking the thread.
    pub(super) async fn run_async(self) -> Result<()> {
        let read = async {
            self.value.facts.check()?;
            if self.bytes() == 0 {
                return Ok(Vec::new());
            }
            let numel = self.node.shape.numel();
            self.from.backend().download_async(&self.value.storage, self.value.offset(), numel).await
        };
        let bytes = read.await;
        self.finish(bytes)
    }

    fn bytes(&self) -> usize {
        self.node.shape.numel() * self.node.dtype.size()
    }

    fn finish(&self, bytes: Result<Vec<u8>>) -> Result<()> {
        debug_assert!(matches!(self.node.op, Op::ToDevice), "{:?}", self.node.op);
        let value = bytes.and_then(|bytes| {
            // The download decided all open tickets, so this does not wait.
            self.value.facts.settle(self.from.backend().as_ref())?;
            Value::upload(&self.node.device, self.node.dtype, &bytes)
        });
        self.node.attach(value.map_err(|error| blame(&self.node, error))?);
        Ok(())
    }
}
