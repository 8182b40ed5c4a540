//! Operations that tensor-core describes as data, against their formulas in f64: Fourier transforms,
//! recurrent steps, max pooling, distances and binary search. Attention has its own file.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{f64::consts::PI, sync::Arc};

use taper_testing::numbers;
use tensor_core::{
    CustomKernel, DType, Device, Distances, Fourier, FourierKind, Kernel, Layout, MaxPool, Measure,
    Recurrence, RecurrencePass, RecurrentCell, SearchSorted, Shape, kernel::Operand,
};

use crate::common::{close, devices, run, tiled};

type Input = (Layout, DType, Vec<f64>);

fn kernel_of(custom: impl CustomKernel, inputs: &[Input]) -> Kernel {
    let specs: Vec<(Shape, DType)> =
        inputs.iter().map(|(layout, dtype, _)| (layout.shape().clone(), *dtype)).collect();
    let results = custom.results(&specs).unwrap();
    let operands = inputs.iter().map(|(layout, dtype, _)| Operand::new(*dtype, layout.clone()));
    Kernel::custom(Arc::new(custom), operands.collect::<Vec<_>>(), &results)
}

fn results(device: &Device, custom: impl CustomKernel, inputs: &[Input]) -> Vec<Vec<f64>> {
    let kernel = kernel_of(custom, inputs);
    assert!(device.backend().implements(&kernel), "{kernel:?}");
    let given: Vec<(DType, Vec<f64>)> =
        inputs.iter().map(|(_, dtype, values)| (*dtype, values.clone())).collect();
    run(device, &kernel, &[], &given).unwrap()
}

fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        assert!(close(f, e, tolerance), "{what}: element {i} is {f}, expected {e}");
    }
}

fn f32s(shape: &[usize], values: &[f64]) -> Input {
    (Layout::contiguous(Shape::from(shape)), DType::F32, values.to_vec())
}

/// Numbers that f32 holds exactly.
fn exact(count: usize, seed: u64) -> Vec<f64> {
    numbers(count, seed).into_iter().map(|x| f64::from(x as f32)).collect()
}

/// The transform of pairs, without a factor.
fn transform(x: &[f64], inverse: bool) -> Vec<f64> {
    let n = x.len() / 2;
    let sign = if inverse { 2.0 } else { -2.0 };
    let mut out = Vec::with_capacity(2 * n);
    for k in 0..n {
        let (mut re, mut im) = (0.0, 0.0);
        for j in 0..n {
            let (sin, cos) = (sign * PI * ((j * k) % n) as f64 / n as f64).sin_cos();
            re += x[2 * j] * cos - x[2 * j + 1] * sin;
            im += x[2 * j] * sin + x[2 * j + 1] * cos;
        }
        out.extend([re, im]);
    }
    out
}

