//! Matrix products. Three forms: barrier-free, where each thread keeps a block of results in registers and reads four
//! elements at a time wherever strides allow; the same by subgroups whose lanes read for each other (`strip.rs`), where their
//! size is known; and tiles in shared memory (`tile.rs`). All take any strides and sizes.
//! A vector times a matrix, or a matrix times a vector, is a row of results: a reduction where they are too few to keep
//! the device busy.

use std::fmt::Write;

use smallvec::SmallVec;
use tensor_core::{
    BinaryOp, DType, Layout, ReduceOp, Result, Shape,
    kernel::{Instr, MatMulKernel, Program, ReduceKernel},
};

use crate::{
    draft::{Draft, Drafts, Facts, Form, Slot},
    dtypes::{lane, lane_size},
    formulas, index, reduce,
    strip::{self, Strips},
    tile::{self, Access, Dense, Tile},
};

/// The axis of an operand along which four elements are read at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Vectors {
    /// None: one element at a time.
    No,
    /// The last (k of the left, n of the right operand).
    Last,
    /// The one before it.
    First,
}

/// One way to compute a product of several rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// By subgroups.
    Strips,
    /// A square of so many results on a side for each thread.
    Blocks(usize),
    /// Tiles with so many results on a side.
    Tile(usize),
}

/// The ways in which this product can be computed on this device, of a family of forms; one or none where there is no choice.
pub(crate) fn ways(kernel: &MatMulKernel, form: Form, facts: &Facts<'_>) -> SmallVec<[Way; 8]> {
    let mut ways = SmallVec::new();
    if kernel.m.min(kernel.n) <= 1 || kernel.dtype == DType::Bool {
        return ways;
    }
    let narrow = lane_size(kernel.dtype) == 4;
    if form != Form::Tiled {
        // Which lane of a subgroup a thread is, only processors are known to keep to.
        if facts.direct && facts.subgroup > 0 && narrow {
            ways.push(Way::Strips);
        }
        ways.push(Way::Blocks(4));
        if narrow {
            ways.push(Way::Blocks(8));
        }
    }
    if form != Form::Direct {
        let fit = |tile: &&Tile| **tile == Tile::SMALL || narrow && tile.shared_bytes() <= facts.shared_bytes;
        ways.extend(Tile::ALL.iter().filter(fit).map(|tile| Way::Tile(tile.side)));
    }
    ways
}

/// What decides which way is best: the dtype, the sizes to a power of two, and how the operands can be read.
pub(crate) fn class(kernel: &MatMulKernel) -> String {
    let [m, n, k, batch] =
        [kernel.m, kernel.n, kernel.k, kernel.batch.numel()].map(|size| size.max(1).next_power_of_two());
    let (_, _, lhs) = matrix(&kernel.lhs, kernel.dtype);
    let (_, _, rhs) = matrix(&kernel.rhs, kernel.dtype);
    format!("{} {m} {n} {k} {batch} {lhs:?} {rhs:?}", kernel.dtype)
}

/// The strides of the two matrix axes, and whether vectors can be read.
fn matrix(layout: &Layout, dtype: DType) -> (isize, isize, Vectors) {
    let rank = layout.shape().rank();
    let (rows, columns) = (layout.shape()[rank - 2], layout.shape()[rank - 1]);
    let (row, column) = (layout.strides()[rank - 2], layout.strides()[rank - 1]);
    let batches = layout.shape().iter().zip(layout.strides()).take(rank - 2);
    let aligned = lane_size(dtype) == 4
        && layout.offset().is_multiple_of(4)
        && batches.clone().all(|(&n, &s)| n == 1 || s % 4 == 0);
    let vectors = if aligned && column == 1 && row % 4 == 0 && columns >= 4 {
        Vectors::Last
    } else if aligned && row == 1 && column % 4 == 0 && rows >= 4 {
        Vectors::First
    } else {
        Vectors::No
    };
    (row, column, vectors)
}

/// The largest tile of which there are enough to keep the device busy.
fn choose(kernel: &MatMulKernel, batch: usize, facts: &Facts<'_>) -> Tile {
    let tiles = |tile: Tile| kernel.m.div_ceil(tile.side) * kernel.n.div_ceil(tile.side) * batch;
    if lane_size(kernel.dtype) == 8 {
        Tile::SMALL
    } else if kernel.m.min(kernel.n) > 64
        && tiles(Tile::LARGE) >= facts.threads / 256
        && Tile::LARGE.shared_bytes() <= facts.shared_bytes
    {
        Tile::LARGE
    } else if kernel.m.min(kernel.n) > 32 && tiles(Tile::MEDIUM) >= facts.threads / 512 {
        Tile::MEDIUM
    } else {
        Tile::SMALL
    }
}

