//! GGUF, the format of llama.cpp, versions 2 and 3, little-endian: metadata, then the names, shapes, types
//! and positions of tensors, then their elements.
//!
//! Dimensions are stored fastest first: a tensor of shape `[rows, columns]` is stored as `[columns, rows]`.
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod write;

use std::{collections::BTreeMap, sync::Arc};

use tensor_core::{
    BlockType, DType, Result, Shape,
    file::{Content, file_error},
};

pub use self::write::GgufWriter;
use crate::{
    gguf_value::{GgufArray, GgufValue},
    parsed::Parsed,
    stream::Stream,
    tensor_info::{AXES_LIMIT, Encoding, Place, TensorInfo},
};

/// The first bytes of a file.
pub(crate) const MAGIC: &[u8; 4] = b"GGUF";

/// The supported versions. Version 1 had lengths of 32 bits.
const VERSIONS: [u32; 2] = [2, 3];

/// The metadata that has the alignment of tensors, and its default.
const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u64 = 32;

/// A tensor in the header: its name, the tensor, and its range of bytes.
struct Described {
    name: String,
    info: TensorInfo,
    start: u64,
    end: u64,
}

/// Opens a file.
#[track_caller]
pub(crate) fn open(content: &Arc<Content>) -> Result<Parsed> {
    let path = content.path();
    let mut reader = Reader { stream: Stream::new(content, MAGIC.len() as u64, content.length()) };
    let wrong = |message: String| file_error(path, message);
    let version = u32::from_le_bytes(reader.word()?);
    if VERSIONS.contains(&version.swap_bytes()) {
        return Err(wrong(
            "is a big-endian GGUF file, which is not read; convert it with gguf-py's gguf_convert_endian"
                .into(),
        ));
    }
    if !VERSIONS.contains(&version) {
        return Err(wrong(format!("is GGUF of version {version}, expected 2 or 3")));
    }
    let tensor_count = u64::from_le_bytes(reader.word()?);
    let value_count = u64::from_le_bytes(reader.word()?);
    let mut metadata = BTreeMap::new();
    for _ in 0..value_count {
        let key = reader.text()?;
        let value = reader.value(&key)?;
        if metadata.insert(key.clone(), value).is_some() {
            return Err(wrong(format!("has the metadata \"{key}\" twice")));
        }
    }
    let alignment = match metadata.get(ALIGNMENT_KEY) {
        None => DEFAULT_ALIGNMENT,
        Some(value) => match value.as_u64() {
            Some(alignment) if alignment > 0 && alignment % 8 == 0 => alignment,
            _ => return Err(wrong(format!("has the alignment {value:?}, expected a multiple of 8"))),
        },
    };
    let mut described = Vec::new();
    for _ in 0..tensor_count {
        described.push(reader.tensor(content)?);
    }
    let data = reader.stream.position().checked_next_multiple_of(alignment);
    for tensor in &mut described {
        let place = |offset: u64| data.and_then(|data| data.checked_add(offset));
        let (start, end) = (place(tensor.start), place(tensor.end));
        match (start, end) {
            (Some(start), Some(end)) if end <= content.length() && tensor.start % alignment == 0 => {
                (tensor.start, tensor.end) = (start, end);
                tensor.info.place = Place::File { content: content.clone(), start };
            }
            _ => {
                let message = format!(
                    "is cut off or damaged: tensor \"{}\" of {} bytes from {} of the data on, aligned to {alignment}, is not in a file of {} bytes",
                    tensor.name,
                    tensor.end - tensor.start,
                    tensor.start,
                    content.length()
                );
                return Err(wrong(message));
            }
        }
    }
    described.sort_unstable_by_key(|tensor| (tensor.start, tensor.end));
    if let Some([a, b]) = described.array_windows::<2>().find(|[a, b]| a.end > b.start) {
        return Err(wrong(format!("is damaged: the tensors \"{}\" and \"{}\" overlap", a.name, b.name)));
    }
    let mut tensors = BTreeMap::new();
    for Described { name, info, .. } in described {
        if tensors.insert(name.clone(), Arc::new(info)).is_some() {
            return Err(wrong(format!("has two tensors \"{name}\"")));
        }
    }
    content.check_unchanged()?;
    Ok(Parsed { tensors, texts: BTreeMap::new(), gguf: metadata, value: None, capacity: content.length() })
}

/// Reads the header in order.
struct Reader<'a> {
    stream: Stream<'a>,
}

