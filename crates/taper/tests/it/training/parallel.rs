//! One model on several devices: as on one.
#![allow(clippy::unwrap_used)]

use std::{sync::mpsc, time::Duration};

use crate::common::{device, second_device};
use taper::{
    nn::{BatchNorm1d, DataParallel, Dropout, Reduction, mse_loss},
    prelude::*,
};

#[derive(Debug, Module)]
struct Net {
    first: Linear,
    norm: BatchNorm1d,
    drop: Dropout,
    last: Linear,
}

impl Net {
    fn new(rng: &Generator) -> Result<Net> {
        let norm = BatchNorm1d::new(16, rng.device())?;
        let (first, last) = (Linear::new(6, 16, rng)?, Linear::new(16, 2, rng)?);
        Ok(Net { first, norm, drop: Dropout::new(0.5, rng)?, last })
    }
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.last.forward(&self.drop.forward(&self.norm.forward(&self.first.forward(x)?.tanh())?)?)
    }
    fn loss(&self, (x, y): (Tensor, Tensor)) -> Result<Tensor> {
        mse_loss(&self.forward(&x)?, &y)
    }
}

fn batch(size: usize, d: &Device) -> Result<(Tensor, Tensor)> {
    let rng = Generator::seed(size as u64, d);
    Ok((Tensor::randn([size, 6], &rng)?, Tensor::randn([size, 2], &rng)?))
}

fn values(tensors: &[Tensor]) -> Vec<f64> {
    tensors.iter().flat_map(|t| t.to_f64_vec().unwrap()).collect()
}

/// Some steps; the losses and the parameters after them.
fn train(devices: &[Device], sizes: &[usize], reduction: Reduction) -> Result<(Vec<f64>, Vec<f64>)> {
    let model = DataParallel::new(devices, 7, Net::new)?.reduction(reduction)?;
    // By its running means: the batch's own would be those of a part.
    model.norm.eval();
    model.drop.eval();
    let mut sgd = Sgd::new(model.parameters(), SgdConfig { lr: 0.02, momentum: 0.9, ..Default::default() });
    let mut losses = Vec::new();
    for &size in sizes {
        sgd.zero_grad();
        let loss = model.backward(&batch(size, &devices[0])?, |net, part| match reduction {
            Reduction::Sum => Ok(net.forward(&part.0)?.sub(&part.1)?.powi(2).sum().div_scalar(64.0)),
            Reduction::Mean | Reduction::None => net.loss(part),
        })?;
        assert!(!loss.is_tracked() && loss.device() == devices[0]);
        losses.push(loss.item_f64()?);
        sgd.step()?;
    }
    Ok((losses, values(&model.parameters())))
}

#[test]
fn a_training_is_that_of_one_device() -> Result<()> {
    let (one, two) = (device(), second_device());
    // Even, uneven, and fewer examples than devices.
    let sizes = [16, 7, 1, 33];
    for reduction in [Reduction::Mean, Reduction::Sum] {
        let alone = train(std::slice::from_ref(&one), &sizes, reduction)?;
        let both = train(&[one.clone(), two.clone()], &sizes, reduction)?;
        let within = (2e-4, 1e-5);
        taper_testing::assert_close(&both.0, &alone.0, within, "losses");
        taper_testing::assert_close(&both.1, &alone.1, within, "parameters");
        // Sums are in a fixed order: a second run has the same bits.
        assert_eq!(train(&[one.clone(), two.clone()], &sizes, reduction)?, both);
    }
    Ok(())
}

#[test]
fn parts_are_computed_at_the_same_time_by_followers_of_the_first() -> Result<()> {
    let devices = [device(), second_device()];
    let model = DataParallel::new(&devices, 3, Net::new)?;
    model.first.weight.assign(&model.first.weight.zeros_like())?;
    model.last.freeze()?;
    model.drop.eval();
    let (to_other, from_first) = mpsc::sync_channel::<()>(1);
    let (to_first, from_other) = mpsc::sync_channel::<()>(1);
    let ends = std::sync::Mutex::new((Some((to_other, from_other)), Some((to_first, from_first))));
    let patience = Duration::from_secs(60);
    let loss = model.backward(&batch(10, &devices[0])?, |net, (x, y)| {
        let on_first = x.device() == devices[0];
        let mine = {
            let mut ends = ends.lock().unwrap();
            if on_first { ends.0.take() } else { ends.1.take() }
        };
        // Each waits for the other: they meet only if both are under way.
        let (say, hear) = mine.unwrap();
        say.send(()).unwrap();
        hear.recv_timeout(patience).unwrap();
        assert_eq!((x.dims(), y.device()), (&[5, 6][..], x.device()));
        assert_eq!(net.first.weight.device(), x.device());
        assert!(net.first.weight.to_f64_vec()?.iter().all(|w| *w == 0.0));
        assert!(!net.last.weight.is_tracked());
        // In evaluation nothing is dropped, on either.
        let ones = Tensor::ones([64], &x.device())?;
        assert!(net.drop.forward(&ones)?.to_f64_vec()?.iter().all(|v| *v == 1.0));
        mse_loss(&net.forward(&x)?, &y)
    })?;
    assert!(loss.item_f64()?.is_finite());
    assert!(model.last.weight.grad().is_none() && model.first.bias.as_ref().unwrap().grad().is_some());

    // Each device drops other elements.
    model.drop.train();
    let drawn = model.predict(&Tensor::ones([128], &devices[0])?, |net, x| net.drop.forward(&x))?;
    let drawn = drawn.to_f64_vec()?;
    assert_eq!(drawn.len(), 128);
    assert!(drawn[..64] != drawn[64..] && drawn.contains(&0.0));
    // Results come back in the order of the batch.
    model.drop.eval();
    model.norm.eval();
    let (x, _) = batch(9, &devices[0])?;
    let found = model.predict(&x, |net, x| net.forward(&x))?;
    let alone = no_grad(|| model.forward(&x))?;
    taper_testing::assert_close(&found.to_f64_vec()?, &alone.to_f64_vec()?, (2e-5, 1e-6), "results");
    assert!(!found.is_tracked());
    Ok(())
}

