//! A small language model: pre-norm transformer blocks over tokens. Radford et al.: Language models are
//! unsupervised multitask learners (2019).

use taper::{
    nn::{
        Embedding, LayerNorm, Parameter,
        functional::{AttentionOptions, scaled_dot_product_attention},
    },
    prelude::*,
};

/// The sizes of a [`Gpt`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct GptConfig {
    pub(crate) vocabulary: usize,
    pub(crate) width: usize,
    pub(crate) blocks: usize,
    pub(crate) heads: usize,
    /// The longest sequence.
    pub(crate) tokens: usize,
}

impl Default for GptConfig {
    fn default() -> GptConfig {
        GptConfig { vocabulary: 512, width: 256, blocks: 4, heads: 8, tokens: 128 }
    }
}

/// Causal attention, then a feed-forward layer on each token; both have residual connections.
#[derive(Debug, Module)]
pub(crate) struct Block {
    heads: usize,
    ln1: LayerNorm,
    qkv: Linear,
    out: Linear,
    ln2: LayerNorm,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(width: usize, heads: usize, rng: &Generator) -> Result<Block> {
        Ok(Block {
            heads,
            ln1: LayerNorm::new([width], rng.device())?,
            qkv: Linear::new(width, 3 * width, rng)?,
            out: Linear::new(width, width, rng)?,
            ln2: LayerNorm::new([width], rng.device())?,
            up: Linear::new(width, 4 * width, rng)?,
            down: Linear::new(4 * width, width, rng)?,
        })
    }

    /// Tokens `[N, T, width]`. Those that were `seen` come before them: it has their keys and then their
    /// values, `[N, 2 · heads, T, width / heads]`.
    fn forward(&self, x: &Tensor, seen: Option<&mut Option<Tensor>>) -> Result<Tensor> {
        let &[n, tokens, width] = x.dims() else {
            return Err(Error::invalid("Block", format!("tokens are [N, T, width], not {}", x.shape())));
        };
        let parts = self.qkv.forward(&self.ln1.forward(x)?)?.split(width, -1)?;
        let heads =
            |part: &Tensor| part.reshape([n, tokens, self.heads, width / self.heads])?.transpose(1, 2);
        let (query, mut keys, mut values) = (heads(&parts[0])?, heads(&parts[1])?, heads(&parts[2])?);
        // A single token sees all tokens before it, so it needs no mask.
        let mut is_causal = true;
        if let Some(seen) = seen {
            // One tensor for both, so that a token adds to it by one kernel.
            let mut both = Tensor::concat(&[&keys, &values], 1)?;
            if let Some(before) = seen.as_ref() {
                is_causal = false;
                both = Tensor::concat(&[before, &both], 2)?;
                [keys, values] = [both.narrow(1, 0, self.heads)?, both.narrow(1, self.heads, self.heads)?];
            }
            *seen = Some(both);
        }
        let options = AttentionOptions { is_causal, ..Default::default() };
        let attended = scaled_dot_product_attention(&query, &keys, &values, options)?;
        let x = x.add(&self.out.forward(&attended.transpose(1, 2)?.reshape([n, tokens, width])?)?)?;
        x.add(&self.down.forward(&self.up.forward(&self.ln2.forward(&x)?)?.gelu())?)
    }
}

/// Maps tokens `[N, T]`, integers below the vocabulary, to the logits of the next token at each position,
/// `[N, T, vocabulary]`.
#[derive(Debug, Module)]
pub(crate) struct Gpt {
    tok: Embedding,
    pos: Parameter,
    blocks: Vec<Block>,
    ln: LayerNorm,
    head: Linear,
}

impl Gpt {
    pub(crate) fn new(config: GptConfig, rng: &Generator) -> Result<Gpt> {
        let GptConfig { vocabulary, width, blocks, heads, tokens } = config;
        Ok(Gpt {
            tok: Embedding::new(vocabulary, width, rng)?,
            pos: Parameter::new(Tensor::zeros([tokens, width], rng.device())?)?,
            blocks: (0..blocks).map(|_| Block::new(width, heads, rng)).collect::<Result<_>>()?,
            ln: LayerNorm::new([width], rng.device())?,
            head: Linear::new(width, vocabulary, rng)?,
        })
    }

    /// `tokens` `[N, T]` continued by `count` tokens, each the most probable one: `[N, T + count]`. Every
    /// token is computed from the whole sequence.
    pub(crate) fn generate(&self, tokens: &Tensor, count: usize) -> Result<Tensor> {
        no_grad(|| {
            let mut tokens = tokens.clone();
            for _ in 0..count {
                let next = self.forward(&tokens)?.select(1, -1)?.argmax_axis(-1, true)?;
                tokens = Tensor::concat(&[&tokens, &next.to_dtype(tokens.dtype())?], 1)?;
            }
            Ok(tokens)
        })
    }

    /// The same as [`Gpt::generate`], but each block keeps the keys and values of earlier tokens.
    pub(crate) fn generate_cached(&self, tokens: &Tensor, count: usize) -> Result<Tensor> {
        no_grad(|| {
            let mut seen: Vec<Option<Tensor>> = vec![None; self.blocks.len()];
            let mut all = vec![tokens.clone()];
            let (mut new, mut at) = (tokens.clone(), 0);
            for _ in 0..count {
                let length = new.dims()[1];
                let mut x = self.tok.forward(&new)?.add(&self.pos.narrow(0, at, length)?)?;
                for (block, seen) in self.blocks.iter().zip(&mut seen) {
                    x = block.forward(&x, Some(seen))?;
                }
                let last = self.head.forward(&self.ln.forward(&x.select(1, -1)?)?)?;
                at += length;
                new = last.argmax_axis(-1, true)?.to_dtype(tokens.dtype())?;
                all.push(new.clone());
            }
            Tensor::concat(&all, 1)
        })
    }
}

impl Layer for Gpt {
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let mut x = self.tok.forward(tokens)?.add(&self.pos.narrow(0, 0, tokens.dims()[1])?)?;
        for block in &self.blocks {
            x = block.forward(&x, None)?;
        }
        self.head.forward(&self.ln.forward(&x)?)
    }
}
