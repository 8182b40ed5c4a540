//! The prediction of times from counts. The rates are those of vendors' data sheets; the other constants are
//! estimates, to be fitted where such a GPU is measured. A prediction compares versions of the code; it does
//! not replace a measurement.

use backend_wgpu::Counts;

/// A GPU as the prediction sees it. Times are in microseconds.
pub(super) struct Gpu {
    pub(super) name: &'static str,
    /// f32 operations per second, a multiply-add as two, in units of 10¹².
    tflops: f64,
    /// Bytes per second of its memory, in units of 10⁹.
    gb_per_s: f64,
    /// A barrier between two dispatches.
    barrier: f64,
    /// The shortest dispatch: a few reads of memory, one after the other.
    dispatch: f64,
    /// The host's work to record a dispatch.
    record: f64,
    /// The host's work to make a bind group.
    bind_group: f64,
    /// The host's work to submit.
    submit: f64,
    /// The time from the end of the last kernel until the host has the bytes.
    read_back: f64,
}

/// The share of the arithmetic peak that kernels reach.
const ARITHMETIC_SHARE: f64 = 0.6;
/// The share of the memory's peak that kernels reach.
const MEMORY_SHARE: f64 = 0.9;

pub(super) const GPUS: &[Gpu] = &[
    Gpu {
        name: "RTX 4070",
        tflops: 29.1,
        gb_per_s: 504.0,
        barrier: 1.5,
        dispatch: 2.0,
        record: 3.0,
        bind_group: 2.0,
        submit: 45.0,
        read_back: 100.0,
    },
    Gpu {
        name: "H100 SXM",
        tflops: 67.0,
        gb_per_s: 3350.0,
        barrier: 1.5,
        dispatch: 2.5,
        record: 3.0,
        bind_group: 2.0,
        submit: 45.0,
        read_back: 100.0,
    },
    Gpu {
        name: "RX 7900 XTX",
        tflops: 30.0,
        gb_per_s: 960.0,
        barrier: 3.0,
        dispatch: 2.5,
        record: 3.0,
        bind_group: 2.0,
        submit: 45.0,
        read_back: 100.0,
    },
    Gpu {
        name: "M2",
        tflops: 3.6,
        gb_per_s: 100.0,
        barrier: 5.0,
        dispatch: 3.0,
        record: 5.0,
        bind_group: 3.0,
        submit: 45.0,
        read_back: 200.0,
    },
    Gpu {
        name: "Iris Xe",
        tflops: 2.1,
        gb_per_s: 60.0,
        barrier: 5.0,
        dispatch: 3.0,
        record: 4.0,
        bind_group: 3.0,
        submit: 45.0,
        read_back: 150.0,
    },
];

impl Gpu {
    /// The predicted microseconds of counted work: `D₀·h + max(Σ t + B·γ, (D - D₀)·h + S·s) + R·ρ`. D₀ is
    /// the number of dispatches recorded before the first of S submissions, h the host's work for each of D
    /// dispatches, B the barriers, R the reads, and t the time of a kernel: that of its arithmetic, of its
    /// bytes or of the shortest dispatch, the longest of the three.
    pub(super) fn microseconds(&self, counts: &Counts) -> f64 {
        let kernels: f64 = counts
            .kernels
            .iter()
            .map(|kernel| {
                let arithmetic = kernel.flops as f64 / (self.tflops * ARITHMETIC_SHARE * 1e6);
                let memory = kernel.bytes as f64 / (self.gb_per_s * MEMORY_SHARE * 1e3);
                arithmetic.max(memory).max(kernel.dispatches as f64 * self.dispatch)
            })
            .sum();
        let on_device = kernels + counts.hazards as f64 * self.barrier;
        let dispatches = counts.dispatches.max(1) as f64;
        let per_dispatch = self.record + counts.bind_groups as f64 / dispatches * self.bind_group;
        let before = counts.before_first as f64;
        let on_host = (dispatches - before) * per_dispatch + counts.submissions as f64 * self.submit;
        before * per_dispatch + on_device.max(on_host) + counts.read_backs as f64 * self.read_back
    }
}
