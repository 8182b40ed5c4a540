//! [`Answer`]: the texts of one request while they are generated, as pieces.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use serde_json::{Value as Json, json};
use taper::models::{
    generate::Token,
    pictures::Picture,
    text::{TextOptions, TextPieces},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    Server,
    failure::{Failure, json_response},
    metrics::Ended,
    pool::Place,
    request::Common,
    served::Language,
    worker::{Job, Ticket, Update, Updates},
};

/// The number of chunks that wait for a slow client; the news of its texts then wait in their own queue.
const WAITING_CHUNKS: usize = 256;
/// How long after its answer's time a client that reads slowly keeps its place.
const SLOW_CLIENT_GRACE: Duration = Duration::from_secs(30);

/// A generated token with the most likely tokens in its place.
pub(super) type TokenReport = (Token, Vec<Token>);

/// A further part of one text.
pub(super) struct Piece {
    /// The number of the text.
    pub(super) index: usize,
    pub(super) text: String,
    pub(super) token: Option<TokenReport>,
    /// Why the text ended: `stop` or `length`.
    pub(super) finish: Option<&'static str>,
}

/// The counts of a request, which join the server's counters when it ends, however it ends.
struct Measured {
    server: Arc<Server>,
    model: String,
    prompt_tokens: usize,
    generated_tokens: usize,
    begin: Instant,
    first_token: Option<Duration>,
    /// Whether the request has its answer, or an error.
    is_complete: bool,
}

impl Drop for Measured {
    fn drop(&mut self) {
        let ended = Ended {
            prompt_tokens: self.prompt_tokens,
            generated_tokens: self.generated_tokens,
            cancelled: !self.is_complete,
            duration: self.begin.elapsed(),
            first_token: self.first_token,
        };
        self.server.metrics.ended(&self.model, &ended);
    }
}

/// The jobs of a request, accepted by the thread of the model.
pub(super) struct Accepted {
    tickets: Vec<Ticket>,
    updates: Updates,
    options: TextOptions,
    /// The pictures of the prompts, until these are read.
    pictures: Vec<Picture>,
    measured: Measured,
    place: Place,
}

impl Accepted {
    /// Gives jobs to the thread of a model. `prompt_tokens` counts each prompt once; the model reads the
    /// `pictures` in prompts.
    pub(super) async fn submit(
        server: &Arc<Server>,
        place: Place,
        jobs: Vec<Job>,
        options: TextOptions,
        prompt_tokens: usize,
        pictures: Vec<Picture>,
    ) -> Result<Accepted, Failure> {
        let mut measured = Measured {
            server: server.clone(),
            model: place.name().to_string(),
            prompt_tokens,
            generated_tokens: 0,
            begin: Instant::now(),
            first_token: None,
            is_complete: false,
        };
        let submitted = place.language()?.worker.submit(jobs, place.adapter()).await;
        measured.is_complete = submitted.is_err();
        let (tickets, updates) = submitted?;
        Ok(Accepted { tickets, updates, options, pictures, measured, place })
    }

    /// The texts as pieces, and the model.
    fn answer(&mut self) -> Result<(Answer<'_>, &Language), Failure> {
        let Accepted { tickets, updates, options, pictures, measured, place } = self;
        let language = place.language()?;
        let texts = tickets.drain(..).map(|ticket| Text {
            pieces: TextPieces::new(&language.tokenizer, options),
            ticket: Some(ticket),
            has_begun: false,
        });
        Ok((Answer { texts: texts.collect(), updates, pictures, measured }, language))
    }
}

struct Text<'a> {
    pieces: TextPieces<'a>,
    /// None once the text has ended.
    ticket: Option<Ticket>,
    /// Whether its prompt is read.
    has_begun: bool,
}

/// The texts of a request.
pub(super) struct Answer<'a> {
    texts: Vec<Text<'a>>,
    updates: &'a mut Updates,
    pictures: &'a mut Vec<Picture>,
    measured: &'a mut Measured,
}

