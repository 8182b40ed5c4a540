//! The parts of a template: statements and expressions.

/// A constant.
#[derive(Clone, Debug)]
pub(super) enum Literal {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
}

/// An operator between two numbers, texts or lists.
#[derive(Clone, Copy, Debug)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Rem,
    Pow,
}

/// A comparison.
#[derive(Clone, Copy, Debug)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    NotIn,
}

/// The arguments of a call, a filter or a test.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Expr>,
    pub(super) named: Vec<(String, Expr)>,
    /// A list of further arguments, `*list`.
    pub(super) list: Option<Box<Expr>>,
    /// A dictionary of further named arguments, `**dict`.
    pub(super) dict: Option<Box<Expr>>,
}

/// A filter or a test with its arguments.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) name: String,
    pub(super) arguments: Arguments,
}

/// An expression.
#[derive(Debug)]
pub(super) enum Expr {
    Literal(Literal),
    Name(String),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Positive(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    Concat(Vec<Expr>),
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    If { test: Box<Expr>, then: Box<Expr>, otherwise: Option<Box<Expr>> },
    Attribute(Box<Expr>, String),
    Item(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, [Option<Box<Expr>>; 3]),
    Call(Box<Expr>, Arguments),
    Filter(Box<Expr>, Applied),
    Test { value: Box<Expr>, test: Applied, negated: bool },
}

/// The place of an assignment.
#[derive(Debug)]
pub(super) enum Target {
    Name(String),
    /// An attribute of a namespace.
    Attribute(String, String),
    Tuple(Vec<Target>),
}

/// The parameters and the body of a macro.
#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: String,
    pub(super) parameters: Vec<(String, Option<Expr>)>,
    pub(super) body: Vec<Statement>,
}

/// A statement and its line.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) line: usize,
    pub(super) kind: Kind,
}

/// The kinds of statements.
#[derive(Debug)]
pub(super) enum Kind {
    Text(String),
    Output(Expr),
    If {
        branches: Vec<(Expr, Vec<Statement>)>,
        otherwise: Vec<Statement>,
    },
    For {
        target: Target,
        items: Expr,
        test: Option<Expr>,
        body: Vec<Statement>,
        otherwise: Vec<Statement>,
    },
    Set(Target, Expr),
    /// The text of a body, after some filters.
    SetBody {
        target: Target,
        filters: Vec<Applied>,
        body: Vec<Statement>,
    },
    Macro(Macro),
    /// A call of a macro that calls the body, `caller()`.
    Call {
        caller: Macro,
        call: Expr,
    },
    Filter {
        filters: Vec<Applied>,
        body: Vec<Statement>,
    },
    With {
        values: Vec<(Target, Expr)>,
        body: Vec<Statement>,
    },
    Break,
    Continue,
}
