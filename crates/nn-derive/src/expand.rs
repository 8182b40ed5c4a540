//! From a struct to its `impl Module`: one call per field, in the order of the fields.

use std::collections::HashMap;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{
    Data, DeriveInput, Field, Ident, Index, LitStr, Member, Path, Type, ext::IdentExt, spanned::Spanned,
};

use crate::attributes::{FieldAttributes, crate_path};

/// The impl of `Module` for `input`. `find_home` is asked for the path of the crate `nn` if no attribute names it.
pub(crate) fn module(
    input: &DeriveInput,
    find_home: impl FnOnce() -> syn::Result<Path>,
) -> syn::Result<TokenStream> {
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(data) => return Err(refusal(data.enum_token.span, "an enum")),
        Data::Union(data) => return Err(refusal(data.union_token.span, "a union")),
    };
    let explicit_home = crate_path(&input.attrs)?;
    let parameters: Vec<&Ident> = input.generics.type_params().map(|p| &p.ident).collect();
    let visits = visited(fields.iter(), &parameters)?;
    let home = match explicit_home {
        Some(path) => path,
        None => find_home()?,
    };

    // Locals are mixed-site by hand: a field or constant of the caller's cannot be mistaken for one.
    let visitor = Ident::new("visitor", Span::mixed_site());
    let shared = visits.iter().map(|v| v.shared(&home, &visitor));
    let exclusive = visits.iter().map(|v| v.exclusive(&home, &visitor));
    let name = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let lifetime = free_lifetime(input);
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #home::Module for #name #type_generics #where_clause {
            #[allow(unused_variables)]
            fn visit<#lifetime>(&#lifetime self, #visitor: &mut #home::Visitor<#lifetime>) {
                #(#shared)*
            }
            #[allow(unused_variables)]
            fn visit_mut<#lifetime>(&#lifetime mut self, #visitor: &mut #home::VisitorMut<#lifetime>) {
                #(#exclusive)*
            }
        }
    })
}

fn refusal(span: Span, what: &str) -> syn::Error {
    let message = format!(
        "derive(Module) is for structs: {what} has no fixed fields to name; implement Module by hand, visiting the \
         fields that are there"
    );
    syn::Error::new(span, message)
}

/// One field to visit.
struct Visit<'a> {
    member: Member,
    name: LitStr,
    ty: &'a Type,
    /// The type depends on a type parameter, so that only the bound can tell whether it is a module.
    generic: bool,
}

impl Visit<'_> {
    fn shared(&self, home: &Path, visitor: &Ident) -> TokenStream {
        let Visit { member, name, ty, generic } = self;
        if *generic {
            let child = Ident::new("child", Span::mixed_site());
            quote_spanned! {ty.span()=>
                #visitor.child(#name, |#child| #home::Field::visit_field(&self.#member, #child));
            }
        } else {
            quote! {{
                use #home::derive_support::{VisitModule as _, VisitPlain as _};
                #home::derive_support::FieldRef(&self.#member).visit_field(#name, #visitor);
            }}
        }
    }

    fn exclusive(&self, home: &Path, visitor: &Ident) -> TokenStream {
        let Visit { member, name, ty, generic } = self;
        if *generic {
            let child = Ident::new("child", Span::mixed_site());
            quote_spanned! {ty.span()=>
                #visitor.child(#name, |#child| #home::Field::visit_field_mut(&mut self.#member, #child));
            }
        } else {
            quote! {{
                use #home::derive_support::{VisitModuleMut as _, VisitPlainMut as _};
                #home::derive_support::FieldMut(&mut self.#member).visit_field_mut(#name, #visitor);
            }}
        }
    }
}

/// The fields to visit, with the names they go by, which must differ from one another.
fn visited<'a>(
    fields: impl Iterator<Item = &'a Field>,
    parameters: &[&Ident],
) -> syn::Result<Vec<Visit<'a>>> {
    let mut visits = Vec::new();
    let mut taken = HashMap::new();
    for (position, field) in fields.enumerate() {
        let FieldAttributes { skip, rename } = FieldAttributes::parse(&field.attrs)?;
        if skip || is_phantom(&field.ty) {
            continue;
        }
        let (member, own_name) = match &field.ident {
            Some(ident) => (Member::Named(ident.clone()), ident.unraw().to_string()),
            None => (
                Member::Unnamed(Index { index: position as u32, span: field.ty.span() }),
                position.to_string(),
            ),
        };
        let name = rename.unwrap_or_else(|| LitStr::new(&own_name, member.span()));
        if let Some(other) = taken.insert(name.value(), own_name.clone()) {
            let message =
                format!("fields `{other}` and `{own_name}` both go by the name \"{}\"", name.value());
            return Err(syn::Error::new(name.span(), message));
        }
        let generic = names_any(field.ty.to_token_stream(), parameters);
        visits.push(Visit { member, name, ty: &field.ty, generic });
    }
    Ok(visits)
}

/// `PhantomData<..>`, by whatever path.
fn is_phantom(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|s| s.ident == "PhantomData"))
}

/// Whether the type names one of the struct's type parameters.
fn names_any(tokens: TokenStream, parameters: &[&Ident]) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => parameters.iter().any(|p| **p == ident),
        TokenTree::Group(group) => names_any(group.stream(), parameters),
        _ => false,
    })
}

/// `'visit`, or the first of `'visit1`, `'visit2` … that the struct does not use itself.
fn free_lifetime(input: &DeriveInput) -> syn::Lifetime {
    let used = |name: &Ident| input.generics.lifetimes().any(|l| l.lifetime.ident == *name);
    let mut name = format_ident!("visit");
    let mut attempt = 0;
    while used(&name) {
        attempt += 1;
        name = format_ident!("visit{attempt}");
    }
    syn::Lifetime { apostrophe: Span::call_site(), ident: name }
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
