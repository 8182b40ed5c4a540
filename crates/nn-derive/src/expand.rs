//! Expands a struct or enum to its `impl Module`: one call per field, in the order of the fields. Each call
//! requires `Field` of the field's type, so that a type that is neither a module nor plain data does not
//! compile.

use std::collections::HashMap;

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{
    Data, DeriveInput, Field, Fields, GenericArgument, Ident, Index, LitStr, Member, Path, PathArguments,
    Type, ext::IdentExt, spanned::Spanned,
};

use crate::attributes::{FieldAttributes, crate_path};

/// The impl of `Module` for `input`. `find_home` finds the path of the crate `nn` if no attribute names it.
pub(crate) fn module(
    input: &DeriveInput,
    find_home: impl FnOnce() -> syn::Result<Path>,
) -> syn::Result<TokenStream> {
    let parts = Parts::of(&input.data)?;
    let home = match crate_path(&input.attrs)? {
        Some(path) => path,
        None => find_home()?,
    };
    // Locals have mixed-site hygiene, so that a field or constant of the caller cannot be mistaken for one.
    let visitor = Ident::new("visitor", Span::mixed_site());
    let shared = parts.body(&home, Access::Shared, &visitor);
    let exclusive = parts.body(&home, Access::Exclusive, &visitor);
    let name = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #home::Module for #name #type_generics #where_clause {
            #[allow(unused_variables)]
            fn visit(&self, #visitor: &mut #home::Visitor) {
                #shared
            }
            #[allow(unused_variables)]
            fn visit_mut(&mut self, #visitor: &mut #home::VisitorMut) {
                #exclusive
            }
        }
    })
}

/// The fields or variants of a type.
enum Parts<'a> {
    Struct(Vec<Visit<'a>>),
    Enum(Vec<(&'a Ident, Vec<Visit<'a>>)>),
}

impl Parts<'_> {
    fn of(data: &Data) -> syn::Result<Parts<'_>> {
        match data {
            Data::Struct(data) => Ok(Parts::Struct(visited(&data.fields, false)?)),
            Data::Enum(data) => {
                let variants = data.variants.iter();
                let visits = variants.map(|variant| Ok((&variant.ident, visited(&variant.fields, true)?)));
                Ok(Parts::Enum(visits.collect::<syn::Result<_>>()?))
            }
            Data::Union(data) => Err(syn::Error::new(
                data.union_token.span,
                "derive(Module) is for structs and enums: a union does not say which of its fields is in use; \
                 implement Module by hand",
            )),
        }
    }

    /// The body of one of the two methods of `Module`.
    fn body(&self, home: &Path, access: Access, visitor: &Ident) -> TokenStream {
        match self {
            Parts::Struct(visits) => {
                let calls = visits.iter().map(|visit| visit.of_self(home, access, visitor));
                quote!(#(#calls)*)
            }
            // An enum without variants has no value to match.
            Parts::Enum(variants) if variants.is_empty() => quote!(match *self {}),
            Parts::Enum(variants) => {
                let arms = variants.iter().map(|(name, visits)| {
                    let (members, locals): (Vec<_>, Vec<_>) =
                        visits.iter().enumerate().map(|(i, visit)| (&visit.member, local(i))).unzip();
                    let calls = visits
                        .iter()
                        .zip(&locals)
                        .map(|(visit, local)| visit.call(home, access, quote!(#local), visitor));
                    quote!(Self::#name { #(#members: #locals,)* .. } => { #(#calls)* })
                });
                quote!(match self { #(#arms)* })
            }
        }
    }
}

/// The local variable that a variant's field is bound to.
fn local(index: usize) -> Ident {
    format_ident!("field{index}", span = Span::mixed_site())
}

/// The method of `Module` that is generated: shared or exclusive access.
#[derive(Clone, Copy)]
enum Access {
    Shared,
    Exclusive,
}

/// One field to visit.
struct Visit<'a> {
    member: Member,
    name: LitStr,
    ty: &'a Type,
    /// Whether the field's tensors are constants.
    constant: bool,
}

impl Visit<'_> {
    /// The place of the field's type, with the names of the derive's own code.
    fn span(&self) -> Span {
        self.ty.span().resolved_at(Span::call_site())
    }

    /// The visit of a field of a struct.
    fn of_self(&self, home: &Path, access: Access, visitor: &Ident) -> TokenStream {
        let (member, span) = (&self.member, self.span());
        let field = match access {
            Access::Shared => quote_spanned!(span=> &self.#member),
            Access::Exclusive => quote_spanned!(span=> &mut self.#member),
        };
        self.call(home, access, field, visitor)
    }

    /// The visit of a borrowed field. A compile error points at the field: both the call and its argument
    /// have the span of the field's type.
    fn call(&self, home: &Path, access: Access, field: TokenStream, visitor: &Ident) -> TokenStream {
        let name = &self.name;
        let method = if self.constant { quote!(constant) } else { quote!(field) };
        let kind = match access {
            Access::Shared => quote!(Visitor),
            Access::Exclusive => quote!(VisitorMut),
        };
        quote_spanned! {self.span()=> #home::#kind::#method(#visitor, #name, #field); }
    }
}

/// The fields to visit, each with a unique name. The only field of a tuple variant has an empty name: it
/// takes the place of its enum, as that of an `Option` does.
fn visited(fields: &Fields, variant: bool) -> syn::Result<Vec<Visit<'_>>> {
    let only = variant && matches!(fields, Fields::Unnamed(fields) if fields.unnamed.len() == 1);
    let mut visits = Vec::new();
    let mut taken = HashMap::new();
    for (position, field) in fields.iter().enumerate() {
        let FieldAttributes { skip, constant, rename } = FieldAttributes::parse(&field.attrs)?;
        if skip || is_function(&field.ty) {
            continue;
        }
        let (member, own_name) = own_name(field, position);
        let default = if only { String::new() } else { own_name.clone() };
        let name = rename.unwrap_or_else(|| LitStr::new(&default, member.span()));
        if let Some(other) = taken.insert(name.value(), own_name.clone()) {
            let message =
                format!("fields `{other}` and `{own_name}` both go by the name \"{}\"", name.value());
            return Err(syn::Error::new(name.span(), message));
        }
        visits.push(Visit { member, name, ty: &field.ty, constant });
    }
    Ok(visits)
}

fn own_name(field: &Field, position: usize) -> (Member, String) {
    match &field.ident {
        Some(ident) => (Member::Named(ident.clone()), ident.unraw().to_string()),
        None => {
            (Member::Unnamed(Index { index: position as u32, span: field.ty.span() }), position.to_string())
        }
    }
}

/// Whether the type is a function pointer or an `Option` of one. It holds no tensors, and no trait can be
/// implemented for all functions that take references.
#[expect(clippy::wildcard_enum_match_arm, reason = "syn's enum may grow, and other types are no functions")]
fn is_function(ty: &Type) -> bool {
    match ty {
        Type::FnPtr(_) => true,
        Type::Paren(inner) => is_function(&inner.elem),
        Type::Group(inner) => is_function(&inner.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|segment| {
            let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return false };
            let mut types = arguments.args.iter();
            segment.ident == "Option"
                && matches!((types.next(), types.next()), (Some(GenericArgument::Type(ty)), None) if is_function(ty))
        }),
        _ => false,
    }
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
