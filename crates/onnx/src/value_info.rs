//! [`ValueInfo`]: the name, type and shape of an input or output, as a file declares them.

use std::fmt;

use crate::{
    proto::{Dimension, DimensionValue, TypeProto, TypeValue, ValueInfoProto},
    value::DataType,
};

/// The name, element type and shape of an input or an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    /// The name.
    pub name: String,
    /// The element type; `None` if the file does not specify it, or for a sequence or an optional.
    pub data_type: Option<DataType>,
    /// The axes; `None` if the file does not specify them.
    pub shape: Option<Vec<Size>>,
    /// Whether the input may be omitted.
    pub optional: bool,
}

/// The size of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Size {
    /// This many elements.
    Known(usize),
    /// Any number; axes with the same name have equal sizes.
    Symbolic(String),
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Known(size) => size.fmt(f),
            Size::Symbolic(name) if name.is_empty() => f.write_str("?"),
            Size::Symbolic(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for ValueInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.name)?;
        if let Some(data_type) = self.data_type {
            write!(f, " {data_type}")?;
        }
        if let Some(shape) = &self.shape {
            let sizes: Vec<String> = shape.iter().map(Size::to_string).collect();
            write!(f, " [{}]", sizes.join(", "))?;
        }
        Ok(())
    }
}

/// A value as a graph of a file declares it.
impl From<&ValueInfoProto> for ValueInfo {
    fn from(declared: &ValueInfoProto) -> ValueInfo {
        describe(declared.name.as_deref().unwrap_or_default(), declared.r#type.as_ref(), false)
    }
}

/// The type of an input, abbreviated.
pub(crate) fn describe(name: &str, r#type: Option<&TypeProto>, optional: bool) -> ValueInfo {
    let tensor = match r#type.and_then(|r#type| r#type.value.as_ref()) {
        Some(TypeValue::TensorType(tensor)) => Some(tensor),
        _ => None,
    };
    let size = |dimension: &Dimension| match &dimension.value {
        Some(DimensionValue::DimValue(size)) => {
            usize::try_from(*size).map_or(Size::Symbolic(String::new()), Size::Known)
        }
        Some(DimensionValue::DimParam(name)) => Size::Symbolic(name.clone()),
        None => Size::Symbolic(String::new()),
    };
    ValueInfo {
        name: name.to_string(),
        data_type: tensor.and_then(|tensor| DataType::from_onnx(tensor.elem_type.unwrap_or(0))),
        shape: tensor.and_then(|t| t.shape.as_ref()).map(|shape| shape.dim.iter().map(size).collect()),
        optional,
    }
}
