//! [`TextSearch`]: words in a text that comes in pieces.

/// A text that comes in pieces, in which words are searched: it gives the text before a word, and holds back
/// what may be the beginning of one. The pieces make no difference to what is found.
///
/// ```
/// use models::text::TextSearch;
/// let mut search = TextSearch::default();
/// search.push("a < b <th");
/// assert_eq!(search.before(&["<think>"]), ("a < b ".to_string(), None));
/// search.push("ink> c");
/// assert_eq!(search.before(&["<think>"]), (String::new(), Some(0)));
/// assert_eq!(search.rest(), "<think> c");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextSearch {
    held: String,
}

impl TextSearch {
    /// Adds a piece.
    pub fn push(&mut self, text: &str) {
        self.held.push_str(text);
    }

    /// The text that was not taken yet.
    pub fn held(&self) -> &str {
        &self.held
    }

    /// Takes the text before the first of these words, and says which word it is; the word stays. Without
    /// one, takes what cannot belong to a word whatever comes next. If several begin at the same place, it
    /// is the shortest.
    pub fn before(&mut self, words: &[impl AsRef<str>]) -> (String, Option<usize>) {
        let begin = |at: usize| {
            let rest = &self.held[at..];
            let found = words.iter().enumerate().filter(|(_, word)| rest.starts_with(word.as_ref()));
            let found = found.min_by_key(|(_, word)| word.as_ref().len()).map(|(number, _)| number);
            let is_open = || words.iter().any(|word| word.as_ref().starts_with(rest));
            (found.is_some() || is_open()).then_some((at, found))
        };
        let first = self.held.char_indices().find_map(|(at, _)| begin(at));
        let (at, found) = first.unwrap_or((self.held.len(), None));
        (self.take(at), found)
    }

    /// As [`TextSearch::before`] at the end of the text: what may be the beginning of a word is none.
    pub fn before_end(&mut self, words: &[impl AsRef<str>]) -> (String, Option<usize>) {
        let at = words.iter().filter_map(|word| self.held.find(word.as_ref())).min();
        let text = self.take(at.unwrap_or(self.held.len()));
        match at {
            Some(_) => (text, self.before(words).1),
            None => (text, None),
        }
    }

    /// Takes this many bytes of the text.
    ///
    /// # Panics
    /// If the text is shorter, or a character does not end there.
    pub fn take(&mut self, bytes: usize) -> String {
        let rest = self.held.split_off(bytes);
        std::mem::replace(&mut self.held, rest)
    }

    /// Takes the text as it is.
    pub fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts between the words, and the words, when the text comes in pieces of this many bytes.
    fn split(text: &str, size: usize, words: &[&str]) -> Vec<(String, Option<usize>)> {
        let mut search = TextSearch::default();
        let (mut parts, mut part) = (Vec::new(), String::new());
        let mut take = |search: &mut TextSearch, is_end: bool| {
            loop {
                let (text, found) = if is_end { search.before_end(words) } else { search.before(words) };
                part.push_str(&text);
                let Some(word) = found else { break };
                parts.push((std::mem::take(&mut part), found));
                search.take(words[word].len());
            }
        };
        for piece in text.as_bytes().chunks(size) {
            search.push(std::str::from_utf8(piece).unwrap());
            take(&mut search, false);
        }
        take(&mut search, true);
        parts.push((part, None));
        parts
    }

    #[test]
    fn pieces_make_no_difference() {
        let cases: [(&str, &[&str]); 5] = [
            ("abcab", &["abc", "b"]),
            ("aababx", &["abx", "ba"]),
            ("<<a<b>>", &["<b", "<a>", ">"]),
            ("nothing", &["now", "high"]),
            ("ab", &["abc", "b"]),
        ];
        for (text, words) in cases {
            let whole = split(text, text.len(), words);
            let joined: String =
                whole.iter().map(|(text, word)| text.clone() + word.map_or("", |word| words[word])).collect();
            assert_eq!(joined, text);
            for size in 1..text.len() {
                assert_eq!(split(text, size, words), whole, "{text} in pieces of {size}");
            }
        }
        let first = |text: &str, words: &[&str]| split(text, 1, words).swap_remove(0);
        assert_eq!(first("abcab", &["abc", "b"]), (String::new(), Some(0)));
        assert_eq!(first("ab", &["abc", "b"]), ("a".to_string(), Some(1)));
        assert_eq!(first("ab", &["abc", "ab", "a"]), (String::new(), Some(2)));
    }
}
