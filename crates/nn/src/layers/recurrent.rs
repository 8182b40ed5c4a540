//! Recurrent layers. The input part of the gates is one matrix product for all steps; each step adds the
//! part of the previous state.

use std::{borrow::Cow, fmt};

use tensor_core::{
    Argument, DType, Error, Generator, RecurrentCell, Result, Tensor, autocast, begin_layer_call,
    caller_line, default_dtype, traced_results,
};

use super::{Dropout, call, linear::parameter, record};
use crate::{
    Module, Visitor, VisitorMut,
    functions::{Sequence, States, linear, recurrent_step},
};

/// Options of a recurrent layer, with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug)]
pub struct RnnConfig {
    /// The number of stacked layers. 1 by default.
    pub num_layers: usize,
    /// Whether there are biases; there are by default.
    pub bias: bool,
    /// Whether tensors are `[N, L, …]`; by default they are `[L, N, …]`.
    pub batch_first: bool,
    /// The dropout probability between layers. 0 by default.
    pub dropout: f64,
    /// Whether each layer also processes the sequence backward. Off by default.
    pub bidirectional: bool,
    /// The size to which an LSTM projects its state h; 0, the default, for no projection. The cell state
    /// keeps its size.
    pub proj_size: usize,
    /// The dtype of the parameters: that of [`default_dtype`] (f32) by default.
    pub dtype: DType,
}

impl Default for RnnConfig {
    fn default() -> RnnConfig {
        RnnConfig {
            num_layers: 1,
            bias: true,
            batch_first: false,
            dropout: 0.0,
            bidirectional: false,
            proj_size: 0,
            dtype: default_dtype(),
        }
    }
}

fn name(kind: RecurrentCell) -> &'static str {
    match kind {
        RecurrentCell::Tanh | RecurrentCell::Relu => "RNN",
        RecurrentCell::Lstm => "LSTM",
        RecurrentCell::Gru => "GRU",
    }
}

/// The parameters of one layer in one direction.
#[derive(Clone)]
struct Weights {
    /// `[gates·H, I]`.
    weight_ih: Tensor,
    /// `[gates·H, H]`, or `[gates·H, P]` for a projected state.
    weight_hh: Tensor,
    /// `[gates·H]` each.
    biases: Option<(Tensor, Tensor)>,
    /// `[P, H]`, if the state is projected.
    weight_hr: Option<Tensor>,
}

/// The state of one layer in one direction: `[N, H]`, or `[N, P]` if it is projected, and the cell state
/// `[N, H]` of an LSTM.
#[derive(Clone)]
struct State {
    hidden: Tensor,
    cell: Option<Tensor>,
}

impl Weights {
    /// Parameters uniform on (−1/√H, 1/√H), PyTorch's initial values.
    #[track_caller]
    fn new(
        kind: RecurrentCell,
        [input, hidden]: [usize; 2],
        projected: usize,
        bias: bool,
        dtype: DType,
        rng: &Generator,
    ) -> Result<Weights> {
        let _line = caller_line();
        let bound = 1.0 / (hidden as f64).sqrt();
        let rows = kind.gates() * hidden;
        let make = |shape: &[usize]| parameter(Tensor::uniform(shape, -bound, bound, rng)?, dtype);
        let state = if projected > 0 { projected } else { hidden };
        let (weight_ih, weight_hh) = (make(&[rows, input])?, make(&[rows, state])?);
        let biases = if bias { Some((make(&[rows])?, make(&[rows])?)) } else { None };
        let weight_hr = if projected > 0 { Some(make(&[projected, hidden])?) } else { None };
        Ok(Weights { weight_ih, weight_hh, biases, weight_hr })
    }