/// The way of the fixed table.
fn fixed(kernel: &MatMulKernel, facts: &Facts<'_>) -> Way {
    let batch = kernel.batch.numel();
    let blocks = |size: usize| kernel.m.div_ceil(size) * kernel.n.div_ceil(size) * batch;
    // A result of one or a few rows is read best by a thread for each four columns, on every kind of device.
    if facts.direct && facts.subgroup > 0 && kernel.m > 1 && lane_size(kernel.dtype) == 4 {
        Way::Strips
    } else if !facts.direct && kernel.m > 4 {
        Way::Tile(choose(kernel, batch, facts).side)
    } else if kernel.n <= 4 || blocks(8) < facts.threads / 4 || lane_size(kernel.dtype) == 8 {
        // Register blocks as large as still leave every thread something to do.
        Way::Blocks(4)
    } else {
        Way::Blocks(8)
    }
}

/// The product whose result has this one's elements as a row: a matrix times a vector, seen from the vector.
fn turned(kernel: &MatMulKernel) -> MatMulKernel {
    let batches = kernel.batch.rank();
    let swap: SmallVec<[usize; 8]> = (0..batches).chain([batches + 1, batches]).collect();
    MatMulKernel {
        batch: kernel.batch.clone(),
        m: kernel.n,
        n: kernel.m,
        k: kernel.k,
        dtype: kernel.dtype,
        lhs: kernel.rhs.permute(&swap),
        rhs: kernel.lhs.permute(&swap),
    }
}

/// A product with one row, as the reduction that it is: its few sums are split among threads.
fn vector(kernel: &MatMulKernel) -> ReduceKernel {
    let batches = kernel.batch.rank();
    let shape: Shape = kernel.batch.iter().copied().chain([kernel.n, kernel.k]).collect();
    // Over [batch…, n, k]: the row is the same for every n.
    let over = |layout: &Layout, along: isize, inner: isize| {
        let batch = layout.strides()[..batches].iter().copied();
        let strides: SmallVec<[isize; 8]> = batch.chain([along, inner]).collect();
        Layout::new(shape.clone(), &strides, layout.offset())
    };
    let (lhs, rhs) = (kernel.lhs.strides(), kernel.rhs.strides());
    let inputs = [over(&kernel.lhs, 0, lhs[batches + 1]), over(&kernel.rhs, rhs[batches + 1], rhs[batches])];
    let dtype = kernel.dtype;
    let program = Program {
        instrs: vec![Instr::Load(0), Instr::Load(1), Instr::Binary(BinaryOp::Mul, 0, 1)],
        dtypes: vec![dtype; 3],
        inputs: vec![dtype; 2],
        scalars: vec![],
        outputs: vec![2],
    };
    let axes = SmallVec::from_slice(&[batches + 1]);
    ReduceKernel { op: ReduceOp::Sum, shape, axes, inputs: SmallVec::from_iter(inputs), program }
}

/// The draft of a turned product, on the operands of the product itself.
fn swap_inputs(draft: &mut Draft) {
    for binding in &mut draft.bindings {
        if let Slot::Input(k) = binding.slot {
            binding.slot = Slot::Input(1 - k);
        }
    }
}

/// A draft with the parameters that every form takes, and the functions.
fn opened(kernel: &MatMulKernel) -> (Draft, String) {
    let mut d = Draft::new("matmul");
    let t = lane(kernel.dtype);
    let mut functions = format!("alias T = {t};\n");
    let stored =
        if kernel.dtype == DType::U8 { "x & 255u".into() } else { formulas::store(kernel.dtype, "x") };
    let _ = writeln!(functions, "fn store(x: T) -> T {{\n    return {stored};\n}}");
    for (name, layout) in [("lhs_at", &kernel.lhs), ("rhs_at", &kernel.rhs)] {
        let strides: SmallVec<[isize; 8]> = layout.strides()[..kernel.batch.rank()].iter().copied().collect();
        functions.push_str(&index::function(name, &kernel.batch, &strides, layout.offset(), &mut d.params));
    }
    d.params.size("m", kernel.m);
    d.params.size("n", kernel.n);
    d.params.size("k", kernel.k);
    let (lhs_row, lhs_col, _) = matrix(&kernel.lhs, kernel.dtype);
    let (rhs_row, rhs_col, _) = matrix(&kernel.rhs, kernel.dtype);
    d.params.stride("lhs_row", lhs_row);
    d.params.stride("lhs_col", lhs_col);
    d.params.stride("rhs_row", rhs_row);
    d.params.stride("rhs_col", rhs_col);
    (d, functions)
}

