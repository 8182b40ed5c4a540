//! Recurrent layers: each step is one dispatch, the product of the state with the weight and the cell's
//! formula. A step reads the states that the step before it wrote, so the dispatches are rounds of one loop.
//!
//! A workgroup has 32 sequences and 32 columns: the gates of 8 elements of the state, or 32 elements. Each of
//! its 64 invocations has four sequences and four columns.

use tensor_core::{DType, Kernel, Recurrence, RecurrencePass, RecurrentCell};

use super::Native;
use crate::codegen::{
    capabilities::Capabilities,
    dispatch::{Dispatch, Dispatches, Resource},
    dtypes::FIELDS,
    wgsl::Code,
};

/// Sequences of a workgroup, and columns of its product.
const SIDE: usize = 32;
/// Terms of a product that are in workgroup memory at once.
const DEPTH: usize = 32;
const INVOCATIONS: usize = 64;
/// The distance between terms in workgroup memory, in vectors: one more than needed, which avoids bank
/// conflicts.
const PITCH: usize = SIDE / 4 + 1;
const WORKGROUP_BYTES: usize = 2 * DEPTH * PITCH * 16;

impl Native for Recurrence {
    fn supports(&self, kernel: &Kernel, capabilities: &Capabilities) -> bool {
        let shape = kernel.operands[0].layout.shape();
        // Software adapters are faster with the composition, which needs no barriers. The gradient of an LSTM
        // has ten buffers, and a device that has a kernel for one pass must have it for all.
        kernel.operands[0].dtype == DType::F32
            && !capabilities.direct
            && capabilities.workgroup_bytes >= WORKGROUP_BYTES
            && capabilities.info.limits.max_inputs >= 10
            && shape[shape.rank() - 1].div_ceil(DEPTH) <= capabilities.rounds / 40
    }

    fn dispatches(&self, kernel: &Kernel, _: &Capabilities) -> Dispatches {
        match self.pass {
            RecurrencePass::Forward | RecurrencePass::Kept => forward(self, kernel).into(),
            RecurrencePass::Backward => backward(self, kernel),
        }
    }
}

/// T, N and H of a [`Recurrence`].
#[derive(Clone, Copy)]
struct Sizes {
    steps: usize,
    batch: usize,
    size: usize,
}

impl Sizes {
    /// The sizes of a sequence of states.
    fn new(shape: &tensor_core::Shape) -> Sizes {
        Sizes { steps: shape[0], batch: shape[1], size: shape[2] }
    }

    /// A dispatch for each round, whose workgroups have `units` elements of the state.
    fn dispatch(self, label: &'static str, units: usize, rounds: usize, terms: usize) -> Dispatch {
        let mut d = Dispatch::new(label);
        let blocks = self.size.div_ceil(units);
        d.workgroups = blocks * self.batch.div_ceil(SIDE);
        d.work = SIDE * SIDE * (terms + 16);
        d.repeated = Some((0, rounds));
        d.params.round();
        d.params.size("blocks", blocks);
        d.params.size("steps", self.steps);
        d.params.size("batch", self.batch);
        d.params.size("size", self.size);
        d
    }
}

/// Declares the workgroup memory, and `step_of(i)`, the place in the sequence of the step that is computed
/// as number i.
fn declare(reverse: bool, c: &mut Code) {
    for name in ["left", "right"] {
        c.line(format_args!("var<workgroup> {name}: array<vec4<f32>, {}>;", DEPTH * PITCH));
    }
    let step = if reverse { "params.steps - 1u - i" } else { "i" };
    c.expression("step_of", &[("i", "u32")], "u32", step);
}

/// A function `name(row, k)`: four elements of a row-major buffer with `columns` columns at `base`, from
/// column k on; zeros from row `rows` and from column `columns` on.
fn row4([name, buffer, base, rows, columns]: [&str; 5], c: &mut Code) {
    c.function(name, &[("row", "u32"), ("k", "u32")], "vec4<f32>", |c| {
        c.var("x", "vec4<f32>()");
        c.when(format_args!("row < {rows}"), |c| {
            c.bind("at", format_args!("{base} + row * {columns} + k"));
            for (e, x) in FIELDS.iter().enumerate() {
                c.when(format_args!("k + {e}u < {columns}"), |c| {
                    c.set(format_args!("x.{x}"), format_args!("{buffer}[at + {e}u]"));
                });
            }
        });
        c.line("return x;");
    });
}

