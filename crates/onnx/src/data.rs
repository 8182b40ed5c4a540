//! The elements of a `TensorProto`: in the message, as raw bytes, or in another file in the model's folder.

use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use tensor_core::{
    DType, Device, Error, Result, Scalar, Tensor,
    file::{OpenFile, file_error, open_regular},
};

use crate::{
    budget::Meter,
    narrow::unpack,
    proto::{OptionalProto, SequenceProto, SparseTensorProto, TensorProto},
    value::{DataType, HostData, HostTensor, Value, on_device},
};

/// The greatest number of elements of a tensor in a file: bytes are counted without overflow, in a browser
/// too.
const ELEMENTS_MAX: usize = if usize::BITS == 64 { usize::MAX >> 16 } else { usize::MAX >> 4 };

/// The bytes of an element on the host while it is read: its number, and the scalar that it was before.
const HOST_ELEMENT_BYTES: usize = 24;

/// The folder for external data: the model's, or none for a model from bytes. Also the memory that loading
/// may still take.
#[derive(Debug, Default)]
pub(crate) struct External {
    folder: Option<PathBuf>,
    open: Mutex<HashMap<String, Arc<OpenFile>>>,
    pub(crate) meter: Meter,
}

impl External {
    pub(crate) fn beside(path: &Path, meter: Meter) -> External {
        External { folder: path.parent().map(Path::to_path_buf), meter, ..External::default() }
    }

    /// No folder, for a model from bytes.
    pub(crate) fn nowhere(meter: Meter) -> External {
        External { meter, ..External::default() }
    }

