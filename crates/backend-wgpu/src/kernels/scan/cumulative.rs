//! Cumulative operations. There are two forms: one invocation for each line (or part of a line), and one
//! workgroup with prefixes in workgroup memory. For few long lines, a first step computes the totals of
//! their parts, and a second the prefix before each part. Long products are computed in stretches, one after
//! the other.

use tensor_core::{BinaryOp, CompareOp, CumulativeOp, DType, ReduceOp, Result, kernel::Kernel};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Resource},
        dtypes::{loaded, unpacked},
        formulas,
        index::Lines,
        storage::Elements,
        wgsl::Code,
    },
    kernels::cut::{Cut, Place},
};

/// The body of a cumulative operation.
pub(crate) struct Cumulative {
    pub(crate) op: CumulativeOp,
    pub(crate) axis: usize,
    pub(crate) reverse: bool,
}

impl Cut for Cumulative {
    fn piece(&self, kernel: &Kernel, place: Place<'_>) -> Result<Dispatches> {
        dispatches(kernel, self, place.capabilities)
    }
}

/// The result that a dispatch computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The results, from the start of each line.
    Whole,
    /// The total of each part, into temporary 0.
    Totals,
    /// The inclusive prefixes of the totals, into temporary 1.
    Carries,
    /// The results, each part starting from the prefix before it.
    Parts,
    /// The results of the stretch with this number, which starts from the last state of the one before.
    Stretch(usize),
}

/// The most positions of a stretch: a dispatch of some 0.1 s at the latency of one access to memory.
const MAX_STRETCH: usize = 1 << 17;

fn dispatches(
    kernel: &Kernel,
    &Cumulative { op, axis, reverse }: &Cumulative,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let (operand, shape) = (&kernel.operands[0], &kernel.space);
    let dtype = operand.dtype;
    let lines = Lines { input: &operand.layout, output: shape, axis };
    let (count, length) = (lines.count(), lines.length());
    if count * length == 0 {
        return Ok(Dispatches::default());
    }
    // A part's product may overflow even if the whole product does not, so each line is one part.
    let whole = op == CumulativeOp::Prod && dtype.is_float();
    // The invocations of a workgroup read neighbours in memory: elements of one line, or of neighbouring
    // lines.
    let tile = !capabilities.direct && !whole && length >= 128 && lines.stride().unsigned_abs() <= 1;
    let (units, least) = match tile {
        true => (capabilities.invocations / 256, 4096),
        false => (capabilities.invocations, if capabilities.direct { 512 } else { 64 }),
    };
    let splits = if whole || count >= units { 1 } else { (length / least).clamp(1, units.div_ceil(count)) };
    let rounds = if whole { capabilities.rounds.min(MAX_STRETCH) } else { capabilities.rounds };
    let splits = splits.max(length.div_ceil(rounds));
    let chunk = length.div_ceil(splits);
    // Recomputed so that no part is empty.
    let splits = length.div_ceil(chunk);
    let scan = |role, tile| {
        Scan { op, reverse, dtype, lines: &lines, role, splits, chunk, tile }.dispatch(capabilities)
    };
    if splits == 1 {
        return Ok(scan(Role::Whole, tile)?.into());
    }
    if whole {
        let stretches = (0..splits).map(|n| scan(Role::Stretch(n), false)).collect::<Result<_>>()?;
        return Ok(Dispatches { list: stretches, temporaries: vec![(unpacked(dtype), count); 2] });
    }
    let kept = if op.is_arg() { DType::I32 } else { unpacked(dtype) };
    Ok(Dispatches {
        list: vec![
            scan(Role::Totals, tile)?,
            scan(Role::Carries, !capabilities.direct && splits >= 128)?,
            scan(Role::Parts, tile)?,
        ],
        temporaries: vec![(kept, count * splits); 2],
    })
}

struct Scan<'a> {
    op: CumulativeOp,
    reverse: bool,
    dtype: DType,
    lines: &'a Lines<'a>,
    role: Role,
    splits: usize,
    chunk: usize,
    tile: bool,
}

