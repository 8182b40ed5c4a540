//! Adapters: which layers get them, what is trained, clones and copies. Numbers are compared with those of
//! PEFT in `crates/models/tests/it/peft.rs`.
#![allow(clippy::unwrap_used)]

use autograd::TensorGrad;
use nn::{
    Checkpoint, Embedding, Linear, Module, Sequential,
    lora::{self, LoraConfig, LoraInit, Targets},
};
use tensor_core::{DType, Device, Generator, Tensor};

use crate::common::device;

#[derive(Module, Clone)]
struct Block {
    up: Linear,
    down: Linear,
}

#[derive(Module, Clone)]
struct Net {
    words: Embedding,
    blocks: Vec<Block>,
    head: Linear,
}

impl Net {
    fn new(device: &Device) -> Net {
        let rng = Generator::seed(1, device);
        let block =
            || Block { up: Linear::new(32, 64, &rng).unwrap(), down: Linear::new(64, 32, &rng).unwrap() };
        let blocks = vec![block(), block()];
        Net { words: Embedding::new(10, 32, &rng).unwrap(), blocks, head: Linear::new(32, 3, &rng).unwrap() }
    }

    fn forward(&self, ids: &Tensor) -> Tensor {
        let mut x = self.words.forward(ids).unwrap();
        for block in &self.blocks {
            x = &x + block.down.forward(&block.up.forward(&x).unwrap().tanh()).unwrap();
        }
        self.head.forward(&x).unwrap()
    }
}

fn ids(device: &Device) -> Tensor {
    Tensor::from_vec(vec![1i32, 4, 9, 4], [2, 2], device).unwrap()
}

fn floats(x: &Tensor) -> Vec<f64> {
    x.to_dtype(DType::F32).unwrap().to_f64_vec().unwrap()
}

/// Gives B random numbers, so that the adapter does something.
fn stir(adapter: &lora::Lora, rng: &Generator) {
    adapter
        .apply(&mut |name, parameter| match name.contains("_B") {
            true => parameter
                .assign(&Tensor::randn(parameter.dims(), rng)?.mul_scalar(0.2).to(&parameter.device())?),
            false => Ok(()),
        })
        .unwrap();
}

