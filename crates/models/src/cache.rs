//! [`KvCache`]: the keys and values of the positions that a language model has seen.
//!
//! A layer has two tables: a long one that keeps its shape for many steps, and a short one for the last
//! positions, in which a step of few tokens overwrites rows in place. When the short one is full, both are
//! copied into the long one. So a token costs no copy of the whole, and the shapes of a step stay the same,
//! so that its plan is reused. Rows that are not in use are masked, which is all that forgetting positions
//! takes (docs/decisions/0056).
//!
//! On devices with the kernel [`CachedAttention`](tensor_core::CachedAttention), a text has the same bits
//! however its tokens are divided into steps of at most [`MAX_STEP_TOKENS`], and beside any other texts.
//!
//! The long tables can be packed in integers of 8 or 4 bits ([`KvCache::packed`]): rows are rounded once,
//! when they leave the short table.
//!
//! A recurrent layer, such as Mamba's, has a state of a fixed size in place of the tables.

mod positioned;
mod regroup;
mod table;
mod texts;
mod undo;

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use autograd::is_grad_enabled;
use tensor_core::{CachedAttention, DType, Device, Error, PackedRows, Result, Tensor, eval_all};

use self::{positioned::Noted, table::Table, texts::Texts, undo::Begun};
pub(crate) use self::{positioned::RepeatedSteps, undo::Checkpoint};
use crate::attention::{Masking, Scoring, attend_by, causal_mask};

const OP: &str = "KvCache";
const NO_ROWS: &str = "a layer has no rows yet";

/// Rows of the short table. Copying both tables once in 64 tokens takes less time than the products of one
/// token (`cargo run --release -p taper-cli -- chat`).
const TAIL_ROWS: usize = 64;
/// The largest number of tokens that a step puts into the short table, where a kernel reads the tables.
pub(crate) const MAX_STEP_TOKENS: usize = TAIL_ROWS;
/// The same where products and a mask read them. The guesses of a speculation fit; the scores of a longer
/// step are better computed by [`attend_by`], for which both tables are copied.
const SHORT_STEP_TOKENS: usize = 16;
/// The largest number of positions that a sliding window can always take back: rows of both tables that have
/// left the window stay until as many follow.
pub(crate) const MOST_TAKEN_BACK: usize = TAIL_ROWS;

/// The keys and values of one layer: `[N, heads, rows, E]` each.
#[derive(Clone, Debug, Default)]
pub struct LayerCache {
    long: Option<[Table; 2]>,
    tail: Option<(Tensor, Tensor)>,
    /// The form of the long tables, if they are packed.
    packed: Option<PackedRows>,
}

/// The rows in use, which are the same in all layers with the same window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rows {
    /// The position of the first row of the long table.
    start: usize,
    /// Rows in use of the long table, and its size.
    long: usize,
    capacity: usize,
    /// Rows in use of the short table.
    tail: usize,
}

/// The masks of a step, which all layers with the same window share.
#[derive(Clone, Debug)]
enum Shared {
    /// New rows join all old ones in one attention.
    Whole(Masking),
    /// Few new rows go into the short table. If `merge` is there, both tables are merged first; it has the
    /// rows in use before.
    Short { step: ShortStep, merge: Option<Rows> },
}

/// How a device computes the attention of a short step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StepKernel {
    /// By products, a mask and a softmax.
    None,
    /// [`CachedAttention`] reads tables of this dtype that are not packed, into which other kernels have
    /// written.
    Reads(DType),
    /// It also writes new rows, and reads packed ones.
    Writes(DType),
}

/// A step whose new rows go into the short table.
#[derive(Clone, Debug)]
struct ShortStep {
    /// The rows of the short table that are new, `[TAIL_ROWS, 1]`.
    place: Tensor,
    /// The new row that each row of the short table may take, `[TAIL_ROWS]`; only for several new rows.
    source: Option<Tensor>,
    /// The rows that queries see, as [`CachedAttention`] reads them.
    places: Tensor,
    length: usize,
    window: Option<usize>,
    /// Whether the device has that kernel, and for which tables.
    kernel: StepKernel,
    /// The biases of devices without it, which all layers share.
    bias: OnceLock<Tensor>,
}

