//! Bad inputs: each is an error that says what was given, what was expected and what to do, and nothing
//! changes.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{device, reference_device, tensor};
use taper::prelude::*;

#[track_caller]
fn says<T>(result: Result<T>, words: &[&str]) {
    let text = match result {
        Ok(_) => panic!("no error where one that says {words:?} was expected"),
        Err(error) => {
            let line = error.location().unwrap_or_else(|| panic!("no line: {error}"));
            assert_eq!(line.file(), file!(), "{error}");
            error.to_string()
        }
    };
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

fn f(shape: &[usize]) -> Tensor {
    tensor(shape, 1, DType::F32, &device()).unwrap()
}

#[test]
fn misfits_of_shape_name_both() {
    says(
        f(&[64, 784]).matmul(&f(&[128, 784])),
        &["matmul", "[64, 784]", "[128, 784]", "784 and 128", "rhs.t()"],
    );
    says(f(&[2, 3]).add(&f(&[2])), &["add", "[2, 3]", "[2]", "reshape or expand"]);
    says(f(&[2, 3]).matmul(&f(&[])), &["matmul", "scalar"]);
    says(f(&[2, 2, 3]).matmul(&f(&[5, 3, 2])), &["leading axes"]);
    says(f(&[6]).reshape([4, -1]), &["reshape", "[6]", "do not divide"]);
    says(f(&[6]).reshape([7]), &["6 elements are not 7"]);
    says(f(&[2, 3]).expand([3, 3]), &["expand", "[2, 3]"]);
    says(f(&[2, 3]).permute([0, 0]), &["permute", "twice"]);
    says(Tensor::concat(&[&f(&[2, 3]), &f(&[3, 2])], 0), &["concat", "[2, 3]", "[3, 2]"]);
    says(Tensor::concat::<Tensor>(&[], 0), &["no tensors"]);
    says(Tensor::stack(&[&f(&[2]), &f(&[3])], 0), &["stack"]);
    says(f(&[2, 3]).t().and_then(|_| f(&[2, 3, 4]).t()), &["transpose(-2, -1)"]);
    says(Tensor::from_vec(vec![1f32; 5], [2, 3], &device()), &["5 elements", "[2, 3]"]);
    says(Tensor::new(vec![vec![1f32, 2.0], vec![3.0]], &device()), &["rows differ", "item 1"]);
    says(f(&[3, 4]).gather(0, &f(&[3, 5]).to_dtype(DType::I32).unwrap()), &["gather", "[3, 4]", "[3, 5]"]);
}

/// Sizes whose product overflows once reached kernels, which then wrote at wrapped positions.
#[test]
fn sizes_that_overflow_are_errors_where_they_are_written() {
    let d = device();
    let one = f(&[1]);
    let huge = 1usize << 32;
    let big = "too many elements";
    let (large, few) = (usize::MAX, f(&[4]));
    says(f(&[100_000]).pad(&[(large - 99_999, 100_002)], 0.0), &["pad", big]);
    says(f(&[2, 0]).pad(&[(1usize << 40, 0), (1 << 40, 0)], 0.0), &["pad", big]);
    says(one.expand([(1usize << 40) + 1, 1 << 24]), &["expand", big]);
    says(one.expand([huge, huge]), &["expand", big]);
    says(f(&[1, 0]).expand([large >> 1, 0]), &["expand", big]);
    says(one.expand([1usize << 60]), &["expand", big]);
    let (tall, wide) =
        (f(&[1, 1]).expand([1usize << 31, 1]).unwrap(), f(&[1, 1]).expand([1, 1usize << 31]).unwrap());
    says(tall.add(&wide), &["add", big]);
    says(tall.lt(&wide), &["lt", big]);
    says(tall.gt_scalar(0.0).where_cond(&wide, &one), &["where", big]);
    says(tall.matmul(&wide), &["matmul", big]);
    let many =
        |batch: usize, rows: usize, columns: usize| f(&[1, 1, 1]).expand([batch, rows, columns]).unwrap();
    says(many(1, 1 << 30, 1 << 20).matmul(&many(1 << 30, 1 << 20, 1)), &["matmul", big]);
    let line = one.expand([1usize << 59]).unwrap();
    says(Tensor::concat(&[&line, &line], 0), &["concat", big]);
    says(Tensor::stack(&[&line, &line], 0), &["concat", big]);
    says(few.reshape([large]), &["reshape", "4 elements"]);
    says(few.reshape([large, 2]), &["reshape", "4 elements"]);
    says(f(&[0]).reshape([huge, huge, 0]), &["reshape", big]);
    says(f(&[0]).reshape([large, 0]), &["reshape", big]);
    says(few.sum_axis(large, false), &["sum", "axis"]);
    says(Tensor::zeros([large, 2, 0], &d), &["[18446744073709551615, 2, 0]", big]);
    says(Tensor::ones([huge, huge], &d), &[big]);
    says(Tensor::from_vec(Vec::<f32>::new(), [large, 2, 0], &d), &["from_vec", big]);
    let rng = Generator::seed(1, &d);
    says(Tensor::rand([huge, huge], &rng), &[big]);
    says(Tensor::randperm(large, &rng), &["randperm", big]);
    says(Tensor::eye(huge, &d), &["eye", big]);
    says(Tensor::arange(i64::MIN, i64::MAX, 1, &d).and_then(|t| t.eval()), &["elements"]);
    says(Tensor::linspace(0.0, 1.0, large, &d), &["linspace", big]);
    let index = Tensor::zeros([1 << 31], (DType::I32, &d)).map(|_| ());
    if index.is_ok() {
        let index = Tensor::zeros([1], (DType::I32, &d)).unwrap().expand([1usize << 31]).unwrap();
        says(tall.index_select(1, &index), &["index_select", big]);
    }
    let pair = f(&[2]);
    for (before, interior, size) in [(3, 0, 4), (0, large, 4), (large, 0, 4), (1, 2, 4)] {
        let ([before, interior], shape) = ([before, interior].map(|n| [n].as_slice().into()), [size].into());
        says(pair.pad_between(before, interior, shape, 0.0.into()), &["pad", "leaves [4]"]);
    }
    // A view of the largest size that a tensor may have is a view like any other.
    let line = one.expand([(1usize << 60) - 1]).unwrap();
    assert_eq!(line.slice(0, 5..9).unwrap().to_vec::<f32>().unwrap(), vec![one.item::<f32>().unwrap(); 4]);
}

/// A slice of nothing had its place beyond the buffer, and lines of high rank were longer than a line.
#[test]
fn empty_slices_and_high_ranks() -> Result<()> {
    let d = device();
    let nothing = Tensor::zeros([7, 0], &d)?.select(0, 2)?;
    assert_eq!(nothing.pad(&[(1, 2)], 1.5)?.to_vec::<f32>()?, [1.5; 3]);
    let nothing = f(&[7, 0]).select(0, 2)?.flip(0)?;
    assert_eq!(nothing.pad(&[(1, 2)], 1.5)?.to_vec::<f32>()?, [1.5; 3]);
    let deep = f(&[1]).reshape(vec![1; 90])?;
    assert!(deep.to_string().starts_with("tensor([[[["));
    // A step that leaves the axis.
    assert_eq!(f(&[3]).slice_step(0, 1..3, isize::MAX)?.numel(), 1);
    assert_eq!(
        f(&[3, 4]).slice_step(0, 1..3, isize::MAX)?.to_vec::<f32>()?,
        f(&[3, 4]).slice(0, 1..2)?.to_vec::<f32>()?
    );
    // Axes 64 apart are not one.
    let mut shape = vec![1usize; 70];
    (shape[1], shape[65]) = (2, 3);
    let x = f(&[6]).reshape(shape)?;
    assert_eq!(x.sum_axis(1, false)?.to_f64_vec()?.len(), 3);
    assert_eq!(x.sum_axis(65, false)?.to_f64_vec()?.len(), 2);
    Ok(())
}

#[test]
fn wide_uniform_numbers_are_finite() -> Result<()> {
    let rng = Generator::seed(1, &device());
    let x = Tensor::uniform([1000], -3e38, 3e38, &rng)?.to_vec::<f32>()?;
    assert!(x.iter().all(|v| v.abs() <= 3e38) && x.iter().any(|v| *v < -1e38) && x.iter().any(|v| *v > 1e38));
    says(Tensor::uniform([2], 0.0, 1e39, &rng), &["uniform", "finite in f32"]);
    Ok(())
}

#[test]
fn misfits_of_axis_index_and_size() {
    says(f(&[2, 3]).sum_axis(2, false), &["sum", "axis 2", "[2, 3]"]);
    says(f(&[2, 3]).softmax(-3), &["softmax", "axis -3"]);
    says(f(&[2, 3]).sum_axis([0, 0], false), &["axis 0 is given twice"]);
    says(f(&[2, 3]).narrow(1, 2, 2), &["narrow", "[2, 3]"]);
    says(f(&[2, 3]).select(0, 2), &["select", "index 2", "size 2"]);
    says(f(&[2, 3]).slice_step(0, 0..2, 0), &["step 0"]);
    says(f(&[2, 0]).max(), &["max", "[2, 0]"]);
    says(f(&[2, 0]).argmax_axis(1, false), &["argmax"]);
    says(f(&[2, 3]).item::<f32>(), &["item", "6 elements", "to_vec"]);
    says(Tensor::arange(0.0, 1.0, 0.0, &device()), &["arange", "must not be 0"]);
    says(Tensor::arange(0.0, 1.0, -1.0, &device()), &["leads away"]);
    says(Tensor::randint(5, 5, [2], &Generator::seed(1, &device())), &["randint", "from 5 to 5"]);
}

#[test]
fn misfits_of_dtype_offer_the_cast() {
    let ints = f(&[2, 2]).to_dtype(DType::I32).unwrap();
    says(f(&[2, 2]).matmul(&ints), &["matmul", "f32", "i32", "to_dtype"]);
    says(ints.to_vec::<f32>(), &["to_vec", "i32", "f32", "to_dtype(DType::F32)"]);
    says(ints.softmax(0), &["softmax", "i32", "to_dtype"]);
    says(f(&[2]).index_select(0, &f(&[1])), &["integer", "to_dtype(DType::I32)"]);
    says(f(&[2]).where_cond(&f(&[2]), &f(&[2])), &["where", "bool"]);
    says(f(&[2]).bitwise_and(&f(&[2])), &["bitwise_and", "f32"]);
    let truth = f(&[2]).gt_scalar(0.0);
    says(truth.sub(&truth), &["sub", "bool"]);
    let device = device();
    if !device.supports(DType::F64) {
        says(Tensor::new([1.0], (DType::F64, &device)), &["f64", device.name(), "F32"]);
    }
}

#[test]
fn mixed_devices_name_both() {
    let (here, there) = (f(&[2]), tensor(&[2], 1, DType::F32, &reference_device()).unwrap());
    says(here.add(&there), &["add", here.device().name(), "reference", ".to(&device)"]);
    says(Tensor::concat(&[&here, &there], 0), &["concat", "reference"]);
    says(here.matmul(&there), &["matmul", "reference"]);
    assert!(here.to(&reference_device()).unwrap().add(&there).is_ok());
}

#[test]
fn operators_panic_with_their_twins_message() {
    let expected = f(&[2, 3]).add(&f(&[2])).unwrap_err().kind().to_string();
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| &f(&[2, 3]) + &f(&[2]))).unwrap_err();
    let message = panicked.downcast_ref::<String>().unwrap();
    assert!(message.starts_with(&expected) && message.contains(file!()), "{message}");
}

