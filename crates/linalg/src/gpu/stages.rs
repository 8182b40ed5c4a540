//! A program under construction, for matrices of one dtype in one batch.

use backend_wgpu::{WgslKernel, WgslProgram};
use taper_shaders::linalg as wgsl;
use tensor_core::DType;

use super::BLOCK;

/// A [`WgslProgram`] for a batch of matrices.
pub(super) struct Program {
    dtype: DType,
    pub(super) batch: usize,
    made: WgslProgram,
}

/// The type of a buffer's elements: the program's dtype, or a count.
#[derive(Clone, Copy)]
pub(super) enum Of {
    Numbers,
    Counts,
}

impl Program {
    pub(super) fn new(dtype: DType, batch: usize, inputs: &[&str], outputs: &[&str]) -> Program {
        Program { dtype, batch, made: WgslProgram::new(inputs, outputs) }
    }

    pub(super) fn is_f64(&self) -> bool {
        self.dtype == DType::F64
    }

    /// A buffer with `each` elements for each matrix.
    pub(super) fn temporary(mut self, name: &str, of: Of, each: usize) -> Program {
        let dtype = match of {
            Of::Numbers => self.dtype,
            Of::Counts => DType::U32,
        };
        // Empty buffers could not be told apart in a binding.
        self.made = self.made.temporary(name, dtype, (self.batch * each).max(1));
        self
    }

    /// A kernel from WGSL source: prepends the numbers, constants and library functions that it mentions,
    /// and its parameters.
    pub(super) fn kernel(&self, source: &[&str], params: &[(&str, usize)]) -> WgslKernel {
        let numbers = if self.is_f64() { wgsl::F64 } else { wgsl::F32 };
        let text = format!("{numbers}\nconst BLOCK = {BLOCK}u;\n{}", source.concat());
        let kernel = WgslKernel::new(taper_shaders::link(&text)).param("batch", self.batch as u32);
        params.iter().fold(kernel, |kernel, &(name, value)| kernel.param(name, value as u32))
    }

    pub(super) fn stage(mut self, kernel: WgslKernel, buffers: &[&str]) -> Program {
        self.made = self.made.stage(kernel, buffers);
        self
    }

    pub(super) fn repeat(mut self, rounds: usize, stages: &[(&WgslKernel, &[&str])]) -> Program {
        self.made = self.made.repeat(rounds, stages);
        self
    }

    /// Sets each element of `rows` × `columns` matrices to the result of `fn element(b: u32, r: u32, c:
    /// u32)`, whose body may read the buffers in `reads` and the element itself, as `to`.
    pub(super) fn each(
        self,
        to: (&str, Of),
        [rows, columns]: [usize; 2],
        reads: &[&str],
        body: &str,
    ) -> Program {
        let (to, of) = to;
        let element = match of {
            Of::Numbers => "T",
            Of::Counts => "u32",
        };
        let total = self.batch * rows * columns;
        let function = format!("\nfn element(b: u32, r: u32, c: u32) -> {element} {{ {body} }}\n");
        let params = [("total", total), ("rows", rows), ("columns", columns)];
        let kernel = self
            .kernel(&[&function, wgsl::EACH], &params)
            .inputs(reads)
            .outputs(&["to"])
            .workgroups(256, total.div_ceil(256));
        let buffers: Vec<&str> = reads.iter().copied().chain([to]).collect();
        self.stage(kernel, &buffers)
    }

    /// The finished program, with or without a buffer of failure codes, one for each matrix.
    pub(super) fn finish(self, codes: Option<&str>) -> WgslProgram {
        match codes {
            Some(codes) => self.made.failures(codes),
            None => self.made,
        }
    }
}
