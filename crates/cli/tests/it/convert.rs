//! `taper convert`: every tensor arrives to the bit, rounding is the library's, and a process that is killed
//! leaves no file.

use std::{
    fs,
    io::{Seek, Write},
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use taper::{
    GgmlType,
    nn::{StateDict, save_safetensors},
    prelude::*,
    weights::{self, Encoding, GgufWriter, WeightFile, save_torch},
};

use crate::common::{at, json, printed, program, refused, tiny_llama};

/// Tensors of several dtypes and ranks.
fn several() -> StateDict {
    let device = taper::cpu();
    let rng = Generator::seed(1, &device);
    let normal = |shape: &[usize]| Tensor::randn(shape.to_vec(), &rng).unwrap();
    StateDict::from([
        ("layer.weight".to_string(), normal(&[4, 256])),
        ("layer.bias".to_string(), normal(&[4])),
        ("narrow.weight".to_string(), normal(&[3, 32])),
        ("odd.weight".to_string(), normal(&[3, 10])),
        ("half".to_string(), normal(&[2, 3, 5]).to_dtype(DType::F16).unwrap()),
        ("count".to_string(), Tensor::from_slice(&[1i32, -7, 3], [3], &device).unwrap()),
        ("scalar".to_string(), normal(&[1]).squeeze(0).unwrap()),
    ])
}

/// The bytes of every tensor of a file.
fn bytes(path: &str) -> Vec<(String, String, Vec<usize>, Vec<u8>)> {
    let file = weights::open(path).unwrap();
    let bytes = |name: &str| file.bytes(name, &taper::cpu()).unwrap().to_vec::<u8>().unwrap();
    let row = |(name, info): (&str, &weights::TensorInfo)| {
        (name.to_string(), info.type_name().to_string(), info.shape().dims().to_vec(), bytes(name))
    };
    file.tensors().map(row).collect()
}

#[test]
fn tensors_pass_through_every_format_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let first = at(&folder, "first.safetensors");
    save_safetensors(&first, &several()).unwrap();
    let mut last = first.clone();
    for name in ["a.gguf", "b.npz", "c.pt", "d.safetensors", "e", "f.bin", "g.gguf", "h.safetensors"] {
        let next = at(&folder, name);
        assert_eq!(printed(&["convert", &last, &next]), "");
        assert_eq!(bytes(&next), bytes(&first), "{name}");
        last = next;
    }
    let one = at(&folder, "x.safetensors");
    let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &taper::cpu()).unwrap();
    save_safetensors(&one, &StateDict::from([("x".to_string(), x)])).unwrap();
    let (npy, back) = (at(&folder, "x.npy"), at(&folder, "back.npz"));
    printed(&["convert", &one, &npy]);
    printed(&["convert", &npy, &back]);
    assert_eq!(bytes(&back)[0].3, bytes(&one)[0].3);
    let message = refused(&["convert", &first, &npy]);
    assert!(message.contains("holds one tensor") && message.contains(".npz"), "{message}");
    let message = refused(&["convert", &first, &at(&folder, "x.h5")]);
    assert!(message.contains(".safetensors"), "{message}");
}

fn open(path: &str) -> WeightFile {
    weights::open(path).unwrap()
}

#[test]
fn floats_are_cast_and_the_rest_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (first, half) = (at(&folder, "first.safetensors"), at(&folder, "half.gguf"));
    save_safetensors(&first, &several()).unwrap();
    printed(&["convert", &first, &half, "--dtype", "bf16"]);
    let file = open(&half);
    let expected = several()["layer.weight"].to_dtype(DType::BF16).unwrap();
    assert!(file.tensor("layer.weight", &taper::cpu()).unwrap().equal(&expected).unwrap());
    assert_eq!(file.info("half").unwrap().dtype(), Some(DType::BF16));
    assert_eq!(file.info("count").unwrap().dtype(), Some(DType::I32));
    let message = refused(&["convert", &half, &at(&folder, "half.npz")]);
    assert!(message.contains("cast it to f32"), "{message}");
    assert!(!folder.path().join("half.npz").exists());
}

