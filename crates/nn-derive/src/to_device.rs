//! Expands a struct or enum to its `impl TensorTree`, which makes it a `ToDevice` too: a value of the same
//! type with each field mapped, or cloned if it is marked `skip`.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{
    Attribute, Data, DeriveInput, Field, Fields, Ident, Index, LitStr, Member, Path, spanned::Spanned,
};

/// The impl of `TensorTree` for `input`. `find_home` finds the path of the crate `data` if no attribute names
/// it.
pub(crate) fn to_device(
    input: &DeriveInput,
    find_home: impl FnOnce() -> syn::Result<Path>,
) -> syn::Result<TokenStream> {
    let named = crate_path(&input.attrs)?;
    // Locals have mixed-site hygiene, so that a field or constant of the caller cannot be mistaken for one.
    let map = Ident::new("map", Span::mixed_site());
    let (home, body) = match &input.data {
        Data::Union(data) => {
            return Err(syn::Error::new(
                data.union_token.span,
                "derive(ToDevice) is for structs and enums: a union does not say which of its fields is in use; \
                 implement TensorTree by hand",
            ));
        }
        Data::Struct(data) => {
            let home = named.map_or_else(find_home, Ok)?;
            let moved = moved(&data.fields, &home, &map, |member, _| quote!(&self.#member))?;
            (home, quote!(Self { #(#moved,)* }))
        }
        Data::Enum(data) => {
            let home = named.map_or_else(find_home, Ok)?;
            let mut arms = Vec::new();
            for variant in &data.variants {
                let name = &variant.ident;
                let members = variant.fields.iter().enumerate().map(|(i, field)| member(field, i));
                let locals = (0..variant.fields.len()).map(local);
                let bound = members.zip(locals).map(|(member, local)| quote!(#member: #local));
                let moved = moved(&variant.fields, &home, &map, |_, i| {
                    let local = local(i);
                    quote!(#local)
                })?;
                arms.push(quote!(Self::#name { #(#bound,)* } => Self::#name { #(#moved,)* },));
            }
            // An enum without variants has no value to match.
            let value = if arms.is_empty() { quote!(*self) } else { quote!(self) };
            (home, quote!(match #value { #(#arms)* }))
        }
    };
    let name = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #home::TensorTree for #name #type_generics #where_clause {
            #[allow(unused_variables, unreachable_code)]
            fn map_tensors(
                &self,
                #map: &mut dyn ::core::ops::FnMut(&#home::__private::Tensor) -> #home::__private::Result<#home::__private::Tensor>,
            ) -> #home::__private::Result<Self> {
                ::core::result::Result::Ok(#body)
            }
        }
    })
}

/// The fields of a new value, each `member: expression`. `borrow` gives the borrowed field. A compile error
/// points at the field's type.
fn moved(
    fields: &Fields,
    home: &Path,
    map: &Ident,
    borrow: impl Fn(&Member, usize) -> TokenStream,
) -> syn::Result<Vec<TokenStream>> {
    let one = |(i, field): (usize, &Field)| {
        let (member, ty) = (member(field, i), &field.ty);
        let from = borrow(&member, i);
        Ok(match skipped(&field.attrs)? {
            true => quote_spanned!(ty.span()=> #member: ::core::clone::Clone::clone(#from)),
            false => quote_spanned!(ty.span()=> #member: #home::TensorTree::map_tensors(#from, #map)?),
        })
    };
    fields.iter().enumerate().map(one).collect()
}

fn member(field: &Field, position: usize) -> Member {
    match &field.ident {
        Some(ident) => Member::Named(ident.clone()),
        None => Member::Unnamed(Index { index: position as u32, span: field.ty.span() }),
    }
}

/// The local variable that a variant's field is bound to.
fn local(index: usize) -> Ident {
    format_ident!("field{index}", span = Span::mixed_site())
}

/// Whether a field is marked `#[to_device(skip)]`.
fn skipped(attributes: &[Attribute]) -> syn::Result<bool> {
    let mut skip = false;
    for attribute in attributes.iter().filter(|a| a.path().is_ident("to_device")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("skip") {
                return Err(meta.error("a field takes #[to_device(skip)] only"));
            }
            skip = true;
            Ok(())
        })?;
    }
    Ok(skip)
}

/// The path in `#[to_device(crate = "path")]` on the type.
fn crate_path(attributes: &[Attribute]) -> syn::Result<Option<Path>> {
    let mut path = None;
    for attribute in attributes.iter().filter(|a| a.path().is_ident("to_device")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(
                    meta.error("a type takes #[to_device(crate = \"path\")] only; `skip` belongs to fields")
                );
            }
            path = Some(meta.value()?.parse::<LitStr>()?.parse_with(Path::parse_mod_style)?);
            Ok(())
        })?;
    }
    Ok(path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> syn::Result<String> {
        let input = syn::parse_str(text)?;
        to_device(&input, || Ok(syn::parse_quote!(::data))).map(|tokens| tokens.to_string().replace(' ', ""))
    }

    #[test]
    fn fields_are_moved_or_cloned() {
        let text = expanded("struct S { x: Tensor, #[to_device(skip)] y: Path }").unwrap();
        assert!(text.contains("x:::data::TensorTree::map_tensors(&self.x,map)?"), "{text}");
        assert!(text.contains("y:::core::clone::Clone::clone(&self.y)"), "{text}");
        let text = expanded("enum E { A(Tensor), B }").unwrap();
        assert!(
            text.contains("Self::A{0:field0,}=>Self::A{0:::data::TensorTree::map_tensors(field0,map)?,}"),
            "{text}"
        );
        assert!(expanded("enum Never {}").unwrap().contains("match*self{}"));
        let text = expanded("#[to_device(crate = \"a::b\")] struct S;").unwrap();
        assert!(text.contains("impla::b::TensorTreeforS"), "{text}");
    }

    #[test]
    fn what_it_does_not_understand_is_refused() {
        for (text, message) in [
            ("union U { x: u32 }", "structs and enums"),
            ("#[to_device(skip)] struct S;", "`skip` belongs to fields"),
            ("struct S { #[to_device(rename = \"y\")] x: u32 }", "#[to_device(skip)] only"),
        ] {
            let error = expanded(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
