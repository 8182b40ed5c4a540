//! The table of operations. A row has an operation's name, its PyTorch expression, and the function:
//!
//! ```text
//! one("atan", "torch.atan(x)", Tensor::atan).pointwise(),
//! two("atan2", "torch.atan2(x, y)", |x, y| x.atan2(y)).pointwise(),
//! one("softmax", "torch.softmax(x, 1)", |x| x.softmax(1)).bad(|x| x[0].softmax(2)),
//! ```
//!
//! This is a complete row if the default inputs suit it: floats between −2 and 2, with the shapes that
//! [`one`](crate::row::one) and the other constructors document. The methods of [`Row`] change the defaults.
//! Several rows may have the same name: each is another way to call the operation. Functions that are no
//! methods of `Tensor` are called in a closure, so that tests can hold them to the line of their caller.

// A function pointer would lose the line of its caller: see lines.rs of taper's tests.
#![allow(clippy::redundant_closure)]

mod create;
mod fft;
mod indexing;
mod linalg;
mod losses;
mod movement;
mod nn;
mod pointwise;
mod products;
mod reduce;
mod special;

use crate::row::Row;

/// A heading of the page, and its rows.
pub type Section = (&'static str, Vec<Row>);

/// All rows by topic.
pub fn sections() -> Vec<Section> {
    vec![
        ("Making tensors", create::rows()),
        ("Element by element", [pointwise::rows(), pointwise::more()].into_iter().flatten().collect()),
        ("Special functions", special::rows()),
        ("Comparisons, bits, choices", pointwise::choices()),
        ("Activations", pointwise::activations()),
        ("Shapes and parts", movement::rows()),
        ("Reductions", reduce::rows()),
        ("Statistics: moments, ranks, differences, counts", reduce::statistics()),
        ("Along an axis: cumulative operations and order", reduce::along()),
        ("Products", products::rows()),
        ("By index", indexing::rows()),
        ("`nn::functional`", nn::rows()),
        ("Losses", losses::rows()),
        ("`linalg`", linalg::rows()),
        ("`fft`", fft::rows()),
    ]
}

/// All rows.
pub fn rows() -> Vec<Row> {
    sections().into_iter().flat_map(|(_, rows)| rows).collect()
}
