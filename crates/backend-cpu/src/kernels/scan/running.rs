//! Running sums and running extremes along contiguous lines, eight elements at a time; threads share the
//! pieces of a long line. The bits do not depend on the number of threads: each piece is scanned from a
//! fresh state, and the state of all earlier pieces is joined to each of its results.
#![allow(unsafe_code)]

use std::{
    marker::PhantomData,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use crate::{
    memory::strided::Shared,
    simd::{
        isa::{Isa, Job},
        order::{Ordered, opposite},
    },
    threads,
    tuning::{SCAN_PIECE_ELEMENTS, SPIN_LOOKS},
};

/// Elements that are joined together.
const WIDTH: usize = 8;

/// An associative operation that runs along a line.
pub(crate) trait Running: Send + Sync {
    type Item: Copy;
    type State: Copy;
    /// The destination of results: the address of the first.
    type To: Copy + Send + Sync;
    /// The neutral state.
    const NEUTRAL: Self::State;
    /// The state of a single element; `position` counts the elements processed before it.
    fn open(x: Self::Item, position: usize) -> Self::State;
    fn join(earlier: Self::State, later: Self::State) -> Self::State;
    /// Stores the results for the states of contiguous elements, from offset `at` on. For a reversed line,
    /// `last` is the position of the line's end.
    ///
    /// # Safety
    /// `line` is the address of the line's first element. The line has `N` elements from offset `at` on,
    /// and `to` has room for their results. Each state is joined from elements of the line.
    unsafe fn store<const N: usize>(
        line: Shared<Self::Item>,
        to: Self::To,
        at: isize,
        states: [Self::State; N],
        last: Option<usize>,
    );
    fn to_bits(state: Self::State) -> u64;
    fn from_bits(bits: u64) -> Self::State;
}

/// Stores `close(state)` for each state.
///
/// # Safety
/// `to` has room for `N` results from offset `at` on, and nothing else accesses them.
#[inline(always)]
pub(crate) unsafe fn close<S: Copy, T: Copy + Default, const N: usize>(
    to: Shared<T>,
    at: isize,
    states: [S; N],
    close: impl Fn(S) -> T,
) {
    let mut results = [T::default(); N];
    for (result, state) in results.iter_mut().zip(states) {
        *result = close(state);
    }
    // SAFETY: `to` has room for `N` results from offset `at` on, by `# Safety`; the write may be unaligned.
    unsafe { to.at(at).cast::<[T; N]>().write_unaligned(results) };
}

/// Sums in f64.
pub(crate) struct Sum;

impl Running for Sum {
    type Item = f32;
    type State = f64;
    type To = Shared<f32>;
    const NEUTRAL: f64 = -0.0;

    #[inline(always)]
    fn open(x: f32, _: usize) -> f64 {
        f64::from(x)
    }

    #[inline(always)]
    fn join(earlier: f64, later: f64) -> f64 {
        earlier + later
    }

    #[inline(always)]
    unsafe fn store<const N: usize>(
        _: Shared<f32>,
        to: Self::To,
        at: isize,
        states: [f64; N],
        _: Option<usize>,
    ) {
        // SAFETY: `to` has room for `N` results from offset `at` on, by `# Safety`.
        unsafe { close(to, at, states, |state| state as f32) }
    }

    fn to_bits(state: f64) -> u64 {
        state.to_bits()
    }

    fn from_bits(bits: u64) -> f64 {
        f64::from_bits(bits)
    }
}

/// Integer sums, which wrap.
pub(crate) struct Integers<T>(PhantomData<T>);

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Running for Integers<$t> {
            type Item = $t;
            type State = $t;
            type To = Shared<$t>;
            const NEUTRAL: $t = 0;

            #[inline(always)]
            fn open(x: $t, _: usize) -> $t {
                x
            }

            #[inline(always)]
            fn join(earlier: $t, later: $t) -> $t {
                earlier.wrapping_add(later)
            }

            #[inline(always)]
            unsafe fn store<const N: usize>(
                _: Shared<$t>,
                to: Self::To,
                at: isize,
                states: [$t; N],
                _: Option<usize>,
            ) {
                // SAFETY: `to` has room for `N` results from offset `at` on, by `# Safety`.
                unsafe { close(to, at, states, |state| state) }
            }

            fn to_bits(state: $t) -> u64 {
                state as u64
            }

            fn from_bits(bits: u64) -> $t {
                bits as $t
            }
        }
    )*};
}
integers!(i32, i64);

