//! Optimizers and schedules beside PyTorch's, number by number (`scripts/torch_fixtures.py` writes them).
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::{
    common::{assert_close, device, has, of},
    pytorch::fixture,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use taper::optim::*;
use taper::prelude::*;

#[derive(Deserialize)]
struct Array {
    shape: Vec<usize>,
    data: Vec<f64>,
}

#[derive(Deserialize)]
struct Runs {
    after: Vec<usize>,
    parameters: Vec<Array>,
    gradients: Vec<Vec<Option<Vec<f64>>>>,
    cases: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    optimizer: String,
    options: Map<String, Value>,
    values: Vec<Vec<Vec<f64>>>,
}

/// The settings of PyTorch's names, which are ours.
fn configured<C: UpdateRule + Default>(options: &Map<String, Value>) -> C {
    let mut config = C::default();
    let mut known = std::collections::HashSet::new();
    for (name, setting) in config.settings() {
        let (key, index) = name.split_once('.').map_or((name, None), |(k, i)| (k, i.parse::<usize>().ok()));
        let Some(value) = options.get(key) else { continue };
        known.insert(key);
        let value = index.map_or(value, |i| &value[i]);
        match setting {
            Setting::Float(place) => *place = value.as_f64().unwrap(),
            Setting::Bool(place) => *place = value.as_bool().unwrap(),
            Setting::Count(place) => *place = value.as_u64().unwrap(),
            Setting::OptionalCount(place) => *place = value.as_u64(),
            Setting::Choice(choice) => {
                let all = ["original", "match_rms_adamw", "spectral_unclamped"];
                assert!(choice.choose(all.iter().position(|n| value == n).unwrap() as u64));
            }
        }
    }
    assert_eq!(known.len(), options.len(), "{options:?}");
    config
}

/// Runs the steps, stopped and resumed halfway by an optimizer with other settings, and compares after each
/// that was noted.
fn follow<C: UpdateRule + Default>(runs: &Runs, case: &Run, dtype: DType, within: (f64, f64)) -> Result<()> {
    let d = device();
    let used = case.values[0].len();
    let make = |array: &Array| Ok(of(&array.data, &array.shape, dtype, &d)?.requires_grad());
    let p: Vec<Tensor> = runs.parameters[..used].iter().map(make).collect::<Result<_>>()?;
    let (mut second, mut first) = (p.clone(), p.clone());
    drop(first.remove(1));
    second.retain(|x| x.dims() == p[1].dims());
    let grouped = |config: C| {
        let mut slow = config;
        *slow.lr() /= 2.0;
        let mut optimizer = ParamGroups::new(first.clone(), config);
        optimizer.add_group(second.clone(), slow);
        optimizer
    };
    let config: C = configured(&case.options);
    if case.options.len() == 1 && case.optimizer != "RAdam" && !case.optimizer.starts_with("Muon") {
        assert_eq!(*C::default().lr(), *{ config }.lr(), "the default rate of {}", case.optimizer);
    }
    let mut optimizer = grouped(config);
    let mut noted = case.values.iter();
    for (step, gradients) in runs.gradients.iter().enumerate() {
        for (x, gradient) in p.iter().zip(gradients) {
            let gradient = gradient.as_ref().map(|g| of(g, x.dims(), dtype, &d)).transpose()?;
            x.set_grad(gradient);
        }
        optimizer.step()?;
        if runs.after.contains(&(step + 1)) {
            for (x, expected) in p.iter().zip(noted.next().unwrap()) {
                let what =
                    format!("{} {:?} in {dtype} after {} steps", case.optimizer, case.options, step + 1);
                assert_close(&x.to_f64_vec()?, expected, within, &what);
            }
        }
        if step == 12 {
            let state = optimizer.state_dict();
            optimizer = grouped(C::default());
            optimizer.load_state_dict(&state)?;
        }
    }
    assert!(noted.next().is_none());
    Ok(())
}

#[test]
fn optimizers_step_as_pytorchs() -> Result<()> {
    let runs: Runs = fixture("optimizers");
    assert!(runs.cases.len() > 30 && runs.gradients.len() == 25);
    for case in &runs.cases {
        for (dtype, within) in [(DType::F64, (1e-11, 1e-12)), (DType::F32, (2e-5, 5e-6))] {
            if !has(&device(), dtype) {
                continue;
            }
            match case.optimizer.as_str() {
                "SGD" => follow::<SgdConfig>(&runs, case, dtype, within)?,
                "Adam" => follow::<AdamConfig>(&runs, case, dtype, within)?,
                "AdamW" => follow::<AdamWConfig>(&runs, case, dtype, within)?,
                "NAdam" => follow::<NAdamConfig>(&runs, case, dtype, within)?,
                "RAdam" => follow::<RAdamConfig>(&runs, case, dtype, within)?,
                "Adamax" => follow::<AdamaxConfig>(&runs, case, dtype, within)?,
                "RMSprop" => follow::<RmsPropConfig>(&runs, case, dtype, within)?,
                "Adagrad" => follow::<AdagradConfig>(&runs, case, dtype, within)?,
                "Adadelta" => follow::<AdadeltaConfig>(&runs, case, dtype, within)?,
                "ASGD" => follow::<AsgdConfig>(&runs, case, dtype, within)?,
                "Rprop" => follow::<RpropConfig>(&runs, case, dtype, within)?,
                "Lion" => follow::<LionConfig>(&runs, case, dtype, within)?,
                "Muon" => follow::<MuonConfig>(&runs, case, dtype, within)?,
                // Its iteration rounds to 8 bits; 25 steps of 0.05 add up.
                "MuonBFloat16" => follow::<MuonConfig>(&runs, case, dtype, (0.0, 0.03))?,
                other => panic!("the fixture has an optimizer this test does not know: {other}"),
            }
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Lbfgses {
    cases: Vec<LbfgsCase>,
}

#[derive(Deserialize)]
struct LbfgsCase {
    options: Map<String, Value>,
    steps: Vec<LbfgsStep>,
}

#[derive(Deserialize)]
struct LbfgsStep {
    loss: f64,
    func_evals: u64,
    x: Vec<f64>,
    y: Vec<f64>,
}

#[test]
fn lbfgs_steps_as_pytorchs() -> Result<()> {
    let d = device();
    let runs: Lbfgses = fixture("lbfgs");
    assert!(runs.cases.len() > 7);
    for case in &runs.cases {
        let o = &case.options;
        let whole = |name: &str| o.get(name).map(|v| v.as_u64().unwrap());
        let base = LbfgsConfig::default();
        let config = LbfgsConfig {
            lr: o.get("lr").map_or(base.lr, |v| v.as_f64().unwrap()),
            max_iter: whole("max_iter").unwrap_or(base.max_iter),
            max_eval: whole("max_eval"),
            history_size: whole("history_size").unwrap_or(base.history_size),
            line_search_fn: o.get("line_search_fn").map(|_| LineSearch::StrongWolfe),
            maximize: o.get("maximize").is_some(),
            ..base
        };
        let sign = if config.maximize { -1.0 } else { 1.0 };
        for dtype in [DType::F64, DType::F32] {
            if !has(&d, dtype) {
                continue;
            }
            let x = of(&[-1.25, 0.5], &[2], dtype, &d)?.requires_grad();
            let y = of(&[1.5, -0.75], &[2, 1], dtype, &d)?.requires_grad();
            let function = || {
                let valley = y.flatten_all().sub(&x.powi(2))?.powi(2) * 10.0;
                let loss = ((1.0 - &x).powi(2).add(&valley)?).sum() * sign;
                loss.backward()?;
                Ok(loss)
            };
            let mut lbfgs = Lbfgs::new([x.clone(), y.clone()], config);
            for (i, step) in case.steps.iter().enumerate() {
                let what = format!("{o:?} in {dtype}, step {i}");
                // Single precision goes other ways after a while: it begins the same, and the loss falls.
                if dtype == DType::F32 && i > 0 {
                    let (before, loss) = (function()?.item_f64()?, lbfgs.step(function)?);
                    assert_eq!(before, loss, "{what}");
                    continue;
                }
                let within = if dtype == DType::F64 { (1e-7, 1e-9) } else { (1e-3, 1e-3) };
                let loss = lbfgs.step(function)?;
                assert_close(&[loss], &[step.loss], within, &what);
                if dtype == DType::F32 {
                    continue;
                }
                assert_close(&x.to_f64_vec()?, &step.x, within, &what);
                assert_close(&y.to_f64_vec()?, &step.y, within, &what);
                let state = lbfgs.state_dict();
                assert_eq!(
                    state.number("state.0.func_evals"),
                    Some(taper::Scalar::Int(step.func_evals as i64))
                );
                // Resumed by another.
                lbfgs = Lbfgs::new([x.clone(), y.clone()], base);
                lbfgs.load_state_dict(&state)?;
                assert_eq!(lbfgs.config, config);
            }
            if dtype == DType::F32 && config.line_search_fn.is_some() {
                let loss = lbfgs.step(function)? * sign;
                assert!(loss < 1.5 * (case.steps[1].loss * sign), "{o:?}: {loss}");
            }
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Schedules {
    metrics: Vec<Value>,
    cases: Vec<ScheduleCase>,
}

#[derive(Deserialize)]
struct ScheduleCase {
    schedule: String,
    optimizer: String,
    arguments: Value,
    rates: Vec<Vec<f64>>,
    momenta: Vec<Vec<f64>>,
    error: bool,
}

type Boxed = Box<dyn LrSchedule + Send + Sync>;

/// The schedule of PyTorch's name and arguments.
fn schedule(name: &str, a: &Value) -> Result<Boxed> {
    let float = |name: &str| a[name].as_f64().unwrap();
    let whole = |name: &str| a[name].as_u64().unwrap();
    let float_or = |name: &str, default: f64| a.get(name).map_or(default, |v| v.as_f64().unwrap());
    let momentum = |least: f64, greatest: f64| {
        let cycles = a.get("cycle_momentum").is_none_or(|v| v.as_bool().unwrap());
        cycles.then(|| (float_or("base_momentum", least), float_or("max_momentum", greatest)))
    };
    Ok(match name {
        "StepLR" => Box::new(StepLr::new(whole("step_size"), float("gamma"))?),
        "MultiStepLR" => {
            let milestones = a["milestones"].as_array().unwrap().iter().map(|m| m.as_u64().unwrap());
            Box::new(MultiStepLr::new(milestones, float("gamma"))?)
        }
        "ExponentialLR" => Box::new(ExponentialLr::new(float("gamma"))),
        "PolynomialLR" => Box::new(PolynomialLr::new(whole("total_iters"), float("power"))?),
        "CosineAnnealingLR" => Box::new(CosineAnnealingLr::new(whole("T_max"), float("eta_min"))?),
        "CosineAnnealingWarmRestarts" => {
            Box::new(CosineAnnealingWarmRestarts::new(whole("T_0"), whole("T_mult"), float("eta_min"))?)
        }
        "LinearLR" => {
            Box::new(LinearLr::new(whole("total_iters"), float("start_factor"))?.end(float("end_factor"))?)
        }
        "ConstantLR" => Box::new(ConstantLr::new(whole("total_iters"), float("factor"))?),
        "OneCycleLR" => {
            let default = OneCycleConfig::default();
            Box::new(OneCycleLr::new(OneCycleConfig {
                max_lr: float("max_lr"),
                total_steps: whole("total_steps"),
                pct_start: float_or("pct_start", default.pct_start),
                anneal_strategy: match a.get("anneal_strategy") {
                    Some(_) => Anneal::Linear,
                    None => Anneal::Cos,
                },
                momentum: momentum(0.85, 0.95),
                div_factor: float_or("div_factor", default.div_factor),
                final_div_factor: float_or("final_div_factor", default.final_div_factor),
                three_phase: a.get("three_phase").is_some(),
            })?)
        }
        "CyclicLR" => Box::new(CyclicLr::new(CyclicConfig {
            base_lr: float("base_lr"),
            max_lr: float("max_lr"),
            step_size_up: whole("step_size_up"),
            step_size_down: a.get("step_size_down").map(|v| v.as_u64().unwrap()),
            mode: match a.get("mode").and_then(Value::as_str) {
                Some("triangular2") => CyclicScale::Triangular2,
                Some("exp_range") => CyclicScale::ExpRange(float("gamma")),
                _ => CyclicScale::Triangular,
            },
            momentum: momentum(0.8, 0.9),
        })?),
        "LambdaLR" => Box::new(LambdaLr::new(function(a))),
        "MultiplicativeLR" => Box::new(MultiplicativeLr::new(function(a))),
        "SequentialLR" => {
            let mut parts = a["parts"].as_array().unwrap().iter();
            let mut part =
                || parts.next().map(|p| schedule(p["schedule"].as_str().unwrap(), &p["arguments"]));
            let mut all = SequentialLr::new(part().unwrap()?);
            for milestone in a["milestones"].as_array().unwrap() {
                all = all.then(milestone.as_u64().unwrap(), part().unwrap()?)?;
            }
            assert!(part().is_none());
            Box::new(all)
        }
        "ChainedScheduler" => {
            let mut parts = a["parts"].as_array().unwrap().iter();
            let mut part =
                || parts.next().map(|p| schedule(p["schedule"].as_str().unwrap(), &p["arguments"]));
            let mut all = ChainedScheduler::new(part().unwrap()?);
            while let Some(next) = part() {
                all = all.and(next?);
            }
            Box::new(all)
        }
        other => panic!("the fixture has a schedule this test does not know: {other}"),
    })
}

fn function(a: &Value) -> fn(u64) -> f64 {
    match a["lr_lambda"].as_str().unwrap() {
        "inverse" => |t| 1.0 / (1.0 + t as f64),
        _ => |t| 1.0 + 0.25 * (t as f64).sin(),
    }
}

/// Two groups with PyTorch's rates.
fn two_groups(kind: &str) -> Result<Box<dyn Optimizer>> {
    let d = device();
    let x = || Ok::<Tensor, Error>(Tensor::zeros([1], (DType::F32, &d))?.requires_grad());
    fn groups<C: UpdateRule + 'static>(x: [Tensor; 2], config: C) -> Box<dyn Optimizer> {
        let (mut a, mut b) = (config, config);
        (*a.lr(), *b.lr()) = (0.5, 0.2);
        let [first, second] = x;
        let mut optimizer = ParamGroups::new([first], a);
        optimizer.add_group([second], b);
        Box::new(optimizer)
    }
    Ok(match kind {
        "SGD" => groups([x()?, x()?], SgdConfig { momentum: 0.9, ..Default::default() }),
        _ => groups([x()?, x()?], AdamConfig::default()),
    })
}

#[test]
fn schedules_go_as_pytorchs() -> Result<()> {
    let all: Schedules = fixture("schedules");
    assert!(all.cases.len() > 35);
    let within = (1e-12, 1e-13);
    for case in all.cases.iter().filter(|case| case.schedule != "ReduceLROnPlateau") {
        let what = format!("{} {} on {}", case.schedule, case.arguments, case.optimizer);
        let mut optimizer = two_groups(&case.optimizer)?;
        let momenta = optimizer.momenta();
        let mut scheduler = LrScheduler::new(schedule(&case.schedule, &case.arguments)?, &mut *optimizer);
        for (step, expected) in case.rates.iter().enumerate() {
            assert_close(&optimizer.learning_rates(), expected, within, &format!("{what}, step {step}"));
            assert_eq!(optimizer.learning_rates(), scheduler.rates());
            let expected = case.momenta.get(step).or(momenta.as_ref()).unwrap();
            let found = optimizer.momenta().unwrap();
            assert_close(&found, expected, within, &format!("momenta of {what}, step {step}"));
            if step == 17 {
                // Stopped, and resumed by new ones.
                let saved = (scheduler.state_dict(), optimizer.state_dict());
                let mut fresh = two_groups(&case.optimizer)?;
                scheduler = LrScheduler::new(schedule(&case.schedule, &case.arguments)?, &mut *fresh);
                optimizer = fresh;
                optimizer.load_state_dict(&saved.1)?;
                scheduler.load_state_dict(&saved.0)?;
            }
            let stepped = scheduler.step(&mut *optimizer);
            if case.error && step + 1 == case.rates.len() {
                let message = stepped.unwrap_err().to_string();
                assert!(message.contains("total_steps"), "{message}");
                assert_eq!((optimizer.learning_rates(), scheduler.steps()), (scheduler.rates(), step as u64));
            } else {
                stepped?;
            }
        }
    }
    Ok(())
}

#[test]
fn plateaus_go_as_pytorchs() -> Result<()> {
    let all: Schedules = fixture("schedules");
    let metric = |v: &Value| v.as_f64().unwrap_or(f64::NAN);
    let mut checked = 0;
    for case in all.cases.iter().filter(|case| case.schedule == "ReduceLROnPlateau") {
        let a = &case.arguments;
        let float = |name: &str, default: f64| a.get(name).map_or(default, |v| v.as_f64().unwrap());
        let base = ReduceLrOnPlateauConfig::default();
        let config = ReduceLrOnPlateauConfig {
            maximize: a.get("mode").is_some(),
            factor: float("factor", base.factor),
            patience: a["patience"].as_u64().unwrap(),
            threshold: float("threshold", base.threshold),
            threshold_mode: match a.get("threshold_mode") {
                Some(_) => ThresholdMode::Abs,
                None => ThresholdMode::Rel,
            },
            cooldown: a.get("cooldown").map_or(0, |v| v.as_u64().unwrap()),
            min_lr: float("min_lr", 0.0),
            eps: float("eps", base.eps),
        };
        let mut optimizer = two_groups("SGD")?;
        let mut plateau = ReduceLrOnPlateau::new(config)?;
        for (step, (value, expected)) in all.metrics.iter().zip(&case.rates[1..]).enumerate() {
            plateau.step(metric(value), &mut *optimizer);
            assert_close(&optimizer.learning_rates(), expected, (1e-12, 0.0), &format!("{a}, step {step}"));
            if step == 9 {
                let state = plateau.state_dict();
                plateau = ReduceLrOnPlateau::new(config)?;
                plateau.load_state_dict(&state)?;
            }
        }
        checked += 1;
    }
    assert_eq!(checked, 5);
    Ok(())
}

/// All that a training with these is made of.
struct Training {
    net: Linear,
    adamw: AdamW,
    muon: Muon,
    lbfgs: Lbfgs,
    schedule: LrScheduler<OneCycleLr>,
    plateau: ReduceLrOnPlateau,
    average: AveragedParameters,
}

impl Training {
    fn new(seed: u64) -> Result<Training> {
        let mut net = Linear::new(4, 3, &Generator::seed(seed, &taper::cpu()))?;
        net.to(&device())?;
        let p = net.parameters();
        let mut adamw = AdamW::new(p.clone(), AdamWConfig { amsgrad: true, ..Default::default() });
        let cycle = OneCycleConfig { max_lr: 0.1, total_steps: 20, ..Default::default() };
        let config = LbfgsConfig { max_iter: 2, lr: 0.01, ..Default::default() };
        Ok(Training {
            schedule: LrScheduler::new(OneCycleLr::new(cycle)?, &mut adamw),
            muon: Muon::new(p[..1].to_vec(), MuonConfig::default()),
            lbfgs: Lbfgs::new(p.clone(), config),
            plateau: ReduceLrOnPlateau::new(ReduceLrOnPlateauConfig { patience: 0, ..Default::default() })?,
            average: AveragedParameters::ema(p, 0.9)?,
            net,
            adamw,
        })
    }

    fn step(&mut self, x: &Tensor) -> Result<()> {
        let Training { net, adamw, muon, lbfgs, schedule, plateau, average } = self;
        let loss = || {
            let loss = net.forward(x)?.powi(2).mean();
            loss.backward()?;
            Ok(loss)
        };
        let value = lbfgs.step(loss)?;
        adamw.step()?;
        muon.step()?;
        schedule.step(adamw)?;
        plateau.step(value, muon);
        average.update()
    }

    fn bits(&self) -> Vec<Vec<u8>> {
        let all = self.net.parameters().into_iter().chain(self.average.averages().to_vec());
        all.map(|x| x.read_bytes().unwrap()).collect()
    }
}

#[test]
fn a_training_goes_on_from_its_checkpoint() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("half.safetensors");
    let x = Tensor::randn([8, 4], &Generator::seed(5, &taper::cpu()))?.to(&device())?;
    let mut whole = Training::new(1)?;
    for step in 0..8 {
        if step == 4 {
            Checkpoint::new()
                .module("net", &whole.net)
                .part("adamw", &whole.adamw)
                .part("muon", &whole.muon)
                .part("lbfgs", &whole.lbfgs)
                .part("schedule", &whole.schedule)
                .part("plateau", &whole.plateau)
                .part("average", &whole.average)
                .save(&path)?;
        }
        whole.step(&x)?;
    }
    let mut resumed = Training::new(2)?;
    Checkpoint::load(&path, &device())?
        .restore()
        .module("net", &resumed.net)
        .part("adamw", &mut resumed.adamw)
        .part("muon", &mut resumed.muon)
        .part("lbfgs", &mut resumed.lbfgs)
        .part("schedule", &mut resumed.schedule)
        .part("plateau", &mut resumed.plateau)
        .part("average", &mut resumed.average)
        .finish()?;
    for _ in 4..8 {
        resumed.step(&x)?;
    }
    assert_eq!(whole.bits(), resumed.bits());
    assert_eq!(whole.adamw.learning_rates(), resumed.adamw.learning_rates());
    assert_eq!(whole.muon.learning_rates(), resumed.muon.learning_rates());
    Ok(())
}
