//! Contractions: batched matrix products and other sums of products over lists of axes, such as
//! convolutions over sliding windows (`matrices.rs`). This module chooses the form: the direct one, where
//! each invocation keeps a block of results in registers, tiles in workgroup memory (`tile.rs`), tiles on
//! matrix units (`matrix.rs`), or a kernel for few rows (`few_rows.rs`). All but the direct form cut k into
//! parts if there are few workgroups (`parts.rs`).
//!
//! If the innermost axis of one of an operand's functions is dense and everything else is a multiple of
//! four, four elements are read at once. A product with few short sums is computed as a reduction.

use smallvec::SmallVec;
use tensor_core::{
    BinaryOp, DType, ReduceOp, Result,
    kernel::{Body, Instr, Kernel, Program},
};

use crate::{
    codegen::{
        capabilities::{Capabilities, Form, ProductVariant},
        dispatch::{Dispatch, Dispatches, Resource},
        dtypes::{FIELDS, storage_size},
        formulas,
        wgsl::Code,
    },
    kernels::{
        cut::{Cut, Inner, Parts, Place, Temporary},
        fold::reduce::{self, Reduce},
        product::{
            epilogue::{self, Store},
            few_rows::{self, FewRows},
            matrices::{Dense, Product, Side},
            matrix::{self, Grid},
            parts::Split,
            staging::Staging,
            tile::{self, Dots, Tile},
        },
    },
};

/// The least terms of a part of a product that is cut into parts.
const MIN_TERMS_OF_PART: usize = 64;

/// The body of a contraction.
pub(crate) struct Contract {
    pub(crate) has_epilogue: bool,
}

impl Cut for Contract {
    fn piece(&self, kernel: &Kernel, place: Place<'_>) -> Result<Dispatches> {
        dispatches(kernel, place.capabilities)
    }

    /// The sums, which the epilogue reads from memory.
    fn temporary(&self, kernel: &Kernel) -> Option<Temporary> {
        let dtype = kernel.operands[0].dtype.register();
        let elements = kernel.outputs[0].shape.numel();
        self.has_epilogue.then_some(Temporary { dtype, elements, axis: None })
    }

    fn inner(&self, kernel: &Kernel) -> Inner {
        let inner = Inner::reduced(kernel);
        let rounds = inner.axes.iter().map(|&axis| kernel.space[axis]).product();
        Inner { rounds, ..inner }
    }

    fn part(&self, part: &Kernel, parts: &mut Parts<'_>) -> Result<Dispatches> {
        let sums = epilogue::sums(part);
        Ok(parts.stored(dispatches(&sums, parts.place.capabilities)?, sums.outputs[0].dtype))
    }

    fn join(&self, kernel: &Kernel, parts: &Parts<'_>) -> Result<Dispatches> {
        // The temporaries of the parts are free by now.
        const SUMS: Resource = Resource::Temporary(1);
        let (output, stored) = (&kernel.outputs[0], kernel.operands[0].dtype.register());
        let results = output.shape.numel();
        let dtypes = [stored, if self.has_epilogue { stored } else { output.dtype }];
        let mut joined = reduce::join_parts(ReduceOp::Sum, dtypes, results, parts, None)?;
        if self.has_epilogue {
            joined.temporaries.push((stored, results));
            joined.redirect(Resource::Output(0), SUMS);
            joined.list.extend(epilogue::apart(kernel, SUMS, parts.place.capabilities)?);
        }
        Ok(joined)
    }
}

impl Product {
    /// The largest tile size that still gives enough tiles to keep the device busy.
    fn tile(&self, capabilities: &Capabilities) -> Tile {
        let least = self.m.min(self.n);
        let tiles = |tile: Tile| self.m.div_ceil(tile.side) * self.n.div_ceil(tile.side) * self.batch;
        if storage_size(self.dtype) == 8 {
            Tile::SMALL
        } else if least > 64
            && tiles(Tile::LARGE) >= capabilities.invocations / 256
            && Tile::LARGE.workgroup_bytes() <= capabilities.workgroup_bytes
        {
            Tile::LARGE
        } else if least > 32 && tiles(Tile::MEDIUM) >= capabilities.invocations / 512 {
            Tile::MEDIUM
        } else {
            Tile::SMALL
        }
    }

