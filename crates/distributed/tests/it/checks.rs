//! Checks for every rank of any world: `it/main.rs` runs them in threads, and `mpi/main.rs` in processes of
//! MPI.

use std::time::Duration;

use distributed::{
    Communicator, DistributedConfig, DistributedDataParallel, ReduceOp, ShardedOptimizer, SyncBatchNorm,
};
use nn::{BatchNorm1d, Linear, Module, cross_entropy, mse_loss};
use optim::{Adam, AdamConfig, Optimizer, Sgd, SgdConfig, clip_grad_norm};
use tensor_core::{DType, Device, ErrorKind, Generator, Result, Scalar, Tensor, bf16};

type Check = (&'static str, fn(&Communicator) -> Result<()>);

/// All checks, in the order in which all ranks run them.
pub(crate) const CHECKS: &[Check] = &[
    ("reductions of every dtype and length", reductions),
    ("a world size gives one set of bits", one_set_of_bits),
    ("gathering, scattering, broadcasting", copies),
    ("pairs of ranks", pairs),
    ("several calls under way", several_under_way),
    ("ranks that disagree are named, and go on", disagreement),
    ("bad arguments are reported before anything is sent", bad_arguments),
    ("the bytes sent are those of the documentation", traffic),
    ("training equals one process's on the whole batch", training),
    ("gradients added up without exchange", added_up),
    ("parameters that not all ranks use", unused_parameters),
    ("clipping after the exchange", clipping),
    ("a rank that fails in its backward pass", one_rank_fails),
    ("a rank that fails when some gradients are under way", one_rank_fails_late),
    ("modules that differ are refused", modules_differ),
    ("batch norm over all ranks", batch_norm),
    ("an optimizer whose state is shared out", sharded),
];

pub(crate) fn device() -> Device {
    backend_cpu::cpu()
}

pub(crate) fn bits(tensors: &[Tensor]) -> Vec<u8> {
    tensors.iter().flat_map(|t| t.read_bytes().unwrap()).collect()
}

/// Asserts that all ranks have the same bits.
fn alike(comm: &Communicator, tensors: &[Tensor]) -> Result<()> {
    let own = bits(tensors);
    let sent = Tensor::from_slice(&own, [own.len()], &device())?;
    for (rank, other) in comm.all_gather(&sent)?.iter().enumerate() {
        assert!(other.to_vec::<u8>()? == own, "rank {} and rank {rank} differ", comm.rank());
    }
    Ok(())
}

pub(crate) fn close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (k, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= tolerance * (1.0 + e.abs()), "at {k}: {f}, expected {e}");
    }
}

/// Both forms of a reduction (which change at 8 KiB), and pieces that are empty or of different sizes.
fn reductions(comm: &Communicator) -> Result<()> {
    let (n, rank) = (comm.size() as i64, comm.rank() as i64);
    for len in [0usize, 1, 3, 1000, 10_007] {
        for dtype in DType::ALL.into_iter().filter(|d| *d != DType::Bool) {
            // Small integers, which every dtype represents exactly, as all but 8-bit floats do their sums.
            let values =
                |rank: i64| -> Vec<f64> { (0..len as i64).map(|k| ((k + rank) % 7) as f64).collect() };
            let own = Tensor::from_slice(&values(rank), [len], &device())?.to_dtype(dtype)?;
            let of_all: Vec<Vec<f64>> = (0..n).map(values).collect();
            let expected = |combine: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
                (0..len)
                    .map(|k| of_all[1..].iter().fold(of_all[0][k], |a, part| combine(a, part[k])))
                    .map(|exact| Scalar::Float(exact).cast(dtype).as_f64())
                    .collect()
            };
            let sum = comm.all_reduce(&own, ReduceOp::Sum)?;
            assert_eq!((sum.dtype(), sum.dims()), (dtype, &[len][..]));
            assert_eq!(sum.to_f64_vec()?, expected(&|a, b| a + b), "{dtype} {len}");
            assert_eq!(comm.all_reduce(&own, ReduceOp::Min)?.to_f64_vec()?, expected(&f64::min));
            assert_eq!(comm.all_reduce(&own, ReduceOp::Max)?.to_f64_vec()?, expected(&f64::max));
            if matches!(dtype, DType::F32 | DType::F64) {
                let mean = comm.all_reduce(&own, ReduceOp::Mean)?.to_f64_vec()?;
                for (mean, sum) in mean.iter().zip(expected(&|a, b| a + b)) {
                    assert!((mean - sum / n as f64).abs() < 1e-6);
                }
            }
        }
    }
    let flag = Tensor::from_slice(&[rank == 0, true], [2], &device())?;
    assert_eq!(comm.all_reduce(&flag, ReduceOp::Max)?.to_vec::<bool>()?, [true, true]);
    assert_eq!(comm.all_reduce(&flag, ReduceOp::Min)?.to_vec::<bool>()?, [n == 1, true]);
    // Tensors that are not contiguous, and 0-d ones.
    let strided = Tensor::arange(0.0, 6.0, 1.0, &device())?.reshape((2, 3))?.t()?;
    let sum = comm.all_reduce(&strided, ReduceOp::Sum)?.to_f64_vec()?;
    assert_eq!(sum, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0].map(|x| x * n as f64));
    let one = Tensor::full((), 2.5, &device())?;
    assert_eq!(comm.all_reduce(&one, ReduceOp::Mean)?.item::<f32>()?, 2.5);
    Ok(())
}

