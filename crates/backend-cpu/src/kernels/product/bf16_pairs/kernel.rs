//! The innermost part of a product of bf16: one or two strips of rows times one or two of columns, on pairs
//! of terms.
//!
//! A strip has 16 rows or columns. It is packed into tiles of 32 terms, 1 KiB each and one after the other:
//! of the left operand a row's 16 pairs side by side, of the right one a pair's 16 columns. So AMX loads a
//! tile whole, and AVX512-BF16 reads the same memory.
//!
//! Both add a pair's two products to the sum one after the other, each rounded to f32 once; they take
//! denormal numbers for zero and flush denormal sums to zero. Each element's terms are added in their order
//! whatever tile it is in.
#![allow(unsafe_code)]

use std::arch::{
    asm,
    x86_64::{
        __m512bh, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_set1_epi32,
        _mm512_setzero_ps, _mm512_storeu_ps,
    },
};

use crate::simd::bf16::Pairs;

/// Rows, or columns, of a strip; and pairs of a tile.
pub(crate) const STRIP: usize = 16;
/// Terms of a tile.
pub(crate) const TERMS: usize = 2 * STRIP;
/// Bytes of a tile.
pub(crate) const TILE: usize = 1024;
/// Numbers from row to row of the sums.
pub(crate) const WIDTH: usize = 2 * STRIP;

/// Up to two strips each way: from tile to tile, and the sums, whose rows are [`WIDTH`] apart.
pub(crate) struct Block {
    pub(crate) tiles: usize,
    pub(crate) a: [*const u8; 2],
    pub(crate) b: [*const u8; 2],
    pub(crate) sums: *mut f32,
    /// Whether the terms are added to what is there.
    pub(crate) add: bool,
}

impl Pairs {
    /// Adds the terms of some tiles to one or two strips of rows and one or two of columns.
    ///
    /// # Safety
    /// `rows` and `columns` are 1 or 2. The tiles of as many strips of each can be read, at multiples of four
    /// bytes, and the sums of the strips' rows written (and read, if it adds). Called within
    /// [`Pairs::with_tiles`]; `tiles` is not 0.
    pub(crate) unsafe fn run(self, rows: usize, columns: usize, block: &Block) {
        // SAFETY: `Bf16::available` gives a value only where the processor has the instructions, and each
        // function accesses as many strips as `# Safety` promises.
        unsafe {
            match (self, rows, columns) {
                (Pairs::Amx, 1, 1) => amx_1_1(block),
                (Pairs::Amx, 1, _) => amx_1_2(block),
                (Pairs::Amx, _, 1) => amx_2_1(block),
                (Pairs::Amx, ..) => amx_2_2(block),
                (Pairs::Avx512, rows, 1) => avx512::<1>(rows, block),
                (Pairs::Avx512, rows, _) => avx512::<2>(rows, block),
            }
        }
    }

    /// Calls `f` with this thread's tiles in place, and leaves them free.
    pub(crate) fn with_tiles<R>(self, f: impl FnOnce() -> R) -> R {
        /// Tiles are released also where `f` panics: they are part of what a switch of threads saves.
        struct Release;
        impl Drop for Release {
            fn drop(&mut self) {
                // SAFETY: only made where the processor has tiles.
                unsafe { asm!("tilerelease", options(nostack, nomem)) };
            }
        }
        match self {
            Pairs::Avx512 => f(),
            Pairs::Amx => {
                // SAFETY: the processor has tiles, and the configuration is of palette 1 within its limits.
                unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, readonly)) };
                let _release = Release;
                f()
            }
        }
    }
}

