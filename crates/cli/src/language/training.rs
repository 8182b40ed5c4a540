//! The epochs of a fine-tuning, for `taper fine-tune` and the jobs of `taper serve`.

use std::{path::Path, time::Instant};

use pollster::block_on;
use taper::{
    models::{
        LanguageModel,
        text::{ChatExample, ChatExamples},
    },
    nn::{Checkpoint, lora::Lora},
    optim::Optimizer,
    prelude::*,
};

use super::conversations::{shuffled, step};
use crate::error::Outcome;

/// A training of an adapter on conversations.
pub(crate) struct Training<'a> {
    pub(crate) model: &'a dyn LanguageModel,
    pub(crate) adapter: &'a Lora,
    pub(crate) data: &'a ChatExamples,
    /// How often each conversation is read.
    pub(crate) epochs: usize,
    /// Conversations of a step.
    pub(crate) group: usize,
    /// Conversations whose gradients are computed together.
    pub(crate) batch: usize,
    /// The seed of the order of the data.
    pub(crate) seed: u64,
    /// The state of the training after each epoch, which is continued if the file is there.
    pub(crate) checkpoint: Option<&'a Path>,
}

/// News of a training.
pub(crate) enum Progress {
    /// It goes on after this many epochs of an earlier run.
    Continued { epochs: usize },
    /// A step: its number among all, and the mean loss of its tokens.
    Step { number: usize, of: usize, loss: f64, tokens: usize },
    /// An epoch: its number, the mean loss of its tokens, its steps and seconds.
    Epoch { number: usize, loss: f64, steps: usize, seconds: f64 },
}

impl Training<'_> {
    /// Trains until all epochs are done, or `report` returns false; then the result is false too.
    ///
    /// # Errors
    /// The errors of the device, and of reading or writing the checkpoint.
    pub(crate) fn run<O: Optimizer + Stateful>(
        &self,
        mut optimizer: O,
        report: &mut dyn FnMut(&Progress) -> bool,
    ) -> Outcome<bool> {
        let mut first = 0;
        if let Some(path) = self.checkpoint.filter(|path| path.exists()) {
            let checkpoint = Checkpoint::load(path, &self.model.device())?;
            first = checkpoint.get_number("epoch").map_or(0, |epoch| epoch.as_i64()) as usize;
            checkpoint
                .restore()
                .module("adapter", self.adapter)
                .part("optimizer", &mut optimizer)
                .finish()?;
            if !report(&Progress::Continued { epochs: first }) {
                return Ok(false);
            }
        }
        let steps = self.data.len().div_ceil(self.group);
        for epoch in first..self.epochs {
            let order = shuffled(self.data.len(), self.seed, epoch)?;
            let begin = Instant::now();
            let (mut sum, mut tokens) = (0.0, 0);
            for (at, group) in order.chunks(self.group).enumerate() {
                let group: Vec<&ChatExample> = group.iter().map(|&place| &self.data[place]).collect();
                let (loss, count) = block_on(step(self.model, &mut optimizer, &group, self.batch))?;
                sum += loss;
                tokens += count;
                let (number, of) = (epoch * steps + at + 1, self.epochs * steps);
                if !report(&Progress::Step { number, of, loss: loss / count as f64, tokens: count }) {
                    return Ok(false);
                }
            }
            if let Some(path) = self.checkpoint {
                Checkpoint::new()
                    .module("adapter", self.adapter)
                    .part("optimizer", &optimizer)
                    .number("epoch", (epoch + 1) as i64)
                    .save(path)?;
            }
            let (loss, seconds) = (sum / tokens as f64, begin.elapsed().as_secs_f64());
            if !report(&Progress::Epoch { number: epoch + 1, loss, steps, seconds }) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
