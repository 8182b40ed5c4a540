//! Matrix products. Two forms: barrier-free, where each invocation keeps a block of results in registers and reads four
//! elements at a time wherever strides allow; and tiles in workgroup memory (`tile.rs`). All take any strides and sizes.
//! A vector times a matrix, or a matrix times a vector, is a row of results: a reduction where they are too few to keep
//! the device busy.

use smallvec::SmallVec;
use tensor_core::{
    BinaryOp, DType, Layout, ReduceOp, Result, Shape,
    kernel::{Instr, MatMulKernel, Program, ReduceKernel},
};

use crate::{
    capabilities::{Capabilities, Form, Way},
    dispatch::{Dispatch, Dispatches, Resource},
    dtypes::{FIELDS, storage_size, storage_type},
    formulas, index, reduce,
    tile::{self, Access, Dense, Tile},
    wgsl::Code,
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

/// The ways in which this product can be computed on this device, of a family of forms; one or none where there is no choice.
pub(crate) fn ways(kernel: &MatMulKernel, form: Form, capabilities: &Capabilities) -> SmallVec<[Way; 8]> {
    let mut ways = SmallVec::new();
    if kernel.m.min(kernel.n) <= 1 || kernel.dtype == DType::Bool {
        return ways;
    }
    let narrow = storage_size(kernel.dtype) == 4;
    if form != Form::Tiled {
        ways.push(Way::Blocks(4));
        if narrow {
            ways.push(Way::Blocks(8));
        }
    }
    if form != Form::Direct {
        let fit = |tile: &&Tile| {
            **tile == Tile::SMALL || narrow && tile.shared_bytes() <= capabilities.workgroup_bytes
        };
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
    let aligned = storage_size(dtype) == 4
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
fn choose(kernel: &MatMulKernel, batch: usize, capabilities: &Capabilities) -> Tile {
    let tiles = |tile: Tile| kernel.m.div_ceil(tile.side) * kernel.n.div_ceil(tile.side) * batch;
    if storage_size(kernel.dtype) == 8 {
        Tile::SMALL
    } else if kernel.m.min(kernel.n) > 64
        && tiles(Tile::LARGE) >= capabilities.invocations / 256
        && Tile::LARGE.shared_bytes() <= capabilities.workgroup_bytes
    {
        Tile::LARGE
    } else if kernel.m.min(kernel.n) > 32 && tiles(Tile::MEDIUM) >= capabilities.invocations / 512 {
        Tile::MEDIUM
    } else {
        Tile::SMALL
    }
}

/// The way of the fixed table.
fn fixed(kernel: &MatMulKernel, capabilities: &Capabilities) -> Way {
    let batch = kernel.batch.numel();
    let blocks = |size: usize| kernel.m.div_ceil(size) * kernel.n.div_ceil(size) * batch;
    // A result of one or a few rows is read best by an invocation for each four columns, on every kind of device.
    if !capabilities.direct && kernel.m > 4 {
        Way::Tile(choose(kernel, batch, capabilities).side)
    } else if kernel.n <= 4 || blocks(8) < capabilities.invocations / 4 || storage_size(kernel.dtype) == 8 {
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
fn as_reduction(kernel: &MatMulKernel) -> ReduceKernel {
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

/// The dispatch of a turned product, on the operands of the product itself.
fn swap_inputs(d: &mut Dispatch) {
    for binding in &mut d.bindings {
        if let Resource::Input(k) = binding.resource {
            binding.resource = Resource::Input(1 - k);
        }
    }
}

/// A dispatch with the parameters that every form takes, and the functions.
fn opened(kernel: &MatMulKernel) -> (Dispatch, Code) {
    let mut d = Dispatch::new("matmul");
    let t = storage_type(kernel.dtype);
    let mut functions = Code::default();
    functions.line(format_args!("alias T = {t};"));
    let stored =
        if kernel.dtype == DType::U8 { "x & 255u".into() } else { formulas::store(kernel.dtype, "x") };
    functions.expression("store", &[("x", "T")], "T", stored);
    for (name, layout) in [("lhs_at", &kernel.lhs), ("rhs_at", &kernel.rhs)] {
        let strides: SmallVec<[isize; 8]> = layout.strides()[..kernel.batch.rank()].iter().copied().collect();
        functions.append(&index::function(name, &kernel.batch, &strides, layout.offset(), &mut d.params));
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

/// The dispatches of a matrix product.
pub(crate) fn dispatches(kernel: &MatMulKernel, capabilities: &Capabilities) -> Result<Dispatches> {
    if kernel.dtype == DType::Bool {
        return Err(capabilities.unsupported(
            "matmul",
            kernel.dtype,
            "cast first with .to_dtype(DType::I32)",
        ));
    }
    if kernel.n == 1 && kernel.m > 1 {
        let mut made = dispatches(&turned(kernel), capabilities)?;
        made.list.iter_mut().for_each(swap_inputs);
        return Ok(made);
    }
    if kernel.m == 1 && !capabilities.direct && kernel.n * kernel.batch.numel() < capabilities.invocations {
        return reduce::dispatches(&as_reduction(kernel), capabilities);
    }
    let way = capabilities.way.filter(|_| kernel.m > 1).unwrap_or_else(|| fixed(kernel, capabilities));
    let (mut d, functions) = opened(kernel);
    let t = storage_type(kernel.dtype);
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
            wide_output: storage_size(kernel.dtype) == 4 && kernel.n.is_multiple_of(4),
        };
        let tile = Tile::ALL.into_iter().find(|tile| tile.side == side).unwrap_or(Tile::SMALL);
        let (tiles_m, tiles_n) = (kernel.m.div_ceil(tile.side), kernel.n.div_ceil(tile.side));
        d.workgroups = tiles_m * tiles_n * batch;
        d.work = tile.side * tile.side * kernel.k.max(1);
        d.params.size("tiles_m", tiles_m);
        d.params.size("tiles_n", tiles_n);
        d.params.size("groups", d.workgroups);
        let element = |wide: bool| if wide { format!("vec4<{t}>") } else { t.to_string() };
        d.bind("lhs", element(access.lhs != Dense::Neither), false, Resource::Input(0));
        d.bind("rhs", element(access.rhs != Dense::Neither), false, Resource::Input(1));
        d.bind("output", element(access.wide_output), true, Resource::Output(0));
        d.code.append(functions.text());
        d.code.append(&tile::text(tile, &access));
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
    d.bind("lhs", element(lhs_vectors), false, Resource::Input(0));
    d.bind("rhs", element(rhs_vectors), false, Resource::Input(1));
    d.bind("output", t, true, Resource::Output(0));
    d.code.append(functions.text());
    blocked(rows, columns, lhs_vectors, rhs_vectors, &mut d.code);
    d.workgroups = (blocks_m * blocks_n * batch).div_ceil(64);
    d.work = 64 * rows * columns * kernel.k.max(1);
    Ok(d.into())
}

/// The barrier-free kernel with `rows` × `columns` results an invocation, unrolled. Four steps along k are taken at a time:
/// `a<row>` holds four elements of a row of the left operand, `b<step>_<c>` four columns of a row of the right one.
fn blocked(rows: usize, columns: usize, lhs: Vectors, rhs: Vectors, c: &mut Code) {
    let fours = columns / 4;
    c.entry(64, |c| {
        c.bind("g", "workgroup_index * 64u + local_index");
        c.return_if("g >= params.total");
        c.bind("block_n", "g % params.blocks_n");
        c.bind("block_m", "(g / params.blocks_n) % params.blocks_m");
        c.bind("batch", "g / (params.blocks_n * params.blocks_m)");
        c.bind("lhs_base", "lhs_at(batch)");
        c.bind("rhs_base", "rhs_at(batch)");
        c.bind("row0", format_args!("block_m * {rows}u"));
        c.bind("col0", format_args!("block_n * {columns}u"));
        // Reads beyond the edge repeat the last row or column; their results are not written.
        if lhs == Vectors::First {
            for q in 0..rows / 4 {
                c.bind(
                    format_args!("lr{q}"),
                    format_args!("lhs_base + min(row0 + {}u, params.m - 4u)", 4 * q),
                );
            }
        } else {
            for r in 0..rows {
                let row = format!("min(row0 + {r}u, params.m - 1u)");
                c.bind(format_args!("lr{r}"), format_args!("lhs_base + {row} * params.lhs_row"));
            }
        }
        if rhs == Vectors::Last {
            for q in 0..fours {
                c.bind(
                    format_args!("rc{q}"),
                    format_args!("rhs_base + min(col0 + {}u, params.n - 4u)", 4 * q),
                );
            }
        } else {
            for q in 0..columns {
                let column = format!("min(col0 + {q}u, params.n - 1u)");
                c.bind(format_args!("rc{q}"), format_args!("rhs_base + {column} * params.rhs_col"));
            }
        }
        for r in 0..rows {
            (0..fours).for_each(|q| c.var(format_args!("acc{r}_{q}"), "vec4<T>()"));
        }
        c.var("k", "0u");
        c.block("for (; k + 4u <= params.k; k += 4u)", |c| {
            load_lhs(rows, lhs, c);
            load_rhs(columns, rhs, c);
            for (step, x) in FIELDS.iter().enumerate() {
                for r in 0..rows {
                    (0..fours).for_each(|q| c.line(format_args!("acc{r}_{q} += a{r}.{x} * b{step}_{q};")));
                }
            }
        });
        c.block("for (; k < params.k; k += 1u)", |c| {
            for r in 0..rows {
                let row = match lhs {
                    Vectors::First => format!("lr{} + {}u", r / 4, r % 4),
                    Vectors::Last | Vectors::No => format!("lr{r}"),
                };
                let at = format!("{row} + k * params.lhs_col");
                c.bind(format_args!("a{r}"), element("lhs", lhs, &at));
            }
            for q in 0..fours {
                let column = |i: usize| match rhs {
                    Vectors::Last => format!("rc{q} + {i}u"),
                    Vectors::First | Vectors::No => format!("rc{}", 4 * q + i),
                };
                let one = |i| element("rhs", rhs, &format!("{} + k * params.rhs_row", column(i)));
                c.bind(format_args!("b{q}"), vector([0, 1, 2, 3].map(one)));
                (0..rows).for_each(|r| c.line(format_args!("acc{r}_{q} += a{r} * b{q};")));
            }
        });
        for r in 0..rows {
            c.when(format_args!("row0 + {r}u < params.m"), |c| {
                c.bind("at", format_args!("(batch * params.m + row0 + {r}u) * params.n + col0"));
                for q in 0..columns {
                    let x = format!("acc{r}_{}.{}", q / 4, FIELDS[q % 4]);
                    c.when(format_args!("col0 + {q}u < params.n"), |c| {
                        c.set(format_args!("output[at + {q}u]"), format_args!("store({x})"));
                    });
                }
            });
        }
    });
}

/// A vector of four.
fn vector(four: [String; 4]) -> String {
    format!("vec4<T>({})", four.join(", "))
}

/// One element of an operand that may be bound in vectors.
fn element(name: &str, vectors: Vectors, at: &str) -> String {
    if vectors == Vectors::No {
        format!("{name}[{at}]")
    } else {
        format!("{name}[({at}) >> 2u][({at}) & 3u]")
    }
}

fn load_lhs(rows: usize, lhs: Vectors, c: &mut Code) {
    if lhs == Vectors::First {
        for q in 0..rows / 4 {
            for step in 0..4 {
                let at = format!("lr{q} + (k + {step}u) * params.lhs_col");
                c.bind(format_args!("t{q}_{step}"), format_args!("lhs[({at}) >> 2u]"));
            }
        }
    }
    for r in 0..rows {
        let four = match lhs {
            Vectors::Last => format!("lhs[(lr{r} + k) >> 2u]"),
            Vectors::First => vector([0, 1, 2, 3].map(|step| format!("t{}_{step}.{}", r / 4, FIELDS[r % 4]))),
            Vectors::No => {
                vector([0, 1, 2, 3].map(|step| format!("lhs[lr{r} + (k + {step}u) * params.lhs_col]")))
            }
        };
        c.bind(format_args!("a{r}"), four);
    }
}

fn load_rhs(columns: usize, rhs: Vectors, c: &mut Code) {
    if rhs == Vectors::First {
        (0..columns).for_each(|q| c.bind(format_args!("u{q}"), format_args!("rhs[(rc{q} + k) >> 2u]")));
    }
    for (step, x) in FIELDS.iter().enumerate() {
        for q in 0..columns / 4 {
            let row = format!("(k + {step}u) * params.rhs_row");
            let four = match rhs {
                Vectors::Last => format!("rhs[(rc{q} + {row}) >> 2u]"),
                Vectors::First => vector([0, 1, 2, 3].map(|i| format!("u{}.{x}", 4 * q + i))),
                Vectors::No => vector([0, 1, 2, 3].map(|i| format!("rhs[rc{} + {row}]", 4 * q + i))),
            };
            c.bind(format_args!("b{step}_{q}"), four);
        }
    }
}
