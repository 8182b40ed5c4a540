//! [`GridSample`]: pictures sampled at positions between their pixels, as a native kernel that a backend
//! may implement. It does not materialize the pixels that it reads.

use std::fmt;

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// The interpolation of `grid_sample` between pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GridMode {
    /// Linear interpolation of the 2ᴰ nearest pixels: bilinear, or trilinear for volumes. PyTorch's
    /// default.
    #[default]
    Bilinear,
    /// The nearest pixel; ties go to the even one.
    Nearest,
    /// Cubic convolution of the 16 nearest pixels with the constant a = −¾; images only. Padding applies
    /// to each pixel, not to the sampling position.
    Bicubic,
}

/// The values that `grid_sample` reads beyond the edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GridPadding {
    /// 0. PyTorch's default.
    #[default]
    Zeros,
    /// The nearest pixel of the edge.
    Border,
    /// The picture reflected at its edges, repeatedly.
    Reflection,
}

/// Pictures sampled at the positions of a grid, as a [`CustomKernel`] whose implementation is this value
/// itself: a backend that asks a [`Request`] for a `GridSample` computes it from these fields. Inputs
/// are row-major, of one floating-point dtype, and so is the result:
///
/// - pictures `[…, C, H, W]`, or volumes `[…, C, D, H, W]`, of at least one pixel, with sizes that fit
///   in i32;
/// - a grid `[…, H', W', 2]` or `[…, D', H', W', 3]` with the same leading axes, of (x, y) or (x, y, z),
///   x along the last axis.
///
/// The result has the pictures' channels and the grid's sizes. Along an axis of n pixels, the coordinate
/// x samples at (x + 1) · n / 2 − 1/2, or with `align_corners` at (x + 1) · (n − 1) / 2, in pixels from
/// the centre of the first; padding is applied after that. On a device without this kernel
/// ([`crate::Tensor::has_custom_kernel`]), the caller composes the operation from others.
///
/// A NaN in the grid counts as −1, and so does a coordinate that would be reflected but is infinite or so
/// far that its position may overflow ([`GridSample::greatest_reflected`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridSample {
    /// The number of pixel axes: 2 or 3.
    pub axes: usize,
    /// The interpolation between pixels.
    pub mode: GridMode,
    /// The padding beyond the edges.
    pub padding: GridPadding,
    /// Whether −1 and 1 are the centres of the first and the last pixel, rather than their outer edges.
    pub align_corners: bool,
}

impl GridSample {
    /// Grid coordinates are clamped to this magnitude, and positions up to it are reflected without an
    /// exact remainder. Pictures end at 3 or nearer.
    pub const FARTHEST: f64 = (1 << 20) as f64;

    /// The greatest magnitude of a coordinate that is reflected, along an axis of `size` pixels: its position
    /// in this dtype is a finite number.
    pub fn greatest_reflected(size: usize, dtype: DType) -> f64 {
        dtype.greatest().as_f64() / size as f64
    }
}

impl CustomKernel for GridSample {
    fn name(&self) -> &'static str {
        "grid_sample"
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        let wrong = |what: &dyn fmt::Display| Err(misfit(self, inputs, what));
        let [(pictures, dtype), (grid, of_grid)] = inputs else {
            return wrong(&"pictures and a grid are needed");
        };
        if !dtype.is_float() || dtype != of_grid {
            return wrong(&"pictures and a grid are of one floating-point dtype");
        }
        if !(2..=3).contains(&self.axes) || pictures.rank() != grid.rank() || pictures.rank() <= self.axes {
            return wrong(
                &"pictures are [.., C, H, W] and a grid [.., H', W', 2], or both have an axis more",
            );
        }
        let lead = pictures.rank() - 1 - self.axes;
        let ((of_pictures, own), (of_places, places)) =
            (pictures.dims().split_at(lead), grid.dims().split_at(lead));
        if of_pictures != of_places || places[self.axes] != self.axes {
            return wrong(&"a grid has the pictures' leading axes, and a number for each axis of pixels");
        }
        let area = own[1..].iter().fold(1usize, |area, &size| area.saturating_mul(size));
        if area == 0 || area > i32::MAX as usize {
            return wrong(&"a picture has at least one pixel, and no more than i32 counts");
        }
        let shape = of_pictures.iter().chain(&own[..1]).chain(&places[..self.axes]).copied().collect();
        Ok(vec![(shape, *dtype)])
    }

    fn key(&self) -> Vec<u64> {
        vec![self.axes as u64, self.mode as u64, self.padding as u64, u64::from(self.align_corners)]
    }

    fn implement(&self, request: &mut Request<'_>) {
        // Bicubic interpolation has no kernel; the caller composes it.
        match self.mode {
            GridMode::Bilinear | GridMode::Nearest => request.provide(|_| *self),
            GridMode::Bicubic => {}
        }
    }

    fn is_batched(&self) -> bool {
        true
    }
}
