//! Plots the values of a counter.

use std::fmt::Write as _;

use super::super::row::Row;
use super::{Drawing, haloed};
use crate::text::Bytes;
use gpustream_timeline::Nanos;

impl Drawing<'_> {
    /// Draws a counter's values as steps, and writes the highest value next to them.
    pub(super) fn plot(&self, svg: &mut String, row: &Row<'_>, y: f64, height: f64) {
        let window = &self.scale.window;
        // The value at the left edge is the last one before it.
        let first = row.values.partition_point(|&(time, _)| time <= window.start).saturating_sub(1);
        let values: Vec<(Nanos, u64)> =
            row.values.iter().skip(first).take_while(|&&(time, _)| time <= window.end).copied().collect();
        let most = values.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
        let level = |bytes: u64| y + height - (height - 1.0) * bytes as f64 / most.max(1) as f64;
        let bottom = y + height;
        let mut path = String::new();
        for (x, bytes) in thin(values.into_iter().map(|(time, bytes)| (self.scale.x(time), bytes))) {
            let level = level(bytes);
            if path.is_empty() {
                let _ = write!(path, "M{x:.1} {bottom:.1}");
            }
            let _ = write!(path, "H{x:.1}V{level:.1}");
        }
        let right = self.scale.left + self.scale.width;
        let _ = writeln!(svg, "<path class=\"plot\" d=\"{path}H{right:.1}V{bottom:.1}z\"/>");
        let (x, y) = (right - 4.0, y + 11.0);
        let place = format!("text-anchor=\"end\" x=\"{x:.1}\" y=\"{y:.1}\"");
        haloed(svg, "muted", &place, &format!("max {}", Bytes(most)));
    }
}

/// For each pixel, keeps only the first, lowest, highest and last value.
fn thin(values: impl Iterator<Item = (f64, u64)>) -> Vec<(f64, u64)> {
    let mut kept: Vec<(f64, u64)> = Vec::new();
    let mut pixel: Vec<(f64, u64)> = Vec::new();
    let flush = |pixel: &mut Vec<(f64, u64)>, kept: &mut Vec<(f64, u64)>| {
        let least = pixel.iter().copied().min_by_key(|&(_, bytes)| bytes);
        let greatest = pixel.iter().copied().max_by_key(|&(_, bytes)| bytes);
        kept.extend(pixel.first().copied());
        if pixel.len() > 3 {
            kept.extend(least.into_iter().chain(greatest));
            kept.extend(pixel.last().copied());
        } else {
            kept.extend(pixel.iter().skip(1).copied());
        }
        pixel.clear();
    };
    for (x, bytes) in values {
        if pixel.first().is_some_and(|&(first, _)| x - first >= 1.0) {
            flush(&mut pixel, &mut kept);
        }
        pixel.push((pixel.first().map_or(x, |&(first, _)| x.max(first)), bytes));
    }
    flush(&mut pixel, &mut kept);
    kept
}
