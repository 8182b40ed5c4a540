//! The products of a tile: 64 outer rows by 32 inner rows, by 128 invocations. Outer rows are queries and
//! inner rows keys, except for the gradients of keys and values.
//!
//! Invocation `local_index` has the outer rows 4·ty to 4·ty + 3 and the inner rows 4·tx to 4·tx + 3, for
//! ty = local_index / 8 and tx = local_index % 8. `left` and `right` in workgroup memory hold vectors of four
//! outer rows and of four inner rows (or columns); the distance between lines of `left` and `right` is one
//! vector more than needed, which avoids bank conflicts.

use super::Matrix;
use crate::codegen::{dtypes::FIELDS, wgsl::Code};

/// The outer rows of a tile.
pub(super) const OUTER: usize = 64;
/// The inner rows of a tile.
pub(super) const INNER: usize = 32;
/// The terms of a product that are in workgroup memory at once.
pub(super) const DEPTH: usize = 32;
/// The invocations of a workgroup.
pub(super) const INVOCATIONS: usize = 128;

const LEFT_PITCH: usize = OUTER / 4 + 1;
const RIGHT_PITCH: usize = INNER / 4 + 1;
/// Vectors of partial results of rows.
const PARTIAL: usize = INVOCATIONS;

/// The workgroup memory of all kernels of a tile.
pub(super) const WORKGROUP_BYTES: usize = 16 * (DEPTH * (LEFT_PITCH + RIGHT_PITCH) + PARTIAL);

/// The rows of a matrix from `first` on, a WGSL expression.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) matrix: Matrix,
    pub(super) first: &'a str,
}

/// Declares the workgroup memory.
pub(super) fn declare(has_partial: bool, c: &mut Code) {
    c.line(format_args!("var<workgroup> left: array<vec4<f32>, {}>;", DEPTH * LEFT_PITCH));
    c.line(format_args!("var<workgroup> right: array<vec4<f32>, {}>;", DEPTH * RIGHT_PITCH));
    if has_partial {
        c.line(format_args!("var<workgroup> partial: array<vec4<f32>, {PARTIAL}>;"));
    }
}

/// The place of an invocation: `ty`, `tx`.
pub(super) fn place(c: &mut Code) {
    c.bind("ty", "local_index / 8u");
    c.bind("tx", "local_index % 8u");
}

/// Defines `<to>0` to `<to>3`: for each of four outer rows, the products with four inner rows, summed over
/// the `depth` columns. All invocations of a workgroup come here.
pub(super) fn product(to: &str, outer: Rows<'_>, inner: Rows<'_>, c: &mut Code) {
    let depth = outer.matrix.columns;
    for r in 0..4 {
        c.var(format_args!("{to}{r}"), "vec4<f32>()");
    }
    c.count("d0", ["0u", &format!("params.{depth}"), &format!("{DEPTH}u")], |c| {
        c.block("", |c| transposed("left", LEFT_PITCH, outer, c));
        let units = INNER / 4 * (DEPTH / 4);
        c.when(format_args!("local_index < {units}u"), |c| transposed("right", RIGHT_PITCH, inner, c));
        c.line("workgroupBarrier();");
        c.bind("steps", format_args!("min({DEPTH}u, params.{depth} - d0)"));
        c.count("step", ["0u", "steps", "4u"], |c| {
            for i in 0..4 {
                c.bind(format_args!("a{i}"), format_args!("left[(step + {i}u) * {LEFT_PITCH}u + ty]"));
                c.bind(format_args!("b{i}"), format_args!("right[(step + {i}u) * {RIGHT_PITCH}u + tx]"));
                for (r, field) in FIELDS.iter().enumerate() {
                    c.line(format_args!("{to}{r} += a{i}.{field} * b{i};"));
                }
            }
        });
        c.line("workgroupBarrier();");
    });
}

/// Loads a block of 4 × 4 elements: four rows, from column `d0` on, transposed.
fn transposed(to: &str, pitch: usize, Rows { matrix, first }: Rows<'_>, c: &mut Code) {
    let name = matrix.name;
    for j in 0..4 {
        let row = format!("{first} + ty * 4u + {j}u");
        c.bind(format_args!("v{j}"), format_args!("{name}4({name}_base, {row}, d0 + tx * 4u)"));
    }
    for (i, x) in FIELDS.iter().enumerate() {
        let four = format!("vec4<f32>(v0.{x}, v1.{x}, v2.{x}, v3.{x})");
        c.set(format_args!("{to}[(tx * 4u + {i}u) * {pitch}u + ty]"), four);
    }
}

/// Writes the tile `<name>0` to `<name>3` to `left`, inner rows by outer rows. Every invocation must have
/// passed a barrier since `left` was read.
pub(super) fn put(name: &str, c: &mut Code) {
    for (i, x) in FIELDS.iter().enumerate() {
        let four = format!("vec4<f32>({name}0.{x}, {name}1.{x}, {name}2.{x}, {name}3.{x})");
        c.set(format_args!("left[(tx * 4u + {i}u) * {LEFT_PITCH}u + ty]"), four);
    }
}

/// Groups of 32 columns that hold the given number of columns.
pub(super) fn groups(columns: usize) -> usize {
    columns.div_ceil(32)
}

/// Declares the sums of `groups` groups of columns: `<to><row>_<group>`.
pub(super) fn sums(to: &str, groups: usize, c: &mut Code) {
    for r in 0..4 {
        for g in 0..groups {
            c.var(format_args!("{to}{r}_{g}"), "vec4<f32>()");
        }
    }
}

/// Adds the product of the tile in `left` with the inner rows of a matrix, columns `column` on, to the sums.
/// The tile may have been written since the last barrier, and may be overwritten afterwards.
pub(super) fn accumulate(to: &str, groups: usize, inner: Rows<'_>, column: &str, c: &mut Code) {
    // As many rows as fit the memory.
    let (rows, across) = (INNER / groups.next_power_of_two(), 8 * groups);
    let (vectors, name) = (rows * across, inner.matrix.name);
    c.count("part", ["0u", &format!("{INNER}u"), &format!("{rows}u")], |c| {
        for u in 0..vectors.div_ceil(INVOCATIONS) {
            let unit = format!("unit{u}");
            c.bind(&unit, format_args!("local_index + {}u", u * INVOCATIONS));
            c.when(format_args!("{unit} < {vectors}u"), |c| {
                let row = format!("{} + part + {unit} / {across}u", inner.first);
                let column = format!("{column} + {unit} % {across}u * 4u");
                c.set(format_args!("right[{unit}]"), format_args!("{name}4({name}_base, {row}, {column})"));
            });
        }
        c.line("workgroupBarrier();");
        c.count("step", ["0u", &format!("{rows}u"), "4u"], |c| {
            for i in 0..4 {
                c.bind(format_args!("a{i}"), format_args!("left[(part + step + {i}u) * {LEFT_PITCH}u + ty]"));
                for g in 0..groups {
                    let at = format!("(step + {i}u) * {across}u + {}u + tx", 8 * g);
                    c.bind(format_args!("b{i}_{g}"), format_args!("right[{at}]"));
                    for (r, field) in FIELDS.iter().enumerate() {
                        c.line(format_args!("{to}{r}_{g} += a{i}.{field} * b{i}_{g};"));
                    }
                }
            }
        });
        c.line("workgroupBarrier();");
    });
}
