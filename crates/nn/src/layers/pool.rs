//! Pooling layers.

use std::fmt;

use tensor_core::{Result, Tensor};

use super::{layer, record, stateless};
use crate::functions::{
    PoolOptions, UnpoolOptions, Window, avg_pool, by_dims, lp_pool, max_pool, max_unpool,
};

macro_rules! pool {
    ($(#[$doc:meta])* $layer:ident, $function:ident, $names:expr; $($(#[$alias_doc:meta])* $alias:ident = $d:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $layer<const D: usize> {
            window: [usize; D],
            options: PoolOptions<D>,
        }

        $($(#[$alias_doc])* pub type $alias = $layer<$d>;)*

        impl<const D: usize> $layer<D> {
            /// Pools non-overlapping windows of `window` elements (one number for all axes, or one per
            /// axis).
            pub fn new(window: impl Into<Window<D>>) -> $layer<D> {
                $layer::with_options(window, PoolOptions::default())
            }

            /// Pools windows with a stride, padding or dilation. Options that do not fit are an error of
            /// `forward`.
            pub fn with_options(window: impl Into<Window<D>>, options: PoolOptions<D>) -> $layer<D> {
                $layer { window: window.into().0, options }
            }

            /// The output for an input `[N, C, …]` or `[C, …]`.
            ///
            /// # Errors
            /// Windows, strides or padding that do not fit the input.
            #[track_caller]
            pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
                const NAMES: [&str; 3] = $names;
                record!(self, $function(by_dims::<D>(NAMES), input, self.window, self.options))
            }
        }

        impl<const D: usize> fmt::Debug for $layer<D> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let PoolOptions { stride, padding, .. } = self.options;
                let stride = stride.unwrap_or(self.window);
                let name = concat!(stringify!($layer));
                write!(f, "{name}{D}d(kernel_size={:?}, stride={stride:?}, padding={padding:?})", self.window)
            }
        }

        layer!($layer<1>, $layer<2>, $layer<3>);
        stateless!($layer<1>, $layer<2>, $layer<3>);
    };
}

pool! {
    /// Max pooling over `D` axes: see [`crate::functional::max_pool2d`]. Use it as [`MaxPool1d`],
    /// [`MaxPool2d`] and [`MaxPool3d`].
    ///
    /// ```
    /// use nn::MaxPool2d;
    /// use tensor_core::Tensor;
    /// # fn main() -> tensor_core::Result<()> {
    /// let x = Tensor::arange(0.0, 16.0, 1.0, &backend_cpu::cpu())?.reshape((1, 1, 4, 4))?;
    /// assert_eq!(MaxPool2d::new(2).forward(&x)?.to_vec::<f32>()?, [5.0, 7.0, 13.0, 15.0]);
    /// # Ok(()) }
    /// ```
    MaxPool, max_pool, ["max_pool1d", "max_pool2d", "max_pool3d"];
    /// Max pooling of `[N, C, L]`. `torch.nn.MaxPool1d`.
    MaxPool1d = 1;
    /// Max pooling of images `[N, C, H, W]`. `torch.nn.MaxPool2d`.
    MaxPool2d = 2;
    /// Max pooling of volumes `[N, C, D, H, W]`. `torch.nn.MaxPool3d`.
    MaxPool3d = 3;
}

pool! {
    /// Average pooling over `D` axes: see [`crate::functional::avg_pool2d`]. Use it as [`AvgPool1d`],
    /// [`AvgPool2d`] and [`AvgPool3d`].
    AvgPool, avg_pool, ["avg_pool1d", "avg_pool2d", "avg_pool3d"];
    /// Average pooling of `[N, C, L]`. `torch.nn.AvgPool1d`.
    AvgPool1d = 1;
    /// Average pooling of images `[N, C, H, W]`. `torch.nn.AvgPool2d`.
    AvgPool2d = 2;
    /// Average pooling of volumes `[N, C, D, H, W]`. `torch.nn.AvgPool3d`.
    AvgPool3d = 3;
}

/// Power-average pooling (Σxᵖ)^(1/p) over windows of `D` axes: see [`crate::functional::lp_pool2d`]. Use it
/// as [`LpPool1d`], [`LpPool2d`] and [`LpPool3d`].
#[derive(Clone, Copy)]
pub struct LpPool<const D: usize> {
    norm_type: f64,
    window: [usize; D],
    options: PoolOptions<D>,
}

