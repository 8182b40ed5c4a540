//! NumPy's arrays and what all formats share: how a file is opened, and what becomes of it while it is open.

use tensor_core::{DType, Tensor};
use weights::{Format, save_npz, save_torch};

use crate::common::{assert_known, bytes, cpu, open};

#[test]
fn arrays_of_numpy_are_read() {
    for (name, format) in
        [("arrays.npz", Format::Npz), ("arrays_compressed.npz", Format::Npz), ("array.npy", Format::Npy)]
    {
        assert_known("expected.json", name, &cpu());
        assert_eq!(open(name).format(), format);
    }
}

#[test]
fn the_content_says_which_format_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for name in
        ["dtypes.pt", "dtypes_legacy.pt", "arrays.npz", "array.npy", "small.gguf", "models.safetensors"]
    {
        let path = folder.path().join("model.bin");
        std::fs::write(&path, bytes(name)).unwrap();
        let (renamed, memory) = (weights::open(&path).unwrap(), weights::from_bytes(bytes(name)).unwrap());
        assert_eq!((renamed.format(), memory.format()), (open(name).format(), open(name).format()), "{name}");
        assert_eq!(memory.names().collect::<Vec<_>>(), open(name).names().collect::<Vec<_>>());
        let first = memory.names().next().unwrap();
        if let Ok(tensor) = memory.tensor(first, &cpu()) {
            assert_eq!(
                tensor.read_bytes().unwrap(),
                renamed.tensor(first, &cpu()).unwrap().read_bytes().unwrap()
            );
        }
    }
}

#[test]
fn dtypes_that_numpy_lacks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    let dict = nn::StateDict::from([("x".to_string(), Tensor::zeros([2], (DType::BF16, &cpu())).unwrap())]);
    let message = save_npz(&path, &dict).unwrap_err().to_string();
    assert!(message.contains("NumPy has no type for \"x\", of bf16") && !path.exists(), "{message}");
}

#[test]
fn a_file_that_changes_while_it_is_open_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.pt");
    let dict = nn::StateDict::from([("x".to_string(), Tensor::zeros([100], &cpu()).unwrap())]);
    save_torch(&path, &dict).unwrap();
    let file = weights::open(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..200]).unwrap();
    let message = file.tensor("x", &cpu()).unwrap_err().to_string();
    assert!(message.contains("model.pt"), "{message}");
    std::fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
    let message = file.tensor("x", &cpu()).unwrap_err().to_string();
    assert!(message.contains("has changed since it was opened"), "{message}");
    // One that took its place is another file.
    std::fs::write(&path, &whole).unwrap();
    let file = weights::open(&path).unwrap();
    save_torch(&path, &nn::StateDict::new()).unwrap();
    if cfg!(unix) {
        assert_eq!(file.tensor("x", &cpu()).unwrap().numel(), 100);
    }
    assert!(weights::open(&path).unwrap().is_empty());
}

#[test]
fn elements_go_straight_to_the_tensor() {
    // A device of the test's own, whose allocations no other test counts up.
    let device = tensor_core::Device::new(std::sync::Arc::new(backend_cpu::CpuBackend::new()));
    let file = open("crepe_tiny.pth");
    let before = device.memory().allocations;
    let dict = file.state_dict(&device).unwrap();
    // Large ones are pages of the file.
    let is_large = |tensor: &Tensor| tensor.numel() * tensor.dtype().size() >= 1 << 16;
    let pages = if cfg!(unix) { dict.values().filter(|tensor| is_large(tensor)).count() } else { 0 };
    assert!(pages > 0 || !cfg!(unix));
    assert_eq!(device.memory().allocations, before + (dict.len() - pages) as u64);
}
