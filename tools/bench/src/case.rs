//! A case: its preparation, the timed call, the check after it, and the timing itself.
//!
//! Taper is lazy, so the rule is: a timed call ends when its results are in memory. [`Timed::run`] looks that
//! they are.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use taper::{DType, Device, Generator, Tensor};

use crate::{
    Result,
    line::{Line, Times},
    machine::Machine,
    peer::Peer,
    round,
};

/// Suffix of the names of cases that run while another process is busy.
pub(crate) const BUSY_SUFFIX: &str = "_busy";

/// A named piece of work.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) work: Work,
    pub(crate) cost: Cost,
    /// Why a device cannot run it, if it cannot.
    misfit: fn(&Device) -> Option<&'static str>,
    /// Whether another process keeps a core busy meanwhile.
    pub(crate) beside_busy: bool,
}

/// The work of a call, by which its rate is known, and how many calls are timed.
#[derive(Clone)]
pub(crate) struct Cost {
    /// Multiplications and additions: the limit is the processor's peak.
    pub(crate) flop: Option<f64>,
    /// Bytes that must be read and written at least: the limit is the memory.
    pub(crate) bytes: Option<f64>,
    /// Operations, for the time of each.
    pub(crate) ops: Option<f64>,
    pub(crate) reps: RangeInclusive<usize>,
}

pub(crate) enum Work {
    Timed(Make),
    /// Work that is not a call repeated: gives its own line.
    Alone(fn(&Bench, &str) -> Result<Line>),
    /// One of [`Machine::CASES`], by its place there.
    Machine(usize),
    /// A file that another program runs too, or a row of the table of operations.
    Compared(Box<dyn Compared>),
}

/// The error of a call that needs files.
pub(crate) const NO_MODELS: &str = "--models is missing";

/// Work that measures both sides itself.
pub(crate) trait Compared {
    /// Both lines of a case; a wrong result is reported in Taper's line.
    fn run(&self, bench: &Bench, case: &Case, peer: Option<&mut Peer>) -> (Line, Option<Line>);

    /// The call that is timed, with files from the folder `models`, if it needs any.
    fn call(&self, models: Option<&Path>, device: &Device) -> Result<Call>;
}

/// State that all cases share.
pub(crate) struct Bench {
    pub(crate) device: Device,
    pub(crate) threads: usize,
    pub(crate) budget: Duration,
    pub(crate) machine: Machine,
    /// The folder of packages with models.
    pub(crate) models: Option<PathBuf>,
}

/// Where a case gets its inputs: random numbers, in the device's memory before the clock starts.
pub(crate) struct Inputs {
    pub(crate) device: Device,
    pub(crate) rng: Generator,
}

impl Inputs {
    pub(crate) fn new(device: &Device) -> Inputs {
        Inputs { device: device.clone(), rng: Generator::seed(0, device) }
    }

    /// Uniform on [0, 1).
    pub(crate) fn rand(&self, shape: impl Into<taper::Shape>) -> Result<Tensor> {
        let tensor = Tensor::rand(shape, &self.rng)?;
        tensor.eval()?;
        Ok(tensor)
    }

    /// Uniform on [-0.5, 0.5).
    pub(crate) fn centred(&self, shape: impl Into<taper::Shape>) -> Result<Tensor> {
        self.centred_of(DType::F32, shape)
    }

    /// Uniform on [-0.5, 0.5), in another dtype.
    pub(crate) fn centred_of(&self, dtype: DType, shape: impl Into<taper::Shape>) -> Result<Tensor> {
        let tensor = Tensor::uniform(shape, -0.5, 0.5, &self.rng)?.to_dtype(dtype)?;
        tensor.eval()?;
        Ok(tensor)
    }

    /// Integers below `bound`, i32.
    pub(crate) fn indices(&self, bound: usize, shape: impl Into<taper::Shape>) -> Result<Tensor> {
        let tensor = Tensor::randint(0, i32::try_from(bound)?, shape, &self.rng)?;
        tensor.eval()?;
        Ok(tensor)
    }
}

/// One timed call: gives every result, evaluated.
pub(crate) type Call = Box<dyn FnMut() -> taper::Result<Vec<Tensor>>>;
/// Compares the last timed call's results with a reference; may call it once more, if the reference needs
/// the state before the call.
pub(crate) type Check = Box<dyn FnOnce(&[Tensor], &mut Call) -> Result<()>>;
/// Builds the inputs and returns the call to time and the check of its results.
pub(crate) type Make = Box<dyn Fn(&Inputs) -> Result<(Call, Check)>>;

