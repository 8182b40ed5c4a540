//! The contraction of f16 on matrix units, with sums in f32. A workgroup computes a tile of 64 × 64 results,
//! 32 steps along k at a time (`staging.rs`). Its subgroups compute a *piece* of the tile each, in square
//! *fragments*, with four functions: `load_left`, `load_right`, `multiply_add` and `store_sums`. They are
//! written twice: with wgpu's cooperative matrices, and in plain WGSL, where eight invocations take the
//! place of a subgroup, so that tests on every adapter run the kernel around them.
//!
//! The edges of operands are padded with zeros in workgroup memory. Only a subgroup can read a fragment of
//! sums, so sums go through workgroup memory to the epilogue, a fragment of each piece at a time.

use crate::{
    codegen::{capabilities::MatrixUnits, dtypes::FIELDS, wgsl::Code},
    kernels::product::{
        epilogue::Store,
        matrices::{Dense, Side},
        staging::{Block, Staging},
    },
};

/// Rows and columns of a tile.
const SIDE: usize = 64;
/// The steps along k that are in workgroup memory at once.
const DEPTH: usize = 32;
/// The elements from one row or column in workgroup memory to the next. Rows of fragments have to be aligned
/// to 16 bytes; eight more than needed avoid bank conflicts.
const PITCH: usize = DEPTH + 8;
/// The units of an operand in a block of steps.
const UNITS: usize = SIDE / 4 * (DEPTH / 4);
/// The invocations that take the place of a subgroup in plain WGSL, which have a row of a fragment each.
const LANES: usize = 8;

/// The fragments of a tile, and the invocations that compute them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    units: MatrixUnits,
    /// Rows and columns of a fragment.
    size: usize,
    /// The pieces of the tile, down and across.
    pieces: [usize; 2],
    invocations: usize,
    /// The most subgroups of a workgroup. If they are smaller than the largest ones, there are more of them
    /// than pieces, and pieces are computed twice.
    subgroups: usize,
}

impl Grid {
    /// The grid for matrix units, if there is one that fits in `workgroup_bytes`.
    pub(crate) fn new(units: MatrixUnits, workgroup_bytes: usize) -> Option<Grid> {
        let (size, [least, most]) = match units {
            MatrixUnits::Cooperative { size, subgroup_sizes } => (size, subgroup_sizes),
            MatrixUnits::Plain => (LANES, [LANES; 2]),
        };
        let invocations = UNITS.max(4 * most);
        let pieces = match invocations.checked_div(most) {
            Some(4) => [2, 2],
            Some(8) => [4, 2],
            Some(16) => [4, 4],
            _ => return None,
        };
        let subgroups = invocations.checked_div(least)?;
        let grid = Grid { units, size, pieces, invocations, subgroups };
        (grid.workgroup_bytes() <= workgroup_bytes).then_some(grid)
    }

    /// The sizes of the workgroup's tile.
    pub(crate) fn staging(self) -> Staging {
        Staging { side: SIDE, depth: DEPTH, invocations: self.invocations, takes_turns: true }
    }

    /// Whether operands are loaded as f16.
    pub(crate) fn loads_f16(self) -> bool {
        matches!(self.units, MatrixUnits::Cooperative { .. })
    }

