//! [`conformance`]: tests everything that a backend must compute, in one call.

use tensor_core::{
    BinaryOp, CompareOp, CumulativeOp, DType, Device, ErrorKind, Generator, ReduceOp, Result, ScatterOp,
    Tensor, UnaryOp,
};

use crate::{VIEWS, agree, of, tensor};

/// Operations on tensors, compared with the reference backend.
struct Conformance<'a> {
    device: &'a Device,
    /// Whether a case is tried, by its name.
    takes: &'a dyn Fn(&str) -> bool,
    lacking: Vec<String>,
}

impl Conformance<'_> {
    /// Compares `f` with the reference backend, or records that the device reports it as unsupported.
    #[track_caller]
    fn holds(&mut self, what: &str, within: Option<(f64, f64)>, f: impl Fn(&Device) -> Result<Tensor>) {
        if !(self.takes)(what) {
            return;
        }
        let computed = f(self.device).and_then(|result| result.eval());
        match computed.as_ref().map_err(|error| error.kind()) {
            Err(ErrorKind::Unsupported { .. }) => self.lacking.push(what.to_string()),
            Ok(()) | Err(_) => agree(self.device, what, within, f),
        }
    }
}

/// Compares a backend with the reference: every kernel, for every dtype that the device lists and every
/// memory layout; non-finite results, empty tensors, overlapping windows. Returns the operations for
/// which the device reported [`ErrorKind::Unsupported`], which is allowed; anything else that is wrong
/// panics.
///
/// ```
/// let lacking = taper_testing::conformance(&taper_testing::reference());
/// assert!(lacking.is_empty(), "{lacking:?}");
/// ```
///
/// # Panics
/// A result that differs from the reference's, or an error that is not `Unsupported`; the message names
/// the operation.
#[track_caller]
pub fn conformance(device: &Device) -> Vec<String> {
    conformance_of(device, &|_| true)
}

/// [`conformance`] of the cases with such names. There are some 10,000, and a GPU compiles a kernel for each.
///
/// # Panics
/// As [`conformance`] does.
#[track_caller]
pub fn conformance_of(device: &Device, takes: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut c = Conformance { device, takes, lacking: Vec::new() };
    for &dtype in &device.info().dtypes {
        for (view, make) in VIEWS {
            c.holds(&format!("{view} of {dtype}"), None, |d| make(d, dtype, 1)?.contiguous());
            elementwise(&mut c, dtype, view, *make);
            reductions(&mut c, dtype, view, *make);
        }
        moves(&mut c, dtype);
        if dtype != DType::Bool {
            products(&mut c, dtype);
        }
    }
    c.lacking
}

type Make = fn(&Device, DType, u64) -> Result<Tensor>;

fn elementwise(c: &mut Conformance<'_>, dtype: DType, view: &str, make: Make) {
    let float = dtype.is_float();
    let unary = UnaryOp::ALL.iter().filter(|op| match op {
        UnaryOp::Not => !float,
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Relu => dtype != DType::Bool,
        _ => float,
    });
    // Near a zero of a function a relative tolerance is too strict, and for large results an absolute
    // one.
    let loose = float.then(|| if dtype.size() == 2 { (3e-2, 3e-2) } else { (1e-4, 1e-4) });
    for &op in unary {
        c.holds(&format!("{} of {view} {dtype}", op.name()), loose, |d| {
            let x = make(d, dtype, 2)?;
            // In the domain of roots and logarithms, and away from poles and jumps.
            Ok(if float { x.abs().add_scalar(0.3).unary(op) } else { x.unary(op) })
        });
    }
    for &op in BinaryOp::ALL {
        let has = match op {
            BinaryOp::Div | BinaryOp::Atan2 => float,
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => !float,
            BinaryOp::LeftShift | BinaryOp::RightShift | BinaryOp::Gcd => dtype.is_int(),
            BinaryOp::Add | BinaryOp::Mul => true,
            BinaryOp::Sub | BinaryOp::Maximum | BinaryOp::Minimum => dtype != DType::Bool,
            // Powers grow and quotients jump, so they have their own ranges.
            BinaryOp::Pow | BinaryOp::FloorDiv | BinaryOp::Remainder => {
                dtype.is_int() && dtype != DType::Bool
            }
        };
        if has {
            c.holds(&format!("{} of {view} {dtype}", op.name()), loose, |d| {
                make(d, dtype, 3)?.binary(op, &make(d, dtype, 4)?)
            });
        }
    }
    for &op in CompareOp::ALL {
        c.holds(&format!("{} of {view} {dtype}", op.name()), None, |d| {
            make(d, dtype, 5)?.compare(op, &make(d, dtype, 6)?)
        });
    }
    c.holds(&format!("where of {view} {dtype}"), None, |d| {
        let (a, b) = (make(d, dtype, 7)?, make(d, dtype, 8)?);
        a.gt(&b)?.where_cond(&a, &b)
    });
    for &to in &c.device.info().dtypes.clone() {
        c.holds(&format!("{view} {dtype} to {to}"), None, |d| make(d, dtype, 9)?.to_dtype(to));
    }
}