/// Numbers whose sum depends on the order: each rank gets the sum in the order of the ranks, for short and
/// long tensors.
fn one_set_of_bits(comm: &Communicator) -> Result<()> {
    let number = |rank: usize, k: usize| {
        ((rank * 37 + k * 11) % 101) as f32 * 10f32.powi((rank * 3 + k) as i32 % 9 - 4)
    };
    for len in [1000, 20_000] {
        let values = |rank: usize| -> Vec<f32> { (0..len).map(|k| number(rank, k)).collect() };
        let mut expected = values(0);
        for rank in 1..comm.size() {
            expected.iter_mut().zip(values(rank)).for_each(|(sum, x)| *sum += x);
        }
        let own = Tensor::from_vec(values(comm.rank()), [len], &device())?;
        assert_eq!(comm.all_reduce(&own, ReduceOp::Sum)?.to_vec::<f32>()?, expected);
        let halves = own.to_dtype(DType::BF16)?;
        let mut sums = vec![0f32; len];
        for rank in 0..comm.size() {
            sums.iter_mut().zip(values(rank)).for_each(|(sum, x)| *sum += bf16::from_f32(x).to_f32());
        }
        let rounded: Vec<bf16> = sums.into_iter().map(bf16::from_f32).collect();
        assert_eq!(comm.all_reduce(&halves, ReduceOp::Sum)?.to_vec::<bf16>()?, rounded);
    }
    Ok(())
}

fn copies(comm: &Communicator) -> Result<()> {
    let (n, rank) = (comm.size(), comm.rank());
    for root in 0..n {
        for len in [3, 5000] {
            let own = Tensor::full([len], rank as i64, (DType::I64, &device()))?;
            assert_eq!(comm.broadcast(&own, root)?.to_vec::<i64>()?, vec![root as i64; len]);
        }
    }
    let own = Tensor::full([2, 1], rank as f32, &device())?;
    let all = comm.all_gather(&own)?;
    assert_eq!(all.len(), n);
    for (k, one) in all.iter().enumerate() {
        assert_eq!((one.dims(), one.to_vec::<f32>()?), (&[2, 1][..], vec![k as f32; 2]));
    }
    // Row k goes to rank k.
    let rows = Tensor::arange(0.0, 2.0 * n as f64, 1.0, &device())?.reshape((n, 2))?;
    let own = comm.reduce_scatter(&rows.mul_scalar((rank + 1) as f64), ReduceOp::Sum)?;
    let factor = (n * (n + 1) / 2) as f32;
    assert_eq!(own.dims(), [1, 2]);
    assert_eq!(own.to_vec::<f32>()?, [2.0 * rank as f32 * factor, (2.0 * rank as f32 + 1.0) * factor]);
    comm.barrier()
}

