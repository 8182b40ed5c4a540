//! The first few elements of long lines in sorted order, without sorting the rest. A workgroup reads a tile
//! of a line once and finds the greatest key that is wanted digit by digit (radix select): it counts the
//! digits of the keys that agree with those found so far. Then it keeps the smaller keys, and as many of the
//! equal ones as are wanted. Tiles of what was kept follow, until one workgroup can sort it.

use tensor_core::DType;

use crate::{
    codegen::{
        dispatch::{Dispatch, Dispatches, Resource},
        wgsl::Code,
    },
    kernels::sort::sort_keys::{BLOCK, Sort, begin_tile},
};

/// The invocations of a workgroup, and the values of a digit.
const DIGITS: usize = 256;
/// Elements of an invocation.
const EACH: usize = 16;
/// Elements of a tile.
const TILE: usize = EACH * DIGITS;
/// Words of a mask with a bit for each element of a tile.
const MASK: usize = TILE / 32;

/// A selection of the first elements of lines.
pub(crate) struct Select<'a> {
    pub(crate) sort: &'a Sort<'a>,
    /// The bits in which keys may differ, the lowest of a key.
    pub(crate) bits: usize,
}

/// The elements of each line before a level, and the temporaries that hold them; the input holds those
/// before the first level.
#[derive(Clone, Copy)]
struct Level {
    length: usize,
    number: usize,
}

impl Level {
    fn tiles(self) -> usize {
        self.length.div_ceil(TILE)
    }

    /// The elements of each line that are kept.
    fn kept(self, k: usize) -> usize {
        (self.tiles() - 1) * k + k.min(self.length - (self.tiles() - 1) * TILE)
    }

    /// The keys and the indices before the level.
    fn before(self) -> [Resource; 2] {
        let set = 2 * ((self.number + 1) % 2);
        [Resource::Temporary(set), Resource::Temporary(set + 1)]
    }
}

