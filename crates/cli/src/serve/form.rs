//! [`Form`]: the fields of a body of the type `multipart/form-data`.

use axum::{
    body::Bytes,
    extract::{DefaultBodyLimit, FromRequest, Multipart, Request, multipart::MultipartError},
    http::{HeaderMap, StatusCode, header},
};

use super::{BODY_TIMEOUT, failure::Failure};

/// The fields of a form.
pub(super) struct Form(Vec<Field>);

pub(super) struct Field {
    name: String,
    /// The name of the file whose contents these are.
    pub(super) file_name: Option<String>,
    pub(super) bytes: Bytes,
}

impl Form {
    /// Reads the body of a request, of at most this many bytes.
    pub(super) async fn read(limit: usize, mut request: Request) -> Result<Form, Failure> {
        refuse_other_sites(request.headers())?;
        DefaultBodyLimit::max(limit).apply(&mut request);
        let body = Multipart::from_request(request, &()).await.map_err(|_| Failure::no_form())?;
        let arrived = tokio::time::timeout(BODY_TIMEOUT, fields(body)).await;
        let fields = arrived.map_err(|_| Failure::too_late(BODY_TIMEOUT.as_secs()))?;
        fields.map(Form).map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Failure::too_large(limit),
            _ => Failure::request(format!("the form is wrong: {}", error.body_text())),
        })
    }

    /// A field by its name.
    pub(super) fn take(&mut self, name: &'static str) -> Result<Field, Failure> {
        let at = self.0.iter().position(|field| field.name == name);
        let at = at.ok_or_else(|| Failure::field(name, format!("the form has no field {name:?}")))?;
        Ok(self.0.swap_remove(at))
    }

    /// The text of a field, unless it is missing or empty.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<&str>, Failure> {
        let Some(field) = self.0.iter().find(|field| field.name == name) else { return Ok(None) };
        let text = std::str::from_utf8(&field.bytes);
        let text = text.map_err(|_| Failure::field(name, "the text is not UTF-8"))?.trim();
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// All texts of a field that may stand several times.
    pub(super) fn texts(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |field| field.name == name).map(|field| &field.bytes[..])
    }
}

async fn fields(mut body: Multipart) -> Result<Vec<Field>, MultipartError> {
    let mut fields = Vec::new();
    while let Some(field) = body.next_field().await? {
        let name = field.name().unwrap_or_default().to_string();
        let file_name = field.file_name().map(str::to_string);
        fields.push(Field { name, file_name, bytes: field.bytes().await? });
    }
    Ok(fields)
}

/// Refuses the form of a page that another server sent. A browser sends a form to any server without asking
/// that server first, unlike JSON, so that any page could make the browser of a visitor use a model here. It
/// names the page's server in the header `Origin`, which programs leave out.
fn refuse_other_sites(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    match (origin, host) {
        (Some((_, origin)), Some(host)) if origin.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(Failure::other_site()),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_the_servers_own_pages_may_send_forms() {
        for (origin, is_refused) in [
            (None, false),
            (Some("http://127.0.0.1:8080"), false),
            (Some("https://127.0.0.1:8080"), false),
            (Some("http://127.0.0.1:8081"), true),
            (Some("http://127.0.0.1"), true),
            (Some("http://example.org"), true),
            (Some("null"), true),
            (Some(""), true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:8080"));
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            }
            assert_eq!(refuse_other_sites(&headers).is_err(), is_refused, "{origin:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::ORIGIN, HeaderValue::from_static("http://127.0.0.1:8080"));
        assert!(refuse_other_sites(&headers).is_err());
    }
}
