//! Packets, with the strings that they refer to.

use prost::Message as _;

use super::schema::{
    Annotation, CLEARED, EventType, FLOW_IN, Interned, InternedData, LegacyEvent, NEEDS_STRINGS, PACKET_TAG,
    Packet, TrackDescriptor, TrackEvent, Value,
};
use super::strings::{Kind, Strings};
use super::words::{Category, FORMAT, Key, VERSION};
use crate::Nanos;

/// The bytes of packets.
pub(super) struct Packets {
    bytes: Vec<u8>,
    strings: Strings,
}

/// The sequence of packets with events, to which their strings belong.
const EVENTS: u32 = 1;
/// The sequence of packets with tracks. A thread that is described in the events' sequence would be taken for the one
/// that wrote the events.
const TRACKS: u32 = 2;

/// Returns a file's first packet: a string that tells the format.
pub(super) fn first() -> Vec<u8> {
    let format = Interned { iid: 1, text: format!("{FORMAT}{VERSION}") };
    let strings = InternedData { debug_annotation_string_values: vec![format], ..InternedData::default() };
    let mut bytes = Vec::new();
    append(&mut bytes, &Packet { interned_data: Some(strings), ..cleared() });
    bytes
}

/// Returns a packet after which no string is known.
fn cleared() -> Packet {
    Packet { trusted_packet_sequence_id: EVENTS, sequence_flags: CLEARED, ..Packet::default() }
}

fn append(bytes: &mut Vec<u8>, packet: &Packet) {
    bytes.push(PACKET_TAG);
    prost::encoding::encode_varint(packet.encoded_len() as u64, bytes);
    packet.encode_raw(bytes);
}

fn arrow_end(flow: u64) -> LegacyEvent {
    LegacyEvent { bind_id: flow, flow_direction: FLOW_IN }
}

impl Packets {
    pub(super) fn new() -> Self {
        let mut bytes = first();
        // The format's name is not among the strings of events.
        append(&mut bytes, &cleared());
        Self { bytes, strings: Strings::new() }
    }

    /// Returns the bytes since the last call of `clear`.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops the bytes. Strings stay, until there are many.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        if self.strings.is_full() {
            self.strings = Strings::new();
            append(&mut self.bytes, &cleared());
        }
    }

    pub(super) fn track(&mut self, track: TrackDescriptor) {
        let packet =
            Packet { trusted_packet_sequence_id: TRACKS, track_descriptor: Some(track), ..Packet::default() };
        append(&mut self.bytes, &packet);
    }

    /// Begins an event of a kind.
    pub(super) fn event(&mut self, category: Category, label: &str, track: u64, time: Nanos) -> Event<'_> {
        let inner = TrackEvent {
            category_iids: vec![category.number()],
            name_iid: Some(self.strings.number(Kind::Event, label)),
            track_uuid: track,
            ..TrackEvent::default()
        };
        Event {
            notes: Notes { strings: &mut self.strings, list: Vec::with_capacity(16) },
            bytes: &mut self.bytes,
            inner,
            time,
        }
    }

    /// Ends the last slice of a track, and lets one of the arrows of a flow end at the slice.
    pub(super) fn slice_end(&mut self, track: u64, time: Nanos, flow: Option<u64>) {
        let event = TrackEvent {
            r#type: EventType::SliceEnd.into(),
            track_uuid: track,
            legacy_event: flow.map(arrow_end),
            ..TrackEvent::default()
        };
        self.plain(event, time);
    }

    pub(super) fn counter(&mut self, track: u64, time: Nanos, value: u64) {
        let event = TrackEvent {
            r#type: EventType::Counter.into(),
            track_uuid: track,
            counter_value: Some(value as i64),
            ..TrackEvent::default()
        };
        self.plain(event, time);
    }

    fn plain(&mut self, event: TrackEvent, time: Nanos) {
        let packet = Packet {
            timestamp: Some(time),
            trusted_packet_sequence_id: EVENTS,
            track_event: Some(event),
            ..Packet::default()
        };
        append(&mut self.bytes, &packet);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.strings.len()
    }
}

/// An event that is being put together.
pub(super) struct Event<'a> {
    pub(super) notes: Notes<'a>,
    bytes: &'a mut Vec<u8>,
    inner: TrackEvent,
    time: Nanos,
}

impl Event<'_> {
    /// Lets arrows begin at the slice.
    pub(super) fn opens(mut self, flow: u64) -> Self {
        self.inner.flow_ids.push(flow);
        self
    }

    /// Lets the one arrow of a flow end at the slice.
    pub(super) fn closes(mut self, flow: u64) -> Self {
        self.inner.terminating_flow_ids.push(flow);
        self
    }

    /// Lets one of the arrows of a flow end at the slice, which has room for one.
    pub(super) fn ends(mut self, flow: u64) -> Self {
        self.inner.legacy_event = Some(arrow_end(flow));
        self
    }

    pub(super) fn slice_begin(self) {
        self.put(EventType::SliceBegin);
    }

    pub(super) fn instant(self) {
        self.put(EventType::Instant);
    }

    fn put(mut self, kind: EventType) {
        self.inner.set_type(kind);
        self.inner.debug_annotations = self.notes.list;
        let packet = Packet {
            timestamp: Some(self.time),
            trusted_packet_sequence_id: EVENTS,
            sequence_flags: NEEDS_STRINGS,
            interned_data: self.notes.strings.take_new(),
            track_event: Some(self.inner),
            ..Packet::default()
        };
        append(self.bytes, &packet);
    }
}

/// The debug annotations of an event.
pub(super) struct Notes<'a> {
    strings: &'a mut Strings,
    list: Vec<Annotation>,
}

impl Notes<'_> {
    pub(super) fn value(&mut self, key: Key, value: Value) {
        self.list.push(Annotation { value: Some(value), ..named(key) });
    }

    pub(super) fn uint(&mut self, key: Key, value: u64) {
        self.value(key, Value::Uint(value));
    }

    pub(super) fn text(&mut self, key: Key, text: &str) {
        let number = self.strings.number(Kind::Value, text);
        self.value(key, Value::TextIid(number));
    }

    pub(super) fn texts(&mut self, key: Key, texts: impl Iterator<Item = String>) {
        let value = |text| Annotation { value: Some(Value::Text(text)), ..Annotation::default() };
        let annotation = Annotation { array_values: texts.map(value).collect(), ..named(key) };
        self.list.push(annotation);
    }

    pub(super) fn fields<'f>(&mut self, key: Key, fields: impl Iterator<Item = (&'f str, &'f str)>) {
        let entries = fields.map(|(name, text)| Annotation {
            name_iid: Some(self.strings.number(Kind::Annotation, name)),
            value: Some(Value::Text(text.to_owned())),
            ..Annotation::default()
        });
        let dict_entries = entries.collect();
        self.list.push(Annotation { dict_entries, ..named(key) });
    }
}

fn named(key: Key) -> Annotation {
    Annotation { name_iid: Some(key.number()), ..Annotation::default() }
}
