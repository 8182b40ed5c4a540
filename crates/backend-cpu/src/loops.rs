//! The inner loops: a function applied along one, two or three blocks. Elements are read in chunks before any of the
//! chunk is written, so that an output may be an operand's own memory, and chunks of fixed size vectorise.
#![allow(unsafe_code)]

use crate::isa::{Isa, Job};

/// Elements read before they are written.
const CHUNK: usize = 32;

macro_rules! looped {
    ($name:ident, $job:ident, $($T:ident $ptr:ident),+) => {
        struct $job<$($T,)+ O, F> { $($ptr: *const $T,)+ out: *mut O, n: usize, f: F }

        impl<$($T: Copy,)+ O: Copy, F: Fn($($T),+) -> O> Job for $job<$($T,)+ O, F> {
            type Output = ();
            #[inline(always)]
            fn run(self) {
                let whole = self.n / CHUNK * CHUNK;
                let mut i = 0;
                while i < whole {
                    // SAFETY: the caller gives `n` elements behind each pointer, and i + CHUNK ≤ n.
                    unsafe {
                        $(let $ptr = self.$ptr.add(i).cast::<[$T; CHUNK]>().read_unaligned();)+
                        let mut out = [(self.f)($($ptr[0]),+); CHUNK];
                        for j in 0..CHUNK {
                            out[j] = (self.f)($($ptr[j]),+);
                        }
                        self.out.add(i).cast::<[O; CHUNK]>().write_unaligned(out);
                    }
                    i += CHUNK;
                }
                while i < self.n {
                    // SAFETY: i < n.
                    unsafe { self.out.add(i).write((self.f)($(self.$ptr.add(i).read()),+)) };
                    i += 1;
                }
            }
        }

        /// `out[i] = f(…[i])` for i < n.
        ///
        /// # Safety
        /// Each pointer is good for `n` initialised elements, aligned. `out` may equal an operand of the same element size, or
        /// lie apart from all.
        #[inline]
        #[allow(clippy::too_many_arguments)]
        pub(crate) unsafe fn $name<$($T: Copy,)+ O: Copy>(
            isa: Isa, $($ptr: *const $T,)+ out: *mut O, n: usize, f: impl Fn($($T),+) -> O,
        ) {
            isa.run($job { $($ptr,)+ out, n, f });
        }
    };
}

looped!(map1, Map1, A a);
looped!(map2, Map2, A a, B b);
looped!(map3, Map3, A a, B b, C c);

struct Fill<T> {
    out: *mut T,
    n: usize,
    value: T,
}

impl<T: Copy> Job for Fill<T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for i in 0..self.n {
            // SAFETY: the caller gives room for `n` elements.
            unsafe { self.out.add(i).write(self.value) };
        }
    }
}

/// `out[i] = value` for i < n.
///
/// # Safety
/// `out` is good for `n` elements, aligned.
#[inline]
pub(crate) unsafe fn fill<T: Copy>(isa: Isa, out: *mut T, n: usize, value: T) {
    if n < LANES {
        // SAFETY: the caller's promise.
        (0..n).for_each(|i| unsafe { out.add(i).write(value) });
    } else {
        isa.run(Fill { out, n, value });
    }
}

struct Fold<T, A, F, G> {
    data: *const T,
    n: usize,
    start: A,
    f: F,
    join: G,
}

/// Accumulators kept side by side.
const LANES: usize = 32;

impl<T: Copy, A: Copy, F: Fn(A, T) -> A, G: Fn(A, A) -> A> Job for Fold<T, A, F, G> {
    type Output = A;
    #[inline(always)]
    fn run(self) -> A {
        let mut lanes = [self.start; LANES];
        let whole = self.n / LANES * LANES;
        let mut i = 0;
        while i < whole {
            // SAFETY: the caller gives `n` elements, and i + LANES ≤ n.
            let chunk = unsafe { self.data.add(i).cast::<[T; LANES]>().read_unaligned() };
            for j in 0..LANES {
                lanes[j] = (self.f)(lanes[j], chunk[j]);
            }
            i += LANES;
        }
        while i < self.n {
            // SAFETY: i < n.
            lanes[i - whole] = (self.f)(lanes[i - whole], unsafe { self.data.add(i).read() });
            i += 1;
        }
        // Halves onto halves: pairwise.
        let mut width = LANES / 2;
        while width > 0 {
            for j in 0..width {
                lanes[j] = (self.join)(lanes[j], lanes[j + width]);
            }
            width /= 2;
        }
        lanes[0]
    }
}

/// Folds `n` elements with `f` in 32 interleaved accumulators from `start`, and those pairwise with `join`: always in the same
/// order, whatever the instruction set.
///
/// # Safety
/// `data` is good for `n` initialised elements, aligned.
pub(crate) unsafe fn fold<T: Copy, A: Copy>(
    isa: Isa,
    data: *const T,
    n: usize,
    start: A,
    f: impl Fn(A, T) -> A,
    join: impl Fn(A, A) -> A,
) -> A {
    isa.run(Fold { data, n, start, f, join })
}
