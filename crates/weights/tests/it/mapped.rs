//! Large tensors of a file are its pages: their values, their memory, and what writing to them does.

use nn::{StateDict, save_safetensors};
use tensor_core::{DType, Device, GgmlType, Tensor, eval_in_place};
use weights::{GgufWriter, from_bytes, open, save_torch};

/// A device of its own, so that no other test counts in its memory.
fn device() -> Device {
    backend_cpu::logical(61).unwrap()
}

/// Numbers of which each is another one.
fn numbers(device: &Device) -> Tensor {
    Tensor::arange(0.0, 40_960.0, 1.0, (DType::F32, device)).unwrap().reshape([160, 256]).unwrap()
}

fn dict(device: &Device) -> StateDict {
    let numbers = numbers(device);
    StateDict::from_iter([
        ("few".to_string(), numbers.narrow(0, 0, 1).unwrap()),
        ("half".to_string(), numbers.to_dtype(DType::BF16).unwrap()),
        ("many".to_string(), numbers.clone()),
        ("small".to_string(), numbers.quantize(GgmlType::Q8_0, None).unwrap()),
    ])
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.dequantize().to_dtype(DType::F32).unwrap().to_vec().unwrap()
}

#[test]
fn pages_of_a_file_are_its_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let cpu = device();
    let mut dict = dict(&cpu);
    for name in ["weights.gguf", "weights.safetensors", "weights.pt"] {
        let path = folder.path().join(name);
        match name {
            "weights.gguf" => GgufWriter::new().state_dict(&dict).save(&path).unwrap(),
            "weights.safetensors" => save_safetensors(&path, &dict).unwrap(),
            _ => {
                dict.remove("small");
                save_torch(&path, &dict).unwrap();
            }
        }
        let in_memory = from_bytes(std::fs::read(&path).unwrap()).unwrap();
        let file = open(&path).unwrap();
        for name in dict.keys() {
            let [read, mapped] = [&in_memory, &file].map(|file| file.tensor(name, &cpu).unwrap());
            assert_eq!(values(&mapped), values(&dict[name]), "{name}");
            assert_eq!(values(&read), values(&mapped), "{name}");
        }
    }
}

#[test]
fn a_mapped_tensor_takes_no_memory_until_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (path, cpu) = (folder.path().join("weights.safetensors"), device());
    save_safetensors(&path, &dict(&cpu)).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let file = open(&path).unwrap();
    let before = cpu.memory().allocated;
    let many = file.tensor("many", &cpu).unwrap();
    let is_mapped = cpu.memory().allocated == before;
    assert_eq!(is_mapped, cfg!(unix), "{} bytes more", cpu.memory().allocated - before);
    // Written in place, also in the only copy of the page, the file stays as it is, and so does what is read
    // after it.
    let more = many.add_scalar(0.5);
    drop(many);
    assert!(eval_in_place(&[&more]).unwrap());
    assert_eq!(values(&more)[..2], [0.5, 1.5]);
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let again = file.tensor("many", &cpu).unwrap();
    assert_eq!(values(&again), values(&numbers(&cpu)));
    // The file may be closed, and replaced by another.
    drop(file);
    save_safetensors(&path, &StateDict::from_iter([("other".to_string(), numbers(&cpu).neg())])).unwrap();
    assert_eq!(values(&more)[40_959], 40_959.5);
    assert_eq!(values(&again), values(&numbers(&cpu)));
}

#[test]
fn a_file_that_was_cut_off_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (path, cpu) = (folder.path().join("weights.safetensors"), device());
    save_safetensors(&path, &dict(&cpu)).unwrap();
    let file = open(&path).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
    let error = file.tensor("many", &cpu).unwrap_err().to_string();
    assert!(error.contains("weights.safetensors"), "{error}");
}

#[test]
fn elements_at_odd_addresses_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let (path, cpu) = (folder.path().join("weights.safetensors"), device());
    // The byte in front puts all others at odd addresses.
    let numbers = numbers(&cpu);
    let elements: Vec<u8> = numbers.read_bytes().unwrap();
    let header = format!(
        r#"{{"byte":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}},"odd":{{"dtype":"F32","shape":[160,256],"data_offsets":[1,{}]}}}}"#,
        1 + elements.len()
    );
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.push(7);
    bytes.extend(&elements);
    std::fs::write(&path, &bytes).unwrap();
    let odd = open(&path).unwrap().tensor("odd", &cpu).unwrap();
    assert_eq!(values(&odd), values(&numbers));
    assert_eq!(values(&odd.sum()), values(&numbers.sum()));
}
