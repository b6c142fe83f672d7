//! Lays out the report's text: entries with details, in lines as wide as a terminal.

use std::fmt::Write as _;

/// Writes a name and its state, then one `key value` line per detail.
pub(super) fn entry(text: &mut String, name: &str, state: &str, details: &[(&str, String)]) {
    let _ = writeln!(text, "  {name:<8}{state}");
    for (key, value) in details {
        wrapped(text, &format!("          {key:<9}"), value, 84);
    }
}

/// Writes `long` after `head`, in lines of at most `width` characters that begin in the same column.
pub(super) fn wrapped(text: &mut String, head: &str, long: &str, width: usize) {
    let lines = wrap(long, width).join(&format!("\n{}", " ".repeat(head.chars().count())));
    let _ = writeln!(text, "{head}{lines}");
}

/// Breaks text at spaces. If a word is longer than a line, it gets its own line.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces_and_lose_nothing() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a incomprehensible b", 5), ["a", "incomprehensible", "b"]);
        assert_eq!(wrap("", 5), [""]);
    }
}
