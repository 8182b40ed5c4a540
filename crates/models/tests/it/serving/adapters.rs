//! An engine whose texts have different adapters gives each the tokens that its adapter alone gives.

use models::{
    LanguageModel,
    generate::Token,
    serving::{Engine, EngineConfig, Request},
};
use nn::{
    Module,
    lora::{self, Lora, LoraConfig, Targets},
};
use taper_testing::run_alone;
use tensor_core::{Generator, GgmlType, Tensor};

use super::{Texts, alone, ids, in_blocks, model};
use crate::devices;

/// Adds adapter `number` with random matrices to the linear layers of a model.
fn attached(model: &dyn LanguageModel, number: usize) -> Lora {
    let rng = Generator::seed(number as u64 + 50, &model.device());
    let config = LoraConfig::new(2 + number).alpha(6.0).targets(Targets::AllLinear);
    let adapter = lora::attach(model, &config.named(format!("adapter {number}")), &rng).unwrap();
    for (name, parameter) in adapter.named_parameters() {
        if name.contains("lora_B") {
            let value = Tensor::randn(parameter.dims(), &rng).unwrap().mul_scalar(0.2);
            parameter.assign(&value.to_dtype(parameter.dtype()).unwrap()).unwrap();
        }
    }
    adapter
}

/// Prompts with the numbers of their adapters. The last ones begin as others do, with other adapters too.
fn requests() -> Vec<(Option<usize>, Request)> {
    let prompt = |k: usize, length: usize| (0..length).map(|at| ((k * 5 + at * 7) % 30) as u32).collect();
    let texts = [
        (Some(0), 0, 5, 12),
        (None, 1, 40, 25),
        (Some(1), 2, 9, 30),
        (Some(2), 3, 33, 3),
        (Some(0), 4, 24, 20),
        (None, 5, 2, 9),
        (Some(2), 1, 44, 8),
        (Some(0), 4, 30, 5),
        (None, 1, 42, 6),
    ];
    let request = |(adapter, k, length, count)| (adapter, Request::new(prompt(k, length), count));
    texts.map(request).into()
}

#[test]
fn texts_of_several_adapters_share_a_batch() {
    for device in devices() {
        // Mixtures give each expert its own tokens; recurrent layers and those of GPT-2 are linear too.
        let names: &[&str] = match device.name() {
            "cpu" => {
                &["llama", "gpt2", "gpt_oss", "deepseek_v2", "qwen3_5", "gemma4", "rwkv7", "mamba", "lfm2"]
            }
            _ => &["llama"],
        };
        for name in names {
            let lone = model(name, &device);
            let config = EngineConfig { max_sequences: 4, prompt_chunk: 8, ..Default::default() };
            let mut engine = Engine::new(model(name, &device), config).unwrap();
            let adapters = [0, 1, 2].map(|number| {
                attached(&*lone, number);
                let adapter = attached(engine.model(), number);
                engine.add_adapter(adapter).unwrap()
            });
            let (mut texts, mut added) = (Texts::default(), Vec::new());
            for (adapter, mut request) in requests() {
                request.adapter = adapter.map(|number| adapters[number]);
                added.push((engine.add(request.clone()).unwrap(), adapter, request));
                texts.step(&mut engine);
                texts.step(&mut engine);
            }
            texts.run(&mut engine);
            let mut others = 0;
            for (id, adapter, request) in added {
                let own = adapter.map(|number| format!("adapter {number}"));
                lora::activate(&*lone, own.as_deref()).unwrap();
                let what = format!("{name} on {device}, {adapter:?}: {:?}", request.prompt);
                let expected = ids(&alone(&*lone, &request));
                assert_eq!(ids(texts.of(id)), expected, "{what}");
                lora::activate(&*lone, None).unwrap();
                others += usize::from(ids(&alone(&*lone, &request)) != expected);
            }
            assert!(others > 3, "{name}: the adapters change {others} texts");
        }
    }
}

