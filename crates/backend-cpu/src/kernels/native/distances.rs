//! Distances between pairs of points. Neighbouring points form a panel, transposed so that their values of
//! one coordinate are contiguous; each step of a tile combines one coordinate of the whole panel with that
//! of a few other points. Up to 64 coordinates are summed in the points' dtype, and these partial sums in
//! f64.
#![allow(unsafe_code)]

use std::{cmp::min, ops::Range};

use tensor_core::{Distances, Launch, Measure, Result};

use super::custom::{Native, for_float};
use crate::{
    CpuBackend,
    memory::buffer::{Bound, Memory},
    simd::{
        isa::{Isa, Job},
        vector::Float,
    },
    threads,
    tuning::{DISTANCE_TASK_POINTS, ELEMENT_GRAIN, OWN_DTYPE_SUM_TERMS},
};

/// Points of a panel, and points of a tile that meet them.
const COLUMNS: usize = 16;
const ROWS: usize = 4;

impl Native for Distances {
    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        for_float!(self, launch, typed(backend, *self, launch))
    }
}

/// The terms of a distance and their sum.
trait Norm: Sync {
    /// Adds one more difference to a sum.
    fn add<T: Float>(sum: T, difference: T) -> T;
    /// Joins two partial sums.
    fn join(a: f64, b: f64) -> f64 {
        a + b
    }
    /// The distance, from the sum of all terms. Some norms read the differences again if the sum is not
    /// accurate.
    fn finish<T: Float>(sum: f64, _differences: impl Iterator<Item = T> + Clone) -> f64 {
        sum
    }
}

struct Unequal;
struct Sum;
struct Euclidean;
struct Greatest;

impl Norm for Unequal {
    #[inline(always)]
    fn add<T: Float>(sum: T, difference: T) -> T {
        sum + if difference == T::ZERO { T::ZERO } else { T::ONE }
    }
}

impl Norm for Sum {
    #[inline(always)]
    fn add<T: Float>(sum: T, difference: T) -> T {
        sum + difference.abs()
    }
}

impl Norm for Euclidean {
    #[inline(always)]
    fn add<T: Float>(sum: T, difference: T) -> T {
        sum + difference * difference
    }

    #[inline(always)]
    fn finish<T: Float>(sum: f64, differences: impl Iterator<Item = T> + Clone) -> f64 {
        // Squares that underflow are below the rounding error of a sum of at least this size.
        let least = if size_of::<T>() == size_of::<f32>() { 2f64.powi(-90) } else { 2f64.powi(-900) };
        if sum.is_nan() || sum >= least && sum < f64::INFINITY { sum.sqrt() } else { scaled(differences) }
    }
}

/// √Σd² if squares leave the range of the dtype: the differences are divided by the greatest one first.
#[cold]
fn scaled<T: Float>(differences: impl Iterator<Item = T> + Clone) -> f64 {
    let differences = differences.map(Into::<f64>::into);
    let greatest = differences.clone().fold(0.0, |greatest: f64, d| greatest.max(d.abs()));
    if greatest == 0.0 || greatest == f64::INFINITY {
        return greatest;
    }
    greatest * differences.map(|d| (d / greatest).powi(2)).sum::<f64>().sqrt()
}

impl Norm for Greatest {
    #[inline(always)]
    fn add<T: Float>(sum: T, difference: T) -> T {
        let size = difference.abs();
        // A NaN in the sum is kept, and a new NaN replaces the sum.
        if size <= sum || sum.is_nan() { sum } else { size }
    }

    #[inline(always)]
    fn join(a: f64, b: f64) -> f64 {
        Self::add(a, b)
    }
}

fn typed<T: Float>(backend: &CpuBackend, of: Distances, launch: &Launch<'_>) -> Result<()> {
    let bound = Bound::of_launch(&backend.pool, launch)?;
    let shape = |k: usize| launch.kernel.operands[k].layout.shape();
    let (points, others) = (bound.inputs[0], *bound.inputs.last().unwrap_or(&bound.inputs[0]));
    let rank = shape(0).rank();
    let task = Points::<T> {
        isa: backend.isa,
        points: points.at::<T>(0),
        others: others.at::<T>(0),
        out: bound.outputs[0],
        rows: shape(0)[rank - 2],
        columns: shape(bound.inputs.len() - 1)[rank - 2],
        coordinates: shape(0)[rank - 1],
        pairs: bound.inputs.len() == 1,
    };
    let batch: usize = shape(0)[..rank - 2].iter().product();
    match of.measure {
        Measure::Unequal => task.all::<Unequal>(batch),
        Measure::Sum => task.all::<Sum>(batch),
        Measure::Euclidean => task.all::<Euclidean>(batch),
        Measure::Greatest => task.all::<Greatest>(batch),
    }
    Ok(())
}

struct Points<T> {
    isa: Isa,
    points: *const T,
    others: *const T,
    out: Memory,
    rows: usize,
    columns: usize,
    coordinates: usize,
    /// Whether points are only compared with the points after them.
    pairs: bool,
}

