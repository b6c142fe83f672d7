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

/// A picture of one timeline, or of several stacked ones on a common time axis.
///
/// Streams are rows, sorted by device and number, and so are host threads. If slices overlap within a row, they
/// get separate lanes. Rows with nothing in the visible time are left out of an SVG, and a line names them.
/// Colours differ in lightness, so you can read a picture in grey. Stripes rise for copies to the device and
/// fall for copies to the host. If you prefer dark mode, you get a dark background.
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

    /// Makes a picture of several timelines, stacked and with a name each. All of them begin on the left.
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

    /// Sets the text above the picture. The default is none.
    pub fn title(mut self, title: impl Into<Cow<'a, str>>) -> Self {
        self.title = title.into();
        self
    }

    /// Sets the width in pixels. The default is 1000, the minimum 300. A page is as wide as its window
    /// instead.
    pub fn width(mut self, pixels: u32) -> Self {
        self.width = pixels.clamp(300, 20_000);
        self
    }

    /// Sets the time at the left edge, in nanoseconds from the timeline's beginning. The default is 0.
    pub fn from(mut self, time: Nanos) -> Self {
        self.from = time;
        self
    }

    /// Sets the time at the right edge, in nanoseconds from the timeline's beginning. The default is the end
    /// of the longest timeline.
    pub fn to(mut self, time: Nanos) -> Self {
        self.to = Some(time);
        self
    }

    /// Sets whether threads have rows. The default is true.
    pub fn threads(mut self, shown: bool) -> Self {
        self.threads = shown;
        self
    }

    /// Sets whether counters have rows. The default is true.
    pub fn counters(mut self, shown: bool) -> Self {
        self.counters = shown;
        self
    }

    /// Sets whether waits between streams are shown as arrows. The default is true.
    pub fn arrows(mut self, shown: bool) -> Self {
        self.arrows = shown;
        self
    }

    /// Returns the picture as SVG.
    ///
    /// The text is at most about 1 MiB long. Therefore we merge slices that you could not distinguish: the
    /// merged shape is as high as the part of the time that they cover, and its tooltip says how many there
    /// are. The picture has no script and needs no other file, so you can put it into a README.
    pub fn svg(&self) -> String {
        svg::draw(self)
    }

    /// Returns the picture as an HTML page. You can zoom, pan and search in it, and point at anything to see
    /// its details. The page contains all records, at some 60 bytes per operation, and needs no network, so
    /// you can attach it to a bug report.
    pub fn html(&self) -> String {
        page::draw(self)
    }

    /// Returns the timelines with what we draw for each.
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

    /// Returns the visible time, in nanoseconds from the beginning of each timeline.
    fn window(&self, parts: &[Panel<'_>]) -> Range<Nanos> {
        let longest = parts.iter().map(|part| part.extent.end.saturating_sub(part.extent.start)).max();
        let end = self.to.unwrap_or(longest.unwrap_or(0));
        self.from.min(end.saturating_sub(1))..end.max(1)
    }
}

/// One timeline of a picture.
struct Panel<'a> {
    name: &'a str,
    timeline: &'a Timeline,
    lookup: Lookup<'a>,
    rows: Vec<Row<'a>>,
    /// From the first to the last thing. The beginning is at the left.
    extent: Range<Nanos>,
}

fn group_name(part: &Panel<'_>, group: Group) -> String {
    match group {
        Group::Device(id) => {
            part.lookup.device(id).map_or_else(|| format!("device {id}"), |device| device.name.clone())
        }
        Group::Unknown => "streams of an unknown device".to_owned(),
        Group::Host => "host threads".to_owned(),
    }
}
