//! Starting the program, and small models.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use taper::{
    data::{
        GridOptions,
        audio::{WavFormat, write_wav},
        save_image,
    },
    models::{
        Bert, BertClassifier, BertConfig, Llama, SmolVlm, SmolVlmConfig,
        audio::{Whisper, WhisperConfig},
        read_config,
    },
    nn::{StateDict, save_safetensors},
    prelude::*,
};
use tempfile::TempDir;

/// The program with these arguments, on the CPU, without a network.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taper"));
    command.args(arguments).env("TAPER_DEVICE", "cpu");
    command.env("HF_HUB_OFFLINE", "1").env("HF_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// The standard output of a run that succeeds, with this input.
pub(crate) fn printed_for(input: &str, arguments: &[&str]) -> String {
    let mut command = program(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    assert!(status.success(), "{arguments:?}: {}", text(stderr));
    text(stdout)
}

/// The standard output of a run that succeeds.
pub(crate) fn printed(arguments: &[&str]) -> String {
    printed_for("", arguments)
}

/// The JSON of a run that succeeds.
pub(crate) fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(arguments)).unwrap()
}

/// The message of a run that fails with exit code 1: the only line of standard error that is no remark, and
/// the last one. Nothing is on standard output.
pub(crate) fn refused(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = program(arguments).output().unwrap();
    let stderr = text(stderr);
    assert_eq!(status.code(), Some(1), "{arguments:?}: {stderr}");
    let mut lines: Vec<&str> = stderr.lines().filter(|line| !line.starts_with('[')).collect();
    let message = lines.pop().unwrap().strip_prefix("error: ").unwrap();
    assert!(lines.is_empty() && stdout.is_empty(), "{arguments:?}: {stderr}");
    assert!(!message.contains("src/"), "{message}");
    message.to_string()
}

/// A path of a folder as text.
pub(crate) fn at(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

/// A file of this repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A folder with a small Llama of random weights, whose tokens are bytes.
pub(crate) fn tiny_llama() -> TempDir {
    llama(3, 128)
}

/// A folder with a Llama of these random weights, with this width inside its perceptrons.
pub(crate) fn llama(seed: u64, intermediate_size: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let tiny = |name: &str| repository("examples/language/tiny").join(name);
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(tiny(name), path(name)).unwrap();
    }
    let mut config: Value = read_config(tiny("config.json")).unwrap();
    config["intermediate_size"] = intermediate_size.into();
    fs::write(path("config.json"), config.to_string()).unwrap();
    let rng = Generator::seed(seed, &taper::cpu());
    let model = Llama::new(&read_config(folder.path()).unwrap(), &rng).unwrap();
    save_safetensors(path("model.safetensors"), &model.state_dict()).unwrap();
    folder
}

/// Writes the tokenizer of bytes to a folder, with further special tokens and this chat template. Returns the
/// number of tokens.
fn write_byte_tokenizer(folder: &TempDir, special: &[&str], template: &str) -> usize {
    let tiny = repository("examples/language/tiny").join("tokenizer.json");
    let mut document: Value = read_config(tiny).unwrap();
    for (id, token) in (259..).zip(special) {
        let token = json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true});
        document["added_tokens"].as_array_mut().unwrap().push(token);
    }
    let config = json!({"eos_token": "<|end|>", "chat_template": template});
    fs::write(at(folder, "tokenizer.json"), document.to_string()).unwrap();
    fs::write(at(folder, "tokenizer_config.json"), config.to_string()).unwrap();
    259 + special.len()
}

/// A folder with a small Llama of random weights, whose tokens are bytes and these special ones.
pub(crate) fn llama_with(special: &[&str], template: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let vocabulary = write_byte_tokenizer(&folder, special, template);
    let mut config: Value = read_config(repository("examples/language/tiny").join("config.json")).unwrap();
    config["vocab_size"] = vocabulary.into();
    fs::write(at(&folder, "config.json"), config.to_string()).unwrap();
    let rng = Generator::seed(7, &taper::cpu());
    let model = Llama::new(&read_config(folder.path()).unwrap(), &rng).unwrap();
    save_safetensors(at(&folder, "model.safetensors"), &model.state_dict()).unwrap();
    folder
}

