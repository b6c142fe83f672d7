//! What the words in a file mean.

use gpustream_timeline::perfetto::format::{CLOCKS, Category, DIRECTIONS};
use gpustream_timeline::{Device, Direction, Point, SourceLine, Stream, Thread};

pub(super) fn category(word: &str) -> Option<Category> {
    Category::ALL.iter().copied().find(|category| category.word() == word)
}

pub(super) fn direction(word: &str) -> Option<Direction> {
    meaning(&DIRECTIONS, word)
}

fn meaning<T: Copy>(words: &[(T, &'static str)], word: &str) -> Option<T> {
    words.iter().find(|(_, known)| *known == word).map(|(meaning, _)| *meaning)
}

pub(super) fn place(source: &str) -> Option<SourceLine> {
    let (file, line) = source.rsplit_once(':')?;
    Some(SourceLine { file: file.to_owned().into(), line: line.parse().ok()? })
}

pub(super) fn extent_of(text: &str) -> Option<[u32; 3]> {
    let mut numbers = text.split(" x ").map(str::parse);
    let extent = [numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?];
    numbers.next().is_none().then_some(extent)
}

pub(super) fn point_of(text: &str) -> Option<Point> {
    let (stream, number) = text.strip_prefix("stream ")?.split_once(" #")?;
    Some(Point { stream: stream.parse().ok()?, number: number.parse().ok()? })
}

pub(super) fn counter_device_of(description: &str) -> Option<u32> {
    value(description, "device")?.parse().ok()
}

pub(super) fn device_of(name: &str, description: &str) -> Option<Device> {
    let error = value(description, "error")?.strip_suffix(" ns")?;
    Some(Device {
        id: value(description, "device")?.parse().ok()?,
        name: name.to_owned(),
        clock: meaning(&CLOCKS, value(description, "clock")?)?,
        error: error.parse().ok()?,
        reason: value(description, "reason").unwrap_or_default().to_owned(),
    })
}

pub(super) fn stream_of(name: &str, description: &str) -> Option<Stream> {
    Some(Stream {
        id: value(description, "stream")?.parse().ok()?,
        device: value(description, "device")?.parse().ok()?,
        name: name.to_owned(),
        legacy: value(description, "kind")? == "legacy default stream",
    })
}

pub(super) fn thread_of(name: &str, description: &str) -> Option<Thread> {
    Some(Thread { id: value(description, "thread")?.parse().ok()?, name: name.to_owned() })
}

fn value<'a>(description: &'a str, name: &str) -> Option<&'a str> {
    description.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}
