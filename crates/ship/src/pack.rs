//! Offsets in the arena: buffers that are alive at the same time are apart.

use tensor_core::DType;

use crate::description::{BufferId, Description, Role};

/// The arena of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arena {
    /// For each buffer, its offset in bytes, if it is in the arena.
    pub(crate) offsets: Vec<Option<usize>>,
    pub(crate) bytes: usize,
    /// The greatest number of bytes that are alive at once, a lower bound of `bytes`.
    pub(crate) peak: usize,
}

/// A buffer with the first and the last step that touch it.
#[derive(Clone, Copy, Debug)]
struct Life {
    buffer: BufferId,
    bytes: usize,
    align: usize,
    first: usize,
    last: usize,
}

impl Life {
    fn meets(&self, other: &Life) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The attempts with orders drawn at random, if no plain order reaches the peak.
const DRAWS: usize = 300;

/// Places the buffers of the arena, for elements of these sizes in bytes.
pub(crate) fn pack(plan: &Description, size_of: fn(DType) -> usize) -> Arena {
    let lives = lives(plan, size_of);
    let at = |step: usize| lives.iter().filter(move |life| life.first <= step && step <= life.last);
    let peak = (0..plan.steps.len()).map(|step| at(step).map(|life| life.bytes).sum()).max().unwrap_or(0);
    let length = |life: &Life| life.last - life.first + 1;
    let keys: [&dyn Fn(&Life) -> usize; 4] =
        [&|life| life.bytes, &|life| life.bytes * length(life), &|life| length(life), &|life| {
            plan.steps.len() - life.first
        }];
    let mut best: Option<(usize, Vec<usize>)> = None;
    let keep = |order: &[Life], top: Option<usize>, best: &mut Option<(usize, Vec<usize>)>| {
        let (bytes, offsets) = place(order, plan.buffers.len(), top);
        if best.as_ref().is_none_or(|(least, _)| bytes < *least) {
            *best = Some((bytes, offsets));
        }
    };
    for key in keys {
        let mut order = lives.clone();
        order.sort_by_key(|life| std::cmp::Reverse(key(life)));
        keep(&order, None, &mut best);
    }
    // In a chain of steps, each buffer is at the other end than the one before.
    let mut order = lives.clone();
    order.sort_by_key(|life| life.first);
    keep(&order, Some(peak.next_multiple_of(8)), &mut best);
    let mut seed = 1u64;
    for _ in 0..DRAWS {
        if best.as_ref().is_some_and(|(bytes, _)| *bytes <= peak) {
            break;
        }
        // The order by size with a few neighbours exchanged.
        let mut order = lives.clone();
        order.sort_by_key(|life| std::cmp::Reverse(life.bytes));
        for k in 1..order.len() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if seed >> 62 == 0 {
                order.swap(k - 1, k);
            }
        }
        keep(&order, None, &mut best);
    }
    let (bytes, found) = best.unwrap_or_default();
    let mut offsets = vec![None; plan.buffers.len()];
    lives.iter().for_each(|life| offsets[life.buffer] = Some(found[life.buffer]));
    Arena { offsets, bytes, peak }
}

/// The buffers of the arena that a step touches.
fn lives(plan: &Description, size_of: fn(DType) -> usize) -> Vec<Life> {
    let mut lives: Vec<Option<Life>> = vec![None; plan.buffers.len()];
    for (k, step) in plan.steps.iter().enumerate() {
        for window in step.inputs.iter().chain(&step.outputs) {
            let (id, buffer) = (window.buffer, &plan.buffers[window.buffer]);
            if buffer.role != Role::Arena || buffer.numel == 0 {
                continue;
            }
            let size = size_of(buffer.dtype);
            let align = size.max(4);
            let bytes = (buffer.numel * size).next_multiple_of(align);
            lives[id].get_or_insert(Life { buffer: id, bytes, align, first: k, last: k }).last = k;
        }
    }
    lives.into_iter().flatten().collect()
}

/// The size of the arena, and the offset of each buffer, if buffers are placed in this order, each as low as
/// possible; with `top`, every second one as high as possible below it.
fn place(order: &[Life], buffers: usize, top: Option<usize>) -> (usize, Vec<usize>) {
    let mut offsets = vec![0; buffers];
    let mut size = 0;
    for (k, life) in order.iter().enumerate() {
        let mut taken: Vec<(usize, usize)> = order[..k]
            .iter()
            .filter(|other| other.meets(life))
            .map(|other| (offsets[other.buffer], offsets[other.buffer] + other.bytes))
            .collect();
        taken.sort_unstable();
        let high = top.filter(|_| k % 2 == 1).and_then(|top| highest(&taken, life, top));
        let offset = high.unwrap_or_else(|| {
            taken
                .iter()
                .fold((0usize, false), |(offset, fits), &(from, to)| {
                    let fits = fits || offset + life.bytes <= from;
                    (if fits { offset } else { offset.max(to).next_multiple_of(life.align) }, fits)
                })
                .0
        });
        offsets[life.buffer] = offset;
        size = size.max(offset + life.bytes);
    }
    (size, offsets)
}

/// The highest place of a buffer below `top` that is apart from those taken.
fn highest(taken: &[(usize, usize)], life: &Life, top: usize) -> Option<usize> {
    let below = |end: usize| end.checked_sub(life.bytes).map(|offset| offset / life.align * life.align);
    let mut end = top;
    let mut by_end = taken.to_vec();
    by_end.sort_unstable_by_key(|&(_, to)| std::cmp::Reverse(to));
    for (from, to) in by_end {
        if below(end).is_some_and(|offset| offset >= to) {
            break;
        }
        end = end.min(from);
    }
    below(end)
}
