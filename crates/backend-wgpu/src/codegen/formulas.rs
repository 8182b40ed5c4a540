//! The table of elementwise formulas in WGSL, and the function generated for a whole program. Names that
//! end in a dtype (`exp_f32`) are functions of the shader libraries.

use tensor_core::{
    BinaryOp, CompareOp, DType, RandomKind, ReduceOp, Result, UnaryDomain, UnaryOp,
    kernel::{Instr, Program, Reg},
};

use crate::codegen::{
    capabilities::Capabilities,
    dispatch::Params,
    dtypes::{loaded, value},
    wgsl::Code,
};

/// The suffix of library functions for a dtype: its loaded type.
fn suffix(dtype: DType) -> &'static str {
    loaded(dtype)
}

/// A WGSL literal of a small whole number.
fn literal(dtype: DType, n: i32) -> String {
    match value(dtype) {
        "f32" => format!("f32({n}.0)"),
        "f64" => format!("{n}.0lf"),
        "i64" => format!("{n}li"),
        "u64" => format!("{n}lu"),
        "u32" => format!("{n}u"),
        "bool" => (n != 0).to_string(),
        _ => format!("i32({n})"),
    }
}

/// Wraps the result of arithmetic to its dtype, if that has fewer bits than the compute type.
fn wrapped(dtype: DType, expression: String) -> String {
    if dtype.is_float() || !dtype.is_narrow() {
        return expression;
    }
    if dtype.is_signed() {
        let by = 32 - dtype.info().bits;
        format!("((({expression}) << {by}u) >> {by}u)")
    } else {
        format!("(({expression}) & {})", dtype.greatest().as_i64())
    }
}

/// A function of one value.
pub(crate) fn unary(op: UnaryOp, dtype: DType, x: &str) -> Option<String> {
    use UnaryDomain as D;
    let (t, float) = (suffix(dtype), dtype.is_float());
    match op.domain() {
        D::Bits if dtype == DType::Bool => Some(format!("!({x})")),
        D::Bits => (!float).then(|| wrapped(dtype, format!("~({x})"))),
        D::Test if !float => Some("false".into()),
        D::Test if op == UnaryOp::IsNan => Some(format!("is_nan_{t}({x})")),
        D::Test => Some(format!("is_inf_{t}({x})")),
        D::Rounding if !float => Some(x.into()),
        D::Real | D::Rounding | D::Numbers if float => Some(unary_of_float(op, dtype, x)),
        D::Real | D::Rounding => None,
        D::Numbers => (dtype != DType::Bool).then(|| unary_of_integer(op, dtype, x)),
    }
}

/// A function of a float. WGSL has some of them itself; the others are functions of the shader libraries with
/// the operation's name.
fn unary_of_float(op: UnaryOp, dtype: DType, x: &str) -> String {
    use UnaryOp as U;
    let (t, name) = (suffix(dtype), op.name());
    let in_wgsl = matches!(op, U::Abs | U::Floor | U::Ceil)
        || op == U::Trunc && t != "f64"
        || op == U::Round && t == "f32";
    if op == U::Neg {
        format!("-({x})")
    } else if op == U::Reciprocal {
        format!("({} / {x})", literal(dtype, 1))
    } else if in_wgsl {
        format!("{name}({x})")
    } else {
        format!("{name}_{t}({x})")
    }
}

/// The negative, the sign, the positive part or the absolute value of an integer.
fn unary_of_integer(op: UnaryOp, dtype: DType, x: &str) -> String {
    use UnaryOp as U;
    let (zero, one) = (literal(dtype, 0), literal(dtype, 1));
    if op == U::Neg {
        wrapped(dtype, format!("({zero} - {x})"))
    } else if op == U::Sign && dtype.is_signed() {
        let below = literal(dtype, -1);
        format!("select(select({zero}, {one}, {x} > {zero}), {below}, {x} < {zero})")
    } else if op == U::Sign {
        format!("select({zero}, {one}, {x} != {zero})")
    } else if !dtype.is_signed() {
        x.into()
    } else if op == U::Relu {
        format!("select({x}, {zero}, {x} < {zero})")
    } else {
        wrapped(dtype, format!("select({x}, {zero} - {x}, {x} < {zero})"))
    }
}

