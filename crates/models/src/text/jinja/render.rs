//! The evaluation of a template with variables.

use std::{cell::RefCell, rc::Rc};

use super::{
    Fault,
    arguments::Args,
    checks, clock, filters, methods,
    renderer::{Out, Renderer, Scope, too_large},
    syntax::{Applied, Arguments, Comparison, Expr, Kind, Literal, Macro, Statement, Target},
    value::{Budget, Loop, Value},
};

/// How deep statements, expressions and calls of macros may be nested in one another.
const MAX_DEPTH: usize = 150;
/// The bytes that a variable or a macro takes beside its value.
const ENTRY_BYTES: usize = 96;
/// The longest list of `range`, as in Jinja's sandbox.
const MAX_RANGE: i128 = 100_000;

/// How a list of statements ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// The functions that every template has.
const FUNCTIONS: &[&str] = &["range", "dict", "namespace", "raise_exception", "strftime_now"];

/// The text of a template with these variables.
pub(super) fn render(
    template: &[Statement],
    variables: &[(Value, Value)],
    budget: Budget,
) -> Result<String, Fault> {
    let renderer = Renderer {
        budget,
        macros: RefCell::default(),
        namespaces: RefCell::default(),
        depth: std::cell::Cell::new(0),
    };
    let scope = Rc::new(Scope::default());
    for (name, value) in variables {
        scope.set(name.as_text().unwrap_or_default(), value.clone());
    }
    let mut out = String::new();
    renderer.run(template, &Scope::inside(&scope), &mut out)?;
    Ok(out)
}

impl<'t> Renderer<'t> {
    /// Does `work` one level deeper.
    fn nested<T>(&self, work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
        if self.depth.get() >= MAX_DEPTH {
            return Err(Fault::new(format!("expressions and macros are nested deeper than {MAX_DEPTH}")));
        }
        self.depth.set(self.depth.get() + 1);
        let result = work();
        self.depth.set(self.depth.get() - 1);
        result
    }

