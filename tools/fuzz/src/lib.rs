//! The differential fuzzer: random programs, gradients, products and threads on a device, compared with the
//! expected results, and their kernels with those of eager runs. `cargo xtask fuzz`.
//!
//! | module | what lives there |
//! |---|---|
//! | [`program`] | programs as data |
//! | [`generate`] | random ones |
//! | [`oracle`] | what each step must give, and how closely |
//! | [`modes`] | the ways to evaluate a program |
//! | [`minimise`] | a failing program made small |
//! | [`code`] | a program as Rust |
//! | [`gradient_case`] | first and second derivatives |
//! | [`product_case`] | products of views |
//! | [`everyday_case`] | programs as users write them |
//! | [`kernels_case`] | the kernels of lazy programs, against eager ones |
//! | [`threads_case`] | threads that share leaves and graphs |
//! | [`rng`] | the fuzzer's own choices |
//! | `table` | steps from the table of operations |

pub mod code;
mod everyday;
pub mod generate;
mod gradients;
mod grid;
mod kernels;
pub mod minimise;
pub mod modes;
pub mod oracle;
mod products;
pub mod program;
mod table;
mod threads;

pub use everyday::everyday_case;
pub use gradients::gradient_case;
pub use kernels::kernels_case;
pub use products::product_case;
pub use taper_testing::rng;
pub use threads::threads_case;

use std::panic::{AssertUnwindSafe, catch_unwind};

use minimise::Failure;
use modes::Plan;
use rng::Rng;
use taper::Device;

/// A failure that one case found.
#[derive(Debug)]
pub struct Report {
    /// A description of the failure, in a sentence.
    pub what: String,
    /// The smallest program that shows it, as Rust.
    pub code: String,
}

/// One random program in all the ways of evaluating it.
///
/// # Errors
/// Runs one case; an error reports the smallest failing program.
pub fn program_case(seed: u64, case: u64, device: &Device) -> Result<(), Report> {
    let mut rng = Rng::new(seed, case);
    let taste = generate::Taste::of(device, &mut rng);
    let written = catch_unwind(AssertUnwindSafe(|| generate::program(&mut rng, &taste)));
    let (program, oracle) = written.map_err(|panic| Report {
        what: format!("panicked while the program was thought of: {}", modes::message(panic.as_ref())),
        code: String::new(),
    })?;
    for plan in Plan::all(&program, &mut rng) {
        if let Err(what) = modes::check(&program, &plan, &oracle, device) {
            let found = Failure { program, plan, what };
            let small = minimise::minimise(found, device, taste.subnormals);
            return Err(Report { code: code::rust(&small.program, &small.plan), what: small.what });
        }
    }
    Ok(())
}

/// The program of a case as Rust, with the expected result of each step.
pub fn show(seed: u64, case: u64, device: &Device) -> String {
    let mut rng = Rng::new(seed, case);
    let taste = generate::Taste::of(device, &mut rng);
    let (program, oracle) = generate::program(&mut rng, &taste);
    let mut out = String::new();
    for (i, (step, known)) in program.steps.iter().zip(&oracle.known).enumerate() {
        let x: Vec<String> = step.inputs.iter().map(|j| format!("t{j}")).collect();
        let exact = if known.is_exact() { "exact" } else { "rounded" };
        out +=
            &format!("let t{i} = {}; // {:?} {} {exact}\n", step.action.rust(&x), known.shape, known.dtype);
    }
    out
}
