//! The matrix product by subgroups, without barriers, for devices that are processors: the lanes of a subgroup stand side
//! by side along the columns of the result, each with four of them, and share the same rows. See `matmul.rs` for the choice.
//!
//! A processor reads memory for one lane after another, while arithmetic goes on in all of them at once. So each element of
//! the left operand is read by one lane and handed to the others, and only the right one is read by all.

use std::fmt::Write;

use crate::matmul::{Vectors, element, load_rhs};

/// Columns of a lane.
pub(crate) const COLUMNS: usize = 4;
/// The numbers of rows that a subgroup may have.
const ROWS: [usize; 4] = [32, 16, 8, 4];
/// Subgroups that keep the threads of a processor busy.
const ENOUGH: usize = 16;
/// Multiply-adds from which the most rows pay: their text takes a driver several times as long to compile.
const LARGE: usize = 1 << 24;

/// How a product is shared out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Strips {
    /// Rows of a subgroup.
    pub(crate) rows: usize,
    /// Lanes of a subgroup.
    pub(crate) lanes: usize,
}

impl Strips {
    /// The best for a result of m × n with sums over k, and about what one step along k costs then: a read takes as long as 1.5
    /// multiply-adds (measured on lavapipe).
    pub(crate) fn best([m, n, k]: [usize; 3], batch: usize, lanes: usize) -> (Strips, usize) {
        let across = n.div_ceil(lanes * COLUMNS) * batch;
        let cost = |rows: usize| {
            let groups = m.div_ceil(rows) * across;
            let one = 3 * (COLUMNS * lanes + rows.max(lanes)) + 2 * rows * COLUMNS;
            // What is left over of the last round keeps a thread waiting.
            one * groups.max(ENOUGH)
        };
        let small = m.saturating_mul(n).saturating_mul(k).saturating_mul(batch) < LARGE;
        let rows = ROWS.into_iter().skip(small.into()).min_by_key(|&rows| cost(rows)).unwrap_or(ROWS[1]);
        (Strips { rows, lanes }, cost(rows))
    }

    /// Subgroups for a result of m × n.
    pub(crate) fn groups(self, m: usize, n: usize, batch: usize) -> usize {
        m.div_ceil(self.rows) * n.div_ceil(self.lanes * COLUMNS) * batch
    }
}

