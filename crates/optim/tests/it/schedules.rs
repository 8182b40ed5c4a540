//! Schedules: wrong settings, groups, momentum. `taper/tests` compares their rates with PyTorch's.
#![allow(clippy::unwrap_used)]

use crate::common::device;
use autograd::TensorGrad;
use optim::*;
use tensor_core::{Result, Stateful, Tensor};

fn parameter() -> Tensor {
    Tensor::zeros([1], &device()).unwrap().requires_grad()
}

#[track_caller]
fn says<T: std::fmt::Debug>(result: Result<T>, part: &str) {
    let message = result.unwrap_err().to_string();
    assert!(message.contains(part), "{message}");
}

#[test]
fn settings_that_make_no_sense_are_errors() {
    says(StepLr::new(2, f64::NAN), "StepLr: gamma NaN");
    says(MultiStepLr::new([1], f64::INFINITY), "MultiStepLr: gamma inf");
    says(PolynomialLr::new(0, 1.0), "PolynomialLr: steps 0");
    says(PolynomialLr::new(5, -1.0), "power -1");
    says(ConstantLr::new(5, 1.5), "ConstantLr: factor 1.5");
    says(ConstantLr::new(0, 0.5), "steps 0");
    says(LinearLr::new(5, -0.5), "start -0.5");
    says(LinearLr::new(5, 0.5).unwrap().end(2.0), "end 2");
    says(CosineAnnealingLr::new(5, f64::NAN), "least NaN");
    says(CosineAnnealingWarmRestarts::new(0, 1, 0.0), "first 0");
    says(CosineAnnealingWarmRestarts::new(5, 0, 0.0), "times 0");
    let one = OneCycleConfig { max_lr: 1.0, total_steps: 9, ..Default::default() };
    says(OneCycleLr::new(OneCycleConfig::default()), "total_steps 0");
    says(OneCycleLr::new(OneCycleConfig { max_lr: 0.0, ..one }), "max_lr 0");
    says(OneCycleLr::new(OneCycleConfig { pct_start: 1.5, ..one }), "pct_start 1.5");
    says(OneCycleLr::new(OneCycleConfig { div_factor: 0.0, ..one }), "div_factor 0");
    says(OneCycleLr::new(OneCycleConfig { momentum: Some((0.5, 1.5)), ..one }), "momentum.1 1.5");
    let cyclic = CyclicConfig { base_lr: 0.1, max_lr: 1.0, ..Default::default() };
    says(CyclicLr::new(CyclicConfig::default()), "max_lr 0");
    says(CyclicLr::new(CyclicConfig { step_size_up: 0, ..cyclic }), "step_size_up 0");
    says(CyclicLr::new(CyclicConfig { step_size_down: Some(0), ..cyclic }), "step_size_down 0");
    says(CyclicLr::new(CyclicConfig { mode: CyclicScale::ExpRange(f64::NAN), ..cyclic }), "gamma NaN");
    let first = || SequentialLr::new(ExponentialLr::new(0.5));
    says(first().then(0, ExponentialLr::new(0.5)), "milestone 0");
    says(first().then(4, ExponentialLr::new(0.5)).unwrap().then(4, ExponentialLr::new(0.5)), "milestone 4");
    let plateau = ReduceLrOnPlateauConfig::default();
    says(ReduceLrOnPlateau::new(ReduceLrOnPlateauConfig { factor: 1.0, ..plateau }), "factor 1");
    says(ReduceLrOnPlateau::new(ReduceLrOnPlateauConfig { factor: -0.5, ..plateau }), "factor -0.5");
    says(ReduceLrOnPlateau::new(ReduceLrOnPlateauConfig { min_lr: -1.0, ..plateau }), "min_lr -1");
}

/// Phases without length, and cycles of one step, have finite rates too.
#[test]
fn the_shortest_cycles_are_finite() {
    for total_steps in 1..6 {
        for pct_start in [0.0, 0.2, 0.25, 0.5, 1.0] {
            for three_phase in [false, true] {
                let config =
                    OneCycleConfig { max_lr: 1.0, total_steps, pct_start, three_phase, ..Default::default() };
                let cycle = OneCycleLr::new(config).unwrap();
                for step in 0..=total_steps {
                    let (lr, momentum) = (cycle.lr(0.0, step), cycle.momentum(step).unwrap());
                    assert!(lr.is_finite() && momentum.is_finite(), "{config:?} {step}: {lr} {momentum}");
                }
            }
        }
    }
}

