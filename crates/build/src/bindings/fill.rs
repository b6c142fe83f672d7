//! Templates of generated code: text as it stands in the generated file, with gaps such as `{{name}}`.
//!
//! If you look for the origin of a line in a generated file, search this folder for its words.

/// Fills a template's gaps: `fill!(STRUCT, name, size = 8)` puts the variable `name` at `{{name}}` and 8 at
/// `{{size}}`. A gap without a value does not compile, and neither does a value without a gap.
///
/// If a gap has its line to itself, or shares it only with `///`, it takes whole lines. Each line of the value
/// gets what is before the gap, so you write the value without indentation. If the value is empty, the line goes.
///
/// A line break at the very beginning of a template does not count.
macro_rules! fill {
    ($template:expr $(, $name:ident $(= $value:expr)?)* $(,)?) => {{
        const { $crate::bindings::fill::check($template, &[$(stringify!($name)),*]) };
        $crate::bindings::fill::filled(
            $template,
            &[$((stringify!($name), { $(let $name = $value;)? $name.to_string() })),*],
        )
    }};
}

pub(super) use fill;

/// Returns the template with values in its gaps.
pub(super) fn filled(template: &str, values: &[(&str, String)]) -> String {
    let value = |name: &str| values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
    let mut text = String::new();
    for line in template.strip_prefix('\n').unwrap_or(template).split_inclusive('\n') {
        if let Some((before, name)) = lone_gap(line) {
            for line in value(name).lines() {
                text.push_str(format!("{before}{line}").trim_end());
                text.push('\n');
            }
            continue;
        }
        let mut parts = line.split("{{");
        text.extend(parts.next());
        for (name, after) in parts.filter_map(|part| part.split_once("}}")) {
            text.extend([value(name), after]);
        }
    }
    text
}

/// Returns what is before the only gap of a line, and the gap's name.
fn lone_gap(line: &str) -> Option<(&str, &str)> {
    let (before, gap) = line.split_once("{{")?;
    let name = gap.trim_end().strip_suffix("}}")?;
    (before.trim_matches([' ', '/']).is_empty() && !name.contains('}')).then_some((before, name))
}

/// Panics, while the caller is compiled, if the template's gaps are not exactly `names`.
pub(super) const fn check(template: &str, names: &[&str]) {
    let mut text = template.as_bytes();
    let mut used = 0_u64;
    while let [_, rest @ ..] = text {
        if let [b'{', b'{', gap @ ..] = text {
            let mut number = 0;
            while number < names.len() && !is_name(gap, names[number].as_bytes()) {
                number += 1;
            }
            assert!(number < names.len(), "the template has a gap without a value");
            used |= 1 << number;
        }
        text = rest;
    }
    assert!(used == (1 << names.len()) - 1, "a value has no gap in the template");
}

const fn is_name(mut gap: &[u8], mut name: &[u8]) -> bool {
    while let ([a, gap_rest @ ..], [b, name_rest @ ..]) = (gap, name) {
        if *a != *b {
            return false;
        }
        (gap, name) = (gap_rest, name_rest);
    }
    name.is_empty() && matches!(gap, [b'}', b'}', ..])
}

#[cfg(test)]
mod tests {
    use super::check;

    const STRUCT: &str = r"
/// {{docs}}
struct {{name}} {
    {{fields}}
    {{none}}
}
";

    #[test]
    fn lines_go_where_their_gap_is() {
        let fields = ["a: [u8; 2],", "", "b: {{name}},"].join("\n");
        let text = fill!(STRUCT, name = "Pair", docs = "One.\n\nTwo.\n", fields, none = "");
        assert_eq!(text, "/// One.\n///\n/// Two.\nstruct Pair {\n    a: [u8; 2],\n\n    b: {{name}},\n}\n");
    }

    #[test]
    fn gaps_in_one_line_take_text() {
        assert_eq!(fill!("unsafe { {{a}}{{b}} };", a = 1, b = "+2"), "unsafe { 1+2 };");
    }

    #[test]
    #[should_panic(expected = "a gap without a value")]
    fn gap_without_a_value_is_refused() {
        check("{{name}} {{names}}", &["name"]);
    }

    #[test]
    #[should_panic(expected = "a value has no gap")]
    fn value_without_a_gap_is_refused() {
        check("{{name}}", &["name", "size"]);
    }
}
