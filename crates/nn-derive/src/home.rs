//! The path by which the crate that derives knows the crate `nn`: `::nn` inside this workspace, `::taper::nn` outside.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::Span;
use syn::{Ident, Path, parse_quote};

/// Reads the caller's `Cargo.toml`. Crates that depend on both `nn` and `taper` get `taper`'s, except in those two
/// crates themselves, whose libraries, tests, examples and doctests all know `::nn`.
pub(crate) fn find() -> syn::Result<Path> {
    choose(crate_name("nn").ok(), crate_name("taper").ok()).ok_or_else(|| {
        syn::Error::new(
            Span::call_site(),
            "derive(Module) finds neither `taper` nor `nn` among the dependencies in Cargo.toml; add `taper`, or name \
             the path of the crate `nn` with #[module(crate = \"path\")]",
        )
    })
}

fn choose(nn: Option<FoundCrate>, taper: Option<FoundCrate>) -> Option<Path> {
    let name = |name: &str| Ident::new(name, Span::call_site());
    match (nn, taper) {
        // Inside nn, whose lib.rs says `extern crate self as nn`.
        (Some(FoundCrate::Itself), _) => Some(parse_quote!(::nn)),
        // Inside taper, which depends on nn.
        (Some(FoundCrate::Name(nn)), Some(FoundCrate::Itself)) => {
            let nn = name(&nn);
            Some(parse_quote!(::#nn))
        }
        (None, Some(FoundCrate::Itself)) => Some(parse_quote!(::taper::nn)),
        (_, Some(FoundCrate::Name(taper))) => {
            let taper = name(&taper);
            Some(parse_quote!(::#taper::nn))
        }
        (Some(FoundCrate::Name(nn)), None) => {
            let nn = name(&nn);
            Some(parse_quote!(::#nn))
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;

    use super::*;

    fn chosen(nn: Option<FoundCrate>, taper: Option<FoundCrate>) -> Option<String> {
        choose(nn, taper).map(|path| path.to_token_stream().to_string().replace(' ', ""))
    }

    #[test]
    fn the_path_follows_what_the_caller_depends_on() {
        let named = |name: &str| Some(FoundCrate::Name(name.to_string()));
        let itself = || Some(FoundCrate::Itself);
        for (nn, taper, expected) in [
            (itself(), None, Some("::nn")),
            (itself(), named("taper"), Some("::nn")),
            (named("nn"), None, Some("::nn")),
            (named("layers"), None, Some("::layers")),
            (named("nn"), itself(), Some("::nn")),
            (None, itself(), Some("::taper::nn")),
            (None, named("taper"), Some("::taper::nn")),
            (named("nn"), named("candle_light"), Some("::candle_light::nn")),
            (None, None, None),
        ] {
            assert_eq!(chosen(nn, taper).as_deref(), expected);
        }
    }
}
