//! Attention, and the tables of positions that go with it.

use tensor_core::{DType, Error, Generator, Result, Shape, Tensor};

use super::dropout;

/// What [`scaled_dot_product_attention`] may have otherwise than usual.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionOptions<'a> {
    /// Broadcast to `[…, L, S]`: bool, true where a query sees a key, or numbers that are added to the scores.
    pub mask: Option<&'a Tensor>,
    /// Whether query i sees keys 0 to i alone.
    pub is_causal: bool,
    /// What scores are multiplied by; 1/√E by default.
    pub scale: Option<f64>,
    /// Whether queries may have several times as many heads (axis −3) as keys and values: each key head serves a group of them.
    pub enable_gqa: bool,
    /// The probability with which a weight is dropped, with the stream to draw from. None by default.
    pub dropout: Option<(f64, &'a Generator)>,
}

/// softmax(query · keyᵀ · scale + mask) · value for `query` `[…, L, E]`, `key` `[…, S, E]` and `value` `[…, S, V]`: `[…, L, V]`.
/// A query that sees no key gives zeros, with gradients of zero. `torch.nn.functional.scaled_dot_product_attention`.
///
/// Vaswani et al.: Attention is all you need (2017).
///
/// ```
/// use nn::functional::{AttentionOptions, scaled_dot_product_attention};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let x = Tensor::new([[[1.0f32, 0.0], [0.0, 1.0]]], &device)?;
/// let options = AttentionOptions { is_causal: true, ..Default::default() };
/// let y = scaled_dot_product_attention(&x, &x, &x, options)?;
/// assert_eq!(y.select(1, 0)?.to_vec::<f32>()?, [1.0, 0.0]); // the first sees itself alone
/// # Ok(()) }
/// ```
///
/// # Errors
/// Fewer than two axes, sizes that do not fit each other, heads that do not divide, a mask of another shape or dtype, a mask together with
/// `is_causal`, several dtypes or devices.
#[track_caller]
pub fn scaled_dot_product_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    options: AttentionOptions<'_>,
) -> Result<Tensor> {
    attention(query, key, value, options).map(|found| found.0)
}

/// The result and the weights, `[…, L, S]`, after dropout.
#[track_caller]
pub(crate) fn attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    options: AttentionOptions<'_>,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "scaled_dot_product_attention";
    let wrong = |message: String| Err(Error::invalid(OP, message).here());
    let AttentionOptions { mask, is_causal, scale, enable_gqa, dropout: drop } = options;
    let shapes = format!("query {}, key {}, value {}", query.shape(), key.shape(), value.shape());
    let [(rows, width), (keys, key_width), (values, _)] = match [query, key, value].map(|t| match t.dims() {
        &[.., length, width] => Some((length, width)),
        _ => None,
    }) {
        [Some(query), Some(key), Some(value)] => [query, key, value],
        _ => return wrong(format!("{shapes}: each has the axes […, length, features]")),
    };
    if width != key_width || keys != values || width == 0 {
        return wrong(format!(
            "{shapes}: query and key have the same features, key and value the same length"
        ));
    }
    if !query.dtype().is_float() || query.dtype() != key.dtype() || query.dtype() != value.dtype() {
        let dtypes = [query, key, value].map(|t| t.dtype().to_string()).join(", ");
        return wrong(format!("query, key and value of {dtypes}: cast them to one floating-point dtype"));
    }
    if mask.is_some() && is_causal {
        return wrong("a mask and is_causal: give one of them, or put the causal mask into the mask".into());
    }
    let (key, value) = match enable_gqa {
        true => (grouped(OP, query, key)?, grouped(OP, query, value)?),
        false => (key.clone(), value.clone()),
    };
    let scale = scale.unwrap_or(1.0 / (width as f64).sqrt());
    let mut scores = query.mul_scalar(scale).matmul(&key.transpose(-2, -1)?)?;
    let causal = match is_causal {
        true => Some(causal_mask(rows, keys, &query.device())?),
        false => None,
    };
    let mut hidden = None;
    if let Some(mask) = mask.or(causal.as_ref()) {
        if mask.shape().broadcast(scores.shape(), OP).ok().as_ref() != Some(scores.shape()) {
            return wrong(format!(
                "a mask of shape {} does not broadcast to the scores {} (queries by keys)",
                mask.shape(),
                scores.shape()
            ));
        }
        match mask.dtype() {
            DType::Bool => {
                let unseen = mask.logical_not();
                scores = scores.masked_fill(&unseen, f64::NEG_INFINITY)?;
                hidden = Some(scores.detach());
            }
            dtype if dtype == scores.dtype() => {
                scores = scores.add(mask)?;
                hidden = Some(scores.detach());
            }
            dtype => {
                return wrong(format!(
                    "a mask of {dtype}: give one of bool, true where a query sees a key, or of the scores' {}",
                    scores.dtype()
                ));
            }
        }
    }
    let mut weights = match hidden {
        // Where nothing is seen, −∞ − −∞ is no number: such rows are computed from zeros, and their weights are set to 0.
        Some(hidden) if keys > 0 => {
            let blind = hidden.amax(-1, true)?.eq_scalar(f64::NEG_INFINITY);
            scores.masked_fill(&blind, 0.0)?.softmax(-1)?.masked_fill(&blind, 0.0)?
        }
        _ => scores.softmax(-1)?,
    };
    if let Some((p, rng)) = drop {
        weights = dropout(&weights, p, true, rng)?;
    }
    Ok((weights.matmul(&value)?, weights))
}

