//! The gated delta rule: attention with a matrix as its state, from which each step removes what the matrix
//! has for its key before it adds the step's value.
//!
//! Yang et al.: Gated delta networks, improving Mamba2 with delta rule (2024). `transformers`:
//! `Qwen3NextGatedDeltaNet`, `Qwen3_5GatedDeltaNet`.

use nn::{Linear, Module, Parameter, RmsNorm};
use tensor_core::{DType, Error, Result, Tensor};

use super::{OP, attention::Keys, config::LlamaConfig};
use crate::{
    Initial, WeightSource,
    chunks::{carried, identity, inverse},
    recurrent::causal_convolution,
};

/// Steps of a chunk: its triangular inverse takes four products.
const CHUNK: usize = 16;
/// Added to the square of a key's or query's length.
const LENGTH_EPS: f64 = 1e-6;

/// The weight of the convolution.
#[derive(Module)]
struct Convolution {
    weight: Parameter,
}

/// The layer. The projections are two whose parts alternate by heads of keys (Qwen 3 Next), or four (Qwen
/// 3.5). GGUF files of Qwen 3 Next have the first of the two as two.
#[derive(Module)]
#[allow(non_snake_case)]
pub(super) struct DeltaAttention {
    in_proj_qkvz: Option<Linear>,
    in_proj_ba: Option<Linear>,
    in_proj_qkv: Option<Linear>,
    in_proj_z: Option<Linear>,
    in_proj_b: Option<Linear>,
    in_proj_a: Option<Linear>,
    conv1d: Convolution,
    dt_bias: Parameter,
    A_log: Parameter,
    norm: RmsNorm,
    out_proj: Linear,
    key_heads: usize,
    value_heads: usize,
    /// Heads of values that share a key are not neighbours.
    heads_apart: bool,
    key_size: usize,
    value_size: usize,
}

impl DeltaAttention {
    #[track_caller]
    pub(super) fn new(source: &WeightSource, config: &LlamaConfig) -> Result<DeltaAttention> {
        let width = config.hidden_size;
        let (key_heads, value_heads) = (config.linear_num_key_heads, config.linear_num_value_heads);
        let (key_size, value_size) = (config.linear_key_head_dim, config.linear_value_head_dim);
        let (keys, values) = (key_heads * key_size, value_heads * value_size);
        let (kernel, convolved) = (config.linear_conv_kernel_dim, 2 * keys + values);
        let joint = config.style()?.joint_delta;
        let joint_values = joint && source.has("in_proj_qkvz.weight");
        let project = |name: &str, outputs: usize, there: bool| {
            there.then(|| source.linear(name, width, outputs, false)).transpose()
        };
        let initial = Initial::Normal((kernel as f64).powf(-0.5));
        let weight = source.at("conv1d").parameter("weight", &[convolved, 1, kernel], initial)?;
        Ok(DeltaAttention {
            in_proj_qkvz: project("in_proj_qkvz", convolved + values, joint_values)?,
            in_proj_ba: project("in_proj_ba", 2 * value_heads, joint)?,
            in_proj_qkv: project("in_proj_qkv", convolved, !joint_values)?,
            in_proj_z: project("in_proj_z", values, !joint_values)?,
            in_proj_b: project("in_proj_b", value_heads, !joint)?,
            in_proj_a: project("in_proj_a", value_heads, !joint)?,
            conv1d: Convolution { weight: Parameter::new(weight)? },
            dt_bias: Parameter::new(source.parameter("dt_bias", &[value_heads], Initial::Ones)?)?,
            A_log: Parameter::new(source.parameter("A_log", &[value_heads], Initial::Ones)?)?,
            norm: source.rms_norm("norm", value_size, config.rms_norm_eps)?,
            out_proj: source.linear("out_proj", values, width, false)?,
            key_heads,
            value_heads,
            heads_apart: config.linear_heads_apart,
            key_size,
            value_size,
        })
    }

