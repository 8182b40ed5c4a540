//! Where the parameters of a network come from: a generator, a state dict, a file.

use models::{
    Llama, LlamaConfig, WeightSource,
    audio::{Whisper, WhisperConfig},
    vision::{Vgg, VggConfig, VggStep},
};
use nn::{Module, StateDict, save_safetensors};
use taper_testing::reference_backend;
use tensor_core::{DType, Generator, Result, Tensor};

use crate::fixture::{Fixture, floats};

/// A network with batch norms, whose counters are integers.
fn small() -> VggConfig {
    use VggStep::{Conv, Pool};
    VggConfig {
        features: vec![Conv(4), Pool, Conv(6)],
        batch_norm: true,
        hidden: 8,
        num_classes: 5,
        dropout: 0.5,
    }
}

fn weights() -> StateDict {
    let device = backend_cpu::cpu();
    let net = Vgg::new(&small(), &Generator::seed(3, &device)).unwrap();
    // Statistics and counters other than initial ones.
    let _ = net.forward(&Tensor::randn([2, 3, 8, 8], &Generator::seed(1, &device)).unwrap()).unwrap();
    net.state_dict()
}

fn message(dict: StateDict) -> String {
    let source = WeightSource::state_dict(dict, &backend_cpu::cpu());
    Vgg::new(&small(), source).err().unwrap().to_string()
}

#[test]
fn a_network_of_a_state_dict_is_one_that_loads_it() -> Result<()> {
    let (device, dict) = (backend_cpu::cpu(), weights());
    assert_eq!(floats(&dict["features.1.num_batches_tracked"]), [1.0]);
    let loaded = Vgg::new(&small(), &Generator::seed(0, &device))?;
    loaded.load_state_dict(&dict)?;
    let built = Vgg::new(&small(), WeightSource::state_dict(dict, &device))?;
    let (found, expected) = (built.state_dict(), loaded.state_dict());
    assert!(found.keys().eq(expected.keys()));
    for (name, value) in &found {
        assert_eq!(value.dtype(), expected[name].dtype(), "{name}");
        assert_eq!(floats(value), floats(&expected[name]), "{name}");
    }
    assert!(built.parameters().iter().all(Tensor::is_tracked));
    Ok(())
}

#[test]
fn a_network_may_be_a_part_of_a_file() -> Result<()> {
    let (folder, device) = (tempfile::tempdir().unwrap(), backend_cpu::cpu());
    let path = folder.path().join("model.safetensors");
    let mut both: StateDict =
        weights().into_iter().map(|(name, value)| (format!("teacher.{name}"), value)).collect();
    both.insert("student.weight".into(), Tensor::ones([2], &device)?);
    save_safetensors(&path, &both)?;
    let source = WeightSource::open(&path, &device)?;
    let built = Vgg::new(&small(), source.at("teacher"))?;
    assert_eq!(floats(&built.state_dict()["classifier.6.weight"]), floats(&weights()["classifier.6.weight"]));
    let refused = Vgg::new(&small(), &source).err().unwrap().to_string();
    assert!(refused.contains("has no \"features.0.weight\" and ") && refused.contains("model.safetensors"));
    Ok(())
}

#[test]
fn tensors_of_another_network_are_refused() -> Result<()> {
    let device = backend_cpu::cpu();
    let mut dict = weights();
    dict.insert("classifier.6.bias".into(), Tensor::ones([6], &device)?);
    assert!(message(dict).contains("classifier.6.bias: f32 [6] in the dict, f32 [5] in the module"));
    let mut dict = weights();
    dict.remove("classifier.6.bias");
    assert!(message(dict).contains("the state dict has no \"classifier.6.bias\": these are the weights of"));
    let mut dict = weights();
    dict.insert("classifier.7.bias".into(), Tensor::ones([6], &device)?);
    assert!(message(dict).contains("has 1 tensors that belong to no part of this model: classifier.7.bias"));
    // Old files have no counters.
    let mut dict = weights();
    dict.retain(|name, _| !name.ends_with("num_batches_tracked"));
    let net = Vgg::new(&small(), WeightSource::state_dict(dict, &device))?;
    assert_eq!(floats(&net.state_dict()["features.1.num_batches_tracked"]), [0.0]);
    let source = WeightSource::state_dict(weights(), &device).floats(DType::BF16);
    let refused = Vgg::new(&small(), source).err().unwrap().to_string();
    assert!(refused.contains("are f32, not bf16: call set_default_dtype(BF16) before"), "{refused}");
    Ok(())
}

#[test]
fn initial_values_that_a_source_replaces_are_never_computed() -> Result<()> {
    let (device, backend) = reference_backend();
    let kernels = || backend.kernels.lock().unwrap().values().sum::<usize>();
    let built = Vgg::new(&small(), WeightSource::state_dict(weights(), &device))?;
    assert_eq!(kernels(), 0, "{:?}", backend.kernels.lock().unwrap());
    assert_eq!(floats(&built.state_dict()["classifier.0.weight"]), floats(&weights()["classifier.0.weight"]));
    // A network whose layers are partly from the source and partly by a constructor.
    let fixture = Fixture::open("whisper");
    let config: WhisperConfig = models::read_config(fixture.folder())?;
    Whisper::new(&config, WeightSource::open(fixture.folder(), &device)?)?;
    assert_eq!(kernels(), 0, "{:?}", backend.kernels.lock().unwrap());
    Vgg::new(&small(), &Generator::seed(0, &device))?;
    assert!(kernels() > 0);
    Ok(())
}

#[test]
fn a_language_model_takes_a_generator_too() -> Result<()> {
    let device = backend_cpu::cpu();
    let config = LlamaConfig {
        vocab_size: 20,
        hidden_size: 8,
        intermediate_size: 8,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        ..Default::default()
    };
    let model = Llama::new(&config, &Generator::seed(4, &device))?;
    let same = Llama::new(&config, WeightSource::random(&Generator::seed(4, &device)))?;
    let copy = Llama::new(&config, WeightSource::state_dict(model.state_dict(), &device))?;
    for (name, value) in model.state_dict() {
        assert_eq!(floats(&value), floats(&same.state_dict()[&name]), "{name}");
        assert_eq!(floats(&value), floats(&copy.state_dict()[&name]), "{name}");
    }
    Ok(())
}
