//! Names that are close to one that does not exist, for error messages.

/// The number of names that are suggested.
const NAMES_SUGGESTED: usize = 5;
/// Names with more bytes than this are compared by their beginning only: the comparison is quadratic.
const BYTES_COMPARED: usize = 200;

/// The names of `known` that are closest to `asked`, closest first: those that contain it or that it
/// contains, and those within a third of its length in insertions, deletions and replacements of bytes.
#[doc(hidden)] // for `nn`, `onnx`
pub fn near_names<'a>(asked: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let allowed = asked.len() / 3 + 1;
    let mut found: Vec<(usize, &str)> = Vec::new();
    for name in known {
        let distance = edit_distance(asked, name);
        let is_part = !asked.is_empty() && (name.contains(asked) || !name.is_empty() && asked.contains(name));
        if is_part || distance <= allowed {
            found.push((if is_part { distance.min(allowed) } else { distance }, name));
        }
    }
    found.sort();
    found.dedup();
    found.into_iter().take(NAMES_SUGGESTED).map(|(_, name)| name).collect()
}

/// The number of insertions, deletions and replacements of bytes between two names.
fn edit_distance(a: &str, b: &str) -> usize {
    let cut = |text: &str| text.bytes().take(BYTES_COMPARED).collect::<Vec<u8>>();
    let (a, b) = (cut(a), cut(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{edit_distance, near_names};

    #[test]
    fn near_names_are_those_with_few_changes_or_a_common_part() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        let known = ["layer1.0.weight", "layer1.0.bias", "fc.weight", "logits"];
        assert_eq!(near_names("fc.weigth", known), ["fc.weight"]);
        assert_eq!(near_names("layer1", known), ["layer1.0.bias", "layer1.0.weight"]);
        assert!(near_names("tokens", known).is_empty());
    }
}
