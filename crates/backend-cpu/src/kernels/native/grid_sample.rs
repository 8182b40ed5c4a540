//! Images sampled at the points of a grid. The corners around a group of points and their weights are
//! computed together; then a few channels at a time are read at them. The steps and their order are those
//! of the composition in `nn`, so both give the same bits.
//!
//! It takes 0.75 ms (bilinear) and 0.38 ms (nearest) for 8 x 16 images of 64 x 64; maps that read at
//! indices take 1.7 ms and 0.46 ms (decision 47).
#![allow(unsafe_code)]

use std::{
    cmp::min,
    ops::{Div, Neg, Range, Rem},
};

use tensor_core::{DType, GridMode, GridPadding, GridSample, Launch, Result, custom::unsupported};

use super::custom::{Native, for_float};
use crate::{
    CpuBackend,
    memory::{buffer::Bound, strided::Shared},
    simd::{
        isa::{Isa, Job, Sets},
        vector::Float,
    },
    threads,
    tuning::COSTLY_ELEMENT_GRAIN,
};

/// Grid points whose corners are found at once.
const POINT_GROUP: usize = 64;
/// Channels that are read at each of these points before the next channels. Planes are often a power of two
/// apart, so that a point's pixels share a set of the first-level cache, which has room for this many lines.
const CHANNELS: usize = 8;

impl Native for GridSample {
    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        for_float!(self, launch, typed(backend, *self, launch))
    }
}

/// A float type of coordinates.
trait Coordinate: Float + Div<Output = Self> + Neg<Output = Self> + Rem<Output = Self> {
    fn floor(self) -> Self;
    /// Rounds to the nearest integer, ties to even.
    fn round(self) -> Self;
    /// Converts a whole number to i32.
    ///
    /// # Safety
    /// The number is at least 0 and below 2³¹.
    unsafe fn whole(self) -> i32;
    /// The greatest float that is not above `whole`.
    fn at_most(whole: i32) -> Self;
    /// Weighted sums of four pixels in each of four planes that are `area` apart: `upper` and the pixel
    /// after it, `lower` and the pixel after it. The weights are in the order of [`Corners`].
    ///
    /// # Safety
    /// Each of the four planes has the pixels at `upper` and `lower`, and the pixel after each.
    #[inline(always)]
    unsafe fn four_planes(
        upper: *const Self,
        lower: *const Self,
        area: usize,
        weights: [Self; 4],
    ) -> [Self; 4] {
        let mut sums = [Self::ZERO; 4];
        for (plane, sum) in sums.iter_mut().enumerate() {
            let (upper, lower) = (upper.wrapping_add(plane * area), lower.wrapping_add(plane * area));
            // SAFETY: by `# Safety` each of the four planes has these pixels and the pixel after each;
            // `plane` is below 4.
            let (left, right) =
                unsafe { ([upper.read(), lower.read()], [upper.add(1).read(), lower.add(1).read()]) };
            *sum =
                left[0] * weights[0] + left[1] * weights[1] + right[0] * weights[2] + right[1] * weights[3];
        }
        sums
    }
}

