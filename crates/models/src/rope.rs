//! Rotary position embedding with the scalings of `transformers` (`modeling_rope_utils.py`).
//!
//! Su et al.: RoFormer, enhanced transformer with rotary position embedding (2021).

use serde::{Deserialize, Serialize};
use tensor_core::{DType, Device, Error, Result, Tensor};

/// The `rope_parameters` (before version 5, `rope_scaling`) of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RopeScaling {
    /// `default`, `linear`, `dynamic`, `yarn`, `longrope`, `llama3` or `proportional`.
    pub rope_type: Option<String>,
    /// The former name of `rope_type`; many configurations have both.
    #[serde(rename = "type")]
    pub former_type: Option<String>,
    /// The base of the angles.
    pub rope_theta: Option<f64>,
    /// The part of the features that is rotated.
    pub partial_rotary_factor: Option<f64>,
    /// How many times the context is extended.
    pub factor: Option<f64>,
    /// The context of the training.
    pub original_max_position_embeddings: Option<usize>,
    /// The factor of queries and keys (yarn, longrope).
    pub attention_factor: Option<f64>,
    /// Rotations above which a frequency stays (yarn).
    pub beta_fast: Option<f64>,
    /// Rotations below which a frequency is divided (yarn).
    pub beta_slow: Option<f64>,
    /// Parts of the attention factor (yarn of DeepSeek).
    pub mscale: Option<f64>,
    /// As `mscale`.
    pub mscale_all_dim: Option<f64>,
    /// Whether the bounds of yarn are rounded to whole features; they are by default.
    pub truncate: Option<bool>,
    /// Factors of wavelengths for short contexts (longrope).
    pub short_factor: Option<Vec<f64>>,
    /// Factors of wavelengths for long contexts (longrope).
    pub long_factor: Option<Vec<f64>>,
    /// Wavelengths above context / this are divided (llama3).
    pub low_freq_factor: Option<f64>,
    /// Wavelengths below context / this stay (llama3).
    pub high_freq_factor: Option<f64>,
}

/// The frequencies of rotary embeddings.
#[derive(Clone, Debug)]
pub struct Rope {
    kind: Kind,
    base: f64,
    /// The number of rotated features.
    features: usize,
    context: usize,
    scaling: RopeScaling,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Default,
    Linear,
    Dynamic,
    Yarn,
    LongRope,
    Llama3,
    /// The last pairs do not rotate; the frequencies of the others are those of all features (Gemma 4).
    Proportional,
}

/// The names of the kinds in configurations.
const KINDS: &[(&str, Kind)] = &[
    ("default", Kind::Default),
    ("linear", Kind::Linear),
    ("dynamic", Kind::Dynamic),
    ("yarn", Kind::Yarn),
    ("longrope", Kind::LongRope),
    ("su", Kind::LongRope),
    ("llama3", Kind::Llama3),
    ("proportional", Kind::Proportional),
];

/// Cosines `[L, 1, E / 2]` and sines `[L, 2, E / 2]` for some positions, or `[N, 1, L, …]` if each row has
/// its own. The sines of the first of each pair are negative.
#[derive(Clone, Debug)]
pub struct RopeTables {
    pub(crate) cos: Tensor,
    pub(crate) sin: Tensor,
}

