//! Made-up timelines, with times that are easy to calculate with.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::ops::Range;

use gpustream_timeline::{
    Clock, Counter, Device, Direction, Instant, InstantKind, Nanos, Operation, Piece, Point, SourceLine,
    Span, SpanKind, Stream, Thread, Timeline, WorkKind,
};

/// A kernel of 256 blocks of 128 threads.
pub const KERNEL: WorkKind = WorkKind::Kernel { grid: [256, 1, 1], block: [128, 1, 1] };

/// Returns a copy from or to page-locked memory.
pub fn copy(direction: Direction, bytes: u64) -> WorkKind {
    WorkKind::Copy { direction, bytes, pageable: false }
}

pub fn line(line: u32) -> SourceLine {
    SourceLine { file: "src/main.rs".into(), line }
}

/// Returns a timeline with one device, its streams 1, 2, …, and the thread 1, `main`.
pub fn timeline(streams: u64) -> Timeline {
    let mut timeline = Timeline::default();
    timeline.devices.push(Device {
        id: 0,
        name: "cuda:0 NVIDIA H200".to_owned(),
        clock: Clock::Cupti,
        error: 100,
        reason: String::new(),
    });
    timeline.streams.extend((1..=streams).map(|id| Stream {
        id,
        device: 0,
        name: format!("stream {id}"),
        legacy: false,
    }));
    timeline.threads.push(Thread { id: 1, name: "main".to_owned() });
    timeline
}

/// Adds the next operation of a stream and returns it. Thread 1 submits it, in the line with the operation's
/// number.
pub fn add<'a>(
    timeline: &'a mut Timeline,
    stream: u64,
    label: &'static str,
    work: WorkKind,
    submitted: Range<Nanos>,
    ran: Range<Nanos>,
) -> &'a mut Operation {
    let number = 1 + timeline.operations.iter().filter(|one| one.point.stream == stream).count() as u64;
    timeline.operations.push(Operation {
        point: Point { stream, number },
        label: label.into(),
        place: line(10 * stream as u32 + number as u32),
        thread: 1,
        submitted,
        ran: Some(ran),
        work,
        after: Vec::new(),
        pieces: Vec::new(),
    });
    timeline.operations.last_mut().unwrap()
}

/// Adds a wait of thread 1 for an operation.
pub fn wait(timeline: &mut Timeline, time: Range<Nanos>, stream: u64, number: u64) {
    let kind = SpanKind::Wait(Some(Point { stream, number }));
    timeline.spans.push(Span { thread: 1, time, label: "synchronize".into(), place: line(99), kind });
}

/// Adds a span to thread 1, as if the program had opened it.
pub fn user(timeline: &mut Timeline, time: Range<Nanos>, label: &'static str) {
    let kind = SpanKind::User { fields: vec![("batch".into(), "7".to_owned())] };
    timeline.spans.push(Span { thread: 1, time, label: label.into(), place: line(3), kind });
}

