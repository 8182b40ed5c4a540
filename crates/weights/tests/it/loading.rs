//! A module is loaded from a file: every format, a part of the names, and the memory and time that it takes.

use nn::{
    Linear, Module, NameMap, SafetensorsFile, Sequential, StateDict,
    lora::{self, LoraConfig},
    save_safetensors, skip_init,
};
use taper_testing::{reference_backend, run_alone};
use tensor_core::{DType, Device, Generator, Tensor};
use weights::{GgufWriter, LoadWeights, ShardOptions, save_npz, save_sharded, save_torch};

use crate::common::cpu;

fn net(seed: u64, width: usize, device: &Device) -> Sequential {
    let rng = Generator::seed(seed, device);
    let layers = [(); 4].map(|()| Linear::new(width, width, &rng).unwrap());
    layers.into_iter().fold(Sequential::new(), Sequential::add)
}

fn values(module: &dyn Module) -> Vec<Vec<f32>> {
    module.state_dict().values().map(|tensor| tensor.to_vec().unwrap()).collect()
}

#[test]
fn every_format_is_loaded_by_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let trained = net(1, 3, &cpu());
    let dict = trained.state_dict();
    save_torch(at("model.pt"), &dict).unwrap();
    save_safetensors(at("model.safetensors"), &dict).unwrap();
    save_npz(at("model.npz"), &dict).unwrap();
    GgufWriter::new()
        .metadata("general.architecture", "test")
        .state_dict(&dict)
        .save(at("model.gguf"))
        .unwrap();
    save_sharded(at("shards"), &dict, ShardOptions { max_shard_size: 100, floats: None }).unwrap();
    for name in ["model.pt", "model.safetensors", "model.npz", "model.gguf", "shards"] {
        let model = net(2, 3, &cpu());
        model.load(at(name)).unwrap();
        assert_eq!(values(&model), values(&trained), "{name}");
    }
    let model: Box<dyn Module> = Box::new(net(2, 3, &cpu()));
    model.load_state_dict(&SafetensorsFile::open(at("model.safetensors")).unwrap()).unwrap();
    assert_eq!(values(&*model), values(&trained));

    // Under other names, from a part of the file, and with another dtype in the file.
    let inner = dict.iter().map(|(name, tensor)| (format!("state.module.{name}"), tensor.clone())).collect();
    save_torch(at("nested.pt"), &inner).unwrap();
    let model = net(2, 3, &cpu());
    let file = weights::open(at("nested.pt")).unwrap().under("state").unwrap();
    model.load_mapped(&file, &NameMap::new().strip("module.")).unwrap();
    assert_eq!(values(&model), values(&trained));
    let halves = dict.iter().map(|(name, t)| (name.clone(), t.to_dtype(DType::F16).unwrap())).collect();
    save_torch(at("half.pt"), &halves).unwrap();
    model.load(at("half.pt")).unwrap();
    assert_eq!(model.parameters()[0].dtype(), DType::F32);
    assert_eq!(values(&model)[0], halves["0.bias"].to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap());

    // Nothing changes unless everything fits, and a file that is no file of weights is named.
    let before = values(&model);
    let message = model.load(at("nested.pt")).unwrap_err().to_string();
    assert!(
        message.contains("missing [\"0.weight\"") && message.contains("nothing was changed"),
        "{message}"
    );
    assert!(net(1, 4, &cpu()).load(at("model.pt")).unwrap_err().to_string().contains("misshapen"));
    assert_eq!(values(&model), before);
    assert!(model.load(at("none.pt")).unwrap_err().to_string().contains("none.pt"));
}

