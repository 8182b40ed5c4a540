//! Max pooling. The rows of a window are reordered once: the elements that one window position reads in a
//! row of windows become contiguous, for any stride, and a register holds neighbouring windows. If a row
//! has only a few long windows, a register holds elements of one window instead.
#![allow(unsafe_code)]

use std::ops::Range;

use tensor_core::{Launch, MaxPool, Result};

use super::custom::{Native, for_float};
use crate::{
    CpuBackend,
    memory::{buffer::Bound, strided::Shared},
    simd::isa::{Isa, Job},
    threads,
    tuning::COSTLY_ELEMENT_GRAIN,
};

/// Windows whose greatest elements are found at once.
const LANES: usize = 16;

impl Native for MaxPool {
    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        for_float!(self, launch, typed(backend, *self, launch))
    }
}

/// The element type of a plane.
trait Number: Copy + PartialOrd + Send + Sync + 'static {
    /// A lower bound of all elements.
    const LOWER_BOUND: Self;
}

impl Number for f32 {
    const LOWER_BOUND: f32 = f32::NEG_INFINITY;
}

impl Number for f64 {
    const LOWER_BOUND: f64 = f64::NEG_INFINITY;
}

fn typed<T: Number>(backend: &CpuBackend, of: MaxPool, launch: &Launch<'_>) -> Result<()> {
    let shape = launch.kernel.operands[0].layout.shape();
    let &[planes, depth, height, width] = shape.dims() else { return Ok(()) };
    let bound = Bound::of_launch(&backend.pool, launch)?;
    // The stride of a single window does not matter.
    let stride = std::array::from_fn(|axis| if of.outputs[axis] == 1 { 1 } else { of.stride[axis] });
    let of = MaxPool { stride, ..of };
    let windows = of.outputs[2];
    let (padding, stride) = (of.padding[2], of.stride[2]);
    let pool = Pool::<T> {
        isa: backend.isa,
        of,
        sizes: [depth, height, width],
        planes: bound.inputs[0].at::<T>(0),
        starts: (0..windows.next_multiple_of(LANES))
            .map(|k| (k * stride).wrapping_sub(padding) as i32)
            .collect(),
        firsts: (0..windows.next_multiple_of(LANES))
            .map(|k| of.first(2, k.min(windows - 1)) as i32)
            .collect(),
        columns: (0..of.window[2])
            .map(|c| c * of.dilation[2])
            .map(|along| (along % stride * phase(&of) + along / stride, along as i32))
            .collect(),
        lanes: std::array::from_fn(|l| l as i32),
        maxima: Shared(bound.outputs[0].at::<T>(0)),
        places: Shared(bound.outputs[1].at::<i32>(0)),
    };
    let rows = planes * of.outputs[0] * of.outputs[1];
    let work = rows * windows * of.window.iter().product::<usize>();
    // SAFETY: `check_custom` and `of_launch` checked the sizes of all operands; ranges have different rows.
    let some = |range: Range<usize>| unsafe { pool.rows(range) };
    match threads::worth(work, COSTLY_ELEMENT_GRAIN) {
        1 => some(0..rows),
        _ => threads::share_ranges(rows, of.outputs[1].min(rows.div_ceil(threads::available())), some),
    }
    Ok(())
}

struct Pool<T> {
    isa: Isa,
    of: MaxPool,
    sizes: [usize; 3],
    planes: *const T,
    /// The start of each window of a row, negative in the padding; and its first element within the row.
    starts: Vec<i32>,
    firsts: Vec<i32>,
    /// The offset of each of a window's columns from its first element, in a reordered row and in the
    /// original row.
    columns: Vec<(usize, i32)>,
    /// 0, 1, … in memory: as constants, the compiler would build each with an instruction.
    lanes: [i32; LANES],
    maxima: Shared<T>,
    places: Shared<i32>,
}

// SAFETY: the input is only read, and threads write different rows.
unsafe impl<T: Sync> Sync for Pool<T> {}