impl Answer<'_> {
    /// The next piece of any text; none once all have ended.
    async fn next(&mut self) -> Option<Result<Piece, Failure>> {
        let limit = self.measured.server.limits.timeout;
        while self.texts.iter().any(|text| text.ticket.is_some()) {
            let update = match timeout_at(self.measured.begin + limit, self.updates.recv()).await {
                Ok(Some(update)) => update,
                Ok(None) => return Some(Err(Failure::server("the thread of the model has ended"))),
                Err(_) => return Some(Err(Failure::too_late(limit.as_secs()))),
            };
            match self.piece(update) {
                Ok(None) => {}
                Ok(Some(piece)) => return Some(Ok(piece)),
                Err(failure) => return Some(Err(failure)),
            }
        }
        self.measured.is_complete = true;
        None
    }

    /// The piece that an update gives; none for a text that has ended at a stop word already.
    fn piece(&mut self, (index, update): (usize, Update)) -> Result<Option<Piece>, Failure> {
        self.texts[index].has_begun = true;
        if self.texts.iter().all(|text| text.has_begun) {
            self.pictures.clear();
        }
        let text = &mut self.texts[index];
        if text.ticket.is_none() {
            return Ok(None);
        }
        let fault = |error: taper::Error| Failure::server(error.kind().to_string());
        let piece = match update {
            Update::Token { token, top } => {
                self.measured.first_token.get_or_insert(self.measured.begin.elapsed());
                self.measured.generated_tokens += 1;
                let added = text.pieces.push(token.id).map_err(fault)?;
                let finish = text.pieces.is_finished().then_some("stop");
                Piece { index, text: added, token: Some((token, top)), finish }
            }
            Update::Finished { by_end_token } => {
                let rest = text.pieces.finish().map_err(fault)?;
                let finish = Some(if by_end_token { "stop" } else { "length" });
                Piece { index, text: rest, token: None, finish }
            }
            Update::Failed(message) => return Err(Failure::server(message)),
        };
        if piece.finish.is_some() {
            text.ticket = None;
        }
        Ok(Some(piece))
    }

    /// OpenAI's count of tokens.
    pub(super) fn usage(&self) -> Json {
        let (prompt, generated) = (self.measured.prompt_tokens, self.measured.generated_tokens);
        json!({
            "prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated,
        })
    }
}

/// How an endpoint writes texts.
pub(super) trait Format: Send + 'static {
    /// The chunks of a stream before the first token.
    fn begin(&mut self) -> Vec<Json>;

    /// The chunks of a stream for a piece.
    fn chunks(&mut self, piece: Piece, language: &Language) -> Vec<Json>;

    /// The chunk of a stream with the count of tokens.
    fn usage(&self, usage: Json) -> Json;

    /// Takes up a piece of an answer that comes as a whole.
    fn collect(&mut self, piece: Piece, language: &Language);

    /// The whole answer.
    fn whole(self, usage: Json) -> Json;
}

/// The answer in the way that the request asks for.
pub(super) async fn respond(
    accepted: Accepted,
    format: impl Format,
    request: &Common,
) -> Result<Response, Failure> {
    match request.is_stream() {
        true => Ok(stream(accepted, format, request.include_usage())),
        false => whole(accepted, format).await,
    }
}

/// The answer as a whole. If the client goes away, this future is dropped, and with it the texts.
async fn whole(mut accepted: Accepted, mut format: impl Format) -> Result<Response, Failure> {
    let (mut answer, language) = accepted.answer()?;
    while let Some(piece) = answer.next().await {
        format.collect(piece?, language);
    }
    let usage = answer.usage();
    Ok(json_response(&format.whole(usage)))
}

/// The answer as server-sent events. The texts end when the client goes away.
fn stream(mut accepted: Accepted, mut format: impl Format, include_usage: bool) -> Response {
    let (out, mut chunks) = mpsc::channel::<String>(WAITING_CHUNKS);
    let end = accepted.measured.begin + accepted.measured.server.limits.timeout + SLOW_CLIENT_GRACE;
    tokio::spawn(async move {
        let written = async {
            let (mut answer, language) = accepted.answer()?;
            for chunk in format.begin() {
                send(&out, &chunk.to_string()).await;
            }
            while let Some(piece) = answer.next().await {
                for chunk in format.chunks(piece?, language) {
                    send(&out, &chunk.to_string()).await;
                }
            }
            if include_usage {
                send(&out, &format.usage(answer.usage()).to_string()).await;
            }
            Ok::<(), Failure>(())
        };
        let result = tokio::select! {
            result = written => result,
            () = out.closed() => return,
            () = sleep_until(end) => return,
        };
        // The place is free before a slow client reads the end.
        drop(accepted);
        if let Err(failure) = result {
            send(&out, &failure.body().to_string()).await;
        }
        send(&out, "[DONE]").await;
    });
    let body = futures_util::stream::poll_fn(move |context| {
        chunks
            .poll_recv(context)
            .map(|chunk| chunk.map(|chunk| Ok::<_, std::convert::Infallible>(Bytes::from(chunk))))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(body)).into_response()
}

/// Sends an event. A client that has gone away is noticed by `closed`.
async fn send(out: &mpsc::Sender<String>, data: &str) {
    let _ = out.send(format!("data: {data}\n\n")).await;
}
