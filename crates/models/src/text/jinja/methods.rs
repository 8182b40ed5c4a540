//! The methods of Python's texts, lists and dictionaries. Those that change a value are refused, as the
//! sandbox of `transformers` does.

use std::rc::Rc;

use super::{
    Fault,
    arguments::{Args, given, text_of},
    printf,
    value::{Budget, Dict, Sequence, Value},
};

type Out = Result<Value, Fault>;
type TextMethod = fn(&str, &Args, &Budget) -> Out;
type ListMethod = fn(&Sequence, &Args, &Budget) -> Out;
type DictMethod = fn(&Dict, &Args, &Budget) -> Out;

/// Whether a value has a method of this name.
pub(super) fn has(value: &Value, name: &str) -> bool {
    match value {
        Value::Text(_) => TEXT.iter().any(|(known, _)| *known == name),
        Value::List(_) | Value::Tuple(_) => {
            CHANGES.contains(&name) || LIST.iter().any(|(known, _)| *known == name)
        }
        Value::Dict(_) => CHANGES.contains(&name) || DICT.iter().any(|(known, _)| *known == name),
        Value::Loop(_) => name == "cycle",
        _ => false,
    }
}

/// The result of a method.
pub(super) fn call(value: &Value, name: &str, args: &Args, budget: &Budget) -> Out {
    let result = match value {
        Value::Text(text) => {
            budget.steps(text.len() / 16)?;
            TEXT.iter().find(|(known, _)| *known == name).map(|(_, method)| method(text, args, budget))
        }
        Value::List(items) | Value::Tuple(items) => {
            LIST.iter().find(|(known, _)| *known == name).map(|(_, method)| method(items, args, budget))
        }
        Value::Dict(dict) => {
            DICT.iter().find(|(known, _)| *known == name).map(|(_, method)| method(dict, args, budget))
        }
        Value::Loop(state) => Some(match args.positional.is_empty() {
            true => Err(Fault::new("it needs values")),
            false => Ok(args.positional[state.index % args.positional.len()].clone()),
        }),
        _ => None,
    };
    match result {
        Some(Ok(value)) => Ok(value),
        Some(Err(fault)) => Err(fault.within(&format!("{}.{name}", value.kind()))),
        None if CHANGES.contains(&name) => Err(Fault::new(format!(
            "{}.{name} would change its value, which a template may not",
            value.kind()
        ))),
        None => Err(Fault::new(format!("{} has no method {name:?}", value.kind()))),
    }
}

/// Methods that change a value.
const CHANGES: &[&str] = &[
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
];

const LIST: &[(&str, ListMethod)] = &[
    ("count", |items, args, budget| {
        let [item] = args.all(["value"])?;
        let mut count = 0;
        for other in &items.items {
            count += i128::from(other.equals(&item, budget)?);
        }
        Ok(Value::Int(count))
    }),
    ("index", |items, args, budget| {
        let [item] = args.all(["value"])?;
        for (k, other) in items.items.iter().enumerate() {
            if other.equals(&item, budget)? {
                return Ok(Value::Int(k as i128));
            }
        }
        Err(Fault::new("the value is not in the list"))
    }),
    ("copy", |items, args, budget| {
        args.bind([])?;
        budget.list(items.items.clone())
    }),
];

const DICT: &[(&str, DictMethod)] = &[
    ("get", |dict, args, budget| {
        let [key, default] = args.bind(["key", "default"])?;
        let Some(key) = key else { return Err(Fault::new("the argument \"key\" is missing")) };
        Ok(dict.get(&key, budget)?.or(default).unwrap_or(Value::None))
    }),
    ("items", |dict, args, budget| {
        args.bind([])?;
        pairs(dict, budget)
    }),
    ("keys", |dict, args, budget| {
        args.bind([])?;
        budget.list(dict.pairs.iter().map(|(key, _)| key.clone()).collect())
    }),
    ("values", |dict, args, budget| {
        args.bind([])?;
        budget.list(dict.pairs.iter().map(|(_, value)| value.clone()).collect())
    }),
    ("copy", |dict, args, budget| {
        args.bind([])?;
        budget.dict(dict.pairs.clone())
    }),
];

/// A list of keys with their values.
pub(super) fn pairs(dict: &Dict, budget: &Budget) -> Out {
    let mut items = Vec::with_capacity(dict.pairs.len());
    for (key, value) in &dict.pairs {
        items.push(Value::Tuple(budget.sequence(vec![key.clone(), value.clone()])?));
    }
    budget.list(items)
}

