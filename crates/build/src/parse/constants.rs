//! Evaluates constant integer expressions, as they occur in `#if`, array lengths and enumerators.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name<'a> {
    /// A name that stands for a value.
    Value(&'a str),
    /// The operand of `defined`.
    Defined(&'a str),
    /// The operand of `sizeof`.
    Size(&'a str),
}

/// Returns the value of an expression, or `None` if we do not know it. `value` looks names up. An unknown
/// operand of `&&` or `||` does not matter if the other operand decides.
pub(crate) fn evaluate(text: &str, value: &mut dyn FnMut(Name<'_>) -> Option<i128>) -> Option<i128> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0, value };
    let result = parser.expression(0)?;
    (parser.at == tokens.len()).then_some(result)?
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Number(i128),
    Name(&'a str),
    Mark(&'a str),
}

/// Longer operators come before their prefixes.
const MARKS: [&str; 25] = [
    "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "::", "+", "-", "*", "/", "%", "<", ">", "&", "|", "^",
    "~", "!", "(", ")", "?", ":",
];

/// How deeply expressions may nest before we give up. A file must not be able to overflow our stack.
const MAX_DEPTH: usize = 64;

fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let word =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '\'')).unwrap_or(rest.len());
        if first.is_ascii_digit() {
            tokens.push(Token::Number(number(&rest[..word])?));
            rest = &rest[word..];
        } else if first.is_ascii_alphabetic() || first == '_' {
            tokens.push(Token::Name(&rest[..word]));
            rest = &rest[word..];
        } else {
            let mark = MARKS.into_iter().find(|mark| rest.starts_with(mark))?;
            tokens.push(Token::Mark(mark));
            rest = &rest[mark.len()..];
        }
        rest = rest.trim_start();
    }
    Some(tokens)
}

fn number(text: &str) -> Option<i128> {
    let text = text.replace('\'', "").to_ascii_lowercase();
    let text = text.trim_end_matches(['u', 'l', 'z']);
    match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => match text.strip_prefix("0b") {
            Some(digits) => i128::from_str_radix(digits, 2).ok(),
            None if text.len() > 1 && text.starts_with('0') => i128::from_str_radix(&text[1..], 8).ok(),
            None => text.parse().ok(),
        },
    }
}

struct Parser<'t, 'v> {
    tokens: &'t [Token<'t>],
    at: usize,
    depth: usize,
    value: &'v mut dyn FnMut(Name<'_>) -> Option<i128>,
}

/// The value of a part of an expression; `None` if unknown.
type Value = Option<i128>;

impl Parser<'_, '_> {
    fn peek(&self) -> Option<Token<'_>> {
        self.tokens.get(self.at).copied()
    }

    fn accept(&mut self, mark: &str) -> bool {
        let found = self.peek() == Some(Token::Mark(mark));
        self.at += usize::from(found);
        found
    }

    /// Parses operators that bind at least as strongly as `least`. Returns `None` if the text is not an
    /// expression.
    fn expression(&mut self, least: u8) -> Option<Value> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut left = self.operand()?;
        while let Some(Token::Mark(mark)) = self.peek() {
            let Some(strength) = strength(mark).filter(|strength| *strength >= least) else { break };
            let mark = mark.to_owned();
            self.at += 1;
            if mark == "?" {
                let yes = self.expression(0)?;
                if !self.accept(":") {
                    return None;
                }
                let no = self.expression(strength)?;
                left = left.and_then(|condition| if condition != 0 { yes } else { no });
            } else {
                let right = self.expression(strength + 1)?;
                left = apply(&mark, left, right);
            }
        }
        self.depth -= 1;
        Some(left)
    }

    fn operand(&mut self) -> Option<Value> {
        let token = *self.tokens.get(self.at)?;
        self.at += 1;
        match token {
            Token::Number(number) => Some(Some(number)),
            Token::Name("defined") => {
                let wrapped = self.accept("(");
                let Some(Token::Name(name)) = self.tokens.get(self.at).copied() else { return None };
                self.at += 1;
                (!wrapped || self.accept(")")).then(|| (self.value)(Name::Defined(name)))
            }
            Token::Name("sizeof") => {
                let words = self.words()?;
                Some((self.value)(Name::Size(&words)))
            }
            Token::Name("true") => Some(Some(1)),
            Token::Name("false") => Some(Some(0)),
            Token::Name(name) => {
                let mut name = name.to_owned();
                while self.accept("::") {
                    let Some(Token::Name(next)) = self.tokens.get(self.at).copied() else { return None };
                    self.at += 1;
                    name = format!("{name}::{next}");
                }
                Some((self.value)(Name::Value(&name)))
            }
            Token::Mark("(") => {
                // We may ignore a cast to an integer type, because it changes no value that matters here.
                let start = self.at;
                if let Some(words) = self.words_until_close()
                    && words.split(' ').all(|word| INTEGERS.contains(&word))
                {
                    return self.operand();
                }
                self.at = start;
                let value = self.expression(0)?;
                self.accept(")").then_some(value)
            }
            Token::Mark("-") => Some(self.operand()?.and_then(i128::checked_neg)),
            Token::Mark("+") => self.operand(),
            Token::Mark("~") => Some(self.operand()?.map(|value| !value)),
            Token::Mark("!") => Some(self.operand()?.map(|value| i128::from(value == 0))),
            Token::Mark(_) => None,
        }
    }

    /// Returns the names in the parentheses that follow.
    fn words(&mut self) -> Option<String> {
        if self.accept("(") { self.words_until_close() } else { None }
    }

    fn words_until_close(&mut self) -> Option<String> {
        let mut words = Vec::new();
        while let Some(Token::Name(name)) = self.tokens.get(self.at).copied() {
            words.push(name);
            self.at += 1;
        }
        (!words.is_empty() && self.accept(")")).then(|| words.join(" "))
    }
}

