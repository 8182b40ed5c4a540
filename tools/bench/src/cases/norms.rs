//! Normalization with its weights, forward and with every gradient of the sum of the result, weighted at
//! random. The memory is the limit: a batch must be read twice before the first result, once more for it, and
//! the same backwards.

use taper::{
    Tensor,
    nn::functional::{batch_norm, group_norm, rms_norm},
    prelude::TensorGrad,
};

use super::{pair, with_gradients};
use crate::{
    Result,
    case::Case,
    check::{all, host, part},
};

type Build = fn(&Tensor, &[Tensor]) -> taper::Result<Tensor>;

/// A norm, and the sets of elements that it normalizes together, for the check by plain loops.
#[derive(Clone, Copy)]
struct Norm {
    build: Build,
    shape: &'static [usize],
    /// The number of contiguous elements of a channel: 1 if the channels are the last axis.
    inner: usize,
    channels: usize,
    /// The set that an element belongs to.
    set: fn(usize) -> usize,
    sets: usize,
    /// Whether the mean is subtracted; then there is a bias, too.
    centred: bool,
    eps: f64,
}

/// Elements of a channel of an image, of an image, and the number of images.
const PIXELS: usize = 56 * 56;
const IMAGE: usize = 64 * PIXELS;
const IMAGES: usize = 8;
const WIDTH: usize = 1024;

pub(super) fn more() -> Vec<Case> {
    let images = Norm {
        build: |x, w| batch_norm(x, None, None, Some(&w[0]), Some(&w[1]), true, 0.1, 1e-5),
        shape: &[IMAGES, 64, 56, 56],
        inner: PIXELS,
        channels: 64,
        set: |at| at / PIXELS % 64,
        sets: 64,
        centred: true,
        eps: 1e-5,
    };
    let groups = Norm {
        build: |x, w| group_norm(x, 8, Some(&w[0]), Some(&w[1]), 1e-5),
        set: |at| at / (IMAGE / 8),
        sets: 8 * IMAGES,
        ..images
    };
    let rows = Norm {
        build: |x, w| rms_norm(x, [WIDTH], Some(&w[0]), None),
        shape: &[4096, WIDTH],
        inner: 1,
        channels: WIDTH,
        set: |at| at / WIDTH,
        sets: 4096,
        centred: false,
        eps: f32::EPSILON as f64,
    };
    vec![
        images.case("batch_norm_8x64x56x56_fwd_bwd"),
        groups.case("group_norm_8x64x56x56_fwd_bwd"),
        rows.case("rms_norm_4096x1024_fwd_bwd"),
    ]
}

impl Norm {
    fn case(self, name: &str) -> Case {
        let numel: usize = self.shape.iter().product();
        Case::new(name, move |inputs| {
            let x = inputs.centred(self.shape)?;
            let weights = (0..1 + usize::from(self.centred))
                .map(|_| inputs.centred([self.channels]))
                .collect::<Result<Vec<_>>>()?;
            let factors = inputs.rand(self.shape)?;
            let leaves: Vec<Tensor> =
                [&x].into_iter().chain(&weights).map(|leaf| leaf.clone().requires_grad()).collect();
            let given = factors.clone();
            let call = move || with_gradients((self.build)(&leaves[0], &leaves[1..])?, &given, &leaves);
            pair(call, move |results, _| self.check(results, &x, &weights, &factors))
        })
        // x and the factors are read forward and backward, the result and the gradient of x are written.
        .elements(6 * numel)
    }

    fn check(self, results: &[Tensor], x: &Tensor, weights: &[Tensor], factors: &Tensor) -> Result<()> {
        let wide = |x: &Tensor| -> Result<Vec<f64>> { Ok(host(x)?.into_iter().map(f64::from).collect()) };
        let (x, factors) = (wide(x)?, wide(factors)?);
        let weights = weights.iter().map(wide).collect::<Result<Vec<_>>>()?;
        let n = x.len();
        let channel = |at: usize| at / self.inner % self.channels;
        let mean_by_set = |value: &dyn Fn(usize) -> f64| -> Vec<f64> {
            let mut sums = vec![0.0; self.sets];
            (0..n).for_each(|at| sums[(self.set)(at)] += value(at));
            sums.iter().map(|sum| sum * self.sets as f64 / n as f64).collect()
        };
        let means = if self.centred { mean_by_set(&|at| x[at]) } else { vec![0.0; self.sets] };
        let variances = mean_by_set(&|at| (x[at] - means[(self.set)(at)]).powi(2));
        let scale = |at: usize| 1.0 / (variances[(self.set)(at)] + self.eps).sqrt();
        let normal: Vec<f64> = (0..n).map(|at| (x[at] - means[(self.set)(at)]) * scale(at)).collect();
        let bias = |at: usize| weights.get(1).map_or(0.0, |bias| bias[channel(at)]);
        let result: Vec<f64> = (0..n).map(|at| normal[at] * weights[0][channel(at)] + bias(at)).collect();
        let (mut of_weight, mut of_bias) = (vec![0.0; self.channels], vec![0.0; self.channels]);
        for at in 0..n {
            of_weight[channel(at)] += factors[at] * normal[at];
            of_bias[channel(at)] += factors[at];
        }
        let given = |at: usize| factors[at] * weights[0][channel(at)];
        let mean = if self.centred { mean_by_set(&given) } else { vec![0.0; self.sets] };
        let along = mean_by_set(&|at| given(at) * normal[at]);
        let of_x: Vec<f64> = (0..n)
            .map(|at| scale(at) * (given(at) - mean[(self.set)(at)] - normal[at] * along[(self.set)(at)]))
            .collect();
        let sum: f64 = result.iter().zip(&factors).map(|(y, f)| y * f).sum();
        let [gradients @ .., got_sum, got] = results else { return Err("no results".into()) };
        let relative = part(&got.device(), 1e-5);
        all("result", &host(got)?, &result, relative)?;
        for (k, (got, want)) in gradients.iter().zip([of_x, of_weight, of_bias]).enumerate() {
            all(&format!("gradient {k}"), &host(got)?, &want, 5.0 * relative)?;
        }
        // The terms of the sum cancel; their rounding errors do not.
        let got_sum = f64::from(host(got_sum)?[0]);
        if (got_sum - sum).abs() > 10.0 * relative * (n as f64).sqrt() {
            return Err(format!("wrong result: the sum is {got_sum}, expected {sum}").into());
        }
        Ok(())
    }
}