    /// The file with this name in the folder or below; paths and links that lead outside are refused.
    fn open(&self, location: &str) -> Result<Arc<OpenFile>> {
        let Some(folder) = &self.folder else {
            let message =
                format!("its data is in the file \"{location}\", and a model from bytes has no folder");
            return Err(invalid(message));
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(location) {
            return Ok(file.clone());
        }
        let relative = Path::new(location);
        let within = !location.is_empty()
            && relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let outside = || {
            invalid(format!("its data is said to be in \"{location}\", which is outside the model's folder"))
        };
        if !within {
            return Err(outside());
        }
        let path = folder.join(relative);
        let real = |path: &Path| {
            path.canonicalize().map_err(|error| file_error(path, format!("cannot be opened: {error}")))
        };
        let home = real(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?;
        if !real(&path)?.starts_with(&home) {
            return Err(outside());
        }
        let file = Arc::new(OpenFile::new(&path, open_regular(&path)?)?);
        self.meter.allow(file.length());
        open.insert(location.to_string(), file.clone());
        Ok(file)
    }
}

/// Bytes of elements: in memory, or a part of a file.
enum Raw {
    Memory(Bytes),
    File { file: Arc<OpenFile>, start: u64 },
}

impl Raw {
    fn read_at(&self, at: usize, out: &mut [u8]) -> Result<()> {
        match self {
            Raw::Memory(bytes) => {
                let part = at.checked_add(out.len()).and_then(|end| bytes.get(at..end));
                let part = part.ok_or_else(|| invalid("its data ends too early".into()))?;
                out.copy_from_slice(part);
                Ok(())
            }
            Raw::File { file, start } => file.read_at(out, start + at as u64),
        }
    }
}

fn invalid(message: String) -> Error {
    Error::invalid("onnx", message)
}

/// The name of a tensor in error messages.
pub(crate) fn name_of(proto: &TensorProto) -> &str {
    proto.name.as_deref().filter(|name| !name.is_empty()).unwrap_or("(without a name)")
}

/// A checked tensor message: its type, its shape, and the position of its elements.
pub(crate) struct Stored<'a> {
    proto: &'a TensorProto,
    pub(crate) data_type: DataType,
    pub(crate) shape: Vec<usize>,
    count: usize,
    raw: Option<Raw>,
}

impl<'a> Stored<'a> {
    /// Checks everything that does not need the elements.
    pub(crate) fn new(proto: &'a TensorProto, external: &External) -> Result<Stored<'a>> {
        Stored::checked(proto, external).map_err(|error| named(proto, &error))
    }

    fn checked(proto: &'a TensorProto, external: &External) -> Result<Stored<'a>> {
        let number = proto.data_type.unwrap_or(0);
        let Some(data_type) = DataType::from_onnx(number) else {
            return Err(invalid(format!(
                "its element type has the number {number}, which is not known here"
            )));
        };
        if proto.segment.is_some() {
            return Err(invalid("it is a segment of a tensor, which is not supported".into()));
        }
        let sizes = proto.dims.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<Vec<_>>>();
        let count = sizes.as_ref().and_then(|sizes| {
            let fits = |count: &usize| *count <= ELEMENTS_MAX;
            sizes.iter().try_fold(1usize, |count, &size| count.checked_mul(size).filter(fits))
        });
        let (Some(shape), Some(count)) = (sizes, count) else {
            return Err(invalid(format!("its shape {:?} is no shape", proto.dims)));
        };
        let mut stored = Stored { proto, data_type, shape, count, raw: None };
        stored.raw = stored.find_raw(external)?;
        if stored.raw.is_none() {
            let found = stored.typed_len();
            let wanted = match data_type.narrow_bits() {
                Some(bits) => [(count * bits).div_ceil(8), count],
                None => [count; 2],
            };
            if !wanted.contains(&found) {
                let message = format!("{found} elements do not fill its shape {:?}", stored.shape);
                return Err(invalid(message));
            }
        }
        Ok(stored)
    }

    /// The size of the elements in bytes.
    fn bytes(&self) -> usize {
        match (self.data_type, self.data_type.narrow_bits()) {
            (DataType::Tensor(dtype), _) => self.count * dtype.size(),
            (_, Some(bits)) => (self.count * bits).div_ceil(8),
            (_, None) => 0,
        }
    }

    fn find_raw(&self, external: &External) -> Result<Option<Raw>> {
        let proto = self.proto;
        if proto.data_location == Some(1) {
            if self.data_type == DataType::Text {
                return Err(invalid("texts cannot be in another file".into()));
            }
            let entry = |key: &str| {
                let found = proto.external_data.iter().find(|entry| entry.key.as_deref() == Some(key));
                found.and_then(|entry| entry.value.as_deref())
            };
            let number = |key: &str| match entry(key) {
                None => Ok(None),
                Some(text) => text.parse::<u64>().map(Some).map_err(|_| {
                    invalid(format!("its {key} in another file is \"{text}\", which is no number"))
                }),
            };
            let location = entry("location")
                .ok_or_else(|| invalid("it is said to be in another file, which is not named".into()))?;
            let (start, length) = (number("offset")?.unwrap_or(0), number("length")?);
            let wanted = self.bytes() as u64;
            let file = external.open(location)?;
            let end = start.checked_add(wanted);
            if length.is_some_and(|length| length != wanted) || end.is_none_or(|end| end > file.length()) {
                return Err(invalid(format!(
                    "its {wanted} bytes are said to be {length:?} bytes from {start} on in \"{location}\", which has {}",
                    file.length()
                )));
            }
            // Many tensors may have the same part of a file.
            external.meter.charge(wanted, "its data in another file")?;
            return Ok(Some(Raw::File { file, start }));
        }
        let Some(bytes) = &proto.raw_data else { return Ok(None) };
        if bytes.is_empty() && self.typed_len() > 0 {
            return Ok(None);
        }
        if self.data_type == DataType::Text || bytes.len() != self.bytes() {
            let message =
                format!("{} bytes do not fill its shape {:?} of {}", bytes.len(), self.shape, self.data_type);
            return Err(invalid(message));
        }
        Ok(Some(Raw::Memory(bytes.clone())))
    }

    /// The length of the typed list that contains the elements.
    fn typed_len(&self) -> usize {
        let proto = self.proto;
        match self.data_type {
            DataType::Text => proto.string_data.len(),
            DataType::Tensor(DType::F32) => proto.float_data.len(),
            DataType::Tensor(DType::F64) => proto.double_data.len(),
            DataType::Tensor(DType::I64) => proto.int64_data.len(),
            DataType::Tensor(DType::U64 | DType::U32) => proto.uint64_data.len(),
            // ONNX keeps all narrower types in this list.
            _ => proto.int32_data.len(),
        }
    }

    /// The bytes of elements from the typed lists.
    fn typed_bytes(&self, dtype: DType) -> Vec<u8> {
        let proto = self.proto;
        let narrow = |width: usize| -> Vec<u8> {
            proto.int32_data.iter().flat_map(|number| number.to_le_bytes()[..width].to_vec()).collect()
        };
        match dtype {
            DType::F32 => proto.float_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            DType::F64 => proto.double_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            DType::I64 => proto.int64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            DType::U64 => proto.uint64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            DType::U32 => proto.uint64_data.iter().flat_map(|&x| (x as u32).to_le_bytes()).collect(),
            narrower => narrow(narrower.size()),
        }
    }

    /// The bytes of one-byte elements.
    pub(crate) fn bytes_of_elements(&self) -> Result<Vec<u8>> {
        self.native_bytes(DType::U8).map_err(|error| named(self.proto, &error))
    }

    /// The number of elements.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The elements on the host, with their memory counted.
    pub(crate) fn to_host_within(&self, meter: &Meter) -> Result<HostTensor> {
        let texts: usize = self.proto.string_data.iter().map(Bytes::len).sum();
        let bytes = self.count.saturating_mul(HOST_ELEMENT_BYTES).saturating_add(texts);
        meter.charge(bytes as u64, "its elements on the host").map_err(|error| named(self.proto, &error))?;
        self.to_host()
    }

    /// The elements on the host.
    pub(crate) fn to_host(&self) -> Result<HostTensor> {
        self.host_data()
            .and_then(|data| HostTensor::new(self.data_type, self.shape.clone(), data))
            .map_err(|error| named(self.proto, &error))
    }

    fn host_data(&self) -> Result<HostData> {
        let dtype = match self.data_type {
            DataType::Text => {
                let text = |bytes: &Bytes| {
                    String::from_utf8(bytes.to_vec()).map_err(|_| invalid("a text is not UTF-8".into()))
                };
                return Ok(HostData::Text(self.proto.string_data.iter().map(text).collect::<Result<_>>()?));
            }
            DataType::Tensor(dtype) => dtype,
            narrow => return self.narrow(narrow),
        };
        let numbers = Scalar::from_bytes(dtype, &self.native_bytes(dtype)?);
        Ok(HostData::of(dtype, &numbers))
    }

    /// All bytes, in host order.
    fn native_bytes(&self, dtype: DType) -> Result<Vec<u8>> {
        let mut bytes = match &self.raw {
            None => self.typed_bytes(dtype),
            Some(raw) => {
                let mut bytes = vec![0; self.bytes()];
                raw.read_at(0, &mut bytes)?;
                bytes
            }
        };
        to_native(dtype, &mut bytes);
        Ok(bytes)
    }

    /// Numbers of less than a byte, several in each byte, or one in each element of the typed list.
    fn narrow(&self, data_type: DataType) -> Result<HostData> {
        let list = &self.proto.int32_data;
        if self.raw.is_none() && list.len() == self.count && self.count != 1 {
            if data_type.narrow_range().is_some() {
                return Ok(HostData::Int(list.iter().map(|&x| x.into()).collect()));
            }
            // A byte for each element holds its pattern.
            let bytes: Vec<u8> = list.iter().map(|&x| x as u8).collect();
            let one = |byte: &u8| unpack(data_type, std::slice::from_ref(byte), 1);
            let numbers = bytes.iter().filter_map(one).filter_map(|data| match data {
                HostData::Float(list) => list.first().copied(),
                HostData::Int(_) | HostData::Bool(_) | HostData::Text(_) => None,
            });
            return Ok(HostData::Float(numbers.collect()));
        }
        let bytes = match &self.raw {
            None => self.typed_bytes(DType::U8),
            Some(raw) => {
                let mut bytes = vec![0; self.bytes()];
                raw.read_at(0, &mut bytes)?;
                bytes
            }
        };
        unpack(data_type, &bytes, self.count).ok_or_else(|| invalid(format!("{data_type} is not packed")))
    }

    /// The elements on a device, uploaded in pieces.
    pub(crate) fn to_tensor(&self, device: &Device) -> Result<Tensor> {
        self.make(device).map_err(|error| named(self.proto, &error))
    }

    fn make(&self, device: &Device) -> Result<Tensor> {
        let shape = self.shape.as_slice();
        match (self.data_type, &self.raw) {
            (DataType::Tensor(dtype), Some(raw)) if on_device(dtype, device) == dtype && !dtype.is_bool() => {
                Tensor::from_bytes_with(dtype, shape, device, &|at, out| {
                    raw.read_at(at, out)?;
                    to_native(dtype, out);
                    Ok(())
                })
            }
            (DataType::Tensor(dtype), _) if on_device(dtype, device) == dtype => {
                Tensor::from_bytes_of(dtype, &self.native_bytes(dtype)?, shape, device)
            }
            _ => self.to_host()?.to_tensor(device),
        }
    }
}

/// Converts little-endian bytes to the byte order of this machine.
fn to_native(dtype: DType, bytes: &mut [u8]) {
    if cfg!(target_endian = "big") {
        bytes.chunks_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
}

/// The error with the tensor's name before it.
fn named(proto: &TensorProto, error: &Error) -> Error {
    invalid(format!("tensor \"{}\": {error}", name_of(proto)))
}

/// A sparse tensor as a dense one, on the host.
pub(crate) fn dense(proto: &SparseTensorProto, external: &External) -> Result<HostTensor> {
    let (Some(values), Some(indices)) = (&proto.values, &proto.indices) else {
        return Err(invalid("a sparse tensor without values or without indices".into()));
    };
    let name = name_of(values);
    let wrong = |why: &str| invalid(format!("sparse tensor \"{name}\": {why}"));
    let stored = Stored::new(values, external)?;
    let indices = Stored::new(indices, external)?;
    let places = indices.to_host_within(&external.meter)?.to_i64s()?;
    let shape = proto.dims.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<Vec<_>>>();
    let count =
        shape.as_ref().and_then(|shape| shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size)));
    let (Some(shape), Some(count)) = (shape, count.filter(|&count| count <= ELEMENTS_MAX)) else {
        return Err(wrong(&format!("its shape {:?} is no shape, or too large", proto.dims)));
    };
    let charged = external.meter.charge_list(count, HOST_ELEMENT_BYTES, "its elements, with the zeros,");
    charged.map_err(|error| wrong(&error.to_string()))?;
    let data_type = stored.data_type;
    let given = stored.to_host_within(&external.meter)?;
    let rank = shape.len();
    let linear = indices.shape.len() == 1;
    if places.len() != given.data().len() * if linear { 1 } else { rank } {
        return Err(wrong("its values and indices differ in number"));
    }
    let mut flat = Vec::with_capacity(given.data().len());
    for at in 0..given.data().len() {
        let place = if linear {
            usize::try_from(places[at]).ok()
        } else {
            places[at * rank..][..rank].iter().zip(&shape).try_fold(0usize, |sum, (&index, &size)| {
                let index = usize::try_from(index).ok().filter(|&index| index < size)?;
                Some(sum * size + index)
            })
        };
        flat.push(place.filter(|&place| place < count).ok_or_else(|| wrong("an index is out of range"))?);
    }
    let data = match given.data() {
        HostData::Int(list) => HostData::Int(spread(list, &flat, count)),
        HostData::Float(list) => HostData::Float(spread(list, &flat, count)),
        HostData::Bool(list) => HostData::Bool(spread(list, &flat, count)),
        HostData::Text(list) => HostData::Text(spread(list, &flat, count)),
    };
    HostTensor::new(data_type, shape, data)
}

fn spread<T: Clone + Default>(list: &[T], places: &[usize], count: usize) -> Vec<T> {
    let mut all = vec![T::default(); count];
    for (value, &place) in list.iter().zip(places) {
        all[place] = value.clone();
    }
    all
}

/// The value in a file of ONNX's test data that holds a tensor.
pub fn read_tensor(proto: &TensorProto) -> Result<Value> {
    Ok(Stored::new(proto, &External::default())?.to_host()?.into())
}

/// The value in a file of ONNX's test data that holds a sequence.
pub fn read_sequence(proto: &SequenceProto) -> Result<Value> {
    let tensors = proto.tensor_values.iter().map(read_tensor);
    let lists = proto.sequence_values.iter().map(read_sequence);
    let optionals = proto.optional_values.iter().map(read_optional);
    Ok(Value::Sequence(Arc::new(tensors.chain(lists).chain(optionals).collect::<Result<_>>()?)))
}

/// The value in a file of ONNX's test data that holds an optional.
pub fn read_optional(proto: &OptionalProto) -> Result<Value> {
    match proto {
        OptionalProto { tensor_value: Some(tensor), .. } => read_tensor(tensor),
        OptionalProto { sequence_value: Some(list), .. } => read_sequence(list),
        OptionalProto { optional_value: Some(inner), .. } => read_optional(inner),
        _ => Ok(Value::Nothing),
    }
}