/// Keys and values of all layers, for generation: [`LanguageModel::hidden`](crate::LanguageModel::hidden)
/// reads and extends them. Rows of a batch may have different lengths: shorter ones are padded on the left.
///
/// For a [`nn::MultiheadAttention`] of your own there is [`nn::KeyValueCache`], a pair of tensors that grow
/// by a copy at each step; here most steps copy no table and keep their shapes, and positions can be
/// forgotten.
#[derive(Clone, Debug)]
pub struct KvCache {
    windows: Vec<Option<usize>>,
    layers: Vec<LayerCache>,
    /// The tensors `[N, …]` of each recurrent layer, none before its first step.
    states: Vec<Vec<Tensor>>,
    rows: BTreeMap<Option<usize>, Rows>,
    /// The step that was begun and has not ended.
    shared: Begun,
    noted: Noted,
    texts: Texts,
    len: usize,
    pending: usize,
    pads: Vec<usize>,
}

impl KvCache {
    /// An empty cache for layers with these sliding windows (`None`: all positions).
    pub fn new(windows: Vec<Option<usize>>) -> KvCache {
        let rows = windows.iter().map(|window| (*window, Rows::default())).collect();
        let layers = vec![LayerCache::default(); windows.len()];
        let (states, shared) = (Vec::new(), Begun::default());
        let (noted, texts, pads) = (Noted::default(), Texts::default(), Vec::new());
        KvCache { windows, layers, states, rows, shared, noted, texts, len: 0, pending: 0, pads }
    }

    /// An empty cache for recurrent layers: those of a model that has no attention.
    pub fn recurrent(layers: usize) -> KvCache {
        KvCache::hybrid(Vec::new(), layers)
    }

    /// An empty cache for attention layers with these sliding windows, and recurrent layers. Both kinds are
    /// numbered from 0.
    pub fn hybrid(windows: Vec<Option<usize>>, recurrent_layers: usize) -> KvCache {
        KvCache { states: vec![Vec::new(); recurrent_layers], ..KvCache::new(windows) }
    }

    /// This cache, which is empty, with keys and values in integers of 8 or 4 bits: 1.06 or 0.75 bytes for a
    /// number. The last positions, 64 at most, stay as they are, and so do states of recurrent layers. Heads
    /// must have multiples of 16 numbers, which the first step checks. The positions of a text that is
    /// written in steps of another size are rounded at other times, so that the last digits of its logits
    /// differ.
    ///
    /// # Errors
    /// A cache that already has positions.
    #[track_caller]
    pub fn packed(mut self, form: impl Into<Option<PackedRows>>) -> Result<KvCache> {
        if self.len > 0 {
            return Err(Error::invalid(OP, "a cache is packed before its first tokens"));
        }
        self.set_form(form.into());
        Ok(self)
    }

    pub(crate) fn set_form(&mut self, packed: Option<PackedRows>) {
        self.layers.iter_mut().for_each(|layer| layer.packed = packed);
    }

    /// The form of the long tables, if they are packed.
    fn form(&self) -> Option<PackedRows> {
        self.layers.first().and_then(|layer| layer.packed)
    }

    /// The state of a recurrent layer after the positions of the cache: the tensors `[N, …]` that it gave to
    /// [`KvCache::set_states`], none at first.
    ///
    /// # Errors
    /// A layer that the cache does not have.
    #[track_caller]
    pub fn states(&self, layer: usize) -> Result<&[Tensor]> {
        match self.states.get(layer) {
            Some(states) => Ok(states),
            None => Err(self.no_recurrent(layer)),
        }
    }

    /// Replaces the state of a recurrent layer by that after the step's tokens.
    ///
    /// # Errors
    /// A layer that the cache does not have.
    #[track_caller]
    pub fn set_states(&mut self, layer: usize, states: Vec<Tensor>) -> Result<()> {
        let states = states.iter().map(Tensor::detach).collect();
        match self.states.get_mut(layer) {
            Some(place) => *place = states,
            None => return Err(self.no_recurrent(layer)),
        }
        Ok(())
    }

    #[track_caller]
    fn no_recurrent(&self, layer: usize) -> Error {
        Error::invalid(OP, format!("recurrent layer {layer} of {}", self.states.len()))
    }

    /// The number of positions, which is the position of the next token.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no positions yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The padding at the left of each row of the batch; empty if there is none.
    pub fn pads(&self) -> &[usize] {
        &self.pads
    }

