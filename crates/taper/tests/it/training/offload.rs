//! Optimizers whose state is on the host, for a model on the device under test.
#![allow(clippy::unwrap_used)]

use taper::{optim::MasterWeights, prelude::*};

use crate::common::logical_device;

/// Some steps of Adam on a device of the test's own: the weights, what stays on the device between steps, and
/// the most in a step.
fn train(number: usize, offloads: bool) -> Result<(Vec<Vec<f32>>, u64, u64)> {
    let (device, host) = (logical_device(number), taper::device("cpu#40")?);
    let rng = Generator::seed(7, &taper::cpu());
    let mut model = vec![Linear::new(64, 96, &rng)?, Linear::new(96, 64, &rng)?];
    model.to(&device)?;
    let x = Tensor::randn([4, 64], &rng)?.to(&device)?;
    let config = AdamConfig { lr: 1e-2, ..Default::default() };
    let mut adam: Box<dyn Optimizer> = match offloads {
        true => Box::new(MasterWeights::offload(model.parameters(), &host, |own| Adam::new(own, config))?),
        false => Box::new(Adam::new(model.parameters(), config)),
    };
    for _ in 0..3 {
        adam.zero_grad();
        device.reset_peak();
        model[1].forward(&model[0].forward(&x)?.tanh())?.powi(2).mean().backward()?;
        adam.step()?;
    }
    device.synchronize()?;
    let peak = device.memory().peak;
    adam.zero_grad();
    device.synchronize()?;
    let kept = device.memory().allocated;
    assert!(model.parameters().iter().all(|parameter| parameter.device() == device));
    let weights = model.parameters().iter().map(Tensor::to_vec::<f32>).collect::<Result<_>>()?;
    Ok((weights, kept, peak))
}

#[test]
fn an_offloaded_state_takes_no_memory_of_the_device() -> Result<()> {
    let (expected, kept, peak) = train(41, false)?;
    let (found, less, lower) = train(42, true)?;
    // Adam keeps two numbers for each weight.
    let state = 2 * 4 * (64 * 96 + 96 + 96 * 64 + 64);
    assert!(less + state <= kept, "{less} bytes and the state's {state} are {kept}");
    assert!(lower < peak, "{lower} {peak}");
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        // A root or a quotient of a GPU may be some units in the last place off.
        assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    }
    Ok(())
}
