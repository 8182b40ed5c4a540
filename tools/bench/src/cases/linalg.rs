//! Linear algebra. Results are checked by what defines them: a product of factors is the matrix, columns are
//! orthonormal, a solution solves.

use taper::{
    Device, DeviceKind, Tensor,
    linalg::{QrMode, Tolerance, Uplo, cholesky, eigh, inv, lstsq, pinv, qr, slogdet, solve, svd},
    prelude::TensorGrad,
};

use super::{pair, with_gradients};
use crate::{
    Result,
    case::{Case, Inputs},
    check::{all, host, positions},
};

/// Inputs, from shapes.
type Make = fn(&Inputs) -> Result<Vec<Tensor>>;
/// Results, from the inputs.
type Build = fn(&[Tensor]) -> taper::Result<Vec<Tensor>>;
/// An error unless the results belong to the inputs.
type Check = fn(&[Matrices], &[Matrices]) -> Result<()>;

fn elsewhere(device: &Device) -> Option<&'static str> {
    (device.info().kind == DeviceKind::SoftwareGpu)
        .then_some("a software adapter takes minutes for the rotations of large matrices")
}

pub(super) fn listed() -> Vec<Case> {
    let square = |inputs: &Inputs| Ok(vec![inputs.rand([1000, 1000])?]);
    let system = |inputs: &Inputs| Ok(vec![inputs.rand([1000, 1000])?, inputs.rand([1000, 1])?]);
    vec![
        case("pinv_500", |inputs| Ok(vec![inputs.rand([500, 500])?]), pseudo_inverse, is_pseudo_inverse),
        case("pinv_1000", square, pseudo_inverse, is_pseudo_inverse),
        case("svd_1000", square, full_svd, is_svd),
        case("solve_1000", system, |x| Ok(vec![solve(&x[0], &x[1])?]), solves),
    ]
}

pub(super) fn more() -> Vec<Case> {
    let square = |inputs: &Inputs| Ok(vec![inputs.centred([1000, 1000])?]);
    let tall = |inputs: &Inputs| Ok(vec![inputs.centred([2000, 200])?, inputs.centred([2000, 1])?]);
    let many = |inputs: &Inputs| Ok(vec![inputs.centred([64, 32, 32])?]);
    let systems = |inputs: &Inputs| Ok(vec![inputs.centred([256, 16, 16])?, inputs.centred([256, 16, 1])?]);
    vec![
        case("qr_1000", square, |x| Ok(two(qr(&x[0], QrMode::Reduced)?)), is_qr),
        case("cholesky_1000", definite::<1000>, |x| Ok(vec![cholesky(&x[0], false)?]), is_cholesky),
        case("eigh_500", definite::<500>, |x| Ok(two(eigh(&x[0], Uplo::Lower)?)), is_eigh),
        case("inv_1000", definite::<1000>, |x| Ok(vec![inv(&x[0])?]), is_inverse),
        case("slogdet_1000", definite::<1000>, |x| Ok(two(slogdet(&x[0])?)), is_slogdet),
        case("lstsq_2000x200", tall, |x| Ok(vec![lstsq(&x[0], &x[1], None)?.solution]), is_least),
        case("svd_batch_64x32x32", many, full_svd, is_svd),
        case("solve_batch_256x16", systems, |x| Ok(vec![solve(&x[0], &x[1])?]), solves),
        pinv_backward(),
    ]
}

fn two((a, b): (Tensor, Tensor)) -> Vec<Tensor> {
    vec![a, b]
}

fn pseudo_inverse(x: &[Tensor]) -> taper::Result<Vec<Tensor>> {
    Ok(vec![pinv(&x[0], Tolerance::default(), false)?])
}

fn full_svd(x: &[Tensor]) -> taper::Result<Vec<Tensor>> {
    let (u, s, vh) = svd(&x[0], true)?;
    Ok(vec![u, s, vh])
}

/// A symmetric positive definite matrix: A·Aᵀ + n.
fn definite<const N: usize>(inputs: &Inputs) -> Result<Vec<Tensor>> {
    let a = inputs.centred([N, N])?;
    let matrix = a.matmul(&a.t()?)?.add(&Tensor::eye(N, &a.device())?.mul_scalar(N as f64))?;
    matrix.eval()?;
    Ok(vec![matrix])
}

fn case(name: &str, make: Make, build: Build, check: Check) -> Case {
    Case::new(name, move |inputs| {
        let given = make(inputs)?;
        let kept = given.clone();
        let call = move || {
            let results = build(&given)?;
            taper::eval_all(&results.iter().collect::<Vec<_>>())?;
            Ok(results)
        };
        pair(call, move |results, _| {
            let wide = |tensors: &[Tensor]| tensors.iter().map(Matrices::of).collect::<Result<Vec<_>>>();
            check(&wide(&kept)?, &wide(results)?)
        })
    })
    .unless(elsewhere)
    .min_reps(5)
}

/// A batch of matrices on the host. A vector is a matrix of one row.
struct Matrices {
    values: Vec<f64>,
    rows: usize,
    columns: usize,
}

