//! Reads files that the writer wrote.

use std::borrow::Cow;
use std::collections::HashMap;
use std::error::Error;
use std::fmt;

use gpustream_timeline::perfetto::format::{
    CLEARED, Category, FORMAT, Key, Kind, PACKET_TAG, VERSION, first,
};
use gpustream_timeline::{
    Counter, Instant, InstantKind, Nanos, Operation, Piece, Record, Span, SpanKind, Timeline,
};
use prost::Message as _;

use super::notes::Noted;
use super::parse;
use super::schema::{EventType, Packet, TrackDescriptor, TrackEvent};
use super::texts::Texts;

/// Reads a file from a [`Writer`](gpustream_timeline::perfetto::Writer).
///
/// The file may end anywhere, for example because the program was killed. The timeline has every record that
/// is complete.
///
/// # Errors
///
/// If this is not such a file, or if it is damaged anywhere except at its end. For a damaged file the error
/// says which byte.
pub fn read(bytes: &[u8]) -> Result<Timeline, ReadError> {
    let mut reader = Reader::default();
    if !bytes.starts_with(&first()) {
        return not_ours(bytes);
    }
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let damaged = |what| ReadError::Damaged { at, what };
        let Some(packet) = split_packet(&mut rest).map_err(damaged)? else { break };
        let packet = Packet::decode(packet).map_err(|_| damaged("a packet that cannot be decoded"))?;
        reader.packet(packet).map_err(damaged)?;
    }
    // We add all of them at once, because adding one by one would search through all the earlier ones each
    // time.
    reader.timeline.extend(reader.described);
    Ok(reader.timeline)
}

/// Why we could not read the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// The bytes do not begin like a file from gpustream. They may be another program's trace.
    NotATimeline,
    /// A later version of the library wrote the file, in a format that this version does not know.
    Format {
        /// The format's number.
        found: u32,
    },
    /// At some place before the end, the file contains something that the writer would not write.
    Damaged {
        /// The offset of the packet, in bytes.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATimeline => {
                write!(f, "the file is not a gpustream timeline: it does not begin with `{FORMAT}{VERSION}`")
            }
            Self::Format { found } => write!(
                f,
                "the timeline has format {found}, and this version reads format {VERSION}: use the version of \
                 gpustream that wrote it"
            ),
            Self::Damaged { at, what } => write!(f, "the timeline is damaged at byte {at}: {what}"),
        }
    }
}

impl Error for ReadError {}

/// Returns why bytes with a wrong beginning cannot be read. If they are just cut short, they are an empty
/// timeline.
fn not_ours(bytes: &[u8]) -> Result<Timeline, ReadError> {
    if first().starts_with(bytes) {
        return Ok(Timeline::default());
    }
    let mut rest = bytes;
    let packet = split_packet(&mut rest).ok().flatten().and_then(|packet| Packet::decode(packet).ok());
    let strings = packet.and_then(|packet| packet.interned_data);
    let format = strings.as_ref().and_then(|strings| strings.debug_annotation_string_values.first());
    let found = format.and_then(|format| format.text.strip_prefix(FORMAT)?.parse().ok());
    Err(found.map_or(ReadError::NotATimeline, |found| ReadError::Format { found }))
}

/// Takes the first packet. Returns nothing if the bytes end inside it.
fn split_packet<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, &'static str> {
    let Some((tag, mut rest)) = bytes.split_first() else { return Ok(None) };
    if *tag != PACKET_TAG {
        return Err("no packet begins here");
    }
    let ends = rest.len() < 10 && rest.iter().all(|byte| *byte >= 0x80);
    let length = match prost::encoding::decode_varint(&mut rest) {
        Ok(length) => length,
        Err(_) if ends => return Ok(None),
        Err(_) => return Err("a packet's length has no end"),
    };
    let Some((packet, rest)) = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length))
    else {
        return Ok(None);
    };
    *bytes = rest;
    Ok(Some(packet))
}

type Read<T> = Result<T, &'static str>;

#[derive(Default)]
struct Reader {
    timeline: Timeline,
    /// Devices, streams and threads. The writer may describe one again, for example if a clock's error grows,
    /// so the last description is the valid one.
    described: Vec<Record>,
    texts: Texts,
    /// Which device and label each counter track has.
    counters: HashMap<u64, (u32, String)>,
    /// The slices that have begun. They must end in reverse order, because the writer writes each record as a
    /// whole.
    open: Vec<(u64, Slice)>,
}

enum Slice {
    Operation(Box<Operation>),
    Piece(Piece),
    Span(Span),
    /// The submission of an operation that comes later and has all the information.
    Submission,
}

impl Reader {
    fn packet(&mut self, packet: Packet) -> Read<()> {
        if u64::from(packet.sequence_flags) & CLEARED != 0 {
            self.texts.clear();
        }
        if let Some(strings) = packet.interned_data {
            self.texts.add(strings)?;
        }
        if let Some(track) = packet.track_descriptor {
            self.track(&track)?;
        }
        match packet.track_event {
            None => Ok(()),
            Some(event) => self.event(&event, packet.timestamp.ok_or("an event without a time")?),
        }
    }

