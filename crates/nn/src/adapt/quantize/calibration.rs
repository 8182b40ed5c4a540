//! [`Calibration`]: statistics of the inputs of a model's linear layers.

use std::collections::BTreeMap;

use tensor_core::{Error, Result, Tensor, caller_line};

use super::OP;
use crate::{
    Module,
    adapt::{handle::hosts, kind::LayerKind, statistics::InputStatistics, weighted_host::Host},
};

/// A measurement of the inputs of a model's linear layers over what the model is run on meanwhile. Errors of
/// a weight change outputs in proportion to its input: the mean squares are llama.cpp's importance matrix,
/// and GPTQ and AWQ need the products of each two inputs.
///
/// ```
/// use nn::{Calibration, Linear, QuantizeConfig, quantize};
/// use tensor_core::{Generator, GgmlType, Result, Tensor};
///
/// # fn main() -> Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let mut layers = vec![Linear::new(64, 32, &rng)?];
/// let calibration = Calibration::start(&layers);
/// for _ in 0..4 {
///     layers[0].forward(&Tensor::randn([8, 64], &rng)?)?;
/// }
/// let mut config = QuantizeConfig::new(GgmlType::Q4_0);
/// config.importance = calibration.finish()?;
/// assert_eq!(config.importance["0"].dims(), [64]);
/// quantize(&mut layers, &config)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the measurement ends when this is dropped"]
pub struct Calibration {
    hosts: Vec<Host>,
}

impl Calibration {
    /// Begins to measure the inputs of all linear layers of a model, from nothing.
    pub fn start<M: Module + ?Sized>(model: &M) -> Calibration {
        Calibration::begin(model, false)
    }

    /// [`Calibration::start`] with the products of each two inputs, which take the memory of a matrix `[in,
    /// in]` of f32 for each layer.
    pub fn with_products<M: Module + ?Sized>(model: &M) -> Calibration {
        Calibration::begin(model, true)
    }

    fn begin<M: Module + ?Sized>(model: &M, products: bool) -> Calibration {
        let mut hosts = hosts(model);
        hosts.retain(|host| matches!(host.kind, LayerKind::Linear { .. }));
        hosts.iter().for_each(|host| host.adapters.observe(Some(products)));
        Calibration { hosts }
    }

    /// The mean squares, by the paths of the layers that were run.
    ///
    /// # Errors
    /// An input that was not finite, by the layer's path.
    #[track_caller]
    pub fn finish(self) -> Result<BTreeMap<String, Tensor>> {
        let _line = caller_line();
        let all = self.statistics()?;
        Ok(all.into_iter().map(|(path, inputs)| (path, inputs.mean_square)).collect())
    }

    /// All statistics, by the paths of the layers that were run, for [`QuantizeConfig::inputs`].
    ///
    /// # Errors
    /// As [`Calibration::finish`].
    ///
    /// [`QuantizeConfig::inputs`]: super::QuantizeConfig::inputs
    #[track_caller]
    pub fn statistics(self) -> Result<BTreeMap<String, InputStatistics>> {
        let mut all = BTreeMap::new();
        for host in &self.hosts {
            let Some(inputs) = host.adapters.statistics() else { continue };
            if !inputs.mean_square.isfinite().all().item::<bool>()? {
                let message = format!("{}: the calibration data give an input that is not finite", host.path);
                return Err(Error::invalid(OP, message));
            }
            all.insert(host.path.clone(), inputs);
        }
        Ok(all)
    }
}

impl Drop for Calibration {
    fn drop(&mut self) {
        self.hosts.iter().for_each(|host| host.adapters.observe(None));
    }
}
