//! The contraction in workgroup memory, as unrolled text. A workgroup computes a tile of the result, 16
//! steps along k at a time (`staging.rs`), and each of its invocations keeps 4 × 4 or 8 × 8 results in
//! registers. `contract.rs` chooses the variant.
//!
//! Both operands are stored k-major in vectors of four, so that a step reads whole vectors. Integers of 8
//! bits are packed in words of four steps, whose products one instruction adds up (`dot4I8Packed`).

use tensor_core::DType;

use crate::{
    codegen::{capabilities::Capabilities, dtypes::FIELDS, wgsl::Code},
    kernels::product::{
        epilogue::Store,
        matrices::{Dense, Side},
        staging::{Block, Staging},
    },
};

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

    /// The sizes of the workgroup's tile. Words of four steps cannot have every fourth one.
    pub(crate) fn staging(self, dots: Option<Dots>) -> Staging {
        let takes_turns = dots.is_none();
        Staging { side: self.side, depth: DEPTH, invocations: self.invocations(), takes_turns }
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

/// Products of four steps at once, of integers of 8 bits in a word: the WGSL function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dots(&'static str);

impl Dots {
    /// The function for a dtype, if the device has such instructions.
    pub(crate) fn of(dtype: DType, capabilities: &Capabilities) -> Option<Dots> {
        let functions = [(DType::I8, "dot4I8Packed"), (DType::U8, "dot4U8Packed")];
        let found = functions.into_iter().find(|(of, _)| *of == dtype && capabilities.dots);
        found.map(|(_, function)| Dots(function))
    }

    /// Multiplies the words in workgroup memory.
    fn multiply(self, tile: Tile, c: &mut Code) {
        let (pitch, half, Dots(dot)) = (tile.pitch(), tile.side / tile.fours, self);
        c.count("word", ["0u", &format!("{}u", DEPTH / 4), "1u"], |c| {
            for f in 0..tile.fours {
                let at = format!("word * {pitch}u + {}u", f * half / 4);
                c.bind(format_args!("a{f}"), format_args!("lhs_tile[{at} + ty]"));
                c.bind(format_args!("b{f}"), format_args!("rhs_tile[{at} + tx]"));
            }
            for r in 0..4 * tile.fours {
                for q in 0..tile.fours {
                    let a = format!("a{}.{}", r / 4, FIELDS[r % 4]);
                    let four = FIELDS.map(|x| format!("T({dot}({a}, b{q}.{x}))")).join(", ");
                    c.line(format_args!("acc{r}_{q} += vec4<T>({four});"));
                }
            }
        });
    }

    /// Stores the unit `v0` to `v3` of an operand to its tile.
    fn keep(tile: Tile, side: &Side, c: &mut Code) {
        let (name, pitch) = (side.name, tile.pitch());
        let word = |o: usize| match side.dense {
            Dense::Inner => format!("pack4xI8(v{o})"),
            Dense::Outer | Dense::Neither => {
                let along = [0, 1, 2, 3].map(|i| format!("v{i}.{}", FIELDS[o])).join(", ");
                format!("pack4xI8(vec4<T>({along}))")
            }
        };
        let words = [0, 1, 2, 3].map(word).join(", ");
        c.set(
            format_args!("{name}_tile[{name}_k / 4u * {pitch}u + {name}_o]"),
            format_args!("vec4<u32>({words})"),
        );
    }
}

/// The entry point, for these operands and an output in vectors if `vectors`. It expects an alias T, the
/// parameters of [`Staging::start`] and `pitch` of `parts.rs`, bindings `lhs`, `rhs`, `output`, and the
/// functions of `matrices.rs`.
pub(crate) fn write(
    (tile, dots): (Tile, Option<Dots>),
    operands: [&Side; 2],
    store: &Store,
    vectors: bool,
    c: &mut Code,
) {
    let Tile { side, fours } = tile;
    let (staging, pitch, half) = (tile.staging(dots), tile.pitch(), side / fours);
    let (element, steps) = if dots.is_some() { ("u32", DEPTH / 4) } else { ("T", DEPTH) };
    for name in ["lhs", "rhs"] {
        c.line(format_args!("var<workgroup> {name}_tile: array<vec4<{element}>, {}>;", steps * pitch));
    }
    c.entry(tile.invocations(), |c| {
        staging.start(c);
        let [ty, tx] = tile.coordinates();
        c.bind("ty", ty);
        c.bind("tx", tx);
        staging.units_of(operands, c);
        for r in 0..4 * fours {
            (0..fours).for_each(|q| c.var(format_args!("acc{r}_{q}"), "vec4<T>()"));
        }
        let multiply = |c: &mut Code| {
            if let Some(dots) = dots {
                return dots.multiply(tile, c);
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
        };
        let keep = |side: &Side, c: &mut Code| match dots {
            Some(_) => Dots::keep(tile, side, c),
            None => keep(tile, staging.step(side), side, c),
        };
        staging.blocks(operands, &Block { element: "T", keep: &keep, multiply: &multiply }, c);
        write_out(tile, store, vectors, c);
    });
}

/// Stores the unit `v0` to `v3` of an operand to its tile; `step` steps are between its vectors.
fn keep(tile: Tile, step: usize, side: &Side, c: &mut Code) {
    let (name, dense, pitch) = (side.name, side.dense, tile.pitch());
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
