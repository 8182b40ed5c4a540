//! [`Communicator`]: collectives on tensors of any device, and the creation of ranks.

use std::{
    env, fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tensor_core::{DType, Device, Error, Location, Result, Shape, Tensor, lock};

use crate::{
    engine::{Answer, Counters, Engine, Job, Task, words_of},
    inner::Inner,
    local::Local,
    numbers,
    transport::{Transport, Words},
    wire::{Call, Kind, ReduceOp},
    work::{State, Work, answered, ended, tensor_of},
};

/// The default time that a call waits for the other ranks.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A group of processes or threads that work together, from the point of view of one of them.
/// `torch.distributed`'s process group.
///
/// ```
/// use distributed::{Communicator, ReduceOp};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// // Under mpirun (feature `mpi`) the ranks are its processes; any other program is a world of one.
/// let comm = Communicator::world()?;
/// let x = Tensor::full([2], comm.rank() as f32 + 1.0, &backend_cpu::cpu())?;
/// let sum = comm.all_reduce(&x, ReduceOp::Sum)?;
/// let n = comm.size() as f32;
/// assert_eq!(sum.to_vec::<f32>()?, [n * (n + 1.0) / 2.0; 2]);
/// # Ok(()) }
/// ```
///
/// Every rank must make the same collective calls in the same order. Before data is sent the ranks compare
/// their calls: if ranks call something else, or with another shape or dtype, every rank gets an error that
/// names them, nothing is sent, and the communicator remains usable. A rank that does not join a call within
/// [`Communicator::set_timeout`] (10 minutes), or that has ended, is named as well, but then the
/// communicator is unusable: later calls return the same error, and under MPI dropping the last handle ends
/// all ranks.
///
/// Sums are taken in the order of the ranks: for a given world size the bits are the same on each rank and
/// in each run. Half types are added in f32 and rounded once.
///
/// A thread of the communicator performs the calls. [`Communicator::start_all_reduce`] returns while it does
/// so.
///
/// | call on B bytes, with n ranks | bytes that a rank sends | exchanges after the header |
/// |---|---|---|
/// | [`all_reduce`](Communicator::all_reduce), above 8 KiB | 2 B (n − 1) / n | 2 |
/// | [`all_reduce`](Communicator::all_reduce), up to 8 KiB | B (n − 1) | 1 |
/// | [`reduce_scatter`](Communicator::reduce_scatter) | B (n − 1) / n | 1 |
/// | [`all_gather`](Communicator::all_gather) | B (n − 1) | 1 |
/// | [`broadcast`](Communicator::broadcast) | at most B log₂ n, B (n − 1) by all | log₂ n |
/// | [`barrier`](Communicator::barrier) | 0 | 0 |
///
/// The header has 128 bytes for each other rank. Clones are handles to the same communicator.
#[derive(Clone)]
pub struct Communicator(Arc<Inner>);

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {})", self.rank(), self.size())
    }
}

/// The amount of data that a rank has sent. See [`Communicator::traffic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The bytes of all messages, including headers.
    pub bytes: u64,
    /// The number of messages.
    pub messages: u64,
    /// The number of collective calls.
    pub collectives: u64,
}

/// Environment variables with the number of processes, set by launchers: Open MPI, MPICH and Intel MPI,
/// Slurm.
const LAUNCHERS: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];

/// Environment variables with the rank of a process on its machine, set by launchers.
const LOCAL_RANKS: [&str; 3] = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/// The number of processes that a launcher started, if one did.
fn launched() -> Option<usize> {
    LAUNCHERS.iter().find_map(|name| env::var(name).ok()?.trim().parse().ok())
}

impl Communicator {
    /// The world of the processes that `mpirun` started, or a world of one without `mpirun`.
    ///
    /// MPI is initialized by the first call and finalized when the last handle is dropped. While a handle
    /// exists, further calls return handles to the same world.
    ///
    /// # Errors
    /// Several processes of a program that was built without the feature `mpi`, which would each train
    /// alone; or the errors of MPI.
    #[track_caller]
    pub fn world() -> Result<Communicator> {
        match launched() {
            Some(size) if size > 1 || cfg!(feature = "mpi") => Communicator::launched(size),
            Some(_) | None => Ok(Communicator::solo()),
        }
    }

