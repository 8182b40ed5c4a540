//! Attention of a few queries to the rows in use of two tables. The queries of a group read its keys and
//! values together, a block of rows at a time; each adds its terms in the order of positions.
#![allow(unsafe_code)]

use std::{cell::RefCell, cmp::min, marker::PhantomData, ops::Range};

use tensor_core::{CachedAttention, DType, Kernel, Launch, PackedRows, Result};

use super::custom::Native;
use crate::{
    CpuBackend,
    kernels::product::operands::mul_add,
    memory::buffer::Bound,
    simd::{block_formats::by_register, isa::Job, math, vector::Vector},
    threads,
    tuning::MICRO_KERNEL_GRAIN,
};

/// Queries of a task: their scores stay in a cache.
const QUERIES: usize = 8;
/// Rows whose products with a query are added up together.
const ROWS: usize = 8;
/// Rows of values that all queries of a task read before the next ones.
const BLOCK: usize = 64;
/// Registers of features that are summed side by side.
const REGISTERS: usize = 8;

thread_local! {
    /// The scores of a task, and rows of a packed table.
    static SCORES: RefCell<[Vec<f32>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

impl Native for CachedAttention {
    fn supports(kernel: &Kernel) -> bool {
        kernel.operands.first().is_some_and(|operand| operand.dtype == DType::F32)
    }

    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        let bound = Bound::of_launch(&backend.pool, launch)?;
        let dims = |k: usize| launch.kernel.operands[k].layout.shape().dims();
        // The long table's keys and values come first, in as many parts as its form has.
        let parts = self.long_parts();
        let short = 1 + 2 * parts;
        let (query, values) = (dims(0), dims(short + 1));
        let (texts, heads, length, width) = (query[0], query[1], query[2], query[3]);
        let (groups, features) = (values[1], values[3]);
        let at = |k: usize| bound.inputs[k].at::<f32>(0).cast_const();
        let place = |i: usize| {
            // SAFETY: `check_custom` accepted only row-major i32 of this number, and i is below it.
            let place = unsafe { bound.inputs[short + 2].at::<i32>(i).read() };
            usize::try_from(place).unwrap_or(0)
        };
        let table = |keys: usize, parts: usize, packed: Option<PackedRows>, used: usize| {
            let size = dims(keys)[2];
            let rows = |first: usize, width: usize| match packed {
                None => Stored::Plain(at(first)),
                Some(packed) => Stored::Packed(PackedTable {
                    packed,
                    integers: bound.inputs[first].at::<u8>(0).cast_const(),
                    scales: bound.inputs[first + 1].at::<u16>(0).cast_const(),
                    least: bound.inputs[first + parts - 1].at::<u16>(0).cast_const(),
                    group: packed.group(width).unwrap_or(width),
                }),
            };
            let (keys, values) = (rows(keys, width), rows(keys + parts, features));
            Table { keys, values, size, used: min(used, size) }
        };
        let mut tables = [table(1, parts, self.packed, place(1)), table(short, 1, None, place(2))];
        let rest = short + 3;
        if self.writes {
            let [_, table] = &mut tables;
            let new = [(0, width), (1, features)].map(|(i, width)| {
                let to = bound.outputs[1 + i].at::<f32>(0);
                let rows = Rows { groups: texts * groups, size: table.size, width };
                // SAFETY: `check_custom` accepted these shapes, and `of_launch` found buffers of their sizes;
                // a result is the buffer of its own input or of none.
                unsafe { rows.replace(at(short + i), at(rest + i), to, table.used, length) };
                Stored::Plain(to.cast_const())
            });
            [table.keys, table.values] = new;
        }
        let pass = Pass {
            of: *self,
            query: at(0),
            tables,
            start: place(0),
            sinks: self.sinks.then(|| at(if self.writes { rest + 2 } else { rest })),
            out: bound.outputs[0].at::<f32>(0),
            per_group: heads / groups * length,
            groups,
            length,
            width,
            features,
        };
        let firsts = dims(short + 2)[0] - 3;
        let tiles = pass.per_group.div_ceil(QUERIES);
        let rows = pass.tables.iter().map(|table| table.used).sum::<usize>();
        let task = |i: usize| {
            let (group, tile) = (i / tiles, i % tiles);
            let queries = tile * QUERIES..min((tile + 1) * QUERIES, pass.per_group);
            let first = place(3 + min(group / groups, firsts - 1));
            SCORES.with_borrow_mut(|[scores, room]| {
                by_register!(backend.isa, V => {
                    let (pass, of) = (&pass, PhantomData::<V>);
                    // SAFETY: `by_register` takes registers of the backend's instruction set.
                    unsafe { V::run(Tile { pass, group, queries, first, scores, room, of }) }
                });
            });
        };
        let work = texts * heads * length * rows * (width + features);
        match threads::worth(work, MICRO_KERNEL_GRAIN) {
            1 => (0..texts * groups * tiles).for_each(task),
            _ => threads::share(texts * groups * tiles, task),
        }
        Ok(())
    }
}

/// The shape of a table.
struct Rows {
    /// Groups of all texts.
    groups: usize,
    size: usize,
    width: usize,
}

impl Rows {
    /// Writes the last `length` of the rows in use, and all others if `to` is not the old table itself.
    ///
    /// # Safety
    /// `old` and `to` have the table's elements, and `new` has `length` rows of each group. `to` is `old` or
    /// apart from it, and nothing else accesses it.
    unsafe fn replace(&self, old: *const f32, new: *const f32, to: *mut f32, used: usize, length: usize) {
        let Rows { groups, size, width } = *self;
        let count = min(length, used);
        // SAFETY: these are rows of the tables, which have room for them, by `# Safety`.
        unsafe {
            if old != to.cast_const() {
                old.copy_to_nonoverlapping(to, groups * size * width);
            }
            for group in 0..groups {
                let new = new.add((group * length + length - count) * width);
                new.copy_to_nonoverlapping(to.add((group * size + used - count) * width), count * width);
            }
        }
    }
}

/// Keys and values `[N, groups, size, …]` of neighbouring positions, of which the first rows are in use.
struct Table {
    keys: Stored,
    values: Stored,
    size: usize,
    used: usize,
}

/// The rows of a table.
#[derive(Clone, Copy)]
enum Stored {
    Plain(*const f32),
    Packed(PackedTable),
}

/// The parts of packed rows, see [`PackedRows`].
#[derive(Clone, Copy)]
struct PackedTable {
    packed: PackedRows,
    integers: *const u8,
    /// Scales and minima in bf16; there are no minima in 8 bits.
    scales: *const u16,
    least: *const u16,
    group: usize,
}

impl Stored {
    /// `count` rows of `width` numbers from row `row` on: those of the table, or unpacked to `room`.
    ///
    /// # Safety
    /// The table has these rows.
    #[inline(always)]
    unsafe fn rows(&self, row: usize, count: usize, width: usize, room: &mut Vec<f32>) -> *const f32 {
        match self {
            Stored::Plain(rows) => rows.wrapping_add(row * width),
            Stored::Packed(table) => {
                let numbers = count * width;
                room.resize(room.len().max(numbers), 0.0);
                let room = &mut room[..numbers];
                // SAFETY: the table has these rows, by `# Safety`.
                unsafe {
                    match (table.packed, table.group) {
                        (PackedRows::Eight, 32) => table.bytes::<32>(row * width, room),
                        (PackedRows::Eight, _) => table.bytes::<16>(row * width, room),
                        (PackedRows::Four, _) => table.halves(row * width, room),
                    }
                }
                room.as_ptr()
            }
        }
    }
}

impl PackedTable {
    /// The bf16 number at `at`, as f32.
    ///
    /// # Safety
    /// It can be read.
    #[inline(always)]
    unsafe fn bf16(at: *const u16) -> f32 {
        // SAFETY: by `# Safety`.
        f32::from_bits(u32::from(unsafe { at.read() }) << 16)
    }

    /// Numbers from integers of 8 bits, from number `first` on.
    ///
    /// # Safety
    /// The table has these numbers, in groups of G.
    #[inline(always)]
    unsafe fn bytes<const G: usize>(&self, first: usize, to: &mut [f32]) {
        for (i, to) in to.as_chunks_mut::<G>().0.iter_mut().enumerate() {
            // SAFETY: this group is in the table, by `# Safety`.
            let (integers, scale) = unsafe {
                let integers = self.integers.add(first + i * G).cast::<[i8; G]>().read_unaligned();
                (integers, PackedTable::bf16(self.scales.add(first / G + i)))
            };
            for (to, integer) in to.iter_mut().zip(integers) {
                *to = f32::from(integer) * scale;
            }
        }
    }

    /// Numbers from integers of 4 bits, from number `first` on.
    ///
    /// # Safety
    /// The table has these numbers, in groups of 16.
    #[inline(always)]
    unsafe fn halves(&self, first: usize, to: &mut [f32]) {
        const GROUP: usize = 16;
        const HALF: usize = GROUP / 2;
        for (i, to) in to.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
            let group = first / GROUP + i;
            // SAFETY: this group is in the table, by `# Safety`.
            let (bytes, scale, least) = unsafe {
                let bytes = self.integers.add(group * HALF).cast::<[u8; HALF]>().read_unaligned();
                (bytes, PackedTable::bf16(self.scales.add(group)), PackedTable::bf16(self.least.add(group)))
            };
            let (low, high) = to.split_at_mut(HALF);
            for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
                *low = f32::from(byte & 15) * scale + least;
                *high = f32::from(byte >> 4) * scale + least;
            }
        }
    }
}