macro_rules! place {
    ($t:ty $(, $four_planes:item)?) => {
        impl Coordinate for $t {
            #[inline(always)]
            fn floor(self) -> $t {
                self.floor()
            }
            #[inline(always)]
            fn round(self) -> $t {
                self.round_ties_even()
            }
            #[inline(always)]
            unsafe fn whole(self) -> i32 {
                // SAFETY: the number is at least 0 and below 2³¹ by `# Safety`. A saturating conversion
                // would not be one vector instruction.
                unsafe { self.to_int_unchecked() }
            }
            fn at_most(whole: i32) -> $t {
                let nearest = whole as $t;
                if f64::from(nearest) > f64::from(whole) { nearest.next_down() } else { nearest }
            }
            $($four_planes)?
        }
    };
}
#[cfg(not(target_arch = "x86_64"))]
place!(f32);
#[cfg(target_arch = "x86_64")]
place!(
    f32,
    /// Reads neighbouring pixels together, which halves the number of loads.
    #[inline(always)]
    unsafe fn four_planes(upper: *const f32, lower: *const f32, area: usize, weights: [f32; 4]) -> [f32; 4] {
        use std::arch::x86_64::{
            _mm_add_ps, _mm_castpd_ps, _mm_load_sd, _mm_loadh_pd, _mm_movehl_ps, _mm_movelh_ps, _mm_mul_ps,
            _mm_setr_ps, _mm_storeu_ps, _mm_unpackhi_ps, _mm_unpacklo_ps,
        };
        // SAFETY: each load reads a pixel and the one after it, which each plane has by `# Safety`; every
        // x86-64 processor has these instructions.
        unsafe {
            let weights = _mm_setr_ps(weights[0], weights[2], weights[1], weights[3]);
            // A macro, because a closure might be compiled separately, without the instruction set.
            macro_rules! products {
                ($plane:literal) => {{
                    let (upper, lower) =
                        (upper.wrapping_add($plane * area), lower.wrapping_add($plane * area));
                    let pixels = _mm_loadh_pd(_mm_load_sd(upper.cast()), lower.cast());
                    _mm_mul_ps(_mm_castpd_ps(pixels), weights)
                }};
            }
            // For each plane, the products of the two upper pixels and of the two lower pixels.
            let (a, b, c, d) = (products!(0), products!(1), products!(2), products!(3));
            let [above, others_above] = [_mm_unpacklo_ps(a, b), _mm_unpacklo_ps(c, d)];
            let [below, others_below] = [_mm_unpackhi_ps(a, b), _mm_unpackhi_ps(c, d)];
            let firsts = _mm_add_ps(_mm_movelh_ps(above, others_above), _mm_movelh_ps(below, others_below));
            let three = _mm_add_ps(firsts, _mm_movehl_ps(others_above, above));
            let all = _mm_add_ps(three, _mm_movehl_ps(others_below, below));
            let mut sums = [0.0; 4];
            _mm_storeu_ps(sums.as_mut_ptr(), all);
            sums
        }
    }
);
place!(f64);

fn typed<T: Coordinate>(backend: &CpuBackend, of: GridSample, launch: &Launch<'_>) -> Result<()> {
    let shape = |k: usize| launch.kernel.operands[k].layout.shape().dims();
    let (lead, picture) = shape(0).split_at(shape(0).len() - 1 - of.axes);
    let places: usize = shape(1)[lead.len()..][..of.axes].iter().product();
    let dtype = launch.kernel.operands[1].dtype;
    let (batch, channels, pixels) = (lead.iter().product::<usize>(), picture[0], &picture[1..]);
    if batch * channels * places == 0 {
        return Ok(());
    }
    let bound = Bound::of_launch(&backend.pool, launch)?;
    let sampler = Sampler::<T> {
        isa: backend.isa,
        of,
        axes: pixels.iter().map(|&size| Axis::new(size, of.align_corners, dtype)).collect(),
        channels,
        area: pixels.iter().product(),
        adjacent: pixels[of.axes - 1] <= 1 << 24,
        places,
        pictures: bound.inputs[0].at::<T>(0),
        grid: bound.inputs[1].at::<T>(0),
        out: Shared(bound.outputs[0].at::<T>(0)),
    };
    // The kernel is only created for these modes.
    let is_nearest = match of.mode {
        GridMode::Bilinear => false,
        GridMode::Nearest => true,
        GridMode::Bicubic => return Err(unsupported(&of, launch.kernel, "cpu")),
    };
    let some = |range: Range<usize>| match (of.axes, is_nearest) {
        (2, false) => sampler.range::<2, 4>(range),
        (2, true) => sampler.range::<2, 1>(range),
        (_, false) => sampler.range::<3, 8>(range),
        (_, true) => sampler.range::<3, 1>(range),
    };
    match threads::worth((batch * places * channels) << of.axes, COSTLY_ELEMENT_GRAIN) {
        1 => some(0..batch * places),
        _ => threads::share_ranges(batch * places, POINT_GROUP, some),
    }
    Ok(())
}

