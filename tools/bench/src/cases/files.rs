//! Data on its way into training, and state dicts on their way to files and back. All of it is the host's.

use std::{cell::RefCell, rc::Rc};

use taper::{
    DType, Device, Generator, Tensor,
    data::{DataLoader, TensorDataset},
    nn::{Module, Parameter, load_safetensors, save_safetensors},
};

use super::pair;
use crate::{Result, case::Case, check::host};

pub(super) fn more() -> Vec<Case> {
    vec![epoch(), save(), load()]
}

/// One shuffled pass over 60,000 images in memory, in batches of 64; of each batch a number is read.
fn epoch() -> Case {
    const ROWS: usize = 60_000;
    Case::new("dataloader_epoch_60000x784_b64", |_| {
        let cpu = taper::cpu();
        let rng = Generator::seed(0, &cpu);
        let images = Tensor::rand([ROWS, 784], &rng)?;
        let labels = Tensor::randint(0, 10, [ROWS], &rng)?;
        let data = TensorDataset::new((images.clone(), labels.clone()))?;
        let loader = Rc::new(DataLoader::new(data, 64)?.shuffle(0));
        let batches = loader.clone();
        let call = move || {
            let mut sum = 0.0;
            for batch in batches.iter() {
                let (images, _) = batch?;
                sum += images.select(0, 0)?.select(0, 0)?.item_f64()?;
            }
            let sum = Tensor::full([], sum, (DType::F64, &cpu))?;
            sum.eval()?;
            Ok(vec![sum])
        };
        // Another epoch holds every row once, and each with its label.
        pair(call, move |_, _| {
            let (images, labels) = (host(&images)?, labels.to_vec::<i32>()?);
            let row = |image: &[f32], label: i32| ([image[0], image[1], image[783]].map(f32::to_bits), label);
            let mut want: Vec<_> = images.chunks(784).zip(&labels).map(|(x, y)| row(x, *y)).collect();
            let mut got = Vec::with_capacity(ROWS);
            for batch in loader.iter() {
                let (images, labels) = batch?;
                let (images, labels) = (host(&images)?, labels.to_vec::<i32>()?);
                got.extend(images.chunks(784).zip(&labels).map(|(x, y)| row(x, *y)));
            }
            if got == want {
                return Err("wrong result: the rows are not shuffled".into());
            }
            got.sort_unstable();
            want.sort_unstable();
            if got == want { Ok(()) } else { Err("wrong result: an epoch is not every row once".into()) }
        })
    })
}

/// Ten matrices of ten megabytes.
#[derive(Debug, Module)]
struct Weights {
    w: Vec<Parameter>,
}

impl Weights {
    fn new(seed: u64, device: &Device) -> Result<Weights> {
        let rng = Generator::seed(seed, device);
        let random = || Parameter::new(Tensor::rand([1000, 2500], &rng)?);
        Ok(Weights { w: (0..10).map(|_| random()).collect::<taper::Result<_>>()? })
    }
}

fn save() -> Case {
    Case::new("save_state_dict_100MB", |inputs| {
        let weights = Rc::new(Weights::new(0, &inputs.device)?);
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("s.safetensors");
        let (saved, target) = (weights.clone(), path.clone());
        let call = move || {
            save_safetensors(&target, &saved.state_dict())?;
            Ok(saved.w.iter().map(|w| w.detach()).collect())
        };
        pair(call, move |_, _| {
            let _kept = folder;
            same(&load_safetensors(&path, &taper::cpu())?, &weights)
        })
    })
}

fn load() -> Case {
    Case::new("load_state_dict_100MB", |inputs| {
        let weights = Weights::new(0, &inputs.device)?;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("s.safetensors");
        save_safetensors(&path, &weights.state_dict())?;
        let target = Rc::new(RefCell::new(Weights::new(1, &inputs.device)?));
        let (loaded, device) = (target.clone(), inputs.device.clone());
        let call = move || {
            let _kept = &folder;
            let target = loaded.borrow();
            target.load_state_dict(&load_safetensors(&path, &device)?)?;
            Ok(target.w.iter().map(|w| w.detach()).collect())
        };
        pair(call, move |_, _| same(&target.borrow().state_dict(), &weights))
    })
}

/// An error unless both hold the same bits.
fn same(dict: &taper::nn::StateDict, weights: &Weights) -> Result<()> {
    let want = weights.state_dict();
    if dict.len() != want.len() {
        return Err(format!("wrong result: {} tensors, expected {}", dict.len(), want.len()).into());
    }
    for (name, want) in &want {
        let got = dict.get(name).ok_or("a tensor is missing")?;
        if host(got)? != host(want)? {
            return Err(format!("wrong result: {name} has other values").into());
        }
    }
    Ok(())
}
