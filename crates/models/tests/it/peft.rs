//! Adapters against Python's `peft`: its folders in and out, outputs, losses, gradients, merged weights.
//! `scripts/model_fixtures/peft_adapters.py` makes the fixtures and reads the folders that are written here.

use std::{fs, path::Path};

use autograd::TensorGrad;
use models::{Gpt2, LanguageModel, Llama};
use nn::{
    Conv2d, ConvConfig, Linear, Module, Sequential, StateDict,
    lora::{self, LoraConfig, Targets},
    save_safetensors,
};
use tensor_core::{Device, Generator, Result, Tensor};
use weights::{WeightFile, load_peft, save_peft};

use crate::{
    devices,
    fixture::{Fixture, floats},
    language::next_token_loss,
};

/// The network of convolutions in the script.
#[derive(Module)]
struct Convolutions {
    first: Conv2d,
    second: Conv2d,
    head: Linear,
}

impl Convolutions {
    fn new(weights: &StateDict, device: &Device) -> Result<Convolutions> {
        let rng = Generator::seed(0, device);
        let first = ConvConfig { stride: [2; 2], padding: 1.into(), ..Default::default() };
        let second = ConvConfig { groups: 2, bias: false, ..Default::default() };
        let model = Convolutions {
            first: Conv2d::with_config(3, 8, 3, first, &rng)?,
            second: Conv2d::with_config(8, 4, 3, second, &rng)?,
            head: Linear::new(4, 5, &rng)?,
        };
        model.load_state_dict(weights)?;
        Ok(model)
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.second.forward(&self.first.forward(x)?.relu())?;
        self.head.forward(&x.mean_axis([2, 3], false)?)
    }
}

/// The adapter's tensors in a fixture as PEFT's folder.
fn folder_of(file: &WeightFile) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("adapter_config.json"), &file.texts()["config"]).unwrap();
    let tensors = file.under("adapter").unwrap().state_dict(&backend_cpu::cpu()).unwrap();
    save_safetensors(folder.path().join("adapter_model.safetensors"), &tensors).unwrap();
    folder
}

fn fixture_file(name: &str) -> WeightFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.safetensors"));
    weights::open(path).unwrap()
}

fn close(found: &Tensor, expected: &Tensor, what: &str) {
    let (found, expected) = (floats(found), floats(expected));
    let scale = expected.iter().fold(1e-30f64, |most, x| most.max(x.abs()));
    taper_testing::assert_close(&found, &expected, (0.0, 1e-4 * scale), what);
}

/// Compares a model with a fixture on every device. `run` gives the logits and the loss.
fn check<M: Module>(
    name: &str,
    make: impl Fn(&WeightFile, &Device) -> Result<M>,
    run: impl Fn(&M, &WeightFile, &Device) -> Result<(Tensor, Tensor)>,
) {
    let file = fixture_file(name);
    let folder = folder_of(&file);
    let expected = |name: &str| file.tensor(name, &backend_cpu::cpu()).unwrap();
    for device in devices() {
        let model = make(&file, &device).unwrap();
        let rng = Generator::seed(0, &device);
        let (before, _) = run(&model, &file, &device).unwrap();
        let adapter = load_peft(&model, folder.path(), None, &rng).unwrap();

        let (logits, loss) = run(&model, &file, &device).unwrap();
        close(&logits, &expected("output.logits"), &format!("{name}: logits on {device}"));
        close(&loss, &expected("output.loss"), &format!("{name}: loss on {device}"));
        loss.backward().unwrap();
        let gradients = file.under("grad").unwrap().state_dict(&backend_cpu::cpu()).unwrap();
        assert_eq!(gradients.len(), adapter.parameters().len());
        for (key, parameter) in adapter.named_parameters() {
            let found = parameter.grad().unwrap_or_else(|| panic!("{name}: no gradient of {key}"));
            close(
                &found,
                &gradients[&format!("base_model.model.{key}")],
                &format!("{name}: {key} on {device}"),
            );
        }
        assert_eq!(model.trainable_parameters().len(), adapter.parameters().len());

        // Disabled, the model answers as before; merged, as with the adapter; unmerged, to the bit.
        let (without, _) = adapter.disabled(|| run(&model, &file, &device)).unwrap().unwrap();
        close(&without, &before, &format!("{name}: disabled on {device}"));
        if name == "peft_conv" {
            assert!(adapter.merge().unwrap_err().to_string().contains("second has groups"));
        } else {
            let weights = || model.state_dict().values().map(floats).collect::<Vec<_>>();
            let plain = weights();
            adapter.merge().unwrap();
            assert_ne!(weights(), plain);
            let (merged, _) = run(&model, &file, &device).unwrap();
            close(&merged, &expected("output.logits"), &format!("{name}: merged on {device}"));
            assert!(adapter.activate().unwrap_err().to_string().contains("unmerge it first"));
            adapter.unmerge().unwrap();
            assert_eq!(weights(), plain, "{name}: unmerged on {device}");
        }
        written(name, &adapter, &logits);
    }
}