/// Around a ring, with messages that are received immediately and others that wait.
fn pairs(comm: &Communicator) -> Result<()> {
    let (n, rank) = (comm.size(), comm.rank());
    if n == 1 {
        return Ok(());
    }
    let (next, before) = ((rank + 1) % n, (rank + n - 1) % n);
    for len in [0, 1, 100_000] {
        comm.send(&Tensor::full([len, 1], rank as f32, &device())?, next)?;
        comm.send(&Tensor::full((), -1, (DType::I32, &device()))?, next)?;
        let first = comm.receive(before, &device())?;
        assert_eq!((first.dims(), first.to_vec::<f32>()?), (&[len, 1][..], vec![before as f32; len]));
        assert_eq!(comm.receive(before, &device())?.item::<i32>()?, -1);
    }
    Ok(())
}

fn several_under_way(comm: &Communicator) -> Result<()> {
    let own: Vec<Tensor> = (0..6)
        .map(|k| Tensor::full([4000 + k], (comm.rank() + k) as f32, &device()))
        .collect::<Result<_>>()?;
    let works = own.iter().map(|t| comm.start_all_reduce(t, ReduceOp::Max)).collect::<Result<Vec<_>>>()?;
    for (k, work) in works.into_iter().enumerate().rev() {
        assert_eq!(work.wait()?.to_vec::<f32>()?, vec![(comm.size() - 1 + k) as f32; 4000 + k]);
    }
    Ok(())
}

fn disagreement(comm: &Communicator) -> Result<()> {
    let (n, rank) = (comm.size(), comm.rank());
    if n == 1 {
        return Ok(());
    }
    let last = rank == n - 1;
    let told = |error: tensor_core::Error, words: &[&str]| {
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(matches!(error.kind(), ErrorKind::Distributed { ranks, .. } if *ranks == [n - 1]), "{text}");
    };
    let ones = |len: usize| Tensor::ones([len], &device());
    let shapes = comm.all_reduce(&ones(if last { 4 } else { 3 })?, ReduceOp::Sum);
    told(shapes.unwrap_err(), &["all_reduce", "f32 [3]", "f32 [4]", "nothing was sent"]);
    let dtype = if last { DType::F64 } else { DType::F32 };
    let dtypes = comm.all_gather(&ones(3)?.to_dtype(dtype)?);
    told(dtypes.unwrap_err(), &["all_gather", "f32 [3]", "f64 [3]"]);
    let op = if last { ReduceOp::Max } else { ReduceOp::Sum };
    told(comm.all_reduce(&ones(3)?, op).unwrap_err(), &["(sum)", "(maximum)"]);
    let roots = comm.broadcast(&ones(3)?, usize::from(last));
    told(roots.unwrap_err(), &["root 0", "root 1"]);
    let calls = if last { comm.barrier() } else { comm.all_gather(&ones(3)?).map(drop) };
    told(calls.unwrap_err(), &["barrier", "all_gather of f32 [3]"]);
    assert_eq!(comm.all_reduce(&ones(1)?, ReduceOp::Sum)?.item::<f32>()?, n as f32, "all can go on");
    Ok(())
}

fn bad_arguments(comm: &Communicator) -> Result<()> {
    let n = comm.size();
    let x = Tensor::ones([2 * n + 1], &device())?;
    let told = |result: Result<()>, words: &str| {
        let text = result.unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
    };
    told(comm.broadcast(&x, n).map(drop), &format!("no rank {n}: there are {n}, from 0 to {}", n - 1));
    told(comm.send(&x, n), "no rank");
    told(comm.receive(comm.rank(), &device()).map(drop), "is this one");
    let whole = Tensor::ones([3], (DType::I32, &device()))?;
    told(comm.all_reduce(&whole, ReduceOp::Mean).map(drop), "the mean of i32");
    told(comm.all_reduce(&whole.to_dtype(DType::Bool)?, ReduceOp::Sum).map(drop), "the sum of bool");
    if n > 1 {
        told(comm.reduce_scatter(&x, ReduceOp::Sum).map(drop), "does not split");
        told(comm.reduce_scatter(&Tensor::ones((), &device())?, ReduceOp::Sum).map(drop), "does not split");
        told(comm.send(&Tensor::ones(vec![1; 12], &device())?, (comm.rank() + 1) % n), "12 axes");
    }
    comm.barrier()
}

