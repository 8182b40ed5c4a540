//! The derive at work on a miniature of the crate `nn`: the trait, the two visitors, one kind of leaf, and the real
//! `derive_support`.

#![allow(missing_docs)]

use std::{collections::HashMap, marker::PhantomData};

use nn_derive::Module;

#[path = "../../nn/src/derive_support.rs"]
pub mod derive_support;

pub trait Module {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>);
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>);
}

pub trait Field {
    fn visit_field<'a>(&'a self, visitor: &mut Visitor<'a>);
    fn visit_field_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>);
}

impl<M: Module + ?Sized> Field for M {
    fn visit_field<'a>(&'a self, visitor: &mut Visitor<'a>) {
        self.visit(visitor);
    }
    fn visit_field_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        self.visit_mut(visitor);
    }
}

#[derive(Default)]
pub struct Visitor<'a> {
    path: Vec<&'static str>,
    leaves: Vec<(String, &'a Leaf)>,
}

impl<'a> Visitor<'a> {
    pub fn child(&mut self, name: &'static str, visit: impl FnOnce(&mut Visitor<'a>)) {
        self.path.push(name);
        visit(self);
        self.path.pop();
    }
}

#[derive(Default)]
pub struct VisitorMut<'a> {
    path: Vec<&'static str>,
    leaves: Vec<(String, &'a mut Leaf)>,
}

impl<'a> VisitorMut<'a> {
    pub fn child(&mut self, name: &'static str, visit: impl FnOnce(&mut VisitorMut<'a>)) {
        self.path.push(name);
        visit(self);
        self.path.pop();
    }
}

pub struct Leaf(i32);

impl Module for Leaf {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        visitor.leaves.push((visitor.path.join("."), self));
    }
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        visitor.leaves.push((visitor.path.join("."), self));
    }
}

impl<M: Module> Module for Option<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        self.iter().for_each(|m| m.visit(visitor));
    }
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        self.iter_mut().for_each(|m| m.visit_mut(visitor));
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        (**self).visit(visitor);
    }
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        (**self).visit_mut(visitor);
    }
}

fn leaves(module: &dyn Module) -> Vec<(String, i32)> {
    let mut visitor = Visitor::default();
    module.visit(&mut visitor);
    visitor.leaves.into_iter().map(|(path, leaf)| (path, leaf.0)).collect()
}

#[track_caller]
fn has_leaves(module: &mut dyn Module, expected: &[(&str, i32)]) {
    let expected: Vec<_> = expected.iter().map(|(path, value)| (path.to_string(), *value)).collect();
    assert_eq!(leaves(module), expected);
    let mut visitor = VisitorMut::default();
    module.visit_mut(&mut visitor);
    for (_, leaf) in &mut visitor.leaves {
        leaf.0 += 1;
    }
    let paths: Vec<_> = visitor.leaves.into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, expected.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>());
    let raised: Vec<_> = expected.into_iter().map(|(path, value)| (path, value + 1)).collect();
    assert_eq!(leaves(module), raised);
}

#[derive(Module)]
#[module(crate = "crate")]
struct Linear {
    weight: Leaf,
    bias: Option<Leaf>,
    pub features: usize,
}

fn linear(first: i32) -> Linear {
    Linear { weight: Leaf(first), bias: Some(Leaf(first + 1)), features: 3 }
}

#[derive(Module)]
#[module(crate = "crate")]
struct Net {
    fc1: Linear,
    name: String,
    seen: HashMap<String, Vec<f64>>,
    r#type: Leaf,
    boxed: Box<dyn Module>,
    on_step: Option<fn(&mut usize) -> usize>,
    #[module(skip)]
    teacher: Linear,
    #[module(rename = "head")]
    fc2: Linear,
}

#[test]
fn modules_are_visited_and_the_rest_is_passed_over() {
    let mut net = Net {
        fc1: linear(10),
        name: "net".to_string(),
        seen: HashMap::new(),
        r#type: Leaf(20),
        boxed: Box::new(Leaf(30)),
        on_step: None,
        teacher: linear(90),
        fc2: Linear { bias: None, ..linear(40) },
    };
    let expected = [("fc1.weight", 10), ("fc1.bias", 11), ("type", 20), ("boxed", 30), ("head.weight", 40)];
    has_leaves(&mut net, &expected);
    assert_eq!((net.name.as_str(), net.seen.len(), net.on_step, net.fc1.features), ("net", 0, None, 3));
    assert_eq!(net.teacher.weight.0, 90);
}

#[derive(Module)]
#[module(crate = "crate")]
struct Pair(Leaf, f32, Linear);

#[derive(Module)]
#[module(crate = "crate")]
struct Nothing;

#[test]
fn tuple_and_unit_structs() {
    has_leaves(&mut Pair(Leaf(1), 0.5, linear(2)), &[("0", 1), ("2.weight", 2), ("2.bias", 3)]);
    has_leaves(&mut Nothing, &[]);
}

trait Layer: Module {}
impl Layer for Linear {}

#[derive(Module)]
#[module(crate = "crate")]
struct Residual<'n, A: Module, B, T, const N: usize>
where
    B: Layer,
{
    a: A,
    b: Option<B>,
    note: &'n str,
    sizes: [usize; N],
    of: PhantomData<T>,
    #[module(skip)]
    extra: T,
}

#[test]
fn generic_fields_are_visited_through_their_bounds() {
    let mut block = Residual {
        a: Leaf(1),
        b: Some(linear(2)),
        note: "skip connection",
        sizes: [0; 2],
        of: PhantomData,
        extra: 7u8,
    };
    has_leaves(&mut block, &[("a", 1), ("b.weight", 2), ("b.bias", 3)]);
    assert_eq!((block.note.len(), block.sizes.len(), block.of, block.extra), (15, 2, PhantomData, 7));
}
