//! Every threshold of this backend, by topic: when threads share work, how much is worked on at once, and
//! which form of a kernel is used. Sizes of arrays and registers stand with their loops.
//!
//! A constant is named for what it bounds and counts elements unless it says otherwise. "Exercised by"
//! names a benchmark: `cargo xtask bench --filter NAME --vs-torch` times it, and `docs/benchmarks` has its
//! results. Sizes that follow from a cache are functions of the [machine]. Those that cut a sum into parts
//! are constant on every machine, since results must have the same bits on all of them: their comments say
//! so.

use std::time::Duration;

use crate::machine::machine;

/// `bytes`, measured with a second-level cache of 1 MiB or more, or as much less as the cache is smaller.
fn in_l2(bytes: usize) -> usize {
    const WHOLE: usize = 1 << 20;
    // Divided first: the product of two sizes has more than 32 bits.
    let kib = machine().l2.min(WHOLE) >> 10;
    (bytes >> 10) * kib
}

// Waking threads. Exercised by `small_add_batch`, `simplenet_step_64` and `simplenet_step_64_busy`.

/// Grains of work that are worth waking a helper for.
pub(crate) const MIN_GRAINS_TO_WAKE: usize = 16;
/// Time for which a helper without work stays awake.
pub(crate) const AWAKE_TIME: Duration = Duration::from_micros(200);
/// Pause instructions between two looks at whether there is work.
pub(crate) const SPIN_PAUSES: usize = 16;
/// Length of such a pause that shows that another thread had the processor.
pub(crate) const PREEMPTED_TIME: Duration = Duration::from_micros(200);
/// Time for which no thread stays awake after that.
pub(crate) const CROWDED_TIME: Duration = Duration::from_millis(20);
/// Time for which a caller waits awake for helpers that are still at a task. A helper that takes longer has
/// lost its processor, and gets the caller's.
pub(crate) const SPIN_LIMIT: Duration = Duration::from_micros(100);
/// Looks at another thread's progress along a line before this one yields. Exercised by
/// `more_cumsum_axis1_4096`.
pub(crate) const SPIN_LOOKS: usize = 64;

// Work below which a kernel stays on the calling thread: waking others costs microseconds.

/// Positions times steps of an elementwise program, elements copied by strides, or multiplications of
/// attention and of integers. Exercised by `small_add_nograd` and `attention_4x8x512x64`.
pub(crate) const SERIAL_STEPS: usize = 1 << 18;
/// Elements of a kernel over lines, and those of one line that threads share. Exercised by
/// `more_cumsum_axis1_4096` and `more_index_select_50000x256`.
pub(crate) const SERIAL_LINE_ELEMENTS: usize = 1 << 17;
/// Bytes or bools copied by strides. No benchmark exercises it by itself.
pub(crate) const SERIAL_BYTES: usize = 1 << 16;

// Grains: the work that is worth a thread that is awake, some microseconds of it.

/// Multiplications of micro-kernels. Exercised by `matmul_64` and `more_bmm_16x65x77x33`.
pub(crate) const MICRO_KERNEL_GRAIN: usize = 1 << 18;
/// Multiplications of bf16 in pairs. Exercised by `matmul_bf16_256`.
#[cfg(target_arch = "x86_64")]
pub(crate) const BF16_GRAIN: usize = 1 << 21;
/// Multiplications with numbers that are decoded in registers. No benchmark exercises it yet.
pub(crate) const BLOCK_GRAIN: usize = 1 << 16;
/// Multiplications of a step of a recurrence, whose threads meet after each. Exercised by
/// `lstm_64x32_128_256_fwd`.
pub(crate) const RECURRENCE_GRAIN: usize = 1 << 17;
/// Elements that each take a cycle or less: read once, added, compared or converted. Exercised by
/// `more_matmul_1x1024x1024`, `ops_functional_embedding_bag`, `ops_functional_cdist` and `ops_nonzero`.
pub(crate) const ELEMENT_GRAIN: usize = 1 << 16;
/// Elements that each take several cycles: indexed, interpolated, compared in windows, or transformed.
/// Exercised by `max_pool2d_8x64x112x112_fwd_bwd`, `ops_functional_grid_sample`, `ops_fft_fft` and
/// `ops_scatter_add`.
pub(crate) const COSTLY_ELEMENT_GRAIN: usize = 1 << 15;
/// Rows of columns that are interleaved. Exercised by `ops_stack`.
pub(crate) const INTERLEAVED_ROW_GRAIN: usize = 1 << 14;
/// Values that are searched for in a sorted row. Exercised by `ops_searchsorted`.
pub(crate) const SEARCH_GRAIN: usize = 1 << 13;
/// Bytes of the host's that are handed over at once: some hundred microseconds of copying. Exercised by
/// `dataloader_epoch_60000x784_b64`.
pub(crate) const HOST_PIECE_BYTES: usize = 1 << 19;