    #[cfg(not(feature = "mpi"))]
    #[track_caller]
    fn launched(size: usize) -> Result<Communicator> {
        Err(Error::invalid(
            "distributed",
            format!(
                "a launcher started {size} processes, and this program was built without MPI: install it (on Debian and Ubuntu \
                 apt-get install libopenmpi-dev openmpi-bin) and build with the feature mpi (cargo build --features mpi)"
            ),
        ))
    }

    #[cfg(feature = "mpi")]
    #[track_caller]
    fn launched(_: usize) -> Result<Communicator> {
        use std::sync::Weak;
        static WORLD: Mutex<Weak<Inner>> = Mutex::new(Weak::new());
        let mut world = lock(&WORLD);
        if let Some(inner) = world.upgrade() {
            return Ok(Communicator(inner));
        }
        let begin = || crate::mpi::MpiTransport::begin().map(|mpi| Box::new(mpi) as Box<dyn Transport>);
        let comm = Communicator::over(begin)?;
        *world = Arc::downgrade(&comm.0);
        Ok(comm)
    }

    /// A world of this process only.
    pub fn solo() -> Communicator {
        Communicator::new(0, 1, None, None, Arc::default(), Arc::default())
    }

    /// A world of `size` ranks in this process, one for each of its threads. It serves to test programs for
    /// several machines on one.
    ///
    /// ```
    /// use std::thread;
    /// use distributed::{Communicator, ReduceOp};
    /// use tensor_core::Tensor;
    /// # fn main() -> tensor_core::Result<()> {
    /// let ranks = Communicator::threads(3)?;
    /// let work = |comm: Communicator| -> tensor_core::Result<f32> {
    ///     let x = Tensor::full((), comm.rank() as f32, &backend_cpu::cpu())?;
    ///     comm.all_reduce(&x, ReduceOp::Max)?.item()
    /// };
    /// let greatest = thread::scope(|scope| {
    ///     let threads: Vec<_> = ranks.into_iter().map(|comm| scope.spawn(move || work(comm))).collect();
    ///     threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Result<Vec<f32>, _>>()
    /// })?;
    /// assert_eq!(greatest, [2.0; 3]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// No ranks, or too many threads for the system.
    #[track_caller]
    pub fn threads(size: usize) -> Result<Vec<Communicator>> {
        if size == 0 {
            return Err(Error::invalid("distributed", "a world of no ranks: give at least one"));
        }
        let ranks = Local::group(size).into_iter();
        ranks.map(|local| Communicator::over(move || Ok(Box::new(local) as Box<dyn Transport>))).collect()
    }

    /// A communicator over any transport. `begin` is called on the communication thread, which makes all
    /// calls of the transport.
    ///
    /// # Errors
    /// The errors of `begin`, or a thread that cannot be started.
    #[track_caller]
    pub fn over(begin: impl FnOnce() -> Result<Box<dyn Transport>> + Send + 'static) -> Result<Communicator> {
        let (jobs, waiting) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let (timeout, counters) = (Arc::<AtomicU64>::default(), Arc::<Counters>::default());
        let (of_thread, counted) = (timeout.clone(), counters.clone());
        let run = move || match begin() {
            Ok(transport) => {
                let _ = tell.send(Ok((transport.rank(), transport.size())));
                Engine::new(transport, of_thread, counted).run(&waiting);
            }
            Err(error) => {
                let _ = tell.send(Err(error));
            }
        };
        let thread = thread::Builder::new().name("taper-communicator".into()).spawn(run);
        let thread = thread
            .map_err(|error| Error::invalid("distributed", format!("no thread to communicate: {error}")))?;
        let (rank, size) = told.recv().map_err(|_| ended())??;
        Ok(Communicator::new(rank, size, Some(jobs), Some(thread), timeout, counters))
    }

