//! Radix sort of long lines, eight bits of the keys in a pass, the lowest first (LSD). A pass counts the
//! digits of each tile, sums the counts over the tiles before, and moves each element to its place: after
//! all elements with a smaller digit, and after those with the same digit that come before it. So each pass
//! is stable, and the result does not depend on the order in which invocations run. The digits of a key
//! that no two elements can differ in have no pass.
//!
//! A tile's own order is found in workgroup memory. In each round 64 neighbours mark themselves in the mask
//! of their digit; the marks below an element's own are the equals before it. The elements are then put in
//! order there, so that neighbours are stored together.

use tensor_core::DType;

use crate::{
    codegen::{
        dispatch::{Dispatch, Dispatches, Resource},
        wgsl::Code,
    },
    kernels::sort::sort_keys::{Sort, begin_tile},
};

/// Bits of a digit.
const DIGIT_BITS: usize = 8;
/// The values of a digit, and the invocations of a workgroup.
const DIGITS: usize = 1 << DIGIT_BITS;
/// Elements of an invocation that moves a tile.
const EACH: usize = 12;
/// Elements of a tile.
const TILE: usize = EACH * DIGITS;
/// Neighbours that mark themselves in one mask of two words.
const MASK_BITS: usize = 64;
/// The words of all masks: two for each digit and each group of neighbours.
const MASKS: usize = 2 * DIGITS * (DIGITS / MASK_BITS);
const _: () = assert!(MASKS + DIGITS * (DIGITS / MASK_BITS) <= TILE);
/// With as many tiles a line needs no step of its own that sums their counts: all workgroups of a line read
/// no more than a quarter of the bytes that they move.
const MAX_TILES_SUMMED_AT_ONCE: usize = 32;

/// The most temporaries of a sort by keys of one word.
pub(crate) const TEMPORARIES: usize = 5;

/// A sort of lines by the lowest bits of their keys.
pub(crate) struct RadixSort<'a> {
    pub(crate) sort: &'a Sort<'a>,
    /// The bits in which keys may differ, the lowest of a key.
    pub(crate) bits: usize,
}

/// One pass of a sort.
#[derive(Clone, Copy)]
struct Pass {
    number: usize,
    is_last: bool,
}

impl Pass {
    /// The word of the key that has the digit; word 0 is the lowest.
    fn word(self) -> usize {
        self.number * DIGIT_BITS / 32
    }

    fn is_first(self) -> bool {
        self.number == 0
    }
}