#[test]
fn a_momentum_is_cycled_where_there_is_one() {
    let cycle =
        || OneCycleLr::new(OneCycleConfig { max_lr: 1.0, total_steps: 10, ..Default::default() }).unwrap();
    fn cycles<C: UpdateRule>(config: C, cycle: OneCycleLr) {
        let mut optimizer = ParamGroups::new([parameter()], config);
        let mut scheduler = LrScheduler::new(cycle, &mut optimizer);
        assert_eq!(optimizer.momenta(), Some(vec![0.95]), "{config:?}");
        scheduler.step(&mut optimizer).unwrap();
        assert!(optimizer.momenta().unwrap()[0] < 0.95);
    }
    cycles(SgdConfig::default(), cycle());
    cycles(AdamConfig::default(), cycle());
    cycles(AdamWConfig::default(), cycle());
    cycles(NAdamConfig::default(), cycle());
    cycles(RAdamConfig::default(), cycle());
    cycles(AdamaxConfig::default(), cycle());
    cycles(RmsPropConfig::default(), cycle());
    cycles(LionConfig::default(), cycle());
    cycles(MuonConfig::default(), cycle());

    // Adagrad, Adadelta and Lbfgs have no momentum: the step reports an error, and no rate changes.
    let mut adagrad = Adagrad::new([parameter()], AdagradConfig::default());
    let mut scheduler = LrScheduler::new(cycle(), &mut adagrad);
    let before = adagrad.learning_rates();
    says(scheduler.step(&mut adagrad), "sets the momentum");
    assert_eq!((adagrad.learning_rates(), scheduler.steps()), (before, 0));
    let alone = OneCycleConfig { max_lr: 1.0, total_steps: 10, momentum: None, ..Default::default() };
    let mut lbfgs = Lbfgs::new([parameter()], LbfgsConfig::default());
    let mut scheduler = LrScheduler::new(OneCycleLr::new(alone).unwrap(), &mut lbfgs);
    scheduler.step(&mut lbfgs).unwrap();
    assert_eq!(lbfgs.config.lr, scheduler.rates()[0]);
}

#[test]
fn each_group_may_have_a_schedule_of_its_own() {
    let two = || {
        let mut sgd = Sgd::new([parameter()], SgdConfig { lr: 1.0, ..Default::default() });
        sgd.add_group([parameter()], SgdConfig { lr: 2.0, ..Default::default() });
        sgd
    };
    let mut sgd = two();
    let schedules = || [ExponentialLr::new(0.5), ExponentialLr::new(0.25)];
    let mut scheduler = LrScheduler::per_group(schedules(), &mut sgd).unwrap();
    scheduler.step(&mut sgd).unwrap();
    assert_eq!(sgd.learning_rates(), [0.5, 0.5]);
    let mut again = LrScheduler::per_group(schedules(), &mut two()).unwrap();
    again.load_state_dict(&scheduler.state_dict()).unwrap();
    assert_eq!(again.rates(), [0.5, 0.5]);
    says(LrScheduler::per_group(schedules().into_iter().take(1), &mut two()), "1 schedules for 2 groups");
}

#[test]
fn a_state_that_does_not_fit_changes_nothing() {
    let mut sgd = Sgd::new([parameter()], SgdConfig { lr: 1.0, ..Default::default() });
    let mut scheduler = LrScheduler::new(ExponentialLr::new(0.5), &mut sgd);
    scheduler.step(&mut sgd).unwrap();
    let mut state = scheduler.state_dict();
    state.insert("last_epoch", -3i64);
    says(scheduler.load_state_dict(&state), "last_epoch: the integer -3");
    assert_eq!((scheduler.steps(), scheduler.rates()), (1, vec![0.5]));
    let mut plateau = ReduceLrOnPlateau::new(ReduceLrOnPlateauConfig::default()).unwrap();
    plateau.step(2.0, &mut sgd);
    says(plateau.load_state_dict(&scheduler.state_dict()), "missing");
    assert_eq!((plateau.best(), plateau.steps()), (2.0, 1));
}

