//! The studio: a page that shows a training while it runs, and the same page as one file afterwards.
//!
//! | items | purpose |
//! |---|---|
//! | [`serve`] | starts the page on this machine's loopback address, and returns its address with a token |
//! | [`record`], [`save`] | keeps the same data without a server; writes the page as one file |
//! | [`scalar`], [`histogram`], [`text`] | curves; `train::SummaryWriter` calls them too |
//! | [`step`] | runs a step: its pace, the loader's share, and a profile when the page asks for one |
//! | [`what_if`] | the same step in another way, measured at a click |
//! | [`show_model`], [`show_graph`], [`weights`], [`activations`] | layers, graph, norms and dead units |
//! | [`show_profile`], [`show_explanation`], [`show_memory`] | the reports of `inspect`, with its numbers |
//! | [`show_limits`] | the rates of a device, of which the page shows each kernel's share |
//! | [`events_after`], [`ask`] | the page's data and its requests, for a page of one's own |
//!
//! Until [`serve`] or [`record`] is called, each function returns after one relaxed load.
//!
//! ```
//! # fn main() -> tensor_core::Result<()> {
//! let url = studio::serve()?; // http://127.0.0.1:PORT/TOKEN/
//! for number in 0..10 {
//!     studio::step(number, || {
//!         studio::scalar("first", "loss/train", 1.0 / (number + 1) as f64, number);
//!         Ok(())
//!     })?;
//! }
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! studio::save(folder.join("run.html"))?;
//! # assert!(url.starts_with("http://127.0.0.1:"));
//! # Ok(()) }
//! ```

mod aside;
mod page;
mod record;
mod reports;
mod server;
mod stepping;
mod trouble;
mod what_if;

pub use aside::Aside;
pub use page::save;
pub use record::{events_after, histogram, is_recording, record, scalar, text};
pub use reports::{
    activations, show_explanation, show_graph, show_limits, show_memory, show_model, show_profile, weights,
};
pub use server::{serve, serve_if_asked};
pub use stepping::step;
pub use what_if::{Setting, what_if};

/// Takes a request of the page, as its buttons make it: `ask/profile`, `ask/memory`, `ask/anomaly` and
/// `ask/limits` for the next [`step`], and `what-if/1` for setting number 1 of [`what_if`]. Returns whether
/// there is such a request. For a page of one's own, which gets the results by [`events_after`].
///
/// ```
/// studio::record();
/// assert!(studio::ask("ask/profile"));
/// assert!(!studio::ask("ask/anything"));
/// ```
pub fn ask(what: &str) -> bool {
    what.strip_prefix("ask/").is_some_and(stepping::ask)
        || what.strip_prefix("what-if/").is_some_and(what_if::ask)
}

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();
