//! Checks for WGSL that naga accepts but that other compilers refuse or miscompile.

use naga::{
    AddressSpace, Arena, BinaryOperator, Block, Expression, Function, GlobalVariable, Handle, Literal,
    LocalVariable, Module, ScalarKind, Statement, Type, TypeInner, UnaryOperator,
};

/// The reason why a strict WGSL compiler refuses a module, if there is one: a `bitcast` of a constant to a
/// float that is infinite or NaN. Such values have to go through a `var`, which is not a constant
/// expression.
pub(crate) fn refused(module: &Module) -> Option<String> {
    let functions = module.functions.iter().map(|(_, f)| f);
    let functions = functions.chain(module.entry_points.iter().map(|e| &e.function));
    let arenas = std::iter::once(&module.global_expressions).chain(functions.map(|f| &f.expressions));
    arenas.flat_map(|arena| arena.iter().map(move |(_, e)| (arena, e))).find_map(|(arena, expression)| {
        match *expression {
            Expression::As { expr, kind: ScalarKind::Float, convert: None } => {
                let bits =
                    bits(module, arena, expr).into_iter().find(|&bits| !f32::from_bits(bits).is_finite());
                bits.map(|bits| format!("a constant of the bits {bits:#010x} is not a finite number"))
            }
            _ => None,
        }
    })
}

/// The words of a constant expression; empty if it is not constant.
fn bits(module: &Module, arena: &Arena<Expression>, expression: Handle<Expression>) -> Vec<u32> {
    match arena[expression] {
        Expression::Literal(Literal::U32(bits)) => vec![bits],
        Expression::Literal(Literal::I32(bits)) => vec![bits.cast_unsigned()],
        Expression::Constant(constant) => {
            bits(module, &module.global_expressions, module.constants[constant].init)
        }
        Expression::Splat { value, .. } => bits(module, arena, value),
        Expression::Compose { ref components, .. } => {
            components.iter().flat_map(|&part| bits(module, arena, part)).collect()
        }
        _ => Vec::new(),
    }
}

/// A sum in a module's functions in which one factor is multiplied by two constants, if there is one. In `x
/// - k * A - k * B`, A and B are the head and tail of a constant that one float cannot hold. A compiler
/// that rewrites this as `k * (A + B)` loses the tail, and NVIDIA's does. So one of the products, or a
/// value made from it, has to go through `opaque_f32`.
pub(crate) fn parts_in_a_sum(module: &Module) -> Option<String> {
    module.functions.iter().find_map(|(_, function)| {
        function.expressions.iter().find_map(|(sum, _)| {
            let mut factors = Vec::new();
            terms(&function.expressions, sum, &mut factors);
            let twice = (1..factors.len()).any(|n| factors[..n].contains(&factors[n]));
            let name = function.name.as_deref().unwrap_or_default();
            twice.then(|| format!("a sum in {name} has one factor twice, with two constants"))
        })
    })
}

/// Collects the factors that stand beside constants in the terms of a sum. The result of a call is one
/// term.
fn terms(arena: &Arena<Expression>, sum: Handle<Expression>, factors: &mut Vec<Factor>) {
    match arena[sum] {
        Expression::Binary { op: BinaryOperator::Add | BinaryOperator::Subtract, left, right } => {
            terms(arena, left, factors);
            terms(arena, right, factors);
        }
        Expression::Unary { op: UnaryOperator::Negate, expr } => terms(arena, expr, factors),
        Expression::Binary { op: BinaryOperator::Multiply, left, right } => {
            match (is_number(arena, left), is_number(arena, right)) {
                (true, false) => factors.extend(factor(arena, right)),
                (false, true) => factors.extend(factor(arena, left)),
                _ => {}
            }
        }
        _ => {}
    }
}

/// A factor: a value, or a variable (each use of a variable is an expression of its own).
#[derive(PartialEq)]
enum Factor {
    Value(Handle<Expression>),
    Variable(Handle<LocalVariable>),
}

fn factor(arena: &Arena<Expression>, of: Handle<Expression>) -> Option<Factor> {
    match arena[of] {
        Expression::Load { pointer } => match arena[pointer] {
            Expression::LocalVariable(variable) => Some(Factor::Variable(variable)),
            _ => None,
        },
        _ => Some(Factor::Value(of)),
    }
}

/// Whether an expression is a literal number, given as a value or by its bits.
fn is_number(arena: &Arena<Expression>, of: Handle<Expression>) -> bool {
    match arena[of] {
        Expression::Literal(_) | Expression::Constant(_) => true,
        Expression::Unary { expr, .. } | Expression::As { expr, .. } => is_number(arena, expr),
        _ => false,
    }
}

/// A bool array or variable in workgroup memory, for which NVIDIA's driver gives wrong results.
pub(crate) fn shared_bool(module: &Module) -> Option<&str> {
    let has_bool = |ty: Handle<Type>| {
        let mut left = vec![ty];
        while let Some(ty) = left.pop() {
            match &module.types[ty].inner {
                TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. }
                    if scalar.kind == ScalarKind::Bool =>
                {
                    return true;
                }
                TypeInner::Array { base, .. } => left.push(*base),
                TypeInner::Struct { members, .. } => left.extend(members.iter().map(|member| member.ty)),
                _ => {}
            }
        }
        false
    };
    let mut variables = module.global_variables.iter().map(|(_, variable)| variable);
    let shared = |v: &&GlobalVariable| v.space == AddressSpace::WorkGroup && has_bool(v.ty);
    variables.find(shared).map(|variable| variable.name.as_deref().unwrap_or_default())
}

