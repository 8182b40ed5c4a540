//! Kernels of operations from elsewhere: WGSL with the names of its bindings.

use tensor_core::{
    CustomKernel, Error, Result,
    custom::implementation,
    kernel::{Kernel, Operand, Output},
};

use crate::codegen::{
    capabilities::Capabilities,
    dispatch::{Dispatch, Dispatches, Resource},
    dtypes::{storage_size, storage_type},
};

/// What a [`CustomKernel`] runs on a GPU: one dispatch of a WGSL function.
///
/// The source is WGSL that defines `fn kernel(workgroup_index: u32, local_index: u32)`, which every invocation of every workgroup calls
/// once; it may have functions, constants and workgroup variables beside it, but neither bindings nor an entry point. The backend
/// declares a storage buffer `array<element>` for each input and output under its name, and numbers as `params.name`. An
/// element is f32 for f32 and the half types (whose results the kernel rounds itself), u32 for u32, u8 and bool, i32, i64 or f64.
///
/// Workgroups of one dispatch may run as several, so they must not wait for each other. Of a software adapter, which runs a
/// kernel on the host's processor, barriers are slow.
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
}

impl WgslKernel {
    /// A kernel of one workgroup of one invocation, until [`WgslKernel::workgroups`] says otherwise.
    #[must_use]
    pub fn new(source: impl Into<String>) -> WgslKernel {
        WgslKernel {
            source: source.into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            params: Vec::new(),
            invocations: 1,
            workgroups: 1,
        }
    }

    /// The names of the inputs' buffers, which are read.
    #[must_use]
    pub fn inputs(self, names: &[&str]) -> WgslKernel {
        WgslKernel { inputs: names.iter().map(ToString::to_string).collect(), ..self }
    }

    /// The names of the outputs' buffers, which are read and written. Their contents are unspecified before.
    #[must_use]
    pub fn outputs(self, names: &[&str]) -> WgslKernel {
        WgslKernel { outputs: names.iter().map(ToString::to_string).collect(), ..self }
    }

    /// Adds a number, `params.name` of type u32. Other sizes need no other source, and so no other pipeline.
    #[must_use]
    pub fn param(mut self, name: impl Into<String>, value: u32) -> WgslKernel {
        self.params.push((name.into(), value));
        self
    }

    /// So many workgroups of so many invocations each, which are 256 at most on every adapter.
    #[must_use]
    pub fn workgroups(self, invocations: usize, workgroups: usize) -> WgslKernel {
        WgslKernel { invocations, workgroups, ..self }
    }
}

/// The dispatch of the operation's [`WgslKernel`].
pub(crate) fn dispatches(
    kernel: &Kernel,
    custom: &dyn CustomKernel,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let op = custom.name();
    let made = implementation::<WgslKernel>(custom, kernel, &capabilities.info.name)?;
    let misnamed = |what: &str, names: usize, there: usize| {
        Error::invalid(op, format!("its WGSL kernel names {names} {what}, and the operation has {there}"))
    };
    if made.inputs.len() != kernel.operands.len() {
        return Err(misnamed("inputs", made.inputs.len(), kernel.operands.len()));
    }
    if made.outputs.len() != kernel.outputs.len() {
        return Err(misnamed("outputs", made.outputs.len(), kernel.outputs.len()));
    }
    let mut d = Dispatch::new(op);
    for (name, value) in &made.params {
        d.params.word(name.as_str(), *value);
    }
    let room = |dtype, elements: usize| {
        let bytes = elements as u64 * storage_size(dtype) as u64;
        let hint = format!(
            "one tensor lies over {bytes} bytes, and one binding of this adapter shows {} (max_storage_buffer_binding_size); split \
             it, or compute it on the cpu",
            capabilities.binding_bytes
        );
        if bytes <= capabilities.binding_bytes {
            Ok(())
        } else {
            Err(capabilities.unsupported(op, dtype, &hint))
        }
    };
    for (k, (name, Operand { dtype, layout })) in made.inputs.iter().zip(&kernel.operands).enumerate() {
        room(*dtype, layout.span().1)?;
        d.bind(name.as_str(), storage_type(*dtype), false, Resource::Input(k));
    }
    for (o, (name, Output { dtype, shape, .. })) in made.outputs.iter().zip(&kernel.outputs).enumerate() {
        room(*dtype, shape.numel())?;
        d.bind(name.as_str(), storage_type(*dtype), true, Resource::Output(o));
    }
    d.code.kernel(made.invocations, &made.source);
    d.foreign = true;
    d.workgroups = made.workgroups;
    d.work = made.invocations;
    Ok(d.into())
}