/// A function of two values of one dtype.
pub(crate) fn binary(op: BinaryOp, dtype: DType, a: &str, b: &str) -> Option<String> {
    use BinaryOp as B;
    let t = suffix(dtype);
    if dtype == DType::Bool {
        return Some(match op {
            B::Add | B::Or | B::Maximum => format!("({a} | {b})"),
            B::Mul | B::And | B::Minimum => format!("({a} & {b})"),
            B::Xor => format!("({a} != {b})"),
            B::Sub | B::Div | B::FloorDiv | B::Remainder | B::Pow | B::Atan2 => return None,
            B::LeftShift | B::RightShift | B::Gcd => return None,
        });
    }
    let float = dtype.is_float();
    Some(match op {
        B::Add => wrapped(dtype, format!("({a} + {b})")),
        B::Sub => wrapped(dtype, format!("({a} - {b})")),
        B::Mul => wrapped(dtype, format!("({a} * {b})")),
        B::Div if t == "f32" => format!("div_f32({a}, {b})"),
        B::Div if float => format!("({a} / {b})"),
        B::Atan2 if float => format!("atan2_{t}({a}, {b})"),
        B::FloorDiv => wrapped(dtype, format!("floordiv_{t}({a}, {b})")),
        B::Remainder => format!("remainder_{t}({a}, {b})"),
        B::Pow => wrapped(dtype, format!("pow_{t}({a}, {b})")),
        B::Maximum if float => format!("max_{t}({a}, {b})"),
        B::Minimum if float => format!("min_{t}({a}, {b})"),
        B::Maximum => format!("max({a}, {b})"),
        B::Minimum => format!("min({a}, {b})"),
        B::And if !float => format!("({a} & {b})"),
        B::Or if !float => format!("({a} | {b})"),
        B::Xor if !float => format!("({a} ^ {b})"),
        B::LeftShift if !float => wrapped(dtype, format!("shl_{t}({a}, {b})")),
        B::RightShift if !float => format!("shr_{t}({a}, {b})"),
        B::Gcd if !float => wrapped(dtype, format!("gcd_{t}({a}, {b})")),
        B::Div | B::Atan2 => return None,
        B::And | B::Or | B::Xor | B::LeftShift | B::RightShift | B::Gcd => return None,
    })
}

/// A comparison of two values of one dtype: IEEE's for floats, false before true for bool.
pub(crate) fn compare(op: CompareOp, dtype: DType, a: &str, b: &str) -> String {
    use CompareOp as C;
    let t = suffix(dtype);
    let (float, bool) = (dtype.is_float(), dtype.is_bool());
    match op {
        C::Gt => compare(C::Lt, dtype, b, a),
        C::Ge => compare(C::Le, dtype, b, a),
        C::Ne => format!("!({})", compare(C::Eq, dtype, a, b)),
        C::Eq if float => format!("eq_{t}({a}, {b})"),
        C::Eq => format!("({a} == {b})"),
        C::Lt if float => format!("lt_{t}({a}, {b})"),
        C::Lt if bool => format!("(!{a} & {b})"),
        C::Lt => format!("({a} < {b})"),
        C::Le if float => format!("le_{t}({a}, {b})"),
        C::Le if bool => format!("(!{a} | {b})"),
        C::Le => format!("({a} <= {b})"),
    }
}

/// Converts a value of one dtype to another.
pub(crate) fn cast(from: DType, to: DType, x: &str) -> String {
    if from == to {
        // A sum that has not been wrapped yet is cast to its own dtype.
        return wrapped(to, x.into());
    }
    if from == DType::Bool {
        return format!("select({}, {}, {x})", literal(to, 0), literal(to, 1));
    }
    let source = suffix(from);
    if to.is_float() {
        let number = if to == DType::F64 {
            format!("f64({x})")
        } else if source == "f32" {
            x.into()
        } else {
            format!("f32({x})")
        };
        return if to.is_reduced_float() { format!("round_{}({number})", to.name()) } else { number };
    }
    if to == DType::Bool {
        let zero = literal(from, 0);
        return if from.is_float() {
            format!("!(eq_{source}({x}, {zero}))")
        } else {
            format!("({x} != {zero})")
        };
    }
    let word = suffix(to);
    if from.is_float() {
        let saturated = format!("{word}_from_{source}({x})");
        let (least, greatest) = (to.least().as_i64(), to.greatest().as_i64());
        return if to.is_narrow() { format!("clamp({saturated}, {least}, {greatest})") } else { saturated };
    }
    // The low 32 bits.
    let low = match source {
        "i64" | "u64" => format!("u32_from_{source}({x})"),
        "i32" => format!("bitcast<u32>({x})"),
        _ => x.into(),
    };
    let whole = match (word, source) {
        (same, source) if same == source => x.into(),
        ("i64", "u64") => format!("bitcast<i64>({x})"),
        ("i64", source) => format!("i64_from_{source}({x})"),
        ("u64", "i64") => format!("bitcast<u64>({x})"),
        ("u64", source) => format!("bitcast<u64>(i64_from_{source}({x}))"),
        ("i32", _) => format!("bitcast<i32>({low})"),
        _ => low,
    };
    wrapped(to, whole)
}

