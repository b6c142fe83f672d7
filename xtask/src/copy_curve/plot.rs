//! A plot of rates over sizes, both logarithmic, as SVG text.

use std::fmt::Write as _;

/// One line of the plot: (bytes, GB/s), by size.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) style: &'static str,
    pub(super) values: Vec<(f64, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
/// Where the axes begin and end.
const LEFT: f64 = 60.0;
const RIGHT: f64 = WIDTH - 130.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = HEIGHT - 40.0;

pub(super) fn svg(title: &str, lines: &[Line]) -> String {
    let values = || lines.iter().flat_map(|line| line.values.iter().copied());
    let most_bytes = values().map(|(bytes, _)| bytes).fold(2.0, f64::max).log2();
    // Whole decades.
    let least = values().map(|(_, rate)| rate.log10()).fold(0.0, f64::min).floor();
    let most = values().map(|(_, rate)| rate.log10()).fold(0.0, f64::max).ceil().max(least + 1.0);
    let x = |bytes: f64| LEFT + bytes.log2() / most_bytes * (RIGHT - LEFT);
    let y = |rate: f64| BOTTOM - (rate.log10() - least) / (most - least) * (BOTTOM - TOP);

    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\">{}</text>\n",
        escaped(title)
    );
    for shift in (0..=most_bytes as u32).step_by(5) {
        let at = x(f64::from(shift).exp2());
        let label = bytes(1 << shift);
        let _ = write!(
            text,
            "<path d=\"M{at:.1} {TOP}V{BOTTOM}\" stroke=\"#ddd\"/>\n\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>\n",
            BOTTOM + 18.0
        );
    }
    for decade in least as i32..=most as i32 {
        let rate = 10f64.powi(decade);
        let at = y(rate);
        let _ = write!(
            text,
            "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{rate}</text>\n",
            LEFT - 8.0,
            at + 4.0
        );
    }
    let _ = writeln!(text, "<text x=\"{LEFT}\" y=\"{:.1}\" text-anchor=\"end\">GB/s</text>", TOP - 6.0);
    for (index, line) in lines.iter().enumerate() {
        let points: Vec<String> =
            line.values.iter().map(|&(bytes, rate)| format!("{:.1},{:.1}", x(bytes), y(rate))).collect();
        let legend = TOP + 12.0 + 20.0 * index as f64;
        let _ = write!(
            text,
            "<polyline fill=\"none\" style=\"{style};stroke-width:2\" points=\"{points}\"/>\n\
             <path d=\"M{:.1} {legend:.1}h24\" style=\"{style};stroke-width:2\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            RIGHT + 10.0,
            RIGHT + 40.0,
            legend + 4.0,
            line.name,
            style = line.style,
            points = points.join(" ")
        );
    }
    text + "</svg>\n"
}

/// A size in the largest unit that divides it.
pub(super) fn bytes(bytes: u64) -> String {
    let unit = [(30, "GiB"), (20, "MiB"), (10, "KiB")]
        .into_iter()
        .find(|(shift, _)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| format!("{bytes} B"), |(shift, name)| format!("{} {name}", bytes >> shift))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_points_lie_within_the_axes() {
        let values = vec![(1.0, 0.0004), (4096.0, 1.5), (f64::from(1 << 30), 51.0)];
        let text = svg("A & B", &[Line { name: "upload", style: "stroke:red", values }]);
        assert!(text.contains("A &amp; B") && text.ends_with("</svg>\n"));
        let points = text.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        for point in points.split(' ') {
            let (x, y) = point.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((LEFT..=RIGHT).contains(&x) && (TOP..=BOTTOM).contains(&y), "{point}");
        }
        assert!(points.starts_with("60.0,"), "{points}");
    }
}
