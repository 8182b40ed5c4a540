//! Sorting along an axis. Elements become keys (see `order`) with the index in the low bits, so all items
//! differ and any sort of them is stable. Long lines use a radix sort; if only a few elements of a line are
//! wanted, the rest is never sorted.
#![allow(unsafe_code)]

use std::sync::Arc;

use tensor_core::{Launch, Layout, Result, with_element};

use crate::{
    memory::{
        buffer::{Bound, Memory},
        lines::{Band, Lines},
        pool::Pool,
    },
    simd::{
        isa::{Isa, Job, Sets},
        order::Ordered,
    },
    tuning::{RADIX_SORT_MIN_ELEMENTS, SELECT_BLOCK, SELECT_PART, SORTED_ELEMENTS, SORTED_NEIGHBOURS},
};

/// Lines that are worked on together: where neighbours are contiguous, a cache line of 4-byte elements.
const LINE_GROUP: usize = 16;

/// An element as its key and its index.
trait Item: Copy + Ord + Default + Send {
    /// Bytes of the key.
    const DIGITS: usize;
    fn new(key: u64, index: usize) -> Self;
    /// Byte `n` of the key.
    fn digit(self, n: usize) -> usize;
    fn index(self) -> i32;
}

macro_rules! item {
    ($t:ty, $digits:literal) => {
        impl Item for $t {
            const DIGITS: usize = $digits;
            fn new(key: u64, index: usize) -> $t {
                <$t>::from(key) << 32 | index as $t
            }
            fn digit(self, n: usize) -> usize {
                (self >> (32 + 8 * n)) as usize & 255
            }
            fn index(self) -> i32 {
                self as u32 as i32
            }
        }
    };
}
item!(u64, 4);
item!(u128, 8);

/// A key type and the item type that has room for the index beside it.
trait Keyed {
    type Item: Item;
}

macro_rules! keyed {
    ($($key:ty => $item:ty;)*) => {$(
        impl Keyed for $key {
            type Item = $item;
        }
    )*};
}
keyed! {
    u8 => u64;
    u16 => u64;
    u32 => u64;
    u64 => u128;
}

type ItemOf<T> = <<T as Ordered>::Key as Keyed>::Item;

pub(crate) fn run(
    isa: Isa,
    pool: &Arc<Pool>,
    axis: usize,
    descending: bool,
    launch: &Launch<'_>,
) -> Result<()> {
    let bound = Bound::of_launch(pool, launch)?;
    let (input, out) = (bound.inputs[0], bound.outputs[0]);
    let (operand, shape) = (&launch.kernel.operands[0], launch.kernel.outputs[0].shape.clone());
    if shape.numel() == 0 {
        return Ok(());
    }
    let output = Layout::contiguous(shape);
    with_element!(operand.dtype, T => {
        sort::<T, ItemOf<T>>(isa, (axis, descending), &operand.layout, &output, input, out);
    });
    Ok(())
}

