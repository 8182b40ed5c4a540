//! A schedule that watches a metric.

use tensor_core::{Error, Result, State, Stateful};

use super::within_one;
use crate::Optimizer;

/// The criterion by which [`ReduceLrOnPlateau`] recognizes an improvement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThresholdMode {
    /// The threshold is a fraction of the magnitude of the best metric. The default. (PyTorch takes a
    /// fraction of the best metric itself, so that a metric below 0 improves without a change.)
    #[default]
    Rel,
    /// The threshold is an absolute difference.
    Abs,
}

/// The settings of [`ReduceLrOnPlateau`], with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReduceLrOnPlateauConfig {
    /// Whether a greater metric is better, as for an accuracy. Off by default: less is better, as for a
    /// loss.
    #[doc(alias = "mode")]
    pub maximize: bool,
    /// The factor of the rates. 0.1 by default.
    pub factor: f64,
    /// The number of steps without an improvement that are tolerated. 10 by default.
    pub patience: u64,
    /// The least difference that counts as an improvement. 10⁻⁴ by default.
    pub threshold: f64,
    /// Whether `threshold` is relative or absolute.
    pub threshold_mode: ThresholdMode,
    /// The number of steps after a reduction that are not counted. 0 by default.
    pub cooldown: u64,
    /// The least rate. 0 by default.
    pub min_lr: f64,
    /// Changes of a rate that are not greater than this are skipped. 10⁻⁸ by default.
    pub eps: f64,
}

impl Default for ReduceLrOnPlateauConfig {
    fn default() -> ReduceLrOnPlateauConfig {
        ReduceLrOnPlateauConfig {
            maximize: false,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            threshold_mode: ThresholdMode::Rel,
            cooldown: 0,
            min_lr: 0.0,
            eps: 1e-8,
        }
    }
}

/// Multiplies the rates by `factor` when a metric has not improved for `patience` steps.
/// `torch.optim.lr_scheduler.ReduceLROnPlateau`.
///
/// ```
/// use autograd::TensorGrad;
/// use optim::{Optimizer, ReduceLrOnPlateau, ReduceLrOnPlateauConfig, Sgd, SgdConfig};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let x = Tensor::new([4.0f32], &backend_cpu::cpu())?.requires_grad();
/// let mut sgd = Sgd::new([x], SgdConfig { lr: 1.0, ..Default::default() });
/// let mut plateau = ReduceLrOnPlateau::new(ReduceLrOnPlateauConfig { patience: 1, ..Default::default() })?;
/// for loss in [3.0, 2.0, 2.0, 2.0] {
///     plateau.step(loss, &mut sgd);
/// }
/// assert_eq!(sgd.learning_rates(), [0.1]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ReduceLrOnPlateau {
    config: ReduceLrOnPlateauConfig,
    /// The least rate of each group; empty if all share one.
    min_lrs: Vec<f64>,
    best: f64,
    bad_epochs: u64,
    cooldown: u64,
    step: u64,
}

impl ReduceLrOnPlateau {
    /// # Errors
    /// A factor outside [0, 1), or a threshold, `min_lr` or `eps` that is negative or not finite.
    #[track_caller]
    pub fn new(config: ReduceLrOnPlateauConfig) -> Result<ReduceLrOnPlateau> {
        let op = "ReduceLrOnPlateau";
        let ReduceLrOnPlateauConfig { factor, threshold, min_lr, eps, .. } = config;
        within_one(op, [("factor", factor)])?;
        if factor == 1.0 {
            return Err(Error::invalid(op, "factor 1: give a number below 1, so that the rate is reduced"));
        }
        crate::rules::not_negative(op, [("threshold", threshold), ("min_lr", min_lr), ("eps", eps)])?;
        let best = if config.maximize { f64::NEG_INFINITY } else { f64::INFINITY };
        Ok(ReduceLrOnPlateau { config, min_lrs: Vec::new(), best, bad_epochs: 0, cooldown: 0, step: 0 })
    }

