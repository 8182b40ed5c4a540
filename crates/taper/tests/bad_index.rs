//! Bad indices, in a process of their own: a GPU reports them at the next read of anything, which could be another test's.
#![allow(clippy::unwrap_used)]

mod common;

use common::{device, tensor};
use taper::{DType, ErrorKind, Result, Tensor};

#[test]
fn a_bad_index_is_an_error_and_the_device_goes_on() -> Result<()> {
    let d = device();
    let x = tensor(&[3, 4], 1, DType::F32, &d)?;
    for bad in [3i32, -1] {
        let index = Tensor::from_vec(vec![0, bad], [2], &d)?;
        let error = x.index_select(0, &index)?.to_vec::<f32>().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { size: 3, axis: 0, .. }), "{error}");
        assert!(error.to_string().contains(&bad.to_string()), "{error}");
        let error =
            x.index_add(0, &index, &tensor(&[2, 4], 1, DType::F32, &d)?)?.to_vec::<f32>().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { .. }), "{error}");
        assert_eq!(x.to_vec::<f32>()?.len(), 12);
    }
    Ok(())
}
