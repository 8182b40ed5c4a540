//! [`Stacks`]: files in which one tensor has the weights of all experts. They are split as they are read, so
//! that a model has a projection for each expert, whatever its file.

use nn::Linear;
use tensor_core::{Error, GgmlType, Result, Tensor};

use super::{Expert, GateFunction, MixtureConfig, OP};
use crate::{
    WeightSource,
    gguf::{parts_of, rows_of},
};

/// The experts' weights below a name.
pub(super) struct Stacks<'a> {
    source: &'a WeightSource,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Gate, up and down `[experts, outputs, inputs]` with biases `[experts, outputs]`: GGUF files.
    Separate,
    /// Gate and up as the first and the second half of `[experts, 2 · inner, width]`, and down `[experts,
    /// width, inner]`: Qwen 3.5.
    Halves,
    /// gpt-oss: gate and up are the columns 0, 2, 4, … and 1, 3, 5, … of `[experts, width, 2 · inner]`, and
    /// down is `[experts, inner, width]`. A bias has the name of its weight with `_bias` behind it.
    Alternating,
    /// The same in MXFP4, with outputs before inputs: bytes `[experts, outputs, inputs / 32, 16]` and scales
    /// `[experts, outputs, inputs / 32]`.
    AlternatingBlocks,
}

/// A weight and a bias for each expert.
type Parts = Vec<(Tensor, Option<Tensor>)>;

