//! [`SummaryWriter`]: scalars, histograms, images, texts, hyperparameters and graphs for TensorBoard.
//!
//! Messages and field numbers are those of `tensorboard/compat/proto/{event,summary,tensor}.proto` and
//! `tensorboard/plugins/hparams/*.proto`. `inspect::EventWriter` writes the records.

mod histogram;
mod hparams;
#[cfg(feature = "plots")]
mod image;

pub use hparams::HyperParameter;

use std::{path::Path, time::Duration};

use histogram::Histogram;
use inspect::{EventWriter, Graph, Message};
use tensor_core::{Error, Result, Tensor};
use web_time::{Instant, SystemTime};

const OP: &str = "SummaryWriter";

/// The longest time that events are buffered before they are passed to the system.
const FLUSH_AFTER: Duration = Duration::from_secs(10);

/// Writes event files for TensorBoard: `tensorboard --logdir FOLDER`.
/// `torch.utils.tensorboard.SummaryWriter`.
///
/// ```
/// use tensor_core::Tensor;
/// use train::SummaryWriter;
///
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let device = backend_cpu::cpu();
/// let mut writer = SummaryWriter::new(folder.join("first"))?;
/// writer.hparams(&[("lr", 0.1.into()), ("optimizer", "sgd".into())], &[("loss/last", 0.25)])?;
/// for step in 0..100 {
///     writer.scalar("loss/train", 1.0 / (step + 1) as f64, step)?;
/// }
/// writer.histogram("fc1/weight", &Tensor::new([0.1f32, 0.2, -0.3], &device)?, 99)?;
/// writer.image("digit", &Tensor::zeros((28, 28), &device)?, 99)?;
/// writer.text("notes", "a *first* try", 0)?;
/// writer.flush()?;
/// # Ok(()) }
/// ```
///
/// With the feature `studio`, a served or recording studio shows the same; the environment variable
/// `TAPER_STUDIO=1` serves it when the first writer is created.
///
/// Each run has its own folder. Events are passed to the system at most ten seconds after they are written,
/// by [`SummaryWriter::flush`], and when the writer is dropped.
#[derive(Debug)]
pub struct SummaryWriter {
    events: EventWriter,
    flushed: Instant,
    /// The name of the run in the studio: its folder.
    #[cfg(feature = "studio")]
    run: String,
}

impl SummaryWriter {
    /// A new event file in `folder`, which is created if it does not exist.
    ///
    /// # Errors
    /// `File` for a folder or file that cannot be written.
    #[track_caller]
    pub fn new(folder: impl AsRef<Path>) -> Result<SummaryWriter> {
        #[cfg(feature = "studio")]
        let run = folder.as_ref().display().to_string();
        #[cfg(feature = "studio")]
        studio::serve_if_asked();
        Ok(SummaryWriter {
            events: EventWriter::create(folder)?,
            flushed: Instant::now(),
            #[cfg(feature = "studio")]
            run,
        })
    }

    /// A new event file in the folder of a training that resumes after step `step`: TensorBoard no longer
    /// shows the earlier events of later steps. `SummaryWriter(purge_step=step + 1)`.
    ///
    /// # Errors
    /// As for [`SummaryWriter::new`].
    #[track_caller]
    pub fn resume(folder: impl AsRef<Path>, step: u64) -> Result<SummaryWriter> {
        let mut writer = SummaryWriter::new(folder)?;
        // SessionLog.START: TensorBoard drops earlier events of this step and later ones.
        let started = Message::default().message(7, Message::default().int(1, 1));
        writer.write(step + 1, started)?;
        writer.flush()?;
        Ok(writer)
    }

    /// Writes a number, such as a loss; `/` in tags makes groups. It is stored as f32, as in PyTorch.
    /// `add_scalar`.
    ///
    /// # Errors
    /// `File` for a file that cannot be written.
    #[track_caller]
    pub fn scalar(&mut self, tag: &str, value: f64, step: u64) -> Result<()> {
        #[cfg(feature = "studio")]
        studio::scalar(&self.run, tag, value, step);
        self.summary(step, Message::default().string(1, tag).float(2, value as f32))
    }

