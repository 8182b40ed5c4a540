//! Transforms, grids and mixed batches with torchvision's numbers: `scripts/picture_fixtures.py`.
#![allow(clippy::unwrap_used, clippy::panic)]

use data::{
    Affine, Augmentation, ColorJitter, CutMix, Draws, GridOptions, Image, Interpolation, MixUp, RandAugment,
    Rotation, cutmix, make_grid, mixup, save_image,
};
use serde_json::Value;
use tensor_core::{DType, Result, Tensor};

use crate::common::device;

fn fixtures() -> Value {
    serde_json::from_str(include_str!("../fixtures/pictures.json")).unwrap()
}

fn size(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

/// The picture that the script makes.
fn picture(height: usize, width: usize) -> Image {
    let byte = |at: usize| {
        let (y, x, c) = (at / 3 / width, at / 3 % width, at % 3);
        ((37 * x + 11 * y + 53 * c + 5 * x * y) % 256) as u8
    };
    Image::from_bytes(height, width, (0..3 * height * width).map(byte).collect()).unwrap()
}

fn smooth(height: usize, width: usize) -> Image {
    let byte = |at: usize| {
        let (y, x, c) = (at / 3 / width, at / 3 % width, at % 3);
        (60 + (7 * x + 5 * y + 20 * c) % 120) as u8
    };
    Image::from_bytes(height, width, (0..3 * height * width).map(byte).collect()).unwrap()
}

fn augmentation(name: &str) -> Augmentation {
    Augmentation::ALL.into_iter().find(|operation| format!("{operation:?}") == name).unwrap()
}

/// The result of a case, and the greatest difference that is allowed.
fn transformed(op: &str, arguments: &[Value], image: &Image) -> Result<(Image, u8)> {
    let number = |k: usize| arguments[k].as_f64().unwrap();
    let interpolation =
        if op.ends_with("bilinear") { Interpolation::Bilinear } else { Interpolation::Nearest };
    let affine = |center| Affine {
        angle: number(0),
        translate: (number(1), number(2)),
        scale: number(3),
        shear: (number(4), number(5)),
        center,
        interpolation,
        fill: [0; 3],
    };
    let changed = match op {
        "brightness" => image.adjust_brightness(number(0))?,
        "contrast" => image.adjust_contrast(number(0))?,
        "saturation" => image.adjust_saturation(number(0))?,
        "sharpness" => image.adjust_sharpness(number(0))?,
        "hue" => image.adjust_hue(number(0))?,
        "grayscale" => image.grayscale(),
        "invert" => image.invert(),
        "posterize" => image.posterize(number(0) as u32)?,
        "solarize" => image.solarize(number(0))?,
        "autocontrast" => smooth(24, 20).autocontrast(),
        "equalize" => smooth(24, 20).equalize(),
        "equalize_small" => image.equalize(),
        "rotate" => image.rotate(number(0), interpolation)?,
        "rotate_about" => {
            let center = Some((number(1), number(2)));
            image.rotate(number(0), Rotation { center, ..Default::default() })?
        }
        // Sums in f32 are rounded to whole numbers.
        "rotate_bilinear" | "rotate_expand_bilinear" => {
            let expand = op.contains("expand");
            let how = Rotation { interpolation, expand, fill: [10, 20, 30], center: None };
            return Ok((image.rotate(number(0), how)?, 1));
        }
        "rotate_expand" => image.rotate(number(0), Rotation { expand: true, ..Default::default() })?,
        "affine" => image.affine(&affine(None))?,
        "affine_bilinear" => return Ok((image.affine(&affine(None))?, 1)),
        "affine_about" => image.affine(&affine(Some((3.0, 5.0))))?,
        "pad" => image.pad(2, [7; 3])?,
        "center_crop" => image.center_crop((number(0) as usize, number(1) as usize))?,
        // torchvision rounds weights to 16 bits, and the sums of each direction.
        "resize" => return Ok((image.resize((number(0) as usize, number(1) as usize))?, 2)),
        "augment" => {
            let (operation, magnitude) = (augmentation(arguments[0].as_str().unwrap()), number(1) as usize);
            let settings = RandAugment { magnitude, ..Default::default() };
            let strength = number(2) * settings.strength(operation, image.height(), image.width())?;
            image.augmented(operation, strength, settings.interpolation, settings.fill)?
        }
        other => panic!("no transform {other}"),
    };
    Ok((changed, 0))
}

#[test]
fn transforms_are_torchvisions() {
    let fixtures = fixtures();
    let image = picture(size(&fixtures["height"]), size(&fixtures["width"]));
    let mut failures = Vec::new();
    for case in fixtures["cases"].as_array().unwrap() {
        let op = case["op"].as_str().unwrap();
        if (op == "rotate" || op == "rotate_expand") && case["arguments"][0] == 90.0 {
            // Each position is between two pixels, and torchvision's errors in f32 decide.
            continue;
        }
        let (found, tolerance) = transformed(op, case["arguments"].as_array().unwrap(), &image).unwrap();
        let hex = case["bytes"].as_str().unwrap();
        let expected: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        assert_eq!((found.height(), found.width()), (size(&case["height"]), size(&case["width"])), "{op}");
        let differ = found.bytes().iter().zip(&expected).filter(|(a, b)| a.abs_diff(**b) > tolerance).count();
        if differ > 0 {
            failures.push(format!("{op} {}: {differ} of {} bytes", case["arguments"], expected.len()));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn gray_tensors_are_pils() {
    let fixtures = fixtures();
    let image = picture(size(&fixtures["height"]), size(&fixtures["width"]));
    let gray = image.to_gray_tensor(&device()).unwrap();
    assert_numbers(&gray, &fixtures["gray"][0], "gray");
    // A picture without colours keeps its values.
    let levels: Vec<u8> = (0..=255).collect();
    let colourless =
        Image::from_bytes(16, 16, levels.iter().flat_map(|&level| [level; 3]).collect()).unwrap();
    let kept = colourless.to_gray_tensor(&device()).unwrap();
    assert_eq!(
        kept.reshape([16, 16]).unwrap().to_vec::<f32>().unwrap(),
        colourless.to_tensor(&device()).unwrap().to_vec::<f32>().unwrap()[..256]
    );
}

fn assert_numbers(found: &Tensor, expected: &Value, what: &str) {
    let shape: Vec<usize> = expected["shape"].as_array().unwrap().iter().map(size).collect();
    assert_eq!(found.dims(), shape, "{what}");
    let numbers = expected["data"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap());
    for (found, expected) in found.to_f64_vec().unwrap().into_iter().zip(numbers) {
        assert!(
            (found - expected).abs() <= 1e-6 * expected.abs().max(1.0),
            "{what}: {found}, not {expected}"
        );
    }
}

#[test]
fn grids_are_torchvisions() {
    for case in fixtures()["grids"].as_array().unwrap() {
        let shape: Vec<usize> = case["shape"].as_array().unwrap().iter().map(size).collect();
        let count: usize = shape.iter().product();
        let x = Tensor::arange(0.0, count as f64, 1.0, &device()).unwrap().reshape(shape.as_slice()).unwrap();
        let given = &case["options"];
        let mut options = GridOptions::default();
        given["nrow"].as_u64().into_iter().for_each(|nrow| options.nrow = nrow as usize);
        given["padding"].as_u64().into_iter().for_each(|padding| options.padding = padding as usize);
        given["pad_value"].as_f64().into_iter().for_each(|value| options.pad_value = value);
        options.normalize = given["normalize"].as_bool().unwrap_or(false);
        options.scale_each = given["scale_each"].as_bool().unwrap_or(false);
        options.value_range =
            given["value_range"].as_array().map(|r| (r[0].as_f64().unwrap(), r[1].as_f64().unwrap()));
        assert_numbers(&make_grid(&x, &options).unwrap(), &case["grid"], &given.to_string());
    }
}

#[test]
fn pictures_are_written_and_bad_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.png");
    let image = picture(5, 7);
    let plain = GridOptions::default();
    save_image(&image.to_tensor(&device()).unwrap(), &path, &plain).unwrap();
    assert_eq!(Image::open(&path).unwrap(), image);
    // Values outside 0 to 1 are cut off.
    let values = Tensor::new([[-3.0f32, 0.5], [1.0, 9.0]], &device()).unwrap();
    save_image(&values, &path, &plain).unwrap();
    let shades: Vec<u8> = Image::open(&path).unwrap().bytes().iter().copied().step_by(3).collect();
    assert_eq!(shades, [0, 128, 255, 255]);
    save_image(&Tensor::ones([2, 4, 2, 2], &device()).unwrap(), &path, &plain).unwrap();
    save_image(&values, folder.path().join("a.jpg"), &plain).unwrap();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, &device()).unwrap();
    let no_row = GridOptions { nrow: 0, ..plain };
    let range = GridOptions { normalize: true, value_range: Some((1.0, 0.0)), ..plain };
    for (error, part) in [
        (save_image(&values, folder.path().join("a.gif"), &plain).err(), "does not end in .png"),
        (save_image(&values, folder.path().join("none/a.png"), &plain).err(), "cannot be written"),
        (save_image(&zeros(&[2, 2, 2, 2]), &path, &plain).err(), "1, 3 or 4 channels"),
        (make_grid(&zeros(&[2]), &plain).err(), "[N, C, H, W]"),
        (make_grid(&zeros(&[0, 3, 2, 2]), &plain).err(), "above 0"),
        (make_grid(&values, &no_row).err(), "0 in a row"),
        (make_grid(&values, &range).err(), "in order"),
        (
            make_grid(&values.to_dtype(DType::I32).unwrap(), &GridOptions { normalize: true, ..plain }).err(),
            "give floats",
        ),
    ] {
        let message = error.unwrap().to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn batches_are_mixed_as_torchvision_does() {
    let fixtures = fixtures();
    let images = Tensor::arange(0.0, 60.0, 1.0, &device()).unwrap().reshape([3, 1, 4, 5]).unwrap();
    let labels = Tensor::new([0i32, 2, 1], &device()).unwrap();
    let probabilities = labels.one_hot(3).unwrap().to_dtype(DType::F32).unwrap();
    let pairs = [
        mixup(&images, &probabilities, 0.25).unwrap(),
        cutmix(&images, &probabilities, (0, 2), (1, 4)).unwrap(),
    ];
    for ((x, y), expected) in pairs.iter().zip(fixtures["mixed"].as_array().unwrap()) {
        let name = expected["name"].as_str().unwrap();
        assert_numbers(x, &expected["images"], name);
        assert_numbers(y, &expected["labels"], name);
    }
    // Drawn: the same seed gives the same batch, and probabilities stay probabilities.
    let (mix, cut) = (MixUp { alpha: 0.3, classes: 3 }, CutMix { alpha: 1.0, classes: 3 });
    for item in 0..20 {
        let mut draws = Draws::of(1, 0, item);
        let (mixed, soft) = mix.apply(&images, &labels, &mut draws.clone()).unwrap();
        let (again, _) = mix.apply(&images, &probabilities, &mut draws.clone()).unwrap();
        assert!(mixed.equal(&again).unwrap());
        let (patched, hard) = cut.apply(&images, &labels, &mut draws).unwrap();
        let kept = patched.eq(&images).unwrap().to_dtype(DType::F32).unwrap().mean().item::<f32>().unwrap();
        for sums in [soft.sum_axis(1, false).unwrap(), hard.sum_axis(1, false).unwrap()] {
            assert!(sums.to_vec::<f32>().unwrap().iter().all(|sum| (sum - 1.0).abs() < 1e-6));
        }
        assert!((hard.to_vec::<f32>().unwrap()[0] - kept).abs() < 1e-6);
    }
    let draws = || Draws::of(0, 0, 0);
    let none = MixUp { alpha: 0.0, classes: 3 };
    let flat = images.reshape([3, 20]).unwrap();
    assert!(none.apply(&images, &labels, &mut draws()).unwrap_err().to_string().contains("alpha 0"));
    assert!(mix.apply(&images, &labels.narrow(0, 0, 2).unwrap(), &mut draws()).is_err());
    assert!(cut.apply(&flat, &labels, &mut draws()).unwrap_err().to_string().contains("[N, C, H, W]"));
    assert!(cutmix(&images, &probabilities, (0, 5), (0, 1)).is_err());
    assert!(mixup(&labels, &probabilities, 0.5).unwrap_err().to_string().contains("floating-point"));
}

#[test]
fn random_transforms_follow_their_seed_and_bad_ones_are_refused() {
    let image = picture(9, 8);
    let jitter = ColorJitter { brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1 };
    type Transform<'a> = &'a dyn Fn(&mut Draws) -> Result<Image>;
    let random: [(&str, Transform<'_>); 4] = [
        ("jitter", &|draws| image.color_jitter(&jitter, draws)),
        ("rotation", &|draws| image.random_rotation(40.0, Interpolation::Bilinear, draws)),
        ("augment", &|draws| image.rand_augment(&RandAugment { magnitude: 20, ..Default::default() }, draws)),
        ("gray", &|draws| Ok(image.clone().random_grayscale(0.5, draws))),
    ];
    for (name, transform) in random {
        let all: Vec<Image> = (0..30).map(|item| transform(&mut Draws::of(7, 0, item)).unwrap()).collect();
        let again: Vec<Image> = (0..30).map(|item| transform(&mut Draws::of(7, 0, item)).unwrap()).collect();
        assert!(all == again && all.iter().any(|changed| *changed != all[0]), "{name}");
    }
    let none = ColorJitter::default();
    assert_eq!(image.color_jitter(&none, &mut Draws::of(0, 0, 0)).unwrap(), image);
    let mut draws = Draws::of(0, 0, 0);
    for error in [
        image.adjust_brightness(-0.1).err(),
        image.adjust_contrast(f64::NAN).err(),
        image.adjust_saturation(f64::INFINITY).err(),
        image.adjust_sharpness(-1.0).err(),
        image.adjust_hue(0.6).err(),
        image.posterize(9).err(),
        image.solarize(300.0).err(),
        image.color_jitter(&ColorJitter { hue: 0.7, ..none }, &mut draws).err(),
        image.affine(&Affine { scale: 0.0, ..Default::default() }).err(),
        image.affine(&Affine { shear: (90.0, 0.0), ..Default::default() }).err(),
        image.rotate(f64::NAN, Interpolation::Nearest).err(),
        image.rotate(1.0, Rotation { center: Some((0.0, f64::NAN)), ..Default::default() }).err(),
        image.random_rotation(-1.0, Interpolation::Nearest, &mut draws).err(),
        image.pad(usize::MAX, [0; 3]).err(),
        image.rand_augment(&RandAugment { magnitude: 31, ..Default::default() }, &mut draws).err(),
    ] {
        assert!(error.is_some());
    }
}
