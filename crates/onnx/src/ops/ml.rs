//! `ai.onnx.ml`: classical machine learning, as far as networks meet it.

use std::collections::HashMap;

use tensor_core::{DType, Kind, Result, Scalar};

use super::{Row, one};
use crate::{
    context::Context,
    value::{DataType, HostData, HostTensor, Value},
};

const DOMAIN: &str = "ai.onnx.ml";

pub(crate) const TABLE: &[Row] = &[
    (DOMAIN, "ArrayFeatureExtractor", 1, array_feature_extractor),
    (DOMAIN, "Binarizer", 1, binarizer),
    (DOMAIN, "LabelEncoder", 2, label_encoder),
];

/// Elements of the last axis by number.
fn array_feature_extractor(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, index) = (c.tensor(0)?, c.tensor(1)?.flatten_all());
    let y = x.index_select(-1, &index.to_dtype(c.index_dtype())?)?;
    one(if x.rank() == 1 { y.unsqueeze(0)? } else { y })
}

/// 1 above the threshold, 0 elsewhere.
fn binarizer(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    one(x.gt_scalar(c.number_or("threshold", 0.0)?).to_dtype(x.dtype())?)
}

/// A key or value of the encoder, by which keys are found.
#[derive(Clone, Debug, PartialEq)]
enum Label {
    Text(String),
    Int(i64),
    Float(f64),
}

impl Label {
    /// All NaNs are one key.
    fn key(&self) -> String {
        match self {
            Label::Text(text) => format!("t{text}"),
            Label::Int(number) => format!("n{}", *number as f64),
            Label::Float(number) if number.is_nan() => "nan".into(),
            Label::Float(number) => format!("n{}", *number as f32),
        }
    }
}

/// The labels of a tensor.
fn labels(host: &HostTensor) -> Vec<Label> {
    match host.data() {
        HostData::Text(list) => list.iter().cloned().map(Label::Text).collect(),
        HostData::Int(list) => list.iter().copied().map(Label::Int).collect(),
        HostData::Float(list) => list.iter().copied().map(Label::Float).collect(),
        HostData::Bool(list) => list.iter().map(|&x| Label::Int(x.into())).collect(),
    }
}

/// The labels of an attribute in one of its forms, with the element type.
fn listed(c: &Context<'_>, name: &str) -> Result<(Vec<Label>, DataType)> {
    if let Some(tensor) = c.tensor_attribute(&format!("{name}_tensor"))? {
        return Ok((labels(&tensor), tensor.data_type()));
    }
    if let Some(list) = c.texts(&format!("{name}_strings"))? {
        return Ok((list.into_iter().map(Label::Text).collect(), DataType::Text));
    }
    if let Some(list) = c.ints(&format!("{name}_int64s"))? {
        return Ok((list.into_iter().map(Label::Int).collect(), DataType::Tensor(DType::I64)));
    }
    if let Some(list) = c.numbers(&format!("{name}_floats"))? {
        return Ok((list.into_iter().map(Label::Float).collect(), DataType::Tensor(DType::F32)));
    }
    Err(c.error(format!("the {name} are missing")))
}

/// To each key its value.
fn label_encoder(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.host_data(0)?;
    let ((keys, _), (values, to)) = (listed(c, "keys")?, listed(c, "values")?);
    if keys.len() != values.len() {
        return Err(c.error(format!("{} keys and {} values", keys.len(), values.len())));
    }
    let table: HashMap<String, &Label> = keys.iter().map(Label::key).zip(&values).collect();
    let default = match (c.tensor_attribute("default_tensor")?, to) {
        (Some(tensor), _) => labels(&tensor).into_iter().next(),
        (None, DataType::Text) => Some(Label::Text(c.text_or("default_string", "_Unused")?.to_string())),
        (None, DataType::Tensor(dtype)) if dtype.is_float() => {
            Some(Label::Float(c.number_or("default_float", 0.0)?))
        }
        (None, _) => Some(Label::Int(c.int_or("default_int64", -1)?)),
    };
    let default = default.ok_or_else(|| c.error("the default is empty"))?;
    let found: Vec<&Label> =
        labels(&x).iter().map(|label| *table.get(&label.key()).unwrap_or(&&default)).collect();
    let number = |label: &&Label| match label {
        Label::Text(_) => Scalar::Int(0),
        Label::Int(number) => Scalar::Int(*number),
        Label::Float(number) => Scalar::Float(*number),
    };
    let data = match to.dtype().map(|dtype| dtype.info().kind) {
        None => HostData::Text(
            found
                .iter()
                .map(|label| match label {
                    Label::Text(text) => text.clone(),
                    Label::Int(number) => number.to_string(),
                    Label::Float(number) => number.to_string(),
                })
                .collect(),
        ),
        Some(Kind::Float) => HostData::Float(found.iter().map(|l| number(l).as_f64()).collect()),
        Some(Kind::Signed | Kind::Unsigned) => {
            HostData::Int(found.iter().map(|l| number(l).as_i64()).collect())
        }
        Some(Kind::Bool) => HostData::Bool(found.iter().map(|l| number(l).as_bool()).collect()),
    };
    Ok(vec![HostTensor::new(to, x.dims(), data)?.into()])
}
