//! [`Budget`]: the memory that a file may ask for. [`Meter`] counts it, and [`measure`] counts that of a
//! file's messages before they are decoded.

use std::{
    mem::size_of,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tensor_core::{Error, Result};

use crate::proto::{
    AttributeProto, Dimension, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto, SparseTensorProto,
    StringStringEntryProto, TensorProto, TypeProto, ValueInfoProto,
};

/// Bounds of what a file may ask for, in [`LoadOptions`](crate::LoadOptions). They are tied to the file's
/// size, so that a small file cannot take much memory; a file beyond them is refused with an error that names
/// this type.
///
/// Loading counts decoded messages, compiled nodes, and tensors on the host; each run counts texts and tables
/// on the host. A tensor on the device is bounded by the device's own limit
/// ([`Device::set_memory_limit`](tensor_core::Device::set_memory_limit)).
///
/// ```
/// use onnx::{Budget, LoadOptions};
///
/// // For a large graph whose weights are in another program: more memory for each byte of the file.
/// let budget = Budget { bytes_per_byte: 500, ..Budget::default() };
/// let options = LoadOptions { budget, ..Default::default() };
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The bytes of memory that loading, and each run, may take for a file of any size; 64 MiB by default.
    pub base_bytes: u64,
    /// The further bytes of memory for each byte of the file, of its files with external data, and of texts
    /// that a run is given; 64 by default.
    pub bytes_per_byte: u64,
    /// The greatest number of nodes of a model, with its functions counted at every call; 4 million by
    /// default.
    pub nodes: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { base_bytes: 64 << 20, bytes_per_byte: 64, nodes: 4_000_000 }
    }
}

impl Budget {
    /// A count of the memory that a file of this size may take.
    pub(crate) fn meter(self, file_bytes: u64) -> Meter {
        let meter = Meter { budget: self, left: Arc::default(), allowed: AtomicU64::default() };
        meter.add(self.base_bytes);
        meter.allow(file_bytes);
        meter
    }
}

/// The part of a budget that is left.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) budget: Budget,
    left: Arc<AtomicU64>,
    allowed: AtomicU64,
}

/// Memory that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    left: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let _ = self.left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_add(self.bytes)));
    }
}

impl Default for Meter {
    fn default() -> Meter {
        Budget::default().meter(0)
    }
}

impl Meter {
    /// Adds what the bytes of a further file or input allow.
    pub(crate) fn allow(&self, bytes: u64) {
        self.add(bytes.saturating_mul(self.budget.bytes_per_byte));
    }

    fn add(&self, more: u64) {
        let _ = self.left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_add(more)));
        let _ = self.allowed.fetch_update(Relaxed, Relaxed, |allowed| Some(allowed.saturating_add(more)));
    }

    /// Counts memory that `what` takes.
    ///
    /// # Errors
    /// More than is left.
    pub(crate) fn charge(&self, bytes: u64, what: &str) -> Result<()> {
        if self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok() {
            return Ok(());
        }
        let allowed = self.allowed.load(Relaxed);
        let message = format!(
            "{what} would take {bytes} further bytes of memory, and a file of this size may take {allowed} in \
             all; if the file is trusted, load it with a greater onnx::Budget"
        );
        Err(Error::invalid("onnx", message))
    }

    /// Counts memory that `what` takes until the result is dropped.
    ///
    /// # Errors
    /// As [`Meter::charge`].
    pub(crate) fn hold(&self, bytes: u64, what: &str) -> Result<Charge> {
        self.charge(bytes, what)?;
        Ok(Charge { left: self.left.clone(), bytes })
    }

    /// Counts a list of `count` elements of this many bytes each.
    ///
    /// # Errors
    /// As [`Meter::charge`].
    pub(crate) fn charge_list(&self, count: usize, each: usize, what: &str) -> Result<()> {
        self.charge((count as u64).saturating_mul(each as u64), what)
    }
}

/// The messages that may be in a file, of which many small ones take much more memory than bytes.
#[derive(Clone, Copy)]
enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Sparse,
    ValueInfo,
    Type,
    TensorType,
    Element,
    Map,
    Shape,
    Dimension,
    Function,
    Opset,
    Entry,
}