#[test]
fn matrices_are_rounded_to_blocks_as_the_library_rounds_them() {
    let folder = tempfile::tempdir().unwrap();
    let first = at(&folder, "first.safetensors");
    save_safetensors(&first, &several()).unwrap();
    let rounded =
        |format: GgmlType, name: &str| several()[name].quantize(format, None).unwrap().block_bytes().unwrap();
    for ending in ["small.gguf", "small.safetensors"] {
        let small = at(&folder, ending);
        printed(&["convert", &first, &small, "--quantize", "q4_k"]);
        let dict = open(&small).state_dict(&taper::cpu()).unwrap();
        let blocks = |name: &str| dict[name].block_bytes().unwrap();
        assert_eq!(blocks("layer.weight"), rounded(GgmlType::Q4_K, "layer.weight"));
        // Rows of 32 are no whole blocks of 256.
        assert_eq!(blocks("narrow.weight"), rounded(GgmlType::Q8_0, "narrow.weight"));
        for name in ["odd.weight", "layer.bias", "count"] {
            assert!(dict[name].equal(&several()[name]).unwrap(), "{name}");
        }
        // Blocks stay as they are on the way to another file, and a dtype decodes them.
        let (again, dense) = (at(&folder, &format!("again-{ending}")), at(&folder, "dense.npz"));
        printed(&["convert", &small, &again]);
        assert_eq!(bytes(&again), bytes(&small));
        printed(&["convert", &small, &dense, "--dtype", "f32"]);
        let half = at(&folder, &format!("half-{ending}"));
        printed(&["convert", &small, &half, "--dtype", "f16"]);
        assert_eq!(open(&half).info("layer.weight").unwrap().encoding(), &Encoding::Plain(DType::F16));
        let decoded = open(&dense).tensor("layer.weight", &taper::cpu()).unwrap();
        assert!(decoded.equal(&dict["layer.weight"].dequantize()).unwrap());
    }
    let kept = at(&folder, "kept.gguf");
    printed(&["convert", &first, &kept, "--quantize", "q8_0", "--exclude", "layer"]);
    assert_eq!(open(&kept).info("layer.weight").unwrap().dtype(), Some(DType::F32));
    assert!(matches!(open(&kept).info("narrow.weight").unwrap().encoding(), Encoding::Blocks(_)));
    let message = refused(&["convert", &first, &at(&folder, "x.npz"), "--quantize", "q8_0"]);
    assert!(message.contains("holds no blocks") && message.contains(".gguf"), "{message}");
    let message = refused(&["convert", &first, &at(&folder, "x.gguf"), "--quantize", "nf4"]);
    assert!(message.contains("holds no blocks of nf4; give .safetensors or a folder"), "{message}");
    let message = refused(&["convert", &first, &at(&folder, "x.gguf"), "--quantize", "q9"]);
    assert!(message.contains("give one of q4_0"), "{message}");
}

#[test]
fn a_folder_stays_a_model() {
    let folder = tiny_llama();
    let (model, small, text) = (folder.path().to_str().unwrap(), at(&folder, "small"), at(&folder, "text"));
    fs::write(&text, "The library was open. ".repeat(6)).unwrap();
    printed(&["convert", model, &small, "--quantize", "q8_0"]);
    assert!(Path::new(&small).join("tokenizer.json").exists());
    let message = refused(&["convert", &small, &format!("{small}/."), "--dtype", "f32"]);
    assert!(message.contains("give another name"), "{message}");
    let of = |model: &str| {
        let found =
            json(&["perplexity", model, "--text", &text, "--context", "32", "--stride", "16", "--json"]);
        found["perplexity"].as_f64().unwrap()
    };
    let (before, after) = (of(model), of(&small));
    assert!(before != after && (after / before - 1.0).abs() < 0.01, "{before} {after}");
}

#[test]
fn metadata_and_parts_of_checkpoints_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (at(&folder, "old.gguf"), at(&folder, "new.gguf"));
    let metadata =
        GgufWriter::new().metadata("general.architecture", "llama").metadata("general.file_type", 1u32);
    metadata.state_dict(&several()).save(&old).unwrap();
    printed(&["convert", &old, &new]);
    assert_eq!(open(&new).gguf_metadata(), open(&old).gguf_metadata());
    printed(&["convert", &old, &new, "--quantize", "q8_0"]);
    assert_eq!(open(&new).gguf_metadata().keys().collect::<Vec<_>>(), ["general.architecture"]);

    let (checkpoint, part) = (at(&folder, "checkpoint.pt"), at(&folder, "part.safetensors"));
    let nested = several().into_iter().map(|(name, tensor)| (format!("model_state.{name}"), tensor));
    save_torch(&checkpoint, &nested.collect()).unwrap();
    printed(&["convert", &checkpoint, &part, "--under", "model_state"]);
    assert_eq!(open(&part).names().collect::<Vec<_>>(), several().keys().collect::<Vec<_>>());
    let message = refused(&["convert", &checkpoint, &part, "--under", "model"]);
    assert!(message.contains("model_state"), "{message}");
}

/// The bytes of the file whose conversion is interrupted.
const LARGE_BYTES: u64 = 256 << 20;
/// The longest that the test waits for the conversion to begin to write.
const WRITING_SECONDS: u64 = 60;

#[test]
fn a_process_that_is_killed_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (large, out) = (at(&folder, "large.safetensors"), at(&folder, "out.npz"));
    let header = format!(
        r#"{{"x": {{"dtype": "F32", "shape": [{}], "data_offsets": [0, {LARGE_BYTES}]}}}}"#,
        LARGE_BYTES / 4
    );
    let mut file = fs::File::create(&large).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    // Zeros that take no place on the disk.
    let start = file.stream_position().unwrap();
    file.set_len(start + LARGE_BYTES).unwrap();

    let temporary = || {
        let entries = fs::read_dir(folder.path()).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.')).count()
    };
    let mut child = program(&["convert", &large, &out]).spawn().unwrap();
    let begin = Instant::now();
    while temporary() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was seen to write");
        assert!(begin.elapsed() < Duration::from_secs(WRITING_SECONDS));
        sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(!Path::new(&out).exists());
    // The next conversion completes, and removes what the killed one left.
    printed(&["convert", &large, &out]);
    assert_eq!(temporary(), 0);
    assert_eq!(open(&out).info("x").unwrap().bytes(), Some(LARGE_BYTES));
}
