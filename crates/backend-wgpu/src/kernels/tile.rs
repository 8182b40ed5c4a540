//! The contraction in workgroup memory, as unrolled text. A workgroup computes a tile of the result, 16
//! steps along k at a time, and each of its invocations keeps 4 × 4 or 8 × 8 results in registers.
//! `contract.rs` chooses the variant.
//!
//! Both operands are stored k-major in vectors of four, so that a step reads whole vectors. A *unit* is a
//! block of 4 × 4 elements of an operand, which one invocation loads: as four vectors along the dense axis,
//! or as 16 elements.

use crate::{
    codegen::{dtypes::FIELDS, wgsl::Code},
    kernels::epilogue::Store,
};

/// The axis of an operand along which four elements are read at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dense {
    /// None: one element at a time.
    Neither,
    /// Along the result's rows or columns.
    Outer,
    /// Along k.
    Inner,
}

/// The steps along k that are in workgroup memory at once.
const DEPTH: usize = 16;

/// The size of a tile: `side` × `side` results; an invocation has `fours` × `fours` blocks of 4 × 4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tile {
    pub(crate) side: usize,
    fours: usize,
}

impl Tile {
    /// 32 × 32 results with 64 invocations: for small results, and for elements of 8 bytes.
    pub(crate) const SMALL: Tile = Tile { side: 32, fours: 1 };
    /// 64 × 64 results with 64 invocations.
    pub(crate) const MEDIUM: Tile = Tile { side: 64, fours: 2 };
    /// 128 × 128 results with 256 invocations.
    pub(crate) const LARGE: Tile = Tile { side: 128, fours: 2 };

    /// All tile sizes.
    pub(crate) const ALL: [Tile; 3] = [Tile::SMALL, Tile::MEDIUM, Tile::LARGE];

    /// Invocations along one side of a workgroup.
    fn across(self) -> usize {
        self.side / (4 * self.fours)
    }

    fn invocations(self) -> usize {
        self.across() * self.across()
    }

    /// The distance between steps along k, in vectors: one more than needed, which avoids bank conflicts.
    fn pitch(self) -> usize {
        self.side / 4 + 1
    }

    /// The units of an operand in a block of steps. Each invocation loads one unit of each operand; if
    /// there are twice as many invocations as units, one half loads the left operand and the other half the
    /// right one.
    fn units(self) -> usize {
        self.side / 4 * (DEPTH / 4)
    }

    /// The first invocation that loads a unit of an operand, and the condition for the invocations that do.
    fn bringing(self, name: &str) -> (usize, Option<String>) {
        let units = self.units();
        match (units < self.invocations(), name) {
            (false, _) => (0, None),
            (true, "lhs") => (0, Some(format!("local_index < {units}u"))),
            (true, _) => (units, Some(format!("local_index >= {units}u"))),
        }
    }

    /// Bytes of workgroup memory for elements of four bytes.
    pub(crate) fn workgroup_bytes(self) -> usize {
        2 * DEPTH * self.pitch() * 16
    }
}

/// The entry point, for operands with these dense axes and an output in vectors if `vectors`. It expects an
/// alias T, `params` with `m`, `n`, `k`, `tiles_m`, `tiles_n` and `workgroups`, bindings `lhs`, `rhs`,
/// `output`, and the functions of `contract.rs`.
pub(crate) fn write(tile: Tile, [lhs, rhs]: [Dense; 2], store: &Store, vectors: bool, c: &mut Code) {
    let Tile { side, fours } = tile;
    let (across, pitch, half) = (tile.across(), tile.pitch(), side / fours);
    for name in ["lhs", "rhs"] {
        c.line(format_args!("var<workgroup> {name}_tile: array<vec4<T>, {}>;", DEPTH * pitch));
    }
    c.entry(tile.invocations(), |c| {
        // Whole workgroups leave or stay, so all invocations of a workgroup reach the barriers below.
        c.return_if("workgroup_index >= params.workgroups");
        c.bind("tile_n", "workgroup_index % params.tiles_n");
        c.bind("tile_m", "(workgroup_index / params.tiles_n) % params.tiles_m");
        c.bind("batch", "workgroup_index / (params.tiles_n * params.tiles_m)");
        c.bind("row0", format_args!("tile_m * {side}u"));
        c.bind("col0", format_args!("tile_n * {side}u"));
        c.bind("ty", format_args!("local_index / {across}u"));
        c.bind("tx", format_args!("local_index % {across}u"));
        for (name, origin, dense, size) in [("lhs", "row0", lhs, "m"), ("rhs", "col0", rhs, "n")] {
            unit(tile, name, origin, dense, size, c);
        }
        for r in 0..4 * fours {
            (0..fours).for_each(|q| c.var(format_args!("acc{r}_{q}"), "vec4<T>()"));
        }
        c.count("k0", ["0u", "params.k", &format!("{DEPTH}u")], |c| {
            bring_in(tile, "lhs", "params.m", lhs, c);
            bring_in(tile, "rhs", "params.n", rhs, c);
            c.line("workgroupBarrier();");
            c.count("step", ["0u", &format!("{DEPTH}u"), "4u"], |c| {
                for step in 0..4 {
                    for f in 0..fours {
                        let at = format!("(step + {step}u) * {pitch}u + {}u", f * half / 4);
                        c.bind(format_args!("a{step}_{f}"), format_args!("lhs_tile[{at} + ty]"));
                        c.bind(format_args!("b{step}_{f}"), format_args!("rhs_tile[{at} + tx]"));
                    }
                    for r in 0..4 * fours {
                        let a = format!("a{step}_{}.{}", r / 4, FIELDS[r % 4]);
                        for q in 0..fours {
                            c.line(format_args!("acc{r}_{q} += {a} * b{step}_{q};"));
                        }
                    }
                }
            });
            c.line("workgroupBarrier();");
        });
        write_out(tile, store, vectors, c);
    });
}

