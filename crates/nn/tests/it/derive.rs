//! `#[derive(Module)]`: the contents of every container are trained, moved and saved, under PyTorch's names.
//! The doctests of `nn::misfits` have the types that do not compile.
#![allow(clippy::unwrap_used)]

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, HashMap, VecDeque},
    marker::PhantomData,
    path::PathBuf,
    rc::Rc,
    sync::{Arc, Mutex, RwLock},
    time::Duration,
};

use crate::common::device;
use autograd::TensorGrad;
use nn::{Dropout, Layer, Linear, Module, Parameter, Relu, Sequential, Training, Visitor, VisitorMut};
use tensor_core::{DType, Device, Generator, Result, Shape, Tensor};

fn linear(rng: &Generator) -> Linear {
    Linear::new(2, 2, rng).unwrap()
}

/// A module's parameters get gradients by its forward, move by `to`, are in the state dict, and are set to
/// evaluation.
#[track_caller]
fn trains_moves_and_saves<M: Module>(
    what: &str,
    mut module: M,
    names: &[&str],
    forward: impl Fn(&M, &Tensor) -> Result<Tensor>,
) {
    let found: Vec<String> = module.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, names, "{what}: names");
    let here = module.parameters()[0].device();
    let x = Tensor::ones([1, 2], &here).unwrap();
    forward(&module, &x).unwrap().sum().backward().unwrap();
    assert!(module.parameters().iter().all(|p| p.grad().is_some()), "{what}: gradients");
    let there = device();
    module.to(&there).unwrap();
    assert!(module.parameters().iter().all(|p| p.device() == there), "{what}: moved");
    let zeros = |(name, tensor): (String, Tensor)| (name, tensor.zeros_like());
    let dict: nn::StateDict = module.state_dict().into_iter().map(zeros).collect();
    module.load_state_dict(&dict).unwrap();
    let out = forward(&module, &x.to(&there).unwrap()).unwrap();
    assert!(out.to_f64_vec().unwrap().iter().all(|&v| v == 0.0), "{what}: loaded");
    module.zero_grad();
    assert!(module.parameters().iter().all(|p| p.grad().is_none()), "{what}: gradients cleared");
}

const BOTH: [&str; 2] = ["x.weight", "x.bias"];

macro_rules! container {
    ($name:ident: $ty:ty = $value:expr, $names:expr, |$module:ident, $x:ident| $forward:expr) => {
        #[test]
        fn $name() {
            #[derive(Module)]
            struct Net {
                x: $ty,
            }
            let device = device();
            let rng = &Generator::seed(1, &device);
            let value: fn(&Generator) -> $ty = $value;
            let net = Net { x: value(rng) };
            trains_moves_and_saves(stringify!($name), net, &$names, |$module, $x| $forward);
        }
    };
}

container!(a_layer: Linear = linear, BOTH, |m, x| m.x.forward(x));
container!(a_box: Box<Linear> = |r| Box::new(linear(r)), BOTH, |m, x| m.x.forward(x));
container!(a_box_of_dyn_layer: Box<dyn Layer> = |r| Box::new(linear(r)), BOTH, |m, x| m.x.forward(x));
container!(an_arc: Arc<Linear> = |r| Arc::new(linear(r)), BOTH, |m, x| m.x.forward(x));
container!(an_arc_of_dyn_layer: Arc<dyn Layer> = |r| Arc::new(linear(r)), BOTH, |m, x| m.x.forward(x));
container!(an_rc: Rc<Linear> = |r| Rc::new(linear(r)), BOTH, |m, x| m.x.forward(x));
container!(a_ref_cell: RefCell<Linear> = |r| RefCell::new(linear(r)), BOTH, |m, x| m.x.borrow().forward(x));
container!(an_rc_of_ref_cell: Rc<RefCell<Linear>> = |r| Rc::new(RefCell::new(linear(r))), BOTH,
    |m, x| m.x.borrow().forward(x));
container!(a_mutex: Arc<Mutex<Linear>> = |r| Arc::new(Mutex::new(linear(r))), BOTH,
    |m, x| m.x.lock().unwrap().forward(x));
