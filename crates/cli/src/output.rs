//! Writing results to standard output.

use std::io::{self, Write};

use serde_json::Value;

use crate::error::Outcome;

/// Prints a JSON document.
pub(crate) fn json(value: &Value) -> Outcome {
    writeln!(io::stdout(), "{value:#}")?;
    Ok(())
}
