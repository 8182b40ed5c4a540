//! Compares a result with the expected one: the type, the shape, and each number within ONNX's tolerances.

use onnx::{DataType, HostData, HostTensor, Value};
use taper::prelude::*;

/// ONNX's tolerances for single operators.
const RTOL: f64 = 1e-3;
const ATOL: f64 = 1e-7;
/// Its relative tolerance for bfloat16, which is two units in the last place.
const RTOL_BF16: f64 = 1.0 / 64.0;

/// Compares two values; the error describes the difference.
pub(crate) fn compare(found: &Value, wanted: &Value, device: &Device) -> Result<(), String> {
    match (found, wanted) {
        (Value::Sequence(found), Value::Sequence(wanted)) => {
            if found.len() != wanted.len() {
                return Err(format!("a sequence of {}, and {} is wanted", found.len(), wanted.len()));
            }
            let pairs = found.iter().zip(wanted.iter()).enumerate();
            pairs.into_iter().try_for_each(|(at, (found, wanted))| {
                compare(found, wanted, device).map_err(|message| format!("element {at}: {message}"))
            })
        }
        (Value::Nothing, Value::Nothing) => Ok(()),
        (Value::Tensor(_) | Value::Host(_), Value::Host(wanted)) => {
            let found = found.to_host().map_err(|error| error.to_string())?;
            compare_tensors(&found, wanted, device)
        }
        (found, wanted) => Err(format!("{found:?}, and {wanted:?} is wanted")),
    }
}

fn compare_tensors(found: &HostTensor, wanted: &HostTensor, device: &Device) -> Result<(), String> {
    if found.dims() != wanted.dims() {
        return Err(format!("the shape is {:?}, and {:?} is wanted", found.dims(), wanted.dims()));
    }
    let held = match wanted.data_type() {
        DataType::Tensor(DType::I64) if !device.supports(DType::I64) => DataType::Tensor(DType::I32),
        other => other,
    };
    if ![wanted.data_type(), held].contains(&found.data_type()) {
        return Err(format!("the type is {}, and {} is wanted", found.data_type(), wanted.data_type()));
    }
    let differs = |at: usize| {
        Err(format!(
            "element {at} is {}, and {} is wanted",
            shown(found.data(), at),
            shown(wanted.data(), at)
        ))
    };
    let rtol = if wanted.data_type() == DataType::Tensor(DType::BF16) { RTOL_BF16 } else { RTOL };
    let at = match (found.data(), wanted.data()) {
        (HostData::Float(found), HostData::Float(wanted)) => {
            found.iter().zip(wanted).position(|(&found, &wanted)| !close(found, wanted, rtol))
        }
        (HostData::Int(found), HostData::Int(wanted)) => found.iter().zip(wanted).position(|(a, b)| a != b),
        (HostData::Bool(found), HostData::Bool(wanted)) => found.iter().zip(wanted).position(|(a, b)| a != b),
        (HostData::Text(found), HostData::Text(wanted)) => found.iter().zip(wanted).position(|(a, b)| a != b),
        _ => Some(0),
    };
    at.map_or(Ok(()), differs)
}

fn close(found: f64, wanted: f64, rtol: f64) -> bool {
    found == wanted
        || found.is_nan() && wanted.is_nan()
        || (found - wanted).abs() <= ATOL + rtol * wanted.abs()
}

fn shown(data: &HostData, at: usize) -> String {
    match data {
        HostData::Int(list) => format!("{:?}", list.get(at)),
        HostData::Float(list) => format!("{:?}", list.get(at)),
        HostData::Bool(list) => format!("{:?}", list.get(at)),
        HostData::Text(list) => format!("{:?}", list.get(at)),
    }
}
