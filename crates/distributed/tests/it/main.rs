//! Worlds whose ranks are threads of this process.
#![allow(clippy::unwrap_used, clippy::panic)] // tests

mod checks;
mod faults;
mod overlap;
mod restart;

use std::thread;

use distributed::Communicator;
use tensor_core::Result;

/// Calls `f` on each rank of a world of threads, and returns the results in the order of the ranks. Panics
/// propagate.
pub(crate) fn on_ranks<R: Send>(size: usize, f: impl Fn(Communicator) -> R + Sync) -> Vec<R> {
    let ranks = Communicator::threads(size).unwrap();
    thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|comm| scope.spawn(|| f(comm))).collect();
        let joined: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        joined.into_iter().map(|r| r.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn all_checks(size: usize) {
    for (rank, result) in on_ranks(size, |comm| checks::run(&comm, |_| ())).into_iter().enumerate() {
        result.unwrap_or_else(|error| panic!("rank {rank}: {error}"));
    }
}

#[test]
fn a_world_of_one_needs_nothing() -> Result<()> {
    checks::run(&Communicator::solo(), |_| ())
}

#[test]
fn one_rank_in_a_thread() {
    all_checks(1);
}

#[test]
fn two_ranks() {
    all_checks(2);
}

#[test]
fn three_ranks() {
    all_checks(3);
}

#[test]
fn four_ranks() {
    all_checks(4);
}

#[test]
fn elements_are_read_into_memory_of_the_caller_s() -> Result<()> {
    let rows = tensor_core::Tensor::from_slice(&[1i32, 2, 3, 4], [2, 2], &backend_cpu::cpu())?;
    let mut room = [7i32; 4];
    rows.t()?.read_bytes_into(bytemuck::cast_slice_mut(&mut room))?;
    assert_eq!(room, [1, 3, 2, 4]);
    let error = rows.read_bytes_into(&mut [0; 5]).unwrap_err().to_string();
    assert!(error.contains("i32 [2, 2] are 16 bytes, and there is room for 5"), "{error}");
    Ok(())
}
