//! Taper from Python: the native module `taper._taper` under a package with PyTorch's names.
//!
//! `cell` and `view` hold what a program can change; `tensor` is the class; `run` runs operations; `ops` has
//! the operations as tables; `autograd` and `optim` are gradients and their use. Whatever needs no number
//! of a tensor (modules, loaders, schedules) is in Python, in `python/taper`.

mod args;
mod autograd;
mod cell;
mod device;
mod distributions;
mod dtype;
mod ecosystem;
mod errors;
mod func;
mod handle;
mod lines;
mod ops;
mod optim;
mod print;
mod promote;
mod recurrent;
mod run;
mod tensor;
mod view;

use pyo3::prelude::*;

/// The native part of the package.
#[pymodule]
fn _taper(module: &Bound<'_, PyModule>) -> PyResult<()> {
    lines::hide_own_lines();
    run::end_evaluations_by_signals();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<tensor::PyTensor>()?;
    module.add_class::<dtype::PyDType>()?;
    module.add_class::<device::PyDevice>()?;
    module.add_class::<ops::PyGenerator>()?;
    module.add("_dtypes", dtype::names())?;
    ops::register(module)?;
    autograd::register(module)?;
    func::register(module)?;
    distributions::register(module)?;
    ecosystem::register(module)?;
    optim::register(module)?;
    recurrent::register(module)?;
    module.add_function(wrap_pyfunction!(dtype::promote_types, module)?)?;
    module.add_function(wrap_pyfunction!(dtype::get_default_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(dtype::set_default_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(device::cuda_device_count, module)?)?;
    module.add_function(wrap_pyfunction!(device::cuda_properties, module)?)?;
    module.add_function(wrap_pyfunction!(device::memory_stats, module)?)?;
    module.add_function(wrap_pyfunction!(device::empty_cache, module)?)?;
    module.add_function(wrap_pyfunction!(device::synchronize, module)?)?;
    module.add_function(wrap_pyfunction!(device::_num_threads, module)?)?;
    module.add_function(wrap_pyfunction!(device::_set_num_threads, module)?)?;
    module.add_function(wrap_pyfunction!(device::set_default_device, module)?)?;
    module.add_function(wrap_pyfunction!(device::get_default_device, module)?)?;
    module.add_function(wrap_pyfunction!(run::is_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(run::_set_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(run::_set_autocast, module)?)?;
    module.add_function(wrap_pyfunction!(tensor::_ints, module)?)
}
