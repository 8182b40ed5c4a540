//! The limits of the machine, measured in the same run as the cases: multiply-adds in registers, and bytes
//! copied.

use std::{hint::black_box, time::Instant};

use crate::{
    fma::Spinner,
    line::{Line, Times},
    round,
};

/// Bytes of the array that is copied: far more than any cache holds.
const COPY_BYTES: usize = 256 << 20;
/// Measurements of each limit.
const REPS: usize = 12;

/// The machine's limits with the given number of threads, and the lines that report them.
pub(crate) struct Machine {
    pub(crate) peak_gflops: f64,
    pub(crate) copy_gb_per_s: f64,
    pub(crate) lines: [Line; 2],
}

impl Machine {
    pub(crate) const CASES: [&str; 2] = ["machine_peak_fma", "machine_copy"];

    /// Measures both limits, each by the best of a dozen runs: a limit that is set too high only makes our
    /// share smaller.
    pub(crate) fn measure(seconds: f64) -> Machine {
        let (fma, instructions, flop) = peak(seconds);
        let peak_gflops = flop / fma.min() / 1e6;
        let (copy, bytes) = copy(seconds);
        let copy_gb_per_s = bytes / copy.min() / 1e6;
        let mut peak_line = Line::timed("taper", Self::CASES[0], &fma);
        peak_line.gflops = Some(round(peak_gflops, 1));
        peak_line.extra.insert("instructions".into(), instructions.into());
        let mut copy_line = Line::timed("taper", Self::CASES[1], &copy);
        copy_line.gb_per_s = Some(round(copy_gb_per_s, 2));
        Machine { peak_gflops, copy_gb_per_s, lines: [peak_line, copy_line] }
    }
}

/// Times of fused multiply-adds on every thread, the instruction set, and the operations of one run.
fn peak(seconds: f64) -> (Times, &'static str, f64) {
    let spinner = Spinner::best();
    let everywhere = |rounds| {
        let start = Instant::now();
        rayon::broadcast(|_| spinner.spin(rounds));
        start.elapsed().as_secs_f64()
    };
    everywhere(1000);
    // A run long enough that waking the threads does not count, short enough to find an undisturbed one.
    let probe = 200_000;
    let target = (seconds / REPS as f64).min(0.02);
    let rounds = ((probe as f64 * target / everywhere(probe).max(1e-9)) as u64).max(1000);
    let times = Times::of((0..REPS).map(|_| everywhere(rounds) * 1e3).collect());
    (times, spinner.name, spinner.flop(rounds) * rayon::current_num_threads() as f64)
}

/// Times of one large copy shared among the threads, and its bytes: those read and those written.
fn copy(seconds: f64) -> (Times, f64) {
    let bytes = if seconds < 0.1 { COPY_BYTES / 16 } else { COPY_BYTES };
    let numel = bytes / size_of::<f32>();
    // Written with something, so that every page exists.
    let source: Vec<f32> = (0..numel).map(|i| i as f32).collect();
    let mut target = vec![1.0_f32; numel];
    let part = numel.div_ceil(rayon::current_num_threads());
    let mut all_threads = || {
        let start = Instant::now();
        rayon::scope(|scope| {
            for (to, from) in target.chunks_mut(part).zip(source.chunks(part)) {
                scope.spawn(move |_| to.copy_from_slice(black_box(from)));
            }
        });
        black_box(&mut target);
        start.elapsed().as_secs_f64() * 1e3
    };
    all_threads();
    let times = Times::of((0..REPS).map(|_| all_threads()).collect());
    (times, 2.0 * bytes as f64)
}
