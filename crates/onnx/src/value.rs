//! [`Value`]: the values on a graph's edges. Tensors are on a device; small integers, booleans and texts are
//! known on the host ([`HostTensor`]), where shape arithmetic is done without a device.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use tensor_core::{DType, Device, Error, Kind, Result, Scalar, Shape, Tensor};

use crate::budget::{Charge, Meter};

/// The element type of a value, as defined by ONNX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// A tensor dtype.
    Tensor(DType),
    /// Integers from −8 to 7, stored as [`DType::I8`].
    Int4,
    /// Integers from 0 to 15, stored as [`DType::U8`].
    Uint4,
    /// Integers from −2 to 1, stored as [`DType::I8`].
    Int2,
    /// Integers from 0 to 3, stored as [`DType::U8`].
    Uint2,
    /// Floats of four bits, up to ±6, stored as [`DType::F32`].
    Float4E2M1,
    /// Powers of two from 2⁻¹²⁷ to 2¹²⁷, and NaN, stored as [`DType::F32`].
    Float8E8M0,
    /// Texts, which are only on the host.
    Text,
}

impl DataType {
    /// The type with this number in ONNX's `TensorProto.DataType`; `None` for an unknown number.
    pub fn from_onnx(number: i32) -> Option<DataType> {
        match number {
            8 => Some(DataType::Text),
            21 => Some(DataType::Uint4),
            22 => Some(DataType::Int4),
            23 => Some(DataType::Float4E2M1),
            24 => Some(DataType::Float8E8M0),
            25 => Some(DataType::Uint2),
            26 => Some(DataType::Int2),
            _ => {
                let known = |dtype: &DType| u32::try_from(number) == Ok(dtype.info().onnx);
                DType::ALL.into_iter().find(known).map(DataType::Tensor)
            }
        }
    }

    /// The dtype of tensors with such elements; `None` for texts.
    pub fn dtype(self) -> Option<DType> {
        match self {
            DataType::Tensor(dtype) => Some(dtype),
            DataType::Int2 | DataType::Int4 => Some(DType::I8),
            DataType::Uint2 | DataType::Uint4 => Some(DType::U8),
            DataType::Float4E2M1 | DataType::Float8E8M0 => Some(DType::F32),
            DataType::Text => None,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Tensor(dtype) => dtype.fmt(f),
            DataType::Int4 => f.write_str("int4"),
            DataType::Uint4 => f.write_str("uint4"),
            DataType::Int2 => f.write_str("int2"),
            DataType::Uint2 => f.write_str("uint2"),
            DataType::Float4E2M1 => f.write_str("float4e2m1"),
            DataType::Float8E8M0 => f.write_str("float8e8m0"),
            DataType::Text => f.write_str("string"),
        }
    }
}

/// Elements on the host, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum HostData {
    /// Integers of any width; u64 as their bits.
    Int(Vec<i64>),
    /// Floats of any width.
    Float(Vec<f64>),
    /// Booleans.
    Bool(Vec<bool>),
    /// Texts.
    Text(Vec<String>),
}