#[test]
fn unknown_devices_list_those_there_are() {
    says(taper::device("cuda"), &["cuda", "cpu", "auto"]);
    let gpus = cfg!(any(feature = "wgpu", feature = "vulkan", feature = "metal", feature = "dx12"));
    says(taper::device("wgpu:x"), &["wgpu:x", if gpus { "number" } else { "feature" }]);
    says(taper::device("wgpu:7"), &["wgpu:7"]);
    assert_eq!(taper::device("cpu").unwrap(), taper::cpu());
    assert_eq!(taper::devices()[0].name, "cpu");
    assert!(taper::devices()[0].memory.is_some());
}

#[test]
fn a_failed_load_leaves_the_module_as_it_was() -> Result<()> {
    let d = device();
    let rng = Generator::seed(1, &d);
    let layer = Linear::new(3, 2, &rng)?;
    let before = layer.weight.to_vec::<f32>()?;
    let mut state = layer.state_dict();
    state.insert("weight".into(), Tensor::zeros([2, 4], &d)?);
    state.insert("extra".into(), Tensor::zeros([1], &d)?);
    state.remove("bias");
    says(layer.load_state_dict(&state), &["bias", "extra", "weight", "[2, 4]", "nothing was changed"]);
    assert_eq!(layer.weight.to_vec::<f32>()?, before);
    Ok(())
}

