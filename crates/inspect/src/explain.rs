//! [`explain`]: how a tensor is computed, in one call.

use std::fmt::{self, Write};

use tensor_core::{
    PlanReport, PlannedKernel, Result, Tensor, backend::readable_bytes, kernel::Body, plan_of,
};

/// A tensor, how it was made, and what computing it takes. It prints as a page; its numbers are fields of
/// [`Explanation::plan`].
#[derive(Debug)]
pub struct Explanation {
    /// The tensor.
    pub tensor: Tensor,
    /// The kernels and copies that computing it takes, or would take again.
    pub plan: PlanReport,
}

/// Explains how a tensor was made, which kernels compute it, the computation, costs and allocations of each,
/// and the source lines that they come from; why each stored result is stored, and why a kernel that reads
/// another one's result is not a part of it. Nothing is computed.
///
/// For a pending tensor, it is the plan that will run. For an evaluated one, it is the plan that would
/// compute it again from its inputs. A tracked tensor keeps its inputs; any other tensor loses them when it
/// is evaluated, so call this before reading values.
///
/// ```
/// use inspect::explain;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let x = Tensor::ones([1000, 1000], &device)?;
/// x.eval()?;
/// let y = ((&x + 2.0).powi(2) + 3.0).mean();
/// let explanation = explain(&y)?;
/// println!("{explanation}");
/// // One kernel reads x once, and sums while it reads.
/// assert_eq!(explanation.plan.kernels.len(), 1);
/// assert_eq!(explanation.bytes_read(), 4_000_000);
/// assert_eq!(explanation.allocates(), 4);
/// # Ok(()) }
/// ```
///
/// # Errors
/// A graph that cannot be planned.
#[track_caller]
pub fn explain(tensor: &Tensor) -> Result<Explanation> {
    Ok(Explanation { tensor: tensor.clone(), plan: plan_of(tensor)? })
}

impl Explanation {
    /// The bytes that all kernels read.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.plan.kernels.iter().map(|kernel| kernel.kernel.bytes_read()).sum()
    }

    /// The bytes that all kernels write.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.plan.kernels.iter().map(|kernel| kernel.kernel.bytes_written()).sum()
    }

    /// The arithmetic of all kernels, in additions; external kernels, which do not report theirs, are left
    /// out.
    #[must_use]
    pub fn flops(&self) -> u64 {
        self.plan.kernels.iter().filter_map(|kernel| kernel.kernel.flops()).sum()
    }

    /// The bytes of new buffers, including those that are freed again during the computation.
    #[must_use]
    pub fn allocates(&self) -> u64 {
        self.plan.kernels.iter().map(|kernel| kernel.allocates).sum()
    }

    /// The source texts that the device compiles for each kernel (WGSL, on a GPU), in the order of the
    /// kernels; empty if it compiles none.
    #[must_use]
    pub fn sources(&self) -> Vec<Vec<String>> {
        self.plan.kernels.iter().map(|kernel| kernel.device.backend().source(&kernel.kernel)).collect()
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tensor, plan) = (&self.tensor, &self.plan);
        let location = tensor.location();
        writeln!(f, "{} {} on {}, {}", tensor.shape(), tensor.dtype(), tensor.device(), how(tensor))?;
        writeln!(f, "  built at {}:{}", location.file(), location.line())?;
        writeln!(f, "  {}", state(tensor, plan))?;
        for copy in &plan.copies {
            let bytes = readable_bytes(copy.bytes);
            let line = format!("{}:{}", copy.location.file(), copy.location.line());
            writeln!(f, "copy of {bytes} from {} to {}, asked for at {line}", copy.from, copy.to)?;
        }
        for (k, kernel) in plan.kernels.iter().enumerate() {
            write!(f, "kernel {}{}", k + 1, described(kernel)?)?;
        }
        if plan.waits_for_copies {
            writeln!(f, "what follows the copies is planned once they are made")?;
        }
        if plan.kernels.len() > 1 {
            let (read, written) = (readable_bytes(self.bytes_read()), readable_bytes(self.bytes_written()));
            let (flops, new) = (count(self.flops()), readable_bytes(self.allocates()));
            let kernels = plan.kernels.len();
            writeln!(
                f,
                "in all: {kernels} kernels, {flops}flop, reads {read}, writes {written}, new buffers {new}"
            )?;
        }
        Ok(())
    }
}