    /// The extensions of WGSL that the kernel needs.
    pub(crate) fn extensions(self) -> &'static [&'static str] {
        if self.loads_f16() { &["f16", "wgpu_cooperative_matrix"] } else { &[] }
    }

    /// The fragments of a piece, down and across.
    fn fragments(self) -> [usize; 2] {
        self.pieces.map(|pieces| SIDE / pieces / self.size)
    }

    fn workgroup_bytes(self) -> usize {
        let element = if self.loads_f16() { 2 } else { 4 };
        2 * SIDE * PITCH * element + 4 * self.sums()
    }

    /// The sums in workgroup memory: a fragment of each subgroup.
    fn sums(self) -> usize {
        self.subgroups * self.size * self.size
    }

    /// The arrays in workgroup memory, the types of fragments, and the functions of fragments.
    fn declare(self, c: &mut Code) {
        c.line(format_args!("alias Element = {};", if self.loads_f16() { "f16" } else { "f32" }));
        for name in ["lhs", "rhs"] {
            c.line(format_args!("var<workgroup> {name}_tile: array<Element, {}>;", SIDE * PITCH));
        }
        c.line(format_args!("var<workgroup> sums: array<f32, {}>;", self.sums()));
        match self.units {
            MatrixUnits::Cooperative { size, .. } => cooperative(size, c),
            MatrixUnits::Plain => plain(c),
        }
    }

    /// The function that writes a fragment of each piece to the outputs.
    fn write_out(self, store: &Store, vectors: bool, c: &mut Code) {
        let (size, [down, across], [rows, columns]) = (self.size, self.pieces, self.fragments());
        let fours = size * size / 4;
        let parameters =
            ["local_index", "part", "batch", "first_row", "first_column"].map(|name| (name, "u32"));
        c.function("write_fragments", &parameters, "", |c| {
            let [end, step] = [down * across * fours, self.invocations].map(|n| format!("{n}u"));
            c.count("e", ["local_index", &end, &step], |c| {
                c.bind("piece", format_args!("e / {fours}u"));
                let row = format!("piece / {across}u * {}u + e / {}u % {size}u", rows * size, size / 4);
                c.bind("row", format_args!("first_row + {row}"));
                let column = format!("piece % {across}u * {}u + e % {}u * 4u", columns * size, size / 4);
                c.bind("column", format_args!("first_column + {column}"));
                c.when("row < params.m", |c| {
                    c.bind("line", "part * params.pitch + (batch * params.m + row) * params.n");
                    let four = [0, 1, 2, 3].map(|i| format!("sums[e * 4u + {i}u]")).join(", ");
                    c.bind("four", format_args!("vec4<f32>({four})"));
                    if vectors {
                        c.when("column < params.n", |c| store.four("line + column", "four", c));
                    } else {
                        store.up_to_four("line + column", "column", "four", c);
                    }
                });
            });
        });
    }
}

/// The functions of fragments on matrix units. Both operands are in workgroup memory with k along rows.
fn cooperative(size: usize, c: &mut Code) {
    for (name, element, role) in [("Left", "f16", "A"), ("Right", "f16", "B"), ("Sums", "f32", "C")] {
        c.line(format_args!("alias {name} = coop_mat{size}x{size}<{element}, {role}>;"));
    }
    let at = ("at", "u32");
    c.expression("load_left", &[at], "Left", format_args!("coopLoadT<Left>(&lhs_tile[at], {PITCH}u)"));
    c.expression("load_right", &[at], "Right", format_args!("coopLoad<Right>(&rhs_tile[at], {PITCH}u)"));
    let parameters = [("a", "Left"), ("b", "Right"), ("c", "Sums")];
    c.expression("multiply_add", &parameters, "Sums", "coopMultiplyAdd(a, b, c)");
    c.function("store_sums", &[("c", "Sums"), at], "", |c| {
        c.line(format_args!("coopStoreT(c, &sums[at], {size}u);"));
    });
}

/// The functions of fragments in plain WGSL: a fragment of an operand is its place, and an invocation has a
/// row of sums.
fn plain(c: &mut Code) {
    for (name, ty) in [("Left", "u32"), ("Right", "u32"), ("Sums", "mat2x4<f32>")] {
        c.line(format_args!("alias {name} = {ty};"));
    }
    c.line("var<private> lane: u32;");
    let at = ("at", "u32");
    c.expression("load_left", &[at], "Left", format_args!("at + lane * {PITCH}u"));
    c.expression("load_right", &[at], "Right", "at");
    c.function("multiply_add", &[("a", "Left"), ("b", "Right"), ("c", "Sums")], "Sums", |c| {
        c.var("sum", "c");
        for k in 0..LANES {
            c.bind(format_args!("a{k}"), format_args!("lhs_tile[a + {k}u]"));
            for half in 0..2 {
                let four = [0, 1, 2, 3].map(|j| format!("rhs_tile[b + {}u]", (4 * half + j) * PITCH + k));
                c.line(format_args!("sum[{half}] += a{k} * vec4<f32>({});", four.join(", ")));
            }
        }
        c.line("return sum;");
    });
    c.function("store_sums", &[("c", "Sums"), at], "", |c| {
        for j in 0..LANES {
            let sum = format!("c[{}].{}", j / 4, FIELDS[j % 4]);
            c.set(format_args!("sums[at + lane * {LANES}u + {j}u]"), sum);
        }
    });
}

