//! The registers of processors without registers of their own here: arrays, which the compiler keeps in
//! registers.
#![allow(unsafe_code)]

use std::ops::{Add, Mul, Sub};

use crate::simd::{
    integers::Integers,
    isa::{BASELINE_FMA, Job},
    vector::{Float, Vector},
};

/// 16 bytes of numbers, the register size of every processor; the compiler keeps them in a register.
#[derive(Clone, Copy)]
#[repr(align(16))]
pub(crate) struct Lanes<T, const N: usize>([T; N]);

pub(crate) type F32x4 = Lanes<f32, 4>;
pub(crate) type F64x2 = Lanes<f64, 2>;

macro_rules! lanewise {
    ($($op:ident $method:ident)*) => {$(
        impl<T: Float, const N: usize> $op for Lanes<T, N> {
            type Output = Lanes<T, N>;
            #[inline(always)]
            fn $method(mut self, other: Lanes<T, N>) -> Lanes<T, N> {
                for i in 0..N {
                    self.0[i] = self.0[i].$method(other.0[i]);
                }
                self
            }
        }
    )*};
}
lanewise!(Add add Sub sub Mul mul);

impl<T: Float, const N: usize> Vector for Lanes<T, N> {
    type Number = T;
    const WIDTH: usize = N;
    const HAS_FMA: bool = BASELINE_FMA;

    #[inline(always)]
    fn splat(x: T) -> Lanes<T, N> {
        Lanes([x; N])
    }

    #[inline(always)]
    fn fma<const FUSED: bool>(mut self, b: Lanes<T, N>, c: Lanes<T, N>) -> Lanes<T, N> {
        for i in 0..N {
            self.0[i] = self.0[i].fma::<FUSED>(b.0[i], c.0[i]);
        }
        self
    }

    #[inline(always)]
    unsafe fn load(at: *const T) -> Lanes<T, N> {
        // SAFETY: `at` is readable for `WIDTH` = `N` numbers, by `# Safety`; the read needs no alignment.
        Lanes(unsafe { at.cast::<[T; N]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_first(at: *const T, n: usize) -> Lanes<T, N> {
        let mut out = [T::ZERO; N];
        for (i, out) in out.iter_mut().enumerate().take(n) {
            // SAFETY: `at` is aligned and readable for `n` numbers, by `# Safety`, and i < n.
            *out = unsafe { at.add(i).read() };
        }
        Lanes(out)
    }

    #[inline(always)]
    unsafe fn load_rest(mut self, at: *const T, from: usize, n: usize) -> Lanes<T, N> {
        for (i, number) in self.0.iter_mut().enumerate().take(n).skip(from) {
            // SAFETY: i is in `from..n`, whose numbers behind `at` are aligned and readable, by `# Safety`.
            *number = unsafe { at.wrapping_add(i).read() };
        }
        self
    }

    #[inline(always)]
    unsafe fn store_first(self, at: *mut T, n: usize) {
        // SAFETY: `at` is aligned and writable for `n` numbers, by `# Safety`; i < n.
        unsafe {
            if n == N {
                at.cast::<[T; N]>().write_unaligned(self.0);
            } else {
                for i in 0..n {
                    at.add(i).write(self.0[i]);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn store_rest(self, at: *mut T, from: usize, n: usize) {
        for (i, &number) in self.0.iter().enumerate().take(n).skip(from) {
            // SAFETY: i is in `from..n`, whose numbers behind `at` are aligned and writable, by `# Safety`.
            unsafe { at.wrapping_add(i).write(number) };
        }
    }

    #[inline(always)]
    fn unzip(self, next: Lanes<T, N>) -> [Lanes<T, N>; 2] {
        let (mut even, mut odd) = (self, next);
        let both = |i: usize| if i < N { self.0[i] } else { next.0[i - N] };
        for i in 0..N {
            (even.0[i], odd.0[i]) = (both(2 * i), both(2 * i + 1));
        }
        [even, odd]
    }

    #[inline(always)]
    unsafe fn run<J: Job>(job: J) -> J::Output {
        job.run()
    }
}

impl Integers for F32x4 {
    type Ints = [i32; 4];
    const VECTORS: usize = 2;

    #[inline(always)]
    unsafe fn unsigned(at: *const u8) -> [i32; 4] {
        // SAFETY: `at` is readable for `WIDTH` = 4 bytes, by `# Safety`; bytes need no alignment.
        unsafe { at.cast::<[u8; 4]>().read() }.map(i32::from)
    }

    #[inline(always)]
    unsafe fn signed(at: *const u8) -> [i32; 4] {
        // SAFETY: `at` is readable for `WIDTH` = 4 bytes, by `# Safety`; bytes need no alignment.
        unsafe { at.cast::<[i8; 4]>().read() }.map(i32::from)
    }

    #[inline(always)]
    fn right(ints: [i32; 4], by: usize) -> [i32; 4] {
        let [a, b, c, d] = ints;
        [a >> by, b >> by, c >> by, d >> by]
    }

    #[inline(always)]
    fn left(ints: [i32; 4], by: usize) -> [i32; 4] {
        let [a, b, c, d] = ints;
        [a << by, b << by, c << by, d << by]
    }

    #[inline(always)]
    fn and(ints: [i32; 4], mask: i32) -> [i32; 4] {
        let [a, b, c, d] = ints;
        [a & mask, b & mask, c & mask, d & mask]
    }

    #[inline(always)]
    fn or(a: [i32; 4], b: [i32; 4]) -> [i32; 4] {
        [a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3]]
    }

    #[inline(always)]
    fn plus(ints: [i32; 4], number: i32) -> [i32; 4] {
        let [a, b, c, d] = ints;
        [a + number, b + number, c + number, d + number]
    }

    #[inline(always)]
    fn where_set(bits: u32, number: i32) -> [i32; 4] {
        let bit = |i: u32| number * (bits >> i & 1) as i32;
        [bit(0), bit(1), bit(2), bit(3)]
    }

    #[inline(always)]
    fn entries(table: &[i8; 16], [a, b, c, d]: [i32; 4]) -> [i32; 4] {
        let of = |place: i32| i32::from(table[(place & 15) as usize]);
        [of(a), of(b), of(c), of(d)]
    }

    #[inline(always)]
    fn to_f32(ints: [i32; 4]) -> F32x4 {
        let [a, b, c, d] = ints;
        Lanes([a as f32, b as f32, c as f32, d as f32])
    }
}