    fn new(
        rank: usize,
        size: usize,
        jobs: Option<Sender<Job>>,
        thread: Option<JoinHandle<()>>,
        timeout: Arc<AtomicU64>,
        counters: Arc<Counters>,
    ) -> Communicator {
        let (jobs, thread) = (Mutex::new(jobs), Mutex::new(thread));
        let comm = Communicator(Arc::new(Inner {
            rank,
            size,
            jobs,
            thread,
            timeout,
            counters,
            staging: Mutex::default(),
        }));
        comm.set_timeout(TIMEOUT);
        comm
    }

    /// The number of this process, from 0 on. `torch.distributed.get_rank()`.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// The number of ranks. `torch.distributed.get_world_size()`.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// The number of this process among those on its machine, as set by the launcher (Open MPI, MPICH, Intel
    /// MPI, Slurm), for the choice of a GPU: `taper::device(&format!("wgpu:{}", comm.local_rank()))`.
    /// Without a launcher's variable, all ranks are assumed to be on one machine.
    pub fn local_rank(&self) -> usize {
        let told = LOCAL_RANKS.iter().find_map(|name| env::var(name).ok()?.trim().parse().ok());
        // Threads of one process share its environment.
        told.filter(|_| launched() == Some(self.size())).unwrap_or(self.rank())
    }

    /// Sets how long a call waits for the other ranks before it fails and names the missing ones; 10 minutes
    /// by default. It must be longer than a rank computes between two calls.
    pub fn set_timeout(&self, timeout: Duration) {
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.0.timeout.store(millis, Ordering::Relaxed);
    }

    /// The amount of data that this rank has sent so far.
    pub fn traffic(&self) -> Traffic {
        let Counters { bytes, messages, collectives } = &*self.0.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic { bytes: read(bytes), messages: read(messages), collectives: read(collectives) }
    }

    /// Reduces the tensors of all ranks to their sum, mean, minimum or maximum, on each rank. The result is
    /// on the tensor's device and has no gradient. `torch.distributed.all_reduce`.
    ///
    /// # Errors
    /// A reduction that the dtype does not support (the mean of integers, the sum of bools), ranks that
    /// differ in shape or dtype, are missing or have ended, or an error of the device.
    #[track_caller]
    pub fn all_reduce(&self, tensor: &Tensor, op: ReduceOp) -> Result<Tensor> {
        self.start_all_reduce(tensor, op)?.wait()
    }

    /// Reads the tensor, and then returns while the ranks communicate.
    /// `torch.distributed.all_reduce(async_op=True)`.
    ///
    /// # Errors
    /// A reduction that the dtype does not support, or an error of the device. [`Work::wait`] reports
    /// failures of other ranks.
    #[track_caller]
    pub fn start_all_reduce(&self, tensor: &Tensor, op: ReduceOp) -> Result<Work> {
        checked("all_reduce", op, tensor)?;
        if self.size() == 1 {
            return Ok(self.done(tensor));
        }
        let call = Call::new(Kind::AllReduce(op), tensor.dtype(), tensor.dims());
        self.start(call, tensor, tensor.shape().clone())
    }

    /// Reduces the tensors of all ranks, and returns a part to each rank: `dims[0] / size` rows, the first
    /// ones on rank 0. `torch.distributed.reduce_scatter_tensor`.
    ///
    /// # Errors
    /// A first axis that the number of ranks does not divide, and the errors of
    /// [`Communicator::all_reduce`].
    #[track_caller]
    pub fn reduce_scatter(&self, tensor: &Tensor, op: ReduceOp) -> Result<Tensor> {
        const OP: &str = "reduce_scatter";
        checked(OP, op, tensor)?;
        let rows = match tensor.dims() {
            [rows, ..] if rows % self.size() == 0 => rows / self.size(),
            _ => {
                let message = format!(
                    "the first axis of {} does not split into {} equal parts, one for each rank: pad it",
                    tensor.shape(),
                    self.size()
                );
                return Err(Error::invalid(OP, message));
            }
        };
        if self.size() == 1 {
            return self.done(tensor).wait();
        }
        let call = Call::new(Kind::ReduceScatter(op), tensor.dtype(), tensor.dims());
        let shape = [rows].iter().chain(&tensor.dims()[1..]).copied().collect();
        self.start(call, tensor, shape)?.wait()
    }

