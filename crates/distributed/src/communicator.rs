//! [`Communicator`]: collectives on tensors of any device, and where ranks come from.

use std::{
    env, fmt,
    panic::Location,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tensor_core::{DType, Device, Error, Result, Shape, Tensor};

use crate::{
    engine::{Answer, Counters, Engine, Job, Task, words_of},
    local::Local,
    numbers,
    transport::{Pool, Transport, Words},
    wire::{Call, Kind, ReduceOp},
    work::{State, Work, answered, tensor_of},
};

/// How long a call waits for the other ranks unless something else is set.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Processes, or threads, that work together, as one of them sees them. `torch.distributed`'s process group.
///
/// ```
/// use distributed::{Communicator, ReduceOp};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// // Under mpirun (feature `mpi`) the ranks are its processes; a program that is started by itself is a world of one.
/// let comm = Communicator::world()?;
/// let x = Tensor::full([2], comm.rank() as f32 + 1.0, &backend_cpu::cpu())?;
/// let sum = comm.all_reduce(&x, ReduceOp::Sum)?;
/// let n = comm.size() as f32;
/// assert_eq!(sum.to_vec::<f32>()?, [n * (n + 1.0) / 2.0; 2]);
/// # Ok(()) }
/// ```
///
/// Every rank makes the same collective calls in the same order. Before data is sent the ranks tell each
/// other what they call: those that call something else, with another shape or another dtype, are named in an
/// error of every rank, nothing is sent, and the communicator can be used on. A rank that does not come
/// within [`Communicator::set_timeout`] (10 minutes), or that has gone, is named as well, and then the
/// communicator is done with: later calls give the same error, and under MPI the last handle that is dropped
/// ends all ranks.
///
/// Sums are taken in the order of the ranks: a world size gives one set of bits, the same on each rank and in
/// each run. Half types are added in f32 and rounded once.
///
/// A call is performed by a thread of the communicator's own. [`Communicator::start_all_reduce`] returns
/// while it does so.
///
/// | call on B bytes, with n ranks | bytes that a rank sends | exchanges after the header's |
/// |---|---|---|
/// | [`all_reduce`](Communicator::all_reduce), above 8 KiB | 2 B (n − 1) / n | 2 |
/// | [`all_reduce`](Communicator::all_reduce), up to 8 KiB | B (n − 1) | 1 |
/// | [`reduce_scatter`](Communicator::reduce_scatter) | B (n − 1) / n | 1 |
/// | [`all_gather`](Communicator::all_gather) | B (n − 1) | 1 |
/// | [`broadcast`](Communicator::broadcast) | at most B log₂ n, B (n − 1) by all | log₂ n |
/// | [`barrier`](Communicator::barrier) | 0 | 0 |
///
/// The header is 128 bytes to each other rank. Clones are handles on the same communicator.
#[derive(Clone)]
pub struct Communicator(Arc<Inner>);

struct Inner {
    rank: usize,
    size: usize,
    /// To the thread that communicates; none in a world of one.
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    timeout: Arc<AtomicU64>,
    counters: Arc<Counters>,
    /// Buffers between tensors and messages.
    staging: Mutex<Pool>,
}

impl Drop for Inner {
    /// Waits until all is sent, and under MPI until the other ranks end as well.
    fn drop(&mut self) {
        drop(lock(&self.jobs).take());
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {})", self.rank(), self.size())
    }
}

/// What a rank has sent so far. See [`Communicator::traffic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of all messages, headers included.
    pub bytes: u64,
    /// Messages.
    pub messages: u64,
    /// Collective calls.
    pub collectives: u64,
}

/// Variables that a launcher gives its processes, with the number of them: Open MPI, MPICH and Intel MPI,
/// Slurm.
const LAUNCHERS: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];

/// Variables that a launcher gives its processes, with their number on the machine.
const LOCAL_RANKS: [&str; 3] = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/// How many processes a launcher started with this one, if one did.
fn launched() -> Option<usize> {
    LAUNCHERS.iter().find_map(|name| env::var(name).ok()?.trim().parse().ok())
}

impl Communicator {
    /// The processes that `mpirun` started, or a world of one where none did.
    ///
    /// MPI begins with the first call and ends when the last handle is dropped. While there is a handle, each
    /// call gives one on the same world.
    ///
    /// # Errors
    /// Several processes of a program that was built without the feature `mpi`, which would each train alone;
    /// or what MPI reports.
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