/// The functions with a loop that is not counted. They end for another reason, which stands here.
const ENDS: &[(&str, &str)] = &[
    ("gcd_u32", "Euclid's algorithm: the remainders decrease"),
    ("gcd_i64", "Euclid's algorithm"),
    ("gcd_u64", "Euclid's algorithm"),
    ("pow_u32", "the exponent is halved"),
    ("pow_i64", "the exponent is halved"),
    ("pow_u64", "the exponent is halved"),
    ("log_f64", "a number that is not 0 is doubled up to a bound"),
    ("pow_positive_f64", "a number that is not 0 is doubled up to a bound"),
    ("take_apart_f64", "a number that is not 0 is doubled up to a bound"),
    ("kernel of sort", "an insertion moves towards the start of a block"),
    ("kernel of sort_merge", "a bisection"),
];

/// A loop without an obvious bound, if there is one. A counted loop tests a variable first, changes it only
/// in its last step, and there by addition, subtraction or a shift. `file` is the name of the text.
pub(crate) fn uncounted(module: &Module, file: &str) -> Option<String> {
    let functions = module.functions.iter().map(|(_, f)| f);
    let functions = functions.chain(module.entry_points.iter().map(|e| &e.function));
    functions.filter(|f| !all_counted(f, &f.body)).find_map(|f| {
        let name = f.name.clone().unwrap_or_default();
        let own = if name == "kernel" { format!("kernel of {file}") } else { name };
        ENDS.iter().all(|(ends, _)| *ends != own).then_some(own)
    })
}

fn all_counted(f: &Function, block: &Block) -> bool {
    block.iter().all(|statement| match statement {
        Statement::Block(block) => all_counted(f, block),
        Statement::If { accept, reject, .. } => all_counted(f, accept) && all_counted(f, reject),
        Statement::Switch { cases, .. } => cases.iter().all(|case| all_counted(f, &case.body)),
        Statement::Loop { body, continuing, .. } => is_counted(f, body, continuing) && all_counted(f, body),
        _ => true,
    })
}

fn is_counted(f: &Function, body: &Block, continuing: &Block) -> bool {
    let condition = body.iter().find_map(|statement| match statement {
        Statement::If { condition, reject, .. } => {
            reject.iter().any(|statement| matches!(statement, Statement::Break)).then_some(*condition)
        }
        _ => None,
    });
    let Some(condition) = condition else { return false };
    let conjuncts = conjuncts(f, body, condition);
    let counts = |(variable, value): &(Handle<LocalVariable>, Handle<Expression>)| {
        let steps = match f.expressions[*value] {
            Expression::Binary { op, left, .. } => {
                use BinaryOperator as B;
                matches!(op, B::Add | B::Subtract | B::ShiftLeft | B::ShiftRight) && reads(f, left, *variable)
            }
            _ => false,
        };
        let tested = conjuncts.iter().any(|&condition| reads(f, condition, *variable));
        steps && tested && stores(f, body).iter().all(|(own, _)| own != variable)
    };
    stores(f, continuing).iter().any(counts)
}

/// The conditions that a condition consists of. naga writes `a && b` as a variable that is `b` if `a`, and
/// false if not.
fn conjuncts(f: &Function, body: &Block, condition: Handle<Expression>) -> Vec<Handle<Expression>> {
    let mut found = vec![condition];
    for statement in body.iter() {
        let Statement::If { condition: first, accept, reject } = statement else { continue };
        let is_false = |value| matches!(f.expressions[value], Expression::Literal(Literal::Bool(false)));
        for (variable, _) in stores(f, reject).into_iter().filter(|&(_, value)| is_false(value)) {
            if reads(f, condition, variable) {
                found.extend(conjuncts(f, body, *first));
                let second = stores(f, accept).into_iter().filter(|&(own, _)| own == variable);
                second.for_each(|(_, value)| found.extend(conjuncts(f, accept, value)));
            }
        }
    }
    found
}

/// The variables that a block sets, with the values.
fn stores(f: &Function, block: &Block) -> Vec<(Handle<LocalVariable>, Handle<Expression>)> {
    let mut found = Vec::new();
    for statement in block.iter() {
        match statement {
            Statement::Store { pointer, value } => {
                if let Expression::LocalVariable(variable) = f.expressions[*pointer] {
                    found.push((variable, *value));
                }
            }
            Statement::Block(block) => found.extend(stores(f, block)),
            Statement::If { accept, reject, .. } => {
                found.extend(stores(f, accept));
                found.extend(stores(f, reject));
            }
            Statement::Switch { cases, .. } => {
                cases.iter().for_each(|case| found.extend(stores(f, &case.body)));
            }
            Statement::Loop { body, continuing, .. } => {
                found.extend(stores(f, body));
                found.extend(stores(f, continuing));
            }
            _ => {}
        }
    }
    found
}

/// Whether an expression is a variable, or an operation one of whose operands is.
fn reads(f: &Function, of: Handle<Expression>, variable: Handle<LocalVariable>) -> bool {
    match f.expressions[of] {
        Expression::Load { pointer } => {
            matches!(f.expressions[pointer], Expression::LocalVariable(own) if own == variable)
        }
        Expression::Binary { left, right, .. } => reads(f, left, variable) || reads(f, right, variable),
        _ => false,
    }
}
