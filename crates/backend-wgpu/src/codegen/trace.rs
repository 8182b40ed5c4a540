//! Traced kernels, for tests: each index into a storage buffer, into an array in workgroup memory or into
//! an array of a function is compared with the length, and one out of range is reported in a word of the
//! fault table that nothing else uses. Kernels run without such checks otherwise.

use crate::codegen::dispatch::{Binding, Dispatch, Resource};

/// The word of the fault table that receives a report: the last of the slot that is never read.
pub(crate) const WORD: usize = 3;

/// The function that compares an index `i` with the length `n`.
const IN_RANGE: &str = "
fn in_range_(i: u32, n: u32) -> u32 {
    if (i >= n) {
        atomicStore(&FAULTS[WORDu], CODEu);
    }
    return min(i, n - 1u);
}
";

/// Binds the fault table, if the dispatch does not bind it already.
pub(crate) fn bind(d: &mut Dispatch) {
    if !d.foreign && d.bindings.iter().all(|binding| binding.resource != Resource::Faults) {
        d.bind("faults_", "atomic<u32>", true, Resource::Faults);
    }
}

/// The report of a kernel with this text; never 0.
pub(crate) fn code(text: &str) -> u32 {
    let hash =
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619));
    hash | 1
}

/// The text of a dispatch with each index compared. Kernels of other crates are left as they are.
pub(crate) fn traced(text: &str, bindings: &[Binding]) -> String {
    let Some(faults) = bindings.iter().find(|binding| binding.resource == Resource::Faults) else {
        return text.into();
    };
    let mut arrays: Vec<(String, String)> =
        bindings.iter().map(|b| (b.name.clone(), format!("arrayLength(&{})", b.name))).collect();
    arrays.extend(text.lines().filter_map(array));
    let function = IN_RANGE
        .replace("FAULTS", &faults.name)
        .replace("WORD", &WORD.to_string())
        .replace("CODE", &code(text).to_string());
    compared(text, &arrays) + &function
}

/// The name and the length of an array that this line declares: `var<workgroup> name: array<T, n>;`.
fn array(line: &str) -> Option<(String, String)> {
    let rest = line.trim_start().strip_prefix("var")?;
    let rest = rest.strip_prefix("<workgroup>").unwrap_or(rest).strip_prefix(' ')?;
    let (name, ty) = rest.split_once(": array<")?;
    let (_, length) = ty.split(">;").next()?.rsplit_once(", ")?;
    Some((name.into(), length.into()))
}

fn compared(text: &str, arrays: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while let Some(at) = rest.find('[') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        out.push_str(before);
        out.push('[');
        rest = after;
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let name = &before[before.trim_end_matches(is_name).len()..];
        let (Some((_, length)), Some(end)) = (arrays.iter().find(|(own, _)| own == name), closing(after))
        else {
            continue;
        };
        out.push_str(&format!("in_range_(u32({}), {length})", compared(&after[..end], arrays)));
        rest = &after[end..];
    }
    out + rest
}

/// The position of the bracket that closes the one before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '[' => depth += 1,
            ']' if depth == 0 => return Some(at),
            ']' => depth -= 1,
            _ => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_of_arrays_are_compared() {
        let mut d = Dispatch::new("test");
        d.bind("x", "vec4<f32>", false, Resource::Input(0));
        bind(&mut d);
        let text =
            "var<workgroup> t: array<vec4<u32>, 12>;\nlet y = x[t[i + 1u].x >> 2u][i & 3u] + px[2] + p.x[3];";
        let found = traced(text, &d.bindings);
        let line = "let y = x[in_range_(u32(t[in_range_(u32(i + 1u), 12)].x >> 2u), arrayLength(&x))][i & 3u] + px[2] + p.x[3];";
        assert!(found.contains(line), "{found}");
        assert!(found.contains("var<workgroup> t: array<vec4<u32>, 12>;"), "{found}");
        assert!(found.contains(&format!("atomicStore(&faults_[3u], {}u);", code(text))), "{found}");
    }
}
