//! [`compute`]: work with a model on a thread of its own, such as vectors of texts or the text of a sound.

use std::{sync::Arc, time::Instant};

use taper::prelude::*;
use tokio::{sync::oneshot, task::spawn_blocking, time::timeout};

use super::{Server, failure::Failure, metrics::Ended, pool::Place, served::Served};

/// The numbers of tokens that a model has read and written.
#[derive(Default)]
pub(super) struct Tokens {
    pub(super) read: usize,
    pub(super) written: usize,
}

/// Says whether a client still waits for its answer.
pub(super) struct Wanted(oneshot::Sender<()>);

impl Wanted {
    /// An error once the client has gone away or the time is over. Long work checks it between its parts.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.0.is_closed() { Err(Failure::request("the client has gone away")) } else { Ok(()) }
    }
}

/// Does work with a model, which keeps its place until the work has ended, and counts it.
pub(super) async fn compute<T: Send + 'static>(
    server: &Arc<Server>,
    place: Place,
    work: impl FnOnce(&Served, &Wanted) -> Result<(T, Tokens), Failure> + Send + 'static,
) -> Result<(T, Tokens), Failure> {
    let limit = server.limits.timeout;
    // The receiver is dropped with this future.
    let (sender, _receiver) = oneshot::channel();
    let (server, wanted) = (server.clone(), Wanted(sender));
    let done = spawn_blocking(move || {
        let begin = Instant::now();
        let result = work(&place, &wanted);
        let cancelled = wanted.check().is_err();
        let (read, written) = result.as_ref().map_or((0, 0), |(_, tokens)| (tokens.read, tokens.written));
        let (duration, first_token) = (begin.elapsed(), None);
        let ended =
            Ended { prompt_tokens: read, generated_tokens: written, cancelled, duration, first_token };
        if result.is_ok() || cancelled {
            server.metrics.ended(place.name(), &ended);
        }
        result
    });
    match timeout(limit, done).await {
        Ok(result) => result.map_err(|error| Failure::server(error.to_string()))?,
        Err(_) => Err(Failure::too_late(limit.as_secs())),
    }
}

/// The number of tokens that a mask has.
pub(super) fn count(mask: &Tensor) -> Result<usize, taper::Error> {
    Ok(mask.to_vec::<bool>()?.into_iter().filter(|is_token| *is_token).count())
}