    /// Says how many padding tokens each row of the first batch begins with.
    ///
    /// # Errors
    /// A cache that already has positions.
    #[track_caller]
    pub fn set_pads(&mut self, pads: Vec<usize>) -> Result<()> {
        if self.len > 0 {
            return Err(Error::invalid(OP, "the padding of a batch is given before its first tokens"));
        }
        self.pads = if pads.iter().all(|&pad| pad == 0) { Vec::new() } else { pads };
        Ok(())
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        let (states, packed) = (vec![Vec::new(); self.states.len()], self.form());
        *self = KvCache { states, ..KvCache::new(std::mem::take(&mut self.windows)) };
        self.set_form(packed);
    }

    /// Forgets the positions from `len` on, for instance those of rejected guesses.
    ///
    /// # Errors
    /// More positions than there are, or fewer than a sliding window still holds; any but all or none with
    /// recurrent layers, whose states cannot go back.
    #[track_caller]
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        self.abandon_step();
        if len > self.len {
            return Err(Error::invalid(OP, format!("{len} positions of {} cannot stay", self.len)));
        }
        if len == 0 {
            self.forget();
            return Ok(());
        }
        if !self.states.is_empty() && len < self.len {
            let message = format!("{len} positions of {}: a recurrent state cannot go back", self.len);
            return Err(Error::invalid(OP, message));
        }
        for (window, rows) in &self.rows {
            let needed = window.map_or(0, |window| (len + 1).saturating_sub(window));
            if rows.start > needed {
                let message = format!("position {needed} has left a sliding window already");
                return Err(Error::invalid(OP, message));
            }
        }
        self.cut(len);
        Ok(())
    }

    /// Replaces the rows of the batch by those with these numbers, for beams.
    ///
    /// # Errors
    /// A number that is no row.
    #[track_caller]
    pub fn select(&mut self, rows: &[usize]) -> Result<()> {
        self.abandon_step();
        self.check_rows(rows)?;
        let pads: Vec<usize> = rows.iter().filter_map(|&row| self.pads.get(row).copied()).collect();
        let chosen = |table: &Tensor| select_rows(table, rows);
        // All are made before any is replaced, so that an error changes nothing.
        let mut contents = self.contents();
        for layer in &mut contents.layers {
            for table in layer.long.iter_mut().flatten() {
                *table = table.select(rows)?;
            }
            if let Some((keys, values)) = &mut layer.tail {
                (*keys, *values) = (chosen(keys)?, chosen(values)?);
            }
        }
        for state in contents.states.iter_mut().flatten() {
            *state = chosen(state)?;
        }
        contents.texts.select(rows, chosen)?;
        self.restore(contents);
        if !self.pads.is_empty() {
            self.pads = pads;
        }
        Ok(())
    }

    /// Fails if a number is no row of the batch.
    #[track_caller]
    fn check_rows(&self, rows: &[usize]) -> Result<()> {
        match (self.batch(), rows.iter().max()) {
            (Some(batch), Some(row)) if *row >= batch => {
                Err(Error::invalid(OP, format!("row {row} of a batch of {batch}")))
            }
            _ => Ok(()),
        }
    }

    /// Prepares a step of `length` tokens: the masks that layers share.
    #[track_caller]
    pub fn begin(&mut self, length: usize, dtype: DType, device: &Device) -> Result<()> {
        self.abandon_step();
        self.shared.before = Some(self.contents());
        self.pending = length;
        let (len, pads) = (self.len, &self.pads);
        let kernel = StepKernel::of(dtype, device)?;
        let by_kernel = length <= MAX_STEP_TOKENS && matches!(kernel, StepKernel::Writes(_));
        for (&window, rows) in &mut self.rows {
            let is_short = if by_kernel { length > 0 } else { (1..=SHORT_STEP_TOKENS).contains(&length) };
            let shared = if is_short && (by_kernel || rows.long > 0) {
                rows.capacity = rows.capacity.max(TAIL_ROWS);
                let merge = (rows.tail + length > TAIL_ROWS).then_some(*rows);
                if merge.is_some() {
                    *rows = rows.merged(window, len);
                }
                let step = ShortStep::new(rows, (window, length), pads, (kernel, device))?;
                rows.tail += length;
                Shared::Short { step, merge }
            } else {
                let old = rows.long + rows.tail;
                let hides = window.is_some_and(|window| old + length > window);
                let masking = match (old == 0 && !hides && pads.is_empty(), length) {
                    (true, _) => Masking::Causal,
                    (false, 1) if !hides && pads.is_empty() => Masking::Full,
                    (false, _) => Masking::Mask(causal_mask(
                        len,
                        length,
                        rows.start,
                        old + length,
                        window,
                        pads,
                        device,
                    )?),
                };
                Shared::Whole(masking)
            };
            self.shared.masks.insert(window, shared);
        }
        self.note_masks((length, dtype, device))
    }

    /// The positions of the keys of the step that was begun, for layers without a window, in the order in
    /// which [`KvCache::attend_by`] reads them. Rows that are not in use have positions too.
    ///
    /// # Errors
    /// No step that was begun.
    #[track_caller]
    pub(crate) fn key_positions(&self) -> Result<Vec<usize>> {
        let (Some(shared), Some(rows)) = (self.shared.get(&None), self.rows.get(&None)) else {
            return Err(Error::invalid(OP, "a step begins with KvCache::begin"));
        };
        let (start, end) = (rows.start, self.len + self.pending);
        Ok(match shared {
            Shared::Whole(_) => (start..end).collect(),
            Shared::Short { .. } => {
                let tail = start + rows.long;
                (start..start + rows.capacity).chain(tail..tail + TAIL_ROWS).collect()
            }
        })
    }

    /// Attention of the step's queries `[N, heads, L, E]` of a layer to all its keys, those of this step
    /// `[N, groups, L, E]` included. See [`attend`](crate::attend).
    ///
    /// # Errors
    /// No step that was begun, another batch than before, and the errors of [`attend`](crate::attend).
    #[track_caller]
    pub fn attend(
        &mut self,
        layer: usize,
        parts: [&Tensor; 3],
        scale: f64,
        softcap: Option<f64>,
    ) -> Result<Tensor> {
        self.attend_by(layer, parts, Scoring { scale, softcap, sinks: None }, None)
    }

    /// As [`KvCache::attend`] with any [`Scoring`], and with `bias` `[1, heads, L, keys]` added to the
    /// scores, for keys at [`KvCache::key_positions`] and as many groups as heads.
    #[track_caller]
    pub(crate) fn attend_by(
        &mut self,
        layer: usize,
        [query, key, value]: [&Tensor; 3],
        scoring: Scoring<'_>,
        bias: Option<&Tensor>,
    ) -> Result<Tensor> {
        let Some(window) = self.windows.get(layer).copied() else {
            return Err(Error::invalid(OP, format!("layer {layer} of {}", self.windows.len())));
        };
        let (Some(shared), Some(rows)) = (self.shared.get(&window), self.rows.get(&window)) else {
            return Err(Error::invalid(OP, "a step begins with KvCache::begin"));
        };
        self.check_batch(key.dims().first().copied().unwrap_or(0))?;
        let cache = &mut self.layers[layer];
        match shared {
            Shared::Whole(masking) => {
                let biased = bias.map(|bias| biased(masking, bias)).transpose()?;
                let masking = biased.as_ref().unwrap_or(masking);
                cache.whole(rows, [query, key, value], |key, value| {
                    attend_by([query, key, value], scoring, masking)
                })
            }
            Shared::Short { step, merge } => {
                if let Some(before) = merge {
                    cache.merge(before, rows)?;
                }
                cache.short([query, key, value], step, rows, bias, scoring)
            }
        }
    }

    /// Attention of queries `[N, heads, L, E]` to the keys of a layer whose own attention of this step came
    /// before: a layer without keys of its own.
    ///
    /// # Errors
    /// As [`KvCache::attend_by`], and a layer that has not attended.
    #[track_caller]
    pub(crate) fn attend_again(&self, layer: usize, query: &Tensor, scoring: Scoring<'_>) -> Result<Tensor> {
        let cache = self.windows.get(layer).zip(self.layers.get(layer));
        let shared = cache.and_then(|(window, cache)| Some((cache, self.shared.get(window)?)));
        match shared {
            Some((cache, Shared::Whole(masking))) => {
                let [key, value] = cache.long.as_ref().ok_or_else(|| Error::invalid(OP, NO_ROWS))?;
                attend_by([query, &key.numbers()?, &value.numbers()?], scoring, masking)
            }
            Some((cache, Shared::Short { step, .. })) => cache.scored(query, step, None, scoring),
            None => Err(Error::invalid(OP, "a step begins with KvCache::begin")),
        }
    }

    /// Reads the logits of a step, `[N, …]` in f32. The tables and states are computed with them, because
    /// they come from the same products.
    ///
    /// # Errors
    /// Whatever the device reports.
    #[track_caller]
    pub(crate) fn read(&self, logits: &Tensor) -> Result<Vec<f32>> {
        let logits = logits.to_dtype(DType::F32)?;
        let all: Vec<&Tensor> = self.long_tables().chain([&logits]).collect();
        eval_all(&all)?;
        logits.to_vec::<f32>()
    }

    /// Computes the long tables and the states.
    ///
    /// # Errors
    /// Whatever the device reports.
    #[track_caller]
    pub(crate) fn compute(&self) -> Result<()> {
        eval_all(&self.long_tables().collect::<Vec<_>>())
    }

    /// The bytes of the tables that grow with the positions, and of the states of recurrent layers.
    pub fn bytes(&self) -> usize {
        self.long_tables().map(|table| table.numel() * table.dtype().size()).sum()
    }

    /// The long tables of all layers, and the states of recurrent ones.
    fn long_tables(&self) -> impl Iterator<Item = &Tensor> {
        let tables = self.layers.iter().flat_map(|layer| layer.long.iter().flatten());
        tables.flat_map(Table::parts).chain(self.states.iter().flatten())
    }

    /// Ends a step: its positions now belong to the cache.
    ///
    /// # Errors
    /// Too little memory for the tables.
    #[track_caller]
    pub fn finish(&mut self) -> Result<()> {
        self.len += std::mem::take(&mut self.pending);
        let len = self.len;
        for (&window, rows) in &mut self.rows {
            let Some(Shared::Whole(_)) = self.shared.get(&window) else { continue };
            let before = *rows;
            let all = Rows { long: len - before.start, tail: 0, ..before };
            let next = all.merged(window, len);
            *rows = next;
            let layers = self.layers.iter_mut().zip(&self.windows).filter(|(_, of)| **of == window);
            for (layer, _) in layers {
                layer.store(next.start - before.start, &next)?;
            }
        }
        self.shared.clear();
        Ok(())
    }
}

