//! Decoders: logits, the loss of the next token, gradients.

use autograd::TensorGrad;
use models::{Gpt2, GptNeoX, LanguageModel, Lfm2, Llama, Mamba, Rwkv7, load_language_model};
use nn::{Module, cross_entropy};
use optim::{Optimizer, Sgd, SgdConfig};
use tensor_core::{Device, Result, Tensor};

use crate::fixture::{Fixture, Run, floats, parameters};

/// The mean cross entropy of each token after those before it.
pub(crate) fn next_token_loss(logits: &Tensor, ids: &Tensor) -> Result<Tensor> {
    let (rows, length) = (ids.dims()[0], ids.dims()[1]);
    let classes = logits.dims()[2];
    let logits = logits.narrow(1, 0, length - 1)?.reshape([rows * (length - 1), classes])?;
    cross_entropy(&logits, &ids.narrow(1, 1, length - 1)?.flatten_all())
}

fn run<M: LanguageModel + Module>(model: &M, fixture: &Fixture, device: &Device) -> Result<Run> {
    let ids = fixture.input("ids", device);
    let logits = model.forward(&ids)?;
    let loss = next_token_loss(&logits, &ids)?;
    Ok(Run { outputs: vec![("logits", logits)], loss, parameters: parameters(model) })
}

macro_rules! decoders {
    ($($model:ident: $($name:ident)*;)*) => {$($(
        #[test]
        fn $name() {
            Fixture::open(stringify!($name))
                .check(1e-4, |fixture, device| run(&$model::from_folder(fixture.folder(), device)?, fixture, device));
        }
    )*)*};
}

decoders! {
    Llama: llama llama_biases llama3_rope llama_linear_rope llama_dynamic_rope llama_yarn_rope
    mistral qwen2 qwen3 gemma gemma2 gemma3 phi3 phi3_longrope
        mixtral qwen2_moe qwen3_moe
        gpt_oss gpt_oss_mxfp4 glm4 glm4_moe deepseek_v2 deepseek_v3
        olmo2 olmo3 granite smollm3;
    Lfm2: lfm2 lfm2_moe;
    Gpt2: gpt2;
    GptNeoX: gpt_neox gpt_neox_sequential;
    Mamba: mamba mamba_biases;
    Rwkv7: rwkv7;
}

#[test]
fn a_folder_says_which_model_it_has() {
    let device = backend_cpu::cpu();
    for name in ["qwen3", "gpt_oss", "lfm2_moe", "gpt2", "gpt_neox", "mamba"] {
        let fixture = Fixture::open(name);
        let model = load_language_model(fixture.folder(), &device).unwrap();
        let logits = model.forward(&fixture.input("ids", &device)).unwrap();
        taper_testing::assert_close(&floats(&logits), &fixture.output("logits"), (1e-3, 1e-4), name);
    }
    let error = load_language_model(Fixture::open("bert_classifier").folder(), &device).err().unwrap();
    assert!(error.to_string().contains("\"bert\"; known are llama"), "{error}");
}

#[test]
fn a_model_of_another_configuration_is_refused() {
    let (fixture, device) = (Fixture::open("llama"), backend_cpu::cpu());
    let path = fixture.folder().join("config.json");
    let config = std::fs::read_to_string(&path).unwrap();
    let refused = |from: &str, to: &str, message: &str| {
        assert!(config.contains(from), "{config}");
        std::fs::write(&path, config.replace(from, to)).unwrap();
        let error = Llama::from_folder(fixture.folder(), &device).err().unwrap().to_string();
        assert!(error.contains(message), "{error}");
    };
    refused("\"llama\"", "\"lama\"", "model_type \"lama\" is none of llama");
    refused("\"hidden_size\": 32", "\"hidden_size\": 64", "this configuration needs [40, 64]");
    refused(
        "\"num_hidden_layers\": 2",
        "\"num_hidden_layers\": 1",
        "tensors that belong to no part of this model",
    );
    refused("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "model.layers.2");
    refused("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", "do not divide");
    refused("\"hidden_size\": 32", "\"hidden_size\": \"wide\"", "config.json");
}

#[test]
fn a_step_of_training_lowers_the_loss() {
    let (fixture, device) = (Fixture::open("llama"), backend_cpu::cpu());
    let model = Llama::from_folder(fixture.folder(), &device).unwrap();
    let ids = fixture.input("ids", &device);
    let mut sgd = Sgd::new(model.parameters(), SgdConfig { lr: 0.05, ..Default::default() });
    let mut losses = Vec::new();
    for _ in 0..5 {
        sgd.zero_grad();
        let loss = next_token_loss(&model.forward(&ids).unwrap(), &ids).unwrap();
        loss.backward().unwrap();
        sgd.step().unwrap();
        losses.push(floats(&loss)[0]);
    }
    assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "{losses:?}");
}