impl Matrices {
    fn of(tensor: &Tensor) -> Result<Matrices> {
        let (rows, columns) = match tensor.dims() {
            [.., rows, columns] => (*rows, *columns),
            [columns] => (1, *columns),
            [] => (1, 1),
        };
        Ok(Matrices { values: tensor.to_f64_vec()?, rows, columns })
    }

    fn batch(&self) -> usize {
        self.values.len() / (self.rows * self.columns)
    }

    fn at(&self, batch: usize, i: usize, j: usize) -> f64 {
        self.values[(batch * self.rows + i) * self.columns + j]
    }
}

/// An error unless the sum over `k` of `product(batch, i, j, k)` is `want(batch, i, j)`, at some places of a
/// batch of matrices, up to `allowed`.
fn sums(
    what: &str,
    [batch, rows, columns, inner]: [usize; 4],
    allowed: f64,
    product: impl Fn(usize, usize, usize, usize) -> f64,
    want: impl Fn(usize, usize, usize) -> f64,
) -> Result<()> {
    for at in positions(batch * rows * columns, 5000) {
        let (b, i, j) = (at / (rows * columns), at / columns % rows, at % columns);
        let sum: f64 = (0..inner).map(|k| product(b, i, j, k)).sum();
        let want = want(b, i, j);
        if (sum - want).abs() > allowed || sum.is_nan() {
            return Err(format!("wrong result: {what} is {sum} at {b}, {i}, {j}, expected {want}").into());
        }
    }
    Ok(())
}

fn identity(_: usize, i: usize, j: usize) -> f64 {
    if i == j { 1.0 } else { 0.0 }
}

