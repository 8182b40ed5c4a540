//! Jinja's filters, and `tojson` of `transformers`.

use std::rc::Rc;

use super::{
    Fault,
    arguments::{Args, flag, given, size_or, text_of},
    json, methods, printf,
    renderer::Renderer,
    value::{Sequence, Value},
};

type Out = Result<Value, Fault>;
type Filter = fn(&Renderer<'_>, &Value, &Args) -> Out;

/// The result of a filter.
pub(super) fn apply(renderer: &Renderer<'_>, name: &str, value: &Value, args: &Args) -> Out {
    let Some((_, filter)) = FILTERS.iter().find(|(known, _)| *known == name) else {
        return Err(Fault::new(format!("no filter is called {name:?}")));
    };
    if let Value::Text(text) = value {
        renderer.budget.steps(text.len() / 16)?;
    }
    filter(renderer, value, args).map_err(|fault| fault.within(name))
}

const FILTERS: &[(&str, Filter)] = &[
    ("abs", |_, value, args| {
        args.bind([])?;
        match (value.as_int(), value.as_float()) {
            (Some(value), _) => {
                value.checked_abs().map(Value::Int).ok_or_else(|| Fault::new("the number is too large"))
            }
            (_, Some(value)) => Ok(Value::Float(value.abs())),
            _ => Err(Fault::new(format!("a {} has no size", value.kind()))),
        }
    }),
    ("attr", |renderer, value, args| {
        let [name] = args.all(["name"])?;
        renderer.attribute(value, &text_of(&name, "the name")?, false)
    }),
    ("batch", |renderer, value, args| {
        let [size, fill] = args.bind(["linecount", "fill_with"])?;
        let size = size_or(size, 0, "the number of elements")?.max(1);
        let items = value.items(&renderer.budget)?;
        let mut rows = Vec::new();
        for row in items.items.chunks(size) {
            let mut row = row.to_vec();
            if let Some(fill) = given(fill.clone()) {
                renderer.budget.bytes((size - row.len()).saturating_mul(size_of::<Value>()))?;
                row.resize(size, fill);
            }
            rows.push(renderer.budget.list(row)?);
        }
        renderer.budget.list(rows)
    }),
    ("capitalize", |renderer, value, args| {
        args.bind([])?;
        renderer.budget.text(methods::capitalized(&value.text(&renderer.budget)?))
    }),
    ("center", |renderer, value, args| {
        let [width] = args.bind(["width"])?;
        let text = value.text(&renderer.budget)?;
        let width = size_or(width, 80, "the width")?;
        let [left, right] = methods::centred(width.saturating_sub(text.chars().count()), width);
        let (left, right) = (renderer.budget.repeated(" ", left)?, renderer.budget.repeated(" ", right)?);
        renderer.budget.text([&left, &*text, &right].concat())
    }),
    ("count", |renderer, value, args| length(renderer, value, args)),
    ("d", |_, value, args| default(value, args)),
    ("default", |_, value, args| default(value, args)),
    ("dictsort", |renderer, value, args| {
        let [cased, by, reverse] = args.bind(["case_sensitive", "by", "reverse"])?;
        let Value::Dict(dict) = value else {
            return Err(Fault::new(format!("a {} is no dictionary", value.kind())));
        };
        let by_value = given(by).is_some_and(|by| by.as_text() == Some("value"));
        let Value::List(pairs) = methods::pairs(dict, &renderer.budget)? else { return Ok(Value::None) };
        let keys = dict.pairs.iter().map(|(key, value)| if by_value { value } else { key });
        let keys: Vec<Value> =
            keys.map(|key| folded(renderer, key, flag(cased.clone()))).collect::<Result<_, _>>()?;
        renderer.budget.list(sorted(renderer, keys, pairs.items.clone(), flag(reverse))?)
    }),
    ("e", |renderer, value, args| escape(renderer, value, args)),
    ("escape", |renderer, value, args| escape(renderer, value, args)),
    ("first", |renderer, value, args| {
        args.bind([])?;
        end(renderer, value, "first")
    }),
    ("float", |_, value, args| {
        let [default] = args.bind(["default"])?;
        let found = match value {
            Value::Text(text) => text.trim().replace('_', "").parse().ok(),
            other => other.as_float(),
        };
        Ok(found.map(Value::Float).or(default).unwrap_or(Value::Float(0.0)))
    }),
    ("forceescape", |renderer, value, args| escape(renderer, value, args)),
    ("format", |renderer, value, args| {
        let text = value.text(&renderer.budget)?;
        let values = match args.named.is_empty() {
            true => Value::Tuple(renderer.budget.sequence(args.positional.clone())?),
            false => {
                let pairs =
                    args.named.iter().map(|(name, value)| (Value::Text((**name).into()), value.clone()));
                renderer.budget.dict(pairs.collect())?
            }
        };
        renderer.budget.text(printf::percent(&text, &values, &renderer.budget)?)
    }),
    ("groupby", |renderer, value, args| {
        let [attribute, default, cased] = args.bind(["attribute", "default", "case_sensitive"])?;
        let (items, keys) = keyed(renderer, value, given(attribute), default, flag(cased))?;
        let mut pairs: Vec<Value> = Vec::new();
        for (key, item) in keys.iter().zip(&items.items) {
            pairs.push(Value::Tuple(renderer.budget.sequence(vec![key.clone(), item.clone()])?));
        }
        let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
        for pair in sorted(renderer, keys, pairs, false)? {
            let Value::Tuple(pair) = pair else { continue };
            let (key, item) = (&pair.items[0], &pair.items[1]);
            match groups.last_mut() {
                Some((last, group)) if last.equals(key, &renderer.budget)? => group.push(item.clone()),
                _ => groups.push((key.clone(), vec![item.clone()])),
            }
        }
        let mut out = Vec::new();
        for (key, group) in groups {
            let group = renderer.budget.list(group)?;
            out.push(Value::Tuple(renderer.budget.sequence(vec![key, group])?));
        }
        renderer.budget.list(out)
    }),
    ("indent", |renderer, value, args| {
        let [width, first, blank] = args.bind(["width", "first", "blank"])?;
        let space = match given(width) {
            Some(Value::Text(text)) => text.to_string(),
            width => renderer.budget.repeated(" ", size_or(width, 4, "the width")?)?,
        };
        let text = value.text(&renderer.budget)?;
        let (first, blank) = (flag(first), flag(blank));
        let mut out = String::new();
        let text = format!("{text}\n");
        for (k, (line, _)) in methods::lines(&text).into_iter().enumerate() {
            out.push_str(if k > 0 { "\n" } else { "" });
            if (k == 0 && first) || (k > 0 && (blank || !line.is_empty())) {
                renderer.budget.bytes(space.len())?;
                out.push_str(&space);
            }
            out.push_str(line);
        }
        renderer.budget.text(out)
    }),
    ("int", |_, value, args| {
        let [default, base] = args.bind(["default", "base"])?;
        let base = size_or(base, 10, "the base")?;
        if base != 0 && !(2..=36).contains(&base) {
            return Err(Fault::new(format!("a base of {base} is neither 0 nor between 2 and 36")));
        }
        let whole = |value: f64| (value.is_finite() && value.abs() < 1e38).then_some(value as i128);
        let found = match value {
            Value::Text(text) => {
                let text = text.trim().replace('_', "");
                // A base of 0 is that of the prefix, which the number may also have otherwise.
                let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
                let prefixes = [("0x", 16), ("0o", 8), ("0b", 2)];
                let prefixed = prefixes.iter().find_map(|(prefix, of)| {
                    let head = digits.get(..2)?;
                    (head.eq_ignore_ascii_case(prefix) && [0, *of].contains(&base))
                        .then(|| (&digits[2..], *of))
                });
                let (digits, radix) = prefixed.unwrap_or((digits, if base == 0 { 10 } else { base }));
                let number = i128::from_str_radix(&[sign, digits].concat(), radix as u32).ok();
                number.or_else(|| text.parse::<f64>().ok().and_then(whole))
            }
            Value::Float(value) => whole(*value),
            other => other.as_int(),
        };
        Ok(found.map(Value::Int).or(default).unwrap_or(Value::Int(0)))
    }),
    ("items", |renderer, value, args| {
        args.bind([])?;
        match value {
            Value::Dict(dict) => methods::pairs(dict, &renderer.budget),
            Value::Undefined(_) => renderer.budget.list(Vec::new()),
            other => Err(Fault::new(format!("a {} has no pairs", other.kind()))),
        }
    }),
    ("join", |renderer, value, args| {
        let [by, attribute] = args.bind(["d", "attribute"])?;
        let by = by.map_or(Ok("".into()), |by| by.text(&renderer.budget))?;
        let mut out = String::new();
        for (k, item) in value.items(&renderer.budget)?.items.iter().enumerate() {
            if k > 0 {
                renderer.budget.bytes(by.len())?;
                out.push_str(&by);
            }
            match given(attribute.clone()) {
                Some(attribute) => path(renderer, item, &attribute)?.write(&mut out, &renderer.budget)?,
                None => item.write(&mut out, &renderer.budget)?,
            }
        }
        renderer.budget.text(out)
    }),
    ("last", |renderer, value, args| {
        args.bind([])?;
        end(renderer, value, "last")
    }),
    ("length", |renderer, value, args| length(renderer, value, args)),
    ("list", |renderer, value, args| {
        args.bind([])?;
        Ok(Value::List(value.items(&renderer.budget)?))
    }),
    ("lower", |renderer, value, args| {
        args.bind([])?;
        renderer.budget.text(value.text(&renderer.budget)?.to_lowercase())
    }),
    ("map", |renderer, value, args| {
        let items = value.items(&renderer.budget)?;
        let mut out = Vec::with_capacity(items.items.len());
        if args.positional.is_empty() {
            let [attribute, default] = args.bind(["attribute", "default"])?;
            let Some(attribute) = attribute else {
                return Err(Fault::new("it takes a filter or an attribute"));
            };
            for item in &items.items {
                out.push(or_default(path(renderer, item, &attribute)?, &default));
            }
        } else {
            let name = text_of(&args.positional[0], "the filter")?;
            let args = Args { positional: args.positional[1..].to_vec(), named: args.named.clone() };
            for item in &items.items {
                renderer.budget.steps(1)?;
                out.push(apply(renderer, &name, item, &args)?);
            }
        }
        renderer.budget.list(out)
    }),
    ("max", |renderer, value, args| extreme(renderer, value, args, true)),
    ("min", |renderer, value, args| extreme(renderer, value, args, false)),
    ("reject", |renderer, value, args| chosen(renderer, value, args, false, false)),
    ("rejectattr", |renderer, value, args| chosen(renderer, value, args, true, false)),
    ("replace", |renderer, value, args| {
        let [old, new, count] = args.bind(["old", "new", "count"])?;
        let (Some(old), Some(new)) = (old, new) else { return Err(Fault::new("it takes two texts")) };
        let (text, old) = (value.text(&renderer.budget)?, old.text(&renderer.budget)?);
        methods::replaced(&text, &old, &new.text(&renderer.budget)?, given(count), &renderer.budget)
    }),
    ("reverse", |renderer, value, args| {
        args.bind([])?;
        if let Value::Text(text) = value {
            return renderer.budget.text(text.chars().rev().collect::<String>());
        }
        renderer.budget.list(value.items(&renderer.budget)?.items.iter().rev().cloned().collect())
    }),
    ("round", |_, value, args| {
        let [precision, method] = args.bind(["precision", "method"])?;
        let precision = given(precision).map_or(Ok(0), |precision| precision.int("the precision"))?;
        let number =
            value.as_float().ok_or_else(|| Fault::new(format!("a {} is no number", value.kind())))?;
        let scale = 10f64.powi(precision.clamp(-400, 400) as i32);
        let rounded = match given(method).as_ref().and_then(Value::as_text).unwrap_or("common") {
            "ceil" => (number * scale).ceil() / scale,
            "floor" => (number * scale).floor() / scale,
            "common" if precision >= 0 => {
                format!("{number:.*}", precision.min(400) as usize).parse().unwrap_or(number)
            }
            "common" => (number * scale).round_ties_even() / scale,
            other => return Err(Fault::new(format!("{other:?} is none of common, ceil, floor"))),
        };
        Ok(match value.as_int() {
            Some(value) if precision >= 0 => Value::Int(value),
            Some(_) => Value::Int(rounded as i128),
            None => Value::Float(rounded),
        })
    }),
    ("safe", |renderer, value, args| text(renderer, value, args)),
    ("select", |renderer, value, args| chosen(renderer, value, args, false, true)),
    ("selectattr", |renderer, value, args| chosen(renderer, value, args, true, true)),
    ("slice", |renderer, value, args| {
        let [slices, fill] = args.bind(["slices", "fill_with"])?;
        let slices = size_or(slices, 0, "the number of lists")?.max(1);
        let items = value.items(&renderer.budget)?;
        renderer.budget.steps(slices)?;
        let (each, more) = (items.items.len() / slices, items.items.len() % slices);
        let (mut out, mut start) = (Vec::new(), 0);
        for k in 0..slices {
            let size = each + usize::from(k < more);
            let mut part = items.items[start..start + size].to_vec();
            start += size;
            if k >= more
                && let Some(fill) = given(fill.clone())
            {
                part.push(fill);
            }
            out.push(renderer.budget.list(part)?);
        }
        renderer.budget.list(out)
    }),
    ("sort", |renderer, value, args| {
        let [reverse, cased, attribute] = args.bind(["reverse", "case_sensitive", "attribute"])?;
        let (items, keys) = keyed(renderer, value, given(attribute), None, flag(cased))?;
        renderer.budget.list(sorted(renderer, keys, items.items.clone(), flag(reverse))?)
    }),
    ("string", |renderer, value, args| text(renderer, value, args)),
    ("sum", |renderer, value, args| {
        let [attribute, start] = args.bind(["attribute", "start"])?;
        let (items, mut sum) = (value.items(&renderer.budget)?, start.unwrap_or(Value::Int(0)));
        for item in &items.items {
            let item = match given(attribute.clone()) {
                Some(attribute) => path(renderer, item, &attribute)?,
                None => item.clone(),
            };
            sum = renderer.binary(super::syntax::Binary::Add, &sum, &item)?;
        }
        Ok(sum)
    }),
    ("title", |renderer, value, args| {
        args.bind([])?;
        let separates = |c: char| c.is_whitespace() || "-({[<".contains(c);
        renderer.budget.text(methods::titled(&value.text(&renderer.budget)?, separates))
    }),
    ("tojson", |renderer, value, args| {
        let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
        let [ascii, indent, separators, sort] = args.bind(names)?;
        json::write(value, [flag(ascii), flag(sort)], given(indent), given(separators), &renderer.budget)
    }),
    ("trim", |renderer, value, args| {
        let [chars] = args.bind(["chars"])?;
        let chars = given(chars).map(|chars| text_of(&chars, "its argument")).transpose()?;
        let text = value.text(&renderer.budget)?;
        renderer.budget.text(methods::trimmed(&text, chars.as_deref(), [true, true]))
    }),
    ("truncate", |renderer, value, args| {
        let [length, kill, end, leeway] = args.bind(["length", "killwords", "end", "leeway"])?;
        let (length, leeway) = (size_or(length, 255, "the length")?, size_or(leeway, 5, "the leeway")?);
        let end = end.map_or(Ok("...".into()), |end| end.text(&renderer.budget))?;
        let text = value.text(&renderer.budget)?;
        if text.chars().count() <= length.saturating_add(leeway) {
            return Ok(Value::Text(text));
        }
        let Some(kept) = length.checked_sub(end.chars().count()) else {
            return Err(Fault::new(format!("a length of {length} is below that of {end:?}")));
        };
        let short: String = text.chars().take(kept).collect();
        let short = match flag(kill) {
            true => &short[..],
            false => short.rsplit_once(' ').map_or(&short[..], |(before, _)| before),
        };
        renderer.budget.text([short, &end].concat())
    }),
    ("unique", |renderer, value, args| {
        let [cased, attribute] = args.bind(["case_sensitive", "attribute"])?;
        let (items, keys) = keyed(renderer, value, given(attribute), None, flag(cased))?;
        let (mut seen, mut out): (Vec<&Value>, Vec<Value>) = (Vec::new(), Vec::new());
        'items: for (key, item) in keys.iter().zip(&items.items) {
            for known in &seen {
                if known.equals(key, &renderer.budget)? {
                    continue 'items;
                }
            }
            seen.push(key);
            out.push(item.clone());
        }
        renderer.budget.list(out)
    }),
    ("upper", |renderer, value, args| {
        args.bind([])?;
        renderer.budget.text(value.text(&renderer.budget)?.to_uppercase())
    }),
    ("urlencode", |renderer, value, args| {
        args.bind([])?;
        let text = value.text(&renderer.budget)?;
        renderer.budget.bytes(3 * text.len())?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-~/".contains(&byte);
        let coded =
            |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        renderer.budget.text(text.bytes().map(coded).collect::<String>())
    }),
    ("wordcount", |renderer, value, args| {
        args.bind([])?;
        let text = value.text(&renderer.budget)?;
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
        Ok(Value::Int(words.count() as i128))
    }),
];

