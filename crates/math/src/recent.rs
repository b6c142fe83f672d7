//! What a device keeps because making it again takes time: the values that it used last.

use std::sync::{Mutex, PoisonError};

/// Values with what they are for, the last used one first. At most `KEPT` are kept.
pub(crate) struct Recent<K, V, const KEPT: usize = 64>(Mutex<Vec<(K, V)>>);

impl<K, V, const KEPT: usize> Default for Recent<K, V, KEPT> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq, V, const KEPT: usize> Recent<K, V, KEPT> {
    pub(crate) fn find(&self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = list.iter().position(|(known, _)| known == key)?;
        list[..=at].rotate_right(1);
        list.first().map(|(_, value)| value.clone())
    }

    /// Removes a value, so that it is the caller's alone until it is added again.
    pub(crate) fn take(&self, key: &K) -> Option<V> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = list.iter().position(|(known, _)| known == key)?;
        Some(list.remove(at).1)
    }

    /// Keeps a value, and forgets the one that was not used for longest if there are too many.
    pub(crate) fn add(&self, key: K, value: V) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.insert(0, (key, value));
        let forgotten = (list.len() > KEPT).then(|| list.pop());
        drop(list);
        // Dropping a value may call a library, so nothing is locked.
        drop(forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_not_used_for_longest_is_forgotten() {
        const KEPT: usize = 64;
        let recent = Recent::<_, _, KEPT>::default();
        for key in 0..KEPT {
            recent.add(key, key * 2);
        }
        assert_eq!(recent.find(&0), Some(0));
        recent.add(KEPT, 7);
        assert_eq!((recent.find(&0), recent.find(&1), recent.find(&KEPT)), (Some(0), None, Some(7)));
    }

    #[test]
    fn a_value_that_was_taken_is_there_once() {
        let recent = Recent::<_, _, 2>::default();
        recent.add(1, "one");
        recent.add(2, "two");
        assert_eq!((recent.take(&1), recent.take(&1), recent.take(&2)), (Some("one"), None, Some("two")));
    }
}
