//! Each body of a kernel that can be shipped, by each compiler; and what cannot be shipped.

use autograd::{compile, no_grad};
use nn::functional::{
    AttentionOptions, ConvOptions, conv2d, embedding, layer_norm, max_pool2d, scaled_dot_product_attention,
};
use ship::{Budget, Target, ship};
use tensor_core::{DType, Result, Tensor};

use crate::programs::{Case, case, check, native_case, page_error};

/// Numbers from −2 to 2.
pub(crate) fn floats(shape: &[usize], seed: u64) -> Tensor {
    let n: usize = shape.iter().product();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let numbers: Vec<f32> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u32 << 22) as f32 - 2.0
        })
        .collect();
    Tensor::from_vec(numbers, shape.to_vec(), &backend_cpu::cpu()).unwrap()
}

/// Whole numbers from 0 to below `end`, minus `below`.
fn integers(shape: &[usize], seed: u64, (end, below): (u32, f64), dtype: DType) -> Tensor {
    let numbers =
        floats(shape, seed).add_scalar(2.0).mul_scalar(f64::from(end) / 4.0).floor().sub_scalar(below);
    let integers = numbers.to_dtype(dtype).unwrap();
    integers.eval().unwrap();
    integers
}

fn one(result: Result<Tensor>) -> Result<Vec<Tensor>> {
    Ok(vec![result?])
}

#[test]
fn maps() {
    let (x, y) = (floats(&[3, 20], 1), floats(&[3, 20], 2));
    let bytes = |seed, dtype| integers(&[5, 7], seed, (256, 128.0), dtype);
    let same = |name: &str, dtype: DType, refusal: Option<&str>| {
        let f = |x: &[Tensor]| {
            let (a, b) = (&x[0], &x[1]);
            let sum = a.add(b)?.mul(&a.sub(b)?)?;
            let more = a.floor_divide(b)?.add(&a.remainder(b)?)?;
            let bits = a.bitwise_xor(b)?.bitwise_and(&a.bitwise_or(&b.bitwise_left_shift(3)?)?)?;
            let pick = a.gt(b)?.where_cond(&a.maximum(b)?, &b.relu().neg())?;
            Ok(vec![sum, more, bits, pick, a.bitwise_right_shift(2)?, a.le(b)?, a.powi(3)])
        };
        let arguments = vec![bytes(1, dtype), bytes(2, dtype)];
        match refusal {
            None => case(name, 0.0, arguments, f),
            Some(refusal) => native_case(name, 0.0, arguments, f, refusal),
        }
    };
    check(&[
        case("broadcast", 1e-6, vec![x.clone(), floats(&[20], 3)], |x| one(x[0].mul(&x[1])?.add(&x[0]))),
        case("several", 1e-6, vec![x.clone(), y.clone()], |x| {
            Ok(vec![x[0].add(&x[1])?, x[0].sub(&x[1])?, x[0].div(&x[1])?, x[0].maximum(&x[1])?])
        }),
        case("views", 1e-6, vec![x.clone()], |x| one(x[0].t()?.flip(0)?.add_scalar(1.0).mul(&x[0].t()?))),
        case("powers", 1e-5, vec![x.clone()], |x| {
            Ok(vec![x[0].powi(2), x[0].powi(3), x[0].powi(7), x[0].powi(-2), x[0].powi(1)])
        }),
        native_case(
            "wide_casts",
            0.0,
            vec![x.mul_scalar(100.0)],
            |x| {
                let wide = [DType::I64, DType::F64].map(|dtype| x[0].to_dtype(dtype));
                let [whole, double] = wide;
                let (whole, double) = (whole?, double?);
                let back = [&whole, &double].map(|y| y.to_dtype(DType::F32));
                let narrow = whole.to_dtype(DType::I8)?;
                let [a, b] = back;
                Ok(vec![whole, double, a?, b?, narrow])
            },
            "cannot be shipped to a page",
        ),
        case("casts", 0.0, vec![x.mul_scalar(100.0)], |x| {
            let to = [DType::I8, DType::I32, DType::U32, DType::Bool, DType::I16];
            let wide: Result<Vec<Tensor>> = to.iter().map(|&dtype| x[0].to_dtype(dtype)).collect();
            let mut all = wide?;
            let back: Result<Vec<Tensor>> = all.iter().map(|y| y.to_dtype(DType::F32)).collect();
            all.extend(back?);
            all.push(all[1].to_dtype(DType::I8)?);
            Ok(all)
        }),
        case("indices", 0.0, vec![bytes(3, DType::I64)], |x| {
            let wrapped = x[0].add_scalar(7).remainder_scalar(5);
            Ok(vec![x[0].lt_scalar(0).where_cond(&wrapped, &x[0])?, x[0].to_dtype(DType::F32)?])
        }),
        native_case(
            "doubles",
            1e-12,
            vec![x.to_dtype(DType::F64).unwrap().contiguous().unwrap()],
            |x| Ok(vec![x[0].mul(&x[0])?.sub_scalar(0.1).abs(), x[0].isnan()]),
            "f64",
        ),
        case("ranges", 0.0, vec![x.clone()], |x| {
            let positions = Tensor::arange(0.5, 30.5, 0.5, &x[0].device())?.reshape([3, 20])?;
            one(positions.add(&x[0]))
        }),
        same("int8", DType::I8, None),
        same("int32", DType::I32, None),
        same("int64", DType::I64, Some("arithmetic of i64")),
    ]);
}

