//! The third pass: expressions that exceed the device's limits are split.
//!
//! Reads the classes and the choice of materialised items. Leaves the contents of each item's expression,
//! all within the limits; to this end it materialises more items, and gives some fused gathers a buffer.

use smallvec::SmallVec;

use super::{
    analysis::{Analysis, Class, NONE},
    parts::Parts,
    reasons::StoreReason,
};
use crate::devices::backend::Limits;

/// Materialises inputs of expressions that would exceed the device's limits. All expressions are then
/// checked again, because other readers load a newly materialised input in addition to the inputs that
/// it was made from.
pub(super) fn fit_limits(analysis: &mut Analysis<'_>, limits: &Limits) -> Vec<Parts> {
    loop {
        let before = analysis.materialised.iter().filter(|&&is| is).count();
        let parts = parts_within(analysis, limits);
        if analysis.materialised.iter().filter(|&&is| is).count() == before {
            return parts;
        }
    }
}

/// Gives a buffer to an expression, or to a fused gather and then to its index too.
fn store(analysis: &mut Analysis<'_>, i: u32) {
    let mut next = Some(i);
    while let Some(i) = next.take() {
        analysis.materialise(i as usize, StoreReason::DeviceLimits);
        if analysis.class[i as usize] == Class::Gathered {
            analysis.class[i as usize] = Class::Opaque;
            analysis.gather_of.iter_mut().filter(|of| **of == i).for_each(|of| *of = NONE);
            let index = analysis.items[i as usize].inputs[1];
            let is_made = matches!(analysis.class[index as usize], Class::Elementwise | Class::Gathered);
            next = Some(index).filter(|_| is_made);
        }
    }
}

/// The contents of each item's expression, after materialising each input that would exceed the limits.
fn parts_within(analysis: &mut Analysis<'_>, limits: &Limits) -> Vec<Parts> {
    let mut parts: Vec<Parts> = vec![Parts::default(); analysis.items.len()];
    for i in 0..analysis.items.len() {
        if analysis.class[i] == Class::Part {
            let mut mine = Parts::default();
            for &j in &analysis.items[i].inputs {
                if analysis.class[j as usize] == Class::Part {
                    Parts::add(&mut mine.loads, &parts[j as usize].loads);
                } else {
                    Parts::add(&mut mine.loads, &[j]);
                }
            }
            parts[i] = mine;
        }
        if analysis.class[i] == Class::Gathered {
            let mut mine = Parts { members: SmallVec::new(), loads: SmallVec::from_elem(i as u32, 1) };
            let index = analysis.items[i].inputs[1];
            if analysis.inlines(index) || analysis.class[index as usize] == Class::Gathered {
                let mut both = mine.clone();
                Parts::add(&mut both.members, &parts[index as usize].members);
                Parts::add(&mut both.loads, &parts[index as usize].loads);
                match both.fits(analysis, limits) {
                    true => mine = both,
                    false => store(analysis, index),
                }
            }
            parts[i] = mine;
        }
        if analysis.class[i] != Class::Elementwise {
            continue;
        }
        loop {
            let mut mine = Parts::default();
            mine.members.push(i as u32);
            for &j in &analysis.items[i].inputs {
                match (analysis.class[j as usize], analysis.materialised[j as usize]) {
                    (Class::Gathered, _) => {
                        Parts::add(&mut mine.members, &parts[j as usize].members);
                        Parts::add(&mut mine.loads, &parts[j as usize].loads);
                    }
                    (Class::Constant, _) => Parts::add(&mut mine.members, &[j]),
                    (Class::Elementwise, false) => {
                        let inlined = &parts[j as usize];
                        Parts::add(&mut mine.members, &inlined.members);
                        Parts::add(&mut mine.loads, &inlined.loads);
                    }
                    _ => Parts::add(&mut mine.loads, &[j]),
                }
            }
            if mine.fits(analysis, limits) {
                parts[i] = mine;
                break;
            }
            let largest = analysis.items[i]
                .inputs
                .iter()
                .copied()
                .filter(|&j| {
                    analysis.class[j as usize] == Class::Elementwise && !analysis.materialised[j as usize]
                })
                .max_by_key(|&j| parts[j as usize].size(analysis));
            match largest {
                Some(j) => analysis.materialise(j as usize, StoreReason::DeviceLimits),
                None => {
                    let read = |&j: &u32| analysis.gather_of[j as usize] != NONE;
                    match analysis.items[i].inputs.iter().copied().find(read) {
                        Some(j) => store(analysis, analysis.gather_of[j as usize]),
                        // Three loads and an operation are within the limits of every backend.
                        None => {
                            parts[i] = mine;
                            break;
                        }
                    }
                }
            }
        }
    }
    parts
}
