//! Optimizer states in 8 bits: blocks of 256 numbers share a scale, and each number is one of 256 values.

use std::sync::LazyLock;

use tensor_core::{DType, Device, Error, Result, Tensor};

use crate::{AdamConfig, AdamWConfig, ParamGroups, ParamState, Part, Setting, SgdConfig, UpdateRule};

/// The number of elements that share a scale.
const BLOCK: usize = 256;

/// A part of a state that can be kept in 8 bits: its name, the names of its codes and scales, and whether its
/// numbers have signs.
const CODED: &[(&str, &str, &str, bool)] = &[
    ("exp_avg", "exp_avg_8bit", "exp_avg_absmax", true),
    ("exp_avg_sq", "exp_avg_sq_8bit", "exp_avg_sq_absmax", false),
    ("max_exp_avg_sq", "max_exp_avg_sq_8bit", "max_exp_avg_sq_absmax", false),
    ("momentum_buffer", "momentum_buffer_8bit", "momentum_buffer_absmax", true),
];

/// The settings of an optimizer whose states are kept in 8 bits: a quarter of the memory of f32. See
/// [`Adam8bit`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EightBit<C> {
    /// The settings of the optimizer itself.
    pub config: C,
    /// Parameters with fewer elements keep their states as they are. 4096 by default.
    pub min_8bit_size: u64,
}

impl<C> EightBit<C> {
    /// With the defaults of `bitsandbytes`.
    pub fn new(config: C) -> EightBit<C> {
        EightBit { config, min_8bit_size: 4096 }
    }
}

impl<C: Default> Default for EightBit<C> {
    fn default() -> EightBit<C> {
        EightBit::new(C::default())
    }
}

/// [`Adam`](crate::Adam) with its means in 8 bits: `bitsandbytes.optim.Adam8bit`.
///
/// Each step decodes the states to f32, updates as usual, and encodes them again. A block of 256 elements is
/// divided by its greatest magnitude, which is kept in f32, and each quotient is rounded to the nearest of
/// 256 values, whose distance grows with their size over seven powers of ten (the dynamic map). Means have a
/// map with signs, means of squares one without.
///
/// Dettmers, Lewis, Shleifer, Zettlemoyer: 8-bit optimizers via block-wise quantization (2022).
///
/// ```
/// use autograd::TensorGrad;
/// use optim::{Adam8bit, AdamConfig, EightBit, Optimizer};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let x = Tensor::ones([64, 64], &backend_cpu::cpu())?.requires_grad();
/// let mut adam = Adam8bit::new([x.clone()], EightBit::new(AdamConfig { lr: 0.1, ..Default::default() }));
/// x.square().sum().backward()?;
/// adam.step()?;
/// assert!((x.to_vec::<f32>()?[0] - 0.9).abs() < 1e-3);
/// # Ok(()) }
/// ```
pub type Adam8bit = ParamGroups<EightBit<AdamConfig>>;

/// [`AdamW`](crate::AdamW) with its means in 8 bits; see [`Adam8bit`]. `bitsandbytes.optim.AdamW8bit`.
pub type AdamW8bit = ParamGroups<EightBit<AdamWConfig>>;

/// [`Sgd`](crate::Sgd) with its momentum in 8 bits; see [`Adam8bit`]. `bitsandbytes.optim.SGD8bit`.
pub type Sgd8bit = ParamGroups<EightBit<SgdConfig>>;

/// A tensor in 8 bits.
#[derive(Clone, Debug, Default)]
struct Coded {
    /// The number of each element's value in its map, in the parameter's shape.
    codes: Option<Tensor>,
    /// The greatest magnitude of each block.
    absmax: Option<Tensor>,
}

/// The state of a parameter in an [`EightBit`] optimizer: the optimizer's own, of which the parts that are
/// coded are absent between steps.
#[derive(Clone, Debug, Default)]
pub struct EightBitState<S> {
    state: S,
    /// One for each row of [`CODED`].
    coded: [Coded; CODED.len()],
}

impl<S: ParamState> ParamState for EightBitState<S> {
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
        let own = self.state.parts().into_iter().map(|(name, part)| match part {
            // It is absent while it is coded.
            Part::Tensor(tensor) if row(name).is_some() => (name, Part::OptionalTensor(tensor)),
            part => (name, part),
        });
        let mut parts: Vec<_> = own.collect();
        for (Coded { codes, absmax }, (_, of_codes, of_absmax, _)) in self.coded.iter_mut().zip(CODED) {
            let shape = |parameter: &Tensor| parameter.dims().to_vec();
            parts.push((*of_codes, Part::Derived { tensor: codes, dtype: DType::U8, shape }));
            let shape = |parameter: &Tensor| vec![parameter.numel().div_ceil(BLOCK)];
            parts.push((*of_absmax, Part::Derived { tensor: absmax, dtype: DType::F32, shape }));
        }
        parts
    }
}

/// The row of [`CODED`] of a part.
fn row(name: &str) -> Option<usize> {
    CODED.iter().position(|(known, ..)| *known == name)
}

impl<C: UpdateRule> UpdateRule for EightBit<C> {
    const NAME: &'static str = C::NAME;
    type State = EightBitState<C::State>;

    fn check(&self) -> Result<()> {
        self.config.check()
    }

    fn check_parameter(&self, parameter: &Tensor) -> Result<()> {
        if parameter.dtype() == DType::F64 {
            let message = "states in 8 bits are for parameters of f32 or half precision, not f64";
            return Err(Error::invalid(C::NAME, message));
        }
        self.config.check_parameter(parameter)
    }

