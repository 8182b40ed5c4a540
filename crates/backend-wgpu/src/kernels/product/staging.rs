//! The loop of contractions in workgroup memory: a workgroup computes a square tile of the result, some
//! steps along k at a time. Its invocations load a block of steps of both operands, keep it in workgroup
//! memory, and multiply it. `tile.rs` and `matrix.rs` write how a block is kept and multiplied.
//!
//! A *unit* is a block of 4 × 4 elements of an operand, which one invocation loads: as four vectors along
//! the dense axis, or as 16 elements. If those are contiguous along k, but begin anywhere, neighbouring
//! invocations may read neighbours along k, so that a unit has every fourth step.

use crate::{
    codegen::{dtypes::FIELDS, wgsl::Code},
    kernels::product::matrices::{Dense, Side},
};

/// The sizes of a workgroup's tile. An invocation loads one unit of each operand; if there are twice as many
/// invocations as units, one half loads the left operand and the other half the right one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staging {
    /// Rows and columns of the tile.
    pub(crate) side: usize,
    /// The steps along k that are in workgroup memory at once.
    pub(crate) depth: usize,
    /// Invocations of a workgroup.
    pub(crate) invocations: usize,
    /// Whether a unit may have every fourth step.
    pub(crate) takes_turns: bool,
}

/// How a kernel keeps and multiplies blocks.
pub(crate) struct Block<'a> {
    /// The type of the elements that are loaded.
    pub(crate) element: &'a str,
    /// Stores the unit `v0` to `v3` of an operand to workgroup memory.
    pub(crate) keep: &'a dyn Fn(&Side, &mut Code),
    /// Multiplies the steps in workgroup memory.
    pub(crate) multiply: &'a dyn Fn(&mut Code),
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

impl Staging {
    /// The units of an operand in a block of steps.
    fn units(self) -> usize {
        self.side / 4 * (self.depth / 4)
    }

    /// The invocations that load the units of an operand.
    fn bringing(self, name: &str) -> Bringing {
        let units = self.units();
        match (units < self.invocations, name) {
            (false, _) => Bringing { first: 0, condition: None },
            (true, "lhs") => Bringing { first: 0, condition: Some(format!("local_index < {units}u")) },
            (true, _) => Bringing { first: units, condition: Some(format!("local_index >= {units}u")) },
        }
    }

    /// Whether an invocation loads the next unit while it multiplies the present one: it has registers for
    /// that if it loads only one of the operands.
    fn fetches_ahead(self) -> bool {
        self.units() < self.invocations
    }

    /// The start of the entry point: the tile's place in the result, and its steps from `begin` to `end`.
    /// It expects `params` with `m`, `n`, `k`, `tiles_m`, `tiles_n`, `workgroups`, and `parts` and `chunk` of
    /// `parts.rs`.
    pub(crate) fn start(self, c: &mut Code) {
        // Whole workgroups leave or stay, so all invocations of a workgroup reach the barriers below.
        c.return_if("workgroup_index >= params.workgroups");
        c.bind("part", "workgroup_index % params.parts");
        c.bind("tile", "workgroup_index / params.parts");
        c.bind("tile_n", "tile % params.tiles_n");
        c.bind("tile_m", "(tile / params.tiles_n) % params.tiles_m");
        c.bind("batch", "tile / (params.tiles_n * params.tiles_m)");
        c.bind("begin", "part * params.chunk");
        c.bind("end", "min(begin + params.chunk, params.k)");
        c.bind("row0", format_args!("tile_m * {}u", self.side));
        c.bind("col0", format_args!("tile_n * {}u", self.side));
    }

    /// The values that do not change along k for the units that an invocation loads.
    pub(crate) fn units_of(self, [lhs, rhs]: [&Side; 2], c: &mut Code) {
        for (side, origin, size) in [(lhs, "row0", "m"), (rhs, "col0", "n")] {
            self.unit(side, origin, size, c);
        }
    }

