//! What every optimizer can do.

use tensor_core::{Result, Stateful, Tensor};

/// Changes parameters by their gradients. `torch.optim.Optimizer`.
///
/// Its state, all that it keeps between steps and its settings, is taken and put back as every [`Stateful`]'s
/// is.
pub trait Optimizer: Stateful {
    /// One step: every parameter that has a gradient gets its new value, which is computed now, and with it
    /// whatever else waits on this thread and is still held. No graph is recorded.
    ///
    /// # Errors
    /// Settings that make no sense, or a failure to compute what the new values depend on, such as a label
    /// outside the classes: if only the device can find that, this waits until it has looked. Nothing has
    /// changed then: no parameter, and no state. A device that fails while old values are overwritten, as
    /// when it is lost, leaves each parameter and its state as before the step, or as after it.
    #[track_caller]
    fn step(&mut self) -> Result<()>;

    /// Whether the settings and the parameters make sense, which [`Optimizer::step`] asks before it changes
    /// anything. [`Optimizer::checked`] asks when the optimizer is made.
    ///
    /// # Errors
    /// The misfit, and the mend.
    #[track_caller]
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The optimizer itself, if its settings and parameters make sense: `Sgd::new(model.parameters(),
    /// config).checked()?` fails where the optimizer is made, as PyTorch's does, and not at its first step.
    ///
    /// # Errors
    /// The errors of [`Optimizer::check`].
    #[track_caller]
    fn checked(self) -> Result<Self>
    where
        Self: Sized,
    {
        self.check()?;
        Ok(self)
    }

    /// The parameters of all groups, in order.
    fn parameters(&self) -> Vec<Tensor>;

    /// The learning rate of each group.
    fn learning_rates(&self) -> Vec<f64>;

    /// Sets the learning rate of each group; groups without one in the list keep theirs.
    fn set_learning_rates(&mut self, rates: &[f64]);

    /// The momentum of each group, or β₁, of an optimizer that has one: what
    /// [`OneCycleLr`](crate::OneCycleLr) and [`CyclicLr`](crate::CyclicLr) cycle beside the rate.
    fn momenta(&self) -> Option<Vec<f64>> {
        None
    }

    /// Sets the momentum of each group, or β₁; groups without one in the list keep theirs. Nothing happens
    /// without momenta.
    fn set_momenta(&mut self, momenta: &[f64]) {
        let _ = momenta;
    }

    /// Clears the gradients of all parameters: they become `None`.
    fn zero_grad(&self) {
        self.parameters().iter().for_each(|parameter| parameter.set_grad(None));
    }
}
