//! Blocked Cholesky and LU factorizations, and triangular systems.

use backend_wgpu::WgslProgram;
use taper_shaders::linalg as wgsl;

use super::{
    BLOCK,
    stages::{
        Of::{Counts, Numbers},
        Program,
    },
};

/// The position of a matrix in a buffer: for each matrix of the batch, its start and the strides of rows and
/// columns.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) buffer: &'a str,
    pub(super) batch: usize,
    pub(super) start: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl<'a> Place<'a> {
    /// The submatrix of row-major matrices `[m, n]` from row `r` and column `c` on.
    pub(super) fn part(buffer: &'a str, [m, n]: [usize; 2], r: usize, c: usize) -> Place<'a> {
        Place { buffer, batch: m * n, start: r * n + c, rows: n, columns: 1 }
    }

    fn transposed(self) -> Place<'a> {
        Place { rows: self.columns, columns: self.rows, ..self }
    }
}

/// The triangular matrix of a system: which triangle is read, and whether its diagonal is 1.
#[derive(Clone, Copy)]
struct Triangle {
    upper: bool,
    unit: bool,
}

/// Solves T·X = B in place in `x`, for a diagonal block T `[width, width]` and B `[width, right]`.
fn solve_block(
    p: Program,
    t: Place<'_>,
    x: Place<'_>,
    width: usize,
    right: usize,
    Triangle { upper, unit }: Triangle,
) -> Program {
    let inside = t.buffer == x.buffer;
    let from = if inside { "x" } else { "t" };
    let header = format!(
        "\nconst UPPER = {upper};\nconst UNIT = {unit};\nfn triangle(b: u32, i: u32, j: u32) -> T {{ return {from}[b * \
         params.t_batch + params.t_start + i * params.t_rows + j * params.t_columns]; }}\n"
    );
    let strips = right.div_ceil(64);
    let params = [
        ("strips", strips),
        ("right", right),
        ("width", width),
        ("batch_stride", x.batch),
        ("offset", x.start),
        ("along", x.rows),
        ("across", x.columns),
        ("t_batch", t.batch),
        ("t_start", t.start),
        ("t_rows", t.rows),
        ("t_columns", t.columns),
    ];
    let kernel = p
        .kernel(&[&header, wgsl::TRIANGLE], &params)
        .inputs(if inside { &[] } else { &["t"] })
        .outputs(&["x"])
        .workgroups(64, p.batch * strips)
        .work(64 * BLOCK * BLOCK);
    if inside { p.stage(kernel, &[x.buffer]) } else { p.stage(kernel, &[t.buffer, x.buffer]) }
}