    /// The parameters cast by autocast for a layer called `op`; `None` outside of autocast.
    #[track_caller]
    fn cast(&self, op: &'static str) -> Result<Option<Weights>> {
        let _line = caller_line();
        let (of_input, of_state) = self.biases.as_ref().map_or((None, None), |(i, h)| (Some(i), Some(h)));
        let cast = autocast::cast(
            op,
            [&self.weight_ih, &self.weight_hh],
            [of_input, of_state, self.weight_hr.as_ref()],
        )?;
        if !cast.is_cast() {
            return Ok(None);
        }
        let ([weight_ih, weight_hh], [of_input, of_state, weight_hr]) = cast.tensors();
        Ok(Some(Weights {
            weight_ih: weight_ih.clone(),
            weight_hh: weight_hh.clone(),
            biases: of_input.cloned().zip(of_state.cloned()),
            weight_hr: weight_hr.cloned(),
        }))
    }

    /// The input part of the gates, with the biases of all gates that add both parts.
    #[track_caller]
    fn of_input(&self, kind: RecurrentCell, input: &Tensor) -> Result<Tensor> {
        let Some((of_input, of_state)) = &self.biases else { return linear(input, &self.weight_ih, None) };
        match kind {
            // The biases are added first, so that both have one gradient, which is summed once.
            RecurrentCell::Tanh | RecurrentCell::Relu | RecurrentCell::Lstm => {
                linear(input, &self.weight_ih, Some(&of_input.add(of_state)?))
            }
            RecurrentCell::Gru => linear(input, &self.weight_ih, Some(of_input)),
        }
    }

    /// The bias of the state part, if it is separate from the input's.
    fn of_state(&self, kind: RecurrentCell) -> Option<&Tensor> {
        self.biases.as_ref().filter(|_| kind == RecurrentCell::Gru).map(|(_, of_state)| of_state)
    }

    /// The next state from the input part of the gates, `[N, gates·H]`, and `weight_hh` transposed.
    #[track_caller]
    fn step(&self, kind: RecurrentCell, of_input: &Tensor, weight: &Tensor, state: &State) -> Result<State> {
        let (hidden, cell) =
            recurrent_step(kind, of_input, weight, self.of_state(kind), &state.hidden, state.cell.as_ref())?;
        let hidden = match &self.weight_hr {
            Some(projection) => linear(&hidden, projection, None)?,
            None => hidden,
        };
        Ok(State { hidden, cell })
    }

    /// All steps from the input part of the gates, `[T, N, gates·H]`, at once, if the device has a kernel
    /// for them.
    #[track_caller]
    fn all_steps(
        &self,
        kind: RecurrentCell,
        gates: &Tensor,
        state: &State,
        reverse: bool,
    ) -> Result<Option<States>> {
        if self.weight_hr.is_some() {
            return Ok(None);
        }
        let no_bias;
        let mut inputs = vec![gates, &self.weight_hh, &state.hidden];
        inputs.extend(&state.cell);
        if kind == RecurrentCell::Gru {
            inputs.push(match self.of_state(kind) {
                Some(bias) => bias,
                None => {
                    no_bias = Tensor::zeros(gates.dims()[2], (gates.dtype(), &gates.device()))?;
                    &no_bias
                }
            });
        }
        Sequence { cell: kind, reverse }.by_kernel(&inputs)
    }

    /// Notes all steps for a trace, as one call.
    fn note(&self, kind: RecurrentCell, x: &Tensor, state: &State, states: &States, reverse: bool) {
        let (of_input, of_state) = self.biases.as_ref().map_or((None, None), |(i, h)| (Some(i), Some(h)));
        let (ih, hh) = (Some(&self.weight_ih), Some(&self.weight_hh));
        let inputs = [Some(x), ih, hh, of_input, of_state, Some(&state.hidden), state.cell.as_ref()];
        let outputs: Vec<&Tensor> =
            [&states.all, &states.hidden].into_iter().chain(states.cell.as_ref()).collect();
        let cell = match kind {
            RecurrentCell::Tanh => "tanh",
            RecurrentCell::Relu => "relu",
            RecurrentCell::Lstm => "lstm",
            RecurrentCell::Gru => "gru",
        };
        let arguments = vec![("cell", Argument::Text(cell)), ("reverse", Argument::Int(i64::from(reverse)))];
        traced_results("recurrent", &inputs, &outputs, arguments);
    }

