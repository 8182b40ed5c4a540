//! Graphs over several devices: what an evaluation needs from another device is computed there, and copied,
//! before it begins. No device is locked while elements move, so that threads on other devices go on.

use std::sync::Arc;

use super::{Progress, execute::blame, run};
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

/// What is left to do, the last first: a list and no recursion, since a graph may cross devices any number of
/// times.
pub(super) struct Evaluation {
    work: Vec<Work>,
}

enum Work {
    /// Nodes of one device.
    Compute(Vec<Arc<Node>>),
    /// An [`Op::ToDevice`] node, and the node that it copies, or a row-major copy of that.
    Copy { node: Arc<Node>, source: Arc<Node> },
}

/// A copy to another device that can be made now.
pub(super) struct Transfer {
    node: Arc<Node>,
    from: Device,
    value: Value,
}

impl Evaluation {
    /// That of nodes of one device, given the copies from other devices that they wait for.
    pub(super) fn new(targets: Vec<Arc<Node>>, copies: Vec<Arc<Node>>) -> Evaluation {
        let mut evaluation = Evaluation { work: Vec::new() };
        evaluation.push(targets, copies);
        evaluation
    }

    /// First what is copied, then the copies, then what reads them.
    fn push(&mut self, targets: Vec<Arc<Node>>, copies: Vec<Arc<Node>>) {
        self.work.push(Work::Compute(targets));
        let mut sources: Vec<Arc<Node>> = Vec::with_capacity(copies.len());
        for node in copies {
            let source = lock(&node.state).inputs.first().cloned();
            // None where another thread has made the copy meanwhile.
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

    /// Goes on until elements must come from another device; `None` when all is computed.
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
    /// Copies the elements, waiting for the device that has them.
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
            // The download decided what was open: nothing is waited for here.
            self.value.facts.settle(self.from.backend().as_ref())?;
            Value::upload(&self.node.device, self.node.dtype, &bytes)
        });
        self.node.attach(value.map_err(|error| blame(&self.node, error))?);
        Ok(())
    }
}
