//! The products of generations: each is computed once, whatever is read when. Reading logits and extending a
//! cache, in any number of tokens, takes no more products than computing each operation when it is called.
//!
//! `cargo test -p taper-models --test it products:: -- --nocapture` prints the counts. `docs/design.md` has a
//! table of some, which these tests hold to what they count.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use autograd::no_grad;
use models::{
    Bart, KvCache, LanguageModel, T5,
    audio::Whisper,
    generate::{
        BeamConfig, GenerationConfig, beam_search, generate, generate_batch, generate_speculative,
        log_probabilities,
    },
    load_language_model,
    serving::{Engine, EngineConfig, Event, Request},
};
use taper_testing::{hooked, run_alone};
use tensor_core::{Device, Tensor, kernel::Body, without_fusion};

use crate::{audio::decoding, fixture::Fixture};

/// Lengths around the rows of a cache's tables.
const LENGTHS: &[usize] = &[1, 16, 63, 64, 65, 128];
/// The positions that the tables of GPT-2's embeddings have.
const GPT_POSITIONS: usize = 64;

const MODELS: &[&str] = &["llama", "mistral", "gemma2", "qwen2", "gpt2", "gpt_neox", "mamba", "rwkv7"];

/// The page with the counted figures.
const DESIGN: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design.md"));

/// Checks that no more products are computed than if each operation is computed when it is called, and that
/// the design's table is right, if it has a row for this work.
fn check(work: &str, (lazy, eager): (usize, usize)) {
    eprintln!("{work}: {lazy} products, eager {eager}");
    assert!(lazy <= eager, "{work}: {lazy} products, eager {eager}");
    if let Some(row) = DESIGN.lines().find(|line| line.starts_with(&format!("| {work} |"))) {
        assert_eq!(row, format!("| {work} | {lazy} | {eager} |"), "docs/design.md");
        ROWS.fetch_add(1, Ordering::Relaxed);
    }
}

/// The rows of the design's table that this test's process has checked.
static ROWS: AtomicUsize = AtomicUsize::new(0);

/// A CPU that counts products.
fn counting() -> (Device, Arc<AtomicUsize>) {
    let products = Arc::new(AtomicUsize::new(0));
    let count = products.clone();
    let device = hooked(backend_cpu::cpu().backend().clone(), move |backend, launch| {
        if let Body::Contract(_) = launch.kernel.body {
            count.fetch_add(1, Ordering::Relaxed);
        }
        backend.run(launch)
    });
    (device, products)
}

/// The products of `f`, as it is and with each operation computed when it is called.
fn products(count: &AtomicUsize, mut f: impl FnMut()) -> (usize, usize) {
    count.store(0, Ordering::Relaxed);
    f();
    let lazy = count.swap(0, Ordering::Relaxed);
    without_fusion(|| {
        f();
        Ok(())
    })
    .unwrap();
    (lazy, count.load(Ordering::Relaxed))
}

fn prompt(length: usize) -> Vec<u32> {
    (0..length as u32).map(|k| 3 + (7 * k * k + k) % 30).collect()
}

/// Whether a model has positions for a text of this length and four more tokens.
fn fits(name: &str, length: usize) -> bool {
    !name.starts_with("gpt") || length + 4 <= GPT_POSITIONS
}

fn config(count: usize) -> GenerationConfig {
    GenerationConfig { max_new_tokens: count, ..Default::default() }
}

#[test]
fn a_generation_computes_each_product_once() {
    if run_alone(a_generation_computes_each_product_once) {
        return;
    }
    let (device, count) = counting();
    for name in MODELS {
        let model = load_language_model(Fixture::open(name).folder(), &device).unwrap();
        for &length in LENGTHS.iter().filter(|&&length| fits(name, length)) {
            let text = prompt(length);
            let run = |tokens: usize| {
                generate(&*model, &text, &config(tokens)).unwrap().for_each(|token| assert!(token.is_ok()))
            };
            check(&format!("{name}, {length} tokens"), products(&count, || run(1)));
            check(&format!("{name}, {length} tokens and the next"), products(&count, || run(2)));
            check(&format!("{name}, {length} tokens and 4 more"), products(&count, || run(5)));
        }
    }
    assert_eq!(ROWS.load(Ordering::Relaxed), 7, "rows of the table in docs/design.md");
}