    fn visit(&self, visitor: &mut Visitor, suffix: &str) {
        visitor.parameter(&format!("weight_ih{suffix}"), &self.weight_ih);
        visitor.parameter(&format!("weight_hh{suffix}"), &self.weight_hh);
        if let Some((of_input, of_state)) = &self.biases {
            visitor.parameter(&format!("bias_ih{suffix}"), of_input);
            visitor.parameter(&format!("bias_hh{suffix}"), of_state);
        }
        if let Some(projection) = &self.weight_hr {
            visitor.parameter(&format!("weight_hr{suffix}"), projection);
        }
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.tensor(&mut self.weight_ih);
        visitor.tensor(&mut self.weight_hh);
        if let Some((of_input, of_state)) = &mut self.biases {
            visitor.tensor(of_input);
            visitor.tensor(of_state);
        }
        if let Some(projection) = &mut self.weight_hr {
            visitor.tensor(projection);
        }
    }
}

#[track_caller]
fn check_sizes(op: &'static str, input: usize, hidden: usize) -> Result<()> {
    if input > 0 && hidden > 0 {
        return Ok(());
    }
    Err(Error::invalid(op, format!("{input} inputs and a state of {hidden}: give at least one of each")))
}

/// Stacked recurrent layers of any kind.
#[derive(Clone)]
struct Recurrent {
    kind: RecurrentCell,
    /// The weights of each layer, forward and then backward.
    weights: Vec<Weights>,
    sizes: [usize; 2],
    /// The size of a step's output: that of the state, or of its projection.
    outputs: usize,
    directions: usize,
    batch_first: bool,
    dropout: Dropout,
}

impl Recurrent {
    #[track_caller]
    fn new(kind: RecurrentCell, sizes: [usize; 2], config: RnnConfig, rng: &Generator) -> Result<Recurrent> {
        let _line = caller_line();
        let RnnConfig { num_layers, bias, batch_first, dropout, bidirectional, proj_size, dtype } = config;
        let [input, hidden] = sizes;
        check_sizes(name(kind), input, hidden)?;
        if num_layers == 0 {
            return Err(Error::invalid(name(kind), "no layers: give at least one"));
        }
        if proj_size > 0 && (kind != RecurrentCell::Lstm || proj_size >= hidden) {
            let message =
                format!("a proj_size of {proj_size}: an LSTM alone has one, below its state's {hidden}");
            return Err(Error::invalid(name(kind), message));
        }
        let outputs = if proj_size > 0 { proj_size } else { hidden };
        let directions = 1 + usize::from(bidirectional);
        let mut weights = Vec::with_capacity(num_layers * directions);
        for layer in 0..num_layers {
            let input = if layer == 0 { input } else { outputs * directions };
            for _ in 0..directions {
                weights.push(Weights::new(kind, [input, hidden], proj_size, bias, dtype, rng)?);
            }
        }
        let dropout = Dropout::new(dropout, rng)?;
        Ok(Recurrent { kind, weights, sizes, outputs, directions, batch_first, dropout })
    }

    /// A hint for an input whose number of steps is the batch size that another argument has.
    fn order_hint(&self, batch: Option<&usize>, steps: usize) -> String {
        if batch != Some(&steps) {
            return String::new();
        }
        let (order, other) = if self.batch_first { ("[N, L, I]", "false") } else { ("[L, N, I]", "true") };
        format!("; the layer reads the input as {order}, and this argument fits batch_first: {other}")
    }

