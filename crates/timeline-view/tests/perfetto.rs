//! Files in Perfetto's format: we must read what was written, and a truncated file as far as it goes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

use std::io::{self, ErrorKind, Write};
use std::ops::Range;

use gpustream_timeline::perfetto::Writer;
use gpustream_timeline::{
    Clock, Counter, Device, Nanos, Operation, Piece, Point, Record, SourceLine, Span, SpanKind, Stream,
    Thread, Timeline, WorkKind,
};
use gpustream_timeline_view::perfetto::{ReadError, read};
use proptest::collection::vec;
use proptest::prelude::*;

mod any_records;

fn file(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for record in records {
        assert!(writer.write(record).unwrap());
    }
    writer.finish().unwrap()
}

proptest! {
    #[test]
    fn file_is_read_as_it_was_written(records in vec(any_records::record(), 0..40)) {
        prop_assert_eq!(read(&file(&records)).unwrap(), Timeline::from_iter(records));
    }

    /// Random changes must lead to errors or other timelines, but nothing else.
    #[test]
    fn damaged_file_is_no_panic(records in vec(any_records::record(), 1..6), changes in vec(any::<(usize, u8)>(), 1..4)) {
        let mut bytes = file(&records);
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        let _ = read(&bytes);
    }
}

fn kernel(stream: u64, number: u64, ran: Range<Nanos>) -> Operation {
    Operation {
        point: Point { stream, number },
        label: format!("kernel {number}").into(),
        place: SourceLine { file: "src/main.rs".into(), line: 7 },
        thread: 1,
        submitted: ran.start..ran.start,
        ran: Some(ran),
        work: WorkKind::Kernel { grid: [4, 2, 1], block: [32, 1, 1] },
        after: vec![Point { stream: stream + 1, number }],
        pieces: vec![],
    }
}

fn small_trace() -> Vec<Record> {
    let piece = |ran| Piece { label: "node".into(), ran, work: WorkKind::Other };
    vec![
        Record::Device(Device {
            id: 0,
            name: "cpu:0".into(),
            clock: Clock::Host,
            error: 0,
            reason: String::new(),
        }),
        Record::Stream(Stream { id: 1, device: 0, name: "stream 1".into(), legacy: false }),
        Record::Thread(Thread { id: 1, name: "main".into() }),
        Record::Operation(kernel(1, 1, 10..20)),
        Record::Operation(Operation { pieces: vec![piece(20..30), piece(25..35)], ..kernel(1, 2, 20..40) }),
        Record::Span(Span {
            thread: 1,
            time: 5..50,
            label: "synchronize".into(),
            place: SourceLine::default(),
            kind: SpanKind::Wait(Some(Point { stream: 1, number: 2 })),
        }),
        Record::Counter(Counter { device: 0, label: "memory in use".into(), time: 3, bytes: 5 }),
        Record::Lost(3),
    ]
}

/// More strings than the table has room for, so the writer must empty it.
#[test]
fn file_with_many_strings_is_read_as_it_was_written() {
    let labelled = |number| {
        let label = format!("kernel {}", number % 7_000);
        Record::Operation(Operation { label: label.into(), ..kernel(1, number, number..number + 1) })
    };
    let records: Vec<_> = (1..20_000).map(labelled).collect();
    assert_eq!(read(&file(&records)).unwrap(), Timeline::from_iter(records));
}

/// Remembers the length of the file after each call.
#[derive(Default)]
struct Calls {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Write for &mut Calls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn file_cut_anywhere_has_the_records_before_the_cut() {
    let records = small_trace();
    let mut calls = Calls::default();
    let mut writer = Writer::new(&mut calls);
    for record in &records {
        writer.write(record).unwrap();
    }
    drop(writer);
    assert_eq!(calls.ends.len(), records.len(), "one call for each record");
    for cut in 0..=calls.bytes.len() {
        let whole = calls.ends.iter().take_while(|end| **end <= cut).count();
        let timeline = read(&calls.bytes[..cut]).unwrap();
        assert_eq!(timeline, Timeline::from_iter(records[..whole].to_vec()), "cut at {cut}");
    }
}

#[test]
fn other_files_are_told_apart() {
    let json = br#"{"traceEvents": []}"#;
    // A file by Perfetto itself, with one packet that has only a time.
    let foreign = [0x0a, 0x02, 0x40, 0x01];
    for bytes in [&json[..], &foreign, b"\x0a"] {
        let expected = if bytes.len() == 1 { Ok(Timeline::default()) } else { Err(ReadError::NotATimeline) };
        assert_eq!(read(bytes), expected);
    }
    let mut later = file(&small_trace());
    let digit = later.windows(8).position(|bytes| bytes == b"format 1").unwrap() + 7;
    later[digit] = b'7';
    assert_eq!(read(&later), Err(ReadError::Format { found: 7 }));
    let mut damaged = file(&small_trace());
    // A tag and a length of one byte, then the first packet.
    let at = 2 + usize::from(damaged[1]);
    damaged[at] = 0;
    assert_eq!(read(&damaged), Err(ReadError::Damaged { at, what: "no packet begins here" }));
}

/// A disk with room for this many bytes.
struct Disk {
    room: usize,
    held: Vec<u8>,
    calls: usize,
}

impl Write for &mut Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.calls += 1;
        let fits = bytes.len().min(self.room - self.held.len());
        if fits == 0 && !bytes.is_empty() {
            return Err(ErrorKind::StorageFull.into());
        }
        self.held.extend_from_slice(&bytes[..fits]);
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn full_disk_is_one_error_and_a_file_that_opens() {
    let records = small_trace();
    for room in 0..file(&records).len() {
        let mut disk = Disk { room, held: vec![], calls: 0 };
        let mut writer = Writer::new(&mut disk);
        let results: Vec<_> = records.iter().map(|record| writer.write(record)).collect();
        let end = writer.finish();
        let written = results.iter().take_while(|result| matches!(result, Ok(true))).count();
        let errors = results.iter().filter(|result| result.is_err()).count() + usize::from(end.is_err());
        assert_eq!(errors, 1, "a disk of {room} bytes");
        assert!(results.iter().skip(written + 1).all(|result| matches!(result, Ok(false))));
        // One call for each record that fits, and two for the one that does not: for the part that fits, and
        // for the error.
        assert!(disk.calls <= written + 2, "{} calls for {written} records", disk.calls);
        assert_eq!(read(&disk.held).unwrap(), Timeline::from_iter(records[..written].to_vec()));
    }
}