/// Power-average pooling of `[N, C, L]`. `torch.nn.LPPool1d`.
#[doc(alias = "LPPool1d")]
pub type LpPool1d = LpPool<1>;
/// Power-average pooling of images `[N, C, H, W]`. `torch.nn.LPPool2d`.
#[doc(alias = "LPPool2d")]
pub type LpPool2d = LpPool<2>;
/// Power-average pooling of volumes `[N, C, D, H, W]`. `torch.nn.LPPool3d`.
#[doc(alias = "LPPool3d")]
pub type LpPool3d = LpPool<3>;

impl<const D: usize> LpPool<D> {
    /// Pools non-overlapping windows of `window` elements (one number for all axes, or one per axis) by
    /// their p-norm, with p the `norm_type`.
    pub fn new(norm_type: f64, window: impl Into<Window<D>>) -> LpPool<D> {
        LpPool::with_options(norm_type, window, PoolOptions::default())
    }

    /// A layer with a stride or ceil mode. Options that do not fit are an error of `forward`.
    pub fn with_options(norm_type: f64, window: impl Into<Window<D>>, options: PoolOptions<D>) -> LpPool<D> {
        LpPool { norm_type, window: window.into().0, options }
    }

    /// The output for an input `[N, C, …]` or `[C, …]`.
    ///
    /// # Errors
    /// As [`crate::functional::lp_pool2d`].
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let op = by_dims::<D>(["lp_pool1d", "lp_pool2d", "lp_pool3d"]);
        record!(self, lp_pool(op, input, self.norm_type, self.window, self.options))
    }
}

impl<const D: usize> fmt::Debug for LpPool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stride = self.options.stride.unwrap_or(self.window);
        write!(
            f,
            "LpPool{D}d(norm_type={:?}, kernel_size={:?}, stride={stride:?})",
            self.norm_type, self.window
        )
    }
}

layer!(LpPool<1>, LpPool<2>, LpPool<3>);
stateless!(LpPool<1>, LpPool<2>, LpPool<3>);

/// The partial inverse of [`MaxPool`]: see [`crate::functional::max_unpool2d`]. Use it as [`MaxUnpool1d`],
/// [`MaxUnpool2d`] and [`MaxUnpool3d`].
#[derive(Clone, Copy)]
pub struct MaxUnpool<const D: usize> {
    window: [usize; D],
    options: UnpoolOptions<D>,
}

/// Max unpooling of `[N, C, L]`. `torch.nn.MaxUnpool1d`.
pub type MaxUnpool1d = MaxUnpool<1>;
/// Max unpooling of images `[N, C, H, W]`. `torch.nn.MaxUnpool2d`.
pub type MaxUnpool2d = MaxUnpool<2>;
/// Max unpooling of volumes `[N, C, D, H, W]`. `torch.nn.MaxUnpool3d`.
pub type MaxUnpool3d = MaxUnpool<3>;

impl<const D: usize> MaxUnpool<D> {
    /// Unpools non-overlapping windows of `window` elements (one number for all axes, or one per axis).
    pub fn new(window: impl Into<Window<D>>) -> MaxUnpool<D> {
        MaxUnpool::with_options(window, UnpoolOptions::default())
    }

    /// A layer for windows with a stride or padding, or with an output size. Options that do not fit are an
    /// error of `forward`.
    pub fn with_options(window: impl Into<Window<D>>, options: UnpoolOptions<D>) -> MaxUnpool<D> {
        MaxUnpool { window: window.into().0, options }
    }

    /// The output for an input `[N, C, …]` or `[C, …]` and the indices of the pooling.
    ///
    /// # Errors
    /// As [`crate::functional::max_unpool2d`].
    #[track_caller]
    pub fn forward(&self, input: &Tensor, indices: &Tensor) -> Result<Tensor> {
        let op = by_dims::<D>(["max_unpool1d", "max_unpool2d", "max_unpool3d"]);
        record!(self, max_unpool(op, input, indices, self.window, self.options))
    }
}

impl<const D: usize> fmt::Debug for MaxUnpool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnpoolOptions { stride, padding, .. } = self.options;
        let stride = stride.unwrap_or(self.window);
        write!(f, "MaxUnpool{D}d(kernel_size={:?}, stride={stride:?}, padding={padding:?})", self.window)
    }
}

stateless!(MaxUnpool<1>, MaxUnpool<2>, MaxUnpool<3>);
