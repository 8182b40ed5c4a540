//! An unpickler that calls nothing: it creates lists, dicts, numbers and texts, and tensors from a fixed
//! list of names (`globals.rs`). An object of another class is the state that it is given, whose class is
//! never looked up: if the state is that of a module, it becomes the module's parameters and buffers
//! (`module.rs`), and otherwise it is refused by name, unless it is a skipped attribute of a module.
//!
//! While the pickle is read, values are nodes of a table, since later instructions change earlier values. At
//! the end [`Pickle::value`] converts them to a tree, in which shared values stay shared. Depth, work
//! and memory are bounded. The instructions:
//! <https://github.com/python/cpython/blob/main/Lib/pickletools.py>.

use std::{collections::HashMap, sync::Arc};

use super::{
    globals::{Global, StorageType, find},
    module,
    node::{Foreign, Id, Node, Refusal, Storage, StoredTensor},
};
use crate::{TensorInfo, Value, stream::Stream, tensor_info::AXES_LIMIT};

/// The greatest nesting depth of lists and dicts. Python itself fails to write pickles of a few hundred
/// levels.
const DEPTH_LIMIT: usize = 200;

type Outcome<T> = Result<T, Refusal>;

/// A pickle that was read.
#[derive(Debug)]
pub(super) struct Pickle {
    nodes: Vec<Node>,
    root: Id,
    /// All storages that tensors were found in, each with the type of its first use.
    pub(super) storages: Vec<Arc<Storage>>,
    /// The bytes that were read.
    pub(super) length: u64,
}

/// Nodes that all pickles share: small integers follow.
const NONE: Id = 0;
const TRUE: Id = 1;
const FALSE: Id = 2;
const SMALL_INTEGERS: Id = 3;

struct Machine<'a, 's> {
    stream: &'a mut Stream<'s>,
    nodes: Vec<Node>,
    stack: Vec<Id>,
    /// The heights of the stack at the marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    storages: Vec<Arc<Storage>>,
    /// The bytes that the values may take, and those that are left.
    most: u64,
    left: u64,
}

/// The memory of a node and of the value that is made of it, of a place in a list or a memo, and of a place
/// on the stack, in bytes, with the room that growing lists leave free.
const NODE_BYTES: u64 = 128;
const PLACE_BYTES: u64 = 48;
const STACK_BYTES: u64 = 8;

/// Reads one pickle, whose values may take `most` bytes of memory, and leaves the stream after it.
pub(super) fn read(stream: &mut Stream<'_>, most: u64) -> Outcome<Pickle> {
    let start = stream.position();
    let mut nodes = vec![Node::None, Node::Bool(true), Node::Bool(false)];
    nodes.extend((0..=u8::MAX).map(|number| Node::Int(number.into())));
    let (stack, marks, memo, storages) = Default::default();
    let mut machine = Machine { stream, nodes, stack, marks, memo, storages, most, left: most };
    while machine.step()? {}
    let root = machine.pop()?;
    let length = machine.stream.position() - start;
    Ok(Pickle { nodes: machine.nodes, root, storages: machine.storages, length })
}

const CUT: &str = "is cut off within a pickle";
const OBJECT: &str = "makes an object of a class, and not tensors alone; nothing of Python is called";
const BAD_STACK: &str = "is damaged: an instruction of its pickle finds too few values";

