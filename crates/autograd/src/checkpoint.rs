//! Checkpoints: the backward pass recomputes a part of the forward pass, instead of storing what its rules
//! read.
//!
//! Operations are data here, so the function is called only once: the backward pass builds its recording
//! again, random numbers included. Because evaluation is lazy, memory falls only if the gradient so far is
//! computed before a part is rebuilt, and the part's own gradient before the next part is.

use std::sync::Arc;

use tensor_core::{CustomOp, Error, Recorder, Recording, Result, Tensor, eval_pending, is_grad_enabled};

use crate::{Outputs, fresh_leaf::fresh_leaf, tape};

const OP: &str = "checkpoint";

/// The result of `f` for `inputs`. For the backward pass only the tensors that `f` reads are kept: `inputs`,
/// parameters, other tensors from outside. Intermediate results are recomputed when their gradient is
/// needed. Memory is that of one checkpointed part at a time, and the price is one more forward pass.
/// `torch.utils.checkpoint.checkpoint(…, use_reentrant=False)`.
///
/// ```
/// use autograd::{TensorGrad, checkpoint};
/// use tensor_core::Tensor;
///
/// let cpu = backend_cpu::cpu();
/// let w = Tensor::new([[0.5f32, -1.0], [2.0, 0.25]], &cpu)?.requires_grad();
/// let mut x = Tensor::ones([3, 2], &cpu)?;
/// for _ in 0..4 {
///     x = checkpoint(|x| Ok(x[0].matmul(&w)?.tanh().exp()), &[&x])?; // keeps only x
/// }
/// x.sum().backward()?;
/// assert_eq!(w.grad().unwrap().dims(), [2, 2]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
///
/// - `f` may read any tensor, for instance through a module that it borrows: gradients flow to all of them.
///   It is called once, immediately, so it may borrow, print, draw random numbers and change buffers as any
///   function does. PyTorch calls it again in the backward pass; here its recording is built again, so that
///   dropout drops the same elements and running means are updated once.
/// - Checkpoints nest. A backward pass with `create_graph` gives gradients that can be differentiated again,
///   and frees nothing. Under `vmap` the operations of `f` are mapped as if there were no checkpoint.
/// - A backward pass computes the gradients so far when it reaches a checkpoint, without waiting for the
///   device.
/// - Under [`no_grad`](crate::no_grad), or if nothing that `f` read is tracked, this is a plain call of `f`.
///   A tensor that leaves `f` by another way than its result has no gradient: `backward` through it is an
///   error.
/// - Values that `f` evaluates itself (`item`, `eval`) are stored while they are held, as usual.
///
/// # Errors
/// The errors of `f`.
#[track_caller]
#[doc(alias = "torch.utils.checkpoint.checkpoint")]
pub fn checkpoint<O: Outputs, T: AsRef<Tensor>>(
    f: impl FnOnce(&[Tensor]) -> Result<O>,
    inputs: &[T],
) -> Result<O> {
    let inputs: Vec<Tensor> = inputs.iter().map(|input| input.as_ref().clone()).collect();
    if !is_grad_enabled() {
        return f(&inputs);
    }
    let (outputs, recorder) = Recorder::run(|| f(&inputs));
    let mut outputs = outputs?.into_tensors();
    let places: Vec<usize> = (0..outputs.len())
        .filter(|&k| outputs[k].is_tracked() && !outputs[k].is_cell() && recorder.built(&outputs[k]))
        .collect();
    if !places.is_empty() {
        let tracked: Vec<Tensor> = places.iter().map(|&k| outputs[k].resolve()).collect();
        let (recording, outside) = recorder.finish(&tracked);
        let values: Vec<Tensor> = tracked.iter().map(Tensor::detach).collect();
        let outside: Vec<&Tensor> = outside.iter().collect();
        let results = Tensor::custom(Arc::new(Checkpointed { recording }), &outside, &values);
        places.into_iter().zip(results).for_each(|(k, result)| outputs[k] = result);
    }
    O::from_tensors(outputs).ok_or_else(|| Error::invalid(OP, "its function's results differ in number"))
}

/// The backward function of a checkpoint.
#[derive(Debug)]
struct Checkpointed {
    recording: Recording,
}

impl CustomOp for Checkpointed {
    fn name(&self) -> &'static str {
        OP
    }

    fn reads_results(&self) -> bool {
        false
    }

    fn backward(
        &self,
        inputs: &[Tensor],
        _: &[Tensor],
        gradients: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        let create_graph = is_grad_enabled();
        if !create_graph {
            // Errors are reported where the pending tensors are read.
            let _ = eval_pending();
        }
        let own = |input: &Tensor| {
            if input.is_tracked() { fresh_leaf(input, create_graph) } else { Ok(input.clone()) }
        };
        let inputs = inputs.iter().map(own).collect::<Result<Vec<_>>>()?;
        let outputs = crate::enable_grad(|| self.recording.build(&inputs));
        let seeds: Vec<(Tensor, Tensor)> = outputs
            .into_iter()
            .zip(gradients)
            .filter_map(|(output, gradient)| gradient.clone().map(|gradient| (output, gradient)))
            .filter(|(output, _)| output.is_tracked())
            .collect();
        let places: Vec<usize> = (0..inputs.len()).filter(|&k| inputs[k].is_tracked()).collect();
        let wanted: Vec<&Tensor> = places.iter().map(|&k| &inputs[k]).collect();
        let found = match create_graph {
            true => tape::play(&seeds, &wanted, true)?,
            false => tape::use_up(&seeds, &wanted)?,
        };
        drop(seeds);
        let mut all = vec![None; inputs.len()];
        places.into_iter().zip(found).for_each(|(k, gradient)| all[k] = gradient);
        if !create_graph {
            let _ = eval_pending();
        }
        Ok(all)
    }
}
