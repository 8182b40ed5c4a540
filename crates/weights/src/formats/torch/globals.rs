//! The names that a pickle of tensors may refer to. Nothing is called: the unpickler
//! itself creates the objects that these names stand for. All other names are refused, except those of
//! classes of modules, whose state alone is read.

use tensor_core::DType;

use crate::Encoding;

/// The meaning of a Python name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    /// `collections.OrderedDict`: a dict, from nothing or from pairs.
    OrderedDict,
    /// `builtins.set` and `frozenset`: a list.
    Set,
    /// `_codecs.encode`: bytes, which old protocols write as a text in Latin-1.
    Encode,
    /// `torch.Size`: a tuple.
    Size,
    /// `torch.device`: a text.
    Device,
    /// `torch._utils._rebuild_tensor` and `_rebuild_tensor_v2`: storage, offset, sizes, strides, and what is
    /// ignored.
    Tensor,
    /// `torch._utils._rebuild_tensor_v3`: as before, with the dtype after them.
    TypedTensor,
    /// `torch._utils._rebuild_parameter` and `_rebuild_parameter_with_state`: the tensor and what is ignored.
    Parameter,
    /// `torch._tensor._rebuild_from_type_v2`: another of these, the class, its arguments and its attributes.
    Subclass,
    /// `torch.Tensor`, `torch.nn.parameter.Parameter`, as the class of a tensor.
    TensorClass,
    /// The type of a storage: `torch.FloatStorage`.
    Storage(StorageType),
    /// A dtype: `torch.float32`.
    DType(ElementType),
}

/// The elements of a storage: of a type, or bytes whose type each tensor specifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorageType {
    Of(ElementType),
    Untyped,
}

/// An element type by PyTorch's name, which Taper may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementType {
    Known(DType),
    /// The name and the bytes of an element.
    Foreign(&'static str, usize),
}

impl ElementType {
    pub(super) fn size(self) -> usize {
        match self {
            ElementType::Known(dtype) => dtype.size(),
            ElementType::Foreign(_, size) => size,
        }
    }

    /// PyTorch's name of it, without `torch.`.
    pub(super) fn name(self) -> &'static str {
        match self {
            ElementType::Known(dtype) => dtype.info().torch,
            ElementType::Foreign(name, _) => name,
        }
    }

    pub(super) fn encoding(self) -> Encoding {
        match self {
            ElementType::Known(dtype) => Encoding::Plain(dtype),
            ElementType::Foreign(name, _) => Encoding::Other(name),
        }
    }

    /// The type of a name such as `float32`.
    fn named(name: &str) -> Option<ElementType> {
        let known = DType::ALL.into_iter().find(|dtype| dtype.info().torch == name).map(ElementType::Known);
        let foreign = || FOREIGN.iter().find(|(foreign, _)| *foreign == name);
        known.or_else(|| foreign().map(|&(name, size)| ElementType::Foreign(name, size)))
    }
}

/// Types of PyTorch without a counterpart here, with the bytes of an element.
const FOREIGN: &[(&str, usize)] = &[
    ("complex32", 4),
    ("complex64", 8),
    ("complex128", 16),
    ("qint8", 1),
    ("quint8", 1),
    ("qint32", 4),
    ("quint4x2", 1),
    ("quint2x4", 1),
    ("float8_e8m0fnu", 1),
    ("float4_e2m1fn_x2", 1),
];

/// The storages of `torch`, and the types of their elements.
const STORAGES: &[(&str, &str)] = &[
    ("BoolStorage", "bool"),
    ("ByteStorage", "uint8"),
    ("CharStorage", "int8"),
    ("ShortStorage", "int16"),
    ("IntStorage", "int32"),
    ("LongStorage", "int64"),
    ("HalfStorage", "float16"),
    ("BFloat16Storage", "bfloat16"),
    ("FloatStorage", "float32"),
    ("DoubleStorage", "float64"),
    ("ComplexFloatStorage", "complex64"),
    ("ComplexDoubleStorage", "complex128"),
    ("QInt8Storage", "qint8"),
    ("QUInt8Storage", "quint8"),
    ("QInt32Storage", "qint32"),
    ("QUInt4x2Storage", "quint4x2"),
    ("QUInt2x4Storage", "quint2x4"),
];

/// The storage type of PyTorch for a dtype, if it has one of its own.
pub(super) fn storage_of(dtype: DType) -> Option<&'static str> {
    STORAGES.iter().find(|(_, name)| *name == dtype.info().torch).map(|(storage, _)| *storage)
}

/// The meaning of a name, if it is allowed.
pub(super) fn find(module: &str, name: &str) -> Option<Global> {
    let found = match (module, name) {
        ("collections", "OrderedDict") => Global::OrderedDict,
        ("builtins" | "__builtin__", "set" | "frozenset") => Global::Set,
        ("_codecs", "encode") => Global::Encode,
        ("torch", "Size") => Global::Size,
        ("torch", "device") => Global::Device,
        ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => Global::Tensor,
        ("torch._utils", "_rebuild_tensor_v3") => Global::TypedTensor,
        ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => Global::Parameter,
        ("torch._tensor", "_rebuild_from_type_v2") => Global::Subclass,
        ("torch", "Tensor") | ("torch.nn.parameter", "Parameter" | "Buffer") => Global::TensorClass,
        ("torch" | "torch.storage", "UntypedStorage") => Global::Storage(StorageType::Untyped),
        ("torch" | "torch.cuda", storage) if storage.ends_with("Storage") => {
            let (_, element) = STORAGES.iter().find(|(known, _)| *known == storage)?;
            Global::Storage(StorageType::Of(ElementType::named(element)?))
        }
        ("torch", dtype) => Global::DType(ElementType::named(dtype)?),
        _ => return None,
    };
    Some(found)
}

/// The reason why a name is refused.
pub(super) fn refusal(module: &str, name: &str) -> String {
    let what = format!("{module}.{name}");
    if module.starts_with("__torch__") {
        return format!("refers to {what}, a class of a TorchScript program, and not to tensors alone");
    }
    if module == "torch._utils" && name.contains("sparse") || name == "_rebuild_nested_tensor" {
        return format!("holds a tensor that {what} makes, which Taper has no like of; save it dense");
    }
    if module == "torch._utils" && name.starts_with("_rebuild_qtensor") {
        return format!("holds a quantized tensor, which {what} makes; save tensor.dequantize()");
    }
    format!(
        "refers to {what}, which is neither a tensor, a number, a text nor a module; nothing of Python is called: save plain values, and of \
         a model the state_dict()"
    )
}