#[test]
fn gradients_are_added_and_a_failure_changes_none() -> Result<()> {
    let devices = [device(), second_device()];
    let model = DataParallel::new(&devices, 5, |rng| Linear::new(6, 2, rng))?;
    let data = batch(8, &devices[0])?;
    let loss = |net: &Linear, (x, y): (Tensor, Tensor)| mse_loss(&net.forward(&x)?, &y);
    let _ = model.backward(&data, loss)?;
    let once = values(&[model.weight.grad().unwrap()]);
    let _ = model.backward(&data, loss)?;
    let twice = values(&[model.weight.grad().unwrap()]);
    let doubled: Vec<f64> = once.iter().map(|g| 2.0 * g).collect();
    taper_testing::assert_close(&twice, &doubled, (1e-5, 1e-7), "twice");

    let refused = |error: taper::Error, words: &str| {
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(values(&[model.weight.grad().unwrap()]), twice);
    };
    let (x, y) = &data;
    let on_second = |net: &Linear, (x, y): (Tensor, Tensor)| match x.device() == devices[1] {
        true => x.reshape([5]),
        false => loss(net, (x, y)),
    };
    refused(model.backward(&data, on_second).unwrap_err(), "reshape");
    refused(model.backward(&data, |net, (x, _)| net.forward(&x)).unwrap_err(), "reduce it to one");
    let short = (x.clone(), y.narrow(0, 0, 7)?);
    refused(model.backward(&short, loss).unwrap_err(), "8 and 7 examples");
    let none = (x.narrow(0, 0, 0)?, y.narrow(0, 0, 0)?);
    refused(model.backward(&none, loss).unwrap_err(), "no examples");
    let scalar = (x.sum(), y.sum());
    refused(model.backward(&scalar, loss).unwrap_err(), "no axis of examples");
    let tracked = (x.clone().requires_grad(), y.clone());
    refused(model.backward(&tracked, loss).unwrap_err(), "wants gradients");
    let empty: Vec<Tensor> = Vec::new();
    refused(model.backward(&empty, |net, _| Ok(net.weight.sum())).unwrap_err(), "no tensors");
    // A module that was moved.
    let here = model.weight.detach();
    model.weight.assign(&here.to(&devices[1])?)?;
    refused(model.backward(&data, loss).unwrap_err(), "stays on the first device");
    model.weight.assign(&here)?;
    model.backward(&data, loss)?.eval()
}

#[test]
fn devices_and_modules_that_do_not_fit_are_refused() -> Result<()> {
    let (one, two) = (device(), second_device());
    let build = |rng: &Generator| Linear::new(2, 2, rng);
    let says = |result: Result<DataParallel<Linear>>, words: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    says(DataParallel::new(&[], 0, build), "no devices");
    says(DataParallel::new(&[one.clone(), one.clone()], 0, build), "given twice");
    let both = [one.clone(), two.clone()];
    let other = |rng: &Generator| Linear::new(2, if *rng.device() == one { 2 } else { 3 }, rng);
    says(DataParallel::new(&both, 0, other), "weight f32 [3, 2] and weight f32 [2, 2]");
    let elsewhere = |_: &Generator| Linear::new(2, 2, &Generator::seed(0, &one));
    says(DataParallel::new(&both, 0, elsewhere), "build the module on the generator's device");
    let model = DataParallel::new(&both, 0, build)?;
    assert!(format!("{model:?}").starts_with(&format!("DataParallel on {}, {}", one, two)));
    says(model.reduction(Reduction::None), "one number");
    Ok(())
}