#[test]
fn fourier_transforms_of_powers_of_two() {
    let Some(device) = tiled() else { return };
    for (n, lines) in [(64, 3), (128, 9), (1024, 1), (2048, 2), (4096, 1)] {
        let bins = n / 2 + 1;
        let x = exact(2 * n * lines, 1);
        let within = 3e-6 * (n as f64).sqrt();
        for (kind, inverse) in [(FourierKind::Forward, false), (FourierKind::Inverse, true)] {
            let expected: Vec<f64> = x.chunks(2 * n).flat_map(|line| transform(line, inverse)).collect();
            let scaled: Vec<f64> = expected.iter().map(|y| y * 0.5).collect();
            let found = results(device, Fourier::new(kind, n, 0.5), &[f32s(&[lines, n, 2], &x)]);
            assert_close(&format!("{kind:?} of {n}"), &found[0], &scaled, within);
        }
        if n > 2048 {
            continue;
        }
        let half = Fourier { mirrored: 2.0, ..Fourier::new(FourierKind::RealToHalf, n, 1.0) };
        let mut expected = Vec::new();
        for line in x[..n * lines].chunks(n) {
            let pairs: Vec<f64> = line.iter().flat_map(|&re| [re, 0.0]).collect();
            let whole = transform(&pairs, false);
            expected.extend((0..2 * bins).map(|i| {
                let k = i / 2;
                whole[i] * if k != 0 && 2 * k != n { 2.0 } else { 1.0 }
            }));
        }
        let found = results(device, half, &[f32s(&[lines, n], &x[..n * lines])]);
        assert_close(&format!("half a spectrum of {n}"), &found[0], &expected, within * 2.0);
        let back = Fourier { mirrored: 0.5, ..Fourier::new(FourierKind::HalfToReal, n, 1.0) };
        let mut expected = Vec::new();
        for line in x[..2 * bins * lines].chunks(2 * bins) {
            let number = |k: usize| -> [f64; 2] {
                let own = k.min(n - k);
                if own == 0 || 2 * own == n {
                    return [line[2 * own], 0.0];
                }
                let sign = if own == k { 0.5 } else { -0.5 };
                [line[2 * own] * 0.5, line[2 * own + 1] * sign]
            };
            let whole: Vec<f64> = (0..n).flat_map(number).collect();
            expected.extend(transform(&whole, true).chunks(2).map(|pair| pair[0]));
        }
        let given = f32s(&[lines, bins, 2], &x[..2 * bins * lines]);
        assert_close(&format!("real numbers of {n}"), &results(device, back, &[given])[0], &expected, within);
    }
    // Interleaved lines.
    let x = exact(2 * 64 * 5, 3);
    let strided: Input = (Layout::contiguous([64, 5, 2]).permute(&[1, 0, 2]), DType::F32, x.clone());
    let dense: Vec<f64> = (0..5 * 64 * 2).map(|i| x[(i / 2 % 64 * 5 + i / 128) * 2 + i % 2]).collect();
    let of = Fourier::new(FourierKind::Forward, 64, 1.0);
    let expected = results(device, of, &[f32s(&[5, 64, 2], &dense)]);
    assert_close("interleaved lines", &results(device, of, &[strided])[0], &expected[0], 0.0);
}

/// A layer's sizes and inputs.
#[derive(Clone)]
struct Layer {
    cell: RecurrentCell,
    reverse: bool,
    steps: usize,
    batch: usize,
    size: usize,
    gates: Vec<f64>,
    weight: Vec<f64>,
    hidden: Vec<f64>,
    /// The initial c of an LSTM, or the bias of a GRU.
    other: Vec<f64>,
}

impl Layer {
    fn new(cell: RecurrentCell, reverse: bool, [steps, batch, size]: [usize; 3]) -> Layer {
        let gates = cell.gates();
        let other = match cell {
            RecurrentCell::Tanh | RecurrentCell::Relu => 0,
            RecurrentCell::Lstm => batch * size,
            RecurrentCell::Gru => gates * size,
        };
        Layer {
            cell,
            reverse,
            steps,
            batch,
            size,
            gates: exact(steps * batch * gates * size, 1),
            weight: exact(gates * size * size, 2).iter().map(|x| x * 0.25).collect(),
            hidden: exact(batch * size, 3),
            other: exact(other, 4),
        }
    }

    fn of(&self, pass: RecurrencePass) -> Recurrence {
        Recurrence { pass, cell: self.cell, reverse: self.reverse }
    }

    fn inputs(&self) -> Vec<Input> {
        let (gates, size) = (self.cell.gates(), self.size);
        let mut inputs = vec![
            f32s(&[self.steps, self.batch, gates * size], &self.gates),
            f32s(&[gates * size, size], &self.weight),
            f32s(&[self.batch, size], &self.hidden),
        ];
        match self.cell {
            RecurrentCell::Tanh | RecurrentCell::Relu => {}
            RecurrentCell::Lstm => inputs.push(f32s(&[self.batch, size], &self.other)),
            RecurrentCell::Gru => inputs.push(f32s(&[gates * size], &self.other)),
        }
        inputs
    }