impl Machine<'_, '_> {
    /// Executes one instruction; false after the last.
    fn step(&mut self) -> Outcome<bool> {
        let Some(instruction) = self.stream.byte()? else { return Err(CUT.into()) };
        match instruction {
            // PROTO, whose number was known before.
            0x80 => match self.word::<1>()? {
                [0..=5] => {}
                [version] => return Err(format!("is a pickle of protocol {version}, expected 2 to 5").into()),
            },
            // FRAME: the length of what follows.
            0x95 => drop(self.word::<8>()?),
            b'.' => return Ok(false),
            b'(' => {
                self.charge(STACK_BYTES)?;
                self.marks.push(self.stack.len());
            }
            b'0' => match (self.stack.len(), self.marks.last()) {
                (height, Some(&mark)) if height == mark => drop(self.marks.pop()),
                _ => drop(self.pop()?),
            },
            b'1' => drop(self.pop_mark()?),
            b'2' => self.share(self.top()?)?,
            b'N' => self.share(NONE)?,
            0x88 => self.share(TRUE)?,
            0x89 => self.share(FALSE)?,
            b'J' => {
                let number = i32::from_le_bytes(self.word()?);
                self.push(Node::Int(number.into()))?;
            }
            b'K' => {
                let number = u8::from_le_bytes(self.word()?);
                self.share(SMALL_INTEGERS + Id::from(number))?;
            }
            b'M' => {
                let number = u16::from_le_bytes(self.word()?);
                self.push(Node::Int(number.into()))?;
            }
            0x8a => {
                let length = u8::from_le_bytes(self.word()?);
                self.long(length.into())?;
            }
            0x8b => {
                let length = i32::from_le_bytes(self.word()?);
                self.long(u64::try_from(length).map_err(|_| Refusal::from(CUT))?)?;
            }
            b'G' => {
                let number = f64::from_be_bytes(self.word()?);
                self.push(Node::Float(number))?;
            }
            b'X' | b'T' => {
                let length = u32::from_le_bytes(self.word()?);
                self.text(length.into(), instruction == b'X')?;
            }
            0x8c | b'U' => {
                let length = u8::from_le_bytes(self.word()?);
                self.text(length.into(), instruction == 0x8c)?;
            }
            0x8d => {
                let length = u64::from_le_bytes(self.word()?);
                self.text(length, true)?;
            }
            b'B' => {
                let length = u32::from_le_bytes(self.word()?);
                self.bytes(length.into())?;
            }
            b'C' => {
                let length = u8::from_le_bytes(self.word()?);
                self.bytes(length.into())?;
            }
            // BINBYTES8 and BYTEARRAY8.
            0x8e | 0x96 => {
                let length = u64::from_le_bytes(self.word()?);
                self.bytes(length)?;
            }
            b']' | 0x8f => self.push(Node::List(Vec::new()))?,
            b'}' => self.push(Node::Dict(Vec::new()))?,
            b')' => self.push(Node::Tuple(Vec::new()))?,
            0x85..=0x87 => {
                let from = self.stack.len().checked_sub(usize::from(instruction - 0x84));
                let from = from.filter(|from| self.marks.last().is_none_or(|mark| from >= mark));
                let items = self.stack.split_off(from.ok_or(BAD_STACK)?);
                self.charge(PLACE_BYTES * items.len() as u64)?;
                self.push(Node::Tuple(items))?;
            }
            b't' => {
                let items = self.pop_mark()?;
                self.charge(PLACE_BYTES * items.len() as u64)?;
                self.push(Node::Tuple(items))?;
            }
            b'l' | 0x91 => {
                let items = self.pop_mark()?;
                self.charge(PLACE_BYTES * items.len() as u64)?;
                self.push(Node::List(items))?;
            }
            b'd' => {
                let items = self.pop_mark()?;
                self.charge(PLACE_BYTES * items.len() as u64)?;
                self.push(Node::Dict(pairs(&items)?))?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            // APPENDS and ADDITEMS.
            b'e' | 0x90 => {
                let items = self.pop_mark()?;
                self.append(&items)?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set(&[key, value])?;
            }
            b'u' => {
                let items = self.pop_mark()?;
                self.set(&items)?;
            }
            b'q' => {
                let key = u8::from_le_bytes(self.word()?);
                self.keep(key.into())?;
            }
            b'r' => {
                let key = u32::from_le_bytes(self.word()?);
                self.keep(key)?;
            }
            0x94 => self.keep(self.memo.len() as u32)?,
            b'h' => {
                let key = u8::from_le_bytes(self.word()?);
                self.recall(key.into())?;
            }
            b'j' => {
                let key = u32::from_le_bytes(self.word()?);
                self.recall(key)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(&module, &name)?;
            }
            0x93 => {
                let name = self.pop()?;
                let module = self.pop()?;
                let (Node::Text(module), Node::Text(name)) = (self.node(module), self.node(name)) else {
                    return Err("is damaged: its pickle names something by what is no text".into());
                };
                let (module, name) = (module.clone(), name.clone());
                self.global(&module, &name)?;
            }
            b'R' => {
                let arguments = self.pop()?;
                let callable = self.pop()?;
                let made = self.make(callable, arguments)?;
                self.share(made)?;
            }
            b'b' => {
                let state = self.pop()?;
                let top = self.top()?;
                match &mut self.nodes[top as usize] {
                    // The attributes of a dict or a tensor, such as `_metadata`, are nothing that weights
                    // need.
                    Node::Dict(_) | Node::Tensor(_) => {}
                    Node::Object(_, held) => *held = Some(state),
                    other => {
                        return Err(format!("sets attributes of {}, which has none", other.kind()).into());
                    }
                }
            }
            b'Q' => {
                let id = self.pop()?;
                match self.class_with_source(id) {
                    Some(class) => self.share(class)?,
                    None => {
                        let storage = self.storage(id)?;
                        self.push(Node::Storage(storage))?;
                    }
                }
            }
            // NEWOBJ and NEWOBJ_EX, with arguments by name.
            0x81 | 0x92 => {
                if instruction == 0x92 {
                    self.pop()?;
                }
                self.pop()?;
                let class = self.pop()?;
                let Node::Foreign(class) = self.node(class) else { return Err(OBJECT.into()) };
                self.push(Node::Object(class.clone(), None))?;
            }
            // INST and OBJ.
            b'i' | b'o' => return Err(OBJECT.into()),
            other => {
                let message = format!(
                    "has the instruction 0x{other:02x} in its pickle, which is unknown, or of a protocol before 2"
                );
                return Err(message.into());
            }
        }
        Ok(true)
    }

    fn word<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        self.stream.array()?.ok_or(Refusal::from(CUT))
    }

