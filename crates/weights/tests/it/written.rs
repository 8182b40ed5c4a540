//! Files are written as other programs read them: the structure of the files, and the files themselves for
//! `scripts/weights_fixtures.py check`.

use std::io::Read;

use nn::{Linear, Module, StateDict};
use tensor_core::{DType, Generator, Tensor};
use weights::{BlockType, GgufValue, GgufWriter, ShardOptions, save_npz, save_sharded, save_torch};

use crate::common::{cpu, described, hash, known, open};

/// Every dtype and layout, in tensors that are views as they were in PyTorch.
fn dict() -> StateDict {
    open("dtypes.pt").state_dict(&cpu()).unwrap()
}

fn of_numpy() -> StateDict {
    dict().into_iter().filter(|(_, tensor)| tensor.dtype().info().numpy.is_some()).collect()
}

#[test]
fn every_dtype_and_layout_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    save_torch(at("all.pt"), &dict()).unwrap();
    save_npz(at("all.npz"), &of_numpy()).unwrap();
    let expected = known("expected.json", "dtypes.pt");
    for (path, count) in [(at("all.pt"), expected.len()), (at("all.npz"), of_numpy().len())] {
        let read = weights::open(&path).unwrap().state_dict(&cpu()).unwrap();
        assert_eq!(read.len(), count);
        for (name, tensor) in &read {
            assert_eq!(described(tensor), expected[name], "{name}");
        }
    }
    // A tensor with several names is one storage.
    let read = weights::open(at("all.pt")).unwrap().state_dict(&cpu()).unwrap();
    assert_eq!(read["tied"].id(), read["float32"].id());
    // Names of any kind.
    let odd: StateDict = ["", "a/b", "..", "日本", "a.b.c"]
        .into_iter()
        .map(|name| (name.to_string(), Tensor::new([1.0f32], &cpu()).unwrap()))
        .collect();
    save_torch(at("odd.pt"), &odd).unwrap();
    assert_eq!(weights::open(at("odd.pt")).unwrap().len(), odd.len());
}

/// The entries of a zip archive: name, offset, content.
fn entries(path: &std::path::Path) -> Vec<(String, u64, Vec<u8>)> {
    let mut zip = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    (0..zip.len())
        .map(|k| {
            let mut entry = zip.by_index(k).unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.name().unwrap().into_owned(), entry.data_start().unwrap(), content)
        })
        .collect()
}

/// PyTorch reads this file with `weights_only=True`: `scripts/weights_fixtures.py check` did. It is held to
/// its bytes, so that a change is checked anew.
#[test]
fn a_pytorch_file_has_pytorchs_structure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pt");
    let device = cpu();
    let weight = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device).unwrap();
    let dict = StateDict::from([
        ("bias".to_string(), Tensor::new([7u16], &device).unwrap()),
        ("tied".to_string(), weight.clone()),
        ("weight".to_string(), weight),
    ]);
    save_torch(&path, &dict).unwrap();
    let entries = entries(&path);
    let names: Vec<&str> = entries.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(
        names,
        ["archive/data.pkl", "archive/byteorder", "archive/data/0", "archive/data/1", "archive/version"]
    );
    assert!(entries.iter().all(|(_, start, _)| start % 64 == 0));
    assert_eq!(entries[1].2, b"little");
    assert_eq!(entries[2].2, [7, 0]);
    assert_eq!(entries[3].2, [1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat());
    assert_eq!(entries[4].2, b"3\n");
    assert_eq!(hash(&entries[0].2), PICKLE);
}

const PICKLE: &str = "bf994f30b98af0722faeeb769049a6a7235b09edd69ec25854ed02ce3cd61767";

#[test]
fn a_module_goes_to_a_file_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("linear.pt");
    let model = Linear::new(3, 2, &Generator::seed(0, &cpu())).unwrap();
    save_torch(&path, &model.state_dict()).unwrap();
    let other = Linear::new(3, 2, &Generator::seed(1, &cpu())).unwrap();
    other.load_state_dict(&weights::open(&path).unwrap().state_dict(&cpu()).unwrap()).unwrap();
    assert_eq!(other.weight.to_vec::<f32>().unwrap(), model.weight.to_vec::<f32>().unwrap());
}

