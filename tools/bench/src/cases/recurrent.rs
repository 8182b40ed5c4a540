//! An LSTM over 64 steps of 32 sequences.

use taper::{
    Tensor,
    nn::{Lstm, Module},
    prelude::{TensorGrad, no_grad},
};

use super::pair;
use crate::{
    Result,
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
        let parameters = net.parameters();
        let input = x.clone();
        let call = move || {
            let (out, (hidden, cell)) = no_grad(|| net.forward(&input, None))?;
            let all = vec![out, hidden, cell];
            taper::eval_all(&all.iter().collect::<Vec<_>>())?;
            Ok(all)
        };
        pair(call, move |results, _| {
            let x = host(&x)?;
            let parameters = parameters.iter().map(host).collect::<Result<Vec<_>>>()?;
            let got = host(&results[0])?;
            let relative = part(&results[0].device(), 1e-5);
            for column in [0, BATCH - 1] {
                let want = outputs(&parameters, &x, column);
                for (step, want) in want.chunks(SIZE).enumerate() {
                    let at = (step * BATCH + column) * SIZE;
                    all(&format!("step {step} of {column}"), &got[at..at + SIZE], want, relative)?;
                }
                let (hidden, at) = (host(&results[1])?, column * SIZE);
                all("last state", &hidden[at..at + SIZE], &want[(STEPS - 1) * SIZE..], relative)?;
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
            let build = |rng: &taper::Generator| Lstm::new(FEATURES, SIZE, rng);
            let twin = twin::in_f64(build, &taper::cpu(), &shared)?;
            let wide = x.to(&taper::cpu())?.to_dtype(taper::DType::F64)?;
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

/// The outputs of all steps of one sequence, by the textbook's loops.
fn outputs(parameters: &[Vec<f32>], x: &[f32], column: usize) -> Vec<f64> {
    let dot = |w: &[f32], x: &[f64]| -> f64 { w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum() };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let (mut hidden, mut cell) = (vec![0.0; SIZE], vec![0.0; SIZE]);
    let mut all = Vec::with_capacity(STEPS * SIZE);
    for step in 0..STEPS {
        let at = (step * BATCH + column) * FEATURES;
        let input: Vec<f64> = x[at..at + FEATURES].iter().copied().map(f64::from).collect();
        let gate = |row: usize| {
            dot(&parameters[0][row * FEATURES..(row + 1) * FEATURES], &input)
                + dot(&parameters[1][row * SIZE..(row + 1) * SIZE], &hidden)
                + f64::from(parameters[2][row])
                + f64::from(parameters[3][row])
        };
        let gates: Vec<f64> = (0..4 * SIZE).map(gate).collect();
        for i in 0..SIZE {
            let fresh = sigmoid(gates[i]) * gates[2 * SIZE + i].tanh();
            cell[i] = sigmoid(gates[SIZE + i]) * cell[i] + fresh;
            hidden[i] = sigmoid(gates[3 * SIZE + i]) * f64::tanh(cell[i]);
        }
        all.extend_from_slice(&hidden);
    }
    all
}