/// C −= A·B with A `[rows, depth]`. Operands in C's buffer are read there. With `lower`, the upper tiles of
/// a square C are not changed.
fn update(
    p: Program,
    c: Place<'_>,
    [a, b]: [Place<'_>; 2],
    [rows, columns, depth]: [usize; 3],
    lower: bool,
) -> Program {
    let mut reads: Vec<&str> = Vec::new();
    let mut own = Vec::new();
    let mut header = String::new();
    for (function, [i, j], place) in [("left", ["i", "k"], a), ("right", ["k", "j"], b)] {
        let name = if place.buffer == c.buffer {
            "c"
        } else if let Some(at) = reads.iter().position(|&read| read == place.buffer) {
            own[at]
        } else {
            reads.push(place.buffer);
            own.push(if function == "left" { "a" } else { "b_" });
            own[own.len() - 1]
        };
        header.push_str(&format!(
            "\nfn {function}(b: u32, {i}: u32, {j}: u32) -> T {{ return {name}[b * params.{function}_batch + params.{function}_start + {i} \
             * params.{function}_rows + {j} * params.{function}_columns]; }}"
        ));
    }
    let (down, across) = (rows.div_ceil(64), columns.div_ceil(64));
    let params = [
        ("down", down),
        ("across", across),
        ("rows", rows),
        ("columns", columns),
        ("depth", depth),
        ("batch_stride", c.batch),
        ("offset", c.start),
        ("ld", c.rows),
        ("lower", usize::from(lower)),
        ("left_batch", a.batch),
        ("left_start", a.start),
        ("left_rows", a.rows),
        ("left_columns", a.columns),
        ("right_batch", b.batch),
        ("right_start", b.start),
        ("right_rows", b.rows),
        ("right_columns", b.columns),
    ];
    let kernel = p
        .kernel(&[&header, "\n", wgsl::UPDATE], &params)
        .inputs(&own)
        .outputs(&["c"])
        .workgroups(256, p.batch * down * across)
        .work(64 * 64 * depth.next_multiple_of(16));
    reads.push(c.buffer);
    p.stage(kernel, &reads)
}

/// Solves T·X = B in place in `x`, for triangular matrices `[n, n]` and B `[n, right]`.
fn solve_by_blocks(mut p: Program, t: &str, x: &str, [n, right]: [usize; 2], of: Triangle) -> Program {
    let starts: Vec<usize> = (0..n).step_by(BLOCK).collect();
    let ordered: Vec<usize> = if of.upper { starts.into_iter().rev().collect() } else { starts };
    for start in ordered {
        let width = BLOCK.min(n - start);
        let block = Place::part(x, [n, right], start, 0);
        p = solve_block(p, Place::part(t, [n, n], start, start), block, width, right, of);
        let (first, count) = if of.upper { (0, start) } else { (start + width, n - start - width) };
        if count > 0 {
            let rest = Place::part(x, [n, right], first, 0);
            p = update(p, rest, [Place::part(t, [n, n], first, start), block], [count, right, width], false);
        }
    }
    p
}

pub(super) fn cholesky(p: Program, n: usize) -> WgslProgram {
    let mut p = p.temporary("codes", Counts, 1).each(("codes", Counts), [1, 1], &[], "return 0u;").each(
        ("l", Numbers),
        [n, n],
        &["a"],
        LOWER_OF_A,
    );
    for start in (0..n).step_by(BLOCK) {
        let width = BLOCK.min(n - start);
        let end = start + width;
        let kernel = p
            .kernel(&[wgsl::CHOLESKY_BLOCK], &[("size", n), ("start", start), ("width", width)])
            .outputs(&["w", "codes"])
            .workgroups(BLOCK * BLOCK, p.batch)
            .work(BLOCK * BLOCK * BLOCK);
        p = p.stage(kernel, &["l", "codes"]);
        if end < n {
            let of = |r, c| Place::part("l", [n, n], r, c);
            let lower = Triangle { upper: false, unit: false };
            // L₂₁·L₁₁ᵀ = A₂₁: the rows of L₂₁ are solved for as columns.
            p = solve_block(p, of(start, start), of(end, start).transposed(), width, n - end, lower);
            let left = of(end, start);
            p = update(p, of(end, end), [left, left.transposed()], [n - end, n - end, width], true);
        }
    }
    // Tiles on the diagonal were written above it, too.
    p.each(
        ("l", Numbers),
        [n, n],
        &[],
        "return select(T(0), to[(b * params.rows + r) * params.columns + c], c <= r);",
    )
    .finish(Some("codes"))
}

const LOWER_OF_A: &str = "
    if (c > r) {
        return T(0);
    }
    return a[(b * params.rows + r) * params.columns + c];
";

/// Factors a copy of A in `w`, which becomes L and U; `rows_of`, `swaps` and `codes` receive the row
/// exchanges and the number of a zero pivot.
fn factored(p: Program, m: usize, n: usize) -> Program {
    let k = m.min(n);
    let mut p = p
        .temporary("w", Numbers, m * n)
        .temporary("rows_of", Counts, m)
        .temporary("swaps", Counts, 1)
        .temporary("codes", Counts, 1)
        .each(("w", Numbers), [m, n], &["a"], "return a[(b * params.rows + r) * params.columns + c];")
        .each(("rows_of", Counts), [1, m], &[], "return c;")
        .each(("swaps", Counts), [1, 1], &[], "return 0u;")
        .each(("codes", Counts), [1, 1], &[], "return 0u;");
    for start in (0..k).step_by(BLOCK) {
        let width = BLOCK.min(k - start);
        let end = start + width;
        let params = [("rows", m), ("columns", n), ("start", start), ("width", width)];
        let kernel = p
            .kernel(&[wgsl::LU_PANEL], &params)
            .outputs(&["w", "rows_of", "swaps", "codes"])
            .workgroups(256, p.batch)
            .work((m - start) * BLOCK * BLOCK + n * BLOCK);
        p = p.stage(kernel, &["w", "rows_of", "swaps", "codes"]);
        let of = |r, c| Place::part("w", [m, n], r, c);
        if end < n {
            let lower = Triangle { upper: false, unit: true };
            p = solve_block(p, of(start, start), of(start, end), width, n - end, lower);
        }
        if end < n && end < m {
            let sides = [of(end, start), of(start, end)];
            p = update(p, of(end, end), sides, [m - end, n - end, width], false);
        }
    }
    p
}

pub(super) fn lu(p: Program, m: usize, n: usize) -> WgslProgram {
    let k = m.min(n);
    let lower = format!(
        "if (r == c) {{ return T(1); }} if (r < c) {{ return T(0); }} return w[(b * params.rows + r) * {n}u + c];"
    );
    let upper = format!("if (r > c) {{ return T(0); }} return w[(b * {m}u + r) * params.columns + c];");
    factored(p, m, n)
        .each(
            ("p", Numbers),
            [m, m],
            &["rows_of"],
            "return select(T(0), T(1), rows_of[b * params.rows + c] == r);",
        )
        .each(("l", Numbers), [m, k], &["w"], &lower)
        .each(("u", Numbers), [k, n], &["w"], &upper)
        .finish(None)
}

fn solved(p: Program, n: usize, right: usize) -> Program {
    let p = solve_by_blocks(p, "w", "x", [n, right], Triangle { upper: false, unit: true });
    solve_by_blocks(p, "w", "x", [n, right], Triangle { upper: true, unit: false })
}

pub(super) fn solve(p: Program, n: usize, right: usize) -> WgslProgram {
    let permuted = "return given[(b * params.rows + rows_of[b * params.rows + r]) * params.columns + c];";
    let p = factored(p, n, n).each(("x", Numbers), [n, right], &["given", "rows_of"], permuted);
    solved(p, n, right).finish(Some("codes"))
}

pub(super) fn inv(p: Program, n: usize, checked: bool) -> WgslProgram {
    let permuted = "return select(T(0), T(1), rows_of[b * params.rows + r] == c);";
    let p = solved(factored(p, n, n).each(("x", Numbers), [n, n], &["rows_of"], permuted), n, n);
    if checked {
        return p.finish(Some("codes"));
    }
    let kept =
        "if (codes[b] != 0u) { return infinity(); } return to[(b * params.rows + r) * params.columns + c];";
    p.each(("x", Numbers), [n, n], &["codes"], kept).finish(None)
}

pub(super) fn solve_triangular(p: Program, n: usize, right: usize, upper: bool, unit: bool) -> WgslProgram {
    let p = p.each(
        ("x", Numbers),
        [n, right],
        &["given"],
        "return given[(b * params.rows + r) * params.columns + c];",
    );
    solve_by_blocks(p, "a", "x", [n, right], Triangle { upper, unit }).finish(None)
}

pub(super) fn det(p: Program, n: usize) -> WgslProgram {
    let keep = "\nfn keep(b: u32, mantissa: T, exponent: i32) { found[b] = raised(mantissa, exponent); }\n";
    determinant(p, n, keep, &["found"])
}

pub(super) fn slogdet(p: Program, n: usize) -> WgslProgram {
    let keep = "
fn keep(b: u32, mantissa: T, exponent: i32) {
    sign[b] = select(select(T(1), T(-1), mantissa < T(0)), mantissa, mantissa == T(0) || is_nan(mantissa));
    // ln 2 in two parts, of which the first has exact products.
    let high = T(exponent) * T(0.693359375);
    log[b] = high + (T(exponent) * T(-0.00021219444005469058277) + logarithm(abs(mantissa)));
}
";
    determinant(p, n, keep, &["sign", "log"])
}

fn determinant(p: Program, n: usize, keep: &str, outputs: &[&str]) -> WgslProgram {
    let p = factored(p, n, n);
    let kernel = p
        .kernel(&[keep, wgsl::DETERMINANT], &[("size", n)])
        .inputs(&["w", "swaps"])
        .outputs(outputs)
        .workgroups(64, p.batch.div_ceil(64))
        .work(64 * n * 16);
    let buffers: Vec<&str> = ["w", "swaps"].iter().chain(outputs).copied().collect();
    p.stage(kernel, &buffers).finish(None)
}

pub(super) fn ldl(p: Program, n: usize) -> WgslProgram {
    let p = p.each(("ld", Numbers), [n, n], &["a"], LOWER_OF_A);
    let kernel = p
        .kernel(&["\nconst BUNCH_KAUFMAN = T(0.64038820320220756872);\n", wgsl::LDL], &[("size", n)])
        .outputs(&["w", "pivots"])
        .workgroups(64, p.batch)
        .work(n * n * n);
    p.stage(kernel, &["ld", "pivots"]).finish(None)
}

pub(super) fn ldl_solve(p: Program, n: usize, right: usize) -> WgslProgram {
    let p = p.each(
        ("x", Numbers),
        [n, right],
        &["given"],
        "return given[(b * params.rows + r) * params.columns + c];",
    );
    let total = p.batch * right;
    let kernel = p
        .kernel(&[wgsl::LDL_SOLVE], &[("size", n), ("right", right), ("total", total)])
        .inputs(&["ld", "pivots"])
        .outputs(&["x"])
        .workgroups(64, total.div_ceil(64))
        .work(n * n * 2);
    p.stage(kernel, &["ld", "pivots", "x"]).finish(None)
}