    /// The outputs of the last layer and the last states, `[layers·directions, N, H]` each. With `lengths`,
    /// each sequence of the batch ends after that number of steps.
    #[track_caller]
    fn run(
        &self,
        input: &Tensor,
        lengths: Option<&[usize]>,
        hidden: Option<&Tensor>,
        cell: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor, Option<Tensor>)> {
        let _line = caller_line();
        let op = name(self.kind);
        let [features, size] = self.sizes;
        let mut weights = Cow::Borrowed(self.weights.as_slice());
        if autocast::autocast_dtype().is_some() {
            let mut cast = Vec::with_capacity(self.weights.len());
            for weights in &self.weights {
                cast.extend(weights.cast(op)?);
            }
            weights = Cow::Owned(cast);
        }
        let cast = autocast::cast(op, [input], [hidden, cell])?;
        let ([input], [hidden, cell]) = cast.tensors();
        let alone = input.rank() == 2;
        if !(2..=3).contains(&input.rank()) || input.dims().last() != Some(&features) {
            let axes = if self.batch_first { "[N, L, I] or [L, I]" } else { "[L, N, I] or [L, I]" };
            let middle = input.rank() == 3 && input.dims()[1] == features;
            let order = if middle { "; the features seem to be second: transpose(1, 2)" } else { "" };
            let message = format!(
                "an input has the axes {axes} with {features} features; the shape is {}{order}",
                input.shape()
            );
            return Err(Error::invalid(op, message));
        }
        let mut x = match (alone, self.batch_first) {
            (true, _) => input.unsqueeze(1)?,
            (false, true) => input.transpose(0, 1)?,
            (false, false) => input.clone(),
        };
        let (steps, batch) = (x.dims()[0], x.dims()[1]);
        if steps == 0 {
            return Err(Error::invalid(op, format!("a sequence of no steps, of shape {}", input.shape())));
        }
        let going = match lengths {
            Some(lengths) if lengths.len() != batch => {
                let message = format!(
                    "{} lengths for an input {} of {batch} sequences{}",
                    lengths.len(),
                    input.shape(),
                    self.order_hint(Some(&lengths.len()), steps)
                );
                return Err(Error::invalid(op, message));
            }
            lengths => lengths.map(|lengths| Going::new(op, lengths, steps, batch, &x)).transpose()?,
        };
        let count = self.weights.len();
        let first = |given: Option<&Tensor>, size: usize| -> Result<Tensor> {
            let Some(given) = given else {
                return Tensor::zeros([count, batch, size], (x.dtype(), &x.device()));
            };
            let wanted = if alone { vec![count, size] } else { vec![count, batch, size] };
            if given.dims() != wanted {
                let message = format!(
                    "a state of shape {} for an input {}: give one of shape {wanted:?}{}",
                    given.shape(),
                    input.shape(),
                    self.order_hint(given.dims().get(1), steps)
                );
                return Err(Error::invalid(op, message));
            }
            given.reshape([count, batch, size])
        };
        let hidden = first(hidden, self.outputs)?;
        let cell = if self.kind == RecurrentCell::Lstm { Some(first(cell, size)?) } else { None };
        let mut last: Vec<State> = Vec::with_capacity(count);
        for (layer, weights) in weights.chunks(self.directions).enumerate() {
            if layer > 0 {
                x = self.dropout.forward(&x)?;
            }
            let mut outputs = Vec::with_capacity(self.directions);
            for (direction, weights) in weights.iter().enumerate() {
                let at = last.len();
                let mut state = State {
                    hidden: hidden.select(0, at)?,
                    cell: cell.as_ref().map(|cell| cell.select(0, at)).transpose()?,
                };
                let gates = weights.of_input(self.kind, &x)?;
                if going.is_none()
                    && let Some(states) = weights.all_steps(self.kind, &gates, &state, direction == 1)?
                {
                    weights.note(self.kind, &x, &state, &states, direction == 1);
                    outputs.push(states.all);
                    last.push(State { hidden: states.hidden, cell: states.cell });
                    continue;
                }
                let of_state = weights.weight_hh.t()?;
                let mut states: Vec<Tensor> = Vec::with_capacity(steps);
                for step in 0..steps {
                    let step = if direction == 0 { step } else { steps - 1 - step };
                    let next = weights.step(self.kind, &gates.select(0, step)?, &of_state, &state)?;
                    let (next, out) = match &going {
                        Some(going) => going.hold(step, next, &state)?,
                        None => (next.clone(), next.hidden),
                    };
                    state = next;
                    states.push(out);
                }
                if direction == 1 {
                    states.reverse();
                }
                outputs.push(Tensor::stack(&states, 0)?);
                last.push(state);
            }
            x = if let [only] = outputs.as_slice() { only.clone() } else { Tensor::concat(&outputs, -1)? };
        }
        let together = |states: Vec<&Tensor>| -> Result<Tensor> {
            let all = Tensor::stack(&states, 0)?;
            if alone { all.squeeze(1) } else { Ok(all) }
        };
        let hidden = together(last.iter().map(|state| &state.hidden).collect())?;
        let cells: Vec<&Tensor> = last.iter().filter_map(|state| state.cell.as_ref()).collect();
        let cell = if cells.is_empty() { None } else { Some(together(cells)?) };
        let out = match (alone, self.batch_first) {
            (true, _) => x.squeeze(1)?,
            (false, true) => x.transpose(0, 1)?,
            (false, false) => x,
        };
        Ok((out, hidden, cell))
    }
}

