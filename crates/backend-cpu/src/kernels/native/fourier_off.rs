//! Fourier transforms in a build without the feature `fft`: an error that names the feature.

use tensor_core::{CustomKernel, Error, ErrorKind, Fourier, Launch, Result};

use super::custom::Native;
use crate::CpuBackend;

impl Native for Fourier {
    fn run(&self, _: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported {
            op: self.name(),
            device: "cpu".into(),
            dtype: launch.kernel.operands[0].dtype,
            hint: "build with the feature `fft` of the crate `taper` (or `taper-backend-cpu`)".into(),
        }))
    }
}
