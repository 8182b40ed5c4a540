//! The values that a call, a filter or a test is given.

use super::{Fault, value::Value};

/// Arguments in their order and by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Args {
    pub(super) positional: Vec<Value>,
    pub(super) named: Vec<(String, Value)>,
}

impl Args {
    /// The arguments of parameters with these names, which may be given in their order or by name.
    pub(super) fn bind<const N: usize>(&self, names: [&str; N]) -> Result<[Option<Value>; N], Fault> {
        if self.positional.len() > N {
            return Err(Fault::new(format!(
                "{} arguments are too many: it takes {N}",
                self.positional.len()
            )));
        }
        let mut values = [const { None }; N];
        for (place, value) in values.iter_mut().zip(&self.positional) {
            *place = Some(value.clone());
        }
        for (name, value) in &self.named {
            match names.iter().position(|known| known == name) {
                Some(at) => values[at] = Some(value.clone()),
                None => return Err(Fault::new(format!("it has no argument {name:?}"))),
            }
        }
        Ok(values)
    }

    /// As [`Args::bind`], for parameters that must be given.
    pub(super) fn all<const N: usize>(&self, names: [&str; N]) -> Result<[Value; N], Fault> {
        let mut values = [const { Value::None }; N];
        for (k, value) in self.bind(names)?.into_iter().enumerate() {
            values[k] = value.ok_or_else(|| Fault::new(format!("the argument {:?} is missing", names[k])))?;
        }
        Ok(values)
    }
}

/// An argument that is not given or is none.
pub(super) fn given(value: Option<Value>) -> Option<Value> {
    value.filter(|value| !matches!(value, Value::None))
}

/// A size, or what it is by default.
pub(super) fn size_or(value: Option<Value>, default: usize, of: &str) -> Result<usize, Fault> {
    given(value).map_or(Ok(default), |value| value.size(of))
}

/// Whether an argument is given and true.
pub(super) fn flag(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}

/// A text that an operation needs.
pub(super) fn text_of(value: &Value, of: &str) -> Result<std::rc::Rc<str>, Fault> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        other => Err(Fault::new(format!("{of} is a text, not {}", other.kind()))),
    }
}