/// The distance between phases of the stride in a reordered row, in elements.
fn phase(of: &MaxPool) -> usize {
    of.outputs[2].next_multiple_of(LANES) + (of.window[2] - 1) * of.dilation[2] / of.stride[2]
}

/// Reordered rows: every `stride`th element of a row is contiguous, with padding of the least value around
/// the row.
struct Ordered<T> {
    rows: Vec<T>,
    /// The number of the row that each slot holds, counted over all planes.
    held: Vec<Option<usize>>,
    /// The rows of a plane that are held, and the planes of a window's depth.
    span: [usize; 2],
    /// The distance between phases of the stride, and the elements of a row.
    phase: usize,
    row: usize,
}

impl<T: Number> Ordered<T> {
    fn new(of: &MaxPool) -> Ordered<T> {
        let reach = |axis: usize| (of.window[axis] - 1) * of.dilation[axis];
        let phase = phase(of);
        let (span, row) = ([reach(0) + 1, reach(1) + 1], phase * of.stride[2]);
        let held = vec![None; span[0] * span[1]];
        Ordered { rows: vec![T::LOWER_BOUND; held.len() * row], held, span, phase, row }
    }

    /// The start of the reordered row (z, y) of a plane, which is reordered now unless it is held already.
    /// It is row `number` of all.
    ///
    /// # Safety
    /// `from` has `width` elements.
    unsafe fn row(
        &mut self,
        isa: Isa,
        of: &MaxPool,
        [z, y]: [usize; 2],
        number: usize,
        from: *const T,
        width: usize,
    ) -> usize {
        let place = z % self.span[0] * self.span[1] + y % self.span[1];
        let begin = place * self.row;
        if self.held[place].replace(number) == Some(number) {
            return begin;
        }
        // SAFETY: `from` has `width` elements by `# Safety`.
        let from = unsafe { std::slice::from_raw_parts(from, width) };
        let row = &mut self.rows[begin..begin + self.row];
        isa.run(InOrder { from, row, stride: of.stride[2], padding: of.padding[2], phase: self.phase });
        begin
    }
}

/// Reorders a row; the padding around it is kept.
struct InOrder<'a, T> {
    from: &'a [T],
    row: &'a mut [T],
    stride: usize,
    padding: usize,
    phase: usize,
}

impl<T: Number> Job for InOrder<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let InOrder { from, row, stride, padding, phase } = self;
        // The reordered position of an element of the padded row.
        let to = |at: usize| at % stride * phase + at / stride;
        // Elements past the last window are dropped.
        let from = &from[..from.len().min(row.len() - padding.min(row.len()))];
        let (first, rest) = from.split_at(from.len().min((stride - padding % stride) % stride));
        for (x, &value) in first.iter().enumerate() {
            row[to(padding + x)] = value;
        }
        let begin = (padding + first.len()) / stride;
        match stride {
            1 => row[begin..begin + rest.len()].copy_from_slice(rest),
            2 => {
                let (even, odd) = row.split_at_mut(phase);
                let (pairs, last) = rest.as_chunks::<2>();
                let both = even[begin..].iter_mut().zip(&mut odd[begin..]);
                for ((even, odd), pair) in both.zip(pairs) {
                    *even = pair[0];
                    *odd = pair[1];
                }
                if let Some(&last) = last.first() {
                    even[begin + pairs.len()] = last;
                }
            }
            _ => {
                for (x, &value) in rest.iter().enumerate() {
                    row[to(begin * stride + x)] = value;
                }
            }
        }
    }
}

