//! State dicts as files: round trips, and errors for broken files.
#![allow(clippy::unwrap_used)]

use crate::common::device;
use nn::{Linear, Module, SafetensorsFile, StateDict, load_safetensors, save_safetensors};
use tensor_core::{DType, Device, ErrorKind, Generator, Tensor};

#[test]
fn every_dtype_and_shape_comes_back() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.safetensors");
    let mut dict = StateDict::new();
    for dtype in DType::ALL {
        let tensor = Tensor::new([[0i32, 1, 2], [3, 4, 5]], &device).unwrap().to_dtype(dtype).unwrap();
        dict.insert(dtype.name().into(), tensor.t().unwrap());
    }
    dict.insert("scalar".into(), Tensor::new(1.5f32, &device).unwrap());
    dict.insert("empty".into(), Tensor::zeros([0, 3], &device).unwrap());
    save_safetensors(&path, &dict).unwrap();
    let read = load_safetensors(&path, &device).unwrap();
    assert_eq!(read.len(), dict.len());
    for (name, tensor) in &dict {
        assert_eq!((read[name].shape(), read[name].dtype()), (tensor.shape(), tensor.dtype()), "{name}");
        assert_eq!(read[name].to_f64_vec().unwrap(), tensor.to_f64_vec().unwrap(), "{name}");
    }
    // Nothing is left beside the file.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_broken_file_is_refused_and_changes_nothing() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let model = Linear::new(3, 2, &Generator::seed(0, &device)).unwrap();
    save_safetensors(&path, &model.state_dict()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for broken in [&whole[..whole.len() - 1], &whole[..20], &whole[..4], b"", b"not a file of tensors"] {
        std::fs::write(&path, broken).unwrap();
        let error = load_safetensors(&path, &device).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::File { path: named, .. } if *named == path), "{error}");
    }
    let error = load_safetensors(folder.path().join("none"), &device).unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
    let error = save_safetensors(folder.path().join("no/such/place"), &model.state_dict()).unwrap_err();
    assert!(error.to_string().contains("cannot be written"), "{error}");
}

#[test]
fn a_file_that_cannot_be_replaced_stays() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let good = StateDict::from([("a".to_string(), Tensor::new([1.0f32], &device).unwrap())]);
    save_safetensors(&path, &good).unwrap();
    let index = Tensor::new([7i32], &device).unwrap();
    let bad = StateDict::from([("a".to_string(), good["a"].gather(0, &index).unwrap())]);
    assert!(save_safetensors(&path, &bad).is_err());
    assert_eq!(load_safetensors(&path, &device).unwrap()["a"].item::<f32>().unwrap(), 1.0);
}

fn one(device: &Device, value: f32) -> StateDict {
    StateDict::from([("a".to_string(), Tensor::new([value], device).unwrap())])
}

