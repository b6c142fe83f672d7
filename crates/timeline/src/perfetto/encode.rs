//! Turns records into packets.

use std::borrow::Cow;
use std::ops::Range;

use super::arrows::{Arrows, Head, operation_flow, submission_flow};
use super::format::{self, Category, Key};
use super::packets::{Notes, Packets};
use super::tracks::{self, Tracks};
use crate::{
    Counter, Instant, InstantKind, Nanos, Operation, Piece, Point, Record, SourceLine, Span, SpanKind,
    WorkKind,
};

/// Makes packets from records. It remembers only a bounded number of earlier records, because a trace may run
/// for days.
pub(super) struct Encoder {
    packets: Packets,
    tracks: Tracks,
    arrows: Arrows,
    /// The latest time in any record.
    latest: Nanos,
}

impl Encoder {
    pub(super) fn new() -> Self {
        let mut packets = Packets::new();
        let tracks = Tracks::new(&mut packets);
        Self { packets, tracks, arrows: Arrows::new(), latest: 0 }
    }

    /// Returns the packets since the last `clear`. Before the first `clear`, they include the beginning of
    /// the file.
    pub(super) fn bytes(&self) -> &[u8] {
        self.packets.bytes()
    }

    pub(super) fn clear(&mut self) {
        self.packets.clear();
    }

    pub(super) fn record(&mut self, record: &Record) {
        match record {
            Record::Device(device) => Tracks::device(&mut self.packets, device),
            Record::Stream(stream) => self.tracks.stream(&mut self.packets, stream),
            Record::Thread(thread) => self.tracks.thread(&mut self.packets, thread),
            Record::Operation(operation) => self.operation(operation),
            Record::Span(span) => self.span(span),
            Record::Instant(instant) => self.instant(instant),
            Record::Counter(counter) => self.counter(counter),
            Record::Lost(count) => self.lost(*count),
        }
    }

    /// Draws the arrows whose origin was uncertain while more records could come.
    pub(super) fn end(&mut self) {
        for (flow, head) in self.arrows.end() {
            self.arrow(flow, head);
        }
    }

    fn operation(&mut self, operation: &Operation) {
        let submitted = self.ordered(&operation.submitted);
        let source = format::source(&operation.place);
        let (host, thread) = self.tracks.of_thread(&mut self.packets, operation.thread, &submitted);
        let thread = thread.to_owned();
        let (category, place, time) = match &operation.ran {
            None => (Category::Unfinished, host, submitted.clone()),
            Some(ran) => {
                let ran = self.ordered(ran);
                self.submission(operation, source.as_deref(), host, &submitted);
                (Category::Operation, self.stream_track(operation, &ran, None), ran)
            }
        };
        // A slice's beginning and end can each hold one arrow. Further arrows end at marks.
        let mut waits = operation.after.iter().filter(|point| point.number > 0);
        let head = Head { track: place, time: time.start };
        let first = waits.next().map(|point| self.arrows.to(*point, head));
        let second = waits.next().map(|point| self.arrows.to(*point, head));
        let settled = self.arrows.add(operation.point);

        let mut event = self.packets.event(category, &operation.label, place, time.start);
        note_point(&mut event.notes, operation.point);
        note_source(&mut event.notes, source.as_deref());
        note_work(&mut event.notes, operation.work, &time);
        event.notes.uint(Key::Thread, operation.thread);
        event.notes.text(Key::SubmittedBy, &thread);
        event.notes.uint(Key::Submitted, submitted.start);
        event.notes.uint(Key::CallNs, submitted.end.saturating_sub(submitted.start));
        if category == Category::Operation {
            let delay = time.start.wrapping_sub(submitted.start) as i64;
            event.notes.int(Key::StartDelayNs, delay);
            event = event.opens(operation_flow(operation.point)).closes(submission_flow(operation.point));
        }
        if !operation.after.is_empty() {
            event.notes.texts(Key::After, operation.after.iter().map(|point| format::point(*point)));
        }
        if let Some(flow) = first {
            event = event.ends(flow);
        }
        event.slice_begin();
        for (nth, point) in (0..).zip(waits) {
            // If two marks had the same time, they would be nested.
            let head = Head { time: time.start.saturating_add(nth).min(last_moment(&time)), ..head };
            let flow = self.arrows.to(*point, head);
            self.arrow(flow, head);
        }
        self.pieces(operation, place, &time);
        self.packets.slice_end(place, time.end, second);
        for (flow, head) in settled {
            self.arrow(flow, head);
        }
    }

