//! The inner loops: a function applied along one, two or three blocks, and folds.
//!
//! The loops are as plain as possible, one position per iteration, so that compilers vectorise them. An
//! output may be an operand's own memory. That case has its own loop, where the compiler sees that both are
//! one address. With [`Sets::ONE_FORM`] there is one loop for all cases, whose results pass through a local
//! buffer.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use crate::simd::isa::{Isa, Job, Sets};

/// Results in the buffer of a short loop.
const BUFFERED: usize = 256;

macro_rules! looped {
    ($name:ident, $job:ident, $short:ident, $($T:ident $ptr:ident),+) => {
        struct $job<$($T,)+ O, F> { $($ptr: *const $T,)+ out: *mut O, n: usize, f: F }

        impl<$($T: Copy,)+ O: Copy, F: Fn($($T),+) -> O> $job<$($T,)+ O, F> {
            #[inline(always)]
            fn each(self) {
                for i in 0..self.n {
                    // SAFETY: `$name`'s `# Safety` gives `n` elements behind each pointer; if `out` is an
                    // operand, position i < n is read before it is written.
                    unsafe { self.out.add(i).write((self.f)($(self.$ptr.add(i).read()),+)) };
                }
            }
        }

        impl<$($T: Copy,)+ O: Copy, F: Fn($($T),+) -> O> Job for $job<$($T,)+ O, F> {
            type Output = ();
            #[inline(always)]
            fn run(self) {
                let out = self.out.cast_const();
                $(
                    if self.$ptr.cast() == out {
                        return $job { $ptr: out.cast(), ..self }.each();
                    }
                )+
                self.each();
            }
        }

        struct $short<$($T,)+ O, F>($job<$($T,)+ O, F>);

        impl<$($T: Copy,)+ O: Copy, F: Fn($($T),+) -> O> Job for $short<$($T,)+ O, F> {
            type Output = ();
            #[inline(always)]
            fn run(self) {
                let job = self.0;
                let mut results = [const { MaybeUninit::<O>::uninit() }; BUFFERED];
                let mut start = 0;
                while start < job.n {
                    let n = BUFFERED.min(job.n - start);
                    for i in 0..n {
                        // SAFETY: `$name`'s `# Safety` gives `job.n` elements behind each pointer.
                        results[i].write((job.f)($(unsafe { job.$ptr.add(start + i).read() }),+));
                    }
                    // SAFETY: `out` is valid for `job.n` elements; the n results' operands are read already.
                    unsafe {
                        std::ptr::copy_nonoverlapping(results.as_ptr().cast(), job.out.add(start), n);
                    }
                    start += n;
                }
            }
        }

        /// `out[i] = f(…[i])` for i < n.
        ///
        /// # Safety
        /// Each pointer is valid for `n` initialised elements and aligned. `out` may equal an operand of
        /// the same element size; otherwise it does not overlap any operand.
        #[inline]
        #[allow(clippy::too_many_arguments)]
        pub(crate) unsafe fn $name<$($T: Copy,)+ O: Copy>(
            sets: impl Sets, $($ptr: *const $T,)+ out: *mut O, n: usize, f: impl Fn($($T),+) -> O,
        ) {
            fn choose<S: Sets, $($T: Copy,)+ O: Copy>(sets: S, job: $job<$($T,)+ O, impl Fn($($T),+) -> O>) {
                if S::ONE_FORM { sets.run($short(job)) } else { sets.run(job) }
            }
            choose(sets, $job { $($ptr,)+ out, n, f });
        }
    };
}

looped!(map1, Map1, Short1, A a);
looped!(map2, Map2, Short2, A a, B b);
looped!(map3, Map3, Short3, A a, B b, C c);
looped!(map4, Map4, Short4, A a, B b, C c, D d);

/// A function of two operands that is correct for most of them, with a fallback for the rest.
struct Checked<T, F, H, G> {
    a: *const T,
    b: *const T,
    out: *mut T,
    n: usize,
    f: F,
    holds: H,
    otherwise: G,
}

impl<T: Copy, F: Fn(T, T) -> T, H: Fn(T, T) -> bool, G: Fn(T, T) -> T> Job for Checked<T, F, H, G> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let mut results = [const { MaybeUninit::<T>::uninit() }; BUFFERED];
        for start in (0..self.n).step_by(BUFFERED) {
            let n = BUFFERED.min(self.n - start);
            // SAFETY: `map2_checked`'s `# Safety` gives `self.n` elements behind each pointer.
            let at = |i: usize| unsafe { (self.a.add(start + i).read(), self.b.add(start + i).read()) };
            let mut others = 0u32;
            for (i, result) in results.iter_mut().enumerate().take(n) {
                let (a, b) = at(i);
                others |= u32::from(!(self.holds)(a, b));
                result.write((self.f)(a, b));
            }
            if others != 0 {
                for (i, result) in results.iter_mut().enumerate().take(n) {
                    let (a, b) = at(i);
                    if !(self.holds)(a, b) {
                        result.write((self.otherwise)(a, b));
                    }
                }
            }
            // SAFETY: `out` is valid for `self.n` elements; the n results' operands are read already.
            unsafe { std::ptr::copy_nonoverlapping(results.as_ptr().cast(), self.out.add(start), n) };
        }
    }
}

