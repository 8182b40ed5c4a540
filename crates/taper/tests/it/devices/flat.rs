//! Memory over time, by the device's own count and by what the process has resident: a test in a process of
//! its own, for other tests' tensors would blur both.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{device, logical_device, needs, tensor};
use taper::prelude::*;

/// Bytes that this process has resident, where the system says.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(text.split_whitespace().nth(1)?.parse::<u64>().ok()? * 4096)
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    allocated: u64,
    reserved: u64,
    resident: Option<u64>,
}

fn taken(d: &Device) -> Result<Taken> {
    d.synchronize()?;
    let memory = d.memory();
    Ok(Taken { allocated: memory.allocated, reserved: memory.reserved, resident: resident() })
}

#[derive(Module)]
struct SimpleNet {
    fc1: Linear,
    fc2: Linear,
}

/// A device's count, and the bytes that it is of: two an element of bf16, and one of a mask.
#[test]
fn a_model_of_bf16_takes_half_of_the_memory_of_one_of_f32() -> Result<()> {
    let d = &logical_device(13);
    if !needs(d, DType::BF16) {
        return Ok(());
    }
    let taken = |before: u64| d.memory().allocated - before;
    let before = d.memory().allocated;
    let rng = Generator::seed(1, d);
    let net = SimpleNet { fc1: Linear::new(784, 513, &rng)?, fc2: Linear::new(513, 10, &rng)? };
    taper::eval_all(&net.parameters().iter().collect::<Vec<_>>())?;
    let numbers = net.num_parameters() as u64;
    let of_f32 = taken(before);
    assert!(of_f32 >= 4 * numbers && of_f32 < 4 * numbers + 1000, "{of_f32} bytes for {numbers} numbers");
    let halves: Vec<Tensor> =
        net.parameters().iter().map(|p| p.detach().to_dtype(DType::BF16)).collect::<Result<_>>()?;
    taper::eval_all(&halves.iter().collect::<Vec<_>>())?;
    drop(net);
    let of_bf16 = taken(before);
    assert!(of_bf16 >= 2 * numbers && of_bf16 < 2 * numbers + 1000, "{of_bf16} bytes for {numbers} numbers");
    let before = d.memory().allocated;
    let mask = tensor(&[1001, 33], 1, DType::F32, d)?.gt(&Tensor::full((), 0.0, d)?)?;
    mask.eval()?;
    assert_eq!(taken(before), 1001 * 33);
    Ok(())
}

/// One test for both, in turn.
#[test]
fn ten_thousand_steps_and_allocations_hold_memory_flat() -> Result<()> {
    if taper_testing::run_alone(ten_thousand_steps_and_allocations_hold_memory_flat) {
        return Ok(());
    }
    let d = device();
    ten_thousand_training_steps(&d)?;
    ten_thousand_tensors_of_varied_sizes(&d)
}

fn ten_thousand_training_steps(d: &Device) -> Result<()> {
    let rng = Generator::seed(1, d);
    let net = SimpleNet { fc1: Linear::new(16, 32, &rng)?, fc2: Linear::new(32, 4, &rng)? };
    let mut sgd = Sgd::new(net.parameters(), SgdConfig { lr: 0.05, momentum: 0.9, ..Default::default() });
    let x = tensor(&[24, 16], 1, DType::F32, d)?;
    let labels = Tensor::from_vec((0..24).map(|i| i % 4).collect::<Vec<i32>>(), [24], d)?;
    let mut losses = Vec::new();
    let mut warm = None;
    for step in 1..=10_000 {
        sgd.zero_grad();
        let loss = cross_entropy(&net.fc2.forward(&net.fc1.forward(&x)?.relu())?, &labels)?;
        loss.backward()?;
        sgd.step()?;
        // Kept results pin one number each, not a graph.
        if step % 1000 == 0 {
            losses.push(loss.detach());
        }
        if step == 1000 {
            warm = Some(taken(d)?);
        }
    }
    let (warm, end) = (warm.unwrap(), taken(d)?);
    let kept = 4 * losses.len() as u64;
    assert!(end.allocated <= warm.allocated + kept, "{warm:?}, then {end:?}");
    assert!(end.reserved <= warm.reserved + (64 << 10), "{warm:?}, then {end:?}");
    if let (Some(warm), Some(end)) = (warm.resident, end.resident) {
        assert!(end <= warm + (8 << 20), "{warm} bytes resident, then {end}");
    }
    let (first, last) = (losses[0].item::<f32>()?, losses[9].item::<f32>()?);
    assert!(last < first && first.is_finite(), "{first} to {last}");
    Ok(())
}

fn ten_thousand_tensors_of_varied_sizes(d: &Device) -> Result<()> {
    let before = taken(d)?;
    let round = |from: usize| -> Result<()> {
        let mut held = std::collections::VecDeque::new();
        for i in from..from + 2500 {
            // Up to 400 KB, at most a few held at a time.
            let n = 1 + i * 7919 % 100_003;
            let t = Tensor::from_vec(vec![1f32; n], [n], d)? + 1.0;
            t.eval()?;
            held.push_back(t);
            if held.len() > 1 + i % 7 {
                held.pop_front();
            }
        }
        Ok(())
    };
    round(0)?;
    let warm = taken(d)?;
    for i in 1..4 {
        round(2500 * i)?;
    }
    let end = taken(d)?;
    assert_eq!((warm.allocated, end.allocated), (before.allocated, before.allocated));
    assert!(end.reserved <= warm.reserved + warm.reserved / 4, "{warm:?}, then {end:?}");
    if let (Some(warm), Some(end)) = (warm.resident, end.resident) {
        assert!(end <= warm + warm / 4, "{warm} bytes resident, then {end}");
    }
    // All that is cached can be had back.
    d.empty_cache();
    assert!(d.memory().reserved <= before.reserved, "{:?} after {before:?}", d.memory());
    Ok(())
}
