//! Access to storage buffers: functions of an element's index, generated for each binding. Only this module
//! knows how elements are packed into words, so a kernel's code is the same for dtypes of all sizes.
//!
//! | function of a binding `x` | |
//! |---|---|
//! | `load_x(i)` | element i |
//! | `load4_x(i)` | elements i to i + 3; if the binding is in fours or in blocks, i is a multiple of 4 |
//! | `load_slice_x(i)` | the vectors of a slice of a block, whose first element is i |
//! | `store_x(i, e)` | element i; other invocations may write its neighbours |
//! | `store_some_x(i, four, n)` | the first n of four elements from i on; neighbours may be shared |
//! | `store4_x(i, four)` | elements i to i + 3, i a multiple of 4 |
//! | `store_first_x(i, four, n)` | the first n of elements i to i + 3, i a multiple of 4, not shared |
//!
//! Two invocations that wrote parts of one word with a load and a store would lose updates. The last two
//! functions are for invocations that own whole words; the two before them change only their bits of a
//! shared word, atomically. No function changes an element that it does not receive. [`accessors`]
//! generates the functions that the code calls.

use std::fmt::Write;

use tensor_core::{DType, kernel::Operand};

use crate::codegen::{
    blocks,
    dtypes::{FIELDS, Packing, per_word, storage_size, stored},
    wgsl::Code,
};

/// The source of a binding's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// An input of the launch.
    Input(usize),
    /// An output of the launch.
    Output(usize),
    /// A temporary of this kernel.
    Temporary(usize),
    /// The device's table of bad indices: see `fault_table.rs`.
    Faults,
}

/// One storage buffer of a dispatch.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) name: String,
    pub(crate) elements: Elements,
    pub(crate) write: bool,
    pub(crate) resource: Resource,
    /// The byte offset in the buffer at which the binding starts.
    pub(crate) start: u64,
}

/// The elements of a storage buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Elements {
    /// Elements of this WGSL type, which the code may index directly.
    Plain(String),
    /// Elements of a dtype.
    Of {
        /// The elements in a word, or 1.
        per_word: usize,
        /// The WGSL type of a loaded element.
        loaded: &'static str,
        packing: Option<Packing>,
        /// Whether [`Elements::in_fours`] was requested.
        fours: bool,
    },
    /// Elements in a block format, which are only read.
    Blocks {
        /// The functions that decode them, for a buffer `x`.
        text: String,
        /// The WGSL type of a loaded element, and the functions that round it to a narrower dtype.
        loaded: &'static str,
        rounding: Option<Packing>,
    },
}

impl Elements {
    /// Elements of a dtype, loaded as numbers.
    pub(crate) fn of(dtype: DType) -> Elements {
        let (loaded, packing) = (stored(dtype).loaded, stored(dtype).packing);
        Elements::Of { per_word: per_word(dtype), loaded, packing, fours: false }
    }

    /// Elements of a WGSL type that fill whole words, one after the other.
    pub(crate) fn words(loaded: &'static str) -> Elements {
        Elements::Of { per_word: 1, loaded, packing: None, fours: false }
    }

    /// Elements of an operand that is only read.
    pub(crate) fn of_operand(operand: &Operand) -> Elements {
        let Some(format) = &operand.format else { return Elements::of(operand.dtype) };
        let (loaded, rounding) = (stored(operand.dtype).loaded, stored(operand.dtype).packing);
        // Kernels of formats without WGSL were refused before.
        Elements::Blocks { text: blocks::text(format.as_ref()).unwrap_or_default(), loaded, rounding }
    }

    /// Elements of a dtype, loaded as their bits: words of u32, or `vec2<u32>` for elements of 8 bytes.
    pub(crate) fn bits(dtype: DType) -> Elements {
        let loaded = if storage_size(dtype) == 8 { "vec2<u32>" } else { "u32" };
        Elements::Of { per_word: per_word(dtype), loaded, packing: None, fours: false }
    }

