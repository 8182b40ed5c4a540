//! Generation with small random models: the cache agrees with a forward without one, batches with single
//! prompts, recurrent states with both, a seed with itself on every device.

use models::{
    KvCache, LanguageModel, Llama,
    generate::{
        BeamConfig, GenerationConfig, LogitsRule, SamplingConfig, beam_search, generate, generate_batch,
        generate_from, generate_speculative, log_probabilities, perplexity,
    },
    load_language_model,
};
use tensor_core::{Device, Tensor};

use crate::{
    devices,
    fixture::{Fixture, floats},
};

const PROMPT: &[u32] = &[3, 17, 8, 25, 4];

fn model(name: &str, device: &Device) -> Llama {
    Llama::from_folder(Fixture::open(name).folder(), device).unwrap()
}

/// The tokens after a prompt, each the most likely after a forward of the whole text.
fn without_cache<M: LanguageModel + ?Sized>(model: &M, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut text = prompt.to_vec();
    for _ in 0..count {
        let ids: Vec<i32> = text.iter().map(|&id| id as i32).collect();
        let ids = Tensor::from_vec(ids, [1, text.len()], &model.device()).unwrap();
        let logits = model.forward(&ids).unwrap().select(1, -1).unwrap();
        text.push(floats(&logits.argmax_axis(-1, false).unwrap())[0] as u32);
    }
    text.split_off(prompt.len())
}

fn ids(tokens: impl Iterator<Item = tensor_core::Result<models::generate::Token>>) -> Vec<u32> {
    tokens.map(|token| token.unwrap().id).collect()
}

fn most_likely(count: usize) -> GenerationConfig {
    GenerationConfig { max_new_tokens: count, ..Default::default() }
}

#[test]
fn a_cache_gives_the_tokens_of_whole_texts() {
    for device in devices() {
        // Windows of 4 and none, soft caps, biases, tied embeddings, positions that depend on the length.
        // Sinks, latent attention, layers that do not rotate, experts, keys of other layers.
        let newer = ["gpt_oss", "glm4_moe", "deepseek_v2", "deepseek_v3", "olmo3", "smollm3", "gemma4"];
        for name in ["llama", "gemma2", "gemma3", "mistral"].iter().chain(&newer) {
            let model = load_language_model(Fixture::open(name).folder(), &device).unwrap();
            let count = if device.name() == "cpu" { 20 } else { 6 };
            let found = ids(generate(&*model, PROMPT, &most_likely(count)).unwrap());
            assert_eq!(found, without_cache(&*model, PROMPT, count), "{name} on {device}");
        }
    }
}

/// A step is noted once, after the prompt and again where the long tables grow, and is repeated for all other
/// tokens but those at which the tables are merged.
#[test]
fn steps_are_repeated() {
    // A separate device, whose memory other tests do not use.
    let device = Device::new(std::sync::Arc::new(backend_cpu::CpuBackend::new()));
    let dense = ["llama", "gemma2", "gemma3", "mistral", "glm4", "olmo3", "granite", "smollm3", "gemma4"];
    for name in dense.iter().chain(&["gpt2", "gpt_neox", "mamba", "rwkv7", "lfm2", "qwen3_5"]) {
        let model = load_language_model(Fixture::open(name).folder(), &device).unwrap();
        // The positions of GPT-2 end at 64.
        let count = if *name == "gpt2" { 50 } else { 150 };
        let mut generation = generate(&*model, PROMPT, &most_likely(count)).unwrap();
        assert_eq!(generation.by_ref().map(Result::unwrap).count(), count, "{name}");
        let not_repeated = count - generation.repeated_steps();
        assert!((2..=7).contains(&not_repeated), "{name}: {not_repeated} of {count}");
        // Without new memory from the 20th step to the 40th.
        let mut generation = generate(&*model, PROMPT, &most_likely(40)).unwrap();
        let mut after = |count: usize| {
            assert_eq!(generation.by_ref().take(count).map(Result::unwrap).count(), count);
            device.memory().allocated
        };
        let (before, later) = (after(20), after(20));
        assert!(later <= before, "{name}: {} bytes more", later - before);
    }
    // Frequencies that change with the length of the text leave each step its own graph.
    let model = model("phi3_longrope", &device);
    let mut generation = generate(&model, &[9], &most_likely(10)).unwrap();
    assert_eq!((generation.by_ref().count(), generation.repeated_steps()), (10, 0));
}

/// The tokens that `transformers` generates after `[9]`, with a cache: the text passes its original context
/// of 8 tokens, from which on the keys of all positions have other frequencies.
const LONG: &[u32] = &[2, 6, 12, 17, 6, 4, 0, 34, 7, 14, 10, 5, 30, 14, 5, 10];

