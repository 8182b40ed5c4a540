//! Convolutions and pooling: forward, and forward with the gradients of the sum of the result, weighted at
//! random.

use taper::{
    Tensor,
    autograd::{TensorGrad, grad},
    nn::functional::{
        ConvOptions, ConvTransposeOptions, PoolOptions, avg_pool2d, conv_transpose2d, conv1d, conv2d,
        max_pool2d, max_pool2d_with,
    },
};

use super::{one, pair};
use crate::{
    Result,
    case::{Case, Inputs},
    check::{elements, host},
};

/// Computes the case from an input and, in a convolution, a weight.
type Build = fn(&Tensor, Option<&Tensor>) -> taper::Result<Tensor>;

/// A convolution or a pooling of images `[n, c, h, w]`; of lines, h and its window are 1.
#[derive(Clone, Copy)]
struct Windows {
    build: Build,
    input: &'static [usize],
    weight: Option<&'static [usize]>,
    /// The window, its stride, and the padding on both sides, along h and w.
    window: [usize; 2],
    stride: usize,
    padding: [usize; 2],
    groups: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Convolution,
    Transposed,
    Max,
    Mean,
}

fn missing() -> taper::Error {
    taper::Error::invalid("bench", "the case has no weight")
}

impl Windows {
    fn conv(
        build: Build,
        input: &'static [usize],
        weight: &'static [usize],
        stride: usize,
        padding: [usize; 2],
        groups: usize,
    ) -> Windows {
        let window = [if weight.len() == 4 { weight[2] } else { 1 }, weight[weight.len() - 1]];
        let (weight, kind) = (Some(weight), Kind::Convolution);
        Windows { build, input, weight, window, stride, padding, groups, kind }
    }

    fn pool(
        build: Build,
        input: &'static [usize],
        window: usize,
        stride: usize,
        padding: usize,
        kind: Kind,
    ) -> Windows {
        let (window, padding) = ([window; 2], [padding; 2]);
        Windows { build, input, weight: None, window, stride, padding, groups: 1, kind }
    }

    /// The input as `[n, c, h, w]`.
    fn images(&self) -> [usize; 4] {
        match *self.input {
            [n, c, h, w] => [n, c, h, w],
            [n, c, w] => [n, c, 1, w],
            _ => [1; 4],
        }
    }

    fn outputs(&self) -> [usize; 4] {
        let [n, c, h, w] = self.images();
        let along = |size: usize, axis: usize| match self.kind {
            Kind::Transposed => (size - 1) * self.stride + self.window[axis],
            Kind::Convolution | Kind::Max | Kind::Mean => {
                (size + 2 * self.padding[axis] - self.window[axis]) / self.stride + 1
            }
        };
        let channels = match (self.weight, self.kind) {
            (Some(weight), Kind::Transposed) => weight[1],
            (Some(weight), _) => weight[0],
            (None, _) => c,
        };
        [n, channels, along(h, 0), along(w, 1)]
    }

    /// The outputs as the result has them.
    fn output_shape(&self) -> Vec<usize> {
        let [n, c, h, w] = self.outputs();
        if self.input.len() == 3 { vec![n, c, w] } else { vec![n, c, h, w] }
    }

    fn inputs(&self, inputs: &Inputs) -> Result<(Tensor, Option<Tensor>)> {
        Ok((inputs.rand(self.input)?, self.weight.map(|shape| inputs.rand(shape)).transpose()?))
    }

    fn flop(&self) -> usize {
        let Some(weight) = self.weight else { return 0 };
        let [n, _, h, w] = if self.kind == Kind::Transposed { self.images() } else { self.outputs() };
        2 * n * h * w * weight.iter().product::<usize>()
    }

