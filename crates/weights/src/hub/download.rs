//! [`HubDownload`]: models of the Hugging Face hub, downloaded into the cache where Python's libraries find
//! them.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use tensor_core::{
    Error, Result,
    file::{file_error, read_regular_text},
};

use super::{
    HubCache, MAIN, blob,
    http::{FileFacts, Server, failed},
    simple,
};

const OP: &str = "HubDownload";
const ENDPOINT: &str = "https://huggingface.co";
/// Files beside the weights that a model may need.
const SMALL_ENDINGS: [&str; 4] = [".json", ".jinja", ".model", ".txt"];

/// The state of a download, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HubProgress<'a> {
    /// The file's path in the model.
    pub file: &'a str,
    /// The bytes that are there, those of an earlier download included.
    pub received: u64,
    /// The bytes of the whole file, if the server tells it.
    pub total: Option<u64>,
}

/// Downloads models into a [`HubCache`], in the layout of `huggingface_hub`: what Python has downloaded is
/// not downloaded again, and the other way round.
///
/// A download that was cut is resumed, by the same call or a later one. The size of each file and its hash
/// (SHA-256 of large files, git's hash of others) must be those that the server told before; no more bytes
/// are written than it announced, and at most 1 GiB if it announced no size. Nothing is written outside the
/// cache's folder, whatever names the server gives.
///
/// ```no_run
/// use weights::HubDownload;
/// # fn main() -> tensor_core::Result<()> {
/// let hub = HubDownload::from_env()?;
/// let folder = hub.model("HuggingFaceTB/SmolLM2-135M-Instruct", None, &mut |progress| {
///     eprint!("\r{} {}", progress.file, progress.received);
/// })?;
/// let weights = weights::open(folder)?;
/// # let _ = weights;
/// # Ok(()) }
/// ```
pub struct HubDownload {
    cache: HubCache,
    endpoint: String,
    token: Option<String>,
    offline: bool,
    server: Server,
}

