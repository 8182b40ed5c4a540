//! [`ShardedOptimizer`]: each rank keeps the optimizer's state for a share of the parameters.

use std::fmt;

use autograd::no_grad;
use optim::Optimizer;
use tensor_core::{DType, Error, Result, Scalar, Shape, State, StateValue, Stateful, Tensor, eval_all};

use crate::{Communicator, buckets};

const OP: &str = "ShardedOptimizer";

/// The size of a bucket of parameters, in bytes.
const BUCKET: usize = 25 << 20;

/// An optimizer with sharded state: each rank keeps the state of its share of the parameters, updates these,
/// and sends them to the others. With Adam over n ranks, two tensors for each parameter become 2 / n.
/// `torch.distributed.optim.ZeroRedundancyOptimizer`; Rajbhandari et al.: ZeRO (2020), stage 1.
///
/// The steps equal those of the unsharded optimizer, bit for bit: each parameter is updated by one rank, and
/// the others copy its value. A step sends the parameters once, in addition to the gradients of
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
/// let comm = Communicator::solo();
/// let mut adam = ShardedOptimizer::new(layer.parameters(), &comm, |own| Adam::new(own, config))?;
/// adam.step()?;
/// # Ok(()) }
/// ```
///
/// [`ShardedOptimizer::whole_state_dict`] is the state of all shares, which any number of ranks can load.
/// `state_dict` is that of this rank's share: each rank saves a separate file, and the same number of ranks
/// load them. Whole parameters are distributed, the largest first, each to the rank with the least so far.
pub struct ShardedOptimizer<O> {
    /// The optimizer of this rank's parameters.
    own: O,
    parameters: Vec<Tensor>,
    /// The indices of the parameters of each rank.
    shares: Vec<Vec<usize>>,
    /// The indices of this rank's parameters, in the order of its optimizer.
    places: Vec<usize>,
    comm: Communicator,
}

impl<O: fmt::Debug> fmt::Debug for ShardedOptimizer<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = self.shares[self.comm.rank()].len();
        write!(f, "ShardedOptimizer, {own} of {} parameters: {:?}", self.parameters.len(), self.own)
    }
}

/// Distributes parameters of these sizes over ranks.
fn shares(sizes: &[usize], ranks: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&k| std::cmp::Reverse(sizes[k]));
    let mut shares = vec![(0usize, Vec::new()); ranks];
    for k in order {
        // Among equal sizes the number of parameters decides, so that every rank gets one.
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
    /// The optimizer that `build` makes of this rank's share of the parameters, which all ranks pass in the
    /// same order.
    ///
    /// # Errors
    /// Fewer parameters than ranks; an optimizer of other parameters than those of the share, or with
    /// invalid settings.
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
        let share = &shares[comm.rank()];
        let own = build(share.iter().map(|&k| parameters[k].clone()).collect());
        own.check()?;
        let place = |p: &Tensor| share.iter().copied().find(|&k| parameters[k].id() == p.id());
        let places: Option<Vec<usize>> = own.parameters().iter().map(place).collect();
        let Some(places) = places.filter(|places| places.len() == share.len()) else {
            return Err(Error::invalid(
                OP,
                "build an optimizer of all parameters that it is given, and of no others",
            ));
        };
        Ok(ShardedOptimizer { own, parameters, shares, places, comm: comm.clone() })
    }

    /// The optimizer of this rank's share.
    pub fn own(&self) -> &O {
        &self.own
    }

    /// The state of all shares, on each rank: the state of an unsharded optimizer over the parameters in the
    /// order of [`ShardedOptimizer::new`]. Such an optimizer can load it, and so can a `ShardedOptimizer` of
    /// any number of ranks. All ranks call it together. `ZeroRedundancyOptimizer.consolidate_state_dict`.
    ///
    /// # Errors
    /// An optimizer whose state is not by parameter; ranks that are missing or have ended.
    #[track_caller]
    #[doc(alias = "consolidate_state_dict")]
    pub fn whole_state_dict(&self) -> Result<State> {
        let own = match self.renumbered(self.own.state_dict()) {
            Ok(own) => own,
            Err(error) => {
                // This informs the other ranks. Their absence is not an error of this rank.
                let _ = self.comm.abandon();
                return Err(error);
            }
        };
        let device = self.parameters[0].device();
        let words = words(&own);
        let lengths = self.comm.all_gather(&Tensor::full((), words.len() as i64, (DType::I32, &device))?)?;
        let mut whole = State::new();
        for (root, length) in lengths.iter().enumerate() {
            let is_root = root == self.comm.rank();
            let length = length.item::<i32>()? as usize;
            let given = if is_root { words.clone() } else { vec![0; length] };
            let told =
                self.comm.broadcast(&Tensor::from_vec(given, length, &device)?, root)?.to_vec::<u8>()?;
            for line in String::from_utf8_lossy(&told).lines() {
                let (name, value) = self.told(&own, root, line)?;
                let value = match (value, whole.number(&name)) {
                    (StateValue::Number(own), Some(others)) if is_count(&name) => {
                        (own.as_i64() + others.as_i64()).into()
                    }
                    (value, _) => value,
                };
                whole.insert(name, value);
            }
        }
        Ok(whole)
    }

    /// The entry that a line of [`words`] describes. The tensor of such a line is broadcast from its rank.
    fn told(&self, own: &State, root: usize, line: &str) -> Result<(String, StateValue)> {
        let unread = || {
            Error::invalid(OP, format!("rank {root} describes its state by {line:?}, which cannot be read"))
        };
        let mut words = line.split(' ');
        let (name, kind) = words.next().zip(words.next()).ok_or_else(unread)?;
        let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        let numbers = numbers.ok_or_else(unread)?;
        let value = match (kind, &numbers[..]) {
            ("Float", &[bits]) => f64::from_bits(bits).into(),
            ("Int", &[bits]) => bits.into(),
            ("Bool", &[bit]) => (bit != 0).into(),
            (dtype, dims) => {
                let dtype = DType::ALL.into_iter().find(|known| known.name() == dtype).ok_or_else(unread)?;
                let given = match own.tensor(name) {
                    Some(tensor) if root == self.comm.rank() => tensor.clone(),
                    _ => {
                        let shape: Shape = dims.iter().map(|&size| size as usize).collect();
                        Tensor::zeros(shape, (dtype, &self.parameters[0].device()))?
                    }
                };
                self.comm.broadcast(&given, root)?.into()
            }
        };
        Ok((name.into(), value))
    }

    /// The state of this rank's share, with the numbers that its parameters have among all.
    fn renumbered(&self, state: State) -> Result<State> {
        let rename = |(name, value): (String, StateValue)| match number_in(&name) {
            Some((kind, k, rest)) if k < self.places.len() => {
                Ok((format!("{kind}.{}{rest}", self.places[k]), value))
            }
            None if name.starts_with(GROUPS) => Ok((name, value)),
            _ => {
                let message =
                    format!("`{name}` is no parameter's, so that the ranks' states do not make one");
                Err(Error::invalid(OP, message))
            }
        };
        state.into_iter().map(rename).collect()
    }

    /// This rank's part of the state of all parameters, or none if it is not such a state.
    fn share_of(&self, state: &State) -> Option<State> {
        let count = |(name, value): (&str, &StateValue)| match value {
            StateValue::Number(number) if is_count(name) => number.as_i64(),
            _ => 0,
        };
        if state.iter().map(count).sum::<i64>() != self.parameters.len() as i64 {
            return None;
        }
        let own = self.own.state_dict();
        let keep = |(name, value): (String, StateValue)| match (number_in(&name), own.get(&name)) {
            (Some((kind, k, rest)), _) => {
                let place = self.places.iter().position(|&place| place == k)?;
                Some((format!("{kind}.{place}{rest}"), value))
            }
            (None, Some(count)) if is_count(&name) => Some((name, count.clone())),
            (None, _) => Some((name, value)),
        };
        Some(state.clone().into_iter().filter_map(keep).collect())
    }
}

