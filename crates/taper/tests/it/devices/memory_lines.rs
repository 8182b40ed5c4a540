//! Which lines of a program hold memory, and what a device keeps free.
#![allow(clippy::unwrap_used)]

use crate::common::device;
use taper::{ErrorKind, memory_snapshot, memory_summary, prelude::*, record_memory};

const MIB: u64 = 1 << 20;

/// The snapshot's entry for a line of this file: bytes, buffers, and its kinds in words.
fn line(number: u32) -> Result<Option<(u64, usize, String)>> {
    let snapshot = memory_snapshot()?;
    let here = snapshot.lines.iter().filter(|l| l.location.file() == file!() && l.location.line() == number);
    let told: Vec<_> = here.collect();
    assert!(told.len() < 2, "{snapshot}");
    Ok(told.first().map(|l| {
        assert_eq!(l.device, device().name());
        let words =
            |k: &taper::inspect::MemoryKind| format!("{} x {} {} {}", k.buffers, k.op, k.dtype, k.shape);
        (l.bytes, l.buffers, l.kinds.iter().map(words).collect::<Vec<_>>().join(", "))
    }))
}

#[test]
fn live_tensors_are_told_by_the_line_that_made_them() -> Result<()> {
    if taper_testing::run_alone(live_tensors_are_told_by_the_line_that_made_them) {
        return Ok(());
    }
    let d = device();
    let error = memory_snapshot().unwrap_err();
    assert!(
        error.to_string().contains("record_memory(true)") && error.to_string().contains("memory_lines.rs")
    );
    let before = Tensor::from_vec(vec![0f32; 1 << 18], [1 << 18], &d)?;
    before.eval()?;
    record_memory(true);
    let (x, of_x) = (Tensor::from_vec(vec![1f32; 1 << 20], [1024, 1024], &d)?, line!());
    x.eval()?;
    assert_eq!(line(of_x)?, Some((4 * MIB, 1, "1 x leaf f32 [1024, 1024]".into())));
    // A view of a buffer is not another buffer, and what waits holds none.
    let view = x.t()?;
    view.eval()?;
    let (waiting, of_waiting) = (&x + 1.0, line!());
    assert_eq!((line(of_waiting)?, line(of_x)?.unwrap().1), (None, 1));
    waiting.eval()?;
    assert_eq!(line(of_waiting)?, Some((4 * MIB, 1, "1 x add f32 [1024, 1024]".into())));
    // A buffer that only a view holds is still there.
    drop((x, waiting));
    assert_eq!(line(of_waiting)?, None);
    let told = memory_snapshot()?;
    assert_eq!(told.lines.iter().map(|l| l.bytes).sum::<u64>(), 4 * MIB, "{told}");
    assert_eq!(told.lines[0].kinds[0].op, "permute");
    drop(view);
    assert!(memory_snapshot()?.lines.is_empty());

    // Parameters are of the line that made them, however often they were assigned since; gradients of the
    // line that they are of.
    let rng = Generator::seed(0, &d);
    let (layer, of_layer) = (Linear::new(256, 512, &rng)?, line!());
    let x = Tensor::ones([4, 256], &d)?;
    let mut sgd = Sgd::new(layer.parameters(), SgdConfig { lr: 0.1, momentum: 0.9, ..Default::default() });
    let mut of_loss = 0;
    for _ in 0..3 {
        sgd.zero_grad();
        let (loss, number) = (layer.forward(&x)?.powi(2).sum(), line!());
        loss.backward()?;
        sgd.step()?;
        of_loss = number;
    }
    let (bytes, buffers, kinds) = line(of_layer)?.unwrap();
    assert_eq!((bytes, buffers), ((256 * 512 + 512) * 4, 2), "{kinds}");
    assert!(kinds.contains("1 x parameter f32 [512, 256], 1 x parameter f32 [512]"), "{kinds}");
    let (bytes, _, kinds) = line(of_loss)?.unwrap();
    assert!(bytes >= (256 * 512 + 512) * 4 && kinds.contains("[512, 256]"), "{kinds}");
    let snapshot = memory_snapshot()?;
    assert!(snapshot.lines.is_sorted_by(|a, b| a.bytes >= b.bytes));
    // All that is allocated is in a line, or from before.
    let told: u64 = snapshot.lines.iter().map(|l| l.bytes).sum();
    assert_eq!(snapshot.devices.len(), 1);
    let own = &snapshot.devices[0];
    assert_eq!(own.elsewhere + told, own.stats.allocated);
    assert!((MIB..MIB + 4096).contains(&own.elsewhere), "{snapshot}");
    let text = snapshot.to_string();
    assert!(text.contains("memory_lines.rs:") && text.contains("parameter f32 [512, 256]"), "{text}");

    record_memory(false);
    assert!(matches!(
        memory_snapshot().unwrap_err().kind(),
        ErrorKind::Invalid { op: "memory_snapshot", .. }
    ));
    record_memory(true);
    assert!(memory_snapshot()?.lines.is_empty());
    record_memory(false);
    Ok(())
}

#[test]
fn a_summary_has_the_cache_by_size() -> Result<()> {
    if taper_testing::run_alone(a_summary_has_the_cache_by_size) {
        return Ok(());
    }
    let d = device();
    d.empty_cache();
    let made: Vec<Tensor> =
        (0..3).map(|_| Tensor::from_vec(vec![0f32; 1 << 18], [1 << 18], &d)).collect::<Result<_>>()?;
    d.synchronize()?;
    let count = |d: &Device| {
        let found = memory_summary(d).free.into_iter().find(|size| size.bytes == MIB);
        found.map_or(0, |size| size.count)
    };
    assert_eq!(count(&d), 0);
    drop(made);
    d.synchronize()?;
    let summary = memory_summary(&d);
    assert_eq!((count(&d), summary.device.as_str()), (3, d.name()));
    assert!(summary.free.is_sorted_by(|a, b| a.bytes < b.bytes));
    let cached: u64 = summary.free.iter().map(|size| size.bytes * size.count as u64).sum();
    assert!(cached <= summary.stats.reserved - summary.stats.allocated, "{summary}");
    assert!(summary.to_string().contains("1.00 MiB        3   3.00 MiB"), "{summary}");
    d.empty_cache();
    assert!(memory_summary(&d).free.is_empty());
    Ok(())
}