/// The sequences of a batch that have not ended, at each step.
struct Going {
    /// `[T, N, 1]`, bool.
    mask: Tensor,
    /// The first step at which one has ended.
    shortest: usize,
}

impl Going {
    #[track_caller]
    fn new(op: &'static str, lengths: &[usize], steps: usize, batch: usize, x: &Tensor) -> Result<Going> {
        let _line = caller_line();
        if let Some(length) = lengths.iter().find(|&&length| length == 0 || length > steps) {
            let message = format!("a sequence of {length} steps, of {steps}: give lengths of 1 to {steps}");
            return Err(Error::invalid(op, message));
        }
        let ends: Vec<i32> = lengths.iter().map(|&length| length as i32).collect();
        let ends = Tensor::new(ends, (DType::I32, &x.device()))?.reshape([1, batch, 1])?;
        let step = Tensor::arange(0, steps, 1, (DType::I32, &x.device()))?.reshape([steps, 1, 1])?;
        Ok(Going { mask: step.lt(&ends)?, shortest: lengths.iter().copied().min().unwrap_or(steps) })
    }

    /// The state and the output after a step: a sequence that has ended keeps its state, and outputs zeros.
    /// Read backward, it has not begun yet.
    #[track_caller]
    fn hold(&self, step: usize, next: State, before: &State) -> Result<(State, Tensor)> {
        if step < self.shortest {
            return Ok((next.clone(), next.hidden));
        }
        let mask = self.mask.select(0, step)?;
        let out = mask.where_cond(&next.hidden, &next.hidden.zeros_like())?;
        let cell = match (&next.cell, &before.cell) {
            (Some(next), Some(before)) => Some(mask.where_cond(next, before)?),
            (next, _) => next.clone(),
        };
        Ok((State { hidden: mask.where_cond(&next.hidden, &before.hidden)?, cell }, out))
    }
}

impl Module for Recurrent {
    fn visit(&self, visitor: &mut Visitor) {
        for (at, weights) in self.weights.iter().enumerate() {
            let reverse = if at % self.directions == 1 { "_reverse" } else { "" };
            weights.visit(visitor, &format!("_l{}{reverse}", at / self.directions));
        }
        visitor.field("dropout", &self.dropout);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.weights.iter_mut().for_each(|weights| weights.visit_mut(visitor));
    }
}