const TEXT: &[(&str, TextMethod)] = &[
    ("upper", |text, args, budget| plain(args, budget, || text.to_uppercase())),
    ("lower", |text, args, budget| plain(args, budget, || text.to_lowercase())),
    ("casefold", |text, args, budget| plain(args, budget, || text.to_lowercase())),
    ("capitalize", |text, args, budget| plain(args, budget, || capitalized(text))),
    ("title", |text, args, budget| plain(args, budget, || titled(text, |c| !c.is_alphabetic()))),
    ("swapcase", |text, args, budget| {
        let swapped = |c: char| -> String {
            if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
        };
        plain(args, budget, || text.chars().map(swapped).collect())
    }),
    ("strip", |text, args, budget| stripped(text, args, budget, [true, true])),
    ("lstrip", |text, args, budget| stripped(text, args, budget, [true, false])),
    ("rstrip", |text, args, budget| stripped(text, args, budget, [false, true])),
    ("removeprefix", |text, args, budget| {
        let part = one_text(args)?;
        budget.text(text.strip_prefix(&*part).unwrap_or(text))
    }),
    ("removesuffix", |text, args, budget| {
        let part = one_text(args)?;
        budget.text(text.strip_suffix(&*part).unwrap_or(text))
    }),
    ("startswith", |text, args, budget| begins_or_ends(args, budget, |part| text.starts_with(part))),
    ("endswith", |text, args, budget| begins_or_ends(args, budget, |part| text.ends_with(part))),
    ("islower", |text, args, _| is_all(args, cased(text) && !text.chars().any(char::is_uppercase))),
    ("isupper", |text, args, _| is_all(args, cased(text) && !text.chars().any(char::is_lowercase))),
    ("isspace", |text, args, _| is_all(args, !text.is_empty() && text.chars().all(char::is_whitespace))),
    ("isdigit", |text, args, _| is_all(args, !text.is_empty() && text.chars().all(is_digit))),
    ("isdecimal", |text, args, _| is_all(args, !text.is_empty() && text.chars().all(is_digit))),
    ("isnumeric", |text, args, _| is_all(args, !text.is_empty() && text.chars().all(char::is_numeric))),
    ("isalpha", |text, args, _| is_all(args, !text.is_empty() && text.chars().all(char::is_alphabetic))),
    ("isalnum", |text, args, _| is_all(args, !text.is_empty() && text.chars().all(char::is_alphanumeric))),
    ("isascii", |text, args, _| is_all(args, text.is_ascii())),
    ("count", |text, args, _| {
        let part = one_text(args)?;
        let count = if part.is_empty() { text.chars().count() + 1 } else { text.matches(&*part).count() };
        Ok(Value::Int(count as i128))
    }),
    ("find", |text, args, _| found(text, args, false)),
    ("rfind", |text, args, _| found(text, args, true)),
    ("index", |text, args, _| must_find(found(text, args, false)?)),
    ("rindex", |text, args, _| must_find(found(text, args, true)?)),
    ("replace", |text, args, budget| {
        let [old, new, count] = args.bind(["old", "new", "count"])?;
        let (Some(old), Some(new)) = (old, new) else { return Err(Fault::new("it takes two texts")) };
        replaced(text, &text_of(&old, "the old part")?, &text_of(&new, "the new part")?, given(count), budget)
    }),
    ("split", |text, args, budget| split(text, args, budget, false)),
    ("rsplit", |text, args, budget| split(text, args, budget, true)),
    ("splitlines", |text, args, budget| {
        let [keep] = args.bind(["keepends"])?;
        let keep = keep.is_some_and(|keep| keep.is_true());
        texts(
            lines(text).into_iter().map(|(line, end)| if keep { [line, end].concat() } else { line.into() }),
            budget,
        )
    }),
    ("partition", |text, args, budget| {
        let part = separator(args)?;
        let (before, after) = text.split_once(&*part).map_or((text, None), |(a, b)| (a, Some(b)));
        parts(if after.is_some() { [before, &part, after.unwrap_or("")] } else { [text, "", ""] }, budget)
    }),
    ("rpartition", |text, args, budget| {
        let part = separator(args)?;
        match text.rsplit_once(&*part) {
            Some((before, after)) => parts([before, &part, after], budget),
            None => parts(["", "", text], budget),
        }
    }),
    ("join", |text, args, budget| {
        let [items] = args.all(["iterable"])?;
        let mut out = String::new();
        for (k, item) in items.items(budget)?.items.iter().enumerate() {
            budget.bytes(text.len())?;
            out.push_str(if k > 0 { text } else { "" });
            text_of(item, "each part")?;
            item.write(&mut out, budget)?;
        }
        budget.text(out)
    }),
    ("format", |text, args, budget| {
        budget.text(printf::format(text, &args.positional, &args.named, budget)?)
    }),
    ("zfill", |text, args, budget| {
        let [width] = args.all(["width"])?;
        let missing = width.size("the width")?.saturating_sub(text.chars().count());
        let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
        budget.text(format!("{sign}{}{digits}", budget.repeated("0", missing)?))
    }),
    ("ljust", |text, args, budget| justified(text, args, budget, |missing, _| [0, missing])),
    ("rjust", |text, args, budget| justified(text, args, budget, |missing, _| [missing, 0])),
    ("center", |text, args, budget| justified(text, args, budget, centred)),
    ("expandtabs", |text, args, budget| {
        let [size] = args.bind(["tabsize"])?;
        let size = size.map_or(Ok(8), |size| size.size("the size"))?;
        let mut out = String::new();
        let mut column = 0;
        for c in text.chars() {
            match c {
                '\t' if size > 0 => {
                    let missing = size - column % size;
                    out += &budget.repeated(" ", missing)?;
                    column += missing;
                }
                '\t' => {}
                _ => {
                    out.push(c);
                    column = if c == '\n' || c == '\r' { 0 } else { column + 1 };
                }
            }
        }
        budget.text(out)
    }),
];

