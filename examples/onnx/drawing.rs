//! Drawings as SVG and PNG.

use std::{
    fs,
    path::{Path, PathBuf},
};

use plotters::{
    coord::Shift,
    prelude::{BLACK, DrawingArea, DrawingBackend, IntoDrawingArea, IntoFont, SVGBackend},
    style::{
        TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

use crate::{common::Outcome, raster};

/// A drawing of some size that can be drawn on any backend.
pub(crate) trait Drawing {
    /// Width and height.
    fn size(&self) -> (u32, u32);
    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Outcome
    where
        B::ErrorType: 'static;
}

/// Writes a drawing as `PATH.svg` and `PATH.png`, and returns both paths.
pub(crate) fn write_pictures(drawing: &impl Drawing, path: &Path) -> Outcome<[PathBuf; 2]> {
    let paths = [path.with_extension("svg"), path.with_extension("png")];
    drawing.draw(&SVGBackend::new(&paths[0], drawing.size()).into_drawing_area())?;
    let picture = raster::png(drawing.size(), |area| drawing.draw(area))?;
    fs::write(&paths[1], picture).map_err(|error| format!("{}: {error}", paths[1].display()))?;
    Ok(paths)
}

/// The style of a text that is anchored at its left, centre or right.
pub(crate) fn text(size: i32, h: HPos) -> TextStyle<'static> {
    ("monospace", size).into_font().color(&BLACK).pos(Pos::new(h, VPos::Center))
}