impl HostData {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            HostData::Int(list) => list.len(),
            HostData::Float(list) => list.len(),
            HostData::Bool(list) => list.len(),
            HostData::Text(list) => list.len(),
        }
    }

    /// Elements of a dtype.
    pub(crate) fn of(dtype: DType, numbers: &[Scalar]) -> HostData {
        match dtype.info().kind {
            Kind::Bool => HostData::Bool(numbers.iter().map(|n| n.as_bool()).collect()),
            Kind::Signed | Kind::Unsigned => HostData::Int(numbers.iter().map(|n| n.as_i64()).collect()),
            Kind::Float => HostData::Float(numbers.iter().map(|n| n.as_f64()).collect()),
        }
    }

    /// No elements, of the kind that the type has.
    pub(crate) fn none(data_type: DataType) -> HostData {
        match data_type.dtype() {
            Some(dtype) => HostData::of(dtype, &[]),
            None => HostData::Text(Vec::new()),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements at these positions, in this order.
    ///
    /// # Errors
    /// Texts beyond the run's budget.
    pub(crate) fn pick(&self, meter: &Meter, positions: impl Iterator<Item = usize>) -> Result<HostData> {
        Ok(match self {
            HostData::Int(list) => HostData::Int(positions.map(|at| list[at]).collect()),
            HostData::Float(list) => HostData::Float(positions.map(|at| list[at]).collect()),
            HostData::Bool(list) => HostData::Bool(positions.map(|at| list[at]).collect()),
            HostData::Text(list) => {
                HostData::Text(within(meter, positions.map(|at| (list[at].len(), move || list[at].clone())))?)
            }
        })
    }

    /// The memory of the elements, in bytes.
    fn bytes(&self) -> u64 {
        let texts = |list: &[String]| list.iter().map(|text| (size_of::<String>() + text.len()) as u64).sum();
        match self {
            HostData::Int(list) => size_of_val(list.as_slice()) as u64,
            HostData::Float(list) => size_of_val(list.as_slice()) as u64,
            HostData::Bool(list) => list.len() as u64,
            HostData::Text(list) => texts(list),
        }
    }
}

/// Texts of known lengths, each of which is made once it is known to fit into the budget.
///
/// # Errors
/// Texts beyond the run's budget.
pub(crate) fn within<F: FnOnce() -> String>(
    meter: &Meter,
    texts: impl Iterator<Item = (usize, F)>,
) -> Result<Vec<String>> {
    let mut list = Vec::new();
    let mut charges = Vec::new();
    let mut pending = 0;
    for (length, text) in texts {
        pending += (size_of::<String>() + length) as u64;
        // Few charges for many short texts.
        if pending >= 1 << 16 {
            charges.push(meter.hold(pending, "a list of texts")?);
            pending = 0;
        }
        list.push(text());
    }
    Ok(list)
}

/// The memory of a host tensor beside its elements, in bytes.
const HOST_TENSOR_BYTES: u64 = 160;

/// A tensor whose elements are known on the host.
pub struct HostTensor {
    data_type: DataType,
    shape: Vec<usize>,
    data: HostData,
    /// A copy on the last device that requested it.
    uploaded: Mutex<Option<Tensor>>,
    /// The memory of a run that it takes.
    charge: Option<Charge>,
}

impl HostTensor {
    /// A tensor with these elements.
    ///
    /// # Errors
    /// Another number of elements than the shape has, or elements of another kind than the type.
    pub fn new(data_type: DataType, shape: impl Into<Vec<usize>>, data: HostData) -> Result<HostTensor> {
        let shape = shape.into();
        let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
        let kind = data_type.dtype().map(|dtype| dtype.info().kind);
        let fits = matches!(
            (&data, kind),
            (HostData::Int(_), Some(Kind::Signed | Kind::Unsigned))
                | (HostData::Float(_), Some(Kind::Float))
                | (HostData::Bool(_), Some(Kind::Bool))
                | (HostData::Text(_), None)
        );
        if count != Some(data.len()) || !fits {
            let message = format!("{} elements for a tensor {shape:?} of {data_type}", data.len());
            return Err(Error::invalid("onnx", message));
        }
        Ok(HostTensor { data_type, shape, data, uploaded: Mutex::new(None), charge: None })
    }

    /// A 1-D tensor of i64.
    pub fn integers(list: Vec<i64>) -> HostTensor {
        HostTensor {
            data_type: DataType::Tensor(DType::I64),
            shape: vec![list.len()],
            data: HostData::Int(list),
            uploaded: Mutex::new(None),
            charge: None,
        }
    }

    /// A 0-d i64.
    pub fn integer(number: i64) -> HostTensor {
        HostTensor { shape: Vec::new(), ..HostTensor::integers(vec![number]) }
    }

    /// A 0-d boolean.
    pub fn truth(value: bool) -> HostTensor {
        HostTensor {
            data_type: DataType::Tensor(DType::Bool),
            shape: Vec::new(),
            data: HostData::Bool(vec![value]),
            uploaded: Mutex::new(None),
            charge: None,
        }
    }

    /// The element type.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The shape.
    pub fn dims(&self) -> &[usize] {
        &self.shape
    }

    /// The elements.
    pub fn data(&self) -> &HostData {
        &self.data
    }

    /// The elements as integers; floats are truncated toward zero.
    ///
    /// # Errors
    /// Texts.
    pub fn to_i64s(&self) -> Result<Vec<i64>> {
        match &self.data {
            HostData::Int(list) => Ok(list.clone()),
            HostData::Float(list) => Ok(list.iter().map(|&x| x as i64).collect()),
            HostData::Bool(list) => Ok(list.iter().map(|&x| i64::from(x)).collect()),
            HostData::Text(_) => Err(Error::invalid("onnx", "texts are no numbers")),
        }
    }

    /// The elements as floats.
    ///
    /// # Errors
    /// Texts.
    pub fn to_f64s(&self) -> Result<Vec<f64>> {
        match &self.data {
            HostData::Int(list) => Ok(list.iter().map(|&x| x as f64).collect()),
            HostData::Float(list) => Ok(list.clone()),
            HostData::Bool(list) => Ok(list.iter().map(|&x| f64::from(u8::from(x))).collect()),
            HostData::Text(_) => Err(Error::invalid("onnx", "texts are no numbers")),
        }
    }

    /// The elements as scalars; `None` for texts.
    pub(crate) fn scalars(&self) -> Vec<Scalar> {
        let unsigned = self.data_type == DataType::Tensor(DType::U64);
        match &self.data {
            HostData::Int(list) if unsigned => list.iter().map(|&x| Scalar::from_u64(x as u64)).collect(),
            HostData::Int(list) => list.iter().map(|&x| Scalar::Int(x)).collect(),
            HostData::Float(list) => list.iter().map(|&x| Scalar::Float(x)).collect(),
            HostData::Bool(list) => list.iter().map(|&x| Scalar::Bool(x)).collect(),
            HostData::Text(_) => Vec::new(),
        }
    }

    /// A tensor on `device` with the same elements, which is cached. i64 becomes i32 on devices without i64.
    ///
    /// # Errors
    /// Texts, a dtype that the device lacks, too little memory.
    pub fn to_tensor(&self, device: &Device) -> Result<Tensor> {
        let mut kept = self.uploaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tensor) = kept.as_ref().filter(|tensor| tensor.device() == *device) {
            return Ok(tensor.clone());
        }
        let Some(dtype) = self.data_type.dtype() else {
            return Err(Error::invalid("onnx", "texts cannot be a tensor on a device"));
        };
        let dtype = on_device(dtype, device);
        let shape = Shape::from(self.shape.as_slice());
        let scalars = self.scalars();
        let tensor = match scalars.as_slice() {
            // A constant tensor takes no memory, because it is stored as an expression.
            &[number] => Tensor::full(shape, number, (dtype, device))?,
            several => Tensor::from_bytes_of(dtype, &Scalar::to_bytes(dtype, several), shape, device)?,
        };
        *kept = Some(tensor.clone());
        Ok(tensor)
    }

    /// The values of a tensor, read from its device.
    ///
    /// # Errors
    /// An error of computing or reading them.
    pub fn read(tensor: &Tensor) -> Result<HostTensor> {
        let dtype = tensor.dtype();
        let numbers = Scalar::from_bytes(dtype, &tensor.read_bytes()?);
        HostTensor::new(DataType::Tensor(dtype), tensor.dims(), HostData::of(dtype, &numbers))
    }
}