/// A loaded element as a value.
pub(crate) fn load(dtype: DType, x: &str) -> String {
    if dtype == DType::Bool { format!("({x} != 0u)") } else { x.into() }
}

/// Converts a value to an element for a buffer or for workgroup memory. A bool is a word there too:
/// NVIDIA's driver gives wrong results for arrays of bool. Half types are rounded when they are packed.
pub(crate) fn store(dtype: DType, x: &str) -> String {
    if dtype == DType::Bool { format!("select(0u, 1u, {x})") } else { x.into() }
}

/// The neutral element and the operation of a reduction; None if the dtype does not support it.
pub(crate) fn reduction(op: ReduceOp, dtype: DType) -> Option<(String, BinaryOp)> {
    use ReduceOp as R;
    let t = value(dtype);
    Some(match op {
        R::Mean if !dtype.is_float() => return None,
        R::Sum | R::Mean => (literal(dtype, 0), BinaryOp::Add),
        R::Prod => (literal(dtype, 1), BinaryOp::Mul),
        R::Any if dtype == DType::Bool => ("false".into(), BinaryOp::Or),
        R::All if dtype == DType::Bool => ("true".into(), BinaryOp::And),
        R::Any | R::All => return None,
        R::Max | R::Min => {
            let max = op == R::Max;
            let end = if max { dtype.least() } else { dtype.greatest() }.as_i64();
            let least = match t {
                "f32" | "f64" => format!("{}inf_{t}()", if max { "-" } else { "" }),
                "bool" => (!max).to_string(),
                "u32" => format!("{}u", end as u32),
                "u64" => format!("{}lu", end as u64),
                "i64" if max => "(-9223372036854775807li - 1li)".into(),
                "i64" => format!("{end}li"),
                _ if max && dtype == DType::I32 => "bitcast<i32>(0x80000000u)".into(),
                _ => format!("i32({end})"),
            };
            (least, if max { BinaryOp::Maximum } else { BinaryOp::Minimum })
        }
    })
}

/// The value of scalar `slot`, a parameter of this dtype, as an expression.
pub(crate) fn scalar(dtype: DType, slot: u16) -> String {
    let s = format!("params.s{slot}");
    match value(dtype) {
        "bool" => format!("({s} != 0u)"),
        "u32" => s,
        "u64" => format!("u64_from_words({s}, {s}h)"),
        "i64" => format!("i64_from_words({s}, {s}h)"),
        "f64" => format!("f64_from_words({s}, {s}h)"),
        word => format!("bitcast<{word}>({s})"),
    }
}

/// Statements and the expression for x^n by repeated multiplication.
fn powi(n: i32, dtype: DType, x: &str, register: usize, c: &mut Code) -> Option<String> {
    if n < 0 && !dtype.is_float() {
        let n = match value(dtype) {
            "i64" => format!("{n}li"),
            "i32" => format!("i32({n})"),
            _ => return Some(format!("select({}, {}, {x} == {1})", literal(dtype, 0), literal(dtype, 1))),
        };
        return binary(BinaryOp::Pow, dtype, x, &n);
    }
    let mut base = x.to_string();
    if n < 0 {
        c.bind(format_args!("r{register}i"), format_args!("{} / {x}", literal(dtype, 1)));
        base = format!("r{register}i");
    }
    let mut left = n.unsigned_abs();
    let mut product: Option<String> = None;
    let mut step = 0;
    while left > 0 {
        if left & 1 == 1 {
            let next = match &product {
                None => base.clone(),
                Some(p) => binary(BinaryOp::Mul, dtype, p, &base)?,
            };
            c.bind(format_args!("r{register}p{step}"), next);
            product = Some(format!("r{register}p{step}"));
        }
        left >>= 1;
        if left > 0 {
            let square = binary(BinaryOp::Mul, dtype, &base, &base)?;
            c.bind(format_args!("r{register}b{step}"), square);
            base = format!("r{register}b{step}");
        }
        step += 1;
    }
    Some(product.unwrap_or_else(|| literal(dtype, 1)))
}

