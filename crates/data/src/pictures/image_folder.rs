//! [`ImageFolder`]: a folder of pictures for each class; [`Image`]: transforms of a picture before it
//! becomes a tensor.

use std::{
    fmt, fs,
    io::{BufRead, BufReader, Cursor, Seek},
    path::{Path, PathBuf},
};

use image::{
    ColorType, DynamicImage, ImageDecoder, ImageReader, Limits, RgbImage,
    imageops::{self, FilterType},
};
use tensor_core::{
    DType, Device, Error, Result, Tensor, caller_line,
    file::{ReadBudget, open_regular},
};

use crate::{
    Dataset, Draws, dataset::out_of_range, files::gzip::file_error, pictures::picture_grid::rounded_bytes,
};

/// The extensions of picture files.
const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];

/// Pictures in folders, one for each class: `root/cat/1.png`, `root/dog/1.jpg`.
/// `torchvision.datasets.ImageFolder`.
///
/// Classes are numbered in the order of their folders' names, and pictures are in the order of their paths,
/// including those in subfolders. An item is a picture with the number of its class; [`Dataset::map`] and
/// [`Dataset::map_random`] make tensors of them, on the loader's threads.
///
/// ```
/// use data::{DataLoader, Dataset, ImageFolder};
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let root = folder.path();
/// # for (class, shade) in [("cat", 255u8), ("dog", 0)] {
/// #     std::fs::create_dir(root.join(class)).unwrap();
/// #     let picture = image::RgbImage::from_pixel(10, 8, image::Rgb([shade; 3]));
/// #     picture.save(root.join(class).join("1.png")).unwrap();
/// # }
/// let device = backend_cpu::cpu();
/// let folder = ImageFolder::open(root)?;
/// assert_eq!(folder.classes(), ["cat", "dog"]);
/// let host = device.clone();
/// let train = folder.map_random(42, move |(image, class), draws| {
///     let image = image.random_resized_crop((6, 6), (0.5, 1.0), (0.75, 4.0 / 3.0), draws)?;
///     let image = image.random_flip_horizontal(0.5, draws);
///     Ok((image.normalized([0.485, 0.456, 0.406], [0.229, 0.224, 0.225], &host)?, class))
/// });
/// let (images, classes) = DataLoader::new(train, 2)?.workers(2).iter().next().unwrap()?;
/// assert_eq!((images.dims(), classes.to_vec::<i32>()?), (&[2, 3, 6, 6][..], vec![0, 1]));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ImageFolder {
    classes: Vec<String>,
    files: Vec<(PathBuf, usize)>,
    budget: ReadBudget,
}

impl ImageFolder {
    /// The pictures below `root` whose names end in `.png`, `.jpg` or `.jpeg`. They are read on demand.
    ///
    /// # Errors
    /// `File` for a folder that cannot be read or has no subfolder; a class without a picture.
    #[track_caller]
    pub fn open(root: impl AsRef<Path>) -> Result<ImageFolder> {
        let _line = caller_line();
        let root = root.as_ref();
        let mut folders: Vec<PathBuf> = entries(root)?.into_iter().filter(|path| path.is_dir()).collect();
        folders.sort();
        if folders.is_empty() {
            return Err(file_error(root, "has no folders in it; expected one for each class"));
        }
        let (classes, files, budget) = Default::default();
        let mut found = ImageFolder { classes, files, budget };
        for (class, folder) in folders.iter().enumerate() {
            let mut files = Vec::new();
            pictures(folder, &mut files)?;
            if files.is_empty() {
                return Err(file_error(folder, "has no picture in it: no .png, .jpg or .jpeg"));
            }
            files.sort();
            found.files.extend(files.into_iter().map(|file| (file, class)));
            found.classes.push(folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        Ok(found)
    }

    /// The same pictures, each of which may take the memory of this budget; see [`Image::open_within`].
    #[must_use]
    pub fn within(self, budget: ReadBudget) -> ImageFolder {
        ImageFolder { budget, ..self }
    }

    /// The names of the classes, by their numbers.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The files with the numbers of their classes, in order.
    pub fn files(&self) -> &[(PathBuf, usize)] {
        &self.files
    }
}

#[track_caller]
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error: std::io::Error| file_error(folder, format!("cannot be read: {error}"));
    fs::read_dir(folder).map_err(failed)?.map(|entry| Ok(entry.map_err(failed)?.path())).collect()
}

/// Collects all pictures in a folder and its subfolders.
#[track_caller]
fn pictures(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    // A list in place of a recursion. Links to folders are not followed, since they could form a cycle.
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder)? {
            let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
            if path.is_dir() {
                if !path.is_symlink() {
                    folders.push(path);
                }
            } else if ENDINGS.contains(&ending.as_str()) {
                found.push(path);
            }
        }
    }
    Ok(())
}

