//! PyTorch's files: both containers, every dtype and layout, the objects around the tensors, and what is
//! refused.

use tensor_core::{DType, Tensor};
use weights::{Encoding, Format, Value};

use crate::common::{assert_known, bytes, cpu, described, known, open, path, refusal};

#[test]
fn every_dtype_and_layout_of_both_containers_is_read() {
    for name in ["dtypes.pt", "dtypes_protocol4.pt", "dtypes_legacy.pt"] {
        assert_known("expected.json", name, &cpu());
    }
    assert_eq!(open("dtypes.pt").format(), Format::Torch);
    assert_eq!(open("dtypes_legacy.pt").format(), Format::TorchLegacy);
    // On a backend that has no way of its own to fill a buffer.
    assert_known("expected.json", "dtypes.pt", &taper_testing::reference());
}

#[test]
fn models_of_others_are_read_to_the_bit() {
    for name in ["crepe_tiny.pth", "pnet.pt", "rnet.pt"] {
        assert_known("models.json", name, &cpu());
    }
}

/// `torch.save(model, path)`: the state dict of the model, whatever its class.
#[test]
fn whole_models_are_their_state() {
    let names =
        ["whole_model.pt", "whole_modules.pt", "whole_modules_legacy.pt", "whole_modules_protocol4.pt"];
    for name in names {
        assert_known("expected.json", name, &cpu());
    }
    let checkpoint = open("whole_modules_protocol4.pt");
    assert_eq!(checkpoint.value().at("epoch").and_then(Value::as_i64), Some(3));
    let model = checkpoint.under("model").unwrap();
    assert_eq!(model.state_dict(&cpu()).unwrap().len(), known("expected.json", "whole_modules.pt").len());
    let dict = open("whole_modules.pt").state_dict(&cpu()).unwrap();
    assert_eq!(dict["tied.weight"].id(), dict["head.weight"].id());
}

/// PyTorch's archives of names of this length end in bytes that looked like another record.
#[test]
fn a_stem_of_21_characters_is_as_any_other() {
    assert_known("expected.json", "stem_of_21_characters.pt", &cpu());
}

/// The pickle of an object of a class with these attributes.
fn object(attributes: &[u8]) -> Vec<u8> {
    [b"c__main__\nNet\n)\x81", attributes, b"b."].concat()
}