/// Saves the adapter, and loads it again; the folder stays where `TAPER_TEST=written=FOLDER` says, for the
/// script.
fn written(name: &str, adapter: &lora::Lora, logits: &Tensor) {
    let temporary = tempfile::tempdir().unwrap();
    let parent = match taper_testing::settings::setting("written") {
        Some(folder) => folder.into(),
        None => temporary.path().to_path_buf(),
    };
    let folder = parent.join(name);
    save_peft(adapter, &folder, None).unwrap();
    let found = nn::load_safetensors(folder.join("adapter_model.safetensors"), &backend_cpu::cpu()).unwrap();
    assert_eq!(found.len(), adapter.parameters().len());
    save_safetensors(
        parent.join(format!("{name}.safetensors")),
        &StateDict::from([("logits".to_string(), logits.detach())]),
    )
    .unwrap();
}

fn llama(file: &WeightFile, device: &Device) -> Result<Llama> {
    Llama::from_folder(Fixture::open(&file.texts()["base"]).folder(), device)
}

fn language<M: LanguageModel>(model: &M, file: &WeightFile, device: &Device) -> Result<(Tensor, Tensor)> {
    let ids = Fixture::open(&file.texts()["base"]).input("ids", device);
    let logits = model.forward(&ids)?;
    let loss = next_token_loss(&logits, &ids)?;
    Ok((logits, loss))
}

fn convolutions(file: &WeightFile, device: &Device) -> Result<Convolutions> {
    Convolutions::new(&file.under("weights")?.state_dict(device)?, device)
}

fn classify(model: &Convolutions, file: &WeightFile, device: &Device) -> Result<(Tensor, Tensor)> {
    let logits = model.forward(&file.tensor("input.x", device)?)?;
    let loss = logits.square().mean();
    Ok((logits, loss))
}

#[test]
fn lora_is_that_of_peft() {
    check("peft_lora", llama, language);
}

#[test]
fn rank_stabilised_scaling_is_that_of_peft() {
    check("peft_rslora", llama, language);
}

#[test]
fn dora_is_that_of_peft() {
    check("peft_dora", llama, language);
}

#[test]
fn transposed_weights_are_those_of_peft() {
    let gpt2 = |file: &WeightFile, device: &Device| {
        Gpt2::from_folder(Fixture::open(&file.texts()["base"]).folder(), device)
    };
    check("peft_gpt2", gpt2, language);
}

#[test]
fn convolutions_are_those_of_peft() {
    check("peft_conv", convolutions, classify);
    check("peft_conv_dora", convolutions, classify);
}

#[test]
fn the_first_pattern_that_fits_counts_as_in_peft() {
    check("peft_patterns", llama, language);
}

#[test]
fn biases_and_modules_that_peft_trained_are_loaded_and_saved() {
    check("peft_saved", convolutions, classify);
    check("peft_biases", convolutions, classify);
}