fn greatest(matrix: &Matrices) -> f64 {
    matrix.values.iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// The root of the sum of all squares.
fn norm(matrix: &Matrices) -> f64 {
    matrix.values.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// Relative residual of a stable algorithm in f32; the unit roundoff is 6·10⁻⁸.
const BACKWARD: f64 = 1e-7;

/// Qᵀ·Q = 1.
fn columns_are_orthonormal(what: &str, q: &Matrices) -> Result<()> {
    let size = [q.batch(), q.columns, q.columns, q.rows];
    sums(what, size, 1e-4, |b, i, j, k| q.at(b, k, i) * q.at(b, k, j), identity)
}

fn is_qr(given: &[Matrices], found: &[Matrices]) -> Result<()> {
    let (a, [q, r]) = (&given[0], found) else { return Err("no results".into()) };
    columns_are_orthonormal("Qᵀ·Q", q)?;
    let product = |b, i, j, k| if k <= j { q.at(b, i, k) * r.at(b, k, j) } else { 0.0 };
    sums("Q·R", [1, a.rows, a.columns, q.columns], 1e-4, product, |b, i, j| a.at(b, i, j))
}

fn is_cholesky(given: &[Matrices], found: &[Matrices]) -> Result<()> {
    let (a, l) = (&given[0], &found[0]);
    let product = |b, i: usize, j, k| if k <= i.min(j) { l.at(b, i, k) * l.at(b, j, k) } else { 0.0 };
    sums("L·Lᵀ", [1, a.rows, a.rows, a.rows], 1e-6 * greatest(a), product, |b, i, j| a.at(b, i, j))
}

/// A·V = V·λ, with λ ascending.
fn is_eigh(given: &[Matrices], found: &[Matrices]) -> Result<()> {
    let (a, [values, v]) = (&given[0], found) else { return Err("no results".into()) };
    if !values.values.is_sorted() {
        return Err("wrong result: the eigenvalues are not ascending".into());
    }
    columns_are_orthonormal("Vᵀ·V", v)?;
    let size = [1, a.rows, a.rows, a.rows];
    let allowed = BACKWARD * norm(a);
    sums(
        "A·V",
        size,
        allowed,
        |b, i, j, k| a.at(b, i, k) * v.at(b, k, j),
        |b, i, j| values.values[j] * v.at(b, i, j),
    )
}

/// A·X = 1, as well as the condition of a matrix allows.
fn is_inverse(given: &[Matrices], found: &[Matrices]) -> Result<()> {
    let (a, x) = (&given[0], &found[0]);
    let allowed = 1e-5 + BACKWARD * norm(a) * norm(x);
    sums("A·X", [1, a.rows, a.rows, a.rows], allowed, |b, i, j, k| a.at(b, i, k) * x.at(b, k, j), identity)
}

/// A·X·A = A. That A·X is 1 cannot be asked for: a singular value below the tolerance counts as 0.
fn is_pseudo_inverse(given: &[Matrices], found: &[Matrices]) -> Result<()> {
    let (a, x) = (&given[0], &found[0]);
    let n = a.rows;
    let mut product = vec![0.0; n * n];
    for (i, row) in product.chunks_exact_mut(n).enumerate() {
        for k in 0..n {
            let factor = a.at(0, i, k);
            row.iter_mut().zip(&x.values[k * n..][..n]).for_each(|(sum, x)| *sum += factor * x);
        }
    }
    let allowed = 100.0 * BACKWARD * norm(a);
    sums(
        "A·X·A",
        [1, n, n, n],
        allowed,
        |_, i, j, k| product[i * n + k] * a.at(0, k, j),
        |_, i, j| a.at(0, i, j),
    )
}

/// Checks `slogdet` of a positive definite matrix: twice the sum of the logarithms of its Cholesky factor's
/// diagonal.
fn is_slogdet(given: &[Matrices], found: &[Matrices]) -> Result<()> {
    let (a, [sign, log]) = (&given[0], found) else { return Err("no results".into()) };
    let n = a.rows;
    let mut l = a.values.clone();
    for i in 0..n {
        for j in 0..=i {
            let (head, tail) = l.split_at(i * n);
            let left = &tail[..j];
            let right = if i == j { left } else { &head[j * n..j * n + j] };
            let rest = a.at(0, i, j) - left.iter().zip(right).map(|(x, y)| x * y).sum::<f64>();
            l[i * n + j] = if i == j { rest.sqrt() } else { rest / l[j * n + j] };
        }
    }
    let want = (0..n).map(|i| 2.0 * l[i * n + i].ln()).sum::<f64>();
    all("log of the determinant", &[log.values[0] as f32], &[want], 1e-6)?;
    all("sign", &[sign.values[0] as f32], &[1.0], 0.0)
}

/// Aᵀ·(A·x − b) = 0.
fn is_least(given: &[Matrices], found: &[Matrices]) -> Result<()> {
    let ([a, b], x) = (given, &found[0]) else { return Err("no inputs".into()) };
    let residual: Vec<f64> = (0..a.rows)
        .map(|i| (0..a.columns).map(|k| a.at(0, i, k) * x.at(0, k, 0)).sum::<f64>() - b.at(0, i, 0))
        .collect();
    sums(
        "Aᵀ·(A·x − b)",
        [1, a.columns, 1, a.rows],
        1e-3,
        |_, i, _, k| a.at(0, k, i) * residual[k],
        |_, _, _| 0.0,
    )
}

/// U·S·Vᵀ = A, with S descending.
fn is_svd(given: &[Matrices], found: &[Matrices]) -> Result<()> {
    let (a, [u, s, vh]) = (&given[0], found) else { return Err("no results".into()) };
    columns_are_orthonormal("Uᵀ·U", u)?;
    let n = a.columns;
    if s.values.chunks(n).any(|s| !s.is_sorted_by(|a, b| a >= b) || s[n - 1] < 0.0) {
        return Err("wrong result: the singular values are not descending from 0 on".into());
    }
    let size = [vh.batch(), vh.rows, vh.rows, vh.columns];
    sums("Vᵀ·V", size, 1e-4, |b, i, j, k| vh.at(b, i, k) * vh.at(b, j, k), identity)?;
    let product = |b: usize, i, j, k| u.at(b, i, k) * s.values[b * n + k] * vh.at(b, k, j);
    sums("U·S·Vᵀ", [a.batch(), a.rows, n, n], 1e-4 + 1e-6 * greatest(s), product, |b, i, j| a.at(b, i, j))
}

/// A·X = B, up to the rounding of what is added.
fn solves(given: &[Matrices], found: &[Matrices]) -> Result<()> {
    let ([a, b], x) = (given, &found[0]) else { return Err("no inputs".into()) };
    let size = [a.batch(), a.rows, b.columns, a.columns];
    let allowed = 1e-4 + BACKWARD * norm(a) * norm(x);
    sums("A·X", size, allowed, |m, i, j, k| a.at(m, i, k) * x.at(m, k, j), |m, i, j| b.at(m, i, j))
}

/// With the gradient of the sum weighted at random: of an inverse X, −Xᵀ·W·Xᵀ.
fn pinv_backward() -> Case {
    const N: usize = 200;
    Case::new("pinv_200_fwd_bwd", |inputs| {
        let a = inputs.centred([N, N])?;
        let factors = inputs.rand([N, N])?;
        let leaf = [a.clone().requires_grad()];
        let given = factors.clone();
        let call = move || with_gradients(pinv(&leaf[0], Tolerance::default(), false)?, &given, &leaf);
        pair(call, move |results, _| {
            let (a, w) = (Matrices::of(&a)?, Matrices::of(&factors)?);
            let [gradient, _, x] = results else { return Err("no results".into()) };
            is_inverse(&[a], &[Matrices::of(x)?])?;
            let x = Matrices::of(x)?;
            let product =
                |left: &dyn Fn(usize, usize) -> f64, right: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
                    let element = |at: usize| (0..N).map(|k| left(at / N, k) * right(k, at % N)).sum();
                    (0..N * N).map(element).collect()
                };
            let half = product(&|i, k| x.at(0, k, i), &|k, j| w.at(0, k, j));
            let want = product(&|i, k| -half[i * N + k], &|k, j| x.at(0, j, k));
            all("gradient", &host(gradient)?, &want, 1e-2)
        })
    })
    .unless(elsewhere)
    .min_reps(5)
}
