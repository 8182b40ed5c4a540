//! Starting the program, and small models.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use taper::{
    models::{Bert, BertConfig, Llama, WeightSource, read_config},
    nn::save_safetensors,
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
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(repository("examples/language/tiny").join(name), folder.path().join(name)).unwrap();
    }
    let source = WeightSource::random(&Generator::seed(3, &taper::cpu()));
    let model = Llama::new(&read_config(folder.path()).unwrap(), &source).unwrap();
    save_safetensors(folder.path().join("model.safetensors"), &model.state_dict()).unwrap();
    folder
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
    let folder = tempfile::tempdir().unwrap();
    let config = r#"{"model_type": "bert", "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 32}"#;
    fs::write(folder.path().join("config.json"), config).unwrap();
    fs::write(folder.path().join("tokenizer.json"), word_tokenizer()).unwrap();
    let config: BertConfig = read_config(folder.path()).unwrap();
    let model = Bert::new(&config, &WeightSource::random(&Generator::seed(2, &taper::cpu()))).unwrap();
    save_safetensors(folder.path().join("model.safetensors"), &model.state_dict()).unwrap();
    folder
}