#[test]
fn a_part_is_loaded_and_long_lists_are_short_in_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("part.safetensors");
    let rng = Generator::seed(0, &cpu());
    let model: Vec<Linear> = (0..60).map(|_| Linear::new(2, 2, &rng).unwrap()).collect();
    let part = StateDict::from([
        ("3.weight".to_string(), Tensor::ones([2, 2], &cpu()).unwrap()),
        ("head.bias".to_string(), Tensor::ones(2, &cpu()).unwrap()),
    ]);
    save_safetensors(&path, &part).unwrap();
    let unmatched = model.load_partly(&path).unwrap();
    assert_eq!((unmatched.missing.len(), unmatched.unexpected), (119, vec!["head.bias".to_string()]));
    assert_eq!(model[3].weight.to_vec::<f32>().unwrap(), [1.0; 4]);
    let message = model.load(&path).unwrap_err().to_string();
    assert!(message.contains("\"0.weight\", \"0.bias\"") && message.contains("and 111 more]"), "{message}");
    assert!(message.contains("unexpected [\"head.bias\"]") && message.len() < 400, "{message}");

    // An adapter is a module of its own parameters.
    let adapted = lora::attach(&model, &LoraConfig::new(1).targets(["0", "7"]), &rng).unwrap();
    let state = adapted.state_dict();
    let ones = state.iter().map(|(name, tensor)| (name.clone(), tensor.ones_like())).collect();
    save_safetensors(&path, &ones).unwrap();
    adapted.load(&path).unwrap();
    assert!(adapted.parameters().iter().all(|p| p.to_vec::<f32>().unwrap().iter().all(|x| *x == 1.0)));
}

#[test]
fn values_that_are_replaced_are_never_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save_safetensors(&path, &net(1, 8, &cpu()).state_dict()).unwrap();
    let (device, backend) = reference_backend();
    let kernels = || backend.kernels.lock().unwrap().values().sum::<usize>();
    let model = skip_init(|| net(2, 8, &device));
    assert_eq!(kernels(), 0);
    model.load(&path).unwrap();
    assert_eq!(kernels(), 0, "{:?}", backend.kernels.lock().unwrap());
    let stored = values(&net(1, 8, &cpu()));
    assert_eq!(values(&model), stored);
    // Without a file they are the same as ever, drawn once they are read.
    let drawn = values(&net(2, 8, &device));
    let (before, late) = (kernels(), skip_init(|| net(2, 8, &device)));
    assert_eq!(kernels(), before);
    assert_eq!(values(&late), drawn);
    assert!(kernels() > before && before > 0);
}

#[test]
fn loading_takes_the_memory_of_the_weights_and_of_one_tensor() {
    if run_alone(loading_takes_the_memory_of_the_weights_and_of_one_tensor) {
        return;
    }
    const WIDTH: usize = 256;
    let folder = tempfile::tempdir().unwrap();
    let (whole, half) = (folder.path().join("model.pt"), folder.path().join("half.pt"));
    {
        let dict = net(1, WIDTH, &cpu()).state_dict();
        save_torch(&whole, &dict).unwrap();
        let halves = dict.iter().map(|(name, t)| (name.clone(), t.to_dtype(DType::F16).unwrap())).collect();
        save_torch(&half, &halves).unwrap();
    }
    let device = cpu();
    device.empty_cache();
    let start = device.memory().allocated;
    let model = skip_init(|| net(2, WIDTH, &device));
    let weights = (model.num_parameters() * 4) as u64;
    let largest = (WIDTH * WIDTH * 4) as u64;
    let peak_of = |path| {
        device.reset_peak();
        model.load(path).unwrap();
        device.memory().peak - start
    };
    // The initial values are never computed.
    let fresh = peak_of(&whole);
    assert!(fresh <= weights + weights / 10, "a peak of {fresh} bytes for weights of {weights}");
    // Old values are replaced one tensor at a time, and casts are as well.
    for path in [&whole, &half] {
        let again = peak_of(path);
        assert!(again <= weights + 2 * largest, "a peak of {again} bytes for weights of {weights}");
    }
    assert!(device.memory().allocated - start <= weights + weights / 10);
}
