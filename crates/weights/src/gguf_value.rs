//! The values of GGUF's metadata, each in its own type.

use crate::Value;

macro_rules! numbers {
    ($($variant:ident($t:ty) = $kind:literal;)*) => {
        /// A metadata value of GGUF.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)] // They are Rust's types.
        pub enum GgufValue {
            $($variant($t),)*
            Bool(bool),
            Text(String),
            Array(GgufArray),
        }

        /// The items of an array in GGUF's metadata, which have one type.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)] // They are Rust's types.
        pub enum GgufArray {
            $($variant(Vec<$t>),)*
            Bool(Vec<bool>),
            Text(Vec<String>),
            Array(Vec<GgufArray>),
        }

        $(
            impl From<$t> for GgufValue {
                fn from(number: $t) -> GgufValue {
                    GgufValue::$variant(number)
                }
            }

            impl From<Vec<$t>> for GgufValue {
                fn from(numbers: Vec<$t>) -> GgufValue {
                    GgufValue::Array(GgufArray::$variant(numbers))
                }
            }
        )*

        impl GgufValue {
            /// Writes the number of the type, and the value's bytes.
            pub(crate) fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(GgufValue::$variant(number) => {
                        out.extend(u32::to_le_bytes($kind));
                        out.extend(number.to_le_bytes());
                    })*
                    GgufValue::Bool(truth) => {
                        out.extend(BOOL.to_le_bytes());
                        out.push((*truth).into());
                    }
                    GgufValue::Text(text) => {
                        out.extend(TEXT.to_le_bytes());
                        write_text(text, out);
                    }
                    GgufValue::Array(array) => {
                        out.extend(ARRAY.to_le_bytes());
                        array.write(out);
                    }
                }
            }
        }

        impl GgufArray {
            /// The number of items.
            pub fn len(&self) -> usize {
                match self {
                    $(GgufArray::$variant(numbers) => numbers.len(),)*
                    GgufArray::Bool(truths) => truths.len(),
                    GgufArray::Text(texts) => texts.len(),
                    GgufArray::Array(arrays) => arrays.len(),
                }
            }

            /// Writes the number of the items' type, their count, and their bytes.
            fn write(&self, out: &mut Vec<u8>) {
                let mut begin = |kind: u32| {
                    out.extend(kind.to_le_bytes());
                    out.extend((self.len() as u64).to_le_bytes());
                };
                match self {
                    $(GgufArray::$variant(numbers) => {
                        begin($kind);
                        numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
                    })*
                    GgufArray::Bool(truths) => {
                        begin(BOOL);
                        out.extend(truths.iter().map(|&truth| u8::from(truth)));
                    }
                    GgufArray::Text(texts) => {
                        begin(TEXT);
                        texts.iter().for_each(|text| write_text(text, out));
                    }
                    GgufArray::Array(arrays) => {
                        begin(ARRAY);
                        arrays.iter().for_each(|array| array.write(out));
                    }
                }
            }
        }
    };
}

/// The numbers of the types that are not numeric.
const BOOL: u32 = 7;
const TEXT: u32 = 8;
const ARRAY: u32 = 9;

numbers! {
    U8(u8) = 0;
    I8(i8) = 1;
    U16(u16) = 2;
    I16(i16) = 3;
    U32(u32) = 4;
    I32(i32) = 5;
    F32(f32) = 6;
    U64(u64) = 10;
    I64(i64) = 11;
    F64(f64) = 12;
}

/// Writes a text, after its length in bytes.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.bytes());
}

impl From<bool> for GgufValue {
    fn from(truth: bool) -> GgufValue {
        GgufValue::Bool(truth)
    }
}

impl From<&str> for GgufValue {
    fn from(text: &str) -> GgufValue {
        GgufValue::Text(text.into())
    }
}

impl From<String> for GgufValue {
    fn from(text: String) -> GgufValue {
        GgufValue::Text(text)
    }
}

impl From<Vec<String>> for GgufValue {
    fn from(texts: Vec<String>) -> GgufValue {
        GgufValue::Array(GgufArray::Text(texts))
    }
}