impl Rows {
    /// The rows after both tables are copied into the long one. Positions that have left the window are
    /// dropped, except as many as the short table has: guesses that are rejected bring them back.
    fn merged(self, window: Option<usize>, len: usize) -> Rows {
        let start = match window {
            Some(window) => self.start.max((len + 1).saturating_sub(window + TAIL_ROWS)),
            None => self.start,
        };
        let long = len - start;
        let mut capacity = self.capacity.max(TAIL_ROWS);
        while capacity < long {
            capacity *= 2;
        }
        Rows { start, long, capacity, tail: 0 }
    }
}

impl StepKernel {
    /// The kernel of a device. It has no gradients.
    #[track_caller]
    fn of(dtype: DType, device: &Device) -> Result<StepKernel> {
        if is_grad_enabled() {
            return Ok(StepKernel::None);
        }
        let table = &Tensor::zeros([1, 1, 1, 1], (dtype, device))?;
        let places = &Tensor::zeros([4], (DType::I32, device))?;
        let has = |writes: bool| {
            let (scale, softcap, window) = (1.0, None, None);
            let of = CachedAttention { scale, softcap, window, writes, sinks: false, packed: None };
            let inputs = [table, table, table, table, table, places, table, table];
            Tensor::has_custom_kernel(Arc::new(of), &inputs[..if writes { 8 } else { 6 }])
        };
        if has(true)? {
            return Ok(StepKernel::Writes(dtype));
        }
        Ok(if has(false)? { StepKernel::Reads(dtype) } else { StepKernel::None })
    }
}

