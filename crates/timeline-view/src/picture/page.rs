//! A page to move around in a timeline.
//!
//! The page contains the records as JSON, in columns: `data.rs` writes them, and `data.js` reads them. The
//! page draws the visible part on a canvas.

mod data;
mod json;

use super::Picture;
use super::escape::Xml;

/// The page's scripts. Each uses the ones before it.
const SCRIPTS: [&str; 4] = [
    include_str!("page/data.js"),
    include_str!("page/view.js"),
    include_str!("page/draw.js"),
    include_str!("page/input.js"),
];

pub(super) fn draw(picture: &Picture<'_>) -> String {
    let title = match &*picture.title {
        "" => "timeline",
        title => title,
    };
    let mut page = String::new();
    let mut rest = include_str!("page/page.html");
    // We look for each placeholder after the previous one, so that a record cannot be mistaken for one.
    for (placeholder, text) in [
        ("{title}", Xml(title).to_string()),
        ("{style}", include_str!("page/page.css").to_owned()),
        ("{heading}", Xml(title).to_string()),
        ("{data}", data::write(picture)),
        ("{script}", SCRIPTS.concat()),
    ] {
        if let Some((before, after)) = rest.split_once(placeholder) {
            page.push_str(before);
            page.push_str(&text);
            rest = after;
        }
    }
    page.push_str(rest);
    page
}