impl HubDownload {
    /// Downloads as the environment says: [`HubCache::from_env`]; `HF_ENDPOINT`, the server; `HF_TOKEN` or
    /// the file `HF_TOKEN_PATH` (by default `token` in `HF_HOME`), the token; with `HF_HUB_OFFLINE=1` only
    /// what is in the cache is found.
    ///
    /// # Errors
    /// As [`HubCache::from_env`].
    #[track_caller]
    pub fn from_env() -> Result<HubDownload> {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let cache = HubCache::from_env()?;
        let token = text("HF_TOKEN").or_else(|| {
            // The cache is in the home of Hugging Face's files, unless it has a folder of its own.
            let home = || match text("HF_HUB_CACHE") {
                Some(_) => text("HF_HOME").map(PathBuf::from),
                None => cache.folder().parent().map(Path::to_path_buf),
            };
            let path = text("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home()?.join("token")))?;
            read_regular_text(&path).ok()
        });
        let offline = text("HF_HUB_OFFLINE")
            .is_some_and(|value| ["1", "on", "yes", "true"].contains(&value.to_lowercase().as_str()));
        let mut download = HubDownload::new(cache).offline(offline);
        if let Some(endpoint) = text("HF_ENDPOINT") {
            download = download.endpoint(&endpoint);
        }
        Ok(match token {
            Some(token) => download.token(token.trim()),
            None => download,
        })
    }

    /// Downloads from `https://huggingface.co` into a cache, without a token.
    pub fn new(cache: HubCache) -> HubDownload {
        let server = Server::new(ENDPOINT, None);
        HubDownload { cache, endpoint: ENDPOINT.into(), token: None, offline: false, server }
    }

    /// The server, such as a mirror.
    #[must_use]
    pub fn endpoint(mut self, endpoint: &str) -> HubDownload {
        self.endpoint = endpoint.into();
        self.server = Server::new(&self.endpoint, self.token.clone());
        self
    }

    /// The token of a user, for private and gated models. Only the endpoint gets it, not the servers to
    /// which it redirects.
    #[must_use]
    pub fn token(mut self, token: &str) -> HubDownload {
        self.token = Some(token.into()).filter(|token: &String| !token.is_empty());
        self.server = Server::new(&self.endpoint, self.token.clone());
        self
    }

    /// Whether only what is in the cache is found.
    #[must_use]
    pub fn offline(mut self, offline: bool) -> HubDownload {
        self.offline = offline;
        self
    }

    /// The cache.
    pub fn cache(&self) -> &HubCache {
        &self.cache
    }

    /// The paths of all files of a model. `revision` is a branch, a tag or a commit; `main` by default.
    ///
    /// # Errors
    /// A name that is none of a model, or a `File` error with the address and the server's answer: no such
    /// model or revision, no access, no connection. Offline, any call.
    #[track_caller]
    pub fn files(&self, name: &str, revision: Option<&str>) -> Result<Vec<String>> {
        Ok(self.list(name, revision.unwrap_or(MAIN))?.1)
    }

    #[track_caller]
    fn list(&self, name: &str, revision: &str) -> Result<(String, Vec<String>)> {
        self.cache.repository(OP, name, revision)?;
        self.check_online(name)?;
        let (commit, files) = self.server.list(name, revision)?;
        check_commit(name, &commit)?;
        Ok((commit, files))
    }

    #[track_caller]
    fn check_online(&self, what: &str) -> Result<()> {
        match self.offline {
            true => Err(Error::invalid(OP, format!("{what} is not downloaded while HF_HUB_OFFLINE is set"))),
            false => Ok(()),
        }
    }

    /// One file of a model: its path in the cache. Nothing is downloaded if the cache has the revision's
    /// file.
    ///
    /// # Errors
    /// As [`HubDownload::files`]; a path that is none of a file; a `File` error for a size or hash that is
    /// not the announced one, or for a file that cannot be written.
    #[track_caller]
    pub fn file(
        &self,
        name: &str,
        revision: Option<&str>,
        file: &str,
        progress: &mut dyn FnMut(HubProgress<'_>),
    ) -> Result<PathBuf> {
        let revision = revision.unwrap_or(MAIN);
        let repository = self.cache.repository(OP, name, revision)?;
        if !simple(file) {
            return Err(Error::invalid(OP, format!("\"{file}\" is no path of a file of {name}")));
        }
        if self.offline {
            return self.cache.file(name, Some(revision), file);
        }
        let address = self.server.address(name, revision, file);
        let facts = self.server.facts(&address)?;
        let Some(commit) = facts.commit.clone().or_else(|| is_commit(revision).then(|| revision.to_string()))
        else {
            return Err(failed(&address, "the answer has no commit"));
        };
        check_commit(name, &commit)?;
        let path = self.fetch(&repository, &commit, file, &facts, progress)?;
        write_reference(&repository, revision, &commit)?;
        Ok(path)
    }

    /// A model: the folder with its files, which [`open`](crate::open) and the loaders of `models` read. It
    /// has the files at the top of the model that they need: configurations, tokenizer, templates, and the
    /// weights in safetensors, or else in PyTorch's format.
    ///
    /// # Errors
    /// As [`HubDownload::file`]; a model without weights in a known format.
    #[track_caller]
    pub fn model(
        &self,
        name: &str,
        revision: Option<&str>,
        progress: &mut dyn FnMut(HubProgress<'_>),
    ) -> Result<PathBuf> {
        let revision = revision.unwrap_or(MAIN);
        let repository = self.cache.repository(OP, name, revision)?;
        if self.offline {
            return self.cache.model(name, Some(revision));
        }
        let (commit, files) = self.list(name, revision)?;
        let needed = needed(&files);
        if !needed.iter().any(|file| is_weights(file)) {
            let message = format!("{name} has no weights in safetensors or PyTorch's format; see `files`");
            return Err(Error::invalid(OP, message));
        }
        for file in needed {
            let address = self.server.address(name, &commit, file);
            let facts = self.server.facts(&address)?;
            self.fetch(&repository, &commit, file, &facts, progress)?;
        }
        write_reference(&repository, revision, &commit)?;
        Ok(repository.join("snapshots").join(commit))
    }

    /// A file of a commit: its contents are downloaded if they are not there, and its path points to them.
    #[track_caller]
    fn fetch(
        &self,
        repository: &Path,
        commit: &str,
        file: &str,
        facts: &FileFacts,
        progress: &mut dyn FnMut(HubProgress<'_>),
    ) -> Result<PathBuf> {
        if !simple(&facts.etag) || facts.etag.contains('/') {
            return Err(failed(&facts.address, &format!("its etag is \"{}\"", facts.etag)));
        }
        let contents = repository.join("blobs").join(&facts.etag);
        let pointer = repository.join("snapshots").join(commit).join(file);
        let complete = |path: &Path| {
            fs::metadata(path).is_ok_and(|there| facts.size.is_none_or(|size| size == there.len()))
        };
        let _lock = lock(&self.cache, repository, &facts.etag)?;
        if !complete(&contents) && !complete(&pointer) {
            create_folder(&repository.join("blobs"))?;
            let total = facts.size;
            blob::download(&self.server, facts, &contents, &mut |received| {
                progress(HubProgress { file, received, total });
            })?;
        }
        if !complete(&pointer) {
            let depth = file.matches('/').count() + 2;
            point(&pointer, &contents, depth, &facts.etag)?;
        }
        Ok(pointer)
    }
}

/// Without the token.
impl fmt::Debug for HubDownload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubDownload")
            .field("cache", &self.cache)
            .field("endpoint", &self.endpoint)
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}

/// The files at the top of a model that its loaders read.
fn needed(files: &[String]) -> Vec<&str> {
    let top = || files.iter().map(String::as_str).filter(|file| !file.contains('/') && simple(file));
    // Mistral's own format of the same weights.
    let weights =
        |ending: &'static str| move |file: &&str| file.ends_with(ending) && !file.starts_with("consolidated");
    let has_safetensors = top().any(|file| weights(".safetensors")(&file));
    let chosen = if has_safetensors { ".safetensors" } else { ".bin" };
    let other_index = if has_safetensors { ".bin.index.json" } else { ".safetensors.index.json" };
    top()
        .filter(|file| {
            let small = SMALL_ENDINGS.iter().any(|ending| file.ends_with(ending));
            (small && !file.ends_with(other_index)) || weights(chosen)(file)
        })
        .filter(|file| *file != "training_args.bin")
        .collect()
}

fn is_weights(file: &str) -> bool {
    file.ends_with(".safetensors") || file.ends_with(".bin")
}

/// Whether a text is a commit: 40 hexadecimal digits.
fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[track_caller]
fn check_commit(name: &str, commit: &str) -> Result<()> {
    match is_commit(commit) {
        true => Ok(()),
        false => Err(Error::invalid(OP, format!("{name}: the server's commit \"{commit}\" is none"))),
    }
}

#[track_caller]
fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|error| file_error(path, format!("cannot be created: {error}")))
}

/// Keeps other processes from writing the same contents; Python's libraries lock the same file.
#[track_caller]
fn lock(cache: &HubCache, repository: &Path, etag: &str) -> Result<fs::File> {
    let folder = cache.folder().join(".locks").join(repository.file_name().unwrap_or_default());
    create_folder(&folder)?;
    let path = folder.join(format!("{etag}.lock"));
    let locked = fs::OpenOptions::new().create(true).append(true).open(&path).and_then(|file| {
        file.lock()?;
        Ok(file)
    });
    locked.map_err(|error| file_error(&path, format!("cannot be locked: {error}")))
}

/// Makes `pointer`, `depth` folders below the model's, a link to the contents `blobs/etag`; where there are
/// no links, the contents move there.
#[track_caller]
fn point(pointer: &Path, contents: &Path, depth: usize, etag: &str) -> Result<()> {
    if let Some(folder) = pointer.parent() {
        create_folder(folder)?;
    }
    let target = Path::new(&"../".repeat(depth)).join("blobs").join(etag);
    if fs::symlink_metadata(pointer).is_ok() {
        fs::remove_file(pointer)
            .map_err(|error| file_error(pointer, format!("cannot be replaced: {error}")))?;
    }
    link(&target, contents, pointer)
        .map_err(|error| file_error(pointer, format!("cannot be written: {error}")))
}

#[cfg(unix)]
fn link(target: &Path, _contents: &Path, pointer: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, pointer)
}

