//! A backend from another crate: it wraps the CPU's, passes everything on, and counts kernels. The counts
//! also test what the scheduler fuses.
#![allow(clippy::unwrap_used, clippy::type_complexity)]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use taper::prelude::*;
use taper::tensor_core::{Backend, DeviceInfo, ErrorKind, Launch, MemoryStats, Storage, Ticket};
use taper_testing::deal::hash;

#[derive(Debug)]
struct Counting {
    info: DeviceInfo,
    inner: Arc<dyn Backend>,
    counts: Mutex<BTreeMap<&'static str, usize>>,
    /// Launches whose indices are not known to be in range beforehand.
    unproven: AtomicUsize,
    /// If present, bad indices are reported late, as by a GPU: the launches to report, with their bad index.
    late: Option<Mutex<Vec<(Arc<Ticket>, Option<i64>)>>>,
}

impl Backend for Counting {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn allocate(&self, dtype: DType, numel: usize) -> Result<Storage> {
        self.inner.allocate(dtype, numel)
    }
    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Storage> {
        self.inner.upload(dtype, bytes)
    }
    fn download(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()> {
        self.settle()?;
        self.inner.download(storage, start, out)
    }
    fn run(&self, launch: &Launch<'_>) -> Result<()> {
        *self.counts.lock().unwrap().entry(launch.kernel.name()).or_default() += 1;
        self.unproven.fetch_add(launch.tickets.len(), Ordering::Relaxed);
        let result = self.inner.run(launch);
        let (Some(late), Some((_, ticket))) = (&self.late, launch.tickets.first()) else { return result };
        let bad = match result.as_ref().map_err(Error::kind) {
            Ok(()) => None,
            Err(ErrorKind::IndexOutOfRange { index, .. }) => Some(*index),
            Err(_) => return result,
        };
        ticket.defer();
        late.lock().unwrap().push((ticket.clone(), bad));
        Ok(())
    }
    fn settle(&self) -> Result<()> {
        for (ticket, bad) in self.late.iter().flat_map(|late| std::mem::take(&mut *late.lock().unwrap())) {
            bad.map_or_else(|| ticket.pass(), |index| ticket.fail(index));
        }
        Ok(())
    }
    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }
    fn memory(&self) -> MemoryStats {
        self.inner.memory()
    }
    fn reset_peak(&self) {
        self.inner.reset_peak();
    }
    fn empty_cache(&self) {
        self.inner.empty_cache();
    }
}

fn counting() -> (Device, Arc<Counting>) {
    wrapped(None)
}

fn wrapped(late: Option<Mutex<Vec<(Arc<Ticket>, Option<i64>)>>>) -> (Device, Arc<Counting>) {
    let inner = taper::cpu().backend().clone();
    let info = DeviceInfo { name: "counting".into(), ..inner.info().clone() };
    let backend =
        Arc::new(Counting { info, inner, counts: Mutex::default(), unproven: AtomicUsize::new(0), late });
    (Device::new(backend.clone()), backend)
}

#[test]
fn it_computes_what_the_cpu_does() -> Result<()> {
    let (device, backend) = counting();
    let run = |d: &Device| -> Result<Vec<f32>> {
        let rng = Generator::seed(3, d);
        let x = Tensor::randn([20, 10], &rng)?;
        let w = Tensor::randn([10, 5], &rng)?.requires_grad();
        x.matmul(&w)?.relu().softmax(1)?.log().mean().backward()?;
        w.grad().unwrap().to_vec::<f32>()
    };
    assert_eq!(run(&device)?, run(&taper::cpu())?);
    assert!(backend.counts.lock().unwrap()["matmul"] >= 2);
    assert_eq!(format!("{}", Tensor::ones([1], &device)?), "tensor([1.], device=counting)");
    Ok(())
}