// Elementwise programs. Exercised by `unary_exp_10M` and `elementwise_chain`.

/// Positions in a block: measured best among 512 to 4096 for f32 with a first-level cache of 48 KiB.
/// Registers of the block engine have this size, and sums of a program's results are cut by it.
pub(crate) const BLOCK_POSITIONS: usize = 1024;
/// Length of a run of positions from which it is a block of its own; shorter ones are gathered across rows.
/// Exercised by `broadcast_add_4096x1000`.
pub(crate) const MIN_RUN_POSITIONS: usize = 128;
/// Positions of a kernel from which its next block is prefetched: less stays in a cache.
pub(crate) const PREFETCH_MIN_POSITIONS: usize = 1 << 18;
/// Elements of the costliest step between two prefetches: as many cache lines as can be in flight at once.
pub(crate) const PREFETCH_STEP_ELEMENTS: usize = 256;

// Indexed rows. Exercised by `more_index_select_50000x256`, `ops_gather` and
// `more_embedding_fwd_bwd_50000x256`.

/// Bytes of a row up to which all of it is prefetched before its elements are picked.
pub(crate) const PREFETCH_ROW_BYTES: usize = 1 << 14;
/// Bytes of a run that are prefetched.
pub(crate) const PREFETCH_RUN_BYTES: usize = 1 << 10;
/// Distance of a prefetch, in rows: of a map, and of the sums of bags.
pub(crate) const ROWS_AHEAD: usize = 4;
pub(crate) const BAG_ROWS_AHEAD: usize = 8;
/// Indices of bags that are checked together. Exercised by `ops_functional_embedding_bag`.
pub(crate) const CHECKED_INDICES: usize = 1 << 12;
/// Length of a line from which its gather has a loop of its own.
pub(crate) const GATHER_MIN_LINE: usize = 64;
/// Neighbouring lines that are gathered or scattered together.
pub(crate) const INDEX_BAND_LINES: usize = 1024;
/// Elements of a line's part with sums of its own, in a scatter; and parts of a line at most. They cut
/// sums, so they are constant. Exercised by `ops_scatter_add`.
pub(crate) const SCATTER_PART_ELEMENTS: usize = 1 << 15;
pub(crate) const SCATTER_MAX_PARTS: usize = 16;

// Copies. Exercised by `transpose_copy_4096` and `more_concat_4x64x128x512`.

/// Elements of a row from which it is copied as one piece of memory, and is whole cache lines but for its
/// ends.
pub(crate) const LONG_ROW_ELEMENTS: usize = 256;
/// Columns that are copied together down all rows: few enough streams for the prefetchers, and runs of the
/// target long enough to write more than one line of a page at a time.
pub(crate) const BAND_COLUMNS: usize = 64;
/// Columns from which a copy is cut into square tiles.
pub(crate) const TILE_MIN_COLUMNS: usize = 5;
/// Elements of an output of several parts from which it is written in bands, and parts up to which it is:
/// most of more parts would have nothing in a band.
pub(crate) const BANDED_MIN_ELEMENTS: usize = 1 << 15;
pub(crate) const BANDED_MAX_PARTS: usize = 16;
/// Elements of a band: all of its parts are written while it is in the second-level cache.
pub(crate) fn band_elements() -> usize {
    in_l2(1 << 17)
}

// Reductions and rows. Exercised by `sum_axis0_4096`, `sum_axis1_4096` and `softmax_4096x1000`.

/// Results that stay in the first-level cache beside the terms that they are made of: 16 KiB of f32. Arrays
/// have this size, so it is constant.
pub(crate) const CACHED_RESULTS: usize = 1 << 12;
/// Elements of one result that one task folds. It cuts sums, so it is constant.
pub(crate) const SUM_PIECE_ELEMENTS: usize = 1 << 16;
/// Rows that one task accumulates. It cuts sums, so it is constant. Exercised by `sum_axis0_4096`.
pub(crate) const SUM_PIECE_ROWS: usize = 1 << 10;
/// Terms that are added in f32 before they are joined in f64. It cuts sums, so it is constant.
pub(crate) const F32_SUM_TERMS: usize = 32;
/// Rows of a bag, and coordinates of a distance, that are added in their own dtype before they are joined
/// in f64. It cuts sums, so it is constant. Exercised by `ops_functional_embedding_bag` and
/// `ops_functional_cdist`.
pub(crate) const OWN_DTYPE_SUM_TERMS: usize = 64;
/// Neighbouring results from which they are accumulated as a block.
pub(crate) const MIN_BLOCK_RESULTS: usize = 32;
/// Elements side by side from which they have a loop of their own. Exercised by
/// `more_sum_axis1_64x128x512`.
pub(crate) const MIN_LOOP_ELEMENTS: usize = 8;
/// Positions in a tile of rows, as far as whole rows allow: two thirds of the first-level cache in f32, so
/// that a pass finds what the one before kept.
pub(crate) fn row_tile_positions() -> usize {
    machine().l1d * 2 / 3 / size_of::<f32>()
}
/// Elements of a row from which a pass prefetches a block ahead, not a tile: two tiles would drive each
/// other out of the second-level cache. Exercised by `more_softmax_axis1_64x128x512`.
pub(crate) const LONG_ROW_PASS: usize = 1 << 15;
/// Additions that a value costs up to which a later pass computes it again rather than keep it. Exercised
/// by `layer_norm_4096x1024`.
pub(crate) const RECOMPUTE_LIMIT: u32 = 2;