macro_rules! recurrent {
    ($($(#[$doc:meta])* $layer:ident, $cell:ident, $kind:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $layer(Recurrent);

        impl $layer {
            /// A layer from `input_size` features to a state of `hidden_size`, on the generator's device.
            ///
            /// # Errors
            /// As `with_config`.
            #[track_caller]
            pub fn new(input_size: usize, hidden_size: usize, rng: &Generator) -> Result<$layer> {
                $layer::with_config(input_size, hidden_size, RnnConfig::default(), rng)
            }

            /// A layer with several layers, in both directions, with dropout, without biases, or of another
            /// dtype.
            ///
            /// # Errors
            /// No features, state or layers, a dropout outside [0, 1], a dtype that is not floating-point or
            /// that the device lacks, too little memory.
            #[track_caller]
            pub fn with_config(
                input_size: usize,
                hidden_size: usize,
                config: RnnConfig,
                rng: &Generator,
            ) -> Result<$layer> {
                Ok($layer(Recurrent::new($kind, [input_size, hidden_size], config, rng)?))
            }
        }

        impl fmt::Debug for $layer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Recurrent { sizes: [input, hidden], directions, weights, batch_first, .. } = &self.0;
                let layers = weights.len() / directions;
                write!(
                    f,
                    concat!(stringify!($layer), "({}, {}, num_layers={}, batch_first={}, bidirectional={})"),
                    input, hidden, layers, batch_first, *directions == 2
                )
            }
        }

        impl Module for $layer {
            fn visit(&self, visitor: &mut Visitor) {
                self.0.visit(visitor);
            }
            fn visit_mut(&mut self, visitor: &mut VisitorMut) {
                self.0.visit_mut(visitor);
            }
        }

        #[doc = concat!("One step of [`", stringify!($layer), "`]. State: `weight_ih`, `weight_hh`, `bias_ih`, `bias_hh`. `torch.nn.")]
        #[doc = concat!(stringify!($cell), "` in PyTorch's letters.")]
        #[derive(Clone)]
        pub struct $cell {
            weights: Weights,
            kind: RecurrentCell,
            sizes: [usize; 2],
        }

        impl $cell {
            /// A cell from `input_size` features to a state of `hidden_size`, of the default dtype (f32),
            /// with biases, on the generator's device.
            ///
            /// # Errors
            /// No features or state, a default dtype that the device lacks, too little memory.
            #[track_caller]
            pub fn new(input_size: usize, hidden_size: usize, rng: &Generator) -> Result<$cell> {
                let (kind, sizes) = ($kind, [input_size, hidden_size]);
                check_sizes(name(kind), input_size, hidden_size)?;
                Ok($cell { weights: Weights::new(kind, sizes, 0, true, default_dtype(), rng)?, kind, sizes })
            }

            #[track_caller]
            fn run(&self, input: &Tensor, hidden: Option<&Tensor>, cell: Option<&Tensor>) -> Result<State> {
                step_of_cell(self.kind, &self.weights, self.sizes, input, hidden, cell)
            }
        }

        impl fmt::Debug for $cell {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($cell), "({}, {})"), self.sizes[0], self.sizes[1])
            }
        }

        impl Module for $cell {
            fn visit(&self, visitor: &mut Visitor) {
                self.weights.visit(visitor, "");
            }
            fn visit_mut(&mut self, visitor: &mut VisitorMut) {
                self.weights.visit_mut(visitor);
            }
        }
    )*};
}

recurrent! {
    /// h' = tanh(W_ih·x + b_ih + W_hh·h + b_hh) at every step. `torch.nn.RNN`. State: `weight_ih_l0`,
    /// `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`, `…_l0_reverse`, `…_l1` …
    #[doc(alias = "RNN")]
    Rnn, RnnCell, RecurrentCell::Tanh;
    /// Long short-term memory: with gates i, f, g, o, c' = σ(f)·c + σ(i)·tanh(g) and h' = σ(o)·tanh(c').
    /// `torch.nn.LSTM`. The state is as in [`Rnn`].
    ///
    /// Hochreiter and Schmidhuber: Long short-term memory (1997).
    ///
    /// ```
    /// use nn::{Lstm, RnnConfig};
    /// use tensor_core::{Generator, Tensor};
    /// # fn main() -> tensor_core::Result<()> {
    /// let rng = Generator::seed(0, &backend_cpu::cpu());
    /// let config = RnnConfig { num_layers: 2, batch_first: true, ..Default::default() };
    /// let lstm = Lstm::with_config(3, 4, config, &rng)?;
    /// let (out, (h, c)) = lstm.forward(&Tensor::randn([5, 7, 3], &rng)?, None)?; // [N, L, I]
    /// assert_eq!(out.dims(), [5, 7, 4]);
    /// assert_eq!((h.dims(), c.dims()), (&[2, 5, 4][..], &[2, 5, 4][..]));
    /// # Ok(()) }
    /// ```
    #[doc(alias = "LSTM")]
    Lstm, LstmCell, RecurrentCell::Lstm;
    /// Gated recurrent unit: with r = σ(…) and z = σ(…), n = tanh(W_in·x + b_in + r·(W_hn·h + b_hn)) and h'
    /// = (1 − z)·n + z·h. `torch.nn.GRU`. The state is as in [`Rnn`].
    ///
    /// Cho et al.: Learning phrase representations using RNN encoder-decoder (2014).
    #[doc(alias = "GRU")]
    Gru, GruCell, RecurrentCell::Gru;
}

