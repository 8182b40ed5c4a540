//! `/v1/embeddings`: texts as vectors of length 1.

use std::{sync::Arc, time::Instant};

use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use taper::{nn::Module, no_grad, tensor_core::lock};

use super::{
    Server,
    failure::{Failure, json_response},
    metrics::Ended,
    request::OneOrMany,
    served::Sentences,
};

/// The greatest number of texts of a request, which is OpenAI's.
const MAX_TEXTS: usize = 2048;
/// The texts that are computed at once.
const BATCH_TEXTS: usize = 32;

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Float,
    Base64,
}

#[derive(Deserialize)]
pub(super) struct EmbeddingRequest {
    model: String,
    input: OneOrMany<String>,
    encoding_format: Option<Encoding>,
    dimensions: Option<usize>,
}

/// Makes vectors of texts.
pub(super) async fn answer(server: &Arc<Server>, request: EmbeddingRequest) -> Result<Response, Failure> {
    let served = server.model(&request.model)?;
    served.sentences()?;
    let _place = served.place(server.limits.max_queue)?;
    let texts = request.input.into_vec();
    if !(1..=MAX_TEXTS).contains(&texts.len()) {
        let message = format!("{} texts: give from 1 to {MAX_TEXTS}", texts.len());
        return Err(Failure::field("input", message));
    }
    let begin = Instant::now();
    let model = served.clone();
    let computed = tokio::task::spawn_blocking(move || vectors(model.sentences()?, &texts));
    let (vectors, tokens) = computed.await.map_err(|error| Failure::server(error.to_string()))??;
    let features = vectors.first().map_or(0, Vec::len);
    if request.dimensions.is_some_and(|wanted| wanted != features) {
        let message = format!("the vectors of this model have {features} dimensions");
        return Err(Failure::field("dimensions", message));
    }
    let ended = Ended {
        prompt_tokens: tokens,
        generated_tokens: 0,
        cancelled: false,
        duration: begin.elapsed(),
        first_token: None,
    };
    server.metrics.ended(&served.name, &ended);
    let encoding = request.encoding_format.unwrap_or_default();
    let data = vectors.iter().enumerate().map(|(index, vector)| {
        let vector = match encoding {
            Encoding::Float => json!(vector),
            Encoding::Base64 => {
                json!(base64(&vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()))
            }
        };
        json!({"object": "embedding", "index": index, "embedding": vector})
    });
    Ok(json_response(&json!({
        "object": "list",
        "data": data.collect::<Vec<Json>>(),
        "model": served.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })))
}

/// The vectors of texts, and the number of tokens.
fn vectors(model: &Sentences, texts: &[String]) -> Result<(Vec<Vec<f32>>, usize), Failure> {
    let wrong = |error: taper::Error| Failure::field("input", error.kind().to_string());
    let mut tokens = 0;
    let encoder = lock(&model.encoder);
    let device = encoder.parameters()[0].device();
    let mut vectors = Vec::new();
    for batch in texts.chunks(BATCH_TEXTS) {
        let (ids, mask) = model.tokenizer.encode_batch(batch, usize::MAX, &device).map_err(wrong)?;
        tokens += mask.to_vec::<bool>().map_err(wrong)?.into_iter().filter(|is_token| *is_token).count();
        let computed = no_grad(|| encoder.sentence_vectors(&ids, &mask)?.to_vec2::<f32>());
        vectors.extend(computed.map_err(wrong)?);
    }
    Ok((vectors, tokens))
}

/// Bytes in base64, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, k| bits << 8 | u32::from(group.get(k).copied().unwrap_or(0)));
        for k in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * k) & 63) as usize];
            text.push(if k <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_has_padding() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }
}