    fn lr(&mut self) -> &mut f64 {
        self.config.lr()
    }

    fn settings(&mut self) -> Vec<(&'static str, Setting<'_>)> {
        let mut settings = self.config.settings();
        settings.push(("min_8bit_size", Setting::Count(&mut self.min_8bit_size)));
        settings
    }

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut Self::State) -> Result<Tensor> {
        let EightBitState { state, coded } = state;
        for (name, tensor) in tensors(state) {
            let Some(row) = row(name) else { continue };
            if let Coded { codes: Some(codes), absmax: Some(absmax) } = std::mem::take(&mut coded[row]) {
                *tensor = Some(decode(&codes, &absmax, CODED[row].3)?);
            }
        }
        let value = self.config.update(parameter, grad, state)?;
        if (parameter.numel() as u64) < self.min_8bit_size {
            return Ok(value);
        }
        for (name, tensor) in tensors(state) {
            let Some(row) = row(name) else { continue };
            if let Some(tensor) = tensor.take() {
                coded[row] = encode(&tensor, CODED[row].3)?;
            }
        }
        Ok(value)
    }
}

/// The tensors of a state with their names.
fn tensors<S: ParamState>(state: &mut S) -> impl Iterator<Item = (&'static str, &mut Option<Tensor>)> {
    state.parts().into_iter().filter_map(|(name, part)| match part {
        Part::Tensor(tensor) | Part::OptionalTensor(tensor) => Some((name, tensor)),
        Part::Derived { .. } | Part::Count(_) | Part::Float(_) => None,
    })
}

/// The 256 values of the dynamic map, sorted. For each i from 0 to 6 the numbers between 10ⁱ⁻⁷ and 10ⁱ⁻⁶ are
/// divided into 2ⁱ equal intervals, or 2ⁱ⁺¹ without signs, of which the means are values; so are 0 and 1.
fn dynamic_map(signed: bool) -> Vec<f32> {
    let mut values = vec![0.0, 1.0];
    for i in 0..7i32 {
        let intervals = 1 << if signed { i } else { i + 1 };
        let width = 0.9 / f64::from(intervals);
        for k in 0..intervals {
            let value = 10f64.powi(i - 6) * (0.1 + width * (f64::from(k) + 0.5));
            values.push(value);
            if signed {
                values.push(-value);
            }
        }
    }
    values.sort_by(f64::total_cmp);
    values.into_iter().map(|value| value as f32).collect()
}

/// The maps without and with signs, and the boundaries between neighbours.
static MAPS: LazyLock<[(Vec<f32>, Vec<f32>); 2]> = LazyLock::new(|| {
    [false, true].map(|signed| {
        let map = dynamic_map(signed);
        let between = map.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
        (map, between)
    })
});

fn vector(values: &[f32], device: &Device) -> Result<Tensor> {
    Tensor::from_slice(values, [values.len()], device)
}

/// The numbers in blocks `[blocks, 256]`, with zeros after the last.
fn in_blocks(tensor: &Tensor) -> Result<Tensor> {
    let count = tensor.numel();
    let blocks = count.div_ceil(BLOCK);
    let mut flat = tensor.reshape([count])?;
    if blocks * BLOCK != count {
        let rest = Tensor::zeros([blocks * BLOCK - count], (tensor.dtype(), &tensor.device()))?;
        flat = Tensor::concat(&[flat, rest], 0)?;
    }
    flat.reshape([blocks, BLOCK])
}

/// Numbers in blocks in the shape of a parameter.
fn out_of_blocks(blocks: &Tensor, dims: &[usize]) -> Result<Tensor> {
    blocks.flatten_all().narrow(0, 0, dims.iter().product::<usize>())?.reshape(dims)
}

fn encode(tensor: &Tensor, signed: bool) -> Result<Coded> {
    let blocks = in_blocks(tensor)?;
    let absmax = blocks.abs().amax(1, true)?;
    // A block of zeros has the scale 0, and the codes of 0.
    let scale = absmax.masked_fill(&absmax.eq_scalar(0.0), 1.0)?;
    let boundaries = vector(&MAPS[usize::from(signed)].1, &tensor.device())?;
    let codes = blocks.div(&scale)?.bucketize(&boundaries, false)?.to_dtype(DType::U8)?;
    let codes = out_of_blocks(&codes, tensor.dims())?;
    Ok(Coded { codes: Some(codes), absmax: Some(absmax.flatten_all().to_dtype(DType::F32)?) })
}

fn decode(codes: &Tensor, absmax: &Tensor, signed: bool) -> Result<Tensor> {
    let map = vector(&MAPS[usize::from(signed)].0, &codes.device())?;
    let blocks = in_blocks(&codes.to_dtype(DType::I32)?)?;
    let values = map.take(&blocks)?.mul(&absmax.unsqueeze(1)?)?;
    out_of_blocks(&values, codes.dims())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maps_are_those_of_bitsandbytes() {
        for (signed, least, second) in [(true, -1.0 + 0.9 / 128.0, -1.0 + 2.7 / 128.0), (false, 0.0, 3.25e-7)]
        {
            let map = dynamic_map(signed);
            assert_eq!(map.len(), 256);
            assert!(map.windows(2).all(|pair| pair[0] < pair[1]));
            assert!((map[0] - least).abs() < 1e-6 && (map[1] - second).abs() < 1e-6 * second.abs());
            assert_eq!(map[255], 1.0);
            assert!(map.contains(&0.0));
        }
    }
}