impl Reader<'_> {
    #[track_caller]
    fn cut<T>(&self, found: Option<T>) -> Result<T> {
        found.ok_or_else(|| file_error(self.stream.path(), "is cut off or damaged within its header"))
    }

    #[track_caller]
    fn word<const N: usize>(&mut self) -> Result<[u8; N]> {
        let word = self.stream.array()?;
        self.cut(word)
    }

    #[track_caller]
    fn text(&mut self) -> Result<String> {
        let length = u64::from_le_bytes(self.word()?);
        let bytes = self.stream.take(length)?;
        let bytes = self.cut(bytes)?;
        String::from_utf8(bytes)
            .map_err(|_| file_error(self.stream.path(), "has a text in its header that is not UTF-8"))
    }

    #[track_caller]
    fn value(&mut self, key: &str) -> Result<GgufValue> {
        let kind = u32::from_le_bytes(self.word()?);
        Ok(match kind {
            0 => GgufValue::U8(u8::from_le_bytes(self.word()?)),
            1 => GgufValue::I8(i8::from_le_bytes(self.word()?)),
            2 => GgufValue::U16(u16::from_le_bytes(self.word()?)),
            3 => GgufValue::I16(i16::from_le_bytes(self.word()?)),
            4 => GgufValue::U32(u32::from_le_bytes(self.word()?)),
            5 => GgufValue::I32(i32::from_le_bytes(self.word()?)),
            6 => GgufValue::F32(f32::from_le_bytes(self.word()?)),
            7 => GgufValue::Bool(u8::from_le_bytes(self.word()?) != 0),
            8 => GgufValue::Text(self.text()?),
            9 => GgufValue::Array(self.array(key, ARRAY_DEPTH)?),
            10 => GgufValue::U64(u64::from_le_bytes(self.word()?)),
            11 => GgufValue::I64(i64::from_le_bytes(self.word()?)),
            12 => GgufValue::F64(f64::from_le_bytes(self.word()?)),
            _ => return Err(self.unknown(key, kind)),
        })
    }

    #[track_caller]
    fn unknown(&self, key: &str, kind: u32) -> tensor_core::Error {
        file_error(self.stream.path(), format!("has metadata \"{key}\" of type {kind}, which is unknown"))
    }

    #[track_caller]
    fn array(&mut self, key: &str, depth: usize) -> Result<GgufArray> {
        let kind = u32::from_le_bytes(self.word()?);
        let count = u64::from_le_bytes(self.word()?);
        macro_rules! numbers {
            ($t:ty) => {{
                const SIZE: usize = size_of::<$t>();
                let bytes = match count.checked_mul(SIZE as u64) {
                    Some(bytes) => self.stream.take(bytes)?,
                    None => None,
                };
                let bytes = self.cut(bytes)?;
                let (words, _) = bytes.as_chunks::<SIZE>();
                words.iter().map(|&word| <$t>::from_le_bytes(word)).collect()
            }};
        }
        Ok(match kind {
            0 => GgufArray::U8(numbers!(u8)),
            1 => GgufArray::I8(numbers!(i8)),
            2 => GgufArray::U16(numbers!(u16)),
            3 => GgufArray::I16(numbers!(i16)),
            4 => GgufArray::U32(numbers!(u32)),
            5 => GgufArray::I32(numbers!(i32)),
            6 => GgufArray::F32(numbers!(f32)),
            7 => {
                let bytes: Vec<u8> = numbers!(u8);
                GgufArray::Bool(bytes.into_iter().map(|byte| byte != 0).collect())
            }
            8 => {
                let mut texts = Vec::new();
                for _ in 0..count {
                    texts.push(self.text()?);
                }
                GgufArray::Text(texts)
            }
            9 if depth > 0 => {
                let mut arrays = Vec::new();
                for _ in 0..count {
                    arrays.push(self.array(key, depth - 1)?);
                }
                GgufArray::Array(arrays)
            }
            9 => {
                let message =
                    format!("has metadata \"{key}\" of arrays in each other, more than {ARRAY_DEPTH} deep");
                return Err(file_error(self.stream.path(), message));
            }
            10 => GgufArray::U64(numbers!(u64)),
            11 => GgufArray::I64(numbers!(i64)),
            12 => GgufArray::F64(numbers!(f64)),
            _ => return Err(self.unknown(key, kind)),
        })
    }

    /// A tensor, with its position in the data.
    #[track_caller]
    fn tensor(&mut self, content: &Arc<Content>) -> Result<Described> {
        let path = content.path();
        let name = self.text()?;
        let rank = u32::from_le_bytes(self.word()?) as usize;
        if rank > AXES_LIMIT {
            return Err(file_error(
                path,
                format!("has tensor \"{name}\" of {rank} axes, expected {AXES_LIMIT} at most"),
            ));
        }
        let mut sizes = Vec::with_capacity(rank);
        for _ in 0..rank {
            sizes.push(u64::from_le_bytes(self.word()?));
        }
        let kind = u32::from_le_bytes(self.word()?);
        let start = u64::from_le_bytes(self.word()?);
        let fastest = sizes.first().copied().unwrap_or(1);
        let sizes: Option<Vec<usize>> =
            sizes.into_iter().rev().map(|size| usize::try_from(size).ok()).collect();
        let shape = sizes.map(|sizes| Shape::from(sizes.as_slice())).filter(Shape::fits);
        let Some(shape) = shape else {
            return Err(file_error(
                path,
                format!("has tensor \"{name}\" with more elements than can be counted"),
            ));
        };
        let Some(encoding) = encoding(kind) else {
            return Err(file_error(path, format!("has tensor \"{name}\" of type {kind}, which is unknown")));
        };
        if let Encoding::Blocks(blocks) = &encoding
            && fastest % blocks.block_elements() as u64 != 0
        {
            let message = format!(
                "has tensor \"{name}\" of {} with rows of {fastest}, which are no whole blocks of {}",
                blocks.name(),
                blocks.block_elements()
            );
            return Err(file_error(path, message));
        }
        let place = Place::File { content: content.clone(), start };
        let info = TensorInfo { encoding, shape, strides: None, place, big_endian: false, described: None };
        let end = info.bytes().and_then(|bytes| start.checked_add(bytes));
        match end {
            Some(end) => Ok(Described { name, info, start, end }),
            None => Err(file_error(path, format!("has tensor \"{name}\" beyond the end of any file"))),
        }
    }
}

/// The greatest nesting depth of arrays.
const ARRAY_DEPTH: usize = 8;

/// The encoding for a number of `ggml_type`.
fn encoding(number: u32) -> Option<Encoding> {
    let dtype = DType::ALL.into_iter().find(|dtype| dtype.info().gguf == Some(number));
    let blocks = || BlockType::ALL.iter().find(|blocks| blocks.number() == number);
    dtype.map(Encoding::Plain).or_else(|| blocks().copied().map(Encoding::Blocks))
}
