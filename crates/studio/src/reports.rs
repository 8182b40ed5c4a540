//! The reports of `inspect` and the layers of a model as events. Every number is a field or a result of
//! `inspect`'s own functions.

use std::{collections::HashMap, time::Duration};

use inspect::{
    Explanation, Graph, KernelRun, LayerCost, MemoryLine, MemorySnapshot, Profile, device_limits,
    memory_peaks,
};
use nn::Module;
use serde_json::{Value, json};
use tensor_core::{Device, Result, Tensor};

use crate::{
    aside::Aside,
    record::{Kind, MAX_NAMES, is_recording, with},
};

fn push(event: &Value) {
    with(|record| record.push(Kind::Report, event));
}

/// The greatest number of events of the host that a profile shows.
const MAX_HOST_EVENTS: usize = 20_000;

/// Shows the kernels of a step: the timeline of devices and host, the rows of the table that [`Profile`]
/// prints, and the times of the layers of the models that [`show_model`] has shown.
pub fn show_profile<T>(profile: &Profile<T>, step: u64) {
    if !is_recording() {
        return;
    }
    let _aside = Aside::begin();
    // Nanoseconds are whole numbers, and JSON keeps those.
    let nanos = |time: Duration| time.as_nanos() as u64;
    let mut programs = Programs::default();
    let runs: Vec<Value> = profile
        .runs
        .iter()
        .map(|run| {
            json!({"program": programs.number(run), "waited": run.waited, "device": run.device, "kernel": run.kernel, "op": run.op, "line": run.location.to_string(),
                   "start": nanos(run.start), "time": nanos(run.time), "submission": nanos(run.submission),
                   "space": run.space.to_string(), "read": run.bytes_read, "written": run.bytes_written,
                   "flops": run.flops})
        })
        .collect();
    let lines: Vec<Value> = profile
        .lines()
        .iter()
        .map(|line| {
            json!({"device": line.run.device, "kernel": line.run.kernel, "op": line.run.op,
                   "line": line.run.location.to_string(), "runs": line.count, "time": nanos(line.time),
                   "bytes": line.bytes, "flops": line.flops})
        })
        .collect();
    let plans: Vec<Value> = profile
        .plans
        .iter()
        .take(MAX_HOST_EVENTS)
        .map(|plan| {
            json!({"device": plan.device, "start": nanos(plan.start), "time": nanos(plan.time), "nodes": plan.nodes,
                   "new": plan.is_new})
        })
        .collect();
    let built: Vec<Value> = profile
        .built
        .iter()
        .take(MAX_HOST_EVENTS)
        .map(|node| {
            json!({"op": node.op, "line": node.location.to_string(), "start": nanos(node.time),
                   "gradient": node.gradient_of.is_some()})
        })
        .collect();
    let names = with(|record| record.names.clone()).unwrap_or_default();
    let cost = |cost: &LayerCost| json!({"runs": cost.runs, "time": nanos(cost.time), "written": cost.bytes_written, "flops": cost.flops});
    let layers: Vec<Value> = profile
        .layers_by_id(&names)
        .iter()
        .map(|row| {
            json!({"layer": row.layer, "forward": cost(&row.forward), "backward": cost(&row.backward),
                   "update": cost(&row.update)})
        })
        .collect();
    push(
        &json!({"kind": "profile", "step": step, "time": nanos(profile.time()), "runs": runs, "lines": lines,
                 "plans": plans, "built": built, "layers": layers, "programs": programs.list}),
    );
}

/// The programs of kernels and the sources that devices compile for them, each once.
#[derive(Default)]
struct Programs<'a> {
    list: Vec<Value>,
    numbers: HashMap<(Option<&'a str>, &'a [String]), usize>,
}

impl<'a> Programs<'a> {
    /// The place of a kernel's program in the list; `None` for a kernel that has neither.
    fn number(&mut self, run: &'a KernelRun) -> Option<usize> {
        if run.program.is_none() && run.sources.is_empty() {
            return None;
        }
        let key = (run.program.as_deref(), &*run.sources);
        Some(*self.numbers.entry(key).or_insert_with(|| {
            self.list.push(json!({"program": run.program, "sources": *run.sources}));
            self.list.len() - 1
        }))
    }
}

/// Measures the limits of a device, [`device_limits`], and shows the kernels of profiles as parts of them. It
/// takes some tenths of a second. A button of the page does it for the devices of the shown models.
///
/// # Errors
/// The errors of [`device_limits`].
#[track_caller]
pub fn show_limits(device: &Device) -> Result<()> {
    if !is_recording() {
        return Ok(());
    }
    let _aside = Aside::begin();
    let found = device_limits(device)?;
    push(&json!({"kind": "limits", "device": device.name(), "bytes": found.bytes_per_second,
                 "flops": found.flops_per_second}));
    Ok(())
}

