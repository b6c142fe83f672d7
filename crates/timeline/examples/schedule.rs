//! Writes a made-up timeline in Perfetto's format. It contains one of everything that a file can show:
//!
//! ```console
//! $ cargo run -p gpustream-timeline --example schedule -- schedule.pftrace
//! ```
//!
//! You can open the file in <https://ui.perfetto.dev>. `scripts/perfetto/check.py` runs Perfetto's
//! `trace_processor` on it.

use std::fs::File;
use std::ops::Range;

use gpustream_timeline::perfetto::Writer;
use gpustream_timeline::{
    Clock, Counter, Device, Direction, Instant, InstantKind, Nanos, Operation, Piece, Point, Record,
    SourceLine, Span, SpanKind, Stream, Thread, WorkKind,
};

const MAIN: u64 = 1;
const LOADER: u64 = 2;
const COPIES: u64 = 1;
const KERNELS: u64 = 2;
const DEFAULT: u64 = 3;
const CPU: u64 = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: schedule FILE")?;
    let mut writer = Writer::new(File::create(path)?);
    for record in records() {
        writer.write(&record)?;
    }
    writer.finish()?;
    Ok(())
}

fn records() -> Vec<Record> {
    let device = |id, name: &str, clock, error| {
        Record::Device(Device { id, name: name.into(), clock, error, reason: String::new() })
    };
    let stream =
        |id, device, name: &str, legacy| Record::Stream(Stream { id, device, name: name.into(), legacy });
    let thread = |id, name: &str| Record::Thread(Thread { id, name: name.into() });
    let mut records = vec![
        device(0, "cuda:0 NVIDIA H200", Clock::Cupti, 1200),
        device(1, "cpu:0", Clock::Host, 0),
        stream(COPIES, 0, "stream 1", false),
        stream(KERNELS, 0, "stream 2", false),
        stream(DEFAULT, 0, "default stream", true),
        stream(CPU, 1, "stream 4", false),
        thread(MAIN, "main"),
        thread(LOADER, "loader"),
    ];
    records.extend(device_work());
    records.extend(host_work());
    records
}

/// The operations, in an order that devices could report them in. You can only rely on the order within one
/// stream.
fn device_work() -> Vec<Record> {
    let upload = |bytes| WorkKind::Copy { direction: Direction::Up, bytes, pageable: false };
    let kernel = WorkKind::Kernel { grid: [1024, 2, 1], block: [256, 1, 1] };
    let piece = |label: &'static str, ran: Range<Nanos>| {
        let work = WorkKind::Kernel { grid: [8, 1, 1], block: [128, 1, 1] };
        Piece { label: label.into(), ran: at(ran), work }
    };
    let operation = |point, label, submitted, ran, work| made(point, label, MAIN, submitted, Some(ran), work);
    [
        // Both wait for the first upload, but become known before it.
        Operation {
            after: vec![point(COPIES, 1)],
            ..operation(point(KERNELS, 1), "blur", 3_000..4_000, 30_000..50_000, kernel)
        },
        Operation {
            after: vec![point(COPIES, 1)],
            ..operation(point(CPU, 1), "count words", 5_000..5_500, 31_000..90_000, WorkKind::Host)
        },
        operation(point(COPIES, 1), "upload", 1_000..2_000, 10_000..30_000, upload(4 << 20)),
        // The stream's next operation begins in the same nanosecond as the last one ends.
        operation(point(COPIES, 2), "upload", 2_000..3_000, 30_000..40_000, upload(2 << 20)),
        // A join of four. The copies' stream has no operation 3, so that point means the second one.
        Operation {
            after: vec![point(KERNELS, 1), point(CPU, 1), point(COPIES, 3), point(COPIES, 1)],
            ..operation(point(KERNELS, 2), "merge", 6_000..7_000, 90_000..110_000, kernel)
        },
        Operation {
            thread: LOADER,
            ..operation(
                point(COPIES, 4),
                "fill",
                8_000..9_000,
                40_000..41_000,
                WorkKind::Fill { bytes: 1 << 20 },
            )
        },
        Operation {
            pieces: vec![
                piece("first", 120_000..130_000),
                piece("left", 130_000..150_000),
                piece("right", 131_000..149_000),
                piece("last", 150_000..160_000),
            ],
            ..operation(
                point(DEFAULT, 1),
                "graph",
                9_000..10_000,
                120_000..160_000,
                WorkKind::Graph { operations: 4 },
            )
        },
        made(point(KERNELS, 3), "never", MAIN, 170_000..171_000, None, kernel),
    ]
    .map(Record::Operation)
    .into()
}

fn host_work() -> Vec<Record> {
    let span = |label: &'static str, time: Range<Nanos>, kind| {
        Record::Span(Span { thread: MAIN, time: at(time), label: label.into(), place: place(7), kind })
    };
    let instant = |label: &'static str, time, kind| {
        Record::Instant(Instant {
            thread: MAIN,
            time: START + time,
            label: label.into(),
            place: place(8),
            kind,
        })
    };
    let in_use = |time, bytes| {
        Record::Counter(Counter { device: 0, label: "memory in use".into(), time: START + time, bytes })
    };
    let fields = vec![("index".into(), "3".to_owned())];
    vec![
        span("synchronize", 100_000..161_000, SpanKind::Wait(Some(point(DEFAULT, 1)))),
        span("alloc", 500..900, SpanKind::Allocation { device: 0, bytes: 6 << 20 }),
        // The span becomes known only after the submissions inside it.
        span("frame", 400..200_000, SpanKind::User { fields: fields.clone() }),
        instant("download", 11_000, InstantKind::Future),
        instant("download", 162_000, InstantKind::Woken),
        instant("closure", 60_000, InstantKind::HostClosure),
        instant("lint", 12_000, InstantKind::Lint("a copy of pageable memory blocks".into())),
        instant("checkpoint", 199_000, InstantKind::User { fields }),
        in_use(0, 0),
        in_use(900, 6 << 20),
        in_use(180_000, 0),
        Record::Lost(17),
    ]
}

/// An arbitrary moment on a clock that starts when the machine does.
const START: Nanos = 3_600_000_000_000;

fn at(time: Range<Nanos>) -> Range<Nanos> {
    START + time.start..START + time.end
}

fn point(stream: u64, number: u64) -> Point {
    Point { stream, number }
}

fn place(line: u32) -> SourceLine {
    SourceLine { file: "src/main.rs".into(), line }
}

fn made(
    point: Point,
    label: &'static str,
    thread: u64,
    submitted: Range<Nanos>,
    ran: Option<Range<Nanos>>,
    work: WorkKind,
) -> Operation {
    Operation {
        point,
        label: label.into(),
        place: place(40 + point.number as u32),
        thread,
        submitted: at(submitted),
        ran: ran.map(at),
        work,
        after: vec![],
        pieces: vec![],
    }
}
