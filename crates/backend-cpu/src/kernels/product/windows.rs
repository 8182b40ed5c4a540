//! Columns of a right operand that are read in place, by tables, as the windows of a convolution: which
//! registers they fill, and which panels those make. Few enough rows make it dearer to pack them.
//!
//! A register is loaded whole, though not all of its elements need be columns: the last elements of a
//! padded row are between two rows of windows. Sums are formed of them too, and not stored.

use std::ops::Range;

use smallvec::SmallVec;

use super::operands::{Panels, Steps};
use crate::tuning::{IN_PLACE_MAX_ROWS, PACK_WINDOW_COST};

/// Runs of columns in a register, at most.
const MOST_RUNS: usize = 3;

/// A register of contiguous elements, and which of them are columns.
#[derive(Clone, Debug)]
pub(crate) struct Strip {
    /// Its distance from the first place.
    pub(crate) from: isize,
    pub(crate) runs: SmallVec<[Run; MOST_RUNS]>,
    /// Whether all of it are columns.
    pub(crate) whole: bool,
    /// The first column.
    first: usize,
}

/// Numbers of a register that are columns, and how far from the panel's first column number 0 would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) to: isize,
}

/// The columns of a rectangle, by registers and panels.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    columns: usize,
    strips: Vec<Strip>,
    panels: Panels,
}

impl Windows {
    /// The registers of columns at these distances: of `width` numbers, at most `most` of them a panel.
    /// `None` if there are rows enough that packing pays, or if the contiguous runs of columns are too
    /// short.
    pub(super) fn of(
        column: Steps<'_>,
        rows: usize,
        columns: Range<usize>,
        width: usize,
        most: usize,
    ) -> Option<Windows> {
        if rows > IN_PLACE_MAX_ROWS {
            return None;
        }
        let full = columns.len().div_ceil(width);
        // Those that are filled in part are formed as all others.
        let fits = |strips: usize| (strips - full) * rows <= full * PACK_WINDOW_COST;
        let mut strips = strips(column, columns.clone(), width, fits)?;
        let panels = Panels::of(strips.len() * width, width, most);
        for panel in 0..panels.count() {
            let (first, registers) = panels.place(panel);
            let strips = &mut strips[first / width..][..registers];
            let first = strips[0].first as isize;
            strips.iter_mut().flat_map(|strip| &mut strip.runs).for_each(|run| run.to -= first);
        }
        Some(Windows { columns: columns.len(), strips, panels })
    }

    /// How many panels there are.
    pub(super) fn count(&self) -> usize {
        self.panels.count()
    }

    /// Registers of the widest panel.
    pub(super) fn most(&self) -> usize {
        self.panels.most()
    }

    /// The columns of a panel, counted from the rectangle's first one.
    pub(super) fn columns(&self, panel: usize) -> Range<usize> {
        let Range { start, end } = self.registers(panel);
        self.strips[start].first..self.strips.get(end).map_or(self.columns, |strip| strip.first)
    }

    /// The registers of a panel.
    pub(super) fn panel(&self, panel: usize) -> &[Strip] {
        &self.strips[self.registers(panel)]
    }

    fn registers(&self, panel: usize) -> Range<usize> {
        let start = self.panels.start(panel);
        start..start + self.panels.place(panel).1
    }
}

