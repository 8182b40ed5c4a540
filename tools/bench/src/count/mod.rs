//! `--count`: the work that a device is given by one call of each case in the steady state, and the time
//! that GPUs are predicted to need. Kernels are recorded with those of a discrete GPU but do not run, so that
//! the counts are the same on every machine with a Vulkan adapter and every run.
//!
//! `table` reads, writes and compares the checked-in counts; `gpus` has the constants of the prediction.

mod gpus;
mod table;

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use taper::{Device, Tensor};

use self::table::Row;
use crate::{
    Result,
    args::Args,
    case::{Call, Case, time},
};

/// Calls before the counted one: pipelines, buffers and bind groups are made in these.
const WARM_UP: usize = 12;

/// The counted cases.
const CASES: &[&str] = &[
    "matmul_1024",
    "matmul_nn_64x784x128",
    "more_matmul_1x1024x1024",
    "sum_axis0_4096",
    "sum_axis1_4096",
    "softmax_4096x1000",
    "layer_norm_4096x1024",
    "more_layer_norm_fwd_bwd",
    "batch_norm_8x64x56x56_fwd_bwd",
    "more_cross_entropy_fwd_bwd_1024x1000",
    "more_embedding_fwd_bwd_50000x256",
    "more_cumsum_axis0_4096",
    "more_sort_1M",
    "more_topk10_64x50000",
    "more_topk50_1M",
    "conv2d_fwd_bwd",
    "max_pool2d",
    "attention_4x8x512x64",
    "attention_causal_4x8x512x64_fwd_bwd",
    "lstm_64x32_128_256_fwd_bwd",
    "small_add_batch",
    "more_sgd_momentum_20x256x256",
    "adamw_step_5M",
    "simplenet_step_64",
    "mnist_cnn_step_64",
    "resnet20_step_32",
    "gpt_step_8x128",
    "gpt_generate_64_tokens_kv_cache",
    "smollm2_token_q4_1",
];

/// Counts the cases that the filters let through, and prints, checks or writes the table.
pub(crate) fn run(args: &Args, cases: Vec<Case>) -> Result<()> {
    let device = device(&args.device)?;
    let counted: Vec<&Case> =
        CASES.iter().filter_map(|name| cases.iter().find(|case| case.name == *name)).collect();
    if counted.is_empty() {
        return Err(format!("--count counts none of these cases; it counts\n  {}", CASES.join("\n  ")).into());
    }
    let named = |case: &Case, error| format!("{}: {error}", case.name);
    if args.host {
        println!("case\thost_us\tdispatches\tus_a_dispatch");
        for case in counted {
            println!(
                "{}",
                host_time(case, &device, Duration::from_secs_f64(args.budget))
                    .map_err(|error| named(case, error))?
            );
        }
        return Ok(());
    }
    let mut rows = Vec::new();
    for &case in &counted {
        rows.push(count(case, &device).map_err(|error| named(case, error))?);
    }
    if args.write {
        table::write(&rows)?;
    } else if args.check {
        table::check(&rows)?;
    } else {
        print!("{}", table::text(&rows));
    }
    if args.launches {
        for case in &counted {
            print!("{}", launches(case, &device).map_err(|error| named(case, error))?);
        }
    }
    if args.kernels {
        for (case, row) in counted.iter().zip(&rows) {
            print!("{}{}", row.by_kernel(), by_line(case, &device).map_err(|error| named(case, error))?);
        }
    }
    Ok(())
}

/// The adapter that `--device` names, or the first one, as a device that records the kernels of a discrete
/// GPU and runs none.
fn device(name: &str) -> Result<Device> {
    let index = match name.split_once(':') {
        Some((_, index)) => index.parse().map_err(|_| format!("--device {name}: wgpu:N is expected"))?,
        None => 0,
    };
    let forced = backend_wgpu::Forced { hardware: true, dry: true, ..Default::default() };
    // Without a cache on disk: it would make the counts depend on former runs.
    let options = backend_wgpu::Options { cache_dir: None, forced, ..Default::default() };
    Ok(backend_wgpu::open(index, &options)?)
}

/// A line with the median time of the host for a call of a case, until the device has finished, which has
/// nothing to do.
fn host_time(case: &Case, device: &Device, budget: Duration) -> Result<String> {
    let (mut call, _) = case.counted(device)?;
    let median = time(device, &mut call, 10..=100_000, budget)?.0.median() * 1e3;
    let dispatches = count(case, device)?.counts.dispatches;
    Ok(format!("{}\t{median:.0}\t{dispatches}\t{:.2}", case.name, median / dispatches.max(1) as f64))
}

/// A case's call after those that warm up, the results of the last one, and the least bytes of a call.
fn warmed_up(case: &Case, device: &Device) -> Result<(Call, Vec<Tensor>, Option<u64>)> {
    let (mut call, least_bytes) = case.counted(device)?;
    let mut last = Vec::new();
    for _ in 0..WARM_UP {
        once(&mut call, &mut last)?;
        device.synchronize()?;
    }
    Ok((call, last, least_bytes))
}

/// The counts of a case's call after those that warm up.
fn count(case: &Case, device: &Device) -> Result<Row> {
    let (mut call, mut last, least_bytes) = warmed_up(case, device)?;
    let ((), counts) = backend_wgpu::counted(device, || once(&mut call, &mut last))?;
    drop((call, last));
    device.empty_cache();
    Ok(Row { case: case.name.clone(), counts, least_bytes })
}

/// The profile of a case's call after those that warm up.
fn profiled(case: &Case, device: &Device) -> Result<taper::inspect::Profile<()>> {
    let (mut call, mut last, _) = warmed_up(case, device)?;
    Ok(taper::inspect::profile(|| once(&mut call, &mut last))?)
}

/// The launches of a case's call, in order.
fn launches(case: &Case, device: &Device) -> Result<String> {
    let profile = profiled(case, device)?;
    let mut text = format!("{}\n", case.name);
    for (number, run) in profile.runs.iter().enumerate() {
        let (space, bytes) = (&run.space, run.bytes_read + run.bytes_written);
        let (file, line) = (run.location.file(), run.location.line());
        let (kernel, op) = (run.kernel, run.op);
        let _ =
            writeln!(text, "{number}: {kernel} for {op} over {space}, {} KiB, {file}:{line}", bytes / 1024);
        for instruction in run.program.iter().flat_map(|program| program.lines()) {
            let _ = writeln!(text, "    {instruction}");
        }
    }
    Ok(text)
}

/// The launches of a case's call by kernel, operation and line, those with the most bytes first.
fn by_line(case: &Case, device: &Device) -> Result<String> {
    let profile = profiled(case, device)?;
    let mut lines: BTreeMap<(&str, &str, String), (u64, u64)> = BTreeMap::new();
    for run in &profile.runs {
        let place = format!("{}:{}", run.location.file(), run.location.line());
        let (launches, bytes) = lines.entry((run.kernel, run.op, place)).or_default();
        *launches += 1;
        *bytes += run.bytes_read + run.bytes_written;
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by_key(|(_, (_, bytes))| std::cmp::Reverse(*bytes));
    let mut text = String::new();
    for ((kernel, op, place), (launches, bytes)) in lines {
        let _ = writeln!(text, "    {kernel:<16} {op:<16} {launches:>6} {:>10} KiB  {place}", bytes / 1024);
    }
    Ok(text)
}

/// A call, after the results of the former one are dropped, as when the call is timed.
fn once(call: &mut Call, last: &mut Vec<Tensor>) -> taper::Result<()> {
    last.clear();
    *last = call()?;
    Ok(())
}
