//! The picture as SVG.

mod arrows;
mod layout;
mod legend;
mod marks;
mod plot;
mod slices;

use std::fmt::Write as _;

use super::escape::Xml;
use super::kind::{Kind, patterns, rules};
use super::marks::Mark;
use super::scale::Scale;
use super::{Panel, Picture};
use layout::{Item, Layout};

/// We keep a picture's text below this length by drawing fewer things individually.
const LONGEST: usize = 1 << 20;

/// The font size in pixels.
const TEXT: f64 = 11.0;

/// The average width of a character in that size, rounded up.
const CHARACTER: f64 = 6.4;

pub(super) fn draw(picture: &Picture<'_>) -> String {
    let parts = picture.prepared();
    let layout = Layout::new(picture, &parts);
    let scale = Scale {
        window: picture.window(&parts),
        left: layout.gutter,
        width: f64::from(picture.width) - layout.gutter - layout::RIGHT,
    };
    let mut threshold = 1.0;
    loop {
        let svg = Drawing { picture, parts: &parts, layout: &layout, scale: &scale, threshold }.draw();
        if svg.len() <= LONGEST || threshold > scale.width {
            return svg;
        }
        threshold *= 2.0;
    }
}

/// Everything that we know about a picture before we draw it.
struct Drawing<'d> {
    picture: &'d Picture<'d>,
    parts: &'d [Panel<'d>],
    layout: &'d Layout<'d>,
    scale: &'d Scale,
    /// From this many pixels on, a slice is drawn individually.
    threshold: f64,
}

impl Drawing<'_> {
    fn draw(&self) -> String {
        let mut rows = String::new();
        let mut used = Used::default();
        for item in &self.layout.items {
            if let Item::Row { part, row, y, height } = item {
                self.row(&mut rows, part, row, *y, *height, &mut used);
            }
        }
        let (arrows, left_out) = if self.picture.arrows { self.arrows() } else { Default::default() };
        used.arrows = (!arrows.is_empty()).then_some(left_out);
        used.kinds.sort_unstable();
        used.kinds.dedup();
        let axis = self.axis();
        let (legend, legend_height) = legend::draw(&used, self.layout.bottom, f64::from(self.picture.width));
        let height = self.layout.bottom + legend_height + 8.0;
        let mut svg = self.head(height, &used.kinds);
        svg.push_str(&axis);
        svg.push_str("<g clip-path=\"url(#gpustream-plot)\">\n");
        svg.push_str(&rows);
        svg.push_str(&arrows);
        svg.push_str("</g>\n");
        svg.push_str(&self.names());
        svg.push_str(&legend);
        svg.push_str("</svg>\n");
        svg
    }

    /// Returns the tag, the rules and the definitions that the rest refers to.
    fn head(&self, height: f64, kinds: &[Kind]) -> String {
        let width = self.picture.width;
        let title = match &*self.picture.title {
            "" => "timeline",
            title => title,
        };
        let (left, plot) = (self.layout.gutter, self.scale.width);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"gpustream-timeline\" role=\"img\" \
             width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
             <title>{}</title>\n<style>{}{}@media (prefers-color-scheme:dark){{{}{}}}</style>\n\
             <defs><clipPath id=\"gpustream-plot\"><path d=\"M{left} 0h{plot}v{height}h-{plot}z\"/></clipPath>\
             <marker id=\"gpustream-head\" class=\"head\" viewBox=\"0 0 6 6\" refX=\"5.5\" refY=\"3\" \
             markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0 6 3 0 6z\"/></marker>{}</defs>\n\
             <path class=\"page\" d=\"M0 0h{width}v{height}H0z\"/>\n",
            Xml(title),
            surroundings(false),
            rules(kinds, false),
            surroundings(true),
            rules(kinds, true),
            patterns(kinds),
        )
    }

    /// Returns the ticks, with lines through all rows.
    fn axis(&self) -> String {
        let (top, bottom) = (self.layout.top, self.layout.bottom);
        let (mut lines, mut labels) = (String::new(), String::new());
        let right = self.scale.left + self.scale.width;
        for (time, label) in self.scale.ticks() {
            let x = self.scale.x(time);
            let _ = write!(lines, "M{x:.1} {:.0}V{bottom:.0}", top - 4.0);
            // The last label ends at the picture's edge.
            let half = label.chars().count() as f64 * CHARACTER / 2.0;
            let at = x.min(right + layout::RIGHT - half - 2.0);
            let _ = write!(labels, "<text x=\"{at:.1}\" y=\"{:.0}\">{label}</text>", top - 8.0);
        }
        format!("<path class=\"grid\" d=\"{lines}\"/>\n<g class=\"ticks\">{labels}</g>\n")
    }

    /// Returns title, headings and the rows' names.
    fn names(&self) -> String {
        let mut names = String::new();
        if !self.picture.title.is_empty() {
            let _ =
                writeln!(names, "<text class=\"title\" x=\"8\" y=\"20\">{}</text>", Xml(&self.picture.title));
        }
        for item in &self.layout.items {
            match item {
                Item::Heading { y, text, class } => {
                    haloed(&mut names, class, &format!("x=\"8\" y=\"{y:.0}\""), text);
                }
                Item::Row { row, y, .. } => {
                    let base = slices::lane_top(row, *y, 0) + layout::LANE - 4.5;
                    let name = layout::cut(&row.name, self.layout.gutter - 24.0).unwrap_or_default();
                    let _ = writeln!(names, "<text x=\"16\" y=\"{base:.1}\">{}</text>", Xml(&name));
                }
            }
        }
        names
    }
}

