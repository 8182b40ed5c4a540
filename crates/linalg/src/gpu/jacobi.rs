//! Singular values and eigenvalues by Jacobi rotations. A sweep visits all pairs of columns, in rounds of
//! disjoint pairs (Brent and Luk 1985); a matrix that a sweep did not change skips the later ones.

use backend_wgpu::WgslProgram;
use taper_shaders::linalg as wgsl;

use super::{
    reflections::{factors, orthogonal, reflected, scale_buffers, scaled},
    stages::{
        Of::{Counts, Numbers},
        Program,
    },
};

/// The greatest number of sweeps. Convergence is quadratic at the end: random matrices take 6 to 10.
fn sweeps(p: &Program) -> usize {
    if p.is_f64() { 20 } else { 15 }
}

/// The number of pairs in a round, and of rounds in a sweep.
fn rounds(n: usize) -> (usize, usize) {
    let pairs = n.div_ceil(2);
    (pairs, (2 * pairs).saturating_sub(1))
}

/// The initial state: V is the identity, and only matrices that cannot be computed are marked as done.
fn started(p: Program, n: usize, with_v: bool) -> Program {
    let of_v = if with_v { n * n } else { 0 };
    let p = p.temporary("v", Numbers, of_v).temporary("moved", Counts, 1).temporary("done", Counts, 1);
    let p =
        if with_v { p.each(("v", Numbers), [n, n], &[], "return select(T(0), T(1), r == c);") } else { p };
    p.each(("moved", Counts), [1, 1], &[], "return 0u;").each(
        ("done", Counts),
        [1, 1],
        &["codes"],
        "return codes[b];",
    )
}

fn settled(p: Program, last: bool) -> Program {
    let kernel = p
        .kernel(&[wgsl::SETTLE], &[("last", usize::from(last))])
        .outputs(&["moved", "done", "codes"])
        .workgroups(64, p.batch.div_ceil(64));
    p.stage(kernel, &["moved", "done", "codes"])
}

/// The sort order of `numbers`, written to `at_place`.
fn ordered(p: Program, count: usize, descending: bool) -> Program {
    let total = p.batch * count;
    let params = [("total", total), ("count", count), ("descending", usize::from(descending))];
    let kernel = p
        .kernel(&[wgsl::ORDER], &params)
        .inputs(&["numbers"])
        .outputs(&["at_place"])
        .workgroups(64, total.div_ceil(64))
        .work(64 * count);
    p.stage(kernel, &["numbers", "at_place"])
}

/// The singular values, and with `full` also the vectors: all of them or the first min(m, n).
///
/// Columns of W, which is A or Aᵀ and has at least as many rows as columns, are rotated until they are
/// orthogonal: W = A·V. Their lengths are the singular values. A QR factorization of W, with its columns in
/// descending order of length, has orthonormal columns even for those of length 0, and a diagonal R.
pub(super) fn svd(p: Program, m: usize, n: usize, full: Option<bool>) -> WgslProgram {
    let (k, l) = (m.min(n), m.max(n));
    let is_tall = m >= n;
    let with_vectors = full.is_some();
    let column = if is_tall { "return a[(b * params.columns + c) * params.rows + r];" } else { AS_IT_IS };
    let p = scale_buffers(p, k)
        .temporary("w", Numbers, k * l)
        .temporary("numbers", Numbers, k)
        .temporary("at_place", Counts, k)
        .each(("w", Numbers), [k, l], &["a"], column);
    let mut p = started(scaled(p, "w", k, l), k, with_vectors);
    let (pairs, turns) = rounds(k);
    let params = [("pairs", pairs), ("columns", k), ("length", l), ("with_v", usize::from(with_vectors))];
    let rotate = p
        .kernel(&[wgsl::PAIRS, wgsl::ROTATE], &params)
        .inputs(&["done"])
        .outputs(&["w", "v", "moved"])
        .workgroups(64, p.batch * pairs)
        .work(8 * (l + k) + 64);
    let sweeps = if k > 1 { sweeps(&p) } else { 0 };
    for sweep in 0..sweeps {
        p = p.repeat(turns, &[(&rotate, &["done", "w", "v", "moved"])]);
        p = settled(p, sweep + 1 == sweeps);
    }
    let norms = p
        .kernel(&[wgsl::NORMS], &[("total", p.batch * k), ("length", l)])
        .inputs(&["w"])
        .outputs(&["lengths"])
        .workgroups(64, p.batch * k)
        .work(l + 64);
    let p = ordered(p.stage(norms, &["w", "numbers"]), k, true);
    let p = p.each(
        ("s", Numbers),
        [1, k],
        &["numbers", "at_place", "scales"],
        "return numbers[b * params.columns + at_place[b * params.columns + c]] * scales[2u * b + 1u];",
    );
    let Some(full) = full else { return p.finish(Some("codes")) };
    let columns = if full { l } else { k };
    let sorted = format!("return w[(b * {k}u + at_place[b * {k}u + c]) * {l}u + r];");
    let p = p
        .temporary("y", Numbers, l * k)
        .temporary("q", Numbers, l * columns)
        .temporary("factors", Numbers, factors(k))
        .each(("y", Numbers), [l, k], &["w", "at_place"], &sorted);
    let p = orthogonal(reflected(p, "y", l, k), "y", "q", [l, k], columns);
    // A column of Q points against that of W if the diagonal of R is negative.
    let (i, j, from_v) = if is_tall { ("r", "c", ("r", "c")) } else { ("c", "r", ("c", "r")) };
    let of_q = format!(
        "let x = q[(b * {l}u + {i}) * {columns}u + {j}]; if ({j} < {k}u && y[(b * {l}u + {j}) * {k}u + {j}] < T(0)) {{ return -x; }} \
         return x;"
    );
    let of_v = format!("return v[(b * {k}u + at_place[b * {k}u + {}]) * {k}u + {}];", from_v.0, from_v.1);
    let p = if is_tall {
        p.each(("u", Numbers), [l, columns], &["q", "y"], &of_q).each(
            ("vh", Numbers),
            [k, k],
            &["v", "at_place"],
            &of_v,
        )
    } else {
        p.each(("vh", Numbers), [columns, l], &["q", "y"], &of_q).each(
            ("u", Numbers),
            [k, k],
            &["v", "at_place"],
            &of_v,
        )
    };
    p.finish(Some("codes"))
}

