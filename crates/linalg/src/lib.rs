//! Linear algebra for Taper's tensors, as `torch.linalg`: factorizations, systems of equations, and what is
//! made of them.
//!
//! Matrices lie in the last two axes, and the axes before them are a batch. They are of f32 or f64, on the
//! CPU or, with the feature `wgpu`, on a GPU, where f64 is what the adapter has of it and a matrix has up to
//! 24,576 rows and columns: nothing is copied to the host. Where there is no kernel a result is
//! [`ErrorKind::Unsupported`](tensor_core::ErrorKind::Unsupported) when it is computed, and
//! `a.to(&taper::cpu())?` moves a matrix over. Every function has PyTorch's gradient, and second derivatives
//! where it is smooth. A matrix that has no answer (singular, say) is
//! [`ErrorKind::LinAlg`](tensor_core::ErrorKind::LinAlg) when it is computed, with its place in the batch; on
//! a GPU, of whatever depends on it, when that is read.
//!
//! ```
//! use tensor_core::Tensor;
//!
//! let cpu = backend_cpu::cpu();
//! let a = Tensor::new([[4.0f64, 2.0], [2.0, 3.0]], &cpu)?;
//! let b = Tensor::new([2.0f64, 1.0], &cpu)?;
//! let x = linalg::solve(&a, &b, true)?;
//! assert!(a.matmul(&x)?.allclose(&b, 1e-12, 0.0)?);
//! # Ok::<(), tensor_core::Error>(())
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | `routine`, `kernel`, `factor` | the kernels: what is computed of one matrix, by products of the backend or by faer |
//! | `gpu` | the same of all matrices of a batch, in WGSL: panels and tiles, and Jacobi rotations |
//! | `cholesky`, `eigh`, `ldl`, `lu`, `qr`, `svd`, `lowrank` | factorizations |
//! | `solve`, `det`, `pinv` | what is made of them |
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
pub use solve::{inv, matrix_power, solve, solve_triangular, tensorinv, tensorsolve};
pub use svd::{polar, svd, svdvals};

/// The root of these sources, for `taper`: errors name no line in them.
#[doc(hidden)]
pub const ROOT: &str = file!();
