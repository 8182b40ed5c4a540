//! Kernels of operations from elsewhere: functions of slices.
#![allow(unsafe_code)]

use std::{fmt, marker::PhantomData};

use tensor_core::{
    Attention, CustomKernel, DType, Distances, Element, EmbeddingBag, Error, Fourier, GridSample, Kernel,
    Launch, Layout, MaxPool, Nonzero, Recurrence, Result, RunningExtreme, SearchSorted, Shape,
    custom::implementation,
};

use crate::{
    CpuBackend,
    memory::buffer::{Bound, Memory},
};

type Function = dyn Fn(&[CpuInput<'_>], &mut [CpuOutput<'_>]) -> Result<()> + Send + Sync;

/// What a [`CustomKernel`] runs on the CPU: a function of its inputs and outputs, as slices.
///
/// It runs on the thread that asks for the value, and holds the device meanwhile: it must not evaluate
/// tensors. Its error is the operation's, with the line that built it.
///
/// ```
/// use backend_cpu::CpuKernel;
///
/// let double = CpuKernel::new(|inputs, outputs| {
///     let x = inputs[0].as_slice::<f32>()?;
///     let y = outputs[0].as_mut_slice::<f32>()?;
///     y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
///     Ok(())
/// });
/// # let _ = double;
/// ```
pub struct CpuKernel(Box<Function>);

impl CpuKernel {
    /// A kernel that calls `function` with the operation's inputs and its outputs, which are zero.
    pub fn new(
        function: impl Fn(&[CpuInput<'_>], &mut [CpuOutput<'_>]) -> Result<()> + Send + Sync + 'static,
    ) -> CpuKernel {
        CpuKernel(Box::new(function))
    }
}

impl fmt::Debug for CpuKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CpuKernel")
    }
}

/// An input of a [`CpuKernel`].
#[derive(Debug)]
pub struct CpuInput<'a> {
    op: &'static str,
    memory: Memory,
    layout: &'a Layout,
}

impl<'a> CpuInput<'a> {
    /// The sizes.
    #[must_use]
    pub fn shape(&self) -> &'a Shape {
        self.layout.shape()
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.memory.dtype
    }

    /// How the elements lie in the slice: in row-major order from the first on, unless the operation takes
    /// strides.
    #[must_use]
    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// The elements.
    ///
    /// # Errors
    /// Elements of another type.
    #[track_caller]
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        check::<T>(self.op, "an input", self.memory.dtype)?;
        // SAFETY: `run` checked that the buffer has as many elements of this dtype, which were written before
        // they are read here. The launch holds the gate for longer than 'a, and no output is this buffer.
        Ok(unsafe { std::slice::from_raw_parts(self.memory.at::<T>(0).cast_const(), self.layout.span().1) })
    }
}

/// An output of a [`CpuKernel`].
#[derive(Debug)]
pub struct CpuOutput<'a> {
    op: &'static str,
    memory: Memory,
    shape: &'a Shape,
    _memory: PhantomData<&'a mut [u8]>,
}

impl<'a> CpuOutput<'a> {
    /// The sizes.
    #[must_use]
    pub fn shape(&self) -> &'a Shape {
        self.shape
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.memory.dtype
    }

    /// The elements, in row-major order.
    ///
    /// # Errors
    /// Elements of another type.
    #[track_caller]
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        check::<T>(self.op, "an output", self.memory.dtype)?;
        // SAFETY: `run` checked that the buffer has as many elements of this dtype and made them zero, which
        // all types of elements have. The launch holds the gate, and no other output or input is this buffer;
        // the borrow of this output keeps a second slice away.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.memory.at::<T>(0), self.shape.numel()) })
    }
}

#[track_caller]
fn check<T: Element>(op: &'static str, what: &str, dtype: DType) -> Result<()> {
    if dtype == T::DTYPE {
        return Ok(());
    }
    Err(Error::invalid(op, format!("its kernel takes {what} of {dtype} for one of {}", T::DTYPE)))
}

