//! A network of linear layers in plain f64: the loss and all gradients, by the textbook's loops.

/// The activation between two layers.
#[derive(Clone, Copy)]
pub(crate) enum Activation {
    Relu,
    Gelu,
}

impl Activation {
    /// The value and the slope at x.
    fn at(self, x: f64) -> (f64, f64) {
        match self {
            Activation::Relu => (x.max(0.0), if x > 0.0 { 1.0 } else { 0.0 }),
            Activation::Gelu => {
                let below = normal_cdf(x);
                let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
                (x * below, below + x * density)
            }
        }
    }
}

/// The normal distribution's Φ(x), by the series of its error function: exact to 1e-12 in the range of
/// activations.
pub(crate) fn normal_cdf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while f64::abs(term) > 1e-17 {
        term *= x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    0.5 + sum * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// Layers of these widths with cross-entropy at the end, and one batch for them.
pub(crate) struct Mlp<'a> {
    pub(crate) widths: &'a [usize],
    pub(crate) activation: Activation,
    /// `[batch, widths[0]]`.
    pub(crate) x: Vec<f32>,
    pub(crate) labels: Vec<usize>,
    /// How far beyond its kink an activation is taken to bend: where a step rounded in f32 may see a value on
    /// the other side of it, the gradients for a small one on either side are the two that it may get.
    pub(crate) kink: f64,
}

impl Mlp<'_> {
    /// The mean loss, and the gradient of each parameter, given as weight `[out, in]` and bias `[out]` in
    /// turn.
    pub(crate) fn loss_and_gradients(&self, parameters: &[Vec<f32>]) -> (f64, Vec<Vec<f64>>) {
        let batch = self.labels.len();
        let wide = |values: &[f32]| -> Vec<f64> { values.iter().copied().map(f64::from).collect() };
        let layers: Vec<[Vec<f64>; 2]> = parameters.chunks(2).map(|p| [wide(&p[0]), wide(&p[1])]).collect();
        // Forward: what each layer is given, and the slope of the activation that made it.
        let mut given = vec![wide(&self.x)];
        let mut slopes = vec![Vec::new()];
        let mut out = Vec::new();
        for (l, [weight, bias]) in layers.iter().enumerate() {
            let (inputs, outputs) = (self.widths[l], self.widths[l + 1]);
            out = given[l]
                .chunks(inputs)
                .flat_map(|x| {
                    (0..outputs).map(move |o| bias[o] + dot(x, &weight[o * inputs..(o + 1) * inputs]))
                })
                .collect();
            if l + 1 < layers.len() {
                let slope = |&x: &f64| (self.activation.at(x).0, self.activation.at(x - self.kink).1);
                let (values, slope) = out.iter().map(slope).unzip();
                given.push(values);
                slopes.push(slope);
            }
        }
        let classes = self.widths[layers.len()];
        let mut loss = 0.0;
        let mut delta = Vec::with_capacity(out.len());
        for (logits, &label) in out.chunks(classes).zip(&self.labels) {
            let most = logits.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = logits.iter().map(|x| (x - most).exp()).sum();
            loss += sum.ln() + most - logits[label];
            let one = |c| if c == label { 1.0 } else { 0.0 };
            delta.extend(
                logits.iter().enumerate().map(|(c, x)| ((x - most).exp() / sum - one(c)) / batch as f64),
            );
        }
        // Backward, from the last layer to the first.
        let mut gradients = vec![Vec::new(); parameters.len()];
        for (l, [weight, _]) in layers.iter().enumerate().rev() {
            let (inputs, outputs) = (self.widths[l], self.widths[l + 1]);
            let (mut of_weight, mut of_bias) = (vec![0.0; inputs * outputs], vec![0.0; outputs]);
            let mut back = vec![0.0; batch * inputs];
            for ((delta, x), back) in
                delta.chunks(outputs).zip(given[l].chunks(inputs)).zip(back.chunks_mut(inputs))
            {
                for (o, &d) in delta.iter().enumerate() {
                    of_bias[o] += d;
                    add_scaled(&mut of_weight[o * inputs..(o + 1) * inputs], d, x);
                    if l > 0 {
                        add_scaled(back, d, &weight[o * inputs..(o + 1) * inputs]);
                    }
                }
            }
            for (back, slope) in back.iter_mut().zip(&slopes[l]) {
                *back *= slope;
            }
            (gradients[2 * l], gradients[2 * l + 1]) = (of_weight, of_bias);
            delta = back;
        }
        (loss / batch as f64, gradients)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add_scaled(to: &mut [f64], factor: f64, from: &[f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += factor * from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each gradient against the difference of two losses.
    #[test]
    fn gradients_are_slopes() {
        for activation in [Activation::Relu, Activation::Gelu] {
            let mlp = Mlp {
                widths: &[3, 4, 2],
                activation,
                x: (0..6).map(|i| (i * 7 % 5) as f32 / 5.0 - 0.3).collect(),
                labels: vec![1, 0],
                kink: 0.0,
            };
            let numbers = |n: usize, k: usize| (0..n).map(|i| (i * k % 11) as f32 / 11.0 - 0.4).collect();
            let parameters: Vec<Vec<f32>> = vec![numbers(12, 3), numbers(4, 5), numbers(8, 7), numbers(2, 9)];
            let (_, gradients) = mlp.loss_and_gradients(&parameters);
            for (p, gradient) in gradients.iter().enumerate() {
                for (i, &slope) in gradient.iter().enumerate() {
                    let at = |step: f32| {
                        let mut moved = parameters.clone();
                        moved[p][i] += step;
                        (mlp.loss_and_gradients(&moved).0, f64::from(moved[p][i]))
                    };
                    let ((high, right), (low, left)) = (at(1e-3), at(-1e-3));
                    assert!((slope - (high - low) / (right - left)).abs() < 1e-5);
                }
            }
        }
    }

    #[test]
    fn the_normal_distribution() {
        for (x, phi) in [(0.0, 0.5), (1.0, 0.841_344_746_068_543), (-2.0, 0.022_750_131_948_179_2)] {
            assert!((normal_cdf(x) - phi).abs() < 1e-12);
        }
    }
}
