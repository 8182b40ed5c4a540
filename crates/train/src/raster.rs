//! Renders plotters' drawings to PNG files (also used by the example `compare`), without a system font:
//! letters are those of an 8x8 font, everything else is drawn by plotters.

use std::{cell::RefCell, convert::Infallible, error::Error, rc::Rc};

use font8x8::{BASIC_FONTS, LATIN_FONTS, UnicodeFonts};
use plotters::{
    coord::Shift,
    prelude::{DrawingArea, DrawingBackend, IntoDrawingArea},
};
use plotters_backend::{
    BackendColor, BackendCoord, BackendTextStyle, DrawingErrorKind,
    text_anchor::{HPos, VPos},
};

/// Pixels per unit of the drawing, so that it is sharp when it is enlarged.
const SCALE: usize = 2;
/// The height and width of a letter, in units of the drawing.
const LETTER: i32 = 8;

/// The drawing of `draw`, as a PNG file.
pub(crate) fn png(
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<Raster, Shift>) -> Result<(), Box<dyn Error>>,
) -> Result<Vec<u8>, Box<dyn Error>> {
    let (width, height) = (size.0 as usize * SCALE, size.1 as usize * SCALE);
    let pixels = Rc::new(RefCell::new(vec![255u8; width * height * 3]));
    draw(&Raster { size, pixels: Rc::clone(&pixels) }.into_drawing_area())?;
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&pixels.borrow())?;
    Ok(file)
}

/// The pixels that plotters draws on.
pub(crate) struct Raster {
    /// The size, in units of the drawing.
    size: (u32, u32),
    /// Rows of RGB pixels, shared with the writer of the file.
    pixels: Rc<RefCell<Vec<u8>>>,
}

impl DrawingBackend for Raster {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn draw_pixel(
        &mut self,
        (x, y): BackendCoord,
        color: BackendColor,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        let (width, height) = self.size;
        let inside =
            |at: i32, size: u32| u32::try_from(at).ok().filter(|&at| at < size).map(|at| at as usize);
        let (Some(x), Some(y)) = (inside(x, width), inside(y, height)) else { return Ok(()) };
        let mut pixels = self.pixels.borrow_mut();
        let row = width as usize * SCALE;
        for (dy, dx) in (0..SCALE).flat_map(|dy| (0..SCALE).map(move |dx| (dy, dx))) {
            let at = ((y * SCALE + dy) * row + x * SCALE + dx) * 3;
            let (red, green, blue) = color.rgb;
            for (pixel, new) in pixels[at..at + 3].iter_mut().zip([red, green, blue]) {
                *pixel = (f64::from(*pixel) * (1.0 - color.alpha) + f64::from(new) * color.alpha) as u8;
            }
        }
        Ok(())
    }

    fn draw_text<TStyle: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &TStyle,
        (x, y): BackendCoord,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        let width = text.chars().count() as i32 * LETTER;
        let left = match style.anchor().h_pos {
            HPos::Left => x,
            HPos::Center => x - width / 2,
            HPos::Right => x - width,
        };
        let top = match style.anchor().v_pos {
            VPos::Top => y,
            VPos::Center => y - LETTER / 2,
            VPos::Bottom => y - LETTER,
        };
        for (k, letter) in text.chars().enumerate() {
            let glyph = BASIC_FONTS.get(letter).or_else(|| LATIN_FONTS.get(letter)).unwrap_or_default();
            for (row, bits) in (0..).zip(glyph) {
                for column in (0..LETTER).filter(|column| bits >> column & 1 == 1) {
                    self.draw_pixel((left + k as i32 * LETTER + column, top + row), style.color())?;
                }
            }
        }
        Ok(())
    }

    fn estimate_text_size<TStyle: BackendTextStyle>(
        &self,
        text: &str,
        _: &TStyle,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        Ok((text.chars().count() as u32 * LETTER as u32, LETTER as u32))
    }
}