impl Select<'_> {
    /// The dispatches; None if too many elements are wanted, or lines are so short that a workgroup sorts
    /// them.
    pub(crate) fn dispatches(&self) -> Option<Dispatches> {
        let (lines, length, k) = (self.sort.lines.count(), self.sort.lines.length(), self.sort.kept());
        if length <= BLOCK || k > BLOCK || 4 * k > length {
            return None;
        }
        let keys = self.sort.key_dtype();
        let (mut list, mut temporaries) = (Vec::new(), Vec::new());
        let mut level = Level { length, number: 0 };
        while level.length > BLOCK {
            list.push(self.level(level));
            level = Level { length: level.kept(k), number: level.number + 1 };
            // Later levels keep less, and use these again.
            if temporaries.len() < 4 {
                temporaries.extend([(keys, lines * level.length), (DType::U32, lines * level.length)]);
            }
        }
        list.push(self.sorted(level));
        Some(Dispatches { list, temporaries })
    }

    /// Adds the elements that the level before kept: `keys_in` and `indices_in`, and the functions
    /// input_at(line) and element(base, r), as [`Sort::elements`] does for those of the input.
    fn kept_elements(&self, level: Level, d: &mut Dispatch) {
        let [keys, indices] = level.before();
        d.bind("keys_in", self.sort.key(), false, keys);
        d.bind("indices_in", "u32", false, indices);
        self.sort.keys(&mut d.code);
        d.code.expression("input_at", &[("line", "u32")], "u32", "line * params.length");
        d.code.expression("element", &[("base", "u32"), ("r", "u32")], "Key", "keys_in[base + r]");
    }

    /// The sort of what the levels kept.
    fn sorted(&self, level: Level) -> Dispatch {
        let lines = self.sort.lines.count();
        let mut d = Dispatch::new("sort");
        d.params.size("total", lines);
        d.params.size("length", level.length);
        d.params.size("blocks", 1);
        d.params.size("width", self.sort.kept());
        self.kept_elements(level, &mut d);
        self.sort.output(&mut d);
        let parameters = [("line", "u32"), ("place", "u32"), ("key", "Key"), ("index", "u32")];
        d.code.function("put", &parameters, "", |c| {
            let target = "output[output_at(line) + place * params.output_stride]";
            c.set(target, "bitcast<i32>(indices_in[line * params.length + index])");
        });
        d.code.kernel(DIGITS, taper_shaders::SORT_TILE);
        d.workgroups = lines;
        d.work = BLOCK * 60;
        d
    }

    /// The dispatch that keeps the first elements of each tile.
    fn level(&self, level: Level) -> Dispatch {
        let total = self.sort.lines.count() * level.tiles();
        let mut d = Dispatch::new("select");
        d.params.size("total", total);
        d.params.size("length", level.length);
        d.params.size("tiles", level.tiles());
        d.params.size("wanted", self.sort.kept());
        d.params.size("kept", level.kept(self.sort.kept()));
        if level.number == 0 {
            self.sort.elements(&mut d);
            d.code.expression("index_of", &[("base", "u32"), ("r", "u32")], "u32", "r");
        } else {
            self.kept_elements(level, &mut d);
            let element = [("base", "u32"), ("r", "u32")];
            d.code.expression("index_of", &element, "u32", "indices_in[base + r]");
        }
        let [keys, indices] = Level { number: level.number + 1, ..level }.before();
        d.bind("keys_out", self.sort.key(), true, keys);
        d.bind("indices_out", "u32", true, indices);
        for line in [
            format!("const TILE = {TILE}u;"),
            format!("var<workgroup> occurrences: array<atomic<u32>, {DIGITS}>;"),
            format!("var<workgroup> prefixes: array<u32, {}>;", 2 * DIGITS),
            "var<workgroup> chosen: array<u32, 2>;".into(),
            // The marks of the smaller keys, and then of the equal ones.
            format!("var<workgroup> marks: array<atomic<u32>, {}>;", 2 * MASK),
        ] {
            d.code.line(line);
        }
        d.code.entry(DIGITS, |c| {
            begin(c);
            self.threshold(c);
            keep(c);
        });
        d.workgroups = total;
        d.work = TILE * 40;
        d
    }

    /// Finds the greatest key that is wanted, `threshold`, and how many elements with this key are `wanted`
    /// beside all smaller ones.
    fn threshold(&self, c: &mut Code) {
        c.var("threshold", "Key()");
        c.var("decided", "Key()");
        c.var("wanted", "min(params.wanted, count)");
        let mut bits = self.bits;
        while bits > 0 {
            // The digits of a word, the highest first.
            let word = (bits - 1) / 32;
            let digits = (bits - 32 * word).div_ceil(8);
            let field = if self.sort.wide() { [".y", ".x"][word] } else { "" };
            c.count(&format!("done{word}"), ["0u", &format!("{digits}u"), "1u"], |c| {
                c.bind("shift", format_args!("8u * ({}u - done{word})", digits - 1));
                self.digit(field, c);
            });
            bits = 32 * word;
        }
    }

    /// Finds the digit of the threshold at bit `shift` of a word.
    fn digit(&self, field: &str, c: &mut Code) {
        c.line("atomicStore(&occurrences[local_index], 0u);");
        c.line("workgroupBarrier();");
        for e in 0..EACH {
            let agrees = match self.sort.wide() {
                true => format!("all((key{e} & decided) == threshold)"),
                false => format!("(key{e} & decided) == threshold"),
            };
            c.when(format_args!("local_index + {}u < count && {agrees}", e * DIGITS), |c| {
                c.line(format_args!("atomicAdd(&occurrences[(key{e}{field} >> shift) & 255u], 1u);"));
            });
        }
        c.line("workgroupBarrier();");
        c.bind("own", "atomicLoad(&occurrences[local_index])");
        scan("own", 256, c);
        // One digit has the last element that is wanted.
        c.when("sum >= wanted && sum - own < wanted", |c| {
            c.set("chosen[0]", "local_index");
            c.set("chosen[1]", "wanted - (sum - own)");
        });
        c.line("workgroupBarrier();");
        c.set(format_args!("threshold{field}"), format_args!("threshold{field} | (chosen[0] << shift)"));
        c.set(format_args!("decided{field}"), format_args!("decided{field} | (255u << shift)"));
        c.set("wanted", "chosen[1]");
    }
}

