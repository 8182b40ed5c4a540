//! An engine with many texts gives each the tokens that it gets alone.

mod adapters;

use std::collections::BTreeMap;

use autograd::no_grad;
use models::{
    KvCache, LanguageModel, Llama, LlamaConfig, PackedRows, WeightSource,
    generate::{
        GenerationConfig, LogitsRule, SamplingConfig, Token, generate, log_probabilities,
        log_probabilities_in,
    },
    load_language_model,
    serving::{Engine, EngineConfig, Event, FinishReason, OwnedModel, Request, RequestId},
};
use nn::{Module, StateDict};
use taper_testing::run_alone;
use tensor_core::{Device, Error, Generator, GgmlType, Tensor};

use crate::{devices, fixture::Fixture};

fn model(name: &str, device: &Device) -> OwnedModel {
    load_language_model(Fixture::open(name).folder(), device).unwrap()
}

fn engine(name: &str, device: &Device, config: EngineConfig) -> Engine {
    Engine::new(model(name, device), config).unwrap()
}

fn alone(model: &dyn LanguageModel, request: &Request) -> Vec<Token> {
    generate(model, &request.prompt, &request.config).unwrap().map(Result::unwrap).collect()
}

fn ids(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}

/// The tokens of a request, and its last event.
type Text = (Vec<Token>, Option<Result<FinishReason, Error>>);

/// The events of each request, up to the last.
#[derive(Default)]
struct Texts(BTreeMap<RequestId, Text>);

impl Texts {
    fn step(&mut self, engine: &mut Engine) {
        for (id, event) in engine.step() {
            let (tokens, end) = self.0.entry(id).or_default();
            assert!(end.is_none(), "an event after the last");
            match event {
                Event::Token { token, .. } => tokens.push(token),
                Event::Finished(reason) => *end = Some(Ok(reason)),
                Event::Failed(error) => *end = Some(Err(error)),
            }
        }
    }

    fn run(&mut self, engine: &mut Engine) {
        while !engine.is_idle() {
            self.step(engine);
        }
    }

    fn of(&self, id: RequestId) -> &[Token] {
        &self.0[&id].0
    }
}

/// Prompts of different lengths, each with a number of new tokens.
fn requests() -> Vec<Request> {
    [(5, 12), (1, 3), (9, 6), (3, 20), (14, 1), (2, 9), (7, 7)]
        .iter()
        .enumerate()
        .map(|(k, &(length, count))| {
            Request::new((0..length).map(|at| (k * 5 + at * 7) as u32 % 30).collect(), count)
        })
        .collect()
}

#[test]
fn texts_that_join_and_leave_get_their_own_tokens() {
    for device in devices() {
        let names: &[&str] = match device.name() {
            // Windows, soft caps, states in place of tables and learned positions; frequencies that depend on
            // the length, whose texts run one after the other.
            // Newer families have both kinds of layers, sinks, latent features, and keys of other layers.
            "cpu" => &[
                "llama",
                "gemma2",
                "gemma3",
                "mistral",
                "gpt2",
                "mamba",
                "rwkv7",
                "phi3_longrope",
                "gpt_oss",
                "deepseek_v2",
                "gemma4",
                "lfm2",
                "qwen3_5",
            ],
            _ => &["llama", "rwkv7"],
        };
        for name in names {
            let lone = model(name, &device);
            // Parts of a prompt are shorter than some prompts, and there are more texts than rows.
            let config = EngineConfig { max_sequences: 4, prompt_chunk: 4, ..Default::default() };
            let mut engine = engine(name, &device, config);
            let (mut texts, mut added) = (Texts::default(), Vec::new());
            for request in requests() {
                added.push((engine.add(request.clone()).unwrap(), request));
                texts.step(&mut engine);
                texts.step(&mut engine);
            }
            texts.run(&mut engine);
            for (id, request) in added {
                let what = format!("{name} on {device}: {:?}", request.prompt);
                assert_eq!(ids(texts.of(id)), ids(&alone(&*lone, &request)), "{what}");
                assert!(matches!(texts.0[&id].1, Some(Ok(FinishReason::Length))), "{what}");
            }
        }
    }
}

#[test]
fn one_text_at_a_time_is_that_of_generate_to_the_bit() {
    let device = backend_cpu::cpu();
    let lone = model("llama", &device);
    let config = EngineConfig { max_sequences: 1, kept_bytes: 0, ..Default::default() };
    let mut engine = engine("llama", &device, config);
    let mut texts = Texts::default();
    let sampling = SamplingConfig { temperature: 0.8, top_k: 9, seed: 4, ..Default::default() };
    let all: Vec<_> = requests()
        .into_iter()
        .map(|mut request| {
            request.config.sampling = sampling.clone();
            (engine.add(request.clone()).unwrap(), request)
        })
        .collect();
    texts.run(&mut engine);
    for (id, request) in all {
        assert_eq!(texts.of(id), alone(&*lone, &request));
    }
}

