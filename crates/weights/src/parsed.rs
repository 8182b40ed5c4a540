//! [`Parsed`]: what the formats read of a file.

use std::{collections::BTreeMap, sync::Arc};

use crate::{TensorInfo, Value, gguf_value::GgufValue};

/// The content of a file, parsed.
pub(crate) struct Parsed {
    pub(crate) tensors: BTreeMap<String, Arc<TensorInfo>>,
    /// The file's metadata texts.
    pub(crate) texts: BTreeMap<String, String>,
    pub(crate) gguf: BTreeMap<String, GgufValue>,
    /// The object of a pickle.
    pub(crate) value: Option<Value>,
    /// The bytes of all elements in the file, uncompressed.
    pub(crate) capacity: u64,
}