/// The position of the greatest element, or of the least if `LEAST`; the last among equal elements. The
/// state is the element's key in the high bits and the position in the low bits.
pub(crate) struct Extreme<const LEAST: bool>;

impl<const LEAST: bool> Running for Extreme<LEAST> {
    type Item = f32;
    type State = i64;
    type To = Shared<i32>;
    const NEUTRAL: i64 = i64::MIN;

    #[inline(always)]
    fn open(x: f32, position: usize) -> i64 {
        let key = if LEAST { opposite(x) } else { x.key() };
        // A signed key, because more processors have vector comparisons of signed integers.
        i64::from((key ^ 1 << 31) as i32) << 32 | position as i64
    }

    #[inline(always)]
    fn join(earlier: i64, later: i64) -> i64 {
        if later > earlier { later } else { earlier }
    }

    #[inline(always)]
    unsafe fn store<const N: usize>(
        _: Shared<f32>,
        to: Self::To,
        at: isize,
        states: [i64; N],
        last: Option<usize>,
    ) {
        // SAFETY: `to` has room for `N` results from offset `at` on, by `# Safety`.
        unsafe { close(to, at, states, |state| last.map_or(state as i32, |last| last as i32 - state as i32)) }
    }

    fn to_bits(state: i64) -> u64 {
        state as u64
    }

    fn from_bits(bits: u64) -> i64 {
        bits as i64
    }
}

/// A line of elements: the addresses of the first element read and written. The other elements are above
/// them, or below if `REVERSE`.
pub(crate) struct Line<R: Running, const REVERSE: bool> {
    from: Shared<R::Item>,
    to: R::To,
    length: usize,
    running: PhantomData<R>,
}

impl<R: Running, const REVERSE: bool> Line<R, REVERSE> {
    /// # Safety
    /// There are `length` elements at both addresses; those at `from` do not change, nothing else reads or
    /// writes those at `to`, and the two do not overlap.
    pub(crate) unsafe fn new(from: *const R::Item, to: R::To, length: usize) -> Line<R, REVERSE> {
        Line { from: Shared(from.cast_mut()), to, length, running: PhantomData }
    }

    /// Writes all results on this thread.
    pub(crate) fn alone(&self, isa: Isa) {
        let mut before = R::NEUTRAL;
        for index in 0..self.pieces() {
            before = R::join(before, isa.run(self.scan(index, before)));
        }
    }

    /// Writes all results, on this thread and on free worker threads. A thread joins the elements of its
    /// piece while earlier pieces are still being processed.
    pub(crate) fn shared(&self, isa: Isa) {
        let (taken, turn) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let state = AtomicU64::new(R::to_bits(R::NEUTRAL));
        threads::share(self.pieces(), |_| {
            // Pieces are taken in order, so the piece that all others wait for is always being processed.
            let index = taken.fetch_add(1, Ordering::Relaxed);
            let before = || R::from_bits(state.load(Ordering::Relaxed));
            let pass_on = |next: R::State| {
                state.store(R::to_bits(next), Ordering::Relaxed);
                turn.store(index + 1, Ordering::Release);
            };
            if turn.load(Ordering::Acquire) == index {
                let before = before();
                return pass_on(R::join(before, isa.run(self.scan(index, before))));
            }
            let whole = isa.run(Whole(self.scan(index, R::NEUTRAL)));
            let mut looks = 0;
            while turn.load(Ordering::Acquire) != index {
                looks += 1;
                if looks < SPIN_LOOKS { std::hint::spin_loop() } else { std::thread::yield_now() }
            }
            let before = before();
            pass_on(R::join(before, whole));
            isa.run(self.scan(index, before));
        });
    }

    fn pieces(&self) -> usize {
        self.length.div_ceil(SCAN_PIECE_ELEMENTS)
    }

    fn scan(&self, piece: usize, before: R::State) -> Scan<'_, R, REVERSE> {
        Scan {
            line: self,
            start: piece * SCAN_PIECE_ELEMENTS,
            end: self.length.min((piece + 1) * SCAN_PIECE_ELEMENTS),
            before,
        }
    }

    fn last(&self) -> Option<usize> {
        REVERSE.then(|| self.length - 1)
    }

    /// The offset of the lowest of `n` elements from the `i`th on.
    #[inline(always)]
    fn low(i: usize, n: usize) -> isize {
        if REVERSE { 1 - (i + n) as isize } else { i as isize }
    }
}