#[cfg(not(unix))]
fn link(_target: &Path, contents: &Path, pointer: &Path) -> std::io::Result<()> {
    fs::rename(contents, pointer)
}

/// Notes the commit of a branch or tag.
#[track_caller]
fn write_reference(repository: &Path, revision: &str, commit: &str) -> Result<()> {
    if revision == commit {
        return Ok(());
    }
    let path = repository.join("refs").join(revision);
    if read_regular_text(&path).is_ok_and(|known| known.trim() == commit) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    let draft = PathBuf::from(format!("{}.{}.tmp", path.display(), std::process::id()));
    fs::write(&draft, commit)
        .and_then(|()| fs::rename(&draft, &path))
        .map_err(|error| file_error(&path, format!("cannot be written: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_files_that_loaders_read_are_needed() {
        let files = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect::<Vec<_>>();
        let all = files(&[
            ".gitattributes",
            "README.md",
            "config.json",
            "tokenizer.json",
            "chat_template.jinja",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "consolidated.safetensors",
            "model.safetensors.index.json",
            "pytorch_model.bin",
            "pytorch_model.bin.index.json",
            "onnx/model.onnx",
            "tf_model.h5",
            "training_args.bin",
            "../outside.json",
        ]);
        let expected = [
            "config.json",
            "tokenizer.json",
            "chat_template.jinja",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
        ];
        assert_eq!(needed(&all), expected);
        let old = files(&["config.json", "pytorch_model.bin", "training_args.bin", "vocab.txt"]);
        assert_eq!(needed(&old), ["config.json", "pytorch_model.bin", "vocab.txt"]);
    }
}
