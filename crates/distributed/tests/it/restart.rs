//! Training that stops and resumes from a checkpoint, on the same number of ranks or another.

use std::path::Path;

use autograd::TensorGrad;
use distributed::{Communicator, DistributedDataParallel, ShardedOptimizer};
use nn::{Checkpoint, Module, cross_entropy};
use optim::{Adam, AdamConfig, MasterWeights, Optimizer};
use tensor_core::{DType, Error, Result, State, Stateful, Tensor};

use crate::{
    checks::{Net, batch, bits, close, device, part},
    on_ranks,
};

const STOP: u64 = 3;
const STEPS: u64 = 6;

/// Trains on ranks from the file's state, or from the beginning, until a step, and writes the file. Returns
/// the parameters' bits on rank 0.
fn train(ranks: usize, shares: bool, from: Option<&Path>, until: u64, to: &Path) -> Vec<u8> {
    let run = |comm: Communicator| -> Result<Vec<u8>> {
        let net = DistributedDataParallel::new(Net::new(7 + comm.rank() as u64)?, &comm)?;
        let sharers = if shares { comm.clone() } else { Communicator::solo() };
        let config = AdamConfig { lr: 0.01, ..Default::default() };
        let mut adam = ShardedOptimizer::new(net.parameters(), &sharers, |own| Adam::new(own, config))?;
        let mut first = 0;
        if let Some(path) = from {
            let checkpoint = Checkpoint::load(path, &device())?;
            checkpoint.restore().module("model", net.module()).part("optimizer", &mut adam).finish()?;
            first = checkpoint.get_number("step").map_or(0, |step| step.as_i64() as u64);
        }
        for step in first..until {
            let (x, labels) = batch(step)?;
            adam.zero_grad();
            net.backward(&cross_entropy(&net.forward(&part(&comm, &x)?)?, &part(&comm, &labels)?)?)?;
            adam.step()?;
        }
        let whole = adam.whole_state_dict()?;
        if comm.rank() == 0 {
            let checkpoint = Checkpoint::new().module("model", net.module()).part("optimizer", &whole);
            checkpoint.number("step", until as i64).save(to)?;
        }
        comm.barrier()?;
        Ok(bits(&net.parameters()))
    };
    let mut ended = on_ranks(ranks, run).into_iter().map(Result::unwrap);
    ended.next().unwrap()
}

fn floats(bits: &[u8]) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(bits)
}

#[test]
fn a_checkpoint_goes_on_with_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let stopped = file("stopped");
    let uninterrupted = train(4, false, None, STEPS, &file("uninterrupted"));
    train(4, true, None, STOP, &stopped);
    for ranks in [4, 3, 2, 1] {
        for shares in [false, true] {
            let found = train(ranks, shares, Some(&stopped), STEPS, &file("ended"));
            match ranks {
                4 => assert_eq!(
                    found, uninterrupted,
                    "the bits of a run that did not stop, shared out: {shares}"
                ),
                _ => close(&floats(&found), &floats(&uninterrupted), 1e-5),
            }
        }
    }
}

/// A state's lines, with the bits of its tensors.
fn told(state: &State) -> Vec<String> {
    let line = |(name, value): (&str, _)| match state.tensor(name) {
        Some(tensor) => format!("{name} {value} {:?}", bits(std::slice::from_ref(tensor))),
        None => format!("{name} {value}"),
    };
    state.iter().map(line).collect()
}

#[test]
fn the_whole_state_is_that_of_the_optimizer_by_itself() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let state = |name: &str, ranks, shares| -> Result<Vec<String>> {
        let path = folder.path().join(name);
        train(ranks, shares, None, STOP, &path);
        let mut optimizer = State::new();
        Checkpoint::load(path, &device())?.restore().part("optimizer", &mut optimizer).finish()?;
        // An unsharded Adam can load it.
        let mut adam = Adam::new(Net::new(0)?.parameters(), AdamConfig::default());
        adam.load_state_dict(&optimizer)?;
        assert_eq!(told(&adam.state_dict()), told(&optimizer));
        Ok(told(&optimizer))
    };
    assert_eq!(state("shared", 3, true)?, state("alone", 3, false)?);
    Ok(())
}

#[test]
fn masters_of_half_parameters_are_shared_out_too() {
    let state = |ranks: usize| {
        let run = |comm: Communicator| -> Result<State> {
            let net = Net::new(7)?;
            let half = |p: &Tensor| Ok(p.detach().to_dtype(DType::BF16)?.requires_grad());
            let half = net.parameters().iter().map(half).collect::<Result<Vec<_>>>()?;
            let build = |own| MasterWeights::new(own, |masters| Adam::new(masters, AdamConfig::default()));
            let mut adam = ShardedOptimizer::new(half.clone(), &comm, |own| build(own).unwrap())?;
            half.iter().try_for_each(|p| p.square().sum().backward())?;
            adam.step()?;
            let whole = adam.whole_state_dict()?;
            adam.load_state_dict(&whole)?;
            Ok(whole)
        };
        on_ranks(ranks, run).into_iter().map(Result::unwrap).next().unwrap()
    };
    let (one, three) = (state(1), state(3));
    assert!(three.tensor("masters.5").is_some() && three.tensor("state.5.exp_avg").is_some());
    assert_eq!(told(&one), told(&three));
}

#[test]
fn a_state_that_is_not_by_parameter_is_refused_on_all_ranks() {
    struct Odd(Adam);
    impl Optimizer for Odd {
        fn step(&mut self) -> Result<()> {
            self.0.step()
        }
        fn parameters(&self) -> Vec<Tensor> {
            self.0.parameters()
        }
        fn learning_rates(&self) -> Vec<f64> {
            self.0.learning_rates()
        }
        fn set_learning_rates(&mut self, rates: &[f64]) {
            self.0.set_learning_rates(rates);
        }
    }
    impl Stateful for Odd {
        fn state_dict(&self) -> State {
            let mut state = self.0.state_dict();
            state.insert("history", 3u64);
            state
        }
        fn load_state_dict(&mut self, state: &State) -> Result<()> {
            self.0.load_state_dict(state)
        }
    }
    let run = |comm: Communicator| -> Result<Error> {
        let build = |own| Odd(Adam::new(own, AdamConfig::default()));
        let adam = ShardedOptimizer::new(Net::new(7)?.parameters(), &comm, build)?;
        let error = adam.whole_state_dict().unwrap_err();
        comm.barrier()?; // they can go on
        Ok(error)
    };
    for error in on_ranks(2, run) {
        assert!(error.unwrap().to_string().contains("`history` is no parameter's"));
    }
}

#[test]
fn a_state_of_other_parameters_changes_nothing() -> Result<()> {
    let comm = Communicator::solo();
    let build = |own| Adam::new(own, AdamConfig::default());
    let mut adam = ShardedOptimizer::new(Net::new(7)?.parameters(), &comm, build)?;
    let other = Adam::new(vec![Net::new(7)?.parameters().swap_remove(0)], AdamConfig::default());
    let error = adam.load_state_dict(&other.state_dict()).unwrap_err().to_string();
    assert!(error.contains("1 parameters, this group has 6"), "{error}");
    let twice = |own: Vec<Tensor>| Adam::new(own[1..].to_vec(), AdamConfig::default());
    let error = ShardedOptimizer::new(Net::new(7)?.parameters(), &comm, twice).unwrap_err().to_string();
    assert!(error.contains("of all parameters that it is given"), "{error}");
    Ok(())
}