impl Case {
    /// A case whose `make` builds the inputs and returns the call to time and the check of its results.
    pub(crate) fn new(
        name: impl Into<String>,
        make: impl Fn(&Inputs) -> Result<(Call, Check)> + 'static,
    ) -> Case {
        Case::of(name, Work::Timed(Box::new(make)))
    }

    pub(crate) fn alone(name: &str, run: fn(&Bench, &str) -> Result<Line>) -> Case {
        Case::of(name, Work::Alone(run))
    }

    pub(crate) fn compared(name: impl Into<String>, work: impl Compared + 'static) -> Case {
        Case::of(name, Work::Compared(Box::new(work)))
    }

    pub(crate) fn of(name: impl Into<String>, work: Work) -> Case {
        let cost = Cost { flop: None, bytes: None, ops: None, reps: 10..=2000 };
        Case { name: name.into(), work, cost, misfit: |_| None, beside_busy: false }
    }

    /// The same work while another process keeps a core busy.
    pub(crate) fn busy(mut self) -> Case {
        self.name += BUSY_SUFFIX;
        self.beside_busy = true;
        self
    }

    /// The multiplications and additions of a call.
    pub(crate) fn flop(mut self, flop: usize) -> Case {
        self.cost.flop = Some(flop as f64);
        self
    }

    /// The f32 elements that a call must read and write at least.
    pub(crate) fn elements(mut self, elements: usize) -> Case {
        self.cost.bytes = Some(elements as f64 * 4.0);
        self
    }

    /// The operations of a call.
    pub(crate) fn ops(mut self, ops: usize) -> Case {
        self.cost.ops = Some(ops as f64);
        self
    }

    /// Reported as absent on a device that `misfit` gives a reason for.
    pub(crate) fn unless(mut self, misfit: fn(&Device) -> Option<&'static str>) -> Case {
        self.misfit = misfit;
        self
    }

    /// How many calls are timed: at least ten, if nothing else is said.
    pub(crate) fn reps(mut self, reps: RangeInclusive<usize>) -> Case {
        self.cost.reps = reps;
        self
    }

    /// The line of a case that this device cannot run.
    pub(crate) fn absent(&self, device: &Device) -> Option<Line> {
        (self.misfit)(device).map(|why| Line::absent("taper", &self.name, why))
    }
}

impl Case {
    /// Prints which kernels some calls run.
    pub(crate) fn profile(&self, device: &Device, models: Option<&Path>) -> Result<()> {
        const CALLS: usize = 10;
        println!("{}, {CALLS} calls", self.name);
        if let Some(why) = (self.misfit)(device) {
            println!("{why}\n");
            return Ok(());
        }
        let mut call = match &self.work {
            Work::Timed(make) => make(&Inputs::new(device))?.0,
            Work::Compared(work) => work.call(models, device)?,
            Work::Machine(_) | Work::Alone(_) => {
                println!("no calls that are repeated: not profiled\n");
                return Ok(());
            }
        };
        warm_up(device, || {
            call()?;
            Ok(device.synchronize()?)
        })?;
        println!("{}\n", taper::profile(|| (0..CALLS).try_for_each(|_| call().map(drop)))?);
        Ok(())
    }
}

impl Case {
    /// The call that is counted, and the bytes that it must read and write at least, where that is known.
    pub(crate) fn counted(&self, device: &Device) -> Result<(Call, Option<u64>)> {
        let call = match &self.work {
            Work::Timed(make) => make(&Inputs::new(device))?.0,
            Work::Compared(work) => work.call(None, device)?,
            Work::Alone(_) | Work::Machine(_) => {
                return Err("only calls that are repeated are counted".into());
            }
        };
        Ok((call, self.cost.bytes.map(|bytes| bytes as u64)))
    }
}

impl Bench {
    /// The lines of a case that reads a model from the folder of packages. An error is reported in its line.
    pub(crate) fn with_models(
        &self,
        name: &str,
        run: impl FnOnce(&Path) -> crate::Result<(Line, Option<Line>)>,
    ) -> (Line, Option<Line>) {
        let Some(models) = &self.models else {
            return (Line::absent("taper", name, "--models names no folder of packages"), None);
        };
        let mut lines = run(models).unwrap_or_else(|error| {
            let wrong = Some(error.to_string());
            (Line { peer: "taper".into(), case: name.into(), wrong, ..Line::default() }, None)
        });
        lines.0.device = Some(self.device.name().into());
        lines.0.threads = Some(self.threads);
        self.device.empty_cache();
        lines
    }

