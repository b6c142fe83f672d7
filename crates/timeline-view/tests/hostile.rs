//! Malicious records and files: reports and pictures of them must not panic, and the time to read a file must
//! only grow with its size.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::ops::Range;

use gpustream_timeline::perfetto::Writer;
use gpustream_timeline::{
    Clock, Counter, Device, Direction, Instant, InstantKind, Operation, Piece, Point, Record, SourceLine,
    Span, SpanKind, Stream, Thread, Timeline, WorkKind,
};
use gpustream_timeline_view::perfetto::read;
use gpustream_timeline_view::{Picture, Report};

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns an extreme number, or a small one.
    fn odd(&mut self) -> u64 {
        const EDGES: [u64; 7] = [0, 1, u32::MAX as u64, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];
        match self.below(10) {
            at if at < EDGES.len() => EDGES[at],
            7 => self.next(),
            _ => self.next() % 1000,
        }
    }

    /// Returns a range that may run backwards.
    fn range(&mut self) -> Range<u64> {
        self.odd()..self.odd()
    }

    fn text(&mut self) -> String {
        match self.below(7) {
            0 => String::new(),
            1 => "\u{0}\u{feff}<script>&\"'\\".into(),
            2 => "é\u{202e}\u{1F600}".repeat(self.below(50)),
            3 => "a\nb\r\nc: d\nreason: x\nstream: 5".into(),
            4 => "x".repeat(self.below(3000)),
            _ => format!("l{}", self.below(5)),
        }
    }

    fn place(&mut self) -> SourceLine {
        SourceLine { file: self.text().into(), line: self.odd() as u32 }
    }

    fn point(&mut self) -> Point {
        Point { stream: self.below(4) as u64, number: self.odd() }
    }

    fn work(&mut self) -> WorkKind {
        match self.below(9) {
            0 => WorkKind::Kernel { grid: [self.odd() as u32, 0, 1], block: [self.odd() as u32; 3] },
            1 => WorkKind::Copy { direction: Direction::Up, bytes: self.odd(), pageable: true },
            2 => WorkKind::Copy { direction: Direction::Down, bytes: self.odd(), pageable: false },
            3 => WorkKind::Fill { bytes: self.odd() },
            4 => WorkKind::Host,
            5 => WorkKind::Graph { operations: self.odd() as u32 },
            6 => WorkKind::Step { operations: 0 },
            7 => WorkKind::External,
            _ => WorkKind::Other,
        }
    }

    fn operation(&mut self) -> Operation {
        Operation {
            point: self.point(),
            label: self.text().into(),
            place: self.place(),
            thread: self.odd(),
            submitted: self.range(),
            ran: (self.below(3) > 0).then(|| self.range()),
            work: self.work(),
            after: (0..self.below(5)).map(|_| self.point()).collect(),
            pieces: (0..self.below(4))
                .map(|_| Piece { label: self.text().into(), ran: self.range(), work: self.work() })
                .collect(),
        }
    }

    fn record(&mut self) -> Record {
        match self.below(12) {
            0 => Record::Device(Device {
                id: self.below(3) as u32,
                name: self.text(),
                clock: Clock::Host,
                error: self.odd(),
                reason: self.text(),
            }),
            1 => Record::Stream(Stream {
                id: self.below(5) as u64,
                device: self.below(4) as u32,
                name: self.text(),
                legacy: self.below(2) == 0,
            }),
            2 => Record::Thread(Thread { id: self.odd(), name: self.text() }),
            3..=6 => Record::Operation(self.operation()),
            7 => {
                let kind = match self.below(3) {
                    0 => SpanKind::Wait(Some(self.point())),
                    1 => SpanKind::Allocation { device: self.odd() as u32, bytes: self.odd() },
                    _ => SpanKind::User { fields: vec![(self.text().into(), self.text())] },
                };
                let (time, label, place) = (self.range(), self.text().into(), self.place());
                Record::Span(Span { thread: self.odd(), time, label, place, kind })
            }
            8 => {
                let kind = match self.below(4) {
                    0 => InstantKind::Future,
                    1 => InstantKind::Woken,
                    2 => InstantKind::Lint(self.text()),
                    _ => InstantKind::User { fields: vec![(self.text().into(), self.text())] },
                };
                let (time, label, place) = (self.odd(), self.text().into(), self.place());
                Record::Instant(Instant { thread: self.odd(), time, label, place, kind })
            }
            9 | 10 => Record::Counter(Counter {
                device: self.below(3) as u32,
                label: self.text().into(),
                time: self.odd(),
                bytes: self.odd(),
            }),
            _ => Record::Lost(self.odd()),
        }
    }

    /// Changes, removes, adds or repeats a few bytes.
    fn damage(&mut self, file: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let Some(at) = (!file.is_empty()).then(|| self.below(file.len())) else { return };
            match self.below(5) {
                0 => file[at] = self.next() as u8,
                1 => drop(file.remove(at)),
                2 => file.insert(at, self.next() as u8),
                3 => file.truncate(at),
                _ => {
                    let part = file[at..(at + self.below(64)).min(file.len())].to_vec();
                    file.splice(at..at, part);
                }
            }
        }
    }
}

fn written(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap()
}

/// Makes everything that can be made from a timeline.
fn show(timeline: &Timeline) {
    assert!(!Report::of(timeline).to_string().is_empty());
    assert!(Picture::new(timeline).svg().starts_with("<svg"));
    assert!(Picture::new(timeline).html().contains("</html>"));
}

#[test]
fn any_records_and_files_have_reports_and_pictures() {
    // To test many more: `HOSTILE=20000 cargo test -p gpustream-timeline-view --test hostile`.
    let seeds = std::env::var("HOSTILE").map_or(300, |seeds| seeds.parse().unwrap());
    for seed in 1..=seeds {
        let mut random = Random(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15) | 1);
        let records: Vec<_> = (0..random.below(60)).map(|_| random.record()).collect();
        show(&Timeline::from_iter(records.clone()));
        let file = written(&records);
        show(&read(&file).unwrap());
        for _ in 0..10 {
            let mut damaged = file.clone();
            random.damage(&mut damaged);
            if let Ok(timeline) = read(&damaged) {
                show(&timeline);
            }
        }
    }
}

/// If we searched all earlier records for each one, this many would take minutes.
#[test]
fn file_of_many_threads_streams_and_devices_is_read() {
    const COUNT: u32 = 60_000;
    let records = (0..COUNT).flat_map(|id| {
        let device = Device { id, name: String::new(), clock: Clock::Host, error: 0, reason: String::new() };
        let stream = Stream { id: id.into(), device: id, name: String::new(), legacy: false };
        [
            Record::Device(device),
            Record::Stream(stream),
            Record::Thread(Thread { id: id.into(), name: String::new() }),
        ]
    });
    let records: Vec<_> = records.collect();
    let timeline = read(&written(&records)).unwrap();
    assert_eq!(timeline, Timeline::from_iter(records));
    assert_eq!([timeline.devices.len(), timeline.streams.len(), timeline.threads.len()], [COUNT as usize; 3]);
    show(&timeline);
}
