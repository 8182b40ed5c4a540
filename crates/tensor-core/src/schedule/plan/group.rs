//! The fifth pass: materialised items are assigned to kernels.
//!
//! Reads the places and the contents of the expressions. Leaves the list of kernels, each with its index
//! space and roots, and the kernel of each item in the analysis. An item joins an earlier kernel of its
//! shape, or of the rows that it enumerates, if its inputs are available there.

use smallvec::SmallVec;

use super::{
    analysis::{Analysis, Class, NONE},
    frame::are_in_one_binding,
    layouts::{is_per_row, numbers_rows, over_space},
    parts::Parts,
    reasons::Separation,
};
use crate::{base::shape::Shape, devices::backend::Limits, graph::op::Op};

/// A planned kernel: a fused map or row kernel with several results, or one other item.
pub(super) struct Group {
    pub(super) shape: Shape,
    /// The number of axes that make a row, once a reduction over the last axes is among the roots.
    pub(super) row_axes: Option<usize>,
    pub(super) roots: SmallVec<[u32; 4]>,
    /// The contents of a map or row kernel; `None` for any other.
    pub(super) parts: Option<Parts>,
    /// Why it is not a part of the last kernel whose results it reads, if it reads any.
    pub(super) separation: Option<Separation>,
}

/// An item that is about to be assigned to a kernel.
struct Candidate {
    root: u32,
    /// The index space over which it is computed.
    shape: Shape,
    /// For a reduction over the last axes whose rows are within the device's limit, the number of these
    /// axes.
    row_axes: Option<usize>,
    parts: Parts,
}

impl Group {
    /// Whether the kernel can compute the candidate, given that its inputs are available in time.
    fn takes(&self, new: &Candidate, analysis: &Analysis<'_>) -> bool {
        if self.shape == new.shape && self.row_axes.is_none_or(|k| new.row_axes.is_none_or(|n| n == k)) {
            // A map that is unrelated to long rows would only be slowed down by them.
            let rows = self.row_axes.is_some() || new.row_axes.is_some();
            return !rows
                || self.shape.numel() <= Limits::SMALL_SPACE
                || self.reads_own(new, analysis)
                || self.reduces_the_same(new, analysis);
        }
        // One value per row, computed from results of the row kernel. It is computed at every position
        // of the row, so it must not depend on the position.
        let Some(k) = self.row_axes else { return false };
        new.row_axes.is_none()
            && analysis.frames[new.root as usize].is_none()
            && is_per_row(&new.shape, &self.shape, k)
            && !new.parts.is_positional(analysis)
            && self.reads_own(new, analysis)
    }

    /// Whether a result is stored with zeros around it.
    pub(super) fn is_framed(&self, analysis: &Analysis<'_>) -> bool {
        self.roots.iter().any(|&root| analysis.frames[root as usize].is_some())
    }

    /// Whether both only reduce rows of one common input, which is then read once.
    fn reduces_the_same(&self, new: &Candidate, analysis: &Analysis<'_>) -> bool {
        let is_whole = |&j: &u32| *analysis.shape(j) == self.shape;
        let reduces = self.row_axes.is_some() && new.row_axes.is_some() && !self.roots.iter().any(is_whole);
        let Some(parts) = self.parts.as_ref().filter(|_| reduces) else { return false };
        new.parts.loads.iter().any(|j| is_whole(j) && parts.loads.contains(j))
    }

    fn reads_own(&self, new: &Candidate, analysis: &Analysis<'_>) -> bool {
        new.parts.loads.iter().any(|&j| {
            analysis.places[j as usize].as_ref().is_some_and(|(source, _)| self.roots.contains(source))
        })
    }
}

/// Assigns each materialised item to a kernel, and returns the kernels.
pub(super) fn group(analysis: &mut Analysis<'_>, parts: &[Parts], limits: &Limits) -> Vec<Group> {
    // How far back to search for a kernel to join: enough for the updates of a model's parameters.
    const WINDOW: usize = 64;
    let materialised = analysis.materialised.iter().filter(|&&is| is).count();
    let mut groups: Vec<Group> = Vec::with_capacity(materialised);
    for i in 0..analysis.items.len() as u32 {
        let at = i as usize;
        if !analysis.materialised[at] {
            continue;
        }
        if analysis.class[at] == Class::Element {
            analysis.kernel[at] = analysis.kernel[analysis.items[at].inputs[0] as usize];
            continue;
        }
        let Some(new) = candidate(analysis, parts, limits, i) else {
            analysis.kernel[at] = groups.len() as u32;
            groups.push(Group {
                shape: analysis.shape(i).clone(),
                row_axes: None,
                roots: SmallVec::from_elem(i, 1),
                parts: None,
                separation: reads_results(analysis, &analysis.items[at].inputs).then_some(
                    match analysis.is_reduction(i) {
                        true => Separation::Reduction,
                        false => Separation::OwnKernel,
                    },
                ),
            });
            continue;
        };
        let first = (0..new.parts.loads.len()).fold(groups.len().saturating_sub(WINDOW), |first, k| {
            first.max(readable_from(analysis, &groups, &new, new.parts.loads[k]))
        });
        let joined = (first..groups.len()).find_map(|g| {
            let theirs = groups[g].parts.as_ref()?;
            if groups[g].roots.len() >= limits.max_outputs || !groups[g].takes(&new, analysis) {
                return None;
            }
            let mut both = theirs.clone();
            both.join(&new.parts, &groups[g].roots, analysis);
            let is_framed = groups[g].is_framed(analysis) || analysis.frames[at].is_some();
            let fits = both.fits(analysis, limits)
                && (!is_framed || are_in_one_binding(analysis, &both.loads, limits));
            fits.then_some((g, both))
        });
        match joined {
            Some((g, both)) => {
                let Group { row_axes, roots, parts, .. } = &mut groups[g];
                *row_axes = row_axes.or(new.row_axes);
                *parts = Some(both);
                roots.push(i);
                analysis.kernel[at] = g as u32;
            }
            None => {
                analysis.kernel[at] = groups.len() as u32;
                let separation = separation(analysis, &groups, &new, first, limits);
                let Candidate { shape, row_axes, parts, .. } = new;
                let roots = SmallVec::from_elem(i, 1);
                groups.push(Group { shape, row_axes, roots, parts: Some(parts), separation });
            }
        }
    }
    groups
}

