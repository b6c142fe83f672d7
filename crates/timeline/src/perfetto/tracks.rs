//! The tracks of a file: their ids, and which ones are already described.

use std::ops::Range;

use super::arrows::mixed;
use super::descriptor::{ProcessDescriptor, ThreadDescriptor, TrackDescriptor};
use super::format;
use super::lanes::Lanes;
use super::packets::Packets;
use super::recent::Recent;
use crate::{Counter, Device, Nanos, Stream, Thread};

/// The tracks that later records may need. So that memory stays bounded, we remember only recently used
/// streams, threads and counters. If an older one comes back, it gets new tracks, named by its number.
pub(super) struct Tracks {
    streams: Recent<u64, StreamTracks>,
    threads: Recent<u64, ThreadTracks>,
    counters: Recent<(u32, Box<str>), ()>,
    /// How many lanes were ever made.
    lanes: u64,
    pid: i32,
}

struct StreamTracks {
    /// The descriptor of all lanes, except for the track's id.
    descriptor: TrackDescriptor,
    lanes: Lanes,
}

struct ThreadTracks {
    name: String,
    lanes: Lanes,
}

impl ThreadTracks {
    /// Describes a thread. It has no lanes yet.
    fn described(packets: &mut Packets, pid: i32, id: u64, name: &str, description: Option<String>) -> Self {
        // We must not use 0: it is the idle thread's number.
        let tid = (id.wrapping_add(1) & 0x7fff_ffff) as i32;
        packets.track(&TrackDescriptor {
            uuid: track(Shows::Thread, id),
            thread: Some(ThreadDescriptor { pid, tid, thread_name: name.to_owned() }),
            description,
            ..TrackDescriptor::default()
        });
        Self { name: name.to_owned(), lanes: Lanes::default() }
    }
}

/// The kinds of tracks. Each has its own numbers.
#[derive(Clone, Copy)]
enum Shows {
    Process,
    Device,
    Counter,
    Thread,
    Lane,
}

fn track(shows: Shows, number: u64) -> u64 {
    mixed(mixed(shows as u64) ^ number)
}

/// The track of the process.
pub(super) fn process() -> u64 {
    track(Shows::Process, 0)
}

impl Tracks {
    /// Describes this process.
    pub(super) fn new(packets: &mut Packets) -> Self {
        let pid = std::process::id() as i32;
        let program = std::env::current_exe().ok();
        let name = program.as_deref().and_then(|path| path.file_name()).unwrap_or_default();
        packets.track(&TrackDescriptor {
            uuid: process(),
            process: Some(ProcessDescriptor { pid, process_name: name.to_string_lossy().into_owned() }),
            ..TrackDescriptor::default()
        });
        Self { streams: Recent::new(), threads: Recent::new(), counters: Recent::new(), lanes: 0, pid }
    }

    pub(super) fn device(packets: &mut Packets, device: &Device) {
        packets.track(&TrackDescriptor {
            name: Some(device.name.clone()),
            description: Some(format::device_description(device)),
            orders_by_rank: true,
            ..shown_as_one(track(Shows::Device, device.id.into()), format!("device {}", device.id))
        });
    }

    pub(super) fn stream(&mut self, packets: &mut Packets, stream: &Stream) {
        let descriptor = TrackDescriptor {
            parent_uuid: Some(track(Shows::Device, stream.device.into())),
            name: Some(stream.name.clone()),
            description: Some(format::stream_description(stream)),
            ..stream_lane(stream.id)
        };
        let mut is_new = false;
        let tracks = self.streams.get_or_insert(stream.id, || {
            is_new = true;
            StreamTracks { descriptor: descriptor.clone(), lanes: Lanes::default() }
        });
        if !is_new {
            // The stream has another name now, and keeps its lanes.
            for uuid in tracks.lanes.tracks() {
                packets.track(&TrackDescriptor { uuid, ..descriptor.clone() });
            }
            tracks.descriptor = descriptor;
            return;
        }
        // This shows the stream's row before its first operation.
        self.of_stream(packets, stream.id, &(0..0), None);
    }

