//! Repeated runs of the suite. Each forces instruction sets or forms of kernels that the device would not
//! choose by itself, and leaves out the tests whose result they cannot change.

use super::{SUITE, build::Executable, devices::Device};

/// One more run on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rerun {
    /// The forced choice, for the table.
    pub(crate) label: &'static str,
    pub(crate) variables: &'static [(&'static str, &'static str)],
    /// The crates whose tests run, for the table.
    pub(crate) crates: &'static str,
    /// A crate beside the suite, and the part of it that runs.
    own: Option<(&'static str, Part)>,
    /// Whether it takes only a part of the table of operations. The whole table takes seconds on a CPU, but
    /// minutes on GPUs.
    pub(crate) draws: bool,
    /// The prefixes of the names of tests whose outcome does not depend on the forced choice. They have run
    /// without it.
    apart: Names,
}

/// Lists of prefixes of the names of tests.
type Names = &'static [&'static [&'static str]];

/// How much of a crate's tests a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Nothing,
    Whole,
    /// All tests except those whose names have these prefixes.
    Except(Names),
    /// All tests, but of those whose names have these prefixes only the share of this day.
    Dealt(Names, u64),
    /// One module of the crate's integration tests (`tests/it`).
    Module(&'static str),
}

impl Part {
    /// Whether a test is part of it, by its name.
    pub(crate) fn has(self, name: &str) -> bool {
        match self {
            Part::Nothing => false,
            Part::Whole => true,
            Part::Except(apart) => !begins(name, apart),
            Part::Dealt(dealt, day) => !begins(name, dealt) || hash(name) % DAYS == day % DAYS,
            Part::Module(module) => name.split_once("::").is_some_and(|(first, _)| first == module),
        }
    }
}

/// Whether a name has one of these prefixes.
fn begins(name: &str, prefixes: Names) -> bool {
    prefixes.iter().copied().flatten().any(|begin| name.starts_with(begin))
}

/// The 64-bit FNV-1a hash of a name, which is the same on every machine. Its halves are mixed, as a remainder
/// of a small number depends on few of the low bits.
fn hash(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^ (hash >> 32)
}

/// The days within which each test that is dealt runs on a GPU.
const DAYS: u64 = 4;

/// The part of the suite that the first run on a device takes. Tests that add no kernel to those of others
/// run whole on the CPU, and on a GPU a share each day.
pub(crate) fn first(device: &Device, seed: u64) -> Part {
    if device.is("wgpu") { Part::Dealt(&[COMPOSED], seed) } else { Part::Whole }
}

/// The environment variable of all settings of tests (`crates/testing/src/settings.rs`): a list with commas
/// between, which a rerun extends.
pub(crate) const SETTINGS: &str = "TAPER_TEST";

/// The setting that draws a part of the table of operations (`crates/operations/src/draw.rs`).
pub(crate) const DRAW: &str = "draw";

/// The number of parts of the table of operations: as many as there are repeated runs on one GPU, with the
/// one on a second adapter. Every day each part is in one of the runs, and within this number of days each
/// part has been in each of them.
const TABLE_PARTS: u64 = FORMS.len() as u64 + 1;

/// The parts that the repeated runs take, in their order.
pub(crate) fn draws(seed: u64) -> impl Iterator<Item = String> {
    (0..).map(move |run: u64| format!("{}/{TABLE_PARTS}", seed.wrapping_add(run) % TABLE_PARTS))
}

/// The test target that holds a crate's integration tests.
const INTEGRATION_TESTS: &str = "it";

/// The instruction sets of the CPU's backend, best first.
const SETS: [Rerun; 3] = [
    set("avx512", &[("TAPER_CPU_ISA", "avx512")]),
    set("avx2", &[("TAPER_CPU_ISA", "avx2")]),
    set("baseline", &[("TAPER_CPU_ISA", "baseline")]),
];

/// Tests of the graph and of functions built from it, of the environment, of devices, and of other backends.
const GRAPH: &[&str] = &[
    "checkpoint::",
    "devices::",
    "endurance::a_million_additions",
    "endurance::dropped_graphs",
    "environment::",
    "errors::",
    "func::",
    "logical_devices::",
    "memory_lines::",
    "operations::bad_input",
    "operations::jacobians",
    "operations::vmap",
    "parallel::",
    "registered::",
    "settings::",
    "shared_leaves::",
];

/// Tests that hold memory over thousands of small kernels, or start a process.
const MEMORY: &[&str] = &["flat::", "lost_training::"];

/// Tests of the CPU backend's process, and tests that choose the instruction set themselves.
const PROCESS_ON_CPU: &[&str] =
    &["async_reads::", "memory_faults::", "rounding::every_target_and_midpoint_on_every_instruction_set"];

/// Tests that add no kernel to those of other tests on a GPU: compositions such as attention; layers and
/// distributions made of rows of the table, whose values and gradients run in every form; other backends; and
/// checks of other views, which the backend's own tests have in every form.
const COMPOSED: &[&str] = &[
    "attention::",
    "distributions::",
    "fft::",
    "layers::",
    "movement::",
    "networks::",
    "optimizers::",
    "probability::",
    "pytorch::",
    "recurrent::",
    "third_party::",
];

/// Checks of the table that the first run on a GPU makes in full.
const OF_TABLE: &[&str] = &["operations::every_layout_and_shape", "operations::pytorch_gives_the_same"];

const fn set(label: &'static str, variables: &'static [(&'static str, &'static str)]) -> Rerun {
    Rerun {
        label,
        variables,
        crates: "taper, taper-backend-cpu",
        own: Some(("taper-backend-cpu", Part::Whole)),
        draws: false,
        apart: &[GRAPH, MEMORY, PROCESS_ON_CPU],
    }
}

/// The ways a GPU's kernels can be made. Its crate's other tests open devices for each by themselves.
const FORMS: [Rerun; 3] = [
    form("tiled", &[(SETTINGS, "wgpu.form=tiled")], &[GRAPH, MEMORY, COMPOSED, OF_TABLE]),
    form(
        "direct, uniforms, 8 buffers",
        // With checked shaders too.
        &[
            (SETTINGS, "wgpu.form=direct,wgpu.immediates=off,wgpu.storage_buffers=8"),
            ("TAPER_WGPU_CHECKED", "1"),
        ],
        // Buffers of parameters are memory too.
        &[GRAPH, COMPOSED, OF_TABLE],
    ),
    // Larger than what the suite cannot do without, smaller than its larger tensors.
    form(
        "windows of 128 KiB",
        &[(SETTINGS, "wgpu.binding_bytes=131072")],
        &[GRAPH, MEMORY, COMPOSED, OF_TABLE],
    ),
];

const fn form(
    label: &'static str,
    variables: &'static [(&'static str, &'static str)],
    apart: Names,
) -> Rerun {
    let own = Some(("taper-backend-wgpu", Part::Module("agree")));
    Rerun { label, variables, crates: "taper, taper-backend-wgpu", own, draws: true, apart }
}

/// Another software adapter than the system's: SwiftShader, which comes with Chromium. It has smaller
/// workgroups, subgroups and memory than lavapipe, no 64-bit numbers and no denormal ones, and another
/// compiler, so that nothing rests on one driver alone.
const SECOND: [Rerun; 2] = [
    form(
        "SwiftShader",
        &[("VK_DRIVER_FILES", DRIVERS[0]), ("VK_ICD_FILENAMES", DRIVERS[0])],
        &[GRAPH, COMPOSED, OF_TABLE],
    ),
    form(
        "SwiftShader",
        &[("VK_DRIVER_FILES", DRIVERS[1]), ("VK_ICD_FILENAMES", DRIVERS[1])],
        &[GRAPH, COMPOSED, OF_TABLE],
    ),
];

/// Where Debian's `chromium` and Google's Chrome have it.
const DRIVERS: [&str; 2] =
    ["/usr/lib/chromium/vk_swiftshader_icd.json", "/opt/google/chrome/vk_swiftshader_icd.json"];

/// A run on a second adapter, or why there is none.
pub(crate) type Second = Result<Rerun, &'static str>;

/// The run on a second adapter; why there is none on Linux, or nothing at all elsewhere.
pub(crate) fn second_adapter() -> Option<Second> {
    let present = |driver: &&str| std::path::Path::new(driver).exists();
    let found = DRIVERS.iter().position(present);
    cfg!(target_os = "linux")
        .then(|| found.map(|at| SECOND[at]).ok_or("no second adapter: apt-get install chromium (Debian)"))
}

impl Rerun {
    /// The part of a test program that runs.
    pub(crate) fn part_of(&self, test: &Executable) -> Part {
        match self.own {
            _ if test.package == SUITE => Part::Except(self.apart),
            Some((package, Part::Whole)) if test.package == package => Part::Except(self.apart),
            Some((package, part)) if test.package == package && test.target == INTEGRATION_TESTS => part,
            _ => Part::Nothing,
        }
    }
}

/// The further runs on a device: on the CPU with the instruction sets below the one it chose, which its
/// description names; on a GPU with each form of its kernels.
pub(crate) fn of(device: &Device) -> Vec<Rerun> {
    if device.is("cpu") {
        let chosen = SETS.iter().position(|set| device.description.contains(&format!("({})", set.label)));
        return chosen.map_or(Vec::new(), |at| SETS[at + 1..].to_vec());
    }
    if !device.is("wgpu") {
        return Vec::new();
    }
    // The crate's own tests take the first adapter.
    let first = device.name == "wgpu:0";
    let suite_alone = |form: Rerun| Rerun { crates: SUITE, own: None, ..form };
    FORMS.into_iter().map(|form| if first { form } else { suite_alone(form) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(name: &str, description: &str) -> Vec<&'static str> {
        let device = Device { name: name.to_string(), description: description.to_string() };
        of(&device).into_iter().map(|rerun| rerun.label).collect()
    }

    #[test]
    fn a_test_that_is_dealt_runs_on_one_of_four_days() {
        for name in ["layers::conv", "networks::resnet", "third_party::a_backend"] {
            let days = (0..DAYS).filter(|&day| Part::Dealt(&[COMPOSED], day).has(name));
            assert_eq!(days.count(), 1, "{name}");
        }
        assert!((0..DAYS).all(|day| Part::Dealt(&[COMPOSED], day).has("sort::rows")));
    }

    #[test]
    fn a_cpu_runs_with_lesser_instruction_sets_and_a_gpu_with_every_form() {
        // As `devices` lists it, with the memory where that is known.
        assert_eq!(labels("cpu", "AMD EPYC (avx512), 8.0 GiB"), ["avx2", "baseline"]);
        assert_eq!(labels("cpu", "AMD EPYC (avx512)"), ["avx2", "baseline"]);
        assert_eq!(labels("cpu", "AMD EPYC (baseline)"), Vec::<&str>::new());
        assert_eq!(labels("wgpu:1", "llvmpipe"), FORMS.map(|form| form.label));
        assert_eq!(labels("mine", "of another backend"), Vec::<&str>::new());
    }

    #[test]
    fn each_run_takes_another_part_of_the_table_and_the_next_day_the_next() {
        let parts = |seed| draws(seed).take(5).collect::<Vec<_>>();
        assert_eq!(parts(20_000), ["0/4", "1/4", "2/4", "3/4", "0/4"]);
        assert_eq!(parts(20_001), ["1/4", "2/4", "3/4", "0/4", "1/4"]);
        assert!(FORMS.iter().chain(&SECOND).all(|rerun| rerun.draws) && SETS.iter().all(|set| !set.draws));
    }

    #[test]
    fn programs_that_take_part() {
        let program = |package: &str, target: &str| Executable {
            package: package.to_string(),
            target: target.to_string(),
            path: target.into(),
        };
        let parts = |rerun: &Rerun| {
            [
                ("taper", "it"),
                ("taper-backend-cpu", "it"),
                ("taper-backend-cpu", "backend_cpu"),
                ("taper-backend-wgpu", "it"),
                ("taper-backend-wgpu", "backend_wgpu"),
            ]
            .map(|(package, target)| rerun.part_of(&program(package, target)))
        };
        use Part::{Except, Module, Nothing};
        let most = Except(SETS[0].apart);
        assert_eq!(parts(&SETS[0]), [most, most, most, Nothing, Nothing]);
        let most = Except(FORMS[0].apart);
        assert_eq!(parts(&FORMS[0]), [most, Nothing, Nothing, Module("agree"), Nothing]);
        let second = Device { name: "wgpu:1".to_string(), description: String::new() };
        assert_eq!(parts(&of(&second)[0]), [most, Nothing, Nothing, Nothing, Nothing]);
    }

    #[test]
    fn parts_are_told_by_names() {
        let module = Part::Module("agree");
        assert!(module.has("agree::maps") && !module.has("disagree::maps") && !module.has("agree"));
        let most = Part::Except(&[&["flat::"], &["endurance::a_"]]);
        assert!(most.has("endurance::the_same") && most.has("reduce::flat::x"));
        assert!(!most.has("flat::x") && !most.has("endurance::a_million"));
        assert!(Part::Whole.has("x") && !Part::Nothing.has("x"));
    }
}
