//! Variables of the environment as text, and the error of those that cannot be read.

use std::ffi::OsString;

use tensor_core::Error;

/// A variable whose value means nothing.
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

/// A variable that is set to something.
pub(crate) struct Variable {
    name: &'static str,
    pub(crate) text: String,
}

impl Variable {
    pub(crate) fn of(name: &'static str, text: Option<OsString>) -> Option<Variable> {
        // What is no Unicode is no value of any of them, and is shown as well as it can be.
        let text = text?.to_string_lossy().trim().to_string();
        (!text.is_empty()).then_some(Variable { name, text })
    }

    pub(crate) fn misread(&self, expected: &str) -> Misread {
        Misread { name: self.name, message: format!("{:?} is not {expected}", self.text) }
    }
}
