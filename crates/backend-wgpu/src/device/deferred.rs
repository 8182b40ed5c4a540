//! Small launches that wait to be merged: several of the same pipelines become one dispatch for each pipeline
//! ([`merged`]). The waiting ones are independent of each other and of everything recorded after them: a
//! command that reads or writes what one of them writes, or writes what one of them reads, has those of its
//! lane recorded first.

use std::sync::{Arc, atomic::Ordering};

use smallvec::SmallVec;
use tensor_core::Result;

use crate::{
    codegen::{
        dispatch::Resource,
        merge::{merged, words},
    },
    device::{
        compiled::{Compiled, Pipeline},
        faults::lock,
        gpu::Gpu,
        pipeline::pipeline,
        record::{BoundBuffer, Buffers, Command},
        stream::Stream,
    },
};

/// The most workgroups of a dispatch that is merged: larger ones keep a device busy alone.
const MAX_WORKGROUPS: usize = 2048;
/// The most dispatches of a launch that waits.
const MAX_STAGES: usize = 3;
/// The most dispatches in one merged dispatch.
const MAX_PARTS: usize = 16;
/// The most buffers of a merged dispatch.
const MAX_BUFFERS: usize = 32;
/// The most bytes of the buffers of all waiting launches.
const MAX_BYTES: u64 = 64 << 20;

/// A dispatch of a waiting launch.
pub(super) struct Stage {
    label: &'static str,
    pipeline: Arc<Pipeline>,
    workgroups: usize,
    work: usize,
    words: Vec<u32>,
    buffers: Buffers,
}

impl Stage {
    pub(super) fn new(one: &Compiled, buffers: Buffers, words: Vec<u32>) -> Stage {
        let Compiled { label, ref pipeline, workgroups, work, .. } = *one;
        Stage { label, pipeline: Arc::clone(pipeline), workgroups, work, words, buffers }
    }

    fn command(&self) -> Command<'_> {
        Command {
            label: self.label,
            pipeline: &self.pipeline,
            workgroups: self.workgroups,
            work: self.work,
            words: &self.words,
            buffers: &self.buffers,
        }
    }
}

/// A waiting launch: its dispatches in order.
pub(super) struct Deferred(pub(super) SmallVec<[Stage; 1]>);

impl Deferred {
    fn buffers(&self) -> impl Iterator<Item = &BoundBuffer> {
        self.0.iter().flat_map(|stage| &stage.buffers)
    }

    /// The bytes of its buffers.
    fn bytes(&self) -> u64 {
        self.buffers().map(|bound| bound.buffer.raw.size()).sum()
    }

    /// Whether it must be recorded before a command with this buffer.
    fn conflicts(&self, other: &BoundBuffer) -> bool {
        self.buffers().any(|own| own.buffer.id == other.buffer.id && (own.writes || other.writes))
    }

    /// Whether another launch has the same pipelines.
    fn is_like(&self, other: &Deferred) -> bool {
        let (own, other) = (&self.0, &other.0);
        own.len() == other.len() && own.iter().zip(other).all(|(a, b)| Arc::ptr_eq(&a.pipeline, &b.pipeline))
    }
}

/// The waiting launches.
#[derive(Default)]
pub(super) struct Waiting {
    /// Lists of launches; those in one list have the same pipelines.
    lanes: Vec<Vec<Deferred>>,
    bytes: u64,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Takes the lanes with a launch that must be recorded before a command with these buffers.
    fn take_conflicting<'a>(
        &mut self,
        buffers: impl Iterator<Item = &'a BoundBuffer> + Clone,
    ) -> Vec<Vec<Deferred>> {
        let conflicts =
            |lane: &mut Vec<Deferred>| lane.iter().any(|one| buffers.clone().any(|b| one.conflicts(b)));
        let taken: Vec<Vec<Deferred>> = self.lanes.extract_if(.., conflicts).collect();
        self.bytes -= taken.iter().flatten().map(Deferred::bytes).sum::<u64>();
        taken
    }

    /// Adds a launch, and returns its lane if that has `most` then.
    fn add(&mut self, one: Deferred, most: usize) -> Option<Vec<Deferred>> {
        self.bytes += one.bytes();
        let same = |lane: &Vec<Deferred>| lane.first().is_some_and(|other| other.is_like(&one));
        let at = self.lanes.iter().position(same).unwrap_or_else(|| {
            self.lanes.push(Vec::new());
            self.lanes.len() - 1
        });
        self.lanes[at].push(one);
        if self.lanes[at].len() < most {
            return None;
        }
        let full = self.lanes.remove(at);
        self.bytes -= full.iter().map(Deferred::bytes).sum::<u64>();
        Some(full)
    }
}

