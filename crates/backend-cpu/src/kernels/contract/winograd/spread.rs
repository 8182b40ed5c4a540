//! How even numbers are: a transformed tile leaves the rounding of its greatest element in all results.

use crate::simd::vector::Float;

/// How many times the mean magnitude an element may have.
const EVEN: f64 = 1000.0;

/// The greatest magnitude of numbers, and the sum of all, in parts.
pub(super) struct Spread<T> {
    greatest: [T; LANES],
    sum: [T; LANES],
    count: usize,
}

const LANES: usize = 16;

impl<T: Float> Spread<T> {
    pub(super) fn new() -> Spread<T> {
        Spread { greatest: [T::ZERO; LANES], sum: [T::ZERO; LANES], count: 0 }
    }

    /// Notes numbers, some of them twice.
    #[inline(always)]
    pub(super) fn note(&mut self, numbers: &[T]) {
        let (chunks, rest) = numbers.as_chunks::<LANES>();
        let mut short = [T::ZERO; LANES];
        let last = match numbers.last_chunk::<LANES>() {
            Some(last) => last,
            None => {
                short[..rest.len()].copy_from_slice(rest);
                &short
            }
        };
        let more = usize::from(!rest.is_empty());
        let (mut greatest, mut sum) = (self.greatest, self.sum);
        let mut i = 0;
        while i < chunks.len() + more {
            let chunk = if i < chunks.len() { &chunks[i] } else { last };
            for l in 0..LANES {
                let x = chunk[l].abs();
                greatest[l] = if x > greatest[l] { x } else { greatest[l] };
                sum[l] = sum[l] + x;
            }
            i += 1;
        }
        (self.greatest, self.sum) = (greatest, sum);
        self.count += match chunks.len() {
            0 => rest.len(),
            n => (n + more) * LANES,
        };
    }

    /// Whether all are finite, and none is much larger than the mean.
    pub(super) fn is_even(&self) -> bool {
        let sum: f64 = self.sum.iter().map(|&x| x.into()).sum();
        let bound = EVEN * sum / self.count.max(1) as f64;
        bound.is_finite() && self.greatest.iter().all(|&x| x.into() <= bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_that_is_much_larger_than_the_others_is_seen() {
        let mut numbers = vec![1f32; 4007];
        let is_even = |numbers: &[f32]| {
            let mut spread = Spread::new();
            spread.note(numbers);
            spread.is_even()
        };
        assert!(is_even(&numbers) && is_even(&[0.0; 40]) && is_even(&numbers[..7]));
        for place in [0, 2000, 4006] {
            for value in [-1e6, f32::NAN, f32::INFINITY] {
                let before = std::mem::replace(&mut numbers[place], value);
                assert!(!is_even(&numbers), "{value} at {place}");
                numbers[place] = before;
            }
        }
        assert!(!is_even(&[1e-3, f32::NAN]));
    }
}