/// `out[i] = f(a[i], b[i])` if `holds(a[i], b[i])`, else `otherwise(a[i], b[i])`. `f` is computed for all
/// elements, so that it vectorises.
///
/// # Safety
/// As [`map2`].
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn map2_checked<T: Copy>(
    sets: impl Sets,
    a: *const T,
    b: *const T,
    out: *mut T,
    n: usize,
    f: impl Fn(T, T) -> T,
    holds: impl Fn(T, T) -> bool,
    otherwise: impl Fn(T, T) -> T,
) {
    sets.run(Checked { a, b, out, n, f, holds, otherwise });
}

/// A fold in `N` lanes.
struct FoldLanes<const N: usize, T, A, F, G> {
    data: *const T,
    n: usize,
    start: A,
    f: F,
    join: G,
}

/// Accumulators of a long run, enough that compilers vectorise the loop over them; and of a short run, which
/// would spend most of its time joining more.
const LANES: usize = 64;
const SHORT_RUN_LANES: usize = 8;
/// Accumulators that fill a register.
const REGISTER: usize = 16;

impl<const N: usize, T: Copy, A: Copy, F: Fn(A, T) -> A, G: Fn(A, A) -> A> Job for FoldLanes<N, T, A, F, G> {
    type Output = A;
    #[inline(always)]
    fn run(self) -> A {
        let mut lanes = [self.start; N];
        let whole = self.n / N;
        for i in 0..whole {
            // SAFETY: chunk i < `whole` is within the `self.n` aligned elements of `fold`'s `# Safety`.
            let chunk: [T; N] = unsafe { self.data.cast::<[T; N]>().add(i).read() };
            for j in 0..N {
                lanes[j] = (self.f)(lanes[j], chunk[j]);
            }
        }
        // Less than one iteration is left: whole registers first, then single elements.
        let left = self.n - whole * N;
        for k in 0..N / REGISTER {
            if left >= (k + 1) * REGISTER {
                // SAFETY: the chunk is among the last `left` elements, as the condition checks.
                let chunk: [T; REGISTER] =
                    unsafe { self.data.add(whole * N + k * REGISTER).cast::<[T; REGISTER]>().read() };
                for j in 0..REGISTER {
                    lanes[k * REGISTER + j] = (self.f)(lanes[k * REGISTER + j], chunk[j]);
                }
            }
        }
        let mut rest = self.start;
        for i in self.n - left % REGISTER.min(N)..self.n {
            // SAFETY: i < `self.n`, the count of aligned elements that `fold`'s `# Safety` gives.
            rest = (self.f)(rest, unsafe { self.data.add(i).read() });
        }
        lanes[0] = (self.join)(lanes[0], rest);
        // The lanes are joined pairwise, half onto half.
        let mut width = N / 2;
        while width > 0 {
            for j in 0..width {
                lanes[j] = (self.join)(lanes[j], lanes[j + width]);
            }
            width /= 2;
        }
        lanes[0]
    }
}

/// Folds `n` elements on one of `sets`: with `f` in interleaved accumulators from `start`, and then
/// pairwise with `join`. The order depends only on `n`, not on the instruction set.
///
/// # Safety
/// `data` is valid for `n` initialised elements and aligned.
pub(crate) unsafe fn fold<T: Copy, A: Copy>(
    isa: Isa,
    sets: impl Sets,
    data: *const T,
    n: usize,
    start: A,
    f: impl Fn(A, T) -> A,
    join: impl Fn(A, A) -> A,
) -> A {
    if n < LANES {
        // Few lanes do not fill a wider register.
        isa.narrow().run(FoldLanes::<SHORT_RUN_LANES, _, _, _, _> { data, n, start, f, join })
    } else {
        sets.run(FoldLanes::<LANES, _, _, _, _> { data, n, start, f, join })
    }
}

/// [`fold`] for operations whose order does not matter, as for integers.
///
/// # Safety
/// As [`fold`].
pub(crate) unsafe fn fold_any_order<T: Copy, A: Copy>(
    isa: Isa,
    data: *const T,
    n: usize,
    start: A,
    f: impl Fn(A, T) -> A,
    join: impl Fn(A, A) -> A,
) -> A {
    const FOLD_LANES: usize = 16;
    isa.narrow().run(FoldLanes::<FOLD_LANES, _, _, _, _> { data, n, start, f, join })
}

