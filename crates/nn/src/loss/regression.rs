//! Losses of numbers: squared and absolute distance.

use tensor_core::{Result, Tensor};

use super::{Reduction, check_pair};

macro_rules! distance {
    ($($(#[$doc:meta])* $loss:ident, $function:ident => |$difference:ident| $formula:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $loss {
            /// What is returned: the mean by default.
            pub reduction: Reduction,
        }

        impl $loss {
            /// The loss of `input` against `target`, of one shape.
            ///
            /// # Errors
            /// Two shapes (nothing is broadcast), dtypes that are not floating-point, or two devices.
            #[track_caller]
            pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
                check_pair(stringify!($function), input, target)?;
                let $difference = input.sub(target)?;
                Ok(self.reduction.apply(&$formula))
            }
        }

        $(#[$doc])*
        /// The mean over all elements.
        ///
        /// # Errors
        /// Two shapes (nothing is broadcast), dtypes that are not floating-point, or two devices.
        #[track_caller]
        pub fn $function(input: &Tensor, target: &Tensor) -> Result<Tensor> {
            $loss::default().forward(input, target)
        }
    )*};
}

distance! {
    /// (input − target)². `torch.nn.MSELoss`.
    MseLoss, mse_loss => |difference| difference.powi(2);
    /// |input − target|. `torch.nn.L1Loss`.
    L1Loss, l1_loss => |difference| difference.abs();
}
