//! Kernels of custom operations: WGSL with named bindings.

use tensor_core::{
    CustomKernel, DType, Error, ErrorKind, Result,
    custom::implementation,
    kernel::{Kernel, Operand, Output},
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Resource},
        dtypes::storage_size,
        storage::Elements,
    },
    kernels::native,
};

/// The GPU implementation of a [`CustomKernel`]: one dispatch of a WGSL function. [`WgslProgram`] is a list
/// of them.
///
/// The source is WGSL that defines `fn kernel(workgroup_index: u32, local_index: u32)`, which every
/// invocation of every workgroup calls once. It may also define functions, constants and workgroup
/// variables, but no bindings and no entry point. The backend declares a storage buffer under the name of
/// each input and output, and numbers as `params.name`.
///
/// `load_x(i)` is element i of a buffer `x`, and `store_x(i, value)` replaces it, even if other invocations
/// write its neighbours. Elements have the type f32 for f32 and the half types (rounded to nearest when
/// stored), u32 for u32, u8 and bool (0 or 1), i32, i64 or f64. A kernel that uses these functions has one
/// source for dtypes of all sizes. Elements of 4 and 8 bytes are also available as `x[i]`, an `array` of
/// the same types. Smaller elements share words and can only be accessed with the functions; for them,
/// `merge_x`, `unpack_…` and `pack_…` are reserved names too. The name of a buffer must not end in an
/// underscore.
///
/// The workgroups of one dispatch may be split into several dispatches, so they must not wait for each
/// other. On a software adapter, which runs kernels on the host's processor, barriers are slow.
///
/// ```
/// use backend_wgpu::WgslKernel;
///
/// let n = 1000;
/// let double = WgslKernel::new(
///     "fn kernel(workgroup_index: u32, local_index: u32) {
///         let i = workgroup_index * 64u + local_index;
///         if (i < params.n) { y[i] = 2.0 * x[i]; }
///     }",
/// )
/// .inputs(&["x"])
/// .outputs(&["y"])
/// .param("n", n)
/// .workgroups(64, (n as usize).div_ceil(64));
/// # let _ = double;
/// ```
#[derive(Clone, Debug)]
pub struct WgslKernel {
    source: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
    params: Vec<(String, u32)>,
    invocations: usize,
    workgroups: usize,
    work: usize,
}

impl WgslKernel {
    /// A kernel of one workgroup with one invocation; [`WgslKernel::workgroups`] changes that.
    #[must_use]
    pub fn new(source: impl Into<String>) -> WgslKernel {
        WgslKernel {
            source: source.into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            params: Vec::new(),
            invocations: 1,
            workgroups: 1,
            work: 0,
        }
    }

    /// Sets the names of the input buffers, which are read-only.
    #[must_use]
    pub fn inputs(self, names: &[&str]) -> WgslKernel {
        WgslKernel { inputs: names.iter().map(ToString::to_string).collect(), ..self }
    }

    /// Sets the names of the output buffers, which can be read and written. Their initial contents are
    /// unspecified.
    #[must_use]
    pub fn outputs(self, names: &[&str]) -> WgslKernel {
        WgslKernel { outputs: names.iter().map(ToString::to_string).collect(), ..self }
    }

    /// Adds a number, `params.name` of type u32. Its value is not part of the source, so other values need
    /// no other pipeline.
    #[must_use]
    pub fn param(mut self, name: impl Into<String>, value: u32) -> WgslKernel {
        self.params.push((name.into(), value));
        self
    }

    /// Sets the number of workgroups, and of invocations in each: at most 256 on every adapter.
    #[must_use]
    pub fn workgroups(self, invocations: usize, workgroups: usize) -> WgslKernel {
        WgslKernel { invocations, workgroups, ..self }
    }

    /// Sets the approximate number of operations of a workgroup, over all its invocations. Long work is
    /// split into several dispatches, to avoid the system's hang detection. The default is the number of
    /// invocations.
    #[must_use]
    pub fn work(self, work: usize) -> WgslKernel {
        WgslKernel { work, ..self }
    }
}

/// The GPU implementation of a [`CustomKernel`] that needs several dispatches: stages, each of which sees
/// the writes of earlier ones, and temporary buffers between them.
///
/// ```
/// use backend_wgpu::{WgslKernel, WgslProgram};
/// use tensor_core::DType;
///
/// let n = 1000;
/// let each = "fn kernel(workgroup_index: u32, local_index: u32) {
///     let i = workgroup_index * 64u + local_index;
///     if (i < params.n) { y[i] = x[i] * x[i]; }
/// }";
/// let square = || WgslKernel::new(each).inputs(&["x"]).outputs(&["y"]).param("n", n).workgroups(64, 16);
/// let fourth_power = WgslProgram::new(&["x"], &["y"])
///     .temporary("squares", DType::F32, n as usize)
///     .stage(square(), &["x", "squares"])
///     .stage(square(), &["squares", "y"]);
/// # let _ = fourth_power;
/// ```
#[derive(Clone, Debug)]
pub struct WgslProgram {
    inputs: Vec<String>,
    outputs: Vec<String>,
    temporaries: Vec<(String, DType, usize)>,
    stages: Vec<Stage>,
    failures: Option<String>,
}

