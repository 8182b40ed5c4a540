//! Ranks that are processes started by `mpirun`, connected by MPI's point-to-point messages. The
//! communication thread makes every call, so that `MPI_THREAD_FUNNELED` is enough. Messages own their
//! buffers: ferrompi's persistent requests leak a buffer that a failed rank may still read, instead of
//! freeing it.

use std::{collections::HashMap, thread, time::Duration};

use ferrompi::{Mpi, PersistentRequest, ThreadLevel};
use tensor_core::{Error, ErrorKind, Result};

use crate::transport::{Channel, Pool, Transport, Words};

type Request = PersistentRequest<u64>;

/// One rank of `MPI_COMM_WORLD`.
pub(crate) struct MpiTransport {
    mpi: Mpi,
    world: ferrompi::Communicator,
    rank: usize,
    size: usize,
    sending: Vec<Request>,
    receiving: HashMap<(usize, Channel), Request>,
    pool: Pool,
}

fn failed(error: &ferrompi::Error) -> Error {
    Error::new(ErrorKind::Distributed {
        op: "distributed",
        ranks: Vec::new(),
        message: format!("MPI reported: {error}"),
    })
}

impl MpiTransport {
    /// Initializes MPI, which a process can do only once, on the thread that makes all further calls.
    pub(crate) fn begin() -> Result<MpiTransport> {
        let mpi = match Mpi::init_thread(ThreadLevel::Funneled) {
            Ok(mpi) => mpi,
            Err(ferrompi::Error::Finalized) => {
                return Err(Error::invalid(
                    "distributed",
                    "MPI ended when the last communicator was dropped, and begins once in a process: keep the communicator for the \
                     whole run",
                ));
            }
            Err(error) => return Err(failed(&error)),
        };
        if mpi.thread_level() < ThreadLevel::Funneled {
            return Err(Error::invalid(
                "distributed",
                "this MPI cannot be called from a thread: it was built without MPI_THREAD_FUNNELED",
            ));
        }
        let world = mpi.world();
        let number = |what: i32| usize::try_from(what).unwrap_or_default();
        let (rank, size) = (number(world.rank()), number(world.size()));
        Ok(MpiTransport {
            mpi,
            world,
            rank,
            size,
            sending: Vec::new(),
            receiving: HashMap::new(),
            pool: Pool::default(),
        })
    }

    /// MPI's ranks are `i32`.
    fn peer(rank: usize) -> Result<i32> {
        i32::try_from(rank).map_err(|_| Error::invalid("distributed", format!("no rank {rank}")))
    }
}

impl Transport for MpiTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn send(&mut self, to: usize, channel: Channel, message: Words) -> Result<()> {
        let begin = || {
            let mut request = self.world.send_init(message, Self::peer(to)?, channel as i32)?;
            request.start()?;
            Ok(request)
        };
        let request = begin().map_err(|error: Problem| error.0)?;
        self.sending.push(request);
        Ok(())
    }

    fn try_receive(&mut self, from: usize, channel: Channel, words: usize) -> Result<Option<Words>> {
        let mut request = match self.receiving.remove(&(from, channel)) {
            Some(request) => request,
            None => {
                let buffer = self.pool.take(words);
                let begin = || {
                    let mut request = self.world.recv_init(buffer, Self::peer(from)?, channel as i32)?;
                    request.start()?;
                    Ok(request)
                };
                begin().map_err(|error: Problem| error.0)?
            }
        };
        match request.test() {
            Ok(None) => {
                self.receiving.insert((from, channel), request);
                Ok(None)
            }
            Ok(Some(status)) => {
                let message = request.into_buffer().map_err(|error| failed(&error))?;
                // A shorter message would fit as well, but does not match the call.
                if status.count.is_some_and(|count| count != words) {
                    let message =
                        format!("rank {from} sent {:?} words where {words} were expected", status.count);
                    return Err(Error::new(ErrorKind::Distributed {
                        op: "distributed",
                        ranks: vec![from],
                        message,
                    }));
                }
                Ok(Some(message))
            }
            Err(error) => Err(failed(&error)),
        }
    }

    fn progress(&mut self) -> Result<bool> {
        let mut k = 0;
        while k < self.sending.len() {
            match self.sending[k].test().map_err(|error| failed(&error))? {
                None => k += 1,
                Some(_) => {
                    let buffer = self.sending.swap_remove(k).into_buffer().map_err(|error| failed(&error))?;
                    self.pool.give(buffer);
                }
            }
        }
        Ok(self.sending.is_empty())
    }

    fn buffer(&mut self, words: usize) -> Words {
        self.pool.take(words)
    }

    fn recycle(&mut self, buffer: Words) {
        self.pool.give(buffer);
    }

    fn ends_together(&self) -> bool {
        true
    }

    /// Calls `MPI_Finalize`, or after a failure `MPI_Abort`, which ends ranks that hang.
    fn close(self: Box<Self>, failure: Option<&str>) {
        let Some(failure) = failure else { return drop(self.mpi) };
        eprintln!("rank {} of {} ends all ranks: {failure}", self.rank, self.size);
        // Time for the other ranks to report their errors.
        thread::sleep(Duration::from_millis(500));
        self.world.abort(1);
    }
}

/// An error of either library, as one type for `?`.
struct Problem(Error);

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem(error)
    }
}

impl From<ferrompi::Error> for Problem {
    fn from(error: ferrompi::Error) -> Problem {
        Problem(failed(&error))
    }
}