    /// The tensors of all ranks, in order, on each rank. They must have one shape.
    /// `torch.distributed.all_gather`.
    ///
    /// # Errors
    /// The errors of [`Communicator::all_reduce`], except those of reductions.
    #[track_caller]
    pub fn all_gather(&self, tensor: &Tensor) -> Result<Vec<Tensor>> {
        if self.size() == 1 {
            return Ok(vec![self.done(tensor).wait()?]);
        }
        let call = Call::new(Kind::AllGather, tensor.dtype(), tensor.dims());
        let shape: Shape = [self.size()].iter().chain(tensor.dims()).copied().collect();
        let all = self.start(call, tensor, shape)?.wait()?;
        (0..self.size()).map(|rank| all.select(0, rank)).collect()
    }

    /// As [`Communicator::broadcast`], but returns while the ranks communicate.
    #[track_caller]
    pub(crate) fn start_broadcast(&self, tensor: &Tensor, root: usize) -> Result<Work> {
        self.is_rank("broadcast", root)?;
        if self.size() == 1 {
            return Ok(self.done(tensor));
        }
        let call = Call::new(Kind::Broadcast { root }, tensor.dtype(), tensor.dims());
        self.start(call, tensor, tensor.shape().clone())
    }

    /// The tensor of rank `root`, on each rank. The other ranks pass a tensor of its shape and dtype, whose
    /// values are ignored, and whose device the result is on. `torch.distributed.broadcast`.
    ///
    /// # Errors
    /// A `root` that is no rank, and the errors of [`Communicator::all_reduce`], except those of reductions.
    #[track_caller]
    pub fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<Tensor> {
        self.start_broadcast(tensor, root)?.wait()
    }