    /// The features for the convolution `[N, L, queries + keys + values]`, the gates z `[N, L, values]`,
    /// and b and a `[N, L, heads of values]`.
    #[track_caller]
    fn project(&self, x: &Tensor) -> Result<[Tensor; 4]> {
        let (batch, length) = (x.dims()[0], x.dims()[1]);
        let per_key = self.value_heads / self.key_heads;
        let by_heads = |x: Tensor| {
            let each = x.dims()[2] / self.key_heads;
            x.reshape([batch, length, self.key_heads, each])
        };
        let part = |x: &Tensor, from: usize, size: usize| {
            x.narrow(-1, from, size)?.reshape([batch, length, self.key_heads * size])
        };
        let missing = || Error::invalid(OP, "attention has no projections");
        let (mixed, z) = match (&self.in_proj_qkv, &self.in_proj_z, &self.in_proj_qkvz) {
            (Some(qkv), Some(z), _) => (qkv.forward(x)?, z.forward(x)?),
            (_, _, Some(qkvz)) => {
                let qkvz = by_heads(qkvz.forward(x)?)?;
                let (key, value) = (self.key_size, per_key * self.value_size);
                let mixed = [part(&qkvz, 0, key)?, part(&qkvz, key, key)?, part(&qkvz, 2 * key, value)?];
                (Tensor::concat(&mixed, -1)?, part(&qkvz, 2 * key + value, value)?)
            }
            (_, _, None) => return Err(missing()),
        };
        let (b, a) = match (&self.in_proj_b, &self.in_proj_a, &self.in_proj_ba) {
            (Some(b), Some(a), _) => (b.forward(x)?, a.forward(x)?),
            (_, _, Some(ba)) => {
                let ba = by_heads(ba.forward(x)?)?;
                (part(&ba, 0, per_key)?, part(&ba, per_key, per_key)?)
            }
            (_, _, None) => return Err(missing()),
        };
        Ok([mixed, z, b, a])
    }

    /// The output for `x` `[N, L, features]`. `mask` `[N, L, 1]` is 0 at padding.
    #[track_caller]
    pub(super) fn forward(&self, x: &Tensor, mask: Option<&Tensor>, keys: Keys<'_>) -> Result<Tensor> {
        let x = match mask {
            Some(mask) => x.mul(mask)?,
            None => x.clone(),
        };
        let (batch, length) = (x.dims()[0], x.dims()[1]);
        let [mixed, z, b, a] = self.project(&x)?;
        let [before, state] = match &keys {
            Keys::Own(_) => [None, None],
            Keys::Cached(cache, number) => match cache.states(*number)? {
                [last, state] => [Some(last.clone()), Some(state.clone())],
                _ => [None, None],
            },
        };
        let (mixed, last) = causal_convolution(&mixed, before.as_ref(), &self.conv1d.weight, None)?;
        let mixed = mixed.silu().to_dtype(DType::F32)?;
        let (heads, per_key) = (self.value_heads, self.value_heads / self.key_heads);
        let all_keys = self.key_heads * self.key_size;
        // [N, heads, L, size] with the length 1, each for all heads of values that share it.
        let normed = |from: usize| {
            let x = mixed.narrow(-1, from, all_keys)?;
            let x = x.reshape([batch, length, self.key_heads, self.key_size])?;
            let root = x.square().sum_axis(-1, true)?.add_scalar(LENGTH_EPS).rsqrt();
            let (axis, count) = if self.heads_apart { (2, self.key_heads) } else { (3, per_key) };
            let outer = heads / count;
            let x = x.mul(&root)?.unsqueeze(axis)?.expand([batch, length, outer, count, self.key_size])?;
            x.reshape([batch, length, heads, self.key_size])?.transpose(1, 2)
        };
        let value = mixed.narrow(-1, 2 * all_keys, heads * self.value_size)?;
        let steps = Steps {
            query: normed(0)?.mul_scalar((self.key_size as f64).powf(-0.5)),
            key: normed(all_keys)?,
            value: value.reshape([batch, length, heads, self.value_size])?.transpose(1, 2)?,
            beta: b.to_dtype(DType::F32)?.sigmoid().transpose(1, 2)?,
            decay: {
                let size = a.to_dtype(DType::F32)?.add(&self.dt_bias.to_dtype(DType::F32)?)?.softplus();
                size.mul(&self.A_log.to_dtype(DType::F32)?.exp().neg())?.transpose(1, 2)?
            },
        };
        let (out, state) = steps.run(state.as_ref())?;
        if let Keys::Cached(cache, number) = keys {
            cache.set_states(number, vec![last, state])?;
        }
        let out = self.norm.forward(&out.transpose(1, 2)?.to_dtype(x.dtype())?)?;
        let z = z.reshape([batch, length, heads, self.value_size])?.silu();
        self.out_proj.forward(&out.mul(&z)?.reshape([batch, length, heads * self.value_size])?)
    }
}