impl<T: Number> Pool<T> {
    /// Computes rows of windows, counted over all planes.
    ///
    /// # Safety
    /// Operands have the sizes that the kernel states. The rows are among the output's and belong to this
    /// call alone.
    unsafe fn rows(&self, range: Range<usize>) {
        let Pool { isa, of, sizes: [depth, height, width], .. } = *self;
        let windows = of.outputs[2];
        // A few long windows are processed one by one.
        let along = windows < LANES / 2 && of.window[2] >= LANES && of.dilation[2] == 1;
        let mut ordered = (!along).then(|| Ordered::<T>::new(&of));
        // For each row of the windows: its start, and its first element's position in the plane.
        let mut lines: Vec<(usize, i32)> = Vec::with_capacity(of.window[0] * of.window[1]);
        // For each element of the windows: the offset of the first window's element among the reordered
        // rows, and its position relative to the plane.
        let mut taps: Vec<(usize, i32)> = Vec::new();
        for number in range {
            let (rest, j) = (number / of.outputs[1], number % of.outputs[1]);
            let (plane, i) = (rest / of.outputs[0], rest % of.outputs[0]);
            let within = |axis: usize, i: usize, size: usize| {
                let (start, pad, step) = (i * of.stride[axis], of.padding[axis], of.dilation[axis]);
                (0..of.window[axis]).map(move |a| start + a * step).filter_map(move |at| {
                    let at = at.checked_sub(pad)?;
                    (at < size).then_some(at)
                })
            };
            lines.clear();
            for z in within(0, i, depth) {
                for y in within(1, j, height) {
                    let line = z * height + y;
                    let number = plane * depth * height + line;
                    let begin = match &mut ordered {
                        // SAFETY: row `number` is in the input by `# Safety`: `within` keeps z below
                        // `depth` and y below `height`.
                        Some(ordered) => unsafe {
                            ordered.row(isa, &of, [z, y], number, self.planes.add(number * width), width)
                        },
                        None => number * width,
                    };
                    lines.push((begin, (line * width) as i32));
                }
            }
            // SAFETY: by `# Safety` both outputs have `windows` elements for row `number`, which belongs to
            // this call alone; they are contiguous.
            let (maxima, places) = unsafe {
                let first = (number * windows) as isize;
                (
                    std::slice::from_raw_parts_mut(self.maxima.at(first), windows),
                    std::slice::from_raw_parts_mut(self.places.at(first), windows),
                )
            };
            if let Some(ordered) = &ordered {
                let of_line = |&(begin, line)| {
                    self.columns.iter().map(move |&(column, along)| (begin + column, line + along))
                };
                taps.clear();
                taps.extend(lines.iter().flat_map(of_line));
                let before = lines.first().map_or(0, |&(_, place)| place);
                isa.run(RowOfWindows {
                    pool: self,
                    rows: &ordered.rows,
                    taps: &taps,
                    before,
                    maxima,
                    places,
                });
                continue;
            }
            for (k, (maximum, place)) in maxima.iter_mut().zip(places).enumerate() {
                let first = self.firsts[k] as usize;
                let end = width.min(k * of.stride[2] + of.window[2] - of.padding[2]);
                let (pool, lines) = (self, &lines[..]);
                (*maximum, *place) = isa.run(LongWindow { pool, lines, along: first..end });
            }
        }
    }
}

/// The result of one window; a register holds a run of its elements.
struct LongWindow<'a, T> {
    pool: &'a Pool<T>,
    lines: &'a [(usize, i32)],
    /// The range of elements in each row.
    along: Range<usize>,
}

