//! Text and numbers as JSON that is safe inside a page.

use std::fmt::{self, Display, Write as _};

/// A string. Nothing in it can end the script around it.
pub(super) struct Text<'a>(pub(super) &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                // The page would interpret `</script>` and `<!--`, although JSON would not.
                '<' | '>' | '&' | '\0'..' ' | '\u{7f}' | '\u{2028}' | '\u{2029}' => {
                    write!(f, "\\u{:04x}", u32::from(c))?;
                }
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// A list of things that can be written.
pub(super) struct List<I>(pub(super) I);

impl<I: Clone + IntoIterator<Item: Display>> Display for List<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (at, item) in self.0.clone().into_iter().enumerate() {
            if at > 0 {
                f.write_char(',')?;
            }
            item.fmt(f)?;
        }
        f.write_char(']')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_end_the_script_that_it_stands_in() {
        let text = Text("</script><!-- \"a\\b\" \n\u{2028}é").to_string();
        assert_eq!(text, r#""\u003c/script\u003e\u003c!-- \"a\\b\" \u000a\u2028é""#);
        assert_eq!(List([1, 2]).to_string(), "[1,2]");
        assert_eq!(List(&[List(&[1])]).to_string(), "[[1]]");
    }
}