    fn take(&mut self, count: u64) -> Outcome<Vec<u8>> {
        self.charge(count.min(self.stream.remaining()))?;
        self.stream.take(count)?.ok_or(Refusal::from(CUT))
    }

    fn line(&mut self) -> Outcome<String> {
        /// Names of modules are shorter.
        const LINE_BYTES: usize = 1000;
        let mut line = Vec::new();
        while let Some(byte) = self.stream.byte()? {
            if byte == b'\n' {
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            line.push(byte);
            if line.len() > LINE_BYTES {
                return Err("is damaged: a name in its pickle has no end".into());
            }
        }
        Err(CUT.into())
    }

    /// Takes bytes from the budget of memory.
    fn charge(&mut self, bytes: u64) -> Outcome<()> {
        self.left = self.left.checked_sub(bytes).ok_or(Refusal::Memory(self.most))?;
        Ok(())
    }

    /// Pushes a node that is there.
    fn share(&mut self, id: Id) -> Outcome<()> {
        self.charge(STACK_BYTES)?;
        self.stack.push(id);
        Ok(())
    }

    /// Keeps the top of the stack in the memo.
    fn keep(&mut self, key: u32) -> Outcome<()> {
        self.charge(PLACE_BYTES)?;
        self.memo.insert(key, self.top()?);
        Ok(())
    }

    fn push(&mut self, node: Node) -> Outcome<()> {
        self.charge(NODE_BYTES)?;
        let id =
            Id::try_from(self.nodes.len()).map_err(|_| Refusal::from("has too many values in its pickle"))?;
        self.nodes.push(node);
        self.stack.push(id);
        Ok(())
    }

    fn top(&self) -> Outcome<Id> {
        let above = self.marks.last().is_none_or(|&mark| self.stack.len() > mark);
        self.stack.last().copied().filter(|_| above).ok_or(Refusal::from(BAD_STACK))
    }

    fn pop(&mut self) -> Outcome<Id> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_mark(&mut self) -> Outcome<Vec<Id>> {
        let mark = self.marks.pop().ok_or(Refusal::from(BAD_STACK))?;
        Ok(self.stack.split_off(mark))
    }

    fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    fn recall(&mut self, key: u32) -> Outcome<()> {
        let id = self.memo.get(&key).copied();
        self.share(id.ok_or("is damaged: its pickle recalls what it has not kept")?)
    }

    fn long(&mut self, length: u64) -> Outcome<()> {
        let bytes = self.take(length)?;
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 16];
        let Some(room) = wide.get_mut(..bytes.len()) else {
            return Err(format!("has an integer of {length} bytes, expected 16 at most").into());
        };
        room.copy_from_slice(&bytes);
        self.push(Node::Int(i128::from_le_bytes(wide)))
    }