    /// The element of the result at a place, from plain loops.
    fn element(&self, x: &[f32], weight: &[f32], at: usize) -> f64 {
        let [_, channels, height, width] = self.images();
        let [_, outputs, oh, ow] = self.outputs();
        let (n, o, y, z) = (at / (ow * oh * outputs), at / (ow * oh) % outputs, at / ow % oh, at % ow);
        let value = |c: usize, row: isize, column: isize| -> Option<f64> {
            let inside = row >= 0 && column >= 0 && (row as usize) < height && (column as usize) < width;
            inside
                .then(|| f64::from(x[((n * channels + c) * height + row as usize) * width + column as usize]))
        };
        let [kh, kw] = self.window;
        let taps = (0..kh).flat_map(|i| (0..kw).map(move |j| (i, j)));
        let place =
            |at: usize, k: usize, axis: usize| (at * self.stride + k) as isize - self.padding[axis] as isize;
        match self.kind {
            Kind::Max | Kind::Mean => {
                let seen = taps.filter_map(|(i, j)| value(o, place(y, i, 0), place(z, j, 1)));
                if self.kind == Kind::Max {
                    seen.fold(f64::MIN, f64::max)
                } else {
                    seen.sum::<f64>() / (kh * kw) as f64
                }
            }
            Kind::Convolution => {
                let of_group = channels / self.groups;
                let first = o / (outputs / self.groups) * of_group;
                let mut sum = 0.0;
                for c in 0..of_group {
                    for (i, j) in taps.clone() {
                        let tap = f64::from(weight[((o * of_group + c) * kh + i) * kw + j]);
                        sum += tap * value(first + c, place(y, i, 0), place(z, j, 1)).unwrap_or(0.0);
                    }
                }
                sum
            }
            Kind::Transposed => {
                let mut sum = 0.0;
                for c in 0..channels {
                    for (i, j) in taps.clone() {
                        let from = |at: usize, k: usize| {
                            let at = at as isize - k as isize;
                            (at >= 0 && at % self.stride as isize == 0).then(|| at / self.stride as isize)
                        };
                        if let (Some(row), Some(column)) = (from(y, i), from(z, j)) {
                            let tap = f64::from(weight[((c * outputs + o) * kh + i) * kw + j]);
                            sum += tap * value(c, row, column).unwrap_or(0.0);
                        }
                    }
                }
                sum
            }
        }
    }

    fn check(&self, result: &Tensor, x: &Tensor, weight: Option<&Tensor>) -> Result<()> {
        let (x, weight) = (host(x)?, weight.map(host).transpose()?.unwrap_or_default());
        elements(result, &self.output_shape(), 1e-5, |at| self.element(&x, &weight, at))
    }

    fn forward(self, name: &str) -> Case {
        let flop = self.flop();
        let case = Case::new(name, move |inputs| {
            let (x, weight) = self.inputs(inputs)?;
            let (input, factor) = (x.clone(), weight.clone());
            let build = move || (self.build)(&input, factor.as_ref());
            one(build, move |result| self.check(result, &x, weight.as_ref()))
        });
        if flop > 0 { case.flop(flop) } else { case }
    }

    /// Checked by the result, and by what holds of its gradients: the result is linear in each input (for
    /// maxima, homogeneous), so that the weighted sum is the inner product of an input and its gradient.
    fn backward(self, name: &str) -> Case {
        let flop = 3 * self.flop();
        let case = Case::new(name, move |inputs| {
            let (x, weight) = self.inputs(inputs)?;
            let leaves: Vec<Tensor> = [Some(x.clone()), weight.clone()]
                .into_iter()
                .flatten()
                .map(TensorGrad::requires_grad)
                .collect();
            let factors = inputs.rand(self.output_shape())?;
            let inputs: Vec<Tensor> = leaves.clone();
            let call = move || {
                let result = (self.build)(&leaves[0], leaves.get(1))?;
                let sum = result.mul(&factors)?.sum();
                let refs: Vec<&Tensor> = leaves.iter().collect();
                let gradients: Option<Vec<Tensor>> = grad(&[&sum], &refs, false)?.into_iter().collect();
                let mut all = gradients.ok_or_else(missing)?;
                all.extend([sum.detach(), result.detach()]);
                taper::eval_all(&all.iter().collect::<Vec<_>>())?;
                Ok(all)
            };
            pair(call, move |results, _| {
                let [gradients @ .., sum, result] = results else { return Err("no results".into()) };
                self.check(result, &x, weight.as_ref())?;
                let sum = sum.item_f64()?;
                for (input, gradient) in inputs.iter().zip(gradients) {
                    let (input, gradient) = (host(&input.detach())?, host(gradient)?);
                    let inner: f64 =
                        input.iter().zip(&gradient).map(|(x, g)| f64::from(*x) * f64::from(*g)).sum();
                    if (inner - sum).abs() > 1e-4 * sum.abs() {
                        return Err(format!("an input times its gradient is {inner}, expected {sum}").into());
                    }
                }
                Ok(())
            })
        });
        if flop > 0 { case.flop(flop) } else { case }
    }
}

