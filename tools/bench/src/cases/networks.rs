//! Whole training steps of networks that people train, their optimizer alone, and a language model that
//! writes.

use std::{cell::RefCell, rc::Rc};

use taper::{
    DType, Device, Generator, Tensor, autocast,
    autograd::grad,
    compile,
    nn::{DataParallel, Gelu, Layer, Linear, Module, Relu, Sequential, cross_entropy},
    optim::{Adam, AdamConfig, AdamW, AdamWConfig, Optimizer, Sgd, SgdConfig},
    prelude::{TensorGrad, no_grad},
};

use super::pair;
use crate::{
    Result,
    case::{Call, Case, Inputs},
    check::{all, host, part},
    networks::{
        gpt::{Gpt, GptConfig},
        mnist::MnistNet,
        resnet::resnet20,
    },
    twin,
};

type Network = Box<dyn Layer>;

/// A step: zero_grad, forward, loss, backward, optimizer.
#[derive(Clone, Copy)]
struct Training {
    build: fn(&Generator) -> taper::Result<Network>,
    batch: fn(&Inputs) -> Result<(Tensor, Tensor)>,
    optimizer: fn(Vec<Tensor>) -> Box<dyn Optimizer>,
    rule: Rule,
    /// The tokens of a sequence that the reference backend computes; of images, it takes a whole one.
    tokens: Option<usize>,
    /// Whether it has dropout, without which it is compared with its twin.
    drops: bool,
    /// The half type of the forward pass, by autocast.
    half: Option<DType>,
    /// Whether the step is compiled.
    is_compiled: bool,
}

/// How a parameter moves, in plain f64.
#[derive(Clone, Copy)]
enum Rule {
    Adam { lr: f64, decay: f64 },
    Sgd { lr: f64, momentum: f64, decay: f64 },
}

const ADAM: Rule = Rule::Adam { lr: 1e-3, decay: 0.0 };
const ADAMW: Rule = Rule::Adam { lr: 1e-3, decay: 1e-2 };
/// How far the loss and gradients of a forward pass in a half type may be off, as shares.
const HALF_LOSS: f64 = 1e-2;
const HALF_GRADIENTS: f64 = 0.2;

/// Linear layers of these widths with an activation between them.
fn mlp<A: Layer + Clone + 'static>(
    widths: &[usize],
    activation: &A,
    rng: &Generator,
) -> taper::Result<Network> {
    let mut net = Sequential::new();
    for (i, w) in widths.windows(2).enumerate() {
        if i > 0 {
            net.push(activation.clone());
        }
        net.push(Linear::new(w[0], w[1], rng)?);
    }
    Ok(Box::new(net))
}

/// The multiplications and additions of a step of [`mlp`]; the first layer's input needs no gradient.
fn mlp_flop(batch: usize, widths: &[usize]) -> usize {
    let forward: usize = widths.windows(2).map(|w| 2 * batch * w[0] * w[1]).sum();
    3 * forward - 2 * batch * widths[0] * widths[1]
}

const SIMPLENET_WIDTHS: [usize; 3] = [784, 128, 10];
const SIMPLENET: Training = Training {
    build: |rng| mlp(&SIMPLENET_WIDTHS, &Relu, rng),
    batch: |inputs| Ok((inputs.rand([64, 784])?, inputs.indices(10, 64)?)),
    optimizer: |parameters| Box::new(Sgd::new(parameters, SgdConfig { lr: 0.01, ..Default::default() })),
    rule: Rule::Sgd { lr: 0.01, momentum: 0.0, decay: 0.0 },
    tokens: None,
    drops: false,
    half: None,
    is_compiled: false,
};

/// A step of the network of `simplenet_step_64`, for the cases that start with it.
pub(super) fn simplenet(inputs: &Inputs) -> Result<Call> {
    let (x, y) = (SIMPLENET.batch)(inputs)?;
    Ok(SIMPLENET.start(&x, &y, inputs)?.call)
}

pub(super) fn listed() -> Vec<Case> {
    let large =
        Training { batch: |inputs| Ok((inputs.rand([1024, 784])?, inputs.indices(10, 1024)?)), ..SIMPLENET };
    vec![
        SIMPLENET.case("simplenet_step_64").flop(mlp_flop(64, &SIMPLENET_WIDTHS)),
        large.case("simplenet_step_1024").flop(mlp_flop(1024, &SIMPLENET_WIDTHS)),
    ]
}

