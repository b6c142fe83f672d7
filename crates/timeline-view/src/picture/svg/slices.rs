//! Draws the slices of a row.

use std::fmt::Write as _;

use super::super::describe;
use super::super::escape::Xml;
use super::super::merge::{Run, Shape, shapes};
use super::super::row::{Row, Slice};
use super::super::{Panel, kind::Look};
use super::layout::{BETWEEN, LANE, MARKS, cut};
use super::{CHARACTER, Drawing, Used};
use crate::text::percent;

impl Drawing<'_> {
    /// Draws everything in a row.
    pub(super) fn row(
        &self,
        svg: &mut String,
        part: &Panel<'_>,
        row: &Row<'_>,
        y: f64,
        height: f64,
        used: &mut Used,
    ) {
        if !row.values.is_empty() {
            self.plot(svg, row, y, height);
        }
        if !row.instants.is_empty() {
            self.marks(svg, part, row, y, used);
        }
        for lane in 0..row.lanes {
            let y = lane_top(row, y, lane);
            let slices = row.slices.iter().filter(|slice| slice.lane == lane);
            for shape in shapes(slices, self.scale, self.threshold) {
                match shape {
                    Shape::One(slice) => self.slice(svg, part, slice, y, used),
                    Shape::Many(run) => draw_run(svg, &run, y, used),
                }
            }
        }
    }

    fn slice(&self, svg: &mut String, part: &Panel<'_>, slice: &Slice<'_>, y: f64, used: &mut Used) {
        let Look { class, glyph, framed, .. } = slice.kind.look();
        used.kinds.push(slice.kind);
        let (x, end) = (self.scale.x(slice.time.start), self.scale.x(slice.time.end));
        let width = (end - x).max(0.8);
        let _ = write!(svg, "<g><title>");
        let lines = describe::slice(slice, part.timeline, &part.lookup);
        let _ = write!(svg, "{}</title>", Xml(&lines.join("\n")));
        // A line separates neighbours of the same kind.
        let (edge, inset) = match width {
            ..3.0 => ("", 0.0),
            _ if framed => (" frame", 0.5),
            _ => (" edge", 0.0),
        };
        let (left, top, width_inside, height) =
            (x + inset, y + inset, width - 2.0 * inset, LANE - 2.0 * inset);
        let _ = write!(
            svg,
            "<rect class=\"{class}{edge}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width_inside:.1}\" height=\"{height}\"/>"
        );
        // The label goes into the visible part of the slice. If it does not fit, we try its glyph.
        let (from, to) = (x.max(self.scale.left), (x + width).min(self.scale.left + self.scale.width));
        let room = to - from - 6.0;
        let label = cut(slice.label, room - glyph.chars().count() as f64 * CHARACTER);
        let label = match label {
            Some(label) => format!("{glyph}{label}"),
            None if room >= CHARACTER => glyph.trim_end().to_owned(),
            None => String::new(),
        };
        if !label.is_empty() {
            let (x, y) = (from + 4.0, y + LANE - 4.5);
            let _ =
                write!(svg, "<text class=\"{class}-text\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", Xml(&label));
        }
        svg.push_str("</g>\n");
    }
}

/// Returns the upper edge of a lane.
pub(super) fn lane_top(row: &Row<'_>, y: f64, lane: usize) -> f64 {
    let marks = if row.instants.is_empty() { 0.0 } else { MARKS };
    y + marks + lane as f64 * (LANE + BETWEEN)
}

/// Draws a run. In each cell the kinds are stacked, each as high as the part of the time that it covers.
fn draw_run(svg: &mut String, run: &Run, y: f64, used: &mut Used) {
    used.runs = true;
    let length = run.time.end.saturating_sub(run.time.start);
    let _ = write!(svg, "<g><title>{} slices\n{}", run.count, describe::when(&run.time));
    for (kind, time) in &run.kinds {
        let _ = write!(svg, "\n{}: {}", kind.look().name, percent((*time).min(length), length));
    }
    svg.push_str("</title>");
    for (kind, _) in &run.kinds {
        used.kinds.push(*kind);
        let _ = write!(svg, "<path class=\"{}\" d=\"", kind.look().class);
        for cell in &run.cells {
            let sum: f64 = cell.kinds.iter().map(|(_, share)| share).sum();
            // Something must always be visible, and nothing may be higher than the lane.
            let whole = (LANE * sum.min(1.0)).max(2.0);
            let below: f64 = cell.kinds.iter().filter(|(one, _)| one < kind).map(|(_, share)| share).sum();
            let Some((_, share)) = cell.kinds.iter().find(|(one, _)| one == kind) else { continue };
            let (height, below) = (whole * share / sum, whole * below / sum);
            let bottom = y + LANE - below;
            let (x, width) = (cell.x, cell.width);
            let _ = write!(svg, "M{x:.1} {bottom:.1}v-{height:.1}h{width}v{height:.1}z");
        }
        svg.push_str("\"/>");
    }
    svg.push_str("</g>\n");
}
