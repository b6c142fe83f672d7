//! Integer expressions of contracts.

use std::ops::Range;

use super::Scope;
use super::place::{Place, Refusal};
use crate::diagnostic::Diagnostic;
use crate::types::{ParamType, ValueType};

/// An integer expression. Launchers evaluate it in checked 128-bit arithmetic.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    Literal(i128),
    /// An integer parameter, by index.
    Param(usize),
    /// An integer inside a parameter: the parameter's index, the integer as the contract writes it (`s.size[1]`), and
    /// what follows the argument's name in Rust (`.size[1]`).
    Member {
        param: usize,
        written: String,
        rust: String,
    },
    /// The number of elements behind a pointer parameter, by index.
    Len(usize),
    Launch(LaunchValue),
    Negate(Box<Expr>),
    Binary(Operator, Box<Expr>, Box<Expr>),
}

/// How an expression depends on a value in it: whether it can rise, or fall, as the value rises.
#[derive(Clone, Copy, Default)]
pub(super) struct Direction {
    pub(super) rises: bool,
    pub(super) falls: bool,
}

impl Direction {
    fn turned(self) -> Self {
        Self { rises: self.falls, falls: self.rises }
    }
}

/// A value of the launch that contracts may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaunchValue {
    Grid(usize),
    Block(usize),
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Expr {
    pub(crate) fn is_constant(&self) -> bool {
        self.values().is_empty()
    }

    pub(crate) fn uses_launch(&self) -> bool {
        self.values().iter().any(|leaf| matches!(leaf, Self::Launch(_)))
    }

    /// Returns true if evaluating can overflow or divide by zero.
    pub(crate) fn computes(&self) -> bool {
        matches!(self, Self::Negate(_) | Self::Binary(..))
    }

    /// Returns how the expression depends on `leaf`, a length or a value of the launch.
    pub(super) fn direction(&self, leaf: &Self) -> Direction {
        match self {
            Self::Literal(_) | Self::Param(_) | Self::Member { .. } | Self::Len(_) | Self::Launch(_) => {
                Direction { rises: self == leaf, falls: false }
            }
            Self::Negate(inner) => inner.direction(leaf).turned(),
            Self::Binary(operator, left, right) => {
                let (left, right) = (left.direction(leaf), right.direction(leaf));
                let right = match operator {
                    Operator::Add | Operator::Multiply => right,
                    Operator::Subtract | Operator::Divide => right.turned(),
                    // The remainder of a division tells us nothing about the size of either side.
                    Operator::Remainder => return Direction::default(),
                };
                Direction { rises: left.rises || right.rises, falls: left.falls || right.falls }
            }
        }
    }

    /// Returns every leaf except literals, in source order.
    pub(crate) fn values(&self) -> Vec<&Self> {
        match self {
            Self::Literal(_) => Vec::new(),
            Self::Param(_) | Self::Member { .. } | Self::Len(_) | Self::Launch(_) => vec![self],
            Self::Negate(inner) => inner.values(),
            Self::Binary(_, left, right) => {
                let mut values = left.values();
                values.append(&mut right.values());
                values
            }
        }
    }

    /// Returns the indices of the pointers whose lengths the expression uses.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.values()
            .into_iter()
            .filter_map(|leaf| if let Self::Len(index) = leaf { Some(*index) } else { None })
    }
}

/// Splits part of a text at the commas outside parentheses.
pub(crate) fn split_commas(text: &str, range: Range<usize>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_i32, range.start);
    for (i, c) in text[range.clone()].char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth <= 0 => {
                parts.push(start..range.start + i);
                start = range.start + i + 1;
            }
            _ => {}
        }
    }
    parts.push(start..range.end);
    parts
}

