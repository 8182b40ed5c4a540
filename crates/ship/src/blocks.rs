//! [`Decoder`]: an element of a tensor in blocks as text, for the formats of `tensor-core`.
//!
//! A format has one description for all languages: expressions that C, Rust and WGSL read alike, with the
//! functions of [`HELPERS`]. `x` is where the bytes begin. Every operation is the one of
//! `BlockFormat::decode`, so that the numbers have its bits.

use std::{any::Any, fmt::Write, sync::Arc};

use tensor_core::{Affine, AffineBits, BlockFormat, Codebook4, GgmlType, IQ4_NUMBERS, MXFP4_NUMBERS};

use crate::write::Language;

/// The blocks of a constant.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    pub(crate) format: Arc<dyn BlockFormat>,
    pub(crate) decoder: Decoder,
}

impl Blocks {
    /// The blocks of a format with a description; none for those of other crates.
    pub(crate) fn of(format: &Arc<dyn BlockFormat>, bytes: &[u8]) -> Option<Blocks> {
        Some(Blocks { format: Arc::clone(format), decoder: Decoder::of(format.as_ref(), bytes)? })
    }

    /// The decoded elements.
    pub(crate) fn numbers(&self, bytes: &[u8]) -> Vec<f32> {
        let mut numbers = vec![0.0; self.format.elements(bytes.len())];
        self.format.decode(bytes, 0, &mut numbers);
        numbers
    }
}

/// A function that decodes an element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Decoder {
    pub(crate) name: String,
    /// The elements and the bytes of a block: `x` then begins at the element's block, and `e` is the
    /// element's position in it. Else `i` is the position in the tensor.
    block: Option<(usize, usize)>,
    /// Lines `name = value`: integers and numbers that 16 elements share, and integers of one element.
    shared: [String; 2],
    integers: String,
    number: String,
}

/// The elements that share the first lines of a description.
pub(crate) const RUN: usize = 16;