fn plain(args: &Args, budget: &Budget, text: impl FnOnce() -> String) -> Out {
    args.bind([])?;
    budget.text(text())
}

fn is_all(args: &Args, value: bool) -> Out {
    args.bind([])?;
    Ok(Value::Bool(value))
}

fn is_digit(c: char) -> bool {
    c.is_numeric() && c.is_ascii_digit() || (c.is_numeric() && !c.is_ascii() && !c.is_alphabetic())
}

fn cased(text: &str) -> bool {
    text.chars().any(|c| c.is_uppercase() || c.is_lowercase())
}

/// The first letter in upper case, the others in lower case.
pub(super) fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    first + &chars.as_str().to_lowercase()
}

/// The first letter of each word in upper case, the others in lower case; `separates` are characters between
/// words.
pub(super) fn titled(text: &str, separates: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut begins = true;
    for c in text.chars() {
        if begins {
            out.extend(c.to_uppercase())
        } else {
            out.extend(c.to_lowercase())
        }
        begins = separates(c);
    }
    out
}

fn one_text(args: &Args) -> Result<Rc<str>, Fault> {
    let [part] = args.all(["part"])?;
    text_of(&part, "its argument")
}

fn separator(args: &Args) -> Result<Rc<str>, Fault> {
    let part = one_text(args)?;
    if part.is_empty() { Err(Fault::new("the separator is empty")) } else { Ok(part) }
}

fn stripped(text: &str, args: &Args, budget: &Budget, [left, right]: [bool; 2]) -> Out {
    let [chars] = args.bind(["chars"])?;
    let chars = given(chars).map(|chars| text_of(&chars, "its argument")).transpose()?;
    budget.text(trimmed(text, chars.as_deref(), [left, right]))
}

/// A text without some characters, or without white space, at its ends.
pub(super) fn trimmed<'t>(text: &'t str, chars: Option<&str>, [left, right]: [bool; 2]) -> &'t str {
    let is_out = |c: char| match chars {
        Some(chars) => chars.contains(c),
        None => c.is_whitespace(),
    };
    let text = if left { text.trim_start_matches(is_out) } else { text };
    if right { text.trim_end_matches(is_out) } else { text }
}

