//! The interface of every optimizer.

use tensor_core::{Result, Stateful, Tensor};

/// Updates parameters from their gradients. `torch.optim.Optimizer`.
///
/// Its state dict ([`Stateful`]) has the settings and all state between steps.
pub trait Optimizer: Stateful {
    /// One step: every parameter with a gradient gets its new value, which is computed now, together with
    /// all other tensors that are pending on this thread and still held. No graph is recorded.
    ///
    /// # Errors
    /// Invalid settings, or a failure to compute what the new values depend on, such as a label that is no
    /// class index: if only the device can detect it, the step waits until the device has checked. Nothing
    /// has changed then: no parameter, and no state. A device that fails while old values are overwritten,
    /// such as a lost one, leaves each parameter and its state either as before the step or as after it.
    #[track_caller]
    fn step(&mut self) -> Result<()>;

    /// Checks the settings and the parameters, as [`Optimizer::step`] does before it changes anything.
    /// [`Optimizer::checked`] calls it when the optimizer is made.
    ///
    /// # Errors
    /// The setting or parameter that is wrong, and what to give instead.
    #[track_caller]
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The optimizer itself, if its settings and parameters are valid: `Sgd::new(model.parameters(),
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

    /// Sets the learning rates of the groups, in order; groups beyond the end of the list keep theirs.
    fn set_learning_rates(&mut self, rates: &[f64]);

    /// The momentum of each group, or its β₁; none if the optimizer has neither.
    /// [`OneCycleLr`](crate::OneCycleLr) and [`CyclicLr`](crate::CyclicLr) cycle it beside the learning
    /// rate.
    fn momenta(&self) -> Option<Vec<f64>> {
        None
    }

    /// Sets the momenta of the groups, or their β₁, in order; groups beyond the end of the list keep theirs.
    /// Without momenta it does nothing.
    fn set_momenta(&mut self, momenta: &[f64]) {
        let _ = momenta;
    }

    /// Clears the gradients of all parameters: they become `None`.
    fn zero_grad(&self) {
        self.parameters().iter().for_each(|parameter| parameter.set_grad(None));
    }
}
