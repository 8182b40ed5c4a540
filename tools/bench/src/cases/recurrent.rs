//! An LSTM over 64 steps of 32 sequences, compared with its twin in f64.

use taper::{
    DType, Generator, Tensor,
    nn::{Lstm, Module},
    prelude::{TensorGrad, no_grad},
};

use super::pair;
use crate::{
    case::Case,
    check::{all, host, part},
    twin,
};

const STEPS: usize = 64;
const BATCH: usize = 32;
const FEATURES: usize = 128;
const SIZE: usize = 256;

pub(super) fn more() -> Vec<Case> {
    vec![backward(), forward()]
}

fn forward() -> Case {
    Case::new("lstm_64x32_128_256_fwd", |inputs| {
        let net = Lstm::new(FEATURES, SIZE, &inputs.rng)?;
        let x = inputs.centred([STEPS, BATCH, FEATURES])?;
        let (shared, input) = (net.clone(), x.clone());
        let call = move || {
            let (out, (hidden, cell)) = no_grad(|| net.forward(&input, None))?;
            let all = vec![out, hidden, cell];
            taper::eval_all(&all.iter().collect::<Vec<_>>())?;
            Ok(all)
        };
        pair(call, move |results, _| {
            let twin = twin::in_f64(build, &taper::cpu(), &shared)?;
            let (out, (hidden, cell)) = no_grad(|| twin.forward(&wide(&x)?, None))?;
            for (got, want) in results.iter().zip([out, hidden, cell]) {
                all("output", &host(got)?, &want.to_f64_vec()?, part(&x.device(), 1e-5))?;
            }
            Ok(())
        })
    })
    .flop(2 * STEPS * BATCH * 4 * SIZE * (FEATURES + SIZE))
}

/// The sum of all outputs, and the gradient of each parameter.
fn backward() -> Case {
    Case::new("lstm_64x32_128_256_fwd_bwd", |inputs| {
        let net = Lstm::new(FEATURES, SIZE, &inputs.rng)?;
        let x = inputs.centred([STEPS, BATCH, FEATURES])?;
        let parameters = net.parameters();
        let (shared, input) = (net.clone(), x.clone());
        let call = move || {
            net.zero_grad();
            net.forward(&input, None)?.0.sum().backward()?;
            let missing = || taper::Error::invalid("bench", "backward left no gradient");
            let gradients: Vec<Tensor> =
                parameters.iter().map(|p| p.grad().ok_or_else(missing)).collect::<taper::Result<_>>()?;
            taper::eval_all(&gradients.iter().collect::<Vec<_>>())?;
            Ok(gradients)
        };
        pair(call, move |results, _| {
            let (twin, wide) = (twin::in_f64(build, &taper::cpu(), &shared)?, wide(&x)?);
            let relative = part(&x.device(), 1e-5);
            twin::check_gradients(
                &twin.parameters(),
                || Ok(twin.forward(&wide, None)?.0.sum()),
                results,
                relative,
            )
        })
    })
    .flop(3 * 2 * STEPS * BATCH * 4 * SIZE * (FEATURES + SIZE))
}

fn build(rng: &Generator) -> taper::Result<Lstm> {
    Lstm::new(FEATURES, SIZE, rng)
}

fn wide(x: &Tensor) -> taper::Result<Tensor> {
    x.to(&taper::cpu())?.to_dtype(DType::F64)
}
