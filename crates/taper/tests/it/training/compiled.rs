//! Compiled training steps and inference of a network, on every device, against the same calls as usual: they
//! have the same bits. `crates/optim/tests/it/compiled.rs` has the optimizers and what cannot be compiled.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::cell::RefCell;

use taper::{ErrorKind, compile, prelude::*};

use crate::common::{device, tensor};

/// A network with running means, dropout and a pool.
fn network(rng: &Generator) -> Result<Sequential> {
    Ok(Sequential::new()
        .add(Conv2d::new(1, 4, 3, rng)?)
        .add(BatchNorm2d::new(4, rng.device())?)
        .add(Relu)
        .add(MaxPool2d::new(2))
        .add(Flatten::default())
        .add(Dropout::new(0.25, rng)?)
        .add(Linear::new(36, 3, rng)?))
}

fn batch(k: usize, device: &Device) -> Result<(Tensor, Tensor)> {
    let x = tensor(&[6, 1, 8, 8], k as u64 + 1, DType::F32, device)?;
    let labels: Vec<i32> = (0..6).map(|i| ((i + k) % 3) as i32).collect();
    Ok((x, Tensor::from_vec(labels, [6], device)?))
}

/// The bits of losses, of all tensors of the network, and of an inference.
type Bits = Vec<Vec<u8>>;

fn trained(is_compiled: bool, device: &Device) -> Result<Bits> {
    let rng = Generator::seed(1, device);
    let model = network(&rng)?;
    let adam = RefCell::new(AdamW::new(model.parameters(), AdamWConfig { lr: 0.01, ..Default::default() }));
    let step = |(x, y): (Tensor, Tensor)| {
        adam.borrow().zero_grad();
        let loss = cross_entropy(&model.forward(&x)?, &y)?;
        loss.backward()?;
        clip_grad_norm(&model.parameters(), 1.0)?;
        adam.borrow_mut().step()?;
        Ok(loss.detach())
    };
    let infer = |x: Tensor| no_grad(|| model.forward(&x)?.softmax(-1));
    let (compiled_step, compiled_infer) = (compile(step), compile(infer));
    let mut bits = Vec::new();
    for k in 0..5 {
        let (x, y) = batch(k, device)?;
        model.train();
        let loss = if is_compiled { compiled_step.call((x.clone(), y))? } else { step((x.clone(), y))? };
        bits.push(loss.read_bytes()?);
        // The function of an inference sees both modes.
        for training in [false, true] {
            if training {
                model.train()
            } else {
                model.eval()
            }
            let found = if is_compiled { compiled_infer.call(x.clone())? } else { infer(x.clone())? };
            bits.push(found.read_bytes()?);
        }
    }
    if is_compiled {
        let (steps, inferences) = (compiled_step.counts(), compiled_infer.counts());
        assert_eq!((steps.captured, steps.replayed), (2, 3), "{steps:?}");
        assert_eq!((inferences.captured, inferences.replayed), (2, 8), "{inferences:?}");
    }
    for tensor in model.state_dict().values() {
        bits.push(tensor.read_bytes()?);
    }
    Ok(bits)
}

#[test]
fn a_network_learns_the_same() -> Result<()> {
    let device = device();
    assert_eq!(trained(true, &device)?, trained(false, &device)?);
    Ok(())
}

#[test]
fn a_bad_label_changes_nothing() -> Result<()> {
    let device = device();
    let rng = Generator::seed(1, &device);
    let model = Linear::new(4, 3, &rng)?;
    let sgd = RefCell::new(Sgd::new(model.parameters(), SgdConfig { lr: 0.1, ..Default::default() }));
    let step = compile(|(x, y): (Tensor, Tensor)| {
        sgd.borrow().zero_grad();
        let loss = cross_entropy(&model.forward(&x)?, &y)?;
        loss.backward()?;
        sgd.borrow_mut().step()?;
        Ok(loss.detach())
    });
    let x = tensor(&[2, 4], 3, DType::F32, &device)?;
    // Labels that only the device knows, and labels of the host.
    let one = Tensor::new([1i32, 1], &device)?;
    let labels = |of: [i32; 2]| Tensor::new(of, &device)?.mul(&one);
    for _ in 0..3 {
        step.call((x.clone(), labels([0, 2])?))?.eval()?;
        step.call((x.clone(), Tensor::new([1i32, 2], &device)?))?.eval()?;
    }
    let before: Vec<Vec<u8>> = model.parameters().iter().map(Tensor::read_bytes).collect::<Result<_>>()?;
    for bad in [labels([0, 3])?, Tensor::new([3i32, 0], &device)?] {
        let error = step.call((x.clone(), bad)).and_then(|loss| loss.eval()).unwrap_err();
        assert!(!matches!(error.kind(), ErrorKind::Capture { .. }), "{error}");
        assert!(error.to_string().contains("cross_entropy"), "{error}");
    }
    let after: Vec<Vec<u8>> = model.parameters().iter().map(Tensor::read_bytes).collect::<Result<_>>()?;
    assert_eq!(before, after);
    step.call((x, labels([1, 1])?))?.eval()?;
    Ok(())
}

