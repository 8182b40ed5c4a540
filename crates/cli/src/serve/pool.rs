//! [`Pool`]: the models of a server by their names, and which of them are in memory.
//!
//! Without a limit of memory all of them are loaded at the start, and stay. With a limit, a model is loaded
//! when a request comes for it; before that, models without requests make room, the least recently used one
//! first. A request has its [`Place`] from the moment at which it names the model, and a model with a place
//! is never dropped. A request for an adapter has a place at the model beside whose weights it is; the thread
//! of that model loads the adapter.

use std::{
    ops::Deref,
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::Ordering},
    time::Duration,
};

use taper::{
    Device,
    models::serving::EngineConfig,
    tensor_core::{backend::readable_bytes, lock},
};
use tokio::{sync::Notify, task::spawn_blocking, time::timeout};

use super::{
    adapters::Adapter,
    failure::Failure,
    metrics::ModelState,
    served::{Kind, Listed, Served},
};
use crate::error::{Outcome, line};

/// The bounds of a pool.
pub(super) struct PoolConfig {
    /// The bytes that the weights of loaded models may have together; none for no limit.
    pub(super) max_bytes: Option<u64>,
    /// The greatest number of requests of a model that wait or run.
    pub(super) max_queue: usize,
    /// How long a request waits until its model is loaded.
    pub(super) timeout: Duration,
    /// The greatest number of adapters of a model in memory.
    pub(super) max_adapters: usize,
}

/// The models of a server.
pub(super) struct Pool {
    /// The models of the command line.
    models: Vec<Arc<Listed>>,
    /// Adapters that were trained beside them.
    adapters: RwLock<Vec<Arc<Listed>>>,
    device: Device,
    engine: EngineConfig,
    config: PoolConfig,
    state: Mutex<State>,
    /// Wakes the requests that wait for a model: one was loaded, failed to load, or has no request any more.
    changed: Notify,
}

/// The part that changes. No lock of it is held while a model is loaded or dropped.
struct State {
    /// One for each model of the command line, in their order.
    slots: Vec<Slot>,
    /// The model that is being loaded. There is only one at a time, so that the memory of those that were
    /// dropped for it is free before another one is loaded.
    loading: Option<usize>,
    /// Counts uses of models.
    uses: u64,
}

#[derive(Default)]
struct Slot {
    served: Option<Arc<Served>>,
    bytes: u64,
    /// The number of requests that wait or run.
    requests: usize,
    /// When a request last ended, by `State::uses`.
    last_use: u64,
    /// The number of loads that have begun.
    loads: u64,
    /// The number of the last load that failed; 0 if none did.
    failed_load: u64,
}

impl State {
    /// Takes models out of the pool until another one fits under the limit, the least recently used one
    /// first. If the models with requests leave no room, it takes none.
    fn make_room(&mut self, index: usize, max_bytes: Option<u64>) -> Option<Vec<Arc<Served>>> {
        let loaded = self.slots.iter().filter(|slot| slot.served.is_some());
        let mut bytes = loaded.map(|slot| slot.bytes).sum::<u64>() + self.slots[index].bytes;
        let is_idle = |k: &usize| self.slots[*k].served.is_some() && self.slots[*k].requests == 0;
        let mut idle: Vec<usize> = (0..self.slots.len()).filter(is_idle).collect();
        idle.sort_by_key(|k| self.slots[*k].last_use);
        let mut count = 0;
        while max_bytes.is_some_and(|most| bytes > most) {
            bytes -= self.slots[*idle.get(count)?].bytes;
            count += 1;
        }
        Some(idle[..count].iter().filter_map(|k| self.slots[*k].served.take()).collect())
    }

    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }
}

/// A request's state of waiting for a model.
enum Waiting {
    Loaded(Arc<Served>),
    Failed,
    /// The request must load the model, after these are dropped.
    Load(Vec<Arc<Served>>),
    Wait,
}

