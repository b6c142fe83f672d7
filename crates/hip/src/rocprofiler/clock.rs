//! Converts the library's clock to the host's.
//!
//! Records have the times of `rocprofiler_get_timestamp`: Linux's clock that goes on while the machine sleeps (`CLOCK_BOOTTIME`).
//! ROCm converts the devices' own counters to it. Both clocks tick alike, so only a sleep changes their distance. We compare them
//! again with each look at the records, and compute times between two comparisons from both.

use gpustream_hal::{ErrorKind, Result, trace};

use super::api::Api;

/// How many readings we take. We keep the shortest, because the thread may be interrupted between the clocks.
const READINGS: usize = 8;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair {
    pub(crate) library: u64,
    /// On the clock of [`trace::now`].
    pub(crate) host: u64,
    /// The two may be apart by at most this many nanoseconds.
    pub(crate) error: u64,
}

impl Pair {
    /// Reads both clocks.
    ///
    /// # Errors
    /// `Unsupported` if the library does not tell its time.
    pub(crate) fn read(api: &Api) -> Result<Self> {
        let mut best: Option<Self> = None;
        for _ in 0..READINGS {
            let mut library = 0;
            let before = trace::now();
            // SAFETY: the pointer is to a local.
            let answer = unsafe { api.rocprofiler_get_timestamp(&raw mut library) };
            let after = trace::now();
            answer.ok_or(ErrorKind::Unsupported)?;
            let read = Self { library, host: before.midpoint(after), error: (after - before).div_ceil(2) };
            if best.is_none_or(|best| read.error < best.error) {
                best = Some(read);
            }
        }
        Ok(best.unwrap_or(Self { library: 0, host: 0, error: u64::MAX }))
    }
}

/// The last two comparisons between the clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Clock {
    before: Pair,
    last: Pair,
}

impl Clock {
    pub(crate) fn new(pair: Pair) -> Self {
        Self { before: pair, last: pair }
    }

    /// Takes in another comparison.
    pub(crate) fn compare(&mut self, pair: Pair) {
        *self = Self { before: self.last, last: pair };
    }

    /// Converts a time from the library to the host's clock.
    pub(crate) fn host(&self, time: u64) -> u64 {
        let Self { before, last } = *self;
        let at = |pair: Pair| i128::from(pair.host) + i128::from(time) - i128::from(pair.library);
        let host = if time >= last.library || before.library >= last.library {
            at(last)
        } else if time <= before.library {
            at(before)
        } else {
            let hosts = i128::from(last.host) - i128::from(before.host);
            let libraries = i128::from(last.library - before.library);
            i128::from(before.host) + i128::from(time - before.library) * hosts / libraries
        };
        u64::try_from(host).unwrap_or(if host < 0 { 0 } else { u64::MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(library: u64, host: u64) -> Pair {
        Pair { library, host, error: 0 }
    }

    #[test]
    fn times_are_brought_over_by_the_distance_of_the_clocks() {
        let mut clock = Clock::new(pair(1000, 100));
        assert_eq!([1000, 1500, 950].map(|time| clock.host(time)), [100, 600, 50]);
        assert_eq!(
            (clock.host(0), clock.host(u64::MAX)),
            (0, u64::MAX - 900),
            "nothing is before the host's clock"
        );
        clock.compare(pair(2000, 1100));
        assert_eq!([500, 1000, 1500, 2000, 9000].map(|time| clock.host(time)), [0, 100, 600, 1100, 8100]);
    }

    #[test]
    fn sleep_between_two_comparisons_lies_between_their_times() {
        let mut clock = Clock::new(pair(1000, 100));
        clock.compare(pair(1_001_000, 10_100));
        assert_eq!([1000, 501_000, 1_001_000].map(|time| clock.host(time)), [100, 5100, 10_100]);
        clock.compare(pair(1_002_000, 11_100));
        assert_eq!([1_001_000, 1_001_500, 1_003_000].map(|time| clock.host(time)), [10_100, 10_600, 12_100]);
    }

    #[test]
    fn clock_that_stands_or_runs_back_is_no_division_by_zero() {
        let mut clock = Clock::new(pair(1000, 100));
        clock.compare(pair(1000, 200));
        assert_eq!([900, 1000, 1100].map(|time| clock.host(time)), [100, 200, 300]);
        clock.compare(pair(500, 300));
        assert_eq!([400, 500, 600].map(|time| clock.host(time)), [200, 300, 400]);
    }
}
