//! The table of operations: one row each, which drives tests on every device, PyTorch's fixtures and the page
//! docs/operations.md. For tests alone.
//!
//! | module | what lives there |
//! |---|---|
//! | [`table`] | the rows: open this to add an operation |
//! | [`row`] | what a row can say |
//! | [`check`] | what a row is held to |
//! | `forms` | forms of inputs that broadcast |
//! | `sizes` | rows at sizes past every block, with columns, rows, constants and numbers |
//! | [`draw`] | the cells of the table that a run takes |
//! | [`different`] | where integers differ from PyTorch's on purpose |
//! | [`fixtures`] | what PyTorch is asked, and its answers |
//! | [`public`] | the library's public functions, read from its sources: each has a row |
//! | [`mod@page`] | docs/operations.md |
#![allow(clippy::unwrap_used, clippy::panic)] // tools of tests: to fail is to panic

pub mod check;
pub mod different;
pub mod draw;
pub mod fixtures;
mod forms;
pub mod page;
pub mod public;
pub mod row;
mod sizes;
pub mod table;

use taper::{Error, Result, Tensor};

pub use check::Bench;
pub use draw::{Check, Draw};
pub use fixtures::questions;
pub use page::page;
pub use row::Row;
pub use table::{rows, sections};

/// Does the row with this [label](Row::label): a line for a program that the fuzzer printed.
///
/// # Errors
/// A label that no row has; the operation's.
pub fn apply(label: &str, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    let rows = rows();
    let row = rows.iter().find(|row| row.label() == label);
    let row = row.ok_or_else(|| Error::invalid("apply", format!("no row is called {label}")))?;
    row.of_tensors(x)
}