impl Pool {
    /// A pool of these models. Without a limit of memory they are loaded.
    pub(super) fn new(
        models: Vec<Listed>,
        device: Device,
        engine: EngineConfig,
        config: PoolConfig,
    ) -> Outcome<Pool> {
        let mut slots = Vec::new();
        for (index, model) in models.iter().enumerate() {
            if models[..index].iter().any(|other| other.name == model.name) {
                let message =
                    format!("two models have the name {:?}: give one another by NAME=PATH", model.name);
                return Err(message.into());
            }
            if let Some(most) = config.max_bytes.filter(|most| model.bytes > *most) {
                let (bytes, most) = (readable_bytes(model.bytes), readable_bytes(most));
                let message = format!(
                    "the weights of {:?} have {bytes}, more than the {most} of --max-memory",
                    model.name
                );
                return Err(message.into());
            }
            slots.push(Slot { bytes: model.bytes, ..Default::default() });
        }
        if config.max_bytes.is_none() {
            for (slot, model) in slots.iter_mut().zip(&models) {
                slot.served = Some(Arc::new(Served::load(model, &device, &engine, config.max_adapters)?));
                slot.loads = 1;
            }
        }
        let state = Mutex::new(State { slots, loading: None, uses: 0 });
        let models = models.into_iter().map(Arc::new).collect();
        let adapters = RwLock::default();
        Ok(Pool { models, adapters, device, engine, config, state, changed: Notify::new() })
    }

    /// The device of all models.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The models by the order of the command line, and then the adapters.
    pub(super) fn listed(&self) -> Vec<Arc<Listed>> {
        let adapters = self.adapters.read().unwrap_or_else(PoisonError::into_inner);
        self.models.iter().chain(&*adapters).cloned().collect()
    }