/// All of a launch: the layouts are row-major, and their sizes are those of the buffers.
struct Pass {
    of: CachedAttention,
    query: *const f32,
    tables: [Table; 2],
    /// The position of the first row.
    start: usize,
    sinks: Option<*const f32>,
    out: *mut f32,
    /// Queries of each group.
    per_group: usize,
    groups: usize,
    length: usize,
    width: usize,
    features: usize,
}

// SAFETY: tasks read the inputs, and write results of their own queries.
unsafe impl Sync for Pass {}

impl Pass {
    /// The rows that a query of a group sees, where `first` is the first position of its text.
    fn seen(&self, query: usize, first: usize) -> Range<usize> {
        let rows: usize = self.tables.iter().map(|table| table.used).sum();
        let end = (rows + query % self.length + 1).saturating_sub(self.length);
        let begin = self.of.window.map_or(0, |window| end.saturating_sub(window));
        begin.max(first.saturating_sub(self.start)).min(end)..end
    }
}

/// The results of some queries of a group of a text.
struct Tile<'a, V> {
    pass: &'a Pass,
    /// The group among those of all texts.
    group: usize,
    queries: Range<usize>,
    /// The first position of the text.
    first: usize,
    scores: &'a mut Vec<f32>,
    /// Room for unpacked rows.
    room: &'a mut Vec<f32>,
    of: PhantomData<V>,
}

