//! Ranks that hang, fail, or end early: the others get an error in time that names them.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use distributed::{Channel, Communicator, ReduceOp, Transport, Words};
use tensor_core::{Error, ErrorKind, Result, Tensor};

use crate::on_ranks;

fn sum(comm: &Communicator) -> Result<f32> {
    comm.all_reduce(&Tensor::ones((), &backend_cpu::cpu())?, ReduceOp::Sum)?.item()
}

fn ranks_of(error: &Error) -> Vec<usize> {
    match error.kind() {
        ErrorKind::Distributed { ranks, .. } => ranks.clone(),
        _ => panic!("{error}"),
    }
}

#[test]
fn a_rank_that_hangs_is_named_in_time() {
    let done = Barrier::new(3);
    let found = on_ranks(3, |comm| {
        comm.set_timeout(Duration::from_millis(300));
        assert_eq!(sum(&comm).unwrap(), 3.0);
        let began = Instant::now();
        let error = (comm.rank() != 1).then(|| {
            let first = sum(&comm).unwrap_err();
            // The communicator is unusable: the same error is returned immediately.
            assert_eq!(sum(&comm).unwrap_err().to_string(), first.to_string());
            assert!(began.elapsed() < Duration::from_secs(20));
            first
        });
        done.wait();
        error
    });
    assert!(found[1].is_none());
    for error in [&found[0], &found[2]] {
        let error = error.as_ref().unwrap();
        assert_eq!(ranks_of(error), [1]);
        assert!(error.to_string().contains("rank 1 has not come to this call within 0.3 s"), "{error}");
    }
}

#[test]
fn a_rank_that_ends_early_is_named_at_once() {
    let began = Instant::now();
    let found = on_ranks(3, |comm| match comm.rank() {
        2 => None,
        _ => Some(sum(&comm).unwrap_err()),
    });
    for error in found.iter().flatten() {
        assert!(ranks_of(error).contains(&2), "{error}");
        assert!(error.to_string().contains("rank 2 has gone"), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(60), "long before the 10 minutes of a timeout");
}

#[test]
fn a_rank_that_panics_is_named_at_once() {
    let ranks = Communicator::threads(2).unwrap();
    let mut threads: Vec<_> = ranks
        .into_iter()
        .map(|comm| {
            thread::spawn(move || {
                assert_ne!(comm.rank(), 1, "this rank fails");
                sum(&comm).unwrap_err()
            })
        })
        .collect();
    assert!(threads.pop().unwrap().join().is_err());
    assert_eq!(ranks_of(&threads.pop().unwrap().join().unwrap()), [1]);
}

#[test]
fn a_message_that_nobody_sends_is_told() {
    let done = Barrier::new(2);
    on_ranks(2, |comm| {
        comm.set_timeout(Duration::from_millis(200));
        if comm.rank() == 0 {
            let error = comm.receive(1, &backend_cpu::cpu()).unwrap_err();
            assert_eq!(ranks_of(&error), [1]);
            assert!(error.to_string().starts_with("receive: rank 1 has sent this rank nothing within 0.2 s"));
        }
        done.wait();
    });
}

/// A transport whose network fails.
struct Broken;

impl Transport for Broken {
    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        2
    }
    fn send(&mut self, _: usize, _: Channel, _: Words) -> Result<()> {
        Err(Error::invalid("broken", "the cable is out"))
    }
    fn try_receive(&mut self, _: usize, _: Channel, _: usize) -> Result<Option<Words>> {
        Ok(None)
    }
    fn progress(&mut self) -> Result<bool> {
        Ok(true)
    }
    fn buffer(&mut self, words: usize) -> Words {
        vec![0; words]
    }
    fn recycle(&mut self, _: Words) {}
    fn ends_together(&self) -> bool {
        true
    }
    fn close(self: Box<Self>, failure: Option<&str>) {
        assert!(failure.is_some_and(|f| f.contains("the cable is out")));
    }
}

#[test]
fn a_transport_of_ones_own_tells_its_failures() {
    let comm = Communicator::over(|| Ok(Box::new(Broken) as Box<dyn Transport>)).unwrap();
    assert_eq!((comm.rank(), comm.size()), (0, 2));
    assert!(sum(&comm).unwrap_err().to_string().contains("the cable is out"));
    let none = Communicator::over(|| Err(Error::invalid("broken", "no network card")));
    assert!(none.unwrap_err().to_string().contains("no network card"));
}

#[test]
fn a_world_has_at_least_one_rank() {
    assert!(Communicator::threads(0).unwrap_err().to_string().contains("at least one"));
}

/// A program that a launcher started four times must not train four times.
#[cfg(not(feature = "mpi"))]
#[test]
fn a_launcher_s_processes_need_mpi() {
    use std::env;
    const CHILD: &str = "TAPER_TEST_LAUNCHED";
    if env::var_os(CHILD).is_some() {
        let error = Communicator::world().unwrap_err().to_string();
        for words in ["started 4 processes", "libopenmpi-dev", "--features mpi"] {
            assert!(error.contains(words), "{error}");
        }
        return;
    }
    assert_eq!(Communicator::world().map(|comm| comm.size()).unwrap(), 1);
    let mut child = taper_testing::test_process(a_launcher_s_processes_need_mpi);
    let output = child.env(CHILD, "1").env("OMPI_COMM_WORLD_SIZE", "4").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}
