//! [`Adapter`]: an adapter beside the weights of a language model; [`Loaded`]: those that the thread of the
//! model has in memory.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use taper::{
    Generator,
    models::serving::{AdapterId, Engine},
    nn::Module,
    weights::load_peft,
};

use super::failure::Failure;
use crate::error::{Outcome, line};

/// An adapter that was trained here, in memory or not.
#[derive(Default)]
pub(super) struct Adapter {
    /// The name under which it answers.
    pub(super) name: String,
    /// The name of the model whose weights it is beside.
    pub(super) base: String,
    /// Its folder, in the format of peft.
    pub(super) folder: PathBuf,
    /// The number of requests that wait or run.
    pub(super) requests: AtomicUsize,
    /// The number of loads that have begun.
    pub(super) loads: AtomicU64,
    /// The bytes of its matrices in memory; 0 if they are not there.
    pub(super) bytes: AtomicU64,
    /// Whether a client has deleted it.
    pub(super) is_deleted: AtomicBool,
}

/// The adapters that an engine has, the one that was used last at the end.
pub(super) struct Loaded {
    all: Vec<(Arc<Adapter>, AdapterId)>,
    max: usize,
}

impl Loaded {
    /// None, and room for `max` of them.
    pub(super) fn new(max: usize) -> Loaded {
        Loaded { all: Vec::new(), max }
    }

    /// The number of an adapter, which is loaded first if it is not in memory. Others make room, the least
    /// recently used one first; one that has a text stays until the text has ended.
    pub(super) fn id(&mut self, engine: &mut Engine, adapter: &Arc<Adapter>) -> Result<AdapterId, Failure> {
        if adapter.is_deleted.load(Ordering::Acquire) {
            return Err(Failure::no_model(&adapter.name));
        }
        if let Some(at) = self.place(adapter) {
            self.all[at..].rotate_left(1);
        } else {
            while self.all.len() >= self.max {
                self.remove(engine, 0);
            }
            let id = load(engine, adapter).map_err(|error| {
                // The client does not get the paths of this machine.
                eprintln!("error: {}: {}", adapter.name, line(&*error));
                Failure::not_loaded(&adapter.name)
            })?;
            self.all.push((adapter.clone(), id));
        }
        Ok(self.all[self.all.len() - 1].1)
    }

    /// Removes an adapter, if it is in memory.
    pub(super) fn forget(&mut self, engine: &mut Engine, adapter: &Arc<Adapter>) {
        if let Some(at) = self.place(adapter) {
            self.remove(engine, at);
        }
    }

    fn place(&self, adapter: &Arc<Adapter>) -> Option<usize> {
        self.all.iter().position(|(other, _)| Arc::ptr_eq(other, adapter))
    }

    fn remove(&mut self, engine: &mut Engine, at: usize) {
        let (adapter, id) = self.all.remove(at);
        engine.remove_adapter(id);
        adapter.bytes.store(0, Ordering::Relaxed);
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.all.iter().for_each(|(adapter, _)| adapter.bytes.store(0, Ordering::Relaxed));
    }
}

fn load(engine: &mut Engine, adapter: &Adapter) -> Outcome<AdapterId> {
    adapter.loads.fetch_add(1, Ordering::Relaxed);
    let model = engine.model();
    let lora = load_peft(model, &adapter.folder, None, &Generator::seed(0, &model.device()))?;
    let bytes: usize = lora.parameters().iter().map(|part| part.numel() * part.dtype().size()).sum();
    let id = engine.add_adapter(lora)?;
    adapter.bytes.store(bytes as u64, Ordering::Relaxed);
    Ok(id)
}
