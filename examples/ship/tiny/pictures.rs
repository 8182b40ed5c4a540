//! Pictures with the handwritten digits that ship with Taper, in colours and noise.

use std::ops::Range;

use taper::{data::Digits, prelude::*};

use super::{Rows, random::Random};

/// The digits for training; the others are held out.
const TRAINED: usize = 1400;
const DIGIT: usize = 8;

/// The digits, their labels, and how they are shown.
pub(crate) struct Pictures {
    digits: Vec<f32>,
    labels: Vec<i64>,
    size: usize,
    /// The pixels of a picture for one of a digit.
    scales: (f32, f32),
    /// Whether the label is whether there is a digit.
    asks_for_digit: bool,
}

impl Pictures {
    fn new(size: usize, scales: (f32, f32), asks_for_digit: bool) -> Result<Pictures> {
        let all = Digits::load(&taper::cpu())?;
        let (digits, labels) = all.tensors();
        let labels = labels.to_dtype(DType::I64)?.to_vec()?;
        Ok(Pictures { digits: digits.to_vec()?, labels, size, scales, asks_for_digit })
    }

    /// Pictures of 32 × 32, each with a digit: which one?
    pub(crate) fn of_digits() -> Result<Pictures> {
        Pictures::new(32, (2.8, 3.8), false)
    }

    /// Pictures of 96 × 96, each with a digit, a disc or nothing: is there a digit?
    pub(crate) fn with_or_without() -> Result<Pictures> {
        Pictures::new(96, (5.0, 10.0), true)
    }

    /// The rows of the digits in a range, in any order.
    fn rows(&self, range: Range<usize>, random: &mut Random) -> Result<Rows> {
        let mut order: Vec<usize> = range.collect();
        random.shuffle(&mut order);
        let mut pixels = Vec::with_capacity(order.len() * 3 * self.size * self.size);
        let mut labels = Vec::with_capacity(order.len());
        for k in order {
            let mut digit = self.digits[k * DIGIT * DIGIT..][..DIGIT * DIGIT].to_vec();
            let is_digit = !self.asks_for_digit || random.uniform() < 0.5;
            if !is_digit {
                digit = disc(random);
            }
            labels.push(if self.asks_for_digit { i64::from(is_digit) } else { self.labels[k] });
            self.draw(&digit, random, &mut pixels);
        }
        let count = labels.len();
        let inputs = Tensor::from_vec(pixels, [count, 3, self.size, self.size], &taper::cpu())?;
        Ok(Rows { inputs, labels })
    }

    pub(crate) fn training(&self, random: &mut Random) -> Result<Rows> {
        self.rows(0..TRAINED, random)
    }

    pub(crate) fn held_out(&self, random: &mut Random) -> Result<Rows> {
        self.rows(TRAINED..self.labels.len(), random)
    }

    /// Adds a picture, plane by plane: a digit in one colour, on a ground that changes evenly, with noise.
    fn draw(&self, digit: &[f32], random: &mut Random, pixels: &mut Vec<f32>) {
        let scale = random.between(self.scales.0, self.scales.1);
        let room = self.size as f32 - scale * DIGIT as f32;
        let (left, top) = (random.between(0.0, room), random.between(0.0, room));
        // Dark ink on a light ground.
        let ground: [f32; 3] = std::array::from_fn(|_| random.between(0.6, 1.0));
        let ink: [f32; 3] = std::array::from_fn(|_| random.between(0.0, 0.4));
        let slope = [0, 1].map(|_| random.between(-0.2, 0.2) / self.size as f32);
        let at = |x: isize, y: isize| match (usize::try_from(x), usize::try_from(y)) {
            (Ok(x), Ok(y)) if x < DIGIT && y < DIGIT => digit[y * DIGIT + x],
            _ => 0.0,
        };
        for (ground, ink) in ground.into_iter().zip(ink) {
            for y in 0..self.size {
                for x in 0..self.size {
                    let [u, v] =
                        [(x, left), (y, top)].map(|(at, from)| (at as f32 + 0.5 - from) / scale - 0.5);
                    let (i, j) = (u.floor() as isize, v.floor() as isize);
                    let (s, t) = (u - u.floor(), v - v.floor());
                    let above = at(i, j) * (1.0 - s) + at(i + 1, j) * s;
                    let below = at(i, j + 1) * (1.0 - s) + at(i + 1, j + 1) * s;
                    let ground = ground + slope[0] * x as f32 + slope[1] * y as f32;
                    let share = above * (1.0 - t) + below * t;
                    let shown = ground + (ink - ground) * share + 0.05 * random.normal();
                    pixels.push(2.0 * shown - 1.0);
                }
            }
        }
    }
}

/// A disc in place of a digit, of any size down to nothing.
fn disc(random: &mut Random) -> Vec<f32> {
    let centre = [0, 1].map(|_| random.between(2.0, 5.0));
    let radius = random.between(-1.5, 3.5);
    let shade = |k: usize| {
        let [x, y] = [k % DIGIT, k / DIGIT].map(|at| at as f32);
        (radius - ((x - centre[0]).powi(2) + (y - centre[1]).powi(2)).sqrt()).clamp(0.0, 1.0)
    };
    (0..DIGIT * DIGIT).map(shade).collect()
}