impl GgufValue {
    /// An integer of any type, if it fits a u64.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            GgufValue::U8(number) => Some((*number).into()),
            GgufValue::U16(number) => Some((*number).into()),
            GgufValue::U32(number) => Some((*number).into()),
            GgufValue::U64(number) => Some(*number),
            GgufValue::I8(number) => (*number).try_into().ok(),
            GgufValue::I16(number) => (*number).try_into().ok(),
            GgufValue::I32(number) => (*number).try_into().ok(),
            GgufValue::I64(number) => (*number).try_into().ok(),
            GgufValue::F32(_) | GgufValue::F64(_) => None,
            GgufValue::Bool(_) | GgufValue::Text(_) | GgufValue::Array(_) => None,
        }
    }

    /// A floating-point number, or an integer as one.
    pub fn as_f64(&self) -> Option<f64> {
        self.to_value_of_number()?.as_f64()
    }

    /// A boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            GgufValue::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// A text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            GgufValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The texts of an array of texts, such as a vocabulary.
    pub fn as_texts(&self) -> Option<&[String]> {
        match self {
            GgufValue::Array(GgufArray::Text(texts)) => Some(texts),
            _ => None,
        }
    }

    /// The items of an array.
    pub fn as_array(&self) -> Option<&GgufArray> {
        match self {
            GgufValue::Array(array) => Some(array),
            _ => None,
        }
    }

    fn to_value_of_number(&self) -> Option<Value> {
        Some(match self {
            GgufValue::U8(number) => Value::Int((*number).into()),
            GgufValue::I8(number) => Value::Int((*number).into()),
            GgufValue::U16(number) => Value::Int((*number).into()),
            GgufValue::I16(number) => Value::Int((*number).into()),
            GgufValue::U32(number) => Value::Int((*number).into()),
            GgufValue::I32(number) => Value::Int((*number).into()),
            GgufValue::U64(number) => Value::Int((*number).into()),
            GgufValue::I64(number) => Value::Int((*number).into()),
            GgufValue::F32(number) => Value::Float((*number).into()),
            GgufValue::F64(number) => Value::Float(*number),
            GgufValue::Bool(_) | GgufValue::Text(_) | GgufValue::Array(_) => return None,
        })
    }

    /// This value as a [`Value`].
    pub fn to_value(&self) -> Value {
        match self {
            GgufValue::Bool(truth) => Value::Bool(*truth),
            GgufValue::Text(text) => Value::Text(text.as_str().into()),
            GgufValue::Array(array) => array.to_value(),
            number => number.to_value_of_number().unwrap_or(Value::None),
        }
    }
}

impl GgufArray {
    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The integers of an array of any integer type, if each fits an i64.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        let Value::List(items) = self.to_value() else { return None };
        items.iter().map(Value::as_i64).collect()
    }

    /// The numbers of a floating-point or integer array.
    pub fn to_f64s(&self) -> Option<Vec<f64>> {
        let Value::List(items) = self.to_value() else { return None };
        items.iter().map(Value::as_f64).collect()
    }

    /// This array as a [`Value`].
    pub fn to_value(&self) -> Value {
        macro_rules! integers {
            ($numbers:expr) => {
                $numbers.iter().map(|&number| Value::Int(number.into())).collect()
            };
        }
        Value::List(match self {
            GgufArray::U8(numbers) => integers!(numbers),
            GgufArray::I8(numbers) => integers!(numbers),
            GgufArray::U16(numbers) => integers!(numbers),
            GgufArray::I16(numbers) => integers!(numbers),
            GgufArray::U32(numbers) => integers!(numbers),
            GgufArray::I32(numbers) => integers!(numbers),
            GgufArray::U64(numbers) => integers!(numbers),
            GgufArray::I64(numbers) => integers!(numbers),
            GgufArray::F32(numbers) => numbers.iter().map(|&number| Value::Float(number.into())).collect(),
            GgufArray::F64(numbers) => numbers.iter().map(|&number| Value::Float(number)).collect(),
            GgufArray::Bool(truths) => truths.iter().map(|&truth| Value::Bool(truth)).collect(),
            GgufArray::Text(texts) => texts.iter().map(|text| Value::Text(text.as_str().into())).collect(),
            GgufArray::Array(arrays) => arrays.iter().map(GgufArray::to_value).collect(),
        })
    }
}
