//! Draws the instants of a row.

use std::fmt::Write as _;

use super::super::Panel;
use super::super::describe;
use super::super::escape::Xml;
use super::super::marks::Mark;
use super::super::row::Row;
use super::{Drawing, Used};

impl Drawing<'_> {
    /// Draws the instants of a row. If several are within a few pixels, draws only the first.
    pub(super) fn marks(&self, svg: &mut String, part: &Panel<'_>, row: &Row<'_>, y: f64, used: &mut Used) {
        let origin = part.extent.start;
        let mut drawn: Vec<(f64, Mark, Vec<String>, usize)> = Vec::new();
        for instant in row.instants.iter().filter_map(|&at| part.timeline.instants.get(at)) {
            let time = instant.time.saturating_sub(origin);
            if !(self.scale.window.start..=self.scale.window.end).contains(&time) {
                continue;
            }
            let (x, mark) = (self.scale.x(time), Mark::of(&instant.kind));
            match drawn
                .iter_mut()
                .rev()
                .take(5)
                .find(|(at, one, ..)| *one == mark && x - at < 3.0 * self.threshold)
            {
                Some((.., more)) => *more += 1,
                None => drawn.push((x, mark, describe::instant(instant, origin), 0)),
            }
        }
        for (x, mark, mut lines, more) in drawn {
            let (class, path) = mark.shape();
            if more > 0 {
                lines.push(format!("and {more} more"));
            }
            let _ = writeln!(
                svg,
                "<path class=\"{class}\" transform=\"translate({x:.1} {:.1})\" d=\"{path}\"><title>{}</title></path>",
                y + 5.0,
                Xml(&lines.join("\n"))
            );
            used.instants.push(mark);
        }
    }
}
