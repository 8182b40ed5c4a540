//! [`Cache`]: a least-recently-used cache for plans and kernels by their keys, bounded in bytes and
//! entries.

use std::{mem::size_of, sync::Arc};

use rustc_hash::FxHashMap;

/// The key of a cached value.
type Key = Arc<[u64]>;

/// The end of the list.
const NONE: u32 = u32::MAX;

pub(super) struct Cache<V> {
    places: FxHashMap<Key, u32>,
    /// A doubly linked list, by indices into this vector.
    entries: Vec<Entry<V>>,
    newest: u32,
    oldest: u32,
    bytes: usize,
    limit: Limit,
}

/// The bounds of a cache.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    pub(super) bytes: usize,
    pub(super) entries: usize,
}

struct Entry<V> {
    key: Key,
    value: V,
    bytes: usize,
    newer: u32,
    older: u32,
}

impl<V> Cache<V> {
    /// An empty cache with these bounds.
    pub(super) fn new(limit: Limit) -> Cache<V> {
        Cache {
            places: FxHashMap::default(),
            entries: Vec::new(),
            newest: NONE,
            oldest: NONE,
            bytes: 0,
            limit,
        }
    }

    /// The value of a key, which becomes the most recently used.
    pub(super) fn get(&mut self, key: &[u64]) -> Option<&V> {
        let place = *self.places.get(key)?;
        if place != self.newest {
            self.unlink(place);
            self.link(place);
        }
        Some(&self.entries[place as usize].value)
    }

    /// Inserts a value of `bytes` bytes under a new key. The least recently used entries make room; a
    /// value that exceeds the bound by itself is kept as the only one.
    pub(super) fn insert(&mut self, key: &[u64], value: V, bytes: usize) {
        let bytes = bytes + size_of::<Entry<V>>() + size_of_val(key);
        let full = |cache: &Self| {
            cache.bytes + bytes > cache.limit.bytes || cache.entries.len() >= cache.limit.entries
        };
        while self.oldest != NONE && full(self) {
            self.remove_oldest();
        }
        let key: Key = key.into();
        let place = self.entries.len() as u32;
        self.entries.push(Entry { key: key.clone(), value, bytes, newer: NONE, older: NONE });
        self.link(place);
        self.bytes += bytes;
        self.places.insert(key, place);
    }

    fn remove_oldest(&mut self) {
        let place = self.oldest;
        self.unlink(place);
        let gone = self.entries.swap_remove(place as usize);
        self.bytes -= gone.bytes;
        self.places.remove(&gone.key);
        // The last entry was moved to this index.
        if let Some(moved) = self.entries.get(place as usize) {
            let (newer, older) = (moved.newer, moved.older);
            if let Some(known) = self.places.get_mut(&moved.key) {
                *known = place;
            }
            self.join(newer, place);
            self.join(place, older);
        }
    }

    /// Removes an entry from the list.
    fn unlink(&mut self, place: u32) {
        let Entry { newer, older, .. } = self.entries[place as usize];
        self.join(newer, older);
    }

    /// Inserts an entry at the newest end of the list.
    fn link(&mut self, place: u32) {
        self.join(place, self.newest);
        self.join(NONE, place);
    }

    /// Makes two entries neighbours; `NONE` is the end of the list.
    fn join(&mut self, newer: u32, older: u32) {
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Keys from the most to the least recently used; checks the opposite direction too.
    fn order(cache: &Cache<u64>) -> Vec<u64> {
        let walk = |mut at: u32, next: fn(&Entry<u64>) -> u32| {
            let mut found = Vec::new();
            while at != NONE {
                found.push(cache.entries[at as usize].key[0]);
                at = next(&cache.entries[at as usize]);
            }
            found
        };
        let (forward, mut back) = (walk(cache.newest, |e| e.older), walk(cache.oldest, |e| e.newer));
        back.reverse();
        assert_eq!(forward, back);
        assert_eq!(forward.len(), cache.places.len());
        forward
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let own = size_of::<Entry<u64>>() + 8;
        let mut cache = Cache::new(Limit { bytes: 3 * (own + 100), entries: 100 });
        for key in [1, 2, 3] {
            cache.insert(&[key], key * 10, 100);
        }
        assert_eq!(order(&cache), [3, 2, 1]);
        assert_eq!(cache.get(&[1]), Some(&10));
        assert_eq!(cache.get(&[3]), Some(&30));
        assert_eq!(order(&cache), [3, 1, 2]);
        cache.insert(&[4], 40, 100);
        assert_eq!(order(&cache), [4, 3, 1]);
        assert_eq!(cache.get(&[2]), None);
        // Two entries make room for a larger one.
        cache.insert(&[5], 50, 200 + own);
        assert_eq!(order(&cache), [5, 4]);
        assert_eq!(cache.get(&[4]), Some(&40));
        cache.insert(&[6], 60, 1 << 20);
        assert_eq!(order(&cache), [6]);
        cache.insert(&[7], 70, 100);
        assert_eq!(order(&cache), [7]);
        assert_eq!(cache.bytes, own + 100);
    }

    #[test]
    fn a_long_use_keeps_the_list_whole() {
        let mut cache = Cache::new(Limit { bytes: 1 << 20, entries: 20 });
        let mut recent: Vec<u64> = Vec::new();
        let mut seed = 1u64;
        for _ in 0..5_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (seed >> 33) % 40;
            recent.retain(|&k| k != key);
            recent.insert(0, key);
            if cache.get(&[key]).is_none() {
                cache.insert(&[key], key, 0);
            }
            recent.truncate(20);
            assert_eq!(order(&cache), recent);
        }
    }
}