fn conv3x3(x: &Tensor, w: Option<&Tensor>) -> taper::Result<Tensor> {
    conv2d(x, w.ok_or_else(missing)?, None, ConvOptions { padding: 1.into(), ..Default::default() })
}

fn conv1x1(x: &Tensor, w: Option<&Tensor>) -> taper::Result<Tensor> {
    conv2d(x, w.ok_or_else(missing)?, None, ConvOptions::default())
}

fn stem(x: &Tensor, w: Option<&Tensor>) -> taper::Result<Tensor> {
    let options = ConvOptions { stride: [2, 2], padding: 3.into(), ..Default::default() };
    conv2d(x, w.ok_or_else(missing)?, None, options)
}

fn depthwise(x: &Tensor, w: Option<&Tensor>) -> taper::Result<Tensor> {
    let options = ConvOptions { padding: 1.into(), groups: 96, ..Default::default() };
    conv2d(x, w.ok_or_else(missing)?, None, options)
}

fn lines(x: &Tensor, w: Option<&Tensor>) -> taper::Result<Tensor> {
    conv1d(x, w.ok_or_else(missing)?, None, ConvOptions { padding: 2.into(), ..Default::default() })
}

fn transposed(x: &Tensor, w: Option<&Tensor>) -> taper::Result<Tensor> {
    let options = ConvTransposeOptions { stride: [2, 2], ..Default::default() };
    conv_transpose2d(x, w.ok_or_else(missing)?, None, options)
}

fn max2(x: &Tensor, _: Option<&Tensor>) -> taper::Result<Tensor> {
    max_pool2d(x, [2, 2])
}

fn max3(x: &Tensor, _: Option<&Tensor>) -> taper::Result<Tensor> {
    let options = PoolOptions { stride: Some([2, 2]), padding: [1, 1], ..Default::default() };
    max_pool2d_with(x, [3, 3], options)
}

fn mean2(x: &Tensor, _: Option<&Tensor>) -> taper::Result<Tensor> {
    avg_pool2d(x, [2, 2])
}

pub(super) fn listed() -> Vec<Case> {
    let small = Windows::conv(conv3x3, &[16, 16, 28, 28], &[32, 16, 3, 3], 1, [1, 1], 1);
    let pool = Windows::pool(max2, &[16, 32, 28, 28], 2, 2, 0, Kind::Max);
    vec![small.forward("conv2d_fwd"), small.backward("conv2d_fwd_bwd"), pool.forward("max_pool2d")]
}

pub(super) fn more() -> Vec<Case> {
    let images: &[usize] = &[8, 64, 112, 112];
    let block = Windows::conv(conv3x3, &[8, 64, 56, 56], &[64, 64, 3, 3], 1, [1, 1], 1);
    let point = Windows::conv(conv1x1, &[8, 256, 28, 28], &[128, 256, 1, 1], 1, [0, 0], 1);
    let first = Windows::conv(stem, &[8, 3, 224, 224], &[64, 3, 7, 7], 2, [3, 3], 1);
    let each = Windows::conv(depthwise, &[8, 96, 56, 56], &[96, 1, 3, 3], 1, [1, 1], 96);
    let line = Windows::conv(lines, &[16, 64, 1000], &[64, 64, 5], 1, [0, 2], 1);
    let plain = Windows::conv(transposed, &[8, 64, 28, 28], &[64, 32, 2, 2], 2, [0, 0], 1);
    let up = Windows { kind: Kind::Transposed, ..plain };
    vec![
        block.forward("conv2d_3x3_8x64x56x56"),
        block.backward("conv2d_3x3_8x64x56x56_fwd_bwd"),
        point.forward("conv2d_1x1_8x256x28x28"),
        first.forward("conv2d_stem_7x7s2_8x3x224x224"),
        each.forward("conv2d_depthwise_8x96x56x56"),
        each.backward("conv2d_depthwise_8x96x56x56_fwd_bwd"),
        line.forward("conv1d_k5_16x64x1000"),
        up.backward("conv_transpose2d_8x64x28x28_fwd_bwd"),
        Windows::pool(max3, images, 3, 2, 1, Kind::Max).backward("max_pool2d_8x64x112x112_fwd_bwd"),
        Windows::pool(mean2, images, 2, 2, 0, Kind::Mean).backward("avg_pool2d_8x64x112x112_fwd_bwd"),
    ]
}
