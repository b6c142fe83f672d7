//! Vector clocks over streams.

use smallvec::SmallVec;

use super::{Point, StreamId};

/// The points that something comes after. For each stream there is one number, and the stream's submissions up to that
/// number come before. The list is short, because in most programs only a few streams hand work to each other. Eight
/// entries fit without allocating.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Clock(SmallVec<[(StreamId, u64); 8]>);

/// Most clocks are empty, because most streams have never waited for another one. Copying an empty clock copies nothing.
impl Clone for Clock {
    #[inline]
    fn clone(&self) -> Self {
        if self.0.is_empty() { Self::default() } else { Self(SmallVec::from_slice(&self.0)) }
    }

    #[inline]
    fn clone_from(&mut self, other: &Self) {
        self.0.clear();
        if !other.0.is_empty() {
            self.0.extend_from_slice(&other.0);
        }
    }
}

impl Clock {
    /// Returns true if the clock's owner already comes after `point`.
    #[inline]
    pub fn covers(&self, point: Point) -> bool {
        self.0.iter().any(|&(stream, number)| stream == point.stream && number >= point.number)
    }

    /// Adds `point`, and with it everything before it in its stream.
    pub fn advance(&mut self, point: Point) {
        match self.0.iter_mut().find(|entry| entry.0 == point.stream) {
            Some(entry) => entry.1 = entry.1.max(point.number),
            None => self.0.push((point.stream, point.number)),
        }
    }

    /// Adds everything that `other` comes after.
    pub fn merge(&mut self, other: &Self) {
        for point in other.points() {
            self.advance(point);
        }
    }

    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        self.0.iter().map(|&(stream, number)| Point { stream, number })
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Keeps only the entries that pass `keep`.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Point) -> bool) {
        self.0.retain(|&mut (stream, number)| keep(Point { stream, number }));
    }
}