#[test]
fn a_tensor_of_a_name_that_cannot_be_read_is_not_saved() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let dict = StateDict::from([("__metadata__".to_string(), Tensor::new([1.0f32], &device).unwrap())]);
    let message = save_safetensors(&path, &dict).unwrap_err().to_string();
    assert!(message.contains("__metadata__") && !path.exists(), "{message}");
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_permissions_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("real")).unwrap();
    symlink("real/model", at("link")).unwrap();
    symlink(at("link"), at("link2")).unwrap();
    // The link's target need not be there yet.
    save_safetensors(at("link2"), &one(&device, 1.0)).unwrap();
    assert!(at("link").is_symlink() && at("link2").is_symlink() && !at("real/model").is_symlink());
    std::fs::set_permissions(at("real/model"), PermissionsExt::from_mode(0o600)).unwrap();
    save_safetensors(at("link2"), &one(&device, 2.0)).unwrap();
    assert_eq!(load_safetensors(at("real/model"), &device).unwrap()["a"].item::<f32>().unwrap(), 2.0);
    assert_eq!(std::fs::metadata(at("real/model")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(at("link").is_symlink() && at("link2").is_symlink());
    assert_eq!(std::fs::read_dir(at("real")).unwrap().count(), 1);
    symlink(at("round"), at("round2")).unwrap();
    symlink(at("round2"), at("round")).unwrap();
    let message = save_safetensors(at("round"), &one(&device, 1.0)).unwrap_err().to_string();
    assert!(message.contains("lead to each other"), "{message}");
    assert!(
        save_safetensors(at("real"), &one(&device, 1.0)).unwrap_err().to_string().contains("a directory")
    );
}

#[cfg(unix)]
#[test]
fn devices_and_pipes_are_written_to_and_stay() {
    use std::os::unix::fs::FileTypeExt;
    let device = device();
    save_safetensors("/dev/null", &one(&device, 1.0)).unwrap();
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    save_safetensors(&pipe, &one(&device, 3.0)).unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, reader.join().unwrap()).unwrap();
    assert_eq!(load_safetensors(&file, &device).unwrap()["a"].item::<f32>().unwrap(), 3.0);
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn pytorchs_own_files_are_named_with_the_way_to_convert_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.pt");
    let zip =
        [b"PK\x03\x04\x00\x00\x08\x08".as_slice(), &[0; 18], b"\x0e\x00\x12\x00model/data.pkl"].concat();
    let legacy = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.";
    let pickle = b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.";
    for content in [&zip[..], legacy, pickle] {
        std::fs::write(&path, content).unwrap();
        let message = load_safetensors(&path, &device()).unwrap_err().to_string();
        for part in
            ["is a PyTorch file", "torch.load(\"model.pt\"", "save_file(state, \"model.safetensors\")"]
        {
            assert!(message.contains(part), "{message}");
        }
    }
    for (content, part) in [(&b"GGUF\x03\0\0\0"[..], "a GGUF file"), (b"\x1f\x8b\x08\0\0\0\0\0", "gzipped")] {
        std::fs::write(&path, content).unwrap();
        let message = load_safetensors(&path, &device()).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

/// A file by hand, with dtypes that others write.
fn foreign(path: &std::path::Path, tensors: &[(&str, &str, &[usize], &[u8])]) {
    let mut header = Vec::new();
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend_from_slice(bytes);
        let end = data.len();
        header.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#
        ));
    }
    let header = format!("{{{}}}", header.join(","));
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(path, file).unwrap();
}

#[test]
fn foreign_dtypes_matter_only_where_they_are_asked_for() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    foreign(
        &path,
        &[
            ("i16", "I16", &[2], &[0xff, 0xff, 0x00, 0x80]),
            ("u16", "U16", &[1], &[0xff, 0xff]),
            ("i8", "I8", &[2], &[0x80, 0x7f]),
            ("u64", "U64", &[1], &[1, 0, 0, 0, 0, 0, 0, 0]),
            ("c64", "C64", &[1], &[0; 8]),
            ("w", "F32", &[1], &1.5f32.to_le_bytes()),
        ],
    );
    let file = SafetensorsFile::open(&path).unwrap();
    for (name, values) in [
        ("i16", &[-1.0, -32768.0][..]),
        ("u16", &[65535.0]),
        ("i8", &[-128.0, 127.0]),
        ("u64", &[1.0]),
        ("w", &[1.5]),
    ] {
        assert_eq!(file.tensor(name, &device).unwrap().to_f64_vec().unwrap(), values, "{name}");
    }
    let message = file.tensor("c64", &device).unwrap_err().to_string();
    assert!(message.contains("\"c64\" is of dtype C64"), "{message}");
    let message = file.tensor("v", &device).unwrap_err().to_string();
    assert!(message.contains("no tensor \"v\"; there are c64, i16, i8"), "{message}");
    assert!(load_safetensors(&path, &device).unwrap_err().to_string().contains("SafetensorsFile::open"));
    assert_eq!(file.shape("i16").unwrap().dims(), [2]);
}

