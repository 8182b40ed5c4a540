//! `/v1/rerank`.

use serde_json::{Value, json};
use taper::models::{BertClassifier, text::Tokenizer};

use super::Server;
use crate::common::{tiny_bert, tiny_llama, tiny_reranker};

const BERT: &str = r#""model_type": "bert""#;
const ROBERTA: &str = r#""model_type": "roberta", "type_vocab_size": 1, "pad_token_id": 1"#;

/// The score of each document, by the library, one at a time.
fn scores(folder: &std::path::Path, query: &str, documents: &[String], has_types: bool) -> Vec<f64> {
    let device = taper::cpu();
    let model = BertClassifier::from_folder(folder, &device).unwrap();
    let tokenizer = Tokenizer::from_folder(folder).unwrap();
    let score = |document: &String| {
        let (ids, types, _) = tokenizer.encode_pairs_batch(&[(query, document)], 99, &device).unwrap();
        let logit = model.forward(&ids, None, has_types.then_some(&types)).unwrap();
        1.0 / (1.0 + f64::from(-logit.to_vec::<f32>().unwrap()[0]).exp())
    };
    documents.iter().map(score).collect()
}

/// The documents' indices and scores.
fn results(answer: &Value) -> Vec<(usize, f64)> {
    let results = answer["results"].as_array().unwrap().iter();
    let result =
        |one: &Value| (one["index"].as_u64().unwrap() as usize, one["relevance_score"].as_f64().unwrap());
    results.map(result).collect()
}

#[test]
fn documents_come_by_falling_scores() {
    let query = "w9 w1 w8";
    // More than one batch, of several lengths. The words up to w9 are one token each.
    let words = |k: usize| (0..k % 5 + 1).map(move |j| format!("w{}", (7 * k + 3 * j) % 10));
    let documents: Vec<String> = (0..40).map(|k| words(k).collect::<Vec<_>>().join(" ")).collect();
    for (config, has_types) in [(BERT, true), (ROBERTA, false)] {
        let folder = tiny_reranker(config);
        let expected = scores(folder.path(), query, &documents, has_types);
        let server = Server::named(vec![("rank", folder)], &[]);
        let request = json!({"model": "rank", "query": query, "documents": documents});
        let answer = server.post("/v1/rerank", &request).ok();
        let found = results(&answer);
        assert_eq!(found.len(), 40);
        assert!(found.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{found:?}");
        for (index, score) in &found {
            assert!((score - expected[*index]).abs() < 1e-5, "{index}: {score}, {}", expected[*index]);
        }
        assert!(found[0].1 > found[39].1 && found[0].1 < 1.0 && found[39].1 > 0.0, "{found:?}");
        let tokens: usize = documents.iter().map(|document| 3 + document.split(' ').count()).sum();
        assert_eq!(answer["usage"], json!({"total_tokens": tokens}));
        assert_eq!(answer["model"], "rank");
        assert!(answer["results"][0].get("document").is_none());
        server.await_metric(&format!("taper_prompt_tokens_total{{model=\"rank\"}} {tokens}"));

        // Some of the results, with their documents, which may be objects.
        let objects: Vec<Value> = documents.iter().map(|text| json!({"text": text})).collect();
        let request = json!({"model": "rank", "query": query, "documents": objects, "top_n": 3, "return_documents": true});
        let answer = server.post("/v1/rerank", &request).ok();
        assert_eq!(results(&answer), found[..3]);
        assert_eq!(answer["results"][0]["document"], json!({"text": documents[found[0].0]}));
    }
}

#[test]
fn long_documents_are_cut() {
    let folder = tiny_reranker(BERT);
    let long = ["w2 w3 w4 w8"; 50].join(" ");
    // The model has 32 positions.
    let cut: Vec<&str> = long.split(' ').take(30).collect();
    let expected = scores(folder.path(), "w9 w1", &[cut.join(" ")], true);
    let server = Server::named(vec![("rank", folder)], &[]);
    let request = json!({"model": "rank", "query": "w9 w1", "documents": [long]});
    let answer = server.post("/v1/rerank", &request).ok();
    assert!((results(&answer)[0].1 - expected[0]).abs() < 1e-5);
    assert_eq!(answer["usage"]["total_tokens"], 32);
}

#[test]
fn a_model_gets_only_its_own_requests() {
    let models = vec![("tiny", tiny_llama()), ("bert", tiny_bert()), ("rank", tiny_reranker(BERT))];
    let server = Server::named(models, &[]);
    let wrong = |path: &str, request: Value| {
        let (status, kind, param, _, message) = server.post(path, &request).error();
        assert_eq!(kind, "invalid_request_error", "{message}");
        (status, param, message)
    };
    let rank = |more: Value| {
        let request = json!({"model": "rank", "query": "w9", "documents": ["w10"]});
        wrong("/v1/rerank", super::joined(request, more))
    };
    assert_eq!(rank(json!({"model": "absent"})).0, 404);
    for model in ["tiny", "bert"] {
        let (status, param, message) = rank(json!({"model": model}));
        assert_eq!((status, param), (400, json!("model")));
        assert!(message.contains("this path needs a model that ranks documents"), "{message}");
    }
    for (path, request) in [
        ("/v1/embeddings", json!({"model": "rank", "input": "w9"})),
        ("/v1/completions", json!({"model": "rank", "prompt": "w9"})),
        ("/v1/chat/completions", json!({"model": "rank", "messages": [{"role": "user", "content": "w9"}]})),
    ] {
        let (status, param, message) = wrong(path, request);
        assert_eq!((status, param), (400, json!("model")));
        assert!(message.contains("\"rank\" ranks documents"), "{message}");
    }
    assert_eq!(rank(json!({"documents": []})).1, "documents");
    assert_eq!(rank(json!({"documents": vec!["w9"; 2049]})).1, "documents");
    assert_eq!(rank(json!({"top_n": 0})).1, "top_n");
    for more in [json!({"query": null}), json!({"documents": "w9"}), json!({"documents": [{"body": "w9"}]})] {
        assert_eq!(rank(more).0, 400);
    }
    let request = json!({"model": "rank", "query": "w9", "documents": ["w10"]});
    assert_eq!(results(&server.post("/v1/rerank", &request).ok()).len(), 1);
}
