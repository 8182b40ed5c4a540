//! The list of devices, memory budgets, and moving structures of tensors with one call.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use taper::{ErrorKind, prelude::*};
use taper_testing::reference;

use crate::common::{device, of};

#[test]
fn what_is_available_can_be_opened() {
    for info in taper::devices() {
        assert!(taper::is_available(&info.name), "{info}");
        assert!(info.to_string().starts_with(&format!("{}: ", info.name)), "{info}");
    }
    for kind in ["cpu", "wgpu"] {
        let count = taper::device_count(kind);
        assert_eq!(count > 0, taper::is_available(kind));
        assert!(!taper::is_available(&format!("{kind}:{count}")));
        assert!(taper::device(&format!("{kind}:{count}")).is_err());
    }
    assert!(taper::is_available(" CPU ") && taper::is_available("cpu:0") && taper::is_available("auto"));
    for unknown in ["", "cuda", "cpu:x", "wgpu:", "wgpu:-1", "auto:0", "cpu:0:0", "cpu:1"] {
        assert!(!taper::is_available(unknown) && taper::device(unknown).is_err(), "{unknown:?}");
    }
}

/// A device of the kind under test that no other test uses.
fn own_device() -> Result<Device> {
    let shared = device();
    match shared.name().split_once(':') {
        Some(("wgpu", index)) => {
            backend_wgpu::open(index.parse().unwrap(), &backend_wgpu::Options::from_env()?)
        }
        _ => Ok(Device::new(Arc::new(backend_cpu::CpuBackend::new()))),
    }
}

#[test]
fn a_budget_holds_from_when_it_is_set() -> Result<()> {
    const MIB: u64 = 1 << 20;
    let d = own_device()?;
    let before = d.memory().limit;
    let kept = of(&vec![1.0; 1 << 18], &[1 << 18], DType::F32, &d)?;
    kept.eval()?;
    // A limit below the memory in use is refused, and nothing changes.
    let error = d.set_memory_limit(1000).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Invalid { op: "set_memory_limit", .. }), "{error}");
    assert!(
        error.to_string().contains("drop tensors first") && error.to_string().contains("devices.rs"),
        "{error}"
    );
    assert_eq!(d.memory().limit, before);
    // Memory that is only cached is freed.
    drop(of(&vec![1.0; 1 << 20], &[1 << 20], DType::F32, &d)?);
    d.synchronize()?;
    let limit = 8 * MIB;
    d.set_memory_limit(limit)?;
    assert_eq!(d.memory().limit, Some(limit));
    assert!(d.memory().to_string().contains("limit 8.00 MiB"), "{}", d.memory());
    let huge = Tensor::full([4 << 20], 1.0, &d)?;
    let error = huge.eval().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OutOfMemory { limit: Some(l), .. } if *l == limit), "{error}");
    assert_eq!(kept.sum().item_f64()?, f64::from(1 << 18));
    // The same tensor is computed when there is enough memory.
    d.set_memory_limit(64 * MIB)?;
    assert_eq!(huge.mean().item_f64()?, 1.0);
    d.set_memory_limit(None)?;
    assert_eq!(d.memory().limit, None);
    huge.eval()
}

#[test]
fn a_backend_without_budgets_says_so() {
    let error = reference().set_memory_limit(1 << 30).unwrap_err();
    assert!(error.to_string().contains("reference"), "{error}");
}

/// A user's own batch: tensors, numbers, and a field that is not `ToDevice`.
#[derive(ToDevice)]
struct Batch<T: ToDevice> {
    images: Tensor,
    boxes: Vec<(Tensor, f64)>,
    masks: Option<Tensor>,
    named: BTreeMap<String, [Tensor; 2]>,
    extra: T,
    #[to_device(skip)]
    origin: PathBuf,
}

#[derive(ToDevice)]
struct Pair(Tensor, usize);

#[derive(ToDevice)]
enum Target {
    Class(Tensor),
    Boxes { corners: Tensor, count: usize },
    Nothing,
}