#[test]
fn values_of_other_precision_are_cast_to_the_parameters() {
    let device = device();
    let layer = Linear::new(2, 1, &Generator::seed(0, &device)).unwrap();
    for dtype in [DType::F16, DType::BF16, DType::F64, DType::I64] {
        let of = |values: &[f32], shape: &[usize]| {
            Tensor::from_slice(values, shape, &device).unwrap().to_dtype(dtype).unwrap()
        };
        let dict = StateDict::from([
            ("weight".to_string(), of(&[1.0, -2.0], &[1, 2])),
            ("bias".to_string(), of(&[3.0], &[1])),
        ]);
        layer.weight.assign(&layer.weight.zeros_like()).unwrap();
        layer.load_state_dict(&dict).unwrap();
        assert_eq!(layer.weight.to_vec::<f32>().unwrap(), [1.0, -2.0], "{dtype}");
        assert!(layer.weight.is_tracked());
    }
    // Counts take other integers where they hold them, and no fractions.
    let count = Tensor::from_vec(vec![5i32], [1], &device).unwrap().into_cell(false).unwrap();
    let held = vec![count];
    let dict = |tensor: Tensor| StateDict::from([("0".to_string(), tensor)]);
    held.load_state_dict(&dict(Tensor::from_vec(vec![7i64], [1], &device).unwrap())).unwrap();
    assert_eq!(held[0].item::<i32>().unwrap(), 7);
    let message =
        held.load_state_dict(&dict(Tensor::from_vec(vec![1i64 << 40], [1], &device).unwrap())).unwrap_err();
    assert!(message.to_string().contains("i64 values that i32 cannot represent"), "{message}");
    assert!(held.load_state_dict(&dict(Tensor::new([1.5f32], &device).unwrap())).is_err());
    assert_eq!(held[0].item::<i32>().unwrap(), 7);
}

