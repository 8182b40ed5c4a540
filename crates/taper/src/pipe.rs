//! Programs whose output goes into a pipe that closes, as in `program | head`. This file has no dependencies,
//! because `xtask` and `gpu-stats` include it too.

use std::{panic, process::exit, sync::Once};

/// From now on this program ends quietly, with success, when it prints to a pipe that was closed, as in
/// `program | head`. Without this, `println!` panics there, as in every Rust program. Call it first in
/// `main`.
///
/// ```
/// taper::end_quietly_on_closed_pipe();
/// println!("as many lines as you like");
/// ```
pub fn end_quietly_on_closed_pipe() {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<String>().is_some_and(|message| is_about_closed_pipe(message)) {
                exit(0);
            }
            before(info);
        }));
    });
}

/// Whether a panic's message is that of `println!` for a closed pipe: the codes are those of Unix (`EPIPE`)
/// and Windows (`ERROR_BROKEN_PIPE`, `ERROR_NO_DATA`).
fn is_about_closed_pipe(message: &str) -> bool {
    let closed = if cfg!(windows) { ["(os error 109)", "(os error 232)"] } else { ["(os error 32)"; 2] };
    message.starts_with("failed printing to std") && closed.iter().any(|code| message.ends_with(code))
}
