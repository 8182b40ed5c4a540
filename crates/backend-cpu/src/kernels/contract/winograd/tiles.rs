//! How the results of a convolution are cut: into tiles of 2 x 2, and those into blocks that stay in cache.

use std::ops::Range;

use smallvec::SmallVec;

use super::{super::gemm::WIDEST, POINTS};

/// Numbers of transformed tiles and products of a block that stay in the second-level cache.
const BLOCK: usize = 1 << 17;
/// Tiles of a block from which micro-kernels are full.
const FULL: usize = 48;
/// Channels on either side, and channels times tiles in a row, from which transforms cost less than multiplications that are saved.
const CHANNELS: usize = 32;
const WORTH: usize = 384;
/// Tiles of all images, from which that pays for the weight's transform too.
const TILES: usize = 256;

/// The sizes of a convolution, and how its results are cut into tiles of 2 x 2 and those into blocks: by the sizes alone, on which bits depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    pub(super) images: usize,
    pub(super) rows: usize,
    pub(super) channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
}

/// Rows of tiles of an image, and the column of a block's matrices where they begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) image: usize,
    pub(super) tiles: Range<usize>,
    pub(super) column: usize,
}

impl Tiles {
    /// Whether transforms cost less than multiplications that are saved.
    pub(super) fn pay(&self) -> bool {
        let channels = self.rows.min(self.channels);
        let tiles = self.images * self.down() * self.across();
        channels >= CHANNELS && channels * self.across() >= WORTH && tiles >= TILES && self.height > 1
    }

    /// Tiles along a row, and rows of tiles.
    pub(super) fn across(&self) -> usize {
        self.width.div_ceil(2)
    }

    pub(super) fn down(&self) -> usize {
        self.height.div_ceil(2)
    }

    /// Rows of tiles of a block: as many as stay at hand, by which registers are full.
    pub(super) fn block(&self) -> usize {
        let tiles = (BLOCK / ((POINTS + 1) * self.channels.max(self.rows))).max(FULL);
        let most = (tiles / self.across()).clamp(1, self.images * self.down());
        let registers = |rows: usize| (rows * self.across()).div_ceil(WIDEST);
        (1..=most).min_by(|&a, &b| (registers(a) * b).cmp(&(registers(b) * a)).then(b.cmp(&a))).unwrap_or(1)
    }

    /// The blocks of all images.
    pub(super) fn blocks(&self) -> usize {
        (self.images * self.down()).div_ceil(self.block())
    }

    /// What of which images a block has.
    pub(super) fn pieces(&self, block: usize) -> Pieces {
        let (down, mut row) = (self.down(), block * self.block());
        let (mut pieces, mut column, end) = (Pieces::new(), 0, self.images * down);
        let end = end.min(row + self.block());
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

    /// Columns of a block's matrices: so many tiles, in whole registers.
    pub(super) fn padded(&self) -> usize {
        (self.block() * self.across()).next_multiple_of(WIDEST)
    }

    /// Room for every second row that the tiles of a block have, transformed along itself: a number for each tile, and registers past the last.
    pub(super) fn line(&self) -> usize {
        (self.block() + 1) * self.across() + 2 * WIDEST
    }

    /// Numbers from a point's matrix of so many rows to the next one's. Those of all points are visited together, and should not meet in one
    /// set of a cache.
    pub(super) fn slot(&self, rows: usize) -> usize {
        rows * self.padded() + 3 * WIDEST
    }
}

pub(super) type Pieces = SmallVec<[Piece; 4]>;
