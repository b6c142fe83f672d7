//! Tests the history against a naive one that remembers the uses of every single byte.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::Location;

use gpustream_hal::CallSite;
use proptest::prelude::*;

use super::{Clock, History, Mode, Point, StreamId, Use};

const LEN: usize = 12;

/// The memory of one byte: its last writer, the latest reader of each stream since, and whether the byte was written.
#[derive(Clone, Default)]
struct Byte {
    writer: Option<(u64, u64)>,
    readers: BTreeSet<(u64, u64)>,
    /// The uses of earlier owners, by stream: the last one, and the last one that wrote.
    former: BTreeMap<u64, (u64, u64)>,
    written: bool,
}

impl Byte {
    /// Returns the uses that a write of the byte conflicts with.
    fn all(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let former = self.former.iter().map(|(&stream, &(last, _))| (stream, last));
        self.writer.iter().chain(&self.readers).copied().chain(former)
    }

    /// Returns the uses that a read of the byte conflicts with.
    fn writes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let former = self.former.iter().map(|(&stream, &(_, wrote))| (stream, wrote));
        self.writer.into_iter().chain(former.filter(|&(_, wrote)| wrote > 0))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Access {
        stream: u64,
        range: Range<usize>,
        mode: Mode,
    },
    SetWritten(Range<usize>),
    /// On each stream, the first part of the submissions is done.
    Done {
        stream: u64,
        share: u8,
    },
    Recycle(usize),
}

fn range() -> impl Strategy<Value = Range<usize>> {
    (0..=LEN, 0..=LEN).prop_map(|(a, b)| a.min(b)..a.max(b))
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![4 => Just(Mode::Read), 4 => Just(Mode::Write), 1 => Just(Mode::Shared)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => (0..4u64, range(), mode()).prop_map(|(stream, range, mode)| Step::Access { stream, range, mode }),
        1 => range().prop_map(Step::SetWritten),
        2 => (0..4u64, any::<u8>()).prop_map(|(stream, share)| Step::Done { stream, share }),
        1 => (1..=LEN).prop_map(Step::Recycle),
    ]
}

fn point((stream, number): (u64, u64)) -> Point {
    Point { stream: StreamId::nth(stream), number }
}

fn key(point: Point) -> (u64, u64) {
    (point.stream.index(), point.number)
}

fn found(history: &History, range: &Range<usize>, mode: Mode) -> BTreeSet<(u64, u64)> {
    let mut found = BTreeSet::new();
    history.conflicts(range, mode, |old| {
        found.insert(key(old.point));
    });
    found
}

fn expected(bytes: &[Byte], range: &Range<usize>, mode: Mode) -> BTreeSet<(u64, u64)> {
    let mut all = BTreeSet::new();
    if mode != Mode::Shared {
        for byte in &bytes[range.start.min(bytes.len())..range.end.min(bytes.len())] {
            match mode {
                Mode::Write => all.extend(byte.all()),
                _ => all.extend(byte.writes()),
            }
        }
    }
    all
}

fn check(history: &History, bytes: &[Byte]) -> Result<(), TestCaseError> {
    for start in 0..=bytes.len() {
        for end in start..=bytes.len() {
            for mode in [Mode::Read, Mode::Write, Mode::Shared] {
                let range = start..end;
                prop_assert_eq!(
                    found(history, &range, mode),
                    expected(bytes, &range, mode),
                    "{:?} {:?}",
                    range,
                    mode
                );
            }
            let written = bytes[start..end].iter().all(|byte| byte.written);
            prop_assert_eq!(history.is_written(&(start..end)), written, "{}..{}", start, end);
        }
    }
    let uses: BTreeSet<_> = history.uses().map(|old| key(old.point)).collect();
    prop_assert_eq!(uses, expected(bytes, &(0..bytes.len()), Mode::Write));
    Ok(())
}