    /// All h, and the last c of an LSTM.
    fn plain(&self) -> [Vec<f64>; 2] {
        let Layer { steps, batch, size, .. } = *self;
        let g = self.cell.gates();
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let mut all = vec![0.0; steps * batch * size];
        let (mut hidden, mut cell) = (self.hidden.clone(), self.other.clone());
        for number in 0..steps {
            let step = if self.reverse { steps - 1 - number } else { number };
            let before = hidden.clone();
            for n in 0..batch {
                for j in 0..size {
                    let of_state: Vec<f64> = (0..g)
                        .map(|k| {
                            let row = &self.weight[(k * size + j) * size..][..size];
                            row.iter().zip(&before[n * size..]).map(|(w, h)| w * h).sum()
                        })
                        .collect();
                    let of_input = |k: usize| self.gates[(step * batch + n) * g * size + k * size + j];
                    let at = n * size + j;
                    hidden[at] = match self.cell {
                        RecurrentCell::Tanh => (of_input(0) + of_state[0]).tanh(),
                        RecurrentCell::Relu => (of_input(0) + of_state[0]).max(0.0),
                        RecurrentCell::Lstm => {
                            let a: Vec<f64> = (0..4).map(|k| of_input(k) + of_state[k]).collect();
                            cell[at] = sigmoid(a[1]) * cell[at] + sigmoid(a[0]) * a[2].tanh();
                            sigmoid(a[3]) * cell[at].tanh()
                        }
                        RecurrentCell::Gru => {
                            let s: Vec<f64> =
                                (0..3).map(|k| of_state[k] + self.other[k * size + j]).collect();
                            let (r, z) = (sigmoid(of_input(0) + s[0]), sigmoid(of_input(1) + s[1]));
                            let fresh = (of_input(2) + r * s[2]).tanh();
                            (1.0 - z) * fresh + z * before[at]
                        }
                    };
                    all[step * batch * size + at] = hidden[at];
                }
            }
        }
        [all, cell]
    }

    /// A number that depends on all results, and the gradients of h after each step, of the last h and of
    /// the last c that belong to it.
    fn loss(&self, weights: &[Vec<f64>; 3]) -> f64 {
        let [all, cell] = self.plain();
        let last = if self.reverse { 0 } else { self.steps - 1 } * self.batch * self.size;
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let of_cell = if self.cell == RecurrentCell::Lstm { dot(&weights[2], &cell) } else { 0.0 };
        dot(&weights[0], &all) + dot(&weights[1], &all[last..]) + of_cell
    }
}

const CELLS: [RecurrentCell; 4] =
    [RecurrentCell::Tanh, RecurrentCell::Relu, RecurrentCell::Lstm, RecurrentCell::Gru];

#[test]
fn recurrent_steps() {
    let Some(device) = tiled() else { return };
    for cell in CELLS {
        for (reverse, sizes) in [(false, [3, 2, 5]), (true, [2, 33, 9]), (false, [2, 3, 36])] {
            let layer = Layer::new(cell, reverse, sizes);
            let what = format!("{cell:?}, {reverse}, {sizes:?}");
            let [all, last_cell] = layer.plain();
            let found = results(device, layer.of(RecurrencePass::Forward), &layer.inputs());
            assert_close(&what, &found[0], &all, 1e-5);
            if cell == RecurrentCell::Lstm {
                assert_close(&what, &found[1], &last_cell, 1e-5);
            }
            let kept = results(device, layer.of(RecurrencePass::Kept), &layer.inputs());
            assert_eq!(kept[0], found[0], "{what}");
        }
    }
}