/// Sorts every line.
fn sort<T: Ordered, I: Item>(
    isa: Isa,
    (axis, descending): (usize, bool),
    layout: &Layout,
    output: &Layout,
    input: Memory,
    out: Memory,
) {
    let lines = Lines::new([layout, output], axis);
    let (n, k) = (lines.length, output.shape()[axis]);
    let apart = lines.side_by_side();
    let width = (if apart { SORTED_NEIGHBOURS } else { SORTED_ELEMENTS } / n).clamp(1, LINE_GROUP);
    let work = layout.numel() * 8;
    let (along, across) = (lines.along, lines.across);
    // The closure is called through a pointer, and captured values would be read from memory: copies of
    // them, and constants, keep the loops free of loads.
    lines.for_each(width, work, &|Band { lines: count, starts: [from, to] }| {
        let (n, k, along, across, descending) = (n, k, along, across, descending);
        let digits = const { size_of::<T::Key>() };
        let from = input.at::<T>(layout.offset()).wrapping_offset(from).cast_const();
        let to = out.at::<i32>(0).wrapping_offset(to);
        let item = |line: usize, i: usize| {
            let at = i as isize * along[0] + line as isize * across[0];
            // SAFETY: `of_launch` checked the input's span; the loops below keep i below `n` and `line`
            // below `count`.
            let key = unsafe { from.wrapping_offset(at).read() }.key();
            I::new(if descending { !key } else { key }.into(), i)
        };
        let store = |line: usize, first: &[I]| {
            for (i, item) in first.iter().enumerate() {
                let at = i as isize * along[1] + line as isize * across[1];
                // SAFETY: the output holds `k` elements for each line, and each line writes its own.
                unsafe { to.wrapping_offset(at).write(item.index()) };
            }
        };
        if k < n / SELECT_PART && along[0] == 1 {
            let mut best: Vec<I> = Vec::new();
            for line in 0..count {
                let from = from.wrapping_offset(line as isize * across[0]);
                isa.narrow().run(Select { from, n, k, descending, best: &mut best });
                store(line, &best);
            }
            return;
        }
        let mut items: Vec<I> = Vec::with_capacity(count * n);
        if apart && count > 1 {
            items.resize(count * n, I::default());
            for i in 0..n {
                (0..count).for_each(|line| items[line * n + i] = item(line, i));
            }
        } else {
            (0..count).for_each(|line| items.extend((0..n).map(|i| item(line, i))));
        }
        let mut spare = Vec::new();
        for (line, items) in items.chunks_exact_mut(n).enumerate() {
            store(line, first_in_order(items, k, digits, &mut spare));
        }
    });
}

/// The least `k` items, in order.
fn first_in_order<'a, I: Item>(
    items: &'a mut [I],
    k: usize,
    digits: usize,
    spare: &'a mut Vec<I>,
) -> &'a [I] {
    if k < items.len() / SELECT_PART {
        select(items, k, spare);
        return spare;
    }
    if k < items.len() / 2 {
        items.select_nth_unstable(k);
        items[..k].sort_unstable();
    } else if items.len() < RADIX_SORT_MIN_ELEMENTS {
        items.sort_unstable();
    } else {
        by_digits(items, digits, spare);
    }
    &items[..k]
}

/// Puts the least `k` items, in order, into `best`. Most of the other items are read only once.
fn select<I: Item>(items: &[I], k: usize, best: &mut Vec<I>) {
    let room = (2 * k).max(64);
    best.clear();
    best.reserve(room);
    let mut rest = items.iter();
    best.extend(rest.by_ref().take(room));
    loop {
        if k < best.len() {
            best.select_nth_unstable(k);
            best.truncate(k);
        }
        let Some(bound) = best.iter().max().copied() else { break };
        best.extend(rest.by_ref().filter(|item| **item < bound).take(room - k));
        if best.len() <= k {
            break;
        }
    }
    best.sort_unstable();
}

/// [`select`] on contiguous elements that are not yet items: most are only compared with the bound, many at
/// once.
struct Select<'a, T, I> {
    from: *const T,
    n: usize,
    k: usize,
    descending: bool,
    best: &'a mut Vec<I>,
}

impl<T: Ordered, I: Item> Job for Select<'_, T, I> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Select { from, n, k, descending, best } = self;
        let key = |i: usize| {
            // SAFETY: i < `n` in a contiguous line of the input, whose span `of_launch` checked for `sort`.
            let key = unsafe { from.add(i).read() }.key();
            if descending { !key } else { key }
        };
        let room = (2 * k).max(64).min(n);
        best.clear();
        best.extend((0..room).map(|i| I::new(key(i).into(), i)));
        // The greatest key of the k best items so far. Equal keys that come later are not among the first
        // k.
        let shrink = |best: &mut Vec<I>| {
            if k < best.len() {
                best.select_nth_unstable(k);
                best.truncate(k);
            }
            best.iter().max().map(|item| key(item.index() as usize))
        };
        if let Some(mut bound) = shrink(best) {
            for start in (room..n).step_by(SELECT_BLOCK) {
                let end = n.min(start + SELECT_BLOCK);
                if !(start..end).fold(false, |any, i| any | (key(i) < bound)) {
                    continue;
                }
                let others = (start..end).filter(|&i| key(i) < bound);
                best.extend(others.map(|i| I::new(key(i).into(), i)));
                // A tight bound lets most of the remaining blocks be skipped.
                if best.len() > k + k / 4 {
                    bound = shrink(best).unwrap_or(bound);
                }
            }
            shrink(best);
        }
        best.sort_unstable();
    }
}