    /// If `fours`, promises that elements are loaded and stored in fours at multiples of 4; single accesses
    /// are still allowed. Not for elements of 8 bytes.
    pub(crate) fn in_fours(self, fours: bool) -> Elements {
        match self {
            Elements::Of { per_word, loaded, packing, .. } => {
                Elements::Of { per_word, loaded, packing, fours }
            }
            Elements::Plain(_) | Elements::Blocks { .. } => self,
        }
    }

    /// Whether elements are loaded as this WGSL type.
    pub(crate) fn loads(&self, ty: &str) -> bool {
        match self {
            Elements::Plain(own) => own == ty,
            Elements::Of { loaded, .. } | Elements::Blocks { loaded, .. } => *loaded == ty,
        }
    }

    /// Stores the elements as whole words of their loaded type.
    pub(crate) fn unpack(&mut self) {
        if let Elements::Of { per_word, packing, .. } = self {
            (*per_word, *packing) = (1, None);
        }
    }
}

impl From<&str> for Elements {
    fn from(ty: &str) -> Elements {
        Elements::Plain(ty.into())
    }
}

/// The WGSL type of the elements of a binding's array, and the functions that `code` calls for it. Foreign
/// code, whose bindings may have any names, only gets `load` and `store`: there, `store_first_x` would
/// belong to a binding `first_x`.
pub(crate) fn accessors(binding: &Binding, code: &str, foreign: bool) -> (String, String) {
    let name = &binding.name;
    let calls = |function: &str| {
        let call = format!("{function}_{name}(");
        let offered = !foreign || matches!(function, "load" | "store");
        offered && code.contains(&call) && !code.contains(&format!("fn {call}"))
    };
    let (per_word, loaded, packing, fours) = match &binding.elements {
        Elements::Plain(ty) => (1, ty.as_str(), None, false),
        Elements::Blocks { text, loaded, rounding } => {
            let mut c = Code::default();
            c.append(&blocks::named(text, name));
            decoding(name, loaded, *rounding, text.contains("fn four_x("), &mut c);
            if calls("load_slice") {
                slice(name, text, *rounding, &mut c);
            }
            return ("u32".into(), c.text().to_string());
        }
        Elements::Of { per_word, loaded, packing, fours } => (*per_word, *loaded, *packing, *fours),
    };
    let writer =
        Writer { name, loaded, packing, fours, per_word, shared: calls("store") || calls("store_some") };
    let mut c = Code::default();
    let element = if per_word == 1 { writer.whole(&calls, &mut c) } else { writer.packed(&calls, &mut c) };
    (element, c.text().to_string())
}

/// The functions that load decoded elements of a binding, four at once if `fours`.
fn decoding(name: &str, loaded: &str, rounding: Option<Packing>, fours: bool, c: &mut Code) {
    let decoded = format!("decode_{name}(i_)");
    let value = match rounding {
        Some(Packing { unpack, pack }) => format!("{unpack}({pack}({decoded}))"),
        None => format!("{loaded}({decoded})"),
    };
    c.expression(&format!("load_{name}"), &[I], loaded, value);
    let four = format!("vec4<{loaded}>");
    let load4 = format!("load4_{name}");
    if fours {
        return c.function(&load4, &[I], &four, |c| {
            c.bind("four_", format_args!("four_{name}(i_)"));
            c.line(format_args!("return {};", rounded("four_", loaded, rounding)));
        });
    }
    let all = [0, 1, 2, 3].map(|e| format!("load_{name}(i_ + {e}u)"));
    c.expression(&load4, &[I], &four, format!("{four}({})", all.join(", ")));
}

/// The function `load_slice_<name>`: a decoded slice of a block, in f32.
fn slice(name: &str, text: &str, rounding: Option<Packing>, c: &mut Code) {
    let Some((_, array)) = text.split_once("fn slice_x(i: u32) -> ") else { return };
    let array = array.split(" {").next().unwrap_or_default();
    c.function(&format!("load_slice_{name}"), &[I], array, |c| {
        c.bind("slice_", format_args!("slice_{name}(i_)"));
        if rounding.is_none() {
            return c.line("return slice_;");
        }
        let vectors = if array.contains(", 8>") { 8 } else { 2 };
        let all: Vec<String> =
            (0..vectors).map(|v| rounded(&format!("slice_[{v}]"), "f32", rounding)).collect();
        c.line(format_args!("return {array}({});", all.join(", ")));
    });
}

