//! Training on many machines: every rank has one model and a part of each batch. Ranks are processes that
//! `mpirun` started (feature `mpi`), or threads. What it costs: docs/scaling.md.
//!
//! | look for | in |
//! |---|---|
//! | [`Communicator`], [`ReduceOp`], [`Work`] | sums and copies of tensors over ranks |
//! | [`DistributedDataParallel`] | one model on all ranks: gradients of the whole batch |
//! | [`SyncBatchNorm`] | batch norm over the parts of all ranks |
//! | [`ShardedOptimizer`] | an optimizer whose state is shared out (ZeRO, stage 1) |
//! | [`Transport`] | how messages travel: MPI (feature `mpi`), threads, or one of your own |

mod agreement;
mod buckets;
mod communicator;
mod engine;
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

/// The guide's page, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/distributed.md")]
mod guide {}

/// The root of these sources, for `taper`: errors name no line in them.
#[doc(hidden)]
pub const ROOT: &str = file!();