pub(super) fn more() -> Vec<Case> {
    let mnist = Training {
        build: |rng| Ok(Box::new(MnistNet::new(rng)?)),
        batch: |inputs| Ok((inputs.centred([64, 1, 28, 28])?, inputs.indices(10, 64)?)),
        optimizer: |parameters| Box::new(Adam::new(parameters, AdamConfig::default())),
        rule: ADAM,
        tokens: None,
        drops: true,
        half: None,
        is_compiled: false,
    };
    let resnet = Training {
        build: |rng| Ok(Box::new(resnet20(rng)?)),
        batch: |inputs| Ok((inputs.centred([32, 3, 32, 32])?, inputs.indices(10, 32)?)),
        optimizer: |parameters| {
            let config = SgdConfig { lr: 0.1, momentum: 0.9, weight_decay: 1e-4, ..Default::default() };
            Box::new(Sgd::new(parameters, config))
        },
        rule: Rule::Sgd { lr: 0.1, momentum: 0.9, decay: 1e-4 },
        tokens: None,
        drops: false,
        half: None,
        is_compiled: false,
    };
    let gpt = Training {
        build: |rng| Ok(Box::new(Gpt::new(GptConfig::default(), rng)?)),
        batch: |inputs| {
            let tokens = inputs.indices(512, [8, 129])?;
            let [x, y] = [tokens.narrow(1, 0, 128)?.contiguous()?, tokens.narrow(1, 1, 128)?.contiguous()?];
            taper::eval_all(&[&x, &y])?;
            Ok((x, y))
        },
        optimizer: |parameters| {
            Box::new(AdamW::new(parameters, AdamWConfig { lr: 1e-3, ..Default::default() }))
        },
        rule: ADAMW,
        tokens: Some(8),
        drops: false,
        half: None,
        is_compiled: false,
    };
    let gelu = Training {
        build: |rng| mlp(&[512; 4], &Gelu, rng),
        batch: |inputs| Ok((inputs.rand([256, 512])?, inputs.indices(512, 256)?)),
        ..SIMPLENET
    };
    vec![
        gelu.case("more_mlp_step_gelu_256x512").flop(mlp_flop(256, &[512; 4])),
        sgd_momentum(),
        mnist.case("mnist_cnn_step_64"),
        resnet.case("resnet20_step_32"),
        gpt.case("gpt_step_8x128"),
        Training { is_compiled: true, ..mnist }.case("mnist_cnn_step_64_compiled"),
        Training { is_compiled: true, ..resnet }.case("resnet20_step_32_compiled"),
        Training { is_compiled: true, ..gpt }.case("gpt_step_8x128_compiled"),
        mnist.in_half("mnist_cnn_step_64_autocast_bf16", DType::BF16),
        mnist.in_half("mnist_cnn_step_64_autocast_f16", DType::F16),
        resnet.in_half("resnet20_step_32_autocast_f16", DType::F16),
        gpt.in_half("gpt_step_8x128_autocast_bf16", DType::BF16),
        gpt.in_half("gpt_step_8x128_autocast_f16", DType::F16),
        data_parallel("gpt_step_8x128_data_parallel_1", gpt, 1),
        data_parallel("gpt_step_8x128_data_parallel_2", gpt, 2),
        data_parallel("gpt_step_8x128_data_parallel_4", gpt, 4),
        adamw(),
        generate("gpt_generate_64_tokens", Gpt::generate),
        generate("gpt_generate_64_tokens_kv_cache", Gpt::generate_cached),
    ]
}

/// The mean cross-entropy of logits `[…, classes]` and targets `[…]`.
fn loss_of(net: &Network, x: &Tensor, y: &Tensor) -> taper::Result<Tensor> {
    cross_entropy(&net.forward(x)?.flatten(0, -2)?, &y.flatten_all())
}

/// A network in training, with its optimizer and its step.
struct Started {
    net: Rc<Network>,
    optimizer: Rc<RefCell<Box<dyn Optimizer>>>,
    /// A step: gives the loss, and then the parameters.
    call: Call,
}

