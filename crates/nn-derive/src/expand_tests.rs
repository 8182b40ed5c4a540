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

/// The names of the visited fields, in order.
fn names(input: DeriveInput) -> Vec<String> {
    let text = expanded(input).unwrap();
    let shared = text.split("fn visit_mut").next().unwrap();
    shared.split('"').skip(1).step_by(2).map(str::to_string).collect()
}

#[test]
fn every_field_of_a_struct_is_visited() {
    expands_to(
        parse_quote! { struct Net<'a, M: Module> where M: Clone { fc1: Linear, inner: [M; 2], name: &'a str } },
        quote! {
            #[automatically_derived]
            impl<'a, M: Module> ::nn::Module for Net<'a, M> where M: Clone {
                #[allow(unused_variables)]
                fn visit(&self, visitor: &mut ::nn::Visitor) {
                    ::nn::Visitor::field(visitor, "fc1", &self.fc1);
                    ::nn::Visitor::field(visitor, "inner", &self.inner);
                    ::nn::Visitor::field(visitor, "name", &self.name);
                }
                #[allow(unused_variables)]
                fn visit_mut(&mut self, visitor: &mut ::nn::VisitorMut) {
                    ::nn::VisitorMut::field(visitor, "fc1", &mut self.fc1);
                    ::nn::VisitorMut::field(visitor, "inner", &mut self.inner);
                    ::nn::VisitorMut::field(visitor, "name", &mut self.name);
                }
            }
        },
    );
}

#[test]
fn the_variant_of_an_enum_that_is_there_is_visited() {
    expands_to(
        parse_quote! { enum Head { None, One(Linear), Two(Linear, #[module(skip)] Raw), Named { fc: Linear } } },
        quote! {
            #[automatically_derived]
            impl ::nn::Module for Head {
                #[allow(unused_variables)]
                fn visit(&self, visitor: &mut ::nn::Visitor) {
                    match self {
                        Self::None { .. } => {}
                        Self::One { 0: field0, .. } => { ::nn::Visitor::field(visitor, "", field0); }
                        Self::Two { 0: field0, .. } => { ::nn::Visitor::field(visitor, "0", field0); }
                        Self::Named { fc: field0, .. } => { ::nn::Visitor::field(visitor, "fc", field0); }
                    }
                }
                #[allow(unused_variables)]
                fn visit_mut(&mut self, visitor: &mut ::nn::VisitorMut) {
                    match self {
                        Self::None { .. } => {}
                        Self::One { 0: field0, .. } => { ::nn::VisitorMut::field(visitor, "", field0); }
                        Self::Two { 0: field0, .. } => { ::nn::VisitorMut::field(visitor, "0", field0); }
                        Self::Named { fc: field0, .. } => { ::nn::VisitorMut::field(visitor, "fc", field0); }
                    }
                }
            }
        },
    );
}

#[test]
fn function_pointers_are_passed_over() {
    assert_eq!(
        names(parse_quote! { struct A { f: fn(&Tensor) -> Tensor, g: Option<fn(&Tensor)>, h: Linear } }),
        ["h"]
    );
}

#[test]
fn a_unit_struct_has_nothing_to_visit() {
    let text = expanded(parse_quote! { struct Relu; }).unwrap();
    assert!(text.contains(":: nn :: Module for Relu"));
    assert!(!text.contains("field"));
}

#[test]
fn fields_go_by_their_names_their_positions_or_what_they_say() {
    assert_eq!(names(parse_quote! { struct A { fc1: Linear, r#type: Tensor } }), ["fc1", "type"]);
    assert_eq!(names(parse_quote! { struct A(Linear, #[module(skip)] Linear, Linear); }), ["0", "2"]);
    assert_eq!(names(parse_quote! { struct A { #[module(rename = "weight")] w: Tensor } }), ["weight"]);
}

#[test]
fn constants_are_visited_as_such() {
    let text = expanded(parse_quote! { struct A { #[module(constant)] table: Tensor } }).unwrap();
    assert!(text.contains(":: nn :: Visitor :: constant (visitor , \"table\" , & self . table)"), "{text}");
    assert!(
        text.contains(":: nn :: VisitorMut :: constant (visitor , \"table\" , & mut self . table)"),
        "{text}"
    );
    fails_with(parse_quote! { struct A { #[module(skip, constant)] b: Tensor } }, "not both");
}

#[test]
fn two_fields_of_one_name_are_refused() {
    fails_with(
        parse_quote! { struct A { weight: Tensor, #[module(rename = "weight")] w: Tensor } },
        "fields `weight` and `w` both go by the name \"weight\"",
    );
    // Equal names are allowed if one of the fields is not visited.
    assert_eq!(
        names(
            parse_quote! { struct A { #[module(skip)] weight: f32, #[module(rename = "weight")] w: Tensor } }
        ),
        ["weight"]
    );
}

#[test]
fn unions_are_refused() {
    fails_with(parse_quote! { union A { b: u8 } }, "for structs and enums: a union does not say");
}

#[test]
fn attributes_that_mean_nothing_are_refused() {
    let field = "a field takes #[module(skip)], #[module(constant)] or #[module(rename = \"name\")]";
    fails_with(parse_quote! { struct A { #[module(ignore)] b: Tensor } }, field);
    fails_with(parse_quote! { struct A { #[module(crate = "nn")] b: Tensor } }, field);
    fails_with(
        parse_quote! { #[module(skip)] struct A { b: Tensor } },
        "a type takes #[module(crate = \"path\")]",
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
    // An attribute that names the path replaces the search.
    let input = parse_quote! { #[module(crate = "crate")] struct A { b: Tensor } };
    assert!(module(&input, || unreachable!()).is_ok());
}

#[test]
fn a_home_not_found_is_an_error() {
    let nowhere = || Err(syn::Error::new(Span::call_site(), "nowhere"));
    assert_eq!(module(&parse_quote! { struct A; }, nowhere).unwrap_err().to_string(), "nowhere");
}
