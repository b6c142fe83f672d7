//! Parts of a device, and which streams have them.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::lock::lock;
use crate::{RawStream, Result};

/// One stream's part.
struct StreamPart {
    multiprocessors: u32,
    /// The group's number, among the groups of this size that the device can be split into.
    group: usize,
}

/// The parts of one device that its streams have. A backend splits the device into groups of equal size, and a new stream
/// gets the group that the fewest streams have. So as long as there are enough groups, streams do not share one.
#[derive(Default)]
pub struct DeviceParts {
    streams: Mutex<HashMap<RawStream, StreamPart>>,
    /// Held from the choice of a group until its stream is made. We never hold the other lock in a driver's call.
    making: Mutex<()>,
}

impl DeviceParts {
    /// Calls `make` to make a stream on one of `groups` groups, each with `multiprocessors` multiprocessors. `make` gets
    /// the group's number.
    ///
    /// # Errors
    /// The errors of `make`.
    pub fn add(
        &self,
        multiprocessors: u32,
        groups: usize,
        make: impl FnOnce(usize) -> Result<RawStream>,
    ) -> Result<RawStream> {
        let _making = lock(&self.making);
        let group = self.least_used(multiprocessors, groups);
        let stream = make(group)?;
        lock(&self.streams).insert(stream, StreamPart { multiprocessors, group });
        Ok(stream)
    }

    /// Returns the group of this size that the fewest streams have; if there are several, the first.
    fn least_used(&self, multiprocessors: u32, groups: usize) -> usize {
        let streams = lock(&self.streams);
        let users = |group: usize| {
            let is_of =
                |share: &&StreamPart| (share.multiprocessors, share.group) == (multiprocessors, group);
            streams.values().filter(is_of).count()
        };
        (0..groups).min_by_key(|&group| users(group)).unwrap_or(0)
    }

    /// Returns how many multiprocessors a stream has, or `None` if it is on the whole device.
    pub fn multiprocessors(&self, stream: RawStream) -> Option<u32> {
        lock(&self.streams).get(&stream).map(|share| share.multiprocessors)
    }

    /// Forgets a stream.
    pub fn remove(&self, stream: RawStream) {
        lock(&self.streams).remove(&stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn streams_of_equal_shares_get_different_groups_while_there_are_some() {
        let shares = DeviceParts::default();
        let mut groups = Vec::new();
        let mut add = |stream, multiprocessors, of| {
            let made = shares.add(multiprocessors, of, |group| {
                groups.push(group);
                Ok(RawStream(stream))
            });
            assert_eq!(made.unwrap(), RawStream(stream));
        };
        add(1, 8, 3);
        add(2, 8, 3);
        add(3, 16, 2);
        add(4, 8, 3);
        add(5, 8, 3);
        shares.remove(RawStream(2));
        add(6, 8, 3);
        add(7, 132, 1);
        assert_eq!(groups, [0, 1, 0, 2, 0, 1, 0]);
        let known = [1, 2, 3].map(|stream| shares.multiprocessors(RawStream(stream)));
        assert_eq!(known, [Some(8), None, Some(16)]);
    }

    #[test]
    fn a_stream_that_was_not_made_has_no_share() {
        let shares = DeviceParts::default();
        assert!(shares.add(8, 2, |_| Err(Error::unsupported("a stream"))).is_err());
        assert_eq!(shares.multiprocessors(RawStream(0)), None);
    }
}