/// The bits of losses, gradients and all tensors of a network that is called as it is or compiled, and whose
/// loss, gradients and updates are computed outside of it.
fn trained_outside(is_compiled: bool, device: &Device) -> Result<Bits> {
    let rng = Generator::seed(1, device);
    let model = network(&rng)?;
    let lstm = Lstm::new(8, 6, &rng)?;
    let attention = MultiheadAttention::new(8, 2, &rng)?;
    let parameters = [model.parameters(), lstm.parameters(), attention.parameters()].concat();
    let mut adam = AdamW::new(parameters.clone(), AdamWConfig { lr: 0.01, ..Default::default() });
    let forward = |x: Tensor| {
        let rows = x.reshape([6, 8, 8])?;
        let attended = attention.forward(&rows, &rows, &rows, AttentionMasks::default())?;
        let (read, _) = lstm.forward(&attended.transpose(0, 1)?, None)?;
        let read = read.mean_axis(0, false)?;
        Ok((model.forward(&x)?, read))
    };
    let compiled = compile(forward);
    let mut bits = Vec::new();
    for k in 0..4 {
        let (x, y) = batch(k, device)?;
        let (scores, read) = if is_compiled { compiled.call(x)? } else { forward(x)? };
        let loss = cross_entropy(&scores, &y)?.add(&read.powi(2).mean())?;
        loss.backward()?;
        bits.push(loss.read_bytes()?);
        for parameter in &parameters {
            bits.push(parameter.grad().unwrap().read_bytes()?);
        }
        adam.step()?;
        adam.zero_grad();
    }
    if is_compiled {
        assert_eq!((compiled.counts().captured, compiled.counts().replayed), (1, 3));
    }
    for tensor in model.state_dict().values() {
        bits.push(tensor.read_bytes()?);
    }
    Ok(bits)
}

#[test]
fn gradients_flow_through_a_compiled_network() -> Result<()> {
    let device = device();
    assert_eq!(trained_outside(true, &device)?, trained_outside(false, &device)?);
    Ok(())
}

#[test]
fn a_compiled_function_keeps_what_its_gradients_read() -> Result<()> {
    if taper_testing::run_alone(a_compiled_function_keeps_what_its_gradients_read) {
        return Ok(());
    }
    let device = device();
    let chain = compile(|x: Tensor| x.mul_scalar(2.0).add_scalar(1.0).powi(2).mul(&x.relu()));
    let x = Tensor::ones([1 << 16], &device)?.requires_grad();
    x.eval()?;
    for k in 0..3 {
        x.zero_grad();
        let before = device.memory().allocated;
        let y = chain.call(x.clone())?;
        y.eval()?;
        // The argument is there anyway, and the rest is computed again from it.
        let kept = device.memory().allocated - before;
        assert!(kept < 6 << 16, "call {k} keeps {kept} bytes, and its result has {}", 4 << 16);
        y.sum().backward()?;
        x.grad().unwrap().eval()?;
    }
    Ok(())
}

#[test]
fn what_calls_have_in_common_is_computed_once() -> Result<()> {
    let device = device();
    let table = tensor(&[8, 16], 3, DType::F32, &device)?;
    let weight = tensor(&[16, 4], 4, DType::F32, &device)?.into_cell(false)?;
    let rng = Generator::seed(1, &device);
    let function = |x: Tensor| {
        // A product and a result read constants of all calls; a cell is assigned between calls, and numbers
        // are drawn.
        let fixed = table.exp().add(&table.sum_axis(0, true)?)?;
        let noise = Tensor::rand((8, 16), &rng)?;
        let read = x.matmul(&fixed)?.matmul(&weight.tanh())?;
        Ok((read, x.matmul(&noise)?, table.max_axis(1, false)?.0))
    };
    let compiled = compile(function);
    let x = tensor(&[5, 8], 5, DType::F32, &device)?;
    let mut kernels = Vec::new();
    for k in 0..4 {
        let offset = rng.offset();
        let profile = taper::inspect::profile(|| compiled.call(x.clone()))?;
        kernels.push(profile.runs.len());
        let found = profile.value;
        rng.set_offset(offset);
        let wanted = function(x.clone())?;
        for (found, wanted) in [(&found.0, &wanted.0), (&found.1, &wanted.1), (&found.2, &wanted.2)] {
            assert_eq!(found.read_bytes()?, wanted.read_bytes()?, "call {k}");
        }
        weight.assign(&weight.detach().mul_scalar(0.5))?;
    }
    assert!(kernels[1..].iter().all(|&later| later == kernels[1]), "{kernels:?}");
    assert!(kernels[1] + 2 <= kernels[0], "the sum and its reader run once: {kernels:?}");
    Ok(())
}

#[test]
fn a_constant_that_another_step_reads_first_stays() -> Result<()> {
    let device = device();
    let table = tensor(&[8, 8], 3, DType::F32, &device)?;
    let function = |x: Tensor| {
        // The product of the argument comes first, and then constants are made of the constant that it reads,
        // whose last reader is a map that could overwrite it.
        let fixed = table.matmul(&table)?;
        let first = x.matmul(&fixed)?;
        let then = fixed.tanh().add(&fixed)?.matmul(&table)?;
        first.add(&x.matmul(&then)?)
    };
    let compiled = compile(function);
    for k in 0..3 {
        let x = tensor(&[5, 8], 5 + k, DType::F32, &device)?;
        assert_eq!(compiled.call(x.clone())?.read_bytes()?, function(x)?.read_bytes()?, "call {k}");
    }
    Ok(())
}