/// The head would change with the table, in which the adapter has no part.
#[test]
fn an_adapter_is_not_merged_into_tied_embeddings_unnoticed() {
    let device = backend_cpu::cpu();
    let fixtures = Fixture::open("gemma");
    let rng = Generator::seed(4, &device);
    let ids = fixtures.input("ids", &device);
    let model = models::load_language_model(fixtures.folder(), &device).unwrap();
    let adapter = lora::attach(&model, &LoraConfig::new(2).targets(["embed_tokens"]), &rng).unwrap();
    adapter
        .apply(&mut |_, parameter| parameter.assign(&Tensor::randn(parameter.dims(), &rng)?.mul_scalar(0.3)))
        .unwrap();
    let with = model.forward(&ids).unwrap();
    let error = adapter.merge().unwrap_err().to_string();
    assert!(error.contains("model.embed_tokens is also that of the output layer"), "{error}");
    assert!(error.contains("Leave it unmerged") && error.contains("MergeOptions::shared"), "{error}");
    close(&model.forward(&ids).unwrap(), &with, "nothing has changed");
    adapter.merge_with(lora::MergeOptions { shared: true, ..Default::default() }).unwrap();
    assert_ne!(floats(&model.forward(&ids).unwrap()), floats(&with));
    adapter.unmerge().unwrap();
    close(&model.forward(&ids).unwrap(), &with, "unmerged");
}

#[test]
fn a_folder_with_unknown_settings_is_refused_by_name() {
    let file = fixture_file("peft_lora");
    let (folder, device) = (folder_of(&file), backend_cpu::cpu());
    let model = llama(&file, &device).unwrap();
    let rng = Generator::seed(0, &device);
    let path = folder.path().join("adapter_config.json");
    let config = fs::read_to_string(&path).unwrap();
    let cases = [
        ("\"peft_type\": \"LORA\"", "\"peft_type\": \"LOHA\"", "peft_type = \"LOHA\""),
        ("\"bias\": \"none\"", "\"bias\": \"some\"", "bias = \"some\""),
        ("\"lora_bias\": false", "\"lora_bias\": true", "lora_B.bias"),
        ("\"use_qalora\": false", "\"newer\": 3", "newer = 3"),
        ("\"modules_to_save\": null", "\"modules_to_save\": [\"norm\"]", "model.norm.weight"),
        ("\"modules_to_save\": null", "\"modules_to_save\": [\"no\"]", "no module \"no\""),
        ("\"modules_to_save\": null", "\"modules_to_save\": 3", "modules_to_save = 3"),
        ("\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"", "init_lora_weights = \"pissa\""),
        ("\"layers.1.mlp.down_proj\"", "\"(down_proj\"", "alpha_pattern: \"(down_proj\" is no regular"),
        ("\"r\": 4", "\"r\": \"four\"", "r = \"four\""),
        ("\"r\": 4", "\"r\": 5", "lora_A"),
    ];
    for (from, to, message) in cases {
        assert!(config.contains(from), "{config}");
        fs::write(&path, config.replace(from, to)).unwrap();
        let error = load_peft(&model, folder.path(), None, &rng).unwrap_err().to_string();
        assert!(error.contains(message), "{to}: {error}");
        assert!(lora::names(&model).is_empty());
    }
    fs::write(&path, &config).unwrap();
    let tensors = folder.path().join("adapter_model.safetensors");
    let name = "base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight".to_string();
    save_safetensors(&tensors, &StateDict::from([(name, Tensor::zeros([4, 32], &device).unwrap())])).unwrap();
    let error = load_peft(&model, folder.path(), None, &rng).unwrap_err().to_string();
    assert!(error.contains("model.layers.9.self_attn.q_proj"), "{error}");
}

