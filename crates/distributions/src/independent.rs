//! Batch axes that become event axes.

use tensor_core::{Axes, Error, Generator, Result, Shape, Tensor, at_caller};

use crate::{Distribution, Reparameterized, parameters::join};

/// A distribution whose last batch axes count as event axes: `log_prob` and `entropy` add over them.
/// `torch.distributions.Independent`.
#[derive(Clone, Debug)]
pub struct Independent<D> {
    pub(crate) base: D,
    pub(crate) axes: usize,
}

impl<D: Distribution> Independent<D> {
    /// Makes event axes of the last `axes` batch axes of `base`.
    ///
    /// # Errors
    /// More axes than the batch has.
    #[track_caller]
    pub fn new(base: D, axes: usize) -> Result<Independent<D>> {
        let batch = base.batch_shape();
        if axes > batch.rank() {
            let message = format!("{axes} axes of the batch {batch}, which has {}", batch.rank());
            return Err(Error::invalid("Independent", message));
        }
        Ok(Independent { base, axes })
    }

    /// The distribution that was given to [`Independent::new`]. PyTorch's `base_dist`.
    pub fn base(&self) -> &D {
        &self.base
    }
}

/// The sum over the last `axes` axes.
#[track_caller]
pub(crate) fn sum_last(t: &Tensor, axes: usize) -> Result<Tensor> {
    if axes == 0 {
        return Ok(t.clone());
    }
    let axes: Vec<isize> = (1..=axes as isize).map(|k| -k).collect();
    t.sum_axis(Axes::from(axes), false)
}

impl<D: Distribution> Distribution for Independent<D> {
    fn batch_shape(&self) -> Shape {
        let batch = self.base.batch_shape();
        batch.dims()[..batch.rank() - self.axes].iter().copied().collect()
    }

    fn event_shape(&self) -> Shape {
        let batch = self.base.batch_shape();
        let moved: Shape = batch.dims()[batch.rank() - self.axes..].iter().copied().collect();
        join(&moved, &self.base.event_shape())
    }

    #[track_caller]
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        self.base.draw(shape, rng)
    }

    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| sum_last(&self.base.log_prob(value)?, self.axes))
    }

    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        at_caller(|| sum_last(&self.base.entropy()?, self.axes))
    }

    #[track_caller]
    fn mean(&self) -> Result<Tensor> {
        self.base.mean()
    }

    #[track_caller]
    fn variance(&self) -> Result<Tensor> {
        self.base.variance()
    }

    #[track_caller]
    fn stddev(&self) -> Result<Tensor> {
        self.base.stddev()
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        self.base.validate()
    }
}

impl<D: Reparameterized> Reparameterized for Independent<D> {
    #[track_caller]
    fn draw_reparameterized(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        self.base.draw_reparameterized(shape, rng)
    }
}
