//! Pictures that the program draws: text in an 8x8 font, boxes, and PNG files.

use std::{fs, path::Path};

use font8x8::{BASIC_FONTS, UnicodeFonts};
use taper::{data::Image, prelude::*};

use crate::{boxes::Box, common::Outcome};

/// The height and width of a letter in the font.
const LETTER: usize = 8;
/// The colours of the drawn text and its background.
const INK: [u8; 3] = [30, 30, 60];
const PAPER: [u8; 3] = [250, 248, 240];

/// Draws lines of text, one below the other, each letter `scale` times as large as the font has it, with
/// smooth edges.
pub(crate) fn draw(lines: &[&str], scale: usize) -> Result<Image> {
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    // Two letters of margin, and as much space between lines as a line is high.
    let (width, height) = ((columns + 4) * LETTER, (2 * lines.len() + 1) * LETTER);
    let mut bytes = PAPER.repeat(width * height);
    for (row, line) in lines.iter().enumerate() {
        for (column, letter) in line.chars().enumerate() {
            let glyph = BASIC_FONTS.get(letter).unwrap_or_default();
            for (y, bits) in glyph.iter().enumerate() {
                for x in (0..LETTER).filter(|x| bits >> x & 1 == 1) {
                    let at = ((2 * row + 1) * LETTER + y) * width + (column + 2) * LETTER + x;
                    bytes[3 * at..3 * at + 3].copy_from_slice(&INK);
                }
            }
        }
    }
    Image::from_bytes(height, width, bytes)?.resize((height * scale, width * scale))
}

/// Writes a picture with boxes around its text as a PNG file.
pub(crate) fn write_boxes(image: &Image, boxes: &[Box], path: &Path) -> Outcome {
    const COLOUR: [u8; 3] = [213, 94, 0];
    const LINE: usize = 2;
    let (width, height) = (image.width(), image.height());
    let mut bytes = image.bytes().to_vec();
    for b in boxes {
        for y in b.top..b.bottom {
            for x in b.left..b.right {
                let edge = (x - b.left).min(b.right - 1 - x).min(y - b.top).min(b.bottom - 1 - y);
                if edge < LINE {
                    let at = 3 * (y * width + x);
                    bytes[at..at + 3].copy_from_slice(&COLOUR);
                }
            }
        }
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&bytes)?;
    fs::write(path, file).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(())
}
