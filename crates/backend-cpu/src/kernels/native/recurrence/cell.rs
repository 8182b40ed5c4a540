//! The elementwise part of a step, after the products: activations, the next state, and their derivatives.
#![allow(unsafe_code)]

use tensor_core::RecurrentCell;

use crate::{
    kernels::product::kernel_table::HasMicroKernels,
    simd::{
        isa::{Isa, Job, Plain, Sets},
        math,
    },
};

/// f32 and f64.
pub(super) trait Activation: HasMicroKernels {
    fn sigmoid<const FUSED: bool>(self) -> Self;
    fn tanh<const FUSED: bool>(self) -> Self;
}

impl Activation for f32 {
    #[inline(always)]
    fn sigmoid<const FUSED: bool>(self) -> f32 {
        math::sigmoid::<FUSED>(self)
    }
    #[inline(always)]
    fn tanh<const FUSED: bool>(self) -> f32 {
        math::tanh::<FUSED>(self)
    }
}

impl Activation for f64 {
    #[inline(always)]
    fn sigmoid<const FUSED: bool>(self) -> f64 {
        // e^−|x| never overflows.
        let e = (-self.abs()).exp();
        if self < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
    }
    #[inline(always)]
    fn tanh<const FUSED: bool>(self) -> f64 {
        f64::tanh(self)
    }
}

/// Elements that are gone through together, for the compiler to put into registers; what is left over goes
/// one by one.
const WIDTH: usize = 16;

/// # Safety
/// `at` holds `W` initialised numbers.
#[inline(always)]
unsafe fn read<T: Copy, const W: usize>(at: *const T) -> [T; W] {
    // SAFETY: `at` holds `W` numbers by `# Safety`, and the read may be unaligned.
    unsafe { at.cast::<[T; W]>().read_unaligned() }
}

/// # Safety
/// `at` has room for `W` numbers, and nothing else accesses them.
#[inline(always)]
unsafe fn write<T, const W: usize>(at: *mut T, numbers: [T; W]) {
    // SAFETY: `at` has room for `W` numbers by `# Safety`, and the write may be unaligned.
    unsafe { at.cast::<[T; W]>().write_unaligned(numbers) };
}

/// The elementwise sum of `W` numbers at `a` and `b`.
///
/// # Safety
/// Both addresses hold `W` initialised numbers.
#[inline(always)]
unsafe fn sum<T: Activation, const W: usize>(a: *const T, b: *const T) -> [T; W] {
    // SAFETY: both addresses hold `W` numbers by `# Safety`.
    let (mut sum, b): ([T; W], [T; W]) = unsafe { (read(a), read(b)) };
    for l in 0..W {
        sum[l] = sum[l] + b[l];
    }
    sum
}

#[inline(always)]
fn sigmoid<T: Activation, const FUSED: bool, const W: usize>(mut numbers: [T; W]) -> [T; W] {
    for x in &mut numbers {
        *x = x.sigmoid::<FUSED>();
    }
    numbers
}

#[inline(always)]
fn tanh<T: Activation, const FUSED: bool, const W: usize>(mut numbers: [T; W]) -> [T; W] {
    for x in &mut numbers {
        *x = x.tanh::<FUSED>();
    }
    numbers
}

/// An operation on the elements of a step, each independent of the others.
trait Elements {
    fn count(&self) -> usize;

    /// Processes `W` elements from number `at` on.
    ///
    /// # Safety
    /// `at + W` is at most the count, and the pointers are valid for that many elements of each part that
    /// the cell has.
    unsafe fn some<const W: usize>(&self, at: usize);
}

/// All elements of a step.
struct All<E>(E);

impl<E: Elements> Job for All<E> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let n = self.0.count();
        let mut at = 0;
        // SAFETY: `at + W` is at most the count here, and `forward` and `backward` have valid pointers for
        // all elements, by their own `# Safety`.
        unsafe {
            while at + WIDTH <= n {
                self.0.some::<WIDTH>(at);
                at += WIDTH;
            }
            while at < n {
                self.0.some::<1>(at);
                at += 1;
            }
        }
    }
}

/// One step of `count` neighbouring elements of one sequence's state. Pointers are to the first of them;
/// the parts of a gate buffer are `size` apart. A pointer to something that the cell does not have is not
/// used.
#[derive(Clone, Copy)]
pub(super) struct Next<T> {
    pub(super) count: usize,
    pub(super) size: usize,
    /// The input's contribution to the gates.
    pub(super) gates: *const T,
    /// The state's contribution to the gates, replaced by the activations, which the backward pass needs.
    /// For a cell with one part this is `hidden`.
    pub(super) work: *mut T,
    pub(super) before: *const T,
    pub(super) hidden: *mut T,
    /// The cell state, updated in place.
    pub(super) cell: *mut T,
}