fn reductions(c: &mut Conformance<'_>, dtype: DType, view: &str, make: Make) {
    let float = dtype.is_float();
    let loose = float.then(|| if dtype.size() == 2 { (5e-2, 5e-2) } else { (1e-4, 1e-4) });
    for &op in ReduceOp::ALL {
        let has = match op {
            ReduceOp::Any | ReduceOp::All => dtype == DType::Bool,
            ReduceOp::Mean => float,
            ReduceOp::Max | ReduceOp::Min => dtype != DType::Bool && !view.contains("empty"),
            ReduceOp::Sum | ReduceOp::Prod => dtype != DType::Bool,
        };
        if has {
            c.holds(&format!("{} of all of {view} {dtype}", op.name()), loose, |d| {
                make(d, dtype, 10)?.reduce(op, .., false)
            });
            c.holds(&format!("{} along the last axis of {view} {dtype}", op.name()), loose, |d| {
                let x = make(d, dtype, 11)?;
                if x.rank() == 0 { x.reduce(op, .., true) } else { x.reduce(op, -1, true) }
            });
        }
    }
    if view.contains("0-d") || view.contains("empty") {
        return;
    }
    let along = |what: &str| format!("{what} along an axis of {view} {dtype}");
    c.holds(&along("argmax"), None, |d| make(d, dtype, 12)?.argmax_axis(0, false));
    c.holds(&along("argmin"), None, |d| make(d, dtype, 12)?.argmin_axis(-1, true));
    c.holds(&along("argsort"), None, |d| make(d, dtype, 13)?.argsort(0, true));
    for &op in CumulativeOp::ALL {
        let has = match op {
            CumulativeOp::Sum | CumulativeOp::Prod => dtype != DType::Bool,
            CumulativeOp::LogSumExp => float,
            CumulativeOp::ArgMax | CumulativeOp::ArgMin => true,
        };
        if has {
            c.holds(&along(op.name()), loose, |d| make(d, dtype, 14)?.cumulative(op, -1, true));
        }
    }
    if float {
        c.holds(&along("softmax"), loose, |d| make(d, dtype, 15)?.softmax(-1));
    }
}

fn moves(c: &mut Conformance<'_>, dtype: DType) {
    let what = |what: &str| format!("{what} of {dtype}");
    let index = |d: &Device| of(&[2.0, 0.0, 1.0, 1.0, 0.0, 2.0], &[2, 3], DType::I32, d);
    c.holds(&what("concat"), None, |d| {
        Tensor::concat(
            &[&tensor(&[2, 3], 1, dtype, d)?, &tensor(&[2, 0], 2, dtype, d)?, &tensor(&[2, 5], 3, dtype, d)?],
            1,
        )
    });
    c.holds(&what("pad"), None, |d| tensor(&[2, 3], 4, dtype, d)?.pad(&[(1, 0), (2, 3)], 1));
    c.holds(&what("windows"), None, |d| tensor(&[2, 9], 5, dtype, d)?.windows(1, 3, 2, 2)?.contiguous());
    c.holds(&what("gather"), None, |d| tensor(&[2, 3], 6, dtype, d)?.gather(1, &index(d)?));
    at_indices(c, dtype);
    if dtype != DType::Bool {
        for op in [ScatterOp::Add, ScatterOp::Max, ScatterOp::Min, ScatterOp::Replace] {
            c.holds(&what(op.name()), None, |d| {
                tensor(&[2, 3], 7, dtype, d)?.scatter_with(op, 1, &index(d)?, &tensor(&[2, 3], 8, dtype, d)?)
            });
        }
        c.holds(&what("arange"), None, |d| Tensor::arange(0, 20, 3, (dtype, d)));
    }
    if dtype == DType::F32 {
        c.holds(&what("rand"), None, |d| Tensor::rand([50], &Generator::seed(3, d)));
        c.holds(&what("randn"), Some((1e-4, 1e-5)), |d| Tensor::randn([50], &Generator::seed(4, d)));
    }
}