    /// The fragments on matrix units, if the device has them and the product is one for them.
    fn grid(&self, capabilities: &Capabilities) -> Option<Grid> {
        // The sums may need a temporary.
        let room = (capabilities.binding_bytes / 4) as usize;
        let suits = self.dtype == DType::F16
            && self.m.min(self.n) > few_rows::MAX_ROWS
            && self.m * self.n * self.batch < room - 4
            && ![&self.lhs, &self.rhs].iter().any(|side| side.is_in_blocks());
        let units = capabilities.matrix_units.filter(|_| suits)?;
        Grid::new(units, capabilities.workgroup_bytes)
    }

    /// The variant from the fixed table.
    fn fixed(&self, capabilities: &Capabilities) -> ProductVariant {
        let blocks = |size: usize| self.m.div_ceil(size) * self.n.div_ceil(size) * self.batch;
        if self.grid(capabilities).is_some() {
            ProductVariant::MatrixUnits
        } else if !capabilities.direct && FewRows::of(self, capabilities).is_some() {
            ProductVariant::FewRows
        } else if !capabilities.direct && self.m > 4 {
            ProductVariant::Tile(self.tile(capabilities).side)
        } else if self.n <= 4 || blocks(8) < capabilities.invocations / 4 || storage_size(self.dtype) == 8 {
            // The largest register blocks that still give every invocation some work.
            ProductVariant::Blocks(4)
        } else {
            ProductVariant::Blocks(8)
        }
    }

    /// The dispatches of a kernel in tiles, which `write` writes for a store and its use of vectors. Without
    /// `atomics`, results that share a word with those of other invocations go through a temporary.
    fn tiled(
        &self,
        kernel: &Kernel,
        staging: Staging,
        (mut d, atomics): (Dispatch, bool),
        capabilities: &Capabilities,
        write: impl FnOnce(&Store, bool, &mut Code),
    ) -> Result<Dispatches> {
        let Staging { side, depth, invocations, .. } = staging;
        let (tiles_m, tiles_n) = (self.m.div_ceil(side), self.n.div_ceil(side));
        let tiles = tiles_m * tiles_n * self.batch;
        let units = self.k.div_ceil(depth);
        let most = units * depth / MIN_TERMS_OF_PART;
        let mut split = Split::new(kernel, tiles * invocations, units, most, capabilities);
        split.apart |= !atomics && epilogue::shares_words(kernel, self.n);
        let chunk = split.chunk * depth;
        d.workgroups = tiles * split.count;
        d.work = side * side * chunk;
        for (name, size) in [
            ("tiles_m", tiles_m),
            ("tiles_n", tiles_n),
            ("workgroups", d.workgroups),
            ("parts", split.count),
            ("chunk", chunk),
            ("pitch", split.pitch),
        ] {
            d.params.size(name, size);
        }
        let store = split.store(kernel, &mut d, capabilities)?;
        let vectors = store.takes_vectors() && self.n.is_multiple_of(4);
        store.bind(vectors, &mut d);
        write(&store, vectors, &mut d.code);
        split.joined(kernel, d, capabilities)
    }

    fn blocked(
        &self,
        kernel: &Kernel,
        [rows, columns]: [usize; 2],
        capabilities: &Capabilities,
    ) -> Result<Dispatch> {
        let mut d = self.dispatch();
        let (blocks_m, blocks_n) = (self.m.div_ceil(rows), self.n.div_ceil(columns));
        let total = blocks_m * blocks_n * self.batch;
        for (name, size) in [("blocks_m", blocks_m), ("blocks_n", blocks_n), ("total", total)] {
            d.params.size(name, size);
        }
        let store = Store::new(kernel, &mut d, capabilities)?;
        store.bind(false, &mut d);
        blocked([rows, columns], [self.lhs.dense, self.rhs.dense], &store, &mut d.code);
        d.workgroups = total.div_ceil(64);
        d.work = 64 * rows * columns * self.k.max(1);
        Ok(d)
    }
}

