//! Products whose terms are cut into parts, because there would be too few workgroups otherwise. The sums of
//! the parts go to a temporary; a second dispatch adds them up in order and runs the epilogue. A kernel that
//! cannot store to its outputs has one part.

use tensor_core::{DType, Result, kernel::Kernel};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Resource},
        dtypes::{loaded, storage_size},
        storage::Elements,
    },
    kernels::product::epilogue::Store,
};

/// The most bytes of the sums of all parts.
const MAX_BYTES: usize = 64 << 20;

/// The parts of a product.
pub(crate) struct Split {
    /// The number of parts; 1 if the product is not cut.
    pub(crate) count: usize,
    /// Whether sums go to a temporary.
    pub(crate) apart: bool,
    /// The units of k in a part.
    pub(crate) chunk: usize,
    /// The elements from the sums of one part to those of the next.
    pub(crate) pitch: usize,
}

impl Split {
    /// Cuts `units` units of k into at most `most` parts, if the invocations of the whole product are fewer
    /// than a quarter of those that keep the device busy.
    pub(crate) fn new(
        kernel: &Kernel,
        invocations: usize,
        units: usize,
        most: usize,
        capabilities: &Capabilities,
    ) -> Split {
        let pitch = kernel.outputs[0].shape.numel().next_multiple_of(4);
        let room = MAX_BYTES.min(capabilities.binding_bytes as usize) / (8 * pitch.max(1));
        let wanted = match invocations.max(1) {
            few if few * 4 < capabilities.invocations => capabilities.invocations / few,
            _ => 1,
        };
        let chunk = units.div_ceil(wanted.min(most).min(room).max(1)).max(1);
        let count = units.div_ceil(chunk).max(1);
        Split { count, apart: count > 1, chunk, pitch }
    }

    /// The store of the first dispatch: of the kernel's results, or of the sums of parts.
    pub(crate) fn store(
        &self,
        kernel: &Kernel,
        d: &mut Dispatch,
        capabilities: &Capabilities,
    ) -> Result<Store> {
        match self.apart {
            false => Store::new(kernel, d, capabilities),
            true => Ok(Store::of_parts(sums(kernel))),
        }
    }

    /// The dispatch `d`, and the one that adds up its parts.
    pub(crate) fn joined(
        &self,
        kernel: &Kernel,
        d: Dispatch,
        capabilities: &Capabilities,
    ) -> Result<Dispatches> {
        if !self.apart {
            return Ok(d.into());
        }
        let join = self.join(kernel, capabilities)?;
        Ok(Dispatches { list: vec![d, join], temporaries: vec![(sums(kernel), self.count * self.pitch)] })
    }

    fn join(&self, kernel: &Kernel, capabilities: &Capabilities) -> Result<Dispatch> {
        let mut d = Dispatch::new("matmul");
        let numel = kernel.outputs[0].shape.numel();
        let total = numel.div_ceil(4);
        // The stores are bounded by n, as if the whole output were one row.
        for (name, size) in [("n", numel), ("total", total), ("parts", self.count), ("pitch", self.pitch)] {
            d.params.size(name, size);
        }
        d.code.line(format_args!("alias T = {};", loaded(kernel.operands[0].dtype)));
        let fours = storage_size(sums(kernel)) <= 4;
        d.bind("parts", Elements::words("T").in_fours(fours), false, Resource::Temporary(0));
        let store = Store::new(kernel, &mut d, capabilities)?;
        let vectors = store.takes_vectors() && numel.is_multiple_of(4);
        store.bind(vectors, &mut d);
        d.code.entry(64, |c| {
            c.bind("g", "workgroup_index * 64u + local_index");
            c.return_if("g >= params.total");
            c.bind("at", "g * 4u");
            c.var("sum", "load4_parts(at)");
            c.count("part", ["1u", "params.parts", "1u"], |c| {
                c.line("sum += load4_parts(part * params.pitch + at);");
            });
            match vectors {
                true => store.four("at", "sum", c),
                false => store.up_to_four("at", "at", "sum", c),
            }
        });
        d.workgroups = total.div_ceil(64);
        d.work = 64 * 4 * self.count;
        Ok(d)
    }
}

/// A dtype of the size of a sum, which is stored as it is computed.
fn sums(kernel: &Kernel) -> DType {
    match kernel.operands[0].dtype {
        wide if storage_size(wide) == 8 => wide,
        _ => DType::F32,
    }
}

#[cfg(test)]
mod tests {
    use tensor_core::Layout;

    use super::*;
    use crate::{kernels::product::contract, validate::capabilities};

    /// The workgroups of each dispatch of a product on a large GPU.
    fn workgroups([m, n, k]: [usize; 3], with_epilogue: bool) -> Vec<usize> {
        let capabilities = Capabilities { invocations: 1 << 16, ..capabilities(false) };
        let mut kernel = Kernel::matmul(DType::F32, &Layout::contiguous([m, k]), &Layout::contiguous([k, n]));
        if with_epilogue {
            kernel = taper_testing::epilogues::epilogues(&kernel).swap_remove(0).kernel;
        }
        let made = contract::dispatches(&kernel, &capabilities);
        made.map_or_else(|_| Vec::new(), |made| made.list.iter().map(|d| d.workgroups).collect())
    }

    #[test]
    fn few_tiles_are_cut_and_added_up_in_one_more_dispatch() {
        // 8 tiles, of 49 blocks of 16 terms each: 12 parts of 5 blocks, but the last has 4 less.
        for with_epilogue in [false, true] {
            assert_eq!(workgroups([64, 128, 784], with_epilogue), [8 * 10, 64 * 128 / 4 / 64]);
        }
        // Enough tiles, or too few terms.
        assert_eq!(workgroups([1024, 1024, 1024], false).len(), 1);
        assert_eq!(workgroups([64, 128, 64], false).len(), 1);
        // A workgroup computes 64 columns of two rows, and the terms are cut.
        assert_eq!(workgroups([2, 64, 65_536], false).len(), 2);
        assert_eq!(workgroups([2, 65_536, 64], true).len(), 1);
    }
}