/// The description of a format of GGUF files: the integers and the numbers of 16 elements of a block from a
/// multiple of 16 on, the integers of an element, and its number.
const fn of_ggml(format: GgmlType) -> [&'static str; 4] {
    match format {
        GgmlType::Q4_0 => [
            "shift = e / 16 * 4",
            "d = f16_of(x, 0)",
            "q = (byte_of(x, 2 + e % 16) >> shift) & 15",
            "d * (number(q) - number(8))",
        ],
        GgmlType::Q4_1 => [
            "shift = e / 16 * 4",
            "d = f16_of(x, 0); m = f16_of(x, 2)",
            "q = (byte_of(x, 4 + e % 16) >> shift) & 15",
            "d * number(q) + m",
        ],
        GgmlType::Q5_0 => [
            "shift = e / 16 * 4",
            "d = f16_of(x, 0)",
            "fifth = (byte_of(x, 2 + e / 8) >> (e % 8)) & 1;
             q = ((byte_of(x, 6 + e % 16) >> shift) & 15) | (fifth << 4)",
            "d * (number(q) - number(16))",
        ],
        GgmlType::Q5_1 => [
            "shift = e / 16 * 4",
            "d = f16_of(x, 0); m = f16_of(x, 2)",
            "fifth = (byte_of(x, 4 + e / 8) >> (e % 8)) & 1;
             q = ((byte_of(x, 8 + e % 16) >> shift) & 15) | (fifth << 4)",
            "d * number(q) + m",
        ],
        GgmlType::Q8_0 => ["", "d = f16_of(x, 0)", "q = byte_of(x, 2 + e)", "d * signed_byte(q)"],
        GgmlType::Q2_K => [
            "s = byte_of(x, e / 16); low = 16 + e / 128 * 32; shift = e / 32 % 4 * 2",
            "d = f16_of(x, 80) * number(s & 15); m = f16_of(x, 82) * number(s >> 4)",
            "q = (byte_of(x, low + e % 32) >> shift) & 3",
            "d * number(q) - m",
        ],
        GgmlType::Q3_K => [
            "k = e / 16;
             four = (byte_of(x, 96 + k % 8) >> (k / 8 * 4)) & 15;
             s = four | (((byte_of(x, 104 + k % 4) >> (k / 4 * 2)) & 3) << 4);
             low = 32 + e / 128 * 32; shift = e / 32 % 4 * 2; g = e / 32",
            "d = f16_of(x, 108) * (number(s) - number(32))",
            "two = (byte_of(x, low + e % 32) >> shift) & 3;
             q = two | (((byte_of(x, e % 32) >> g) & 1) << 2)",
            "d * (number(q) - number(4))",
        ],
        GgmlType::Q4_K => [
            "g = e / 32; r = g % 4; last = byte_of(x, 12 + r);
             s = pick(g / 4, (last & 15) | ((byte_of(x, 4 + r) >> 6) << 4), byte_of(x, 4 + r) & 63);
             t = pick(g / 4, (last >> 4) | ((byte_of(x, 8 + r) >> 6) << 4), byte_of(x, 8 + r) & 63);
             low = 16 + g / 2 * 32; shift = g % 2 * 4",
            "d = f16_of(x, 0) * number(s); m = f16_of(x, 2) * number(t)",
            "q = (byte_of(x, low + e % 32) >> shift) & 15",
            "d * number(q) - m",
        ],
        GgmlType::Q5_K => [
            "g = e / 32; r = g % 4; last = byte_of(x, 12 + r);
             s = pick(g / 4, (last & 15) | ((byte_of(x, 4 + r) >> 6) << 4), byte_of(x, 4 + r) & 63);
             t = pick(g / 4, (last >> 4) | ((byte_of(x, 8 + r) >> 6) << 4), byte_of(x, 8 + r) & 63);
             low = 48 + g / 2 * 32; shift = g % 2 * 4",
            "d = f16_of(x, 0) * number(s); m = f16_of(x, 2) * number(t)",
            "fifth = (byte_of(x, 16 + e % 32) >> g) & 1;
             q = ((byte_of(x, low + e % 32) >> shift) & 15) | (fifth << 4)",
            "d * number(q) - m",
        ],
        GgmlType::Q6_K => [
            "h = e / 128; r = e / 32 % 4; s = byte_of(x, 192 + e / 16);
             low = h * 64 + r % 2 * 32; shift = r / 2 * 4; second = 128 + h * 32; pair = r * 2",
            "d = f16_of(x, 208) * signed_byte(s)",
            "four = (byte_of(x, low + e % 32) >> shift) & 15;
             q = four | (((byte_of(x, second + e % 32) >> pair) & 3) << 4)",
            "d * (number(q) - number(32))",
        ],
        GgmlType::IQ4_NL => [
            "shift = e / 16 * 4",
            "d = f16_of(x, 0)",
            "q = (byte_of(x, 2 + e % 16) >> shift) & 15",
            "d * iq4_entry(q)",
        ],
        GgmlType::IQ4_XS => [
            "g = e / 32; four = (byte_of(x, 4 + g / 2) >> (g % 2 * 4)) & 15;
             s = four | (((byte_of(x, 2 + g / 4) >> (g % 4 * 2)) & 3) << 4);
             low = 8 + g * 16; shift = e % 32 / 16 * 4",
            "d = f16_of(x, 0) * (number(s) - number(32))",
            "q = (byte_of(x, low + e % 16) >> shift) & 15",
            "d * iq4_entry(q)",
        ],
        GgmlType::TQ2_0 => [
            "low = e / 128 * 32; shift = e / 32 % 4 * 2",
            "d = f16_of(x, 64)",
            "q = (byte_of(x, low + e % 32) >> shift) & 3",
            "d * (number(q) - number(1))",
        ],
        // The exponent of 2^(k − 128), whose least two are below the normal numbers.
        GgmlType::MXFP4 => [
            "k = byte_of(x, 0); shift = e / 16 * 4;
             power = pick(k / 2, (k - pick(k, 1, 0)) << 23, (k & 1) * 2097152 + 2097152)",
            "d = from_bits(power)",
            "q = (byte_of(x, 1 + e % 16) >> shift) & 15",
            "d * mxfp4_entry(q)",
        ],
    }
}