#[derive(Clone, Debug)]
struct Stage {
    kernel: WgslKernel,
    buffers: Vec<String>,
    /// The number of the loop that it belongs to, and the rounds of that loop.
    repeated: Option<(usize, usize)>,
}

impl WgslProgram {
    /// A program without stages. The names are those of the operation's inputs and outputs, in order.
    #[must_use]
    pub fn new(inputs: &[&str], outputs: &[&str]) -> WgslProgram {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        WgslProgram {
            inputs: owned(inputs),
            outputs: owned(outputs),
            temporaries: Vec::new(),
            stages: Vec::new(),
            failures: None,
        }
    }

    /// Adds a temporary buffer of `numel` elements. Its initial contents are unspecified.
    #[must_use]
    pub fn temporary(mut self, name: impl Into<String>, dtype: DType, numel: usize) -> WgslProgram {
        self.temporaries.push((name.into(), dtype, numel));
        self
    }

    /// Adds a kernel. Its inputs and then its outputs are bound to the program's buffers of these names, in
    /// order; a buffer that a stage both reads and writes is bound once, as an output. A stage without
    /// workgroups is skipped.
    #[must_use]
    pub fn stage(mut self, kernel: WgslKernel, buffers: &[&str]) -> WgslProgram {
        let buffers = buffers.iter().map(ToString::to_string).collect();
        self.stages.push(Stage { kernel, buffers, repeated: None });
        self
    }

    /// Adds stages that run in order, `rounds` times over; `params.round` of type u32 counts from 0.
    #[must_use]
    pub fn repeat(mut self, rounds: usize, stages: &[(&WgslKernel, &[&str])]) -> WgslProgram {
        let repeated = Some((self.stages.len(), rounds));
        let stages = stages.iter().map(|(kernel, buffers)| Stage {
            kernel: (*kernel).clone(),
            buffers: buffers.iter().map(ToString::to_string).collect(),
            repeated,
        });
        self.stages.extend(stages);
        self
    }

    /// Names a u32 buffer of failure codes that the stages write: a word for each part of the inputs, 0 if
    /// the part has a result, else a code for [`CustomKernel::failure`]. The first failed part is reported.
    #[must_use]
    pub fn failures(self, codes: impl Into<String>) -> WgslProgram {
        WgslProgram { failures: Some(codes.into()), ..self }
    }
}

impl From<WgslKernel> for WgslProgram {
    fn from(kernel: WgslKernel) -> WgslProgram {
        let (inputs, outputs) = (kernel.inputs.clone(), kernel.outputs.clone());
        let buffers = inputs.iter().chain(&outputs).cloned().collect();
        WgslProgram {
            inputs,
            outputs,
            temporaries: Vec::new(),
            stages: vec![Stage { kernel, buffers, repeated: None }],
            failures: None,
        }
    }
}

/// The program of the operation for this backend.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if it has none for this kernel.
pub(crate) fn program(custom: &dyn CustomKernel, kernel: &Kernel, device: &str) -> Result<WgslProgram> {
    match implementation::<WgslProgram>(custom, kernel, device) {
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. }) => {
            implementation::<WgslKernel>(custom, kernel, device).map(WgslProgram::from)
        }
        found => found,
    }
}

/// A buffer of a program.
struct Buffer<'a> {
    name: &'a str,
    dtype: DType,
    elements: usize,
    resource: Resource,
}

