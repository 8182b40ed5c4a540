//! The same jobs on every device of this machine: do the results agree, and how long does each take?
//!
//!     cargo run --release --example compare              # small, all jobs, all devices
//!     cargo run --release --example compare -- --elements 100000000 --steps 1000 --size 4096 --pinverse 4096
//!
//! Copies to and from a device are timed separately. The first run of a job makes the plan and, on a GPU,
//! compiles the kernels; it is shown next to the fastest of the later runs. Speed-ups are relative to the
//! first device. A result that differs from the first device's by more than rounding is an error. Writes
//! `compare.svg` and `compare.png`.

#[path = "../basics/common/mod.rs"]
mod common;
#[path = "../../crates/train/src/raster.rs"]
mod raster;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use clap::{Parser, ValueEnum};
use common::{Outcome, apart, newton_schulz, seconds, timed};
use plotters::{
    coord::Shift,
    prelude::{
        BLACK, Color, DrawingArea, DrawingBackend, IntoDrawingArea, IntoFont, RGBColor, Rectangle,
        SVGBackend, Text, WHITE,
    },
    style::text_anchor::{HPos, Pos, VPos},
};
use taper::prelude::*;

/// Runs jobs on every device, checks that the results agree, and draws how long they take.
#[derive(Parser)]
struct Options {
    /// Devices, separated by commas; the others are compared with the first [default: all of this machine]
    #[arg(long, value_delimiter = ',')]
    device: Vec<String>,
    /// Jobs, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    jobs: Vec<Job>,
    /// Elements of the elementwise job
    #[arg(long, default_value_t = 200_000)]
    elements: usize,
    /// Additions of the elementwise job
    #[arg(long, default_value_t = 20)]
    steps: usize,
    /// Rows and columns of the matrices of the product and of the softmax
    #[arg(long, default_value_t = 256)]
    size: usize,
    /// Batch size of the training step
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    /// Rows of the matrix of the pseudo-inverse; it has twice as many columns
    #[arg(long, default_value_t = 64)]
    pinverse: usize,
    /// Timed runs after the first; the fastest is reported
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seed of all numbers
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Path of the pictures, without `.svg` and `.png`
    #[arg(long, default_value = "compare")]
    out: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Job {
    /// r = r + a * b, repeated
    Elementwise,
    /// A product of two matrices
    Matmul,
    /// The softmax of each row of a matrix
    Softmax,
    /// A training step: 784-128-10, cross-entropy, SGD
    Training,
    /// A pseudo-inverse by products
    Pinverse,
}

/// A job that was started on a device: one call is one run.
type Run = Box<dyn FnMut() -> Result<Tensor>>;

impl Job {
    fn name(self) -> &'static str {
        match self {
            Job::Elementwise => "elementwise",
            Job::Matmul => "matmul",
            Job::Softmax => "softmax",
            Job::Training => "training",
            Job::Pinverse => "pinverse",
        }
    }

    fn describe(self, o: &Options) -> String {
        match self {
            Job::Elementwise => format!("{} elements, {} additions of a product", o.elements, o.steps),
            Job::Matmul => format!("[{0}, {0}] x [{0}, {0}]", o.size),
            Job::Softmax => format!("rows of [{0}, {0}]", o.size),
            Job::Training => format!("784-128-10, batches of {}", o.batch_size),
            Job::Pinverse => format!("[{}, {}]", o.pinverse, 2 * o.pinverse),
        }
    }

    /// The allowed difference between the results of two devices, relative to the greatest element.
    fn tolerance(self, o: &Options) -> f64 {
        let rounding = f64::from(f32::EPSILON);
        match self {
            // Each addition rounds once or twice.
            Job::Elementwise => rounding * o.steps as f64,
            Job::Matmul => 8.0 * rounding * (o.size as f64).sqrt(),
            Job::Softmax => 64.0 * rounding,
            Job::Training => 1e-4,
            Job::Pinverse => 1e-3,
        }
    }