impl Rope {
    /// The embedding of `features` of each head with a base, `context` positions (the configuration's
    /// `max_position_embeddings`) and a scaling.
    ///
    /// # Errors
    /// An unknown scaling, or one that lacks a number it needs; an odd number of features, or more rotated
    /// ones than there are.
    #[track_caller]
    pub fn new(features: usize, base: f64, context: usize, scaling: &RopeScaling) -> Result<Rope> {
        let wrong = |message: String| Err(Error::invalid("Rope", message));
        let name = scaling.rope_type.as_deref().or(scaling.former_type.as_deref()).unwrap_or("default");
        let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
            return wrong(format!("rope_type \"{name}\" is none of {}", names.join(", ")));
        };
        let features = match scaling.partial_rotary_factor {
            Some(part) if !(0.0..=1.0).contains(&part) => {
                return wrong(format!("a part of {part} of the features is rotated: give one from 0 to 1"));
            }
            Some(_) if *kind == Kind::Proportional => features,
            Some(part) => (features as f64 * part) as usize,
            None => features,
        };
        if features == 0 || !features.is_multiple_of(2) {
            return wrong(format!("{features} rotated features of a head: an even number is needed"));
        }
        let base = scaling.rope_theta.unwrap_or(base);
        let needs: &[(&str, bool)] = match kind {
            Kind::Default | Kind::Proportional => &[],
            Kind::Linear | Kind::Dynamic | Kind::Yarn => &[("factor", scaling.factor.is_some())],
            Kind::LongRope => &[
                ("short_factor", scaling.short_factor.is_some()),
                ("long_factor", scaling.long_factor.is_some()),
            ],
            Kind::Llama3 => &[
                ("factor", scaling.factor.is_some()),
                ("low_freq_factor", scaling.low_freq_factor.is_some()),
                ("high_freq_factor", scaling.high_freq_factor.is_some()),
            ],
        };
        if let Some((missing, _)) = needs.iter().find(|(_, there)| !there) {
            return wrong(format!("rope_type \"{name}\" needs {missing}"));
        }
        let lengths = [&scaling.short_factor, &scaling.long_factor];
        if let Some(other) = lengths.into_iter().flatten().find(|factors| factors.len() != features / 2) {
            return wrong(format!("{} factors for {} pairs of features", other.len(), features / 2));
        }
        Ok(Rope { kind: *kind, base, features, context, scaling: scaling.clone() })
    }

    /// The angle per position of each pair of features, for a sequence of `length` positions.
    pub fn frequencies(&self, length: usize) -> Vec<f64> {
        let Rope { features, context, scaling, .. } = self;
        let width = *features as f64;
        let factor = scaling.factor.unwrap_or(1.0);
        let original = scaling.original_max_position_embeddings.unwrap_or(*context);
        let base = if matches!(self.kind, Kind::Dynamic) && length > *context {
            let longer = factor * length as f64 / *context as f64 - (factor - 1.0);
            self.base * longer.powf(width / (width - 2.0))
        } else {
            self.base
        };
        let plain = (0..features / 2).map(|i| base.powf(-2.0 * i as f64 / width));
        match self.kind {
            Kind::Default | Kind::Dynamic => plain.collect(),
            Kind::Proportional => {
                let rotated = (scaling.partial_rotary_factor.unwrap_or(1.0) * width) as usize / 2;
                plain.enumerate().map(|(i, rate)| if i < rotated { rate / factor } else { 0.0 }).collect()
            }
            Kind::Linear => plain.map(|rate| rate / factor).collect(),
            Kind::Yarn => {
                let (low, high) = self.yarn_bounds(original);
                plain
                    .enumerate()
                    .map(|(i, rate)| {
                        let divided = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                        rate * (divided / factor + 1.0 - divided)
                    })
                    .collect()
            }
            Kind::LongRope => {
                let factors = if self.is_long(length) { &scaling.long_factor } else { &scaling.short_factor };
                plain.zip(factors.iter().flatten()).map(|(rate, factor)| rate / factor).collect()
            }
            Kind::Llama3 => {
                let low = scaling.low_freq_factor.unwrap_or(1.0);
                let high = scaling.high_freq_factor.unwrap_or(4.0);
                plain
                    .map(|rate| {
                        // Rotations in the original context.
                        let rotations = original as f64 * rate / std::f64::consts::TAU;
                        let kept = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
                        rate * (kept + (1.0 - kept) / factor)
                    })
                    .collect()
            }
        }
    }

    /// Whether texts above some length have other frequencies than texts below: the keys of a cache then have
    /// to be computed again. (The frequencies of `dynamic` grow with each position; the keys
    /// keep those with which they were computed, as in `transformers`.)
    pub(crate) fn has_long_frequencies(&self) -> bool {
        self.kind == Kind::LongRope
    }

    /// Whether a text of this length has the frequencies of long texts.
    pub(crate) fn is_long(&self, length: usize) -> bool {
        let original = self.scaling.original_max_position_embeddings.unwrap_or(self.context);
        self.has_long_frequencies() && length > original
    }

    /// The pairs of features between which yarn divides frequencies gradually.
    fn yarn_bounds(&self, original: usize) -> (f64, f64) {
        let width = self.features as f64;
        let pair_of = |rotations: f64| {
            width * (original as f64 / (rotations * std::f64::consts::TAU)).ln() / (2.0 * self.base.ln())
        };
        let mut low = pair_of(self.scaling.beta_fast.unwrap_or(32.0));
        let mut high = pair_of(self.scaling.beta_slow.unwrap_or(1.0));
        if self.scaling.truncate.unwrap_or(true) {
            (low, high) = (low.floor(), high.ceil());
        }
        let (low, high) = (low.max(0.0), high.min(width - 1.0));
        (low, if low == high { high + 0.001 } else { high })
    }

    /// The factor of scores in DeepSeek's models, whose frequencies are scaled: (0.1 m ln(factor) + 1)² for
    /// an `mscale_all_dim` of m.
    pub(crate) fn latent_factor(&self) -> f64 {
        match (self.kind, self.scaling.mscale_all_dim, self.scaling.factor) {
            (Kind::Default, ..) | (_, None | Some(0.0), _) | (_, _, None) => 1.0,
            (_, Some(times), Some(factor)) => yarn_factor(factor, times).powi(2),
        }
    }

    /// The factor of the cosines and sines.
    pub fn attention_factor(&self) -> f64 {
        let scaling = &self.scaling;
        if let Some(factor) = scaling.attention_factor {
            return factor;
        }
        let original = scaling.original_max_position_embeddings.unwrap_or(self.context);
        let factor = scaling.factor.unwrap_or(self.context as f64 / original as f64);
        let scale = |times: f64| yarn_factor(factor, times);
        match self.kind {
            Kind::Default | Kind::Linear | Kind::Dynamic | Kind::Llama3 | Kind::Proportional => 1.0,
            Kind::Yarn => match (scaling.mscale, scaling.mscale_all_dim) {
                (Some(one), Some(all)) if one != 0.0 && all != 0.0 => scale(one) / scale(all),
                _ => scale(1.0),
            },
            Kind::LongRope if factor > 1.0 => (1.0 + factor.ln() / (original as f64).ln()).sqrt(),
            Kind::LongRope => 1.0,
        }
    }

    /// The tables for `length` positions from `first`. With `pads`, row n of a batch begins after that many
    /// positions of padding, and both its positions and its length count from there.
    ///
    /// # Errors
    /// A dtype that the device lacks, or too little memory.
    #[track_caller]
    pub fn tables(
        &self,
        first: usize,
        length: usize,
        pads: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<RopeTables> {
        let scale = self.attention_factor();
        let rows: &[usize] = if pads.is_empty() { &[0] } else { pads };
        let mut angles: Vec<f64> = Vec::with_capacity(rows.len() * length * self.features / 2);
        for pad in rows {
            let rates = self.frequencies((first + length).saturating_sub(*pad));
            let positions = (first..first + length).map(|at| at.saturating_sub(*pad));
            angles.extend(positions.flat_map(|at| rates.iter().map(move |rate| at as f64 * rate)));
        }
        let half = self.features / 2;
        let table = |functions: &[fn(f64) -> f64]| -> Result<Tensor> {
            let of_position = |angles: &[f64]| {
                let rows =
                    functions.iter().map(|function| angles.iter().map(|&angle| scale * function(angle)));
                rows.flatten().collect::<Vec<f64>>()
            };
            let values: Vec<f64> = angles.chunks(half.max(1)).flat_map(of_position).collect();
            let table = Tensor::new(values, (dtype, device))?;
            match pads.is_empty() {
                true => table.reshape([length, functions.len(), half]),
                false => table.reshape([pads.len(), 1, length, functions.len(), half]),
            }
        };
        Ok(RopeTables { cos: table(&[f64::cos])?, sin: table(&[|angle| -angle.sin(), f64::sin])? })
    }
}