impl Training {
    fn start(self, x: &Tensor, y: &Tensor, inputs: &Inputs) -> Result<Started> {
        let net = Rc::new((self.build)(&inputs.rng)?);
        let parameters = net.parameters();
        let optimizer = Rc::new(RefCell::new((self.optimizer)(parameters.clone())));
        let (shared, stepping, x, y) = (net.clone(), optimizer.clone(), x.clone(), y.clone());
        let step = move |(x, y): (Tensor, Tensor)| {
            let mut optimizer = stepping.borrow_mut();
            optimizer.zero_grad();
            let loss = match self.half {
                Some(half) => autocast(half, || loss_of(&shared, &x, &y))?,
                None => loss_of(&shared, &x, &y)?,
            };
            loss.backward()?;
            optimizer.step()?;
            Ok(loss.detach())
        };
        let mut step: Box<dyn FnMut((Tensor, Tensor)) -> taper::Result<Tensor>> = match self.is_compiled {
            true => {
                let compiled = compile(step);
                Box::new(move |batch| compiled.call(batch))
            }
            false => Box::new(step),
        };
        let call = move || {
            let loss = step((x.clone(), y.clone()))?;
            loss.eval()?;
            Ok([loss].into_iter().chain(parameters.iter().map(Tensor::detach)).collect())
        };
        Ok(Started { net, optimizer, call: Box::new(call) })
    }

    /// The case with a forward pass in a half type.
    fn in_half(self, name: &str, half: DType) -> Case {
        Training { half: Some(half), ..self }.case(name).unless(match half {
            DType::BF16 => |device| (!device.supports(DType::BF16)).then_some("the device has no bf16"),
            _ => |device| (!device.supports(DType::F16)).then_some("the device has no f16"),
        })
    }

    fn case(self, name: &str) -> Case {
        Case::new(name, move |inputs| {
            let (x, y) = (self.batch)(inputs)?;
            let Started { net, optimizer, call } = self.start(&x, &y, inputs)?;
            pair(call, move |results, again| {
                let last = results[0].item_f64()?;
                self.check_first(&x, &y, last)?;
                self.check_update(&net, &optimizer, again)
            })
        })
    }

    /// Checks the first step of a network of the same kind: its loss and gradients equal those of its f64
    /// twin, and its output equals that of plain loops. After all timed steps, the loss must be smaller.
    fn check_first(self, x: &Tensor, y: &Tensor, last: f64) -> Result<()> {
        let Started { net, mut call, .. } = self.start(x, y, &Inputs::new(&x.device()))?;
        let cpu = taper::cpu();
        // Without dropout: the twin's random numbers are others.
        if self.drops {
            net.eval();
        }
        let twin = twin::in_f64(self.build, &cpu, &*net)?;
        if self.drops {
            twin.eval();
        }
        let (wide, labels) = (x.to(&cpu)?, y.to(&cpu)?);
        let wide = if x.dtype() == DType::F32 { wide.to_dtype(DType::F64)? } else { wide };
        let results = call()?;
        let first = results[0].item_f64()?;
        if last >= first {
            return Err(format!("wrong result: the loss went from {first} to {last}").into());
        }
        let relative = part(&x.device(), 1e-5);
        let [of_loss, of_gradients] = match self.half {
            Some(_) => [HALF_LOSS, HALF_GRADIENTS],
            None => [relative, 1000.0 * relative],
        };
        let want = loss_of(&twin, &wide, &labels)?.item_f64()?;
        all("loss", &[first as f32], &[want], of_loss)?;
        let missing = "a parameter without a gradient";
        let got =
            net.parameters().iter().map(|p| p.grad().ok_or(missing.into())).collect::<Result<Vec<_>>>()?;
        // Rounding decides on which side of a kink a value near it is: PyTorch's gradients of this ResNet in
        // f32 are up to 0.4 % off those in f64.
        let parameters = twin.parameters();
        twin::check_gradients(&parameters, || loss_of(&twin, &wide, &labels), &got, of_gradients)?;
        net.eval();
        let mut some = x.narrow(0, 0, 1)?;
        if let Some(tokens) = self.tokens {
            some = some.narrow(1, 0, tokens)?;
        }
        let output = no_grad(|| net.forward(&some))?;
        let of_twin = |twin: &Network, device: &taper::Device| {
            let some = some.to(device)?;
            twin.forward(&if some.dtype() == DType::F32 { some.to_dtype(DType::F64)? } else { some })
        };
        twin::check_forward(self.build, &*net, of_twin, &output, 10.0 * relative)
    }

