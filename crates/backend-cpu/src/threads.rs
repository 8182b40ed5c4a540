//! Sharing of a kernel's work between threads.
//!
//! The calling thread starts working at once, and pool threads (helpers) join when they have woken up. If
//! the caller slept instead, a kernel of some tens of microseconds would be over before it woke again. A
//! helper stays awake for a moment after its work, because one kernel usually follows another. It does so
//! only while every thread has a processor to itself, since otherwise it would take processor time from
//! threads that have work. No more threads work at once than there are processors. Free threads take tasks
//! in order.
#![allow(unsafe_code)]

use std::{
    any::Any,
    cell::Cell,
    ffi::OsString,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::Thread,
    time::{Duration, Instant},
};

use rayon::ThreadPool;
use tensor_core::{Error, Result, lock};

use crate::{
    environment::{Misread, Variable},
    machine::machine,
    tuning::{AWAKE_TIME, CROWDED_TIME, MIN_GRAINS_TO_WAKE, PREEMPTED_TIME, SPIN_LIMIT, SPIN_PAUSES},
};

thread_local! {
    /// Whether this thread is running a task.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// The number of threads that a kernel started here may use, including this one.
///
/// It is 1 on a rayon thread and within a task: waiting there would run unrelated work of the caller's
/// pool, which may need the very device that is being waited for.
pub(crate) fn available() -> usize {
    if BUSY.get() || rayon::current_thread_index().is_some() {
        1
    } else {
        num_threads().min(machine().processors)
    }
}

/// The number of threads that share a kernel, including its caller; 0 until it is first requested.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// The helper threads; started when they are first needed.
static POOL: Mutex<Option<Arc<ThreadPool>>> = Mutex::new(None);

/// The number of threads that share a large kernel, including its caller: the last argument of
/// [`set_num_threads`], or `TAPER_THREADS`, or `RAYON_NUM_THREADS`, or else the number of processors.
/// `torch.get_num_threads`.
pub fn num_threads() -> usize {
    match THREADS.load(Ordering::Relaxed) {
        0 => {
            // A value that cannot be parsed is reported when the device is opened.
            let wanted = from_env(&|name| std::env::var_os(name))
                .ok()
                .flatten()
                .unwrap_or_else(|| machine().processors);
            match THREADS.compare_exchange(0, wanted, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => wanted,
                Err(set) => set,
            }
        }
        set => set,
    }
}

/// Sets the number of threads that share a large kernel, including its caller, for kernels that start from
/// now on, on any thread. Results have the same bits for any number. No more threads work at once than
/// there are processors. `torch.set_num_threads`.
///
/// # Errors
/// `Invalid` for 0, and if the system does not start the threads.
pub fn set_num_threads(threads: usize) -> Result<()> {
    if threads == 0 {
        return Err(Error::invalid(
            "set_num_threads",
            "the number of threads must be at least 1, the calling thread",
        ));
    }
    let pool = start(threads.min(machine().processors) - 1)?;
    *lock(&POOL) = pool;
    THREADS.store(threads, Ordering::Relaxed);
    Ok(())
}

/// Starts a pool of `helpers` threads.
fn start(helpers: usize) -> Result<Option<Arc<ThreadPool>>> {
    if helpers == 0 {
        return Ok(None);
    }
    let name = |i: usize| format!("taper-cpu-{}", i + 1);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(helpers).thread_name(name).build();
    let pool = pool
        .map_err(|e| Error::invalid("set_num_threads", format!("{helpers} threads cannot be started: {e}")));
    Ok(Some(Arc::new(pool?)))
}

/// The pool, started if necessary. Without one, callers work alone.
fn pool() -> Option<Arc<ThreadPool>> {
    let mut pool = lock(&POOL);
    if pool.is_none() {
        match start(num_threads().min(machine().processors) - 1) {
            Ok(started) => *pool = started,
            // The system cannot start threads; the next kernel does not try again.
            Err(_) => THREADS.store(1, Ordering::Relaxed),
        }
    }
    pool.clone()
}

/// The number of threads that the environment asks for.
pub(crate) fn from_env(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Option<usize>, Misread> {
    if let Some(wanted) = Variable::of("TAPER_THREADS", variable("TAPER_THREADS")) {
        let threads = wanted.text.parse().ok().filter(|&threads| (1..=MAX_THREADS).contains(&threads));
        return threads
            .map(Some)
            .ok_or_else(|| wanted.misread("a number of threads from 1 on, the caller's among them"));
    }
    let Some(wanted) = Variable::of("RAYON_NUM_THREADS", variable("RAYON_NUM_THREADS")) else {
        return Ok(None);
    };
    match wanted.text.parse() {
        // In rayon's variable, 0 means one thread per processor.
        Ok(0) => Ok(None),
        Ok(threads) if threads <= MAX_THREADS => Ok(Some(threads)),
        _ => Err(wanted.misread("a number of threads; TAPER_THREADS goes before it")),
    }
}

/// More threads than any machine has processors are a mistake.
const MAX_THREADS: usize = 1 << 14;

/// The grains of work that callers did alone since a helper was last woken.
static ALONE: AtomicUsize = AtomicUsize::new(0);
/// The microsecond of [`clock`] at which a caller last worked alone.
static LAST_ALONE: AtomicU64 = AtomicU64::new(0);

/// The number of threads that should share `work`. `grain` is the work that is worth an awake thread, some
/// microseconds. A sleeping helper is woken only if the work is large enough for that, counted with recent
/// work that would have kept the helper awake.
pub(crate) fn worth(work: usize, grain: usize) -> usize {
    let grains = work / grain;
    let threads = available().min(grains);
    if threads <= 1 {
        return 1;
    }
    if BOARD.awake.load(Ordering::Relaxed) > 0 {
        return threads;
    }
    let now = clock();
    let since = now.saturating_sub(LAST_ALONE.swap(now, Ordering::Relaxed));
    let alone = alone(ALONE.load(Ordering::Relaxed), since, grains);
    let wakes = alone >= MIN_GRAINS_TO_WAKE;
    ALONE.store(if wakes { 0 } else { alone }, Ordering::Relaxed);
    if wakes { threads } else { 1 }
}

/// The grains done alone, after `grains` more that came `since` microseconds after the last. Earlier grains
/// count only if a helper would still be awake.
fn alone(before: usize, since: u64, grains: usize) -> usize {
    if u128::from(since) <= AWAKE_TIME.as_micros() { before.saturating_add(grains) } else { grains }
}

/// Calls `f` with each number below `count`, on this thread and on free helpers.
pub(crate) fn share(count: usize, f: impl Fn(usize) + Sync) {
    share_tasks(count, &f);
}

/// [`share`], compiled once. Tasks are called through a pointer, so they are compiled once as well.
fn share_tasks(count: usize, f: &(dyn Fn(usize) + Sync)) {
    let helpers = (available() - 1).min(count.saturating_sub(1));
    if helpers == 0 {
        return (0..count).for_each(f);
    }
    // SAFETY: only the lifetime changes. `f` is not called after `Work::finish` returns, which is before
    // its lifetime ends.
    let f: *const (dyn Fn(usize) + Sync) =
        unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(f) };
    let work = Arc::new(Work {
        f,
        count,
        next: (0..=helpers).map(|_| AtomicUsize::new(0)).collect(),
        inside: AtomicUsize::new(0),
        panic: Mutex::new(None),
        caller: std::thread::current(),
    });
    BOARD.put(&work, helpers);
    work.take_tasks(0);
    BOARD.remove(&work);
    work.finish();
    let panic = lock(&work.panic).take();
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

/// Like [`share`]; returns the error of one of the tasks if any fails. Tasks that have not started by then
/// are skipped.
pub(crate) fn try_share(count: usize, f: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    try_share_tasks(count, &f)
}

fn try_share_tasks(count: usize, f: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
    let error = Mutex::new(None);
    let failed = AtomicBool::new(false);
    share(count, |i| {
        if !failed.load(Ordering::Relaxed)
            && let Err(e) = f(i)
        {
            failed.store(true, Ordering::Relaxed);
            lock(&error).get_or_insert(e);
        }
    });
    error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// The `i`th of `parts` nearly equal parts of `size`, which begin at multiples of `unit`.
pub(crate) fn part(size: usize, unit: usize, parts: usize, i: usize) -> Range<usize> {
    let begin = |i: usize| if i == parts { size } else { size * i / parts / unit * unit };
    begin(i)..begin(i + 1)
}

/// The size of pieces, in multiples of `unit`, that gives each thread several pieces, so that a delayed
/// thread does not delay the whole.
pub(crate) fn piece(count: usize, unit: usize) -> usize {
    count.div_ceil(available() * 8).max(1).next_multiple_of(unit)
}

/// Like [`share`], with ranges that cover `0..count` and begin at multiples of `unit`, several for each
/// thread.
pub(crate) fn share_ranges(count: usize, unit: usize, f: impl Fn(Range<usize>) + Sync) {
    let piece = piece(count, unit);
    share(count.div_ceil(piece), |i| f(i * piece..count.min((i + 1) * piece)));
}

/// Combines [`share_ranges`] and [`try_share`].
pub(crate) fn try_share_ranges(
    count: usize,
    unit: usize,
    f: impl Fn(Range<usize>) -> Result<()> + Sync,
) -> Result<()> {
    let piece = piece(count, unit);
    try_share(count.div_ceil(piece), |i| f(i * piece..count.min((i + 1) * piece)))
}

/// Like [`share`], with each chunk of `size` elements of `all` and its number.
pub(crate) fn share_chunks<T: Send>(all: &mut [T], size: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    let chunks: Vec<Mutex<&mut [T]>> = all.chunks_mut(size).map(Mutex::new).collect();
    // Each lock is taken once, by the thread that runs the task.
    share(chunks.len(), |i| f(i, &mut lock(&chunks[i])));
}

/// Like [`try_share`], with each chunk of `size` elements of `all` and its number.
pub(crate) fn try_share_chunks<T: Send>(
    all: &mut [T],
    size: usize,
    f: impl Fn(usize, &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    let chunks: Vec<Mutex<&mut [T]>> = all.chunks_mut(size).map(Mutex::new).collect();
    // Each lock is taken once, by the thread that runs the task.
    try_share(chunks.len(), |i| f(i, &mut lock(&chunks[i])))
}

/// The microsecond of [`clock`] until which waiting threads give up their processors to others.
static CROWDED_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Microseconds since the first call.
fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_micros() as u64
}

/// Whether a waiting thread takes processor time from one that has work.
fn is_crowded() -> bool {
    clock() < CROWDED_UNTIL.load(Ordering::Relaxed)
}

/// Records a pause between two polls: a long one means that there are currently more threads than
/// processors.
fn paused_for(time: Duration) {
    if time > PREEMPTED_TIME {
        CROWDED_UNTIL.store(clock() + CROWDED_TIME.as_micros() as u64, Ordering::Relaxed);
    }
}

/// The list of work that waits for helpers.
struct Board {
    /// Work, with the number of helpers that may still join.
    waiting: Mutex<Vec<(Arc<Work>, usize)>>,
    /// The number of times that work was added.
    news: AtomicUsize,
    /// Helpers without work that poll `news`.
    idle: AtomicUsize,
    /// All awake helpers: idle ones and working ones.
    awake: AtomicUsize,
}

static BOARD: Board = Board {
    waiting: Mutex::new(Vec::new()),
    news: AtomicUsize::new(0),
    idle: AtomicUsize::new(0),
    awake: AtomicUsize::new(0),
};

impl Board {
    fn waiting(&self) -> MutexGuard<'_, Vec<(Arc<Work>, usize)>> {
        lock(&self.waiting)
    }

    /// Offers work to helpers, and wakes as many more as needed.
    fn put(&'static self, work: &Arc<Work>, helpers: usize) {
        self.waiting().push((Arc::clone(work), helpers));
        self.news.fetch_add(1, Ordering::SeqCst);
        // A helper that is counted here and then leaves checks the board once more afterwards.
        let idle = self.idle.load(Ordering::SeqCst);
        if idle < helpers
            && let Some(pool) = pool()
        {
            (idle..helpers).for_each(|_| pool.spawn(|| self.help()));
        }
    }

    fn remove(&self, work: &Arc<Work>) {
        self.waiting().retain(|(other, _)| !Arc::ptr_eq(other, work));
    }

    fn take(&self) -> Option<Arc<Work>> {
        let mut waiting = self.waiting();
        let (work, room) = waiting.first_mut()?;
        *room -= 1;
        if *room > 0 {
            return Some(Arc::clone(work));
        }
        Some(waiting.remove(0).0)
    }

    /// Runs work that is available now or soon.
    fn help(&self) {
        self.awake.fetch_add(1, Ordering::Relaxed);
        self.help_while_there_is_work();
        self.awake.fetch_sub(1, Ordering::Relaxed);
    }

    fn help_while_there_is_work(&self) {
        loop {
            let seen = self.news.load(Ordering::SeqCst);
            if let Some(work) = self.take() {
                work.help();
            } else if !self.wait(seen) {
                // `put` may have counted this thread as idle until just now.
                match self.take() {
                    Some(work) => work.help(),
                    None => return,
                }
            }
        }
    }

    /// Stays awake until `news` differs from `seen`. Returns whether it does.
    fn wait(&self, seen: usize) -> bool {
        if is_crowded() {
            return self.news.load(Ordering::SeqCst) != seen;
        }
        self.idle.fetch_add(1, Ordering::SeqCst);
        let since = Instant::now();
        let mut more = false;
        let mut waited = Duration::ZERO;
        while !more && waited < AWAKE_TIME {
            (0..SPIN_PAUSES).for_each(|_| std::hint::spin_loop());
            more = self.news.load(Ordering::SeqCst) != seen;
            let now = since.elapsed();
            paused_for(now - waited);
            waited = now;
        }
        self.idle.fetch_sub(1, Ordering::SeqCst);
        more
    }
}

/// Set in [`Work::inside`] once no more threads may join.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// Tasks that several threads share.
struct Work {
    f: *const (dyn Fn(usize) + Sync),
    count: usize,
    /// The number of tasks taken from each part; the first part is the caller's.
    next: Vec<AtomicUsize>,
    /// The helpers that are working on it, and the flag [`CLOSED`].
    inside: AtomicUsize,
    /// The payload of the first task that panicked.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    caller: Thread,
}

// SAFETY: `f` is `Sync`, so any thread may call it, and none does after `share_tasks` returns.
unsafe impl Send for Work {}
// SAFETY: `f` is `Sync`, so several threads may call it at once; the other fields are `Sync` themselves.
unsafe impl Sync for Work {}

impl Work {
    /// Runs tasks until none are left, those of part `part` first. Only for the caller before
    /// [`Work::finish`], and for helpers counted in `inside`.
    fn take_tasks(&self, part: usize) {
        let before = BUSY.replace(true);
        let parts = self.next.len();
        for part in (part..parts).chain(0..part) {
            let tasks = self::part(self.count, 1, parts, part);
            loop {
                let i = tasks.start + self.next[part].fetch_add(1, Ordering::Relaxed);
                if i >= tasks.end {
                    break;
                }
                // SAFETY: `share` has not returned, because it waits for all helpers inside.
                let f = unsafe { &*self.f };
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| f(i))) {
                    self.next.iter().for_each(|next| next.store(self.count, Ordering::Relaxed));
                    let mut first = lock(&self.panic);
                    match &*first {
                        None => *first = Some(panic),
                        // Its drop may panic too, and would leave this while others still run tasks.
                        Some(_) => std::mem::forget(panic),
                    }
                }
            }
        }
        BUSY.set(before);
    }

    fn help(&self) {
        if self.inside.fetch_add(1, Ordering::Acquire) & CLOSED == 0 {
            let helpers = self.next.len() - 1;
            self.take_tasks(1 + rayon::current_thread_index().unwrap_or(0) % helpers);
        }
        // Release: the caller, who waits for the last helper, has to see all writes.
        if self.inside.fetch_sub(1, Ordering::Release) == CLOSED | 1 {
            self.caller.unpark();
        }
    }

    /// Admits no more helpers, and waits for those inside.
    fn finish(&self) {
        if self.inside.fetch_or(CLOSED, Ordering::Acquire) == 0 {
            return;
        }
        let since = Instant::now();
        let mut patient = !is_crowded();
        let mut waited = Duration::ZERO;
        while self.inside.load(Ordering::Acquire) != CLOSED {
            if patient {
                (0..SPIN_PAUSES).for_each(|_| std::hint::spin_loop());
                let now = since.elapsed();
                paused_for(now - waited);
                waited = now;
                patient = waited < SPIN_LIMIT;
            } else {
                std::thread::park();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tensor_core::{Error, ErrorKind};

    use super::*;

    /// Locked by tests that set the number of threads and by tests that need it to stay the same.
    static NUMBER: Mutex<()> = Mutex::new(());

    #[test]
    fn every_task_is_carried_out_once() {
        let _steady = lock(&NUMBER);
        for count in [0, 1, 2, 3, 10, 1000] {
            for _ in 0..50 {
                let times: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                share(count, |i| {
                    assert!(available() == 1 || count == 1);
                    times[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(times.iter().all(|times| times.load(Ordering::Relaxed) == 1));
            }
        }
    }

    /// The number belongs to the process, so one test tries all numbers.
    #[test]
    fn any_number_of_threads_does_all_tasks() {
        let _steady = lock(&NUMBER);
        let before = num_threads();
        assert!(before >= 1);
        for threads in [1, 2, 3, 8, 64, before] {
            set_num_threads(threads).unwrap();
            assert_eq!(num_threads(), threads);
            assert_eq!(available(), threads.min(machine().processors));
            let times: Vec<AtomicUsize> = (0..300).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..50 {
                share(300, |i| {
                    times[i].fetch_add(1, Ordering::Relaxed);
                });
            }
            assert!(times.iter().all(|times| times.load(Ordering::Relaxed) == 50));
        }
        let error = set_num_threads(0).unwrap_err().to_string();
        assert!(error.contains("at least 1"), "{error}");
    }

    /// The pieces done by the caller and by its helpers, while one of them is blocked in its first piece
    /// until all others are done.
    fn done_while_one_is_held_up(is_helper: bool) -> (usize, usize) {
        const COUNT: usize = 64;
        let caller = std::thread::current().id();
        let (begun, others) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (by_caller, by_helpers) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let is_held_up = AtomicBool::new(false);
        let task = |_| {
            let is_caller = std::thread::current().id() == caller;
            let count = if is_caller { &by_caller } else { &by_helpers };
            count.fetch_add(1, Ordering::SeqCst);
            begun.fetch_add(1, Ordering::SeqCst);
            if is_caller != is_helper && !is_held_up.swap(true, Ordering::SeqCst) {
                // If its work were never taken, this would wait forever; the time limit reports that.
                let since = Instant::now();
                while others.load(Ordering::SeqCst) < COUNT - 1 {
                    assert!(since.elapsed() < Duration::from_secs(60), "nobody took its work");
                    std::thread::yield_now();
                }
            } else {
                // All others wait until one is blocked.
                let since = Instant::now();
                while !is_held_up.load(Ordering::SeqCst) {
                    assert!(since.elapsed() < Duration::from_secs(60), "nobody came");
                    std::thread::yield_now();
                }
                others.fetch_add(1, Ordering::SeqCst);
            }
        };
        share(COUNT, task);
        assert_eq!(begun.load(Ordering::SeqCst), COUNT);
        (by_caller.load(Ordering::SeqCst), by_helpers.load(Ordering::SeqCst))
    }

    #[test]
    fn the_work_of_a_thread_that_is_held_up_is_done_by_others() {
        let _steady = lock(&NUMBER);
        if available() < 2 {
            return;
        }
        for _ in 0..20 {
            let (by_caller, by_helpers) = done_while_one_is_held_up(false);
            assert_eq!((by_caller, by_helpers), (1, 63), "the caller is held up in its first piece");
            let (by_caller, by_helpers) = done_while_one_is_held_up(true);
            assert!(by_caller + by_helpers == 64 && by_helpers < 64, "{by_caller}, {by_helpers}");
            if num_threads() == 2 {
                assert_eq!((by_caller, by_helpers), (63, 1), "the helper is held up in its first piece");
            }
        }
    }

    #[test]
    fn work_that_follows_soon_adds_up() {
        assert_eq!(alone(0, u64::MAX, 20), 20);
        assert_eq!(alone(10, 30, 6), 16);
        assert_eq!(alone(10, 1000, 6), 6);
        assert_eq!(worth(100, 101), 1);
        let _steady = lock(&NUMBER);
        // This much work is worth waking helpers for, whether they are awake or not.
        assert_eq!(worth(MIN_GRAINS_TO_WAKE * available(), 1), available());
    }

    #[test]
    fn chunks_are_each_given_once() {
        let mut all = vec![0usize; 1003];
        try_share_chunks(&mut all, 10, |i, chunk| {
            chunk.iter_mut().enumerate().for_each(|(j, x)| *x += i * 10 + j);
            Ok(())
        })
        .unwrap();
        assert!(all.iter().enumerate().all(|(i, &x)| i == x));
    }

    #[test]
    fn errors_and_panics_come_out() {
        let wrong = || Error::new(ErrorKind::TooLarge { device: "cpu".into(), asked: 1, limit: 0 });
        let error = try_share(100, |i| if i == 40 { Err(wrong()) } else { Ok(()) });
        assert!(matches!(error.unwrap_err().kind(), ErrorKind::TooLarge { asked: 1, .. }));
        let panic = catch_unwind(|| share(100, |i| assert!(i != 70, "seventy")));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"seventy"));
        // The thread can share work afterwards.
        assert!(available() >= 1 && !BUSY.get());
    }

    /// Several tasks panic at the same time, each with a payload whose drop panics.
    #[test]
    fn later_panics_are_not_dropped() {
        struct Loud;
        impl Drop for Loud {
            fn drop(&mut self) {
                panic!("the payload is dropped");
            }
        }
        for _ in 0..10 {
            let panic = catch_unwind(|| {
                share(8, |_| {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    std::panic::panic_any(Loud);
                });
            });
            std::mem::forget(panic.unwrap_err());
            assert!(available() >= 1 && !BUSY.get());
        }
    }
}
