//! `/v1/embeddings`: texts as vectors of length 1.

use std::sync::Arc;

use axum::response::Response;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use taper::{nn::Module, no_grad, tensor_core::lock};

use super::{
    Server,
    compute::{Tokens, Wanted, compute, count},
    failure::{Failure, json_response},
    request::OneOrMany,
    served::{Kind, Sentences, Served},
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
    let place = server.pool.model(&request.model, Kind::Sentences).await?;
    let texts = request.input.into_vec();
    if !(1..=MAX_TEXTS).contains(&texts.len()) {
        let message = format!("{} texts: give from 1 to {MAX_TEXTS}", texts.len());
        return Err(Failure::field("input", message));
    }
    let work = move |served: &Served, wanted: &Wanted| vectors(served.sentences()?, &texts, wanted);
    let (vectors, tokens) = compute(server, place, work).await?;
    let features = vectors.first().map_or(0, Vec::len);
    if request.dimensions.is_some_and(|wanted| wanted != features) {
        let message = format!("the vectors of this model have {features} dimensions");
        return Err(Failure::field("dimensions", message));
    }
    let encoding = request.encoding_format.unwrap_or_default();
    let data = vectors.iter().enumerate().map(|(index, vector)| {
        let vector = match encoding {
            Encoding::Float => json!(vector),
            Encoding::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                json!(BASE64_STANDARD.encode(bytes))
            }
        };
        json!({"object": "embedding", "index": index, "embedding": vector})
    });
    Ok(json_response(&json!({
        "object": "list",
        "data": data.collect::<Vec<Json>>(),
        "model": request.model,
        "usage": {"prompt_tokens": tokens.read, "total_tokens": tokens.read},
    })))
}

/// The vectors of texts.
fn vectors(model: &Sentences, texts: &[String], wanted: &Wanted) -> Result<(Vec<Vec<f32>>, Tokens), Failure> {
    let wrong = |error: taper::Error| Failure::field("input", error.kind().to_string());
    let mut tokens = Tokens::default();
    let device = lock(&model.encoder).parameters()[0].device();
    let mut vectors = Vec::new();
    for batch in texts.chunks(BATCH_TEXTS) {
        wanted.check()?;
        let (ids, mask) = model.tokenizer.encode_batch(batch, usize::MAX, &device).map_err(wrong)?;
        tokens.read += count(&mask).map_err(wrong)?;
        let encoder = lock(&model.encoder);
        let computed = no_grad(|| encoder.sentence_vectors(&ids, &mask)?.to_vec2::<f32>());
        vectors.extend(computed.map_err(wrong)?);
    }
    Ok((vectors, tokens))
}