/// The variants of a contraction on this device, from one family of forms; at most one if there is no
/// choice.
pub(crate) fn variants(
    kernel: &Kernel,
    form: Form,
    capabilities: &Capabilities,
) -> SmallVec<[ProductVariant; 8]> {
    let mut variants = SmallVec::new();
    let Some(of) = Product::of(kernel).filter(|of| of.m.min(of.n) > 1 && of.dtype != DType::Bool) else {
        return variants;
    };
    let narrow = storage_size(of.dtype) <= 4;
    if form != Form::Tiled {
        variants.push(ProductVariant::Blocks(4));
        if narrow {
            variants.push(ProductVariant::Blocks(8));
        }
    }
    if form != Form::Direct {
        let room = capabilities.workgroup_bytes;
        let fit = |tile: &&Tile| **tile == Tile::SMALL || narrow && tile.workgroup_bytes() <= room;
        variants.extend(Tile::ALL.iter().filter(fit).map(|tile| ProductVariant::Tile(tile.side)));
        variants.extend(FewRows::of(&of, capabilities).map(|_| ProductVariant::FewRows));
    }
    variants.extend(of.grid(capabilities).map(|_| ProductVariant::MatrixUnits));
    variants
}

/// The class of a product, which decides the best variant, and its number of multiplications. The class has
/// the dtype, the sizes to a power of two, how the operands can be read, and the number of axes if an
/// operand has more than a plain product.
pub(crate) fn class(kernel: &Kernel) -> Option<(String, usize)> {
    let of = Product::of(kernel)?;
    let work = [of.m, of.n, of.k, of.batch].into_iter().fold(1, usize::saturating_mul);
    let [m, n, k, batch] = [of.m, of.n, of.k, of.batch].map(|size| size.max(1).next_power_of_two());
    let axes = |side: &Side| side.outer.sizes.len().max(1) * side.inner.sizes.len().max(1);
    let more = match axes(&of.lhs) * axes(&of.rhs) {
        1 => String::new(),
        axes => format!(" {axes}"),
    };
    Some((format!("{} {m} {n} {k} {batch} {:?} {:?}{more}", of.dtype, of.lhs.dense, of.rhs.dense), work))
}

/// The dispatches of a contraction.
pub(crate) fn dispatches(kernel: &Kernel, capabilities: &Capabilities) -> Result<Dispatches> {
    let dtype = kernel.operands[0].dtype;
    let Some(of) = Product::of(kernel).filter(|_| dtype != DType::Bool) else {
        return Err(capabilities.unsupported("matmul", dtype, "cast first with .to_dtype(DType::I32)"));
    };
    let variant = capabilities.variant.filter(|_| of.m > 1).unwrap_or_else(|| of.fixed(capabilities));
    let few_rows = FewRows::of(&of, capabilities).filter(|_| variant == ProductVariant::FewRows);
    let reduces =
        of.m == 1 && !capabilities.direct && few_rows.is_none() && of.n * of.batch < capabilities.invocations;
    // The loops of a program count as iterations of an invocation, once for each of its results.
    if let Body::Contract(Some(program)) = &kernel.body
        && (reduces || formulas::rounds(program) > 0)
    {
        let sums = epilogue::sums(kernel);
        let mut made = dispatches(&sums, capabilities)?;
        let temporary = Resource::Temporary(made.temporaries.len());
        made.temporaries.push((sums.outputs[0].dtype, sums.outputs[0].shape.numel()));
        made.redirect(Resource::Output(0), temporary);
        made.list.extend(epilogue::apart(kernel, temporary, capabilities)?);
        return Ok(made);
    }
    if reduces {
        let program = product(dtype, kernel.outputs[0].dtype);
        return reduce::dispatches(kernel, Reduce { op: ReduceOp::Sum, program: &program }, capabilities);
    }
    if let Some(few_rows) = few_rows {
        return few_rows.dispatches(kernel, capabilities);
    }
    if let Some(grid) = of.grid(capabilities).filter(|_| variant == ProductVariant::MatrixUnits) {
        let mut d = if grid.loads_f16() { of.dispatch_in_f16() } else { of.dispatch() };
        d.extensions = grid.extensions();
        // naga gives atomics a scope that its memory model for cooperative matrices does not declare.
        return of.tiled(kernel, grid.staging(), (d, false), capabilities, |store, vectors, c| {
            matrix::write(grid, [&of.lhs, &of.rhs], store, vectors, c);
        });
    }
    let side = match variant {
        ProductVariant::Tile(side) => {
            let tile = Tile::ALL.into_iter().find(|tile| tile.side == side).unwrap_or(Tile::SMALL);
            let tile = (tile, Dots::of(of.dtype, capabilities));
            let (staging, d) = (tile.0.staging(tile.1), (of.dispatch(), true));
            return of.tiled(kernel, staging, d, capabilities, |store, vectors, c| {
                tile::write(tile, [&of.lhs, &of.rhs], store, vectors, c);
            });
        }
        ProductVariant::Blocks(_) | ProductVariant::FewRows | ProductVariant::MatrixUnits if of.m == 1 => {
            [1, 4]
        }
        ProductVariant::Blocks(8) => [8, 8],
        ProductVariant::Blocks(_) | ProductVariant::FewRows | ProductVariant::MatrixUnits => [4, 4],
    };
    Ok(of.blocked(kernel, side, capabilities)?.into())
}

