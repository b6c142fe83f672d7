//! The table of strings that packets refer to by number.

use std::collections::HashMap;

use super::format::{Category, Key, Kind};
use super::message::Message;

impl Kind {
    /// The field of `InternedData` (`interned_data/interned_data.proto`) for strings of this kind.
    fn field(self) -> u32 {
        match self {
            Self::Category => 1,
            Self::Event => 2,
            Self::Annotation => 3,
            Self::Value => 29,
        }
    }
}

/// The strings that later packets may refer to, on the writer's side. If the table gets too long, we empty
/// it, and a packet tells readers that they must do the same.
#[derive(Default)]
pub(super) struct Strings {
    numbers: [HashMap<Box<str>, u64>; 4],
    bytes: usize,
    /// The strings that are not in a packet yet, encoded as fields of `InternedData`.
    new: [Vec<u8>; 4],
}

impl Strings {
    const MOST: usize = 4096;
    const MOST_BYTES: usize = 256 << 10;

    /// Makes a table with the words of the format, each with its fixed number.
    pub(super) fn with_words() -> Self {
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
        Message::behind(&mut self.new[kind as usize]).message(kind.field(), |string| {
            string.uint(1, number);
            string.text_unless_empty(2, text);
        });
        number
    }

    pub(super) fn has_new(&self) -> bool {
        self.new.iter().any(|new| !new.is_empty())
    }

    /// Writes the strings that are not in a packet yet.
    pub(super) fn write_new(&mut self, data: &mut Message<'_>) {
        for new in &mut self.new {
            data.fields(new);
            new.clear();
        }
    }
}
