//! The legend. It only shows what occurs in the picture.

use std::fmt::Write as _;

use super::{CHARACTER, Used};

/// The height of a line.
const LINE: f64 = 18.0;

/// Returns the legend, beginning at `top`, and its height.
pub(super) fn draw(used: &Used, top: f64, width: f64) -> (String, f64) {
    let mut entries: Vec<(String, String)> = Vec::new();
    for kind in &used.kinds {
        let look = kind.look();
        entries.push((
            format!("<rect class=\"{} frame\" y=\"-9\" width=\"16\" height=\"11\"/>", look.class),
            look.name.to_owned(),
        ));
    }
    let mut marks = used.instants.clone();
    marks.sort_unstable();
    marks.dedup();
    for mark in marks {
        let (class, path) = mark.shape();
        entries.push((
            format!("<path class=\"{class}\" transform=\"translate(8 -4)\" d=\"{path}\"/>"),
            mark.name().to_owned(),
        ));
    }
    if let Some(left_out) = used.arrows {
        let name = match left_out {
            0 => "waited for".to_owned(),
            _ => format!("waited for ({left_out} more are not drawn)"),
        };
        entries.push(("<path class=\"arrow\" d=\"M0 -4h16\"/>".to_owned(), name));
    }
    if used.runs {
        let path = "<path class=\"muted\" d=\"M0 2v-4h4v-4h4v6h4v-9h4v11z\"/>";
        entries.push((path.to_owned(), "many slices, as high as the time they cover".to_owned()));
    }
    if entries.is_empty() {
        return (String::new(), 0.0);
    }
    let (mut svg, mut x, mut y) = ("<g>".to_owned(), 8.0, top + LINE);
    for (sign, name) in entries {
        let wide = 22.0 + name.chars().count() as f64 * CHARACTER + 12.0;
        if x > 8.0 && x + wide > width {
            (x, y) = (8.0, y + LINE);
        }
        let _ = write!(
            svg,
            "<g transform=\"translate({x:.1} {y:.1})\">{sign}<text x=\"21\" y=\"0\">{name}</text></g>"
        );
        x += wide;
    }
    svg.push_str("</g>\n");
    (svg, y - top + 4.0)
}