impl<V: Vector<Number = f32>> Tile<'_, V> {
    /// The rows of each table from `rows`, with the number of the table's first row.
    fn parts(&self, rows: &Range<usize>) -> [(&Table, usize, Range<usize>); 2] {
        let [long, short] = &self.pass.tables;
        let split = long.used;
        [
            (long, 0, min(rows.start, split)..min(rows.end, split)),
            (short, split, rows.start.max(split)..rows.end.max(split)),
        ]
    }

    /// The products of a query with [`ROWS`] keys, the last of them once more beyond `count`.
    ///
    /// # Safety
    /// `width` elements can be read at `query` and in `count` rows from `keys`; `count` is not 0.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
    unsafe fn products(query: *const f32, keys: *const f32, count: usize, width: usize) -> [f32; ROWS] {
        let mut rows = [keys; ROWS];
        for i in 0..ROWS {
            rows[i] = keys.wrapping_add(min(i, count - 1) * width);
        }
        let mut sums = [V::splat(0.0); ROWS];
        let whole = width / V::WIDTH * V::WIDTH;
        for at in (0..whole).step_by(V::WIDTH) {
            // SAFETY: a register from `at` on ends within the `width` elements, by `# Safety`.
            unsafe {
                let query = V::load(query.add(at));
                for i in 0..ROWS {
                    sums[i] = mul_add(query, V::load(rows[i].add(at)), sums[i]);
                }
            }
        }
        if whole < width {
            // SAFETY: as above, for the elements that are left.
            unsafe {
                let query = V::load_first(query.add(whole), width - whole);
                for i in 0..ROWS {
                    sums[i] = mul_add(query, V::load_first(rows[i].add(whole), width - whole), sums[i]);
                }
            }
        }
        V::totals(sums)
    }

    /// Adds weighted rows of values to `R` registers of a result.
    ///
    /// # Safety
    /// As many rows as weights can be read from `values`, `R` registers of each, and written at `out`.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // the registers go by the same numbers as their elements
    unsafe fn add<const R: usize>(weights: &[f32], values: *const f32, features: usize, out: *mut f32) {
        let mut sums = [V::splat(0.0); R];
        // SAFETY: all of these elements can be read and written, by `# Safety`.
        unsafe {
            for r in 0..R {
                sums[r] = V::load(out.add(r * V::WIDTH));
            }
            for (i, &weight) in weights.iter().enumerate() {
                let weight = V::splat(weight);
                for r in 0..R {
                    let value = V::load(values.add(i * features + r * V::WIDTH));
                    sums[r] = mul_add(weight, value, sums[r]);
                }
            }
            for r in 0..R {
                sums[r].store_first(out.add(r * V::WIDTH), V::WIDTH);
            }
        }
    }

    /// As [`Tile::add`], for all features.
    ///
    /// # Safety
    /// As many rows of `features` as weights can be read from `values`, and a row written at `out`.
    #[inline(always)]
    unsafe fn add_all(weights: &[f32], values: *const f32, features: usize, out: *mut f32) {
        let mut at = 0;
        // SAFETY: the registers from `at` on end within the features, by `# Safety`.
        unsafe {
            while at + REGISTERS * V::WIDTH <= features {
                Self::add::<REGISTERS>(weights, values.add(at), features, out.add(at));
                at += REGISTERS * V::WIDTH;
            }
            while at + V::WIDTH <= features {
                Self::add::<1>(weights, values.add(at), features, out.add(at));
                at += V::WIDTH;
            }
            if at < features {
                let left = features - at;
                let mut sums = V::load_first(out.add(at), left);
                for (i, &weight) in weights.iter().enumerate() {
                    let value = V::load_first(values.add(i * features + at), left);
                    sums = mul_add(V::splat(weight), value, sums);
                }
                sums.store_first(out.add(at), left);
            }
        }
    }

    /// Turns products into weights that are not divided by their sum, which is returned. As many zeros
    /// follow as fill a register.
    #[inline(always)]
    fn weights(&self, scores: &mut [f32], count: usize, sink: Option<f32>) -> f32 {
        let scale = self.pass.of.scale as f32;
        let (scores, rest) = scores.split_at_mut(count);
        let mut most = sink.unwrap_or(f32::NEG_INFINITY);
        for score in scores.iter_mut() {
            *score *= scale;
            if let Some(cap) = self.pass.of.softcap {
                let cap = cap as f32;
                *score =
                    cap * if V::HAS_FMA { math::tanh::<true> } else { math::tanh::<false> }(*score / cap);
            }
            most = if *score > most { *score } else { most };
        }
        let exp = |x: f32| if V::HAS_FMA { math::exp::<true, f32>(x) } else { math::exp::<false, f32>(x) };
        for score in scores.iter_mut() {
            *score = exp(*score - most);
        }
        rest.fill(0.0);
        let mut sums = [V::splat(0.0); ROWS];
        let all = scores.as_ptr();
        for at in (0..count).step_by(V::WIDTH) {
            // SAFETY: the weights and the zeros after them fill whole registers.
            sums[0] = sums[0] + unsafe { V::load(all.add(at)) };
        }
        let [sum, ..] = V::totals(sums);
        sum + sink.map_or(0.0, |sink| exp(sink - most))
    }
}

