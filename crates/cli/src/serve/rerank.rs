//! `/v1/rerank`: documents by how well they fit a query, with the shape of Jina's and Cohere's interfaces.

use std::sync::Arc;

use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use taper::{nn::Module, no_grad, tensor_core::lock};

use super::{
    Server,
    compute::{Tokens, Wanted, compute, count},
    failure::{Failure, json_response},
    served::{Kind, Reranker, Served},
};

/// The greatest number of documents of a request.
const MAX_DOCUMENTS: usize = 2048;
/// The documents that are computed at once.
const BATCH_DOCUMENTS: usize = 32;

/// A text, alone or in an object.
#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    Text(String),
    Object { text: String },
}

impl Document {
    fn text(&self) -> &str {
        match self {
            Document::Text(text) | Document::Object { text } => text,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct RerankRequest {
    model: String,
    query: String,
    documents: Vec<Document>,
    top_n: Option<usize>,
    return_documents: Option<bool>,
}

/// Ranks documents.
pub(super) async fn answer(server: &Arc<Server>, request: RerankRequest) -> Result<Response, Failure> {
    let RerankRequest { model, query, documents, top_n, return_documents } = request;
    let place = server.pool.model(&model, Kind::Reranker).await?;
    if !(1..=MAX_DOCUMENTS).contains(&documents.len()) {
        let message = format!("{} documents: give from 1 to {MAX_DOCUMENTS}", documents.len());
        return Err(Failure::field("documents", message));
    }
    if top_n == Some(0) {
        return Err(Failure::field("top_n", "top_n is 0: give 1 or more"));
    }
    let documents = Arc::new(documents);
    let given = documents.clone();
    let work = move |served: &Served, wanted: &Wanted| logits(served.reranker()?, &query, &given, wanted);
    let (logits, tokens) = compute(server, place, work).await?;
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // By logits, because the scores of two large ones may be the same number.
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    order.truncate(top_n.unwrap_or(documents.len()));
    let results = order.into_iter().map(|index| {
        let mut result = json!({"index": index, "relevance_score": sigmoid(logits[index].into())});
        if return_documents.unwrap_or(false) {
            result["document"] = json!({"text": documents[index].text()});
        }
        result
    });
    Ok(json_response(&json!({
        "id": format!("rerank-{}", server.identity("rerank", &model).number()),
        "model": model,
        "usage": {"total_tokens": tokens.read},
        "results": results.collect::<Vec<Json>>(),
    })))
}

fn sigmoid(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}

/// The logit of each document with the query.
fn logits(
    model: &Reranker,
    query: &str,
    documents: &[Document],
    wanted: &Wanted,
) -> Result<(Vec<f32>, Tokens), Failure> {
    let wrong = |error: taper::Error| Failure::field("documents", error.kind().to_string());
    let (device, max_tokens, has_types) = {
        let classifier = lock(&model.classifier);
        let device = classifier.parameters()[0].device();
        (device, classifier.max_tokens(), classifier.config().type_vocab_size > 1)
    };
    let mut tokens = Tokens::default();
    let mut logits = Vec::new();
    for batch in documents.chunks(BATCH_DOCUMENTS) {
        wanted.check()?;
        let pairs: Vec<(&str, &str)> = batch.iter().map(|document| (query, document.text())).collect();
        let encoded = model.tokenizer.encode_pairs_batch(&pairs, max_tokens, &device);
        let (ids, types, mask) = encoded.map_err(wrong)?;
        tokens.read += count(&mask).map_err(wrong)?;
        let classifier = lock(&model.classifier);
        // Models with one type of sequences have no row for the second.
        let types = has_types.then_some(&types);
        let computed = no_grad(|| classifier.forward(&ids, Some(&mask), types)?.to_vec2::<f32>());
        logits.extend(computed.map_err(wrong)?.into_iter().flatten());
    }
    Ok((logits, tokens))
}

#[cfg(test)]
mod tests {
    use super::sigmoid;

    #[test]
    fn scores_are_between_0_and_1() {
        assert_eq!(sigmoid(0.0), 0.5);
        assert!((sigmoid(2.0) - 0.880797077977882).abs() < 1e-15);
        assert_eq!((sigmoid(-1e30), sigmoid(1e30)), (0.0, 1.0));
    }
}
