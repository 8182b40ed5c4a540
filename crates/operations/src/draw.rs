//! A part of the table, and of tests with many cases. A run that repeats them with other kernels takes one
//! part, and another the next day.

use std::{
    fmt::{self, Write as _},
    str::FromStr,
};

use taper::DType;
use taper_testing::{LAYOUTS, settings::setting};

use crate::{
    fixtures::INTEGERS,
    forms,
    row::{ANY_SHAPES, Row},
    table::rows,
};

/// The setting of `TAPER_TEST` that draws a part for the suite: `TAPER_TEST=draw=1/4`.
pub const SETTING: &str = "draw";

/// The checks of a row: the methods of [`Bench`](crate::Bench).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// `Bench::forward`
    Forward,
    /// `Bench::layouts`
    Layouts,
    /// `Bench::sizes`
    Sizes,
    /// `Bench::gradients`
    Gradients,
    /// `Bench::torch`
    Torch,
    /// `Bench::integers`
    Integers,
    /// `Bench::bad_input`
    BadInput,
    /// `Bench::mapped`
    Mapped,
    /// `Bench::jacobians`
    Jacobians,
    /// `Bench::derivatives`
    Derivatives,
}

impl Check {
    /// Each of them.
    pub const ALL: [Check; 10] = [
        Check::Forward,
        Check::Layouts,
        Check::Sizes,
        Check::Gradients,
        Check::Torch,
        Check::Integers,
        Check::BadInput,
        Check::Mapped,
        Check::Jacobians,
        Check::Derivatives,
    ];

    /// The ways in which this check tries a row on a device that has every dtype: dtypes, layouts and shapes,
    /// or one way without a name.
    pub fn ways(self, row: &Row) -> Vec<String> {
        match self {
            Check::Forward => row.dtypes.list().iter().map(DType::to_string).collect(),
            Check::Layouts => {
                let layouts = LAYOUTS.iter().filter(|&&layout| row.has_layout(layout));
                let shapes = ANY_SHAPES.iter().filter(|_| row.pointwise);
                let layouts = layouts.map(|layout| format!("{layout:?}"));
                layouts.chain(shapes.map(|shapes| format!("{shapes:?}"))).collect()
            }
            Check::Sizes => forms::ways(row),
            Check::Gradients => row.gradient_dtypes().iter().map(DType::to_string).collect(),
            Check::Integers => INTEGERS.iter().map(DType::to_string).collect(),
            Check::Torch | Check::BadInput | Check::Mapped | Check::Jacobians | Check::Derivatives => {
                vec![String::new()]
            }
        }
    }
}

/// One part of the table's cells, which are cut into parts of about equal size. A cell is a row in one of
/// the [ways](Check::ways) of a check; its part depends only on their names. So all parts together have
/// every cell once, and a new row does not move other rows.
///
/// ```
/// use taper_operations::{Check, Draw, rows};
///
/// let draws: Vec<Draw> = (0..4).map(|part| format!("{part}/4").parse().unwrap()).collect();
/// for row in rows() {
///     assert_eq!(draws.iter().filter(|draw| draw.takes(&row, Check::Forward, "f32")).count(), 1);
///     assert!(Draw::ALL.takes(&row, Check::Forward, "f32"));
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    part: u64,
    parts: u64,
}

impl Draw {
    /// The whole table.
    pub const ALL: Draw = Draw { part: 0, parts: 1 };

    /// The part that [`SETTING`] names, or the whole table if it is not set.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn from_env() -> Draw {
        setting(SETTING).map_or(Draw::ALL, |text| {
            text.parse().unwrap_or_else(|message| panic!("TAPER_TEST: {SETTING}: {message}"))
        })
    }

    /// Whether this part has the cell of `row` that `check` tries in this way.
    pub fn takes(self, row: &Row, check: Check, way: impl fmt::Display) -> bool {
        self.takes_case(format_args!("{}\0{check:?}\0{way}", row.label()))
    }

    /// Whether this part has a case of a test that is no row's, by a name that it has in its test.
    pub fn takes_case(self, name: impl fmt::Display) -> bool {
        self.parts == 1 || fnv(&name.to_string()) % self.parts == self.part
    }

    /// A line for each row and check with a cell in this part, with the ways of its cells.
    pub fn list(self) -> String {
        let mut text = String::new();
        for (row, check) in rows().iter().flat_map(|row| Check::ALL.map(|check| (row, check))) {
            let ways: Vec<String> =
                check.ways(row).into_iter().filter(|way| self.takes(row, check, way)).collect();
            if !ways.is_empty() {
                let _ = writeln!(text, "{}: {check:?} {}", row.label(), ways.join(", "));
            }
        }
        text
    }
}

impl FromStr for Draw {
    type Err = String;

    /// Reads `part/parts`, where parts are counted from 0.
    fn from_str(text: &str) -> Result<Draw, String> {
        let numbers = text.split_once('/').and_then(|(part, parts)| {
            Some(Draw { part: part.trim().parse().ok()?, parts: parts.trim().parse().ok()? })
        });
        let draw = numbers.filter(|draw| draw.part < draw.parts);
        draw.ok_or_else(|| format!("{text:?} is no part of the table; say 0/4, 1/4, 2/4 or 3/4"))
    }
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.parts)
    }
}

/// The 64-bit FNV-1a hash of a text, which is the same on every machine and in every version. Its halves are
/// mixed, as a remainder of a small number depends on few of the low bits.
pub(crate) fn fnv(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows;

    #[test]
    fn parts_are_of_about_equal_size() {
        let rows = rows();
        let parts = (0..4).map(|part| Draw { part, parts: 4 });
        let cells: Vec<usize> = parts
            .map(|draw| {
                let dtypes = |row: &Row| Check::Forward.ways(row).into_iter();
                let taken =
                    |row: &Row| dtypes(row).filter(|way| draw.takes(row, Check::Forward, way)).count();
                rows.iter().map(taken).sum()
            })
            .collect();
        let all: usize = rows.iter().map(|row| row.dtypes.list().len()).sum();
        assert_eq!(cells.iter().sum::<usize>(), all);
        // Four standard deviations of a binomial distribution.
        let bound = 4 * ((all * 3 / 16) as f64).sqrt() as usize;
        assert!(cells.iter().all(|n| n.abs_diff(all / 4) < bound), "{cells:?}");
    }

    #[test]
    fn a_part_is_the_same_on_every_machine() {
        let draw = Draw { part: 1, parts: 4 };
        assert_eq!(fnv(""), 0xcbf2_9ce4_8422_2325 ^ 0xcbf2_9ce4);
        assert_eq!(fnv("a"), 0xaf63_dc4c_8601_ec8c ^ 0xaf63_dc4c);
        let list = draw.list();
        assert_eq!(list, draw.list());
        assert!(
            list.contains(": Forward ") && list.contains("Transposed") && list.contains("[[7, 13]]"),
            "{list}"
        );
        assert!(Draw::ALL.list().lines().count() > list.lines().count());
    }

    #[test]
    fn a_part_is_written_as_a_fraction() {
        assert_eq!("1/4".parse(), Ok(Draw { part: 1, parts: 4 }));
        assert_eq!(Draw { part: 1, parts: 4 }.to_string(), "1/4");
        assert_eq!("0/1".parse(), Ok(Draw::ALL));
        for wrong in ["", "1", "4/4", "0/0", "-1/4", "a/4", "1/4/2"] {
            assert!(wrong.parse::<Draw>().unwrap_err().contains("0/4"), "{wrong}");
        }
    }
}
