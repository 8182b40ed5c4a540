//! Random tensors from seeded, counter-based generators: one seed gives one stream on every device.

use std::{
    cell::RefCell,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::tensor::Tensor;
use crate::{
    base::{
        error::{Error, Result},
        philox::{philox, philox_words},
        shape::Shape,
        sync::lock,
    },
    devices::{defaults::default_dtype, device::Device},
    elements::{dtype::DType, scalar::Scalar},
    graph::{
        op::Op,
        state::{State, Stateful},
    },
    kernels::operators::{BinaryOp, RandomKind},
    schedule::capture::{RandomStream, capture_number, is_capturing, note_draw, refuse_later},
};

/// A stream of random numbers for tensors on one device, like `torch.Generator`. Clones share the stream.
///
/// A draw of n elements takes the next n blocks of the stream on any device, so a program draws the same
/// numbers on each. The generator is Philox4x32-10; see [`RandomKind`] for the formulas.
///
/// Its state in [`Stateful`] is the seed and the number of blocks drawn: `seed`, `offset`.
#[derive(Clone, Debug)]
#[must_use]
pub struct Generator {
    stream: Arc<Mutex<Stream>>,
    device: Device,
}

/// A seed, and the number of the next block.
#[derive(Debug)]
struct Stream {
    seed: u64,
    next: u64,
    /// The capture in which it was made.
    capture: u64,
}

impl Stream {
    /// Reserves the next `count` blocks: the seed, and the first of them.
    fn take(&mut self, count: u64) -> (u64, u64) {
        let first = self.next;
        self.next = first.wrapping_add(count);
        (self.seed, first)
    }
}

/// For compiled functions.
impl RandomStream for Generator {
    fn take(&self, count: u64) -> (u64, u64) {
        self.advancing().take(count)
    }

    fn rewind(&self, next: u64) {
        self.advancing().next = next;
    }
}

impl Generator {
    /// The stream of `seed`, from its start, for tensors on `device`.
    #[doc(alias = "manual_seed")]
    pub fn seed(seed: u64, device: &Device) -> Generator {
        let stream = Stream { seed, next: 0, capture: capture_number() };
        Generator { stream: Arc::new(Mutex::new(stream)), device: device.clone() }
    }

    /// The same stream for tensors on another device: both draw from it, and no number twice.
    pub fn on(&self, device: &Device) -> Generator {
        Generator { stream: self.stream.clone(), device: device.clone() }
    }

    /// The seed.
    pub fn initial_seed(&self) -> u64 {
        lock(&self.stream).seed
    }

    /// The number of blocks drawn; with the seed, this is the whole state.
    #[doc(alias = "get_state")]
    pub fn offset(&self) -> u64 {
        lock(&self.stream).next
    }

    /// Sets the position in the stream.
    #[doc(alias = "set_state")]
    pub fn set_offset(&self, offset: u64) {
        self.on_host().next = offset;
    }

    /// Sets the seed and the position, for this generator and its clones.
    pub fn set_seed_and_offset(&self, seed: u64, offset: u64) {
        let mut stream = self.on_host();
        (stream.seed, stream.next) = (seed, offset);
    }

    /// The stream, to be changed by the host. A compiled function would repeat the numbers that it drew once.
    #[track_caller]
    fn on_host(&self) -> MutexGuard<'_, Stream> {
        if !self.is_of_capture() {
            refuse_later("compile", "draw random numbers on the host");
        }
        self.advancing()
    }

    /// Whether the function that is being captured made it.
    fn is_of_capture(&self) -> bool {
        is_capturing() && lock(&self.stream).capture == capture_number()
    }

    /// The stream, to be changed. Within [`fork_rng`] its state is kept first.
    fn advancing(&self) -> MutexGuard<'_, Stream> {
        let stream = lock(&self.stream);
        // While a thread ends, nothing is kept for it any more.
        let _ = FORKS.try_with(|forks| {
            if let Some(fork) = forks.borrow_mut().last_mut()
                && !fork.iter().any(|kept| Arc::ptr_eq(&kept.stream, &self.stream))
            {
                let state = Stream { ..*stream };
                fork.push(KeptStream { stream: self.stream.clone(), state });
            }
        });
        stream
    }

    /// The seed and the first of the next `count` blocks, which are reserved: no other draw uses them.
    /// For operations that generate their own numbers.
    pub fn take(&self, count: u64) -> (u64, u64) {
        let mut stream = self.advancing();
        let (seed, first) = stream.take(count);
        drop(stream);
        if !self.is_of_capture() {
            note_draw(|| Arc::new(self.clone()), seed, first, count);
        }
        (seed, first)
    }

    /// The device of the tensors that this generator draws.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The next word of the stream, generated on the host.
    pub fn next_u64(&self) -> u64 {
        let (seed, counter) = self.on_host().take(1);
        let words = philox(seed, counter);
        u64::from(words[0]) << 32 | u64::from(words[1])
    }

    /// A uniform integer below `bound` (which is not 0), generated on the host.
    pub fn below(&self, bound: u64) -> u64 {
        below(bound, || self.next_u64())
    }

    /// The numbers 0..n in random order, generated on the host (Fisher and Yates).
    pub fn permutation(&self, n: usize) -> Vec<usize> {
        const BUFFERED_WORDS: usize = 16;
        let mut order: Vec<usize> = (0..n).collect();
        // The stream is locked for all draws, and blocks are computed several at a time.
        let mut stream = self.on_host();
        let (mut words, mut used) = ([[0; BUFFERED_WORDS]; 2], BUFFERED_WORDS);
        for i in (1..n).rev() {
            let place = below(i as u64 + 1, || {
                if used == BUFFERED_WORDS {
                    (words, used) = (philox_words(stream.seed, stream.next), 0);
                }
                let word = u64::from(words[0][used]) << 32 | u64::from(words[1][used]);
                used += 1;
                stream.next = stream.next.wrapping_add(1);
                word
            });
            order.swap(i, place as usize);
        }
        order
    }
}

