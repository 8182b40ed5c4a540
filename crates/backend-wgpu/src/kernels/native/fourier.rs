//! Fourier transforms of 2ᵏ numbers in workgroup memory, in one dispatch (Stockham's order, radix 4, as
//! Govindaraju et al. 2008). Other lengths are composed by the caller, from transforms of these lengths.
//!
//! Each of the T invocations of a transform keeps the numbers t + s·T in registers, for s below 4·M. They
//! are the inputs of its M butterflies in every stage, and of its results, so memory is read and written in
//! order; between stages the numbers change places through workgroup memory.

use tensor_core::{DType, Fourier, FourierKind, Kernel};

use super::Native;
use crate::codegen::{
    capabilities::Capabilities,
    dispatch::{Dispatch, Dispatches, Resource},
    index,
    wgsl::Code,
};

/// Invocations of a workgroup.
const INVOCATIONS: usize = 256;
/// The lengths that have a kernel. A shorter transform is one product with its matrix.
const LENGTHS: std::ops::RangeInclusive<usize> = 64..=4096;
/// The numbers that a workgroup transforms: the real parts of 4096 are 16 KiB.
const WORKGROUP_BYTES: usize = 16 << 10;

impl Native for Fourier {
    fn supports(&self, kernel: &Kernel, capabilities: &Capabilities) -> bool {
        // Software adapters are faster with products, which need no barriers.
        kernel.operands[0].dtype == DType::F32
            && !capabilities.direct
            && capabilities.workgroup_bytes >= WORKGROUP_BYTES
            && self.length.is_power_of_two()
            && LENGTHS.contains(&self.length)
    }

    fn dispatches(&self, kernel: &Kernel, _: &Capabilities) -> Dispatches {
        dispatch(self, kernel).into()
    }
}

/// The sizes that are part of the text.
struct Form {
    kind: FourierKind,
    /// The butterflies of an invocation.
    butterflies: usize,
    /// Whether the last stage has radix 2.
    is_odd: bool,
    /// Numbers of the transforms of a workgroup.
    numbers: usize,
}

impl Form {
    /// Numbers in the registers of an invocation.
    fn registers(&self) -> usize {
        4 * self.butterflies
    }

    /// Whether θ has a positive sign.
    fn is_inverse(&self) -> bool {
        matches!(self.kind, FourierKind::Inverse | FourierKind::HalfToReal)
    }
}

fn dispatch(of: &Fourier, kernel: &Kernel) -> Dispatch {
    let n = of.length;
    let butterflies = (n / (4 * INVOCATIONS)).max(1);
    let is_odd = !n.trailing_zeros().is_multiple_of(2);
    let form = Form { kind: of.kind, butterflies, is_odd, numbers: 4 * butterflies * INVOCATIONS };
    let per_workgroup = form.numbers / n;
    let layout = &kernel.operands[0].layout;
    let (shape, strides) = (layout.shape(), layout.strides());
    let lead = shape.rank() - if of.kind == FourierKind::RealToHalf { 1 } else { 2 };
    let lines: usize = shape[..lead].iter().product();
    let mut d = Dispatch::new("fft");
    d.workgroups = lines.div_ceil(per_workgroup);
    d.work = form.numbers * 8 * n.ilog2() as usize;
    d.params.size("lines", lines);
    d.params.size("n", n);
    d.params.size("lanes", INVOCATIONS / per_workgroup);
    d.params.word("factor", (of.factor as f32).to_bits());
    d.params.word("mirrored", (of.mirrored as f32).to_bits());
    d.params.stride("step", strides[lead]);
    if of.kind != FourierKind::RealToHalf {
        d.params.stride("part_step", strides[lead + 1]);
    }
    let offset = layout.offset();
    let function = index::function("line_at", &shape[..lead], &strides[..lead], offset, &mut d.params);
    d.code.append(&function);
    d.bind("input", "f32", false, Resource::Input(0));
    d.bind("output", "f32", true, Resource::Output(0));
    let c = &mut d.code;
    arrays(&form, c);
    functions(&form, c);
    c.entry(INVOCATIONS, |c| entry(&form, c));
    d
}

