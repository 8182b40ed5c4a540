//! A token of a language model whose weights are in blocks.

use taper::{
    Generator, GgmlType, Tensor,
    models::{LanguageModel, Llama, LlamaConfig, WeightSource},
    nn::{Module, StateDict},
    no_grad,
};

use super::pair;
use crate::{
    Result,
    case::Case,
    check::{all, host, part},
};

/// Positions before the token.
const BEFORE: usize = 64;
/// The words of all weights, 96.6 MB: those in blocks, and the norms.
const WEIGHT_WORDS: usize = 24_144_192;

/// A token of a model with the sizes of SmolLM2-135M, in the formats of its file: Q4_1, and Q8_0 for the
/// table of tokens, which is the output layer too.
pub(super) fn token() -> Case {
    let config = LlamaConfig {
        vocab_size: 49_152,
        hidden_size: 576,
        intermediate_size: 1_536,
        num_hidden_layers: 30,
        num_attention_heads: 9,
        num_key_value_heads: Some(3),
        tie_word_embeddings: Some(true),
        ..LlamaConfig::default()
    };
    Case::new("smollm2_token_q4_1", move |inputs| {
        let (cpu, device, config) = (taper::cpu(), inputs.rng.device(), config.clone());
        let random = Llama::new(&config, &Generator::seed(0, &cpu))?;
        let in_blocks = |(name, tensor): (String, Tensor)| {
            let format = match tensor.dims() {
                [49_152, _] => GgmlType::Q8_0,
                [_, _] => GgmlType::Q4_1,
                _ => return Ok((name, tensor)),
            };
            Ok((name, tensor.quantize(format, None)?))
        };
        let state: StateDict = random.state_dict().into_iter().map(in_blocks).collect::<Result<_>>()?;
        let model = Llama::new(&config, WeightSource::state_dict(state.clone(), device))?;
        let ids: Vec<i32> = (0..=BEFORE as i32).map(|at| at * 7919 % 49_152).collect();
        let step = move |model: &Llama, ids: &[i32], cache: &mut taper::models::KvCache| {
            let ids = Tensor::from_vec(ids.to_vec(), [1, ids.len()], &model.device())?;
            no_grad(|| model.next_logits(&ids, cache))
        };
        let mut cache = model.new_cache();
        step(&model, &ids[..BEFORE], &mut cache)?.eval()?;
        let last = ids[BEFORE..].to_vec();
        let call = move || {
            cache.truncate(BEFORE)?;
            let logits = step(&model, &last, &mut cache)?;
            logits.eval()?;
            Ok(vec![logits])
        };
        pair(call, move |results, _| {
            // The same numbers without blocks, in one pass.
            let plain = state.iter().map(|(name, tensor)| (name.clone(), tensor.dequantize())).collect();
            let model = Llama::new(&config, WeightSource::state_dict(plain, &cpu))?;
            let whole = step(&model, &ids, &mut model.new_cache())?.to_f64_vec()?;
            all("logits", &host(&results[0])?, &whole, part(&results[0].device(), 1e-4))
        })
    })
    .elements(WEIGHT_WORDS)
}