container!(an_rw_lock: RwLock<Linear> = |r| RwLock::new(linear(r)), BOTH, |m, x| m.x.read().unwrap().forward(x));
container!(an_option: Option<Linear> = |r| Some(linear(r)), BOTH, |m, x| m.x.as_ref().unwrap().forward(x));
container!(a_vec: Vec<Linear> = |r| vec![linear(r), linear(r)],
    ["x.0.weight", "x.0.bias", "x.1.weight", "x.1.bias"],
    |m, x| m.x[1].forward(&m.x[0].forward(x)?));
container!(a_deque: VecDeque<Linear> = |r| VecDeque::from([linear(r)]), ["x.0.weight", "x.0.bias"],
    |m, x| m.x[0].forward(x));
container!(an_array: [Linear; 2] = |r| [linear(r), linear(r)],
    ["x.0.weight", "x.0.bias", "x.1.weight", "x.1.bias"],
    |m, x| m.x[1].forward(&m.x[0].forward(x)?));
container!(a_boxed_slice: Box<[Linear]> = |r| vec![linear(r)].into(), ["x.0.weight", "x.0.bias"],
    |m, x| m.x[0].forward(x));
container!(a_tuple: (Linear, f32, Relu, Linear) = |r| (linear(r), 1.0, Relu, linear(r)),
    ["x.0.weight", "x.0.bias", "x.3.weight", "x.3.bias"],
    |m, x| m.x.3.forward(&m.x.0.forward(x)?));
container!(a_tree_map: BTreeMap<String, Linear> =
    |r| BTreeMap::from([("b".to_string(), linear(r)), ("a".to_string(), linear(r))]),
    ["x.a.weight", "x.a.bias", "x.b.weight", "x.b.bias"],
    |m, x| m.x["b"].forward(&m.x["a"].forward(x)?));
container!(a_hash_map: HashMap<String, Linear> =
    |r| HashMap::from(["c", "a", "b"].map(|key| (key.to_string(), linear(r)))),
    ["x.a.weight", "x.a.bias", "x.b.weight", "x.b.bias", "x.c.weight", "x.c.bias"],
    |m, x| m.x["c"].forward(&m.x["b"].forward(&m.x["a"].forward(x)?)?));
container!(a_hash_map_of_numbers: HashMap<usize, Linear> = |r| HashMap::from([10, 9].map(|key| (key, linear(r)))),
    ["x.9.weight", "x.9.bias", "x.10.weight", "x.10.bias"],
    |m, x| m.x[&10].forward(&m.x[&9].forward(x)?));
container!(containers_of_containers: HashMap<String, Option<Arc<Vec<Linear>>>> =
    |r| HashMap::from([("a".to_string(), Some(Arc::new(vec![linear(r)]))), ("b".to_string(), None)]),
    ["x.a.0.weight", "x.a.0.bias"],
    |m, x| m.x["a"].as_ref().unwrap()[0].forward(x));
container!(tensors: Vec<Tensor> = |r| vec![Tensor::rand([2, 2], r).unwrap().requires_grad()], ["x.0"],
    |m, x| x.matmul(&m.x[0]));

#[derive(Module)]
enum Head {
    Nothing,
    One(Linear),
    Two(Linear, Option<Linear>),
    Named { fc: Linear },
}

#[test]
fn an_enum_visits_the_variant_that_is_there() {
    #[derive(Module)]
    struct Net {
        body: Linear,
        head: Head,
    }
    let device = device();
    let rng = &Generator::seed(1, &device);
    for (head, names) in [
        (Head::Nothing, &[][..]),
        (Head::One(linear(rng)), &["head.weight", "head.bias"]),
        (Head::Two(linear(rng), None), &["head.0.weight", "head.0.bias"]),
        (Head::Named { fc: linear(rng) }, &["head.fc.weight", "head.fc.bias"]),
    ] {
        let names: Vec<&str> = ["body.weight", "body.bias"].iter().chain(names).copied().collect();
        trains_moves_and_saves("an enum", Net { body: linear(rng), head }, &names, |net, x| {
            let x = net.body.forward(x)?;
            match &net.head {
                Head::Nothing => Ok(x),
                Head::One(fc) | Head::Two(fc, _) | Head::Named { fc } => fc.forward(&x),
            }
        });
    }
}

#[derive(Module, Clone, Copy, PartialEq, Debug)]
enum Activation {
    Relu,
    Leaky(f64),
}