fn traffic(comm: &Communicator) -> Result<()> {
    const HEADER: usize = 128;
    let n = comm.size();
    let sent = |call: &dyn Fn() -> Result<()>| -> Result<usize> {
        let before = comm.traffic().bytes;
        call()?;
        Ok((comm.traffic().bytes - before) as usize)
    };
    let header = HEADER * (n - 1);
    // A length that pieces of 1, 2 and 4 ranks divide into whole words.
    let long = Tensor::ones([8192], &device())?;
    let bytes = 8192 * 4;
    let reduced = sent(&|| comm.all_reduce(&long, ReduceOp::Sum).map(drop))?;
    if 8192 % (2 * n) == 0 {
        assert_eq!(reduced, header + 2 * bytes * (n - 1) / n);
    }
    let short = Tensor::ones([100], &device())?;
    assert_eq!(sent(&|| comm.all_reduce(&short, ReduceOp::Sum).map(drop))?, header + 400 * (n - 1));
    assert_eq!(sent(&|| comm.all_gather(&long).map(drop))?, header + bytes * (n - 1));
    assert_eq!(sent(&|| comm.barrier())?, header);
    comm.barrier()
}

#[derive(Module)]
pub(crate) struct Net {
    first: Linear,
    second: Linear,
    third: Linear,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Result<Net> {
        let rng = Generator::seed(seed, &device());
        Ok(Net {
            first: Linear::new(6, 40, &rng)?,
            second: Linear::new(40, 30, &rng)?,
            third: Linear::new(30, 3, &rng)?,
        })
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.third.forward(&self.second.forward(&self.first.forward(x)?.tanh())?.relu())
    }
}

/// The whole batch of a step: 12 examples, which 1, 2, 3, 4 and 6 ranks share equally.
pub(crate) fn batch(step: u64) -> Result<(Tensor, Tensor)> {
    let rng = Generator::seed(1000 + step, &device());
    let x = Tensor::randn([12, 6], &rng)?;
    let labels = x.narrow(1, 0, 3)?.argmax_axis(1, false)?;
    Ok((x, labels))
}

pub(crate) fn part(comm: &Communicator, whole: &Tensor) -> Result<Tensor> {
    let len = whole.dims()[0] / comm.size();
    whole.narrow(0, comm.rank() * len, len)
}

const STEPS: u64 = 8;

fn alone() -> Result<Vec<Tensor>> {
    let net = Net::new(7)?;
    let mut adam = Adam::new(net.parameters(), AdamConfig { lr: 0.01, ..Default::default() });
    for step in 0..STEPS {
        let (x, labels) = batch(step)?;
        adam.zero_grad();
        let loss = cross_entropy(&net.forward(&x)?, &labels)?;
        autograd::TensorGrad::backward(&loss)?;
        adam.step()?;
    }
    Ok(net.parameters())
}

fn together(comm: &Communicator, bucket_bytes: usize) -> Result<Vec<Tensor>> {
    // All ranks start with different values, and get those of rank 0.
    let config = DistributedConfig { bucket_bytes, ..Default::default() };
    let net = DistributedDataParallel::with_config(Net::new(7 + comm.rank() as u64)?, comm, config)?;
    let mut adam = Adam::new(net.parameters(), AdamConfig { lr: 0.01, ..Default::default() });
    for step in 0..STEPS {
        let (x, labels) = batch(step)?;
        adam.zero_grad();
        let loss = cross_entropy(&net.forward(&part(comm, &x)?)?, &part(comm, &labels)?)?;
        net.backward(&loss)?;
        adam.step()?;
    }
    Ok(net.parameters())
}

/// Within 1e-5 of a single process after 8 steps of Adam; bit by bit equal between ranks, runs and bucket
/// sizes.
fn training(comm: &Communicator) -> Result<()> {
    if 12 % comm.size() != 0 {
        return Ok(());
    }
    let expected = alone()?;
    let found = together(comm, 25 << 20)?;
    for (found, expected) in found.iter().zip(&expected) {
        close(&found.to_vec::<f32>()?, &expected.to_vec::<f32>()?, 1e-5);
    }
    alike(comm, &found)?;
    assert_eq!(bits(&together(comm, 25 << 20)?), bits(&found), "two runs of one world size");
    assert_eq!(bits(&together(comm, 1)?), bits(&found), "a bucket for each parameter");
    if comm.size() == 1 {
        assert_eq!(bits(&found), bits(&expected), "a world of one is a process by itself");
    }
    Ok(())
}

