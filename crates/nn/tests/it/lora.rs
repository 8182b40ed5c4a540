//! Adapters: which layers get them, what is trained, clones and copies. Numbers are compared with those of
//! PEFT in `crates/models/tests/it/peft.rs`.
#![allow(clippy::unwrap_used)]

use autograd::TensorGrad;
use nn::{
    Checkpoint, Embedding, Linear, Module, Sequential,
    lora::{self, LoraBias, LoraConfig, LoraInit, MergeOptions, RowAdapters, Targets},
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

/// Biases and modules of the model that are trained with an adapter have its values while it is active alone.
#[test]
fn modules_that_are_trained_with_an_adapter_are_switched_with_it() {
    let device = device();
    let (net, rng) = (Net::new(&device), Generator::seed(2, &device));
    let ids = ids(&device);
    let plain = floats(&net.forward(&ids));
    let make = |name: &str| {
        let config = LoraConfig {
            bias: LoraBias::LoraOnly,
            modules_to_save: vec!["head".into()],
            ..LoraConfig::new(2).targets(["up"]).named(name)
        };
        let adapter = lora::attach(&net, &config, &rng).unwrap();
        let names: Vec<String> = adapter.named_parameters().into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names.iter().filter(|name| !name.contains("lora_")).collect::<Vec<_>>(),
            ["blocks.0.up.bias", "blocks.1.up.bias", "head.weight", "head.bias"]
        );
        assert!(adapter.parameters().len() == 4 + 4 && adapter.parameters().iter().all(Tensor::is_tracked));
        assert!(!net.blocks[0].down.weight.is_tracked());
        assert_eq!(floats(&net.forward(&ids)), plain, "as the model at first");
        adapter
            .apply(&mut |_, value| value.assign(&Tensor::randn(value.dims(), &rng)?.to(&value.device())?))
            .unwrap();
        net.forward(&ids).square().sum().backward().unwrap();
        assert!(adapter.parameters().iter().all(|parameter| parameter.grad().is_some()));
        (floats(&net.forward(&ids)), adapter)
    };
    let (with_first, first) = make("first");
    assert_ne!(with_first, plain);
    assert_eq!(floats(&first.disabled(|| net.forward(&ids)).unwrap()), plain);
    assert_eq!(floats(&net.forward(&ids)), with_first);
    lora::activate(&net, None).unwrap();
    let stored = floats(&first.state_dict()["head.weight"]);
    let (with_second, second) = make("second");
    first.activate().unwrap();
    assert_eq!(floats(&net.forward(&ids)), with_first);
    assert_eq!(floats(&first.state_dict()["head.weight"]), stored);
    second.activate().unwrap();
    assert_eq!(floats(&net.forward(&ids)), with_second);
    // A copy has its own values.
    let copy = net.deep_copy().unwrap();
    lora::activate(&copy, None).unwrap();
    assert_eq!(
        (floats(&copy.forward(&ids)), floats(&net.forward(&ids))),
        (plain.clone(), with_second.clone())
    );
    // Merged and detached, the trained values stay; detached alone, they go.
    second.merge().unwrap();
    second.detach();
    let merged = floats(&net.forward(&ids));
    assert!(merged.iter().zip(&with_second).all(|(a, b)| (a - b).abs() < 1e-3 * b.abs().max(1.0)));
    lora::find(&copy, "first").unwrap().activate().unwrap();
    lora::find(&copy, "first").unwrap().detach();
    assert_eq!(floats(&copy.forward(&ids)), plain);
    let config = LoraConfig { modules_to_save: vec!["tail".into()], ..LoraConfig::new(2).targets(["up"]) };
    let error = lora::attach(&net, &config, &rng).unwrap_err().to_string();
    assert!(error.contains("no module \"tail\""), "{error}");
}

#[test]
fn the_bias_of_b_is_merged_into_the_layers() {
    let device = device();
    let rng = Generator::seed(0, &device);
    let x = Tensor::randn([3, 8], &rng).unwrap();
    let make = |bias: bool| {
        let config = nn::LinearConfig { bias, ..Default::default() };
        let model = Sequential::new().add(Linear::with_config(8, 4, config, &rng).unwrap());
        let config = LoraConfig { lora_bias: true, ..LoraConfig::new(2).targets(["0"]) };
        let adapter = lora::attach(&model, &config, &rng).unwrap();
        stir(&adapter, &rng);
        (model, adapter)
    };
    let (model, adapter) = make(true);
    let plain = floats(&adapter.disabled(|| model.forward(&x).unwrap()).unwrap());
    let with = floats(&model.forward(&x).unwrap());
    adapter.merge().unwrap();
    let merged = floats(&model.forward(&x).unwrap());
    assert!(merged.iter().zip(&with).all(|(a, b)| (a - b).abs() < 1e-4), "{merged:?} {with:?}");
    adapter.unmerge().unwrap();
    assert_eq!(floats(&adapter.disabled(|| model.forward(&x).unwrap()).unwrap()), plain);
    let (_, adapter) = make(false);
    assert!(adapter.merge().unwrap_err().to_string().contains("has no bias"));
    let dora = LoraConfig { lora_bias: true, use_dora: true, ..LoraConfig::new(2).targets(["0"]).named("d") };
    assert!(lora::attach(&model, &dora, &rng).unwrap_err().to_string().contains("lora_bias with use_dora"));
    let words = Sequential::new().add(Embedding::new(4, 4, &rng).unwrap());
    let config = LoraConfig { lora_bias: true, ..LoraConfig::new(2).targets(["0"]) };
    assert!(lora::attach(&words, &config, &rng).unwrap_err().to_string().contains("an embedding has no"));
}

