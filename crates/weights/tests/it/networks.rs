//! Networks of others, built of layers and run with their weights: what they make is what they make in
//! PyTorch.

use std::collections::BTreeMap;

use nn::{
    BatchNorm2d, BatchNormConfig, Conv2d, ConvConfig, Linear, Module, NameMap, Prelu,
    functional::{PoolOptions, max_pool2d},
};
use tensor_core::{Device, Generator, Result, Tensor};

use crate::common::{cpu, open};

/// The shared part of P-Net and R-Net of MTCNN (Zhang and others, 2016): convolutions with their activations
/// and pools.
#[derive(Module)]
struct Stage {
    conv: Conv2d,
    prelu: Prelu,
    #[module(skip)]
    pool: Option<usize>,
}

impl Stage {
    fn new([from, to, kernel]: [usize; 3], pool: Option<usize>, rng: &Generator) -> Result<Stage> {
        Ok(Stage { conv: Conv2d::new(from, to, kernel, rng)?, prelu: Prelu::new(to, rng.device())?, pool })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.prelu.forward(&self.conv.forward(x)?)?;
        match self.pool {
            None => Ok(x),
            Some(size) => {
                let options = PoolOptions { stride: Some([2, 2]), ceil_mode: true, ..Default::default() };
                max_pool2d(&x, [size, size], options)
            }
        }
    }
}

/// `conv1` and `prelu1` are fields of one stage here.
fn stage_names() -> NameMap {
    NameMap::new()
        .rename("conv*_*.*", "heads.*.*.*")
        .rename("conv*.*", "stages.*.conv.*")
        .rename("prelu*.*", "stages.*.prelu.*")
}

#[derive(Module)]
struct PNet {
    stages: BTreeMap<String, Stage>,
    heads: BTreeMap<String, Conv2d>,
}

#[derive(Module)]
struct RNet {
    stages: BTreeMap<String, Stage>,
    dense4: Linear,
    prelu4: Prelu,
    dense5_1: Linear,
    dense5_2: Linear,
}

fn stages(all: &[([usize; 3], Option<usize>)], rng: &Generator) -> Result<BTreeMap<String, Stage>> {
    all.iter()
        .zip(1..)
        .map(|(&(sizes, pool), k)| Ok((k.to_string(), Stage::new(sizes, pool, rng)?)))
        .collect()
}

/// The named tensor of the references.
fn reference(name: &str, device: &Device) -> Tensor {
    open("models.safetensors").tensor(name, device).unwrap()
}

#[track_caller]
fn assert_near(found: &Tensor, name: &str) {
    let expected = reference(name, &found.device());
    assert_eq!(found.shape(), expected.shape(), "{name}");
    let (found, expected) = (found.to_f64_vec().unwrap(), expected.to_f64_vec().unwrap());
    let worst = found.iter().zip(&expected).map(|(f, e)| (f - e).abs()).fold(0.0, f64::max);
    assert!(worst <= 1e-5, "{name}: differs by {worst}");
}

#[test]
fn pnet_finds_what_pytorch_finds() -> Result<()> {
    let device = cpu();
    let rng = Generator::seed(0, &device);
    let sizes = [([3, 10, 3], Some(2)), ([10, 16, 3], None), ([16, 32, 3], None)];
    let heads = [("4.1", 2), ("4.2", 4)].map(|(name, count)| (name, Conv2d::new(32, count, 1, &rng)));
    let heads = heads.into_iter().map(|(name, conv)| Ok((name.to_string(), conv?))).collect::<Result<_>>()?;
    let net = PNet { stages: stages(&sizes, &rng)?, heads };
    net.load_mapped(&open("pnet.pt").state_dict(&device)?, &stage_names())?;
    let mut x = reference("pnet.image", &device);
    for stage in net.stages.values() {
        x = stage.forward(&x)?;
    }
    assert_near(&net.heads["4.1"].forward(&x)?.softmax(1)?, "pnet.probability");
    assert_near(&net.heads["4.2"].forward(&x)?, "pnet.box");
    Ok(())
}

#[test]
fn rnet_finds_what_pytorch_finds() -> Result<()> {
    let device = cpu();
    let rng = Generator::seed(0, &device);
    let sizes = [([3, 28, 3], Some(3)), ([28, 48, 3], Some(3)), ([48, 64, 2], None)];
    let net = RNet {
        stages: stages(&sizes, &rng)?,
        dense4: Linear::new(576, 128, &rng)?,
        prelu4: Prelu::new(128, &device)?,
        dense5_1: Linear::new(128, 2, &rng)?,
        dense5_2: Linear::new(128, 4, &rng)?,
    };
    let names = stage_names().rename("stages.4.prelu.*", "prelu4.*");
    net.load_mapped(&open("rnet.pt").state_dict(&device)?, &names)?;
    let mut x = reference("rnet.image", &device);
    for stage in net.stages.values() {
        x = stage.forward(&x)?;
    }
    let x = x.permute([0, 3, 2, 1])?.flatten(1, -1)?;
    let x = net.prelu4.forward(&net.dense4.forward(&x)?)?;
    assert_near(&net.dense5_1.forward(&x)?.softmax(1)?, "rnet.probability");
    assert_near(&net.dense5_2.forward(&x)?, "rnet.box");
    Ok(())
}

/// CREPE (Kim and others, 2018), the tiny one: pitch of a frame of 1024 samples at 16 kHz.
#[derive(Module)]
struct Crepe {
    conv: BTreeMap<String, Conv2d>,
    norm: BTreeMap<String, BatchNorm2d>,
    classifier: Linear,
}

#[test]
fn crepe_hears_what_pytorch_hears() -> Result<()> {
    let device = cpu();
    let rng = Generator::seed(0, &device);
    let (mut conv, mut norm, mut from) = (BTreeMap::new(), BTreeMap::new(), 1);
    for (k, to) in (1..).zip([128, 16, 16, 16, 32, 64]) {
        let config = ConvConfig { stride: if k == 1 { [4, 1] } else { [1, 1] }, ..Default::default() };
        conv.insert(
            k.to_string(),
            Conv2d::with_config(from, to, [if k == 1 { 512 } else { 64 }, 1], config, &rng)?,
        );
        let config = BatchNormConfig { eps: 0.001, ..Default::default() };
        norm.insert(k.to_string(), BatchNorm2d::with_config(to, config, &device)?);
        from = to;
    }
    let net = Crepe { conv, norm, classifier: Linear::new(256, 360, &rng)? };
    let names = NameMap::new().rename("conv*_BN.*", "norm.*.*").rename("conv*.*", "conv.*.*");
    net.load_mapped(&open("crepe_tiny.pth").state_dict(&device)?, &names)?;
    net.eval();
    let frames = reference("crepe.frames", &device);
    let mut x = frames.reshape([2, 1, 1024, 1])?;
    for (k, conv) in &net.conv {
        let sides = if k == "1" { (254, 254) } else { (31, 32) };
        x = conv.forward(&x.pad(&[(0, 0), (0, 0), sides, (0, 0)], 0.0)?)?.relu();
        x = max_pool2d(&net.norm[k].forward(&x)?, [2, 1], PoolOptions::default())?;
    }
    let pitch = net.classifier.forward(&x.permute([0, 2, 1, 3])?.flatten(1, -1)?)?.sigmoid();
    assert_near(&pitch, "crepe.tiny");
    Ok(())
}
