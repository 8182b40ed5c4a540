//! Formats of weights in blocks, by the names that options take.

use taper::{AffineBits, BlockFormat, GgmlType, IntegerGroups, WeightFormat};

/// The names of groups of integers, and of the codes of QLoRA.
const OTHERS: &str = "int4, uint4, int8, uint8, nf4";

/// The format with a name: one of GGUF's (`q4_k`), integers in groups (`uint4`), or `nf4`.
pub(crate) fn named(name: &str, group_size: usize) -> Result<WeightFormat, String> {
    let name = name.to_lowercase();
    let integers = |bits| Ok(IntegerGroups::new(bits, group_size).into());
    match name.as_str() {
        "int4" => integers(AffineBits::I4),
        "uint4" => integers(AffineBits::U4),
        "int8" => integers(AffineBits::I8),
        "uint8" => integers(AffineBits::U8),
        "nf4" => Ok(WeightFormat::Nf4 { double_quantized: true }),
        _ => {
            let found = GgmlType::ALL.into_iter().find(|format| format.name() == name);
            found.map(WeightFormat::from).ok_or_else(|| {
                let names: Vec<&str> = GgmlType::ALL.iter().map(BlockFormat::name).collect();
                format!("there is no format {name}; give one of {}, {OTHERS}", names.join(", "))
            })
        }
    }
}
