//! The forms of inputs that broadcast: matrices, columns, rows, cells, constants and numbers.

use crate::row::Row;

/// The rows of a matrix.
const ROWS: usize = 2;

/// The form of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    Matrix,
    Column,
    Row,
    Cell,
    /// The same number everywhere, without memory.
    Constant,
    /// A 0-d constant.
    Number,
}

/// The forms of one input, beside the others in the second form.
const PAIRS: [(Form, Form); 9] = [
    (Form::Column, Form::Matrix),
    (Form::Row, Form::Matrix),
    (Form::Cell, Form::Matrix),
    (Form::Constant, Form::Matrix),
    (Form::Number, Form::Matrix),
    (Form::Row, Form::Column),
    (Form::Constant, Form::Column),
    (Form::Number, Form::Constant),
    (Form::Matrix, Form::Column),
];

/// The input that has the first of two forms; all others have the second.
pub(crate) type Case = (usize, (Form, Form));

/// The cases of a row.
pub(crate) fn cases(row: &Row) -> impl Iterator<Item = Case> {
    let inputs = if row.pointwise { row.inputs.len() } else { 0 };
    (0..inputs).flat_map(|k| PAIRS.map(|pair| (k, pair)))
}

/// The name of a case.
pub(crate) fn name((k, (form, others)): Case) -> String {
    format!("input {k} a {form:?}, others {others:?}")
}

/// The names of the cases of a row.
pub(crate) fn ways(row: &Row) -> Vec<String> {
    cases(row).map(name).collect()
}

impl Form {
    /// The shape of an input in this form, for rows of `width` elements.
    pub(crate) fn shape(self, width: usize) -> Vec<usize> {
        match self {
            Form::Matrix | Form::Constant => vec![ROWS, width],
            Form::Column => vec![ROWS, 1],
            Form::Row => vec![width],
            Form::Cell => vec![1, 1],
            Form::Number => Vec::new(),
        }
    }
}
