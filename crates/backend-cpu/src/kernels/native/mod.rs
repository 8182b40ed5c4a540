//! Operations as data: Taper's own, each with a kernel here, and those of other crates.
//!
//! | file | contents |
//! |---|---|
//! | `custom` | the table of native kernels, and functions that other crates give |
//! | `attention` | scaled dot products with softmax, tile by tile |
//! | `cached_attention` | scaled dot products with the rows in use of a cache |
//! | `recurrence` | recurrent layers, step by step |
//! | `fourier` | Fourier transforms |
//! | `bag` | sums of rows of an embedding |
//! | `distances` | distances of all pairs of points |
//! | `search_sorted` | binary search in sorted rows |
//! | `nonzero` | positions of elements that are not zero |
//! | `max_pool` | maxima of windows, with their positions |
//! | `grid_sample` | images that are sampled at points |
//! | `running_extreme` | running extremes with their positions |

mod attention;
mod bag;
mod cached_attention;
pub(crate) mod custom;
mod distances;
#[cfg(feature = "fft")]
mod fourier;
#[cfg(not(feature = "fft"))]
#[path = "fourier_off.rs"]
mod fourier;
mod grid_sample;
mod max_pool;
mod nonzero;
mod recurrence;
mod running_extreme;
mod search_sorted;
