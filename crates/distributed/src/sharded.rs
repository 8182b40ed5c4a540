//! [`ShardedOptimizer`]: each rank keeps the optimizer's state of a share of the parameters.

use std::fmt;

use autograd::no_grad;
use optim::Optimizer;
use tensor_core::{DType, Error, Result, State, Stateful, Tensor, eval_all};

use crate::{Communicator, buckets};

const OP: &str = "ShardedOptimizer";

/// Bytes of parameters that travel together.
const BUCKET: usize = 25 << 20;

/// An optimizer whose state is shared out: each rank keeps that of its parameters alone, updates these, and gives them to the others. With
/// Adam over n ranks, two tensors for each parameter become 2 / n. `torch.distributed.optim.ZeroRedundancyOptimizer`; Rajbhandari et al.: ZeRO
/// (2020), stage 1.
///
/// The steps are those of the optimizer by itself, bit for bit: each parameter is updated by one rank, and the others take its value. A
/// step sends the parameters once, beside the gradients of
/// [`DistributedDataParallel::backward`](crate::DistributedDataParallel::backward).
///
/// ```
/// use distributed::{Communicator, ShardedOptimizer};
/// use nn::{Linear, Module};
/// use optim::{Adam, AdamConfig, Optimizer};
/// use tensor_core::Generator;
/// # fn main() -> tensor_core::Result<()> {
/// let layer = Linear::new(3, 2, &Generator::seed(0, &backend_cpu::cpu()))?;
/// let config = AdamConfig::default();
/// let mut adam = ShardedOptimizer::new(layer.parameters(), &Communicator::solo(), |own| Adam::new(own, config))?;
/// adam.step()?;
/// # Ok(()) }
/// ```
///
/// The state is that of this rank's share: each rank saves a file of its own, and as many ranks load them. Whole parameters are shared
/// out, the largest first, each to the rank that has least.
pub struct ShardedOptimizer<O> {
    /// Of this rank's parameters.
    own: O,
    parameters: Vec<Tensor>,
    /// Places of the parameters of each rank.
    shares: Vec<Vec<usize>>,
    comm: Communicator,
}

impl<O: fmt::Debug> fmt::Debug for ShardedOptimizer<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = self.shares[self.comm.rank()].len();
        write!(f, "ShardedOptimizer, {own} of {} parameters: {:?}", self.parameters.len(), self.own)
    }
}

/// Which rank each of some sizes goes to.
fn shares(sizes: &[usize], ranks: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&k| std::cmp::Reverse(sizes[k]));
    let mut shares = vec![(0usize, Vec::new()); ranks];
    for k in order {
        // The number of parameters decides where sizes do not, so that no rank is left without.
        if let Some((filled, share)) = shares.iter_mut().min_by_key(|(filled, share)| (*filled, share.len()))
        {
            *filled += sizes[k];
            share.push(k);
        }
    }
    shares
        .into_iter()
        .map(|(_, mut share)| {
            share.sort_unstable();
            share
        })
        .collect()
}

impl<O: Optimizer> ShardedOptimizer<O> {
    /// The optimizer that `build` makes of this rank's share of the parameters, which all ranks give in the same order.
    ///
    /// # Errors
    /// Fewer parameters than ranks.
    #[track_caller]
    pub fn new(
        parameters: Vec<Tensor>,
        comm: &Communicator,
        build: impl FnOnce(Vec<Tensor>) -> O,
    ) -> Result<ShardedOptimizer<O>> {
        let sizes: Vec<usize> = parameters.iter().map(|p| p.numel() * p.dtype().size()).collect();
        let shares = shares(&sizes, comm.size());
        if shares.iter().any(Vec::is_empty) {
            let message = format!(
                "{} parameters do not give each of {} ranks one: use the optimizer by itself, whose state is small then",
                parameters.len(),
                comm.size()
            );
            return Err(Error::invalid(OP, message));
        }
        let own = build(shares[comm.rank()].iter().map(|&k| parameters[k].clone()).collect());
        Ok(ShardedOptimizer { own, parameters, shares, comm: comm.clone() })
    }

    /// The optimizer of this rank's share.
    pub fn own(&self) -> &O {
        &self.own
    }
}

impl<O: Optimizer> Optimizer for ShardedOptimizer<O> {
    /// One step of each rank's share, whose values all ranks then have. All ranks call it together.
    ///
    /// # Errors
    /// Those of the optimizer, here or on another rank; ranks that do not come or have gone. The other ranks may have made their part of
    /// the step then, and the copies differ: load the last checkpoint.
    #[track_caller]
    fn step(&mut self) -> Result<()> {
        if let Err(error) = self.own.step() {
            // The others hear of it. Whether they come is not this rank's failure.
            let _ = self.comm.abandon();
            return Err(error);
        }
        if self.comm.size() == 1 {
            return Ok(());
        }
        no_grad(|| {
            let mut values = Vec::new();
            for (root, share) in self.shares.iter().enumerate() {
                let size = |k: usize| self.parameters[k].numel() * self.parameters[k].dtype().size();
                let sizes: Vec<(usize, DType)> =
                    share.iter().map(|&k| (size(k), self.parameters[k].dtype())).collect();
                for bucket in buckets::buckets(&sizes, BUCKET) {
                    let members: Vec<Tensor> =
                        bucket.iter().map(|&k| self.parameters[share[k]].detach()).collect();
                    let row = buckets::flat(&members, &members[0].device())?;
                    let parts = self.comm.start_broadcast(&row, root)?.wait_for_parts(&members)?;
                    if root != self.comm.rank() {
                        values.extend(bucket.into_iter().zip(parts).map(|(k, part)| (share[k], part)));
                    }
                }
            }
            eval_all(&values.iter().map(|(_, value)| value).collect::<Vec<_>>())?;
            values.into_iter().try_for_each(|(k, value)| self.parameters[k].assign(&value))
        })
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.parameters.clone()
    }

    fn learning_rates(&self) -> Vec<f64> {
        self.own.learning_rates()
    }

    fn set_learning_rates(&mut self, rates: &[f64]) {
        self.own.set_learning_rates(rates);
    }

    fn momenta(&self) -> Option<Vec<f64>> {
        self.own.momenta()
    }

    fn set_momenta(&mut self, momenta: &[f64]) {
        self.own.set_momenta(momenta);
    }
}

impl<O: Optimizer> Stateful for ShardedOptimizer<O> {
    /// The state of this rank's share.
    fn state_dict(&self) -> State {
        self.own.state_dict()
    }

    #[track_caller]
    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        self.own.load_state_dict(state)
    }
}

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn each_parameter_goes_to_the_rank_that_has_least() {
        assert_eq!(
            shares(&[10, 70, 20, 30, 30], 2),
            [vec![1, 0], vec![2, 3, 4]].map(|mut s| {
                s.sort_unstable();
                s
            })
        );
        assert_eq!(shares(&[0, 0, 0], 3), [vec![0], vec![1], vec![2]]);
        assert_eq!(shares(&[5], 1), [vec![0]]);
    }
}