/// A model whose layers have weights in blocks.
fn in_blocks(format: GgmlType, device: &Device) -> Llama {
    let width = format.block_elements();
    let config = LlamaConfig {
        vocab_size: 40,
        hidden_size: width,
        intermediate_size: 2 * width,
        num_hidden_layers: 2,
        num_attention_heads: width / 16,
        num_key_value_heads: Some(width / 32),
        ..Default::default()
    };
    let random = Llama::new(&config, &Generator::seed(3, device)).unwrap();
    let quantized = |(name, tensor): (String, Tensor)| match tensor.dims().len() {
        2 => (name, tensor.quantize(format, None).unwrap()),
        _ => (name, tensor),
    };
    let state: StateDict = random.state_dict().into_iter().map(quantized).collect();
    Llama::new(&config, WeightSource::state_dict(state, device)).unwrap()
}

#[test]
fn a_text_has_the_same_bits_beside_others() {
    // The form of products is that of a process.
    if run_alone(a_text_has_the_same_bits_beside_others) {
        return;
    }
    let device = backend_cpu::cpu();
    // Prompts that take several steps, and tables that are copied at other positions than those of a lone
    // text. The last ones begin as others do.
    let prompt = |k: usize, length: usize| (0..length).map(|at| ((k * 5 + at * 7) % 40) as u32).collect();
    let mut requests: Vec<Request> = [(5, 12), (150, 30), (9, 90), (70, 3), (64, 20), (33, 9), (2, 40)]
        .iter()
        .enumerate()
        .map(|(k, &(length, count))| Request::new(prompt(k, length), count))
        .collect();
    requests
        .extend([(1, 170, 8), (4, 90, 5)].map(|(k, length, count)| Request::new(prompt(k, length), count)));
    for (format, int8) in [(GgmlType::Q4_1, false), (GgmlType::Q4_K, false), (GgmlType::Q8_0, true)] {
        backend_cpu::set_int8_activations(int8);
        let run = |config: EngineConfig, requests: &[Request]| {
            let mut engine = Engine::new(Box::new(in_blocks(format, &device)), config).unwrap();
            let mut texts = Texts::default();
            let mut added = Vec::new();
            for request in requests {
                added.push(engine.add(request.clone()).unwrap());
                texts.step(&mut engine);
                texts.step(&mut engine);
            }
            texts.run(&mut engine);
            let texts: Vec<Vec<Token>> = added.iter().map(|id| texts.of(*id).to_vec()).collect();
            (texts, engine.counts().reused)
        };
        let config = EngineConfig { max_sequences: 6, prompt_chunk: 24, ..Default::default() };
        let (together, reused) = run(config, &requests);
        assert!(reused > 100, "{reused}");
        for (request, together) in requests.iter().zip(&together) {
            let (alone, _) = run(EngineConfig::default(), std::slice::from_ref(request));
            assert_eq!(*together, alone[0], "{format:?}, {} tokens", request.prompt.len());
        }
    }
}

/// A model with heads of 16 numbers, in whose layers a query sees `window` positions.
fn with_wide_heads(window: Option<usize>, device: &Device) -> Llama {
    let config = LlamaConfig {
        model_type: if window.is_some() { "mistral" } else { "llama" }.into(),
        vocab_size: 30,
        hidden_size: 64,
        intermediate_size: 64,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        sliding_window: window,
        ..Default::default()
    };
    Llama::new(&config, &Generator::seed(8, device)).unwrap()
}

/// The greatest difference of two lists.
fn farthest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

const FORMS: [(Option<PackedRows>, f64, usize); 3] =
    [(None, 1e-4, 64), (Some(PackedRows::Eight), 0.05, 18), (Some(PackedRows::Four), 0.7, 12)];

