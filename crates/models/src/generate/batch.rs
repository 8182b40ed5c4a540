//! Several prompts at once.

use tensor_core::{Error, Result};

use super::{GenerationConfig, OP, Sampler, SamplingConfig, TextSteps, check_tokens, table};
use crate::LanguageModel;

/// Continues several prompts of any lengths in one batch; a result has the new tokens of one prompt.
///
/// Shorter prompts are padded at the left, and the padding is hidden from attention, so that each text is the
/// one that the prompt alone would give. With a temperature, row k draws with the seed plus k.
///
/// # Errors
/// No prompts or an empty one, a token that the model does not know, or settings that [`Sampler::new`]
/// refuses.
#[track_caller]
pub fn generate_batch<M: LanguageModel + ?Sized>(
    model: &M,
    prompts: &[Vec<u32>],
    config: &GenerationConfig,
) -> Result<Vec<Vec<u32>>> {
    if prompts.is_empty() {
        return Err(Error::invalid(OP, "no prompts: give at least one"));
    }
    for prompt in prompts {
        check_tokens(OP, model, prompt, 1)?;
    }
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let pads: Vec<usize> = prompts.iter().map(|prompt| longest - prompt.len()).collect();
    let mut samplers = Vec::with_capacity(prompts.len());
    for k in 0..prompts.len() {
        let seed = config.sampling.seed.wrapping_add(k as u64);
        samplers.push(Sampler::new(&SamplingConfig { seed, ..config.sampling.clone() })?);
    }
    let mut cache = model.new_cache();
    cache.set_pads(pads.clone())?;
    let (device, mut steps) = (model.device(), TextSteps::new());
    let mut rows: Vec<Vec<u32>> = prompts
        .iter()
        .zip(&pads)
        .map(|(prompt, pad)| std::iter::repeat_n(0, *pad).chain(prompt.iter().copied()).collect())
        .collect();
    let mut texts: Vec<Vec<u32>> = vec![Vec::new(); prompts.len()];
    let mut finished = vec![false; prompts.len()];
    for _ in 0..config.max_new_tokens {
        let ids = table(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>(), &device)?;
        let logits = steps.next_logits(model, &ids, &mut cache)?;
        let logits = cache.read(&logits)?;
        for (k, logits) in logits.chunks_exact(model.vocab_size()).enumerate() {
            // A finished row goes on with any token, which nothing reads.
            rows[k] = vec![0];
            if finished[k] {
                continue;
            }
            let (id, _) = config.choose(&mut samplers[k], logits, &prompts[k], &texts[k])?;
            finished[k] = config.stop_tokens.contains(&id);
            if !finished[k] {
                texts[k].push(id);
                rows[k] = vec![id];
            }
        }
        if finished.iter().all(|done| *done) {
            break;
        }
    }
    Ok(texts)
}
