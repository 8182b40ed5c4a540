//! ONNX's messages, as defined by `onnx.proto` of the ONNX project, with prost's derive macros: no `protoc`,
//! no generated source. Field numbers are those of `onnx.proto`. Fields that neither affect execution nor
//! carry names are left out: the training program, quantization annotations and the properties of single
//! nodes.
//!
//! Enumerations are plain numbers here: an unknown number is reported where it is read, with the name of the
//! tensor or attribute. Prost refuses messages nested deeper than 100.

use bytes::Bytes;
use prost::{Message, Oneof};

/// A whole file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// The version of the file format.
    #[prost(int64, optional, tag = "1")]
    pub ir_version: Option<i64>,
    /// The version of each domain's operators.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// The program that wrote the file.
    #[prost(string, optional, tag = "2")]
    pub producer_name: Option<String>,
    /// Its version.
    #[prost(string, optional, tag = "3")]
    pub producer_version: Option<String>,
    /// The model's own domain.
    #[prost(string, optional, tag = "4")]
    pub domain: Option<String>,
    /// The model's own version.
    #[prost(int64, optional, tag = "5")]
    pub model_version: Option<i64>,
    /// A description.
    #[prost(string, optional, tag = "6")]
    pub doc_string: Option<String>,
    /// The program.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Anything else, by name.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
    /// Functions defined in the model.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
}

/// The version of one domain's operators.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// The domain; empty for ONNX's own.
    #[prost(string, optional, tag = "1")]
    pub domain: Option<String>,
    /// Its version.
    #[prost(int64, optional, tag = "2")]
    pub version: Option<i64>,
}

/// A name and a text.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// The name.
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    /// The text.
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// Nodes in order, with their input and output values.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// The steps.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// The graph's name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// Initializers.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Initializers stored as their nonzero elements.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
    /// A description.
    #[prost(string, optional, tag = "10")]
    pub doc_string: Option<String>,
    /// The inputs.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// The outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// The types of intermediate values.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfoProto>,
}

/// One step: an operator with the names of its inputs and outputs.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of the inputs; an empty one is an input left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of the outputs; an empty one is not wanted.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// The node's name.
    #[prost(string, optional, tag = "3")]
    pub name: Option<String>,
    /// The operator.
    #[prost(string, optional, tag = "4")]
    pub op_type: Option<String>,
    /// The operator's domain; empty for ONNX's own.
    #[prost(string, optional, tag = "7")]
    pub domain: Option<String>,
    /// The overload: distinguishes functions with one name.
    #[prost(string, optional, tag = "8")]
    pub overload: Option<String>,
    /// The operator's settings.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// A description.
    #[prost(string, optional, tag = "6")]
    pub doc_string: Option<String>,
}

/// One setting of an operator.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// Its name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// In a function: the function's attribute that it takes its value from.
    #[prost(string, optional, tag = "21")]
    pub ref_attr_name: Option<String>,
    /// A description.
    #[prost(string, optional, tag = "13")]
    pub doc_string: Option<String>,
    /// The type of the value, which determines its field below.
    #[prost(int32, optional, tag = "20")]
    pub r#type: Option<i32>,
    /// A float.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// An integer.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// A text.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub s: Option<Bytes>,
    /// A tensor.
    #[prost(message, optional, boxed, tag = "5")]
    pub t: Option<Box<TensorProto>>,
    /// A graph.
    #[prost(message, optional, boxed, tag = "6")]
    pub g: Option<Box<GraphProto>>,
    /// A sparse tensor.
    #[prost(message, optional, boxed, tag = "22")]
    pub sparse_tensor: Option<Box<SparseTensorProto>>,
    /// A type.
    #[prost(message, optional, boxed, tag = "14")]
    pub tp: Option<Box<TypeProto>>,
    /// Floats.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// Integers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Texts.
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub strings: Vec<Bytes>,
    /// Tensors.
    #[prost(message, repeated, tag = "10")]
    pub tensors: Vec<TensorProto>,
    /// Graphs.
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
}

impl AttributeProto {
    /// The graphs that it holds, as those of a loop or a branch.
    pub fn all_graphs(&self) -> impl Iterator<Item = &GraphProto> {
        self.g.as_deref().into_iter().chain(&self.graphs)
    }
}

/// A named value and its type.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// The name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// The type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
    /// A description.
    #[prost(string, optional, tag = "3")]
    pub doc_string: Option<String>,
}

/// The elements of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// The shape.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// The element type, a number of `TensorProto.DataType`.
    #[prost(int32, optional, tag = "2")]
    pub data_type: Option<i32>,
    /// The part of a larger tensor that this is. No known program writes it.
    #[prost(message, optional, tag = "3")]
    pub segment: Option<Segment>,
    /// Elements that are f32 (or pairs, of complex numbers).
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Elements of up to 32 bits; of narrow floats their bits.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Texts.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub string_data: Vec<Bytes>,
    /// Elements that are i64.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// The tensor's name.
    #[prost(string, optional, tag = "8")]
    pub name: Option<String>,
    /// A description.
    #[prost(string, optional, tag = "12")]
    pub doc_string: Option<String>,
    /// Elements of any type, little endian.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub raw_data: Option<Bytes>,
    /// Where the elements are in another file: `location`, `offset`, `length`.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// 1 where the elements are in another file.
    #[prost(int32, optional, tag = "14")]
    pub data_location: Option<i32>,
    /// Elements that are f64.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// Elements that are u64 or u32.
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
}