    fn run(&self, body: &'t [Statement], scope: &Rc<Scope>, out: &mut String) -> Result<Flow, Fault> {
        for statement in body {
            self.budget.steps(1)?;
            let flow = self.nested(|| self.statement(&statement.kind, scope, out));
            match flow.map_err(|fault| fault.at(statement.line))? {
                Flow::Next => {}
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&self, kind: &'t Kind, scope: &Rc<Scope>, out: &mut String) -> Result<Flow, Fault> {
        match kind {
            Kind::Text(text) => {
                self.budget.bytes(text.len())?;
                out.push_str(text);
            }
            Kind::Output(value) => self.value(value, scope)?.write(out, &self.budget)?,
            Kind::If { branches, otherwise } => {
                for (test, body) in branches {
                    if self.value(test, scope)?.is_true() {
                        return self.run(body, scope, out);
                    }
                }
                return self.run(otherwise, scope, out);
            }
            Kind::For { target, items, test, body, otherwise } => {
                return self.repeat((target, items, test.as_ref()), (body, otherwise), scope, out);
            }
            Kind::Set(target, value) => {
                let value = self.value(value, scope)?;
                self.assign(target, value, scope)?;
            }
            Kind::SetBody { target, filters, body } => {
                let text = self.captured(filters, body, scope)?;
                self.assign(target, text, scope)?;
            }
            Kind::Macro(definition) => scope.set(&definition.name, self.macro_of(definition, scope)?),
            Kind::Call { caller, call } => {
                let Expr::Call(function, arguments) = call else {
                    return Err(Fault::new("a call block calls a macro"));
                };
                let function = self.value(function, scope)?;
                let mut args = self.args(arguments, scope)?;
                args.named.push(("caller".into(), self.macro_of(caller, scope)?));
                self.call(&function, &args)?.write(out, &self.budget)?;
            }
            Kind::Filter { filters, body } => {
                self.captured(filters, body, scope)?.write(out, &self.budget)?;
            }
            Kind::With { values, body } => {
                let inner = Scope::inside(scope);
                for (target, value) in values {
                    let value = self.value(value, &inner)?;
                    self.assign(target, value, &inner)?;
                }
                return self.run(body, &inner, out);
            }
            Kind::Break => return Ok(Flow::Break),
            Kind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn macro_of(&self, definition: &'t Macro, scope: &Rc<Scope>) -> Out {
        self.budget.bytes(ENTRY_BYTES)?;
        let mut macros = self.macros.borrow_mut();
        macros.push((definition, scope.clone()));
        Ok(Value::Macro(macros.len() - 1))
    }

    /// The text of a body after some filters.
    fn captured(&self, filters: &'t [Applied], body: &'t [Statement], scope: &Rc<Scope>) -> Out {
        let mut text = String::new();
        self.run(body, &Scope::inside(scope), &mut text)?;
        let mut value = self.budget.text(text)?;
        for filter in filters {
            let args = self.args(&filter.arguments, scope)?;
            value = filters::apply(self, &filter.name, &value, &args)?;
        }
        Ok(value)
    }

    fn repeat(
        &self,
        (target, items, test): (&'t Target, &'t Expr, Option<&'t Expr>),
        (body, otherwise): (&'t [Statement], &'t [Statement]),
        scope: &Rc<Scope>,
        out: &mut String,
    ) -> Result<Flow, Fault> {
        let mut items = self.value(items, scope)?.items(&self.budget)?;
        if let Some(test) = test {
            let mut kept = Vec::new();
            for item in &items.items {
                let inner = Scope::inside(scope);
                self.budget.steps(1)?;
                self.assign(target, item.clone(), &inner)?;
                if self.value(test, &inner)?.is_true() {
                    kept.push(item.clone());
                }
            }
            items = self.budget.sequence(kept)?;
        }
        if items.items.is_empty() {
            return self.run(otherwise, scope, out);
        }
        for index in 0..items.items.len() {
            self.budget.steps(1)?;
            let inner = Scope::inside(scope);
            inner.set("loop", Value::Loop(Rc::new(Loop { items: items.clone(), index })));
            self.assign(target, items.items[index].clone(), &inner)?;
            if self.run(body, &inner, out)? == Flow::Break {
                break;
            }
        }
        Ok(Flow::Next)
    }

    fn assign(&self, target: &Target, value: Value, scope: &Rc<Scope>) -> Result<(), Fault> {
        self.budget.bytes(ENTRY_BYTES)?;
        match target {
            Target::Name(name) => scope.set(name, value),
            Target::Attribute(name, attribute) => {
                let Some(Value::Namespace(number)) = scope.get(name) else {
                    return Err(Fault::new(format!(
                        "{name} is no namespace, so that {name}.{attribute} cannot be set"
                    )));
                };
                if !is_free(attribute) {
                    return Err(Fault::new(format!("{attribute:?} is no name in a namespace")));
                }
                let mut namespaces = self.namespaces.borrow_mut();
                let namespace = &mut namespaces[number];
                match namespace.iter_mut().find(|(known, _)| **known == **attribute) {
                    Some((_, place)) => *place = value,
                    None => namespace.push((attribute.as_str().into(), value)),
                }
            }
            Target::Tuple(targets) => {
                let items = value.items(&self.budget)?;
                if items.items.len() != targets.len() {
                    let counts = (items.items.len(), targets.len());
                    return Err(Fault::new(format!("{} values for {} names", counts.0, counts.1)));
                }
                for (target, item) in targets.iter().zip(&items.items) {
                    self.assign(target, item.clone(), scope)?;
                }
            }
        }
        Ok(())
    }

    /// The value of an expression.
    fn value(&self, expr: &'t Expr, scope: &Rc<Scope>) -> Out {
        self.budget.steps(1)?;
        self.nested(|| self.expression(expr, scope))
    }

    fn expression(&self, expr: &'t Expr, scope: &Rc<Scope>) -> Out {
        match expr {
            Expr::Literal(literal) => self.literal(literal),
            Expr::Name(name) => Ok(self.variable(name, scope)),
            Expr::List(items) => self.budget.list(self.values(items, scope)?),
            Expr::Tuple(items) => Ok(Value::Tuple(self.budget.sequence(self.values(items, scope)?)?)),
            Expr::Dict(pairs) => self.dict(pairs, scope),
            Expr::Not(value) => Ok(Value::Bool(!self.value(value, scope)?.is_true())),
            Expr::Negative(value) => self.signed(&self.value(value, scope)?, true),
            Expr::Positive(value) => self.signed(&self.value(value, scope)?, false),
            Expr::And(left, right) => match self.value(left, scope)? {
                left if left.is_true() => self.value(right, scope),
                left => Ok(left),
            },
            Expr::Or(left, right) => match self.value(left, scope)? {
                left if left.is_true() => Ok(left),
                _ => self.value(right, scope),
            },
            Expr::Binary(operator, left, right) => {
                self.binary(*operator, &self.value(left, scope)?, &self.value(right, scope)?)
            }
            Expr::Concat(parts) => {
                let mut text = String::new();
                for part in parts {
                    self.value(part, scope)?.write(&mut text, &self.budget)?;
                }
                self.budget.text(text)
            }
            Expr::Compare(left, others) => self.compare(left, others, scope),
            Expr::If { test, then, otherwise } => match (self.value(test, scope)?.is_true(), otherwise) {
                (true, _) => self.value(then, scope),
                (false, Some(otherwise)) => self.value(otherwise, scope),
                (false, None) => Ok(Value::Undefined("the value of an if without else".into())),
            },
            Expr::Attribute(value, name) => self.attribute(&self.value(value, scope)?, name, true),
            Expr::Item(value, key) => self.item(&self.value(value, scope)?, &self.value(key, scope)?),
            Expr::Slice(value, parts) => self.slice(value, parts, scope),
            Expr::Call(function, arguments) => {
                let function = self.value(function, scope)?;
                self.call(&function, &self.args(arguments, scope)?)
            }
            Expr::Filter(value, filter) => {
                let value = self.value(value, scope)?;
                filters::apply(self, &filter.name, &value, &self.args(&filter.arguments, scope)?)
            }
            Expr::Test { value, test, negated } => {
                let value = self.value(value, scope)?;
                let holds = checks::holds(self, &test.name, &value, &self.args(&test.arguments, scope)?)?;
                Ok(Value::Bool(holds != *negated))
            }
        }
    }

    fn literal(&self, literal: &Literal) -> Out {
        match literal {
            Literal::None => Ok(Value::None),
            Literal::Bool(value) => Ok(Value::Bool(*value)),
            Literal::Int(value) => Ok(Value::Int(*value)),
            Literal::Float(value) => Ok(Value::Float(*value)),
            Literal::Text(text) => self.budget.text(text.as_str()),
        }
    }

    fn variable(&self, name: &str, scope: &Rc<Scope>) -> Value {
        let function = || FUNCTIONS.iter().find(|known| **known == name).map(|name| Value::Function(name));
        scope.get(name).or_else(function).unwrap_or_else(|| Value::Undefined(name.into()))
    }

    fn values(&self, items: &'t [Expr], scope: &Rc<Scope>) -> Result<Vec<Value>, Fault> {
        items.iter().map(|item| self.value(item, scope)).collect()
    }

    fn dict(&self, pairs: &'t [(Expr, Expr)], scope: &Rc<Scope>) -> Out {
        let mut values = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            values.push((self.value(key, scope)?, self.value(value, scope)?));
        }
        self.budget.dict(values)
    }

    fn signed(&self, value: &Value, negative: bool) -> Out {
        match value {
            Value::Float(value) => Ok(Value::Float(if negative { -value } else { *value })),
            other => {
                let value = other.int("the value of a sign")?;
                Ok(Value::Int(if negative { value.checked_neg().ok_or_else(too_large)? } else { value }))
            }
        }
    }

    fn compare(&self, left: &'t Expr, others: &'t [(Comparison, Expr)], scope: &Rc<Scope>) -> Out {
        let mut left = self.value(left, scope)?;
        for (comparison, right) in others {
            let right = self.value(right, scope)?;
            let budget = &self.budget;
            let holds = match comparison {
                Comparison::Equal => left.equals(&right, budget)?,
                Comparison::NotEqual => !left.equals(&right, budget)?,
                Comparison::Less => left.order(&right, budget)?.is_lt(),
                Comparison::LessEqual => left.order(&right, budget)?.is_le(),
                Comparison::Greater => left.order(&right, budget)?.is_gt(),
                Comparison::GreaterEqual => left.order(&right, budget)?.is_ge(),
                Comparison::In => right.contains(&left, budget)?,
                Comparison::NotIn => !right.contains(&left, budget)?,
            };
            if !holds {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    fn slice(&self, value: &'t Expr, parts: &'t [Option<Box<Expr>>; 3], scope: &Rc<Scope>) -> Out {
        let value = self.value(value, scope)?;
        let mut bounds = [None; 3];
        for (bound, part) in bounds.iter_mut().zip(parts) {
            if let Some(part) = part {
                *bound = match self.value(part, scope)? {
                    Value::None => None,
                    part => Some(part.int("a bound of a slice")?),
                };
            }
        }
        let items = match &value {
            Value::Text(_) | Value::List(_) | Value::Tuple(_) => value.items(&self.budget)?,
            Value::Undefined(what) => {
                return Err(Fault::new(format!("{what} is undefined, so that it has no items")));
            }
            other => return Err(Fault::new(format!("a {} has no slices", other.kind()))),
        };
        let kept: Vec<Value> =
            indices(bounds, items.items.len())?.map(|at| items.items[at].clone()).collect();
        match value {
            Value::Text(_) => {
                let mut text = String::new();
                for c in kept {
                    c.write(&mut text, &self.budget)?;
                }
                self.budget.text(text)
            }
            Value::Tuple(_) => Ok(Value::Tuple(self.budget.sequence(kept)?)),
            _ => self.budget.list(kept),
        }
    }

    /// The values of arguments.
    fn args(&self, arguments: &'t Arguments, scope: &Rc<Scope>) -> Result<Args, Fault> {
        let mut args = Args { positional: self.values(&arguments.positional, scope)?, named: Vec::new() };
        for (name, value) in &arguments.named {
            args.named.push((name.clone(), self.value(value, scope)?));
        }
        if let Some(list) = &arguments.list {
            let more = self.value(list, scope)?.items(&self.budget)?;
            self.budget.steps(more.items.len())?;
            args.positional.extend(more.items.iter().cloned());
        }
        if let Some(dict) = &arguments.dict {
            let Value::Dict(dict) = self.value(dict, scope)? else {
                return Err(Fault::new("named arguments come from a dictionary"));
            };
            self.budget.steps(dict.pairs.len())?;
            for (name, value) in &dict.pairs {
                let Value::Text(name) = name else {
                    return Err(Fault::new("the names of arguments are texts"));
                };
                args.named.push((name.to_string(), value.clone()));
            }
        }
        Ok(args)
    }

    fn call(&self, function: &Value, args: &Args) -> Out {
        match function {
            Value::Method(method) => methods::call(&method.0, &method.1, args, &self.budget),
            Value::Function(name) => self.function(name, args).map_err(|fault| fault.within(name)),
            Value::Macro(number) => {
                let (definition, scope) = {
                    let macros = self.macros.borrow();
                    (macros[*number].0, macros[*number].1.clone())
                };
                let result = self.nested(|| self.call_macro(definition, &scope, args));
                result.map_err(|fault| fault.within(&definition.name))
            }
            Value::Undefined(what) => {
                Err(Fault::new(format!("{what} is undefined, so that it cannot be called")))
            }
            other => Err(Fault::new(format!("a {} cannot be called", other.kind()))),
        }
    }

    fn call_macro(&self, definition: &'t Macro, scope: &Rc<Scope>, args: &Args) -> Out {
        let inner = Scope::inside(scope);
        let mut rest = args.named.clone();
        for (k, (name, default)) in definition.parameters.iter().enumerate() {
            let named = rest.iter().position(|(known, _)| known == name).map(|at| rest.remove(at).1);
            let value = match (args.positional.get(k).cloned().or(named), default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.value(default, &inner)?,
                (None, None) => Value::Undefined(name.as_str().into()),
            };
            inner.set(name, value);
        }
        if let Some(at) = rest.iter().position(|(name, _)| name == "caller") {
            inner.set("caller", rest.remove(at).1);
        }
        let more = args.positional.iter().skip(definition.parameters.len()).cloned().collect();
        inner.set("varargs", Value::Tuple(self.budget.sequence(more)?));
        let named = rest.into_iter().map(|(name, value)| (Value::Text(name.into()), value));
        inner.set("kwargs", self.budget.dict(named.collect())?);
        let mut text = String::new();
        self.run(&definition.body, &inner, &mut text)?;
        self.budget.text(text)
    }

    fn function(&self, name: &str, args: &Args) -> Out {
        match name {
            "range" => {
                let bounds = args.positional.iter().map(|bound| bound.int("a bound"));
                let bounds = bounds.collect::<Result<Vec<i128>, _>>()?;
                let (start, stop, step) = match bounds[..] {
                    [stop] => (0, stop, 1),
                    [start, stop] => (start, stop, 1),
                    [start, stop, step] if step != 0 => (start, stop, step),
                    _ => {
                        return Err(Fault::new(
                            "it takes an end, or a start, an end and a step that is not 0",
                        ));
                    }
                };
                let distance = if step > 0 { stop.checked_sub(start) } else { start.checked_sub(stop) };
                let count = (distance.unwrap_or(i128::MAX).max(0) as u128).div_ceil(step.unsigned_abs());
                if count > MAX_RANGE as u128 {
                    return Err(Fault::new(format!("{count} numbers, of at most {MAX_RANGE}")));
                }
                self.budget.list((0..count as i128).map(|k| Value::Int(start + k * step)).collect())
            }
            "dict" => {
                let mut pairs = match &args.positional[..] {
                    [] => Vec::new(),
                    [Value::Dict(dict)] => dict.pairs.clone(),
                    [other] => {
                        let mut pairs = Vec::new();
                        for pair in &other.items(&self.budget)?.items {
                            match &pair.items(&self.budget)?.items[..] {
                                [key, value] => pairs.push((key.clone(), value.clone())),
                                _ => return Err(Fault::new("it takes pairs")),
                            }
                        }
                        pairs
                    }
                    _ => return Err(Fault::new("it takes one dictionary")),
                };
                pairs.extend(
                    args.named.iter().map(|(name, value)| (Value::Text((**name).into()), value.clone())),
                );
                self.budget.dict(pairs)
            }
            "namespace" => {
                let Value::Dict(dict) = self.function("dict", args)? else { return Ok(Value::None) };
                if let Some((key, _)) =
                    dict.pairs.iter().find(|(key, _)| !is_free(key.as_text().unwrap_or("_")))
                {
                    return Err(Fault::new(format!(
                        "{:?} is no name in a namespace",
                        key.text(&self.budget)?
                    )));
                }
                let named = |(key, value): &(Value, Value)| Some((Rc::from(key.as_text()?), value.clone()));
                self.budget.bytes(ENTRY_BYTES)?;
                let mut namespaces = self.namespaces.borrow_mut();
                namespaces.push(dict.pairs.iter().filter_map(named).collect());
                Ok(Value::Namespace(namespaces.len() - 1))
            }
            "strftime_now" => {
                let [format] = args.all(["format"])?;
                let format = super::arguments::text_of(&format, "the format")?;
                self.budget.text(clock::now(&format, &self.budget)?)
            }
            "raise_exception" => {
                let [message] = args.all(["message"])?;
                Err(Fault::new(message.text(&self.budget)?.to_string()))
            }
            other => Err(Fault::new(format!("no function is called {other:?}"))),
        }
    }
}

/// Whether a name in a namespace may be set: `transformers` refuses those with _ in front.
fn is_free(name: &str) -> bool {
    !name.starts_with('_')
}

/// The places `[start:stop:step]` of a list of `length` elements.
fn indices(bounds: [Option<i128>; 3], length: usize) -> Result<impl Iterator<Item = usize>, Fault> {
    let [start, stop, step] = bounds;
    let (length, step) = (length as i128, step.unwrap_or(1));
    if step == 0 {
        return Err(Fault::new("the step of a slice is 0"));
    }
    let (least, most) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let fitted = |bound: Option<i128>, default: i128| match bound {
        Some(bound) if bound < 0 => bound.saturating_add(length).clamp(least, most),
        Some(bound) => bound.clamp(least, most),
        None => default,
    };
    let (first, last) = if step > 0 { (0, length) } else { (length - 1, -1) };
    let (start, stop) = (fitted(start, first), fitted(stop, last));
    let distance = if step > 0 { stop - start } else { start - stop }.max(0) as u128;
    let count = distance.div_ceil(step.unsigned_abs());
    Ok((0..count).map(move |k| (start + k as i128 * step) as usize))
}
