//! Makes arbitrary text harmless in XML.

use std::fmt;

/// Text between tags or in an attribute. Characters that XML does not allow become `�`.
pub(super) struct Xml<'a>(pub(super) &'a str);

impl fmt::Display for Xml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(|c| replacement(c).is_some()) {
            let (before, from) = rest.split_at(at);
            f.write_str(before)?;
            let mut chars = from.chars();
            f.write_str(chars.next().and_then(replacement).unwrap_or_default())?;
            rest = chars.as_str();
        }
        f.write_str(rest)
    }
}

fn replacement(c: char) -> Option<&'static str> {
    Some(match c {
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '"' => "&quot;",
        '\'' => "&#39;",
        '\n' | '\t' => return None,
        '\0'..' ' | '\u{7f}' | '\u{fffe}' | '\u{ffff}' => "\u{fffd}",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_in_xml() {
        let hostile = "a<b> & \"c\" 'd' ]]> \0\x1b\u{ffff} é\n";
        let want = "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39; ]]&gt; \u{fffd}\u{fffd}\u{fffd} é\n";
        assert_eq!(Xml(hostile).to_string(), want);
    }
}