/// A part of a larger tensor.
#[derive(Clone, PartialEq, Message)]
pub struct Segment {
    /// Its first element.
    #[prost(int64, optional, tag = "1")]
    pub begin: Option<i64>,
    /// The element after its last.
    #[prost(int64, optional, tag = "2")]
    pub end: Option<i64>,
}

/// A tensor stored as its elements other than zero.
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    /// The elements `[n]`.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
    /// Where they are: `[n]` in row-major order, or `[n, rank]`.
    #[prost(message, optional, tag = "2")]
    pub indices: Option<TensorProto>,
    /// The shape.
    #[prost(int64, repeated, tag = "3")]
    pub dims: Vec<i64>,
}

/// A shape of numbers and names.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// Its axes.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

/// One axis of a shape.
#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    /// The size, if it is known, or its name.
    #[prost(oneof = "DimensionValue", tags = "1, 2")]
    pub value: Option<DimensionValue>,
}

/// The size of an axis.
#[derive(Clone, PartialEq, Oneof)]
pub enum DimensionValue {
    /// A number.
    #[prost(int64, tag = "1")]
    DimValue(i64),
    /// A name, as `batch`.
    #[prost(string, tag = "2")]
    DimParam(String),
}

/// The type of a value.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// The kind of type.
    #[prost(oneof = "TypeValue", tags = "1, 4, 5, 8, 9")]
    pub value: Option<TypeValue>,
}

/// The kinds of types.
#[derive(Clone, PartialEq, Oneof)]
pub enum TypeValue {
    /// A tensor.
    #[prost(message, tag = "1")]
    TensorType(TensorType),
    /// A list of values of one type.
    #[prost(message, tag = "4")]
    SequenceType(Box<ElementTypeProto>),
    /// A map. No operator that runs here takes one.
    #[prost(message, tag = "5")]
    MapType(MapType),
    /// A sparse tensor.
    #[prost(message, tag = "8")]
    SparseTensorType(TensorType),
    /// A value or none.
    #[prost(message, tag = "9")]
    OptionalType(Box<ElementTypeProto>),
}

/// The element type and shape of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    /// A number of `TensorProto.DataType`.
    #[prost(int32, optional, tag = "1")]
    pub elem_type: Option<i32>,
    /// The shape, if the file says it.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// The type of what a sequence or an optional holds.
#[derive(Clone, PartialEq, Message)]
pub struct ElementTypeProto {
    /// The type.
    #[prost(message, optional, boxed, tag = "1")]
    pub elem_type: Option<Box<TypeProto>>,
}

/// The types of a map.
#[derive(Clone, PartialEq, Message)]
pub struct MapType {
    /// The type of its keys.
    #[prost(int32, optional, tag = "1")]
    pub key_type: Option<i32>,
    /// The type of its values.
    #[prost(message, optional, boxed, tag = "2")]
    pub value_type: Option<Box<TypeProto>>,
}

/// A function defined in the model.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    /// Its name, which nodes have as their operator.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Names of its inputs.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// Names of its outputs.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// Names of its attributes without a default.
    #[prost(string, repeated, tag = "6")]
    pub attribute: Vec<String>,
    /// Attributes with a default.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<AttributeProto>,
    /// Its steps.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<NodeProto>,
    /// A description.
    #[prost(string, optional, tag = "8")]
    pub doc_string: Option<String>,
    /// The versions of the operators that it uses.
    #[prost(message, repeated, tag = "9")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Its domain.
    #[prost(string, optional, tag = "10")]
    pub domain: Option<String>,
    /// The overload: distinguishes functions with one name.
    #[prost(string, optional, tag = "13")]
    pub overload: Option<String>,
}

/// A list of values, as ONNX's test data stores it.
#[derive(Clone, PartialEq, Message)]
pub struct SequenceProto {
    /// Its name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// The sort of its elements: 1 for tensors, 3 for sequences, 5 for optionals.
    #[prost(int32, optional, tag = "2")]
    pub elem_type: Option<i32>,
    /// Tensors.
    #[prost(message, repeated, tag = "3")]
    pub tensor_values: Vec<TensorProto>,
    /// Lists.
    #[prost(message, repeated, tag = "5")]
    pub sequence_values: Vec<SequenceProto>,
    /// Optionals.
    #[prost(message, repeated, tag = "7")]
    pub optional_values: Vec<OptionalProto>,
}

/// A value or none, as ONNX's test data stores it.
#[derive(Clone, PartialEq, Message)]
pub struct OptionalProto {
    /// Its name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// The sort of its value: 0 for nothing, 1 for a tensor, 3 for a sequence, 5 for an optional.
    #[prost(int32, optional, tag = "2")]
    pub elem_type: Option<i32>,
    /// A tensor.
    #[prost(message, optional, tag = "3")]
    pub tensor_value: Option<TensorProto>,
    /// A list.
    #[prost(message, optional, tag = "5")]
    pub sequence_value: Option<SequenceProto>,
    /// An optional.
    #[prost(message, optional, boxed, tag = "7")]
    pub optional_value: Option<Box<OptionalProto>>,
}
