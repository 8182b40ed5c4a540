//! Steps whose operations are repeated. A short step does the same for each token but for some tensors that
//! depend on its position, such as masks and angles: those are made anew, and the operations are run again
//! without a graph.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};

use autograd::no_grad;
use tensor_core::{
    CallMode, DType, Device, HostState, HostValues, NotedState, OnDrop, Replay, Result, Tensor, as_leaf,
    autocast::autocast_dtype, is_capturing, lock, note_host_state,
};

use super::{KvCache, Rows, SHORT_STEP_TOKENS, Shared, ShortStep, TAIL_ROWS, table::Table, undo::Begun};
use crate::{Rope, RopeTables, attention::PositionTable};

/// Makes tensors that depend on the position of a step, which was begun.
type Maker = Box<dyn Fn(&KvCache) -> Result<Vec<Tensor>> + Send>;

/// The arguments of [`KvCache::begin`].
type Begin = (usize, DType, Device);

/// The tensors of a step that depend on its position, with their makers, while it is noted.
#[derive(Default)]
pub(super) struct Positioned {
    begun: Option<Begin>,
    tensors: Vec<Tensor>,
    makers: Vec<Maker>,
}

/// The notes of a step, if they are taken. A clone of a cache takes none.
#[derive(Default)]
pub(super) struct Noted(Option<Positioned>);

impl Clone for Noted {
    fn clone(&self) -> Noted {
        Noted::default()
    }
}

impl fmt::Debug for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} noted", self.0.as_ref().map_or(0, |noted| noted.makers.len()))
    }
}

impl KvCache {
    /// Tensors of the step that was begun which depend on its position. `make` gets the cache, whose
    /// [`len`](KvCache::len) is the position of the step's first token; a step that is repeated calls it
    /// again, so that it must not depend on anything else that changes.
    ///
    /// # Errors
    /// The errors of `make`.
    pub fn by_position<const N: usize>(
        &mut self,
        make: impl Fn(&KvCache) -> Result<[Tensor; N]> + Send + 'static,
    ) -> Result<[Tensor; N]> {
        let mut tensors = make(self)?;
        if let Some(noted) = &mut self.noted.0 {
            for tensor in &mut tensors {
                *tensor = as_leaf(tensor)?;
            }
            noted.tensors.extend(tensors.iter().cloned());
            noted.makers.push(Box::new(move |cache| Ok(make(cache)?.into())));
        }
        Ok(tensors)
    }

    /// The tables of a rotation for the `length` tokens of a step, which was begun in the cache if there is
    /// one.
    #[track_caller]
    pub(crate) fn rope_tables(
        cache: Option<&mut KvCache>,
        rope: &Rope,
        length: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<RopeTables> {
        let Some(cache) = cache else { return rope.tables(0, length, &[], dtype, device) };
        let (rope, device) = (rope.clone(), device.clone());
        let [cos, sin] = cache.by_position(move |cache| {
            let RopeTables { cos, sin } = rope.tables(cache.len(), length, cache.pads(), dtype, &device)?;
            Ok([cos, sin])
        })?;
        Ok(RopeTables { cos, sin })
    }

    /// The rows `[1 or N, L]` of a table of learned positions for the `length` tokens of a step, which was
    /// begun in the cache if there is one.
    ///
    /// # Errors
    /// More positions than the table has.
    #[track_caller]
    pub(crate) fn position_rows(
        cache: Option<&mut KvCache>,
        table: PositionTable,
        length: usize,
        device: &Device,
    ) -> Result<Tensor> {
        let device = device.clone();
        match cache {
            Some(cache) => {
                let rows = move |cache: &KvCache| table.rows(cache.len(), length, cache.pads(), &device);
                let [rows] = cache.by_position(move |cache| Ok([rows(cache)?]))?;
                Ok(rows)
            }
            None => table.rows(0, length, &[], &device),
        }
    }

    /// Notes the masks of the step that was begun; its makers come after them.
    pub(super) fn note_masks(&mut self, begun: (usize, DType, &Device)) -> Result<()> {
        let Some(noted) = &mut self.noted.0 else { return Ok(()) };
        noted.begun = Some((begun.0, begun.1, begun.2.clone()));
        for tensor in masks(&mut self.shared) {
            *tensor = as_leaf(tensor)?;
            noted.tensors.push(tensor.clone());
        }
        Ok(())
    }

    /// A cache at the same position, without the tables and states.
    fn without_tables(&self) -> KvCache {
        let (rows, pads) = (self.rows.clone(), self.pads.clone());
        KvCache { rows, pads, len: self.len, ..KvCache::new(Vec::new()) }
    }

    /// Whether a step of `length` tokens only writes rows of the short tables, or follows on the states.
    fn is_short_step(&self, length: usize) -> bool {
        let has_room = self.rows.values().all(|rows| rows.capacity > 0 && rows.tail + length <= TAIL_ROWS);
        let sees_no_padding = self.states.is_empty() || self.pads.iter().all(|&pad| pad <= self.len);
        (1..=SHORT_STEP_TOKENS).contains(&length)
            && self.len > 0
            && has_room
            && sees_no_padding
            && self.states.iter().all(|states| !states.is_empty())
    }

    /// The tensors that a short step replaces, in the order of the layers.
    fn replaced(&mut self) -> impl Iterator<Item = &mut Tensor> {
        let tails = self.layers.iter_mut().filter_map(|layer| layer.tail.as_mut());
        tails.flat_map(|(keys, values)| [keys, values]).chain(self.states.iter_mut().flatten())
    }

    /// The tensors that a short step reads: those that it replaces, and the long tables.
    fn tables(&mut self) -> Vec<Tensor> {
        let mut tables: Vec<Tensor> = self.replaced().map(|table| table.clone()).collect();
        let long = self.layers.iter().flat_map(|layer| layer.long.iter().flatten());
        tables.extend(long.flat_map(Table::parts).cloned());
        tables
    }
}

/// The masks of a short step that was begun.
fn masks(begun: &mut Begun) -> impl Iterator<Item = &mut Tensor> {
    let steps = begun.masks.values_mut().filter_map(|shared| match shared {
        Shared::Short { step, .. } => Some(step),
        Shared::Whole(_) => None,
    });
    steps.flat_map(ShortStep::tensors)
}

/// Steps whose operations are repeated: a step is noted when a cache first has its form.
pub(crate) struct RepeatedSteps {
    state: Arc<Mutex<StepState>>,
    replay: Replay<()>,
}

impl RepeatedSteps {
    pub(crate) fn new() -> RepeatedSteps {
        let state = StepState { cache: KvCache::new(Vec::new()), noted: Vec::new(), next: None };
        RepeatedSteps { state: Arc::new(Mutex::new(state)), replay: Replay::default() }
    }