fn begins_or_ends(args: &Args, budget: &Budget, is_so: impl Fn(&str) -> bool) -> Out {
    let [parts] = args.all(["part"])?;
    let parts = match &parts {
        Value::Tuple(parts) => parts.items.clone(),
        part => vec![part.clone()],
    };
    budget.steps(parts.len())?;
    for part in parts {
        if is_so(&text_of(&part, "its argument")?) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn found(text: &str, args: &Args, last: bool) -> Out {
    let part = one_text(args)?;
    let at = if last { text.rfind(&*part) } else { text.find(&*part) };
    Ok(Value::Int(at.map_or(-1, |at| text[..at].chars().count() as i128)))
}

fn must_find(at: Value) -> Out {
    match at {
        Value::Int(-1) => Err(Fault::new("the part is not in the text")),
        at => Ok(at),
    }
}

/// A text with `new` in place of each `old`, or of the first ones.
pub(super) fn replaced(text: &str, old: &str, new: &str, count: Option<Value>, budget: &Budget) -> Out {
    let most = match count {
        Some(count) => usize::try_from(count.int("the count")?).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    let times = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() }.min(most);
    budget.steps(times)?;
    budget.bytes(new.len().saturating_mul(times))?;
    budget.text(text.replacen(old, new, most))
}

fn texts(parts: impl Iterator<Item = String>, budget: &Budget) -> Out {
    let mut items = Vec::new();
    for part in parts {
        items.push(budget.text(part)?);
    }
    budget.list(items)
}

fn parts(three: [&str; 3], budget: &Budget) -> Out {
    let mut items = Vec::with_capacity(3);
    for part in three {
        items.push(budget.text(part)?);
    }
    Ok(Value::Tuple(budget.sequence(items)?))
}

fn split(text: &str, args: &Args, budget: &Budget, from_right: bool) -> Out {
    let [by, most] = args.bind(["sep", "maxsplit"])?;
    let most = match given(most) {
        Some(most) => usize::try_from(most.int("the number of splits")?).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    let limit = most.saturating_add(1);
    let Some(by) = given(by) else { return texts(words(text, most, from_right).into_iter(), budget) };
    let by = text_of(&by, "the separator")?;
    if by.is_empty() {
        return Err(Fault::new("the separator is empty"));
    }
    if from_right {
        let mut parts: Vec<String> = text.rsplitn(limit, &*by).map(str::to_string).collect();
        parts.reverse();
        return texts(parts.into_iter(), budget);
    }
    texts(text.splitn(limit, &*by).map(str::to_string), budget)
}

/// Words between white space; after `most` splits the rest is one.
fn words(text: &str, most: usize, from_right: bool) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = if from_right { text.trim_end() } else { text.trim_start() };
    while !rest.is_empty() {
        let cut = if from_right { rest.rfind(char::is_whitespace) } else { rest.find(char::is_whitespace) };
        let Some(cut) = cut.filter(|_| words.len() < most) else {
            words.push(rest.to_string());
            break;
        };
        if from_right {
            let space = rest[cut..].chars().next().map_or(0, char::len_utf8);
            words.push(rest[cut + space..].to_string());
            rest = rest[..cut].trim_end();
        } else {
            words.push(rest[..cut].to_string());
            rest = rest[cut..].trim_start();
        }
    }
    if from_right {
        words.reverse();
    }
    words
}

/// The characters that are missing to a width, before and behind a text, as Python shares them.
pub(super) fn centred(missing: usize, width: usize) -> [usize; 2] {
    let left = missing / 2 + (missing & width & 1);
    [left, missing - left]
}

fn justified(text: &str, args: &Args, budget: &Budget, shares: impl Fn(usize, usize) -> [usize; 2]) -> Out {
    let [width, fill] = args.bind(["width", "fillchar"])?;
    let Some(width) = width else { return Err(Fault::new("the argument \"width\" is missing")) };
    let fill = fill.map_or(Ok(" ".into()), |fill| text_of(&fill, "the fill character"))?;
    let width = width.size("the width")?;
    let [left, right] = shares(width.saturating_sub(text.chars().count()), width);
    let (left, right) = (budget.repeated(&fill, left)?, budget.repeated(&fill, right)?);
    budget.text([&left, text, &right].concat())
}

/// The lines of a text and the characters that end them.
pub(super) fn lines(text: &str) -> Vec<(&str, &str)> {
    let ends = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let first = rest[at..].chars().next().map_or(0, char::len_utf8);
        let length = if rest[at..].starts_with("\r\n") { 2 } else { first };
        lines.push((&rest[..at], &rest[at..at + length]));
        rest = &rest[at + length..];
    }
    if !rest.is_empty() {
        lines.push((rest, ""));
    }
    lines
}