/// Returns a small version of the overlap example, in one of its ways: rounds of two copies up, two kernels
/// and two copies down. The host submits an operation in 2 µs.
pub fn overlap(way: &str) -> Timeline {
    const UP: Nanos = 100_000;
    const KERNEL_TIME: Nanos = 30_000;
    let streams = if way == "sequential" { 1 } else { 2 };
    let mut timeline = timeline(streams);
    let (mut free, mut engines, mut host) = ([0; 3], [0; 3], 0);
    let pieces = if way.contains("pieces") { 4 } else { 1 };
    let mut last = [None::<Point>; 3];
    for round in 0..3u64 {
        for (at, (label, engine)) in
            [("copy", 0), ("add_one", 1), ("copy", 0), ("add_sum", 1), ("copy", 2), ("copy", 2)]
                .into_iter()
                .cycle()
                .take(6 * pieces)
                .enumerate()
        {
            let stream = match (streams, pieces) {
                (1, _) => 1,
                (_, 1) => [1, 1, 2, 2, 1, 2][at % 6],
                _ => 1 + (at / 6 + round as usize) as u64 % 2,
            };
            let length = if engine == 1 { KERNEL_TIME } else { UP } / pieces as u64;
            let mut ready = host + 3_000;
            let after = match (label, streams, pieces) {
                ("add_sum", 2, 1) => last[1],
                ("copy", 2, 1) if at % 6 == 4 => last[1],
                _ => None,
            };
            let after_end = after.and_then(|point| {
                timeline.operations.iter().find(|one| one.point == point).and_then(|one| one.ran.clone())
            });
            ready =
                ready.max(free[stream as usize]).max(engines[engine]).max(after_end.map_or(0, |ran| ran.end));
            let work = match engine {
                0 => copy(Direction::Up, 1 << 28),
                1 => KERNEL,
                _ => copy(Direction::Down, 1 << 28),
            };
            let added = add(&mut timeline, stream, label, work, host..host + 2_000, ready..ready + length);
            added.after.extend(after.filter(|point| point.stream != stream));
            last[engine] = Some(added.point);
            let end = ready + length;
            (free[stream as usize], engines[engine]) = (end, end);
            host += 2_500;
            if streams == 1 {
                let point = Point { stream, number: timeline.operations.len() as u64 };
                wait(&mut timeline, host..end + 4_000, point.stream, point.number);
                host = end + 5_000;
            }
        }
    }
    let end = engines.into_iter().max().unwrap_or(0);
    if streams == 2 {
        let number = timeline.operations.iter().filter(|one| one.point.stream == 1).count() as u64;
        wait(&mut timeline, host..end + 4_000, 1, number);
    }
    timeline
}

/// Returns a timeline with everything that a picture can show.
pub fn everything() -> Timeline {
    let mut made = timeline(3);
    "default stream".clone_into(&mut made.streams[2].name);
    made.streams[2].legacy = true;
    made.devices.push(Device {
        id: 1,
        name: "cpu:0".to_owned(),
        clock: Clock::Host,
        error: 0,
        reason: String::new(),
    });
    made.streams.push(Stream { id: 4, device: 1, name: "stream 4".to_owned(), legacy: false });
    made.threads.push(Thread { id: 2, name: "loader".to_owned() });

    user(&mut made, 0..420_000, "epoch");
    user(&mut made, 2_000..118_000, "load batch");
    add(&mut made, 1, "copy", copy(Direction::Up, 4 << 20), 5_000..9_000, 12_000..92_000);
    add(&mut made, 2, "fill", WorkKind::Fill { bytes: 1 << 20 }, 10_000..13_000, 15_000..25_000);
    let point = Point { stream: 1, number: 1 };
    add(&mut made, 2, "normalize", KERNEL, 14_000..18_000, 95_000..150_000).after.push(point);
    add(&mut made, 2, "copy", copy(Direction::Inside, 8 << 20), 19_000..23_000, 151_000..170_000);
    let step = add(&mut made, 1, "step", WorkKind::Step { operations: 3 }, 24_000..30_000, 172_000..290_000);
    step.after.push(Point { stream: 2, number: 3 });
    step.pieces = [(172_000..210_000, "gemm"), (205_000..240_000, "softmax"), (240_000..289_000, "gemm")]
        .map(|(ran, label)| Piece { label: label.into(), ran, work: KERNEL })
        .into();
    add(&mut made, 1, "copy", copy(Direction::Down, 2 << 20), 31_000..35_000, 292_000..340_000);
    add(&mut made, 1, "report progress", WorkKind::Host, 36_000..38_000, 342_000..360_000);
    let pageable = WorkKind::Copy { direction: Direction::Up, bytes: 1 << 20, pageable: true };
    add(&mut made, 3, "copy from a Vec", pageable, 40_000..110_000, 96_000..112_000);
    add(&mut made, 2, "copy", copy(Direction::Peer, 1 << 20), 112_000..114_000, 180_000..200_000);
    add(&mut made, 2, "cublasSgemm", WorkKind::External, 115_000..118_000, 210_000..260_000);
    add(&mut made, 2, "wait for a flag", WorkKind::Other, 119_000..120_000, 262_000..300_000);
    let graph =
        add(&mut made, 4, "graph", WorkKind::Graph { operations: 2 }, 121_000..124_000, 130_000..190_000);
    graph.thread = 2;
    graph.after.push(Point { stream: 3, number: 1 });
    let lost = add(&mut made, 4, "never ran", KERNEL, 400_000..403_000, 0..0);
    lost.ran = None;
    wait(&mut made, 125_000..362_000, 1, 4);
    let kind = SpanKind::Allocation { device: 0, bytes: 64 << 20 };
    made.spans.push(Span { thread: 2, time: 20_000..75_000, label: "alloc".into(), place: line(41), kind });
    for (time, label, kind) in [
        (126_000, "future", InstantKind::Future),
        (363_000, "woken", InstantKind::Woken),
        (342_000, "report progress", InstantKind::HostClosure),
        (380_000, "lint", InstantKind::Lint("a pageable copy blocks the host".to_owned())),
        (390_000, "loss", InstantKind::User { fields: vec![("value".into(), "0.25".to_owned())] }),
    ] {
        made.instants.push(Instant { thread: 1, time, label: label.into(), place: line(50), kind });
    }
    for (time, in_use, held) in
        [(0, 0, 0), (20_000, 8 << 20, 64 << 20), (75_000, 72 << 20, 128 << 20), (300_000, 8 << 20, 128 << 20)]
    {
        for (label, bytes) in [("memory in use", in_use), ("memory held", held)] {
            made.counters.push(Counter { device: 0, label: label.into(), time, bytes });
        }
    }
    made
}

