//! The values of a pickle that is being read: nodes of a table, which refer to each other by number.

use std::sync::Arc;

use tensor_core::Error;

use super::globals::{ElementType, Global, StorageType, refusal};

/// The reason why a pickle is refused: a message that follows the name of the file, or an error of the file
/// itself.
pub(super) enum Refusal {
    Message(String),
    /// The values take more memory than these bytes, which are allowed.
    Memory(u64),
    Error(Error),
}

impl From<String> for Refusal {
    fn from(message: String) -> Refusal {
        Refusal::Message(message)
    }
}

impl From<&str> for Refusal {
    fn from(message: &str) -> Refusal {
        Refusal::Message(message.into())
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Error(error)
    }
}

/// The index of a node in the table.
pub(super) type Id = u32;

/// A storage, by the key that the container has it under.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    pub(super) key: Arc<str>,
    pub(super) kind: StorageType,
    /// The number of its elements, or of its bytes if it is untyped.
    pub(super) count: u64,
    /// In old files, the elements that are left out at the beginning of the storage of that key.
    pub(super) skip: u64,
}

/// A tensor as the pickle describes it.
#[derive(Clone, Debug)]
pub(super) struct StoredTensor {
    pub(super) storage: Arc<Storage>,
    pub(super) element: ElementType,
    pub(super) offset: u64,
    pub(super) sizes: Vec<usize>,
    pub(super) strides: Vec<u64>,
}

#[derive(Debug)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    /// A name that stands for nothing here.
    Foreign(Arc<Foreign>),
    /// An object of a class with such a name, and the state that the pickle gives it.
    Object(Arc<Foreign>, Option<Id>),
    Storage(Arc<Storage>),
    Tensor(Arc<StoredTensor>),
}

/// A Python name outside the fixed list.
#[derive(Debug)]
pub(super) struct Foreign {
    pub(super) module: String,
    pub(super) name: String,
}

impl Foreign {
    pub(super) fn refusal(&self) -> Refusal {
        refusal(&self.module, &self.name).into()
    }
}

impl Node {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Node::None => "None",
            Node::Bool(_) => "a bool",
            Node::Int(_) => "an int",
            Node::Float(_) => "a float",
            Node::Text(_) => "a text",
            Node::Bytes(_) => "bytes",
            Node::List(_) => "a list",
            Node::Tuple(_) => "a tuple",
            Node::Dict(_) => "a dict",
            Node::Global(_) | Node::Foreign(_) => "a name",
            Node::Object(..) => "an object",
            Node::Storage(_) => "a storage",
            Node::Tensor(_) => "a tensor",
        }
    }
}