    /// Once more, with the optimizer's state known before and after.
    fn check_update(
        self,
        net: &Network,
        optimizer: &RefCell<Box<dyn Optimizer>>,
        again: &mut Call,
    ) -> Result<()> {
        let parameters = net.parameters();
        let before = parameters.iter().map(host).collect::<Result<Vec<_>>>()?;
        let state = optimizer.borrow().state_dict();
        let results = again()?;
        for (i, (parameter, before)) in parameters.iter().zip(&before).enumerate() {
            let gradient = host(&parameter.grad().ok_or("a parameter without a gradient")?)?;
            let want = self.rule.moved(before, &gradient, &state, i)?;
            all(&format!("parameter {i}"), &host(&results[i + 1])?, &want, part(&parameter.device(), 1e-6))?;
        }
        Ok(())
    }
}

impl Rule {
    /// The parameter after a step, from the state before it.
    fn moved(self, p: &[f32], g: &[f32], state: &taper::State, i: usize) -> Result<Vec<f64>> {
        let kept = |name: &str| -> Result<Vec<f32>> {
            host(state.tensor(&format!("state.{i}.{name}")).ok_or("a part of the state is missing")?)
        };
        let pairs = || p.iter().zip(g).map(|(p, g)| (f64::from(*p), f64::from(*g))).enumerate();
        Ok(match self {
            Rule::Sgd { lr, momentum, decay } => {
                let b = if momentum == 0.0 { vec![0.0; p.len()] } else { kept("momentum_buffer")? };
                pairs().map(|(j, (p, g))| p - lr * (momentum * f64::from(b[j]) + g + decay * p)).collect()
            }
            Rule::Adam { lr, decay } => {
                let (m, v) = (kept("exp_avg")?, kept("exp_avg_sq")?);
                let step = state.number(&format!("state.{i}.step")).ok_or("the count of steps is missing")?;
                let t = step.as_f64() + 1.0;
                let next = |(j, (p, g)): (usize, (f64, f64))| {
                    let m = 0.9 * f64::from(m[j]) + 0.1 * g;
                    let v = 0.999 * f64::from(v[j]) + 0.001 * g * g;
                    let root = v.sqrt() / (1.0 - 0.999_f64.powf(t)).sqrt() + 1e-8;
                    p * (1.0 - lr * decay) - lr / (1.0 - 0.9_f64.powf(t)) * m / root
                };
                pairs().map(next).collect()
            }
        })
    }
}

/// The same step on several devices that share one processor: nothing is gained there, and what splitting
/// costs is seen.
fn data_parallel(name: &str, training: Training, devices: usize) -> Case {
    Case::new(name, move |inputs| {
        let (x, y) = (training.batch)(inputs)?;
        let first = inputs.device.name().to_string();
        let others = (1..devices).map(|k| taper::device(&format!("{first}#{k}")));
        let on: Vec<Device> =
            [Ok(inputs.device.clone())].into_iter().chain(others).collect::<taper::Result<_>>()?;
        let model = Rc::new(DataParallel::new(&on, 0, |rng| Gpt::new(GptConfig::default(), rng))?);
        let mut optimizer = (training.optimizer)(model.parameters());
        let loss_of = |net: &Gpt, (x, y): (Tensor, Tensor)| {
            cross_entropy(&net.forward(&x)?.flatten(0, -2)?, &y.flatten_all())
        };
        let (shared, batch) = (model.clone(), (x.clone(), y.clone()));
        let call = move || {
            optimizer.zero_grad();
            let loss = shared.backward(&batch, loss_of)?;
            optimizer.step()?;
            loss.eval()?;
            Ok(vec![loss])
        };
        pair(call, move |_, _| {
            // Where the parameters are now, the parts give what the whole gives.
            model.zero_grad();
            let whole = loss_of(&model, (x.clone(), y.clone()))?;
            let alone = grad(&[&whole], &model.parameters(), false)?;
            let loss = model.backward(&(x, y), loss_of)?;
            all("loss", &host(&loss)?, &[whole.item_f64()?], 1e-5)?;
            for (k, (parameter, alone)) in model.parameters().iter().zip(alone).enumerate() {
                let want = alone.ok_or("a parameter without a gradient")?.to_f64_vec()?;
                let got = host(&parameter.grad().ok_or("a parameter without a gradient")?)?;
                all(&format!("gradient {k}"), &got, &want, 1e-4)?;
            }
            Ok(())
        })
    })
}

