//! Draws the picture of a run: a line for each quantity, one below the other, over the same time axis.

use std::fmt::Write as _;

use crate::sample::Series;
use crate::trend::Trend;

const WIDTH: f64 = 960.0;
/// The left end of a panel. The labels are to the left of it.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 118.0;
/// How high a panel's line is.
const PLOT: f64 = 78.0;

/// A quantity with its samples.
pub(crate) struct Line<'a> {
    pub(crate) series: &'a Series,
    pub(crate) values: &'a [f64],
    pub(crate) trend: &'a Trend,
}

/// Draws the lines of a run that took this many minutes, as SVG.
pub(crate) fn draw(title: &str, minutes: f64, lines: &[Line<'_>]) -> String {
    let height = 70.0 + PANEL * lines.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"16\">{}</text>\n",
        escaped(title)
    );
    for (number, line) in lines.iter().enumerate() {
        panel(&mut svg, 44.0 + PANEL * number as f64, line);
    }
    let bottom = height - 14.0;
    for part in 0..=4 {
        let share = part as f64 / 4.0;
        let x = LEFT + share * (WIDTH - LEFT - RIGHT);
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{bottom:.1}\" text-anchor=\"{}\" fill=\"#555\">{:.1} min</text>",
            ["start", "middle", "middle", "middle", "end"][part],
            share * minutes
        );
    }
    svg + "</svg>\n"
}

fn panel(svg: &mut String, top: f64, line: &Line<'_>) {
    let (series, values, trend) = (line.series, line.values, line.trend);
    let right = WIDTH - RIGHT;
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max) * 1.05;
    let y = |value: f64| top + 20.0 + PLOT * (1.0 - value / most);
    let x = |number: f64| LEFT + (right - LEFT) * number / (values.len().max(2) - 1) as f64;
    let color = if trend.grows() { "#b00020" } else { "#1f5fa8" };
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.1}\">{}{}: median {:.1}, then {:.1}; growth in the second half {:+.2} (limit {:.2})</text>",
        top + 12.0,
        series.name,
        if series.unit.is_empty() { String::new() } else { format!(" ({})", series.unit) },
        trend.halves[0],
        trend.halves[1],
        trend.growth,
        trend.limit,
    );
    for value in [0.0, most / 1.05] {
        let (y, decimals) = (y(value), usize::from(most < 20.0));
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{value:.decimals$}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    let points: Vec<_> =
        values.iter().enumerate().map(|(i, &value)| format!("{:.1},{:.1}", x(i as f64), y(value))).collect();
    let _ = writeln!(
        svg,
        "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"1.2\" points=\"{}\"/>",
        points.join(" ")
    );
    let middle = f64::midpoint(LEFT, right);
    for (half, from, to) in [(0, LEFT, middle), (1, middle, right)] {
        let y = y(trend.halves[half]);
        let _ = writeln!(
            svg,
            "<path d=\"M{from:.1} {y:.1}H{to:.1}\" stroke=\"#e07b00\" stroke-width=\"1.5\" stroke-dasharray=\"5 3\"/>"
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
