//! Folders of pictures, and transforms of pictures.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{fs, path::Path};

use data::{DataLoader, Dataset, Draws, Image, ImageFolder, ReadBudget};
use tensor_core::{DType, Result, Tensor};

use crate::common::device;

/// Writes a PNG file of a single shade.
fn picture(path: &Path, shade: u8) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    image::RgbImage::from_pixel(6, 4, image::Rgb([shade, 0, 255])).save(path).unwrap();
}

#[test]
fn folders_are_classes() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for (path, shade) in [("b/2.png", 3), ("b/1.PNG", 2), ("a/within/x.png", 1), ("a/0.jpeg", 128)] {
        picture(&root.join(path), shade);
    }
    fs::write(root.join("a/notes.txt"), "x").unwrap();
    fs::write(root.join("notes.txt"), "x").unwrap();
    let pictures = ImageFolder::open(root).unwrap();
    assert_eq!((pictures.classes(), pictures.len()), (&["a".to_string(), "b".into()][..], 4));
    let found: Vec<(u8, usize)> =
        (0..4).map(|i| pictures.get(i).map(|(image, class)| (image.bytes()[0], class)).unwrap()).collect();
    // JPEG is not exact.
    assert!(found[0].0.abs_diff(128) < 4 && found[0].1 == 0, "{found:?}");
    assert_eq!(found[1..], [(1, 0), (2, 1), (3, 1)]);
    let device = device();
    let host = device.clone();
    let loader = |workers: usize| {
        let host = host.clone();
        let tensors = pictures.clone().map_random(3, move |(image, class), draws| {
            let image = image.random_resized_crop((3, 5), (0.3, 1.0), (0.75, 1.5), draws)?;
            Ok((image.random_flip_horizontal(0.5, draws).to_tensor(&host)?, class))
        });
        DataLoader::new(tensors, 2).unwrap().shuffle(1).workers(workers)
    };
    let epoch = |workers: usize| -> Vec<(Vec<f32>, Vec<i32>)> {
        let read = |batch: tensor_core::Result<(tensor_core::Tensor, tensor_core::Tensor)>| {
            let (images, classes) = batch.unwrap();
            assert_eq!(images.dims(), [2, 3, 3, 5]);
            (images.to_vec().unwrap(), classes.to_vec().unwrap())
        };
        loader(workers).iter().map(read).collect()
    };
    assert_eq!(epoch(0), epoch(3));
    // A file that is removed while the folder is in use is an error, and the others can still be read.
    fs::remove_file(root.join("b/2.png")).unwrap();
    fs::write(root.join("b/1.PNG"), "no picture").unwrap();
    for (index, words) in [(2, "is no picture that can be read"), (3, "2.png: cannot be read")] {
        let message = pictures.get(index).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
    assert!(pictures.get(0).is_ok() && pictures.get(4).is_err());
    let whole = fs::read(root.join("a/within/x.png")).unwrap();
    fs::write(root.join("a/within/x.png"), &whole[..whole.len() / 2]).unwrap();
    assert!(pictures.get(1).is_err());
    // Classes without pictures, and folders without classes.
    fs::create_dir(root.join("c")).unwrap();
    assert!(ImageFolder::open(root).unwrap_err().to_string().contains("no picture in it"));
    assert!(ImageFolder::open(root.join("c")).unwrap_err().to_string().contains("one for each class"));
    assert!(ImageFolder::open(root.join("none")).unwrap_err().to_string().contains("cannot be read"));
}

/// Reds 0, 10, 20 … in a picture of 3 x 4.
fn numbered() -> Image {
    Image::from_bytes(3, 4, (0..12u8).flat_map(|i| [10 * i, i, 0]).collect()).unwrap()
}

fn reds(image: &Image) -> Vec<u8> {
    image.bytes().iter().step_by(3).copied().collect()
}