/// The entry point, for these operands and an output in vectors if `vectors`. It expects an alias T, the
/// parameters of [`Staging::start`] and `pitch` of `parts.rs`, bindings `lhs`, `rhs`, `output`, and the
/// functions of `matrices.rs`.
pub(crate) fn write(grid: Grid, operands: [&Side; 2], store: &Store, vectors: bool, c: &mut Code) {
    let (staging, size, [down, across]) = (grid.staging(), grid.size, grid.pieces);
    let [rows, columns] = grid.fragments();
    grid.declare(c);
    grid.write_out(store, vectors, c);
    let subgroup: &[&str] = if grid.loads_f16() { &["subgroup_id"] } else { &[] };
    c.entry_with(grid.invocations, subgroup, |c| {
        staging.start(c);
        if subgroup.is_empty() {
            c.bind("subgroup_id", format_args!("local_index / {LANES}u"));
            c.set("lane", format_args!("local_index % {LANES}u"));
        }
        c.bind("piece", format_args!("subgroup_id % {}u", down * across));
        c.bind("piece_row", format_args!("piece / {across}u * {}u", rows * size));
        c.bind("piece_column", format_args!("piece % {across}u * {}u", columns * size));
        staging.units_of(operands, c);
        for r in 0..rows {
            (0..columns).for_each(|q| c.var(format_args!("sum{r}_{q}"), "Sums()"));
        }
        let multiply = |c: &mut Code| {
            c.count("step", ["0u", &format!("{DEPTH}u"), &format!("{size}u")], |c| {
                let at = |piece, i| format!("(piece_{piece} + {}u) * {PITCH}u + step", i * size);
                for r in 0..rows {
                    c.bind(format_args!("a{r}"), format_args!("load_left({})", at("row", r)));
                }
                for q in 0..columns {
                    c.bind(format_args!("b{q}"), format_args!("load_right({})", at("column", q)));
                    for r in 0..rows {
                        c.line(format_args!("sum{r}_{q} = multiply_add(a{r}, b{q}, sum{r}_{q});"));
                    }
                }
            });
        };
        let keep = |side: &Side, c: &mut Code| keep(staging.step(side), side, c);
        staging.blocks(operands, &Block { element: "Element", keep: &keep, multiply: &multiply }, c);
        for r in 0..rows {
            for q in 0..columns {
                c.line(format_args!("store_sums(sum{r}_{q}, subgroup_id * {}u);", size * size));
                c.line("workgroupBarrier();");
                let place = format!("row0 + {}u, col0 + {}u", r * size, q * size);
                c.line(format_args!("write_fragments(local_index, part, batch, {place});"));
                c.line("workgroupBarrier();");
            }
        }
    });
}

/// Stores the unit `v0` to `v3` of an operand to its tile, with k along rows; `step` steps are between its
/// vectors.
fn keep(step: usize, side: &Side, c: &mut Code) {
    let name = side.name;
    for (o, outer) in FIELDS.iter().enumerate() {
        for (i, inner) in FIELDS.iter().enumerate() {
            let element = match side.dense {
                Dense::Inner => format!("v{o}.{inner}"),
                Dense::Outer | Dense::Neither => format!("v{i}.{outer}"),
            };
            let at = format!("({name}_o * 4u + {o}u) * {PITCH}u + {name}_k + {}u", i * step);
            c.set(format_args!("{name}_tile[{at}]"), element);
        }
    }
}
