//! Functions of each element: arithmetic, activations, special functions, bits, draws by parameters.

pub(crate) mod activation;
pub(crate) mod affine;
pub(crate) mod bits;
pub(crate) mod blend;
pub(crate) mod distributions;
pub(crate) mod elementwise;
pub(crate) mod logarithms;
pub(crate) mod signs;
pub(crate) mod special;