// SAFETY: inputs are only read, and threads write different distances.
unsafe impl<T> Sync for Points<T> {}

impl<T: Float> Points<T> {
    fn all<N: Norm>(&self, batch: usize) {
        let (panels, stretches) = (self.columns.div_ceil(COLUMNS), self.rows.div_ceil(DISTANCE_TASK_POINTS));
        let task = |i: usize| {
            let (rest, stretch) = (i / stretches, i % stretches);
            let (matrix, panel) = (rest / panels, rest % panels);
            let rows = stretch * DISTANCE_TASK_POINTS..min((stretch + 1) * DISTANCE_TASK_POINTS, self.rows);
            let columns = panel * COLUMNS..min((panel + 1) * COLUMNS, self.columns);
            self.isa.run(Panel { of: self, matrix, rows, columns, norm: std::marker::PhantomData::<N> });
        };
        let count = batch * panels * stretches;
        match batch * self.rows * self.columns * self.coordinates >= 2 * ELEMENT_GRAIN {
            true => threads::share(count, task),
            false => (0..count).for_each(task),
        }
    }

    /// The number of distances of each matrix.
    fn distances(&self) -> usize {
        if self.pairs { self.rows * (self.rows - 1) / 2 } else { self.rows * self.columns }
    }

    /// The position of the distance of two points in the output; for `pairs`, `column` is greater than
    /// `row`.
    fn place(&self, row: usize, column: usize) -> usize {
        if self.pairs {
            row * (2 * self.rows - row - 1) / 2 + column - row - 1
        } else {
            row * self.columns + column
        }
    }
}

/// A panel of points, and the points it is compared with.
struct Panel<'a, T, N> {
    of: &'a Points<T>,
    matrix: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    norm: std::marker::PhantomData<N>,
}

impl<T: Float, N: Norm> Job for Panel<'_, T, N> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Points { points, others, out, rows, columns, coordinates, pairs, .. } = *self.of;
        // Points after the panel's last point are not compared with it.
        let end = if pairs { min(self.rows.end, self.columns.end - 1) } else { self.rows.end };
        if self.rows.start >= end {
            return;
        }
        // SAFETY: `check_custom` and `of_launch` checked that the inputs have these rows.
        let point = |first: *const T, of: usize, row: usize| unsafe {
            std::slice::from_raw_parts(first.add((self.matrix * of + row) * coordinates), coordinates)
        };
        let mut panel = vec![[T::ZERO; COLUMNS]; coordinates];
        for (lane, column) in self.columns.clone().enumerate() {
            panel.iter_mut().zip(point(others, columns, column)).for_each(|(lanes, &x)| lanes[lane] = x);
        }
        for first in (self.rows.start..end).step_by(ROWS) {
            // After the last row it is repeated; the results of the repetitions are not stored.
            let tile: [&[T]; ROWS] = std::array::from_fn(|i| point(points, rows, min(first + i, end - 1)));
            let found = distances::<T, N>(tile, &panel);
            for (row, found) in (first..end).zip(&found) {
                let from = if pairs { self.columns.start.max(row + 1) } else { self.columns.start };
                let at = self.matrix * self.of.distances() + self.of.place(row, from);
                // SAFETY: `check_custom` and `of_launch` checked that the output has all distances; this
                // task alone writes the ones of its panel and rows.
                let places =
                    unsafe { std::slice::from_raw_parts_mut(out.at::<T>(at), self.columns.end - from) };
                places.copy_from_slice(&found[from - self.columns.start..self.columns.len()]);
            }
        }
    }
}

/// The distances between each of a few points and the points of a panel.
#[inline(always)]
fn distances<T: Float, N: Norm>(points: [&[T]; ROWS], panel: &[[T; COLUMNS]]) -> [[T; COLUMNS]; ROWS] {
    let mut totals = [[0f64; COLUMNS]; ROWS];
    for from in (0..panel.len()).step_by(OWN_DTYPE_SUM_TERMS) {
        let group = &panel[from..min(from + OWN_DTYPE_SUM_TERMS, panel.len())];
        let points = points.map(|point| &point[from..from + group.len()]);
        let mut sums = [[T::ZERO; COLUMNS]; ROWS];
        for (k, lanes) in group.iter().enumerate() {
            for (sums, point) in sums.iter_mut().zip(points) {
                let x = point[k];
                for (sum, &y) in sums.iter_mut().zip(lanes) {
                    *sum = N::add(*sum, x - y);
                }
            }
        }
        for (totals, sums) in totals.iter_mut().zip(sums) {
            totals.iter_mut().zip(sums).for_each(|(total, sum)| *total = N::join(*total, sum.into()));
        }
    }
    std::array::from_fn(|i| {
        std::array::from_fn(|lane| {
            let differences = points[i].iter().zip(panel).map(move |(&x, lanes)| x - lanes[lane]);
            T::rounded(N::finish(totals[i][lane], differences))
        })
    })
}