/// Radix sort: one byte of the key after the other, the lowest first; each pass is stable.
fn by_digits<I: Item>(items: &mut [I], digits: usize, spare: &mut Vec<I>) {
    let mut counts = vec![[0u32; 256]; digits.min(I::DIGITS)];
    for item in items.iter() {
        for (n, counts) in counts.iter_mut().enumerate() {
            counts[item.digit(n)] += 1;
        }
    }
    spare.clear();
    spare.resize(items.len(), I::default());
    let (mut from, mut to): (&mut [I], &mut [I]) = (items, spare);
    let mut swapped = false;
    for (n, counts) in counts.iter().enumerate() {
        if counts.iter().any(|&count| count as usize == from.len()) {
            // All items have the same byte here.
            continue;
        }
        let mut next = [0u32; 256];
        let mut sum = 0;
        for (next, count) in next.iter_mut().zip(counts) {
            *next = sum;
            sum += count;
        }
        for &item in from.iter() {
            let place = &mut next[item.digit(n)];
            to[*place as usize] = item;
            *place += 1;
        }
        std::mem::swap(&mut from, &mut to);
        swapped = !swapped;
    }
    if swapped {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Items with keys that repeat, as made by `key`.
    fn items<I: Item>(n: usize, key: impl Fn(u64) -> u64) -> Vec<I> {
        (0..n).map(|i| I::new(key(i as u64), i)).collect()
    }

    fn check<I: Item + std::fmt::Debug>(digits: usize, mask: u64) {
        for n in [
            1,
            63,
            64,
            65,
            1000,
            RADIX_SORT_MIN_ELEMENTS - 1,
            RADIX_SORT_MIN_ELEMENTS,
            3 * RADIX_SORT_MIN_ELEMENTS + 1,
        ] {
            let kinds: [fn(u64) -> u64; 5] = [
                |_| 7,
                |i| i,
                |i| u64::MAX - i,
                |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62,
            ];
            for kind in kinds {
                let given: Vec<I> = items(n, |i| kind(i) & mask);
                let mut expected = given.clone();
                expected.sort();
                for k in [1, 2, n / 9, n / 8, n / 3, n / 2, n - 1, n] {
                    let k = k.clamp(1, n);
                    let mut items = given.clone();
                    let mut spare = Vec::new();
                    assert_eq!(
                        first_in_order(&mut items, k, digits, &mut spare),
                        &expected[..k],
                        "{k} of {n}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_first_few_are_selected_in_place() {
        for isa in Isa::available() {
            for n in [9usize, 64, 65, 700, 5000] {
                let kinds: [fn(usize) -> f32; 4] = [
                    |_| 7.0,
                    |i| -(i as f32),
                    |i| (i * 7919 % 61) as f32 - 30.0,
                    |i| if i % 50 == 3 { f32::NAN } else { (i * 7919 % 1009) as f32 - 500.0 },
                ];
                for (kind, descending) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
                    let x: Vec<f32> = (0..n).map(kind).collect();
                    let order = |x: f32| if descending { !x.key() } else { x.key() };
                    let mut expected: Vec<u64> =
                        x.iter().enumerate().map(|(i, &x)| Item::new(order(x).into(), i)).collect();
                    expected.sort();
                    for k in [1, 2, n / 9].map(|k| k.max(1)) {
                        let mut best: Vec<u64> = Vec::new();
                        isa.narrow().run(Select { from: x.as_ptr(), n, k, descending, best: &mut best });
                        assert_eq!(best, expected[..k], "{k} of {n}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_few_of_any_order() {
        check::<u64>(1, 0xff);
        check::<u64>(2, 0xffff);
        check::<u64>(4, u64::MAX >> 32);
        check::<u128>(8, u64::MAX);
    }
}