/// The pixels along one axis.
struct Axis<T> {
    size: i32,
    /// The last pixel's number, rounded to the type but not above the true number.
    last: T,
    top: T,
    /// The coordinate of x in pixels is (x + 1) · `scale` − `before`.
    scale: T,
    before: T,
    /// The first mirror of reflection padding, and the distance to the other mirror.
    low: T,
    span: T,
    /// See [`GridSample::FARTHEST`].
    farthest: T,
    /// See [`GridSample::greatest_reflected`].
    greatest_reflected: T,
}

impl<T: Coordinate> Axis<T> {
    fn new(size: usize, align_corners: bool, dtype: DType) -> Axis<T> {
        let n = size as f64;
        let (scale, before, low, span) =
            if align_corners { ((n - 1.0) / 2.0, 0.0, 0.0, n - 1.0) } else { (n / 2.0, 0.5, -0.5, n) };
        let [last, scale, before, low, span] = [n - 1.0, scale, before, low, span].map(T::rounded);
        let [farthest, greatest_reflected] =
            [GridSample::FARTHEST, GridSample::greatest_reflected(size, dtype)].map(T::rounded);
        let size = size as i32;
        let top = T::at_most(size - 1);
        Axis { size, last, top, scale, before, low, span, farthest, greatest_reflected }
    }

    #[inline(always)]
    fn clamped(&self, x: T) -> T {
        let x = if x < T::ZERO { T::ZERO } else { x };
        if x > self.last { self.last } else { x }
    }

    /// The grid value, with −1 for NaN, and for a value that would be reflected but whose position overflows.
    #[inline(always)]
    fn readable(&self, padding: GridPadding, x: T) -> T {
        match padding {
            GridPadding::Zeros | GridPadding::Border => {
                let x = if x.is_nan() { -T::ONE } else { x };
                let x = if x < -self.farthest { -self.farthest } else { x };
                if x > self.farthest { self.farthest } else { x }
            }
            GridPadding::Reflection => {
                if x.abs() <= self.greatest_reflected {
                    x
                } else {
                    -T::ONE
                }
            }
        }
    }

    /// Converts grid values to pixel coordinates.
    #[inline(always)]
    fn place(&self, padding: GridPadding, at: &mut [T; POINT_GROUP]) {
        for x in at.iter_mut() {
            *x = self.readable(padding, *x);
            *x = (*x + T::ONE) * self.scale - self.before;
        }
        match padding {
            GridPadding::Zeros => {}
            GridPadding::Border => at.iter_mut().for_each(|x| *x = self.clamped(*x)),
            GridPadding::Reflection if self.span == T::ZERO => {
                at.iter_mut().for_each(|x| *x = *x * T::ZERO);
            }
            GridPadding::Reflection => {
                for x in at.iter_mut() {
                    let far = (*x - self.low).abs();
                    let turns = (far / self.span).floor();
                    let near = far - turns * self.span;
                    let rest = if far > self.farthest { far % self.span } else { near };
                    let odd = turns - (turns * T::HALF).floor() * (T::ONE + T::ONE);
                    let inside = if odd == T::ZERO { rest } else { self.span - rest };
                    *x = self.clamped(inside + self.low);
                }
            }
        }
    }
}

struct Sampler<T> {
    isa: Isa,
    of: GridSample,
    axes: Vec<Axis<T>>,
    channels: usize,
    /// Pixels of one channel.
    area: usize,
    /// Whether `T` can represent each pixel's number and the next one, so that the corners along the last
    /// axis are neighbours in memory.
    adjacent: bool,
    /// Grid points for each image.
    places: usize,
    pictures: *const T,
    grid: *const T,
    out: Shared<T>,
}

// SAFETY: inputs are only read, and threads write different points.
unsafe impl<T: Sync> Sync for Sampler<T> {}