#[test]
fn packed_caches_are_near_those_in_floats() {
    for device in devices() {
        for window in [None, Some(90)] {
            let model = with_wide_heads(window, &device);
            let text: Vec<u32> = (0..200).map(|at| (at * at * 7 + at) % 30).collect();
            let expected = log_probabilities(&model, &text).unwrap();
            for (packed, bound, bytes) in FORMS {
                let cache = model.new_cache().packed(packed).unwrap();
                let found = log_probabilities_in(&model, cache.clone(), &text).unwrap();
                let error = farthest(&found, &expected);
                assert!(error < bound, "{packed:?}, window {window:?} on {device}: {error}");
                // Rows that were rounded are not those in floats.
                assert!(packed.is_none() || error > 1e-4, "{packed:?} on {device}: {error}");
                // Prompts that are read at once, and steps of one token after them.
                let mut cache = cache;
                let mut after = |tokens: &[u32], next| after_in(&model, &mut cache, tokens, next);
                let first = after(&text[..130], text[130]);
                let mut last = first;
                for at in 130..133 {
                    last = after(&text[at..=at], text[at + 1]);
                }
                let error = farthest(&[first, last], &[expected[129], expected[132]]);
                assert!(error < bound, "{packed:?}, window {window:?} on {device}: {error}");
                if window.is_none() {
                    // 256 rows for keys and values of two groups in two layers.
                    assert_eq!(cache.bytes(), 256 * 2 * 2 * 2 * bytes, "{packed:?}");
                    assert!(cache.clone().packed(PackedRows::Four).is_err(), "it has positions");
                    // A text that goes back, and one that is forgotten, keep the form.
                    cache.truncate(100).unwrap();
                    let error =
                        (after_in(&model, &mut cache, &text[100..101], text[101]) - expected[100]).abs();
                    assert!(error < bound, "{packed:?} on {device}: {error}");
                    cache.clear();
                    let mut again = model.new_cache().packed(packed).unwrap();
                    let read = |cache| after_in(&model, cache, &text[..70], text[70]);
                    assert_eq!(read(&mut cache), read(&mut again));
                    assert_eq!(cache.bytes(), again.bytes());
                }
            }
        }
        // Heads of 4 numbers are refused by the first step.
        let narrow = model("llama", &device);
        let cache = narrow.new_cache().packed(PackedRows::Eight).unwrap();
        let error = log_probabilities_in(&*narrow, cache, &[1, 2, 3]).unwrap_err().to_string();
        assert!(error.contains("multiples of 16"), "{error}");
    }
}

/// The logarithm of the probability of `next` after tokens that join a cache.
fn after_in(model: &Llama, cache: &mut KvCache, tokens: &[u32], next: u32) -> f64 {
    let ids: Vec<i32> = tokens.iter().map(|id| *id as i32).collect();
    let ids = Tensor::from_vec(ids, [1, tokens.len()], &model.device()).unwrap();
    let logits = no_grad(|| model.next_logits(&ids, cache)).unwrap();
    logits.log_softmax(-1).unwrap().to_f64_vec().unwrap()[next as usize]
}

#[test]
fn texts_share_a_batch_with_packed_caches() {
    let device = backend_cpu::cpu();
    let prompt = |k: usize, length: usize| (0..length).map(|at| ((k * 5 + at * 7) % 30) as u32).collect();
    let requests: Vec<Request> = [(5, 12), (150, 30), (9, 90), (70, 3), (150, 20)]
        .iter()
        .enumerate()
        .map(|(k, &(length, count))| Request::new(prompt(k % 3, length), count))
        .collect();
    for (packed, bound, _) in FORMS {
        let config = EngineConfig { max_sequences: 3, prompt_chunk: 24, packed, ..Default::default() };
        let mut engine = Engine::new(Box::new(with_wide_heads(None, &device)), config).unwrap();
        let mut texts = Texts::default();
        let mut added = Vec::new();
        for request in &requests {
            // The last text begins as an earlier one, which has ended.
            if added.len() + 1 == requests.len() {
                texts.run(&mut engine);
            }
            added.push((engine.add(request.clone()).unwrap(), request));
            texts.step(&mut engine);
        }
        texts.run(&mut engine);
        assert!(engine.counts().reused > 100);
        let lone = with_wide_heads(None, &device);
        for (id, request) in added {
            let found: Vec<f64> = texts.of(id).iter().map(|token| token.log_probability).collect();
            let whole = [&request.prompt[..], &ids(texts.of(id))].concat();
            let all = log_probabilities(&lone, &whole).unwrap();
            let error = farthest(&found, &all[request.prompt.len() - 1..]);
            assert!(error < bound, "{packed:?}: {error}");
        }
    }
}

#[test]
fn beginnings_of_earlier_texts_are_not_read_again() {
    for device in devices() {
        // The states of mamba cannot go back to a shorter beginning.
        for (name, is_reused) in [("llama", true), ("gemma3", false), ("mamba", false)] {
            let lone = model(name, &device);
            let mut engine = engine(name, &device, EngineConfig::default());
            let first = Request::new((0..20).collect(), 6);
            let id = engine.add(first.clone()).unwrap();
            let mut texts = Texts::default();
            texts.run(&mut engine);
            // The next message of a conversation, and another one after the same beginning.
            let answer = ids(texts.of(id));
            let next = [&first.prompt[..], &answer, &[7, 8, 9]].concat();
            let other = [&first.prompt[..18], &[1, 1]].concat();
            let requests = [Request::new(next, 5), Request::new(other, 5)];
            let all = requests.map(|request| (engine.add(request.clone()).unwrap(), request));
            texts.run(&mut engine);
            let what = format!("{name} on {device}");
            for (id, request) in all {
                assert_eq!(ids(texts.of(id)), ids(&alone(&*lone, &request)), "{what}");
            }
            // The last token of the answer had not joined the cache.
            let expected = 20 + 5 + 18;
            let reused = engine.counts().reused;
            assert!(if is_reused { reused == expected } else { reused <= expected }, "{what}: {reused}");
            assert_eq!(engine.counts().read + reused, 20 + 29 + 20, "{what}");
        }
    }
}

