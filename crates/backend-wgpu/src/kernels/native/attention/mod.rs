//! Attention in tiles of queries and keys, after Dao (FlashAttention-2, 2023), within 16 KiB of workgroup
//! memory and without subgroups or atomics.
//!
//! [`tile`] has the products of a tile. [`forward`] computes blocks of queries, [`few`] up to
//! [`few::MAX_ROWS`] queries with the keys split over workgroups, and [`backward`] the gradients. Widths are
//! not bounded: each workgroup computes a slice of the features, and computes the scores again for it.

mod backward;
mod few;
mod forward;
mod tile;

use tensor_core::{Attention, AttentionPass, DType, Kernel, kernel::Operand};

use self::tile::WORKGROUP_BYTES;
use super::Native;
use crate::codegen::{
    capabilities::Capabilities,
    dispatch::{Dispatch, Dispatches, Resource},
    dtypes::FIELDS,
    index,
    storage::Elements,
    wgsl::Code,
};

impl Native for Attention {
    fn supports(&self, kernel: &Kernel, capabilities: &Capabilities) -> bool {
        let problem = Problem::new(self, kernel);
        // Software adapters are faster with the composition, which needs no barriers.
        matches!(kernel.operands[0].dtype, DType::F32 | DType::F16 | DType::BF16)
            && !capabilities.direct
            && capabilities.workgroup_bytes >= WORKGROUP_BYTES
            && [problem.batches, problem.rows, problem.keys].iter().all(|&size| size > 0)
            && problem.rounds() <= capabilities.rounds
    }

    fn dispatches(&self, kernel: &Kernel, capabilities: &Capabilities) -> Dispatches {
        let grouped = few::grouped(self, kernel);
        let problem = Problem::new(self, grouped.as_ref().unwrap_or(kernel));
        match self.pass {
            AttentionPass::Forward if problem.rows <= few::MAX_ROWS => {
                few::dispatches(&problem, capabilities)
            }
            AttentionPass::Forward => forward::dispatch(&problem).into(),
            AttentionPass::Backward => backward::dispatches(&problem),
        }
    }
}

/// The sizes of a pass: L, S, E and V of `scaled_dot_product_attention`, and the batch positions.
struct Problem<'a> {
    attention: &'a Attention,
    kernel: &'a Kernel,
    batches: usize,
    rows: usize,
    keys: usize,
    width: usize,
    features: usize,
}

/// A matrix operand in WGSL.
#[derive(Clone, Copy)]
struct Matrix {
    /// The name of its buffer.
    name: &'static str,
    /// The name of the function that returns the offset of a batch position's matrix.
    batch: &'static str,
    /// The parameters with its numbers of rows and columns.
    rows: &'static str,
    columns: &'static str,
}

const QUERY: Matrix = Matrix { name: "query", batch: "query_batch", rows: "rows", columns: "width" };
const KEY: Matrix = Matrix { name: "key", batch: "key_batch", rows: "keys", columns: "width" };
const VALUE: Matrix = Matrix { name: "value", batch: "value_batch", rows: "keys", columns: "features" };
const OUT: Matrix = Matrix { name: "attended", batch: "attended_batch", rows: "rows", columns: "features" };
const GRADIENT: Matrix =
    Matrix { name: "gradient", batch: "gradient_batch", rows: "rows", columns: "features" };
const MASK: Matrix = Matrix { name: "mask", batch: "mask_batch", rows: "rows", columns: "keys" };

/// Whether each row of an operand's matrices consists of whole vectors of four elements that begin at
/// multiples of 4.
fn in_fours(operand: &Operand) -> bool {
    let (shape, strides) = (operand.layout.shape(), operand.layout.strides());
    let Some((&columns, lead)) = shape.split_last() else { return false };
    let aligned = |(&n, &stride): (&usize, &isize)| n < 2 || stride % 4 == 0;
    (strides[lead.len()] == 1 || columns == 1)
        && columns.is_multiple_of(4)
        && operand.layout.offset().is_multiple_of(4)
        && lead.iter().zip(strides).all(aligned)
}

