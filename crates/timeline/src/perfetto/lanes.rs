//! Tracks whose slices never overlap.
//!
//! Perfetto matches beginnings and ends within a track like brackets. For example, if slice A lasts from 1 to
//! 5 and slice B from 3 to 8, the end at 5 would close B, because B began last. The same can happen if two
//! slices touch. So each stream or thread has several tracks, called lanes: as many as it has overlapping
//! slices. The slices in a lane are sorted by time, and Perfetto shows all lanes of one owner as one track.

use std::ops::Range;

use crate::Nanos;

/// The lanes of a stream or thread.
#[derive(Default)]
pub(super) struct Lanes(Vec<Lane>);

struct Lane {
    track: u64,
    /// When the lane's last slice ends.
    end: Nanos,
}

impl Lanes {
    /// Records are not sorted by time, so the number of lanes could grow with the trace. If there are this
    /// many and none fits, we forget the lane whose last slice ends last, because it is the least likely to
    /// fit again.
    const MOST: usize = 16;

    /// Returns the track for a slice, and true if `new` has just made it. It cannot be the track `around`,
    /// because a slice is still open there.
    pub(super) fn place(
        &mut self,
        time: &Range<Nanos>,
        around: Option<u64>,
        new: impl FnOnce() -> u64,
    ) -> (u64, bool) {
        let Range { start, end } = *time;
        let fits = |lane: &&mut Lane| lane.end <= start && Some(lane.track) != around;
        if let Some(lane) = self.0.iter_mut().find(fits) {
            lane.end = end;
            return (lane.track, false);
        }
        if self.0.len() == Self::MOST
            && let Some((last, _)) = self.0.iter().enumerate().max_by_key(|(_, lane)| lane.end)
        {
            self.0.swap_remove(last);
        }
        let track = new();
        self.0.push(Lane { track, end });
        (track, true)
    }

    /// Returns the tracks of all lanes.
    pub(super) fn tracks(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|lane| lane.track)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