    fn submission(&mut self, operation: &Operation, source: Option<&str>, track: u64, time: &Range<Nanos>) {
        let mut event = self.packets.event(Category::Submission, &operation.label, track, time.start);
        note_point(&mut event.notes, operation.point);
        note_source(&mut event.notes, source);
        event.opens(submission_flow(operation.point)).slice_begin();
        self.packets.slice_end(track, time.end, None);
    }

    /// Writes the pieces of an operation. They go into its own lane as long as they follow each other within
    /// its time.
    fn pieces(&mut self, operation: &Operation, place: u64, time: &Range<Nanos>) {
        let inside = operation.ran.is_some();
        let mut last = time.start;
        for piece in &operation.pieces {
            let ran = self.ordered(&piece.ran);
            if inside && last <= ran.start && ran.end <= time.end {
                last = ran.end;
                self.piece(piece, place, &ran);
            } else {
                let track = self.stream_track(operation, &ran, Some(place));
                self.piece(piece, track, &ran);
            }
        }
    }

    fn piece(&mut self, piece: &Piece, track: u64, time: &Range<Nanos>) {
        let mut event = self.packets.event(Category::Piece, &piece.label, track, time.start);
        note_work(&mut event.notes, piece.work, time);
        event.slice_begin();
        self.packets.slice_end(track, time.end, None);
    }

    fn span(&mut self, span: &Span) {
        let time = self.ordered(&span.time);
        let track = self.tracks.of_thread(&mut self.packets, span.thread, &time).0;
        let category = match span.kind {
            SpanKind::Wait(_) => Category::Wait,
            SpanKind::Allocation { .. } => Category::Allocation,
            SpanKind::User { .. } => Category::User,
        };
        let mut event = self.packets.event(category, &span.label, track, time.start);
        event.notes.uint(Key::Thread, span.thread);
        note_place(&mut event.notes, &span.place);
        match &span.kind {
            SpanKind::Wait(None) => {}
            SpanKind::Wait(Some(point)) => note_point(&mut event.notes, *point),
            SpanKind::Allocation { device, bytes } => {
                event.notes.uint(Key::Device, u64::from(*device));
                event.notes.uint(Key::Bytes, *bytes);
            }
            SpanKind::User { fields } => note_fields(&mut event.notes, fields),
        }
        event.slice_begin();
        if let SpanKind::Wait(Some(point)) = &span.kind
            && point.number > 0
        {
            // The wait begins before its operation ends, so the arrow points to the wait's last moment.
            let head = Head { track, time: last_moment(&time) };
            let flow = self.arrows.to(*point, head);
            self.arrow(flow, head);
        }
        self.packets.slice_end(track, time.end, None);
    }

    fn instant(&mut self, instant: &Instant) {
        let time = self.ordered(&(instant.time..instant.time));
        let track = self.tracks.of_thread(&mut self.packets, instant.thread, &time).0;
        let category = match instant.kind {
            InstantKind::Future => Category::Future,
            InstantKind::Woken => Category::Woken,
            InstantKind::HostClosure => Category::HostClosure,
            InstantKind::Lint(_) => Category::Lint,
            InstantKind::User { .. } => Category::Event,
        };
        let mut event = self.packets.event(category, &instant.label, track, instant.time);
        event.notes.uint(Key::Thread, instant.thread);
        note_place(&mut event.notes, &instant.place);
        match &instant.kind {
            InstantKind::Future | InstantKind::Woken | InstantKind::HostClosure => {}
            InstantKind::Lint(finding) => event.notes.text(Key::Finding, finding),
            InstantKind::User { fields } => note_fields(&mut event.notes, fields),
        }
        event.instant();
    }

    fn counter(&mut self, counter: &Counter) {
        self.latest = self.latest.max(counter.time);
        let track = self.tracks.counter(&mut self.packets, counter);
        self.packets.counter(track, counter.time, counter.bytes);
    }

