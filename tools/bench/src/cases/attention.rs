//! Attention of queries, keys and values `[batch, heads, length, 64]`.

use taper::{
    Tensor,
    nn::functional::{AttentionOptions, scaled_dot_product_attention},
    prelude::TensorGrad,
};

use super::{one, pair, rows::softmax, with_gradients};
use crate::{
    Result,
    case::Case,
    check::{all, host, part, positions},
};

const WIDTH: usize = 64;

#[derive(Clone, Copy)]
struct AttentionCase {
    batch: usize,
    heads: usize,
    length: usize,
    is_causal: bool,
}

pub(super) fn more() -> Vec<Case> {
    let plain = AttentionCase { batch: 4, heads: 8, length: 512, is_causal: false };
    let causal = AttentionCase { is_causal: true, ..plain };
    let long = AttentionCase { batch: 1, length: 4096, ..causal };
    vec![
        plain.forward("attention_4x8x512x64").flop(4 * 4 * 8 * 512 * 512 * WIDTH),
        causal.forward("attention_causal_4x8x512x64"),
        causal.backward("attention_causal_4x8x512x64_fwd_bwd"),
        long.forward("attention_causal_1x8x4096x64"),
    ]
}

impl AttentionCase {
    fn shape(self) -> [usize; 4] {
        [self.batch, self.heads, self.length, WIDTH]
    }

    fn build(self, [query, key, value]: [&Tensor; 3]) -> taper::Result<Tensor> {
        let options = AttentionOptions { is_causal: self.is_causal, ..Default::default() };
        scaled_dot_product_attention(query, key, value, options)
    }

    fn forward(self, name: &str) -> Case {
        Case::new(name, move |inputs| {
            let [q, k, v] =
                [inputs.centred(self.shape())?, inputs.centred(self.shape())?, inputs.centred(self.shape())?];
            let given = [q.clone(), k.clone(), v.clone()];
            one(move || self.build(given.each_ref()), move |result| self.check(result, [&q, &k, &v]))
        })
    }

    /// With every gradient, those of two heads against plain loops.
    fn backward(self, name: &str) -> Case {
        Case::new(name, move |inputs| {
            let [q, k, v] =
                [inputs.centred(self.shape())?, inputs.centred(self.shape())?, inputs.centred(self.shape())?];
            let factors = inputs.rand(self.shape())?;
            let leaves = [&q, &k, &v].map(|leaf| leaf.clone().requires_grad());
            let given = factors.clone();
            let call = move || with_gradients(self.build(leaves.each_ref())?, &given, &leaves);
            pair(call, move |results, _| {
                let [of_query, of_key, of_value, _, result] = results else {
                    return Err("no results".into());
                };
                self.check(result, [&q, &k, &v])?;
                let (data, factors) = ([host(&q)?, host(&k)?, host(&v)?], host(&factors)?);
                let got = [host(of_query)?, host(of_key)?, host(of_value)?];
                let (count, heads) = (self.length * WIDTH, self.batch * self.heads);
                for head in [0, heads - 1] {
                    let span = head * count..(head + 1) * count;
                    let want =
                        self.gradients(data.each_ref().map(|x| &x[span.clone()]), &factors[span.clone()]);
                    for ((got, want), name) in got.iter().zip(&want).zip(["query", "key", "value"]) {
                        let what = format!("gradient of the {name}, head {head}");
                        all(&what, &got[span.clone()], want, part(&result.device(), 1e-5))?;
                    }
                }
                Ok(())
            })
        })
    }

    /// The weights of query `i` of a head on each key.
    fn weights(self, query: &[f32], key: &[f32], i: usize) -> Vec<f64> {
        let seen = if self.is_causal { i + 1 } else { self.length };
        let scores: Vec<f64> =
            (0..seen).map(|j| dot(row(query, i), row(key, j)) / (WIDTH as f64).sqrt()).collect();
        softmax(&scores)
    }

    /// Some rows of the result.
    fn check(self, result: &Tensor, inputs: [&Tensor; 3]) -> Result<()> {
        if result.dims() != self.shape() {
            return Err(format!("wrong result: shape {}", result.shape()).into());
        }
        let [q, k, v] = [host(inputs[0])?, host(inputs[1])?, host(inputs[2])?];
        let got = host(result)?;
        let count = self.length * WIDTH;
        for at in positions(self.batch * self.heads * self.length, 100) {
            let (head, i) = (at / self.length, at % self.length);
            let span = head * count..(head + 1) * count;
            let mut want = vec![0.0; WIDTH];
            for (j, weight) in self.weights(&q[span.clone()], &k[span.clone()], i).into_iter().enumerate() {
                want.iter_mut()
                    .zip(row(&v[span.clone()], j))
                    .for_each(|(sum, v)| *sum += weight * f64::from(*v));
            }
            let what = format!("query {i} of head {head}");
            all(&what, &got[at * WIDTH..(at + 1) * WIDTH], &want, part(&result.device(), 1e-5))?;
        }
        Ok(())
    }

    /// The gradients of one head's query, key and value, for the gradient `given` of its result.
    fn gradients(self, [query, key, value]: [&[f32]; 3], given: &[f32]) -> [Vec<f64>; 3] {
        let mut found = [(); 3].map(|()| vec![0.0; query.len()]);
        let scale = 1.0 / (WIDTH as f64).sqrt();
        let mut add = |which: usize, i: usize, factor: f64, x: &[f32]| {
            let sums = &mut found[which][i * WIDTH..(i + 1) * WIDTH];
            sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += factor * f64::from(*x));
        };
        for i in 0..self.length {
            let weights = self.weights(query, key, i);
            let slopes: Vec<f64> = (0..weights.len()).map(|j| dot(row(given, i), row(value, j))).collect();
            let mean: f64 = weights.iter().zip(&slopes).map(|(w, s)| w * s).sum();
            for (j, (weight, slope)) in weights.iter().zip(&slopes).enumerate() {
                let of_score = weight * (slope - mean) * scale;
                add(0, i, of_score, row(key, j));
                add(1, j, of_score, row(query, i));
                add(2, j, *weight, row(given, i));
            }
        }
        found
    }
}

fn row(values: &[f32], i: usize) -> &[f32] {
    &values[i * WIDTH..(i + 1) * WIDTH]
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}
