//! The parts that recurrences of matrices share when they are computed in chunks of steps: RWKV-7's, and the
//! gated delta rule.

use autograd::{Function, apply};
use tensor_core::{Error, Result, Tensor, eval_all, is_grad_enabled, is_tracing};

const OP: &str = "a recurrence in chunks";

/// The matrices `[N, heads, chunks + 1, E, V]` before each chunk and after the last one, from those before
/// the first one `[N, heads, E, V]`, or zeros: T[c + 1] = over[c] · T[c] + added[c], for `over` `[N, heads,
/// chunks, E, E]` and `added` `[N, heads, chunks, E, V]`.
#[track_caller]
pub(crate) fn carried(over: &Tensor, added: &Tensor, before: Option<&Tensor>) -> Result<Tensor> {
    let before = match before {
        Some(before) => before.clone(),
        None => added.select(2, 0)?.zeros_like(),
    };
    let inputs = [over, added, &before];
    match is_grad_enabled() && inputs.iter().any(|input| input.is_tracked()) {
        true => apply(Carried, &inputs),
        false => Carried.forward(&inputs),
    }
}

/// See [`carried`].
///
/// The gradient is computed from the end in the same way. By the gradients of its parts, each chunk would add
/// a tensor of the size of all.
#[derive(Clone, Copy, Debug)]
struct Carried;

impl Function for Carried {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "Carried"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let &[over, added, before] = inputs else { return Err(Error::invalid(OP, "three inputs")) };
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

/// (I − m)⁻¹ for strictly lower triangular matrices: (I + m) · (I + m²) · (I + m⁴) · …
#[track_caller]
pub(crate) fn inverse(m: &Tensor) -> Result<Tensor> {
    let rows = m.dims().last().copied().unwrap_or(0);
    let one = identity(rows, m)?;
    let (mut power, mut found) = (m.clone(), m.add(&one)?);
    let mut reached = 2;
    while reached < rows {
        power = power.matmul(&power)?;
        found = power.add(&one)?.matmul(&found)?;
        reached *= 2;
    }
    Ok(found)
}

/// The matrix of ones on the diagonal, of the dtype and on the device of another tensor.
#[track_caller]
pub(crate) fn identity(size: usize, like: &Tensor) -> Result<Tensor> {
    Tensor::eye(size, (like.dtype(), &like.device()))
}
