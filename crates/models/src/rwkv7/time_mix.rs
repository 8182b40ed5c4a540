//! The time mix of RWKV-7: projections of each step and the one before it, the matrices of heads, a norm of
//! each head and a gate.

use nn::{
    Linear, Module, Parameter,
    functional::{group_norm, normalize},
};
use tensor_core::{DType, Result, Tensor};

use super::{Rwkv7Config, shifted, state::Steps};
use crate::{Initial, WeightSource};

/// ln of the least decay is minus this: exp(−½).
const DECAY_RANGE: f64 = 0.606_530_659_712_633_4;

#[derive(Module)]
struct LowRankLayers {
    #[module(rename = "0")]
    down: Linear,
    #[module(rename = "2")]
    up: Linear,
}

/// up(activation(down(x))) through a few features.
#[derive(Module)]
struct LowRank {
    lora: LowRankLayers,
}

impl LowRank {
    #[track_caller]
    fn new(source: &WeightSource, width: usize, rank: usize, bias: Option<Vec<f32>>) -> Result<LowRank> {
        let (down, up) = (source.at("lora").at(0), source.at("lora").at(2));
        let initial = |values: Vec<f32>| {
            up.parameter_from("bias", &[width], |rng| Tensor::from_vec(values, [width], rng.device()))
        };
        let bias = bias.map(initial).transpose()?;
        Ok(LowRank {
            lora: LowRankLayers {
                down: Linear::from_weight(down.parameter("weight", &[rank, width], Initial::Zeros)?, None),
                up: Linear::from_weight(up.parameter("weight", &[width, rank], Initial::Normal(0.1))?, bias),
            },
        })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor, activation: impl FnOnce(&Tensor) -> Tensor) -> Result<Tensor> {
        self.lora.up.forward(&activation(&self.lora.down.forward(x)?))
    }
}

/// The norm of each head.
#[derive(Module)]
struct HeadNorm {
    weight: Parameter,
    bias: Parameter,
}

#[derive(Module)]
pub(super) struct TimeMix {
    x_r: Parameter,
    x_w: Parameter,
    x_k: Parameter,
    x_v: Parameter,
    x_a: Parameter,
    x_g: Parameter,
    k_k: Parameter,
    k_a: Parameter,
    r_k: Parameter,
    r_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    w_lora: LowRank,
    v_lora: Option<LowRank>,
    a_lora: LowRank,
    g_lora: LowRank,
    g_norm: HeadNorm,
    heads: usize,
    eps: f64,
}

impl TimeMix {
    #[track_caller]
    pub(super) fn new(source: &WeightSource, config: &Rwkv7Config, layer: usize) -> Result<TimeMix> {
        let (width, heads) = (config.hidden_size, config.heads());
        let own = |name: &str, shape: &[usize], values: Vec<f32>| -> Result<Parameter> {
            let drawn =
                source.parameter_from(name, shape, |rng| Tensor::from_vec(values, shape, rng.device()))?;
            Parameter::new(drawn)
        };
        let mix =
            |name: &str, power: f64| own(name, &[1, 1, width], config.mixed(power * config.left(layer)));
        let low = |name: &str, rank: usize, bias: Option<Vec<f32>>| {
            LowRank::new(&source.at(name), width, rank, bias)
        };
        let linear = |name: &str| source.linear(name, width, width, false);
        let layers = config.num_hidden_layers as f64;
        let depth = layer as f64 / (layers - 1.0).max(1.0);
        let decay = config
            .by_place(|line, in_head| -5.5 + 6.0 * (line + 0.5).powf(1.0 + depth.powf(0.3)) + 2.5 * in_head);
        let norm = source.at("g_norm");
        let norm_weight = ((layer + 1) as f32 / layers as f32).powf(0.7);
        Ok(TimeMix {
            x_r: mix("x_r", 0.2)?,
            x_w: mix("x_w", 0.9)?,
            x_k: mix("x_k", 0.7)?,
            x_v: mix("x_v", 0.7)?,
            x_a: mix("x_a", 0.9)?,
            x_g: mix("x_g", 0.2)?,
            k_k: own("k_k", &[width], config.by_place(|line, _| 0.71 - 0.1 * line))?,
            k_a: own("k_a", &[width], vec![1.02; width])?,
            r_k: own("r_k", &[heads, width / heads], vec![-0.04; width])?,
            r_proj: linear("r_proj")?,
            k_proj: linear("k_proj")?,
            v_proj: linear("v_proj")?,
            o_proj: linear("o_proj")?,
            w_lora: low("w_lora", config.decay_low_rank_dim, Some(decay))?,
            v_lora: (layer > 0)
                .then(|| {
                    let bias = config.by_place(|line, _| 0.73 - 0.4 * line);
                    low("v_lora", config.v_low_rank_dim, Some(bias))
                })
                .transpose()?,
            a_lora: low(
                "a_lora",
                config.a_low_rank_dim,
                Some(config.by_place(|line, in_head| -0.19 + 0.3 * in_head + 0.4 * line)),
            )?,
            g_lora: low("g_lora", config.gate_low_rank_dim, None)?,
            g_norm: HeadNorm {
                weight: Parameter::new(norm.parameter_from("weight", &[width], |rng| {
                    Tensor::full([width], norm_weight, rng.device())
                })?)?,
                bias: Parameter::new(norm.parameter("bias", &[width], Initial::Zeros)?)?,
            },
            heads,
            eps: config.norm_eps * (width / heads) as f64,
        })
    }