    /// The inputs of the job, made on the host so that they are the same on every device.
    fn inputs(self, o: &Options) -> Result<Vec<Tensor>> {
        let rng = Generator::seed(o.seed, &taper::cpu());
        match self {
            Job::Elementwise => Ok(vec![Tensor::rand(o.elements, &rng)?, Tensor::rand(o.elements, &rng)?]),
            Job::Matmul => {
                Ok(vec![Tensor::rand((o.size, o.size), &rng)?, Tensor::rand((o.size, o.size), &rng)?])
            }
            Job::Softmax => Ok(vec![Tensor::randn((o.size, o.size), &rng)?]),
            Job::Training => {
                let labels = Tensor::arange(0, o.batch_size, 1, &taper::cpu())?.remainder_scalar(10);
                Ok(vec![Tensor::rand((o.batch_size, 784), &rng)?, labels])
            }
            Job::Pinverse => Ok(vec![Tensor::randn((o.pinverse, 2 * o.pinverse), &rng)?]),
        }
    }

    fn start(self, inputs: Vec<Tensor>, device: &Device, o: &Options) -> Result<Run> {
        let mut inputs = inputs.into_iter();
        let mut next =
            || inputs.next().ok_or_else(|| Error::invalid("compare", "a job lacks one of its inputs"));
        match self {
            Job::Elementwise => {
                let (a, b, steps) = (next()?, next()?, o.steps);
                Ok(Box::new(move || {
                    let mut r = a.zeros_like();
                    for _ in 0..steps {
                        r = &r + &a * &b;
                    }
                    Ok(r)
                }))
            }
            Job::Matmul => {
                let (a, b) = (next()?, next()?);
                Ok(Box::new(move || a.matmul(&b)))
            }
            Job::Softmax => {
                let x = next()?;
                Ok(Box::new(move || x.softmax(-1)))
            }
            Job::Training => {
                let (images, labels) = (next()?, next()?);
                let rng = Generator::seed(o.seed, &taper::cpu());
                let mut model = Sequential::new()
                    .add(Linear::new(784, 128, &rng)?)
                    .add(Relu)
                    .add(Linear::new(128, 10, &rng)?);
                model.to(device)?;
                let last = model.parameters().pop();
                let last = last.ok_or_else(|| Error::invalid("compare", "the model has no parameters"))?;
                let mut sgd = Sgd::new(model.parameters(), SgdConfig { lr: 0.01, ..Default::default() });
                // Each run continues from the last one: after the same number of runs, the parameters are
                // the same on all devices.
                Ok(Box::new(move || {
                    sgd.zero_grad();
                    cross_entropy(&model.forward(&images)?, &labels)?.backward()?;
                    sgd.step()?;
                    Ok(last.detach())
                }))
            }
            Job::Pinverse => {
                let a = next()?;
                Ok(Box::new(move || newton_schulz(&a, 60)))
            }
        }
    }
}

/// The times of a job on a device, in seconds.
struct Row {
    job: Job,
    device: String,
    upload: f64,
    first: f64,
    best: f64,
    download: f64,
    speedup: f64,
    /// The difference from the first device's result.
    apart: f64,
}

