//! PyTorch's own files, `.pt`, `.pth` and `.bin`: the zip that `torch.save` writes since version 1.6, and
//! the earlier sequence of pickles.
//!
//! Both have a pickle of the object, which refers to storages by keys, and the elements of the storages
//! separately. The formats: `torch/serialization.py`.

mod globals;
mod module;
mod names;
mod node;
mod pickle;
mod write;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use tensor_core::{
    Error, Result, Shape,
    file::{Content, ReadBudget, file_error},
};

use self::{
    globals::StorageType,
    names::names_of,
    node::{Refusal, Storage, StoredTensor},
    pickle::Pickle,
};
use crate::{
    Value,
    archive::{Archive, Entry, beyond},
    parsed::Parsed,
    stream::Stream,
    tensor_info::{Place, TensorInfo},
};

pub use write::save_torch;

/// The pickled magic number of old files.
pub(crate) const LEGACY_MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

/// The position of a storage, and whether its elements are big-endian.
struct StoragePlace {
    place: Place,
    bytes: u64,
    big_endian: bool,
}

/// Opens the zip of `torch.save`, whose entries are in the folder `root`.
#[track_caller]
pub(crate) fn open_zip(
    content: &Arc<Content>,
    archive: &Archive,
    root: &str,
    budget: ReadBudget,
) -> Result<Parsed> {
    let path = content.path();
    let has = |name: &str| archive.entries.contains_key(&format!("{root}/{name}"));
    let below = |folder: &str| {
        let prefix = format!("{root}/{folder}/");
        archive.entries.range(prefix.clone()..).next().is_some_and(|(name, _)| name.starts_with(&prefix))
    };
    if has("constants.pkl") || below("code") {
        let message = "is a TorchScript program, with code that Taper does not run; for its tensors alone save torch.jit.load(file).state_dict() \
                       with torch.save";
        return Err(file_error(path, message));
    }
    let big_endian = match archive.entries.contains_key(&format!("{root}/byteorder")) {
        false => false,
        true => {
            let order = archive.with_stream(&format!("{root}/byteorder"), |stream| {
                stream.take(stream.remaining().min(16))
            })?;
            match order.as_deref().map(<[u8]>::trim_ascii) {
                Some(b"little") => false,
                Some(b"big") => true,
                _ => return Err(file_error(path, "names a byte order that is neither little nor big")),
            }
        }
    };
    let most = budget.bytes(content.length());
    let pickle = archive
        .with_stream(&format!("{root}/data.pkl"), |stream| refused(content, pickle::read(stream, most)))?;
    let find = |storage: &Storage| {
        let name = format!("{root}/data/{}", storage.key);
        let entry = archive.entry(&name)?;
        let bytes = entry.size();
        let place = match entry {
            Entry::Stored { start, .. } => Place::File { content: content.clone(), start: *start },
            Entry::Packed(entry) => Place::Packed { entry: entry.clone(), start: 0 },
            Entry::Unreadable(why) => return Err(file_error(path, format!("entry \"{name}\" {why}"))),
        };
        Ok(StoragePlace { place, bytes, big_endian })
    };
    parse(content, &pickle, archive.size(), find)
}

/// Opens the sequence of pickles that `torch.save` wrote before version 1.6.
#[track_caller]
pub(crate) fn open_legacy(content: &Arc<Content>, budget: ReadBudget) -> Result<Parsed> {
    let path = content.path();
    let most = budget.bytes(content.length());
    let mut stream = Stream::new(content, LEGACY_MAGIC.len() as u64, content.length());
    let plain = |pickle: Pickle| {
        refused(content, pickle.value(&mut |_| Err("has a tensor in a place of its own numbers".into())))
    };
    let protocol = plain(refused(content, pickle::read(&mut stream, most))?)?;
    if protocol.as_i64() != Some(1001) {
        return Err(file_error(path, format!("is of PyTorch's protocol {protocol}, expected 1001")));
    }
    let system = plain(refused(content, pickle::read(&mut stream, most))?)?;
    if system.get("little_endian").and_then(Value::as_bool) != Some(true) {
        return Err(file_error(
            path,
            "was written on a big-endian machine in PyTorch's old format; save it anew",
        ));
    }
    let pickle = refused(content, pickle::read(&mut stream, most))?;
    let keys = plain(refused(content, pickle::read(&mut stream, most))?)?;
    let Some(keys) = keys.items() else {
        return Err(file_error(path, "has no list of its storages"));
    };
    let mut kinds: HashMap<&str, &Storage> = HashMap::new();
    for storage in &pickle.storages {
        let first = kinds.entry(&storage.key).or_insert(storage);
        if (first.kind, first.count) != (storage.kind, storage.count) {
            return Err(file_error(path, format!("describes storage {} in two ways", storage.key)));
        }
    }
    // The storages follow the keys in the same order, each after the count of its elements.
    let mut at = stream.position();
    let mut places = HashMap::new();
    for key in keys {
        let storage = key.as_str().and_then(|key| kinds.get(key));
        let Some(storage) = storage else {
            return Err(file_error(path, format!("lists a storage {key}, of which no tensor is made")));
        };
        let mut count = [0; 8];
        if content.length() - at < 8 {
            return Err(file_error(path, "is cut off before a storage"));
        }
        content.read_at(&mut count, at)?;
        at += 8;
        let bytes = u64::from_le_bytes(count).checked_mul(element_bytes(storage.kind));
        match bytes {
            Some(bytes) if u64::from_le_bytes(count) == storage.count && bytes <= content.length() - at => {
                let place = Place::File { content: content.clone(), start: at };
                places.insert(storage.key.clone(), (place, bytes));
                at += bytes;
            }
            _ => {
                let message = format!(
                    "is cut off or damaged: storage {} has {} elements by its count, {} by the pickle, and {} bytes are left",
                    storage.key,
                    u64::from_le_bytes(count),
                    storage.count,
                    content.length() - at
                );
                return Err(file_error(path, message));
            }
        }
    }
    let find = |storage: &Storage| {
        let Some((place, bytes)) = places.get(&storage.key) else {
            return Err(file_error(path, format!("has no storage {}", storage.key)));
        };
        Ok(StoragePlace { place: place.clone(), bytes: *bytes, big_endian: false })
    };
    parse(content, &pickle, content.length(), find)
}

