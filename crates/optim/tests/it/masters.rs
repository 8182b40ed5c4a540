//! Copies of the parameters in f32, and on other devices.
#![allow(clippy::unwrap_used)]

use optim::{Adam, AdamConfig, AdamW, AdamWConfig, MasterWeights, Optimizer, Sgd, SgdConfig};
use tensor_core::{DType, Device, ErrorKind, Generator, Result, State, Stateful, Tensor};

use crate::common::{bits, shown};

const CONFIG: AdamConfig = AdamConfig {
    lr: 1e-3,
    betas: (0.9, 0.999),
    eps: 1e-8,
    weight_decay: 0.1,
    amsgrad: false,
    maximize: false,
    decoupled_weight_decay: false,
};

/// Parameters around 2, of this dtype.
fn parameters(dtype: DType, device: &Device) -> Result<Vec<Tensor>> {
    let rng = Generator::seed(3, device);
    let one = |shape: &[usize]| {
        let value = Tensor::rand(shape, &rng)?.add_scalar(2.0).to_dtype(dtype)?;
        value.eval()?;
        value.into_cell(true)
    };
    Ok(vec![one(&[3, 5])?, one(&[4])?])
}

/// Sets the gradients of a step, values that the parameters' dtype can represent.
fn set_gradients(parameters: &[Tensor], step: u64) -> Result<()> {
    let halves = if parameters[0].dtype() == DType::F16 { DType::F16 } else { DType::BF16 };
    for (k, parameter) in parameters.iter().enumerate() {
        let rng = Generator::seed(100 * step + k as u64, &parameter.device());
        let gradient = Tensor::rand(parameter.dims(), &rng)?.add_scalar(0.5).to_dtype(halves)?;
        parameter.set_grad(Some(gradient.to_dtype(parameter.dtype())?));
    }
    Ok(())
}

fn all_bits(tensors: &[Tensor]) -> Vec<Vec<u8>> {
    tensors.iter().map(bits).collect()
}

#[test]
fn masters_are_trained_as_f32_parameters_are() -> Result<()> {
    // Not on the reference backend, which rounds at the end of a kernel: kernels are divided differently
    // here.
    let device = backend_cpu::cpu();
    let own = parameters(DType::BF16, &device)?;
    let start = all_bits(&own);
    let plain = parameters(DType::BF16, &device)?;
    let wide: Vec<Tensor> =
        own.iter().map(|p| p.detach().to_dtype(DType::F32)?.into_cell(true)).collect::<Result<_>>()?;
    let mut masters = MasterWeights::new(own.clone(), |masters| Adam::new(masters, CONFIG))?;
    let (mut expected, mut halves) = (Adam::new(wide.clone(), CONFIG), Adam::new(plain.clone(), CONFIG));
    for step in 0..12 {
        for parameters in [&own, &wide, &plain] {
            set_gradients(parameters, step)?;
        }
        masters.step()?;
        expected.step()?;
        halves.step()?;
        assert_eq!(all_bits(masters.masters()), all_bits(&wide), "step {step}");
        for (own, wide) in own.iter().zip(&wide) {
            assert_eq!(bits(own), bits(&wide.detach().to_dtype(DType::BF16)?));
        }
    }
    // A step of a thousandth is lost in bf16, but twelve of them are not lost in the masters.
    assert_eq!(all_bits(&plain), start);
    assert_ne!(all_bits(&own), start);
    assert!(masters.masters().iter().all(|master| master.grad().is_none()));
    Ok(())
}

#[test]
fn a_resumed_training_has_the_bits_of_one_that_was_not_stopped() -> Result<()> {
    let device = backend_cpu::cpu();
    let build = |parameters: &[Tensor]| {
        MasterWeights::new(parameters.to_vec(), |masters| AdamW::new(masters, AdamWConfig::default()))
    };
    let own = parameters(DType::F16, &device)?;
    let mut optimizer = build(&own)?;
    let mut saved = State::new();
    for step in 0..8 {
        if step == 4 {
            saved = optimizer.state_dict();
        }
        set_gradients(&own, step)?;
        optimizer.step()?;
    }
    assert!(saved.tensor("masters.1").is_some_and(|master| master.dtype() == DType::F32));
    assert!(saved.get("state.0.exp_avg").is_some() && saved.get("param_groups.0.lr").is_some());

    let resumed = parameters(DType::F16, &device)?;
    let mut other = build(&resumed)?;
    other.load_state_dict(&saved)?;
    for step in 4..8 {
        set_gradients(&resumed, step)?;
        other.step()?;
    }
    assert_eq!(all_bits(&resumed), all_bits(&own));
    assert_eq!(shown(&other.state_dict()), shown(&optimizer.state_dict()));

    // A state that does not fit changes nothing.
    let before = (all_bits(&resumed), shown(&other.state_dict()));
    for name in ["masters.1", "state.0.exp_avg", "param_groups.0.lr"] {
        let mut broken = saved.clone();
        broken.remove(name);
        let error = other.load_state_dict(&broken).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::StateDict { missing, .. } if missing == &[name]),
            "{error}"
        );
    }
    let mut more = saved.clone();
    more.insert("masters.2", Tensor::ones([1], &device)?);
    assert!(other.load_state_dict(&more).is_err());
    assert_eq!((all_bits(&resumed), shown(&other.state_dict())), before);
    Ok(())
}

