//! [`Interrupt`]: Ctrl-C asks a training to stop, which then finishes its step and saves.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use tensor_core::{Error, Result};

/// Whether somebody wants the program to stop: Ctrl-C, or SIGTERM, which clusters send before they take a
/// machine away.
///
/// A loop asks after each step. The second Ctrl-C ends the program at once, with status 130.
///
/// ```
/// use train::Interrupt;
///
/// # fn main() -> tensor_core::Result<()> {
/// let interrupt = Interrupt::install()?;
/// for step in 0..1000 {
///     // … one step …
/// #   if step == 3 { interrupt.request() }
///     if interrupt.requested() {
///         println!("stopped after step {step}; go on with --resume"); // having saved
///         break;
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From here on a first Ctrl-C only sets a mark. Whoever installs it again gets the same mark.
    ///
    /// # Errors
    /// The system refuses a handler.
    #[track_caller]
    pub fn install() -> Result<Interrupt> {
        static MARK: OnceLock<std::result::Result<Interrupt, String>> = OnceLock::new();
        let installed = MARK.get_or_init(|| {
            let mark = Arc::new(AtomicBool::new(false));
            listen(&mark).map_err(|error| error.to_string())?;
            Ok(Interrupt(mark))
        });
        installed
            .clone()
            .map_err(|error| Error::invalid("Interrupt", format!("no handler for Ctrl-C: {error}")))
    }

    /// Whether somebody wants the program to stop.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks as Ctrl-C does, such as where the time is up.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(any(unix, windows))]
fn listen(mark: &Arc<AtomicBool>) -> std::io::Result<()> {
    use signal_hook::{consts, flag};
    for signal in [consts::SIGINT, consts::SIGTERM] {
        // Handlers run in this order: the first one ends the program only where the mark stands already.
        flag::register_conditional_shutdown(signal, 130, mark.clone())?;
        flag::register(signal, mark.clone())?;
    }
    Ok(())
}

/// There are no signals in a browser.
#[cfg(not(any(unix, windows)))]
fn listen(_: &Arc<AtomicBool>) -> std::io::Result<()> {
    Ok(())
}