/// The optimizer alone, with fixed gradients: `tensors` is how many of the numbers of a parameter's size it
/// reads and writes.
fn optimizer_alone(
    name: &str,
    (count, shape, tensors): (usize, [usize; 2], usize),
    make: fn(Vec<Tensor>) -> Box<dyn Optimizer>,
    rule: Rule,
) -> Case {
    Case::new(name, move |inputs| {
        let mut parameters = Vec::new();
        for _ in 0..count {
            let parameter = inputs.centred(shape)?.requires_grad();
            parameter.set_grad(Some(inputs.rand(shape)?));
            parameters.push(parameter);
        }
        let optimizer = Rc::new(RefCell::new(make(parameters.clone())));
        let (stepping, updated) = (optimizer.clone(), parameters.clone());
        let call = move || {
            stepping.borrow_mut().step()?;
            Ok(updated.iter().map(Tensor::detach).collect())
        };
        pair(call, move |_, again: &mut Call| {
            let state = optimizer.borrow().state_dict();
            let before = parameters.iter().map(host).collect::<Result<Vec<_>>>()?;
            for (i, got) in again()?.iter().enumerate() {
                let gradient = host(&parameters[i].grad().ok_or("no gradient")?)?;
                let want = rule.moved(&before[i], &gradient, &state, i)?;
                all(&format!("parameter {i}"), &host(got)?, &want, part(&got.device(), 1e-6))?;
            }
            Ok(())
        })
    })
    .elements(tensors * count * shape[0] * shape[1])
}

/// Parameter, gradient and two means are read, all but the gradient written.
fn adamw() -> Case {
    let make =
        |parameters| -> Box<dyn Optimizer> { Box::new(AdamW::new(parameters, AdamWConfig::default())) };
    optimizer_alone("adamw_step_5M", (10, [500, 1000], 7), make, ADAMW)
}

/// Parameter, gradient and momentum are read, the first and the last written.
fn sgd_momentum() -> Case {
    let make = |parameters| -> Box<dyn Optimizer> {
        Box::new(Sgd::new(parameters, SgdConfig { lr: 1e-3, momentum: 0.9, ..Default::default() }))
    };
    let rule = Rule::Sgd { lr: 1e-3, momentum: 0.9, decay: 0.0 };
    optimizer_alone("more_sgd_momentum_20x256x256", (20, [256, 256], 5), make, rule)
}

/// Sixty-four tokens after a prompt of as many, the likeliest each time.
fn generate(name: &str, run: fn(&Gpt, &Tensor, usize) -> taper::Result<Tensor>) -> Case {
    const COUNT: usize = 64;
    Case::new(name, move |inputs| {
        let net = Rc::new(Gpt::new(GptConfig::default(), &inputs.rng)?);
        net.eval();
        let prompt = inputs.indices(512, [1, COUNT])?;
        let (writer, start) = (net.clone(), prompt.clone());
        let call = move || {
            let all = run(&writer, &start, COUNT)?;
            all.eval()?;
            Ok(vec![all])
        };
        pair(call, move |results, _| {
            let tokens = results[0].to_f64_vec()?;
            if results[0].dims() != [1, 2 * COUNT] || tokens[..COUNT] != prompt.to_f64_vec()? {
                return Err("wrong result: not the prompt and its continuation".into());
            }
            let cpu = taper::cpu();
            let twin = twin::in_f64(|rng| Gpt::new(GptConfig::default(), rng), &cpu, &*net)?;
            // Each position only sees those before it, so one pass checks every token.
            let logits = no_grad(|| twin.forward(&results[0].to(&cpu)?)?.to_f64_vec())?;
            let allowed = part(&prompt.device(), 1e-4);
            for at in COUNT..2 * COUNT {
                let row = &logits[(at - 1) * 512..at * 512];
                let most = row.iter().copied().fold(f64::MIN, f64::max);
                let taken = row[tokens[at] as usize];
                if taken < most - allowed {
                    return Err(format!(
                        "wrong result: token {at} has the logit {taken}, the greatest is {most}"
                    )
                    .into());
                }
            }
            Ok(())
        })
    })
    .ops(COUNT)
}