/// The place of an invocation: its first sequence `n0` + 4·ty, and its columns from 4·tx on. `u0` is the
/// workgroup's first element of the state.
fn place(units: usize, c: &mut Code) {
    c.bind("ty", "local_index / 8u");
    c.bind("tx", "local_index % 8u");
    // Surplus workgroups compute sequences beyond the last, and store nothing.
    c.bind("n0", format_args!("workgroup_index / params.blocks * {SIDE}u"));
    c.bind("u0", format_args!("workgroup_index % params.blocks * {units}u"));
    (0..4).for_each(|r| c.var(format_args!("sum{r}"), "vec4<f32>()"));
}

/// Adds the products over `terms` to `sum<r>`. `load` writes the vectors of the right operand.
fn product(terms: &str, load: impl Fn(&mut Code), c: &mut Code) {
    c.bind("terms", terms);
    c.count("d0", ["0u", "terms", &format!("{DEPTH}u")], |c| {
        for j in 0..4 {
            c.bind(format_args!("v{j}"), format_args!("left4(n0 + ty * 4u + {j}u, d0 + tx * 4u)"));
        }
        transposed("left", c);
        c.block("", load);
        c.line("workgroupBarrier();");
        c.bind("end", format_args!("min({DEPTH}u, terms - d0)"));
        c.count("step", ["0u", "end", "4u"], |c| {
            for i in 0..4 {
                c.bind(format_args!("a{i}"), format_args!("left[(step + {i}u) * {PITCH}u + ty]"));
                c.bind(format_args!("b{i}"), format_args!("right[(step + {i}u) * {PITCH}u + tx]"));
                for (r, x) in FIELDS.iter().enumerate() {
                    c.line(format_args!("sum{r} += a{i}.{x} * b{i};"));
                }
            }
        });
        c.line("workgroupBarrier();");
    });
}

/// Writes the block `v0` to `v3` of four rows and four terms to lines of terms.
fn transposed(to: &str, c: &mut Code) {
    for (i, x) in FIELDS.iter().enumerate() {
        let four = format!("vec4<f32>(v0.{x}, v1.{x}, v2.{x}, v3.{x})");
        c.set(format_args!("{to}[(tx * 4u + {i}u) * {PITCH}u + ty]"), four);
    }
}

/// Runs `each` for the sequences and the elements of the state of this invocation, with `n` and `unit` as
/// their numbers; it gets the number of the sequence and the one of the column (or `None` if the four
/// columns are gates of one element).
fn each_element(is_gates: bool, c: &mut Code, mut each: impl FnMut(usize, Option<usize>, &mut Code)) {
    for r in 0..4 {
        for e in 0..if is_gates { 1 } else { 4 } {
            let unit = if is_gates { "u0 + tx".into() } else { format!("u0 + tx * 4u + {e}u") };
            c.when(format_args!("n0 + ty * 4u + {r}u < params.batch && {unit} < params.size"), |c| {
                c.bind("n", format_args!("n0 + ty * 4u + {r}u"));
                c.bind("unit", &unit);
                each(r, (!is_gates).then_some(e), c);
            });
        }
    }
}

