//! Derivatives of whole functions, all by backward passes.

use tensor_core::{Error, ErrorKind, Result, Shape, Tensor, is_grad_enabled};

use super::vmap::map;
use crate::{enable_grad, fresh_leaf::fresh_leaf, no_grad, tape};

/// The inputs as independent variables, and whether the derivatives are recorded: they are if the caller's
/// own inputs are tracked.
fn leaves(op: &'static str, inputs: &[Tensor]) -> Result<(Vec<Tensor>, bool)> {
    let recorded = is_grad_enabled() && inputs.iter().any(Tensor::is_tracked);
    if inputs.is_empty() {
        return Err(Error::invalid(op, "no inputs: there is nothing to differentiate in"));
    }
    Ok((inputs.iter().map(|x| fresh_leaf(x, recorded)).collect::<Result<_>>()?, recorded))
}

fn unless(recorded: bool, y: Tensor) -> Tensor {
    if recorded { y } else { y.detach() }
}

/// vᵀ·∂y/∂x for each x; zeros if y does not depend on it.
fn pull(y: &Tensor, x: &[Tensor], v: &Tensor, recorded: bool) -> Result<Vec<Tensor>> {
    if !y.is_tracked() {
        return Ok(x.iter().map(Tensor::zeros_like).collect());
    }
    let found = tape::pull(y, v, &x.iter().collect::<Vec<_>>(), recorded)?;
    Ok(found.into_iter().zip(x).map(|(g, x)| g.unwrap_or_else(|| x.zeros_like())).collect())
}

/// Σ of the products of tensors with directions of the same shapes.
fn along(op: &'static str, tensors: &[Tensor], directions: &[Tensor]) -> Result<Tensor> {
    let mut sum: Option<Tensor> = None;
    for (t, v) in tensors.iter().zip(directions) {
        let product = t.mul(v)?.sum();
        sum = Some(match sum {
            Some(sum) => sum.add(&product)?,
            None => product,
        });
    }
    sum.ok_or_else(|| Error::invalid(op, "no inputs: there is nothing to differentiate in"))
}

/// Checks that there is one direction for each input, of its shape and dtype.
#[track_caller]
fn check_directions(op: &'static str, inputs: &[Tensor], directions: &[Tensor]) -> Result<()> {
    if inputs.len() != directions.len() {
        let message = format!("{} directions for {} inputs; give one each", directions.len(), inputs.len());
        return Err(Error::invalid(op, message));
    }
    inputs.iter().zip(directions).try_for_each(|(x, v)| tape::check_seed(op, x, v))
}

#[track_caller]
fn check_scalar(op: &'static str, y: &Tensor) -> Result<()> {
    if y.numel() == 1 {
        return Ok(());
    }
    let message =
        format!("the function gives {} of {} elements; it must give one number", y.shape(), y.numel());
    Err(Error::new(ErrorKind::Autograd { op, message }))
}

/// The function that gives the gradient of the scalar function `f` with respect to its first input.
/// `torch.func.grad`.
///
/// The result takes the same inputs as `f`, so that transforms compose: `vmap(grad(f), …)` gives a gradient
/// for each example, and `grad(grad(f))` a second derivative. The gradient is recorded if an input is
/// tracked. [`crate::grad`] is PyTorch's `torch.autograd.grad`, for tensors that were computed already.
///
/// # Errors
/// The returned function fails for no inputs, inputs that are not floating-point, a result of `f` with more
/// than one element, and with the errors of `f` and of its gradient.
///
/// ```
/// use autograd::func::{grad, vmap};
/// use tensor_core::{Result, Tensor};
///
/// let loss = |t: &[Tensor]| -> Result<Tensor> { Ok(t[0].mul(&t[1])?.sum().powi(2)) };
/// let cpu = backend_cpu::cpu();
/// let weights = Tensor::new([1.0, -1.0], &cpu)?;
/// let examples = Tensor::new([[1.0, 2.0], [3.0, 4.0]], &cpu)?;
/// let each = vmap(grad(loss), &[weights, examples], &[None, Some(0)])?; // one gradient for each example
/// assert_eq!(each.to_vec2::<f32>()?, [[-2.0, -4.0], [-6.0, -8.0]]);
///
/// let cube = |x: &[Tensor]| -> Result<Tensor> { Ok(x[0].powi(3)) };
/// let second = grad(grad(cube))(&[Tensor::new(2.0, &cpu)?])?; // 6x
/// assert_eq!(second.item::<f32>()?, 12.0);
/// # Ok::<(), tensor_core::Error>(())
/// ```
pub fn grad<F>(f: F) -> impl Fn(&[Tensor]) -> Result<Tensor>
where
    F: Fn(&[Tensor]) -> Result<Tensor>,
{
    const OP: &str = "func::grad";
    move |inputs| {
        let recorded = is_grad_enabled() && inputs.iter().any(Tensor::is_tracked);
        let (first, others) = inputs
            .split_first()
            .ok_or_else(|| Error::invalid(OP, "no inputs: there is nothing to differentiate in"))?;
        let first = fresh_leaf(first, recorded)?;
        let mut x = vec![first];
        x.extend(others.iter().cloned());
        let y = enable_grad(|| f(&x))?;
        check_scalar(OP, &y)?;
        let found = pull(&y, &x[..1], &y.ones_like(), recorded)?;
        Ok(found.into_iter().next().unwrap_or_else(|| x[0].zeros_like()))
    }
}

