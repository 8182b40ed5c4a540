//! nn-derive
