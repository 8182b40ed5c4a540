//! [`HubCache`]: models that Hugging Face's libraries have downloaded, found by name. `download` gets models
//! that are not there (feature `hub`).

#[cfg(feature = "hub")]
mod blob;
#[cfg(feature = "hub")]
mod download;
#[cfg(feature = "hub")]
mod http;

#[cfg(feature = "hub")]
pub use download::{HubDownload, HubProgress};

use std::{
    fs,
    path::{Path, PathBuf},
};

use tensor_core::{
    Error, Result,
    file::{file_error, read_regular_text},
};

/// The revision that a model has if none is named.
const MAIN: &str = "main";

/// The folder in which `huggingface_hub` and `transformers` keep downloaded models. Models are found by
/// name and revision; nothing is downloaded, as with `HF_HUB_OFFLINE=1`. `HubDownload` (feature `hub`) gets
/// what is missing.
///
/// ```
/// use weights::HubCache;
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let model = folder.path().join("models--org--tiny");
/// # std::fs::create_dir_all(model.join("refs")).unwrap();
/// # std::fs::create_dir_all(model.join("snapshots/0123")).unwrap();
/// # std::fs::write(model.join("refs/main"), "0123").unwrap();
/// # let device = backend_cpu::cpu();
/// # let x = tensor_core::Tensor::ones([2], &device)?;
/// # let dict = nn::StateDict::from([("x".to_string(), x)]);
/// # nn::save_safetensors(model.join("snapshots/0123/model.safetensors"), &dict)?;
/// # let cache = HubCache::at(folder.path());
/// // let cache = HubCache::from_env()?; // HF_HUB_CACHE, HF_HOME, or ~/.cache/huggingface/hub
/// let folder = cache.model("org/tiny", None)?; // or Some("v1.0"), or a commit
/// let dict = weights::open(&folder)?.state_dict(&device)?;
/// assert_eq!(dict["x"].to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubCache {
    folder: PathBuf,
}

impl HubCache {
    /// The cache of this user: `HF_HUB_CACHE`, else `hub` in `HF_HOME`, else
    /// `huggingface/hub` in `XDG_CACHE_HOME` or `~/.cache`.
    ///
    /// # Errors
    /// None of these variables is set, and there is no home folder.
    #[track_caller]
    pub fn from_env() -> Result<HubCache> {
        from(&|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
    }

    /// The cache in a folder.
    pub fn at(folder: impl Into<PathBuf>) -> HubCache {
        HubCache { folder: folder.into() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder with a model's files, which [`open`](crate::open) reads. `revision` is a branch, a tag or
    /// a commit; `main` by default.
    ///
    /// # Errors
    /// A name that is none of a model, or a `File` error for a model or revision that was not downloaded.
    #[track_caller]
    pub fn model(&self, name: &str, revision: Option<&str>) -> Result<PathBuf> {
        let revision = revision.unwrap_or(MAIN);
        let model = self.repository("HubCache::model", name, revision)?;
        if !model.is_dir() {
            let message = format!("is not there: {name} was not downloaded (hf download {name})");
            return Err(file_error(&model, message));
        }
        // A branch or tag is a file with a commit; a commit is a folder.
        let reference = read_regular_text(&model.join("refs").join(revision));
        let commit = reference.as_deref().map_or(revision, str::trim);
        let snapshot = model.join("snapshots").join(commit);
        if !simple(commit) || !snapshot.is_dir() {
            let message = format!(
                "has no revision \"{revision}\" of {name}; it has {}",
                crate::file::listed(revisions(&model).into_iter())
            );
            return Err(file_error(&model, message));
        }
        Ok(snapshot)
    }

    /// The folder of all revisions of a model, which may not be there; the names are checked.
    #[track_caller]
    fn repository(&self, op: &'static str, name: &str, revision: &str) -> Result<PathBuf> {
        if !simple(name) || name.matches('/').count() > 1 {
            let message = format!("\"{name}\" is no model's name, such as \"org/name\"");
            return Err(Error::invalid(op, message));
        }
        if !simple(revision) {
            let message = format!("\"{revision}\" is no branch, tag or commit");
            return Err(Error::invalid(op, message));
        }
        Ok(self.folder.join(format!("models--{}", name.replace('/', "--"))))
    }

    /// A file of a model, such as `tokenizer.json`.
    ///
    /// # Errors
    /// As [`HubCache::model`], and a `File` error for a file that was not downloaded.
    #[track_caller]
    pub fn file(&self, name: &str, revision: Option<&str>, file: &str) -> Result<PathBuf> {
        let folder = self.model(name, revision)?;
        if !simple(file) {
            return Err(Error::invalid("HubCache::file", format!("\"{file}\" is no file of a model")));
        }
        let path = folder.join(file);
        if path.is_file() { Ok(path) } else { Err(file_error(&path, "is not there: it was not downloaded")) }
    }
}

/// Whether a name consists of parts that stay below a folder.
fn simple(text: &str) -> bool {
    !text.is_empty()
        && text.split('/').all(|part| !["", ".", ".."].contains(&part))
        && !text.contains(['\\', ':', '\0'])
}

#[track_caller]
fn from(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Result<HubCache> {
    let home = || {
        let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
        cache.or_else(|| Some(variable("USERPROFILE")?.join(".cache"))).map(|cache| cache.join("huggingface"))
    };
    let folder = variable("HF_HUB_CACHE")
        .or_else(|| variable("HF_HOME").or_else(home).map(|folder| folder.join("hub")));
    let message = "no cache of models: set HF_HUB_CACHE or HF_HOME to a folder";
    folder.map(HubCache::at).ok_or_else(|| Error::invalid("HubCache::from_env", message))
}

/// The branches and tags of a model that were downloaded.
fn revisions(model: &Path) -> Vec<String> {
    let entries = fs::read_dir(model.join("refs")).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_variables_say() {
        let of = |set: &[(&str, &str)]| {
            let set: Vec<(String, PathBuf)> =
                set.iter().map(|(name, value)| ((*name).to_string(), PathBuf::from(value))).collect();
            from(&|name| set.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()))
                .map(|cache| cache.folder)
        };
        let home = ("HOME", "/home/me");
        let found = of(&[("HF_HUB_CACHE", "/a"), ("HF_HOME", "/b"), home]).ok();
        assert_eq!(found, Some(PathBuf::from("/a")));
        assert_eq!(of(&[("HF_HOME", "/b"), home]).ok(), Some(PathBuf::from("/b/hub")));
        assert_eq!(of(&[home]).ok(), Some(PathBuf::from("/home/me/.cache/huggingface/hub")));
        assert_eq!(of(&[("XDG_CACHE_HOME", "/c"), home]).ok(), Some(PathBuf::from("/c/huggingface/hub")));
        assert!(of(&[]).is_err());
    }
}