/// A weight of two layers, one of which has the adapter.
#[test]
fn a_weight_that_another_layer_shares_is_not_merged_unnoticed() {
    #[derive(Module)]
    struct Tied {
        words: Embedding,
        head: Linear,
    }
    let device = device();
    let rng = Generator::seed(0, &device);
    let words = Embedding::new(6, 4, &rng).unwrap();
    let tied = Tied { head: Linear::from_weight(words.weight.clone(), None), words };
    let adapter = lora::attach(&tied, &LoraConfig::new(2).targets(["words"]), &rng).unwrap();
    let error = adapter.merge().unwrap_err().to_string();
    assert!(error.contains("the weight of words is also that of head.weight"), "{error}");
    adapter.merge_with(MergeOptions { shared: true, ..Default::default() }).unwrap();
    adapter.unmerge().unwrap();
    // A layer in two places is one layer, with one adapter.
    let layer = Linear::new(4, 4, &rng).unwrap();
    let twice = Sequential::new().add(layer.clone()).add(layer);
    lora::attach(&twice, &LoraConfig::new(2).targets(["0"]), &rng).unwrap().merge().unwrap();
}

#[test]
fn each_row_has_its_own_adapter() {
    let device = device();
    let (net, alone) = (Net::new(&device), Net::new(&device));
    let mut adapters = RowAdapters::new(&net);
    assert!(adapters.is_empty());
    // Ranks, factors and layers differ.
    let configs = [
        LoraConfig::new(3).targets(["up", "head"]).alpha(5.0),
        LoraConfig::new(1).targets(["down"]),
        LoraConfig::new(4).targets(Targets::AllLinear).alpha(2.0),
    ];
    let named = configs.iter().zip(["a", "b", "c"]).map(|(config, name)| config.clone().named(name));
    for (k, config) in named.enumerate() {
        for model in [&net, &alone] {
            let rng = Generator::seed(k as u64 + 20, &device);
            let adapter = lora::attach(model, &config, &rng).unwrap();
            stir(&adapter, &rng);
            if std::ptr::eq(model, &net) {
                adapters.add(adapter).unwrap();
            }
        }
    }
    assert_eq!((adapters.len(), lora::names(&net)), (3, vec![]));
    let words: Vec<i32> = vec![1, 4, 9, 4, 3, 0, 2, 7, 8, 5];
    let ids = Tensor::from_vec(words, [5, 2], &device).unwrap();
    let check = |names: &[Option<&str>], numbers: &[i32]| {
        let rows = Tensor::from_vec(numbers.to_vec(), [numbers.len()], &device).unwrap();
        let found = floats(&lora::with_rows(Some(&rows), || net.forward(&ids)));
        for (row, name) in names.iter().enumerate() {
            lora::activate(&alone, *name).unwrap();
            let expected = floats(&alone.forward(&ids.narrow(0, row, 1).unwrap()));
            for (found, expected) in found[row * 6..(row + 1) * 6].iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-5, "{name:?}: {found} {expected}");
            }
        }
        assert!(lora::rows().is_none());
        found
    };
    let all = [Some("c"), None, Some("a"), Some("b"), Some("a")];
    let before = check(&all, &[3, 0, 1, 2, 1]);
    // Without the numbers of rows, the model is as it was.
    lora::activate(&alone, None).unwrap();
    assert_eq!(floats(&net.forward(&ids)), floats(&alone.forward(&ids)));

    // The ones after a removed one move down; the others' bits stay.
    adapters.remove(1).unwrap();
    let after = check(&[Some("c"), None, Some("a"), None, Some("a")], &[2, 0, 1, 0, 1]);
    assert_eq!(after[..18], before[..18]);
    let error = adapters.remove(2).unwrap_err().to_string();
    assert!(error.contains("adapter 2 of 2"), "{error}");
    let few = Tensor::from_vec(vec![1i32, 0], [2], &device).unwrap();
    let x = Tensor::ones([3, 32], &device).unwrap();
    let error = lora::with_rows(Some(&few), || net.head.forward(&x)).unwrap_err().to_string();
    assert!(error.contains("2 rows have adapters") && error.contains("[3, 32]"), "{error}");
    // The handle takes its adapters along.
    let model = floats(&net.forward(&ids));
    drop(adapters);
    let rows = Tensor::from_vec(vec![1i32; 5], [5], &device).unwrap();
    assert_eq!(floats(&lora::with_rows(Some(&rows), || net.forward(&ids))), model);
}

#[test]
fn adapters_that_are_more_than_a_product_are_not_those_of_rows() {
    let device = device();
    let rng = Generator::seed(0, &device);
    let net = Net::new(&device);
    let mut adapters = RowAdapters::new(&net);
    let up = || LoraConfig::new(2).targets(["up"]);
    let saves = |config: LoraConfig| LoraConfig { modules_to_save: vec!["head".into()], ..config };
    for (config, part) in [
        (LoraConfig { use_dora: true, ..up() }, "has DoRA"),
        (LoraConfig { lora_bias: true, ..up() }, "has a lora_bias"),
        (LoraConfig::new(2).targets(["words"]), "words is an embedding"),
        (saves(up()), "has modules trained with the adapter"),
    ] {
        let error = adapters.add(lora::attach(&net, &config, &rng).unwrap()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!((adapters.len(), lora::names(&net)), (0, vec![]));
    }
    let other = lora::attach(&Net::new(&device), &up(), &rng).unwrap();
    let error = adapters.add(other).unwrap_err().to_string();
    assert!(error.contains("another model"), "{error}");
}
