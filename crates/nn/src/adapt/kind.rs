//! [`LayerKind`]: how the weight of a layer with adapters is laid out.

/// The kind of a layer that can have adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// A weight `[out, in]` or, transposed, `[in, out]`.
    Linear {
        /// Whether the weight is `[in, out]`, as in GPT-2's `Conv1D`.
        transposed: bool,
    },
    /// A table `[rows, features]`.
    Embedding,
    /// A weight `[out, in / groups, kernel…]`.
    Conv {
        /// The groups of channels.
        groups: usize,
    },
}
