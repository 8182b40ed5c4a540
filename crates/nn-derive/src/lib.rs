//! `#[derive(Module)]`: a struct of layers lists its parameters, buffers and children by the names of its fields.
//!
//! Users meet this macro as `taper::nn::Module`, beside the trait of that name. `expand` writes the impl,
//! `attributes` reads `#[module(..)]`, and `home` finds the path by which the caller knows the crate `nn`.

mod attributes;
mod expand;
mod home;

/// Implements `Module` for a struct: each field that is a `Field` (a tensor, a module) is visited under its own name.
///
/// ```text
/// use taper::prelude::*;
///
/// #[derive(Module)]
/// struct SimpleNet {
///     fc1: Linear,      // gives fc1.weight and fc1.bias, as in PyTorch
///     fc2: Linear,
///     classes: usize,   // no Field: passed over
/// }
/// ```
///
/// | field | what happens |
/// |---|---|
/// | its type is a `Field`: a layer, a `Tensor`, an `Option`, `Vec` or `Box` of such | visited |
/// | any other concrete type: `usize`, `String`, a configuration struct | passed over |
/// | its type names a type parameter of the struct: `M`, `Vec<M>` | visited; the compiler asks for the bound `M: Field`, which every `Module` fulfils |
/// | `PhantomData<..>` | passed over |
/// | marked `#[module(skip)]` | passed over, whatever its type |
///
/// A field of a generic type is never passed over in silence: give its parameter the bound `Module` or `Field`, or mark
/// the field `#[module(skip)]`. Fields of a tuple struct are named `0`, `1` and so on; `r#type` is named `type`.
/// Enums and unions are refused: implement `Module` for them by hand.
///
/// # Attributes
///
/// - `#[module(skip)]` on a field: passed over.
/// - `#[module(rename = "weight")]` on a field: the name in paths and state dicts.
/// - `#[module(crate = "path")]` on the struct: where the crate `nn` is found, for a caller that knows it by neither
///   `taper` nor `nn`.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::module(&input, home::find).unwrap_or_else(syn::Error::into_compile_error).into()
}
