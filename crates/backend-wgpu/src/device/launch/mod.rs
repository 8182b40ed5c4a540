//! The work of an open device on kernels. Each file adds functions to the device.
//!
//! | file | contents |
//! |---|---|
//! | `pipeline` | pipelines from the texts of dispatches |
//! | `record` | launches as commands of a batch, and submissions |
//! | `read_back` | reads of buffers |
//! | `timing` | the times of kernels |
//! | `trace` | reports of traced kernels |

pub(crate) mod pipeline;
pub(crate) mod read_back;
pub(crate) mod record;
pub(crate) mod timing;
pub(crate) mod trace;
