//! GGUF: metadata of every type, dense tensors, blocks as they are, and what is refused.

use tensor_core::{DType, Tensor};
use weights::{BlockType, Encoding, Format, GgufArray, GgufValue, GgufWriter};

use crate::common::{bytes, cpu, described, hash, known, open, refusal};

#[test]
fn metadata_of_every_type_is_read_and_written() {
    let file = open("small.gguf");
    assert_eq!(file.format(), Format::Gguf);
    let metadata = file.gguf_metadata();
    for (name, value) in [
        ("t.u8", GgufValue::U8(200)),
        ("t.i8", GgufValue::I8(-5)),
        ("t.u16", GgufValue::U16(60000)),
        ("t.i16", GgufValue::I16(-600)),
        ("t.u32", GgufValue::U32(1 << 31)),
        ("t.i32", GgufValue::I32(-70000)),
        ("t.u64", GgufValue::U64(1 << 63)),
        ("t.i64", GgufValue::I64(-(1 << 40))),
        ("t.f32", GgufValue::F32(0.5)),
        ("t.f64", GgufValue::F64(1e-300)),
        ("t.bool", GgufValue::Bool(true)),
        ("t.text", "Zürich".into()),
        ("t.texts", vec!["a".to_string(), String::new(), "日本".into()].into()),
        ("t.ints", vec![1i32, -2, 3].into()),
        ("t.floats", vec![0.5f32, 1.5].into()),
        ("general.architecture", "llama".into()),
    ] {
        assert_eq!(metadata[name], value, "{name}");
    }
    assert_eq!(metadata["t.u64"].as_u64(), Some(1 << 63));
    assert_eq!((metadata["t.i8"].as_u64(), metadata["t.i8"].as_f64()), (None, Some(-5.0)));
    assert_eq!(metadata["t.ints"].as_array().unwrap().to_i64s(), Some(vec![1, -2, 3]));
    assert_eq!(file.value().at("t.texts.2").unwrap().as_str(), Some("日本"));

    let nested = GgufArray::Array(vec![
        GgufArray::U8(vec![1, 2]),
        GgufArray::Text(vec![]),
        GgufArray::Bool(vec![true]),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("again.gguf");
    let mut writer = GgufWriter::new().metadata("nested", GgufValue::Array(nested.clone()));
    for (name, value) in metadata {
        writer = writer.metadata(name, value.clone());
    }
    writer.save(&path).unwrap();
    let again = weights::open(&path).unwrap();
    assert_eq!(again.gguf_metadata()["nested"], GgufValue::Array(nested));
    assert!(metadata.iter().all(|(name, value)| again.gguf_metadata()[name] == *value));
}

#[test]
fn dense_tensors_and_blocks_are_read_and_written() {
    let (file, known) = (open("small.gguf"), known("expected.json", "small.gguf"));
    assert_eq!(file.len(), known.len());
    let mut writer = GgufWriter::new();
    for (name, info) in file.tensors() {
        let expected = &known[name];
        assert_eq!(serde_json::json!(info.shape().dims()), expected["shape"], "{name}");
        let raw = file.bytes(name, &cpu()).unwrap();
        assert_eq!(raw.numel() as u64, info.bytes().unwrap());
        assert_eq!(hash(&raw.read_bytes().unwrap()), expected["sha256"], "{name}");
        match info.encoding() {
            Encoding::Plain(dtype) => {
                let tensor = file.tensor(name, &cpu()).unwrap();
                if *dtype != DType::BF16 {
                    assert_eq!(described(&tensor), *expected, "{name}");
                }
                writer = writer.tensor(name, &tensor);
            }
            Encoding::Blocks(blocks) => {
                assert_eq!(expected["dtype"], blocks.name());
                // The rows are −8 to 8 in eighths, which each format has to within a step of its scale.
                let tensor = file.tensor(name, &cpu()).unwrap();
                assert_eq!((tensor.dtype(), tensor.dims()), (DType::F32, &[2, 64][..]), "{name}");
                let numbers = tensor.to_vec::<f32>().unwrap();
                let step = if *blocks == BlockType::Q8_0 { 0.07 } else { 0.6 };
                let near = |(k, number): (usize, &f32)| (number - (k as f32 - 64.0) / 8.0).abs() <= step;
                assert!(numbers.iter().enumerate().all(near), "{name}: {numbers:?}");
                assert_eq!(tensor.block_bytes().unwrap(), raw.read_bytes().unwrap());
                // As a tensor in blocks, or as the blocks.
                writer = match *blocks == BlockType::Q8_0 {
                    true => writer.tensor(name, &tensor),
                    false => writer.blocks(name, *blocks, info.shape().dims(), &raw),
                };
            }
            other => panic!("{name} is {other:?}"),
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("again.gguf");
    writer.save(&path).unwrap();
    let again = weights::open(&path).unwrap();
    for (name, info) in file.tensors() {
        let other = again.info(name).unwrap();
        assert_eq!((other.shape(), other.encoding()), (info.shape(), info.encoding()), "{name}");
        let read = |file: &weights::WeightFile| file.bytes(name, &cpu()).unwrap().read_bytes().unwrap();
        assert_eq!(read(&again), read(&file), "{name}");
    }
}

#[test]
fn what_gguf_cannot_hold_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.gguf");
    let device = cpu();
    let bools = Tensor::new([true], &device).unwrap();
    let bytes = Tensor::zeros([34], (DType::U8, &device)).unwrap();
    let one = Tensor::new([1.0f32], &device).unwrap();
    for (writer, part) in [
        (GgufWriter::new().tensor("b", &bools), "GGUF has no type for bool"),
        (GgufWriter::new().tensor("a", &one).tensor("a", &one), "two tensors \"a\""),
        (GgufWriter::new().blocks("q", BlockType::Q8_0, &[64], &bytes), "takes 68 bytes"),
        (GgufWriter::new().blocks("q", BlockType::Q8_0, &[4, 8], &bytes), "rows of whole blocks of 32"),
        (GgufWriter::new().metadata("general.alignment", 12u32), "a multiple of 8"),
    ] {
        let message = writer.save(&path).unwrap_err().to_string();
        assert!(message.contains(part) && !path.exists(), "{message}");
    }
    let wide = GgufWriter::new().metadata("general.alignment", 64u32).tensor("a", &one).tensor("b", &one);
    wide.save(&path).unwrap();
    assert_eq!(weights::open(&path).unwrap().tensor("b", &device).unwrap().to_vec::<f32>().unwrap(), [1.0]);
    assert_eq!(std::fs::metadata(&path).unwrap().len() % 64, 0);
}

/// A file by hand: version, counts, and what follows.
fn file(version: u32, tensors: u64, values: u64, rest: &[u8]) -> Vec<u8> {
    [b"GGUF", &version.to_le_bytes()[..], &tensors.to_le_bytes(), &values.to_le_bytes(), rest].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

fn tensor(name: &str, sizes: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let sizes_bytes: Vec<u8> = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
    [
        &text(name)[..],
        &(sizes.len() as u32).to_le_bytes(),
        &sizes_bytes,
        &kind.to_le_bytes(),
        &offset.to_le_bytes(),
    ]
    .concat()
}

#[test]
fn broken_files_are_refused_by_name() {
    let two = |a: Vec<u8>, b: Vec<u8>| file(3, 2, 0, &[a, b, vec![0; 256]].concat());
    for (content, part) in [
        (file(1, 0, 0, &[]), "version 1, expected 2 or 3"),
        (file(3u32.swap_bytes(), 0, 0, &[]), "big-endian"),
        (file(3, 1, 0, &[]), "cut off"),
        (file(3, u64::MAX, u64::MAX, &[]), "cut off"),
        (file(3, 0, 1, &u64::MAX.to_le_bytes()), "cut off"),
        (file(3, 0, 1, &[text("k"), vec![13, 0, 0, 0]].concat()), "\"k\" of type 13"),
        (
            file(
                3,
                0,
                1,
                &[text("k"), vec![9, 0, 0, 0, 5, 0, 0, 0], u64::MAX.to_le_bytes().to_vec()].concat(),
            ),
            "cut off",
        ),
        (file(3, 1, 0, &tensor("t", &[u64::MAX, 2], 0, 0)), "more elements than can be counted"),
        (file(3, 1, 0, &tensor("t", &[4], 99, 0)), "of type 99"),
        (file(3, 1, 0, &tensor("t", &[33], 8, 0)), "no whole blocks of 32"),
        (file(3, 1, 0, &tensor("t", &[4], 0, 0)), "\"t\" of 16 bytes"),
        (file(3, 1, 0, &tensor("t", &[4], 0, u64::MAX - 8)), "beyond the end of any file"),
        (two(tensor("a", &[16], 0, 0), tensor("b", &[4], 0, 32)), "\"a\" and \"b\" overlap"),
        (two(tensor("a", &[4], 0, 0), tensor("a", &[4], 0, 32)), "two tensors \"a\""),
        (two(tensor("a", &[4], 0, 0), tensor("b", &[4], 0, 20)), "aligned to 32"),
        (
            file(
                3,
                0,
                1,
                &[text("k"), vec![9, 0, 0, 0], [[9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]; 20].concat()].concat(),
            ),
            "more than 8 deep",
        ),
    ] {
        let message = refusal(&content);
        assert!(message.contains(part), "{message}");
    }
    // Version 2 is laid out as version 3.
    let mut old = bytes("small.gguf");
    old[4] = 2;
    assert_eq!(weights::from_bytes(old).unwrap().len(), open("small.gguf").len());
}