/// The start of a workgroup: its place, and the keys of its tile.
fn begin(c: &mut Code) {
    begin_tile("input_at", c);
    for e in 0..EACH {
        let place = format!("local_index + {}u", e * DIGITS);
        c.bind(format_args!("key{e}"), format_args!("element(base, begin + min({place}, count - 1u))"));
    }
    c.line("atomicStore(&marks[local_index], 0u);");
}

/// The sums `sum` of `value` over the invocations up to each, in every `width` of them apart.
fn scan(value: &str, width: usize, c: &mut Code) {
    c.var("sum", value);
    c.var("half", "0u");
    c.set("prefixes[local_index]", "sum");
    c.line("workgroupBarrier();");
    c.block(format_args!("for (var step = 1u; step < {width}u; step <<= 1u)"), |c| {
        c.when(format_args!("local_index % {width}u >= step"), |c| {
            c.set("sum", "sum + prefixes[half + local_index - step]");
        });
        c.set("half", "256u - half");
        c.set("prefixes[half + local_index]", "sum");
        c.line("workgroupBarrier();");
    });
}

/// Stores the smaller keys, and then the first `wanted` that are equal to the threshold, both in the order
/// of their positions.
fn keep(c: &mut Code) {
    c.bind("bit", "1u << (local_index & 31u)");
    for e in 0..EACH {
        let word = format!("local_index / 32u + {}u", e * DIGITS / 32);
        c.when(format_args!("local_index + {}u < count", e * DIGITS), |c| {
            c.block(format_args!("if (less(key{e}, threshold))"), |c| {
                c.line(format_args!("atomicOr(&marks[{word}], bit);"));
            });
            c.block(format_args!("else if (!less(threshold, key{e}))"), |c| {
                c.line(format_args!("atomicOr(&marks[{word} + {MASK}u], bit);"));
            });
        });
    }
    c.line("workgroupBarrier();");
    c.bind("in_word", "countOneBits(atomicLoad(&marks[local_index]))");
    scan("in_word", MASK, c);
    c.bind("smaller", format_args!("prefixes[half + {}u]", MASK - 1));
    // Surplus workgroups store nothing.
    c.bind("stored", "select(0u, count, workgroup_index < params.total)");
    c.bind("out", "line * params.kept + tile * params.wanted");
    c.bind("below", "bit - 1u");
    for e in 0..EACH {
        let (place, word) = (format!("local_index + {}u", e * DIGITS), format!("word{e}"));
        c.bind(&word, format_args!("local_index / 32u + {}u", e * DIGITS / 32));
        let before = |mask: usize| {
            let marks = format!("atomicLoad(&marks[{word} + {mask}u])");
            format!("prefixes[half + {word} + {mask}u] - countOneBits({marks} & ~below)")
        };
        c.bind(format_args!("is_smaller{e}"), format_args!("less(key{e}, threshold)"));
        c.bind(format_args!("equals{e}"), before(MASK));
        c.bind(
            format_args!("to{e}"),
            format_args!("select(smaller + equals{e}, {}, is_smaller{e})", before(0)),
        );
        c.bind(
            format_args!("is_kept{e}"),
            format_args!("is_smaller{e} || (!less(threshold, key{e}) && equals{e} < wanted)"),
        );
        c.when(format_args!("{place} < stored && is_kept{e}"), |c| {
            c.set(format_args!("keys_out[out + to{e}]"), format_args!("key{e}"));
            c.set(format_args!("indices_out[out + to{e}]"), format_args!("index_of(base, begin + {place})"));
        });
    }
}
