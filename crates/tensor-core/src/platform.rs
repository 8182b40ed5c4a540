//! What an operating system has and a browser has not. The rest of the crate asks here, and has no clocks or threads; files
//! are in `file`.

use std::io::Write;

/// Whether this runs where there is no operating system, as in a browser: no environment, no blocking, no threads.
const NO_SYSTEM: bool = cfg!(all(target_family = "wasm", target_os = "unknown"));

/// The names of the environment's variables; none where there is no environment.
pub(crate) fn variables() -> Vec<String> {
    if NO_SYSTEM {
        return Vec::new();
    }
    std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect()
}

/// Says a line to whoever runs the program, on standard error.
pub(crate) fn say(line: &str) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}