/// The integer q of a tensor of groups, by the element's position.
const fn of_affine(bits: AffineBits) -> (&'static str, &'static str) {
    match bits {
        AffineBits::I8 => ("q = byte_of(x, 32 + i)", "signed_byte(q)"),
        AffineBits::U8 => ("q = byte_of(x, 32 + i)", "number(q)"),
        AffineBits::I4 => {
            ("q = ((byte_of(x, 32 + i / 2) >> (i % 2 * 4)) & 15) ^ 8", "(number(q) - number(8))")
        }
        AffineBits::U4 => ("q = (byte_of(x, 32 + i / 2) >> (i % 2 * 4)) & 15", "number(q)"),
    }
}

impl Decoder {
    fn of(format: &dyn BlockFormat, bytes: &[u8]) -> Option<Decoder> {
        let any: &dyn Any = format;
        // The words at the beginning of the bytes are constants of the program.
        let words = || -> Vec<u32> {
            let head = bytes[..32].chunks_exact(4);
            head.map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
        };
        let name = |words: &[u32]| {
            let words: String = words.iter().map(|word| format!("_{word}")).collect();
            format!("decode_{}{words}", format.name())
        };
        if let Some(&format) = any.downcast_ref::<GgmlType>() {
            let [shared, numbers, integers, number] = of_ggml(format).map(str::to_string);
            let block = Some((format.block_elements(), format.block_bytes()));
            return Some(Decoder { name: name(&[]), block, shared: [shared, numbers], integers, number });
        }
        if let Some(affine) = any.downcast_ref::<Affine>() {
            let words = words();
            let [inner, axis, group, outer, along, within, scales, zeros] = words[..] else { return None };
            let (integer, q) = of_affine(affine.bits());
            let k = format!(
                "k = i / {} * {outer} + i / {inner} % {axis} / {group} * {along} + i % {inner} * {within}",
                inner * axis
            );
            let scale = format!("f32_of(x, {scales} + k * 4)");
            let number = match zeros {
                0 => format!("{q} * {scale}"),
                _ => format!("({q} - f32_of(x, {zeros} + k * 4)) * {scale}"),
            };
            let integers = format!("{integer}; {k}");
            return Some(Decoder {
                name: name(&words),
                block: None,
                shared: Default::default(),
                integers,
                number,
            });
        }
        any.is::<Codebook4>().then(|| {
            let words = words();
            let (scales, nested, codes, table) = (words[0], words[1], words[2], words[3]);
            let q = "q = (byte_of(x, 32 + i / 2) >> (4 - i % 2 * 4)) & 15";
            let (integers, scale) = match nested {
                0 => (q.to_string(), format!("f32_of(x, {scales} + i / 64 * 4)")),
                _ => (
                    format!("{q}; code = byte_of(x, {scales} + i / 64)"),
                    format!(
                        "(f32_of(x, {codes} + code * 4) * f32_of(x, {nested} + i / 16384 * 4) + f32_of(x, 16))"
                    ),
                ),
            };
            let number = format!("f32_of(x, {table} + q * 4) * {scale}");
            Decoder { name: name(&words[..4]), block: None, shared: Default::default(), integers, number }
        })
    }

    /// The name of the function for a run of elements, if the format has one.
    pub(crate) fn run_name(&self) -> Option<String> {
        self.block.map(|_| format!("{}_run", self.name))
    }

    /// The lines before an element's own: the block, and what its elements share.
    fn begin(&self, language: Language, indent: &str) -> String {
        let block = self.block.map(|(elements, bytes)| {
            let word = language.of("const uint32_t", "let", "let");
            let x = language.of(
                format!("x += (size_t)(i / {elements}) * {bytes};"),
                format!("let x = &x[i as usize / {elements} * {bytes}..][..{bytes}];"),
                format!("let x = start + i / {elements}u * {bytes}u;"),
            );
            format!("{indent}{word} e = i % {elements};\n{indent}{x}\n")
        });
        let plain = || language.of(String::new(), String::new(), format!("{indent}let x = start;\n"));
        let [integers, numbers] = &self.shared;
        let [integers, numbers] = [(integers, "uint32_t"), (numbers, "float")]
            .map(|(text, kind)| lines(language, kind, text, indent));
        [block.unwrap_or_else(plain), integers, numbers].concat()
    }