#[track_caller]
fn step_of_cell(
    kind: RecurrentCell,
    weights: &Weights,
    [features, size]: [usize; 2],
    input: &Tensor,
    hidden: Option<&Tensor>,
    cell: Option<&Tensor>,
) -> Result<State> {
    let _line = caller_line();
    let op = name(kind);
    let lowered = weights.cast(op)?;
    let weights = lowered.as_ref().unwrap_or(weights);
    let cast = autocast::cast(op, [input], [hidden, cell])?;
    let ([input], [hidden, cell]) = cast.tensors();
    let &[batch, width] = input.dims() else {
        let message = format!("a cell's input is [N, {features}], not {}", input.shape());
        return Err(Error::invalid(op, message));
    };
    if width != features {
        let message = format!("a cell's input is [N, {features}], not {}", input.shape());
        return Err(Error::invalid(op, message));
    }
    let state = |given: Option<&Tensor>| -> Result<Tensor> {
        match given {
            None => Tensor::zeros([batch, size], (input.dtype(), &input.device())),
            Some(given) if given.dims() == [batch, size] => Ok(given.clone()),
            Some(given) => {
                let message = format!("a state of shape {}: give one of [{batch}, {size}]", given.shape());
                Err(Error::invalid(op, message).here())
            }
        }
    };
    let cell = if kind == RecurrentCell::Lstm { Some(state(cell)?) } else { None };
    let state = State { hidden: state(hidden)?, cell };
    weights.step(kind, &weights.of_input(kind, input)?, &weights.weight_hh.t()?, &state)
}

impl Rnn {
    /// A layer with max(0, …) in place of tanh: `nonlinearity="relu"`.
    ///
    /// # Errors
    /// As [`Rnn::with_config`].
    #[track_caller]
    pub fn with_relu(
        input_size: usize,
        hidden_size: usize,
        config: RnnConfig,
        rng: &Generator,
    ) -> Result<Rnn> {
        Ok(Rnn(Recurrent::new(RecurrentCell::Relu, [input_size, hidden_size], config, rng)?))
    }
}

macro_rules! single_state {
    ($($layer:ident $cell:ident;)*) => {$(
        impl $layer {
            /// The last layer's state at every step, `[L, N, H]` (`[L, N, 2H]` in both directions), and the
            /// last states `[layers·directions, N, H]`, for an input `[L, N, I]` or `[L, I]` and the initial
            /// states, zeros by default.
            ///
            /// # Errors
            /// An input of other axes, features, dtype or device, no steps, states of another shape.
            #[track_caller]
            pub fn forward(&self, input: &Tensor, state: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
                let begun = begin_layer_call();
                let (out, hidden, _) = self.0.run(input, None, state, None)?;
                Ok((call::record(self, begun, Ok(out))?, hidden))
            }

            /// As `forward`, for sequences that end after `lengths[n]` steps each: outputs past the end are
            /// zeros, the last states are those of each sequence's last step, and the backward direction
            /// begins there. It equals PyTorch's result for `pack_padded_sequence`, and
            /// `pad_packed_sequence` with the input's `total_length`; lengths need not be sorted.
            ///
            /// # Errors
            /// As `forward`, and lengths that are not one for each sequence, or not from 1 to the number of
            /// steps.
            #[track_caller]
            #[doc(alias = "pack_padded_sequence")]
            pub fn forward_with_lengths(
                &self,
                input: &Tensor,
                lengths: &[usize],
                state: Option<&Tensor>,
            ) -> Result<(Tensor, Tensor)> {
                let begun = begin_layer_call();
                let (out, hidden, _) = self.0.run(input, Some(lengths), state, None)?;
                Ok((call::record(self, begun, Ok(out))?, hidden))
            }
        }

        impl $cell {
            /// The next state `[N, H]` for an input `[N, I]` and a state, zeros by default.
            ///
            /// # Errors
            /// An input or a state of another shape, dtype or device.
            #[track_caller]
            pub fn forward(&self, input: &Tensor, state: Option<&Tensor>) -> Result<Tensor> {
                record!(self, Ok(self.run(input, state, None)?.hidden))
            }
        }
    )*};
}
single_state!(Rnn RnnCell; Gru GruCell;);

