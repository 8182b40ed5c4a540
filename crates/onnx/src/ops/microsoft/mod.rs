//! Operators of ONNX Runtime's own domain, `com.microsoft`.

pub(crate) mod attention;
pub(crate) mod blocks;
pub(crate) mod fused;
pub(crate) mod quantized;
