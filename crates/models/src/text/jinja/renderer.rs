//! [`Renderer`]: the state of a rendering, and Python's operators and attributes, which filters use too.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use super::{
    Fault, methods, printf,
    syntax::{Binary, Macro},
    value::{Budget, Loop, Value},
};

pub(super) type Out = Result<Value, Fault>;

/// Variables, with those around them.
#[derive(Debug, Default)]
pub(super) struct Scope {
    variables: RefCell<Vec<(Rc<str>, Value)>>,
    outer: Option<Rc<Scope>>,
}

impl Scope {
    pub(super) fn inside(outer: &Rc<Scope>) -> Rc<Scope> {
        Rc::new(Scope { variables: RefCell::default(), outer: Some(outer.clone()) })
    }

    pub(super) fn set(&self, name: &str, value: Value) {
        let mut variables = self.variables.borrow_mut();
        match variables.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, place)) => *place = value,
            None => variables.push((name.into(), value)),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<Value> {
        let mut scope = Some(self);
        while let Some(here) = scope {
            if let Some((_, value)) = here.variables.borrow().iter().find(|(known, _)| **known == *name) {
                return Some(value.clone());
            }
            scope = here.outer.as_deref();
        }
        None
    }
}

/// The names and values of a namespace.
pub(super) type Fields = Vec<(Rc<str>, Value)>;

/// A rendering of a template.
pub(super) struct Renderer<'t> {
    pub(super) budget: Budget,
    /// The macros that were met, with the scopes of their definitions.
    pub(super) macros: RefCell<Vec<(&'t Macro, Rc<Scope>)>>,
    pub(super) namespaces: RefCell<Vec<Fields>>,
    pub(super) depth: Cell<usize>,
}

