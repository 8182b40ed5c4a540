//! [`State`]: the saved state of an optimizer, a scheduler, a loader or a generator; [`Stateful`]: the
//! trait by which such a state is saved and restored.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    base::error::{Error, ErrorKind, Result},
    elements::scalar::Scalar,
    graph::handle::Tensor,
};

/// One part of a [`State`].
#[derive(Clone, Debug)]
pub enum StateValue {
    /// A tensor, such as a momentum.
    Tensor(Tensor),
    /// A plain number, such as a learning rate or a count. It is exact: an `f64`, an `i64`, or a `bool`.
    Number(Scalar),
}

impl From<Tensor> for StateValue {
    fn from(tensor: Tensor) -> StateValue {
        StateValue::Tensor(tensor)
    }
}
impl From<f64> for StateValue {
    fn from(value: f64) -> StateValue {
        StateValue::Number(Scalar::Float(value))
    }
}
impl From<bool> for StateValue {
    fn from(value: bool) -> StateValue {
        StateValue::Number(Scalar::Bool(value))
    }
}
impl From<i64> for StateValue {
    fn from(value: i64) -> StateValue {
        StateValue::Number(Scalar::Int(value))
    }
}
/// Keeps the bits: a number of 2⁶³ or more becomes a negative `i64`, which [`StateReader::word`]
/// converts back.
impl From<u64> for StateValue {
    fn from(value: u64) -> StateValue {
        StateValue::from(value as i64)
    }
}
impl From<usize> for StateValue {
    fn from(value: usize) -> StateValue {
        StateValue::from(value as u64)
    }
}
impl From<Scalar> for StateValue {
    fn from(value: Scalar) -> StateValue {
        StateValue::Number(value)
    }
}

impl fmt::Display for StateValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateValue::Tensor(tensor) => write!(f, "a tensor {} {}", tensor.dtype(), tensor.shape()),
            StateValue::Number(Scalar::Float(v)) => write!(f, "the number {v:?}"),
            StateValue::Number(Scalar::Int(v)) => write!(f, "the integer {v}"),
            StateValue::Number(Scalar::Unsigned(v)) => write!(f, "the integer {v}"),
            StateValue::Number(Scalar::Bool(v)) => write!(f, "{v}"),
        }
    }
}

/// A snapshot: tensors and plain numbers by name, such as `param_groups.0.lr` and
/// `state.3.momentum_buffer`.
///
/// ```
/// use tensor_core::{Scalar, State};
///
/// let mut state = State::new();
/// state.insert("lr", 0.1);
/// state.insert("steps", 7u64);
/// assert_eq!(state.number("lr"), Some(Scalar::Float(0.1)));
/// assert_eq!(state.number("steps"), Some(Scalar::Int(7)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct State(BTreeMap<String, StateValue>);

impl State {
    /// An empty state.
    pub fn new() -> State {
        State::default()
    }

    /// Stores a tensor or number under a name, replacing an existing one.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<StateValue>) {
        self.0.insert(name.into(), value.into());
    }

    /// Removes the entry of that name.
    pub fn remove(&mut self, name: &str) -> Option<StateValue> {
        self.0.remove(name)
    }

    /// Adds all entries of another state under a prefix: `lr` becomes `optimizer.lr`.
    pub fn extend_under(&mut self, prefix: &str, other: State) {
        self.0.extend(other.0.into_iter().map(|(name, value)| (join(prefix, &name), value)));
    }

    /// The entries under a prefix, with the prefix removed.
    pub fn under(&self, prefix: &str) -> State {
        let start = join(prefix, "");
        let parts = self.0.iter().filter_map(|(name, value)| Some((name.strip_prefix(&start)?, value)));
        State(parts.map(|(name, value)| (name.to_string(), value.clone())).collect())
    }

    /// The entry of that name.
    pub fn get(&self, name: &str) -> Option<&StateValue> {
        self.0.get(name)
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        match self.0.get(name)? {
            StateValue::Tensor(tensor) => Some(tensor),
            StateValue::Number(_) => None,
        }
    }

    /// The number of that name.
    pub fn number(&self, name: &str) -> Option<Scalar> {
        match self.0.get(name)? {
            StateValue::Tensor(_) => None,
            StateValue::Number(number) => Some(*number),
        }
    }

    /// All entries, in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &StateValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A reader that records mismatches while the entries are read.
    pub fn reader(&self) -> StateReader<'_> {
        StateReader { state: self, read: BTreeSet::new(), missing: Vec::new(), mismatched: Vec::new() }
    }
}