impl<T: Number> Job for LongWindow<'_, T> {
    type Output = (T, i32);
    // Loops by index, as in `RowOfWindows`.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) -> (T, i32) {
        let LongWindow { pool, lines, along } = self;
        let first = lines.first().map_or(0, |&(_, place)| place) + along.start as i32;
        // Separate lanes for whole registers of a row and for its rest shorten the dependency chains.
        let (mut best, mut place) = ([T::LOWER_BOUND; LANES], [first; LANES]);
        let (mut best_left, mut place_left) = (best, place);
        let lane = pool.lanes;
        // Processes a register of elements; the first is at position `here`.
        macro_rules! go_through {
            ($values:expr, $here:expr, $best:ident, $place:ident) => {
                for l in 0..LANES {
                    let taken = comes_first($values[l], $best[l]);
                    $best[l] = if taken { $values[l] } else { $best[l] };
                    $place[l] = if taken { lane[l].wrapping_add($here) } else { $place[l] };
                }
            };
        }
        let whole = along.len() / LANES;
        for &(begin, line) in lines {
            let start = line + along.start as i32;
            // SAFETY: `Pool::rows` passes rows of the plane, which the input has by its `# Safety`; `along`
            // ends within the row.
            let row =
                unsafe { std::slice::from_raw_parts(pool.planes.add(begin + along.start), along.len()) };
            for turn in 0..whole {
                let values = &row[turn * LANES..][..LANES];
                go_through!(values, start + (turn * LANES) as i32, best, place);
            }
            if row.len().is_multiple_of(LANES) {
                continue;
            }
            if let Some(values) = row.last_chunk::<LANES>() {
                // The rest is read together with elements before it. That changes nothing, because the
                // first of equal elements wins.
                go_through!(values, start + (row.len() - LANES) as i32, best_left, place_left);
            } else {
                let mut values = [T::LOWER_BOUND; LANES];
                values[..row.len()].copy_from_slice(row);
                go_through!(values, start, best_left, place_left);
            }
        }
        // A separate function: the loop above keeps its lanes in registers only if nothing else uses them
        // here.
        first_of(&[best, best_left], &[place, place_left])
    }
}

/// The greatest value and its position; of equal values the first.
#[inline(never)]
fn first_of<T: Number>(values: &[[T; LANES]; 2], places: &[[i32; LANES]; 2]) -> (T, i32) {
    let (values, places) = (values.as_flattened(), places.as_flattened());
    let greatest = values
        .iter()
        .fold(T::LOWER_BOUND, |best, &value| if comes_first(value, best) { value } else { best });
    let is_it = |value: &T| !comes_first(greatest, *value);
    let place = values.iter().zip(places).filter(|(value, _)| is_it(value)).map(|(_, &place)| place).min();
    (greatest, place.unwrap_or(places[0]))
}

/// Whether a value replaces the greatest so far; NaN replaces everything except NaN.
#[allow(clippy::neg_cmp_op_on_partial_ord, clippy::eq_op)]
#[inline(always)]
fn comes_first<T: Number>(value: T, best: T) -> bool {
    !(value <= best) & (best == best)
}

/// Computes one row of windows.
struct RowOfWindows<'a, T> {
    pool: &'a Pool<T>,
    /// The reordered rows.
    rows: &'a [T],
    taps: &'a [(usize, i32)],
    /// Elements of the plane before the windows' first row.
    before: i32,
    maxima: &'a mut [T],
    places: &'a mut [i32],
}

impl<T: Number> Job for RowOfWindows<'_, T> {
    type Output = ();
    // Loops by index instead of closures, which would be compiled separately.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) {
        let RowOfWindows { pool, rows, taps, before, maxima, places } = self;
        for k in (0..maxima.len()).step_by(LANES) {
            let mut best = [T::LOWER_BOUND; LANES];
            let (mut start, mut place) = ([0; LANES], [0; LANES]);
            start.copy_from_slice(&pool.starts[k..k + LANES]);
            place.copy_from_slice(&pool.firsts[k..k + LANES]);
            for l in 0..LANES {
                place[l] = place[l].wrapping_add(before);
            }
            // One loop through all elements of the windows, so that the maxima so far stay in registers.
            for &(from, here) in taps {
                let values = &rows[from + k..from + k + LANES];
                for l in 0..LANES {
                    let taken = comes_first(values[l], best[l]);
                    best[l] = if taken { values[l] } else { best[l] };
                    place[l] = if taken { start[l].wrapping_add(here) } else { place[l] };
                }
            }
            let n = LANES.min(maxima.len() - k);
            maxima[k..k + n].copy_from_slice(&best[..n]);
            places[k..k + n].copy_from_slice(&place[..n]);
        }
    }
}
