//! The functions that decode elements of blocks, from the descriptions of `blocks`.

use std::fmt::Write;

use tensor_core::{IQ4_NUMBERS, MXFP4_NUMBERS};

use super::language::Language;
use crate::blocks::{Decoder, RUN};

impl Decoder {
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

    /// The function of C or Rust that decodes the run of elements from `i` on, a multiple of 16, into a lane
    /// of an array of rows.
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
pub(super) fn text<'a>(
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
