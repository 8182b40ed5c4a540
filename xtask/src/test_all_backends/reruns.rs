//! The runs of the suite. On the CPU it runs whole with the best instruction set, and its tests of kernels
//! with the others. On a GPU there is a run for each form of kernels, and each test and case is dealt to one.

use std::collections::BTreeMap;

use super::{
    SUITE,
    build::Executable,
    deal::{DAYS, Deal, Form, SETTING, dealt},
    devices::Device,
};

/// A run on a device, with a forced choice of kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rerun {
    /// The forced choice, for the table.
    pub(crate) label: &'static str,
    pub(crate) variables: Vec<(&'static str, &'static str)>,
    /// The crates whose tests run, for the table.
    pub(crate) crates: &'static str,
    /// A crate beside the suite, and the part of it that runs.
    own: Option<(&'static str, Part)>,
    /// The part of the suite that runs.
    suite: Part,
}

/// Lists of prefixes of the names of tests.
type Names = &'static [&'static [&'static str]];

/// Names and values of environment variables.
type Variables = &'static [(&'static str, &'static str)];

/// How much of a crate's tests a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Nothing,
    Whole,
    /// All tests except those whose names have these prefixes.
    Except(Names),
    /// The tests of the suite that are dealt to a form of a GPU's kernels.
    Dealt(Deal),
    /// All tests of the suite that a form changes.
    Form(Form),
}

impl Part {
    /// The tests of it, among the names of all tests of a program.
    pub(crate) fn of<'n>(self, names: &[&'n str]) -> Vec<&'n str> {
        let those = |wanted: &dyn Fn(&str) -> bool| names.iter().copied().filter(|n| wanted(n)).collect();
        match self {
            Part::Nothing => Vec::new(),
            Part::Whole => names.to_vec(),
            Part::Except(apart) => those(&|name| !begins(name, apart)),
            Part::Dealt(deal) => dealt_today(deal, names),
            Part::Form(form) => those(&|name| form == Form::Tiled || !begins(name, ONE_FORM)),
        }
    }
}

/// Whether a name has one of these prefixes.
fn begins(name: &str, prefixes: Names) -> bool {
    prefixes.iter().copied().flatten().any(|begin| name.starts_with(begin))
}

/// The module of a test.
fn topic(name: &str) -> &str {
    name.split_once("::").map_or("", |(topic, _)| topic)
}

/// The tests of the suite that a form takes on a day: of a topic one in [`DAYS`], of the topics that add no
/// kernel half as many. The tests whose cases are dealt are in each form.
fn dealt_today<'n>(deal: Deal, names: &[&'n str]) -> Vec<&'n str> {
    let mut today = Vec::new();
    let mut groups: BTreeMap<(&str, usize, bool), Vec<&'n str>> = BTreeMap::new();
    for &name in names {
        if begins(name, &[CASES]) {
            today.push(name);
            continue;
        }
        let part = if begins(name, &[COMPOSED]) { 2 * DAYS } else { DAYS };
        groups.entry((topic(name), part as usize, begins(name, ONE_FORM))).or_default().push(name);
    }
    for ((topic, part, one_form), tests) in groups {
        let in_form = |form| if one_form { Form::Tiled == deal.form } else { form == deal.form };
        let taken = dealt(topic, tests.len(), part, deal.day).filter(|(_, form)| in_form(*form));
        today.extend(taken.map(|(case, _)| tests[case]));
    }
    today
}

/// The environment variable of all settings of tests (`tools/testing/src/settings.rs`): a list with commas
/// between, which a rerun extends.
pub(crate) const SETTINGS: &str = "TAPER_TEST";

/// The instruction sets of the CPU's backend, best first, and then its kernels without special forms.
const SETS: [(&str, Variables); 4] = [
    ("avx512", &[("TAPER_CPU_ISA", "avx512")]),
    ("avx2", &[("TAPER_CPU_ISA", "avx2")]),
    ("baseline", &[("TAPER_CPU_ISA", "baseline")]),
    ("plain forms", &[("TAPER_CPU_FORMS", "-all")]),
];

