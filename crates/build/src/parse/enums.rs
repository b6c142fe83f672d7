//! Enums: their values, and the integer type that represents them in Rust.

use super::children;
use super::declared::Constant;
use super::types::{Place, Shape, Types};
use crate::definition::Enum;
use crate::diagnostic::Diagnostic;
use crate::types::{Scalar, ValueType};

impl<'a> Types<'a> {
    /// Reads an enum that a kernel takes.
    pub(super) fn define_enum(&mut self, cpp: &str, place: Place<'a>) -> Result<Enum, Diagnostic> {
        let fixed = match place.node.child_by_field_name("base") {
            Some(base) => match self.resolve_type(place.at(base))?.shape {
                Shape::Value(ValueType::Scalar(scalar)) => Some(scalar),
                _ => return Err(place.at(base).refuse("an enum of this type", "write an integer type")),
            },
            None => None,
        };
        let scoped = children(place.node).iter().any(|child| matches!(child.kind(), "class" | "struct"));
        let outer = cpp.rfind("::").map_or("", |at| &cpp[..at + 2]).to_owned();
        let mut values = Vec::new();
        if let Some(body) = place.node.child_by_field_name("body") {
            for (name, value) in self.enumerators(place.at(body), &outer) {
                values.push((name, value.ok_or_else(|| {
                    place.refuse(
                        format!("a value of `{cpp}` is unknown"),
                        "write numbers, or expressions of constants and macros that this file or its headers define",
                    )
                })?));
            }
        }
        let fits =
            |range: std::ops::RangeInclusive<i128>| values.iter().all(|(_, value)| range.contains(value));
        let repr = match fixed {
            // The byte of a bool is an integer, whatever it holds.
            Some(Scalar::Bool) => Scalar::U8,
            Some(scalar) => scalar,
            None if scoped || fits(i32::MIN.into()..=i32::MAX.into()) => Scalar::I32,
            None if fits(0..=u32::MAX.into()) => Scalar::U32,
            None => Scalar::I64,
        };
        let docs = self.docs(place);
        Ok(Enum { name: self.rust_name(cpp, place)?, cpp: cpp.to_owned(), docs, repr, values })
    }

    /// Returns the enumerators with their values, or `None` if we cannot compute one.
    pub(super) fn enumerators(&mut self, body: Place<'a>, scope: &str) -> Vec<(String, Option<i128>)> {
        let mut next = Some(0);
        let mut enumerators: Vec<(String, Option<i128>)> = Vec::new();
        for node in children(body.node).into_iter().filter(|node| node.kind() == "enumerator") {
            let Some(name) = node.child_by_field_name("name") else { continue };
            if let Some(value) = node.child_by_field_name("value") {
                next = self.evaluate(body.at(value).text(), scope);
            }
            let name = body.at(name).text().to_owned();
            if let Some(value) = next {
                self.constants.insert(format!("{scope}{name}"), Constant::Value(value));
            }
            enumerators.push((name, next));
            next = next.map(|value| value + 1);
        }
        enumerators
    }
}
