//! [`Interrupt`]: Ctrl-C requests a stop; the training then finishes its step and saves.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use tensor_core::{Error, Result};

/// A request to stop the program: by Ctrl-C, or by SIGTERM, which clusters send before they take a machine
/// away.
///
/// Check it after each step. A second Ctrl-C ends the program immediately, with status 130.
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
///         println!("stopped after step {step}; continue with --resume"); // after saving
///         break;
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the handler, after which the first Ctrl-C only sets a flag. Later calls share the same flag.
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

    /// Whether a stop was requested.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Requests a stop as Ctrl-C does, for instance when a time limit is reached.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(any(unix, windows))]
fn listen(mark: &Arc<AtomicBool>) -> std::io::Result<()> {
    use signal_hook::{consts, flag};
    for signal in [consts::SIGINT, consts::SIGTERM] {
        // Handlers run in this order: the first one ends the program only if the flag is already set.
        flag::register_conditional_shutdown(signal, 130, mark.clone())?;
        flag::register(signal, mark.clone())?;
    }
    Ok(())
}

/// Browsers have no signals.
#[cfg(not(any(unix, windows)))]
fn listen(_: &Arc<AtomicBool>) -> std::io::Result<()> {
    Ok(())
}