/// Tests whose cases are dealt, so that they run in each form.
const CASES: &[&str] = &[
    "autocast::layers_of_several_inputs",
    "blocks::groups_of_integers",
    "blocks::products_read_blocks",
    "conv::convolutions_are_right_relative",
    "epilogues::products_with_epilogues",
    "formulas::first_and_second_derivatives",
    "formulas::values_are_those",
    "grid::every_mode",
    "ieee::fused_expressions",
    "ieee::integers_and_conversions",
    "operations::",
    "third_party::a_backend_is_held_to_the_reference",
];

/// The checks of the table that take longest on the CPU.
pub(crate) const GRADIENTS: Names =
    &[&["operations::derivatives", "operations::gradients", "operations::jacobians", "operations::vmap"]];

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
    "parallel::",
    "registered::",
    "settings::",
    "shared_leaves::",
];

/// Tests that hold memory over thousands of small kernels, or start a process.
const MEMORY: &[&str] = &["flat::", "lost_training::"];

/// Tests of a GPU that do not depend on the form of its kernels.
const ONE_FORM: Names = &[GRAPH, MEMORY];

/// Tests of the CPU backend's process, and tests that choose the instruction set themselves.
const PROCESS_ON_CPU: &[&str] =
    &["async_reads::", "memory_faults::", "rounding::every_target_and_midpoint_on_every_instruction_set"];

/// Tests that add no kernel to those of other tests on a GPU: compositions such as attention; layers and
/// distributions made of rows of the table, whose values and gradients run in every form.
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

/// The forms of a GPU's kernels that an adapter is asked for, with the settings that force them.
const FORMS: [(Form, &str, Variables); 3] = [
    (Form::Tiled, "tiled", &[(SETTINGS, "wgpu.form=tiled")]),
    (
        Form::Direct,
        "direct, uniforms, 8 buffers",
        &[(SETTINGS, "wgpu.form=direct,wgpu.immediates=off,wgpu.storage_buffers=8")],
    ),
    // Larger than what the suite cannot do without, smaller than its larger tensors.
    (Form::Windows, "windows of 128 KiB", &[(SETTINGS, "wgpu.form=tiled,wgpu.binding_bytes=131072")]),
];

/// With shaders that check each access, as programs that are debugged have.
const CHECKED: (&str, &str) = ("TAPER_WGPU_CHECKED", "1");

/// Another software adapter than the system's: SwiftShader, which comes with Chromium. It has smaller
/// workgroups, subgroups and memory than lavapipe, no 64-bit numbers and no denormal ones, and another
/// compiler, so that nothing rests on one driver alone.
const SECOND: [Variables; 2] = [
    &[("VK_DRIVER_FILES", DRIVERS[0]), ("VK_ICD_FILENAMES", DRIVERS[0])],
    &[("VK_DRIVER_FILES", DRIVERS[1]), ("VK_ICD_FILENAMES", DRIVERS[1])],
];

/// Where Debian's `chromium` and Google's Chrome have it.
const DRIVERS: [&str; 2] =
    ["/usr/lib/chromium/vk_swiftshader_icd.json", "/opt/google/chrome/vk_swiftshader_icd.json"];

/// The variables that choose a second adapter, or why there is none.
pub(crate) type Second = Result<Variables, &'static str>;

/// The second adapter; why there is none on Linux, or nothing at all elsewhere.
pub(crate) fn second_adapter() -> Option<Second> {
    let present = |driver: &&str| std::path::Path::new(driver).exists();
    let found = DRIVERS.iter().position(present);
    cfg!(target_os = "linux")
        .then(|| found.map(|at| SECOND[at]).ok_or("no second adapter: apt-get install chromium (Debian)"))
}

