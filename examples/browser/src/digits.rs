//! Networks that learn the handwritten digits that ship with Taper.

#[path = "../../basics/networks/mod.rs"]
mod networks;

use std::{
    collections::VecDeque,
    str::FromStr,
    sync::atomic::{AtomicUsize, Ordering},
};

use networks::{mnist::MnistNet, vision_transformer::VisionTransformer};
use taper::{
    data::{Digits, random_split},
    inspect::Graph,
    nn::{Sequential, Unflatten},
    prelude::*,
    studio,
};

/// A network for images of 8x8 pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Two linear layers.
    Mlp,
    /// Two convolutions, a pooling and two linear layers.
    Cnn,
    /// Attention between 16 patches, in two layers.
    Transformer,
}

impl Network {
    /// All networks.
    pub const ALL: [Network; 3] = [Network::Mlp, Network::Cnn, Network::Transformer];

    #[track_caller]
    fn build(self, rng: &Generator) -> Result<Sequential> {
        let images = || Unflatten::new(1, [1, 8, 8]);
        Ok(match self {
            Network::Mlp => {
                Sequential::new().add(Linear::new(64, 128, rng)?).add(Relu).add(Linear::new(128, 10, rng)?)
            }
            Network::Cnn => Sequential::new().add(images()).add(MnistNet::with_size(8, rng)?),
            Network::Transformer => Sequential::new().add(images()).add(VisionTransformer::new(64, 2, rng)?),
        })
    }

    fn learning_rate(self) -> f64 {
        match self {
            Network::Mlp | Network::Transformer => 3e-3,
            Network::Cnn => 1e-3,
        }
    }
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(name: &str) -> Result<Network> {
        match name {
            "mlp" => Ok(Network::Mlp),
            "cnn" => Ok(Network::Cnn),
            "transformer" => Ok(Network::Transformer),
            _ => Err(Error::invalid("Network", format!("{name:?} is none of mlp, cnn and transformer"))),
        }
    }
}

/// The results of an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epoch {
    /// Its number, from 1 on.
    pub number: usize,
    /// The mean loss of its steps.
    pub loss: f64,
    /// The share of the images held out that are recognised.
    pub accuracy: f64,
}

/// A network that learns four fifths of the 1,797 digits of 8x8 pixels, and is tested with the others.
pub struct Learner {
    device: Device,
    train: DataLoader<TensorDataset>,
    test: (Tensor, Tensor),
    model: Sequential,
    optimizer: AdamW,
    /// The batches that the epoch still has, on the host.
    waiting: VecDeque<(Tensor, Tensor)>,
    losses: Vec<Tensor>,
    epochs: usize,
    steps: u64,
    /// The name of this training in the studio.
    run: String,
}

/// The trainings so far.
static TRAININGS: AtomicUsize = AtomicUsize::new(0);

/// The images of a step.
const BATCH: usize = 32;

impl Learner {
    /// A network with random weights on a device.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn new(network: Network, device: &Device) -> Result<Learner> {
        const SEED: u64 = 42;
        let host = taper::cpu();
        let all = Digits::load(&host)?;
        let held_out = all.len() / 5;
        let parts = random_split(&all, &[all.len() - held_out, held_out], SEED)?;
        let train = DataLoader::new(all.select(parts[0].indices())?, BATCH)?.shuffle(SEED);
        let test = DataLoader::new(all.select(parts[1].indices())?, held_out)?;
        let test = test.iter().next().ok_or_else(|| Error::invalid("Learner", "no images are held out"))?;
        let mut model = network.build(&Generator::seed(SEED, &host))?;
        model.to(device)?;
        let config = AdamWConfig { lr: network.learning_rate(), weight_decay: 1e-4, ..Default::default() };
        let optimizer = AdamW::new(model.parameters(), config);
        let training = TRAININGS.fetch_add(1, Ordering::Relaxed) + 1;
        let run = format!("{training}. {network:?} on {device}");
        studio::show_model(&run, &model);
        Ok(Learner {
            device: device.clone(),
            train,
            test: test?.to(device)?,
            model,
            optimizer,
            waiting: VecDeque::new(),
            losses: Vec::new(),
            epochs: 0,
            steps: 0,
            run,
        })
    }

    /// The number of trained numbers.
    pub fn parameters(&self) -> usize {
        self.model.num_parameters()
    }

    /// Makes up to `steps` steps; returns the results of the epoch if it has ended.
    ///
    /// # Errors
    /// The errors of the device.
    pub async fn advance(&mut self, steps: usize) -> Result<Option<Epoch>> {
        if self.waiting.is_empty() {
            self.waiting = self.train.iter().collect::<Result<_>>()?;
            self.losses.clear();
        }
        self.model.train();
        for _ in 0..steps {
            let Some(batch) = self.waiting.pop_front() else { break };
            let batch = batch.to(&self.device)?;
            let loss = studio::step(self.steps, || self.step(&batch))?;
            self.losses.push(loss);
            self.steps += 1;
        }
        if !self.waiting.is_empty() {
            return Ok(None);
        }
        let losses = Tensor::stack(&self.losses, 0)?.to_vec_async::<f32>().await?;
        let first = self.steps - losses.len() as u64;
        for (step, &loss) in (first..).zip(&losses) {
            studio::scalar(&self.run, "loss of a batch", loss.into(), step);
        }
        let loss = losses.iter().copied().map(f64::from).sum::<f64>() / losses.len() as f64;
        self.model.eval();
        let (images, labels) = &self.test;
        let hits = no_grad(|| self.model.forward(images)?.argmax_axis(1, false)?.eq(labels))?;
        let right = hits.to_dtype(DType::F32)?.sum().item_async::<f32>().await?;
        self.epochs += 1;
        let accuracy = f64::from(right) / labels.numel() as f64;
        studio::scalar(&self.run, "accuracy on digits held out", accuracy, self.steps);
        Ok(Some(Epoch { number: self.epochs, loss, accuracy }))
    }

    /// Makes a step; the studio is shown the graph and the kernels of the first one.
    #[track_caller]
    fn step(&mut self, (images, labels): &(Tensor, Tensor)) -> Result<Tensor> {
        self.optimizer.zero_grad();
        let loss = cross_entropy(&self.model.forward(images)?, labels)?;
        if self.steps == 0 && studio::is_recording() {
            studio::show_graph(&self.run, &Graph::of(&[&loss], &self.model.named_parameters()));
            studio::show_explanation(&format!("the loss of {}", self.run), &taper::explain(&loss)?);
        }
        loss.backward()?;
        self.optimizer.step()?;
        Ok(loss.detach())
    }

    /// Learns until the epoch ends.
    ///
    /// # Errors
    /// The errors of the device.
    pub async fn epoch(&mut self) -> Result<Epoch> {
        loop {
            if let Some(epoch) = self.advance(usize::MAX).await? {
                return Ok(epoch);
            }
        }
    }

    /// The probabilities of the digits 0 to 9 for an image of 64 numbers from 0 to 1, such as
    /// [`drawn_image`](crate::drawn_image) gives.
    ///
    /// # Errors
    /// Another number of pixels; the errors of the device.
    pub async fn read(&self, image: &[f32]) -> Result<Vec<f32>> {
        let image = Tensor::from_slice(image, [1, 64], &self.device)?;
        self.model.eval();
        let probabilities = no_grad(|| self.model.forward(&image)?.softmax(-1))?;
        probabilities.to_vec_async().await
    }
}
