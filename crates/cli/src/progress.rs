//! Progress on a terminal.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a bar that shows only on a terminal, because it would fill a log.
pub(crate) fn bar(length: usize, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length as u64).with_style(style)
}