impl<'a> Problem<'a> {
    fn new(attention: &'a Attention, kernel: &'a Kernel) -> Problem<'a> {
        let (query, value) = (kernel.operands[0].layout.shape(), kernel.operands[2].layout.shape());
        let lead = query.rank() - 2;
        Problem {
            attention,
            kernel,
            batches: query[..lead].iter().product(),
            rows: query[lead],
            keys: value[lead],
            width: query[lead + 1],
            features: value[lead + 1],
        }
    }

    /// An upper bound of the loop iterations of an invocation, with dropout.
    fn rounds(&self) -> usize {
        let product = |width: usize| width.div_ceil(tile::DEPTH) * 9;
        let tile = 2 * product(self.width.max(self.features)) + 400;
        self.rows.max(self.keys).div_ceil(tile::INNER).saturating_mul(tile)
    }

    /// The number of the mask's operand.
    fn mask(&self) -> Option<usize> {
        self.attention.mask.then(|| self.attention.pass.inputs())
    }

    /// The number of the operand with the position in the random stream.
    fn place(&self) -> Option<usize> {
        self.attention.dropout.map(|_| self.attention.pass.inputs() + usize::from(self.attention.mask))
    }

    /// Adds the sizes to the parameters.
    fn sizes(&self, d: &mut Dispatch) {
        d.params.size("batches", self.batches);
        d.params.size("rows", self.rows);
        d.params.size("keys", self.keys);
        d.params.size("width", self.width);
        d.params.size("features", self.features);
        d.params.word("scale", (self.attention.scale as f32).to_bits());
        if let Some(first) = self.attention.causal {
            d.params.size("first", first.min(self.keys));
        }
    }

    /// Declares operand `k` as `matrix`: its buffer, `<name>_batch(batch)`, and `<name>4(base, row, column)`,
    /// four elements of a row with zeros beyond the edges. `column` is a multiple of 4.
    fn matrix(&self, matrix: Matrix, k: usize, d: &mut Dispatch) {
        let operand = &self.kernel.operands[k];
        let Matrix { name, batch, rows, columns } = matrix;
        let (shape, strides) = (operand.layout.shape(), operand.layout.strides());
        let lead = shape.rank() - 2;
        let fours = in_fours(operand);
        d.bind(name, Elements::of(operand.dtype).in_fours(fours), false, Resource::Input(k));
        let offset = operand.layout.offset();
        let function = index::function(batch, &shape[..lead], &strides[..lead], offset, &mut d.params);
        d.params.stride(format!("{name}_row"), strides[lead]);
        let four = if operand.dtype == DType::Bool { "vec4<u32>" } else { "vec4<f32>" };
        let parameters = [("base", "u32"), ("row", "u32"), ("column", "u32")];
        let c = &mut d.code;
        c.append(&function);
        if fours {
            c.function(&format!("{name}4"), &parameters, four, |c| {
                c.when(format_args!("row >= params.{rows} || column >= params.{columns}"), |c| {
                    c.line(format_args!("return {four}();"));
                });
                c.line(format_args!("return load4_{name}(base + row * params.{name}_row + column);"));
            });
            return;
        }
        d.params.stride(format!("{name}_column"), strides[lead + 1]);
        c.function(&format!("{name}4"), &parameters, four, |c| {
            c.var("x", format_args!("{four}()"));
            c.when(format_args!("row < params.{rows}"), |c| {
                c.bind("at", format_args!("base + row * params.{name}_row + column * params.{name}_column"));
                for (e, field) in FIELDS.iter().enumerate() {
                    c.when(format_args!("column + {e}u < params.{columns}"), |c| {
                        let place = format!("at + {e}u * params.{name}_column");
                        c.set(format_args!("x.{field}"), format_args!("load_{name}({place})"));
                    });
                }
            });
            c.line("return x;");
        });
    }

    /// Declares the mask, if there is one.
    fn declare_mask(&self, d: &mut Dispatch) {
        if let Some(k) = self.mask() {
            self.matrix(MASK, k, d);
        }
    }

    /// Declares what a forward pass reads: query, key, value, the mask, and the factors of dropout.
    fn declare_inputs(&self, d: &mut Dispatch) {
        for (k, matrix) in [QUERY, KEY, VALUE].into_iter().enumerate() {
            self.matrix(matrix, k, d);
        }
        self.declare_mask(d);
        self.place_in_stream(d);
    }

    /// Declares `kept` with the stream's position from its operand, if there is dropout.
    fn place_in_stream(&self, d: &mut Dispatch) {
        let Some(k) = self.place() else { return };
        let layout = &self.kernel.operands[k].layout;
        d.bind("place", "u32", false, Resource::Input(k));
        d.params.size("place_first", layout.offset());
        d.params.stride("place_step", layout.strides()[0]);
        let word = |i: usize| format!("place[params.place_first + {i}u * params.place_step]");
        let pair = |i: usize| format!("vec2<u32>({}, {})", word(i), word(i + 1));
        self.declare_kept(&pair(0), &pair(2), d);
    }

    /// Declares `kept(batch, row, key)`, the factor of a weight under dropout, if there is dropout. `seed`
    /// and `offset` are WGSL expressions for the position in the random stream, `vec2<u32>` each.
    fn declare_kept(&self, seed: &str, offset: &str, d: &mut Dispatch) {
        let Some(p) = self.attention.dropout else { return };
        d.params.word("p", (p as f32).to_bits());
        d.params.word("kept_factor", ((1.0 / (1.0 - p)) as f32).to_bits());
        let parameters = [("batch", "u32"), ("row", "u32"), ("key", "u32")];
        d.code.function("kept", &parameters, "f32", |c| {
            // Element (row·B + batch)·S + key of the stream.
            c.var("at", "mul_wide(row * params.batches + batch, params.keys)");
            c.line("at.x += key;");
            c.line("at.y += select(0u, 1u, at.x < key);");
            c.bind("offset", offset);
            c.line("at.x += offset.x;");
            c.line("at.y += offset.y + select(0u, 1u, at.x < offset.x);");
            c.bind("uniform_draw", format_args!("uniform_f32(philox({seed}, at))"));
            c.line("return select(0.0, bitcast<f32>(params.kept_factor), uniform_draw >= bitcast<f32>(params.p));");
        });
    }

    /// Declares `exp4`, `most4` (the greatest of four numbers, except NaN), and `hidden`, the score of a key
    /// that a query does not see.
    fn declare_functions(c: &mut Code) {
        let parts = FIELDS.map(|x| format!("exp_f32(x.{x})")).join(", ");
        c.expression("exp4", &[("x", "vec4<f32>")], "vec4<f32>", format_args!("vec4<f32>({parts})"));
        c.expression("hidden", &[], "vec4<f32>", "vec4<f32>(-inf_f32())");
        c.function("most4", &[("x", "vec4<f32>")], "f32", |c| {
            c.bind("two", "select(x.xy, x.zw, x.zw > x.xy)");
            c.line("return select(two.x, two.y, two.y > two.x);");
        });
    }
}

/// Adds the bases of matrices, `<name>_base`, for the batch position `batch`.
fn bases(matrices: &[Matrix], c: &mut Code) {
    for Matrix { name, batch, .. } in matrices {
        c.bind(format_args!("{name}_base"), format_args!("{batch}(batch)"));
    }
}

/// Stores up to four elements `value` of output `name` in column `column` of the row that begins at `line`.
/// `fours` says whether rows consist of whole vectors.
fn store([name, line, column, columns, value]: [&str; 5], fours: bool, c: &mut Code) {
    if fours {
        return c.when(format_args!("{column} < {columns}"), |c| {
            c.line(format_args!("store4_{name}({line} + {column}, {value});"));
        });
    }
    for (e, field) in FIELDS.iter().enumerate() {
        c.when(format_args!("{column} + {e}u < {columns}"), |c| {
            c.line(format_args!("store_{name}({line} + {column} + {e}u, {value}.{field});"));
        });
    }
}
