//! Hooks on any layer of a model, by its path.

use std::{cell::RefCell, collections::HashSet, rc::Rc};

use tensor_core::{Error, Result, Tensor, near_names};

use crate::{Module, Visitor, layers::with_hook, summary::path};

/// Runs `run`, and passes the output of every call of a layer of `model` in it to `hook`, with the layer's
/// path. The hook may return another output, or `None` to leave it unchanged.
///
/// It is `register_forward_hook` of PyTorch for a model that was not built with hooks: [`crate::Hooked`] is a
/// layer with lasting hooks. For the gradient of an output, return `output.register_hook(..)` of
/// `TensorGrad`. The layers are those of [`crate::summary`]: the layers of this crate, and your own where a
/// [`crate::Sequential`] calls them. Layers without fields, such as [`crate::Relu`], are named in the order
/// of their calls. `run` must call the layers on this thread.
///
/// ```
/// use std::{cell::RefCell, rc::Rc};
/// use nn::{Linear, Relu, Sequential, with_layer_hook};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let model = Sequential::new().add(Linear::new(2, 3, &rng)?).add(Relu).add(Linear::new(3, 1, &rng)?);
/// let seen = Rc::new(RefCell::new(Vec::new()));
/// let notes = seen.clone();
/// let hook = move |path: &str, output: &Tensor| {
///     notes.borrow_mut().push((path.to_string(), output.dims().to_vec()));
///     Ok((path == "1").then(|| output.zeros_like())) // ablates the hidden features
/// };
/// let x = Tensor::ones([4, 2], rng.device())?;
/// let y = with_layer_hook(&model, hook, |model| model.forward(&x))?;
/// let bias = model.forward(&Tensor::zeros([4, 2], rng.device())?)?; // without the hook
/// assert_eq!((seen.borrow()[0].0.as_str(), seen.borrow().len()), ("0", 3));
/// assert_eq!(y.dims(), bias.dims());
/// # Ok(()) }
/// ```
///
/// # Errors
/// The errors of `run` and of `hook`, and a tensor of the hook on another device.
#[track_caller]
#[doc(alias("register_forward_hook", "get_submodule"))]
pub fn with_layer_hook<M: Module + ?Sized, R>(
    model: &M,
    hook: impl Fn(&str, &Tensor) -> Result<Option<Tensor>> + 'static,
    run: impl FnOnce(&M) -> Result<R>,
) -> Result<R> {
    let sites = sites(model);
    let used = RefCell::new(HashSet::new());
    let by_place = move |place, output: &Tensor| {
        let Some(path) = path(&sites, place, &mut used.borrow_mut()) else { return Ok(None) };
        let other = hook(&path, output)?;
        match &other {
            Some(other) if other.device() != output.device() => {
                let message = format!(
                    "the hook of {path} returned a tensor on another device: move it with .to(&device)?"
                );
                Err(Error::invalid("with_layer_hook", message))
            }
            _ => Ok(other),
        }
    };
    with_hook(Some(Rc::new(by_place)), || run(model))
}

/// [`with_layer_hook`] for the layer at one path, such as `encoder.0.fc`.
///
/// ```
/// use nn::{Linear, Sequential, with_hook_at};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let model = Sequential::new().add(Linear::new(2, 3, &rng)?).add(Linear::new(3, 1, &rng)?);
/// let x = Tensor::ones([4, 2], rng.device())?;
/// let clamped = |output: &Tensor| Ok(Some(output.clamp(-1.0, 1.0)));
/// with_hook_at(&model, "0", clamped, |model| model.forward(&x))?;
/// let error = with_hook_at(&model, "fc", clamped, |model| model.forward(&x)).unwrap_err();
/// assert!(error.to_string().contains("no layer \"fc\""));
/// # Ok(()) }
/// ```
///
/// # Errors
/// A path that the model does not have, and the errors of [`with_layer_hook`].
#[track_caller]
#[doc(alias("register_forward_hook", "get_submodule"))]
pub fn with_hook_at<M: Module + ?Sized, R>(
    model: &M,
    layer: &str,
    hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + 'static,
    run: impl FnOnce(&M) -> Result<R>,
) -> Result<R> {
    let paths: Vec<String> = sites(model).into_iter().map(|site| site.path).collect();
    if !paths.iter().any(|path| path == layer) {
        let names: Vec<&str> = paths.iter().map(String::as_str).filter(|path| !path.is_empty()).collect();
        let near = near_names(layer, names.iter().copied());
        let near = if near.is_empty() { names.into_iter().take(8).collect() } else { near };
        let message = format!("the model has no layer \"{layer}\"; it has {near:?}");
        return Err(Error::invalid("with_hook_at", message));
    }
    let wanted = layer.to_string();
    with_layer_hook(model, move |path, output| if path == wanted { hook(output) } else { Ok(None) }, run)
}

fn sites<M: Module + ?Sized>(model: &M) -> Vec<crate::visitor::Site> {
    let mut visitor = Visitor::new();
    visitor.inner(model);
    visitor.sites()
}