/// Programs that read at indices: maps, reductions and rows of gathered elements, and of views of them.
fn at_indices(c: &mut Conformance<'_>, dtype: DType) {
    let what = |what: &str| format!("{what} of what is gathered of {dtype}");
    let loose = dtype.is_float().then(|| if dtype.size() == 2 { (3e-2, 3e-2) } else { (1e-4, 1e-4) });
    let rows = |d: &Device| {
        let index = of(&[2.0, 0.0, 6.0, 6.0, 1.0], &[5], DType::I32, d)?;
        tensor(&[7, 4], 31, dtype, d)?.index_select(0, &index)
    };
    let elements = |d: &Device| {
        let index = of(&[3.0, 0.0, 1.0, 1.0, 2.0, 2.0], &[3, 2], DType::I64, d)?;
        tensor(&[3, 4], 32, dtype, d)?.gather(1, &index)
    };
    c.holds(&what("a comparison"), None, |d| rows(d)?.ne(&tensor(&[5, 4], 33, dtype, d)?));
    c.holds(&what("a comparison by elements"), None, |d| elements(d)?.ne(&tensor(&[3, 2], 34, dtype, d)?));
    if dtype == DType::Bool {
        return;
    }
    c.holds(&what("a sum beside others"), loose, |d| rows(d)?.add(&tensor(&[4], 35, dtype, d)?));
    c.holds(&what("a view"), loose, |d| Ok(rows(d)?.t()?.slice(1, 1..)?.flip(0)?.mul_scalar(2)));
    c.holds(&what("sums of rows"), loose, |d| rows(d)?.sum_axis(0, false));
    c.holds(&what("sums of elements"), loose, |d| elements(d)?.sum_axis(-1, true));
    if dtype.is_float() {
        c.holds(&what("the softmax"), loose, |d| rows(d)?.softmax(-1));
    }
}

fn products(c: &mut Conformance<'_>, dtype: DType) {
    let loose = dtype.is_float().then(|| if dtype.size() == 2 { (3e-2, 5e-2) } else { (1e-4, 1e-4) });
    for (m, k, n) in [(1, 7, 5), (3, 4, 1), (9, 33, 17), (20, 0, 3), (65, 12, 70)] {
        c.holds(&format!("matmul of {dtype}: {m}, {k}, {n}"), loose, |d| {
            tensor(&[m, k], 1, dtype, d)?.matmul(&tensor(&[n, k], 2, dtype, d)?.t()?)
        });
    }
    for (m, k, n) in [(1, 7, 5), (9, 33, 17), (65, 12, 70)] {
        c.holds(&format!("matmul with a bias and an activation of {dtype}: {m}, {k}, {n}"), loose, |d| {
            let product = tensor(&[m, k], 1, dtype, d)?.matmul(&tensor(&[k, n], 2, dtype, d)?)?;
            Ok(product.add(&tensor(&[n], 9, dtype, d)?)?.relu())
        });
    }
    c.holds(&format!("batched matmul of {dtype}"), loose, |d| {
        tensor(&[2, 1, 4, 5], 3, dtype, d)?.matmul(&tensor(&[3, 5, 6], 4, dtype, d)?)
    });
    for equation in ["bqhd,bkhd->bhqk", "bhwcij,ocij->bohw", "abc,acb->"] {
        c.holds(&format!("einsum {equation} of {dtype}"), loose, |d| {
            let (left, right): (Vec<usize>, Vec<usize>) = match equation {
                "bqhd,bkhd->bhqk" => (vec![2, 3, 2, 4], vec![2, 5, 2, 4]),
                "abc,acb->" => (vec![2, 3, 4], vec![2, 4, 3]),
                _ => {
                    // A convolution: windows of images.
                    let images = tensor(&[2, 3, 6, 7], 5, dtype, d)?.permute([0, 2, 3, 1])?;
                    let windows = images.windows(1, 3, 1, 1)?.windows(2, 2, 2, 1)?;
                    return Tensor::einsum(equation, &[windows, tensor(&[4, 3, 3, 2], 6, dtype, d)?]);
                }
            };
            Tensor::einsum(equation, &[tensor(&left, 7, dtype, d)?, tensor(&right, 8, dtype, d)?])
        });
    }
}