impl Dataset for ImageFolder {
    type Item = (Image, usize);

    fn len(&self) -> usize {
        self.files.len()
    }

    /// # Errors
    /// `File` for a file that is no longer there, or is no picture.
    #[track_caller]
    fn get(&self, index: usize) -> Result<(Image, usize)> {
        let _line = caller_line();
        let (path, class) = self.files.get(index).ok_or_else(|| out_of_range(index, self.files.len()))?;
        Ok((Image::open_within(path, self.budget)?, *class))
    }
}

/// The fault of a file that cannot be read.
fn no_picture(error: &dyn fmt::Display) -> String {
    format!("is no picture that can be read: {error}")
}

/// Reads a PNG or JPEG file whose pixels take at most this many bytes. The fault is one of the file.
fn read_picture(file: impl BufRead + Seek, most: u64) -> std::result::Result<Image, String> {
    let mut reader = ImageReader::new(file).with_guessed_format().map_err(|e| no_picture(&e))?;
    let mut limits = Limits::default();
    // With room for the decoder's own buffers.
    limits.max_alloc = Some(most.saturating_add(1 << 20));
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(|e| no_picture(&e))?;
    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 {
        return Err(no_picture(&"it has no pixels"));
    }
    // The pixels as they are stored, and those of RGB, unless they are the same.
    let is_rgb = decoder.color_type() == ColorType::Rgb8;
    let rgb = if is_rgb { 0 } else { 3 * u64::from(width) * u64::from(height) };
    let needed = decoder.total_bytes().saturating_add(rgb);
    if needed > most {
        return Err(format!(
            "is a picture of {width} x {height} pixels, which take {needed} bytes of memory; {most} are allowed for a file of its size: \
             if it is trusted, open it with Image::open_within and a greater ReadBudget"
        ));
    }
    Ok(Image(DynamicImage::from_decoder(decoder).map_err(|e| no_picture(&e))?.into_rgb8()))
}

/// A picture of RGB bytes, on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image(pub(crate) RgbImage);