/// Shows the kernels that compute a tensor: which operations each fuses and why not more, its costs, its
/// program, and the source that the device compiles.
pub fn show_explanation(name: &str, explanation: &Explanation) {
    if !is_recording() {
        return;
    }
    let _aside = Aside::begin();
    let kernels: Vec<Value> = explanation
        .plan
        .kernels
        .iter()
        .zip(explanation.sources())
        .map(|(planned, sources)| {
            let kernel = &planned.kernel;
            let operations: Vec<Value> = planned
                .operations
                .iter()
                .map(|operation| {
                    json!({"name": operation.name, "shape": operation.shape.to_string(),
                           "dtype": operation.dtype.to_string(), "stored": operation.stored,
                           "because": operation.stored_because.map(|reason| reason.to_string()),
                           "line": operation.location.to_string()})
                })
                .collect();
            json!({"name": kernel.name(), "device": planned.device.name(), "space": kernel.space.to_string(),
                   "read": kernel.bytes_read(), "written": kernel.bytes_written(), "flops": kernel.flops(),
                   "allocates": planned.allocates, "operations": operations,
                   "separate": planned.separation.map(|reason| reason.to_string()),
                   "program": kernel.body.program().map(|program| program.text(&planned.scalars)),
                   "sources": sources})
        })
        .collect();
    push(&json!({"kind": "explanation", "name": name, "text": explanation.to_string(),
                 "read": explanation.bytes_read(), "written": explanation.bytes_written(),
                 "flops": explanation.flops(), "allocates": explanation.allocates(), "kernels": kernels}));
}

/// Shows the lines of the program that hold memory, with the tensors of each, and those that held it at the
/// peak of each device.
pub fn show_memory(snapshot: &MemorySnapshot, step: u64) {
    if !is_recording() {
        return;
    }
    let _aside = Aside::begin();
    let devices: Vec<Value> = snapshot
        .devices
        .iter()
        .map(|device| {
            json!({"device": device.device, "allocated": device.stats.allocated, "reserved": device.stats.reserved,
                   "peak": device.stats.peak, "elsewhere": device.elsewhere})
        })
        .collect();
    let peaks: Vec<Value> = memory_peaks()
        .unwrap_or_default()
        .iter()
        .map(|peak| {
            json!({"device": peak.device, "allocated": peak.allocated, "elsewhere": peak.elsewhere,
                   "lines": memory_lines(&peak.lines)})
        })
        .collect();
    push(&json!({"kind": "memory", "step": step, "lines": memory_lines(&snapshot.lines), "devices": devices,
                 "peaks": peaks}));
}

fn memory_lines(lines: &[MemoryLine]) -> Vec<Value> {
    let kinds = |line: &MemoryLine| -> Vec<Value> {
        let kinds = line.kinds.iter().map(|kind| {
            json!({"op": kind.op, "dtype": kind.dtype.to_string(), "shape": kind.shape.to_string(),
                   "bytes": kind.bytes, "buffers": kind.buffers})
        });
        kinds.collect()
    };
    let lines = lines.iter().map(|line| {
        json!({"line": line.location.to_string(), "device": line.device, "bytes": line.bytes,
               "buffers": line.buffers, "kinds": kinds(line)})
    });
    lines.collect()
}

/// Shows the parameters and buffers of a model as a tree of layers, and makes the memory of their devices a
/// curve of [`step`](crate::step). Parameters that have no gradient in the first ten of these steps are shown
/// as such, and are a trouble.
pub fn show_model(name: &str, model: &impl Module) {
    if !is_recording() {
        return;
    }
    let entry = |role: &str, (path, tensor): &(String, Tensor)| {
        json!({"path": path, "role": role, "shape": tensor.shape().to_string(), "dtype": tensor.dtype().to_string(),
               "device": tensor.device().name(), "numel": tensor.numel(), "trained": tensor.is_tracked(),
               "bytes": tensor.numel() * tensor.dtype().size()})
    };
    let (parameters, buffers) = (model.named_parameters(), model.named_buffers());
    let entries: Vec<Value> = parameters
        .iter()
        .map(|named| entry("parameter", named))
        .chain(buffers.iter().map(|named| entry("buffer", named)))
        .collect();
    let event =
        json!({"kind": "model", "name": name, "entries": entries, "parameters": model.num_parameters()});
    with(|record| {
        if record.names.len() + parameters.len() + buffers.len() > MAX_NAMES {
            // The names are of models that were shown before.
            record.names.clear();
        }
        record.watched.parameters.retain(|(model, _, _)| model != name);
        for (path, tensor) in parameters.iter().filter(|(_, tensor)| tensor.is_tracked()) {
            if record.watched.parameters.len() < MAX_NAMES {
                record.watched.parameters.push((name.to_string(), path.clone(), tensor.clone()));
                record.watched.steps = 0;
            }
        }
        for (path, tensor) in parameters.iter().chain(&buffers) {
            record.names.insert(tensor.id(), path.clone());
            let device = tensor.device();
            if !record.devices.contains(&device) {
                record.devices.push(device.clone());
            }
        }
        record.push(Kind::Report, &event);
    });
}

