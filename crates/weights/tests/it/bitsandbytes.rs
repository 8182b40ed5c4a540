//! Weights of four bits that bitsandbytes stored (`scripts/quantize_fixtures.py`), and damaged ones.

use tensor_core::DType;

use crate::common::{bytes, cpu, open};

#[test]
fn weights_are_blocks_with_the_numbers_that_bitsandbytes_decodes() {
    let (d, file) = (cpu(), open("bitsandbytes.safetensors"));
    let decoded = open("bitsandbytes_decoded.safetensors").state_dict(&d).unwrap();
    let all = file.state_dict(&d).unwrap();
    assert_eq!(all.keys().collect::<Vec<_>>(), decoded.keys().collect::<Vec<_>>());
    for (name, dtype) in [("nf4", DType::F32), ("double", DType::BF16), ("fp4", DType::F16)] {
        let name = format!("{name}.weight");
        let weight = file.tensor(&name, &d).unwrap();
        assert_eq!((weight.dtype(), weight.dims()), (dtype, all[&name].dims()));
        assert!(weight.block_format().is_some());
        for weight in [&weight, &all[&name]] {
            let found: Vec<f64> = weight.to_f64_vec().unwrap().into_iter().step_by(7).collect();
            let bound = if dtype == DType::F32 { 1e-7 } else { 1e-2 };
            taper_testing::assert_close(&found, &decoded[&name].to_f64_vec().unwrap(), (bound, bound), &name);
        }
    }
    assert!(file.is_part("double.weight.nested_absmax") && !file.is_part("nf4.bias"));
    assert_eq!(file.floats(DType::F32).tensor("fp4.weight", &d).unwrap().dtype(), DType::F32);
}

#[test]
fn damaged_descriptions_are_refused_by_the_weights_name() {
    let (d, good) = (cpu(), bytes("bitsandbytes.safetensors"));
    let replaced = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let mut bytes = good.clone();
        let at = bytes.windows(from.len()).rposition(|window| window == from.as_bytes()).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        bytes
    };
    for (from, to, words) in [
        ("\"blocksize\": 64", "\"blocksize\": 32", "blocks of 32"),
        (
            "\"dtype\": \"float32\", \"shape\": [3",
            "\"dtype\": \"float32\", \"shape\": [9",
            "does not fit its shape",
        ),
        ("\"shape\": [3, 70]", "\"shape\": [3, 70)", "description is damaged"),
    ] {
        let file = weights::from_bytes(replaced(from, to)).unwrap();
        let error = file.state_dict(&d).unwrap_err().to_string();
        assert!(error.contains("weight of bitsandbytes") && error.contains(words), "{error}");
    }
}
