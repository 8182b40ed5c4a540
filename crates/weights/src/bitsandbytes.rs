//! Weights of four bits that Python's `bitsandbytes` stored: the codes under the weight's name, and beside it
//! tensors with their scales and tables. They are read as [`Codebook4`].
//!
//! | tensor | contents |
//! |---|---|
//! | `w` | the codes, two in a byte of u8 |
//! | `w.absmax` | the scale of each 64 elements: f32, or u8 with double quantization |
//! | `w.quant_map` | the sixteen numbers |
//! | `w.nested_absmax` | with double quantization, the scale of each 256 scales |
//! | `w.nested_quant_map` | with double quantization, the table of the codes of scales |
//! | `w.quant_state.bitsandbytes__nf4`, `…__fp4` | the shape, the dtype, the offset of scales: JSON in u8 |

use serde_json::Value;
use tensor_core::{Codebook4, CodebookScales, DType, Device, Result, Shape, Tensor, file::file_error};

use crate::{file::WeightFile, read::Reader};

/// The ends of the names of the tensors beside the codes.
const PARTS: [&str; 4] = [".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"];
/// The ends of the names of the descriptions.
const STATES: [&str; 2] = [".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"];

/// Whether a tensor of this name is stored beside a weight of four bits, and is a part of it.
pub(crate) fn is_part(file: &WeightFile, name: &str) -> bool {
    let of_weight =
        |weight: &str| STATES.iter().any(|state| file.info(&format!("{weight}{state}")).is_some());
    STATES.iter().any(|state| name.ends_with(state))
        || PARTS.iter().filter_map(|part| name.strip_suffix(part)).any(of_weight)
}

/// The weight with this name, if it has four bits; `floats` is its dtype in place of the file's.
#[track_caller]
pub(crate) fn read(
    file: &WeightFile,
    name: &str,
    device: &Device,
    floats: Option<DType>,
) -> Result<Option<Tensor>> {
    let state = STATES.iter().find_map(|state| file.info(&format!("{name}{state}")));
    let Some(state) = state else { return Ok(None) };
    let wrong =
        |what: String| file_error(file.path(), format!("has a weight of bitsandbytes \"{name}\" {what}"));
    let bytes = |part: &str| -> Result<Vec<u8>> {
        let info = file.info(&format!("{name}{part}"));
        let info = info.ok_or_else(|| wrong(format!("without \"{name}{part}\"")))?;
        if info.dtype() != Some(DType::U8) {
            return Err(wrong(format!("whose \"{name}{part}\" is of {} and not of u8", info.type_name())));
        }
        Reader::default().host_bytes(info)
    };
    let floats_of = |part: &str| -> Result<Vec<f32>> {
        let info = file.info(&format!("{name}{part}"));
        let info = info.ok_or_else(|| wrong(format!("without \"{name}{part}\"")))?;
        if info.dtype() != Some(DType::F32) {
            return Err(wrong(format!("whose \"{name}{part}\" is of {} and not of f32", info.type_name())));
        }
        let bytes = Reader::default().host_bytes(info)?;
        let number = |four: &[u8]| f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        Ok(bytes.chunks_exact(4).map(number).collect())
    };
    let state: Value = serde_json::from_slice(&Reader::default().host_bytes(state)?)
        .map_err(|e| wrong(format!("whose description is damaged: {e}")))?;
    let nested = &state["nested_blocksize"];
    if state["blocksize"] != 64 || !(nested.is_null() || *nested == 256) {
        let message = format!(
            "with blocks of {} elements and {nested} scales; 64 and 256 are read",
            state["blocksize"]
        );
        return Err(wrong(message));
    }
    let dtype = match state["dtype"].as_str() {
        Some("float32") => DType::F32,
        Some("float16") => DType::F16,
        Some("bfloat16") => DType::BF16,
        _ => return Err(wrong(format!("of dtype {}", state["dtype"]))),
    };
    let sizes =
        state["shape"].as_array().map(|list| list.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
    let Some(Some(sizes)) = sizes else { return Err(wrong(format!("of shape {}", state["shape"]))) };
    let shape = Shape::from_iter(sizes.into_iter().map(|size| size as usize)).checked("open")?;
    let (packed, table) = (bytes("")?, floats_of(".quant_map")?);
    let packed_blocks = if let Some(offset) = state["nested_offset"].as_f64() {
        let (codes, scales) = (bytes(".absmax")?, floats_of(".nested_absmax")?);
        let codes_table = floats_of(".nested_quant_map")?;
        let offset = offset as f32;
        let scales = CodebookScales::Double { codes: &codes, scales: &scales, table: &codes_table, offset };
        Codebook4::pack(&shape, &packed, &table, scales)
    } else {
        Codebook4::pack(&shape, &packed, &table, CodebookScales::Plain(&floats_of(".absmax")?))
    };
    let (format, blocks) = packed_blocks.map_err(|e| wrong(format!("that does not fit its shape: {e}")))?;
    Tensor::from_blocks(format, shape, floats.unwrap_or(dtype), &blocks, device).map(Some)
}
