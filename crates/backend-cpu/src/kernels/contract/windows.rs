//! Columns of a right operand that are read where they lie, by tables, as the windows of a convolution: which registers they fill, and
//! which panels those make. Few enough rows make it dearer to pack them.

use std::ops::Range;

use super::{
    gemm::{FEW_ROWS, Steps},
    micro_kernel::Columns,
};

/// What it takes to pack a register of windows, in those of which a few rows are read where they lie though they are no single run.
const PACKING: usize = 5;
const FEW: usize = 8;

/// The columns of a rectangle, by registers and panels.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    width: usize,
    registers: Vec<Columns>,
    panels: Vec<Range<usize>>,
}

impl Windows {
    /// Of columns at these distances, in registers of `width`, at most `most` of them a panel; if so few rows are formed that packing would not
    /// pay, and columns lie side by side in runs long enough.
    pub(super) fn of(
        column: Steps<'_>,
        rows: usize,
        columns: Range<usize>,
        width: usize,
        most: usize,
    ) -> Option<Windows> {
        if rows > FEW_ROWS {
            return None;
        }
        let registers = registers(column, columns, width)?;
        let whole: Vec<bool> = registers.iter().map(|columns| columns.turn == width).collect();
        let turns = whole.iter().filter(|&&whole| !whole).count();
        if turns * rows > registers.len() * PACKING * FEW {
            return None;
        }
        let panels = panels(&whole, most);
        Some(Windows { width, registers, panels })
    }

    /// How many panels there are.
    pub(super) fn count(&self) -> usize {
        self.panels.len()
    }

    /// Registers of the widest panel.
    pub(super) fn most(&self) -> usize {
        self.panels.iter().map(Range::len).max().unwrap_or(1)
    }

    /// The first column of a panel, counted from the rectangle's, and its registers.
    pub(super) fn place(&self, panel: usize) -> (usize, usize) {
        let registers = &self.panels[panel];
        (registers.start * self.width, registers.len())
    }

    /// The registers of a panel.
    pub(super) fn panel(&self, panel: usize) -> &[Columns] {
        &self.registers[self.panels[panel].clone()]
    }
}

/// Positions in registers of `width`, if each is one run of what lies side by side, or two.
pub(super) fn registers(at: Steps<'_>, positions: Range<usize>, width: usize) -> Option<Vec<Columns>> {
    let mut registers = Vec::with_capacity(positions.len().div_ceil(width));
    for first in positions.clone().step_by(width) {
        let end = positions.end.min(first + width);
        let follows = |&j: &usize| at.at(j) == at.at(j - 1) + 1;
        let turn = first + 1 + (first + 1..end).take_while(follows).count();
        if turn < end && !(turn + 1..end).all(|j| follows(&j)) {
            return None;
        }
        let from = at.at(first);
        let then = if turn < end { at.at(turn) - (turn - first) as isize } else { from };
        registers.push(Columns { from, turn: turn - first, then, count: end - first });
    }
    Some(registers)
}

/// Registers cut into panels, of which some are `whole`: one run of columns. One that is not ends its panel, unless all of the panel's are so: whole
/// ones are read faster, and a micro-kernel knows beforehand which they are.
fn panels(whole: &[bool], most: usize) -> Vec<Range<usize>> {
    let mut panels = Vec::with_capacity(whole.len().div_ceil(most));
    let mut start = 0;
    while start < whole.len() {
        let run = whole[start..].iter().take_while(|&&other| other == whole[start]).count();
        let ends = start + run == whole.len();
        let count = match (whole[start], run) {
            (false, run) => run.min(most),
            // The one that ends the panel, and a panel before it that does not leave it alone.
            (true, run) if run < most && !ends => run + 1,
            (true, run) if run == most && !ends => (most - 1).max(1),
            (true, run) => run.min(most),
        };
        panels.push(start..start + count);
        start += count;
    }
    panels
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::{
        super::{
            gemm::{
                Strided,
                tests::{numbers, operand, product, with_prepared},
            },
            micro_kernel::HasMicroKernels,
        },
        *,
    };
    use crate::simd::isa::Isa;

    #[test]
    fn panels_of_windows_end_with_what_turns() {
        let cut = |text: &str| {
            let whole: Vec<bool> = text.chars().map(|c| c == 'w').collect();
            let cut: Vec<&str> = panels(&whole, 3).into_iter().map(|panel| &text[panel]).collect();
            cut.join(" ")
        };
        assert_eq!(cut("wwwtwwwwwwtwww"), "ww wt www ww wt www");
        assert_eq!(cut("wwwwwt"), "www wwt");
        assert_eq!(cut("ttttw"), "ttt t w");
        assert_eq!(cut("wwww"), "www w");
        assert_eq!(cut("wt"), "wt");
    }

    /// Windows of 3 × 3 over images of two channels, `side` positions each way and `stride` apart: where each lies, and each of their terms.
    pub(crate) fn windows_of(side: usize, stride: usize) -> (Vec<isize>, Vec<isize>, usize) {
        let width = (side - 1) * stride + 3;
        let at = |y: usize, x: usize| (y * width + x) as isize;
        let columns = (0..side * side).map(|j| at(j / side * stride, j % side * stride)).collect();
        let terms = (0..18).map(|t| at(t % 9 / 3, t % 3) + ((t / 9) * width * width) as isize).collect();
        (columns, terms, 2 * width * width)
    }

    /// However windows are read (where they lie, packed by columns, or transposed), an element is the same sum.
    fn check_windows<T: HasMicroKernels + Into<f64> + PartialEq + std::fmt::Debug>(
        number: impl Fn(f64) -> T + Copy,
        epsilon: f64,
    ) {
        for isa in Isa::available() {
            for (side, stride) in [(3, 1), (5, 1), (8, 1), (13, 1), (16, 1), (26, 1), (9, 2), (20, 2)] {
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
                    // SAFETY: all windows lie in the image, and the result in its vector.
                    unsafe { product.run(isa, 0..m, 0..n, None) }.unwrap();
                    // SAFETY: as above.
                    let again = unsafe { with_prepared(isa, product, m, n, number) };
                    assert_eq!(c, again, "{isa:?} {side} {stride} {m}: another sum of a packed operand");
                    // The same sums with the operands' parts exchanged: terms of windows along rows.
                    let mut swapped = numbers(m * n, 6, number);
                    let of_windows = Strided { at: image.as_ptr(), row: b.column, column: b.row };
                    let of_weight = operand(&weight, 1, k as isize);
                    let product = self::product(k, m, [of_windows, of_weight], &mut swapped);
                    // SAFETY: as above.
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
                    // SAFETY: as above.
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
