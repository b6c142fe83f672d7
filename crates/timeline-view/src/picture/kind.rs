//! The kinds of slices: their names, colours and stripes.
//!
//! Colours differ in lightness, so that you can distinguish them in grey, or if you are colour-blind. The
//! stripes of copies rise or fall with their direction.

use std::fmt::Write as _;

use gpustream_timeline::{Direction, SpanKind, WorkKind};

/// The kind of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Kernel,
    Up,
    Down,
    Inside,
    Fill,
    Host,
    Graph,
    External,
    Other,
    Submission,
    Wait,
    Allocation,
    User,
}

/// How a kind looks.
pub(super) struct Look {
    /// Its name in the legend.
    pub(super) name: &'static str,
    /// Its CSS class.
    pub(super) class: &'static str,
    /// The glyph before labels.
    pub(super) glyph: &'static str,
    /// The colours of the surface, of its stripes, and of text on it; first for light mode, then for dark
    /// mode.
    pub(super) colours: [[&'static str; 3]; 2],
    /// The path of the stripes in a square of 6 by 6 pixels. Empty if there are none.
    pub(super) stripes: &'static str,
    /// True if it needs a frame, because light surfaces would be invisible on a light page.
    pub(super) framed: bool,
}

const BLACK: &str = "#101010";
const WHITE: &str = "#ffffff";
const RISING: &str = "M-1 1 1 -1M-1 7 7 -1M5 7 7 5";
const FALLING: &str = "M-1 5 1 7M-1 -1 7 7M5 -1 7 1";
const LEVEL: &str = "M0 1.5h6M0 4.5h6";
const UPRIGHT: &str = "M1.5 0v6M4.5 0v6";
const DOTS: &str = "M1 1.5h1M4 4.5h1";

impl Kind {
    pub(super) const ALL: [Self; 13] = [
        Self::Kernel,
        Self::Up,
        Self::Down,
        Self::Inside,
        Self::Fill,
        Self::Host,
        Self::Graph,
        Self::External,
        Self::Other,
        Self::Submission,
        Self::Wait,
        Self::Allocation,
        Self::User,
    ];

    pub(super) fn of_work(work: &WorkKind) -> Self {
        match work {
            WorkKind::Kernel { .. } => Self::Kernel,
            WorkKind::Copy { direction: Direction::Up, .. } => Self::Up,
            WorkKind::Copy { direction: Direction::Down, .. } => Self::Down,
            WorkKind::Copy { .. } => Self::Inside,
            WorkKind::Fill { .. } => Self::Fill,
            WorkKind::Host => Self::Host,
            WorkKind::Graph { .. } | WorkKind::Step { .. } => Self::Graph,
            WorkKind::External => Self::External,
            _ => Self::Other,
        }
    }

    pub(super) fn of_span(kind: &SpanKind) -> Self {
        match kind {
            SpanKind::Wait(_) => Self::Wait,
            SpanKind::Allocation { .. } => Self::Allocation,
            _ => Self::User,
        }
    }

    pub(super) fn look(self) -> Look {
        let look = |name, class, glyph, light, dark, stripes| Look {
            name,
            class,
            glyph,
            colours: [light, dark],
            stripes,
            framed: matches!(
                self,
                Self::Wait | Self::Other | Self::Graph | Self::User | Self::Inside | Self::Fill
            ),
        };
        // The same in light and dark mode.
        let both = |name, class, glyph, colours, stripes| look(name, class, glyph, colours, colours, stripes);
        match self {
            Self::Kernel => look("kernel", "kernel", "", ["#0b5fa5", "", WHITE], ["#2478c4", "", WHITE], ""),
            Self::Up => both("copy to the device", "up", "↑ ", ["#f2b134", "#d18f0c", BLACK], RISING),
            Self::Down => both("copy to the host", "down", "↓ ", ["#2aa884", "#178565", BLACK], FALLING),
            Self::Inside => {
                both("copy between device memories", "inside", "↔ ", ["#f3ea76", "#d3c63c", BLACK], LEVEL)
            }
            Self::Fill => both("fill", "fill", "", ["#d9cbe8", "#9d83bd", BLACK], DOTS),
            Self::Host => both("host function", "host", "", ["#d184b0", "#ad5787", BLACK], UPRIGHT),
            Self::Graph => {
                look("graph or step", "graph", "", ["#d7e6f5", "", BLACK], ["#24405c", "", WHITE], "")
            }
            Self::External => {
                both("another library's work", "external", "", ["#6b4a9e", "#a98fd0", WHITE], DOTS)
            }
            Self::Other => {
                look("other work", "other", "", ["#e4e4e4", "", BLACK], ["#3a3f46", "", WHITE], "")
            }
            Self::Submission => {
                look("submission", "submission", "", ["#5b6068", "", WHITE], ["#9aa3ad", "", BLACK], "")
            }
            Self::Wait => {
                let (light, dark) = (["#f1f1f1", "#c3c3c3", BLACK], ["#1c2128", "#4a515a", WHITE]);
                look("host waits", "wait", "", light, dark, RISING)
            }
            Self::Allocation => {
                both("allocation by the driver", "allocation", "", ["#c8500a", "#e5854c", WHITE], UPRIGHT)
            }
            Self::User => {
                look("span of the program", "user", "", ["#e3ecd3", "", BLACK], ["#3a4a2a", "", WHITE], "")
            }
        }
    }
}

/// Returns the CSS rules for the kinds' surfaces and for the text on them, for light or dark mode.
pub(super) fn rules(kinds: &[Kind], dark: bool) -> String {
    let mut rules = String::new();
    for kind in kinds {
        let Look { class, colours, stripes, .. } = kind.look();
        let [surface, stripe, text] = colours[usize::from(dark)];
        // This prefix keeps the rules from affecting other pictures and the text around.
        let of = format!(".gpustream-timeline .{class}");
        if stripes.is_empty() {
            let _ = write!(rules, "{of}{{fill:{surface}}}");
        } else {
            let _ = write!(
                rules,
                "{of}{{fill:url(#gpustream-{class})}}{of}-surface{{fill:{surface}}}{of}-stripes{{stroke:{stripe}}}"
            );
        }
        let _ = write!(rules, "{of}-text{{fill:{text}}}");
    }
    rules
}

/// Returns the patterns of the striped kinds.
pub(super) fn patterns(kinds: &[Kind]) -> String {
    let mut patterns = String::new();
    for kind in kinds {
        let Look { class, stripes, .. } = kind.look();
        if !stripes.is_empty() {
            let _ = write!(
                patterns,
                "<pattern id=\"gpustream-{class}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
                 <path class=\"{class}-surface\" d=\"M0 0h6v6h-6z\"/>\
                 <path class=\"{class}-stripes\" d=\"{stripes}\"/></pattern>"
            );
        }
    }
    patterns
}
