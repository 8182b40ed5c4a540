//! The paths of the server, and what all requests have in common: the key, the body, the counters.

use std::{hint::black_box, io, sync::Arc};

use axum::{
    Router,
    body::to_bytes,
    extract::{MatchedPath, Path, Request, State},
    http::{HeaderMap, header},
    middleware::{Next, from_fn_with_state},
    response::{Html, IntoResponse, Response},
    routing::{MethodRouter, get, post},
    serve::ListenerExt,
};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;

use super::{
    BODY_TIMEOUT, Server, chat, completions, embeddings,
    failure::{Failure, json_response},
    fine_tuning,
    form::Form,
    rerank,
    served::Listed,
    transcriptions,
};
use crate::{error::Outcome, speech::Task};

/// The page with a chat.
const PAGE: &str = include_str!("page.html");
/// Paths that need no key: the page asks for it, and a supervisor checks whether the server lives.
const OPEN_PATHS: [&str; 2] = ["/", "/health"];

/// Answers requests until the program is stopped.
pub(super) async fn serve(listener: TcpListener, server: Arc<Server>) -> Outcome {
    // Each token is a small packet that should leave at once.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router(server)).await.map_err(|error: io::Error| error.into())
}

fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model).delete(fine_tuning::delete_model))
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(text_completions))
        .route("/v1/embeddings", post(text_embeddings))
        .route("/v1/rerank", post(ranks))
        .route("/v1/files", get(fine_tuning::files).post(fine_tuning::upload))
        .route("/v1/files/{id}", get(fine_tuning::file).delete(fine_tuning::delete))
        .route("/v1/files/{id}/content", get(fine_tuning::content))
        .route("/v1/fine_tuning/jobs", get(fine_tuning::jobs).post(fine_tuning_job))
        .route("/v1/fine_tuning/jobs/{id}", get(fine_tuning::job))
        .route("/v1/fine_tuning/jobs/{id}/cancel", post(fine_tuning::cancel))
        .route("/v1/fine_tuning/jobs/{id}/events", get(fine_tuning::events))
        .route("/v1/audio/transcriptions", speech(Task::Transcribe))
        .route("/v1/audio/translations", speech(Task::Translate))
        .fallback(async || Failure::no_such_path())
        .method_not_allowed_fallback(async || Failure::wrong_method())
        .layer(from_fn_with_state(server.clone(), admit))
        .with_state(server)
}

/// Checks the key, and counts the answer.
async fn admit(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_string());
    let path = matched.unwrap_or_else(|| "other".to_string());
    let is_admitted = match &server.api_key {
        Some(key) => OPEN_PATHS.contains(&path.as_str()) || has_key(request.headers(), key),
        None => true,
    };
    let response = if is_admitted { next.run(request).await } else { Failure::wrong_key().into_response() };
    server.metrics.answered(&path, response.status().as_u16());
    response
}

fn has_key(headers: &HeaderMap, key: &str) -> bool {
    let given =
        headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    given.is_some_and(|given| are_equal(given, key.as_bytes()))
}

/// Compares in a time that does not depend on how many bytes are right.
fn are_equal(given: &[u8], key: &[u8]) -> bool {
    let differences = given.iter().zip(key).fold(0, |sum, (a, b)| black_box(sum | (a ^ b)));
    given.len() == key.len() && differences == 0
}

/// The body of a request, from JSON. A page of another site cannot send this type unless the server agrees,
/// so that it cannot make a browser use a model.
async fn body<T: DeserializeOwned>(server: &Server, request: Request) -> Result<T, Failure> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.split(';').next().unwrap_or("").trim().ends_with("json")) {
        return Err(Failure::no_json());
    }
    let limit = server.limits.max_body;
    let arrived = tokio::time::timeout(BODY_TIMEOUT, to_bytes(request.into_body(), limit)).await;
    let bytes = arrived.map_err(|_| Failure::too_late(BODY_TIMEOUT.as_secs()))?;
    let bytes = bytes.map_err(|_| Failure::too_large(limit))?;
    serde_json::from_slice(&bytes).map_err(|error| Failure::request(format!("the body is wrong: {error}")))
}

async fn page() -> Html<&'static str> {
    Html(PAGE)
}

async fn health() -> Response {
    json_response(&json!({"status": "ok"}))
}

async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (headers, server.metrics.text(&server.pool.states(), &server.pool.device().memory())).into_response()
}

/// The object of a model for clients.
fn model_object(model: &Listed) -> Json {
    json!({"id": model.name, "object": "model", "created": model.created, "owned_by": "taper"})
}

async fn models(State(server): State<Arc<Server>>) -> Response {
    let models: Vec<Json> = server.pool.listed().iter().map(|model| model_object(model)).collect();
    json_response(&json!({"object": "list", "data": models}))
}

/// A model by its name, which may have slashes.
async fn model(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Result<Response, Failure> {
    let model = server.pool.find(&name).ok_or_else(|| Failure::no_model(&name))?;
    Ok(json_response(&model_object(&model)))
}

async fn chat_completions(State(server): State<Arc<Server>>, request: Request) -> Result<Response, Failure> {
    let request = body(&server, request).await?;
    chat::answer(&server, request).await
}

async fn text_completions(State(server): State<Arc<Server>>, request: Request) -> Result<Response, Failure> {
    let request = body(&server, request).await?;
    completions::answer(&server, request).await
}

async fn text_embeddings(State(server): State<Arc<Server>>, request: Request) -> Result<Response, Failure> {
    let request = body(&server, request).await?;
    embeddings::answer(&server, request).await
}

async fn ranks(State(server): State<Arc<Server>>, request: Request) -> Result<Response, Failure> {
    let request = body(&server, request).await?;
    rerank::answer(&server, request).await
}

async fn fine_tuning_job(State(server): State<Arc<Server>>, request: Request) -> Result<Response, Failure> {
    let request = body(&server, request).await?;
    fine_tuning::create(&server, request)
}

/// The handler of the forms of a task of speech.
fn speech(task: Task) -> MethodRouter<Arc<Server>> {
    post(move |State(server): State<Arc<Server>>, request: Request| async move {
        let form = Form::read(server.limits.max_sound, request).await?;
        transcriptions::answer(&server, form, task).await
    })
}

#[cfg(test)]
mod tests {
    use super::are_equal;

    #[test]
    fn keys_are_compared_as_a_whole() {
        assert!(are_equal(b"secret", b"secret"));
        for other in ["secreT", "secre", "secret2", ""] {
            assert!(!are_equal(other.as_bytes(), b"secret"));
        }
    }
}