impl RadixSort<'_> {
    /// The words of a key.
    fn words(&self) -> usize {
        if self.sort.wide() { 2 } else { 1 }
    }

    fn tiles(&self) -> usize {
        self.sort.lines.length().div_ceil(TILE)
    }

    /// Whether the workgroups that move elements sum the counts of tiles themselves.
    fn sums_at_once(&self) -> bool {
        self.tiles() <= MAX_TILES_SUMMED_AT_ONCE
    }

    /// A word of the keys in set `set` of the temporaries.
    fn keys(&self, set: usize, word: usize) -> Resource {
        Resource::Temporary(set * (self.words() + 1) + word)
    }

    /// The indices in set `set` of the temporaries.
    fn indices(&self, set: usize) -> Resource {
        self.keys(set, self.words())
    }

    /// The counts of each line, digit and tile, and then the sums of each line and digit.
    fn counts(&self) -> Resource {
        self.keys(2, 0)
    }

    /// The dispatches of the sort.
    pub(crate) fn dispatches(&self) -> Dispatches {
        let passes = self.bits.div_ceil(DIGIT_BITS);
        let mut list = Vec::new();
        for number in 0..passes {
            let pass = Pass { number, is_last: number + 1 == passes };
            list.push(self.count(pass));
            if !self.sums_at_once() {
                list.push(self.offsets());
            }
            list.push(self.movement(pass));
        }
        let (lines, length) = (self.sort.lines.count(), self.sort.lines.length());
        let elements = |set: usize| if set + 1 < passes { lines * length } else { 0 };
        let mut temporaries = vec![(DType::U32, elements(0)); self.words() + 1];
        temporaries.extend(vec![(DType::U32, elements(1)); self.words() + 1]);
        temporaries.push((DType::U32, lines * DIGITS * (self.tiles() + 1)));
        Dispatches { list, temporaries }
    }

    /// A dispatch with a workgroup for each tile. It has the parameters and the constant of a tile, the keys
    /// before the pass, and the functions line_at(line), the place of a line, and word<w>(base, r), a word
    /// of element r's key.
    fn on_tiles(&self, label: &'static str, pass: Pass) -> Dispatch {
        let total = self.sort.lines.count() * self.tiles();
        let mut d = Dispatch::new(label);
        d.params.size("total", total);
        d.params.size("length", self.sort.lines.length());
        d.params.size("tiles", self.tiles());
        d.params.size("shift", pass.number * DIGIT_BITS % 32);
        d.code.line(format_args!("const TILE = {TILE}u;"));
        let element = [("base", "u32"), ("r", "u32")];
        if pass.is_first() {
            self.sort.elements(&mut d);
            d.code.expression("line_at", &[("line", "u32")], "u32", "input_at(line)");
            for word in 0..self.words() {
                let field = if self.sort.wide() { [".y", ".x"][word] } else { "" };
                let value = format!("element(base, r){field}");
                d.code.expression(&format!("word{word}"), &element, "u32", value);
            }
        } else {
            d.code.expression("line_at", &[("line", "u32")], "u32", "line * params.length");
        }
        d.workgroups = total;
        d
    }

    /// Binds a word of the keys that an earlier pass moved.
    fn bind_word(&self, pass: Pass, word: usize, d: &mut Dispatch) {
        if !pass.is_first() {
            let name = format!("keys{word}");
            d.bind(name.as_str(), "u32", false, self.keys((pass.number - 1) % 2, word));
            let element = [("base", "u32"), ("r", "u32")];
            d.code.expression(&format!("word{word}"), &element, "u32", format_args!("{name}[base + r]"));
        }
    }

    /// The step that counts the digits of each tile.
    fn count(&self, pass: Pass) -> Dispatch {
        let mut d = self.on_tiles("radix_count", pass);
        self.bind_word(pass, pass.word(), &mut d);
        d.bind("counts", "u32", true, self.counts());
        let value = format!("word{}(base, r)", pass.word());
        d.code.expression("word", &[("base", "u32"), ("r", "u32")], "u32", value);
        d.code.kernel(DIGITS, taper_shaders::RADIX_COUNT);
        d.work = TILE * 4;
        d
    }

    /// The step that sums the counts over the tiles of each line.
    fn offsets(&self) -> Dispatch {
        let total = self.sort.lines.count() * DIGITS;
        let mut d = Dispatch::new("radix_offsets");
        d.params.size("total", total);
        d.params.size("tiles", self.tiles());
        d.params.size("sums", total * self.tiles());
        d.bind("counts", "u32", true, self.counts());
        d.code.kernel(DIGITS, taper_shaders::RADIX_OFFSETS);
        d.workgroups = total;
        d.work = self.tiles().next_multiple_of(DIGITS) * 16;
        d
    }

    /// The step that moves the elements of each tile.
    fn movement(&self, pass: Pass) -> Dispatch {
        let mut d = self.on_tiles("radix_move", pass);
        // Words below that of the digit are in order already.
        let (from, to) = (pass.word(), Pass { number: pass.number + 1, ..pass }.word());
        for word in from..self.words() {
            self.bind_word(pass, word, &mut d);
        }
        if !pass.is_first() {
            d.bind("indices", "u32", false, self.indices((pass.number - 1) % 2));
        }
        d.bind("counts", "u32", false, self.counts());
        if !self.sums_at_once() {
            d.params.size("sums", self.sort.lines.count() * DIGITS * self.tiles());
        }
        if pass.is_last {
            d.params.size("kept", self.sort.kept());
            self.sort.output(&mut d);
        } else {
            for word in to..self.words() {
                d.bind(format!("keys{word}_out"), "u32", true, self.keys(pass.number % 2, word));
            }
            d.bind("indices_out", "u32", true, self.indices(pass.number % 2));
        }
        d.code.line(format_args!("var<workgroup> slots: array<atomic<u32>, {TILE}>;"));
        d.code.line(format_args!("var<workgroup> moves: array<u32, {DIGITS}>;"));
        d.code.expression("digit_of", &[("word", "u32")], "u32", "(word >> params.shift) & 255u");
        d.code.entry(DIGITS, |c| {
            begin(pass, c);
            (0..EACH).for_each(|e| rank(e, c));
            self.starts(c);
            place(c);
            self.exchange(pass, [from, to], c);
        });
        d.work = TILE * 40;
        d
    }

    /// The places of the first elements with each digit: in the tile, added to the counters of the groups,
    /// and in the line, from which `moves` has the distance. Invocation i computes those of digit i.
    fn starts(&self, c: &mut Code) {
        let groups = DIGITS / MASK_BITS;
        for group in 0..groups {
            let counter = MASKS + group * DIGITS;
            c.bind(format_args!("n{group}"), format_args!("atomicLoad(&slots[{counter}u + local_index])"));
        }
        let own: Vec<String> = (0..groups).map(|group| format!("n{group}")).collect();
        c.bind("own", own.join(" + "));
        c.bind("counted", "(line * 256u + local_index) * params.tiles");
        if self.sums_at_once() {
            c.var("before", "0u");
            c.var("in_line", "0u");
            c.count("t", ["0u", "params.tiles", "1u"], |c| {
                c.bind("n", "counts[counted + t]");
                c.set("in_line", "in_line + n");
                c.set("before", "before + select(0u, n, t < tile)");
            });
        } else {
            c.bind("before", "counts[counted + tile]");
            c.bind("in_line", "counts[params.sums + line * 256u + local_index]");
        }
        // The masks are free by now. They hold the sums over smaller digits, in two arrays by turns.
        c.var("smaller", "own");
        c.var("smaller_in_line", "in_line");
        c.line("atomicStore(&slots[local_index], own);");
        c.line("atomicStore(&slots[256u + local_index], in_line);");
        c.line("workgroupBarrier();");
        c.var("half", "0u");
        c.block("for (var step = 1u; step < 256u; step <<= 1u)", |c| {
            c.when("local_index >= step", |c| {
                c.set("smaller", "smaller + atomicLoad(&slots[half + local_index - step])");
                let other = "atomicLoad(&slots[half + 256u + local_index - step])";
                c.set("smaller_in_line", format_args!("smaller_in_line + {other}"));
            });
            c.set("half", "512u - half");
            c.line("atomicStore(&slots[half + local_index], smaller);");
            c.line("atomicStore(&slots[half + 256u + local_index], smaller_in_line);");
            c.line("workgroupBarrier();");
        });
        c.bind("start", "smaller - own");
        c.set("moves[local_index]", "smaller_in_line - in_line + before - start");
        let mut at = String::from("start");
        for group in 0..groups {
            let counter = MASKS + group * DIGITS;
            c.line(format_args!("atomicStore(&slots[{counter}u + local_index], {at});"));
            at += &format!(" + n{group}");
        }
        c.line("workgroupBarrier();");
    }

    /// Stores the elements, put in order in workgroup memory, word by word.
    fn exchange(&self, pass: Pass, [from, to]: [usize; 2], c: &mut Code) {
        c.bind("out", "line * params.length");
        // Surplus workgroups store nothing.
        c.bind("stored", "select(0u, count, workgroup_index < params.total)");
        let put = |value: &dyn Fn(usize) -> String, c: &mut Code| {
            c.line("workgroupBarrier();");
            for e in 0..EACH {
                c.when(format_args!("has{e}"), |c| {
                    c.line(format_args!("atomicStore(&slots[place{e}], {});", value(e)));
                });
            }
            c.line("workgroupBarrier();");
        };
        let taken = |e: usize| format!("atomicLoad(&slots[local_index + {}u])", e * DIGITS);
        let stored = |e: usize| format!("local_index + {}u < stored", e * DIGITS);
        put(&|e| format!("key{e}"), c);
        for e in 0..EACH {
            c.bind(format_args!("sorted{e}"), taken(e));
            c.bind(
                format_args!("to{e}"),
                format_args!("local_index + {}u + moves[digit_of(sorted{e})]", e * DIGITS),
            );
            if !pass.is_last && to == from {
                c.when(stored(e), |c| {
                    c.set(format_args!("keys{from}_out[out + to{e}]"), format_args!("sorted{e}"));
                });
            }
        }
        for word in (from + 1)..self.words() {
            put(&|e| format!("word{word}(base, r{e})"), c);
            for e in 0..EACH {
                c.when(stored(e), |c| c.set(format_args!("keys{word}_out[out + to{e}]"), taken(e)));
            }
        }
        let index =
            |e: usize| if pass.is_first() { format!("r{e}") } else { format!("indices[base + r{e}]") };
        put(&index, c);
        if pass.is_last {
            c.bind("results", "output_at(line)");
        }
        for e in 0..EACH {
            if pass.is_last {
                c.when(format_args!("{} && to{e} < params.kept", stored(e)), |c| {
                    let target = format!("output[results + to{e} * params.output_stride]");
                    c.set(target, format_args!("bitcast<i32>({})", taken(e)));
                });
            } else {
                c.when(stored(e), |c| c.set(format_args!("indices_out[out + to{e}]"), taken(e)));
            }
        }
    }
}

