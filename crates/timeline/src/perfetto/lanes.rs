//! Tracks on which slices never overlap.
//!
//! Perfetto matches the beginnings and ends of a track's slices like brackets. If slices overlapped, or
//! touched and were written in another order, they would get each other's ends. So each stream or thread has
//! several tracks, called lanes: as many as slices overlap. Each lane gets its slices sorted by time, and
//! Perfetto shows all lanes of one owner as one track.

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
    /// Records are not sorted by time, so the number of lanes could grow with the trace. At this number we
    /// replace the lane whose last slice ends last with a new one.
    const MOST: usize = 16;

    /// Returns the track for a slice, and whether `new` has just made it. It is never the track `around`,
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

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
