//! Synthesised sounds: noise, tones, vowels, notes of a plucked string. No program uses all of them.
#![allow(dead_code)]

use std::f64::consts::{PI, TAU};

/// White noise: `count` samples, evenly distributed between −`amplitude` and `amplitude`.
pub(crate) fn noise(count: usize, amplitude: f64, seed: u64) -> Vec<f32> {
    // Marsaglia's xorshift: enough for noise, and the same everywhere.
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15) | 1;
    let sample = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
        ((2.0 * uniform - 1.0) * amplitude) as f32
    };
    (0..count).map(sample).collect()
}

/// A sine, with 10 ms of fade at both ends.
pub(crate) fn tone(count: usize, rate: u32, hertz: f64, amplitude: f64) -> Vec<f32> {
    let sample = |k: usize| {
        let t = k as f64 / f64::from(rate);
        (amplitude * fade(k, count, rate) * (TAU * hertz * t).sin()) as f32
    };
    (0..count).map(sample).collect()
}

/// A factor that rises from 0 to 1 within the first 10 ms of `count` samples and falls within the last.
fn fade(k: usize, count: usize, rate: u32) -> f64 {
    let edge = k.min(count - 1 - k) as f64 / f64::from(rate);
    (edge / 0.01).min(1.0)
}

/// The frequencies of the first three formants of a vowel in Hz, for an average male speaker (Peterson and
/// Barney: Control methods used in a study of the vowels, 1952).
const FORMANTS: [(char, [f64; 3]); 5] = [
    ('a', [730.0, 1090.0, 2440.0]),
    ('e', [530.0, 1840.0, 2480.0]),
    ('i', [270.0, 2290.0, 3010.0]),
    ('o', [570.0, 840.0, 2410.0]),
    ('u', [300.0, 870.0, 2240.0]),
];
/// The bandwidths of the three formants in Hz.
const BANDWIDTHS: [f64; 3] = [60.0, 90.0, 150.0];

/// A filter of two poles, y(k) = g·x(k) + b·y(k − 1) + c·y(k − 2): a resonance at a frequency.
#[derive(Default)]
struct Resonator {
    before: [f64; 2],
}

impl Resonator {
    fn step(&mut self, x: f64, rate: u32, hertz: f64, bandwidth: f64) -> f64 {
        let radius = (-PI * bandwidth / f64::from(rate)).exp();
        let b = 2.0 * radius * (TAU * hertz / f64::from(rate)).cos();
        let c = -radius * radius;
        let y = (1.0 - b - c) * x + b * self.before[0] + c * self.before[1];
        self.before = [y, self.before[0]];
        y
    }
}

/// Vowels after each other, 0.24 s each: pulses of a gliding pitch and some breath, through three formants
/// that move from vowel to vowel. Letters without formants are pauses.
pub(crate) fn vowels(text: &str, rate: u32, amplitude: f64) -> Vec<f32> {
    const SECONDS: f64 = 0.24;
    let each = (SECONDS * f64::from(rate)) as usize;
    let targets: Vec<Option<[f64; 3]>> = text
        .chars()
        .map(|letter| FORMANTS.iter().find(|(vowel, _)| *vowel == letter).map(|(_, formants)| *formants))
        .collect();
    let breath = noise(each * targets.len(), 0.02, 7);
    let mut resonators: [Resonator; 3] = Default::default();
    let mut formants = targets.iter().flatten().next().copied().unwrap_or(FORMANTS[0].1);
    let (mut phase, mut glottis, mut loudness) = (0.0, 0.0, 0.0);
    let mut sound = Vec::with_capacity(breath.len());
    for (k, breath) in breath.iter().enumerate() {
        let (vowel, within) = (k / each, (k % each) as f64 / each as f64);
        // A syllable swells and fades; the pitch falls over the phrase and rises within a syllable.
        let wanted = if targets[vowel].is_some() { 0.3 + 0.7 * (PI * within).sin() } else { 0.0 };
        loudness += (wanted - loudness) * 0.004;
        if let Some(target) = targets[vowel] {
            (0..3).for_each(|f| formants[f] += (target[f] - formants[f]) * 0.0015);
        }
        let pitch = 135.0 - 30.0 * k as f64 / sound.capacity() as f64 + 12.0 * (PI * within).sin();
        phase += pitch / f64::from(rate);
        let pulse = if phase >= 1.0 { 1.0 } else { 0.0 };
        phase %= 1.0;
        // One pole makes pulses duller, as the glottis does.
        glottis = 0.95 * glottis + pulse + f64::from(*breath);
        let mut x = glottis * loudness;
        for (f, resonator) in resonators.iter_mut().enumerate() {
            x = resonator.step(x, rate, formants[f], BANDWIDTHS[f]);
        }
        sound.push(x);
    }
    let loudest = sound.iter().fold(f64::MIN_POSITIVE, |most: f64, x| most.max(x.abs()));
    sound.into_iter().map(|x| (x / loudest * amplitude) as f32).collect()
}

/// A note of a plucked string: harmonics that decay, the higher the faster.
pub(crate) fn pluck(count: usize, rate: u32, hertz: f64, amplitude: f64) -> Vec<f32> {
    const HARMONICS: u32 = 8;
    let sample = |k: usize| {
        let t = k as f64 / f64::from(rate);
        let harmonic = |h: u32| {
            let h = f64::from(h);
            (TAU * hertz * h * t).sin() / h.powf(1.5) * (-t * (1.2 + 0.8 * h)).exp()
        };
        let audible = |h: &u32| hertz * f64::from(*h) < f64::from(rate) / 2.0;
        let sum: f64 = (1..=HARMONICS).filter(audible).map(harmonic).sum();
        (amplitude * fade(k, count, rate) * sum) as f32
    };
    (0..count).map(sample).collect()
}