    pub(super) fn thread(&mut self, packets: &mut Packets, thread: &Thread) {
        let description = Some(format::thread_description(thread));
        let tracks = ThreadTracks::described(packets, self.pid, thread.id, &thread.name, description);
        self.threads.insert(thread.id, tracks);
    }

    /// Returns a counter's track.
    pub(super) fn counter(&mut self, packets: &mut Packets, counter: &Counter) -> u64 {
        let bytes = counter.label.bytes();
        let label = bytes.fold(u64::from(counter.device), |hash, byte| mixed(hash ^ u64::from(byte)));
        let uuid = track(Shows::Counter, label);
        let name = (counter.device, Box::from(&*counter.label));
        let mut is_new = false;
        self.counters.get_or_insert(name, || is_new = true);
        if is_new {
            packets.track(&TrackDescriptor {
                uuid,
                parent_uuid: Some(track(Shows::Device, counter.device.into())),
                name: Some(counter.label.clone().into_owned()),
                description: Some(format::counter_description(counter.device)),
                is_counter: true,
                sibling_order_rank: Some(i32::MAX),
                ..TrackDescriptor::default()
            });
        }
        uuid
    }

    /// Returns a lane of a stream for a slice. If the slice is written while another is open (`around`), it
    /// is not in that one's lane.
    pub(super) fn of_stream(
        &mut self,
        packets: &mut Packets,
        stream: u64,
        time: &Range<Nanos>,
        around: Option<u64>,
    ) -> u64 {
        let unknown = || StreamTracks {
            descriptor: TrackDescriptor { name: Some(format!("stream {stream}")), ..stream_lane(stream) },
            lanes: Lanes::default(),
        };
        let tracks = self.streams.get_or_insert(stream, unknown);
        let (uuid, is_new) = tracks.lanes.place(time, around, || new_lane(&mut self.lanes));
        if is_new {
            packets.track(&TrackDescriptor { uuid, ..tracks.descriptor.clone() });
        }
        uuid
    }

    /// Returns a lane of a thread for a slice, and the thread's name.
    pub(super) fn of_thread(
        &mut self,
        packets: &mut Packets,
        thread: u64,
        time: &Range<Nanos>,
    ) -> (u64, &str) {
        let pid = self.pid;
        let unknown = || ThreadTracks::described(packets, pid, thread, &format!("thread {thread}"), None);
        let tracks = self.threads.get_or_insert(thread, unknown);
        let (uuid, is_new) = tracks.lanes.place(time, None, || new_lane(&mut self.lanes));
        if is_new {
            packets.track(&TrackDescriptor {
                parent_uuid: Some(track(Shows::Thread, thread)),
                name: Some(tracks.name.clone()),
                ..shown_as_one(uuid, format!("thread {thread}"))
            });
        }
        (uuid, &tracks.name)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let streams = self.streams.iter().map(|(_, tracks)| 1 + tracks.lanes.len());
        let threads = self.threads.iter().map(|(_, tracks)| 1 + tracks.lanes.len());
        streams.chain(threads).sum::<usize>() + self.counters.iter().count()
    }
}

fn new_lane(lanes: &mut u64) -> u64 {
    *lanes += 1;
    track(Shows::Lane, *lanes)
}

/// Returns a track that Perfetto shows together with all others that have the same key.
fn shown_as_one(uuid: u64, key: String) -> TrackDescriptor {
    TrackDescriptor { uuid, merge_key: Some(key), ..TrackDescriptor::default() }
}

fn stream_lane(stream: u64) -> TrackDescriptor {
    let rank = i32::try_from(stream).unwrap_or(i32::MAX);
    TrackDescriptor { sibling_order_rank: Some(rank), ..shown_as_one(0, format!("stream {stream}")) }
}
