//! The reasons of the planner, as [`plan_of`](crate::plan_of) reports them: why a result is stored, and why a
//! kernel is separate from the one whose result it reads. The passes note them where they decide.

use std::fmt;

/// The reason why the result of an operation is stored in memory, rather than computed inside the kernels
/// that read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreReason {
    /// It was asked for, the program holds the tensor, or a gradient rule will read it.
    Kept,
    /// The operation is not elementwise: its kernel writes a result.
    OwnKernel,
    /// An operation with this name reads it in memory, in another order or several times.
    ReadInMemory(&'static str),
    /// Several kernels read it, and computing it again in each of them would cost this many additions for
    /// an element, more than reading it.
    ReadBySeveral(u32),
    /// Together with its readers it would exceed the device's limit of instructions or inputs of a kernel.
    DeviceLimits,
    /// Strides cannot express the view, so that its elements are copied.
    NoStrides,
}

impl fmt::Display for StoreReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreReason::Kept => f.write_str("asked for, held by the program, or read by a gradient"),
            StoreReason::OwnKernel => f.write_str("not elementwise, so its kernel writes a result"),
            StoreReason::ReadInMemory(op) => write!(f, "{op} reads it from memory"),
            StoreReason::ReadBySeveral(cost) => {
                write!(f, "several kernels read it, and computing it again costs {cost} additions an element")
            }
            StoreReason::DeviceLimits => {
                f.write_str("a kernel with its reader would exceed the device's limits")
            }
            StoreReason::NoStrides => f.write_str("strides cannot express this view, so it is copied"),
        }
    }
}

/// The reason why a kernel is separate from the one before it, whose result it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Separation {
    /// An operation that is not elementwise, such as a matrix product, begins a kernel of its own.
    OwnKernel,
    /// A reduction over other axes than the last ones, or over rows longer than the device's limit, has a
    /// kernel of its own.
    Reduction,
    /// It reads elements at other positions than its own, which are complete only after the other kernel.
    OtherPositions,
    /// It computes other elements than the other kernel, or values that are unrelated to its rows.
    OtherSpace,
    /// One kernel for both would exceed the device's limits of instructions, inputs or outputs.
    DeviceLimits,
    /// The device computes no further operations on the results of a matrix product before they are stored.
    NoEpilogues,
    /// The operations after a matrix product are more than the device computes on its results in registers.
    LongEpilogue,
    /// It depends on the position of an element, or reads at indices, which is not done on the results of a
    /// matrix product in registers.
    PositionInEpilogue,
    /// It reads the result of a matrix product, or another input of it, in another order than that in which
    /// the product makes it.
    OtherOrder,
    /// Another kernel reads the result of the matrix product earlier.
    ReadEarlier,
    /// As a kernel of its own it overwrites its inputs, which a matrix product cannot.
    WorksInPlace,
    /// Delaying the matrix product would hold its operands in memory for longer.
    HoldsMore,
    /// Other operations are computed on the results of that matrix product already.
    HasEpilogue,
}

impl fmt::Display for Separation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Separation::OwnKernel => "it is not elementwise and begins a kernel of its own",
            Separation::Reduction => {
                "it reduces other axes than the last ones, or rows longer than the device's limit"
            }
            Separation::OtherPositions => "it reads elements at other positions than its own",
            Separation::OtherSpace => "it computes other elements than the kernel before it",
            Separation::DeviceLimits => "one kernel for both would exceed the device's limits",
            Separation::NoEpilogues => "this device stores each matrix product before anything reads it",
            Separation::LongEpilogue => {
                "too many operations for the registers of the matrix product before it"
            }
            Separation::PositionInEpilogue => {
                "it depends on positions or indices, which a matrix product's registers do not have"
            }
            Separation::OtherOrder => {
                "it reads in another order than that in which the matrix product makes its results"
            }
            Separation::ReadEarlier => "another kernel reads the matrix product's result earlier",
            Separation::WorksInPlace => "by itself it overwrites its inputs, which a matrix product cannot",
            Separation::HoldsMore => "delaying the matrix product would hold its operands for longer",
            Separation::HasEpilogue => "other operations are computed in that matrix product already",
        })
    }
}

/// The reasons of one plan.
pub(crate) struct Reasons {
    /// For each item with a buffer.
    pub(crate) stored: Vec<Option<StoreReason>>,
    /// For each kernel as it was first grouped.
    pub(super) separate: Vec<Option<Separation>>,
    /// For each item, the kernel in `separate` that computes it.
    pub(super) kernel: Vec<u32>,
}

impl Reasons {
    /// Why the kernel that computes this item is separate.
    pub(crate) fn separation(&self, item: u32) -> Option<Separation> {
        self.separate.get(*self.kernel.get(item as usize)? as usize).copied().flatten()
    }
}
