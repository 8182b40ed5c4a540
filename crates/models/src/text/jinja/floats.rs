//! The text of a float as Python prints it.

/// A float as Python prints it: the shortest digits that give it back.
pub(super) fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        -4..16 => {
            let text = format!("{value}");
            if text.contains('.') { text } else { text + ".0" }
        }
        exponent => format!("{digits}e{}", exponent_text(exponent)),
    }
}

/// An exponent with its sign and at least two digits.
pub(super) fn exponent_text(exponent: i32) -> String {
    format!("{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
}
