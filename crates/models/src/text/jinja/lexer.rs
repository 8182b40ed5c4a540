//! A template's source as tokens. Blocks lose the newline behind them and the spaces before them on their
//! line (`trim_blocks`, `lstrip_blocks`), as `transformers` sets it.

use super::Fault;

/// A token and its line.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) kind: Lexeme,
}

/// The kinds of tokens.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lexeme {
    /// Text between blocks.
    Text(String),
    BeginOutput,
    EndOutput,
    BeginBlock,
    EndBlock,
    Name(String),
    Quoted(String),
    Int(i128),
    Float(f64),
    Operator(&'static str),
    End,
}

/// The operators; longer ones come first.
const OPERATORS: &[&str] = &[
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<",
    "=", ".", ":", "|", ",", ";",
];

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    line: usize,
    /// Whether the last token ended with a newline.
    line_starts: bool,
    tokens: Vec<Token>,
}

/// The tokens of a source, up to [`Lexeme::End`].
pub(super) fn tokens(source: &str) -> Result<Vec<Token>, Fault> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut lexer = Lexer { source, at: 0, line: 1, line_starts: true, tokens: Vec::new() };
    lexer.template()?;
    lexer.push(Lexeme::End);
    Ok(lexer.tokens)
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn push(&mut self, kind: Lexeme) {
        self.tokens.push(Token { line: self.line, kind });
    }

    /// Goes past some bytes.
    fn advance(&mut self, bytes: usize) {
        let passed = &self.source[self.at..self.at + bytes];
        self.line += passed.matches('\n').count();
        self.line_starts = passed.ends_with('\n');
        self.at += bytes;
    }

    /// Goes past white space.
    fn skip_space(&mut self) {
        let rest = self.rest();
        let space = rest.len() - rest.trim_start().len();
        if space > 0 {
            self.advance(space);
        }
    }

    fn fault<T>(&self, message: impl Into<String>) -> Result<T, Fault> {
        Err(Fault { message: message.into(), line: Some(self.line) })
    }

    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(Lexeme::Text(text.into()));
        }
    }

    /// The text before a block, without the spaces that the block's sign or `lstrip_blocks` removes.
    fn before_block(&self, text: &'s str, sign: Option<char>, strips_line: bool) -> &'s str {
        match sign {
            Some('-') => text.trim_end(),
            None if strips_line => {
                let start = text.rfind('\n').map_or(0, |at| at + 1);
                let starts_line = start > 0 || self.line_starts;
                if starts_line && text[start..].trim_start().is_empty() { &text[..start] } else { text }
            }
            _ => text,
        }
    }

    fn template(&mut self) -> Result<(), Fault> {
        loop {
            let rest = self.rest();
            let begins =
                rest.match_indices('{').map(|(at, _)| (at, rest.get(at..at + 2).unwrap_or_default()));
            let Some((at, begin)) = begins.into_iter().find(|(_, begin)| ["{{", "{%", "{#"].contains(begin))
            else {
                self.text(rest);
                return Ok(());
            };
            let sign = rest[at + 2..].chars().next().filter(|c| ['-', '+'].contains(c));
            let text = self.before_block(&rest[..at], sign, begin != "{{");
            self.text(text);
            self.advance(at + 2 + sign.map_or(0, char::len_utf8));
            match begin {
                "{#" => self.comment()?,
                "{{" => {
                    self.push(Lexeme::BeginOutput);
                    self.code("}}", Lexeme::EndOutput)?;
                }
                _ => {
                    if let Some(length) = self.tag("raw") {
                        self.advance(length);
                        self.raw()?;
                        continue;
                    }
                    self.push(Lexeme::BeginBlock);
                    self.code("%}", Lexeme::EndBlock)?;
                }
            }
        }
    }

    /// The length of the rest of a block that has only this name, up to its end.
    fn tag(&self, name: &str) -> Option<usize> {
        let rest = self.rest();
        let after = rest.trim_start().strip_prefix(name)?.trim_start();
        let after = after.strip_prefix("-%}").map(str::trim_start).or_else(|| after.strip_prefix("%}"))?;
        Some(rest.len() - after.len())
    }

    /// The text of a raw block, after its beginning.
    fn raw(&mut self) -> Result<(), Fault> {
        let rest = self.rest();
        for (at, _) in rest.match_indices("{%") {
            let sign = rest[at + 2..].chars().next().filter(|c| ['-', '+'].contains(c));
            let inner = &rest[at + 2 + sign.map_or(0, char::len_utf8)..];
            let Some(end) = inner.trim_start().strip_prefix("endraw") else { continue };
            let end = end.trim_start();
            let Some(length) = block_end(end, "%}") else { continue };
            let text = self.before_block(&rest[..at], sign, true);
            self.text(text);
            self.advance(rest.len() - end.len() + length);
            return Ok(());
        }
        self.fault("a raw block has no endraw")
    }

    fn comment(&mut self) -> Result<(), Fault> {
        let rest = self.rest();
        let Some(at) = rest.find("#}") else { return self.fault("a comment has no end #}") };
        let from = if rest[..at].ends_with(['-', '+']) { at - 1 } else { at };
        let length = block_end(&rest[from..], "#}").unwrap_or(2);
        self.advance(from + length);
        Ok(())
    }

    /// The tokens of a block or an output up to its end.
    fn code(&mut self, end: &'static str, lexeme: Lexeme) -> Result<(), Fault> {
        let mut open: Vec<&'static str> = Vec::new();
        loop {
            let rest = self.rest();
            if open.is_empty()
                && let Some(length) = block_end(rest, end)
            {
                self.push(lexeme);
                self.advance(length);
                return Ok(());
            }
            let Some(first) = rest.chars().next() else {
                return self.fault(format!("the template ends before {end}"));
            };
            if first.is_whitespace() {
                self.skip_space();
            } else if first.is_ascii_digit() {
                self.number()?;
            } else if first.is_alphanumeric() || first == '_' {
                let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                self.push(Lexeme::Name(rest[..length].into()));
                self.advance(length);
            } else if first == '\'' || first == '"' {
                self.quoted(first)?;
            } else {
                let Some(operator) = OPERATORS.iter().find(|operator| rest.starts_with(**operator)) else {
                    return self.fault(format!("unexpected {first:?}"));
                };
                match *operator {
                    "(" => open.push(")"),
                    "[" => open.push("]"),
                    "{" => open.push("}"),
                    ")" | "]" | "}" if open.pop() != Some(operator) => {
                        return self.fault(format!("unexpected {operator:?}"));
                    }
                    _ => {}
                }
                self.push(Lexeme::Operator(operator));
                self.advance(operator.len());
            }
        }
    }

    fn number(&mut self) -> Result<(), Fault> {
        let rest = self.rest();
        let digits =
            |text: &str| text.find(|c: char| !(c.is_ascii_digit() || c == '_')).unwrap_or(text.len());
        for (prefix, radix) in [("0x", 16), ("0X", 16), ("0o", 8), ("0O", 8), ("0b", 2), ("0B", 2)] {
            if let Some(number) = rest.strip_prefix(prefix) {
                let length =
                    number.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(number.len());
                let Ok(value) = i128::from_str_radix(&number[..length].replace('_', ""), radix) else {
                    return self.fault(format!("{} is no number", &rest[..length + 2]));
                };
                self.push(Lexeme::Int(value));
                self.advance(length + 2);
                return Ok(());
            }
        }
        let whole = digits(rest);
        let mut length = whole;
        // An item by its number, as in x.0.1, has no fraction.
        let is_item = matches!(self.tokens.last().map(|token| &token.kind), Some(Lexeme::Operator(".")));
        if !is_item {
            if let Some(fraction) = rest[length..].strip_prefix('.')
                && fraction.starts_with(|c: char| c.is_ascii_digit())
            {
                length += 1 + digits(fraction);
            }
            if let Some(exponent) = rest[length..].strip_prefix(['e', 'E']) {
                let number = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if number.starts_with(|c: char| c.is_ascii_digit()) {
                    length += 1 + (exponent.len() - number.len()) + digits(number);
                }
            }
        }
        let text = rest[..length].replace('_', "");
        let number = match length == whole {
            true => text.parse().ok().map(Lexeme::Int),
            false => text.parse().ok().map(Lexeme::Float),
        };
        let Some(number) = number else { return self.fault(format!("{text} is too large for a number")) };
        self.push(number);
        self.advance(length);
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<(), Fault> {
        let rest = self.rest();
        let mut text = String::new();
        let mut chars = rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.push(Lexeme::Quoted(text));
                self.advance(at + 1);
                return Ok(());
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            let Some((_, escaped)) = chars.next() else { break };
            let hex = match escaped {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                _ => 0,
            };
            if let Some(first) = escaped.to_digit(8) {
                // Up to three octal digits.
                let mut code = first;
                for _ in 0..2 {
                    let Some(digit) = chars.clone().next().and_then(|(_, c)| c.to_digit(8)) else { break };
                    code = code * 8 + digit;
                    chars.next();
                }
                text.extend(char::from_u32(code));
                continue;
            }
            let plain = ESCAPES.iter().find(|(from, _)| *from == escaped).map(|(_, to)| *to);
            match plain {
                Some(to) => text.push_str(to),
                None if hex > 0 => {
                    let digits: String = chars.by_ref().take(hex).map(|(_, c)| c).collect();
                    let code = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == hex);
                    let Some(c) = code.and_then(char::from_u32) else {
                        return self.fault(format!("\\{escaped}{digits} is no character"));
                    };
                    text.push(c);
                }
                None => text.extend(['\\', escaped]),
            }
        }
        self.fault("a text has no closing quote")
    }
}

/// Characters after a backslash and what they stand for.
const ESCAPES: &[(char, &str)] = &[
    ('n', "\n"),
    ('t', "\t"),
    ('r', "\r"),
    ('\\', "\\"),
    ('\'', "'"),
    ('"', "\""),
    ('a', "\u{7}"),
    ('b', "\u{8}"),
    ('f', "\u{c}"),
    ('v', "\u{b}"),
    ('\n', ""),
];

/// The length of the end of a block at the start of `rest`, with the white space that it removes.
fn block_end(rest: &str, end: &str) -> Option<usize> {
    if let Some(after) = rest.strip_prefix('-').and_then(|rest| rest.strip_prefix(end)) {
        return Some(rest.len() - after.trim_start().len());
    }
    if end != "}}"
        && let Some(after) = rest.strip_prefix('+').and_then(|rest| rest.strip_prefix(end))
    {
        return Some(rest.len() - after.len());
    }
    let after = rest.strip_prefix(end)?;
    let trimmed = if end == "}}" { after } else { after.strip_prefix('\n').unwrap_or(after) };
    Some(rest.len() - trimmed.len())
}