    /// A text in UTF-8, or one of Python 2 in any encoding.
    fn text(&mut self, length: u64, unicode: bool) -> Outcome<()> {
        let bytes = self.take(length)?;
        let text = match (String::from_utf8(bytes), unicode) {
            (Ok(text), _) => text,
            (Err(_), true) => return Err("has a text in its pickle that is not UTF-8".into()),
            (Err(error), false) => error.into_bytes().iter().map(|&byte| char::from(byte)).collect(),
        };
        self.push(Node::Text(text.into()))
    }

    fn bytes(&mut self, length: u64) -> Outcome<()> {
        let bytes = self.take(length)?;
        self.push(Node::Bytes(bytes.into()))
    }

    fn append(&mut self, items: &[Id]) -> Outcome<()> {
        self.charge(PLACE_BYTES * items.len() as u64)?;
        let top = self.top()?;
        match &mut self.nodes[top as usize] {
            Node::List(list) => {
                list.extend_from_slice(items);
                Ok(())
            }
            Node::Object(..) => Ok(()),
            other => Err(format!("is damaged: its pickle appends to {}", other.kind()).into()),
        }
    }

    fn set(&mut self, items: &[Id]) -> Outcome<()> {
        self.charge(PLACE_BYTES * items.len() as u64)?;
        let top = self.top()?;
        let pairs = pairs(items)?;
        match &mut self.nodes[top as usize] {
            Node::Dict(dict) => {
                dict.extend(pairs);
                Ok(())
            }
            Node::Object(..) => Ok(()),
            other => Err(format!("is damaged: its pickle sets items of {}", other.kind()).into()),
        }
    }

    fn global(&mut self, module: &str, name: &str) -> Outcome<()> {
        match find(module, name) {
            Some(global) => self.push(Node::Global(global)),
            None => {
                self.charge((module.len() + name.len()) as u64)?;
                let (module, name) = (module.to_string(), name.to_string());
                self.push(Node::Foreign(Arc::new(Foreign { module, name })))
            }
        }
    }

    fn items(&self, id: Id) -> Option<&[Id]> {
        match self.node(id) {
            Node::List(items) | Node::Tuple(items) => Some(items),
            _ => None,
        }
    }