/// Returns `range` without white space at its ends. If nothing is left, returns one character.
pub(crate) fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = &text[range.clone()];
    let start = range.start + (part.len() - part.trim_start().len());
    let end = range.start + part.trim_end().len();
    start.min(range.end)..end.max(start)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Number(&'a str),
    Name(&'a str),
    Symbol(&'a str),
    End,
}

/// A recursive-descent parser for a part of a source file.
pub(crate) struct Parser<'a> {
    scope: Scope<'a>,
    range: Range<usize>,
    at: usize,
    /// How many parentheses and signs surround the current position.
    depth: u32,
}

/// How deep expressions may nest. The limit protects the stack: the parser recurses once per level, and so
/// does the Rust compiler when it reads the launcher.
const MAX_DEPTH: u32 = 64;

/// The symbols, longest first, so that `<=` is not read as `<`. The last few are not operators in contracts,
/// but a message about an operator is clearer than one about a character.
const SYMBOLS: [&str; 25] = [
    "<=", ">=", "==", "!=", "&&", "||", "<<", ">>", "->", "<", ">", "+", "-", "*", "/", "%", "(", ")", ".",
    "=", "!", "&", "|", "[", "]",
];

impl<'a> Parser<'a> {
    pub(crate) fn new(range: Range<usize>, scope: Scope<'a>) -> Self {
        let range = trimmed(scope.text, range);
        Self { scope, at: range.start, range, depth: 0 }
    }

    fn skip_space(&mut self) {
        let rest = &self.scope.text[self.at..self.range.end];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn peek(&mut self) -> Result<(Token<'a>, Range<usize>), Diagnostic> {
        self.skip_space();
        let rest: &'a str = &self.scope.text[self.at..self.range.end];
        let Some(first) = rest.chars().next() else {
            // The error points at the last character, because that one is still on this line.
            return Ok((Token::End, self.at.saturating_sub(1).max(self.range.start)..self.at));
        };
        let take = |f: fn(char) -> bool| rest.find(|c| !f(c)).unwrap_or(rest.len());
        let (token, length) = if first.is_ascii_digit() {
            let length = take(|c| c.is_alphanumeric() || c == '_' || c == '\'');
            (Token::Number(&rest[..length]), length)
        } else if first.is_alphabetic() || first == '_' {
            let length = take(|c| c.is_alphanumeric() || c == '_');
            (Token::Name(&rest[..length]), length)
        } else if let Some(symbol) = SYMBOLS.into_iter().find(|s| rest.starts_with(s)) {
            (Token::Symbol(symbol), symbol.len())
        } else {
            let range = self.at..self.at + first.len_utf8();
            return Err(self.error(range, format!("`{first}` is not part of a contract's language")));
        };
        Ok((token, self.at..self.at + length))
    }

    fn next(&mut self) -> Result<(Token<'a>, Range<usize>), Diagnostic> {
        let (token, range) = self.peek()?;
        if token != Token::End {
            self.at = range.end;
        }
        Ok((token, range))
    }

    fn error(&self, range: Range<usize>, message: impl Into<String>) -> Diagnostic {
        self.scope.refuse(
            range,
            message,
            "conditions compare integer expressions: `requires: n <= len(x), rows * pitch <= len(y)`",
        )
    }

    fn accept(&mut self, symbols: &[&'static str]) -> Result<Option<&'static str>, Diagnostic> {
        let (token, range) = self.peek()?;
        if let Token::Symbol(symbol) = token
            && let Some(found) = symbols.iter().find(|s| **s == symbol)
        {
            self.at = range.end;
            return Ok(Some(found));
        }
        Ok(None)
    }

    /// Reads a comparison.
    pub(crate) fn comparison(&mut self) -> Result<&'static str, Diagnostic> {
        if let Some(symbol) = self.accept(&["<=", ">=", "==", "!=", "<", ">"])? {
            return Ok(symbol);
        }
        let (token, range) = self.peek()?;
        Err(match token {
            Token::End => self.error(range, "a comparison is missing here"),
            Token::Symbol("=") => self.scope.refuse(range, "`=` is not a comparison", "write `==`"),
            _ => self.error(range, "expected a comparison: < <= > >= == !="),
        })
    }

    /// Refuses any remaining text.
    pub(crate) fn finish(&mut self) -> Result<(), Diagnostic> {
        let (token, range) = self.peek()?;
        match token {
            Token::End => Ok(()),
            Token::Symbol("<" | "<=" | ">" | ">=" | "==" | "!=") => Err(self.scope.refuse(
                range,
                "comparisons cannot be chained",
                "write two conditions: `0 <= i, i < n`",
            )),
            Token::Symbol("&&" | "||") => Err(self.scope.refuse(
                range,
                "conditions have no && and ||",
                "separate conditions with commas; all of them must hold",
            )),
            _ => Err(self.error(range, "expected `,` or the end of the contract")),
        }
    }

    /// Reads `term (('+' | '-') term)*`.
    pub(crate) fn expression(&mut self) -> Result<Expr, Diagnostic> {
        let mut left = self.term()?;
        while let Some(symbol) = self.accept(&["+", "-"])? {
            let operator = if symbol == "+" { Operator::Add } else { Operator::Subtract };
            left = Expr::Binary(operator, Box::new(left), Box::new(self.term()?));
        }
        Ok(left)
    }

    /// Reads `factor (('*' | '/' | '%') factor)*`.
    fn term(&mut self) -> Result<Expr, Diagnostic> {
        let mut left = self.factor()?;
        while let Some(symbol) = self.accept(&["*", "/", "%"])? {
            let operator = match symbol {
                "*" => Operator::Multiply,
                "/" => Operator::Divide,
                _ => Operator::Remainder,
            };
            left = Expr::Binary(operator, Box::new(left), Box::new(self.factor()?));
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<Expr, Diagnostic> {
        let (token, range) = self.next()?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(range, format!("more than {MAX_DEPTH} levels of parentheses and signs")));
        }
        let factor = self.factor_of(token, range);
        self.depth -= 1;
        factor
    }

    fn factor_of(&mut self, token: Token<'a>, range: Range<usize>) -> Result<Expr, Diagnostic> {
        match token {
            Token::Symbol("-") => Ok(Expr::Negate(Box::new(self.factor()?))),
            Token::Symbol("(") => {
                let inner = self.expression()?;
                self.close()?;
                Ok(inner)
            }
            Token::Number(digits) => self.number(digits, range).map(Expr::Literal),
            Token::Name("grid") if self.scope.find("grid").is_none() => {
                Ok(Expr::Launch(LaunchValue::Grid(self.axis("grid", range)?)))
            }
            Token::Name("block") if self.scope.find("block").is_none() => {
                Ok(Expr::Launch(LaunchValue::Block(self.axis("block", range)?)))
            }
            Token::Name("shared") if self.scope.find("shared").is_none() => {
                Ok(Expr::Launch(LaunchValue::Shared))
            }
            Token::Name("len") if self.scope.find("len").is_none() => self.length(range),
            Token::Name(name) => self.parameter(name, range),
            Token::End => Err(self.error(range, "an expression is missing here")),
            Token::Symbol(symbol) => Err(self.error(range, format!("`{symbol}` cannot begin an expression"))),
        }
    }

    fn close(&mut self) -> Result<(), Diagnostic> {
        if self.accept(&[")"])?.is_none() {
            let (_, range) = self.peek()?;
            return Err(self.error(range, "expected `)`"));
        }
        Ok(())
    }

    fn number(&self, digits: &str, range: Range<usize>) -> Result<i128, Diagnostic> {
        let plain: String = digits.chars().filter(|&c| c != '_' && c != '\'').collect();
        let plain = plain.trim_end_matches(['u', 'U', 'l', 'L']);
        if plain.len() > 1 && plain.starts_with('0') && plain.bytes().all(|b| b.is_ascii_digit()) {
            return Err(self.scope.refuse(
                range,
                format!("`{digits}` is octal in C++"),
                "write it without the zero in front, as a decimal number",
            ));
        }
        let value = match plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) {
            Some(hex) => i128::from_str_radix(hex, 16),
            None => plain.parse(),
        };
        value.map_err(|_| self.error(range, format!("`{digits}` is not an integer")))
    }

    fn axis(&mut self, of: &str, range: Range<usize>) -> Result<usize, Diagnostic> {
        if self.accept(&["."])?.is_some() {
            match self.next()?.0 {
                Token::Name("x") => return Ok(0),
                Token::Name("y") => return Ok(1),
                Token::Name("z") => return Ok(2),
                _ => {}
            }
        }
        Err(self.scope.refuse(
            range,
            format!("`{of}` has three parts"),
            format!("write {of}.x, {of}.y or {of}.z"),
        ))
    }

    fn unknown(&self, name: &str, range: Range<usize>) -> Diagnostic {
        let names: Vec<_> = self
            .scope
            .params
            .iter()
            .flat_map(|p| match &p.ty {
                ParamType::Pointer { .. } => vec![format!("len({})", p.name)],
                ParamType::Value(ty) => Place::parameter(&p.name, ty).integers(self.scope.definitions),
            })
            .collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        self.scope.refuse(
            range,
            format!("`{name}` is not a parameter of kernel `{}`", self.scope.kernel),
            format!("you can use {names}, and grid.x, block.x (y, z), shared"),
        )
    }

    fn length(&mut self, range: Range<usize>) -> Result<Expr, Diagnostic> {
        if self.accept(&["("])?.is_none() {
            return Err(self.scope.refuse(range, "`len` of what?", "write len(pointer)"));
        }
        let (token, range) = self.next()?;
        let Token::Name(name) = token else {
            return Err(self.error(range, "`len` takes the name of a pointer parameter"));
        };
        let index = self.scope.find(name).ok_or_else(|| self.unknown(name, range.clone()))?;
        let ty = &self.scope.params[index].ty;
        if !matches!(ty, ParamType::Pointer { .. }) && !ty.is_refused() {
            return Err(self.scope.refuse(
                range,
                format!("`{name}` is not a pointer, so it has no length"),
                format!("write `{name}` without `len`"),
            ));
        }
        self.close()?;
        Ok(Expr::Len(index))
    }

    fn parameter(&mut self, name: &str, range: Range<usize>) -> Result<Expr, Diagnostic> {
        let index = self.scope.find(name).ok_or_else(|| self.unknown(name, range.clone()))?;
        match &self.scope.params[index].ty {
            ParamType::Value(ty) => self.part(index, Place::parameter(name, ty), range),
            ParamType::Pointer { element, .. } => {
                let is_struct = matches!(element, ValueType::Struct { .. });
                let follows = matches!(self.peek()?.0, Token::Symbol("->" | "." | "["));
                let help = if is_struct && follows {
                    "a launcher cannot read memory of the device: pass the struct by value, or its number beside it"
                        .to_owned()
                } else {
                    format!("its number of elements is len({name})")
                };
                Err(self.scope.refuse(range, format!("`{name}` is a pointer"), help))
            }
        }
    }

    /// Reads which integer of a parameter is meant: `s.width`, `s.size[1]`. `range` is the parameter's name.
    fn part(&mut self, param: usize, mut place: Place, mut range: Range<usize>) -> Result<Expr, Diagnostic> {
        let whole = place.clone();
        loop {
            let part = if self.accept(&["."])?.is_some() {
                let (token, word) = self.next()?;
                let Token::Name(name) = token else {
                    return Err(self.error(word, "the name of a member is missing here"));
                };
                range = word;
                place.member(name, self.scope.definitions)
            } else if self.accept(&["["])?.is_some() {
                let (token, word) = self.next()?;
                let Token::Number(digits) = token else {
                    return Err(self.error(word, "an element's index is a number: `s.size[1]`"));
                };
                let index = self.number(digits, word.clone())?;
                if self.accept(&["]"])?.is_none() {
                    let (_, range) = self.peek()?;
                    return Err(self.error(range, "expected `]`"));
                }
                range = word;
                place.element(index)
            } else {
                break;
            };
            place =
                part.map_err(|(message, help): Refusal| self.scope.refuse(range.clone(), message, help))?;
        }
        if !place.is_refused() && !place.is_integer() {
            let message = format!("`{}` is not an integer", place.written);
            let has_integers = !place.integers(self.scope.definitions).is_empty();
            let help = if has_integers { place } else { whole }.instead(self.scope.definitions);
            return Err(self.scope.refuse(range, message, help));
        }
        if place.rust.is_empty() {
            return Ok(Expr::Param(param));
        }
        Ok(Expr::Member { param, written: place.written, rust: place.rust })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::diagnostic::SourceFile;
    use crate::types::{Param, Scalar};

    fn params() -> Vec<Param> {
        let param = |name: &str, ty| Param { name: name.to_owned(), range: 0..0, ty };
        let integer = ParamType::Value(ValueType::Scalar(Scalar::I32));
        let element = ValueType::Scalar(Scalar::F32);
        vec![
            param("n", integer.clone()),
            param("m", integer),
            param("x", ParamType::Pointer { element, mutable: true, volatile: false }),
        ]
    }

    fn parsed(text: &str) -> Result<Expr, Diagnostic> {
        let (source, params) = (SourceFile::new("k.cu", text), params());
        let scope = Scope { file: &source, text, kernel: "k", params: &params, definitions: &[] };
        let mut parser = Parser::new(0..text.len(), scope);
        let expr = parser.expression()?;
        parser.finish()?;
        Ok(expr)
    }

    /// Returns the value that a launcher computes, or `None` if anything overflows or divides by zero.
    fn value(expr: &Expr) -> Option<i128> {
        Some(match expr {
            Expr::Literal(value) => *value,
            Expr::Param(0) => 7,
            Expr::Param(_) | Expr::Member { .. } => -3,
            Expr::Len(_) => 1000,
            Expr::Launch(_) => 64,
            Expr::Negate(inner) => value(inner)?.checked_neg()?,
            Expr::Binary(operator, left, right) => {
                let (left, right) = (value(left)?, value(right)?);
                match operator {
                    Operator::Add => left.checked_add(right)?,
                    Operator::Subtract => left.checked_sub(right)?,
                    Operator::Multiply => left.checked_mul(right)?,
                    Operator::Divide => left.checked_div(right)?,
                    Operator::Remainder => left.checked_rem(right)?,
                }
            }
        })
    }

    /// A model without trees: multiplies from the left, then adds from the left.
    fn flat(first: (&str, i128), rest: &[(char, (&str, i128))]) -> Option<i128> {
        let (mut sum, mut sign, mut product) = (0_i128, '+', first.1);
        let close = |sum: i128, sign, product| match sign {
            '+' => sum.checked_add(product),
            _ => sum.checked_sub(product),
        };
        for &(operator, (_, value)) in rest {
            match operator {
                '*' => product = product.checked_mul(value)?,
                '/' => product = product.checked_div(value)?,
                '%' => product = product.checked_rem(value)?,
                _ => (sum, sign, product) = (close(sum, sign, product)?, operator, value),
            }
        }
        close(sum, sign, product)
    }

    fn leaf() -> impl Strategy<Value = (&'static str, i128)> {
        prop::sample::select(vec![
            ("n", 7),
            ("m", -3),
            ("len(x)", 1000),
            ("grid.x", 64),
            ("0", 0),
            ("1", 1),
            ("0x10", 16),
            ("1'000u", 1000),
            ("-5", -5),
            ("(n + m)", 4),
            ("170141183460469231731687303715884105727", i128::MAX),
        ])
    }

    proptest! {
        #[test]
        fn expressions_mean_what_a_flat_model_computes(
            first in leaf(),
            rest in prop::collection::vec((prop::sample::select(vec!['+', '-', '*', '/', '%']), leaf()), 0..8),
        ) {
            let mut text = first.0.to_owned();
            for (operator, (leaf, _)) in &rest {
                text += &format!(" {operator} {leaf}");
            }
            let expr = parsed(&text).unwrap();
            prop_assert_eq!(value(&expr), flat(first, &rest), "{}", text);
        }

        #[test]
        fn any_text_ends_in_an_answer(text: String) {
            let _ = parsed(&text);
        }

        #[test]
        fn any_words_end_in_an_answer(
            words in prop::collection::vec(
                prop::sample::select(vec![
                    "n", "x", "len", "(", ")", "-", "+", "*", "/", "%", ".", "grid", "block", "shared", "0x", "9", "\n", " ",
                    "<=", "é", "=", "&&", "'", "_",
                ]),
                0..300,
            ),
        ) {
            let _ = parsed(&words.concat());
        }
    }

    #[test]
    fn nesting_has_an_end() {
        for (open, close) in [("(", ")"), ("-", "")] {
            let nested = |depth| format!("{}n{}", open.repeat(depth), close.repeat(depth));
            assert!(parsed(&nested(60)).is_ok());
            assert!(parsed(&nested(100)).unwrap_err().message.contains("levels of parentheses"));
            assert!(parsed(&nested(1_000_000)).is_err());
        }
    }
}
