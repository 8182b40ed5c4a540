//! Safetensors in several files: written, read, and what a bad index says.

use nn::StateDict;
use tensor_core::{DType, Tensor};
use weights::{Format, ShardOptions, save_sharded, save_torch};

use crate::common::cpu;

fn dict() -> StateDict {
    let of = |k: usize| Tensor::full([k, 4], k as f64, &cpu()).unwrap();
    (1..6).map(|k| (format!("layer.{k}"), of(k))).collect()
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn shards_are_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("model");
    let save = |bytes: u64, floats| {
        save_sharded(&folder, &dict(), ShardOptions { max_shard_size: bytes, floats }).unwrap();
        let file = weights::open(&folder).unwrap();
        for (name, tensor) in dict() {
            assert_eq!(
                file.tensor(&name, &cpu()).unwrap().to_f64_vec().unwrap(),
                tensor.to_f64_vec().unwrap()
            );
        }
        file
    };
    let file = save(120, None);
    let shards = [
        "model-00001-of-00003.safetensors",
        "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
    ];
    assert_eq!(names(&folder), [&shards[..], &["model.safetensors.index.json"]].concat());
    assert_eq!(file.format(), Format::Sharded);
    assert_eq!(file.value().get("total_size").unwrap().as_str(), Some("240"));
    // A tensor that is larger than a file may be has one of its own, and files of the call before are gone.
    let file = save(1, Some(DType::BF16));
    assert_eq!((names(&folder).len(), file.info("layer.2").unwrap().dtype()), (6, Some(DType::BF16)));
    let file = save(u64::MAX, None);
    assert_eq!((names(&folder), file.format()), (vec!["model.safetensors".to_string()], Format::Safetensors));
    save_sharded(&folder, &StateDict::new(), ShardOptions::default()).unwrap();
    assert!(weights::open(&folder).unwrap().is_empty());
}

#[test]
fn shards_of_pytorchs_own_format_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let part =
        |range: std::ops::Range<usize>| dict().into_iter().skip(range.start).take(range.len()).collect();
    save_torch(folder.join("a.bin"), &part(0..3)).unwrap();
    save_torch(folder.join("b.bin"), &part(3..5)).unwrap();
    let map: serde_json::Map<String, serde_json::Value> =
        (1..6).map(|k| (format!("layer.{k}"), if k < 4 { "a.bin" } else { "b.bin" }.into())).collect();
    let index = serde_json::json!({"weight_map": map}).to_string();
    std::fs::write(folder.join("pytorch_model.bin.index.json"), index).unwrap();
    let read = weights::open(folder).unwrap().state_dict(&cpu()).unwrap();
    assert!(
        dict().iter().all(|(name, tensor)| read[name].to_f64_vec().unwrap() == tensor.to_f64_vec().unwrap())
    );
}

#[test]
fn a_bad_index_says_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("model");
    assert!(weights::open(&folder).unwrap_err().to_string().contains("cannot be read"));
    save_sharded(&folder, &dict(), ShardOptions { max_shard_size: 120, floats: None }).unwrap();
    let index = folder.join("model.safetensors.index.json");
    let whole = std::fs::read_to_string(&index).unwrap();
    for (content, part) in [
        (
            whole.replace("00003-of-00003", "00004-of-00003"),
            "names the shard \"model-00004-of-00003.safetensors\", which is missing, for \"layer.5\"",
        ),
        (
            whole.replace("layer.5", "layer.6"),
            "model-00003-of-00003.safetensors: has no tensor layer.6, which the index says is in it",
        ),
        (whole.replace("model-00001", "../model-00001"), "not within the folder"),
        (whole.replace("\"model-00001-of-00003.safetensors\"", "\"/etc/passwd\""), "not within the folder"),
        (whole.replace("\"model-00001-of-00003.safetensors\"", "7"), "names no file for"),
        (whole.replace("weight_map", "weights"), "without a \"weight_map\""),
        (whole[..whole.len() / 2].to_string(), "is no index of shards"),
    ] {
        std::fs::write(&index, content).unwrap();
        let message = weights::open(&folder).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    std::fs::write(&index, &whole).unwrap();
    let shard = folder.join("model-00002-of-00003.safetensors");
    let bytes = std::fs::read(&shard).unwrap();
    std::fs::write(&shard, &bytes[..bytes.len() - 1]).unwrap();
    let message = weights::open(&folder).unwrap_err().to_string();
    assert!(message.contains("model-00002-of-00003.safetensors") && message.contains("cut off"), "{message}");
    std::fs::remove_file(&index).unwrap();
    std::fs::write(folder.join("notes.txt"), "").unwrap();
    let message = weights::open(&folder).unwrap_err().to_string();
    assert!(message.contains("is a folder without weights: none of model.safetensors"), "{message}");
}

/// A tensor in blocks stays in its blocks in safetensors, which describe them, and is numbers in PyTorch's
/// files.
#[test]
fn blocks_go_through_files() {
    let folder = tempfile::tempdir().unwrap();
    let q4 = crate::common::open("small.gguf").tensor("Q4_0", &cpu()).unwrap();
    let dict = StateDict::from([("q".to_string(), q4.clone())]);
    save_sharded(folder.path(), &dict, ShardOptions::default()).unwrap();
    let read = weights::open(folder.path()).unwrap().tensor("q", &cpu()).unwrap();
    assert_eq!((read.dims(), read.block_bytes().unwrap()), (q4.dims(), q4.block_bytes().unwrap()));
    save_torch(folder.path().join("q.pt"), &dict).unwrap();
    let read = weights::open(folder.path().join("q.pt")).unwrap().tensor("q", &cpu()).unwrap();
    assert!(read.block_format().is_none());
    assert_eq!(read.to_vec::<f32>().unwrap(), q4.to_vec::<f32>().unwrap());
}