#[test]
fn a_users_own_loop_computes_each_product_once() {
    if run_alone(a_users_own_loop_computes_each_product_once) {
        return;
    }
    let (device, count) = counting();
    for name in MODELS {
        let model = load_language_model(Fixture::open(name).folder(), &device).unwrap();
        let step = |tokens: &[u32], cache: &mut KvCache| {
            let ids =
                Tensor::from_vec(tokens.iter().map(|&id| id as i32).collect(), [1, tokens.len()], &device);
            let logits = no_grad(|| model.next_logits(&ids.unwrap(), cache)).unwrap();
            logits.to_f64_vec().unwrap();
        };
        for &length in LENGTHS.iter().filter(|&&length| fits(name, length)) {
            let run = |steps: usize| {
                let mut cache = model.new_cache();
                step(&prompt(length), &mut cache);
                (0..steps).for_each(|_| step(&[5], &mut cache));
            };
            check(&format!("{name}, {length} tokens and 3 steps"), products(&count, || run(3)));
        }
    }
}

/// Texts that join and leave a batch.
fn by_engine(device: &Device, prompts: &[Vec<u32>]) {
    let model = load_language_model(Fixture::open("llama").folder(), device).unwrap();
    let mut engine = Engine::new(model, EngineConfig { prompt_chunk: 20, ..Default::default() }).unwrap();
    for (prompt, count) in prompts.iter().zip([6, 3]) {
        engine.add(Request::new(prompt.clone(), count)).unwrap();
        engine.step();
    }
    while !engine.is_idle() {
        assert!(!engine.step().iter().any(|(_, event)| matches!(event, Event::Failed(_))));
    }
    assert_eq!(engine.counts().written, 9);
}

#[test]
fn batches_beams_guesses_and_scores_compute_each_product_once() {
    if run_alone(batches_beams_guesses_and_scores_compute_each_product_once) {
        return;
    }
    let (device, count) = counting();
    let model = load_language_model(Fixture::open("llama").folder(), &device).unwrap();
    for length in [5, 63, 64, 65, 128] {
        let text = prompt(length);
        let batch = [text.clone(), text[..length / 2].to_vec()];
        let ways: [(&str, &mut dyn FnMut()); 5] = [
            ("a batch", &mut || drop(generate_batch(&*model, &batch, &config(4)).unwrap())),
            ("beams", &mut || drop(beam_search(&*model, &text, &BeamConfig::default()).unwrap())),
            ("guesses", &mut || drop(generate_speculative(&*model, &*model, &text, 3, &config(6)).unwrap())),
            ("probabilities", &mut || drop(log_probabilities(&*model, &text).unwrap())),
            ("an engine", &mut || by_engine(&device, &batch)),
        ];
        for (what, run) in ways {
            check(&format!("llama, {length} tokens, {what}"), products(&count, run));
        }
    }
    assert_eq!(ROWS.load(Ordering::Relaxed), 4, "rows of the table in docs/design.md");
}

#[test]
fn a_decoder_of_speech_or_text_computes_each_product_once() {
    if run_alone(a_decoder_of_speech_or_text_computes_each_product_once) {
        return;
    }
    let (device, count) = counting();
    let fixture = Fixture::open("whisper");
    let model =
        Whisper::new(&models::read_config(fixture.folder()).unwrap(), fixture.source(&device)).unwrap();
    let mels = fixture.input("mels", &device).narrow(0, 0, 1).unwrap();
    check("whisper, 6 tokens", products(&count, || drop(model.greedy(&mels, &[1], &decoding()).unwrap())));

    let fixture = Fixture::open("bart");
    let bart = Bart::from_folder(fixture.folder(), &device).unwrap();
    let fixture = Fixture::open("t5");
    let t5 = T5::from_folder(fixture.folder(), &device).unwrap();
    let ids = Tensor::from_vec(vec![3, 5, 7, 9], [1, 4], &device).unwrap();
    let beams = BeamConfig { max_new_tokens: 5, ..Default::default() };
    /// Makes a decoder and calls a function with it.
    type Decode<'a> = &'a dyn Fn(&mut dyn FnMut(&dyn LanguageModel));
    let with = |name: &str, decoder: Decode<'_>| {
        let mut beam = |model: &dyn LanguageModel| drop(beam_search(model, &[1, 2], &beams).unwrap());
        check(&format!("{name}, 5 tokens by beams"), products(&count, || decoder(&mut beam)));
        let mut single = |model: &dyn LanguageModel| {
            generate(model, &[1, 2], &config(5)).unwrap().for_each(|token| assert!(token.is_ok()));
        };
        check(&format!("{name}, 5 tokens"), products(&count, || decoder(&mut single)));
    };
    with("bart", &|run| run(&bart.decoder(&bart.encode(&ids, None).unwrap(), None).unwrap()));
    with("t5", &|run| run(&t5.decoder(&t5.encode(&ids, None).unwrap(), None).unwrap()));
    assert_eq!(ROWS.load(Ordering::Relaxed), 4, "rows of the table in docs/design.md");
}