#[test]
fn bad_training_settings_change_nothing() -> Result<()> {
    let d = device();
    for config in [
        SgdConfig { lr: f64::NAN, ..Default::default() },
        SgdConfig { lr: -1.0, ..Default::default() },
        SgdConfig { momentum: f64::INFINITY, ..Default::default() },
        SgdConfig { nesterov: true, ..Default::default() },
    ] {
        let w = Tensor::ones([2], &d)?.into_cell(true)?;
        (&w * 2.0).sum().backward()?;
        assert!(Sgd::new(vec![w.clone()], config).step().is_err());
        assert_eq!(w.to_vec::<f32>()?, [1.0, 1.0]);
    }
    let logits = f(&[4, 3]);
    says(cross_entropy(&logits, &Tensor::zeros([5], (DType::I32, &d))?), &["[4, 3]", "[5]"]);
    says(cross_entropy(&logits, &f(&[4])), &["class labels are integers", "to_dtype(DType::I32)"]);
    Ok(())
}

/// A function that learns its caller's line, handed to the standard library, learns a line there.
#[test]
fn no_error_is_made_by_a_function_that_is_handed_on() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders: Vec<_> = ["crates", "tools"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path().join("src"))
        .collect();
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code {
                let handed_on = [
                    "map_err(Error::",
                    "map_err(tensor_core::Error::",
                    "error| error.here())",
                    "e| e.here())",
                ];
                assert!(
                    !handed_on.iter().any(|what| line.contains(what)),
                    "{}: {line}: use Error::here_in",
                    path.display()
                );
            }
            files += 1;
        }
    }
    assert!(files > 100);
}

#[test]
fn errors_of_optimizers_name_the_line_of_the_step() {
    let w = f(&[2, 3]).requires_grad();
    w.set_grad(Some(f(&[3, 2])));
    let mut sgd = Sgd::new([w.clone()], SgdConfig { lr: 0.1, ..Default::default() });
    says(sgd.step(), &["[2, 3]", "[3, 2]"]);
    let build = |masters| Sgd::new(masters, SgdConfig { lr: 0.1, ..Default::default() });
    let mut masters = taper::optim::MasterWeights::new([w.clone()], build).unwrap();
    says(masters.step(), &["[2, 3]", "[3, 2]"]);
    says(taper::optim::MasterWeights::new([], build), &["no parameters"]);
    says(f(&[3]).histc(0, 0.0, 1.0), &["0 bins"]);
    says(f(&[3]).histc(3, 1.0, 0.0), &["finite bounds"]);
}
