//! States in 8 bits: close to f32, a quarter of its memory, saved and resumed to the bit.
#![allow(clippy::unwrap_used)]

use autograd::TensorGrad;
use optim::{
    Adam, Adam8bit, AdamConfig, AdamW8bit, AdamWConfig, EightBit, Optimizer, Sgd, Sgd8bit, SgdConfig,
};
use tensor_core::{DType, Device, Generator, Result, Stateful, Tensor};

/// A regression with a matrix of 80 x 64 unknown numbers and a vector of 64.
struct Regression {
    weight: Tensor,
    bias: Tensor,
    x: Tensor,
    y: Tensor,
}

impl Regression {
    fn new(device: &Device) -> Result<Regression> {
        let rng = Generator::seed(9, device);
        let x = Tensor::randn([256, 80], &rng)?;
        let y = x.matmul(&Tensor::randn([80, 64], &rng)?)?.add(&Tensor::randn([64], &rng)?)?;
        let zeros =
            |shape: &[usize]| Ok::<_, tensor_core::Error>(Tensor::zeros(shape, device)?.requires_grad());
        Ok(Regression { weight: zeros(&[80, 64])?, bias: zeros(&[64])?, x, y })
    }

    fn step(&self, optimizer: &mut dyn Optimizer) -> Result<f32> {
        self.weight.set_grad(None);
        self.bias.set_grad(None);
        let loss = self.x.matmul(&self.weight)?.add(&self.bias)?.sub(&self.y)?.square().mean();
        loss.backward()?;
        optimizer.step()?;
        loss.item()
    }

    fn parameters(&self) -> [Tensor; 2] {
        [self.weight.clone(), self.bias.clone()]
    }
}

/// The losses of 150 steps.
fn losses<O: Optimizer>(device: &Device, make: impl Fn([Tensor; 2]) -> O) -> Vec<f32> {
    let regression = Regression::new(device).unwrap();
    let mut optimizer = make(regression.parameters());
    (0..150).map(|_| regression.step(&mut optimizer).unwrap()).collect()
}

#[test]
fn training_goes_as_in_f32() {
    let adam = AdamConfig { lr: 0.05, ..Default::default() };
    let sgd = SgdConfig { lr: 0.5, momentum: 0.9, ..Default::default() };
    let device = backend_cpu::cpu();
    let pairs = [
        (losses(&device, |p| Adam::new(p, adam)), losses(&device, |p| Adam8bit::new(p, EightBit::new(adam)))),
        (losses(&device, |p| Sgd::new(p, sgd)), losses(&device, |p| Sgd8bit::new(p, EightBit::new(sgd)))),
    ];
    for (exact, coded) in pairs {
        assert!(exact[149] < 1e-2 * exact[0], "{exact:?}");
        assert!(coded[149] < 1e-2 * coded[0], "on {device}: {coded:?}");
        for (step, (a, b)) in exact.iter().zip(&coded).enumerate().take(60) {
            assert!((a - b).abs() < 0.03 * exact[0], "step {step} on {device}: {a} and {b}");
        }
    }
}

#[test]
fn states_are_a_quarter_and_are_resumed_to_the_bit() {
    for device in [backend_cpu::cpu(), taper_testing::reference()] {
        let config = EightBit::new(AdamWConfig { lr: 0.05, amsgrad: true, ..Default::default() });
        let regression = Regression::new(&device).unwrap();
        let mut adam = AdamW8bit::new(regression.parameters(), config);
        for _ in 0..5 {
            regression.step(&mut adam).unwrap();
        }
        let state = adam.state_dict();
        let codes = state.tensor("state.0.exp_avg_8bit").unwrap();
        assert_eq!((codes.dtype(), codes.dims()), (DType::U8, &[80, 64][..]));
        assert_eq!(state.tensor("state.0.exp_avg_sq_absmax").unwrap().dims(), [20]);
        assert!(
            state.tensor("state.0.max_exp_avg_sq_8bit").is_some()
                && state.tensor("state.0.exp_avg").is_none()
        );
        assert!(state.tensor("state.1.exp_avg").is_some(), "a small parameter keeps f32");

        let resumed = Regression::new(&device).unwrap();
        for (new, old) in resumed.parameters().iter().zip(regression.parameters()) {
            new.assign(&old.detach()).unwrap();
        }
        let mut other = AdamW8bit::new(resumed.parameters(), EightBit::default());
        other.load_state_dict(&state).unwrap();
        for _ in 0..3 {
            regression.step(&mut adam).unwrap();
            resumed.step(&mut other).unwrap();
        }
        for (new, old) in resumed.parameters().iter().zip(regression.parameters()) {
            assert_eq!(new.to_vec::<f32>().unwrap(), old.to_vec::<f32>().unwrap());
        }

        let mut wrong = state.clone();
        wrong.insert("state.0.exp_avg_absmax", Tensor::zeros([19], &device).unwrap());
        let error = other.load_state_dict(&wrong).unwrap_err().to_string();
        assert!(error.contains("state.0.exp_avg_absmax"), "{error}");
    }
}

#[test]
fn lengths_that_no_block_divides_and_zeros() {
    let device = backend_cpu::cpu();
    let x = Tensor::zeros([4999], &device).unwrap().requires_grad();
    let config = EightBit {
        min_8bit_size: 0,
        ..EightBit::new(SgdConfig { lr: 1.0, momentum: 0.5, ..Default::default() })
    };
    let mut sgd = Sgd8bit::new([x.clone()], config);
    let gradient: Vec<f32> = (0..4999).map(|i| if i < 300 { 0.0 } else { (i % 7) as f32 - 3.0 }).collect();
    for _ in 0..2 {
        x.set_grad(Some(Tensor::from_vec(gradient.clone(), [4999], &device).unwrap()));
        sgd.step().unwrap();
    }
    // −g − (0.5·g' + g), where g' is g in 8 bits.
    for (x, g) in x.to_vec::<f32>().unwrap().into_iter().zip(gradient) {
        assert!((x + 2.5 * g).abs() < 0.02, "{x} for {g}");
    }
}