/// A function's value, and the vector-Jacobian product vᵀ·∂f/∂x for each of its inputs.
/// `torch.autograd.functional.vjp`.
///
/// `v` has the shape and dtype of the result of `f`, each product those of its input. The products are
/// recorded if an input is tracked, so that they can be differentiated again.
///
/// # Errors
/// No inputs, inputs that are not floating-point, a `v` of another shape, dtype or device; the errors of `f`
/// and of its gradient.
///
/// ```
/// use autograd::func::vjp;
/// use tensor_core::Tensor;
///
/// let cpu = backend_cpu::cpu();
/// let (x, v) = (Tensor::new([1.0f32, 2.0], &cpu)?, Tensor::new([10.0f32, 1.0], &cpu)?);
/// let (y, g) = vjp(|x| Ok(x[0].powi(2)), &[x], &v)?;
/// assert_eq!((y.to_vec::<f32>()?, g[0].to_vec::<f32>()?), (vec![1.0, 4.0], vec![20.0, 4.0]));
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn vjp(
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[Tensor],
    v: &Tensor,
) -> Result<(Tensor, Vec<Tensor>)> {
    const OP: &str = "vjp";
    let (x, recorded) = leaves(OP, inputs)?;
    let y = enable_grad(|| f(&x))?;
    tape::check_seed(OP, &y, v)?;
    let found = pull(&y, &x, v, recorded)?;
    Ok((unless(recorded, y), found))
}

/// A function's value, and the Jacobian-vector product Σ ∂f/∂x·t over its inputs: the derivative along the
/// directions `tangents`. `torch.autograd.functional.jvp`.
///
/// It takes two backward passes: vᵀ·J is linear in v, and its gradient in v along t is J·t.
///
/// # Errors
/// As [`vjp`]; tangents that are not one for each input, of its shape and dtype.
///
/// ```
/// use autograd::func::jvp;
/// use tensor_core::Tensor;
///
/// let cpu = backend_cpu::cpu();
/// let (x, t) = (Tensor::new([1.0f32, 2.0], &cpu)?, Tensor::new([10.0f32, 1.0], &cpu)?);
/// let (_, along) = jvp(|x| Ok(x[0].powi(3).sum()), &[x], &[t])?; // 3x²·t
/// assert_eq!(along.item::<f32>()?, 42.0);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn jvp(
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[Tensor],
    tangents: &[Tensor],
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "jvp";
    check_directions(OP, inputs, tangents)?;
    let (x, recorded) = leaves(OP, inputs)?;
    let recorded = recorded || is_grad_enabled() && tangents.iter().any(Tensor::is_tracked);
    let y = enable_grad(|| f(&x))?;
    // Any point will do: the product is linear in v.
    let v = no_grad(|| y.ones_like()).into_cell(true)?;
    let slope = enable_grad(|| along(OP, &pull(&y, &x, &v, true)?, tangents))?;
    let found = pull(&slope, &[v], &slope.ones_like(), recorded)?;
    let tangent = found.into_iter().next().unwrap_or_else(|| y.zeros_like());
    Ok((unless(recorded, y), tangent))
}