fn added_up(comm: &Communicator) -> Result<()> {
    if 6 % comm.size() != 0 {
        return Ok(());
    }
    let (x, _) = batch(0)?;
    let target = x.narrow(1, 0, 3)?;
    let net = DistributedDataParallel::new(Net::new(3)?, comm)?;
    let loss_of = |rows: usize| -> Result<Tensor> {
        let (x, y) = (x.narrow(0, rows, 6)?, target.narrow(0, rows, 6)?);
        mse_loss(&net.forward(&part(comm, &x)?)?, &part(comm, &y)?)
    };
    let before = comm.traffic();
    net.no_sync(|| net.backward(&loss_of(0)?))?;
    assert_eq!(comm.traffic(), before, "nothing was sent");
    net.backward(&loss_of(6)?)?;
    let expected = Net::new(3)?;
    let both = mse_loss(&expected.forward(&x)?, &target)?.mul_scalar(2.0);
    autograd::TensorGrad::backward(&both)?;
    for (found, expected) in net.parameters().iter().zip(expected.parameters()) {
        close(&found.grad().unwrap().to_vec::<f32>()?, &expected.grad().unwrap().to_vec::<f32>()?, 1e-5);
    }
    alike(comm, &net.parameters().iter().filter_map(Tensor::grad).collect::<Vec<_>>())
}

/// All ranks use `first`, rank 0 uses `second`, and none uses `third`.
fn unused_parameters(comm: &Communicator) -> Result<()> {
    let net = DistributedDataParallel::new(Net::new(5)?, comm)?;
    let hidden = net.first.forward(&Tensor::ones([2, 6], &device())?)?;
    let out = if comm.rank() == 0 { net.second.forward(&hidden)?.sum() } else { hidden.sum() };
    net.backward(&out)?;
    let own = Net::new(5)?;
    let alone = own.second.forward(&own.first.forward(&Tensor::ones([2, 6], &device())?)?)?.sum();
    autograd::TensorGrad::backward(&alone)?;
    assert!(net.first.weight.grad().is_some());
    assert!(net.third.weight.grad().is_none(), "no rank used it");
    // The other ranks count as zeros.
    let expected = own.second.weight.grad().unwrap().mul_scalar(1.0 / comm.size() as f64);
    close(&net.second.weight.grad().unwrap().to_vec::<f32>()?, &expected.to_vec::<f32>()?, 1e-6);
    alike(comm, &net.parameters().iter().filter_map(Tensor::grad).collect::<Vec<_>>())
}

fn clipping(comm: &Communicator) -> Result<()> {
    if 12 % comm.size() != 0 {
        return Ok(());
    }
    let (x, labels) = batch(1)?;
    let net = DistributedDataParallel::new(Net::new(9)?, comm)?;
    net.backward(&cross_entropy(&net.forward(&part(comm, &x)?)?, &part(comm, &labels)?)?)?;
    let norm = clip_grad_norm(&net.parameters(), 0.01)?;
    let alone = Net::new(9)?;
    autograd::TensorGrad::backward(&cross_entropy(&alone.forward(&x)?, &labels)?)?;
    let expected = clip_grad_norm(&alone.parameters(), 0.01)?;
    close(&[norm.item::<f32>()?], &[expected.item::<f32>()?], 1e-5);
    let mut all: Vec<Tensor> = net.parameters().iter().filter_map(Tensor::grad).collect();
    for (found, expected) in all.iter().zip(alone.parameters()) {
        close(&found.to_vec::<f32>()?, &expected.grad().unwrap().to_vec::<f32>()?, 1e-6);
    }
    all.push(norm.into());
    alike(comm, &all)
}