/// The inputs of the recurrence: queries and keys `[N, heads, L, E]`, values `[N, heads, L, V]`, the parts β
/// that are replaced and the logarithms of decays `[N, heads, L]`.
struct Steps {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    beta: Tensor,
    decay: Tensor,
}

impl Steps {
    /// y[t] = S[t]ᵀ · q[t] for S[t] = D[t] + k[t] · β[t] (v[t] − D[t]ᵀ · k[t])ᵀ with D[t] = exp(decay[t]) ·
    /// S[t − 1]: `[N, heads, L, V]`, and the last matrices `[N, heads, E, V]`.
    #[track_caller]
    fn run(&self, before: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        match (self.query.dims()[2], before) {
            (1, Some(before)) => self.step(before),
            _ => self.chunks(before),
        }
    }

    /// One step.
    #[track_caller]
    fn step(&self, before: &Tensor) -> Result<(Tensor, Tensor)> {
        let decayed = before.mul(&self.decay.exp().unsqueeze(-1)?)?;
        let new = self.value.sub(&self.key.matmul(&decayed)?)?.mul(&self.beta.unsqueeze(-1)?)?;
        let after = decayed.add(&self.key.transpose(-1, -2)?.mul(&new)?)?;
        Ok((self.query.matmul(&after)?, after))
    }

    /// With γ[t] the sum of the decays of a chunk up to t, and rows of matrices for its steps, the added rows
    /// U = β · (V − D · S) fulfil (I + M) · U = β · V − β · exp(γ) · K · S₀ with M[t, s] = β[t] · exp(γ[t] −
    /// γ[s]) · k[t] · k[s] for s < t. So the matrices after a chunk are a product and a sum of those before.
    #[track_caller]
    fn chunks(&self, before: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let &[batch, heads, length, size] = self.query.dims() else {
            return Err(Error::invalid(OP, format!("steps have four axes, not {}", self.query.shape())));
        };
        let count = length.div_ceil(CHUNK);
        let whole = count * CHUNK;
        // Steps of zeros at the end change nothing: their decay is 1.
        let chunked = |x: &Tensor| {
            let x = if x.rank() == 3 { x.unsqueeze(-1)? } else { x.clone() };
            let x = match whole == length {
                true => x,
                false => x.pad(&[(0, 0), (0, 0), (0, whole - length), (0, 0)], 0.0)?,
            };
            x.reshape([batch, heads, count, CHUNK, x.dims()[3]])
        };
        let [q, k, v, beta, decay] =
            [&self.query, &self.key, &self.value, &self.beta, &self.decay].map(chunked);
        let (q, k, v, beta) = (q?, k?, v?, beta?);
        let sum = decay?.cumsum(-2)?;
        let later =
            Tensor::ones([CHUNK, CHUNK], (sum.dtype(), &sum.device()))?.triu(1)?.to_dtype(DType::Bool)?;
        let between = sum.sub(&sum.transpose(-1, -2)?)?.masked_fill(&later, f64::NEG_INFINITY)?.exp();
        let transposed = k.transpose(-1, -2)?;
        let inverse = inverse(&k.matmul(&transposed)?.mul(&between)?.mul(&beta)?.neg().tril(-1)?)?;
        let growth = sum.exp();
        // U = of_values − of_state · S₀
        let of_values = inverse.matmul(&v.mul(&beta)?)?;
        let of_state = inverse.matmul(&k.mul(&beta)?.mul(&growth)?)?;
        let end = sum.narrow(-2, CHUNK - 1, 1)?;
        let late = k.mul(&end.sub(&sum)?.exp())?.transpose(-1, -2)?;
        let over = end.exp().mul(&identity(size, &sum)?)?.sub(&late.matmul(&of_state)?)?;
        let all = carried(&over, &late.matmul(&of_values)?, before)?;
        let (firsts, last) = (all.narrow(2, 0, count)?, all.select(2, count)?);
        let added = of_values.sub(&of_state.matmul(&firsts)?)?;
        let scores = q.matmul(&transposed)?.mul(&between)?;
        let y = q.mul(&growth)?.matmul(&firsts)?.add(&scores.matmul(&added)?)?;
        let features = y.dims()[4];
        Ok((y.reshape([batch, heads, whole, features])?.narrow(2, 0, length)?, last))
    }
}
