//! Constants that naga accepts and other compilers of WGSL refuse: a constant expression must not be infinite or NaN.

use naga::{Arena, Expression, Handle, Literal, Module, ScalarKind};

/// What a compiler that keeps to the letter of WGSL refuses in a module, if anything: `bitcast` of a constant to a float that is
/// infinite or NaN. Such values go by way of a `var`, which is not a constant.
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

/// The words of a constant expression; empty where it is none.
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
