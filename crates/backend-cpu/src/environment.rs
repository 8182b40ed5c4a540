//! Environment variables as text, and the error for a value that cannot be parsed.

use std::ffi::OsString;

use tensor_core::Error;

/// A variable with an invalid value.
#[derive(Debug)]
pub(crate) struct Misread {
    name: &'static str,
    message: String,
}

impl Misread {
    pub(crate) fn error(&self) -> Error {
        Error::invalid(self.name, self.message.clone())
    }
}

/// A variable that is set and not empty.
pub(crate) struct Variable {
    name: &'static str,
    pub(crate) text: String,
}

impl Variable {
    pub(crate) fn of(name: &'static str, text: Option<OsString>) -> Option<Variable> {
        // A value that is not Unicode matches no valid value; it is shown lossily.
        let text = text?.to_string_lossy().trim().to_string();
        (!text.is_empty()).then_some(Variable { name, text })
    }

    pub(crate) fn misread(&self, expected: &str) -> Misread {
        Misread { name: self.name, message: format!("{:?} is not {expected}", self.text) }
    }
}