#[track_caller]
fn near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    let far = found.iter().zip(expected).any(|(a, b)| (a - b).abs() > 1e-12);
    assert!(!far, "{found:?}, not {expected:?}");
}

/// The rates of some steps, for each step those of all groups.
fn rates(schedule: impl LrSchedule, groups: &[f64], steps: usize) -> Vec<f64> {
    let mut sgd = Sgd::new([parameter()], SgdConfig { lr: groups[0], momentum: 0.9, ..Default::default() });
    for &lr in &groups[1..] {
        sgd.add_group([parameter()], SgdConfig { lr, momentum: 0.9, ..Default::default() });
    }
    let mut scheduler = LrScheduler::new(schedule, &mut sgd);
    let mut all = Vec::new();
    for _ in 0..steps {
        all.extend(sgd.learning_rates());
        scheduler.step(&mut sgd).unwrap();
    }
    all
}

/// PyTorch's `SWALR` and `CyclicLR(scale_fn=…)`, computed by PyTorch.
#[test]
fn averaged_and_scaled_schedules_are_pytorchs() {
    let cos = rates(SwaLr::new(0.05, 4, Anneal::Cos).unwrap(), &[1.0, 0.5], 5);
    near(
        &cos,
        &[
            1.0,
            0.5,
            0.86087572106361,
            0.4340990257669732,
            0.525,
            0.275,
            0.18912427893638994,
            0.11590097423302682,
            0.05,
            0.05,
        ],
    );
    let linear = rates(SwaLr::new(0.05, 4, Anneal::Linear).unwrap(), &[1.0], 6);
    near(&linear, &[1.0, 0.7625, 0.525, 0.2875, 0.05, 0.05]);
    near(&rates(SwaLr::new(0.05, 0, Anneal::Linear).unwrap(), &[1.0], 3), &[0.05; 3]);
    says(SwaLr::new(-1.0, 4, Anneal::Cos), "swa_lr -1");
    let config = |mode| CyclicConfig {
        base_lr: 0.1,
        max_lr: 1.0,
        step_size_up: 2,
        step_size_down: Some(3),
        mode,
        ..Default::default()
    };
    let cycle = rates(CyclicLr::new(config(CyclicScale::Cycle(|cycle| 1.0 / cycle))).unwrap(), &[1.0], 9);
    near(&cycle, &[0.1, 0.55, 1.0, 0.7, 0.4, 0.1, 0.325, 0.55, 0.4]);
    let steps = CyclicScale::Iterations(|step| 0.9f64.powf(step));
    let found = rates(CyclicLr::new(config(steps)).unwrap(), &[1.0], 5);
    near(&found, &[0.1, 0.505, 0.829, 0.5374, 0.29683]);
    let copy = steps;
    assert!(steps == copy && steps != CyclicScale::Triangular);
}

#[test]
fn a_plateau_has_a_least_rate_for_each_group() {
    let mut sgd = Sgd::new([parameter()], SgdConfig { lr: 1.0, ..Default::default() });
    sgd.add_group([parameter()], SgdConfig { lr: 1.0, ..Default::default() });
    let config = ReduceLrOnPlateauConfig { patience: 0, factor: 0.5, ..Default::default() };
    says(ReduceLrOnPlateau::per_group(config, &[0.1], &sgd), "1 least rates for 2 groups");
    says(ReduceLrOnPlateau::per_group(config, &[0.1, -0.5], &sgd), "min_lr -0.5");
    let mut plateau = ReduceLrOnPlateau::per_group(config, &[0.75, 0.0], &sgd).unwrap();
    for _ in 0..3 {
        plateau.step(1.0, &mut sgd);
    }
    assert_eq!(sgd.learning_rates(), [0.75, 0.25]);
}

