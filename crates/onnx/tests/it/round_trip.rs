//! Exports a model, reads it again, and compares the results of both. With `TAPER_TEST=written=FOLDER` the
//! files and the expected results stay in the folder, for `scripts/onnx_export_check.py`.

use std::path::PathBuf;

use nn::{Layer, Module, StateDict, save_safetensors};
use onnx::{DynamicAxis, Export, Exported, Model, export_with};
use tensor_core::{Result, Tensor};

/// The path of a file, in the folder of the setting or in a temporary one, which lives as long as the
/// result.
pub(crate) fn file(name: &str) -> (PathBuf, Option<tempfile::TempDir>) {
    if let Some(folder) = taper_testing::settings::setting("written") {
        std::fs::create_dir_all(&folder).unwrap();
        return (PathBuf::from(folder).join(name), None);
    }
    let folder = tempfile::tempdir().unwrap();
    (folder.path().join(name), Some(folder))
}

/// A model's way to a file and back.
pub(crate) struct RoundTrip<'a> {
    /// The name of the file.
    pub(crate) name: &'a str,
    /// The inputs of the export, which are called `in0`, `in1` …
    pub(crate) inputs: Vec<Tensor>,
    /// Numbers of inputs, axes, and names of their sizes.
    pub(crate) dynamic: Vec<(usize, usize, &'a str)>,
    /// Further inputs that are tried.
    pub(crate) others: Vec<Vec<Tensor>>,
    pub(crate) tolerance: f64,
    pub(crate) opset: i64,
}

impl Default for RoundTrip<'_> {
    fn default() -> Self {
        let (inputs, dynamic, others) = (Vec::new(), Vec::new(), Vec::new());
        RoundTrip { name: "model", inputs, dynamic, others, tolerance: 1e-4, opset: 20 }
    }
}

impl RoundTrip<'_> {
    /// Exports the model and compares the file's results with those of `forward`.
    pub(crate) fn run<M: Module>(
        &self,
        model: &M,
        forward: impl Fn(&M, &[Tensor]) -> Result<Vec<Tensor>>,
    ) -> std::result::Result<Exported, String> {
        let in_words = |error: tensor_core::Error| error.to_string();
        let device = self.inputs.first().map_or_else(backend_cpu::cpu, Tensor::device);
        let name = format!("{}-{}", self.name, device.name().replace(':', ""));
        let (path, _folder) = file(&format!("{name}.onnx"));
        let names: Vec<String> = (0..self.inputs.len()).map(|k| format!("in{k}")).collect();
        let axis =
            |&(input, axis, name): &(usize, usize, &str)| DynamicAxis::new(format!("in{input}"), axis, name);
        let dynamic_axes = self.dynamic.iter().map(axis).collect();
        let options = Export { opset: self.opset, dynamic_axes, ..Default::default() };
        let named: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(&self.inputs).collect();
        let exported = export_with(model, &forward, named, &path, &options).map_err(in_words)?;
        let read = Model::load(&path, &device).map_err(in_words)?;
        for (case, inputs) in [self.inputs.clone()].iter().chain(&self.others).enumerate() {
            let expected = forward(model, inputs).map_err(in_words)?;
            let found = read.run(names.iter().zip(inputs)).and_then(|out| out.tensors()).map_err(in_words)?;
            if found.len() != expected.len() {
                return Err(format!("{} outputs, expected {}", found.len(), expected.len()));
            }
            for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
                same(found, expected, self.tolerance)
                    .map_err(|why| format!("case {case}, output {k}: {why}"))?;
            }
            if taper_testing::settings::setting("written").is_some() {
                let label = |kind: &str, list: &[Tensor]| -> Vec<(String, Tensor)> {
                    list.iter().enumerate().map(|(k, t)| (format!("{kind}{k}"), t.clone())).collect()
                };
                let dict: StateDict =
                    label("in", inputs).into_iter().chain(label("out", &expected)).collect();
                let cases = path.with_file_name(format!("{name}.{case}.safetensors"));
                save_safetensors(cases, &dict).map_err(in_words)?;
            }
        }
        Ok(exported)
    }

    /// [`RoundTrip::run`] of a layer.
    pub(crate) fn layer(&self, layer: &impl Layer) -> std::result::Result<Exported, String> {
        self.run(layer, |layer, x| Ok(vec![layer.forward(&x[0])?]))
    }
}

/// Whether two tensors have the same shape, type and nearly the same elements.
fn same(found: &Tensor, expected: &Tensor, tolerance: f64) -> std::result::Result<(), String> {
    if found.dims() != expected.dims() || found.dtype() != expected.dtype() {
        return Err(format!(
            "{} {}, expected {} {}",
            found.dtype(),
            found.shape(),
            expected.dtype(),
            expected.shape()
        ));
    }
    let in_words = |error: tensor_core::Error| error.to_string();
    let found = found.to_f64_vec().map_err(in_words)?;
    for (k, (a, b)) in found.iter().zip(expected.to_f64_vec().map_err(in_words)?).enumerate() {
        let near = (a - b).abs() <= tolerance * (1.0 + b.abs()) || *a == b || a.is_nan() && b.is_nan();
        if !near {
            return Err(format!("element {k} is {a}, expected {b}"));
        }
    }
    Ok(())
}
