//! The ratios as a picture: one bar a case on a logarithmic scale, with a line at 1.

use std::path::Path;

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::{Result, table::ratio as words};

const FASTER: RGBColor = RGBColor(37, 122, 85);
const SLOWER: RGBColor = RGBColor(196, 78, 62);
const INK: RGBColor = RGBColor(40, 40, 40);
const ROW: i32 = 20;
const HEAD: i32 = 56;
const FOOT: i32 = 16;
const NAMES: i32 = 290;
const BARS: i32 = 520;
const WIDTH: i32 = NAMES + BARS + 90;

/// Draws `ratios` into an SVG file.
pub(crate) fn draw(path: &Path, title: &str, ratios: &[(&str, f64)]) -> Result<()> {
    let height = HEAD + ROW * i32::try_from(ratios.len())? + FOOT;
    let area = SVGBackend::new(path, (WIDTH as u32, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let text = |size: i32, horizontal| {
        ("sans-serif", size).into_font().color(&INK).pos(Pos::new(horizontal, VPos::Center))
    };
    area.draw(&Text::new(title.to_string(), (12, 16), text(16, HPos::Left)))?;
    let scale = Scale::of(ratios);
    for mark in scale.marks() {
        let x = scale.x(mark);
        let colour = if mark == 1.0 { INK } else { RGBColor(225, 225, 225) };
        area.draw(&PathElement::new(vec![(x, HEAD - 6), (x, height - FOOT)], colour))?;
        area.draw(&Text::new(format!("{mark}"), (x, HEAD - 16), text(12, HPos::Center)))?;
    }
    for (i, (case, ratio)) in ratios.iter().enumerate() {
        let y = HEAD + ROW * i as i32 + ROW / 2;
        let (one, end) = (scale.x(1.0), scale.x(*ratio));
        let colour = if *ratio >= 1.0 { FASTER } else { SLOWER };
        let bar = [(one.min(end), y - ROW / 2 + 4), (one.max(end), y + ROW / 2 - 4)];
        area.draw(&Rectangle::new(bar, colour.filled()))?;
        area.draw(&Text::new((*case).to_string(), (NAMES - 12, y), text(13, HPos::Right)))?;
        let beside = one.max(end) + 6;
        area.draw(&Text::new(words(*ratio), (beside, y), text(12, HPos::Left)))?;
    }
    area.draw(&PathElement::new(vec![(scale.x(1.0), HEAD - 6), (scale.x(1.0), height - FOOT)], INK))?;
    area.present()?;
    Ok(())
}

/// The x-position of a ratio in the picture.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(ratios: &[(&str, f64)]) -> Scale {
        let all = ratios.iter().map(|(_, ratio)| ratio.log10());
        let low = all.clone().fold(-0.3, f64::min);
        let high = all.fold(0.5, f64::max);
        Scale { low, high }
    }

    fn x(&self, ratio: f64) -> i32 {
        NAMES + (f64::from(BARS) * (ratio.log10() - self.low) / (self.high - self.low)).round() as i32
    }

    /// 1, 2 and 5 of every power of ten that is in the picture; only the powers when there are many.
    fn marks(&self) -> Vec<f64> {
        let few = self.high - self.low < 2.5;
        (self.low.floor() as i32..=self.high.ceil() as i32)
            .flat_map(|power| {
                let steps: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
                // Written and read again, so that 5 tenths are 0.5.
                steps.iter().filter_map(move |step| format!("{step}e{power}").parse().ok())
            })
            .filter(|mark: &f64| (self.low..=self.high).contains(&mark.log10()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_a_bar_and_a_name_for_each_case() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chart.svg");
        draw(&path, "ratios", &[("matmul_64", 1.8), ("add_10M", 0.7), ("elementwise_chain", 45.0)]).unwrap();
        let svg = std::fs::read_to_string(path).unwrap();
        for part in ["matmul_64", "add_10M", "45.0x", "0.70x", "#257A55", "#C44E3E"] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }

    #[test]
    fn one_always_has_a_mark() {
        for ratios in [&[("a", 100.0)][..], &[("a", 0.01)], &[("a", 1.0)], &[]] {
            assert!(Scale::of(ratios).marks().contains(&1.0));
        }
    }
}
