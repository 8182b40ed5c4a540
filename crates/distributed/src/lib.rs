//! Distributed training: every rank has a copy of the model and a part of each batch. Ranks are processes
//! that `mpirun` started (feature `mpi`), or threads. docs/scaling.md has the costs.
//!
//! | items | purpose |
//! |---|---|
//! | [`Communicator`], [`ReduceOp`], [`Work`] | sums and copies of tensors over ranks |
//! | [`DistributedDataParallel`] | a model on all ranks: gradients of the whole batch |
//! | [`SyncBatchNorm`] | batch norm over the batch parts of all ranks |
//! | [`ShardedOptimizer`] | an optimizer with sharded state (ZeRO, stage 1) |
//! | [`Transport`] | the transport of messages: MPI (feature `mpi`), threads, or your own |

mod agreement;
mod buckets;
mod communicator;
mod engine;
mod inner;
mod local;
#[cfg(feature = "mpi")]
mod mpi;
mod numbers;
mod parallel;
mod sharded;
mod sync_batch_norm;
mod transport;
mod wire;
mod work;

pub use communicator::{Communicator, Traffic};
pub use parallel::{DistributedConfig, DistributedDataParallel};
pub use sharded::ShardedOptimizer;
pub use sync_batch_norm::SyncBatchNorm;
pub use transport::{Channel, Transport, Words};
pub use wire::ReduceOp;
pub use work::Work;

/// The guide's page, run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/distributed.md")]
mod guide {}

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();
