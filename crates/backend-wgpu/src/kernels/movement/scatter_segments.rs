//! Scatters by sorted segments: the positions of the index are sorted by the element of the output that they
//! name, and the values of each element are then combined in levels of chunks. The order of the additions
//! depends only on the index, and no invocation has more than [`CHUNK`] entries, however often an index is
//! repeated.

use smallvec::SmallVec;
use tensor_core::{
    DType, Layout, Result, ScatterOp, Strides, collapse,
    kernel::{Kernel, Operand},
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Resource},
        dtypes::{loaded, storage_size, unpacked},
        index,
        storage::Elements,
    },
    kernels::{
        by_index::{Along, fours, index_functions},
        cut::PIECE_TEMPORARIES,
        sort::arg_sort,
    },
};

/// Entries that an invocation walks, a multiple of four.
const CHUNK: usize = 64;
/// The temporaries of the sort.
const SORT_TEMPORARIES: usize = arg_sort::TEMPORARIES;
/// The keys of the index, the sorted positions, and the keys and values of two levels.
const KEYS: Resource = Resource::Temporary(SORT_TEMPORARIES);
const ORDER: Resource = Resource::Temporary(SORT_TEMPORARIES + 1);
const ENTRY_KEYS: [Resource; 2] =
    [Resource::Temporary(SORT_TEMPORARIES + 2), Resource::Temporary(SORT_TEMPORARIES + 3)];
const ENTRY_VALUES: [Resource; 2] =
    [Resource::Temporary(SORT_TEMPORARIES + 4), Resource::Temporary(SORT_TEMPORARIES + 5)];
/// All temporaries. No other body has more.
const TEMPORARIES: usize = SORT_TEMPORARIES + 6;
const _: () = assert!(TEMPORARIES == PIECE_TEMPORARIES);

/// The axes of a scatter by their role: lines of the index, positions along a line, and columns that share
/// a line of the index.
struct Axes<'a> {
    kernel: &'a Kernel,
    axis: usize,
    lines: SmallVec<[usize; 6]>,
    columns: SmallVec<[usize; 6]>,
}