impl Rerun {
    fn on_cpu((label, variables): (&'static str, Variables), suite: Part) -> Rerun {
        let own = Some(("taper-backend-cpu", Part::Except(&[PROCESS_ON_CPU])));
        let crates = if suite == Part::Nothing { "taper-backend-cpu" } else { "taper, taper-backend-cpu" };
        Rerun { label, variables: variables.to_vec(), crates, own, suite }
    }

    fn on_gpu(form: Form, label: &'static str, variables: Variables, day: Option<u64>) -> Rerun {
        let mut variables = variables.to_vec();
        let suite = match day {
            Some(day) => Part::Dealt(Deal { form, day }),
            None => Part::Form(form),
        };
        if day.is_none() && form == Form::Direct {
            variables.push(CHECKED);
        }
        Rerun { label, variables, crates: SUITE, own: None, suite }
    }

    /// The setting that deals cases to this run.
    pub(crate) fn deal(&self) -> Option<String> {
        match self.suite {
            Part::Dealt(deal) => Some(format!("{SETTING}={deal}")),
            _ => None,
        }
    }

    /// The part of a test program that runs.
    pub(crate) fn part_of(&self, test: &Executable) -> Part {
        match self.own {
            _ if test.package == SUITE => self.suite,
            Some((package, part)) if test.package == package => part,
            _ => Part::Nothing,
        }
    }
}

/// The runs on a device. On the CPU: the suite whole; then the backend's tests with the instruction sets
/// below the one it chose, which its description names, and with plain forms, and the suite with one of these
/// each day. On a GPU: the forms of its kernels, with what is dealt to them on the day, or with everything.
pub(crate) fn of(device: &Device, seed: u64, all: bool) -> Vec<Rerun> {
    let whole = Rerun { label: "", variables: Vec::new(), crates: SUITE, own: None, suite: Part::Whole };
    if device.is("wgpu") {
        let day = (!all).then_some(seed);
        return FORMS.into_iter().map(|(form, label, set)| Rerun::on_gpu(form, label, set, day)).collect();
    }
    let chosen = SETS.iter().position(|(set, _)| device.description.contains(&format!("({set})")));
    let lesser = chosen.filter(|_| device.is("cpu")).map_or(&[][..], |at| &SETS[at + 1..]);
    let rerun = |(at, set): (usize, &(&'static str, Variables))| {
        let takes = all || at as u64 == seed % lesser.len() as u64;
        Rerun::on_cpu(
            *set,
            if takes { Part::Except(&[GRAPH, MEMORY, PROCESS_ON_CPU]) } else { Part::Nothing },
        )
    };
    [whole].into_iter().chain(lesser.iter().enumerate().map(rerun)).collect()
}

/// The run on a second adapter.
pub(crate) fn second(variables: Variables, seed: u64, all: bool) -> Rerun {
    Rerun::on_gpu(Form::Second, "SwiftShader", variables, (!all).then_some(seed))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn runs(name: &str, description: &str, seed: u64) -> Vec<Rerun> {
        of(&Device { name: name.to_string(), description: description.to_string() }, seed, false)
    }

    fn labels(name: &str, description: &str) -> Vec<&'static str> {
        runs(name, description, 0).into_iter().map(|rerun| rerun.label).collect()
    }

    #[test]
    fn a_cpu_runs_with_lesser_instruction_sets_and_a_gpu_in_every_form() {
        // As `devices` lists it, with the memory where that is known.
        assert_eq!(labels("cpu", "AMD EPYC (avx512), 8.0 GiB"), ["", "avx2", "baseline", "plain forms"]);
        assert_eq!(labels("cpu", "AMD EPYC (avx512)"), ["", "avx2", "baseline", "plain forms"]);
        assert_eq!(labels("cpu", "AMD EPYC (baseline)"), ["", "plain forms"]);
        assert_eq!(labels("wgpu:1", "llvmpipe"), FORMS.map(|(_, label, _)| label));
        assert_eq!(labels("mine", "of another backend"), [""]);
    }

    #[test]
    fn the_suite_runs_whole_on_the_cpu_and_with_one_lesser_set_a_day() {
        for seed in 0..4 {
            let suites: Vec<Part> = runs("cpu", "(avx512)", seed).iter().map(|rerun| rerun.suite).collect();
            assert_eq!(suites[0], Part::Whole);
            let today = 1 + seed as usize % 3;
            for (at, part) in suites.iter().enumerate().skip(1) {
                assert_eq!(matches!(part, Part::Except(_)), at == today, "{suites:?}");
                assert_eq!(*part == Part::Nothing, at != today, "{suites:?}");
            }
        }
    }

    /// Names as the suite has them: topics of one test, of a few and of many.
    fn names() -> Vec<String> {
        let of =
            |topic: &str, tests: usize| (0..tests).map(|n| format!("{topic}::test_{n}")).collect::<Vec<_>>();
        [
            ("sort", 1),
            ("reduce", 2),
            ("shapes", 9),
            ("layers", 22),
            ("operations", 3),
            ("func", 4),
            ("flat", 1),
        ]
        .into_iter()
        .flat_map(|(topic, tests)| of(topic, tests))
        .collect()
    }

    #[test]
    fn each_topic_is_on_a_gpu_every_day_and_in_every_form_within_four() {
        let names = names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let today = |form, day| Part::Dealt(Deal { form, day }).of(&names);
        for day in 20_000..20_100 {
            for topic_ in ["sort", "reduce", "shapes", "layers"] {
                let on =
                    |form, day| today(form, day).into_iter().filter(|name| topic(name) == topic_).count();
                let part = if topic_ == "layers" { 8 } else { 4 };
                let all = names.iter().filter(|name| topic(name) == topic_).count();
                assert_eq!(Form::ALL.map(|form| on(form, day)).iter().sum::<usize>(), all.div_ceil(part));
                for form in Form::ALL {
                    assert!((day..day + 4).any(|day| on(form, day) > 0), "{topic_} in {form:?} from {day}");
                }
            }
            for form in Form::ALL {
                let taken = today(form, day);
                assert_eq!(taken.iter().filter(|name| name.starts_with("operations::")).count(), 3);
                let one_form = taken.iter().filter(|name| ["func", "flat"].contains(&topic(name))).count();
                assert_eq!(one_form, if form == Form::Tiled { 2 } else { 0 });
            }
        }
    }

    #[test]
    fn all_is_every_test_in_every_form() {
        let gpu = Device { name: "wgpu:0".to_string(), description: String::new() };
        let names = ["func::x", "layers::x", "operations::x", "sort::x"];
        let counts: Vec<usize> = of(&gpu, 0, true).iter().map(|rerun| rerun.suite.of(&names).len()).collect();
        assert_eq!(counts, [4, 3, 3]);
        assert!(of(&gpu, 0, true).iter().all(|rerun| rerun.deal().is_none()));
        let dealt: Vec<_> = of(&gpu, 7, false).iter().map(|rerun| rerun.deal().unwrap_or_default()).collect();
        assert_eq!(dealt, ["deal=tiled@7", "deal=direct@7", "deal=windows@7"]);
    }

    #[test]
    fn programs_that_take_part() {
        let program = |package: &str| Executable {
            package: package.to_string(),
            target: "it".to_string(),
            path: "it".into(),
        };
        let parts = |rerun: &Rerun| {
            ["taper", "taper-backend-cpu", "taper-backend-wgpu"]
                .map(|package| rerun.part_of(&program(package)))
        };
        use Part::{Except, Nothing};
        let cpu = runs("cpu", "(avx512)", 0);
        assert_eq!(parts(&cpu[0]), [Part::Whole, Nothing, Nothing]);
        let own = Except(&[PROCESS_ON_CPU]);
        assert_eq!(parts(&cpu[1]), [Except(&[GRAPH, MEMORY, PROCESS_ON_CPU]), own, Nothing]);
        assert_eq!(parts(&cpu[2]), [Nothing, own, Nothing]);
        let tiled = Part::Dealt(Deal { form: Form::Tiled, day: 7 });
        assert_eq!(parts(&runs("wgpu:1", "", 7)[0]), [tiled, Nothing, Nothing]);
    }

    /// A test that was renamed must be renamed in the lists too.
    #[test]
    fn each_prefix_is_that_of_a_test() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates"));
        for prefix in [CASES, GRAPH, MEMORY, COMPOSED, PROCESS_ON_CPU].concat() {
            let (topic, test) = prefix.split_once("::").unwrap();
            let tests = ["taper", "backend-cpu"].map(|package| folder.join(package).join("tests/it"));
            let folders = tests.iter().flat_map(|tests| fs::read_dir(tests).unwrap());
            let mut folders = folders.map(|entry| entry.unwrap().path()).chain(tests.clone());
            let found = folders.any(|folder| {
                fs::read_to_string(folder.join(topic).with_extension("rs"))
                    .is_ok_and(|text| text.contains(&format!("fn {test}")))
            });
            assert!(found, "no test begins with {prefix}");
        }
    }

    #[test]
    fn parts_are_told_by_names() {
        let names = ["endurance::a_million", "endurance::the_same", "flat::x", "reduce::flat::x"];
        let most = Part::Except(&[&["flat::"], &["endurance::a_"]]);
        assert_eq!(most.of(&names), ["endurance::the_same", "reduce::flat::x"]);
        assert_eq!((Part::Whole.of(&names).len(), Part::Nothing.of(&names).len()), (4, 0));
    }
}
