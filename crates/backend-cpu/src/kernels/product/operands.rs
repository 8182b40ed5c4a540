//! Operands of contractions in memory, and how their columns are cut into panels of registers. Uses nothing
//! of this folder.
#![allow(unsafe_code)]

use tensor_core::contraction::{Loop, count};

use crate::simd::vector::Vector;

/// Numbers in the widest registers.
pub(crate) const WIDEST: usize = 16;

/// The most rows and registers of columns of any micro-tile.
pub(crate) const MAX_MR: usize = 12;
pub(crate) const MAX_REGISTERS: usize = 3;

/// The distances of positions along rows, columns or terms from the first, in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Steps<'a> {
    /// Each as far from the one before.
    Even(isize),
    /// One by one: those of several axes, such as the windows of a convolution.
    Table(&'a [isize]),
}

impl Steps<'_> {
    pub(crate) fn at(self, i: usize) -> isize {
        match self {
            Steps::Even(step) => i as isize * step,
            Steps::Table(table) => table[i],
        }
    }

    /// The distance of neighbours, where it is always the same.
    pub(crate) fn even(self) -> Option<isize> {
        match self {
            Steps::Even(step) => Some(step),
            Steps::Table(_) => None,
        }
    }

    pub(super) fn is_unit(self) -> bool {
        self.even() == Some(1)
    }
}

/// [`Steps`] with a table of their own.
pub(super) enum Distances {
    Even(isize),
    Table(Vec<isize>),
}

impl Distances {
    pub(super) fn of(loops: &[Loop], stride: impl Fn(&Loop) -> isize) -> Distances {
        match loops {
            [] => Distances::Even(0),
            [one] => Distances::Even(stride(one)),
            several => Distances::Table((0..count(several)).map(|i| offset(several, i, &stride)).collect()),
        }
    }

    pub(super) fn steps(&self) -> Steps<'_> {
        match self {
            Distances::Even(step) => Steps::Even(*step),
            Distances::Table(table) => Steps::Table(table),
        }
    }
}

/// The distance of flat position `i` of a list of axes.
pub(super) fn offset(loops: &[Loop], mut i: usize, stride: impl Fn(&Loop) -> isize) -> isize {
    let mut at = 0;
    for axis in loops.iter().rev() {
        at += (i % axis.size) as isize * stride(axis);
        i /= axis.size;
    }
    at
}

/// An operand as a matrix: element `[i][j]` is at `row.at(i) + column.at(j)`.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a, T> {
    pub(crate) at: *const T,
    pub(crate) row: Steps<'a>,
    pub(crate) column: Steps<'a>,
}

impl<T> Strided<'_, T> {
    pub(crate) fn element(&self, i: usize, j: usize) -> *const T {
        self.at.wrapping_offset(self.row.at(i) + self.column.at(j))
    }

    /// The same, where both axes have even steps.
    pub(crate) fn matrix(&self) -> Option<Matrix<T>> {
        let (row, column) = (self.row.even()?, self.column.even()?);
        Some(Matrix { at: self.at, row, column })
    }
}

/// A matrix in memory, `a[i][j]` at `i · row + j · column`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<T> {
    pub(crate) at: *const T,
    pub(crate) row: isize,
    pub(crate) column: isize,
}

// SAFETY: a matrix is an address that is only read, as a `&[T]` is; the functions that read it are unsafe,
// and ask how much of it there is.
unsafe impl<T: Sync> Send for Matrix<T> {}
// SAFETY: threads that share a matrix share its address, which they only read from.
unsafe impl<T: Sync> Sync for Matrix<T> {}

impl<T> Matrix<T> {
    pub(crate) fn element(&self, i: usize, j: usize) -> *const T {
        self.at.wrapping_offset(i as isize * self.row + j as isize * self.column)
    }
}

/// Columns cut into panels: first those of three registers, then of two, then of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panels {
    width: usize,
    pub(super) counts: [usize; MAX_REGISTERS],
}

impl Panels {
    pub(crate) fn of(columns: usize, width: usize, most: usize) -> Panels {
        let registers = columns.div_ceil(width);
        let counts = match (most, registers, registers % most) {
            // Two and two do more with what they read than three and one.
            (3, 4.., 1) => [registers / 3 - 1, 2, 0],
            (3, _, 2) => [registers / 3, 1, 0],
            (3, _, rest) => [registers / 3, 0, rest],
            (2, _, rest) => [0, registers / 2, rest],
            _ => [0, 0, registers],
        };
        Panels { width, counts }
    }

    pub(crate) fn count(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Registers of the widest.
    pub(crate) fn most(&self) -> usize {
        MAX_REGISTERS - self.counts.iter().position(|&count| count > 0).unwrap_or(0)
    }

    /// The first register of a panel.
    pub(super) fn start(&self, panel: usize) -> usize {
        self.place(panel).0 / self.width
    }

    /// The first column of a panel, and its registers.
    pub(crate) fn place(&self, panel: usize) -> (usize, usize) {
        let [threes, twos, _] = self.counts;
        let (before, registers) = if panel < threes {
            (3 * panel, 3)
        } else if panel < threes + twos {
            (3 * threes + 2 * (panel - threes), 2)
        } else {
            (3 * threes + 2 * twos + (panel - threes - twos), 1)
        };
        (before * self.width, registers)
    }
}

/// How the sums of a product are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// They are written in place of what is there.
    Set,
    /// They are added to it.
    Add,
    /// They are subtracted from it.
    Subtract,
}

impl Update {
    /// [`Update::Add`] if it is so, and else [`Update::Set`].
    pub(crate) fn adds(adds: bool) -> Update {
        if adds { Update::Add } else { Update::Set }
    }
}

/// a · b + c, rounded once where the instruction set can.
#[inline(always)]
pub(crate) fn mul_add<V: Vector>(a: V, b: V, c: V) -> V {
    if V::HAS_FMA { a.fma::<true>(b, c) } else { a.fma::<false>(b, c) }
}
