//! Keys and values of earlier texts, for prompts of the same adapter that begin with the same tokens.

use super::AdapterId;
use crate::KvCache;

/// Fewer tokens than these are read again: the copy of their keys and values would take as long.
const MIN_SHARED_TOKENS: usize = 16;

/// The tokens of a text, and the adapter by which its keys and values were computed.
pub(super) type Tokens<'a> = (Option<AdapterId>, &'a [u32]);

/// A text with its keys and values.
struct KeptText {
    adapter: Option<AdapterId>,
    tokens: Vec<u32>,
    cache: KvCache,
}

/// The texts that are kept, the one that was used last at the end.
pub(super) struct Kept {
    texts: Vec<KeptText>,
    /// The bytes of all caches at most.
    max_bytes: usize,
}

impl Kept {
    pub(super) fn new(max_bytes: usize) -> Kept {
        Kept { texts: Vec::new(), max_bytes }
    }

    /// A cache with the longest beginning of a prompt that is kept. At least one token is left to be read,
    /// because it predicts the next.
    pub(super) fn beginning_of(&mut self, (adapter, prompt): Tokens<'_>) -> Option<KvCache> {
        let shared = |text: &KeptText| {
            let equal = text.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            if text.adapter == adapter { equal.min(prompt.len() - 1) } else { 0 }
        };
        let (at, count) = self.texts.iter().map(shared).enumerate().max_by_key(|of| of.1)?;
        if count < MIN_SHARED_TOKENS {
            return None;
        }
        let mut cache = self.texts[at].cache.clone();
        // A sliding window or a recurrent state cannot always go back.
        cache.truncate(count).ok()?;
        self.texts[at..].rotate_left(1);
        Some(cache)
    }

    /// Keeps a text with its cache of one row. Beginnings of it need not be kept beside it.
    pub(super) fn keep(&mut self, (adapter, text): Tokens<'_>, cache: &KvCache) {
        if text.len() < MIN_SHARED_TOKENS || cache.bytes() > self.max_bytes || !cache.can_join() {
            return;
        }
        self.texts.retain(|other| other.adapter != adapter || !text.starts_with(&other.tokens));
        self.texts.push(KeptText { adapter, tokens: text.to_vec(), cache: cache.clone() });
        let mut bytes: usize = self.texts.iter().map(|text| text.cache.bytes()).sum();
        while bytes > self.max_bytes {
            bytes -= self.texts.remove(0).cache.bytes();
        }
    }

    /// Forgets the texts of an adapter.
    pub(super) fn forget(&mut self, adapter: AdapterId) {
        self.texts.retain(|text| text.adapter != Some(adapter));
    }

    /// Keeps a text whose keys and values are a row of a batch. A text that cannot be copied is not kept.
    pub(super) fn keep_row(&mut self, text: Tokens<'_>, cache: &KvCache, row: usize) {
        if self.max_bytes == 0 || text.1.len() < MIN_SHARED_TOKENS {
            return;
        }
        if let Ok(alone) = KvCache::regrouped(&[(cache, &[row])])
            && alone.compute().is_ok()
        {
            self.keep(text, &alone);
        }
    }
}