fn forward(of: &Recurrence, kernel: &Kernel) -> Dispatch {
    let sizes = Sizes::new(&kernel.outputs[0].shape);
    let (gates, cell) = (of.cell.gates(), of.cell);
    let is_gates = gates > 1;
    let units = if is_gates { SIDE / 4 } else { SIDE };
    let keeps = of.pass == RecurrencePass::Kept && cell.kept() > 0;
    let mut d = sizes.dispatch("recurrence", units, sizes.steps, sizes.size);
    d.bind("gates", "f32", false, Resource::Input(0));
    d.bind("weight", "f32", false, Resource::Input(1));
    d.bind("first", "f32", false, Resource::Input(2));
    match cell {
        RecurrentCell::Tanh | RecurrentCell::Relu => {}
        RecurrentCell::Lstm => d.bind("first_cell", "f32", false, Resource::Input(3)),
        RecurrentCell::Gru => d.bind("bias", "f32", false, Resource::Input(3)),
    }
    d.bind("all", "f32", true, Resource::Output(0));
    if cell == RecurrentCell::Lstm {
        d.bind("cells", "f32", true, Resource::Output(1));
    }
    if keeps {
        d.bind("kept", "f32", true, Resource::Output(kernel.outputs.len() - 1));
    }
    let c = &mut d.code;
    declare(of.reverse, c);
    let before = "step_of(params.round - 1u) * params.batch * params.size";
    row4(["first4", "first", "0u", "params.batch", "params.size"], c);
    row4(["before4", "all", before, "params.batch", "params.size"], c);
    c.function("left4", &[("n", "u32"), ("k", "u32")], "vec4<f32>", |c| {
        c.when("params.round == 0u", |c| c.line("return first4(n, k);"));
        c.line("return before4(n, k);");
    });
    row4(["weight4", "weight", "0u", &format!("{gates}u * params.size"), "params.size"], c);
    c.entry(INVOCATIONS, |c| {
        place(units, c);
        let load = |c: &mut Code| {
            for j in 0..4 {
                // Beyond the state's size a row would belong to the next gate; its result is not stored.
                let row = match gates {
                    1 => format!("u0 + ty * 4u + {j}u"),
                    3 if j == 3 => "0xffffffffu".into(),
                    _ => format!("{j}u * params.size + u0 + ty"),
                };
                c.bind(format_args!("v{j}"), format_args!("weight4({row}, d0 + tx * 4u)"));
            }
            transposed("right", c);
        };
        product("params.size", load, c);
        c.bind("place", "step_of(params.round) * params.batch");
        each_element(is_gates, c, |r, column, c| {
            c.bind("at", "(place + n) * params.size + unit");
            c.bind("of_gates", format_args!("(place + n) * {gates}u * params.size + unit"));
            let sum = format!("sum{r}");
            next_state(cell, of.pass, column.map(|e| format!("{sum}.{}", FIELDS[e])).unwrap_or(sum), c);
            if keeps {
                let kept = if cell == RecurrentCell::Lstm {
                    ["i", "f", "g", "o"]
                } else {
                    ["r", "z", "fresh", "of_state"]
                };
                for (k, value) in kept.iter().enumerate() {
                    let at = format!("((place + n) * 4u + {k}u) * params.size + unit");
                    c.set(format_args!("kept[{at}]"), value);
                }
            }
        });
    });
    d
}