    /// As [`ReduceLrOnPlateau::new`], with a least rate for each group in place of the settings' one.
    /// PyTorch's list for `min_lr`.
    ///
    /// # Errors
    /// As [`ReduceLrOnPlateau::new`], and another number of rates than the optimizer has groups.
    #[track_caller]
    pub fn per_group(
        config: ReduceLrOnPlateauConfig,
        min_lrs: &[f64],
        optimizer: &(impl Optimizer + ?Sized),
    ) -> Result<ReduceLrOnPlateau> {
        let (op, groups) = ("ReduceLrOnPlateau", optimizer.learning_rates().len());
        if min_lrs.len() != groups {
            let message = format!("{} least rates for {groups} groups: give one for each", min_lrs.len());
            return Err(Error::invalid(op, message));
        }
        for &min_lr in min_lrs {
            crate::rules::not_negative(op, [("min_lr", min_lr)])?;
        }
        Ok(ReduceLrOnPlateau { min_lrs: min_lrs.to_vec(), ..ReduceLrOnPlateau::new(config)? })
    }

    /// Counts one step with its metric, and reduces the rates of the optimizer's groups once patience is
    /// exhausted. NaN is no improvement.
    pub fn step(&mut self, metric: f64, optimizer: &mut (impl Optimizer + ?Sized)) {
        let ReduceLrOnPlateauConfig { factor, patience, min_lr, eps, .. } = self.config;
        self.step = self.step.saturating_add(1);
        if self.is_better(metric) {
            self.best = metric;
            self.bad_epochs = 0;
        } else {
            self.bad_epochs = self.bad_epochs.saturating_add(1);
        }
        if self.cooldown > 0 {
            self.cooldown -= 1;
            self.bad_epochs = 0;
        }
        if self.bad_epochs > patience {
            let reduced = |(group, old): (usize, f64)| {
                let least = self.min_lrs.get(group).copied().unwrap_or(min_lr);
                let new = (old * factor).max(least);
                if old - new > eps { new } else { old }
            };
            let rates: Vec<f64> = optimizer.learning_rates().into_iter().enumerate().map(reduced).collect();
            optimizer.set_learning_rates(&rates);
            self.cooldown = self.config.cooldown;
            self.bad_epochs = 0;
        }
    }

    /// The number of steps so far.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// The best metric so far; an infinity before the first.
    pub fn best(&self) -> f64 {
        self.best
    }

    fn is_better(&self, metric: f64) -> bool {
        let ReduceLrOnPlateauConfig { threshold, threshold_mode, maximize, .. } = self.config;
        let least = match threshold_mode {
            // Any number improves on the initial infinity.
            _ if self.best.is_infinite() => 0.0,
            ThresholdMode::Rel => self.best.abs() * threshold,
            ThresholdMode::Abs => threshold,
        };
        if maximize { metric > self.best + least } else { metric < self.best - least }
    }
}

/// PyTorch's names: `best`, `num_bad_epochs`, `cooldown_counter`, `last_epoch`. The rates are in the
/// optimizer's state.
impl Stateful for ReduceLrOnPlateau {
    fn state_dict(&self) -> State {
        let mut state = State::new();
        state.insert("best", self.best);
        state.insert("num_bad_epochs", self.bad_epochs);
        state.insert("cooldown_counter", self.cooldown);
        state.insert("last_epoch", self.step);
        state
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let mut reader = state.reader();
        let best = reader.float("best");
        let mut count = |name| crate::saved::count(&mut reader, name);
        let (bad_epochs, cooldown, step) =
            (count("num_bad_epochs"), count("cooldown_counter"), count("last_epoch"));
        reader.finish()?;
        (self.best, self.bad_epochs, self.cooldown, self.step) = (best, bad_epochs, cooldown, step);
        Ok(())
    }
}
