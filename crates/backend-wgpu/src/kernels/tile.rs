//! The contraction in workgroup memory, as unrolled text: a workgroup makes a tile of the result, 16 steps
//! along k at a time, and each of its invocations keeps 4 × 4 or 8 × 8 results in registers. See
//! `contract.rs` for the choice.
//!
//! Both operands are held k-major in vectors of four, so that a step reads whole vectors. A *unit* is a block
//! of 4 × 4 elements of an operand, which one invocation brings in: four vectors along whichever axis is
//! dense, or 16 elements.

use crate::{
    codegen::{dtypes::FIELDS, wgsl::Code},
    kernels::epilogue::Store,
};

/// The positions of an operand along which four elements are read at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dense {
    /// None: one element at a time.
    Neither,
    /// Along the result's rows or columns.
    Outer,
    /// Along k.
    Inner,
}

/// Steps along k that are in workgroup memory at once.
const DEPTH: usize = 16;

/// The size of a tile: `side` × `side` results, `fours` × `fours` blocks of 4 × 4 an invocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tile {
    pub(crate) side: usize,
    fours: usize,
}

impl Tile {
    /// 32 × 32 by 64 invocations: for small results, and for elements of 8 bytes.
    pub(crate) const SMALL: Tile = Tile { side: 32, fours: 1 };
    /// 64 × 64 by 64 invocations.
    pub(crate) const MEDIUM: Tile = Tile { side: 64, fours: 2 };
    /// 128 × 128 by 256 invocations.
    pub(crate) const LARGE: Tile = Tile { side: 128, fours: 2 };

    /// All of them.
    pub(crate) const ALL: [Tile; 3] = [Tile::SMALL, Tile::MEDIUM, Tile::LARGE];

    /// Invocations along one side of a workgroup.
    fn across(self) -> usize {
        self.side / (4 * self.fours)
    }

    fn invocations(self) -> usize {
        self.across() * self.across()
    }

    /// Vectors from one step along k to the next: one more than there are, against bank conflicts.
    fn pitch(self) -> usize {
        self.side / 4 + 1
    }

    /// Units of an operand in a block of steps. Invocations bring in one of each operand; where there are
    /// twice as many, one half of them brings in the left operand and the other half the right one.
    fn units(self) -> usize {
        self.side / 4 * (DEPTH / 4)
    }

    /// The first invocation that brings in a unit of an operand, and a condition that holds for those that
    /// do.
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

/// The entry point, for operands that are dense so, and an output in vectors if `vectors`. It expects an
/// alias T, `params` with `m`, `n`, `k`, `tiles_m`, `tiles_n` and `workgroups`, bindings `lhs`, `rhs`,
/// `output`, and the functions of `contract.rs`.
pub(crate) fn write(tile: Tile, [lhs, rhs]: [Dense; 2], store: &Store, vectors: bool, c: &mut Code) {
    let Tile { side, fours } = tile;
    let (across, pitch, half) = (tile.across(), tile.pitch(), side / fours);
    for name in ["lhs", "rhs"] {
        c.line(format_args!("var<workgroup> {name}_tile: array<vec4<T>, {}>;", DEPTH * pitch));
    }
    c.entry(tile.invocations(), |c| {
        // A whole workgroup leaves or stays, so the barriers below are met by all of its invocations.
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

/// What does not change along k of the unit of an operand that an invocation brings in: `<name>_o` and
/// `<name>_k`, its position along the outer axis and along k in the tile, and `<name>_at<j>`, the places of
/// its rows or columns in the buffer.
fn unit(tile: Tile, name: &str, origin: &str, dense: Dense, size: &str, c: &mut Code) {
    c.bind(format_args!("{name}_base"), format_args!("{name}_batch(batch)"));
    let (wide, (first, _)) = (tile.side / 4, tile.bringing(name));
    let e = format!("(local_index - {first}u)");
    // Neighbouring invocations read neighbouring memory where an axis is dense.
    let (o, k) = match dense {
        Dense::Inner => (format!("{e} / {}u", DEPTH / 4), format!("{e} % {}u", DEPTH / 4)),
        Dense::Outer | Dense::Neither => (format!("{e} % {wide}u"), format!("{e} / {wide}u")),
    };
    c.bind(format_args!("{name}_o"), o);
    c.bind(format_args!("{name}_k"), format_args!("({k}) * 4u"));
    for j in 0..if dense == Dense::Outer { 1 } else { 4 } {
        // Beyond the edge nothing is read.
        let at = format!("min({origin} + {name}_o * 4u + {j}u, params.{size} - 1u)");
        c.bind(format_args!("{name}_at{j}"), format_args!("{name}_base + {name}_outer({at})"));
    }
}

/// Brings a unit of an operand into its tile, zeros beyond its edges.
fn bring_in(tile: Tile, name: &str, size: &str, dense: Dense, c: &mut Code) {
    let pitch = tile.pitch();
    let origin = if name == "lhs" { "row0" } else { "col0" };
    let head = tile.bringing(name).1.map_or(String::new(), |condition| format!("if ({condition})"));
    c.block(head, |c| {
        c.bind("o", format_args!("{origin} + {name}_o * 4u"));
        c.bind("k", format_args!("k0 + {name}_k"));
        (0..4).for_each(|i| c.var(format_args!("v{i}"), "vec4<T>()"));
        match dense {
            // Four steps along k, a vector each: as it is kept.
            Dense::Outer => {
                for i in 0..4 {
                    c.when(format_args!("o < {size} && k + {i}u < params.k"), |c| {
                        let place = format!("{name}_at0 + {name}_inner(k + {i}u)");
                        c.set(format_args!("v{i}"), format_args!("load4_{name}({place})"));
                    });
                }
            }
            // Four rows, a vector along k each: transposed on the way.
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

/// Writes an invocation's results: rows and columns of each block of 4 × 4 are neighbours in the output, the
/// blocks lie half a tile apart.
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