/// The cell's formula for one element; `sum` is the product of the state with the weight, for all gates of
/// the element if the cell has several.
fn next_state(cell: RecurrentCell, pass: RecurrencePass, sum: String, c: &mut Code) {
    let gate = |k: usize| format!("gates[of_gates + {k}u * params.size]");
    match cell {
        RecurrentCell::Tanh => c.set("all[at]", format_args!("tanh_f32({} + {sum})", gate(0))),
        RecurrentCell::Relu => c.set("all[at]", format_args!("relu_f32({} + {sum})", gate(0))),
        RecurrentCell::Lstm => {
            let names = [("i", "sigmoid_f32"), ("f", "sigmoid_f32"), ("g", "tanh_f32"), ("o", "sigmoid_f32")];
            for (k, (name, function)) in names.iter().enumerate() {
                c.bind(name, format_args!("{function}({} + {sum}.{})", gate(k), FIELDS[k]));
            }
            let (last, own) = match pass {
                // Only the last state is a result, and each is overwritten by the next one.
                RecurrencePass::Forward => ("n * params.size + unit", "n * params.size + unit"),
                RecurrencePass::Kept | RecurrencePass::Backward => {
                    ("(step_of(params.round - 1u) * params.batch + n) * params.size + unit", "at")
                }
            };
            c.var("cell", "0.0");
            c.block("if (params.round == 0u)", |c| c.set("cell", "first_cell[n * params.size + unit]"));
            c.when("params.round > 0u", |c| c.set("cell", format_args!("cells[{last}]")));
            c.set("cell", "f * cell + i * g");
            c.set(format_args!("cells[{own}]"), "cell");
            c.set("all[at]", "o * tanh_f32(cell)");
        }
        RecurrentCell::Gru => {
            for (k, name) in ["of_reset", "of_update", "of_state"].iter().enumerate() {
                let bias = format!("bias[{k}u * params.size + unit]");
                c.bind(name, format_args!("{sum}.{} + {bias}", FIELDS[k]));
            }
            c.bind("r", format_args!("sigmoid_f32({} + of_reset)", gate(0)));
            c.bind("z", format_args!("sigmoid_f32({} + of_update)", gate(1)));
            c.bind("fresh", format_args!("tanh_f32({} + r * of_state)", gate(2)));
            c.bind("before", "left4(n, unit).x");
            c.set("all[at]", "fresh + z * (before - fresh)");
        }
    }
}

/// The inputs and results of the backward pass, by name.
fn bind_backward(cell: RecurrentCell, d: &mut Dispatch) {
    let (inputs, outputs): (&[(&str, usize)], &[&str]) = match cell {
        RecurrentCell::Tanh | RecurrentCell::Relu => {
            (&[("weight", 0), ("all", 2), ("of_all", 3), ("of_last", 4)], &["of_gates", "of_first"])
        }
        RecurrentCell::Lstm => (
            &[
                ("weight", 0),
                ("kept", 3),
                ("first_cell", 4),
                ("cells", 5),
                ("of_all", 6),
                ("of_last", 7),
                ("of_last_cell", 8),
            ],
            &["of_gates", "of_first", "of_cell"],
        ),
        RecurrentCell::Gru => (
            &[("weight", 0), ("first", 1), ("all", 2), ("kept", 3), ("of_all", 4), ("of_last", 5)],
            &["of_gates", "of_first", "of_state"],
        ),
    };
    for (name, k) in inputs {
        d.bind(*name, "f32", false, Resource::Input(*k));
    }
    for (k, name) in outputs.iter().enumerate() {
        d.bind(*name, "f32", true, Resource::Output(k));
    }
}

/// The backward pass, from the last step to the first, and one more round for the initial state. A round
/// computes the gradient of a state, from those of the gates of the next step, and then of its own gates.
fn backward(of: &Recurrence, kernel: &Kernel) -> Dispatches {
    let shape = &kernel.outputs[0].shape;
    let (gates, cell) = (of.cell.gates(), of.cell);
    let sizes = Sizes { steps: shape[0], batch: shape[1], size: shape[2] / gates };
    let mut d = sizes.dispatch("recurrence_backward", SIDE, sizes.steps + 1, gates * sizes.size);
    bind_backward(cell, &mut d);
    let mut temporaries = Vec::new();
    if cell == RecurrentCell::Gru {
        // The part of a state's gradient that does not go through the weight.
        d.bind("direct", "f32", true, Resource::Temporary(0));
        temporaries.push((DType::F32, sizes.batch * sizes.size));
    }
    let c = &mut d.code;
    declare(of.reverse, c);
    let of_state = if cell == RecurrentCell::Gru { "of_state" } else { "of_gates" };
    let columns = format!("({gates}u * params.size)");
    let after = format!("step_of(params.steps - params.round) * params.batch * {columns}");
    row4(["left4", of_state, &after, "params.batch", &columns], c);
    row4(["weight4", "weight", "0u", &columns, "params.size"], c);
    c.entry(INVOCATIONS, |c| {
        place(SIDE, c);
        let load = |c: &mut Code| {
            for j in 0..4 {
                let term = format!("tx * 4u + {j}u");
                c.set(
                    format_args!("right[({term}) * {PITCH}u + ty]"),
                    format_args!("weight4(d0 + {term}, u0 + ty * 4u)"),
                );
            }
        };
        // In the first round there is no next step.
        product(&format!("select({columns}, 0u, params.round == 0u)"), load, c);
        each_element(false, c, |r, column, c| {
            let sum = format!("sum{r}.{}", FIELDS[column.unwrap_or(0)]);
            c.bind("own", "n * params.size + unit");
            c.var("gradient", &sum);
            if cell == RecurrentCell::Gru {
                c.when("params.round > 0u", |c| c.line("gradient += direct[own];"));
            }
            c.when("params.round == params.steps", |c| c.set("of_first[own]", "gradient"));
            c.when("params.round < params.steps", |c| {
                c.bind("place", "step_of(params.steps - 1u - params.round) * params.batch + n");
                c.bind("at", "place * params.size + unit");
                c.bind("to", format_args!("place * {columns} + unit"));
                c.when("params.round == 0u", |c| c.line("gradient += of_last[own];"));
                c.line("gradient += of_all[at];");
                gradients(cell, c);
            });
        });
    });
    Dispatches { list: vec![d], temporaries }
}

