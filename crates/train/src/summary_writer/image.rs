//! A `Summary.Image`: a tensor as PNG.

use inspect::Message;
use tensor_core::{DType, Error, Result, Tensor};

#[track_caller]
pub(super) fn image(image: &Tensor) -> Result<Message> {
    let wrong = || {
        let message = format!(
            "an image {} {}: give [H, W] or [C, H, W] with 1, 3 or 4 channels, floats from 0 to 1 or u8",
            image.dtype(),
            image.shape()
        );
        Error::invalid(super::OP, message)
    };
    let (channels, height, width) = match *image.dims() {
        [height, width] => (1, height, width),
        [channels @ (1 | 3 | 4), height, width] => (channels, height, width),
        _ => return Err(wrong()),
    };
    let most = match image.dtype() {
        DType::U8 => 1.0,
        dtype if dtype.is_float() => 255.0,
        _ => return Err(wrong()),
    };
    let (Ok(wide), Ok(high)) = (u32::try_from(width), u32::try_from(height)) else { return Err(wrong()) };
    if wide == 0 || high == 0 {
        return Err(wrong());
    }
    // From planes to interleaved pixels.
    let planes = image.detach().to_f64_vec()?;
    if planes.iter().any(|value| value.is_nan()) {
        return Err(Error::invalid(super::OP, "the image has NaN elements"));
    }
    let size = height * width;
    let byte = |value: f64| (value * most).round() as u8; // saturates
    let pixels: Vec<u8> = (0..size)
        .flat_map(|at| (0..channels).map(move |c| c * size + at))
        .map(|at| byte(planes[at]))
        .collect();
    let png = encode(wide, high, channels, &pixels)
        .map_err(|error| Error::invalid(super::OP, format!("the image cannot be encoded as PNG: {error}")))?;
    Ok(Message::default()
        .int(1, i64::from(high))
        .int(2, i64::from(wide))
        .int(3, channels as i64)
        .bytes(4, &png))
}

fn encode(
    width: u32,
    height: u32,
    channels: usize,
    pixels: &[u8],
) -> std::result::Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(match channels {
        1 => png::ColorType::Grayscale,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    });
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}