/// The name of an instruction in error messages.
fn instr_name(instr: Instr) -> &'static str {
    match instr {
        Instr::Unary(op, _) => op.name(),
        Instr::Binary(op, ..) => op.name(),
        Instr::Powi(..) => "powi",
        Instr::Random { kind, .. } => kind.name(),
        Instr::Arange { .. } => "arange",
        Instr::LoadAt { .. } => "gather",
        Instr::Load(_) | Instr::Scalar(_) | Instr::Compare(..) | Instr::Select(..) => "map",
        Instr::Cast(_) | Instr::Fold(..) => "map",
    }
}

/// Writes `let r<n> = …;` for instruction `n`. It reads the registers before it, the stored elements of the
/// inputs as `x<k>`, the start offsets of inputs read at indices as `b<k>`, and the flat position `i`.
/// Scalars are parameters.
pub(crate) fn statement(
    program: &Program,
    n: usize,
    capabilities: &Capabilities,
    c: &mut Code,
) -> Result<()> {
    let (instr, dtype) = (program.instrs[n], program.dtypes[n]);
    let r = |reg: Reg| format!("r{reg}");
    if !capabilities.info.dtypes.contains(&dtype) {
        return Err(capabilities.unsupported(
            instr_name(instr),
            dtype,
            "this adapter does not support the dtype; cast first, or use the cpu",
        ));
    }
    let of = |reg: Reg| program.dtypes[reg as usize];
    let scalar = |slot: u16| scalar(program.scalars[slot as usize], slot);
    // A sum of small integers is not wrapped to their dtype yet; its consumer does that.
    let as_loaded = |input: u16, x: &str| match program.inputs[input as usize] {
        own if own == dtype => load(own, x),
        own => cast(own, dtype, &load(own, x)),
    };
    let words = |slot: u16| format!("vec2<u32>(params.s{slot}, params.s{slot}h)");
    let expression = match instr {
        Instr::Load(input) => Some(as_loaded(input, &format!("x{input}"))),
        Instr::LoadAt { input, index } => {
            let element = format!("load_at{input}_{}(b{input}, {})", loaded(of(index)), r(index));
            Some(as_loaded(input, &element))
        }
        Instr::Scalar(slot) => Some(scalar(slot)),
        Instr::Arange { start, step } => {
            let i = match value(dtype) {
                "u32" => "i".to_string(),
                "bool" => "(i != 0u)".into(),
                _ => cast(DType::U32, dtype.register(), "i"),
            };
            Some(wrapped(dtype, format!("({} + {} * {i})", scalar(start), scalar(step))))
        }
        Instr::Random { kind, seed, offset } => {
            let block = format!("philox_at({}, {}, i)", words(seed), words(offset));
            match (kind, value(dtype)) {
                (RandomKind::Bits, "u32") => Some(wrapped(dtype, format!("{block}.x"))),
                (RandomKind::Uniform, t @ ("f32" | "f64")) => Some(format!("uniform_{t}({block})")),
                (RandomKind::Normal, t @ ("f32" | "f64")) => Some(format!("normal_{t}({block})")),
                _ => None,
            }
        }
        Instr::Unary(op, x) => unary(op, of(x), &r(x)),
        Instr::Powi(p, x) => powi(p, dtype, &r(x), n, c),
        // A compiler may simplify x - x to 0 and x / x to 1, which is correct only for integers.
        Instr::Binary(op @ (BinaryOp::Sub | BinaryOp::Div), a, b)
            if dtype.is_float() && may_be_one(program, a, b) =>
        {
            binary(op, dtype, &hidden(dtype, &r(a), !is_moved(program, a as usize)), &r(b))
        }
        Instr::Binary(op, a, b) => binary(op, dtype, &r(a), &r(b)),
        Instr::Compare(op, a, b) => Some(compare(op, of(a), &r(a), &r(b))),
        Instr::Select(c, a, b) => Some(format!("select({}, {}, {})", r(b), r(a), r(c))),
        Instr::Cast(x) => Some(cast(of(x), dtype, &r(x))),
        _ => None,
    };
    let Some(expression) = expression else {
        return Err(capabilities.unsupported(
            instr_name(instr),
            dtype,
            "there is no such function of this dtype here; cast first, or compute on the cpu",
        ));
    };
    if is_opaque(program, n) {
        c.bind(format_args!("plain{n}"), expression);
        c.bind(format_args!("r{n}"), hidden(dtype, &format!("plain{n}"), is_moved(program, n)));
    } else {
        c.bind(format_args!("r{n}"), expression);
    }
    Ok(())
}