/// The prefix of the settings of groups in an optimizer's state, and the suffix of their numbers of
/// parameters.
const GROUPS: &str = "param_groups.";
const COUNT: &str = ".params";

fn is_count(name: &str) -> bool {
    name.starts_with(GROUPS) && name.ends_with(COUNT)
}

/// Splits a name at the number of its parameter: `state.3.exp_avg` is `state`, 3, `.exp_avg`, and
/// `masters.3` has no rest.
fn number_in(name: &str) -> Option<(&str, usize, &str)> {
    let (kind, rest) = name.split_once('.').filter(|(kind, _)| ["state", "masters"].contains(kind))?;
    let digits = rest.find('.').unwrap_or(rest.len());
    Some((kind, rest[..digits].parse().ok()?, &rest[digits..]))
}

/// A state as lines for another rank: names with numbers, bit for bit, or with the dtype and sizes of a
/// tensor; names of dtypes are in lower case.
fn words(state: &State) -> Vec<u8> {
    let line = |(name, value): (&str, &StateValue)| match value {
        StateValue::Number(Scalar::Float(number)) => format!("{name} Float {}\n", number.to_bits()),
        StateValue::Number(Scalar::Int(number)) => format!("{name} Int {}\n", *number as u64),
        StateValue::Number(Scalar::Unsigned(number)) => format!("{name} Unsigned {number}\n"),
        StateValue::Number(Scalar::Bool(bit)) => format!("{name} Bool {}\n", u64::from(*bit)),
        StateValue::Tensor(tensor) => {
            let sizes: String = tensor.dims().iter().map(|size| format!(" {size}")).collect();
            format!("{name} {}{sizes}\n", tensor.dtype())
        }
    };
    state.iter().map(line).collect::<String>().into_bytes()
}

impl<O: Optimizer> Optimizer for ShardedOptimizer<O> {
    /// One step of each rank's share; all ranks get the new values. All ranks call it together.
    ///
    /// # Errors
    /// The errors of the optimizer, here or on another rank; ranks that are missing or have ended. The other
    /// ranks may have made their part of the step then, so that the copies differ: load the last checkpoint.
    #[track_caller]
    fn step(&mut self) -> Result<()> {
        if let Err(error) = self.own.step() {
            // This informs the other ranks. Their absence is not an error of this rank.
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

    /// Loads the state of this rank's share, or its part of the state of all parameters.
    #[track_caller]
    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        match self.share_of(state) {
            Some(own) => self.own.load_state_dict(&own),
            None => self.own.load_state_dict(state),
        }
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