impl<T: Coordinate> Sampler<T> {
    /// Computes the results of some grid points, counted over all images.
    fn range<const D: usize, const K: usize>(&self, range: Range<usize>) {
        self.isa.narrow().run(GridPoints::<'_, T, D, K> { of: self, range });
    }
}

/// Grid points in images with `D` axes; each reads `K` pixels: one, or all corners around it.
struct GridPoints<'a, T, const D: usize, const K: usize> {
    of: &'a Sampler<T>,
    range: Range<usize>,
}

/// The pixels that a group of grid points reads.
struct Corners<T, const K: usize> {
    /// Offsets within a channel; valid even for a corner that is not read.
    offsets: [[i32; POINT_GROUP]; K],
    weights: [[T; POINT_GROUP]; K],
    /// A bit for each corner that is within the image.
    inside: [u32; POINT_GROUP],
}

/// The two neighbouring pixels of each point along one axis.
#[derive(Clone, Copy)]
struct Sides<T> {
    /// The pixel, clamped to the image.
    pixels: [[i32; POINT_GROUP]; 2],
    weights: [[T; POINT_GROUP]; 2],
    /// 1 if the pixel is outside the image.
    outside: [[u32; POINT_GROUP]; 2],
}

impl<T: Coordinate> Sides<T> {
    #[inline(always)]
    fn new() -> Sides<T> {
        Sides {
            pixels: [[0; POINT_GROUP]; 2],
            weights: [[T::ONE; POINT_GROUP]; 2],
            outside: [[0; POINT_GROUP]; 2],
        }
    }

    #[inline(always)]
    fn set(&mut self, side: usize, of: &Axis<T>, at: &[T; POINT_GROUP], weights: &[T; POINT_GROUP]) {
        self.weights[side] = *weights;
        for (p, &x) in at.iter().enumerate() {
            self.outside[side][p] = u32::from(!((x >= T::ZERO) & (x <= of.last)));
            // NaN becomes the first pixel.
            let x = if x > T::ZERO { x } else { T::ZERO };
            let x = if x < of.top { x } else { of.top };
            // SAFETY: the number is at least 0 and at most the number of the last pixel, an i32.
            self.pixels[side][p] = unsafe { x.whole() };
        }
    }
}

impl<T: Coordinate, const D: usize, const K: usize> Job for GridPoints<'_, T, D, K> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let places = self.of.places;
        let mut first = self.range.start;
        while first < self.range.end {
            let (picture, place) = (first / places, first % places);
            let count = min(min(POINT_GROUP, places - place), self.range.end - first);
            let corners = self.corners(first, count);
            for channel in (0..self.of.channels).step_by(CHANNELS) {
                let channels = channel..min(channel + CHANNELS, self.of.channels);
                self.read(&corners, picture, channels, place, count);
            }
            first += count;
        }
    }
}

