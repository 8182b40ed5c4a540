//! Schedulers: the times and steps by which noise becomes latents, with the numbers of Stable Diffusion.
//!
//! Song et al.: Denoising diffusion implicit models (2021). Liu et al.: Pseudo numerical methods for
//! diffusion models on manifolds (2022). Karras et al.: Elucidating the design space of diffusion-based
//! generative models (2022). Lu et al.: DPM-Solver++: fast solver for guided sampling of diffusion
//! probabilistic models (2022).

use tensor_core::{Error, Result, Tensor};

/// The number of steps of the training, and the betas of its first and last step; the square roots between
/// them are evenly spaced (`scaled_linear`).
const TRAIN_STEPS: usize = 1000;
const BETAS: [f64; 2] = [0.00085, 0.012];
/// The time of the last step of evenly spaced times.
const OFFSET: usize = 1;
/// The largest number of earlier estimates that a step reads.
const HISTORY: usize = 4;

/// The rule of a [`Scheduler`]'s steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Deterministic steps of the implicit model. diffusers' `DDIMScheduler`.
    Ddim,
    /// Euler's method on the noise level σ. diffusers' `EulerDiscreteScheduler`.
    Euler,
    /// The second-order multistep method on log(α/σ), for estimates of the latents. diffusers'
    /// `DPMSolverMultistepScheduler`.
    DpmSolver,
    /// The linear multistep method of order four, after a first step that is taken twice. diffusers'
    /// `PNDMScheduler` with `skip_prk_steps`; Stable Diffusion 1.5's default.
    Pndm,
}

/// The state of one generation: a list of times, and the estimates of earlier steps.
///
/// ```
/// use models::diffusion::{Rule, Scheduler};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let mut scheduler = Scheduler::new(Rule::Ddim, 5)?;
/// let mut x = Tensor::randn([1, 4, 8, 8], &rng)?.mul_scalar(scheduler.init_noise_sigma());
/// for time in scheduler.times().to_vec() {
///     let input = scheduler.scale_input(&x)?; // for the network, with the time
///     let noise = input.mul_scalar(time / 1000.0); // stands for the network's estimate
///     x = scheduler.step(&noise, &x)?;
/// }
/// assert_eq!(x.dims(), [1, 4, 8, 8]);
/// assert!(scheduler.step(&x, &x).is_err()); // all steps are taken
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Scheduler {
    rule: Rule,
    /// The product of 1 − β up to each training step.
    alphas: Vec<f64>,
    times: Vec<f64>,
    /// The training steps between neighbouring times.
    stride: usize,
    /// The estimates of earlier steps, the newest last.
    history: Vec<Tensor>,
    /// The latents before the step that is taken twice.
    before: Option<Tensor>,
    taken: usize,
}

impl Scheduler {
    /// A scheduler that takes this number of steps (one more for [`Rule::Pndm`]).
    ///
    /// # Errors
    /// No steps, or more than the 1000 of the training.
    pub fn new(rule: Rule, steps: usize) -> Result<Scheduler> {
        if steps == 0 || steps > TRAIN_STEPS {
            let message = format!("{steps} steps: give from 1 to {TRAIN_STEPS}");
            return Err(Error::invalid("Scheduler", message));
        }
        let [first, last] = BETAS.map(f64::sqrt);
        let root = |step: usize| first + (last - first) * step as f64 / (TRAIN_STEPS - 1) as f64;
        let mut product = 1.0;
        let alphas = (0..TRAIN_STEPS)
            .map(|step| {
                product *= 1.0 - root(step).powi(2);
                product
            })
            .collect();
        let stride = TRAIN_STEPS / steps;
        let even = (0..steps).rev().map(|step| (step * stride + OFFSET).min(TRAIN_STEPS - 1) as f64);
        let times: Vec<f64> = match rule {
            Rule::Ddim | Rule::Euler => even.collect(),
            Rule::Pndm => {
                let mut times: Vec<f64> = even.collect();
                if let Some(&second) = times.get(1) {
                    times.insert(1, second);
                }
                times
            }
            Rule::DpmSolver => {
                let time = |step: usize| (TRAIN_STEPS - 1) as f64 * step as f64 / steps as f64;
                (1..=steps).rev().map(|step| time(step).round_ties_even()).collect()
            }
        };
        Ok(Scheduler { rule, alphas, times, stride, history: Vec::new(), before: None, taken: 0 })
    }

