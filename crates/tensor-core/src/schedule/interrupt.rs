//! A question between kernels: whether a long evaluation is to end, as after Ctrl-C in an interpreter that
//! calls Taper.

use std::sync::OnceLock;

use crate::base::error::Result;

static QUESTION: OnceLock<fn() -> Result<()>> = OnceLock::new();

/// From now on each evaluation asks `question` before each of its kernels, on the thread that evaluates, and
/// ends with its error. Values that were computed until then are kept, as after any other failure, and the
/// tensors can be read again. The function should be cheap, and must not use tensors. The first call counts.
pub fn ask_before_kernels(question: fn() -> Result<()>) {
    QUESTION.get_or_init(|| question);
}

/// The answer; without a question, that the evaluation goes on.
pub(super) fn goes_on() -> Result<()> {
    QUESTION.get().map_or(Ok(()), |question| question())
}
