//! The choice of fused gathers, checked by the numbers of kernels and of bytes that they access, on the
//! reference backend.
#![allow(clippy::unwrap_used, clippy::panic)]

use taper_testing::{Reference, of, reference_limited, tensor};
use tensor_core::{
    DType, Device, ErrorKind, Result, Tensor, eval_all,
    kernel::{Body, Instr},
    plan_of,
};

/// The kernels that compute some tensors, by name, on a device whose programs read buffers of at most
/// this size at indices.
fn kernels_within(
    max_indexed_bytes: u64,
    f: impl Fn(&Device) -> Result<Vec<Tensor>>,
) -> Vec<(&'static str, usize)> {
    let (device, backend) = reference_limited(|limits| limits.max_indexed_bytes = max_indexed_bytes);
    let count = |backend: &Reference| -> Vec<(&'static str, usize)> {
        let mut all: Vec<_> = backend.kernels.lock().unwrap().drain().collect();
        all.sort_unstable();
        all
    };
    let results = f(&device).unwrap();
    count(&backend);
    eval_all(&results.iter().collect::<Vec<_>>()).unwrap();
    count(&backend)
}

/// The kernels with fused gathers, and those with separate gathers.
fn both(f: impl Fn(&Device) -> Result<Vec<Tensor>>) -> [Vec<(&'static str, usize)>; 2] {
    [1 << 30, 0].map(|bytes| kernels_within(bytes, &f))
}

/// A table of 5 rows of 4, six indices of rows, and four elements: all in memory.
fn operands(d: &Device) -> Result<[Tensor; 3]> {
    let all = [
        tensor(&[5, 4], 1, DType::F32, d)?,
        of(&[3.0, 0.0, 4.0, 4.0, 1.0, 2.0], &[6], DType::I32, d)?,
        tensor(&[4], 2, DType::F32, d)?,
    ];
    eval_all(&all.iter().collect::<Vec<_>>())?;
    Ok(all)
}

#[test]
fn maps_reductions_and_rows_read_for_themselves() {
    let map = |d: &Device| {
        let [table, index, b] = operands(d)?;
        Ok(vec![table.index_select(0, &index)?.add(&b)?.relu()])
    };
    assert_eq!(both(map), [vec![("map", 1)], vec![("gather", 1), ("map", 1)]]);
    // Rows of rows: a view of a gather is fused as well.
    let embedding = |d: &Device| {
        let [table, index, b] = operands(d)?;
        Ok(vec![table.index_select(0, &index)?.reshape([2, 3, 4])?.mul(&b)?])
    };
    assert_eq!(both(embedding), [vec![("map", 1)], vec![("gather", 1), ("map", 1)]]);
    let bag = |d: &Device| {
        let [table, index, _] = operands(d)?;
        Ok(vec![table.index_select(0, &index)?.reshape([2, 3, 4])?.sum_axis(1, false)?])
    };
    assert_eq!(both(bag), [vec![("sum", 1)], vec![("gather", 1), ("sum", 1)]]);
    let rows = |d: &Device| {
        let [table, index, b] = operands(d)?;
        Ok(vec![table.index_select(0, &index)?.add(&b)?.softmax(-1)?])
    };
    // The reference backend stores at most four results per kernel.
    assert_eq!(both(rows), [vec![("map", 1), ("rows", 1)], vec![("gather", 1), ("map", 1), ("rows", 1)]]);
    // Transposed, sliced and repeated views.
    let views = |d: &Device| {
        let [table, index, _] = operands(d)?;
        let turned = table.index_select(0, &index)?.t()?.slice(1, 1..)?.flip(1)?;
        Ok(vec![turned.unsqueeze(0)?.expand([3, 4, 5])?.exp()])
    };
    assert_eq!(both(views), [vec![("map", 1)], vec![("gather", 1), ("map", 1)]]);
}

#[test]
fn an_index_is_computed_where_it_is_used() {
    // Negative indices count from the end.
    let along = |d: &Device| {
        let [table, _, b] = operands(d)?;
        let index = of(&[-1.0, 3.0, 0.0, -5.0], &[1, 4], DType::I32, d)?;
        index.eval()?;
        Ok(vec![table.take_along_dim(&index, 0)?.mul(&b)?])
    };
    assert_eq!(both(along), [vec![("map", 1)], vec![("gather", 1), ("map", 2)]]);
    // The index is gathered itself.
    let nested = |d: &Device| {
        let [table, index, _] = operands(d)?;
        let order = of(&[5.0, 0.0, 2.0, 1.0], &[4], DType::I32, d)?;
        order.eval()?;
        let column = table.narrow(1, 2, 1)?.squeeze(1)?;
        Ok(vec![column.gather(0, &index.gather(0, &order)?)?.neg()])
    };
    assert_eq!(both(nested), [vec![("map", 1)], vec![("gather", 2), ("map", 1)]]);
}

#[test]
fn what_memory_is_wanted_for_is_a_gather() {
    // Only a gather, a gather whose tensor is kept, and an operand of a product.
    let alone = |d: &Device| {
        let [table, index, _] = operands(d)?;
        Ok(vec![table.index_select(0, &index)?])
    };
    assert_eq!(both(alone), [vec![("gather", 1)], vec![("gather", 1)]]);
    let kept = |d: &Device| {
        let [table, index, _] = operands(d)?;
        let rows = table.index_select(0, &index)?;
        Ok(vec![rows.clone(), rows.relu()])
    };
    assert_eq!(both(kept)[0], [("gather", 1), ("map", 1)]);
    let product = |d: &Device| {
        let [table, index, b] = operands(d)?;
        Ok(vec![table.index_select(0, &index)?.matmul(&b.unsqueeze(1)?)?])
    };
    assert_eq!(both(product)[0], [("gather", 1), ("matmul", 1)]);
    // Kernels over other elements each read it themselves, unless its index is too expensive to repeat.
    let several = |d: &Device, wrap: bool| {
        let [table, _, _] = operands(d)?;
        let index = of(&[-1.0, 3.0, 0.0, -5.0], &[1, 4], DType::I32, d)?;
        index.eval()?;
        let index = if wrap {
            index.lt_scalar(0).where_cond(&index.add_scalar(5), &index)?
        } else {
            index.abs().remainder_scalar(5)
        };
        if !wrap {
            index.eval()?;
        }
        let rows = table.gather(0, &index)?;
        Ok(vec![rows.sum_axis(0, false)?, rows.sum_axis(1, false)?])
    };
    let gathers = |wrap: bool| both(|d| several(d, wrap))[0].iter().any(|(name, _)| *name == "gather");
    assert!(gathers(true) && !gathers(false));
    // The table is computed first.
    let computed = |d: &Device| {
        let [table, index, b] = operands(d)?;
        Ok(vec![table.exp().index_select(0, &index)?.add(&b)?])
    };
    assert_eq!(both(computed), [vec![("map", 2)], vec![("gather", 1), ("map", 2)]]);
}

#[test]
fn a_device_whose_gathers_are_fast_keeps_them_before_maps() {
    let count = |f: &dyn Fn(&Device) -> Result<Tensor>| {
        let (device, backend) = reference_limited(|limits| limits.gathers_in_maps = false);
        let result = f(&device).unwrap();
        backend.kernels.lock().unwrap().clear();
        result.eval().unwrap();
        backend.kernels.lock().unwrap().get("gather").copied().unwrap_or(0)
    };
    let rows = |d: &Device| {
        let [table, index, _] = operands(d)?;
        table.index_select(0, &index)
    };
    assert_eq!(count(&|d| Ok(rows(d)?.relu())), 1);
    assert_eq!(count(&|d| Ok(rows(d)?.reshape([2, 12])?.neg())), 1);
    // Reductions, and computed indices.
    assert_eq!(count(&|d| rows(d)?.sum_axis(0, false)), 0);
    assert_eq!(count(&|d| rows(d)?.exp().sum_axis(1, false)), 0);
    assert_eq!(
        count(&|d| {
            let [table, _, b] = operands(d)?;
            let index = of(&[-1.0, 3.0, 0.0, -5.0], &[1, 4], DType::I32, d)?;
            index.eval()?;
            table.take_along_dim(&index, 0)?.mul(&b)
        }),
        0
    );
}

#[test]
fn few_inputs_are_enough() {
    // Each gather takes two inputs.
    for max_inputs in [3, 4, 5, 8] {
        let (device, _) = reference_limited(|limits| limits.max_inputs = max_inputs);
        let [table, index, b] = operands(&device).unwrap();
        let mut sum = table.index_select(0, &index).unwrap().add(&b).unwrap();
        let mut expected = {
            let rows = table.index_select(0, &index).unwrap();
            rows.eval().unwrap();
            rows.add(&b).unwrap()
        };
        for k in 0..5 {
            let other = tensor(&[5 + k, 4], k as u64, DType::F32, &device).unwrap();
            let moved = index.add_scalar(k as i64).remainder_scalar(5);
            let rows = other.index_select(0, &moved).unwrap();
            sum = sum.add(&rows).unwrap();
            let rows = other.index_select(0, &moved).unwrap();
            rows.eval().unwrap();
            expected = expected.add(&rows).unwrap();
        }
        assert_eq!(sum.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap(), "{max_inputs} inputs");
    }
}

#[test]
fn the_plan_says_what_is_read() {
    let (device, _) = reference_limited(|_| ());
    let [table, index, b] = operands(&device).unwrap();
    let result = table.index_select(0, &index).unwrap().add(&b).unwrap();
    let plan = plan_of(&result).unwrap();
    let [only] = &plan.kernels[..] else { panic!("{plan:?}") };
    let Body::Map(program) = &only.kernel.body else { panic!("{plan:?}") };
    assert!(program.instrs.iter().any(|instr| matches!(instr, Instr::LoadAt { .. })));
    assert!(program.to_string().contains(" at r"), "{program}");
    let names: Vec<&str> = only.operations.iter().map(|operation| operation.name.as_str()).collect();
    assert!(names.contains(&"Gather"), "{names:?}");
    // Six rows of four, but no more than the table has; six indices; four elements. A separate gather
    // would also write and read the rows.
    assert_eq!(only.kernel.bytes_read(), 4 * (20 + 6 + 4));
    assert_eq!(only.kernel.bytes_written(), 4 * 24);
}

#[test]
fn a_bad_index_names_the_gather_and_its_line() {
    let (device, _) = reference_limited(|_| ());
    let [table, index, b] = operands(&device).unwrap();
    // The bounds of sums are unknown.
    let unknown = |values: &[f64]| {
        let index = of(values, &[6, 1], DType::I32, &device).unwrap();
        let sum = index.sum_axis(1, false).unwrap();
        sum.eval().unwrap();
        sum
    };
    let bad = unknown(&[0.0, 1.0, 5.0, 0.0, 0.0, 0.0]);
    let good = table.index_select(0, &index).unwrap();
    let line = line!() + 1;
    let rows = table.index_select(0, &bad).unwrap();
    let sum = good.add(&rows).unwrap().add(&b).unwrap().relu();
    for _ in 0..2 {
        let error = sum.eval().unwrap_err();
        let ErrorKind::IndexOutOfRange { op: "gather", index: 5, axis: 0, size: 5 } = *error.kind() else {
            panic!("{error}")
        };
        assert!(error.to_string().contains(&format!("gathers.rs:{line}:")), "{error}");
    }
    // A value that does not depend on the bad index is good.
    good.mul(&b).unwrap().eval().unwrap();
    // An index that is known to be bad is an error before anything runs.
    let error = table.index_select(0, &of(&[0.0, 9.0, 1.0], &[3], DType::I32, &device).unwrap());
    let error = error.unwrap().neg().eval().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { index: 9, .. }), "{error}");
}