#[test]
fn reductions() {
    let x = floats(&[4, 5, 6], 1);
    let x_nan = x.masked_fill(&x.gt_scalar(1.9), f64::NAN).unwrap().contiguous().unwrap();
    let whole = |dtype| integers(&[4, 5, 6], 2, (100, 50.0), dtype);
    let folds = |x: &[Tensor]| {
        let x = &x[0];
        Ok(vec![
            x.sum_axis(1, false)?,
            x.mul(x)?.mean_axis((0, 2), false)?,
            x.prod_axis(2, true)?,
            x.amax((0, 1), false)?,
            x.amin(2, false)?,
            x.argmax_axis(1, false)?,
            x.argmin_axis(0, false)?,
            x.sum(),
        ])
    };
    let exact = |x: &[Tensor]| {
        let x = &x[0];
        Ok(vec![
            x.sum_axis(1, false)?,
            x.amax(2, false)?,
            x.argmax_axis(1, false)?,
            x.gt_scalar(0).any_axis(0, false)?,
        ])
    };
    check(&[
        case("folds", 1e-5, vec![x.clone()], folds),
        case("folds_nan", 1e-5, vec![x_nan], folds),
        case("whole", 0.0, vec![whole(DType::I32)], exact),
        case("softmax", 1e-6, vec![x.clone()], |x| {
            Ok(vec![x[0].softmax(2)?, x[0].log_softmax(1)?, x[0].logsumexp(2, false)?])
        }),
        case("norm", 1e-5, vec![x.clone(), floats(&[6], 3)], |x| {
            one(layer_norm(&x[0], [6], Some(&x[1]), None, 1e-5))
        }),
        case("running", 1e-5, vec![x.clone()], |x| {
            let (greatest, at) = x[0].cummax(1)?;
            Ok(vec![x[0].cumsum(1)?, x[0].cumprod(2)?, x[0].flip(0)?.cumsum(0)?, greatest, at])
        }),
    ]);
}