#[test]
fn a_chain_is_one_kernel_and_an_update_of_many_parameters_is_few() -> Result<()> {
    let (device, backend) = counting();
    let total = || backend.counts.lock().unwrap().values().sum::<usize>();
    let x = Tensor::from_vec(vec![1f32; 100], [100], &device)?;
    ((&x * 2.0 + 1.0).tanh().exp() - &x).sqrt().eval()?;
    assert_eq!(total(), 1);
    backend.counts.lock().unwrap().clear();
    let weights: Vec<Tensor> = (0..6)
        .map(|_| Tensor::from_vec(vec![1f32; 50], [50], &device)?.into_cell(true))
        .collect::<Result<_>>()?;
    for w in &weights {
        w.set_grad(Some(Tensor::from_vec(vec![0.5f32; 50], [50], &device)?));
    }
    let mut sgd = Sgd::new(weights.clone(), SgdConfig { lr: 0.1, momentum: 0.9, ..Default::default() });
    sgd.step()?;
    sgd.step()?;
    assert!(total() <= 4, "{:?}", backend.counts.lock().unwrap());
    assert!((weights[5].to_vec::<f32>()?[0] - (1.0 - 0.05 - 0.095)).abs() < 1e-6);
    Ok(())
}

#[test]
fn a_training_step_is_a_short_list_of_kernels() -> Result<()> {
    let (device, backend) = counting();
    let rng = Generator::seed(3, &device);
    let (fc1, fc2) = (Linear::new(16, 8, &rng)?, Linear::new(8, 4, &rng)?);
    let parameters = [fc1.parameters(), fc2.parameters()].concat();
    let mut sgd = Sgd::new(parameters, SgdConfig { lr: 0.1, ..Default::default() });
    let x = Tensor::randn([10, 16], &rng)?;
    let labels = Tensor::from_vec(vec![1i32; 10], [10], &device)?;
    for _ in 0..3 {
        backend.counts.lock().unwrap().clear();
        sgd.zero_grad();
        cross_entropy(&fc2.forward(&fc1.forward(&x)?.relu())?, &labels)?.backward()?;
        sgd.step()?;
    }
    let counts = backend.counts.lock().unwrap();
    // Two products forward, three backward.
    assert_eq!(counts["matmul"], 5, "{counts:?}");
    assert!(counts.values().sum::<usize>() <= 30, "{counts:?}");
    Ok(())
}

/// Labels from the host cost no check on the device, whatever is ignored among them; nor do those of an
/// operation.
#[test]
fn indices_known_to_be_in_range_are_launched_without_a_ticket() -> Result<()> {
    let (device, backend) = counting();
    let rng = Generator::seed(3, &device);
    let scores = Tensor::randn([6, 4], &rng)?.requires_grad();
    let of = |labels: &[i64]| Tensor::from_slice(labels, [labels.len()], &device);
    let computed = of(&[0, 1, 2, 3, 0, 1])?.reshape([6, 1])?.sum_axis(1, false)?;
    let cases = [
        ("plain", of(&[0, 1, 2, 3, 0, 1])?, true),
        ("some ignored", of(&[0, -100, 2, -100, 0, 1])?, true),
        ("narrower", of(&[0, 1, 2, 3, 0, 1])?.to_dtype(DType::U8)?, true),
        ("a slice", of(&[0, 1, 2, 3, 0, 1, 3, 3])?.narrow(0, 2, 6)?, true),
        ("argmax", scores.detach().argmax_axis(1, false)?, true),
        ("computed", computed, false),
    ];
    for (name, labels, known) in cases {
        labels.eval()?;
        backend.unproven.store(0, Ordering::Relaxed);
        scores.set_grad(None);
        let loss = cross_entropy(&scores, &labels)?;
        loss.backward()?;
        scores.grad().unwrap().eval()?;
        loss.eval()?;
        assert_eq!(backend.unproven.load(Ordering::Relaxed) == 0, known, "{name}");
    }
    Ok(())
}

