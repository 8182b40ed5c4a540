//! User-defined differentiable functions.

use std::{fmt, sync::Arc};

use tensor_core::{CustomOp, Error, Result, Tensor};

use crate::no_grad;

/// A function with a custom gradient. `torch.autograd.Function`.
///
/// The fields of the type are the function's constants. The forward pass is not recorded; the backward pass
/// is recorded if second derivatives are requested.
pub trait Function: fmt::Debug + Send + Sync + 'static {
    /// The result: a `Tensor`, or several as a tuple, an array or a `Vec`.
    type Output: Outputs;

    /// The name, shown as `grad_fn` and in graphs.
    fn name(&self) -> &'static str;

    /// Computes the value.
    ///
    /// # Errors
    /// The errors of its operations.
    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Self::Output>;

    /// The gradient with respect to each input, given the gradient with respect to the output; `None` for an
    /// input without one. If there are several outputs, `gradient` has one entry for each, in the same
    /// order, and `None` for an output that was not used. (PyTorch passes zeros there, unless
    /// `set_materialize_grads(False)`.)
    ///
    /// # Errors
    /// The errors of its operations.
    #[track_caller]
    fn backward(
        &self,
        inputs: &[Tensor],
        output: &Self::Output,
        gradient: &<Self::Output as Outputs>::Gradients,
    ) -> Result<Vec<Option<Tensor>>>;
}

/// The results of a [`Function`]: a `Tensor`; a tuple of up to six, an array or a `Vec` of them.
pub trait Outputs: Sized + sealed::Sealed {
    /// The gradients with respect to the outputs: a `Tensor` for a single output, and an `Option<Tensor>`
    /// for each of several.
    type Gradients;

    #[doc(hidden)]
    fn into_tensors(self) -> Vec<Tensor>;

    #[doc(hidden)]
    fn from_tensors(tensors: Vec<Tensor>) -> Option<Self>;

    #[doc(hidden)]
    fn gradients(gradients: Vec<Option<Tensor>>) -> Option<Self::Gradients>;
}

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for Tensor {}
impl Outputs for Tensor {
    type Gradients = Tensor;

    fn into_tensors(self) -> Vec<Tensor> {
        vec![self]
    }
    fn from_tensors(mut tensors: Vec<Tensor>) -> Option<Tensor> {
        tensors.pop()
    }
    fn gradients(mut gradients: Vec<Option<Tensor>>) -> Option<Tensor> {
        gradients.pop().flatten()
    }
}

impl sealed::Sealed for Vec<Tensor> {}
impl Outputs for Vec<Tensor> {
    type Gradients = Vec<Option<Tensor>>;

    fn into_tensors(self) -> Vec<Tensor> {
        self
    }
    fn from_tensors(tensors: Vec<Tensor>) -> Option<Vec<Tensor>> {
        Some(tensors)
    }
    fn gradients(gradients: Vec<Option<Tensor>>) -> Option<Vec<Option<Tensor>>> {
        Some(gradients)
    }
}

impl<const N: usize> sealed::Sealed for [Tensor; N] {}
impl<const N: usize> Outputs for [Tensor; N] {
    type Gradients = [Option<Tensor>; N];

    fn into_tensors(self) -> Vec<Tensor> {
        self.into()
    }
    fn from_tensors(tensors: Vec<Tensor>) -> Option<[Tensor; N]> {
        tensors.try_into().ok()
    }
    fn gradients(gradients: Vec<Option<Tensor>>) -> Option<[Option<Tensor>; N]> {
        gradients.try_into().ok()
    }
}

macro_rules! tuples {
    ($($name:ident: $tensor:ident $gradient:ty),*) => {
        impl sealed::Sealed for ($($tensor,)*) {}
        impl Outputs for ($($tensor,)*) {
            type Gradients = ($($gradient,)*);

            fn into_tensors(self) -> Vec<Tensor> {
                let ($($name,)*) = self;
                vec![$($name),*]
            }
            fn from_tensors(tensors: Vec<Tensor>) -> Option<Self> {
                let [$($name),*] = tensors.try_into().ok()?;
                Some(($($name,)*))
            }
            fn gradients(gradients: Vec<Option<Tensor>>) -> Option<Self::Gradients> {
                let [$($name),*] = gradients.try_into().ok()?;
                Some(($($name,)*))
            }
        }
    };
}
tuples!(a: Tensor Option<Tensor>, b: Tensor Option<Tensor>);
tuples!(a: Tensor Option<Tensor>, b: Tensor Option<Tensor>, c: Tensor Option<Tensor>);
tuples!(a: Tensor Option<Tensor>, b: Tensor Option<Tensor>, c: Tensor Option<Tensor>, d: Tensor Option<Tensor>);
tuples!(
    a: Tensor Option<Tensor>, b: Tensor Option<Tensor>, c: Tensor Option<Tensor>, d: Tensor Option<Tensor>,
    e: Tensor Option<Tensor>
);
tuples!(
    a: Tensor Option<Tensor>, b: Tensor Option<Tensor>, c: Tensor Option<Tensor>, d: Tensor Option<Tensor>,
    e: Tensor Option<Tensor>, f: Tensor Option<Tensor>
);