impl Gpu {
    /// Whether a launch of these dispatches waits to be merged.
    pub(super) fn can_wait(&self, stages: &[Compiled]) -> bool {
        let fits = |one: &Compiled| {
            one.pipeline.template.is_some()
                && one.repeated.is_none()
                && one.workgroups <= MAX_WORKGROUPS.min(one.most)
                && one.workgroups * MAX_PARTS <= self.capabilities.max_workgroups as usize
                && self.most_parts(one.resources.len()) > 1
                // Slots of the fault table are cleared by commands that wait for nothing.
                && one.resources.iter().all(|bound| bound.resource != Resource::Faults)
        };
        !self.capabilities.direct && (1..=MAX_STAGES).contains(&stages.len()) && stages.iter().all(fits)
    }

    /// The most dispatches with as many buffers that one dispatch may replace: a power of two.
    fn most_parts(&self, buffers: usize) -> usize {
        let parts = MAX_BUFFERS.min(self.storage_buffers) / buffers.max(1);
        parts.min(MAX_PARTS).checked_ilog2().map_or(0, |bits| 1 << bits)
    }

    /// Lets a launch wait, after those that must come before it.
    pub(super) fn defer(&self, stream: &mut Stream, one: Deferred) -> Result<()> {
        if !stream.waiting.is_empty() {
            let before = stream.waiting.take_conflicting(one.0.iter().flat_map(|stage| &stage.buffers));
            before.iter().try_for_each(|lane| self.record_lane(stream, lane))?;
        }
        // A host write must not overtake it.
        let batch = self.batch.load(Ordering::Acquire);
        one.buffers().for_each(|bound| bound.buffer.used_in(batch));
        let parts = one.0.iter().map(|stage| self.most_parts(stage.buffers.len()));
        let most = parts.min().unwrap_or(1);
        if let Some(lane) = stream.waiting.add(one, most) {
            self.record_lane(stream, &lane)?;
        }
        if stream.waiting.bytes > MAX_BYTES {
            self.record_deferred(stream)?;
        }
        Ok(())
    }

    /// Records the waiting launches that must come before a command with these buffers.
    pub(super) fn record_conflicting(&self, stream: &mut Stream, buffers: &[BoundBuffer]) -> Result<()> {
        if stream.waiting.is_empty() {
            return Ok(());
        }
        let lanes = stream.waiting.take_conflicting(buffers.iter());
        lanes.iter().try_for_each(|lane| self.record_lane(stream, lane))
    }

    /// Records all waiting launches.
    pub(super) fn record_deferred(&self, stream: &mut Stream) -> Result<()> {
        let Waiting { lanes, .. } = std::mem::take(&mut stream.waiting);
        lanes.iter().try_for_each(|lane| self.record_lane(stream, lane))
    }

    /// Records launches of the same pipelines, in groups whose sizes are powers of two, so that there are
    /// few merged pipelines.
    fn record_lane(&self, stream: &mut Stream, mut lane: &[Deferred]) -> Result<()> {
        while let Some(bits) = lane.len().checked_ilog2() {
            let (group, rest) = lane.split_at(1 << bits);
            lane = rest;
            for stage in 0..group[0].0.len() {
                let parts: Vec<&Stage> = group.iter().map(|one| &one.0[stage]).collect();
                match self.merged_pipeline(&parts)? {
                    Some(pipeline) => self.record_merged(stream, &pipeline, &parts)?,
                    None => parts.iter().try_for_each(|one| self.record(stream, &one.command()))?,
                }
            }
        }
        Ok(())
    }

    fn record_merged(&self, stream: &mut Stream, pipeline: &Pipeline, parts: &[&Stage]) -> Result<()> {
        let of_parts: Vec<&[u32]> = parts.iter().map(|one| one.words.as_slice()).collect();
        let mut all = std::mem::take(&mut stream.words);
        words(parts.iter().map(|one| one.workgroups), &of_parts, &mut all);
        let buffers: Buffers = parts.iter().flat_map(|one| one.buffers.iter().cloned()).collect();
        let command = Command {
            label: parts[0].label,
            pipeline,
            workgroups: parts.iter().map(|one| one.workgroups).sum(),
            work: parts.iter().map(|one| one.work).max().unwrap_or(0),
            words: &all,
            buffers: &buffers,
        };
        let recorded = self.record(stream, &command);
        stream.words = all;
        recorded
    }

    /// The pipeline that does the work of several dispatches of one pipeline; `None` for a single one.
    fn merged_pipeline(&self, parts: &[&Stage]) -> Result<Option<Arc<Pipeline>>> {
        let [first, _, ..] = parts else { return Ok(None) };
        let Some(template) = &first.pipeline.template else { return Ok(None) };
        let known = lock(&first.pipeline.merged).iter().find(|(count, _)| *count == parts.len()).cloned();
        if let Some((_, made)) = known {
            return Ok(Some(made));
        }
        let Some(all) = merged(template, parts.len()) else { return Ok(None) };
        let made = pipeline(self, &all)?;
        lock(&first.pipeline.merged).push((parts.len(), Arc::clone(&made)));
        Ok(Some(made))
    }
}