#[test]
fn pictures_are_cut_turned_and_scaled() {
    let image = numbered();
    assert_eq!((image.height(), image.width()), (3, 4));
    assert_eq!(reds(&image.crop((1, 2), (2, 2)).unwrap()), [60, 70, 100, 110]);
    assert_eq!(reds(&image.center_crop((1, 2)).unwrap()), [50, 60]);
    assert_eq!(reds(&image.flip_horizontal())[..4], [30, 20, 10, 0]);
    assert_eq!(reds(&image.flip_vertical())[..4], [80, 90, 100, 110]);
    assert_eq!(image.flip_horizontal().flip_horizontal(), image);
    // By hand: halving the sides takes the mean over a filter of ±2 pixels, which is cut off at the edge.
    let wide = Image::from_bytes(1, 4, [0, 0, 0, 40, 0, 0, 80, 0, 0, 120, 0, 0].to_vec()).unwrap();
    // Weights at distances 0.5, 0.5, 1.5 of 2: 0.75, 0.75, 0.25; and the mirror image.
    assert_eq!(reds(&wide.resize((1, 2)).unwrap()), [29, 91]);
    assert_eq!(wide.resize((1, 4)).unwrap(), wide);
    let shorter = image.resize_shorter(6).unwrap();
    assert_eq!((shorter.height(), shorter.width()), (6, 8));
    let mut draws = Draws::of(1, 2, 3);
    for _ in 0..50 {
        let part = image.random_crop((2, 3), &mut draws).unwrap();
        assert!([0, 10, 40, 50].contains(&reds(&part)[0]));
        let part = image.random_resized_crop((5, 5), (0.08, 1.0), (0.75, 4.0 / 3.0), &mut draws).unwrap();
        assert_eq!((part.height(), part.width()), (5, 5));
    }
    // No region has this ratio: the center is used.
    let part = wide.random_resized_crop((1, 1), (1.0, 1.0), (1.0, 1.0), &mut draws).unwrap();
    assert_eq!(reds(&part), [80]);
    assert_eq!(image.clone().random_flip_horizontal(0.0, &mut draws), image);
    assert_eq!(image.clone().random_flip_horizontal(1.0, &mut draws), image.flip_horizontal());

    let device = device();
    let tensor = image.to_tensor(&device).unwrap();
    assert_eq!(tensor.dims(), [3, 3, 4]);
    assert_eq!(tensor.to_vec::<f32>().unwrap()[..3], [0.0, 10.0 / 255.0, 20.0 / 255.0]);
    let normal =
        image.normalized([0.5, 0.0, 0.0], [0.25, 1.0, 2.0], &device).unwrap().to_vec::<f32>().unwrap();
    assert_eq!((normal[1], normal[13]), ((10.0 / 255.0 - 0.5) / 0.25, 1.0 / 255.0));

    let mut draws = Draws::of(0, 0, 0);
    for error in [
        image.crop((1, 0), (3, 4)).err(),
        image.crop((usize::MAX, 0), (1, 1)).err(),
        image.center_crop((0, 4)).err(),
        image.center_crop((4, 70_000)).err(),
        image.random_crop((1, 5), &mut draws).err(),
        image.resize((0, 3)).err(),
        image.resize((1, 70_000)).err(),
        image.random_resized_crop((2, 2), (0.0, 1.0), (1.0, 1.0), &mut draws).err(),
        image.random_resized_crop((2, 2), (0.5, 1.1), (1.0, 1.0), &mut draws).err(),
        image.normalized([0.0; 3], [0.0; 3], &device).err(),
        Image::from_bytes(2, 2, vec![0; 11]).err(),
        Image::from_bytes(0, 2, vec![]).err(),
        Image::from_bytes(usize::MAX, 3, vec![]).err(),
    ] {
        assert!(error.is_some());
    }
}

