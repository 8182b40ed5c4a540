//! Checks that all ranks hold the same list.

use tensor_core::{Error, ErrorKind, Result};

use crate::{Communicator, engine::listed};

/// Compares the lines of all ranks; `what` names them in errors.
///
/// # Errors
/// The ranks whose lines differ from those of rank 0, and the first line that differs; the same error on
/// every rank.
#[track_caller]
pub(crate) fn check(comm: &Communicator, op: &'static str, what: &str, lines: &[String]) -> Result<()> {
    if comm.size() == 1 {
        return Ok(());
    }
    let texts = gather_texts(comm, &lines.join("\n"))?;
    let rows = |text: &str| -> Vec<String> { text.lines().map(str::to_string).collect() };
    let first = rows(&texts[0]);
    let mut ranks = Vec::new();
    let mut told = None;
    for (rank, text) in texts.iter().enumerate().skip(1) {
        let own = rows(text);
        if own == first {
            continue;
        }
        ranks.push(rank);
        told.get_or_insert_with(|| {
            let differs = own.iter().zip(&first).position(|(own, first)| own != first);
            let at = differs.unwrap_or_else(|| own.len().min(first.len()));
            let line = |rows: &[String]| rows.get(at).map_or("nothing".into(), |line| format!("`{line}`"));
            format!("at index {at} rank {rank} has {}, and rank 0 has {}", line(&own), line(&first))
        });
    }
    let Some(told) = told else { return Ok(()) };
    let message = format!(
        "{} differ from rank 0 in their {what}: {told}. All ranks must build the same; nothing was sent",
        listed(&ranks)
    );
    Err(Error::new(ErrorKind::Distributed { op, ranks, message }))
}

/// The texts of all ranks, in order.
#[track_caller]
fn gather_texts(comm: &Communicator, text: &str) -> Result<Vec<String>> {
    let texts = comm.all_gather_bytes(text.as_bytes())?;
    Ok(texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
}