struct Forward<T, const FUSED: bool>(RecurrentCell, Next<T>);

impl<T: Activation, const FUSED: bool> Elements for Forward<T, FUSED> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.1.count
    }

    #[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
    #[inline(always)]
    unsafe fn some<const W: usize>(&self, at: usize) {
        let Forward(cell, Next { size, gates, work, before, hidden, cell: of_cell, .. }) = *self;
        // SAFETY: by `# Safety` each pointer that this cell uses has elements `at..at + W` in every part of
        // it; the parts are `size` apart.
        unsafe {
            let (gates, work) = (gates.add(at), work.add(at));
            let mut h = [T::ZERO; W];
            match cell {
                RecurrentCell::Tanh => h = tanh::<T, FUSED, W>(sum(work, gates)),
                RecurrentCell::Relu => {
                    let sum: [T; W] = sum(work, gates);
                    for l in 0..W {
                        // NaN stays.
                        h[l] = if sum[l] < T::ZERO { T::ZERO } else { sum[l] };
                    }
                }
                RecurrentCell::Lstm => {
                    let i = sigmoid::<T, FUSED, W>(sum(work, gates));
                    write(work, i);
                    let f = sigmoid::<T, FUSED, W>(sum(work.add(size), gates.add(size)));
                    write(work.add(size), f);
                    let g = tanh::<T, FUSED, W>(sum(work.add(2 * size), gates.add(2 * size)));
                    write(work.add(2 * size), g);
                    let mut c: [T; W] = read(of_cell.add(at));
                    for l in 0..W {
                        c[l] = f[l] * c[l] + i[l] * g[l];
                    }
                    write(of_cell.add(at), c);
                    let o = sigmoid::<T, FUSED, W>(sum(work.add(3 * size), gates.add(3 * size)));
                    write(work.add(3 * size), o);
                    let shown = tanh::<T, FUSED, W>(c);
                    for l in 0..W {
                        h[l] = o[l] * shown[l];
                    }
                }
                RecurrentCell::Gru => {
                    let r = sigmoid::<T, FUSED, W>(sum(work, gates));
                    let z = sigmoid::<T, FUSED, W>(sum(work.add(size), gates.add(size)));
                    write(work, r);
                    write(work.add(size), z);
                    let mut fresh: [T; W] = read(work.add(3 * size));
                    let of_input: [T; W] = read(gates.add(2 * size));
                    for l in 0..W {
                        fresh[l] = of_input[l] + r[l] * fresh[l];
                    }
                    fresh = tanh::<T, FUSED, W>(fresh);
                    write(work.add(2 * size), fresh);
                    let before: [T; W] = read(before.add(at));
                    for l in 0..W {
                        h[l] = fresh[l] + z[l] * (before[l] - fresh[l]);
                    }
                }
            }
            write(hidden.add(at), h);
        }
    }
}

/// Computes a step whose sums are complete.
///
/// # Safety
/// The pointers are valid for `count` elements of each part that the cell has. They are initialised, except
/// the next state, and nothing else accesses the ones that are written.
pub(super) unsafe fn forward<T: Activation>(isa: Isa, cell: RecurrentCell, next: Next<T>) {
    match isa.fused() {
        Some(fused) => fused.run(All(Forward::<T, true>(cell, next))),
        None => Plain.run(All(Forward::<T, false>(cell, next))),
    }
}

/// The backward step, for elements as in [`Next`].
#[derive(Clone, Copy)]
pub(super) struct Gradient<T> {
    pub(super) count: usize,
    pub(super) size: usize,
    /// The state before and after the step, the kept activations, and the cell state before and after.
    pub(super) before: *const T,
    pub(super) hidden: *const T,
    pub(super) kept: *const T,
    pub(super) cell_before: *const T,
    pub(super) cell: *const T,
    /// Gradients with respect to the state after the step. `of_output` is the output's gradient.
    /// `of_hidden` holds the gradient from the next step; the step replaces it by the gradient for the step
    /// before, without the contribution through the weight. `of_cell` does the same for the cell state.
    pub(super) of_output: *const T,
    pub(super) of_hidden: *mut T,
    pub(super) of_cell: *mut T,
    /// Gradients with respect to the gates, and to the state's contribution to them if that differs.
    pub(super) of_gates: *mut T,
    pub(super) of_state: *mut T,
}

