//! Gradients in buckets: one message for many parameters. The first buckets are sent while the last are
//! computed.

use std::{
    panic::resume_unwind,
    sync::mpsc::{self, Receiver},
    thread,
};

use tensor_core::{DType, Device, Error, Result, Tensor, eval_each};

use crate::{Communicator, ReduceOp, work::Work};

/// Groups tensors into messages; the result has the indices of each message, in the order of sending.
///
/// The last tensors come first, because a backward pass computes their gradients first. A bucket has one
/// dtype, and a tensor that would make it exceed `limit` bytes begins another one. A tensor that is larger
/// has a separate bucket.
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

/// The concatenated elements of tensors of one dtype, on a device.
#[track_caller]
pub(crate) fn flat(tensors: &[Tensor], device: &Device) -> Result<Tensor> {
    let rows =
        tensors.iter().map(|tensor| tensor.detach().to(device)?.reshape([-1])).collect::<Result<Vec<_>>>()?;
    match rows.as_slice() {
        [one] => Ok(one.clone()),
        _ => Tensor::concat(&rows, 0),
    }
}

/// Reduces each tensor over all ranks, in buckets: each bucket is sent as soon as it is computed, while the
/// next ones are computed.
///
/// Every rank makes one call for each bucket, whatever happens: for buckets that it cannot compute it
/// reports a failure, so that all ranks get an error, and can continue.
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

/// Computes rows and reduces them over all ranks. A single plan computes all rows: evaluated separately,
/// each would compute shared inputs again. Its kernels run in the order of the rows, and another thread
/// reads each row and starts its call while the plan continues.
#[track_caller]
fn start_each(comm: &Communicator, rows: &[Tensor], op: ReduceOp) -> Result<Vec<Work>> {
    let (tell, told) = mpsc::channel();
    let evaluate = move || {
        // Dropped when the evaluation ends, fails or panics, which tells the receiver that no more rows
        // follow.
        let tell = tell;
        eval_each(&rows.iter().collect::<Vec<_>>(), &|row| {
            // The receiver is gone if its thread has panicked.
            let _ = tell.send(row);
        })
    };
    let send = |told: Receiver<usize>| -> Vec<Result<Work>> {
        let start = |row: &Tensor| {
            // The rows arrive in order. A row that does not arrive was not computed.
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
            // Nothing is sent before everything is computed.
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
        // Reports the cause on this rank, instead of the fact that it failed.
        computed?;
        works.into_iter().collect()
    });
    Error::here_in(done)
}

/// Tells the other ranks that this one cannot make the next call.
fn abandon(comm: &Communicator) {
    // This informs the other ranks immediately. Their absence is not an error of this rank.
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
