//! Integers inside of parameters: `s.width`, `s.size[1]`, `cells.x`.

use crate::definition::{Definition, Field};
use crate::names::identifier;
use crate::types::{Scalar, ValueType};

/// A parameter passed by value, or a part of one.
#[derive(Clone)]
pub(super) struct Place {
    /// The part as contracts write it: `s.size[1]`.
    pub(super) written: String,
    /// What follows the argument's name in Rust: `.size[1]`.
    pub(super) rust: String,
    ty: ValueType,
    /// The lengths of the arrays around the type, outermost first.
    extents: Vec<usize>,
}

/// Why a place has no such part: what is wrong, and what to write instead.
pub(super) type Refusal = (String, String);

/// How many integers a message lists.
const LISTED: usize = 8;

const LANES: [&str; 4] = ["x", "y", "z", "w"];

impl Place {
    pub(super) fn parameter(name: &str, ty: &ValueType) -> Self {
        Self { written: name.to_owned(), rust: String::new(), ty: ty.clone(), extents: Vec::new() }
    }

    /// Returns true if contracts may compute with the value.
    pub(super) fn is_integer(&self) -> bool {
        self.extents.is_empty() && matches!(&self.ty, ValueType::Scalar(scalar) if scalar.is_integer())
    }

    /// Returns true if nothing is known about the parameter, because an error of its own refuses it.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.ty, ValueType::Bytes { .. })
    }

    /// Returns the member with this name.
    pub(super) fn member(&self, name: &str, definitions: &[Definition]) -> Result<Self, Refusal> {
        let Self { written, .. } = self;
        match &self.ty {
            ValueType::Bytes { .. } => Ok(self.clone()),
            _ if !self.extents.is_empty() => {
                Err((format!("`{written}` is an array"), format!("name one of its elements: {written}[0]")))
            }
            ValueType::Vector { lane, lanes, .. } => {
                let number = LANES.iter().take(*lanes).position(|lane| *lane == name);
                number
                    .map(|number| self.lane(*lane, number))
                    .ok_or_else(|| (format!("`{written}` has no member `{name}`"), self.instead(definitions)))
            }
            ValueType::Struct { cpp, .. } => {
                let fields = self.fields(definitions);
                if fields.iter().any(|field| !field.in_cpp) {
                    return Err((
                        format!("`{cpp}` is a union, and we cannot know which of its members is valid"),
                        "pass the number as a parameter of its own, or beside the union in a struct"
                            .to_owned(),
                    ));
                }
                let field = fields.iter().find(|field| field.name == name);
                field.map(|field| self.field(field)).ok_or_else(|| {
                    (format!("a value of `{cpp}` has no member `{name}`"), self.instead(definitions))
                })
            }
            _ => Err((
                format!("`{written}` is not a struct, so it has no members"),
                format!("write `{written}` alone, or another parameter"),
            )),
        }
    }

    /// Returns the element with this index.
    pub(super) fn element(&self, index: i128) -> Result<Self, Refusal> {
        let mut element = self.clone();
        element.written += &format!("[{index}]");
        element.rust += &format!("[{index}]");
        let len = match &self.ty {
            ValueType::Bytes { .. } => return Ok(element),
            _ if !self.extents.is_empty() => element.extents.remove(0),
            ValueType::Array { element: inner, len } => {
                element.ty = (**inner).clone();
                *len
            }
            _ => {
                let Self { written, .. } = self;
                return Err((
                    format!("`{written}` is not an array, so it has no elements"),
                    format!("write `{written}` without an index"),
                ));
            }
        };
        if usize::try_from(index).is_ok_and(|index| index < len) {
            return Ok(element);
        }
        Err((format!("`{}` has {len} elements", self.written), format!("write an index below {len}")))
    }

    /// Returns what to write instead of the place.
    pub(super) fn instead(&self, definitions: &[Definition]) -> String {
        let mut integers = self.integers(definitions);
        if integers.is_empty() {
            return "contracts compute with integer parameters, integers in structs, and lengths".to_owned();
        }
        if integers.len() > LISTED {
            integers.truncate(LISTED);
            integers.push("…".to_owned());
        }
        format!("you can use {}", integers.join(", "))
    }

    /// Returns all integers in the place, as contracts write them. Of an array, the first element.
    pub(super) fn integers(&self, definitions: &[Definition]) -> Vec<String> {
        if self.is_integer() {
            return vec![self.written.clone()];
        }
        if let Ok(first) = self.element(0)
            && !self.is_refused()
        {
            return first.integers(definitions);
        }
        let parts: Vec<Self> = match &self.ty {
            ValueType::Vector { lane, lanes, .. } => (0..*lanes).map(|at| self.lane(*lane, at)).collect(),
            _ => self.fields(definitions).iter().filter(|f| f.in_cpp).map(|f| self.field(f)).collect(),
        };
        parts.iter().flat_map(|part| part.integers(definitions)).collect()
    }

    /// Returns a struct's members. Empty for any other type.
    fn fields<'d>(&self, definitions: &'d [Definition]) -> &'d [Field] {
        let ValueType::Struct { cpp, .. } = &self.ty else { return &[] };
        let named = definitions.iter().find(|definition| definition.cpp() == cpp);
        if let Some(Definition::Struct(found)) = named { &found.fields } else { &[] }
    }

    fn field(&self, field: &Field) -> Self {
        Self {
            written: format!("{}.{}", self.written, field.name),
            rust: format!("{}.{}", self.rust, identifier(&field.name)),
            ty: field.ty.clone(),
            extents: field.extents.clone(),
        }
    }

    /// Returns a part of a vector, which is an array in Rust.
    fn lane(&self, scalar: Scalar, number: usize) -> Self {
        Self {
            written: format!("{}.{}", self.written, LANES.get(number).copied().unwrap_or_default()),
            rust: format!("{}[{number}]", self.rust),
            ty: ValueType::Scalar(scalar),
            extents: Vec::new(),
        }
    }
}
