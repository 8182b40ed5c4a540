//! The cases of the table, and of tests with many cases, that a run on a GPU takes today.

use std::fmt::{self, Write as _};

use taper::DType;
use taper_testing::{
    LAYOUTS,
    deal::{Deal, Form, SETTING},
    settings::setting,
};

use crate::{
    fixtures::INTEGERS,
    forms,
    row::{ANY_SHAPES, Row},
    table::rows,
};

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

/// The cells of the table that a run takes: all, or those that are [dealt](Deal) to it. A cell is a row in
/// one of the [ways](Check::ways) of a check. A day's deals of all forms have every row, and no cell twice.
///
/// ```
/// use taper_operations::{Check, Draw, rows};
/// use taper_testing::deal::Form;
///
/// let today = Form::ALL.map(|form| Draw::dealt(form, 20_785));
/// for row in rows() {
///     let taken = |way: &str| today.iter().filter(|draw| draw.takes(&row, Check::Forward, way)).count();
///     assert!(taken("f32") <= 1);
///     assert!(Draw::ALL.takes(&row, Check::Forward, "f32"));
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw(Option<Deal>);

impl Draw {
    /// The whole table.
    pub const ALL: Draw = Draw(None);

    /// The cells that are dealt to a form on a day.
    pub const fn dealt(form: Form, day: u64) -> Draw {
        Draw(Some(Deal { form, day }))
    }

    /// The cells that [`SETTING`] names, or the whole table if it is not set.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn from_env() -> Draw {
        let read = |text: String| text.parse().unwrap_or_else(|e| panic!("TAPER_TEST: {SETTING}: {e}"));
        Draw(setting(SETTING).map(read))
    }

    /// Whether this run has the cell of `row` that `check` tries in this way.
    pub fn takes(self, row: &Row, check: Check, way: impl fmt::Display) -> bool {
        let Some(deal) = self.0 else { return true };
        let ways =
            Check::ALL.into_iter().flat_map(|check| check.ways(row).into_iter().map(move |way| (check, way)));
        let cells: Vec<(Check, String)> = ways.collect();
        let cell = (check, way.to_string());
        let at = cells.iter().position(|known| *known == cell);
        at.is_some_and(|at| deal.takes(&row.label(), at, cells.len()))
    }

    /// Whether this run has a case of a test that is no row's, by a name that it has in its test.
    pub fn takes_case(self, name: impl fmt::Display) -> bool {
        self.0.is_none_or(|deal| deal.takes_name(&name.to_string()))
    }

    /// A line for each row and check with a cell in this run, with the ways of its cells.
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

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |deal| write!(f, ", with TAPER_TEST={SETTING}={deal}"))
    }
}