    /// A world of this process alone.
    pub fn solo() -> Communicator {
        Communicator::new(0, 1, None, None, Arc::default(), Arc::default())
    }

    /// A world of so many ranks in this process, one for each of its threads. What runs on several machines
    /// is tried out with it on one.
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
    /// No ranks, or no more threads.
    #[track_caller]
    pub fn threads(size: usize) -> Result<Vec<Communicator>> {
        if size == 0 {
            return Err(Error::invalid("distributed", "a world of no ranks: give at least one"));
        }
        let ranks = Local::group(size).into_iter();
        ranks.map(|local| Communicator::over(move || Ok(Box::new(local) as Box<dyn Transport>))).collect()
    }

    /// A communicator over any transport. `begin` is called on the thread that communicates, which makes all
    /// calls of the transport.
    ///
    /// # Errors
    /// What `begin` fails with, or no more threads.
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

    /// This process's number, from 0 on. `torch.distributed.get_rank()`.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// How many ranks there are. `torch.distributed.get_world_size()`.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// This process's number among those on its machine, as the launcher tells it (Open MPI, MPICH, Intel
    /// MPI, Slurm): it chooses a GPU, as in `taper::device(&format!("wgpu:{}", comm.local_rank()))`. Where
    /// nothing tells it, all ranks are taken to be on one machine.
    pub fn local_rank(&self) -> usize {
        let told = LOCAL_RANKS.iter().find_map(|name| env::var(name).ok()?.trim().parse().ok());
        // Threads of one process have one environment.
        told.filter(|_| launched() == Some(self.size())).unwrap_or(self.rank())
    }

    /// For how long a call waits for the other ranks before it fails and names those that did not come; 10
    /// minutes unless set. It must be longer than a rank computes between two calls.
    pub fn set_timeout(&self, timeout: Duration) {
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.0.timeout.store(millis, Ordering::Relaxed);
    }

    /// What this rank has sent so far.
    pub fn traffic(&self) -> Traffic {
        let Counters { bytes, messages, collectives } = &*self.0.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic { bytes: read(bytes), messages: read(messages), collectives: read(collectives) }
    }

    /// The tensors of all ranks made one: their sum, mean, minimum or maximum, on each rank. On the tensor's
    /// device; without gradients. `torch.distributed.all_reduce`.
    ///
    /// # Errors
    /// A reduction that the dtype has not (the mean of integers, the sum of bools), ranks that differ in
    /// shape or dtype, do not come or have gone, or what the device reports.
    #[track_caller]
    pub fn all_reduce(&self, tensor: &Tensor, op: ReduceOp) -> Result<Tensor> {
        self.start_all_reduce(tensor, op)?.wait()
    }

    /// Reads the tensor, and then returns while the ranks communicate.
    /// `torch.distributed.all_reduce(async_op=True)`.
    ///
    /// # Errors
    /// A reduction that the dtype has not, or what the device reports. [`Work::wait`] has the other ranks'
    /// failures.
    #[track_caller]
    pub fn start_all_reduce(&self, tensor: &Tensor, op: ReduceOp) -> Result<Work> {
        checked("all_reduce", op, tensor)?;
        if self.size() == 1 {
            return Ok(self.done(tensor));
        }
        let call = Call::new(Kind::AllReduce(op), tensor.dtype(), tensor.dims());
        self.start(call, tensor, tensor.shape().clone())
    }

    /// The tensors of all ranks made one, of which each rank gets its part: `dims[0] / size` rows, the first
    /// ones for rank 0. `torch.distributed.reduce_scatter_tensor`.
    ///
    /// # Errors
    /// A first axis that the number of ranks does not divide, and those of [`Communicator::all_reduce`].
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

    /// The tensors of all ranks, in order, on each rank. They have one shape. `torch.distributed.all_gather`.
    ///
    /// # Errors
    /// Those of [`Communicator::all_reduce`], but for the reductions.
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

    /// As [`Communicator::broadcast`], and returns while the ranks communicate.
    #[track_caller]
    pub(crate) fn start_broadcast(&self, tensor: &Tensor, root: usize) -> Result<Work> {
        self.is_rank("broadcast", root)?;
        if self.size() == 1 {
            return Ok(self.done(tensor));
        }
        let call = Call::new(Kind::Broadcast { root }, tensor.dtype(), tensor.dims());
        self.start(call, tensor, tensor.shape().clone())
    }