fn element_bytes(kind: StorageType) -> u64 {
    match kind {
        StorageType::Of(element) => element.size() as u64,
        StorageType::Untyped => 1,
    }
}

/// The tree of a pickle and its tensors by name; `find` locates their storages.
#[track_caller]
fn parse(
    content: &Arc<Content>,
    pickle: &Pickle,
    capacity: u64,
    find: impl Fn(&Storage) -> Result<StoragePlace>,
) -> Result<Parsed> {
    let path = content.path();
    let mut place = |tensor: &StoredTensor| Ok(Arc::new(locate(tensor, &find)?));
    let value = refused(content, pickle.value(&mut place))?;
    content.check_unchanged()?;
    let tensors = names_of(&value, pickle.length).map_err(|message| file_error(path, message))?;
    Ok(Parsed { tensors, texts: BTreeMap::new(), gguf: BTreeMap::new(), value: Some(value), capacity })
}

/// The position of a tensor, which must be completely in its storage.
fn locate(
    tensor: &StoredTensor,
    find: &impl Fn(&Storage) -> Result<StoragePlace>,
) -> std::result::Result<TensorInfo, Refusal> {
    let StoredTensor { storage, element, offset, sizes, strides } = tensor;
    let found = find(storage)?;
    let size = element.size() as u64;
    let shape: Shape = sizes.iter().copied().collect();
    let outside = || {
        Refusal::from(format!(
            "has a tensor of sizes {sizes:?} and strides {strides:?} from {offset} on, which is not within its storage of {} bytes",
            found.bytes
        ))
    };
    if shape.checked_numel().is_none() {
        return Err(outside());
    }
    // One past the last element of the tensor, counted from the beginning of the storage.
    let end = match sizes.contains(&0) {
        true => Some(0),
        false => sizes.iter().zip(strides).try_fold(1u64, |end, (&size, &stride)| {
            (size as u64 - 1).checked_mul(stride).and_then(|steps| end.checked_add(steps))
        }),
    };
    let first = offset.checked_add(storage.skip);
    let start = first.and_then(|first| first.checked_mul(size));
    let bytes =
        end.and_then(|end| end.checked_mul(size)).zip(start).and_then(|(end, start)| end.checked_add(start));
    let view_end =
        storage.skip.checked_add(storage.count).and_then(|end| end.checked_mul(element_bytes(storage.kind)));
    let (Some(start), Some(bytes), Some(view_end)) = (start, bytes, view_end) else { return Err(outside()) };
    if !sizes.contains(&0) && (bytes > found.bytes || bytes > view_end) {
        return Err(outside());
    }
    let place = match found.place {
        Place::File { content, start: begin } => {
            Place::File { content, start: begin + start.min(found.bytes) }
        }
        Place::Packed { entry, .. } => Place::Packed { entry, start: start.min(found.bytes) },
    };
    let row_major = shape.contiguous_strides().iter().zip(strides).all(|(&a, &b)| a as u64 == b);
    Ok(TensorInfo {
        encoding: element.encoding(),
        shape,
        strides: (!row_major).then(|| strides.clone()),
        place,
        big_endian: found.big_endian && element.size() > 1,
        described: None,
    })
}

/// Prefixes a refusal with the name of the file.
#[track_caller]
fn refused<T>(content: &Content, outcome: std::result::Result<T, Refusal>) -> Result<T> {
    match outcome {
        Ok(value) => Ok(value),
        Err(Refusal::Message(message)) => Err(file_error(content.path(), message)),
        Err(Refusal::Memory(most)) => {
            Err(beyond(content.path(), &format!("describes values of more than {most} bytes"), most))
        }
        Err(Refusal::Error(error)) => Err(Error::here(error)),
    }
}