fn default(value: &Value, args: &Args) -> Out {
    let [default, boolean] = args.bind(["default_value", "boolean"])?;
    let is_missing = matches!(value, Value::Undefined(_)) || (flag(boolean) && !value.is_true());
    Ok(if is_missing { default.unwrap_or_else(|| Value::Text("".into())) } else { value.clone() })
}

fn length(renderer: &Renderer<'_>, value: &Value, args: &Args) -> Out {
    args.bind([])?;
    Ok(Value::Int(match value {
        Value::Text(text) => {
            renderer.budget.steps(text.len() / 16)?;
            text.chars().count()
        }
        Value::Dict(dict) => dict.pairs.len(),
        other => other.items(&renderer.budget)?.items.len(),
    } as i128))
}

fn text(renderer: &Renderer<'_>, value: &Value, args: &Args) -> Out {
    args.bind([])?;
    Ok(Value::Text(value.text(&renderer.budget)?))
}

fn escape(renderer: &Renderer<'_>, value: &Value, args: &Args) -> Out {
    args.bind([])?;
    let mut out = String::new();
    for c in value.text(&renderer.budget)?.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    renderer.budget.text(out)
}

/// The first or last element.
fn end(renderer: &Renderer<'_>, value: &Value, which: &str) -> Out {
    let items = value.items(&renderer.budget)?;
    let item = if which == "first" { items.items.first() } else { items.items.last() };
    Ok(item.cloned().unwrap_or_else(|| Value::Undefined(format!("the {which} element of nothing").into())))
}

