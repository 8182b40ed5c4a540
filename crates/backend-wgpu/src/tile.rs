//! The matrix product in shared memory, as unrolled text: a workgroup makes a tile of the result, 16 steps along k at a
//! time, and each of its threads keeps 4 × 4 or 8 × 8 results in registers. See `matmul.rs` for the choice.
//!
//! Both operands are held k-major in vectors of four, so that a step reads whole vectors. A *unit* is a block of 4 × 4
//! elements of an operand, which one thread brings in: four vectors along whichever axis is dense, or 16 elements.

use std::fmt::Write;

/// Steps along k that are in shared memory at once.
const DEPTH: usize = 16;

/// The axis of an operand along which four elements are read at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dense {
    /// Neither: one element at a time.
    Neither,
    /// Along the result's rows or columns.
    Outer,
    /// Along k.
    Inner,
}

/// The size of a tile: `side` × `side` results, `fours` × `fours` blocks of 4 × 4 a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tile {
    pub(crate) side: usize,
    fours: usize,
}

impl Tile {
    /// 32 × 32 by 64 threads: for small results, and for elements of 8 bytes.
    pub(crate) const SMALL: Tile = Tile { side: 32, fours: 1 };
    /// 64 × 64 by 64 threads.
    pub(crate) const MEDIUM: Tile = Tile { side: 64, fours: 2 };
    /// 128 × 128 by 256 threads.
    pub(crate) const LARGE: Tile = Tile { side: 128, fours: 2 };

    /// All of them.
    pub(crate) const ALL: [Tile; 3] = [Tile::SMALL, Tile::MEDIUM, Tile::LARGE];

    /// Threads along one side of a workgroup.
    fn across(self) -> usize {
        self.side / (4 * self.fours)
    }

    fn threads(self) -> usize {
        self.across() * self.across()
    }

    /// Vectors from one step along k to the next: one more than there are, against bank conflicts.
    fn pitch(self) -> usize {
        self.side / 4 + 1
    }

    /// Bytes of shared memory for elements of four bytes.
    pub(crate) fn shared_bytes(self) -> usize {
        2 * DEPTH * self.pitch() * 16
    }
}

/// How the operands and the result are bound.
pub(crate) struct Access {
    pub(crate) lhs: Dense,
    pub(crate) rhs: Dense,
    /// Whether the result is written in vectors: n is a multiple of four.
    pub(crate) wide_output: bool,
}

/// The entry point. It expects an alias T, `params` with `m`, `n`, `k`, `tiles_m`, `tiles_n`, `groups` and the strides
/// `lhs_row`, `lhs_col`, `rhs_row`, `rhs_col`, bindings `lhs`, `rhs`, `output`, and functions lhs_at, rhs_at and store.
pub(crate) fn text(tile: Tile, access: &Access) -> String {
    let Tile { side, fours } = tile;
    let (across, pitch, half) = (tile.across(), tile.pitch(), side / fours);
    let mut s = format!(
        "var<workgroup> lhs_tile: array<vec4<T>, {len}>;\nvar<workgroup> rhs_tile: array<vec4<T>, {len}>;\n\n@compute @workgroup_size({})\n{}",
        tile.threads(),
        taper_shaders::ENTRY,
        len = DEPTH * pitch,
    );
    // A whole workgroup leaves or stays, so the barriers below are met by all of its threads.
    let _ = write!(
        s,
        "    if (group >= params.groups) {{\n        return;\n    }}\n    let tile_n = group % params.tiles_n;\n    let tile_m = (group / params.tiles_n) % params.tiles_m;\n    let batch = group / (params.tiles_n * params.tiles_m);\n    let lhs_base = lhs_at(batch);\n    let rhs_base = rhs_at(batch);\n    let row0 = tile_m * {side}u;\n    let col0 = tile_n * {side}u;\n    let ty = lane / {across}u;\n    let tx = lane % {across}u;\n"
    );
    for r in 0..4 * fours {
        for c in 0..fours {
            let _ = writeln!(s, "    var acc{r}_{c} = vec4<T>();");
        }
    }
    let _ = writeln!(s, "    for (var k0 = 0u; k0 < params.k; k0 += {DEPTH}u) {{");
    let units = side / 4 * (DEPTH / 4);
    let _ = writeln!(s, "    for (var e = lane; e < {}u; e += {}u) {{", 2 * units, tile.threads());
    let _ = writeln!(s, "    if (e < {units}u) {{");
    bring_in(tile, "lhs", "params.m", ("params.lhs_row", "params.lhs_col"), "row0", access.lhs, &mut s);
    let _ = writeln!(s, "    }} else {{\n    let e = e - {units}u;");
    bring_in(tile, "rhs", "params.n", ("params.rhs_col", "params.rhs_row"), "col0", access.rhs, &mut s);
    s.push_str("    }\n    }\n    workgroupBarrier();\n");
    let _ = writeln!(s, "    for (var step = 0u; step < {DEPTH}u; step += 4u) {{");
    for step in 0..4 {
        for f in 0..fours {
            let at = format!("(step + {step}u) * {pitch}u + {}u", f * half / 4);
            let _ = writeln!(s, "        let a{step}_{f} = lhs_tile[{at} + ty];");
            let _ = writeln!(s, "        let b{step}_{f} = rhs_tile[{at} + tx];");
        }
        for r in 0..4 * fours {
            let x = ["x", "y", "z", "w"][r % 4];
            for c in 0..fours {
                let _ = writeln!(s, "        acc{r}_{c} += a{step}_{}.{x} * b{step}_{c};", r / 4);
            }
        }
    }
    s.push_str("    }\n    workgroupBarrier();\n    }\n");
    write_out(tile, access.wide_output, &mut s);
    s.push_str("}\n");
    s
}