/// A folder with a small SmolVLM of random weights, which reads tiles of 32 pixels as four vectors.
pub(crate) fn tiny_smolvlm() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let cells = (1..=2).flat_map(|row| (1..=2).map(move |column| format!("<row_{row}_col_{column}>")));
    let cells: Vec<String> = cells.collect();
    let mut special = vec!["<image>", "<fake_token_around_image>", "<global-img>"];
    special.extend(cells.iter().map(String::as_str));
    let template = "{% for m in messages %}{{ m['role'] | capitalize }}:{% for part in m['content'] %}\
        {% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}<|end|>\
        {% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}";
    let vocabulary = write_byte_tokenizer(&folder, &special, template);
    let text: Value = read_config(repository("examples/language/tiny").join("config.json")).unwrap();
    let config = json!({
        "model_type": "smolvlm", "image_token_id": 259, "scale_factor": 2, "tie_word_embeddings": false,
        "vision_config": {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 1,
            "num_attention_heads": 2, "image_size": 32, "patch_size": 8},
        "text_config": {"model_type": "llama", "vocab_size": vocabulary, "hidden_size": text["hidden_size"],
            "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    });
    fs::write(at(&folder, "config.json"), config.to_string()).unwrap();
    let processor = json!({"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}});
    fs::write(at(&folder, "preprocessor_config.json"), processor.to_string()).unwrap();
    let config = SmolVlmConfig::from_folder(folder.path()).unwrap();
    let model = SmolVlm::new(&config, &Generator::seed(8, &taper::cpu())).unwrap();
    save_safetensors(at(&folder, "model.safetensors"), &model.state_dict()).unwrap();
    folder
}

/// Writes a picture of noise.
pub(crate) fn write_picture(path: impl AsRef<Path>, seed: u64) {
    let noise = Tensor::rand([3, 10, 10], &Generator::seed(seed, &taper::cpu())).unwrap();
    save_image(&noise, path, &GridOptions::default()).unwrap();
}

/// A `tokenizer.json` whose token k is the word wk; the first eight are special.
pub(crate) fn word_tokenizer() -> String {
    let words: Vec<String> = (0..40).map(|id| format!("\"w{id}\": {id}")).collect();
    let special: Vec<String> = (0..8)
        .map(|id| {
            format!(
                r#"{{"id": {id}, "content": "w{id}", "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true}}"#
            )
        })
        .collect();
    format!(
        r#"{{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [{}], "normalizer": null,
            "pre_tokenizer": {{"type": "WhitespaceSplit"}}, "post_processor": null, "decoder": null,
            "model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "w0"}}}}"#,
        special.join(", "),
        words.join(", ")
    )
}

/// A folder with a small BERT of random weights.
pub(crate) fn tiny_bert() -> TempDir {
    let config = r#"{"model_type": "bert", "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 32}"#;
    encoder(config, |config, rng| Bert::new(config, rng).unwrap().state_dict())
}

/// A folder with a small classifier of pairs with one class, and random weights. `more` has further fields of
/// its configuration.
pub(crate) fn tiny_reranker(more: &str) -> TempDir {
    let config = format!(
        r#"{{"architectures": ["BertForSequenceClassification"], "id2label": {{"0": "LABEL_0"}},
        "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 24, "max_position_embeddings": 32, {more}}}"#
    );
    encoder(&config, |config, rng| BertClassifier::new(config, rng).unwrap().state_dict())
}

fn encoder(config: &str, weights: impl Fn(&BertConfig, &Generator) -> StateDict) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config).unwrap();
    fs::write(folder.path().join("tokenizer.json"), word_tokenizer()).unwrap();
    let config: BertConfig = read_config(folder.path()).unwrap();
    let rng = Generator::seed(2, &taper::cpu());
    save_safetensors(folder.path().join("model.safetensors"), &weights(&config, &rng)).unwrap();
    folder
}

/// A folder with a small Whisper of random weights, which reads parts of one second.
pub(crate) fn tiny_whisper() -> TempDir {
    let config = r#"{"model_type": "whisper", "vocab_size": 40, "num_mel_bins": 80, "d_model": 16,
        "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_layers": 1,
        "decoder_attention_heads": 2, "decoder_ffn_dim": 24, "max_source_positions": 50,
        "max_target_positions": 12, "activation_function": "gelu"}"#;
    let generation = r#"{"decoder_start_token_id": 1, "eos_token_id": 2, "no_timestamps_token_id": 3,
        "lang_to_id": {"<|en|>": 4, "<|de|>": 5}, "task_to_id": {"transcribe": 6, "translate": 7},
        "suppress_tokens": [0, 1, 3, 4, 5, 6, 7], "begin_suppress_tokens": [2], "max_length": 12}"#;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("config.json"), config).unwrap();
    fs::write(path("generation_config.json"), generation).unwrap();
    fs::write(path("tokenizer.json"), word_tokenizer()).unwrap();
    let config: WhisperConfig = read_config(folder.path()).unwrap();
    let model = Whisper::new(&config, &Generator::seed(5, &taper::cpu())).unwrap();
    save_safetensors(path("model.safetensors"), &model.state_dict()).unwrap();
    folder
}

/// Writes 1.5 seconds of noise at 8 kHz in two channels: two parts for the small Whisper.
pub(crate) fn write_noise(path: impl AsRef<Path>) {
    let sound = Tensor::randn([2, 12_000], &Generator::seed(6, &taper::cpu())).unwrap().mul_scalar(0.1);
    write_wav(path, &sound, 8000, WavFormat::Float32).unwrap();
}
