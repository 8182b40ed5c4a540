//! `#[derive(Module)]`: a struct or enum of layers lists its parameters, buffers and children by the names of
//! its fields.
//!
//! Users meet this macro as `taper::nn::Module`, beside the trait of that name. `expand` writes the impl,
//! `attributes` reads `#[module(..)]`, and `home` finds the path by which the caller knows the crate `nn`.
//! `#[derive(ToDevice)]`, which users meet as `taper::data::ToDevice`, is in `to_device`.

#![deny(clippy::wildcard_enum_match_arm)] // a new variant is to be met everywhere

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
/// | field | what happens |
/// |---|---|
/// | its type is a `Field`: a layer, a `Tensor`, plain data, or a container of such (see `nn::Field`) | visited |
/// | a function pointer, or an `Option` of one | passed over |
/// | marked `#[module(skip)]` | passed over, whatever its type |
/// | any other type | a compile error: it might hold parameters |
///
/// A field whose type is a type parameter wants the bound `Module` or `Field` there. Fields of a tuple struct
/// are named `0`, `1` and so on; `r#type` is named `type`. An enum visits the fields of the variant that is
/// there, without the variant's name: those of `Two(Linear, Linear)` are `0` and `1`, and the only one of
/// `One(Linear)` stands in the enum's place, as in an `Option`. Unions are refused.
///
/// # Attributes
///
/// - `#[module(skip)]` on a field: passed over.
/// - `#[module(constant)]` on a field: its tensors that are no cells are constants. They move with the
///   module, and are neither trained nor
///   saved. Without it `Module::parameters` warns of them.
/// - `#[module(rename = "weight")]` on a field: the name in paths and state dicts.
/// - `#[module(crate = "path")]` on the type: where the crate `nn` is found, for a caller that knows it by neither
///   `taper` nor `nn`.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::module(&input, || home::find(&home::MODULE)).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `ToDevice` for a struct or an enum: a copy whose tensors are on the device, moved as one.
///
/// ```text
/// use taper::prelude::*;
///
/// #[derive(ToDevice)]
/// struct Batch {
///     images: Tensor,
///     boxes: Vec<Tensor>,
///     scale: f64,              // numbers and strings stay as they are
///     #[to_device(skip)]
///     origin: std::path::PathBuf, // any other type: cloned
/// }
///
/// let batch = batch.to(&device)?;
/// ```
///
/// Every field's type is a `ToDevice` itself, or the field is marked `#[to_device(skip)]` and cloned.
/// `#[to_device(crate = "path")]` on the type says where the crate `data` is found, for a caller that knows
/// it by neither `taper` nor `data`. Unions are refused.
#[proc_macro_derive(ToDevice, attributes(to_device))]
pub fn derive_to_device(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    let expanded = to_device::to_device(&input, || home::find(&home::TO_DEVICE));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}
