//! Free lists: they find a free range for a request. What a range is, only the arena knows.

use super::GRANULE;

/// The number of a range, or none. This is an `Option` in four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour(u32);

impl Neighbour {
    pub(crate) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(crate) const fn of(id: u32) -> Self {
        Self(id)
    }

    #[inline]
    pub(crate) fn get(self) -> Option<u32> {
        (self != Self::NONE).then_some(self.0)
    }
}

/// A range's entry: its neighbours in a list of free ranges, by number, and its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    prev: Neighbour,
    next: Neighbour,
    /// The range's size in bytes, a multiple of the granule.
    pub(crate) size: usize,
}

impl Link {
    pub(crate) const fn new(size: usize) -> Self {
        Self { prev: Neighbour::NONE, next: Neighbour::NONE, size }
    }
}

/// How many classes there are per doubling of the size, as a power of two.
const SUBDIVISION: u32 = 4;

/// How many classes there are: exact ones up to 32 granules, then 16 per doubling, up to the whole address space.
const CLASSES: usize = ((usize::BITS - GRANULE.trailing_zeros() - SUBDIVISION) as usize + 1) << SUBDIVISION;

/// An entry in the class of a request may be too small for it. So we try this many entries there, and then go to the next
/// class.
const TRIES: usize = 8;

/// Lists by size class. We find one through bitmaps, in constant time, and the result is at most a sixteenth larger than the
/// best fit. We take the range that was freed last, because it is warm.
///
/// All lists of an arena share `links`. A list only touches the entries of its own ranges.
pub(crate) struct Segregated {
    heads: Box<[Neighbour; CLASSES]>,
    occupied: [u64; CLASSES.div_ceil(64)],
    /// One bit for each word of `occupied`, set if the word is not zero.
    summary: u64,
}

impl Default for Segregated {
    fn default() -> Self {
        Self { heads: Box::new([Neighbour::NONE; CLASSES]), occupied: [0; CLASSES.div_ceil(64)], summary: 0 }
    }
}

/// Returns the class of a range of `size` bytes.
#[inline]
fn class(size: usize) -> usize {
    let units = size / GRANULE;
    let exact = 1 << SUBDIVISION;
    if units < exact {
        return units;
    }
    let shift = units.ilog2() - SUBDIVISION;
    ((shift as usize + 1) << SUBDIVISION) + ((units >> shift) & (exact - 1))
}

impl Segregated {
    /// Adds range `id`.
    #[inline]
    pub(crate) fn insert(&mut self, id: u32, links: &mut [Link]) {
        let class = class(links[id as usize].size);
        let head = std::mem::replace(&mut self.heads[class], Neighbour::of(id));
        if let Some(head) = head.get() {
            links[head as usize].prev = Neighbour::of(id);
        } else {
            self.occupied[class / 64] |= 1 << (class % 64);
            self.summary |= 1 << (class / 64);
        }
        let link = &mut links[id as usize];
        (link.prev, link.next) = (Neighbour::NONE, head);
    }

    /// Takes out range `id`, which must be in the list.
    #[inline]
    pub(crate) fn remove(&mut self, id: u32, links: &mut [Link]) {
        let Link { prev, next, size } = links[id as usize];
        if let Some(next) = next.get() {
            links[next as usize].prev = prev;
        }
        if let Some(prev) = prev.get() {
            links[prev as usize].next = next;
            return;
        }
        let class = class(size);
        self.heads[class] = next;
        if next == Neighbour::NONE {
            self.occupied[class / 64] &= !(1 << (class % 64));
            if self.occupied[class / 64] == 0 {
                self.summary &= !(1 << (class / 64));
            }
        }
    }

    /// Finds a range of at least `size` bytes. It stays in the list.
    #[inline]
    pub(crate) fn find(&self, size: usize, links: &[Link]) -> Option<u32> {
        let class = class(size);
        let mut next = self.heads[class];
        for _ in 0..TRIES {
            let Some(id) = next.get() else { break };
            let link = &links[id as usize];
            if link.size >= size {
                return Some(id);
            }
            next = link.next;
        }
        self.next_occupied(class).and_then(|class| self.heads[class].get())
    }

    /// Returns the first class above `class` that has an entry.
    #[inline]
    fn next_occupied(&self, class: usize) -> Option<usize> {
        let from = class + 1;
        let (word, bit) = (from / 64, from % 64);
        let here = self.occupied.get(word)? & (u64::MAX << bit);
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let later = self.summary & u64::MAX.checked_shl(word as u32 + 1).unwrap_or(0);
        if later == 0 {
            return None;
        }
        let word = later.trailing_zeros() as usize;
        Some(word * 64 + self.occupied[word].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn classes_are_ordered_and_a_sixteenth_wide() {
        let mut last = 0;
        for units in (1..5000).chain([1 << 20, 1 << 40, usize::MAX / GRANULE]) {
            let class = class(units * GRANULE);
            assert!(class >= last && class < CLASSES, "{units}: {class}");
            last = class;
        }
        assert_eq!(class(31 * GRANULE) + 1, class(32 * GRANULE));
        assert_eq!(class(32 * GRANULE), class(33 * GRANULE));
        assert_eq!(class(32 * GRANULE) + 1, class(34 * GRANULE));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(usize),
        Remove(usize),
        Find(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let units = || prop_oneof![1usize..40, 1usize..5000, 1usize..1 << 30];
        let step = prop_oneof![
            units().prop_map(Step::Insert),
            any::<usize>().prop_map(Step::Remove),
            units().prop_map(Step::Find)
        ];
        // Miri takes a thousand times as long.
        prop::collection::vec(step, 0..if cfg!(miri) { 30 } else { 200 })
    }

    /// Compares a list with a plain vector.
    fn follow(steps: &[Step]) {
        let mut list = Segregated::default();
        let mut links: Vec<Link> = Vec::new();
        let mut model: Vec<u32> = Vec::new();
        for step in steps {
            match *step {
                Step::Insert(units) => {
                    let id = links.len() as u32;
                    links.push(Link::new(units * GRANULE));
                    list.insert(id, &mut links);
                    model.push(id);
                }
                Step::Remove(which) if !model.is_empty() => {
                    let id = model.swap_remove(which % model.len());
                    list.remove(id, &mut links);
                }
                Step::Remove(_) => {}
                Step::Find(units) => {
                    let size = units * GRANULE;
                    let found = list.find(size, &links);
                    assert!(found.is_none_or(|id| model.contains(&id) && links[id as usize].size >= size));
                    // A range of a higher class is always found.
                    let sure = model.iter().any(|&id| class(links[id as usize].size) > class(size));
                    assert!(found.is_some() || !sure);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn segregated_finds_what_fits(steps in steps()) {
            follow(&steps);
        }
    }
}