    /// Returns when every rank has called it. `torch.distributed.barrier`.
    ///
    /// # Errors
    /// Ranks that are missing, have ended, or call something else.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        if self.size() == 1 {
            return Ok(());
        }
        self.ask(Task::Collective(Call::bare(Kind::Barrier)), Words::new()).map(drop)
    }

    /// Sends a tensor to another rank, which gets it by [`Communicator::receive`]. Returns when the tensor
    /// has been read, without waiting for the other rank. `torch.distributed.isend`.
    ///
    /// # Errors
    /// An invalid rank, or this one; a tensor of more than 11 axes, or an error of the device.
    #[track_caller]
    pub fn send(&self, tensor: &Tensor, to: usize) -> Result<()> {
        self.is_other("send", to)?;
        let call = Call::new(Kind::Send, tensor.dtype(), tensor.dims());
        if call.shape != tensor.dims() {
            let message = format!("a tensor of {} axes; reshape it to 11 at most", tensor.rank());
            return Err(Error::invalid("send", message));
        }
        let data = self.staged(tensor)?;
        self.ask(Task::SendTo(to, call), data).map(drop)
    }

    /// The next tensor that rank `from` sends to this one, on `device`. `torch.distributed.recv`.
    ///
    /// # Errors
    /// An invalid rank, or this one; a rank that sends nothing in time or has ended; a dtype that the device
    /// lacks, or too little memory.
    #[track_caller]
    pub fn receive(&self, from: usize, device: &Device) -> Result<Tensor> {
        self.is_other("receive", from)?;
        let Answer { call, data } = self.ask(Task::ReceiveFrom(from), Words::new())?;
        let tensor =
            tensor_of(bytemuck::cast_slice(&data), call.dtype, &call.shape.iter().copied().collect(), device);
        self.0.keep(data);
        tensor
    }

    /// Byte strings of any length from each rank, in order.
    #[track_caller]
    pub(crate) fn all_gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let gather = |data: Words| -> Result<Words> {
            let call = Call::new(Kind::AllGather, DType::I64, &[data.len()]);
            self.ask(Task::Collective(call), data).map(|answer| answer.data)
        };
        let lengths = gather(vec![own.len() as u64])?;
        let longest = words_of(lengths.iter().copied().max().unwrap_or_default() as usize);
        if longest == 0 {
            return Ok(vec![Vec::new(); self.size()]);
        }
        let mut padded = vec![0u64; longest];
        bytemuck::cast_slice_mut::<u64, u8>(&mut padded)[..own.len()].copy_from_slice(own);
        let all = gather(padded)?;
        let texts = all.chunks(longest).zip(&lengths);
        Ok(texts
            .map(|(words, &len)| bytemuck::cast_slice::<u64, u8>(words)[..len as usize].to_vec())
            .collect())
    }

    /// Replaces the next collective call on a rank that failed before it: the others get an error that names
    /// this rank immediately, without a timeout, and all can continue.
    ///
    /// # Errors
    /// Ranks that are missing or have ended. It is no error that the others make a call.
    #[track_caller]
    pub fn abandon(&self) -> Result<()> {
        if self.size() == 1 {
            return Ok(());
        }
        self.ask(Task::Collective(Call::bare(Kind::Abandon)), Words::new()).map(drop)
    }

    #[track_caller]
    fn is_rank(&self, op: &'static str, rank: usize) -> Result<()> {
        if rank < self.size() {
            return Ok(());
        }
        let message = format!("no rank {rank}: there are {}, from 0 to {}", self.size(), self.size() - 1);
        Err(Error::invalid(op, message))
    }

    #[track_caller]
    fn is_other(&self, op: &'static str, rank: usize) -> Result<()> {
        self.is_rank(op, rank)?;
        if rank != self.rank() {
            return Ok(());
        }
        Err(Error::invalid(op, format!("rank {rank} is this one: give another")))
    }

    /// The elements of a tensor in a reusable buffer.
    #[track_caller]
    fn staged(&self, tensor: &Tensor) -> Result<Words> {
        let bytes = tensor.numel() * tensor.dtype().size();
        let mut data = lock(&self.0.staging).take(words_of(bytes));
        tensor.detach().read_bytes_into(&mut bytemuck::cast_slice_mut(&mut data)[..bytes])?;
        Ok(data)
    }

    #[track_caller]
    fn start(&self, call: Call, tensor: &Tensor, shape: Shape) -> Result<Work> {
        let data = self.staged(tensor)?;
        let answer = self.submit(Task::Collective(call), data)?;
        let (dtype, device) = (tensor.dtype(), tensor.device());
        Ok(Work { inner: Arc::clone(&self.0), state: State::Waiting { answer, shape, dtype, device } })
    }

    /// The result in a world of one: the tensor itself.
    fn done(&self, tensor: &Tensor) -> Work {
        Work { inner: Arc::clone(&self.0), state: State::Done(tensor.detach()) }
    }

    #[track_caller]
    fn submit(&self, task: Task, data: Words) -> Result<Receiver<Result<Answer>>> {
        let location = Location::caller();
        let (reply, answer) = mpsc::channel();
        let jobs = lock(&self.0.jobs);
        let job = Job { task, data, reply, location };
        if jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok()) { Ok(answer) } else { Err(ended()) }
    }

    #[track_caller]
    fn ask(&self, task: Task, data: Words) -> Result<Answer> {
        let answer = self.submit(task, data)?;
        answered(&answer)
    }
}

#[track_caller]
fn checked(name: &'static str, op: ReduceOp, tensor: &Tensor) -> Result<()> {
    match numbers::misfit(op, tensor.dtype()) {
        Some(message) => Err(Error::invalid(name, message)),
        None => Ok(()),
    }
}