    /// The times of the steps, numbers of training steps, for the network.
    pub fn times(&self) -> &[f64] {
        &self.times
    }

    /// The deviation of the noise that a generation begins with.
    pub fn init_noise_sigma(&self) -> f64 {
        match self.rule {
            Rule::Euler => (self.sigma(self.times[0] as usize).powi(2) + 1.0).sqrt(),
            Rule::Ddim | Rule::DpmSolver | Rule::Pndm => 1.0,
        }
    }

    /// The latents as the network's input.
    ///
    /// # Errors
    /// All steps are taken.
    pub fn scale_input(&self, x: &Tensor) -> Result<Tensor> {
        let time = self.time()?;
        Ok(match self.rule {
            Rule::Euler => x.mul_scalar(1.0 / (self.sigma(time).powi(2) + 1.0).sqrt()),
            Rule::Ddim | Rule::DpmSolver | Rule::Pndm => x.clone(),
        })
    }

    /// The latents `start` with noise as at the time, for the training or to begin with an image.
    ///
    /// # Errors
    /// A time past the training, or shapes that do not broadcast.
    pub fn add_noise(&self, start: &Tensor, noise: &Tensor, time: usize) -> Result<Tensor> {
        if time >= TRAIN_STEPS {
            let message = format!("time {time}: give one below {TRAIN_STEPS}");
            return Err(Error::invalid("Scheduler", message));
        }
        let alpha = self.alphas[time];
        match self.rule {
            Rule::Euler => start.add(&noise.mul_scalar(self.sigma(time))),
            Rule::Ddim | Rule::DpmSolver | Rule::Pndm => {
                mix(alpha.sqrt(), start, (1.0 - alpha).sqrt(), noise)
            }
        }
    }

    /// The latents of the next time, from the network's estimate of the noise in the current ones.
    ///
    /// # Errors
    /// All steps are taken, or tensors of different shapes.
    pub fn step(&mut self, noise: &Tensor, x: &Tensor) -> Result<Tensor> {
        let time = self.time()?;
        let next = match self.rule {
            Rule::Ddim => self.ddim(noise, x, time)?,
            Rule::Euler => x.add(&noise.mul_scalar(self.next_sigma() - self.sigma(time)))?,
            Rule::DpmSolver => self.dpm_solver(noise, x, time)?,
            Rule::Pndm => self.pndm(noise, x, time)?,
        };
        // A generation keeps no graph of its earlier steps.
        let next = next.detach();
        self.taken += 1;
        Ok(next)
    }

    /// The current time.
    fn time(&self) -> Result<usize> {
        match self.times.get(self.taken) {
            Some(time) => Ok(*time as usize),
            None => Err(Error::invalid("Scheduler", format!("all {} steps are taken", self.times.len()))),
        }
    }

    /// The noise level √((1 − α) / α) of a time.
    fn sigma(&self, time: usize) -> f64 {
        ((1.0 - self.alphas[time]) / self.alphas[time]).sqrt()
    }

    /// The noise level of the next time, 0 at the end.
    fn next_sigma(&self) -> f64 {
        self.times.get(self.taken + 1).map_or(0.0, |time| self.sigma(*time as usize))
    }

    /// The product of 1 − β one stride before a time; before the first time it is that of the first step.
    fn alpha_before(&self, time: usize) -> f64 {
        self.alphas[time.saturating_sub(self.stride)]
    }