impl<'a> Stacks<'a> {
    /// The stacks below the source's name; none if it has a tensor for each expert.
    #[track_caller]
    pub(super) fn find(source: &'a WeightSource, config: &MixtureConfig) -> Result<Option<Stacks<'a>>> {
        let joint = match config.gate {
            GateFunction::Clamped { .. } => Kind::Alternating,
            GateFunction::Activation(_) => Kind::Halves,
        };
        let kinds = [
            (format!("{}.weight", config.names[0]), Kind::Separate),
            ("gate_up_proj".into(), joint),
            ("gate_up_proj_blocks".into(), Kind::AlternatingBlocks),
        ];
        if source.has(&format!("0.{}.weight", config.names[0])) {
            return Ok(None);
        }
        Ok(kinds.iter().find(|(name, _)| source.has(name)).map(|(_, kind)| Stacks { source, kind: *kind }))
    }

    /// The experts, in their order.
    #[track_caller]
    pub(super) fn experts(&self, config: &MixtureConfig) -> Result<Vec<Expert>> {
        let (width, inner) = (config.width, config.inner);
        let [gate, up, down] = match self.kind {
            Kind::Separate => [
                self.separate(config.names[0], [config.experts, inner, width], config.bias)?,
                self.separate(config.names[1], [config.experts, inner, width], config.bias)?,
                self.separate(config.names[2], [config.experts, width, inner], config.bias)?,
            ],
            Kind::Halves => {
                let both =
                    parts_of(&self.source.stored("gate_up_proj", &[config.experts, 2 * inner, width])?)?;
                let down = parts_of(&self.source.stored("down_proj", &[config.experts, width, inner])?)?;
                let half = |from: usize| -> Result<Parts> {
                    let rows: Vec<usize> = (from..from + inner).collect();
                    both.iter().map(|weight| Ok((rows_of(weight, &rows)?, None))).collect()
                };
                [half(0)?, half(inner)?, down.into_iter().map(|weight| (weight, None)).collect()]
            }
            Kind::Alternating | Kind::AlternatingBlocks => {
                let both = self.joint("gate_up_proj", [config.experts, 2 * inner, width])?;
                let down = self.joint("down_proj", [config.experts, width, inner])?;
                let every_other = |from: usize| -> Result<Parts> {
                    let part = |(weight, bias): &(Tensor, Option<Tensor>)| {
                        let bias = bias.as_ref().map(|bias| bias.slice_step(0, from.., 2)?.contiguous());
                        let rows: Vec<usize> = (from..2 * inner).step_by(2).collect();
                        Ok((rows_of(weight, &rows)?, bias.transpose()?))
                    };
                    both.iter().map(part).collect()
                };
                [every_other(0)?, every_other(1)?, down]
            }
        };
        let linear = |(weight, bias): (Tensor, Option<Tensor>)| -> Result<Linear> {
            Ok(Linear::from_weight(settled(weight)?, bias.map(settled).transpose()?))
        };
        let experts = gate.into_iter().zip(up).zip(down).map(|((gate, up), down)| {
            Ok(Expert {
                gate: linear(gate)?,
                up: linear(up)?,
                down: linear(down)?,
                function: config.gate,
                names: config.names,
            })
        });
        experts.collect()
    }

    /// A stack of [`Kind::Separate`].
    #[track_caller]
    fn separate(&self, name: &str, shape: [usize; 3], bias: bool) -> Result<Parts> {
        let at = self.source.at(name);
        let [experts, outputs, _] = shape;
        let weights = parts_of(&at.stored("weight", &shape)?)?;
        let biases = match bias {
            true => at.stored("bias", &[experts, outputs])?.unbind(0)?.into_iter().map(Some).collect(),
            false => vec![None; experts],
        };
        Ok(weights.into_iter().zip(biases).collect())
    }

    /// A stack of gpt-oss, with outputs before inputs.
    #[track_caller]
    fn joint(&self, name: &str, [experts, outputs, inputs]: [usize; 3]) -> Result<Parts> {
        let weights = match self.kind {
            Kind::AlternatingBlocks => self.blocks(name, [experts, outputs, inputs])?,
            Kind::Separate | Kind::Halves | Kind::Alternating => {
                let all = self.source.stored(name, &[experts, inputs, outputs])?;
                all.unbind(0)?.iter().map(|weight| weight.t()?.contiguous()).collect::<Result<_>>()?
            }
        };
        let biases = self.source.stored(&format!("{name}_bias"), &[experts, outputs])?;
        Ok(weights.into_iter().zip(biases.unbind(0)?.into_iter().map(Some)).collect())
    }

    /// A stack in MXFP4. The file has elements 2 j and 2 j + 1 in byte j of a block, GGUF's format has
    /// elements j and j + 16 there.
    #[track_caller]
    fn blocks(&self, name: &str, [experts, outputs, inputs]: [usize; 3]) -> Result<Vec<Tensor>> {
        let format = GgmlType::MXFP4;
        let elements = format.block_elements();
        if !inputs.is_multiple_of(elements) {
            let message = format!("{inputs} features are no multiple of the {elements} in a block");
            return Err(Error::invalid(OP, message));
        }
        let count = inputs / elements;
        let shape = [experts, outputs, count, elements / 2];
        let packed = self.source.stored(&format!("{name}_blocks"), &shape)?.to_vec::<u8>()?;
        let scales = self.source.stored(&format!("{name}_scales"), &shape[..3])?.to_vec::<u8>()?;
        let mut bytes = Vec::with_capacity(scales.len() * format.block_bytes());
        for (block, scale) in packed.chunks_exact(elements / 2).zip(scales) {
            let element = |at: usize| (block[at / 2] >> (at % 2 * 4)) & 15;
            bytes.push(scale);
            bytes.extend((0..elements / 2).map(|j| element(j) | element(j + elements / 2) << 4));
        }
        let (dtype, device) = (self.source.dtype(), self.source.device());
        let each = bytes.len() / experts;
        let parts = bytes.chunks_exact(each.max(1));
        parts.map(|part| Tensor::from_blocks(format, [outputs, inputs], dtype, part, device)).collect()
    }
}

/// A parameter with this value. Weights in blocks are not trained.
#[track_caller]
fn settled(value: Tensor) -> Result<Tensor> {
    let trained = value.block_format().is_none();
    // A copy of a view has its own memory; a copy of blocks would decode them.
    let value = if trained { value.contiguous()? } else { value };
    value.eval()?;
    value.into_cell(trained)
}
