//! Taper's writer of TensorBoard's files; `python/taper/utils/tensorboard.py` has PyTorch's names over it.

use std::{path::PathBuf, sync::Mutex};

use pyo3::prelude::*;
use taper::tensor_core::lock;
use taper::train::{HyperParameter, SummaryWriter};

use crate::{args::Value, errors::wrong_type, tensor::run};

/// A writer of an event file.
#[pyclass(name = "_SummaryWriter", module = "taper._taper", frozen)]
struct PySummaryWriter(Mutex<SummaryWriter>);

#[pymethods]
impl PySummaryWriter {
    /// A new file in a folder; later steps than `resumed` that are in older files are no longer shown.
    #[new]
    #[pyo3(signature = (folder, resumed = None))]
    fn new(py: Python<'_>, folder: PathBuf, resumed: Option<u64>) -> PyResult<PySummaryWriter> {
        let writer = run(py, move || match resumed {
            Some(step) => SummaryWriter::resume(folder, step),
            None => SummaryWriter::new(folder),
        })?;
        Ok(PySummaryWriter(Mutex::new(writer)))
    }

    fn scalar(&self, py: Python<'_>, tag: &str, value: f64, step: u64) -> PyResult<()> {
        run(py, || lock(&self.0).scalar(tag, value, step))
    }

    fn histogram(&self, py: Python<'_>, tag: &str, values: Value, step: u64) -> PyResult<()> {
        run(py, || lock(&self.0).histogram(tag, &values.0, step))
    }

    /// An image `[channels, height, width]` or `[height, width]`.
    fn image(&self, py: Python<'_>, tag: &str, image: Value, step: u64) -> PyResult<()> {
        run(py, || lock(&self.0).image(tag, &image.0, step))
    }

    fn text(&self, py: Python<'_>, tag: &str, text: &str, step: u64) -> PyResult<()> {
        run(py, || lock(&self.0).text(tag, text, step))
    }

    /// Settings of a run, which are numbers, texts and truths, and its last metrics.
    fn hparams(
        &self,
        py: Python<'_>,
        settings: Vec<(String, Bound<'_, PyAny>)>,
        metrics: Vec<(String, f64)>,
    ) -> PyResult<()> {
        let settings = settings.iter().map(|(name, value)| Ok((name.as_str(), setting(value)?)));
        let settings = settings.collect::<PyResult<Vec<_>>>()?;
        let metrics: Vec<(&str, f64)> = metrics.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        run(py, || lock(&self.0).hparams(&settings, &metrics))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || lock(&self.0).flush())
    }

    /// The path of the file.
    fn path(&self) -> PathBuf {
        lock(&self.0).path().to_path_buf()
    }
}

fn setting(value: &Bound<'_, PyAny>) -> PyResult<HyperParameter> {
    if let Ok(truth) = value.extract::<bool>() {
        return Ok(truth.into());
    }
    if let Ok(text) = value.extract::<String>() {
        return Ok(text.into());
    }
    let wrong = || wrong_type("value should be one of int, float, str, bool, or torch.Tensor");
    value.extract::<f64>().map(HyperParameter::from).map_err(|_| wrong())
}

/// Adds the class of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySummaryWriter>()
}