#[test]
fn a_text_that_passes_the_original_context_is_computed_again() {
    for device in devices() {
        let model = model("phi3_longrope", &device);
        assert_eq!(ids(generate(&model, &[9], &most_likely(16)).unwrap()), LONG, "on {device}");
        // Each row passes it on its own, whatever its padding.
        let prompts = [PROMPT.to_vec(), vec![9], vec![30, 31, 32, 33, 34, 35, 36], (3..15).collect()];
        let found = generate_batch(&model, &prompts, &most_likely(8)).unwrap();
        for (prompt, found) in prompts.iter().zip(found) {
            assert_eq!(found, without_cache(&model, prompt, 8), "{prompt:?} on {device}");
        }
    }
    let model = model("phi3_longrope", &backend_cpu::cpu());
    let text: Vec<i32> = [9].into_iter().chain(LONG.iter().map(|&id| id as i32)).collect();
    let text = Tensor::from_vec(text, [1, 17], &model.device()).unwrap();
    let mut cache = model.new_cache();
    let step = |cache: &mut KvCache, from: usize, to: usize| {
        let found = model.next_logits(&text.narrow(1, from, to - from).unwrap(), cache).unwrap();
        let alone = model.forward(&text.narrow(1, 0, to).unwrap()).unwrap().select(1, -1).unwrap();
        let what = format!("the logits at {to}");
        taper_testing::assert_close(&floats(&found), &floats(&alone), (1e-4, 1e-4), &what);
    };
    // Guesses that are taken back make the text short again.
    for (from, to) in [(0, 3), (3, 7), (7, 11), (11, 12)] {
        step(&mut cache, from, to);
    }
    cache.truncate(6).unwrap();
    for (from, to) in [(6, 7), (7, 8), (8, 9), (9, 17)] {
        step(&mut cache, from, to);
    }
    // Beams take their texts with them.
    let mut cache = model.new_cache();
    let two = Tensor::concat(&[&text, &text.flip([1]).unwrap()], 0).unwrap();
    let _ = model.next_logits(&two.narrow(1, 0, 7).unwrap(), &mut cache).unwrap();
    cache.select(&[1, 0, 1]).unwrap();
    let three = two.index_select(0, &Tensor::new([1i32, 0, 1], &model.device()).unwrap()).unwrap();
    let found = model.next_logits(&three.narrow(1, 7, 4).unwrap(), &mut cache).unwrap();
    let alone = model.forward(&three.narrow(1, 0, 11).unwrap()).unwrap().select(1, -1).unwrap();
    taper_testing::assert_close(&floats(&found), &floats(&alone), (1e-4, 1e-4), "beams");
    // A step that fails where the text is computed again leaves the cache as it was.
    let mut cache = model.new_cache();
    step(&mut cache, 0, 6);
    let strange = Tensor::ones([1, 3], &model.device()).unwrap();
    assert!(model.next_logits(&strange, &mut cache).is_err());
    assert_eq!(cache.len(), 6);
    step(&mut cache, 6, 10);
}