/// Writes a text that stays legible above lines and arrows, because a copy of it in the page's colour, with a thick outline,
/// is behind it. CSS has `paint-order` for that. But if a viewer does not know it, the outline covers the text.
fn haloed(svg: &mut String, class: &str, place: &str, text: &str) {
    let text = Xml(text);
    let _ = writeln!(
        svg,
        "<text class=\"{class} halo\" {place} aria-hidden=\"true\">{text}</text>\
         <text class=\"{class}\" {place}>{text}</text>"
    );
}

/// What occurs in a picture, for the legend.
#[derive(Default)]
struct Used {
    kinds: Vec<Kind>,
    instants: Vec<Mark>,
    runs: bool,
    /// Whether there are arrows, and how many were left out.
    arrows: Option<usize>,
}

/// Returns the CSS rules for everything except the slices.
fn surroundings(dark: bool) -> String {
    let [page, text, muted, grid, line] = if dark {
        ["#0d1117", "#e6edf3", "#9aa4af", "#2a3038", "#e6edf3"]
    } else {
        ["#ffffff", "#1b1f24", "#59636e", "#dfe3e8", "#24292f"]
    };
    let of = ".gpustream-timeline ";
    let mut rules = String::new();
    if !dark {
        let _ = write!(
            rules,
            ".gpustream-timeline{{font:{TEXT}px system-ui,'Segoe UI',Helvetica,Arial,sans-serif}}\
             {of}.title{{font-size:15px;font-weight:600}}{of}.part{{font-size:12px;font-weight:600}}\
             {of}.halo{{stroke-width:3px;stroke-linejoin:round}}\
             {of}.ticks{{text-anchor:middle}}{of}.grid{{stroke-width:1}}\
             {of}.arrow{{fill:none;stroke-width:1.2;marker-end:url(#gpustream-head)}}\
             {of}.plot{{stroke-width:1;fill-opacity:.18}}{of}.mark{{stroke-width:1.2}}"
        );
    }
    let _ = write!(
        rules,
        "{of}text{{fill:{text}}}{of}.page{{fill:{page}}}{of}.muted,{of}.ticks text{{fill:{muted}}}\
         {of}.grid{{stroke:{grid}}}{of}.arrow{{stroke:{line}}}{of}.head{{fill:{line}}}\
         {of}.edge,{of}.halo{{stroke:{page}}}{of}text.halo{{fill:{page}}}{of}.frame{{stroke:{muted}}}{of}.plot{{stroke:{muted};fill:{muted}}}\
         {of}.mark{{stroke:{line};fill:{page}}}{of}.full{{fill:{line}}}{of}.alarm{{fill:#d55e00}}"
    );
    rules
}
