//! The way back from a step of a [`KvCache`] that fails, and from the last steps of one whose results could
//! not be read: tables, states and rows in use are handles and numbers, which are kept until the step has
//! ended.

use std::collections::BTreeMap;

use tensor_core::{Error, Result, Tensor};

use super::{KvCache, LayerCache, MOST_TAKEN_BACK, OP, Rows, Shared, texts::Texts};

/// The parts of a cache that a step changes.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    pub(super) layers: Vec<LayerCache>,
    /// The tensors of each recurrent layer.
    pub(super) states: Vec<Vec<Tensor>>,
    pub(super) texts: Texts,
    rows: BTreeMap<Option<usize>, Rows>,
    len: usize,
}

/// A step that was begun: its masks by window, and the cache before it. A step that ends drops both, so that
/// its tables are held once and are written in place.
#[derive(Clone, Debug, Default)]
pub(super) struct Begun {
    pub(super) masks: BTreeMap<Option<usize>, Shared>,
    pub(super) before: Option<Contents>,
}

impl Begun {
    /// The masks of layers with a window.
    pub(super) fn get(&self, window: &Option<usize>) -> Option<&Shared> {
        self.masks.get(window)
    }

    /// Ends the step.
    pub(super) fn clear(&mut self) {
        *self = Begun::default();
    }
}

/// A cache to which [`KvCache::go_back`] returns after some steps.
pub(crate) struct Checkpoint {
    len: usize,
    /// The contents, if the rows in use are not enough to go back.
    contents: Option<Contents>,
}

impl KvCache {
    pub(super) fn contents(&self) -> Contents {
        let (layers, states, texts) = (self.layers.clone(), self.states.clone(), self.texts.clone());
        Contents { layers, states, texts, rows: self.rows.clone(), len: self.len }
    }

    pub(super) fn restore(&mut self, contents: Contents) {
        let Contents { layers, states, texts, rows, len } = contents;
        (self.layers, self.states, self.texts) = (layers, states, texts);
        (self.rows, self.len) = (rows, len);
    }

    /// Undoes a step that was begun and has not ended, because a model failed in its middle.
    pub(super) fn abandon_step(&mut self) {
        if let Some(before) = self.shared.before.take() {
            self.restore(before);
        }
        self.shared.clear();
        self.pending = 0;
    }

    /// The number of rows of the batch, once there are any.
    pub(crate) fn batch(&self) -> Option<usize> {
        let attended = self.layers.iter().find_map(|layer| Some(layer.long.as_ref()?[0].texts()));
        attended.or_else(|| self.states.iter().flatten().map(|state| state.dims()[0]).next())
    }

    /// Fails unless a step has as many rows as the cache.
    #[track_caller]
    pub(crate) fn check_batch(&self, rows: usize) -> Result<()> {
        let padded = Some(self.pads.len()).filter(|&rows| rows > 0);
        match self.batch().or(padded) {
            Some(batch) if batch != rows => {
                let message = format!(
                    "a step of {rows} texts for a cache of {batch}: give a token of each text, or make the rows by \
                     KvCache::select"
                );
                Err(Error::invalid(OP, message))
            }
            _ => Ok(()),
        }
    }

    /// Forgets the positions from `len` on, which the tables still have.
    pub(super) fn cut(&mut self, len: usize) {
        for rows in self.rows.values_mut() {
            let kept = len - rows.start.min(len);
            rows.tail = kept.saturating_sub(rows.long);
            rows.long = rows.long.min(kept);
        }
        self.len = len;
    }

    /// The way back from a step of `length` tokens. If a recurrent state or a window would not let the rows
    /// be taken back, it holds the tables and states of now until it is dropped.
    pub(crate) fn checkpoint(&self, length: usize) -> Checkpoint {
        let forgets = length > MOST_TAKEN_BACK && self.rows.keys().any(Option::is_some);
        let holds = self.len > 0 && (forgets || !self.states.is_empty());
        Checkpoint { len: self.len, contents: holds.then(|| self.contents()) }
    }

    /// Undoes the steps after a checkpoint.
    pub(crate) fn go_back(&mut self, checkpoint: Checkpoint) {
        self.abandon_step();
        match checkpoint {
            Checkpoint { contents: Some(contents), .. } => self.restore(contents),
            Checkpoint { len: 0, .. } => self.forget(),
            Checkpoint { len, .. } => self.cut(len),
        }
    }

    /// Forgets everything but the padding.
    pub(super) fn forget(&mut self) {
        let pads = std::mem::take(&mut self.pads);
        self.clear();
        self.pads = pads;
    }
}
