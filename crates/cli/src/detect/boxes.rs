//! Boxes with labels drawn into a picture, and PNG files.

use std::{fs, path::Path};

use font8x8::{BASIC_FONTS, UnicodeFonts};
use taper::{data::Image, models::vision::Corners};

use crate::error::{Outcome, at};

/// The width of a line, in pixels.
const LINE: usize = 2;
/// The height and width of a letter in the font.
const LETTER: usize = 8;
/// Colours that colour-blind readers can distinguish (Okabe and Ito: Color universal design, 2008).
const COLOURS: [[u8; 3]; 6] =
    [[213, 94, 0], [0, 114, 178], [0, 158, 115], [204, 121, 167], [230, 159, 0], [86, 180, 233]];

/// The pixels of a picture while boxes are drawn.
struct Canvas {
    bytes: Vec<u8>,
    height: usize,
    width: usize,
}

impl Canvas {
    /// Fills the pixels from `left`, `top` to `right`, `bottom`, without those outside.
    fn fill(&mut self, [left, top, right, bottom]: [usize; 4], colour: [u8; 3]) {
        for y in top..bottom.min(self.height) {
            for x in left..right.min(self.width) {
                let at = 3 * (y * self.width + x);
                self.bytes[at..at + 3].copy_from_slice(&colour);
            }
        }
    }

    /// The four edges of a box.
    fn frame(&mut self, [left, top, right, bottom]: [usize; 4], colour: [u8; 3]) {
        let (inner_right, inner_bottom) = (right.saturating_sub(LINE), bottom.saturating_sub(LINE));
        self.fill([left, top, right, (top + LINE).min(bottom)], colour);
        self.fill([left, inner_bottom.max(top), right, bottom], colour);
        self.fill([left, top, (left + LINE).min(right), bottom], colour);
        self.fill([inner_right.max(left), top, right, bottom], colour);
    }

    /// White letters on a ground of this colour.
    fn label(&mut self, text: &str, (left, top): (usize, usize), colour: [u8; 3]) {
        let width = LETTER * text.chars().count();
        self.fill([left, top, left + width, top + LETTER], colour);
        for (column, letter) in text.chars().enumerate() {
            for (y, bits) in BASIC_FONTS.get(letter).unwrap_or_default().iter().enumerate() {
                for x in (0..LETTER).filter(|x| bits >> x & 1 == 1) {
                    let (x, y) = (left + column * LETTER + x, top + y);
                    self.fill([x, y, x + 1, y + 1], [255; 3]);
                }
            }
        }
    }
}

/// Writes a picture with labelled boxes as a PNG file.
pub(crate) fn write(picture: &Image, boxes: &[(Corners, String)], path: &Path) -> Outcome {
    let (height, width) = (picture.height(), picture.width());
    let mut canvas = Canvas { bytes: picture.bytes().to_vec(), height, width };
    for (index, (corners, label)) in boxes.iter().enumerate() {
        let limits = [width, height, width, height];
        let mut place = [0; 4];
        for ((place, corner), limit) in place.iter_mut().zip(corners).zip(limits) {
            *place = (corner.round().max(0.0) as usize).min(limit);
        }
        let colour = COLOURS[index % COLOURS.len()];
        canvas.frame(place, colour);
        canvas.label(label, (place[0], place[1].saturating_sub(LETTER)), colour);
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, u32::try_from(width)?, u32::try_from(height)?);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&canvas.bytes)?;
    Ok(fs::write(path, file).map_err(at(path))?)
}
