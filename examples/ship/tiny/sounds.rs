//! Sounds that are made by formulas, as spectra: twelve kinds in place of spoken words, and a machine with
//! and without a fault.

use std::f32::consts::TAU;

use taper::{
    data::audio::{MelOptions, mel_spectrogram},
    prelude::*,
};

use super::{Rows, random::Random};

const RATE: usize = 16_000;

/// The kinds of sounds.
const KINDS: usize = 12;
/// The frames and the coefficients of a sound of a second.
const FRAMES: usize = 49;
const COEFFICIENTS: usize = 10;
const BANDS: usize = 40;
/// The resonances of five vowels in Hz.
const VOWELS: [[f32; 3]; 5] = [
    [730.0, 1090.0, 2440.0],
    [530.0, 1840.0, 2480.0],
    [270.0, 2290.0, 3010.0],
    [570.0, 840.0, 2410.0],
    [300.0, 870.0, 2240.0],
];

/// A second of one kind, at any pitch, beginning anywhere in its first part, in noise.
fn sound(kind: usize, random: &mut Random, samples: &mut Vec<f32>) {
    let level = random.between(0.1, 0.4);
    let noise = level * random.between(0.5, 2.0);
    let start = random.between(0.0, 0.35);
    let length = random.between(0.35, 0.6);
    let pitch = random.between(110.0, 220.0);
    let mut phase = 0.0f32;
    for i in 0..RATE {
        let t = i as f32 / RATE as f32 - start;
        let share = t / length;
        let mut value = 0.0;
        if (0.0..1.0).contains(&share) {
            // Five vowels, a high tone, a rising and a falling sweep, a siren, two tones, clicks, and noise.
            let hertz = match kind {
                0..=4 => pitch * (1.0 - 0.1 * share),
                5 => 5.0 * pitch,
                6 => pitch * (2.0 + 8.0 * share),
                7 => pitch * (10.0 - 8.0 * share),
                8 => pitch * (5.0 + 2.0 * (TAU * 5.0 * t).sin()),
                9 => 3.0 * pitch,
                _ => 12.0,
            };
            phase = (phase + hertz / RATE as f32).fract();
            value = match kind {
                0..=4 => (1..24)
                    .map(|k| {
                        let of = k as f32 * hertz;
                        let near = |centre: &f32| 1.0 / (1.0 + ((of - centre) / 90.0).powi(2));
                        VOWELS[kind].iter().map(near).sum::<f32>() * (TAU * phase * k as f32).sin()
                    })
                    .sum(),
                5..=8 => (TAU * phase).sin(),
                9 => 0.5 * ((TAU * phase).sin() + (TAU * (1.5 * hertz * t).fract()).sin()),
                10 => 3.0 * (-phase * 60.0).exp() * random.normal(),
                _ => 0.7 * random.normal(),
            } * (share * (1.0 - share) * 16.0).min(1.0);
        }
        samples.push(level * value + noise * random.normal());
    }
}

/// The logarithms of energies by mel bands, `[N, bands, frames]`.
fn log_mels(samples: Vec<f32>, each: usize, window: usize, hop: usize, bands: usize) -> Result<Tensor> {
    let count = samples.len() / each;
    let samples = Tensor::from_vec(samples, [count, each], &taper::cpu())?;
    let options =
        MelOptions { n_fft: window, hop_length: Some(hop), n_mels: bands, f_min: 20.0, ..Default::default() };
    Ok(mel_spectrogram(&samples, RATE as u32, &options)?.add_scalar(1e-3).log())
}

/// Sounds of all kinds as cepstral coefficients, `[N, 1, 49, 10]`.
pub(crate) fn words(count: usize, random: &mut Random) -> Result<Rows> {
    let mut kinds: Vec<usize> = (0..count).map(|k| k % KINDS).collect();
    random.shuffle(&mut kinds);
    let mut samples = Vec::with_capacity(count * RATE);
    kinds.iter().for_each(|&kind| sound(kind, random, &mut samples));
    let mels = no_grad(|| log_mels(samples, RATE, 640, 320, BANDS))?.narrow(2, 0, FRAMES)?;
    let cosine = |k: usize| {
        let (band, c) = (k / COEFFICIENTS, k % COEFFICIENTS);
        (TAU / 2.0 * c as f32 * (band as f32 + 0.5) / BANDS as f32).cos() / BANDS as f32
    };
    let cosines = (0..BANDS * COEFFICIENTS).map(cosine).collect();
    let cosines = Tensor::from_vec(cosines, [BANDS, COEFFICIENTS], &taper::cpu())?;
    let inputs = mels.transpose(1, 2)?.matmul(&cosines)?.unsqueeze(1)?;
    inputs.eval()?;
    Ok(Rows { inputs, labels: kinds.iter().map(|&kind| kind as i64).collect() })
}

/// Frames and bands of a row of the machine, and the samples that they need.
const PARTS: usize = 5;
const MACHINE_BANDS: usize = 128;
const WINDOW: usize = 1024;
const HOP: usize = 512;
const SAMPLES: usize = HOP * (PARTS + 1);

/// The sound of a machine that turns 45 to 55 times a second: its harmonics, and teeth of a gear. A fault is
/// a ball of its bearing that clicks 3.56 times in a turn.
fn machine(is_faulty: bool, random: &mut Random, samples: &mut Vec<f32>) {
    let turns = random.between(45.0, 55.0);
    let level = random.between(0.8, 1.2);
    let parts: Vec<(f32, f32, f32)> = (1..=20)
        .chain([23, 46])
        .map(|k| (k as f32 * turns, random.between(0.8, 1.2) / (k as f32).sqrt(), random.uniform()))
        .collect();
    let (mut click, ring) = (random.uniform(), random.between(3000.0, 4500.0));
    let loud = if is_faulty { random.between(0.05, 0.6) } else { 0.0 };
    for i in 0..SAMPLES {
        let t = i as f32 / RATE as f32;
        let hum: f32 =
            parts.iter().map(|(hertz, size, phase)| size * (TAU * (hertz * t + phase).fract()).sin()).sum();
        click = (click + 3.56 * turns / RATE as f32).fract();
        let age = click / (3.56 * turns);
        let rings = loud * (-age * 900.0).exp() * (TAU * (ring * age).fract()).sin();
        samples.push(level * (0.2 * hum + rings) + 0.05 * random.normal());
    }
}

/// Rows of 640 numbers of a machine; every row is normal, or every second one has a fault, which is label 1.
pub(crate) fn machines(count: usize, has_faults: bool, random: &mut Random) -> Result<Rows> {
    let labels: Vec<i64> = (0..count).map(|k| i64::from(has_faults && k % 2 == 1)).collect();
    let mut samples = Vec::with_capacity(count * SAMPLES);
    labels.iter().for_each(|&label| machine(label == 1, random, &mut samples));
    let mels = no_grad(|| log_mels(samples, SAMPLES, WINDOW, HOP, MACHINE_BANDS))?.narrow(2, 1, PARTS)?;
    let inputs = mels.transpose(1, 2)?.reshape([count, PARTS * MACHINE_BANDS])?.mul_scalar(0.25);
    inputs.eval()?;
    Ok(Rows { inputs, labels })
}