/// The vectors in which the operands are read where edges are met by clamping to the last block that lies inside.
fn clamped(kernel: &MatMulKernel) -> (Vectors, Vectors) {
    let (_, _, lhs) = matrix(&kernel.lhs, kernel.dtype);
    let (_, _, rhs) = matrix(&kernel.rhs, kernel.dtype);
    let lhs = if lhs == Vectors::First && !kernel.m.is_multiple_of(4) { Vectors::No } else { lhs };
    let rhs = if rhs == Vectors::Last && !kernel.n.is_multiple_of(4) { Vectors::No } else { rhs };
    (lhs, rhs)
}

/// The draft by subgroups. The result of a `crosswise` product is written with its two axes swapped.
fn in_strips(kernel: &MatMulKernel, strips: Strips, crosswise: bool) -> Draft {
    let (mut d, functions) = opened(kernel);
    let t = lane(kernel.dtype);
    let (lhs, rhs) = clamped(kernel);
    let wide = !crosswise && kernel.n.is_multiple_of(4);
    let batch = kernel.batch.numel();
    d.groups = strips.groups(kernel.m, kernel.n, batch);
    d.work = strips.lanes * strip::COLUMNS * strips.rows * kernel.k.max(1);
    d.params.size("blocks_m", kernel.m.div_ceil(strips.rows));
    d.params.size("strips_n", kernel.n.div_ceil(strips.lanes * strip::COLUMNS));
    d.params.size("groups", d.groups);
    let (row, column) = if crosswise { (1, kernel.m) } else { (kernel.n, 1) };
    d.params.size("out_row", row);
    d.params.size("out_col", column);
    let element = |v: bool| if v { format!("vec4<{t}>") } else { t.to_string() };
    d.bind("lhs", element(lhs != Vectors::No), false, Slot::Input(0));
    d.bind("rhs", element(rhs != Vectors::No), false, Slot::Input(1));
    d.bind("output", element(wide), true, Slot::Output(0));
    d.body = functions + &strip::text(strips, lhs, rhs, wide, !kernel.k.is_multiple_of(4));
    d
}

/// The draft of a matrix product.
pub(crate) fn draft(kernel: &MatMulKernel, facts: &Facts<'_>) -> Result<Drafts> {
    if kernel.dtype == DType::Bool {
        return Err(facts.unsupported("matmul", kernel.dtype, "cast first with .to_dtype(DType::I32)"));
    }
    if kernel.n == 1 && kernel.m > 1 {
        let mut made = draft(&turned(kernel), facts)?;
        made.steps.iter_mut().for_each(swap_inputs);
        return Ok(made);
    }
    if kernel.m == 1 && !facts.direct && kernel.n * kernel.batch.numel() < facts.threads {
        return reduce::draft(&vector(kernel), facts);
    }
    let way = facts.way.filter(|_| kernel.m > 1).unwrap_or_else(|| fixed(kernel, facts));
    if way == Way::Strips {
        let batch = kernel.batch.numel();
        let best = |m, n| Strips::best([m, n, kernel.k], batch, facts.subgroup);
        let (strips, cost) = best(kernel.m, kernel.n);
        let (crosswise, less) = best(kernel.n, kernel.m);
        // The lanes stand along the longer side, where that leaves fewer of them idle.
        return Ok(if less < cost {
            let mut made = in_strips(&turned(kernel), crosswise, true);
            swap_inputs(&mut made);
            made
        } else {
            in_strips(kernel, strips, false)
        }
        .into());
    }
    let (mut d, functions) = opened(kernel);
    let t = lane(kernel.dtype);
    let batch = kernel.batch.numel();
    let (_, _, lhs_vectors) = matrix(&kernel.lhs, kernel.dtype);
    let (_, _, rhs_vectors) = matrix(&kernel.rhs, kernel.dtype);
    if let Way::Tile(side) = way {
        let access = Access {
            lhs: match lhs_vectors {
                Vectors::Last if kernel.k.is_multiple_of(4) => Dense::Inner,
                Vectors::First if kernel.m.is_multiple_of(4) => Dense::Outer,
                _ => Dense::Neither,
            },
            rhs: match rhs_vectors {
                Vectors::Last if kernel.n.is_multiple_of(4) => Dense::Outer,
                Vectors::First if kernel.k.is_multiple_of(4) => Dense::Inner,
                _ => Dense::Neither,
            },
            wide_output: lane_size(kernel.dtype) == 4 && kernel.n.is_multiple_of(4),
        };
        let tile = Tile::ALL.into_iter().find(|tile| tile.side == side).unwrap_or(Tile::SMALL);
        let (tiles_m, tiles_n) = (kernel.m.div_ceil(tile.side), kernel.n.div_ceil(tile.side));
        d.groups = tiles_m * tiles_n * batch;
        d.work = tile.side * tile.side * kernel.k.max(1);
        d.params.size("tiles_m", tiles_m);
        d.params.size("tiles_n", tiles_n);
        d.params.size("groups", d.groups);
        let element = |wide: bool| if wide { format!("vec4<{t}>") } else { t.to_string() };
        d.bind("lhs", element(access.lhs != Dense::Neither), false, Slot::Input(0));
        d.bind("rhs", element(access.rhs != Dense::Neither), false, Slot::Input(1));
        d.bind("output", element(access.wide_output), true, Slot::Output(0));
        d.body = functions + &tile::text(tile, &access);
        return Ok(d.into());
    }

    let (lhs_vectors, rhs_vectors) = clamped(kernel);
    let (rows, columns) = match way {
        _ if kernel.m == 1 => (1, 4),
        Way::Blocks(8) => (8, 8),
        _ => (4, 4),
    };
    let (blocks_m, blocks_n) = (kernel.m.div_ceil(rows), kernel.n.div_ceil(columns));
    d.params.size("blocks_m", blocks_m);
    d.params.size("blocks_n", blocks_n);
    d.params.size("total", blocks_m * blocks_n * batch);
    let element = |v: Vectors| if v == Vectors::No { t.to_string() } else { format!("vec4<{t}>") };
    d.bind("lhs", element(lhs_vectors), false, Slot::Input(0));
    d.bind("rhs", element(rhs_vectors), false, Slot::Input(1));
    d.bind("output", t, true, Slot::Output(0));
    d.body = functions + &blocked(rows, columns, lhs_vectors, rhs_vectors);
    d.groups = (blocks_m * blocks_n * batch).div_ceil(64);
    d.work = 64 * rows * columns * kernel.k.max(1);
    Ok(d.into())
}

