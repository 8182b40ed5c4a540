//! The page: its files as one, live or with the data of a run.

use std::{
    io::{self, Write},
    path::Path,
};

use tensor_core::{Error, ErrorKind, Result, file::write_whole};

use crate::record;

const HTML: &str = include_str!("../page/index.html");
const SECTIONS: &str = include_str!("../page/sections.html");
const STYLE: &str = include_str!("../page/studio.css");
/// The modules of the script, each after those that it uses.
const SCRIPTS: [&str; 6] = [
    include_str!("../page/common.js"),
    include_str!("../page/curves.js"),
    include_str!("../page/graph.js"),
    include_str!("../page/step.js"),
    include_str!("../page/studio.js"),
    include_str!("../page/live.js"),
];

/// The modules as one script: their imports and exports are lines of their own.
fn script() -> String {
    let lines = SCRIPTS.iter().flat_map(|module| module.lines());
    let own = lines.filter(|line| !line.starts_with("import ") && !line.starts_with("export "));
    own.flat_map(|line| [line, "\n"]).collect()
}

/// The page with the events that it shows from the start; a page without any asks the server for them.
pub(crate) fn page(events: Option<&str>) -> String {
    // Inside a script element only `<` could end it. In JSON it occurs in strings alone.
    let events = events.map_or_else(String::new, |events| events.replace('<', "\\u003c"));
    // The data comes last, because it may contain any text.
    HTML.replace("/*SECTIONS*/", SECTIONS)
        .replace("/*STYLE*/", STYLE)
        .replace("/*SCRIPT*/", &script())
        .replace("/*EVENTS*/", &events)
}

/// Writes the page with everything recorded so far as one HTML file, which needs neither a server nor a
/// network.
///
/// # Errors
/// `Invalid` if nothing is recorded: call [`serve`](crate::serve) or [`record`](crate::record) before the
/// training; `File` for a file that cannot be written.
#[track_caller]
pub fn save(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    if !record::is_recording() {
        let message = "nothing is recorded; call studio::serve or studio::record before the training";
        return Err(Error::invalid("studio::save", message));
    }
    let text = page(Some(&record::events_after(0)));
    let failed = |error: io::Error| {
        Error::new(ErrorKind::File { path: path.into(), message: format!("cannot be written: {error}") })
    };
    Error::here_in(write_whole(path, failed, |file| file.write_all(text.as_bytes()).map_err(failed)))
}
