//! Fixtures of `scripts/model_fixtures`, and the comparison of a model with them.

use std::{fs, path::Path};

use autograd::TensorGrad;
use models::WeightSource;
use nn::{Layer, Module, StateDict, save_safetensors};
use tensor_core::{DType, Device, Result, Tensor};
use weights::WeightFile;

use crate::{devices, formula};

/// A small model by the reference: a folder with its `config.json` and weights, its inputs and its outputs.
pub(crate) struct Fixture {
    name: String,
    file: WeightFile,
    folder: tempfile::TempDir,
}

/// The results of a model for a fixture's inputs.
pub(crate) struct Run {
    /// Results under the fixture's names.
    pub(crate) outputs: Vec<(&'static str, Tensor)>,
    pub(crate) loss: Tensor,
    /// The model's parameters with their names.
    pub(crate) parameters: Vec<(String, Tensor)>,
}

impl Fixture {
    pub(crate) fn open(name: &str) -> Fixture {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.safetensors"));
        let file = weights::open(path).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.json"), &file.texts()["config"]).unwrap();
        let state = formula::weights(&file, &backend_cpu::cpu());
        save_safetensors(folder.path().join("model.safetensors"), &state).unwrap();
        Fixture { name: name.into(), file, folder }
    }

    /// The folder of the model, as the reference saves it.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The texts of the fixture's metadata.
    pub(crate) fn texts(&self) -> &std::collections::BTreeMap<String, String> {
        self.file.texts()
    }

    /// The weights under the reference's names.
    pub(crate) fn weights(&self, device: &Device) -> StateDict {
        formula::weights(&self.file, device)
    }

    /// The weights as a source for a model.
    pub(crate) fn source(&self, device: &Device) -> WeightSource {
        WeightSource::state_dict(self.weights(device), device)
    }

    /// An input on a device; integers are in the device's dtype of indices.
    pub(crate) fn input(&self, name: &str, device: &Device) -> Tensor {
        let tensor = self.file.tensor(&format!("input.{name}"), &backend_cpu::cpu()).unwrap();
        let dtype = if tensor.dtype().is_int() { device.int_dtype() } else { tensor.dtype() };
        tensor.to_dtype(dtype).unwrap().to(device).unwrap()
    }

    /// A result of the reference.
    pub(crate) fn output(&self, name: &str) -> Vec<f64> {
        floats(&self.file.tensor(&format!("output.{name}"), &backend_cpu::cpu()).unwrap())
    }

    fn gradients(&self) -> StateDict {
        self.file.under("grad").unwrap().state_dict(&backend_cpu::cpu()).unwrap()
    }

    /// Compares the outputs, the loss and the gradients with the reference's on every device. `tolerance` is
    /// relative to the greatest number of each tensor.
    pub(crate) fn check(&self, tolerance: f64, run: impl Fn(&Fixture, &Device) -> Result<Run>) {
        let (mut forward, mut backward, mut names) = (0.0f64, 0.0f64, Vec::new());
        let mut count = 0;
        for device in devices() {
            let Run { outputs, loss, parameters } = run(self, &device).unwrap();
            count = parameters.iter().map(|(_, tensor)| tensor.numel()).sum();
            assert!(!outputs.is_empty());
            for (name, found) in outputs.iter().chain([&("loss", loss.clone())]) {
                let what = format!("{} {name} on {device}", self.name);
                forward = forward.max(differ(&floats(found), &self.output(name), tolerance, &what));
            }
            loss.backward().unwrap();
            let gradients = self.gradients();
            assert_eq!(gradients.len(), 3, "{}", self.name);
            for (name, expected) in gradients {
                let parameter = parameters.iter().find(|(known, _)| *known == name);
                let (_, parameter) =
                    parameter.unwrap_or_else(|| panic!("{}: no parameter {name}", self.name));
                let found = parameter.grad().unwrap_or_else(|| panic!("no gradient of {name}"));
                let what = format!("{} gradient of {name} on {device}", self.name);
                backward = backward.max(differ(&floats(&found), &floats(&expected), tolerance, &what));
            }
            names.push(device.name().split(':').next().unwrap_or_default().to_string());
        }
        self.record(count, forward, backward, &names.join(", "));
    }

    /// Writes a row of docs/models.md, if `TAPER_TEST=written=FOLDER` is set; see `cargo xtask model-table`.
    fn record(&self, parameters: usize, forward: f64, backward: f64, devices: &str) {
        let Some(folder) = taper_testing::settings::setting("written") else { return };
        fs::create_dir_all(&folder).unwrap();
        let reference = &self.file.texts()["reference"];
        let row =
            format!("{}\t{reference}\t{parameters}\t{forward:.1e}\t{backward:.1e}\t{devices}\n", self.name);
        fs::write(Path::new(&folder).join(format!("{}.tsv", self.name)), row).unwrap();
    }
}

/// Compares the logits for the fixture's `x`, the mean of their squares and its gradients on every device.
pub(crate) fn classifies<M: Layer>(name: &str, make: impl Fn(WeightSource) -> Result<M>) {
    Fixture::open(name).check(1e-4, |fixture, device| {
        let model = make(fixture.source(device))?;
        model.eval();
        let logits = model.forward(&fixture.input("x", device))?;
        let loss = logits.square().mean();
        Ok(Run { outputs: vec![("logits", logits)], loss, parameters: parameters(&model) })
    });
}

/// The elements of a tensor of any dtype.
pub(crate) fn floats(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F32).unwrap().to_f64_vec().unwrap()
}

/// The largest difference, relative to the greatest number expected.
fn differ(found: &[f64], expected: &[f64], tolerance: f64, what: &str) -> f64 {
    assert_eq!(found.len(), expected.len(), "{what}: number of elements");
    let scale = expected.iter().fold(0.0f64, |most, x| most.max(x.abs())).max(1e-30);
    taper_testing::assert_close(found, expected, (0.0, tolerance * scale), what);
    let differences = found.iter().zip(expected).map(|(f, e)| (f - e).abs() / scale);
    differences.fold(0.0, f64::max)
}

/// The names and parameters of a model.
pub(crate) fn parameters(model: &impl Module) -> Vec<(String, Tensor)> {
    model.named_parameters()
}
