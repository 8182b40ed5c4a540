use syn::parse_quote;

use super::*;

fn expanded(input: DeriveInput) -> syn::Result<String> {
    module(&input, || Ok(parse_quote!(::nn))).map(|tokens| tokens.to_string())
}

#[track_caller]
fn expands_to(input: DeriveInput, expected: TokenStream) {
    assert_eq!(expanded(input).unwrap(), expected.to_string());
}

#[track_caller]
fn fails_with(input: DeriveInput, expected: &str) {
    let message = expanded(input).unwrap_err().to_string();
    assert!(message.contains(expected), "{message:?} does not say {expected:?}");
}

/// The names under which fields are visited, in order.
fn names(input: DeriveInput) -> Vec<String> {
    let text = expanded(input).unwrap();
    let shared = text.split("fn visit_mut").next().unwrap();
    shared.split('"').skip(1).step_by(2).map(str::to_string).collect()
}

#[test]
fn a_field_of_a_concrete_type_is_visited_if_it_is_a_module() {
    expands_to(
        parse_quote! { struct Net { fc1: Linear } },
        quote! {
            #[automatically_derived]
            impl ::nn::Module for Net {
                #[allow(unused_variables)]
                fn visit<'visit>(&'visit self, visitor: &mut ::nn::Visitor<'visit>) {
                    {
                        use ::nn::derive_support::{VisitModule as _, VisitPlain as _};
                        ::nn::derive_support::FieldRef(&self.fc1).visit_field("fc1", visitor);
                    }
                }
                #[allow(unused_variables)]
                fn visit_mut<'visit>(&'visit mut self, visitor: &mut ::nn::VisitorMut<'visit>) {
                    {
                        use ::nn::derive_support::{VisitModuleMut as _, VisitPlainMut as _};
                        ::nn::derive_support::FieldMut(&mut self.fc1).visit_field_mut("fc1", visitor);
                    }
                }
            }
        },
    );
}

#[test]
fn a_field_of_a_generic_type_must_be_a_module() {
    expands_to(
        parse_quote! {
            struct Block<'visit, const N: usize, M: Module> where M: Clone { inner: [M; N], name: &'visit str }
        },
        quote! {
            #[automatically_derived]
            impl<'visit, const N: usize, M: Module> ::nn::Module for Block<'visit, N, M> where M: Clone {
                #[allow(unused_variables)]
                fn visit<'visit1>(&'visit1 self, visitor: &mut ::nn::Visitor<'visit1>) {
                    visitor.child("inner", |child| ::nn::Field::visit_field(&self.inner, child));
                    {
                        use ::nn::derive_support::{VisitModule as _, VisitPlain as _};
                        ::nn::derive_support::FieldRef(&self.name).visit_field("name", visitor);
                    }
                }
                #[allow(unused_variables)]
                fn visit_mut<'visit1>(&'visit1 mut self, visitor: &mut ::nn::VisitorMut<'visit1>) {
                    visitor.child("inner", |child| ::nn::Field::visit_field_mut(&mut self.inner, child));
                    {
                        use ::nn::derive_support::{VisitModuleMut as _, VisitPlainMut as _};
                        ::nn::derive_support::FieldMut(&mut self.name).visit_field_mut("name", visitor);
                    }
                }
            }
        },
    );
}

#[test]
fn a_unit_struct_has_nothing_to_visit() {
    let text = expanded(parse_quote! { struct Relu; }).unwrap();
    assert!(text.contains(":: nn :: Module for Relu"));
    assert!(!text.contains("derive_support"));
}

#[test]
fn fields_go_by_their_names_their_positions_or_what_they_say() {
    assert_eq!(names(parse_quote! { struct A { fc1: Linear, r#type: Tensor } }), ["fc1", "type"]);
    assert_eq!(names(parse_quote! { struct A(Linear, #[module(skip)] Linear, Linear); }), ["0", "2"]);
    assert_eq!(names(parse_quote! { struct A { #[module(rename = "weight")] w: Tensor } }), ["weight"]);
    assert_eq!(
        names(parse_quote! { struct A<T> { at: PhantomData<T>, of: std::marker::PhantomData<T> } }),
        [""; 0]
    );
}

#[test]
fn two_fields_of_one_name_are_refused() {
    fails_with(
        parse_quote! { struct A { weight: Tensor, #[module(rename = "weight")] w: Tensor } },
        "fields `weight` and `w` both go by the name \"weight\"",
    );
    // Unless one of them is not visited.
    assert_eq!(
        names(
            parse_quote! { struct A { #[module(skip)] weight: f32, #[module(rename = "weight")] w: Tensor } }
        ),
        ["weight"]
    );
}

#[test]
fn enums_and_unions_are_refused() {
    fails_with(parse_quote! { enum A { B(Linear) } }, "for structs: an enum has no fixed fields");
    fails_with(parse_quote! { union A { b: u8 } }, "for structs: a union has no fixed fields");
}

#[test]
fn attributes_that_mean_nothing_are_refused() {
    let field = "a field takes #[module(skip)] or #[module(rename = \"name\")]";
    fails_with(parse_quote! { struct A { #[module(ignore)] b: Tensor } }, field);
    fails_with(parse_quote! { struct A { #[module(crate = "nn")] b: Tensor } }, field);
    fails_with(
        parse_quote! { #[module(skip)] struct A { b: Tensor } },
        "a struct takes #[module(crate = \"path\")]",
    );
    fails_with(
        parse_quote! { struct A { #[module(rename = "a.b")] b: Tensor } },
        "\"a.b\" is empty or has a dot",
    );
    fails_with(parse_quote! { struct A { #[module(rename = "")] b: Tensor } }, "\"\" is empty or has a dot");
    fails_with(parse_quote! { struct A { #[module(rename = 3)] b: Tensor } }, "expected string literal");
    fails_with(parse_quote! { struct A { #[module(rename = "a", rename = "c")] b: Tensor } }, "given twice");
    fails_with(parse_quote! { struct A { #[module(skip, rename = "a")] b: Tensor } }, "not both");
    fails_with(parse_quote! { struct A { #[module] b: Tensor } }, "expected attribute arguments");
    fails_with(parse_quote! { #[module(crate = "a b")] struct A { b: Tensor } }, "unexpected token");
}

#[test]
fn the_home_can_be_named() {
    let text = expanded(parse_quote! { #[module(crate = "my::own")] struct A { b: Tensor } }).unwrap();
    assert!(text.contains("impl my :: own :: Module for A"));
    assert!(!text.contains(":: nn"));
    // And is then not looked for.
    let input = parse_quote! { #[module(crate = "crate")] struct A { b: Tensor } };
    assert!(module(&input, || unreachable!()).is_ok());
}

#[test]
fn a_home_not_found_is_an_error() {
    let nowhere = || Err(syn::Error::new(Span::call_site(), "nowhere"));
    assert_eq!(module(&parse_quote! { struct A; }, nowhere).unwrap_err().to_string(), "nowhere");
}
