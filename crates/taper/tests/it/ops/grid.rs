//! Images read at the places of a grid: whatever way a device has, against the composition on the plain
//! reference.
#![allow(clippy::unwrap_used)]

use taper::autograd::{TensorGrad, gradcheck, gradgradcheck};
use taper::nn::functional::{GridMode, GridPadding, GridSampleOptions, grid_sample};
use taper::{DType, Device, Result, Tensor};

use crate::common::{agree, device, drawn, has, needs, numbers, of, tensor};

fn all_options() -> Vec<GridSampleOptions> {
    let mut all = Vec::new();
    for mode in [GridMode::Bilinear, GridMode::Nearest] {
        for padding in [GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection] {
            for align_corners in [false, true] {
                all.push(GridSampleOptions { mode, padding, align_corners });
            }
        }
    }
    all
}

/// Places a little beyond the edges.
fn grid(shape: &[usize], dtype: DType, d: &Device) -> Result<Tensor> {
    let places: Vec<f64> = numbers(shape.iter().product(), 5).iter().map(|x| x * 2.4 - 1.2).collect();
    of(&places, shape, dtype, d)
}

/// Channels and places that fill no group, images of one pixel in a row, several of them, in parts and as
/// one.
#[test]
fn every_mode_is_its_composition() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        if !has(&device(), dtype) {
            continue;
        }
        for options in all_options().into_iter().filter(|options| drawn(format!("{options:?} in {dtype}"))) {
            for (image, places) in [
                (vec![1, 1, 1, 1], vec![1, 1, 1, 2]),
                (vec![2, 3, 5, 4], vec![2, 3, 7, 2]),
                (vec![2, 4, 1, 6], vec![2, 9, 9, 2]),
                (vec![1, 39, 6, 7], vec![1, 13, 11, 2]),
                (vec![3, 6, 2, 3, 4], vec![3, 5, 1, 7, 3]),
                (vec![2, 0, 3, 3], vec![2, 2, 2, 2]),
                (vec![2, 3, 3, 3], vec![2, 0, 2, 2]),
            ] {
                agree(&format!("{options:?} of {image:?} at {places:?} in {dtype}"), |d| {
                    grid_sample(&tensor(&image, 1, dtype, d)?, &grid(&places, dtype, d)?, options)
                });
            }
            agree(&format!("{options:?} of views"), |d| {
                let image = tensor(&[6, 2, 5, 4], 1, dtype, d)?.transpose(0, 3)?.narrow(3, 1, 4)?.flip(2)?;
                let places = grid(&[1, 3, 7, 2], dtype, d)?.expand([4, 3, 7, 2])?;
                grid_sample(&image, &places, options)
            });
        }
    }
}

/// More than one thread's share, also of one image.
#[test]
fn many_places() {
    for (image, places) in
        [(vec![3, 17, 40, 50], vec![3, 37, 41, 2]), (vec![1, 5, 9, 8, 7], vec![1, 20, 21, 22, 3])]
    {
        for mode in [GridMode::Bilinear, GridMode::Nearest] {
            let options = GridSampleOptions { mode, ..Default::default() };
            agree(&format!("{mode:?} of {image:?}"), |d| {
                grid_sample(&tensor(&image, 1, DType::F32, d)?, &grid(&places, DType::F32, d)?, options)
            });
        }
    }
}

/// Corners, pixel centres, positions outside the image or NaN, and pixels that are not finite. Only the CPU:
/// the integer that a GPU makes of NaN is not specified.
#[test]
fn edges_and_what_is_no_number() {
    if device().name() != "cpu" {
        return;
    }
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let at = [-1.0, 1.0, 0.0, -0.0, -0.75, 0.25, 1.25, -1.25, 3.0, 1e9, -1e30, inf, -inf, nan, 1.0 - 1e-7];
    let places: Vec<f64> = at.iter().flat_map(|&x| at.iter().flat_map(move |&y| [x, y])).collect();
    let shape = [1, at.len(), at.len(), 2];
    for options in all_options() {
        for dtype in [DType::F32, DType::F64] {
            agree(&format!("{options:?} in {dtype}"), |d| {
                grid_sample(&tensor(&[1, 5, 4, 4], 1, dtype, d)?, &of(&places, &shape, dtype, d)?, options)
            });
            let pixels: Vec<f64> = (0..16).map(|i| [1.0, inf, -2.0, nan, -inf, 0.5, -0.0][i % 7]).collect();
            agree(&format!("{options:?} of what is not finite in {dtype}"), |d| {
                grid_sample(&of(&pixels, &[1, 1, 4, 4], dtype, d)?, &of(&places, &shape, dtype, d)?, options)
            });
        }
    }
}

/// Gradients of both inputs, where one may be computed from the other, as in a spatial transformer.
#[test]
fn gradients_of_both_inputs() -> Result<()> {
    let d = device();
    let (x, y) = (tensor(&[2, 3, 4, 5], 1, DType::F32, &d)?, grid(&[2, 3, 3, 2], DType::F32, &d)?);
    for tracked in [(true, false), (false, true)] {
        let (a, b) = (x.detach(), y.detach());
        let (a, b) =
            (if tracked.0 { a.requires_grad() } else { a }, if tracked.1 { b.requires_grad() } else { b });
        let plain = grid_sample(&x, &y, GridSampleOptions::default())?;
        let found = grid_sample(&a, &b, GridSampleOptions::default())?;
        found.sum().backward()?;
        assert_eq!((a.grad().is_some(), b.grad().is_some()), tracked);
        agree_exactly(&found, &plain)?;
    }
    if needs(&d, DType::F64) {
        let options = GridSampleOptions { padding: GridPadding::Border, ..Default::default() };
        let run = |t: &[Tensor]| {
            let places = t[0].narrow(1, 0, 2)?.permute([0, 2, 3, 1])?.sin().mul_scalar(0.6);
            grid_sample(&t[0], &places, options)
        };
        let image = tensor(&[1, 3, 3, 4], 2, DType::F64, &d)?;
        gradcheck(run, std::slice::from_ref(&image))?;
        gradgradcheck(run, std::slice::from_ref(&image))?;
    }
    Ok(())
}

fn agree_exactly(found: &Tensor, wanted: &Tensor) -> Result<()> {
    assert_eq!(found.detach().to_vec::<f32>()?, wanted.to_vec::<f32>()?);
    Ok(())
}

/// The nearest pixel stays one as its place moves: a grid has no gradient from it, on no device, and makes
/// nothing tracked.
#[test]
fn the_nearest_pixel_has_no_gradient_in_its_place() -> Result<()> {
    let d = device();
    let options = GridSampleOptions { mode: GridMode::Nearest, ..Default::default() };
    let places = grid(&[1, 3, 3, 2], DType::F32, &d)?.requires_grad();
    let image = tensor(&[1, 2, 4, 4], 1, DType::F32, &d)?;
    assert!(!grid_sample(&image, &places, options)?.is_tracked());
    let image = image.requires_grad();
    grid_sample(&image, &places, options)?.sum().backward()?;
    assert!(image.grad().is_some() && places.grad().is_none());
    let between = GridSampleOptions { mode: GridMode::Bilinear, ..options };
    grid_sample(&image, &places, between)?.sum().backward()?;
    assert!(places.grad().is_some());
    Ok(())
}
