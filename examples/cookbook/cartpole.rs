//! REINFORCE learns to balance a pole on a cart.
//!
//!     cargo run --release -p taper-examples-cookbook --example cartpole
//!
//! Williams: Simple statistical gradient-following algorithms for connectionist reinforcement learning
//! (1992).

#[path = "../basics/common/mod.rs"]
mod common;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use common::{Outcome, holds};
use taper::{
    distributions::{Categorical, Distribution},
    prelude::*,
};

/// Learns to balance a pole on a cart.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Updates of the policy, from 16 episodes each
    #[arg(long, default_value_t = 40)]
    updates: usize,
}

/// An episode ends when the pole has stood for this number of steps.
const GOAL: usize = 200;
const EPISODES: usize = 16;

/// Position and speed of the cart, angle and angular speed of the pole: Gym's CartPole.
struct CartPole {
    state: [f32; 4],
}

impl CartPole {
    fn new(rng: &Generator) -> CartPole {
        CartPole { state: [0; 4].map(|_| rng.below(1001) as f32 * 1e-4 - 0.05) }
    }

    /// Pushes the cart to the right or left for 0.02 s, and returns whether the pole still stands.
    fn push(&mut self, right: bool) -> bool {
        const STEP: f32 = 0.02;
        let [position, speed, angle, turn] = self.state;
        let force = if right { 10.0 } else { -10.0 };
        let (sin, cos) = angle.sin_cos();
        let pull = (force + 0.05 * turn * turn * sin) / 1.1;
        let turning = (9.8 * sin - cos * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1));
        let gain = pull - 0.05 * turning * cos / 1.1;
        self.state =
            [position + STEP * speed, speed + STEP * gain, angle + STEP * turn, turn + STEP * turning];
        self.state[0].abs() < 2.4 && self.state[2].abs() < 0.2095
    }
}

/// The steps of one episode.
#[derive(Default)]
struct Episode {
    states: Vec<[f32; 4]>,
    actions: Vec<i32>,
}

/// Plays episodes side by side, so that the policy sees all of them at once.
fn play(policy: &Sequential, device: &Device, rng: &Generator) -> Result<Vec<Episode>> {
    let mut carts: Vec<CartPole> = (0..EPISODES).map(|_| CartPole::new(rng)).collect();
    let mut episodes: Vec<Episode> = (0..EPISODES).map(|_| Episode::default()).collect();
    let mut standing = [true; EPISODES];
    for _ in 0..GOAL {
        if !standing.contains(&true) {
            break;
        }
        let states = carts.iter().flat_map(|cart| cart.state).collect();
        let states = Tensor::from_vec::<f32>(states, (EPISODES, 4), device)?;
        let choice = no_grad(|| Categorical::from_logits(&policy.forward(&states)?)?.sample((), rng))?;
        for (k, action) in choice.to_vec::<i32>()?.into_iter().enumerate() {
            if standing[k] {
                episodes[k].states.push(carts[k].state);
                episodes[k].actions.push(action);
                standing[k] = carts[k].push(action == 1);
            }
        }
    }
    Ok(episodes)
}

/// The discounted sum of the rewards from each step to the end, 1 for each step.
fn returns(steps: usize) -> Vec<f32> {
    let mut sums = vec![0.0; steps + 1];
    for step in (0..steps).rev() {
        sums[step] = 1.0 + 0.99 * sums[step + 1];
    }
    sums.truncate(steps);
    sums
}

fn run(options: &Options) -> Outcome {
    let device = taper::device(&options.device)?;
    let rng = Generator::seed(0, &taper::cpu());
    let mut policy =
        Sequential::new().add(Linear::new(4, 64, &rng)?).add(Relu).add(Linear::new(64, 2, &rng)?);
    policy.to(&device)?;
    let rng = rng.on(&device);
    let mut adam = Adam::new(policy.parameters(), AdamConfig { lr: 1e-2, ..Default::default() });
    let mut lengths = Vec::new();
    for update in 1..=options.updates {
        let episodes = play(&policy, &device, &rng)?;
        let states: Vec<f32> = episodes.iter().flat_map(|e| e.states.as_flattened()).copied().collect();
        let actions: Vec<i32> = episodes.iter().flat_map(|e| &e.actions).copied().collect();
        let rewards: Vec<f32> = episodes.iter().flat_map(|e| returns(e.actions.len())).collect();
        let steps = actions.len();
        let states = Tensor::from_vec(states, (steps, 4), &device)?;
        let actions = Tensor::from_vec(actions, steps, &device)?;
        let rewards = Tensor::from_vec(rewards, steps, &device)?;
        // Returns that are normalized need no baseline.
        let advantages = (&rewards - rewards.mean()).div(&rewards.std_axis(0, 1.0, false)?)?;
        adam.zero_grad();
        let chosen = Categorical::from_logits(&policy.forward(&states)?)?.log_prob(&actions)?;
        chosen.mul(&advantages)?.mean().neg().backward()?;
        adam.step()?;
        lengths.push(steps as f64 / EPISODES as f64);
        if update % 5 == 0 {
            writeln!(io::stdout(), "update {update}: the pole stands for {:.1} steps", lengths[update - 1])?;
        }
    }
    let last = &lengths[lengths.len().saturating_sub(5)..];
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    holds(
        mean > 150.0,
        &format!("in the last episodes the pole stands for {mean:.1} of {GOAL} steps, more than 150"),
    )
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