/// Whether an earlier kernel makes one of these items.
fn reads_results(analysis: &Analysis<'_>, items: &[u32]) -> bool {
    let made = |&j: &u32| analysis.sources(j).iter().any(|&source| analysis.kernel[source as usize] != NONE);
    items.iter().any(made)
}

/// Why a candidate that joins no kernel does not join the last one whose results it reads. `first` is the
/// first kernel in which all its inputs are readable.
fn separation(
    analysis: &Analysis<'_>,
    groups: &[Group],
    new: &Candidate,
    first: usize,
    limits: &Limits,
) -> Option<Separation> {
    let sources = new.parts.loads.iter().flat_map(|&j| analysis.sources(j));
    let made_in = sources.map(|source| analysis.kernel[source as usize]).filter(|&kernel| kernel != NONE);
    let last = made_in.max()? as usize;
    let group = &groups[last];
    Some(match &group.parts {
        _ if first > last => Separation::OtherPositions,
        None => Separation::OwnKernel,
        Some(_) if group.roots.len() >= limits.max_outputs => Separation::DeviceLimits,
        Some(_) if !group.takes(new, analysis) => Separation::OtherSpace,
        Some(_) => Separation::DeviceLimits,
    })
}

/// The requirements of computing an item within a map or row kernel; `None` if it needs a kernel of its
/// own.
fn candidate(analysis: &Analysis<'_>, parts: &[Parts], limits: &Limits, i: u32) -> Option<Candidate> {
    let at = i as usize;
    let item = &analysis.items[at];
    let only = |j: u32| Parts { members: SmallVec::from_elem(i, 1), loads: SmallVec::from_elem(j, 1) };
    match analysis.class[at] {
        Class::Opaque => {
            let Op::Reduce { axes, .. } = &item.node.op else { return None };
            let source = item.inputs[0];
            let shape = analysis.shape(source).clone();
            let lead = shape.rank() - axes.len();
            let row: usize = axes.iter().map(|&a| shape[a]).product();
            if axes.iter().enumerate().any(|(k, &a)| a != lead + k) || row == 0 || row > limits.max_row {
                return None;
            }
            let inlined = analysis.inlines(source) || analysis.class[source as usize] == Class::Gathered;
            let mut parts = if inlined { parts[source as usize].clone() } else { only(source) };
            Parts::add(&mut parts.members, &[i]);
            Some(Candidate { root: i, shape, row_axes: Some(axes.len()), parts })
        }
        // A copy iterates over the shape that it reads, any other item over its own.
        Class::View => {
            let source = item.inputs[0];
            if analysis.format_read(source).is_some() {
                return None;
            }
            Some(Candidate {
                root: i,
                shape: analysis.shape(source).clone(),
                row_axes: None,
                parts: only(source),
            })
        }
        Class::Ready
        | Class::Constant
        | Class::Elementwise
        | Class::Gathered
        | Class::Element
        | Class::Part => {
            let mut parts = parts[at].clone();
            if parts.members.is_empty() {
                parts.members.push(i);
            }
            let shape = if analysis.single[at] { Shape::scalar() } else { analysis.shape(i).clone() };
            Some(Candidate { root: i, shape, row_axes: None, parts })
        }
    }
}

/// The first kernel in which the candidate can read item `j`.
fn readable_from(analysis: &Analysis<'_>, groups: &[Group], new: &Candidate, j: u32) -> usize {
    if let Some(gathered) = &analysis.gathered[j as usize] {
        // Loads at indices can only read from memory.
        let made_in = gathered.sources().into_iter().map(|source| analysis.kernel[source as usize]);
        return made_in.filter(|&kernel| kernel != NONE).map(|kernel| kernel as usize + 1).max().unwrap_or(0);
    }
    let Some((source, layout)) = &analysis.places[j as usize] else { return 0 };
    let made_in = analysis.kernel[*source as usize];
    if made_in == NONE {
        return 0;
    }
    // A result of the same kernel can be read from its register: a map's at the same position; a
    // reduction's, and values derived from it, everywhere in the row. A copy reads memory.
    let group = &groups[made_in as usize];
    let copies = analysis.class[new.root as usize] == Class::View;
    let source_shape = analysis.shape(*source);
    let direct = !copies
        && match group.row_axes {
            Some(k) if analysis.is_per_row_in(*source, &group.shape) => {
                let space = &group.shape;
                let within = new.shape == *space || is_per_row(&new.shape, space, k);
                // The layout must hold both as the reader broadcasts it, and for the reader's own place
                // in the space.
                within && numbers_rows(&over_space(layout, &new.shape, space, k), space, k)
            }
            _ => {
                *source == j && analysis.class[j as usize] == Class::Elementwise && *source_shape == new.shape
            }
        };
    if direct { made_in as usize } else { made_in as usize + 1 }
}
