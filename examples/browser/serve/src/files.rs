//! The files of the page, in memory, with compressed forms of those that become smaller.

use std::{collections::BTreeMap, fmt::Write as _, fs, io::Write as _, path::Path};

use flate2::{Compression, write::GzEncoder};

use crate::Outcome;

/// The kinds of files by the ends of their names, and whether they become smaller.
const KINDS: &[(&str, &str, bool)] = &[
    ("css", "text/css", true),
    ("html", "text/html; charset=utf-8", true),
    ("js", "text/javascript", true),
    ("jsonl", "application/x-ndjson", true),
    ("mjs", "text/javascript", true),
    ("wasm", "application/wasm", true),
];
const OTHER: &str = "application/octet-stream";
/// From 0 to 11. With 11 a module takes half a minute, and is 6 % smaller.
const BROTLI_QUALITY: u32 = 9;
/// The size of brotli's window is 2 to this power.
const BROTLI_WINDOW: u32 = 24;

struct Served {
    kind: &'static str,
    plain: Vec<u8>,
    /// By the names of encodings in HTTP, the smallest first.
    compressed: Vec<(&'static str, Vec<u8>)>,
}

/// All files of the page by their names.
pub(crate) struct Files(BTreeMap<String, Served>);

impl Files {
    /// The files of a folder, which has no folders: so nothing above it is reached.
    pub(crate) fn read(folder: &Path) -> Outcome<Files> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let end = name.rsplit_once('.').map_or("", |(_, end)| end);
            let known = KINDS.iter().find(|(known, ..)| *known == end);
            let plain = fs::read(entry.path())?;
            let compressed = match known {
                Some((.., true)) => vec![("br", brotli(&plain)?), ("gzip", gzip(&plain)?)],
                _ => Vec::new(),
            };
            let kind = known.map_or(OTHER, |(_, kind, _)| kind);
            files.insert(name, Served { kind, plain, compressed });
        }
        Ok(Files(files))
    }

    /// The kind of a file, the encoding if it is compressed, and its bytes. `accepted` is the header
    /// `Accept-Encoding`. The page itself has no name.
    pub(crate) fn answer(
        &self,
        name: &str,
        accepted: &str,
    ) -> Option<(&'static str, Option<&'static str>, Vec<u8>)> {
        let file = self.0.get(if name.is_empty() { "index.html" } else { name })?;
        let accepts = |encoding: &str| {
            accepted.split(',').any(|part| {
                let mut parts = part.split(';').map(str::trim);
                parts.next() == Some(encoding) && !parts.any(|weight| matches!(weight, "q=0" | "q=0.0"))
            })
        };
        let found = file.compressed.iter().find(|(encoding, _)| accepts(encoding));
        Some(match found {
            Some((encoding, bytes)) => (file.kind, Some(*encoding), bytes.clone()),
            None => (file.kind, None, file.plain.clone()),
        })
    }

    /// The sizes of the modules, a line each.
    pub(crate) fn table(&self) -> String {
        let mut table = String::new();
        for (name, file) in self.0.iter().filter(|(name, _)| name.ends_with(".wasm")) {
            let _ = write!(table, "{name}: {} bytes", file.plain.len());
            for (encoding, bytes) in &file.compressed {
                let _ = write!(table, ", {encoding} {}", bytes.len());
            }
            table.push('\n');
        }
        table
    }
}

fn brotli(bytes: &[u8]) -> Outcome<Vec<u8>> {
    let mut writer = brotli::CompressorWriter::new(Vec::new(), 1 << 16, BROTLI_QUALITY, BROTLI_WINDOW);
    writer.write_all(bytes)?;
    Ok(writer.into_inner())
}

fn gzip(bytes: &[u8]) -> Outcome<Vec<u8>> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    Ok(writer.finish()?)
}

/// Refuses a file of the page that has the address of another server: nothing leaves the page.
pub(crate) fn require_no_address(path: &Path) -> Outcome {
    let Ok(text) = fs::read_to_string(path) else { return Ok(()) };
    for (number, line) in text.lines().enumerate() {
        if line.contains("://") || line.contains("\"//") || line.contains("'//") {
            return Err(format!("{}: line {} has an address", path.display(), number + 1).into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_compressed_for_those_who_accept_it() {
        let folder = tempfile::tempdir().unwrap();
        let text = "<p>a page</p>".repeat(100);
        fs::write(folder.path().join("index.html"), &text).unwrap();
        fs::write(folder.path().join("model.gguf"), &text).unwrap();
        let files = Files::read(folder.path()).unwrap();
        let (kind, encoding, bytes) = files.answer("", "gzip, deflate, br, zstd").unwrap();
        assert_eq!((kind, encoding), ("text/html; charset=utf-8", Some("br")));
        let mut plain = Vec::new();
        brotli::BrotliDecompress(&mut &bytes[..], &mut plain).unwrap();
        assert_eq!(plain, text.as_bytes());
        assert_eq!(files.answer("index.html", "gzip").unwrap().1, Some("gzip"));
        assert_eq!(
            files.answer("index.html", "br;q=0, identity").unwrap(),
            (kind, None, text.clone().into())
        );
        assert_eq!(files.answer("model.gguf", "br").unwrap(), (OTHER, None, text.into()));
        assert!(files.answer("../secret", "br").is_none());
    }

    #[test]
    fn an_address_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.js");
        for (text, refused) in [
            ("import './chart.js'; // here", false),
            ("\nfetch('https://example.org')", true),
            ("src=\"//cdn\"", true),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(require_no_address(&path).is_err(), refused, "{text}");
        }
    }
}
