//! Tokenizers, chat templates, streams of text.

use std::{collections::BTreeMap, path::Path};

use models::{
    Llama,
    generate::{GenerationConfig, generate},
    text::{Message, TextDecoder, TextOptions, Tokenizer, generate_text},
};
use weights::{GgufArray, GgufValue, GgufWriter};

use crate::fixture::Fixture;

/// The characters that stand for bytes in a byte-level vocabulary.
fn byte_characters() -> Vec<String> {
    let printable =
        |byte: u32| (33..=126).contains(&byte) || (161..=172).contains(&byte) || (174..=255).contains(&byte);
    let mut next = 256;
    let of = |byte: u32| {
        let code = if printable(byte) {
            byte
        } else {
            next += 1;
            next - 1
        };
        char::from_u32(code).unwrap().to_string()
    };
    (0..256).map(of).collect()
}

/// A byte-level tokenizer of a GGUF file: 256 bytes, two merges and two control tokens.
fn gguf_tokenizer(pre: &str) -> Tokenizer {
    let mut tokens = byte_characters();
    tokens.extend(["<s>", "<|end|>", "he", "12", "hel"].map(String::from));
    let mut types = vec![1i32; tokens.len()];
    (types[256], types[257]) = (3, 3);
    let texts = |texts: Vec<String>| GgufValue::Array(GgufArray::Text(texts));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.gguf");
    GgufWriter::new()
        .metadata("general.architecture", "llama")
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", pre)
        .metadata("tokenizer.ggml.tokens", texts(tokens))
        .metadata("tokenizer.ggml.merges", texts(["h e", "1 2", "he l"].map(String::from).to_vec()))
        .metadata("tokenizer.ggml.token_type", GgufValue::Array(GgufArray::I32(types)))
        .metadata("tokenizer.ggml.bos_token_id", 256u32)
        .metadata("tokenizer.ggml.eos_token_id", 257u32)
        .metadata("tokenizer.ggml.add_bos_token", true)
        .metadata(
            "tokenizer.chat_template",
            "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}",
        )
        .save(&path)
        .unwrap();
    Tokenizer::from_gguf(&weights::open(&path).unwrap()).unwrap()
}

#[test]
fn a_tokenizer_in_gguf_metadata_merges_bytes() {
    let tokenizer = gguf_tokenizer("gpt-2");
    assert_eq!(tokenizer.encode("hello", true).unwrap().ids, [256, 260, 108, 111]);
    assert_eq!(tokenizer.encode("12<|end|>", false).unwrap().ids, [259, 257]);
    assert_eq!(tokenizer.encode_plain("12<|end|>").unwrap().ids.len(), 1 + "<|end|>".len());
    assert_eq!(tokenizer.end_tokens(), [257]);
    // Digits are split before they are merged.
    assert_eq!(gguf_tokenizer("smollm").encode("12", false).unwrap().ids, [49, 50]);
    let text = "né 北京\n\t ok";
    assert_eq!(tokenizer.decode(&tokenizer.encode(text, true).unwrap().ids, true).unwrap(), text);
    let chat = tokenizer.chat(&[Message::user("hi"), Message::assistant("ho")], false).unwrap();
    assert_eq!(chat, "user: hi<|end|>assistant: ho<|end|>");
}

#[test]
fn a_text_comes_in_whole_characters() {
    let tokenizer = gguf_tokenizer("gpt-2");
    let text = "a né 北";
    let mut decoder = TextDecoder::new(&tokenizer);
    let ids = tokenizer.encode(text, false).unwrap().ids;
    let pieces: Vec<String> = ids.iter().map(|id| decoder.push(*id).unwrap()).collect();
    assert_eq!(pieces.concat(), text);
    assert_eq!(pieces[ids.len() - 3..], ["", "", "北"]);
    // A character that never ends is shown as it is.
    let mut decoder = TextDecoder::new(&tokenizer);
    assert_eq!(decoder.push(ids[ids.len() - 3]).unwrap(), "");
    assert_eq!(decoder.finish().unwrap(), "\u{fffd}");
}

