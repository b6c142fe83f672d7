//! The places of rows and headings.

use std::borrow::Cow;
use std::ops::Range;

use gpustream_timeline::Nanos;

use super::super::row::Row;
use super::super::{Panel, Picture, group_name};
use super::CHARACTER;
use crate::text::Time;

/// The height of a lane, and the space below it.
pub(super) const LANE: f64 = 16.0;
pub(super) const BETWEEN: f64 = 2.0;
/// The height of the instants above the lanes.
pub(super) const MARKS: f64 = 12.0;
/// The space on the right of the rows.
pub(super) const RIGHT: f64 = 14.0;
const PLOT: f64 = 30.0;
const SPACE: f64 = 5.0;
const HEADING: f64 = 19.0;
/// How many rows of a timeline we draw at most.
const ROWS: usize = 100;
/// How many names of idle rows we list.
const NAMED: usize = 5;

/// The rows and headings of a picture, and their places.
pub(super) struct Layout<'p> {
    /// The width of the rows' names.
    pub(super) gutter: f64,
    /// The upper edge of the rows. The ticks are above it.
    pub(super) top: f64,
    /// The lower edge of the rows.
    pub(super) bottom: f64,
    pub(super) items: Vec<Item<'p>>,
}

/// Something that takes up height.
pub(super) enum Item<'p> {
    Heading { y: f64, text: String, class: &'static str },
    Row { part: &'p Panel<'p>, row: &'p Row<'p>, y: f64, height: f64 },
}

impl<'p> Layout<'p> {
    pub(super) fn new(picture: &Picture<'_>, parts: &'p [Panel<'p>]) -> Self {
        let names = parts.iter().flat_map(|part| part.rows.iter().map(|row| row.name.chars().count()));
        let most = f64::from(picture.width) / 4.0;
        let gutter = (names.max().unwrap_or(0) as f64 * CHARACTER + 28.0).clamp(70.0, most.max(70.0)).round();
        let top = if picture.title.is_empty() { 24.0 } else { 48.0 };
        let mut layout = Self { gutter, top, bottom: top, items: Vec::new() };
        let window = picture.window(parts);
        for part in parts {
            layout.add(part, &window, parts.len() > 1);
        }
        layout
    }

    fn add(&mut self, part: &'p Panel<'p>, window: &Range<Nanos>, is_one_of_several: bool) {
        if !part.name.is_empty() {
            let length = Time(part.extent.end.saturating_sub(part.extent.start));
            self.heading(format!("{}: {length}", part.name), "part");
        }
        let several_devices = part.timeline.devices.len() > 1;
        let mut group = None;
        let (rows, idle): (Vec<_>, Vec<_>) = part.rows.iter().partition(|row| is_busy(part, row, window));
        for row in rows.iter().copied().take(ROWS) {
            // If several timelines of one device are stacked, each would repeat the device's name.
            if group.replace(row.group) != Some(row.group) && (several_devices || !is_one_of_several) {
                self.heading(group_name(part, row.group), "muted");
            }
            let height = height(row);
            self.items.push(Item::Row { part, row, y: self.bottom, height });
            self.bottom += height + SPACE;
        }
        if let Some(more) = rows.len().checked_sub(ROWS + 1) {
            self.heading(format!("… and {} more rows", more + 1), "muted");
        }
        if !idle.is_empty() {
            self.heading(left_out(&idle), "muted");
        }
        if part.rows.is_empty() {
            self.heading("nothing was recorded".to_owned(), "muted");
        }
        if part.timeline.lost > 0 {
            self.heading(
                format!("{} records were lost, because they came too fast", part.timeline.lost),
                "muted",
            );
        }
        self.bottom += SPACE;
    }

    fn heading(&mut self, text: String, class: &'static str) {
        self.items.push(Item::Heading { y: self.bottom + HEADING - 6.0, text, class });
        self.bottom += HEADING;
    }
}

/// Returns true if the row has something in the visible time. A counter always has a value.
fn is_busy(part: &Panel<'_>, row: &Row<'_>, window: &Range<Nanos>) -> bool {
    let is_visible = |time: &Range<Nanos>| time.start <= window.end && time.end >= window.start;
    let instants = row.instants.iter().filter_map(|&at| part.timeline.instants.get(at));
    let mut instants = instants.map(|instant| instant.time.saturating_sub(part.extent.start));
    !row.values.is_empty()
        || row.slices.iter().any(|slice| is_visible(&slice.time))
        || instants.any(|time| is_visible(&(time..time)))
}

/// Says how many rows are left out, with their first names. Several rows may have one name.
fn left_out(idle: &[&Row<'_>]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for row in idle {
        if !names.contains(&&*row.name) && names.len() <= NAMED {
            names.push(&row.name);
        }
    }
    let more = if names.len() > NAMED { ", …" } else { "" };
    names.truncate(NAMED);
    let rows = if idle.len() == 1 { "row is" } else { "rows are" };
    format!("{} {rows} idle in this time and left out: {}{more}", idle.len(), names.join(", "))
}

/// Returns the height of a row.
fn height(row: &Row<'_>) -> f64 {
    let lanes = row.lanes as f64 * (LANE + BETWEEN) - if row.lanes > 0 { BETWEEN } else { 0.0 };
    let marks = if row.instants.is_empty() { 0.0 } else { MARKS };
    if row.values.is_empty() { lanes + marks } else { PLOT }
}

/// Returns as much of a text as fits into this many pixels. Returns nothing if too little of it would be
/// left.
pub(super) fn cut(text: &str, width: f64) -> Option<Cow<'_, str>> {
    let most = (width / CHARACTER).floor().max(0.0) as usize;
    let count = text.chars().count();
    if count <= most {
        Some(Cow::Borrowed(text))
    } else if most >= 5 {
        Some(Cow::Owned(text.chars().take(most - 1).chain(['…']).collect()))
    } else {
        None
    }
}