    /// The loop over the blocks of steps.
    pub(crate) fn blocks(self, [lhs, rhs]: [&Side; 2], block: &Block<'_>, c: &mut Code) {
        let operands = [(lhs, "params.m"), (rhs, "params.n")];
        let (ahead, depth) = (self.fetches_ahead(), self.depth);
        let none = format!("vec4<{}>()", block.element);
        if ahead {
            (0..4).for_each(|i| c.var(format_args!("v{i}"), &none));
            for (side, size) in operands {
                self.bringing(side.name).when(c, |c| self.fetch(side, "begin", size, c));
            }
        }
        c.count("k0", ["begin", "end", &format!("{depth}u")], |c| {
            for (side, size) in operands {
                self.bringing(side.name).when(c, |c| {
                    if !ahead {
                        (0..4).for_each(|i| c.var(format_args!("v{i}"), &none));
                        self.fetch(side, "k0", size, c);
                    }
                    (block.keep)(side, c);
                });
            }
            c.line("workgroupBarrier();");
            if ahead {
                (0..4).for_each(|i| c.set(format_args!("v{i}"), &none));
                let next = format!("k0 + {depth}u");
                for (side, size) in operands {
                    self.bringing(side.name).when(c, |c| self.fetch(side, &next, size, c));
                }
            }
            (block.multiply)(c);
            c.line("workgroupBarrier();");
        });
    }

    /// The values that do not change along k for the unit that an invocation loads: `<name>_o` and
    /// `<name>_k`, its position along the outer axis and along k in the tile, and `<name>_at<j>`, the
    /// offsets of its rows or columns in the buffer.
    fn unit(self, side: &Side, origin: &str, size: &str, c: &mut Code) {
        let (name, dense) = (side.name, side.dense);
        c.bind(format_args!("{name}_base"), format_args!("{name}_batch(batch)"));
        let (wide, Bringing { first, .. }) = (self.side / 4, self.bringing(name));
        let e = format!("(local_index - {first}u)");
        // Neighbouring invocations read neighbouring memory along the dense axis.
        let along_k = dense == Dense::Inner || self.takes_turns(side);
        let (o, k) = match along_k {
            true => (format!("{e} / {}u", self.depth / 4), format!("{e} % {}u", self.depth / 4)),
            false => (format!("{e} % {wide}u"), format!("{e} / {wide}u")),
        };
        c.bind(format_args!("{name}_o"), o);
        c.bind(
            format_args!("{name}_k"),
            format_args!("({k}) * {}u", if self.takes_turns(side) { 1 } else { 4 }),
        );
        for j in 0..if dense == Dense::Outer { 1 } else { 4 } {
            // Offsets are clamped at the edge.
            let at = format!("min({origin} + {name}_o * 4u + {j}u, params.{size} - 1u)");
            c.bind(format_args!("{name}_at{j}"), format_args!("{name}_base + {name}_outer({at})"));
        }
    }

    /// The distance between the steps along k of a unit.
    pub(crate) fn step(self, side: &Side) -> usize {
        if self.takes_turns(side) { self.depth / 4 } else { 1 }
    }

    /// Whether neighbouring invocations load neighbours along k, one element at a time.
    fn takes_turns(self, side: &Side) -> bool {
        self.takes_turns && side.dense == Dense::Neither && !side.runs_along_outer()
    }

    /// Loads a unit of an operand, whose block of steps begins at `k0`, into `v0` to `v3`, which are zero
    /// before: beyond the edges they stay zero.
    fn fetch(self, side: &Side, k0: &str, size: &str, c: &mut Code) {
        let (name, dense, step) = (side.name, side.dense, self.step(side));
        let origin = if name == "lhs" { "row0" } else { "col0" };
        c.bind("o", format_args!("{origin} + {name}_o * 4u"));
        c.bind("k", format_args!("{k0} + {name}_k"));
        match dense {
            // Four steps along k, one vector each.
            Dense::Outer => {
                for i in 0..4 {
                    c.when(format_args!("o < {size} && k + {i}u < end"), |c| {
                        let place = format!("{name}_at0 + {name}_inner(k + {i}u)");
                        c.set(format_args!("v{i}"), format_args!("load4_{name}({place})"));
                    });
                }
            }
            // Four rows, one vector along k each.
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
}
