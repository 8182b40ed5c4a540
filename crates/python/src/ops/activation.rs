//! Activations, which `torch.nn.functional` has as functions.

use super::methods;
use crate::{args::Value, dtype::Kind};

methods! {
    relu(x) "ReluBackward0" => Ok(x.relu());
    relu6(x) "HardtanhBackward0" => Ok(x.relu6());
    sigmoid(x) "SigmoidBackward0" => Ok(x.sigmoid());
    silu(x) "SiluBackward0" => Ok(x.silu());
    mish(x) "MishBackward0" => Ok(x.mish());
    selu(x) "EluBackward0" => Ok(x.selu());
    softsign(x) "DivBackward0" => Ok(x.softsign());
    tanhshrink(x) "SubBackward0" => Ok(x.tanhshrink());
    logsigmoid(x) "LogSigmoidBackward0" => Ok(x.logsigmoid());
    hardsigmoid(x) "HardsigmoidBackward0" => Ok(x.hardsigmoid());
    hardswish(x) "HardswishBackward0" => Ok(x.hardswish());
    _gelu(x, tanh: bool) "GeluBackward0" => Ok(if tanh { x.gelu_tanh() } else { x.gelu() });
    softplus(x, beta: f64 = 1.0, threshold: f64 = 20.0) "SoftplusBackward0" => {
        Ok(x.softplus_with(beta, threshold))
    };
    elu(x, alpha: f64 = 1.0) "EluBackward0" => Ok(x.elu(alpha));
    celu(x, alpha: f64 = 1.0) "CeluBackward0" => Ok(x.celu(alpha));
    leaky_relu(x, negative_slope: f64 = 0.01) "LeakyReluBackward0" => Ok(x.leaky_relu(negative_slope));
    hardtanh(x, min_val: f64 = -1.0, max_val: f64 = 1.0) "HardtanhBackward0" => {
        if min_val > max_val {
            let message = "min_val cannot be greater than max_val";
            return Err(crate::errors::keep("hardtanh", crate::errors::wrong_value(message)));
        }
        Ok(x.hardtanh(min_val, max_val))
    };
    hardshrink(x, lambd: f64 = 0.5) "HardshrinkBackward0" => Ok(x.hardshrink(lambd));
    softshrink(x, lambd: f64 = 0.5) "SoftshrinkBackward0" => {
        if lambd < 0.0 {
            let message = format!("lambda must be greater or equal to 0, but found to be {lambd}.");
            return Err(taper::Error::invalid("softshrink", message));
        }
        Ok(x.softshrink(lambd))
    };
    threshold(x, threshold: f64, value: f64) "ThresholdBackward0" => Ok(x.threshold(threshold, value));
    glu(x, dim: isize = -1) "GluBackward0" => x.glu(dim);
    prelu(x, weight: Value) "PreluKernelBackward0" => x.prelu(&weight.0);
    softmin(x, dim: isize) "SoftmaxBackward0" => x.softmin(dim);
    softmax(x, dim: isize, dtype: Option<Kind> = None) "SoftmaxBackward0" => match dtype {
        Some(Kind(dtype)) => x.to_dtype(dtype)?.softmax(dim),
        None => x.softmax(dim),
    };
    log_softmax(x, dim: isize, dtype: Option<Kind> = None) "LogSoftmaxBackward0" => match dtype {
        Some(Kind(dtype)) => x.to_dtype(dtype)?.log_softmax(dim),
        None => x.log_softmax(dim),
    };
}
