//! Networks for sound.

mod crepe;
mod voice_encoder;
mod wav2vec2;
mod whisper;
mod whisper_decoding;

pub use crepe::{Crepe, CrepeConfig};
#[doc(no_inline)]
pub use data::audio::{WHISPER_SAMPLES, log_mel_spectrogram, pad_or_trim};
pub use voice_encoder::VoiceEncoder;
pub use wav2vec2::{FeatureNorm, Wav2Vec2, Wav2Vec2Config};
pub use whisper::{Whisper, WhisperConfig};
pub use whisper_decoding::WhisperDecoding;