    /// The number of steps that were repeated.
    pub(crate) fn repeated(&self) -> usize {
        self.replay.counts().replayed
    }

    /// The result of `step` for its inputs, of which the first is the tokens `[N, L]` that join the cache.
    /// All calls pass the same function, which makes what depends on the position by
    /// [`KvCache::by_position`].
    ///
    /// # Errors
    /// The step's. The cache has then begun a step, from which it can go back.
    #[track_caller]
    pub(crate) fn call(
        &mut self,
        inputs: &[Tensor],
        cache: &mut KvCache,
        step: impl Fn(&[Tensor], &mut KvCache) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let length = inputs.first().and_then(|ids| ids.dims().get(1).copied()).unwrap_or(0);
        if !cache.is_short_step(length) {
            return no_grad(|| step(inputs, cache));
        }
        let state = &self.state;
        std::mem::swap(cache, &mut lock(state).cache);
        // Also after a panic, the caller has its cache.
        let _returned = OnDrop::new(|| std::mem::swap(cache, &mut lock(state).cache));
        let mut run = |inputs: &[Tensor]| {
            let result = noted_step(state, |cache| step(inputs, cache))?;
            Ok((vec![result], ()))
        };
        let mode = CallMode { strict: false, autocast: autocast_dtype(), records: false };
        let (mut results, _) = no_grad(|| self.replay.call(inputs, mode, &mut run))?;
        Ok(results.swap_remove(0))
    }
}

/// Does a step with the cache of a state, and notes what it reads and replaces.
#[track_caller]
fn noted_step(
    state: &Arc<Mutex<StepState>>,
    step: impl FnOnce(&mut KvCache) -> Result<Tensor>,
) -> Result<Tensor> {
    let mut inside = lock(state);
    let StepState { cache, noted, .. } = &mut *inside;
    if !is_capturing() {
        return step(cache);
    }
    let tables = cache.tables();
    cache.noted.0 = Some(Positioned::default());
    let result = step(cache);
    let positioned = cache.noted.0.take().unwrap_or_default();
    let result = result?;
    let first = positioned.tensors.len();
    // Steps of one length have equal makers, whatever the batch and the size of the tables.
    let like = |(begun, makers): &(Option<Begin>, Vec<Maker>)| {
        *begun == positioned.begun && makers.len() == positioned.makers.len()
    };
    let known = noted.iter().position(like);
    let number = known.unwrap_or_else(|| {
        noted.push((positioned.begun, positioned.makers));
        noted.len() - 1
    });
    let restored = state.clone();
    let undo = move |before: Vec<Option<Tensor>>, _| {
        let before = before.into_iter().skip(first);
        for (table, before) in lock(&restored).cache.replaced().zip(before) {
            *table = before.unwrap_or_else(|| table.clone());
        }
    };
    note_host_state(NotedState {
        state: state.clone(),
        step: number,
        form: 0,
        read: positioned.tensors.into_iter().chain(tables).collect(),
        numbers: Vec::new(),
        made: cache.replaced().map(|table| table.clone()).collect(),
        undo: Box::new(undo),
    });
    Ok(result)
}

/// The cache of a step, while it runs.
struct StepState {
    cache: KvCache,
    /// For each noted length of a step, the arguments of [`KvCache::begin`] and the makers of what depends on
    /// its position.
    noted: Vec<(Option<Begin>, Vec<Maker>)>,
    /// The rows in use and the number of positions after the step that runs.
    next: Option<(BTreeMap<Option<usize>, Rows>, usize)>,
}

impl HostState for StepState {
    fn present(&mut self, step: usize) -> Result<HostValues> {
        let mut next = self.cache.without_tables();
        let (begun, makers) = &self.noted[step];
        let mut tensors = Vec::new();
        if let Some((length, dtype, device)) = begun {
            next.begin(*length, *dtype, device)?;
            tensors.extend(masks(&mut next.shared).map(|mask| mask.clone()));
        }
        for make in makers {
            tensors.extend(make(&next)?);
        }
        self.next = Some((next.rows, next.len + next.pending));
        tensors.extend(self.cache.tables());
        Ok(HostValues { tensors, ..HostValues::default() })
    }

    fn advance(&mut self, tensors: Vec<Tensor>) {
        for (table, new) in self.cache.replaced().zip(tensors) {
            *table = new;
        }
        if let Some((rows, len)) = self.next.take() {
            (self.cache.rows, self.cache.len) = (rows, len);
        }
    }

    /// The rows that a failed step has written are not in use.
    fn waits_for_checks(&self) -> bool {
        !self.cache.states.is_empty()
    }
}