/// The same value, hidden from the compiler: see `opaque_f32`.
pub(crate) fn opaque(dtype: DType, x: &str) -> String {
    if dtype == DType::Bool { x.into() } else { format!("opaque_{}({x})", suffix(dtype)) }
}

/// Hides a value from the compiler in one of two ways that do not cancel: `opaque_f32`, or `distinct_f32`
/// for a value that is opaque already or was made from an opaque one by moving bits.
fn hidden(dtype: DType, x: &str, again: bool) -> String {
    match again && dtype.is_float() {
        true => format!("distinct_{}({x})", suffix(dtype)),
        false => opaque(dtype, x),
    }
}

/// Whether instruction `n` returns the bits of an operand, except for the sign: an exclusive or of the
/// lowest bit commutes with it.
fn is_moved(program: &Program, n: usize) -> bool {
    match program.instrs[n] {
        Instr::Unary(op, _) => matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu),
        Instr::Binary(op, ..) => matches!(op, BinaryOp::Maximum | BinaryOp::Minimum),
        Instr::Select(..) => true,
        Instr::Load(_) | Instr::LoadAt { .. } | Instr::Scalar(_) | Instr::Arange { .. } => false,
        Instr::Random { .. } | Instr::Powi(..) | Instr::Compare(..) | Instr::Cast(_) => false,
        Instr::Fold(..) => false,
    }
}

/// Whether instruction `n` makes a float, or converts to an integer, that another instruction computes
/// with. WGSL compilers may rearrange float expressions as if there were no NaN, infinity or rounding, and
/// they do: (x + y) - x would become y. They also reason, sometimes wrongly, about the range of converted
/// integers: Mesa 22.3 evaluates `i64(x) < 0` as false if x is an i32. A value that is only added to the
/// sums of a reduction need not be opaque, because no compiler knows the sums.
fn is_opaque(program: &Program, n: usize) -> bool {
    let computed = match program.instrs[n] {
        Instr::Load(_) | Instr::LoadAt { .. } | Instr::Scalar(_) => false,
        // A half type is computed as f32 already.
        Instr::Cast(x) => {
            let (from, to) = (program.dtypes[x as usize], program.dtypes[n]);
            to != DType::Bool && from.register() != to
        }
        Instr::Arange { .. }
        | Instr::Random { .. }
        | Instr::Unary(..)
        | Instr::Powi(..)
        | Instr::Binary(..)
        | Instr::Compare(..)
        | Instr::Select(..)
        | Instr::Fold(..) => program.dtypes[n].is_float(),
    };
    let takes = |instr: &Instr| {
        let only_looks = matches!(instr, Instr::Fold(..) | Instr::Unary(UnaryOp::IsNan | UnaryOp::IsInf, _));
        !only_looks && instr.operands().contains(&(n as Reg))
    };
    computed && program.instrs[n + 1..].iter().any(takes)
}

/// Whether a compiler could find that two registers hold one value: a register and itself, or x + y and y +
/// x. Their operands are opaque to it.
fn may_be_one(program: &Program, a: Reg, b: Reg) -> bool {
    match (program.instrs[a as usize], program.instrs[b as usize]) {
        _ if a == b => true,
        (Instr::Binary(one, ..), Instr::Binary(other, ..)) => one == other,
        // Elements at equal indices.
        (Instr::LoadAt { .. }, Instr::LoadAt { .. }) => true,
        // x^2 and x * x.
        (Instr::Powi(..), Instr::Binary(BinaryOp::Mul, ..) | Instr::Powi(..))
        | (Instr::Binary(BinaryOp::Mul, ..), Instr::Powi(..)) => true,
        _ => false,
    }
}

/// Whether results of a program depend on the flat position.
pub(crate) fn is_positional(program: &Program) -> bool {
    program.instrs.iter().any(|instr| matches!(instr, Instr::Arange { .. } | Instr::Random { .. }))
}

