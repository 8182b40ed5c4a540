//! A process that keeps one core busy while a case is measured: what a library's threads make of a machine
//! that is not theirs alone.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
    thread,
};

use crate::Result;

/// The spinning process: this program again, with `--spin`. It ends when this is dropped, and when this
/// process ends in any way.
pub(crate) struct Busy(Child);

impl Busy {
    pub(crate) fn start() -> Result<Busy> {
        let mut command = Command::new(std::env::current_exe()?);
        let child = command.arg("--spin").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Ok(Busy(child.map_err(|error| format!("the busy process cannot be run: {error}"))?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // It may have ended already; an error cannot be reported here.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The busy process: spins until its stdin ends, which happens when the parent process ends.
pub(crate) fn spin() -> ! {
    thread::spawn(|| {
        // An input that cannot be read has ended, too.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    loop {
        std::hint::spin_loop();
    }
}
