//! A training that is stopped, saved, and resumed by a program that knows nothing of it gives the same bits
//! as one that was not stopped: dropout, shuffling, momentum and a schedule included.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::common::device;
use taper::{
    ErrorKind, StateValue,
    nn::Dropout,
    optim::{LrScheduler, StepLr},
    prelude::*,
};

#[derive(Module)]
struct Net {
    fc1: Linear,
    drop: Dropout,
    rest: Sequential,
}

impl Net {
    fn new(rng: &Generator) -> Result<Net> {
        Ok(Net {
            fc1: Linear::new(6, 16, rng)?,
            drop: Dropout::new(0.3, rng)?,
            rest: Sequential::new().add(Relu).add(Dropout::new(0.5, rng)?).add(Linear::new(16, 3, rng)?),
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.rest.forward(&self.drop.forward(&self.fc1.forward(x)?)?)
    }
}

/// All that a training is made of.
pub(crate) struct Training {
    net: Net,
    sgd: Sgd,
    schedule: LrScheduler<StepLr>,
    loader: DataLoader<TensorDataset>,
    /// Noise on the inputs.
    noise: Generator,
}

pub(crate) const STEPS: usize = 17;

impl Training {
    /// As a program makes it when it starts; another seed is another program.
    pub(crate) fn new(seed: u64, device: &Device) -> Result<Training> {
        let host = taper::cpu();
        let data = Generator::seed(99, &host);
        let images = Tensor::randn([22, 6], &data)?;
        let labels = Tensor::from_vec((0..22).map(|i| i % 3).collect::<Vec<i32>>(), [22], &host)?;
        let loader = DataLoader::new(TensorDataset::new((images, labels))?, 4)?.shuffle(seed).workers(1);
        let rng = Generator::seed(seed, &host);
        let mut net = Net::new(&rng)?;
        net.to(device)?;
        let config = SgdConfig { lr: 0.1, momentum: 0.9, weight_decay: 1e-3, ..Default::default() };
        let mut sgd = Sgd::new(net.parameters(), config);
        let schedule = LrScheduler::new(StepLr::new(4, 0.7)?, &mut sgd);
        Ok(Training { net, sgd, schedule, loader, noise: Generator::seed(seed + 1, device) })
    }

    /// Steps `from` to `to`, with `saving` called after each.
    pub(crate) fn run(
        &mut self,
        device: &Device,
        from: usize,
        to: usize,
        saving: impl Fn(usize, &Training) -> Result<()>,
    ) -> Result<Vec<u32>> {
        let mut losses = Vec::new();
        let mut step = from;
        while step < to {
            for batch in self.loader.iter() {
                let (x, labels) = batch?.to(device)?;
                let x = x.add(&Tensor::randn(x.shape(), &self.noise)?.mul_scalar(0.1))?;
                self.sgd.zero_grad();
                let loss = cross_entropy(&self.net.forward(&x)?, &labels)?;
                loss.backward()?;
                self.sgd.step()?;
                self.schedule.step(&mut self.sgd)?;
                losses.push(loss.item::<f32>()?.to_bits());
                step += 1;
                saving(step, self)?;
                if step == to {
                    break;
                }
            }
        }
        Ok(losses)
    }

    pub(crate) fn save(&self, step: usize, path: &Path) -> Result<()> {
        Checkpoint::new()
            .module("model", &self.net)
            .part("optimizer", &self.sgd)
            .part("scheduler", &self.schedule)
            .part("loader", &self.loader)
            .part("noise", &self.noise)
            .number("step", step)
            .text("note", "halfway")
            .save(path)
    }

    pub(crate) fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        checkpoint
            .restore()
            .module("model", &self.net)
            .part("optimizer", &mut self.sgd)
            .part("scheduler", &mut self.schedule)
            .part("loader", &mut self.loader)
            .part("noise", &mut self.noise)
            .finish()
    }

    fn bits(&self) -> Vec<Vec<u8>> {
        self.net.parameters().iter().map(|p| p.read_bytes().unwrap()).collect()
    }
}

#[test]
fn a_resumed_training_gives_the_bits_of_one_that_was_not_stopped() -> Result<()> {
    let d = device();
    let folder = tempfile::tempdir().unwrap();
    let path = |step: usize| folder.path().join(format!("{step}.safetensors"));
    let mut whole = Training::new(1, &d)?;
    // Within an epoch of 6 batches, after its last, and before the first of all.
    let stops = [0, 3, 6, 14];
    whole.save(0, &path(0))?;
    let losses = whole.run(&d, 0, STEPS, |step, training| match stops.contains(&step) {
        true => training.save(step, &path(step)),
        false => Ok(()),
    })?;
    for stop in stops {
        let mut resumed = Training::new(1000 + stop as u64, &d)?;
        let checkpoint = Checkpoint::load(path(stop), &d)?;
        assert_eq!(checkpoint.get_number("step").unwrap().as_i64(), stop as i64);
        assert_eq!(checkpoint.get_text("note"), Some("halfway"));
        resumed.restore(&checkpoint)?;
        assert_eq!(resumed.run(&d, stop, STEPS, |_, _| Ok(()))?, losses[stop..], "from step {stop}");
        assert_eq!(resumed.bits(), whole.bits(), "from step {stop}");
        assert_eq!(resumed.sgd.learning_rates(), whole.sgd.learning_rates());
    }
    Ok(())
}

/// The elements that dropout drops depend on a position that is not in the state dict, whose names are
/// PyTorch's.
#[test]
fn the_state_dict_holds_parameters_alone() -> Result<()> {
    let net = Training::new(1, &device())?.net;
    let names: Vec<String> = net.state_dict().into_keys().collect();
    assert_eq!(names, ["fc1.bias", "fc1.weight", "rest.2.bias", "rest.2.weight"]);
    let streams = net.rng_state();
    let names: Vec<&str> = streams.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["drop.offset", "drop.seed", "rest.1.offset", "rest.1.seed"]);
    Ok(())
}