/// The product of two inputs. Products of small integers that are added to wider sums are not wrapped.
fn product(dtype: DType, sums: DType) -> Program {
    let inputs = vec![dtype; 2];
    let loads = [(Instr::Load(0), dtype), (Instr::Load(1), dtype)];
    let casts = [(Instr::Cast(0), sums), (Instr::Cast(1), sums)];
    let mut steps = loads.to_vec();
    if dtype.is_int() && sums != dtype {
        steps.extend(casts);
    }
    let last = steps.len() as u16;
    let held = steps[steps.len() - 1].1;
    steps.push((Instr::Binary(BinaryOp::Mul, last - 2, last - 1), held));
    let (instrs, dtypes) = steps.into_iter().unzip();
    Program { instrs, dtypes, inputs, scalars: Vec::new(), outputs: vec![last] }
}

/// The direct kernel with `rows` × `columns` results for each invocation, unrolled. It advances four steps
/// along k at a time: `a<row>` holds four elements of a row of the left operand, `b<step>_<q>` four columns
/// of a row of the right one.
fn blocked([rows, columns]: [usize; 2], [lhs, rhs]: [Dense; 2], store: &Store, c: &mut Code) {
    let fours = columns / 4;
    let rows_of = |dense| if dense == Dense::Outer { rows.div_ceil(4) } else { rows };
    let columns_of = |dense| if dense == Dense::Outer { fours } else { columns };
    c.entry(64, |c| {
        c.bind("g", "workgroup_index * 64u + local_index");
        c.return_if("g >= params.total");
        c.bind("block_n", "g % params.blocks_n");
        c.bind("block_m", "(g / params.blocks_n) % params.blocks_m");
        c.bind("batch", "g / (params.blocks_n * params.blocks_m)");
        c.bind("row0", format_args!("block_m * {rows}u"));
        c.bind("col0", format_args!("block_n * {columns}u"));
        c.bind("lhs_base", "lhs_batch(batch)");
        c.bind("rhs_base", "rhs_batch(batch)");
        // Reads beyond the edge repeat the last row or column, or the last four; their results are not
        // written.
        let places = |name: &str, local: &str, dense, many: usize, first: &str, size: &str, c: &mut Code| {
            let step = if dense == Dense::Outer { 4 } else { 1 };
            for i in 0..many {
                let at = format!("min({first} + {}u, params.{size} - {step}u)", i * step);
                c.bind(format_args!("{local}{i}"), format_args!("{name}_base + {name}_outer({at})"));
            }
        };
        places("lhs", "lr", lhs, rows_of(lhs), "row0", "m", c);
        places("rhs", "rc", rhs, columns_of(rhs), "col0", "n", c);
        for r in 0..rows {
            (0..fours).for_each(|q| c.var(format_args!("acc{r}_{q}"), "vec4<T>()"));
        }
        c.var("k", "0u");
        c.block("for (; k + 4u <= params.k; k += 4u)", |c| {
            load("lhs", "lr", "a", rows, lhs, c);
            load("rhs", "rc", "u", columns, rhs, c);
            for (step, x) in FIELDS.iter().enumerate() {
                for q in 0..fours {
                    let four = match rhs {
                        Dense::Outer => format!("u{q}_{step}"),
                        Dense::Inner | Dense::Neither => {
                            vector([0, 1, 2, 3].map(|i| format!("u{}.{x}", 4 * q + i)))
                        }
                    };
                    c.bind(format_args!("b{step}_{q}"), four);
                    for r in 0..rows {
                        let a = match lhs {
                            Dense::Outer => format!("a{}_{step}.{}", r / 4, FIELDS[r % 4]),
                            Dense::Inner | Dense::Neither => format!("a{r}.{x}"),
                        };
                        c.line(format_args!("acc{r}_{q} += {a} * b{step}_{q};"));
                    }
                }
            }
        });
        c.block("for (; k < params.k; k += 1u)", |c| {
            c.bind("lk", "lhs_inner(k)");
            c.bind("rk", "rhs_inner(k)");
            let one = |name, local, dense, i: usize, along: &str| match dense {
                Dense::Outer => format!("load_{name}({local}{} + {along} + {}u)", i / 4, i % 4),
                Dense::Inner | Dense::Neither => format!("load_{name}({local}{i} + {along})"),
            };
            (0..rows).for_each(|r| c.bind(format_args!("a{r}"), one("lhs", "lr", lhs, r, "lk")));
            for q in 0..fours {
                let four = [0, 1, 2, 3].map(|i| one("rhs", "rc", rhs, 4 * q + i, "rk"));
                c.bind(format_args!("b{q}"), vector(four));
                (0..rows).for_each(|r| c.line(format_args!("acc{r}_{q} += a{r} * b{q};")));
            }
        });
        for r in 0..rows {
            c.when(format_args!("row0 + {r}u < params.m"), |c| {
                c.bind("at", format_args!("(batch * params.m + row0 + {r}u) * params.n + col0"));
                for q in 0..fours {
                    store.up_to_four(
                        &format!("at + {}u", 4 * q),
                        &format!("col0 + {}u", 4 * q),
                        &format!("acc{r}_{q}"),
                        c,
                    );
                }
            });
        }
    });
}

