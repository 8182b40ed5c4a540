//! A world whose ranks are processes: `mpirun -n 2 PROGRAM`. Without arguments it runs all checks; `hang`
//! and `panic` make rank 1 do so, and the others must end on their own.
#![allow(clippy::unwrap_used, clippy::panic)] // tests

#[path = "../it/checks.rs"]
mod checks;

use std::{
    env,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use distributed::{Communicator, ReduceOp};
use tensor_core::{Error, Result, Tensor};

fn all_checks() -> Result<()> {
    let comm = Communicator::world()?;
    let again = Communicator::world()?;
    assert_eq!(
        (again.rank(), again.size()),
        (comm.rank(), comm.size()),
        "one world, while there is a handle"
    );
    drop(again);
    let (rank, began) = (comm.rank(), Instant::now());
    checks::run(&comm, |name| {
        if rank == 0 {
            println!("check: {name}");
        }
    })?;
    if rank == 0 {
        println!("{} ranks passed all checks in {:.1} s", comm.size(), began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Rank 1 joins one call and not the next.
fn fault(what: &str) -> Result<()> {
    let comm = Communicator::world()?;
    comm.set_timeout(Duration::from_secs(2));
    let one = Tensor::ones((), &backend_cpu::cpu())?;
    assert_eq!(comm.all_reduce(&one, ReduceOp::Sum)?.item::<f32>()?, comm.size() as f32);
    if comm.rank() == 1 {
        match what {
            "hang" => thread::sleep(Duration::from_secs(120)),
            "panic" => panic!("rank 1 fails"),
            "leave" => return Ok(()),
            _ => return Err(Error::invalid("mpi", format!("no fault `{what}`"))),
        }
    }
    comm.all_reduce(&one, ReduceOp::Sum).map(drop)
}

fn main() -> ExitCode {
    let result = match env::args().nth(1) {
        Some(what) => fault(&what),
        None => all_checks(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
