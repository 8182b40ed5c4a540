//! The operations that a page cannot run: WGSL has 32 bits. Integers of 64 bits are indices there, which fit
//! into 32.

use tensor_core::{
    Arithmetic, BinaryOp, CompareOp, CumulativeOp, DType, Result, Scalar,
    kernel::{Body, Instr, Program},
};

use crate::{
    description::{Description, Role, Step},
    number::combination,
};

/// Checks that a step can run on a page.
///
/// # Errors
/// The reason, with the line of the operation.
pub(crate) fn check(step: &Step, plan: &Description) -> Result<()> {
    match reason(step, plan) {
        Some(reason) => Err(step.refuse(format!("{reason} cannot be shipped to a page"))),
        None => Ok(()),
    }
}

const BEYOND_INDICES: &str = "arithmetic of i64 beyond that of indices (convert to i32)";

/// Whether a function of two indices is an index again.
fn is_of_indices(op: BinaryOp) -> bool {
    match op {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Maximum | BinaryOp::Minimum => true,
        BinaryOp::FloorDiv | BinaryOp::Remainder => true,
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::Pow | BinaryOp::Atan2 | BinaryOp::Gcd => false,
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => false,
        BinaryOp::LeftShift | BinaryOp::RightShift => false,
    }
}

fn is_wide(dtype: DType) -> bool {
    dtype.arithmetic() == Arithmetic::I64
}

fn fits(scalar: Scalar) -> bool {
    i32::try_from(scalar.as_i64()).is_ok()
}

fn reason(step: &Step, plan: &Description) -> Option<&'static str> {
    let kernel = &step.kernel;
    let program = kernel.body.program();
    let registers = program.into_iter().flat_map(|program| program.dtypes.iter().copied());
    let operands = kernel.operands.iter().map(|operand| operand.dtype);
    let outputs = kernel.outputs.iter().map(|output| output.dtype);
    for dtype in operands.chain(outputs).chain(registers) {
        match dtype.arithmetic() {
            Arithmetic::F64 => return Some("f64"),
            Arithmetic::U64 => return Some("u64"),
            Arithmetic::F32 | Arithmetic::I32 | Arithmetic::U32 | Arithmetic::I64 | Arithmetic::Bool => {}
        }
    }
    for window in &step.inputs {
        let buffer = &plan.buffers[window.buffer];
        if let Role::Constant(bytes) = &buffer.role
            && is_wide(buffer.dtype)
            && !Scalar::from_bytes(buffer.dtype, bytes).into_iter().all(fits)
        {
            return Some("an integer above 32 bits");
        }
    }
    if let Some(program) = program
        && let Some(reason) = (0..program.instrs.len()).find_map(|r| of_instr(step, program, r))
    {
        return Some(reason);
    }
    let of = kernel.operands.first().map_or(DType::F32, |operand| operand.dtype);
    match &kernel.body {
        Body::ArgReduce { .. } if of.is_bool() => Some("the position of an extreme of bool"),
        Body::Cumulative { op, .. } if of.is_bool() && op.is_arg() => {
            Some("the position of an extreme of bool")
        }
        Body::Reduce { op, program } if is_wide(program.output_dtype(0)) => {
            (!is_of_indices(combination(*op))).then_some(BEYOND_INDICES)
        }
        Body::Cumulative { op: CumulativeOp::Prod, .. } | Body::Contract(_) if is_wide(of) => {
            Some(BEYOND_INDICES)
        }
        Body::Scatter { op, .. } if is_wide(of) => {
            op.binary().is_some_and(|op| !is_of_indices(op)).then_some(BEYOND_INDICES)
        }
        Body::Reduce { .. } | Body::ArgReduce { .. } | Body::Cumulative { .. } | Body::Contract(_) => None,
        Body::Scatter { .. } | Body::Map(_) | Body::Rows { .. } | Body::Gather { .. } => None,
        Body::Copy { .. } | Body::ArgSort { .. } | Body::Custom(_) => None,
    }
}

fn of_instr(step: &Step, program: &Program, r: usize) -> Option<&'static str> {
    let dtype = program.dtypes[r];
    let of = |reg: u16| program.dtypes[usize::from(reg)];
    match program.instrs[r] {
        Instr::Scalar(k) => {
            (is_wide(dtype) && !fits(step.scalars[usize::from(k)])).then_some("an integer above 32 bits")
        }
        Instr::Unary(..) | Instr::Powi(..) => is_wide(dtype).then_some(BEYOND_INDICES),
        Instr::Binary(op, ..) => (is_wide(dtype) && !is_of_indices(op)).then_some(BEYOND_INDICES),
        Instr::Fold(op, _) => (is_wide(dtype) && !is_of_indices(combination(op))).then_some(BEYOND_INDICES),
        Instr::Compare(op, a, _) => {
            (of(a).is_bool() && !matches!(op, CompareOp::Eq | CompareOp::Ne)).then_some("an order of bool")
        }
        Instr::Cast(a) => {
            let may_be_greater = of(a).is_float() || of(a).arithmetic() == Arithmetic::U32;
            (is_wide(dtype) && may_be_greater)
                .then_some("a conversion to i64 of numbers that may be above 32 bits (convert to i32)")
        }
        Instr::Load(_) | Instr::LoadAt { .. } | Instr::Arange { .. } | Instr::Random { .. } => None,
        Instr::Select(..) => None,
    }
}