#[test]
fn gradients_of_recurrent_steps_are_differences() {
    let Some(device) = tiled() else { return };
    for cell in CELLS {
        for reverse in [false, true] {
            let mut layer = Layer::new(cell, reverse, [3, 2, 5]);
            if cell == RecurrentCell::Relu {
                // Away from the kink.
                layer.gates.iter_mut().for_each(|x| *x = if *x < 0.0 { *x - 3.0 } else { *x + 3.0 });
            }
            let (what, is_lstm) = (format!("{cell:?}, {reverse}"), cell == RecurrentCell::Lstm);
            let states = layer.batch * layer.size;
            let weights = [exact(layer.steps * states, 5), exact(states, 6), exact(states, 7)];
            let kept = results(device, layer.of(RecurrencePass::Kept), &layer.inputs());
            let [steps, batch, size] = [layer.steps, layer.batch, layer.size];
            let mut inputs = vec![
                layer.inputs()[1].clone(),
                f32s(&[batch, size], &layer.hidden),
                f32s(&[steps, batch, size], &kept[0]),
            ];
            if cell.kept() > 0 {
                inputs.push(f32s(&[steps, batch, cell.kept() * size], kept.last().unwrap()));
            }
            if is_lstm {
                inputs.push(f32s(&[batch, size], &layer.other));
                inputs.push(f32s(&[steps, batch, size], &kept[1]));
            }
            inputs.push(f32s(&[steps, batch, size], &weights[0]));
            inputs.push(f32s(&[batch, size], &weights[1]));
            if is_lstm {
                inputs.push(f32s(&[batch, size], &weights[2]));
            }
            let found = results(device, layer.of(RecurrencePass::Backward), &inputs);
            let slope = |change: &dyn Fn(&mut Layer, f64)| {
                let at = |by: f64| {
                    let mut layer = layer.clone();
                    change(&mut layer, by);
                    layer.loss(&weights)
                };
                (at(1e-5) - at(-1e-5)) / 2e-5
            };
            let of_gates: Vec<f64> =
                (0..layer.gates.len()).map(|i| slope(&|l, by| l.gates[i] += by)).collect();
            let of_hidden: Vec<f64> = (0..states).map(|i| slope(&|l, by| l.hidden[i] += by)).collect();
            assert_close(&format!("{what}, gates"), &found[0], &of_gates, 1e-4);
            assert_close(&format!("{what}, first h"), &found[1], &of_hidden, 1e-4);
            if is_lstm {
                let of_cell: Vec<f64> = (0..states).map(|i| slope(&|l, by| l.other[i] += by)).collect();
                assert_close(&format!("{what}, first c"), &found[2], &of_cell, 1e-4);
            }
            if cell == RecurrentCell::Gru {
                // The bias is added at every step of every sequence.
                let columns = 3 * size;
                let sums: Vec<f64> =
                    (0..columns).map(|j| found[2].iter().skip(j).step_by(columns).sum()).collect();
                let of_bias: Vec<f64> = (0..columns).map(|i| slope(&|l, by| l.other[i] += by)).collect();
                assert_close(&format!("{what}, bias"), &sums, &of_bias, 1e-4);
            }
        }
    }
}

#[test]
fn greatest_elements_of_windows_and_their_places() {
    let pool = MaxPool {
        window: [1, 3, 2],
        stride: [1, 2, 1],
        dilation: [1, 1, 2],
        padding: [0, 1, 2],
        outputs: [2, 3, 7],
    };
    let sizes = [3, 2, 5, 7];
    for (form, device) in devices() {
        for dtype in [DType::F32, DType::F16] {
            let mut x: Vec<f64> = numbers(210, 1)
                .into_iter()
                .map(|x| tensor_core::Scalar::Float(x).cast(dtype).as_f64())
                .collect();
            x[17] = f64::NAN;
            x[60] = f64::NEG_INFINITY;
            x[61] = x[62];
            let (mut maxima, mut places) = (Vec::new(), Vec::new());
            for plane in x.chunks(70) {
                for i in 0..42usize {
                    let (a, b, c) = (i / 21, i / 7 % 3, i % 7);
                    let mut best: Option<(f64, usize)> = None;
                    for (r, s) in (0..3usize).flat_map(|r| [(r, 0usize), (r, 1)]) {
                        let (y, z) = ((b * 2 + r).wrapping_sub(1), (c + s * 2).wrapping_sub(2));
                        if y >= sizes[2] || z >= sizes[3] {
                            continue;
                        }
                        let at = (a * sizes[2] + y) * sizes[3] + z;
                        let taken =
                            best.is_none_or(|(x, _)| !x.is_nan() && (plane[at].is_nan() || plane[at] > x));
                        if taken {
                            best = Some((plane[at], at));
                        }
                    }
                    let (greatest, place) = best.unwrap();
                    maxima.push(greatest);
                    places.push(place as f64);
                }
            }
            let found = results(device, pool, &[(Layout::contiguous(Shape::from(&sizes)), dtype, x)]);
            assert_close(form, &found[0], &maxima, 0.0);
            assert_close(form, &found[1], &places, 0.0);
        }
    }
}