/// The values that do not change along k for the unit that an invocation loads: `<name>_o` and `<name>_k`,
/// its position along the outer axis and along k in the tile, and `<name>_at<j>`, the offsets of its rows
/// or columns in the buffer.
fn unit(tile: Tile, name: &str, origin: &str, dense: Dense, size: &str, c: &mut Code) {
    c.bind(format_args!("{name}_base"), format_args!("{name}_batch(batch)"));
    let (wide, (first, _)) = (tile.side / 4, tile.bringing(name));
    let e = format!("(local_index - {first}u)");
    // Neighbouring invocations read neighbouring memory along the dense axis.
    let (o, k) = match dense {
        Dense::Inner => (format!("{e} / {}u", DEPTH / 4), format!("{e} % {}u", DEPTH / 4)),
        Dense::Outer | Dense::Neither => (format!("{e} % {wide}u"), format!("{e} / {wide}u")),
    };
    c.bind(format_args!("{name}_o"), o);
    c.bind(format_args!("{name}_k"), format_args!("({k}) * 4u"));
    for j in 0..if dense == Dense::Outer { 1 } else { 4 } {
        // Offsets are clamped at the edge.
        let at = format!("min({origin} + {name}_o * 4u + {j}u, params.{size} - 1u)");
        c.bind(format_args!("{name}_at{j}"), format_args!("{name}_base + {name}_outer({at})"));
    }
}

/// Loads a unit of an operand to its tile, with zeros beyond the edges.
fn bring_in(tile: Tile, name: &str, size: &str, dense: Dense, c: &mut Code) {
    let pitch = tile.pitch();
    let origin = if name == "lhs" { "row0" } else { "col0" };
    let head = tile.bringing(name).1.map_or(String::new(), |condition| format!("if ({condition})"));
    c.block(head, |c| {
        c.bind("o", format_args!("{origin} + {name}_o * 4u"));
        c.bind("k", format_args!("k0 + {name}_k"));
        (0..4).for_each(|i| c.var(format_args!("v{i}"), "vec4<T>()"));
        match dense {
            // Four steps along k, one vector each, as the tile stores them.
            Dense::Outer => {
                for i in 0..4 {
                    c.when(format_args!("o < {size} && k + {i}u < params.k"), |c| {
                        let place = format!("{name}_at0 + {name}_inner(k + {i}u)");
                        c.set(format_args!("v{i}"), format_args!("load4_{name}({place})"));
                    });
                }
            }
            // Four rows, one vector along k each, transposed when they are stored.
            Dense::Inner => c.when("k < params.k", |c| {
                c.bind("along", format_args!("{name}_inner(k)"));
                for i in 0..4 {
                    c.when(format_args!("o + {i}u < {size}"), |c| {
                        c.set(format_args!("v{i}"), format_args!("load4_{name}({name}_at{i} + along)"));
                    });
                }
            }),
            Dense::Neither => {
                for i in 0..4 {
                    c.when(format_args!("k + {i}u < params.k"), |c| {
                        c.bind("along", format_args!("{name}_inner(k + {i}u)"));
                        for (j, x) in FIELDS.iter().enumerate() {
                            c.when(format_args!("o + {j}u < {size}"), |c| {
                                c.set(
                                    format_args!("v{i}.{x}"),
                                    format_args!("load_{name}({name}_at{j} + along)"),
                                );
                            });
                        }
                    });
                }
            }
        }
        for (i, x) in FIELDS.iter().enumerate() {
            let four = match dense {
                Dense::Inner => format!("vec4<T>(v0.{x}, v1.{x}, v2.{x}, v3.{x})"),
                Dense::Outer | Dense::Neither => format!("v{i}"),
            };
            c.set(format_args!("{name}_tile[({name}_k + {i}u) * {pitch}u + {name}_o]"), four);
        }
    });
}

/// Writes an invocation's results: the rows and columns of each 4 × 4 block are neighbours in the output,
/// and the blocks are half a tile apart.
fn write_out(tile: Tile, store: &Store, vectors: bool, c: &mut Code) {
    let half = tile.side / tile.fours;
    for r in 0..4 * tile.fours {
        c.bind(format_args!("row_{r}"), format_args!("row0 + {}u + ty * 4u + {}u", r / 4 * half, r % 4));
        c.when(format_args!("row_{r} < params.m"), |c| {
            c.bind("line", format_args!("(batch * params.m + row_{r}) * params.n"));
            for q in 0..tile.fours {
                c.bind(format_args!("col_{q}"), format_args!("col0 + {}u + tx * 4u", q * half));
                if vectors {
                    c.when(format_args!("col_{q} < params.n"), |c| {
                        store.four(&format!("line + col_{q}"), &format!("acc{r}_{q}"), c);
                    });
                } else {
                    let (at, column) = (format!("line + col_{q}"), format!("col_{q}"));
                    store.up_to_four(&at, &column, &format!("acc{r}_{q}"), c);
                }
            }
        });
    }
}