#[test]
fn a_text_of_an_adapter_has_the_same_bits_beside_others() {
    // The form of products is that of a process.
    if run_alone(a_text_of_an_adapter_has_the_same_bits_beside_others) {
        return;
    }
    let device = backend_cpu::cpu();
    for (format, int8) in [(GgmlType::Q4_1, false), (GgmlType::Q4_K, false), (GgmlType::Q8_0, true)] {
        backend_cpu::set_int8_activations(int8);
        let run = |config: EngineConfig, adapters: &[usize], requests: &[(Option<usize>, Request)]| {
            let mut engine = Engine::new(Box::new(in_blocks(format, &device)), config).unwrap();
            let known: Vec<_> = adapters
                .iter()
                .map(|&number| {
                    let adapter = attached(engine.model(), number);
                    (number, engine.add_adapter(adapter).unwrap())
                })
                .collect();
            let (mut texts, mut added) = (Texts::default(), Vec::new());
            for (adapter, request) in requests {
                let own = known.iter().find(|(number, _)| Some(*number) == *adapter).map(|(_, id)| *id);
                assert_eq!(own.is_some(), adapter.is_some());
                added.push(engine.add(Request { adapter: own, ..request.clone() }).unwrap());
                texts.step(&mut engine);
            }
            texts.run(&mut engine);
            let texts: Vec<Vec<Token>> = added.iter().map(|id| texts.of(*id).to_vec()).collect();
            (texts, engine.counts().reused)
        };
        let config = EngineConfig { max_sequences: 6, prompt_chunk: 24, ..Default::default() };
        let (together, reused) = run(config, &[0, 1, 2], &requests());
        assert!(reused > 40, "{reused}");
        for (own, together) in requests().iter().zip(&together) {
            let (alone, _) = run(EngineConfig::default(), own.0.as_slice(), std::slice::from_ref(own));
            assert_eq!(*together, alone[0], "{format:?}, {:?}, {} tokens", own.0, own.1.prompt.len());
        }
    }
}

#[test]
fn adapters_come_and_go_while_texts_are_written() {
    let device = backend_cpu::cpu();
    let lone = model("llama", &device);
    let mut engine = Engine::new(model("llama", &device), EngineConfig::default()).unwrap();
    let add = |engine: &mut Engine, number: usize| {
        attached(&*lone, number);
        let adapter = attached(engine.model(), number);
        engine.add_adapter(adapter).unwrap()
    };
    let prompt: Vec<u32> = (0..20).collect();
    let request = |adapter, count| Request { adapter, ..Request::new(prompt.clone(), count) };
    let first = add(&mut engine, 0);
    let mut texts = Texts::default();
    let [own, of_first] = [None, Some(first)].map(|id| engine.add(request(id, 60)).unwrap());
    for _ in 0..10 {
        texts.step(&mut engine);
    }
    let second = add(&mut engine, 1);
    let of_second = engine.add(request(Some(second), 60)).unwrap();
    for _ in 0..10 {
        texts.step(&mut engine);
    }
    // It is in memory until its text has ended, and has no new ones.
    engine.remove_adapter(first);
    assert_eq!(engine.adapters(), 2);
    let error = engine.add(request(Some(first), 5)).unwrap_err().to_string();
    assert!(error.contains("adapter was removed"), "{error}");
    texts.run(&mut engine);
    engine.step();
    assert_eq!(engine.adapters(), 1);
    // The second one has moved down. A beginning is not that of another adapter.
    let again = [None, Some(second)].map(|id| engine.add(request(id, 30)).unwrap());
    texts.run(&mut engine);
    engine.remove_adapter(second);
    assert_eq!(engine.adapters(), 0);
    let last = engine.add(request(None, 30)).unwrap();
    texts.run(&mut engine);
    let expected = |name: Option<&str>, count| {
        lora::activate(&*lone, name).unwrap();
        ids(&alone(&*lone, &request(None, count)))
    };
    for (id, name, count) in [
        (own, None, 60),
        (of_first, Some("adapter 0"), 60),
        (of_second, Some("adapter 1"), 60),
        (again[0], None, 30),
        (again[1], Some("adapter 1"), 30),
        (last, None, 30),
    ] {
        assert_eq!(ids(texts.of(id)), expected(name, count), "{name:?}, {count} tokens");
    }
}
