//! Kernels of custom operations: functions of slices.
#![allow(unsafe_code)]

use std::{fmt, marker::PhantomData};

use tensor_core::{
    Attention, CachedAttention, CustomKernel, DType, Distances, Element, EmbeddingBag, Error, Fourier,
    GridSample, Kernel, Launch, Layout, MaxPool, Nonzero, Recurrence, Result, RunningExtreme, SearchSorted,
    Shape, custom::implementation,
};

use crate::{
    CpuBackend, forms,
    memory::buffer::{Bound, Memory},
};

type Function = dyn Fn(&[CpuInput<'_>], &mut [CpuOutput<'_>]) -> Result<()> + Send + Sync;

/// The CPU implementation of a [`CustomKernel`]: a function of its inputs and outputs, as slices.
///
/// It runs on the thread that asks for the value and holds the device while it runs, so it must not
/// evaluate tensors. If it fails, the operation fails with its error and names the line that built the
/// operation.
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
    /// A kernel that calls `function` with the operation's inputs and its outputs, which are filled with
    /// zeros.
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
    /// The shape.
    #[must_use]
    pub fn shape(&self) -> &'a Shape {
        self.layout.shape()
    }

    /// The dtype of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.memory.dtype
    }

    /// The layout of the elements in the slice: row-major from the first element on, unless the operation
    /// accepts strides.
    #[must_use]
    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// The elements.
    ///
    /// # Errors
    /// If the elements have another type.
    #[track_caller]
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        check::<T>(self.op, "an input", self.memory.dtype)?;
        // SAFETY: `run` checked that the buffer has that many elements of this dtype, all written before.
        // The launch holds the device for longer than 'a, and this buffer is not an output.
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
    /// The shape.
    #[must_use]
    pub fn shape(&self) -> &'a Shape {
        self.shape
    }

    /// The dtype of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.memory.dtype
    }

    /// The elements, in row-major order.
    ///
    /// # Errors
    /// If the elements have another type.
    #[track_caller]
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        check::<T>(self.op, "an output", self.memory.dtype)?;
        // SAFETY: `run` checked that the buffer has that many elements of this dtype and set them to zero,
        // a valid value of every element type. The launch holds the device, this buffer is no other output
        // or input, and the mutable borrow of this output prevents a second slice.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.memory.at::<T>(0), self.shape.numel()) })
    }
}

#[track_caller]
fn check<T: Element>(op: &'static str, what: &str, dtype: DType) -> Result<()> {
    if dtype == T::DTYPE {
        return Ok(());
    }
    Err(Error::invalid(op, format!("its kernel reads {what} of {dtype} as {}", T::DTYPE)))
}

/// A custom operation with a kernel in this backend; the value holds the operation's parameters.
pub(crate) trait Native: CustomKernel {
    /// Whether the kernel supports operands of these shapes and dtypes; by default it depends on the first
    /// one's dtype alone, f32 or f64.
    fn supports(kernel: &Kernel) -> bool
    where
        Self: Sized,
    {
        kernel.operands.first().is_some_and(|operand| matches!(operand.dtype, DType::F32 | DType::F64))
    }

    /// Runs the kernel for a launch that [`Launch::check_custom`] accepted for this operation.
    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()>;
}

/// Calls a function that is generic over the element type with that of a launch's first operand, f32 or
/// f64.
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

/// The implementation of a custom operation on this backend.
enum Implementation {
    Function(CpuKernel),
    Native(Box<dyn Native + Send + Sync>),
}

type FindNative = fn(&dyn CustomKernel, &Kernel, &str) -> Option<Implementation>;

fn native<T: Native + Send + Sync>(
    custom: &dyn CustomKernel,
    kernel: &Kernel,
    device: &str,
) -> Option<Implementation> {
    let found = T::supports(kernel).then(|| implementation::<T>(custom, kernel, device).ok())??;
    Some(Implementation::Native(Box::new(found)))
}

/// The table of the operations with native kernels, by the names of their types.
macro_rules! natives {
    ($($name:ident),* $(,)?) => {
        const NATIVES: &[FindNative] = &[$(native::<$name>),*];
        /// The names of the operations of `tensor_core` for which this backend has kernels.
        #[doc(hidden)]
        pub const NATIVE_KERNELS: &[&str] = &[$(stringify!($name)),*];
    };
}
natives![
    Attention,
    CachedAttention,
    Recurrence,
    Fourier,
    EmbeddingBag,
    Distances,
    SearchSorted,
    Nonzero,
    MaxPool,
    GridSample,
    RunningExtreme,
];

impl Implementation {
    fn of(custom: &dyn CustomKernel, kernel: &Kernel, device: &str) -> Result<Implementation> {
        let mut natives = NATIVES.iter().zip(NATIVE_KERNELS).filter(|(_, name)| forms::is_on(name));
        let found = natives.find_map(|(native, _)| native(custom, kernel, device));
        found.map_or_else(|| implementation(custom, kernel, device).map(Implementation::Function), Ok)
    }
}

/// Whether this backend has an implementation of the operation.
pub(crate) fn implements(backend: &CpuBackend, custom: &dyn CustomKernel, kernel: &Kernel) -> bool {
    Implementation::of(custom, kernel, &backend.info.name).is_ok()
}

/// Runs the operation's [`CpuKernel`], or the backend's native kernel for it.
pub(crate) fn run(backend: &CpuBackend, custom: &dyn CustomKernel, launch: &Launch<'_>) -> Result<()> {
    let (kernel, op) = (launch.kernel, custom.name());
    let made = launch.compiled.get_or_try(|| Implementation::of(custom, kernel, &backend.info.name))?;
    let function = match made {
        Some(Implementation::Function(CpuKernel(function))) => function,
        Some(Implementation::Native(native)) => {
            launch.check_custom(native.as_ref())?;
            return native.run(backend, launch);
        }
        None => return Err(Error::invalid(op, "the launch holds a kernel that another backend compiled")),
    };
    let bound = Bound::of_launch(&backend.pool, launch)?;
    let operands = bound.inputs.iter().zip(&kernel.operands);
    let inputs: Vec<CpuInput<'_>> =
        operands.map(|(&memory, operand)| CpuInput { op, memory, layout: &operand.layout }).collect();
    let mut outputs: Vec<CpuOutput<'_>> = Vec::with_capacity(kernel.outputs.len());
    for (&memory, output) in bound.outputs.iter().zip(&kernel.outputs) {
        // SAFETY: `of_launch` checked that the buffer has this many elements and is not an input.
        unsafe { memory.ptr.write_bytes(0, output.shape.numel() * memory.dtype.size()) };
        outputs.push(CpuOutput { op, memory, shape: &output.shape, _memory: PhantomData });
    }
    function(&inputs, &mut outputs)
}
