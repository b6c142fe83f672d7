//! Tracks on which slices never overlap.
//!
//! Perfetto matches the beginnings and ends of a track's slices like brackets, so that slices which overlap, or which
//! touch and were written in another order, would get each other's ends. A stream or thread therefore has as many
//! tracks, its lanes, as slices overlap, and each lane gets its slices in the order of time. Perfetto shows all lanes of
//! one owner as one track.

use std::ops::Range;

use crate::Nanos;

/// The lanes of a stream or a thread.
#[derive(Default)]
pub(super) struct Lanes(Vec<Lane>);

struct Lane {
    track: u64,
    /// The end of the lane's last slice.
    end: Nanos,
}

impl Lanes {
    /// Records come in no order of time, so the number of lanes could grow with the trace. The lane whose last slice ends
    /// last is then given up for a new one.
    const MOST: usize = 16;

    /// Returns the track for a slice, and whether `new` made the track just now. It is not the track `around`, which has
    /// a slice that is not written to its end.
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