/// Whether a text has the same bits however it is divided into steps of few tokens: its attention comes from
/// one kernel.
#[track_caller]
pub(crate) fn has_same_bits(device: &Device) -> Result<bool> {
    Ok(matches!(StepKernel::of(DType::F32, device)?, StepKernel::Writes(_)))
}

/// The masking with biases `[1, heads, L, keys]` of what it shows.
#[track_caller]
fn biased(masking: &Masking, bias: &Tensor) -> Result<Masking> {
    let mask = match masking {
        Masking::Full => return Ok(Masking::Mask(bias.clone())),
        Masking::Causal => {
            let length = bias.dims()[2];
            causal_mask(0, length, 0, length, None, &[], &bias.device())?
        }
        Masking::Mask(mask) => mask.clone(),
    };
    let hidden = Tensor::full((), f64::NEG_INFINITY, (bias.dtype(), &bias.device()))?;
    Ok(Masking::Mask(mask.where_cond(bias, &hidden)?))
}

/// The first rows of a table, and zeros up to its capacity.
#[track_caller]
fn padded(table: &Tensor, capacity: usize) -> Result<Tensor> {
    let rows = table.dims()[2];
    if rows == capacity {
        table.contiguous()
    } else {
        table.pad(&[(0, 0), (0, 0), (0, capacity - rows), (0, 0)], 0.0)
    }
}