/// [`Net`] without its first dropout.
#[derive(Module)]
struct Calm {
    fc1: Linear,
    rest: Sequential,
}

#[test]
fn a_checkpoint_of_something_else_changes_nothing() -> Result<()> {
    let d = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let mut training = Training::new(1, &d)?;
    training.run(&d, 0, 2, |step, training| training.save(step, &path))?;
    let checkpoint = Checkpoint::load(&path, &d)?;

    // The last part does not fit: those before it are as they were.
    let mut other = Training::new(2, &d)?;
    other.sgd.add_group([Tensor::zeros([2], &d)?.into_cell(true)?], SgdConfig::default());
    let state = |t: &Training| {
        let parts = [t.sgd.state_dict(), t.schedule.state_dict(), t.loader.state_dict(), t.net.rng_state()];
        let parts = parts.into_iter().flatten().filter_map(|(name, value)| match value {
            StateValue::Number(number) => Some((name, format!("{number:?}"))),
            StateValue::Tensor(_) => None,
        });
        (t.bits(), parts.collect::<Vec<_>>())
    };
    let before = state(&other);
    let restored = checkpoint
        .restore()
        .module("model", &other.net)
        .part("loader", &mut other.loader)
        .part("scheduler", &mut other.schedule)
        .part("optimizer", &mut other.sgd)
        .finish();
    let error = restored.unwrap_err();
    let ErrorKind::StateDict { missing, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(missing[0], "optimizer.param_groups.1.lr");
    assert_eq!(state(&other), before);

    // A model of another shape, and one of the same parameters with a dropout less.
    let narrow = Linear::new(2, 2, &Generator::seed(0, &d))?;
    let message = checkpoint.restore().module("model", &narrow).finish().unwrap_err().to_string();
    assert!(message.contains(r#"missing ["model.weight", "model.bias"]"#), "{message}");
    let rng = Generator::seed(5, &d);
    let calm = Calm { fc1: Linear::new(6, 16, &rng)?, rest: other.net.rest };
    let weight = calm.fc1.weight.to_vec::<f32>()?;
    let message = checkpoint.restore().module("model", &calm).finish().unwrap_err().to_string();
    assert!(message.contains(r#"unexpected ["rng.model.drop.offset", "rng.model.drop.seed"]"#), "{message}");
    assert_eq!(calm.fc1.weight.to_vec::<f32>()?, weight);
    let mut other = Training::new(2, &d)?;
    // A part that is not there.
    let message = checkpoint.restore().part("sampler", &mut other.noise).finish().unwrap_err().to_string();
    assert!(message.contains(r#"missing ["sampler.seed", "sampler.offset"]"#), "{message}");
    // Some of the parts, as for inference.
    checkpoint.restore().module("model", &other.net).finish()?;
    assert_eq!(other.bits(), training.bits());
    Ok(())
}

#[test]
fn a_checkpoint_takes_any_name_once() -> Result<()> {
    let d = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let rng = Generator::seed(0, &d);
    let message = Checkpoint::new().part("a", &rng).number("a", 1i64).save(&path).unwrap_err().to_string();
    assert!(message.contains("given twice"), "{message}");
    assert!(!path.exists());
    taper::nn::save_safetensors(&path, &Linear::new(2, 2, &rng)?.state_dict())?;
    assert!(Checkpoint::load(&path, &d).unwrap_err().to_string().contains("load_safetensors"));

    // Names that mean something to the format, and those that could be taken for one another.
    let names = [
        "rng",
        "rng.model",
        "model",
        "model.drop",
        "",
        "%",
        "%rng",
        "%2E",
        "a.b",
        "a%2Eb",
        "a%b",
        "50%",
        "taper",
        "line\nbreak",
    ];
    let build = |seed: u64| -> Result<Vec<(Linear, Dropout, Generator)>> {
        let one = |k: u64| {
            let rng = Generator::seed(100 * seed + k, &d);
            Ok((Linear::new(1, 1, &rng)?, Dropout::new(0.5, &rng)?, rng))
        };
        (0..names.len() as u64).map(one).collect()
    };
    let (first, mut second) = (build(1)?, build(2)?);
    let mut saved =
        Checkpoint::new().text("format", "mine").text("taper.version", "mine too").value("format", &7);
    for ((linear, drop, rng), name) in first.iter().zip(names) {
        saved = saved.module(&format!("m{name}"), &(linear.clone(), drop.clone())).part(name, rng);
    }
    let names_of_numbers = names.map(|name| format!("n{name}"));
    saved = names_of_numbers.iter().enumerate().fold(saved, |saved, (k, name)| saved.number(name, k as i64));
    saved.save(&path)?;
    let read = Checkpoint::load(&path, &d)?;
    assert_eq!((read.get_text("format"), read.get_text("taper.version")), (Some("mine"), Some("mine too")));
    assert_eq!(read.get_value::<u32>("format")?, Some(7));
    for (k, name) in names_of_numbers.iter().enumerate() {
        assert_eq!(read.get_number(name).map(|n| n.as_i64()), Some(k as i64), "{name:?}");
    }
    for ((linear, drop, rng), name) in second.iter_mut().zip(names) {
        let pair = (linear.clone(), drop.clone());
        read.restore().module(&format!("m{name}"), &pair).part(name, rng).finish()?;
    }
    for ((a, b), name) in first.iter().zip(&second).zip(names) {
        assert_eq!(a.0.weight.to_vec::<f32>()?, b.0.weight.to_vec::<f32>()?, "{name:?}");
        assert_eq!(a.2.initial_seed(), b.2.initial_seed(), "{name:?}");
        assert_eq!(format!("{:?}", a.1.rng_state()), format!("{:?}", b.1.rng_state()), "{name:?}");
    }
    Ok(())
}

#[test]
fn numbers_come_back_bit_for_bit_wherever_tensors_are() -> Result<()> {
    let d = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let numbers = [0.1, -0.0, f64::INFINITY, f64::MIN_POSITIVE / 3.0, 1e300];
    let saved =
        numbers.iter().enumerate().fold(Checkpoint::new(), |c, (i, v)| c.number(&format!("n{i}"), *v));
    saved.number("most", i64::MAX).number("yes", true).save(&path)?;
    let read = Checkpoint::load(&path, &d)?;
    for (i, v) in numbers.iter().enumerate() {
        assert_eq!(read.get_number(&format!("n{i}")).unwrap().as_f64().to_bits(), v.to_bits());
    }
    assert_eq!(read.get_number("most").unwrap().as_i64(), i64::MAX);
    assert!(read.get_number("yes").unwrap().as_bool());
    Ok(())
}