/// The factor of yarn for a context that is `factor` times as long.
fn yarn_factor(factor: f64, times: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * times * factor.ln() + 1.0 }
}

impl RopeTables {
    /// Rotates `[N, heads, L, features]`: features i and i + E/2 of the first E are a pair; the others stay.
    ///
    /// # Errors
    /// Fewer features than the tables have, or another length.
    #[track_caller]
    pub fn rotate(&self, x: &Tensor) -> Result<Tensor> {
        self.rotate_pairs(&self.split(x, |dims, half| [dims, &[2, half]].concat())?, x)
    }

    /// Rotates `[N, heads, L, features]`, where features 2 i and 2 i + 1 of the first E are a pair. The first
    /// features of all pairs come before the second ones in the result: products of queries and keys do not
    /// depend on their order.
    ///
    /// # Errors
    /// As [`RopeTables::rotate`].
    #[track_caller]
    pub fn rotate_neighbours(&self, x: &Tensor) -> Result<Tensor> {
        let pairs = self.split(x, |dims, half| [dims, &[half, 2]].concat())?;
        self.rotate_pairs(&pairs.transpose(-1, -2)?, x)
    }

    /// The first features of `x` on two axes.
    #[track_caller]
    fn split(&self, x: &Tensor, shape: impl Fn(&[usize], usize) -> Vec<usize>) -> Result<Tensor> {
        let half = self.half();
        let outer = x.rank().saturating_sub(1);
        x.narrow(-1, 0, 2 * half)?.reshape(shape(&x.dims()[..outer], half))
    }

    /// The number of pairs.
    fn half(&self) -> usize {
        self.cos.dims().last().copied().unwrap_or(0)
    }

    /// The rotation of pairs `[…, 2, E / 2]`, which are the first features of `x`, and its other features.
    /// One kernel reads each feature and its partner: a · cos − b · sin and b · cos + a · sin.
    #[track_caller]
    fn rotate_pairs(&self, pairs: &Tensor, x: &Tensor) -> Result<Tensor> {
        let half = self.half();
        let rotated = pairs.mul(&self.cos)?.add(&pairs.flip(-2)?.mul(&self.sin)?)?.flatten(-2, -1)?;
        match x.dims().last().copied().unwrap_or(0) - 2 * half {
            0 => Ok(rotated),
            rest => Tensor::concat(&[rotated, x.narrow(-1, 2 * half, rest)?], -1),
        }
    }
}