/// The value of a scalar function, and H·v for each of its inputs, where H is its Hessian over all of them.
/// H is never formed: it takes two backward passes. `torch.autograd.functional.hvp`.
///
/// # Errors
/// As [`vjp`]; a function with more than one result element; directions that are not one for each input, of
/// its shape and dtype.
///
/// ```
/// use autograd::func::hvp;
/// use tensor_core::Tensor;
///
/// let cpu = backend_cpu::cpu();
/// let (x, v) = (Tensor::new([1.0f32, 2.0], &cpu)?, Tensor::new([1.0f32, 10.0], &cpu)?);
/// let (_, product) = hvp(|x| Ok(x[0].powi(3).sum()), &[x], &[v])?; // 6x·v
/// assert_eq!(product[0].to_vec::<f32>()?, [6.0, 120.0]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn hvp(
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[Tensor],
    v: &[Tensor],
) -> Result<(Tensor, Vec<Tensor>)> {
    const OP: &str = "hvp";
    check_directions(OP, inputs, v)?;
    let (x, recorded) = leaves(OP, inputs)?;
    let y = enable_grad(|| f(&x))?;
    check_scalar(OP, &y)?;
    let slope = enable_grad(|| along(OP, &pull(&y, &x, &y.ones_like(), true)?, v))?;
    let found = pull(&slope, &x, &slope.ones_like(), recorded)?;
    Ok((unless(recorded, y), found))
}

/// The Jacobian ∂fᵢ/∂xⱼ for each input: its shape is that of the result of `f`, followed by the input's.
/// `torch.autograd.functional.jacobian`, `torch.func.jacrev`.
///
/// It takes one backward pass for all elements of the result at once ([`vmap`](super::vmap)), or one for
/// each element if a rule reads values.
///
/// # Errors
/// As [`vjp`].
///
/// ```
/// use autograd::func::jacobian;
/// use tensor_core::Tensor;
///
/// let cpu = backend_cpu::cpu();
/// let w = Tensor::new([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]], &cpu)?;
/// let x = Tensor::new([1.0f32, 1.0], &cpu)?;
/// let j = jacobian(|x| w.matmul(&x[0].powi(2)), &[x])?; // W·diag(2x)
/// assert_eq!(j[0].to_vec::<f32>()?, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
/// assert_eq!(j[0].dims(), [3, 2]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn jacobian(f: impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let (x, recorded) = leaves("jacobian", inputs)?;
    let y = enable_grad(|| f(&x))?;
    jacobian_of(&y, &x, recorded)
}

/// The second derivatives of a scalar function: for inputs j and k, row j and column k has a tensor of the
/// shape of input j followed by that of input k. `torch.autograd.functional.hessian`.
///
/// # Errors
/// As [`vjp`]; a function with more than one result element.
///
/// ```
/// use autograd::func::hessian;
/// use tensor_core::Tensor;
///
/// let cpu = backend_cpu::cpu();
/// let x = Tensor::new([1.0f32, 2.0], &cpu)?;
/// let h = hessian(|x| Ok(x[0].sum().powi(3)), &[x])?; // 6·Σx everywhere
/// assert_eq!(h[0][0].to_vec::<f32>()?, [18.0; 4]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn hessian(f: impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor]) -> Result<Vec<Vec<Tensor>>> {
    const OP: &str = "hessian";
    let (x, recorded) = leaves(OP, inputs)?;
    let y = enable_grad(|| f(&x))?;
    check_scalar(OP, &y)?;
    let slopes = enable_grad(|| pull(&y, &x, &y.ones_like(), true))?;
    slopes.iter().map(|slope| jacobian_of(slope, &x, recorded)).collect()
}

fn jacobian_of(y: &Tensor, x: &[Tensor], recorded: bool) -> Result<Vec<Tensor>> {
    let (n, shape) = (y.numel(), y.shape());
    let sizes = |x: &Tensor| -> Shape { shape.dims().iter().chain(x.dims()).copied().collect() };
    let eye = || Tensor::eye(n, (y.dtype(), &y.device()));
    if n == 0 || !y.is_tracked() {
        let zeros = |x: &Tensor| Tensor::zeros(sizes(x), (x.dtype(), &x.device()));
        return x.iter().map(zeros).collect();
    }
    let batched: Shape = std::iter::once(n).chain(shape.dims().iter().copied()).collect();
    let basis = no_grad(|| eye()?.reshape(batched))?;
    let row = |v: &[Tensor]| pull(y, x, &v[0], recorded);
    let rows = match map(&row, &[(basis.clone(), true)], n) {
        // A rule that reads values has no batched form.
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported { op: super::rules::OP, .. }) => {
            let mut rows: Vec<Vec<Tensor>> = vec![Vec::with_capacity(n); x.len()];
            for k in 0..n {
                for (rows, found) in rows.iter_mut().zip(row(&[basis.select(0, k)?])?) {
                    rows.push(found);
                }
            }
            rows.iter().map(|rows| Tensor::stack(rows, 0)).collect::<Result<Vec<_>>>()?
        }
        rows => rows?,
    };
    rows.iter().zip(x).map(|(rows, x)| rows.reshape(sizes(x))).collect()
}
