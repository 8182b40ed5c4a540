//! Networks in a page of a browser, on the GPU through WebGPU or in WebAssembly alone: one learns handwritten
//! digits and reads those that are drawn, one finds speech in sound, and a language model learns a style of
//! answers. `cargo xtask browser` builds and serves the page.
//!
//! A page has one thread, which must not block. So a device is opened by [`taper::device_async`], and reads
//! are awaited; building, training and gradients are the same as elsewhere.
//!
//! | part | feature |
//! |---|---|
//! | [`Learner`], [`drawn_image`] | `digits` |
//! | [`Listener`] | `voice` |
//! | [`FineTuning`] | `language` |
//!
//! Each feature is a module of the page that is loaded when its part is used.

#[cfg(feature = "digits")]
mod digits;
#[cfg(feature = "digits")]
mod drawing;
#[cfg(feature = "language")]
mod language;
#[cfg(target_arch = "wasm32")]
mod page;
#[cfg(feature = "voice")]
mod voice;

#[cfg(feature = "digits")]
pub use digits::{Epoch, Learner, Network};
#[cfg(feature = "digits")]
pub use drawing::drawn_image;
#[cfg(feature = "language")]
pub use language::{FineTuning, Step};
#[cfg(feature = "voice")]
pub use voice::{CHUNK, Listener, RATE};