/// The setting that is cycled is found among the settings.
#[test]
fn momenta_are_found_by_their_names() {
    let momenta = |optimizer: &dyn Optimizer| optimizer.momenta();
    assert_eq!(
        momenta(&Sgd::new([parameter()], SgdConfig { momentum: 0.5, ..Default::default() })),
        Some(vec![0.5])
    );
    let adam = AdamConfig { betas: (0.75, 0.5), ..Default::default() };
    assert_eq!(momenta(&Adam::new([parameter()], adam)), Some(vec![0.75]));
    assert_eq!(momenta(&RAdam::new([parameter()], RAdamConfig::default())), Some(vec![0.9]));
    assert_eq!(momenta(&Adadelta::new([parameter()], AdadeltaConfig::default())), None);
}

/// Invalid settings of an optimizer or a scheduler are an error where it is made.
#[test]
fn what_is_known_when_an_object_is_made_is_told_then() {
    let bad = SgdConfig { lr: -1.0, ..Default::default() };
    says(Sgd::new([parameter()], bad).checked().map(drop), "lr -1");
    says(Sgd::new([], SgdConfig::default()).checked().map(drop), "no parameters");
    let plain = parameter().detach();
    says(Sgd::new([plain], SgdConfig::default()).checked().map(drop), "no parameter");
    says(Muon::new([parameter()], MuonConfig::default()).checked().map(drop), "only matrices");
    says(Lbfgs::new([], LbfgsConfig::default()).checked().map(drop), "no parameters");
    says(MasterWeights::new([parameter()], |masters| Sgd::new(masters, bad)).map(drop), "lr -1");
    let mut good = Sgd::new([parameter()], SgdConfig::default()).checked().unwrap();
    let mut adagrad = Adagrad::new([parameter()], AdagradConfig::default());
    let cyclic = || CyclicLr::new(CyclicConfig { base_lr: 0.1, max_lr: 1.0, ..Default::default() }).unwrap();
    says(LrScheduler::new(cyclic(), &mut adagrad).checked(&adagrad).map(drop), "momentum");
    says(LrScheduler::per_group([cyclic()], &mut adagrad).map(drop), "momentum");
    assert!(LrScheduler::new(cyclic(), &mut good).checked(&good).is_ok());
}

/// A relative threshold is a fraction of the best metric's magnitude, whatever its sign.
#[test]
fn a_metric_below_0_has_plateaus_too() {
    let reduced_after = |maximize: bool, threshold_mode: ThresholdMode, metrics: &[f64]| {
        let mut sgd = Sgd::new([parameter()], SgdConfig { lr: 1.0, ..Default::default() });
        let config = ReduceLrOnPlateauConfig {
            maximize,
            threshold_mode,
            patience: 1,
            threshold: 0.1,
            ..Default::default()
        };
        let mut plateau = ReduceLrOnPlateau::new(config).unwrap();
        metrics.iter().position(|&metric| {
            plateau.step(metric, &mut sgd);
            sgd.learning_rates() != [1.0]
        })
    };
    use ThresholdMode::{Abs, Rel};
    for (sign, maximize) in [(1.0, false), (-1.0, true)] {
        let after = |mode, metrics: &[f64]| {
            reduced_after(maximize, mode, &metrics.iter().map(|m| sign * m).collect::<Vec<_>>())
        };
        // No change, and a change of less than a tenth, are no improvements.
        assert_eq!(after(Rel, &[-1.0, -1.0, -1.0]), Some(2));
        assert_eq!(after(Rel, &[-1.0, -1.05, -1.09]), Some(2));
        assert_eq!(after(Rel, &[1.0, 0.95, 0.91]), Some(2));
        assert_eq!(after(Rel, &[-1.0, -1.2, -1.4, -1.6]), None);
        assert_eq!(after(Rel, &[1.0, 0.8, 0.6, -0.5, -0.6]), None);
        // From 0 any decrease is an improvement, and from infinity any finite number.
        assert_eq!(after(Rel, &[0.0, -1e-9, -2e-9, -3e-9]), None);
        assert_eq!(after(Rel, &[f64::INFINITY, 5.0, 5.0, 5.0]), Some(3));
        assert_eq!(after(Abs, &[-1.0, -1.05, -1.05]), Some(2));
        assert_eq!(after(Abs, &[f64::INFINITY, 5.0, 4.0, 3.0]), None);
        assert_eq!(after(Rel, &[f64::NAN, f64::NAN]), Some(1));
    }
}
