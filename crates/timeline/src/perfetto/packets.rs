//! Packets, and the strings that they refer to.
//!
//! Field numbers and types come from `protos/perfetto/trace` in Perfetto's sources. Each message names its
//! file.

use super::descriptor::TrackDescriptor;
use super::format::{CLEARED, Category, FORMAT, Key, Kind, PACKET, VERSION};
use super::message::Message;
use super::strings::Strings;
use crate::Nanos;

/// The bytes of packets.
pub(super) struct Packets {
    bytes: Vec<u8>,
    strings: Strings,
    /// A buffer for the annotations of the event under construction.
    notes: Vec<u8>,
}

/// The sequence of packets with events. Their strings belong to it.
const EVENTS: u64 = 1;
/// The sequence of packets with tracks. If we described threads in the events' sequence, Perfetto would think
/// that they wrote the events.
const TRACKS: u64 = 2;

/// `TracePacket.SequenceFlags.SEQ_NEEDS_INCREMENTAL_STATE`: the packet refers to interned strings.
const NEEDS_STRINGS: u64 = 2;

/// `TrackEvent.Type` (`track_event/track_event.proto`).
#[derive(Clone, Copy)]
enum EventType {
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

/// Returns a file's first packet: a string that names the format.
pub fn first() -> Vec<u8> {
    let mut strings = Strings::default();
    strings.number(Kind::Value, &format!("{FORMAT}{VERSION}"));
    let mut bytes = Vec::new();
    append(&mut bytes, EVENTS, None, |packet| {
        packet.message(INTERNED_DATA, |data| strings.write_new(data));
        packet.uint(SEQUENCE_FLAGS, CLEARED);
    });
    bytes
}

/// Writes a packet that makes readers forget all strings.
fn clear_strings(bytes: &mut Vec<u8>) {
    append(bytes, EVENTS, None, |packet| packet.uint(SEQUENCE_FLAGS, CLEARED));
}

// The fields of `TracePacket` (`trace_packet.proto`).
const TIMESTAMP: u32 = 8;
const SEQUENCE_ID: u32 = 10;
const TRACK_EVENT: u32 = 11;
const INTERNED_DATA: u32 = 12;
const SEQUENCE_FLAGS: u32 = 13;
const TRACK_DESCRIPTOR: u32 = 60;

/// Writes a packet of a sequence. `write` adds its own fields after those of the sequence.
fn append(bytes: &mut Vec<u8>, sequence: u64, time: Option<Nanos>, write: impl FnOnce(&mut Message<'_>)) {
    Message::behind(bytes).message(PACKET, |packet| {
        if let Some(time) = time {
            packet.uint(TIMESTAMP, time);
        }
        packet.uint(SEQUENCE_ID, sequence);
        write(packet);
    });
}

/// Writes a `TrackEvent.legacy_event` that ends an arrow. Unlike an end in `terminating_flow_ids`, it keeps
/// the flow open for further arrows from the same slice.
fn arrow_end(event: &mut Message<'_>, flow: Option<u64>) {
    /// `TrackEvent.LegacyEvent.FlowDirection.FLOW_IN`.
    const FLOW_IN: i32 = 1;
    if let Some(flow) = flow {
        event.message(6, |legacy| {
            legacy.uint(8, flow);
            legacy.int(13, FLOW_IN);
        });
    }
}

impl Packets {
    pub(super) fn new() -> Self {
        let mut bytes = first();
        // The format's name is not one of the events' strings.
        clear_strings(&mut bytes);
        Self { bytes, strings: Strings::with_words(), notes: Vec::new() }
    }

    /// Returns the bytes since the last `clear`.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops the bytes. Strings stay until there are too many.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        if self.strings.is_full() {
            self.strings = Strings::with_words();
            clear_strings(&mut self.bytes);
        }
    }

    pub(super) fn track(&mut self, track: &TrackDescriptor) {
        append(&mut self.bytes, TRACKS, None, |packet| {
            packet.message(TRACK_DESCRIPTOR, |message| track.write(message));
        });
    }

    /// Begins an event.
    pub(super) fn event(&mut self, category: Category, label: &str, track: u64, time: Nanos) -> Event<'_> {
        self.notes.clear();
        Event {
            name: self.strings.number(Kind::Event, label),
            notes: Notes { strings: &mut self.strings, encoded: &mut self.notes },
            bytes: &mut self.bytes,
            category,
            track,
            time,
            opens: None,
            closes: None,
            ends: None,
        }
    }

    /// Ends the last slice of a track. If `flow` is given, an arrow of that flow ends at the slice.
    pub(super) fn slice_end(&mut self, track: u64, time: Nanos, flow: Option<u64>) {
        self.plain(time, |event| {
            arrow_end(event, flow);
            event.uint(EVENT_TYPE, EventType::SliceEnd as u64);
            event.uint(TRACK_UUID, track);
        });
    }

    pub(super) fn counter(&mut self, track: u64, time: Nanos, value: u64) {
        self.plain(time, |event| {
            event.uint(EVENT_TYPE, EventType::Counter as u64);
            event.uint(TRACK_UUID, track);
            event.int(COUNTER_VALUE, value as i64);
        });
    }

    /// Writes an event that refers to no strings.
    fn plain(&mut self, time: Nanos, write: impl FnOnce(&mut Message<'_>)) {
        append(&mut self.bytes, EVENTS, Some(time), |packet| packet.message(TRACK_EVENT, write));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.strings.len()
    }
}

