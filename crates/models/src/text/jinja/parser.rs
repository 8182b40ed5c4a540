//! Tokens as statements and expressions, by Jinja's grammar.

use super::{
    Fault,
    lexer::{Lexeme, Token, tokens},
    syntax::{Applied, Arguments, Binary, Comparison, Expr, Kind, Literal, Macro, Statement, Target},
};

/// How deep blocks and expressions may be nested.
const MAX_DEPTH: usize = 50;
/// The number of operators in a chain, such as a sum.
const MAX_CHAIN: usize = 120;

/// The statements of a template.
pub(super) fn parse(source: &str) -> Result<Vec<Statement>, Fault> {
    let mut parser = Parser { tokens: tokens(source)?, at: 0, depth: 0, loops: 0 };
    let body = parser.body(&[])?;
    match parser.peek() {
        Lexeme::End => Ok(body),
        _ => parser.unexpected("a statement"),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    /// The number of loops around the statement.
    loops: usize,
}

type Parsed<T> = Result<T, Fault>;

/// The precedence levels of operators between two operands, the weakest first. `~` is between the first two.
const SUMS: &[(&str, Binary)] = &[("+", Binary::Add), ("-", Binary::Sub)];
const PRODUCTS: &[(&str, Binary)] =
    &[("*", Binary::Mul), ("/", Binary::Div), ("//", Binary::FloorDiv), ("%", Binary::Rem)];
const POWERS: &[(&str, Binary)] = &[("**", Binary::Pow)];
const COMPARISONS: &[(&str, Comparison)] = &[
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<", Comparison::Less),
    ("<=", Comparison::LessEqual),
    (">", Comparison::Greater),
    (">=", Comparison::GreaterEqual),
];

impl Parser {
    fn peek(&self) -> &Lexeme {
        &self.tokens[self.at.min(self.tokens.len() - 1)].kind
    }

    fn after(&self) -> &Lexeme {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].kind
    }

    fn line(&self) -> usize {
        self.tokens[self.at.min(self.tokens.len() - 1)].line
    }

    fn next(&mut self) -> Lexeme {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn fault<T>(&self, message: String) -> Parsed<T> {
        Err(Fault { message, line: Some(self.line()) })
    }

    fn unexpected<T>(&self, wanted: &str) -> Parsed<T> {
        let found = match self.peek() {
            Lexeme::Text(_) => "text".into(),
            Lexeme::BeginOutput => "{{".into(),
            Lexeme::EndOutput => "}}".into(),
            Lexeme::BeginBlock => match self.after() {
                Lexeme::Name(name) => format!("the block {name:?}"),
                _ => "{%".into(),
            },
            Lexeme::EndBlock => "%}".into(),
            Lexeme::Name(name) => format!("{name:?}"),
            Lexeme::Quoted(text) => format!("the text {text:?}"),
            Lexeme::Int(number) => number.to_string(),
            Lexeme::Float(number) => number.to_string(),
            Lexeme::Operator(operator) => format!("{operator:?}"),
            Lexeme::End => "the end of the template".into(),
        };
        self.fault(format!("expected {wanted}, found {found}"))
    }

    fn is(&self, operator: &str) -> bool {
        matches!(self.peek(), Lexeme::Operator(found) if *found == operator)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Lexeme::Name(found) if found == name)
    }

    fn skip(&mut self, operator: &str) -> bool {
        let found = self.is(operator);
        self.at += usize::from(found);
        found
    }

    fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, operator: &'static str) -> Parsed<()> {
        if self.skip(operator) { Ok(()) } else { self.unexpected(&format!("{operator:?}")) }
    }

    fn name(&mut self) -> Parsed<String> {
        match self.peek() {
            Lexeme::Name(_) => match self.next() {
                Lexeme::Name(name) => Ok(name),
                _ => self.unexpected("a name"),
            },
            _ => self.unexpected("a name"),
        }
    }

    /// Calls `parse` one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Parser) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            return self.fault(format!("blocks and expressions are nested deeper than {MAX_DEPTH}"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// The statements up to a block with one of these names, before which it stops.
    fn body(&mut self, ends: &[&str]) -> Parsed<Vec<Statement>> {
        let mut statements = Vec::new();
        loop {
            let line = self.line();
            let kind = match (self.peek(), self.after()) {
                (Lexeme::Text(text), _) => {
                    let kind = Kind::Text(text.clone());
                    self.at += 1;
                    kind
                }
                (Lexeme::BeginOutput, _) => {
                    self.at += 1;
                    let value = self.tuple(true, &[])?;
                    match self.next() {
                        Lexeme::EndOutput => Kind::Output(value),
                        _ => {
                            self.at -= 1;
                            return self.unexpected("}}");
                        }
                    }
                }
                (Lexeme::BeginBlock, Lexeme::Name(name)) => {
                    if ends.contains(&name.as_str()) {
                        return Ok(statements);
                    }
                    let name = name.clone();
                    self.at += 2;
                    match self.nested(|parser| parser.block(&name))? {
                        Parts::One(kind) => kind,
                        Parts::Body(body) => {
                            // The body of a block that only marks it.
                            Kind::With { values: Vec::new(), body }
                        }
                    }
                }
                (Lexeme::End, _) if ends.is_empty() => return Ok(statements),
                _ if ends.is_empty() => return self.unexpected("a statement"),
                _ => return self.unexpected(&format!("the block {}", ends.join(" or "))),
            };
            statements.push(Statement { line, kind });
        }
    }

    /// The end of a block.
    fn close(&mut self) -> Parsed<()> {
        match self.peek() {
            Lexeme::EndBlock => {
                self.at += 1;
                Ok(())
            }
            _ => self.unexpected("%}"),
        }
    }

    /// The body of a block up to the block `end`, which is closed.
    fn body_to(&mut self, end: &str) -> Parsed<Vec<Statement>> {
        self.close()?;
        let body = self.body(&[end])?;
        self.at += 2;
        self.close()?;
        Ok(body)
    }

    fn block(&mut self, name: &str) -> Parsed<Parts> {
        let Some((_, parse)) = BLOCKS.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = BLOCKS.iter().map(|(name, _)| *name).collect();
            return self.fault(format!("no block is called {name:?}; known are {}", names.join(", ")));
        };
        parse(self)
    }

    fn if_block(&mut self) -> Parsed<Parts> {
        let mut branches = Vec::new();
        let mut otherwise = Vec::new();
        loop {
            let test = self.tuple(false, &[])?;
            self.close()?;
            branches.push((test, self.body(&["elif", "else", "endif"])?));
            self.at += 1;
            if self.skip_name("elif") {
                continue;
            }
            if self.skip_name("else") {
                self.close()?;
                otherwise = self.body(&["endif"])?;
                self.at += 1;
            }
            self.at += 1;
            self.close()?;
            return Ok(Parts::One(Kind::If { branches, otherwise }));
        }
    }

    fn for_block(&mut self) -> Parsed<Parts> {
        let target = self.target(false)?;
        if !self.skip_name("in") {
            return self.unexpected("in");
        }
        let items = self.tuple(false, &["recursive"])?;
        let test = if self.skip_name("if") { Some(self.expression()?) } else { None };
        if self.is_name("recursive") {
            return self.fault("recursive loops are not supported; a macro can call itself".into());
        }
        self.close()?;
        self.loops += 1;
        let body = self.body(&["else", "endfor"]);
        self.loops -= 1;
        let (body, mut otherwise) = (body?, Vec::new());
        self.at += 1;
        if self.skip_name("else") {
            self.close()?;
            otherwise = self.body(&["endfor"])?;
            self.at += 1;
        }
        self.at += 1;
        self.close()?;
        Ok(Parts::One(Kind::For { target, items, test, body, otherwise }))
    }

    fn set_block(&mut self) -> Parsed<Parts> {
        let target = self.target(true)?;
        if self.skip("=") {
            let value = self.tuple(true, &[])?;
            self.close()?;
            return Ok(Parts::One(Kind::Set(target, value)));
        }
        let filters = self.filters()?;
        let body = self.body_to("endset")?;
        Ok(Parts::One(Kind::SetBody { target, filters, body }))
    }

    /// The filters `|a|b(c)`.
    fn filters(&mut self) -> Parsed<Vec<Applied>> {
        let mut filters = Vec::new();
        while self.skip("|") {
            filters.push(self.applied()?);
        }
        Ok(filters)
    }

    fn filter_block(&mut self) -> Parsed<Parts> {
        let mut filters = vec![self.applied()?];
        filters.extend(self.filters()?);
        let body = self.body_to("endfilter")?;
        Ok(Parts::One(Kind::Filter { filters, body }))
    }

    fn macro_block(&mut self) -> Parsed<Parts> {
        let name = self.name()?;
        let parameters = self.parameters()?;
        Ok(Parts::One(Kind::Macro(Macro { name, parameters, body: self.macro_body("endmacro")? })))
    }

    /// A body that no loop around it can be left from.
    fn macro_body(&mut self, end: &str) -> Parsed<Vec<Statement>> {
        let loops = std::mem::take(&mut self.loops);
        let body = self.body_to(end);
        self.loops = loops;
        body
    }

    fn call_block(&mut self) -> Parsed<Parts> {
        let parameters = if self.is("(") { self.parameters()? } else { Vec::new() };
        let call = self.expression()?;
        if !matches!(call, Expr::Call(..)) {
            return self.unexpected("a call");
        }
        let caller = Macro { name: "caller".into(), parameters, body: self.macro_body("endcall")? };
        Ok(Parts::One(Kind::Call { caller, call }))
    }

    fn with_block(&mut self) -> Parsed<Parts> {
        let mut values = Vec::new();
        while !matches!(self.peek(), Lexeme::EndBlock) {
            if !values.is_empty() {
                self.expect(",")?;
            }
            let target = self.target(false)?;
            self.expect("=")?;
            values.push((target, self.expression()?));
        }
        Ok(Parts::One(Kind::With { values, body: self.body_to("endwith")? }))
    }

    /// The part of a template that an assistant writes, which `transformers` marks for training.
    fn generation_block(&mut self) -> Parsed<Parts> {
        Ok(Parts::Body(self.macro_body("endgeneration")?))
    }

    fn leave(&mut self, kind: Kind, name: &str) -> Parsed<Parts> {
        if self.loops == 0 {
            return self.fault(format!("{name} is outside of a loop"));
        }
        self.close()?;
        Ok(Parts::One(kind))
    }

    fn break_block(&mut self) -> Parsed<Parts> {
        self.leave(Kind::Break, "break")
    }

    fn continue_block(&mut self) -> Parsed<Parts> {
        self.leave(Kind::Continue, "continue")
    }

    fn parameters(&mut self) -> Parsed<Vec<(String, Option<Expr>)>> {
        self.expect("(")?;
        let mut parameters: Vec<(String, Option<Expr>)> = Vec::new();
        while !self.skip(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
                if self.skip(")") {
                    break;
                }
            }
            let name = self.name()?;
            let default = if self.skip("=") { Some(self.expression()?) } else { None };
            if default.is_none() && parameters.last().is_some_and(|(_, default)| default.is_some()) {
                return self.fault(format!("the parameter {name:?} has no default after one that has"));
            }
            parameters.push((name, default));
        }
        Ok(parameters)
    }

    /// The place of an assignment: names, or with `attributes` also one of a namespace.
    fn target(&mut self, attributes: bool) -> Parsed<Target> {
        let mut targets = vec![self.single_target(attributes)?];
        let mut is_tuple = false;
        while self.skip(",") {
            is_tuple = true;
            if self.is("=") || self.is_name("in") {
                break;
            }
            targets.push(self.single_target(attributes)?);
        }
        match (targets.pop(), is_tuple) {
            (Some(target), false) => Ok(target),
            (last, _) => {
                targets.extend(last);
                Ok(Target::Tuple(targets))
            }
        }
    }

    fn single_target(&mut self, attributes: bool) -> Parsed<Target> {
        if self.skip("(") {
            let target = self.nested(|parser| parser.target(attributes))?;
            self.expect(")")?;
            return Ok(target);
        }
        let name = self.name()?;
        if attributes && self.skip(".") {
            return Ok(Target::Attribute(name, self.name()?));
        }
        Ok(Target::Name(name))
    }

    /// One expression, or several separated by commas as a tuple. Without `conditional`, an `if` after it
    /// does not belong to it.
    fn tuple(&mut self, conditional: bool, ends: &[&str]) -> Parsed<Expr> {
        let mut items = Vec::new();
        let mut is_tuple = false;
        loop {
            let is_end = match self.peek() {
                Lexeme::EndOutput | Lexeme::EndBlock | Lexeme::End => true,
                Lexeme::Operator(operator) => [")", "]", "="].contains(operator),
                Lexeme::Name(name) => ends.contains(&name.as_str()),
                _ => false,
            };
            if is_end {
                break;
            }
            items.push(if conditional { self.expression()? } else { self.nested(Parser::or)? });
            if !self.skip(",") {
                break;
            }
            is_tuple = true;
        }
        match (items.pop(), is_tuple) {
            (Some(item), false) => Ok(item),
            (Some(last), true) => {
                items.push(last);
                Ok(Expr::Tuple(items))
            }
            (None, _) => self.unexpected("an expression"),
        }
    }

    fn expression(&mut self) -> Parsed<Expr> {
        self.nested(Parser::conditional)
    }

    fn conditional(&mut self) -> Parsed<Expr> {
        let mut value = self.or()?;
        let mut count = 0;
        while self.skip_name("if") {
            self.chain(&mut count)?;
            let test = Box::new(self.or()?);
            let otherwise = if self.skip_name("else") { Some(Box::new(self.expression()?)) } else { None };
            value = Expr::If { test, then: Box::new(value), otherwise };
        }
        Ok(value)
    }

    /// Counts an operator of a chain.
    fn chain(&self, count: &mut usize) -> Parsed<()> {
        *count += 1;
        match *count > MAX_CHAIN {
            true => self.fault(format!("an expression has more than {MAX_CHAIN} operators in a row")),
            false => Ok(()),
        }
    }

    fn or(&mut self) -> Parsed<Expr> {
        let mut left = self.and()?;
        let mut count = 0;
        while self.skip_name("or") {
            self.chain(&mut count)?;
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Parsed<Expr> {
        let mut left = self.not()?;
        let mut count = 0;
        while self.skip_name("and") {
            self.chain(&mut count)?;
            left = Expr::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Parsed<Expr> {
        if self.skip_name("not") {
            return Ok(Expr::Not(Box::new(self.nested(Parser::not)?)));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Parsed<Expr> {
        let left = self.sum()?;
        let mut others = Vec::new();
        loop {
            let operator = match self.peek() {
                Lexeme::Operator(operator) => COMPARISONS.iter().find(|(name, _)| name == operator),
                _ => None,
            };
            let comparison = if let Some((_, comparison)) = operator {
                self.at += 1;
                *comparison
            } else if self.skip_name("in") {
                Comparison::In
            } else if self.is_name("not") && matches!(self.after(), Lexeme::Name(name) if name == "in") {
                self.at += 2;
                Comparison::NotIn
            } else {
                break;
            };
            others.push((comparison, self.sum()?));
        }
        Ok(if others.is_empty() { left } else { Expr::Compare(Box::new(left), others) })
    }

    /// Operands that `operators` join, from the left.
    fn joined(
        &mut self,
        operators: &[(&str, Binary)],
        operand: impl Fn(&mut Parser) -> Parsed<Expr>,
    ) -> Parsed<Expr> {
        let mut left = operand(self)?;
        let mut count = 0;
        while let Lexeme::Operator(found) = self.peek()
            && let Some((_, operator)) = operators.iter().find(|(name, _)| name == found)
        {
            self.chain(&mut count)?;
            self.at += 1;
            left = Expr::Binary(*operator, Box::new(left), Box::new(operand(self)?));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Parsed<Expr> {
        self.joined(SUMS, Parser::concat)
    }

    fn concat(&mut self) -> Parsed<Expr> {
        let first = self.product()?;
        if !self.is("~") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.skip("~") {
            all.push(self.product()?);
        }
        Ok(Expr::Concat(all))
    }

    fn product(&mut self) -> Parsed<Expr> {
        self.joined(PRODUCTS, |parser| parser.joined(POWERS, |parser| parser.unary(true)))
    }

    fn unary(&mut self, with_filters: bool) -> Parsed<Expr> {
        let value = if self.skip("-") {
            Expr::Negative(Box::new(self.nested(|parser| parser.unary(false))?))
        } else if self.skip("+") {
            Expr::Positive(Box::new(self.nested(|parser| parser.unary(false))?))
        } else {
            self.primary()?
        };
        let value = self.postfix(value)?;
        if with_filters { self.filtered(value) } else { Ok(value) }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        match self.next() {
            Lexeme::Name(name) => Ok(match name.as_str() {
                "true" | "True" => Expr::Literal(Literal::Bool(true)),
                "false" | "False" => Expr::Literal(Literal::Bool(false)),
                "none" | "None" => Expr::Literal(Literal::None),
                _ => Expr::Name(name),
            }),
            Lexeme::Quoted(mut text) => {
                while let Lexeme::Quoted(more) = self.peek() {
                    text += more;
                    self.at += 1;
                }
                Ok(Expr::Literal(Literal::Text(text)))
            }
            Lexeme::Int(number) => Ok(Expr::Literal(Literal::Int(number))),
            Lexeme::Float(number) => Ok(Expr::Literal(Literal::Float(number))),
            Lexeme::Operator("(") => {
                if self.skip(")") {
                    return Ok(Expr::Tuple(Vec::new()));
                }
                let value = self.tuple(true, &[])?;
                self.expect(")")?;
                Ok(value)
            }
            Lexeme::Operator("[") => Ok(Expr::List(self.items("]")?)),
            Lexeme::Operator("{") => {
                let mut pairs = Vec::new();
                while !self.skip("}") {
                    if !pairs.is_empty() {
                        self.expect(",")?;
                        if self.skip("}") {
                            break;
                        }
                    }
                    let key = self.expression()?;
                    self.expect(":")?;
                    pairs.push((key, self.expression()?));
                }
                Ok(Expr::Dict(pairs))
            }
            _ => {
                self.at -= 1;
                self.unexpected("an expression")
            }
        }
    }

    /// Expressions separated by commas up to an operator.
    fn items(&mut self, end: &'static str) -> Parsed<Vec<Expr>> {
        let mut items = Vec::new();
        while !self.skip(end) {
            if !items.is_empty() {
                self.expect(",")?;
                if self.skip(end) {
                    break;
                }
            }
            items.push(self.expression()?);
        }
        Ok(items)
    }

    /// Attributes, items and calls behind a value.
    fn postfix(&mut self, mut value: Expr) -> Parsed<Expr> {
        let mut count = 0;
        loop {
            self.chain(&mut count)?;
            if self.skip(".") {
                value = match self.next() {
                    Lexeme::Name(name) => Expr::Attribute(Box::new(value), name),
                    Lexeme::Int(index) => {
                        Expr::Item(Box::new(value), Box::new(Expr::Literal(Literal::Int(index))))
                    }
                    _ => {
                        self.at -= 1;
                        return self.unexpected("a name or a number");
                    }
                };
            } else if self.skip("[") {
                value = self.subscript(value)?;
            } else if self.is("(") {
                value = Expr::Call(Box::new(value), self.arguments()?);
            } else {
                return Ok(value);
            }
        }
    }

    fn subscript(&mut self, value: Expr) -> Parsed<Expr> {
        let mut parts: [Option<Box<Expr>>; 3] = [None, None, None];
        let mut colons = 0;
        while !self.skip("]") {
            if self.skip(":") && colons < 2 {
                colons += 1;
                continue;
            }
            if parts[colons].is_some() {
                return self.unexpected("\"]\"");
            }
            parts[colons] = Some(Box::new(self.expression()?));
        }
        match (colons, parts) {
            (0, [Some(index), ..]) => Ok(Expr::Item(Box::new(value), index)),
            (0, _) => self.unexpected("an index"),
            (_, parts) => Ok(Expr::Slice(Box::new(value), parts)),
        }
    }

    fn arguments(&mut self) -> Parsed<Arguments> {
        self.expect("(")?;
        let mut arguments = Arguments::default();
        let mut first = true;
        while !self.skip(")") {
            if !first {
                self.expect(",")?;
                if self.skip(")") {
                    break;
                }
            }
            first = false;
            if self.skip("**") {
                arguments.dict = Some(Box::new(self.expression()?));
            } else if self.skip("*") {
                arguments.list = Some(Box::new(self.expression()?));
            } else if let (Lexeme::Name(name), Lexeme::Operator("=")) = (self.peek(), self.after()) {
                let name = name.clone();
                self.at += 2;
                arguments.named.push((name, self.expression()?));
            } else if arguments.named.is_empty() {
                arguments.positional.push(self.expression()?);
            } else {
                return self.unexpected("a named argument");
            }
        }
        Ok(arguments)
    }

    /// A filter: its name and arguments.
    fn applied(&mut self) -> Parsed<Applied> {
        let name = self.name()?;
        let arguments = if self.is("(") { self.arguments()? } else { Arguments::default() };
        Ok(Applied { name, arguments })
    }

    /// Filters, tests and calls behind a value.
    fn filtered(&mut self, mut value: Expr) -> Parsed<Expr> {
        let mut count = 0;
        loop {
            self.chain(&mut count)?;
            if self.skip("|") {
                value = Expr::Filter(Box::new(value), self.applied()?);
            } else if self.skip_name("is") {
                value = self.test(value)?;
            } else if self.is("(") {
                value = Expr::Call(Box::new(value), self.arguments()?);
            } else {
                return Ok(value);
            }
        }
    }

    fn test(&mut self, value: Expr) -> Parsed<Expr> {
        let negated = self.skip_name("not");
        let name = self.name()?;
        let takes_argument = match self.peek() {
            Lexeme::Name(name) => {
                !["else", "or", "and", "is", "if", "not", "in", "recursive"].contains(&name.as_str())
            }
            Lexeme::Quoted(_) | Lexeme::Int(_) | Lexeme::Float(_) => true,
            Lexeme::Operator(operator) => ["[", "{"].contains(operator),
            _ => false,
        };
        let arguments = if self.is("(") {
            self.arguments()?
        } else if takes_argument {
            let argument = self.primary()?;
            Arguments { positional: vec![self.postfix(argument)?], ..Arguments::default() }
        } else {
            Arguments::default()
        };
        Ok(Expr::Test { value: Box::new(value), test: Applied { name, arguments }, negated })
    }
}

/// A block as a statement, or as the statements of a block that only marks them.
enum Parts {
    One(Kind),
    Body(Vec<Statement>),
}

type Block = fn(&mut Parser) -> Parsed<Parts>;

/// The blocks, and how the rest of each is read.
const BLOCKS: &[(&str, Block)] = &[
    ("if", Parser::if_block),
    ("for", Parser::for_block),
    ("set", Parser::set_block),
    ("macro", Parser::macro_block),
    ("call", Parser::call_block),
    ("filter", Parser::filter_block),
    ("with", Parser::with_block),
    ("generation", Parser::generation_block),
    ("break", Parser::break_block),
    ("continue", Parser::continue_block),
];
