//! [`merged`]: one dispatch in place of several with the same WGSL, on the buffers and parameters of each. An
//! optimizer's updates of many small parameters take few dispatches so.

use std::{collections::HashSet, fmt::Write};

use crate::codegen::{
    dispatch::{Binding, Dispatch, Params},
    wgsl::Code,
};

/// The words of a merged dispatch's parameters, in order: the first workgroup, for each part the number of
/// the workgroup after its last one, and then the parameters of each part without its first workgroup.
pub(crate) fn words(workgroups: impl Iterator<Item = usize>, parts: &[&[u32]], out: &mut Vec<u32>) {
    out.clear();
    out.push(0);
    let mut end = 0;
    out.extend(workgroups.map(|count| {
        end += count as u32;
        end
    }));
    parts.iter().for_each(|words| out.extend_from_slice(&words[1..]));
}

/// The dispatch that does the work of `count` dispatches with the text of `one`; their bindings follow each
/// other. `None` if its text has another form than that of this crate's generator.
pub(crate) fn merged(one: &Dispatch, count: usize) -> Option<Dispatch> {
    if !one.can_merge() {
        return None;
    }
    let (functions, invocations, body) = split(one.code.text())?;
    let own = Names::of(functions, one);
    let mut params = Params::default();
    (0..count).for_each(|part| params.word(format!("end_{part}"), 0));
    let mut code = Code::default();
    let mut bindings: Vec<Binding> = Vec::new();
    for part in 0..count {
        one.params.names().for_each(|name| params.word(format!("{name}_{part}"), 0));
        bindings.extend(
            one.bindings
                .iter()
                .map(|binding| Binding { name: format!("{}_{part}", binding.name), ..binding.clone() }),
        );
        let shared = |line: &&str| part == 0 || !line.starts_with("var<workgroup>");
        let text: String = functions.lines().filter(shared).flat_map(|line| [line, "\n"]).collect();
        code.append(&own.renamed(&text, part));
        code.append(&format!("\nfn part_{part}(workgroup_index: u32, local_index: u32) {{\n"));
        code.append(&own.renamed(body, part));
    }
    code.entry(invocations, |c| {
        for part in 0..count {
            let start = match part.checked_sub(1) {
                Some(before) => format!(" - params.end_{before}"),
                None => String::new(),
            };
            c.when(format_args!("workgroup_index < params.end_{part}"), |c| {
                c.line(format_args!("part_{part}(workgroup_index{start}, local_index);"));
                c.line("return;");
            });
        }
    });
    let mut all = Dispatch::new(one.label);
    (all.params, all.bindings, all.code) = (params, bindings, code);
    Some(all)
}

/// The text before the entry point, the invocations of a workgroup, and the body after the line that defines
/// `workgroup_index`, with the closing brace: as [`Code::entry`] writes them, at the end of the text.
fn split(text: &str) -> Option<(&str, usize, &str)> {
    let (functions, entry) = text.split_once("@compute @workgroup_size(")?;
    let (invocations, entry) = entry.split_once(')')?;
    let (_, entry) = entry.split_once("let workgroup_index = ")?;
    let (_, body) = entry.split_once('\n')?;
    Some((functions, invocations.trim().parse().ok()?, body))
}

/// The names of a dispatch that differ in each part.
struct Names<'a> {
    declared: HashSet<&'a str>,
    bindings: Vec<&'a str>,
}

