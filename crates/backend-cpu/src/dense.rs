//! Dense matrix helpers for crates with algorithms of their own over matrices in memory, such as
//! factorizations: the backend's products and copies, its threads, and loops compiled for its instruction
//! set.
//!
//! Everything here is for use inside a [`CpuKernel`](crate::CpuKernel). Results have the same bits for any
//! number of threads: an element of a product depends only on its row, its column and the number of terms.

use std::sync::{Mutex, PoisonError};

use ndarray::{ArrayView2, ArrayViewMut2};

use crate::{kernels::product::dense, simd::isa::Isa, threads};
pub use crate::{kernels::product::operands::Update, simd::isa::Job};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// f32 and f64.
pub trait Scalar: Copy + Default + Send + Sync + sealed::Sealed + 'static {
    /// C = A·B, C + A·B or C − A·B. All threads share the work if it is large enough; inside a [`share`] it
    /// stays on the calling thread.
    ///
    /// # Panics
    /// If the sizes do not match, or if neither the rows nor the columns of C are contiguous.
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
/// If the sizes differ.
pub fn assign<T: Scalar>(from: ArrayView2<'_, T>, to: ArrayViewMut2<'_, T>) {
    dense::assign(isa(), from, to);
}

/// Runs a loop compiled for the device's instruction set.
#[inline]
pub fn run<J: Job>(job: J) -> J::Output {
    isa().run(job)
}

/// Calls `f` with each item, on this thread and on free worker threads. Items are started in order.
pub fn share<I: Send>(items: Vec<I>, f: impl Fn(I) + Sync) {
    let items: Vec<Mutex<Option<I>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    threads::share(items.len(), |i| {
        let item = items[i].lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(item) = item {
            f(item);
        }
    });
}

/// The number of threads that a [`share`] started here would use; 1 inside a [`share`].
pub fn available_threads() -> usize {
    threads::available()
}