    /// The function that decodes element `i`.
    fn text(&self, language: Language) -> String {
        let Decoder { name, integers, number, .. } = self;
        let head = language.of(
            format!("static inline float {name}(const uint8_t *x, uint32_t i) {{\n"),
            format!("#[inline]\nfn {name}(x: &[u8], i: u32) -> f32 {{\n"),
            format!("fn {name}(start: u32, i: u32) -> f32 {{\n"),
        );
        let own = lines(language, "uint32_t", integers, "    ");
        let result = language.of(format!("return {number};"), number.clone(), format!("return {number};"));
        format!("{head}{}{own}    {result}\n}}\n\n", self.begin(language, "    "))
    }

    /// The function of C or Rust that decodes a run of elements from `i`, a multiple of 16, on: into a lane of
    /// an array of rows.
    fn run_text(&self, language: Language) -> String {
        let Decoder { name, integers, number, .. } = self;
        let own = lines(language, "uint32_t", integers, "        ");
        let begin = self.begin(language, "    ");
        if language == Language::Rust {
            return format!(
                "#[inline]\nfn {name}_run<const W: usize>(x: &[u8], i: u32, to: &mut [[f32; W]; {RUN}], lane: usize) {{\n\
                 {begin}    for (l, to) in to.iter_mut().enumerate() {{\n        let e = e + l as u32;\n\
                 {own}        to[lane] = {number};\n    }}\n}}\n\n"
            );
        }
        format!(
            "static inline void {name}_run(const uint8_t *x, uint32_t i, float *to, size_t step) {{\n\
             {begin}    const uint32_t first = e;\n    \
             for (uint32_t e = first; e < first + {RUN}; e++, to += step) {{\n\
             {own}        *to = {number};\n    }}\n}}\n\n"
        )
    }
}

/// Definitions `name = value`, with semicolons between them.
fn lines(language: Language, kind: &str, text: &str, indent: &str) -> String {
    let word = language.of(format!("const {kind}"), "let".into(), "let".into());
    let all = text.split(';').map(str::trim).filter(|line| !line.is_empty());
    all.fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{indent}{word} {line};");
        text
    })
}

/// A function of descriptions: its name, and its text in C, Rust and WGSL. It calls those before it.
type Helper = (&'static str, [&'static str; 3]);