impl IntoIterator for State {
    type Item = (String, StateValue);
    type IntoIter = std::collections::btree_map::IntoIter<String, StateValue>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<(String, StateValue)> for State {
    fn from_iter<I: IntoIterator<Item = (String, StateValue)>>(parts: I) -> State {
        State(parts.into_iter().collect())
    }
}

/// A state on its own, such as one that was gathered from several processes, as a part of a checkpoint.
impl Stateful for State {
    fn state_dict(&self) -> State {
        self.clone()
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        self.clone_from(state);
        Ok(())
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
}

/// Reads a [`State`] entry by entry. [`StateReader::finish`] reports everything that is missing, of
/// another kind, or left over in one error, so that nothing needs to be changed before the whole state
/// is known to fit.
///
/// ```
/// use tensor_core::{State, Stateful, Result};
///
/// struct Counter { steps: u64, scale: f64 }
///
/// impl Stateful for Counter {
///     fn state_dict(&self) -> State {
///         let mut state = State::new();
///         state.insert("steps", self.steps);
///         state.insert("scale", self.scale);
///         state
///     }
///     fn load_state_dict(&mut self, state: &State) -> Result<()> {
///         let mut reader = state.reader();
///         let (steps, scale) = (reader.word("steps"), reader.float("scale"));
///         reader.finish()?;
///         (self.steps, self.scale) = (steps, scale);
///         Ok(())
///     }
/// }
///
/// let mut counter = Counter { steps: 0, scale: 1.0 };
/// let error = counter.load_state_dict(&State::new()).unwrap_err();
/// assert!(error.to_string().contains(r#"missing ["steps", "scale"]"#), "{error}");
/// ```
#[derive(Debug)]
pub struct StateReader<'a> {
    state: &'a State,
    read: BTreeSet<String>,
    missing: Vec<String>,
    mismatched: Vec<String>,
}

impl<'a> StateReader<'a> {
    /// Whether there is an entry of that name.
    pub fn has(&self, name: &str) -> bool {
        self.state.0.contains_key(name)
    }

    /// The floating-point number of that name; 0 if it is missing, which is recorded.
    pub fn float(&mut self, name: &str) -> f64 {
        match self.take(name) {
            Some(StateValue::Number(Scalar::Float(value))) => *value,
            other => self.note(name, other, "a floating-point number").unwrap_or(0.0),
        }
    }

    /// The integer of that name; 0 if it is missing, which is recorded.
    pub fn int(&mut self, name: &str) -> i64 {
        match self.take(name) {
            Some(StateValue::Number(Scalar::Int(value))) => *value,
            other => self.note(name, other, "an integer").unwrap_or(0),
        }
    }

    /// The integer of that name as the `u64` that was stored.
    pub fn word(&mut self, name: &str) -> u64 {
        self.int(name) as u64
    }

    /// The bool of that name; false if it is missing, which is recorded.
    pub fn bool(&mut self, name: &str) -> bool {
        match self.take(name) {
            Some(StateValue::Number(Scalar::Bool(value))) => *value,
            other => self.note(name, other, "true or false").unwrap_or(false),
        }
    }

    /// The tensor of that name if there is one; a shape or dtype other than that of `like` is recorded.
    pub fn tensor_like(&mut self, name: &str, like: &Tensor) -> Option<&'a Tensor> {
        let value = self.take(name)?;
        if let StateValue::Tensor(tensor) = value
            && tensor.shape() == like.shape()
            && tensor.dtype() == like.dtype()
        {
            return Some(tensor);
        }
        self.note::<&Tensor>(name, Some(value), &format!("a tensor {} {}", like.dtype(), like.shape()))
    }

    /// Records a mismatch.
    pub fn mismatch(&mut self, what: String) {
        self.mismatched.push(what);
    }

    fn take(&mut self, name: &str) -> Option<&'a StateValue> {
        self.read.insert(name.to_string());
        self.state.0.get(name)
    }

    fn note<T>(&mut self, name: &str, found: Option<&StateValue>, expected: &str) -> Option<T> {
        match found {
            None => self.missing.push(name.to_string()),
            Some(found) => self.mismatched.push(format!("{name}: {found} where {expected} is expected")),
        }
        None
    }

    /// Finishes reading.
    ///
    /// # Errors
    /// `StateDict` with the missing, the unread and the mismatched entries.
    #[track_caller]
    pub fn finish(self) -> Result<()> {
        let StateReader { state, read, missing, mismatched } = self;
        let unexpected: Vec<String> = state.0.keys().filter(|name| !read.contains(*name)).cloned().collect();
        if missing.is_empty() && unexpected.is_empty() && mismatched.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::StateDict { missing, unexpected, mismatched }))
    }
}

/// A type whose state can be saved and restored, so that training resumes as if it had not stopped:
/// optimizers, schedulers, loaders, generators. (A module's state has its own form, with tensors only.)
pub trait Stateful {
    /// A snapshot of the whole state.
    fn state_dict(&self) -> State;

    /// Restores a state.
    ///
    /// # Errors
    /// `StateDict` for a state that does not fit. Nothing is changed then.
    #[track_caller]
    fn load_state_dict(&mut self, state: &State) -> Result<()>;
}