    /// The output for `x` `[N, L, features]` and the matrices after it. `before` has the last input and the
    /// matrices before it, `mask` `[N, L, 1]` is 0 at padding, and `first_value` has the values of the first
    /// layer, which writes them.
    #[track_caller]
    pub(super) fn forward(
        &self,
        x: &Tensor,
        [before, matrices]: [Option<&Tensor>; 2],
        mask: Option<&Tensor>,
        first_value: &mut Option<Tensor>,
    ) -> Result<(Tensor, Tensor)> {
        let (batch, length, width) = (x.dims()[0], x.dims()[1], x.dims()[2]);
        let delta = shifted(x, before)?.sub(x)?;
        let mixed = |share: &Parameter| x.add(&delta.mul(share)?);
        let same = |x: &Tensor| x.clone();
        let r = self.r_proj.forward(&mixed(&self.x_r)?)?;
        let w = self.w_lora.forward(&mixed(&self.x_w)?, Tensor::tanh)?.sigmoid().mul_scalar(-DECAY_RANGE);
        let key = self.k_proj.forward(&mixed(&self.x_k)?)?;
        let for_value = mixed(&self.x_v)?;
        let mut v = self.v_proj.forward(&for_value)?;
        match (&self.v_lora, first_value.as_ref()) {
            (Some(share), Some(first)) => {
                let share = share.forward(&for_value, same)?.sigmoid();
                v = v.add(&first.sub(&v)?.mul(&share)?)?;
            }
            _ => *first_value = Some(v.clone()),
        }
        if let Some(mask) = mask {
            v = v.mul(mask)?;
        }
        let rate = self.a_lora.forward(&mixed(&self.x_a)?, same)?.sigmoid();
        let gate = self.g_lora.forward(&mixed(&self.x_g)?, Tensor::sigmoid)?;
        let split = |x: &Tensor| x.reshape([batch, length, self.heads, width / self.heads]);
        let removed = normalize(&split(&key.mul(&self.k_k)?)?, 2.0, -1, 1e-12)?;
        let k = key.add(&key.mul(&rate.sub_scalar(1.0))?.mul(&self.k_a)?)?;
        let (r, k, v) = (split(&r)?, split(&k)?, split(&v)?);
        let wide = |x: &Tensor| x.to_dtype(DType::F32);
        let steps = Steps {
            r: wide(&r)?,
            w: wide(&split(&w)?)?,
            k: wide(&k)?,
            v: wide(&v)?,
            a: wide(&removed)?.neg(),
            b: wide(&removed.mul(&split(&rate)?)?)?,
        };
        let (y, matrices) = steps.run(matrices)?;
        let rows = y.to_dtype(x.dtype())?.reshape([batch * length, width])?;
        let norm = &self.g_norm;
        let normed = group_norm(&rows, self.heads, Some(&norm.weight), Some(&norm.bias), self.eps)?;
        let bonus = r.mul(&k)?.mul(&self.r_k)?.sum_axis(-1, true)?.mul(&v)?;
        let out = normed.reshape([batch, length, width])?.add(&bonus.reshape([batch, length, width])?)?;
        Ok((self.o_proj.forward(&out.mul(&gate)?)?, matrices))
    }
}