#[test]
fn products() {
    let matrix = |a: usize, b: usize, seed| floats(&[a, b], seed);
    let (w, bias) = (matrix(10, 20, 2), floats(&[10], 3));
    let dense = move |x: &[Tensor]| one(x[0].matmul(&w.t()?)?.add(&bias)?.relu().softmax(1));
    let wide = matrix(20, 37, 4);
    let (kernel, depthwise) = (floats(&[4, 2, 3, 3], 5), floats(&[2, 1, 3, 3], 6));
    let [small, long] = [7, 8].map(|seed| integers(&[6, 6], seed, (256, 128.0), DType::I8));
    let options = ConvOptions { stride: [2, 1], padding: [1, 1].into(), ..Default::default() };
    check(&[
        case("dense", 1e-6, vec![matrix(3, 20, 1)], dense),
        case("prime", 1e-5, vec![matrix(3, 20, 1)], move |x| {
            one(x[0].matmul(&wide)?.tanh().add(&x[0].sum()))
        }),
        case("both", 1e-5, vec![floats(&[2, 5, 6], 1), floats(&[2, 6, 7], 2)], |x| one(x[0].matmul(&x[1]))),
        case("transposed", 1e-5, vec![matrix(9, 5, 1), matrix(9, 8, 2)], |x| one(x[0].t()?.matmul(&x[1]))),
        case("dots", 1e-5, vec![matrix(5, 9, 1), matrix(8, 9, 2)], |x| one(x[0].matmul(&x[1].t()?))),
        case("vector", 1e-5, vec![floats(&[9], 1), floats(&[9], 2)], |x| one(x[0].dot(&x[1]))),
        case("conv", 1e-5, vec![floats(&[1, 2, 9, 8], 1)], move |x| {
            one(conv2d(&x[0], &kernel, None, options))
        }),
        case("depthwise", 1e-5, vec![floats(&[1, 2, 9, 8], 1)], move |x| {
            one(conv2d(&x[0], &depthwise, None, ConvOptions { groups: 2, ..Default::default() }))
        }),
        case(
            "whole_products",
            0.0,
            vec![small.to_dtype(DType::I32).unwrap().contiguous().unwrap()],
            move |x| one(x[0].matmul(&long.to_dtype(DType::I32)?)?.add_scalar(7).to_dtype(DType::I8)),
        ),
        case("attention", 1e-5, vec![floats(&[1, 2, 5, 8], 1), floats(&[1, 2, 5, 8], 2)], |x| {
            let options = |is_causal| AttentionOptions { is_causal, ..Default::default() };
            Ok(vec![
                scaled_dot_product_attention(&x[0], &x[1], &x[0], options(true))?,
                scaled_dot_product_attention(&x[1], &x[0], &x[0], options(false))?,
            ])
        }),
    ]);
}

#[test]
fn indices_and_copies() {
    let x = floats(&[4, 6], 1);
    let at = |shape: &[usize], end| integers(shape, 5, (end, 0.0), DType::I64);
    let pool = |name: &str, pad: usize| -> Case {
        let options =
            nn::functional::PoolOptions { stride: Some([2, 2]), padding: [pad, pad], ..Default::default() };
        case(name, 0.0, vec![floats(&[1, 2, 9, 8], 1)], move |x| {
            one(nn::functional::max_pool2d_with(&x[0], [3, 3], options))
        })
    };
    let table = floats(&[7, 5], 2);
    check(&[
        case("gather", 0.0, vec![x.clone(), at(&[4, 3], 6)], |x| one(x[0].gather(1, &x[1]))),
        case("gather_in_map", 1e-6, vec![x.clone(), at(&[4, 3], 6)], |x| {
            one(x[0].gather(1, &x[1])?.exp().sum_axis(1, false))
        }),
        case("embedding", 0.0, vec![at(&[2, 3], 7)], move |x| one(embedding(&x[0], &table))),
        case("scatter", 1e-6, vec![x.clone(), at(&[4, 3], 6), floats(&[4, 3], 3)], |x| {
            Ok(vec![x[0].scatter_add(1, &x[1], &x[2])?, x[0].scatter(1, &x[1], &x[2])?])
        }),
        case("concat", 0.0, vec![x.clone(), floats(&[2, 6], 3)], |x| {
            one(Tensor::concat(&[&x[0], &x[1], &x[0]], 0))
        }),
        case("pad", 0.0, vec![x.clone()], |x| one(x[0].pad(&[(1, 2), (0, 3)], 1.5))),
        case("plain_pool", 0.0, vec![floats(&[1, 2, 9, 8], 1)], |x| one(max_pool2d(&x[0], [3, 3]))),
        pool("padded_pool", 1),
    ]);
}

