//! The requests of a download: the list of a model's files, the facts about a file, the bytes of a file.
//! Errors name the address, which has the model and the file in it.

use std::{path::Path, time::Duration};

use serde_json::Value as Json;
use tensor_core::{Result, file::file_error};
use ureq::{
    Agent, Body,
    http::{HeaderMap, Response},
};

/// Times after which a request fails; a transfer that was cut is resumed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest number of redirects within one server, which a renamed model causes.
const REDIRECTS: usize = 5;
/// The largest list of files, in bytes.
const LIST_BYTES: u64 = 64 << 20;

/// A server with the interface of the Hugging Face hub.
pub(super) struct Server {
    endpoint: String,
    token: Option<String>,
    /// Follows redirects, to which it does not pass on the token.
    agent: Agent,
    /// Returns redirects.
    still: Agent,
}

/// The facts about a file that the server tells before it is read.
#[derive(Debug)]
pub(super) struct FileFacts {
    /// The address on this server, which differs from the one that was asked for if the model was renamed.
    pub(super) address: String,
    /// The commit that the file belongs to.
    pub(super) commit: Option<String>,
    /// The hash of the contents, by which the cache names them.
    pub(super) etag: String,
    /// The number of bytes.
    pub(super) size: Option<u64>,
}

impl Server {
    pub(super) fn new(endpoint: &str, token: Option<String>) -> Server {
        let config = || {
            Agent::config_builder()
                .http_status_as_error(false)
                .timeout_connect(Some(CONNECT_TIMEOUT))
                .timeout_recv_response(Some(READ_TIMEOUT))
                .timeout_per_read(Some(READ_TIMEOUT))
                .user_agent(concat!("taper/", env!("CARGO_PKG_VERSION")))
        };
        let still = config().max_redirects(0).max_redirects_will_error(false).build().new_agent();
        let endpoint = endpoint.trim_end_matches('/').to_string();
        Server { endpoint, token, agent: config().build().new_agent(), still }
    }

    /// The commit of a revision and the paths of its files.
    #[track_caller]
    pub(super) fn list(&self, name: &str, revision: &str) -> Result<(String, Vec<String>)> {
        let url = format!("{}/api/models/{}/revision/{}", self.endpoint, escaped(name), one_part(revision));
        let mut response = self.get(&url, 0)?;
        checked(&url, response.status().as_u16(), response.headers())?;
        let body = response.body_mut().with_config().limit(LIST_BYTES).read_to_vec();
        let body = body.map_err(|error| failed(&url, &error.to_string()))?;
        let list: Json = serde_json::from_slice(&body).map_err(|error| failed(&url, &error.to_string()))?;
        let commit = list.get("sha").and_then(Json::as_str);
        let files = list.get("siblings").and_then(Json::as_array);
        match (commit, files) {
            (Some(commit), Some(files)) => {
                let path = |file: &Json| Some(file.get("rfilename")?.as_str()?.to_string());
                Ok((commit.to_string(), files.iter().filter_map(path).collect()))
            }
            _ => Err(failed(&url, "the answer has no \"sha\" and \"siblings\"")),
        }
    }

    /// The address of a file.
    pub(super) fn address(&self, name: &str, revision: &str, file: &str) -> String {
        format!("{}/{}/resolve/{}/{}", self.endpoint, escaped(name), one_part(revision), escaped(file))
    }

    /// The facts about a file. Redirects within the server are followed; one to another server, which has
    /// the contents, comes with the facts.
    #[track_caller]
    pub(super) fn facts(&self, address: &str) -> Result<FileFacts> {
        let mut url = address.to_string();
        for _ in 0..REDIRECTS {
            let mut request = self.still.head(&url);
            if let Some(token) = &self.token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let response = request.call().map_err(|error| failed(&url, &error.to_string()))?;
            let (status, headers) = (response.status(), response.headers());
            let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
            if status.is_redirection() {
                let within = |place: &&str| place.starts_with('/') && !place.starts_with("//");
                if let Some(path) = text("location").filter(within) {
                    url = format!("{}{path}", self.origin());
                    continue;
                }
            } else {
                checked(&url, status.as_u16(), headers)?;
            }
            let Some(etag) = text("x-linked-etag").or_else(|| text("etag")) else {
                return Err(failed(&url, "the answer has no etag"));
            };
            let length = text("x-linked-size")
                .or_else(|| text("content-length").filter(|_| status.is_success()))
                .and_then(|size| size.parse().ok());
            return Ok(FileFacts {
                address: url.clone(),
                commit: text("x-repo-commit").map(str::to_string),
                etag: etag.trim_start_matches("W/").trim_matches('"').to_string(),
                size: length,
            });
        }
        Err(failed(address, "there are too many redirects"))
    }

    /// The server without a path.
    fn origin(&self) -> &str {
        let begin = self.endpoint.find("://").map_or(0, |at| at + 3);
        let end = self.endpoint[begin..].find('/').map_or(self.endpoint.len(), |at| begin + at);
        &self.endpoint[..end]
    }

    /// The response to a request for the bytes from `start` on.
    #[track_caller]
    pub(super) fn get(&self, url: &str, start: u64) -> Result<Response<Body>> {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if start > 0 {
            request = request.header("range", format!("bytes={start}-"));
        }
        request.call().map_err(|error| failed(url, &error.to_string()))
    }
}

#[track_caller]
pub(super) fn failed(url: &str, message: &str) -> tensor_core::Error {
    file_error(Path::new(url), format!("cannot be downloaded: {message}"))
}

/// An error for a status that is no success, with the server's reason.
#[track_caller]
pub(super) fn checked(url: &str, status: u16, headers: &HeaderMap) -> Result<()> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let reason = match (status, text("x-error-code")) {
        (200..=299, _) => return Ok(()),
        (_, Some("EntryNotFound")) => "the model has no such file".into(),
        (_, Some("RevisionNotFound")) => "the model has no such revision".into(),
        (_, Some("GatedRepo")) => {
            "the model is gated: accept its terms on its page, and set HF_TOKEN to a token of yours".into()
        }
        // The hub hides private models from those without access.
        (401, _) | (_, Some("RepoNotFound")) => {
            "there is no such model, or it is private or gated: check its name, and set HF_TOKEN".into()
        }
        (403, _) => "the token in HF_TOKEN gives no access".into(),
        (404, _) => "there is no such model, revision or file".into(),
        (429, _) => "too many requests; try again later".into(),
        (_, Some(code)) => format!("the server says {code}"),
        (_, None) => "the server failed or refused".to_string(),
    };
    Err(failed(url, &format!("status {status}, {reason}")))
}

/// A path in an address: other characters than letters, digits and `-._~/` by their bytes.
fn escaped(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(byte.into())
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A revision in an address, whose slashes are no separators.
fn one_part(revision: &str) -> String {
    escaped(revision).replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        assert_eq!(escaped("a b/ü?#%.json"), "a%20b/%C3%BC%3F%23%25.json");
        assert_eq!(one_part("refs/pr/1"), "refs%2Fpr%2F1");
        let origin = |endpoint: &str| Server::new(endpoint, None).origin().to_string();
        assert_eq!(origin("https://mirror.example/hf/"), "https://mirror.example");
        assert_eq!(origin("http://127.0.0.1:80"), "http://127.0.0.1:80");
    }
}
