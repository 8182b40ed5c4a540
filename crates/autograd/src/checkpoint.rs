//! Parts of the forward pass that the backward pass computes again, instead of keeping what its rules read.
//!
//! Operations are data here, so the function is called once: what it recorded is built again, random numbers
//! and all. Evaluation being lazy, memory falls only if the gradient so far is computed before the part is
//! built again, and its own before the next one is.

use std::sync::Arc;

use tensor_core::{CustomOp, Error, Recorder, Recording, Result, Tensor, eval_pending, is_grad_enabled};

use crate::{Outputs, apart::apart, tape};

const OP: &str = "checkpoint";

/// What `f` gives for `inputs`, of which the backward pass keeps only what `f` read: `inputs`, parameters,
/// other tensors from outside. What is computed between is computed again when its gradient is asked for. It
/// takes the memory of a part of a network at a time, for the time of one more forward pass.
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
///     x = checkpoint(|x| Ok(x[0].matmul(&w)?.tanh().exp()), &[&x])?; // keeps x, and not the product nor its tanh
/// }
/// x.sum().backward()?;
/// assert_eq!(w.grad().unwrap().dims(), [2, 2]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
///
/// - `f` may read whatever it likes, a module that it borrows for instance: gradients go to all of it. It is called once, at once, so it
///   may borrow, print, draw random numbers and change buffers as any function does. PyTorch calls it again in the backward pass; here what
///   it recorded is built again, so that dropout drops the same elements and running means are updated once.
/// - Checkpoints nest. A backward pass that records itself (`create_graph`) gives gradients that can be differentiated in turn, and frees
///   nothing. In `vmap` it is the operations it consists of.
/// - A backward pass computes the gradients so far when it comes to a checkpoint, and waits for no device.
/// - Under [`no_grad`](crate::no_grad), or where nothing that `f` read is tracked, this is `f` alone. A tensor that `f` hands out by
///   another way than its result has no gradient: `backward` through it is an error.
/// - What `f` computes by looking at values (`item`, `eval`) is kept while they are held, as anywhere.
///
/// # Errors
/// Those of `f`.
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

/// The gradient of what a function recorded.
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
            // Whoever looks meets a failure there.
            let _ = eval_pending();
        }
        let own =
            |input: &Tensor| if input.is_tracked() { apart(input, create_graph) } else { Ok(input.clone()) };
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