/// The barrier-free kernel with `rows` × `columns` results a thread, unrolled. Four steps along k are taken at a time:
/// `a<row>` holds four elements of a row of the left operand, `b<step>_<c>` four columns of a row of the right one.
fn blocked(rows: usize, columns: usize, lhs: Vectors, rhs: Vectors) -> String {
    let fours = columns / 4;
    let mut s = format!(
        "\n@compute @workgroup_size(64)\n{}    let g = group * 64u + lane;\n    if (g >= params.total) {{\n        return;\n    }}\n    let block_n = g % params.blocks_n;\n    let block_m = (g / params.blocks_n) % params.blocks_m;\n    let batch = g / (params.blocks_n * params.blocks_m);\n    let lhs_base = lhs_at(batch);\n    let rhs_base = rhs_at(batch);\n    let row0 = block_m * {rows}u;\n    let col0 = block_n * {columns}u;\n",
        taper_shaders::ENTRY
    );
    // Reads beyond the edge repeat the last row or column; their results are not written.
    if lhs == Vectors::First {
        for q in 0..rows.div_ceil(4) {
            let _ = writeln!(s, "    let lr{q} = lhs_base + min(row0 + {}u, params.m - 4u);", 4 * q);
        }
    } else {
        for r in 0..rows {
            let _ =
                writeln!(s, "    let lr{r} = lhs_base + min(row0 + {r}u, params.m - 1u) * params.lhs_row;");
        }
    }
    if rhs == Vectors::Last {
        for c in 0..fours {
            let _ = writeln!(s, "    let rc{c} = rhs_base + min(col0 + {}u, params.n - 4u);", 4 * c);
        }
    } else {
        for c in 0..columns {
            let _ =
                writeln!(s, "    let rc{c} = rhs_base + min(col0 + {c}u, params.n - 1u) * params.rhs_col;");
        }
    }
    for r in 0..rows {
        for c in 0..fours {
            let _ = writeln!(s, "    var acc{r}_{c} = vec4<T>();");
        }
    }
    s.push_str("    var k = 0u;\n    for (; k + 4u <= params.k; k += 4u) {\n");
    load_lhs(rows, lhs, &mut s);
    load_rhs(columns, rhs, &mut s);
    for step in 0..4 {
        for r in 0..rows {
            for c in 0..fours {
                let x = ["x", "y", "z", "w"][step];
                let _ = writeln!(s, "        acc{r}_{c} += a{r}.{x} * b{step}_{c};");
            }
        }
    }
    s.push_str("    }\n    for (; k < params.k; k += 1u) {\n");
    for r in 0..rows {
        let row = match lhs {
            Vectors::First => format!("lr{} + {}u", r / 4, r % 4),
            _ => format!("lr{r}"),
        };
        let _ = writeln!(
            s,
            "        let a{r} = {};",
            element("lhs", lhs, &format!("{row} + k * params.lhs_col"))
        );
    }
    for c in 0..fours {
        let four: Vec<String> = (0..4)
            .map(|i| {
                let column = match rhs {
                    Vectors::Last => format!("rc{c} + {i}u"),
                    _ => format!("rc{}", 4 * c + i),
                };
                element("rhs", rhs, &format!("{column} + k * params.rhs_row"))
            })
            .collect();
        let _ = writeln!(s, "        let b{c} = vec4<T>({});", four.join(", "));
        for r in 0..rows {
            let _ = writeln!(s, "        acc{r}_{c} += a{r} * b{c};");
        }
    }
    s.push_str("    }\n");
    for r in 0..rows {
        let _ = writeln!(s, "    if (row0 + {r}u < params.m) {{");
        let _ = writeln!(s, "        let at = (batch * params.m + row0 + {r}u) * params.n + col0;");
        for c in 0..columns {
            let x = ["x", "y", "z", "w"][c % 4];
            let _ = writeln!(
                s,
                "        if (col0 + {c}u < params.n) {{ output[at + {c}u] = store(acc{r}_{}.{x}); }}",
                c / 4
            );
        }
        s.push_str("    }\n");
    }
    s.push_str("}\n");
    s
}