impl<V: Vector<Number = f32>> Job for Tile<'_, V> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Pass { width, features, per_group, groups, length, .. } = *self.pass;
        let (mut scores, count) = (std::mem::take(self.scores), self.queries.len());
        let mut unpacked = std::mem::take(self.room);
        let room = &mut unpacked;
        let mut seen = [(); QUERIES].map(|()| 0..0);
        for (seen, query) in seen.iter_mut().zip(self.queries.clone()) {
            *seen = self.pass.seen(query, self.first);
        }
        let seen = &seen[..count];
        let begin = seen.iter().map(|seen| seen.start).min().unwrap_or(0);
        let end = seen.iter().map(|seen| seen.end).max().unwrap_or(0);
        let stride = (end - begin).next_multiple_of(V::WIDTH).max(V::WIDTH);
        scores.resize(scores.len().max(count * stride), 0.0);
        let of_query = |query: usize, features: usize| (self.group * per_group + query) * features;
        for (table, before, rows) in self.parts(&(begin..end)) {
            for row in rows.clone().step_by(ROWS) {
                let block = row..min(row + ROWS, rows.end);
                let first = self.group * table.size + row - before;
                // SAFETY: the rows of the block are among those in use of the table, which has as many.
                let keys = unsafe { table.keys.rows(first, block.len(), width, room) };
                for (i, seen) in seen.iter().enumerate() {
                    let own = block.start.max(seen.start)..min(block.end, seen.end);
                    if own.is_empty() {
                        continue;
                    }
                    let query = self.pass.query.wrapping_add(of_query(self.queries.start + i, width));
                    // SAFETY: the rows of the block are among those in use of the table, which has as many.
                    let products = unsafe { Self::products(query, keys, block.len(), width) };
                    for row in own {
                        scores[i * stride + row - seen.start] = products[row - block.start];
                    }
                }
            }
        }
        let mut sums = [0.0; QUERIES];
        for (i, (seen, sum)) in seen.iter().zip(&mut sums).enumerate() {
            let query = self.queries.start + i;
            let head = self.group % groups * (per_group / length) + query / length;
            // SAFETY: there is a sink for each head.
            let sink = self.pass.sinks.map(|sinks| unsafe { sinks.add(head).read() });
            *sum = self.weights(&mut scores[i * stride..][..stride], seen.len(), sink);
            // SAFETY: the result of this query has `features` elements, which only this task writes.
            unsafe { self.pass.out.add(of_query(query, features)).write_bytes(0, features) };
        }
        for (table, before, rows) in self.parts(&(begin..end)) {
            for row in rows.clone().step_by(BLOCK) {
                let block = row..min(row + BLOCK, rows.end);
                let first = self.group * table.size + row - before;
                // SAFETY: the rows of the block are among those in use of the table, which has as many.
                let values = unsafe { table.values.rows(first, block.len(), features, room) };
                for (i, seen) in seen.iter().enumerate() {
                    let own = block.start.max(seen.start)..min(block.end, seen.end);
                    if own.is_empty() {
                        continue;
                    }
                    let values = values.wrapping_add((own.start - block.start) * features);
                    let weights = &scores[i * stride + own.start - seen.start..][..own.len()];
                    let out = self.pass.out.wrapping_add(of_query(self.queries.start + i, features));
                    // SAFETY: the rows are among those in use of the table, and the result is this task's.
                    unsafe { Self::add_all(weights, values, features, out) };
                }
            }
        }
        for (i, (seen, sum)) in seen.iter().zip(sums).enumerate() {
            let out = self.pass.out.wrapping_add(of_query(self.queries.start + i, features));
            for k in 0..if seen.is_empty() { 0 } else { features } {
                // SAFETY: the result of this query has `features` elements, which only this task touches.
                unsafe { *out.add(k) /= sum };
            }
        }
        (*self.scores, *self.room) = (scores, unpacked);
    }
}
