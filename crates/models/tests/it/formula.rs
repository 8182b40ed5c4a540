//! Weights by a formula, for fixtures whose weights would not fit into a small file:
//! `scripts/model_fixtures/formula.py` has the same.

use std::collections::BTreeMap;

use nn::StateDict;
use tensor_core::{Device, Tensor};
use weights::WeightFile;

/// The weights of a fixture: by the formula for the shapes in its metadata, and those in the file.
pub(crate) fn weights(file: &WeightFile, device: &Device) -> StateDict {
    let mut state = StateDict::new();
    if let Some(shapes) = file.texts().get("formula") {
        let shapes: BTreeMap<String, Vec<usize>> = serde_json::from_str(shapes).unwrap();
        for (name, shape) in shapes {
            let tensor = Tensor::from_vec(values(&name, &shape), shape, device).unwrap();
            state.insert(name, tensor);
        }
    }
    if file.names().any(|name| name.starts_with("weights.")) {
        state.extend(file.under("weights").unwrap().state_dict(device).unwrap());
    }
    state
}

/// The elements of the tensor with this name and shape.
fn values(name: &str, shape: &[usize]) -> Vec<f32> {
    let count: usize = shape.iter().product();
    let per_row = count / shape.first().copied().unwrap_or(1).max(1);
    let scaled = |u: f64| match shape.len() {
        0 | 1 if name.ends_with("running_var") => 1.0 + u / 2.0,
        0 | 1 if ["weight", "gamma", "lambda1"].iter().any(|end| name.ends_with(end)) => 1.0 + u / 5.0,
        0 | 1 => u / 10.0,
        2 => u * (3.0 / per_row as f64).sqrt(),
        _ => u * (6.0 / per_row as f64).sqrt(),
    };
    let seed = fnv1a64(name);
    (1..=count as u64).map(|index| scaled(uniform(seed, index)) as f32).collect()
}

fn fnv1a64(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// A number in [−1, 1) from the upper 24 bits of splitmix64.
fn uniform(seed: u64, index: u64) -> f64 {
    let mut z = index.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    (z >> 40) as f64 / f64::from(1 << 23) - 1.0
}
