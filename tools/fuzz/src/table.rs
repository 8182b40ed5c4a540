//! Steps from the table of operations (tools/operations): a row applied to the results of other steps. The
//! row gives the shapes and the kinds of its inputs; its result is compared with the plain reference, like
//! that of every step.

use std::sync::LazyLock;

use taper::{Error, Result, Tensor};
use taper_operations::{
    Row,
    row::{Input, Values},
};

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(taper_operations::rows);

/// A row by its place.
pub(crate) fn row(place: usize) -> Option<&'static Row> {
    ROWS.get(place)
}

/// The places of the rows that programs hold, and of those among them with two derivatives.
static PLACES: LazyLock<[Vec<usize>; 2]> = LazyLock::new(|| [false, true].map(suitable));

/// The places of the rows that programs hold: of tensors, on every device, without a rounding that decides,
/// of a shape that does not follow from values, and with two derivatives if that is asked for.
pub(crate) fn places(smooth: bool) -> &'static [usize] {
    &PLACES[usize::from(smooth)]
}

fn suitable(smooth: bool) -> Vec<usize> {
    let suits = |row: &Row| {
        !row.inputs.is_empty()
            && !row.by_cpu
            && !row.stepwise
            && !row.by_value
            && row.ties
            && row.loose == 1.0
            && (!smooth || row.order == 2)
    };
    (0..ROWS.len()).filter(|&place| suits(&ROWS[place])).collect()
}

/// Whether an input takes what other steps compute, and not indices, a mask, or numbers of the row's own.
pub(crate) fn is_free(input: &Input) -> bool {
    matches!(input.values, Values::Between(..))
}

/// Result number `which` of the row at index `place`.
pub(crate) fn apply(place: usize, which: usize, x: &[&Tensor]) -> Result<Tensor> {
    let row = row(place).ok_or_else(|| Error::invalid("table", format!("no row {place}")))?;
    let result = row.of_tensors(x)?.into_iter().nth(which);
    result.ok_or_else(|| Error::invalid("table", format!("{} has no result {which}", row.label())))
}