/// Keys or values repeated, so that there are as many heads as the query has.
#[track_caller]
fn grouped(op: &'static str, query: &Tensor, tensor: &Tensor) -> Result<Tensor> {
    let (lead, heads) = match (query.dims(), tensor.dims()) {
        (&[.., wanted, _, _], &[ref lead @ .., heads, _, _]) if heads > 0 && wanted.is_multiple_of(heads) => {
            (lead, (heads, wanted / heads))
        }
        _ => {
            let message = format!(
                "heads (axis -3) of a key or value {} do not divide those of the query {}",
                tensor.shape(),
                query.shape()
            );
            return Err(Error::invalid(op, message));
        }
    };
    let (heads, times) = heads;
    let rest = &tensor.dims()[tensor.rank() - 2..];
    let wide: Shape = lead.iter().copied().chain([heads, times]).chain(rest.iter().copied()).collect();
    let flat: Shape = lead.iter().copied().chain([heads * times]).chain(rest.iter().copied()).collect();
    tensor.unsqueeze(-3)?.expand(wide.dims())?.reshape(flat.dims())
}

/// `[queries, keys]`: true where key ≤ query.
#[track_caller]
pub(crate) fn causal_mask(queries: usize, keys: usize, device: &tensor_core::Device) -> Result<Tensor> {
    let row = Tensor::arange(0, keys, 1, (DType::I32, device))?;
    let column = Tensor::arange(0, queries, 1, (DType::I32, device))?.reshape([queries, 1])?;
    row.le(&column)
}

/// `[positions, features]` of sines (even features) and cosines (odd ones) of position / 10000^(2i / features), f32.
/// Vaswani et al.: Attention is all you need (2017), section 3.5.
///
/// # Errors
/// An odd number of features.
#[track_caller]
pub fn sinusoidal_positions(
    positions: usize,
    features: usize,
    device: &tensor_core::Device,
) -> Result<Tensor> {
    if features == 0 || !features.is_multiple_of(2) {
        let message = format!("{features} features are no pairs of a sine and a cosine: give an even number");
        return Err(Error::invalid("sinusoidal_positions", message));
    }
    let angles = angles(positions, features, 1e4, 0);
    let table: Vec<f32> = angles.iter().flat_map(|angle| [angle.sin() as f32, angle.cos() as f32]).collect();
    Tensor::from_vec(table, [positions, features], device)
}

/// position · base^(−2i / features) for each position from `first` and each i below features / 2, in f64: the phases of far positions would
/// lose their digits in f32.
fn angles(positions: usize, features: usize, base: f64, first: usize) -> Vec<f64> {
    let rates: Vec<f64> = (0..features / 2).map(|i| base.powf(-2.0 * i as f64 / features as f64)).collect();
    (first..first + positions).flat_map(|at| rates.iter().map(move |rate| at as f64 * rate)).collect()
}

/// Rotary position embedding of `input` `[…, L, E]` whose first row has the position `first`: features i and i + E/2 are a pair, turned
/// by position · base^(−2i/E). (The pairing of Llama and GPT-NeoX.) The usual base is 10000.
///
/// Su et al.: RoFormer, enhanced transformer with rotary position embedding (2021).
///
/// # Errors
/// An input without rows, of an odd number of features, or of no floating-point dtype.
#[track_caller]
pub fn rotary_embedding(input: &Tensor, first: usize, base: f64) -> Result<Tensor> {
    const OP: &str = "rotary_embedding";
    let &[.., length, width] = input.dims() else {
        return Err(Error::invalid(OP, format!("an input is […, length, features], not {}", input.shape())));
    };
    if width == 0 || !width.is_multiple_of(2) || !input.dtype().is_float() {
        let message = format!(
            "an input of shape {} and {}: give an even number of features of a floating-point dtype",
            input.shape(),
            input.dtype()
        );
        return Err(Error::invalid(OP, message));
    }
    let half = width / 2;
    let angles = angles(length, width, base, first);
    let table = |function: fn(f64) -> f64| -> Result<Tensor> {
        let values: Vec<f64> = angles.iter().map(|&angle| function(angle)).collect();
        Tensor::new(values, (input.dtype(), &input.device()))?.reshape([length, half])
    };
    let (cos, sin) = (table(f64::cos)?, table(f64::sin)?);
    let (a, b) = (input.narrow(-1, 0, half)?, input.narrow(-1, half, half)?);
    let turned = [a.mul(&cos)?.sub(&b.mul(&sin)?)?, b.mul(&cos)?.add(&a.mul(&sin)?)?];
    Tensor::concat(&turned, -1)
}
