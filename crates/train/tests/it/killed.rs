//! A training process is killed at random moments and restarted, and its final bits are those of a process
//! that was not killed.
//!
//! `TAPER_TEST=rounds=100 cargo test -p train --test it killed` kills a hundred times.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use tensor_core::{Result, philox};
use train::{Checkpoints, Interrupt};

use crate::small::Training;

/// Enough steps for a process to take a large part of the longest wait below.
const STEPS: u64 = 120;
/// The variable that makes a process of this program the one to be killed; its value is the checkpoint
/// folder.
const CHILD: &str = "KILLED_CHILD";
/// The variable that says that the files of the process cannot grow.
const FULL: &str = "FULL_CHILD";
/// The variable that says that the process will be interrupted.
const INTERRUPTED: &str = "INTERRUPTED_CHILD";

fn trained(folder: &Path) -> Result<Training> {
    let mut training = Training::new(1, 4, 50)?;
    let mut checkpoints = Checkpoints::new(folder).keep_last(2).keep_best("loss");
    if let Some(latest) = checkpoints.latest(&backend_cpu::cpu())? {
        assert!(latest.passed_over.is_empty(), "{:?}", latest.passed_over);
        training.restore(&latest)?;
    }
    training.run(STEPS, |training| match training.step % 2 {
        0 => checkpoints.save(training.step, &training.checkpoint()).map(drop),
        _ => Ok(()),
    })?;
    Ok(training)
}

/// The test that the processes below run; without the variables it does nothing.
#[test]
fn child() {
    let Some(folder) = env::var_os(CHILD) else { return };
    trained(Path::new(&folder)).unwrap();
}

fn start(folder: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "killed::child"]).env(CHILD, folder).stdout(Stdio::null());
    command
}

#[test]
fn killed_again_and_again_a_training_ends_with_the_same_bits() {
    let kills = taper_testing::settings::number("rounds", 8);
    let expected = {
        let folder = tempfile::tempdir().unwrap();
        let mut whole = Training::new(1, 4, 50).unwrap();
        whole.run(STEPS, |_| Ok(())).unwrap();
        drop(folder);
        whole.bits().unwrap()
    };
    let (mut killed, mut rounds) = (0, 0u64);
    while killed < kills {
        let folder = tempfile::tempdir().unwrap();
        // Until the training ends.
        loop {
            let mut child = start(folder.path()).spawn().unwrap();
            // From before its first step to after its last.
            let wait = u64::from(philox(7, rounds)[0]) % 120_000;
            rounds += 1;
            sleep(Duration::from_micros(wait));
            if killed < kills && child.try_wait().unwrap().is_none() {
                child.kill().unwrap();
            }
            let status = child.wait().unwrap();
            match status.code() {
                Some(0) => break,
                // Killed by the signal.
                None => killed += 1,
                Some(code) if cfg!(windows) && code == 1 => killed += 1,
                Some(code) => panic!("the training failed with status {code}"),
            }
        }
        // Its last checkpoint is that of the last step, so training from it gives the final state.
        let ended = trained(folder.path()).unwrap();
        assert_eq!(ended.bits().unwrap(), expected, "after {killed} kills");
        let half_written = fs::read_dir(folder.path())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".tmp"));
        assert_eq!(half_written.count(), 0);
    }
    assert!(rounds >= kills);
}

/// The first Ctrl-C makes the process finish its step, save, and end successfully; a second one ends it
/// immediately.
#[cfg(unix)]
#[test]
fn an_interrupted_training_saves_and_goes_on_with_the_same_bits() {
    use std::io::{BufRead, BufReader, Write};
    let signal =
        |id: u32| assert!(Command::new("kill").args(["-INT", &id.to_string()]).status().unwrap().success());
    let folder = tempfile::tempdir().unwrap();
    let run = |polite: bool| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "killed::interrupted_child", "--nocapture"]).env(INTERRUPTED, folder.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(|line| line.ok());
        let id = child.id();
        // In the middle of step 3 it waits for a line of input.
        assert!(lines.any(|line| line == "in step 3"));
        signal(id);
        if polite {
            child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        } else {
            // The first signal must have arrived before the second.
            assert!(lines.any(|line| line == "asked to stop"));
            signal(id);
        }
        child.wait().unwrap().code()
    };
    assert_eq!(run(true), Some(0));
    let steps =
        |folder: &Path| Checkpoints::new(folder).list().unwrap().iter().map(|s| s.step).collect::<Vec<_>>();
    assert_eq!(steps(folder.path()), [3]);
    let mut whole = Training::new(1, 4, 50).unwrap();
    whole.run(9, |_| Ok(())).unwrap();
    let mut resumed = Training::new(2, 4, 50).unwrap();
    let latest = Checkpoints::new(folder.path()).latest(&backend_cpu::cpu()).unwrap().unwrap();
    resumed.restore(&latest).unwrap();
    resumed.run(9, |_| Ok(())).unwrap();
    assert_eq!(resumed.bits().unwrap(), whole.bits().unwrap());
    fs::remove_file(latest.path).unwrap();
    assert_eq!(run(false), Some(130));
    assert!(steps(folder.path()).is_empty());
}

#[test]
fn interrupted_child() {
    let Some(folder) = env::var_os(INTERRUPTED) else { return };
    let interrupt = Interrupt::install().unwrap();
    let mut checkpoints = Checkpoints::new(folder);
    let mut training = Training::new(1, 4, 50).unwrap();
    let stop = tensor_core::Error::invalid("training", "is asked to stop");
    let mut stop = Some(stop);
    let ended = training.run(STEPS, |training| {
        if training.step == 3 {
            println!("\nin step 3");
            while !interrupt.requested() {
                sleep(Duration::from_millis(1));
            }
            println!("asked to stop");
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
        if interrupt.requested() {
            checkpoints.save(training.step, &training.checkpoint())?;
            return Err(stop.take().unwrap());
        }
        Ok(())
    });
    assert!(ended.unwrap_err().to_string().contains("asked to stop"));
}

/// A file that cannot grow past a limit behaves as on a full disk.
#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_and_the_checkpoint_before_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut training = Training::new(1, 4, 50).unwrap();
    let mut checkpoints = Checkpoints::new(folder.path());
    training.run(6, |_| Ok(())).unwrap();
    let before = fs::read(checkpoints.save(6, &training.checkpoint()).unwrap()).unwrap();
    drop(checkpoints);
    // Blocks are 512 or 1024 bytes: the limit is less than a checkpoint in either case. Without the trap the
    // signal would kill the process.
    assert!(before.len() > 5 * 1024, "{}", before.len());
    let status = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "killed::full_child"])
        .env(FULL, folder.path())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != ".lock")
        .collect();
    assert_eq!(names, ["step-0000000006.safetensors"]);
    assert_eq!(fs::read(folder.path().join(&names[0])).unwrap(), before);
}

#[test]
fn full_child() {
    let Some(folder) = env::var_os(FULL) else { return };
    let mut checkpoints = Checkpoints::new(folder).keep_last(1);
    let mut training = Training::new(2, 4, 50).unwrap();
    let latest = checkpoints.latest(&backend_cpu::cpu()).unwrap().unwrap();
    training.restore(&latest).unwrap();
    training.run(8, |_| Ok(())).unwrap();
    let bits = training.bits().unwrap();
    let message = checkpoints.save(8, &training.checkpoint()).unwrap_err().to_string();
    assert!(
        message.contains("step-0000000008.safetensors") && message.contains("cannot be written"),
        "{message}"
    );
    assert_eq!(training.bits().unwrap(), bits);
    // The training continues.
    training.run(9, |_| Ok(())).unwrap();
}
