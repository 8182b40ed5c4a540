//! Names that are close to one that does not exist, for error messages.

use strsim::levenshtein;

/// The number of names that are suggested.
const NAMES_SUGGESTED: usize = 5;
/// Names with more characters than this are compared by their beginning only: the comparison is quadratic.
const CHARACTERS_COMPARED: usize = 200;

/// The names of `known` that are closest to `asked`, closest first: those that contain it or that it
/// contains, and those within a third of its length in insertions, deletions and replacements of characters.
#[doc(hidden)] // for `nn`, `onnx`
pub fn near_names<'a>(asked: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let allowed = asked.len() / 3 + 1;
    let mut found: Vec<(usize, &str)> = Vec::new();
    for name in known {
        let distance = levenshtein(compared(asked), compared(name));
        let is_part = !asked.is_empty() && (name.contains(asked) || !name.is_empty() && asked.contains(name));
        if is_part || distance <= allowed {
            found.push((if is_part { distance.min(allowed) } else { distance }, name));
        }
    }
    found.sort();
    found.dedup();
    found.into_iter().take(NAMES_SUGGESTED).map(|(_, name)| name).collect()
}

/// The part of a name that is compared.
fn compared(name: &str) -> &str {
    name.char_indices().nth(CHARACTERS_COMPARED).map_or(name, |(end, _)| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::{compared, levenshtein, near_names};

    #[test]
    fn near_names_are_those_with_few_changes_or_a_common_part() {
        assert_eq!(levenshtein("kitten", "sitting"), 3);
        assert_eq!(compared(&"é".repeat(300)).chars().count(), 200);
        let known = ["layer1.0.weight", "layer1.0.bias", "fc.weight", "logits"];
        assert_eq!(near_names("fc.weigth", known), ["fc.weight"]);
        assert_eq!(near_names("layer1", known), ["layer1.0.bias", "layer1.0.weight"]);
        assert!(near_names("tokens", known).is_empty());
    }
}