impl<'a> Names<'a> {
    fn of(functions: &'a str, one: &'a Dispatch) -> Names<'a> {
        const HEADS: [&str; 6] = ["fn ", "const ", "struct ", "alias ", "var<private> ", "override "];
        let declared = functions.lines().filter_map(|line| {
            let rest = HEADS.iter().find_map(|head| line.strip_prefix(head))?;
            rest.split(|c: char| !is_of_name(c)).next()
        });
        Names {
            declared: declared.collect(),
            bindings: one.bindings.iter().map(|b| b.name.as_str()).collect(),
        }
    }

    /// Whether a name is declared by the code, is a binding, or is a function that accesses a binding.
    fn differs(&self, name: &str) -> bool {
        let of_binding = |binding: &&str| {
            name.strip_suffix(*binding).is_some_and(|before| before.is_empty() || before.ends_with('_'))
        };
        self.declared.contains(name) || self.bindings.iter().any(of_binding)
    }

    /// The text with these names, and those of parameters, followed by the part's number.
    fn renamed(&self, text: &str, part: usize) -> String {
        let mut out = String::with_capacity(text.len() + text.len() / 4);
        let (mut rest, mut before) = (text, "");
        let mut after_point = false;
        while let Some(start) = rest.find(is_of_name) {
            let (between, tail) = rest.split_at(start);
            out.push_str(between);
            if !between.is_empty() {
                after_point = between == ".";
            }
            let end = tail.find(|c| !is_of_name(c)).unwrap_or(tail.len());
            let (name, tail) = tail.split_at(end);
            out.push_str(name);
            let is_member = after_point && !before.is_empty();
            if (is_member && before == "params") || (!is_member && self.differs(name)) {
                let _ = write!(out, "_{part}");
            }
            (rest, before, after_point) = (tail, name, false);
        }
        out.push_str(rest);
        out
    }
}

fn is_of_name(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tensor_core::DType;

    use super::*;
    use crate::codegen::{dispatch::Resource, storage::Elements};

    fn sum() -> Dispatch {
        let mut d = Dispatch::new("sum");
        d.params.size("total", 3);
        d.bind("in0", Elements::of(DType::F32), false, Resource::Input(0));
        d.bind("out0", Elements::of(DType::F32), true, Resource::Output(0));
        d.code.append("var<workgroup> partial: array<f32, 64>;\n");
        d.code.expression("twice", &[("x", "f32")], "f32", "x + x");
        d.code.entry(64, |c| {
            c.line("partial[local_index] = twice(load_in0(local_index));");
            c.line("workgroupBarrier();");
            c.return_if("local_index >= params.total");
            c.line("store_out0(workgroup_index, partial[0]);");
        });
        d
    }

    #[test]
    fn parts_have_their_own_buffers_and_parameters_and_share_workgroup_memory() {
        let all = merged(&sum(), 3).unwrap();
        let names: Vec<&str> = all.bindings.iter().map(|b| b.name.as_str()).collect();
        assert_eq!(names, ["in0_0", "out0_0", "in0_1", "out0_1", "in0_2", "out0_2"]);
        for immediates in [true, false] {
            let text = all.text(immediates);
            assert_eq!(text.matches("var<workgroup>").count(), 1, "{text}");
            assert!(text.contains("partial[local_index] = twice_2(load_in0_2(local_index));"), "{text}");
            assert!(text.contains("local_index >= params.total_1"), "{text}");
            assert!(text.contains("part_2(workgroup_index - params.end_1, local_index);"), "{text}");
            let module = naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let mut validator = naga::valid::Validator::new(
                naga::valid::ValidationFlags::all(),
                naga::valid::Capabilities::all(),
            );
            validator.validate(&module).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        }
        assert_eq!(all.params.len(), 1 + 3 + 3);
    }

    #[test]
    fn the_words_are_the_ends_and_then_those_of_each_part() {
        let mut out = vec![9];
        words([2, 5].into_iter(), &[&[0, 7], &[0, 8]], &mut out);
        assert_eq!(out, [0, 2, 7, 7, 8]);
    }

    #[test]
    fn members_and_numbers_are_not_renamed() {
        let d = sum();
        let names = Names::of(d.code.text(), &d);
        assert_eq!(
            names.renamed("v.twice + 1.0 * twice(in0[0]) - params.total", 1),
            "v.twice + 1.0 * twice_1(in0_1[0]) - params.total_1"
        );
    }
}