/// A vector of four.
fn vector(four: [String; 4]) -> String {
    format!("vec4<T>({})", four.join(", "))
}

/// Loads four steps along k of `many` rows or columns at offsets `<local><i>`: into `<to><i>`, each a
/// vector along k, or, if the operand is dense along its outer axis, into `<to><q>_<step>`, each with four
/// rows or columns.
fn load(name: &str, local: &str, to: &str, many: usize, dense: Dense, c: &mut Code) {
    if dense == Dense::Inner {
        c.bind(format_args!("{name}_k"), format_args!("{name}_inner(k)"));
        for i in 0..many {
            c.bind(format_args!("{to}{i}"), format_args!("load4_{name}({local}{i} + {name}_k)"));
        }
        return;
    }
    for step in 0..4 {
        c.bind(format_args!("{name}_k{step}"), format_args!("{name}_inner(k + {step}u)"));
    }
    if dense == Dense::Outer {
        for q in 0..many.div_ceil(4) {
            for step in 0..4 {
                let at = format!("{local}{q} + {name}_k{step}");
                c.bind(format_args!("{to}{q}_{step}"), format_args!("load4_{name}({at})"));
            }
        }
        return;
    }
    for i in 0..many {
        let four = [0, 1, 2, 3].map(|step| format!("load_{name}({local}{i} + {name}_k{step})"));
        c.bind(format_args!("{to}{i}"), vector(four));
    }
}