/// The rows of a tensor `[N, …]` with these numbers.
#[track_caller]
fn select_rows(tensor: &Tensor, rows: &[usize]) -> Result<Tensor> {
    if rows.iter().copied().eq(0..tensor.dims()[0]) {
        return Ok(tensor.clone());
    }
    let index: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
    tensor.index_select(0, &Tensor::from_vec(index, [rows.len()], &tensor.device())?)
}

impl LayerCache {
    /// The keys and the values in use, in the order of their positions: those of either table that has any.
    #[track_caller]
    fn in_use(&self, rows: &Rows) -> Result<[Vec<Table>; 2]> {
        let mut tables = [const { Vec::new() }; 2];
        for (kind, tables) in tables.iter_mut().enumerate() {
            if let (Some(long), true) = (&self.long, rows.long > 0) {
                tables.push(long[kind].narrow(0, rows.long)?);
            }
            if let (Some((keys, values)), true) = (&self.tail, rows.tail > 0) {
                tables.push(Table::plain(&[keys, values][kind].narrow(2, 0, rows.tail)?));
            }
        }
        Ok(tables)
    }

    /// Attention of several new rows; the tables then hold all rows without gaps, see
    /// [`LayerCache::store`].
    #[track_caller]
    fn whole(
        &mut self,
        rows: &Rows,
        [_, key, value]: [&Tensor; 3],
        attend: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let [keys, values] = self.in_use(rows)?;
        let all = |old: &[Table], new: &Tensor| {
            if old.is_empty() {
                return Ok(new.clone());
            }
            let old = old.iter().map(Table::numbers).collect::<Result<Vec<_>>>()?;
            Tensor::concat(&old.iter().chain([new]).collect::<Vec<_>>(), 2)
        };
        let (all_keys, all_values) = (all(&keys, key)?, all(&values, value)?);
        let out = attend(&all_keys, &all_values)?;
        let stored = |mut old: Vec<Table>, new: &Tensor, all: &Tensor| match self.packed {
            None => Ok(Table::plain(all)),
            Some(_) => {
                old.push(Table::plain(new));
                Table::joined(&old, 2, self.packed)
            }
        };
        self.long = Some([stored(keys, key, &all_keys)?, stored(values, value, &all_values)?]);
        self.tail = None;
        Ok(out)
    }

    /// Makes the tables of a layer from rows without gaps, less the first `dropped`.
    #[track_caller]
    fn store(&mut self, dropped: usize, rows: &Rows) -> Result<()> {
        let Some([keys, values]) = self.long.take() else { return Ok(()) };
        let fitted = |table: Table| table.narrow(dropped, rows.long)?.padded(rows.capacity);
        self.begin_tail([fitted(keys)?, fitted(values)?])
    }

    /// Takes a long table, and a short one without rows in use.
    #[track_caller]
    fn begin_tail(&mut self, [keys, values]: [Table; 2]) -> Result<()> {
        self.tail = Some((keys.no_rows(TAIL_ROWS)?, values.no_rows(TAIL_ROWS)?));
        self.long = Some([keys, values]);
        Ok(())
    }

    /// Copies both tables into the long one. `before` are the rows in use of both; `rows.long` are those in
    /// use of the long one afterwards.
    #[track_caller]
    fn merge(&mut self, before: &Rows, rows: &Rows) -> Result<()> {
        let [keys, values] = self.in_use(before)?;
        self.long = Some([Table::joined(&keys, 2, self.packed)?, Table::joined(&values, 2, self.packed)?]);
        self.store(before.long + before.tail - rows.long, rows)
    }

