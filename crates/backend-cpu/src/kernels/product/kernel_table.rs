//! The kernels of each kind of number, as compiled for each instruction set: the drivers, which cut
//! products into blocks, take them from here.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::{
    dots_kernel, gemv_kernel,
    micro_kernel::{MicroTile, copies, micro_kernel, window_kernel, window_runs},
    operands::{MAX_MR, MAX_REGISTERS, Update, WIDEST},
    piece_kernel::{CopyPieces, InRegisters},
    windows::Strip,
};
use crate::simd::{
    self,
    isa::Isa,
    vector::{Float, Vector},
};

type TileKernel<T> = unsafe fn(&MicroTile<T>);
type WindowKernel<T> = unsafe fn(&MicroTile<T>, &[Strip], *const isize);
type StoreRuns<T> = unsafe fn(*const T, usize, &[Strip], &MicroTile<T>);
type CopyRows<T> = unsafe fn(usize, *const T, isize, *mut T);
type CopyTable<T> = unsafe fn(&CopyPieces<'_, T>);

/// # Safety
/// As [`MicroKernels::copy_pieces`].
unsafe fn copy_pieces<V: Vector>(pieces: &CopyPieces<'_, V::Number>) {
    // SAFETY: a table with this is only given out where the processor has the instruction set.
    unsafe { V::run(InRegisters::<V>(pieces)) }
}

/// The micro-kernels of a kind of number, as compiled for an instruction set.
#[derive(Clone, Copy)]
pub(crate) struct MicroKernels<T: 'static> {
    /// Numbers in a register.
    pub(crate) width: usize,
    /// By registers of columns, from 1 on: micro-kernels and their rows, the most rows first and one row
    /// last.
    runs: [&'static [(usize, TileKernel<T>)]; MAX_REGISTERS],
    windows: [&'static [(usize, WindowKernel<T>)]; MAX_REGISTERS],
    store_runs: StoreRuns<T>,
    copies: [CopyRows<T>; MAX_REGISTERS],
    pieces: CopyTable<T>,
    pub(super) dots: dots_kernel::Kernels<T>,
    pub(super) dots_of_columns: unsafe fn(gemv_kernel::Dots<'_, T>),
}

impl<T> MicroKernels<T> {
    /// The most rows (MR) of a micro-tile with this many registers of columns: as many as there are
    /// registers for their sums.
    pub(crate) fn rows(&self, registers: usize) -> usize {
        self.runs[registers - 1].first().map_or(0, |(rows, _)| *rows)
    }

    /// The most registers of columns of a micro-tile.
    pub(crate) fn registers(&self) -> usize {
        self.runs.iter().take_while(|runs| !runs.is_empty()).count()
    }

    /// Whether columns can be read in place by tables.
    pub(super) fn has_windows(&self) -> bool {
        !self.windows[0].is_empty()
    }

    /// Forms a micro-tile's sums.
    ///
    /// # Safety
    /// `rows` is within [`MicroKernels::rows`], and the tile's `last` from 1 to the width. The tile's
    /// addresses are good for all of its elements: `a` for reads of `rows` times `terms` numbers, `b` for
    /// `terms` times `registers` whole registers of them, `to` for writes (and reads, unless it sets) of the
    /// result's, which do not overlap the others.
    pub(crate) unsafe fn run(&self, rows: usize, registers: usize, tile: &MicroTile<T>) {
        by_rows(self.runs[registers - 1], rows, |first, _, kernel| {
            // SAFETY: `by_rows` stays below `rows` of `# Safety`, and the table is this processor's.
            unsafe { kernel(&tile.skip_rows(first)) }
        });
    }

    /// Forms a micro-tile's sums of columns that are read in place from `b` on: `table` has the distance of
    /// each term from the first places.
    ///
    /// # Safety
    /// As [`MicroKernels::run`], except that `b` is good for reads of a whole register at each strip's place,
    /// shifted by each of `terms` entries of `table`, and that `to` is good for the columns of the strips'
    /// runs alone. There is a strip for each register, and the tile's `last` is the width.
    pub(crate) unsafe fn run_windows(
        &self,
        rows: usize,
        tile: &MicroTile<T>,
        strips: &[Strip],
        table: *const isize,
    ) {
        let kernels = self.windows[strips.len() - 1];
        if strips.iter().all(|strip| strip.whole) {
            return by_rows(kernels, rows, |first, _, kernel| {
                // SAFETY: `by_rows` stays below `rows`; whole strips are good for stores of whole registers.
                unsafe { kernel(&tile.skip_rows(first), strips, table) }
            });
        }
        let mut sums = [const { MaybeUninit::<T>::uninit() }; MAX_MR * MAX_REGISTERS * WIDEST];
        let sums = sums.as_mut_ptr().cast::<T>();
        by_rows(kernels, rows, |first, rows, kernel| {
            let tile = tile.skip_rows(first);
            let whole =
                MicroTile { to: sums, to_row: strips.len() * self.width, update: Update::Set, ..tile };
            // SAFETY: `by_rows` stays below `rows`. `sums` has room for `MAX_MR` rows of the
            // most registers; the kernel fills the registers of these rows, and `store_runs`
            // reads no others and stores the runs alone.
            unsafe {
                kernel(&whole, strips, table);
                (self.store_runs)(sums, rows, strips, &tile);
            }
        });
    }

    /// Copies rows of some registers, which are `from_row` numbers apart, to contiguous rows.
    ///
    /// # Safety
    /// In each of the `rows` rows, `registers` whole registers can be read; as many can be written from `to`
    /// on, a row after the other, and do not overlap those that are read.
    pub(crate) unsafe fn copy(
        &self,
        registers: usize,
        rows: usize,
        from: *const T,
        from_row: isize,
        to: *mut T,
    ) {
        // SAFETY: the entry copies this number of registers a row, as `# Safety`
        // says, and the table is this processor's.
        unsafe { self.copies[registers - 1](rows, from, from_row, to) }
    }

    /// Copies the pieces of columns of each term.
    ///
    /// # Safety
    /// For each of the terms, all elements from the first column of a piece to its last can be read, and the
    /// numbers of its columns written, in rows of `width` from `to` on; they do not overlap. No piece that is
    /// copied by registers (of step 1 or 2) has more columns than a register.
    pub(super) unsafe fn copy_pieces(&self, pieces: &CopyPieces<'_, T>) {
        // SAFETY: the pieces are as `# Safety` asks, and the table is this processor's.
        unsafe { (self.pieces)(pieces) }
    }
}

/// Calls `run(first, count, kernel)` for pieces of some rows, each of as many as a kernel takes.
fn by_rows<K: Copy>(kernels: &[(usize, K)], rows: usize, mut run: impl FnMut(usize, usize, K)) {
    let mut first = 0;
    for &(count, kernel) in kernels {
        while rows - first >= count {
            run(first, count, kernel);
            first += count;
        }
    }
}

macro_rules! table {
    (
        $register:ty, $sums:literal; $($rows:expr),*; $($more:expr),*; $($most:expr),*;
        windows $($three:expr),*; $($two:expr),*; $($one:expr),*; $($dots:expr),*
    ) => {
        MicroKernels {
            width: <$register>::WIDTH,
            runs: [
                &[$(($most, micro_kernel::<$register, $most, 1>)),*],
                &[$(($more, micro_kernel::<$register, $more, 2>)),*],
                &[$(($rows, micro_kernel::<$register, $rows, 3>)),*],
            ],
            windows: [
                &[$(($one, window_kernel::<$register, $one, 1>)),*],
                &[$(($two, window_kernel::<$register, $two, 2>)),*],
                &[$(($three, window_kernel::<$register, $three, 3>)),*],
            ],
            store_runs: window_runs::<$register>,
            copies: [copies::<$register, 1>, copies::<$register, 2>, copies::<$register, 3>],
            pieces: copy_pieces::<$register>,
            dots: &[$(($dots, [dots_kernel::tile::<$register, $dots, 1>, dots_kernel::tile::<$register, $dots, { dots_kernel::COLUMNS }>])),*],
            dots_of_columns: gemv_kernel::dots::<
                $register,
                { gemv_kernel::LANES / <$register>::WIDTH },
                { gemv_kernel::columns($sums, <$register>::WIDTH) },
            >,
        }
    };
    // Micro-tiles of all rows, with three, two and one registers of columns, for both kinds of columns.
    ($register:ty, $sums:literal; $($rows:expr),*; $($more:expr),*; $($most:expr),*; $($dots:expr),*) => {
        table!(
            $register, $sums; $($rows),*; $($more),*; $($most),*;
            windows $($rows),*; $($more),*; $($most),*; $($dots),*
        )
    };
    // 32 registers, or 16.
    (many $register:ty) => {
        table!(
            $register, 16; 8, 7, 6, 5, 4, 3, 2, 1;
            12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1;
            12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1;
            4, 2, 1
        )
    };
    (few $register:ty) => {
        table!($register, 8; ; 6, 5, 4, 3, 2, 1; 8, 7, 6, 5, 4, 3, 2, 1; 4, 2, 1)
    };
    // Kernels that few programs run: other rows are several pieces, and windows are packed.
    (rare_many $register:ty) => {
        table!($register, 16; 8, 7, 6, 5, 4, 3, 2, 1; 12, 8, 6, 4, 2, 1; 12, 8, 4, 2, 1; windows ; ; ; 4, 2, 1)
    };
    (rare_few $register:ty) => {
        table!($register, 8; ; 6, 5, 4, 3, 2, 1; 8, 4, 2, 1; windows ; ; ; 4, 2, 1)
    };
    // 16 registers, of which the compilers of browsers keep one and need another for a product.
    (fewest $register:ty) => {
        table!($register, 8; ; 5, 4, 3, 2, 1; 8, 7, 6, 5, 4, 3, 2, 1; 2, 1)
    };
}

/// A number that has micro-kernels.
pub(crate) trait HasMicroKernels: Float {
    fn micro_kernels(isa: Isa) -> MicroKernels<Self>;
}

macro_rules! tiled {
    ($number:ty, $many:ident $avx512:ident, $few:ident $avx2:ident, $four:ident) => {
        impl HasMicroKernels for $number {
            fn micro_kernels(isa: Isa) -> MicroKernels<$number> {
                #[cfg(target_arch = "x86_64")]
                if isa.is_avx512() {
                    return table!($many simd::vector::$avx512);
                }
                #[cfg(target_arch = "x86_64")]
                if isa.is_avx2() {
                    return table!($few simd::vector::$avx2);
                }
                let _ = isa;
                #[cfg(target_arch = "aarch64")]
                return table!($many simd::$four);
                #[cfg(target_arch = "wasm32")]
                return table!(fewest simd::$four);
                #[cfg(not(any(target_arch = "aarch64", target_arch = "wasm32")))]
                table!(rare_few simd::$four)
            }
        }
    };
}
tiled!(f32, many F32x16, few F32x8, F32x4);
tiled!(f64, rare_many F64x8, rare_few F64x4, F64x2);
