//! Recurrent layers in every form of ONNX: the input part of all steps in one matrix product, and then the
//! kernel of `nn`'s layers where it has the form, or step by step with ordinary operations.

use nn::functional::{Sequence, States};
use tensor_core::{Argument, RecurrentCell, Result, Tensor, is_tracing, traced_results};

use super::{Row, quantized::through_u8};
use crate::{context::Context, value::Value};

pub(crate) const TABLE: &[Row] = &[
    ("", "GRU", 1, |c| layer(c, Cell::Gru)),
    ("", "LSTM", 1, |c| layer(c, Cell::Lstm)),
    ("", "RNN", 1, |c| layer(c, Cell::Rnn)),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Rnn,
    Gru,
    Lstm,
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Cell::Rnn => 1,
            Cell::Gru => 3,
            Cell::Lstm => 4,
        }
    }

    fn activations(self) -> &'static [&'static str] {
        match self {
            Cell::Rnn => &["Tanh"],
            Cell::Gru => &["Sigmoid", "Tanh"],
            Cell::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// A function of gates, with its two numbers.
#[derive(Clone, Debug)]
struct Activation {
    name: String,
    alpha: Option<f64>,
    beta: Option<f64>,
}

impl Activation {
    fn apply(&self, c: &Context<'_>, x: &Tensor) -> Result<Tensor> {
        let (alpha, beta) = (|default| self.alpha.unwrap_or(default), |default| self.beta.unwrap_or(default));
        Ok(match self.name.to_ascii_lowercase().as_str() {
            "sigmoid" => x.sigmoid(),
            "tanh" => x.tanh(),
            "relu" => x.relu(),
            "affine" => x.mul_scalar(alpha(1.0)).add_scalar(beta(0.0)),
            "leakyrelu" => x.leaky_relu(alpha(0.01)),
            "thresholdedrelu" => x.threshold(alpha(1.0), 0.0),
            "scaledtanh" => x.mul_scalar(beta(1.0)).tanh().mul_scalar(alpha(1.0)),
            "hardsigmoid" => x.mul_scalar(alpha(0.2)).add_scalar(beta(0.5)).clamp(0.0, 1.0),
            "elu" => x.elu(alpha(1.0)),
            "softsign" => x.softsign(),
            "softplus" => x.softplus_with(1.0, f64::INFINITY),
            other => return Err(c.error(format!("the activation \"{other}\" is not known"))),
        })
    }
}

/// The weights and first states of one direction of a layer.
pub(super) struct Direction {
    /// `[gates·H, input]`.
    pub(super) of_input: Tensor,
    /// `[gates·H, H]`.
    pub(super) of_state: Tensor,
    /// `[gates·H]` each.
    pub(super) biases: Option<(Tensor, Tensor)>,
    /// `[3·H]`: of the input, output and forget gates.
    pub(super) peepholes: Option<Tensor>,
    /// `[N, H]` each.
    pub(super) hidden: Option<Tensor>,
    pub(super) cell: Option<Tensor>,
    pub(super) reverse: bool,
    /// Whether the state is quantized to u8 before each product.
    pub(super) quantized_state: bool,
}

/// The directions that the node has, backward ones marked.
pub(super) fn directions(c: &Context<'_>) -> Result<&'static [bool]> {
    Ok(match c.text_or("direction", "forward")? {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(c.error(format!("direction \"{other}\" is not known"))),
    })
}

fn layer(c: &Context<'_>, cell: Cell) -> Result<Vec<Value>> {
    check_weights(c)?;
    let batch_first = c.flag("layout", false)?;
    let turn = |x: Tensor| if batch_first { x.transpose(0, 1) } else { Ok(x) };
    let x = turn(c.tensor(0)?)?;
    let (w, r, b) = (c.tensor(1)?, c.tensor(2)?, c.optional_tensor(3)?);
    let hidden = c.optional_tensor(5)?.map(turn).transpose()?;
    let state = if cell == Cell::Lstm { c.optional_tensor(6)?.map(turn).transpose()? } else { None };
    let peepholes = if cell == Cell::Lstm { c.optional_tensor(7)? } else { None };
    let mut list = Vec::new();
    for (index, &reverse) in directions(c)?.iter().enumerate() {
        let pick = |t: &Option<Tensor>| t.as_ref().map(|t| t.select(0, index)).transpose();
        let biases = match pick(&b)? {
            Some(both) => {
                let half = both.dims()[0] / 2;
                Some((both.narrow(0, 0, half)?, both.narrow(0, half, half)?))
            }
            None => None,
        };
        list.push(Direction {
            of_input: w.select(0, index)?,
            of_state: r.select(0, index)?,
            biases,
            peepholes: pick(&peepholes)?,
            hidden: pick(&hidden)?,
            cell: pick(&state)?,
            reverse,
            quantized_state: false,
        });
    }
    let (all, hidden, state) = run(c, cell, &x, c.optional_tensor(4)?, &list)?;
    // [T, directions, N, H] and [directions, N, H], or with N first.
    let all = if batch_first { all.permute([2, 0, 1, 3])? } else { all };
    let mut outputs = vec![all.into(), turn(hidden)?.into()];
    if let Some(state) = state {
        outputs.push(turn(state)?.into());
    }
    Ok(outputs)
}

/// Weights have three axes, and a bias two.
pub(super) fn check_weights(c: &Context<'_>) -> Result<()> {
    let rank = |index: usize| c.input(index).and_then(Value::dims).map(<[usize]>::len);
    if rank(1) != Some(3) || rank(2) != Some(3) || rank(3).is_some_and(|rank| rank != 2) {
        return Err(c.error("weights are [directions, gates·H, ..], and a bias is [directions, 2·gates·H]"));
    }
    Ok(())
}

/// All directions: h after each step `[T, directions, N, H]`, and the last h and c `[directions, N, H]`.
pub(super) fn run(
    c: &Context<'_>,
    cell: Cell,
    x: &Tensor,
    lengths: Option<Tensor>,
    directions: &[Direction],
) -> Result<(Tensor, Tensor, Option<Tensor>)> {
    let names = c.texts("activations")?;
    let (alphas, betas) = (c.numbers("activation_alpha")?, c.numbers("activation_beta")?);
    let per = cell.activations().len();
    let (mut at_alpha, mut at_beta) = (0, 0);
    let mut activations = Vec::new();
    for place in 0..per * directions.len() {
        let name = match &names {
            Some(names) => names.get(place).cloned(),
            None => Some(cell.activations()[place % per].to_string()),
        };
        let name = name.ok_or_else(|| c.error("there are fewer activations than gates"))?;
        // The lists hold numbers for those functions alone that have them.
        let lower = name.to_ascii_lowercase();
        let takes_alpha = ["affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"]
            .contains(&lower.as_str());
        let takes_beta = ["affine", "scaledtanh", "hardsigmoid"].contains(&lower.as_str());
        let next = |list: &Option<Vec<f64>>, at: &mut usize, takes: bool| {
            let number = list.as_ref().filter(|_| takes).and_then(|list| list.get(*at).copied());
            *at += usize::from(takes);
            number
        };
        let alpha = next(&alphas, &mut at_alpha, takes_alpha);
        let beta = next(&betas, &mut at_beta, takes_beta);
        activations.push(Activation { name, alpha, beta });
    }
    let &[steps, _, _] = x.dims() else { return Err(c.error(format!("an input {}", x.shape()))) };
    // Where no sequence is shorter, nothing is masked.
    let mask = match lengths {
        Some(lengths) => {
            let lengths = lengths.to_dtype(c.index_dtype())?;
            let step = Tensor::arange(0, steps as i64, 1, (c.index_dtype(), c.device()))?;
            Some(step.unsqueeze(1)?.lt(&lengths.unsqueeze(0)?)?.unsqueeze(2)?)
        }
        None => None,
    };
    let mut results = Vec::with_capacity(directions.len());
    for (direction, activations) in directions.iter().zip(activations.chunks(per)) {
        results.push(one_direction(c, cell, x, mask.as_ref(), direction, activations)?);
    }
    let stack = |k: usize, axis: usize| -> Result<Tensor> {
        let parts: Vec<&Tensor> = results.iter().map(|result| &result[k]).collect();
        Tensor::stack(&parts, axis)
    };
    let state = if cell == Cell::Lstm { Some(stack(2, 0)?) } else { None };
    Ok((stack(0, 1)?, stack(1, 0)?, state))
}

/// The cell of `nn` with the same formula, and the places of its gates in ONNX's order.
fn same_cell(
    c: &Context<'_>,
    cell: Cell,
    activations: &[Activation],
) -> Result<Option<(RecurrentCell, &'static [usize])>> {
    let named = |names: &[&str]| {
        activations.iter().map(|activation| activation.name.to_ascii_lowercase()).eq(names.iter().copied())
    };
    Ok(match cell {
        Cell::Rnn if named(&["tanh"]) => Some((RecurrentCell::Tanh, &[0])),
        Cell::Rnn if named(&["relu"]) => Some((RecurrentCell::Relu, &[0])),
        Cell::Lstm if named(&["sigmoid", "tanh", "tanh"]) && !c.flag("input_forget", false)? => {
            Some((RecurrentCell::Lstm, &[0, 2, 3, 1]))
        }
        Cell::Gru if named(&["sigmoid", "tanh"]) && c.flag("linear_before_reset", false)? => {
            Some((RecurrentCell::Gru, &[1, 0, 2]))
        }
        Cell::Rnn | Cell::Lstm | Cell::Gru => None,
    })
}

/// All steps at once, if the layer is one of `nn` and the device has a kernel that pays.
fn by_kernel(
    c: &Context<'_>,
    cell: Cell,
    (x, shares): (&Tensor, &Tensor),
    (hidden, state): (&Tensor, &Tensor),
    direction: &Direction,
    activations: &[Activation],
) -> Result<Option<Vec<Tensor>>> {
    // The kernel has neither peepholes nor states that are quantized before each product.
    let is_plain = direction.peepholes.is_none() && !direction.quantized_state;
    let Some((same, order)) = same_cell(c, cell, activations)?.filter(|_| is_plain) else {
        return Ok(None);
    };
    let size = direction.of_state.dims()[1];
    let (gates, weight) = (in_order(shares, 2, order)?, in_order(&direction.of_state, 0, order)?);
    let bias;
    let mut inputs = vec![&gates, &weight, hidden];
    match cell {
        Cell::Rnn => {}
        Cell::Lstm => inputs.push(state),
        Cell::Gru => {
            // The other gates' biases are among the shares.
            let zeros = Tensor::zeros([2 * size], (shares.dtype(), c.device()))?;
            let last = match &direction.biases {
                Some((_, of_state)) => of_state.narrow(0, 2 * size, size)?,
                None => Tensor::zeros([size], (shares.dtype(), c.device()))?,
            };
            bias = Tensor::concat(&[zeros, last], 0)?;
            inputs.push(&bias);
        }
    }
    let states = Sequence { cell: same, reverse: direction.reverse }.by_kernel(&inputs)?;
    let Some(states) = states else { return Ok(None) };
    if is_tracing() {
        note(same, order, x, (hidden, state), &states, direction)?;
    }
    let cell = states.cell.unwrap_or_else(|| state.clone());
    Ok(Some(vec![states.all, states.hidden, cell]))
}

/// A tensor with its gates in the order of `nn`'s cell.
fn in_order(x: &Tensor, axis: usize, order: &[usize]) -> Result<Tensor> {
    if order.len() == 1 {
        return Ok(x.clone());
    }
    let size = x.dims()[axis] / order.len();
    let gates = order.iter().map(|&k| x.narrow(axis, k * size, size)).collect::<Result<Vec<_>>>()?;
    Tensor::concat(&gates, axis)
}

/// Notes all steps for a trace, as one call, which an export writes as one node.
fn note(
    cell: RecurrentCell,
    order: &[usize],
    x: &Tensor,
    (hidden, state): (&Tensor, &Tensor),
    states: &States,
    direction: &Direction,
) -> Result<()> {
    let (of_input, of_state) =
        (in_order(&direction.of_input, 0, order)?, in_order(&direction.of_state, 0, order)?);
    let biases = match &direction.biases {
        Some((of_input, of_state)) => Some((in_order(of_input, 0, order)?, in_order(of_state, 0, order)?)),
        None => None,
    };
    let (bias, state_bias) = biases.as_ref().map_or((None, None), |(i, h)| (Some(i), Some(h)));
    let first_cell = states.cell.as_ref().map(|_| state);
    let inputs = [Some(x), Some(&of_input), Some(&of_state), bias, state_bias, Some(hidden), first_cell];
    let outputs: Vec<&Tensor> = [&states.all, &states.hidden].into_iter().chain(&states.cell).collect();
    let name = match cell {
        RecurrentCell::Tanh => "tanh",
        RecurrentCell::Relu => "relu",
        RecurrentCell::Lstm => "lstm",
        RecurrentCell::Gru => "gru",
    };
    let reverse = Argument::Int(i64::from(direction.reverse));
    traced_results(
        "recurrent",
        &inputs,
        &outputs,
        vec![("cell", Argument::Text(name)), ("reverse", reverse)],
    );
    Ok(())
}

/// h after each step `[T, N, H]`, the last h, and the last c of an LSTM.
fn one_direction(
    c: &Context<'_>,
    cell: Cell,
    x: &Tensor,
    mask: Option<&Tensor>,
    direction: &Direction,
    activations: &[Activation],
) -> Result<Vec<Tensor>> {
    let &[steps, batch, _] = x.dims() else { return Err(c.error("no sequence")) };
    let size = direction.of_state.dims()[1];
    if direction.of_state.dims()[0] != cell.gates() * size {
        return Err(c.error(format!("a weight {} for {} gates", direction.of_state.shape(), cell.gates())));
    }
    let clip = c.number("clip")?;
    let activate = |k: usize, x: &Tensor| {
        let x = clip.map_or_else(|| x.clone(), |clip| x.clamp(-clip, clip));
        activations[k].apply(c, &x)
    };
    let linear_before_reset = c.flag("linear_before_reset", false)?;
    let zeros = || Tensor::zeros([batch, size], (x.dtype(), c.device()));
    let mut hidden = direction.hidden.clone().map_or_else(zeros, Ok)?;
    let mut state =
        if cell == Cell::Lstm { direction.cell.clone().map_or_else(zeros, Ok)? } else { zeros()? };
    // The share of the inputs in the gates of all steps, with both biases but where one is added within a
    // product.
    let mut shares = x.matmul(&direction.of_input.t()?)?;
    if let Some((of_input, of_state)) = &direction.biases {
        shares = shares.add(of_input)?;
        shares = match cell {
            Cell::Gru if linear_before_reset => {
                let rest = of_state.narrow(0, 2 * size, size)?.zeros_like();
                shares.add(&Tensor::concat(&[of_state.narrow(0, 0, 2 * size)?, rest], 0)?)?
            }
            Cell::Rnn | Cell::Gru | Cell::Lstm => shares.add(of_state)?,
        };
    }
    if mask.is_none() && clip.is_none() {
        let states = (&hidden, &state);
        if let Some(found) = by_kernel(c, cell, (x, &shares), states, direction, activations)? {
            return Ok(found);
        }
    }
    let weight = direction.of_state.t()?;
    let mut all: Vec<Tensor> = Vec::with_capacity(steps);
    for step in 0..steps {
        let step = if direction.reverse { steps - 1 - step } else { step };
        let share = shares.select(0, step)?;
        let gate = |of: &Tensor, k: usize| of.narrow(1, k * size, size);
        let (next_hidden, next_state) = match cell {
            Cell::Rnn => (activate(0, &share.add(&hidden.matmul(&weight)?)?)?, None),
            Cell::Gru => {
                let of_state = hidden.matmul(&weight.narrow(1, 0, 2 * size)?)?;
                let update = activate(0, &gate(&share, 0)?.add(&gate(&of_state, 0)?)?)?;
                let reset = activate(0, &gate(&share, 1)?.add(&gate(&of_state, 1)?)?)?;
                let last = weight.narrow(1, 2 * size, size)?;
                let fresh = if linear_before_reset {
                    let mut linear = hidden.matmul(&last)?;
                    if let Some((_, bias)) = &direction.biases {
                        linear = linear.add(&bias.narrow(0, 2 * size, size)?)?;
                    }
                    reset.mul(&linear)?
                } else {
                    reset.mul(&hidden)?.matmul(&last)?
                };
                let fresh = activate(1, &gate(&share, 2)?.add(&fresh)?)?;
                // (1 − update)·fresh + update·hidden.
                (fresh.add(&update.mul(&hidden.sub(&fresh)?)?)?, None)
            }
            Cell::Lstm => {
                let seen = if direction.quantized_state { through_u8(&hidden)? } else { hidden.clone() };
                let gates = share.add(&seen.matmul(&weight)?)?;
                let peep = |k: usize, gate: Tensor, state: &Tensor| match &direction.peepholes {
                    Some(peepholes) => gate.add(&peepholes.narrow(0, k * size, size)?.mul(state)?),
                    None => Ok(gate),
                };
                // ONNX's order: input, output, forget, cell.
                let enter = activate(0, &peep(0, gate(&gates, 0)?, &state)?)?;
                let keep = if c.flag("input_forget", false)? {
                    enter.neg().add_scalar(1.0)
                } else {
                    activate(0, &peep(2, gate(&gates, 2)?, &state)?)?
                };
                let fresh = activate(1, &gate(&gates, 3)?)?;
                let next = keep.mul(&state)?.add(&enter.mul(&fresh)?)?;
                let show = activate(0, &peep(1, gate(&gates, 1)?, &next)?)?;
                (show.mul(&activations[2].apply(c, &next)?)?, Some(next))
            }
        };
        match mask.map(|mask| mask.select(0, step)).transpose()? {
            // Sequences that have ended keep their states, and give zeros.
            Some(mask) => {
                all.push(mask.where_cond(&next_hidden, &next_hidden.zeros_like())?);
                hidden = mask.where_cond(&next_hidden, &hidden)?;
                if let Some(next) = next_state {
                    state = mask.where_cond(&next, &state)?;
                }
            }
            None => {
                all.push(next_hidden.clone());
                hidden = next_hidden;
                state = next_state.unwrap_or(state);
            }
        }
    }
    if direction.reverse {
        all.reverse();
    }
    let all = if all.is_empty() {
        Tensor::zeros([0, batch, size], (x.dtype(), c.device()))?
    } else {
        Tensor::stack(&all, 0)?
    };
    Ok(vec![all, hidden, state])
}