/// The configuration that `ldtilecfg` reads: eight tiles of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static CONFIG: Config = Config {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// A block by tiles: sums in tmm0 to tmm3, rows in tmm4 and tmm5, columns in tmm6 and tmm7. `step` is what is
/// done for each tile of terms.
macro_rules! amx {
    ($name:ident; $($load:literal)*; $($zero:literal)*; $($step:literal)*; $($store:literal)*) => {
        /// # Safety
        /// As [`Pairs::run`].
        unsafe fn $name(block: &Block) {
            let &Block { tiles, a: [a0, a1], b: [b0, b1], sums, add } = block;
            let below = sums.wrapping_add(STRIP * WIDTH);
            // SAFETY: `# Safety` gives `tiles` tiles of these strips, and their sums: 16 rows at
            // `sums`, and for a second strip 16 at `below`. Tiles are used here alone, so that they
            // stay from one block of code to the next.
            unsafe {
                match add {
                    true => asm!(
                        $($load,)*
                        sums = in(reg) sums, below = in(reg) below, row = in(reg) WIDTH * size_of::<f32>(),
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        options(nostack, readonly),
                    ),
                    false => asm!(
                        $($zero,)*
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        options(nostack, nomem),
                    ),
                }
                asm!(
                    "2:",
                    $($step,)*
                    "add {a0}, {tile}", "add {a1}, {tile}", "add {b0}, {tile}", "add {b1}, {tile}",
                    "dec {tiles}",
                    "jnz 2b",
                    $($store,)*
                    a0 = inout(reg) a0 => _, a1 = inout(reg) a1 => _,
                    b0 = inout(reg) b0 => _, b1 = inout(reg) b1 => _,
                    tiles = inout(reg) tiles => _,
                    sums = in(reg) sums, below = in(reg) below,
                    line = in(reg) 64usize, row = in(reg) WIDTH * size_of::<f32>(), tile = const TILE,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
                // The shorter blocks do not use these.
                let _ = (below, a1, b1);
            }
        }
    };
}
amx!(amx_2_2;
    "tileloadd tmm0, [{sums} + {row}]" "tileloadd tmm1, [{sums} + {row} + 64]"
    "tileloadd tmm2, [{below} + {row}]" "tileloadd tmm3, [{below} + {row} + 64]";
    "tilezero tmm0" "tilezero tmm1" "tilezero tmm2" "tilezero tmm3";
    "tileloadd tmm6, [{b0} + {line}]" "tileloadd tmm4, [{a0} + {line}]" "tdpbf16ps tmm0, tmm4, tmm6"
    "tileloadd tmm7, [{b1} + {line}]" "tdpbf16ps tmm1, tmm4, tmm7"
    "tileloadd tmm5, [{a1} + {line}]" "tdpbf16ps tmm2, tmm5, tmm6" "tdpbf16ps tmm3, tmm5, tmm7";
    "tilestored [{sums} + {row}], tmm0" "tilestored [{sums} + {row} + 64], tmm1"
    "tilestored [{below} + {row}], tmm2" "tilestored [{below} + {row} + 64], tmm3");
amx!(amx_1_2;
    "tileloadd tmm0, [{sums} + {row}]" "tileloadd tmm1, [{sums} + {row} + 64]" "/* {below} */";
    "tilezero tmm0" "tilezero tmm1";
    "tileloadd tmm4, [{a0} + {line}]"
    "tileloadd tmm6, [{b0} + {line}]" "tdpbf16ps tmm0, tmm4, tmm6"
    "tileloadd tmm7, [{b1} + {line}]" "tdpbf16ps tmm1, tmm4, tmm7";
    "tilestored [{sums} + {row}], tmm0" "tilestored [{sums} + {row} + 64], tmm1" "/* {below} */");
amx!(amx_2_1;
    "tileloadd tmm0, [{sums} + {row}]" "tileloadd tmm2, [{below} + {row}]";
    "tilezero tmm0" "tilezero tmm2";
    "tileloadd tmm6, [{b0} + {line}]"
    "tileloadd tmm4, [{a0} + {line}]" "tdpbf16ps tmm0, tmm4, tmm6"
    "tileloadd tmm5, [{a1} + {line}]" "tdpbf16ps tmm2, tmm5, tmm6";
    "tilestored [{sums} + {row}], tmm0" "tilestored [{below} + {row}], tmm2");
amx!(amx_1_1;
    "tileloadd tmm0, [{sums} + {row}]" "/* {below} */";
    "tilezero tmm0";
    "tileloadd tmm4, [{a0} + {line}]" "tileloadd tmm6, [{b0} + {line}]" "tdpbf16ps tmm0, tmm4, tmm6";
    "tilestored [{sums} + {row}], tmm0" "/* {below} */");

/// Rows whose sums are in registers at once, with `N` strips of columns.
const ROWS: usize = 8;

/// # Safety
/// As [`Pairs::run`] for `strips` strips of rows and `N` of columns; the processor has the instructions.
#[target_feature(enable = "avx512f,avx512bf16")]
#[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
unsafe fn avx512<const N: usize>(strips: usize, block: &Block) {
    let pair = size_of::<u32>();
    for part in 0..strips * STRIP / ROWS {
        let (strip, first) = (part * ROWS / STRIP, part * ROWS % STRIP);
        let a = block.a[strip].wrapping_add(first * STRIP * pair);
        let to = block.sums.wrapping_add(part * ROWS * WIDTH);
        // SAFETY: these are `ROWS` rows of one of `strips` strips, whose tiles and sums are there by
        // `# Safety`, as are the tiles of `N` strips of columns.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); N]; ROWS];
            if block.add {
                for i in 0..ROWS {
                    for j in 0..N {
                        sums[i][j] = _mm512_loadu_ps(to.add(i * WIDTH + j * STRIP));
                    }
                }
            }
            for tile in 0..block.tiles {
                for p in 0..STRIP {
                    let mut right = [pairs(_mm512_set1_epi32(0)); N];
                    for j in 0..N {
                        let at = block.b[j].add(tile * TILE + p * STRIP * pair);
                        right[j] = pairs(_mm512_loadu_si512(at.cast()));
                    }
                    for i in 0..ROWS {
                        let left = a.add(tile * TILE + (i * STRIP + p) * pair).cast::<i32>().read();
                        let left = pairs(_mm512_set1_epi32(left));
                        for j in 0..N {
                            sums[i][j] = _mm512_dpbf16_ps(sums[i][j], left, right[j]);
                        }
                    }
                }
            }
            for i in 0..ROWS {
                for j in 0..N {
                    _mm512_storeu_ps(to.add(i * WIDTH + j * STRIP), sums[i][j]);
                }
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn pairs(bits: std::arch::x86_64::__m512i) -> __m512bh {
    // SAFETY: both are 64 bytes without invalid values.
    unsafe { std::mem::transmute(bits) }
}