/// The number that a comparison keeps, in `N` lanes, and the greatest bit pattern without signs.
struct ExtremeLanes<const N: usize, F> {
    data: *const f32,
    n: usize,
    start: f32,
    pick: F,
}

impl<const N: usize, F: Fn(f32, f32) -> f32> Job for ExtremeLanes<N, F> {
    type Output = (f32, u32);
    #[inline(always)]
    fn run(self) -> (f32, u32) {
        let (mut lanes, mut tops) = ([self.start; N], [0u32; N]);
        let bits = |v: f32| v.to_bits() & (u32::MAX >> 1);
        let whole = self.n / N;
        for i in 0..whole {
            // SAFETY: chunk i < `whole` is within the `self.n` aligned elements of `fold_extreme`'s
            // `# Safety`.
            let chunk: [f32; N] = unsafe { self.data.cast::<[f32; N]>().add(i).read() };
            for j in 0..N {
                lanes[j] = (self.pick)(lanes[j], chunk[j]);
                tops[j] = tops[j].max(bits(chunk[j]));
            }
        }
        for (j, i) in (whole * N..self.n).enumerate() {
            // SAFETY: i < `self.n`, the count of aligned elements that `fold_extreme`'s `# Safety` gives.
            let v = unsafe { self.data.add(i).read() };
            lanes[j % N] = (self.pick)(lanes[j % N], v);
            tops[j % N] = tops[j % N].max(bits(v));
        }
        let mut width = N / 2;
        while width > 0 {
            for j in 0..width {
                lanes[j] = (self.pick)(lanes[j], lanes[j + width]);
                tops[j] = tops[j].max(tops[j + width]);
            }
            width /= 2;
        }
        (lanes[0], tops[0])
    }
}

/// The one of `n` numbers and `start` that `pick`, a comparison, keeps; or a NaN if there is one. A
/// comparison that propagates NaN takes four instructions. This takes one, and two more to find the
/// greatest bit pattern, which is a NaN's if there is one. The order depends only on `n`.
///
/// # Safety
/// As [`fold`].
pub(crate) unsafe fn fold_extreme(
    isa: Isa,
    data: *const f32,
    n: usize,
    start: f32,
    pick: impl Fn(f32, f32) -> f32,
) -> f32 {
    const FOLD_LANES: usize = 32;
    let (extreme, top) = isa.narrow().run(ExtremeLanes::<FOLD_LANES, _> { data, n, start, pick });
    if top > f32::INFINITY.to_bits() { f32::from_bits(top) } else { extreme }
}

struct Accumulate<'a, T, A, F> {
    sums: &'a mut [A],
    data: *const T,
    stride: usize,
    rows: usize,
    f: F,
}

impl<T: Copy, A: Copy, F: Fn(A, T) -> A> Accumulate<'_, T, A, F> {
    /// Adds `R` rows from row `row` on, in order.
    #[inline(always)]
    fn rows<const R: usize>(&mut self, row: usize) {
        let data = self.data.wrapping_add(row * self.stride);
        for (i, sum) in self.sums.iter_mut().enumerate() {
            let mut total = *sum;
            for r in 0..R {
                // SAFETY: `accumulate`'s `# Safety` gives element i < `sums.len()` of row `row` + r < `rows`.
                total = (self.f)(total, unsafe { data.wrapping_add(r * self.stride + i).read() });
            }
            *sum = total;
        }
    }
}

impl<T: Copy, A: Copy, F: Fn(A, T) -> A> Job for Accumulate<'_, T, A, F> {
    type Output = ();
    #[inline(always)]
    fn run(mut self) {
        let mut row = 0;
        while row + 4 <= self.rows {
            self.rows::<4>(row);
            row += 4;
        }
        while row < self.rows {
            self.rows::<1>(row);
            row += 1;
        }
    }
}