fn run(steps: &[Step]) -> Result<(), TestCaseError> {
    let operation = CallSite { label: "test", location: Location::caller() };
    let mut history = History::new(LEN, false);
    let mut bytes = vec![Byte::default(); LEN];
    let mut numbers = [0u64; 4];
    for step in steps {
        match step.clone() {
            Step::Access { stream, range, mode } => {
                let range = range.start.min(bytes.len())..range.end.min(bytes.len());
                numbers[stream as usize] += 1;
                let new = (stream, numbers[stream as usize]);
                history.insert(&range, mode, || Use::new(point(new), operation));
                for byte in &mut bytes[range] {
                    if mode == Mode::Write {
                        *byte = Byte { writer: Some(new), written: true, ..Byte::default() };
                    } else {
                        byte.readers.retain(|old| old.0 != new.0);
                        byte.readers.insert(new);
                    }
                }
            }
            Step::SetWritten(range) => {
                let range = range.start.min(bytes.len())..range.end.min(bytes.len());
                history.set_written(&range);
                bytes[range].iter_mut().for_each(|byte| byte.written = true);
            }
            Step::Done { stream, share } => {
                let until = numbers[stream as usize] * u64::from(share) / 255;
                let done = |old: (u64, u64)| old.0 == stream && old.1 <= until;
                history.prune(|point| done(key(point)));
                for byte in &mut bytes {
                    byte.writer = byte.writer.filter(|&old| !done(old));
                    byte.readers.retain(|&old| !done(old));
                    byte.former.retain(|&stream, &mut (last, _)| !done((stream, last)));
                }
            }
            Step::Recycle(len) => {
                let left = history.end();
                history.begin(len, left);
                let mut left = Byte::default();
                for (stream, last) in bytes.iter().flat_map(Byte::all) {
                    let former = left.former.entry(stream).or_default();
                    former.0 = former.0.max(last);
                }
                for (stream, wrote) in bytes.iter().flat_map(Byte::writes) {
                    let former = left.former.entry(stream).or_default();
                    former.1 = former.1.max(wrote);
                }
                bytes = vec![left; len];
            }
        }
        check(&history, &bytes)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn history_agrees_with_one_per_byte(steps in prop::collection::vec(step(), 1..if cfg!(miri) { 8 } else { 40 })) {
        run(&steps)?;
    }

    #[test]
    fn clock_is_a_map_of_maxima(points in prop::collection::vec((0..12u64, 0..9u64), 0..40), split in 0..40usize) {
        let (first, second) = points.split_at(split.min(points.len()));
        let clock = |points: &[(u64, u64)]| {
            let mut clock = Clock::default();
            for &entry in points {
                clock.advance(point(entry));
            }
            clock
        };
        let mut merged = clock(first);
        merged.merge(&clock(second));
        for stream in 0..12 {
            let greatest = points.iter().filter(|entry| entry.0 == stream).map(|entry| entry.1).max();
            for number in 0..10 {
                let covered = greatest.is_some_and(|greatest| number <= greatest);
                prop_assert_eq!(merged.covers(point((stream, number))), covered);
            }
        }
        merged.retain(|point| point.stream.index() % 2 == 0);
        prop_assert!(merged.points().all(|point| point.stream.index() % 2 == 0));
    }
}

/// Pruning happens when a history is crowded, and then not at every use.
#[test]
fn a_crowded_history_asks_to_be_pruned() {
    let operation = CallSite { label: "test", location: Location::caller() };
    let mut history = History::new(1000, false);
    let mut asked = 0;
    for number in 1..1000u64 {
        let at = usize::try_from(number).unwrap();
        let new = Use::new(point((1, number)), operation);
        history.insert(&(at - 1..at), Mode::Write, || new);
        if history.is_crowded() {
            asked += 1;
            history.prune(|_| false);
        }
    }
    assert!((1..10).contains(&asked), "{asked}");
    history.prune(|_| true);
    assert_eq!(history.uses().count(), 0);
    assert!(history.is_written(&(0..999)) && !history.is_written(&(0..1000)));
}
