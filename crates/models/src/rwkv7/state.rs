//! The recurrence of RWKV-7's matrices, T[t] = diag(w[t]) · T[t − 1] + b[t] · (a[t]ᵀ · T[t − 1]) + k[t] ·
//! v[t]ᵀ and y[t] = r[t]ᵀ · T[t], in chunks.
//!
//! With W[t] the product of decays from the chunk's beginning, and rows of matrices for steps: U = (a · W of
//! the step before) · T₀ + tril(…) · U + tril(…) · V has the products a[t]ᵀ · T[t − 1], so that a triangular
//! inverse gives U = P · T₀ + X. Then the matrix after the chunk is G · T₀ + H with G, H of this chunk alone:
//! all products but this one are of all chunks at once.

use tensor_core::{Error, Result, Tensor};

use crate::chunks::{carried, identity, inverse};

/// Steps of a chunk. Decays are above exp(−0.61), so that their products over a chunk are above 6e-5, whose
/// inverse keeps f32's precision.
const CHUNK: usize = 16;

/// The inputs of the recurrence, `[N, L, heads, E]` each: w is the logarithm of the decay.
pub(super) struct Steps {
    pub(super) r: Tensor,
    pub(super) w: Tensor,
    pub(super) k: Tensor,
    pub(super) v: Tensor,
    pub(super) a: Tensor,
    pub(super) b: Tensor,
}

impl Steps {
    /// y `[N, L, heads, E]` and the matrices `[N, heads, E, E]` after the last step, from those before the
    /// first one.
    #[track_caller]
    pub(super) fn run(&self, before: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        match (self.r.dims()[1], before) {
            (1, Some(before)) => self.step(before),
            _ => self.chunks(before),
        }
    }

    /// One step.
    #[track_caller]
    fn step(&self, before: &Tensor) -> Result<(Tensor, Tensor)> {
        let column = |x: &Tensor| x.squeeze(1)?.unsqueeze(-1);
        let row = |x: &Tensor| x.squeeze(1)?.unsqueeze(-2);
        let replaced = column(&self.b)?.mul(&row(&self.a)?.matmul(before)?)?;
        let added = column(&self.k)?.mul(&row(&self.v)?)?;
        let after = column(&self.w)?.exp().mul(before)?.add(&replaced)?.add(&added)?;
        Ok((row(&self.r)?.matmul(&after)?.squeeze(-2)?.unsqueeze(1)?, after))
    }

    #[track_caller]
    fn chunks(&self, before: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let &[batch, length, heads, size] = self.r.dims() else {
            return Err(Error::invalid(super::OP, format!("steps have four axes, not {}", self.r.shape())));
        };
        let count = length.div_ceil(CHUNK);
        let whole = count * CHUNK;
        // Steps of zeros at the end change nothing: their decay is 1.
        let chunked = |x: &Tensor| {
            let x = match whole == length {
                true => x.clone(),
                false => x.pad(&[(0, 0), (0, whole - length), (0, 0), (0, 0)], 0.0)?,
            };
            x.reshape([batch, count, CHUNK, heads, size])?.permute([0, 3, 1, 2, 4])
        };
        let [r, w, k, v, a, b] = [&self.r, &self.w, &self.k, &self.v, &self.a, &self.b].map(chunked);
        let (r, w, k, v, a, b) = (r?, w?, k?, v?, a?, b?);
        let sum = w.cumsum(-2)?;
        let (decay, growth) = (sum.exp(), sum.neg().exp());
        let (r, a) = (r.mul(&decay)?, a.mul(&sum.sub(&w)?.exp())?);
        let (k_early, b_early) = (k.mul(&growth)?, b.mul(&growth)?);
        let end = sum.narrow(-2, CHUNK - 1, 1)?;
        let to_end = end.sub(&sum)?.exp();
        let (k_late, b_late) = (k.mul(&to_end)?.transpose(-1, -2)?, b.mul(&to_end)?.transpose(-1, -2)?);
        let product = |x: &Tensor, y: &Tensor, diagonal: i32| x.matmul(&y.transpose(-1, -2)?)?.tril(diagonal);
        let inverse = inverse(&product(&a, &b_early, -1)?)?;
        let p = inverse.matmul(&a)?;
        let x = inverse.matmul(&product(&a, &k_early, -1)?.matmul(&v)?)?;
        let over = end.exp().transpose(-1, -2)?.mul(&identity(size, &sum)?)?.add(&b_late.matmul(&p)?)?;
        let added = b_late.matmul(&x)?.add(&k_late.matmul(&v)?)?;
        let all = carried(&over, &added, before)?;
        let (firsts, last) = (all.narrow(2, 0, count)?, all.select(2, count)?);
        let of_replaced = product(&r, &b_early, 0)?;
        let y = r.add(&of_replaced.matmul(&p)?)?.matmul(&firsts)?;
        let y = y.add(&of_replaced.matmul(&x)?)?.add(&product(&r, &k_early, 0)?.matmul(&v)?)?;
        let y = y.permute([0, 2, 3, 1, 4])?.reshape([batch, whole, heads, size])?;
        Ok((y.narrow(1, 0, length)?, last))
    }
}