#[test]
fn adapters_of_one_model_are_switched_by_name() {
    let file = fixture_file("peft_lora");
    let device = backend_cpu::cpu();
    let model = llama(&file, &device).unwrap();
    let rng = Generator::seed(5, &device);
    let run = || language(&model, &file, &device).unwrap().0;
    let plain = run();
    let first = load_peft(&model, folder_of(&file).path(), Some("first"), &rng).unwrap();
    let with_first = run();
    assert_ne!(floats(&with_first), floats(&plain));
    let config = LoraConfig::new(2).targets(Targets::AllLinear).named("second");
    let second = lora::attach(&model, &config, &rng).unwrap();
    assert_eq!(second.layers().len(), 2 * 7, "every projection, without the output layer");
    close(&run(), &plain, "B is zero at first");
    lora::activate(&model, Some("first")).unwrap();
    close(&run(), &with_first, "the first again");
    lora::activate(&model, None).unwrap();
    close(&run(), &plain, "none");
    assert_eq!(lora::names(&model), ["first", "second"]);
    assert!(lora::activate(&model, Some("third")).unwrap_err().to_string().contains("first, second"));
    second.detach();
    first.activate().unwrap();
    close(&run(), &with_first, "the second detached");
    assert_eq!(lora::names(&model), ["first"]);
    first.merge().unwrap();
    first.detach();
    close(&run(), &file.tensor("output.logits", &device).unwrap(), "merged and detached");
}

/// Gives B random numbers, so that the adapter does something.
fn stir(adapter: &lora::Lora, rng: &Generator) {
    adapter
        .apply(&mut |name, parameter| match name.contains("_B") {
            true => parameter.assign(&Tensor::randn(parameter.dims(), rng)?.mul_scalar(0.2)),
            false => Ok(()),
        })
        .unwrap();
}

#[test]
fn weights_in_blocks_are_adapted_and_merged_only_on_request() {
    for device in devices() {
        let rng = Generator::seed(3, &device);
        let weight = Tensor::randn([64, 32], &rng).unwrap();
        let blocks = crate::gguf::in_blocks(&weight);
        let make = |weight: &Tensor| {
            let layer = Linear::from_weight(weight.clone().into_cell(false).unwrap(), None);
            (Sequential::new().add(layer.clone()), layer)
        };
        let ((quantized, layer), (dense, _)) = (make(&blocks), make(&blocks.dequantize()));
        for use_dora in [false, true] {
            let name = format!("dora_{use_dora}");
            let config = LoraConfig { use_dora, ..LoraConfig::new(4).targets(["0"]).named(&name) };
            let [of_blocks, of_dense] = [&quantized, &dense].map(|model| {
                let adapter = lora::attach(model, &config, &Generator::seed(4, &device)).unwrap();
                stir(&adapter, &Generator::seed(5, &device));
                adapter
            });
            let x = Tensor::randn([3, 32], &rng).unwrap().requires_grad();
            let y = quantized.forward(&x).unwrap();
            let expected = dense.forward(&x).unwrap();
            taper_testing::assert_close(&floats(&y), &floats(&expected), (1e-4, 1e-4), "output");
            y.square().sum().backward().unwrap();
            let found = floats(&x.grad().unwrap());
            x.set_grad(None);
            expected.square().sum().backward().unwrap();
            taper_testing::assert_close(
                &found,
                &floats(&x.grad().unwrap()),
                (1e-3, 1e-4),
                "gradient of the input",
            );
            for (a, b) in of_blocks.parameters().iter().zip(of_dense.parameters()) {
                let (a, b) = (a.grad().unwrap(), b.grad().unwrap());
                taper_testing::assert_close(
                    &floats(&a),
                    &floats(&b),
                    (1e-2, 1e-4),
                    "gradient of the adapter",
                );
            }
            let error = of_blocks.merge().unwrap_err().to_string();
            assert!(error.contains("q8_0") && error.contains("merge_dequantized"), "{error}");
            of_blocks.merge_dequantized().unwrap();
            assert!(layer.weight.block_format().is_none());
            taper_testing::assert_close(
                &floats(&quantized.forward(&x).unwrap()),
                &floats(&expected),
                (1e-3, 1e-4),
                "merged",
            );
            of_blocks.unmerge().unwrap();
            assert!(layer.weight.block_format().is_some());
        }
    }
}