/// Columns by registers of `width`, if each has few runs of them and `fits` says of no more registers than
/// there are that they are few enough. All elements that are read are between the first column and the
/// last.
fn strips(
    at: Steps<'_>,
    columns: Range<usize>,
    width: usize,
    fits: impl Fn(usize) -> bool,
) -> Option<Vec<Strip>> {
    let (least, greatest) =
        columns.clone().map(|j| at.at(j)).fold((isize::MAX, isize::MIN), |(a, b), x| (a.min(x), b.max(x)));
    let last = greatest - (width as isize - 1);
    let mut strips: Vec<Strip> = Vec::with_capacity(columns.len().div_ceil(width));
    let mut next = columns.start;
    while next < columns.end {
        let first = next;
        let from = at.at(first).min(last);
        if from < least {
            return None;
        }
        let mut runs = SmallVec::<[Run; MOST_RUNS]>::new();
        let mut before = at.at(first) - 1;
        while next < columns.end {
            let place = at.at(next);
            if place <= before || place - from >= width as isize {
                break;
            }
            let lane = (place - from) as usize;
            if let Some(run) = runs.last_mut().filter(|_| place == before + 1) {
                run.end = lane + 1;
            } else if runs.len() == MOST_RUNS {
                return None;
            } else {
                let to = (next - columns.start) as isize - lane as isize;
                runs.push(Run { start: lane, end: lane + 1, to });
            }
            (before, next) = (place, next + 1);
        }
        strips.push(Strip { from, whole: next - first == width, runs, first: first - columns.start });
        let left = (columns.end - next).div_ceil(width);
        if !fits(strips.len() + left) {
            return None;
        }
    }
    Some(strips)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::{
        super::{
            gemm::tests::{numbers, operand, product, with_prepared},
            kernel_table::HasMicroKernels,
            operands::Strided,
        },
        *,
    };
    use crate::simd::isa::Isa;

    /// The runs of each register, `|` between panels.
    fn cut(column: &[isize], rows: usize) -> Option<String> {
        let windows = Windows::of(Steps::Table(column), rows, 0..column.len(), 4, 2)?;
        let strip = |strip: &Strip| {
            let runs = strip.runs.iter().map(|run| format!("{}..{}>{}", run.start, run.end, run.to));
            format!("{}: {}", strip.from, runs.collect::<Vec<_>>().join(" "))
        };
        let panel = |panel: usize| {
            let strips: Vec<String> = windows.panel(panel).iter().map(strip).collect();
            format!("{:?} {}", windows.columns(panel), strips.join(", "))
        };
        Some((0..windows.count()).map(panel).collect::<Vec<_>>().join(" | "))
    }

    #[test]
    fn registers_of_windows_are_whole_whatever_lies_between() {
        // Rows of five, two elements apart: the last register begins early enough to end with the last
        // column.
        let rows: Vec<isize> = (0..15).map(|j| j / 5 * 7 + j % 5).collect();
        assert_eq!(
            cut(&rows, 1).unwrap(),
            "0..6 0: 0..4>0, 4: 0..1>4 3..4>2 | 6..14 8: 0..4>0, 14: 0..4>4 | 14..15 15: 3..4>-3"
        );
        assert_eq!(cut(&[0, 1, 2, 3, 4, 5, 6, 7], 9).unwrap(), "0..8 0: 0..4>0, 4: 0..4>4");
        // Too few columns to fill a register, or columns too far apart.
        assert!(cut(&[0, 1, 2], 1).is_none());
        assert!(cut(&[0, 9, 18, 27, 36, 45, 54, 63], 4).is_none());
        assert!(cut(&rows, 99).is_none());
    }

    /// Windows of 3 × 3 over images of two channels, `side` positions each way and `stride` apart: the
    /// place of each, and of each of their terms.
    pub(crate) fn windows_of(side: usize, stride: usize) -> (Vec<isize>, Vec<isize>, usize) {
        let width = (side - 1) * stride + 3;
        let at = |y: usize, x: usize| (y * width + x) as isize;
        let columns = (0..side * side).map(|j| at(j / side * stride, j % side * stride)).collect();
        let terms = (0..18).map(|t| at(t % 9 / 3, t % 3) + ((t / 9) * width * width) as isize).collect();
        (columns, terms, 2 * width * width)
    }

    /// However windows are read (in place, packed by columns, or transposed), an element is the same
    /// sum.
    fn check_windows<T: HasMicroKernels + Into<f64> + PartialEq + std::fmt::Debug>(
        number: impl Fn(f64) -> T + Copy,
        epsilon: f64,
    ) {
        for isa in Isa::available() {
            for (side, stride) in
                [(3, 1), (5, 1), (8, 1), (13, 1), (16, 1), (26, 1), (30, 1), (9, 2), (20, 2), (37, 2)]
            {
                let (places, terms, numel) = windows_of(side, stride);
                let image = numbers(numel, 7, number);
                let (n, k) = (places.len(), terms.len());
                for m in [1, 7, 16, 65, 130] {
                    let weight = numbers(m * k, 8, number);
                    let mut c = numbers(m * n, 3, number);
                    let b = Strided {
                        at: image.as_ptr(),
                        row: Steps::Table(&terms),
                        column: Steps::Table(&places),
                    };
                    let a = operand(&weight, k as isize, 1);
                    let product = product(k, n, [a, b], &mut c);
                    // SAFETY: all windows are in the image, and the result in its vector.
                    unsafe { product.run(isa, 0..m, 0..n, None) }.unwrap();
                    // SAFETY: all windows are in the image; the product is of `m` rows and `n` columns.
                    let again = unsafe { with_prepared(isa, product, m, n, number) };
                    assert_eq!(c, again, "{isa:?} {side} {stride} {m}: another sum of a packed operand");
                    // The same sums with the operands' parts exchanged: terms of windows along rows.
                    let mut swapped = numbers(m * n, 6, number);
                    let of_windows = Strided { at: image.as_ptr(), row: b.column, column: b.row };
                    let of_weight = operand(&weight, 1, k as isize);
                    let product = self::product(k, m, [of_windows, of_weight], &mut swapped);
                    // SAFETY: all windows are in the image, and `swapped` has `n * m` elements.
                    unsafe { product.run(isa, 0..n, 0..m, None) }.unwrap();
                    for i in 0..m {
                        for j in 0..n {
                            let term = |t: usize| {
                                let x: f64 = image[(places[j] + terms[t]) as usize].into();
                                weight[i * k + t].into() * x
                            };
                            let sum: f64 = (0..k).map(term).sum();
                            let got: f64 = c[i * n + j].into();
                            assert!((got - sum).abs() <= 20.0 * epsilon, "{isa:?} {side} {stride} {m}");
                            assert_eq!(c[i * n + j], swapped[j * m + i], "{isa:?} {side} {stride} {m}");
                        }
                    }
                    // A weight's gradient: its terms are the windows' places, its columns their terms.
                    let outputs = numbers(m * n, 9, number);
                    let mut gradient = numbers(m * k, 4, number);
                    let b = Strided { at: image.as_ptr(), row: b.column, column: b.row };
                    let a = operand(&outputs, n as isize, 1);
                    let product = self::product(n, k, [a, b], &mut gradient);
                    // SAFETY: all windows are in the image, and `gradient` has `m * k` elements.
                    unsafe { product.run(isa, 0..m, 0..k, None) }.unwrap();
                    for i in 0..m {
                        for t in 0..k {
                            let term = |j: usize| {
                                let x: f64 = image[(places[j] + terms[t]) as usize].into();
                                outputs[i * n + j].into() * x
                            };
                            let (sum, got): (f64, f64) = ((0..n).map(term).sum(), gradient[i * k + t].into());
                            assert!((got - sum).abs() <= n as f64 * epsilon, "{isa:?} {side} {stride} {m}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn windows_give_the_same_sums_however_they_are_read() {
        check_windows::<f32>(|x| x as f32, f32::EPSILON.into());
        check_windows::<f64>(|x| x, f64::EPSILON);
    }
}