#[test]
fn a_request_that_ends_early_leaves_the_others_as_they_are() {
    let device = backend_cpu::cpu();
    let lone = model("llama", &device);
    let mut engine = engine("llama", &device, EngineConfig::default());
    let steady = Request::new(vec![3, 17, 8, 25, 4], 20);
    let tokens = alone(&*lone, &steady);
    let mut stopped = steady.clone();
    stopped.config.stop_tokens = vec![tokens[3].id];
    let before = tokens.iter().position(|token| token.id == tokens[3].id).unwrap();
    let mut failing = Request::new(vec![9, 2], 20);
    failing.config.logits_rule = Some(LogitsRule::new(|tokens, _| match tokens.len() {
        5.. => Err(Error::invalid("rule", "no token may follow")),
        _ => Ok(()),
    }));
    let mut texts = Texts::default();
    let [cancelled, stopped, failing, steady_id, waiting] =
        [Request::new(vec![5, 6], 100), stopped, failing, steady.clone(), Request::new(vec![1], 5)]
            .map(|request| engine.add(request).unwrap());
    assert_eq!((engine.waiting(), engine.running()), (5, 0));
    engine.cancel(waiting);
    for _ in 0..6 {
        texts.step(&mut engine);
    }
    engine.cancel(cancelled);
    texts.run(&mut engine);
    engine.cancel(steady_id);
    assert_eq!(texts.of(stopped).len(), before);
    assert!(matches!(texts.0[&stopped].1, Some(Ok(FinishReason::Stop))));
    assert_eq!(texts.of(failing).len(), 3);
    let error = texts.0[&failing].1.clone().unwrap().unwrap_err().to_string();
    assert!(error.contains("no token may follow"), "{error}");
    assert_eq!(ids(texts.of(steady_id)), ids(&tokens));
    assert!(texts.of(cancelled).len() < 20 && texts.0[&cancelled].1.is_none());
    assert!(!texts.0.contains_key(&waiting));
}

#[test]
fn the_most_likely_tokens_come_with_each() {
    let mut engine = engine("llama", &backend_cpu::cpu(), EngineConfig::default());
    engine.add(Request { top_tokens: 3, ..Request::new(vec![3, 17], 4) }).unwrap();
    let mut count = 0;
    while !engine.is_idle() {
        for (_, event) in engine.step() {
            let Event::Token { token, top } = event else { continue };
            assert_eq!(top[0], token, "the most likely token was chosen");
            assert_eq!(top.len(), 3);
            assert!(top.is_sorted_by(|a, b| a.log_probability >= b.log_probability));
            count += 1;
        }
    }
    assert_eq!(count, 4);
}

#[test]
fn requests_that_cannot_run_are_refused() {
    let device = backend_cpu::cpu();
    let config = EngineConfig { max_positions: 20, ..Default::default() };
    let mut engine = engine("llama", &device, config);
    let hot = SamplingConfig { temperature: -1.0, ..Default::default() };
    let hot = GenerationConfig { sampling: hot, ..Default::default() };
    for (request, message) in [
        (Request::new(vec![], 1), "0 tokens: give at least 1"),
        (Request::new(vec![1, 4_000_000], 1), "token 4000000 at position 1"),
        (Request::new(vec![1; 15], 6), "15 tokens and 6 new ones, of at most 20 positions"),
        (Request { config: hot, ..Request::new(vec![1], 1) }, "a temperature of -1"),
    ] {
        let error = engine.add(request).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    assert!(engine.is_idle() && engine.step().is_empty());
    // Texts that do not fit at the same time run one after the other; no new tokens are no work.
    let all = [(10, 9), (10, 9), (3, 0)]
        .map(|(length, count)| engine.add(Request::new((0..length).collect(), count)).unwrap());
    let mut texts = Texts::default();
    let mut most = 0;
    while !engine.is_idle() {
        texts.step(&mut engine);
        most = most.max(engine.running());
    }
    assert_eq!(all.map(|id| texts.of(id).len()), [9, 9, 0]);
    assert_eq!(most, 1);
    let none = EngineConfig { max_sequences: 0, ..Default::default() };
    let error = Engine::new(model("llama", &device), none).err().unwrap().to_string();
    assert!(error.contains("0 sequences"), "{error}");
}
