//! The recurrence of RWKV-7's matrices, T[t] = diag(w[t]) · T[t − 1] + b[t] · (a[t]ᵀ · T[t − 1]) + k[t] ·
//! v[t]ᵀ and y[t] = r[t]ᵀ · T[t], in chunks.
//!
//! With W[t] the product of decays from the chunk's beginning, and rows of matrices for steps: U = (a · W of
//! the step before) · T₀ + tril(…) · U + tril(…) · V has the products a[t]ᵀ · T[t − 1], so that a triangular
//! inverse gives U = P · T₀ + X. Then the matrix after the chunk is G · T₀ + H with G, H of this chunk alone:
//! all products but this one are of all chunks at once.

use autograd::{Function, apply};
use tensor_core::{Error, Result, Tensor, eval_all, is_grad_enabled, is_tracing};

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
        let before = match before {
            Some(before) => before.clone(),
            None => added.select(2, 0)?.zeros_like(),
        };
        let inputs = [&over, &added, &before];
        let all = match is_grad_enabled() && inputs.iter().any(|input| input.is_tracked()) {
            true => apply(Carried, &inputs)?,
            false => Carried.forward(&inputs)?,
        };
        let (firsts, last) = (all.narrow(2, 0, count)?, all.select(2, count)?);
        let of_replaced = product(&r, &b_early, 0)?;
        let y = r.add(&of_replaced.matmul(&p)?)?.matmul(&firsts)?;
        let y = y.add(&of_replaced.matmul(&x)?)?.add(&product(&r, &k_early, 0)?.matmul(&v)?)?;
        let y = y.permute([0, 2, 3, 1, 4])?.reshape([batch, whole, heads, size])?;
        Ok((y.narrow(1, 0, length)?, last))
    }
}

/// The matrices `[N, heads, chunks + 1, E, E]` before each chunk and after the last one, from those before
/// the first one: T[c + 1] = over[c] · T[c] + added[c].
///
/// The gradient is computed from the end in the same way. By the gradients of its parts, each chunk would add
/// a tensor of the size of all.
#[derive(Clone, Copy, Debug)]
struct Carried;

impl Function for Carried {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "Rwkv7Carried"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let &[over, added, before] = inputs else { return Err(Error::invalid(super::OP, "three inputs")) };
        let mut all = vec![before.clone()];
        for chunk in 0..added.dims()[2] {
            let next = over.select(2, chunk)?.matmul(&all[chunk])?.add(&added.select(2, chunk)?)?;
            all.push(next);
        }
        Tensor::stack(&all, 2)
    }

    #[track_caller]
    fn backward(&self, inputs: &[Tensor], all: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let over = &inputs[0];
        let count = over.dims()[2];
        if !is_grad_enabled() && !is_tracing() {
            // Each chunk reads a part: the products that give the whole are computed once.
            eval_all(&[over, all, gradient])?;
        }
        let mut next = gradient.select(2, count)?;
        let mut of_added = Vec::with_capacity(count);
        for chunk in (0..count).rev() {
            let before = over.select(2, chunk)?.transpose(-1, -2)?.matmul(&next)?;
            let before = before.add(&gradient.select(2, chunk)?)?;
            of_added.push(std::mem::replace(&mut next, before));
        }
        of_added.reverse();
        let of_added = Tensor::stack(&of_added, 2)?;
        let of_over = of_added.matmul(&all.narrow(2, 0, count)?.transpose(-1, -2)?)?;
        Ok(vec![Some(of_over), Some(of_added), Some(next)])
    }
}

/// (I − m)⁻¹ for strictly lower triangular matrices of [`CHUNK`] rows: (I + m) · (I + m²) · (I + m⁴) · …
#[track_caller]
fn inverse(m: &Tensor) -> Result<Tensor> {
    let one = identity(CHUNK, m)?;
    let (mut power, mut found) = (m.clone(), m.add(&one)?);
    let mut reached = 2;
    while reached < CHUNK {
        power = power.matmul(&power)?;
        found = power.add(&one)?.matmul(&found)?;
        reached *= 2;
    }
    Ok(found)
}

#[track_caller]
fn identity(size: usize, like: &Tensor) -> Result<Tensor> {
    Tensor::eye(size, (like.dtype(), &like.device()))
}
