//! The debug annotations of an event, as the reader sees them.

use std::borrow::Cow;

use gpustream_timeline::perfetto::format::{Key, Kind};
use gpustream_timeline::{Point, SourceLine, WorkKind};

use super::parse;
use super::schema::{Annotation, Value};
use super::texts::Texts;

/// The annotations of an event, and the strings that they refer to.
pub(super) struct Noted<'a> {
    texts: &'a Texts,
    list: &'a [Annotation],
}

type Read<T> = Result<T, &'static str>;

impl<'a> Noted<'a> {
    pub(super) fn new(texts: &'a Texts, list: &'a [Annotation]) -> Self {
        Self { texts, list }
    }

    pub(super) fn has(&self, key: Key) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn uint(&self, key: Key) -> Read<u64> {
        match self.get(key).and_then(|annotation| annotation.value.as_ref()) {
            Some(Value::Uint(number)) => Ok(*number),
            _ => Err("an event without one of its numbers"),
        }
    }

    pub(super) fn small(&self, key: Key) -> Read<u32> {
        self.uint(key)?.try_into().map_err(|_| "a number that is too large")
    }

    pub(super) fn text(&self, key: Key) -> Read<&'a str> {
        self.get(key)
            .and_then(|annotation| self.text_of(annotation))
            .ok_or("an event without one of its texts")
    }

    pub(super) fn point(&self) -> Read<Point> {
        Ok(Point { stream: self.uint(Key::Stream)?, number: self.uint(Key::Number)? })
    }

    pub(super) fn place(&self) -> Read<SourceLine> {
        if !self.has(Key::Source) {
            return Ok(SourceLine::default());
        }
        parse::place(self.text(Key::Source)?).ok_or("a place in the source without a line")
    }

    pub(super) fn after(&self) -> Read<Vec<Point>> {
        let points = self.get(Key::After).map_or(&[][..], |annotation| &annotation.array_values);
        let point = |value| self.text_of(value).and_then(parse::point_of).ok_or("a wait for no operation");
        points.iter().map(point).collect()
    }

    pub(super) fn fields(&self) -> Read<Vec<(Cow<'static, str>, String)>> {
        let entries = self.get(Key::Fields).map_or(&[][..], |annotation| &annotation.dict_entries);
        let field = |entry| {
            let name = self.name_of(entry).ok_or("a field without a name")?;
            let value = self.text_of(entry).ok_or("a field without a value")?;
            Ok((Cow::Owned(name.to_owned()), value.to_owned()))
        };
        entries.iter().map(field).collect()
    }

    pub(super) fn work(&self) -> Read<WorkKind> {
        let extent = |key| parse::extent_of(self.text(key)?).ok_or("a grid that is none");
        Ok(match self.text(Key::Work)? {
            "kernel" => WorkKind::Kernel { grid: extent(Key::Grid)?, block: extent(Key::Block)? },
            "copy" => WorkKind::Copy {
                direction: parse::direction(self.text(Key::Direction)?).ok_or("a copy from nowhere")?,
                bytes: self.uint(Key::Bytes)?,
                pageable: self.bool(Key::Pageable)?,
            },
            "fill" => WorkKind::Fill { bytes: self.uint(Key::Bytes)? },
            "host" => WorkKind::Host,
            "graph" => WorkKind::Graph { operations: self.small(Key::Operations)? },
            "step" => WorkKind::Step { operations: self.small(Key::Operations)? },
            "external" => WorkKind::External,
            "other" => WorkKind::Other,
            _ => return Err("work of an unknown kind"),
        })
    }

    fn bool(&self, key: Key) -> Read<bool> {
        match self.get(key).and_then(|annotation| annotation.value.as_ref()) {
            Some(Value::Bool(value)) => Ok(*value),
            _ => Err("an event without one of its answers"),
        }
    }

    fn get(&self, key: Key) -> Option<&'a Annotation> {
        self.list.iter().find(|annotation| self.name_of(annotation) == Some(key.word()))
    }

    fn name_of(&self, annotation: &Annotation) -> Option<&'a str> {
        self.texts.get(Kind::Annotation, annotation.name_iid?)
    }

    fn text_of(&self, annotation: &'a Annotation) -> Option<&'a str> {
        match annotation.value.as_ref()? {
            Value::Text(text) => Some(text),
            Value::TextIid(number) => self.texts.get(Kind::Value, *number),
            _ => None,
        }
    }
}