#[test]
fn objects_of_classes_are_modules_or_refused() {
    let text = |text: &str| [b"X".as_slice(), &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let entry = |key: &str, value: &[u8]| [text(key), value.to_vec()].concat();
    let parts = |parameters: &[u8]| {
        let entries = [entry("_parameters", parameters), entry("_buffers", b"}"), entry("_modules", b"}")];
        [b"}(", &entries.concat()[..]].concat()
    };
    let tensor = pickled(0, &[2], &[1]);
    let parameters = [b"}(", &entry("w", &tensor[2..tensor.len() - 1])[..], b"u"].concat();
    // Attributes that are skipped may be anything, for nothing is called.
    let skipped = entry("act", b"cos\nsystem\nX\x02\0\0\0id\x85R");
    let module = object(&[parts(&parameters), skipped, b"u".to_vec()].concat());
    let file = weights::from_bytes(zipped(&module, "big")).unwrap();
    assert_eq!(file.names().collect::<Vec<_>>(), ["w"]);
    assert_eq!(file.tensor("w", &cpu()).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
    // An object of another class as a parameter, attributes that are not a module's, and no attributes.
    let inner = [b"}(", &entry("w", b"cos\nsystem\nX\x02\0\0\0id\x85R")[..], b"u"].concat();
    for (pickle, name) in [
        (object(&[parts(&inner), b"u".to_vec()].concat()), "os.system"),
        (object(b"}"), "__main__.Net"),
        (object(&[b"}(", &entry("_parameters", b"}")[..], b"u"].concat()), "__main__.Net"),
        (b"c__main__\nNet\n)\x81.".to_vec(), "__main__.Net"),
        (b"c__main__\nNet\n)}\x92.".to_vec(), "__main__.Net"),
    ] {
        let message = refusal(&zipped(&pickle, "little"));
        assert!(message.contains(&format!("refers to {name}")), "{message}");
    }
    // A module that holds itself.
    let own = [b"c__main__\nNet\n)\x81q\x00", &parts(b"}")[..]].concat();
    let own =
        [own, entry("_modules", &[b"}(", &entry("self", b"h\x00")[..], b"u"].concat()), b"ub.".to_vec()];
    assert!(refusal(&zipped(&own.concat(), "little")).contains("in itself"));
}

#[test]
fn checkpoints_are_trees() {
    for name in ["checkpoint.pt", "checkpoint_legacy.pt"] {
        assert_known("expected.json", name, &cpu());
        let file = open(name);
        let value = file.value();
        let at = |path: &str| value.at(path).unwrap();
        assert_eq!(at("epoch").as_i64(), Some(3));
        assert_eq!(at("optimizer.param_groups.0.lr").as_f64(), Some(0.1));
        assert_eq!(at("optimizer.param_groups.0.betas").items().unwrap()[1].as_f64(), Some(0.999));
        assert_eq!(at("optimizer.param_groups.0.params").to_string(), "[0, 1]");
        assert_eq!(at("notes.text").as_str(), Some("Zürich"));
        assert!(matches!(at("notes.none"), Value::None));
        assert_eq!(at("notes.yes").as_bool(), Some(true));
        assert!(matches!(at("notes.big"), Value::Int(big) if *big == 1 << 80));
        assert_eq!(at("notes.negative").as_i64(), Some(-5));
        assert!(matches!(at("notes.bytes"), Value::Bytes(bytes) if **bytes == [0, 255]));
        assert_eq!(at("notes.float").as_f64(), Some(1e300));
        assert_eq!(at("list.1").to_string(), "(2.5, \"three\")");
        assert_eq!(at("size").to_string(), "(2, 3)");
        assert_eq!((at("device").as_str(), at("dtype").as_str()), (Some("cpu"), Some("torch.bfloat16")));
        let info = at("list.2.1.4").as_tensor().unwrap();
        assert_eq!(file.read(info, &cpu()).unwrap().to_vec::<f32>().unwrap(), [0.0]);
        assert!(value.at("list.7").is_none() && value.at("notes.text.more").is_none());

        let model = file.under("model").unwrap();
        assert_eq!(model.names().collect::<Vec<_>>(), ["bias", "weight"]);
        assert_eq!(
            described(&model.tensor("weight", &cpu()).unwrap()),
            known("expected.json", name)["model.weight"]
        );
        let notes = file.under("notes").unwrap();
        assert!(notes.is_empty() && notes.value().get("negative").is_some());
        let message = file.under("modle").unwrap_err().to_string();
        assert!(message.contains("\"modle\"; there is device, dtype, epoch, list, model"), "{message}");
    }
}

#[test]
fn a_tensor_alone_has_a_name() {
    assert_known("expected.json", "alone.pt", &cpu());
}

#[test]
fn tied_tensors_are_one() {
    let dict = open("dtypes.pt").state_dict(&cpu()).unwrap();
    assert_eq!(dict["tied"].id(), dict["float32"].id());
    assert_ne!(dict["rows"].id(), dict["float32"].id());
}

#[test]
fn floats_are_cast_as_they_are_read() {
    let file = open("dtypes.pt").floats(DType::BF16);
    let dict = file.state_dict(&cpu()).unwrap();
    for (name, tensor) in &dict {
        let stored = file.info(name).unwrap().dtype().unwrap();
        assert_eq!(tensor.dtype(), if stored.is_float() { DType::BF16 } else { stored }, "{name}");
    }
    assert_eq!(dict["transposed"].to_f64_vec().unwrap()[..3], [-7.5, -1.5, 4.5]);
}

#[test]
fn the_host_casts_what_the_device_lacks() {
    let (narrow, _) = taper_testing::reference_with(&[DType::F32, DType::I32, DType::Bool]);
    let file = open("dtypes.pt");
    assert!(file.tensor("float64", &narrow).is_err());
    let file = file.floats(DType::F32);
    let expected = file.tensor("float32", &narrow).unwrap().to_vec::<f32>().unwrap();
    for name in ["float64", "float16", "bfloat16", "float8_e4m3fn"] {
        let cast = file.tensor(name, &narrow).unwrap();
        assert_eq!(cast.dtype(), DType::F32, "{name}");
        let close =
            cast.to_vec::<f32>().unwrap().iter().zip(&expected).all(|(a, b)| (a - b).abs() <= b.abs() / 16.0);
        assert!(close, "{name}: {cast}");
    }
}

#[test]
fn types_without_a_like_matter_only_where_they_are_asked_for() {
    let file = open("complex.pt");
    assert_eq!(*file.info("c").unwrap().encoding(), Encoding::Other("complex64"));
    let message = file.tensor("c", &cpu()).unwrap_err().to_string();
    assert!(message.contains("complex.pt: holds a tensor of complex64"), "{message}");
    let message = file.state_dict(&cpu()).unwrap_err().to_string();
    assert!(message.contains("(tensor \"c\")"), "{message}");
    assert_eq!(file.tensor("f", &cpu()).unwrap().to_vec::<f32>().unwrap(), [1.0]);
    let message = file.tensor("g", &cpu()).unwrap_err().to_string();
    assert!(message.contains("has no tensor \"g\"; there is c, f"), "{message}");
}

#[test]
fn what_is_no_file_of_tensors_says_what_it_is() {
    for (name, parts) in [
        ("script.pt", &["is a TorchScript program", "state_dict()"][..]),
        ("sparse.pt", &["_rebuild_sparse_tensor", "save it dense"]),
    ] {
        let message = weights::open(path(name)).unwrap_err().to_string();
        assert!(message.contains(name) && parts.iter().all(|part| message.contains(part)), "{message}");
    }
    for (content, part) in [
        (&b"\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94."[..], "is a pickle, but not one of torch.save"),
        (b"\x89HDF\r\n\x1a\n", "is an HDF5 file"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "gzipped"),
        (b"tjgg\x03\0\0\0", "GGML"),
        (b"", "is no file of weights: it is empty"),
        (b"hello, these are no weights", "begins with \"hello, these are\", which is none of PyTorch's .pt"),
    ] {
        let message = refusal(content);
        assert!(message.contains(part), "{message}");
    }
}

/// A pickle in PyTorch's zip, with a storage `0` of two floats, big-endian.
pub(crate) fn zipped(pickle: &[u8], byteorder: &str) -> Vec<u8> {
    zipped_with(pickle, byteorder, &[0x3f, 0x80, 0, 0, 0x40, 0, 0, 0])
}

/// A pickle in PyTorch's zip, with a storage `0`.
pub(crate) fn zipped_with(pickle: &[u8], byteorder: &str, storage: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, content) in [("data.pkl", pickle), ("byteorder", byteorder.as_bytes()), ("data/0", storage)] {
        zip.start_file(format!("a/{name}"), options).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The pickle of a tensor of sizes and strides in the storage of two floats.
fn pickled(offset: u8, size: &[u8], stride: &[u8]) -> Vec<u8> {
    let tuple = |numbers: &[u8]| {
        let numbers: Vec<u8> = numbers.iter().flat_map(|&number| [b'K', number]).collect();
        [b"(", &numbers[..], b"t"].concat()
    };
    let mut pickle = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x02tQ".to_vec();
    pickle.extend([b'K', offset]);
    pickle.extend(tuple(size));
    pickle.extend(tuple(stride));
    pickle.extend(b"\x89ccollections\nOrderedDict\n)RtR.");
    pickle
}

#[test]
fn big_endian_files_are_read() {
    let pickle = pickled(0, &[2], &[1]);
    let read =
        |order: &str| weights::from_bytes(zipped(&pickle, order)).unwrap().tensor("tensor", &cpu()).unwrap();
    assert_eq!(read("big").to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert_ne!(read("little").to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert!(refusal(&zipped(&pickle, "middle")).contains("byte order"));
    let mut old = bytes("dtypes_legacy.pt");
    let at = old.windows(13).position(|window| window == b"little_endian").unwrap() + 13;
    let truth = old[at..].iter().position(|&byte| byte == 0x88).unwrap();
    old[at + truth] = 0x89;
    assert!(refusal(&old).contains("big-endian"));
}

#[test]
fn tensors_stay_within_their_storage() {
    for (offset, size, stride) in
        [(0, &[3][..], &[1][..]), (2, &[1], &[1]), (0, &[2], &[2]), (1, &[2, 2], &[1, 0]), (255, &[1], &[0])]
    {
        let message = refusal(&zipped(&pickled(offset, size, stride), "little"));
        assert!(
            message.contains("not within its storage of 8 bytes"),
            "{offset} {size:?} {stride:?}: {message}"
        );
    }
    let read = |offset, size: &[u8], stride: &[u8]| -> tensor_core::Result<Tensor> {
        weights::from_bytes(zipped(&pickled(offset, size, stride), "big"))?.tensor("tensor", &cpu())
    };
    // An expanded tensor takes no additional memory, and an empty one may begin anywhere.
    assert_eq!(read(1, &[200, 200, 200], &[0, 0, 0]).unwrap().dims(), [200, 200, 200]);
    assert_eq!(read(200, &[0, 3], &[1, 1]).unwrap().dims(), [0, 3]);
    let message = read(0, &[2, 1, 2], &[0, 9, 1]).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(message, [1.0, 2.0, 1.0, 2.0]);
}

#[test]
fn nothing_is_called() {
    for (pickle, part) in [
        (&b"cos\nsystem\nX\x02\0\0\0id\x85R."[..], "refers to os.system"),
        (b"c__builtin__\neval\n(X\x01\0\0\x001tR.", "refers to __builtin__.eval"),
        (b"\x8c\x02os\x8c\x06system\x93.", "refers to os.system"),
        (b"(ios\nsystem\n.", "makes an object of a class"),
        (b"ctorch\nFloatStorage\n)\x81.", "makes an object of a class"),
        (b"ctorch\nFloatStorage\n)R.", "which makes nothing here"),
        (b"ctorch.hub\nload\n.", "refers to torch.hub.load"),
        (b"ctorch.storage\n_load_from_bytes\n.", "refers to torch.storage._load_from_bytes"),
        (b"K\x01)R.", "calls an int"),
        (b"K\x01}b.", "sets attributes of an int"),
        (b"ccollections\nOrderedDict\n.", "holds a name, OrderedDict, as a value"),
        (b"I1\n.", "instruction 0x49"),
        (b"\x80\x09.", "protocol 9"),
        (b".", "too few values"),
        (b"]q\x00h\x00a.", "in itself"),
        (b"}q\x00K\x01h\x00s.", "in itself"),
        (b"h\x07.", "recalls what it has not kept"),
    ] {
        let message = refusal(&zipped(pickle, "little"));
        assert!(message.contains(part), "{message}");
    }
}
