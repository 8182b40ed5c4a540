//! [`Failure`]: an answer that says what is wrong, in the shape of OpenAI's errors.

use axum::{
    body::Body,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value as Json, json};

/// Why a request has no result.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    status: StatusCode,
    /// The field `type`.
    kind: &'static str,
    code: Option<&'static str>,
    /// The field of the request that is wrong.
    param: Option<&'static str>,
    message: String,
}

impl Failure {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Failure {
        Failure { status, kind, code: None, param: None, message: message.into() }
    }

    /// A request with a wrong field.
    pub(super) fn field(param: &'static str, message: impl Into<String>) -> Failure {
        Failure { param: Some(param), ..Failure::request(message) }
    }

    /// A request that is wrong as a whole.
    pub(super) fn request(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A prompt that leaves no room, or a request for more tokens than there is room.
    pub(super) fn too_long(message: impl Into<String>) -> Failure {
        Failure { code: Some("context_length_exceeded"), ..Failure::request(message) }
    }

    pub(super) fn no_model(name: &str) -> Failure {
        Failure {
            status: StatusCode::NOT_FOUND,
            code: Some("model_not_found"),
            ..Failure::field("model", format!("there is no model {name:?} here; /v1/models lists them"))
        }
    }

    /// A model that cannot be deleted at present, or ever.
    pub(super) fn not_deleted(message: impl Into<String>) -> Failure {
        Failure { status: StatusCode::CONFLICT, ..Failure::field("model", message) }
    }

    /// A file or a job that is not there.
    pub(super) fn no_object(kind: &str, id: &str) -> Failure {
        let message = format!("there is no {kind} {id:?}");
        Failure { status: StatusCode::NOT_FOUND, ..Failure::field("id", message) }
    }

    /// A server without a folder for jobs.
    pub(super) fn no_jobs() -> Failure {
        let message = "this server trains no adapters: start it with --jobs FOLDER";
        Failure { status: StatusCode::NOT_FOUND, ..Failure::request(message) }
    }

    pub(super) fn no_such_path() -> Failure {
        let message = "there is no such path; see the documentation of `taper serve`";
        Failure { status: StatusCode::NOT_FOUND, ..Failure::request(message) }
    }

    pub(super) fn wrong_method() -> Failure {
        let message = "this path has another method";
        Failure { status: StatusCode::METHOD_NOT_ALLOWED, ..Failure::request(message) }
    }

    /// A model whose load failed. The next request tries it again.
    pub(super) fn not_loaded(name: &str) -> Failure {
        Failure::server(format!("the model {name:?} could not be loaded; the server's log says why"))
    }

    /// A model for which others left no memory in time.
    pub(super) fn no_room(name: &str, seconds: u64) -> Failure {
        let message = format!(
            "the model {name:?} was not in memory after {seconds} seconds, as other models are in use"
        );
        Failure {
            code: Some("model_not_loaded"),
            ..Failure::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message)
        }
    }

    pub(super) fn no_form() -> Failure {
        let message =
            "the body must be a form, with the header `Content-Type: multipart/form-data; boundary=…`";
        Failure { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, ..Failure::request(message) }
    }

    pub(super) fn other_site() -> Failure {
        let message = "forms from pages of other sites are refused";
        Failure { status: StatusCode::FORBIDDEN, ..Failure::request(message) }
    }

    pub(super) fn no_json() -> Failure {
        let message = "the body must be JSON, with the header `Content-Type: application/json`";
        Failure { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, ..Failure::request(message) }
    }

    pub(super) fn too_large(limit: usize) -> Failure {
        let message = format!("the body has more than {limit} bytes");
        Failure { status: StatusCode::PAYLOAD_TOO_LARGE, ..Failure::request(message) }
    }

    pub(super) fn wrong_key() -> Failure {
        Failure {
            status: StatusCode::UNAUTHORIZED,
            code: Some("invalid_api_key"),
            ..Failure::request("give the server's key in the header `Authorization: Bearer KEY`")
        }
    }

    pub(super) fn full(limit: usize) -> Failure {
        let message = format!("{limit} requests are waiting or running already: try again later");
        Failure {
            code: Some("rate_limit_exceeded"),
            ..Failure::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message)
        }
    }

    pub(super) fn too_late(seconds: u64) -> Failure {
        let message = format!("the answer was not complete after {seconds} seconds");
        Failure::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message)
    }

    /// A fault of the server.
    pub(super) fn server(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// The body of the answer.
    pub(super) fn body(&self) -> Json {
        let Failure { kind, code, param, message, .. } = self;
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        with_status(self.status, &self.body())
    }
}

/// A JSON answer.
pub(super) fn json_response(body: &Json) -> Response {
    with_status(StatusCode::OK, body)
}

fn with_status(status: StatusCode, body: &Json) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (status, headers, Body::from(body.to_string())).into_response()
}
