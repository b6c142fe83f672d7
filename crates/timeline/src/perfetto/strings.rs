//! The table of strings that a file's packets refer to by number.

use std::collections::HashMap;

use super::schema::{Interned, InternedData};
use super::words::{Category, Key};

/// The kinds of strings, which a file numbers apart.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Category,
    Event,
    Annotation,
    Value,
}

/// The strings that a later packet may refer to, by the writer's side. The table is emptied when it gets long, and
/// the file says so.
#[derive(Default)]
pub(super) struct Strings {
    numbers: [HashMap<Box<str>, u64>; 4],
    bytes: usize,
    /// The strings that no packet has brought yet.
    new: InternedData,
}

impl Strings {
    const MOST: usize = 4096;
    const MOST_BYTES: usize = 256 << 10;

    /// Makes a table with the words of the format, each at its own number.
    pub(super) fn new() -> Self {
        let mut strings = Self::default();
        for category in Category::ALL {
            strings.number(Kind::Category, category.word());
        }
        for key in Key::ALL {
            strings.number(Kind::Annotation, key.word());
        }
        strings
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() > Self::MOST || self.bytes > Self::MOST_BYTES
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.iter().map(HashMap::len).sum()
    }

    /// Returns the number of a string, from 1.
    pub(super) fn number(&mut self, kind: Kind, text: &str) -> u64 {
        let numbers = &mut self.numbers[kind as usize];
        if let Some(number) = numbers.get(text) {
            return *number;
        }
        let number = numbers.len() as u64 + 1;
        numbers.insert(text.into(), number);
        self.bytes += text.len();
        list(&mut self.new, kind).push(Interned { iid: number, text: text.to_owned() });
        number
    }

    /// Takes the strings that no packet has brought yet.
    pub(super) fn take_new(&mut self) -> Option<InternedData> {
        let new = std::mem::take(&mut self.new);
        (new != InternedData::default()).then_some(new)
    }
}

/// The strings by number, by the reader's side.
#[derive(Default)]
pub(super) struct Texts([Vec<String>; 4]);

impl Texts {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds strings, which have the next numbers.
    pub(super) fn add(&mut self, mut new: InternedData) -> Result<(), &'static str> {
        for kind in [Kind::Category, Kind::Event, Kind::Annotation, Kind::Value] {
            let texts = &mut self.0[kind as usize];
            for string in list(&mut new, kind).drain(..) {
                texts.push(string.text);
                if string.iid != texts.len() as u64 {
                    return Err("a string whose number is not the next one");
                }
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, kind: Kind, number: u64) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.0[kind as usize].get(index).map(String::as_str)
    }
}

fn list(data: &mut InternedData, kind: Kind) -> &mut Vec<Interned> {
    match kind {
        Kind::Category => &mut data.event_categories,
        Kind::Event => &mut data.event_names,
        Kind::Annotation => &mut data.debug_annotation_names,
        Kind::Value => &mut data.debug_annotation_string_values,
    }
}