#[test]
fn targets_select_layers() {
    let device = device();
    let selected = |config: LoraConfig| -> Result<Vec<String>, String> {
        let net = Net::new(&device);
        let adapter = lora::attach(&net, &config, &Generator::seed(0, &device)).map_err(|e| e.to_string())?;
        Ok(adapter.layers().into_iter().map(String::from).collect())
    };
    let new = || LoraConfig::new(2);
    assert_eq!(selected(new().targets(["up"])).unwrap(), ["blocks.0.up", "blocks.1.up"]);
    assert_eq!(selected(new().targets(["0.up", "words"])).unwrap(), ["words", "blocks.0.up"]);
    let glob = Targets::Glob("blocks.*.d*".into());
    assert_eq!(selected(new().targets(glob)).unwrap(), ["blocks.0.down", "blocks.1.down"]);
    assert_eq!(selected(new().targets(Targets::AllLinear)).unwrap().len(), 5);
    let mut config = new().targets(["up", "down"]);
    config.layers_to_transform = Some(vec![1]);
    config.exclude_modules = vec!["down".into()];
    assert_eq!(selected(config).unwrap(), ["blocks.1.up"]);
    let error = selected(new().targets(["q_proj"])).unwrap_err();
    assert!(error.contains("down, head, up, words"), "{error}");
    for (config, message) in [
        (new(), "no target_modules"),
        (LoraConfig::new(0).targets(["up"]), "a rank of 0"),
        (new().targets(["up"]).alpha(f64::NAN), "finite"),
        (new().targets(["up"]).dropout(1.5), "1.5"),
        (new().targets(["up"]).named("a.b"), "without dots"),
    ] {
        let error = selected(config).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn only_the_adapter_is_trained_and_saved() {
    let device = device();
    let (net, rng) = (Net::new(&device), Generator::seed(0, &device));
    let before = net.state_dict();
    let mut config = LoraConfig::new(4).targets(["up", "words"]);
    config.init_lora_weights = LoraInit::Gaussian;
    let adapter = lora::attach(&net, &config, &rng).unwrap();
    assert!(lora::attach(&net, &config, &rng).unwrap_err().to_string().contains("\"default\""));
    let names: Vec<String> = adapter.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names[..3], ["words.lora_embedding_A", "words.lora_embedding_B", "blocks.0.up.lora_A.weight"]);
    assert!(net.state_dict().contains_key("blocks.0.up.lora_A.default.weight"));
    net.forward(&ids(&device)).square().sum().backward().unwrap();
    for (name, parameter) in net.named_parameters() {
        assert_eq!(parameter.grad().is_some(), name.contains("lora_"), "{name}");
    }
    assert_eq!(net.trainable_parameters().len(), adapter.parameters().len());
    for (name, value) in before {
        assert_eq!(floats(&net.state_dict()[&name]), floats(&value), "{name}");
    }
    // A second adapter leaves the first one as it is.
    lora::attach(&net, &config.named("other"), &rng).unwrap();
    assert!(adapter.parameters().iter().all(Tensor::is_tracked));
}

#[test]
fn clones_share_adapters_and_copies_do_not() {
    let device = device();
    let (net, rng) = (Net::new(&device), Generator::seed(0, &device));
    let apart = net.deep_copy().unwrap();
    let clone = net.clone();
    let adapter = lora::attach(&net, &LoraConfig::new(4).targets(["up"]), &rng).unwrap();
    stir(&adapter, &rng);
    let ids = ids(&device);
    assert_eq!(floats(&clone.forward(&ids)), floats(&net.forward(&ids)));
    assert_ne!(floats(&apart.forward(&ids)), floats(&net.forward(&ids)));
    assert!(lora::names(&apart).is_empty());
    let copy = net.deep_copy().unwrap();
    assert_eq!(floats(&copy.forward(&ids)), floats(&net.forward(&ids)));
    let before = floats(&copy.forward(&ids));
    stir(&adapter, &rng);
    assert_eq!(floats(&copy.forward(&ids)), before);
    assert_ne!(floats(&net.forward(&ids)), before);
}

#[test]
fn dropout_is_resumed_with_a_checkpoint() {
    let device = device();
    let config = LoraConfig::new(4).targets(["up", "down"]).dropout(0.5);
    let make = |seed| {
        let net = Net::new(&device);
        let adapter = lora::attach(&net, &config, &Generator::seed(seed, &device)).unwrap();
        stir(&adapter, &Generator::seed(7, &device));
        (net, adapter)
    };
    let (net, adapter) = make(1);
    let ids = ids(&device);
    let first = floats(&net.forward(&ids));
    assert_ne!(floats(&net.forward(&ids)), first, "training draws each time");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.safetensors");
    Checkpoint::new().module("adapter", &adapter).save(&path).unwrap();
    let (resumed, other) = make(2);
    Checkpoint::load(&path, &device).unwrap().restore().module("adapter", &other).finish().unwrap();
    assert_eq!(floats(&resumed.forward(&ids)), floats(&net.forward(&ids)));
    net.eval();
    assert_eq!(floats(&net.forward(&ids)), floats(&net.forward(&ids)));
}

#[test]
fn half_precision_has_adapters_in_f32() {
    let device = device();
    let rng = Generator::seed(0, &device);
    let config = nn::LinearConfig { dtype: DType::BF16, ..Default::default() };
    let model = Sequential::new().add(Linear::with_config(8, 4, config, &rng).unwrap());
    let adapter = lora::attach(&model, &LoraConfig::new(2).targets(["0"]), &rng).unwrap();
    stir(&adapter, &rng);
    assert!(adapter.parameters().iter().all(|p| p.dtype() == DType::F32));
    let y = model.forward(&Tensor::ones([2, 8], (DType::BF16, &device)).unwrap()).unwrap();
    assert_eq!(y.dtype(), DType::BF16);
}
