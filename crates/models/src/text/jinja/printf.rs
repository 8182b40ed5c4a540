//! Numbers as Python prints them, and its two ways to fill texts: `'%s' % value` and `'{}'.format(value)`.

use super::{
    Fault,
    floats::{exponent_text, float_text},
    value::{Budget, Value},
};

/// The digits that a number may be asked for; longer ones are an error.
const MAX_DIGITS: usize = 1000;

/// A number with the letters of `%e`, `%f` or `%g`.
fn float_digits(value: f64, kind: char, precision: usize, keep_zeros: bool) -> String {
    if !value.is_finite() {
        let text = float_text(value);
        return if kind.is_uppercase() { text.to_uppercase() } else { text };
    }
    let scientific = |precision: usize| {
        let text = format!("{value:.precision$e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        (digits.to_string(), exponent.parse::<i32>().unwrap_or(0))
    };
    let text = match kind.to_ascii_lowercase() {
        'e' => {
            let (digits, exponent) = scientific(precision);
            format!("{digits}e{}", exponent_text(exponent))
        }
        'g' => {
            let precision = precision.max(1);
            let (digits, exponent) = scientific(precision - 1);
            let trimmed = |text: String| match text.contains('.') && !keep_zeros {
                true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
                false => text,
            };
            if (-4..precision as i32).contains(&exponent) {
                let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
                trimmed(format!("{value:.decimals$}"))
            } else {
                format!("{}e{}", trimmed(digits), exponent_text(exponent))
            }
        }
        _ => format!("{value:.precision$}"),
    };
    if kind.is_uppercase() { text.to_uppercase() } else { text }
}

/// How a value is filled in.
#[derive(Clone, Debug, Default)]
struct Form {
    fill: Option<char>,
    /// `<`, `>`, `^`, or `=`, which fills between sign and digits.
    align: Option<char>,
    /// `+` or a space before numbers that are not negative.
    sign: Option<char>,
    alternate: bool,
    width: usize,
    comma: Option<char>,
    precision: Option<usize>,
}

impl Form {
    /// A text that is filled up to the width; `sign` is the part before the filling of `=`.
    fn padded(&self, sign: &str, text: &str, align: char, budget: &Budget) -> Result<String, Fault> {
        let length = sign.chars().count() + text.chars().count();
        let missing = self.width.saturating_sub(length);
        let fill = self.fill.unwrap_or(' ').to_string();
        let (left, right) = match self.align.unwrap_or(align) {
            '<' => (0, missing),
            '^' => (missing / 2, missing - missing / 2),
            '=' => return Ok(format!("{sign}{}{text}", budget.repeated(&fill, missing)?)),
            _ => (missing, 0),
        };
        budget.bytes(text.len())?;
        Ok(format!("{}{sign}{text}{}", budget.repeated(&fill, left)?, budget.repeated(&fill, right)?))
    }

    /// The digits that the form asks for.
    fn digits(&self, default: usize) -> Result<usize, Fault> {
        match self.precision.unwrap_or(default) {
            digits if digits > MAX_DIGITS => {
                Err(Fault::new(format!("{digits} digits of a number: at most {MAX_DIGITS} are written")))
            }
            digits => Ok(digits),
        }
    }

    /// A number with the letter of its form.
    fn number(&self, value: &Value, kind: char, align: char, budget: &Budget) -> Result<String, Fault> {
        let wrong = || Fault::new(format!("%{kind} takes a number, not {}", value.kind()));
        let (is_negative, mut text) = match kind {
            'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'b' => {
                let number = match value {
                    Value::Float(value) if value.is_finite() && ['d', 'i', 'u'].contains(&kind) => {
                        *value as i128
                    }
                    other => other.as_int().ok_or_else(wrong)?,
                };
                let size = number.unsigned_abs();
                let (prefix, text) = match kind {
                    'x' => ("0x", format!("{size:x}")),
                    'X' => ("0X", format!("{size:X}")),
                    'o' => ("0o", format!("{size:o}")),
                    'b' => ("0b", format!("{size:b}")),
                    _ => ("", size.to_string()),
                };
                let missing = self.digits(0)?.saturating_sub(text.len());
                let text = "0".repeat(missing) + &text;
                (number < 0, if self.alternate { format!("{prefix}{text}") } else { text })
            }
            _ => {
                let number = value.as_float().ok_or_else(wrong)?;
                let text = float_digits(number.abs(), kind, self.digits(6)?, self.alternate);
                (number.is_sign_negative() && !number.is_nan(), text)
            }
        };
        if let Some(comma) = self.comma {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            for at in (1..end).rev().filter(|at| (end - at).is_multiple_of(3)) {
                text.insert(at, comma);
            }
        }
        let sign = match (is_negative, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            (false, _) => "",
        };
        self.padded(sign, &text, align, budget)
    }

    /// A text, cut to the precision.
    fn text(&self, text: &str, align: char, budget: &Budget) -> Result<String, Fault> {
        match self.precision {
            Some(length) => self.padded("", &text.chars().take(length).collect::<String>(), align, budget),
            None => self.padded("", text, align, budget),
        }
    }
}