/// The start of a workgroup that moves a tile: its place, cleared masks and counters, and the words of the
/// keys that have the digit. Each group of neighbours has a part of the tile.
fn begin(pass: Pass, c: &mut Code) {
    begin_tile("line_at", c);
    c.bind("group", format_args!("local_index / {MASK_BITS}u"));
    c.bind("first", format_args!("group * {}u + local_index % {MASK_BITS}u", EACH * MASK_BITS));
    c.bind("bit", "1u << (local_index & 31u)");
    // The marks below an invocation's own, in the two words of a mask.
    c.bind("is_high", "(local_index & 32u) != 0u");
    c.bind("below_low", "select(bit - 1u, 0xffffffffu, is_high)");
    c.bind("below_high", "select(0u, bit - 1u, is_high)");
    c.bind("own_word", "select(0u, 1u, is_high)");
    for e in 0..EACH {
        c.line(format_args!("atomicStore(&slots[local_index + {}u], 0u);", e * DIGITS));
    }
    for e in 0..EACH {
        c.bind(format_args!("has{e}"), format_args!("first + {}u < count", e * MASK_BITS));
        c.bind(format_args!("r{e}"), format_args!("begin + min(first + {}u, count - 1u)", e * MASK_BITS));
        c.bind(format_args!("key{e}"), format_args!("word{}(base, r{e})", pass.word()));
        c.bind(format_args!("mask{e}"), format_args!("2u * (group * 256u + digit_of(key{e}))"));
    }
    c.line("workgroupBarrier();");
}

