//! GPTQ: the columns of a weight are rounded one after the other, and the columns that are left take the
//! error of each (Frantar et al.: GPTQ, accurate post-training quantization for generative pre-trained
//! transformers, 2022).
//!
//! With the mean products H of the layer's inputs, and U the upper Cholesky factor of H⁻¹ = Uᵀ·U, rounding
//! column i by e = (wᵢ − qᵢ) / Uᵢᵢ subtracts e · Uᵢⱼ from each column j > i. Rows are independent of each
//! other.

use tensor_core::{Error, IntegerGroups, Result};

use super::OP;

/// Options of GPTQ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GptqOptions {
    /// The part of the mean of H's diagonal that is added to the diagonal: 0.01 by default.
    pub damping: f64,
    /// Whether columns are rounded in the order of their inputs' mean squares, largest first, in place of
    /// their own order. Groups then have the scales of the weight as it was (`static_groups`), so that each
    /// group stays a run of neighbours. Off by default.
    pub act_order: bool,
}

impl Default for GptqOptions {
    fn default() -> GptqOptions {
        GptqOptions { damping: 0.01, act_order: false }
    }
}

/// Rows whose updates read the factor once.
const ROWS: usize = 16;
/// Partial sums of a dot product.
const LANES: usize = 8;

/// The integers of a weight, row by row, with the scale and the zero point of each group.
pub(super) struct Rounded {
    pub(super) integers: Vec<i32>,
    pub(super) scales: Vec<(f32, f32)>,
}

/// Rounds a weight whose rows have `columns` elements, for inputs with these mean products. Columns whose
/// input is always 0 become 0.
///
/// # Errors
/// Products that are not positive definite, or groups that do not divide a row.
pub(super) fn gptq(
    mut weight: Vec<f64>,
    columns: usize,
    mut products: Vec<f64>,
    groups: IntegerGroups,
    options: GptqOptions,
) -> Result<Rounded> {
    let Some(group) = groups.group_of(columns) else {
        let size = groups.group_size.unwrap_or(0);
        return Err(Error::invalid(OP, format!("groups of {size} do not divide {columns} inputs")));
    };
    for i in 0..columns {
        if products[i * columns + i] == 0.0 {
            products[i * columns + i] = 1.0;
            weight.iter_mut().skip(i).step_by(columns).for_each(|w| *w = 0.0);
        }
    }
    let mut order: Vec<usize> = (0..columns).collect();
    if options.act_order {
        order.sort_by(|&a, &b| products[b * columns + b].total_cmp(&products[a * columns + a]));
    }
    let factor = inverse_factor(&products, &order, options.damping)?;
    let rows = weight.len() / columns;
    let mut scales = vec![(1.0, 0.0); rows * (columns / group)];
    let fit = |row: &[f64]| groups.fit(&row.iter().map(|&w| w as f32).collect::<Vec<_>>());
    if options.act_order {
        scales.iter_mut().zip(weight.chunks_exact(group)).for_each(|(scale, row)| *scale = fit(row));
    }
    let mut integers = vec![0i32; weight.len()];
    let mut part = vec![0.0; ROWS * columns];
    for first in (0..rows).step_by(ROWS) {
        let count = ROWS.min(rows - first);
        for r in 0..count {
            let row = &weight[(first + r) * columns..][..columns];
            for (to, &from) in part[r * columns..].iter_mut().zip(&order) {
                *to = row[from];
            }
        }
        for (i, &column) in order.iter().enumerate() {
            let line = &factor[i * columns..][..columns];
            for r in 0..count {
                let row = &mut part[r * columns..][..columns];
                let scale = &mut scales[(first + r) * (columns / group) + column / group];
                if !options.act_order && i % group == 0 {
                    *scale = fit(&row[i..i + group]);
                }
                let q = groups.round(row[i] as f32, *scale);
                integers[(first + r) * columns + column] = q;
                let rounded = f64::from((q as f32 - scale.1) * scale.0);
                let error = (row[i] - rounded) / line[i];
                row[i..].iter_mut().zip(&line[i..]).for_each(|(w, u)| *w -= error * u);
            }
        }
    }
    Ok(Rounded { integers, scales })
}

/// U with (P + λI)⁻¹ = Uᵀ·U for products P in an order of their columns, upper triangular. With P + λI = R·Rᵀ
/// for an upper triangular R, U is R⁻¹.
fn inverse_factor(products: &[f64], order: &[usize], damping: f64) -> Result<Vec<f64>> {
    let n = order.len();
    let mean = (0..n).map(|i| products[i * n + i]).sum::<f64>() / n as f64;
    // R is the usual lower factor of the reversed matrix, reversed.
    let at = |i: usize| order[n - 1 - i];
    let mut lower = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            let (before, row) = lower.split_at_mut(i * n);
            let diagonal = if i == j { damping * mean } else { 0.0 };
            let entry = products[at(i) * n + at(j)] + diagonal;
            if i == j {
                let left = entry - dot(&row[..j], &row[..j]);
                if !(left > 0.0 && left.is_finite()) {
                    let message = format!(
                        "the products of the inputs are not positive definite at input {}: give more calibration \
                         data or more damping than {damping}",
                        at(i)
                    );
                    return Err(Error::invalid(OP, message));
                }
                row[j] = left.sqrt();
            } else {
                let other = &before[j * n..][..n];
                row[j] = (entry - dot(&row[..j], &other[..j])) / other[j];
            }
        }
    }
    // Row i of L⁻¹ is (eᵢ − Σ Lᵢₖ · row k) / Lᵢᵢ over k < i.
    let mut inverse = vec![0.0; n * n];
    for i in 0..n {
        let (before, row) = inverse.split_at_mut(i * n);
        for k in 0..i {
            let by = lower[i * n + k];
            row[..=k].iter_mut().zip(&before[k * n..][..=k]).for_each(|(to, from)| *to -= by * from);
        }
        row[i] = 1.0;
        let by = lower[i * n + i];
        row[..=i].iter_mut().for_each(|x| *x /= by);
    }
    inverse.reverse(); // both axes
    Ok(inverse)
}

/// Σ aᵢ bᵢ in eight partial sums.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a.zip(b) {
        for k in 0..LANES {
            sums[k] += a[k] * b[k];
        }
    }
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_is_that_of_the_inverse() -> Result<()> {
        const N: usize = 21;
        let x: Vec<f64> =
            (0..40 * N).map(|i| f64::from((i * i * 7 + i * 3) as u32 % 101) / 50.0 - 1.0).collect();
        let mut products = vec![0.0; N * N];
        for row in x.chunks_exact(N) {
            for i in 0..N {
                for j in 0..N {
                    products[i * N + j] += row[i] * row[j];
                }
            }
        }
        let order: Vec<usize> = (0..N).map(|i| i * 8 % N).collect();
        let factor = inverse_factor(&products, &order, 0.0)?;
        let product = |i: usize, j: usize| (0..N).map(|k| factor[k * N + i] * factor[k * N + j]).sum::<f64>();
        // Uᵀ·U times the products is the identity.
        for i in 0..N {
            assert!(factor[i * N..][..i].iter().all(|&x| x == 0.0), "upper triangular");
            for j in 0..N {
                let entry: f64 = (0..N).map(|k| product(i, k) * products[order[k] * N + order[j]]).sum();
                let wanted = if i == j { 1.0 } else { 0.0 };
                assert!((entry - wanted).abs() < 1e-9, "{i} {j}: {entry}");
            }
        }
        products[0] = -1.0;
        assert!(inverse_factor(&products, &order, 0.01).is_err());
        Ok(())
    }
}
