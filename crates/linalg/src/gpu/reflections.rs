//! The QR factorization by panels of Householder reflections.

use backend_wgpu::WgslProgram;
use taper_shaders::linalg as wgsl;

use super::{
    BLOCK,
    stages::{
        Of::{Counts, Numbers},
        Program,
    },
};

/// Buffers for the scaling of a matrix: magnitudes by row, two factors and a code.
pub(super) fn scale_buffers(p: Program, rows: usize) -> Program {
    p.temporary("mosts", Numbers, rows).temporary("scales", Numbers, 2).temporary("codes", Counts, 1)
}

/// Scales each matrix `[rows, columns]` of `w` by a power of two, so that squares neither overflow nor
/// underflow, and records in `codes` which have elements that are not finite.
pub(super) fn scaled(p: Program, w: &str, rows: usize, columns: usize) -> Program {
    let total = p.batch * rows;
    let mosts = p
        .kernel(&[wgsl::ROW_MOST], &[("total", total), ("columns", columns)])
        .inputs(&["w"])
        .outputs(&["mosts"])
        .workgroups(64, total.div_ceil(64))
        .work(64 * columns);
    let scale = p
        .kernel(&[wgsl::SCALE], &[("rows", rows)])
        .inputs(&["mosts"])
        .outputs(&["scales", "codes"])
        .workgroups(64, p.batch)
        .work(rows + 2000);
    p.stage(mosts, &[w, "mosts"]).stage(scale, &["mosts", "scales", "codes"]).each(
        (w, Numbers),
        [rows, columns],
        &["scales"],
        "return to[(b * params.rows + r) * params.columns + c] * scales[2u * b];",
    )
}

/// Reduces each matrix `[m, n]` of `w` to upper triangular form by reflections, whose vectors stay below the
/// diagonal; the factors of their products go to `factors`, with [`factors`] elements.
pub(super) fn reflected(mut p: Program, w: &str, m: usize, n: usize) -> Program {
    let k = m.min(n);
    for (panel, start) in (0..k).step_by(BLOCK).enumerate() {
        let width = BLOCK.min(k - start);
        let params = [
            ("rows", m),
            ("columns", n),
            ("start", start),
            ("width", width),
            ("panel", panel),
            ("panels", k.div_ceil(BLOCK)),
        ];
        let kernel = p
            .kernel(&[wgsl::REFLECT], &params)
            .outputs(&["w", "factors"])
            .workgroups(BLOCK * BLOCK, p.batch)
            .work((m - start) * BLOCK * BLOCK * 4);
        p = p.stage(kernel, &[w, "factors"]);
        p = apply(
            p,
            Reflected { v: w, c: w, m, of_v: n, ld: n, panel, k, first: start + width, transposed: true },
        );
    }
    p
}

/// The number of elements for the factors of a matrix.
pub(super) fn factors(k: usize) -> usize {
    k.div_ceil(BLOCK) * BLOCK * BLOCK
}

/// The columns of `c` from `first` on, to which a panel of reflections is applied.
struct Reflected<'a> {
    v: &'a str,
    c: &'a str,
    m: usize,
    /// The numbers of columns of the matrices of `v` and of `c`.
    of_v: usize,
    ld: usize,
    panel: usize,
    k: usize,
    first: usize,
    transposed: bool,
}

fn apply(p: Program, of: Reflected<'_>) -> Program {
    let Reflected { v, c, m, of_v, ld, panel, k, first, transposed } = of;
    let start = panel * BLOCK;
    let inside = v == c;
    let from = if inside { "c" } else { "v" };
    let header = format!(
        "\nfn reflector(b: u32, r: u32, j: u32) -> T {{ return {from}[(b * params.rows + r) * params.of_v + j]; }}\n"
    );
    let strips = (ld - first).div_ceil(BLOCK);
    let params = [
        ("strips", strips),
        ("rows", m),
        ("ld", ld),
        ("start", start),
        ("width", BLOCK.min(k - start)),
        ("first", first),
        ("right", ld - first),
        ("panel", panel),
        ("panels", k.div_ceil(BLOCK)),
        ("transposed", usize::from(transposed)),
        ("of_v", of_v),
    ];
    let inputs: &[&str] = if inside { &["factors"] } else { &["factors", "v"] };
    let kernel = p
        .kernel(&[&header, wgsl::REFLECTED], &params)
        .inputs(inputs)
        .outputs(&["c"])
        .workgroups(BLOCK * BLOCK, p.batch * strips)
        .work((m - start) * BLOCK * BLOCK * 2);
    if inside { p.stage(kernel, &["factors", c]) } else { p.stage(kernel, &["factors", v, c]) }
}

/// The first `columns` columns of Q `[m, m]` in `q`, from the reflections of a matrix `[m, n]` in `w`.
pub(super) fn orthogonal(p: Program, w: &str, q: &str, [m, n]: [usize; 2], columns: usize) -> Program {
    let k = m.min(n);
    let mut p = p.each((q, Numbers), [m, columns], &[], "return select(T(0), T(1), r == c);");
    for panel in (0..k.div_ceil(BLOCK)).rev() {
        // The columns before are still those of the identity.
        let first = panel * BLOCK;
        p = apply(p, Reflected { v: w, c: q, m, of_v: n, ld: columns, panel, k, first, transposed: false });
    }
    p
}

pub(super) fn qr(p: Program, m: usize, n: usize, complete: bool) -> WgslProgram {
    let k = m.min(n);
    let columns = if complete { m } else { k };
    let p = p.temporary("w", Numbers, m * n).temporary("factors", Numbers, factors(k)).each(
        ("w", Numbers),
        [m, n],
        &["a"],
        "return a[(b * params.rows + r) * params.columns + c];",
    );
    // The whole matrix is not scaled: each column is, when its length is computed.
    let p = reflected(p, "w", m, n);
    let upper = format!("if (r > c) {{ return T(0); }} return w[(b * {m}u + r) * params.columns + c];");
    let p = p.each(("r", Numbers), [columns, n], &["w"], &upper);
    orthogonal(p, "w", "q", [m, n], columns).finish(None)
}

pub(super) fn geqrf(p: Program, m: usize, n: usize) -> WgslProgram {
    let k = m.min(n);
    let p = p.temporary("w", Numbers, m * n).temporary("factors", Numbers, factors(k)).each(
        ("w", Numbers),
        [m, n],
        &["a"],
        "return a[(b * params.rows + r) * params.columns + c];",
    );
    let p = reflected(p, "w", m, n).each(
        ("packed", Numbers),
        [m, n],
        &["w"],
        "return w[(b * params.rows + r) * params.columns + c];",
    );
    let panels = k.div_ceil(BLOCK);
    let factor =
        format!("return factors[(b * {panels}u + c / BLOCK) * BLOCK * BLOCK + c % BLOCK * (BLOCK + 1u)];");
    p.each(("tau", Numbers), [1, k], &["factors"], &factor).finish(None)
}
