//! The layers that BART and Whisper share, with their names, and [`ConditionedDecoder`], by which their
//! decoders generate with a cache.

mod decoder;
mod layers;

pub use decoder::ConditionedDecoder;
pub(crate) use decoder::{DecoderParts, DecoderStack};
pub(crate) use layers::{DecoderLayer, EncoderLayer, LayerConfig};