impl Lstm {
    /// The last layer's state at every step, `[L, N, H]` (`[L, N, 2H]` in both directions), and the last
    /// states h and c, `[layers·directions, N, H]` each, for an input `[L, N, I]` or `[L, I]` and the
    /// initial states, zeros by default.
    ///
    /// # Errors
    /// An input of other axes, features, dtype or device, no steps, states of another shape.
    #[track_caller]
    pub fn forward(
        &self,
        input: &Tensor,
        state: Option<(&Tensor, &Tensor)>,
    ) -> Result<(Tensor, (Tensor, Tensor))> {
        let _line = caller_line();
        let begun = begin_layer_call();
        let (out, hidden, cell) = self.0.run(input, None, state.map(|s| s.0), state.map(|s| s.1))?;
        let cell = cell.unwrap_or_else(|| hidden.zeros_like());
        Ok((call::record(self, begun, Ok(out))?, (hidden, cell)))
    }

    /// As [`Lstm::forward`], for sequences that end after `lengths[n]` steps each: outputs past the end are
    /// zeros, the last states are those of each sequence's last step, and the backward direction begins
    /// there. It equals PyTorch's result for `pack_padded_sequence`, and `pad_packed_sequence` with the
    /// input's `total_length`; lengths need not be sorted.
    ///
    /// ```
    /// use nn::Lstm;
    /// use tensor_core::{Generator, Tensor};
    /// # fn main() -> tensor_core::Result<()> {
    /// let rng = Generator::seed(0, &backend_cpu::cpu());
    /// let lstm = Lstm::new(3, 4, &rng)?;
    /// let x = Tensor::randn([5, 2, 3], &rng)?;
    /// let (out, (h, _)) = lstm.forward_with_lengths(&x, &[5, 2], None)?;
    /// assert!(h.i((0, 1))?.equal(&out.i((1, 1))?)?); // the second sequence ends after two steps
    /// assert_eq!(out.i((2.., 1))?.to_vec::<f32>()?, [0.0; 12]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Lstm::forward`], and lengths that are not one for each sequence, or not from 1 to the number of
    /// steps.
    #[track_caller]
    #[doc(alias = "pack_padded_sequence")]
    pub fn forward_with_lengths(
        &self,
        input: &Tensor,
        lengths: &[usize],
        state: Option<(&Tensor, &Tensor)>,
    ) -> Result<(Tensor, (Tensor, Tensor))> {
        let _line = caller_line();
        let begun = begin_layer_call();
        let (out, hidden, cell) = self.0.run(input, Some(lengths), state.map(|s| s.0), state.map(|s| s.1))?;
        let cell = cell.unwrap_or_else(|| hidden.zeros_like());
        Ok((call::record(self, begun, Ok(out))?, (hidden, cell)))
    }
}

impl LstmCell {
    /// The next states h and c, `[N, H]` each, for an input `[N, I]` and the previous states, zeros by
    /// default.
    ///
    /// # Errors
    /// An input or a state of another shape, dtype or device.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, state: Option<(&Tensor, &Tensor)>) -> Result<(Tensor, Tensor)> {
        let _line = caller_line();
        let begun = begin_layer_call();
        let State { hidden, cell } = self.run(input, state.map(|s| s.0), state.map(|s| s.1))?;
        let cell = cell.unwrap_or_else(|| hidden.zeros_like());
        Ok((call::record(self, begun, Ok(hidden))?, cell))
    }
}
