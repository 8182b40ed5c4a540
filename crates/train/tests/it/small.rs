//! A small training with every kind of state: dropout, momenta, a schedule, shuffled batches from workers,
//! noise.

use autograd::TensorGrad;
use data::{DataLoader, TensorDataset};
use nn::{Checkpoint, Dropout, Linear, Module, Relu, Sequential, cross_entropy};
use optim::{Adam, AdamConfig, LrScheduler, Optimizer, StepLr};
use tensor_core::{Generator, Result, Tensor};
use train::LoadedStep;

pub(crate) struct Training {
    pub(crate) model: Sequential,
    pub(crate) adam: Adam,
    schedule: LrScheduler<StepLr>,
    pub(crate) loader: DataLoader<TensorDataset>,
    noise: Generator,
    pub(crate) step: u64,
    pub(crate) losses: Vec<u32>,
}

impl Training {
    /// A training as a program makes it at its start.
    pub(crate) fn new(seed: u64, batch_size: usize, items: usize) -> Result<Training> {
        let device = backend_cpu::cpu();
        let data = Generator::seed(99, &device);
        let images = Tensor::randn([items, 6], &data)?;
        let labels =
            Tensor::from_vec((0..items as i32).map(|i| i % 3).collect::<Vec<i32>>(), [items], &device)?;
        let dataset = TensorDataset::new((images, labels))?;
        let rng = Generator::seed(seed, &device);
        let model = Sequential::new()
            .add(Linear::new(6, 16, &rng)?)
            .add(Relu)
            .add(Dropout::new(0.3, &rng)?)
            .add(Linear::new(16, 3, &rng)?);
        let mut adam = Adam::new(model.parameters(), AdamConfig { lr: 0.01, ..Default::default() });
        Ok(Training {
            schedule: LrScheduler::new(StepLr::new(7, 0.9)?, &mut adam),
            loader: DataLoader::new(dataset, batch_size)?.shuffle(seed).workers(2),
            noise: Generator::seed(seed + 1, &device),
            model,
            adam,
            step: 0,
            losses: Vec::new(),
        })
    }

    /// Trains up to `to` steps in all, and calls `after` after each.
    pub(crate) fn run(&mut self, to: u64, mut after: impl FnMut(&Training) -> Result<()>) -> Result<()> {
        while self.step < to {
            for batch in self.loader.iter() {
                let (x, labels) = batch?;
                let x = x.add(&Tensor::randn(x.shape(), &self.noise)?.mul_scalar(0.1))?;
                self.adam.zero_grad();
                let loss = cross_entropy(&self.model.forward(&x)?, &labels)?;
                loss.backward()?;
                self.adam.step()?;
                self.schedule.step(&mut self.adam)?;
                self.losses.push(loss.item::<f32>()?.to_bits());
                self.step += 1;
                after(self)?;
                if self.step == to {
                    break;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        let loss = self.losses.last().map_or(f64::NAN, |&bits| f64::from(f32::from_bits(bits)));
        Checkpoint::new()
            .module("model", &self.model)
            .part("optimizer", &self.adam)
            .part("schedule", &self.schedule)
            .part("loader", &self.loader)
            .part("noise", &self.noise)
            .number("loss", loss)
            .value("losses", &self.losses)
    }

    pub(crate) fn restore(&mut self, saved: &LoadedStep) -> Result<()> {
        let losses = saved.checkpoint.get_value("losses")?.unwrap_or_default();
        saved
            .checkpoint
            .restore()
            .module("model", &self.model)
            .part("optimizer", &mut self.adam)
            .part("schedule", &mut self.schedule)
            .part("loader", &mut self.loader)
            .part("noise", &mut self.noise)
            .finish()?;
        (self.step, self.losses) = (saved.step, losses);
        Ok(())
    }

    /// Every loss and every parameter, bit for bit.
    pub(crate) fn bits(&self) -> Result<(Vec<u32>, Vec<Vec<u8>>)> {
        let parameters = self.model.parameters().iter().map(Tensor::read_bytes).collect::<Result<_>>()?;
        Ok((self.losses.clone(), parameters))
    }
}
