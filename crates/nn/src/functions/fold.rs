//! Image blocks as columns, and columns summed into an image: im2col and col2im.

use tensor_core::{Error, Result, Tensor, caller_line};

use super::{
    Window,
    conv::{Place, place},
    pad::padded,
};

/// The arrangement of blocks over an image, with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldOptions {
    /// The distance between the elements of a block. 1 by default.
    pub dilation: [usize; 2],
    /// Zeros before and after each axis. None by default.
    pub padding: [usize; 2],
    /// The distance between blocks. 1 by default.
    pub stride: [usize; 2],
}

impl Default for FoldOptions {
    fn default() -> FoldOptions {
        FoldOptions { dilation: [1; 2], padding: [0; 2], stride: [1; 2] }
    }
}

impl FoldOptions {
    /// The number of blocks along each axis of an image of these sizes.
    #[track_caller]
    fn blocks(&self, op: &'static str, sizes: [usize; 2], kernel: [usize; 2]) -> Result<[usize; 2]> {
        let FoldOptions { dilation, padding, stride } = *self;
        if [kernel, dilation, stride].iter().flatten().any(|&n| n == 0) {
            return Err(Error::invalid(
                op,
                format!("kernel {kernel:?}, dilation {dilation:?}, stride {stride:?}: give numbers above 0"),
            ));
        }
        let mut blocks = [0; 2];
        for axis in 0..2 {
            let reach = dilation[axis].saturating_mul(kernel[axis] - 1).saturating_add(1);
            let room = sizes[axis].saturating_add(padding[axis].saturating_mul(2));
            if reach > room {
                return Err(Error::invalid(
                    op,
                    format!(
                        "blocks {kernel:?} with dilation {dilation:?} reach over {reach}; axis {axis} of an image {sizes:?} with \
                         padding {padding:?} has {room}"
                    ),
                ));
            }
            blocks[axis] = (room - reach) / stride[axis] + 1;
        }
        Ok(blocks)
    }
}

/// The blocks `[kH, kW]` of an image `[N, C, H, W]` as columns: `[N, C·kH·kW, L]` for L blocks in row-major
/// order; `N` may be missing. `torch.nn.functional.unfold`. (For windows along one axis as a view, see
/// [`Tensor::unfold`].)
///
/// ```
/// use nn::functional::{FoldOptions, unfold};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let x = Tensor::new([[[[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]]], &backend_cpu::cpu())?;
/// let columns = unfold(&x, [2, 2], FoldOptions::default())?;
/// assert_eq!(columns.dims(), [1, 4, 2]);
/// assert_eq!(columns.to_vec::<f32>()?, [1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 5.0, 6.0]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// Neither four axes nor three, a kernel, dilation or stride of 0, a block larger than the padded image.
#[track_caller]
pub fn unfold(input: &Tensor, kernel: impl Into<Window<2>>, options: FoldOptions) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "unfold";
    let Window(kernel) = kernel.into();
    let (x, alone) = batched(OP, input, 4, "[N, C, H, W]")?;
    let &[batch, channels, height, width] = x.dims() else {
        return Err(Error::invalid(OP, format!("shape {}", input.shape())));
    };
    let blocks = options.blocks(OP, [height, width], kernel)?;
    let FoldOptions { dilation, padding, stride } = options;
    let mut windows = padded(&x, &padding.map(|p| (p, p)), 0.0)?;
    for axis in 0..2 {
        windows = windows.windows(2 + axis, kernel[axis], stride[axis], dilation[axis])?;
    }
    // [N, C, blocks, blocks, kH, kW]
    let size = channels * kernel[0] * kernel[1];
    let columns = windows.permute([0, 1, 4, 5, 2, 3])?.reshape([batch, size, blocks[0] * blocks[1]])?;
    if alone { columns.squeeze(0) } else { Ok(columns) }
}

/// Sums columns `[N, C·kH·kW, L]`, as [`unfold`] makes them, at their positions in an image `[N, C, H, W]`
/// of size `output`; `N` may be missing. `torch.nn.functional.fold`.
///
/// # Errors
/// Neither three axes nor two, a kernel, dilation or stride of 0, a block larger than the padded image,
/// columns that kH·kW does not divide, or not one column for each block.
#[track_caller]
pub fn fold(
    input: &Tensor,
    output: impl Into<Window<2>>,
    kernel: impl Into<Window<2>>,
    options: FoldOptions,
) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "fold";
    let (Window(sizes), Window(kernel)) = (output.into(), kernel.into());
    let (x, alone) = batched(OP, input, 3, "[N, C·kH·kW, L]")?;
    let blocks = options.blocks(OP, sizes, kernel)?;
    let block = kernel[0].saturating_mul(kernel[1]);
    let &[batch, rows, columns] = x.dims() else {
        return Err(Error::invalid(OP, format!("shape {}", input.shape())));
    };
    if !rows.is_multiple_of(block) || columns != blocks[0] * blocks[1] {
        return Err(Error::invalid(
            OP,
            format!(
                "an input of shape {} for an image {sizes:?} with blocks {kernel:?}: it has {columns} columns of {rows}; give {} of a \
                 multiple of {block}",
                input.shape(),
                blocks[0] * blocks[1]
            ),
        ));
    }
    let FoldOptions { dilation, padding, stride } = options;
    let mut out = x.reshape([batch, rows / block, kernel[0], kernel[1], blocks[0], blocks[1]])?;
    // The last axis first: [N, C, kH, kW, bH, bW] to [N, C, kH, bH, W] to [N, C, H, W].
    for (axis, of_kernel, of_blocks) in [(1, 3, 5), (0, 2, 3)] {
        let mut sum: Option<Tensor> = None;
        for k in 0..kernel[axis] {
            let part = out.select(of_kernel, k)?;
            let first = (k * dilation[axis]) as isize - padding[axis] as isize;
            let lies = Place { first, step: stride[axis], size: sizes[axis] };
            let part = place(&part, of_blocks - 1, &[lies])?;
            sum = Some(match sum {
                Some(sum) => sum.add(&part)?,
                None => part,
            });
        }
        out = sum.unwrap_or(out);
    }
    if alone { out.squeeze(0) } else { Ok(out) }
}

/// The input with a batch axis, and whether it had none.
#[track_caller]
fn batched(op: &'static str, input: &Tensor, rank: usize, axes: &str) -> Result<(Tensor, bool)> {
    match input.rank() {
        found if found == rank => Ok((input.clone(), false)),
        found if found + 1 == rank => Ok((input.unsqueeze(0)?, true)),
        _ => {
            let message =
                format!("an input is {axes}, or the same without N; the shape is {}", input.shape());
            Err(Error::invalid(op, message))
        }
    }
}