#[test]
fn a_text_ends_before_its_stop_word() {
    // Each token of the fixture's 40 is a letter, so that any text of the model can be a stop word.
    let vocabulary: BTreeMap<String, usize> =
        (0..40u8).map(|k| (char::from(b'A' + k).to_string(), usize::from(k))).collect();
    let document = serde_json::json!({
        "version": "1.0", "added_tokens": [], "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    });
    let tokenizer = Tokenizer::from_json(document.to_string().as_bytes()).unwrap();
    let fixture = Fixture::open("llama");
    let model = Llama::from_folder(fixture.folder(), &backend_cpu::cpu()).unwrap();
    let prompt = [3, 17, 8];
    let config = GenerationConfig { max_new_tokens: 10, ..Default::default() };
    let ids: Vec<u32> = generate(&model, &prompt, &config).unwrap().map(|token| token.unwrap().id).collect();
    let whole = tokenizer.decode(&ids, true).unwrap();
    assert_eq!(whole.len(), 10);
    let text = |stop: &[&str]| -> String {
        let options = TextOptions { stop_words: stop.iter().map(|word| word.to_string()).collect() };
        let cache = models::LanguageModel::new_cache(&model);
        let begin = |cache| generate_text(&model, &tokenizer, cache, &prompt, &config, &options).unwrap();
        let all: String = begin(cache).map(Result::unwrap).collect();
        let (mut pieces, mut awaited) = (begin(models::LanguageModel::new_cache(&model)), String::new());
        while let Some(piece) = pollster::block_on(pieces.next_async()) {
            awaited.push_str(&piece.unwrap());
        }
        assert_eq!(awaited, all);
        all
    };
    assert_eq!(text(&[]), whole);
    assert_eq!(text(&["nothing"]), whole);
    let stop = &whole[4..7];
    assert_eq!(text(&[stop, "x"]), whole[..whole.find(stop).unwrap()]);
    // The beginning of a stop word is text if the word does not come.
    assert_eq!(text(&[&format!("{}?", &whole[8..])]), whole);
}

#[test]
fn bad_tokenizers_are_refused() {
    assert!(Tokenizer::from_json(b"{}").is_err());
    let folder = tempfile::tempdir().unwrap();
    let error = Tokenizer::from_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json"), "{error}");
    let error = models::text::ChatTemplate::new("{% for %}").unwrap_err().to_string();
    assert!(error.contains("no template"), "{error}");
    let template = models::text::ChatTemplate::new("{{ raise_exception('roles must alternate') }}").unwrap();
    let error = template.render(&[], false, None, None).unwrap_err().to_string();
    assert!(error.contains("roles must alternate"), "{error}");
}

/// A text or tokens, and what sentencepiece makes of them.
#[derive(serde::Deserialize)]
struct Case {
    #[serde(default)]
    text: String,
    ids: Vec<u32>,
    decoded: String,
}

#[derive(serde::Deserialize)]
struct Cases {
    cases: Vec<Case>,
    torn: Vec<Case>,
}

#[test]
fn pieces_of_a_gguf_file_are_those_of_sentencepiece() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let tokenizer = Tokenizer::from_folder(folder.join("sentence_pieces.gguf")).unwrap();
    let text = std::fs::read_to_string(folder.join("sentence_pieces.json")).unwrap();
    let Cases { cases, torn } = serde_json::from_str(&text).unwrap();
    assert!(cases.len() > 300 && torn.len() > 4);
    for case in &cases {
        let found = tokenizer.encode_plain(&case.text).unwrap();
        assert_eq!(found.ids, case.ids, "{:?}: {:?}", case.text, found.tokens);
        let mut stream = TextDecoder::new(&tokenizer);
        let pushed: String = case.ids.iter().map(|id| stream.push(*id).unwrap()).collect();
        assert_eq!(pushed + &stream.finish().unwrap(), case.decoded, "{:?} as a stream", case.text);
    }
    // Bytes that are no characters, or only in part.
    for case in cases.iter().chain(&torn) {
        assert_eq!(tokenizer.decode(&case.ids, true).unwrap(), case.decoded, "{:?}", case.ids);
    }
    // The token that begins a text, and special tokens that are written in one.
    assert_eq!(tokenizer.encode("the", true).unwrap().ids[0], 1);
    assert_eq!(tokenizer.encode("the</s>", false).unwrap().ids.last(), Some(&2));
    assert_eq!(tokenizer.end_tokens(), [2]);
    assert_eq!(tokenizer.decode(&[1, cases[0].ids[0], 2], false).unwrap().matches(['<', '>']).count(), 4);
}

/// Documents at which the crate `tokenizers` panics.
#[test]
fn damaged_tokenizers_are_errors() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tokenizers/word_pieces.json");
    let document = std::fs::read_to_string(path).unwrap();
    let tokenizer = Tokenizer::from_json(document.as_bytes()).unwrap();
    assert_eq!(tokenizer.encode("the cat", true).unwrap().tokens.first().unwrap(), "[CLS]");
    let message = |text: String| Tokenizer::from_json(text.as_bytes()).unwrap_err().to_string();
    let half = document[..document.len() / 2].to_string();
    assert!(message(half).contains("is no tokenizer.json: EOF"));
    let torn = document
        .replace("\"type\":\"WordPiece\",\"prefix\":\"##\"", "\"type\":\"WordPiece\",\"prefix\":\"\\ud800\"");
    assert_ne!(torn, document);
    assert!(message(torn).contains("is no tokenizer.json: "));
    let renamed =
        document.replacen("{\"SpecialToken\":{\"id\":\"[SEP]\"", "{\"SpecialToken\":{\"id\":\"[END]\"", 1);
    assert_ne!(renamed, document);
    let found = message(renamed);
    assert!(found.contains("the token \"[END]\", which special_tokens lacks"), "{found}");
}