/// A number at the start of a text, and the rest.
fn leading_number(text: &str) -> Result<(Option<usize>, &str), Fault> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 {
        return Ok((None, text));
    }
    match text[..end].parse() {
        Ok(number) => Ok((Some(number), &text[end..])),
        Err(_) => Err(Fault::new(format!("{} is too large for a width", &text[..end]))),
    }
}

/// `text % values`: a tuple has a value for each mark, a dictionary one for each name.
pub(super) fn percent(text: &str, values: &Value, budget: &Budget) -> Result<String, Fault> {
    let mut items = match values {
        Value::Tuple(items) => items.items.clone(),
        other => vec![other.clone()],
    }
    .into_iter();
    let mut next =
        move || items.next().ok_or_else(|| Fault::new("not enough values for the marks of a text"));
    let (mut out, mut rest, mut named) = (String::new(), text, matches!(values, Value::Dict(_)));
    while let Some(at) = rest.find('%') {
        budget.bytes(at)?;
        budget.steps(1)?;
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let mut value = None;
        if let (Value::Dict(dict), Some(name)) = (values, rest.strip_prefix('(')) {
            let Some((name, after)) = name.split_once(')') else { return Err(Fault::new("a mark has no )")) };
            let found = dict.named(name, budget)?;
            value = Some(found.ok_or_else(|| Fault::new(format!("the values of a text have no {name:?}")))?);
            rest = after;
            named = true;
        }
        let mut form = Form::default();
        let mut left = false;
        while let Some(flag) = rest.chars().next().filter(|c| "-+ 0#".contains(*c)) {
            match flag {
                '-' => left = true,
                '0' => (form.fill, form.align) = (Some('0'), Some('=')),
                '#' => form.alternate = true,
                sign if form.sign != Some('+') => form.sign = Some(sign),
                _ => {}
            }
            rest = &rest[1..];
        }
        if let Some(after) = rest.strip_prefix('*') {
            let width = next()?.int("a width")?;
            left |= width < 0;
            form.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
            rest = after;
        } else {
            let (width, after) = leading_number(rest)?;
            (form.width, rest) = (width.unwrap_or(0), after);
        }
        if let Some(after) = rest.strip_prefix('.') {
            let (precision, after) = leading_number(after)?;
            (form.precision, rest) = (Some(precision.unwrap_or(0)), after);
        }
        if left {
            (form.fill, form.align) = (None, Some('<'));
        }
        rest = rest.trim_start_matches(['h', 'l', 'L']);
        let Some(kind) = rest.chars().next() else {
            return Err(Fault::new("a text ends in the middle of a mark"));
        };
        rest = &rest[kind.len_utf8()..];
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = match value {
            Some(value) => value,
            None => next()?,
        };
        out += &match kind {
            's' | 'r' | 'a' | 'c' => {
                if form.align == Some('=') {
                    (form.fill, form.align) = (None, None);
                }
                let text = match (kind, &value) {
                    ('s', value) => value.text(budget)?.to_string(),
                    ('c', value) => match value.as_int() {
                        Some(code) => u32::try_from(code).ok().and_then(char::from_u32).map(String::from),
                        None => value.as_text().filter(|text| text.chars().count() == 1).map(str::to_string),
                    }
                    .ok_or_else(|| Fault::new("%c takes a character"))?,
                    (_, value) => {
                        let mut text = String::new();
                        value.write_quoted(&mut text, budget)?;
                        text
                    }
                };
                form.text(&text, '>', budget)?
            }
            'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                form.number(&value, kind, '>', budget)?
            }
            other => return Err(Fault::new(format!("%{other} is no mark of a text"))),
        };
    }
    budget.bytes(rest.len())?;
    out.push_str(rest);
    if !named && matches!(values, Value::Tuple(_)) && next().is_ok() {
        return Err(Fault::new("a text has fewer marks than values"));
    }
    if !named && !matches!(values, Value::Tuple(_) | Value::List(_)) && next().is_ok() {
        return Err(Fault::new("a text has no mark for its value"));
    }
    Ok(out)
}

