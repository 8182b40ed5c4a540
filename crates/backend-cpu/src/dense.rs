//! What crates need that have algorithms of their own over matrices in memory (factorizations, say): products
//! and copies as the backend's kernels form them, its threads, and loops compiled for its instruction set.
//!
//! All of it is for the inside of a [`CpuKernel`](crate::CpuKernel). Results are the same bits on any number
//! of threads: an element of a product depends on its row, its column and the number of terms alone.

use std::sync::{Mutex, PoisonError};

use ndarray::{ArrayView2, ArrayViewMut2};

use crate::{kernels::contract::dense, simd::isa::Isa, threads};
pub use crate::{kernels::contract::operands::Update, simd::isa::Job};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// f32 and f64.
pub trait Scalar: Copy + Default + Send + Sync + sealed::Sealed + 'static {
    /// C = A·B, C + A·B or C − A·B: shared by all threads where that is worth it, and on this one within
    /// [`share`].
    ///
    /// # Panics
    /// Sizes that do not fit, or a C of which neither rows nor columns lie side by side.
    fn gemm(update: Update, a: ArrayView2<'_, Self>, b: ArrayView2<'_, Self>, c: ArrayViewMut2<'_, Self>);
}

macro_rules! scalar {
    ($($t:ty)*) => {$(
        impl Scalar for $t {
            fn gemm(update: Update, a: ArrayView2<'_, $t>, b: ArrayView2<'_, $t>, c: ArrayViewMut2<'_, $t>) {
                dense::gemm(isa(), update, a, b, c);
            }
        }
    )*};
}
scalar!(f32 f64);

fn isa() -> Isa {
    crate::shared().1.isa
}

/// Copies a matrix, in tiles where one of the two is transposed.
///
/// # Panics
/// Two sizes.
pub fn assign<T: Scalar>(from: ArrayView2<'_, T>, to: ArrayViewMut2<'_, T>) {
    dense::assign(isa(), from, to);
}

/// Runs a loop as compiled for the device's instruction set.
#[inline]
pub fn run<J: Job>(job: J) -> J::Output {
    isa().run(job)
}

/// Calls `f` with each of the items, on this thread and on others that are free. They are begun in order.
pub fn share<I: Send>(items: Vec<I>, f: impl Fn(I) + Sync) {
    let items: Vec<Mutex<Option<I>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    threads::share(items.len(), |i| {
        let item = items[i].lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(item) = item {
            f(item);
        }
    });
}

/// How many threads would take items of a [`share`] that is begun here: 1 within one.
pub fn available_threads() -> usize {
    threads::available()
}
