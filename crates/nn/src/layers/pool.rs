//! Pooling as layers.

use std::fmt;

use tensor_core::{Result, Tensor};

use super::{layer, record, stateless};
use crate::functional::{PoolOptions, Window, avg_pool, max_pool};

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
            /// Windows of so many elements, one number for all axes or one for each, side by side.
            pub fn new(window: impl Into<Window<D>>) -> $layer<D> {
                $layer::with_options(window, PoolOptions::default())
            }

            /// Windows with a stride, padding or dilation. What does not fit is an error of `forward`.
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
                record(self, $function(NAMES[D.clamp(1, 3) - 1], input, self.window, self.options))
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
    /// The greatest element of each window over `D` axes: see [`crate::functional::max_pool2d`]. [`MaxPool1d`], [`MaxPool2d`] and
    /// [`MaxPool3d`] are its names.
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
    /// Over `[N, C, L]`. `torch.nn.MaxPool1d`.
    MaxPool1d = 1;
    /// Over images. `torch.nn.MaxPool2d`.
    MaxPool2d = 2;
    /// Over volumes. `torch.nn.MaxPool3d`.
    MaxPool3d = 3;
}

pool! {
    /// The mean of each window over `D` axes: see [`crate::functional::avg_pool2d`]. [`AvgPool1d`], [`AvgPool2d`] and [`AvgPool3d`]
    /// are its names.
    AvgPool, avg_pool, ["avg_pool1d", "avg_pool2d", "avg_pool3d"];
    /// Over `[N, C, L]`. `torch.nn.AvgPool1d`.
    AvgPool1d = 1;
    /// Over images. `torch.nn.AvgPool2d`.
    AvgPool2d = 2;
    /// Over volumes. `torch.nn.AvgPool3d`.
    AvgPool3d = 3;
}