    /// Writes a histogram of a tensor's elements, such as of a weight or its gradient. `add_histogram`.
    ///
    /// # Errors
    /// No elements, or some that are NaN or infinite; a value that cannot be computed; `File` for a file
    /// that cannot be written.
    #[track_caller]
    pub fn histogram(&mut self, tag: &str, values: &Tensor, step: u64) -> Result<()> {
        #[cfg(feature = "studio")]
        let _aside = studio::Aside::begin();
        let values = values.detach().to_f64_vec()?;
        let histogram = Histogram::of(&values)?;
        #[cfg(feature = "studio")]
        studio::histogram(&self.run, tag, &histogram.limits, &histogram.counts, step);
        self.summary(step, Message::default().string(1, tag).message(5, histogram.message()))
    }

    /// Writes an image as PNG: `[H, W]` or `[1, H, W]` in grayscale, `[3, H, W]` in RGB, `[4, H, W]` with
    /// alpha; floats, which are clamped to [0, 1], or u8. `add_image`. Needs the feature `plots`.
    ///
    /// # Errors
    /// Another shape or dtype, NaN; a value that cannot be computed; `File` for a file that cannot be
    /// written.
    #[cfg(feature = "plots")]
    #[track_caller]
    pub fn image(&mut self, tag: &str, image: &Tensor, step: u64) -> Result<()> {
        let image = image::image(image)?;
        self.summary(step, Message::default().string(1, tag).message(4, image))
    }

    /// Writes a text, which TensorBoard shows as Markdown. `add_text`.
    ///
    /// # Errors
    /// `File` for a file that cannot be written.
    #[track_caller]
    pub fn text(&mut self, tag: &str, text: &str, step: u64) -> Result<()> {
        #[cfg(feature = "studio")]
        studio::text(&self.run, tag, text, step);
        // A tensor of one string: DT_STRING, shape [1].
        let shape = Message::default().message(2, Message::default().int(1, 1));
        let tensor = Message::default().int(1, 7).message(2, shape).string(8, text);
        let value = Message::default().string(1, &format!("{tag}/text_summary")).message(8, tensor);
        self.summary(step, value.message(9, plugin("text", &[])))
    }

    /// Writes the hyperparameters of a run and its final metrics, for TensorBoard's table of runs. Call it
    /// once per run. `add_hparams`.
    ///
    /// # Errors
    /// A name that is given twice; `File` for a file that cannot be written.
    #[track_caller]
    pub fn hparams(&mut self, settings: &[(&str, HyperParameter)], metrics: &[(&str, f64)]) -> Result<()> {
        let mut names: Vec<&str> = settings.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid(OP, format!("hparams: \"{}\" is given twice", pair[0])));
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        for value in hparams::summaries(settings, metrics, now) {
            self.summary(0, value)?;
        }
        metrics.iter().try_for_each(|(tag, value)| self.scalar(tag, *value, 0))
    }

    /// Writes the graph of tensors, with the names of parameters. `add_graph`.
    ///
    /// # Errors
    /// `File` for a file that cannot be written.
    #[track_caller]
    pub fn graph(&mut self, graph: &Graph) -> Result<()> {
        #[cfg(feature = "studio")]
        studio::show_graph(&self.run, graph);
        self.events.write(Message::default().bytes(4, &graph.graph_def()))
    }

    /// Passes all events to the system, so that TensorBoard can see them.
    ///
    /// # Errors
    /// `File` for a file that cannot be written.
    #[track_caller]
    pub fn flush(&mut self) -> Result<()> {
        self.flushed = Instant::now();
        self.events.flush()
    }

    /// The path of the event file.
    pub fn path(&self) -> &Path {
        self.events.path()
    }

    /// Writes an event with one `Summary.Value`.
    #[track_caller]
    fn summary(&mut self, step: u64, value: Message) -> Result<()> {
        self.write(step, Message::default().message(5, Message::default().message(1, value)))
    }

    #[track_caller]
    fn write(&mut self, step: u64, fields: Message) -> Result<()> {
        let step = i64::try_from(step)
            .map_err(|_| Error::invalid(OP, format!("step {step} does not fit an i64")))?;
        self.events.write(Message::default().int(2, step).then(fields))?;
        if self.flushed.elapsed() >= FLUSH_AFTER {
            self.flush()?;
        }
        Ok(())
    }
}

/// The `SummaryMetadata` of a plugin's data.
fn plugin(name: &str, content: &[u8]) -> Message {
    Message::default().message(1, Message::default().string(1, name).bytes(2, content))
}