    /// Reads a track. A track without a description does not belong to a record.
    fn track(&mut self, track: &TrackDescriptor) -> Read<()> {
        let Some(description) = track.description.as_deref() else { return Ok(()) };
        let name = track.name.as_deref().unwrap_or_default();
        let record = if track.counter.is_some() {
            let device = parse::counter_device_of(description).ok_or("a counter of no device")?;
            self.counters.insert(track.uuid, (device, name.to_owned()));
            return Ok(());
        } else if let Some(thread) = &track.thread {
            parse::thread_of(&thread.thread_name, description).map(Record::Thread)
        } else if let Some(device) = parse::device_of(name, description) {
            Some(Record::Device(device))
        } else {
            parse::stream_of(name, description).map(Record::Stream)
        };
        self.described.push(record.ok_or("a track of an unknown kind")?);
        Ok(())
    }

    fn event(&mut self, event: &TrackEvent, time: Nanos) -> Read<()> {
        match event.r#type() {
            EventType::SliceBegin => self.begin(event, time),
            EventType::SliceEnd => self.end(event.track_uuid, time),
            EventType::Instant => self.instant(event, time),
            EventType::Counter => self.counter(event, time),
            EventType::Unspecified => Err("an event of an unknown type"),
        }
    }

    fn begin(&mut self, event: &TrackEvent, time: Nanos) -> Read<()> {
        let (category, label, notes) = self.parts(event)?;
        let slice = match category {
            Category::Operation | Category::Unfinished => {
                let submitted = notes.uint(Key::Submitted)?;
                let operation = Operation {
                    point: notes.point()?,
                    label,
                    place: notes.place()?,
                    thread: notes.uint(Key::Thread)?,
                    submitted: submitted..submitted.saturating_add(notes.uint(Key::CallNs)?),
                    ran: (category == Category::Operation).then_some(time..time),
                    work: notes.work()?,
                    after: notes.after()?,
                    pieces: Vec::new(),
                };
                Slice::Operation(Box::new(operation))
            }
            Category::Submission => Slice::Submission,
            Category::Piece => Slice::Piece(Piece { label, ran: time..time, work: notes.work()? }),
            Category::Wait | Category::Allocation | Category::User => {
                let kind = match category {
                    Category::Wait if notes.has(Key::Stream) => SpanKind::Wait(Some(notes.point()?)),
                    Category::Wait => SpanKind::Wait(None),
                    Category::Allocation => SpanKind::Allocation {
                        device: notes.small(Key::Device)?,
                        bytes: notes.uint(Key::Bytes)?,
                    },
                    _ => SpanKind::User { fields: notes.fields()? },
                };
                let (thread, place) = (notes.uint(Key::Thread)?, notes.place()?);
                Slice::Span(Span { thread, time: time..time, label, place, kind })
            }
            _ => return Err("a slice of a kind that has none"),
        };
        self.open.push((event.track_uuid, slice));
        Ok(())
    }

    fn end(&mut self, track: u64, time: Nanos) -> Read<()> {
        let (begun, slice) = self.open.pop().ok_or("the end of a slice that did not begin")?;
        if begun != track {
            return Err("the end of another slice than the last that began");
        }
        match slice {
            Slice::Submission => {}
            Slice::Operation(mut operation) => {
                operation.ran = operation.ran.map(|ran| ran.start..time);
                self.timeline.operations.push(*operation);
            }
            Slice::Piece(mut piece) => {
                piece.ran.end = time;
                match self.open.last_mut() {
                    Some((_, Slice::Operation(operation))) => operation.pieces.push(piece),
                    _ => return Err("a piece outside an operation"),
                }
            }
            Slice::Span(mut span) => {
                span.time.end = time;
                self.timeline.spans.push(span);
            }
        }
        Ok(())
    }

    fn instant(&mut self, event: &TrackEvent, time: Nanos) -> Read<()> {
        let (category, label, notes) = self.parts(event)?;
        let kind = match category {
            Category::Arrow => return Ok(()),
            Category::Lost => {
                let lost = notes.uint(Key::Count)?;
                self.timeline.lost = self.timeline.lost.saturating_add(lost);
                return Ok(());
            }
            Category::Future => InstantKind::Future,
            Category::Woken => InstantKind::Woken,
            Category::HostClosure => InstantKind::HostClosure,
            Category::Lint => InstantKind::Lint(notes.text(Key::Finding)?.to_owned()),
            Category::Event => InstantKind::User { fields: notes.fields()? },
            _ => return Err("a moment of a kind that has none"),
        };
        let (thread, place) = (notes.uint(Key::Thread)?, notes.place()?);
        self.timeline.instants.push(Instant { thread, time, label, place, kind });
        Ok(())
    }

    fn counter(&mut self, event: &TrackEvent, time: Nanos) -> Read<()> {
        let (device, label) = self.counters.get(&event.track_uuid).ok_or("a value of an unknown counter")?;
        let bytes = event.counter_value.ok_or("a counter without a value")? as u64;
        let label = Cow::Owned(label.clone());
        self.timeline.counters.push(Counter { device: *device, label, time, bytes });
        Ok(())
    }

    fn parts<'a>(&'a self, event: &'a TrackEvent) -> Read<(Category, Cow<'static, str>, Noted<'a>)> {
        let category = event.category_iids.first().and_then(|number| self.texts.get(Kind::Category, *number));
        let category = category.and_then(parse::category).ok_or("an event of an unknown kind")?;
        let label = event.name_iid.and_then(|number| self.texts.get(Kind::Event, number));
        let label = label.ok_or("an event without a name")?.to_owned();
        Ok((category, Cow::Owned(label), Noted::new(&self.texts, &event.debug_annotations)))
    }
}