impl Renderer<'_> {
    /// The result of an operator, as in Python.
    pub(super) fn binary(&self, operator: Binary, left: &Value, right: &Value) -> Out {
        let budget = &self.budget;
        match (operator, left, right) {
            (Binary::Add, Value::Text(a), Value::Text(b)) => budget.text([&**a, b].concat()),
            (Binary::Add, Value::List(a), Value::List(b)) => {
                budget.bytes((a.items.len() + b.items.len()) * size_of::<Value>())?;
                budget.list(a.items.iter().chain(&b.items).cloned().collect())
            }
            (Binary::Add, Value::Tuple(a), Value::Tuple(b)) => {
                budget.bytes((a.items.len() + b.items.len()) * size_of::<Value>())?;
                Ok(Value::Tuple(budget.sequence(a.items.iter().chain(&b.items).cloned().collect())?))
            }
            (Binary::Rem, Value::Text(text), values) => budget.text(printf::percent(text, values, budget)?),
            (Binary::Mul, Value::Text(text), count) | (Binary::Mul, count, Value::Text(text)) => {
                budget.text(budget.repeated(text, count.size("the number of times")?)?)
            }
            (Binary::Mul, Value::List(items), count) | (Binary::Mul, count, Value::List(items)) => {
                let count = count.size("the number of times")?;
                budget.bytes(items.items.len().saturating_mul(count).saturating_mul(size_of::<Value>()))?;
                let count = if items.items.is_empty() { 0 } else { count };
                budget.list((0..count).flat_map(|_| items.items.iter().cloned()).collect())
            }
            _ => match (left.as_int(), right.as_int(), left.as_float(), right.as_float()) {
                (Some(a), Some(b), ..) => whole(operator, a, b),
                (.., Some(a), Some(b)) => real(operator, a, b),
                _ => {
                    let kinds = (described(left), described(right));
                    Err(Fault::new(format!("{operator:?} is not defined for {} and {}", kinds.0, kinds.1)))
                }
            },
        }
    }

    /// `value.name`: a method or an attribute. With `items`, also an item of this name.
    pub(super) fn attribute(&self, value: &Value, name: &str, items: bool) -> Out {
        let missing = || Value::Undefined(format!("{}.{name}", value.kind()).into());
        if let Value::Undefined(what) = value {
            return Err(Fault::new(format!("{what} is undefined, so that it has no {name:?}")));
        }
        if methods::has(value, name) {
            return Ok(Value::Method(Rc::new((value.clone(), name.into()))));
        }
        let found = match value {
            Value::Dict(dict) if items => dict.named(name, &self.budget)?,
            Value::Namespace(number) => {
                let namespaces = self.namespaces.borrow();
                namespaces[*number].iter().find(|(known, _)| **known == *name).map(|(_, value)| value.clone())
            }
            Value::Loop(state) => self.of_loop(state, name),
            Value::Tuple(pair) if pair.items.len() == 2 => match name {
                // A group of groupby.
                "grouper" => Some(pair.items[0].clone()),
                "list" => Some(pair.items[1].clone()),
                _ => None,
            },
            _ => None,
        };
        Ok(found.unwrap_or_else(missing))
    }

    fn of_loop(&self, state: &Loop, name: &str) -> Option<Value> {
        let (index, length) = (state.index, state.items.items.len());
        let count = |count: usize| Value::Int(count as i128);
        let item = |at: Option<usize>| {
            let item = at.and_then(|at| state.items.items.get(at)).cloned();
            item.unwrap_or_else(|| Value::Undefined(format!("loop.{name}").into()))
        };
        Some(match name {
            "index" => count(index + 1),
            "index0" => count(index),
            "revindex" => count(length - index),
            "revindex0" => count(length - index - 1),
            "first" => Value::Bool(index == 0),
            "last" => Value::Bool(index + 1 == length),
            "length" => count(length),
            "depth" => count(1),
            "depth0" => count(0),
            "previtem" => item(index.checked_sub(1)),
            "nextitem" => item(index.checked_add(1)),
            _ => return None,
        })
    }

    /// `value[key]`: an element, or else an attribute.
    pub(super) fn item(&self, value: &Value, key: &Value) -> Out {
        let missing = || {
            let key = key.as_text().map_or_else(|| format!("this {}", key.kind()), |key| format!("{key:?}"));
            Value::Undefined(format!("{}[{key}]", value.kind()).into())
        };
        let at = |length: usize| {
            let index = key.as_int()?;
            let index = if index < 0 { index + length as i128 } else { index };
            usize::try_from(index).ok().filter(|index| *index < length)
        };
        let found = match value {
            Value::Undefined(what) => {
                return Err(Fault::new(format!("{what} is undefined, so that it has no items")));
            }
            Value::Dict(dict) => dict.get(key, &self.budget)?,
            Value::List(items) | Value::Tuple(items) => {
                at(items.items.len()).map(|at| items.items[at].clone())
            }
            Value::Text(text) if key.as_int().is_some() => {
                self.budget.steps(text.len() / 16)?;
                let c = at(text.chars().count()).and_then(|at| text.chars().nth(at));
                c.map(|c| Value::Text(c.to_string().into()))
            }
            _ => None,
        };
        match (found, key) {
            (Some(found), _) => Ok(found),
            (None, Value::Text(name)) => self.attribute(value, name, false),
            (None, _) => Ok(missing()),
        }
    }
}

pub(super) fn described(value: &Value) -> String {
    match value {
        Value::Undefined(what) => format!("{what}, which is undefined,"),
        other => format!("a {}", other.kind()),
    }
}

pub(super) fn too_large() -> Fault {
    Fault::new("a whole number is too large")
}

pub(super) fn whole(operator: Binary, a: i128, b: i128) -> Out {
    let floor = |a: i128, b: i128| {
        let quotient = a.checked_div(b)?;
        Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
    };
    if b == 0 && matches!(operator, Binary::Div | Binary::FloorDiv | Binary::Rem) {
        return Err(Fault::new("a division by zero"));
    }
    let result = match operator {
        Binary::Add => a.checked_add(b),
        Binary::Sub => a.checked_sub(b),
        Binary::Mul => a.checked_mul(b),
        Binary::Div => return Ok(Value::Float(a as f64 / b as f64)),
        Binary::FloorDiv => floor(a, b),
        Binary::Rem => floor(a, b).and_then(|quotient| a.checked_sub(quotient.checked_mul(b)?)),
        Binary::Pow if b < 0 => return real(operator, a as f64, b as f64),
        Binary::Pow => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
    };
    result.map(Value::Int).ok_or_else(too_large)
}

pub(super) fn real(operator: Binary, a: f64, b: f64) -> Out {
    if b == 0.0 && matches!(operator, Binary::Div | Binary::FloorDiv | Binary::Rem) {
        return Err(Fault::new("a division by zero"));
    }
    Ok(Value::Float(match operator {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::FloorDiv => (a / b).floor(),
        Binary::Rem => a - (a / b).floor() * b,
        Binary::Pow => a.powf(b),
    }))
}
