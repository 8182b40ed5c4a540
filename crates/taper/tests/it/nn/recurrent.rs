//! Recurrent layers over whole sequences: all steps by a kernel, where the device has one, against steps
//! composed of other operations.
#![allow(clippy::unwrap_used)]

use taper::autograd::{TensorGrad, gradcheck, gradgradcheck};
use taper::nn::{self, Module, RnnConfig};
use taper::{DType, Generator, Result, Tensor, no_grad};

use crate::common::{assert_close, device, has_plain_forms};

/// A layer of each kind: what comes after each step, and the last states.
enum Layer {
    Rnn(nn::Rnn),
    Lstm(nn::Lstm),
    Gru(nn::Gru),
}

const KINDS: [&str; 4] = ["tanh", "relu", "lstm", "gru"];

impl Layer {
    fn new(kind: &str, sizes: [usize; 2], config: RnnConfig, rng: &Generator) -> Layer {
        let [features, size] = sizes;
        match kind {
            "tanh" => Layer::Rnn(nn::Rnn::with_config(features, size, config, rng).unwrap()),
            "relu" => Layer::Rnn(nn::Rnn::with_relu(features, size, config, rng).unwrap()),
            "lstm" => Layer::Lstm(nn::Lstm::with_config(features, size, config, rng).unwrap()),
            _ => Layer::Gru(nn::Gru::with_config(features, size, config, rng).unwrap()),
        }
    }

    /// With lengths, steps are composed.
    fn forward(&self, x: &Tensor, lengths: Option<&[usize]>) -> Result<Vec<Tensor>> {
        let (out, last) = match (self, lengths) {
            (Layer::Rnn(layer), None) => layer.forward(x, None)?,
            (Layer::Rnn(layer), Some(lengths)) => layer.forward_with_lengths(x, lengths, None)?,
            (Layer::Gru(layer), None) => layer.forward(x, None)?,
            (Layer::Gru(layer), Some(lengths)) => layer.forward_with_lengths(x, lengths, None)?,
            (Layer::Lstm(layer), lengths) => {
                let (out, (hidden, cell)) = match lengths {
                    None => layer.forward(x, None)?,
                    Some(lengths) => layer.forward_with_lengths(x, lengths, None)?,
                };
                return Ok(vec![out, hidden, cell]);
            }
        };
        Ok(vec![out, last])
    }

    fn parameters(&self) -> Vec<Tensor> {
        match self {
            Layer::Rnn(layer) => layer.parameters(),
            Layer::Lstm(layer) => layer.parameters(),
            Layer::Gru(layer) => layer.parameters(),
        }
    }

    /// Results, and the gradients of some function of those that `used` names.
    fn run(&self, x: &Tensor, lengths: Option<&[usize]>, used: &[usize]) -> Vec<Vec<f64>> {
        let x = x.detach().requires_grad();
        self.parameters().iter().for_each(TensorGrad::zero_grad);
        let results = self.forward(&x, lengths).unwrap();
        let untracked = no_grad(|| self.forward(&x, lengths)).unwrap();
        let parts: Vec<Tensor> = used
            .iter()
            .filter_map(|&k| results.get(k))
            .map(|result| result.powi(2).mul_scalar(0.5).sum())
            .collect();
        let sum = Tensor::stack(&parts, 0).unwrap().sum();
        sum.backward().unwrap();
        let gradients = self.parameters().into_iter().chain([x]).map(|leaf| leaf.grad().unwrap());
        let all = results.into_iter().map(|t| t.detach()).chain(untracked).chain(gradients);
        all.map(|t| t.to_f64_vec().unwrap()).collect()
    }
}

#[test]
fn all_steps_at_once_are_steps_one_by_one() {
    let device = device();
    // Few sequences and many, a state of no whole registers, weights that are small, and too large for a
    // second-level cache.
    let shapes = [(9, 3, 5, 7), (3, 21, 4, 18), (4, 40, 8, 33), (5, 5, 3, 260), (6, 2, 3, 300)];
    // On devices without a kernel, steps are composed in both cases.
    let count = if device.name() == "cpu" { shapes.len() } else { 1 };
    for (steps, batch, features, size) in shapes.into_iter().take(count) {
        for kind in KINDS {
            for (bidirectional, bias) in [(false, true), (true, false)] {
                let rng = Generator::seed((size * steps) as u64, &device);
                let config = RnnConfig { bidirectional, bias, ..Default::default() };
                let layer = Layer::new(kind, [features, size], config, &rng);
                let x = Tensor::randn([steps, batch, features], &rng).unwrap();
                let lengths = vec![steps; batch];
                for used in [&[0, 1, 2][..], &[1], &[0], &[2]] {
                    if size > 100 && used.len() == 1 || used == [2] && kind != "lstm" {
                        continue;
                    }
                    let found = layer.run(&x, None, used);
                    let expected = layer.run(&x, Some(&lengths), used);
                    assert_eq!(found.len(), expected.len());
                    for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
                        let greatest = expected.iter().fold(1e-3f64, |all, x| all.max(x.abs()));
                        let what = format!(
                            "{kind} {steps} {batch} {size}, both ways {bidirectional}, {used:?}: {k}"
                        );
                        assert_close(found, expected, (0.0, 2e-5 * greatest), &what);
                    }
                }
            }
        }
    }
}

#[test]
fn a_sequence_is_the_same_whatever_goes_with_it() {
    let device = device();
    let rng = Generator::seed(3, &device);
    for (size, batch) in [(24, 33), (300, 9)] {
        for kind in KINDS {
            let layer = Layer::new(kind, [6, size], RnnConfig::default(), &rng);
            let x = Tensor::randn([16, batch, 6], &rng).unwrap();
            let all = no_grad(|| layer.forward(&x, None)).unwrap();
            let one = no_grad(|| layer.forward(&x.narrow(1, 4, 1).unwrap(), None)).unwrap();
            for (all, one) in all.iter().zip(&one) {
                let (all, one) = (all.narrow(1, 4, 1).unwrap().to_f64_vec(), one.to_f64_vec());
                let within = if device.name() == "cpu" { (0.0, 0.0) } else { (1e-5, 1e-6) };
                assert_close(&one.unwrap(), &all.unwrap(), within, &format!("{kind} {size}"));
            }
        }
    }
}

#[test]
fn gradients_of_all_steps_are_differences() {
    let rng = Generator::seed(8, &taper::cpu());
    for kind in KINDS {
        for bidirectional in [false, true] {
            let config = RnnConfig { bidirectional, dtype: DType::F64, ..Default::default() };
            let layer = Layer::new(kind, [2, 3], config, &rng);
            let x = Tensor::randn_dtype([6, 3, 2], DType::F64, &rng).unwrap();
            let f = |x: &[Tensor]| {
                let results = layer.forward(&x[0], None)?;
                Tensor::concat(&results.iter().map(Tensor::flatten_all).collect::<Vec<_>>(), 0)
            };
            let graph = taper::dot(&[f(&[x.clone().requires_grad()]).unwrap()]);
            let name = if kind == "relu" || kind == "tanh" { "RNN".into() } else { kind.to_uppercase() };
            let is_one_operation = graph.contains(&name) && !graph.contains("Sigmoid");
            assert!(is_one_operation || has_plain_forms(), "{kind} is one operation: {graph}");
            gradcheck(f, std::slice::from_ref(&x)).unwrap();
            if kind != "relu" {
                gradgradcheck(f, &[x]).unwrap();
            }
        }
    }
}