    fn ddim(&self, noise: &Tensor, x: &Tensor, time: usize) -> Result<Tensor> {
        let (alpha, next) = (self.alphas[time], self.alpha_before(time));
        let start = mix(1.0 / alpha.sqrt(), x, -((1.0 - alpha) / alpha).sqrt(), noise)?;
        mix(next.sqrt(), &start, (1.0 - next).sqrt(), noise)
    }

    fn dpm_solver(&mut self, noise: &Tensor, x: &Tensor, time: usize) -> Result<Tensor> {
        /// The factors α and σ of latents and noise whose variances add to 1.
        fn factors(sigma: f64) -> (f64, f64) {
            let alpha = 1.0 / (sigma * sigma + 1.0).sqrt();
            (alpha, sigma * alpha)
        }
        let (now, next) = (self.sigma(time), self.next_sigma());
        let ((alpha_now, sigma_now), (alpha_next, sigma_next)) = (factors(now), factors(next));
        let start = mix(1.0 / alpha_now, x, -sigma_now / alpha_now, noise)?;
        let before = self.history.last().cloned();
        self.remember(&start);
        // exp(−h) for the step h of log(α/σ) = −log of the noise level.
        let shrink = next / now;
        let first = mix(sigma_next / sigma_now, x, alpha_next * (1.0 - shrink), &start)?;
        let last = self.taken + 1 == self.times.len();
        let Some(before) = before.filter(|_| !last) else { return Ok(first) };
        let earlier = self.sigma(self.times[self.taken - 1] as usize);
        let ratio = (earlier / now).ln() / (now / next).ln();
        let slope = start.sub(&before)?.mul_scalar(1.0 / ratio);
        mix(1.0, &first, 0.5 * alpha_next * (1.0 - shrink), &slope)
    }

    fn pndm(&mut self, noise: &Tensor, x: &Tensor, time: usize) -> Result<Tensor> {
        let (mut from, mut x) = (time, x.clone());
        let mut to = self.alpha_before(time);
        if self.taken == 1 {
            // The second half of the first step: the mean of both estimates, from the first latents.
            (from, to) = ((time + self.stride).min(TRAIN_STEPS - 1), self.alphas[time]);
            x = self.before.take().unwrap_or(x);
        } else {
            self.remember(noise);
            if self.taken == 0 {
                self.before = Some(x.clone());
            }
        }
        let newest: Vec<&Tensor> = match self.taken {
            1 => std::iter::once(noise).chain(self.history.last()).collect(),
            _ => self.history.iter().rev().collect(),
        };
        let weights: &[f64] = match (self.taken, newest.len()) {
            (1, _) => &[0.5, 0.5],
            (_, 1) => &[1.0],
            (_, 2) => &[1.5, -0.5],
            (_, 3) => &[23.0 / 12.0, -16.0 / 12.0, 5.0 / 12.0],
            _ => &[55.0 / 24.0, -59.0 / 24.0, 37.0 / 24.0, -9.0 / 24.0],
        };
        let mut estimate = noise.zeros_like();
        for (tensor, weight) in newest.into_iter().zip(weights) {
            estimate = mix(1.0, &estimate, *weight, tensor)?;
        }
        let alpha = self.alphas[from];
        let divisor = alpha * (1.0 - to).sqrt() + (alpha * (1.0 - alpha) * to).sqrt();
        mix((to / alpha).sqrt(), &x, -(to - alpha) / divisor, &estimate)
    }

    /// Keeps an estimate for later steps.
    fn remember(&mut self, estimate: &Tensor) {
        self.history.push(estimate.detach());
        if self.history.len() > HISTORY {
            drop(self.history.remove(0));
        }
    }
}

/// a · x + b · y.
fn mix(a: f64, x: &Tensor, b: f64, y: &Tensor) -> Result<Tensor> {
    x.mul_scalar(a).add(&y.mul_scalar(b))
}