/// `text.format(values)`.
pub(super) fn format(
    text: &str,
    values: &[Value],
    named: &[(String, Value)],
    budget: &Budget,
) -> Result<String, Fault> {
    let (mut out, mut rest, mut automatic) = (String::new(), text, 0);
    while let Some(at) = rest.find(['{', '}']) {
        budget.bytes(at)?;
        budget.steps(1)?;
        out.push_str(&rest[..at]);
        let twice = rest[at + 1..].starts_with(&rest[at..=at]);
        let is_field = rest[at..].starts_with('{') && !twice;
        if !is_field {
            if !twice {
                return Err(Fault::new("a text has a } alone"));
            }
            out.push_str(&rest[at..=at]);
            rest = &rest[at + 2..];
            continue;
        }
        let Some((field, after)) = rest[at + 1..].split_once('}') else {
            return Err(Fault::new("a field of a text has no }"));
        };
        rest = after;
        let (name, spec) = field.split_once(':').unwrap_or((field, ""));
        let (name, conversion) = name.split_once('!').unwrap_or((name, ""));
        let by_number = |number: usize| values.get(number).cloned();
        let value = match name.parse::<usize>() {
            Ok(number) => by_number(number),
            Err(_) if name.is_empty() => {
                automatic += 1;
                by_number(automatic - 1)
            }
            Err(_) => named.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()),
        };
        let Some(value) = value else {
            return Err(Fault::new(format!("a text has no value for {{{name}}}")));
        };
        let value = match conversion {
            "" => value,
            "s" => Value::Text(value.text(budget)?),
            _ => {
                let mut text = String::new();
                value.write_quoted(&mut text, budget)?;
                Value::Text(text.into())
            }
        };
        out += &formatted(&value, spec, budget)?;
    }
    budget.bytes(rest.len())?;
    out.push_str(rest);
    Ok(out)
}

/// A value by the part of a field behind its colon.
fn formatted(value: &Value, spec: &str, budget: &Budget) -> Result<String, Fault> {
    let mut form = Form::default();
    let mut rest = spec;
    let is_align = |c: &char| ['<', '>', '^', '='].contains(c);
    let mut chars = spec.chars();
    match (chars.next(), chars.next().filter(is_align)) {
        (Some(fill), Some(align)) => {
            (form.fill, form.align) = (Some(fill), Some(align));
            rest = chars.as_str();
        }
        (Some(align), None) if is_align(&align) => {
            form.align = Some(align);
            rest = &spec[1..];
        }
        _ => {}
    }
    if let Some(sign) = rest.chars().next().filter(|c| ['+', '-', ' '].contains(c)) {
        form.sign = Some(sign);
        rest = &rest[1..];
    }
    if let Some(after) = rest.strip_prefix('#') {
        form.alternate = true;
        rest = after;
    }
    if let Some(after) = rest.strip_prefix('0') {
        form.fill = form.fill.or(Some('0'));
        form.align = form.align.or(Some('='));
        rest = after;
    }
    let (width, after) = leading_number(rest)?;
    (form.width, rest) = (width.unwrap_or(0), after);
    if let Some(comma) = rest.chars().next().filter(|c| [',', '_'].contains(c)) {
        form.comma = Some(comma);
        rest = &rest[1..];
    }
    if let Some(after) = rest.strip_prefix('.') {
        let (precision, after) = leading_number(after)?;
        (form.precision, rest) = (precision, after);
    }
    let is_number = value.as_float().is_some();
    match (rest, value) {
        ("" | "s", _) if !is_number => {
            if form.align == Some('=') {
                form.align = Some('<');
            }
            form.text(&value.text(budget)?, '<', budget)
        }
        ("" | "n", Value::Float(_)) if form.precision.is_some() => form.number(value, 'g', '>', budget),
        ("" | "n", Value::Float(number)) => {
            let sign = if number.is_sign_negative() { "-" } else { form.sign.map_or("", |_| "+") };
            form.padded(sign, &float_text(number.abs()), '>', budget)
        }
        ("", Value::Bool(_)) if spec.is_empty() => form.text(&value.text(budget)?, '<', budget),
        ("" | "n" | "d", _) => form.number(value, 'd', '>', budget),
        ("%", _) => {
            let number = value.as_float().unwrap_or(0.0) * 100.0;
            form.width = form.width.saturating_sub(1);
            Ok(form.number(&Value::Float(number), 'f', '>', budget)? + "%")
        }
        ("x" | "X" | "o" | "b" | "e" | "E" | "f" | "F" | "g" | "G", _) => {
            let kind = rest.chars().next().unwrap_or('d');
            form.number(value, kind, '>', budget)
        }
        _ => Err(Fault::new(format!("{spec:?} is no form of a {}", value.kind()))),
    }
}
