//! How the results of a convolution are cut: into tiles of 2 x 2, and those into blocks that stay in cache.

use std::ops::Range;

use smallvec::SmallVec;

use super::operands::WIDEST;
use crate::tuning::{
    WINOGRAD_BLOCK_NUMBERS, WINOGRAD_FULL_TILES, WINOGRAD_MIN_CHANNEL_TILES, WINOGRAD_MIN_CHANNELS,
    WINOGRAD_MIN_TILES, WINOGRAD_THREADS,
};

/// Elements of a transformed tile, and along each of its axes.
pub(super) const POINTS: usize = 16;
pub(super) const SIDE: usize = 4;
/// Elements of a window.
pub(super) const TAPS: usize = 9;

/// The sizes of a convolution, and how its results are cut into tiles of 2 x 2 and those into blocks: by the
/// sizes alone, on which bits depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    pub(super) images: usize,
    pub(super) rows: usize,
    pub(super) channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    /// Rows of tiles of a block.
    block: usize,
}

/// Rows of tiles of an image, and the column of a block's matrices where they begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) image: usize,
    pub(super) tiles: Range<usize>,
    pub(super) column: usize,
}

impl Tiles {
    /// Tiling for `images` images of results of this height and width, and a weight of these rows and
    /// channels.
    pub(super) fn new(images: usize, [rows, channels]: [usize; 2], [height, width]: [usize; 2]) -> Tiles {
        let tiles = Tiles { images, rows, channels, height, width, block: 1 };
        let is_empty = images * height * width == 0;
        Tiles { block: if is_empty { 1 } else { tiles.best_block() }, ..tiles }
    }

    /// Whether transforms cost less than multiplications that are saved.
    pub(super) fn pay(&self) -> bool {
        let channels = self.rows.min(self.channels);
        let along = if self.together(WIDEST) > 1 { WIDEST } else { self.across() };
        let tiles = self.images * self.down() * self.across();
        channels >= WINOGRAD_MIN_CHANNELS
            && channels * along >= WINOGRAD_MIN_CHANNEL_TILES
            && tiles >= WINOGRAD_MIN_TILES
            && self.height > 1
    }

    /// Tiles along a row, and rows of tiles.
    pub(super) fn across(&self) -> usize {
        self.width.div_ceil(2)
    }

    pub(super) fn down(&self) -> usize {
        self.height.div_ceil(2)
    }

    /// Rows of tiles of a block: as many as stay at hand, by which registers are full, and by which a few
    /// threads have alike to do.
    fn best_block(&self) -> usize {
        let tiles =
            (WINOGRAD_BLOCK_NUMBERS / (POINTS * self.channels.max(self.rows))).max(WINOGRAD_FULL_TILES);
        let all = self.images * self.down();
        let most = (tiles / self.across()).clamp(1, all);
        // Registers of tiles that each of these threads forms, and one more for the overhead of a block.
        let cost = |rows: usize| {
            let blocks = all.div_ceil(rows).next_multiple_of(WINOGRAD_THREADS);
            blocks * ((rows * self.across()).div_ceil(WIDEST) + 1)
        };
        (1..=most).min_by_key(|&rows| (cost(rows), most - rows)).unwrap_or(1)
    }

    /// The blocks of all images.
    pub(super) fn blocks(&self) -> usize {
        (self.images * self.down()).div_ceil(self.block)
    }

    /// The tile rows of a block.
    pub(super) fn pieces(&self, block: usize) -> Pieces {
        let (down, mut row) = (self.down(), block * self.block);
        let (mut pieces, mut column, end) = (Pieces::new(), 0, self.images * down);
        let end = end.min(row + self.block);
        while row < end {
            let first = row % down;
            let tiles = first..down.min(first + end - row);
            let count = tiles.len();
            pieces.push(Piece { image: row / down, tiles, column });
            row += count;
            column += count * self.across();
        }
        pieces
    }

    /// The tiles of pieces.
    pub(super) fn count(&self, pieces: &[Piece]) -> usize {
        pieces.iter().map(|piece| piece.tiles.len() * self.across()).sum()
    }

    /// Columns of a block's matrices: its tiles, in whole registers.
    pub(super) fn padded(&self) -> usize {
        (self.block * self.across()).next_multiple_of(WIDEST)
    }

    /// Rows of results that a block has at most.
    pub(super) fn most_rows(&self) -> usize {
        2 * self.block
    }

    /// Numbers from a row of a block's results to the next: all of them, in whole registers, and a register
    /// past the last.
    pub(super) fn results(&self) -> usize {
        (self.most_rows() * self.width).next_multiple_of(WIDEST) + WIDEST
    }

    /// Room for every second row that the tiles of a block have, transformed along itself: a number for each
    /// tile, for those of the row under each piece, and registers past the last.
    pub(super) fn line(&self) -> usize {
        let pieces = self.block.div_ceil(self.down()) + 1;
        (self.block + pieces) * self.across() + 2 * WIDEST
    }

    /// Where the `nth` piece of a block begins in such a line.
    pub(super) fn place(&self, piece: &Piece, nth: usize) -> usize {
        piece.column + nth * self.across()
    }

    /// How many rows of tiles a register of this width is full of, if that is 2 or 4 and each tile is
    /// whole: they are transformed at once. Otherwise 1.
    pub(super) fn together(&self, width: usize) -> usize {
        let whole = self.width.is_multiple_of(2) && self.height.is_multiple_of(2);
        match width.checked_div(self.across()) {
            Some(n @ (2 | 4)) if whole && n * self.across() == width => n,
            _ => 1,
        }
    }

    /// Numbers from a point's matrix of `rows` rows to the next one's. The matrices of all points are
    /// visited together, and should not meet in one set of a cache.
    pub(super) fn slot(&self, rows: usize) -> usize {
        rows * self.padded() + 3 * WIDEST
    }
}

pub(super) type Pieces = SmallVec<[Piece; 4]>;
