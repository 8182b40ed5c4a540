//! Data for TensorBoard's hyperparameter plugin: the names of the hyperparameters, their values in this run,
//! and the end of the run.

use inspect::Message;

use super::plugin;

/// A hyperparameter of a run, converted from numbers, booleans and strings by `into`.
#[derive(Clone, Debug, PartialEq)]
pub enum HyperParameter {
    /// A number.
    Number(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    Text(String),
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl From<$t> for HyperParameter {
            fn from(value: $t) -> HyperParameter { HyperParameter::Number(f64::from(value)) }
        }
    )*};
}
number!(f32, f64, i32, u32, u8);
impl From<usize> for HyperParameter {
    fn from(value: usize) -> HyperParameter {
        HyperParameter::Number(value as f64)
    }
}
impl From<bool> for HyperParameter {
    fn from(value: bool) -> HyperParameter {
        HyperParameter::Bool(value)
    }
}
impl From<&str> for HyperParameter {
    fn from(value: &str) -> HyperParameter {
        HyperParameter::Text(value.into())
    }
}
impl From<String> for HyperParameter {
    fn from(value: String) -> HyperParameter {
        HyperParameter::Text(value)
    }
}

impl HyperParameter {
    /// The number of the type in `DataType` of `hparams/api.proto`.
    fn kind(&self) -> i64 {
        match self {
            HyperParameter::Text(_) => 1,
            HyperParameter::Bool(_) => 2,
            HyperParameter::Number(_) => 3,
        }
    }

    /// The value as a `google.protobuf.Value`.
    fn value(&self) -> Message {
        match self {
            HyperParameter::Number(value) => Message::default().double(2, *value),
            HyperParameter::Text(value) => Message::default().string(3, value),
            HyperParameter::Bool(value) => Message::default().int(4, i64::from(*value)),
        }
    }
}

/// The three summaries that the plugin reads.
pub(super) fn summaries(
    settings: &[(&str, HyperParameter)],
    metrics: &[(&str, f64)],
    now: f64,
) -> [Message; 3] {
    let mut experiment = Message::default().double(3, now);
    for (name, value) in settings {
        experiment = experiment.message(4, Message::default().string(1, name).int(4, value.kind()));
    }
    for (tag, _) in metrics {
        experiment = experiment.message(5, Message::default().message(1, Message::default().string(2, tag)));
    }
    let mut start = Message::default().double(5, now);
    for (name, value) in settings {
        start = start.message(1, Message::default().string(1, name).message(2, value.value()));
    }
    // STATUS_SUCCESS.
    let end = Message::default().int(1, 1).double(2, now);
    [("experiment", 2, experiment), ("session_start_info", 3, start), ("session_end_info", 4, end)].map(
        |(name, field, message)| {
            let content = Message::default().message(field, message).finish();
            Message::default().string(1, &format!("_hparams_/{name}")).message(9, plugin("hparams", &content))
        },
    )
}