#[derive(Debug)]
struct Custom<F>(F);

impl<F: Function> CustomOp for Custom<F> {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    #[track_caller]
    fn backward(
        &self,
        inputs: &[Tensor],
        results: &[Tensor],
        gradients: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        let outputs = F::Output::from_tensors(results.to_vec()).ok_or_else(|| miscounted(self.name()))?;
        let gradients = F::Output::gradients(gradients.to_vec()).ok_or_else(|| miscounted(self.name()))?;
        self.0.backward(inputs, &outputs, &gradients)
    }
}

/// Unreachable: the tape passes as many results and gradients as the forward pass returned.
#[track_caller]
fn miscounted(name: &'static str) -> Error {
    Error::invalid(name, "its results and their gradients differ in number")
}

/// The function's value at `inputs`; its gradient is recorded if an input is tracked.
///
/// # Errors
/// The errors of the function's forward pass.
///
/// ```
/// use autograd::{Function, TensorGrad, apply};
/// use tensor_core::{Result, Tensor};
///
/// /// x² whose gradient is clipped to ±1.
/// #[derive(Debug)]
/// struct ClippedSquare;
/// impl Function for ClippedSquare {
///     type Output = Tensor;
///     fn name(&self) -> &'static str { "ClippedSquare" }
///     fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> { inputs[0].mul(inputs[0]) }
///     fn backward(&self, inputs: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
///         Ok(vec![Some(gradient.mul(&(&inputs[0] * 2.0))?.clamp(-1.0, 1.0))])
///     }
/// }
///
/// let x = Tensor::new([0.25f32, 3.0], &backend_cpu::cpu())?.requires_grad();
/// apply(ClippedSquare, &[&x])?.sum().backward()?;
/// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [0.5, 1.0]);
///
/// /// Polar coordinates: two outputs, and a gradient that reads one of them.
/// #[derive(Debug)]
/// struct Polar;
/// impl Function for Polar {
///     type Output = (Tensor, Tensor);
///     fn name(&self) -> &'static str { "Polar" }
///     fn forward(&self, inputs: &[&Tensor]) -> Result<(Tensor, Tensor)> {
///         let (x, y) = (inputs[0], inputs[1]);
///         Ok((x.powi(2).add(&y.powi(2))?.sqrt(), y.atan2(x)?))
///     }
///     fn backward(
///         &self,
///         inputs: &[Tensor],
///         (radius, _): &(Tensor, Tensor),
///         (of_radius, of_angle): &(Option<Tensor>, Option<Tensor>),
///     ) -> Result<Vec<Option<Tensor>>> {
///         let (cos, sin) = (inputs[0].div(radius)?, inputs[1].div(radius)?);
///         let (mut dx, mut dy) = (cos.zeros_like(), cos.zeros_like());
///         if let Some(g) = of_radius {
///             (dx, dy) = (dx.add(&g.mul(&cos)?)?, dy.add(&g.mul(&sin)?)?);
///         }
///         if let Some(g) = of_angle {
///             let g = g.div(radius)?;
///             (dx, dy) = (dx.sub(&g.mul(&sin)?)?, dy.add(&g.mul(&cos)?)?);
///         }
///         Ok(vec![Some(dx), Some(dy)])
///     }
/// }
///
/// let y = Tensor::new([1.0f32, 4.0], &backend_cpu::cpu())?.requires_grad();
/// let (radius, _) = apply(Polar, &[&x, &y])?;
/// y.zero_grad();
/// radius.sum().backward()?;
/// assert_eq!(y.grad().unwrap().to_vec::<f32>()?[1], 0.8);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn apply<F: Function, T: AsRef<Tensor>>(function: F, inputs: &[T]) -> Result<F::Output> {
    let inputs: Vec<&Tensor> = inputs.iter().map(AsRef::as_ref).collect();
    let values = no_grad(|| function.forward(&inputs))?.into_tensors();
    let name = function.name();
    let results = Tensor::custom(Arc::new(Custom(function)), &inputs, &values);
    F::Output::from_tensors(results).ok_or_else(|| miscounted(name))
}