const HELPERS: [Helper; 7] = [
    (
        "byte_of",
        [
            "static inline uint32_t byte_of(const uint8_t *x, uint32_t j) { return x[j]; }\n",
            "fn byte_of(x: &[u8], j: u32) -> u32 {\n    u32::from(x[j as usize])\n}\n",
            "fn byte_of(x: u32, j: u32) -> u32 {\n    let at = x + j;\n    \
             return (weights[at >> 2u] >> ((at & 3u) * 8u)) & 255u;\n}\n",
        ],
    ),
    (
        "pick",
        [
            "static inline uint32_t pick(uint32_t c, uint32_t a, uint32_t b) { return c ? a : b; }\n",
            "fn pick(c: u32, a: u32, b: u32) -> u32 {\n    if c != 0 { a } else { b }\n}\n",
            "fn pick(c: u32, a: u32, b: u32) -> u32 {\n    return select(b, a, c != 0u);\n}\n",
        ],
    ),
    (
        "number",
        [
            "static inline float number(uint32_t q) { return (float)q; }\n",
            "fn number(q: u32) -> f32 {\n    q as f32\n}\n",
            "fn number(q: u32) -> f32 {\n    return f32(q);\n}\n",
        ],
    ),
    (
        "signed_byte",
        [
            "static inline float signed_byte(uint32_t q) { return (float)(q ^ 128) - 128.0f; }\n",
            "fn signed_byte(q: u32) -> f32 {\n    f32::from(q as u8 as i8)\n}\n",
            "fn signed_byte(q: u32) -> f32 {\n    return f32(i32(q ^ 128u) - 128);\n}\n",
        ],
    ),
    (
        "from_bits",
        [
            "static inline float from_bits(uint32_t bits) { return bits_f32(bits); }\n",
            "fn from_bits(bits: u32) -> f32 {\n    f32::from_bits(bits)\n}\n",
            "fn from_bits(bits: u32) -> f32 {\n    return bitcast<f32>(bits);\n}\n",
        ],
    ),
    (
        "f32_of",
        [
            "static inline float f32_of(const uint8_t *x, uint32_t j) {\n    \
             const uint32_t low = x[j] | (uint32_t)x[j + 1] << 8;\n    \
             return bits_f32(low | (uint32_t)x[j + 2] << 16 | (uint32_t)x[j + 3] << 24);\n}\n",
            "fn f32_of(x: &[u8], j: u32) -> f32 {\n    let j = j as usize;\n    \
             f32::from_bits(u32::from_le_bytes([x[j], x[j + 1], x[j + 2], x[j + 3]]))\n}\n",
            "fn f32_of(x: u32, j: u32) -> f32 {\n    return bitcast<f32>(weights[(x + j) >> 2u]);\n}\n",
        ],
    ),
    // The exponent of an f16 is 112 below that of the f32 with its bits.
    (
        "f16_of",
        [
            "static inline float f16_of(const uint8_t *x, uint32_t j) {\n    \
             const uint32_t half = x[j] | (uint32_t)x[j + 1] << 8;\n    \
             const uint32_t rest = (half & 0x7fff) << 13, sign = (half & 0x8000) << 16;\n    \
             if (rest >= 0xf800000) return bits_f32(sign | 0x7f800000 | rest);\n    \
             return bits_f32(sign | rest) * 5192296858534827628530496329220096.0f;\n}\n",
            "fn f16_of(x: &[u8], j: u32) -> f32 {\n    \
             let half = u32::from(u16::from_le_bytes([x[j as usize], x[j as usize + 1]]));\n    \
             let (rest, sign) = ((half & 0x7fff) << 13, (half & 0x8000) << 16);\n    \
             if rest >= 0xf80_0000 {\n        return f32::from_bits(sign | 0x7f80_0000 | rest);\n    }\n    \
             f32::from_bits(sign | rest) * 5192296858534827628530496329220096.0\n}\n",
            "fn f16_of(x: u32, j: u32) -> f32 {\n    \
             return unpack_f16(byte_of(x, j) | (byte_of(x, j + 1u) << 8u));\n}\n",
        ],
    ),
];

/// A function of a table of sixteen numbers.
fn table(language: Language, name: &str, numbers: &[i8; 16]) -> String {
    let list = numbers.map(|x| x.to_string()).join(", ");
    language.of(
        format!(
            "static inline float {name}(uint32_t q) {{\n    static const int8_t numbers[16] = {{{list}}};\n    \
             return numbers[q];\n}}\n"
        ),
        format!(
            "fn {name}(q: u32) -> f32 {{\n    const NUMBERS: [i8; 16] = [{list}];\n    \
             f32::from(NUMBERS[q as usize & 15])\n}}\n"
        ),
        format!(
            "fn {name}(q: u32) -> f32 {{\n    var numbers = array<i32, 16>({list});\n    \
             return f32(numbers[q]);\n}}\n"
        ),
    )
}

/// The functions of decoders that a text in a language calls, with those that they call; those of C call
/// `bits_f32`, too.
pub(crate) fn text<'a>(
    language: Language,
    decoders: impl Iterator<Item = &'a Decoder>,
    calls: &str,
) -> String {
    let calls = |name: &str| calls.contains(&format!("{name}("));
    let decoders: String = decoders
        .map(|decoder| {
            let one = if calls(&decoder.name) { decoder.text(language) } else { String::new() };
            let run = decoder.run_name().filter(|name| calls(name));
            one + &run.map_or(String::new(), |_| decoder.run_text(language))
        })
        .collect();
    let tables = [("iq4_entry", &IQ4_NUMBERS), ("mxfp4_entry", &MXFP4_NUMBERS)];
    let tables = tables.into_iter().filter(|(name, _)| decoders.contains(name));
    let tables: String = tables.map(|(name, numbers)| table(language, name, numbers)).collect();
    // A helper calls those before it.
    HELPERS.iter().rev().fold(tables + &decoders, |text, (name, [c, rust, wgsl])| {
        if text.contains(&format!("{name}(")) {
            language.of(*c, *rust, *wgsl).to_string() + &text
        } else {
            text
        }
    })
}