/// Returns `count` short operations on four streams, with gaps and arrows, from a fixed sequence of numbers.
pub fn many(count: usize) -> Timeline {
    let mut made = timeline(4);
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut free, mut numbers, mut host) = ([0; 5], [0u64; 5], 0);
    let kinds = [
        ("copy", copy(Direction::Up, 65_536)),
        ("saxpy", KERNEL),
        ("reduce", KERNEL),
        ("copy", copy(Direction::Down, 65_536)),
    ];
    for at in 0..count {
        let stream = 1 + at as u64 % 4;
        let (label, work) = kinds[at / 4 % 4];
        let length = 500 + random(4_000) + if random(500) == 0 { 300_000 } else { 0 };
        let submitted = host..host + 900 + random(300);
        host = submitted.end + random(400) + if at % 2_000 == 0 { 400_000 } else { 0 };
        let other = 1 + stream % 4;
        let after = Point { stream: other, number: numbers[other as usize] };
        let after = (at % 9 == 5 && after.number > 0).then_some(after);
        let ready = after.map_or(0, |_| free[other as usize]).max(free[stream as usize]).max(submitted.end);
        let start = ready + random(600);
        free[stream as usize] = start + length;
        numbers[stream as usize] += 1;
        made.operations.push(Operation {
            point: Point { stream, number: numbers[stream as usize] },
            label: label.into(),
            place: line(40 + stream as u32),
            thread: 1,
            submitted,
            ran: Some(start..start + length),
            work,
            after: after.into_iter().collect(),
            pieces: Vec::new(),
        });
    }
    made
}

/// Compares a text with the file of this name.
pub fn snapshot(name: &str, text: &str) {
    let path = format!("{}/tests/snapshots/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, text).unwrap();
        return;
    }
    let want = std::fs::read_to_string(path).unwrap_or_default();
    let first = want.lines().zip(text.lines()).position(|(want, got)| want != got);
    assert!(
        want == text,
        "{name} differs from line {} on: run this with BLESS=1, and look at the result",
        first.map_or(want.lines().count().min(text.lines().count()), |line| line + 1)
    );
}
