//! A map that may forget entries that were not used for a long time.

use std::collections::BTreeMap;
use std::mem;

/// A map of bounded size. It contains the [`LEAST`](Self::LEAST) most recently used entries, and at most as
/// many others.
pub(super) struct Recent<K, V> {
    new: BTreeMap<K, V>,
    /// Entries that have not been used since the last time that `new` was full.
    old: BTreeMap<K, V>,
}

impl<K: Ord, V> Recent<K, V> {
    pub(super) const LEAST: usize = 1024;

    pub(super) const fn new() -> Self {
        Self { new: BTreeMap::new(), old: BTreeMap::new() }
    }

    /// Returns an entry. If the map has none, `value` makes it.
    pub(super) fn get_or_insert(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let known = self.old.remove(&key);
        if self.new.len() == Self::LEAST && !self.new.contains_key(&key) {
            self.old = mem::take(&mut self.new);
        }
        self.new.entry(key).or_insert_with(|| known.unwrap_or_else(value))
    }

    /// Inserts an entry, replacing one with the same key.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.new.remove(&key);
        self.old.remove(&key);
        self.get_or_insert(key, || value);
    }

    /// Returns all entries, in an order that depends only on the calls so far.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.old.iter_mut().chain(&mut self.new)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.old.iter().chain(&self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_is_known_and_the_size_has_a_bound() {
        let mut map = Recent::new();
        // These keys are reused at many different distances, from 1 to beyond the bound.
        let keys = (0..40 * Recent::<u64, u64>::LEAST as u64).map(|at| (at * at / 977) % 2000);
        let mut used: Vec<u64> = Vec::new();
        for (at, key) in keys.enumerate() {
            let since = used.iter().rev().position(|other| *other == key);
            let value = *map.get_or_insert(key, || at as u64);
            if since.is_some_and(|since| since < Recent::<u64, u64>::LEAST) {
                assert!(value < at as u64, "{key} was forgotten after {since:?} others");
            }
            used.retain(|other| *other != key);
            used.push(key);
            map.insert(key, at as u64);
            assert!(map.iter().count() <= 2 * Recent::<u64, u64>::LEAST);
        }
    }

    #[test]
    fn entry_that_is_replaced_is_there_once() {
        let mut map = Recent::new();
        for key in 0..3000 {
            map.insert(key, "first");
            map.insert(key / 2, "second");
        }
        let mut keys: Vec<_> = map.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), map.iter().count());
        assert_eq!(*map.get_or_insert(1499, || "new"), "second");
    }
}