#[test]
fn an_index_out_of_range_is_an_error() {
    let table = floats(&[7, 5], 2);
    let at = |below: f64| vec![integers(&[20], 5, (7, below), DType::I64)];
    let case = case("bad_index", 0.0, at(0.0), move |x| one(embedding(&x[0], &table)));
    let case = case.with_arguments(&at(-1.0));
    let text = case.interpreter_error();
    assert!(text.contains("the index 7 is outside of an axis of 7"), "{text}");
    if let Some(text) = page_error(&case) {
        assert!(text.contains("an index is outside of the axis"), "{text}");
    }
}

/// The line of the user is in the error of an operation that cannot be shipped.
#[test]
fn refusals_name_their_lines() {
    let refused = |f: &dyn Fn(Tensor) -> Result<Tensor>, line: u32| {
        let compiled = compile(|x: Tensor| f(x));
        let _ = no_grad(|| compiled.call(floats(&[4, 6], 1))).unwrap();
        let text = ship(&compiled, Target::Rust).unwrap_err().to_string();
        assert!(text.contains(&format!("bodies.rs:{line}")), "{line}: {text}");
        text
    };
    let line = line!();
    let text = refused(&|x| x.sort(1, false).map(|(sorted, _)| sorted), line + 1);
    assert!(text.contains("a sort cannot be shipped"), "{text}");
    let text = refused(&|x| Ok(x.to_dtype(DType::F64)?.exp()), line + 3);
    assert!(text.contains("exp of f64"), "{text}");
    let text = refused(&|x| x.to_dtype(DType::F16)?.add_scalar(1.0).to_dtype(DType::F32), line + 5);
    assert!(text.contains("f16"), "{text}");
    let rng = tensor_core::Generator::seed(1, &backend_cpu::cpu());
    let text = refused(&|x| x.add(&Tensor::rand([4, 6], &rng)?), line + 8);
    assert!(text.contains("random"), "{text}");
    let w = floats(&[4, 6], 2).into_cell(false).unwrap();
    let text = refused(&|x| w.assign(&x).map(|()| x.add_scalar(1.0)), line + 11);
    assert!(text.contains("assigns a cell"), "{text}");
}

#[test]
fn a_function_is_called_before_it_is_shipped() {
    let compiled = compile(|x: Tensor| Ok(x.exp()));
    let text = ship(&compiled, Target::C).unwrap_err().to_string();
    assert!(text.contains("call it once first"), "{text}");
    let weight = floats(&[4, 6], 5).into_cell(true).unwrap();
    let recorded = compile(move |x: Tensor| x.mul(&weight));
    let _ = recorded.call(floats(&[4, 6], 6)).unwrap();
    let text = ship(&recorded, Target::C).unwrap_err().to_string();
    assert!(text.contains("within no_grad"), "{text}");
}

#[test]
fn a_passed_budget_names_the_largest_tensors() {
    let w = floats(&[100, 50], 1);
    let compiled = compile(move |x: Tensor| x.matmul(&w)?.exp().matmul(&w.t()?));
    let _ = no_grad(|| compiled.call(floats(&[20, 100], 2))).unwrap();
    let program = ship(&compiled, Target::C).unwrap();
    let sizes = program.sizes();
    assert_eq!((sizes.weights, sizes.arena, sizes.peak), (2 * 20_000, 4000, 4000));
    assert!(sizes.code > 100 && sizes.to_string().contains("arena 3.91 KiB"), "{sizes}");
    let check = |flash, ram| Budget { flash, ram }.check(sizes);
    check(Some(64 << 10), Some(4000)).unwrap();
    let text = check(None, Some(3999)).unwrap_err().to_string();
    assert!(
        text.contains("RAM") && text.contains("1000 elements of f32 made by") && text.contains("bodies.rs"),
        "{text}"
    );
    let text = check(Some(40_000), None).unwrap_err().to_string();
    assert!(text.contains("flash") && text.contains("5000 elements of f32 read by matmul at"), "{text}");
    assert!(program.named("Not a name").is_err());
}