fn measure(job: Job, device: &Device, o: &Options) -> Outcome<(Row, Tensor)> {
    let inputs = job.inputs(o)?;
    taper::eval_all(&inputs.iter().collect::<Vec<_>>())?;
    let start = Instant::now();
    let there = inputs.to(device)?;
    taper::eval_all(&there.iter().collect::<Vec<_>>())?;
    device.synchronize()?;
    let upload = start.elapsed().as_secs_f64();
    let run = job.start(there, device, o)?;
    let (result, timing) = timed(device, o.rounds, run)?;
    let start = Instant::now();
    let result = result.cpu()?;
    result.eval()?;
    let download = start.elapsed().as_secs_f64();
    let (first, best) = (timing.first, timing.best);
    let row =
        Row { job, device: device.to_string(), upload, first, best, download, speedup: 1.0, apart: 0.0 };
    Ok((row, result))
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    if options.elements * options.size * options.batch_size * options.pinverse == 0 {
        return Err("--elements, --size, --batch-size and --pinverse: give sizes from 1".into());
    }
    let jobs = if options.jobs.is_empty() { Job::value_variants().to_vec() } else { options.jobs.clone() };
    let mut devices = Vec::new();
    match options.device.as_slice() {
        [] => {
            for info in taper::devices() {
                devices.push(taper::device(&info.name)?);
            }
        }
        names => {
            for name in names {
                devices.push(taper::device(name)?);
            }
        }
    }
    for device in &devices {
        writeln!(out, "{}", device.info())?;
    }
    writeln!(
        out,
        "\nThe fastest of {} runs after one to warm up; `first` is that one. Copies are not in them.\n",
        options.rounds.max(1)
    )?;
    writeln!(
        out,
        "{:<12} {:<8} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9}",
        "job", "device", "copy there", "first", "fastest", "copy back", "speed-up", "apart"
    )?;
    let mut rows: Vec<Row> = Vec::new();
    for &job in &jobs {
        let mut first: Option<(f64, Tensor)> = None;
        for device in &devices {
            let (mut row, result) = measure(job, device, options)?;
            match &first {
                Some((best, wanted)) => {
                    row.speedup = best / row.best;
                    row.apart = apart(&result, wanted)?;
                }
                None => first = Some((row.best, result)),
            }
            writeln!(
                out,
                "{:<12} {:<8} {:>10} {:>10} {:>10} {:>10} {:>8.2}x {:>9.1e}",
                job.name(),
                row.device,
                seconds(row.upload),
                seconds(row.first),
                seconds(row.best),
                seconds(row.download),
                row.speedup,
                row.apart
            )?;
            let tolerance = job.tolerance(options);
            if row.apart > tolerance {
                let (name, on) = (job.name(), &row.device);
                return Err(
                    format!("{name} on {on} is {:.1e} apart, more than {tolerance:.1e}", row.apart).into()
                );
            }
            rows.push(row);
        }
    }
    let (svg, png) = (options.out.with_extension("svg"), options.out.with_extension("png"));
    let height = picture_height(&rows);
    draw(&SVGBackend::new(&svg, (WIDTH, height)).into_drawing_area(), &rows, options)?;
    let picture = raster::png((WIDTH, height), |area| draw(area, &rows, options))?;
    fs::write(&png, picture).map_err(|error| format!("{}: {error}", png.display()))?;
    for path in [&svg as &Path, &png] {
        writeln!(out, "written: {}", path.display())?;
    }
    let count = devices.len();
    writeln!(out, "{} jobs agree on {count} device{}", jobs.len(), if count == 1 { "" } else { "s" })?;
    Ok(())
}

const WIDTH: u32 = 760;
const BAR: i32 = 16;
const TITLE: i32 = 22;
const TOP: i32 = 56;

fn picture_height(rows: &[Row]) -> u32 {
    let jobs = rows.chunk_by(|a, b| a.job == b.job).count() as i32;
    (TOP + jobs * (TITLE + 10) + rows.len() as i32 * (BAR + 4) + 10) as u32
}

const COLOURS: [(u8, u8, u8); 6] =
    [(0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233)];

/// Draws a bar for each device under each job; its length is its time relative to the longest of the job.
fn draw<B: DrawingBackend>(area: &DrawingArea<B, Shift>, rows: &[Row], options: &Options) -> Outcome
where
    B::ErrorType: 'static,
{
    const LEFT: i32 = 90;
    const LONGEST: f64 = 430.0;
    area.fill(&WHITE)?;
    let style =
        |size: i32, h: HPos| ("monospace", size).into_font().color(&BLACK).pos(Pos::new(h, VPos::Center));
    let write =
        |text: String, at: (i32, i32), size: i32, h: HPos| area.draw(&Text::new(text, at, style(size, h)));
    write(
        "Times of the same jobs, without copies, warmed up; shorter is better".into(),
        (12, 18),
        13,
        HPos::Left,
    )?;
    write("A bar is as long as its time beside the longest of its job".into(), (12, 36), 11, HPos::Left)?;
    let mut y = TOP;
    for job in rows.chunk_by(|a, b| a.job == b.job) {
        let longest = job.iter().fold(f64::MIN_POSITIVE, |most, row| most.max(row.best));
        let title = format!("{}: {}", job[0].job.name(), job[0].job.describe(options));
        write(title, (12, y + TITLE / 2), 12, HPos::Left)?;
        y += TITLE;
        for (k, row) in job.iter().enumerate() {
            let (red, green, blue) = COLOURS[k % COLOURS.len()];
            let right = LEFT + ((row.best / longest * LONGEST) as i32).max(1);
            area.draw(&Rectangle::new([(LEFT, y), (right, y + BAR)], RGBColor(red, green, blue).filled()))?;
            write(row.device.clone(), (LEFT - 6, y + BAR / 2), 11, HPos::Right)?;
            let label = format!("{}, {:.2}x", seconds(row.best), row.speedup);
            write(label, (right + 6, y + BAR / 2), 11, HPos::Left)?;
            y += BAR + 4;
        }
        y += 10;
    }
    area.present()?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