/// The content of a field.
#[derive(Clone, Copy)]
enum Held {
    /// A message within the one around it, or one in a list or on its own, with its size there.
    Message(Message, usize),
    /// A text or bytes, or an element of a list of them, with its size there.
    Bytes(usize),
    /// Numbers of variable length, of which each takes this many bytes in a list.
    Numbers(usize),
    /// Numbers of a fixed length.
    Fixed,
}

/// The share of a list's capacity that is in use while it grows, as a divisor.
const GROWTH: usize = 2;
const TEXT: Held = Held::Bytes(size_of::<String>() * GROWTH);
const BYTES: Held = Held::Bytes(size_of::<bytes::Bytes>() * GROWTH);
/// A text that is no element of a list: only its bytes are beside the message.
const ALONE: Held = Held::Bytes(0);

const fn list<T>(message: Message) -> Held {
    Held::Message(message, size_of::<T>() * GROWTH)
}

const fn boxed<T>(message: Message) -> Held {
    Held::Message(message, size_of::<T>())
}

const fn inline(message: Message) -> Held {
    Held::Message(message, 0)
}

const fn numbers<T>() -> Held {
    Held::Numbers(size_of::<T>() * GROWTH)
}

impl Message {
    /// The fields that take memory, by their numbers in [`proto`](crate::proto).
    fn field(self, number: u64) -> Option<Held> {
        let found = match (self, number) {
            (Message::Model, 7) => inline(Message::Graph),
            (Message::Model, 8) => list::<OperatorSetIdProto>(Message::Opset),
            (Message::Model, 14) => list::<StringStringEntryProto>(Message::Entry),
            (Message::Model, 25) => list::<FunctionProto>(Message::Function),
            (Message::Model, 2..=4 | 6) => ALONE,
            (Message::Graph, 1) => list::<NodeProto>(Message::Node),
            (Message::Graph, 5) => list::<TensorProto>(Message::Tensor),
            (Message::Graph, 15) => list::<SparseTensorProto>(Message::Sparse),
            (Message::Graph, 11..=13) => list::<ValueInfoProto>(Message::ValueInfo),
            (Message::Graph, 2 | 10) => ALONE,
            (Message::Node, 1 | 2) => TEXT,
            (Message::Node, 5) => list::<AttributeProto>(Message::Attribute),
            (Message::Node, 3 | 4 | 6..=8) => ALONE,
            (Message::Attribute, 5) => boxed::<TensorProto>(Message::Tensor),
            (Message::Attribute, 6) => boxed::<GraphProto>(Message::Graph),
            (Message::Attribute, 22) => boxed::<SparseTensorProto>(Message::Sparse),
            (Message::Attribute, 14) => boxed::<TypeProto>(Message::Type),
            (Message::Attribute, 7) => Held::Fixed,
            (Message::Attribute, 8) => numbers::<i64>(),
            (Message::Attribute, 9) => BYTES,
            (Message::Attribute, 10) => list::<TensorProto>(Message::Tensor),
            (Message::Attribute, 11) => list::<GraphProto>(Message::Graph),
            (Message::Attribute, 1 | 13 | 21) => ALONE,
            (Message::Tensor, 1 | 7) => numbers::<i64>(),
            (Message::Tensor, 4) => Held::Fixed,
            (Message::Tensor, 5) => numbers::<i32>(),
            (Message::Tensor, 10) => Held::Fixed,
            (Message::Tensor, 11) => numbers::<u64>(),
            (Message::Tensor, 6) => BYTES,
            (Message::Tensor, 13) => list::<StringStringEntryProto>(Message::Entry),
            (Message::Tensor, 8 | 12) => ALONE,
            (Message::Sparse, 1 | 2) => inline(Message::Tensor),
            (Message::Sparse, 3) => numbers::<i64>(),
            (Message::ValueInfo, 2) => inline(Message::Type),
            (Message::ValueInfo, 1 | 3) => ALONE,
            (Message::Type, 1 | 8) => inline(Message::TensorType),
            (Message::Type, 4 | 9) => boxed::<TypeProto>(Message::Element),
            (Message::Type, 5) => inline(Message::Map),
            (Message::TensorType, 2) => inline(Message::Shape),
            (Message::Element, 1) | (Message::Map, 2) => boxed::<TypeProto>(Message::Type),
            (Message::Shape, 1) => list::<Dimension>(Message::Dimension),
            (Message::Dimension, 2) => ALONE,
            (Message::Function, 4..=6) => TEXT,
            (Message::Function, 11) => list::<AttributeProto>(Message::Attribute),
            (Message::Function, 7) => list::<NodeProto>(Message::Node),
            (Message::Function, 9) => list::<OperatorSetIdProto>(Message::Opset),
            (Message::Function, 1 | 8 | 10 | 13) => ALONE,
            (Message::Opset, 1) | (Message::Entry, 1 | 2) => ALONE,
            _ => return None,
        };
        Some(found)
    }
}