#[test]
fn elements_go_between_file_and_tensor_without_a_copy() {
    // A separate device, whose allocations are not counted by other tests.
    let device = Device::new(std::sync::Arc::new(backend_cpu::CpuBackend::new()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    // More than one piece, and a last one that is not whole.
    let long = Tensor::arange(0.0, 300_001.0, 1.0, &device).unwrap();
    let dict =
        StateDict::from([("long".to_string(), long), ("b".to_string(), Tensor::ones([3], &device).unwrap())]);
    tensor_core::eval_all(&dict.values().collect::<Vec<_>>()).unwrap();
    let allocations = || device.memory().allocations;
    let before = allocations();
    save_safetensors(&path, &dict).unwrap();
    assert_eq!(allocations(), before);
    let read = load_safetensors(&path, &device).unwrap();
    // Where files are mapped, the long one is pages of the file.
    let allocated = allocations() - before;
    assert!((1..=2).contains(&allocated), "{allocated}");
    for (name, tensor) in &dict {
        assert_eq!(read[name].read_bytes().unwrap(), tensor.read_bytes().unwrap(), "{name}");
    }
}

#[test]
fn a_file_that_changes_while_it_is_open_is_an_error() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let values =
        |value: f64| StateDict::from([("a".to_string(), Tensor::full([1000], value, &device).unwrap())]);
    save_safetensors(&path, &values(1.0)).unwrap();
    let file = SafetensorsFile::open(&path).unwrap();
    // One that takes its place is another file.
    save_safetensors(&path, &values(2.0)).unwrap();
    if cfg!(unix) {
        assert_eq!(file.tensor("a", &device).unwrap().to_vec::<f32>().unwrap(), [1.0; 1000]);
    }
    let file = SafetensorsFile::open(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
    let message = file.tensor("a", &device).unwrap_err().to_string();
    assert!(
        message.contains("has changed since it was opened") && message.contains("model.safetensors"),
        "{message}"
    );
    std::fs::write(&path, &whole[..whole.len() - 8]).unwrap();
    let message = file.tensor("a", &device).unwrap_err().to_string();
    assert!(message.contains("cannot be read"), "{message}");
    let message = SafetensorsFile::open(&path).unwrap_err().to_string();
    assert!(message.contains("its header promises") && message.contains("cut off"), "{message}");
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let message = load_safetensors(&pipe, &device()).unwrap_err().to_string();
    assert!(message.contains("is a pipe, a socket or a device; expected a file"), "{message}");
}

#[test]
fn a_buffer_is_filled_in_pieces_and_a_failure_leaves_none() {
    use tensor_core::{Backend, Error};
    let cpu = backend_cpu::CpuBackend::new();
    // 2.5 megabytes: several pieces, each of which begins where it says.
    let numbers = |at: usize, out: &mut [u8]| {
        out.iter_mut().enumerate().for_each(|(i, byte)| *byte = ((at + i) % 251) as u8);
        Ok(())
    };
    let buffer = cpu.upload_with(DType::U8, 2_500_000, &numbers).unwrap();
    let mut read = Vec::new();
    cpu.download_with(&buffer, 3, 2_400_000, &mut |piece| {
        read.extend_from_slice(piece);
        Ok(())
    })
    .unwrap();
    assert!(
        read.len() == 2_400_000 && read.iter().enumerate().all(|(i, byte)| *byte == ((i + 3) % 251) as u8)
    );
    let truths = cpu.upload_with(DType::Bool, 300, &numbers).unwrap();
    let mut read = [7; 300];
    cpu.download(&truths, 0, &mut read).unwrap();
    assert!(read.iter().enumerate().all(|(i, byte)| *byte == u8::from(i % 251 != 0)));

    let before = cpu.memory().allocated;
    let broken = |at: usize, _: &mut [u8]| match at {
        0 => Ok(()),
        _ => Err(Error::invalid("test", "the disk is gone")),
    };
    assert!(cpu.upload_with(DType::F32, 1_000_000, &broken).unwrap_err().to_string().contains("disk"));
    assert_eq!(cpu.memory().allocated, before);
    let mut pieces = 0;
    let stopped = cpu.download_with(&buffer, 0, 2_500_000, &mut |_| {
        pieces += 1;
        Err(Error::invalid("test", "the disk is full"))
    });
    assert!(stopped.unwrap_err().to_string().contains("full") && pieces == 1);
    assert!(cpu.download_with(&buffer, 0, 2_500_001, &mut |_| Ok(())).is_err());
}

/// Tells a process of this program that it is the one to be killed, and where it writes.
const WRITER: &str = "SAFETENSORS_WRITER";

/// The process below runs this; by itself it has nothing to do.
#[test]
fn writer() {
    let Some(folder) = std::env::var_os(WRITER) else { return };
    let path = std::path::Path::new(&folder).join("model.safetensors");
    let dict = StateDict::from([("x".to_string(), Tensor::zeros([1 << 20], &device()).unwrap())]);
    loop {
        save_safetensors(&path, &dict).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_save_that_was_killed_leaves_nothing_after_the_next() {
    use std::{
        process::{Command, Stdio},
        time::{Duration, Instant},
    };
    let folder = tempfile::tempdir().unwrap();
    let left = || {
        let names =
            std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".tmp")).count()
    };
    let start = Instant::now();
    // Until one was killed while it wrote.
    while left() == 0 && start.elapsed() < Duration::from_secs(60) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "safetensors::writer"]).env(WRITER, folder.path()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        while left() == 0 && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_micros(200));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(left() > 0, "no process was killed while it wrote");
    let path = folder.path().join("other.safetensors");
    save_safetensors(&path, &Linear::new(2, 2, &Generator::seed(0, &device())).unwrap().state_dict())
        .unwrap();
    assert_eq!(left(), 0);
    assert!(load_safetensors(&path, &device()).is_ok());
}
