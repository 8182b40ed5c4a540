//! Averages of parameters.
#![allow(clippy::unwrap_used)]

use crate::common::{assert_close, bits, device, devices, shown};
use autograd::TensorGrad;
use optim::AveragedParameters;
use tensor_core::{DType, Device, Error, Result, Stateful, Tensor};

fn leaf(values: &[f32], device: &Device) -> Tensor {
    Tensor::from_slice(values, [values.len()], device).unwrap().requires_grad()
}

fn set(x: &Tensor, value: f64) {
    x.assign(&x.detach().full_like(value)).unwrap();
}

#[test]
fn averages_are_pytorchs() {
    for device in devices() {
        let (x, y) = (leaf(&[1.0, 2.0], &device), leaf(&[0.0], &device));
        let parameters = [x.clone(), y.clone()];
        let mut ema = AveragedParameters::ema(parameters.clone(), 0.75).unwrap();
        let mut swa = AveragedParameters::swa(parameters).unwrap();
        // The first update copies the values.
        for value in [4.0, 8.0, 0.0] {
            set(&x, value);
            set(&y, -value);
            ema.update().unwrap();
            swa.update().unwrap();
        }
        // 4, 4 + 0.25·4 = 5, 5 − 0.25·5.
        assert_close(&ema.averages()[0], &[3.75, 3.75]);
        assert_close(&ema.averages()[1], &[-3.75]);
        assert_close(&swa.averages()[0], &[4.0, 4.0]);
        assert_eq!((ema.updates(), swa.updates()), (3, 3));
        assert_close(&x, &[0.0, 0.0]);
    }
}

#[test]
fn a_model_is_evaluated_with_averages_and_gets_its_values_back() {
    let device = device();
    let x = leaf(&[1.0, 2.0], &device);
    let mut swa = AveragedParameters::swa([x.clone()]).unwrap();
    swa.update().unwrap();
    set(&x, 5.0);
    swa.update().unwrap();
    let inside = swa.with(|| x.to_vec::<f32>()).unwrap();
    assert_eq!(inside, [3.0, 3.5]);
    assert_close(&x, &[5.0, 5.0]);
    let failed: Result<()> = swa.with(|| Err(Error::invalid("mine", "no")));
    assert!(failed.is_err());
    assert_close(&x, &[5.0, 5.0]);
    let copy = leaf(&[0.0, 0.0], &device);
    swa.assign_to(std::slice::from_ref(&copy)).unwrap();
    assert_close(&copy, &[3.0, 3.5]);
}

#[test]
fn half_precision_does_not_stand_still() {
    // Repeated steps of 0.001 round to nothing in bf16, but the factor 0.999 must not be 1.
    let x = Tensor::full([1], 1.0, (DType::BF16, &device())).unwrap().requires_grad();
    let mut ema = AveragedParameters::ema([x.clone()], 0.99).unwrap();
    ema.update().unwrap();
    set(&x, 2.0);
    ema.update().unwrap();
    assert_eq!(ema.averages()[0].to_f64_vec().unwrap(), [1.0078125]);
}

#[test]
fn the_state_goes_on_where_it_was_saved() {
    for device in devices() {
        let x = leaf(&[1.0, 2.0], &device);
        let mut first = AveragedParameters::ema([x.clone()], 0.9).unwrap();
        for value in [0.3, 0.7] {
            set(&x, value);
            first.update().unwrap();
        }
        let mut second = AveragedParameters::ema([x.clone()], 0.9).unwrap();
        second.load_state_dict(&first.state_dict()).unwrap();
        set(&x, 0.1);
        first.update().unwrap();
        second.update().unwrap();
        assert_eq!(bits(&first.averages()[0]), bits(&second.averages()[0]));
        let mut state = first.state_dict();
        state.insert("averages.0", Tensor::zeros([3], &device).unwrap());
        let before = shown(&second.state_dict());
        let message = second.load_state_dict(&state).unwrap_err().to_string();
        assert!(message.contains("averages.0"), "{message}");
        state.remove("averages.0");
        let message = second.load_state_dict(&state).unwrap_err().to_string();
        assert!(message.contains("missing [\"averages.0\"]"), "{message}");
        assert_eq!(shown(&second.state_dict()), before);
    }
}

#[test]
fn what_makes_no_sense_is_an_error() {
    let device = device();
    let x = leaf(&[1.0, 2.0], &device);
    let says = |result: Result<AveragedParameters>, part: &str| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    };
    says(AveragedParameters::ema([x.clone()], 1.5), "decay 1.5");
    says(AveragedParameters::ema([x.clone()], f64::NAN), "decay NaN");
    says(AveragedParameters::swa([]), "no parameters");
    says(AveragedParameters::swa([x.clone(), x.clone()]), "given twice");
    says(AveragedParameters::swa([x.detach()]), "no parameter");
    let averages = AveragedParameters::swa([x.clone(), leaf(&[3.0], &device)]).unwrap();
    let (fits, other) = (leaf(&[0.0, 0.0], &device), leaf(&[0.0, 0.0], &device));
    let message = averages.assign_to(&[&fits, &other]).unwrap_err().to_string();
    assert!(message.contains("[2]") && message.contains("[1]"), "{message}");
    assert!(averages.assign_to(&[&fits]).unwrap_err().to_string().contains("1 parameters for 2 averages"));
    assert_close(&fits, &[0.0, 0.0]);
}
