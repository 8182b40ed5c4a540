//! The products of generations: each is computed once, whatever is read when. Reading logits and extending a
//! cache, in any number of tokens, takes no more products than computing each operation when it is called.
//!
//! `cargo test -p taper-models --test it products:: -- --nocapture` prints the counts.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use autograd::no_grad;
use models::{
    Bart, KvCache,
    audio::Whisper,
    generate::{BeamConfig, GenerationConfig, beam_search, generate, generate_batch, generate_speculative},
    load_language_model,
};
use nn::Module;
use taper_testing::{hooked, run_alone};
use tensor_core::{Device, Generator, Tensor, kernel::Body, without_fusion};

use crate::{audio::decoding, fixture::Fixture};

/// Lengths around the rows of a cache's tables.
const LENGTHS: &[usize] = &[1, 16, 63, 64, 65, 128];
/// The positions that the tables of GPT-2's embeddings have.
const GPT_POSITIONS: usize = 64;

const MODELS: &[&str] = &["llama", "mistral", "gemma2", "qwen2", "gpt2", "gpt_neox", "mamba", "rwkv7"];

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
            let (prompt, eager_prompt) = products(&count, || run(1));
            let (all, eager) = products(&count, || run(4));
            println!(
                "{name}: {prompt} products for {length} tokens, {} for each of 3 more",
                (all - prompt) / 3
            );
            assert!(
                prompt <= eager_prompt,
                "{name}, {length} tokens: {prompt} products, eager {eager_prompt}"
            );
            assert!(all <= eager, "{name}, {length} tokens and 3 more: {all} products, eager {eager}");
        }
    }
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
            let (lazy, eager) = products(&count, || run(3));
            assert!(lazy <= eager, "{name}, {length} tokens and 3 more: {lazy} products, eager {eager}");
        }
    }
}

#[test]
fn batches_beams_and_guesses_compute_each_product_once() {
    if run_alone(batches_beams_and_guesses_compute_each_product_once) {
        return;
    }
    let (device, count) = counting();
    let model = load_language_model(Fixture::open("llama").folder(), &device).unwrap();
    for length in [5, 63, 64, 65, 128] {
        let text = prompt(length);
        let batch = [text.clone(), text[..length / 2].to_vec()];
        let ways: [(&str, &mut dyn FnMut()); 3] = [
            ("a batch", &mut || drop(generate_batch(&*model, &batch, &config(4)).unwrap())),
            ("beams", &mut || drop(beam_search(&*model, &text, &BeamConfig::default()).unwrap())),
            ("guesses", &mut || drop(generate_speculative(&*model, &*model, &text, 3, 6, &[]).unwrap())),
        ];
        for (what, run) in ways {
            let (lazy, eager) = products(&count, run);
            println!("{what} after {length} tokens: {lazy} products, eager {eager}");
            assert!(lazy <= eager, "{what} after {length} tokens: {lazy} products, eager {eager}");
        }
    }
}

#[test]
fn a_decoder_of_speech_or_text_computes_each_product_once() {
    if run_alone(a_decoder_of_speech_or_text_computes_each_product_once) {
        return;
    }
    let (device, count) = counting();
    let fixture = Fixture::open("whisper");
    let model =
        Whisper::new(&models::read_config(fixture.folder()).unwrap(), &Generator::seed(0, &device)).unwrap();
    model.load_state_dict(&fixture.weights(&device)).unwrap();
    let mels = fixture.input("mels", &device).narrow(0, 0, 1).unwrap();
    let (lazy, eager) = products(&count, || drop(model.greedy(&mels, &[1], &decoding()).unwrap()));
    println!("whisper: {lazy} products, eager {eager}");
    assert!(lazy <= eager, "whisper: {lazy} products, eager {eager}");

    let fixture = Fixture::open("bart");
    let model = Bart::from_folder(fixture.folder(), &device).unwrap();
    let ids = Tensor::from_vec(vec![3, 5, 7, 9], [1, 4], &device).unwrap();
    let (lazy, eager) = products(&count, || {
        let encoded = model.encode(&ids, None).unwrap();
        let decoder = model.decoder(&encoded, None).unwrap();
        drop(
            beam_search(&decoder, &[1, 2], &BeamConfig { max_new_tokens: 5, ..Default::default() }).unwrap(),
        );
    });
    println!("bart: {lazy} products, eager {eager}");
    assert!(lazy <= eager, "bart: {lazy} products, eager {eager}");
}
