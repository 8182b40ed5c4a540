//! The model that `--model` names: a path, or a name of the Hugging Face hub such as `org/name`. With the
//! feature `hub` a model that is not in the cache is downloaded; without it, it must be there.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

/// The path of a model's folder or file.
pub(crate) fn find(model: &Path) -> Result<PathBuf, Box<dyn Error>> {
    if model.exists() {
        return Ok(model.to_path_buf());
    }
    let name = model.to_str().ok_or("the name of the model is no text")?;
    if name.starts_with(['/', '.', '~']) || name.matches('/').count() != 1 {
        return Err(format!("{name}: there is no such folder or file").into());
    }
    named(name)
}

#[cfg(not(feature = "hub"))]
fn named(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let found = taper::weights::HubCache::from_env()?.model(name, None);
    found.map_err(|error| format!("{error}; with `--features hub` this program downloads it").into())
}

#[cfg(feature = "hub")]
fn named(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    use indicatif::{ProgressBar, ProgressStyle};

    let style = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let mut bar: Option<(String, ProgressBar)> = None;
    let style = ProgressStyle::with_template(style)?;
    let hub = taper::weights::HubDownload::from_env()?;
    let folder = hub.model(name, None, &mut |progress| {
        let shown = bar.as_ref().is_some_and(|(file, _)| file == progress.file);
        if !shown {
            let new = ProgressBar::new(progress.total.unwrap_or(0)).with_style(style.clone());
            new.set_message(progress.file.to_string());
            // The bar of the file before stays as a line.
            if let Some((_, old)) = bar.replace((progress.file.to_string(), new)) {
                old.finish();
            }
        }
        if let Some((_, bar)) = &bar {
            bar.set_position(progress.received);
        }
    })?;
    if let Some((_, bar)) = bar {
        bar.finish();
    }
    Ok(folder)
}