/// A stream, and its state before a [`fork_rng`] changed it.
struct KeptStream {
    stream: Arc<Mutex<Stream>>,
    state: Stream,
}

thread_local! {
    /// The streams that each open [`fork_rng`] of this thread has changed, the innermost last.
    static FORKS: RefCell<Vec<Vec<KeptStream>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f`, and then gives every generator that this thread drew from in it the state that it had before.
/// `torch.random.fork_rng`.
///
/// ```
/// use tensor_core::{Generator, Tensor, fork_rng};
/// # fn main() -> tensor_core::Result<()> {
/// # let device = taper_testing::reference();
/// let rng = Generator::seed(0, &device);
/// let tried = fork_rng(|| Tensor::rand([3], &rng)?.to_vec::<f32>())?;
/// assert_eq!(Tensor::rand([3], &rng)?.to_vec::<f32>()?, tried);
/// # Ok(()) }
/// ```
pub fn fork_rng<R>(f: impl FnOnce() -> R) -> R {
    /// Gives the streams their states back, also after a panic.
    struct Fork;
    impl Drop for Fork {
        fn drop(&mut self) {
            let fork = FORKS.with_borrow_mut(Vec::pop).unwrap_or_default();
            fork.into_iter().for_each(|kept| *lock(&kept.stream) = kept.state);
        }
    }
    FORKS.with_borrow_mut(|forks| forks.push(Vec::new()));
    let _fork = Fork;
    f()
}

/// A uniform integer below `bound` from uniform words: Lemire's multiplication with rejection, without
/// bias.
fn below(bound: u64, mut next: impl FnMut() -> u64) -> u64 {
    loop {
        let wide = u128::from(next()) * u128::from(bound);
        // Rejection requires `low` below the bound, so the remainder is seldom computed.
        let low = wide as u64;
        if low >= bound || low >= bound.wrapping_neg() % bound.max(1) {
            return (wide >> 64) as u64;
        }
    }
}

/// The least number of a floating-point dtype that is at least `low`, and the greatest one below `high`.
fn within(low: f64, high: f64, dtype: DType) -> (f64, f64) {
    let cast = |x: f64| Scalar::Float(x).cast(dtype).as_f64();
    let step = |x: f64, is_up: bool| match (dtype == DType::F64, is_up) {
        (true, true) => x.next_up(),
        (true, false) => x.next_down(),
        (false, _) => {
            // The distance to the neighbour away from 0; below a power of two the other neighbour is
            // half as far.
            let far = (dtype.epsilon() * x.abs()).max(dtype.epsilon() * dtype.smallest_normal());
            let far = 2f64.powi(far.log2().floor() as i32) * if is_up { 1.0 } else { -1.0 };
            let near = cast(x + 0.5 * far);
            if near == x { cast(x + far) } else { near }
        }
    };
    let least = if cast(low) < low { step(cast(low), true) } else { cast(low) };
    let most = if cast(high) >= high { step(cast(high), false) } else { cast(high) };
    (least, most)
}

impl Stateful for Generator {
    fn state_dict(&self) -> State {
        let stream = lock(&self.stream);
        let mut state = State::new();
        state.insert("seed", stream.seed);
        state.insert("offset", stream.next);
        state
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let mut reader = state.reader();
        let (seed, offset) = (reader.word("seed"), reader.word("offset"));
        reader.finish()?;
        self.set_seed_and_offset(seed, offset);
        Ok(())
    }
}

impl Tensor {
    #[track_caller]
    fn draw(kind: RandomKind, shape: Shape, dtype: DType, rng: &Generator) -> Result<Tensor> {
        crate::tensor::creation::create::check(kind.name(), &shape, dtype, &rng.device)?;
        let (seed, offset) = rng.take(shape.numel() as u64);
        Ok(Tensor::source_unchecked(Op::Random { kind, seed, offset }, shape, dtype, &rng.device))
    }

    #[track_caller]
    fn draw_float(kind: RandomKind, shape: Shape, dtype: DType, rng: &Generator) -> Result<Tensor> {
        if !dtype.is_float() {
            let message = format!("a floating-point dtype is needed, not {dtype}");
            return Err(Error::invalid(kind.name(), message));
        }
        let drawn = Tensor::draw(kind, shape, dtype.compute(), rng)?;
        if !dtype.is_narrow() {
            return Ok(drawn);
        }
        let drawn = match kind {
            // Truncated, because rounding would make 1 of a number below 1.
            RandomKind::Uniform => {
                let steps = 2.0 / dtype.epsilon();
                drawn.mul_scalar(steps).floor().mul_scalar(1.0 / steps)
            }
            RandomKind::Normal | RandomKind::Bits => drawn,
        };
        drawn.to_dtype(dtype)
    }

    /// Uniform numbers on [0, 1), in the default dtype (f32).
    #[track_caller]
    pub fn rand(shape: impl Into<Shape>, rng: &Generator) -> Result<Tensor> {
        Tensor::draw_float(RandomKind::Uniform, shape.into(), default_dtype(), rng)
    }

    /// Standard normal numbers, in the default dtype (f32).
    #[track_caller]
    pub fn randn(shape: impl Into<Shape>, rng: &Generator) -> Result<Tensor> {
        Tensor::draw_float(RandomKind::Normal, shape.into(), default_dtype(), rng)
    }

    /// Uniform numbers on [0, 1) in a floating-point dtype: multiples of 2⁻²⁴ in f32, 2⁻⁵³ in f64, 2⁻¹¹
    /// in f16 and 2⁻⁸ in bf16, as on PyTorch's CPU.
    #[track_caller]
    #[doc(alias = "rand")]
    pub fn rand_dtype(shape: impl Into<Shape>, dtype: DType, rng: &Generator) -> Result<Tensor> {
        Tensor::draw_float(RandomKind::Uniform, shape.into(), dtype, rng)
    }

    /// Standard normal numbers in a floating-point dtype.
    #[track_caller]
    #[doc(alias = "randn")]
    pub fn randn_dtype(shape: impl Into<Shape>, dtype: DType, rng: &Generator) -> Result<Tensor> {
        Tensor::draw_float(RandomKind::Normal, shape.into(), dtype, rng)
    }

    /// Uniform numbers on [low, high), in the default dtype (f32). None is below `low`, and none reaches
    /// `high`, unless both are equal or the dtype has no number between them.
    ///
    /// # Errors
    /// Bounds out of order, or not finite in f32.
    #[track_caller]
    #[doc(alias = "uniform_")]
    pub fn uniform(shape: impl Into<Shape>, low: f64, high: f64, rng: &Generator) -> Result<Tensor> {
        Tensor::uniform_by(shape.into(), low, high, rng)
    }

    #[track_caller]
    fn uniform_by(shape: Shape, low: f64, high: f64, rng: &Generator) -> Result<Tensor> {
        if !(low.abs() <= f64::from(f32::MAX) && high.abs() <= f64::from(f32::MAX) && low <= high) {
            return Err(Error::invalid(
                "uniform",
                format!("from {low} to {high}: give bounds in order that are finite in f32"),
            ));
        }
        let dtype = default_dtype();
        let unit = Tensor::rand_dtype(shape, dtype.compute(), rng)?;
        let width = high - low;
        let drawn = if width <= f64::from(f32::MAX) {
            unit.mul_scalar(width).add_scalar(low)
        } else {
            // The width overflows f32 although the bounds do not: add half widths to the middle.
            let half = high / 2.0 - low / 2.0;
            unit.mul_scalar(2.0).sub_scalar(1.0).mul_scalar(half).add_scalar(low / 2.0 + high / 2.0)
        };
        // A rounded sum may be outside the bounds.
        let (least, most) = within(low, high, dtype);
        drawn.minimum_scalar(most).maximum_scalar(least).to_dtype(dtype)
    }

    /// Integers in [low, high), uniform to within 2⁻³² · (high − low), i64 (i32 on a device without i64).
    ///
    /// # Errors
    /// An empty range, or one wider than 2³¹ − 1.
    #[track_caller]
    pub fn randint(low: i32, high: i32, shape: impl Into<Shape>, rng: &Generator) -> Result<Tensor> {
        Tensor::randint_by(low, high, shape.into(), rng)
    }

    #[track_caller]
    fn randint_by(low: i32, high: i32, shape: Shape, rng: &Generator) -> Result<Tensor> {
        let width = i64::from(high) - i64::from(low);
        if width <= 0 || width > i64::from(i32::MAX) {
            return Err(Error::invalid(
                "randint",
                format!("from {low} to {high}: the range must hold between 1 and {} integers", i32::MAX),
            ));
        }
        let bits = Tensor::draw(RandomKind::Bits, shape, DType::U32, rng)?;
        let width = bits.full_like(width);
        let within = bits.binary(BinaryOp::Remainder, &width)?.to_dtype(DType::I32)?;
        Ok(within.add_scalar(low).as_index())
    }

    /// The numbers 0..n in random order, i64 (i32 on a device without i64).
    ///
    /// # Errors
    /// More numbers than the dtype or the device can hold.
    #[track_caller]
    pub fn randperm(n: usize, rng: &Generator) -> Result<Tensor> {
        const OP: &str = "randperm";
        let dtype = rng.device.int_dtype();
        crate::tensor::creation::create::check(OP, &Shape::from([n]), dtype, &rng.device)?;
        if dtype == DType::I32 && n > i32::MAX as usize {
            return Err(Error::invalid(OP, format!("{n} numbers pass i32")));
        }
        crate::tensor::creation::create::host_index(&rng.permutation(n), Shape::from([n]), &rng.device)
    }
}