/// The most loop iterations of one invocation in a program: software adapters limit the iterations of an
/// invocation.
pub(crate) fn rounds(program: &Program) -> usize {
    let of = |n: usize| {
        let dtype = program.dtypes[n];
        let wide = matches!(value(dtype), "f64" | "i64" | "u64");
        match program.instrs[n] {
            // The steps of a long division; for f64 also those that normalise both numbers.
            Instr::Binary(BinaryOp::FloorDiv | BinaryOp::Remainder, ..) if dtype.is_float() => {
                if wide {
                    192 + 2 * 52
                } else {
                    35
                }
            }
            // One iteration for each bit of the exponent.
            Instr::Binary(BinaryOp::Pow, ..) => 64,
            // The steps of Euclid's algorithm; neighbouring Fibonacci numbers need the most.
            Instr::Binary(BinaryOp::Gcd, ..) => {
                if wide {
                    92
                } else {
                    47
                }
            }
            // The terms of a series, or the bits of a denormal number.
            Instr::Unary(..) if wide && dtype.is_float() => 128,
            Instr::Random { .. } => 10 + if wide { 128 } else { 0 },
            Instr::Load(_) | Instr::LoadAt { .. } | Instr::Scalar(_) | Instr::Arange { .. } => 0,
            Instr::Unary(..) | Instr::Powi(..) | Instr::Binary(..) | Instr::Compare(..) => 0,
            Instr::Select(..) | Instr::Cast(_) | Instr::Fold(..) => 0,
        }
    };
    (0..program.instrs.len()).map(of).sum()
}

/// `fn program(i, x0, x1, …) -> Results`: the program at flat position `i`, with the loaded elements of its
/// inputs (`b<k>` is the start offset of an input read at indices). It returns the elements to store, or,
/// with `raw`, a value for the prologue of a reduction. A single result is returned directly, several as
/// fields `o0`, `o1`, …. Adds the scalars to the parameters.
pub(crate) fn function(
    program: &Program,
    raw: bool,
    params: &mut Params,
    capabilities: &Capabilities,
) -> Result<String> {
    for (slot, &dtype) in program.scalars.iter().enumerate() {
        params.scalar(slot, dtype);
    }
    let mut body = Code::default();
    for n in 0..program.instrs.len() {
        statement(program, n, capabilities, &mut body)?;
    }
    let input = |k: usize| match program.is_indexed(k as u16) {
        true => (format!("b{k}"), "u32"),
        false => (format!("x{k}"), loaded(program.inputs[k])),
    };
    let names: Vec<(String, &str)> = (0..program.inputs.len()).map(input).collect();
    let inputs = names.iter().map(|(name, t)| (name.as_str(), *t));
    let parameters: Vec<(&str, &str)> = [("i", "u32")].into_iter().chain(inputs).collect();
    let results: Vec<(String, &str)> = program
        .outputs
        .iter()
        .map(|&reg| {
            let (x, dtype) = (format!("r{reg}"), program.dtypes[reg as usize]);
            if raw { (x, value(dtype)) } else { (store(dtype, &x), loaded(dtype)) }
        })
        .collect();
    let mut out = Code::default();
    let (ty, returned) = match &results[..] {
        [(x, ty)] => (*ty, x.clone()),
        many => {
            out.block("struct Results", |c| {
                for (o, (_, ty)) in many.iter().enumerate() {
                    c.line(format_args!("o{o}: {ty},"));
                }
            });
            let list: Vec<&str> = many.iter().map(|(x, _)| x.as_str()).collect();
            ("Results", format!("Results({})", list.join(", ")))
        }
    };
    out.function("program", &parameters, ty, |c| {
        c.append(body.text());
        c.line(format_args!("return {returned};"));
    });
    Ok(out.text().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hiding a value twice must not cancel; otherwise the compiler merges a product and a difference into
    /// one operation.
    #[test]
    fn a_value_is_hidden_in_two_ways() {
        let float = DType::F32;
        let program = Program {
            instrs: vec![
                Instr::Load(0),
                Instr::Load(1),
                Instr::Binary(BinaryOp::Mul, 0, 1),
                Instr::Binary(BinaryOp::Mul, 1, 0),
                Instr::Binary(BinaryOp::Sub, 2, 3),
                Instr::Unary(UnaryOp::Neg, 2),
                Instr::Binary(BinaryOp::Sub, 5, 5),
                Instr::Binary(BinaryOp::Sub, 0, 0),
            ],
            dtypes: vec![float; 8],
            inputs: vec![float; 2],
            scalars: vec![],
            outputs: vec![4, 6, 7],
        };
        let capabilities = crate::validate::capabilities(true);
        let text = function(&program, false, &mut Params::default(), &capabilities).unwrap();
        for line in [
            "let r2 = opaque_f32(plain2);",
            "let r4 = (distinct_f32(r2) - r3);",
            "let r5 = distinct_f32(plain5);",
            "let r6 = (opaque_f32(r5) - r5);",
            "let r7 = (distinct_f32(r0) - r0);",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
