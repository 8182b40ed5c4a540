//! The contraction in workgroup memory, as unrolled text. A workgroup computes a tile of the result, 16
//! steps along k at a time, and each of its invocations keeps 4 × 4 or 8 × 8 results in registers.
//! `contract.rs` chooses the variant.
//!
//! Both operands are stored k-major in vectors of four, so that a step reads whole vectors. A *unit* is a
//! block of 4 × 4 elements of an operand, which one invocation loads: as four vectors along the dense axis,
//! or as 16 elements. If those are contiguous along k, but begin anywhere, neighbouring invocations read
//! neighbours along k, and a unit has every fourth step.

use crate::{
    codegen::{dtypes::FIELDS, wgsl::Code},
    kernels::{
        epilogue::Store,
        product::{Dense, Side},
    },
};

/// The steps along k that are in workgroup memory at once.
pub(crate) const DEPTH: usize = 16;

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

    pub(crate) fn invocations(self) -> usize {
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

    /// The invocations that load the units of an operand.
    fn bringing(self, name: &str) -> Bringing {
        let units = self.units();
        match (units < self.invocations(), name) {
            (false, _) => Bringing { first: 0, condition: None },
            (true, "lhs") => Bringing { first: 0, condition: Some(format!("local_index < {units}u")) },
            (true, _) => Bringing { first: units, condition: Some(format!("local_index >= {units}u")) },
        }
    }

    /// Whether an invocation loads the next unit while it multiplies the present one: it has registers for
    /// that if it loads only one of the operands.
    fn fetches_ahead(self) -> bool {
        self.units() < self.invocations()
    }

    /// An invocation's coordinates in its workgroup, y and x. The invocations of a subgroup form a block of
    /// 4 × 8 or more, which reads fewer vectors of the tiles than a row of the same size.
    fn coordinates(self) -> [String; 2] {
        match self.across() {
            16 => [
                "((local_index >> 3u) & 3u) | ((local_index >> 4u) & 12u)".into(),
                "(local_index & 7u) | ((local_index >> 2u) & 8u)".into(),
            ],
            across => [format!("local_index / {across}u"), format!("local_index % {across}u")],
        }
    }

    /// Bytes of workgroup memory for elements of four bytes.
    pub(crate) fn workgroup_bytes(self) -> usize {
        2 * DEPTH * self.pitch() * 16
    }
}

/// The invocations that load the units of an operand: the first one, and the condition for all of them.
struct Bringing {
    first: usize,
    condition: Option<String>,
}

impl Bringing {
    /// A block that these invocations run.
    fn when(&self, c: &mut Code, body: impl FnOnce(&mut Code)) {
        let head = self.condition.as_ref().map_or(String::new(), |condition| format!("if ({condition})"));
        c.block(head, body);
    }
}