impl<'a> Axes<'a> {
    fn of(kernel: &'a Kernel, axis: usize) -> Axes<'a> {
        let index = &kernel.operands[1].layout;
        let others = (0..kernel.space.rank()).filter(|&a| a != axis);
        let (lines, columns) = others.partition(|&a| index.strides()[a] != 0 && index.shape()[a] > 1);
        Axes { kernel, axis, lines, columns }
    }

    /// The number of positions along some axes.
    fn count(&self, axes: &[usize]) -> usize {
        axes.iter().map(|&a| self.kernel.operands[2].layout.shape()[a]).product()
    }

    fn length(&self) -> usize {
        self.kernel.operands[2].layout.shape()[self.axis]
    }
}

/// Whether the temporaries fit bindings.
pub(crate) fn fits(kernel: &Kernel, axis: usize, capabilities: &Capabilities) -> bool {
    let axes = Axes::of(kernel, axis);
    let (lines, columns) = (axes.count(&axes.lines), axes.count(&axes.columns));
    let entries = 2 * lines * axes.length().div_ceil(CHUNK);
    let size = storage_size(unpacked(kernel.outputs[0].dtype)).max(4);
    let most = (lines * axes.length() * 4).max(entries.saturating_mul(columns).saturating_mul(size));
    most as u64 <= capabilities.binding_bytes && most / size < u32::MAX as usize / 4
}

/// The dispatches of a scatter whose operation in WGSL is `one` of two values `a` and `b`; the output
/// already holds the base.
pub(crate) fn dispatches(
    kernel: &Kernel,
    op: ScatterOp,
    along: Along,
    one: &str,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let axes = Axes::of(kernel, along.axis);
    let (lines, length) = (axes.count(&axes.lines), axes.length());
    let words = Operand::new(DType::U32, Layout::contiguous([lines, length]));
    // Positions without an element have all bits set, so they may come between those of the last element.
    // The levels pass over them.
    let bits = kernel.space[axes.axis].next_power_of_two().ilog2().max(1) as usize;
    let order = Kernel::arg_sort(1, false, length, words);
    let mut sort = arg_sort::by_key_bits(&order, 1, false, bits, capabilities);
    sort.redirect(Resource::Input(0), KEYS);
    sort.redirect(Resource::Output(0), ORDER);
    let mut list = vec![keys(&axes, along)];
    list.extend(sort.list);

    let columns = Columns::of(&axes, op);
    let (mut entries, mut level) = (length, 0);
    loop {
        let chunks = entries.div_ceil(CHUNK);
        list.push(columns.level(&axes, one, [lines, entries, chunks], level));
        if chunks == 1 {
            break;
        }
        (entries, level) = (2 * chunks, level + 1);
    }
    let mut temporaries = sort.temporaries;
    temporaries.resize(SORT_TEMPORARIES, (DType::U32, 0));
    temporaries.extend([(DType::U32, lines * length); 2]);
    let all = axes.count(&axes.columns);
    // The entries of the first two levels; later levels have fewer.
    let first = length.div_ceil(CHUNK);
    let after = |chunks: usize| if chunks == 1 { 0 } else { 2 * chunks * lines };
    let entries = [after(first), if first == 1 { 0 } else { after((2 * first).div_ceil(CHUNK)) }];
    temporaries.extend(entries.map(|n| (DType::U32, n)));
    temporaries.extend(entries.map(|n| (unpacked(kernel.outputs[0].dtype), n * all)));
    Ok(Dispatches { list, temporaries })
}

/// The pass that reads the index.
fn keys(axes: &Axes<'_>, along: Along) -> Dispatch {
    let Operand { layout, dtype, .. } = &axes.kernel.operands[1];
    let mut d = Dispatch::new("scatter_keys");
    let order: SmallVec<[usize; 6]> = axes.lines.iter().copied().chain([axes.axis]).collect();
    let shape: SmallVec<[usize; 6]> = order.iter().map(|&a| layout.shape()[a]).collect();
    let strides: Strides = order.iter().map(|&a| layout.strides()[a]).collect();
    let total = shape.iter().product::<usize>();
    d.params.size("total", total);
    d.params.size("start", along.start);
    d.params.size("count", axes.kernel.space[axes.axis]);
    d.params.size("size", along.size);
    d.bind("index", Elements::of(*dtype), false, Resource::Input(1));
    d.bind("keys", "u32", true, KEYS);
    d.code.line("const NO_KEY = 0xffffffffu;");
    index_functions(*dtype, &mut d);
    d.code.append(&index::function("index_at", &shape, &strides, layout.offset(), &mut d.params));
    d.code.kernel(256, taper_shaders::SCATTER_KEYS);
    d.workgroups = total.div_ceil(256);
    d.work = 256 * 4;
    d
}

/// The columns of a scatter: elements of the source and of the output, or vectors of four.
struct Columns {
    op: ScatterOp,
    /// The axes of the lines, then those of the columns.
    shape: SmallVec<[usize; 8]>,
    /// The strides of the source and of the output over these axes.
    strides: [Strides; 2],
    offset: usize,
    /// The strides of the source and of the output along the axis.
    steps: [isize; 2],
    /// The number of columns of a line.
    count: usize,
    vectors: bool,
}

impl Columns {
    fn of(axes: &Axes<'_>, op: ScatterOp) -> Columns {
        let Axes { kernel, axis, lines, columns } = axes;
        let src = &kernel.operands[2];
        let (output, dtype) = (kernel.space.contiguous_strides(), kernel.outputs[0].dtype);
        let both = [src.layout.strides(), &output[..]];
        let sizes: SmallVec<[usize; 6]> = columns.iter().map(|&a| src.layout.shape()[a]).collect();
        let of = |axes: &[usize]| both.map(|s| axes.iter().map(|&a| s[a]).collect::<Strides>());
        let own = of(columns);
        let merged = collapse(&sizes, &[&own[0], &own[1]]);
        let mut inner: SmallVec<[usize; 8]> = merged.shape.iter().copied().collect();
        let mut steps = both.map(|s| s[*axis]);
        let mut offset = src.layout.offset();
        let outer = of(lines);
        // The maximum and minimum of floats are functions of single numbers.
        let vectors = matches!((dtype, op), (DType::F32, ScatterOp::Add) | (DType::I32 | DType::U32, _))
            && src.dtype == dtype
            && inner.last().is_some_and(|n| n % 4 == 0)
            && fours(&[steps[0], steps[1], offset as isize])
            && (0..2).all(|k| {
                fours(&outer[k])
                    && merged.strides[k].split_last().is_some_and(|(&last, rest)| last == 1 && fours(rest))
            });
        let by = if vectors { 4 } else { 1 };
        inner.iter_mut().rev().take(1).for_each(|n| *n /= by);
        let strides = [0, 1].map(|k| {
            let (outer, inner) = (outer[k].iter(), merged.strides[k].iter());
            let mut all: Strides = outer.chain(inner).map(|s| s / by as isize).collect();
            if vectors {
                // The elements of neighbouring vectors are neighbours.
                all.iter_mut().rev().take(1).for_each(|s| *s = 1);
            }
            all
        });
        steps.iter_mut().for_each(|s| *s /= by as isize);
        offset /= by;
        let count = inner.iter().product();
        let shape = lines.iter().map(|&a| src.layout.shape()[a]).chain(inner).collect();
        Columns { op, shape, strides, offset, steps, count, vectors }
    }