/// `sums[i] = f(sums[i], data[r · stride + i])` for each row r < rows in order.
///
/// # Safety
/// The `rows` rows, which start `stride` elements apart, each hold as many initialised, aligned elements as
/// there are sums. The sums are not among them.
pub(crate) unsafe fn accumulate<T: Copy, A: Copy>(
    sets: impl Sets,
    sums: &mut [A],
    data: *const T,
    stride: usize,
    rows: usize,
    f: impl Fn(A, T) -> A,
) {
    sets.run(Accumulate { sums, data, stride, rows, f });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::isa::Short;

    /// Every allowed aliasing of an output with an operand, on every instruction set, for lengths with and
    /// without a rest.
    #[test]
    fn outputs_in_place_and_apart_agree() {
        for isa in Isa::available() {
            for n in (0..140).chain([1000, 1024]) {
                let a: Vec<f32> = (0..n).map(|i| i as f32 - 7.5).collect();
                let b: Vec<u32> = (0..n as u32).map(|i| i * i).collect();
                let c: Vec<i32> = (0..n as i32).map(|i| 3 - i).collect();
                let two = |a: f32, b: u32| a * 2.0 + b as f32;
                let three = |a: f32, b: u32, c: i32| a - b as f32 * c as f32;
                let expected2: Vec<f32> = a.iter().zip(&b).map(|(&a, &b)| two(a, b)).collect();
                let expected3: Vec<f32> = (0..n).map(|i| three(a[i], b[i], c[i])).collect();
                let mut apart = vec![0f32; n];
                let (mut a2, mut b2, mut a3, mut b3, mut c3) =
                    (a.clone(), b.clone(), a.clone(), b.clone(), c.clone());
                // SAFETY: all hold n elements of 4 bytes; an output equals an operand or does not overlap.
                unsafe {
                    let (pa, pb, pc) = (a.as_ptr(), b.as_ptr(), c.as_ptr());
                    map2(isa, pa, pb, apart.as_mut_ptr(), n, two);
                    assert_eq!(apart, expected2);
                    let mut short = vec![0f32; n];
                    map2(isa.narrow(), pa, pb, short.as_mut_ptr(), n, two);
                    assert_eq!(short, expected2);
                    short.copy_from_slice(&a);
                    let p = short.as_mut_ptr();
                    map3(Short(isa), p, pb, pc, p, n, three);
                    assert_eq!(short, expected3);
                    let p = a2.as_mut_ptr();
                    map2(isa, p, pb, p, n, two);
                    let p = b2.as_mut_ptr();
                    map2(isa, pa, p, p.cast::<f32>(), n, two);
                    map3(isa, pa, pb, pc, apart.as_mut_ptr(), n, three);
                    assert_eq!(apart, expected3);
                    let p = a3.as_mut_ptr();
                    map3(isa, p, pb, pc, p, n, three);
                    let p = b3.as_mut_ptr();
                    map3(isa, pa, p, pc, p.cast::<f32>(), n, three);
                    let p = c3.as_mut_ptr();
                    map3(isa, pa, pb, p, p.cast::<f32>(), n, three);
                    let mut squares = a.clone();
                    let p = squares.as_mut_ptr();
                    map2(isa, p, p, p, n, |a: f32, b: f32| a * b);
                    assert!(squares.iter().zip(&a).all(|(s, a)| *s == a * a));
                }
                let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
                assert_eq!((a2, a3), (expected2.clone(), expected3.clone()));
                assert_eq!(b2, bits(&expected2));
                assert_eq!(b3, bits(&expected3));
                assert_eq!(c3.iter().map(|&c| c as u32).collect::<Vec<_>>(), bits(&expected3));
            }
        }
    }

    /// Data of any length, with a NaN at any position or none, zeros of both signs and infinities.
    #[test]
    fn extremes_are_found_with_and_without_nan() {
        let numbers = [0.5f32, -0.0, 0.0, 3.25, f32::INFINITY, -7.0, f32::NEG_INFINITY, f32::MAX];
        for n in (0..140).chain([1000]) {
            let mut data: Vec<f32> = (0..n).map(|i| numbers[(i * 5 + n) % 8]).collect();
            let greatest = data.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let least = data.iter().copied().fold(f32::INFINITY, f32::min);
            let find = |data: &[f32], isa| {
                let (at, n) = (data.as_ptr(), data.len());
                // SAFETY: `data` is a slice of n numbers.
                unsafe {
                    let max = fold_extreme(isa, at, n, f32::NEG_INFINITY, |a, v| if v > a { v } else { a });
                    (max, fold_extreme(isa, at, n, f32::INFINITY, |a, v| if v < a { v } else { a }))
                }
            };
            let bits = |(max, min): (f32, f32)| (max.to_bits(), min.to_bits());
            let first = bits(find(&data, Isa::available()[0]));
            for isa in Isa::available() {
                assert_eq!(find(&data, isa), (greatest, least), "{n} numbers, {isa:?}");
                assert_eq!(bits(find(&data, isa)), first, "{n} numbers, {isa:?}");
            }
            for at in (0..n).step_by(7) {
                for nan in [f32::NAN, -f32::NAN] {
                    let number = std::mem::replace(&mut data[at], nan);
                    for isa in Isa::available() {
                        let (max, min) = find(&data, isa);
                        assert!(max.is_nan() && min.is_nan(), "a NaN at {at} of {n}, {isa:?}");
                    }
                    data[at] = number;
                }
            }
        }
    }
}