/// The dtype of these numbers on a device: 64-bit integers become i32 if it lacks them.
pub(crate) fn on_device(dtype: DType, device: &Device) -> DType {
    if dtype == DType::I64 && !device.supports(dtype) { device.int_dtype() } else { dtype }
}

impl Clone for HostTensor {
    fn clone(&self) -> HostTensor {
        HostTensor {
            data_type: self.data_type,
            shape: self.shape.clone(),
            data: self.data.clone(),
            uploaded: Mutex::new(None),
            charge: None,
        }
    }
}

impl PartialEq for HostTensor {
    fn eq(&self, other: &HostTensor) -> bool {
        (self.data_type, &self.shape, &self.data) == (other.data_type, &other.shape, &other.data)
    }
}

impl fmt::Debug for HostTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {:?}", self.shape, self.data_type, self.data)
    }
}

/// The value of an input, an output or an edge of a graph.
#[derive(Clone, Debug)]
pub enum Value {
    /// A tensor on a device.
    Tensor(Tensor),
    /// A tensor on the host.
    Host(Arc<HostTensor>),
    /// A list of values.
    Sequence(Arc<Vec<Value>>),
    /// An empty optional. An optional with a value is that value.
    Nothing,
}

impl Value {
    /// The tensor, if it is one on a device.
    pub(crate) fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            Value::Host(_) | Value::Sequence(_) | Value::Nothing => None,
        }
    }

    /// The shape of a tensor; `None` for a sequence or an empty optional.
    pub fn dims(&self) -> Option<&[usize]> {
        match self {
            Value::Tensor(tensor) => Some(tensor.dims()),
            Value::Host(host) => Some(host.dims()),
            Value::Sequence(_) | Value::Nothing => None,
        }
    }

    /// The element type of a tensor; `None` for a sequence or an empty optional.
    pub fn data_type(&self) -> Option<DataType> {
        match self {
            Value::Tensor(tensor) => Some(DataType::Tensor(tensor.dtype())),
            Value::Host(host) => Some(host.data_type()),
            Value::Sequence(_) | Value::Nothing => None,
        }
    }

    /// The value as a tensor on `device`; values on the host are uploaded, tensors on another device are not
    /// moved.
    ///
    /// # Errors
    /// A sequence, an empty optional, or texts.
    pub fn to_tensor(&self, device: &Device) -> Result<Tensor> {
        match self {
            Value::Tensor(tensor) => Ok(tensor.clone()),
            Value::Host(host) => host.to_tensor(device),
            Value::Sequence(_) => Err(Error::invalid("onnx", "a tensor is wanted, and a sequence is there")),
            Value::Nothing => {
                Err(Error::invalid("onnx", "a tensor is wanted, and an empty optional is there"))
            }
        }
    }

    /// The value on the host; it is read from its device if necessary.
    ///
    /// # Errors
    /// A sequence or an empty optional, or a failure to read.
    pub fn to_host(&self) -> Result<Arc<HostTensor>> {
        match self {
            Value::Tensor(tensor) => Ok(Arc::new(HostTensor::read(tensor)?)),
            Value::Host(host) => Ok(host.clone()),
            Value::Sequence(_) | Value::Nothing => Err(Error::invalid(
                "onnx",
                "a tensor is wanted, and a sequence or an empty optional is there",
            )),
        }
    }

    /// Counts a new value on the host as memory of the run.
    ///
    /// # Errors
    /// More than the run's budget.
    pub(crate) fn hold_within(&mut self, meter: &Meter) -> Result<()> {
        // A value with several owners was made, and counted, before.
        if let Value::Host(host) = self
            && let Some(host) = Arc::get_mut(host)
            && host.charge.is_none()
        {
            let bytes = HOST_TENSOR_BYTES + host.data.bytes();
            host.charge = Some(meter.hold(bytes, "the values on the host")?);
        }
        Ok(())
    }

    /// The bytes of all texts in the value.
    pub(crate) fn text_bytes(&self) -> u64 {
        match self {
            Value::Host(host) => match host.data() {
                HostData::Text(list) => list.iter().map(|text| text.len() as u64).sum(),
                HostData::Int(_) | HostData::Float(_) | HostData::Bool(_) => 0,
            },
            Value::Sequence(list) => list.iter().map(Value::text_bytes).sum(),
            Value::Tensor(_) | Value::Nothing => 0,
        }
    }

    /// A short description for messages.
    pub(crate) fn summary(&self) -> String {
        match (self.dims(), self.data_type(), self) {
            (Some(dims), Some(data_type), _) => format!("{data_type} {dims:?}"),
            (_, _, Value::Sequence(list)) => format!("a sequence of {}", list.len()),
            _ => "an empty optional".to_string(),
        }
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value::Tensor(tensor)
    }
}

impl From<&Tensor> for Value {
    fn from(tensor: &Tensor) -> Value {
        Value::Tensor(tensor.clone())
    }
}

impl From<HostTensor> for Value {
    fn from(host: HostTensor) -> Value {
        Value::Host(Arc::new(host))
    }
}

impl From<&Value> for Value {
    fn from(value: &Value) -> Value {
        value.clone()
    }
}

/// For each element of `shape` in order, the position of the element that is broadcast there.
pub(crate) fn broadcast(dims: &[usize], shape: &[usize]) -> Vec<usize> {
    let count: usize = shape.iter().product();
    if dims.iter().product::<usize>() == 1 {
        return vec![0; count];
    }
    if dims == shape {
        return (0..count).collect();
    }
    let mut positions = vec![0; count];
    let mut stride = 1;
    let mut period = 1;
    for (back, &size) in shape.iter().rev().enumerate() {
        let own = dims.len().checked_sub(back + 1).map_or(1, |axis| dims[axis]);
        if own > 1 {
            for (at, position) in positions.iter_mut().enumerate() {
                *position += at / period % size * stride;
            }
        }
        stride *= own;
        period *= size;
    }
    positions
}