/// A backend that finds a bad index only later: no model trains on it, and no other result gets the error.
#[test]
fn a_backend_may_tell_of_a_bad_index_late() -> Result<()> {
    let (device, backend) = wrapped(Some(Mutex::default()));
    let rng = Generator::seed(3, &device);
    let net = Linear::new(5, 3, &rng)?;
    let mut sgd = Sgd::new(net.parameters(), SgdConfig { lr: 0.1, momentum: 0.9, ..Default::default() });
    let x = Tensor::randn([4, 5], &rng)?;
    let values = |sgd: &Sgd| -> Result<Vec<Vec<f32>>> {
        let state = sgd.state_dict();
        let momenta = state.iter().filter_map(|(name, _)| state.tensor(name).cloned());
        let all = net.parameters().into_iter().chain(momenta);
        all.map(|tensor| tensor.to_vec::<f32>()).collect()
    };
    let labels = |last: i32| Tensor::from_vec(vec![0, 1, 2, last], [4, 1], &device)?.sum_axis(1, false);
    for round in 0..3 {
        let before = values(&sgd)?;
        sgd.zero_grad();
        let loss = cross_entropy(&net.forward(&x)?, &labels(3)?)?;
        loss.backward()?;
        let error = sgd.step().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { index: 3, size: 3, .. }), "{error}");
        assert!(error.to_string().contains("third_party.rs"), "{error}");
        assert_eq!(values(&sgd)?, before, "{round}");
        let told = |tensor: &Tensor| format!("{tensor}").contains("label 3 of 3 classes");
        assert!(told(&loss) && !told(&x));
        assert!(loss.item::<f32>().is_err() && loss.item::<f32>().is_err());
        sgd.zero_grad();
        cross_entropy(&net.forward(&x)?, &labels(0)?)?.backward()?;
        sgd.step()?;
        assert_ne!(values(&sgd)?, before, "{round}");
    }
    assert!(backend.unproven.load(Ordering::Relaxed) > 0);
    Ok(())
}

/// Each result of one kernel only has the errors of the inputs that it depends on.
#[test]
fn a_result_computed_beside_a_bad_one_is_good() -> Result<()> {
    let (device, _) = wrapped(Some(Mutex::default()));
    let x = Tensor::arange(0.0, 4.0, 1.0, &device)?;
    let index = Tensor::from_vec(vec![0, 1, 2, 4], [4, 1], &device)?.sum_axis(1, false)?;
    let bad = x.index_select(0, &index)?;
    bad.sum().eval().unwrap_err();
    let (innocent, both, worse) = (&x * 2.0, x.add(&bad)?, bad.mul_scalar(3.0));
    taper::eval_pending()?;
    assert_eq!(innocent.to_vec::<f32>()?, [0.0, 2.0, 4.0, 6.0]);
    for tensor in [both, worse] {
        assert!(matches!(tensor.eval().unwrap_err().kind(), ErrorKind::IndexOutOfRange { index: 4, .. }));
    }
    Ok(())
}

/// A wrapper that forgets to pass `settle` on must not make wrong values look right.
#[test]
fn a_check_that_is_never_settled_is_an_error() -> Result<()> {
    #[derive(Debug)]
    struct Forgetful(Arc<Counting>);
    impl Backend for Forgetful {
        fn info(&self) -> &DeviceInfo {
            self.0.info()
        }
        fn allocate(&self, dtype: DType, numel: usize) -> Result<Storage> {
            self.0.allocate(dtype, numel)
        }
        fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Storage> {
            self.0.upload(dtype, bytes)
        }
        fn download(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()> {
            self.0.inner.download(storage, start, out)
        }
        fn run(&self, launch: &Launch<'_>) -> Result<()> {
            self.0.run(launch)
        }
        fn synchronize(&self) -> Result<()> {
            Ok(())
        }
        fn memory(&self) -> MemoryStats {
            self.0.memory()
        }
        fn reset_peak(&self) {}
        fn empty_cache(&self) {}
    }
    let (_, backend) = wrapped(Some(Mutex::default()));
    let device = Device::new(Arc::new(Forgetful(backend)));
    let x = Tensor::arange(0.0, 4.0, 1.0, &device)?;
    let index = Tensor::from_vec(vec![1i32, 3], [2, 1], &device)?.sum_axis(1, false)?;
    let error = x.index_select(0, &index)?.to_vec::<f32>().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Backend { .. }), "{error}");
    assert!(error.to_string().contains("settle"), "{error}");
    Ok(())
}

/// The first test for the author of a backend. A form of a GPU's kernels tries a sixteenth of what is dealt
/// to it: the table of operations has the same functions.
#[test]
fn a_backend_is_held_to_the_reference() {
    let takes = |case: &str| {
        crate::common::drawn(case) && (crate::common::every_case() || (hash(case) >> 8).is_multiple_of(16))
    };
    let lacking = taper_testing::conformance_of(&crate::common::device(), &takes);
    // A GPU may lack what its language cannot do; it says so by name.
    let on_gpu = crate::common::device().name().starts_with("wgpu");
    assert!(lacking.is_empty() || on_gpu, "{lacking:?}");
}