    /// Runs a case. A wrong result is reported in its line.
    pub(crate) fn run(&self, case: &Case) -> Line {
        let line = match (&case.work, case.absent(&self.device)) {
            (_, Some(line)) => Ok(line),
            (Work::Machine(i), None) => Ok(self.machine.lines[*i].clone()),
            (Work::Compared(work), None) => return work.run(self, case, None).0,
            (Work::Alone(run), None) => run(self, &case.name),
            (Work::Timed(make), None) => self.timed(case, make),
        };
        let mut line = line.unwrap_or_else(|error| Line {
            peer: "taper".into(),
            case: case.name.clone(),
            wrong: Some(error.to_string()),
            ..Line::default()
        });
        line.device.get_or_insert_with(|| self.device.name().into());
        line.threads = Some(self.threads);
        // Free the memory that the case left in the cache, so that it does not affect the next one.
        self.device.empty_cache();
        line
    }

    fn timed(&self, case: &Case, make: &Make) -> Result<Line> {
        let (mut call, check) = make(&Inputs::new(&self.device))?;
        let (times, last) = time(&self.device, &mut call, case.cost.reps.clone(), self.budget)?;
        let mut line = self.line(case, &times);
        if let Err(error) = check(&last, &mut call) {
            line.wrong = Some(error.to_string());
        }
        Ok(line)
    }

    /// The line of a case with these times.
    pub(crate) fn line(&self, case: &Case, times: &Times) -> Line {
        let Cost { flop, bytes, ops, .. } = &case.cost;
        let seconds = times.median() / 1e3;
        let mut line = Line::timed("taper", &case.name, times);
        // The limits are those of the host's processor and memory.
        let here = self.device.name() == "cpu";
        if let Some(flop) = flop {
            let gflops = flop / seconds / 1e9;
            line.gflops = Some(round(gflops, 1));
            line.limit_share = here.then(|| round(gflops / self.machine.peak_gflops, 3));
        }
        if let Some(bytes) = bytes {
            let gb_per_s = bytes / seconds / 1e9;
            line.gb_per_s = Some(round(gb_per_s, 2));
            line.limit_share = here.then(|| round(gb_per_s / self.machine.copy_gb_per_s, 3));
        }
        line.ns_per_op = ops.map(|ops| round(seconds * 1e9 / ops, 1));
        line
    }
}

/// Runs calls to warm up, which wait for the device: three on the processor. A GPU lowers its clock while it
/// is idle, as during the check of the case before (an H200 from 1,980 to 345 MHz within three seconds), and
/// takes up to a second of work to raise it.
fn warm_up(device: &Device, mut call: impl FnMut() -> Result<()>) -> Result<()> {
    const BUSY_TIME: Duration = Duration::from_millis(1500);
    let (start, mut calls) = (Instant::now(), 0);
    while calls < 3 || (device.name() != "cpu" && start.elapsed() < BUSY_TIME) {
        call()?;
        calls += 1;
    }
    Ok(())
}

/// The times of calls until the budget is spent, as many as `reps` allows, after those to warm up; and the
/// results of the last.
pub(crate) fn time(
    device: &Device,
    call: &mut dyn FnMut() -> taper::Result<Vec<Tensor>>,
    reps: RangeInclusive<usize>,
    budget: Duration,
) -> Result<(Times, Vec<Tensor>)> {
    let mut last = Vec::new();
    let mut times = Vec::new();
    // As PyTorch's script does: the former result is dropped within the clock, the last one is kept to be
    // checked.
    let mut once = |last: &mut Vec<Tensor>| -> Result<f64> {
        let start = Instant::now();
        last.clear();
        *last = call()?;
        device.synchronize()?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    warm_up(device, || once(&mut last).map(drop))?;
    let start = Instant::now();
    while times.len() < *reps.start() || (start.elapsed() < budget && times.len() < *reps.end()) {
        times.push(once(&mut last)?);
    }
    if last.is_empty() || !last.iter().all(Tensor::is_evaluated) {
        return Err("a result was not evaluated within the clock".into());
    }
    Ok((Times::of(times), last))
}