impl Image {
    /// Reads a PNG or JPEG file as RGB; the content determines the format. A picture may take the memory of
    /// [`ReadBudget::default`], 64 times the file's size or 256 MiB: a small file may hold pixels of
    /// gigabytes.
    ///
    /// # Errors
    /// `File` for a file that cannot be read, is no such picture, or whose pixels take more memory.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Image> {
        Image::open_within(path, ReadBudget::default())
    }

    /// [`Image::open`] with another bound of memory.
    ///
    /// # Errors
    /// As [`Image::open`].
    #[track_caller]
    pub fn open_within(path: impl AsRef<Path>, budget: ReadBudget) -> Result<Image> {
        let _line = caller_line();
        let path = path.as_ref();
        let file = open_regular(path)?;
        let length = file.metadata().map(|data| data.len());
        let read = length.map_err(|error| no_picture(&error)).and_then(|length| {
            let most = budget.bytes(length);
            read_picture(BufReader::new(file), most)
        });
        read.map_err(|fault| file_error(path, fault))
    }

    /// The picture in the bytes of a PNG or JPEG file, as [`Image::open_within`] reads it.
    ///
    /// ```
    /// use data::{Image, ReadBudget};
    /// assert!(Image::decode(b"no picture", ReadBudget::default()).is_err());
    /// ```
    ///
    /// # Errors
    /// Bytes that are no such picture, or whose pixels take more memory.
    #[track_caller]
    pub fn decode(bytes: &[u8], budget: ReadBudget) -> Result<Image> {
        let _line = caller_line();
        let read = read_picture(Cursor::new(bytes), budget.bytes(bytes.len() as u64));
        read.map_err(|fault| Error::invalid("Image", format!("the file {fault}")))
    }

    /// A picture from the bytes of its pixels, `[H, W, 3]`.
    ///
    /// # Errors
    /// Another number of bytes, or no pixels.
    #[track_caller]
    pub fn from_bytes(height: usize, width: usize, bytes: Vec<u8>) -> Result<Image> {
        let _line = caller_line();
        let count = bytes.len();
        let wrong = || Error::invalid("Image", format!("{count} bytes for {height} x {width} pixels of 3"));
        let (Ok(high), Ok(wide)) = (u32::try_from(height), u32::try_from(width)) else { return Err(wrong()) };
        if high == 0 || wide == 0 || height.checked_mul(width).and_then(|n| n.checked_mul(3)) != Some(count) {
            return Err(wrong());
        }
        RgbImage::from_raw(wide, high, bytes).map(Image).ok_or_else(wrong)
    }

    /// A picture from values `[3, H, W]`, or grey ones `[1, H, W]` or `[H, W]`: floats from 0 to 1, which are
    /// rounded as by [`save_image`](crate::save_image) and cut off outside, or bytes. The reverse of
    /// [`Image::to_tensor`]. `transforms.functional.to_pil_image`, which does not round but cut.
    ///
    /// ```
    /// use data::Image;
    /// use tensor_core::{Generator, Tensor};
    /// # fn main() -> tensor_core::Result<()> {
    /// let grey = Tensor::new([[0.0f32, 1.0], [0.5, 2.0]], &backend_cpu::cpu())?;
    /// let image = Image::from_tensor(&grey)?;
    /// assert_eq!(image.bytes(), [0, 0, 0, 255, 255, 255, 128, 128, 128, 255, 255, 255]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Another shape or dtype, no pixels, NaN, more than 65,535 pixels each way, or a value that cannot be
    /// computed.
    #[track_caller]
    pub fn from_tensor(values: &Tensor) -> Result<Image> {
        const OP: &str = "Image::from_tensor";
        let _line = caller_line();
        let dtype = values.dtype();
        let (channels, height, width) = match *values.dims() {
            [height, width] => (1, height, width),
            [channels @ (1 | 3), height, width] => (channels, height, width),
            _ => {
                let message = format!("values {}: give [3, H, W], [1, H, W] or [H, W]", values.shape());
                return Err(Error::invalid(OP, message));
            }
        };
        checked(OP, (height, width))?;
        if !(dtype.is_float() || dtype == DType::U8) {
            return Err(Error::invalid(OP, format!("values of {dtype}: give floats from 0 to 1, or u8")));
        }
        let colours = values.detach().reshape([channels, height, width])?.expand([3, height, width])?;
        let values = colours.permute([1, 2, 0])?.to_f64_vec()?;
        if values.iter().any(|value| value.is_nan()) {
            return Err(Error::invalid(OP, "a value is NaN: give floats from 0 to 1"));
        }
        let scale = if dtype == DType::U8 { 1.0 } else { 255.0 };
        Image::from_bytes(height, width, rounded_bytes(&values, scale))
    }

    /// The height, in pixels.
    pub fn height(&self) -> usize {
        self.0.height() as usize
    }

    /// The width, in pixels.
    pub fn width(&self) -> usize {
        self.0.width() as usize
    }

    /// The bytes of the pixels, `[H, W, 3]`.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_raw()
    }

    /// Resizes to this height and width with a bilinear filter, antialiased when it shrinks.
    /// `transforms.Resize((h, w))`.
    ///
    /// # Errors
    /// A size of 0, or above 65,535.
    #[track_caller]
    pub fn resize(&self, size: (usize, usize)) -> Result<Image> {
        let (height, width) = checked("resize", size)?;
        Ok(Image(imageops::resize(&self.0, width, height, FilterType::Triangle)))
    }

    /// Resizes the shorter side to this length, and the other in proportion. `transforms.Resize(side)`.
    ///
    /// # Errors
    /// As for [`Image::resize`].
    #[track_caller]
    pub fn resize_shorter(&self, side: usize) -> Result<Image> {
        let _line = caller_line();
        let (height, width) = (self.height(), self.width());
        let long = |long: usize, short: usize| (side as u64 * long as u64 / short as u64) as usize;
        self.resize(if height <= width { (side, long(width, height)) } else { (long(height, width), side) })
    }

    /// The region of this height and width that begins `top` pixels from the top and `left` from the left.
    /// `functional.crop`.
    ///
    /// # Errors
    /// A region that is empty, or not within the picture.
    #[track_caller]
    pub fn crop(&self, (top, left): (usize, usize), size: (usize, usize)) -> Result<Image> {
        let _line = caller_line();
        let inside =
            |start: usize, length: usize, all: usize| start.checked_add(length).is_some_and(|end| end <= all);
        let (height, width) = checked("crop", size)?;
        if !inside(top, size.0, self.height()) || !inside(left, size.1, self.width()) {
            let message = format!(
                "{} x {} from ({top}, {left}) of a picture of {} x {}",
                size.0,
                size.1,
                self.height(),
                self.width()
            );
            return Err(Error::invalid("Image::crop", message));
        }
        // Both are within the picture.
        let part = imageops::crop_imm(&self.0, left as u32, top as u32, width, height);
        Ok(Image(part.to_image()))
    }

    /// The centered region of this size; where the picture is smaller, it gets a black border first.
    /// `transforms.CenterCrop`.
    ///
    /// # Errors
    /// A size of 0, or above 65,535.
    #[track_caller]
    pub fn center_crop(&self, size: (usize, usize)) -> Result<Image> {
        const OP: &str = "Image::center_crop";
        let _line = caller_line();
        checked(OP, size)?;
        let (height, width) = (self.height(), self.width());
        if size.0 > height || size.1 > width {
            let whole = (size.0.max(height), size.1.max(width));
            let corner = ((whole.0 - height) / 2, (whole.1 - width) / 2);
            return self.framed(OP, corner, whole, [0; 3])?.center_crop(size);
        }
        // Rounds halves to even, as torchvision does.
        let start = |all: usize, part: usize| ((all - part) as f64 / 2.0).round_ties_even() as usize;
        self.crop((start(height, size.0), start(width, size.1)), size)
    }

    /// A region of this size at a random position. `transforms.RandomCrop`.
    ///
    /// # Errors
    /// As for [`Image::crop`].
    #[track_caller]
    pub fn random_crop(&self, size: (usize, usize), draws: &mut Draws) -> Result<Image> {
        let _line = caller_line();
        let mut start = |all: usize, part: usize| draws.below(all.saturating_sub(part) as u64 + 1) as usize;
        let corner = (start(self.height(), size.0), start(self.width(), size.1));
        self.crop(corner, size)
    }

    /// A random region, whose fraction of the area is in the range `scale` and whose ratio of width to
    /// height is in the range `ratio`, resized to this size. `transforms.RandomResizedCrop`, whose defaults
    /// are (0.08, 1.0) and (0.75, 4/3).
    ///
    /// # Errors
    /// A size of 0; ranges that are empty, or not above 0; `scale` above 1.
    #[track_caller]
    pub fn random_resized_crop(
        &self,
        size: (usize, usize),
        scale: (f64, f64),
        ratio: (f64, f64),
        draws: &mut Draws,
    ) -> Result<Image> {
        let _line = caller_line();
        const OP: &str = "Image::random_resized_crop";
        let range = |(low, high): (f64, f64)| low > 0.0 && low <= high && high.is_finite();
        if !range(scale) || scale.1 > 1.0 || !range(ratio) {
            let message = format!(
                "scale {scale:?} and ratio {ratio:?}: give 0 < low <= high, and a scale of at most 1"
            );
            return Err(Error::invalid(OP, message));
        }
        let (height, width) = (self.height(), self.width());
        let (logs, area) = ((ratio.0.ln(), ratio.1.ln()), (height * width) as f64);
        for _ in 0..10 {
            let part = area * (scale.0 + (scale.1 - scale.0) * draws.uniform());
            let ratio = (logs.0 + (logs.1 - logs.0) * draws.uniform()).exp();
            let (high, wide) =
                ((part / ratio).sqrt().round() as usize, (part * ratio).sqrt().round() as usize);
            if (1..=height).contains(&high) && (1..=width).contains(&wide) {
                return self.random_crop((high, wide), draws)?.resize(size);
            }
        }
        // As in torchvision, if none of ten attempts fits: the center, with the nearest ratio that does.
        let whole = width as f64 / height as f64;
        let part = if whole < ratio.0 {
            ((width as f64 / ratio.0).round() as usize, width)
        } else if whole > ratio.1 {
            (height, (height as f64 * ratio.1).round() as usize)
        } else {
            (height, width)
        };
        self.center_crop((part.0.clamp(1, height), part.1.clamp(1, width)))?.resize(size)
    }

    /// Mirrors left and right. `functional.hflip`.
    #[must_use]
    pub fn flip_horizontal(&self) -> Image {
        Image(imageops::flip_horizontal(&self.0))
    }

    /// Mirrors top and bottom. `functional.vflip`.
    #[must_use]
    pub fn flip_vertical(&self) -> Image {
        Image(imageops::flip_vertical(&self.0))
    }

    /// Mirrors left and right with this probability. `transforms.RandomHorizontalFlip`.
    #[must_use]
    pub fn random_flip_horizontal(self, probability: f64, draws: &mut Draws) -> Image {
        if draws.chance(probability) { self.flip_horizontal() } else { self }
    }

    /// The picture as `[3, H, W]`, f32 from 0 to 1. `transforms.ToTensor`.
    ///
    /// # Errors
    /// Too little memory on the device.
    #[track_caller]
    pub fn to_tensor(&self, device: &Device) -> Result<Tensor> {
        self.normalized([0.0; 3], [1.0; 3], device)
    }

    /// The gray picture as `[1, H, W]`, f32 from 0 to 1: `Image.convert("L")` of PIL and then
    /// `transforms.ToTensor`. A gray is (19595 R + 38470 G + 7471 B) / 65536, rounded, so that the pixels of
    /// a file without colours are its own.
    ///
    /// ```
    /// use data::Image;
    /// # fn main() -> tensor_core::Result<()> {
    /// let image = Image::from_bytes(1, 2, vec![255, 0, 0, 80, 80, 80])?;
    /// let gray = image.to_gray_tensor(&backend_cpu::cpu())?;
    /// assert_eq!((gray.dims(), gray.to_vec::<f32>()?), (&[1, 1, 2][..], vec![76.0 / 255.0, 80.0 / 255.0]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Too little memory on the device.
    #[track_caller]
    pub fn to_gray_tensor(&self, device: &Device) -> Result<Tensor> {
        let _line = caller_line();
        let grays = self.bytes().chunks_exact(3).map(|pixel| f32::from(luma(pixel)) / 255.0);
        Tensor::from_vec(grays.collect(), [1, self.height(), self.width()], device)
    }

    /// The picture as `[3, H, W]`, f32: (x − mean) / std for each channel, where x is from 0 to 1.
    /// `ToTensor` and then `Normalize(mean, std)`.
    ///
    /// # Errors
    /// A standard deviation that is not above 0, or a number that is not finite; too little memory on the
    /// device.
    #[track_caller]
    pub fn normalized(&self, mean: [f32; 3], std: [f32; 3], device: &Device) -> Result<Tensor> {
        let _line = caller_line();
        if mean.iter().chain(&std).any(|value| !value.is_finite()) || std.iter().any(|value| *value <= 0.0) {
            let message = format!("mean {mean:?} and std {std:?}: give finite numbers, std above 0");
            return Err(Error::invalid("Image::normalized", message));
        }
        let plane = |channel: usize| {
            let value =
                move |pixel: &[u8]| (f32::from(pixel[channel]) / 255.0 - mean[channel]) / std[channel];
            self.bytes().chunks_exact(3).map(value)
        };
        Tensor::from_vec((0..3).flat_map(plane).collect(), [3, self.height(), self.width()], device)
    }
}

/// The gray of a pixel in PIL's mode "L".
fn luma(pixel: &[u8]) -> u8 {
    let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
    ((19595 * red + 38470 * green + 7471 * blue + (1 << 15)) >> 16) as u8
}

/// A size in the image library's type.
#[track_caller]
pub(crate) fn checked(op: &'static str, (height, width): (usize, usize)) -> Result<(u32, u32)> {
    let _line = caller_line();
    let one = |size: usize| u16::try_from(size).ok().filter(|size| *size > 0).map(u32::from);
    one(height).zip(one(width)).ok_or_else(|| {
        Error::invalid(op, format!("a picture of {height} x {width}: give 1 to 65,535 pixels each way"))
    })
}