const INTEGERS: [&str; 9] =
    ["int", "unsigned", "signed", "long", "short", "size_t", "uint32_t", "uint64_t", "int64_t"];

/// Returns how strongly a binary operator binds.
fn strength(mark: &str) -> Option<u8> {
    Some(match mark {
        "?" => 1,
        "||" => 2,
        "&&" => 3,
        "|" => 4,
        "^" => 5,
        "&" => 6,
        "==" | "!=" => 7,
        "<" | ">" | "<=" | ">=" => 8,
        "<<" | ">>" => 9,
        "+" | "-" => 10,
        "*" | "/" | "%" => 11,
        _ => return None,
    })
}

fn apply(mark: &str, left: Value, right: Value) -> Value {
    match (mark, left, right) {
        ("&&", Some(0), _) | ("&&", _, Some(0)) => return Some(0),
        ("||", Some(one), _) | ("||", _, Some(one)) if one != 0 => return Some(1),
        _ => {}
    }
    let (left, right) = (left?, right?);
    let shift = u32::try_from(right).ok().filter(|shift| *shift < 64);
    match mark {
        "||" => Some(i128::from(left != 0 || right != 0)),
        "&&" => Some(i128::from(left != 0 && right != 0)),
        "|" => Some(left | right),
        "^" => Some(left ^ right),
        "&" => Some(left & right),
        "==" => Some(i128::from(left == right)),
        "!=" => Some(i128::from(left != right)),
        "<" => Some(i128::from(left < right)),
        ">" => Some(i128::from(left > right)),
        "<=" => Some(i128::from(left <= right)),
        ">=" => Some(i128::from(left >= right)),
        "<<" => left.checked_mul(1_i128 << shift?),
        ">>" => Some(left >> shift?),
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "/" => left.checked_div(right),
        "%" => left.checked_rem(right),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Name, evaluate};

    fn value(text: &str) -> Option<i128> {
        evaluate(text, &mut |name| match name {
            Name::Value("N") => Some(5),
            Name::Value("a::M") => Some(7),
            Name::Defined("N") => Some(1),
            Name::Defined("O") => Some(0),
            Name::Size("unsigned int") => Some(4),
            _ => None,
        })
    }

    #[test]
    fn expressions_have_the_values_of_c() {
        for (text, expected) in [
            ("1 + 2 * 3", Some(7)),
            ("(1 + 2) * 3", Some(9)),
            ("2 * N - 1 << 2", Some(36)),
            ("N == 5 ? 10 : 20", Some(10)),
            ("0x10u + 010 + 0b11 + 1'000", Some(1027)),
            ("defined(N) && !defined O", Some(1)),
            ("unknown || 1", Some(1)),
            ("unknown && 0", Some(0)),
            ("unknown && 1", None),
            ("sizeof(unsigned int) * 2", Some(8)),
            ("(unsigned)N / 2", Some(2)),
            ("(size_t)(N)", Some(5)),
            ("a::M % 4", Some(3)),
            ("-N + ~0", Some(-6)),
            ("1 / 0", None),
            ("1 << 200", None),
            ("1 +", None),
            ("(1", None),
            ("f(1)", None),
            ("", None),
            ("1.5", None),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_ends_in_an_answer(text: String) {
            let _ = value(&text);
        }

        #[test]
        fn any_tokens_end_in_an_answer(tokens in prop::collection::vec(
            prop::sample::select(vec!["(", ")", "1", "N", "-", "!", "?", ":", "::", "<<", "sizeof", "defined", "int"]), 0..200)
        ) {
            let _ = value(&tokens.join(" "));
        }
    }
}