/// A vector of decoded elements in the dtype of the operand.
fn rounded(four: &str, loaded: &str, rounding: Option<Packing>) -> String {
    let one = |field: &&str| match rounding {
        Some(Packing { unpack, pack }) => format!("{unpack}({pack}({four}.{field}))"),
        None => format!("{loaded}({four}.{field})"),
    };
    match (loaded, rounding) {
        ("f32", None) => four.into(),
        _ => format!("vec4<{loaded}>({})", FIELDS.iter().map(one).collect::<Vec<_>>().join(", ")),
    }
}

struct Writer<'a> {
    name: &'a str,
    loaded: &'a str,
    packing: Option<Packing>,
    fours: bool,
    per_word: usize,
    /// Whether several invocations write parts of one word.
    shared: bool,
}

/// The parameter for an element's index. Names end in an underscore, because the binding may have any other
/// name.
const I: (&str, &str) = ("i_", "u32");
/// The parameter for the number of elements to store, out of four.
const N: (&str, &str) = ("n_", "u32");

impl Writer<'_> {
    fn function(&self, function: &str) -> String {
        format!("{function}_{}", self.name)
    }

    fn four(&self) -> String {
        format!("vec4<{}>", self.loaded)
    }

    /// Functions for elements of whole words.
    fn whole(&self, calls: &impl Fn(&str) -> bool, c: &mut Code) -> String {
        let (name, t, four) = (self.name, self.loaded, &self.four());
        let (one, x) = (("x_", t), ("x_", four.as_str()));
        let at = |e: usize| if e == 0 { "i_".to_string() } else { format!("i_ + {e}u") };
        let element = |i: &str| {
            if self.fours { format!("{name}[({i}) >> 2u][({i}) & 3u]") } else { format!("{name}[{i}]") }
        };
        if calls("load") {
            c.expression(&self.function("load"), &[I], t, element("i_"));
        }
        if calls("load4") {
            let all = if self.fours {
                format!("{name}[i_ >> 2u]")
            } else {
                let list = [0, 1, 2, 3].map(|e| element(&at(e)));
                format!("{four}({})", list.join(", "))
            };
            c.expression(&self.function("load4"), &[I], four, all);
        }
        if calls("store") {
            c.function(&self.function("store"), &[I, one], "", |c| c.set(element("i_"), "x_"));
        }
        if calls("store4") {
            c.function(&self.function("store4"), &[I, x], "", |c| self.whole_four(c));
        }
        if calls("store_first") {
            c.function(&self.function("store_first"), &[I, x, N], "", |c| {
                c.when("n_ >= 4u", |c| {
                    self.whole_four(c);
                    c.line("return;");
                });
                for (e, field) in FIELDS.iter().enumerate().take(3) {
                    c.when(format_args!("n_ > {e}u"), |c| c.set(element(&at(e)), format_args!("x_.{field}")));
                }
            });
        }
        if calls("store_some") {
            c.function(&self.function("store_some"), &[I, x, N], "", |c| {
                for (e, field) in FIELDS.iter().enumerate() {
                    c.when(format_args!("n_ > {e}u"), |c| c.set(element(&at(e)), format_args!("x_.{field}")));
                }
            });
        }
        if self.fours { four.clone() } else { t.into() }
    }

    /// Stores four elements of whole words, `x_`, from `i_` on.
    fn whole_four(&self, c: &mut Code) {
        let name = self.name;
        if self.fours {
            return c.set(format_args!("{name}[i_ >> 2u]"), "x_");
        }
        for (e, field) in FIELDS.iter().enumerate() {
            c.set(format_args!("{name}[i_ + {e}u]"), format_args!("x_.{field}"));
        }
    }

    /// Whether the array consists of pairs of words.
    fn pairs(&self) -> bool {
        self.fours && self.per_word == 2 && !self.shared
    }

    /// The bits of an element in a word.
    fn bits(&self) -> usize {
        32 / self.per_word
    }

    /// The mask of one element in the lowest bits.
    fn mask(&self) -> String {
        format!("{:#x}u", (1u64 << self.bits()) - 1)
    }

    /// Word `w` of the array.
    fn word(&self, w: &str) -> String {
        let name = self.name;
        match (self.shared, self.pairs()) {
            (true, _) => format!("atomicLoad(&{name}[{w}])"),
            (_, true) => format!("{name}[({w}) >> 1u][({w}) & 1u]"),
            _ => format!("{name}[{w}]"),
        }
    }

    /// Stores a whole word.
    fn set_word(&self, w: &str, bits: &str, c: &mut Code) {
        let name = self.name;
        match (self.shared, self.pairs()) {
            (true, _) => c.line(format_args!("atomicStore(&{name}[{w}], {bits});")),
            (_, true) => c.set(format_args!("{name}[({w}) >> 1u][({w}) & 1u]"), bits),
            _ => c.set(format_args!("{name}[{w}]"), bits),
        }
    }

    fn unpack(&self, bits: &str) -> String {
        self.packing.map_or_else(|| bits.to_string(), |packing| format!("{}({bits})", packing.unpack))
    }

    fn pack(&self, x: &str) -> String {
        match self.packing {
            Some(packing) => format!("{}({x})", packing.pack),
            None => format!("({x} & {})", self.mask()),
        }
    }

    /// Element `e` of the word named `word`.
    fn element_of(&self, word: &str, e: usize) -> String {
        let (bits, mask) = (self.bits(), self.mask());
        match e {
            0 => self.unpack(&format!("{word} & {mask}")),
            e if e + 1 == self.per_word => self.unpack(&format!("{word} >> {}u", e * bits)),
            e => self.unpack(&format!("({word} >> {}u) & {mask}", e * bits)),
        }
    }

    /// The number of words in four elements.
    fn words(&self) -> usize {
        4 / self.per_word
    }

    /// The bits of word `h` of four elements `x_`.
    fn packed_word(&self, h: usize) -> String {
        let mut out = String::new();
        for e in 0..self.per_word {
            let bits = self.pack(&format!("x_.{}", FIELDS[h * self.per_word + e]));
            let _ = match e {
                0 => write!(out, "{bits}"),
                e => write!(out, " | ({bits} << {}u)", e * self.bits()),
            };
        }
        out
    }

    /// Functions for elements that share words.
    fn packed(&self, calls: &impl Fn(&str) -> bool, c: &mut Code) -> String {
        let (name, t, four, per_word) = (self.name, self.loaded, &self.four(), self.per_word);
        let (one, x) = (("x_", t), ("x_", four.as_str()));
        let (by, within, bits, mask) = (per_word.ilog2(), per_word - 1, self.bits(), self.mask());
        let load = |i: &str| {
            let word = self.word(&format!("({i}) >> {by}u"));
            self.unpack(&format!("({word} >> ((({i}) & {within}u) * {bits}u)) & {mask}"))
        };
        if calls("load") {
            c.expression(&self.function("load"), &[I], t, load("i_"));
        }
        if calls("load4") {
            c.function(&self.function("load4"), &[I], four, |c| {
                let list: Vec<String> = if self.fours {
                    if self.pairs() {
                        c.bind("pair_", format_args!("{name}[i_ >> 2u]"));
                    }
                    for (h, field) in FIELDS.iter().enumerate().take(self.words()) {
                        let word = match self.pairs() {
                            true => format!("pair_.{field}"),
                            false => self.word(&format!("(i_ >> {by}u) + {h}u")),
                        };
                        c.bind(format_args!("word{h}_"), word);
                    }
                    (0..4).map(|e| self.element_of(&format!("word{}_", e / per_word), e % per_word)).collect()
                } else {
                    (0..4).map(|e| load(&format!("i_ + {e}u"))).collect()
                };
                c.line(format_args!("return {four}({});", list.join(", ")));
            });
        }
        if calls("store4") {
            c.function(&self.function("store4"), &[I, x], "", |c| self.packed_four(c));
        }
        if calls("store_first") {
            c.function(&self.function("store_first"), &[I, x, N], "", |c| {
                c.when("n_ >= 4u", |c| {
                    self.packed_four(c);
                    c.line("return;");
                });
                for h in 0..self.words() {
                    c.when(format_args!("n_ > {}u", h * per_word), |c| {
                        c.bind("w_", format_args!("(i_ >> {by}u) + {h}u"));
                        c.bind("mask_", self.first(&format!("n_ - {}u", h * per_word)));
                        let kept =
                            format!("({} & ~mask_) | (({}) & mask_)", self.word("w_"), self.packed_word(h));
                        self.set_word("w_", &kept, c);
                    });
                }
            });
        }
        if self.shared {
            // No other invocation changes the bits of the mask.
            let parameters = [("w_", "u32"), ("bits_", "u32"), ("mask_", "u32")];
            c.function(&self.function("merge"), &parameters, "", |c| {
                c.when("mask_ == 0xffffffffu", |c| {
                    c.line(format_args!("atomicStore(&{name}[w_], bits_);"));
                    c.line("return;");
                });
                c.when("mask_ != 0u", |c| {
                    c.line(format_args!(
                        "atomicXor(&{name}[w_], (atomicLoad(&{name}[w_]) ^ bits_) & mask_);"
                    ));
                });
            });
        }
        let merge = |w: &str, bits: &str, mask: &str| format!("merge_{name}({w}, {bits}, {mask});");
        if calls("store") {
            c.function(&self.function("store"), &[I, one], "", |c| {
                c.bind("shift_", format_args!("(i_ & {within}u) * {bits}u"));
                let (bits, mask) = (format!("{} << shift_", self.pack("x_")), format!("{mask} << shift_"));
                c.line(merge(&format!("i_ >> {by}u"), &bits, &mask));
            });
        }
        if calls("store_some") {
            c.function(&self.function("store_some"), &[I, x, N], "", |c| {
                c.bind("w_", format_args!("i_ >> {by}u"));
                c.bind("shift_", format_args!("(i_ & {within}u) * {bits}u"));
                // The bits that go to the next word are shifted in two steps, because a shift by 32 is
                // undefined.
                c.var("bits_", "0u");
                c.var("mask_", "0u");
                for h in 0..self.words() {
                    c.bind(format_args!("bits{h}_"), self.packed_word(h));
                    let count = format!("max(n_, {0}u) - {0}u", h * per_word);
                    c.bind(format_args!("mask{h}_"), self.first(&count));
                    c.line(merge(
                        &format!("w_ + {h}u"),
                        &format!("bits_ | (bits{h}_ << shift_)"),
                        &format!("mask_ | (mask{h}_ << shift_)"),
                    ));
                    c.set("bits_", format_args!("(bits{h}_ >> 1u) >> (31u - shift_)"));
                    c.set("mask_", format_args!("(mask{h}_ >> 1u) >> (31u - shift_)"));
                }
                c.line(merge(&format!("w_ + {}u", self.words()), "bits_", "mask_"));
            });
        }
        match (self.shared, self.pairs()) {
            (true, _) => "atomic<u32>".into(),
            (_, true) => "vec2<u32>".into(),
            _ => "u32".into(),
        }
    }

    /// The mask of the first `n` elements of a word, or of all elements if there are fewer.
    fn first(&self, n: &str) -> String {
        let (per_word, bits) = (self.per_word, self.bits());
        format!(
            "select((1u << ((({n}) & {}u) * {bits}u)) - 1u, 0xffffffffu, ({n}) >= {per_word}u)",
            per_word - 1
        )
    }

    /// Stores four packed elements `x_` from `i_` on.
    fn packed_four(&self, c: &mut Code) {
        if self.pairs() {
            let (low, high) = (self.packed_word(0), self.packed_word(1));
            return c.set(format_args!("{}[i_ >> 2u]", self.name), format_args!("vec2<u32>({low}, {high})"));
        }
        for h in 0..self.words() {
            self.set_word(&format!("(i_ >> {}u) + {h}u", self.per_word.ilog2()), &self.packed_word(h), c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::dispatch::{Dispatch, Resource};

    /// The WGSL of a dispatch with one buffer `x` that `code` uses.
    fn text(elements: Elements, code: &str) -> String {
        let mut d = Dispatch::new("test");
        d.bind("x", elements, true, Resource::Output(0));
        d.code.entry(1, |c| c.line(code));
        d.text(false)
    }

    #[test]
    fn every_function_validates_for_every_dtype() {
        let flags = naga::valid::ValidationFlags::all();
        for dtype in DType::ALL {
            for elements in [Elements::of(dtype), Elements::bits(dtype)] {
                // Vectors of four bit patterns do not exist for elements of 8 bytes.
                let narrow = storage_size(dtype) <= 4;
                let fours = |n: &str| {
                    format!(
                        "store_first_x(0u, load4_x(4u), {n}); store4_x(8u, load4_x(0u)); store_x(2u, load_x(1u));"
                    )
                };
                for (in_fours, code) in [
                    (false, "store_x(2u, load_x(1u));".to_string()),
                    (false, format!("{} store_some_x(3u, load4_x(2u), 3u);", fours("3u"))),
                    (true, fours("local_index")),
                    (true, "store4_x(4u, load4_x(8u)); store_first_x(0u, load4_x(4u), 2u);".to_string()),
                ] {
                    if !narrow && (in_fours || elements == Elements::bits(dtype) && code.contains('4')) {
                        continue;
                    }
                    let text = text(elements.clone().in_fours(in_fours), &code);
                    let module =
                        naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
                    let mut validator = naga::valid::Validator::new(flags, naga::valid::Capabilities::all());
                    assert!(validator.validate(&module).is_ok(), "{dtype}\n{text}");
                }
            }
        }
    }

    #[test]
    fn only_parts_of_words_are_stored_atomically() {
        let text = |dtype, code| text(Elements::of(dtype).in_fours(true), code);
        assert!(text(DType::F16, "store_x(1u, 2.0);").contains("array<atomic<u32>>"));
        assert!(text(DType::F16, "store4_x(4u, load4_x(0u));").contains("array<vec2<u32>>"));
        assert!(text(DType::U8, "store4_x(4u, load4_x(0u));").contains("array<u32>"));
        assert!(text(DType::F32, "store_x(1u, 2.0);").contains("array<vec4<f32>>"));
    }

    #[test]
    fn a_function_of_the_code_itself_is_not_written_again() {
        let own = "fn load_x(i: u32) -> f32 { return x[i]; } fn kernel() { let y = load_x(0u); }";
        let mut d = Dispatch::new("test");
        d.bind("x", Elements::of(DType::F32), false, Resource::Input(0));
        d.code.append(own);
        assert_eq!(d.text(true).matches("fn load_x(").count(), 1);
    }

    #[test]
    fn bindings_from_elsewhere_may_have_any_names() {
        let mut d = Dispatch::new("test");
        d.foreign = true;
        for (k, name) in ["x", "first_x", "some_x", "i", "w", "bits"].into_iter().enumerate() {
            d.bind(name, Elements::of(DType::F16), true, Resource::Output(k));
            d.code.function(&format!("set_{name}"), &[], "", |c| {
                c.line(format_args!("store_{name}(1u, load_{name}(0u));"));
            });
        }
        let text = d.text(false);
        let module = naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let flags = naga::valid::ValidationFlags::all();
        let mut validator = naga::valid::Validator::new(flags, naga::valid::Capabilities::all());
        assert!(validator.validate(&module).is_ok(), "{text}");
    }
}
