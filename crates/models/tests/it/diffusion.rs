//! The networks of latent diffusion and its schedulers.

use models::diffusion::{
    AutoencoderKl, AutoencoderKlConfig, DiffusionUNet, DiffusionUNetConfig, Rule, Scheduler,
};

use crate::{
    devices,
    fixture::{Fixture, Run, floats, parameters},
};

fn unet(name: &str, config: &DiffusionUNetConfig) {
    Fixture::open(name).check(1e-4, |fixture, device| {
        let model = DiffusionUNet::new(config, fixture.source(device))?;
        let [x, times, text] = ["x", "times", "text"].map(|name| fixture.input(name, device));
        let noise = model.forward(&x, &times, &text)?;
        let loss = noise.square().mean();
        Ok(Run { outputs: vec![("noise", noise)], loss, parameters: parameters(&model) })
    });
}

fn small() -> DiffusionUNetConfig {
    DiffusionUNetConfig {
        block_out_channels: vec![16, 24, 32],
        cross_attention: vec![true, true, false],
        layers_per_block: 1,
        cross_attention_dim: 20,
        num_attention_heads: vec![4; 3],
        norm_num_groups: 8,
        ..DiffusionUNetConfig::stable_diffusion_1_5()
    }
}

#[test]
fn diffusion_unet() {
    unet("diffusion_unet", &small());
}

#[test]
fn diffusion_unet_linear() {
    let config =
        DiffusionUNetConfig { num_attention_heads: vec![2, 3, 4], use_linear_projection: true, ..small() };
    unet("diffusion_unet_linear", &config);
}

#[test]
fn autoencoder_kl() {
    let config = AutoencoderKlConfig {
        block_out_channels: vec![8, 16],
        layers_per_block: 1,
        latent_channels: 3,
        norm_num_groups: 4,
        ..AutoencoderKlConfig::stable_diffusion()
    };
    Fixture::open("autoencoder_kl").check(1e-4, |fixture, device| {
        let model = AutoencoderKl::new(&config, fixture.source(device))?;
        let latents = model.encode(&fixture.input("x", device))?;
        let image = model.decode(&latents.mean)?;
        let loss = image.square().mean();
        let outputs = vec![("image", image), ("mean", latents.mean), ("log_variance", latents.log_variance)];
        Ok(Run { outputs, loss, parameters: parameters(&model) })
    });
}

#[test]
fn schedulers_take_the_steps_of_the_reference() {
    let fixture = Fixture::open("schedulers");
    let rules =
        [("ddim", Rule::Ddim), ("euler", Rule::Euler), ("dpm_solver", Rule::DpmSolver), ("pndm", Rule::Pndm)];
    for device in devices() {
        let start = fixture.input("start", &device);
        for (name, rule) in rules {
            let mut scheduler = Scheduler::new(rule, 10).unwrap();
            assert_eq!(scheduler.times(), fixture.output(&format!("{name}.times")), "{name}");
            let mut x = start.mul_scalar(scheduler.init_noise_sigma());
            let mut steps = Vec::new();
            for time in scheduler.times().to_vec() {
                let scaled = scheduler.scale_input(&x).unwrap();
                let noise = scaled.mul_scalar(0.3).add_scalar(0.1 * (time / 100.0).cos());
                x = scheduler.step(&noise, &x).unwrap();
                steps.extend(floats(&x));
            }
            let what = format!("{name} on {device}");
            taper_testing::assert_close(
                &steps,
                &fixture.output(&format!("{name}.steps")),
                (1e-4, 1e-4),
                &what,
            );
            let time = scheduler.times()[4] as usize;
            let noisy = scheduler.add_noise(&start, &start.ones_like(), time).unwrap();
            let expected = fixture.output(&format!("{name}.noisy"));
            taper_testing::assert_close(&floats(&noisy), &expected, (1e-5, 1e-5), &what);
        }
    }
}