fn or_default(value: Value, default: &Option<Value>) -> Value {
    match (value, default) {
        (Value::Undefined(_), Some(default)) => default.clone(),
        (value, _) => value,
    }
}

/// The value that a path such as `function.name` or a number leads to.
fn path(renderer: &Renderer<'_>, value: &Value, path: &Value) -> Out {
    let Value::Text(path) = path else { return renderer.item(value, path) };
    let mut value = value.clone();
    for part in path.split('.') {
        let key = match part.parse::<u64>() {
            Ok(index) => Value::Int(index.into()),
            Err(_) => Value::Text(part.into()),
        };
        value = renderer.item(&value, &key)?;
    }
    Ok(value)
}

/// A text in lower case, unless case matters.
fn folded(renderer: &Renderer<'_>, key: &Value, cased: bool) -> Out {
    match key {
        Value::Text(text) if !cased => renderer.budget.text(text.to_lowercase()),
        key => Ok(key.clone()),
    }
}

/// Elements, and the values by which they are compared.
fn keyed(
    renderer: &Renderer<'_>,
    value: &Value,
    attribute: Option<Value>,
    default: Option<Value>,
    cased: bool,
) -> Result<(Rc<Sequence>, Vec<Value>), Fault> {
    let items = value.items(&renderer.budget)?;
    let mut keys = Vec::with_capacity(items.items.len());
    for item in &items.items {
        let key = match &attribute {
            Some(attribute) => or_default(path(renderer, item, attribute)?, &default),
            None => item.clone(),
        };
        keys.push(folded(renderer, &key, cased)?);
    }
    Ok((items, keys))
}