/// A scan of a piece of a line, after the state `before`: writes the results and returns the state of the
/// piece alone.
struct Scan<'a, R: Running, const REVERSE: bool> {
    line: &'a Line<R, REVERSE>,
    start: usize,
    end: usize,
    before: R::State,
}

impl<R: Running, const REVERSE: bool> Scan<'_, R, REVERSE> {
    /// The states of the `i`th element, of elements `i` and `i + 1`, and so on.
    ///
    /// # Safety
    /// The line has at least `i + WIDTH` elements.
    #[inline(always)]
    unsafe fn states(&self, i: usize) -> [R::State; WIDTH] {
        let at = self.line.from.at(Line::<R, REVERSE>::low(i, WIDTH)).cast::<[R::Item; WIDTH]>();
        // SAFETY: `Line::new` makes all elements of the line readable, and `low` is the offset of the
        // lowest of `i..i + WIDTH`, which are in it by `# Safety`.
        let mut x = unsafe { at.read_unaligned() };
        if REVERSE {
            x.reverse();
        }
        let mut states = [R::NEUTRAL; WIDTH];
        for (j, (state, x)) in states.iter_mut().zip(x).enumerate() {
            *state = R::open(x, i + j);
        }
        for by in [1, 2, 4] {
            let shorter = states;
            for j in by..WIDTH {
                states[j] = R::join(shorter[j - by], shorter[j]);
            }
        }
        states
    }

    /// # Safety
    /// The line has at least `i + N` elements, and each state is joined from some of them.
    #[inline(always)]
    unsafe fn store<const N: usize>(&self, i: usize, mut states: [R::State; N], last: Option<usize>) {
        if REVERSE {
            states.reverse();
        }
        // SAFETY: `i..i + N` are in the line by `# Safety`, and by that of `Line::new` nothing else
        // accesses their results.
        unsafe { R::store(self.line.from, self.line.to, Line::<R, REVERSE>::low(i, N), states, last) };
    }

    /// # Safety
    /// The line has more than `i` elements.
    #[inline(always)]
    unsafe fn state(&self, i: usize) -> R::State {
        // SAFETY: element i is in the line by `# Safety`, and `Line::new` makes it readable.
        R::open(unsafe { self.line.from.at(Line::<R, REVERSE>::low(i, 1)).read() }, i)
    }

    /// Joins all elements of the piece, and writes the results if `STORE`.
    #[inline(always)]
    fn go<const STORE: bool>(&self) -> R::State {
        let (mut state, mut i, last) = (R::NEUTRAL, self.start, self.line.last());
        // SAFETY: each call is for elements below `end`, which is at most the line's length, and for states
        // joined from them and earlier ones.
        unsafe {
            while i + WIDTH <= self.end {
                let mut states = self.states(i);
                let next = R::join(state, states[WIDTH - 1]);
                if STORE {
                    let before = R::join(self.before, state);
                    for state in &mut states {
                        *state = R::join(before, *state);
                    }
                    self.store(i, states, last);
                }
                state = next;
                i += WIDTH;
            }
            while i < self.end {
                state = R::join(state, self.state(i));
                if STORE {
                    self.store(i, [R::join(self.before, state)], last);
                }
                i += 1;
            }
        }
        state
    }
}

impl<R: Running, const REVERSE: bool> Job for Scan<'_, R, REVERSE> {
    type Output = R::State;
    #[inline(always)]
    fn run(self) -> R::State {
        self.go::<true>()
    }
}

/// Computes the state of a piece alone, without writing results.
struct Whole<'a, R: Running, const REVERSE: bool>(Scan<'a, R, REVERSE>);