/// An operation that the backend has a kernel of its own for: the value says what it is.
pub(crate) trait Native: CustomKernel {
    /// Whether there is a kernel for a first operand of the dtype.
    fn supports(dtype: DType) -> bool
    where
        Self: Sized,
    {
        matches!(dtype, DType::F32 | DType::F64)
    }

    /// Computes it, for a launch that [`Launch::check_custom`] found to be of this operation.
    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()>;
}

/// Calls a function that is generic over the elements for those of a launch's first operand, f32 or f64.
macro_rules! for_float {
    ($of:expr, $launch:expr, $typed:ident($($argument:expr),*)) => {
        match $launch.kernel.operands.first().map(|operand| operand.dtype) {
            Some(tensor_core::DType::F32) => $typed::<f32>($($argument),*),
            Some(tensor_core::DType::F64) => $typed::<f64>($($argument),*),
            _ => Err(tensor_core::custom::unsupported($of, $launch.kernel, "cpu")),
        }
    };
}
pub(crate) use for_float;

/// What the backend runs for an operation from elsewhere.
enum Implementation {
    Function(CpuKernel),
    Native(Box<dyn Native + Send + Sync>),
}

impl Implementation {
    fn of(custom: &dyn CustomKernel, kernel: &Kernel, device: &str) -> Result<Implementation> {
        fn native<T: Native>(
            custom: &dyn CustomKernel,
            kernel: &Kernel,
            device: &str,
        ) -> Option<Implementation> {
            let found = T::supports(kernel.operands.first()?.dtype)
                .then(|| implementation::<T>(custom, kernel, device).ok())??;
            Some(Implementation::Native(Box::new(found)))
        }
        let natives = [
            native::<Attention>,
            native::<Recurrence>,
            native::<Fourier>,
            native::<EmbeddingBag>,
            native::<Distances>,
            native::<SearchSorted>,
            native::<Nonzero>,
            native::<MaxPool>,
            native::<GridSample>,
            native::<RunningExtreme>,
        ];
        let found = natives.iter().find_map(|native| native(custom, kernel, device));
        found.map_or_else(|| implementation(custom, kernel, device).map(Implementation::Function), Ok)
    }
}

/// Whether there is something to run for the operation.
pub(crate) fn implements(backend: &CpuBackend, custom: &dyn CustomKernel, kernel: &Kernel) -> bool {
    Implementation::of(custom, kernel, &backend.info.name).is_ok()
}

/// Runs the operation's [`CpuKernel`], or the backend's own kernel for what the operation says it is.
pub(crate) fn run(backend: &CpuBackend, custom: &dyn CustomKernel, launch: &Launch<'_>) -> Result<()> {
    let (kernel, op) = (launch.kernel, custom.name());
    let made = launch.compiled.get_or_try(|| Implementation::of(custom, kernel, &backend.info.name))?;
    let function = match made {
        Some(Implementation::Function(CpuKernel(function))) => function,
        Some(Implementation::Native(native)) => {
            launch.check_custom(native.as_ref())?;
            return native.run(backend, launch);
        }
        None => return Err(Error::invalid(op, "the launch holds what another backend made of its kernel")),
    };
    let bound = Bound::of_launch(&backend.pool, launch)?;
    let operands = bound.inputs.iter().zip(&kernel.operands);
    let inputs: Vec<CpuInput<'_>> =
        operands.map(|(&memory, operand)| CpuInput { op, memory, layout: &operand.layout }).collect();
    let mut outputs: Vec<CpuOutput<'_>> = Vec::with_capacity(kernel.outputs.len());
    for (&memory, output) in bound.outputs.iter().zip(&kernel.outputs) {
        // SAFETY: `of_launch` checked that the buffer has this many elements, and that it is no input.
        unsafe { memory.ptr.write_bytes(0, output.shape.numel() * memory.dtype.size()) };
        outputs.push(CpuOutput { op, memory, shape: &output.shape, _memory: PhantomData });
    }
    function(&inputs, &mut outputs)
}
