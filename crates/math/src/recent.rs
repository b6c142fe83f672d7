//! What a device keeps because making it again takes time: the values that it used last.

use std::sync::{Mutex, PoisonError};

/// How many values are kept.
const KEPT: usize = 64;

/// Values with what they are for, the last used one first.
pub(crate) struct Recent<K, V>(Mutex<Vec<(K, V)>>);

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq, V: Clone> Recent<K, V> {
    pub(crate) fn find(&self, key: &K) -> Option<V> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = list.iter().position(|(known, _)| known == key)?;
        list[..=at].rotate_right(1);
        list.first().map(|(_, value)| value.clone())
    }

    /// Keeps a value, and forgets the one that was not used for longest if there are too many.
    pub(crate) fn add(&self, key: K, value: V) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.insert(0, (key, value));
        let kept = list.len().min(KEPT);
        let forgotten = list.split_off(kept);
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
        let recent = Recent::default();
        for key in 0..KEPT {
            recent.add(key, key * 2);
        }
        assert_eq!(recent.find(&0), Some(0));
        recent.add(KEPT, 7);
        assert_eq!((recent.find(&0), recent.find(&1), recent.find(&KEPT)), (Some(0), None, Some(7)));
    }
}