/// Every byte comes back from its value; grey values fill the three channels, and bad tensors are refused.
#[test]
fn a_tensor_becomes_the_picture_it_was_made_of() -> Result<()> {
    let device = device();
    let bytes: Vec<u8> = (0..=255).chain(0..=255).chain(0..=255).collect();
    let image = Image::from_bytes(16, 16, bytes)?;
    let values = image.to_tensor(&device)?;
    assert_eq!(Image::from_tensor(&values)?, image);
    assert_eq!(Image::from_tensor(&(&values * 255.0).round().to_dtype(DType::U8)?)?, image);
    let grey = Image::from_tensor(&values.narrow(0, 1, 1)?)?;
    assert_eq!(grey, Image::from_tensor(&values.select(0, 1)?)?);
    assert!(grey.bytes().chunks(3).zip(image.bytes().chunks(3)).all(|(grey, rgb)| grey == [rgb[1]; 3]));
    for (bad, words) in [
        (Tensor::zeros([2, 4, 4], &device)?, "give [3, H, W]"),
        (Tensor::zeros([3, 0, 4], &device)?, "0 x 4"),
        (Tensor::zeros([4, 4], (DType::I32, &device))?, "values of i32"),
        (Tensor::full([4, 4], f64::NAN, &device)?, "NaN"),
    ] {
        let error = Image::from_tensor(&bad).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    Ok(())
}

/// The checksum of a PNG chunk.
fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 };
    !bytes.iter().fold(u32::MAX, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), |sum, _| step(sum)))
}

/// A file of some kilobytes whose header announces pixels of half a gigabyte took three times as much.
#[test]
fn a_small_file_of_many_pixels_is_refused_unless_it_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let path = root.join("a/large.png");
    picture(&path, 3);
    let mut bytes = fs::read(&path).unwrap();
    // The sizes, the bits of a sample and the kind of colours (RGBA) of the header.
    let sides = [8000u32, 8000].map(u32::to_be_bytes).concat();
    bytes[16..24].copy_from_slice(&sides);
    bytes[24..26].copy_from_slice(&[16, 6]);
    let sum = crc(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    let needed = 8000u64 * 8000 * (8 + 3);
    let message = Image::open(&path).unwrap_err().to_string();
    assert!(message.contains(&format!("8000 x 8000 pixels, which take {needed} bytes")), "{message}");
    assert!(message.contains("Image::open_within and a greater ReadBudget"), "{message}");
    // Folders of pictures have the same bound, and another one on request.
    let pictures = ImageFolder::open(root).unwrap();
    assert!(pictures.get(0).unwrap_err().to_string().contains("a greater ReadBudget"));
    picture(&path, 3);
    let small = pictures.clone().within(ReadBudget { least: 10, per_byte: 0 });
    assert!(small.get(0).unwrap_err().to_string().contains("10 are allowed"));
    assert!(pictures.within(ReadBudget::UNLIMITED).get(0).is_ok());
}

/// A pipe was opened, which waits for a writer.
#[cfg(unix)]
#[test]
fn pipes_and_devices_are_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe.as_path(), Path::new("/dev/zero")] {
        for error in [
            Image::open(path).map(drop).unwrap_err(),
            data::audio::read_wav(path, &device()).map(drop).unwrap_err(),
            data::read_csv::<f32>(path, &data::CsvOptions::default()).map(drop).unwrap_err(),
            data::read_idx(path).map(drop).unwrap_err(),
            data::RowFile::open(path).map(drop).unwrap_err(),
        ] {
            assert!(error.to_string().contains("a pipe, a socket or a device; expected a file"), "{error}");
        }
    }
}

#[test]
fn a_picture_is_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let [path, old] = ["new.png", "old.png"].map(|name| folder.path().join(name));
    let save = |value: f64| {
        let shade = Tensor::full([3, 2, 2], value, &device()).unwrap();
        data::save_image(&shade, &path, &data::GridOptions::default()).unwrap();
    };
    save(0.0);
    // Another name of the old file keeps the old picture.
    fs::hard_link(&path, &old).unwrap();
    save(1.0);
    assert_eq!([&old, &path].map(|path| Image::open(path).unwrap().bytes()[0]), [0, 255]);
}