    /// A level of `entries` entries and `chunks` chunks for each of `lines` lines.
    fn level(
        &self,
        axes: &Axes<'_>,
        one: &str,
        [lines, entries, chunks]: [usize; 3],
        level: usize,
    ) -> Dispatch {
        let dtype = axes.kernel.outputs[0].dtype;
        let t = loaded(dtype);
        let element = if self.vectors { format!("vec4<{t}>") } else { t.into() };
        let elements = |dtype| match self.vectors {
            true => Elements::from(element.as_str()),
            false => Elements::of(dtype),
        };
        let total = lines * chunks * self.count;
        let mut d = Dispatch::new(self.op.name());
        d.params.size("total", total);
        d.params.size("columns", self.count);
        d.params.size("chunks", chunks);
        d.params.size("length", entries);
        d.params.stride("src_stride", self.steps[0]);
        d.params.stride("output_stride", self.steps[1]);
        d.bind("output", elements(dtype), true, Resource::Output(0));
        let c = &mut d.code;
        c.line(format_args!("alias T = {element};"));
        c.line("const NO_KEY = 0xffffffffu;");
        c.line(format_args!("const CHUNK = {CHUNK}u;"));
        c.line(format_args!("const LAST = {};", chunks == 1));
        c.expression("one_of", &[("a", "T"), ("b", "T")], "T", one);
        let operands = [(&self.strides[0][..], self.offset), (&self.strides[1][..], 0)];
        c.append(&index::places(&self.shape, &operands, &mut d.params));
        let position = [("position", "u32"), ("place", "u32"), ("column", "u32")];
        if level == 0 {
            d.bind("src", elements(axes.kernel.operands[2].dtype), false, Resource::Input(2));
            d.bind("keys", "u32", false, KEYS);
            d.bind("order", "u32", false, ORDER);
            d.code.function("entry", &[("e", "u32")], "vec2<u32>", |c| {
                c.bind("position", "order[e]");
                c.line("return vec2<u32>(keys[e - e % params.length + position], position);");
            });
            d.code.expression("value", &position, "T", "load_src(place + position * params.src_stride)");
        } else {
            let from = (level - 1) % 2;
            d.bind("keys_in", "u32", false, ENTRY_KEYS[from]);
            d.bind("values_in", element.as_str(), false, ENTRY_VALUES[from]);
            d.code.expression("entry", &[("e", "u32")], "vec2<u32>", "vec2<u32>(keys_in[e], e)");
            d.code.expression("value", &position, "T", "values_in[position * params.columns + column]");
        }
        let entry = [("e", "u32"), ("column", "u32"), ("key", "u32"), ("x", "T")];
        if chunks > 1 {
            d.bind("keys_out", "u32", true, ENTRY_KEYS[level % 2]);
            d.bind("values_out", element.as_str(), true, ENTRY_VALUES[level % 2]);
        }
        d.code.function("push", &entry, "", |c| {
            if chunks > 1 {
                c.when("column == 0u", |c| c.set("keys_out[e]", "key"));
                c.set("values_out[e * params.columns + column]", "x");
            }
        });
        d.code.kernel(256, taper_shaders::SCATTER_SEGMENTS);
        d.workgroups = total.div_ceil(256);
        d.work = 256 * CHUNK * if self.vectors { 4 } else { 1 };
        d
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::validate::capabilities;

    /// Beside the source and the result, at most half as many bytes go through memory: those of the sort and
    /// of the levels.
    #[test]
    fn the_gradient_of_an_embedding_moves_little_more_than_it_has_to() {
        let [rows, length, columns] = [50_000, 65_536, 256];
        let kernel = Kernel::scatter(
            ScatterOp::Add,
            0,
            Operand::new(DType::F32, Layout::contiguous([rows, columns])),
            Operand::new(DType::I32, Layout::new([length, columns], &[1, 0], 0)),
            Operand::new(DType::F32, Layout::contiguous([length, columns])),
        );
        let capabilities = capabilities(false);
        assert!(fits(&kernel, 0, &capabilities));
        let along = Along { axis: 0, start: 0, size: rows };
        let made = dispatches(&kernel, ScatterOp::Add, along, "a + b", &capabilities).unwrap();
        assert_eq!(made.temporaries.len(), TEMPORARIES);
        let bytes = |t: usize| made.temporaries[t].1 * storage_size(made.temporaries[t].0);
        let bindings = made.list.iter().flat_map(|d| &d.bindings);
        let moved: usize = bindings
            .filter_map(|b| if let Resource::Temporary(t) = b.resource { Some(bytes(t)) } else { None })
            .sum();
        let least = (length + rows) * columns * 4;
        assert!(2 * moved <= least, "{moved} bytes beside {least}");
        // Levels of 1024, 32 and 1 chunks, in vectors of four columns.
        let levels = made.list.iter().filter(|d| d.code.text().contains("fn push("));
        let groups: Vec<usize> = levels.map(|d| d.workgroups).collect();
        assert_eq!(groups, [1024 * 64 / 256, 32 * 64 / 256, 1]);
    }
}