const AS_IT_IS: &str = "return a[(b * params.rows + r) * params.columns + c];";

/// The eigenvalues of symmetric matrices of which one triangle is read, and the eigenvectors on request: W =
/// Vᵀ·A·V becomes diagonal.
pub(super) fn eigh(p: Program, n: usize, upper: bool, with_vectors: bool) -> WgslProgram {
    let (first, second) = if upper { ("min", "max") } else { ("max", "min") };
    let mirrored = format!("return a[(b * params.rows + {first}(r, c)) * params.columns + {second}(r, c)];");
    let (pairs, turns) = rounds(n);
    let p = scale_buffers(p, n)
        .temporary("w", Numbers, n * n)
        .temporary("numbers", Numbers, n)
        .temporary("at_place", Counts, n)
        .temporary("turns", Numbers, 2 * pairs)
        .each(("w", Numbers), [n, n], &["a"], &mirrored);
    let mut p = started(scaled(p, "w", n, n), n, with_vectors);
    let total = p.batch * pairs;
    let angles = p
        .kernel(&[wgsl::PAIRS, wgsl::ANGLES], &[("pairs", pairs), ("size", n)])
        .inputs(&["w", "done"])
        .outputs(&["moved", "turns"])
        .workgroups(64, total.div_ceil(64));
    let (blocks, of_v) = (pairs * pairs, if with_vectors { pairs * n } else { 0 });
    let total = p.batch * (blocks + of_v);
    let turn = p
        .kernel(
            &[wgsl::PAIRS, wgsl::TURN],
            &[("pairs", pairs), ("size", n), ("blocks", blocks), ("of_v", of_v)],
        )
        .inputs(&["turns", "done"])
        .outputs(&["w", "v"])
        .workgroups(64, total.div_ceil(64))
        .work(64 * 32);
    let sweeps = if n > 1 { sweeps(&p) } else { 0 };
    for sweep in 0..sweeps {
        let stages: [(_, &[&str]); 2] =
            [(&angles, &["w", "done", "moved", "turns"]), (&turn, &["turns", "done", "w", "v"])];
        p = p.repeat(turns, &stages);
        p = settled(p, sweep + 1 == sweeps);
    }
    let diagonal = "return w[(b * params.columns + c) * params.columns + c];";
    let p = ordered(p.each(("numbers", Numbers), [1, n], &["w"], diagonal), n, false);
    let p = p.each(
        ("values", Numbers),
        [1, n],
        &["numbers", "at_place", "scales"],
        "return numbers[b * params.columns + at_place[b * params.columns + c]] * scales[2u * b + 1u];",
    );
    let p = if with_vectors {
        p.each(
            ("vectors", Numbers),
            [n, n],
            &["v", "at_place"],
            "return v[(b * params.rows + at_place[b * params.rows + c]) * params.rows + r];",
        )
    } else {
        p
    };
    p.finish(Some("codes"))
}