/// Round `e`: the number of elements before this one, in the group's part, that have its digit.
fn rank(e: usize, c: &mut Code) {
    let counter = format!("slots[{MASKS}u + mask{e} / 2u]");
    c.when(format_args!("has{e}"), |c| {
        c.line(format_args!("atomicOr(&slots[mask{e} + own_word], bit);"));
    });
    c.line("workgroupBarrier();");
    c.bind(format_args!("low{e}"), format_args!("atomicLoad(&slots[mask{e}])"));
    c.bind(format_args!("high{e}"), format_args!("atomicLoad(&slots[mask{e} + 1u])"));
    c.bind(
        format_args!("below{e}"),
        format_args!("countOneBits(low{e} & below_low) + countOneBits(high{e} & below_high)"),
    );
    c.bind(format_args!("earlier{e}"), format_args!("atomicLoad(&{counter})"));
    c.line("workgroupBarrier();");
    // The first of equals counts them and clears the mask.
    c.when(format_args!("has{e} && below{e} == 0u"), |c| {
        let all = format!("earlier{e} + countOneBits(low{e}) + countOneBits(high{e})");
        c.line(format_args!("atomicStore(&{counter}, {all});"));
        c.line(format_args!("atomicStore(&slots[mask{e}], 0u);"));
        c.line(format_args!("atomicStore(&slots[mask{e} + 1u], 0u);"));
    });
    c.line("workgroupBarrier();");
}

/// The places of the elements in the tile's order.
fn place(c: &mut Code) {
    for e in 0..EACH {
        let start = format!("atomicLoad(&slots[{MASKS}u + mask{e} / 2u])");
        c.bind(format_args!("place{e}"), format_args!("{start} + earlier{e} + below{e}"));
    }
}
