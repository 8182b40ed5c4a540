//! Types that `#[derive(Module)]` refuses, one compile-fail doctest each. The first example shows that the
//! rest compiles without the field in question.
//!
//! ```
//! use nn::{Linear, Module};
//! struct Head { linear: Linear }
//! #[derive(Module)]
//! struct Net { body: Linear, #[module(skip)] head: Head }
//! ```
//!
//! A struct that does not derive `Module`:
//! ```compile_fail,E0277
//! use nn::{Linear, Module};
//! struct Head { linear: Linear }
//! #[derive(Module)]
//! struct Net { body: Linear, head: Head }
//! ```
//!
//! Such a struct in containers:
//! ```compile_fail,E0277
//! use nn::{Linear, Module};
//! struct Head { linear: Linear }
//! #[derive(Module)]
//! struct Net { body: Linear, heads: std::collections::HashMap<String, Vec<Head>> }
//! ```
//! ```compile_fail,E0277
//! use nn::{Linear, Module};
//! struct Head { linear: Linear }
//! #[derive(Module)]
//! struct Net { body: Linear, head: std::sync::Arc<Head> }
//! ```
//!
//! A closure, which may hold parameters:
//! ```compile_fail,E0277
//! use nn::{Linear, Module};
//! use tensor_core::Tensor;
//! #[derive(Module)]
//! struct Net { body: Linear, activation: Box<dyn Fn(&Tensor) -> Tensor> }
//! ```
//!
//! A type parameter without a bound:
//! ```compile_fail,E0277
//! use nn::{Linear, Module};
//! #[derive(Module)]
//! struct Net<T> { body: Linear, head: T }
//! ```
//!
//! A borrowed layer:
//! ```compile_fail,E0277
//! use nn::{Linear, Module};
//! #[derive(Module)]
//! struct Net<'a> { body: &'a Linear }
//! ```
//!
//! A variant of an enum:
//! ```compile_fail,E0277
//! use nn::{Linear, Module};
//! struct Raw { linear: Linear }
//! #[derive(Module)]
//! enum Head { None, Some(Raw) }
//! ```