impl<R: Running, const REVERSE: bool> Job for Whole<'_, R, REVERSE> {
    type Output = R::State;
    #[inline(always)]
    fn run(self) -> R::State {
        self.0.go::<false>()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    /// All results of a line in processing order; checks that sharing between threads gives the same bits.
    fn results<R: Running<To = Shared<T>>, T: Copy + Default + PartialEq + Debug, const REVERSE: bool>(
        isa: Isa,
        x: &[R::Item],
    ) -> Vec<T> {
        let n = x.len();
        let mut out = [vec![T::default(); n], vec![T::default(); n]];
        let first = if REVERSE { n - 1 } else { 0 };
        let [alone, shared] = &mut out;
        // SAFETY: all have `n` elements from the first on.
        unsafe {
            let from = x.as_ptr().add(first);
            Line::<R, REVERSE>::new(from, Shared(alone.as_mut_ptr().add(first)), n).alone(isa);
            Line::<R, REVERSE>::new(from, Shared(shared.as_mut_ptr().add(first)), n).shared(isa);
        }
        assert_eq!(alone, shared, "{n} elements, {isa:?}");
        let [mut alone, _] = out;
        if REVERSE {
            alone.reverse();
        }
        alone
    }

    fn check<const REVERSE: bool>(isa: Isa, x: &[f32]) {
        let n = x.len();
        let sums = results::<Sum, _, REVERSE>(isa, x);
        let greatest = results::<Extreme<false>, _, REVERSE>(isa, x);
        let least = results::<Extreme<true>, _, REVERSE>(isa, x);
        let whole: Vec<i64> = x.iter().map(|&x| (f64::from(x) * 1e18) as i64).collect();
        let narrow: Vec<i32> = whole.iter().map(|&x| x as i32).collect();
        let whole_sums = results::<Integers<i64>, _, REVERSE>(isa, &whole);
        let narrow_sums = results::<Integers<i32>, _, REVERSE>(isa, &narrow);
        let place = |i: usize| if REVERSE { n - 1 - i } else { i };
        let (mut whole_sum, mut narrow_sum) = (0i64, 0i32);
        let (mut sum, mut most, mut few) = (0.0, place(0), place(0));
        for i in 0..n {
            let (at, case) = (place(i), format!("{i} of {n} elements, {isa:?}"));
            sum += f64::from(x[at]);
            (whole_sum, narrow_sum) =
                (whole_sum.wrapping_add(whole[at]), narrow_sum.wrapping_add(narrow[at]));
            assert_eq!((whole_sums[i], narrow_sums[i]), (whole_sum, narrow_sum), "{case}");
            most = if x[at] >= x[most] { at } else { most };
            few = if x[at] <= x[few] { at } else { few };
            let error = (f64::from(sums[i]) - sum).abs();
            assert!(error <= sum.abs() * f64::from(f32::EPSILON), "{case}: {} for {sum}", sums[i]);
            assert_eq!((greatest[i], least[i]), (most as i32, few as i32), "{case}");
        }
    }

    #[test]
    fn results_are_those_of_one_element_after_the_other() {
        for isa in Isa::available() {
            for n in [
                1,
                7,
                8,
                9,
                SCAN_PIECE_ELEMENTS - 1,
                SCAN_PIECE_ELEMENTS,
                SCAN_PIECE_ELEMENTS + 1,
                5 * SCAN_PIECE_ELEMENTS + 13,
            ] {
                // Each number occurs several times, rising and falling.
                let number = |i: usize| (i * 7919 % 1009) as f32 / 1009.0 - 0.25;
                let x: Vec<f32> = (0..n).map(|i| number(i) * (i / 64 + 1) as f32).collect();
                check::<false>(isa, &x);
                check::<true>(isa, &x);
            }
        }
    }

    #[test]
    fn the_sign_of_zero_and_what_is_not_finite_pass_as_in_single_additions() {
        for isa in Isa::available() {
            let mut x = vec![-0.0f32; 40];
            let sums = results::<Sum, _, false>(isa, &x);
            assert!(sums.iter().all(|y| y.to_bits() == (-0f32).to_bits()));
            (x[11], x[29]) = (f32::INFINITY, f32::NEG_INFINITY);
            let sums = results::<Extreme<false>, _, false>(isa, &x);
            assert!((0..40).all(|i| sums[i] == if i < 11 { i as i32 } else { 11 }));
            let mut out = vec![0f32; 40];
            // SAFETY: both have forty elements.
            unsafe { Line::<Sum, false>::new(x.as_ptr(), Shared(out.as_mut_ptr()), 40) }.alone(isa);
            assert!(out[..11].iter().all(|&y| y == 0.0));
            assert!(out[11..29].iter().all(|&y| y == f32::INFINITY));
            assert!(out[29..].iter().all(|y| y.is_nan()));
            x[20] = f32::NAN;
            for places in
                [results::<Extreme<false>, _, false>(isa, &x), results::<Extreme<true>, _, false>(isa, &x)]
            {
                assert!(places[20..].iter().all(|&place| place == 20), "a NaN stays");
            }
        }
    }
}