    fn integer(&self, id: Id) -> Option<u64> {
        match self.node(id) {
            Node::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    fn integers(&self, id: Id) -> Option<Vec<u64>> {
        self.items(id)?.iter().map(|&id| self.integer(id)).collect()
    }

    /// The value that a name stands for with these arguments.
    fn make(&mut self, callable: Id, arguments: Id) -> Outcome<Id> {
        let global = match self.node(callable) {
            Node::Global(global) => *global,
            Node::Foreign(name) => {
                let object = Node::Object(name.clone(), None);
                self.push(object)?;
                return self.pop();
            }
            other => return Err(format!("calls {}, and not a name", other.kind()).into()),
        };
        let Some(arguments) = self.items(arguments).map(<[Id]>::to_vec) else {
            return Err("is damaged: its pickle calls something without arguments".into());
        };
        let wrong = || Refusal::from(format!("has arguments for {global:?} that are not its own"));
        let node = match global {
            Global::OrderedDict => match arguments[..] {
                [] => Node::Dict(Vec::new()),
                [list] => {
                    let pairs = self.items(list).ok_or_else(wrong)?.iter();
                    let pairs = pairs.map(|&pair| match self.items(pair) {
                        Some(&[key, value]) => Ok((key, value)),
                        _ => Err(wrong()),
                    });
                    Node::Dict(pairs.collect::<Outcome<_>>()?)
                }
                _ => return Err(wrong()),
            },
            Global::Set | Global::Size => match arguments[..] {
                [] => Node::List(Vec::new()),
                [list] => {
                    let items = self.items(list).ok_or_else(wrong)?.to_vec();
                    if global == Global::Set { Node::List(items) } else { Node::Tuple(items) }
                }
                _ => return Err(wrong()),
            },
            Global::Encode => {
                let Some(Node::Text(text)) = arguments.first().map(|&id| self.node(id)) else {
                    return Err(wrong());
                };
                let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
                Node::Bytes(bytes.ok_or_else(wrong)?.into())
            }
            Global::Device => {
                let parts = arguments.iter().map(|&id| match self.node(id) {
                    Node::Text(text) => Ok(text.to_string()),
                    Node::Int(number) => Ok(number.to_string()),
                    _ => Err(wrong()),
                });
                Node::Text(parts.collect::<Outcome<Vec<_>>>()?.join(":").into())
            }
            Global::Tensor => Node::Tensor(Arc::new(self.tensor(&arguments, false)?)),
            Global::TypedTensor => Node::Tensor(Arc::new(self.tensor(&arguments, true)?)),
            Global::Parameter => match arguments.first() {
                Some(&id) if matches!(self.node(id), Node::Tensor(_)) => return Ok(id),
                _ => return Err(wrong()),
            },
            Global::Subclass => match arguments[..] {
                [function, class, arguments, _]
                    if matches!(self.node(class), Node::Global(Global::TensorClass)) =>
                {
                    let rebuilds = matches!(
                        self.node(function),
                        Node::Global(Global::Tensor | Global::TypedTensor | Global::Parameter)
                    );
                    if !rebuilds {
                        return Err(wrong());
                    }
                    return self.make(function, arguments);
                }
                _ => return Err(wrong()),
            },
            Global::TensorClass | Global::Storage(_) | Global::DType(_) => {
                return Err(format!("calls {global:?}, which makes nothing here").into());
            }
        };
        self.push(node)?;
        self.pop()
    }

    /// A tensor from storage, offset, sizes, strides, whether it requires gradients, hooks, and optionally
    /// the dtype and metadata.
    fn tensor(&self, arguments: &[Id], typed: bool) -> Outcome<StoredTensor> {
        let wrong = || {
            Refusal::from("is damaged: a tensor in its pickle is described by other things than it should be")
        };
        let &[storage, offset, sizes, strides, ref rest @ ..] = arguments else { return Err(wrong()) };
        let Node::Storage(storage) = self.node(storage) else { return Err(wrong()) };
        let offset = self.integer(offset).ok_or_else(wrong)?;
        let sizes = self.integers(sizes).ok_or_else(wrong)?;
        let strides = self.integers(strides).ok_or_else(wrong)?;
        if sizes.len() != strides.len() || sizes.len() > AXES_LIMIT {
            return Err(wrong());
        }
        let sizes: Option<Vec<usize>> = sizes.into_iter().map(|size| usize::try_from(size).ok()).collect();
        let after = if typed { 3 } else { 2 };
        let element = match (typed, storage.kind) {
            (true, _) => match rest.get(2).map(|&id| self.node(id)) {
                Some(&Node::Global(Global::DType(element))) => element,
                _ => return Err(wrong()),
            },
            (false, StorageType::Of(element)) => element,
            (false, StorageType::Untyped) => return Err(wrong()),
        };
        if let Some(&special) = rest.get(after)
            && !matches!(self.node(special), Node::None)
            && !matches!(self.node(special), Node::Dict(entries) if entries.is_empty())
        {
            return Err("holds a tensor that is conjugated or negated lazily; save tensor.resolve_conj().resolve_neg()".into());
        }
        Ok(StoredTensor {
            storage: storage.clone(),
            element,
            offset,
            sizes: sizes.ok_or_else(wrong)?,
            strides,
        })
    }

    /// The class in the persistent id of a module in old files: ('module', class, file, source).
    fn class_with_source(&self, id: Id) -> Option<Id> {
        let Node::Tuple(items) = self.node(id) else { return None };
        let &[tag, class, _, _] = &items[..] else { return None };
        let is_module = matches!(self.node(tag), Node::Text(tag) if &**tag == "module");
        (is_module && matches!(self.node(class), Node::Foreign(_))).then_some(class)
    }

    /// A storage from its persistent id: ('storage', type, key, device, count), and in old files a view of
    /// another one.
    fn storage(&mut self, id: Id) -> Outcome<Arc<Storage>> {
        let wrong = || {
            Refusal::from(
                "is damaged: a storage in its pickle is described by other things than it should be",
            )
        };
        let Node::Tuple(items) = self.node(id) else { return Err(wrong()) };
        let &[tag, kind, key, _, count, ref view @ ..] = &items[..] else { return Err(wrong()) };
        let (Node::Text(tag), &Node::Global(Global::Storage(kind)), Node::Text(key)) =
            (self.node(tag), self.node(kind), self.node(key))
        else {
            return Err(wrong());
        };
        let mut count = self.integer(count).ok_or_else(wrong)?;
        if &**tag != "storage" {
            return Err(wrong());
        }
        let whole = Storage { key: key.clone(), kind, count, skip: 0 };
        let mut skip = 0;
        if let Some(&view) = view.first()
            && !matches!(self.node(view), Node::None)
        {
            let Some(&[_, offset, size]) = self.items(view) else { return Err(wrong()) };
            skip = self.integer(offset).ok_or_else(wrong)?;
            count = self.integer(size).ok_or_else(wrong)?;
        }
        let storage = Arc::new(Storage { count, skip, ..whole.clone() });
        self.storages.push(Arc::new(whole));
        Ok(storage)
    }
}

/// Keys with their values.
fn pairs(items: &[Id]) -> Outcome<Vec<(Id, Id)>> {
    let (pairs, rest) = items.as_chunks();
    if !rest.is_empty() {
        return Err("is damaged: a dict in its pickle has a key without a value".into());
    }
    Ok(pairs.iter().map(|&[key, value]| (key, value)).collect())
}

/// The progress of a node's conversion to a value.
#[derive(Clone)]
enum Made {
    Not,
    /// Its items are being converted.
    Begun,
    /// Converted, with its nesting depth.
    Done(Value, usize),
}

/// Finds a tensor in the file.
type Place<'a> = dyn FnMut(&StoredTensor) -> Outcome<Arc<TensorInfo>> + 'a;

impl Pickle {
    /// The pickled object as a tree. `place` locates each tensor in the file, once.
    pub(super) fn value(&self, place: &mut Place<'_>) -> Outcome<Value> {
        let mut made = vec![Made::Not; self.nodes.len()];
        Ok(self.freeze(self.root, DEPTH_LIMIT, &mut made, place)?.0)
    }

    /// The value of a node, which its holders share, and its nesting depth, at most `depth`.
    fn freeze(
        &self,
        id: Id,
        depth: usize,
        made: &mut [Made],
        place: &mut Place<'_>,
    ) -> Outcome<(Value, usize)> {
        let too_deep =
            || Err(format!("holds lists and dicts in each other, more than {DEPTH_LIMIT} deep").into());
        match &made[id as usize] {
            Made::Done(_, levels) if *levels > depth => return too_deep(),
            Made::Done(value, levels) => return Ok((value.clone(), *levels)),
            Made::Begun => return Err("holds a list or dict that is in itself".into()),
            Made::Not if depth == 0 => return too_deep(),
            Made::Not => {}
        }
        made[id as usize] = Made::Begun;
        let mut below = 0;
        let mut item = |id: Id| -> Outcome<Value> {
            let (value, levels) = self.freeze(id, depth - 1, made, place)?;
            below = below.max(levels);
            Ok(value)
        };
        let value = match &self.nodes[id as usize] {
            Node::None => Value::None,
            Node::Bool(truth) => Value::Bool(*truth),
            Node::Int(number) => Value::Int(*number),
            Node::Float(number) => Value::Float(*number),
            Node::Text(text) => Value::Text(text.clone()),
            Node::Bytes(bytes) => Value::Bytes(bytes.clone()),
            Node::List(items) => {
                Value::List(items.iter().map(|&id| item(id)).collect::<Outcome<Vec<_>>>()?.into())
            }
            Node::Tuple(items) => {
                Value::Tuple(items.iter().map(|&id| item(id)).collect::<Outcome<Vec<_>>>()?.into())
            }
            Node::Dict(entries) => {
                let entries = entries.iter().map(|&(key, value)| Ok((item(key)?, item(value)?)));
                Value::Dict(entries.collect::<Outcome<Vec<_>>>()?.into())
            }
            Node::Global(Global::DType(element)) => Value::Text(format!("torch.{}", element.name()).into()),
            Node::Global(global) => return Err(format!("holds a name, {global:?}, as a value").into()),
            Node::Foreign(name) => return Err(name.refusal()),
            Node::Object(class, state) => {
                let parts = state.and_then(|state| module::state(&self.nodes, state));
                let parts = parts.ok_or_else(|| class.refusal())?.into_iter();
                let parts = parts.map(|(name, value)| Ok((Value::Text(name), item(value)?)));
                Value::Dict(parts.collect::<Outcome<Vec<_>>>()?.into())
            }
            Node::Storage(_) => return Err("holds a storage without a tensor; save a tensor of it".into()),
            Node::Tensor(tensor) => Value::Tensor(place(tensor)?),
        };
        made[id as usize] = Made::Done(value.clone(), below + 1);
        Ok((value, below + 1))
    }
}