// Scans and sorts. Exercised by `more_cumsum_axis1_4096`, `more_sort_axis1_4096x1000` and
// `more_topk10_64x50000`.

/// Length of a line from which it is scanned in registers.
pub(crate) const SCAN_MIN_LINE: usize = 32;
/// Elements of a piece of a line: what is read and written of it stays in the second-level cache. It cuts
/// sums, so it is constant.
pub(crate) const SCAN_PIECE_ELEMENTS: usize = 1 << 15;
/// Elements of the lines that are sorted together: where neighbours are contiguous, and elsewhere.
/// Exercised by `more_sort_axis0_1000x4096`.
pub(crate) const SORTED_NEIGHBOURS: usize = 1 << 14;
pub(crate) const SORTED_ELEMENTS: usize = 1 << 12;
/// Length of a line from which it is sorted by digits.
pub(crate) const RADIX_SORT_MIN_ELEMENTS: usize = 1 << 11;
/// Part of a line below which its first elements are selected, and the others never sorted: one in this
/// many.
pub(crate) const SELECT_PART: usize = 8;
/// Elements that are compared together with the last of those selected.
pub(crate) const SELECT_BLOCK: usize = 32;

// Matrix products. Exercised by `matmul_1024`, `more_matmul_333x517x129` and `conv2d_3x3_8x64x56x56`.

/// Bytes of a row's terms in a block of KC terms: eight rows of them, and the panel that streams by, fill a
/// first-level cache. It cuts sums, so it is constant.
pub(crate) const KC_BYTES: usize = 1536;
/// Bytes of packed panels: a part of the second-level cache.
pub(crate) fn panels_bytes() -> usize {
    in_l2(768 << 10)
}
/// Bytes of packed panels of windows, which are read beside a source as large as that.
pub(crate) fn window_panels_bytes() -> usize {
    in_l2(256 << 10)
}
/// Columns that are finished together where windows are read in place.
pub(crate) const FINISHED_COLUMNS: usize = 384;
/// Rows up to which panels are read in place, without packing. Exercised by `matmul_nn_64x784x128`.
pub(crate) const IN_PLACE_MAX_ROWS: usize = 128;
/// Rows up to which they are if consecutive rows are close, and the bytes from row to row that are close.
pub(crate) const IN_PLACE_MAX_ROWS_CLOSE: usize = 320;
pub(crate) const CLOSE_ROW_BYTES: usize = 2048;
/// Panels from which a left operand that is contiguous along its columns is packed. Exercised by
/// `matmul_tn_784x64x128`.
pub(crate) const PACK_LHS_MIN_PANELS: usize = 4;
/// Products with each element of a left operand, shared by a batch, from which it is packed once for all of
/// them. Exercised by `conv1d_k5_16x64x1000`.
pub(crate) const PACK_LHS_MIN_REUSE: usize = 128;
/// Quarters of a cycle, about, that packing takes: a register, an element, and a tile that is transposed
/// with AVX-512 or without. Exercised by `conv2d_stem_7x7s2_8x3x224x224`.
pub(crate) const PACK_REGISTER_COST: usize = 12;
pub(crate) const PACK_ELEMENT_COST: usize = 6;
pub(crate) const PACK_FAST_TILE_COST: usize = 400;
pub(crate) const PACK_SLOW_TILE_COST: usize = 1600;
/// Products of a row with a register that take as long as packing a register of windows.
pub(crate) const PACK_WINDOW_COST: usize = 10;
/// Results of a batch position up to which each is summed by itself. Exercised by
/// `conv2d_depthwise_8x96x56x56_fwd_bwd`.
pub(crate) const THIN_MAX_RESULTS: usize = 32;
/// Rows up to which a product is formed along its terms: with more, transposing both operands is less of
/// the work. Exercised by `conv2d_3x3_8x64x56x56_fwd_bwd` and `resnet20_step_32`.
pub(crate) const DOTS_MAX_ROWS: usize = 32;
/// The same for columns at even distances, as those of a transposed matrix.
pub(crate) const DOTS_MAX_EVEN_ROWS: usize = 8;
/// Registers of terms in a block of such a product: four rows of them are a third of a first-level cache.
/// It cuts sums, so it is constant.
pub(crate) const DOTS_BLOCK_REGISTERS: usize = 64;
/// At most one in this many registers may straddle two runs.
pub(crate) const DOTS_REGISTERS_PER_STRADDLE: usize = 2;
/// Terms of a product with a vector that are summed in one piece. It cuts sums, so it is constant.
/// Exercised by `more_matmul_1024x1024x1`.
pub(crate) const GEMV_PIECE_TERMS: usize = 1 << 15;
/// The most vectors for which the rows of a matrix in blocks are decoded in registers. A result has the same
/// bits with any number of vectors up to this one, so `models::serving` reads prompts in parts of as many
/// tokens. `taper bench MODEL.gguf --texts 1,16` exercises it.
pub(crate) const BLOCK_VECTORS: usize = 64;
/// Numbers of an operand in blocks that a thread decodes at once, about half of a second-level cache in
/// f32. It cuts sums, so it is constant. No benchmark exercises it yet.
pub(crate) const DECODED_ELEMENTS: usize = 1 << 16;
/// Rows of the other operand up to which decoded rows are the left operand of a product: to pack them as
/// columns would cost more than the product. `taper bench MODEL.gguf -p 16,32,64` exercises it.
pub(crate) const TRANSPOSED_MAX_ROWS: usize = 64;
/// Rows or columns of such an operand that are decoded together if its terms are not contiguous. It cuts
/// sums, so it is constant.
pub(crate) const DECODED_SIDE: usize = 512;
/// Terms of bf16 products that are summed at once; sums of more are added block by block in memory. It cuts
/// sums, so it is constant. Exercised by `matmul_bf16_1024`.
pub(crate) const BF16_KC_TERMS: usize = 1 << 14;
/// Bytes of packed columns of bf16: a part of the second-level cache. Exercised by `matmul_bf16_2048`.
#[cfg(target_arch = "x86_64")]
pub(crate) fn bf16_columns_bytes() -> usize {
    in_l2(1088 << 10)
}