/// The same frequencies in a model of another family.
#[test]
fn long_texts_of_gpt_neox_are_computed_again() {
    let fixture = Fixture::open("gpt_neox");
    let path = fixture.folder().join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["rope_parameters"] = serde_json::json!({
        "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
        "original_max_position_embeddings": 8, "short_factor": [1.0, 1.1], "long_factor": [2.0, 4.0],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    let model = load_language_model(fixture.folder(), &backend_cpu::cpu()).unwrap();
    let found = ids(generate(&*model, PROMPT, &most_likely(16)).unwrap());
    assert_eq!(found, without_cache(&*model, PROMPT, 16));
}

#[test]
fn both_tables_of_a_cache_are_merged_when_one_is_full() {
    let device = backend_cpu::cpu();
    for name in ["llama", "mistral"] {
        let model = model(name, &device);
        // More than twice the rows of the short table, and more than the long one has at first.
        let text: Vec<u32> = (0..150).map(|k| 3 + (7 * k * k + k) % 37).collect();
        let whole =
            Tensor::from_vec(text.iter().map(|&id| id as i32).collect(), [1, text.len()], &device).unwrap();
        let expected = floats(&model.forward(&whole).unwrap());
        let mut cache = model.new_cache();
        let step = |cache: &mut KvCache, from: usize, to: usize| {
            let part = whole.narrow(1, from, to - from).unwrap();
            let found = autograd::no_grad(|| model.next_logits(&part, cache)).unwrap();
            let what = format!("{name}: the logits at {to}");
            taper_testing::assert_close(
                &floats(&found),
                &expected[(to - 1) * 40..to * 40],
                (1e-4, 1e-4),
                &what,
            );
        };
        step(&mut cache, 0, 3);
        (3..140).for_each(|at| step(&mut cache, at, at + 1));
        step(&mut cache, 140, 145);
        (145..150).for_each(|at| step(&mut cache, at, at + 1));
        assert_eq!(cache.len(), 150);
        // Rows that are forgotten are written again, by steps of one token, of few and of many.
        cache.truncate(131).unwrap();
        step(&mut cache, 131, 132);
        step(&mut cache, 132, 148);
        cache.truncate(133).unwrap();
        step(&mut cache, 133, 150);
        if name == "llama" {
            cache.truncate(30).unwrap();
            step(&mut cache, 30, 31);
            step(&mut cache, 31, 40);
            assert!(cache.truncate(120).is_err());
        } else {
            assert!(cache.truncate(60).is_err(), "the window has dropped its positions");
        }
    }
}

/// Steps of few tokens of a batch with padding go into the short table, over its end.
#[test]
fn few_tokens_of_a_batch_go_into_the_short_table() {
    for device in devices() {
        for name in ["llama", "mistral", "gemma2", "gpt_oss", "deepseek_v3", "gemma4"] {
            let model = load_language_model(Fixture::open(name).folder(), &device).unwrap();
            let text: Vec<i32> = (0..2 * 100).map(|k| 3 + (7 * k * k + k) % 37).collect();
            let whole = Tensor::from_vec(text.clone(), [2, 100], &device).unwrap();
            let second = Tensor::from_vec(text[102..].to_vec(), [1, 98], &device).unwrap();
            let (count, mut cache) = (if device.name() == "cpu" { 100 } else { 30 }, model.new_cache());
            cache.set_pads(vec![0, 2]).unwrap();
            let mut at = 0;
            for length in [9, 3, 1, 5].into_iter().chain(std::iter::repeat(7)) {
                if at + length > count {
                    break;
                }
                let part = whole.narrow(1, at, length).unwrap();
                let found = autograd::no_grad(|| model.next_logits(&part, &mut cache)).unwrap();
                at += length;
                let alone = |row: Tensor| floats(&model.forward(&row).unwrap().select(1, -1).unwrap());
                let first = alone(whole.narrow(0, 0, 1).unwrap().narrow(1, 0, at).unwrap());
                let second = alone(second.narrow(1, 0, at - 2).unwrap());
                let what = format!("{name} on {device}: the logits at {at}");
                taper_testing::assert_close(&floats(&found), &[first, second].concat(), (1e-4, 2e-4), &what);
            }
        }
    }
}

#[test]
fn rows_of_a_batch_do_not_see_their_padding() {
    for device in devices() {
        for name in ["llama", "mistral", "gpt_oss", "deepseek_v2", "gemma4"] {
            let model = load_language_model(Fixture::open(name).folder(), &device).unwrap();
            let prompts = [PROMPT.to_vec(), vec![9], vec![30, 31, 32, 33, 34, 35, 36]];
            let found = generate_batch(&*model, &prompts, &most_likely(6)).unwrap();
            for (prompt, found) in prompts.iter().zip(found) {
                assert_eq!(
                    found,
                    ids(generate(&*model, prompt, &most_likely(6)).unwrap()),
                    "{name} on {device}"
                );
            }
        }
    }
}

#[test]
fn a_seed_gives_the_same_tokens_on_every_device() {
    let sampling = SamplingConfig {
        temperature: 0.9,
        top_k: 30,
        top_p: 0.95,
        min_p: 0.01,
        repetition_penalty: 1.1,
        frequency_penalty: 0.1,
        seed: 5,
        ..Default::default()
    };
    let config = GenerationConfig { max_new_tokens: 8, sampling, ..Default::default() };
    let texts: Vec<Vec<u32>> = devices()
        .iter()
        .map(|device| ids(generate(&model("qwen3", device), PROMPT, &config).unwrap()))
        .collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    let other =
        GenerationConfig { sampling: SamplingConfig { seed: 6, ..config.sampling.clone() }, ..config };
    assert_ne!(ids(generate(&model("qwen3", &backend_cpu::cpu()), PROMPT, &other).unwrap()), texts[0]);
}

#[test]
fn a_text_goes_on_from_its_cache_and_ends_at_a_stop_token() {
    let model = model("llama", &backend_cpu::cpu());
    let whole = ids(generate(&model, PROMPT, &most_likely(12)).unwrap());
    let mut first = generate(&model, PROMPT, &most_likely(5)).unwrap();
    assert_eq!(ids(first.by_ref()), whole[..5]);
    let (cache, waiting) = first.into_cache();
    assert_eq!(ids(generate_from(&model, cache, &waiting, &most_likely(7)).unwrap()), whole[5..]);
    let stop = whole.iter().position(|id| *id == whole[6]).unwrap();
    let config = GenerationConfig { stop_tokens: vec![whole[6]], ..most_likely(12) };
    assert_eq!(ids(generate(&model, PROMPT, &config).unwrap()), whole[..stop]);
    assert!(generate(&model, &[], &most_likely(1)).is_err());
    // A token of another model's tokenizer is named before anything is computed.
    let config = most_likely(1);
    for error in [
        generate(&model, &[3, 40], &config).err(),
        generate_batch(&model, &[vec![1], vec![3, 40]], &config).err(),
        beam_search(&model, &[3, 40], &BeamConfig::default()).err(),
        generate_speculative(&model, &model, &[3, 40], 1, &config).err(),
        log_probabilities(&model, &[3, 40]).err(),
    ] {
        let error = error.unwrap().to_string();
        assert!(error.contains("token 40 at position 1 is not one of the model's 40"), "{error}");
        assert!(error.contains("generation.rs"), "{error}");
    }
}

#[test]
fn speculation_gives_the_most_likely_tokens() {
    let device = backend_cpu::cpu();
    let (large, small) = (model("llama", &device), model("llama_linear_rope", &device));
    let expected = ids(generate(&large, PROMPT, &most_likely(15)).unwrap());
    let found = generate_speculative(&large, &small, PROMPT, 3, &most_likely(15)).unwrap();
    assert_eq!(found.tokens, expected);
    // A model agrees with itself.
    let found = generate_speculative(&large, &large, PROMPT, 3, &most_likely(15)).unwrap();
    assert_eq!((found.tokens, found.accepted), (expected, found.guessed));
    // Past the window of both models, and over the end of the short table.
    let (large, small) = (model("mistral", &device), model("llama", &device));
    let expected = ids(generate(&large, PROMPT, &most_likely(90)).unwrap());
    for draft in [&large, &small] {
        let found = generate_speculative(&large, draft, PROMPT, 4, &most_likely(90)).unwrap();
        assert_eq!(found.tokens, expected);
    }
}

/// A temperature draws the same random numbers, and penalties and a rule see the same tokens.
#[test]
fn speculation_gives_the_tokens_of_all_settings() {
    let device = backend_cpu::cpu();
    let (large, small) = (model("llama", &device), model("llama_linear_rope", &device));
    let even = LogitsRule::mask(|tokens| Ok((0..40).map(|id| id % 2 == tokens.len() % 2).collect()));
    let warm = SamplingConfig {
        temperature: 0.9,
        top_p: 0.9,
        repetition_penalty: 1.2,
        seed: 3,
        ..Default::default()
    };
    for (sampling, logits_rule) in
        [(warm.clone(), None), (SamplingConfig::default(), Some(even.clone())), (warm, Some(even))]
    {
        let config = GenerationConfig { sampling, logits_rule, ..most_likely(20) };
        let expected = ids(generate(&large, PROMPT, &config).unwrap());
        for draft in [&large, &small] {
            let found = generate_speculative(&large, draft, PROMPT, 4, &config).unwrap();
            assert_eq!(found.tokens, expected, "{config:?}");
            assert!(found.accepted > 0 || std::ptr::eq(draft, &small));
        }
    }
}

/// Rejected guesses come back from a window, and no guess is past the end of the text.
#[test]
fn speculation_with_many_guesses_stays_in_the_window() {
    let device = backend_cpu::cpu();
    let (large, small) = (model("mistral", &device), model("llama", &device));
    let expected = ids(generate(&large, PROMPT, &most_likely(90)).unwrap());
    let found = generate_speculative(&large, &large, PROMPT, 70, &most_likely(90)).unwrap();
    assert_eq!((found.tokens, found.accepted), (expected.clone(), found.guessed));
    // Nearly all guesses of the other model are wrong, so that a few tokens take long.
    let end = (2..90).find(|&k| !expected[..k].contains(&expected[k])).unwrap();
    for guesses in [70, usize::MAX] {
        let config = GenerationConfig { stop_tokens: vec![expected[end]], ..most_likely(90) };
        let found = generate_speculative(&large, &small, PROMPT, guesses, &config).unwrap();
        assert_eq!(found.tokens, expected[..end], "{guesses} guesses");
    }
    let positions = load_language_model(Fixture::open("gpt2").folder(), &device).unwrap();
    let most = 64 - PROMPT.len() + 1;
    let expected = ids(generate(&*positions, PROMPT, &most_likely(most)).unwrap());
    let found = generate_speculative(&*positions, &*positions, PROMPT, 9, &most_likely(most)).unwrap();
    assert_eq!((found.tokens, found.accepted), (expected, found.guessed));
}

#[test]
fn beams_are_the_most_likely_texts() {
    let device = backend_cpu::cpu();
    let model = model("llama", &device);
    let config = BeamConfig { num_beams: 40, max_new_tokens: 2, ..Default::default() };
    let found = beam_search(&model, PROMPT, &config).unwrap();
    // All texts of two tokens.
    let mut all: Vec<(f64, Vec<u32>)> = Vec::new();
    for first in 0..40u32 {
        let text: Vec<i32> = PROMPT.iter().chain([&first]).map(|&id| id as i32).collect();
        let length = text.len();
        let ids = Tensor::from_vec(text, [1, length], &device).unwrap();
        let logits = model.forward(&ids).unwrap().log_softmax(-1).unwrap();
        let rows = floats(&logits.reshape([length, 40]).unwrap());
        let (before, after) = (&rows[(length - 2) * 40..], &rows[(length - 1) * 40..]);
        all.extend(
            (0..40u32).map(|second| (before[first as usize] + after[second as usize], vec![first, second])),
        );
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (beam, (log_probability, tokens)) in found.iter().zip(&all).take(10) {
        assert_eq!(beam.tokens, *tokens);
        assert!((beam.log_probability - log_probability).abs() < 1e-4);
        assert!((beam.score - log_probability / 2.0).abs() < 1e-4);
    }
    let one = BeamConfig { num_beams: 1, max_new_tokens: 9, ..Default::default() };
    let greedy = ids(generate(&model, PROMPT, &most_likely(9)).unwrap());
    assert_eq!(beam_search(&model, PROMPT, &one).unwrap()[0].tokens, greedy);
    // A rule forbids tokens in all continuations, by those before.
    let alternating = LogitsRule::mask(|tokens| Ok((0..40).map(|id| id % 2 == tokens.len() % 2).collect()));
    let config =
        BeamConfig { logits_rule: Some(alternating), num_beams: 3, max_new_tokens: 3, ..Default::default() };
    let found = beam_search(&model, &[5], &config).unwrap();
    assert_eq!(found.len(), 3);
    for beam in found {
        assert!(beam.tokens.iter().zip([1, 0, 1]).all(|(id, parity)| id % 2 == parity), "{beam:?}");
    }
}

#[test]
fn perplexity_is_the_loss_of_the_reference() {
    let fixture = Fixture::open("llama");
    let device = backend_cpu::cpu();
    let model = Llama::from_folder(fixture.folder(), &device).unwrap();
    let text: Vec<u32> = floats(&fixture.input("ids", &device)).iter().map(|id| *id as u32).collect();
    let rows: Vec<_> = text.chunks(12).map(|row| perplexity(&model, row, 12, 6).unwrap()).collect();
    let mean = rows.iter().map(|row| row.cross_entropy).sum::<f64>() / rows.len() as f64;
    assert!((mean - fixture.output("loss")[0]).abs() < 1e-4);
    // Each token is predicted once, in windows too.
    let windows = perplexity(&model, &text, 8, 3).unwrap();
    assert_eq!(windows.tokens, text.len() - 1);
    assert!((windows.perplexity.ln() - windows.cross_entropy).abs() < 1e-9);
    assert!(log_probabilities(&model, &[1]).is_err() && perplexity(&model, &text, 4, 4).is_err());
}

/// The models with a state in place of keys and values.
const RECURRENT: &[&str] = &["mamba", "mamba_biases", "rwkv7", "lfm2", "lfm2_moe", "qwen3_5", "qwen3_next"];

fn recurrent(name: &str, device: &Device) -> Box<dyn LanguageModel> {
    load_language_model(Fixture::open(name).folder(), device).unwrap()
}

#[test]
fn a_state_gives_the_tokens_of_whole_texts() {
    for device in devices() {
        for name in RECURRENT {
            let model = recurrent(name, &device);
            let found = ids(generate(&*model, PROMPT, &most_likely(12)).unwrap());
            assert_eq!(found, without_cache(&*model, PROMPT, 12), "{name} on {device}");
        }
    }
}

/// Steps of one token and of several, in any order.
#[test]
fn a_state_goes_on_in_steps_of_any_length() {
    for (name, device) in RECURRENT.iter().flat_map(|name| devices().into_iter().map(move |d| (name, d))) {
        let model = recurrent(name, &device);
        let text =
            Tensor::from_vec((0..23).map(|k| 3 + (7 * k * k + k) % 37).collect(), [1, 23], &device).unwrap();
        let expected = floats(&model.forward(&text).unwrap());
        let (mut cache, mut at) = (model.new_cache(), 0);
        for length in [1, 2, 1, 5, 1, 1, 12] {
            let part = text.narrow(1, at, length).unwrap();
            at += length;
            let found = floats(&autograd::no_grad(|| model.next_logits(&part, &mut cache)).unwrap());
            let what = format!("{name} on {device}: the logits at {at}");
            taper_testing::assert_close(&found, &expected[(at - 1) * 40..at * 40], (1e-4, 1e-4), &what);
        }
        assert_eq!(cache.len(), 23);
        let error = cache.truncate(20).unwrap_err().to_string();
        assert!(error.contains("a recurrent state cannot go back"), "{error}");
        cache.truncate(0).unwrap();
        let whole = floats(&autograd::no_grad(|| model.next_logits(&text, &mut cache)).unwrap());
        taper_testing::assert_close(&whole, &expected[22 * 40..], (1e-4, 1e-4), "after a new beginning");
    }
}

#[test]
fn states_do_not_see_the_padding_of_their_row() {
    for (name, device) in RECURRENT.iter().map(|name| (name, backend_cpu::cpu())) {
        let model = recurrent(name, &device);
        let prompts = [PROMPT.to_vec(), vec![9], vec![30, 31, 32, 33, 34, 35, 36]];
        let found = generate_batch(&*model, &prompts, &most_likely(6)).unwrap();
        for (prompt, found) in prompts.iter().zip(found) {
            assert_eq!(found, ids(generate(&*model, prompt, &most_likely(6)).unwrap()), "{name}");
        }
    }
    let (fixture, device) = (Fixture::open("mamba"), backend_cpu::cpu());
    let model = load_language_model(fixture.folder(), &device).unwrap();
    let mut cache = model.new_cache();
    cache.set_pads(vec![0, 5]).unwrap();
    let found = model.next_logits(&fixture.input("padded", &device), &mut cache).unwrap();
    taper_testing::assert_close(
        &floats(&found),
        &fixture.output("last"),
        (1e-4, 1e-4),
        "the reference's padding",
    );
}

#[test]
fn beams_take_their_states_with_them() {
    let device = backend_cpu::cpu();
    for name in RECURRENT {
        let model = recurrent(name, &device);
        let config = BeamConfig { num_beams: 3, max_new_tokens: 6, ..Default::default() };
        for beam in beam_search(&*model, PROMPT, &config).unwrap() {
            let text: Vec<u32> = PROMPT.iter().chain(&beam.tokens).copied().collect();
            let each = log_probabilities(&*model, &text).unwrap();
            let sum: f64 = each[PROMPT.len() - 1..].iter().sum();
            assert!((sum - beam.log_probability).abs() < 1e-3, "{name}: {sum} and {}", beam.log_probability);
        }
    }
}

#[test]
fn awaited_tokens_are_those_of_the_iterator() {
    let device = backend_cpu::cpu();
    let model = model("llama", &device);
    let expected = ids(generate(&model, PROMPT, &most_likely(12)).unwrap());
    // The token that ends the text is not part of it.
    let at = expected.iter().position(|id| *id != expected[0]).unwrap();
    let ended = GenerationConfig { stop_tokens: vec![expected[at]], ..most_likely(12) };
    for (config, expected) in [(most_likely(12), &expected[..]), (ended, &expected[..at])] {
        let mut tokens = generate(&model, PROMPT, &config).unwrap();
        let mut found = Vec::new();
        while let Some(token) = pollster::block_on(tokens.next_async()) {
            found.push(token.unwrap().id);
        }
        assert_eq!(found, expected);
        assert!(pollster::block_on(tokens.next_async()).is_none());
    }
}

/// After an error a generation is where it was before the step that failed.
#[test]
fn a_generation_goes_on_after_an_error() {
    let device = backend_cpu::logical(7).unwrap();
    let cases = [
        ("llama", 5),
        ("mistral", 5),
        ("mistral", 200),
        ("mamba", 5),
        ("rwkv7", 5),
        ("lfm2", 5),
        ("gemma4", 5),
    ];
    for ((name, first), awaited) in cases.into_iter().flat_map(|case| [(case, false), (case, true)]) {
        let model = load_language_model(Fixture::open(name).folder(), &device).unwrap();
        let prompt: Vec<u32> = (0..first).map(|k| 3 + (7 * k * k + k) % 37).collect();
        let expected = ids(generate(&*model, &prompt, &most_likely(9)).unwrap());
        // The first step of a text, a step of one token, and a step of many after a cache.
        for (before, size) in [(0, 1), (3, 1), (3, 100)] {
            let mut tokens = generate(&*model, &prompt, &most_likely(9)).unwrap();
            assert_eq!(ids(tokens.by_ref().take(before)), expected[..before]);
            let (expected, mut tokens) = match size {
                1 => (expected[before..].to_vec(), tokens),
                _ => {
                    let (cache, waiting) = tokens.into_cache();
                    let more: Vec<u32> = waiting.into_iter().chain((0..size).map(|k| 3 + k % 30)).collect();
                    let again = generate_from(&*model, cache.clone(), &more, &most_likely(6)).unwrap();
                    (ids(again), generate_from(&*model, cache, &more, &most_likely(6)).unwrap())
                }
            };
            // The least limit that the device takes; what it has in use is rounded up.
            let mut limits = (device.memory().allocated..).step_by(256);
            assert!(limits.any(|limit| device.set_memory_limit(limit).is_ok()));
            let failed = match awaited {
                true => pollster::block_on(tokens.next_async()),
                false => tokens.next(),
            };
            device.set_memory_limit(None).unwrap();
            assert!(failed.unwrap().is_err(), "{name} has memory");
            let (cache, waiting) = tokens.into_cache();
            let count = expected.len();
            let found = ids(generate_from(&*model, cache, &waiting, &most_likely(count)).unwrap());
            assert_eq!(found, expected, "{name} after {before} tokens and {size} more");
        }
    }
}

/// A future that is dropped has not chosen its token.
#[test]
fn a_generation_goes_on_after_a_dropped_future() {
    let model = model("llama", &backend_cpu::cpu());
    let expected = ids(generate(&model, PROMPT, &most_likely(6)).unwrap());
    let mut tokens = generate(&model, PROMPT, &most_likely(6)).unwrap();
    let mut found = Vec::new();
    for _ in 0..6 {
        let mut step = Box::pin(tokens.next_async());
        let waker = std::task::Waker::noop();
        let ready = std::future::Future::poll(step.as_mut(), &mut std::task::Context::from_waker(waker));
        drop(step);
        match ready {
            std::task::Poll::Ready(token) => found.push(token.unwrap().unwrap().id),
            std::task::Poll::Pending => found.push(tokens.next().unwrap().unwrap().id),
        }
    }
    assert_eq!(found, expected);
}

/// A step that a model refuses in its middle leaves its cache as it was.
#[test]
fn a_step_that_fails_leaves_the_cache_as_it_was() {
    let device = backend_cpu::cpu();
    let newer = ["gpt_oss", "deepseek_v3", "gemma4", "lfm2", "qwen3_5"];
    for name in ["llama", "mistral", "gpt2", "gpt_neox", "mamba", "rwkv7"].iter().chain(&newer) {
        let model = load_language_model(Fixture::open(name).folder(), &device).unwrap();
        let text: Vec<i32> = (0..60).map(|k| 3 + (7 * k * k + k) % 37).collect();
        let text = Tensor::from_vec(text, [1, 60], &device).unwrap();
        let expected = floats(&model.forward(&text).unwrap());
        let mut cache = model.new_cache();
        let two = Tensor::new([[5i32, 6], [7, 8]], &device).unwrap();
        let many = Tensor::ones([2, 20], (tensor_core::DType::I32, &device)).unwrap();
        for (from, to) in [(0, 20), (20, 21), (21, 30), (30, 60)] {
            if from > 0 {
                for step in [&two, &two.narrow(1, 0, 1).unwrap(), &many] {
                    let error = model.next_logits(step, &mut cache).unwrap_err().to_string();
                    assert!(error.contains("a step of 2 texts for a cache of 1"), "{name}: {error}");
                    // The number of positions is no reason to be refused later.
                    assert_eq!(cache.len(), from);
                }
                // Floats are no tokens; positions past the last are none either.
                assert!(model.next_logits(&Tensor::ones([1, 3], &device).unwrap(), &mut cache).is_err());
                let far = Tensor::ones([1, 5], (tensor_core::DType::I32, &device)).unwrap();
                let far = far.mul_scalar(1e6);
                assert!(model.next_logits(&far, &mut cache).and_then(|x| x.to_f64_vec()).is_err());
                if cache.len() > from {
                    if RECURRENT.contains(name) {
                        cache.truncate(0).unwrap();
                        let _ = model.next_logits(&text.narrow(1, 0, from).unwrap(), &mut cache).unwrap();
                    } else {
                        cache.truncate(from).unwrap();
                    }
                }
            }
            let found = model.next_logits(&text.narrow(1, from, to - from).unwrap(), &mut cache).unwrap();
            let what = format!("{name}: the logits at {to}");
            taper_testing::assert_close(
                &floats(&found),
                &expected[(to - 1) * 40..to * 40],
                (1e-4, 1e-4),
                &what,
            );
        }
        if *name == "gpt2" {
            let error =
                model.next_logits(&text.narrow(1, 0, 5).unwrap(), &mut cache).unwrap_err().to_string();
            assert!(error.contains("65 tokens, of at most 64"), "{error}");
            let found = model.next_logits(&text.narrow(1, 0, 4).unwrap(), &mut cache).unwrap();
            let whole = Tensor::concat(&[&text, &text.narrow(1, 0, 4).unwrap()], 1).unwrap();
            let expected = floats(&model.forward(&whole).unwrap().select(1, -1).unwrap());
            taper_testing::assert_close(&floats(&found), &expected, (1e-4, 1e-4), "after too many positions");
        }
        // The padding says how many texts there are before the first step.
        let mut cache = model.new_cache();
        cache.set_pads(vec![0, 1, 2]).unwrap();
        let error = model.next_logits(&two, &mut cache).unwrap_err().to_string();
        assert!(error.contains("a step of 2 texts for a cache of 3"), "{name}: {error}");
        cache.truncate(0).unwrap();
        assert_eq!(cache.pads(), [0, 1, 2]);
    }
}

/// A mask forbids tokens, by the tokens so far, in single texts and in batches; its errors are those of the
/// generation.
#[test]
fn a_rule_for_logits_says_what_may_follow() {
    for device in devices() {
        let model = model("llama", &device);
        let vocabulary = LanguageModel::vocab_size(&model);
        // Even tokens follow odd ones, and odd ones even ones.
        let alternate = LogitsRule::mask(move |tokens| {
            let last = *tokens.last().unwrap_or(&0);
            Ok((0..vocabulary as u32).map(|token| token % 2 != last % 2).collect())
        });
        let config = GenerationConfig { logits_rule: Some(alternate), ..most_likely(6) };
        let found = ids(generate(&model, PROMPT, &config).unwrap());
        let before = PROMPT[PROMPT.len() - 1..].iter().chain(&found);
        assert!(before.zip(&found).all(|(a, b)| a % 2 != b % 2), "{found:?}");
        let batch = generate_batch(&model, &[PROMPT.to_vec(), vec![9]], &config).unwrap();
        assert_eq!(batch[0], found);
        assert!(batch[1].iter().enumerate().all(|(k, token)| (token % 2 == 0) == (k % 2 == 0)));
        // Changed logits: the token that is made certain has the probability 1.
        let certain = LogitsRule::new(|tokens, logits| {
            let wanted = tokens.len() % 3;
            logits.iter_mut().enumerate().for_each(|(token, logit)| {
                *logit = if token == wanted { 0.0 } else { f32::NEG_INFINITY };
            });
            Ok(())
        });
        let config = GenerationConfig { logits_rule: Some(certain), ..most_likely(3) };
        for (k, token) in generate(&model, PROMPT, &config).unwrap().enumerate() {
            let token = token.unwrap();
            assert_eq!((token.id as usize, token.log_probability), ((PROMPT.len() + k) % 3, 0.0));
        }
        let refused = |rule: LogitsRule| {
            let config = GenerationConfig { logits_rule: Some(rule), ..most_likely(3) };
            generate(&model, PROMPT, &config).unwrap().next().unwrap().unwrap_err().to_string()
        };
        assert!(refused(LogitsRule::mask(|_| Ok(vec![true]))).contains("a mask of 1 tokens"));
        let none = LogitsRule::mask(move |_| Ok(vec![false; vocabulary]));
        assert!(refused(none).contains("-inf"));
    }
}

/// A token that the model does not know is an error at the line of the program that reads the result, and not
/// at one of this library.
#[test]
fn an_unknown_token_names_the_line_of_the_program() {
    tensor_core::hide_lines_of(models::ROOT);
    tensor_core::hide_lines_of(nn::ROOT);
    for device in devices() {
        let model = model("llama", &device);
        let ids = Tensor::from_vec(vec![1i32, 9999], [1, 2], &device).unwrap();
        let logits = model.forward(&ids).unwrap();
        let line = line!() + 1;
        let message = logits.to_f64_vec().unwrap_err().to_string();
        let place = format!("read at crates/models/tests/it/generation.rs:{line}:");
        assert!(message.contains("index 9999") && message.contains(&place), "{message}");
        assert!(!message.contains("src"), "{message}");
    }
}