/// A label that is no class on the last rank: an error on all ranks, no gradient changed, and the next batch
/// works.
fn one_rank_fails(comm: &Communicator) -> Result<()> {
    if comm.size() == 1 {
        // In a world of one this is `loss.backward()`: the error is reported when the gradients are read.
        return Ok(());
    }
    let last = comm.size() - 1;
    let net = DistributedDataParallel::new(Net::new(2)?, comm)?;
    let step = |label: i64| -> Result<()> {
        let labels = Tensor::from_slice(&[0i64, label], [2], &device())?;
        let x = Tensor::ones([2, 6], &device())?;
        net.backward(&cross_entropy(&net.forward(&x)?, &labels)?)
    };
    step(1)?;
    let before: Vec<Tensor> = net.parameters().iter().filter_map(Tensor::grad).collect();
    let error = step(if comm.rank() == last { 77 } else { 1 }).unwrap_err();
    if comm.rank() == last {
        assert!(error.to_string().contains("77"), "{error}");
    } else {
        assert!(error.to_string().contains(&format!("rank {last} failed before this call")), "{error}");
    }
    let after: Vec<Tensor> = net.parameters().iter().filter_map(Tensor::grad).collect();
    assert_eq!(bits(&after), bits(&before));
    step(2)?;
    alike(comm, &net.parameters().iter().filter_map(Tensor::grad).collect::<Vec<_>>())
}

/// The last parameter's gradient is computed and sent; the first one's depends on an index that is out of
/// range, on the last rank.
fn one_rank_fails_late(comm: &Communicator) -> Result<()> {
    if comm.size() == 1 {
        return Ok(());
    }
    let last = comm.size() - 1;
    let parameter = |n: usize| nn::Parameter::new(Tensor::ones([n], &device())?);
    let config = DistributedConfig { bucket_bytes: 1, ..Default::default() };
    let parameters = vec![parameter(2)?, parameter(4)?, parameter(3)?];
    let net = DistributedDataParallel::with_config(parameters, comm, config)?;
    let table = Tensor::from_slice(&[3.0f32, 5.0], [2], &device())?;
    let step = |index: i64| -> Result<()> {
        let index = Tensor::from_slice(&[0, index], [2], &device())?;
        let factor = table.gather(0, &index)?;
        let first = net[0].mul(&factor)?.sum();
        net.backward(&first.add(&net[1].square().sum())?.add(&net[2].exp().sum())?)
    };
    step(1)?;
    let gradients = || net.parameters().iter().filter_map(Tensor::grad).collect::<Vec<_>>();
    let before = bits(&gradients());
    let error = step(if comm.rank() == last { 9 } else { 1 }).unwrap_err();
    if comm.rank() == last {
        assert!(error.to_string().contains('9'), "{error}");
    } else {
        assert!(error.to_string().contains(&format!("rank {last} failed before this call")), "{error}");
    }
    assert_eq!(bits(&gradients()), before);
    step(0)?;
    assert_eq!(net[0].grad().unwrap().to_vec::<f32>()?, [6.0, 8.0]);
    alike(comm, &gradients())
}