// Attention, recurrences, distances and Fourier transforms.

/// Queries of a block and keys of a tile: a tile's data fill the first-level cache. They cut sums, so they
/// are constant. Exercised by `attention_causal_1x8x4096x64`.
pub(crate) const ATTENTION_QUERIES: usize = 64;
pub(crate) const ATTENTION_KEYS: usize = 96;
/// Bytes of a recurrence's weight up to which a few sequences go through all steps: it stays in the
/// second-level cache. Exercised by `lstm_64x32_128_256_fwd`.
pub(crate) fn recurrence_weight_bytes() -> usize {
    in_l2(5 << 18)
}
/// Micro-tiles of sequences that a task takes through a step, as far as all threads have some: a panel of the
/// weight is read for all of them.
pub(crate) const RECURRENCE_TILES: usize = 4;
/// Points that meet one panel in a task. Exercised by `ops_functional_cdist`.
pub(crate) const DISTANCE_TASK_POINTS: usize = 256;
/// Numbers that one call of a Fourier plan transforms at least: they stay in the first-level cache.
/// Exercised by `ops_fft_fft`.
#[cfg(feature = "fft")]
pub(crate) const FOURIER_GROUP_NUMBERS: usize = 1 << 11;
/// Fourier plans that are kept, and the sum of their lengths, unless one alone is longer.
#[cfg(feature = "fft")]
pub(crate) const FOURIER_PLANS: usize = 64;
#[cfg(feature = "fft")]
pub(crate) const FOURIER_PLAN_LENGTHS: usize = 1 << 22;

// Memory.

/// Bytes of free memory that a pool keeps at least, however small the peak was. Exercised by
/// `step_of_new_sizes`.
pub(crate) const POOL_KEEP_BYTES: u64 = 1 << 30;

/// Allocations after which free memory that was not used is given back. A step of a language model has some
/// hundreds. A server of 16 texts had kept the memory of each number of texts (`scripts/serve_soak.py`).
pub(crate) const POOL_IDLE: u64 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of a cache are those that were measured, on machines like the one that measured them.
    #[test]
    fn shares_of_caches_fit_them() {
        let machine = machine();
        assert!(panels_bytes() <= machine.l2 && window_panels_bytes() < panels_bytes());
        if machine.l2 >= 1 << 20 {
            assert_eq!([panels_bytes(), window_panels_bytes()], [768 << 10, 256 << 10]);
        }
        if machine.l1d == 48 << 10 {
            assert_eq!(row_tile_positions(), 1 << 13);
        }
    }
}
