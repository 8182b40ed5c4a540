//! Random tensors from seeded, counter-based generators: one seed gives one stream on every device.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::Tensor;
use crate::{BinaryOp, DType, Device, Error, Op, RandomKind, Result, Shape};

/// A stream of random numbers for tensors of one device, as `torch.Generator`. Clones share the stream.
///
/// A draw of n elements takes the next n blocks of the stream, whatever the device, so a program draws the same numbers on
/// each. Philox4x32-10; see [`RandomKind`] for the formulas.
#[derive(Clone, Debug)]
pub struct Generator {
    seed: u64,
    next: Arc<AtomicU64>,
    device: Device,
}

impl Generator {
    /// The stream of `seed`, from its start, for tensors on `device`.
    pub fn seed(seed: u64, device: &Device) -> Generator {
        Generator { seed, next: Arc::default(), device: device.clone() }
    }

    /// The seed.
    pub fn initial_seed(&self) -> u64 {
        self.seed
    }

    /// How many blocks have been drawn: with the seed, the whole state.
    pub fn offset(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Goes to another place in the stream.
    pub fn set_offset(&self, offset: u64) {
        self.next.store(offset, Ordering::Relaxed);
    }

    /// The device whose tensors this generator fills.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The next word of the stream, on the host.
    pub fn next_u64(&self) -> u64 {
        let words = crate::philox(self.seed, self.next.fetch_add(1, Ordering::Relaxed));
        u64::from(words[0]) << 32 | u64::from(words[1])
    }

    /// A number below `bound` (which is not 0), each equally likely, on the host.
    pub fn below(&self, bound: u64) -> u64 {
        // Lemire's multiplication with rejection: no bias.
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            if (wide as u64) >= bound.wrapping_neg() % bound.max(1) {
                return (wide >> 64) as u64;
            }
        }
    }

    /// The numbers 0..n in random order, on the host (Fisher and Yates).
    pub fn permutation(&self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i as u64 + 1) as usize);
        }
        order
    }
}

impl Tensor {
    #[track_caller]
    fn draw(kind: RandomKind, shape: Shape, dtype: DType, rng: &Generator) -> Result<Tensor> {
        super::create::check(kind.name(), &shape, dtype, &rng.device)?;
        let offset = rng.next.fetch_add(shape.numel() as u64, Ordering::Relaxed);
        Ok(Tensor::source_unchecked(Op::Random { kind, seed: rng.seed, offset }, shape, dtype, &rng.device))
    }

    #[track_caller]
    fn draw_float(kind: RandomKind, shape: Shape, dtype: DType, rng: &Generator) -> Result<Tensor> {
        match dtype {
            DType::F32 | DType::F64 => Tensor::draw(kind, shape, dtype, rng),
            DType::F16 | DType::BF16 => Tensor::draw(kind, shape, DType::F32, rng)?.to_dtype(dtype),
            other => {
                Err(Error::invalid(kind.name(), format!("a floating-point dtype is needed, not {other}")))
            }
        }
    }

    /// Uniform numbers on [0, 1), f32.
    #[track_caller]
    pub fn rand(shape: impl Into<Shape>, rng: &Generator) -> Result<Tensor> {
        Tensor::draw(RandomKind::Uniform, shape.into(), DType::F32, rng)
    }

    /// Standard normal numbers, f32.
    #[track_caller]
    pub fn randn(shape: impl Into<Shape>, rng: &Generator) -> Result<Tensor> {
        Tensor::draw(RandomKind::Normal, shape.into(), DType::F32, rng)
    }

    /// Uniform numbers on [0, 1) of a floating-point dtype.
    #[track_caller]
    pub fn rand_dtype(shape: impl Into<Shape>, dtype: DType, rng: &Generator) -> Result<Tensor> {
        Tensor::draw_float(RandomKind::Uniform, shape.into(), dtype, rng)
    }

    /// Standard normal numbers of a floating-point dtype.
    #[track_caller]
    pub fn randn_dtype(shape: impl Into<Shape>, dtype: DType, rng: &Generator) -> Result<Tensor> {
        Tensor::draw_float(RandomKind::Normal, shape.into(), dtype, rng)
    }

    /// Uniform numbers on [low, high), f32.
    ///
    /// # Errors
    /// Bounds out of order, or not finite in f32.
    #[track_caller]
    pub fn uniform(shape: impl Into<Shape>, low: f64, high: f64, rng: &Generator) -> Result<Tensor> {
        if !(low.abs() <= f64::from(f32::MAX) && high.abs() <= f64::from(f32::MAX) && low <= high) {
            return Err(Error::invalid(
                "uniform",
                format!("from {low} to {high}: give bounds in order that are finite in f32"),
            ));
        }
        let unit = Tensor::rand(shape, rng)?;
        let width = high - low;
        if width <= f64::from(f32::MAX) {
            return Ok(unit.mul_scalar(width).add_scalar(low));
        }
        // The width passes f32 where the numbers do not: from the middle, by half of it.
        let half = high / 2.0 - low / 2.0;
        Ok(unit.mul_scalar(2.0).sub_scalar(1.0).mul_scalar(half).add_scalar(low / 2.0 + high / 2.0))
    }

    /// Integers of [low, high), each equally likely up to 2⁻³² · (high − low), i32.
    ///
    /// # Errors
    /// An empty range, or one wider than 2³¹ − 1.
    #[track_caller]
    pub fn randint(low: i32, high: i32, shape: impl Into<Shape>, rng: &Generator) -> Result<Tensor> {
        let width = i64::from(high) - i64::from(low);
        if width <= 0 || width > i64::from(i32::MAX) {
            return Err(Error::invalid(
                "randint",
                format!("from {low} to {high}: the range must hold between 1 and {} integers", i32::MAX),
            ));
        }
        let bits = Tensor::draw(RandomKind::Bits, shape.into(), DType::U32, rng)?;
        let width = bits.full_like(width);
        let within = bits.binary(BinaryOp::Remainder, &width)?.to_dtype(DType::I32)?;
        Ok(within.add_scalar(low))
    }

    /// The numbers 0..n in random order, i32.
    ///
    /// # Errors
    /// More numbers than i32 or the device holds.
    #[track_caller]
    pub fn randperm(n: usize, rng: &Generator) -> Result<Tensor> {
        const OP: &str = "randperm";
        super::create::check(OP, &Shape::from([n]), DType::I32, &rng.device)?;
        if n > i32::MAX as usize {
            return Err(Error::invalid(OP, format!("{n} numbers pass i32")));
        }
        let order: Vec<i32> = rng.permutation(n).into_iter().map(|i| i as i32).collect();
        Tensor::from_vec(order, [n], &rng.device)
    }
}