// The fields of `TrackEvent` (`track_event/track_event.proto`) that every event has, and those of counters.
const EVENT_TYPE: u32 = 9;
const TRACK_UUID: u32 = 11;
const COUNTER_VALUE: u32 = 30;

/// An event under construction.
pub(super) struct Event<'a> {
    pub(super) notes: Notes<'a>,
    bytes: &'a mut Vec<u8>,
    category: Category,
    name: u64,
    track: u64,
    time: Nanos,
    opens: Option<u64>,
    closes: Option<u64>,
    ends: Option<u64>,
}

impl Event<'_> {
    /// Arrows of this flow begin at the slice.
    pub(super) fn opens(self, flow: u64) -> Self {
        Self { opens: Some(flow), ..self }
    }

    /// The flow's only arrow ends at the slice.
    pub(super) fn closes(self, flow: u64) -> Self {
        Self { closes: Some(flow), ..self }
    }

    /// An arrow of this flow ends at the slice. A slice can hold one such end.
    pub(super) fn ends(self, flow: u64) -> Self {
        Self { ends: Some(flow), ..self }
    }

    pub(super) fn slice_begin(self) {
        self.put(EventType::SliceBegin);
    }

    pub(super) fn instant(self) {
        self.put(EventType::Instant);
    }

    fn put(self, kind: EventType) {
        append(self.bytes, EVENTS, Some(self.time), |packet| {
            packet.message(TRACK_EVENT, |event| {
                event.uint(3, self.category.number());
                event.fields(self.notes.encoded);
                arrow_end(event, self.ends);
                event.uint(EVENT_TYPE, kind as u64);
                event.uint(10, self.name);
                event.uint(TRACK_UUID, self.track);
                event.fixed_if_any(47, self.opens);
                event.fixed_if_any(48, self.closes);
            });
            if self.notes.strings.has_new() {
                packet.message(INTERNED_DATA, |data| self.notes.strings.write_new(data));
            }
            packet.uint(SEQUENCE_FLAGS, NEEDS_STRINGS);
        });
    }
}

// Fields of `DebugAnnotation` (`track_event/debug_annotation.proto`).
const NAME: u32 = 1;
const TEXT: u32 = 6;

/// The debug annotations of an event.
pub(super) struct Notes<'a> {
    strings: &'a mut Strings,
    /// Encoded as fields of the event.
    encoded: &'a mut Vec<u8>,
}

impl Notes<'_> {
    pub(super) fn bool(&mut self, key: Key, value: bool) {
        self.note(key, |note| note.uint(2, value.into()));
    }

    pub(super) fn uint(&mut self, key: Key, value: u64) {
        self.note(key, |note| note.uint(3, value));
    }

    pub(super) fn int(&mut self, key: Key, value: i64) {
        self.note(key, |note| note.int(4, value));
    }

    pub(super) fn double(&mut self, key: Key, value: f64) {
        self.note(key, |note| note.fixed(5, value.to_bits()));
    }

    pub(super) fn text(&mut self, key: Key, text: &str) {
        let number = self.strings.number(Kind::Value, text);
        self.note(key, |note| note.uint(17, number));
    }

    pub(super) fn texts(&mut self, key: Key, texts: impl Iterator<Item = String>) {
        self.note(key, |note| {
            texts.for_each(|text| note.message(12, |value| value.text(TEXT, &text)));
        });
    }

    pub(super) fn fields<'f>(&mut self, key: Key, fields: impl Iterator<Item = (&'f str, &'f str)>) {
        let Notes { strings, encoded } = self;
        annotation(encoded, key, |note| {
            for (name, text) in fields {
                note.message(11, |entry| {
                    entry.uint(NAME, strings.number(Kind::Annotation, name));
                    entry.text(TEXT, text);
                });
            }
        });
    }

    fn note(&mut self, key: Key, write: impl FnOnce(&mut Message<'_>)) {
        annotation(self.encoded, key, write);
    }
}

/// Writes an annotation. `write` adds its value.
fn annotation(encoded: &mut Vec<u8>, key: Key, write: impl FnOnce(&mut Message<'_>)) {
    Message::behind(encoded).message(4, |note| {
        note.uint(NAME, key.number());
        write(note);
    });
}