/// Whether real and imaginary parts change places together; 4096 numbers do one after the other.
fn is_together(form: &Form) -> bool {
    2 * form.numbers * 4 <= WORKGROUP_BYTES
}

fn arrays(form: &Form, c: &mut Code) {
    c.line(format_args!("var<workgroup> parts: array<f32, {}>;", form.numbers));
    if is_together(form) {
        c.line(format_args!("var<workgroup> imaginary: array<f32, {}>;", form.numbers));
    }
}

/// Functions of complex numbers, and the loads and stores of numbers of a line.
fn functions(form: &Form, c: &mut Code) {
    let pair = "vec2<f32>";
    c.expression(
        "times",
        &[("a", pair), ("b", pair)],
        pair,
        "vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x)",
    );
    // e^(±2πi·k/n) for k < n. The reduction to the first octant is exact, because n is a power of two.
    c.function("rotation", &[("k", "u32"), ("n", "u32")], pair, |c| {
        c.bind("eighth", "8u * k / n");
        c.bind("rest", "8u * k - eighth * n");
        c.bind("along", "select(rest, n - rest, (eighth & 1u) == 1u)");
        c.bind("angle", "f32(along) / f32(n) * 0.785398163");
        c.bind("near", "vec2<f32>(cos_kernel_f32(angle), sin_kernel_f32(angle))");
        c.bind("turned", "select(near, near.yx, ((eighth + 1u) & 2u) != 0u)");
        c.bind("cosine", "select(turned.x, -turned.x, ((eighth + 2u) & 4u) != 0u)");
        c.bind("sine", "select(turned.y, -turned.y, eighth >= 4u)");
        let sine = if form.is_inverse() { "sine" } else { "-sine" };
        c.line(format_args!("return vec2<f32>(cosine, {sine});"));
    });
    c.expression("has_mirror", &[("k", "u32")], "bool", "k != 0u && 2u * k != params.n");
    let place = [("line", "u32"), ("base", "u32"), ("i", "u32")];
    let number = |at: &str| format!("vec2<f32>(input[{at}], input[{at} + params.part_step])");
    c.function("number", &place[1..], pair, |c| match form.kind {
        FourierKind::Forward | FourierKind::Inverse => {
            c.bind("at", "base + i * params.step");
            c.line(format_args!("return {};", number("at")));
        }
        FourierKind::RealToHalf => c.line("return vec2<f32>(input[base + i * params.step], 0.0);"),
        FourierKind::HalfToReal => {
            c.bind("k", "min(i, params.n - i)");
            c.bind("at", "base + k * params.step");
            c.bind("x", number("at"));
            c.when("!has_mirror(k)", |c| c.line("return vec2<f32>(x.x, 0.0);"));
            c.bind("weighted", "x * bitcast<f32>(params.mirrored)");
            c.line("return select(weighted, vec2<f32>(weighted.x, -weighted.y), k != i);");
        }
    });
    let parameters = [place[0], place[2], ("x", pair)];
    c.function("keep", &parameters, "", |c| {
        c.bind("y", "x * bitcast<f32>(params.factor)");
        match form.kind {
            FourierKind::Forward | FourierKind::Inverse => {
                c.bind("at", "(line * params.n + i) * 2u");
                c.set("output[at]", "y.x");
                c.set("output[at + 1u]", "y.y");
            }
            FourierKind::RealToHalf => c.when("2u * i <= params.n", |c| {
                c.bind("z", "select(y, y * bitcast<f32>(params.mirrored), has_mirror(i))");
                c.bind("at", "(line * (params.n / 2u + 1u) + i) * 2u");
                c.set("output[at]", "z.x");
                c.set("output[at + 1u]", "z.y");
            }),
            FourierKind::HalfToReal => c.set("output[line * params.n + i]", "y.x"),
        }
    });
}