struct Backward<T, const FUSED: bool>(RecurrentCell, Gradient<T>);

impl<T: Activation, const FUSED: bool> Elements for Backward<T, FUSED> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.1.count
    }

    #[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
    #[inline(always)]
    unsafe fn some<const W: usize>(&self, at: usize) {
        let Backward(cell, step) = self;
        let size = step.size;
        // SAFETY: by `# Safety` each pointer that this cell uses has elements `at..at + W` in every part of
        // it; the parts are `size` apart.
        unsafe {
            let (kept, of_gates, of_state) =
                (step.kept.wrapping_add(at), step.of_gates.add(at), step.of_state.add(at));
            let mut all: [T; W] = read(step.of_output.add(at));
            let from_next: [T; W] = read(step.of_hidden.add(at));
            for l in 0..W {
                all[l] = all[l] + from_next[l];
            }
            // The part of the gradient that reaches the previous state directly.
            let mut direct = [T::ZERO; W];
            match cell {
                RecurrentCell::Tanh => {
                    let h: [T; W] = read(step.hidden.add(at));
                    for l in 0..W {
                        all[l] = all[l] * (T::ONE - h[l] * h[l]);
                    }
                    write(of_gates, all);
                }
                RecurrentCell::Relu => {
                    let h: [T; W] = read(step.hidden.add(at));
                    for l in 0..W {
                        all[l] = if h[l] > T::ZERO { all[l] } else { T::ZERO };
                    }
                    write(of_gates, all);
                }
                RecurrentCell::Lstm => {
                    let i: [T; W] = read(kept);
                    let f: [T; W] = read(kept.add(size));
                    let g: [T; W] = read(kept.add(2 * size));
                    let o: [T; W] = read(kept.add(3 * size));
                    let before: [T; W] = read(step.cell_before.add(at));
                    let shown = tanh::<T, FUSED, W>(read(step.cell.add(at)));
                    let mut of_cell: [T; W] = read(step.of_cell.add(at));
                    let mut to = [[T::ZERO; W]; 4];
                    for l in 0..W {
                        let of_c = of_cell[l] + all[l] * o[l] * (T::ONE - shown[l] * shown[l]);
                        to[0][l] = of_c * g[l] * (i[l] * (T::ONE - i[l]));
                        to[1][l] = of_c * before[l] * (f[l] * (T::ONE - f[l]));
                        to[2][l] = of_c * i[l] * (T::ONE - g[l] * g[l]);
                        to[3][l] = all[l] * shown[l] * (o[l] * (T::ONE - o[l]));
                        of_cell[l] = of_c * f[l];
                    }
                    for k in 0..4 {
                        write(of_gates.add(k * size), to[k]);
                    }
                    write(step.of_cell.add(at), of_cell);
                }
                RecurrentCell::Gru => {
                    let r: [T; W] = read(kept);
                    let z: [T; W] = read(kept.add(size));
                    let fresh: [T; W] = read(kept.add(2 * size));
                    let of_product: [T; W] = read(kept.add(3 * size));
                    let before: [T; W] = read(step.before.add(at));
                    let mut to = [[T::ZERO; W]; 4];
                    for l in 0..W {
                        let of_fresh = all[l] * (T::ONE - z[l]) * (T::ONE - fresh[l] * fresh[l]);
                        to[0][l] = of_fresh * of_product[l] * (r[l] * (T::ONE - r[l]));
                        to[1][l] = all[l] * (before[l] - fresh[l]) * (z[l] * (T::ONE - z[l]));
                        to[2][l] = of_fresh;
                        to[3][l] = of_fresh * r[l];
                        direct[l] = all[l] * z[l];
                    }
                    for k in 0..3 {
                        write(of_gates.add(k * size), to[k]);
                        write(of_state.add(k * size), if k == 2 { to[3] } else { to[k] });
                    }
                }
            }
            write(step.of_hidden.add(at), direct);
        }
    }
}

/// Computes one backward step.
///
/// # Safety
/// As [`forward`], for the gradients that are written.
pub(super) unsafe fn backward<T: Activation>(isa: Isa, cell: RecurrentCell, step: Gradient<T>) {
    match isa.fused() {
        Some(fused) => fused.run(All(Backward::<T, true>(cell, step))),
        None => Plain.run(All(Backward::<T, false>(cell, step))),
    }
}