/// The entry point, for these operands and an output in vectors if `vectors`. It expects an alias T, `params`
/// with `m`, `n`, `k`, `tiles_m`, `tiles_n`, `workgroups`, and `parts`, `chunk` and `pitch` of `parts.rs`,
/// bindings `lhs`, `rhs`, `output`, and the functions of `product.rs`.
pub(crate) fn write(tile: Tile, [lhs, rhs]: [&Side; 2], store: &Store, vectors: bool, c: &mut Code) {
    let Tile { side, fours } = tile;
    let (pitch, half, ahead) = (tile.pitch(), side / fours, tile.fetches_ahead());
    let operands = [(lhs, "params.m"), (rhs, "params.n")];
    for name in ["lhs", "rhs"] {
        c.line(format_args!("var<workgroup> {name}_tile: array<vec4<T>, {}>;", DEPTH * pitch));
    }
    c.entry(tile.invocations(), |c| {
        // Whole workgroups leave or stay, so all invocations of a workgroup reach the barriers below.
        c.return_if("workgroup_index >= params.workgroups");
        c.bind("part", "workgroup_index % params.parts");
        c.bind("tile", "workgroup_index / params.parts");
        c.bind("tile_n", "tile % params.tiles_n");
        c.bind("tile_m", "(tile / params.tiles_n) % params.tiles_m");
        c.bind("batch", "tile / (params.tiles_n * params.tiles_m)");
        c.bind("begin", "part * params.chunk");
        c.bind("end", "min(begin + params.chunk, params.k)");
        c.bind("row0", format_args!("tile_m * {side}u"));
        c.bind("col0", format_args!("tile_n * {side}u"));
        let [ty, tx] = tile.coordinates();
        c.bind("ty", ty);
        c.bind("tx", tx);
        for (side, origin, size) in [(lhs, "row0", "m"), (rhs, "col0", "n")] {
            unit(tile, side, origin, size, c);
        }
        for r in 0..4 * fours {
            (0..fours).for_each(|q| c.var(format_args!("acc{r}_{q}"), "vec4<T>()"));
        }
        if ahead {
            (0..4).for_each(|i| c.var(format_args!("v{i}"), "vec4<T>()"));
            operands
                .iter()
                .for_each(|(side, size)| tile.bringing(side.name).when(c, |c| fetch(side, "begin", size, c)));
        }
        c.count("k0", ["begin", "end", &format!("{DEPTH}u")], |c| {
            for (side, size) in operands {
                tile.bringing(side.name).when(c, |c| {
                    if !ahead {
                        (0..4).for_each(|i| c.var(format_args!("v{i}"), "vec4<T>()"));
                        fetch(side, "k0", size, c);
                    }
                    keep(tile, side, c);
                });
            }
            c.line("workgroupBarrier();");
            if ahead {
                (0..4).for_each(|i| c.set(format_args!("v{i}"), "vec4<T>()"));
                let next = format!("k0 + {DEPTH}u");
                operands.iter().for_each(|(side, size)| {
                    tile.bringing(side.name).when(c, |c| fetch(side, &next, size, c))
                });
            }
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
fn unit(tile: Tile, side: &Side, origin: &str, size: &str, c: &mut Code) {
    let (name, dense) = (side.name, side.dense);
    c.bind(format_args!("{name}_base"), format_args!("{name}_batch(batch)"));
    let (wide, Bringing { first, .. }) = (tile.side / 4, tile.bringing(name));
    let e = format!("(local_index - {first}u)");
    // Neighbouring invocations read neighbouring memory along the dense axis.
    let along_k = dense == Dense::Inner || takes_turns(side);
    let (o, k) = match along_k {
        true => (format!("{e} / {}u", DEPTH / 4), format!("{e} % {}u", DEPTH / 4)),
        false => (format!("{e} % {wide}u"), format!("{e} / {wide}u")),
    };
    c.bind(format_args!("{name}_o"), o);
    c.bind(format_args!("{name}_k"), format_args!("({k}) * {}u", 4 / step(side)));
    for j in 0..if dense == Dense::Outer { 1 } else { 4 } {
        // Offsets are clamped at the edge.
        let at = format!("min({origin} + {name}_o * 4u + {j}u, params.{size} - 1u)");
        c.bind(format_args!("{name}_at{j}"), format_args!("{name}_base + {name}_outer({at})"));
    }
}

/// Whether neighbouring invocations load neighbours along k, one element at a time.
fn takes_turns(side: &Side) -> bool {
    side.dense == Dense::Neither && !side.runs_along_outer()
}

/// The distance between the steps along k of a unit.
fn step(side: &Side) -> usize {
    if takes_turns(side) { DEPTH / 4 } else { 1 }
}

/// Loads a unit of an operand, whose block of steps begins at `k0`, into `v0` to `v3`, which are zero before:
/// beyond the edges they stay zero.
fn fetch(side: &Side, k0: &str, size: &str, c: &mut Code) {
    let (name, dense, step) = (side.name, side.dense, step(side));
    let origin = if name == "lhs" { "row0" } else { "col0" };
    c.bind("o", format_args!("{origin} + {name}_o * 4u"));
    c.bind("k", format_args!("{k0} + {name}_k"));
    match dense {
        // Four steps along k, one vector each, as the tile stores them.
        Dense::Outer => {
            for i in 0..4 {
                c.when(format_args!("o < {size} && k + {i}u < end"), |c| {
                    let place = format!("{name}_at0 + {name}_inner(k + {i}u)");
                    c.set(format_args!("v{i}"), format_args!("load4_{name}({place})"));
                });
            }
        }
        // Four rows, one vector along k each, transposed when they are stored.
        Dense::Inner => c.when("k < end", |c| {
            c.bind("along", format_args!("{name}_inner(k)"));
            for i in 0..4 {
                c.when(format_args!("o + {i}u < {size}"), |c| {
                    c.set(format_args!("v{i}"), format_args!("load4_{name}({name}_at{i} + along)"));
                });
            }
        }),
        Dense::Neither => {
            for i in 0..4 {
                c.when(format_args!("k + {}u < end", i * step), |c| {
                    c.bind("along", format_args!("{name}_inner(k + {}u)", i * step));
                    for (j, x) in FIELDS.iter().enumerate() {
                        c.when(format_args!("o + {j}u < {size}"), |c| {
                            let element = format!("load_{name}({name}_at{j} + along)");
                            c.set(format_args!("v{i}.{x}"), element);
                        });
                    }
                });
            }
        }
    }
}

/// Stores the unit `v0` to `v3` of an operand to its tile.
fn keep(tile: Tile, side: &Side, c: &mut Code) {
    let (name, dense, step, pitch) = (side.name, side.dense, step(side), tile.pitch());
    for (i, x) in FIELDS.iter().enumerate() {
        let four = match dense {
            Dense::Inner => format!("vec4<T>(v0.{x}, v1.{x}, v2.{x}, v3.{x})"),
            Dense::Outer | Dense::Neither => format!("v{i}"),
        };
        c.set(format_args!("{name}_tile[({name}_k + {}u) * {pitch}u + {name}_o]", i * step), four);
    }
}

/// Writes an invocation's results: the rows and columns of each 4 × 4 block are neighbours in the output,
/// and the blocks are half a tile apart.
fn write_out(tile: Tile, store: &Store, vectors: bool, c: &mut Code) {
    let half = tile.side / tile.fours;
    for r in 0..4 * tile.fours {
        c.bind(format_args!("row_{r}"), format_args!("row0 + {}u + ty * 4u + {}u", r / 4 * half, r % 4));
        c.when(format_args!("row_{r} < params.m"), |c| {
            c.bind("line", format_args!("part * params.pitch + (batch * params.m + row_{r}) * params.n"));
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
