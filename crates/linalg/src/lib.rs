//! Linear algebra for Taper's tensors, as in `torch.linalg`: factorizations, systems of equations, inverses,
//! determinants and norms.
//!
//! Matrices are in the last two axes, and the axes before them are a batch. They are f32 or f64, on the CPU
//! or, with the feature `wgpu`, on a GPU, if the adapter supports the dtype and a matrix has up to 24,576
//! rows and columns; nothing is copied to the host. Without a kernel, computing a result is an
//! [`ErrorKind::Unsupported`](tensor_core::ErrorKind::Unsupported), and `a.to(&taper::cpu())?` moves a
//! matrix to the CPU. Every function has PyTorch's gradient, and second derivatives where it is smooth. A
//! matrix without a result (a singular one, for example) is an
//! [`ErrorKind::LinAlg`](tensor_core::ErrorKind::LinAlg) when it is computed, which names its position in
//! the batch. On a GPU it is reported when a tensor that depends on it is read.
//!
//! ```
//! use tensor_core::Tensor;
//!
//! let cpu = backend_cpu::cpu();
//! let a = Tensor::new([[4.0f64, 2.0], [2.0, 3.0]], &cpu)?;
//! let b = Tensor::new([2.0f64, 1.0], &cpu)?;
//! let x = linalg::solve(&a, &b)?;
//! assert!(a.matmul(&x)?.allclose(&b, 1e-12, 0.0)?);
//! # Ok::<(), tensor_core::Error>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `routine` | the routines by name, and the checks of their inputs |
//! | `kernel`, `factor` | the CPU kernels for one matrix, by products of the backend or by faer |
//! | `gpu` | the GPU kernels for all matrices of a batch, in WGSL: panels and tiles, and Jacobi rotations |
//! | `cholesky`, `eigh`, `ldl`, `lu`, `qr`, `svd`, `lowrank` | factorizations |
//! | `solve`, `det`, `pinv` | solutions, determinants and inverses, from factorizations |
//! | `norm` | norms and condition numbers |
//! | `exp` | exponentials, and products of several matrices |

mod cholesky;
mod det;
mod eigh;
mod exp;
mod factor;
#[cfg(feature = "wgpu")]
mod gpu;
mod kernel;
mod ldl;
mod lowrank;
mod lu;
mod matrix;
mod norm;
mod outcome;
mod pinv;
mod qr;
mod routine;
mod solve;
mod svd;

pub use cholesky::{cholesky, cholesky_inverse, cholesky_solve};
pub use det::{det, logdet, slogdet};
pub use eigh::{Uplo, eigh, eigvalsh, matrix_sqrth, symmetric_function};
pub use exp::{matrix_exp, multi_dot};
pub use ldl::{ldl_factor, ldl_solve};
pub use lowrank::{pca_lowrank, svd_lowrank};
pub use lu::{lu, lu_solve};
pub use norm::{MatrixNorm, cond, matrix_norm};
pub use pinv::{Lstsq, Tolerance, lstsq, matrix_rank, pinv};
pub use qr::{QrMode, geqrf, householder_product, ormqr, qr};
pub use solve::{
    inv, matrix_power, solve, solve_triangular, solve_with, tensorinv, tensorsolve, tensorsolve_axes,
};
pub use svd::{polar, svd, svdvals};

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();