/// The depth of messages in messages that the decoder takes.
const DEPTH: usize = 100;

/// Counts the memory that a file's messages take once they are decoded. Bytes that are no messages end the
/// count: the decoder refuses them at the same place.
///
/// # Errors
/// More than the budget, or groups, which ONNX's messages do not have.
pub(crate) fn measure(file: &[u8], meter: &Meter) -> Result<()> {
    measured(file, Message::Model, DEPTH, meter).map(|_| ())
}

/// A number of variable length, and the bytes after it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (at, &byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Some((number, &bytes[at + 1..]));
        }
    }
    None
}

/// Whether the message ended as one.
fn measured(mut bytes: &[u8], message: Message, depth: usize, meter: &Meter) -> Result<bool> {
    const WHAT: &str = "this is no ONNX model that can be decoded here: its messages";
    while !bytes.is_empty() {
        let Some((key, rest)) = varint(bytes) else { return Ok(false) };
        let held = message.field(key >> 3);
        // The kinds of fields: a varint, eight bytes, bytes with their length, groups, and four bytes.
        let (length, rest) = match key & 7 {
            0 => match varint(rest) {
                Some((_, after)) => (rest.len() - after.len(), rest),
                None => return Ok(false),
            },
            1 => (8, rest),
            2 => match varint(rest) {
                Some((length, after)) => (usize::try_from(length).unwrap_or(usize::MAX), after),
                None => return Ok(false),
            },
            5 => (4, rest),
            _ => return Err(Error::invalid("onnx", "this is no ONNX model: its messages have groups")),
        };
        let Some((content, after)) = rest.split_at_checked(length) else { return Ok(false) };
        let is_bytes = key & 7 == 2;
        match held {
            Some(Held::Message(inner, size)) if is_bytes => {
                meter.charge(size as u64, WHAT)?;
                if depth == 0 || !measured(content, inner, depth - 1, meter)? {
                    return Ok(false);
                }
            }
            Some(Held::Bytes(size)) if is_bytes => meter.charge((size + length) as u64, WHAT)?,
            Some(Held::Numbers(size)) => {
                // The last byte of each number has a clear highest bit.
                let count = if is_bytes { content.iter().filter(|&&byte| byte < 0x80).count() } else { 1 };
                meter.charge_list(count, size, WHAT)?;
            }
            Some(Held::Fixed) => meter.charge_list(length, GROWTH, WHAT)?,
            Some(Held::Message(..) | Held::Bytes(_)) | None => {}
        }
        bytes = after;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::ModelProto;

    fn model(attributes: usize) -> Vec<u8> {
        let attribute = vec![AttributeProto::default(); attributes];
        let node = vec![NodeProto { attribute, ..Default::default() }];
        let graph = Some(GraphProto { node, ..Default::default() });
        ModelProto { graph, ..Default::default() }.encode_to_vec()
    }

    #[test]
    fn empty_messages_are_counted_with_their_sizes() {
        let file = model(100_000);
        assert!(file.len() < 250_000);
        let budget = |base_bytes| Budget { base_bytes, bytes_per_byte: 0, ..Budget::default() };
        let size = (100_000 * size_of::<AttributeProto>()) as u64;
        let error = measure(&file, &budget(size).meter(0)).unwrap_err().to_string();
        assert!(error.contains("onnx::Budget") && error.contains(&size.to_string()), "{error}");
        measure(&file, &budget(3 * size).meter(0)).unwrap();
    }

    #[test]
    fn a_meter_allows_more_for_more_bytes() {
        let meter = Budget { base_bytes: 10, bytes_per_byte: 2, nodes: 1 }.meter(5);
        meter.charge(20, "a table").unwrap();
        assert!(meter.charge(1, "a table").is_err());
        meter.allow(1);
        meter.charge(2, "a table").unwrap();
    }
}
