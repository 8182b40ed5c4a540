//! [`Language`]: the words of the languages that programs are written in.

use std::collections::BTreeSet;

use tensor_core::{Arithmetic, DType, Scalar};

use crate::{
    number::{Number, number},
    operations::Text,
};

/// A language of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    C,
    Rust,
    /// Its functions are those of the backend for GPUs (`taper_shaders`), in 32 bits throughout.
    Wgsl,
}

/// The functions of C and Rust; see `functions.rs`.
const RUST_FUNCTIONS: &str = include_str!("../functions.rs");
const C_FUNCTIONS: &str = include_str!("../functions.c");
/// The beginning of the line before a function, with its name and the names of what it calls.
const MARK: &str = "// @ ";

impl Language {
    /// One of three.
    pub(crate) fn of<T>(self, c: T, rust: T, wgsl: T) -> T {
        match self {
            Language::C => c,
            Language::Rust => rust,
            Language::Wgsl => wgsl,
        }
    }

    /// One of two, for the parts of programs that processors run.
    pub(crate) fn native<T>(self, c: T, rust: T) -> T {
        if self == Language::Rust { rust } else { c }
    }

    /// The type of a register.
    pub(crate) fn register(self, of: Arithmetic) -> &'static str {
        match of {
            Arithmetic::Bool => self.of("_Bool", "bool", "bool"),
            Arithmetic::U32 => self.of("uint32_t", "u32", "u32"),
            Arithmetic::I32 => self.of("int32_t", "i32", "i32"),
            // `operations::check_page` refuses u64 and f64, and i64 beyond indices.
            Arithmetic::U64 => self.of("uint64_t", "u64", "u32"),
            Arithmetic::I64 => self.of("int64_t", "i64", "i32"),
            Arithmetic::F32 => self.of("float", "f32", "f32"),
            Arithmetic::F64 => self.of("double", "f64", "f32"),
        }
    }

    /// The unsigned integer of the same width.
    fn unsigned(self, of: Arithmetic) -> &'static str {
        match of {
            Arithmetic::U64 | Arithmetic::I64 | Arithmetic::F64 => self.native("uint64_t", "u64"),
            Arithmetic::Bool | Arithmetic::U32 | Arithmetic::I32 | Arithmetic::F32 => {
                self.native("uint32_t", "u32")
            }
        }
    }

    /// The type of elements in a processor's memory.
    pub(crate) fn stored(self, dtype: DType) -> &'static str {
        match dtype {
            DType::Bool | DType::U8 => self.native("uint8_t", "u8"),
            DType::I8 => self.native("int8_t", "i8"),
            DType::U16 => self.native("uint16_t", "u16"),
            DType::I16 => self.native("int16_t", "i16"),
            _ => self.register(dtype.arithmetic()),
        }
    }

    /// A number of the host as a literal.
    pub(crate) fn literal(self, scalar: Scalar, dtype: DType, calls: &mut BTreeSet<&'static str>) -> String {
        let signed = |text: String| if text.starts_with('-') { format!("({text})") } else { text };
        match number(scalar, dtype) {
            Number::F32(x) if x.is_finite() => signed(format!("{x:?}{}", self.of("f", "f32", "f"))),
            Number::F64(x) if x.is_finite() => signed(format!("{x:?}{}", self.native("", "f64"))),
            Number::F32(x) => {
                calls.extend((self == Language::C).then_some("bits_f32"));
                self.of(
                    format!("bits_f32({:#x}u)", x.to_bits()),
                    format!("f32::from_bits({:#x})", x.to_bits()),
                    // WGSL has no constant that is not finite.
                    match (x.is_nan(), x < 0.0) {
                        (true, _) => "nan_f32()".into(),
                        (false, true) => "(-inf_f32())".into(),
                        (false, false) => "inf_f32()".into(),
                    },
                )
            }
            Number::F64(x) => {
                calls.extend((self == Language::C).then_some("bits_f64"));
                let bits = x.to_bits();
                self.native(format!("bits_f64(UINT64_C({bits:#x}))"), format!("f64::from_bits({bits:#x})"))
            }
            Number::I32(i32::MIN) => self.of("INT32_MIN", "i32::MIN", "i32(-2147483648)").into(),
            Number::I64(i64::MIN) => self.native("INT64_MIN", "i64::MIN").into(),
            Number::I32(x) => signed(format!("{x}{}", self.of("", "i32", "i"))),
            Number::U32(x) => format!("{x}{}", self.of("u", "u32", "u")),
            Number::I64(x) => signed(self.of(format!("INT64_C({x})"), format!("{x}i64"), format!("{x}i"))),
            Number::U64(x) => self.native(format!("UINT64_C({x})"), format!("{x}u64")),
            Number::Bool(x) => {
                let word = if x { "true" } else { "false" };
                self.of(if x { "1" } else { "0" }, word, word).into()
            }
        }
    }

    /// The elements of a constant, for its initializer in C or Rust.
    pub(crate) fn elements(self, dtype: DType, bytes: &[u8], calls: &mut BTreeSet<&'static str>) -> String {
        let mut text = String::new();
        let mut column = 0;
        for scalar in Scalar::from_bytes(dtype, bytes) {
            let one = match (dtype, scalar) {
                (DType::Bool, _) => u8::from(scalar.as_bool()).to_string(),
                (DType::F32, Scalar::Float(x)) if x.is_finite() => {
                    format!("{:?}{}", x as f32, self.native("f", ""))
                }
                // An initializer of C calls no function.
                (DType::F32 | DType::F64, Scalar::Float(x)) if self == Language::C && !x.is_finite() => {
                    calls.insert("math.h");
                    let sign = if x < 0.0 { "-" } else { "" };
                    format!("{sign}{}", if x.is_nan() { "NAN" } else { "INFINITY" })
                }
                (DType::F32 | DType::F64, _) => self.literal(scalar, dtype, calls),
                (_, Scalar::Int(x)) if dtype.size() < 4 => x.to_string(),
                _ => self.literal(scalar, dtype, calls),
            };
            if column + one.len() > 100 {
                text.push('\n');
                column = 0;
            }
            column += one.len() + 2;
            text.push_str(&one);
            text.push_str(", ");
        }
        text
    }

    /// An operation's text for operands of a type.
    pub(crate) fn text(self, text: Text, of: Arithmetic, a: &str, b: &str) -> String {
        self.of(text.c, text.rust, text.wgsl)
            .replace("{a}", a)
            .replace("{b}", b)
            .replace("{t}", self.register(of))
            .replace("{u}", self.unsigned(of))
    }

    /// A number of one type as another, both in registers, without the range of narrow integers.
    pub(crate) fn cast(
        self,
        from: Arithmetic,
        to: Arithmetic,
        a: &str,
        calls: &mut BTreeSet<&'static str>,
    ) -> String {
        use Arithmetic as A;
        let name = match (from, to) {
            _ if from == to => return a.into(),
            (A::F32 | A::F64, A::Bool) => return format!("{a} != 0{}", self.of("", ".0", ".0")),
            (_, A::Bool) => return format!("{a} != 0"),
            (A::Bool, A::F32 | A::F64) if self == Language::Rust => {
                return format!("{a} as u8 as {}", self.register(to));
            }
            (A::F32, A::I32) => "f32_to_i32",
            (A::F32, A::U32) => "f32_to_u32",
            (A::F32, A::I64) => "f32_to_i64",
            (A::F32, A::U64) => "f32_to_u64",
            (A::F64, A::I32) => "f64_to_i32",
            (A::F64, A::U32) => "f64_to_u32",
            (A::F64, A::I64) => "f64_to_i64",
            (A::F64, A::U64) => "f64_to_u64",
            _ => "",
        };
        match self {
            Language::Rust => format!("{a} as {}", self.register(to)),
            Language::Wgsl if name == "f32_to_i32" => format!("i32_from_f32({a})"),
            Language::Wgsl if name == "f32_to_u32" => format!("u32_from_f32({a})"),
            Language::Wgsl => format!("{}({a})", self.register(to)),
            Language::C if name.is_empty() => format!("({}){a}", self.register(to)),
            Language::C => {
                calls.insert(name);
                format!("{name}({a})")
            }
        }
    }

    /// A register's number held to the range of a narrow integer: it wraps, or it saturates if it was a
    /// float.
    pub(crate) fn narrowed(self, dtype: DType, saturates: bool, a: &str) -> Option<String> {
        if !dtype.is_narrow() || !dtype.is_int() {
            return None;
        }
        let (least, greatest) = (dtype.least().as_i64(), dtype.greatest().as_i64());
        Some(match (self, saturates) {
            (Language::Rust, true) => format!("{a}.clamp({least}, {greatest})"),
            (Language::Wgsl, true) => format!("clamp({a}, {least}, {greatest})"),
            (Language::Wgsl, false) if least < 0 => format!("extractBits({a}, 0u, {}u)", 8 * dtype.size()),
            (Language::Wgsl, false) => format!("{a} & {greatest}"),
            (Language::C, true) => format!("{a} < {least} ? {least} : {a} > {greatest} ? {greatest} : {a}"),
            (Language::Rust, false) => format!("{a} as {} as i32", self.stored(dtype)),
            (Language::C, false) => format!("(int32_t)({}){a}", self.stored(dtype)),
        })
    }

    /// An element of memory in its register.
    pub(crate) fn load(self, dtype: DType, place: &str) -> String {
        match (dtype, self) {
            (_, Language::Wgsl) => match dtype.arithmetic() {
                Arithmetic::Bool => format!("{place} != 0u"),
                Arithmetic::U32 | Arithmetic::U64 => place.into(),
                of => format!("bitcast<{}>({place})", self.register(of)),
            },
            (DType::Bool, _) => format!("{place} != 0"),
            _ if !dtype.is_narrow() => place.into(),
            (_, Language::C) => format!("(int32_t){place}"),
            (_, Language::Rust) => format!("{place} as i32"),
        }
    }

    /// An element of an array in blocks in its register.
    pub(crate) fn decoded(self, decode: &str, array: &str, place: &str, dtype: DType) -> String {
        let number = self.of(
            format!("{decode}({array}, {place})"),
            format!("{decode}({array}, ({place}) as u32)"),
            format!("{decode}({array} * 4u, {place})"),
        );
        self.cast(Arithmetic::F32, dtype.arithmetic(), &number, &mut BTreeSet::new())
    }

    /// A register in memory.
    pub(crate) fn store(self, dtype: DType, value: &str) -> String {
        match self {
            Language::Wgsl => match dtype.arithmetic() {
                Arithmetic::Bool => format!("select(0u, 1u, {value})"),
                _ => format!("bitcast<u32>({value})"),
            },
            _ if !dtype.is_narrow() && !dtype.is_bool() => value.into(),
            Language::C => format!("({}){value}", self.stored(dtype)),
            Language::Rust => format!("{value} as {}", self.stored(dtype)),
        }
    }

    /// The text of these functions of C or Rust and of those that they call, in the order of the file.
    pub(crate) fn functions(self, wanted: &BTreeSet<&'static str>) -> String {
        let text = self.native(C_FUNCTIONS, RUST_FUNCTIONS);
        let parts: Vec<(&str, &str)> =
            text.split(MARK).skip(1).filter_map(|part| part.split_once('\n')).collect();
        let mut needed: BTreeSet<&str> = wanted.iter().copied().collect();
        // A function calls those before it, so one pass from the end finds all.
        for (names, _) in parts.iter().rev() {
            let mut names = names.split_whitespace();
            if names.next().is_some_and(|name| needed.contains(name)) {
                needed.extend(names);
            }
        }
        let is_needed =
            |names: &str| names.split_whitespace().next().is_some_and(|name| needed.contains(name));
        let text: String =
            parts.iter().filter(|(names, _)| is_needed(names)).map(|(_, body)| *body).collect();
        text.replace("pub(crate) fn", "fn")
    }

    /// Whether these functions, or those that they call, need the header `math.h`.
    pub(crate) fn needs_math(wanted: &BTreeSet<&'static str>) -> bool {
        let of_library = ["sqrt_f32", "remainder_f32", "floor_divide_f32", "math.h"];
        wanted.iter().any(|name| of_library.contains(name))
    }
}