#[test]
fn values_that_others_give_a_parameter_reach_its_master() -> Result<()> {
    let device = backend_cpu::cpu();
    let own = parameters(DType::BF16, &device)?;
    let config = SgdConfig { lr: 0.001, ..Default::default() };
    let mut sgd = MasterWeights::new(own.clone(), |masters| Sgd::new(masters, config))?;
    own.iter().try_for_each(|p| -> Result<()> {
        p.set_grad(Some(p.ones_like().detach()));
        Ok(())
    })?;
    sgd.step()?;
    let master = sgd.masters()[0].to_vec::<f32>()?;
    // If the values are the same, the master keeps its extra digits.
    own[0].assign(&own[0].detach().mul_scalar(1.0))?;
    // Other values replace the master's.
    own[1].assign(&own[1].ones_like().detach())?;
    sgd.step()?;
    let expected: Vec<f32> = master.iter().map(|m| m - 0.001).collect();
    assert_eq!(sgd.masters()[0].to_vec::<f32>()?, expected);
    assert_eq!(sgd.masters()[1].to_vec::<f32>()?, [0.999; 4]);
    Ok(())
}

#[test]
fn an_offloaded_optimizer_keeps_nothing_where_the_parameters_are() -> Result<()> {
    let (host, device) = (backend_cpu::logical(11)?, backend_cpu::logical(12)?);
    let own = parameters(DType::F32, &device)?;
    let other = parameters(DType::F32, &backend_cpu::cpu())?;
    let mut offloaded = MasterWeights::offload(own.clone(), &host, |masters| Adam::new(masters, CONFIG))?;
    let mut plain = Adam::new(other.clone(), CONFIG);
    let before = device.memory().allocated;
    for step in 0..3 {
        set_gradients(&own, step)?;
        set_gradients(&other, step)?;
        offloaded.step()?;
        plain.step()?;
        offloaded.zero_grad();
    }
    assert_eq!(all_bits(&own), all_bits(&other));
    assert!(own.iter().all(|p| p.device() == device));
    assert_eq!(device.memory().allocated, before);
    // Two moments, and the masters.
    assert_eq!(host.memory().allocated, 3 * (15 + 4) * 4);
    // The parameters are in the model's state, and need not be in a file twice.
    assert!(offloaded.state_dict().iter().all(|(name, _)| !name.starts_with("masters")));
    assert_eq!(shown(&offloaded.state_dict()), shown(&plain.state_dict()));
    Ok(())
}

#[test]
fn what_is_wrong_is_told_and_changes_nothing() -> Result<()> {
    let device = backend_cpu::cpu();
    let build =
        |parameters: Vec<Tensor>| MasterWeights::new(parameters, |masters| Adam::new(masters, CONFIG));
    assert!(build(Vec::new()).unwrap_err().to_string().contains("no parameters"));
    let own = parameters(DType::BF16, &device)?;
    assert!(build(vec![own[0].clone(), own[0].clone()]).unwrap_err().to_string().contains("given twice"));
    assert!(build(vec![own[0].detach()]).unwrap_err().to_string().contains("is no parameter"));

    let mut adam = build(own.clone())?;
    set_gradients(&own, 1)?;
    adam.step()?;
    let before = (all_bits(&own), shown(&adam.state_dict()));
    own[1].set_grad(Some(Tensor::ones([4], &device)?));
    let message = adam.step().unwrap_err().to_string();
    assert!(message.contains("MasterWeights") && message.contains("dtype of its parameter"), "{message}");
    adam.optimizer_mut().groups_mut()[0].config.lr = f64::NAN;
    set_gradients(&own, 2)?;
    assert!(adam.step().unwrap_err().to_string().contains("lr"));
    adam.optimizer_mut().groups_mut()[0].config.lr = CONFIG.lr;
    assert_eq!((all_bits(&own), shown(&adam.state_dict())), before);
    Ok(())
}
