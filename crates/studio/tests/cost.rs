//! The work that the studio adds to a step, counted: dispatches, read-backs and allocations, with a page that
//! asks for events all the time. The studio records for the whole process, so one test takes every case.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use autograd::TensorGrad;
use nn::{Linear, Module};
use tensor_core::{Device, Generator, Result, Tensor, eval_all};

const STEPS: u64 = 40;

/// A step of a small training.
struct Training {
    model: Linear,
    x: Tensor,
}

impl Training {
    fn on(device: &Device) -> Result<Training> {
        let rng = Generator::seed(1, device);
        Ok(Training { model: Linear::new(8, 4, &rng)?, x: Tensor::randn([16, 8], &rng)? })
    }

    fn step(&self) -> Result<f32> {
        self.model.parameters().iter().for_each(TensorGrad::zero_grad);
        let loss = self.model.forward(&self.x)?.powi(2).mean();
        loss.backward()?;
        for parameter in self.model.parameters() {
            let change = &parameter.grad().unwrap() * 0.1;
            parameter.assign(&parameter.detach().sub(&change)?)?;
        }
        eval_all(&self.model.parameters().iter().collect::<Vec<_>>())?;
        loss.item()
    }

    fn alone(&self) -> Result<()> {
        (0..STEPS).try_for_each(|_| self.step().map(drop))
    }

    fn shown(&self) -> Result<()> {
        (0..STEPS).try_for_each(|number| {
            let loss = studio::step(number, || self.step())?;
            studio::scalar("run", "loss", loss.into(), number);
            studio::what_if(&self.model, 16, &[], |_| Ok(self.model.forward(&self.x)?.mean()))
        })
    }
}

/// Dispatches, read-backs and allocations of a device; the CPU's dispatches are counted by a profile.
fn counted(device: &Device, work: impl FnOnce() -> Result<()>) -> Result<[u64; 3]> {
    let before = device.memory().allocations;
    let (dispatches, read_backs) = if device.name() == "cpu" {
        (inspect::profile(work)?.runs.len() as u64, 0)
    } else {
        let (_, counts) = backend_wgpu::counted(device, work)?;
        (counts.dispatches, counts.read_backs)
    };
    Ok([dispatches, read_backs, device.memory().allocations - before])
}

#[test]
fn a_shown_step_does_no_more_work_on_the_device() -> Result<()> {
    let mut devices = vec![backend_cpu::cpu()];
    match backend_wgpu::wgpu(0) {
        Ok(device) => devices.push(device),
        Err(error) => eprintln!("only on the CPU: {error}"),
    }
    let trainings: Vec<(Training, &Device)> =
        devices.iter().map(|device| Ok((Training::on(device)?, device))).collect::<Result<_>>()?;
    let mut alone = Vec::new();
    for (training, device) in &trainings {
        training.alone()?;
        alone.push(counted(device, || training.alone())?);
    }
    let url = studio::serve()?;
    // The third step is profiled once, which is not part of the cost of the others.
    trainings[0].0.shown()?;
    static STOP: AtomicBool = AtomicBool::new(false);
    let page = thread::spawn(move || {
        let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut answers = 0;
        while !STOP.load(Ordering::Relaxed) {
            let mut stream = TcpStream::connect(host).unwrap();
            write!(stream, "GET /{path}events?after=0 HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answers += u32::from(answer.starts_with("HTTP/1.1 200"));
        }
        answers
    });
    for ((training, device), alone) in trainings.iter().zip(&alone) {
        let shown = counted(device, || training.shown())?;
        println!(
            "{device}: dispatches, read-backs and allocations of {STEPS} steps: {alone:?} alone, {shown:?} shown"
        );
        assert_eq!(shown, *alone, "{device}");
        assert!(alone[0] >= STEPS, "{alone:?}");
    }
    STOP.store(true, Ordering::Relaxed);
    assert!(page.join().unwrap() > 0);
    Ok(())
}