impl Scan<'_> {
    fn dispatch(&self, capabilities: &Capabilities) -> Result<Dispatch> {
        let Scan { op, reverse, lines, role, splits, chunk, tile, .. } = *self;
        // Indices depend only on the order of elements, and false before true is the order of 0 and 1.
        let dtype = if self.dtype.is_bool() && op.is_arg() { DType::U8 } else { self.dtype };
        let (length, splits, chunk) = match role {
            Role::Carries => (splits, 1, splits),
            Role::Stretch(n) => {
                let length = chunk.min(lines.length() - n * chunk);
                (length, 1, length)
            }
            Role::Whole | Role::Totals | Role::Parts => (lines.length(), splits, chunk),
        };
        let total = lines.count() * splits;
        let mut d = Dispatch::new("cumulative");
        d.params.size("total", total);
        d.params.size("lines", lines.count());
        d.params.size("length", length);
        d.params.size("splits", splits);
        d.params.size("chunk", chunk);
        let kept = if op.is_arg() { "i32" } else { loaded(dtype) };
        let skipped = if let Role::Stretch(n) = role { n * self.chunk } else { 0 };
        let first = if reverse { lines.length() - 1 - skipped } else { skipped };
        let step = if reverse { -1 } else { 1 };
        d.params.stride("stride", step * lines.stride());
        d.params.stride("output_stride", step * lines.output_stride());
        d.params.size("index_first", first);
        d.params.stride("index_step", step);
        let reads_input = op.is_arg() || role != Role::Carries;
        if reads_input {
            d.bind("input", Elements::of(dtype), false, Resource::Input(0));
        }
        match role {
            Role::Carries => d.bind("totals", kept, false, Resource::Temporary(0)),
            Role::Parts => d.bind("carries", kept, false, Resource::Temporary(1)),
            Role::Stretch(n) => {
                // Read and written by the same invocations, but a buffer has one use in a dispatch.
                if n > 0 {
                    d.bind("carries", kept, false, Resource::Temporary((n + 1) % 2));
                }
                d.bind("states", kept, true, Resource::Temporary(n % 2));
            }
            Role::Whole | Role::Totals => {}
        }
        let output = match role {
            Role::Totals => Resource::Temporary(0),
            Role::Carries => Resource::Temporary(1),
            Role::Whole | Role::Parts | Role::Stretch(_) => Resource::Output(0),
        };
        let results = if op.is_arg() { DType::I32 } else { dtype };
        let elements = match role {
            Role::Totals | Role::Carries => Elements::from(kept),
            Role::Whole | Role::Parts | Role::Stretch(_) => Elements::of(results),
        };
        d.bind("output", elements, true, output);

        let c = &mut d.code;
        state(op, dtype, capabilities, c)?;
        c.append(&lines.input_at(first, &mut d.params));
        c.append(&lines.output_at(first, &mut d.params));
        let element = match role {
            Role::Carries => "restore(base, totals[line * params.length + r])",
            Role::Whole | Role::Totals | Role::Parts | Role::Stretch(_) => "open(base, r)",
        };
        let (carried, before) = match role {
            Role::Parts => ("part > 0u", "restore(base, carries[g - 1u])"),
            Role::Stretch(1..) => ("true", "restore(base, carries[g])"),
            Role::Whole | Role::Totals | Role::Carries | Role::Stretch(0) => ("false", "open(base, 0u)"),
        };
        let (open, restore) = if op.is_arg() {
            (
                "State(load_input(base + r * params.stride), bitcast<i32>(params.index_first + r * params.index_step))",
                "State(load_input(base + (bitcast<u32>(at) - params.index_first) * params.index_step * params.stride), at)",
            )
        } else if reads_input {
            ("load_input(base + r * params.stride)", "at")
        } else {
            ("identity()", "at")
        };
        let base = ("base", "u32");
        c.expression("is_carried", &[("part", "u32")], "bool", carried);
        c.expression("open", &[base, ("r", "u32")], "State", open);
        c.expression("restore", &[base, ("at", kept)], "State", restore);
        c.expression("element", &[("line", "u32"), base, ("r", "u32")], "State", element);
        c.expression("before", &[("g", "u32"), base], "State", before);
        let parameters = [("g", "u32"), base, ("r", "u32"), ("last", "u32"), ("state", "State")];
        c.function("keep", &parameters, "", |c| match role {
            Role::Totals => c.when("r == last", |c| c.set("output[g]", "stash(state)")),
            Role::Carries => c.set("output[g * params.length + r]", "stash(state)"),
            Role::Whole | Role::Parts => {
                c.line("store_output(base + r * params.output_stride, stash(state));");
            }
            Role::Stretch(_) => {
                c.line("store_output(base + r * params.output_stride, stash(state));");
                c.when("r == last", |c| c.set("states[g]", "stash(state)"));
            }
        });
        match tile {
            true => d.code.kernel(256, taper_shaders::CUMULATIVE_TILE),
            false => d.code.kernel(64, taper_shaders::CUMULATIVE_LINE),
        }
        d.workgroups = if tile { total } else { total.div_ceil(64) };
        d.work = chunk * if tile { 8 } else { 64 };
        Ok(d)
    }
}

/// Adds the type of the running state and the function that combines two states: the table of operations.
fn state(op: CumulativeOp, dtype: DType, capabilities: &Capabilities, c: &mut Code) -> Result<()> {
    let t = loaded(dtype);
    let two = [("a", "State"), ("b", "State")];
    if op.is_arg() {
        let sign = if op == CumulativeOp::ArgMax { CompareOp::Ge } else { CompareOp::Le };
        let mut better = formulas::compare(sign, dtype, "b.x", "a.x");
        if dtype.is_float() {
            better = format!("is_nan_{t}(b.x) || (!is_nan_{t}(a.x) && {better})");
        }
        c.block("struct State", |c| {
            c.line(format_args!("x: {t},"));
            c.line("at: i32,");
        });
        c.line("const ROUNDS = false;");
        c.function("combine", &two, "State", |c| {
            c.when(better, |c| c.line("return b;"));
            c.line("return a;");
        });
        c.expression("identity", &[], "State", "State()");
        c.expression("stash", &[("state", "State")], "i32", "state.at");
        return Ok(());
    }
    let formula = match op {
        CumulativeOp::LogSumExp => dtype.is_float().then(|| format!("log_add_exp_{t}(a, b)")),
        _ if dtype == DType::Bool => None,
        CumulativeOp::Sum => formulas::binary(BinaryOp::Add, dtype, "a", "b"),
        CumulativeOp::Prod => formulas::binary(BinaryOp::Mul, dtype, "a", "b"),
        // The states of these were written above.
        CumulativeOp::ArgMax | CumulativeOp::ArgMin => None,
    };
    let Some((formula, (zero, _))) = formula.zip(formulas::reduction(ReduceOp::Sum, dtype)) else {
        return Err(capabilities.unsupported(op.name(), dtype, "cast first with .to_dtype(DType::F32)"));
    };
    c.line(format_args!("alias State = {t};"));
    c.line(format_args!("const ROUNDS = {};", op == CumulativeOp::Sum && dtype.is_float()));
    c.expression("combine", &two, "State", formula);
    // Only used if additions round.
    c.expression("identity", &[], "State", zero);
    c.expression("stash", &[("state", "State")], t, "state");
    Ok(())
}