    /// Attention of few new rows, which the step puts into the short table; `bias` `[1, heads, L, keys]` is
    /// added to the scores.
    #[track_caller]
    fn short(
        &mut self,
        [query, key, value]: [&Tensor; 3],
        step: &ShortStep,
        rows: &Rows,
        bias: Option<&Tensor>,
        scoring: Scoring<'_>,
    ) -> Result<Tensor> {
        if self.tail.is_none() {
            let unused = |like: &Tensor| Table::unused(like, rows.capacity, self.packed);
            self.begin_tail([unused(key)?, unused(value)?])?;
        }
        let Some((tail_k, tail_v)) = self.tail.take() else { return Err(Error::invalid(OP, NO_ROWS)) };
        let new = [key, value].map(Tensor::detach);
        if let (Some(long), None, StepKernel::Writes(_)) = (&self.long, bias, step.kernel)
            && let Some(results) = step.by_kernel(query, long, [&tail_k, &tail_v], Some(&new), scoring)?
        {
            let [out, tail_k, tail_v] = &results[..] else {
                return Err(Error::invalid(OP, NO_ROWS));
            };
            self.tail = Some((tail_k.clone(), tail_v.clone()));
            return Ok(out.clone());
        }
        let [key, value] = new;
        self.tail = Some((step.written(&key, &tail_k)?, step.written(&value, &tail_v)?));
        self.scored(query, step, bias, scoring)
    }

    /// Attention of few rows to both tables.
    #[track_caller]
    fn scored(
        &self,
        query: &Tensor,
        step: &ShortStep,
        bias: Option<&Tensor>,
        scoring: Scoring<'_>,
    ) -> Result<Tensor> {
        let (Some(long), Some((tail_k, tail_v))) = (&self.long, &self.tail) else {
            return Err(Error::invalid(OP, NO_ROWS));
        };
        let &[batch, heads, length, width] = query.dims() else {
            return Err(Error::invalid(OP, format!("queries are [N, heads, L, E], not {}", query.shape())));
        };
        if bias.is_none()
            && let Some(mut results) = step.by_kernel(query, long, [tail_k, tail_v], None, scoring)?
        {
            return Ok(results.swap_remove(0));
        }
        let (capacity, [long_k, long_v]) = (long[0].rows(), [long[0].numbers()?, long[1].numbers()?]);
        let seen = step.bias(capacity, query.dtype())?;
        let bias = &match bias {
            Some(bias) => seen.add(&bias.unsqueeze(2)?)?,
            None => seen,
        };
        let groups = tail_k.dims()[1];
        let per_group = heads / groups;
        let query = query.reshape([batch, groups, per_group * length, width])?;
        let scores = [&long_k, tail_k].map(|keys| query.matmul(&keys.transpose(-1, -2)?));
        let [of_long, of_tail] = scores;
        let scores = scoring.capped(&Tensor::concat(&[of_long?, of_tail?], -1)?);
        let columns = capacity + TAIL_ROWS;
        let scores = match length {
            1 => scores.add(&bias.squeeze(2)?)?,
            _ => scores.reshape([batch, groups, per_group, length, columns])?.add(bias)?.reshape([
                batch,
                groups,
                per_group * length,
                columns,
            ])?,
        };
        let weights = scoring.weights(&scores, groups)?;
        let of_long = weights.narrow(-1, 0, capacity)?.matmul(&long_v)?;
        let out = weights.narrow(-1, capacity, TAIL_ROWS)?.matmul(tail_v)?.add(&of_long)?;
        let last = tail_v.dims()[3];
        out.reshape([batch, heads, length, last])
    }
}

impl ShortStep {
    /// Its tensors, for a change of all.
    fn tensors(&mut self) -> impl Iterator<Item = &mut Tensor> {
        [&mut self.place, &mut self.places].into_iter().chain(&mut self.source)
    }

    /// A step of `length` tokens, whose rows are those after `rows`.
    #[track_caller]
    fn new(
        rows: &Rows,
        (window, length): (Option<usize>, usize),
        pads: &[usize],
        (kernel, device): (StepKernel, &Device),
    ) -> Result<ShortStep> {
        let new = rows.tail..rows.tail + length;
        let place: Vec<bool> = (0..TAIL_ROWS).map(|row| new.contains(&row)).collect();
        let place = Tensor::from_vec(place, [TAIL_ROWS, 1], device)?;
        let source = |row: usize| row.saturating_sub(rows.tail).min(length - 1) as i32;
        let source = match length {
            1 => None,
            _ => Some(Tensor::from_vec((0..TAIL_ROWS).map(source).collect(), [TAIL_ROWS], device)?),
        };
        let each: &[usize] = if pads.is_empty() { &[0] } else { pads };
        let places = [rows.start, rows.long, new.end];
        let places: Vec<i32> = places.iter().chain(each).map(|&place| place as i32).collect();
        let places = Tensor::from_vec(places, [3 + each.len()], device)?;
        Ok(ShortStep { place, source, places, length, window, kernel, bias: OnceLock::new() })
    }

