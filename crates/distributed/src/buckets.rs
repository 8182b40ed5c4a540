//! Gradients in buckets: one message for many parameters. The first travel while the last are computed.

use std::{
    panic::resume_unwind,
    sync::mpsc::{self, Receiver},
    thread,
};

use tensor_core::{DType, Device, Error, Result, Tensor, eval_each};

use crate::{Communicator, ReduceOp, work::Work};

/// Which of some tensors go into a message together, in the order in which they are sent.
///
/// The last come first, as a backward pass has their gradients first. A bucket is of one dtype, and one more
/// tensor begins another where it would hold more than `limit` bytes. One that is larger by itself has a
/// bucket of its own.
pub(crate) fn buckets(tensors: &[(usize, DType)], limit: usize) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    // The bucket of each dtype that is being filled, and its bytes.
    let mut open: Vec<(DType, usize, usize)> = Vec::new();
    for (k, &(bytes, dtype)) in tensors.iter().enumerate().rev() {
        match open.iter_mut().find(|(of, ..)| *of == dtype) {
            Some((_, bucket, filled)) if *filled + bytes <= limit => {
                found[*bucket].push(k);
                *filled += bytes;
            }
            Some((_, bucket, filled)) => {
                (*bucket, *filled) = (found.len(), bytes);
                found.push(vec![k]);
            }
            None => {
                open.push((dtype, found.len(), bytes));
                found.push(vec![k]);
            }
        }
    }
    found
}

/// The elements of tensors of one dtype in a row, on a device.
#[track_caller]
pub(crate) fn flat(tensors: &[Tensor], device: &Device) -> Result<Tensor> {
    let rows =
        tensors.iter().map(|tensor| tensor.detach().to(device)?.reshape([-1])).collect::<Result<Vec<_>>>()?;
    match rows.as_slice() {
        [one] => Ok(one.clone()),
        _ => Tensor::concat(&rows, 0),
    }
}

/// Each tensor reduced over all ranks, in buckets: each travels as soon as it is computed, while the next
/// ones are.
///
/// Every rank makes one call for each bucket, whatever happens: for those that it cannot compute it says that
/// it failed, so that all have an error, and can go on.
#[track_caller]
pub(crate) fn all_reduce_all(
    comm: &Communicator,
    tensors: &[Tensor],
    op: ReduceOp,
    limit: usize,
) -> Result<Vec<Tensor>> {
    let sizes: Vec<(usize, DType)> =
        tensors.iter().map(|t| (t.numel() * t.dtype().size(), t.dtype())).collect();
    let buckets = buckets(&sizes, limit);
    let members: Vec<Vec<Tensor>> =
        buckets.iter().map(|bucket| bucket.iter().map(|&k| tensors[k].clone()).collect()).collect();
    let rows = members.iter().map(|members| flat(members, &members[0].device())).collect::<Result<Vec<_>>>();
    let works = match rows {
        Ok(rows) => start_each(comm, &rows, op)?,
        Err(error) => {
            buckets.iter().for_each(|_| abandon(comm));
            return Err(error);
        }
    };
    let mut found: Vec<Option<Tensor>> = vec![None; tensors.len()];
    for ((bucket, members), work) in buckets.iter().zip(&members).zip(works) {
        let parts = work.wait_for_parts(members)?;
        for (&k, part) in bucket.iter().zip(parts) {
            found[k] = Some(part);
        }
    }
    let missed = || Error::invalid("distributed", "a tensor was in no bucket");
    found.into_iter().map(|part| part.ok_or_else(missed)).collect()
}

/// Computes rows and reduces them over all ranks. One plan computes all of them: evaluated one after the
/// other, each would compute again what it has in common with those before it. Its kernels come in the order
/// of the rows, and another thread reads a row and starts its call while this one goes on.
#[track_caller]
fn start_each(comm: &Communicator, rows: &[Tensor], op: ReduceOp) -> Result<Vec<Work>> {
    let (tell, told) = mpsc::channel();
    let evaluate = move || {
        // Ends with it, whether it is done, fails or is unwound: then who listens knows that no more rows
        // come.
        let tell = tell;
        eval_each(&rows.iter().collect::<Vec<_>>(), &|row| {
            // Nobody listens where the thread that reads has panicked.
            let _ = tell.send(row);
        })
    };
    let send = |told: Receiver<usize>| -> Vec<Result<Work>> {
        let start = |row: &Tensor| {
            // The rows come in order. One that does not come was not computed.
            let work = match told.recv() {
                Ok(_) => comm.start_all_reduce(row, op),
                Err(_) => Err(Error::invalid("DistributedDataParallel", "a bucket was not computed")),
            };
            if work.is_err() {
                abandon(comm);
            }
            work
        };
        rows.iter().map(start).collect()
    };
    let done = thread::scope(|scope| {
        let name = || thread::Builder::new().name("taper-buckets".into());
        let (computed, works) = match rows {
            // Nothing travels before all is computed.
            [] | [_] => {
                let computed = evaluate();
                (computed, send(told))
            }
            _ => {
                let sender = name().spawn_scoped(scope, || send(told));
                let computed = evaluate();
                match sender {
                    Ok(sender) => (computed, sender.join().unwrap_or_else(|panic| resume_unwind(panic))),
                    Err(error) => {
                        rows.iter().for_each(|_| abandon(comm));
                        let message = format!("no thread to send gradients: {error}");
                        return Err(Error::invalid("DistributedDataParallel", message));
                    }
                }
            }
        };
        // What this rank failed with, not that it failed.
        computed?;
        works.into_iter().collect()
    });
    Error::here_in(done)
}

/// Tells the others that this rank cannot make the next call.
fn abandon(comm: &Communicator) {
    // They hear of it now. Whether they come is not this rank's failure.
    let _ = comm.abandon();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_filled_from_the_end() {
        let f32s =
            |sizes: &[usize]| -> Vec<(usize, DType)> { sizes.iter().map(|&n| (n, DType::F32)).collect() };
        assert_eq!(buckets(&f32s(&[10, 10, 10]), 20), [vec![2, 1], vec![0]]);
        assert_eq!(buckets(&f32s(&[10, 50, 10]), 20), [vec![2], vec![1], vec![0]]);
        assert_eq!(buckets(&f32s(&[]), 20), Vec::<Vec<usize>>::new());
        let mixed = [(8, DType::F32), (4, DType::F16), (8, DType::F32), (4, DType::F16)];
        assert_eq!(buckets(&mixed, 8), [vec![3, 1], vec![2], vec![0]]);
        assert_eq!(buckets(&mixed, 0).len(), 4);
    }
}
