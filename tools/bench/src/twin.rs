//! A network's twin in f64, with which whole training steps are compared. Its gradients are compared with
//! finite differences of its own loss, and a few rows of its output with the plain loops of the reference
//! backend.

use taper::{
    DType, Device, Generator, Tensor,
    nn::Module,
    prelude::{TensorGrad, no_grad},
};

use crate::{Result, check::all};

/// The module that `build` makes, in f64 on the generator's device, with the values of `like`.
pub(crate) fn in_f64<M: Module>(
    build: impl FnOnce(&Generator) -> taper::Result<M>,
    device: &Device,
    like: &impl Module,
) -> Result<M> {
    let before = taper::default_dtype();
    taper::set_default_dtype(DType::F64)?;
    let made = build(&Generator::seed(0, device));
    taper::set_default_dtype(before)?;
    let twin = made?;
    twin.load_state_dict(&like.state_dict())?;
    Ok(twin)
}

/// An error unless `got` are the gradients of `loss` with respect to the f64 cells `parameters`, up to a part
/// `relative` of all of them together; and unless these are the slopes of `loss`.
pub(crate) fn check_gradients(
    parameters: &[Tensor],
    loss: impl Fn() -> taper::Result<Tensor>,
    got: &[Tensor],
    relative: f64,
) -> Result<()> {
    parameters.iter().for_each(TensorGrad::zero_grad);
    loss()?.backward()?;
    let missing = "a parameter without a gradient";
    let gradients = parameters
        .iter()
        .map(|parameter| Ok(parameter.grad().ok_or(missing)?.to_f64_vec()?))
        .collect::<Result<Vec<_>>>()?;
    let norm = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>().sqrt();
    let whole = norm(&gradients.iter().map(|gradient| norm(gradient)).collect::<Vec<_>>());
    if got.len() != gradients.len() || !whole.is_finite() {
        return Err(format!("{} gradients of {} parameters, norm {whole}", got.len(), gradients.len()).into());
    }
    for (i, (got, want)) in got.iter().zip(&gradients).enumerate() {
        let apart: Vec<f64> = got.to_f64_vec()?.iter().zip(want).map(|(got, want)| got - want).collect();
        let (apart, size) = (norm(&apart), norm(want));
        if apart.is_nan() || apart > relative * (size + 0.1 * whole) {
            return Err(format!(
                "wrong result: the gradient of parameter {i}, of length {size}, is off by {apart}"
            )
            .into());
        }
    }
    slopes(parameters, loss, &gradients)
}

/// An error unless the loss changes along a random direction as the gradients say.
fn slopes(
    parameters: &[Tensor],
    loss: impl Fn() -> taper::Result<Tensor>,
    gradients: &[Vec<f64>],
) -> Result<()> {
    // So short that few values cross a kink.
    const STEP: f64 = 1e-8;
    let rng = Generator::seed(1, &taper::cpu());
    let start: Vec<Tensor> = parameters.iter().map(Tensor::detach).collect();
    let directions = start
        .iter()
        .map(|p| Tensor::randn_dtype(p.shape(), DType::F64, &rng)?.to(&p.device()))
        .collect::<taper::Result<Vec<_>>>()?;
    let (mut slope, mut size) = (0.0, 0.0);
    for (direction, gradient) in directions.iter().zip(gradients) {
        for (d, g) in direction.to_f64_vec()?.iter().zip(gradient) {
            slope += d * g;
            size += (d * g).powi(2);
        }
    }
    let at = |step: f64| -> taper::Result<f64> {
        no_grad(|| {
            for ((parameter, start), direction) in parameters.iter().zip(&start).zip(&directions) {
                parameter.assign(&start.add(&direction.mul_scalar(step))?)?;
            }
            loss()?.item_f64()
        })
    };
    let found = (at(STEP)? - at(-STEP)?) / (2.0 * STEP);
    at(0.0)?;
    // There may be kinks within the steps.
    if (found - slope).abs() > 1e-3 * size.sqrt() {
        return Err(format!("wrong result: the loss has the slope {found}, by its gradients {slope}").into());
    }
    Ok(())
}

/// An error unless `output` on the reference backend equals `got`.
pub(crate) fn check_forward<M: Module>(
    build: impl FnOnce(&Generator) -> taper::Result<M>,
    like: &impl Module,
    output: impl FnOnce(&M, &Device) -> taper::Result<Tensor>,
    got: &Tensor,
    relative: f64,
) -> Result<()> {
    let plain = taper_testing::reference();
    let twin = in_f64(build, &plain, like)?;
    twin.eval();
    let want = no_grad(|| output(&twin, &plain)?.to_f64_vec())?;
    let got: Vec<f32> = got.to_f64_vec()?.into_iter().map(|x| x as f32).collect();
    all("output", &got, &want, relative)
}