#[test]
fn what_is_made_of_tensors_moves_as_one() -> Result<()> {
    let (here, there) = (reference(), device());
    let x = of(&[1.0, 2.0], &[2], DType::F32, &here)?;
    let batch = Batch {
        images: x.clone(),
        boxes: vec![(&x * 2.0, 0.5), (&x * 3.0, 0.25)],
        masks: Some(&x * 4.0),
        named: BTreeMap::from([("a".to_string(), [x.clone(), &x * 5.0])]),
        extra: Pair(&x * 6.0, 7),
        origin: "somewhere".into(),
    };
    let moved = batch.to(&there)?;
    let named = &moved.named["a"];
    let all = [&moved.images, &moved.boxes[1].0, moved.masks.as_ref().unwrap(), &named[1], &moved.extra.0];
    for (tensor, factor) in all.into_iter().zip([1.0, 3.0, 4.0, 5.0, 6.0]) {
        assert_eq!(tensor.device(), there);
        assert_eq!(tensor.to_vec::<f32>()?, [factor, 2.0 * factor]);
    }
    assert_eq!((moved.boxes[1].1, moved.extra.1, moved.origin), (0.25, 7, batch.origin.clone()));
    // The originals are where they were.
    assert!(batch.images.device() == here && batch.extra.0.device() == here);

    let targets = vec![Target::Class(x.clone()), Target::Boxes { corners: x, count: 3 }, Target::Nothing];
    for target in targets.to(&there)? {
        match target {
            Target::Class(tensor) | Target::Boxes { corners: tensor, count: 3 } => {
                assert_eq!(tensor.device(), there);
            }
            Target::Boxes { count, .. } => panic!("{count}"),
            Target::Nothing => {}
        }
    }
    Ok(())
}

#[test]
fn two_devices_in_one_collection_do_not_mix() -> Result<()> {
    let (here, there) = (reference(), device());
    let both = (Tensor::ones(2, &here)?, Tensor::ones(2, &there)?);
    for error in [both.0.add(&both.1).unwrap_err(), Tensor::concat(&[&both.0, &both.1], 0).unwrap_err()] {
        let text = error.to_string();
        assert!(matches!(error.kind(), ErrorKind::DeviceMismatch { .. }), "{text}");
        assert!(
            text.contains(here.name()) && text.contains(there.name()) && text.contains(".to(&device)"),
            "{text}"
        );
    }
    let both = both.to(&there)?;
    assert_eq!(both.0.add(&both.1)?.to_vec::<f32>()?, [2.0; 2]);
    Ok(())
}

#[test]
fn a_line_is_explained_and_profiled_on_its_device() -> Result<()> {
    let d = device();
    let x = Tensor::ones([64, 32], &d)?;
    x.eval()?;
    let y = ((&x * 2.0).exp() + 1.0).sum();
    let explanation = taper::explain(&y)?;
    let text = explanation.to_string();
    assert_eq!(explanation.plan.kernels.len(), 1, "{text}");
    assert!(text.contains("devices.rs") && text.contains(&format!("on {d}")), "{text}");
    assert_eq!((explanation.bytes_read(), explanation.bytes_written()), (64 * 32 * 4, 4));
    // A GPU compiles text, and the CPU none.
    let sources = explanation.sources();
    assert_eq!(!sources[0].is_empty(), d.name().starts_with("wgpu"));
    assert!(sources[0].iter().all(|source| source.contains("@compute")), "{sources:?}");
    assert!(!y.is_evaluated());

    // Pending tensors are computed before; the profile also has the kernels of other tests.
    let profiled = taper::profile(|| ((&x * 2.0).exp() + 1.0).sum().item::<f32>())?;
    let line = line!() - 1;
    assert!(y.is_evaluated());
    let ours = profiled
        .runs
        .iter()
        .find(|run| run.location.line() == line && run.location.file().ends_with("devices.rs"));
    let run = ours.unwrap_or_else(|| panic!("{profiled}"));
    let flops = explanation.plan.kernels[0].kernel.flops();
    assert_eq!((run.device.as_str(), run.bytes_read, run.flops), (d.name(), 64 * 32 * 4, flops));
    Ok(())
}