/// The greatest number of nodes of a graph that the page shows.
const MAX_GRAPH_NODES: usize = 20_000;

/// Shows a graph folded by layer: each layer is a box that opens to its parts. Its first 20 000 nodes are
/// shown. Build the graph after [`serve`](crate::serve) or [`record`](crate::record), so that calls of layers
/// are known, and give [`Graph::of`] the names of the model's parameters.
pub fn show_graph(name: &str, graph: &Graph) {
    if !is_recording() {
        return;
    }
    let _aside = Aside::begin();
    let nodes: Vec<Value> = graph
        .nodes
        .iter()
        .take(MAX_GRAPH_NODES)
        .map(|node| {
            json!({"title": node.title(), "form": node.form(), "kind": node.kind.name(), "output": node.is_output,
                   "line": format!("{}:{}", node.location.0, node.location.1), "inputs": node.inputs,
                   "layer": node.layer, "call": node.call})
        })
        .collect();
    let calls: Vec<Value> = graph
        .calls
        .iter()
        .map(|call| json!({"layer": call.layer, "type": call.kind, "outer": call.is_outer}))
        .collect();
    push(&json!({"kind": "graph", "name": name, "nodes": nodes, "calls": calls}));
}

/// Adds the norms of every parameter and of its gradient to the curves `weights/…` and `gradients/…`, and
/// reports gradients that explode. It reads them all from the device: call it every hundred steps or so.
///
/// # Errors
/// The errors of the computation.
#[track_caller]
pub fn weights(model: &impl Module, step: u64) -> Result<()> {
    if !is_recording() {
        return Ok(());
    }
    let _aside = Aside::begin();
    let norm = |tensor: &Tensor| -> Result<f64> {
        Ok(tensor.detach().to_f64_vec()?.iter().map(|value| value * value).sum::<f64>().sqrt())
    };
    for (name, tensor) in model.named_parameters() {
        let weight = norm(&tensor)?;
        let gradient = tensor.grad().map(|gradient| norm(&gradient)).transpose()?;
        with(|record| {
            let current = record.current_run();
            record.scalar(&current, &format!("weights/{name}"), weight, step);
            if let Some(gradient) = gradient {
                record.scalar(&current, &format!("gradients/{name}"), gradient, step);
                let run = record.run(&current);
                record.look_at_gradient(run, &name, gradient, step);
            }
        });
    }
    Ok(())
}

/// Counts the units of an activation `[N, C, …]` that are 0 for the whole batch, adds their share to the
/// curve `dead units/NAME`, and reports a share above a half.
///
/// # Errors
/// Fewer than two dimensions; the errors of the computation.
#[track_caller]
pub fn activations(name: &str, values: &Tensor, step: u64) -> Result<()> {
    if !is_recording() {
        return Ok(());
    }
    let _aside = Aside::begin();
    let shape = values.shape().dims().to_vec();
    let [_, units, inner @ ..] = shape.as_slice() else {
        let message = format!("expected [N, C, …], got {}", values.shape());
        return Err(tensor_core::Error::invalid("studio::activations", message));
    };
    let (units, inner) = (*units, inner.iter().product::<usize>().max(1));
    let mut alive = vec![false; units];
    for (k, value) in values.detach().to_f64_vec()?.iter().enumerate() {
        if *value != 0.0 {
            alive[k / inner % units] = true;
        }
    }
    let dead = alive.iter().filter(|alive| !**alive).count();
    let share = dead as f64 / units.max(1) as f64;
    with(|record| {
        let current = record.current_run();
        record.scalar(&current, &format!("dead units/{name}"), share, step);
        if share > 0.5 {
            record.trouble(
                format!("dead {current} {name}"),
                step,
                &format!("{dead} of {units} units of {name} are dead"),
                "They are 0 for every item of the batch, so they get no gradient through a ReLU.",
                "Lower the learning rate, try leaky_relu or gelu, or check the initialization.",
            );
        }
    });
    Ok(())
}