/// One element of an operand that may be bound in vectors.
pub(crate) fn element(name: &str, vectors: Vectors, at: &str) -> String {
    if vectors == Vectors::No {
        format!("{name}[{at}]")
    } else {
        format!("{name}[({at}) >> 2u][({at}) & 3u]")
    }
}

fn load_lhs(rows: usize, lhs: Vectors, s: &mut String) {
    match lhs {
        Vectors::Last => {
            for r in 0..rows {
                let _ = writeln!(s, "        let a{r} = lhs[(lr{r} + k) >> 2u];");
            }
        }
        Vectors::First => {
            for q in 0..rows.div_ceil(4) {
                for step in 0..4 {
                    let _ = writeln!(
                        s,
                        "        let t{q}_{step} = lhs[(lr{q} + (k + {step}u) * params.lhs_col) >> 2u];"
                    );
                }
            }
            for r in 0..rows {
                let (q, x) = (r / 4, ["x", "y", "z", "w"][r % 4]);
                let _ = writeln!(
                    s,
                    "        let a{r} = vec4<T>(t{q}_0.{x}, t{q}_1.{x}, t{q}_2.{x}, t{q}_3.{x});"
                );
            }
        }
        Vectors::No => {
            for r in 0..rows {
                let four: Vec<String> =
                    (0..4).map(|step| format!("lhs[lr{r} + (k + {step}u) * params.lhs_col]")).collect();
                let _ = writeln!(s, "        let a{r} = vec4<T>({});", four.join(", "));
            }
        }
    }
}

pub(crate) fn load_rhs(columns: usize, rhs: Vectors, s: &mut String) {
    match rhs {
        Vectors::Last => {
            for step in 0..4 {
                for c in 0..columns / 4 {
                    let _ = writeln!(
                        s,
                        "        let b{step}_{c} = rhs[(rc{c} + (k + {step}u) * params.rhs_row) >> 2u];"
                    );
                }
            }
        }
        Vectors::First => {
            for c in 0..columns {
                let _ = writeln!(s, "        let u{c} = rhs[(rc{c} + k) >> 2u];");
            }
            for step in 0..4 {
                let x = ["x", "y", "z", "w"][step];
                for c in 0..columns / 4 {
                    let four: Vec<String> = (0..4).map(|i| format!("u{}.{x}", 4 * c + i)).collect();
                    let _ = writeln!(s, "        let b{step}_{c} = vec4<T>({});", four.join(", "));
                }
            }
        }
        Vectors::No => {
            for step in 0..4 {
                for c in 0..columns / 4 {
                    let four: Vec<String> = (0..4)
                        .map(|i| format!("rhs[rc{} + (k + {step}u) * params.rhs_row]", 4 * c + i))
                        .collect();
                    let _ = writeln!(s, "        let b{step}_{c} = vec4<T>({});", four.join(", "));
                }
            }
        }
    }
}
