//! Times the networks on the computer itself, beside the same layers written by hand:
//!
//!     cd host && cargo run --release --target HOST

use std::{array, hint::black_box, time::Instant};

#[path = "../../src/images.rs"]
#[allow(dead_code)]
mod images;

/// A layer as one would write it by hand.
fn linear<const I: usize, const O: usize>(weight: &[[f32; I]; O], bias: &[f32; O], x: &[f32; I]) -> [f32; O] {
    array::from_fn(|o| weight[o].iter().zip(x).map(|(w, x)| w * x).sum::<f32>() + bias[o])
}

/// The least time of a call in nanoseconds, of many rounds.
fn time(mut call: impl FnMut(&[f32; 64]) -> f32) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..200 {
        let begin = Instant::now();
        for image in &images::IMAGES {
            black_box(call(black_box(image)));
        }
        least = least.min(begin.elapsed().as_secs_f64() * 1e9 / images::IMAGES.len() as f64);
    }
    least
}

fn main() {
    let number = |k: usize| ((k * 2_654_435_761) % 1000) as f32 / 1000.0 - 0.5;
    let first: [[f32; 64]; 32] = array::from_fn(|o| array::from_fn(|i| number(o * 64 + i)));
    let second: [[f32; 32]; 10] = array::from_fn(|o| array::from_fn(|i| number(o * 32 + i)));
    let by_hand = time(|image| {
        let hidden = linear(black_box(&first), &[0.1; 32], image).map(|x| x.max(0.0));
        linear(black_box(&second), &[0.1; 10], &hidden)[3]
    });
    let mut arena = mlp::Arena::new();
    let mlp = time(|image| {
        let mut logits = [0.0; 10];
        assert!(mlp::run(&mut arena, image, &mut logits).is_ok());
        logits[3]
    });
    let mut arena = cnn::Arena::new();
    let cnn = time(|image| {
        let mut logits = [0.0; 10];
        assert!(cnn::run(&mut arena, image, &mut logits).is_ok());
        logits[3]
    });
    println!("mlp: {mlp:.0} ns, {:.2} of the same layers by hand ({by_hand:.0} ns)", mlp / by_hand);
    println!("cnn: {cnn:.0} ns");
}