/// Statements that bring unit `e` of an operand into its tile, zeros beyond its edges. `strides` are along the outer
/// axis (of `size`, from `origin` on) and along k.
fn bring_in(
    tile: Tile,
    name: &str,
    size: &str,
    strides: (&str, &str),
    origin: &str,
    dense: Dense,
    s: &mut String,
) {
    let (outer, inner) = strides;
    let wide = tile.side / 4;
    // Neighbouring threads read neighbouring memory where an axis is dense.
    let (o, k) = match dense {
        Dense::Inner => (format!("e / {}u", DEPTH / 4), format!("e % {}u", DEPTH / 4)),
        _ => (format!("e % {wide}u"), format!("e / {wide}u")),
    };
    let _ = writeln!(s, "        let uo = {o};\n        let uk = ({k}) * 4u;");
    let _ = writeln!(s, "        let o = {origin} + uo * 4u;\n        let k = k0 + uk;");
    let pitch = tile.pitch();
    let store =
        |i: usize, value: &str| format!("        {name}_tile[(uk + {i}u) * {pitch}u + uo] = {value};\n");
    let fields = ["x", "y", "z", "w"];
    match dense {
        // Four steps along k, a vector each: as it is kept.
        Dense::Outer => {
            for i in 0..4 {
                let _ = writeln!(
                    s,
                    "        var v{i} = vec4<T>();\n        if (o < {size} && k + {i}u < params.k) {{ v{i} = {name}[({name}_base + o + (k + {i}u) * {inner}) >> 2u]; }}"
                );
                s.push_str(&store(i, &format!("v{i}")));
            }
        }
        // Four rows, a vector along k each: transposed on the way.
        Dense::Inner => {
            for i in 0..4 {
                let _ = writeln!(
                    s,
                    "        var v{i} = vec4<T>();\n        if (o + {i}u < {size} && k < params.k) {{ v{i} = {name}[({name}_base + (o + {i}u) * {outer} + k) >> 2u]; }}"
                );
            }
            for (i, x) in fields.iter().enumerate() {
                s.push_str(&store(i, &format!("vec4<T>(v0.{x}, v1.{x}, v2.{x}, v3.{x})")));
            }
        }
        Dense::Neither => {
            for i in 0..4 {
                let _ = writeln!(s, "        var v{i} = vec4<T>();");
                for (j, x) in fields.iter().enumerate() {
                    let _ = writeln!(
                        s,
                        "        if (o + {j}u < {size} && k + {i}u < params.k) {{ v{i}.{x} = {name}[{name}_base + (o + {j}u) * {outer} + (k + {i}u) * {inner}]; }}"
                    );
                }
                s.push_str(&store(i, &format!("v{i}")));
            }
        }
    }
}

/// Statements that write a thread's results: rows and columns of each block of 4 × 4 are neighbours in the output, the
/// blocks lie half a tile apart.
fn write_out(tile: Tile, wide: bool, s: &mut String) {
    let half = tile.side / tile.fours;
    for r in 0..4 * tile.fours {
        let _ = writeln!(s, "    let row_{r} = row0 + {}u + ty * 4u + {}u;", r / 4 * half, r % 4);
        let _ = writeln!(s, "    if (row_{r} < params.m) {{");
        let _ = writeln!(s, "        let line = (batch * params.m + row_{r}) * params.n;");
        for c in 0..tile.fours {
            let _ = writeln!(s, "        let col_{c} = col0 + {}u + tx * 4u;", c * half);
            let v = format!("acc{r}_{c}");
            if wide {
                let _ = writeln!(
                    s,
                    "        if (col_{c} < params.n) {{ output[(line + col_{c}) >> 2u] = vec4<T>(store({v}.x), store({v}.y), store({v}.z), store({v}.w)); }}"
                );
            } else {
                for (i, x) in ["x", "y", "z", "w"].iter().enumerate() {
                    let _ = writeln!(
                        s,
                        "        if (col_{c} + {i}u < params.n) {{ output[line + col_{c} + {i}u] = store({v}.{x}); }}"
                    );
                }
            }
        }
        s.push_str("    }\n");
    }
}