    fn lost(&mut self, count: u64) {
        let label = format!("{count} records were lost");
        let mut event = self.packets.event(Category::Lost, &label, tracks::process(), self.latest);
        event.notes.uint(Key::Count, count);
        event.instant();
    }

    /// Writes an arrow's end: a mark inside the slice that the arrow points to.
    fn arrow(&mut self, flow: u64, head: Head) {
        let event = self.packets.event(Category::Arrow, "after", head.track, head.time);
        event.ends(flow).instant();
    }

    fn stream_track(&mut self, operation: &Operation, time: &Range<Nanos>, around: Option<u64>) -> u64 {
        self.tracks.of_stream(&mut self.packets, operation.point.stream, time, around)
    }

    /// Returns a range that does not end before it begins.
    fn ordered(&mut self, time: &Range<Nanos>) -> Range<Nanos> {
        let end = time.end.max(time.start);
        self.latest = self.latest.max(end);
        time.start..end
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.packets.len() + self.tracks.len() + self.arrows.len()
    }
}

/// Returns the last moment while a slice is open.
fn last_moment(time: &Range<Nanos>) -> Nanos {
    time.end.saturating_sub(1).max(time.start)
}

fn note_point(notes: &mut Notes<'_>, point: Point) {
    notes.uint(Key::Stream, point.stream);
    notes.uint(Key::Number, point.number);
}

fn note_place(notes: &mut Notes<'_>, place: &SourceLine) {
    note_source(notes, format::source(place).as_deref());
}

fn note_source(notes: &mut Notes<'_>, source: Option<&str>) {
    if let Some(source) = source {
        notes.text(Key::Source, source);
    }
}

fn note_fields(notes: &mut Notes<'_>, fields: &[(Cow<'static, str>, String)]) {
    if !fields.is_empty() {
        notes.fields(Key::Fields, fields.iter().map(|(name, value)| (&**name, &**value)));
    }
}

fn note_work(notes: &mut Notes<'_>, work: WorkKind, time: &Range<Nanos>) {
    notes.text(Key::Work, format::work_word(work));
    match work {
        WorkKind::Kernel { grid, block } => {
            notes.text(Key::Grid, &format::extent(grid));
            notes.text(Key::Block, &format::extent(block));
        }
        WorkKind::Copy { direction, bytes, pageable } => {
            notes.text(Key::Direction, format::direction_word(direction));
            note_bytes(notes, bytes, time);
            notes.bool(Key::Pageable, pageable);
        }
        WorkKind::Fill { bytes } => note_bytes(notes, bytes, time),
        WorkKind::Graph { operations } | WorkKind::Step { operations } => {
            notes.uint(Key::Operations, u64::from(operations));
        }
        WorkKind::Host | WorkKind::External | WorkKind::Other => {}
    }
}

fn note_bytes(notes: &mut Notes<'_>, bytes: u64, time: &Range<Nanos>) {
    notes.uint(Key::Bytes, bytes);
    let took = time.end.saturating_sub(time.start);
    if took > 0 {
        notes.double(Key::Rate, bytes as f64 / took as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// New streams, threads, labels and counters all the time, waits for operations that never come, and
    /// times in any order.
    #[test]
    fn memory_does_not_grow_with_the_trace() {
        let mut encoder = Encoder::new();
        let mut most = 0;
        for number in 0..1_000_000_u64 {
            let stream = if number % 2 == 0 { 1 } else { number };
            let start = 1_000_000 - number;
            let missing = Point { stream: number, number: 2 };
            let operation = Operation {
                point: Point { stream, number },
                label: format!("{stream}:{number}").into(),
                place: SourceLine::default(),
                thread: number,
                submitted: 1..2,
                ran: Some(start..start + 10),
                work: WorkKind::Other,
                after: vec![missing],
                pieces: vec![],
            };
            encoder.record(&Record::Operation(operation));
            encoder.clear();
            if number == 100_000 {
                most = encoder.len();
            }
        }
        assert!(encoder.len() <= most + most / 2, "{} after {most}", encoder.len());
        assert!(most < 100_000, "{most} entries");
    }
}