/// Leaves the files in the folder that `TAPER_TEST=written=FOLDER` names, if there is one.
#[test]
fn written_for_others() {
    let temporary = tempfile::tempdir().unwrap();
    let folder =
        taper_testing::settings::setting("written").map_or(temporary.path().to_path_buf(), Into::into);
    std::fs::create_dir_all(&folder).unwrap();
    save_torch(folder.join("all.pt"), &dict()).unwrap();
    save_npz(folder.join("all.npz"), &of_numpy()).unwrap();
    let shards =
        save_sharded(folder.join("sharded"), &dict(), ShardOptions { max_shard_size: 500, floats: None })
            .unwrap();
    let q8 = open("small.gguf").bytes("Q8_0", &cpu()).unwrap();
    let mut writer = GgufWriter::new()
        .metadata("general.architecture", "llama")
        .metadata("t.texts", vec!["a".to_string(), String::new(), "日本".into()])
        .metadata("t.bool", true)
        .metadata("t.big", GgufValue::U64(1 << 63))
        .blocks("Q8_0", BlockType::Q8_0, &[2, 64], &q8);
    for (name, tensor) in dict() {
        // GGUF has neither numbers without axes nor empty tensors in practice: readers of others fail on
        // them.
        if tensor.dtype().info().gguf.is_some()
            && tensor.rank() > 0
            && tensor.numel() > 0
            && tensor.dtype() != DType::Bool
        {
            writer = writer.tensor(&name, &tensor);
        }
    }
    writer.save(folder.join("all.gguf")).unwrap();
    assert!(shards.len() > 3 && weights::open(folder.join("all.gguf")).unwrap().len() > 10);
}

/// A process that died while it wrote the configuration left a folder that could not be loaded.
#[test]
fn the_files_of_an_adapter_are_replaced_whole() {
    use nn::lora::{self, LoraConfig};
    let folder = tempfile::tempdir().unwrap();
    let rng = tensor_core::Generator::seed(0, &cpu());
    let net = nn::Sequential::new().add(nn::Linear::new(2, 2, &rng).unwrap());
    let adapter = lora::attach(&net, &LoraConfig::new(1).targets(["0"]), &rng).unwrap();
    weights::save_peft(&adapter, folder.path(), Some("first")).unwrap();
    let at = |name: &str| folder.path().join(name);
    // Another name of the old file keeps the old text.
    std::fs::hard_link(at("adapter_config.json"), at("old.json")).unwrap();
    weights::save_peft(&adapter, folder.path(), Some("second")).unwrap();
    let text = |name: &str| std::fs::read_to_string(at(name)).unwrap();
    assert!(text("old.json").contains("\"first\"") && text("adapter_config.json").contains("\"second\""));
    let mut names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    names.sort();
    assert_eq!(names, ["adapter_config.json", "adapter_model.safetensors", "old.json"]);
    // The order of patterns is that of the adapter.
    let mut config = LoraConfig::new(1).targets(["0"]).named("patterns");
    config.rank_pattern = lora::Patterns::from([("z", 3), ("^0", 2), ("0", 4), ("a", 5)]);
    let adapter = lora::attach(&net, &config, &rng).unwrap();
    weights::save_peft(&adapter, folder.path(), None).unwrap();
    assert!(text("adapter_config.json").contains(r#""rank_pattern": {"z": 3, "^0": 2, "0": 4, "a": 5}"#));
    let other = nn::Sequential::new().add(nn::Linear::new(2, 2, &rng).unwrap());
    let loaded = weights::load_peft(&other, folder.path(), None, &rng).unwrap();
    assert_eq!(loaded.config().rank_pattern, config.rank_pattern);
    assert_eq!(loaded.config().rank_of("0"), 2);
}
