//! Tokenizers, chat templates, streams of text.

use std::{collections::BTreeMap, path::Path};

use models::{
    LanguageModel, Llama, LlamaConfig,
    generate::{GenerationConfig, generate},
    text::{
        ChatBatch, ChatExample, ChatExamples, ChatTemplate, Message, TemplateLimits, TextDecoder,
        TextOptions, Tokenizer, generate_text,
    },
};
use tensor_core::{Generator, Tensor};
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
pub(crate) fn gguf_tokenizer(pre: &str) -> Tokenizer {
    let more = ["<s>", "<|end|>", "he", "12", "hel"].map(String::from);
    gguf_tokenizer_of(pre, &more, &["h e", "1 2", "he l"].map(String::from))
}

/// The same with these tokens after those of the bytes, of which the first two are control tokens, and these
/// merges.
fn gguf_tokenizer_of(pre: &str, more: &[String], merges: &[String]) -> Tokenizer {
    let mut tokens = byte_characters();
    tokens.extend_from_slice(more);
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
        .metadata("tokenizer.ggml.merges", texts(merges.to_vec()))
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

/// The tokens of a text, where merges build each of these words from its bytes, and last of all one token of
/// two neighbouring words.
fn gguf_words(pre: &str, text: &str, words: &[&str]) -> Vec<String> {
    let characters = byte_characters();
    let spelled =
        |word: &str| -> String { word.bytes().map(|byte| characters[byte as usize].as_str()).collect() };
    let (mut tokens, mut merges) = (vec!["<s>".to_string(), "<|end|>".to_string()], Vec::new());
    let mut merge = |left: String, right: String| {
        tokens.push(format!("{left}{right}"));
        merges.push(format!("{left} {right}"));
    };
    for word in words {
        let bytes: Vec<char> = spelled(word).chars().collect();
        (1..bytes.len()).for_each(|at| merge(bytes[..at].iter().collect(), bytes[at].to_string()));
    }
    words.windows(2).for_each(|pair| merge(spelled(pair[0]), spelled(pair[1])));
    tokens[2..].sort();
    tokens.dedup();
    let tokenizer = gguf_tokenizer_of(pre, &tokens, &merges);
    let ids = tokenizer.encode_plain(text).unwrap().ids;
    ids.iter().map(|id| tokenizer.decode(&[*id], false).unwrap()).collect()
}

/// The words of a text are those of the library `tokenizers` with the patterns of the published files.
#[test]
fn words_of_gguf_tokenizers_are_split_as_published() {
    let text = "HelloWorld's 12345 กำ.x 日本ab\n";
    let gpt = ["Hello", "World's", " ", "123", "45", " กำ", ".x", " 日本ab", "\n"];
    let deepseek = ["HelloWorld", "'s", " ", "123", "45", " กำ", ".x", " ", "日本", "ab", "\n"];
    let qwen = ["HelloWorld", "'s", " ", "1", "2", "3", "4", "5", " กำ", ".x", " 日本ab", "\n"];
    for (pre, words) in [("gpt-4o", &gpt[..]), ("deepseek-v3", &deepseek[..]), ("qwen35", &qwen[..])] {
        let found = gguf_words(pre, text, words);
        assert_eq!(found, words, "{pre}");
    }
    // Signs for units of the kind of letters, ends of lines alone, and spaces at the end of a part.
    let text = "a  b \r\n\tK[x] Ωmega Привет+30%! ℓ 日한";
    let words =
        ["a", " ", " b", " ", "\r", "\n", "\tK", "[", "x", "]", " Ω", "mega", " Привет", "+", "3", "0"];
    let rest = ["%!", " ", "ℓ", " ", "日한"];
    let words = [&words[..], &rest].concat();
    assert_eq!(gguf_words("deepseek-llm", text, &words), words);
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
        let options = TextOptions {
            stop_words: stop.iter().map(|word| word.to_string()).collect(),
            ..Default::default()
        };
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

/// A template and what `transformers` makes of it: a text, or nothing where it refuses it.
type TemplateCase = (String, Option<String>);

#[derive(serde::Deserialize)]
struct Templates {
    variables: serde_json::Value,
    cases: Vec<TemplateCase>,
}

/// The fixture is of `scripts/model_fixtures/chat_templates.py`.
#[test]
fn chat_templates_give_the_texts_of_transformers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chat_templates.json");
    let Templates { variables, cases } =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(cases.len() > 450);
    for (source, expected) in cases {
        let found = ChatTemplate::new(&source).and_then(|template| template.render_with(&variables));
        assert_eq!(found.as_ref().ok(), expected.as_ref(), "{source:?}: {found:?}");
    }
}

/// The texts are those of `apply_chat_template` in transformers 5.24.
#[test]
fn variables_of_a_chat_template_are_those_of_transformers() {
    let render = |source: &str, messages: &[Message]| {
        ChatTemplate::new(source).unwrap().render(messages, true, None, Some("</s>")).unwrap()
    };
    let hi = [Message::user("Hi <b>")];
    assert_eq!(render("{{ bos_token }}|{{ eos_token }}", &hi), "|</s>");
    assert_eq!(render("{% if tools is not none %}tools{% endif %}{{ documents }}", &hi), "None");
    assert_eq!(render("{{ messages | tojson }}", &hi), r#"[{"role": "user", "content": "Hi <b>"}]"#);
    let year: u32 = render("{{ strftime_now('%Y') }}", &hi).parse().unwrap();
    assert!(year >= 2026);
    // Fields keep their order.
    #[derive(serde::Serialize)]
    struct Tool {
        name: &'static str,
        arguments: [i32; 2],
        about: Option<&'static str>,
    }
    #[derive(serde::Serialize)]
    struct Variables {
        tools: [Tool; 1],
    }
    let tools = Variables { tools: [Tool { name: "clock", arguments: [1, 2], about: None }] };
    let template = ChatTemplate::new("{{ tools[0] | tojson }}{{ tools[0] }}{{ documents is none }}").unwrap();
    assert_eq!(
        template.render_with(&tools).unwrap(),
        r#"{"name": "clock", "arguments": [1, 2], "about": null}{'name': 'clock', 'arguments': [1, 2], 'about': None}True"#
    );
    assert!(template.render_with(&5).is_err());
}

/// Templates that would take memory or time without end, or the stack.
#[test]
fn a_chat_template_has_limits() {
    let nested = |begin: &str, end: &str| format!("{{{{ {}1{} }}}}", begin.repeat(5000), end.repeat(5000));
    let doubled = |step: &str| {
        format!(
            "{{% set n = namespace(x='ab', l=[1]) %}}{{% for i in range(60) %}}{{% set {step} %}}{{% endfor %}}"
        )
    };
    let by_macro = "{% macro d(x) %}{{ x }}{{ x }}{% endmacro %}".to_string() + &doubled("n.x = d(n.x)");
    let sources = [
        "{{ 'a' | indent(10 ** 10) }}",
        "{{ 'a' | center(10 ** 10) }}",
        "{{ [1] | batch(10 ** 10, 0) }}",
        "{{ [1] | slice(10 ** 10) }}",
        "{{ '%10000000000d' | format(1) }}",
        "{{ '%.10000000000f' % 1 }}",
        "{{ '{:>10000000000}'.format(1) }}",
        "{{ [[1]] | tojson(indent=10 ** 10) }}",
        "{{ 'a' * 10 ** 10 }}",
        "{{ [1] * 10 ** 10 }}",
        "{{ 'a'.zfill(10 ** 10) }}",
        "{{ range(10 ** 10) }}",
        "{{ 10 ** 10 ** 10 }}",
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro g(h) %}{{ h(h) }}{% endmacro %}{{ g(g) }}",
        &doubled("n.x = n.x ~ n.x"),
        &doubled("n.x = n.x + n.x"),
        &doubled("n.l = n.l + n.l"),
        &doubled("n.x = n.x | replace('a', 'aa')"),
        &(doubled("n.l = [n.l, n.l]") + "{{ n.l }}"),
        &(doubled("n.l = [n.l, n.l]") + "{{ n.l | tojson }}"),
        &(doubled("n.l = [n.l, n.l]")
            + "{% set m = n.l %}"
            + &doubled("n.l = [n.l, n.l]")
            + "{{ n.l == m }}"),
        &doubled("n.l = [n.l]").replace("60", "5000"),
        &by_macro,
        &nested("(", ")"),
        &nested("[", "]"),
        &nested("-", ""),
        &nested("not ", ""),
        &nested("", "+1"),
        &nested("", "|abs"),
        &nested("", " if 1 else 1"),
        &"{% if 1 %}".repeat(5000),
    ];
    for source in sources {
        let mut template = match ChatTemplate::new(source) {
            Ok(template) => template,
            Err(error) => {
                let error = error.to_string();
                assert!(["nested deeper", "in a row"].iter().any(|limit| error.contains(limit)), "{error}");
                continue;
            }
        };
        template.set_limits(TemplateLimits { steps: 200_000, bytes: 1 << 20 });
        let error = template.render(&[], false, None, None).unwrap_err().to_string();
        let limits =
            ["steps", "bytes of texts", "nested deeper", "digits of a number", "at most 100000", "too large"];
        assert!(
            limits.iter().any(|limit| error.contains(limit)),
            "{}: {error}",
            &source[..source.len().min(80)]
        );
    }
    let template = ChatTemplate::new("{{ 'abc'.count('') }}{{ [] * 10 ** 10 }}").unwrap();
    assert_eq!(template.render(&[], false, None, None).unwrap(), "4[]");
    // The limits are those of one rendering.
    let mut template = ChatTemplate::new("{{ 'ab' * 300 }}").unwrap();
    template.set_limits(TemplateLimits { steps: 100, bytes: 4000 });
    assert!((0..50).all(|_| template.render(&[], false, None, None).is_ok()));
}

/// A folder with the tokenizer of words, and further files.
fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tokenizers/word_pieces.json");
    std::fs::copy(path, folder.path().join("tokenizer.json")).unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

#[test]
fn a_chat_template_that_is_not_valid_is_an_error_when_it_is_used() {
    let config = r#"{"chat_template": "a\n{% for %}", "cls_token": "[CLS]"}"#;
    let folder = folder_with(&[("tokenizer_config.json", config)]);
    let mut tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!(tokenizer.encode("the", true).unwrap().tokens.first().unwrap(), "[CLS]");
    let error = tokenizer.chat(&[], false).unwrap_err().to_string();
    assert!(error.contains("cannot be used") && error.contains("line 2: expected a name"), "{error}");
    assert!(tokenizer.template().is_none());
    tokenizer.set_template(ChatTemplate::new("{{ cls_token }}{{ mask_token }}").unwrap());
    assert_eq!(tokenizer.chat(&[], false).unwrap(), "[CLS]");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.gguf");
    let texts = |texts: &[&str]| GgufValue::Array(GgufArray::Text(texts.iter().map(|&t| t.into()).collect()));
    GgufWriter::new()
        .metadata("general.architecture", "llama")
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.tokens", texts(&["a", "b", "ab"]))
        .metadata("tokenizer.ggml.merges", texts(&["a b"]))
        .metadata("tokenizer.ggml.padding_token_id", 1u32)
        .metadata("tokenizer.chat_template", "{% if %}")
        .metadata("tokenizer.chat_template.tool_use", "{{ tools | length }}{{ pad_token }}")
        .save(&path)
        .unwrap();
    let tokenizer = Tokenizer::from_folder(&path).unwrap();
    assert_eq!(tokenizer.encode("ab", false).unwrap().ids, [2]);
    assert!(tokenizer.chat(&[], false).unwrap_err().to_string().contains("expected an expression"));
    let tools = serde_json::json!({"tools": ["a", "b"]});
    assert_eq!(tokenizer.chat_with(&[], false, &tools).unwrap(), "2b");
}

#[test]
fn a_folder_has_its_chat_template_in_one_of_several_files() {
    let chat = |files: &[(&str, &str)]| {
        let folder = folder_with(files);
        let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
        let tools = serde_json::json!({"tools": [1]});
        (
            tokenizer.chat(&[], true).map_err(|error| error.to_string()),
            tokenizer.chat_with(&[], true, &tools).ok(),
        )
    };
    let json = ("chat_template.json", r#"{"chat_template": "json"}"#);
    let config = ("tokenizer_config.json", r#"{"chat_template": "config"}"#);
    let jinja = ("chat_template.jinja", "jinja\r\n{% if true %}\r\nx{% endif %}\r\n");
    let more = ("additional_chat_templates/tool_use.jinja", "more");
    let list = r#"{"chat_template": [{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}]}"#;
    let found = |text: &str, tools: &str| (Ok(text.to_string()), Some(tools.to_string()));
    assert_eq!(chat(&[json]), found("json", "json"));
    assert_eq!(chat(&[json, config]), found("config", "config"));
    assert_eq!(chat(&[json, config, jinja, more]), found("jinja\nx", "more"));
    assert_eq!(chat(&[("tokenizer_config.json", list)]), found("one", "two"));
    let named = r#"{"chat_template": [{"name": "rag", "template": "one"}]}"#;
    let (error, _) = chat(&[("tokenizer_config.json", named)]);
    assert!(error.unwrap_err().contains("no chat template, only rag"));
}

/// A tokenizer of pieces as Llama's `tokenizer.json` has it: bytes, and spaces as ▁.
fn pieces() -> Tokenizer {
    let mut vocabulary: BTreeMap<String, usize> =
        (0..256).map(|byte| (format!("<0x{byte:02X}>"), byte)).collect();
    for (k, piece) in ["▁Hi", "▁there", "▁", "a", "<|im_end|>"].iter().enumerate() {
        vocabulary.insert(piece.to_string(), 256 + k);
    }
    let document = serde_json::json!({
        "version": "1.0",
        "added_tokens": [{"id": 260, "content": "<|im_end|>", "single_word": false, "lstrip": false,
                          "rstrip": false, "normalized": false, "special": true}],
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": true},
    });
    Tokenizer::from_json(document.to_string().as_bytes()).unwrap()
}

#[test]
fn a_stream_of_tokens_has_the_text_of_all() {
    let tokenizer = pieces();
    let stream = |ids: &[u32]| {
        let mut decoder = TextDecoder::new(&tokenizer);
        let mut text: String = ids.iter().map(|id| decoder.push(*id).unwrap()).collect();
        text += &decoder.finish().unwrap();
        text
    };
    let (hi, there, space, a, end) = (256, 257, 258, 259, 260);
    for ids in [
        vec![hi, end, there],
        vec![end, hi, end, end, there, space, space, hi],
        vec![hi, 0xe5, end, 0x8c, 0x97, there],
        vec![space, space, there, 0xe5, 0x8c, a, there],
        vec![0xe5, 0xe5, 0xe5, 0xe5, 0xe5, 0xe5, 0xe5, a],
    ] {
        assert_eq!(stream(&ids), tokenizer.decode(&ids, true).unwrap(), "{ids:?}");
    }
    // The whole text gives up a character beside a broken byte, which the stream gave already.
    assert_eq!(
        tokenizer.decode(&[0xe5, 0x8c, 0x97, 0x80, a, there], true).unwrap(),
        "\u{fffd}\u{fffd}\u{fffd}\u{fffd}a there"
    );
    assert_eq!(stream(&[0xe5, 0x8c, 0x97, 0x80, a, there]), "北\u{fffd}a there");
}

#[test]
fn a_batch_that_is_cut_keeps_what_belongs_to_its_texts() {
    let device = backend_cpu::cpu();
    let ids = |tokenizer: &Tokenizer, text: &str, length: usize| {
        let (ids, mask) = tokenizer.encode_batch(&[text, ""], length, &device).unwrap();
        assert_eq!(ids.dims(), mask.dims());
        let ids = ids.to_vec::<i32>().unwrap();
        ids[..ids.len() / 2].iter().map(|&id| id as u32).collect::<Vec<u32>>()
    };
    // No token ends a text.
    let plain = pieces();
    assert_eq!(ids(&plain, "aéa", 3), plain.encode("aéa", true).unwrap().ids[..3]);
    let begins = gguf_tokenizer("gpt-2");
    assert_eq!(ids(&begins, "hello", 3), begins.encode("hello", true).unwrap().ids[..3]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tokenizers/word_pieces.json");
    let both = Tokenizer::from_json(&std::fs::read(path).unwrap()).unwrap();
    let whole = both.encode("the cat the cat", true).unwrap().ids;
    let cut = ids(&both, "the cat the cat", 4);
    assert_eq!((cut.len(), &cut[..3], cut[3]), (4, &whole[..3], whole[whole.len() - 1]));
    let error = both.encode_batch(&["the"], 1, &device).unwrap_err().to_string();
    assert!(error.contains("1 tokens of a text, of which 2 are those around it"), "{error}");
}

/// The expected tokens are those of Hugging Face's tokenizers with the strategy `longest_first`.
#[test]
fn the_longer_text_of_a_pair_is_cut_first() {
    let device = backend_cpu::cpu();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tokenizers/word_pieces.json");
    let tokenizer = Tokenizer::from_json(&std::fs::read(path).unwrap()).unwrap();
    let (long, short) = ("the cat sat on the mat", "hello world");
    let encoded = |pairs: &[(&str, &str)], length: usize| {
        let (ids, types, mask) = tokenizer.encode_pairs_batch(pairs, length, &device).unwrap();
        assert!(ids.dims() == types.dims() && ids.dims() == mask.dims());
        let numbers = |tensor: &Tensor| tensor.to_vec::<i32>().unwrap();
        (numbers(&ids), numbers(&types), mask.to_vec::<bool>().unwrap())
    };
    let cut = |pair, length| encoded(&[pair], length).0;
    assert_eq!(cut((long, short), 99), [3, 47, 60, 66, 65, 47, 62, 4, 54, 56, 4]);
    assert_eq!(cut((long, short), 9), [3, 47, 60, 66, 65, 4, 54, 56, 4]);
    assert_eq!(cut((short, long), 9), [3, 54, 56, 4, 47, 60, 66, 65, 4]);
    assert_eq!(cut((long, short), 6), [3, 47, 60, 4, 54, 4]);
    assert_eq!(cut((short, long), 6), [3, 54, 4, 47, 60, 4]);
    assert_eq!(cut((long, short), 3), [3, 4, 4]);
    let whole = tokenizer.encode_pair(long, short, true).unwrap();
    assert_eq!(cut((long, short), 99), whole.ids.iter().map(|&id| id as i32).collect::<Vec<_>>());
    let (ids, types, mask) = encoded(&[("hello", "the cat"), ("", "cat")], 99);
    assert_eq!(ids, [3, 54, 4, 47, 60, 4, 3, 4, 60, 4, 0, 0]);
    assert_eq!(types, [0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0]);
    assert_eq!(mask.iter().filter(|is_token| !**is_token).count(), 2);
    // Tokenizers that add nothing give the sequences too.
    let (_, types, _) = pieces().encode_pairs_batch(&[("a", "aa")], 99, &device).unwrap();
    let types = types.to_vec::<i32>().unwrap();
    assert_eq!((types[0], types[types.len() - 1]), (0, 1));
    let error = tokenizer.encode_pairs_batch(&[(long, short)], 2, &device).unwrap_err().to_string();
    assert!(error.contains("2 tokens of a text, of which 3 are those around it"), "{error}");
    let none: [(&str, &str); 0] = [];
    assert!(tokenizer.encode_pairs_batch(&none, 9, &device).is_err());
}

/// Numbers in a document that would take gigabytes.
#[test]
fn a_tokenizer_takes_no_more_than_its_file() {
    let document = |normalizer: serde_json::Value, decoder: serde_json::Value| {
        let document = serde_json::json!({
            "version": "1.0", "added_tokens": [], "normalizer": normalizer, "decoder": decoder,
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
        });
        Tokenizer::from_json(document.to_string().as_bytes())
    };
    let table = |text: &str| serde_json::json!({"type": "Precompiled", "precompiled_charsmap": text});
    let none = serde_json::Value::Null;
    let refused = |normalizer: serde_json::Value, decoder: serde_json::Value, message: &str| {
        let error = document(normalizer, decoder).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    };
    // An array of 4 GB in a table of 6 bytes.
    refused(table("/P///wAA"), none.clone(), "of 6 bytes has an array of 4294967292");
    let nested = serde_json::json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, table("/P///wAA")]});
    refused(nested, none.clone(), "of 6 bytes has an array of 4294967292");
    refused(table("AAA"), none.clone(), "of 2 bytes has an array of 0");
    refused(table("!"), none.clone(), "is no base64");
    refused(table(&("AAAA".to_string() + &"YWFh".repeat(400))), none.clone(), "an array of");
    refused(table(&("AAAAAGFh".to_string() + &"YWFh".repeat(400))), none.clone(), "by 1202 bytes");
    // Each of 40 replacements doubles a text.
    let doubles = serde_json::json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let all = |name: &str, kind: &str| serde_json::json!({"type": "Sequence", kind: vec![&doubles; 40], "name": name});
    refused(
        all("n", "normalizers"),
        none.clone(),
        "the normalizer may make a text more than 1024 times longer",
    );
    refused(none.clone(), all("d", "decoders"), "the decoder may make a text more than 1024 times longer");
    let space = serde_json::json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    assert!(document(space, none).is_ok());
}

/// Prompts are masked, answers with the token that ends them are learnt, and labels are one place ahead.
#[test]
fn chat_examples_learn_answers_alone() {
    let mut tokenizer = gguf_tokenizer("gpt-2");
    tokenizer.set_template(
        ChatTemplate::new(
            "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ eos_token }}{% endfor %}\
                 {% if add_generation_prompt %}a:{% endif %}",
        )
        .unwrap(),
    );
    let lines = r#"{"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "BC"}]}
{"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"},
"#
    .replace(",\n", r#", {"role": "user", "content": "D"}, {"role": "assistant", "content": "EF"}]}"#);
    let examples = ChatExamples::from_json_lines(&lines, &tokenizer).unwrap();
    let learnt = |example: &ChatExample| {
        let answers = example.ids().iter().zip(example.answers());
        let ids: Vec<u32> = answers.filter(|(_, is_answer)| **is_answer).map(|(id, _)| *id).collect();
        tokenizer.decode(&ids, false).unwrap()
    };
    assert_eq!((examples.len(), learnt(&examples[0]).as_str()), (2, "BC<|end|>"));
    assert_eq!(learnt(&examples[1]), "B<|end|>EF<|end|>");
    assert_eq!(examples[1].answer_tokens(), 5);

    for device in crate::devices() {
        let batch = examples.batch(&[0, 1], &device).unwrap();
        assert_eq!((batch.answer_tokens(), batch.ids().dims()), (8, &[2, 16][..]));
        let (ids, labels) = (batch.ids().to_vec2::<i32>().unwrap(), batch.labels().unwrap());
        let labels = labels.to_vec2::<i32>().unwrap();
        for (row, example) in examples.iter().enumerate() {
            for at in 0..16 {
                let next = example.ids().get(at + 1).filter(|_| example.answers()[at + 1]);
                assert_eq!(labels[row][at], next.map_or(-100, |id| *id as i32), "row {row}, place {at}");
                let own = if at + 1 < example.ids().len() { example.ids()[at] as i32 } else { 0 };
                assert_eq!(ids[row][at], own);
            }
        }
        let config = LlamaConfig {
            vocab_size: 300,
            hidden_size: 16,
            intermediate_size: 32,
            num_hidden_layers: 1,
            num_attention_heads: 2,
            ..Default::default()
        };
        let model = Llama::new(&config, &Generator::seed(0, &device)).unwrap();
        let logits = model.forward(batch.ids()).unwrap().reshape((32, 300)).unwrap();
        let loss = nn::CrossEntropyLoss { reduction: nn::Reduction::Sum, ..Default::default() };
        let by_labels = loss.forward(&logits, &batch.labels().unwrap().flatten(0, 1).unwrap()).unwrap();
        let (found, expected) =
            (batch.loss(&model).unwrap().item_f64().unwrap(), by_labels.item_f64().unwrap());
        assert!((found - expected).abs() < 1e-3 * expected, "{found}, not {expected}");
    }

    let refused = |lines: &str| ChatExamples::from_json_lines(lines, &tokenizer).unwrap_err().to_string();
    assert!(refused("").contains("no conversations"));
    assert!(refused("{}").contains("line 1"));
    let question = r#"{"messages": [{"role": "user", "content": "A"}]}"#;
    assert!(refused(&format!("{}\n{question}", lines.lines().next().unwrap())).contains("line 2: "));
    assert!(ChatBatch::new(&[], &backend_cpu::cpu()).is_err());
}