/// Elements in the order of their keys; equal ones stay in their order.
fn sorted(
    renderer: &Renderer<'_>,
    keys: Vec<Value>,
    items: Vec<Value>,
    reverse: bool,
) -> Result<Vec<Value>, Fault> {
    let mut fault = None;
    let mut pairs: Vec<(Value, Value)> = keys.into_iter().zip(items).collect();
    pairs.sort_by(|(a, _), (b, _)| {
        let (a, b) = if reverse { (b, a) } else { (a, b) };
        match (&fault, a.order(b, &renderer.budget)) {
            (None, Ok(order)) => order,
            (None, Err(error)) => {
                fault = Some(error);
                std::cmp::Ordering::Equal
            }
            (Some(_), _) => std::cmp::Ordering::Equal,
        }
    });
    match fault {
        Some(fault) => Err(fault),
        None => Ok(pairs.into_iter().map(|(_, item)| item).collect()),
    }
}

fn extreme(renderer: &Renderer<'_>, value: &Value, args: &Args, greatest: bool) -> Out {
    let [cased, attribute] = args.bind(["case_sensitive", "attribute"])?;
    let (items, keys) = keyed(renderer, value, given(attribute), None, flag(cased))?;
    let mut best: Option<usize> = None;
    for (k, key) in keys.iter().enumerate() {
        let better = match best {
            Some(best) => {
                let order = key.order(&keys[best], &renderer.budget)?;
                if greatest { order.is_gt() } else { order.is_lt() }
            }
            None => true,
        };
        best = if better { Some(k) } else { best };
    }
    Ok(best
        .map_or_else(|| Value::Undefined("the extreme of nothing".into()), |best| items.items[best].clone()))
}

/// The elements that a test takes, or those that it does not; `by_attribute` tests an attribute of each.
fn chosen(renderer: &Renderer<'_>, value: &Value, args: &Args, by_attribute: bool, wanted: bool) -> Out {
    let mut given = args.positional.iter();
    let attribute = match by_attribute {
        true => Some(given.next().ok_or_else(|| Fault::new("it takes an attribute"))?),
        false => None,
    };
    let test = given.next().map(|name| text_of(name, "the test")).transpose()?;
    let args = Args { positional: given.cloned().collect(), named: args.named.clone() };
    let mut out = Vec::new();
    for item in &value.items(&renderer.budget)?.items {
        renderer.budget.steps(1)?;
        let tested = match attribute {
            Some(attribute) => path(renderer, item, attribute)?,
            None => item.clone(),
        };
        let holds = match &test {
            Some(test) => super::checks::holds(renderer, test, &tested, &args)?,
            None => tested.is_true(),
        };
        if holds == wanted {
            out.push(item.clone());
        }
    }
    renderer.budget.list(out)
}