    /// The tensor of rank `root`, on each rank; the others give one of its shape and dtype, whose values do
    /// not matter. On the device of each rank's tensor. `torch.distributed.broadcast`.
    ///
    /// # Errors
    /// A `root` that is no rank, and those of [`Communicator::all_reduce`], but for the reductions.
    #[track_caller]
    pub fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<Tensor> {
        self.start_broadcast(tensor, root)?.wait()
    }

    /// Returns when every rank has come here. `torch.distributed.barrier`.
    ///
    /// # Errors
    /// Ranks that do not come, have gone, or call something else.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        if self.size() == 1 {
            return Ok(());
        }
        self.ask(Task::Collective(Call::bare(Kind::Barrier)), Words::new()).map(drop)
    }

    /// Sends a tensor to another rank, which takes it by [`Communicator::receive`]. Returns when the tensor
    /// has been read, and does not wait for the other rank. `torch.distributed.isend`.
    ///
    /// # Errors
    /// A rank that there is not, or this one; a tensor of more than 11 axes, or what the device reports.
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
    /// A rank that there is not, or this one; one that sends nothing in time or has gone; a dtype that the
    /// device lacks, or no memory.
    #[track_caller]
    pub fn receive(&self, from: usize, device: &Device) -> Result<Tensor> {
        self.is_other("receive", from)?;
        let Answer { call, data } = self.ask(Task::ReceiveFrom(from), Words::new())?;
        let tensor =
            tensor_of(bytemuck::cast_slice(&data), call.dtype, &call.shape.iter().copied().collect(), device);
        self.keep(data);
        tensor
    }

    /// What each rank has to say, of any length, in order.
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

    /// In the place of the next collective, on a rank that failed before it: the others get an error that
    /// names this one, at once and not at the end of their patience, and all can go on.
    ///
    /// # Errors
    /// Ranks that do not come or have gone. It is no error that the others call something.
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

    /// The elements of a tensor in memory that is used again.
    #[track_caller]
    fn staged(&self, tensor: &Tensor) -> Result<Words> {
        let bytes = tensor.numel() * tensor.dtype().size();
        let mut data = lock(&self.0.staging).take(words_of(bytes));
        tensor.detach().read_bytes_into(&mut bytemuck::cast_slice_mut(&mut data)[..bytes])?;
        Ok(data)
    }

    pub(crate) fn keep(&self, buffer: Words) {
        lock(&self.0.staging).give(buffer);
    }

    #[track_caller]
    fn start(&self, call: Call, tensor: &Tensor, shape: Shape) -> Result<Work> {
        let data = self.staged(tensor)?;
        let answer = self.submit(Task::Collective(call), data)?;
        let (dtype, device) = (tensor.dtype(), tensor.device());
        Ok(Work { comm: self.clone(), state: State::Waiting { answer, shape, dtype, device } })
    }

    /// In a world of one: the tensor itself.
    fn done(&self, tensor: &Tensor) -> Work {
        Work { comm: self.clone(), state: State::Done(tensor.detach()) }
    }

    #[track_caller]
    fn submit(&self, task: Task, data: Words) -> Result<Receiver<Result<Answer>>> {
        let location = Location::caller();
        let (reply, answer) = mpsc::channel();
        let jobs = lock(&self.0.jobs);
        let sent = jobs.as_ref().map(|jobs| jobs.send(Job { task, data, reply, location }));
        match sent {
            Some(Ok(())) => Ok(answer),
            Some(Err(_)) | None => Err(ended()),
        }
    }

    #[track_caller]
    fn ask(&self, task: Task, data: Words) -> Result<Answer> {
        let answer = self.submit(task, data)?;
        answered(&answer)
    }
}

/// The thread that communicates ends only when nobody can ask it, or by a fault of its own.
#[track_caller]
pub(crate) fn ended() -> Error {
    Error::invalid("distributed", "the thread that communicates has ended")
}

#[track_caller]
fn checked(name: &'static str, op: ReduceOp, tensor: &Tensor) -> Result<()> {
    match numbers::misfit(op, tensor.dtype()) {
        Some(message) => Err(Error::invalid(name, message)),
        None => Ok(()),
    }
}
