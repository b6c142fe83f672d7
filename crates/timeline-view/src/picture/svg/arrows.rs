//! Arrows from operations to those that waited for them.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::Range;

use super::Drawing;
use super::layout::{Item, LANE};
use super::slices::lane_top;
use crate::lookup::ran;
use gpustream_timeline::Nanos;

/// How many arrows we draw at most.
const MOST: usize = 250;

/// An arrow that is at least this many pixels long is drawn even if one of its slices is not drawn
/// individually.
const LONG: f64 = 8.0;

/// An arrow between two rows, in pixels.
struct Arrow {
    from: (f64, f64),
    to: (f64, f64),
}

impl Drawing<'_> {
    /// Returns the arrows, and how many we left out. We leave out arrows between slices that cannot be seen
    /// individually. If there are still too many, we also leave out those that are close to another, because
    /// you could not follow them anyway.
    pub(super) fn arrows(&self) -> (String, usize) {
        let (mut arrows, mut count) = (Vec::new(), 0);
        let wide = |time: &Range<Nanos>| self.scale.x(time.end) - self.scale.x(time.start) >= self.threshold;
        for part in self.parts {
            let rows = self.layout.items.iter().filter_map(|item| match item {
                Item::Row { part: of, row, y, .. } if std::ptr::eq(*of, part) => {
                    Some((row.stream?, lane_top(row, *y, 0)))
                }
                _ => None,
            });
            let tops: HashMap<u64, f64> = rows.collect();
            let shown = |time: Range<Nanos>| {
                time.start.saturating_sub(part.extent.start)..time.end.saturating_sub(part.extent.start)
            };
            for operation in part.timeline.operations.iter().filter(|one| !one.after.is_empty()) {
                let Some((low, to)) = tops.get(&operation.point.stream).zip(ran(operation).map(shown)) else {
                    continue;
                };
                for point in &operation.after {
                    let before =
                        part.lookup.operation(*point).and_then(|at| part.timeline.operations.get(at));
                    let from = before.and_then(ran).map(shown);
                    let Some((high, from)) = tops.get(&point.stream).zip(from) else { continue };
                    let window = self.scale.window.start..=self.scale.window.end;
                    if !window.contains(&to.start) && !window.contains(&from.end) {
                        continue;
                    }
                    count += 1;
                    let (x1, x2) = (self.scale.x(from.end), self.scale.x(to.start));
                    if wide(&from) && wide(&to) || x2 - x1 >= LONG {
                        arrows.push(Arrow { from: (x1, *high), to: (x2, *low) });
                    }
                }
            }
        }
        thin(&mut arrows);
        let mut svg = String::new();
        for arrow in &arrows {
            arrow.draw(&mut svg);
        }
        let left_out = count - arrows.len();
        (svg, left_out)
    }
}

/// Leaves out arrows whose ends are both close to those of another arrow, until few enough are left.
fn thin(arrows: &mut Vec<Arrow>) {
    let mut cell = 1.0;
    while arrows.len() > MOST {
        let mut taken = HashSet::new();
        let at = |x: f64| (x / cell) as i64;
        arrows.retain(|Arrow { from, to }| taken.insert((at(from.0), from.1 as i64, at(to.0), to.1 as i64)));
        cell *= 2.0;
    }
}

impl Arrow {
    fn draw(&self, svg: &mut String) {
        let ((x1, from), (x2, to)) = (self.from, self.to);
        let is_down = to > from;
        let (y1, y2) = if is_down { (from + LANE, to) } else { (from, to + LANE) };
        // The curve leaves and arrives vertically, so that arrows between neighbours stay short.
        let bend = ((y2 - y1).abs() / 2.0).clamp(6.0, 30.0);
        let bend = if is_down { bend } else { -bend };
        let _ = writeln!(
            svg,
            "<path class=\"arrow\" d=\"M{x1:.1} {y1:.1}C{x1:.1} {:.1} {x2:.1} {:.1} {x2:.1} {y2:.1}\"/>",
            y1 + bend,
            y2 - bend
        );
    }
}
