//! The operations, each a line of a table: name, arguments with their defaults, the name of the gradient
//! that PyTorch prints, and the operation of Taper. The package makes functions of the methods, and forms
//! in place.

mod activation;
mod create;
mod indexing;
mod join;
mod linalg;
mod loss;
mod movement;
mod nn;
mod pointwise;
mod pool;
mod product;
mod random;
mod reduce;
mod select;
mod special;

pub(crate) use random::PyGenerator;

use pyo3::prelude::*;

/// Methods of one tensor that give one tensor.
macro_rules! methods {
    ($($name:ident($x:ident $(, $arg:ident: $ty:ty $(= $default:expr)?)*) $grad:literal => $body:expr;)*) => {
        #[pyo3::pymethods]
        impl $crate::tensor::PyTensor {
            $(
                #[pyo3(signature = ($($arg $(= $default)?),*))]
                fn $name(
                    &self,
                    py: pyo3::Python<'_>,
                    $($arg: $ty),*
                ) -> pyo3::PyResult<$crate::tensor::PyTensor> {
                    let $x = self.read()?;
                    $crate::tensor::made(py, $grad, move || $body)
                }
            )*
        }
    };
}
pub(crate) use methods;

/// Functions of the module that give one tensor.
macro_rules! functions {
    ($register:ident: $($name:ident($($arg:ident: $ty:ty $(= $default:expr)?),*) $grad:literal => $body:expr;)*) => {
        $(
            #[pyo3::pyfunction]
            #[allow(clippy::too_many_arguments)] // those of PyTorch
            #[pyo3(signature = ($($arg $(= $default)?),*))]
            #[allow(clippy::too_many_arguments)] // those of PyTorch
            fn $name(py: pyo3::Python<'_>, $($arg: $ty),*) -> pyo3::PyResult<$crate::tensor::PyTensor> {
                $crate::tensor::made(py, $grad, move || $body)
            }
        )*
        /// Adds the functions of this file to the module.
        pub(crate) fn $register(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
            $( pyo3::types::PyModuleMethods::add_function(
                module, pyo3::wrap_pyfunction!($name, module)?)?; )*
            Ok(())
        }
    };
}
pub(crate) use functions;

/// Adds all functions to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    create::register(module)?;
    indexing::register(module)?;
    join::register(module)?;
    linalg::register(module)?;
    loss::register(module)?;
    nn::register(module)?;
    pool::register(module)?;
    product::register(module)?;
    random::register(module)?;
    special::register(module)
}