fn entry(form: &Form, c: &mut Code) {
    let registers = form.registers();
    // Every invocation stays to the end because of the barriers; surplus transforms repeat the last one and
    // keep nothing.
    c.bind("own", "workgroup_index * (256u / params.lanes) + local_index / params.lanes");
    c.bind("line", "min(own, params.lines - 1u)");
    c.bind("lane", "local_index % params.lanes");
    c.bind("first", "local_index / params.lanes * params.n");
    c.bind("base", "line_at(line)");
    for s in 0..registers {
        c.var(format_args!("v{s}"), format_args!("number(base, lane + {s}u * params.lanes)"));
    }
    // The stages before the last one.
    c.block("for (var ns = 1u; ns * 4u < params.n; ns <<= 2u)", |c| {
        for m in 0..form.butterflies {
            let to = format!("to{m}");
            four(form, m, c);
            c.bind(&to, format_args!("first + (j{m} / ns) * ns * 4u + j{m} % ns"));
        }
        exchange(form, c);
    });
    if form.is_odd {
        let half = registers / 2;
        for q in 0..half {
            c.block("", |c| {
                c.bind("w", format_args!("rotation(lane + {q}u * params.lanes, params.n)"));
                c.bind("x", format_args!("v{q}"));
                c.bind("y", format_args!("times(v{}, w)", q + half));
                c.set(format_args!("v{q}"), "x + y");
                c.set(format_args!("v{}", q + half), "x - y");
            });
        }
    } else {
        c.bind("ns", "params.n / 4u");
        (0..form.butterflies).for_each(|m| four(form, m, c));
    }
    c.when("own < params.lines", |c| {
        for s in 0..registers {
            c.line(format_args!("keep(line, lane + {s}u * params.lanes, v{s});"));
        }
    });
}

/// Butterfly `m` of a stage whose transforms have had `ns` numbers so far. Defines its number `j<m>`.
fn four(form: &Form, m: usize, c: &mut Code) {
    let at = |r: usize| format!("v{}", m + r * form.butterflies);
    c.bind(format_args!("j{m}"), format_args!("lane + {m}u * params.lanes"));
    c.block("", |c| {
        c.bind("k", format_args!("j{m} % ns"));
        c.bind("x0", at(0));
        for r in 1..4 {
            c.bind(format_args!("x{r}"), format_args!("times({}, rotation(k * {r}u, ns * 4u))", at(r)));
        }
        c.bind("a", "x0 + x2");
        c.bind("b", "x0 - x2");
        c.bind("c", "x1 + x3");
        c.bind("d", "x1 - x3");
        // ∓i·d.
        c.bind("e", if form.is_inverse() { "vec2<f32>(-d.y, d.x)" } else { "vec2<f32>(d.y, -d.x)" });
        for (r, sum) in ["a + c", "b + e", "a - c", "b - e"].iter().enumerate() {
            c.set(at(r), sum);
        }
    });
}

/// Moves the results of a stage to the invocations that read them in the next one.
fn exchange(form: &Form, c: &mut Code) {
    let put = |array: &str, field: &str, c: &mut Code| {
        for m in 0..form.butterflies {
            for r in 0..4 {
                let v = format!("v{}.{field}", m + r * form.butterflies);
                c.set(format_args!("{array}[to{m} + {r}u * ns]"), v);
            }
        }
    };
    let take = |array: &str, field: &str, c: &mut Code| {
        for s in 0..form.registers() {
            c.set(format_args!("v{s}.{field}"), format_args!("{array}[first + lane + {s}u * params.lanes]"));
        }
    };
    let parts: &[&[(&str, &str)]] = match is_together(form) {
        true => &[&[("parts", "x"), ("imaginary", "y")]],
        false => &[&[("parts", "x")], &[("parts", "y")]],
    };
    for together in parts {
        together.iter().for_each(|(array, field)| put(array, field, c));
        c.line("workgroupBarrier();");
        together.iter().for_each(|(array, field)| take(array, field, c));
        c.line("workgroupBarrier();");
    }
}
