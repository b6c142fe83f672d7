//! Pictures of timelines.

mod describe;
mod escape;
mod kind;
mod marks;
mod merge;
mod page;
mod row;
mod scale;
mod svg;

use std::borrow::Cow;
use std::ops::Range;

use crate::lookup::{Lookup, extent};
use gpustream_timeline::{Nanos, Timeline};
use row::{Group, Row, rows};

/// A picture of one timeline, or of several above each other on one axis of time.
///
/// Streams are rows, grouped by device, and so are the threads of the host. Slices that overlap within a row lie in
/// lanes. Colours differ in lightness, so that a picture can be read in grey, and stripes rise for copies to the device
/// and fall for copies to the host. Viewers that prefer the dark get dark surroundings.
///
/// ```
/// use gpustream_timeline::Timeline;
/// use gpustream_timeline_view::Picture;
///
/// # let (sequential, overlapped) = (Timeline::default(), Timeline::default());
/// let svg = Picture::of(&[("one stream", &sequential), ("two streams", &overlapped)])
///     .title("two ways to do the same")
///     .width(800)
///     .threads(false)
///     .svg();
/// assert!(svg.starts_with("<svg"));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a picture is drawn by `svg` or `html`"]
pub struct Picture<'a> {
    parts: Vec<(&'a str, &'a Timeline)>,
    title: Cow<'a, str>,
    width: u32,
    from: Nanos,
    to: Option<Nanos>,
    threads: bool,
    counters: bool,
    arrows: bool,
}

impl<'a> Picture<'a> {
    /// Makes a picture of a timeline.
    pub fn new(timeline: &'a Timeline) -> Self {
        Self::of(&[("", timeline)])
    }

    /// Makes a picture of several timelines above each other, each with a name. All begin at the left.
    pub fn of(parts: &[(&'a str, &'a Timeline)]) -> Self {
        Self {
            parts: parts.to_vec(),
            title: Cow::Borrowed(""),
            width: 1000,
            from: 0,
            to: None,
            threads: true,
            counters: true,
            arrows: true,
        }
    }

    /// Sets the text above the picture; none by default.
    pub fn title(mut self, title: impl Into<Cow<'a, str>>) -> Self {
        self.title = title.into();
        self
    }

    /// Sets the width in pixels, 1000 by default and at least 300. A page has its window's width instead.
    pub fn width(mut self, pixels: u32) -> Self {
        self.width = pixels.clamp(300, 20_000);
        self
    }

    /// Sets the time at the left, in nanoseconds from the timeline's beginning; 0 by default.
    pub fn from(mut self, time: Nanos) -> Self {
        self.from = time;
        self
    }

    /// Sets the time at the right, in nanoseconds from the timeline's beginning; by default the end of the longest
    /// timeline.
    pub fn to(mut self, time: Nanos) -> Self {
        self.to = Some(time);
        self
    }

    /// Sets whether threads have rows; they have by default.
    pub fn threads(mut self, shown: bool) -> Self {
        self.threads = shown;
        self
    }

    /// Sets whether counters have rows; they have by default.
    pub fn counters(mut self, shown: bool) -> Self {
        self.counters = shown;
        self
    }

    /// Sets whether waits between streams are shown as arrows; they are by default.
    pub fn arrows(mut self, shown: bool) -> Self {
        self.arrows = shown;
        self
    }

    /// Returns the picture as SVG.
    ///
    /// The text is at most about 1 MiB long: slices that are too narrow to be told apart are drawn together, as high as
    /// the part of the time that they cover, and their tooltip says how many there are. The picture has no script and
    /// needs no other file.
    pub fn svg(&self) -> String {
        svg::draw(self)
    }

    /// Returns the picture as a page of HTML, in which one can zoom, pan and search, with details of the thing under
    /// the pointer. The page has all records in it, some 60 bytes for an operation, and needs no network.
    pub fn html(&self) -> String {
        page::draw(self)
    }

    /// Returns the timelines with what is drawn of each.
    fn prepared(&self) -> Vec<Panel<'a>> {
        let part = |&(name, timeline): &(&'a str, &'a Timeline)| {
            let lookup = Lookup::new(timeline);
            let mut rows = rows(timeline, &lookup);
            rows.retain(|row| match row.group {
                Group::Host => self.threads,
                Group::Device(_) | Group::Unknown => self.counters || row.values.is_empty(),
            });
            let extent = extent(timeline);
            for row in &mut rows {
                row.begin_at(extent.start);
            }
            Panel { name, timeline, lookup, rows, extent }
        };
        self.parts.iter().map(part).collect()
    }

    /// Returns the times that are shown, in nanoseconds from the beginning of each timeline.
    fn window(&self, parts: &[Panel<'_>]) -> Range<Nanos> {
        let longest = parts.iter().map(|part| part.extent.end.saturating_sub(part.extent.start)).max();
        let end = self.to.unwrap_or(longest.unwrap_or(0));
        self.from.min(end.saturating_sub(1))..end.max(1)
    }
}

/// A timeline of a picture.
struct Panel<'a> {
    name: &'a str,
    timeline: &'a Timeline,
    lookup: Lookup<'a>,
    rows: Vec<Row<'a>>,
    /// From the first to the last thing: the beginning is at the left.
    extent: Range<Nanos>,
}

/// Returns the heading of a group of rows.
fn group_name(part: &Panel<'_>, group: Group) -> String {
    match group {
        Group::Device(id) => {
            part.lookup.device(id).map_or_else(|| format!("device {id}"), |device| device.name.clone())
        }
        Group::Unknown => "streams of an unknown device".to_owned(),
        Group::Host => "host threads".to_owned(),
    }
}
