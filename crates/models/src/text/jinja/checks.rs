//! Jinja's tests, `value is test`.

use super::{
    Fault,
    arguments::Args,
    renderer::Renderer,
    value::{Budget, Value},
};

type Test = fn(&Value, &Args, &Budget) -> Result<bool, Fault>;

/// Whether a test holds.
pub(super) fn holds(renderer: &Renderer<'_>, name: &str, value: &Value, args: &Args) -> Result<bool, Fault> {
    let Some((_, test)) = TESTS.iter().find(|(known, _)| *known == name) else {
        return Err(Fault::new(format!("no test is called {name:?}")));
    };
    test(value, args, &renderer.budget).map_err(|fault| fault.within(name))
}

fn one(args: &Args) -> Result<Value, Fault> {
    let [other] = args.all(["other"])?;
    Ok(other)
}

fn equal(value: &Value, args: &Args, budget: &Budget) -> Result<bool, Fault> {
    value.equals(&one(args)?, budget)
}

fn unequal(value: &Value, args: &Args, budget: &Budget) -> Result<bool, Fault> {
    Ok(!equal(value, args, budget)?)
}

fn less(value: &Value, args: &Args, budget: &Budget) -> Result<bool, Fault> {
    Ok(value.order(&one(args)?, budget)?.is_lt())
}

fn at_most(value: &Value, args: &Args, budget: &Budget) -> Result<bool, Fault> {
    Ok(value.order(&one(args)?, budget)?.is_le())
}

fn greater(value: &Value, args: &Args, budget: &Budget) -> Result<bool, Fault> {
    Ok(value.order(&one(args)?, budget)?.is_gt())
}

fn at_least(value: &Value, args: &Args, budget: &Budget) -> Result<bool, Fault> {
    Ok(value.order(&one(args)?, budget)?.is_ge())
}

/// The rest of a division, which decides `odd`, `even` and `divisibleby`.
fn rest(value: &Value, by: i128) -> Result<i128, Fault> {
    match value.int("the value")?.checked_rem_euclid(by) {
        Some(rest) => Ok(rest),
        None => Err(Fault::new("a division by zero")),
    }
}

const TESTS: &[(&str, Test)] = &[
    ("!=", unequal),
    ("<", less),
    ("<=", at_most),
    ("==", equal),
    (">", greater),
    (">=", at_least),
    ("boolean", |value, _, _| Ok(matches!(value, Value::Bool(_)))),
    ("callable", |value, _, _| Ok(matches!(value, Value::Function(_) | Value::Method(_) | Value::Macro(_)))),
    ("defined", |value, _, _| Ok(!matches!(value, Value::Undefined(_)))),
    ("divisibleby", |value, args, _| Ok(rest(value, one(args)?.int("the divisor")?)? == 0)),
    ("eq", equal),
    ("equalto", equal),
    ("even", |value, _, _| Ok(rest(value, 2)? == 0)),
    ("false", |value, _, _| Ok(matches!(value, Value::Bool(false)))),
    ("float", |value, _, _| Ok(matches!(value, Value::Float(_)))),
    ("ge", at_least),
    ("greaterthan", greater),
    ("gt", greater),
    ("in", |value, args, budget| one(args)?.contains(value, budget)),
    ("integer", |value, _, _| Ok(matches!(value, Value::Int(_)))),
    ("iterable", |value, _, _| Ok(has_elements(value))),
    ("le", at_most),
    ("lessthan", less),
    ("lower", |value, _, budget| {
        let text = value.text(budget)?;
        Ok(text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase))
    }),
    ("lt", less),
    ("mapping", |value, _, _| Ok(matches!(value, Value::Dict(_)))),
    ("ne", unequal),
    ("none", |value, _, _| Ok(matches!(value, Value::None))),
    ("number", |value, _, _| Ok(value.as_float().is_some())),
    ("odd", |value, _, _| Ok(rest(value, 2)? == 1)),
    ("sameas", |value, args, budget| {
        let other = one(args)?;
        Ok(value.kind() == other.kind() && value.equals(&other, budget)?)
    }),
    ("sequence", |value, _, _| Ok(has_elements(value))),
    ("string", |value, _, _| Ok(matches!(value, Value::Text(_)))),
    ("true", |value, _, _| Ok(matches!(value, Value::Bool(true)))),
    ("undefined", |value, _, _| Ok(matches!(value, Value::Undefined(_)))),
    ("upper", |value, _, budget| {
        let text = value.text(budget)?;
        Ok(text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase))
    }),
];

fn has_elements(value: &Value) -> bool {
    matches!(value, Value::Undefined(_) | Value::Text(_) | Value::List(_) | Value::Tuple(_) | Value::Dict(_))
}
