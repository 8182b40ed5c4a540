//! Laziness costs no work: whatever a program reads, in any order and with handles dropped at any time, it
//! runs at most as many kernels as if each operation were computed when it is called.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use taper::{Device, inspect::without_fusion};
use taper_testing::{hooked, to_scalars};

use crate::{
    Report, code, generate,
    minimise::{Failure, minimise_with},
    modes::{self, Plan},
    program::Program,
    rng::Rng,
};

/// One random program, evaluated in several ways.
///
/// # Errors
/// Runs one case; an error reports the smallest program that runs more kernels than an eager one.
pub fn kernels_case(seed: u64, case: u64, device: &Device) -> Result<(), Report> {
    let mut rng = Rng::new(seed ^ 0x6b, case);
    let taste = generate::Taste::of(device, &mut rng);
    let written = catch_unwind(AssertUnwindSafe(|| generate::program(&mut rng, &taste)));
    // Panics while a program is written are findings of the family of programs.
    let Ok((program, _)) = written else { return Ok(()) };
    let counted = Counted::new(device);
    for plan in Plan::all(&program, &mut rng).into_iter().filter(|plan| !plan.is_eager()) {
        let Some(what) = counted.excess(&program, &plan) else { continue };
        let found = Failure { program: program.clone(), plan, what };
        let fails = |program: &Program, plan: &Plan, _: &_| counted.excess(program, plan);
        let small = minimise_with(found, device, taste.subnormals, fails);
        return Err(Report { code: code::rust(&small.program, &small.plan), what: small.what });
    }
    Ok(())
}

/// A device that counts its kernels, except those that read nothing: a constant, a range or a draw is filled
/// in wherever it is read.
struct Counted {
    device: Device,
    kernels: Arc<AtomicUsize>,
}

impl Counted {
    fn new(device: &Device) -> Counted {
        let kernels = Arc::new(AtomicUsize::new(0));
        let count = kernels.clone();
        let device = hooked(device.backend().clone(), move |backend, launch| {
            count.fetch_add(usize::from(!launch.kernel.operands.is_empty()), Ordering::Relaxed);
            backend.run(launch)
        });
        Counted { device, kernels }
    }

    /// The kernels of a program that is built and read as planned.
    fn kernels(&self, program: &Program, plan: &Plan) -> Result<usize, String> {
        self.kernels.store(0, Ordering::Relaxed);
        let made = modes::build(program, plan, &self.device)?;
        for &read in &plan.reads {
            if let Some(tensor) = &made[read] {
                to_scalars(tensor).map_err(|error| error.to_string())?;
            }
        }
        Ok(self.kernels.load(Ordering::Relaxed))
    }

    /// A description of the kernels beyond those of an eager run, if there are any. A program that fails is a
    /// finding of another family.
    fn excess(&self, program: &Program, plan: &Plan) -> Option<String> {
        let count = || {
            let lazy = self.kernels(program, plan)?;
            let mut eager = Err(String::new());
            // Tensors without inputs are computed when they are read, so each step is evaluated too.
            let plan = Plan { eval: vec![true; plan.eval.len()], ..plan.clone() };
            let unfused = without_fusion(|| {
                eager = self.kernels(program, &plan);
                Ok(())
            });
            unfused.map_err(|error| error.to_string())?;
            Ok::<_, String>((lazy, eager?))
        };
        match catch_unwind(AssertUnwindSafe(count)) {
            Ok(Ok((lazy, eager))) if lazy > eager => {
                Some(format!("{lazy} kernels, and {eager} if each operation is computed when it is called"))
            }
            Ok(Ok(_) | Err(_)) | Err(_) => None,
        }
    }
}
