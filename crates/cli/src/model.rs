//! The model that a command line names: a path, or a name of the Hugging Face hub such as `org/name`. With
//! the feature `hub` a model that is not in the cache is downloaded; without it, it must be there.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use clap::Args;
use taper::{
    Device,
    models::{
        KvCache, LanguageModel, PackedRows,
        generate::{GenerationConfig, SamplingConfig},
        load_language_model,
        text::Tokenizer,
    },
};

use crate::{error::Outcome, pictures::PictureReader};

/// The option `--device`.
#[derive(Args, Clone)]
pub(crate) struct DeviceOption {
    /// The device that computes: auto, cpu, wgpu or wgpu:N; `taper devices` lists them
    #[arg(long, default_value = "auto")]
    device: String,
}

impl DeviceOption {
    /// Opens the device.
    pub(crate) fn open(&self) -> Outcome<Device> {
        Ok(taper::device(&self.device)?)
    }
}

/// The option `--cache-bits`.
#[derive(Args, Clone)]
pub(crate) struct CacheOption {
    /// Keeps keys and values of earlier positions in integers of 8 or 4 bits, which takes less memory
    #[arg(long, value_name = "BITS")]
    cache_bits: Option<usize>,
}

impl CacheOption {
    /// The form of keys and values, if they are packed.
    pub(crate) fn form(&self) -> Outcome<Option<PackedRows>> {
        Ok(self.cache_bits.map(PackedRows::of_bits).transpose()?)
    }

    /// An empty cache for a model.
    pub(crate) fn cache<M: LanguageModel + ?Sized>(&self, model: &M) -> Outcome<KvCache> {
        Ok(model.new_cache().packed(self.form()?)?)
    }
}

/// The options by which tokens are chosen.
#[derive(Args, Clone)]
pub(crate) struct SamplingOptions {
    /// The greatest number of new tokens
    #[arg(long, default_value_t = 256)]
    pub(crate) max_new_tokens: usize,
    /// 0 takes the most likely token; larger numbers make other tokens more likely
    #[arg(long, default_value_t = 0.0)]
    pub(crate) temperature: f64,
    /// The number of most likely tokens that are considered; 0 is all
    #[arg(long, default_value_t = 0)]
    pub(crate) top_k: usize,
    /// Only the most likely tokens with this probability together
    #[arg(long, default_value_t = 1.0)]
    pub(crate) top_p: f64,
    /// Only tokens with this part of the greatest probability
    #[arg(long, default_value_t = 0.0)]
    pub(crate) min_p: f64,
    /// Makes tokens that were seen less likely, if above 1
    #[arg(long, default_value_t = 1.0)]
    pub(crate) repetition_penalty: f64,
    /// The seed of the random numbers
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Words at which the text ends
    #[arg(long)]
    pub(crate) stop: Vec<String>,
}

impl SamplingOptions {
    /// The settings of a generation that ends at one of these tokens.
    pub(crate) fn config(&self, stop_tokens: &[u32]) -> GenerationConfig {
        GenerationConfig {
            max_new_tokens: self.max_new_tokens,
            stop_tokens: stop_tokens.to_vec(),
            sampling: SamplingConfig {
                temperature: self.temperature,
                top_k: self.top_k,
                top_p: self.top_p,
                min_p: self.min_p,
                repetition_penalty: self.repetition_penalty,
                seed: self.seed,
                ..Default::default()
            },
            ..Default::default()
        }
    }
}

/// A language model with its tokenizer.
pub(crate) struct Loaded {
    pub(crate) model: Box<dyn LanguageModel + Send + Sync>,
    pub(crate) tokenizer: Tokenizer,
    /// How it reads pictures, if it does.
    pub(crate) pictures: Option<PictureReader>,
}

/// Finds and loads a language model and its tokenizer, and says on standard error how long it took.
pub(crate) fn load(name: &Path, device: &Device) -> Outcome<Loaded> {
    let path = find(name)?;
    let begin = Instant::now();
    let model = load_language_model(&path, device)?;
    let tokenizer = Tokenizer::from_folder(&path)?;
    let pictures = PictureReader::of(&*model, &path)?;
    eprintln!("[{} on {device}, loaded in {:.1} s]", name.display(), begin.elapsed().as_secs_f64());
    Ok(Loaded { model, tokenizer, pictures })
}

/// The path of a model's folder or file, which is downloaded if it is a name of the hub.
pub(crate) fn find(model: &Path) -> Outcome<PathBuf> {
    if model.exists() {
        return Ok(model.to_path_buf());
    }
    match model.to_str() {
        Some(name) if !name.starts_with(['/', '.', '~']) && name.matches('/').count() == 1 => named(name),
        _ => Err(format!(
            "{}: there is no such file or folder; give a path, or a name of the Hugging Face hub such as \
             HuggingFaceTB/SmolLM2-135M-Instruct",
            model.display()
        )
        .into()),
    }
}

#[cfg(not(feature = "hub"))]
fn named(name: &str) -> Outcome<PathBuf> {
    let found = taper::weights::HubCache::from_env()?.model(name, None);
    found.map_err(|error| {
        format!("{}; a `taper` that is built with the feature `hub` downloads it", error.kind()).into()
    })
}

#[cfg(feature = "hub")]
fn named(name: &str) -> Outcome<PathBuf> {
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