    /// The model of a name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Listed>> {
        self.listed().into_iter().find(|model| model.name == name)
    }

    /// Adds an adapter with a new name, which its first request loads.
    pub(super) fn add(&self, adapter: Listed) {
        self.adapters.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(adapter));
    }

    /// Removes an adapter. Texts that it is writing go on.
    pub(super) fn remove(&self, name: &str) {
        let Some(adapter) = self.find(name).and_then(|model| model.adapter.clone()) else { return };
        adapter.is_deleted.store(true, Ordering::Release);
        self.adapters.write().unwrap_or_else(PoisonError::into_inner).retain(|model| model.name != name);
        let served =
            self.index(&adapter.base).and_then(|index| lock(&self.state).slots[index].served.clone());
        if let Some(language) = served.as_ref().and_then(|served| served.language().ok()) {
            language.worker.forget(&adapter);
        }
    }

    /// The place of a model of the command line.
    fn index(&self, name: &str) -> Option<usize> {
        self.models.iter().position(|model| model.name == name)
    }

    /// The models for the counters.
    pub(super) fn states(&self) -> Vec<ModelState> {
        let state = lock(&self.state);
        let of_slot = |(model, slot): (&Arc<Listed>, &Slot)| ModelState {
            name: model.name.clone(),
            in_flight: slot.requests,
            loads: slot.loads,
            loaded_bytes: slot.served.as_ref().map(|_| slot.bytes),
        };
        let mut states: Vec<ModelState> = self.models.iter().zip(&state.slots).map(of_slot).collect();
        drop(state);
        states.extend(self.listed().iter().filter_map(|model| model.adapter.as_ref()).map(|adapter| {
            let bytes = adapter.bytes.load(Ordering::Relaxed);
            ModelState {
                name: adapter.name.clone(),
                in_flight: adapter.requests.load(Ordering::Relaxed),
                loads: adapter.loads.load(Ordering::Relaxed),
                loaded_bytes: (bytes > 0).then_some(bytes),
            }
        }));
        states
    }

    /// A place at a model, which is loaded first if it is not in memory.
    pub(super) async fn model(self: &Arc<Self>, name: &str, kind: Kind) -> Result<Place, Failure> {
        let model = self.find(name).ok_or_else(|| Failure::no_model(name))?;
        model.check(kind)?;
        let base = model.adapter.as_ref().map_or(name, |adapter| &adapter.base);
        let index = self.index(base).ok_or_else(|| Failure::no_model(base))?;
        let seat = self.seat(index, model.adapter.clone())?;
        let limit = self.config.timeout;
        let served = timeout(limit, self.loaded(index)).await;
        let served = served.map_err(|_| Failure::no_room(base, limit.as_secs()))??;
        Ok(Place { served, model, _seat: seat })
    }

    fn seat(self: &Arc<Self>, index: usize, adapter: Option<Arc<Adapter>>) -> Result<Seat, Failure> {
        let mut state = lock(&self.state);
        let slot = &mut state.slots[index];
        if slot.requests >= self.config.max_queue {
            return Err(Failure::full(self.config.max_queue));
        }
        slot.requests += 1;
        adapter.iter().for_each(|adapter| _ = adapter.requests.fetch_add(1, Ordering::Relaxed));
        Ok(Seat { pool: self.clone(), index, adapter })
    }

    /// Waits until a model is loaded. The caller has a seat, so that the model stays.
    async fn loaded(self: &Arc<Self>, index: usize) -> Result<Arc<Served>, Failure> {
        let mut awaited = None;
        loop {
            // It is made before the state is read, so that it gets each change after that.
            let changed = self.changed.notified();
            match self.look(index, &mut awaited) {
                Waiting::Loaded(served) => return Ok(served),
                Waiting::Failed => return Err(Failure::not_loaded(&self.models[index].name)),
                Waiting::Load(dropped) => self.load(index, dropped),
                Waiting::Wait => {}
            }
            changed.await;
        }
    }

    /// The state of a model for a request. `awaited` is the number of the load whose end is the request's.
    fn look(&self, index: usize, awaited: &mut Option<u64>) -> Waiting {
        let mut state = lock(&self.state);
        let slot = &state.slots[index];
        if let Some(served) = &slot.served {
            return Waiting::Loaded(served.clone());
        }
        if awaited.is_some_and(|load| slot.failed_load >= load) {
            return Waiting::Failed;
        }
        match state.loading {
            Some(loading) => {
                if loading == index {
                    *awaited = Some(slot.loads);
                }
                Waiting::Wait
            }
            None => match state.make_room(index, self.config.max_bytes) {
                Some(dropped) => {
                    state.loading = Some(index);
                    let slot = &mut state.slots[index];
                    slot.loads += 1;
                    *awaited = Some(slot.loads);
                    Waiting::Load(dropped)
                }
                None => Waiting::Wait,
            },
        }
    }

    /// Loads a model on a thread of its own. It goes on if the request that began it goes away.
    fn load(self: &Arc<Self>, index: usize, dropped: Vec<Arc<Served>>) {
        let pool = self.clone();
        tokio::spawn(async move {
            let loader = pool.clone();
            let loaded = spawn_blocking(move || {
                // The threads of these have ended, and their memory is the system's, before the load begins.
                if !dropped.is_empty() {
                    drop(dropped);
                    loader.device.empty_cache();
                }
                let Pool { models, device, engine, config, .. } = &*loader;
                Served::load(&models[index], device, engine, config.max_adapters)
            });
            let loaded = match loaded.await {
                Ok(loaded) => loaded,
                // The load has panicked.
                Err(error) => Err(error.into()),
            };
            pool.finish(index, loaded);
        });
    }

    fn finish(&self, index: usize, loaded: Outcome<Served>) {
        let mut state = lock(&self.state);
        let last_use = state.next_use();
        state.loading = None;
        let slot = &mut state.slots[index];
        match loaded {
            Ok(served) => {
                slot.last_use = last_use;
                slot.served = Some(Arc::new(served));
            }
            Err(error) => {
                slot.failed_load = slot.loads;
                // The client does not get the paths of this machine.
                eprintln!("error: {}: {}", self.models[index].name, line(&*error));
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

/// A place among the requests of a model that wait or run, free again when it is dropped.
pub(super) struct Place {
    // The fields are dropped in this order: without requests, the pool has the only reference to a model.
    served: Arc<Served>,
    /// The model that the request names.
    model: Arc<Listed>,
    _seat: Seat,
}

impl Place {
    /// The name of the model that the request names.
    pub(super) fn name(&self) -> &str {
        &self.model.name
    }

    /// The adapter that the request names.
    pub(super) fn adapter(&self) -> Option<&Arc<Adapter>> {
        self.model.adapter.as_ref()
    }
}

impl Deref for Place {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.served
    }
}

/// The count of a request at its model, and at its adapter.
struct Seat {
    pool: Arc<Pool>,
    index: usize,
    adapter: Option<Arc<Adapter>>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.adapter.iter().for_each(|adapter| _ = adapter.requests.fetch_sub(1, Ordering::Relaxed));
        let mut state = lock(&self.pool.state);
        let last_use = state.next_use();
        let slot = &mut state.slots[self.index];
        slot.requests -= 1;
        slot.last_use = last_use;
        let is_idle = slot.requests == 0;
        drop(state);
        if is_idle {
            self.pool.changed.notify_waiters();
        }
    }
}
