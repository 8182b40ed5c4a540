//! The kernels of one device's plans, deduplicated: layers of one kind, and sequences of various
//! lengths, share most of theirs.

use std::{
    borrow::Borrow,
    hash::{Hash, Hasher},
    sync::Arc,
};

use rustc_hash::FxHashSet;

use crate::kernels::kernel::{Body, Compiled, Kernel};

/// A kernel, and its compiled form.
pub(crate) struct Known {
    pub(crate) kernel: Kernel,
    pub(crate) compiled: Compiled,
    /// Whether a launch may find bad indices or another fault in its inputs.
    pub(crate) may_fail: bool,
}

/// The set of kernels.
pub(super) struct Kernels {
    known: FxHashSet<ByKernel>,
    /// The number of kernels at which those that no plan uses are dropped.
    most: usize,
}

/// The minimum number of kernels that are kept regardless of use.
const MIN_KEPT_KERNELS: usize = 1024;

impl Default for Kernels {
    fn default() -> Kernels {
        Kernels { known: FxHashSet::default(), most: MIN_KEPT_KERNELS }
    }
}

impl Kernels {
    /// The stored kernel that equals this one; it is stored if it is new.
    pub(super) fn share(&mut self, kernel: Kernel) -> Arc<Known> {
        if let Some(known) = self.known.get(&kernel) {
            return known.0.clone();
        }
        if self.known.len() >= self.most {
            self.known.retain(|known| Arc::strong_count(&known.0) > 1);
            // The threshold grows with the set, so that a scan of all kernels is amortized over as many
            // new ones.
            self.most = MIN_KEPT_KERNELS.max(2 * self.known.len());
        }
        let checks_itself = matches!(&kernel.body, Body::Custom(custom) if custom.may_fail());
        let may_fail = checks_itself || !kernel.indexed_operands().is_empty();
        let known = Arc::new(Known { kernel, compiled: Compiled::default(), may_fail });
        self.known.insert(ByKernel(known.clone()));
        known
    }
}

struct ByKernel(Arc<Known>);

impl Borrow<Kernel> for ByKernel {
    fn borrow(&self) -> &Kernel {
        &self.0.kernel
    }
}

impl PartialEq for ByKernel {
    fn eq(&self, other: &ByKernel) -> bool {
        self.0.kernel == other.0.kernel
    }
}

impl Eq for ByKernel {}

impl Hash for ByKernel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.kernel.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::shape::Shape,
        elements::dtype::DType,
        kernels::{
            kernel::{Instr, Program},
            layout::Layout,
            operators::BinaryOp,
        },
    };

    fn double(numel: usize) -> Kernel {
        let shape = Shape::from([numel]);
        let program = Program {
            instrs: vec![Instr::Load(0), Instr::Binary(BinaryOp::Add, 0, 0)],
            dtypes: vec![DType::F32; 2],
            inputs: vec![DType::F32],
            outputs: vec![1],
            ..Default::default()
        };
        let layout = Layout::contiguous(shape.clone());
        Kernel::map(shape, [layout], program)
    }

    #[test]
    fn equal_kernels_are_one() {
        let mut kernels = Kernels::default();
        let (a, b, other) = (kernels.share(double(3)), kernels.share(double(3)), kernels.share(double(4)));
        assert!(Arc::ptr_eq(&a, &b));
        assert!(!Arc::ptr_eq(&a, &other));
        assert_eq!(other.kernel.space, Shape::from([4]));
    }

    #[test]
    fn what_no_plan_has_is_dropped_and_the_rest_stays() {
        let mut kernels = Kernels::default();
        let kept = kernels.share(double(1));
        for numel in 2..=3 * MIN_KEPT_KERNELS {
            kernels.share(double(numel));
        }
        assert!(kernels.known.len() <= MIN_KEPT_KERNELS, "{} are kept", kernels.known.len());
        assert!(Arc::ptr_eq(&kept, &kernels.share(double(1))));
    }
}
