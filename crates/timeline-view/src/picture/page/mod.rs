//! A page in which one can move about in a timeline.
//!
//! The records are in the page as JSON, in columns: `data.rs` writes them, and `data.js` reads them. The page draws on
//! a canvas the part that is seen at the moment.

mod data;
mod json;

use super::Picture;
use super::escape::Xml;

/// The scripts of the page, each of which uses those before it.
const SCRIPTS: [&str; 4] =
    [include_str!("data.js"), include_str!("view.js"), include_str!("draw.js"), include_str!("input.js")];

pub(super) fn draw(picture: &Picture<'_>) -> String {
    let title = match &*picture.title {
        "" => "timeline",
        title => title,
    };
    let mut page = String::new();
    let mut rest = include_str!("page.html");
    // Each placeholder is looked for behind the one before, so that no record is taken for one.
    for (placeholder, text) in [
        ("{title}", Xml(title).to_string()),
        ("{style}", include_str!("page.css").to_owned()),
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