#[derive(Module, Clone)]
struct Config {
    width: usize,
    activation: Activation,
}

/// A type that is neither `Module` nor plain data.
struct Foreign;

#[derive(Module)]
struct Plain<'n, A: Layer, T> {
    inner: A,
    name: &'static str,
    note: &'n str,
    text: (String, Cow<'static, str>, Box<str>, Option<PathBuf>),
    numbers: (usize, f32, f64, i8, bool, char, Duration),
    sizes: Vec<[usize; 2]>,
    table: HashMap<String, Vec<f64>>,
    range: std::ops::RangeInclusive<i32>,
    dtype: DType,
    device: Device,
    shape: Shape,
    of: PhantomData<T>,
    apply: fn(&Tensor) -> Tensor,
    on_step: Option<fn(&mut usize) -> usize>,
    config: Config,
    training: Training,
    #[module(skip)]
    foreign: Foreign,
    #[module(skip)]
    teacher: Linear,
    #[module(rename = "out")]
    last: Parameter,
    r#type: Relu,
}

#[test]
fn plain_data_stays_as_it_is() {
    let device = device();
    let rng = &Generator::seed(1, &device);
    let net: Plain<'_, Linear, u8> = Plain {
        inner: linear(rng),
        name: "net",
        note: "note",
        text: ("a".into(), "b".into(), "c".into(), None),
        numbers: (1, 2.0, 3.0, 4, true, 'x', Duration::ZERO),
        sizes: vec![[1, 2]],
        table: HashMap::from([("k".to_string(), vec![1.0])]),
        range: 0..=1,
        dtype: DType::F32,
        device: device.clone(),
        shape: [2].into(),
        of: PhantomData,
        apply: Tensor::relu,
        on_step: None,
        config: Config { width: 2, activation: Activation::Leaky(0.1) },
        training: Training::default(),
        foreign: Foreign,
        teacher: linear(rng),
        last: Parameter::new(Tensor::ones([2, 2], &device).unwrap()).unwrap(),
        r#type: Relu,
    };
    let Foreign = net.foreign;
    assert_eq!((net.name, net.note, net.text.3.as_ref(), net.numbers.0), ("net", "note", None, 1));
    assert_eq!((net.sizes[0][1], net.table["k"][0], net.dtype, net.shape.rank()), (2, 1.0, DType::F32, 1));
    assert_eq!((net.config.width, net.config.activation), (2, Activation::Leaky(0.1)));
    assert_ne!(net.config.activation, Activation::Relu);
    assert!(net.of == PhantomData && net.on_step.is_none() && net.range.contains(&1) && net.device == device);
    net.eval();
    assert!(!net.training.get() && net.teacher.weight.grad().is_none());
    trains_moves_and_saves("plain data", net, &["inner.weight", "inner.bias", "out"], |net, x| {
        Ok((net.apply)(&net.r#type.forward(&net.inner.forward(x)?)?.matmul(&net.last)?))
    });
}

#[test]
fn tuple_and_unit_structs_and_generic_bounds() {
    #[derive(Module)]
    struct Pair<B: Module>(Linear, f32, B);
    #[derive(Module)]
    struct Nothing;
    let device = device();
    let rng = &Generator::seed(1, &device);
    let names = |module: &dyn Module| -> Vec<String> {
        module.named_parameters().into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(&Pair(linear(rng), 0.5, Nothing)), ["0.weight", "0.bias"]);
    let pair = Pair(linear(rng), 0.5, vec![linear(rng)]);
    assert_eq!(names(&pair), ["0.weight", "0.bias", "2.0.weight", "2.0.bias"]);
    assert_eq!(pair.1, 0.5);
}

#[test]
fn a_layer_shared_by_two_models_trains_moves_and_evaluates_as_one() {
    #[derive(Module)]
    struct Net {
        body: Arc<Sequential>,
        head: Linear,
    }
    let device = device();
    let rng = &Generator::seed(1, &device);
    let body = Arc::new(Sequential::new().add(linear(rng)).add(Dropout::new(0.5, rng).unwrap()));
    let mut a = Net { body: body.clone(), head: linear(rng) };
    let b = Net { body, head: linear(rng) };
    let there = crate::common::device();
    a.to(&there).unwrap();
    assert_eq!(b.body.parameters()[0].device(), there);
    assert_eq!(b.head.weight.device(), device);
    a.eval();
    let x = Tensor::ones([64, 2], &there).unwrap();
    let (first, second) = (b.body.forward(&x).unwrap(), b.body.forward(&x).unwrap());
    assert_eq!(first.to_f64_vec().unwrap(), second.to_f64_vec().unwrap());
    b.train();
    assert_ne!(a.body.forward(&x).unwrap().to_f64_vec().unwrap(), first.to_f64_vec().unwrap());
}

#[test]
fn a_constant_that_others_hold_says_that_it_cannot_move() {
    #[derive(Module)]
    struct Constant {
        table: Tensor,
        fc: Linear,
    }
    #[derive(Module)]
    struct Net {
        shared: Arc<Constant>,
    }
    let (here, there) = (device(), device());
    let rng = &Generator::seed(1, &here);
    let constant = || Constant { table: Tensor::ones([2], &here).unwrap(), fc: linear(rng) };
    let mut alone = Net { shared: Arc::new(constant()) };
    alone.to(&there).unwrap();
    assert_eq!(alone.shared.table.device(), there);
    let shared = Arc::new(constant());
    let mut net = Net { shared: shared.clone() };
    let message = net.to(&there).unwrap_err().to_string();
    assert!(message.contains("shared.table is a constant behind a pointer"), "{message}");
    assert_eq!(shared.fc.weight.device(), here);
    drop(shared);
    net.to(&there).unwrap();
}

#[test]
fn keys_that_make_two_tensors_of_one_name_lose_neither() {
    let device = device();
    let cell = |v: f32| Tensor::new([v], &device).unwrap().requires_grad();
    let inner = |v: f32| BTreeMap::from([("b".to_string(), cell(v))]);
    let map = BTreeMap::from([("a".to_string(), inner(1.0)), ("a.b".to_string(), BTreeMap::new())]);
    let dotted = BTreeMap::from([("a.b".to_string(), cell(2.0))]);
    let both = (map, dotted);
    // Under one prefix, as a hand-written module can put them.
    struct Flat((BTreeMap<String, BTreeMap<String, Tensor>>, BTreeMap<String, Tensor>));
    impl Module for Flat {
        fn visit(&self, visitor: &mut Visitor) {
            visitor.field("", &self.0.0);
            visitor.field("", &self.0.1);
        }
        fn visit_mut(&mut self, visitor: &mut VisitorMut) {
            visitor.field("", &mut self.0.0);
            visitor.field("", &mut self.0.1);
        }
    }
    let flat = Flat(both);
    let state = flat.state_dict();
    assert_eq!(state.keys().collect::<Vec<_>>(), ["a.b", "a.b#2"]);
    assert_eq!(state["a.b#2"].item::<f32>().unwrap(), 2.0);
    flat.load_state_dict(&state).unwrap();
}

#[test]
fn a_deep_copy_is_its_own_and_keeps_what_is_tied() {
    #[derive(Module, Clone)]
    struct Tied {
        first: Linear,
        second: Linear,
        mean: Tensor,
    }
    let device = device();
    let rng = &Generator::seed(1, &device);
    let first = linear(rng);
    let mean = Tensor::ones([2], &device).unwrap().into_cell(false).unwrap();
    let net = Tied { second: Linear { bias: None, ..first.clone() }, first, mean };
    net.first.bias.as_ref().unwrap().set_requires_grad(false).unwrap();
    let copy = net.deep_copy().unwrap();
    assert_eq!(copy.first.weight.id(), copy.second.weight.id());
    assert_ne!(copy.first.weight.id(), net.first.weight.id());
    assert_ne!(copy.mean.id(), net.mean.id());
    assert!(copy.first.weight.is_tracked() && !copy.first.bias.as_ref().unwrap().is_tracked());
    let before = copy.first.weight.to_f64_vec().unwrap();
    net.first.weight.assign(&net.first.weight.zeros_like()).unwrap();
    assert_eq!(copy.second.weight.to_f64_vec().unwrap(), before);
    let behind = Some(Arc::new(linear(rng)));
    assert!(behind.deep_copy().unwrap_err().to_string().contains("weight is behind a pointer"));
}