/// The entry point, with a workgroup of one subgroup. It expects an alias T, `params` with `m`, `n`, `k`, `blocks_m`,
/// `strips_n`, `groups`, the strides `lhs_row`, `lhs_col`, `rhs_row`, `rhs_col`, `out_row`, `out_col`, bindings `lhs`, `rhs`,
/// `output` (in vectors if `wide`), and functions lhs_at, rhs_at and store. Without a `tail`, k is a multiple of four.
pub(crate) fn text(strips: Strips, lhs: Vectors, rhs: Vectors, wide: bool, tail: bool) -> String {
    let Strips { rows, lanes } = strips;
    // No lane leaves early: all are wanted to read for the others. Those beyond an edge repeat what lies inside.
    let mut s = format!(
        "\n@compute @workgroup_size({lanes})\n{}    let g = min(group, params.groups - 1u);\n    let strip = g % params.strips_n;\n    let block_m = (g / params.strips_n) % params.blocks_m;\n    let batch = g / (params.strips_n * params.blocks_m);\n    let lhs_base = lhs_at(batch);\n    let rhs_base = rhs_at(batch);\n    let row0 = block_m * {rows}u;\n    let col0 = (strip * {lanes}u + lane) * {COLUMNS}u;\n",
        taper_shaders::ENTRY
    );
    let last = if lhs == Vectors::First { 4 } else { 1 };
    for q in 0..rows.div_ceil(lanes) {
        let _ = writeln!(s, "    let i{q} = min({}u + lane, {}u);", q * lanes, rows - 1);
        // Along the rows, a lane has four rows at one step of four along k.
        let row = if lhs == Vectors::First { format!("(i{q} >> 2u) * 4u") } else { format!("i{q}") };
        let stride = if lhs == Vectors::First { "" } else { " * params.lhs_row" };
        let _ = writeln!(s, "    let lr{q} = lhs_base + min(row0 + {row}, params.m - {last}u){stride};");
        if tail {
            let _ =
                writeln!(s, "    let tail{q} = lhs_base + min(row0 + i{q}, params.m - 1u) * params.lhs_row;");
        }
    }
    if rhs == Vectors::Last {
        s.push_str("    let rc0 = rhs_base + min(col0, params.n - 4u);\n");
    } else {
        for c in 0..COLUMNS {
            let _ =
                writeln!(s, "    let rc{c} = rhs_base + min(col0 + {c}u, params.n - 1u) * params.rhs_col;");
        }
    }
    for r in 0..rows {
        let _ = writeln!(s, "    var acc{r} = vec4<T>();");
    }
    s.push_str("    var k = 0u;\n    for (; k + 4u <= params.k; k += 4u) {\n");
    for q in 0..rows.div_ceil(lanes) {
        let read = match lhs {
            Vectors::Last => format!("lhs[(lr{q} + k) >> 2u]"),
            Vectors::First => format!("lhs[(lr{q} + (k + (i{q} & 3u)) * params.lhs_col) >> 2u]"),
            Vectors::No => {
                let four: Vec<String> =
                    (0..4).map(|step| format!("lhs[lr{q} + (k + {step}u) * params.lhs_col]")).collect();
                format!("vec4<T>({})", four.join(", "))
            }
        };
        let _ = writeln!(s, "        let t{q} = {read};");
    }
    load_rhs(COLUMNS, rhs, &mut s);
    let handed = |i: usize| handed(i, lanes);
    for r in 0..rows {
        let steps: [String; 4] = if lhs == Vectors::First {
            let x = ["x", "y", "z", "w"][r % 4];
            if r % 4 == 0 {
                for i in r..r + 4 {
                    let _ = writeln!(s, "        let a{i} = {};", handed(i));
                }
            }
            std::array::from_fn(|step| format!("a{}.{x}", r / 4 * 4 + step))
        } else {
            let _ = writeln!(s, "        let a{r} = {};", handed(r));
            std::array::from_fn(|step| format!("a{r}.{}", ["x", "y", "z", "w"][step]))
        };
        // One sum after another, so that each stays in a register.
        let sum = steps.iter().enumerate().fold(format!("acc{r}"), |sum, (step, a)| {
            if step == 0 { format!("{sum} + {a} * b0_0") } else { format!("({sum}) + {a} * b{step}_0") }
        });
        let _ = writeln!(s, "        acc{r} = {sum};");
    }
    s.push_str("    }\n");
    if tail {
        one_by_one(strips, lhs, rhs, &mut s);
    }
    s.push_str("    if (group >= params.groups) {\n        return;\n    }\n");
    let _ = writeln!(s, "    let at = batch * params.m * params.n + col0 * params.out_col;");
    for r in 0..rows {
        let _ = writeln!(s, "    if (row0 + {r}u < params.m) {{");
        let _ = writeln!(s, "        let line = at + (row0 + {r}u) * params.out_row;");
        let stored = |x: &str| format!("store(acc{r}.{x})");
        if wide {
            let _ = writeln!(
                s,
                "        if (col0 < params.n) {{ output[line >> 2u] = vec4<T>({}); }}",
                ["x", "y", "z", "w"].map(stored).join(", ")
            );
        } else {
            for (c, x) in ["x", "y", "z", "w"].into_iter().enumerate() {
                let _ = writeln!(
                    s,
                    "        if (col0 + {c}u < params.n) {{ output[line + {c}u * params.out_col] = {}; }}",
                    stored(x)
                );
            }
        }
        s.push_str("    }\n");
    }
    s.push_str("}\n");
    s
}

/// What a lane read for all.
fn handed(i: usize, lanes: usize) -> String {
    format!("subgroupBroadcast(t{}, {}u)", i / lanes, i % lanes)
}

/// The steps along k that are left when no four are.
fn one_by_one(strips: Strips, lhs: Vectors, rhs: Vectors, s: &mut String) {
    let Strips { rows, lanes } = strips;
    s.push_str("    for (; k < params.k; k += 1u) {\n");
    for q in 0..rows.div_ceil(lanes) {
        let _ = writeln!(
            s,
            "        let t{q} = {};",
            element("lhs", lhs, &format!("tail{q} + k * params.lhs_col"))
        );
    }
    let four: Vec<String> = (0..COLUMNS)
        .map(|c| {
            let column = if rhs == Vectors::Last { format!("rc0 + {c}u") } else { format!("rc{c}") };
            element("rhs", rhs, &format!("{column} + k * params.rhs_row"))
        })
        .collect();
    let _ = writeln!(s, "        let b = vec4<T>({});", four.join(", "));
    for r in 0..rows {
        let _ = writeln!(s, "        acc{r} += {} * b;", handed(r, lanes));
    }
    s.push_str("    }\n");
}
