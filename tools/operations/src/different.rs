//! Where results of integers and bools differ from PyTorch's on purpose. docs/guide/from-pytorch.md says
//! the same to users.

use taper::DType::{self, Bool, I8, I16, I32, I64, U8};

const INTEGERS: &[DType] = &[I64, I32, I16, I8, U8];
const ALL: &[DType] = &[I64, I32, I16, I8, U8, Bool];

/// A reason, and the rows it holds for: names, and the dtypes that differ.
pub type Difference = (&'static str, &'static [(&'static str, &'static [DType])]);

/// All differences.
pub const DIFFERENT: &[Difference] = &[
    (
        "whether any or all are true is bool, of u8 too",
        &[("any", &[U8]), ("all", &[U8]), ("any_axis", &[U8]), ("all_axis", &[U8])],
    ),
    ("of equal elements the first is named, on every device", &[("kthvalue", &[U8])]),
    ("the expression wraps in the dtype where the sums are asked for", &[("matmul_wide", &[I16, I8, U8])]),
    (
        "points of unsigned integers are subtracted as floats, and do not wrap",
        &[("trapezoid_at", &[U8]), ("cumulative_trapezoid_at", &[U8])],
    ),
    (
        "the row casts the numbers of bits to the dtype of what is shifted, and the expression to int64",
        &[
            ("bitwise_left_shift", &[I32, I16, I8, U8, Bool]),
            ("bitwise_right_shift", &[I32, I16, I8, U8, Bool]),
        ],
    ),
    (
        "layers and what they are made of take floats: an integer is cast by the user",
        &[
            ("functional::pairwise_distance", INTEGERS),
            ("functional::interpolate_with", &[U8]),
            ("functional::local_response_norm", &[I64]),
            ("functional::lp_pool1d", &[I64, Bool]),
            ("functional::lp_pool2d", &[I64, Bool]),
            ("functional::lp_pool3d", &[I64, Bool]),
            ("functional::max_pool2d_with", INTEGERS),
            ("functional::max_pool3d", INTEGERS),
            ("functional::max_pool_with_indices", INTEGERS),
            ("functional::avg_pool1d", &[I64]),
            ("functional::avg_pool2d_with", &[I64]),
            ("functional::avg_pool3d_with", &[I64]),
        ],
    ),
    (
        "linear algebra takes floats; the expressions of these rows add a matrix of floats to the input",
        &[
            ("linalg::cholesky", INTEGERS),
            ("linalg::cholesky_inverse", ALL),
            ("linalg::det", ALL),
            ("linalg::slogdet", ALL),
            ("linalg::logdet", INTEGERS),
            ("linalg::matrix_sqrth", INTEGERS),
            ("linalg::eigh", INTEGERS),
            ("linalg::eigvalsh", INTEGERS),
            ("linalg::lu", ALL),
            ("linalg::cond", ALL),
            ("linalg::tensorinv", ALL),
            ("linalg::solve_triangular", ALL),
            ("linalg::inv", ALL),
            ("linalg::matrix_power", ALL),
        ],
    ),
];

/// Whether a row's results in a dtype may be others than PyTorch's.
pub fn differs(name: &str, dtype: DType) -> bool {
    let mut listed = DIFFERENT.iter().flat_map(|(_, rows)| rows.iter());
    listed.any(|(row, dtypes)| *row == name && dtypes.contains(&dtype))
}
