//! Strided copies into regions of the output.
#![allow(unsafe_code)]

use std::{ops::Range, sync::Arc};

use smallvec::SmallVec;
use tensor_core::{Element, Launch, Layout, Result, Scalar, Shape, Strides, collapse, with_element};

use super::interleave::interleaved;
use crate::{
    memory::{
        buffer::{Bound, Memory},
        layouts,
        pool::Pool,
    },
    simd::isa::Isa,
    threads,
    tuning::{BANDED_MAX_PARTS, BANDED_MIN_ELEMENTS, LONG_ROW_ELEMENTS, band_elements},
};

pub(crate) fn run(
    isa: Isa,
    pool: &Arc<Pool>,
    fill: bool,
    regions: &[Layout],
    launch: &Launch<'_>,
) -> Result<()> {
    let bound = Bound::of_launch(pool, launch)?;
    let (out, spec) = (bound.outputs[0], &launch.kernel.outputs[0]);
    let numel = spec.shape.numel();
    for (region, operand) in regions.iter().zip(&launch.kernel.operands) {
        out.require("copy", operand.dtype, region.span().1)?;
    }
    // SAFETY: `of_launch` and `require` checked spans and dtypes, and that the output is not an input; by
    // the kernel's contract an operand has its region's shape.
    if !fill && unsafe { interleaved(isa, regions, launch, &bound.inputs, out) } {
        return Ok(());
    }
    let value = fill.then(|| launch.scalars.first().copied().unwrap_or(Scalar::Int(0)));
    if let Some(bands) = Bands::of(launch, fill, regions, &bound.inputs) {
        threads::share(bands.count.div_ceil(bands.piece), |i| {
            let range = i * bands.piece..bands.count.min((i + 1) * bands.piece);
            if let Some(value) = value {
                // SAFETY: `of_launch` checked that the output holds these elements; each task fills only
                // its own bands.
                unsafe { fill_range(out, range.start * bands.numel..range.end * bands.numel, value) };
            }
            for region in &bands.regions {
                if let Some((src, dst)) = region.part(&range) {
                    // SAFETY: `of_launch` and `require` checked the spans of source and region; regions are
                    // disjoint by the kernel's contract, and so are bands.
                    unsafe { layouts::copy(isa, (region.input, &src), (out, &dst)) };
                }
            }
        });
        return Ok(());
    }
    if let Some(value) = value {
        // SAFETY: `of_launch` checked that the output holds `numel` elements.
        unsafe { fill_range(out, 0..numel, value) };
    }
    for ((dst, operand), &input) in regions.iter().zip(&launch.kernel.operands).zip(&bound.inputs) {
        let src = &operand.layout;
        if src.numel() == 0 {
            // An empty region may have any offset.
            continue;
        }
        // SAFETY: `of_launch` and `require` checked the spans of source and region; regions are disjoint by
        // the kernel's contract, and the output is not an input.
        unsafe { layouts::copy(isa, (input, src), (out, dst)) };
    }
    Ok(())
}

/// An output cut into bands along its first axis, with the regions that meet them. Leading axes that every
/// region covers completely, such as the images of a padded batch, are merged into one axis.
struct Bands {
    regions: SmallVec<[Region; 4]>,
    count: usize,
    /// Elements of the output in a band, and bands in a piece.
    numel: usize,
    piece: usize,
}

/// The data of one input, and the first band that contains some of it.
struct Region {
    input: Memory,
    src: Layout,
    dst: Layout,
    start: usize,
}

impl Bands {
    /// None if bands have no advantage: for a small output, an output of long rows, a region that is not a
    /// box of the output, or an input whose neighbours are in different bands.
    fn of(launch: &Launch<'_>, fill: bool, regions: &[Layout], inputs: &[Memory]) -> Option<Bands> {
        let (shape, operands) = (&launch.kernel.outputs[0].shape, &launch.kernel.operands);
        let long =
            |dst: &Layout| dst.is_contiguous() || dst.shape().last().is_some_and(|&n| n >= LONG_ROW_ELEMENTS);
        if shape.numel() < BANDED_MIN_ELEMENTS
            || !fill && regions.iter().all(long)
            || !(1..=BANDED_MAX_PARTS).contains(&regions.len())
        {
            return None;
        }
        let plain = shape.contiguous_strides();
        let parts = || regions.iter().zip(operands).zip(inputs).filter(|((dst, _), _)| dst.numel() > 0);
        let is_box = |dst: &Layout| {
            let mut axes = dst.shape().iter().zip(dst.strides()).zip(&plain);
            dst.shape().rank() == shape.rank() && axes.all(|((&n, own), plain)| n == 1 || own == plain)
        };
        if !parts().all(|((dst, _), _)| is_box(dst)) {
            return None;
        }
        let is_whole = |axis: &usize| parts().all(|((dst, _), _)| dst.shape()[*axis] == shape[*axis]);
        let whole = (0..shape.rank()).take_while(is_whole).count();
        let sources = parts().map(|((_, operand), _)| &operand.layout.strides()[..whole]);
        let leads: SmallVec<[&[isize]; 4]> = sources.chain([&plain[..whole]]).collect();
        let lead = collapse(&shape[..whole], &leads);
        let sizes = |rest: &[usize]| -> Shape { lead.shape.iter().chain(rest).copied().collect() };
        let &count = sizes(&shape[whole..]).first()?;
        let numel = shape.numel() / count;
        let own = lead.strides.last()?;
        let regions: SmallVec<[Region; 4]> = parts()
            .zip(&lead.strides)
            .map(|(((dst, operand), &input), source)| {
                let merged = |layout: &Layout, lead: &[isize]| {
                    let strides: Strides = lead.iter().chain(&layout.strides()[whole..]).copied().collect();
                    Layout::new(sizes(&layout.shape()[whole..]), &strides, layout.offset())
                };
                let (src, dst) = (merged(&operand.layout, source), merged(dst, own));
                Region { input, src, start: dst.offset() / numel, dst }
            })
            .collect();
        let across = |region: &Region| match region.src.strides() {
            [first, .., last] => *first != 0 && first.unsigned_abs() < last.unsigned_abs(),
            _ => false,
        };
        if regions.iter().any(across) {
            return None;
        }
        let elements = band_elements().min(shape.numel() / (4 * threads::available()));
        let piece = (elements / numel).max(1);
        Some(Bands { regions, count, numel, piece })
    }
}

impl Region {
    /// The source and the destination of this region's data within these bands.
    fn part(&self, bands: &Range<usize>) -> Option<(Layout, Layout)> {
        let (start, end) = (self.start, self.start + self.src.shape()[0]);
        let (from, to) = (bands.start.max(start), bands.end.min(end));
        let part = |layout: &Layout| layout.slice(0, from - start, to - from, 1);
        (from < to).then(|| (part(&self.src), part(&self.dst)))
    }
}

/// Fills a range of the elements of a buffer with one value.
///
/// # Safety
/// The buffer holds these elements, and nothing else reads or writes them meanwhile.
unsafe fn fill_range(out: Memory, range: Range<usize>, value: Scalar) {
    with_element!(out.dtype, T => {
        // SAFETY: `out` holds the elements of `range`, and nothing else accesses them, by `# Safety`.
        let elements = unsafe { std::slice::from_raw_parts_mut(out.at::<T>(range.start), range.len()) };
        elements.fill(T::from_scalar(value));
    });
}