/// The operation that made a tensor, and its inputs.
fn how(tensor: &Tensor) -> String {
    if tensor.is_cell() {
        let wants =
            if tensor.is_tracked() { "a leaf that collects gradients" } else { "a cell without gradients" };
        return wants.into();
    }
    let inputs: Vec<String> = tensor.inputs().iter().map(|input| input.shape().to_string()).collect();
    let tracked = if tensor.is_tracked() { ", tracked for gradients" } else { "" };
    match inputs.as_slice() {
        [] => format!("made by {}{tracked}", tensor.op().grad_name()),
        inputs => format!("made by {} of {}{tracked}", tensor.op().grad_name(), inputs.join(", ")),
    }
}

/// Whether the value is computed, and a heading for the kernels that follow.
fn state(tensor: &Tensor, plan: &PlanReport) -> String {
    let nothing = plan.kernels.is_empty() && plan.copies.is_empty();
    let bytes = readable_bytes((tensor.numel() * tensor.dtype().size()) as u64);
    match (tensor.is_evaluated(), nothing) {
        (false, true) => "not computed; nothing runs for it".into(),
        (false, false) => "not computed yet; computing it runs:".into(),
        (true, true) => format!("computed, {bytes}; its inputs are no longer known"),
        (true, false) => format!("computed, {bytes}; computing it again from its inputs would run:"),
    }
}

fn described(planned: &PlannedKernel) -> Result<String, fmt::Error> {
    let kernel = &planned.kernel;
    let mut text = String::new();
    let outputs: Vec<String> = kernel.outputs.iter().map(|o| format!("{} {}", o.shape, o.dtype)).collect();
    writeln!(
        text,
        ": {} over {} on {}, gives {}",
        kernel.name(),
        kernel.space,
        planned.device,
        outputs.join(" and ")
    )?;
    let flops = kernel
        .flops()
        .map_or_else(|| "arithmetic of its own".into(), |flops| format!("{}flop", count(flops)));
    let (read, written) = (readable_bytes(kernel.bytes_read()), readable_bytes(kernel.bytes_written()));
    let new = match planned.allocates {
        0 => "no new buffer".into(),
        bytes => format!("new buffers {}", readable_bytes(bytes)),
    };
    writeln!(text, "  {flops}, reads {read} of {} inputs, writes {written}, {new}", planned.inputs.len())?;
    if let Some(separation) = planned.separation {
        writeln!(text, "  a kernel of its own: {separation}")?;
    }
    for operation in &planned.operations {
        let (file, line) = (operation.location.file(), operation.location.line());
        let stored = match operation.stored_because {
            Some(reason) => format!(", stored: {reason}"),
            None => String::new(),
        };
        writeln!(
            text,
            "  {} {} {}{stored} ({file}:{line})",
            operation.name, operation.shape, operation.dtype
        )?;
    }
    let title = match &kernel.body {
        Body::Map(_) => "at each position",
        Body::Reduce { .. } => "at each position, before it is reduced",
        Body::Rows { .. } => "at each position of a row",
        Body::Contract(_) => "at each sum (input 0), before it is stored",
        Body::ArgReduce { .. }
        | Body::Cumulative { .. }
        | Body::ArgSort { .. }
        | Body::Gather { .. }
        | Body::Scatter { .. }
        | Body::Copy { .. }
        | Body::Custom(_) => "",
    };
    if let Some(program) = kernel.body.program() {
        writeln!(text, "  {title}:")?;
        for line in program.text(&planned.scalars).lines() {
            writeln!(text, "    {line}")?;
        }
    }
    Ok(text)
}

/// A count with a prefix and a blank: `12.3 M`.
fn count(n: u64) -> String {
    let mut value = n as f64;
    for prefix in ["", "k", "M", "G", "T"] {
        if value < 999.5 {
            return if prefix.is_empty() { format!("{n} ") } else { format!("{value:.3} {prefix}") };
        }
        value /= 1000.0;
    }
    format!("{value:.3} P")
}