/// The gradients of the gates of one element of a step, from the gradient of its state.
fn gradients(cell: RecurrentCell, c: &mut Code) {
    let set = |buffer: &str, k: usize, value: &str, c: &mut Code| {
        c.set(format_args!("{buffer}[to + {k}u * params.size]"), value);
    };
    let kept = |names: [&str; 4], c: &mut Code| {
        for (k, name) in names.iter().enumerate() {
            c.bind(name, format_args!("kept[(place * 4u + {k}u) * params.size + unit]"));
        }
    };
    // A state of the step before, or at first the given one.
    let before = |first: &str, states: &str, c: &mut Code| {
        c.var("before", "0.0");
        c.when("q == 0u", |c| c.set("before", format_args!("{first}[own]")));
        c.when("q > 0u", |c| {
            let at = "(step_of(q - 1u) * params.batch + n) * params.size + unit";
            c.set("before", format_args!("{states}[{at}]"));
        });
    };
    // The number of the step before, in the order of the steps.
    c.bind("q", "params.steps - 1u - params.round");
    match cell {
        RecurrentCell::Tanh => {
            c.bind("h", "all[at]");
            set("of_gates", 0, "gradient * (1.0 - h * h)", c);
        }
        RecurrentCell::Relu => set("of_gates", 0, "select(0.0, gradient, all[at] > 0.0)", c),
        RecurrentCell::Lstm => {
            kept(["i", "f", "g", "o"], c);
            before("first_cell", "cells", c);
            c.bind("shown", "tanh_f32(cells[at])");
            c.var("of_c", "gradient * o * (1.0 - shown * shown)");
            c.when("params.round == 0u", |c| c.line("of_c += of_last_cell[own];"));
            c.when("params.round > 0u", |c| c.line("of_c += of_cell[own];"));
            set("of_gates", 0, "of_c * g * (i * (1.0 - i))", c);
            set("of_gates", 1, "of_c * before * (f * (1.0 - f))", c);
            set("of_gates", 2, "of_c * i * (1.0 - g * g)", c);
            set("of_gates", 3, "gradient * shown * (o * (1.0 - o))", c);
            c.set("of_cell[own]", "of_c * f");
        }
        RecurrentCell::Gru => {
            kept(["r", "z", "fresh", "product"], c);
            before("first", "all", c);
            c.bind("of_fresh", "gradient * (1.0 - z) * (1.0 - fresh * fresh)");
            c.bind("of_reset", "of_fresh * product * (r * (1.0 - r))");
            c.bind("of_update", "gradient * (before - fresh) * (z * (1.0 - z))");
            for (k, value) in ["of_reset", "of_update", "of_fresh"].iter().enumerate() {
                set("of_gates", k, value, c);
                set("of_state", k, if k == 2 { "of_fresh * r" } else { value }, c);
            }
            c.set("direct[own]", "gradient * z");
        }
    }
}