/// The dispatches of this backend's own kernel for the operation, or else of its [`WgslProgram`].
pub(crate) fn dispatches(
    kernel: &Kernel,
    custom: &dyn CustomKernel,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let op = custom.name();
    if let Some(made) = native::dispatches(kernel, custom, capabilities)? {
        return Ok(made);
    }
    let made = program(custom, kernel, &capabilities.info.name)?;
    let misnamed = |what: &str, names: usize, there: usize| {
        Error::invalid(op, format!("its WGSL kernel names {names} {what}, but the operation has {there}"))
    };
    if made.inputs.len() != kernel.operands.len() {
        return Err(misnamed("inputs", made.inputs.len(), kernel.operands.len()));
    }
    if made.outputs.len() != kernel.outputs.len() {
        return Err(misnamed("outputs", made.outputs.len(), kernel.outputs.len()));
    }
    let inputs = made.inputs.iter().zip(&kernel.operands).enumerate();
    let inputs = inputs.map(|(k, (name, Operand { dtype, layout, .. }))| Buffer {
        name,
        dtype: *dtype,
        elements: layout.span().1,
        resource: Resource::Input(k),
    });
    let outputs = made.outputs.iter().zip(&kernel.outputs).enumerate();
    let outputs = outputs.map(|(o, (name, Output { dtype, shape, .. }))| Buffer {
        name,
        dtype: *dtype,
        elements: shape.numel(),
        resource: Resource::Output(o),
    });
    let temporaries = made.temporaries.iter().enumerate();
    let temporaries = temporaries.map(|(t, (name, dtype, elements))| Buffer {
        name,
        dtype: *dtype,
        elements: *elements,
        resource: Resource::Temporary(t),
    });
    let buffers: Vec<Buffer<'_>> = inputs.chain(outputs).chain(temporaries).collect();
    for Buffer { dtype, elements, .. } in &buffers {
        let bytes = *elements as u64 * storage_size(*dtype) as u64;
        let hint = format!(
            "one tensor lies over {bytes} bytes, and one binding of this adapter shows {} (max_storage_buffer_binding_size); split \
             it, or compute it on the cpu",
            capabilities.binding_bytes
        );
        if bytes > capabilities.binding_bytes {
            return Err(capabilities.unsupported(op, *dtype, &hint));
        }
    }
    let find = |name: &str| {
        let found = buffers.iter().find(|buffer| buffer.name == name);
        found.ok_or_else(|| Error::invalid(op, format!("its WGSL program has no buffer {name:?}")))
    };
    let mut list = Vec::with_capacity(made.stages.len() + 1);
    for stage in &made.stages {
        list.push(dispatch(op, stage, find)?);
    }
    if let Some(codes) = &made.failures {
        list.push(report_failure(op, find(codes)?));
    }
    let temporaries = made.temporaries.iter().map(|(_, dtype, elements)| (*dtype, *elements)).collect();
    Ok(Dispatches { list, temporaries })
}

/// The dispatch of one stage.
fn dispatch<'a>(
    op: &'static str,
    Stage { kernel: stage, buffers: names, repeated }: &Stage,
    find: impl Fn(&str) -> Result<&'a Buffer<'a>>,
) -> Result<Dispatch> {
    let own = stage.inputs.len() + stage.outputs.len();
    if names.len() != own {
        let message = format!("a stage of its WGSL program has {own} buffers, but {} are bound", names.len());
        return Err(Error::invalid(op, message));
    }
    let mut d = Dispatch::new(op);
    for (name, value) in &stage.params {
        d.params.word(name.as_str(), *value);
    }
    if repeated.is_some() {
        d.params.round();
        d.repeated = *repeated;
    }
    let writes = (0..own).map(|k| k >= stage.inputs.len());
    for ((own, name), write) in stage.inputs.iter().chain(&stage.outputs).zip(names).zip(writes) {
        let buffer = find(name)?;
        if write && matches!(buffer.resource, Resource::Input(_)) {
            return Err(Error::invalid(
                op,
                format!("a stage of its WGSL program writes to its input {name:?}"),
            ));
        }
        if d.bindings.iter().any(|bound| bound.resource == buffer.resource) {
            return Err(Error::invalid(op, format!("a stage of its WGSL program binds {name:?} twice")));
        }
        d.bind(own.as_str(), Elements::of(buffer.dtype), write, buffer.resource);
    }
    d.code.kernel(stage.invocations, &stage.source);
    d.foreign = true;
    d.workgroups = stage.workgroups;
    d.work = stage.work.max(stage.invocations);
    Ok(d)
}

/// Writes the first code that is not 0 to the launch's slot of the fault table.
fn report_failure(op: &'static str, codes: &Buffer<'_>) -> Dispatch {
    let mut d = Dispatch::new(op);
    d.params.fault("fault", 0);
    d.params.size("parts", codes.elements);
    d.bind("codes", "u32", false, codes.resource);
    d.bind("faults", "atomic<u32>", true, Resource::Faults);
    d.code.kernel(64, REPORT_FAILURE);
    d.workgroups = usize::from(codes.elements > 0);
    d.work = codes.elements;
    d
}

const REPORT_FAILURE: &str = "
const NONE = 0xffffffffu;
var<workgroup> first: atomic<u32>;

fn kernel(workgroup_index: u32, local_index: u32) {
    if (local_index == 0u) {
        atomicStore(&first, NONE);
    }
    workgroupBarrier();
    for (var part = local_index; part < params.parts; part += 64u) {
        if (codes[part] != 0u) {
            atomicMin(&first, part);
            break;
        }
    }
    workgroupBarrier();
    let part = atomicLoad(&first);
    if (local_index == 0u && part != NONE) {
        atomicStore(&faults[params.fault + 1u], codes[part]);
        atomicStore(&faults[params.fault + 2u], part);
        atomicStore(&faults[params.fault], 1u);
    }
}
";