impl<T: Coordinate, const D: usize, const K: usize> GridPoints<'_, T, D, K> {
    /// Computes the corners of `count` points from `first` on.
    #[inline(always)]
    fn corners(&self, first: usize, count: usize) -> Corners<T, K> {
        // SAFETY: `check_custom` and `of_launch` checked that the grid has that many points of `D` numbers.
        let grid = unsafe { std::slice::from_raw_parts(self.of.grid.add(first * D), count * D) };
        let mut sides = [Sides::<T>::new(); D];
        for (axis, sides) in sides.iter_mut().enumerate() {
            let mut at = [T::ZERO; POINT_GROUP];
            // x comes first in the grid; it belongs to the last axis.
            at.iter_mut().zip(grid.chunks_exact(D)).for_each(|(at, numbers)| *at = numbers[D - 1 - axis]);
            let of = &self.of.axes[axis];
            of.place(self.of.of.padding, &mut at);
            if K == 1 {
                at.iter_mut().for_each(|x| *x = x.round());
                sides.set(0, of, &at, &[T::ONE; POINT_GROUP]);
            } else {
                let (mut upper, mut near, mut far) = (at, at, at);
                for p in 0..POINT_GROUP {
                    let pixel = at[p].floor();
                    let share = at[p] - pixel;
                    (at[p], upper[p]) = (pixel, pixel + T::ONE);
                    (near[p], far[p]) = (T::ONE - share, share);
                }
                sides.set(0, of, &at, &near);
                sides.set(1, of, &upper, &far);
            }
        }
        let mut found = Corners {
            offsets: [[0; POINT_GROUP]; K],
            weights: [[T::ONE; POINT_GROUP]; K],
            inside: [(1 << K) - 1; POINT_GROUP],
        };
        for corner in 0..K {
            let (offsets, weights) = (&mut found.offsets[corner], &mut found.weights[corner]);
            for (axis, sides) in sides.iter().enumerate() {
                let (side, size) = (corner >> axis & 1, self.of.axes[axis].size);
                for p in 0..POINT_GROUP {
                    offsets[p] = offsets[p] * size + sides.pixels[side][p];
                    weights[p] = weights[p] * sides.weights[side][p];
                    found.inside[p] &= !(sides.outside[side][p] << corner);
                }
            }
        }
        found
    }

    /// Computes the results of some channels of an image at a group of points.
    #[inline(always)]
    fn read(
        &self,
        corners: &Corners<T, K>,
        picture: usize,
        channels: Range<usize>,
        place: usize,
        count: usize,
    ) {
        let Sampler { area, places, .. } = *self.of;
        let plane = picture * self.of.channels + channels.start;
        let (pictures, results) =
            (self.of.pictures.wrapping_add(plane * area), self.of.out.0.wrapping_add(plane * places + place));
        // A bound that the compiler can see avoids bounds checks.
        for p in 0..count.min(POINT_GROUP) {
            let (mut offsets, mut weights) = ([0usize; K], [T::ZERO; K]);
            for k in 0..K {
                (offsets[k], weights[k]) = (corners.offsets[k][p] as usize, corners.weights[k][p]);
            }
            let inside = corners.inside[p];
            macro_rules! channels {
                ($channels:expr, $inside:expr) => {
                    let first = $channels.start - channels.start;
                    let mut pixels = pictures.wrapping_add(first * area);
                    let mut out = results.wrapping_add(first * places + p);
                    for _ in $channels {
                        let mut sum = T::ZERO;
                        for k in 0..K {
                            let pixel = if $inside >> k & 1 == 1 {
                                // SAFETY: `check_custom` and `of_launch` checked that the image has that
                                // many channels of `area` pixels, and an offset is below `area`.
                                unsafe { pixels.add(offsets[k]).read() }
                            } else {
                                T::ZERO
                            };
                            sum = match (K, k) {
                                (1, _) => pixel,
                                (_, 0) => pixel * weights[0],
                                _ => sum + pixel * weights[k],
                            };
                        }
                        // SAFETY: `check_custom` and `of_launch` checked that the output has `places`
                        // results for each channel; these points belong to this task alone.
                        unsafe { out.write(sum) };
                        (pixels, out) = (pixels.wrapping_add(area), out.wrapping_add(places));
                    }
                };
            }
            if inside != (1 << K) - 1 {
                channels!(channels.clone(), inside);
                continue;
            }
            // The fast path: most points are within the image.
            let mut rest = channels.clone();
            if D == 2 && K == 4 && self.of.adjacent {
                let (upper, lower) = (offsets[0], offsets[1 % K]);
                let weights = [weights[0], weights[1 % K], weights[2 % K], weights[3 % K]];
                let (mut pixels, mut out) = (pictures, results.wrapping_add(p));
                while rest.len() >= 4 {
                    // SAFETY: four channels are left, each with all four corners: the pixels after these
                    // two are corners too. The results of these points belong to this task alone.
                    unsafe {
                        let sums = T::four_planes(pixels.add(upper), pixels.add(lower), area, weights);
                        for (c, &sum) in sums.iter().enumerate() {
                            out.add(c * places).write(sum);
                        }
                    }
                    rest.start += 4;
                    (pixels, out) = (pixels.wrapping_add(4 * area), out.wrapping_add(4 * places));
                }
            }
            channels!(rest, (1u32 << K) - 1);
        }
    }
}