#[test]
fn distances_of_points() {
    for (form, device) in devices() {
        let (a, b) = (exact(2 * 5 * 130, 1), exact(2 * 4 * 130, 2));
        for measure in [Measure::Unequal, Measure::Sum, Measure::Euclidean, Measure::Greatest] {
            let length = |x: &[f64], y: &[f64]| {
                let d = x.iter().zip(y).map(|(x, y)| (x - y).abs());
                match measure {
                    Measure::Unequal => d.filter(|&d| d != 0.0).count() as f64,
                    Measure::Sum => d.sum(),
                    Measure::Euclidean => d.map(|d| d * d).sum::<f64>().sqrt(),
                    Measure::Greatest => d.fold(0.0, f64::max),
                }
            };
            let (mut pairs, mut both) = (Vec::new(), Vec::new());
            for batch in 0..2 {
                let points: Vec<&[f64]> = a[batch * 650..][..650].chunks(130).collect();
                let others: Vec<&[f64]> = b[batch * 520..][..520].chunks(130).collect();
                for (i, x) in points.iter().enumerate() {
                    pairs.extend(points[i + 1..].iter().map(|y| length(x, y)));
                    both.extend(others.iter().map(|y| length(x, y)));
                }
            }
            let points = f32s(&[2, 5, 130], &a);
            let found = results(device, Distances { measure }, std::slice::from_ref(&points));
            assert_close(form, &found[0], &pairs, 1e-5);
            if measure != Measure::Euclidean {
                let found = results(device, Distances { measure }, &[points, f32s(&[2, 4, 130], &b)]);
                assert_close(form, &found[0], &both, 1e-5);
            }
        }
        // Squares beyond the range of f32.
        let far = [1e30, 0.0, -2e30, 4e30, 1e-30, 0.0].map(|x| f64::from(x as f32));
        let found = results(device, Distances { measure: Measure::Euclidean }, &[f32s(&[3, 2], &far)]);
        assert_close(
            form,
            &found[0].iter().map(|x| x / 1e30).collect::<Vec<_>>(),
            &[5.0, 1.0, 20f64.sqrt()],
            1e-5,
        );
    }
}

#[test]
fn places_in_sorted_numbers() {
    for (form, device) in devices() {
        for right in [false, true] {
            for dtype in [DType::F32, DType::I32, DType::U8] {
                let sorted: Vec<f64> = (0..3 * 37).map(|i| f64::from(i % 37 / 2)).collect();
                let values: Vec<f64> = (0..3 * 50).map(|i| f64::from(i * 7 % 22)).collect();
                let places: Vec<f64> = values
                    .iter()
                    .enumerate()
                    .map(|(i, value)| {
                        let row = &sorted[i / 50 * 37..][..37];
                        row.iter().filter(|&x| x < value || right && x == value).count() as f64
                    })
                    .collect();
                let inputs = [
                    (Layout::contiguous([3, 37]), dtype, sorted),
                    (Layout::contiguous([3, 50]), dtype, values),
                ];
                assert_close(form, &results(device, SearchSorted { right }, &inputs)[0], &places, 0.0);
            }
            let nan = f64::NAN;
            let sorted = f32s(&[5], &[-1.0, 0.0, 2.0, nan, nan]);
            let found =
                results(device, SearchSorted { right }, &[sorted, f32s(&[3], &[nan, f64::INFINITY, 0.0])]);
            assert_eq!(found[0], if right { [5.0, 3.0, 2.0] } else { [3.0, 3.0, 1.0] }, "{form}");
        }
    }
}
