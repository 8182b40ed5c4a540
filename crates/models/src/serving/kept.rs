//! Keys and values of earlier texts, for prompts that begin with the same tokens.

use crate::KvCache;

/// Fewer tokens than these are read again: the copy of their keys and values would take as long.
const MIN_SHARED_TOKENS: usize = 16;

/// The texts that are kept, the one that was used last at the end.
pub(super) struct Kept {
    texts: Vec<(Vec<u32>, KvCache)>,
    /// The bytes of all caches at most.
    max_bytes: usize,
}

impl Kept {
    pub(super) fn new(max_bytes: usize) -> Kept {
        Kept { texts: Vec::new(), max_bytes }
    }

    /// A cache with the longest beginning of a prompt that is kept. At least one token is left to be read,
    /// because it predicts the next.
    pub(super) fn beginning_of(&mut self, prompt: &[u32]) -> Option<KvCache> {
        let shared = |text: &[u32]| {
            let equal = text.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            equal.min(prompt.len() - 1)
        };
        let (at, count) =
            self.texts.iter().map(|(text, _)| shared(text)).enumerate().max_by_key(|of| of.1)?;
        if count < MIN_SHARED_TOKENS {
            return None;
        }
        let mut cache = self.texts[at].1.clone();
        // A sliding window or a recurrent state cannot always go back.
        cache.truncate(count).ok()?;
        self.texts[at..].rotate_left(1);
        Some(cache)
    }

    /// Keeps a text with its cache of one row. Beginnings of it need not be kept beside it.
    pub(super) fn keep(&mut self, text: &[u32], cache: &KvCache) {
        if text.len() < MIN_SHARED_TOKENS || cache.bytes() > self.max_bytes || !cache.can_join() {
            return;
        }
        self.texts.retain(|(other, _)| !text.starts_with(other));
        self.texts.push((text.to_vec(), cache.clone()));
        let mut bytes: usize = self.texts.iter().map(|(_, cache)| cache.bytes()).sum();
        while bytes > self.max_bytes {
            bytes -= self.texts.remove(0).1.bytes();
        }
    }

    /// Keeps a text whose keys and values are a row of a batch. A text that cannot be copied is not kept.
    pub(super) fn keep_row(&mut self, text: &[u32], cache: &KvCache, row: usize) {
        if self.max_bytes == 0 || text.len() < MIN_SHARED_TOKENS {
            return;
        }
        if let Ok(alone) = KvCache::regrouped(&[(cache, &[row])])
            && alone.compute().is_ok()
        {
            self.keep(text, &alone);
        }
    }
}
