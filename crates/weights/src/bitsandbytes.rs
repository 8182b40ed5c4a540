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

use std::path::Path;

use serde_json::Value;
use tensor_core::{Codebook4, CodebookScales, DType, Device, Error, Result, Shape, Tensor, file::file_error};

/// The ends of the names of the tensors beside the codes.
const PARTS: [&str; 4] = [".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"];
/// The ends of the names of the descriptions.
const STATES: [&str; 2] = [".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"];

/// The name of the description of the weight with a name, if the file has one.
pub(crate) fn description(name: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    STATES.iter().map(|state| format!("{name}{state}")).find(|state| has(state))
}

/// Whether a tensor of this name is stored beside a weight of four bits, and is a part of it.
pub(crate) fn is_part(name: &str, has: impl Fn(&str) -> bool) -> bool {
    STATES.iter().any(|state| name.ends_with(state))
        || PARTS
            .iter()
            .filter_map(|part| name.strip_suffix(part))
            .any(|weight| description(weight, &has).is_some())
}

/// The tensors of one weight in a file.
pub(crate) struct Stored<'a, F> {
    /// The path of the file.
    pub(crate) path: &'a Path,
    /// The weight's name.
    pub(crate) name: &'a str,
    /// The dtype and the bytes of a tensor of the file, if there is one of that name.
    pub(crate) read: F,
}

impl<F: Fn(&str) -> Result<Option<(Option<DType>, Vec<u8>)>>> Stored<'_, F> {
    fn wrong(&self, what: &str) -> Error {
        file_error(self.path, format!("has a weight of bitsandbytes \"{}\" {what}", self.name))
    }

    /// The bytes of the tensor whose name has this end, which is of the dtype.
    fn bytes(&self, end: &str, dtype: DType) -> Result<Vec<u8>> {
        let full = format!("{}{end}", self.name);
        match (self.read)(&full)? {
            Some((Some(found), bytes)) if found == dtype => Ok(bytes),
            Some(_) => Err(self.wrong(&format!("whose \"{full}\" is not of {dtype}"))),
            None => Err(self.wrong(&format!("without \"{full}\""))),
        }
    }

    fn floats(&self, end: &str) -> Result<Vec<f32>> {
        let number = |four: &[u8]| f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        Ok(self.bytes(end, DType::F32)?.chunks_exact(4).map(number).collect())
    }

    /// The weight whose description has this name; `floats` is its dtype in place of the file's.
    #[track_caller]
    pub(crate) fn tensor(&self, description: &str, floats: Option<DType>, device: &Device) -> Result<Tensor> {
        let end = &description[self.name.len()..];
        let state: Value = serde_json::from_slice(&self.bytes(end, DType::U8)?)
            .map_err(|e| self.wrong(&format!("whose description is damaged: {e}")))?;
        let nested = &state["nested_blocksize"];
        if state["blocksize"] != 64 || !(nested.is_null() || *nested == 256) {
            let size = &state["blocksize"];
            let what = format!("with blocks of {size} elements and {nested} scales; 64 and 256 are read");
            return Err(self.wrong(&what));
        }
        let dtype = match state["dtype"].as_str() {
            Some("float32") => DType::F32,
            Some("float16") => DType::F16,
            Some("bfloat16") => DType::BF16,
            _ => return Err(self.wrong(&format!("of dtype {}", state["dtype"]))),
        };
        let sizes = state["shape"].as_array().map(|list| list.iter().map(Value::as_u64));
        let sizes: Option<Vec<u64>> = sizes.and_then(Iterator::collect);
        let sizes = sizes.ok_or_else(|| self.wrong(&format!("of shape {}", state["shape"])))?;
        let shape = Shape::from_iter(sizes.into_iter().map(|size| size as usize)).checked("open")?;
        let (packed, table) = (self.bytes("", DType::U8)?, self.floats(".quant_map")?);
        let made = if let Some(offset) = state["nested_offset"].as_f64() {
            let codes = self.bytes(".absmax", DType::U8)?;
            let (scales, of_codes) = (self.floats(".nested_absmax")?, self.floats(".nested_quant_map")?);
            let offset = offset as f32;
            let scales = CodebookScales::Double { codes: &codes, scales: &scales, table: &of_codes, offset };
            Codebook4::pack(&shape, &packed, &table, scales)
        } else {
            Codebook4::pack(&shape, &packed, &table, CodebookScales::Plain(&self.floats(".absmax")?))
        };
        let (format, blocks) = made.map_err(|e| self.wrong(&format!("that does not fit its shape: {e}")))?;
        Tensor::from_blocks(format, shape, floats.unwrap_or(dtype), &blocks, device)
    }
}
