//! `#[derive(Module)]`: lists the parameters, buffers and children of a struct or enum of layers by the
//! names of its fields.
//!
//! Users know this macro as `taper::nn::Module`, beside the trait of that name. `expand` writes the impl,
//! `attributes` reads `#[module(..)]`, and `home` finds the path by which the caller knows the crate `nn`.
//! `#[derive(ToDevice)]`, which users know as `taper::data::ToDevice`, is in `to_device`.

#![deny(clippy::wildcard_enum_match_arm)] // a new variant must be handled everywhere

mod attributes;
mod expand;
mod home;
mod manifest;
mod to_device;

/// Implements `Module` for a struct or an enum: each field is visited under its own name.
///
/// ```text
/// use taper::prelude::*;
///
/// #[derive(Module)]
/// struct SimpleNet {
///     fc1: Linear,      // gives fc1.weight and fc1.bias, as in PyTorch
///     fc2: Linear,
///     classes: usize,   // plain data
/// }
/// ```
///
/// | field | effect |
/// |---|---|
/// | its type is a `Field`: a layer, a `Tensor`, plain data or a container of these | visited |
/// | a function pointer, or an `Option` of one | skipped |
/// | marked `#[module(skip)]` | skipped, whatever its type |
/// | any other type | a compile error: it might hold parameters |
///
/// A field whose type is a type parameter needs the bound `Module` or `Field` on it. Fields of a tuple
/// struct are named `0`, `1` and so on; `r#type` is named `type`. An enum visits the fields of its current
/// variant, without the variant's name: those of `Two(Linear, Linear)` are `0` and `1`, and the only field
/// of `One(Linear)` takes the place of the enum, as in an `Option`. Unions are refused.
///
/// # Attributes
///
/// - `#[module(skip)]` on a field: the field is not visited.
/// - `#[module(constant)]` on a field: its tensors that are neither parameters nor buffers are constants.
///   They move with the module, and are neither trained nor saved. Without it `Module::parameters` warns
///   about them.
/// - `#[module(rename = "weight")]` on a field: its name in paths and state dicts.
/// - `#[module(crate = "path")]` on the type: the path of the crate `nn`, for a caller that depends on
///   neither `taper` nor `nn`.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::module(&input, || home::find(&home::MODULE)).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `ToDevice` for a struct or an enum: a copy with all its tensors on the device.
///
/// ```text
/// use taper::prelude::*;
///
/// #[derive(ToDevice)]
/// struct Batch {
///     images: Tensor,
///     boxes: Vec<Tensor>,
///     scale: f64,              // numbers and strings are copied
///     #[to_device(skip)]
///     origin: std::path::PathBuf, // any other type: cloned
/// }
///
/// let batch = batch.to(&device)?;
/// ```
///
/// Every field's type must be a `ToDevice` itself, or the field is marked `#[to_device(skip)]` and cloned.
/// `#[to_device(crate = "path")]` on the type gives the path of the crate `data`, for a caller that depends
/// on neither `taper` nor `data`. Unions are refused.
#[proc_macro_derive(ToDevice, attributes(to_device))]
pub fn derive_to_device(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    let expanded = to_device::to_device(&input, || home::find(&home::TO_DEVICE));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}
