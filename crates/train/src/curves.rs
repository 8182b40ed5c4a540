//! [`Curves`]: plots of losses and metrics over steps.

use std::{
    io::{self, Write},
    ops::Range,
    path::Path,
};

use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, Ranged, ValueFormatter},
    },
    prelude::{
        BLACK, ChartBuilder, Circle, Color, DrawingArea, DrawingBackend, IntoDrawingArea, IntoLogRange,
        Palette, Palette99, PathElement, SVGBackend, SeriesLabelPosition, WHITE,
    },
};
use tensor_core::{
    Error, Result,
    file::{file_error, write_whole},
};

use crate::raster::png;

const OP: &str = "Curves";
/// The size, in units of a drawing.
const SIZE: (u32, u32) = (720, 440);

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// A plot of lines over steps, such as losses, drawn as SVG for browsers, or as PNG.
///
/// ```
/// use train::Curves;
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("loss.svg");
/// Curves::new("loss")
///     .line("training", [(1.0, 0.9), (2.0, 0.4), (3.0, 0.2)])
///     .line("validation", [(1.0, 1.0), (2.0, 0.6), (3.0, 0.5)])
///     .log_y()
///     .write_svg(&path)?;
/// # Ok(()) }
/// ```
///
/// Points that are not finite, and points not above 0 on a logarithmic axis, leave gaps.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    title: String,
    lines: Vec<(String, Vec<(f64, f64)>)>,
    log_x: bool,
    log_y: bool,
}

impl Curves {
    /// A plot without lines.
    pub fn new(title: impl Into<String>) -> Curves {
        Curves { title: title.into(), ..Curves::default() }
    }

    /// Adds a line through points (x, y).
    #[must_use]
    pub fn line(mut self, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Curves {
        self.lines.push((name.into(), points.into_iter().collect()));
        self
    }

    /// Makes the x axis logarithmic, as for learning rates.
    #[must_use]
    pub fn log_x(mut self) -> Curves {
        self.log_x = true;
        self
    }

    /// Makes the y axis logarithmic, as for losses.
    #[must_use]
    pub fn log_y(mut self) -> Curves {
        self.log_y = true;
        self
    }

    /// The plot as SVG, 720 by 440.
    ///
    /// # Errors
    /// No point that can be drawn.
    #[track_caller]
    pub fn svg(&self) -> Result<String> {
        let ranges = self.ranges()?;
        let mut svg = String::new();
        self.draw(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(), ranges)
            .map_err(|error| undrawn(&*error))?;
        Ok(svg)
    }

    /// The plot as PNG, 1440 by 880 pixels.
    ///
    /// # Errors
    /// No point that can be drawn.
    #[track_caller]
    pub fn png(&self) -> Result<Vec<u8>> {
        let ranges = self.ranges()?;
        png(SIZE, |canvas| self.draw(canvas, ranges)).map_err(|error| undrawn(&*error))
    }

    /// Writes the plot to a file as SVG.
    ///
    /// # Errors
    /// No point that can be drawn; `File` for a file that cannot be written.
    #[track_caller]
    pub fn write_svg(&self, path: impl AsRef<Path>) -> Result<()> {
        write(path.as_ref(), self.svg()?.as_bytes())
    }

    /// Writes the plot to a file as PNG.
    ///
    /// # Errors
    /// No point that can be drawn; `File` for a file that cannot be written.
    #[track_caller]
    pub fn write_png(&self, path: impl AsRef<Path>) -> Result<()> {
        write(path.as_ref(), &self.png()?)
    }

    fn can_be_drawn(&self, (x, y): (f64, f64)) -> bool {
        let fits = |value: f64, log: bool| value.is_finite() && (!log || value > 0.0);
        fits(x, self.log_x) && fits(y, self.log_y)
    }

    /// The ranges of both axes, with a positive length even for a single point.
    #[track_caller]
    fn ranges(&self) -> Result<(Range<f64>, Range<f64>)> {
        let points =
            || self.lines.iter().flat_map(|(_, points)| points).filter(|point| self.can_be_drawn(**point));
        if points().next().is_none() {
            let message =
                "there is no point to draw: all are NaN or infinite, or not above 0 on a logarithmic axis";
            return Err(Error::invalid(OP, message));
        }
        let range = |values: &mut dyn Iterator<Item = f64>, log: bool| {
            let (low, high) =
                values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (f64::min(l, v), f64::max(h, v)));
            if log {
                return low / 1.1..high * 1.1;
            }
            // The difference of two huge numbers may overflow.
            let margin = (high * 0.05 - low * 0.05).max(low.abs().max(1e-9) * 1e-6);
            low - margin..high + margin
        };
        let x = range(&mut points().map(|p| p.0), self.log_x);
        Ok((x, range(&mut points().map(|p| p.1), self.log_y)))
    }

    fn draw<B: DrawingBackend>(
        &self,
        canvas: &DrawingArea<B, Shift>,
        (x, y): (Range<f64>, Range<f64>),
    ) -> Drawn {
        match (self.log_x, self.log_y) {
            (false, false) => self.draw_over(canvas, x, y),
            (false, true) => self.draw_over(canvas, x, y.log_scale()),
            (true, false) => self.draw_over(canvas, x.log_scale(), y),
            (true, true) => self.draw_over(canvas, x.log_scale(), y.log_scale()),
        }
    }

    fn draw_over<B: DrawingBackend, X, Y>(&self, canvas: &DrawingArea<B, Shift>, x: X, y: Y) -> Drawn
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        canvas.fill(&WHITE).map_err(|e| failed(&e))?;
        let mut chart = ChartBuilder::on(canvas)
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(32)
            .y_label_area_size(60)
            .build_cartesian_2d(x, y)
            .map_err(|e| failed(&e))?;
        chart.configure_mesh().light_line_style(WHITE).draw().map_err(|e| failed(&e))?;
        for (i, (name, points)) in self.lines.iter().enumerate() {
            let color = Palette99::pick(i).to_rgba().stroke_width(2);
            let mut label = Some(name);
            for stretch in
                points.split(|point| !self.can_be_drawn(*point)).filter(|stretch| !stretch.is_empty())
            {
                // A single point would be a line without length.
                let drawn = match stretch {
                    [point] => chart.draw_series([Circle::new(*point, 2, color.color.filled())]),
                    _ => chart.draw_series([PathElement::new(stretch, color)]),
                };
                let drawn = drawn.map_err(|e| failed(&e))?;
                if let Some(name) = label.take() {
                    drawn.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color));
                }
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()
            .map_err(|e| failed(&e))?;
        canvas.present().map_err(|e| failed(&e))?;
        Ok(())
    }
}

#[track_caller]
fn undrawn(error: &dyn std::error::Error) -> Error {
    Error::invalid(OP, format!("cannot be drawn: {error}"))
}

#[track_caller]
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error: io::Error| file_error(path, format!("cannot be written: {error}"));
    let written = write_whole(path, failed, |file| file.write_all(bytes).map_err(failed));
    Error::here_in(written)
}
