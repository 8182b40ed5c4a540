//! Finds the path by which the deriving crate knows the crate `nn` (or `data`): `::nn` inside this
//! workspace, `::taper::nn` outside.

use proc_macro2::Span;
use syn::{Ident, Path, parse_quote};

use crate::manifest::{self, Found};

/// A derive macro: its name, the crate of its trait, and the attribute that can name another path of that
/// crate.
pub(crate) struct Derive {
    pub(crate) name: &'static str,
    pub(crate) home: &'static str,
    pub(crate) attribute: &'static str,
}

pub(crate) const MODULE: Derive = Derive { name: "Module", home: "nn", attribute: "module" };
pub(crate) const TO_DEVICE: Derive = Derive { name: "ToDevice", home: "data", attribute: "to_device" };

/// Reads the caller's `Cargo.toml`. Crates that depend on both `nn` and `taper` get the path in `taper`. The
/// exceptions are those two crates themselves, whose libraries, tests, examples and doctests all know
/// `::nn`.
pub(crate) fn find(derive: &Derive) -> syn::Result<Path> {
    let Derive { name, home, attribute } = derive;
    choose(home, manifest::find(&format!("taper-{home}"), home), manifest::find("taper", "taper")).ok_or_else(|| {
        let message = format!(
            "derive({name}) found neither `taper` nor `taper-{home}` among the dependencies in Cargo.toml; add `taper`, or name \
             the path of the crate `{home}` with #[{attribute}(crate = \"path\")]",
        );
        syn::Error::new(Span::call_site(), message)
    })
}

fn choose(home: &str, own: Option<Found>, taper: Option<Found>) -> Option<Path> {
    let name = |name: &str| Ident::new(name, Span::call_site());
    let home = name(home);
    match (own, taper) {
        // Inside nn, whose lib.rs declares `extern crate self as nn`.
        (Some(Found::Itself), _) => Some(parse_quote!(::#home)),
        // Inside taper, which depends on nn.
        (Some(Found::Name(own)), Some(Found::Itself)) => {
            let own = name(&own);
            Some(parse_quote!(::#own))
        }
        (None, Some(Found::Itself)) => Some(parse_quote!(::taper::#home)),
        (_, Some(Found::Name(taper))) => {
            let taper = name(&taper);
            Some(parse_quote!(::#taper::#home))
        }
        (Some(Found::Name(own)), None) => {
            let own = name(&own);
            Some(parse_quote!(::#own))
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;

    use super::*;

    fn chosen(nn: Option<Found>, taper: Option<Found>) -> Option<String> {
        choose("nn", nn, taper).map(|path| path.to_token_stream().to_string().replace(' ', ""))
    }

    #[test]
    fn the_path_follows_what_the_caller_depends_on() {
        let named = |name: &str| Some(Found::Name(name.to_string()));
        let itself = || Some(Found::Itself);
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