fn modules_differ(comm: &Communicator) -> Result<()> {
    if comm.size() == 1 {
        return Ok(());
    }
    let rng = Generator::seed(0, &device());
    let wide = if comm.rank() == 1 { 5 } else { 4 };
    let linear = Linear::new(3, wide, &rng)?;
    let weight = linear.weight.to_vec::<f32>()?;
    let error = DistributedDataParallel::new(linear.clone(), comm).map(drop).unwrap_err().to_string();
    for words in
        ["rank 1 differ", "index 0", "`parameter weight f32 [5, 3]`", "`parameter weight f32 [4, 3]`"]
    {
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(linear.weight.to_vec::<f32>()?, weight, "the module is as it was");
    let mut more = vec![Linear::new(2, 2, &rng)?];
    if comm.rank() == 1 {
        more.push(Linear::new(2, 2, &rng)?);
    }
    let error = DistributedDataParallel::new(more, comm).map(drop).unwrap_err().to_string();
    assert!(error.contains("`parameter 1.weight f32 [2, 2]`, and rank 0 has nothing"), "{error}");
    Ok(())
}

fn batch_norm(comm: &Communicator) -> Result<()> {
    // Parts of different sizes: rank r has r + 2 examples.
    let (n, rank) = (comm.size(), comm.rank());
    let sizes: Vec<usize> = (0..n).map(|r| r + 2).collect();
    let whole = Tensor::randn([sizes.iter().sum(), 3], &Generator::seed(4, &device()))?
        .mul_scalar(3.0)
        .add_scalar(5.0);
    let factor =
        Tensor::arange(0.0, whole.numel() as f64, 1.0, &device())?.reshape(whole.shape().dims())?.sin();
    let start: usize = sizes[..rank].iter().sum();
    let own = |t: &Tensor| t.narrow(0, start, sizes[rank]);

    let expected = BatchNorm1d::new(3, &device())?;
    let x = autograd::TensorGrad::requires_grad(whole.clone());
    let y = expected.forward(&x)?;
    autograd::TensorGrad::backward(&y.mul(&factor)?.sum())?;

    let norm = SyncBatchNorm::new(3, comm, &device())?;
    let part = autograd::TensorGrad::requires_grad(own(&whole)?);
    let found = norm.forward(&part)?;
    autograd::TensorGrad::backward(&found.mul(&own(&factor)?)?.sum())?;

    close(&found.to_vec::<f32>()?, &own(&y.detach())?.to_vec::<f32>()?, 1e-5);
    let gradient = own(&x.grad().unwrap())?;
    close(&part.grad().unwrap().to_vec::<f32>()?, &gradient.to_vec::<f32>()?, 1e-5);
    let weight = comm.all_reduce(&norm.weight().unwrap().grad().unwrap(), ReduceOp::Sum)?;
    close(&weight.to_vec::<f32>()?, &expected.weight().unwrap().grad().unwrap().to_vec::<f32>()?, 1e-5);
    for (found, expected) in norm.buffers().iter().zip(expected.buffers()) {
        close(
            &found.to_dtype(DType::F32)?.to_vec::<f32>()?,
            &expected.to_dtype(DType::F32)?.to_vec::<f32>()?,
            1e-5,
        );
    }
    let names = |m: &dyn Module| -> Vec<String> { m.state_dict().into_keys().collect() };
    assert_eq!(names(&norm), names(&expected), "state dicts go both ways");
    alike(comm, &norm.buffers())?;
    norm.eval();
    expected.eval();
    let still = norm.forward(&own(&whole)?)?.to_vec::<f32>()?;
    close(&still, &own(&expected.forward(&whole)?)?.to_vec::<f32>()?, 1e-5);
    let bad = norm.forward(&Tensor::ones([2, 4], &device())?).unwrap_err().to_string();
    assert!(bad.contains("has 3 channels"), "{bad}");
    Ok(())
}

fn sharded(comm: &Communicator) -> Result<()> {
    if 12 % comm.size() != 0 {
        return Ok(());
    }
    let run = |shares: bool| -> Result<(Vec<Tensor>, usize)> {
        let net = DistributedDataParallel::new(Net::new(7)?, comm)?;
        let config = AdamConfig { lr: 0.01, ..Default::default() };
        let mut optimizer: Box<dyn Optimizer> = match shares {
            true => Box::new(ShardedOptimizer::new(net.parameters(), comm, |own| Adam::new(own, config))?),
            false => Box::new(Adam::new(net.parameters(), config)),
        };
        for step in 0..4 {
            let (x, labels) = batch(step)?;
            optimizer.zero_grad();
            net.backward(&cross_entropy(&net.forward(&part(comm, &x)?)?, &part(comm, &labels)?)?)?;
            optimizer.step()?;
        }
        let state = optimizer.state_dict();
        let kept = state.iter().filter_map(|(name, _)| state.tensor(name)).map(Tensor::numel).sum();
        Ok((net.parameters(), kept))
    };
    let ((whole, all), (found, own)) = (run(false)?, run(true)?);
    assert_eq!(bits(&found), bits(&whole), "the same steps, bit by bit");
    alike(comm, &found)?;
    // The largest parameter, 1200 of 1603 numbers, is one rank's.
    assert!(comm.size() == 1 || own <= all * 4 / 5, "{own} of {all} numbers");
    let few = vec![Net::new(7)?.first.weight];
    let made =
        ShardedOptimizer::new(few, comm, |own| Sgd::new(own, SgdConfig { lr: 0.1, ..Default::default() }));
    assert_eq!(made.is_err(), comm.size() > 1);
    Ok(())
}

/// Runs all checks, with a timeout that ends a hang.
pub(crate) fn run(comm: &Communicator, mut tell: impl FnMut(&str)) -> Result<()> {
    comm.set_timeout(Duration::from_secs(60));
    for (name, check) in CHECKS {
        tell(name);
        check(comm)?;
    }
    Ok(())
}