    /// The numbers that are added to the scores, `[N or 1, 1, 1, L, capacity + TAIL_ROWS]`: −∞ hides a row.
    #[track_caller]
    fn bias(&self, capacity: usize, dtype: DType) -> Result<Tensor> {
        if let Some(bias) = self.bias.get().filter(|bias| bias.dtype() == dtype) {
            return Ok(bias.clone());
        }
        let device = self.places.device();
        let number = |i: usize| self.places.narrow(0, i, 1);
        let (start, long, short) = (number(0)?, number(1)?, number(2)?);
        let columns = Tensor::arange(0, capacity + TAIL_ROWS, 1, (DType::I32, &device))?;
        let (of_short, in_short) = (columns.sub_scalar(capacity), columns.ge_scalar(capacity));
        let in_use = in_short.where_cond(&of_short.lt(&short)?, &columns.lt(&long)?)?;
        let position = in_short.where_cond(&of_short.add(&long)?, &columns)?.add(&start)?;
        let queries = Tensor::arange(0, self.length, 1, (DType::I32, &device))?.unsqueeze(1)?;
        let end = start.add(&long)?.add(&short)?.sub_scalar(self.length);
        let query = queries.add(&end)?;
        let mut seen = in_use.logical_and(&position.le(&query)?)?;
        if let Some(window) = self.window {
            seen = seen.logical_and(&position.gt(&query.sub_scalar(window))?)?;
        }
        let texts = self.places.dims()[0] - 3;
        let first = self.places.narrow(0, 3, texts)?.reshape([texts, 1, 1, 1, 1])?;
        let seen = seen.logical_and(&position.ge(&first)?)?;
        let number = |x: f64| Tensor::full((), x, (dtype, &device));
        let bias = seen.where_cond(&number(0.0)?, &number(f64::NEG_INFINITY)?)?;
        let _ = self.bias.set(bias.clone());
        Ok(bias)
    }

    /// The results of [`CachedAttention`], if the device computes them for these tensors.
    #[track_caller]
    fn by_kernel(
        &self,
        query: &Tensor,
        long: &[Table; 2],
        tail: [&Tensor; 2],
        new: Option<&[Tensor; 2]>,
        Scoring { scale, softcap, sinks }: Scoring<'_>,
    ) -> Result<Option<Vec<Tensor>>> {
        let (StepKernel::Reads(dtype) | StepKernel::Writes(dtype)) = self.kernel else { return Ok(None) };
        if [query.dtype(), tail[0].dtype(), long[0].dtype()] != [dtype; 3] {
            return Ok(None);
        }
        let (writes, window, packed) = (new.is_some(), self.window, long[0].packed());
        let kernel = CachedAttention { scale, softcap, window, writes, sinks: sinks.is_some(), packed };
        let sinks = sinks.map(|sinks| sinks.to_dtype(dtype)).transpose()?;
        let tables = long.iter().flat_map(Table::parts).chain(tail).chain([&self.places]);
        let inputs: Vec<&Tensor> =
            [query].into_iter().chain(tables).chain(new.into_iter().flatten()).chain(&sinks).collect();
        let kernel = Arc::new(kernel);
        // Other devices have it for some sizes.
        let is_sure = matches!(self.kernel, StepKernel::Writes(_));
        if !is_sure && !Tensor::has_custom_kernel(kernel.clone(), &inputs)? {
            return Ok(None);
        }
        Tensor::custom_kernel(kernel, &inputs).map(Some)
    }

    /// The short table with the new rows.
    #[track_caller]
    fn written(&self, new: &Tensor, table: &Tensor) -> Result<Tensor> {
        match &self.source {
            Some(source) => self.place.where_cond(&new.index_select(2, source)?, table),
            None => self.place.where_cond(new, table),
        }
    }
}
